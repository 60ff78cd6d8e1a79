/* An agent that is adrift, and adopted: from the end of one controller to the first order of the next. Here are
 * the decision whether workers can go on, the door of a controller's own node, and what is told to the
 * controller that adopts. What is kept for that controller gathers elsewhere (outbox.c, worker_store.c);
 * whether the attempt is adopted is decided there (controller/adoption.c). */
#include "agent/adrift.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/node_run.h"
#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "base/module.h"
#include "base/process.h"

/* Others of the machine may knock as well. */
enum { KNOCKS_WAITING = 64, LOOK_EACH_MS = 20 };
#define HEARD_LIMIT (5 * NS_PER_S)

/* -- the door of an agent on the controller's machine */

/* However the directory is spelled, the name is one. */
static int open_at(const char *run_path, const char *node_name, bool listens) {
    struct sockaddr_un name;
    struct stat status;
    if (stat(run_path, &status) < 0) return -errno;
    socklen_t size = descriptors_name(&name, "trainyard-run-%llx-%llx-%s", (unsigned long long)status.st_dev,
                                      (unsigned long long)status.st_ino, node_name);
    CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -errno;
    const struct sockaddr *address = (const struct sockaddr *)&name;
    bool done = listens ? bind(fd, address, size) == 0 && listen(fd, KNOCKS_WAITING) == 0
                        : connect(fd, address, size) == 0;
    return done ? TAKE_FD(fd) : -errno;
}

int adrift_connect(const char *run_path, const char *node_name) {
    return open_at(run_path, node_name, false);
}

bool adrift_await_end(const char *run_path, const char *node_name, nanoseconds limit, pid_t *pid, uid_t *user) {
    nanoseconds end = clock_monotonic() + limit;
    *pid = 0;
    for (;;) {
        CLEANUP_FD int fd = adrift_connect(run_path, node_name);
        if (fd == -ECONNREFUSED || fd == -ENOENT) return true;
        /* Where it is not the agent, or no more may wait there, one looks again. */
        bool heard = fd >= 0 && process_is_trusted(fd, pid, user);
        nanoseconds left = end - clock_monotonic();
        if (left <= 0) return false;
        struct pollfd hangs_up = {.fd = heard ? fd : -1, .events = POLLIN};
        (void)poll(&hangs_up, 1, heard ? (int)(left / NS_PER_MS) + 1 : LOOK_EACH_MS);
    }
}

/* -- what is kept */

static void turn(void *context) {
    const struct node_run *run = context;
    for (size_t i = 0; i < run->n_workers; i++) {
        struct speaker *speaker = &run->workers[i].speaker;
        speaker->dropped = speaker->turned;
        speaker->turned = speaker->reports;
    }
}

static void close_door(struct node_run *run) {
    struct adrift *adrift = &run->adrift;
    loop_listener_stop(&adrift->knocked);
    descriptors_close(&adrift->door);
}

/* A local agent has a door also where its workers do not outlive the controller: one that begins anew waits for
 * its end. Where there can be none workers start all the same, and the user is told what they will not
 * survive. */
void adrift_prepare(struct node_run *run) {
    const Wire__Launch *body = run->launch.body;
    bool outlives = body->outlive > 0;
    bool joined = run->service->leased != NULL;
    close_door(run);
    if (!joined) run->adrift.door = open_at(body->run_path, run->service->start->node_name, true);
    descriptors_withhold(run->adrift.door);
    if (outlives && !joined && run->adrift.door < 0) {
        outlives = false;
        outbox_log(&run->outbox, LOG_LEVEL_WARNING,
                   "node %s: workers will not outlive the controller: where another one would look for their "
                   "agent, it cannot listen: %s",
                   run->service->start->node_name, strerror(-run->adrift.door));
    }
    run->outbox.kept.turned = turn;
    run->outbox.kept.context = run;
    outbox_keep(&run->outbox, outlives);
    worker_channels_keep(&run->channels, outlives);
}

/* A controller that begins anew waits for the end of the channel, and behind that for the end of the door. */
void adrift_forget(struct node_run *run) {
    close_door(run);
    channel_destroy(TAKE(run->adrift.channel));
    outbox_keep(&run->outbox, false);
    worker_channels_keep(&run->channels, false);
}

