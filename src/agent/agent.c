/* The agent's frame: set-up of its process, messages of the controller, attempts one after another, and its end.
 *
 * An attempt is over when all its workers are gone; then the sweep; then the next launch, or the end. Whatever asks for the end
 * (finish, a signal, the loss of the controller) only stops the attempt and notes it: `go_on`, at the end of every turn, takes the
 * next step. */
#include "agent/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/child.h"
#include "agent/held_port.h"
#include "agent/sweep.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "cluster/lease.h"

enum { SPAWNS_A_TURN = 8 };
#define GRACE_LOST (1 * NS_PER_S)    /* without a controller nobody waits for a polite end */
#define GOODBYE_LIMIT (5 * NS_PER_S) /* for the controller to take the last message */

struct agent {
    const struct agent_config *config;
    struct loop *loop;
    struct outbox outbox;
    struct worker_channels channels;
    struct oom oom;
    struct held_port port;
    struct rlimit nofile; /* as it was: of workers */
    struct sweep sweep;
    struct loop_signal child_signal, stop_signals[2];

    struct launch launch; /* of the current attempt */
    struct child *children;
    size_t n_children;
    size_t n_started; /* the first ones were started, or need not be */
    size_t reaped_hint;
    struct loop_timer start_timer;
    struct loop_timer goodbye;

    Wire__Launch *next; /* arrived before the attempt was over */
    bool active;        /* an attempt is not over */
    bool ending;        /* after the attempt comes the end */
    bool killing;       /* no grace */
    bool lost;          /* the controller is gone */
    bool unclean;       /* something could not be ended */
    bool said_bye;
    int signals; /* that asked for the end */
};

static nanoseconds grace_of(const struct agent *agent) {
    nanoseconds grace = agent->launch.body != NULL ? (nanoseconds)agent->launch.body->grace_ms * NS_PER_MS : 0;
    return agent->lost && grace > GRACE_LOST ? GRACE_LOST : grace;
}

static void stop_all(struct agent *agent, bool kill) {
    agent->killing |= kill;
    for (size_t i = 0; i < agent->n_children; i++)
        child_stop(&agent->children[i], kill, grace_of(agent));
    if (kill) sweep_kill(&agent->sweep);
}

static void start_some(void *context) {
    struct agent *agent = context;
    for (int i = 0; i < SPAWNS_A_TURN && agent->n_started < agent->n_children; i++) {
        struct child *child = &agent->children[agent->n_started];
        if (child->stage == CHILD_PLANNED)
            child_start(child, &agent->launch, agent->n_started, &agent->channels);
        agent->n_started++;
    }
    if (agent->n_started < agent->n_children) (void)loop_timer_start(agent->loop, &agent->start_timer, 0);
}

/* A launch that cannot even begin fails each of its workers. */
static void refuse_launch(struct agent *agent, const Wire__Launch *body, const char *why) {
    for (size_t i = 0; i < body->n_workers; i++) {
        Wire__WorkerEvent event = WIRE__WORKER_EVENT__INIT;
        event.kind = WIRE__WORKER_EVENT__KIND__START_FAILED;
        event.rank = body->workers[i]->rank;
        char *text = strdup(why);
        if (text != NULL) event.text = text;
        outbox_event(&agent->outbox, event);
    }
}

static void begin_attempt(struct agent *agent, const Wire__Launch *body) {
    ty_error err = {0};
    struct child *children = calloc(body->n_workers + 1, sizeof *children);
    int result =
        children == NULL ? ty_fail_memory(&err) : launch_init(&agent->launch, body, &agent->nofile, &err);
    if (result < 0) {
        free(children);
        refuse_launch(agent, body, err.message);
        return;
    }
    if (!body->hold_port) held_port_close(&agent->port);
    for (size_t i = 0; i < body->n_workers; i++)
        children[i] = (struct child){.outbox = &agent->outbox,
                                     .oom = &agent->oom,
                                     .rank = body->workers[i]->rank,
                                     .grace = (nanoseconds)body->grace_ms * NS_PER_MS};
    agent->children = children;
    agent->n_children = body->n_workers;
    agent->n_started = agent->reaped_hint = 0;
    agent->active = true;
    agent->killing = false;
    agent->channels.run_path = agent->launch.body->run_path;
    agent->channels.attempt = body->attempt;
    start_some(agent);
}

