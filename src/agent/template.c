/* Zygote and run's template, each a process behind a control socket. Every event, be it an answer, an end, or a time limit, changes the
 * stage of one of them; `advance` then takes the next step for who waits. */
#include "agent/template.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/control.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"

enum { REASON_SIZE = 700, REAPED_MAX = 64, LOG_TAIL = 2048 };

enum stage { STAGE_ABSENT, STAGE_STARTING, STAGE_READY, STAGE_REFUSED };

struct part {
    struct control control; /* first: what the socket's calls give back is ours */
    struct template *template;
    const char *name;
    enum stage stage;
    off_t log_offset; /* where in the log its own lines begin */
    char refusal[REASON_SIZE];
};

struct reaped {
    pid_t pid;
    int status;
    long peak_kib;
};

struct template {
    struct part zygote, run;
    struct buffer key; /* of the zygote */
    bool asked;  /* the zygote owes the pid of the run's template: no worker is forked before it is known */
    bool given;  /* the run's is a copy of the driver, and there is no zygote */
    bool rested; /* the zygote is of an earlier run, and has answered nothing in this one */
    struct template_fork *first, **last;
    unsigned pending;
    struct reaped reaped[REAPED_MAX]; /* while answers are owed; the oldest is overwritten */
    unsigned n_reaped;

    struct loop *loop; /* of the run that is served; NULL between runs */
    const char *log_path;
    void (*changed)(void *context);
    void *context;
    struct loop_timer limit, tell;
    const struct launch *launch; /* of who waits; NULL: nobody */
    enum template_state state;
    char reason[REASON_SIZE];
};

static void tell(void *context) {
    struct template *template = context;
    template->changed(template->context);
}

static void tell_later(struct template *template) {
    if (template->loop != NULL) (void)loop_timer_start(template->loop, &template->tell, 0);
}

static void settle(struct template *template, enum template_state state, const char *reason) {
    if (reason != template->reason)
        (void)snprintf(template->reason, REASON_SIZE, "%.*s", REASON_SIZE - 1, reason);
    template->state = state;
    tell_later(template);
}

/* -- what is known about an end */

static off_t log_size(const struct template *template) {
    struct stat status;
    return stat(template->log_path, &status) == 0 ? status.st_size : 0;
}

/* The last line that it wrote, ": LINE"; "" when it wrote none. */
static void append_last_line(const struct template *template, const struct part *part, struct buffer *out) {
    char text[LOG_TAIL + 1];
    CLEANUP_FD int fd = template->log_path[0] != '\0' ? open(template->log_path, O_RDONLY | O_CLOEXEC) : -1;
    off_t size = log_size(template);
    off_t from = size - LOG_TAIL > part->log_offset ? size - LOG_TAIL : part->log_offset;
    ssize_t n = fd < 0 ? -1 : pread(fd, text, LOG_TAIL, from);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' '))
        n--;
    if (n <= 0) return;
    text[n] = '\0';
    const char *line = strrchr(text, '\n');
    buffer_printf(out, ": %.400s", line != NULL ? line + 1 : text);
}

static void describe_end(const struct template *template, const struct part *part, int status,
                         struct buffer *out) {
    char name[32];
    buffer_printf(out, "%s ", part->name);
    if (status >= 0 && WIFSIGNALED(status))
        buffer_printf(out, "was killed by %s", str_signal(WTERMSIG(status), name));
    else if (status >= 0)
        buffer_printf(out, "ended with code %d", WEXITSTATUS(status));
    else
        buffer_text(out, "ended");
    append_last_line(template, part, out);
}

/* -- answers owed */

static void arm_limit(struct template *template) {
    bool waiting = template->zygote.stage == STAGE_STARTING || template->run.stage == STAGE_STARTING ||
                   template->asked || template->pending > 0;
    if (!waiting || template->loop == NULL)
        loop_timer_stop(template->loop, &template->limit);
    else if (template->limit.state == NULL && template->launch != NULL)
        (void)loop_timer_start(template->loop, &template->limit, template_limit(template->launch));
}

