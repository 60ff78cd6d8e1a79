/* What surrounds the PMIx server of a node (pmix_module.h). It lives in the process that answers for the node's
 * first rank, and goes with that. The ranks of the node hear of it through the run's store, and so do the
 * servers of several nodes of each other: the first of the nodes that take part gathers what all of them
 * give. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/module.h"
#include "base/str.h"
#include "cli/pmix_module.h"
#include "worker/worker.h"

enum { MEETING_KEY_SIZE = 96 };
/* The server of a node starts with its first rank, so it is there within this, or has failed. Ranks come to
 * MPI when they like: for that the others wait as long as the run goes on. */
#define START_LIMIT_S 120.0
#define ENDLESS_S 1e15
#define VARIABLES_FOLLOW '+' /* the first byte of what ranks are told; else it is text that says why not */

static struct pmix_job job;

/* -- values of any size in the run's store, each given once */

/* A worker of one thread's own. */
static int open_worker(struct ty_worker *worker) {
    *worker = (struct ty_worker){0};
    int result = worker_read_environment(worker, NULL);
    worker->pid = getpid();
    return result < 0 ? result : link_open_own(&worker->link, NULL);
}

/* The bytes go into the store in pieces of the size that the store takes; the first piece begins with the size
 * of the whole. */
static int give(ty_worker *worker, const char *key, const void *bytes, size_t size) {
    CLEANUP(buffer_done) struct buffer whole = {0};
    char piece[MEETING_KEY_SIZE + 24];
    uint64_t total = size;
    buffer_append(&whole, &total, sizeof total);
    buffer_append(&whole, bytes, size);
    int result = whole.failed ? -ENOMEM : 0;
    for (size_t at = 0, i = 0; result == 0 && at < whole.size; at += WORKER_VALUE_MAX, i++) {
        size_t rest = whole.size - at;
        (void)snprintf(piece, sizeof piece, "%s.%zu", key, i);
        result = ty_store_set(worker, piece, whole.data + at, rest < WORKER_VALUE_MAX ? rest : WORKER_VALUE_MAX,
                              NULL);
    }
    return result;
}

/* Appends it to `out`; waits as long until it was given. */
static int take(ty_worker *worker, const char *key, double limit_s, struct buffer *out) {
    char piece[MEETING_KEY_SIZE + 24];
    uint64_t total = 0;
    size_t have = 0;
    for (size_t i = 0; i == 0 || have < total; i++) {
        CLEANUP_FREE char *bytes = NULL;
        size_t size;
        (void)snprintf(piece, sizeof piece, "%s.%zu", key, i);
        int result = ty_store_wait(worker, piece, limit_s, (void **)&bytes, &size, NULL);
        if (result < 0) return result;
        size_t head = i == 0 ? sizeof total : 0;
        /* A piece without bytes would never bring this to its end. */
        if (size < head || size == 0) return -EPROTO;
        if (i == 0) memcpy(&total, bytes, sizeof total);
        buffer_append(out, bytes + head, size - head);
        have += size - head;
    }
    return out->failed ? -ENOMEM : 0;
}

/* -- the servers among each other */

/* One store key for what a place gives, and one for what all did. */
static int exchange(const char *key, const uint32_t *places, size_t n, const struct buffer *mine,
                    struct buffer *all) {
    CLEANUP(worker_done) struct ty_worker worker;
    char name[MEETING_KEY_SIZE];
    int result = open_worker(&worker);
    if (result == 0 && job.here != places[0]) {
        (void)snprintf(name, sizeof name, "pmix/%s/%u", key, job.here);
        result = give(&worker, name, mine->data, mine->size);
    } else if (result == 0) {
        buffer_append(all, mine->data, mine->size);
        for (size_t i = 1; i < n && result == 0; i++) {
            (void)snprintf(name, sizeof name, "pmix/%s/%u", key, places[i]);
            result = take(&worker, name, ENDLESS_S, all);
        }
    }
    (void)snprintf(name, sizeof name, "pmix/%s/all", key);
    if (result < 0) return result;
    return job.here == places[0] ? give(&worker, name, all->data, all->size)
                                 : take(&worker, name, ENDLESS_S, all);
}

