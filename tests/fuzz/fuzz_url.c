/* What a browser, or whoever pretends to be one, asks for: a path, a "?", a query. Parameters are text without
 * a NUL; the last of a name is the one that counts. The parts of a path hold neither a slash nor an escape. */
#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include "fuzz.h"
#include "web/url.h"

static void match(const char *path) {
    static const char *const patterns[] = {"/", "/api/runs", "/api/runs/*", "/api/runs/*/logs/*/whole", "*"};
    for (size_t i = 0; i < ARRAY_SIZE(patterns); i++) {
        struct url_part parts[4] = {0};
        if (!url_matches(path, patterns[i], parts, ARRAY_SIZE(parts))) continue;
        for (size_t k = 0; k < ARRAY_SIZE(parts) && parts[k].text != NULL; k++) {
            fuzz_require(parts[k].size > 0 && parts[k].text >= path);
            fuzz_require((size_t)(parts[k].text - path) + parts[k].size <= strlen(path));
            fuzz_require(memchr(parts[k].text, '/', parts[k].size) == NULL);
            fuzz_require(memchr(parts[k].text, '%', parts[k].size) == NULL);
        }
        if (strchr(patterns[i], '*') == NULL) fuzz_require(str_equal(path, patterns[i]));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CLEANUP_FREE char *text = fuzz_text(data, size);
    CLEANUP(url_query_done) struct url_query query;
    ty_error err = {0};
    char *question = strchr(text, '?');
    if (question != NULL) *question = '\0';
    match(text);
    int result = url_query_parse(question != NULL ? question + 1 : "", &query, &err);
    if (result < 0) {
        fuzz_require(result == TY_EUSAGE && err.message[0] != '\0' && query.n == 0 && query.text == NULL);
        return 0;
    }
    fuzz_require(query.n <= URL_PARAMETERS);
    for (size_t i = 0; i < query.n; i++) {
        const char *name = query.items[i].name, *value = query.items[i].value;
        fuzz_require(utf8_valid(name, strlen(name)) && utf8_valid(value, strlen(value)));
        const char *last = url_query_get(&query, name);
        size_t at = query.n;
        while (!str_equal(query.items[at - 1].name, name))
            at--;
        fuzz_require(last == query.items[at - 1].value);
    }
    return 0;
}
