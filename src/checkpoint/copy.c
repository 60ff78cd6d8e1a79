/* The worker's side: a tree copied into a directory of this rank's own, synced, and gathered with those of the
 * other ranks, or everything that was made taken back. Nothing is renamed into place here: that is the
 * controller's (publish.c). */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/copy.h"

/* New files up to this number are synced one by one; more of them with one syncfs, since thousands of syncs
 * would cost a commit of the file system's journal each. */
enum { SYNC_EACH = 64 };

static int fail(const struct copy *copy, const struct tree_entry *entry, int code, ty_error *err) {
    struct statvfs fs;
    if ((code != ENOSPC && code != EDQUOT) || fstatvfs(copy->own, &fs) < 0)
        return ty_fail(err, -code, "cannot copy %s/%s to %s: %s", copy->source, entry->path, copy->staging,
                       strerror(code));
    return ty_fail(err, -code, "cannot copy %s/%s to %s: %s: it needs %lld bytes, %llu are free", copy->source,
                   entry->path, copy->staging, strerror(code), (long long)entry->status.st_size,
                   (unsigned long long)fs.f_bavail * fs.f_frsize);
}

/* -- one regular file, copied or linked; what fails may leave half a file, which goes with the directory */

static int sync_large(int fd, const struct digest *digest) {
    return digest->size >= COPY_SYNC_AT_ONCE && fsync(fd) < 0 ? -errno : 0;
}

/* Without a byte copied; TRY_COPY where the file system cannot (another one, no links, too many). */
enum { TRY_COPY = 1 };
static int link_file(struct copy *copy, const struct tree_entry *entry, struct digest *digest) {
    struct stat status;
    if (linkat(entry->directory, entry->name, copy->own, entry->path, 0) < 0) return TRY_COPY;
    CLEANUP_FD int fd = tree_open_file(copy->own, entry->path);
    if (fd < 0) return fd;
    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode)) return -ESTALE;
    int result = bytes_digest(&copy->bytes, fd, digest);
    return result < 0 ? result : sync_large(fd, digest);
}

/* What was found in the walk may be another thing by now: the file is opened without following a link, and
 * looked at again. Others may not read the copy before it has its mode, which comes last. */
