/* `trainyard kube`: the manifests of a run on Kubernetes (engine/kubernetes.h), written, or given to kubectl
 * and followed. No library of Kubernetes is used, and no address of a cluster is known here. The pods run
 * `trainyard run` with the same options, less those that have chosen them: of what goes on in them only the
 * output and the exit status of the first one are seen. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/document.h"
#include "base/file.h"
#include "base/program.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/run_options.h"
#include "cli/terminal.h"
#include "engine/kubernetes.h"
#include "wire/key.h"

enum { GRACE_BESIDE_S = 10, PORT_MAX = 65535 };

struct kube_command {
    struct scaling_options scaling;
    struct run_options run;
    struct format_options format;
    struct kubernetes_request request;
    const char *output, *key_file;
    bool apply;
};

/* One setter for two bounds, by the field that it is for: a port, and a number of pods. */
static int set_number(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    int64_t *number = (void *)((char *)target + option->offset);
    bool port = number == &((struct kube_command *)target)->request.port;
    return option_whole(value, 1, port ? PORT_MAX : KUBERNETES_PODS_MAX, number, err);
}

static int set_image(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    int result = kubernetes_check_image(value, err);
    return result < 0 ? result : option_text(option, target, value, err);
}

static int set_name(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    bool queue = option->offset == offsetof(struct kube_command, request.queue);
    int result = kubernetes_check_name(value, strlen(value), queue ? KUBERNETES_QUEUE : KUBERNETES_SPACE, err);
    return result < 0 ? result : option_text(option, target, value, err);
}

static int set_memory(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    int result = kubernetes_check_amount("memory", value, err);
    /* To Kubernetes a volume of no size is one without a bound. */
    char first = value[strspn(value, "0.")];
    if (result >= 0 && (first < '1' || first > '9'))
        return ty_fail(err, TY_EUSAGE, "must be above 0; without it the memory of the pod is the bound");
    return result < 0 ? result : option_text(option, target, value, err);
}

/* A resource and its amount, or a label of nodes, of which a taint is one. */
static int check_pair(const struct kubernetes_pair *pair, bool amount, ty_error *err) {
    if (!amount) return kubernetes_check_label(pair->name, pair->value, err);
    int result = kubernetes_check_resource(pair->name, err);
    return result < 0 ? result : kubernetes_check_amount(pair->name, pair->value, err);
}

/* NAME=VALUE; the text is kept for the life of the process. Of a toleration the value may be left out. */
static int add_pair(const struct option_spec *option, void *target, const char *text, ty_error *err) {
    struct kubernetes_pairs *pairs = (void *)((char *)target + option->offset);
    struct kubernetes_request *request = &((struct kube_command *)target)->request;
    bool alone = pairs == &request->tolerations;
    const char *equals = strchr(text, '=');
    if (*text == '\0' || equals == text || (equals == NULL && !alone))
        return ty_fail(err, TY_EUSAGE, "must be NAME=VALUE%s", alone ? ", or NAME" : "");
    CLEANUP_FREE char *name = equals != NULL ? strndup(text, (size_t)(equals - text)) : strdup(text);
    if (name == NULL || ARRAY_GROW(pairs->items, pairs->n) < 0) return ty_fail_memory(err);
    const struct kubernetes_pair pair = {name, equals != NULL ? equals + 1 : NULL};
    int result = check_pair(&pair, pairs == &request->requests, err);
    if (result < 0) return result;
    pairs->items[pairs->n++] = pair;
    (void)TAKE(name);
    return 0;
}

/* The names alone are ours, cut off before their "="; values are the words of the command line. */
static void pairs_done(struct kubernetes_pairs *pairs) {
    for (size_t i = 0; i < pairs->n; i++)
        free((char *)pairs->items[i].name);
    free(pairs->items);
}

static int set_claim(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)option;
    const char *colon = strchr(value, ':');
    if (colon == NULL || colon == value || colon[1] != '/')
        return ty_fail(err, TY_EUSAGE, "must be CLAIM:PATH, as in training-data:/data");
    int result = kubernetes_check_name(value, (size_t)(colon - value), KUBERNETES_OBJECT, err);
    if (result < 0) return ty_wrap(err, "the claim");
    static const char *const ours[] = {KUBERNETES_SHARED_MEMORY, KUBERNETES_CONFIG_PLACE};
    if (strchr(colon + 1, ':') != NULL || str_find(colon + 1, ours, ARRAY_SIZE(ours)) >= 0)
        return ty_fail(err, TY_EUSAGE,
                       "the path must have no ':', and cannot be %s or %s, where pods have volumes already",
                       ours[0], ours[1]);
    ((struct kube_command *)target)->request.claim = value;
    return 0;
}

