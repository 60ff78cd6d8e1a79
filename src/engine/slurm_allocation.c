/* What scontrol and the environment say of the allocation that this process is in (docs/spec/slurm.md 4.9), and
 * of the site around it. Nothing is started or changed by it. What the texts mean is read by slurm_show.c; here
 * they are asked for, at most for a minute each, and the environment stands in for a scontrol that does not
 * answer. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/hostlist.h"
#include "base/kernel.h"
#include "base/program.h"
#include "base/str.h"
#include "engine/slurm.h"

#define SCONTROL_LIMIT (60 * NS_PER_S)
enum { COUNTS_MAX = 1024 * 1024, SCONTROL_LIMIT_MS = SCONTROL_LIMIT / NS_PER_MS };

bool slurm_inside(int64_t *nodes) {
    const char *id = getenv("SLURM_JOB_ID");
    const char *count =
        getenv("SLURM_JOB_NUM_NODES") != NULL ? getenv("SLURM_JOB_NUM_NODES") : getenv("SLURM_NNODES");
    int64_t number;
    if (id == NULL || !str_to_int64(id, 1, INT64_MAX, &number)) return false;
    if (nodes != NULL && (count == NULL || !str_to_int64(count, 1, COUNTS_MAX, nodes))) *nodes = 1;
    return true;
}

int slurm_check_allocation(ty_error *err) {
    const char *components = getenv("SLURM_HET_SIZE");
    int64_t n = 1;
    if (!slurm_inside(NULL))
        return ty_fail(
            err, TY_EUSAGE,
            "engine slurm: this is no allocation (SLURM_JOB_ID is not set): begin with salloc, or give the run "
            "to `trainyard submit`");
    if (components == NULL || (str_to_int64(components, 1, INT64_MAX, &n) && n == 1)) return 0;
    return ty_fail(
        err, TY_EUNSUPPORTED,
        "engine slurm: this is a heterogeneous job of %.20s components (SLURM_HET_SIZE), which a run "
        "cannot have: ask for all nodes in one component, or start the run in an allocation of one",
        components);
}

/* -- "2(x3),1" -- */

struct counts {
    int64_t *items;
    size_t n;
};

static int add_counts(void *context, char *piece) {
    struct counts *counts = context;
    int64_t value, times = 1;
    char *open = strchr(piece, '(');
    if (open != NULL) {
        size_t size = strlen(open);
        if (size < 4 || open[1] != 'x' || open[size - 1] != ')') return TY_EUSAGE;
        open[size - 1] = '\0';
        if (!str_to_int64(open + 2, 1, COUNTS_MAX, &times)) return TY_EUSAGE;
        *open = '\0';
    }
    if (!str_to_int64(piece, 0, COUNTS_MAX, &value) || counts->n + (size_t)times > COUNTS_MAX) return TY_EUSAGE;
    for (int64_t i = 0; i < times; i++) {
        if (ARRAY_GROW(counts->items, counts->n) < 0) return -ENOMEM;
        counts->items[counts->n++] = value;
    }
    return 0;
}

int slurm_expand_counts(const char *text, int64_t **counts, size_t *n, ty_error *err) {
    struct counts made = {0};
    int result = str_split(text, ',', add_counts, &made);
    if (result < 0) {
        free(made.items);
        if (result == -ENOMEM) return ty_fail_memory(err);
        return ty_fail(err, TY_EUSAGE, "'%.80s' is no list of counts, as 2(x3),1 is one", text);
    }
    *counts = made.items;
    *n = made.n;
    return 0;
}

/* -- asking scontrol -- */

static int ask(const char *const *argv, struct buffer *out, ty_error *err) {
    const struct program_call call = {.argv = argv, .out = out, .limit = SCONTROL_LIMIT};
    int result = program_ask(&call, err);
    if (result >= 0 && out->size == 0) buffer_text(out, "");
    if (result >= 0 && out->failed) return ty_fail_memory(err);
    return result == TY_EUNSUPPORTED ? ty_wrap(err, "engine slurm") : result;
}

