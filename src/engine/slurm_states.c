/* What Slurm says of the nodes of this allocation: drained, down, not answering, and why. sinfo tells the whole
 * reason at the end of a line, so that nothing in it can pretend to be another field. What follows for the run
 * is the controller's (controller/scheduler.c). */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/program.h"
#include "base/str.h"
#include "engine/slurm.h"

#define SINFO_LIMIT (5 * NS_PER_S)

void slurm_read_states(char *text, struct buffer *out) {
    /* A suffix stands behind the state: * for a node that does not answer. */
    static const char *const unwell[] = {"down", "drain", "fail", "reboot", "unknown", "inval", "*"};
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        char *state = strchr(line, '|'), *reason = state != NULL ? strchr(state + 1, '|') : NULL;
        if (reason == NULL) continue;
        *state++ = *reason++ = '\0';
        for (char *at = reason; *at != '\0'; at++)
            if (*at == '\t') *at = ' ';
        bool well = true, silent = strchr(state, '*') != NULL;
        for (size_t i = 0; i < ARRAY_SIZE(unwell); i++)
            well = well && strstr(state, unwell[i]) == NULL;
        if (well) continue;
        state[strcspn(state, "*~#!%$@^-+")] = '\0';
        buffer_printf(out, "%s\t%s%s\t%s\n", line, state, silent ? ", and does not answer Slurm" : "",
                      str_equal(reason, "none") ? "" : reason);
    }
}

int slurm_ask_states(struct buffer *out, ty_error *err) {
    const char *const argv[] = {
        "sinfo", "--noheader", "--Node", "--format=%N|%T|%E", "--nodes", getenv("SLURM_JOB_NODELIST"),
        "--all", NULL};
    CLEANUP(buffer_done) struct buffer text = {0};
    const struct program_call call = {.argv = argv, .out = &text, .limit = SINFO_LIMIT};
    int result =
        argv[5] == NULL ? ty_fail(err, TY_EUSAGE, "SLURM_JOB_NODELIST is not set") : program_ask(&call, err);
    if (result < 0 || text.size == 0) return result;
    slurm_read_states(text.data, out);
    return out->failed ? ty_fail_memory(err) : 0;
}
