/* The agents of a run, one a node: started, heard, reaped. Their messages become events of the core, rows of
 * the journal, answers of the store and lines of output; what follows from them is the core's to decide, and
 * act.c tells the agents. When an agent dies before its time, what it left is ended here (sweep.c), and only
 * then does the core hear that the node is lost: another attempt never meets the processes of the one
 * before. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/module.h"
#include "base/str.h"
#include "controller/ty_run.h"
#include "worker/link.h"

/* Numbers on the wire are cast to those of run/. */
_Static_assert((int)WIRE__REPORT__KIND__ALIVE == (int)REPORT_ALIVE, "kinds of reports");
_Static_assert((int)WIRE__STORE_REQUEST__OPERATION__REPORTS == (int)STORE_REPORTS, "operations of the store");
_Static_assert((int)WIRE__ANSWER__STATUS__INVALID == (int)STORE_INVALID, "answers of the store");
_Static_assert((int)WIRE__ANSWER__STATUS__FAILED == (int)STORE_FAILED, "answers of the store");

static const int END_LIMIT_MS = 2000;

/* -- the table of agents */

int agents_make_room(struct ty_run *run, uint32_t max_nodes, size_t max_workers) {
    struct run_agents *agents = &run->agents;
    agents->max = max_nodes;
    agents->peers = calloc(max_nodes, sizeof *agents->peers);
    agents->node_of = calloc(max_workers, sizeof *agents->node_of);
    agents->looked_at = calloc(max_workers, sizeof *agents->looked_at);
    agents->names = hash_create();
    bool made = agents->peers != NULL && agents->node_of != NULL && agents->looked_at != NULL;
    return made && agents->names != NULL ? 0 : -ENOMEM;
}

void agents_free(struct ty_run *run) {
    for (uint32_t node = 0; node < run->agents.n; node++)
        free(run->agents.peers[node].name);
    free(run->agents.peers);
    free(run->agents.node_of);
    free(run->agents.looked_at);
    hash_destroy(run->agents.names);
    buffer_done(&run->agents.replaced);
}

struct peer *agents_add(struct ty_run *run, const char *name) {
    struct run_agents *agents = &run->agents;
    if (agents->n == agents->max) return NULL;
    char *copy = strdup(name);
    struct peer *peer = &agents->peers[agents->n];
    if (copy == NULL || hash_set(agents->names, name, (uintptr_t)peer) < 0) {
        free(copy);
        return NULL;
    }
    *peer = (struct peer){
        .run = run, .node = agents->n++, .node_rank = NODE_UNUSED, .name = copy, .handle = {-1, -1, -1, NULL}};
    return peer;
}

struct peer *agents_find(const struct ty_run *run, const char *name) {
    const uintptr_t *peer = hash_get(run->agents.names, name);
    return peer != NULL ? (struct peer *)*peer : NULL;
}

const char *agents_failed_name(const struct ty_run *run) {
    int node = run->core != NULL ? run_failure(run->core)->node : -1;
    return node < 0 ? NULL : run->agents.peers[node].name;
}

static bool is_copied(const struct ty_run *run) {
    return str_equal(run->request->settings.start_method, "fork");
}

bool agents_rest(const struct ty_run *run) {
    return run->request->settings.keep_agents && run->prepared.engine->rest != NULL && !is_copied(run);
}

bool peer_is_remote(const struct peer *peer) {
    const struct rendezvous *rendezvous = peer->run->prepared.rendezvous;
    return rendezvous != NULL && (peer->adopted || !rendezvous_is_local(rendezvous, peer->name));
}

/* -- what an agent is told */

/* Where memory is short the channel fails, and the node with it: a worker whose answer was lost would wait for
 * ever. */
void peer_answer(void *context, uint32_t node, uint32_t channel, enum store_status status,
                 struct shared *value) {
    struct peer *peer = &((struct ty_run *)context)->agents.peers[node];
    if (peer->channel == NULL) return;
    if (answers_add(&peer->answers, channel, status, value) < 0) channel_fail(peer->channel, -ENOMEM);
}

void agents_flush(struct ty_run *run) {
    for (uint32_t node = 0; node < run->agents.n; node++) {
        struct peer *peer = &run->agents.peers[node];
        if (peer->channel == NULL) continue;
        answers_send(&peer->answers, peer->channel);
        channel_flush(peer->channel);
    }
}

