/* Messages, calls that were started, groups and threads, all at once and in any order; who may connect. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "world.h"

#define LONG_ENOUGH (20 * NS_PER_S)

/* Fills a message of which every byte tells whose it is. */
static void fill(char *bytes, size_t n, int from, int to) {
    for (size_t i = 0; i < n; i++)
        bytes[i] = (char)(from * 31 + to * 7 + (int)(i % 251));
}

/* Every rank sends to every other, all at once, and receives in another order. */
static int exchange_messages(struct comm_config *config, ty_error *err) {
    static const size_t counts[] = {0, 1, 24, 4099, 3 << 20};
    ty_comm *comm;
    int rank = config->rank, size = config->size;
    world_place(config);
    int rc = comm_create(config, &comm, err);
    if (rc < 0) return rc;
    for (size_t c = 0; rc == 0 && c < ARRAY_SIZE(counts); c++) {
        size_t n = counts[c];
        CLEANUP_FREE char *out = malloc((size_t)size * n + 1), *in = calloc(1, (size_t)size * n + 2);
        CLEANUP_FREE char *wanted = malloc(n + 1);
        ty_request *sends[WORLD_MAX] = {0}, *receives[WORLD_MAX] = {0};
        int32_t ranks = 1;
        for (int peer = 0; rc == 0 && peer < size; peer++) {
            fill(out + (size_t)peer * n, n, rank, peer);
            if (peer != rank)
                rc = ty_send_start(comm, out + (size_t)peer * n, n, TY_INT8, peer, &sends[peer], err);
        }
        if (rc == 0) rc = ty_all_reduce(comm, &ranks, 1, TY_INT32, TY_SUM, err); /* messages under way */
        WORLD_CHECK(rc < 0 || ranks == size, err);
        for (int peer = size - 1; rc == 0 && peer >= 0; peer--) /* at odd places */
            if (peer != rank)
                rc = ty_receive_start(comm, in + 1 + (size_t)peer * n, n, TY_INT8, peer, &receives[peer], err);
        for (int peer = 0; rc == 0 && peer < size; peer++) {
            rc = ty_request_wait(&receives[peer], err);
            if (rc == 0) rc = ty_request_wait(&sends[peer], err);
            fill(wanted, n, peer, rank);
            WORLD_CHECK(rc < 0 || peer == rank || memcmp(wanted, in + 1 + (size_t)peer * n, n) == 0, err);
        }
    }
    if (rc == 0) comm_destroy(comm);
    return rc;
}

static void test_messages(void **state) {
    (void)state;
    for (int size = 2; size <= 8; size *= 2)
        world_assert_well(size, world_run(size, LONG_ENOUGH, exchange_messages));
}

/* Several collective calls of all sizes are under way while messages go and a group works. */
static int start_many(struct comm_config *config, ty_error *err) {
    enum { MANY = 20, LONG_COUNT = 200000 };
    ty_comm *comm, *half = NULL;
    ty_request *requests[MANY] = {0}, *barrier = NULL;
    float *numbers[MANY];
    int rank = config->rank, size = config->size;
    world_place(config);
    int rc = comm_create(config, &comm, err);
    if (rc == 0) rc = ty_comm_split(comm, rank % 2, -rank, &half, err);
    for (int i = 0; rc == 0 && i < MANY; i++) {
        size_t count = i % 3 == 0 ? 1 : i % 3 == 1 ? 3000 : LONG_COUNT;
        numbers[i] = malloc(count * sizeof(float));
        for (size_t k = 0; k < count; k++)
            numbers[i][k] = (float)(rank + i);
        rc = ty_all_reduce_start(comm, numbers[i], count, TY_FLOAT32, TY_SUM, &requests[i], err);
    }
    if (rc == 0) rc = ty_barrier_start(comm, &barrier, err);
    /* Even ranks wait for their group first, and others for the whole: each moves on while it waits
     * elsewhere. */
    double sum = rank;
    if (rc == 0 && rank % 2 == 0) rc = ty_all_reduce(half, &sum, 1, TY_FLOAT64, TY_SUM, err);
    while (rc == 0 && barrier != NULL)
        if ((rc = ty_request_test(&barrier, err)) > 0) rc = 0;
    if (rc == 0 && rank % 2 == 1) rc = ty_all_reduce(half, &sum, 1, TY_FLOAT64, TY_SUM, err);
    for (int i = MANY - 1; rc == 0 && i >= 0; i--) {
        rc = ty_request_wait(&requests[i], err);
        WORLD_CHECK(requests[i] == NULL, err);
        size_t last = (i % 3 == 0 ? 1 : i % 3 == 1 ? 3000 : LONG_COUNT) - 1;
        WORLD_CHECK(rc < 0 || numbers[i][last] == (float)(size * (size - 1) / 2 + size * i), err);
        free(numbers[i]);
    }
    if (rc < 0) return rc;
    double wanted = 0;
    for (int other = rank % 2; other < size; other += 2)
        wanted += other;
    WORLD_CHECK(sum == wanted, err);
    WORLD_CHECK(ty_request_wait(&barrier, err) == 0 && ty_request_test(NULL, err) == 1, err);
    ty_comm_free(&half);
    WORLD_CHECK(half == NULL, err);
    comm_destroy(comm);
    return 0;
}

