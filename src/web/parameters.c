/* What a query says, and the errors for what it may not say: one reader for each form of parameter, with its
 * bounds. Parameters that the path does not know are refused, so that a mistake in a name is told. What
 * parameters mean is the answer's to say (answers.c). */
#include "web/api.h"

#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

const char *parameter_text(const struct api_call *call, const char *name) {
    return url_query_get(&call->query, name);
}

int parameter_whole(const struct api_call *call, const char *name, int64_t min, int64_t max, int64_t *value,
                    ty_error *err) {
    const char *text = parameter_text(call, name);
    if (text == NULL || str_to_int64(text, min, max, value)) return 0;
    return ty_fail(err, TY_EUSAGE, "%s=%.80s: must be a whole number from %lld to %lld", name, text,
                   (long long)min, (long long)max);
}

/* Empty is none, as a form sends it. */
static int parameter_real(const struct api_call *call, const char *name, double *value, ty_error *err) {
    const char *text = parameter_text(call, name);
    *value = NAN;
    if (text == NULL || *text == '\0' || str_to_double(text, value)) return 0;
    return ty_fail(err, TY_EUSAGE, "%s=%.80s: must be a finite number", name, text);
}

static int fail_range(const struct api_call *call, ty_error *err) {
    return ty_fail(err, TY_EUSAGE, "from=%.80s: must not lie behind to=%.80s", parameter_text(call, "from"),
                   parameter_text(call, "to"));
}

int parameter_range(const struct api_call *call, double *from, double *to, ty_error *err) {
    int result = parameter_real(call, "from", from, err);
    if (result >= 0) result = parameter_real(call, "to", to, err);
    return result >= 0 && *from > *to ? fail_range(call, err) : result;
}

int parameter_numbers(const struct api_call *call, uint64_t *from, uint64_t *to, ty_error *err) {
    int64_t first = 0, last = 0;
    int result = parameter_whole(call, "from", 0, INT64_MAX, &first, err);
    if (result >= 0) result = parameter_whole(call, "to", 0, INT64_MAX, &last, err);
    *from = (uint64_t)first;
    *to = (uint64_t)last;
    return result >= 0 && last > 0 && first > last ? fail_range(call, err) : result;
}

int parameter_choice(const struct api_call *call, const char *name, const char *const *allowed, int *value,
                     ty_error *err) {
    const char *text = parameter_text(call, name);
    CLEANUP(buffer_done) struct buffer all = {0};
    *value = 0;
    if (text == NULL) return 0;
    for (int i = 0; allowed[i] != NULL; i++) {
        if (str_equal(allowed[i], text)) {
            *value = i;
            return 0;
        }
        buffer_printf(&all, "%s%s", i == 0 ? "" : ", ", allowed[i]);
    }
    return ty_fail(err, TY_EUSAGE, "%s=%.80s: must be one of %s", name, text, all.failed ? "a few" : all.data);
}

int parameter_flag(const struct api_call *call, const char *name, bool *value, ty_error *err) {
    static const char *const flags[] = {"0", "1", NULL};
    int index = 0, result = parameter_choice(call, name, flags, &index, err);
    *value = index == 1;
    return result;
}

int parameter_history(const struct api_call *call, enum view_history *history, ty_error *err) {
    static const char *const histories[] = {"effective", "all", NULL};
    int index = 0, result = parameter_choice(call, "history", histories, &index, err);
    *history = (enum view_history)index;
    return result;
}

int parameter_ranks(const struct api_call *call, const char *name, struct idset *set,
                    const struct idset **ranks, ty_error *err) {
    const char *text = parameter_text(call, name);
    *ranks = NULL;
    if (text == NULL || *text == '\0') return 0;
    ty_error why = {0};
    if (idset_parse(set, text, &why) < 0)
        return ty_fail(err, TY_EUSAGE, "%s=%.80s: must be ranks as in 0-3,7", name, text);
    *ranks = set;
    return 0;
}

/* Names are told apart whole: `parameters` has blanks between them. */
int parameters_check(const struct api_call *call, ty_error *err) {
    for (size_t i = 0; i < call->query.n; i++) {
        const char *name = call->query.items[i].name;
        size_t size = strlen(name);
        const char *at = call->route->parameters;
        bool known = false;
        while (!known && *at != '\0') {
            size_t n = strcspn(at, " ");
            known = n == size && memcmp(at, name, n) == 0;
            at += n + (at[n] == ' ' ? 1 : 0);
        }
        if (!known)
            return ty_fail(err, TY_EUSAGE, "parameter %.80s: there is none here; allowed: %s", name,
                           *call->route->parameters != '\0' ? call->route->parameters : "none");
    }
    return 0;
}