static void restart_limit(struct template *template) {
    loop_timer_stop(template->loop, &template->limit);
    arm_limit(template);
}

static void answer_first(struct template *template, pid_t pid, const char *why) {
    struct template_fork *fork = template->first;
    template->first = fork->next;
    if (template->first == NULL) template->last = &template->first;
    template->pending--;
    fork->answered(fork->context, pid, why);
    if (template->pending == 0 && !template->asked) template->n_reaped = 0;
}

static void answer_all(struct template *template, const char *why) {
    while (template->first != NULL)
        answer_first(template, 0, why);
}

/* -- ends */

static void advance(struct template *template);

static void end_part(struct part *part, int *status) {
    int ended = control_close(&part->control);
    if (status != NULL && ended != -1) *status = ended;
    part->stage = STAGE_ABSENT;
}

/* `status`: as reaped, or -1. */
static void lose_part(struct part *part, int status) {
    struct template *template = part->template;
    bool waited = template->state == TEMPLATE_WAITING && template->launch != NULL;
    if (part == &template->zygote) template->asked = false;
    end_part(part, &status);
    CLEANUP(buffer_done) struct buffer why = {0};
    describe_end(template, part, status, &why);
    const char *text = why.failed ? "the template ended" : why.data;
    log_info("agent", "%s", text);
    if (part == &template->zygote && template->run.stage == STAGE_STARTING && template->run.control.pid == 0)
        end_part(&template->run, NULL); /* its pid was never told */
    if (part == &template->run) answer_all(template, text);
    if (waited && part == &template->zygote &&
        template->rested) { /* it died before it was needed: another one may live */
        advance(template);
        return;
    }
    bool needed = part == &template->run || template->run.stage == STAGE_ABSENT;
    if (waited && needed)
        settle(template, TEMPLATE_FAILED, text);
    else if (part == &template->run)
        settle(template, TEMPLATE_NONE, text);
    if (template->loop != NULL) restart_limit(template);
}

static void on_ended(struct control *control) {
    lose_part((struct part *)control, -1);
}

static void on_limit(void *context) {
    struct template *template = context;
    bool importing = template->zygote.stage == STAGE_STARTING;
    struct part *part = importing || template->asked ? &template->zygote : &template->run;
    CLEANUP(buffer_done) struct buffer why = {0}, limit = {0};
    if (template->launch != NULL) duration_format(template_limit(template->launch), &limit);
    buffer_printf(&why, "%s did not answer within %s (TRAINYARD_TEMPLATE_LIMIT)", part->name,
                  limit.size > 0 ? limit.data : "its limit");
    append_last_line(template, part, &why);
    if (part == &template->zygote) template->asked = false;
    end_part(part, NULL);
    if (template->run.control.pid == 0) end_part(&template->run, NULL);
    answer_all(template, why.failed ? "the template did not answer" : why.data);
    settle(template, TEMPLATE_FAILED, why.failed ? "the template did not answer" : why.data);
}

/* -- answers */

/* It is of no use any more. */
static void refuse(struct part *part, const char *why) {
    (void)snprintf(part->refusal, REASON_SIZE, "%.*s", REASON_SIZE - 1, why);
    log_info("agent", "%s: %s", part->name, part->refusal);
    end_part(part, NULL);
    part->stage = STAGE_REFUSED;
}

static bool read_refusal(const char *line, const char **why) {
    return str_prefix(line, "unsafe ", why) || str_prefix(line, "error ", why);
}

static void take_first_answer(struct part *part, const char *line) {
    const char *why = "it answered what cannot be understood";
    if (str_equal(line, "ready")) {
        part->stage = STAGE_READY;
    } else {
        (void)read_refusal(line, &why);
        refuse(part, why);
    }
    restart_limit(part->template);
    advance(part->template);
}

