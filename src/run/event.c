/* Names of events. */
#include "run/event.h"

const char *run_event_name(enum run_event_kind kind) {
    static const char *const names[] = {
#define X(name, text, data) [name] = text,
        RUN_EVENTS(X)
#undef X
    };
    return (unsigned)kind < RUN_EVENT_KINDS ? names[kind] : "?";
}
