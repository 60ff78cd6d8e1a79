/* A module with one function; the build gives it several names and builds. */
#include <trainyard/api.h>

#include "base/module.h"

static int answer(void) {
    return 42;
}

extern const struct module {
    const char *version;
    int (*answer)(void);
} MODULE_SYMBOL TY_API;

const struct module MODULE_SYMBOL = {MODULE_BUILD, answer};
