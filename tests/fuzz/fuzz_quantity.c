/* Amounts and lists of them: what is read is written and read again to the same amount. */
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/quantity.h"
#include "fuzz.h"

static void try_amount(const char *text) {
    CLEANUP(buffer_done) struct buffer out = {0};
    quantity amount, again;
    if (quantity_parse(text, "CPU", &amount, NULL) < 0) return;
    fuzz_require(amount >= 0 && amount <= QUANTITY_MAX);
    quantity_format(amount, &out);
    fuzz_require(quantity_parse(out.data, "CPU", &again, NULL) == 0 && again == amount);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CLEANUP_FREE char *text = fuzz_text(data, size);
    CLEANUP(resources_done) struct resources resources = {0};
    CLEANUP(buffer_done) struct buffer out = {0};
    double real;
    quantity amount;
    try_amount(text);
    if (size >= sizeof real) {
        memcpy(&real, data, sizeof real);
        if (quantity_from_double(real, "CPU", &amount, NULL) == 0)
            fuzz_require(amount >= 0 && amount <= QUANTITY_MAX);
    }
    if (resources_parse(&resources, text, NULL) < 0) fuzz_require(resources.n == 0);
    resources_format(&resources, &out);
    resources_format_json(&resources, &out);
    fuzz_require(!out.failed);
    return 0;
}
