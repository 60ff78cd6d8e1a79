/* The last attempt of a controller that died: whether it goes on, and how it is taken over.
 *
 * It does where all of its nodes are back, each with all of its workers and with whatever may not be on record,
 * and where it is the work that is asked for now. All that is needed for that was told with the joins; nothing
 * has been touched when it is decided. Else those who came to be adopted are sent away, and the run begins
 * anew. What an agent tells again is counted once: on_report in agents.c passes over what is on record. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/str.h"
#include "controller/ty_run.h"

/* -- what workers are to do */

static void add_words(struct buffer *out, const char *const *words) {
    for (; words != NULL && *words != NULL; words++)
        buffer_append(out, *words, strlen(*words) + 1);
    buffer_char(out, '\0');
}

/* A sum over all that says what workers do: words, paths and the payload. Settings that another controller may
 * change (limits, what is kept) are no part of it. */
void adoption_name_work(const struct ty_run *run, const char *directory, struct digest *digest) {
    const struct run_request *request = run->request;
    CLEANUP(buffer_done) struct buffer work = {0};
    const char *const others[] = {request->executable != NULL ? request->executable : "", directory,
                                  request->settings.start_method != NULL ? request->settings.start_method : "",
                                  NULL};
    add_words(&work, request->argv);
    add_words(&work, request->template_argv);
    add_words(&work, others);
    buffer_append(&work, request->payload, request->payload_size);
    *digest = (struct digest){0};
    if (!work.failed) bytes_digest_memory(work.data, work.size, digest);
}

/* -- what is on record */

int adoption_read(struct ty_run *run, struct journal *journal, ty_error *err) {
    struct adoption *adoption = &run->adoption;
    const struct prepared *prepared = &run->prepared;
    size_t n = run->replay.n_workers;
    bool adrift = false;
    for (size_t i = 0; prepared->rendezvous != NULL && i < prepared->cluster->n; i++)
        adrift |= rendezvous_adrift(prepared->rendezvous, prepared->cluster->nodes[i].name) != NULL;
    if (!adrift) return 0;
    adoption->recorded = calloc(n + 1, sizeof *adoption->recorded);
    if (adoption->recorded == NULL) return ty_fail_memory(err);
    adoption->n_recorded = n;
    return journal_last_reports(journal, run->past.attempts, adoption->recorded, n, err);
}

/* -- whether it goes on; NULL, or why not */

static const char *name_of(const struct prepared *prepared, uint32_t rank) {
    const struct plan *plan = prepared->plan;
    return prepared->cluster->nodes[plan->node_order[plan->workers[rank].node_rank]].name;
}

/* The plan of the attempt is on record. */
static bool is_same_plan(const struct ty_run *run) {
    const struct event_plan *told = &run->replay.plan.event.of.plan;
    const struct prepared *prepared = &run->prepared;
    size_t n = prepared->plan->n_workers;
    if (told->ranks.n != n || told->devices.n != n) return false;
    for (uint32_t rank = 0; rank < n; rank++) {
        CLEANUP(buffer_done) struct buffer devices = {0};
        uint32_t node = told->ranks.items[rank];
        plan_worker_devices(prepared->plan, prepared->cluster, rank, false, &devices);
        buffer_char(&devices, '\0');
        if (node >= told->nodes.n || !str_equal(told->nodes.items[node], name_of(prepared, rank))) return false;
        if (devices.failed || !str_equal(told->devices.items[rank], devices.data)) return false;
    }
    return true;
}

/* The token of the run, behind which a node has its number: that one may have changed where nodes were lost and
 * others took their places, but of this machine it tells what the node leaves. */
static bool take_token(const char *told, uint32_t node, bool local, char token[33]) {
    char whole[NODE_TOKEN_SIZE], run[33] = "";
    if (strlen(told) < 34 || told[32] != '-' || told[33 + strspn(told + 33, "0123456789")] != '\0')
        return false;
    memcpy(run, told, 32);
    node_token(run, node, whole);
    if ((local && !str_equal(whole, told)) || (token[0] != '\0' && strcmp(token, run) != 0)) return false;
    memcpy(token, run, sizeof run);
    return true;
}

/* What is found out about the attempt on the way through the nodes; its result is the adoption itself. */
struct finding {
    struct ty_run *run;
    struct adoption *adoption;
    char token[33];
    struct digest work;
    uint64_t dropped;    /* the most of any rank */
    uint64_t unfinished; /* the least; 0: none */
    uint64_t gathers;    /* that each rank has had an answer of: the same for all, or a gather was cut in two */
    uint32_t n_ranks;    /* that were found */
};

/* Its reports must meet: what its agent has dropped is on record, so that what it still keeps begins at the
 * latest where the record ends. A worker that is on record as ended counts as ready, since its agent tells its
 * end again. */
