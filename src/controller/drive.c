/* One loop, one turn at a time: events come in and go to run/; at the end of the turn the journal is committed, and only then what
 * run/ wanted is sent. */
#include "controller/drive.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "controller/failure.h"
#include "controller/launch.h"
#include "controller/progress.h"
#include "controller/sink.h"
#include "controller/sweep.h"
#include "run/store.h"
#include "wire/channel.h"

static const nanoseconds START_LIMIT = 60 * NS_PER_S;
static const int END_LIMIT_MS = 2000;

/* An agent and our end of its channel. */
struct peer {
    struct drive *drive;
    uint32_t node; /* node rank */
    struct channel *channel;
    struct engine_handle handle;
    char address[64];
    uint16_t port;
};

struct timer_slot {
    struct drive *drive;
    enum run_timer timer;
    struct loop_timer handle;
};

struct drive {
    const struct drive_config *config;
    struct loop *loop;
    struct run *run;
    struct store *store;
    struct launch *launch;
    struct peer *peers;
    uint32_t *node_of;
    struct timer_slot timers[RUN_TIMERS];
    struct loop_timer store_timer;
    struct loop_signal signals[3];
    struct loop_watch lease_watch;
    int lease_fd;          /* readable when a holder may have gone; -1 unless the run waits */
    struct sink output[2]; /* standard output, standard error */
    struct progress progress;
    char token[33];
    struct buffer metrics;               /* of rank 0 */
    nanoseconds launched, failed, ended; /* wall, monotonic, monotonic */
    int interrupted;                     /* signal that came while the run waited */
    ty_error error;                      /* what ended the run from outside of run/: the journal, the launch */
};

static const int handled_signals[] = {SIGINT, SIGTERM, SIGHUP};

/* -- what run/ asks for -------------------------------------------------------------------------------------------- */

static nanoseconds wall(void *context) {
    (void)context;
    return clock_wall();
}

static const char *node_name(const struct drive *drive, uint32_t node) {
    const struct prepared *prepared = drive->config->prepared;
    return prepared->cluster->nodes[prepared->plan->node_order[node]].name;
}

static void on_message(void *context, const Wire__Message *message);
static void on_output(void *context, uint32_t rank, int stream, const uint8_t *bytes, size_t size);
static void on_closed(void *context, const ty_error *reason);

static const struct channel_events peer_events = {
    .message = on_message, .output = on_output, .closed = on_closed};

