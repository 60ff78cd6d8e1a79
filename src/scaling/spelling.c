/* The table of spellings as data. */
#include "scaling/parts.h"

static const char *const spellings[][FACES] = {
#define X(name, as_fields, as_options) {as_fields, as_options},
    SPELLINGS(X)
#undef X
};

const char *spelled(enum face face, enum spelling what) {
    return spellings[what][face];
}
