/* One run on its agent: messages of the controller, attempts one after another, and the end.
 *
 * An attempt is over when all its workers are gone; then the sweep; then the next launch, or the end. Whatever asks for the end
 * (finish, a signal, the loss of the controller) only stops the attempt and notes it: `step`, at the end of every turn, takes the
 * next step. */
#include "agent/serve.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/child.h"
#include "agent/hang.h"
#include "agent/held_port.h"
#include "agent/stacks.h"
#include "agent/sweep.h"
#include "base/build.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "cluster/lease.h"

enum { SPAWNS_A_TURN = 8, FORKS_AT_ONCE = 8 };

/* How the workers of an attempt are started. */
enum start_way { START_EXECUTED, START_FORKED, START_UNDECIDED };
#define GRACE_LOST (1 * NS_PER_S)    /* without a controller nobody waits for a polite end */
#define GOODBYE_LIMIT (5 * NS_PER_S) /* for the controller to take the last message */

struct serving {
    const struct service *service;
    struct loop *loop;
    struct outbox outbox;
    struct worker_channels channels;
    struct oom oom;
    struct held_port port;
    struct sweep sweep;
    struct hang hang;
    struct stacks stacks;
    char *preemption; /* owned: what workers are told of it; NULL without */
    struct loop_signal child_signal, stop_signals[2], preempt_signal;
    struct loop_watch parent; /* readable once the process that started this one is gone */
    int lease_fd;             /* open as long as the run may use its devices; -1: none */

    struct launch launch; /* of the current attempt */
    struct child *children;
    size_t n_children;
    size_t n_started; /* the first ones were started, or need not be */
    enum start_way way;
    size_t reaped_hint;
    struct loop_timer start_timer;
    struct loop_timer goodbye;

    Wire__Launch *next; /* arrived before the attempt was over */
    bool active;        /* an attempt is not over */
    bool ending;        /* after the attempt comes the end */
    bool keep;          /* the agent stays for another run */
    bool killing;       /* no grace */
    bool lost;          /* the controller is gone */
    bool unclean;       /* something could not be ended */
    bool said_bye;
    int signals; /* that asked for the end */
};

static nanoseconds grace_of(const struct serving *serving) {
    nanoseconds grace =
        serving->launch.body != NULL ? (nanoseconds)serving->launch.body->grace_ms * NS_PER_MS : 0;
    return serving->lost && grace > GRACE_LOST ? GRACE_LOST : grace;
}

static void stop_all(struct serving *serving, bool kill) {
    serving->killing |= kill;
    stacks_cancel(&serving->stacks);
    for (size_t i = 0; i < serving->n_children; i++) /* one that hangs would make nothing of a grace */
        child_stop(&serving->children[i], kill || serving->children[i].hung, grace_of(serving));
    if (kill) sweep_kill(&serving->sweep);
}

static void start_some(void *context) {
    struct serving *serving = context;
    struct template *template = serving->way == START_FORKED ? serving->service->template : NULL;
    if (serving->way == START_UNDECIDED) return;
    for (int i = 0; i < SPAWNS_A_TURN && serving->n_started < serving->n_children; i++) {
        struct child *child = &serving->children[serving->n_started];
        if (template != NULL && template_pending(template) >= FORKS_AT_ONCE) return; /* an answer goes on */
        if (child->stage == CHILD_PLANNED)
            child_start(child, &serving->launch, serving->n_started, &serving->channels, template);
        serving->n_started++;
    }
    if (serving->n_started < serving->n_children)
        (void)loop_timer_start(serving->loop, &serving->start_timer, 0);
}

/* A launch that cannot even begin fails each of its workers. */
static void refuse_launch(struct serving *serving, const Wire__Launch *body, const char *why) {
    for (size_t i = 0; i < body->n_workers; i++) {
        Wire__WorkerEvent event = WIRE__WORKER_EVENT__INIT;
        event.kind = WIRE__WORKER_EVENT__KIND__START_FAILED;
        event.rank = body->workers[i]->rank;
        char *text = strdup(why);
        if (text != NULL) event.text = text;
        outbox_event(&serving->outbox, event);
    }
}

