/* Makes the memory that ranks share, and waits in it. */
#include "collective/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/kernel.h"
#include "base/process.h"

enum {
    SLOT_MAX = 1 << 20,
    SLOT_MIN = 64 << 10,
    SLOTS_TOGETHER = 16 << 20, /* about, where there are many ranks */
    STREAM_MAX = 256 << 10,
    STREAM_MIN = 4 << 10,
    STREAMS_TOGETHER = 64 << 20,
};

#define YIELD_FOR (500 * NS_PER_US) /* others are let run, before this rank sleeps */
#define NAP (50 * NS_PER_MS)        /* at most, between two looks whether the awaited ranks live */
#define SHORT_NAP NS_PER_MS         /* while other communicators have something under way */

/* Where a rank is, and where rank 0's memory is to be found. */
struct whereabouts {
    char machine[80];
    uint32_t user;
    int32_t pid, fd;
    uint64_t started, device, inode;
};

static size_t between(size_t least, size_t value, size_t most) {
    return value < least ? least : value > most ? most : value;
}

static size_t round_up(size_t size) {
    return (size + 4095) / 4096 * 4096;
}

struct byte_stream *segment_stream(const struct segment *segment, int from, int to) {
    size_t place = (size_t)from * (size_t)segment->size + (size_t)to;
    return (struct byte_stream *)(segment->map + segment->streams_at +
                                  place * (sizeof(struct byte_stream) + segment->stream_bytes));
}

/* The machine, as processes that find each other in /proc name it. */
static void name_machine(const char *given, struct whereabouts *place) {
    CLEANUP(buffer_done) struct buffer boot = {0};
    struct stat space = {0};
    if (given == NULL) {
        (void)file_read("/proc/sys/kernel/random/boot_id", 4096, &boot, NULL);
        (void)stat("/proc/self/ns/pid", &space);
    }
    (void)snprintf(place->machine, sizeof place->machine, "%.40s/%" PRIu64,
                   given != NULL    ? given
                   : boot.size > 36 ? boot.data
                                    : "",
                   (uint64_t)space.st_ino);
}

/* Rank 0's memory; -1 where none can be had, so that all do without. */
static int open_memory(const struct segment *segment) {
    int fd = kernel_memory_file("trainyard-collective");
    if (fd < 0) return -1;
    off_t size = (off_t)segment->map_size;
    if (ftruncate(fd, size) == 0 && (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0 ||
                                     posix_fallocate(fd, 0, size) == 0)) /* of a file system that may be full */
        return fd;
    (void)close(fd);
    return -1;
}

static int gather(const struct comm_config *config, const char *key, const void *own, size_t size, void *pieces,
                  ty_error *err) {
    CLEANUP(buffer_done) struct buffer all = {0};
    int rc = config->exchange.gather(config->exchange.context, key, own, size, config->timeout, &all, err);
    if (rc < 0) return rc;
    /* Each piece is its size in four bytes, and so many bytes. */
    if (all.size != (size_t)config->size * (4 + size))
        return ty_fail(err, TY_EPROTOCOL, "the ranks' answers about %s are not of this build", key);
    for (size_t i = 0; i < (size_t)config->size; i++) {
        const unsigned char *piece = (const unsigned char *)all.data + i * (4 + size);
        if ((piece[0] | piece[1] << 8 | piece[2] << 16 | (size_t)piece[3] << 24) != size)
            return ty_fail(err, TY_EPROTOCOL, "the ranks' answers about %s are not of this build", key);
        memcpy((char *)pieces + i * size, piece + 4, size);
    }
    return 0;
}

static bool are_together(const struct whereabouts *places, int n) {
    for (int i = 0; i < n; i++)
        if (strcmp(places[i].machine, places[0].machine) != 0 || places[i].user != places[0].user) return false;
    return places[0].fd >= 0 && places[0].started != 0;
}