/* "pid N", or 0 and why not. */
static pid_t read_pid(const char *line, const char **why) {
    const char *number;
    int64_t pid;
    *why = "it answered what cannot be understood";
    if (str_prefix(line, "pid ", &number) && str_to_int64(number, 1, INT32_MAX, &pid)) return (pid_t)pid;
    (void)read_refusal(line, why);
    return 0;
}

/* The zygote has told the pid of the run's template, which may be gone or given up already. */
static void take_run_pid(struct template *template, const char *line) {
    struct part *run = &template->run;
    const char *why;
    int status;
    long peak_kib;
    pid_t pid = read_pid(line, &why);
    template->asked = template->rested = false;
    bool ended = pid > 0 && template_take_reaped(template, pid, &status, &peak_kib);
    if (template->pending == 0) template->n_reaped = 0;
    if (pid == 0) {
        end_part(run, NULL);
        refuse(&template->zygote, why);
    } else if (ended && run->stage != STAGE_ABSENT) {
        lose_part(run, status);
    } else if (run->stage != STAGE_ABSENT) {
        run->control.pid = pid;
    } else if (!ended) {
        (void)kill(pid, SIGKILL);
    }
    advance(template);
}

static void on_zygote_line(struct control *control, const char *line) {
    struct template *template = ((struct part *)control)->template;
    if (template->zygote.stage == STAGE_STARTING) {
        take_first_answer(&template->zygote, line);
        return;
    }
    if (template->asked) take_run_pid(template, line);
}

static void on_run_line(struct control *control, const char *line) {
    struct template *template = ((struct part *)control)->template;
    const char *why;
    if (template->run.stage == STAGE_STARTING) {
        take_first_answer(&template->run, line);
        return;
    }
    if (template->first == NULL) return;
    pid_t pid = read_pid(line, &why);
    if (pid == 0) settle(template, TEMPLATE_REFUSED, why);
    answer_first(template, pid, why);
    if (template->loop != NULL) restart_limit(template);
    tell_later(template);
}

/* -- steps */

static int open_output(const struct template *template) {
    int fd = template->log_path[0] != '\0'
                 ? open(template->log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644)
                 : -1;
    return fd >= 0 ? fd : open("/dev/null", O_WRONLY | O_CLOEXEC);
}

static int start_zygote(struct template *template, ty_error *err) {
    struct part *zygote = &template->zygote;
    CLEANUP_FD int theirs = -1;
    CLEANUP_FD int output = open_output(template);
    zygote->log_offset = log_size(template);
    buffer_done(&template->key);
    template_key(template->launch, &template->key);
    int result = template->key.failed ? ty_fail_memory(err) : 0;
    if (result == 0) result = control_open(&zygote->control, template->loop, &theirs, err);
    if (result == 0) result = template_execute(template->launch, theirs, output, &zygote->control.pid, err);
    if (result < 0) {
        end_part(zygote, NULL);
        return result;
    }
    zygote->stage = STAGE_STARTING;
    template->rested = false;
    arm_limit(template);
    return 0;
}

static int ask_run(struct template *template, ty_error *err) {
    struct part *run = &template->run;
    CLEANUP(buffer_done) struct buffer words = {0};
    CLEANUP_FD int theirs = -1;
    CLEANUP_FD int output = open_output(template);
    CLEANUP_FD int payload = -1;
    run->log_offset = log_size(template);
    int result = template_run_words(template->launch, &words, err);
    if (result == 0) result = launch_open_payload(template->launch, &payload, err);
    if (result == 0) result = control_open(&run->control, template->loop, &theirs, err);
    const int fds[] = {theirs, output, payload};
    if (result == 0)
        result = control_send(&template->zygote.control, 'R', &words, fds, payload >= 0 ? 3 : 2, err);
    if (result < 0) {
        end_part(run, NULL);
        return result;
    }
    run->stage = STAGE_STARTING;
    template->asked = true;
    arm_limit(template);
    return 0;
}

