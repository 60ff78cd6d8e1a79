/* The table of accelerator types. Nodes may also be of types that are not in it, because detectors make a type
 * from the name a device gives itself; those are known by how they begin. How a device's own name becomes a
 * type is accelerator/classify.c's. */
#include "scaling/device.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

#define OPERATOR_ONLY "set by the operator, never detected"

#define TYPE(vendor, resource, type) \
    { type, vendor, resource, "" }
#define NVIDIA(type) TYPE("nvidia", "GPU", type)
#define AMD(type) TYPE("amd", "GPU", type)
#define GOOGLE(type) TYPE("google", "TPU", type)
#define FURIOSA(type) TYPE("furiosa", "FURIOSA", type)

static const struct accelerator_type types[] = {
    NVIDIA("V100"),
    NVIDIA("P100"),
    NVIDIA("T4"),
    NVIDIA("P4"),
    NVIDIA("K80"),
    NVIDIA("A10G"),
    NVIDIA("L4"),
    NVIDIA("L40S"),
    NVIDIA("A100"),
    {"A100-40G", "nvidia", "GPU", OPERATOR_ONLY},
    {"A100-80G", "nvidia", "GPU", OPERATOR_ONLY},
    NVIDIA("H100"),
    NVIDIA("H200"),
    NVIDIA("H20"),
    NVIDIA("B200"),
    NVIDIA("B300"),
    NVIDIA("GB200"),
    NVIDIA("GB300"),
    NVIDIA("RTX-PRO-6000"),
    TYPE("intel", "GPU", "Intel-GPU-Max-1550"),
    TYPE("intel", "GPU", "Intel-GPU-Max-1100"),
    TYPE("habana", "HPU", "Intel-GAUDI"),
    AMD("AMD-Instinct-MI100"),
    AMD("AMD-Instinct-MI210"),
    AMD("AMD-Instinct-MI250X"),
    AMD("AMD-Instinct-MI250X-MI250"),
    AMD("AMD-Instinct-MI300A"),
    AMD("AMD-Instinct-MI300X-OAM"),
    AMD("AMD-Instinct-MI300X-HF"),
    {"AMD-Instinct-MI308X", "amd", "GPU", "detected as AMD-Instinct-MI308X-OAM, which is the same"},
    AMD("AMD-Instinct-MI325X-OAM"),
    AMD("AMD-Instinct-MI350X-OAM"),
    AMD("AMD-Instinct-MI355X-OAM"),
    AMD("AMD-Radeon-R9-200-HD-7900"),
    AMD("AMD-Radeon-HD-7900"),
    TYPE("neuron", "neuron_cores", "aws-neuron-core"),
    GOOGLE("TPU-V2"),
    GOOGLE("TPU-V3"),
    GOOGLE("TPU-V4"),
    GOOGLE("TPU-V5P"),
    GOOGLE("TPU-V5LITEPOD"),
    GOOGLE("TPU-V6E"),
    GOOGLE("TPU-V7X"),
    TYPE("ascend", "NPU", "Ascend910B"),
    TYPE("ascend", "NPU", "Ascend910B4"),
    FURIOSA("FURIOSA_RNGD"),
    FURIOSA("FURIOSA_RNGDS"),
    FURIOSA("FURIOSA_RNGDMAX"),
    FURIOSA("FURIOSA_RNGDPLUS"),
    TYPE("mobilint", "MBLT", "MOBILINT_ARIES"),
    TYPE("mobilint", "MBLT", "MOBILINT_REGULUS"),
};

/* How the types begin that detectors make of device names (docs/spec/accelerators.md 1.3, and rule 4 of
 * 1.5). */
static const char *const made_prefixes[] = {
    "GeForce-", "GTX-",      "RTX-",   "TITAN-",  "Quadro-",   "Tesla-", "NVS-",  "CMP-", "DGX-",   "GRID-",
    "Orin",     "Thor",      "AMD-",   "Intel-",  "Ascend",    "Atlas-", "RBLN-", "MLU",  "MetaX-", "MXC",
    "FURIOSA_", "MOBILINT_", "Apple-", "Jetson-", "Graphics-", "M1-",    "M2-",   "M3-",  "M4-",
};

/* Data centre devices whose name rule 3 of 1.5 shortens to this, beside those of 1.2. */
static const char *const made_types[] = {
    "A2",  "A10", "A16", "A30", "A40", "A800", "H800", "GH200", "GB10", "L2",  "L20", "L40", "B100", "B40",
    "P40", "M1",  "M2",  "M3",  "P6",  "M4",   "M6",   "M10",   "M40",  "M60", "K10", "K20", "K40",  "GB100",
};

const struct accelerator_type *accelerator_types(size_t *n) {
    *n = ARRAY_SIZE(types);
    return types;
}

/* A type that nobody knows is refused although nodes may be of any: it is nearly always misspelt, and a run
 * would wait for a node that never comes. Whoever means it asks for its resource (docs/spec/accelerators.md
 * 1.2). */
int accelerator_type_check(const char *type, ty_error *err) {
    const char *names[ARRAY_SIZE(types)];
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        if (strcmp(types[i].type, type) == 0) return 0;
        names[i] = types[i].type;
    }
    for (size_t i = 0; i < ARRAY_SIZE(made_prefixes); i++) {
        const char *rest;
        if (str_prefix(type, made_prefixes[i], &rest) && rest[0] != '\0') return 0;
    }
    if (str_find(type, made_types, ARRAY_SIZE(made_types)) >= 0) return 0;
    const char *nearest = str_nearest(type, names, ARRAY_SIZE(names));
    return ty_fail(
        err, TY_EUSAGE,
        "the type is not known%s%s%s; `trainyard accelerators types` lists them, and a node's own type "
        "can be asked for as the resource " ACCELERATOR_TYPE_PREFIX "TYPE=0.001",
        nearest == NULL ? "" : ", nearest is \"", nearest == NULL ? "" : nearest, nearest == NULL ? "" : "\"");
}

const char *accelerator_type_alias(const char *type) {
    static const char constant[] = "AMD-Instinct-MI308X", detected[] = "AMD-Instinct-MI308X-OAM";
    if (strcmp(type, constant) == 0) return detected;
    return strcmp(type, detected) == 0 ? constant : NULL;
}

bool accelerator_type_matches(const char *want, const char *have) {
    return strcmp(want, have) == 0 || str_equal(accelerator_type_alias(want), have);
}
