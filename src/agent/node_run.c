/* One run on its agent: hello, attempts one after another, and the end.
 *
 * An attempt is over when all its workers are gone; then the sweep; then the next launch, or the end.
 * Whatever asks for the end (finish, a signal, the loss of the controller) only stops the attempt and notes
 * it: `step`, at the end of every turn, takes the next step. */
#include "agent/node_run.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/module.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "cluster/lease.h"
#include "worker/link.h"

#define GOODBYE_LIMIT (5 * NS_PER_S) /* for the controller to take the last message */

static void stop_loop(void *context) {
    struct node_run *run = context;
    loop_stop(run->loop);
}

/* The controller, once it has heard the bye, may give the lease to another run and begin that run here: so the
 * lease is dropped first (without a controller it becomes void at the end). What the channel brings behind the
 * bye belongs to the next run, and is not read before. */
static void say_bye(struct node_run *run) {
    /* A thread that hangs in the storage, or a sampler that does not end, would be taken for the next run's. */
    if (run->logs.given_up || run->sampling.pid > 0) run->keep = false;
    if (run->lease_fd >= 0 && !run->lost) {
        if (run->service->leased)
            lease_abandoned(run->lease_fd); /* its own, which the keeper may hold as well */
        (void)close(TAKE_FD(run->lease_fd));
    }
    if (run->outbox.channel != NULL && run->keep) channel_pause(run->outbox.channel, true);
    Wire__Bye bye = WIRE__BYE__INIT;
    bye.leftovers = run->sweep.leftovers;
    bye.clean = !run->unclean;
    outbox_flush(&run->outbox); /* the last events come before it */
    outbox_send(&run->outbox, &WIRE_MESSAGE(BYE, bye, &bye));
    run->phase = NODE_RUN_OVER;
    run->goodbye = (struct loop_timer){.callback = stop_loop, .context = run};
    (void)loop_timer_start(run->loop, &run->goodbye, GOODBYE_LIMIT);
}

static void sweep_given(struct errand *errand) {
    checkpoint_sweep_given(errand->path, (int)errand->rank);
}

/* Where another controller could still adopt the attempt, as this one may die before it has heard of the last
 * end, all that would be told stays until it goes on (attempt_let_go). */
static void swept(void *context, bool clean) {
    struct node_run *run = context;
    run->unclean |= !clean;
    if (run->launch.body != NULL) worker_files_remove(run->launch.body->token);
    /* Directories that workers gave away may lie in the memory of this node. Without a controller nobody else
     * clears them up. */
    const Wire__Launch *body = run->launch.body;
    if (run->lost && body != NULL && body->run_path[0] != '\0')
        logs_leave_to(&run->logs, (struct errand){.act = sweep_given,
                                                  .what = "clearing up",
                                                  .path = body->run_path,
                                                  .rank = body->attempt});
    if (run->adrift.on || adrift_is_possible(run)) {
        hang_end(&run->hang);
        run->phase = NODE_RUN_SWEPT;
        return;
    }
    attempt_end(run);
    run->phase = NODE_RUN_BETWEEN;
}

static void waited(void *context) {
    struct node_run *run = context;
    for (size_t i = 0; i < run->n_workers; i++)
        worker_process_release(&run->workers[i]);
}

static void on_left(void *context, const struct idset *pids) {
    struct node_run *run = context;
    char who[32];
    if (run->n_workers == 1)
        (void)snprintf(who, sizeof who, "rank %u", run->workers[0].rank);
    else
        (void)snprintf(who, sizeof who, "workers");
    leftovers_tell(&run->outbox, who, pids, run->launch.body->linger, node_launch_face(&run->launch));
}

/* The next step, if there is one: from the attempt to the sweep, then to the next launch or to the end. */
static void step(struct node_run *run) {
    if (run->adrift.on) return; /* whoever adopts the attempt finds it as it was */
    bool attempt = run->phase == NODE_RUN_ATTEMPT;
    if (attempt && looks_go_on(&run->looks) && attempt_all_gone(run)) looks_end(&run->looks);
    bool over =
        attempt && !node_sweep_runs(&run->sweep) && !stacks_busy(&run->stacks) && !looks_go_on(&run->looks);
    if (over && attempt_all_gone(run))
        node_sweep_start(&run->sweep, run->killing || run->lost ? 0 : attempt_grace(run),
                         attempt_ended_well(run));
    else if (over && attempt_linger(run) > 0)
        node_sweep_wait(&run->sweep, attempt_linger(run));
    if (run->phase != NODE_RUN_BETWEEN || node_sweep_runs(&run->sweep)) return;
    if (run->ending) {
        /* What descends from the template, and from nobody else, is left now. */
        if (template_leave(run->service->template, run->keep)) {
            node_sweep_start(&run->sweep, 0, false);
            return;
        }
        node_storage_leave(&run->storage);
        if (logs_finish(&run->logs, run->lost ? 0 : run->log_limit)) say_bye(run);
    } else if (run->next != NULL) {
        Wire__Launch *next = TAKE(run->next);
        attempt_begin(run, next);
        wire__launch__free_unpacked(next, NULL);
    }
}

