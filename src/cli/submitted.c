/* Runs that `trainyard submit` has given to Slurm and that have not begun: there is no journal yet. The file of
 * the job's output, which `submit` makes beside the run's directory, has the number of the job in its name, and
 * Slurm says why that waits. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/command.h"
#include "controller/run_directory.h"
#include "engine/slurm.h"

#define OUTPUT_MIDDLE ".slurm-"
#define OUTPUT_END ".out"

char *submitted_output(const char *storage, const char *name, int64_t job_id) {
    return str_format("%s/%s" OUTPUT_MIDDLE "%lld" OUTPUT_END, storage, name, (long long)job_id);
}

/* Of a file NAME.slurm-JOB.out; -1: it is another. */
static int64_t job_of_file(const char *file, const char *name) {
    const char *digits = NULL, *end = strrchr(file, '.');
    char number[24] = "";
    int64_t job_id = -1;
    if (!str_prefix(file, name, &digits) || !str_prefix(digits, OUTPUT_MIDDLE, &digits)) return -1;
    if (end < digits || (size_t)(end - digits) >= sizeof number || !str_equal(end, OUTPUT_END)) return -1;
    memcpy(number, digits, (size_t)(end - digits));
    return str_to_int64(number, 1, INT64_MAX, &job_id) ? job_id : -1;
}

bool submitted_look(const char *storage_path, const char *name, struct submitted *found) {
    *found = (struct submitted){0};
    CLEANUP_FREE char *storage = run_directory_storage(storage_path, NULL);
    DIR *stream = storage != NULL ? opendir(storage) : NULL;
    if (stream == NULL) return false;
    for (const struct dirent *entry = readdir(stream); entry != NULL; entry = readdir(stream)) {
        int64_t job_id = job_of_file(entry->d_name, name);
        if (job_id > found->job_id) found->job_id = job_id; /* the last one that was submitted */
    }
    (void)closedir(stream);
    if (found->job_id == 0) return false;
    CLEANUP(buffer_done) struct buffer state = {0};
    /* A job that came to a good end has had its run, which was removed; an old one Slurm has forgotten. */
    if (!slurm_job_state(found->job_id, &state, NULL) || str_equal(state.data, "is COMPLETED")) return false;
    found->waits = str_prefix(state.data, "waits: ", NULL);
    found->output = submitted_output(storage, name, found->job_id);
    found->state = buffer_take(&state);
    if (found->output != NULL && found->state != NULL) return true;
    submitted_done(found);
    return false;
}

void submitted_done(struct submitted *found) {
    free(TAKE(found->output));
    free(TAKE(found->state));
}

char *submitted_find_run(const char *storage_path, const char *name, ty_error *err) {
    struct submitted found;
    char *path = run_directory_find(storage_path, name, err);
    if (path != NULL || !submitted_look(storage_path, name, &found)) return path;
    (void)ty_fail(err, TY_EUSAGE,
                  "the run %.100s has not begun: job %lld %.300s; what the job says goes to %.300s", name,
                  (long long)found.job_id, found.state, found.output);
    submitted_done(&found);
    return NULL;
}
