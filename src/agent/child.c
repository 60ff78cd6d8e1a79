/* The life of one worker. Its process group is looked after until it is empty: what its exit leaves behind there is asked to
 * end, then killed, and only then the worker is gone. */
#include "agent/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"

/* How long the kernel may take to end a killed process before it is told to be stuck (in uninterruptible sleep). */
#define STUCK_AFTER (10 * NS_PER_S)
/* What closes its channel this long before its end did not do so by ending. */
#define SILENT_BEFORE_END (100 * NS_PER_MS)

static Wire__WorkerEvent new_event(const struct child *child, Wire__WorkerEvent__Kind kind) {
    Wire__WorkerEvent event = WIRE__WORKER_EVENT__INIT;
    event.kind = kind;
    event.rank = child->rank;
    event.pid = child->pid;
    event.stopped = child->told;
    return event;
}

static void set_text(Wire__WorkerEvent *event, const char *text) {
    char *copy = text[0] != '\0' ? strdup(text) : NULL;
    if (copy != NULL) event->text = copy;
}

static void fail_start(struct child *child, int code, const char *why) {
    Wire__WorkerEvent event = new_event(child, WIRE__WORKER_EVENT__KIND__START_FAILED);
    set_text(&event, why);
    event.may_pass = error_may_pass(code);
    child->stage = CHILD_GONE;
    outbox_event(child->outbox, event);
}

/* Says that it is gone, once that holds. */
static void settle(struct child *child) {
    if (child->stage != CHILD_EXITED || !child->group_gone) return;
    if (!relay_has_ended(&child->relay) || child->speaker.n_channels > 0) return;
    child->stage = CHILD_GONE;
    outbox_event(child->outbox, new_event(child, WIRE__WORKER_EVENT__KIND__GONE));
    relay_done(&child->relay);
}

static void output_ended(void *context) {
    settle(context);
}

static void channels_ended(void *context) {
    struct child *child = context;
    child->silent_since = loop_now(child->outbox->loop);
    settle(child);
}

/* What it had printed before comes first. */
static void failure_told(void *context, const char *traceback) {
    struct child *child = context;
    relay_take(&child->relay);
    relay_note(&child->relay, traceback, strlen(traceback));
}

/* The ends of its pipes and its socket: [0] ours, [1] the worker's. */
struct ends {
    int output[2], error[2], socket[2];
};

static void close_pair(int pair[2]) {
    for (int i = 0; i < 2; i++)
        if (pair[i] >= 0) (void)close(pair[i]);
}

static void close_ends(struct ends *ends) {
    close_pair(ends->output);
    close_pair(ends->error);
    close_pair(ends->socket);
}

static int open_ends(struct ends *ends, ty_error *err) {
    struct rlimit limit = {0};
    if (pipe2(ends->output, O_CLOEXEC) == 0 && pipe2(ends->error, O_CLOEXEC) == 0 &&
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends->socket) == 0)
        return 0;
    int code = errno;
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    if (code != EMFILE) return ty_fail(err, TY_ESTART, "cannot make a pipe: %s", strerror(code));
    return ty_fail(err, TY_ESTART,
                   "this node's agent has no descriptor left for another worker (limit %llu: ulimit -Hn)",
                   (unsigned long long)limit.rlim_cur);
}

/* Our ends are read from before the worker runs; each part owns its end from here on. */
static int listen_to(struct child *child, const Wire__Launch *body, struct ends *ends,
                     struct worker_channels *channels, ty_error *err) {
    struct relay_config config = {.rank = child->rank,
                                  .logs = child->logs,
                                  .run_path = body->run_path,
                                  .prefix = body->prefix,
                                  .escape = body->escape,
                                  .quiet = body->quiet};
    int fds[2] = {TAKE_FD(ends->output[0]), TAKE_FD(ends->error[0])};
    int result = relay_start(&child->relay, child->outbox, &config, fds, output_ended, child, err);
    if (result < 0) return result;
    child->speaker = (struct speaker){.all = channels,
                                      .rank = child->rank,
                                      .reports = body->report_base,
                                      .ended = channels_ended,
                                      .failed = failure_told,
                                      .context = child};
    return speaker_start(&child->speaker, TAKE_FD(ends->socket[0]), err);
}

