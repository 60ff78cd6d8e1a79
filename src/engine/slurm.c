/* The engine of a Slurm allocation: one srun starts an agent on each of its nodes, which then join over the
 * network (rendezvous.h). The key of the run travels over srun's standard input. An allocation whose GPUs were
 * asked for by task gives them to steps by task only, so there the step has all tasks, and the first one of
 * each node is the agent (docs/spec/slurm.md 4.4). No options of its own. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/hostlist.h"
#include "base/kernel.h"
#include "base/module.h"
#include "base/program.h"
#include "base/str.h"
#include "engine/join.h"
#include "engine/slurm.h"

enum { GOODBYE_MS = 10000, LINE_MAX_SIZE = 2000, ARGUMENTS_MAX = 24 };

/* One srun, and what it prints. */
struct srun_launch {
    struct srun_launch *next;
    struct slurm_starter *starter;
    struct rendezvous *rendezvous;
    uint32_t first, n;
    pid_t pid;
    int pidfd, output;
    struct loop_watch ended, printed;
    struct buffer line;
    char said[400]; /* its last line */
    bool failed;    /* a node was named that it could not start at */
};

struct slurm_starter {
    char **names; /* of the allocation's nodes, in its order */
    uint32_t n;
    struct srun_launch *launches;
    struct slurm_inquiry inquiry; /* made while the nodes are waited for, for the first look at them */
};

/* -- the allocation */

static int add_name(void *context, const char *name) {
    struct slurm_starter *starter = context;
    starter->names[starter->n] = strdup(name);
    return starter->names[starter->n++] == NULL ? -ENOMEM : 0;
}

static void starter_free(struct slurm_starter *starter) {
    for (uint32_t i = 0; starter->names != NULL && i < starter->n; i++)
        free(starter->names[i]);
    free(starter->names);
    slurm_inquiry_done(&starter->inquiry);
    free(starter);
}

/* -- srun */

/* Options of the job that srun would take for those of the step; and the --export=NONE of a batch job, with
 * which an agent would have nothing of this process's environment. */
static int make_environment(struct environment *environment) {
    static const char *const of_the_job[] = {
        "SLURM_NTASKS",
        "SLURM_NPROCS",
        "SLURM_NTASKS_PER_NODE",
        "SLURM_TASKS_PER_NODE",
        "SLURM_NTASKS_PER_CORE",
        "SLURM_NTASKS_PER_GPU",
        "SLURM_NTASKS_PER_SOCKET",
        "SLURM_CPUS_PER_TASK",
        "SLURM_CPUS_PER_GPU",
        "SLURM_GPUS",
        "SLURM_GPUS_PER_TASK",
        "SLURM_GPUS_PER_NODE",
        "SLURM_GPUS_PER_SOCKET",
        "SLURM_GPU_BIND",
        "SLURM_GRES",
        "SLURM_MEM_PER_CPU",
        "SLURM_MEM_PER_GPU",
        "SLURM_MEM_PER_NODE",
        "SLURM_DISTRIBUTION",
        "SLURM_EXACT",
        "SLURM_EXCLUSIVE",
        "SLURM_TRES_PER_TASK",
        "SLURM_STEP_GRES",
        "SLURM_HOSTFILE",
        "SLURM_LABELIO",
        "SLURM_KILL_BAD_EXIT",
        "SLURM_WAIT",
        "SLURM_PTY_PORT",
        "SLURM_NNODES",
        "SLURM_STDINMODE",
        "SLURM_STDOUTMODE",
        "SLURM_STDERRMODE",
        "SLURM_CPU_BIND",
        "SLURM_EXPORT_ENV",
        "SRUN_EXPORT_ENV",
        "SRUN_CPUS_PER_TASK",
        "SLURM_TIMELIMIT",
        KEY_VARIABLE,
    };
    int result = environment_add(environment, environ);
    for (size_t i = 0; i < ARRAY_SIZE(of_the_job) && result >= 0; i++)
        result = environment_set(environment, of_the_job[i], NULL);
    return result;
}

