/* `trainyard stacks`: where the workers of a run stand now, from outside: of those of this machine nothing is
 * asked of the run's controller or agents, which may hang themselves. Whose processes they are is in the
 * journal. Where those of other machines stand again and again only their agents can tell. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/stack_save.h"
#include "base/array.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/duration.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/idset.h"
#include "base/kernel.h"
#include "base/process.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "controller/control_socket.h"
#include "controller/run_directory.h"
#include "controller/run_lock.h"
#include "journal/journal.h"

enum stacks_format { STACKS_TEXT, STACKS_JSON, STACKS_FOLDED };
static const char *const formats[] = {"text", "json", "folded", NULL};

struct stacks_options {
    struct rank_choice wanted;
    nanoseconds length; /* 0: once */
    int64_t rate;
    int format;
};

enum { RATE = 20, RATE_MOST = 100, SHOWN = 10 };

static int set_rate(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)option;
    return option_whole(value, 1, RATE_MOST, &((struct stacks_options *)target)->rate, err);
}

static const struct option_spec specs[] = {
    {"rank", 0, "R[,R-R...]", "only these ranks", option_ranks, offsetof(struct stacks_options, wanted), NULL},
    {"seconds", 0, "DURATION",
     "look again and again for so long, and tell how often they stood where; nothing is saved", option_duration,
     offsetof(struct stacks_options, length), NULL},
    {"rate", 0, "N", "with --seconds: looks a second, 1 to 100 (default: 20)", set_rate, 0, NULL},
    {"format", 0, "text|json|folded",
     "for people (default); one JSON object; a line for each rank and place, which programs for flame graphs "
     "read",
     option_choice, offsetof(struct stacks_options, format), formats},
};
static const struct option_group stacks_group = {"Options", specs, ARRAY_SIZE(specs)};

/* journal_read may call it again where the journal has changed under it. */
static int read_workers(void *context, struct journal *journal, ty_error *err) {
    replay_done(context);
    return journal_replay(journal, context, err);
}

/* Pids of a node that has joined, and is of another machine, say nothing here. Where several joined on one
 * machine a number stands behind its name. */
static bool is_foreign(const struct run_replay *replay, size_t rank) {
    const struct event_plan *plan = &replay->plan.event.of.plan;
    const char *name = NULL, *rest = NULL;
    char here[HOST_NAME_MAX + 1] = "";
    (void)gethostname(here, sizeof here - 1);
    if (rank < plan->ranks.n && plan->ranks.items[rank] < plan->nodes.n)
        name = plan->nodes.items[plan->ranks.items[rank]];
    for (size_t i = 0; name != NULL && i < replay->n_node_events; i++) {
        const struct event_node *node = &replay->node_events[i].event.of.node;
        if (!str_equal(node->name, name) || isnan(node->clock_offset)) continue;
        return !str_prefix(name, here, &rest) || (*rest != '\0' && *rest != '-');
    }
    const char *host = replay->run.event.of.run.host;
    return name != NULL && host != NULL && !str_equal(host, here);
}

/* A pid that was given to another process since is that of one which began later. Where the clock was set
 * meanwhile the dates do not tell that: a worker is the child of an agent, which is the controller's. */
static bool is_here(const struct run_replay *replay, size_t rank) {
    const struct replay_worker *worker = &replay->workers[rank];
    struct process process, agent;
    if (is_foreign(replay, rank)) return false;
    if (worker->pid <= 0 || worker->pid > INT_MAX || !process_read((pid_t)worker->pid, &process) ||
        process.session != worker->pid)
        return false;
    if (process_read(process.parent, &agent) && agent.parent == replay->run.event.of.run.pid) return true;
    double age = (double)(process_clock() - process.started) / (double)sysconf(_SC_CLK_TCK);
    return clock_wall() - (nanoseconds)(age * (double)NS_PER_S) < worker->start.started + NS_PER_S;
}

/* -- saved: once, in full */

/* Appends what was found out, here and to the rank's file; that one lies in the run's directory, where a link
 * of the same name would lead elsewhere: it is not followed. */