/* In a step SLURM_NTASKS is that of the step. */
int64_t slurm_job_tasks(void) {
    static const char field[] = " NumTasks=";
    const char *const argv[] = {"scontrol", "show", "job", "-o", getenv("SLURM_JOB_ID"), NULL};
    CLEANUP(buffer_done) struct buffer shown = {0};
    const char *told = getenv("SLURM_NTASKS");
    int64_t tasks = 0;
    if (getenv("SLURM_STEP_ID") != NULL && ask(argv, &shown, NULL) >= 0) {
        char *found = strstr(shown.data, field);
        told = found != NULL ? found + strlen(field) : NULL;
        if (found != NULL) found[strlen(field) + strspn(told, "0123456789")] = '\0';
    }
    return told != NULL && str_to_int64(told, 1, INT64_MAX, &tasks) ? tasks : 0;
}

int slurm_look_at_site(const char *partition, const struct demand *demand, struct slurm_site *site,
                       ty_error *err) {
    static const char *const nodes[] = {"scontrol", "show", "node", "-d", "-o", NULL};
    static const char *const licences[] = {"scontrol", "show", "licenses", "-o", NULL};
    static const char *const partitions[] = {"scontrol", "show", "partition", "-o", NULL};
    CLEANUP(buffer_done) struct buffer shown = {0};
    CLEANUP(buffer_done) struct buffer counted = {0};
    CLEANUP(buffer_done) struct buffer parts = {0};
    char *own = NULL;
    int result = ask(partitions, &parts, err);
    if (result >= 0) result = slurm_read_partition(parts.data, partition, &own, err);
    if (result >= 0) result = ask(nodes, &shown, err);
    if (result >= 0) result = slurm_read_nodes(shown.data, own, demand, site, err);
    if (result >= 0) result = ask(licences, &counted, err);
    if (result >= 0) result = slurm_read_licences(counted.data, site, err);
    if (result < 0) {
        free(own);
        slurm_site_done(site);
        return result;
    }
    site->partition = own;
    return 0;
}

/* -- without scontrol -- */

struct node_naming {
    struct buffer *out;
    const int64_t *cpus;
    size_t n, at;
    const char *memory, *gpus;
};

/* A group of `scontrol show job -d` for one node. */
static int name_node(void *context, const char *name) {
    struct node_naming *naming = context;
    int64_t cpus = naming->at < naming->n ? naming->cpus[naming->at] : 1;
    naming->at++;
    buffer_printf(naming->out, "Nodes=%s CPU_IDs=", name);
    if (cpus > 0) buffer_text(naming->out, "0");
    if (cpus > 1) buffer_printf(naming->out, "-%lld", (long long)cpus - 1);
    buffer_printf(naming->out, " Mem=%s GRES=%s%s ", naming->memory != NULL ? naming->memory : "0",
                  naming->gpus != NULL ? "gpu:" : "", naming->gpus != NULL ? naming->gpus : "");
    return 0;
}

/* What the environment says, in scontrol's form. */
static int describe_by_environment(struct buffer *out, ty_error *err) {
    const char *names = getenv("SLURM_JOB_NODELIST"), *counts = getenv("SLURM_JOB_CPUS_PER_NODE");
    struct node_naming naming = {
        .out = out, .memory = getenv("SLURM_MEM_PER_NODE"), .gpus = getenv("SLURM_GPUS_PER_NODE")};
    struct hostlist *list = NULL;
    int64_t *cpus = NULL;
    if (naming.gpus == NULL) naming.gpus = getenv("SLURM_GPUS_ON_NODE");
    if (names == NULL)
        return ty_fail(
            err, TY_EUSAGE,
            "engine slurm: SLURM_JOB_ID is set, but SLURM_JOB_NODELIST is not: this is no allocation");
    int result = hostlist_parse(names, &list, err);
    if (result >= 0 && counts != NULL) result = slurm_expand_counts(counts, &cpus, &naming.n, err);
    naming.cpus = cpus;
    if (result >= 0) result = hostlist_each(list, name_node, &naming);
    hostlist_destroy(list);
    free(cpus);
    if (result >= 0 && out->failed) return ty_fail_memory(err);
    return result < 0 ? ty_wrap(err, "engine slurm: the allocation") : 0;
}

