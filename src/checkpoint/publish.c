/* The controller's side: what lies in the staging directory is compared with what the ranks say, then committed
 * by a rename. When a checkpoint is whole is the run's to know (run/report.c), and its row in the journal comes
 * behind all this. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/document.h"
#include "base/file.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/mark.h"
#include "checkpoint/tree.h"

struct gathering {
    uint64_t number;
    int attempt;
    const char *run_path, *staging;
    const char *run, *name; /* the run's id; the name that it gets */
    json_t *awaited;        /* path -> entry of a list that was not found yet */
    json_t *lists;          /* the names of files that hold a list */
    json_t *files;          /* the manifest's list */
    json_t *older;  /* metadata of the one that has the name, whose files become part of it; NULL: none */
    bool exchanges; /* the two change places; else it gets a name that was nobody's */
    bool beside;    /* the manifest moves out of the checkpoint */
};

static void drop(json_t **value) {
    json_decref(*value);
}

#define CLEANUP_JSON CLEANUP(drop)

static int await(struct gathering *gathering, json_t *value, size_t rank, ty_error *err) {
    struct manifest_entry entry;
    if (!manifest_entry_read(value, &entry))
        return ty_fail(err, TY_EPROTOCOL, "rank %zu lists a file of its checkpoint wrongly", rank);
    const json_t *other = json_object_get(gathering->awaited, entry.path);
    if (other != NULL && !json_equal(other, value))
        return ty_fail(
            err, TY_EUSAGE,
            "%s is in the checkpoints of rank %zu and of another one with other content: give files that"
            " differ a name of their own in each rank",
            entry.path, rank);
    return json_object_set(gathering->awaited, entry.path, value) < 0 ? ty_fail_memory(err) : 0;
}

static int sync_file(const struct gathering *gathering, const struct tree_entry *entry, ty_error *err) {
    CLEANUP_FD int fd = tree_open_file(entry->directory, entry->name);
    bool directory = S_ISDIR(entry->status.st_mode);
    int result = fd < 0 ? fd : directory ? tree_sync(fd) : fsync(fd) < 0 ? -errno : 0;
    if (result == 0) return 0;
    return ty_fail(err, result, "cannot sync %s/%s: %s", gathering->staging, entry->path, strerror(-result));
}

/* `made` is stolen; NULL stands for want of memory. */
static int list(struct gathering *gathering, json_t *made, ty_error *err) {
    return json_array_append_new(gathering->files, made) < 0 ? ty_fail_memory(err) : 0;
}

static int found_file(struct gathering *gathering, const struct tree_entry *entry, ty_error *err) {
    json_t *awaited = json_object_get(gathering->awaited, entry->path);
    json_int_t size = entry->status.st_size;
    if (awaited == NULL) {
        int result = sync_file(gathering, entry, err);
        return result < 0 ? result
                          : list(gathering, json_pack("{s:s, s:I}", "path", entry->path, "size", size), err);
    }
    struct manifest_entry said;
    if (!manifest_entry_read(awaited, &said) || said.link != NULL || said.size != size)
        return ty_fail(err, TY_ECORRUPT, "%s/%s is not the file that its rank wrote: it has %lld bytes",
                       gathering->staging, entry->path, (long long)size);
    return list(gathering, json_incref(awaited), err);
}

static int found_link(struct gathering *gathering, const struct tree_entry *entry, ty_error *err) {
    char target[PATH_MAX];
    int result = tree_read_link(entry->directory, entry->name, target);
    if (result < 0)
        return ty_fail(err, result, "cannot read %s/%s: %s", gathering->staging, entry->path,
                       strerror(-result));
    result = tree_check_link(gathering->staging, entry, target, err);
    if (result < 0) return result;
    const json_t *awaited = json_object_get(gathering->awaited, entry->path);
    if (awaited != NULL && !str_equal(json_string_value(json_object_get(awaited, "link")), target))
        return ty_fail(err, TY_ECORRUPT, "%s/%s is not the link that its rank wrote", gathering->staging,
                       entry->path);
    return list(gathering, json_pack("{s:s, s:s}", "path", entry->path, "link", target), err);
}

