/* From the name that a device has to its accelerator type (docs/spec/accelerators.md 1.5, 1.6, 6.1), whichever
 * vendor it is of. No device is looked at here: names come from the vendors' files, from `trainyard
 * accelerators classify`, and from the GRES types of Slurm (engine/slurm_show.c). NVIDIA's rules come last, for
 * they make a type of nearly anything. */
#include <stdio.h>
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

bool accelerator_classify(const char *name, char type[TYPE_SIZE]) {
    if (str_prefix(name, "0x", NULL) || str_prefix(name, "0X", NULL)) {
        /* "0x74a1". */
        char *end;
        long id = strtol(name, &end, 16);
        return *end == '\0' && keep(amd_type(id), type);
    }
    if (tpu_type(name, type)) return true;
    /* What is a type already. */
    if (strpbrk(name, " \t") == NULL && accelerator_type_check(name, NULL) == 0) return keep(name, type);
    const char *chip;
    if (str_prefix(name, "Apple ", &chip)) {
        /* "Apple M2 Pro" -> "M2-Pro". */
        if (chip[0] == '\0' || !keep(chip, type)) return false;
        for (char *blank = strchr(type, ' '); blank != NULL; blank = strchr(blank, ' '))
            *blank = '-';
        return true;
    }
    if (str_prefix(name, "GAUDI", NULL)) {
        /* "GAUDI2" -> "Intel-GAUDI2". */
        char text[TYPE_SIZE + sizeof "Intel-"];
        return snprintf(text, sizeof text, "Intel-%s", name) < (int)sizeof text && keep(text, type);
    }
    if (strncasecmp(name, "rngd", 4) == 0 || strncasecmp(name, "warboy", 6) == 0)
        return furiosa_type(name, type);
    if (str_prefix(name, "Intel", NULL)) return intel_type(name, type);
    return nvidia_type(name, type);
}
