/* The life of one worker. Its process group is looked after until it is empty: what its exit leaves behind
 * there is asked to end, then killed, and only then the worker is gone. How many start at once, and when all
 * are stopped, is attempt.c's. */
#include "agent/worker_process.h"

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
#include "base/kernel.h"
#include "base/log.h"
#include "base/process.h"
#include "base/str.h"
#include "worker/link.h"

/* How long the kernel may take to end a killed process before it is told to be stuck (in uninterruptible
 * sleep). */
#define STUCK_AFTER (10 * NS_PER_S)
/* What closes its channel this long before its end did not do so by ending. */
#define SILENT_BEFORE_END (100 * NS_PER_MS)
/* Of the grace, what is left to the whole group: its last quarter, and no more than this. */
#define LAST_SHARE_MAX (5 * NS_PER_S)
enum { LAST_SHARE = 4 };

static Wire__WorkerEvent new_event(const struct worker_process *worker, Wire__WorkerEvent__Kind kind) {
    Wire__WorkerEvent event = WIRE__WORKER_EVENT__INIT;
    event.kind = kind;
    event.rank = worker->rank;
    event.pid = worker->pid;
    event.stopped = worker->told;
    return event;
}

static void set_text(Wire__WorkerEvent *event, const char *text) {
    char *copy = text[0] != '\0' ? strdup(text) : NULL;
    if (copy != NULL) event->text = copy;
}

static void fail_start(struct worker_process *worker, int code, const char *why) {
    Wire__WorkerEvent event = new_event(worker, WIRE__WORKER_EVENT__KIND__START_FAILED);
    set_text(&event, why);
    event.may_pass = error_may_pass(code);
    worker->stage = PROCESS_GONE;
    outbox_event(worker->outbox, event);
}

/* Tells that the worker is gone, once nothing of it is left: neither its group, nor output, nor words. */
static void settle(void *context) {
    struct worker_process *worker = context;
    if (worker->stage != PROCESS_EXITED || !worker->group_gone || worker->words != NULL) return;
    if (!relay_has_ended(&worker->relay) || worker->speaker.n_channels > 0) return;
    worker->stage = PROCESS_GONE;
    outbox_event(worker->outbox, new_event(worker, WIRE__WORKER_EVENT__KIND__GONE));
    relay_done(&worker->relay);
    pty_end(&worker->pty);
}

/* A process that ends closes its files before it is gone, seconds before where a driver has a device's memory
 * to take back: that is not called closing its channel. Whether it is gone is asked first, which costs less. */
static void channels_ended(void *context) {
    struct worker_process *worker = context;
    struct process process;
    if (!kernel_await(-1, worker->pid, 0) && process_read(worker->pid, &process) && !process.ending)
        worker->silent_since = loop_now(worker->outbox->loop);
    settle(worker);
}

/* What the worker had printed before its traceback comes first in the log. */
static void failure_told(void *context, const char *traceback) {
    struct worker_process *worker = context;
    relay_take(&worker->relay);
    relay_note(&worker->relay, traceback, strlen(traceback));
}

/* The ends of a worker's pipes and socket: [0] ours, [1] the worker's. */
struct ends {
    int input[2], output[2], error[2], socket[2];
    int slave; /* of a terminal: held by us as well */
};

static const struct ends no_ends = {{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}, -1};

/* Closes the worker's ends, and ours as well unless those go on. */
static void close_ends(struct ends *ends, bool ours) {
    int *const pairs[] = {ends->input, ends->output, ends->error, ends->socket};
    for (size_t i = 0; i < ARRAY_SIZE(pairs); i++)
        for (int side = ours ? 0 : 1; side < 2; side++)
            if (pairs[i][side] >= 0) (void)close(TAKE_FD(pairs[i][side]));
    if (ours && ends->slave >= 0) (void)close(TAKE_FD(ends->slave));
}