#define OF(set, member) set, offsetof(struct kube_command, request.member), NULL
#define TEXT(member) OF(option_text, member)
#define FLAG(member) OF(option_flag, member)
static const struct option_spec specs[] = {
    {"image", 0, "IMAGE", "the container image of all pods, with trainyard and the program in it",
     OF(set_image, image)},
    {"namespace", 0, "NAME", "the namespace of the objects (default: kubectl's)", OF(set_name, space)},
    {"nnodes", 0, "N",
     "pods, each a node of the run with an even share of the workers (default: one for each worker, one with "
     "STRICT_PACK, one for each TPU host)",
     OF(set_number, pods)},
    {"port", 0, "N", "where the first pod waits for the others (default: 29400)", OF(set_number, port)},
    {"command", 0, "PATH", "trainyard in the image (default: by its PATH)", TEXT(command)},
    {"fit", 0, NULL,
     "PROG calls fit() itself: each pod executes it as it is, and the first one's drives the run", FLAG(fit)},
    {"claim", 0, "CLAIM:PATH",
     "a PersistentVolumeClaim that all pods mount at PATH; with --storage-path in it a run can be gone on with",
     set_claim, 0, NULL},
    {"shared-memory", 0, "SIZE", "bound of /dev/shm, as 64Gi (default: the pod's memory)",
     OF(set_memory, shared_memory)},
    {"request", 0, "NAME=AMOUNT",
     "more that each pod needs, or another amount of it, by Kubernetes' name: ephemeral-storage=20Gi; may be "
     "given many times",
     OF(add_pair, requests)},
    {"node-selector", 0, "KEY=VALUE",
     "a label that nodes must have, by Kubernetes' name; may be given many times", OF(add_pair, selectors)},
    {"toleration", 0, "KEY[=VALUE]", "a taint of nodes that pods put up with; may be given many times",
     OF(add_pair, tolerations)},
    {"queue", 0, "NAME", "the Kueue queue that starts all pods at once", OF(set_name, queue)},
    {"spot", 0, NULL, "on GKE's spot nodes", FLAG(spot)},
    {"host-network", 0, NULL, "pods use their node's network", FLAG(host_network)},
    {"privileged", 0, NULL, "containers are privileged, as some device plugins demand", FLAG(privileged)},
    {"key-file", 0, "FILE", "the run's key (default: $TRAINYARD_RUN_KEY, else a new one)", option_text,
     offsetof(struct kube_command, key_file), NULL},
    {"output", 'o', "FILE", "write the manifests there, readable by you alone, in place of standard output",
     option_output, offsetof(struct kube_command, output), NULL},
    {"apply", 0, NULL, "give them to kubectl, show the run's output, and end with its exit status", option_flag,
     offsetof(struct kube_command, apply), NULL},
};
static const struct option_group kube_group = {"Kubernetes", specs, ARRAY_SIZE(specs)};

static const struct option_group *const groups[] = {&kube_group, &scaling_group, &run_policy_group,
                                                    &run_group,  &format_group,  NULL};

/* -- the line that pods run -- */

static int say(struct words *line, const char *option, const char *value, ty_error *err) {
    int result = words_add(line, strdup(option));
    if (result >= 0 && value != NULL) result = words_add(line, strdup(value));
    return result < 0 ? ty_fail_memory(err) : 0;
}

/* --env NAME alone means the value that it has here. */
static const char *inherited(const struct option_given *given) {
    bool alone = str_equal(given->option->name, "env") && strchr(given->value, '=') == NULL;
    return alone ? getenv(given->value) : NULL;
}

static int say_option(struct words *line, const struct option_given *given, ty_error *err) {
    CLEANUP(buffer_done) struct buffer name = {0}, value = {0};
    buffer_printf(&name, "--%s", given->option->name);
    if (given->value != NULL) buffer_text(&value, given->value);
    if (inherited(given) != NULL) buffer_printf(&value, "=%s", inherited(given));
    if (given->value != NULL && option_is_optional(given->option)) {
        buffer_printf(&name, "=%s", given->value);
        buffer_clear(&value);
    }
    if (name.failed || value.failed) return ty_fail_memory(err);
    return say(line, name.data, value.size > 0 ? value.data : NULL, err);
}

/* The node of a pod has its share of the resources, whatever the machine below the pod has. */
static int say_share(struct words *line, const struct demand *demand, const struct kubernetes_layout *layout,
                     ty_error *err) {
    int result = 0;
    for (size_t i = 0; i < demand->per_worker.n && result >= 0; i++) {
        const struct resource *item = &demand->per_worker.items[i];
        CLEANUP(buffer_done) struct buffer value = {0};
        quantity share = item->amount * layout->workers_per_pod + resources_get(&demand->trainer, item->name);
        long long whole = (long long)((share + QUANTITY_ONE - 1) / QUANTITY_ONE);
        bool cpu = str_equal(item->name, "CPU");
        if (accelerator_is_device(item->name) || str_prefix(item->name, ACCELERATOR_TYPE_PREFIX, NULL))
            continue;
        buffer_printf(&value, cpu ? "%.0s%lld" : "%s=%lld", item->name, whole);
        if (value.failed) return ty_fail_memory(err);
        result = say(line, cpu ? "--num-cpus" : "--node-resources", value.data, err);
    }
    return result;
}