/* Of an agent that is adrift nobody else can be told of the end: it is the loss of the controller. */
void node_run_end(struct node_run *run, enum worker_process_stop how) {
    if (run->adrift.on) {
        node_run_lose(run, ", and this agent is told to end", how);
        return;
    }
    attempt_let_go(run);
    run->ending = true;
    sampling_end(&run->sampling);
    attempt_stop(run, how);
}

void node_run_lose(struct node_run *run, const char *why, enum worker_process_stop how) {
    adrift_end(run);
    run->outbox.adrift = false;
    channel_destroy(TAKE(run->outbox.channel));
    run->lost = run->service->lost = run->phase != NODE_RUN_OVER;
    if (run->lost) log_warning("agent", "the controller is gone%s: stopping", why);
    logs_lose(&run->logs);
    outbox_wake(&run->outbox); /* nobody keeps workers from writing any more */
    node_run_end(run, how);
}

/* At the end of every turn. A controller that has missed a message would decide by half of the news, so one for
 * which memory is short is given up. */
static void turn_ended(void *context) {
    struct node_run *run = context;
    step(run);
    outbox_flush(&run->outbox);
    if (run->outbox.failed && (run->outbox.channel != NULL || run->adrift.on)) {
        node_run_lose(run, ": out of memory for what it was to hear", STOP_TOLD);
        step(run); /* there may be no other turn */
    }
    bool told = run->outbox.channel == NULL || channel_empty(run->outbox.channel);
    if (run->phase == NODE_RUN_OVER && told) loop_stop(run->loop);
}

static void on_drained(void *context) {
    struct node_run *run = context;
    outbox_wake(&run->outbox);
}

/* The channel goes in any case. */
static void leave_controller(struct node_run *run, const char *why, bool fault) {
    nanoseconds proven = channel_proven_at(run->outbox.channel);
    channel_destroy(TAKE(run->outbox.channel));
    worker_channels_forget_part(&run->channels);
    if (!adrift_begin(run, proven, fault))
        node_run_lose(run, why, run->service->leased && fault ? STOP_KILLED : STOP_TOLD);
}

/* When the lease has run out nothing may be left by the time at which the controller gives the node up. */
static void on_closed(void *context, const ty_error *reason) {
    CLEANUP(buffer_done) struct buffer why = {0};
    if (reason->code != 0) buffer_printf(&why, ": %s", reason->message);
    struct node_run *run = context;
    leave_controller(run, why.size > 0 ? why.data : "", reason->code != 0);
}

/* Of an agent that joined it is the keeper, without which nobody sees to the end of what runs here; the
 * controller lives. Else it is the controller, whose end is heard beside that of the channel, which a child
 * that the controller forked may hold open. */
static void on_parent_gone(void *context, unsigned events) {
    (void)events;
    struct node_run *run = context;
    loop_watch_stop(run->loop, &run->parent);
    if (run->service->leased != NULL)
        node_run_lose(run, " for an agent whose keeper was killed", STOP_KILLED);
    else if (run->outbox.channel != NULL)
        leave_controller(run, "", false);
}

static void on_hung(void *context, struct worker_process *worker) {
    struct node_run *run = context;
    struct buffer text = {0};
    Wire__WorkerEvent event = WIRE__WORKER_EVENT__INIT;
    event.kind = WIRE__WORKER_EVENT__KIND__HUNG;
    event.rank = worker->rank;
    hang_describe(worker, run->hang.limit, &text);
    if (worker->silent_since > 0) buffer_text(&text, "; it has closed its report channel");
    if (!text.failed) event.text = buffer_take(&text);
    buffer_done(&text);
    outbox_event(&run->outbox, event);
}

static void on_stacks(void *context, const struct buffer *frames) {
    struct node_run *run = context;
    Wire__Stacks body = WIRE__STACKS__INIT;
    body.frames = (ProtobufCBinaryData){frames->failed ? 0 : frames->size, (uint8_t *)frames->data};
    outbox_send(&run->outbox, &WIRE_MESSAGE(STACKS, stacks, &body));
}

