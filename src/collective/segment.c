/* Makes the memory that ranks share, and waits in it: looks, lets others run, sleeps on a bell, and now and
 * then asks whether those that it waits for still live. The calls that are made in the memory are in rounds.c
 * and messages.c; here is who may sleep, and who wakes whom. */
#include "collective/segment.h"

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
#include "collective/comm.h"

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
    /* A file that anybody could cut short under the mappings of the others would end them all by SIGBUS: it is
     * sealed. Where there are no seals its pages are at least there, also when the file system fills up. */
    off_t size = (off_t)segment->map_size;
    if (ftruncate(fd, size) == 0 && (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0 ||
                                     posix_fallocate(fd, 0, size) == 0)) /* of a file system that may be full */
        return fd;
    (void)close(fd);
    return -1;
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

/* Every rank says whether it has the memory: 1 where all have, 0 where one has not and all go another way. */
static int attach(const struct comm_config *config, struct segment *segment, const struct whereabouts *places,
                  int own_fd, ty_error *err) {
    CLEANUP_FREE char *answers = malloc((size_t)segment->size);
    if (answers == NULL) return ty_fail_memory(err);
    segment->map = map_memory(segment, &places[0], own_fd);
    char attached = segment->map != NULL;
    int rc = comm_gather_alike(config, "segment", &attached, 1, answers, err);
    for (int i = 0; rc == 0 && i < segment->size; i++) {
        segment->comrades[i] = (struct comrade){.pid = places[i].pid, .started = places[i].started};
        if (answers[i] != 1) attached = 0;
    }
    return rc < 0 ? rc : attached;
}

/* The bell counts: a rank that has read it, and is about to sleep when it is rung, does not sleep, as the
 * kernel compares. */
static void wake(struct seat *seat) {
    (void)atomic_fetch_add(&seat->bell, 1);
    (void)syscall(SYS_futex, &seat->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Wakes the rank if it sleeps and waits for this one. */
static void ring(struct segment *segment, int rank) {
    struct seat *seat = &segment->seats[rank];
    uint32_t awaits = atomic_load(&seat->awaits);
    if (awaits == AWAITS_ANY || awaits == (uint32_t)(AWAITS_RANK + segment->rank)) wake(seat);
}

void segment_ring_all(struct segment *segment) {
    for (int rank = 0; rank < segment->size; rank++)
        if (rank != segment->rank) ring(segment, rank);
}

static struct byte_stream *stream_of(const struct segment *segment, int from, int to) {
    size_t place = (size_t)from * (size_t)segment->size + (size_t)to;
    return (struct byte_stream *)(segment->map + segment->streams_at +
                                  place * (sizeof(struct byte_stream) + segment->stream_bytes));
}

/* Its room is used round and round. */
static size_t write_stream(void *context, int to, const void *bytes, size_t size) {
    struct segment *segment = context;
    struct byte_stream *stream = stream_of(segment, segment->rank, to);
    /* The head is this rank's alone. It moves behind the bytes, so that the reader never finds room that is not
     * filled yet; the tail is looked at first, so that nothing is written over that is still to be read. */
    uint64_t head = atomic_load_explicit(&stream->head, memory_order_relaxed);
    size_t room = segment->stream_bytes - (size_t)(head - atomic_load(&stream->tail));
    if (size > room) size = room;
    if (size == 0) return 0;
    size_t begin = head % segment->stream_bytes, first = segment->stream_bytes - begin;
    if (first > size) first = size;
    memcpy((char *)(stream + 1) + begin, bytes, first);
    memcpy(stream + 1, (const char *)bytes + first, size - first);
    atomic_store(&stream->head, head + size);
    ring(segment, to);
    return size;
}

static size_t read_stream(void *context, int from, void *bytes, size_t size) {
    struct segment *segment = context;
    struct byte_stream *stream = stream_of(segment, from, segment->rank);
    uint64_t tail = atomic_load_explicit(&stream->tail, memory_order_relaxed);
    size_t ready = (size_t)(atomic_load(&stream->head) - tail);
    if (size > ready) size = ready;
    if (size == 0) return 0;
    size_t begin = tail % segment->stream_bytes, first = segment->stream_bytes - begin;
    if (first > size) first = size;
    memcpy(bytes, (const char *)(stream + 1) + begin, first);
    memcpy((char *)bytes + first, stream + 1, size - first);
    atomic_store(&stream->tail, tail + size);
    ring(segment, from);
    return size;
}

static const struct message_streams streams = {.write = write_stream, .read = read_stream};

/* Says for a rank that it takes part no longer, once, and wakes all who may wait for it. */
static void mark_left(struct segment *segment, int rank, int code) {
    /* The first reason stands: several ranks may find at once that one is dead, and it may be leaving just now.
     */
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&segment->seats[rank].left, &none, (uint32_t)-code)) return;
    for (int other = 0; other < segment->size; other++)
        wake(&segment->seats[other]);
}

