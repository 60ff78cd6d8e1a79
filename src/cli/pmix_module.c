/* A PMIx server over libpmix. Its upcalls come in a thread of libpmix that may not wait: what has to ask other
 * nodes gets a thread of its own. What ranks have put for each other travels at fences, and, where one is asked
 * for before that, by itself. Nothing is spawned, and no names are published. */
#include "cli/pmix_module.h"

#include <pmix.h>
#include <pmix_server.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/module.h"
#include "base/str.h"

enum { FACTS_MAX = 20 };

/* Fences of the same processes are numbered, alike on all nodes. */
struct fence_count {
    uint64_t of;
    unsigned n;
};

static struct {
    const struct pmix_job *job;
    pthread_mutex_t lock;
    pthread_cond_t left; /* the last client has */
    bool *connected;     /* owned; by local rank */
    atomic_uint n_connected;
    /* The first rank's end of MPI is answered when the others are at theirs: the server goes with its
     * process. */
    pmix_op_cbfunc_t held;
    void *held_data;
    struct fence_count *fences;
    size_t n_fences;
} server = {.lock = PTHREAD_MUTEX_INITIALIZER, .left = PTHREAD_COND_INITIALIZER};

/* -- clients come and go */

/* The local rank; the first where a process is none of ours, which libpmix sees to. */
static uint32_t local_rank(const pmix_proc_t *proc) {
    const struct pmix_place *here = &server.job->places[server.job->here];
    uint32_t local = proc->rank - here->first_rank;
    return local < here->n_ranks ? local : 0;
}

static void mark(const pmix_proc_t *proc, bool begun) {
    const struct pmix_place *here = &server.job->places[server.job->here];
    if (proc->rank - here->first_rank < here->n_ranks) server.job->mark(proc->rank, begun);
}

static pmix_status_t on_connected(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t answer, void *data) {
    (void)object;
    (void)pthread_mutex_lock(&server.lock);
    server.n_connected += !server.connected[local_rank(proc)];
    server.connected[local_rank(proc)] = true;
    (void)pthread_mutex_unlock(&server.lock);
    mark(proc, true);
    if (answer != NULL) answer(PMIX_SUCCESS, data);
    return PMIX_SUCCESS;
}

/* The answer that waits for the end of all others, where this was the last of them. */
static pmix_op_cbfunc_t forget(const pmix_proc_t *proc) {
    server.n_connected -= server.connected[local_rank(proc)];
    server.connected[local_rank(proc)] = false;
    if (server.n_connected > 0) return NULL;
    (void)pthread_cond_broadcast(&server.left);
    return TAKE(server.held);
}

static pmix_status_t on_finalized(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t answer, void *data) {
    (void)object;
    mark(proc, false);
    (void)pthread_mutex_lock(&server.lock);
    pmix_op_cbfunc_t held = forget(proc);
    void *held_data = server.held_data;
    if (local_rank(proc) == 0 && server.n_connected > 0 && server.held == NULL) {
        server.held = TAKE(answer);
        server.held_data = data;
    }
    (void)pthread_mutex_unlock(&server.lock);
    if (answer != NULL) answer(PMIX_SUCCESS, data);
    if (held != NULL) held(PMIX_SUCCESS, held_data);
    return PMIX_SUCCESS;
}

/* Some have gone without that: the source, and those that are named beside it. */
/* NOLINTNEXTLINE(readability-function-size): the parameters are libpmix's */
static void on_lost(size_t handler, pmix_status_t status, const pmix_proc_t *source, pmix_info_t info[],
                    size_t n, pmix_info_t results[], size_t n_results, pmix_event_notification_cbfunc_fn_t done,
                    void *data) {
    (void)handler, (void)status, (void)results, (void)n_results;
    (void)pthread_mutex_lock(&server.lock);
    pmix_op_cbfunc_t held = forget(source);
    for (size_t i = 0; i < n; i++)
        if (held == NULL && PMIX_CHECK_KEY(&info[i], PMIX_PROCID)) held = forget(info[i].value.data.proc);
    void *held_data = server.held_data;
    (void)pthread_mutex_unlock(&server.lock);
    if (held != NULL) held(PMIX_SUCCESS, held_data);
    if (done != NULL) done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, data);
}