static int make_line(const struct kube_command *command, const struct demand *demand,
                     const struct kubernetes_layout *layout, const struct arguments *arguments,
                     struct words *line, ty_error *err) {
    /* A pod's nodes are chosen already: what is said of them here is not said there, where the labels are not
     * known. */
    static const char *const here[] = {"label-selector", "placement", "topology-strategy",
                                       "name",           "resume",    "config"};
    int result = say_share(line, demand, layout, err);
    if (result >= 0 && command->request.config != NULL) result = say(line, "--config", KUBERNETES_CONFIG, err);
    for (size_t i = 0; i < arguments->n_given && result >= 0; i++) {
        const struct option_given *given = &arguments->given[i];
        const char *name = given->option->name;
        bool of_run = groups[given->group] == &scaling_group || groups[given->group] == &run_group ||
                      groups[given->group] == &run_policy_group;
        bool stays = str_find(name, here, ARRAY_SIZE(here)) >= 0 ||
                     (demand->tpu.workers_per_slice == 0 && str_equal(name, "accelerator-type"));
        if (of_run && !stays) result = say_option(line, given, err);
    }
    /* Pods of a Job end together: nobody could adopt workers that went on, for which the next Job would
     * wait. */
    if (result >= 0 && options_value(arguments, "outlive") == NULL) result = say(line, "--outlive", "0", err);
    /* The name lets a Job that is made anew go on with its run, where the storage is still there. */
    if (result >= 0) result = say(line, "--name", command->request.name, err);
    if (result >= 0) result = say(line, "--resume", NULL, err);
    if (result >= 0) result = say(line, "--", NULL, err);
    for (size_t i = 0; i < arguments->n_words && result >= 0; i++)
        result = say(line, arguments->words[i], NULL, err);
    return result;
}

/* -- the manifests -- */

/* Labels have chosen the nodes of the pods, in which nobody knows them: a config file there does without. */
static int leave_out_labels(struct buffer *config, ty_error *err) {
    struct document *document = NULL;
    int result = document_parse(config->data, config->size, "config", &document, err);
    if (result < 0) return result;
    json_t *root = document_root(document), *scaling = json_object_get(root, "scaling_config");
    json_t *fields = scaling != NULL ? scaling : root;
    bool selector = json_object_del(fields, "label_selector") == 0;
    bool domain = json_object_del(fields, "topology_strategy") == 0;
    if (selector || domain) {
        json_t *list = json_pack("[O]", root);
        buffer_clear(config);
        result = list != NULL ? document_write(list, config, err) : ty_fail_memory(err);
        buffer_text(config, "");
        if (config->failed) result = ty_fail_memory(err);
        json_decref(list);
    }
    document_destroy(document);
    return result;
}

static int make_text(struct kube_command *command, const struct arguments *arguments,
                     const struct demand *demand, struct kubernetes_layout *layout, struct buffer *text,
                     ty_error *err) {
    CLEANUP(words_done) struct words line = {0}, variables = {0};
    CLEANUP(buffer_done) struct buffer config = {0};
    const char *path = command->request.fit ? NULL : command->scaling.config;
    struct run_key key = {0};
    json_t *objects = NULL;
    int result = kubernetes_lay_out(&command->request, demand, layout, err);
    if (result >= 0 && path != NULL) result = file_read(path, CONFIG_FILE_MAX, &config, err);
    bool labels = demand->n_selectors > 0 || demand->domain != NULL;
    if (result >= 0 && path != NULL && labels) result = leave_out_labels(&config, err);
    if (path != NULL) command->request.config = config.size > 0 ? config.data : "";
    if (result >= 0 && command->request.fit) result = fit_variables(arguments, &variables, err);
    command->request.variables = (const char *const *)variables.items;
    if (result >= 0 && !command->request.fit)
        result = make_line(command, demand, layout, arguments, &line, err);
    /* A file that is named goes before the environment; where nobody gave a key a new one is made, which the
     * Secret then has. */
    if (result >= 0)
        result = command->key_file != NULL ? key_read_file(&key, command->key_file, err)
                                           : key_take_variable(&key, err);
    if (result >= 0 && key.text[0] == '\0') result = key_make(&key, err);
    if (result < 0) return result;
    command->request.words = (const char *const *)(command->request.fit ? arguments->words : line.items);
    command->request.key = key.text;
    result = kubernetes_objects(&command->request, demand, &objects, err);
    if (result >= 0 && command->format.format == FORMAT_TEXT) {
        result = document_write(objects, text, err);
    } else if (result >= 0) {
        json_t *list = json_pack("{s:s, s:s, s:O}", "apiVersion", "v1", "kind", "List", "items", objects);
        CLEANUP_FREE char *json = json_format(list, JSON_INDENT(2));
        json_decref(list);
        buffer_printf(text, "%s\n", json != NULL ? json : "");
        if (json == NULL || text->failed) result = ty_fail_memory(err);
    }
    json_decref(objects);
    key_forget(&key);
    command->request.words = command->request.variables = NULL;
    command->request.config = NULL;
    return result;
}

