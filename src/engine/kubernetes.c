/* The objects of one run: Secret, ConfigMap, Service, and the Job or JobSet with its pod. Pods are alike, so
 * what differs between them (the node's rank, the place in a slice) comes from what Kubernetes tells each of
 * itself. */
#include "engine/kubernetes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "engine/join.h"
#include "scaling/device.h"

#define COMPLETION_INDEX "metadata.annotations['batch.kubernetes.io/job-completion-index']"
#define SLICE_INDEX "metadata.labels['jobset.sigs.k8s.io/job-index']"
#define INSTANCE "app.kubernetes.io/instance"

enum { NAME_LONGEST = 63, RENDEZVOUS_NAME_SIZE = 256, TPU_PORT = 8471, MEGASCALE_PORT = 8080, JAX_PORT = 8476 };

/* -- layout -- */

/* Objects' names become host names: <name>-<index>, <name>-slice-<slice>-<index>. */
static int check_object_name(const char *name, const struct kubernetes_layout *layout, ty_error *err) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz",
                      rest[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    char longest[48];
    int more = layout->set ? snprintf(longest, sizeof longest, "-slice-%lld-%lld",
                                      (long long)layout->slices - 1, (long long)layout->pods_per_slice - 1)
                           : snprintf(longest, sizeof longest, "-%lld", (long long)layout->pods - 1);
    size_t size = strlen(name);
    bool good = size > 0 && strchr(letters, name[0]) != NULL && name[strspn(name, rest)] == '\0' &&
                name[size - 1] != '-';
    if (good && size + (size_t)more <= NAME_LONGEST) return 0;
    return ty_fail(err, TY_EUSAGE,
                   "--name %.80s cannot be a name in Kubernetes: small letters, digits and '-', a letter "
                   "first, %d at most",
                   name, NAME_LONGEST - more);
}

static int lay_out_slices(const struct kubernetes_request *request, const struct demand *demand,
                          struct kubernetes_layout *layout, ty_error *err) {
    const struct tpu_demand *tpu = &demand->tpu;
    layout->slices = (int64_t)demand->max_workers / tpu->workers_per_slice;
    layout->pods_per_slice = tpu->hosts_per_slice;
    layout->pods = layout->slices * layout->pods_per_slice;
    layout->set = layout->slices > 1;
    if (layout->set && tpu->hosts_per_slice == 1)
        return ty_fail(
            err, TY_EUSAGE,
            "%lld slices of %s, each of one host: Kubernetes joins only slices of several hosts; ask for one "
            "slice, or for a larger --topology",
            (long long)layout->slices, tpu->topology);
    if (tpu->workers_per_slice % tpu->hosts_per_slice != 0)
        return ty_fail(
            err, TY_EUSAGE,
            "%lld workers on the %lld hosts of a slice: a worker cannot have chips of several hosts; "
            "ask for TPU=%lld at most",
            (long long)tpu->workers_per_slice, (long long)tpu->hosts_per_slice, (long long)tpu->chips_per_host);
    if (request->pods != 0 && request->pods != layout->pods)
        return ty_fail(err, TY_EUSAGE, "--nnodes %lld: a %s slice of %s has %lld host%s, which makes %lld",
                       (long long)request->pods, tpu->topology, tpu->generation,
                       (long long)tpu->hosts_per_slice, tpu->hosts_per_slice == 1 ? "" : "s",
                       (long long)layout->pods);
    return 0;
}

static int lay_out_pods(const struct kubernetes_request *request, const struct demand *demand,
                        struct kubernetes_layout *layout, ty_error *err) {
    int64_t workers = (int64_t)demand->max_workers;
    bool together = demand->strategy == PLACE_STRICT_PACK;
    layout->pods = request->pods != 0 ? request->pods : together ? 1 : workers;
    layout->slices = 1;
    layout->pods_per_slice = layout->pods;
    if (together && layout->pods > 1)
        return ty_fail(err, TY_EUSAGE, "--placement STRICT_PACK is one node: --nnodes 1, not %lld",
                       (long long)layout->pods);
    if (layout->pods > workers || workers % layout->pods != 0)
        return ty_fail(
            err, TY_EUSAGE,
            "--nnodes %lld: the pods of a Job are alike, so the %lld workers must be shared out evenly",
            (long long)layout->pods, (long long)workers);
    if (demand->strategy == PLACE_STRICT_SPREAD && layout->pods != workers)
        return ty_fail(err, TY_EUSAGE,
                       "--placement STRICT_SPREAD is a node for each worker: --nnodes %lld, not %lld",
                       (long long)workers, (long long)layout->pods);
    return 0;
}