/* The channel changes hands, and the agent is told nothing any more. */
static struct channel *take_channel(struct peer *peer) {
    answers_drop(&peer->answers);
    carried_stop(peer);
    return TAKE(peer->channel);
}

/* What the agent is told from here on leaves when the rows that were taken so far are written. */
void peer_hold(struct peer *peer) {
    const struct records *records = peer->run->records;
    peer->held_for = records_count(records);
    if (peer->channel != NULL && !records_have(records, peer->held_for)) channel_hold(peer->channel);
}

void peer_let_go(struct peer *peer) {
    if (peer->channel != NULL) channel_let_go(peer->channel);
}

/* A message that cannot be sent ends the channel, which loses the node with the reason. */
void peer_send(struct peer *peer, const Wire__Message *message) {
    if (peer->channel != NULL) (void)channel_send(peer->channel, message);
}

void agents_send(void *context, const Wire__Message *message) {
    struct ty_run *run = context;
    for (uint32_t node = 0; node < run->agents.n; node++)
        peer_send(&run->agents.peers[node], message);
}

void peer_send_to_rank(void *context, uint32_t rank, const Wire__Message *message) {
    struct ty_run *run = context;
    if (rank < run_size(run->core)) peer_send(&run->agents.peers[run->agents.node_of[rank]], message);
}

/* -- the end of an agent */

static void tell_stuck(const struct peer *peer, const struct idset *pids) {
    CLEANUP(buffer_done) struct buffer text = {0};
    bool alone = idset_count(pids) == 1;
    idset_format(pids, &text);
    log_error("controller", "node %s: process%s %s %s not end after SIGKILL (stuck in the kernel?)", peer->name,
              alone ? "" : "es", text.failed ? "?" : text.data, alone ? "does" : "do");
    if (run_state_of(peer->run->core) != RUN_ENDED) run_node_unclean(peer->run->core, peer->node);
}

/* Waits for the end of an agent, by force when it takes too long. Its wait status, or 0. One that even KILL
 * does not end, as on storage that hangs, is told and left behind. */
static int reap(struct peer *peer, bool by_force) {
    int status = 0, pid = peer->handle.pid;
    if (pid <= 0) return 0;
    if (!kernel_reap(peer->handle.pidfd, pid, by_force ? 0 : END_LIMIT_MS, &status)) {
        CLEANUP(idset_done) struct idset left = {0};
        (void)idset_add(&left, pid);
        tell_stuck(peer, &left);
    }
    descriptors_close(&peer->handle.pidfd);
    peer->handle = (struct engine_handle){.channel_fd = -1, .pid = -1, .pidfd = -1};
    return status;
}

/* Ends what the agent, which had this pid, left behind. */
static void sweep_after(const struct peer *peer, int pid) {
    const struct ty_run *run = peer->run;
    uint32_t n = run->agents.n;
    size_t workers = run->core != NULL ? run->prepared.plan->n_workers : 0;
    CLEANUP_FREE int *agents = calloc(n, sizeof *agents), *sessions = calloc(workers + 1, sizeof *sessions);
    char token[NODE_TOKEN_SIZE];
    node_token(run->token, peer->node, token);
    struct sweep_scope scope = {.token = token,
                                .since = run->agents.since,
                                .agents = agents,
                                .sessions = sessions != NULL ? sessions : &pid,
                                .n_sessions = 1,
                                .alone = run->request->alone && agents != NULL};
    /* Sessions were led by the agent, which comes first, and by the workers of the node. */
    if (sessions != NULL) sessions[0] = pid;
    for (uint32_t rank = 0; sessions != NULL && rank < workers; rank++)
        if (run->agents.node_of[rank] == peer->node)
            sessions[scope.n_sessions++] = run_worker(run->core, rank)->pid;
    for (uint32_t node = 0; agents != NULL && node < n; node++)
        if (run->agents.peers[node].handle.pid > 0)
            agents[scope.n_agents++] = run->agents.peers[node].handle.pid;
    /* One that could not be reaped keeps its number: it is named in place of the peer's own, which was
     * cleared. */
    bool left_behind = pid > 0 && waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | WNOHANG | WNOWAIT) == 0;
    if (agents != NULL && left_behind) agents[scope.n_agents++] = pid;
    CLEANUP(idset_done) struct idset left = {0};
    if (!sweep_node(&scope, &left)) tell_stuck(peer, &left);
    worker_files_remove(token);
}