/* A thread of libpmix calls it, beside those of exchange: each has a link to the store of its own. */
static int give_rank(uint32_t rank, const void *bytes, size_t size) {
    CLEANUP(worker_done) struct ty_worker worker;
    char name[MEETING_KEY_SIZE];
    (void)snprintf(name, sizeof name, "pmix/rank/%u", rank);
    int result = open_worker(&worker);
    return result < 0 ? result : give(&worker, name, bytes, size);
}

/* Whoever asks waits as long as the run: the rank puts its data when it comes to MPI, and the run ends where it
 * never does. */
static int take_rank(uint32_t rank, struct buffer *out) {
    CLEANUP(worker_done) struct ty_worker worker;
    char name[MEETING_KEY_SIZE];
    (void)snprintf(name, sizeof name, "pmix/rank/%u", rank);
    int result = open_worker(&worker);
    return result < 0 ? result : take(&worker, name, ENDLESS_S, out);
}

/* -- the job */

/* Each node tells the others its name and its ranks, in a line "NAME FIRST_RANK RANKS". The places that are
 * made of the lines are kept for the life of the process. */
static int find_places(const struct ty_worker *worker, const char *node, ty_error *err) {
    CLEANUP(buffer_done) struct buffer mine = {0}, all = {0};
    int64_t n = 0, first, ranks;
    (void)str_to_int64(getenv("GROUP_WORLD_SIZE"), 1, INT32_MAX, &n);
    struct pmix_place *places = calloc((size_t)n + 1, sizeof *places);
    CLEANUP_FREE uint32_t *everywhere = calloc((size_t)n + 1, sizeof *everywhere);
    job.n_places = (uint32_t)n;
    job.here = (uint32_t)worker->node_rank;
    job.places = places;
    buffer_printf(&mine, "%s %d %d\n", node, worker->rank, worker->local_world_size);
    if (places == NULL || everywhere == NULL || mine.failed) return ty_fail_memory(err);
    for (uint32_t i = 0; i < job.n_places; i++)
        everywhere[i] = i;
    int result = job.n_places > 1 ? exchange("places", everywhere, job.n_places, &mine, &all) : 0;
    char *rest = result < 0 ? NULL : buffer_take(job.n_places > 1 ? &all : &mine);
    uint32_t found = 0;
    for (char *line; found < job.n_places && (line = strsep(&rest, "\n")) != NULL && *line != '\0'; found++) {
        char *last = strrchr(line, ' ');
        if (last == NULL) break;
        *last++ = '\0';
        char *middle = strrchr(line, ' ');
        if (middle == NULL) break;
        *middle++ = '\0';
        if (!str_to_int64(middle, 0, INT32_MAX, &first) || !str_to_int64(last, 1, INT32_MAX, &ranks)) break;
        places[found] = (struct pmix_place){line, (uint32_t)first, (uint32_t)ranks};
    }
    if (found == job.n_places && (rest == NULL || *rest == '\0')) return 0;
    return ty_fail(err, TY_ECOMM, "the nodes of the run did not find each other");
}

static void mark(uint32_t rank, bool begun) {
    (void)worker_files_mark(getenv(WORKER_TOKEN_VARIABLE), rank, begun);
}

