/* Storage that is the controller's, or not. Where it is not, a file in the run's directory here, whose lock
 * each agent of the run on this machine holds, tells whose it is: it holds what the controller's run.lock does.
 * One of another run that nobody holds was left behind, and goes; a directory without it is a user's. */
#include "agent/node_storage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "checkpoint/carry_wire.h"
#include "checkpoint/checkpoint.h"

#define MARK_NAME ".trainyard-node"
#define FETCH_NAME ".trainyard-fetch"
enum { MARK_MAX = 8192, STORAGE_LOOKS = 20 };
static const struct timespec BETWEEN_LOOKS = {0, 100000000};

/* -- the look, in the thread */

/* The thread's until the job is done; then the directory's path and mark go to the storage. Where nobody waits
 * for the end of the job they go with it: an agent that lives on holds no run that it has left. */
struct preparing {
    struct storage_job job;
    struct node_storage *storage;
    char *path, *text;
    bool apart;
    int mark; /* -1: there is none */
    ty_error err;
};

static bool holds(int directory, const char *name, const char *text) {
    char there[MARK_MAX];
    CLEANUP_FD int fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t size = fd < 0 ? -1 : pread(fd, there, sizeof there, 0);
    return size >= 0 && (size_t)size == strlen(text) && memcmp(there, text, (size_t)size) == 0;
}

/* 1: the directory is ours, also where another agent of the run made it; 0: try again; TY_ESTART. */
static int claim(struct preparing *preparing) {
    const char *path = preparing->path;
    char there[MARK_MAX];
    bool made = mkdir(path, 0755) == 0;
    if (!made && errno != EEXIST)
        return ty_fail(&preparing->err, TY_ESTART, "cannot make %s: %s", path, strerror(errno));
    CLEANUP_FD int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CLEANUP_FD int mark =
        openat(directory, MARK_NAME, O_RDWR | O_NOFOLLOW | O_CLOEXEC | (made ? O_CREAT : 0), 0600);
    /* All agents of a run hold its mark together. Whoever gets it for himself knows that none of them lives. */
    if (mark < 0 || flock(mark, LOCK_SH | LOCK_NB) < 0) return 0;
    ssize_t size = pread(mark, there, sizeof there, 0);
    if (size < 0)
        return ty_fail(&preparing->err, TY_ESTART, "cannot read %s/" MARK_NAME ": %s", path, strerror(errno));
    if (size == 0 && !made) return 0; /* it is being written */
    bool same = (size_t)size == strlen(preparing->text) && memcmp(there, preparing->text, (size_t)size) == 0;
    if (size > 0 && !same) {
        if (flock(mark, LOCK_EX | LOCK_NB) == 0) checkpoint_drop(path);
        return 0;
    }
    if (size == 0 && file_write_all(mark, preparing->text, strlen(preparing->text)) < 0)
        return ty_fail(&preparing->err, TY_ESTART, "cannot write %s/" MARK_NAME ": %s", path, strerror(errno));
    preparing->mark = TAKE_FD(mark);
    return 1;
}

/* Is there a run.lock with the same text in the run's directory here? Then it is the same directory. One with
 * another text may be an old view of it, as a network file system remembers for a moment: it is looked at
 * again. Else a directory of this node's own is made under the same path, so that workers find what they are
 * told. */
static void look(struct storage_job *job) {
    struct preparing *preparing = (struct preparing *)job;
    const char *path = preparing->path;
    struct stat status;
    for (int i = 0; i < STORAGE_LOOKS; i++) {
        CLEANUP_FD int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (directory >= 0 && holds(directory, LOCK_NAME, preparing->text)) return;
        if (directory < 0 || fstatat(directory, LOCK_NAME, &status, AT_SYMLINK_NOFOLLOW) < 0) break;
        (void)nanosleep(&BETWEEN_LOOKS, NULL);
    }
    preparing->apart = true;
    CLEANUP_FREE char *parent = strndup(path, (size_t)(strrchr(path, '/') - path));
    if (parent == NULL) (void)ty_fail_memory(&preparing->err);
    if (parent == NULL || file_make_directories(parent, 0755, &preparing->err) < 0) return;
    int result = 0;
    for (int i = 0; i < STORAGE_LOOKS && result == 0; i++) {
        result = claim(preparing);
        if (result == 0) (void)nanosleep(&BETWEEN_LOOKS, NULL);
    }
    if (result == 0)
        (void)ty_fail(
            &preparing->err, TY_ESTART,
            "%s is there, and not the run's: this node's storage is not that of the controller's node, and "
            "another run, or somebody, has a directory of that name here",
            path);
}

/* -- what else is done there */