/* Here the agent is killed, and what it had started found by its token. Elsewhere nothing can be killed: the
 * node is told to go, and the fence holds up the next attempt until its lease has run out. */
void peer_abandon(struct peer *peer) {
    if (peer_is_remote(peer)) {
        peer->awaited = false;
        if (peer->channel == NULL) return;
        peer->fenced_at = clock_boot() + CHANNEL_FENCED;
        rendezvous_dismiss(peer->run->prepared.rendezvous, peer->name, take_channel(peer),
                           "it did not answer in time");
        return;
    }
    int pid = peer->handle.pid;
    (void)reap(peer, true);
    channel_destroy(take_channel(peer));
    sweep_after(peer, pid);
}

/* The agent sees the end of its channel, and ends by itself; only then is what it left looked for. */
void peer_lose(struct peer *peer) {
    int pid = peer->handle.pid;
    descriptors_close(&peer->handle.pidfd);
    channel_destroy(take_channel(peer));
    if (pid <= 0) return;
    (void)reap(peer, false);
    sweep_after(peer, pid);
}

/* -- what an agent says */

static void name_devices(const struct peer *peer, struct event_node *about) {
    const struct cluster *cluster = peer->run->prepared.cluster;
    if (peer->cluster_node >= cluster->n || !str_equal(cluster->nodes[peer->cluster_node].name, peer->name))
        return; /* another cluster by now */
    const struct node_shape *shape = cluster->nodes[peer->cluster_node].shape;
    about->accelerator_type = shape->accelerator_type;
    for (size_t i = 0; i < shape->n_devices; i++)
        if (str_equal(shape->devices[i].resource, "GPU") && shape->devices[i].uuids != NULL)
            about->uuids =
                (struct event_texts){(const char *const *)shape->devices[i].uuids, shape->devices[i].n};
}

/* How long the Start and the Hello took on their ways is known of both together alone: the clock of the node is
 * known to within half of that. One that may agree with ours is left alone. */
static void compare_clocks(struct peer *peer, const Wire__Hello *hello, struct event_node *about) {
    peer->clock_ahead = 0;
    if (hello->heard <= 0 || hello->said < hello->heard) return;
    nanoseconds there = hello->heard - peer->asked, back = clock_wall() - hello->said;
    nanoseconds ahead = there / 2 - back / 2, unsure = there / 2 + back / 2;
    if (unsure < 0) return; /* ours was set meanwhile */
    about->clock_offset = duration_seconds(ahead);
    about->clock_uncertainty = duration_seconds(unsure);
    if (ahead > unsure || ahead < -unsure) peer->clock_ahead = ahead;
}

/* A time that the peer tells, by our clock. */
static nanoseconds by_our_clock(const struct peer *peer, int64_t time) {
    nanoseconds ours;
    return time > 0 && !__builtin_sub_overflow(time, peer->clock_ahead, &ours) ? ours : time;
}

/* Another build may say anything in the rest of its messages, and is ended. A node that cannot take part, as
 * for want of its program or its devices, says so itself, and goes back to the rendezvous. */
static void on_hello(struct peer *peer, const Wire__Hello *hello) {
    struct ty_run *run = peer->run;
    if (hello->protocol != FRAME_PROTOCOL || strcmp(hello->version, base_build) != 0) {
        CLEANUP(buffer_done) struct buffer why = {0};
        buffer_printf(
            &why,
            "the agent of node %s is of build %.60s, but this is trainyard %s: install both from one build",
            peer->name, hello->version, base_build);
        peer_abandon(peer);
        run_node_refused(run->core, peer->node, why.failed ? "another build" : why.data);
        return;
    }
    bool refused = hello->refusal[0] != '\0';
    const char *words = refused ? hello->refusal : hello->warning;
    CLEANUP(buffer_done) struct buffer said = {0};
    buffer_printf(&said, "node %s: ", peer->name);
    utf8_escape(words, strnlen(words, TY_ERROR_MESSAGE_SIZE), &said);
    if (refused) {
        rendezvous_give_back(run->prepared.rendezvous, peer->name, take_channel(peer), NULL);
        run_node_refused(run->core, peer->node, said.failed ? "a node cannot take part" : said.data);
        return;
    }
    if (*words != '\0' && !said.failed) log_warning("controller", "%s", said.data);
    const struct rendezvous *rendezvous = run->prepared.rendezvous;
    const char *known = rendezvous != NULL ? rendezvous_address_of(rendezvous, peer->name) : NULL;
    (void)snprintf(peer->address, sizeof peer->address, "%s", known != NULL ? known : hello->address);
    struct event_node about = {.name = peer->name,
                               .pid = hello->pid,
                               .address = peer->address,
                               .clock_offset = (double)NAN,
                               .clock_uncertainty = (double)NAN};
    name_devices(peer, &about);
    compare_clocks(peer, hello, &about);
    run_node_up(run->core, peer->node, &about);
}