/* The key is in it: nobody else may read the file, nor have it open already. */
static int write_file(const char *path, const struct buffer *text, ty_error *err) {
    struct stat status;
    struct file_draft draft;
    if (lstat(path, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid != geteuid())
        return ty_fail(err, TY_EUSAGE,
                       "--output: %.300s is a file of user %u, who could read the key in it: name a new one",
                       path, (unsigned)status.st_uid);
    int result = file_draft_open_output(path, 0600, &draft);
    if (result < 0) return ty_fail(err, TY_EUSAGE, "--output: cannot open %.300s: %s", path, strerror(-result));
    bool protects = fstat(draft.fd, &status) == 0 && S_ISREG(status.st_mode); /* also what a link leads to */
    result = protects && fchmod(draft.fd, 0600) < 0 ? -errno : 0;
    if (result == 0) result = file_write_all(draft.fd, text->data, text->size);
    result = file_draft_close(&draft, result);
    return result < 0 ? ty_fail(err, result, "--output: cannot write %.300s: %s", path, strerror(-result)) : 0;
}

/* -- the run, as kubectl shows it */

/* kubectl is asked every two seconds until the first pod runs, which may take hours of waiting for nodes; why
 * that pod does not run is told when the words change. */
#define ASK_LIMIT (60 * NS_PER_S)
enum { ASK_EVERY_S = 2, KUBECTL_WORDS_MAX = 12, LOST_MAX = 30 };

struct follow {
    const struct kubernetes_request *request;
    char time[40];        /* of the last line of this pod that was shown; "" before there is one */
    size_t n_shown;       /* lines of that time */
    size_t n_all;         /* lines of all pods that were shown */
    bool said;            /* kubectl has said why it shows nothing: not again until it shows something */
    char selector[256];   /* of the first pod */
    struct buffer pod;    /* its name; of one that follows another, the last's */
    struct buffer told;   /* the reason of the wait, as it was last told */
    struct buffer phase;  /* Pending, Running, Succeeded, Failed; "" while there is no pod */
    struct buffer why;    /* why a pod waits */
    struct buffer status; /* the exit status of its container, "" while it runs */
    struct buffer reason; /* what its container waits for, or ended by, in one word: ErrImagePull, OOMKilled */
    struct buffer words;  /* the words to that; "" where there are none */
};

/* kubectl with words of its own, in the run's namespace. */
static void fill_argv(const struct follow *follow, const char *const *words,
                      const char *argv[KUBECTL_WORDS_MAX + 4]) {
    size_t n = 0;
    argv[n++] = "kubectl";
    if (follow->request->space != NULL) {
        argv[n++] = "--namespace";
        argv[n++] = follow->request->space;
    }
    for (size_t i = 0; words[i] != NULL; i++)
        argv[n++] = words[i];
    argv[n] = NULL;
}

static int kubectl(const struct follow *follow, const char *const *words, const char *input, struct buffer *out,
                   ty_error *err) {
    const char *argv[KUBECTL_WORDS_MAX + 4];
    fill_argv(follow, words, argv);
    return program_ask(&(struct program_call){.argv = argv, .input = input, .out = out, .limit = ASK_LIMIT},
                       err);
}

/* Adds to what stands in a field already, as a second condition to the first. */
static void note(struct buffer *field, const char *text) {
    if (text == NULL) return;
    buffer_printf(field, "%s%s", field->size > 0 ? " " : "", text);
}

/* The conditions that do not hold yet: why a pod waits. */
static void read_conditions(struct follow *follow, const json_t *conditions) {
    size_t i;
    json_t *condition;
    json_array_foreach(conditions, i, condition) {
        if (str_equal(json_string_value(json_object_get(condition, "status")), "False"))
            note(&follow->why, json_string_value(json_object_get(condition, "message")));
    }
}

/* Of the pod's containers ours: a cluster may put its own beside it. */
static void read_containers(struct follow *follow, const json_t *containers) {
    static const char *const states[] = {"waiting", "terminated"};
    size_t i;
    json_t *container;
    json_array_foreach(containers, i, container) {
        if (!str_equal(json_string_value(json_object_get(container, "name")), KUBERNETES_CONTAINER)) continue;
        for (size_t n = 0; n < ARRAY_SIZE(states); n++) {
            const json_t *state = json_object_get(json_object_get(container, "state"), states[n]);
            const json_t *status = json_object_get(state, "exitCode");
            note(&follow->reason, json_string_value(json_object_get(state, "reason")));
            note(&follow->words, json_string_value(json_object_get(state, "message")));
            if (json_is_integer(status))
                buffer_printf(&follow->status, "%lld", (long long)json_integer_value(status));
        }
    }
}

/* What there is to know of the first pod; of several of them the one that was made last counts. */
static int look(struct follow *follow, ty_error *err) {
    static const char sorted[] = "--sort-by=.metadata.creationTimestamp";
    const char *const words[] = {"get", "pods", "-l", follow->selector, sorted, "-o", "json", NULL};
    CLEANUP(buffer_done) struct buffer text = {0};
    struct buffer *const fields[] = {&follow->pod,    &follow->phase,  &follow->why,
                                     &follow->status, &follow->reason, &follow->words};
    int result = kubectl(follow, words, NULL, &text, err);
    if (result < 0) return result;
    json_error_t why;
    json_t *tree = json_parse(text.size > 0 ? text.data : "", text.size, 0, &why, err);
    if (tree == NULL) return ty_wrap(err, "kubectl get pods");
    const json_t *pods = json_object_get(tree, "items");
    const json_t *pod = json_array_size(pods) > 0 ? json_array_get(pods, json_array_size(pods) - 1) : NULL;
    const json_t *status = json_object_get(pod, "status");
    bool failed = false;
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        buffer_clear(fields[i]);
        buffer_text(fields[i], "");
    }
    note(&follow->pod, json_string_value(json_object_get(json_object_get(pod, "metadata"), "name")));
    note(&follow->phase, json_string_value(json_object_get(status, "phase")));
    read_conditions(follow, json_object_get(status, "conditions"));
    read_containers(follow, json_object_get(status, "containerStatuses"));
    json_decref(tree);
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        failed = failed || fields[i]->failed;
    return failed ? ty_fail_memory(err) : 0;
}