/* In a step of all tasks those that are not the first of their node have nothing to do. */
static const char agent_script[] =
    "[ \"$SLURM_LOCALID\" = 0 ] || exit 0\n"
    "exec \"$0\" agent --rendezvous \"$1\" --node-rank $((SLURM_NODEID + $2)) --node-name \"$SLURMD_NODENAME\" "
    "${SLURM_GPUS_ON_NODE:+--num-gpus} $SLURM_GPUS_ON_NODE ${3:+--awaits} $3";

struct srun_words {
    char nodes[24], tasks[32], first[16];
    const char *argv[ARGUMENTS_MAX];
};

/* One agent that is to come again is started by a step of its own, of one node; only the step of all nodes may
 * be one by tasks. */
static int make_words(struct srun_words *words, const struct srun_launch *launch, ty_error *err) {
    const struct slurm_starter *starter = launch->starter;
    bool whole = launch->n == starter->n;
    int64_t tasks = whole && getenv("SLURM_GPUS_PER_TASK") != NULL ? slurm_job_tasks() : 0;
    bool by_task = tasks > 0;
    const char *program = module_command(err);
    if (program == NULL) return ty_wrap(err, "engine slurm");
    (void)snprintf(words->nodes, sizeof words->nodes, "--nodes=%u", launch->n);
    (void)snprintf(words->tasks, sizeof words->tasks, "--ntasks=%lld",
                   by_task ? (long long)tasks : (long long)launch->n);
    (void)snprintf(words->first, sizeof words->first, "%u", launch->first);
    size_t n = 0;
    /* The step has all of the job's memory, and shares that and all else with other steps (--mem=0, --overlap).
     * The agent binds its workers and starts their MPI itself; the step goes on where Slurm would end it: when
     * a task ended first or badly (--wait, --kill-on-bad-exit), or a node is gone (--no-kill). */
    const char *const common[] = {"srun",
                                  "--quiet",
                                  "--overlap",
                                  "--mem=0",
                                  "--cpu-bind=none",
                                  "--mpi=none",
                                  "--kill-on-bad-exit=0",
                                  "--no-kill",
                                  "--wait=0",
                                  words->nodes,
                                  words->tasks};
    for (; n < ARRAY_SIZE(common); n++)
        words->argv[n] = common[n];
    /* Either way all GPUs of the step are seen. */
    words->argv[n++] = by_task ? "--gpu-bind=closest" : "--ntasks-per-node=1";
    if (!whole) {
        words->argv[n++] = "--nodelist";
        words->argv[n++] = starter->names[launch->first];
    }
    const char *const command[] = {"sh",
                                   "-c",
                                   agent_script,
                                   program,
                                   rendezvous_addresses(launch->rendezvous),
                                   words->first,
                                   rendezvous_outlives(launch->rendezvous) ? "another" : ""};
    for (size_t i = 0; i < ARRAY_SIZE(command); i++)
        words->argv[n++] = command[i];
    words->argv[n] = NULL;
    return 0;
}

/* -- what it prints, and its end */

struct failed_nodes {
    struct srun_launch *launch;
    const char *why;
    bool ended; /* their agents have: where those had joined, that is heard of by their channels */
};

static int give_up_node(void *context, const char *name) {
    const struct failed_nodes *failed = context;
    struct srun_launch *launch = failed->launch;
    for (uint32_t i = launch->first; i < launch->first + launch->n; i++) {
        if (!str_equal(launch->starter->names[i], name)) continue;
        if (failed->ended && rendezvous_address_of(launch->rendezvous, name) != NULL) continue;
        launch->failed = true;
        rendezvous_give_up(launch->rendezvous, i, failed->why);
    }
    return 0;
}

/* Of "srun: error: Task launch for StepId=4.0 failed on node h4: Communication connection failure", or "srun:
 * error: Node failure on h4", or "srun: error: h[2-3]: tasks 1-2: Exited with exit code 127": the nodes, and of
 * the latter two `ended`. False where it is another line. */
