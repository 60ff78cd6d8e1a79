/* TPU arithmetic (docs/spec/accelerators.md 2.1-2.4): a table of generations, one row each, and the formulas of
 * 2.2 over it. A new generation is a row, and a name in the message of those that are known. Which hosts make a
 * slice is found by placement. */
#include "scaling/tpu.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

enum { MAX_DIMS = 4, DEFAULT_CHIPS_PER_HOST = 4, SINGLE_HOST_CHIPS = 8 };

struct dims {
    int64_t size[MAX_DIMS];
    size_t n;
};

/* What 2.1 and 2.3 say of a generation. */
struct generation {
    const char *name;
    int64_t cores_per_chip;
    bool small_hosts;       /* has machines of 1, 4 and 8 chips that are a slice by themselves */
    const char *topologies; /* separated and ended by blanks */
    int64_t cubes_up_to[3]; /* also every XxYxZ of multiples of 4 up to these; 0: none */
};

#define SMALL_CUBES "2x2x1 2x2x2 2x2x4 2x4x4 "
#define SMALL_HOSTS "1x1 2x2 2x4 2x8 4x4 4x8 8x8 8x16 16x16 "

static const struct generation generations[] = {
    {"v2", 2, false, "4x4 4x8 8x8 8x16 16x16 ", {0}},
    {"v3", 2, false, "4x4 4x8 8x8 8x16 16x16 16x32 32x32 ", {0}},
    {"v4", 2, false, SMALL_CUBES, {12, 12, 16}},
    {"v5p", 2, false, SMALL_CUBES, {16, 16, 24}},
    {"v5litepod", 1, true, SMALL_HOSTS, {0}},
    {"v6e", 1, true, SMALL_HOSTS, {0}},
    {"v7x", 2, false, SMALL_CUBES "4x4x4 4x4x8 4x8x8 8x8x8 8x8x16 8x16x16 ", {0}},
};

static const struct generation *find_generation(const char *name) {
    for (size_t i = 0; i < ARRAY_SIZE(generations); i++)
        if (strcmp(generations[i].name, name) == 0) return &generations[i];
    return NULL;
}

/* Trimmed, in lower case, a leading "tpu-v", "tpu-" or "tpu" become "v". False when it does not fit. */
static bool normalise(const char *text, char *out, size_t size) {
    while (isspace((unsigned char)*text))
        text++;
    size_t length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1]))
        length--;
    if (length + 2 > size) return false;
    for (size_t i = 0; i < length; i++)
        out[i] = (char)tolower((unsigned char)text[i]);
    out[length] = '\0';
    const char *rest;
    if (!str_prefix(out, "tpu-v", &rest) && !str_prefix(out, "tpu-", &rest) && !str_prefix(out, "tpu", &rest))
        return true;
    memmove(out + 1, rest, strlen(rest) + 1);
    out[0] = 'v';
    return true;
}

int tpu_generation(const char *accelerator_type, char generation[16], ty_error *err) {
    char name[16];
    if (!normalise(accelerator_type, name, sizeof name) || find_generation(name) == NULL)
        return ty_fail(err, TY_EUSAGE,
                       "\"%.80s\" is no TPU; known are TPU-V2, TPU-V3, TPU-V4, TPU-V5P, TPU-V5LITEPOD (also "
                       "called v5e), TPU-V6E and TPU-V7X",
                       accelerator_type);
    memcpy(generation, name, sizeof name);
    return 0;
}

/* -- topologies -- */

/* `chips` is the product. */
static bool parse_dims(const char *topology, struct dims *dims, int64_t *chips) {
    char text[40];
    if (strlen(topology) >= sizeof text) return false;
    dims->n = 0;
    *chips = 1;
    for (const char *at = topology;; at++) {
        size_t size = strcspn(at, "xX");
        memcpy(text, at, size);
        text[size] = '\0';
        if (dims->n == MAX_DIMS || !str_to_int64(text, 1, INT32_MAX, &dims->size[dims->n])) return false;
        if (__builtin_mul_overflow(*chips, dims->size[dims->n], chips)) return false;
        dims->n++;
        at += size;
        if (*at == '\0') return *chips <= INT32_MAX;
    }
}

static bool is_cube(const struct generation *generation, const struct dims *dims) {
    if (dims->n != 3 || generation->cubes_up_to[0] == 0) return false;
    for (size_t i = 0; i < 3; i++)
        if (dims->size[i] % 4 != 0 || dims->size[i] > generation->cubes_up_to[i]) return false;
    return true;
}

/* The list ends every topology with a blank, so "4x4" is not found inside "4x4x8 ". */
static bool is_listed(const char *list, const char *topology) {
    size_t size = strlen(topology);
    for (const char *at = list; *at != '\0'; at += strcspn(at, " ") + 1)
        if (strncmp(at, topology, size) == 0 && at[size] == ' ') return true;
    return false;
}

static int refuse_topology(const struct generation *generation, const char *topology, ty_error *err) {
    bool cubes = generation->cubes_up_to[0] > 0;
    char range[80] = "";
    if (cubes)
        (void)snprintf(range, sizeof range, "and multiples of 4 up to %lldx%lldx%lld",
                       (long long)generation->cubes_up_to[0], (long long)generation->cubes_up_to[1],
                       (long long)generation->cubes_up_to[2]);
    return ty_fail(err, TY_EUSAGE,
                   "Invalid accelerator topology: '%.80s' for accelerator version: '%s'; valid are: %s%s",
                   topology, generation->name, generation->topologies, range);
}

/* -- shapes -- */