static int start_node(void *context, uint32_t node, ty_error *err) {
    struct drive *drive = context;
    struct prepared *prepared = drive->config->prepared;
    struct peer *peer = &drive->peers[node];
    struct engine_agent agent = {prepared->plan->node_order[node], node_name(drive, node), node};
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

/* The parts of the launch that are alike for all nodes wait for the first node of the attempt. */
static int make_launch(struct drive *drive, int attempt, ty_error *err) {
    const struct peer *first = &drive->peers[0];
    struct launch_context context = {
        .request = drive->config->request,
        .prepared = drive->config->prepared,
        .name = drive->config->name,
        .path = drive->config->path,
        .token = drive->token,
        .attempt = attempt,
        .report_base = run_report_base(drive->run),
        .checkpoint = run_checkpoint(drive->run),
        .master_address = first->address,
        .master_port = first->port,
    };
    launch_destroy(TAKE(drive->launch));
    store_destroy(TAKE(drive->store));
    drive->launched = clock_wall();
    return launch_create(&context, &drive->launch, err);
}

static void answer_store(void *context, uint32_t node, uint32_t channel, enum store_status status,
                         const void *value, size_t size) {
    struct drive *drive = context;
    Wire__StoreReply body = WIRE__STORE_REPLY__INIT;
    Wire__Message message = WIRE__MESSAGE__INIT;
    body.channel = channel;
    body.status = (Wire__StoreReply__Status)status;
    body.value = (ProtobufCBinaryData){size, (uint8_t *)value};
    message.body_case = WIRE__MESSAGE__BODY_STORE_REPLY;
    message.store_reply = &body;
    if (drive->peers[node].channel != NULL) (void)channel_send(drive->peers[node].channel, &message);
}

static void launch(void *context, uint32_t node, int attempt) {
    struct drive *drive = context;
    ty_error err = {0};
    int result = node == 0 ? make_launch(drive, attempt, &err) : 0;
    if (result >= 0 && node == 0) {
        drive->store = store_create((uint32_t)drive->config->prepared->plan->n_workers, answer_store, drive);
        if (drive->store == NULL) result = ty_fail_memory(&err);
    }
    if (result >= 0 && drive->launch != NULL)
        result = launch_frame(drive->launch, node, channel_out(drive->peers[node].channel), &err);
    if (result < 0) {
        if (drive->error.code == 0) drive->error = err;
        run_interrupt(drive->run, 0);
    }
}

static void send(struct drive *drive, uint32_t node, const Wire__Message *message) {
    if (drive->peers[node].channel != NULL) (void)channel_send(drive->peers[node].channel, message);
}

static void stop(void *context, uint32_t node, bool kill, const char *reason) {
    struct drive *drive = context;
    Wire__Stop body = WIRE__STOP__INIT;
    Wire__Message message = WIRE__MESSAGE__INIT;
    if (drive->failed == 0) drive->failed = clock_monotonic();
    body.kill = kill;
    body.reason = (char *)reason;
    message.body_case = WIRE__MESSAGE__BODY_STOP;
    message.stop = &body;
    send(drive, node, &message);
}

static void finish(void *context, uint32_t node) {
    struct drive *drive = context;
    Wire__Finish body = WIRE__FINISH__INIT;
    Wire__Message message = WIRE__MESSAGE__INIT;
    if (drive->ended == 0) drive->ended = clock_monotonic();
    message.body_case = WIRE__MESSAGE__BODY_FINISH;
    message.finish = &body;
    send(drive, node, &message);
}

/* Waits for the end of an agent, by force when it takes too long. Its wait status, or 0. */
static int reap_agent(struct peer *peer, bool by_force) {
    int status = 0;
    if (peer->handle.pid <= 0) return 0;
    struct pollfd ended = {peer->handle.pidfd, POLLIN, 0};
    if (by_force || peer->handle.pidfd < 0 || poll(&ended, 1, END_LIMIT_MS) != 1)
        (void)kill(peer->handle.pid, SIGKILL);
    while (waitpid(peer->handle.pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (peer->handle.pidfd >= 0) (void)close(peer->handle.pidfd);
    peer->handle = (struct engine_handle){-1, -1, -1};
    return status;
}

static void abandon(void *context, uint32_t node) {
    struct drive *drive = context;
    struct peer *peer = &drive->peers[node];
    (void)reap_agent(peer, true);
    channel_destroy(TAKE(peer->channel));
    (void)sweep_token(drive->token);
}

static void set_timer(void *context, enum run_timer timer, nanoseconds delay) {
    struct drive *drive = context;
    if (delay < 0)
        loop_timer_stop(drive->loop, &drive->timers[timer].handle);
    else
        (void)loop_timer_start(drive->loop, &drive->timers[timer].handle, delay);
}

static void on_timer(void *context) {
    struct timer_slot *slot = context;
    run_timer_fired(slot->drive->run, slot->timer);
}

/* A journal that cannot be written does not stop the training; the run's end tells it. */
static void keep_journal_error(struct drive *drive, int result, const ty_error *err) {
    if (result >= 0 || drive->error.code != 0) return;
    drive->error = *err;
    log_error("journal", "%s; the run goes on without it", err->message);
}

static void record(void *context, const struct run_event *event) {
    struct drive *drive = context;
    ty_error err = {0};
    int result = journal_event(drive->config->journal, event, &err);
    keep_journal_error(drive, result, &err);
}

static int publish(void *context, uint64_t number, int attempt, const char *const *files, size_t n, char **path,
                   ty_error *err) {
    struct drive *drive = context;
    int result = checkpoint_publish(drive->config->path, number, attempt, files, n, path, err);
    if (result < 0) return result;
    char name[CHECKPOINT_NAME_SIZE];
    checkpoint_name(number, name);
    struct journal_checkpoint row = {number, attempt, clock_wall(), name, drive->metrics.data};
    ty_error journal_error = {0};
    result = journal_checkpoint(drive->config->journal, &row, &journal_error);
    if (result >= 0) result = journal_commit_durable(drive->config->journal, &journal_error);
    keep_journal_error(drive, result, &journal_error);
    return 0;
}

static void discard(void *context, uint64_t number, int attempt) {
    const struct drive *drive = context;
    checkpoint_discard(drive->config->path, number, attempt);
}

static void answer_commit(void *context, uint32_t node, uint32_t channel, uint64_t number, const char *path,
                          const char *error) {
    struct drive *drive = context;
    Wire__Committed body = WIRE__COMMITTED__INIT;
    Wire__Message message = WIRE__MESSAGE__INIT;
    body.channel = channel;
    body.number = number;
    if (path != NULL) body.path = (char *)path;
    if (error != NULL) body.error = (char *)error;
    message.body_case = WIRE__MESSAGE__BODY_COMMITTED;
    message.committed = &body;
    send(drive, node, &message);
}

static void on_run_ended(void *context) {
    struct drive *drive = context;
    loop_stop(drive->loop);
}

static const struct run_ops ops = {
    .wall = wall,
    .start_node = start_node,
    .launch = launch,
    .stop = stop,
    .finish = finish,
    .abandon = abandon,
    .set_timer = set_timer,
    .record = record,
    .publish = publish,
    .discard = discard,
    .answer = answer_commit,
    .ended = on_run_ended,
};

/* -- what agents say ----------------------------------------------------------------------------------------------- */

static void on_hello(struct peer *peer, const Wire__Hello *hello) {
    struct drive *drive = peer->drive;
    if (hello->protocol != FRAME_PROTOCOL || strcmp(hello->version, TY_VERSION) != 0) {
        struct buffer why = {0};
        buffer_printf(&why, "the agent of node %s is version %s, this is " TY_VERSION,
                      node_name(drive, peer->node), hello->version);
        abandon(drive, peer->node);
        run_node_lost(drive->run, peer->node, why.failed ? "wrong version" : why.data);
        buffer_done(&why);
        return;
    }
    (void)snprintf(peer->address, sizeof peer->address, "%s", hello->address);
    peer->port = (uint16_t)hello->port;
    struct buffer data = {0};
    buffer_text(&data, "{\"name\": ");
    buffer_json_string(&data, node_name(drive, peer->node), strlen(node_name(drive, peer->node)));
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
    case WIRE__WORKER_EVENT__KIND__EXITED:
        run_worker_exited(drive->run, event->rank, event->wait_status, event->stopped, event->text,
                          event->tail.data, event->tail.len, event->time);
        break;
    case WIRE__WORKER_EVENT__KIND__GONE:
        run_worker_gone(drive->run, event->rank, event->time);
        break;
    case WIRE__WORKER_EVENT__KIND__START_FAILED:
        run_worker_start_failed(drive->run, event->rank, event->text, event->time);
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
        ty_error err = {0};
        int result = journal_report(drive->config->journal, &row, &err);
        keep_journal_error(drive, result, &err);
        if (report->rank == 0) keep_metrics(drive, &report->metrics);
    }
    run_report(drive->run, report->rank, kind, report->number, report->files.data, report->files.len,
               report->channel);
}

static void arm_store_timer(struct drive *drive) {
    nanoseconds deadline = store_deadline(drive->store);
    if (deadline < 0) return;
    nanoseconds delay = deadline - loop_now(drive->loop);
    (void)loop_timer_start(drive->loop, &drive->store_timer, delay > 0 ? delay : 0);
}

static void on_store_timer(void *context) {
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
        .timeout = body->timeout_ms < 0 ? -1 : body->timeout_ms * NS_PER_MS,
    };
    if (drive->store == NULL) return;
    store_ask(drive->store, &request, loop_now(drive->loop));
    arm_store_timer(drive);
}

static void on_log(const Wire__Log *log) {
    log_write((enum log_level)log->level, "agent", "%s", log->text);
}

static void on_message(void *context, const Wire__Message *message) {
    struct peer *peer = context;
    struct drive *drive = peer->drive;
    switch (message->body_case) {
    case WIRE__MESSAGE__BODY_HELLO:
        on_hello(peer, message->hello);
        break;
    case WIRE__MESSAGE__BODY_EVENTS:
        run_batch(drive->run);
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
    case WIRE__MESSAGE__BODY_BYE:
        run_node_bye(drive->run, peer->node, message->bye->clean, message->bye->leftovers);
        break;
    case WIRE__MESSAGE__BODY_LOG:
        on_log(message->log);
        break;
    default:
        log_warning("controller", "node %s sent a message of an unknown kind", node_name(drive, peer->node));
    }
}

static void pause_peers(struct drive *drive, bool paused) {
    for (size_t node = 0; node < drive->config->prepared->plan->n_nodes_used; node++)
        if (drive->peers[node].channel != NULL) channel_pause(drive->peers[node].channel, paused);
}

static void on_output(void *context, uint32_t rank, int stream, const uint8_t *bytes, size_t size) {
    (void)rank;
    struct drive *drive = ((struct peer *)context)->drive;
    struct sink *sink = &drive->output[stream == 2];
    progress_hide(&drive->progress);
    sink_write(sink, bytes, size);
    if (sink_full(sink)) pause_peers(drive, true);
}

static void on_drained(void *context) {
    struct drive *drive = context;
    if (!sink_full(&drive->output[0]) && !sink_full(&drive->output[1])) pause_peers(drive, false);
}

static void describe_agent_end(const struct drive *drive, uint32_t node, int status, const ty_error *reason,
                               struct buffer *out) {
    buffer_printf(out, "the agent of node %s ", node_name(drive, node));
    if (reason->code != 0)
        buffer_printf(out, "could not be understood: %s", reason->message);
    else if (WIFSIGNALED(status))
        buffer_printf(out, "was killed by signal %d (SIG%s)", WTERMSIG(status), sigabbrev_np(WTERMSIG(status)));
    else
        buffer_printf(out, "ended with code %d before its time", WEXITSTATUS(status));
}

static void on_closed(void *context, const ty_error *reason) {
    struct peer *peer = context;
    struct drive *drive = peer->drive;
    struct buffer why = {0};
    channel_destroy(TAKE(peer->channel));
    bool gone = run_node_state(drive->run, peer->node) == NODE_GONE;
    int status = reap_agent(peer, false);
    if (gone) return;
    (void)sweep_token(drive->token);
    describe_agent_end(drive, peer->node, status, reason, &why);
    run_node_lost(drive->run, peer->node, why.failed ? "its agent ended" : why.data);
    buffer_done(&why);
}

/* -- the loop ------------------------------------------------------------------------------------------------------ */

static void on_turn_end(void *context) {
    struct drive *drive = context;
    ty_error err = {0};
    if (journal_dirty(drive->config->journal)) {
        int result = journal_commit(drive->config->journal, &err);
        keep_journal_error(drive, result, &err);
    }
    if (drive->peers == NULL || drive->config->prepared->plan == NULL) return;
    for (size_t node = 0; node < drive->config->prepared->plan->n_nodes_used; node++)
        if (drive->peers[node].channel != NULL) channel_flush(drive->peers[node].channel);
    if (drive->run != NULL && run_state_of(drive->run) != RUN_ENDED) progress_show(&drive->progress);
}

static void on_signal(void *context, int signal_number) {
    struct drive *drive = context;
    if (drive->run == NULL) {
        drive->interrupted = signal_number;
        loop_stop(drive->loop);
        return;
    }
    run_interrupt(drive->run, signal_number);
}

static void record_plan(struct drive *drive) {
    const struct prepared *prepared = drive->config->prepared;
    struct buffer data = {0};
    buffer_printf(&data, "{\"seconds\": %.6f, \"nodes\": [", (double)prepared->plan_time / 1e9);
    for (size_t i = 0; i < prepared->plan->n_nodes_used; i++) {
        buffer_text(&data, i > 0 ? ", " : "");
        const char *name = prepared->cluster->nodes[prepared->plan->node_order[i]].name;
        buffer_json_string(&data, name, strlen(name));
    }
    buffer_text(&data, "], \"ranks\": [");
    for (size_t i = 0; i < prepared->plan->n_workers; i++)
        buffer_printf(&data, "%s%u", i > 0 ? ", " : "", prepared->plan->workers[i].node_rank);
    buffer_text(&data, "], \"devices\": [");
    for (size_t i = 0; i < prepared->plan->n_workers; i++) {
        buffer_text(&data, i > 0 ? ", \"" : "\"");
        plan_worker_devices(prepared->plan, prepared->cluster, i, false, &data);
        buffer_char(&data, '"');
    }
    buffer_text(&data, "]}");
    struct run_event event = {clock_wall(), EVENT_PLAN, 0, -1, -1, data.failed ? NULL : data.data};
    record(drive, &event);
    buffer_done(&data);
}

static int begin(struct drive *drive, ty_error *err) {
    const struct run_request *request = drive->config->request;
    const struct plan *plan = drive->config->prepared->plan;
    record_plan(drive);
    drive->peers = calloc(plan->n_nodes_used, sizeof *drive->peers);
    drive->node_of = calloc(plan->n_workers, sizeof *drive->node_of);
    if (drive->peers == NULL || drive->node_of == NULL) return ty_fail_memory(err);
    for (size_t node = 0; node < plan->n_nodes_used; node++)
        drive->peers[node] = (struct peer){.drive = drive, .node = (uint32_t)node, .handle = {-1, -1, -1}};
    for (size_t rank = 0; rank < plan->n_workers; rank++)
        drive->node_of[rank] = plan->workers[rank].node_rank;
    struct run_config config = {
        .n_workers = (uint32_t)plan->n_workers,
        .n_nodes = (uint32_t)plan->n_nodes_used,
        .node_of = drive->node_of,
        .max_failures = request->max_failures,
        .first_attempt = drive->config->resume.attempts + 1,
        .report_base = drive->config->resume.last_number,
        .checkpoint = drive->config->resume.checkpoint,
        .time_limit = request->time_limit,
        .grace = request->grace > 0 ? request->grace : 5 * NS_PER_S,
        .start_limit = START_LIMIT,
    };
    int result = run_create(&config, &ops, drive, &drive->run, err);
    if (result < 0) return result;
    progress_open(&drive->progress, drive->loop, drive->run, drive->config->name,
                  request->quiet ? PROGRESS_NONE : request->progress);
    run_start(drive->run);
    return 0;
}

/* -- waiting for devices ------------------------------------------------------------------------------------------- */

static void record_wait(struct drive *drive, const char *reason, const struct lease_holder *holders, size_t n) {
    struct buffer data = {0};
    buffer_text(&data, "{\"reason\": ");
    buffer_json_string(&data, reason, strlen(reason));
    buffer_text(&data, ", \"holders\": [");
    for (size_t i = 0; i < n; i++) {
        buffer_printf(&data, "%s{\"run\": ", i > 0 ? ", " : "");
        buffer_json_string(&data, holders[i].run, strlen(holders[i].run));
        buffer_printf(&data, ", \"pid\": %d, \"user\": ", holders[i].pid);
        buffer_json_string(&data, holders[i].user, strlen(holders[i].user));
        buffer_printf(&data, ", \"since\": %.3f}", (double)holders[i].since / 1e9);
    }
    buffer_text(&data, "]}");
    struct run_event event = {clock_wall(), EVENT_WAIT, 0, -1, -1, data.failed ? NULL : data.data};
    record(drive, &event);
    buffer_done(&data);
}

static void stop_waiting(struct drive *drive) {
    loop_watch_stop(drive->loop, &drive->lease_watch);
    if (drive->lease_fd >= 0) (void)close(drive->lease_fd);
    drive->lease_fd = -1;
}

static int wait_for(struct drive *drive, const char *reason, const struct lease_holder *holders, size_t n,
                    ty_error *err) {
    drive->lease_fd = lease_watch(holders, n, err);
    if (drive->lease_fd < 0) return drive->lease_fd;
    record_wait(drive, reason, holders, n);
    int result = loop_watch_start(drive->loop, &drive->lease_watch, drive->lease_fd, LOOP_READABLE);
    return result < 0 ? ty_fail(err, result, "cannot watch the leases: %s", strerror(-result)) : 0;
}

/* Somebody may have let go of what is short. */
static void on_lease_change(void *context, unsigned events) {
    (void)events;
    struct drive *drive = context;
    struct lease_holder *holders;
    size_t n;
    ty_error err = {0};
    stop_waiting(drive);
    int result =
        prepare_plan(drive->config->request, drive->config->name, drive->config->prepared, &holders, &n, &err);
    if (result == TY_EBUSY) {
        result = wait_for(drive, err.message, holders, n, &err);
        lease_holders_free(holders, n);
    } else if (result >= 0) {
        result = begin(drive, &err);
    }
    if (result >= 0) return;
    drive->error = err;
    loop_stop(drive->loop);
}

/* -- from beginning to end ----------------------------------------------------------------------------------------- */

static int make_token(char token[33]) {
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) return -1;
    for (size_t i = 0; i < sizeof bytes; i++)
        (void)snprintf(token + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

static int open_drive(struct drive *drive, const struct drive_config *config, ty_error *err) {
    *drive = (struct drive){.config = config, .lease_fd = -1};
    if (make_token(drive->token) < 0) return ty_fail(err, -errno, "no random bytes: %s", strerror(errno));
    drive->loop = loop_create(err);
    if (drive->loop == NULL) return err->code;
    loop_on_turn_end(drive->loop, on_turn_end, drive);
    for (int timer = 0; timer < RUN_TIMERS; timer++) {
        struct timer_slot *slot = &drive->timers[timer];
        *slot = (struct timer_slot){drive, (enum run_timer)timer, {.callback = on_timer, .context = slot}};
    }
    drive->store_timer = (struct loop_timer){.callback = on_store_timer, .context = drive};
    drive->lease_watch = (struct loop_watch){.callback = on_lease_change, .context = drive};
    for (size_t i = 0; i < ARRAY_SIZE(handled_signals); i++) {
        drive->signals[i] = (struct loop_signal){.callback = on_signal, .context = drive};
        (void)loop_signal_start(drive->loop, &drive->signals[i], handled_signals[i]);
    }
    sink_open(&drive->output[0], drive->loop, STDOUT_FILENO, on_drained, drive);
    sink_open(&drive->output[1], drive->loop, STDERR_FILENO, on_drained, drive);
    return 0;
}

static void close_drive(struct drive *drive) {
    size_t n = drive->peers == NULL ? 0 : drive->config->prepared->plan->n_nodes_used;
    for (size_t node = 0; node < n; node++) {
        channel_destroy(TAKE(drive->peers[node].channel));
        (void)reap_agent(&drive->peers[node], false);
    }
    if (drive->progress.loop != NULL) progress_close(&drive->progress);
    stop_waiting(drive);
    for (int timer = 0; timer < RUN_TIMERS; timer++)
        loop_timer_stop(drive->loop, &drive->timers[timer].handle);
    loop_timer_stop(drive->loop, &drive->store_timer);
    for (size_t i = 0; i < ARRAY_SIZE(handled_signals); i++)
        loop_signal_stop(drive->loop, &drive->signals[i]);
    sink_close(&drive->output[0]);
    sink_close(&drive->output[1]);
    launch_destroy(drive->launch);
    store_destroy(drive->store);
    run_destroy(drive->run);
    free(drive->peers);
    free(drive->node_of);
    buffer_done(&drive->metrics);
    loop_destroy(drive->loop);
}

void drive_end_done(struct drive_end *end) {
    free(end->metrics);
    free(end->checkpoint);
    free(end->failure);
    free(end->exits);
    *end = (struct drive_end){0};
}

static int worker_exit(const struct run_worker *worker) {
    if (!worker->exited) return -1;
    int status = worker->wait_status;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void describe_end(struct drive *drive, struct drive_end *end) {
    const struct plan *plan = drive->config->prepared->plan;
    end->outcome = run_outcome(drive->run);
    end->status = run_exit_status(drive->run);
    end->attempts = run_attempt(drive->run);
    end->cause = *run_failure(drive->run);
    end->cause.tail = NULL;
    end->n_workers = (uint32_t)plan->n_workers;
    end->exits = calloc(plan->n_workers, sizeof *end->exits);
    for (uint32_t rank = 0; end->exits != NULL && rank < end->n_workers; rank++)
        end->exits[rank] = worker_exit(run_worker(drive->run, rank));
    if (drive->metrics.size > 0) end->metrics = strdup(drive->metrics.data);
    if (run_checkpoint(drive->run) != NULL) end->checkpoint = strdup(run_checkpoint(drive->run));
    struct failure_context context = {drive->run,
                                      plan,
                                      drive->config->prepared->cluster,
                                      drive->config->path,
                                      drive->launched,
                                      drive->failed > 0 ? drive->ended - drive->failed : 0};
    struct buffer screen = {0};
    failure_format(&context, &screen);
    end->failure = screen.size > 0 ? buffer_take(&screen) : NULL;
    buffer_done(&screen);
}

/* An end without a run: interrupted, or refused, while it waited. */
static int describe_wait_end(struct drive *drive, struct drive_end *end, ty_error *err) {
    end->outcome = OUTCOME_INTERRUPTED;
    end->status = 128 + drive->interrupted;
    struct run_event event = {
        clock_wall(),
        EVENT_RUN_END,
        0,
        -1,
        -1,
        "{\"outcome\": \"interrupted\", \"status\": 130, \"cause\": \"interrupted while it "
        "waited for devices\"}"};
    record(drive, &event);
    if (drive->interrupted == 0) {
        if (err != NULL) *err = drive->error;
        return drive->error.code;
    }
    return 0;
}

static int run_loop(struct drive *drive, struct drive_end *end, ty_error *err) {
    const struct drive_config *config = drive->config;
    int result = config->n_holders > 0
                     ? wait_for(drive, config->wait_reason, config->holders, config->n_holders, err)
                     : begin(drive, err);
    if (result < 0) return result;
    if (drive->run == NULL || run_state_of(drive->run) != RUN_ENDED) loop_run(drive->loop);
    if (drive->run == NULL) return describe_wait_end(drive, end, err);
    describe_end(drive, end);
    if (drive->error.code != 0 && err != NULL) *err = drive->error;
    return drive->error.code;
}

int drive(const struct drive_config *config, struct drive_end *end, ty_error *err) {
    struct drive drive;
    int was_subreaper = 0;
    struct sigaction saved[ARRAY_SIZE(handled_signals)], saved_pipe;
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    for (size_t i = 0; i < ARRAY_SIZE(handled_signals); i++)
        (void)sigaction(handled_signals[i], NULL, &saved[i]);
    (void)sigaction(SIGPIPE, &ignore, &saved_pipe);
    /* Workers whose agent dies become our children, so that they can be reaped. */
    (void)prctl(PR_GET_CHILD_SUBREAPER, &was_subreaper);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    *end = (struct drive_end){0};
    int result = open_drive(&drive, config, err);
    if (result >= 0) {
        result = run_loop(&drive, end, err);
        (void)journal_commit_durable(config->journal, NULL);
        close_drive(&drive);
    }
    (void)prctl(PR_SET_CHILD_SUBREAPER, was_subreaper);
    for (size_t i = 0; i < ARRAY_SIZE(handled_signals); i++)
        (void)sigaction(handled_signals[i], &saved[i], NULL);
    (void)sigaction(SIGPIPE, &saved_pipe, NULL);
    return result;
}
