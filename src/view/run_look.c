/* One thread makes the looks, one after the other; where it gets no further another one begins with the next,
 * so that there are soon as many as there are directories that do not answer. What is made of a look is
 * runs.c's. */
#include "view/run_look.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/duration.h"
#include "base/file.h"
#include "base/kernel.h"
#include "base/str.h"
#include "controller/run_directory.h"
#include "controller/run_lock.h"
#include "journal/journal.h"

enum { THREADS = 64, STALL_MS = 50 };
#define SETTLED NS_PER_S /* much longer than it takes from the writing of a commit to its being seen */

/* Looks that are made together; of whoever waits, and of each thread. */
struct looking {
    pthread_cond_t ended;
    struct run_look **looks; /* n, of which `next` were begun */
    size_t n, next, n_done, n_threads, users;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void note_error(struct run_look *look, int result, const ty_error *err) {
    if (result < 0) look->error = strdup(err->message);
    look->failed = result == -ENOMEM || (result < 0 && look->error == NULL);
}

static bool is_old(const struct stat *file) {
    return clock_wall() - (file->st_mtim.tv_sec * NS_PER_S + file->st_mtim.tv_nsec) >= SETTLED;
}

/* A commit is in the log before SQLite shows it to readers: what is read in between is the state before, though
 * the files change no more. Where a server's clock is ahead of this machine's they look new for as long as
 * that; then counts how long they have been seen so. */
static bool have_settled(const struct run_files *files) {
    return (is_old(&files->file) && is_old(&files->log)) || clock_monotonic() - files->since >= SETTLED;
}

static bool are_same(const struct run_files *one, const struct run_files *other) {
    return file_is_unchanged(&one->file, &other->file) && file_is_unchanged(&one->log, &other->log) &&
           one->held == other->held && one->denied == other->denied;
}

/* In a thread, without the lock: nobody else touches a look that is begun until it is done. The files are
 * looked at before the journal is read: what is written in between looks new the next time, and is read
 * again. */
static void look_at(struct run_look *look) {
    char name[PATH_MAX + 16];
    ty_error err = {0};
    if (look->lists) {
        note_error(look, run_directory_candidates(look->path, &look->names, &look->n_names, &err), &err);
        return;
    }
    int there = journal_exists(look->path);
    if (there == 0 || there == -ELOOP) return;
    look->real = realpath(look->path, NULL);
    if (look->real == NULL && there > 0) return;
    if (look->real == NULL) look->real = strdup(look->path);
    look->failed = look->real == NULL;
    if (look->failed) return;
    look->files = (struct run_files){.denied = there < 0 ? there : 0,
                                     .held = there > 0 && run_lock_is_driven(look->real)};
    (void)snprintf(name, sizeof name, "%s/run.db", look->real);
    if (there > 0 && stat(name, &look->files.file) < 0) return; /* gone meanwhile */
    (void)snprintf(name, sizeof name, "%s/run.db-wal", look->real);
    if (there > 0) (void)stat(name, &look->files.log);
    bool same = are_same(&look->files, &look->known);
    look->files.since = same ? look->known.since : clock_monotonic();
    look->files.settled = have_settled(&look->files);
    look->found = same && look->known.settled ? FOUND_SAME : FOUND_NEWS;
    if (look->found == FOUND_SAME) return;
    int result = there < 0 ? ty_fail(&err, there, "cannot look into %s: %s", look->real, strerror(-there))
                           : view_summary_read(look->name, look->real, &look->summary, &err);
    note_error(look, result, &err);
}

static void free_look(struct run_look *look) {
    view_summary_done(&look->summary);
    run_directory_names_free(look->names, look->n_names);
    free(look->path);
    free(look->real);
    free(look->error);
    free(look);
}

struct run_look *run_look_create(const char *path, const struct run_files *known) {
    struct run_look *look = calloc(1, sizeof *look);
    if (look == NULL || (look->path = strdup(path)) == NULL) {
        free(look);
        return NULL;
    }
    look->name = strrchr(look->path, '/') + 1;
    look->lists = known == NULL;
    if (known != NULL) look->known = *known;
    return look;
}

void run_look_release(struct run_look *look) {
    if (look == NULL) return;
    pthread_mutex_lock(&lock);
    look->left = look->begun && !look->done;
    bool mine = !look->left;
    pthread_mutex_unlock(&lock);
    if (mine) free_look(look);
}

enum run_look_state run_look_state(const struct run_look *look) {
    pthread_mutex_lock(&lock);
    enum run_look_state state = look->done ? LOOK_IS_DONE : look->begun ? LOOK_GOES_ON : LOOK_WAITS;
    pthread_mutex_unlock(&lock);
    return state;
}

/* Under the lock. */
static void let_go(struct looking *looking) {
    if (--looking->users > 0) return;
    (void)pthread_cond_destroy(&looking->ended);
    free(looking->looks);
    free(looking);
}

/* Makes looks until none is left to begin. Who waited may be gone by the end of one, and whoever asked for that
 * look too (`left`): the last user frees what is shared. */
static void *make_looks(void *context) {
    struct looking *looking = context;
    pthread_mutex_lock(&lock);
    while (looking->next < looking->n) {
        struct run_look *look = looking->looks[looking->next++];
        look->begun = true;
        pthread_mutex_unlock(&lock);
        look_at(look);
        pthread_mutex_lock(&lock);
        look->done = true;
        if (look->left) free_look(look);
        if (++looking->n_done == looking->n) (void)pthread_cond_signal(&looking->ended);
    }
    looking->n_threads--;
    let_go(looking);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Under the lock. */
static bool start_thread(struct looking *looking) {
    enum { LOOK_STACK = 512 << 10 };
    bool started = kernel_thread(NULL, LOOK_STACK, make_looks, looking) == 0;
    looking->n_threads += started;
    looking->users += started;
    return started;
}

/* Under the lock. A thread is added each STALL_MS in which no look ended: one is enough while directories
 * answer, and 64 that hang leave none for the rest. */
static void wait_for_looks(struct looking *looking) {
    nanoseconds now = clock_monotonic(), end = now + RUN_LOOK_SECONDS * NS_PER_S;
    bool stalled = true;
    while (looking->n_done < looking->n && now < end) {
        size_t before = looking->n_done;
        if (stalled && looking->next < looking->n && looking->n_threads < THREADS && !start_thread(looking) &&
            looking->n_threads == 0) { /* none can be had at all */
            looking->n_threads++;
            looking->users++;
            pthread_mutex_unlock(&lock);
            (void)make_looks(looking);
            pthread_mutex_lock(&lock);
            return;
        }
        nanoseconds until = now + STALL_MS * NS_PER_MS;
        const struct timespec limit = {.tv_sec = until / NS_PER_S, .tv_nsec = until % NS_PER_S};
        (void)pthread_cond_timedwait(&looking->ended, &lock, &limit);
        stalled = looking->n_done == before;
        now = clock_monotonic();
    }
}

int run_looks_make(struct run_look *const *looks, size_t n, ty_error *err) {
    struct looking *looking = calloc(1, sizeof *looking);
    if (looking != NULL) looking->looks = malloc((n + 1) * sizeof(struct run_look *));
    if (looking == NULL || looking->looks == NULL) {
        free(looking);
        return ty_fail_memory(err);
    }
    if (n > 0) memcpy(looking->looks, looks, n * sizeof(struct run_look *));
    looking->n = n;
    looking->users = 1;
    kernel_condition(&looking->ended);
    pthread_mutex_lock(&lock);
    wait_for_looks(looking);
    looking->n = looking->next; /* what was not begun is not begun any more */
    let_go(looking);
    pthread_mutex_unlock(&lock);
    return 0;
}