static void on_usage(struct peer *peer, const Wire__Usage *usage) {
    nanoseconds time = by_our_clock(peer, usage->time);
    if (time <= 0) return;
    usage_take(peer, usage, time);
    faults_take(peer, usage, time);
}

static void on_storage(struct peer *peer, const Wire__Storage *storage) {
    if (storage->apart)
        carried_apart(peer);
    else
        run_storage_note(peer, storage->hangs);
}

static void on_worker_event(struct peer *peer, const Wire__WorkerEvent *event) {
    struct ty_run *run = peer->run;
    nanoseconds time = by_our_clock(peer, event->time);
    switch (event->kind) {
    case WIRE__WORKER_EVENT__KIND__STARTED:
        run_worker_started(run->core, event->rank, event->pid, time);
        carried_started(run);
        input_started(&run->input, event->rank);
        break;
    case WIRE__WORKER_EVENT__KIND__READY:
        run_worker_ready(run->core, event->rank, time);
        break;
    case WIRE__WORKER_EVENT__KIND__RENDEZVOUS:
        run_worker_rendezvous(run->core, event->rank, time);
        break;
    case WIRE__WORKER_EVENT__KIND__HUNG:
        run_worker_hung(run->core, event->rank, event->text, time);
        break;
    case WIRE__WORKER_EVENT__KIND__FAILED:
        events_add_failure(&run->events, run_attempt(run->core), event->rank, event->tail.data,
                           event->tail.len);
        break;
    case WIRE__WORKER_EVENT__KIND__EXITED:
        input_left(&run->input, event->rank);
        /* A scheduler that takes a node down kills its workers, perhaps before their agent: told before the
         * failure is. */
        if (!event->stopped && WIFSIGNALED(event->wait_status) && WTERMSIG(event->wait_status) == SIGKILL)
            (void)scheduler_says(run, peer);
        /* The others are told of a failure by the run. */
        if (event->wait_status == 0 && run->launched.store != NULL)
            store_leave(run->launched.store, event->rank);
        run_worker_exited(run->core, event->rank,
                          &(struct run_exit){.wait_status = event->wait_status,
                                             .stopped = event->stopped,
                                             .cause = event->text,
                                             .tail = event->tail.data,
                                             .tail_size = event->tail.len,
                                             .failed_at = by_our_clock(peer, event->failed_at),
                                             .time = time});
        break;
    case WIRE__WORKER_EVENT__KIND__GONE:
        run_worker_gone(run->core, event->rank, time);
        break;
    case WIRE__WORKER_EVENT__KIND__START_FAILED:
        input_left(&run->input, event->rank);
        run_worker_start_failed(
            run->core, event->rank,
            &(struct run_start_failure){
                .why = event->text, .stopped = event->stopped, .transient = event->may_pass, .time = time});
        break;
    default:
        break;
    }
}

/* A rank waits for a checkpoint that is on record, or was lost. */
static void answer_settled(struct peer *peer, const Wire__Report *report) {
    const char *path = checkpoints_path_of(peer->run->checkpoints, report->number);
    act_ops.answer(peer->run, peer->node, report->channel, report->number, path,
                   path == NULL ? "the controller died meanwhile, and nothing of it is on record" : NULL);
}

/* In an attempt that was adopted agents tell again what may not be on record. A report that is there counts for
 * the core and the store, but is neither written nor shown a second time. Of a checkpoint that is settled only
 * the report is left; a rank that waits for its commit is answered from the record. */