static void refuse_planned(struct serving *serving, const char *why) {
    for (size_t i = 0; i < serving->n_children; i++)
        child_refuse(&serving->children[i], TY_ESTART, why);
    serving->n_started = serving->n_children;
}

/* Chosen: workers are executed instead. Demanded: it says why there are none. */
static void do_without_template(struct serving *serving, const char *why) {
    const char *method = serving->launch.body->start_method;
    if (!str_equal(method, "auto")) {
        CLEANUP(buffer_done) struct buffer text = {0};
        buffer_printf(&text, "workers cannot be forked from a template (start_method \"%s\"): %s", method, why);
        refuse_planned(serving, text.failed ? why : text.data);
        return;
    }
    outbox_log(&serving->outbox, LOG_LEVEL_WARNING,
               "node %s: workers start as fresh processes, not forked from a template: %s",
               serving->service->start->node_name, why);
    serving->way = START_EXECUTED;
}

/* The template can be asked, or not, or an answer of it has come. */
static void on_template(void *context) {
    struct serving *serving = context;
    const struct template *template = serving->service->template;
    if (!serving->active || serving->way == START_EXECUTED) return;
    enum template_state state = template_state(template);
    if (serving->way == START_UNDECIDED && state == TEMPLATE_READY) serving->way = START_FORKED;
    if (serving->way == START_UNDECIDED && state == TEMPLATE_REFUSED)
        do_without_template(serving, template_reason(template));
    if (serving->way == START_UNDECIDED && state == TEMPLATE_FAILED)
        refuse_planned(serving, template_reason(template));
    start_some(serving);
}

static void watch_for_preemption(struct serving *serving);

static void choose_way(struct serving *serving) {
    const Wire__Launch *body = serving->launch.body;
    serving->way = START_EXECUTED;
    if (body->start_method[0] == '\0' || body->n_workers == 0) return;
    serving->way = START_UNDECIDED;
    (void)template_prepare(serving->service->template, &serving->launch);
}

static void begin_attempt(struct serving *serving, const Wire__Launch *body) {
    ty_error err = {0};
    struct child *children = calloc(body->n_workers + 1, sizeof *children);
    int result = children == NULL ? ty_fail_memory(&err)
                                  : launch_init(&serving->launch, body, serving->service->nofile, &err);
    if (result < 0) {
        free(children);
        refuse_launch(serving, body, err.message);
        return;
    }
    if (!body->hold_port) held_port_close(&serving->port);
    for (size_t i = 0; i < body->n_workers; i++)
        children[i] = (struct child){.outbox = &serving->outbox,
                                     .oom = &serving->oom,
                                     .rank = body->workers[i]->rank,
                                     .grace = (nanoseconds)body->grace_ms * NS_PER_MS};
    serving->children = children;
    serving->n_children = body->n_workers;
    serving->n_started = serving->reaped_hint = 0;
    serving->active = true;
    serving->killing = false;
    serving->channels.run_path = serving->launch.body->run_path;
    serving->channels.attempt = body->attempt;
    watch_for_preemption(serving);
    hang_begin(&serving->hang, children, body->n_workers, (nanoseconds)body->hang_ms * NS_PER_MS);
    choose_way(serving);
    start_some(serving);
}

static void end_attempt(struct serving *serving) {
    hang_end(&serving->hang);
    oom_forget(&serving->oom);
    for (size_t i = 0; i < serving->n_children; i++)
        child_done(&serving->children[i]);
    free(TAKE(serving->children));
    template_forget(serving->service->template);
    serving->n_children = serving->n_started = 0;
    launch_done(&serving->launch);
    serving->active = false;
}

static bool all_gone(const struct serving *serving) {
    for (size_t i = 0; i < serving->n_children; i++)
        if (serving->children[i].stage != CHILD_GONE) return false;
    return true;
}

static void stop_loop(void *context) {
    struct serving *serving = context;
    loop_stop(serving->loop);
}

/* Whoever hears it may give the lease to another run, and begin one here: the lease is dropped first (unless nobody hears it: then it
 * is void at the end). What comes behind the end of a run is read with the next one. */
