/* Signals of an agent: children that ended, and those who ask it to end, because the machine is taken away or for another reason. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "agent/serving.h"
#include "base/cleanup.h"
#include "base/log.h"

/* Workers may ask for it as soon as they are told to stop. */
void signals_set_preemption(struct serving *serving, const char *text) {
    char *copy = text != NULL ? strdup(text) : NULL;
    if (copy == NULL) {
        outbox_log(&serving->outbox, LOG_LEVEL_WARNING,
                   "node %s: its workers are not told which machines are taken away: out of memory",
                   serving->service->start->node_name);
        return;
    }
    free(serving->preemption);
    serving->channels.preemption = serving->preemption = copy;
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
    double deadline = (double)(clock_wall() + attempt_grace(serving)) / (double)NS_PER_S;
    buffer_printf(&text, "{\"deadline\": %.3f, \"ranks\": [", deadline);
    for (size_t i = 0; i < serving->n_children; i++)
        buffer_printf(&text, "%s%u", i > 0 ? ", " : "", serving->children[i].rank);
    buffer_text(&text, "], \"nodes\": [");
    buffer_json_text(&text, serving->service->start->node_name);
    buffer_text(&text, "]}");
    signals_set_preemption(serving, text.failed ? NULL : text.data);
}

/* The others are to save what they have as well. */
static void say_leaving(struct serving *serving, int signal_number) {
    Wire__Leaving body = WIRE__LEAVING__INIT;
    body.signal = signal_number;
    outbox_send(&serving->outbox, &WIRE_MESSAGE(LEAVING, leaving, &body));
}

static void on_stop_signal(void *context, int signal_number) {
    struct serving *serving = context;
    bool again = serving->signals++ > 0;
    log_info("agent", "signal %d: ending", signal_number);
    if (!again && serving->active) {
        if (signal_number == serving->launch.body->preempt_signal) describe_preemption(serving);
        say_leaving(serving, signal_number);
    }
    serving_end(serving, again);
}

/* SIGTERM and SIGINT are heard in any case. */
void signals_watch_preemption(struct serving *serving) {
    int number = serving->launch.body->preempt_signal;
    if (number == 0 || number == SIGTERM || number == SIGINT || serving->preempt_signal.callback != NULL)
        return;
    serving->preempt_signal = (struct loop_signal){.callback = on_stop_signal, .context = serving};
    (void)loop_signal_start(serving->loop, &serving->preempt_signal, number);
}

int signals_start(struct serving *serving) {
    static const int stops[] = {SIGTERM, SIGINT};
    serving->child_signal = (struct loop_signal){.callback = on_child_signal, .context = serving};
    int code = loop_signal_start(serving->loop, &serving->child_signal, SIGCHLD);
    for (size_t i = 0; i < ARRAY_SIZE(stops) && code == 0; i++) {
        serving->stop_signals[i] = (struct loop_signal){.callback = on_stop_signal, .context = serving};
        code = loop_signal_start(serving->loop, &serving->stop_signals[i], stops[i]);
    }
    return code;
}

void signals_stop(struct serving *serving) {
    loop_signal_stop(serving->loop, &serving->child_signal);
    for (size_t i = 0; i < ARRAY_SIZE(serving->stop_signals); i++)
        loop_signal_stop(serving->loop, &serving->stop_signals[i]);
    if (serving->preempt_signal.callback != NULL) loop_signal_stop(serving->loop, &serving->preempt_signal);
}
