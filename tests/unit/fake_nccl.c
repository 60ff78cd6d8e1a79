/* A stand-in for libnccl and libcuda in one library: device memory is a block of this process, ranks meet in
 * memory that they share, and FAKE_NCCL says what is to go wrong:
 *   no-device   cuInit fails                 init-hangs  the communicator never stands
 *   hangs       the stream never ends        peer-lost   an asynchronous error
 *   duplicate   two ranks on one device */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fake_nccl.h"

#define EXPORT __attribute__((visibility("default")))

enum {
    SUCCESS = 0,
    IN_PROGRESS = 7,
    REMOTE_ERROR = 6,
    INVALID_USAGE = 5,
    NOT_READY = 600,
    NO_DEVICE = 100,
    INVALID = 1
};
enum { FLOAT32 = 7, SUM = 0, AVERAGE = 4 };

static struct fake_world *world;
static _Alignas(16) char device_memory[FAKE_DEVICE_BYTES];
static void *context;
static int rank, ranks, questions;

struct config {
    size_t size;
    unsigned magic, version;
    int blocking;
};

static bool wrong(const char *what) {
    const char *mode = getenv("FAKE_NCCL");
    return mode != NULL && strcmp(mode, what) == 0;
}

EXPORT struct fake_world *fake_nccl_share(int size);
EXPORT void *fake_nccl_memory(void);

/* To be called before the ranks are forked. */
struct fake_world *fake_nccl_share(int size) {
    if (world == NULL)
        world = mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(world, 0, sizeof *world);
    pthread_barrierattr_t shared;
    (void)pthread_barrierattr_init(&shared);
    (void)pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    (void)pthread_barrier_init(&world->barrier, &shared, (unsigned)size);
    return world;
}

void *fake_nccl_memory(void) {
    return device_memory;
}

/* All ranks' `size` bytes, in rank order, in memory that all see. */
static char *meet(const void *bytes, size_t size) {
    memcpy(world->pieces[rank], bytes, size);
    (void)pthread_barrier_wait(&world->barrier);
    return world->pieces[0];
}

static void part(void) {
    (void)pthread_barrier_wait(&world->barrier);
}

#define FUNCTION(name, ...)       \
    EXPORT int name(__VA_ARGS__); \
    int name(__VA_ARGS__)

FUNCTION(cuInit, unsigned flags) {
    return flags != 0 ? INVALID : wrong("no-device") ? NO_DEVICE : SUCCESS;
}

FUNCTION(cuPointerGetAttribute, void *data, int attribute, uintptr_t pointer) {
    uintptr_t first = (uintptr_t)device_memory;
    if (attribute != 2 || pointer < first || pointer >= first + sizeof device_memory) return INVALID;
    *(unsigned *)data = 2;
    return SUCCESS;
}

FUNCTION(cuDeviceGet, int *device, int ordinal) {
    *device = ordinal;
    return SUCCESS;
}

FUNCTION(cuDevicePrimaryCtxRetain, void **made, int device) {
    __atomic_or_fetch(&world->devices, 1 << device, __ATOMIC_SEQ_CST);
    *made = &context;
    return SUCCESS;
}

FUNCTION(cuCtxGetCurrent, void **current) {
    *current = context;
    return SUCCESS;
}

FUNCTION(cuCtxSetCurrent, void *current) {
    context = current;
    return SUCCESS;
}

FUNCTION(cuStreamQuery, void *stream) {
    if (stream != (void *)1 || context == NULL) return INVALID;
    return wrong("hangs") || wrong("peer-lost") ? NOT_READY : SUCCESS;
}

FUNCTION(cuGetErrorName, int result, const char **name) {
    *name = result == INVALID ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_OTHER";
    return SUCCESS;
}

FUNCTION(ncclGetUniqueId, char *id) {
    memcpy(id, "an id that must reach all ranks", 32);
    return SUCCESS;
}

/* The id goes by value, as a struct of 128 bytes. */
FUNCTION(ncclCommInitRankConfig, void **comm, int size, struct fake_id id, int own, struct config *config) {
    if (strcmp(id.bytes, "an id that must reach all ranks") != 0 || config->magic != 0xcafebeef) return INVALID;
    if (config->blocking != 0 || context == NULL) return INVALID;
    rank = own;
    ranks = size;
    questions = 0;
    *comm = world;
    return IN_PROGRESS;
}

FUNCTION(ncclCommGetAsyncError, void *comm, int *result) {
    (void)comm;
    *result = ++questions < 4 || wrong("init-hangs") ? IN_PROGRESS : SUCCESS;
    if (questions > 8 && wrong("peer-lost")) *result = REMOTE_ERROR;
    if (questions >= 4 && wrong("duplicate")) *result = INVALID_USAGE;
    return SUCCESS;
}

FUNCTION(ncclCommDestroy, void *comm) {
    (void)comm;
    __atomic_add_fetch(&world->destroyed, 1, __ATOMIC_SEQ_CST);
    return SUCCESS;
}

FUNCTION(ncclCommAbort, void *comm) {
    (void)comm;
    __atomic_add_fetch(&world->aborted, 1, __ATOMIC_SEQ_CST);
    return SUCCESS;
}

EXPORT const char *ncclGetLastError(void *comm);
const char *ncclGetLastError(void *comm) {
    (void)comm;
    return wrong("duplicate") ? "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 60\nmore" : "";
}

EXPORT const char *ncclGetErrorString(int result);
const char *ncclGetErrorString(int result) {
    if (result == INVALID_USAGE) return "invalid usage";
    return result == REMOTE_ERROR ? "remote process exited or there was a network error" : "invalid argument";
}

/* Sums of float32 only; AVERAGE divides. */
static int reduce(const float *from, float *to, size_t n, size_t first, size_t total, int type, int op) {
    if (type != FLOAT32 || (op != SUM && op != AVERAGE)) return INVALID;
    const char *all = meet(from, total * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        float sum = 0;
        for (int other = 0; other < ranks; other++)
            sum += ((const float *)(const void *)(all + (size_t)other * FAKE_DEVICE_BYTES))[first + i];
        to[i] = op == AVERAGE ? sum / (float)ranks : sum;
    }
    part();
    return SUCCESS;
}

FUNCTION(ncclAllReduce, const void *from, void *to, size_t n, int type, int op, void *comm, void *stream) {
    (void)comm;
    return stream != (void *)1 ? INVALID : reduce(from, to, n, 0, n, type, op);
}

FUNCTION(ncclReduceScatter, const void *from, void *to, size_t n, int type, int op, void *comm, void *stream) {
    (void)comm;
    return stream != (void *)1 ? INVALID : reduce(from, to, n, (size_t)rank * n, (size_t)ranks * n, type, op);
}

FUNCTION(ncclBroadcast, const void *from, void *to, size_t n, int type, int root, void *comm, void *stream) {
    (void)comm;
    if (type != FLOAT32 || stream != (void *)1) return INVALID;
    memcpy(to, meet(from, n * sizeof(float)) + (size_t)root * FAKE_DEVICE_BYTES, n * sizeof(float));
    part();
    return SUCCESS;
}

FUNCTION(ncclAllGather, const void *from, void *to, size_t n, int type, void *comm, void *stream) {
    (void)comm;
    if (type != FLOAT32 || stream != (void *)1) return INVALID;
    const char *all = meet(from, n * sizeof(float));
    for (int other = 0; other < ranks; other++)
        memcpy((char *)to + (size_t)other * n * sizeof(float), all + (size_t)other * FAKE_DEVICE_BYTES,
               n * sizeof(float));
    part();
    return SUCCESS;
}