static int save_one(const char *run_path, const struct stack_sampled *worker, int attempt, struct buffer *out,
                    ty_error *err) {
    CLEANUP(buffer_done) struct buffer path = {0}, text = {0};
    char words[2][16];
    CLEANUP_FD int found = kernel_memory_file("trainyard-stack");
    if (found < 0) return ty_fail(err, -errno, "cannot make a file in memory: %s", strerror(errno));
    (void)snprintf(words[0], sizeof words[0], "%d", worker->rank);
    (void)snprintf(words[1], sizeof words[1], "%d", attempt);
    stack_save(found, worker->pid, words[0], words[1], false);
    stack_found(found, &text);
    buffer_printf(&path, "%s/logs/rank-%d.stack", run_path, worker->rank);
    if (path.failed || text.failed) return ty_fail_memory(err);
    buffer_append(out, text.data, text.size);
    CLEANUP_FD int file = open(path.data, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    int result = file < 0 ? -errno : file_write_all(file, text.data, text.size);
    return result < 0 ? ty_fail(err, -EIO, "cannot write %s: %s", path.data, strerror(-result)) : 0;
}

/* "1 rank (2): load_batch data.py:88", the frames below, and an empty line. */
static void group_text(const struct stack_group *group, struct buffer *out) {
    const char *line = group->frames;
    size_t size = strcspn(line, "\n");
    buffer_printf(out, "%zu rank%s (", group->n, group->n == 1 ? "" : "s");
    idset_format(&group->ranks, out);
    buffer_text(out, "): ");
    stack_text_place(size > 0 ? line : "nothing is known", size > 0 ? size : strlen("nothing is known"), out);
    buffer_char(out, '\n');
    for (; *line != '\0'; line += size + (line[size] == '\n')) {
        size = strcspn(line, "\n");
        buffer_printf(out, "    %.*s\n", (int)size, line);
    }
    buffer_char(out, '\n');
}

/* One worker after the other, since a debugger stops the one that it looks at. */
static int save_all(const char *name, const char *run_path, const struct stack_sampled *workers, size_t n,
                    int attempt, int format, ty_error *err) {
    CLEANUP(stack_groups_done) struct stack_groups groups = {0};
    CLEANUP(buffer_done) struct buffer whole = {0}, out = {0};
    int result = 0;
    for (size_t i = 0; i < n && result >= 0; i++) {
        struct buffer frames = {0};
        size_t begin = whole.size;
        result = save_one(run_path, &workers[i], attempt, &whole, err);
        if (result < 0) return result;
        buffer_text(&frames, "");
        stack_text_frames(whole.data + begin, whole.size - begin, &frames);
        result =
            stack_groups_add(&groups, workers[i].rank, buffer_take(&frames), duration_seconds(clock_wall()));
    }
    stack_groups_sort(&groups);
    if (format == STACKS_JSON) {
        buffer_text(&out, "{\"run\": ");
        buffer_json_text(&out, name);
        buffer_text(&out, ", \"groups\": ");
        stack_groups_json(&groups, &out);
        buffer_text(&out, "}\n");
    } else {
        for (size_t i = 0; i < groups.n && n > 1; i++)
            group_text(&groups.items[i], &out);
        if (whole.size > 0) buffer_append(&out, whole.data, whole.size);
    }
    if (result < 0 || whole.failed || out.failed) return ty_fail_memory(err);
    return cli_print(&out, err);
}

/* -- sampled */

static void sampled_json(const char *name, const struct stacks_options *options,
                         const struct stack_sampled *workers, size_t n, struct buffer *out) {
    buffer_text(out, "{\"run\": ");
    buffer_json_text(out, name);
    buffer_printf(out, ", \"seconds\": %.3f, \"rate\": %lld, \"ranks\": [", duration_seconds(options->length),
                  (long long)options->rate);
    for (size_t i = 0; i < n; i++) {
        size_t at = 0;
        uintptr_t times;
        buffer_printf(out, "%s{\"rank\": %d, \"samples\": %zu, \"stacks\": [", i == 0 ? "" : ", ",
                      workers[i].rank, workers[i].n);
        for (const char *line, *between = ""; (line = hash_next(workers[i].counts, &at, &times)) != NULL;
             between = ", ") {
            buffer_printf(out, "%s{\"n\": %zu, \"frames\": [", between, (size_t)times);
            for (const char *comma = ""; *line != '\0'; comma = ", ") {
                size_t size = strcspn(line, ";");
                buffer_text(out, comma);
                buffer_json_string(out, line, size);
                line += size + (line[size] == ';');
            }
            buffer_text(out, "]}");
        }
        buffer_text(out, "]}");
    }
    buffer_text(out, "]}\n");
}

struct sampled_place {
    const char *line; /* borrowed */
    size_t times;
    struct idset ranks;
};

/* The places where workers stood most often come first. */
static int compare_places(const void *a, const void *b) {
    const struct sampled_place *x = a, *y = b;
    if (x->times != y->times) return x->times > y->times ? -1 : 1;
    return strcmp(x->line, y->line);
}

/* The innermost frame first. */
static void place_text(const struct sampled_place *place, size_t all, struct buffer *out) {
    size_t end = strlen(place->line), n = idset_count(&place->ranks);
    buffer_printf(out, "%5.1f %%  %zu rank%s (", 100.0 * (double)place->times / (double)all, n,
                  n == 1 ? "" : "s");
    idset_format(&place->ranks, out);
    buffer_char(out, ')');
    for (int depth = 0; depth < 4 && end > 0; depth++) {
        size_t begin = end;
        while (begin > 0 && place->line[begin - 1] != ';')
            begin--;
        buffer_printf(out, "%s%.*s", depth == 0 ? ": " : " < ", (int)(end - begin), place->line + begin);
        end = begin > 0 ? begin - 1 : 0;
    }
    buffer_text(out, end > 0 ? " < ...\n" : "\n");
}

static int sampled_text(const char *name, const struct stacks_options *options,
                        const struct stack_sampled *workers, size_t n, const struct buffer *nodes,
                        struct buffer *out, ty_error *err) {
    struct sampled_place *places = NULL;
    struct hash *known = hash_create(); /* the index of a line's place */
    size_t n_places = 0, all = 0;
    int result = known != NULL ? 0 : -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        size_t at = 0;
        uintptr_t times;
        all += workers[i].n;
        for (const char *line; result >= 0 && (line = hash_next(workers[i].counts, &at, &times)) != NULL;) {
            const uintptr_t *index = hash_get(known, line);
            size_t place = index != NULL ? *index : n_places;
            if (index == NULL && (ARRAY_GROW(places, n_places) < 0 || hash_set(known, line, place) < 0)) {
                result = -ENOMEM;
                break;
            }
            if (index == NULL) places[n_places++] = (struct sampled_place){.line = line};
            places[place].times += times;
            result = idset_add(&places[place].ranks, workers[i].rank);
        }
    }
    buffer_printf(out, "%s: %zu looks at %zu worker%s in ", name, all, n, n == 1 ? "" : "s");
    duration_format(options->length, out);
    buffer_char(out, '\n');
    if (nodes->size > 0) buffer_append(out, nodes->data, nodes->size);
    if (n_places > 0) qsort(places, n_places, sizeof *places, compare_places);
    for (size_t i = 0; i < n_places; i++) {
        if (i < SHOWN) place_text(&places[i], all, out);
        idset_done(&places[i].ranks);
    }
    if (n_places > SHOWN)
        buffer_printf(out, "and %zu other places: --format folded has all\n", n_places - SHOWN);
    hash_destroy(known);
    free(places);
    return result < 0 ? ty_fail_memory(err) : 0;
}