/* NULL where it cannot be opened: the others are told so. */
static char *map_memory(const struct segment *segment, const struct whereabouts *first, int own_fd) {
    char path[64];
    struct stat file;
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", first->pid, first->fd);
    CLEANUP_FD int fd = own_fd >= 0 ? fcntl(own_fd, F_DUPFD_CLOEXEC, 3) : open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &file) < 0 || file.st_dev != first->device || file.st_ino != first->inode)
        return NULL;
    void *map = mmap(NULL, segment->map_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return map != MAP_FAILED ? map : NULL;
}

/* Looking pays where every rank has a core of its own. */
static int choose_spins(int ranks) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    if (sched_getaffinity(0, sizeof cpus, &cpus) < 0) return 0;
    return CPU_COUNT(&cpus) >= ranks ? 2000 : 20;
}

static int attach(const struct comm_config *config, struct segment *segment, const struct whereabouts *places,
                  int own_fd, ty_error *err) {
    CLEANUP_FREE char *answers = malloc((size_t)segment->size);
    if (answers == NULL) return ty_fail_memory(err);
    segment->map = map_memory(segment, &places[0], own_fd);
    char attached = segment->map != NULL;
    int rc = gather(config, "segment", &attached, 1, answers, err);
    for (int i = 0; rc == 0 && i < segment->size; i++) {
        segment->comrades[i] = (struct comrade){.pid = places[i].pid, .started = places[i].started};
        if (answers[i] != 1) attached = 0;
    }
    return rc < 0 ? rc : attached;
}

static struct segment *allocate(const struct comm_config *config) {
    struct segment *made = calloc(1, sizeof *made);
    if (made == NULL) return NULL;
    *made = (struct segment){.rank = config->rank, .size = config->size, .timeout = config->timeout};
    made->comrades = calloc((size_t)made->size, sizeof *made->comrades);
    made->sends = calloc((size_t)made->size * 2, sizeof *made->sends);
    if (made->comrades == NULL || made->sends == NULL) {
        segment_destroy(made);
        return NULL;
    }
    made->receives = made->sends + made->size;
    made->spins = choose_spins(made->size);
    /* The same in all ranks. */
    size_t n = (size_t)made->size;
    made->slot_bytes = round_up(between(SLOT_MIN, SLOTS_TOGETHER / n, SLOT_MAX));
    made->stream_bytes = between(STREAM_MIN, STREAMS_TOGETHER / (n * n), STREAM_MAX) / CACHE_LINE * CACHE_LINE;
    made->small_at = round_up(n * sizeof(struct seat));
    made->slots_at = made->small_at + n * 2 * SMALL_BYTES;
    made->results_at = made->slots_at + n * 2 * made->slot_bytes;
    made->streams_at = made->results_at + 2 * made->slot_bytes;
    made->map_size = round_up(made->streams_at + n * n * (sizeof(struct byte_stream) + made->stream_bytes));
    return made;
}

int segment_create(const struct comm_config *config, struct segment **segment, ty_error *err) {
    CLEANUP_FREE struct whereabouts *places = calloc((size_t)config->size, sizeof *places);
    struct whereabouts own = {0};
    struct segment *made = allocate(config);
    if (made == NULL || places == NULL) {
        segment_destroy(made);
        return ty_fail_memory(err);
    }
    CLEANUP_FD int fd = config->rank == 0 ? open_memory(made) : -1;
    struct process process = {0};
    struct stat file = {0};
    name_machine(config->machine, &own);
    (void)process_read(getpid(), &process);
    if (fd >= 0) (void)fstat(fd, &file);
    own.user = geteuid();
    own.pid = getpid();
    own.fd = fd;
    own.started = process.started;
    own.device = file.st_dev;
    own.inode = file.st_ino;
    int rc = gather(config, "places", &own, sizeof own, places, err);
    if (rc == 0 && are_together(places, config->size)) rc = attach(config, made, places, fd, err);
    if (rc <= 0) {
        segment_destroy(made);
        return rc;
    }
    made->seats = (struct seat *)made->map;
    *segment = made;
    return 0;
}

