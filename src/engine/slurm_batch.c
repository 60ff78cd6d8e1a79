/* A batch job that runs the controller in its first node's shell, so that nothing of it hangs on the login that
 * submitted it. The script asks for the signal before the end, hands it on, and puts the job into the queue
 * again when the machines were taken away, as often as it may; the run is then gone on with, by its name. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/program.h"
#include "base/str.h"
#include "engine/slurm.h"

#define SUBMIT_LIMIT (60 * NS_PER_S)

/* In double quotes where Slurm's reading of #SBATCH lines would see more than one word; it knows a backslash in
 * them, before a quote and before another backslash. */
static void add_value(const char *text, struct buffer *out) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
    if (*text != '\0' && text[strspn(text, plain)] == '\0') {
        buffer_text(out, text);
        return;
    }
    buffer_char(out, '"');
    for (; *text != '\0'; text++)
        buffer_printf(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    buffer_char(out, '"');
}

static void add_directive(const char *name, const char *value, struct buffer *out) {
    buffer_printf(out, "#SBATCH --%s", name);
    if (value != NULL) {
        buffer_char(out, '=');
        add_value(value, out);
    }
    buffer_char(out, '\n');
}

/* What the job does. The shell hears the signals (B:), since it is what Slurm tells; `wait` ends with each of
 * them. Slurm requeues by itself what it preempts; what runs into its time limit the script puts back.
 * `scontrol requeue` may return before Slurm ends this shell, which then waits for its end and does not bring
 * it about. */
static void add_body(const struct slurm_batch *batch, struct buffer *out) {
    buffer_printf(
        out,
        "\nbudget=%lld\n"
        "restarts=${SLURM_RESTART_COUNT:-0}\n"
        "if [ \"$restarts\" -gt $budget ]; then\n"
        "    echo \"job $SLURM_JOB_ID was requeued $restarts times, and may be $budget times "
        "(--max-requeues)\" >&2\n"
        "    exit 143\n"
        "fi\n"
        "run= told=\n"
        "tell() { [ -z \"$run\" ] || kill -$signal $run 2>/dev/null; }\n"
        "trap 'told=USR1 signal=%s; tell' USR1\n"
        "trap 'told=TERM signal=TERM; tell' TERM\n"
        "%s &\n"
        "run=$!\n"
        "[ -z \"$told\" ] || tell\n"
        "while :; do\n"
        "    wait $run\n"
        "    status=$?\n"
        "    kill -0 $run 2>/dev/null || break\n"
        "done\n"
        "wait $run 2>/dev/null\n"
        "again=$?\n"
        "[ $again = 127 ] || status=$again # the first wait ended with a signal's trap\n"
        "# 128 + USR1, or TERM in its place: the time is over. 128 + TERM, of which this shell was not told "
        "as\n"
        "# by scancel: Slurm told the agents that others want their machines. Either way the run can be gone "
        "on "
        "with.\n"
        "[ $status != 143 ] || [ \"$told\" = TERM ] || status=138\n"
        "if [ $status = 138 ] && [ \"$restarts\" -lt $budget ]; then\n"
        "    echo \"job $SLURM_JOB_ID goes back into the queue ($((restarts + 1)) of $budget times)\" >&2\n"
        "    one=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID} # and not all of its array\n"
        "    scontrol requeue \"${one:-$SLURM_JOB_ID}\" && sleep 60\n"
        "fi\n"
        "exit $status\n",
        (long long)batch->max_requeues, batch->preempt_signal, batch->command);
}

int slurm_batch_format(const struct slurm_batch *batch, const struct slurm_request *request,
                       struct buffer *out) {
    char notice[40];
    (void)snprintf(notice, sizeof notice, "B:USR1@%lld", (long long)batch->notice_s);
    const struct {
        const char *name, *value;
    } own[] = {{"job-name", batch->name},
               {"output", batch->output},
               {"open-mode", "append"},
               {"signal", notice},
               {batch->max_requeues > 0 ? "requeue" : "no-requeue", NULL}};
    buffer_text(out, "#!/bin/sh\n");
    for (size_t i = 0; i < ARRAY_SIZE(own); i++)
        if (slurm_request_value(request, own[i].name) == NULL) add_directive(own[i].name, own[i].value, out);
    for (size_t i = 0; i < request->n; i++)
        add_directive(request->lines[i].name, request->lines[i].value, out);
    add_body(batch, out);
    return out->failed ? -ENOMEM : 0;
}

