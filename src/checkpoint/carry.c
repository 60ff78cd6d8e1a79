/* Files of checkpoints between machines, in pieces, for nodes whose storage is another: reading and writing
 * them. What the thread has in its hands belongs to the job, or to `struct carry_reader`, which its jobs share
 * with the carry: one job at a time. Who sends what to whom is in agent/node_storage.c and
 * controller/carried.c. */
#include "checkpoint/carry.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/block.h"
#include "base/cleanup.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/tree.h"

bool carry_path_is_inside(const char *path) {
    size_t size = strlen(path);
    if (size == 0 || size >= PATH_MAX || path[size - 1] == '/') return false;
    for (const char *part = path; part != NULL; part = strchr(part, '/'), part += part != NULL) {
        size_t length = strcspn(part, "/");
        bool dots = (length == 1 && part[0] == '.') || (length == 2 && part[0] == '.' && part[1] == '.');
        if (length == 0 || dots) return false;
    }
    return true;
}

/* -- sending: in the thread */

struct carry_reader {
    unsigned uses; /* the carry's, and the job's */
    char *top, *list;
    char **paths; /* what is to be carried; NULL before the first job */
    size_t n, at;
    uint64_t offset;
    char *room; /* CARRY_PIECE */
    char target[PATH_MAX];
    struct carry_piece piece; /* what was read; path NULL: nothing is left */
    ty_error err;
};

struct read_job {
    struct storage_job job;
    struct carry_reader *reader;
    struct carry *carry; /* NULL: nobody waits for it; only looked at on the loop */
};

static int add_path(struct carry_reader *reader, const char *path) {
    if (ARRAY_GROW(reader->paths, reader->n) < 0) return -ENOMEM;
    reader->paths[reader->n] = strdup(path);
    return reader->paths[reader->n++] == NULL ? -ENOMEM : 0;
}

static int found(void *context, enum tree_visit visit, const struct tree_entry *entry, ty_error *err) {
    bool directory = S_ISDIR(entry->status.st_mode);
    if (visit == TREE_LEAVE || directory) return 0;
    return add_path(context, entry->path) < 0 ? ty_fail_memory(err) : 0;
}

/* The file that holds a list too long for a message is carried as well: it is read again at the other end. */
static int add_listed(struct carry_reader *reader, int top) {
    int result = 0;
    size_t i;
    json_t *value;
    json_t *said = json_loads(reader->list, 0, NULL);
    const char *name = json_string_value(json_object_get(json_array_get(said, 0), "list"));
    json_t *values = manifest_read_list(top, reader->list);
    if (name != NULL) result = add_path(reader, name);
    json_array_foreach(values, i, value) {
        struct manifest_entry entry;
        if (result == 0 && manifest_entry_read(value, &entry)) result = add_path(reader, entry.path);
    }
    json_decref(values);
    json_decref(said);
    return result;
}

/* The next piece of the file at hand; of an empty one that is its only one. */
static int read_piece(struct carry_reader *reader, int top) {
    const char *path = reader->paths[reader->at];
    struct stat status;
    struct carry_piece *piece = &reader->piece;
    *piece = (struct carry_piece){.path = path, .bytes = reader->room, .offset = reader->offset, .last = true};
    if (fstatat(top, path, &status, AT_SYMLINK_NOFOLLOW) < 0) return -errno;
    if (S_ISLNK(status.st_mode)) {
        piece->link = reader->target;
        return tree_read_link(top, path, reader->target);
    }
    CLEANUP_FD int fd = tree_open_file(top, path);
    if (fd < 0) return fd;
    while (piece->size < CARRY_PIECE) {
        ssize_t n = pread(fd, reader->room + piece->size, CARRY_PIECE - piece->size,
                          (off_t)(piece->offset + piece->size));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -errno;
        if (n == 0) break;
        piece->size += (size_t)n;
    }
    piece->mode = status.st_mode & 0777;
    reader->offset += piece->size;
    piece->last = (int64_t)reader->offset >= status.st_size || piece->size < CARRY_PIECE;
    return 0;
}