static int open_ends(struct ends *ends, const Wire__Launch *body, size_t index, ty_error *err) {
    const Wire__LaunchWorker *worker = body->workers[index];
    if (worker->pty) { /* the worker's three are one */
        int result = pty_make(body->rows, body->columns, &ends->output[0], &ends->output[1], err);
        if (result < 0) return result;
        ends->input[1] = fcntl(ends->output[1], F_DUPFD_CLOEXEC, 0);
        ends->error[1] = fcntl(ends->output[1], F_DUPFD_CLOEXEC, 0);
        ends->slave = fcntl(ends->output[1], F_DUPFD_CLOEXEC, 0);
        if (ends->input[1] >= 0 && ends->slave >= 0 && ends->error[1] >= 0 &&
            socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends->socket) == 0)
            return 0;
        return ty_fail(err, TY_ESTART, "cannot make a terminal for a worker: %s", strerror(errno));
    }
    int input[2] = {-1, -1};
    bool made = (!worker->input || pipe2(input, O_CLOEXEC) == 0) && pipe2(ends->output, O_CLOEXEC) == 0 &&
                pipe2(ends->error, O_CLOEXEC) == 0 &&
                socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends->socket) == 0;
    int code = errno;
    ends->input[0] = input[1]; /* what is written to is ours here */
    ends->input[1] = input[0];
    if (made) return 0;
    if (code != EMFILE) return ty_fail(err, TY_ESTART, "cannot make a pipe: %s", strerror(code));
    struct rlimit limit = {0};
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    return ty_fail(err, TY_ESTART,
                   "this node's agent has no descriptor left for another worker (limit %llu: ulimit -Hn)",
                   (unsigned long long)limit.rlim_cur);
}

static void show_before(void *context, struct buffer *shown) {
    const struct worker_process *worker = context;
    relay_recent(&worker->relay, shown);
}

/* Our ends are read from before the worker runs; each part owns its end from here on. */
static int listen_to(struct worker_process *worker, const Wire__Launch *body, size_t index, struct ends *ends,
                     struct worker_channels *channels, ty_error *err) {
    if (body->workers[index]->pty) {
        struct pty_config terminal = {.outbox = worker->outbox,
                                      .rank = worker->rank,
                                      .master_fd = ends->output[0],
                                      .slave_fd = ends->slave,
                                      .logs = worker->logs,
                                      .run_path = body->run_path,
                                      .attached = show_before,
                                      .context = worker};
        if (body->workers[index]->input) ends->input[0] = fcntl(ends->output[0], F_DUPFD_CLOEXEC, 0);
        int served = pty_start(&worker->pty, &terminal, err);
        if (served < 0) return served;
    }
    struct relay_config config = {.rank = worker->rank,
                                  .logs = worker->logs,
                                  .run_path = body->run_path,
                                  .prefix = body->prefix,
                                  .escape = body->escape,
                                  .pass = body->pass,
                                  .colour = worker->pty.outbox != NULL && body->colour,
                                  .pty = worker->pty.outbox != NULL ? &worker->pty : NULL,
                                  .quiet = body->quiet,
                                  .hidden = worker->hidden,
                                  .live = body->live};
    if (ends->input[0] >= 0)
        feed_start(&worker->feed, worker->outbox, worker->rank, TAKE_FD(ends->input[0]),
                   worker->pty.outbox != NULL);
    int fds[2] = {TAKE_FD(ends->output[0]), TAKE_FD(ends->error[0])};
    int result = relay_start(&worker->relay, worker->outbox, &config, fds, settle, worker, err);
    if (result < 0) return result;
    worker->speaker = (struct speaker){.all = channels,
                                       .rank = worker->rank,
                                       .reports = body->report_base,
                                       .report_base = body->report_base,
                                       .turned = body->report_base,
                                       .dropped = body->report_base,
                                       .ended = channels_ended,
                                       .failed = failure_told,
                                       .context = worker};
    return speaker_start(&worker->speaker, TAKE_FD(ends->socket[0]), err);
}

/* From the question to the template until its answer. */
struct worker_origin {
    struct template_fork fork; /* first */
    struct worker_process *worker;
    struct template *template;
    struct node_launch *launch;
    struct worker_channels *channels;
    size_t index;
    struct ends ends; /* ours: nothing is read before the pid is known, so that the start is told first */
};

