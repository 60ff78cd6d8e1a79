/* The NCCL backend. Nothing of CUDA is linked: the few functions that are needed are looked up in the libraries
 * that the machine has, with the prototypes that NCCL 2 and the CUDA driver document.
 *
 * The communicator is of the kind that never blocks inside NCCL, so that this file can bound every wait. The
 * work is queued on CUDA's legacy default stream, so it comes after whatever the program queued there or on
 * blocking streams before, and the call returns when the result is in place. While it waits it asks NCCL for
 * failures of peers. */
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/module.h"
#include "collective/comm.h"

/* NCCL's and CUDA's own types and constants, as far as they are used here. */
typedef struct ncclComm nccl_comm;
typedef struct {
    char bytes[128];
} nccl_id;
typedef struct CUctx_st cu_context;
typedef struct CUstream_st cu_stream;
typedef int cu_device;
typedef unsigned long long cu_pointer;

/* ncclConfig_t as of NCCL 2.14; later versions take what a smaller struct lacks from their defaults. */
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
};

enum { NCCL_SUCCESS = 0, NCCL_REMOTE_ERROR = 6, NCCL_IN_PROGRESS = 7 };
enum { CU_SUCCESS = 0, CU_ERROR_NOT_READY = 600 };
enum { CU_POINTER_MEMORY_TYPE = 2, CU_MEMORY_TYPE_DEVICE = 2 };
#define CU_STREAM_LEGACY ((cu_stream *)1)

/* X(result, name, arguments): functions of libnccl */
#define NCCL_FUNCTIONS(X)                                                                             \
    X(int, ncclGetUniqueId, (nccl_id * id))                                                           \
    X(int, ncclCommInitRankConfig,                                                                    \
      (nccl_comm * *comm, int ranks, nccl_id id, int rank, struct nccl_config *config))               \
    X(int, ncclCommDestroy, (nccl_comm * comm))                                                       \
    X(int, ncclCommAbort, (nccl_comm * comm))                                                         \
    X(int, ncclCommGetAsyncError, (nccl_comm * comm, int *result))                                    \
    X(const char *, ncclGetErrorString, (int result))                                                 \
    X(const char *, ncclGetLastError, (nccl_comm * comm))                                             \
    X(int, ncclAllReduce,                                                                             \
      (const void *from, void *to, size_t n, int type, int op, nccl_comm *comm, cu_stream *stream))   \
    X(int, ncclBroadcast,                                                                             \
      (const void *from, void *to, size_t n, int type, int root, nccl_comm *comm, cu_stream *stream)) \
    X(int, ncclAllGather,                                                                             \
      (const void *from, void *to, size_t n, int type, nccl_comm *comm, cu_stream *stream))           \
    X(int, ncclReduceScatter,                                                                         \
      (const void *from, void *to, size_t n, int type, int op, nccl_comm *comm, cu_stream *stream))

/* functions of libcuda */
#define CUDA_FUNCTIONS(X)                                                          \
    X(int, cuInit, (unsigned flags))                                               \
    X(int, cuPointerGetAttribute, (void *data, int attribute, cu_pointer pointer)) \
    X(int, cuDeviceGet, (cu_device * device, int ordinal))                         \
    X(int, cuDevicePrimaryCtxRetain, (cu_context * *context, cu_device device))    \
    X(int, cuCtxGetCurrent, (cu_context * *context))                               \
    X(int, cuCtxSetCurrent, (cu_context * context))                                \
    X(int, cuStreamQuery, (cu_stream * stream))                                    \
    X(int, cuGetErrorName, (int result, const char **name))

static struct {
    bool loaded;
#define X(result, name, arguments) result(*name) arguments;
    NCCL_FUNCTIONS(X)
    CUDA_FUNCTIONS(X)
#undef X
} lib;

struct function {
    const char *name;
    void *place;
};

#define X(result, name, arguments) {#name, &lib.name},
static const struct function nccl_functions[] = {NCCL_FUNCTIONS(X)};
static const struct function cuda_functions[] = {CUDA_FUNCTIONS(X)};
#undef X

static const char *library_name(const char *variable, const char *usual) {
    const char *name = getenv(variable);
    return name != NULL && name[0] != '\0' ? name : usual;
}