/* The number of a failed message's call wraps around to 0, which names no call: messages are known to two ranks
 * alone. */
static void leave(struct way *way, int code) {
    struct segment *segment = (struct segment *)way;
    struct seat *seat = &segment->seats[segment->rank];
    if (atomic_load(&seat->left) != 0) return;
    /* Written before `left`, which the others look at first. */
    if (code != 0 && way->failed != NULL) {
        seat->failed = (uint32_t)way->failed->call.number + 1;
        seat->suspect = way->vote.suspect;
    }
    mark_left(segment, segment->rank, code != 0 ? code : TY_ECOMM);
}

static void destroy(struct way *way) {
    struct segment *segment = (struct segment *)way;
    if (segment->seats != NULL) leave(way, 0);
    if (segment->map != NULL) (void)munmap(segment->map, segment->map_size);
    messages_done(&segment->messages);
    free(segment->comrades);
    free(segment);
}

static void progress(struct way *way) {
    struct segment *segment = (struct segment *)way;
    while (segment->calls.first != NULL && way->failed == NULL && rounds_advance(segment, segment->calls.first))
        request_list_take(&segment->calls)->done = true;
    messages_progress(&segment->messages);
}

static void begin(struct way *way, struct ty_request *request) {
    struct segment *segment = (struct segment *)way;
    if (comm_is_message(&request->call))
        messages_begin(&segment->messages, request);
    else
        request_list_append(&segment->calls, request);
    progress(way);
}

static bool is_idle(struct way *way) {
    const struct segment *segment = (const struct segment *)way;
    return segment->messages.under_way == 0 && segment->calls.first == NULL;
}

/* The request that waits for the rank, or NULL. */
static struct ty_request *waiting_for(const struct segment *segment, int rank) {
    const struct ty_request *call = segment->calls.first;
    if (rank == segment->rank) return NULL;
    if (call != NULL && rounds_await(segment, call, rank)) return segment->calls.first;
    return messages_waiting_for(&segment->messages, rank);
}

/* By the time of its start as well: the number may be another process's by now. */
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
    for (int rank = 0; rank < segment->size && segment->way.failed == NULL; rank++) {
        if (waiting_for(segment, rank) == NULL) continue;
        if (ask_the_kernel && !is_alive(&segment->comrades[rank])) mark_left(segment, rank, TY_ECOMM);
        int code = -(int)atomic_load(&segment->seats[rank].left);
        if (code == 0) continue;
        progress(&segment->way);
        struct ty_request *request = waiting_for(segment, rank);
        if (request != NULL && segment->way.failed == NULL)
            way_break(&segment->way, request, code == TY_ETIMEOUT ? code : TY_ECOMM, rank);
    }
}

/* Who is to wake this rank. */
static uint32_t awaited(const struct segment *segment) {
    const struct ty_request *call = segment->calls.first;
    return segment->messages.under_way == 0 && call != NULL ? AWAITS_RANK + (uint32_t)call->cursor : AWAITS_ANY;
}

static void missing(const struct way *way, struct buffer *out) {
    const struct segment *segment = (const struct segment *)way;
    size_t before = out->size, n = 0;
    CLEANUP(buffer_done) struct buffer ranks = {0};
    for (int rank = 0; rank < segment->size; rank++)
        if (waiting_for(segment, rank) == segment->way.failed && rank != segment->rank)
            buffer_printf(&ranks, "%s%d", n++ > 0 ? "," : "", rank);
    if (n > 0) buffer_printf(out, "rank%s %s did not come", n > 1 ? "s" : "", ranks.data);
    if (ranks.failed) out->size = before;
}