static void free_origin(struct worker_process *worker) {
    if (worker->origin == NULL) return;
    close_ends(&worker->origin->ends, true);
    free(TAKE(worker->origin));
}

static void say_started(struct worker_process *worker) {
    worker->stage = PROCESS_RUNNING;
    outbox_event(worker->outbox, new_event(worker, WIRE__WORKER_EVENT__KIND__STARTED));
}

static int start_executed(struct worker_process *worker, struct node_launch *launch, size_t index,
                          struct worker_channels *channels, ty_error *err) {
    struct ends ends = no_ends;
    int result = open_ends(&ends, launch->body, index, err);
    if (result == 0) result = listen_to(worker, launch->body, index, &ends, channels, err);
    const int fds[] = {ends.input[1], ends.output[1], ends.error[1], ends.socket[1]};
    if (result == 0) result = node_launch_worker(launch, index, fds, &worker->pid, err);
    close_ends(&ends, true);
    if (result == 0) say_started(worker);
    return result;
}

/* A program's workers can do without their template, unless it was demanded. */
static bool may_execute(const struct node_launch *launch) {
    return template_is_program(launch) && str_equal(launch->body->start_method, "auto");
}

/* A worker that was forked in vain is killed, and nobody listens to it: the sweep finds what KILL leaves. */
static void drop_forked(struct worker_process *worker, int code, const char *why) {
    if (worker->pid > 0) (void)kill(worker->pid, SIGKILL);
    free_origin(worker);
    worker_process_done(worker);
    fail_start(worker, code, why);
}

/* The template's answer. Meanwhile the worker may have been told to stop, which was only noted, and it may have
 * been reaped already, as it is this process's child: both are made up for, behind the word that it started. */
static void on_forked(void *context, pid_t pid, const char *why) {
    struct worker_origin *origin = context;
    struct worker_process *worker = origin->worker;
    struct template *template = origin->template;
    ty_error err = {0};
    loop_timer_stop(worker->outbox->loop, &worker->deadline);
    if (pid == 0 && worker->stop == STOP_NONE && may_execute(origin->launch)) {
        log_info("agent", "rank %u is executed: %s", worker->rank, why);
        int result = start_executed(worker, origin->launch, origin->index, origin->channels, &err);
        if (result < 0)
            drop_forked(worker, err.code, err.message);
        else
            free_origin(worker);
        return;
    }
    if (pid == 0) {
        drop_forked(worker, TY_ESTART, why);
        return;
    }
    worker->pid = pid;
    if (listen_to(worker, origin->launch->body, origin->index, &origin->ends, origin->channels, &err) < 0) {
        drop_forked(worker, err.code, err.message);
        return;
    }
    free_origin(worker);
    say_started(worker);
    /* What came before the answer: it was told to stop, or has ended. */
    int status;
    struct rusage used;
    enum worker_process_stop stop = worker->stop;
    worker->stop = STOP_NONE;
    bool ended = template_take_reaped(template, worker->pid, &status, &used);
    if (stop != STOP_NONE && !ended) worker_process_stop(worker, stop, worker->grace);
    if (ended) worker_process_reaped(worker, status, &used);
}

/* The template gets the worker's ends with the message; ours are kept (origin) until it answers. */
static int start_forked(struct worker_process *worker, struct node_launch *launch, size_t index,
                        struct worker_channels *channels, struct template *template, ty_error *err) {
    struct worker_origin *origin = malloc(sizeof *origin);
    if (origin == NULL) return ty_fail_memory(err);
    *origin = (struct worker_origin){.fork = {.answered = on_forked, .context = origin},
                                     .worker = worker,
                                     .template = template,
                                     .launch = launch,
                                     .channels = channels,
                                     .index = index,
                                     .ends = no_ends};
    struct ends *ends = &origin->ends;
    CLEANUP_FD int payload = -1;
    int result = open_ends(ends, launch->body, index, err);
    if (result == 0) result = node_launch_open_payload(launch, &payload, err);
    const int fds[SPAWN_FDS] = {ends->input[1] >= 0 ? ends->input[1] : launch->no_input_fd, ends->output[1],
                                ends->error[1], ends->socket[1], payload};
    if (result == 0) result = template_fork(template, &origin->fork, launch, index, fds, err);
    if (result < 0) {
        close_ends(ends, true);
        free(origin);
        return result;
    }
    close_ends(ends, false);
    worker->origin = origin;
    worker->stage = PROCESS_ASKED;
    return 0;
}

