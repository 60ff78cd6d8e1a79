/* Writes metrics as JSON. This is the time that a report costs a training loop, so whole numbers take a short
 * way, and nothing is allocated once the buffer has grown. Whether names stand twice is not looked at. */
#include "worker/metrics.h"

#include <inttypes.h>
#include <math.h>
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

int metrics_format(ty_metrics metrics, struct buffer *out, ty_error *err) {
    static const double exact = 1e15; /* below it whole numbers print as such in 15 digits */
    if (metrics.n > 0 && metrics.items == NULL)
        return ty_fail(err, TY_EUSAGE, "metrics are NULL, but their number is %zu", metrics.n);
    buffer_char(out, '{');
    for (size_t i = 0; i < metrics.n; i++) {
        if (i > 0) buffer_char(out, ',');
        int rc = append_name(out, metrics.items[i].name, err);
        if (rc < 0) return rc;
        buffer_char(out, ':');
        double value = metrics.items[i].value;
        char text[STR_REAL_SIZE];
        if (isnan(value)) {
            buffer_text(out, "\"NaN\"");
        } else if (isinf(value)) {
            buffer_text(out, value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
        } else if (fabs(value) < exact && value == trunc(value) && !(value == 0 && signbit(value))) {
            buffer_printf(out, "%" PRId64, (int64_t)value);
        } else {
            str_from_double(value, text);
            buffer_text(out, text);
        }
    }
    buffer_char(out, '}');
    return out->failed ? ty_fail_memory(err) : 0;
}