/* Whether processes of this machine reach each other there; nothing is sent. */
static bool has_loopback(int family) {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } own = {.any.sa_family = (sa_family_t)family};
    socklen_t size = family == AF_INET ? sizeof own.v4 : sizeof own.v6;
    CLEANUP_FD int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (family == AF_INET)
        own.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else
        own.v6.sin6_addr = in6addr_loopback;
    return fd >= 0 && bind(fd, &own.any, size) == 0 && getsockname(fd, &own.any, &size) == 0 &&
           connect(fd, &own.any, size) == 0;
}

/* The address is that of this machine for workers on it alone; of a node that joined the controller knows a
 * better one. The two times tell how far the clocks of the two machines are apart (compare_clocks in
 * controller/agents.c). */
static void say_hello(struct node_run *run, const char *refusal) {
    Wire__Hello hello = WIRE__HELLO__INIT;
    hello.protocol = FRAME_PROTOCOL;
    hello.version = (char *)base_build;
    hello.node = run->service->start->node;
    hello.node_name = (char *)run->service->start->node_name;
    hello.pid = getpid();
    if (refusal != NULL) hello.refusal = (char *)refusal;
    bool four = has_loopback(AF_INET), six = has_loopback(AF_INET6);
    if (run->service->warning != NULL)
        hello.warning = (char *)run->service->warning;
    else if (!four && !six)
        hello.warning = (char *)"its loopback interface is not up (ip link set lo up): workers that meet there "
                                "wait for each other";
    hello.address = (char *)(four || !six ? "127.0.0.1" : "::1");
    if (run->service->leased != NULL) {
        hello.heard = run->heard;
        hello.said = clock_wall();
    }
    outbox_send(&run->outbox, &WIRE_MESSAGE(HELLO, hello, &hello));
    channel_flush(run->outbox.channel);
}

static const struct channel_events run_events = {
    .message = orders_take, .drained = on_drained, .closed = on_closed};

void node_run_follow(struct node_run *run, struct channel *channel) {
    run->outbox.channel = channel;
    run->heard = clock_wall();
    channel_adopt(channel, &run_events, run);
    say_hello(run, NULL);
}

void node_run_refuse(struct node_run *run, const char *why) {
    say_hello(run, why);
    run->keep = true;
    node_run_end(run, STOP_TOLD);
}

/* Messages go to the agent's log; those about the storage are for the user as well. */
static void write_log(void *context, enum log_level level, const char *subsystem, const char *text) {
    struct node_run *run = context;
    CLEANUP(buffer_done) struct buffer line = {0};
    buffer_printf(&line, "%s: %s\n", subsystem, text);
    if (!line.failed) log_add(run->log, line.data, line.size);
    if (!str_equal(subsystem, "storage")) return;
    Wire__Log log = WIRE__LOG__INIT;
    log.level = (uint32_t)level;
    log.text = (char *)text;
    outbox_send(&run->outbox, &WIRE_MESSAGE(LOG, log, &log));
}

static void warn(void *context, const char *text) {
    outbox_log(&((struct node_run *)context)->outbox, LOG_LEVEL_WARNING, "%s", text);
}

/* The controller keeps clear of the storage as long as it hangs. */
static void on_stall(void *context, bool stalled) {
    struct node_run *run = context;
    Wire__Storage body = WIRE__STORAGE__INIT;
    body.hangs = stalled;
    outbox_send(&run->outbox, &WIRE_MESSAGE(STORAGE, storage, &body));
}

static void on_log_room(void *context) {
    struct node_run *run = context;
    for (size_t i = 0; i < run->n_workers; i++)
        relay_go_on(&run->workers[i].relay);
}

static void carry_log(void *context, long rank, const struct buffer *bytes) {
    struct node_run *run = context;
    char path[32];
    Wire__File body = WIRE__FILE__INIT;
    (void)snprintf(path, sizeof path, LOGS_NAME "/rank-%ld.log", rank);
    body.path = path;
    body.bytes = (ProtobufCBinaryData){bytes->size, (uint8_t *)bytes->data};
    outbox_send(&run->outbox, &WIRE_MESSAGE(FILE, file, &body));
}

/* The channel comes last: from then on the controller can be heard, and all that its messages reach is
 * there. */