static void end_attempt(struct agent *agent) {
    for (size_t i = 0; i < agent->n_children; i++)
        child_done(&agent->children[i]);
    free(TAKE(agent->children));
    agent->n_children = agent->n_started = 0;
    launch_done(&agent->launch);
    agent->active = false;
}

static bool all_gone(const struct agent *agent) {
    for (size_t i = 0; i < agent->n_children; i++)
        if (agent->children[i].stage != CHILD_GONE) return false;
    return true;
}

static void stop_loop(void *context) {
    struct agent *agent = context;
    loop_stop(agent->loop);
}

static void say_bye(struct agent *agent) {
    Wire__Bye bye = WIRE__BYE__INIT;
    bye.leftovers = agent->sweep.leftovers;
    bye.clean = !agent->unclean;
    Wire__Message message = WIRE__MESSAGE__INIT;
    message.body_case = WIRE__MESSAGE__BODY_BYE;
    message.bye = &bye;
    outbox_flush(&agent->outbox); /* the last events come before it */
    outbox_send(&agent->outbox, &message);
    agent->said_bye = true;
    agent->goodbye = (struct loop_timer){.callback = stop_loop, .context = agent};
    (void)loop_timer_start(agent->loop, &agent->goodbye, GOODBYE_LIMIT);
}

static void swept(void *context, bool clean) {
    struct agent *agent = context;
    agent->unclean |= !clean;
    end_attempt(agent);
}

/* The next step, if there is one: from the attempt to the sweep, to the next launch or to the end. */
static void step(struct agent *agent) {
    if (agent->active && !agent->sweep.running && all_gone(agent))
        sweep_start(&agent->sweep, agent->killing || agent->lost ? 0 : grace_of(agent));
    if (agent->active || agent->said_bye) return;
    if (agent->ending) {
        say_bye(agent);
    } else if (agent->next != NULL) {
        Wire__Launch *next = TAKE(agent->next);
        begin_attempt(agent, next);
        wire__launch__free_unpacked(next, NULL);
    }
}

static void turn_ended(void *context) {
    struct agent *agent = context;
    step(agent);
    outbox_flush(&agent->outbox);
    bool told = agent->outbox.channel == NULL || channel_empty(agent->outbox.channel);
    if (agent->said_bye && told) loop_stop(agent->loop);
}

static void end_after(struct agent *agent, bool kill) {
    agent->ending = true;
    stop_all(agent, kill);
}

static void on_launch(struct agent *agent, const Wire__Launch *body) {
    if (agent->ending) {
        refuse_launch(agent, body, "this node's agent is ending");
    } else if (!agent->active) {
        begin_attempt(agent, body);
    } else {
        wire__launch__free_unpacked(agent->next, NULL);
        agent->next = launch_copy(body);
        if (agent->next == NULL) refuse_launch(agent, body, "out of memory");
    }
}

static void on_stop(struct agent *agent, const Wire__Stop *stop) {
    if (stop->n_ranks == 0) {
        stop_all(agent, stop->kill);
        return;
    }
    for (size_t r = 0; r < stop->n_ranks; r++)
        for (size_t i = 0; i < agent->n_children; i++)
            if (agent->children[i].rank == stop->ranks[r])
                child_stop(&agent->children[i], stop->kill, grace_of(agent));
}