/* From the question to the template until its answer. */
struct child_origin {
    struct template_fork fork; /* first */
    struct child *child;
    struct template *template;
    struct launch *launch;
    struct worker_channels *channels;
    struct ends ends; /* ours: nothing is read before the pid is known, so that the start is told first */
};

static void free_origin(struct child *child) {
    if (child->origin == NULL) return;
    close_ends(&child->origin->ends);
    free(TAKE(child->origin));
}

static void close_theirs(struct ends *ends) {
    int *theirs[] = {&ends->output[1], &ends->error[1], &ends->socket[1]};
    for (size_t i = 0; i < ARRAY_SIZE(theirs); i++)
        if (*theirs[i] >= 0) (void)close(TAKE_FD(*theirs[i]));
}

static void say_started(struct child *child) {
    child->stage = CHILD_RUNNING;
    outbox_event(child->outbox, new_event(child, WIRE__WORKER_EVENT__KIND__STARTED));
}

/* Nobody listens to a worker that was forked for nothing: the sweep finds what KILL leaves. */
static void drop_forked(struct child *child, int code, const char *why) {
    if (child->pid > 0) (void)kill(child->pid, SIGKILL);
    free_origin(child);
    child_done(child);
    fail_start(child, code, why);
}

/* What came before the answer: it was told to stop, or has ended. */
static void catch_up(struct child *child, struct template *template) {
    int status;
    long peak_kib;
    enum child_stop stop = child->stop;
    child->stop = STOP_NONE;
    bool ended = template_take_reaped(template, child->pid, &status, &peak_kib);
    if (stop != STOP_NONE && !ended) child_stop(child, stop == STOP_KILLED, child->grace);
    if (ended) child_reaped(child, status, peak_kib);
}

static void on_forked(void *context, pid_t pid, const char *why) {
    struct child_origin *origin = context;
    struct child *child = origin->child;
    struct template *template = origin->template;
    ty_error err = {0};
    loop_timer_stop(child->outbox->loop, &child->deadline);
    if (pid == 0) {
        drop_forked(child, TY_ESTART, why);
        return;
    }
    child->pid = pid;
    (void)setpgid(pid, pid); /* so does the worker; whoever is first */
    if (listen_to(child, origin->launch->body, &origin->ends, origin->channels, &err) < 0) {
        drop_forked(child, err.code, err.message);
        return;
    }
    free_origin(child);
    say_started(child);
    catch_up(child, template);
}

static int ask_template(struct child *child, struct launch *launch, size_t index, struct child_origin *origin,
                        ty_error *err) {
    CLEANUP_FD int payload = -1;
    int result = launch_open_payload(launch, &payload, err);
    const int fds[SPAWN_FDS] = {launch->null_fd, origin->ends.output[1], origin->ends.error[1],
                                origin->ends.socket[1], payload};
    if (result == 0) result = template_fork(origin->template, &origin->fork, launch, index, fds, err);
    close_theirs(&origin->ends);
    if (result < 0) return result;
    child->origin = origin;
    child->stage = CHILD_ASKED;
    return 0;
}

static int start_forked(struct child *child, struct launch *launch, size_t index,
                        struct worker_channels *channels, struct template *template, ty_error *err) {
    struct child_origin *origin = malloc(sizeof *origin);
    if (origin == NULL) return ty_fail_memory(err);
    *origin = (struct child_origin){.fork = {.answered = on_forked, .context = origin},
                                    .child = child,
                                    .template = template,
                                    .launch = launch,
                                    .channels = channels,
                                    .ends = {{-1, -1}, {-1, -1}, {-1, -1}}};
    int result = open_ends(&origin->ends, err);
    if (result == 0) result = ask_template(child, launch, index, origin, err);
    if (result == 0) return 0;
    close_ends(&origin->ends);
    free(origin);
    return result;
}

static int start_executed(struct child *child, struct launch *launch, size_t index,
                          struct worker_channels *channels, ty_error *err) {
    struct ends ends = {{-1, -1}, {-1, -1}, {-1, -1}};
    int result = open_ends(&ends, err);
    if (result == 0) result = listen_to(child, launch->body, &ends, channels, err);
    if (result == 0)
        result = launch_worker(launch, index, ends.output[1], ends.error[1], ends.socket[1], &child->pid, err);
    close_ends(&ends);
    if (result == 0) say_started(child);
    return result;
}