/* -- what another controller is told */

struct told {
    Wire__Adrift body;
    Wire__AdriftWorker *workers, **worker_list;
    Wire__AdriftValue *values, **value_list;
};

static void free_told(struct told *told) {
    free(told->workers);
    free(told->worker_list);
    free(told->values);
    free(told->value_list);
}

/* Borrows from the run but for the lists: nothing may change before it is packed. False without memory. */
static bool fill_told(const struct node_run *run, struct told *told) {
    const Wire__Launch *launch = run->launch.body;
    const struct kept_values *values = &run->channels.values;
    wire__adrift__init(&told->body);
    told->workers = calloc(run->n_workers + 1, sizeof *told->workers);
    told->worker_list = calloc(run->n_workers + 1, sizeof *told->worker_list);
    told->values = calloc(values->n + 1, sizeof *told->values);
    told->value_list = calloc(values->n + 1, sizeof *told->value_list);
    if (told->workers == NULL || told->worker_list == NULL || told->values == NULL || told->value_list == NULL)
        return false;
    told->body.run = launch->run;
    told->body.attempt = launch->attempt;
    told->body.token = launch->token;
    told->body.work = launch->work;
    told->body.report_base = launch->report_base;
    for (size_t i = 0; i < run->n_workers; i++) {
        const struct speaker *speaker = &run->workers[i].speaker;
        Wire__AdriftWorker *worker = told->worker_list[i] = &told->workers[i];
        wire__adrift_worker__init(worker);
        worker->rank = run->workers[i].rank;
        worker->reports = speaker->reports;
        worker->dropped = speaker->dropped;
        worker->unfinished = speaker_unfinished(speaker);
        worker->gathers = speaker->gathers;
    }
    for (size_t i = 0; i < values->n; i++) {
        const struct kept_value *kept = &values->items[i];
        Wire__AdriftValue *value = told->value_list[i] = &told->values[i];
        wire__adrift_value__init(value);
        value->key = kept->key;
        value->added = kept->value == NULL;
        value->sum = kept->sum;
        value->value = (ProtobufCBinaryData){kept->size, (uint8_t *)kept->value};
    }
    told->body.n_workers = run->n_workers;
    told->body.workers = told->worker_list;
    told->body.n_values = values->n;
    told->body.values = told->value_list;
    return true;
}

/* The agent of the controller's own node says no more than who it is: that one knows the node. */
static Wire__Join make_join(const struct node_run *run, struct told *told) {
    const struct agent_service *leased = run->service->leased;
    Wire__Join join = WIRE__JOIN__INIT;
    if (leased != NULL) join = *leased->way->join;
    join.protocol = FRAME_PROTOCOL;
    join.version = (char *)base_build;
    join.pid = getpid();
    join.time = clock_wall();
    join.swept = false;
    join.trial_port = 0;
    join.adrift = &told->body;
    if (leased == NULL) join.node_name = run->service->start->node_name;
    return join;
}

static bool say_join(const struct node_run *run, struct channel *channel) {
    const struct agent_service *leased = run->service->leased;
    CLEANUP(free_told) struct told told = {0};
    if (!fill_told(run, &told)) return false;
    Wire__Join join = make_join(run, &told);
    if (channel_send(channel, &WIRE_MESSAGE(JOIN, join, &join)) < 0) return false;
    if (leased != NULL) channel_keep_alive(channel, CHANNEL_LEASED);
    channel_flush(channel);
    return true;
}

/* -- whether workers can go on */

/* All of it must fit into one message, the first of a channel, whatever the numbers of reports come to. */
static bool can_be_told(const struct node_run *run) {
    CLEANUP(free_told) struct told told = {0};
    if (!fill_told(run, &told)) return false;
    for (size_t i = 0; i < run->n_workers; i++)
        told.workers[i].reports = told.workers[i].unfinished = INT64_MAX;
    Wire__Join join = make_join(run, &told);
    return wire__message__get_packed_size(&WIRE_MESSAGE(JOIN, join, &join)) <= FRAME_MAX_HELLO;
}

/* Nothing may be under way that another controller could not take up: a start or a stop, a sum in the store,
 * which would be added a second time, files of a node whose storage is apart, which went through the controller
 * that is gone, or a worker's input or terminal, which were that controller's own. */