static void read_next(struct storage_job *job) {
    struct carry_reader *reader = ((struct read_job *)job)->reader;
    reader->piece.path = NULL;
    CLEANUP_FD int top = tree_open(AT_FDCWD, reader->top, false, &reader->err);
    if (top < 0) return;
    int result = 0;
    if (reader->paths == NULL) { /* the first piece: which files are to be read is found out now */
        reader->paths = calloc(1, sizeof *reader->paths);
        reader->room = malloc(CARRY_PIECE);
        if (reader->paths == NULL || reader->room == NULL ||
            (reader->list != NULL && add_listed(reader, top) < 0))
            result = ty_fail_memory(&reader->err);
        else if (reader->n == 0)
            result = tree_walk(top, reader->top, found, reader, &reader->err);
    }
    if (result < 0 || reader->at == reader->n) return;
    result = read_piece(reader, top);
    if (result < 0)
        (void)ty_fail(&reader->err, result, "cannot read %s/%s: %s", reader->top, reader->paths[reader->at],
                      strerror(-result));
    if (!reader->piece.last) return;
    reader->at++;
    reader->offset = 0;
}

static void let_go(struct carry_reader *reader) {
    if (--reader->uses > 0) return;
    for (size_t i = 0; i < reader->n; i++)
        free(reader->paths[i]);
    free(reader->paths);
    free(reader->room);
    free(reader->top);
    free(reader->list);
    free(reader);
}

static void release_read(struct storage_job *job) {
    let_go(((struct read_job *)job)->reader);
    free(job);
}

/* -- sending: on the loop */

struct carry {
    struct storage *storage;
    struct carry_events events;
    void *context;
    struct carry_reader *reader;
    struct read_job *reading; /* posted and not back */
    uint64_t unacked;         /* bytes on their way */
    bool read;                /* nothing is left to be read */
    ty_error err;
};

void carry_stop(struct carry *carry) {
    if (carry == NULL) return;
    if (carry->reading != NULL) carry->reading->carry = NULL;
    let_go(carry->reader);
    free(carry);
}

static void go_on(struct carry *carry);

static void end_read(struct storage_job *job) {
    struct carry *carry = ((struct read_job *)job)->carry;
    if (carry == NULL) return;
    struct carry_reader *reader = carry->reader;
    carry->reading = NULL;
    if (carry->err.code == 0) carry->err = reader->err;
    carry->read = reader->piece.path == NULL;
    if (!carry->read && carry->err.code == 0) {
        carry->unacked += reader->piece.size + CARRY_COST;
        carry->events.piece(carry->context, &reader->piece);
    }
    go_on(carry);
}

static int post_read(struct carry *carry) {
    struct read_job *reading = calloc(1, sizeof *reading);
    if (reading == NULL) return -ENOMEM;
    *reading = (struct read_job){.job = {.work = read_next,
                                         .done = end_read,
                                         .release = release_read,
                                         .what = "reading",
                                         .path = carry->reader->top,
                                         .apart = true,
                                         .series = true},
                                 .reader = carry->reader,
                                 .carry = carry};
    carry->reader->uses++;
    carry->reading = reading;
    storage_post(carry->storage, &reading->job);
    return 0;
}

/* The next job, unless one is under way or the window is full; or the end, where all was taken or something
 * failed. A job that is under way is waited for in any case: it has the reader in its hands. */
static void go_on(struct carry *carry) {
    if (carry->reading != NULL) return;
    bool over = carry->err.code < 0 || (carry->read && carry->unacked == 0);
    if (!over && (carry->read || carry->unacked >= CARRY_WINDOW)) return;
    if (!over && post_read(carry) == 0) return;
    if (!over) (void)ty_fail_memory(&carry->err);
    ty_error err = carry->err;
    carry->events.ended(carry->context, &err);
    carry_stop(carry);
}

int carry_start(struct storage *storage, const char *top, const char *list, const struct carry_events *events,
                void *context, struct carry **out, ty_error *err) {
    struct carry *carry = calloc(1, sizeof *carry);
    struct carry_reader *reader = calloc(1, sizeof *reader);
    if (carry == NULL || reader == NULL) {
        free(carry);
        free(reader);
        return ty_fail_memory(err);
    }
    *reader = (struct carry_reader){.uses = 1, .top = strdup(top), .list = list != NULL ? strdup(list) : NULL};
    *carry = (struct carry){.storage = storage, .events = *events, .context = context, .reader = reader};
    if (reader->top == NULL || (list != NULL && reader->list == NULL) || post_read(carry) < 0) {
        carry_stop(carry);
        return ty_fail_memory(err);
    }
    *out = carry;
    return 0;
}

