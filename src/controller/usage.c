/* Samples of the hardware on their way from agents to usage.db. A batch is written at a time, by a thread; what
 * comes meanwhile gathers, to a bound, and is lost above it. The first failure to write is told, and the last:
 * no more are kept. Batches and the file belong to the thread: when it hangs it keeps them. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "controller/ty_run.h"
#include "journal/usage_db.h"

enum { USAGE_GATHERED_MAX = 4 << 20 }; /* bytes */

struct usage_entry {
    char *node;                  /* owned */
    struct usage_sample *sample; /* owned; as large as its packet */
};

/* The thread's. Its job is the last one. */
struct usage_file {
    struct storage_job job;
    char *run_path;
    int lock;           /* of the run */
    struct journal *db; /* NULL: not opened yet, or given up */
    bool given_up;
};

struct usage_batch {
    struct storage_job job;
    struct ty_run *run; /* for what follows */
    struct usage_file *file;
    struct usage_entry *entries;
    size_t n;
    ty_error error;
};

struct usage_keeper {
    char *path;
    struct storage *storage;
    struct usage_file *file;
    struct usage_batch *gathered; /* NULL: nothing */
    size_t bytes;                 /* that are gathered */
    bool used;                    /* the file is the thread's */
    bool told;                    /* that samples are lost */
};

/* -- in the thread */

/* Closes the file of a run that another controller has taken over; the end of the run tells of that. */
static void close_lost(struct usage_file *file, const char *path) {
    ty_error why = {0};
    if (records_check_lock(file->lock, path, file->db, &why) != TY_EEXISTS) return;
    file->given_up = true;
    journal_close(TAKE(file->db));
}

/* Opened with the first sample, so that a short run has no such file. Thinning comes with each batch: the file
 * stays within its bound (USAGE_DB_MOST) however long the run is. */
static void write_batch(struct storage_job *job) {
    struct usage_batch *batch = (struct usage_batch *)job;
    struct usage_file *file = batch->file;
    ty_error *err = &batch->error;
    close_lost(file, job->path);
    if (file->given_up) return;
    int result = file->db != NULL ? 0 : usage_db_open(file->run_path, &file->db, err);
    for (size_t i = 0; i < batch->n && result >= 0; i++)
        result = usage_db_add(file->db, batch->entries[i].node, batch->entries[i].sample, err);
    if (result >= 0)
        result = usage_db_thin(file->db, batch->entries[batch->n - 1].sample->time, USAGE_DB_MOST, err);
    if (result >= 0) result = journal_commit(file->db, err);
    if (result >= 0) return;
    file->given_up = true;
    journal_close(TAKE(file->db));
}

/* Another program cut the index short under its mapping: nothing of the file can be used any more. */
static void cut_batch(struct storage_job *job) {
    struct usage_batch *batch = (struct usage_batch *)job;
    batch->file->given_up = true;
    batch->file->db = NULL;
    (void)ty_fail(&batch->error, TY_ECORRUPT, "cannot write %s: %s-shm was cut short by another program",
                  job->path, job->path);
}

static void close_file(struct storage_job *job) {
    struct usage_file *file = (struct usage_file *)job;
    if (file->db != NULL) close_lost(file, job->path);
    journal_close(TAKE(file->db));
}

static void cut_file(struct storage_job *job) {
    ((struct usage_file *)job)->db = NULL;
}

static void free_file(struct storage_job *job) {
    struct usage_file *file = (struct usage_file *)job;
    close_file(job);
    free(file->run_path);
    free(file);
}

static void free_batch(struct storage_job *job) {
    struct usage_batch *batch = (struct usage_batch *)job;
    for (size_t i = 0; i < batch->n; i++) {
        free(batch->entries[i].node);
        free(batch->entries[i].sample);
    }
    free(batch->entries);
    free(batch);
}

/* -- on the loop */

static void tell(struct ty_run *run, const char *why) {
    if (run->usage->told) return;
    run->usage->told = true;
    progress_hide(&run->output.progress);
    log_warning("usage", "%s: samples of the hardware are lost; the training goes on", why);
}

struct storage *usage_storage(const struct ty_run *run) {
    return run->usage->storage;
}