/* What is no part of a checkpoint goes, but lists: a second try reads them again until there is a manifest. The
 * user's metadata becomes part of that. */
static int found(void *context, enum tree_visit visit, const struct tree_entry *entry, ty_error *err) {
    struct gathering *gathering = context;
    mode_t mode = entry->status.st_mode;
    if (visit == TREE_LEAVE) return sync_file(gathering, entry, err);
    if (S_ISREG(mode) && str_prefix(entry->name, PART_PREFIX, NULL)) {
        bool is_list = json_object_get(gathering->lists, entry->path) != NULL;
        if (!is_list) (void)unlinkat(entry->directory, entry->name, 0);
        return 0;
    }
    if (str_equal(entry->path, MANIFEST_NAME)) return 0;
    int result = tree_check_entry(gathering->staging, entry, err);
    if (result < 0 || S_ISDIR(mode)) return result;
    result = S_ISLNK(mode) ? found_link(gathering, entry, err) : found_file(gathering, entry, err);
    if (result == 0) (void)json_object_del(gathering->awaited, entry->path);
    return result;
}

/* -- the files of the one that has the name */

/* From where and into which they come, and what the manifest says of them. */
struct merging {
    const char *from;
    int top;
    json_t *said;    /* path -> entry; NULL: nothing */
    json_t *awaited; /* gets what is said */
};

static int fail_merge(const struct merging *merging, const char *path, int code, ty_error *err) {
    return ty_fail(err, -code, "cannot take over %s/%s: %s", merging->from, path, strerror(code));
}

