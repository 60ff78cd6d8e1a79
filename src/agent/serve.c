/* One run on its agent: hello, attempts one after another, and the end.
 *
 * An attempt is over when all its workers are gone; then the sweep; then the next launch, or the end. Whatever asks for the end
 * (finish, a signal, the loss of the controller) only stops the attempt and notes it: `step`, at the end of every turn, takes the
 * next step. */
#include "agent/serve.h"

#include <string.h>
#include <unistd.h>

#include "agent/serving.h"
#include "base/build.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "cluster/lease.h"

#define GOODBYE_LIMIT (5 * NS_PER_S) /* for the controller to take the last message */

static void stop_loop(void *context) {
    struct serving *serving = context;
    loop_stop(serving->loop);
}

/* Whoever hears it may give the lease to another run, and begin one here: the lease is dropped first (unless nobody hears it: then it
 * is void at the end). What comes behind the end of a run is read with the next one. */
static void say_bye(struct serving *serving) {
    if (serving->logs.given_up) serving->keep = false; /* its thread does not end */
    if (serving->lease_fd >= 0 && !serving->lost) (void)close(TAKE_FD(serving->lease_fd));
    if (serving->outbox.channel != NULL && serving->keep) channel_pause(serving->outbox.channel, true);
    Wire__Bye bye = WIRE__BYE__INIT;
    bye.leftovers = serving->sweep.leftovers;
    bye.clean = !serving->unclean;
    outbox_flush(&serving->outbox); /* the last events come before it */
    outbox_send(&serving->outbox, &WIRE_MESSAGE(BYE, bye, &bye));
    serving->said_bye = true;
    serving->goodbye = (struct loop_timer){.callback = stop_loop, .context = serving};
    (void)loop_timer_start(serving->loop, &serving->goodbye, GOODBYE_LIMIT);
}

/* What workers gave away may lie in the memory of this node, and there is no controller any more to clear up behind them. */
static void drop_given(const struct serving *serving) {
    const Wire__Launch *body = serving->launch.body;
    if (body != NULL && body->run_path[0] != '\0') checkpoint_sweep_given(body->run_path, (int)body->attempt);
}

static void swept(void *context, bool clean) {
    struct serving *serving = context;
    serving->unclean |= !clean;
    if (serving->lost) drop_given(serving);
    attempt_end(serving);
}

/* What descends from the template, and from nobody else, is left now. */
static void end_run(struct serving *serving) {
    if (template_leave(serving->service->template, serving->keep))
        sweep_start(&serving->sweep, 0);
    else if (logs_finish(&serving->logs, serving->lost ? 0 : serving->log_limit))
        say_bye(serving);
}