static int check_selector(const struct label_selector *selector, ty_error *err) {
    int result = 0;
    for (size_t i = 0; i < selector->n && result >= 0; i++)
        result = kubernetes_check_label(selector->items[i].key, NULL, err);
    return result;
}

/* Demands that no Job can have. */
static int check_demand(const struct demand *demand, ty_error *err) {
    size_t types = 0;
    for (size_t i = 0; i < demand->per_worker.n; i++)
        types += str_prefix(demand->per_worker.items[i].name, ACCELERATOR_TYPE_PREFIX, NULL);
    if (types > 1)
        return ty_fail(err, TY_EUSAGE, "%zu accelerator types for one worker: a node has one, so name one",
                       types);
    if (demand->elastic)
        return ty_fail(err, TY_EUSAGE,
                       "--num-workers %zu:%zu: a Job has a fixed number of pods; name one number",
                       demand->min_workers, demand->max_workers);
    if (demand->max_workers == 0)
        return ty_fail(err, TY_EUSAGE,
                       "--num-workers 0 runs without workers, and so without pods: name 1 or more");
    if (demand->n_selectors > 1)
        return ty_fail(err, TY_EUSAGE,
                       "a label selector for each worker: the pods of a Job are alike, so give one for all");
    int result = demand->n_selectors == 1 ? check_selector(&demand->selectors[0], err) : 0;
    if (result >= 0 && demand->domain != NULL) result = kubernetes_check_label(demand->domain, NULL, err);
    if (result < 0) return result;
    if (resources_get(&demand->per_worker, "TPU") > 0 && demand->tpu.workers_per_slice == 0)
        return ty_fail(
            err, TY_EUSAGE,
            "--use-tpu: nodes with TPUs are chosen by --accelerator-type and --topology, so give both");
    return 0;
}

int kubernetes_lay_out(const struct kubernetes_request *request, const struct demand *demand,
                       struct kubernetes_layout *layout, ty_error *err) {
    struct kubernetes_layout made = {0};
    int result = check_demand(demand, err);
    if (result < 0) return result;
    bool tpu = demand->tpu.workers_per_slice > 0;
    result = tpu ? lay_out_slices(request, demand, &made, err) : lay_out_pods(request, demand, &made, err);
    if (result < 0) return result;
    if (made.pods_per_slice > KUBERNETES_PODS_MAX)
        return ty_fail(
            err, TY_EUSAGE,
            "%lld pods: a Job of Kubernetes has %d at most; put more workers into each with --nnodes",
            (long long)made.pods_per_slice, KUBERNETES_PODS_MAX);
    made.workers_per_pod = (int64_t)demand->max_workers / made.pods;
    result = check_object_name(request->name, &made, err);
    if (result >= 0) *layout = made;
    return result;
}

/* -- the pod -- */

/* Kubernetes replaces $(NAME) in a command; $$ is a $ that stays one. */
static json_t *word(const char *text) {
    CLEANUP(buffer_done) struct buffer out = {0};
    for (; *text != '\0'; text++)
        buffer_printf(&out, *text == '$' ? "$$" : "%c", *text);
    return out.failed ? NULL : json_stringn(out.size > 0 ? out.data : "", out.size);
}

/* The first pod of the run, by the name that the headless service gives it. */
static void name_rendezvous(const struct kubernetes_request *request, const struct kubernetes_layout *layout,
                            char rendezvous[RENDEZVOUS_NAME_SIZE]) {
    (void)snprintf(rendezvous, RENDEZVOUS_NAME_SIZE, "%s%s-0.%s:%lld", request->name,
                   layout->set ? "-slice-0" : "", request->name,
                   (long long)(request->port != 0 ? request->port : KUBERNETES_PORT));
}

/* `trainyard run --nnodes N --node-rank I --rendezvous HOST:PORT WORDS...`, or the program itself, with a
 * variable for the rank. A shell makes that, and in a JobSet the rank of slice and index: what a Job adds to
 * the environment is not there yet when values of other variables are made. */