static void test_started_calls(void **state) {
    (void)state;
    static const int sizes[] = {1, 2, 5, 8};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
        world_assert_well(sizes[i], world_run(sizes[i], LONG_ENOUGH, start_many));
}

/* Rank 0 is in no group; the others are ordered by falling key, in threes; a group splits again. */
static int split_in_groups(struct comm_config *config, ty_error *err) {
    ty_comm *comm, *group = NULL, *one = NULL;
    int rank = config->rank;
    int32_t all[WORLD_MAX] = {0}, own = rank;
    world_place(config);
    int rc = comm_create(config, &comm, err);
    for (int round = 0; rc == 0 && round < 3; round++) {
        rc = ty_comm_split(comm, rank == 0 ? -1 : (rank - 1) / 3, -rank, &group, err);
        if (rc < 0) return rc;
        WORLD_CHECK((group == NULL) == (rank == 0), err);
        if (group == NULL) continue;
        int first = (rank - 1) / 3 * 3 + 1, size = ty_comm_size(group);
        int last = first + 2 < config->size ? first + 2 : config->size - 1;
        WORLD_CHECK(size == last - first + 1 && ty_comm_rank(group) == last - rank, err);
        rc = ty_all_gather(group, &own, all, 1, TY_INT32, err);
        for (int i = 0; rc == 0 && i < size; i++)
            WORLD_CHECK(all[i] == last - i, err);
        if (rc == 0) rc = ty_comm_split(group, rank, 0, &one, err);
        if (rc == 0) rc = ty_all_reduce(one, &own, 1, TY_INT32, TY_SUM, err);
        WORLD_CHECK(rc < 0 || (ty_comm_size(one) == 1 && own == rank), err);
        ty_comm_free(&one);
        ty_comm_free(&group);
    }
    if (rc == 0) rc = ty_barrier(comm, err);
    if (rc == 0) comm_destroy(comm);
    return rc;
}

static void test_split(void **state) {
    (void)state;
    for (int size = 1; size <= 8; size++)
        world_assert_well(size, world_run(size, LONG_ENOUGH, split_in_groups));
}

/* Rank 0 sends in one order, the others ask in another one; one receive waits for a tag before anything
 * comes. */
