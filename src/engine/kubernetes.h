/* Kubernetes as a place for agents: the manifests of one run (docs/spec/kubernetes.md 5). Every pod runs the
 * same line, `trainyard run --nnodes N --node-rank I --rendezvous HOST:PORT ... -- PROG`, and so joins the run
 * of the first. The pods of a run, or of a TPU slice, are an Indexed Job; several slices are a JobSet. Nothing
 * is sent anywhere here. */
#ifndef ENGINE_KUBERNETES_H
#define ENGINE_KUBERNETES_H

#include <jansson.h>

#include "scaling/scaling.h"

/* One amount or label of the command line. */
struct kubernetes_pair {
    const char *name, *value;
};

struct kubernetes_pairs {
    struct kubernetes_pair *items; /* owned; the texts are borrowed */
    size_t n;
};

enum {
    KUBERNETES_PORT = 29400,
    KUBERNETES_PREEMPTED = 128 + 15, /* a pod is told to end by SIGTERM */
    KUBERNETES_PODS_MAX = 100000     /* of an Indexed Job that run at once */
};

/* What Kubernetes has to be told beside the demand; borrowed during the call. Zero-initialised is the default
 * but for `name`, `image`, `key` and `words`. */
struct kubernetes_request {
    const char *name;            /* of all objects, and in the pods' host names */
    const char *space;           /* the namespace; NULL: kubectl's */
    const char *image, *command; /* NULL: trainyard, by the image's PATH */
    const char *key;             /* of the run: 64 hexadecimal digits */
    const char *const *words;    /* the options of `trainyard run`, "--" and the program; NULL-terminated */
    bool fit;                    /* the words are the program alone, which calls fit() and joins by variables */
    const char *const *variables; /* "K=V" that its pods have; NULL-terminated; NULL: none */
    const char *config;           /* text of a config file, which pods find at KUBERNETES_CONFIG; NULL: none */
    int64_t pods;                 /* 0: one for each worker */
    int64_t port;                 /* 0: KUBERNETES_PORT */
    int64_t max_restarts;         /* of a JobSet as a whole; of a Job's pods, once they are preempted */
    bool kept;                    /* the run's storage outlives its pods */
    int64_t grace_s;              /* between being told to end and being killed */
    const char *claim;            /* CLAIM:PATH, a volume that all pods mount; NULL: none */
    const char *shared_memory;    /* at most so much, as 64Gi; NULL: what the node allows */
    const char *queue;            /* of Kueue */
    struct kubernetes_pairs requests, selectors, tolerations;
    bool host_network, privileged, spot;
};

#define KUBERNETES_SHARED_MEMORY "/dev/shm"
#define KUBERNETES_CONFIG_PLACE "/etc/trainyard"
#define KUBERNETES_CONFIG KUBERNETES_CONFIG_PLACE "/config.yaml"
#define KUBERNETES_CONTAINER "trainyard" /* of each pod */

/* What the run is laid out on. */
struct kubernetes_layout {
    int64_t pods, workers_per_pod;
    int64_t slices, pods_per_slice; /* 1 and `pods` without TPU slices */
    bool set;                       /* several slices: a JobSet */
};

/* How many pods, and what each holds. TY_EUSAGE for what Kubernetes cannot do. */
int kubernetes_lay_out(const struct kubernetes_request *request, const struct demand *demand,
                       struct kubernetes_layout *layout, ty_error *err);

/* Whether a run that ends as preempted goes on in pods that follow: its Job makes them. */
bool kubernetes_goes_on(const struct kubernetes_request *request, const struct kubernetes_layout *layout);

/* A JSON list of the objects, in the order in which they are to be made; the caller's. */
int kubernetes_objects(const struct kubernetes_request *request, const struct demand *demand, json_t **objects,
                       ty_error *err);

/* -- kubernetes_needs.c: what one pod needs of its node */

/* Amounts by the names of Kubernetes, all of them limits as well: {"cpu": "4", "nvidia.com/gpu": "2"}. */
int kubernetes_resources(const struct kubernetes_request *request, const struct demand *demand,
                         const struct kubernetes_layout *layout, json_t **resources, ty_error *err);
/* nodeSelector, affinity and tolerations, set in the spec of a pod with these amounts. */
int kubernetes_choose_nodes(const struct kubernetes_request *request, const struct demand *demand,
                            const struct kubernetes_layout *layout, const json_t *resources, json_t *spec,
                            ty_error *err);

/* -- kubernetes_syntax.c: what the server of Kubernetes takes. TY_EUSAGE with what is allowed */

/* A namespace's name is part of one of hosts; others may have dots, and a queue's is a label as well. */
enum kubernetes_name { KUBERNETES_SPACE, KUBERNETES_QUEUE, KUBERNETES_OBJECT };
int kubernetes_check_name(const char *text, size_t size, enum kubernetes_name kind, ty_error *err);
int kubernetes_check_label(const char *key, const char *value, ty_error *err); /* value NULL: the key alone */
int kubernetes_check_resource(const char *name, ty_error *err);
int kubernetes_check_amount(const char *name, const char *amount, ty_error *err); /* of a resource */
int kubernetes_check_image(const char *text, ty_error *err);

/* A list or object of one more member that takes over `value`; 0 or -ENOMEM, also for a NULL. */
int kubernetes_set(json_t *object, const char *name, json_t *value);
int kubernetes_add(json_t *list, json_t *value);

#endif