static void say_bye(struct serving *serving) {
    if (serving->lease_fd >= 0 && !serving->lost) (void)close(TAKE_FD(serving->lease_fd));
    if (serving->outbox.channel != NULL && serving->keep) channel_pause(serving->outbox.channel, true);
    Wire__Bye bye = WIRE__BYE__INIT;
    bye.leftovers = serving->sweep.leftovers;
    bye.clean = !serving->unclean;
    Wire__Message message = WIRE__MESSAGE__INIT;
    message.body_case = WIRE__MESSAGE__BODY_BYE;
    message.bye = &bye;
    outbox_flush(&serving->outbox); /* the last events come before it */
    outbox_send(&serving->outbox, &message);
    serving->said_bye = true;
    serving->goodbye = (struct loop_timer){.callback = stop_loop, .context = serving};
    (void)loop_timer_start(serving->loop, &serving->goodbye, GOODBYE_LIMIT);
}

static void swept(void *context, bool clean) {
    struct serving *serving = context;
    serving->unclean |= !clean;
    end_attempt(serving);
}

/* What descends from the template, and from nobody else, is left now. */
static void end_run(struct serving *serving) {
    if (template_leave(serving->service->template, serving->keep))
        sweep_start(&serving->sweep, 0);
    else
        say_bye(serving);
}

/* The next step, if there is one: from the attempt to the sweep, to the next launch or to the end. */
static void step(struct serving *serving) {
    if (serving->active && !serving->sweep.running && all_gone(serving) && !stacks_busy(&serving->stacks))
        sweep_start(&serving->sweep, serving->killing || serving->lost ? 0 : grace_of(serving));
    if (serving->active || serving->sweep.running || serving->said_bye) return;
    if (serving->ending) {
        end_run(serving);
    } else if (serving->next != NULL) {
        Wire__Launch *next = TAKE(serving->next);
        begin_attempt(serving, next);
        wire__launch__free_unpacked(next, NULL);
    }
}

static void lose_controller(struct serving *serving, const char *why);

/* A controller that has missed something is better off without this node. */
static void turn_ended(void *context) {
    struct serving *serving = context;
    step(serving);
    outbox_flush(&serving->outbox);
    if (serving->outbox.failed && serving->outbox.channel != NULL) {
        lose_controller(serving, ": out of memory for what it was to hear");
        step(serving); /* there may be no other turn */
    }
    bool told = serving->outbox.channel == NULL || channel_empty(serving->outbox.channel);
    if (serving->said_bye && told) loop_stop(serving->loop);
}

static void end_after(struct serving *serving, bool kill) {
    serving->ending = true;
    stop_all(serving, kill);
}

static void on_launch(struct serving *serving, const Wire__Launch *body) {
    if (serving->ending) {
        refuse_launch(serving, body, "this node's agent is ending");
    } else if (!serving->active) {
        begin_attempt(serving, body);
    } else {
        wire__launch__free_unpacked(serving->next, NULL);
        serving->next = launch_copy(body);
        if (serving->next == NULL) refuse_launch(serving, body, "out of memory");
    }
}

/* Workers may ask for it as soon as they are told to stop. */
static void set_preemption(struct serving *serving, const char *text) {
    free(serving->preemption);
    serving->preemption = text[0] != '\0' ? strdup(text) : NULL;
    serving->channels.preemption = serving->preemption;
}

static void on_stop(struct serving *serving, const Wire__Stop *stop) {
    if (stop->preemption[0] != '\0') set_preemption(serving, stop->preemption);
    if (stop->n_ranks == 0) {
        stop_all(serving, stop->kill);
        return;
    }
    for (size_t r = 0; r < stop->n_ranks; r++)
        for (size_t i = 0; i < serving->n_children; i++)
            if (serving->children[i].rank == stop->ranks[r])
                child_stop(&serving->children[i], stop->kill, grace_of(serving));
}