static void on_report(struct peer *peer, const Wire__Report *report) {
    struct ty_run *run = peer->run;
    nanoseconds time = by_our_clock(peer, report->time);
    enum report_kind kind = (enum report_kind)report->kind;
    bool begins = kind == REPORT_METRICS || kind == REPORT_BEGIN;
    run->committing.staged |= kind == REPORT_BEGIN;
    bool settled = adoption_has_settled(run, report->number) && kind != REPORT_LIST && kind != REPORT_ALIVE;
    if (settled) {
        if (kind == REPORT_COMMIT) answer_settled(peer, report);
        if (!begins) return;
        kind = REPORT_METRICS;
    }
    if (begins && adoption_has(run, report->rank, report->number)) {
        store_report(run->launched.store, report->rank);
    } else if (begins) {
        const char *metrics = (const char *)report->metrics.data;
        size_t size = report->metrics.len;
        struct journal_report row = {.attempt = run_attempt(run->core),
                                     .rank = (int)report->rank,
                                     .number = report->number,
                                     .time = time,
                                     .metrics = metrics,
                                     .metrics_size = size};
        records_report(run->records, &row);
        if (run->launched.store != NULL) store_report(run->launched.store, report->rank);
        events_add_report(&run->events, &row, kind == REPORT_BEGIN);
        if (report->rank == 0) {
            buffer_clear(&run->committing.metrics);
            buffer_append(&run->committing.metrics, metrics, size);
            buffer_char(&run->committing.metrics, '\0');
            progress_metrics(&run->output.progress, metrics, size);
        }
        progress_report(&run->output.progress, report->rank, run_size(run->core), time);
    }
    run_report(run->core, &(struct run_report){.rank = report->rank,
                                               .kind = kind,
                                               .number = report->number,
                                               .name = settled ? NULL : report->name,
                                               .files = report->files.data,
                                               .size = report->files.len,
                                               .channel = report->channel});
}

static void arm_store_timer(struct ty_run *run) {
    nanoseconds deadline = store_deadline(run->launched.store);
    if (deadline < 0) return;
    nanoseconds delay = deadline - loop_now(run->loop);
    (void)loop_timer_start(run->loop, &run->agents.store_timer, delay > 0 ? delay : 0);
}

static void on_store_timer(void *context) {
    struct ty_run *run = context;
    if (run->launched.store == NULL) return;
    store_expire(run->launched.store, loop_now(run->loop));
    arm_store_timer(run);
}

static void on_store_request(struct peer *peer, const Wire__StoreRequest *body) {
    struct ty_run *run = peer->run;
    struct store_request request = {
        .operation = (enum store_operation)body->operation,
        .rank = body->rank,
        .node = peer->node,
        .channel = body->channel,
        .key = body->key,
        .value = body->value.data,
        .size = body->value.len,
        .timeout = body->timeout_ms < 0 ? -1 : duration_of_ms(body->timeout_ms),
        .reports = body->reports,
    };
    if (run->launched.store == NULL) return;
    store_ask(run->launched.store, &request, loop_now(run->loop));
    arm_store_timer(run);
}

/* An agent that was asked to stay, and left nothing behind, goes back to its engine. */
static void on_bye(struct peer *peer, const Wire__Bye *bye) {
    struct ty_run *run = peer->run;
    run_node_bye(run->core, peer->node, bye->clean, bye->leftovers);
    if (peer_is_remote(peer) && run_node_state(run->core, peer->node) != NODE_GONE) {
        peer->left_clean = bye->clean; /* it was told to end, by others, and its channel's end is the node's */
        return;
    }
    if (peer_is_remote(peer)) {
        rendezvous_give_back(run->prepared.rendezvous, peer->name, take_channel(peer), NULL);
        return;
    }
    if (!bye->clean || !agents_rest(run)) return;
    peer->handle.channel_fd = channel_release(take_channel(peer));
    run->prepared.engine->rest(&peer->handle);
}

static void on_live(struct peer *peer, const Wire__Live *live) {
    progress_live(&peer->run->output.progress, live->rank, live->stream, live->text.data, live->text.len);
}