static void on_message(void *context, const Wire__Message *message) {
    struct agent *agent = context;
    switch (message->body_case) {
    case WIRE__MESSAGE__BODY_LAUNCH:
        on_launch(agent, message->launch);
        break;
    case WIRE__MESSAGE__BODY_STOP:
        on_stop(agent, message->stop);
        break;
    case WIRE__MESSAGE__BODY_FINISH:
        end_after(agent, false);
        break;
    case WIRE__MESSAGE__BODY_STORE_REPLY:
        worker_channels_store_reply(&agent->channels, message->store_reply);
        break;
    case WIRE__MESSAGE__BODY_COMMITTED:
        worker_channels_committed(&agent->channels, message->committed);
        break;
    default:
        outbox_log(&agent->outbox, LOG_LEVEL_WARNING, "a message of kind %d came that an agent does not take",
                   (int)message->body_case);
    }
}

static void on_output(void *context, uint32_t rank, int stream, const uint8_t *bytes, size_t size) {
    (void)context, (void)rank, (void)stream, (void)bytes, (void)size; /* nothing that an agent takes */
}

static void on_drained(void *context) {
    struct agent *agent = context;
    outbox_wake(&agent->outbox);
}

static void on_closed(void *context, const ty_error *reason) {
    struct agent *agent = context;
    channel_destroy(TAKE(agent->outbox.channel));
    agent->lost = !agent->said_bye;
    if (agent->lost)
        log_warning("agent", "the controller is gone%s%s: stopping", reason->code != 0 ? ": " : "",
                    reason->message);
    outbox_wake(&agent->outbox); /* nobody keeps workers from writing any more */
    end_after(agent, false);
}

static struct child *find_running(struct agent *agent, pid_t pid) {
    for (size_t i = 0; i < agent->n_started; i++) {
        size_t at =
            (agent->reaped_hint + i) % agent->n_started; /* workers tend to end in the order of their start */
        struct child *child = &agent->children[at];
        if (child->stage != CHILD_RUNNING || child->pid != pid) continue;
        agent->reaped_hint = at + 1;
        return child;
    }
    return NULL;
}

/* Everything that ended is reaped here, workers and the orphans that this process adopted. A worker's pid is ours until then,
 * so no signal ever reaches a stranger. */
static void on_child_signal(void *context, int signal_number) {
    (void)signal_number;
    struct agent *agent = context;
    int status;
    struct rusage usage;
    for (pid_t pid; (pid = wait4(-1, &status, WNOHANG, &usage)) > 0;) {
        struct child *child = find_running(agent, pid);
        if (child != NULL) child_reaped(child, status, usage.ru_maxrss);
    }
    for (size_t i = 0; i < agent->n_started; i++)
        child_check_group(&agent->children[i]);
    sweep_check(&agent->sweep);
}

static void on_stop_signal(void *context, int signal_number) {
    struct agent *agent = context;
    log_info("agent", "signal %d: ending", signal_number);
    end_after(agent, ++agent->signals > 1);
}

static int start_signals(struct agent *agent) {
    static const int stops[] = {SIGTERM, SIGINT};
    agent->child_signal = (struct loop_signal){.callback = on_child_signal, .context = agent};
    int code = loop_signal_start(agent->loop, &agent->child_signal, SIGCHLD);
    for (size_t i = 0; i < ARRAY_SIZE(stops) && code == 0; i++) {
        agent->stop_signals[i] = (struct loop_signal){.callback = on_stop_signal, .context = agent};
        code = loop_signal_start(agent->loop, &agent->stop_signals[i], stops[i]);
    }
    return code;
}

static void stop_signals(struct agent *agent) {
    loop_signal_stop(agent->loop, &agent->child_signal);
    for (size_t i = 0; i < ARRAY_SIZE(agent->stop_signals); i++)
        loop_signal_stop(agent->loop, &agent->stop_signals[i]);
}