void child_start(struct child *child, struct launch *launch, size_t index, struct worker_channels *channels,
                 struct template *template) {
    ty_error err = {0};
    int result = template != NULL ? start_forked(child, launch, index, channels, template, &err)
                                  : start_executed(child, launch, index, channels, &err);
    if (result == 0) return;
    child_done(child);
    fail_start(child, err.code, err.message);
}

void child_refuse(struct child *child, int code, const char *why) {
    if (child->stage == CHILD_PLANNED) fail_start(child, code, why);
}

/* After its leader was reaped, the number of a group is in use as long as a process is in it; a process that has that number
 * as its own can only exist when the group is empty. */
static bool is_group_empty(pid_t leader) {
    if (kill(-leader, 0) < 0) return errno == ESRCH;
    return kill(leader, 0) == 0;
}

/* To the whole group; and to the worker itself, when it has left its group. */
static void signal_all(const struct child *child, int signal_number) {
    bool leads = child->stage == CHILD_RUNNING && getpgid(child->pid) == child->pid;
    if (child->stage == CHILD_RUNNING && !leads) (void)kill(child->pid, signal_number);
    if (leads || child->stage == CHILD_RUNNING || !is_group_empty(child->pid))
        (void)kill(-child->pid, signal_number);
}

static void start_deadline(struct child *child, nanoseconds delay);

/* A process that even KILL does not end is waited for without end by nobody. */
static void give_up(struct child *child) {
    char text[128];
    (void)snprintf(text, sizeof text, "process %d does not end after SIGKILL (stuck in the kernel?)",
                   child->pid);
    outbox_log(child->outbox, LOG_LEVEL_ERROR, "rank %u: %s", child->rank, text);
    child->stop = STOP_GIVEN_UP;
    relay_finish(&child->relay);
    speaker_finish(&child->speaker);
    child->stage = CHILD_GONE;
    Wire__WorkerEvent event = new_event(child, WIRE__WORKER_EVENT__KIND__GONE);
    set_text(&event, text);
    outbox_event(child->outbox, event);
}

static void kill_now(struct child *child) {
    child->stop = STOP_KILLED;
    signal_all(child, SIGKILL);
    start_deadline(child, STUCK_AFTER);
}

static void on_deadline(void *context) {
    struct child *child = context;
    if (child->stage == CHILD_ASKED) {
        template_abandon(child->origin->template, "stopped before it was started");
        return;
    }
    child_check_group(child);
    if (child->stage == CHILD_GONE || child->group_gone) return;
    if (child->stop == STOP_KILLED)
        give_up(child);
    else
        kill_now(child);
}

static void start_deadline(struct child *child, nanoseconds delay) {
    child->deadline =
        (struct loop_timer){.callback = on_deadline, .context = child, .state = child->deadline.state};
    (void)loop_timer_start(child->outbox->loop, &child->deadline, delay);
}

static void ask_to_end(struct child *child, nanoseconds grace) {
    child->stop = STOP_ASKED;
    signal_all(child, SIGTERM);
    signal_all(child, SIGCONT);
    start_deadline(child, grace);
}

/* True for a process that was on its way out before we asked: its end is its own, and may be what the others failed for.
 * (Flags are the seventh field behind the name, which may hold anything.) */
static bool is_ending(pid_t pid) {
    enum { PF_EXITING = 0x4, PF_SIGNALED = 0x400 }; /* linux/sched.h; the second one while it dumps its core */
    char path[32], text[512];
    unsigned flags = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (size <= 0) return false;
    text[size] = '\0';
    const char *end = strrchr(text, ')');
    return end != NULL && sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) == 1 &&
           (flags & (PF_EXITING | PF_SIGNALED)) != 0;
}

/* It is stopped as soon as its pid is known; a template that does not tell it within the grace is ended. */
static void stop_asked(struct child *child, bool kill, nanoseconds grace) {
    if (kill || child->stop == STOP_NONE) start_deadline(child, kill ? 0 : grace);
    child->stop = kill ? STOP_KILLED : STOP_ASKED;
}