static const char *find_rank(struct finding *finding, const Wire__AdriftWorker *told, const char *node) {
    struct ty_run *run = finding->run;
    struct adoption *adoption = finding->adoption;
    if (told->rank >= adoption->n || told->rank >= adoption->n_recorded ||
        !str_equal(name_of(&run->prepared, told->rank), node))
        return "its ranks are on other nodes now";
    struct run_worker *worker = &adoption->workers[told->rank];
    if (worker->state != WORKER_PLANNED) return "a rank is told of twice";
    uint64_t *recorded = &adoption->recorded[told->rank];
    if (*recorded < adoption->report_base) *recorded = adoption->report_base;
    if (told->dropped > *recorded) return "reports are lost that were not on record";
    bool known = told->rank < run->replay.n_workers;
    const struct replay_worker *past = known ? &run->replay.workers[told->rank] : NULL;
    worker->state = past == NULL || past->state < WORKER_LAUNCHED ? WORKER_LAUNCHED
                    : past->state > WORKER_READY                  ? WORKER_READY
                                                                  : past->state;
    worker->exited = past != NULL && past->state > WORKER_READY;
    worker->pid = past != NULL ? (int)past->pid : 0;
    worker->reports = told->dropped;
    if (told->dropped > finding->dropped) finding->dropped = told->dropped;
    bool earlier = finding->unfinished == 0 || told->unfinished < finding->unfinished;
    if (told->unfinished > 0 && earlier) finding->unfinished = told->unfinished;
    if (finding->n_ranks++ > 0 && told->gathers != finding->gathers)
        return "some ranks lack what others gathered";
    finding->gathers = told->gathers;
    return NULL;
}

/* Values are kept with the adoption, as what becomes of them is known when all have told theirs. Of a key that
 * several nodes speak of the sums are added up; values must be the same, as which came last is not known. */
static const char *find_value(struct adoption *adoption, const Wire__AdriftValue *told) {
    const uintptr_t *index = hash_get(adoption->keys, told->key);
    if (index == NULL) {
        struct adopted_value value = {.key = strdup(told->key),
                                      .sum = told->sum,
                                      .value = told->added ? NULL : malloc(told->value.len + 1)};
        if (value.key == NULL || (!told->added && value.value == NULL) ||
            ARRAY_GROW(adoption->values, adoption->n_values) < 0 ||
            hash_set(adoption->keys, told->key, adoption->n_values) < 0) {
            free(value.key);
            free(value.value);
            return "memory is short";
        }
        if (!told->added && told->value.len > 0) memcpy(value.value, told->value.data, told->value.len);
        value.size = told->value.len;
        adoption->values[adoption->n_values++] = value;
        return NULL;
    }
    struct adopted_value *value = &adoption->values[*index];
    bool added = value->value == NULL;
    if (added && told->added && !__builtin_add_overflow(value->sum, told->sum, &value->sum)) return NULL;
    if (!added && !told->added && value->size == told->value.len &&
        (value->size == 0 || memcmp(value->value, told->value.data, value->size) == 0))
        return NULL;
    return "values of the store were set by several nodes";
}

/* Why this node's workers cannot go on, in words for the user; NULL: they can, and what they tell is
 * gathered. */
static const char *find_node(struct finding *finding, uint32_t node_rank) {
    struct ty_run *run = finding->run;
    const struct prepared *prepared = &run->prepared;
    const char *name = prepared->cluster->nodes[prepared->plan->node_order[node_rank]].name;
    const Wire__Adrift *told = rendezvous_adrift(prepared->rendezvous, name);
    const char *why = NULL;
    if (told == NULL) return "a node of it has come back without its workers";
    if (!str_equal(told->run, run->name) || told->attempt != (uint32_t)finding->adoption->attempt ||
        !take_token(told->token, node_rank, rendezvous_is_local(prepared->rendezvous, name), finding->token))
        return "its nodes have workers of another attempt";
    if (!str_equal(told->work, finding->work.xxh3)) return "its command, or what it is to do, is another now";
    finding->adoption->report_base = told->report_base;
    for (size_t i = 0; i < told->n_workers && why == NULL; i++)
        why = find_rank(finding, told->workers[i], name);
    for (size_t i = 0; i < told->n_values && why == NULL; i++)
        why = find_value(finding->adoption, told->values[i]);
    return why;
}

/* The same of all nodes. Whatever differs from what is on record speaks against it: workers that go on beside a
 * plan, a command or a checkpoint that is another one would not be what the journal says that they are. */