enum clearing_kind { CLEARING_DROP, CLEARING_SWEEP, CLEARING_FETCHED, CLEARING_LEAVE };

/* What is done there in the background, in the order in which it was posted; only what was fetched is waited
 * for. */
struct clearing {
    struct storage_job job;
    enum clearing_kind kind;
    struct node_storage *storage; /* of CLEARING_FETCHED */
    uint64_t fetch;
    char *path, *to;
    int attempt, mark;
    ty_error err;
};

static void do_clearing(struct storage_job *job) {
    struct clearing *clearing = (struct clearing *)job;
    switch (clearing->kind) {
    case CLEARING_DROP:
        checkpoint_drop(clearing->path);
        break;
    case CLEARING_SWEEP:
        checkpoint_sweep_staging(clearing->path, clearing->attempt);
        break;
    case CLEARING_FETCHED:
        checkpoint_drop(clearing->to);
        if (rename(clearing->path, clearing->to) < 0)
            (void)ty_fail(&clearing->err, -errno, "cannot rename %s to %s: %s", clearing->path, clearing->to,
                          strerror(errno));
        break;
    case CLEARING_LEAVE: /* the last of the agents of this run on this machine */
        if (flock(clearing->mark, LOCK_EX | LOCK_NB) == 0) checkpoint_drop(clearing->path);
        (void)close(clearing->mark);
        break;
    }
}

static void end_clearing(struct storage_job *job) {
    struct clearing *clearing = (struct clearing *)job;
    struct node_storage *storage = clearing->storage;
    if (clearing->kind != CLEARING_FETCHED || storage->fetch != clearing->fetch) return;
    storage->fetch = 0;
    if (clearing->err.code == 0) storage->fetched = TAKE(clearing->to);
    if (storage->launch != NULL) storage->ready(storage->context, &clearing->err);
}

static void free_clearing(struct storage_job *job) {
    struct clearing *clearing = (struct clearing *)job;
    free(clearing->path);
    free(clearing->to);
    free(clearing);
}

/* False without memory. `path` and `to` are taken over. */
static bool post(struct node_storage *storage, const struct clearing *wanted) {
    struct clearing *clearing = malloc(sizeof *clearing);
    if (clearing == NULL || wanted->path == NULL || (wanted->kind == CLEARING_FETCHED && wanted->to == NULL)) {
        free(clearing);
        free(wanted->path);
        free(wanted->to);
        return false;
    }
    *clearing = *wanted;
    clearing->storage = storage;
    clearing->job = (struct storage_job){.work = do_clearing,
                                         .done = end_clearing,
                                         .release = free_clearing,
                                         .what = "clearing up",
                                         .path = clearing->path,
                                         .apart = true};
    logs_post(storage->logs, &clearing->job);
    return true;
}

static char *path_in(const struct node_storage *storage, const char *name) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/%s", storage->path, name);
    return buffer_take(&path);
}

/* -- before an attempt */

/* The checkpoint's name where it lies in the run's directory; NULL: there is none, or it is a user's place. */
static const char *wanted_name(const Wire__Launch *launch) {
    const char *rest;
    bool inside = str_prefix(launch->checkpoint, launch->run_path, &rest) && rest[0] == '/';
    return inside && carry_path_is_inside(rest + 1) ? rest + 1 : NULL;
}

/* What was fetched for an attempt serves the next one as well, where that begins with the same checkpoint;
 * another one takes its place, so that a node never holds more than one beside what its workers write. */
static void begin_attempt(struct node_storage *storage) {
    ty_error none = {0};
    const char *wanted = storage->state == STORAGE_APART ? wanted_name(storage->launch) : NULL;
    if (wanted == NULL || (storage->fetched != NULL && str_equal(strrchr(storage->fetched, '/') + 1, wanted))) {
        storage->ready(storage->context, &none);
        return;
    }
    if (storage->fetched != NULL) (void)post(storage, &(struct clearing){.path = TAKE(storage->fetched)});
    (void)post(storage, &(struct clearing){.path = path_in(storage, FETCH_NAME)});
    Wire__Fetch body = WIRE__FETCH__INIT;
    storage->fetch = body.carry = ++storage->carries;
    outbox_send(storage->outbox, &WIRE_MESSAGE(FETCH, fetch, &body));
}