/* The token's end is the node's; what comes before it is the run's. */
static int describe_job(const struct ty_worker *worker, ty_error *err) {
    static char directory[WORKER_FILES_SIZE];
    const char *token = getenv(WORKER_TOKEN_VARIABLE), *node = getenv("TRAINYARD_NODE");
    if (token == NULL || node == NULL) return ty_fail(err, TY_EUSAGE, "this process is no worker of a run");
    worker_files_path(token, directory);
    if (mkdir(directory, 0700) < 0 && errno != EEXIST) /* for a mark of another rank */
        return ty_fail(err, TY_EUNSUPPORTED, "cannot make %s: %s", directory, strerror(errno));
    char *name = str_format("trainyard.%.*s.%d", (int)strcspn(token, "-"), token, worker->attempt);
    if (name == NULL) return ty_fail_memory(err);
    job = (struct pmix_job){.name = name,
                            .directory = directory,
                            .world_size = (uint32_t)worker->world_size,
                            .mark = mark,
                            .exchange = exchange,
                            .give = give_rank,
                            .take = take_rank};
    return find_places(worker, node, err);
}

const struct pmix_module *mpi_pmix_serve(void) {
    /* Settings of Open MPI that PMIx does not carry; the user's own stay. Open MPI's shared memory lies where
     * it is removed whichever way the processes end. Version 4 takes itself for alone where it knows no
     * launcher by name, or one that did not start it, unless its parts that say so are left out. Cores are the
     * agent's to bind. */
    static const char *const open_mpi[][2] = {{"OMPI_MCA_btl_vader_backing_directory", NULL}, /* the job's */
                                              {"OMPI_MCA_btl_sm_backing_directory", NULL},
                                              {"OMPI_MCA_schizo", "^orte,slurm"},
                                              {"OMPI_MCA_hwloc_base_binding_policy", "none"}};
    CLEANUP(worker_done) struct ty_worker worker;
    CLEANUP(buffer_done) struct buffer told = {0};
    ty_error err = {0};
    char key[MEETING_KEY_SIZE];
    if (open_worker(&worker) < 0) return NULL;
    const struct pmix_module *module = module_load("pmix", &err);
    int result = module == NULL ? err.code : describe_job(&worker, &err);
    buffer_char(&told, VARIABLES_FOLLOW);
    if (result == 0) result = module->start(&job, &told, &err);
    for (size_t i = 0; result == 0 && i < ARRAY_SIZE(open_mpi); i++) {
        const char *name = open_mpi[i][0], *value = open_mpi[i][1];
        if (getenv(name) != NULL) continue;
        buffer_printf(&told, "%s=%s", name, value != NULL ? value : job.directory);
        buffer_append(&told, "", 1);
    }
    if (result < 0) {
        buffer_clear(&told);
        buffer_text(&told, err.message);
        if (module == NULL)
            buffer_text(&told, "; on Debian install libpmix2, and libpmix-dev where Trainyard is built");
    }
    (void)snprintf(key, sizeof key, "pmix/node/%d", worker.node_rank);
    if (!told.failed) result = give(&worker, key, told.data, told.size) < 0 ? -1 : result;
    return result < 0 ? NULL : module;
}

/* -- in each rank */

int mpi_pmix_join(struct buffer *why, ty_error *err) {
    CLEANUP(worker_done) struct ty_worker worker;
    CLEANUP(buffer_done) struct buffer told = {0};
    char key[MEETING_KEY_SIZE];
    int result = open_worker(&worker);
    (void)snprintf(key, sizeof key, "pmix/node/%d", worker.node_rank);
    if (result == 0) result = take(&worker, key, START_LIMIT_S, &told);
    if (result < 0)
        return ty_fail(err, TY_ECOMM, "the first rank of this node did not say within %g s how to meet",
                       START_LIMIT_S);
    if (told.data[0] != VARIABLES_FOLLOW) {
        buffer_append(why, told.data, told.size);
        return 0;
    }
    for (size_t at = 1; at < told.size; at += strlen(told.data + at) + 1) {
        char *name = told.data + at, *value = strchr(name, '=');
        if (value == NULL) return ty_fail_memory(err);
        *value = '\0';
        bool rank = str_equal(name, "PMIX_RANK");
        result = setenv(name, rank ? getenv("RANK") : value + 1, 1);
        *value = '=';
        if (result < 0) return ty_fail_memory(err);
    }
    return 0;
}
