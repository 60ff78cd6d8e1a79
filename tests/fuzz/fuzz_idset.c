/* Id sets: what is read is written and read again to the same set. */
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/idset.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CLEANUP_FREE char *text = fuzz_text(data, size);
    CLEANUP(idset_done) struct idset set = {0};
    CLEANUP(idset_done) struct idset again = {0};
    CLEANUP(buffer_done) struct buffer out = {0};
    if (idset_parse(&set, text, NULL) < 0) {
        fuzz_require(set.n_words == 0);
        return 0;
    }
    buffer_text(&out, "");
    idset_format(&set, &out);
    fuzz_require(idset_parse(&again, out.data, NULL) == 0);
    fuzz_require(idset_count(&again) == idset_count(&set));
    for (int64_t id = idset_next(&set, -1); id != IDSET_END; id = idset_next(&set, id))
        fuzz_require(idset_has(&again, id));
    return 0;
}