static void on_message(void *context, const Wire__Message *message) {
    struct peer *peer = context;
    struct ty_run *run = peer->run;
    switch (message->body_case) {
    case WIRE__MESSAGE__BODY_HELLO:
        on_hello(peer, message->hello);
        break;
    case WIRE__MESSAGE__BODY_EVENTS:
        for (size_t i = 0; i < message->events->n_events; i++)
            on_worker_event(peer, message->events->events[i]);
        break;
    case WIRE__MESSAGE__BODY_REPORTS:
        for (size_t i = 0; i < message->reports->n_reports; i++)
            on_report(peer, message->reports->reports[i]);
        break;
    case WIRE__MESSAGE__BODY_STORE_REQUEST:
        on_store_request(peer, message->store_request);
        break;
    case WIRE__MESSAGE__BODY_STACKS:
        run_node_stacks(run->core, peer->node, message->stacks->frames.data, message->stacks->frames.len);
        break;
    case WIRE__MESSAGE__BODY_LOOK:
        control_socket_take(peer, message->look);
        break;
    case WIRE__MESSAGE__BODY_LEAVING:
        interrupt_node(run, peer->node, message->leaving->signal);
        break;
    case WIRE__MESSAGE__BODY_BYE:
        on_bye(peer, message->bye);
        break;
    case WIRE__MESSAGE__BODY_LOG:
        progress_hide(&run->output.progress);
        log_write((enum log_level)message->log->level, "agent", "%s", message->log->text);
        break;
    case WIRE__MESSAGE__BODY_STORAGE:
        on_storage(peer, message->storage);
        break;
    case WIRE__MESSAGE__BODY_FILE:
        carried_take(peer, message->file);
        break;
    case WIRE__MESSAGE__BODY_FETCH:
        carried_fetch(peer, message->fetch);
        break;
    case WIRE__MESSAGE__BODY_TAKEN:
        carried_taken(peer, message->taken);
        break;
    case WIRE__MESSAGE__BODY_USAGE:
        on_usage(peer, message->usage);
        break;
    case WIRE__MESSAGE__BODY_FED:
        input_taken(&run->input, message->fed);
        break;
    case WIRE__MESSAGE__BODY_LIVE:
        on_live(peer, message->live);
        break;
    default:
        log_warning("controller", "node %s sent a message of an unknown kind", peer->name);
    }
    output_pause_when_full(run);
}

static void on_output(void *context, uint32_t rank, int stream, const uint8_t *bytes, size_t size) {
    output_write(((struct peer *)context)->run, rank, stream, bytes, size);
}

/* Lines that workers of a lost node had begun are not shown any more: nobody will end them. */
static void forget_live(struct peer *peer) {
    struct ty_run *run = peer->run;
    for (uint32_t rank = 0; rank < run_size(run->core); rank++)
        for (uint32_t stream = 1; stream <= 2 && run->agents.node_of[rank] == peer->node; stream++)
            progress_live(&run->output.progress, rank, stream, NULL, 0);
}

/* The workers of a node elsewhere end by themselves: at once when the agent is gone, else when its lease has
 * run out. */
static void lose_remote(struct peer *peer, nanoseconds heard_at, const ty_error *reason) {
    struct ty_run *run = peer->run;
    CLEANUP(buffer_done) struct buffer why = {0};
    bool is_swept = peer->left_clean || peer->adopted; /* of this machine: as of any agent here */
    if (!is_swept) peer->fenced_at = heard_at + CHANNEL_FENCED;
    buffer_printf(&why, "node %s was lost: %s", peer->name,
                  reason->code != 0 ? reason->message : "its agent ended before its time");
    const char *said = scheduler_says(run, peer);
    if (*said != '\0') buffer_printf(&why, "; %s says it is %s", run->prepared.engine->name, said);
    rendezvous_give_back(run->prepared.rendezvous, peer->name, NULL, why.failed ? NULL : why.data);
    if (run_node_state(run->core, peer->node) == NODE_GONE) return;
    run_storage_note(peer, false);
    forget_live(peer);
    (peer->left_clean ? run_node_left : run_node_lost)(run->core, peer->node,
                                                       why.failed ? "a node was lost" : why.data);
}

/* The end of a channel is the end of its agent. The order matters: first the agent is reaped and what it left
 * is ended, then the core hears of the loss, which may begin another attempt. An agent of this machine that has
 * said bye is only reaped. */