static int make_command(const struct kubernetes_request *request, const struct kubernetes_layout *layout,
                        json_t *list) {
    const char *command = request->command != NULL ? request->command : "trainyard";
    char pods[24], rendezvous[RENDEZVOUS_NAME_SIZE], rank[80], script[200];
    (void)snprintf(pods, sizeof pods, "%lld", (long long)layout->pods);
    (void)snprintf(rank, sizeof rank, "$((JOB_SLICE_INDEX * %lld + JOB_COMPLETION_INDEX))",
                   (long long)layout->pods_per_slice);
    if (request->fit)
        (void)snprintf(script, sizeof script, JOIN_RANK_VARIABLE "=%s exec \"$0\" \"$@\"",
                       layout->set ? rank : "$JOB_COMPLETION_INDEX");
    else
        (void)snprintf(script, sizeof script, "exec \"$0\" run --node-rank %s \"$@\"", rank);
    name_rendezvous(request, layout, rendezvous);
    int result = 0;
    if (layout->set || request->fit) {
        result = kubernetes_add(list, json_string("/bin/sh"));
        if (result >= 0) result = kubernetes_add(list, json_string("-c"));
        if (result >= 0) result = kubernetes_add(list, word(script));
    }
    if (result >= 0 && !request->fit) result = kubernetes_add(list, word(command));
    if (result >= 0 && !layout->set && !request->fit) {
        const char *const own[] = {"run", "--node-rank", "$(JOB_COMPLETION_INDEX)"};
        for (size_t i = 0; i < ARRAY_SIZE(own) && result >= 0; i++)
            result = kubernetes_add(list, json_string(own[i]));
    }
    const char *const joins[] = {"--nnodes", pods, "--rendezvous", rendezvous};
    for (size_t i = 0; i < ARRAY_SIZE(joins) && result >= 0 && !request->fit; i++)
        result = kubernetes_add(list, json_string(joins[i]));
    for (size_t i = 0; request->words[i] != NULL && result >= 0; i++)
        result = kubernetes_add(list, word(request->words[i]));
    return result;
}

static json_t *own_field(const char *name, const char *path) {
    return json_pack("{s:s, s:{s:{s:s}}}", "name", name, "valueFrom", "fieldRef", "fieldPath", path);
}

/* What a program that calls fit() joins by, but for its rank. */
static int add_variables(const struct kubernetes_request *request, const struct kubernetes_layout *layout,
                         json_t *list) {
    char rendezvous[RENDEZVOUS_NAME_SIZE], pods[24];
    (void)snprintf(pods, sizeof pods, "%lld", (long long)layout->pods);
    name_rendezvous(request, layout, rendezvous);
    int result = kubernetes_add(list, json_pack("{s:s, s:s}", "name", JOIN_NODES_VARIABLE, "value", pods));
    if (result >= 0)
        result =
            kubernetes_add(list, json_pack("{s:s, s:s}", "name", JOIN_MEETING_VARIABLE, "value", rendezvous));
    for (const char *const *one = request->variables; one != NULL && *one != NULL && result >= 0; one++) {
        size_t size = strcspn(*one, "=");
        result = kubernetes_add(
            list, json_pack("{s:s#, s:o}", "name", *one, (int)size, "value", word(*one + size + 1)));
    }
    return result;
}