static const char *find_all(struct finding *finding) {
    struct ty_run *run = finding->run;
    struct adoption *adoption = finding->adoption;
    const struct run_replay *replay = &run->replay;
    const struct ty_attempt_info *last =
        replay->n_attempts > 0 ? &replay->attempts[replay->n_attempts - 1] : NULL;
    char directory[4096];
    const char *why = NULL;
    if (last == NULL || last->attempt != run->past.attempts || !str_equal(last->outcome, "died"))
        return "the last attempt on record has ended";
    if (!is_same_plan(run)) return "its workers are placed in another way now";
    if (file_working_directory(directory, sizeof directory, NULL) < 0) return "there is no working directory";
    adoption_name_work(run, directory, &finding->work);
    adoption->attempt = run->past.attempts;
    adoption->n = (uint32_t)run->prepared.plan->n_workers;
    adoption->workers = calloc(adoption->n, sizeof *adoption->workers);
    adoption->keys = hash_create();
    if (adoption->workers == NULL || adoption->keys == NULL) return "memory is short";
    for (uint32_t node = 0; node < run->prepared.plan->n_nodes_used && why == NULL; node++)
        why = find_node(finding, node);
    if (why != NULL) return why;
    if (finding->n_ranks < adoption->n) return "a rank of it is not there";
    adoption->settled = checkpoints_last_number(run->checkpoints);
    if (finding->dropped > adoption->settled) adoption->settled = finding->dropped;
    if (finding->unfinished > 0 && finding->unfinished <= finding->dropped)
        return "a checkpoint that is being written cannot be told again";
    return NULL;
}

bool adoption_find(struct ty_run *run) {
    struct finding finding = {.run = run, .adoption = &run->adoption};
    if (run->adoption.recorded == NULL) return false;
    const char *why = find_all(&finding);
    if (why == NULL) {
        memcpy(run->token, finding.token, sizeof finding.token);
        run->adoption.found = true;
        return true;
    }
    log_warning("controller", "the workers of attempt %d have gone on, but are ended: %s", run->past.attempts,
                why);
    adoption_done(run);
    return false;
}

void adoption_done(struct ty_run *run) {
    struct adoption *adoption = &run->adoption;
    for (size_t i = 0; i < adoption->n_values; i++) {
        free(adoption->values[i].key);
        free(adoption->values[i].value);
    }
    free(adoption->values);
    free(adoption->workers);
    free(adoption->recorded);
    hash_destroy(adoption->keys);
    *adoption = (struct adoption){0};
}

/* -- taken over */

/* Sums become text again, as the store has them. Reports count from the base on, as those of a new attempt. */
static int open_store(struct ty_run *run, ty_error *err) {
    struct adoption *adoption = &run->adoption;
    run->launched.store = store_create(adoption->n, &run->launched.store_bytes, peer_answer, run);
    if (run->launched.store == NULL) return ty_fail_memory(err);
    for (size_t i = 0; i < adoption->n_values; i++) {
        const struct adopted_value *value = &adoption->values[i];
        char sum[32];
        int size = snprintf(sum, sizeof sum, "%lld", (long long)value->sum);
        bool added = value->value == NULL;
        if (store_put(run->launched.store, value->key, added ? sum : value->value,
                      added ? (size_t)size : value->size) < 0)
            return ty_fail_memory(err);
    }
    for (uint32_t rank = 0; rank < adoption->n; rank++)
        store_put_reports(run->launched.store, rank, adoption->workers[rank].reports - adoption->report_base);
    return 0;
}

/* As make_shared in act.c begins an attempt of its own, but for the launch, which the workers have had. */
int adoption_begin(struct ty_run *run, ty_error *err) {
    struct adoption *adoption = &run->adoption;
    int result = open_store(run, err);
    if (result < 0) return result;
    run->launched.at = clock_wall();
    run->launched.attempt = adoption->attempt;
    run->committing.staged = true; /* the controller before this one was told */
    const struct run_adoption taken = {.report_base = adoption->report_base, .workers = adoption->workers};
    log_warning("controller", "attempt %d goes on: its %u workers had gone on without a controller",
                adoption->attempt, adoption->n);
    input_begin(&run->input, adoption->n, adoption->attempt);
    stall_watch(run, run->request->settings.hang_timeout);
    chaos_start(run);
    scheduler_open(run);
    agents_adopt(run, &taken);
    rendezvous_send_away(run->prepared.rendezvous); /* a node that is lost from now on is not adopted again */
    return 0;
}

bool adoption_has(const struct ty_run *run, uint32_t rank, uint64_t number) {
    const struct adoption *adoption = &run->adoption;
    return adoption->found && rank < adoption->n && run_attempt(run->core) == adoption->attempt &&
           number <= adoption->recorded[rank];
}

bool adoption_has_settled(const struct ty_run *run, uint64_t number) {
    const struct adoption *adoption = &run->adoption;
    return adoption->found && run_attempt(run->core) == adoption->attempt && number <= adoption->settled;
}