int slurm_batch_submit(const char *script, int64_t *job_id, ty_error *err) {
    static const char *const argv[] = {"sbatch", "--parsable", NULL};
    CLEANUP(buffer_done) struct buffer out = {0};
    const struct program_call call = {.argv = argv, .input = script, .out = &out, .limit = SUBMIT_LIMIT};
    int result = program_ask(&call, err);
    if (result < 0) return result;
    if (out.size > 0) out.data[strcspn(out.data, ";\n")] = '\0';
    if (out.size > 0 && str_to_int64(out.data, 1, INT64_MAX, job_id)) return 0;
    return ty_fail(err, TY_ESTART, "sbatch did not tell the number of the job: '%.80s'",
                   out.size > 0 ? out.data : "");
}

/* -- why it waits -- */

/* The reasons of squeue, and what they mean to who waits. */
static const struct reason {
    const char *name, *words;
} reasons[] = {
    {"None", "Slurm has not looked at it yet"},
    {"Resources", "other jobs hold what it needs"},
    {"Priority", "jobs before it in the queue wait as well"},
    {"Licenses", "other jobs hold the licences that it needs"},
    {"Dependency", "a job that it depends on has not ended"},
    {"DependencyNeverSatisfied", "a job that it depends on failed, so it never starts: cancel it"},
    {"BeginTime",
     "it may not begin yet, as it asks for, or for two minutes, as it was put back into the queue"},
    {"JobHeldUser", "you hold it: scontrol release frees it"},
    {"JobHeldAdmin", "an administrator holds it"},
    {"ReqNodeNotAvail", "nodes that it needs are down, drained or reserved"},
    {"PartitionDown", "its partition takes no jobs"},
    {"PartitionInactive", "its partition takes no jobs"},
    {"PartitionNodeLimit", "it asks for more nodes than its partition allows, so it never starts: cancel it"},
    {"PartitionTimeLimit", "it asks for more time than its partition allows, so it never starts: cancel it"},
    {"BadConstraints", "no nodes can ever meet what it asks for: cancel it"},
    {"Reservation", "the reservation that it asks for has not begun"},
    {"NodeDown", "a node that it needs is down"},
    {"Cleaning", "what an earlier start of it left is being cleared up"},
    {"launch failed requeued held", "it could not be started, and is held: scontrol release frees it"},
};

static const char *reason_words(const char *reason) {
    for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
        if (str_equal(reasons[i].name, reason)) return reasons[i].words;
    if (str_prefix(reason, "ReqNodeNotAvail", NULL) || str_prefix(reason, "Nodes required for job are", NULL))
        return "nodes that it needs are down, drained or reserved";
    if (str_prefix(reason, "QOS", NULL)) return "a limit of its quality of service is reached";
    if (str_prefix(reason, "Assoc", NULL)) return "a limit of your account is reached";
    if (str_prefix(reason, "MaxMemPerLimit", NULL))
        return "it asks for more memory than is allowed, so it never starts: cancel it";
    return NULL;
}

bool slurm_job_state(int64_t job_id, struct buffer *out, bool *over) {
    static const char *const ends[] = {"BOOT_FAIL", "CANCELLED", "COMPLETED",     "DEADLINE", "FAILED",
                                       "NODE_FAIL", "TIMEOUT",   "OUT_OF_MEMORY", "PREEMPTED"};
    char id[24];
    (void)snprintf(id, sizeof id, "%lld", (long long)job_id);
    const char *const argv[] = {"squeue", "--noheader", "--states=all", "--jobs", id, "--format=%T|%r|%S",
                                NULL};
    CLEANUP(buffer_done) struct buffer line = {0};
    const struct program_call call = {.argv = argv, .out = &line, .limit = SUBMIT_LIMIT};
    if (program_ask(&call, NULL) < 0) return false;
    char *state = line.size > 0 ? line.data : "", *reason = strchr(state, '|');
    if (reason == NULL) return false;
    *reason++ = '\0';
    char *begin = reason + strcspn(reason, "|");
    if (*begin != '\0') *begin++ = '\0';
    begin[strcspn(begin, "\n")] = '\0';
    if (over != NULL) *over = str_find(state, ends, ARRAY_SIZE(ends)) >= 0;
    const char *words = reason_words(reason);
    if (str_equal(state, "RUNNING"))
        buffer_text(out, "runs");
    else if (!str_equal(state, "PENDING"))
        buffer_printf(out, "is %s", state);
    else
        buffer_printf(out, "waits: %s%s%s%s", words != NULL ? words : "", words != NULL ? " (" : "", reason,
                      words != NULL ? ")" : "");
    if (str_equal(state, "PENDING") && *begin != '\0' && !str_equal(begin, "N/A"))
        buffer_printf(out, str_equal(reason, "BeginTime") ? ", not before %s" : ", until %s at the latest",
                      begin);
    return !out->failed;
}
