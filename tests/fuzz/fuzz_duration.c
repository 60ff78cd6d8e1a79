/* Durations: what is read lies between nothing and 100 years, and can be shown. */
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/duration.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CLEANUP_FREE char *text = fuzz_text(data, size);
    CLEANUP(buffer_done) struct buffer out = {0};
    nanoseconds duration;
    if (duration_parse(text, &duration, NULL) == 0) {
        fuzz_require(duration >= 0 && duration <= 36525 * (86400 * NS_PER_S));
        duration_format(duration, &out);
    }
    if (size >= sizeof duration) {
        memcpy(&duration, data, sizeof duration);
        duration_format(duration, &out);
    }
    fuzz_require(!out.failed);
    return 0;
}