static int make_environment(const struct kubernetes_request *request, const struct demand *demand,
                            const struct kubernetes_layout *layout, json_t *list) {
    int result =
        kubernetes_add(list, json_pack("{s:s, s:{s:{s:s, s:s}}}", "name", "TRAINYARD_RUN_KEY", "valueFrom",
                                       "secretKeyRef", "name", request->name, "key", "TRAINYARD_RUN_KEY"));
    if (result >= 0 && layout->set) result = kubernetes_add(list, own_field("JOB_SLICE_INDEX", SLICE_INDEX));
    if (result >= 0 && request->fit) result = add_variables(request, layout, list);
    if (result < 0 || demand->tpu.workers_per_slice == 0) return result;
    /* A host's place in its slice, as GKE tells it, and the hosts there by their names in the service. */
    CLEANUP(buffer_done) struct buffer hosts = {0};
    const char *slice = layout->set ? "-slice-$(JOB_SLICE_INDEX)" : "";
    char name[160];
    (void)snprintf(name, sizeof name, "%s%s", request->name, slice);
    for (int64_t i = 0; i < layout->pods_per_slice; i++)
        buffer_printf(&hosts, "%s%s%s-%lld.%s", i > 0 ? "," : "", request->name, slice, (long long)i,
                      request->name);
    if (hosts.failed) return -ENOMEM;
    const char *const told[][2] = {
        {"TPU_WORKER_HOSTNAMES", layout->pods_per_slice == 1 ? "localhost" : hosts.data},
        {"TPU_NAME", name},
        {"TPU_TOPOLOGY", demand->tpu.topology},
        {"TPU_ACCELERATOR_TYPE", demand->tpu.pod_type}};
    result = kubernetes_add(list, own_field("TPU_WORKER_ID", COMPLETION_INDEX));
    for (size_t i = 0; i < ARRAY_SIZE(told) && result >= 0; i++)
        result = kubernetes_add(list, json_pack("{s:s, s:s}", "name", told[i][0], "value", told[i][1]));
    return result;
}

static int make_ports(const struct kubernetes_request *request, const struct demand *demand, json_t *list) {
    const struct {
        const char *name;
        int64_t number;
    } ports[] = {{"rendezvous", request->port != 0 ? request->port : KUBERNETES_PORT},
                 {"tpu", TPU_PORT},
                 {"megascale", MEGASCALE_PORT},
                 {"megascale-data", MEGASCALE_PORT + 1},
                 {"jax", JAX_PORT}};
    size_t n = demand->tpu.workers_per_slice > 0 ? ARRAY_SIZE(ports) : 1;
    int result = 0;
    for (size_t i = 0; i < n && result >= 0; i++)
        result = kubernetes_add(
            list, json_pack("{s:s, s:I}", "name", ports[i].name, "containerPort", (json_int_t)ports[i].number));
    return result;
}

/* A volume of the pod, and where its container has it. */
static int mount(json_t *volumes, json_t *mounts, const char *name, const char *path, const char *kind,
                 json_t *source) {
    if (kubernetes_add(volumes, json_pack("{s:s, s:o}", "name", name, kind, source)) < 0) return -ENOMEM;
    return kubernetes_add(mounts, json_pack("{s:s, s:s}", "name", name, "mountPath", path));
}

static int make_volumes(const struct kubernetes_request *request, json_t *volumes, json_t *mounts) {
    json_t *memory = json_pack("{s:s, s:s*}", "medium", "Memory", "sizeLimit", request->shared_memory);
    int result = mount(volumes, mounts, "shared-memory", KUBERNETES_SHARED_MEMORY, "emptyDir", memory);
    if (result >= 0 && request->claim != NULL) {
        const char *path = strchr(request->claim, ':') + 1;
        json_t *claim = json_pack("{s:s%}", "claimName", request->claim, (size_t)(path - 1 - request->claim));
        result = mount(volumes, mounts, "storage", path, "persistentVolumeClaim", claim);
    }
    if (result >= 0 && request->config != NULL)
        result = mount(volumes, mounts, "config", KUBERNETES_CONFIG_PLACE, "configMap",
                       json_pack("{s:s}", "name", request->name));
    return result;
}

static json_t *make_container(const struct kubernetes_request *request, const struct demand *demand,
                              const struct kubernetes_layout *layout, const json_t *resources, json_t *mounts) {
    json_t *command = json_array(), *environment = json_array(), *ports = json_array();
    bool failed = make_command(request, layout, command) < 0 ||
                  make_environment(request, demand, layout, environment) < 0 ||
                  make_ports(request, demand, ports) < 0;
    json_t *container =
        json_pack("{s:s, s:s, s:o, s:o, s:o, s:{s:O, s:O}, s:O}", "name", KUBERNETES_CONTAINER, "image",
                  request->image, "command", command, "env", environment, "ports", ports, "resources",
                  "requests", resources, "limits", resources, "volumeMounts", mounts);
    if (container != NULL && request->privileged)
        failed |= kubernetes_set(container, "securityContext", json_pack("{s:b}", "privileged", 1)) < 0;
    if (!failed) return container;
    json_decref(container);
    return NULL;
}