static void on_closed(void *context, const ty_error *reason) {
    struct peer *peer = context;
    struct ty_run *run = peer->run;
    CLEANUP(buffer_done) struct buffer why = {0};
    char text[32];
    bool adopted = peer->adopted;
    nanoseconds heard_at = channel_heard_at(peer->channel);
    channel_destroy(take_channel(peer));
    bool gone = run_node_state(run->core, peer->node) == NODE_GONE;
    run->committing.staged |= !gone; /* not all that it was told may have come here */
    if (peer_is_remote(peer)) {
        if (adopted) sweep_after(peer, -1);
        lose_remote(peer, heard_at, reason);
        return;
    }
    int pid = peer->handle.pid;
    int status = reap(peer, false);
    if (gone) return;
    run_storage_note(peer, false); /* nobody would tell its end */
    forget_live(peer);
    sweep_after(peer, pid);
    buffer_printf(&why, "the agent of node %s ", peer->name);
    if (WIFSIGNALED(status)) /* perhaps in the middle of a message */
        buffer_printf(&why, "was killed by %s", str_signal(WTERMSIG(status), text));
    else if (reason->code != 0)
        buffer_printf(&why, "could not be understood: %s", reason->message);
    else
        buffer_printf(&why, "ended with code %d before its time", WEXITSTATUS(status));
    run_node_lost(run->core, peer->node, why.failed ? "its agent ended" : why.data);
}

static void on_drained(void *context) {
    struct peer *peer = context;
    if (peer->channel != NULL) answers_send(&peer->answers, peer->channel);
}

/* -- the beginning of an agent */

static const struct channel_events peer_events = {
    .message = on_message, .output = on_output, .drained = on_drained, .closed = on_closed};

/* What any agent is told of its part, whoever starts it. `log` outlives the message. */
static int describe_part(const struct peer *peer, struct buffer *log, Wire__Start *start) {
    buffer_printf(log, "%s/logs/agent-%s.log", peer->run->path, peer->name);
    start->node = peer->node;
    start->node_name = peer->name;
    start->log_path = log->data;
    return log->failed ? -ENOMEM : 0;
}

/* A node elsewhere that is not there just now (TY_ENODE) is no failure: it stays connecting, and is tried again
 * when some node has joined (on_nodes_changed), as long as the start limit lasts. */
int peer_start(struct peer *peer, ty_error *err) {
    struct ty_run *run = peer->run;
    struct prepared *prepared = &run->prepared;
    peer->adopted = false;
    CLEANUP(buffer_done) struct buffer log = {0};
    Wire__Start start = WIRE__START__INIT;
    const struct engine_agent agent = {.start = &start,
                                       .copied = is_copied(run),
                                       .once = !agents_rest(run),
                                       .rendezvous = prepared->rendezvous};
    if (describe_part(peer, &log, &start) < 0) return ty_fail_memory(err);
    int result = peer_is_remote(peer) ? starting_fill(run, peer, &start, err) : 0;
    peer->asked = clock_wall();
    int lease = prepared->lease == NULL ? -1 : lease_fd(prepared->lease);
    if (result == 0) result = prepared->engine->start_agent(&agent, lease, &peer->handle, err);
    claims_free(start.claims, start.n_claims);
    bool told = peer->awaited;
    peer->awaited = result == TY_ENODE;
    if (peer->awaited && !told)
        log_warning("controller", "waiting a minute at most for node %s to come back", peer->name);
    if (peer->awaited) return 0; /* within the start limit it may join again */
    if (result < 0) return result;
    if (peer->handle.channel != NULL) {
        peer->fenced_at = 0;
        peer->left_clean = false;
        peer->channel = TAKE(peer->handle.channel);
        channel_adopt(peer->channel, &peer_events, peer);
        return 0;
    }
    return channel_create(run->loop, peer->handle.channel_fd, &peer_events, peer, &peer->channel, err);
}

/* Afterwards the peer has a channel, unless its node is lost. */
static void adopt(struct peer *peer) {
    struct ty_run *run = peer->run;
    CLEANUP(buffer_done) struct buffer log = {0};
    Wire__Start start = WIRE__START__INIT;
    if (describe_part(peer, &log, &start) < 0) return;
    start.run = run->name;
    start.adopt = true;
    peer->asked = clock_wall();
    peer->adopted = rendezvous_is_local(run->prepared.rendezvous, peer->name);
    if (rendezvous_adopt(run->prepared.rendezvous, peer->name, &start, &peer->channel, NULL) == 0)
        channel_adopt(peer->channel, &peer_events, peer);
}