static void on_disturb(struct serving *serving, const Wire__Disturb *body) {
    for (size_t i = 0; i < serving->n_children; i++)
        if (serving->children[i].rank == body->rank)
            child_disturb(&serving->children[i], body->kind, (nanoseconds)body->length_ms * NS_PER_MS);
}

static void on_message(void *context, const Wire__Message *message) {
    struct serving *serving = context;
    switch (message->body_case) {
    case WIRE__MESSAGE__BODY_LAUNCH:
        on_launch(serving, message->launch);
        break;
    case WIRE__MESSAGE__BODY_STOP:
        on_stop(serving, message->stop);
        break;
    case WIRE__MESSAGE__BODY_DISTURB:
        on_disturb(serving, message->disturb);
        break;
    case WIRE__MESSAGE__BODY_STACKS:
        stacks_start(&serving->stacks, &serving->launch, serving->children, serving->n_children);
        break;
    case WIRE__MESSAGE__BODY_FINISH:
        serving->keep = message->finish->keep;
        end_after(serving, false);
        break;
    case WIRE__MESSAGE__BODY_STORE_REPLY:
        worker_channels_store_reply(&serving->channels, message->store_reply);
        break;
    case WIRE__MESSAGE__BODY_COMMITTED:
        worker_channels_committed(&serving->channels, message->committed);
        break;
    default:
        outbox_log(&serving->outbox, LOG_LEVEL_WARNING, "a message of kind %d came that an agent does not take",
                   (int)message->body_case);
    }
}

static void on_output(void *context, uint32_t rank, int stream, const uint8_t *bytes, size_t size) {
    (void)context, (void)rank, (void)stream, (void)bytes, (void)size; /* nothing that an agent takes */
}

static void on_drained(void *context) {
    struct serving *serving = context;
    outbox_wake(&serving->outbox);
}

static void lose_controller(struct serving *serving, const char *why) {
    channel_destroy(TAKE(serving->outbox.channel));
    serving->lost = !serving->said_bye;
    if (serving->lost) log_warning("agent", "the controller is gone%s: stopping", why);
    outbox_wake(&serving->outbox); /* nobody keeps workers from writing any more */
    end_after(serving, false);
}

static void on_closed(void *context, const ty_error *reason) {
    CLEANUP(buffer_done) struct buffer why = {0};
    if (reason->code != 0) buffer_printf(&why, ": %s", reason->message);
    lose_controller(context, why.size > 0 ? why.data : "");
}

/* A child that the controller forked may hold its end of the channel open. */
static void on_parent_gone(void *context, unsigned events) {
    (void)events;
    struct serving *serving = context;
    loop_watch_stop(serving->loop, &serving->parent);
    if (serving->outbox.channel != NULL) lose_controller(serving, "");
}

static struct child *find_running(struct serving *serving, pid_t pid) {
    for (size_t i = 0; i < serving->n_started; i++) {
        size_t at = (serving->reaped_hint + i) %
                    serving->n_started; /* workers tend to end in the order of their start */
        struct child *child = &serving->children[at];
        if (child->stage != CHILD_RUNNING || child->pid != pid) continue;
        serving->reaped_hint = at + 1;
        return child;
    }
    return NULL;
}

/* Everything that ended is reaped here, workers and the orphans that this process adopted. A worker's pid is ours until then,
 * so no signal ever reaches a stranger. */
static void on_child_signal(void *context, int signal_number) {
    (void)signal_number;
    struct serving *serving = context;
    int status;
    struct rusage usage;
    for (pid_t pid; (pid = wait4(-1, &status, WNOHANG, &usage)) > 0;) {
        if (template_reaped(serving->service->template, pid, status, usage.ru_maxrss)) continue;
        if (stacks_reaped(&serving->stacks, pid)) continue;
        struct child *child = find_running(serving, pid);
        if (child != NULL) child_reaped(child, status, usage.ru_maxrss);
    }
    for (size_t i = 0; i < serving->n_started; i++)
        child_check_group(&serving->children[i]);
    sweep_check(&serving->sweep);
}