/* The program then ends with its status, which is the rank's. */
static pmix_status_t on_abort(const pmix_proc_t *proc, void *object, int status, const char text[],
                              pmix_proc_t procs[], size_t n, pmix_op_cbfunc_t answer, void *data) {
    (void)proc, (void)object, (void)status, (void)text, (void)procs, (void)n;
    if (answer != NULL) answer(PMIX_SUCCESS, data);
    return PMIX_SUCCESS;
}

/* -- what waits for other nodes */

struct question {
    pmix_modex_cbfunc_t answer;
    void *answer_data;
    uint32_t rank;    /* of a question for one rank's data */
    char key[48];     /* of a fence; "" otherwise */
    uint32_t *places; /* owned: those of the fence */
    size_t n_places;
    struct buffer mine; /* what ours have put */
};

static void free_bytes(void *bytes) {
    free(bytes);
}

static void free_question(struct question *question) {
    buffer_done(&question->mine);
    free(question->places);
    free(question);
}

static void *ask(void *context) {
    struct question *question = context;
    const struct pmix_job *job = server.job;
    struct buffer all = {0};
    int result = question->key[0] == '\0' ? job->take(question->rank, &all)
                                          : job->exchange(question->key, question->places, question->n_places,
                                                          &question->mine, &all);
    size_t size = all.size;
    char *bytes = result < 0 || size == 0 ? NULL : buffer_take(&all);
    bool good = result >= 0 && (size == 0 || bytes != NULL);
    buffer_done(&all);
    question->answer(good ? PMIX_SUCCESS : PMIX_ERROR, bytes, good ? size : 0, question->answer_data,
                     free_bytes, bytes);
    free_question(question);
    return NULL;
}

/* Takes the question over. */
static pmix_status_t start_asking(struct question *question) {
    pthread_t thread;
    int failed = pthread_create(&thread, NULL, ask, question);
    if (failed == 0) (void)pthread_detach(thread);
    if (failed != 0) free_question(question);
    return failed == 0 ? PMIX_SUCCESS : PMIX_ERR_OUT_OF_RESOURCE;
}

/* Notes the places of these processes, in their order, and the name of this fence of theirs. -1: memory is
 * short. Called in libpmix's thread alone. */
static int name_fence(struct question *question, const pmix_proc_t procs[], size_t n) {
    const struct pmix_job *job = server.job;
    question->places = calloc(job->n_places, sizeof *question->places);
    if (question->places == NULL) return -1;
    for (uint32_t at = 0; at < job->n_places; at++) {
        const struct pmix_place *place = &job->places[at];
        bool takes_part = false;
        for (size_t i = 0; i < n && !takes_part; i++)
            takes_part =
                procs[i].rank == PMIX_RANK_WILDCARD ||
                (procs[i].rank >= place->first_rank && procs[i].rank - place->first_rank < place->n_ranks);
        if (takes_part) question->places[question->n_places++] = at;
    }
    uint64_t of = 14695981039346656037u; /* FNV-1a of the ranks, in the order that all name them in */
    for (size_t i = 0; i < n; i++)
        for (unsigned shift = 0; shift < 32; shift += 8)
            of = (of ^ (procs[i].rank >> shift & 0xff)) * 1099511628211u;
    size_t fence = 0;
    while (fence < server.n_fences && server.fences[fence].of != of)
        fence++;
    if (fence == server.n_fences) {
        if (ARRAY_GROW(server.fences, server.n_fences) < 0) return -1;
        server.fences[server.n_fences++] = (struct fence_count){.of = of};
    }
    (void)snprintf(question->key, sizeof question->key, "fence/%016llx/%u", (unsigned long long)of,
                   server.fences[fence].n++);
    return 0;
}