void worker_process_start(struct worker_process *worker, struct node_launch *launch, size_t index,
                          struct worker_channels *channels, struct template *template) {
    ty_error err = {0};
    worker->since = last_words_now();
    int result = template != NULL ? start_forked(worker, launch, index, channels, template, &err) : 0;
    if (template == NULL || (result < 0 && may_execute(launch)))
        result = start_executed(worker, launch, index, channels, &err);
    if (result == 0) return;
    worker_process_done(worker);
    fail_start(worker, err.code, err.message);
}

void worker_process_refuse(struct worker_process *worker, int code, const char *why) {
    if (worker->stage == PROCESS_PLANNED) fail_start(worker, code, why);
}

/* After its leader was reaped, the number of a group is in use as long as a process is in it; a process that
 * has that number as its own can only exist when the group is empty. */
static bool is_group_empty(pid_t leader) {
    if (kill(-leader, 0) < 0) return errno == ESRCH;
    return kill(leader, 0) == 0;
}

/* To the whole group; and to the worker itself, when it has left its group. */
static void signal_all(const struct worker_process *worker, int signal_number) {
    bool leads = worker->stage == PROCESS_RUNNING && getpgid(worker->pid) == worker->pid;
    if (worker->stage == PROCESS_RUNNING && !leads) (void)kill(worker->pid, signal_number);
    if (leads || worker->stage == PROCESS_RUNNING || !is_group_empty(worker->pid))
        (void)kill(-worker->pid, signal_number);
}

static void start_deadline(struct worker_process *worker, nanoseconds delay);
static void say_exited(struct worker_process *worker, Wire__WorkerEvent event);

/* A process that even KILL does not end must not hold up the run: it counts as gone. */
static void give_up(struct worker_process *worker) {
    char text[128];
    (void)snprintf(text, sizeof text, "process %d does not end after SIGKILL (stuck in the kernel?)",
                   worker->pid);
    outbox_log(worker->outbox, LOG_LEVEL_ERROR, "rank %u: %s", worker->rank, text);
    worker->stop = STOP_GIVEN_UP;
    pty_hang_up(&worker->pty);
    if (worker->words != NULL) {
        last_words_drop(TAKE(worker->words));
        say_exited(worker, worker->exit);
    }
    relay_finish(&worker->relay);
    speaker_finish(&worker->speaker);
    worker->stage = PROCESS_GONE;
    Wire__WorkerEvent event = new_event(worker, WIRE__WORKER_EVENT__KIND__GONE);
    set_text(&event, text);
    outbox_event(worker->outbox, event);
}

static void kill_now(struct worker_process *worker) {
    worker->stop = STOP_KILLED;
    signal_all(worker, SIGKILL);
    start_deadline(worker, STUCK_AFTER);
}

/* Tells all that is left of the group to end; CONT wakes those that are stopped, so that they hear of it. */
static void ask_group(struct worker_process *worker) {
    nanoseconds left = worker->kill_at - loop_now(worker->outbox->loop);
    worker->stop = STOP_ASKED;
    signal_all(worker, SIGTERM);
    signal_all(worker, SIGCONT);
    start_deadline(worker, left > 0 ? left : 0);
}

static void begin_stop(struct worker_process *worker, enum worker_process_stop how, nanoseconds grace);

