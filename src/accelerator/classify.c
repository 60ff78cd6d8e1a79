/* From the name that a device has to its accelerator type (spec/accelerators.md 1.5, 1.6, 6.1), whichever
 * vendor it is of. */
#include <stdlib.h>
#include <string.h>

#include "accelerator/vendors.h"
#include "base/str.h"

enum { TYPE_SIZE = 64 };

static bool keep(const char *found, char type[TYPE_SIZE]) {
    if (found == NULL || strlen(found) >= TYPE_SIZE) return false;
    memcpy(type, found, strlen(found) + 1);
    return true;
}

/* "0x74a1". */
static bool classify_pci_id(const char *name, char type[TYPE_SIZE]) {
    char *end;
    long id = strtol(name, &end, 16);
    return *end == '\0' && keep(amd_type(id), type);
}

bool accelerator_classify(const char *name, char type[TYPE_SIZE]) {
    if (str_prefix(name, "0x", NULL) || str_prefix(name, "0X", NULL)) return classify_pci_id(name, type);
    if (tpu_type(name, type)) return true;
    if (strncasecmp(name, "rngd", 4) == 0 || strncasecmp(name, "warboy", 6) == 0)
        return furiosa_type(name, type);
    if (str_prefix(name, "Intel", NULL)) return intel_type(name, type);
    return nvidia_type(name, type);
}
