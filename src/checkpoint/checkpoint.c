/* Names of checkpoints and their paths in a run: the name of a number, what a user may call one, places
 * elsewhere, and where files gather before. Paths are put together as text, and nothing is looked at; what lies
 * at these paths is the business of copy.c, publish.c and remove.c. */
#include "checkpoint/checkpoint.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "checkpoint/mark.h"
#include "usage/usage.h"

void checkpoint_name(uint64_t number, char name[CHECKPOINT_NAME_SIZE]) {
    (void)snprintf(name, CHECKPOINT_NAME_SIZE, NAME_PREFIX "%06" PRIu64, number);
}

int checkpoint_check_name(const char *name, ty_error *err) {
    enum { CHECKPOINT_NAME_MAX = 200 };
    size_t size = strlen(name);
    bool plain = size > 0 && size <= CHECKPOINT_NAME_MAX && name[0] != '.' && utf8_valid(name, size);
    for (const char *c = name; plain && *c != '\0'; c++)
        plain = *c != '/' && (unsigned char)*c >= ' ' && *c != 0x7f;
    if (plain && mark_is_reserved(name))
        return ty_fail(err, TY_EUSAGE,
                       "the checkpoint name \"%.80s\" is not usable: " LOGS_NAME
                       " and all that begins with " JOURNAL_NAME " or " USAGE_DB_NAME
                       " are the run's own files",
                       name);
    if (plain) return 0;
    return ty_fail(err, TY_EUSAGE,
                   "the checkpoint name \"%.80s\" is not usable: 1 to %d bytes of UTF-8, no '/', no control "
                   "characters, no '.' first",
                   name, CHECKPOINT_NAME_MAX);
}

bool checkpoint_is_place(const char *name) {
    return strchr(name, '/') != NULL;
}

bool checkpoint_is_address(const char *place) {
    const char *at = place;
    while (isalnum((unsigned char)*at) || (at > place && strchr("+-.", *at) != NULL && *at != '\0'))
        at++;
    return isalpha((unsigned char)*place) && str_prefix(at, "://", NULL);
}

/* A user's name and a number's are entries of the run's directory alike; a place is told by its slash. */
void checkpoint_path(const char *run_path, const char *name, struct buffer *out) {
    const char *inner = name;
    if (name[0] == '/' || checkpoint_is_address(name))
        buffer_text(out, name);
    else
        buffer_printf(out, "%s/%s", run_path, str_prefix(name, PLACE_PREFIX, &inner) ? inner : name);
}

/* A step upwards leads where only the file system knows: such a path is left as it is. */
static bool has_step_up(const char *path) {
    for (const char *at = path; (at = strstr(at, "..")) != NULL; at += 2)
        if ((at == path || at[-1] == '/') && (at[2] == '/' || at[2] == '\0')) return true;
    return false;
}

char *checkpoint_place_name(const char *run_path, const char *place) {
    const char *rest;
    bool inside = str_prefix(place, run_path, &rest) && rest[0] == '/' && rest[1] != '\0' && !has_step_up(rest);
    return inside ? str_format(PLACE_PREFIX "%s", rest + 1) : strdup(place);
}

void checkpoint_staging_path(const char *run_path, uint64_t number, int attempt, struct buffer *out) {
    char name[CHECKPOINT_NAME_SIZE];
    checkpoint_name(number, name);
    buffer_printf(out, "%s/.%s" STAGING_MARK "%d", run_path, name, attempt);
}