void carry_taken(struct carry *carry, uint64_t size, const char *error) {
    carry->unacked -= size < carry->unacked ? size : carry->unacked;
    if (error != NULL && error[0] != '\0' && carry->err.code == 0)
        (void)ty_fail(&carry->err, -EIO, "%s", error);
    go_on(carry);
}

/* -- receiving */

struct put_job {
    struct storage_job job;
    struct carry_place place;
    struct carry_piece piece;
    char *top, *path, *link;
    uint8_t *bytes;
    ty_error err;
};

/* Opens, and makes, the directory that the path lies in; `*name` is what is left of the path. Step by step, and
 * through no link: the path is another machine's word. */
static int open_parent(const char *top, const char *path, const char **name) {
    if (mkdir(top, 0755) < 0 && errno != EEXIST) return -errno;
    int at = tree_open(AT_FDCWD, top, false, NULL);
    for (const char *end; at >= 0 && (end = strchr(path, '/')) != NULL; path = end + 1) {
        CLEANUP_FD int outer = at;
        char part[NAME_MAX + 1];
        if ((size_t)(end - path) > NAME_MAX) return -ENAMETOOLONG;
        (void)snprintf(part, sizeof part, "%.*s", (int)(end - path), path);
        if (mkdirat(outer, part, 0755) < 0 && errno != EEXIST) return -errno;
        at = tree_open(outer, part, false, NULL);
    }
    *name = path;
    return at;
}

static int write_piece(const struct put_job *put) {
    const struct carry_piece *piece = &put->piece;
    const char *name;
    CLEANUP_FD int parent = open_parent(put->top, put->path, &name);
    if (parent < 0) return parent;
    if (piece->link != NULL) return symlinkat(put->link, parent, name) < 0 && errno != EEXIST ? -errno : 0;
    CLEANUP_FD int fd = openat(parent, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, piece->mode | 0600);
    if (fd < 0) return -errno;
    for (size_t done = 0; done < piece->size;) {
        ssize_t n = pwrite(fd, put->bytes + done, piece->size - done, (off_t)(piece->offset + done));
        if (n < 0 && errno != EINTR) return -errno;
        if (n > 0) done += (size_t)n;
    }
    return piece->last && fsync(fd) < 0 ? -errno : 0;
}

static void do_put(struct storage_job *job) {
    struct put_job *put = (struct put_job *)job;
    int result = write_piece(put);
    if (result < 0)
        (void)ty_fail(&put->err, result, "cannot write %s/%s: %s", put->top, put->path, strerror(-result));
}

static void end_put(struct storage_job *job) {
    struct put_job *put = (struct put_job *)job;
    put->place.taken(put->place.context, put->place.number, put->piece.size + CARRY_COST, &put->err);
    block_give(TAKE(put->bytes)); /* the next piece comes into it */
    if (put->piece.last) block_drop();
}

static void release_put(struct storage_job *job) {
    struct put_job *put = (struct put_job *)job;
    free(put->top);
    free(put->path);
    free(put->link);
    free(put->bytes);
    free(put);
}

int carry_put(struct storage *storage, const struct carry_place *place, const struct carry_piece *piece,
              uint8_t **bytes, ty_error *err) {
    if (!carry_path_is_inside(piece->path))
        return ty_fail(err, TY_EPROTOCOL, "%.100s is no path within a checkpoint", piece->path);
    struct put_job *put = calloc(1, sizeof *put);
    if (put == NULL) return ty_fail_memory(err);
    *put = (struct put_job){.place = *place,
                            .piece = *piece,
                            .top = strdup(place->top),
                            .path = strdup(piece->path),
                            .link = piece->link != NULL ? strdup(piece->link) : NULL};
    put->job = (struct storage_job){.work = do_put,
                                    .done = end_put,
                                    .release = release_put,
                                    .what = "writing",
                                    .path = put->top,
                                    .apart = true,
                                    .series = true};
    if (put->top == NULL || put->path == NULL || (piece->link != NULL && put->link == NULL)) {
        release_put(&put->job);
        return ty_fail_memory(err);
    }
    put->bytes = TAKE(*bytes);
    storage_post(storage, &put->job);
    return 0;
}