/* {"deadline", "ranks", "nodes"}: this node and its workers. */
static void describe_preemption(struct serving *serving) {
    CLEANUP(buffer_done) struct buffer text = {0};
    double deadline = (double)(clock_wall() + grace_of(serving)) / (double)NS_PER_S;
    buffer_printf(&text, "{\"deadline\": %.3f, \"ranks\": [", deadline);
    for (size_t i = 0; i < serving->n_children; i++)
        buffer_printf(&text, "%s%u", i > 0 ? ", " : "", serving->children[i].rank);
    buffer_text(&text, "], \"nodes\": [");
    buffer_json_text(&text, serving->service->start->node_name);
    buffer_text(&text, "]}");
    if (!text.failed) set_preemption(serving, text.data);
}

/* The others are to save what they have as well. */
static void say_leaving(struct serving *serving, int signal_number) {
    Wire__Leaving body = WIRE__LEAVING__INIT;
    Wire__Message message = WIRE__MESSAGE__INIT;
    body.signal = signal_number;
    message.body_case = WIRE__MESSAGE__BODY_LEAVING;
    message.leaving = &body;
    outbox_send(&serving->outbox, &message);
}

static void on_stop_signal(void *context, int signal_number) {
    struct serving *serving = context;
    bool again = serving->signals++ > 0;
    log_info("agent", "signal %d: ending", signal_number);
    if (!again && serving->active) {
        if (signal_number == serving->launch.body->preempt_signal) describe_preemption(serving);
        say_leaving(serving, signal_number);
    }
    end_after(serving, again);
}

/* SIGTERM and SIGINT are heard in any case. */
static void watch_for_preemption(struct serving *serving) {
    int number = serving->launch.body->preempt_signal;
    if (number == 0 || number == SIGTERM || number == SIGINT || serving->preempt_signal.callback != NULL)
        return;
    serving->preempt_signal = (struct loop_signal){.callback = on_stop_signal, .context = serving};
    (void)loop_signal_start(serving->loop, &serving->preempt_signal, number);
}

static void on_hung(void *context, struct child *child) {
    struct serving *serving = context;
    struct buffer text = {0};
    Wire__WorkerEvent event = WIRE__WORKER_EVENT__INIT;
    event.kind = WIRE__WORKER_EVENT__KIND__HUNG;
    event.rank = child->rank;
    hang_describe(child->pid, serving->hang.limit, &text);
    if (!text.failed) event.text = buffer_take(&text);
    buffer_done(&text);
    outbox_event(&serving->outbox, event);
}

static void on_stacks(void *context, const struct buffer *frames) {
    struct serving *serving = context;
    Wire__Stacks body = WIRE__STACKS__INIT;
    Wire__Message message = WIRE__MESSAGE__INIT;
    body.frames = (ProtobufCBinaryData){frames->failed ? 0 : frames->size, (uint8_t *)frames->data};
    message.body_case = WIRE__MESSAGE__BODY_STACKS;
    message.stacks = &body;
    outbox_send(&serving->outbox, &message);
}

static int start_signals(struct serving *serving) {
    static const int stops[] = {SIGTERM, SIGINT};
    serving->child_signal = (struct loop_signal){.callback = on_child_signal, .context = serving};
    int code = loop_signal_start(serving->loop, &serving->child_signal, SIGCHLD);
    for (size_t i = 0; i < ARRAY_SIZE(stops) && code == 0; i++) {
        serving->stop_signals[i] = (struct loop_signal){.callback = on_stop_signal, .context = serving};
        code = loop_signal_start(serving->loop, &serving->stop_signals[i], stops[i]);
    }
    return code;
}

static void stop_signals(struct serving *serving) {
    loop_signal_stop(serving->loop, &serving->child_signal);
    for (size_t i = 0; i < ARRAY_SIZE(serving->stop_signals); i++)
        loop_signal_stop(serving->loop, &serving->stop_signals[i]);
    if (serving->preempt_signal.callback != NULL) loop_signal_stop(serving->loop, &serving->preempt_signal);
}