static void give_up_waiting(struct segment *segment, struct ty_request *request) {
    for (int rank = 0; rank < segment->size; rank++)
        if (waiting_for(segment, rank) != NULL) {
            way_break(&segment->way, waiting_for(segment, rank), TY_ETIMEOUT, rank);
            return;
        }
    way_break(&segment->way, request, TY_ETIMEOUT, segment->rank);
}

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool wait_until_done(struct way *way, struct ty_request *request, bool (*elsewhere)(void)) {
    struct segment *segment = (struct segment *)way;
    for (int i = 0; i < segment->spins; i++) {
        if (request->done || way->failed != NULL) return request->done;
        relax();
        progress(way);
    }
    nanoseconds begin = clock_monotonic(), looked = begin;
    for (;;) {
        bool others = elsewhere();
        progress(way);
        if (request->done || way->failed != NULL) return request->done;
        nanoseconds now = clock_monotonic();
        bool ask = now - looked >= NAP;
        if (ask) looked = now;
        look_around(segment, ask);
        if (now - begin < YIELD_FOR) {
            (void)sched_yield();
        } else {
            /* Sleeps until a rank that is waited for rings. What it did before it could see that this rank
             * sleeps is found by looking once more. */
            struct seat *seat = &segment->seats[segment->rank];
            uint32_t bell = atomic_load(&seat->bell), whom = awaited(segment);
            atomic_store(&seat->awaits, whom);
            progress(way);
            const struct timespec nap = {.tv_nsec = others ? SHORT_NAP : NAP};
            /* What moved may have changed for whom this rank waits, and only that one rings. */
            if (!request->done && way->failed == NULL && awaited(segment) == whom)
                (void)syscall(SYS_futex, &seat->bell, FUTEX_WAIT, bell, &nap, NULL, 0);
            atomic_store(&seat->awaits, 0);
        }
        if (now - begin > segment->timeout && !request->done && way->failed == NULL)
            give_up_waiting(segment, request);
    }
}

static const struct way_operations operations = {
    .names_missing = true,
    .begin = begin,
    .progress = progress,
    .wait = wait_until_done,
    .is_idle = is_idle,
    .missing = missing,
    .leave = leave,
    .destroy = destroy,
};

/* Sizes follow from the number of ranks, so that all lay the memory out alike without a word about it. Pages
 * that nobody writes take no memory: the streams of many ranks are mostly such. */
static struct segment *allocate(const struct comm_config *config) {
    struct segment *made = calloc(1, sizeof *made);
    if (made == NULL) return NULL;
    *made = (struct segment){.way.operations = &operations,
                             .rank = config->rank,
                             .size = config->size,
                             .timeout = config->timeout,
                             .messages = {.rank = config->rank,
                                          .size = config->size,
                                          .streams = &streams,
                                          .context = made,
                                          .way = &made->way}};
    made->comrades = calloc((size_t)made->size, sizeof *made->comrades);
    if (messages_init(&made->messages, NULL) < 0 || made->comrades == NULL) {
        destroy(&made->way);
        return NULL;
    }
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0)
        made->spins = CPU_COUNT(&cpus) >= made->size ? 2000 : 20; /* looking pays where every rank has a core */
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

/* All ranks decide by the same answers, and so make the same exchanges. The descriptor of rank 0 stays open
 * until all have mapped the memory, or have said that they cannot. */
int segment_create(const struct comm_config *config, struct way **way, ty_error *err) {
    CLEANUP_FREE struct whereabouts *places = calloc((size_t)config->size, sizeof *places);
    struct whereabouts own = {0};
    struct segment *made = allocate(config);
    if (made == NULL || places == NULL) {
        if (made != NULL) destroy(&made->way);
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
    int rc = comm_gather_alike(config, "places", &own, sizeof own, places, err);
    bool together = rc == 0 && places[0].fd >= 0 && places[0].started != 0;
    for (int i = 0; i < config->size && together; i++)
        together = strcmp(places[i].machine, places[0].machine) == 0 && places[i].user == places[0].user;
    if (together) rc = attach(config, made, places, fd, err);
    if (rc <= 0) {
        destroy(&made->way);
        return rc;
    }
    made->seats = (struct seat *)made->map;
    *way = &made->way;
    return 0;
}