bool adrift_is_possible(const struct node_run *run) {
    const struct service *service = run->service;
    bool has_workers = run->phase == NODE_RUN_ATTEMPT || run->phase == NODE_RUN_SWEPT;
    if (!has_workers || !run->outbox.kept.wanted || run->outbox.failed) return false;
    if (run->ending || run->killing || run->next != NULL || service->status >= 0) return false;
    if (service->leased != NULL && service->leased->way == NULL) return false;
    if (run->n_started < run->n_workers || run->storage.state == STORAGE_APART || run->channels.values.lost ||
        stacks_busy(&run->stacks))
        return false;
    for (size_t i = 0; i < run->n_workers; i++) {
        const struct worker_process *worker = &run->workers[i];
        const Wire__LaunchWorker *body = run->launch.body->workers[i];
        uint64_t unfinished = speaker_unfinished(&worker->speaker);
        bool lives = worker->stage == PROCESS_RUNNING && worker->stop == STOP_NONE;
        /* By itself, which the controller may have died without having heard of. */
        bool has_ended = worker->ended_at > 0 && worker->stop < STOP_INTERRUPTED;
        if ((!lives && !has_ended) || worker->told || worker->hung || body->input || body->pty ||
            speaker_waits_for_sum(&worker->speaker) ||
            (unfinished > 0 && unfinished <= worker->speaker.dropped))
            return false;
    }
    return run->n_workers > 0 && can_be_told(run);
}

/* -- adopted */

/* The events with which each worker began: what of them is on record already fits no state of the worker there,
 * and changes nothing. */
static void tell_workers(struct node_run *run) {
    CLEANUP_FREE Wire__WorkerEvent *events = calloc(3 * run->n_workers + 1, sizeof *events);
    CLEANUP_FREE Wire__WorkerEvent **list = calloc(3 * run->n_workers + 1, sizeof *list);
    Wire__WorkerEvents body = WIRE__WORKER_EVENTS__INIT;
    if (events == NULL || list == NULL) {
        run->outbox.failed = true;
        return;
    }
    for (size_t i = 0; i < run->n_workers; i++) {
        const struct worker_process *worker = &run->workers[i];
        const bool said[] = {true, worker->speaker.ready, worker->speaker.rendezvous};
        static const Wire__WorkerEvent__Kind kinds[] = {WIRE__WORKER_EVENT__KIND__STARTED,
                                                        WIRE__WORKER_EVENT__KIND__READY,
                                                        WIRE__WORKER_EVENT__KIND__RENDEZVOUS};
        for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
            if (!said[k]) continue;
            Wire__WorkerEvent *event = list[body.n_events] = &events[body.n_events];
            body.n_events++;
            wire__worker_event__init(event);
            event->kind = kinds[k];
            event->rank = worker->rank;
            event->pid = worker->pid;
            event->time = clock_wall();
        }
    }
    body.events = list;
    outbox_send(&run->outbox, &WIRE_MESSAGE(EVENTS, events, &body));
}

/* -- on the way to another controller */

static void look_for_another(struct node_run *run, nanoseconds proven, bool fault);

static void on_message(void *context, const Wire__Message *message) {
    struct node_run *run = context;
    if (!run->adrift.on) return;
    bool starts = message->body_case == WIRE__MESSAGE__BODY_START;
    if (starts && message->start->adopt) {
        struct channel *channel = TAKE(run->adrift.channel);
        adrift_end(run);
        run->outbox.adrift = false;
        node_run_follow(run, channel);
        tell_workers(run);
        /* What workers did meanwhile comes at the end of the turn. */
        outbox_send_kept(&run->outbox);
        for (size_t i = 0; i < run->n_workers; i++)
            speaker_ask_again(&run->workers[i].speaker);
        outbox_wake(&run->outbox);
    } else if (starts || message->body_case == WIRE__MESSAGE__BODY_DISMISSAL) {
        node_run_lose(run, ", and another one begins anew", STOP_TOLD);
    }
}

static void on_closed(void *context, const ty_error *reason) {
    struct node_run *run = context;
    nanoseconds proven = channel_proven_at(run->adrift.channel);
    channel_destroy(TAKE(run->adrift.channel));
    if (run->adrift.on) look_for_another(run, proven, reason->code != 0);
}