static bool parse_failure(const char *line, char *names, size_t size, bool *ended) {
    static const char launching[] = " failed on node ", lost[] = "Node failure on ";
    const char *name = strstr(line, launching), *failed = strstr(line, lost), *end = NULL;
    *ended = name == NULL;
    if (name != NULL) {
        name += strlen(launching);
        end = strchr(name, ':');
    } else if (failed != NULL) {
        name = failed + strlen(lost);
        end = name + strlen(name);
    } else if (str_prefix(line, "srun: error: ", &name)) {
        end = strstr(name, ": task");
    }
    if (end != NULL) (void)snprintf(names, size, "%.*s", (int)(end - name), name);
    return end != NULL;
}

/* Nodes that srun could not start at, or whose agents have ended before they joined, cannot take part, and what
 * srun says of the others follows from it. `before`: the line before that, as of a node's shell. */
static void find_failed_nodes(struct srun_launch *launch, const char *before, const char *line) {
    char names[sizeof launch->said], why[2 * sizeof launch->said + 2];
    bool ended;
    if (!parse_failure(line, names, sizeof names, &ended)) return;
    bool explained = ended && *before != '\0' && !str_prefix(before, "srun: ", NULL);
    (void)snprintf(why, sizeof why, "%s%s%s", explained ? before : "", explained ? "; " : "", line);
    struct failed_nodes failed = {launch, why, ended};
    struct hostlist *list = NULL;
    if (hostlist_parse(names, &list, NULL) == 0) (void)hostlist_each(list, give_up_node, &failed);
    hostlist_destroy(list);
}

static void on_print(void *context, unsigned events) {
    struct srun_launch *launch = context;
    char bytes[4096];
    (void)events;
    ssize_t n = read(launch->output, bytes, sizeof bytes);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        loop_watch_stop(rendezvous_loop(launch->rendezvous), &launch->printed);
        descriptors_close(&launch->output);
        return;
    }
    for (ssize_t i = 0; i < n; i++) {
        bool whole = bytes[i] == '\n' || launch->line.size >= LINE_MAX_SIZE;
        if (bytes[i] != '\n') buffer_char(&launch->line, bytes[i]);
        if (!whole) continue;
        buffer_text(&launch->line, "");
        const char *line = launch->line.failed ? "" : launch->line.data;
        if (*line != '\0' && strstr(line, "lacks support for cpu binding") == NULL) {
            char before[sizeof launch->said];
            (void)strcpy(before, launch->said);
            (void)snprintf(launch->said, sizeof launch->said, "%.399s", line);
            for (uint32_t node = 0; node < launch->n && !launch->failed; node++)
                rendezvous_note(launch->rendezvous, launch->first + node, launch->said);
            find_failed_nodes(launch, before, launch->said);
        }
        buffer_clear(&launch->line);
    }
}

static void stop_watching(struct srun_launch *launch) {
    struct loop *loop = rendezvous_loop(launch->rendezvous);
    if (launch->ended.state != NULL) loop_watch_stop(loop, &launch->ended);
    if (launch->printed.state != NULL) loop_watch_stop(loop, &launch->printed);
    descriptors_close(&launch->output);
}

/* Nodes that have joined are heard of by their channels; the others will not come, because of one that has been
 * named already or of what srun said last. */
static void on_end(void *context, unsigned events) {
    struct srun_launch *launch = context;
    int status = 0;
    char why[500];
    (void)events;
    while (launch->output >= 0 && launch->printed.state != NULL) {
        char more;
        ssize_t n = recv(launch->output, &more, 1, MSG_PEEK | MSG_DONTWAIT);
        if (n <= 0) break;
        on_print(launch, LOOP_READABLE);
    }
    stop_watching(launch);
    (void)kernel_reap(launch->pidfd, launch->pid, 0, &status);
    descriptors_close(&launch->pidfd);
    launch->pid = -1;
    (void)snprintf(why, sizeof why, "srun ended%s%s", launch->said[0] != '\0' ? ": " : "", launch->said);
    for (uint32_t i = 0; i < launch->n && !launch->failed; i++)
        rendezvous_give_up(launch->rendezvous, launch->first + i, why);
}