/* Whom the command looks at: `here` of them on this machine, then those of others. */
struct stacks_of {
    struct stack_sampled *workers; /* n */
    size_t here, n;
    int asked; /* the controller is, for the others; -1 */
};

static const char not_answered[] = "the run's controller does not answer";

/* Ranks that cannot be looked at are a warning: the others are what was asked for, and may be enough. */
static void complain(const char *name, const struct stacks_of *of, const char *why) {
    CLEANUP(idset_done) struct idset ranks = {0};
    CLEANUP(buffer_done) struct buffer text = {0};
    for (size_t i = of->here; i < of->n; i++)
        (void)idset_add(&ranks, of->workers[i].rank);
    buffer_printf(&text, "%s: rank%s ", name, of->n - of->here == 1 ? "" : "s");
    idset_format(&ranks, &text);
    buffer_printf(&text, " on other machines: %s", why);
    if (!text.failed) terminal_warning("stacks", text.data);
}

/* The others, by the run's controller, while those of this machine are looked at. */
static void ask_others(const char *name, const struct run_replay *replay, const struct stacks_options *options,
                       struct stacks_of *of) {
    CLEANUP(idset_done) struct idset ranks = {0};
    CLEANUP(buffer_done) struct buffer why = {0};
    const char *host = replay->run.event.of.run.host;
    for (size_t i = of->here; i < of->n; i++)
        (void)idset_add(&ranks, of->workers[i].rank);
    of->asked = control_socket_ask(replay->id != NULL ? replay->id : "", options->length,
                                   NS_PER_S / options->rate, &ranks);
    if (of->asked >= 0) return;
    buffer_printf(&why, "their agents can be asked where the run's controller is, on %s",
                  host != NULL ? host : "its host");
    complain(name, of,
             of->asked == -ETIMEDOUT                    ? not_answered
             : of->asked != -ECONNREFUSED || why.failed ? strerror(-of->asked)
                                                        : why.data);
    of->asked = -1;
}