static int pick_by_tag(struct comm_config *config, ty_error *err) {
    enum { LARGE = 300000 };
    static const int sent[] = {5, 3, 5, 0, INT32_MAX}, asked[] = {0, INT32_MAX, 5, 5, 3};
    static const int wanted[] = {3, 4, 0, 2, 1}; /* places in `sent` */
    ty_comm *comm;
    CLEANUP_FREE int32_t *numbers = calloc(LARGE, sizeof *numbers);
    ty_request *requests[ARRAY_SIZE(sent) * WORLD_MAX] = {0}, *early = NULL;
    int32_t places[ARRAY_SIZE(sent)], last = -1;
    size_t n = 0;
    world_place(config);
    int rc = comm_create(config, &comm, err);
    if (rc == 0 && config->rank > 0) rc = ty_receive_tagged_start(comm, &last, 1, TY_INT32, 0, 77, &early, err);
    for (int to = 1; rc == 0 && config->rank == 0 && to < config->size; to++) {
        for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(sent); i++) {
            places[i] = (int32_t)i;
            const int32_t *from = i == 0 ? numbers : &places[i];
            rc = ty_send_tagged_start(comm, from, i == 0 ? LARGE : 1, TY_INT32, to, sent[i], &requests[n++],
                                      err);
        }
        if (rc == 0) rc = ty_send_tagged(comm, &(int32_t){99}, 1, TY_INT32, to, 77, err);
    }
    for (size_t i = 0; rc == 0 && config->rank > 0 && i < ARRAY_SIZE(asked); i++) {
        numbers[0] = -1;
        rc = ty_receive_tagged(comm, numbers, wanted[i] == 0 ? LARGE : 1, TY_INT32, 0, asked[i], err);
        WORLD_CHECK(rc < 0 || numbers[0] == wanted[i], err);
    }
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = ty_request_wait(&requests[i], err);
    if (rc == 0) rc = ty_request_wait(&early, err);
    if (rc < 0) return rc;
    WORLD_CHECK(config->rank == 0 || last == 99, err);
    WORLD_CHECK(ty_send_tagged(comm, numbers, 1, TY_INT32, 0, -1, err) == TY_EUSAGE, err);
    WORLD_CHECK(strstr(err->message, "a tag is 0 or more") != NULL, err);
    comm_destroy(comm);
    return 0;
}

static void test_tags(void **state) {
    (void)state;
    world_assert_well(3, world_run(3, LONG_ENOUGH, pick_by_tag));
}

/* What the ranks told each other about their sockets: of each its size, and an address first. */
static struct buffer told_sockets;
static struct comm_exchange exchange_below;

static int listen_in(void *context, const char *key, const void *value, size_t size, nanoseconds timeout,
                     struct buffer *all, ty_error *err) {
    int rc = exchange_below.gather(context, key, value, size, timeout, all, err);
    if (rc == 0 && strcmp(key, "sockets") == 0) buffer_append(&told_sockets, all->data, all->size);
    return rc;
}

/* Rank 1 comes to rank 0 as a stranger first: silent, with a wrong secret, and again and again. */
static int let_strangers_in(struct comm_config *config, ty_error *err) {
    enum { STRANGERS = 60 };
    ty_comm *comm;
    int fds[STRANGERS], number = config->rank, other = -1, peer = 1 - config->rank;
    ty_request *request;
    world_place(config);
    exchange_below = config->exchange;
    config->exchange.gather = listen_in;
    int rc = comm_create(config, &comm, err);
    for (int i = 0; rc == 0 && config->rank == 1 && i < STRANGERS; i++) {
        struct sockaddr_in address;
        memcpy(&address, told_sockets.data + 4, sizeof address);
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        WORLD_CHECK(connect(fds[i], (struct sockaddr *)&address, sizeof address) == 0, err);
        WORLD_CHECK(i % 2 == 0 || send(fds[i], "\1\0\0\0a secret that is none\1\0\0\0", 30, MSG_NOSIGNAL) == 30,
                    err);
    }
    if (rc == 0) rc = ty_barrier(comm, err);
    for (int i = 0; rc == 0 && i < 3; i++) {
        rc = ty_send_start(comm, &number, 1, TY_INT32, peer, &request, err);
        if (rc == 0) rc = ty_receive(comm, &other, 1, TY_INT32, peer, err);
        if (rc == 0) rc = ty_request_wait(&request, err);
        WORLD_CHECK(rc < 0 || other == peer, err);
    }
    for (int i = 0; rc == 0 && config->rank == 1 && i < STRANGERS; i++)
        (void)close(fds[i]);
    if (rc == 0) comm_destroy(comm);
    buffer_done(&told_sockets);
    return rc;
}

static void test_strangers_are_sent_away(void **state) {
    (void)state;
    world_assert_well(2, world_run(2, LONG_ENOUGH, let_strangers_in));
}