/* All ranks of this node that take part have come, with `size` bytes, which are ours. */
static pmix_status_t on_fence(const pmix_proc_t procs[], size_t n, const pmix_info_t info[], size_t n_info,
                              char *bytes, size_t size, pmix_modex_cbfunc_t answer, void *data) {
    (void)info, (void)n_info;
    struct question *question = server.job->n_places > 1 ? calloc(1, sizeof *question) : NULL;
    if (question != NULL && name_fence(question, procs, n) < 0) {
        free_question(question);
        return PMIX_ERR_NOMEM;
    }
    if (question == NULL || question->n_places < 2) { /* nobody else is asked */
        if (question != NULL) free_question(question);
        answer(PMIX_SUCCESS, bytes, size, data, free_bytes, bytes);
        return PMIX_SUCCESS;
    }
    question->answer = answer;
    question->answer_data = data;
    buffer_append(&question->mine, bytes != NULL ? bytes : "", size);
    free(bytes);
    return start_asking(question);
}

static pmix_status_t on_direct(const pmix_proc_t *proc, const pmix_info_t info[], size_t n_info,
                               pmix_modex_cbfunc_t answer, void *data) {
    (void)info, (void)n_info;
    struct question *question = server.job->n_places > 1 ? calloc(1, sizeof *question) : NULL;
    if (question == NULL) return PMIX_ERR_NOT_FOUND;
    question->answer = answer;
    question->answer_data = data;
    question->rank = proc->rank;
    return start_asking(question);
}

/* -- what clients are told of the job */

struct facts {
    pmix_info_t items[FACTS_MAX];
    size_t n;
};

static void add(struct facts *facts, const char *key, const void *value, pmix_data_type_t type) {
    PMIX_INFO_LOAD(&facts->items[facts->n], key, value, type);
    facts->n++;
}

static void add_number(struct facts *facts, const char *key, uint32_t value) {
    add(facts, key, &value, PMIX_UINT32);
}

/* What is known of one rank, under one key. */
static void fill_rank(pmix_info_t *item, const struct pmix_place *place, uint32_t node, uint32_t local) {
    uint32_t rank = place->first_rank + local, zero = 0;
    uint16_t short_local = (uint16_t)local;
    struct facts facts = {0};
    add(&facts, PMIX_RANK, &rank, PMIX_PROC_RANK);
    add(&facts, PMIX_GLOBAL_RANK, &rank, PMIX_PROC_RANK);
    add(&facts, PMIX_LOCAL_RANK, &short_local, PMIX_UINT16);
    add(&facts, PMIX_NODE_RANK, &short_local, PMIX_UINT16);
    add(&facts, PMIX_NODEID, &node, PMIX_UINT32);
    add(&facts, PMIX_APPNUM, &zero, PMIX_UINT32);
    add(&facts, PMIX_HOSTNAME, place->name, PMIX_STRING);
    pmix_data_array_t array = {.type = PMIX_INFO, .size = facts.n, .array = facts.items};
    PMIX_INFO_LOAD(item, PMIX_PROC_DATA, &array, PMIX_DATA_ARRAY);
    for (size_t i = 0; i < facts.n; i++)
        PMIX_INFO_DESTRUCT(&facts.items[i]);
}

/* Each by itself: ranges are not understood everywhere. */
static void list_ranks(const struct pmix_place *place, struct buffer *out) {
    for (uint32_t i = 0; i < place->n_ranks; i++)
        buffer_printf(out, "%s%u", i > 0 ? "," : "", place->first_rank + i);
}