/* The attempt may be over by now: what was found holds for the next one. */
static void end_look(struct storage_job *job) {
    struct preparing *preparing = (struct preparing *)job;
    struct node_storage *storage = preparing->storage;
    storage->preparing = NULL;
    if (preparing->err.code == 0) storage->state = preparing->apart ? STORAGE_APART : STORAGE_SHARED;
    if (storage->state == STORAGE_APART) {
        storage->path = TAKE(preparing->path);
        storage->mark = TAKE_FD(preparing->mark);
        storage->logs->apart = true;
        Wire__Storage body = WIRE__STORAGE__INIT;
        body.apart = true;
        outbox_send(storage->outbox, &WIRE_MESSAGE(STORAGE, storage, &body));
    }
    if (storage->launch == NULL) return;
    if (preparing->err.code < 0)
        storage->ready(storage->context, &preparing->err);
    else
        begin_attempt(storage);
}

static void free_preparing(struct storage_job *job) {
    struct preparing *preparing = (struct preparing *)job;
    cleanup_fd(&preparing->mark);
    free(preparing->path);
    free(preparing->text);
    free(preparing);
}

void node_storage_prepare(struct node_storage *storage, const Wire__Launch *launch) {
    storage->launch = launch;
    if (storage->preparing != NULL) return; /* begun for the attempt before */
    if (storage->state != STORAGE_UNKNOWN) {
        begin_attempt(storage);
        return;
    }
    struct preparing *preparing = calloc(1, sizeof *preparing);
    ty_error err = {0};
    if (preparing != NULL) {
        preparing->storage = storage;
        preparing->mark = -1;
        preparing->path = strdup(launch->run_path);
        preparing->text = strdup(launch->storage);
        preparing->job = (struct storage_job){.work = look,
                                              .done = end_look,
                                              .release = free_preparing,
                                              .what = "looking at",
                                              .path = preparing->path,
                                              .apart = true};
    }
    if (preparing == NULL || preparing->path == NULL || preparing->text == NULL) {
        if (preparing != NULL) free_preparing(&preparing->job);
        (void)ty_fail_memory(&err);
        storage->ready(storage->context, &err);
        return;
    }
    storage->preparing = preparing;
    logs_post(storage->logs, &preparing->job);
}

/* -- files that go home */

/* A commit whose files are on their way: it is told to the controller when all were taken there, so that the
 * commit finds them whole. */
struct carrying {
    struct carrying *next;
    struct node_storage *storage;
    uint64_t id;
    struct carry *carry;
    struct node_storage_commit commit;
    char *files;
};

static void report(struct node_storage *storage, const struct node_storage_commit *commit,
                   Wire__Report__Kind kind, const char *bytes) {
    Wire__Report report = WIRE__REPORT__INIT;
    report.kind = kind;
    report.rank = commit->rank;
    report.number = commit->number;
    report.time = clock_wall();
    report.channel = commit->channel;
    outbox_report(storage->outbox, report, bytes, strlen(bytes));
}

/* The rank has its answer now; the others have it from the controller, whose checkpoint this one cannot be. */
static void fail_commit(struct node_storage *storage, const struct node_storage_commit *commit,
                        const char *why) {
    Wire__Committed answer = WIRE__COMMITTED__INIT;
    answer.channel = commit->channel;
    answer.number = commit->number;
    answer.error = (char *)why;
    report(storage, commit, WIRE__REPORT__KIND__ABORT, why);
    worker_channels_committed(storage->channels, &answer);
}

static void unlink_carrying(struct carrying *carrying) {
    struct carrying **link = &carrying->storage->carrying;
    while (*link != carrying)
        link = &(*link)->next;
    *link = carrying->next;
    free(carrying->files);
    free(carrying);
}

static void send_piece(void *context, const struct carry_piece *piece) {
    const struct carrying *carrying = context;
    const struct node_storage *storage = carrying->storage;
    CLEANUP(buffer_done) struct buffer path = {0};
    Wire__File body = carry_message(piece);
    checkpoint_staging_path("", carrying->commit.number, (int)storage->channels->attempt, &path);
    buffer_printf(&path, "/%s", piece->path);
    body.carry = carrying->id;
    body.path = path.failed ? (char *)"" : path.data + 1;
    outbox_send(storage->outbox, &WIRE_MESSAGE(FILE, file, &body));
}

static void end_carry(void *context, const ty_error *err) {
    struct carrying *carrying = context;
    if (err->code == 0)
        report(carrying->storage, &carrying->commit, WIRE__REPORT__KIND__COMMIT, carrying->files);
    else
        fail_commit(carrying->storage, &carrying->commit, err->message);
    unlink_carrying(carrying);
}