static bool phase_is(const struct follow *follow, const char *phase) {
    return str_equal(follow->phase.data, phase);
}

static void pause_a_while(void) {
    (void)nanosleep(&(struct timespec){.tv_sec = ASK_EVERY_S}, NULL);
}

/* Why the first pod does not run yet. A container is there once a node is found for the pod: without words it
 * is on its way, with them it cannot start, as by an image that there is not. */
static void tell_wait(struct follow *follow) {
    char text[600];
    if (follow->words.size > 0)
        (void)snprintf(text, sizeof text, "the first pod does not start: %.100s: %.400s", follow->reason.data,
                       follow->words.data);
    else if (follow->reason.size > 0)
        (void)snprintf(text, sizeof text, "the first pod starts: %.100s", follow->reason.data);
    else
        (void)snprintf(text, sizeof text, "waiting for nodes: %.500s", follow->why.data);
    bool known = follow->reason.size > 0 || follow->why.size > 0;
    if (!known || str_equal(follow->told.data, text)) return;
    terminal_error("kube", text);
    buffer_clear(&follow->told);
    buffer_text(&follow->told, text);
}

/* Returns when the first pod runs, or has run. A server that does not answer is asked again for a while. */
static int wait_for_pod(struct follow *follow, ty_error *err) {
    int lost = 0;
    for (;; pause_a_while()) {
        int result = look(follow, err);
        if (result < 0 && (result == TY_EUNSUPPORTED || ++lost > LOST_MAX)) return result;
        if (result < 0) continue;
        lost = 0;
        if (phase_is(follow, "Running") || phase_is(follow, "Succeeded") || phase_is(follow, "Failed"))
            return 0;
        tell_wait(follow);
    }
}

/* An end that the run itself could not tell of: Error and Completed are what every status is called. */
static void tell_end(const struct follow *follow, int64_t status) {
    char text[600];
    if (status == 0 || follow->reason.size == 0 || str_equal(follow->reason.data, "Error")) return;
    (void)snprintf(text, sizeof text, "the first pod ended with %lld: %.100s%s%.400s", (long long)status,
                   follow->reason.data, follow->words.size > 0 ? ": " : "", follow->words.data);
    terminal_error("kube", text);
}

/* The exit status of this pod, which is told a moment after its output has ended. A pod that is gone takes it
 * along, which is believed after a minute of asking. Where the run goes on then, that pod was taken away. */