static void say_hello(struct agent *agent) {
    Wire__Hello hello = WIRE__HELLO__INIT;
    hello.protocol = FRAME_PROTOCOL;
    hello.version = TY_VERSION;
    hello.node = agent->config->node;
    hello.node_name = (char *)agent->config->node_name;
    hello.pid = getpid();
    hello.address = (char *)agent->port.address;
    hello.port = agent->port.port;
    Wire__Message message = WIRE__MESSAGE__INIT;
    message.body_case = WIRE__MESSAGE__BODY_HELLO;
    message.hello = &hello;
    outbox_send(&agent->outbox, &message);
    channel_flush(agent->outbox.channel);
}

static void reset_signals(void) {
    sigset_t none;
    sigemptyset(&none);
    for (int i = 1; i < SIGSYS; i++)
        if (i != SIGKILL && i != SIGSTOP) (void)signal(i, SIG_DFL);
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* a log at the limit of file sizes is a failed write */
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* What a process inherits is for its parent to say; an agent has no terminal, no signal blocked or ignored, and hands nothing on to
 * workers that it does not mean to. */
static void set_up_process(struct agent *agent) {
    file_open_standard();
    reset_signals();
    (void)setsid(); /* fails for the leader of a group, which is as good */
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    (void)close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
    (void)getrlimit(RLIMIT_NOFILE, &agent->nofile);
    struct rlimit raised = {.rlim_cur = agent->nofile.rlim_max, .rlim_max = agent->nofile.rlim_max};
    (void)setrlimit(RLIMIT_NOFILE, &raised);
}

static void write_log(void *context, enum log_level level, const char *subsystem, const char *text) {
    (void)level;
    const char *path = context;
    CLEANUP_FD int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd >= 0) (void)dprintf(fd, "%s: %s\n", subsystem, text);
}

static int open_agent(struct agent *agent, ty_error *err) {
    static const struct channel_events events = {
        .message = on_message, .output = on_output, .drained = on_drained, .closed = on_closed};
    agent->loop = loop_create(err);
    if (agent->loop == NULL) return err->code;
    agent->outbox.loop = agent->sweep.loop = agent->loop;
    agent->channels.outbox = &agent->outbox;
    agent->sweep.ended = swept;
    agent->sweep.context = agent;
    agent->start_timer = (struct loop_timer){.callback = start_some, .context = agent};
    if (held_port_open(&agent->port, err) < 0) return err->code;
    int code = start_signals(agent);
    if (code < 0) return ty_fail(err, code, "cannot catch signals: %s", strerror(-code));
    return channel_create(agent->loop, agent->config->channel_fd, &events, agent, &agent->outbox.channel, err);
}

static void close_agent(struct agent *agent) {
    if (agent->loop == NULL) return;
    end_attempt(agent);
    wire__launch__free_unpacked(agent->next, NULL);
    worker_channels_done(&agent->channels);
    sweep_done(&agent->sweep);
    held_port_close(&agent->port);
    stop_signals(agent);
    loop_timer_stop(agent->loop, &agent->start_timer);
    loop_timer_stop(agent->loop, &agent->goodbye);
    channel_destroy(TAKE(agent->outbox.channel));
    outbox_done(&agent->outbox);
    loop_destroy(agent->loop);
}

int agent_main(const struct agent_config *config) {
    ty_error err = {0};
    struct agent agent = {.config = config, .port.fd = -1};
    set_up_process(&agent);
    if (config->log_path != NULL) log_set_sink(write_log, (void *)config->log_path);
    int code = open_agent(&agent, &err);
    if (code == 0) {
        oom_init(&agent.oom);
        say_hello(&agent);
        loop_on_turn_end(agent.loop, turn_ended, &agent);
        loop_run(agent.loop);
    } else {
        log_error("agent", "%s", err.message);
    }
    if (agent.lost && config->lease_fd >= 0) lease_abandoned(config->lease_fd);
    bool failed = code < 0 || agent.lost || agent.unclean;
    close_agent(&agent);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