static bool same_key(const struct template *template, const struct buffer *key) {
    return key->size == template->key.size && memcmp(key->data, template->key.data, key->size) == 0;
}

/* A zygote that this launch cannot use is ended. */
static int drop_unfit(struct template *template, ty_error *err) {
    CLEANUP(buffer_done) struct buffer key = {0};
    if (template->zygote.stage == STAGE_ABSENT) return 0;
    template_key(template->launch, &key);
    if (key.failed) return ty_fail_memory(err);
    if (!same_key(template, &key)) end_part(&template->zygote, NULL);
    return 0;
}

/* The next step from where both parts are; 0, or negative when it could not be taken. */
static int take_step(struct template *template, ty_error *err) {
    if (template->run.stage == STAGE_READY || template->run.stage == STAGE_REFUSED ||
        template->run.stage == STAGE_STARTING || template->asked)
        return 0;
    if (drop_unfit(template, err) < 0) return err->code;
    if (template->zygote.stage == STAGE_ABSENT) return start_zygote(template, err);
    if (template->zygote.stage != STAGE_READY) return 0;
    int result = ask_run(template, err);
    if (result == 0 || !template->rested) return result;
    end_part(&template->zygote, NULL); /* it is dying, or deaf, since before this run: another one may hear */
    return start_zygote(template, err);
}

static void advance(struct template *template) {
    ty_error err = {0};
    if (template->launch == NULL) return;
    if (take_step(template, &err) < 0)
        settle(template, TEMPLATE_REFUSED, err.message);
    else if (template->run.stage == STAGE_READY && !template->asked)
        settle(template, TEMPLATE_READY, "");
    else if (template->run.stage == STAGE_REFUSED)
        settle(template, TEMPLATE_REFUSED, template->run.refusal);
    else if (template->zygote.stage == STAGE_REFUSED)
        settle(template, TEMPLATE_REFUSED, template->zygote.refusal);
    else
        template->state = TEMPLATE_WAITING;
}

/* -- the face */

struct template *template_create(void) {
    struct template *template = calloc(1, sizeof *template);
    if (template == NULL) return NULL;
    template->last = &template->first;
    template->log_path = "";
    template->zygote = (struct part){.control = {.fd = -1, .line = on_zygote_line, .ended = on_ended},
                                     .template = template,
                                     .name = "the template"};
    template->run = (struct part){.control = {.fd = -1, .line = on_run_line, .ended = on_ended},
                                  .template = template,
                                  .name = "the template of the run"};
    return template;
}

void template_destroy(struct template *template) {
    if (template == NULL) return;
    (void)template_leave(template, false);
    buffer_done(&template->key);
    free(template);
}

void template_give(struct template *template, int control_fd, pid_t pid) {
    struct part *run = &template->run;
    run->name = "the copy of the driver";
    run->control.fd = control_fd;
    run->control.pid = pid;
    run->stage = STAGE_STARTING;
    template->given = true;
}