static const char *cuda_library(void) {
    return library_name("TRAINYARD_CUDA_LIBRARY", "libcuda.so.1");
}

/* dlerror in one line's worth. */
static int fail_library(const char *name, ty_error *err) {
    const char *why = dlerror();
    return ty_fail(err, TY_EUNSUPPORTED, "%s cannot be loaded: %s", name, why != NULL ? why : "unknown reason");
}

/* The library is never closed: its functions are used until the process ends. */
static int load_functions(const char *name, const struct function *functions, size_t n, ty_error *err) {
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) return fail_library(name, err);
    for (size_t i = 0; i < n; i++) {
        void *symbol = dlsym(handle, functions[i].name);
        if (symbol == NULL) return fail_library(name, err);
        memcpy(functions[i].place, &symbol, sizeof symbol); /* ISO C has no cast from object to function */
    }
    return 0;
}

int nccl_load(ty_error *err) {
    if (lib.loaded) return 0;
    int rc = load_functions(cuda_library(), cuda_functions, ARRAY_SIZE(cuda_functions), err);
    if (rc == 0)
        rc = load_functions(library_name("TRAINYARD_NCCL_LIBRARY", "libnccl.so.2"), nccl_functions,
                            ARRAY_SIZE(nccl_functions), err);
    if (rc < 0) return rc;
    if (lib.cuInit(0) != CU_SUCCESS)
        return ty_fail(err, TY_EUNSUPPORTED, "%s finds no usable device", cuda_library());
    lib.loaded = true;
    return 0;
}

/* dl_iterate_phdr's count of objects that were ever loaded. */
static int take_count(struct dl_phdr_info *info, size_t size, void *count) {
    (void)size;
    *(unsigned long long *)count = info->dlpi_adds;
    return 1;
}

/* A process without libcuda in it cannot hold device memory, and is not made to load it. The search costs some
 * file look-ups, so it is made again only after something was loaded. */
