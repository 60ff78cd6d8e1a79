/* Reads a worker's place in the run from the variables that its agent set (docs/design.md 5.3). Every one is
 * checked before it is believed, because any program may have changed them on the way. Variables that
 * frameworks read are not looked at. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "worker/worker.h"

static int read_number(const char *name, int min, int max, int *number, ty_error *err) {
    const char *text = getenv(name);
    int64_t value;
    if (text == NULL) return ty_fail(err, TY_EUSAGE, "%s is not set: a worker's agent sets it", name);
    if (!str_to_int64(text, min, max, &value))
        return ty_fail(err, TY_EUSAGE, "%s is \"%.64s\", but must be a number from %d to %d", name, text, min,
                       max);
    *number = (int)value;
    return 0;
}

static int read_text(const char *name, char **text, ty_error *err) {
    const char *value = getenv(name);
    if (value == NULL || value[0] == '\0')
        return ty_fail(err, TY_EUSAGE, "%s is not set: a worker's agent sets it", name);
    *text = strdup(value);
    return *text != NULL ? 0 : ty_fail_memory(err);
}

static int add_device(void *context, char *piece) {
    struct ty_worker *worker = context;
    int64_t index;
    if (!str_to_int64(piece, 0, INT_MAX, &index)) return TY_EUSAGE;
    worker->devices[worker->n_devices++] = (int)index;
    return 0;
}

/* There are never more indices than characters. */
static int read_devices(struct ty_worker *worker, ty_error *err) {
    const char *text = getenv("TRAINYARD_DEVICES");
    if (text == NULL || text[0] == '\0') return 0;
    worker->devices = calloc(strlen(text), sizeof *worker->devices);
    if (worker->devices == NULL) return ty_fail_memory(err);
    int rc = str_split(text, ',', add_device, worker);
    if (rc == -ENOMEM) return ty_fail_memory(err);
    if (rc == 0) return 0;
    return ty_fail(err, TY_EUSAGE,
                   "TRAINYARD_DEVICES is \"%.64s\", but must be device indices joined by commas", text);
}

int worker_read_environment(struct ty_worker *worker, ty_error *err) {
    struct ty_worker read = {0};
    int rc = read_number("WORLD_SIZE", 1, INT_MAX, &read.world_size, err);
    if (rc == 0) rc = read_number("RANK", 0, read.world_size - 1, &read.rank, err);
    if (rc == 0) rc = read_number("LOCAL_WORLD_SIZE", 1, read.world_size, &read.local_world_size, err);
    if (rc == 0) rc = read_number("LOCAL_RANK", 0, read.local_world_size - 1, &read.local_rank, err);
    if (rc == 0) rc = read_number("NODE_RANK", 0, read.world_size - 1, &read.node_rank, err);
    if (rc == 0) rc = read_number("TRAINYARD_ATTEMPT", 1, INT_MAX, &read.attempt, err);
    if (rc == 0) rc = read_text("TRAINYARD_RUN", &read.run_name, err);
    if (rc == 0) rc = read_text(WORKER_PATH_VARIABLE, &read.run_path, err);
    if (rc == 0) rc = read_devices(&read, err);
    const char *checkpoint = getenv(WORKER_CHECKPOINT_VARIABLE);
    if (rc == 0 && checkpoint != NULL && checkpoint[0] != '\0')
        rc = read_text(WORKER_CHECKPOINT_VARIABLE, &read.checkpoint, err);
    if (rc < 0)
        worker_done(&read);
    else
        *worker = read;
    return rc;
}

void worker_done(struct ty_worker *worker) {
    free(worker->run_name);
    free(worker->run_path);
    free(worker->checkpoint);
    free(worker->devices);
    buffer_done(&worker->line);
    buffer_done(&worker->answer);
    link_close(worker->link);
    *worker = (struct ty_worker){0};
}
