/* What zygote and run's template answer, line by line, and the answers that are owed to workers. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>

#include "agent/template/template_parts.h"
#include "base/log.h"
#include "base/str.h"

void template_arm_limit(struct template *template) {
    bool waiting = template->zygote.stage == STAGE_STARTING || template->run.stage == STAGE_STARTING ||
                   template->asked || template->pending > 0;
    if (!waiting || template->loop == NULL)
        loop_timer_stop(template->loop, &template->limit);
    else if (template->limit.state == NULL && template->launch != NULL)
        (void)loop_timer_start(template->loop, &template->limit, template_limit(template->launch));
}

void template_restart_limit(struct template *template) {
    loop_timer_stop(template->loop, &template->limit);
    template_arm_limit(template);
}

static void answer_first(struct template *template, pid_t pid, const char *why) {
    struct template_fork *fork = template->first;
    template->first = fork->next;
    if (template->first == NULL) template->last = &template->first;
    template->pending--;
    fork->answered(fork->context, pid, why);
    if (template->pending == 0 && !template->asked) template->n_reaped = 0;
}

void template_answer_all(struct template *template, const char *why) {
    while (template->first != NULL)
        answer_first(template, 0, why);
}

/* It is of no use any more. */
static void refuse(struct template_process *part, const char *why) {
    (void)snprintf(part->refusal, REASON_SIZE, "%.*s", REASON_SIZE - 1, why);
    log_info("agent", "%s: %s", part->name, part->refusal);
    part_end(part, NULL);
    part->stage = STAGE_REFUSED;
}

static bool read_refusal(const char *line, const char **why) {
    return str_prefix(line, "unsafe ", why) || str_prefix(line, "error ", why);
}

static void take_first_answer(struct template_process *part, const char *line) {
    const char *why = "it answered what cannot be understood";
    if (str_equal(line, "ready")) {
        part->stage = STAGE_READY;
    } else {
        (void)read_refusal(line, &why);
        refuse(part, why);
    }
    template_restart_limit(part->template);
    template_advance(part->template);
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
    struct template_process *run = &template->run;
    const char *why;
    int status;
    long peak_kib;
    pid_t pid = read_pid(line, &why);
    template->asked = template->rested = false;
    bool ended = pid > 0 && template_take_reaped(template, pid, &status, &peak_kib);
    if (template->pending == 0) template->n_reaped = 0;
    if (pid == 0) {
        part_end(run, NULL);
        refuse(&template->zygote, why);
    } else if (ended && run->stage != STAGE_ABSENT) {
        part_lose(run, status);
    } else if (run->stage != STAGE_ABSENT) {
        run->control.pid = pid;
    } else if (!ended) {
        (void)kill(pid, SIGKILL);
    }
    template_advance(template);
}

void template_zygote_line(struct control *control, const char *line) {
    struct template *template = ((struct template_process *)control)->template;
    if (template->zygote.stage == STAGE_STARTING) {
        take_first_answer(&template->zygote, line);
        return;
    }
    if (template->asked) take_run_pid(template, line);
}

void template_run_line(struct control *control, const char *line) {
    struct template *template = ((struct template_process *)control)->template;
    const char *why;
    if (template->run.stage == STAGE_STARTING) {
        take_first_answer(&template->run, line);
        return;
    }
    if (template->first == NULL) return;
    pid_t pid = read_pid(line, &why);
    if (pid == 0) template_settle(template, TEMPLATE_REFUSED, why);
    answer_first(template, pid, why);
    if (template->loop != NULL) template_restart_limit(template);
    template_tell_later(template);
}
