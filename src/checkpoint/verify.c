/* A committed checkpoint against its manifest: every file is there, of its size, and, where asked for, byte for
 * byte by its checksum. The first difference is told. Nothing is repaired here: a damaged checkpoint is passed
 * over for the one before it (controller/checkpoints_past.c). */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/copy.h"
#include "checkpoint/manifest.h"
#include "checkpoint/tree.h"

static int differs(const char *path, const struct manifest_entry *entry, const char *how, ty_error *err) {
    return ty_fail(err, TY_ECORRUPT, "%s/%s %s", path, entry->path, how);
}

/* `bytes` NULL: the size alone. */
static int check_file(const char *path, int top, const struct manifest_entry *entry, struct bytes *bytes,
                      ty_error *err) {
    struct stat status;
    struct digest digest;
    CLEANUP_FD int fd = tree_open_file(top, entry->path);
    if (fd == -ENOENT || fd == -ENOTDIR) return differs(path, entry, "is missing", err);
    if (fd < 0 || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode))
        return differs(path, entry, "cannot be read", err);
    if (status.st_size != entry->size) return differs(path, entry, "has not the size that was stored", err);
    if (entry->xxh3 == NULL || bytes == NULL) return 0;
    int result = bytes_digest(bytes, fd, &digest);
    if (result < 0) return ty_fail(err, result, "cannot read %s/%s: %s", path, entry->path, strerror(-result));
    return str_equal(digest.xxh3, entry->xxh3) ? 0
                                               : differs(path, entry, "has other content than was stored", err);
}

static int check_all(const char *path, int top, const json_t *files, struct bytes *bytes, ty_error *err) {
    int result = 0;
    for (size_t i = 0; result == 0 && i < json_array_size(files); i++) {
        struct manifest_entry entry;
        if (!manifest_entry_read(json_array_get(files, i), &entry))
            return ty_fail(err, TY_ECORRUPT, "the manifest of %s is damaged at file %zu of its list", path, i);
        if (entry.link == NULL) {
            result = check_file(path, top, &entry, bytes, err);
            continue;
        }
        char target[PATH_MAX];
        bool same = tree_read_link(top, entry.path, target) == 0 && str_equal(target, entry.link);
        if (!same) result = differs(path, &entry, "is not the link that was stored", err);
    }
    return result;
}

bool checkpoint_measure(const char *path, size_t *n_files, int64_t *bytes) {
    json_t *metadata = NULL;
    CLEANUP_FD int top = tree_open(AT_FDCWD, path, true, NULL);
    if (top >= 0) (void)manifest_read(top, path, &metadata, NULL);
    const json_t *files = json_object_get(json_object_get(metadata, MANIFEST_KEY), "files");
    bool listed = json_is_array(files);
    uint64_t sum = 0; /* of what a changed manifest says as well: it may wrap around */
    *n_files = json_array_size(files);
    for (size_t i = 0; i < *n_files; i++)
        sum += (uint64_t)json_integer_value(json_object_get(json_array_get(files, i), "size"));
    *bytes = (int64_t)sum;
    json_decref(metadata);
    return listed;
}

/* Every entry is judged before a byte of a file is read. */
bool manifest_proves(int directory, const char *name, const json_t *ours) {
    const json_t *files = json_object_get(ours, "files"), *value;
    struct bytes bytes = {0};
    bool known = json_array_size(files) > 0;
    size_t i;
    json_array_foreach(files, i, value) {
        struct manifest_entry entry;
        known = known && manifest_entry_read(value, &entry) && (entry.link != NULL || entry.xxh3 != NULL);
    }
    if (!known || bytes_init(&bytes) < 0) return false;
    int result = check_all(name, directory, files, &bytes, NULL);
    bytes_done(&bytes);
    return result == 0;
}

/* A manifest that is no JSON is damage like any other (TY_ECORRUPT), and not a wrong argument of the
 * caller's. */
static int verify(const char *path, bool every_byte, const atomic_bool *enough, ty_error *err) {
    CLEANUP_FD int top = tree_open(AT_FDCWD, path, true, err);
    if (top < 0) return top;
    json_t *metadata = NULL;
    int result = manifest_read(top, path, &metadata, err);
    if (result == TY_EUSAGE) return ty_fail(err, TY_ECORRUPT, "the manifest of %s is damaged", path);
    if (result < 0) return result;
    const json_t *files = json_object_get(json_object_get(metadata, MANIFEST_KEY), "files");
    struct bytes bytes = {0};
    if (!json_is_array(files))
        result =
            ty_fail(err, TY_ECORRUPT, "%s has no list of its files in " MANIFEST_NAME " or beside it", path);
    else if (every_byte && bytes_init(&bytes) < 0)
        result = ty_fail_memory(err);
    bytes.enough = enough;
    if (result >= 0) result = check_all(path, top, files, every_byte ? &bytes : NULL, err);
    bytes_done(&bytes);
    json_decref(metadata);
    return result;
}

int checkpoint_verify(const char *path, ty_error *err) {
    return verify(path, true, NULL, err);
}

int checkpoint_verify_until(const char *path, const atomic_bool *enough, ty_error *err) {
    return verify(path, true, enough, err);
}

int checkpoint_verify_sizes(const char *path, ty_error *err) {
    return verify(path, false, NULL, err);
}