int usage_open(struct ty_run *run, ty_error *err) {
    struct usage_keeper *keeper = calloc(1, sizeof *keeper);
    struct usage_file *file = calloc(1, sizeof *file);
    if (file != NULL) file->run_path = strdup(run->path);
    if (keeper != NULL && asprintf(&keeper->path, "%s/" USAGE_DB_NAME, run->path) < 0) keeper->path = NULL;
    int result = keeper == NULL || keeper->path == NULL || file == NULL || file->run_path == NULL
                     ? ty_fail_memory(err)
                     : storage_open(-1, &keeper->storage, err);
    if (result < 0) {
        if (file != NULL) free_file(&file->job);
        if (keeper != NULL) free(keeper->path);
        free(keeper);
        return result;
    }
    file->job = (struct storage_job){.work = close_file,
                                     .release = free_file,
                                     .apart = true,
                                     .cut = cut_file,
                                     .what = "closing",
                                     .path = keeper->path};
    file->lock = run_lock_fd(run->lock);
    keeper->file = file;
    run->usage = keeper;
    return 0;
}

static void end_batch(struct storage_job *job) {
    const struct usage_batch *batch = (const struct usage_batch *)job;
    if (batch->error.code < 0) tell(batch->run, batch->error.message);
}

static struct usage_batch *make_batch(struct ty_run *run) {
    struct usage_batch *batch = calloc(1, sizeof *batch);
    if (batch == NULL) return NULL;
    batch->job = (struct storage_job){.work = write_batch,
                                      .done = end_batch,
                                      .release = free_batch,
                                      .apart = true,
                                      .cut = cut_batch,
                                      .what = "writing",
                                      .path = run->usage->path};
    batch->run = run;
    batch->file = run->usage->file;
    return batch;
}

static int gather(struct usage_batch *batch, const char *node, const Wire__Usage *usage, nanoseconds time) {
    const struct usage_sample whole = {.n = (uint32_t)usage->n_values};
    if (ARRAY_GROW(batch->entries, batch->n) < 0) return -ENOMEM;
    struct usage_entry entry = {strdup(node), calloc(1, usage_size(&whole))};
    if (entry.node == NULL || entry.sample == NULL) {
        free(entry.node);
        free(entry.sample);
        return -ENOMEM;
    }
    entry.sample->time = time;
    for (size_t i = 0; i < usage->n_values; i++)
        if (usage->values[i]->what < USAGES_N)
            usage_add(entry.sample, (enum usage_what)usage->values[i]->what, usage->values[i]->number,
                      usage->values[i]->value);
    batch->entries[batch->n++] = entry;
    return 0;
}

void usage_take(struct peer *peer, const Wire__Usage *usage, nanoseconds time) {
    struct ty_run *run = peer->run;
    struct usage_keeper *keeper = run->usage;
    if (usage->n_values == 0 || usage->n_values > USAGE_VALUES_MAX) return;
    if (keeper->bytes > USAGE_GATHERED_MAX) {
        tell(run, "the storage of usage.db does not keep up");
        return;
    }
    if (keeper->gathered == NULL) keeper->gathered = make_batch(run);
    if (keeper->gathered == NULL || gather(keeper->gathered, peer->name, usage, time) < 0)
        tell(run, "out of memory");
    else
        keeper->bytes += usage->n_values * sizeof(struct usage_value);
}

/* Gives the thread what has gathered; a batch whose first sample found no memory is none. */
static void post_gathered(struct usage_keeper *keeper) {
    struct usage_batch *batch = TAKE(keeper->gathered);
    keeper->bytes = 0;
    if (batch == NULL || batch->n == 0) {
        if (batch != NULL) free_batch(&batch->job);
        return;
    }
    keeper->used = true;
    storage_post(keeper->storage, &batch->job);
}

/* One at a time: a thread that hangs has no queue behind it. */
void usage_commit(struct ty_run *run) {
    if (run->usage != NULL && !storage_busy(run->usage->storage)) post_gathered(run->usage);
}

void usage_close(struct ty_run *run) {
    struct usage_keeper *keeper = TAKE(run->usage);
    if (keeper == NULL) return;
    post_gathered(keeper);
    if (keeper->used) /* behind its last batch, the file is closed by the thread */
        storage_post(keeper->storage, &keeper->file->job);
    else
        free_file(&keeper->file->job);
    storage_close(keeper->storage, 0);
    free(keeper->path);
    free(keeper);
}