static int wait_for_end(struct follow *follow, const char *pod, bool goes_on, ty_error *err) {
    for (int times = 0;; times++) {
        int64_t status;
        int result = look(follow, err);
        if (result >= 0 && goes_on && !str_equal(follow->pod.data, pod)) return KUBERNETES_PREEMPTED;
        if (result >= 0 && str_to_int64(follow->status.data, 0, 255, &status)) {
            tell_end(follow, status);
            return (int)status;
        }
        if (result >= 0 && phase_is(follow, "Succeeded")) return 0;
        bool gone = result < 0 || !phase_is(follow, "Running");
        if (gone && times > LOST_MAX)
            return result < 0
                       ? result
                       : ty_fail(err, TY_ENODE, "the first pod is gone, and with it what it came to: %.200s",
                                 follow->why.size > 0 ? follow->why.data : "nothing is known of it");
        pause_a_while();
    }
}

/* One that is there would stay as it is, with pods that have another key, or that ended long ago. A kubectl
 * that does not say so has a reason, which applying tells. */
static int check_absent(const struct follow *follow, bool set, ty_error *err) {
    const char *kind = set ? "jobset" : "job", *name = follow->request->name;
    const char *const words[] = {"get", kind, name, "--ignore-not-found", "-o", "name", NULL};
    CLEANUP(buffer_done) struct buffer found = {0};
    int result = kubectl(follow, words, NULL, &found, err);
    if (result == TY_EUNSUPPORTED) return result;
    if (result < 0 || found.size == 0) return 0;
    return ty_fail(
        err, TY_EEXISTS,
        "--apply: the %s %s is there already: `kubectl delete %s %s` ends it, and the same line then makes it "
        "anew, which goes on with the run where --claim keeps that; or give another --name",
        kind, name, kind, name);
}

/* Shows a line of a pod, less the time before it. A copy that is taken up again begins with the second of the
 * last line, and so with lines that are known: `*known` more of that time. */
static int show_line(struct follow *follow, const char *line, size_t size, size_t *known) {
    size_t stamp = strcspn(line, " ");
    if (stamp < sizeof follow->time && line[stamp] == ' ') {
        int later = strncmp(line, follow->time, stamp);
        bool same = later == 0 && follow->time[stamp] == '\0';
        if (later < 0 || (same && *known > 0)) {
            *known -= same;
            return 0;
        }
        if (!same) {
            (void)snprintf(follow->time, sizeof follow->time, "%.*s", (int)stamp, line);
            follow->n_shown = *known = 0;
        }
        follow->n_shown++;
        line += stamp + 1;
        size -= stamp + 1;
    }
    follow->n_all++;
    return file_write_all(STDOUT_FILENO, line, size);
}

/* Until kubectl ends, or nobody takes what is shown: -errno. What it says itself is on this terminal. */
static int show_lines(struct follow *follow, FILE *lines) {
    CLEANUP_FREE char *line = NULL;
    size_t room = 0, known = follow->n_shown;
    int result = 0;
    for (ssize_t size; result >= 0 && (size = getline(&line, &room, lines)) > 0;)
        result = show_line(follow, line, (size_t)size, &known);
    return result;
}

/* 0 when kubectl has ended, however; 1 when nobody takes what is shown. */
static int copy_output(struct follow *follow, const char *pod, ty_error *err) {
    static const char ours[] = "--container=" KUBERNETES_CONTAINER;
    char from[64] = "--tail=-1";
    const char *words[] = {"logs", "--follow", "--timestamps", ours, from, pod, NULL};
    const char *argv[KUBECTL_WORDS_MAX + 4];
    int pipes[2], status = 0;
    pid_t pid;
    size_t before = follow->n_all;
    if (follow->time[0] != '\0') (void)snprintf(from, sizeof from, "--since-time=%s", follow->time);
    fill_argv(follow, words, argv);
    if (pipe2(pipes, O_CLOEXEC) < 0) return ty_fail(err, -errno, "cannot make a pipe: %s", strerror(errno));
    const int fds[] = {PROGRAM_NOTHING, pipes[1], follow->said ? PROGRAM_NOTHING : PROGRAM_OURS};
    int result =
        program_start(&(struct program_start){.argv = argv, .fds = fds, .n_fds = ARRAY_SIZE(fds)}, &pid);
    (void)close(pipes[1]);
    FILE *lines = fdopen(pipes[0], "r");
    if (result < 0 || lines == NULL) {
        (void)(lines != NULL ? fclose(lines) : close(pipes[0]));
        return ty_fail(err, TY_ESTART, "cannot listen to kubectl: %s", strerror(result < 0 ? -result : errno));
    }
    result = show_lines(follow, lines);
    (void)fclose(lines);
    if (result < 0) (void)kill(pid, SIGTERM);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    follow->said = status != 0 && follow->n_all == before;
    if (result >= 0 || result == -EPIPE) return result < 0;
    return ty_fail(err, result, "cannot write to standard output: %s", strerror(-result));
}