int node_storage_commit(struct node_storage *storage, const struct node_storage_commit *commit) {
    static const struct carry_events events = {.piece = send_piece, .ended = end_carry};
    bool elsewhere = commit->files[0] == '"'; /* a place of the user's */
    if (storage->state != STORAGE_APART || elsewhere) {
        report(storage, commit, WIRE__REPORT__KIND__COMMIT, commit->files);
        return 0;
    }
    CLEANUP(buffer_done) struct buffer staging = {0};
    checkpoint_staging_path(storage->path, commit->number, (int)storage->channels->attempt, &staging);
    struct carrying *carrying = calloc(1, sizeof *carrying);
    char *files = strdup(commit->files);
    if (carrying == NULL || files == NULL || staging.failed) {
        free(carrying);
        free(files);
        return -ENOMEM;
    }
    *carrying = (struct carrying){.next = storage->carrying,
                                  .storage = storage,
                                  .id = ++storage->carries,
                                  .commit = *commit,
                                  .files = files};
    storage->carrying = carrying;
    if (carry_start(storage->logs->storage, staging.data, files, &events, carrying, &carrying->carry, NULL) ==
        0)
        return 0;
    unlink_carrying(carrying);
    return -ENOMEM;
}

void node_storage_committed(struct node_storage *storage, uint64_t number) {
    struct buffer staging = {0};
    if (storage->state != STORAGE_APART) return;
    checkpoint_staging_path(storage->path, number, (int)storage->channels->attempt, &staging);
    (void)post(storage, &(struct clearing){.path = buffer_take(&staging)});
}

void node_storage_taken(struct node_storage *storage, const Wire__Taken *taken) {
    if (taken->carry == 0) logs_taken(storage->logs, taken->error);
    for (struct carrying *carrying = storage->carrying; carrying != NULL; carrying = carrying->next) {
        if (carrying->id != taken->carry) continue;
        carry_taken(carrying->carry, taken->size, taken->error);
        return;
    }
}

/* -- the checkpoint that an attempt begins with */

static void tell_taken(void *context, uint64_t number, uint64_t size, const ty_error *err) {
    const struct node_storage *storage = context;
    Wire__Taken body = WIRE__TAKEN__INIT;
    body.carry = number;
    body.size = size;
    if (err->code < 0) body.error = (char *)err->message;
    outbox_send(storage->outbox, &WIRE_MESSAGE(TAKEN, taken, &body));
}

static void fail_fetch(struct node_storage *storage, const char *why) {
    ty_error err = {0};
    storage->fetch = 0;
    (void)ty_fail(&err, TY_ESTART, "the checkpoint to begin with cannot be brought here: %s", why);
    if (storage->launch != NULL) storage->ready(storage->context, &err);
}

/* Pieces of the checkpoint that was asked for, in order; the last message has no path: all of it is here, or
 * why it cannot be. It lies under a name of its own until it is whole. */
void node_storage_receive(struct node_storage *storage, Wire__File *file) {
    ty_error err = {0};
    if (file->carry != storage->fetch || storage->fetch == 0 || storage->launch == NULL) return; /* of before */
    CLEANUP_FREE char *top = path_in(storage, FETCH_NAME);
    if (top == NULL || file->error[0] != '\0') {
        fail_fetch(storage, top == NULL ? "out of memory" : file->error);
        return;
    }
    if (file->path[0] == '\0') {
        if (!post(storage, &(struct clearing){.kind = CLEARING_FETCHED,
                                              .fetch = storage->fetch,
                                              .path = TAKE(top),
                                              .to = path_in(storage, wanted_name(storage->launch))}))
            fail_fetch(storage, "out of memory");
        return;
    }
    struct carry_piece piece = carry_piece_of(file, file->path);
    struct carry_place place = {.top = top, .taken = tell_taken, .context = storage, .number = file->carry};
    if (carry_put(storage->logs->storage, &place, &piece, &file->bytes.data, &err) < 0)
        fail_fetch(storage, err.message);
}

/* -- the end */

void node_storage_forget(struct node_storage *storage) {
    storage->launch = NULL;
    storage->fetch = 0;
    while (storage->carrying != NULL) {
        struct carrying *carrying = storage->carrying;
        carry_stop(carrying->carry);
        unlink_carrying(carrying);
    }
    if (storage->state == STORAGE_APART && storage->channels->run_path != NULL)
        (void)post(storage, &(struct clearing){.kind = CLEARING_SWEEP,
                                               .path = strdup(storage->path),
                                               .attempt = (int)storage->channels->attempt});
}

void node_storage_leave(struct node_storage *storage) {
    if (storage->path == NULL) return;
    if (!post(storage,
              &(struct clearing){.kind = CLEARING_LEAVE, .path = TAKE(storage->path), .mark = storage->mark}))
        (void)close(storage->mark);
    storage->state = STORAGE_UNKNOWN;
}

void node_storage_done(struct node_storage *storage) {
    node_storage_leave(storage);
    free(storage->fetched);
}
