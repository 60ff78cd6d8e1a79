/* The way between ranks that share no memory. Messages go over sockets.c, and move in calls. Collective calls
 * go through Gloo, whose calls return when they are done: one that was started, or behind which messages or
 * other communicators must go on, is made by a thread, the carrier, in the order of the calls. */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/cleanup.h"
#include "base/kernel.h"
#include "base/module.h"
#include "collective/comm.h"
#include "collective/sockets.h"

#define NAP (50 * NS_PER_MS) /* at most, between two looks at what no descriptor tells */
#define SHORT_NAP NS_PER_MS  /* while other communicators have something under way */

struct network {
    struct way way;
    int rank, size;
    nanoseconds timeout;
    const struct comm_backend *gloo;
    void *gloo_state;
    struct sockets *sockets;
    struct messages messages;
    struct pollfd *polled;

    pthread_t carrier;
    bool has_carrier;
    int news; /* eventfd: the carrier has done something */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* With the mutex held: */
    struct request_list calls, done; /* the first of `calls` is with the carrier */
    bool over;
    struct way outcome; /* of the call with which the carrier came to its end */
};

/* Makes a collective call: false when it failed, as `outcome` says. `limit` is on each wait of the agreement;
 * the carrier has none (0), since ranks may come to a call that was started as late as they like, and is
 * interrupted by whoever waits too long. */
static bool carry_out(const struct network *network, struct ty_request *request, nanoseconds limit,
                      struct way *outcome) {
    struct comm_vote vote = {.lowest = request->call,
                             .highest = request->call,
                             .lowest_rank = network->rank,
                             .highest_rank = network->rank};
    ty_error why = {0};
    int rc = network->gloo->agree(network->gloo_state, &vote, limit, &why);
    bool agreed = rc == 0 && vote.failure == 0 && memcmp(&vote.lowest, &vote.highest, sizeof vote.lowest) == 0;
    if (agreed && comm_moves_data(request))
        rc = comm_dispatch(network->gloo, network->gloo_state, request, &why);
    if (agreed && rc == 0) return true;
    outcome->failed = request;
    outcome->vote = vote;
    outcome->error = why;
    return false;
}

/* A call stays the first of `calls` while it is made, so that is_idle sees it. The first failure ends the
 * thread: after one, a backend can only be destroyed. */
static void *carry(void *context) {
    struct network *network = context;
    (void)pthread_mutex_lock(&network->mutex);
    while (!network->over) {
        struct ty_request *request = network->calls.first;
        if (request == NULL) {
            (void)pthread_cond_wait(&network->changed, &network->mutex);
            continue;
        }
        (void)pthread_mutex_unlock(&network->mutex);
        struct way outcome = {0};
        bool well = carry_out(network, request, 0, &outcome);
        (void)pthread_mutex_lock(&network->mutex);
        if (well) request_list_append(&network->done, request_list_take(&network->calls));
        if (!well) network->outcome = outcome;
        network->over = network->over || !well;
        (void)eventfd_write(network->news, 1);
    }
    (void)pthread_mutex_unlock(&network->mutex);
    return NULL;
}

/* Hands a collective call to the carrier. */
static void post(struct network *network, struct ty_request *request) {
    int code = network->has_carrier ? 0 : kernel_thread(&network->carrier, 0, carry, network);
    if (code < 0) {
        network->way.failed = request;
        (void)ty_fail(&network->way.error, code, "cannot start a thread: %s", strerror(-code));
        return;
    }
    network->has_carrier = true;
    request->posted = true;
    (void)pthread_mutex_lock(&network->mutex);
    request_list_append(&network->calls, request);
    (void)pthread_cond_signal(&network->changed);
    (void)pthread_mutex_unlock(&network->mutex);
}

/* What the carrier has done is taken over here, in a thread that is in a call: nobody else changes a request,
 * nor the way's failure. */
static void progress(struct way *way) {
    struct network *network = (struct network *)way;
    (void)pthread_mutex_lock(&network->mutex);
    for (struct ty_request *request; (request = request_list_take(&network->done)) != NULL;)
        request->done = true;
    if (network->outcome.failed != NULL && way->failed == NULL) {
        way->failed = network->outcome.failed;
        way->vote = network->outcome.vote;
        way->error = network->outcome.error;
    }
    (void)pthread_mutex_unlock(&network->mutex);
    if (network->messages.under_way == 0) return;
    sockets_accept(network->sockets);
    messages_progress(&network->messages);
    for (int rank = 0; rank < network->size && way->failed == NULL; rank++) {
        struct ty_request *request = messages_waiting_for(&network->messages, rank);
        if (request != NULL && sockets_has_left(network->sockets, rank, request->call.operation == COMM_SEND))
            way_break(way, request, TY_ECOMM, rank);
    }
}