static void futex_wait(_Atomic uint32_t *word, uint32_t value, nanoseconds limit) {
    struct timespec time = {.tv_sec = limit / NS_PER_S, .tv_nsec = limit % NS_PER_S};
    (void)syscall(SYS_futex, word, FUTEX_WAIT, value, &time, NULL, 0);
}

static void wake(struct seat *seat) {
    (void)atomic_fetch_add(&seat->bell, 1);
    (void)syscall(SYS_futex, &seat->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void segment_ring(struct segment *segment, int rank) {
    struct seat *seat = &segment->seats[rank];
    uint32_t awaits = atomic_load(&seat->awaits);
    if (awaits == AWAITS_ANY || awaits == (uint32_t)(AWAITS_RANK + segment->rank)) wake(seat);
}

void segment_ring_all(struct segment *segment) {
    for (int rank = 0; rank < segment->size; rank++)
        if (rank != segment->rank) segment_ring(segment, rank);
}

/* Says for a rank that it takes part no longer, once, and wakes all who may wait for it. */
static void mark_left(struct segment *segment, int rank, int code) {
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&segment->seats[rank].left, &none, (uint32_t)-code)) return;
    for (int other = 0; other < segment->size; other++)
        wake(&segment->seats[other]);
}

void segment_leave(struct segment *segment, int code) {
    struct seat *seat = &segment->seats[segment->rank];
    if (atomic_load(&seat->left) != 0) return;
    if (code != 0 && segment->failed != NULL) {
        seat->failed = (uint32_t)segment->failed->call.number + 1;
        seat->suspect = segment->vote.suspect;
    }
    mark_left(segment, segment->rank, code != 0 ? code : TY_ECOMM);
}

void segment_destroy(struct segment *segment) {
    if (segment == NULL) return;
    if (segment->seats != NULL) segment_leave(segment, 0);
    if (segment->map != NULL) (void)munmap(segment->map, segment->map_size);
    free(segment->comrades);
    free(segment->sends);
    free(segment);
}

void segment_break(struct segment *segment, struct ty_request *request, int failure, int suspect) {
    segment->failed = request;
    segment->vote = (struct comm_vote){.failure = failure, .suspect = suspect};
}

static struct request_list *queue_of(struct segment *segment, const struct ty_request *request) {
    if (request->call.operation == COMM_SEND) return &segment->sends[request->call.root];
    if (request->call.operation == COMM_RECEIVE) return &segment->receives[request->call.root];
    return &segment->calls;
}

void segment_begin(struct segment *segment, struct ty_request *request) {
    struct request_list *queue = queue_of(segment, request);
    if (queue->first == NULL)
        queue->first = request;
    else
        queue->last->next = request;
    queue->last = request;
    segment->messages += queue != &segment->calls;
    segment_progress(segment);
}

bool segment_is_idle(const struct segment *segment) {
    return segment->messages == 0 && segment->calls.first == NULL;
}

static void advance_queue(struct segment *segment, struct request_list *queue,
                          bool (*advance)(struct segment *, struct ty_request *)) {
    while (queue->first != NULL && segment->failed == NULL && advance(segment, queue->first)) {
        struct ty_request *done = queue->first;
        queue->first = done->next;
        done->done = true;
        segment->messages -= queue != &segment->calls;
    }
}

void segment_progress(struct segment *segment) {
    advance_queue(segment, &segment->calls, rounds_advance);
    for (int peer = 0; peer < segment->size && segment->messages > 0; peer++) {
        advance_queue(segment, &segment->sends[peer], message_advance);
        advance_queue(segment, &segment->receives[peer], message_advance);
    }
}

/* The request that waits for the rank, or NULL. */
static struct ty_request *waiting_for(const struct segment *segment, int rank) {
    const struct ty_request *call = segment->calls.first;
    if (rank == segment->rank) return NULL;
    if (call != NULL && rounds_await(segment, call, rank)) return segment->calls.first;
    return segment->sends[rank].first != NULL ? segment->sends[rank].first : segment->receives[rank].first;
}