/* The time of what was done last is over: the next step of the stop, as they stand in WORKER_PROCESS_STOPS. */
static void on_deadline(void *context) {
    struct worker_process *worker = context;
    if (worker->stage == PROCESS_ASKED) {
        template_abandon(worker->origin->template, "stopped before it was started");
        return;
    }
    worker_process_check_group(worker);
    if (worker->stage == PROCESS_GONE || worker->group_gone || worker->stop == STOP_HELD) return;
    if (worker->stop == STOP_KILLED)
        give_up(worker);
    else if (worker->stop == STOP_SETTLING) {
        /* The user may have meant it to go on, and is told. */
        CLEANUP(idset_done) struct idset left = {0};
        char who[32];
        (void)snprintf(who, sizeof who, "rank %u", worker->rank);
        leftovers_of_group(worker->pid, &left);
        leftovers_tell(worker->outbox, who, &left, worker->linger, worker->face);
        worker->stop = STOP_LINGERING;
        start_deadline(worker, worker->linger > LEFTOVERS_SETTLE ? worker->linger - LEFTOVERS_SETTLE : 0);
    } else if (worker->stop == STOP_LINGERING)
        begin_stop(worker, STOP_ASKED, worker->grace);
    else if (worker->stop == STOP_INTERRUPTED || worker->stop == STOP_TOLD)
        ask_group(worker);
    else
        kill_now(worker);
}

static void start_deadline(struct worker_process *worker, nanoseconds delay) {
    worker->deadline =
        (struct loop_timer){.callback = on_deadline, .context = worker, .state = worker->deadline.state};
    (void)loop_timer_start(worker->outbox->loop, &worker->deadline, delay);
}

/* The programs that handle the signal are told first, alone, so that what they have started works on while they
 * save; the group is told in the last part of the grace. Each is woken (CONT) behind its signal. */
static void begin_stop(struct worker_process *worker, enum worker_process_stop how, nanoseconds grace) {
    nanoseconds last = grace / LAST_SHARE < LAST_SHARE_MAX ? grace / LAST_SHARE : LAST_SHARE_MAX;
    worker->kill_at = loop_now(worker->outbox->loop) + grace;
    if (worker->stage == PROCESS_EXITED) { /* what it left */
        ask_group(worker);
        return;
    }
    bool by_term = how == STOP_INTERRUPTED && listeners_take_term_alone(worker->pid);
    worker->stop = by_term ? STOP_TOLD : how;
    if (worker->stop == STOP_INTERRUPTED) {
        signal_all(worker, SIGINT);
    } else {
        pid_t pids[LISTENERS_MAX];
        size_t n = listeners_find(worker->pid, pids);
        for (size_t i = 0; i < n; i++)
            (void)kill(pids[i], SIGTERM);
        if (n == 0) signal_all(worker, SIGTERM);
    }
    signal_all(worker, SIGCONT);
    start_deadline(worker, grace - last);
}

void worker_process_stop(struct worker_process *worker, enum worker_process_stop how, nanoseconds grace) {
    if (worker->stage == PROCESS_GONE) return;
    disturb_end(&worker->disturbance);
    /* A process that was on its way out before we asked is not told: its end is its own, and may be what the
     * others failed for. */
    struct process process;
    worker->told = worker->told || worker->stage != PROCESS_RUNNING ||
                   !(process_read(worker->pid, &process) && process.ending);
    if (worker->stage == PROCESS_PLANNED)
        fail_start(worker, TY_EINTERRUPTED, "stopped before it was started");
    else if (worker->stop == STOP_HELD)
        worker_process_release(worker);
    else if (worker->stage == PROCESS_ASKED) {
        /* The worker is stopped as soon as its pid is known; a template that does not tell the pid within the
         * grace is ended. */
        if (how > worker->stop) {
            if (how == STOP_KILLED || worker->stop == STOP_NONE)
                start_deadline(worker, how == STOP_KILLED ? 0 : grace);
            worker->stop = how;
        }
    } else if (how == STOP_KILLED && worker->stop < STOP_KILLED)
        kill_now(worker);
    else if (worker->stop < STOP_INTERRUPTED)
        begin_stop(worker, how, grace);
}