static int watch(struct srun_launch *launch, ty_error *err) {
    struct loop *loop = rendezvous_loop(launch->rendezvous);
    launch->ended = (struct loop_watch){.callback = on_end, .context = launch};
    launch->printed = (struct loop_watch){.callback = on_print, .context = launch};
    launch->pidfd = kernel_hold(launch->pid);
    if (launch->pidfd < 0)
        return ty_fail(err, TY_EUNSUPPORTED, "engine slurm needs pidfds, which Linux 5.3 has: %s",
                       strerror(errno));
    descriptors_withhold(launch->pidfd);
    if (loop_watch_start(loop, &launch->ended, launch->pidfd, LOOP_READABLE) < 0 ||
        loop_watch_start(loop, &launch->printed, launch->output, LOOP_READABLE) < 0)
        return ty_fail_memory(err);
    return 0;
}

/* srun reads its input from a file in memory: nothing of the key is on a disk, and nobody has to write while
 * srun starts. */
static int key_file(const struct run_key *key, ty_error *err) {
    int fd = kernel_memory_file("key");
    bool written = fd >= 0 && file_write_all(fd, key->text, strlen(key->text)) == 0 &&
                   file_write_all(fd, "\n", 1) == 0 && lseek(fd, 0, SEEK_SET) == 0;
    if (written) return fd;
    cleanup_fd(&fd);
    return ty_fail(err, -errno, "no memory for the key: %s", strerror(errno));
}

/* The agents have been told of the end by their channels; srun ends when they have. One that does not is told
 * to end its step. */
static void end_launch(struct srun_launch *launch) {
    if (launch->pid > 0) {
        stop_watching(launch);
        if (!kernel_await(launch->pidfd, launch->pid, GOODBYE_MS))
            (void)kernel_signal(launch->pidfd, launch->pid, SIGTERM);
        (void)kernel_reap(launch->pidfd, launch->pid, GOODBYE_MS, NULL);
        descriptors_close(&launch->pidfd);
    }
    descriptors_close(&launch->output);
    buffer_done(&launch->line);
    free(launch);
}

