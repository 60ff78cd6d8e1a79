/* The number has a fixed width: how large a log may be does not depend on how much it leaves out. */
#include "base/log_mark.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char BEFORE[] = "[trainyard: ", AFTER[] = " bytes are left out here, by --log-limit]\n";
enum { COUNT_WIDTH = 20 };

_Static_assert(sizeof BEFORE - 1 + COUNT_WIDTH + sizeof AFTER - 1 == LOG_MARK_SIZE, "the length of a mark");

void log_mark_format(uint64_t left_out, char mark[LOG_MARK_SIZE + 1]) {
    (void)snprintf(mark, LOG_MARK_SIZE + 1, "%s%*llu%s", BEFORE, COUNT_WIDTH, (unsigned long long)left_out,
                   AFTER);
}

bool log_mark_find(const char *text, size_t size, size_t *offset, uint64_t *left_out) {
    const char *end = text + size;
    for (const char *at = text; (at = memmem(at, (size_t)(end - at), BEFORE, sizeof BEFORE - 1)) != NULL;
         at++) {
        if (end - at < LOG_MARK_SIZE) return false;
        const char *digits = at + sizeof BEFORE - 1;
        if (memcmp(digits + COUNT_WIDTH, AFTER, sizeof AFTER - 1) != 0) continue;
        char number[COUNT_WIDTH + 1] = {0};
        memcpy(number, digits, COUNT_WIDTH);
        *left_out = strtoull(number, NULL, 10);
        *offset = (size_t)(at - text);
        return true;
    }
    return false;
}