/* The names of all places, and their ranks, as PMIx writes them. */
static int add_maps(struct facts *facts) {
    const struct pmix_job *job = server.job;
    CLEANUP(buffer_done) struct buffer names = {0}, ranks = {0}, peers = {0};
    char *names_map = NULL, *ranks_map = NULL;
    for (uint32_t i = 0; i < job->n_places; i++) {
        if (i > 0) buffer_char(&ranks, ';');
        list_ranks(&job->places[i], &ranks);
        buffer_printf(&names, "%s%s", i > 0 ? "," : "", job->places[i].name);
    }
    list_ranks(&job->places[job->here], &peers);
    if (names.failed || ranks.failed || peers.failed) return -1;
    bool made = PMIx_generate_regex(names.data, &names_map) == PMIX_SUCCESS &&
                PMIx_generate_ppn(ranks.data, &ranks_map) == PMIX_SUCCESS;
    if (made) {
        add(facts, PMIX_NODE_MAP, names_map, PMIX_REGEX);
        add(facts, PMIX_PROC_MAP, ranks_map, PMIX_REGEX);
        add(facts, PMIX_LOCAL_PEERS, peers.data, PMIX_STRING);
    }
    free(names_map);
    free(ranks_map);
    return made ? 0 : -1;
}

static void add_job(struct facts *facts) {
    const struct pmix_job *job = server.job;
    const struct pmix_place *here = &job->places[job->here];
    bool yes = true;
    add(facts, PMIX_JOBID, job->name, PMIX_STRING);
    add_number(facts, PMIX_UNIV_SIZE, job->world_size);
    add_number(facts, PMIX_JOB_SIZE, job->world_size);
    add_number(facts, PMIX_APP_SIZE, job->world_size);
    add_number(facts, PMIX_MAX_PROCS, job->world_size);
    add_number(facts, PMIX_LOCAL_SIZE, here->n_ranks);
    add_number(facts, PMIX_NODE_SIZE, here->n_ranks);
    add_number(facts, PMIX_NUM_NODES, job->n_places);
    add_number(facts, PMIX_JOB_NUM_APPS, 1);
    add(facts, PMIX_LOCALLDR, &here->first_rank, PMIX_PROC_RANK);
    add(facts, PMIX_TMPDIR, job->directory, PMIX_STRING);
    add(facts, PMIX_NSDIR, job->directory, PMIX_STRING);
    add(facts, PMIX_TDIR_RMCLEAN, &yes, PMIX_BOOL);
}

/* Registered facts: the job's, then each rank's. */
static int register_job(ty_error *err) {
    const struct pmix_job *job = server.job;
    struct facts facts = {0}; /* taken over by `all` */
    add_job(&facts);
    if (add_maps(&facts) < 0) return ty_fail(err, TY_EUNSUPPORTED, "libpmix cannot name the nodes of the run");
    size_t n = facts.n;
    pmix_info_t *all = NULL;
    PMIX_INFO_CREATE(all, n + job->world_size);
    if (all == NULL) return ty_fail_memory(err);
    memcpy(all, facts.items, n * sizeof *all); /* what they hold goes with them */
    for (uint32_t i = 0; i < job->n_places; i++)
        for (uint32_t local = 0; local < job->places[i].n_ranks; local++)
            fill_rank(&all[n++], &job->places[i], i, local);
    pmix_status_t status =
        PMIx_server_register_nspace(job->name, (int)job->places[job->here].n_ranks, all, n, NULL, NULL);
    PMIX_INFO_FREE(all, n);
    if (status == PMIX_SUCCESS || status == PMIX_OPERATION_SUCCEEDED) return 0;
    return ty_fail(err, TY_EUNSUPPORTED, "libpmix does not take the job: %s", PMIx_Error_string(status));
}

/* -- the start */

/* What a rank of ours has put, for those of other nodes. */
static void on_put(pmix_status_t status, char *bytes, size_t size, void *context) {
    const uint32_t *rank = context;
    if (status == PMIX_SUCCESS) (void)server.job->give(*rank, bytes, size);
}