bool nccl_is_device_memory(const void *buffer) {
    static unsigned long long searched;
    unsigned long long loaded = 0;
    unsigned kind = 0;
    if (lib.cuPointerGetAttribute == NULL) {
        (void)dl_iterate_phdr(take_count, &loaded);
        if (loaded == searched) return false;
        searched = loaded;
        void *cuda = dlopen(cuda_library(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
        void *symbol = cuda != NULL ? dlsym(cuda, "cuPointerGetAttribute") : NULL;
        if (symbol == NULL) return false;
        memcpy(&lib.cuPointerGetAttribute, &symbol, sizeof symbol);
    }
    int result = lib.cuPointerGetAttribute(&kind, CU_POINTER_MEMORY_TYPE, (cu_pointer)(uintptr_t)buffer);
    return result == CU_SUCCESS && kind == CU_MEMORY_TYPE_DEVICE;
}

struct state {
    nccl_comm *comm; /* NULL once it was aborted */
    cu_context *context;
    nanoseconds timeout;
};

static int fail_cuda(const char *what, int result, ty_error *err) {
    const char *name = NULL;
    if (lib.cuGetErrorName(result, &name) != CU_SUCCESS || name == NULL) name = "unknown error";
    return ty_fail(err, TY_ECOMM, "%s: %s", what, name);
}

/* What NCCL itself noted last tells more than its words for the result: "Duplicate GPU detected : rank 1 and
 * rank 0 both on CUDA device 60". It is a text of one process, whatever the communicator. */
static int fail_nccl(const char *what, int result, ty_error *err) {
    const char *noted = lib.ncclGetLastError(NULL);
    if (result == NCCL_REMOTE_ERROR) what = "a peer is lost";
    if (noted == NULL || noted[0] == '\0')
        return ty_fail(err, TY_ECOMM, "NCCL: %s: %s", what, lib.ncclGetErrorString(result));
    return ty_fail(err, TY_ECOMM, "NCCL: %s: %s: %.*s", what, lib.ncclGetErrorString(result),
                   (int)strcspn(noted, "\n"), noted);
}

/* Makes the state's device current in this thread; `before` is to be made current again. */
static int enter(const struct state *state, cu_context **before, ty_error *err) {
    int result = lib.cuCtxGetCurrent(before);
    if (result == CU_SUCCESS && *before != state->context) result = lib.cuCtxSetCurrent(state->context);
    return result == CU_SUCCESS ? 0 : fail_cuda("cannot select the device", result, err);
}

static void leave(const struct state *state, cu_context *before) {
    if (before != state->context) (void)lib.cuCtxSetCurrent(before);
}

/* Rank 0 makes the id; the others take it from its piece, the first of the gathered ones. */
static int share_id(const struct comm_config *config, nccl_id *id, ty_error *err) {
    if (config->rank == 0) {
        int result = lib.ncclGetUniqueId(id);
        if (result != NCCL_SUCCESS) return fail_nccl("cannot make an id", result, err);
    }
    if (config->size == 1) return 0;
    CLEANUP(buffer_done) struct buffer all = {0};
    int rc = config->exchange.gather(config->exchange.context, "nccl", id, config->rank == 0 ? sizeof *id : 0,
                                     config->timeout, &all, err);
    if (rc < 0) return rc;
    if (all.size < COMM_PIECE_HEADER + sizeof *id)
        return ty_fail(err, TY_EPROTOCOL, "the id of rank 0 is cut short");
    memcpy(id, all.data + COMM_PIECE_HEADER, sizeof *id);
    return 0;
}

/* After a failure NCCL's own threads and kernels may wait for ever unless they are aborted. */
static int give_up(struct state *state, int code) {
    (void)lib.ncclCommAbort(TAKE(state->comm));
    return code;
}

/* Lets time pass: none at first, for short work, then naps of up to 100 us. False once the time-out is over. */
static bool pass_time(const struct state *state, nanoseconds begin) {
    nanoseconds elapsed = clock_monotonic() - begin;
    nanoseconds nap = elapsed / 16 < 100 * NS_PER_US ? elapsed / 16 : 100 * NS_PER_US;
    if (elapsed > 50 * NS_PER_US) (void)nanosleep(&(struct timespec){.tv_nsec = nap}, NULL);
    return elapsed <= state->timeout;
}

static int fail_timeout(struct state *state, ty_error *err) {
    return give_up(state, ty_fail(err, TY_ETIMEOUT, "NCCL: the peers did not go on within the time-out"));
}

/* NCCL_SUCCESS, NCCL_IN_PROGRESS or what went wrong in its threads. */
static int ask_nccl(const struct state *state) {
    int failure = NCCL_SUCCESS;
    int result = lib.ncclCommGetAsyncError(state->comm, &failure);
    return result != NCCL_SUCCESS ? result : failure;
}

/* Waits until NCCL has set up what was asked of it; `what` is told where it cannot. */
static int wait_ready(struct state *state, const char *what, ty_error *err) {
    nanoseconds begin = clock_monotonic();
    for (;;) {
        int result = ask_nccl(state);
        if (result == NCCL_SUCCESS) return 0;
        if (result != NCCL_IN_PROGRESS) return give_up(state, fail_nccl(what, result, err));
        if (!pass_time(state, begin)) return fail_timeout(state, err);
    }
}

/* Waits until the device has done what is queued. */
static int wait_done(struct state *state, ty_error *err) {
    nanoseconds begin = clock_monotonic();
    for (;;) {
        int result = lib.cuStreamQuery(CU_STREAM_LEGACY);
        if (result == CU_SUCCESS) return 0;
        if (result != CU_ERROR_NOT_READY) return give_up(state, fail_cuda("the device failed", result, err));
        result = ask_nccl(state);
        if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS)
            return give_up(state, fail_nccl("the call failed", result, err));
        if (!pass_time(state, begin)) return fail_timeout(state, err);
    }
}

/* The context of the thread's current device is borrowed, as the program's own library set it; without one the
 * primary context is retained and never released, since the program may have come to use it. */
static int create(const struct comm_config *config, void **state, ty_error *err) {
    static const char no_communicator[] = "cannot make the communicator";
    struct state made = {.timeout = config->timeout};
    struct nccl_config options = {.size = sizeof options, .magic = 0xcafebeef, .version = 21400, .blocking = 0};
    nccl_id id = {0};
    cu_context *before;
    /* The device to use: the thread's current one, else the worker's first. */
    int result = lib.cuCtxGetCurrent(&made.context);
    if (result != CU_SUCCESS || made.context == NULL) {
        cu_device device;
        result = lib.cuDeviceGet(&device, config->n_devices > 0 ? config->devices[0] : 0);
        if (result == CU_SUCCESS) result = lib.cuDevicePrimaryCtxRetain(&made.context, device);
    }
    if (result != CU_SUCCESS) return fail_cuda("cannot open the device", result, err);
    int rc = share_id(config, &id, err);
    if (rc == 0) rc = enter(&made, &before, err);
    if (rc < 0) return rc;
    result = lib.ncclCommInitRankConfig(&made.comm, config->size, id, config->rank, &options);
    if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS)
        rc = fail_nccl(no_communicator, result, err);
    else
        rc = wait_ready(&made, no_communicator, err);
    leave(&made, before);
    if (rc < 0) return rc;
    struct state *kept = malloc(sizeof *kept);
    if (kept == NULL) {
        (void)lib.ncclCommAbort(made.comm);
        return ty_fail_memory(err);
    }
    *kept = made;
    *state = kept;
    return 0;
}

