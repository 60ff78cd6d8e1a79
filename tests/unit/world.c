/* The store of world.h answers gathers only: the piece of each rank under a key, to all when the last has come
 * or the first one's time is over. */
#include "world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PIECE_MAX = 16 << 10 };

struct request {
    char key[64];
    nanoseconds timeout;
    uint32_t size;
    char bytes[PIECE_MAX];
};

struct answer {
    int32_t code;
    uint32_t size; /* bytes that follow: the pieces, or the ranks that did not come */
};

struct store {
    int size;
    int sockets[WORLD_MAX];
    struct request waiting[WORLD_MAX];
    nanoseconds deadline[WORLD_MAX]; /* 0: not waiting */
};

static int gather(void *context, const char *key, const void *value, size_t size, nanoseconds timeout,
                  struct buffer *all, ty_error *err) {
    int fd = *(int *)context;
    struct request request = {.timeout = timeout, .size = (uint32_t)size};
    struct answer answer;
    (void)snprintf(request.key, sizeof request.key, "%s", key);
    memcpy(request.bytes, value, size);
    if (write(fd, &request, sizeof request) != sizeof request ||
        read(fd, &answer, sizeof answer) != sizeof answer)
        return ty_fail(err, TY_ECOMM, "the store is gone");
    char *to = buffer_reserve(all, answer.size);
    if (to == NULL || (answer.size > 0 && recv(fd, to, answer.size, MSG_WAITALL) != (ssize_t)answer.size))
        return ty_fail(err, TY_ECOMM, "the store is gone");
    if (answer.code != 0)
        return ty_fail(err, answer.code, "rank%s %.*s did not come",
                       memchr(to, ',', answer.size) != NULL ? "s" : "", (int)answer.size, to);
    all->size += answer.size;
    return 0;
}

static void answer_one(struct store *store, int rank, int code, const struct buffer *bytes) {
    struct answer answer = {.code = code, .size = (uint32_t)bytes->size};
    (void)!write(store->sockets[rank], &answer, sizeof answer);
    (void)!write(store->sockets[rank], bytes->data, bytes->size);
    store->deadline[rank] = 0;
}

static bool waits_for(const struct store *store, int rank, const char *key) {
    return store->deadline[rank] != 0 && strcmp(store->waiting[rank].key, key) == 0;
}

/* Answers all who wait for `key`: with the pieces, or with the names of those that are missing. */
static void answer_all(struct store *store, const char *key) {
    struct buffer pieces = {0}, missing = {0};
    for (int rank = 0; rank < store->size; rank++) {
        const struct request *piece = &store->waiting[rank];
        if (!waits_for(store, rank, key)) {
            buffer_printf(&missing, "%s%d", missing.size > 0 ? "," : "", rank);
            continue;
        }
        buffer_append(&pieces, &piece->size, sizeof piece->size);
        buffer_append(&pieces, piece->bytes, piece->size);
    }
    char name[64];
    (void)snprintf(name, sizeof name, "%s", key);
    for (int rank = 0; rank < store->size; rank++)
        if (waits_for(store, rank, name))
            answer_one(store, rank, missing.size > 0 ? TY_ETIMEOUT : 0, missing.size > 0 ? &missing : &pieces);
    buffer_done(&pieces);
    buffer_done(&missing);
}

static void take_request(struct store *store, int rank) {
    struct request *request = &store->waiting[rank];
    if (recv(store->sockets[rank], request, sizeof *request, MSG_WAITALL) != sizeof *request) {
        (void)close(store->sockets[rank]);
        store->sockets[rank] = -1;
        return;
    }
    store->deadline[rank] = clock_monotonic() + request->timeout;
    for (int other = 0; other < store->size; other++)
        if (!waits_for(store, other, request->key)) return;
    answer_all(store, request->key);
}

/* Serves until every rank has closed its end. */
static void serve(struct store *store) {
    for (;;) {
        struct pollfd fds[WORLD_MAX];
        int open = 0;
        for (int rank = 0; rank < store->size; rank++) {
            fds[rank] = (struct pollfd){.fd = store->sockets[rank], .events = POLLIN};
            open += store->sockets[rank] >= 0;
        }
        if (open == 0) return;
        (void)poll(fds, (nfds_t)store->size, 10);
        for (int rank = 0; rank < store->size; rank++)
            if (fds[rank].revents != 0) take_request(store, rank);
        for (int rank = 0; rank < store->size; rank++)
            if (store->deadline[rank] != 0 && clock_monotonic() > store->deadline[rank])
                answer_all(store, store->waiting[rank].key);
    }
}

static _Noreturn void be_rank(int rank, int size, int fd, nanoseconds timeout, world_function *function,
                              struct world_end *end) {
    struct comm_config config = {
        .rank = rank, .size = size, .timeout = timeout, .exchange = {.gather = gather, .context = &fd}};
    nanoseconds begin = clock_monotonic();
    end->code = function(&config, &end->error);
    end->elapsed = clock_monotonic() - begin;
    _exit(0);
}

const struct world_end *world_run(int size, nanoseconds timeout, world_function *function) {
    static struct world_end *ends;
    if (ends == NULL)
        ends = mmap(NULL, WORLD_MAX * sizeof *ends, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(ends, 0, WORLD_MAX * sizeof *ends);
    struct store *store = calloc(1, sizeof *store);
    pid_t pids[WORLD_MAX];
    store->size = size;
    for (int rank = 0; rank < size; rank++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) abort();
        pids[rank] = fork();
        if (pids[rank] == 0) {
            for (int other = 0; other < rank; other++)
                (void)close(store->sockets[other]);
            (void)close(pair[0]);
            be_rank(rank, size, pair[1], timeout, function, &ends[rank]);
        }
        (void)close(pair[1]);
        store->sockets[rank] = pair[0];
    }
    serve(store);
    for (int rank = 0; rank < size; rank++)
        (void)waitpid(pids[rank], &ends[rank].status, 0);
    free(store);
    return ends;
}

bool world_apart;

void world_place(struct comm_config *config) {
    static char name[16];
    (void)snprintf(name, sizeof name, "m%d", config->rank);
    if (world_apart) config->machine = name;
}

int world_set_apart(void **state) {
    (void)state;
    world_apart = true;
    return 0;
}

int world_set_together(void **state) {
    (void)state;
    world_apart = false;
    return 0;
}

void world_assert_well(int size, const struct world_end *ends) {
    for (int rank = 0; rank < size; rank++) {
        if (ends[rank].code != 0) print_error("rank %d: %s\n", rank, ends[rank].error.message);
        assert_int_equal(ends[rank].status, 0);
        assert_int_equal(ends[rank].code, 0);
    }
}

void world_assert_mentions(const char *text, const char *part) {
    if (strstr(text, part) == NULL) fail_msg("\"%s\" does not mention \"%s\"", text, part);
}