static void begin(struct way *way, struct ty_request *request) {
    struct network *network = (struct network *)way;
    if (comm_is_message(&request->call))
        messages_begin(&network->messages, request);
    else if (request->started)
        post(network, request);
    progress(way);
}

static bool is_idle(struct way *way) {
    struct network *network = (struct network *)way;
    (void)pthread_mutex_lock(&network->mutex);
    bool idle = network->calls.first == NULL && network->done.first == NULL;
    (void)pthread_mutex_unlock(&network->mutex);
    return idle && network->messages.under_way == 0;
}

/* Where nothing else is under way a call is made by this very thread, which saves two switches of threads. Else
 * it goes to the carrier, behind those before it, and this thread moves messages and other communicators on. */
static bool wait_until_done(struct way *way, struct ty_request *request, bool (*elsewhere)(void)) {
    struct network *network = (struct network *)way;
    bool is_message = comm_is_message(&request->call);
    if (!is_message && !request->posted) {
        if (is_idle(way) && !elsewhere()) return carry_out(network, request, network->timeout, way);
        post(network, request);
    }
    for (nanoseconds begin = clock_monotonic();;) {
        bool others = elsewhere();
        progress(way);
        if (request->done || way->failed != NULL) return request->done;
        bool late = clock_monotonic() - begin > network->timeout;
        if (late && is_message) way_break(way, request, TY_ETIMEOUT, request->call.root);
        if (late && !is_message) /* the carrier tells what came of it */
            network->gloo->interrupt(network->gloo_state, TY_ETIMEOUT);
        if (way->failed != NULL) continue;
        eventfd_t news;
        size_t n = sockets_polled(network->sockets, &network->messages, network->polled);
        network->polled[n++] = (struct pollfd){.fd = network->news, .events = POLLIN};
        (void)poll(network->polled, n, (int)((others ? SHORT_NAP : NAP) / NS_PER_MS));
        if (network->polled[n - 1].revents != 0) (void)eventfd_read(network->news, &news);
    }
}

/* Of collective calls Gloo's backend knows the first of several ranks only: collective.c asks the store. */
static void missing(const struct way *way, struct buffer *out) {
    if (comm_is_message(&way->failed->call)) buffer_printf(out, "rank %d did not come", way->vote.suspect);
}

static void leave(struct way *way, int code) {
    struct network *network = (struct network *)way;
    if (network->gloo_state != NULL)
        network->gloo->interrupt(network->gloo_state, code == TY_ETIMEOUT ? code : TY_ECOMM);
}

/* The carrier may be inside Gloo: it is interrupted first (leave), or the join would wait for the other
 * ranks. */
static void destroy(struct way *way) {
    struct network *network = (struct network *)way;
    leave(way, 0);
    if (network->has_carrier) {
        (void)pthread_mutex_lock(&network->mutex);
        network->over = true;
        (void)pthread_cond_signal(&network->changed);
        (void)pthread_mutex_unlock(&network->mutex);
        (void)pthread_join(network->carrier, NULL);
    }
    if (network->gloo_state != NULL) network->gloo->destroy(network->gloo_state);
    sockets_destroy(network->sockets);
    messages_done(&network->messages);
    cleanup_fd(&network->news);
    (void)pthread_mutex_destroy(&network->mutex);
    (void)pthread_cond_destroy(&network->changed);
    free(network->polled);
    free(network);
}

static const struct way_operations operations = {
    .begin = begin,
    .progress = progress,
    .wait = wait_until_done,
    .is_idle = is_idle,
    .missing = missing,
    .leave = leave,
    .destroy = destroy,
};

int network_create(const struct comm_config *config, struct way **way, ty_error *err) {
    struct network *made = calloc(1, sizeof *made);
    if (made == NULL) return ty_fail_memory(err);
    *made = (struct network){
        .way.operations = &operations,
        .rank = config->rank,
        .size = config->size,
        .timeout = config->timeout,
        .messages = {
            .rank = config->rank, .size = config->size, .streams = &socket_streams, .way = &made->way}};
    (void)pthread_mutex_init(&made->mutex, NULL);
    (void)pthread_cond_init(&made->changed, NULL);
    int rc = 0;
    made->polled = calloc(SOCKETS_POLLED(config->size), sizeof *made->polled);
    made->news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (made->polled == NULL)
        rc = ty_fail_memory(err);
    else if (made->news < 0)
        rc = ty_fail(err, -errno, "no eventfd: %s", strerror(errno));
    else if ((made->gloo = module_load("gloo", err)) == NULL)
        rc = TY_EUNSUPPORTED;
    if (rc == 0) rc = made->gloo->create(config, &made->gloo_state, err);
    if (rc == 0) rc = sockets_create(config, &made->sockets, err);
    made->messages.context = made->sockets;
    if (rc == 0) rc = messages_init(&made->messages, err);
    if (rc < 0)
        destroy(&made->way);
    else
        *way = &made->way;
    return rc;
}