static void destroy(void *state) {
    struct state *own = state;
    if (own->comm != NULL) (void)lib.ncclCommDestroy(own->comm);
    free(own);
}

/* The end of every call: `result` is what NCCL said when it was asked. */
static int finish(struct state *state, cu_context *before, int result, ty_error *err) {
    int rc = 0;
    if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS)
        rc = give_up(state, fail_nccl("cannot start the call", result, err));
    if (rc == 0) rc = wait_ready(state, "the call failed", err);
    if (rc == 0) rc = wait_done(state, err);
    leave(state, before);
    return rc;
}

/* ncclDataType_t and ncclRedOp_t. */
static const int types[] = {[TY_FLOAT32] = 7, [TY_FLOAT64] = 8,  [TY_INT32] = 2, [TY_INT64] = 4,
                            [TY_FLOAT16] = 6, [TY_BFLOAT16] = 9, [TY_INT8] = 0,  [TY_UINT8] = 1};
static const int operations[] = {[TY_SUM] = 0, [TY_PRODUCT] = 1, [TY_MAX] = 2, [TY_MIN] = 3, [TY_MEAN] = 4};

static int all_reduce(void *state, void *buffer, size_t count, ty_data_type type, ty_reduction reduction,
                      ty_error *err) {
    struct state *own = state;
    cu_context *before;
    int rc = enter(own, &before, err);
    if (rc < 0) return rc;
    int result = lib.ncclAllReduce(buffer, buffer, count, types[type], operations[reduction], own->comm,
                                   CU_STREAM_LEGACY);
    return finish(own, before, result, err);
}

static int broadcast(void *state, void *buffer, size_t count, ty_data_type type, int root, ty_error *err) {
    struct state *own = state;
    cu_context *before;
    int rc = enter(own, &before, err);
    if (rc < 0) return rc;
    int result = lib.ncclBroadcast(buffer, buffer, count, types[type], root, own->comm, CU_STREAM_LEGACY);
    return finish(own, before, result, err);
}

static int all_gather(void *state, const void *input, void *output, size_t count, ty_data_type type,
                      ty_error *err) {
    struct state *own = state;
    cu_context *before;
    int rc = enter(own, &before, err);
    if (rc < 0) return rc;
    int result = lib.ncclAllGather(input, output, count, types[type], own->comm, CU_STREAM_LEGACY);
    return finish(own, before, result, err);
}

static int reduce_scatter(void *state, const void *input, void *output, size_t count, ty_data_type type,
                          ty_reduction reduction, ty_error *err) {
    struct state *own = state;
    cu_context *before;
    int rc = enter(own, &before, err);
    if (rc < 0) return rc;
    int result = lib.ncclReduceScatter(input, output, count, types[type], operations[reduction], own->comm,
                                       CU_STREAM_LEGACY);
    return finish(own, before, result, err);
}

const struct comm_backend nccl_backend = {
    .version = base_build,
    .name = "nccl",
    .create = create,
    .destroy = destroy,
    .all_reduce = all_reduce,
    .broadcast = broadcast,
    .all_gather = all_gather,
    .reduce_scatter = reduce_scatter,
};
