/* Marks and forms of names, as mark.h has them. A mark is compared with where it lies: the directory's inode
 * and the run's id, and where those differ the files themselves. Whoever removes or counts checkpoints asks
 * here first, so that nothing of the user's is taken for ours. */
#include "checkpoint/mark.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/tree.h"
#include "usage/usage.h"

bool mark_write(json_t *ours, int top, const struct checkpoint_mark *mark) {
    struct stat status;
    json_int_t directory = fstat(top, &status) == 0 ? (json_int_t)status.st_ino : 0;
    return json_object_set_new(ours, "run", json_string(mark->run)) == 0 &&
           json_object_set_new(ours, "name", json_string(mark->name)) == 0 &&
           json_object_set_new(ours, "number", json_integer((json_int_t)mark->number)) == 0 &&
           json_object_set_new(ours, "directory", json_integer(directory)) == 0;
}

static const char *text_of(const json_t *ours, const char *key) {
    return json_string_value(json_object_get(ours, key));
}

bool mark_speaks_of(const json_t *ours, int top, const struct checkpoint_mark *mark) {
    struct stat status;
    return str_equal(text_of(ours, "run"), mark->run) && str_equal(text_of(ours, "name"), mark->name) &&
           json_integer_value(json_object_get(ours, "number")) == (json_int_t)mark->number &&
           fstat(top, &status) == 0 &&
           json_integer_value(json_object_get(ours, "directory")) == (json_int_t)status.st_ino;
}

/* Cheap first: the manifest's words, then the inode, and only where those leave a doubt, which is with a
 * manifest beside a directory that was copied, every byte of the files. */
struct mark_found mark_find(int run, const char *name, const char *id) {
    struct mark_found found = {0};
    struct stat status;
    json_t *metadata = NULL;
    CLEANUP_FD int top = tree_open(run, name, false, NULL);
    if (top < 0 || fstat(top, &status) < 0) return found;
    int place = manifest_read(top, name, &metadata, NULL);
    const json_t *ours = json_object_get(metadata, MANIFEST_KEY);
    json_int_t number = json_integer_value(json_object_get(ours, "number"));
    if (number > 0 && str_equal(text_of(ours, "run"), id) && str_equal(text_of(ours, "name"), name)) {
        found.number = (uint64_t)number;
        found.original = json_integer_value(json_object_get(ours, "directory")) == (json_int_t)status.st_ino;
        bool speaks_of_this = place == 0 || found.original || manifest_proves(top, name, ours);
        if (!speaks_of_this) found.number = 0; /* but of what lay here before */
    }
    json_decref(metadata);
    return found;
}

bool mark_is_whole(int run, const char *name) {
    json_t *metadata = NULL;
    CLEANUP_FD int top = tree_open(run, name, false, NULL);
    bool whole = top >= 0 && manifest_read(top, name, &metadata, NULL) >= 0 &&
                 manifest_proves(top, name, json_object_get(metadata, MANIFEST_KEY));
    json_decref(metadata);
    return whole;
}

static bool is_hex(const char *text) {
    enum { DIGITS = 8 };
    return strlen(text) == DIGITS && strspn(text, "0123456789abcdef") == DIGITS;
}

/* A number with at least so many digits, as it is written: "7", of six digits "000007". */
static bool take_number(const char **at, int digits, uint64_t *number) {
    char written[CHECKPOINT_NAME_SIZE];
    if (**at < '0' || **at > '9') return false;
    *number = strtoull(*at, NULL, 10);
    (void)snprintf(written, sizeof written, "%0*" PRIu64, digits, *number);
    return str_prefix(*at, written, at);
}

enum mark_form mark_form(const char *name, int64_t *attempt) {
    uint64_t number = 0, of = 0;
    const char *at = name, *random;
    *attempt = 0;
    if (!str_prefix(at, "." NAME_PREFIX, &at) || !take_number(&at, 6, &number)) return FORM_OTHER;
    if (str_equal(at, TRASH_MARK)) return FORM_TRASH;
    if (!str_prefix(at, STAGING_MARK, &at) || !take_number(&at, 1, &of) || of > INT32_MAX) return FORM_OTHER;
    *attempt = (int64_t)of;
    if (*at == '\0' || (str_prefix(at, OWN_MARK, &random) && is_hex(random))) return FORM_STAGING;
    return str_prefix(at, GIVEN_MARK, &random) && is_hex(random) ? FORM_GIVEN : FORM_OTHER;
}

void mark_trash_name(uint64_t number, char name[CHECKPOINT_NAME_SIZE + 16]) {
    char of[CHECKPOINT_NAME_SIZE];
    checkpoint_name(number, of);
    (void)snprintf(name, CHECKPOINT_NAME_SIZE + 16, ".%s" TRASH_MARK, of);
}

bool mark_is_reserved(const char *name) {
    return str_equal(name, LOGS_NAME) || str_equal(name, LOCK_NAME) || str_prefix(name, JOURNAL_NAME, NULL) ||
           str_prefix(name, USAGE_DB_NAME, NULL);
}