/* What the controller answers, as controller/control_socket.h has it. `nodes` gets a line for each node that
 * answered. */
static int hear_others(const char *name, const struct stacks_options *options, struct stacks_of *of,
                       struct buffer *nodes) {
    CLEANUP(buffer_done) struct buffer answer = {0};
    if (of->asked < 0) return 0;
    int result = control_socket_answer(TAKE_FD(of->asked), options->length, &answer);
    if (result == -ENOMEM) return result;
    if (answer.size == 0)
        complain(name, of, result < 0 ? not_answered : "the run's controller is asked by another, or ends");
    buffer_char(&answer, '\0');
    if (answer.failed) return -ENOMEM;
    for (char *line = answer.data, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        const char *rest;
        if (str_prefix(line, "rank ", &rest)) {
            (void)stack_sample_unfold(of->workers + of->here, of->n - of->here, line);
            continue;
        }
        bool silent = str_prefix(line, "silent ", &rest);
        char *node = silent || str_prefix(line, "node ", &rest) ? strchr(rest, ' ') : NULL;
        if (node == NULL) continue;
        *node++ = '\0';
        const char *several = strpbrk(rest, ",-") != NULL ? "s" : "";
        if (silent) {
            CLEANUP(buffer_done) struct buffer text = {0};
            buffer_printf(&text, "%s: node %s, rank%s %s: no answer", name, node, several, rest);
            if (!text.failed) terminal_warning("stacks", text.data);
        } else {
            buffer_printf(nodes, "on %s: rank%s %s\n", node, several, rest);
        }
    }
    return 0;
}

