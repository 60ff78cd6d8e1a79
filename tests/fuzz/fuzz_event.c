/* The data of an event in a journal that anybody may have written: whatever it is, each value of the event is
 * one of its type, and what is written of it is read as the same. The first byte is the kind. */
#include "base/cleanup.h"
#include "fuzz.h"
#include "run/event.h"

static char *write_again(enum run_event_kind kind, const char *data) {
    struct event_memory memory = {0};
    struct run_event event = run_event_new(kind);
    struct buffer out = {0};
    fuzz_require(run_event_decode(&event, data, &memory) == 0);
    run_event_encode(&event, &out);
    buffer_char(&out, '\n');
    event_memory_done(&memory);
    return buffer_take(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    enum run_event_kind kind = (enum run_event_kind)(data[0] % RUN_EVENT_KINDS);
    CLEANUP_FREE char *text = strndup((const char *)data + 1, size - 1);
    CLEANUP_FREE char *once = write_again(kind, text);
    CLEANUP_FREE char *twice = write_again(kind, once);
    fuzz_require(strcmp(once, twice) == 0);
    return 0;
}
