/* The parts of a request's URL, as outsiders wrote them. */
#ifndef WEB_URL_H
#define WEB_URL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum { URL_PARAMETERS = 32 };

struct url_parameter {
    char *name, *value; /* unescaped, in the memory of `text` */
};

/* Zero-initialised: none. */
struct url_query {
    char *text; /* owned */
    struct url_parameter items[URL_PARAMETERS];
    size_t n;
};

/* "a=1&b=%20": TY_EUSAGE for a broken escape, a NUL, text that is no UTF-8, or too many. */
int url_query_parse(const char *text, struct url_query *query, ty_error *err);
void url_query_done(struct url_query *query);
/* The last value of that name, or NULL. */
const char *url_query_get(const struct url_query *query, const char *name);

/* Whether the path is `pattern`, in which "*" stands for one segment without escapes; up to `n_parts` of these,
 * borrowed from the path, go to `parts`. */
struct url_part {
    const char *text;
    size_t size;
};
bool url_matches(const char *path, const char *pattern, struct url_part *parts, size_t n_parts);

#endif