void template_enter(struct template *template, struct loop *loop, const char *log_path,
                    void (*changed)(void *context), void *context) {
    template->loop = loop;
    template->log_path = log_path;
    template->changed = changed;
    template->context = context;
    template->limit = (struct loop_timer){.callback = on_limit, .context = template};
    template->tell = (struct loop_timer){.callback = tell, .context = template};
    template->state = TEMPLATE_NONE;
    struct part *zygote = &template->zygote;
    zygote->log_offset = log_size(template);
    siginfo_t info = {0};
    bool lives = zygote->control.pid > 0 &&
                 waitid(P_PID, (id_t)zygote->control.pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                 info.si_pid == 0;
    if (!lives || control_watch(&zygote->control, loop) < 0) end_part(zygote, NULL);
    template->rested = zygote->stage == STAGE_READY;
    struct part *run = &template->run;
    run->log_offset = zygote->log_offset;
    if (run->control.fd >= 0 && control_watch(&run->control, loop) < 0) end_part(run, NULL);
}

bool template_leave(struct template *template, bool keep) {
    bool left = template->run.control.fd >= 0;
    template_abandon(template, "the run is over");
    bool unfit =
        template->asked || template->zygote.stage == STAGE_REFUSED; /* what was refused is tried again */
    if (!keep || unfit) {
        left |= template->zygote.control.fd >= 0;
        end_part(&template->zygote, NULL);
    }
    template->asked = false;
    control_rest(&template->zygote.control);
    if (template->loop != NULL) {
        loop_timer_stop(template->loop, &template->limit);
        loop_timer_stop(template->loop, &template->tell);
    }
    template->loop = NULL;
    template->n_reaped = 0;
    template->launch = NULL;
    template->log_path = "";
    template->state = TEMPLATE_NONE;
    return left;
}

enum template_state template_prepare(struct template *template, const struct launch *launch) {
    template->launch = launch;
    template->state = TEMPLATE_NONE;
    if (launch->body->n_template_argv == 0 && template->run.stage == STAGE_ABSENT)
        settle(template, TEMPLATE_REFUSED,
               template->given ? "the copy of the driver has ended" : "the launch names no template");
    else
        advance(template);
    arm_limit(template);
    return template->state;
}

void template_forget(struct template *template) {
    template->launch = NULL;
    template->state = TEMPLATE_NONE;
}

enum template_state template_state(const struct template *template) {
    return template->state;
}

const char *template_reason(const struct template *template) {
    return template->reason;
}

int template_fork(struct template *template, struct template_fork *fork, const struct launch *launch,
                  size_t index, const int fds[SPAWN_FDS], ty_error *err) {
    CLEANUP(buffer_done) struct buffer words = {0};
    if (template->run.stage != STAGE_READY)
        return ty_fail(err, TY_ESTART, "%s",
                       template->reason[0] != '\0' ? template->reason : "the template ended");
    int result = template_worker_words(launch, index, &words, err);
    if (result == 0)
        result = control_send(&template->run.control, 'W', &words, fds,
                              fds[SPAWN_FDS - 1] >= 0 ? SPAWN_FDS : SPAWN_FDS - 1, err);
    if (result < 0) return result;
    fork->next = NULL;
    *template->last = fork;
    template->last = &fork->next;
    template->pending++;
    arm_limit(template);
    return 0;
}

unsigned template_pending(const struct template *template) {
    return template->pending;
}

void template_abandon(struct template *template, const char *why) {
    end_part(&template->run, NULL);
    answer_all(template, why);
    if (template->loop != NULL) loop_timer_stop(template->loop, &template->limit);
}

bool template_lives(const struct template *template) {
    return template->zygote.control.pid > 0 || template->run.control.pid > 0;
}

bool template_owns(const struct template *template, pid_t pid) {
    return pid > 0 && (pid == template->zygote.control.pid || pid == template->run.control.pid);
}

bool template_reaped(struct template *template, pid_t pid, int wait_status, long peak_kib) {
    if (template_owns(template, pid)) {
        struct part *part = pid == template->run.control.pid ? &template->run : &template->zygote;
        part->control.pid = 0; /* it is no more ours to kill */
        control_take(&part->control);
        if (part->control.fd >= 0) lose_part(part, wait_status);
        return true;
    }
    if (template->pending > 0 || template->asked)
        template->reaped[template->n_reaped++ % REAPED_MAX] = (struct reaped){pid, wait_status, peak_kib};
    return false;
}

bool template_take_reaped(struct template *template, pid_t pid, int *wait_status, long *peak_kib) {
    unsigned n = template->n_reaped < REAPED_MAX ? template->n_reaped : REAPED_MAX;
    for (unsigned i = 0; i < n; i++) {
        struct reaped *reaped = &template->reaped[i];
        if (reaped->pid != pid) continue;
        *wait_status = reaped->status;
        *peak_kib = reaped->peak_kib;
        reaped->pid = 0;
        return true;
    }
    return false;
}