/* The channels first: the core's first order to a node may come with the adoption itself, where the run was
 * interrupted meanwhile. A node that did not come along is lost only then, as any. */
void agents_adopt(struct ty_run *run, const struct run_adoption *adoption) {
    struct run_agents *agents = &run->agents;
    for (uint32_t node = 0; node < agents->n; node++)
        if (agents->peers[node].node_rank != NODE_UNUSED) adopt(&agents->peers[node]);
    run_adopt(run->core, adoption);
    for (uint32_t node = 0; node < agents->n; node++) {
        struct peer *peer = &agents->peers[node];
        ty_error why = {0};
        if (peer->node_rank == NODE_UNUSED || peer->channel != NULL) continue;
        peer->fenced_at = clock_boot() + CHANNEL_FENCED;
        (void)ty_fail(&why, TY_ENODE, "node %s, whose workers had gone on, is gone", peer->name);
        run_node_lost(run->core, node, why.message);
    }
}

/* Nothing is left on the nodes that an earlier controller's last attempt had workers on: those elsewhere have
 * joined again. The plan lists nodes as well that were lost before that attempt. */
static bool past_is_gone(const struct ty_run *run) {
    const struct rendezvous *rendezvous = run->prepared.rendezvous;
    const struct event_plan *plan = &run->replay.plan.event.of.plan;
    bool gone = rendezvous != NULL && plan->ranks.n > 0;
    for (size_t rank = 0; rank < plan->ranks.n && gone; rank++) {
        uint64_t node = plan->ranks.items[rank];
        const char *name = node < plan->nodes.n ? plan->nodes.items[node] : "";
        gone = rendezvous_is_local(rendezvous, name) ? !rendezvous_has_left(rendezvous)
                                                     : rendezvous_is_swept(rendezvous, name);
    }
    return gone;
}

nanoseconds agents_fence(struct ty_run *run) {
    const struct rendezvous *rendezvous = run->prepared.rendezvous;
    nanoseconds now = clock_boot(), most = 0;
    if (run->past.fenced_at > 0 && run->core == NULL && !past_is_gone(run)) most = run->past.fenced_at - now;
    for (uint32_t node = 0; node < run->agents.n; node++) {
        const struct peer *peer = &run->agents.peers[node];
        bool proven = peer->fenced_at > 0 && rendezvous_is_swept(rendezvous, peer->name);
        nanoseconds left = proven || peer->fenced_at == 0 ? 0 : peer->fenced_at - now;
        if (left > most) most = left;
    }
    run->agents.fencing = most > 0;
    if (most > 0) (void)loop_timer_start(run->loop, &run->agents.fence_timer, most);
    return most;
}

/* A node has joined, perhaps again, or left before it was started. */
static void on_nodes_changed(void *context) {
    struct ty_run *run = context;
    for (uint32_t node = 0; run->core != NULL && node < run->agents.n; node++) {
        struct peer *peer = &run->agents.peers[node];
        ty_error err = {0};
        if (!peer->awaited || run_node_state(run->core, node) != NODE_CONNECTING) continue;
        if (peer_start(peer, &err) < 0) run_node_lost(run->core, node, err.message);
    }
    act_fenced(run);
    if (run->core != NULL) run_room_changed(run->core);
}

void agents_open(struct ty_run *run) {
    run->agents.fence_timer = (struct loop_timer){.callback = act_fenced, .context = run};
    if (run->prepared.rendezvous != NULL) rendezvous_listen(run->prepared.rendezvous, on_nodes_changed, run);
    run->agents.store_timer = (struct loop_timer){.callback = on_store_timer, .context = run};
}

/* Agents that have said bye were let go of; others see the end of their channel. Those of this machine are
 * waited for, so that no child of this process is left. */
void agents_close(struct ty_run *run) {
    for (uint32_t node = 0; node < run->agents.n; node++) {
        struct peer *peer = &run->agents.peers[node];
        if (peer->channel != NULL && peer_is_remote(peer)) /* else its workers might go on */
            rendezvous_dismiss(run->prepared.rendezvous, peer->name, take_channel(peer), "the run is over");
        channel_destroy(take_channel(peer));
        (void)reap(peer, false);
    }
    loop_timer_stop(run->loop, &run->agents.store_timer);
    loop_timer_stop(run->loop, &run->agents.fence_timer);
    scheduler_close(run);
}
