/* Agents: started, heard, reaped. Their messages become events of run/, rows of the journal, answers of the
 * store, lines of output. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/build.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/str.h"
#include "controller/drive_internal.h"
#include "controller/sweep.h"

/* Numbers on the wire are cast to those of run/. */
_Static_assert((int)WIRE__REPORT__KIND__ALIVE == (int)REPORT_ALIVE, "kinds of reports");
_Static_assert((int)WIRE__STORE_REQUEST__OPERATION__FORGET == (int)STORE_FORGET, "operations of the store");
_Static_assert((int)WIRE__ANSWER__STATUS__INVALID == (int)STORE_INVALID, "answers of the store");
_Static_assert((int)WIRE__ANSWER__STATUS__FAILED == (int)STORE_FAILED, "answers of the store");

static const int END_LIMIT_MS = 2000;

void peer_answer(void *context, uint32_t node, uint32_t channel, enum store_status status,
                 struct shared *value) {
    struct peer *peer = &((struct drive *)context)->peers[node];
    if (peer->channel == NULL) return;
    if (answers_add(&peer->answers, channel, status, value) < 0)
        channel_fail(peer->channel, -ENOMEM); /* the worker would wait for ever */
}

void peer_flush(struct peer *peer) {
    if (peer->channel == NULL) return;
    answers_send(&peer->answers, peer->channel);
    channel_flush(peer->channel);
}

/* Nothing is said to the agent any more. */
static struct channel *take_channel(struct peer *peer) {
    answers_drop(&peer->answers);
    return TAKE(peer->channel);
}