/* Rank 0 waits for a message that comes late, and has no descriptor for the stranger who knocks meanwhile. */
static int let_nobody_in(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
    int number = config->rank, other = -1, peer = 1 - config->rank, stranger = -1;
    struct rlimit before;
    world_place(config);
    exchange_below = config->exchange;
    config->exchange.gather = listen_in;
    int rc = comm_create(config, &comm, err);
    for (int from = 0; rc == 0 && from < 2; from++) /* connections, both ways */
        rc = from == config->rank ? ty_send(comm, &number, 1, TY_INT32, peer, err)
                                  : ty_receive(comm, &other, 1, TY_INT32, peer, err);
    if (rc == 0 && config->rank == 1) {
        struct sockaddr_in address;
        memcpy(&address, told_sockets.data + 4, sizeof address);
        stranger = socket(AF_INET, SOCK_STREAM, 0);
        WORLD_CHECK(connect(stranger, (struct sockaddr *)&address, sizeof address) == 0, err);
    }
    if (rc == 0) rc = ty_barrier(comm, err);
    WORLD_CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0, err);
    int next = dup(STDIN_FILENO);
    (void)close(next);
    const struct rlimit none = {.rlim_cur = (rlim_t)next, .rlim_max = before.rlim_max};
    if (rc == 0 && config->rank == 0) {
        nanoseconds begun = clock_thread();
        WORLD_CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0, err);
        rc = ty_receive(comm, &other, 1, TY_INT32, peer, err);
        WORLD_CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0, err);
        WORLD_CHECK(clock_thread() - begun < NS_PER_S / 10, err); /* it sleeps */
    } else if (rc == 0) {
        (void)usleep(600000);
        rc = ty_send(comm, &number, 1, TY_INT32, peer, err);
        (void)close(stranger);
    }
    if (rc == 0) comm_destroy(comm);
    buffer_done(&told_sockets);
    return rc;
}

static void test_no_descriptor_for_strangers(void **state) {
    (void)state;
    world_assert_well(2, world_run(2, LONG_ENOUGH, let_nobody_in));
}

/* One thread waits for a message that comes late, and the other works in a communicator of its own
 * meanwhile. */
static int32_t late_number;

static void *receive_late(void *comm) {
    return ty_receive(comm, &late_number, 1, TY_INT32, 0, NULL) == 0 ? comm : NULL;
}

static int use_two_threads(struct comm_config *config, ty_error *err) {
    ty_comm *comm, *second = NULL;
    pthread_t thread;
    void *result = config;
    int32_t sum = 1;
    world_place(config);
    int rc = comm_create(config, &comm, err);
    if (rc == 0) rc = ty_comm_split(comm, 0, 0, &second, err);
    if (rc == 0 && config->rank == 1) (void)pthread_create(&thread, NULL, receive_late, comm);
    for (int i = 0; rc == 0 && i < 10; i++)
        rc = ty_all_reduce(second, &sum, 1, TY_INT32, TY_SUM, err);
    if (rc == 0 && config->rank == 0) rc = ty_send(comm, &sum, 1, TY_INT32, 1, err);
    if (rc == 0 && config->rank == 1) (void)pthread_join(thread, &result);
    if (rc < 0) return rc;
    WORLD_CHECK(sum == 1024 && result != NULL && (config->rank == 0 || late_number == 1024), err);
    rc = ty_barrier(comm, err);
    ty_comm_free(&second);
    comm_destroy(comm);
    return rc;
}

static void test_threads_with_communicators_of_their_own(void **state) {
    (void)state;
    world_assert_well(2, world_run(2, LONG_ENOUGH, use_two_threads));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TOGETHER_AND_APART(test_messages),
        TOGETHER_AND_APART(test_started_calls),
        TOGETHER_AND_APART(test_split),
        TOGETHER_AND_APART(test_tags),
        {"test_strangers_are_sent_away", test_strangers_are_sent_away, world_set_apart, world_set_together,
         NULL},
        {"test_no_descriptor_for_strangers", test_no_descriptor_for_strangers, world_set_apart,
         world_set_together, NULL},
        TOGETHER_AND_APART(test_threads_with_communicators_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