static int start_some(struct slurm_starter *starter, struct rendezvous *rendezvous, uint32_t first, uint32_t n,
                      ty_error *err) {
    struct srun_launch *launch = calloc(1, sizeof *launch);
    struct srun_words words;
    if (launch == NULL) return ty_fail_memory(err);
    *launch = (struct srun_launch){.starter = starter,
                                   .rendezvous = rendezvous,
                                   .first = first,
                                   .n = n,
                                   .pid = -1,
                                   .pidfd = -1,
                                   .output = -1};
    CLEANUP(environment_done) struct environment environment = {0};
    CLEANUP_FD int input = key_file(rendezvous_key(rendezvous), err);
    int ends[2] = {-1, -1};
    int result = input < 0 ? err->code : make_words(&words, launch, err);
    if (result >= 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        result = ty_fail(err, TY_ESTART, "no socket for srun: %s", strerror(errno));
    if (result >= 0 && make_environment(&environment) < 0) result = ty_fail_memory(err);
    if (result >= 0) {
        const int fds[] = {input, ends[1], ends[1]};
        const struct program_start srun = {.argv = words.argv,
                                           .envp = environment.items,
                                           .fds = fds,
                                           .n_fds = ARRAY_SIZE(fds),
                                           .place = PROGRAM_SESSION};
        int started = program_start(&srun, &launch->pid);
        if (started < 0) result = ty_fail(err, TY_ESTART, "cannot run srun: %s", strerror(-started));
    }
    cleanup_fd(&ends[1]);
    launch->output = ends[0];
    descriptors_withhold(launch->output);
    if (result >= 0) result = watch(launch, err);
    if (result < 0) {
        end_launch(launch);
        return result;
    }
    launch->next = starter->launches;
    starter->launches = launch;
    return 0;
}

/* All of them at once; those that are to come again one by one. */
static int start(void *context, struct rendezvous *rendezvous, uint32_t first, uint32_t n, ty_error *err) {
    struct slurm_starter *starter = context;
    int result = 0;
    if (first == 0 && n == starter->n) {
        result = start_some(starter, rendezvous, first, n, err);
        if (result >= 0) slurm_ask_allocation(&starter->inquiry);
        return result;
    }
    for (uint32_t i = 0; i < n && result >= 0; i++)
        result = start_some(starter, rendezvous, first + i, 1, err);
    return result;
}

static void stop(void *context) {
    struct slurm_starter *starter = context;
    while (starter->launches != NULL) {
        struct srun_launch *next = starter->launches->next;
        end_launch(starter->launches);
        starter->launches = next;
    }
    starter_free(starter);
}

/* -- the engine */

static int prepare(const struct engine_options *options, struct rendezvous_config *config, ty_error *err) {
    const char *text = getenv("SLURM_JOB_NODELIST");
    struct hostlist *list = NULL;
    struct slurm_starter *starter = calloc(1, sizeof *starter);
    if (starter == NULL) return ty_fail_memory(err);
    int result = slurm_check_allocation(err);
    if (result >= 0 && text == NULL)
        result =
            ty_fail(err, TY_EUSAGE,
                    "engine slurm: SLURM_JOB_ID is set, but SLURM_JOB_NODELIST is not: this is no allocation");
    if (result >= 0 && (result = hostlist_parse(text, &list, err)) < 0)
        (void)ty_wrap(err, "SLURM_JOB_NODELIST");
    if (result >= 0 && hostlist_count(list) > RENDEZVOUS_NODES_MAX)
        result = ty_fail(err, TY_EUSAGE, "SLURM_JOB_NODELIST: more than %d nodes", RENDEZVOUS_NODES_MAX);
    if (result >= 0) starter->names = calloc(hostlist_count(list) + 1, sizeof *starter->names);
    if (result >= 0 && (starter->names == NULL || hostlist_each(list, add_name, starter) < 0))
        result = ty_fail_memory(err);
    hostlist_destroy(list);
    if (result < 0) {
        starter_free(starter);
        return result;
    }
    static const struct run_key none;
    config->key = &none;
    config->min_nodes = config->max_nodes = starter->n;
    config->names = (const char *const *)starter->names;
    config->limit = options != NULL ? options->join_limit : 0;
    config->starter = (struct rendezvous_starter){.start = start, .stop = stop, .context = starter};
    return 0;
}

const char *slurm_is_one_of(void) {
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS");
    return str_equal(tasks, "1") ? NULL : tasks;
}

bool slurm_is_chosen(void) {
    int64_t nodes = 0;
    if (getenv("TRAINYARD_RUN") != NULL || slurm_is_one_of() != NULL) return false;
    const char *components = getenv("SLURM_HET_SIZE");
    return slurm_inside(&nodes) && (nodes > 1 || (components != NULL && !str_equal(components, "1")));
}

/* -- what was granted, as the nodes themselves see it */

/* A difference between what Slurm says and what the step got. Who asks for no GPU may have got fewer: of a job
 * of whole nodes (--exclusive) that did not ask for their GPUs either, steps get none. */
static int check_devices(const char *name, const struct node_shape *granted, const struct node_devices *seen,
                         const struct demand *demand, ty_error *err) {
    size_t n = (size_t)(resources_get(&granted->total, "GPU") / QUANTITY_ONE),
           have = seen != NULL ? seen->n : 0;
    CLEANUP(buffer_done) struct buffer ids = {0};
    if (n == have || (n > have && resources_get(&demand->per_worker, "GPU") == 0)) return 0;
    char text[24];
    for (size_t i = 0; seen != NULL && i < seen->n; i++)
        buffer_printf(&ids, "%s%s", i > 0 ? "," : "", node_device_id(seen, i, text));
    buffer_text(&ids, "");
    return ty_fail(err, TY_ESTART,
                   "node %.64s: Slurm granted this job %zu GPU%s, and the step that runs the agent sees %zu "
                   "(%.100s): ask for GPUs of a node (--gpus-per-node) or of a task with "
                   "--gpu-bind=per_task:N, and look at gres.conf and cgroup.conf",
                   name, n, n == 1 ? "" : "s", have, ids.size > 0 ? ids.data : "none");
}

/* Devices are those that the node itself has seen. */
static int copy_devices(const struct node_devices *seen, struct node_shape *to) {
    if (seen == NULL || seen->n == 0) return 0;
    struct node_devices *made = node_shape_add_devices(to, seen->resource, seen->n);
    return made == NULL ? -ENOMEM : node_devices_name(made, seen->ids, seen->uuids, seen->bus_ids);
}

/* Resources, labels and type as granted; devices by the names that they have in the step. */
static int merge_node(const struct node *granted, const struct node *said, const struct demand *demand,
                      struct cluster *made, ty_error *err) {
    CLEANUP(node_shape_done) struct node_shape shape = {0};
    const struct node_devices *seen = NULL;
    const char *type = granted->shape->accelerator_type;
    for (size_t i = 0; i < said->shape->n_devices && seen == NULL; i++)
        if (str_equal(said->shape->devices[i].resource, "GPU")) seen = &said->shape->devices[i];
    int result = check_devices(granted->name, granted->shape, seen, demand, err);
    if (result < 0) return result;
    bool copied = resources_copy(&shape.total, &granted->shape->total) == 0 &&
                  labels_copy(&shape.labels, &granted->shape->labels) == 0;
    quantity gpus = seen != NULL ? (quantity)seen->n * QUANTITY_ONE : 0;
    copied = copied && resources_set(&shape.total, "GPU", gpus) == 0;
    if (copied && type != NULL) copied = (shape.accelerator_type = strdup(type)) != NULL;
    if (!copied || copy_devices(seen, &shape) < 0) return ty_fail_memory(err);
    const struct node_shape *kept = NULL;
    struct node_use *use = NULL;
    result = cluster_shape(made, &shape, &kept, err);
    if (result >= 0 && granted->use != NULL && seen != NULL)
        result = node_use_create(kept, &granted->use->available, &use, err);
    if (result >= 0) result = cluster_add_node(made, granted->name, kept, &use, err);
    node_use_destroy(use);
    return result;
}

static int look_at_nodes(struct rendezvous *rendezvous, const struct demand *demand, struct cluster **cluster,
                         ty_error *err) {
    struct slurm_starter *starter = rendezvous_starter(rendezvous);
    CLEANUP(slurm_site_done) struct slurm_site granted = {0};
    struct cluster *said = NULL, *made = cluster_create();
    int result =
        made == NULL ? ty_fail_memory(err) : slurm_look_at_allocation(&starter->inquiry, demand, &granted, err);
    if (result >= 0) result = rendezvous_cluster(rendezvous, &said, err);
    /* Both lists are in the order of the allocation, so that the next node nearly always is the one. */
    for (size_t i = 0, at = 0; result >= 0 && i < said->n; i++) {
        const struct cluster *nodes = granted.nodes;
        const char *name = said->nodes[i].name;
        if (at == nodes->n || !str_equal(nodes->nodes[at].name, name))
            for (at = 0; at < nodes->n && !str_equal(nodes->nodes[at].name, name);)
                at++;
        if (at == nodes->n)
            result = ty_fail(err, TY_ESTART, "node %.64s joined, which is not one of this job's (%.200s)", name,
                             getenv("SLURM_JOB_NODELIST"));
        else
            result = merge_node(&nodes->nodes[at++], &said->nodes[i], demand, made, err);
    }
    cluster_destroy(said);
    if (result < 0)
        cluster_destroy(made);
    else
        *cluster = made;
    return result;
}

const struct engine engine_slurm = {.name = "slurm",
                                    .adopts = true,
                                    .prepare = prepare,
                                    .look = look_at_nodes,
                                    .allots = true,
                                    .ask = slurm_ask_states,
                                    .start_agent = join_start_agent};