void worker_process_disturb(struct worker_process *worker, Wire__Disturb__Kind kind, nanoseconds length) {
    if (worker->stage != PROCESS_RUNNING || worker->stop != STOP_NONE) return;
    if (kind == WIRE__DISTURB__KIND__KILL)
        (void)kill(worker->pid, SIGKILL);
    else
        disturb_begin(&worker->disturbance, worker->outbox->loop, worker->pid,
                      kind == WIRE__DISTURB__KIND__STARVE, length);
}

/* The limit of processor time that this process was given, and hands on, ends who reaches it by SIGKILL. The
 * kernel counts by ticks, which on a busy machine are more than what it tells afterwards. */
static void describe_cpu_limit(const struct rusage *used, struct buffer *out) {
    struct rlimit limit = {.rlim_max = RLIM_INFINITY};
    double used_s = (double)(used->ru_utime.tv_sec + used->ru_stime.tv_sec) +
                    (double)(used->ru_utime.tv_usec + used->ru_stime.tv_usec) / 1e6;
    (void)getrlimit(RLIMIT_CPU, &limit);
    if (limit.rlim_max == RLIM_INFINITY || used_s < (double)limit.rlim_max / 2) return;
    buffer_printf(out, "it had used %.1f s of processor time, and the limit is %llu s (ulimit -t)", used_s,
                  (unsigned long long)limit.rlim_max);
}

/* Why a worker ended, where its status says little: out of memory, a limit, a core dump, a channel that it
 * closed. */
static void describe_end(struct worker_process *worker, int wait_status, const struct rusage *used,
                         Wire__WorkerEvent *event) {
    CLEANUP(buffer_done) struct buffer text = {0};
    bool killed = WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL;
    bool by_others = killed && worker->stop != STOP_KILLED;
    if (by_others && oom_happened(worker->oom)) {
        worker->oom->kills++; /* this one is the worker's, and accounted for */
        oom_describe(worker->oom, used->ru_maxrss, &text);
    } else if (by_others) {
        describe_cpu_limit(used, &text);
    } else if (wait_status != 0 && !killed && !worker->told && oom_happened(worker->oom)) {
        buffer_text(&text, "a process beside it, or one that it had started, had been killed: ");
        oom_describe(worker->oom, used->ru_maxrss, &text);
    }
    if (WIFSIGNALED(wait_status) && WCOREDUMP(wait_status)) {
        /* Where the core went is for the kernel's pattern to say: a file, or a program behind a "|". */
        CLEANUP(buffer_done) struct buffer pattern = {0};
        buffer_text(&text, "core dumped");
        if (file_read("/proc/sys/kernel/core_pattern", 4096, &pattern, NULL) >= 0 && pattern.size > 0)
            buffer_printf(&text, " (core_pattern: %.*s)", (int)strcspn(pattern.data, " \n"), pattern.data);
    }
    /* A worker that closed its channel well before its end, whether it had used it or not. */
    if (text.size == 0 && wait_status != 0 &&
        (worker->silent_since > 0 && loop_now(worker->outbox->loop) - worker->silent_since > SILENT_BEFORE_END))
        buffer_text(&text, "it had closed its report channel");
    if (text.size > 0) event->text = buffer_take(&text);
    if (event->text == NULL) event->text = (char *)protobuf_c_empty_string;
}

static void say_exited(struct worker_process *worker, Wire__WorkerEvent event) {
    struct buffer tail = {0};
    if (event.wait_status != 0) relay_tail(&worker->relay, &tail);
    event.tail.len = tail.size;
    event.tail.data = (uint8_t *)buffer_take(&tail);
    outbox_event(worker->outbox, event);
}

/* The end was held back for this: whether the worker itself wrote why it failed, and when. */
static void words_told(void *context, const struct last_words_found *found) {
    struct worker_process *worker = context;
    Wire__WorkerEvent event = worker->exit;
    worker->words = NULL;
    /* What it has written of its failure is the cause, where nothing is known that it could not know. */
    event.failed_at = found->time;
    if (found->message != NULL && event.text == (char *)protobuf_c_empty_string)
        set_text(&event, found->message);
    if (found->traceback != NULL && !relay_has_shown(&worker->relay, found->traceback))
        relay_note(&worker->relay, found->traceback, strlen(found->traceback));
    say_exited(worker, event);
    settle(worker);
}