/* What this pod prints, from when it runs, or has run. A connection that is cut ends the copy, not the run: it
 * is taken up again while the pod runs. */
static int show_output(struct follow *follow, const char *pod, ty_error *err) {
    follow->time[0] = '\0';
    follow->n_shown = 0;
    follow->said = false;
    for (int lost = 0;; pause_a_while()) {
        int result = copy_output(follow, pod, err);
        if (result != 0) return result < 0 ? result : 0;
        result = look(follow, err);
        lost = result < 0 ? lost + 1 : 0;
        if (lost > LOST_MAX) return result;
        if (lost == 0 && (!phase_is(follow, "Running") || !str_equal(follow->pod.data, pod))) return 0;
    }
}

/* The first pod was taken away: 1 when another one is there, 0 when the Job has failed, or is gone. */
static int wait_for_next(struct follow *follow, const char *pod, ty_error *err) {
    static const char path[] = "jsonpath={.metadata.name}|{.status.conditions[?(@.type==\"Failed\")].status}";
    const char *const words[] = {"get", "job", follow->request->name, "--ignore-not-found", "-o", path, NULL};
    terminal_error("kube", "the first pod was taken away: the run goes on when another one is there");
    for (int lost = 0;; pause_a_while()) {
        CLEANUP(buffer_done) struct buffer job = {0};
        int result = look(follow, err);
        if (result >= 0 && follow->pod.size > 0 && !str_equal(follow->pod.data, pod)) return 1;
        if (result >= 0) result = kubectl(follow, words, NULL, &job, err);
        if (result < 0 && ++lost > LOST_MAX) return result;
        if (result < 0) continue;
        lost = 0;
        if (job.size == 0 || strstr(job.data, "|True") != NULL) return 0;
    }
}

/* The exit status of the run. The first pod has the run's controller, so its output and its exit status are
 * those of the run, unless another pod goes on with that. */
static int follow_run(struct follow *follow, bool goes_on, ty_error *err) {
    for (;;) {
        int result = wait_for_pod(follow, err);
        CLEANUP_FREE char *pod = result < 0 ? NULL : strdup(follow->pod.data);
        if (result >= 0 && pod == NULL) return ty_fail_memory(err);
        if (result >= 0) result = show_output(follow, pod, err);
        if (result >= 0) result = wait_for_end(follow, pod, goes_on, err);
        if (result != KUBERNETES_PREEMPTED || !goes_on) return result;
        int next = wait_for_next(follow, pod, err);
        if (next <= 0) return next < 0 ? next : result;
    }
}

/* TY_EUNSUPPORTED without kubectl. */
static int apply_and_follow(const struct kubernetes_request *request, const struct kubernetes_layout *layout,
                            const char *manifests, ty_error *err) {
    static const char *const apply[] = {"apply", "-f", "-", NULL};
    struct follow follow = {.request = request};
    CLEANUP(buffer_done) struct buffer said = {0};
    (void)snprintf(follow.selector, sizeof follow.selector,
                   "app.kubernetes.io/instance=%s,batch.kubernetes.io/job-completion-index=0%s", request->name,
                   layout->set ? ",jobset.sigs.k8s.io/job-index=0" : "");
    int result = check_absent(&follow, layout->set, err);
    if (result < 0) return result;
    result = kubectl(&follow, apply, manifests, &said, err);
    if (result < 0) return ty_wrap(err, "kubectl apply");
    result = follow_run(&follow, kubernetes_goes_on(request, layout), err);
    struct buffer *const buffers[] = {&follow.told,   &follow.pod,    &follow.phase, &follow.why,
                                      &follow.status, &follow.reason, &follow.words};
    for (size_t i = 0; i < ARRAY_SIZE(buffers); i++)
        buffer_done(buffers[i]);
    return result;
}

/* Whether the run's directory lies in the volume that pods mount, whose path may end with slashes. */
static bool is_kept(const char *claim, const char *storage) {
    if (claim == NULL || storage == NULL) return false;
    const char *place = strchr(claim, ':') + 1;
    size_t size = strlen(place);
    while (size > 0 && place[size - 1] == '/')
        size--;
    return strncmp(storage, place, size) == 0 && (storage[size] == '\0' || storage[size] == '/');
}

/* Manifests are UTF-8, so what cannot be written there is no argument of a pod. */
static int check_text(const char *text, ty_error *err) {
    if (text == NULL || utf8_valid(text, strlen(text))) return 0;
    return ty_fail(err, TY_EUSAGE, "%.80s: a manifest is UTF-8, which this text is not", text);
}