static int by_rank(const void *a, const void *b) {
    const struct stack_sampled *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static int sample_all(const char *name, const struct run_replay *replay, const struct stacks_options *options,
                      struct stacks_of *of, ty_error *err) {
    CLEANUP(buffer_done) struct buffer out = {0}, nodes = {0};
    struct stack_sampled *workers = of->workers;
    size_t n = of->n;
    for (size_t i = of->here; i < n; i++)
        if ((workers[i].counts = hash_create()) == NULL) return ty_fail_memory(err);
    if (n > of->here) ask_others(name, replay, options, of);
    int result =
        stack_sample(workers, of->here, of->here > 0 ? options->length : 0, NS_PER_S / options->rate, err);
    if (result >= 0 && hear_others(name, options, of, &nodes) < 0) result = ty_fail_memory(err);
    qsort(workers, n, sizeof *workers, by_rank);
    if (result >= 0 && options->format == STACKS_FOLDED) stack_sample_folded(workers, n, &out);
    if (result >= 0 && options->format == STACKS_JSON) sampled_json(name, options, workers, n, &out);
    if (result >= 0 && options->format == STACKS_TEXT)
        result = sampled_text(name, options, workers, n, &nodes, &out, err);
    stack_sample_done(workers, n);
    if (result >= 0 && out.failed) return ty_fail_memory(err);
    return result < 0 ? result : cli_print(&out, err);
}

/* -- whose */

/* Adds the workers that run on this machine, or those that run elsewhere. */
static void add_workers(const struct stacks_options *options, const struct run_replay *replay, bool here,
                        struct stacks_of *of) {
    for (size_t rank = 0; rank < replay->n_workers; rank++) {
        const struct replay_worker *worker = &replay->workers[rank];
        if (options->wanted.chosen && !idset_has(&options->wanted.ranks, (int64_t)rank)) continue;
        bool running = worker->state == WORKER_STARTED || worker->state == WORKER_READY;
        if (running && is_here(replay, rank) == here)
            of->workers[of->n++] = (struct stack_sampled){.rank = (int)rank, .pid = (pid_t)worker->pid};
    }
}

/* A worker is on record a moment after it has begun: so long is waited for those that are to begin. */
static const nanoseconds BEGINS_WITHIN = 2 * NS_PER_S;

/* Adds those that are asked for and have yet to begin. */
static void find_late(const struct stacks_options *options, const struct run_replay *replay,
                      struct idset *late) {
    if (replay->n_attempts == 0) return;
    const struct ty_attempt_info *attempt = &replay->attempts[replay->n_attempts - 1];
    size_t n = attempt->outcome == NULL ? (size_t)attempt->num_workers : 0;
    for (size_t rank = 0; rank < n && rank < replay->n_workers; rank++) {
        enum worker_state state = replay->workers[rank].state;
        bool wanted = !options->wanted.chosen || idset_has(&options->wanted.ranks, (int64_t)rank);
        if (wanted && (state == WORKER_PLANNED || state == WORKER_LAUNCHED))
            (void)idset_add(late, (int64_t)rank);
    }
}

/* Before the first attempt nobody has begun. */
static bool have_begun(const struct run_replay *replay, const struct idset *late) {
    return replay->n_attempts > 0 && idset_count(late) == 0;
}

static int wait_until_begun(const struct stacks_options *options, const char *path, struct run_replay *replay,
                            struct idset *late, ty_error *err) {
    const struct timespec moment = {.tv_nsec = 20 * NS_PER_MS};
    nanoseconds end = clock_monotonic() + BEGINS_WITHIN;
    for (;;) {
        idset_done(late);
        int result = journal_read(path, read_workers, replay, err);
        if (result < 0) return result;
        find_late(options, replay, late);
        if (have_begun(replay, late) || clock_monotonic() >= end || !run_lock_is_held(path)) return 0;
        (void)nanosleep(&moment, NULL);
    }
}

static void describe_late(const struct idset *late, struct buffer *out) {
    buffer_text(out, idset_count(late) == 0 ? "its workers" : idset_count(late) == 1 ? "rank " : "ranks ");
    idset_format(late, out);
    buffer_text(out, idset_count(late) == 1 ? " has not started yet" : " have not started yet");
}

static int show(const struct stacks_options *options, const char *name, const char *path,
                const struct run_replay *replay, const struct idset *late, ty_error *err) {
    CLEANUP(buffer_done) struct buffer text = {0};
    bool begun = have_begun(replay, late);
    CLEANUP_FREE struct stack_sampled *workers = calloc(replay->n_workers + 1, sizeof *workers);
    struct stacks_of of = {.workers = workers, .asked = -1};
    bool again = options->length > 0 || options->format == STACKS_FOLDED;
    if (workers == NULL) return ty_fail_memory(err);
    add_workers(options, replay, true, &of);
    of.here = of.n;
    add_workers(options, replay, false, &of);
    buffer_printf(&text, "%s: ", name);
    describe_late(late, &text);
    if (text.failed) return ty_fail_memory(err);
    if (!begun && of.n == 0) return ty_fail(err, TY_EUSAGE, "%s", text.data);
    if (!begun) terminal_warning("stacks", text.data);
    if (again && of.n > 0) return sample_all(name, replay, options, &of, err);
    if (of.here > 0) return save_all(name, path, workers, of.here, replay->attempt, options->format, err);
    return ty_fail(err, TY_EUSAGE, "%s: no such worker runs on this machine now%s", name,
                   of.n > 0 ? "; those of others are looked at with --seconds" : "");
}

static int command_stacks_run(const struct arguments *arguments, ty_error *err) {
    CLEANUP(idset_done) struct idset ranks = {0}, late = {0};
    struct stacks_options options = {.rate = RATE};
    struct storage_options storage = {0};
    CLEANUP(replay_done) struct run_replay replay = {0};
    const char *name = arguments->words[0];
    int result = options_apply(arguments, (void *[]){&options, &storage}, err);
    ranks = options.wanted.ranks;
    if (result < 0) return result;
    CLEANUP_FREE char *path = run_directory_find(storage.storage_path, name, err);
    if (path == NULL) return err->code;
    /* The journal says which processes are looked at, and its directory takes what is found: both are
     * another's, who may have chosen them. */
    struct stat status;
    if (stat(path, &status) < 0) return ty_fail(err, TY_EUSAGE, "cannot look at %s: %s", path, strerror(errno));
    unsigned owner = status.st_uid;
    if (owner != geteuid() && geteuid() != 0)
        return ty_fail(err, TY_EUSAGE, "%s belongs to user %u, and only that user can save its stacks", name,
                       owner);
    if (owner != geteuid())
        return ty_fail(err, TY_EUSAGE,
                       "%s belongs to user %u, whose stacks are for that user to save: setpriv --reuid=%u "
                       "--clear-groups trainyard stacks ...",
                       name, owner, owner);
    if (!run_lock_is_held(path))
        return ty_fail(err, TY_EUSAGE, "%s is not running; stacks that were saved are in %s/logs", name, path);
    result = wait_until_begun(&options, path, &replay, &late, err);
    if (result >= 0) result = show(&options, name, path, &replay, &late, err);
    return result;
}

const struct command command_stacks = {
    .name = "stacks",
    .summary = "show where the workers of a run stand",
    .usage = (const char *const[]){"NAME [OPTION...]", NULL},
    .description =
        "For each worker that runs on this machine: what the kernel tells of its threads, the Python lines of "
        "workers of the Python package, and frames by gdb or eu-stack where one is installed. The run goes on. "
        "What is shown is added to logs/rank-N.stack of the run, too. Of several ranks, those that stand at "
        "the same place are told as one group first, the smallest group before all others. Ctrl-\\ at the "
        "run's own terminal saves the same, and then ends the run. Workers that are about to begin are waited "
        "for, 2 s at most.\n\n"
        "With --seconds they are looked at again and again, the lines of Python of workers of the Python "
        "package, of others what the kernel tells, and how often they stood where is shown. --format folded is "
        "what flamegraph.pl, speedscope and inferno read. Of workers of other machines, too: where the run's "
        "controller is, it asks their agents.",
    .examples =
        (const char *const[]){"trainyard stacks llama", "who stands where, the odd ones first",
                              "trainyard stacks llama --seconds 10 --format folded | flamegraph.pl > llama.svg",
                              "where the time goes, as a flame graph", NULL},
    .groups = (const struct option_group *const[]){&stacks_group, &storage_group, NULL},
    .min_words = 1,
    .max_words = 1,
    .missing = "which run? `trainyard status` lists them",
    .run = command_stacks_run,
};