void peer_hold(struct peer *peer) {
    const struct records *records = peer->drive->config->records;
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

static void tell_stuck(const struct drive *drive, uint32_t node, const struct idset *pids) {
    CLEANUP(buffer_done) struct buffer text = {0};
    bool alone = idset_count(pids) == 1;
    idset_format(pids, &text);
    log_error("controller", "node %s: process%s %s %s not end after SIGKILL (stuck in the kernel?)",
              drive_node_name(drive, node), alone ? "" : "es", text.failed ? "?" : text.data,
              alone ? "does" : "do");
    if (run_state_of(drive->run) != RUN_ENDED) run_node_unclean(drive->run, node);
}

/* Waits for the end of an agent, by force when it takes too long. Its wait status, or 0. One that even KILL
 * does not end, as on storage that hangs, is told and left behind. */
int peer_reap(struct peer *peer, bool by_force) {
    int status = 0, pid = peer->handle.pid;
    if (pid <= 0) return 0;
    if (!kernel_reap(peer->handle.pidfd, pid, by_force ? 0 : END_LIMIT_MS, &status)) {
        CLEANUP(idset_done) struct idset left = {0};
        (void)idset_add(&left, pid);
        tell_stuck(peer->drive, peer->node, &left);
    }
    if (peer->handle.pidfd >= 0) (void)close(peer->handle.pidfd);
    peer->handle = (struct engine_handle){-1, -1, -1};
    return status;
}

/* A child that could not be reaped keeps its number. */
static bool is_left(int pid) {
    return pid > 0 && waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* Ends what the agent, which had this pid, left behind. */
static void sweep_after(const struct peer *peer, int pid) {
    const struct drive *drive = peer->drive;
    uint32_t n = drive->n_peers;
    CLEANUP_FREE int *agents = calloc(n, sizeof *agents);
    char token[NODE_TOKEN_SIZE];
    node_token(drive->token, peer->node, token);
    struct sweep_scope scope = {.token = token, .agent = pid, .since = drive->since, .agents = agents};
    for (uint32_t node = 0; agents != NULL && node < n; node++)
        if (drive->peers[node].handle.pid > 0) agents[scope.n_agents++] = drive->peers[node].handle.pid;
    if (agents != NULL && is_left(pid))
        agents[scope.n_agents++] = pid; /* in place of its own, which was cleared */
    scope.alone = drive->config->request->alone && agents != NULL;
    CLEANUP(idset_done) struct idset left = {0};
    if (!sweep_node(&scope, &left)) tell_stuck(drive, peer->node, &left);
}

void peer_abandon(struct peer *peer) {
    int pid = peer->handle.pid;
    (void)peer_reap(peer, true);
    channel_destroy(take_channel(peer));
    sweep_after(peer, pid);
}

void peer_lose(struct peer *peer) {
    int pid = peer->handle.pid;
    peer->handle.pidfd = -1;
    channel_destroy(take_channel(peer));
    if (pid <= 0) return;
    (void)peer_reap(peer, false);
    sweep_after(peer, pid);
}

static void on_hello(struct peer *peer, const Wire__Hello *hello) {
    struct drive *drive = peer->drive;
    if (hello->protocol != FRAME_PROTOCOL || strcmp(hello->version, base_build) != 0) {
        struct buffer why = {0};
        buffer_printf(
            &why,
            "the agent of node %s is of build %.60s, but this is trainyard %s: install both from one build",
            drive_node_name(drive, peer->node), hello->version, base_build);
        peer_abandon(peer);
        run_node_refused(drive->run, peer->node, why.failed ? "another build" : why.data);
        buffer_done(&why);
        return;
    }
    (void)snprintf(peer->address, sizeof peer->address, "%s", hello->address);
    peer->port = (uint16_t)hello->port;
    struct buffer data = {0};
    buffer_text(&data, "{\"name\": ");
    buffer_json_string(&data, drive_node_name(drive, peer->node), strlen(drive_node_name(drive, peer->node)));
    buffer_printf(&data, ", \"pid\": %d, \"address\": \"%s\", \"port\": %u}", hello->pid, peer->address,
                  peer->port);
    run_node_up(drive->run, peer->node, data.failed ? NULL : data.data);
    buffer_done(&data);
}

static void on_worker_event(struct drive *drive, const Wire__WorkerEvent *event) {
    switch (event->kind) {
    case WIRE__WORKER_EVENT__KIND__STARTED:
        run_worker_started(drive->run, event->rank, event->pid, event->time);
        break;
    case WIRE__WORKER_EVENT__KIND__READY:
        run_worker_ready(drive->run, event->rank, event->time);
        break;
    case WIRE__WORKER_EVENT__KIND__RENDEZVOUS:
        run_worker_rendezvous(drive->run, event->rank, event->time);
        break;
    case WIRE__WORKER_EVENT__KIND__HUNG:
        run_worker_hung(drive->run, event->rank, event->text, event->time);
        break;
    case WIRE__WORKER_EVENT__KIND__FAILED:
        events_add_failure(drive->config->events, run_attempt(drive->run), event->rank, event->tail.data,
                           event->tail.len);
        break;
    case WIRE__WORKER_EVENT__KIND__EXITED:
        /* The others are told of a failure by the run. */
        if (event->wait_status == 0 && drive->store != NULL) store_leave(drive->store, event->rank);
        run_worker_exited(drive->run, event->rank,
                          &(struct run_exit){.wait_status = event->wait_status,
                                             .stopped = event->stopped,
                                             .cause = event->text,
                                             .tail = event->tail.data,
                                             .tail_size = event->tail.len,
                                             .time = event->time});
        break;
    case WIRE__WORKER_EVENT__KIND__GONE:
        run_worker_gone(drive->run, event->rank, event->time);
        break;
    case WIRE__WORKER_EVENT__KIND__START_FAILED:
        run_worker_start_failed(drive->run, event->rank,
                                &(struct run_start_failure){.why = event->text,
                                                            .stopped = event->stopped,
                                                            .transient = event->may_pass,
                                                            .time = event->time});
        break;
    default:
        break;
    }
}

static void keep_metrics(struct drive *drive, const ProtobufCBinaryData *metrics) {
    buffer_clear(&drive->metrics);
    buffer_append(&drive->metrics, metrics->data, metrics->len);
    buffer_char(&drive->metrics, '\0');
    progress_metrics(&drive->progress, (const char *)metrics->data, metrics->len);
}

static void on_report(struct drive *drive, const Wire__Report *report) {
    enum report_kind kind = (enum report_kind)report->kind;
    if (kind == REPORT_METRICS || kind == REPORT_BEGIN) {
        struct journal_report row = {run_attempt(drive->run),
                                     (int)report->rank,
                                     report->number,
                                     report->time,
                                     (const char *)report->metrics.data,
                                     report->metrics.len};
        records_report(drive->config->records, &row);
        events_add_report(drive->config->events, &row, kind == REPORT_BEGIN);
        if (report->rank == 0) keep_metrics(drive, &report->metrics);
        progress_report(&drive->progress, report->rank, run_size(drive->run), report->time);
    }
    run_report(drive->run, &(struct run_report){.rank = report->rank,
                                                .kind = kind,
                                                .number = report->number,
                                                .name = report->name,
                                                .files = report->files.data,
                                                .size = report->files.len,
                                                .channel = report->channel});
}

static void arm_store_timer(struct drive *drive) {
    nanoseconds deadline = store_deadline(drive->store);
    if (deadline < 0) return;
    nanoseconds delay = deadline - loop_now(drive->loop);
    (void)loop_timer_start(drive->loop, &drive->store_timer, delay > 0 ? delay : 0);
}

void peer_on_store_timer(void *context) {
    struct drive *drive = context;
    if (drive->store == NULL) return;
    store_expire(drive->store, loop_now(drive->loop));
    arm_store_timer(drive);
}

static void on_store_request(struct peer *peer, const Wire__StoreRequest *body) {
    struct drive *drive = peer->drive;
    struct store_request request = {
        .operation = (enum store_operation)body->operation,
        .rank = body->rank,
        .node = peer->node,
        .channel = body->channel,
        .key = body->key,
        .value = body->value.data,
        .size = body->value.len,
        .timeout = body->timeout_ms < 0 ? -1 : duration_of_ms(body->timeout_ms),
    };
    if (drive->store == NULL) return;
    store_ask(drive->store, &request, loop_now(drive->loop));
    arm_store_timer(drive);
}

/* An agent that was asked to stay, and left nothing behind, goes back to its engine. */
static void on_bye(struct peer *peer, const Wire__Bye *bye) {
    struct drive *drive = peer->drive;
    run_node_bye(drive->run, peer->node, bye->clean, bye->leftovers);
    if (!bye->clean || !drive_keeps_agents(drive)) return;
    peer->handle.channel_fd = channel_release(take_channel(peer));
    drive->config->prepared->engine->rest(&peer->handle);
}

static void on_log(struct drive *drive, const Wire__Log *log) {
    progress_hide(&drive->progress);
    log_write((enum log_level)log->level, "agent", "%s", log->text);
}

/* As long as the logs of any node hang the storage is kept clear of. */
static void hold_storage(struct drive *drive) {
    drive->held = false;
    for (uint32_t node = 0; node < drive->n_peers; node++)
        drive->held |= drive->peers[node].storage_hangs;
    for (size_t i = 0; i < ARRAY_SIZE(drive->watches); i++)
        storage_hold(drive->watches[i].storage, drive->held);
}

static void note_storage(struct peer *peer, bool hangs) {
    peer->storage_hangs = hangs;
    hold_storage(peer->drive);
}

void peer_forget_storage(struct drive *drive) {
    for (uint32_t node = 0; node < drive->n_peers; node++)
        drive->peers[node].storage_hangs = false;
    hold_storage(drive);
}

static bool is_full(const struct drive *drive) {
    return sink_full(&drive->output[0]) || sink_full(&drive->output[1]) || events_full(drive->config->events);
}

/* Nothing is lost: what is not read now waits with the agents. A run that is stopped wants to hear of its
 * workers' end. */
static bool is_stuffed(const struct drive *drive) {
    return records_full(drive->config->records) && drive->interrupted == 0;
}

static void pause_peers(struct drive *drive, bool paused) {
    drive->paused = paused;
    for (uint32_t node = 0; node < drive->n_peers; node++)
        if (drive->peers[node].channel != NULL) channel_pause(drive->peers[node].channel, paused);
}

static void on_message(void *context, const Wire__Message *message) {
    struct peer *peer = context;
    struct drive *drive = peer->drive;
    switch (message->body_case) {
    case WIRE__MESSAGE__BODY_HELLO:
        on_hello(peer, message->hello);
        break;
    case WIRE__MESSAGE__BODY_EVENTS:
        for (size_t i = 0; i < message->events->n_events; i++)
            on_worker_event(drive, message->events->events[i]);
        break;
    case WIRE__MESSAGE__BODY_REPORTS:
        for (size_t i = 0; i < message->reports->n_reports; i++)
            on_report(drive, message->reports->reports[i]);
        break;
    case WIRE__MESSAGE__BODY_STORE_REQUEST:
        on_store_request(peer, message->store_request);
        break;
    case WIRE__MESSAGE__BODY_STACKS:
        run_node_stacks(drive->run, peer->node, message->stacks->frames.data, message->stacks->frames.len);
        break;
    case WIRE__MESSAGE__BODY_LEAVING:
        preempt_node(peer->drive, peer->node, message->leaving->signal);
        break;
    case WIRE__MESSAGE__BODY_BYE:
        on_bye(peer, message->bye);
        break;
    case WIRE__MESSAGE__BODY_LOG:
        on_log(drive, message->log);
        break;
    case WIRE__MESSAGE__BODY_STORAGE:
        note_storage(peer, message->storage->hangs);
        break;
    default:
        log_warning("controller", "node %s sent a message of an unknown kind",
                    drive_node_name(drive, peer->node));
    }
    if (events_full(drive->config->events) || is_stuffed(drive)) pause_peers(drive, true);
}

/* Who goes away knows it; a full disk is told once. Nothing is lost: the logs have all. */
static void tell_output_error(struct drive *drive, const struct sink *sink) {
    if (sink->error == 0 || sink->error == EPIPE || sink->error == ECANCELED || drive->output_told) return;
    drive->output_told = true;
    log_warning("controller", "cannot write the workers' output: %s; it is in %s/logs", strerror(sink->error),
                drive->config->path);
}

void peer_tell_dropped(const struct drive *drive) {
    log_warning("controller", "nobody takes the workers' output: the rest of it is only in %s/logs",
                drive->config->path);
}

bool peer_drop_output(struct drive *drive) {
    if (!is_full(drive)) return false;
    sink_discard(&drive->output[0]);
    sink_discard(&drive->output[1]);
    events_drop_output(drive->config->events);
    pause_peers(drive, false);
    peer_tell_dropped(drive);
    return true;
}

static void on_output(void *context, uint32_t rank, int stream, const uint8_t *bytes, size_t size) {
    struct drive *drive = ((struct peer *)context)->drive;
    struct sink *sink = &drive->output[stream == 2];
    events_add_output(drive->config->events, rank, stream, bytes, size);
    if (drive->config->request->settings.output != OUTPUT_EVENTS) {
        progress_hide(&drive->progress);
        sink_write(sink, bytes, size);
        tell_output_error(drive, sink);
    }
    if (is_full(drive)) pause_peers(drive, true);
}

void peer_on_drained(void *context) {
    struct drive *drive = context;
    if (!is_full(drive) && !is_stuffed(drive)) pause_peers(drive, false);
}

static void describe_agent_end(const struct drive *drive, uint32_t node, int status, const ty_error *reason,
                               struct buffer *out) {
    char text[32];
    buffer_printf(out, "the agent of node %s ", drive_node_name(drive, node));
    if (WIFSIGNALED(status)) /* perhaps in the middle of a message */
        buffer_printf(out, "was killed by %s", str_signal(WTERMSIG(status), text));
    else if (reason->code != 0)
        buffer_printf(out, "could not be understood: %s", reason->message);
    else
        buffer_printf(out, "ended with code %d before its time", WEXITSTATUS(status));
}

static void on_closed(void *context, const ty_error *reason) {
    struct peer *peer = context;
    struct drive *drive = peer->drive;
    struct buffer why = {0};
    channel_destroy(take_channel(peer));
    bool gone = run_node_state(drive->run, peer->node) == NODE_GONE;
    int pid = peer->handle.pid;
    int status = peer_reap(peer, false);
    if (gone) return;
    note_storage(peer, false); /* nobody would tell its end */
    sweep_after(peer, pid);
    describe_agent_end(drive, peer->node, status, reason, &why);
    run_node_lost(drive->run, peer->node, why.failed ? "its agent ended" : why.data);
    buffer_done(&why);
}

static void on_drained(void *context) {
    struct peer *peer = context;
    if (peer->channel != NULL) answers_send(&peer->answers, peer->channel);
}

static const struct channel_events peer_events = {
    .message = on_message, .output = on_output, .drained = on_drained, .closed = on_closed};

int peer_start(struct peer *peer, ty_error *err) {
    struct drive *drive = peer->drive;
    struct prepared *prepared = drive->config->prepared;
    struct engine_agent agent = {
        .node = peer->cluster_node,
        .node_name = peer->name,
        .node_rank = peer->node,
        .copied = str_equal(drive->config->request->settings.start_method, "fork"),
    };
    struct buffer log = {0};
    buffer_printf(&log, "%s/logs/agent-%s.log", drive->config->path, agent.node_name);
    int result =
        log.failed
            ? ty_fail_memory(err)
            : prepared->engine->start_agent(&agent, prepared->lease == NULL ? -1 : lease_fd(prepared->lease),
                                            log.data, &peer->handle, err);
    buffer_done(&log);
    if (result < 0) return result;
    return channel_create(drive->loop, peer->handle.channel_fd, &peer_events, peer, &peer->channel, err);
}