int tpu_shape_of(const char *accelerator_type, const char *topology, int64_t chips_per_vm, bool validate,
                 struct tpu_shape *shape, ty_error *err) {
    struct tpu_shape made = {0};
    struct dims dims;
    int result = tpu_generation(accelerator_type, made.generation, err);
    if (result < 0) return result;
    if (!parse_dims(topology, &dims, &made.chips))
        return ty_fail(err, TY_EUSAGE,
                       "Invalid accelerator topology: '%.80s' must be positive whole numbers joined by x, such "
                       "as 4x4 or 2x2x2",
                       topology);
    if (chips_per_vm < 0)
        return ty_fail(err, TY_EUSAGE, "chips_per_vm must be positive, but it is %lld",
                       (long long)chips_per_vm);
    const struct generation *generation = find_generation(made.generation);
    for (size_t i = 0, used = 0; i < dims.n; i++)
        used += (size_t)snprintf(made.topology + used, sizeof made.topology - used, "%s%lld", i > 0 ? "x" : "",
                                 (long long)dims.size[i]);
    if (validate && !is_listed(generation->topologies, made.topology) && !is_cube(generation, &dims))
        return refuse_topology(generation, topology, err);
    made.cores_per_chip = generation->cores_per_chip;
    /* Hosts of 1, 4 or 8 chips serve exactly these topologies as a whole slice; all others are made of hosts of
     * 4. */
    made.chips_per_host = chips_per_vm > 0 ? chips_per_vm
                          : generation->small_hosts && is_listed("1x1 2x2 2x4 ", made.topology)
                              ? made.chips
                              : DEFAULT_CHIPS_PER_HOST;
    made.hosts = made.chips >= made.chips_per_host ? made.chips / made.chips_per_host : 1;
    (void)snprintf(made.pod_type, sizeof made.pod_type, "%s-%lld", made.generation,
                   (long long)(made.chips * made.cores_per_chip));
    *shape = made;
    return 0;
}

int tpu_workers_per_slice(quantity units, quantity per_worker, int64_t *workers, ty_error *err) {
    if (per_worker <= 0) return ty_fail(err, TY_EUSAGE, "TPU resources must be positive for each worker");
    if (units % per_worker != 0)
        return ty_fail(err, TY_EUSAGE, "TPU must divide evenly the TPU of a slice: %g is not divisible by %g",
                       quantity_to_double(units), quantity_to_double(per_worker));
    *workers = units / per_worker;
    return 0;
}

/* -- pod types -- */

/* v, digits, letters, '-', digits (2.2), of a known generation; `number` is what stands behind the dash. */
static const struct generation *split_pod_type(const char *text, char pod_type[32], int64_t *number) {
    char name[32];
    if (!normalise(text, pod_type, 32)) return NULL;
    const char *dash = strchr(pod_type, '-');
    if (dash == NULL || !str_to_int64(dash + 1, 1, INT32_MAX, number)) return NULL;
    memcpy(name, pod_type, (size_t)(dash - pod_type));
    name[dash - pod_type] = '\0';
    return find_generation(name);
}

/* Fewer cores than a chip has are no pod: v4-1 would be half a chip. */
static const struct generation *read_pod_type(const char *text, char pod_type[32], int64_t *cores,
                                              ty_error *err) {
    const struct generation *generation = split_pod_type(text, pod_type, cores);
    if (generation != NULL && *cores >= generation->cores_per_chip) return generation;
    (void)ty_fail(err, TY_EUSAGE,
                  "Invalid accelerator_type: pod type \"%.80s\" must be a TPU generation, a dash and a number "
                  "of cores, such as v4-16 or v6e-8",
                  text);
    return NULL;
}

int tpu_pod_type(const char *text, char pod_type[32], ty_error *err) {
    char name[32];
    int64_t cores;
    if (read_pod_type(text, name, &cores, err) == NULL) return TY_EUSAGE;
    memcpy(pod_type, name, sizeof name);
    return 0;
}

int tpu_pod_chips(const char *pod_type, int64_t *chips, int64_t *chips_per_host, ty_error *err) {
    char name[32];
    int64_t cores;
    const struct generation *generation = read_pod_type(pod_type, name, &cores, err);
    if (generation == NULL) return TY_EUSAGE;
    *chips = cores / generation->cores_per_chip;
    *chips_per_host = generation->small_hosts && *chips <= SINGLE_HOST_CHIPS ? *chips : DEFAULT_CHIPS_PER_HOST;
    return 0;
}

int tpu_pod_hosts(const char *pod_type, int64_t chips_on_host, int64_t *hosts, ty_error *err) {
    char name[32];
    int64_t cores;
    const struct generation *generation = read_pod_type(pod_type, name, &cores, err);
    if (generation == NULL) return TY_EUSAGE;
    if (chips_on_host <= 0)
        return ty_fail(err, TY_EUSAGE, "the chips of a host must be positive, not %lld",
                       (long long)chips_on_host);
    int64_t per_host = chips_on_host * generation->cores_per_chip;
    *hosts = (cores + per_host - 1) / per_host;
    return 0;
}

int tpu_units_per_chip(int64_t *units, ty_error *err) {
    const char *text = getenv("RAY_TPU_RESOURCE_PER_CHIP");
    int64_t value = 1;
    if (text != NULL && text[0] != '\0' && !str_to_int64(text, 1, 1024, &value))
        return ty_fail(err, TY_EUSAGE,
                       "RAY_TPU_RESOURCE_PER_CHIP must be a positive whole number, not \"%.80s\"", text);
    *units = value;
    return 0;
}