static int make_pod(const struct kubernetes_request *request, const struct demand *demand,
                    const struct kubernetes_layout *layout, json_t **pod, ty_error *err) {
    json_t *resources = NULL, *volumes = json_array(), *mounts = json_array();
    json_t *spec = json_pack("{s:s, s:I}", "restartPolicy", "Never", "terminationGracePeriodSeconds",
                             (json_int_t)request->grace_s);
    int result = kubernetes_resources(request, demand, layout, &resources, err);
    int made = result < 0 || layout->set ? 0 : kubernetes_set(spec, "subdomain", json_string(request->name));
    if (made >= 0 && result >= 0 && request->host_network) {
        made = kubernetes_set(spec, "hostNetwork", json_true());
        if (made >= 0) made = kubernetes_set(spec, "dnsPolicy", json_string("ClusterFirstWithHostNet"));
    }
    if (made >= 0 && result >= 0)
        result = kubernetes_choose_nodes(request, demand, layout, resources, spec, err);
    if (made >= 0 && result >= 0) made = make_volumes(request, volumes, mounts);
    if (made >= 0 && result >= 0)
        made = kubernetes_set(spec, "containers",
                              json_pack("[o]", make_container(request, demand, layout, resources, mounts)));
    if (made >= 0 && result >= 0) made = json_object_set(spec, "volumes", volumes);
    if (made >= 0 && result >= 0)
        *pod = json_pack("{s:{s:{s:s, s:s}}, s:O}", "metadata", "labels", INSTANCE, request->name,
                         "app.kubernetes.io/name", "trainyard", "spec", spec);
    json_decref(resources);
    json_decref(volumes);
    json_decref(mounts);
    json_decref(spec);
    if (result < 0) return result;
    return made < 0 || *pod == NULL ? ty_fail_memory(err) : 0;
}

/* -- the objects -- */

static json_t *metadata(const struct kubernetes_request *request) {
    json_t *made = json_pack("{s:s, s:s*, s:{s:s, s:s, s:s*}}", "name", request->name, "namespace",
                             request->space, "labels", INSTANCE, request->name, "app.kubernetes.io/name",
                             "trainyard", "kueue.x-k8s.io/queue-name", request->queue);
    return made;
}

/* Any pod that fails ends the Job: its ranks cannot go on without it. */
static json_t *job_spec(int64_t pods, json_t *pod) {
    return json_pack("{s:s, s:I, s:I, s:i, s:o}", "completionMode", "Indexed", "completions", (json_int_t)pods,
                     "parallelism", (json_int_t)pods, "backoffLimit", 0, "template", pod);
}

bool kubernetes_goes_on(const struct kubernetes_request *request, const struct kubernetes_layout *layout) {
    return request->kept && request->max_restarts > 0 && !layout->set && !request->fit;
}

/* When the first pod is taken away the run ends, preempted: all pods end with that status, and are made anew,
 * each of them so many times. Any other failure is the Job's. Where Kubernetes does not count by pod yet
 * (before 1.29) it counts them all. */
static int add_restarts(json_t *spec, json_t *rules, const struct kubernetes_request *request,
                        const struct kubernetes_layout *layout) {
    int64_t each = request->max_restarts;
    int64_t all = each < INT32_MAX / layout->pods ? each * layout->pods : INT32_MAX;
    int result = kubernetes_set(spec, "backoffLimit", json_integer((json_int_t)all));
    if (result >= 0) result = kubernetes_set(spec, "backoffLimitPerIndex", json_integer((json_int_t)each));
    if (result >= 0) result = kubernetes_set(spec, "maxFailedIndexes", json_integer(0));
    if (result < 0) return result;
    /* The schema of 1.28 demands conditions of each rule. */
    return kubernetes_add(rules, json_pack("{s:s, s:{s:s, s:s, s:[i]}, s:[]}", "action", "FailJob",
                                           "onExitCodes", "containerName", KUBERNETES_CONTAINER, "operator",
                                           "NotIn", "values", KUBERNETES_PREEMPTED, "onPodConditions"));
}

/* A pod that is taken away, as from a node that is drained, has not failed: another one follows it, which a run
 * that may begin another attempt (--max-failures) waits for. */