void child_stop(struct child *child, bool kill, nanoseconds grace) {
    if (child->stage == CHILD_GONE) return;
    disturb_end(&child->disturbance);
    child->told = child->told || child->stage != CHILD_RUNNING || !is_ending(child->pid);
    if (child->stage == CHILD_PLANNED)
        fail_start(child, TY_EINTERRUPTED, "stopped before it was started");
    else if (child->stage == CHILD_ASKED)
        stop_asked(child, kill, grace);
    else if (kill && child->stop < STOP_KILLED)
        kill_now(child);
    else if (child->stop == STOP_NONE)
        ask_to_end(child, grace);
}

void child_disturb(struct child *child, Wire__Disturb__Kind kind, nanoseconds length) {
    if (child->stage != CHILD_RUNNING || child->stop != STOP_NONE) return;
    if (kind == WIRE__DISTURB__KIND__KILL)
        (void)kill(child->pid, SIGKILL);
    else
        disturb_begin(&child->disturbance, child->outbox->loop, child->pid, kind == WIRE__DISTURB__KIND__STARVE,
                      length);
}

/* A worker that closed its channel well before its end, whether it had used it or not. */
static bool fell_silent(const struct child *child) {
    return child->silent_since > 0 && loop_now(child->outbox->loop) - child->silent_since > SILENT_BEFORE_END;
}

/* Where the core went is for the kernel's pattern to say: a file, or a program behind a "|". */
static void describe_core(struct buffer *out) {
    CLEANUP(buffer_done) struct buffer pattern = {0};
    buffer_text(out, "core dumped");
    if (file_read("/proc/sys/kernel/core_pattern", 4096, &pattern, NULL) < 0 || pattern.size == 0) return;
    buffer_printf(out, " (core_pattern: %.*s)", (int)strcspn(pattern.data, " \n"), pattern.data);
}

/* What is known about an end that says little by itself. */
static void describe_end(struct child *child, int wait_status, long peak_kib, Wire__WorkerEvent *event) {
    CLEANUP(buffer_done) struct buffer text = {0};
    bool killed = WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL;
    if (killed && child->stop != STOP_KILLED && oom_take(child->oom)) {
        oom_describe(child->oom, peak_kib, &text);
    } else if (wait_status != 0 && !killed && !child->told && oom_happened(child->oom)) {
        buffer_text(&text, "a process beside it, or one that it had started, had been killed: ");
        oom_describe(child->oom, peak_kib, &text);
    }
    if (WIFSIGNALED(wait_status) && WCOREDUMP(wait_status)) describe_core(&text);
    if (text.size == 0 && wait_status != 0 && fell_silent(child))
        buffer_text(&text, "it had closed its report channel");
    if (text.size > 0) event->text = buffer_take(&text);
    if (event->text == NULL) event->text = (char *)protobuf_c_empty_string;
}

static void say_exited(struct child *child, int wait_status, long peak_kib) {
    Wire__WorkerEvent event = new_event(child, WIRE__WORKER_EVENT__KIND__EXITED);
    event.wait_status = wait_status;
    describe_end(child, wait_status, peak_kib, &event);
    struct buffer tail = {0};
    if (wait_status != 0) relay_tail(&child->relay, &tail);
    event.tail.len = tail.size;
    event.tail.data = (uint8_t *)buffer_take(&tail);
    outbox_event(child->outbox, event);
}

void child_reaped(struct child *child, int wait_status, long peak_kib) {
    disturb_forget(&child->disturbance);
    relay_take(&child->relay);
    speaker_take(&child->speaker);
    say_exited(child, wait_status, peak_kib);
    child->stage = CHILD_EXITED;
    if (is_group_empty(child->pid)) {
        child_check_group(child);
        return;
    }
    if (child->stop == STOP_KILLED)
        signal_all(child, SIGKILL); /* one that was forked while the group was killed */
    else if (child->stop == STOP_NONE)
        ask_to_end(child, child->grace);
}

void child_check_group(struct child *child) {
    if (child->stage != CHILD_EXITED || child->group_gone || !is_group_empty(child->pid)) return;
    child->group_gone = true; /* what is left of its output may take as long as the controller needs */
    loop_timer_stop(child->outbox->loop, &child->deadline);
    relay_finish(&child->relay);
    speaker_finish(&child->speaker);
    settle(child);
}

void child_done(struct child *child) {
    if (child->outbox == NULL) return;
    loop_timer_stop(child->outbox->loop, &child->deadline);
    disturb_forget(&child->disturbance);
    free_origin(child);
    relay_done(&child->relay);
    speaker_done(&child->speaker);
}
