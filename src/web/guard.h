/* Who may ask: the token, and no page of another origin, whatever it makes a browser send. */
#ifndef WEB_GUARD_H
#define WEB_GUARD_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "web/http.h"

enum { TOKEN_SIZE = 33 }; /* 32 hex digits: 128 bits */

struct guard {
    char token[TOKEN_SIZE];
    const char *const *hosts; /* n_hosts allowed beside those of the loopback; borrowed */
    size_t n_hosts;
    bool is_unix;
};

int guard_make_token(char token[TOKEN_SIZE], ty_error *err);

/* Whether the request came where it was meant to: Host, Origin, Sec-Fetch-Site, the peer's user. */
bool guard_origin(const struct guard *guard, const struct http_module *http,
                  const struct http_request *request);
/* Whether it has the token, in Authorization alone. Takes the same time whatever is wrong with it. */
bool guard_token(const struct guard *guard, const struct http_module *http, const struct http_request *request);

#endif
