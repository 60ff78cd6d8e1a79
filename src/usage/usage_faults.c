/* What happens to devices: what a fault is called and how much it explains, and those that are found by
 * comparing a sample with the one before. What a fault means for a run is decided there (run/fault.c). */

#include "base/cleanup.h"
#include "usage/usage.h"

/* A limit that comes and goes is told again when it was away for so long. */
#define FORGOTTEN_AFTER (600 * NS_PER_S)

const char *usage_fault_name(enum usage_fault_kind kind) {
    static const char *const names[] = {
#define X(id, text) text,
        USAGE_FAULTS(X)
#undef X
    };
    return names[kind];
}

/* Those that NVIDIA's "Xid Errors" explains; any other number is a program's for all that is known. */
static const struct xid {
    uint64_t code;
    enum usage_weight weight;
    const char *text;
} xids[] = {
    {13, USAGE_OF_PROGRAM, "graphics engine exception, most often by a fault of the program"},
    {31, USAGE_OF_PROGRAM, "GPU memory page fault, most often by a fault of the program"},
    {32, USAGE_OF_PROGRAM, "invalid or corrupted push buffer"},
    {43, USAGE_OF_PROGRAM, "the GPU stopped processing, most often by a fault of the program"},
    {45, USAGE_NOTED, "cleaned up after an earlier error"},
    {48, USAGE_OF_HARDWARE, "double bit ECC error"},
    {61, USAGE_OF_HARDWARE, "internal microcontroller breakpoint"},
    {62, USAGE_OF_HARDWARE, "internal microcontroller halt"},
    {63, USAGE_NOTED, "a row of memory is remapped"},
    {64, USAGE_OF_HARDWARE, "a row of memory could not be remapped"},
    {74, USAGE_OF_HARDWARE, "NVLink error"},
    {79, USAGE_OF_HARDWARE, "it has fallen off the bus"},
    {92, USAGE_NOTED, "many single bit ECC errors"},
    {94, USAGE_OF_HARDWARE, "contained ECC error"},
    {95, USAGE_OF_HARDWARE, "uncontained ECC error"},
    {119, USAGE_OF_HARDWARE, "its system processor does not answer"},
    {120, USAGE_OF_HARDWARE, "error of its system processor"},
    {140, USAGE_OF_HARDWARE, "unrecovered ECC error"},
};

static const struct xid *find_xid(uint64_t code) {
    for (size_t i = 0; i < ARRAY_SIZE(xids); i++)
        if (xids[i].code == code) return &xids[i];
    return NULL;
}

enum usage_weight usage_fault_weight(const struct usage_fault *fault) {
    const struct xid *xid = find_xid(fault->code);
    switch ((enum usage_fault_kind)fault->kind) {
    case USAGE_FAULT_XID:
        return xid != NULL ? xid->weight : USAGE_OF_PROGRAM;
    case USAGE_FAULT_LOST:
    case USAGE_FAULT_ECC:
        return USAGE_OF_HARDWARE;
    default:
        return USAGE_NOTED;
    }
}

void usage_fault_text(const struct usage_fault *fault, struct buffer *out) {
    const struct xid *xid = find_xid(fault->code);
    unsigned long long code = fault->code;
    switch ((enum usage_fault_kind)fault->kind) {
    case USAGE_FAULT_XID:
        buffer_printf(out, "Xid %llu", code);
        if (xid != NULL) buffer_printf(out, ", %s", xid->text);
        break;
    case USAGE_FAULT_LOST:
        buffer_text(out, "the driver has lost it");
        break;
    case USAGE_FAULT_ECC:
        buffer_printf(out, "%llu uncorrected error%s of its memory", code, code == 1 ? "" : "s");
        break;
    default:
        buffer_text(out, "its clock is held down: ");
        usage_limits((unsigned)code, out);
    }
}

void usage_fault_add(struct usage_sample *sample, enum usage_fault_kind kind, int device, uint64_t code) {
    if (sample->n_faults == USAGE_FAULTS_MAX) return;
    sample->faults[sample->n_faults++] = (struct usage_fault){(uint32_t)kind, device, code};
}

/* A limit is told when it begins, and not again while it comes and goes, as with a device at its limit. Errors
 * are those since the driver was loaded, so that the first count tells nothing, and one that falls begins
 * anew. */
void usage_watch_look(struct usage_watch *watch, struct usage_sample *sample) {
    for (uint32_t i = 0; i < sample->n; i++) {
        const struct usage_value *value = &sample->values[i];
        int device = value->number;
        if (device < 0 || device >= USAGE_DEVICES_MAX) continue;
        if (value->what == USAGE_DEVICE_LIMITED) {
            /* A power limit is how a busy device works; it says nothing. */
            unsigned held = (unsigned)value->value & ~(unsigned)USAGE_LIMITED_POWER;
            if (sample->time - watch->held_at[device] > FORGOTTEN_AFTER) watch->held[device] = 0;
            if (held != 0) watch->held_at[device] = sample->time;
            unsigned new = held & ~watch->held[device];
            watch->held[device] |= held;
            if (new != 0) usage_fault_add(sample, USAGE_FAULT_THROTTLED, device, new);
        } else if (value->what == USAGE_DEVICE_ECC) {
            double grown = value->value - watch->errors[device];
            bool known = watch->counts[device];
            watch->errors[device] = value->value;
            watch->counts[device] = true;
            if (known && grown >= 1) usage_fault_add(sample, USAGE_FAULT_ECC, device, (uint64_t)grown);
        }
    }
}