static int register_ranks(ty_error *err) {
    const struct pmix_job *job = server.job;
    const struct pmix_place *here = &job->places[job->here];
    uint32_t *ranks = calloc(here->n_ranks, sizeof *ranks); /* for the life of the process */
    if (ranks == NULL) return ty_fail_memory(err);
    for (uint32_t i = 0; i < here->n_ranks; i++) {
        pmix_proc_t proc;
        ranks[i] = here->first_rank + i;
        PMIX_LOAD_PROCID(&proc, job->name, ranks[i]);
        pmix_status_t status = PMIx_server_register_client(&proc, geteuid(), getegid(), NULL, NULL, NULL);
        if (status != PMIX_SUCCESS && status != PMIX_OPERATION_SUCCEEDED)
            return ty_fail(err, TY_EUNSUPPORTED, "libpmix does not take rank %u: %s", ranks[i],
                           PMIx_Error_string(status));
        if (job->n_places > 1) (void)PMIx_server_dmodex_request(&proc, on_put, &ranks[i]);
    }
    return 0;
}

/* The variables that the first rank of this node is to find. */
static int name_environment(struct buffer *environment, ty_error *err) {
    pmix_proc_t proc;
    char **list = NULL;
    PMIX_LOAD_PROCID(&proc, server.job->name, server.job->places[server.job->here].first_rank);
    pmix_status_t status = PMIx_server_setup_fork(&proc, &list);
    for (char **item = list; item != NULL && *item != NULL; item++) {
        buffer_append(environment, *item, strlen(*item) + 1);
        free(*item);
    }
    free(list);
    if (environment->failed) return ty_fail_memory(err);
    if (status == PMIX_SUCCESS) return 0;
    return ty_fail(err, TY_EUNSUPPORTED, "libpmix cannot name its variables: %s", PMIx_Error_string(status));
}

static int start(const struct pmix_job *job, struct buffer *environment, ty_error *err) {
    static pmix_server_module_t upcalls = {.client_connected = on_connected,
                                           .client_finalized = on_finalized,
                                           .abort = on_abort,
                                           .fence_nb = on_fence,
                                           .direct_modex = on_direct};
    struct facts facts = {0};
    server.job = job;
    server.connected = calloc(job->places[job->here].n_ranks, sizeof *server.connected);
    if (server.connected == NULL) return ty_fail_memory(err);
    add(&facts, PMIX_SERVER_TMPDIR, job->directory, PMIX_STRING);
    add(&facts, PMIX_SYSTEM_TMPDIR, job->directory, PMIX_STRING);
    add(&facts, PMIX_HOSTNAME, job->places[job->here].name, PMIX_STRING);
    /* A lost client is told at once, not together with all of a second. */
    if (setenv("PMIX_MCA_pmix_event_caching_window", "0", 1) < 0) return ty_fail_memory(err);
    pmix_status_t status = PMIx_server_init(&upcalls, facts.items, facts.n);
    if (status != PMIX_SUCCESS)
        return ty_fail(err, TY_EUNSUPPORTED, "libpmix does not start: %s", PMIx_Error_string(status));
    pmix_status_t lost = PMIX_ERR_LOST_CONNECTION;
    PMIx_Register_event_handler(&lost, 1, NULL, 0, on_lost, NULL, NULL);
    int result = register_job(err);
    if (result == 0) result = register_ranks(err);
    return result < 0 ? result : name_environment(environment, err);
}

static bool has_clients(void) {
    return server.n_connected > 0;
}

/* The end of this process would take the answer along for which the last client waits. */
static void wait_for_clients(void) {
    (void)pthread_mutex_lock(&server.lock);
    while (server.n_connected > 0)
        (void)pthread_cond_wait(&server.left, &server.lock);
    (void)pthread_mutex_unlock(&server.lock);
}

__attribute__((visibility("default"))) const struct pmix_module trainyard_pmix = {
    .build = base_build,
    .start = start,
    .is_needed = has_clients,
    .wait = wait_for_clients,
};