/* What the ranks brought stays; a file is linked, so that not a byte is copied. */
static int take_over(void *context, enum tree_visit visit, const struct tree_entry *entry, ty_error *err) {
    const struct merging *merging = context;
    struct stat there;
    bool ours = str_equal(entry->path, MANIFEST_NAME) || str_prefix(entry->name, PART_PREFIX, NULL);
    if (visit == TREE_LEAVE || ours) return 0;
    if (S_ISDIR(entry->status.st_mode)) {
        if (mkdirat(merging->top, entry->path, (entry->status.st_mode & 0777) | S_IRWXU) == 0) return 0;
        if (errno != EEXIST || fstatat(merging->top, entry->path, &there, AT_SYMLINK_NOFOLLOW) < 0)
            return fail_merge(merging, entry->path, errno, err);
        return S_ISDIR(there.st_mode) ? 0 : TREE_SKIP; /* a link that the ranks brought is not followed */
    }
    if (json_object_get(merging->awaited, entry->path) != NULL) return 0;
    if (linkat(entry->directory, entry->name, merging->top, entry->path, 0) < 0) {
        if (errno != EEXIST) return fail_merge(merging, entry->path, errno, err);
        /* A file that an earlier try has linked is ours all the same, and what is said of it holds. */
        bool is_linked = fstatat(merging->top, entry->path, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
                         file_is_same(&there, &entry->status);
        if (!is_linked) return 0;
    }
    json_t *said = json_object_get(merging->said, entry->path);
    if (said == NULL || json_object_set(merging->awaited, entry->path, said) == 0) return 0;
    return ty_fail_memory(err);
}

/* None where the name is nobody's, or not that one's: the commit then says so. */
static int find_older(struct gathering *gathering, int run, uint64_t adds_to, ty_error *err) {
    if (adds_to == 0) return 0;
    struct mark_found found = mark_find(run, gathering->name, gathering->run);
    if (found.number < adds_to || (!found.original && !mark_is_whole(run, gathering->name))) return 0;
    CLEANUP_FD int older = tree_open(run, gathering->name, false, err);
    int result = older < 0 ? older : manifest_read(older, gathering->name, &gathering->older, err);
    gathering->exchanges = gathering->older != NULL;
    return result < 0 ? result : 0;
}

static int merge(struct gathering *gathering, int run, int top, ty_error *err) {
    if (gathering->older == NULL) return 0;
    CLEANUP_FD int older = tree_open(run, gathering->name, false, err);
    if (older < 0) return older;
    CLEANUP_JSON json_t *said = json_object();
    if (said == NULL) return ty_fail_memory(err);
    const json_t *ours = json_object_get(gathering->older, MANIFEST_KEY);
    json_t *value;
    size_t i;
    json_array_foreach(json_object_get(ours, "files"), i, value) {
        struct manifest_entry entry;
        if (manifest_entry_read(value, &entry)) (void)json_object_set(said, entry.path, value);
    }
    struct merging merging = {gathering->name, top, said, gathering->awaited};
    return tree_walk(older, gathering->name, take_over, &merging, err);
}

int checkpoint_add_to_place(const char *staging, const char *place, ty_error *err) {
    if (access(staging, F_OK) < 0) return 0;
    CLEANUP_FD int from = tree_open(AT_FDCWD, staging, false, err);
    CLEANUP_FD int top = from < 0 ? from : tree_open(AT_FDCWD, place, true, err);
    if (top < 0) return top;
    struct merging merging = {.from = staging, .top = top};
    int result = tree_walk(from, staging, take_over, &merging, err);
    if (result < 0) return result;
    result = tree_sync(top);
    return result < 0 ? ty_fail(err, result, "cannot sync %s: %s", place, strerror(-result)) : 0;
}

/* Fills `gathering` from the lists and from what is there; the two must agree. */
static int take_stock(struct gathering *gathering, int run, int top, const struct checkpoint_parts *parts,
                      ty_error *err) {
    const char *const *lists = parts->lists;
    size_t n = parts->n;
    for (size_t rank = 0; rank < n; rank++) {
        CLEANUP_JSON json_t *values = manifest_read_list(top, lists[rank]);
        if (values == NULL)
            return ty_fail(err, TY_EPROTOCOL, "rank %zu gives no JSON list of the files of its checkpoint",
                           rank);
        int result = 0;
        size_t i;
        json_t *value;
        json_array_foreach(values, i, value) if (result == 0) result = await(gathering, value, rank, err);
        if (result < 0) return result;
    }
    int result = merge(gathering, run, top, err);
    if (result == 0) result = tree_walk(top, gathering->staging, found, gathering, err);
    if (result < 0) return result;
    void *missing = json_object_iter(gathering->awaited);
    if (missing == NULL) return 0;
    return ty_fail(err, TY_ECORRUPT, "%s/%s is missing, which its rank wrote", gathering->staging,
                   json_object_iter_key(missing));
}

/* The manifest stays in a checkpoint that has metadata of the user's. */
static void choose_place(struct gathering *gathering, const json_t *metadata) {
    if (json_object_size(metadata) > 1) gathering->beside = false;
}

static int write_manifest(struct gathering *gathering, int top, ty_error *err) {
    static const char draft[] = PART_PREFIX "manifest";
    enum { DRAFT_FLAGS = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC };
    CLEANUP_FREE char *text = NULL;
    CLEANUP_JSON json_t *metadata = NULL;
    int result = manifest_read(top, gathering->staging, &metadata, err);
    if (result < 0) return result;
    if (metadata == NULL) metadata = gathering->older != NULL ? json_incref(gathering->older) : json_object();
    struct checkpoint_mark mark = {gathering->run, gathering->name, gathering->number};
    json_t *ours = json_pack("{s:i, s:i}", "version", MANIFEST_VERSION, "attempt", gathering->attempt);
    if (json_object_set_new(metadata, MANIFEST_KEY, ours) < 0 || !mark_write(ours, top, &mark) ||
        json_object_set(ours, "files", gathering->files) < 0)
        return ty_fail_memory(err);
    choose_place(gathering, metadata);
    text = json_format(metadata, JSON_INDENT(1) | JSON_ENSURE_ASCII);
    if (text == NULL) return ty_fail_memory(err);
    /* The manifest comes in one step, by a rename: where there is one of ours all that comes before it was
     * done. */
    CLEANUP_FD int fd = openat(top, draft, DRAFT_FLAGS, 0644);
    if (fd < 0 && errno == EEXIST && unlinkat(top, draft, 0) == 0) fd = openat(top, draft, DRAFT_FLAGS, 0644);
    result = fd < 0 ? -errno : file_write_all(fd, text, strlen(text));
    if (result == 0 && (fsync(fd) < 0 || renameat(top, draft, top, MANIFEST_NAME) < 0)) result = -errno;
    if (result == 0) result = tree_sync(top);
    if (result == 0) return 0;
    return ty_fail(err, result, "cannot write %s/" MANIFEST_NAME ": %s", gathering->staging, strerror(-result));
}

/* -- what a controller did that died at this commit (checkpoint_parts.again) */

/* The open directory has the manifest that it wrote: 1 where that stands beside, 0; -ENOENT: it has not. */
static int find_manifest(struct gathering *gathering, int top, const char *name) {
    CLEANUP_JSON json_t *metadata = NULL;
    struct checkpoint_mark mark = {gathering->run, gathering->name, gathering->number};
    int place = manifest_read(top, name, &metadata, NULL);
    const json_t *ours = json_object_get(metadata, MANIFEST_KEY);
    bool same_attempt = json_integer_value(json_object_get(ours, "attempt")) == gathering->attempt;
    if (place < 0 || !same_attempt || !mark_speaks_of(ours, top, &mark)) return -ENOENT;
    choose_place(gathering, metadata);
    return place;
}

/* -- into its place */

/* Behind the rename. A checkpoint whose name may not have reached the disk gets its old name back. */
static int settle(const struct gathering *gathering, int run, ty_error *err) {
    const char *staging = gathering->staging, *name = gathering->name;
    int result = tree_sync(run);
    if (result == 0) {
        manifest_place(run, name, gathering->beside);
        if (gathering->exchanges) (void)tree_remove(AT_FDCWD, staging);
        return 0;
    }
    (void)renameat2(run, name, AT_FDCWD, staging, gathering->exchanges ? RENAME_EXCHANGE : 0);
    return ty_fail(err, result, "cannot sync %s: %s", gathering->run_path, strerror(-result));
}

static int commit(const struct gathering *gathering, int run, ty_error *err) {
    const char *staging = gathering->staging, *run_path = gathering->run_path, *name = gathering->name;
    unsigned how = gathering->exchanges ? RENAME_EXCHANGE : RENAME_NOREPLACE;
    int code = renameat2(AT_FDCWD, staging, run, name, how) < 0 ? errno : 0;
    /* The lock that the controller holds on the run must do where the file system knows no rename without
     * replacing; one that cannot let two names change places leaves the older checkpoint as it is. */
    if (code == EINVAL && faccessat(run, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        code = EEXIST;
    else if (code == EINVAL)
        code = renameat(AT_FDCWD, staging, run, name) < 0 ? errno : 0;
    if (code == 0) return settle(gathering, run, err);
    if (code == EEXIST) return ty_fail(err, -code, "%s/%s exists already: choose another name", run_path, name);
    return ty_fail(err, -code, "cannot rename %s to %s/%s: %s", staging, run_path, name, strerror(code));
}

/* Lists have been read for the last time. */
static int drop_lists(const struct gathering *gathering, int top, ty_error *err) {
    const char *name;
    json_t *value;
    if (json_object_size(gathering->lists) == 0) return 0;
    json_object_foreach(gathering->lists, name, value) {
        (void)unlinkat(top, name, 0);
    }
    int result = tree_sync(top);
    return result < 0 ? ty_fail(err, result, "cannot sync %s: %s", gathering->staging, strerror(-result)) : 0;
}

static int publish(struct gathering *gathering, int run, const struct checkpoint_parts *parts, ty_error *err) {
    CLEANUP_FD int top = tree_open(AT_FDCWD, gathering->staging, false, err);
    if (top < 0) return top;
    for (size_t rank = 0; rank < parts->n; rank++) {
        CLEANUP_JSON json_t *name = manifest_list_name(parts->lists[rank]);
        if (name != NULL && json_object_set(gathering->lists, json_string_value(name), name) < 0)
            return ty_fail_memory(err);
    }
    int result = find_older(gathering, run, parts->adds_to, err);
    if (result == 0 && find_manifest(gathering, top, gathering->staging) < 0) {
        result = take_stock(gathering, run, top, parts, err);
        if (result == 0) result = write_manifest(gathering, top, err);
    }
    if (result == 0) result = drop_lists(gathering, top, err);
    return result < 0 ? result : commit(gathering, run, err);
}

/* By the mark in the place alone: it came there by one rename, behind all syncs. What the staging directory
 * holds then is the older one that had the name. 1; 0: it does not stand there. */
static int find_published(struct gathering *gathering, int run, ty_error *err) {
    CLEANUP_FD int top = tree_open(run, gathering->name, false, NULL);
    int place = top < 0 ? top : find_manifest(gathering, top, gathering->name);
    if (place < 0) return 0;
    gathering->exchanges = access(gathering->staging, F_OK) == 0;
    int result = place == 0 ? settle(gathering, run, err) : 0;
    if (place == 1) (void)tree_remove(AT_FDCWD, gathering->staging);
    return result < 0 ? result : 1;
}

/* The name that is given, or one by the number, with a further number behind it where something of somebody
 * else's has that name; what this run published under the number has it for good. */
static const char *choose_name(int run, const struct checkpoint_parts *parts,
                               char chosen[2 * CHECKPOINT_NAME_SIZE]) {
    enum { NAMES_TRIED = 1000 };
    struct stat status;
    char plain[CHECKPOINT_NAME_SIZE];
    if (parts->name != NULL) return parts->name;
    checkpoint_name(parts->number, plain);
    (void)snprintf(chosen, CHECKPOINT_NAME_SIZE, "%s", plain);
    for (int i = 2; i < NAMES_TRIED && fstatat(run, chosen, &status, AT_SYMLINK_NOFOLLOW) == 0; i++) {
        struct mark_found found = mark_find(run, chosen, parts->run);
        if (found.original && found.number == parts->number) break;
        (void)snprintf(chosen, 2 * CHECKPOINT_NAME_SIZE, "%s-%d", plain, i);
    }
    return chosen;
}

int checkpoint_publish(const char *run_path, const struct checkpoint_parts *parts, char **path, ty_error *err) {
    CLEANUP(buffer_done) struct buffer staging = {0};
    char chosen[2 * CHECKPOINT_NAME_SIZE];
    CLEANUP_FD int run = tree_open(AT_FDCWD, run_path, true, err);
    if (run < 0) return run;
    const char *name = choose_name(run, parts, chosen);
    checkpoint_staging_path(run_path, parts->number, parts->attempt, &staging);
    CLEANUP_FREE char *committed = str_format("%s/%s", run_path, name);
    struct gathering gathering = {.number = parts->number,
                                  .attempt = parts->attempt,
                                  .run_path = run_path,
                                  .staging = staging.data,
                                  .run = parts->run,
                                  .name = name,
                                  .awaited = json_object(),
                                  .lists = json_object(),
                                  .files = json_array(),
                                  .beside = parts->beside};
    bool whole = !staging.failed && committed != NULL && gathering.awaited != NULL && gathering.lists != NULL &&
                 gathering.files != NULL;
    int result = !whole ? ty_fail_memory(err) : parts->again ? find_published(&gathering, run, err) : 0;
    if (result == 0) result = publish(&gathering, run, parts, err);
    json_decref(gathering.awaited);
    json_decref(gathering.lists);
    json_decref(gathering.files);
    json_decref(gathering.older);
    if (result < 0) return ty_wrap(err, "%s", name);
    *path = TAKE(committed);
    return 0;
}