static void say_hello(struct serving *serving) {
    Wire__Hello hello = WIRE__HELLO__INIT;
    hello.protocol = FRAME_PROTOCOL;
    hello.version = (char *)base_build;
    hello.node = serving->service->start->node;
    hello.node_name = (char *)serving->service->start->node_name;
    hello.pid = getpid();
    hello.address = (char *)serving->port.address;
    hello.port = serving->port.port;
    Wire__Message message = WIRE__MESSAGE__INIT;
    message.body_case = WIRE__MESSAGE__BODY_HELLO;
    message.hello = &hello;
    outbox_send(&serving->outbox, &message);
    channel_flush(serving->outbox.channel);
}

static int watch_parent(struct serving *serving) {
    if (serving->service->parent_fd < 0) return 0;
    serving->parent = (struct loop_watch){.callback = on_parent_gone, .context = serving};
    return loop_watch_start(serving->loop, &serving->parent, serving->service->parent_fd, LOOP_READABLE);
}

static int open_run(struct serving *serving, ty_error *err) {
    static const struct channel_events events = {
        .message = on_message, .output = on_output, .drained = on_drained, .closed = on_closed};
    serving->loop = loop_create(err);
    if (serving->loop == NULL) return err->code;
    serving->outbox.loop = serving->sweep.loop = serving->loop;
    serving->channels.outbox = &serving->outbox;
    serving->hang = (struct hang){.loop = serving->loop, .found = on_hung, .context = serving};
    serving->stacks = (struct stacks){.loop = serving->loop, .done = on_stacks, .context = serving};
    serving->sweep.template = serving->service->template;
    serving->sweep.ended = swept;
    serving->sweep.context = serving;
    serving->start_timer = (struct loop_timer){.callback = start_some, .context = serving};
    if (held_port_open(&serving->port, err) < 0) return err->code;
    int code = start_signals(serving);
    if (code < 0) return ty_fail(err, code, "cannot catch signals: %s", strerror(-code));
    template_enter(serving->service->template, serving->loop, serving->service->start->log_path, on_template,
                   serving);
    code = watch_parent(serving);
    if (code < 0) return ty_fail(err, code, "cannot watch the controller: %s", strerror(-code));
    return channel_create(serving->loop, serving->service->channel_fd, &events, serving,
                          &serving->outbox.channel, err);
}

/* A kept agent's channel stays open: true. */
static bool close_channel(struct serving *serving) {
    struct channel *channel = TAKE(serving->outbox.channel);
    bool kept =
        channel != NULL && serving->keep && serving->said_bye && !serving->unclean && channel_empty(channel);
    if (kept)
        (void)channel_release(channel);
    else
        channel_destroy(channel);
    return kept;
}

static bool close_run(struct serving *serving) {
    if (serving->lease_fd >= 0) (void)close(serving->lease_fd);
    if (serving->loop == NULL) return false;
    (void)template_leave(serving->service->template, serving->keep);
    end_attempt(serving);
    wire__launch__free_unpacked(serving->next, NULL);
    worker_channels_done(&serving->channels);
    stacks_cancel(&serving->stacks);
    free(serving->preemption);
    sweep_done(&serving->sweep);
    held_port_close(&serving->port);
    stop_signals(serving);
    loop_watch_stop(serving->loop, &serving->parent);
    loop_timer_stop(serving->loop, &serving->start_timer);
    loop_timer_stop(serving->loop, &serving->goodbye);
    bool kept = close_channel(serving);
    outbox_done(&serving->outbox);
    loop_destroy(serving->loop);
    return kept;
}

enum served serve_run(const struct service *service) {
    ty_error err = {0};
    struct serving serving = {.service = service, .port.fd = -1, .lease_fd = service->lease_fd};
    int code = open_run(&serving, &err);
    if (code == 0) {
        oom_init(&serving.oom);
        say_hello(&serving);
        loop_on_turn_end(serving.loop, turn_ended, &serving);
        loop_run(serving.loop);
    } else {
        log_error("agent", "%s", err.message);
    }
    if (serving.lost && serving.lease_fd >= 0) lease_abandoned(serving.lease_fd);
    bool failed = code < 0 || serving.lost || serving.unclean;
    if (close_run(&serving)) return SERVED_KEPT;
    return failed ? SERVED_BADLY : SERVED;
}