/* Into a file in memory, which a program fills without anybody who reads; what it complains of is not
 * needed. */
static void ask_apart(const char *const *argv, struct slurm_answer *answer) {
    if (answer->pid != 0) return;
    CLEANUP_FD int file = kernel_memory_file("scontrol");
    const int fds[] = {PROGRAM_NOTHING, file, PROGRAM_NOTHING};
    const struct program_start start = {
        .argv = argv, .fds = fds, .n_fds = ARRAY_SIZE(fds), .place = PROGRAM_GROUP};
    if (file < 0 || program_start(&start, &answer->pid) < 0) {
        answer->pid = 0;
        return;
    }
    answer->pidfd = kernel_hold(answer->pid);
    answer->file = TAKE_FD(file);
}

/* Ends it, with what it has started, unless it has ended by itself: its status, or -1. */
static int answer_done(struct slurm_answer *answer, int patience_ms) {
    int status = 0;
    if (answer->pid == 0) return -1;
    bool ended = patience_ms > 0 && kernel_await(answer->pidfd, answer->pid, patience_ms);
    if (!ended) (void)kill(-answer->pid, SIGKILL);
    (void)kernel_reap(answer->pidfd, answer->pid, ended ? 1 : 0, &status);
    cleanup_fd(&answer->pidfd);
    answer->pid = 0;
    return ended ? status : -1;
}

void slurm_ask_allocation(struct slurm_inquiry *inquiry) {
    const char *id = getenv("SLURM_JOB_ID"), *names = getenv("SLURM_JOB_NODELIST");
    const char *const job[] = {"scontrol", "show", "job", "-d", "-o", id, NULL};
    const char *const nodes[] = {"scontrol", "show", "node", "-d", "-o", names, NULL};
    ask_apart(job, &inquiry->job);
    ask_apart(nodes, &inquiry->nodes);
}

void slurm_inquiry_done(struct slurm_inquiry *inquiry) {
    struct slurm_answer *const answers[] = {&inquiry->job, &inquiry->nodes};
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        if (answers[i]->pid == 0) continue;
        (void)answer_done(answers[i], 0);
        cleanup_fd(&answers[i]->file);
    }
}

/* Waits for it. False where there is none. */
static bool hear(struct slurm_answer *answer, struct buffer *out) {
    CLEANUP_FD int file = answer->pid != 0 ? TAKE_FD(answer->file) : -1;
    char path[32];
    buffer_clear(out);
    if (answer_done(answer, SCONTROL_LIMIT_MS) != 0) return false;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return file_read(path, PROGRAM_OUTPUT_MAX, out, NULL) >= 0 && out->size > 0;
}

int slurm_look_at_allocation(struct slurm_inquiry *inquiry, const struct demand *demand,
                             struct slurm_site *granted, ty_error *err) {
    int result = slurm_check_allocation(err);
    if (result < 0) return result;
    CLEANUP(buffer_done) struct buffer shown = {0};
    CLEANUP(buffer_done) struct buffer text = {0};
    CLEANUP(slurm_site_done) struct slurm_site all = {0};
    /* What was asked while the step began, when slurmctld is busiest, is asked again where it has no answer. */
    bool early = inquiry->job.pid != 0 || inquiry->nodes.pid != 0;
    slurm_ask_allocation(inquiry);
    bool told = hear(&inquiry->job, &text), shows = hear(&inquiry->nodes, &shown);
    if (early && (!told || !shows)) {
        slurm_ask_allocation(inquiry);
        told = hear(&inquiry->job, &text);
        shows = hear(&inquiry->nodes, &shown);
    }
    told = told && strstr(text.data, " Nodes=") != NULL;
    if (shows && slurm_read_nodes(shown.data, NULL, demand, &all, err) < 0)
        return err != NULL ? err->code : TY_EUSAGE;
    if (!told) {
        buffer_clear(&text);
        result = describe_by_environment(&text, err);
        if (result < 0) return result;
    }
    return slurm_read_job(text.data, &all, granted, err);
}
