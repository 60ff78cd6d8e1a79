/* Reading manifests and the lists of files that workers send: each entry is checked before anything relies on
 * it, since a list comes from a worker and a manifest may have been changed. Also where the manifest of a
 * checkpoint lies, in it or beside it. It is written in publish.c. */
#include "checkpoint/manifest.h"
#include "checkpoint/copy.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "checkpoint/carry.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/tree.h"

static bool is_hash(const char *text) {
    return strlen(text) == DIGEST_SIZE - 1 && strspn(text, "0123456789abcdef") == DIGEST_SIZE - 1;
}

bool manifest_entry_read(const json_t *value, struct manifest_entry *entry) {
    const json_t *size = json_object_get(value, "size"), *hash = json_object_get(value, "xxh3");
    *entry = (struct manifest_entry){
        .path = json_string_value(json_object_get(value, "path")),
        .link = json_string_value(json_object_get(value, "link")),
        .size = json_integer_value(size),
        .xxh3 = json_string_value(hash),
    };
    if (entry->path == NULL || !carry_path_is_inside(entry->path)) return false;
    if (entry->link != NULL) return size == NULL && hash == NULL;
    if (!json_is_integer(size) || entry->size < 0) return false;
    return hash == NULL || (entry->xxh3 != NULL && is_hash(entry->xxh3));
}

/* The file may grow while it is read, or never end: there is a bound. */
static int read_all(int fd, struct buffer *out) {
    enum { READ_PIECE = 1 << 20 };
    for (;;) {
        char *to = buffer_reserve(out, READ_PIECE);
        if (to == NULL) return -ENOMEM;
        ssize_t n = read(fd, to, READ_PIECE);
        if (n < 0 && errno != EINTR) return -errno;
        if (n == 0) return 0;
        if (n > 0) out->size += (size_t)n;
        if (out->size > MANIFEST_MAX) return -EFBIG;
    }
}

static json_t *read_list_file(int directory, const char *name) {
    CLEANUP(buffer_done) struct buffer text = {0};
    struct digest digest;
    CLEANUP_FD int fd = tree_open_file(directory, name);
    if (fd < 0 || read_all(fd, &text) < 0) return NULL;
    bytes_digest_memory(text.data, text.size, &digest);
    if (!str_equal(name + strlen(LIST_PREFIX), digest.xxh3)) return NULL;
    return json_loadb(text.data, text.size, JSON_REJECT_DUPLICATES, NULL);
}

json_t *manifest_list_name(const char *text) {
    enum { MENTION_MAX = 256 }; /* a list itself, which is longer mostly, is read once only */
    const char *hash;
    if (strnlen(text, MENTION_MAX) == MENTION_MAX) return NULL;
    json_t *values = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const json_t *first = json_array_get(values, 0);
    json_t *name = json_object_get(first, "list");
    bool in_file = json_array_size(values) == 1 && json_object_size(first) == 1 && json_is_string(name) &&
                   str_prefix(json_string_value(name), LIST_PREFIX, &hash) && is_hash(hash);
    name = in_file ? json_incref(name) : NULL;
    json_decref(values);
    return name;
}

json_t *manifest_read_list(int directory, const char *text) {
    json_t *name = manifest_list_name(text);
    json_t *values = name != NULL ? read_list_file(directory, json_string_value(name))
                                  : json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    json_decref(name);
    if (json_is_array(values)) return values;
    json_decref(values);
    return NULL;
}

/* `*object` is NULL when there is no such file. */
static int read_object(int directory, const char *file, const char *name, json_t **object, ty_error *err) {
    CLEANUP(buffer_done) struct buffer text = {0};
    CLEANUP_FD int fd = tree_open_file(directory, file);
    int result = fd < 0 ? fd : read_all(fd, &text);
    *object = NULL;
    if (result == -ENOENT) return 0;
    if (result < 0) return ty_fail(err, result, "cannot read %s/%s: %s", name, file, strerror(-result));
    json_error_t where;
    json_t *read = json_loadb(text.data, text.size, 0, &where);
    if (json_is_object(read)) {
        *object = read;
        return 0;
    }
    const char *why = read == NULL ? where.text : "it is another value";
    json_decref(read);
    return ty_fail(err, TY_EUSAGE, "%s/%s is not a JSON object: %s", name, file, why);
}

enum { NAME_ROOM = NAME_MAX + 32 };

/* From the checkpoint's directory with `up` "../", from that of its run with "". False: no such name is
 * possible. */
static bool name_beside(const char *up, const char *name, char made[NAME_ROOM]) {
    size_t size = strlen(name);
    while (size > 1 && name[size - 1] == '/')
        size--;
    size_t start = size;
    while (start > 0 && name[start - 1] != '/')
        start--;
    int n = snprintf(made, NAME_ROOM, "%s.%.*s" BESIDE_SUFFIX, up, (int)(size - start), name + start);
    return n < NAME_ROOM;
}

/* Of two the one inside counts where it has our part; the user's metadata alone takes our part from the one
 * beside. */
int manifest_read(int directory, const char *name, json_t **metadata, ty_error *err) {
    char beside[NAME_ROOM];
    json_t *read;
    int result = read_object(directory, MANIFEST_NAME, name, metadata, err);
    if (result < 0 || json_object_get(*metadata, MANIFEST_KEY) != NULL || !name_beside("../", name, beside))
        return result;
    result = read_object(directory, beside, name, &read, err);
    if (result == 0 && read == NULL) return 0;
    if (*metadata == NULL)
        *metadata = json_incref(read);
    else if (result == 0 && json_object_set(*metadata, MANIFEST_KEY, json_object_get(read, MANIFEST_KEY)) < 0)
        result = ty_fail_memory(err);
    json_decref(read);
    if (result == 0) return 1;
    json_decref(*metadata);
    *metadata = NULL;
    return result;
}

static bool names(const char *name, char inside[NAME_ROOM], char beside[NAME_ROOM]) {
    return snprintf(inside, NAME_ROOM, "%s/" MANIFEST_NAME, name) < NAME_ROOM && name_beside("", name, beside);
}

void manifest_place(int run, const char *name, bool is_beside) {
    char inside[NAME_ROOM], beside[NAME_ROOM];
    if (!names(name, inside, beside)) return;
    (void)(is_beside ? renameat(run, inside, run, beside) : unlinkat(run, beside, 0));
}

void manifest_put_back(int run, const char *name) {
    char inside[NAME_ROOM], beside[NAME_ROOM];
    if (names(name, inside, beside) && renameat(run, beside, run, inside) < 0) (void)unlinkat(run, beside, 0);
}