static json_t *make_job(const struct kubernetes_request *request, const struct kubernetes_layout *layout,
                        json_t *pod) {
    json_t *spec = job_spec(layout->pods, pod);
    json_t *rules = json_pack("[{s:s, s:[{s:s, s:s}]}]", "action", "Ignore", "onPodConditions", "type",
                              "DisruptionTarget", "status", "True");
    int result = 0;
    if (kubernetes_goes_on(request, layout)) result = add_restarts(spec, rules, request, layout);
    json_t *policy = json_pack("{s:o}", "rules", rules);
    if (result < 0) json_decref(policy);
    if (result < 0 || kubernetes_set(spec, "podFailurePolicy", policy) < 0) {
        json_decref(spec);
        return NULL;
    }
    return json_pack("{s:s, s:s, s:o, s:o}", "apiVersion", "batch/v1", "kind", "Job", "metadata",
                     metadata(request), "spec", spec);
}

/* A child Job has a node pool, which is a slice, to itself. */
static json_t *make_set(const struct kubernetes_request *request, const struct kubernetes_layout *layout,
                        json_t *pod) {
    json_t *about = metadata(request);
    if (about == NULL || kubernetes_set(about, "annotations",
                                        json_pack("{s:s}", "alpha.jobset.sigs.k8s.io/exclusive-topology",
                                                  "cloud.google.com/gke-nodepool")) < 0) {
        json_decref(about);
        return NULL;
    }
    return json_pack("{s:s, s:s, s:o, s:{s:{s:b, s:b}, s:{s:I}, s:[{s:s, s:I, s:{s:o}}]}}", "apiVersion",
                     "jobset.x-k8s.io/v1alpha2", "kind", "JobSet", "metadata", about, "spec", "network",
                     "enableDNSHostnames", 1, "publishNotReadyAddresses", 1, "failurePolicy", "maxRestarts",
                     (json_int_t)request->max_restarts, "replicatedJobs", "name", "slice", "replicas",
                     (json_int_t)layout->slices, "template", "spec", job_spec(layout->pods_per_slice, pod));
}

/* Gives each pod a name, before it is ready: the first one waits for the others. */
static json_t *make_service(const struct kubernetes_request *request) {
    json_int_t port = request->port != 0 ? request->port : KUBERNETES_PORT;
    return json_pack("{s:s, s:s, s:o, s:{s:s, s:b, s:{s:s}, s:[{s:s, s:I}]}}", "apiVersion", "v1", "kind",
                     "Service", "metadata", metadata(request), "spec", "clusterIP", "None",
                     "publishNotReadyAddresses", 1, "selector", INSTANCE, request->name, "ports", "name",
                     "rendezvous", "port", port);
}

int kubernetes_objects(const struct kubernetes_request *request, const struct demand *demand, json_t **objects,
                       ty_error *err) {
    struct kubernetes_layout layout;
    json_t *pod = NULL, *list = NULL;
    int result = kubernetes_lay_out(request, demand, &layout, err);
    if (result >= 0) result = make_pod(request, demand, &layout, &pod, err);
    if (result < 0) return result;
    list = json_array();
    int made = kubernetes_add(list, json_pack("{s:s, s:s, s:o, s:s, s:{s:s}}", "apiVersion", "v1", "kind",
                                              "Secret", "metadata", metadata(request), "type", "Opaque",
                                              "stringData", "TRAINYARD_RUN_KEY", request->key));
    if (made >= 0 && request->config != NULL)
        made = kubernetes_add(list, json_pack("{s:s, s:s, s:o, s:{s:s}}", "apiVersion", "v1", "kind",
                                              "ConfigMap", "metadata", metadata(request), "data",
                                              strrchr(KUBERNETES_CONFIG, '/') + 1, request->config));
    if (made >= 0 && !layout.set)
        made = kubernetes_add(list, make_service(request)); /* a JobSet makes its own */
    json_t *work = layout.set ? make_set(request, &layout, pod) : make_job(request, &layout, pod);
    if (made >= 0)
        made = kubernetes_add(list, work);
    else
        json_decref(work);
    if (made < 0) {
        json_decref(list);
        return ty_fail_memory(err);
    }
    *objects = list;
    return 0;
}