static bool is_alive(const struct comrade *comrade) {
    struct process now;
    if (!process_read(comrade->pid, &now) || now.started != comrade->started) return false;
    if (now.state != 'Z' && now.state != 'X') return true;
    CLEANUP_FD int held = kernel_hold(comrade->pid); /* its first thread may have ended before the others */
    return !kernel_await(held, comrade->pid, 0);
}

/* Finds out whether a rank that is waited for has left. What it did before counts: so it is looked at again
 * after it was seen to have left. */
static void look_around(struct segment *segment, bool ask_the_kernel) {
    for (int rank = 0; rank < segment->size && segment->failed == NULL; rank++) {
        if (waiting_for(segment, rank) == NULL) continue;
        if (ask_the_kernel && !is_alive(&segment->comrades[rank])) mark_left(segment, rank, TY_ECOMM);
        int code = -(int)atomic_load(&segment->seats[rank].left);
        if (code == 0) continue;
        segment_progress(segment);
        struct ty_request *request = waiting_for(segment, rank);
        if (request != NULL && segment->failed == NULL)
            segment_break(segment, request, code == TY_ETIMEOUT ? code : TY_ECOMM, rank);
    }
}

/* Who is to wake this rank. */
static uint32_t awaited(const struct segment *segment) {
    const struct ty_request *call = segment->calls.first;
    return segment->messages == 0 && call != NULL ? AWAITS_RANK + (uint32_t)call->cursor : AWAITS_ANY;
}

void segment_missing(const struct segment *segment, struct buffer *out) {
    size_t before = out->size, n = 0;
    CLEANUP(buffer_done) struct buffer ranks = {0};
    for (int rank = 0; rank < segment->size; rank++)
        if (waiting_for(segment, rank) == segment->failed && rank != segment->rank)
            buffer_printf(&ranks, "%s%d", n++ > 0 ? "," : "", rank);
    if (n > 0) buffer_printf(out, "rank%s %s did not come", n > 1 ? "s" : "", ranks.data);
    if (ranks.failed) out->size = before;
}

static void give_up_waiting(struct segment *segment, struct ty_request *request) {
    for (int rank = 0; rank < segment->size; rank++)
        if (waiting_for(segment, rank) != NULL) {
            segment_break(segment, waiting_for(segment, rank), TY_ETIMEOUT, rank);
            return;
        }
    segment_break(segment, request, TY_ETIMEOUT, segment->rank);
}

static bool wait_long(struct segment *segment, struct ty_request *request, bool (*elsewhere)(void)) {
    nanoseconds begin = clock_monotonic(), looked = begin;
    for (;;) {
        bool others = elsewhere();
        segment_progress(segment);
        if (request->done || segment->failed != NULL) return request->done;
        nanoseconds now = clock_monotonic();
        bool ask = now - looked >= NAP;
        if (ask) looked = now;
        look_around(segment, ask);
        if (now - begin < YIELD_FOR)
            (void)sched_yield();
        else {
            /* Sleeps until a rank that is waited for rings. What it did before it could see that this rank
             * sleeps is found by looking once more. */
            struct seat *seat = &segment->seats[segment->rank];
            uint32_t bell = atomic_load(&seat->bell), whom = awaited(segment);
            atomic_store(&seat->awaits, whom);
            segment_progress(segment);
            if (!request->done && segment->failed == NULL && awaited(segment) == whom)
                futex_wait(&seat->bell, bell, others ? SHORT_NAP : NAP);
            atomic_store(&seat->awaits, 0);
        }
        if (now - begin > segment->timeout && !request->done && segment->failed == NULL)
            give_up_waiting(segment, request);
    }
}

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

bool segment_wait(struct segment *segment, struct ty_request *request, bool (*elsewhere)(void)) {
    for (int i = 0; i < segment->spins; i++) {
        if (request->done || segment->failed != NULL) return request->done;
        relax();
        segment_progress(segment);
    }
    return wait_long(segment, request, elsewhere);
}