/* The next step, if there is one: from the attempt to the sweep, to the next launch or to the end. */
static void step(struct serving *serving) {
    if (serving->active && !serving->sweep.running && attempt_all_gone(serving) &&
        !stacks_busy(&serving->stacks))
        sweep_start(&serving->sweep, serving->killing || serving->lost ? 0 : attempt_grace(serving));
    if (serving->active || serving->sweep.running || serving->said_bye) return;
    if (serving->ending) {
        end_run(serving);
    } else if (serving->next != NULL) {
        Wire__Launch *next = TAKE(serving->next);
        attempt_begin(serving, next);
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

void serving_end(struct serving *serving, bool kill) {
    serving->ending = true;
    attempt_stop(serving, kill);
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
    serving_end(serving, false);
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

static void on_hung(void *context, struct child *child) {
    struct serving *serving = context;
    struct buffer text = {0};
    Wire__WorkerEvent event = WIRE__WORKER_EVENT__INIT;
    event.kind = WIRE__WORKER_EVENT__KIND__HUNG;
    event.rank = child->rank;
    hang_describe(child->pid, serving->hang.limit, &text);
    if (child->silent_since > 0) buffer_text(&text, "; it has closed its report channel");
    if (!text.failed) event.text = buffer_take(&text);
    buffer_done(&text);
    outbox_event(&serving->outbox, event);
}

static void on_stacks(void *context, const struct buffer *frames) {
    struct serving *serving = context;
    Wire__Stacks body = WIRE__STACKS__INIT;
    body.frames = (ProtobufCBinaryData){frames->failed ? 0 : frames->size, (uint8_t *)frames->data};
    outbox_send(&serving->outbox, &WIRE_MESSAGE(STACKS, stacks, &body));
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
    outbox_send(&serving->outbox, &WIRE_MESSAGE(HELLO, hello, &hello));
    channel_flush(serving->outbox.channel);
}

/* What its storage does is for the user to know. */
static void write_log(void *context, enum log_level level, const char *subsystem, const char *text) {
    struct serving *serving = context;
    CLEANUP(buffer_done) struct buffer line = {0};
    buffer_printf(&line, "%s: %s\n", subsystem, text);
    if (!line.failed) log_add(serving->log, line.data, line.size);
    if (!str_equal(subsystem, "storage")) return;
    Wire__Log log = WIRE__LOG__INIT;
    log.level = (uint32_t)level;
    log.text = (char *)text;
    outbox_send(&serving->outbox, &WIRE_MESSAGE(LOG, log, &log));
}

static void warn(void *context, const char *text) {
    outbox_log(&((struct serving *)context)->outbox, LOG_LEVEL_WARNING, "%s", text);
}

static void on_log_room(void *context) {
    struct serving *serving = context;
    for (size_t i = 0; i < serving->n_children; i++)
        relay_go_on(&serving->children[i].relay);
}

static int open_logs(struct serving *serving, ty_error *err) {
    const char *path = serving->service->start->log_path;
    serving->logs =
        (struct logs){.loop = serving->loop, .warn = warn, .drained = on_log_room, .context = serving};
    serving->log_limit = LOG_LIMIT;
    int result = logs_open(&serving->logs, err);
    if (result < 0) return result;
    if (path[0] != '\0') serving->log = log_open(&serving->logs, path, -1);
    if (serving->log != NULL) log_set_sink(write_log, serving);
    return 0;
}

/* Messages that come later are nobody's. */
static void close_logs(struct serving *serving) {
    log_set_sink(NULL, NULL);
    logs_close(&serving->logs);
}

static int watch_parent(struct serving *serving) {
    if (serving->service->parent_fd < 0) return 0;
    serving->parent = (struct loop_watch){.callback = on_parent_gone, .context = serving};
    return loop_watch_start(serving->loop, &serving->parent, serving->service->parent_fd, LOOP_READABLE);
}

static int open_run(struct serving *serving, ty_error *err) {
    static const struct channel_events events = {
        .message = orders_take, .output = on_output, .drained = on_drained, .closed = on_closed};
    serving->loop = loop_create(err);
    if (serving->loop == NULL) return err->code;
    serving->outbox.loop = serving->sweep.loop = serving->loop;
    serving->channels.outbox = &serving->outbox;
    serving->hang = (struct hang){.loop = serving->loop, .found = on_hung, .context = serving};
    serving->stacks = (struct stacks){.loop = serving->loop, .done = on_stacks, .context = serving};
    serving->sweep.template = serving->service->template;
    serving->sweep.ended = swept;
    serving->sweep.context = serving;
    serving->start_timer = (struct loop_timer){.callback = attempt_go_on, .context = serving};
    int opened = open_logs(serving, err);
    if (opened < 0) return opened;
    if (held_port_open(&serving->port, err) < 0) return err->code;
    int code = signals_start(serving);
    if (code < 0) return ty_fail(err, code, "cannot catch signals: %s", strerror(-code));
    template_enter(serving->service->template, serving->loop, serving->service->start->log_path,
                   attempt_template_changed, serving);
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
    attempt_end(serving);
    wire__launch__free_unpacked(serving->next, NULL);
    worker_channels_done(&serving->channels);
    stacks_cancel(&serving->stacks);
    free(serving->preemption);
    sweep_done(&serving->sweep);
    close_logs(serving);
    held_port_close(&serving->port);
    signals_stop(serving);
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
