/* Names of checkpoints. */
#include "checkpoint/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "checkpoint/names.h"

void checkpoint_name(uint64_t number, char name[CHECKPOINT_NAME_SIZE]) {
    (void)snprintf(name, CHECKPOINT_NAME_SIZE, NAME_PREFIX "%06" PRIu64, number);
}

int checkpoint_check_name(const char *name, ty_error *err) {
    enum { NAME_MAX_BYTES = 200 };
    size_t size = strlen(name);
    bool plain = size > 0 && size <= NAME_MAX_BYTES && name[0] != '.' && utf8_valid(name, size);
    for (const char *c = name; plain && *c != '\0'; c++)
        plain = *c != '/' && (unsigned char)*c >= ' ' && *c != 0x7f;
    if (plain) return 0;
    return ty_fail(err, TY_EUSAGE,
                   "the checkpoint name \"%.80s\" is not usable: 1 to %d bytes of UTF-8, no '/', no control "
                   "characters, no '.' first",
                   name, NAME_MAX_BYTES);
}

bool checkpoint_is_outside(const char *name) {
    return name[0] == '/' || strstr(name, "://") != NULL;
}

void checkpoint_path(const char *run_path, const char *name, struct buffer *out) {
    if (checkpoint_is_outside(name))
        buffer_text(out, name);
    else
        buffer_printf(out, "%s/%s", run_path, name);
}

void checkpoint_staging_path(const char *run_path, uint64_t number, int attempt, struct buffer *out) {
    char name[CHECKPOINT_NAME_SIZE];
    checkpoint_name(number, name);
    buffer_printf(out, "%s/.%s" STAGING_MARK "%d", run_path, name, attempt);
}