static int open_run(struct node_run *run, ty_error *err) {
    run->loop = loop_create(err);
    if (run->loop == NULL) return err->code;
    run->outbox.loop = run->sweep.loop = run->loop;
    run->channels.outbox = &run->outbox;
    run->hang = (struct hang){.loop = run->loop, .found = on_hung, .context = run};
    run->stacks = (struct stacks){.loop = run->loop, .logs = &run->logs, .done = on_stacks, .context = run};
    run->looks = (struct looks){.outbox = &run->outbox};
    run->sweep.template = run->service->template;
    run->sampling = (struct sampling){
        .loop = run->loop, .outbox = &run->outbox, .node_name = run->service->start->node_name, .fd = -1};
    run->sweep.sampling = &run->sampling;
    run->sweep.left = on_left;
    run->sweep.waited = waited;
    run->sweep.ended = swept;
    run->sweep.context = run;
    run->start_timer = (struct loop_timer){.callback = attempt_go_on, .context = run};
    const char *path = run->service->start->log_path;
    run->logs = (struct logs){.loop = run->loop,
                              .warn = warn,
                              .drained = on_log_room,
                              .stall = on_stall,
                              .carry = carry_log,
                              .context = run};
    run->channels.storage = &run->storage;
    run->storage = (struct node_storage){.outbox = &run->outbox,
                                         .logs = &run->logs,
                                         .channels = &run->channels,
                                         .ready = attempt_storage_ready,
                                         .context = run};
    run->log_limit = LOG_LIMIT;
    int result = logs_open(&run->logs, err);
    if (result < 0) return result;
    if (path[0] != '\0') run->log = log_open(&run->logs, path, -1);
    if (run->log != NULL) log_set_sink(write_log, run);
    int code = signals_start(run);
    if (code < 0) return ty_fail(err, code, "cannot catch signals: %s", strerror(-code));
    template_enter(run->service->template, run->loop, &(struct template_log){&run->logs, path},
                   attempt_template_changed, run);
    run->parent = (struct loop_watch){.callback = on_parent_gone, .context = run};
    if (run->service->parent_fd >= 0)
        code = loop_watch_start(run->loop, &run->parent, run->service->parent_fd, LOOP_READABLE);
    if (code < 0) return ty_fail(err, code, "cannot watch the controller: %s", strerror(-code));
    code = channel_create_over(run->loop, run->service->transport, &run_events, run, &run->outbox.channel, err);
    if (code == 0 && run->service->leased) channel_keep_alive(run->outbox.channel, CHANNEL_LEASED);
    return code;
}

/* The logs outlast whatever writes to them, the outbox whatever speaks, and the loop all of it. */
static bool close_run(struct node_run *run) {
    if (run->lease_fd >= 0) (void)close(run->lease_fd);
    if (run->loop == NULL) return false;
    adrift_end(run);
    (void)template_leave(run->service->template, run->keep);
    attempt_end(run);
    wire__launch__free_unpacked(run->next, NULL);
    worker_channels_done(&run->channels);
    stacks_cancel(&run->stacks);
    looks_end(&run->looks);
    sampling_end(&run->sampling);
    free(run->preemption);
    node_sweep_done(&run->sweep);
    node_storage_done(&run->storage);
    log_set_sink(NULL, NULL); /* messages that come later are nobody's */
    logs_close(&run->logs);
    signals_stop(run);
    loop_watch_stop(run->loop, &run->parent);
    loop_timer_stop(run->loop, &run->start_timer);
    loop_timer_stop(run->loop, &run->goodbye);
    /* A kept agent's channel stays open: true. */
    struct channel *channel = TAKE(run->outbox.channel);
    bool kept =
        channel != NULL && run->keep && run->phase == NODE_RUN_OVER && !run->unclean && channel_empty(channel);
    if (kept)
        *run->service->transport = channel_release_transport(channel);
    else
        channel_destroy(channel);
    outbox_done(&run->outbox);
    loop_destroy(run->loop);
    return kept;
}

enum node_run_result node_run_serve(struct service *service) {
    ty_error err = {0};
    struct node_run run = {.service = service, .lease_fd = service->lease_fd, .adrift = {.door = -1}};
    if (service->leased != NULL) run.heard = service->leased->heard;
    int code = open_run(&run, &err);
    if (code == 0) {
        oom_init(&run.oom);
        say_hello(&run, service->refusal);
        loop_on_turn_end(run.loop, turn_ended, &run);
        loop_run(run.loop);
    } else {
        log_error("agent", "%s", err.message);
    }
    if (run.lost && run.lease_fd >= 0) lease_abandoned(run.lease_fd);
    bool failed = code < 0 || run.lost || run.unclean;
    if (close_run(&run)) return NODE_RUN_KEPT;
    return failed ? NODE_RUN_FAILED : NODE_RUN_DONE;
}