static void on_there(void *context, struct transport *transport) {
    static const struct channel_events events = {.message = on_message, .closed = on_closed};
    struct node_run *run = context;
    struct adrift *adrift = &run->adrift;
    if (run->service->leased == NULL) { /* once it has said something its end is waited for */
        nanoseconds soonest = clock_boot() + HEARD_LIMIT;
        if (adrift->until < soonest) adrift->until = soonest;
        (void)loop_timer_start(run->loop, &adrift->limit, 0);
    }
    if (channel_create_over(run->loop, transport, &events, run, &adrift->channel, NULL) < 0)
        transport_close(transport);
    if (adrift->channel == NULL || !say_join(run, adrift->channel))
        node_run_lose(run, ", and another one cannot be told what goes on here", STOP_TOLD);
    else
        adrift->came_at = channel_heard_at(adrift->channel);
}

/* The run is one controller's at a time (run_lock.h): who comes last is that one, and the end of the one before
 * has not been heard yet. */
static void let_in(void *context, int fd) {
    struct node_run *run = context;
    pid_t pid;
    uid_t user;
    if (!process_is_trusted(fd, &pid, &user)) {
        if (!run->adrift.turned_away)
            log_warning("agent", "process %d of user %u, who came in place of a controller, was turned away",
                        pid, (unsigned)user);
        run->adrift.turned_away = true;
        (void)close(fd);
        return;
    }
    channel_destroy(TAKE(run->adrift.channel));
    struct transport transport = TRANSPORT_PLAIN(fd);
    on_there(run, &transport);
}

/* The channel has a lease once its controller has said that it counts this node as alive. Whoever says nothing
 * may be the controller before, which has given the node up, or none. */
static void on_limit(void *context) {
    struct node_run *run = context;
    struct adrift *adrift = &run->adrift;
    nanoseconds left = adrift->until - clock_boot();
    if (left > 0)
        (void)loop_timer_start(run->loop, &adrift->limit, left);
    else if (adrift->channel == NULL || channel_heard_at(adrift->channel) == adrift->came_at)
        node_run_lose(run, ", and no other one came in time", STOP_KILLED);
}

/* Without a network there is no doubt: the controller is gone. */
static void look_for_another(struct node_run *run, nanoseconds proven, bool fault) {
    struct adrift *adrift = &run->adrift;
    const struct agent_service *leased = run->service->leased;
    nanoseconds time = run->launch.body->outlive;
    if (leased != NULL && fault && time > CHANNEL_LEASE) time = CHANNEL_LEASE;
    adrift->until = (leased != NULL ? proven : clock_boot()) + time;
    int result = loop_timer_start(run->loop, &adrift->limit, 0);
    if (result == 0 && leased != NULL)
        result = leased->way->begin(leased->way->context, run->loop, on_there, run);
    else if (result == 0 && adrift->knocked.loop == NULL)
        result = loop_listener_start(run->loop, &adrift->knocked, adrift->door);
    if (result < 0) node_run_lose(run, ", and another one cannot be looked for", STOP_TOLD);
}

bool adrift_begin(struct node_run *run, nanoseconds proven, bool fault) {
    struct adrift *adrift = &run->adrift;
    if (!adrift_is_possible(run)) return false;
    log_warning("agent", "the controller is gone: workers go on");
    adrift->on = run->outbox.adrift = true;
    adrift->limit = (struct loop_timer){.callback = on_limit, .context = run};
    adrift->knocked = (struct loop_listener){.connected = let_in, .context = run};
    adrift->turned_away = false;
    outbox_wake(&run->outbox);
    look_for_another(run, proven, fault);
    return true;
}

void adrift_end(struct node_run *run) {
    struct adrift *adrift = &run->adrift;
    const struct agent_service *leased = run->service->leased;
    if (!adrift->on) return;
    adrift->on = false;
    loop_timer_stop(run->loop, &adrift->limit);
    loop_listener_stop(&adrift->knocked);
    if (leased == NULL) return;
    leased->way->end(leased->way->context);
    channel_destroy(TAKE(adrift->channel));
}