static int take_file(struct copy *copy, const struct tree_entry *entry, struct digest *digest, ty_error *err) {
    struct stat status;
    CLEANUP_FD int from = tree_open_file(entry->directory, entry->name);
    if (from < 0) return fail(copy, entry, -from, err);
    if (fstat(from, &status) < 0 || !S_ISREG(status.st_mode)) return fail(copy, entry, ESTALE, err);
    int result = copy->give ? link_file(copy, entry, digest) : TRY_COPY;
    if (result == TRY_COPY) {
        CLEANUP_FD int to =
            openat(copy->own, entry->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        result = to < 0 ? -errno : bytes_copy(&copy->bytes, from, &status, to, digest);
        if (result == 0 && fchmod(to, status.st_mode & 0777) < 0) result = -errno;
        if (result == 0) result = sync_large(to, digest);
    }
    return result < 0 ? fail(copy, entry, -result, err) : 0;
}

/* -- what was copied */

static int copy_link(struct copy *copy, const struct tree_entry *entry, struct copied *copied, ty_error *err) {
    char target[PATH_MAX];
    int result = tree_read_link(entry->directory, entry->name, target);
    if (result < 0) return fail(copy, entry, -result, err);
    result = tree_check_link(copy->source, entry, target, err);
    if (result < 0) return result;
    copied->target = strdup(target);
    if (copied->target == NULL) return ty_fail_memory(err);
    return symlinkat(target, copy->own, entry->path) == 0 ? 0 : fail(copy, entry, errno, err);
}

static int copy_entry(void *context, enum tree_visit visit, const struct tree_entry *entry, ty_error *err) {
    struct copy *copy = context;
    if (visit == TREE_LEAVE) return 0;
    int result = tree_check_entry(copy->source, entry, err);
    if (result < 0) return result;
    char *path = strdup(entry->path);
    if (path == NULL || ARRAY_GROW(copy->copied, copy->n) < 0) {
        free(path);
        return ty_fail_memory(err);
    }
    struct copied *copied = &copy->copied[copy->n++];
    *copied = (struct copied){.path = path};
    if (S_ISDIR(entry->status.st_mode)) {
        copied->directory = true;
        if (file_is_same(&entry->status, &copy->own_status))
            return ty_fail(err, TY_EUSAGE, "the checkpoint %s holds the directory %s into which it is copied",
                           copy->source, copy->staging);
        /* Whatever its mode is, its own files are to come into it. */
        if (mkdirat(copy->own, entry->path, (entry->status.st_mode & 0777) | 0700) == 0) return 0;
        return fail(copy, entry, errno, err);
    }
    if (S_ISLNK(entry->status.st_mode)) return copy_link(copy, entry, copied, err);
    return take_file(copy, entry, &copied->digest, err);
}

/* -- the sync: directories, and with them the names of files and links, are synced when the checkpoint is
 * published; a large file was synced when it was written */

static bool waits_for_sync(const struct copied *copied) {
    return !copied->directory && copied->target == NULL && copied->digest.size < COPY_SYNC_AT_ONCE;
}

static int sync_copied(const struct copy *copy, ty_error *err) {
    size_t n = 0;
    for (size_t i = 0; i < copy->n; i++)
        n += waits_for_sync(&copy->copied[i]);
    int result = n > SYNC_EACH && syncfs(copy->own) < 0 ? -errno : 0;
    for (size_t i = 0; n <= SYNC_EACH && result == 0 && i < copy->n; i++) {
        if (!waits_for_sync(&copy->copied[i])) continue;
        CLEANUP_FD int fd = tree_open_file(copy->own, copy->copied[i].path);
        result = fd < 0 ? fd : fsync(fd) < 0 ? -errno : 0;
    }
    if (result < 0) return ty_fail(err, result, "cannot sync %s: %s", copy->staging, strerror(-result));
    return 0;
}

/* -- the list */

/* A list too long for a message stays beside the files, and the message names it. Another rank that made the
 * same may have put it there. */
static int set_down_list(const struct copy *copy, const struct buffer *text, struct buffer *files,
                         ty_error *err) {
    struct digest digest;
    char name[sizeof LIST_PREFIX + DIGEST_SIZE];
    bytes_digest_memory(text->data, text->size, &digest);
    (void)snprintf(name, sizeof name, LIST_PREFIX "%s", digest.xxh3);
    CLEANUP_FD int to = openat(copy->to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int result = to >= 0 ? file_write_all(to, text->data, text->size) : errno == EEXIST ? 0 : -errno;
    if (result < 0 && to >= 0) (void)unlinkat(copy->to, name, 0);
    if (result < 0)
        return ty_fail(err, result, "cannot write %s/%s (%zu bytes): %s", copy->staging, name, text->size,
                       strerror(-result));
    buffer_printf(files, "[{\"list\": \"%s\"}]", name);
    return 0;
}

static int list_copied(const struct copy *copy, struct buffer *files, ty_error *err) {
    CLEANUP(buffer_done) struct buffer text = {0};
    const char *between = "[";
    for (size_t i = 0; !text.failed && i < copy->n; i++) {
        const struct copied *copied = &copy->copied[i];
        /* The user's metadata is no file of the checkpoint: the manifest takes it in. */
        if (copied->directory || copied->state == COPIED_GAVE_WAY || str_equal(copied->path, MANIFEST_NAME))
            continue;
        buffer_printf(&text, "%s{\"path\": ", between);
        buffer_json_text(&text, copied->path);
        if (copied->target != NULL) {
            buffer_text(&text, ", \"link\": ");
            buffer_json_text(&text, copied->target);
            buffer_char(&text, '}');
        } else {
            buffer_printf(&text, ", \"size\": %lld, \"xxh3\": \"%s\"}", (long long)copied->digest.size,
                          copied->digest.xxh3);
        }
        between = ", ";
    }
    buffer_text(&text, between[0] == '[' ? "[]" : "]");
    if (text.failed) return ty_fail_memory(err);
    int result = 0;
    if (text.size > LIST_MAX)
        result = set_down_list(copy, &text, files, err);
    else
        buffer_append(files, text.data, text.size);
    return result < 0 ? result : files->failed ? ty_fail_memory(err) : 0;
}

/* -- the whole */

/* The source must not be the staging directory itself, nor hold it, or the copy would find its own files for
 * ever (copy_entry looks for the directory in which it writes). */
static int copy_tree(struct copy *copy, int from, ty_error *err) {
    struct stat staging, status;
    if (fstat(from, &status) < 0)
        return ty_fail(err, -errno, "cannot read %s: %s", copy->source, strerror(errno));
    if (fstat(copy->own, &copy->own_status) < 0)
        return ty_fail(err, -errno, "cannot read %s: %s", copy->staging, strerror(errno));
    if (lstat(copy->staging, &staging) == 0 && file_is_same(&status, &staging))
        return ty_fail(err, TY_EUSAGE, "the checkpoint %s is the directory into which it is to be copied",
                       copy->source);
    int result = tree_walk(from, copy->source, copy_entry, copy, err);
    return result < 0 ? result : sync_copied(copy, err);
}

/* A directory of this rank's own, beside the staging directory, so that nothing of another rank's is written
 * over, and all goes at once where the copy fails. The caller frees its path. */
static int make_own(struct copy *copy, char **path, ty_error *err) {
    unsigned number = 0;
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        return ty_fail(err, -EIO, "cannot draw a random name for %s", copy->staging);
    *path = str_format("%s" OWN_MARK "%08x", copy->staging, number);
    if (*path == NULL) return ty_fail_memory(err);
    if (mkdir(*path, 0755) < 0)
        return ty_fail(err, -errno, "cannot make directory %s: %s", *path, strerror(errno));
    copy->own = tree_open(AT_FDCWD, *path, false, err);
    if (copy->own < 0) (void)rmdir(*path);
    return copy->own < 0 ? copy->own : 0;
}

/* Whatever fails, what was made goes: what had reached the staging directory is withdrawn, and the rank's own
 * directory, as far as that did not become the staging directory, is removed as a whole. */
int checkpoint_copy(const char *source, const char *staging, const struct checkpoint_copying *how,
                    struct buffer *files, ty_error *err) {
    struct copy copy = {.source = source,
                        .staging = staging,
                        .own = -1,
                        .to = -1,
                        .give = how->hand == CHECKPOINT_GIVE,
                        .may_differ = how->may_differ};
    CLEANUP_FREE char *own = NULL;
    CLEANUP_FD int from = tree_open(AT_FDCWD, source, true, err);
    if (from < 0) return ty_wrap(err, "checkpoint");
    int result = make_own(&copy, &own, err);
    if (result == 0 && bytes_init(&copy.bytes) < 0) result = ty_fail_memory(err);
    if (result == 0) result = copy_tree(&copy, from, err);
    if (result == 0) result = copy_gather(&copy, own, err);
    if (result == 0) result = list_copied(&copy, files, err);
    if (result < 0 && copy.to >= 0) copy_withdraw(&copy);
    bytes_done(&copy.bytes);
    if (copy.own >= 0) {
        (void)tree_remove(AT_FDCWD, own);
        (void)close(copy.own);
    }
    if (copy.to >= 0) (void)close(copy.to);
    for (size_t i = 0; i < copy.n; i++) {
        free(copy.copied[i].path);
        free(copy.copied[i].target);
    }
    free(copy.copied);
    if (result < 0 || copy.kept.code == 0) return result;
    if (err != NULL) *err = copy.kept;
    return 1;
}
