/* The values of a report's metrics, flattened: b of the object a is "a/b". A parser of its own for the text as
 * it lies in the journal: a tree of each of ten million reports would take longer than all else. Whatever the
 * text is, nothing beyond it is read, and what is no JSON ends the walk. */
#ifndef VIEW_VALUES_H
#define VIEW_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/buffer.h"

enum value_type {
    VALUE_NUMBER,    /* finite; true and false are 1 and 0 */
    VALUE_NONFINITE, /* "NaN", "Infinity", "-Infinity", or a number beyond a double */
    VALUE_TEXT,
    VALUE_OTHER, /* null, lists, and what is nested too deep */
};

struct value {
    const char *name; /* with its objects in front; not terminated */
    size_t name_size;
    enum value_type type;
    bool flag;        /* the value stands as true or false */
    double number;    /* NaN, infinity or -infinity where it is not finite */
    const char *text; /* as it stands in the JSON, quotes included */
    size_t text_size;
    size_t member; /* its place in the outermost object; VALUES_MEMBERS where its name is not learned */
    bool same;     /* there was the same name at this place in the text before */
};

/* The longest name of a metric that a table, a column or a question about it has; one that is longer has
 * none. */
enum { METRIC_NAME_BYTES = 4096 };

/* How the members of the texts before began. Reports of a run look alike: a name that stands where it stood is
 * neither read nor looked up again, and all ranks have the same step, epoch and learning rate: nor is a number
 * that stands there as before. Zero-initialised: nothing was learned. */
enum { VALUES_MEMBERS = 32, VALUES_MEMBER_BYTES = 44, VALUES_NUMBER_BYTES = 23 };
struct values_shape {
    struct values_member {
        uint8_t size, name,
            name_size; /* of the text up to the value, and where in it the name is; 0: unknown */
        bool passed;
        char text[VALUES_MEMBER_BYTES];
        uint8_t number_size; /* of the number that stood there last; 0: none did, or a longer one */
        char digits[VALUES_NUMBER_BYTES];
        double number;
    } members[VALUES_MEMBERS];
};

/* Calls `each` for every value in order, but for what Python notes beside them ("$types", "$validation"); false
 * from it ends the walk. A name may come twice, as "a/b" and as b of the object a: the last value counts, as
 * for other readers of JSON, and none where that is no number. The value is borrowed for the call. False when
 * the text is no JSON object, or memory is short. */
bool values_each(const char *json, size_t size, bool (*each)(void *context, const struct value *value),
                 void *context);
/* The same; `shape` is that of texts before, and learns. */
bool values_each_like(struct values_shape *shape, const char *json, size_t size,
                      bool (*each)(void *context, const struct value *value), void *context);

/* Called by `each` for a value that is not wanted: numbers of that name at that place in the texts that follow
 * are passed over, unread. */
void values_pass(struct values_shape *shape, const struct value *value);

/* Finite or not. */
static inline bool value_is_number(const struct value *value) {
    return value->type == VALUE_NUMBER || value->type == VALUE_NONFINITE;
}

static inline bool value_is_named(const struct value *value, const char *name, size_t size) {
    return value->name_size == size && (size == 0 || memcmp(value->name, name, size) == 0);
}

/* Its name as a string; false: it is too long. A name may hold a NUL, behind which it is cut. */
bool value_name(const struct value *value, char name[METRIC_NAME_BYTES + 1]);

/* Appends the text of a JSON string, which stands there with its quotes. */
void values_text(const char *text, size_t size, struct buffer *out);

#endif
