/* Writes metrics as JSON. This is the time that a report costs a training loop, so whole numbers take a short
 * way, and nothing is allocated once the buffer has grown. */
#include "worker/metrics.h"

#include <float.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/str.h"

enum { METRIC_NAME_MAX = 255 };

static int append_name(struct buffer *out, const char *name, ty_error *err) {
    size_t size = name != NULL ? strnlen(name, METRIC_NAME_MAX + 1) : 0;
    if (size == 0 || size > METRIC_NAME_MAX)
        return ty_fail(err, TY_EUSAGE, "metric name \"%.40s%s\" must be 1 to %d bytes of UTF-8",
                       name != NULL ? name : "", size > 40 ? "..." : "", METRIC_NAME_MAX);
    size_t before = out->size;
    buffer_json_string(out, name, size);
    if (!out->failed && !utf8_valid(name, size))
        return ty_fail(err, TY_EUSAGE, "metric name \"%.*s\" must be UTF-8", (int)(out->size - before - 2),
                       out->data + before + 1);
    return 0;
}

static int append_all(ty_metrics metrics, struct buffer *out, ty_error *err) {
    buffer_char(out, '{');
    for (size_t i = 0; i < metrics.n; i++) {
        if (i > 0) buffer_char(out, ',');
        int rc = append_name(out, metrics.items[i].name, err);
        if (rc < 0) return rc;
        buffer_char(out, ':');
        double value = metrics.items[i].value;
        static const double exact = 1e15; /* below it whole numbers print as such in 15 digits */
        if (isnan(value))
            buffer_text(out, "\"NaN\"");
        else if (isinf(value))
            buffer_text(out, value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
        else if (fabs(value) < exact && value == trunc(value) && !(value == 0 && signbit(value)))
            buffer_printf(out, "%" PRId64, (int64_t)value);
        else {
            /* 15 digits name every number that has a shorter form than 17 digits, but for those so small
             * that their precision shrinks. */
            char text[40];
            int digits = fabs(value) < DBL_MIN ? 1 : DBL_DIG;
            do
                (void)snprintf(text, sizeof text, "%.*g", digits, value);
            while (digits++ < DBL_DECIMAL_DIG && strtod(text, NULL) != value);
            buffer_text(out, text);
        }
    }
    buffer_char(out, '}');
    return out->failed ? ty_fail_memory(err) : 0;
}

int metrics_format(ty_metrics metrics, struct buffer *out, ty_error *err) {
    static locale_t c_locale; /* a program may have set one with a decimal comma */
    if (metrics.n > 0 && metrics.items == NULL)
        return ty_fail(err, TY_EUSAGE, "metrics are NULL, but their number is %zu", metrics.n);
    if (c_locale == NULL) c_locale = newlocale(LC_ALL_MASK, "C", NULL);
    if (c_locale == NULL) return ty_fail_memory(err);
    locale_t before = uselocale(c_locale);
    int rc = append_all(metrics, out, err);
    (void)uselocale(before);
    return rc;
}