/* From here on its number is nobody's, or another's; only its group still has it, as long as somebody is in
 * it. */
void worker_process_reaped(struct worker_process *worker, int wait_status, const struct rusage *used) {
    disturb_forget(&worker->disturbance);
    feed_end(&worker->feed);
    /* What lies in its pipes and its socket was said before its end, and counts before it. */
    bool marked =
        wait_status == 0 && !worker->told && worker_files_is_marked(worker->speaker.all->token, worker->rank);
    if (marked || (wait_status != 0 && !worker->told))
        relay_take_last(&worker->relay);
    else
        relay_take(&worker->relay);
    speaker_take(&worker->speaker);
    Wire__WorkerEvent event = new_event(worker, WIRE__WORKER_EVENT__KIND__EXITED);
    event.wait_status = wait_status;
    if (marked) {
        /* Others may wait for such a rank for ever, in a collective or at their own end. */
        event.wait_status = W_EXITCODE(1, 0);
        set_text(&event, "which stands for 0 without MPI_Finalize: the others may wait for that");
    } else {
        describe_end(worker, wait_status, used, &event);
    }
    worker->exit = event;
    if (event.wait_status != 0)
        worker->words = last_words_ask(worker->logs, worker->speaker.all->run_path, worker->rank, worker->since,
                                       words_told, worker);
    if (worker->words == NULL) say_exited(worker, event);
    worker->stage = PROCESS_EXITED;
    worker->ended_at = loop_now(worker->outbox->loop);
    if (is_group_empty(worker->pid)) {
        worker_process_check_group(worker);
        return;
    }
    if (worker->stop == STOP_KILLED)
        signal_all(worker, SIGKILL); /* one that was forked while the group was killed */
    else if (worker->stop == STOP_NONE && wait_status == 0) {
        worker->stop = STOP_SETTLING;
        start_deadline(worker, LEFTOVERS_SETTLE);
    } else if (worker->stop == STOP_NONE)
        begin_stop(worker, STOP_ASKED, worker->grace);
    else if (worker->stop < STOP_ASKED)
        ask_group(worker);
}

bool worker_process_ended_well(const struct worker_process *worker) {
    return worker->ended_at > 0 && worker->exit.wait_status == 0 && worker->stop < STOP_INTERRUPTED;
}

void worker_process_release(struct worker_process *worker) {
    if (worker->stop != STOP_HELD) return;
    worker->stop = STOP_ASKED;
    worker_process_check_group(worker);
}

void worker_process_check_group(struct worker_process *worker) {
    if (worker->stage != PROCESS_EXITED || worker->group_gone || !is_group_empty(worker->pid)) return;
    if (worker->linger > 0 && worker_process_ended_well(worker)) {
        worker->stop = STOP_HELD;
        loop_timer_stop(worker->outbox->loop, &worker->deadline);
        return;
    }
    pty_hang_up(&worker->pty);
    worker->group_gone = true; /* what is left of its output may take as long as the controller needs */
    loop_timer_stop(worker->outbox->loop, &worker->deadline);
    relay_finish(&worker->relay);
    speaker_finish(&worker->speaker);
    settle(worker);
}

void worker_process_done(struct worker_process *worker) {
    if (worker->outbox == NULL) return;
    loop_timer_stop(worker->outbox->loop, &worker->deadline);
    disturb_forget(&worker->disturbance);
    if (worker->words != NULL && worker->exit.text != (char *)protobuf_c_empty_string) free(worker->exit.text);
    last_words_drop(TAKE(worker->words));
    free_origin(worker);
    feed_end(&worker->feed);
    pty_end(&worker->pty);
    relay_done(&worker->relay);
    speaker_done(&worker->speaker);
}