static int check_texts(const struct arguments *arguments, ty_error *err) {
    int result = 0;
    for (size_t i = 0; i < arguments->n_words && result >= 0; i++)
        result = check_text(arguments->words[i], err);
    for (size_t i = 0; i < arguments->n_given && result >= 0; i++) {
        const struct option_given *given = &arguments->given[i];
        result = check_text(given->value, err);
        if (result >= 0) result = check_text(inherited(given), err);
        if (result < 0) return ty_wrap(err, "--%s", given->option->name);
    }
    return result;
}

static int check(struct kube_command *command, const struct arguments *arguments, ty_error *err) {
    struct run_settings *settings = &command->run.settings;
    int result = settings_finish(settings, FACE_COMMAND, err);
    if (result >= 0) result = check_texts(arguments, err);
    if (result < 0) return result;
    if (command->request.image == NULL)
        return ty_fail(err, TY_EUSAGE,
                       "--image: name the container image that holds trainyard and the program");
    if (settings->input != RANK_NONE || settings->pty || settings->debug != RANK_NONE)
        return ty_fail(err, TY_EUSAGE, "--stdin, --pty and --debug need a terminal, which pods have none of");
    command->request.name = settings->name != NULL ? settings->name : "trainyard";
    command->request.grace_s = (int64_t)(settings->grace / NS_PER_S) + GRACE_BESIDE_S;
    command->request.max_restarts =
        settings->failures.max_failures < 0 ? INT32_MAX : settings->failures.max_failures;
    command->request.kept = is_kept(command->request.claim, settings->storage_path);
    return 0;
}

static int kube_run(const struct arguments *arguments, ty_error *err) {
    struct kube_command command = {0};
    struct demand demand = {0};
    struct kubernetes_layout layout;
    CLEANUP(buffer_done) struct buffer text = {0};
    int result = scaling_options_init(&command.scaling, arguments, err);
    if (result < 0) return result;
    command.run.settings = command.scaling.settings;
    result = options_apply(
        arguments, (void *[]){&command, &command.scaling, &command.run, &command.run, &command.format}, err);
    if (result >= 0) result = check(&command, arguments, err);
    if (result >= 0 && command.request.fit) result = fit_check(arguments, groups, err);
    if (result >= 0) result = scaling_resolve(&command.scaling.scaling, scaling_train_v1(), &demand, err);
    if (result >= 0 && demand.deprecation != NULL) terminal_warning("kube", demand.deprecation);
    if (result >= 0 && demand.warning != NULL) terminal_warning("kube", demand.warning);
    if (result >= 0) result = make_text(&command, arguments, &demand, &layout, &text, err);
    if (result >= 0 && command.output != NULL) result = write_file(command.output, &text, err);
    if (result >= 0 && command.apply)
        result = apply_and_follow(&command.request, &layout, text.data, err);
    else if (result >= 0 && command.output == NULL)
        result = cli_print(&text, err);
    demand_done(&demand);
    pairs_done(&command.request.requests);
    pairs_done(&command.request.selectors);
    pairs_done(&command.request.tolerations);
    text_list_done(&command.run.environment);
    scaling_options_done(&command.scaling);
    return result;
}

const struct command command_kube = {
    .name = "kube",
    .summary = "write the Kubernetes manifests of a run, or apply and follow them",
    .usage = (const char *const[]){"--image IMAGE [OPTION...] [--] PROG [ARG...]", NULL},
    .description =
        "Prints the objects that run PROG on Kubernetes: a Secret with the run's key, a headless Service, and "
        "an Indexed Job whose pods run the same line, `trainyard run --node-rank ...`, and so join the first "
        "of them; for several TPU slices a JobSet. The options of `trainyard run` say what a worker needs, and "
        "go along to the pods. What Kubernetes cannot do is refused in one line.",
    .examples =
        (const char *const[]){
            "trainyard kube --image IMAGE -n 16 --use-gpu --nnodes 2 --accelerator-type H100 -- python "
            "train.py | kubectl apply -f -",
            "two pods with eight GPUs each",
            "trainyard kube --image IMAGE --use-tpu --topology 4x4 --accelerator-type TPU-V6E -n 4 --apply -- "
            "python train.py",
            "a pod on each host of a TPU slice, followed to its end",
            "trainyard kube --image IMAGE -n 4 --use-gpu --fit -- python -m trainyard.as_ray train.py",
            "a program for Ray Train, in four pods", NULL},
    .groups = groups,
    .min_words = 1,
    .rest = true,
    .missing = "which program? It goes behind the options: trainyard kube --image IMAGE -n 4 -- PROG ARG...",
    .run = kube_run,
};
