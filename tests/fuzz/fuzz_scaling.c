/* Scaling configs: any bytes are read or refused with a message, and what they resolve to can be counted.
 * The same bytes are also tried as a label selector, a number of workers and a TPU. */
#include "base/cleanup.h"
#include "fuzz.h"
#include "scaling/scaling.h"
#include "scaling/tpu.h"

static void check_demand(const struct demand *demand) {
    CLEANUP(resources_done) struct resources total = {0};
    fuzz_require(demand->min_workers <= demand->max_workers && demand->max_workers <= SCALING_MAX_WORKERS);
    fuzz_require(demand->n_selectors <= 1 || demand->n_selectors == demand->max_workers);
    for (size_t i = 0; i < demand->per_worker.n; i++)
        fuzz_require(demand->per_worker.items[i].amount > 0);
    fuzz_require(demand_total(demand, demand->max_workers, &total, NULL) == 0);
    for (size_t i = 0; i < total.n; i++)
        fuzz_require(total.items[i].amount > 0 && total.items[i].amount <= QUANTITY_MAX);
    if (demand->tpu.workers_per_slice > 0)
        fuzz_require(demand->max_workers % (size_t)demand->tpu.workers_per_slice == 0);
}

static void try_config(const uint8_t *data, size_t size) {
    struct document *document = NULL;
    struct demand demand = {0};
    struct scaling scaling;
    ty_error err = {0};
    if (document_parse((const char *)data, size, "input", &document, &err) < 0) return;
    scaling_init(&scaling);
    int result = scaling_read(&scaling, document_root(document), document, &err);
    if (result == 0) result = scaling_resolve(&scaling, false, &demand, &err);
    if (result < 0)
        fuzz_require(err.message[0] != '\0' && demand.per_worker.n == 0);
    else
        check_demand(&demand);
    demand_done(&demand);
    scaling_done(&scaling);
    document_destroy(document);
}

static void try_selector(const char *text) {
    CLEANUP(label_selector_done) struct label_selector selector = {0};
    CLEANUP(label_selector_done) struct label_selector copy = {0};
    CLEANUP(buffer_done) struct buffer out = {0};
    struct labels none = {0};
    if (label_selector_parse(&selector, text, NULL) < 0) {
        fuzz_require(selector.n == 0);
        return;
    }
    fuzz_require(label_selector_copy(&copy, &selector) == 0 && label_selector_equal(&selector, &copy));
    label_selector_format(&selector, &out);
    fuzz_require(out.size > 0);
    (void)label_selector_match(&selector, &none);
}

static void try_tpu(const char *text) {
    struct tpu_shape shape;
    char name[32], again[32];
    if (tpu_pod_type(text, name, NULL) == 0)
        fuzz_require(tpu_pod_type(name, again, NULL) == 0 && strcmp(name, again) == 0);
    if (tpu_shape_of("v5litepod", text, 0, false, &shape, NULL) == 0)
        fuzz_require(shape.chips > 0 && shape.hosts > 0 && shape.hosts <= shape.chips);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CLEANUP_FREE char *text = fuzz_text(data, size);
    struct scaling scaling;
    scaling_init(&scaling);
    if (scaling_parse_workers(&scaling, text, NULL) == 0)
        fuzz_require(scaling.min_workers <= scaling.max_workers);
    scaling_done(&scaling);
    try_config(data, size);
    try_selector(text);
    try_tpu(text);
    return 0;
}
