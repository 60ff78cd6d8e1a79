/* ty_scaling_resolve: JSON in, JSON out, for the Python face and other languages. The fields are read by the
 * same reader as those of a config file (scaling.c), so that Python has no rule of its own; the answer is the
 * demand, with what is to be warned of. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "scaling/parts.h"

static void write_count(struct buffer *out, const char *name, int64_t value) {
    buffer_printf(out, "\"%s\": %lld, ", name, (long long)value);
}

static void write_resources(struct buffer *out, const char *name, const struct resources *resources) {
    buffer_printf(out, "\"%s\": ", name);
    resources_format_json(resources, out);
    buffer_text(out, ", ");
}

static void write_line(struct buffer *out, const char *name, const char *line) {
    buffer_printf(out, "\"%s\": [", name);
    if (line != NULL) buffer_json_text(out, line);
    buffer_char(out, ']');
}

static int format_demand(const struct demand *demand, char **json, ty_error *err) {
    CLEANUP(resources_done) struct resources total = {0};
    CLEANUP(buffer_done) struct buffer out = {0};
    int result = demand_total(demand, demand->max_workers, &total, err);
    if (result < 0) return result;
    int64_t per_slice = demand->tpu.workers_per_slice;
    buffer_char(&out, '{');
    write_count(&out, "num_workers", (int64_t)demand->max_workers);
    write_count(&out, "min_workers", (int64_t)demand->min_workers);
    write_count(&out, "max_workers", (int64_t)demand->max_workers);
    buffer_printf(&out, "\"elastic\": %s, ", demand->elastic ? "true" : "false");
    write_resources(&out, "per_worker", &demand->per_worker);
    write_resources(&out, "total", &total);
    write_resources(&out, "trainer", &demand->trainer);
    write_count(&out, "workers_per_slice", per_slice);
    write_count(&out, "slices", per_slice > 0 ? (int64_t)demand->max_workers / per_slice : 0);
    write_line(&out, "deprecations", demand->deprecation);
    buffer_text(&out, ", ");
    write_line(&out, "warnings", demand->warning);
    buffer_char(&out, '}');
    char *text = buffer_take(&out);
    if (text == NULL) return ty_fail_memory(err);
    *json = text;
    return 0;
}

int scaling_resolve_json(const char *config_json, char **resolved_json, ty_error *err) {
    struct document *document = NULL;
    struct demand demand = {0};
    CLEANUP(scaling_done) struct scaling scaling;
    scaling_init(&scaling);
    if (config_json == NULL || resolved_json == NULL)
        return ty_fail(err, TY_EUSAGE, "ty_scaling_resolve: config_json and resolved_json must not be NULL");
    int result = document_parse(config_json, strlen(config_json), "scaling config", &document, err);
    if (result < 0) return result;
    result = scaling_read(&scaling, document_root(document), NULL, err);
    document_destroy(document);
    if (result == 0)
        result = scaling_resolve(&scaling, str_equal(getenv("RAY_TRAIN_V2_ENABLED"), "0"), &demand, err);
    if (result == 0) result = format_demand(&demand, resolved_json, err);
    demand_done(&demand);
    return result;
}
