/* One node's trial of the addresses of others. Callers connect, prove the key and read the rank of the node at
 * the other end; who is let in at a gate of ours (gate.h) gets it. What follows from it is
 * rendezvous_network.c's. */
#include "engine/trial.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "engine/address.h"
#include "engine/gate.h"

/* For the other addresses, when each node has been reached by one: this, and twice what that took, which on a
 * busy machine is long. */
#define REST_LEAST (200 * NS_PER_MS)

enum caller_state { CALLER_CONNECTS, CALLER_PROVES, CALLER_READS, CALLER_ENDED };

struct caller {
    struct network_trial *trial;
    enum caller_state state;
    uint32_t node_rank; /* of who is to answer */
    struct transport transport;
    struct loop_watch watch;
    char fault[100]; /* "": it was reached */
};

struct network_trial {
    struct loop *loop;
    struct run_key key;
    uint32_t node_rank, port;
    struct gate gate;
    struct caller *callers; /* n_callers; NULL: no trial goes on */
    size_t n_callers, n_left;
    nanoseconds begun;
    struct loop_timer limit, rest, end;
    void (*done)(void *context, const Wire__Tried *tried);
    void *context;
};

/* Who has proven the key gets the rank, which fits into the empty buffer of its socket. */
static void on_let_in(void *context, struct visitor *visitor) {
    uint32_t rank = htonl(((struct network_trial *)context)->node_rank);
    (void)transport_write(&visitor->transport, &rank, sizeof rank);
    gate_forget(visitor);
}

/* -- callers */

/* The callers are taken out first: who is told may begin the next trial at once. */
static void finish(struct network_trial *trial) {
    CLEANUP_FREE struct caller *callers = TAKE(trial->callers);
    char *faults[TRIAL_TARGETS_MAX];
    Wire__Tried tried = WIRE__TRIED__INIT;
    tried.faults = faults;
    loop_timer_stop(trial->loop, &trial->limit);
    loop_timer_stop(trial->loop, &trial->rest);
    loop_timer_stop(trial->loop, &trial->end);
    for (size_t i = 0; i < trial->n_callers; i++) {
        struct caller *caller = &callers[i];
        loop_watch_stop(trial->loop, &caller->watch);
        transport_close(&caller->transport);
        if (caller->state != CALLER_ENDED) strcpy(caller->fault, "no answer");
        faults[tried.n_faults++] = caller->fault;
    }
    if (trial->done != NULL) trial->done(trial->context, &tried);
}

static void on_over(void *context) {
    finish(context);
}

/* Each node that was to be reached has been, by one of its addresses, which stand side by side. */
static bool each_reached(const struct network_trial *trial) {
    bool reached = true;
    for (size_t i = 0; i < trial->n_callers && reached; i++) {
        uint32_t rank = trial->callers[i].node_rank;
        reached = false;
        for (; i < trial->n_callers && trial->callers[i].node_rank == rank; i++)
            reached =
                reached || (trial->callers[i].state == CALLER_ENDED && trial->callers[i].fault[0] == '\0');
        i--;
    }
    return reached;
}

/* The end is told by the loop, never from within trial_begin. */
static void end_call(struct caller *caller, const char *fault) {
    struct network_trial *trial = caller->trial;
    loop_watch_stop(trial->loop, &caller->watch);
    transport_close(&caller->transport);
    caller->state = CALLER_ENDED;
    (void)snprintf(caller->fault, sizeof caller->fault, "%.99s", fault);
    trial->n_left--;
    if (trial->n_left == 0)
        (void)loop_timer_start(trial->loop, &trial->end, 0);
    else if (trial->rest.state == NULL && each_reached(trial))
        (void)loop_timer_start(trial->loop, &trial->rest,
                               REST_LEAST + 2 * (loop_now(trial->loop) - trial->begun));
}

static void take_rank(struct caller *caller) {
    uint32_t rank;
    ssize_t n = transport_read(&caller->transport, &rank, sizeof rank);
    if (n == -EAGAIN)
        (void)loop_watch_start(caller->trial->loop, &caller->watch, caller->transport.fd, LOOP_READABLE);
    else if (n != sizeof rank)
        end_call(caller, "the connection was closed");
    else
        end_call(caller, ntohl(rank) == caller->node_rank ? "" : "another node has that address");
}

static void on_call(void *context, unsigned events) {
    (void)events;
    struct caller *caller = context;
    struct network_trial *trial = caller->trial;
    ty_error err = {0};
    if (caller->state == CALLER_CONNECTS) {
        int code = 0;
        socklen_t size = sizeof code;
        (void)getsockopt(caller->transport.fd, SOL_SOCKET, SO_ERROR, &code, &size);
        if (code != 0) return end_call(caller, strerror(code));
        if (tls_connect(&trial->key, trial->node_rank, caller->transport.fd, &caller->transport.tls, &err) < 0)
            return end_call(caller, err.message);
        caller->state = CALLER_PROVES;
    }
    if (caller->state == CALLER_PROVES) {
        bool writable;
        int result = tls_shake_hands(caller->transport.tls, &writable, &err);
        if (result < 0) return end_call(caller, err.message);
        if (result == 0) {
            (void)loop_watch_start(trial->loop, &caller->watch, caller->transport.fd,
                                   writable ? LOOP_WRITABLE : LOOP_READABLE);
            return;
        }
        caller->state = CALLER_READS;
    }
    take_rank(caller);
}

static void call(struct caller *caller, const Wire__TryTarget *target) {
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct address to = {0};
    bool v6 = inet_pton(AF_INET6, target->address, &six.sin6_addr) == 1;
    if (!v6 && inet_pton(AF_INET, target->address, &four.sin_addr) != 1)
        return end_call(caller, "it is no address");
    (void)address_of(v6 ? (const struct sockaddr *)&six : (const struct sockaddr *)&four, &to);
    address_set_port(&to, (uint16_t)target->port);
    int fd = socket(to.socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return end_call(caller, strerror(errno));
    caller->transport.fd = fd;
    address_prepare(fd);
    if (connect(fd, (const struct sockaddr *)&to.socket, to.size) < 0 && errno != EINPROGRESS)
        return end_call(caller, strerror(errno));
    caller->watch = (struct loop_watch){.callback = on_call, .context = caller};
    if (loop_watch_start(caller->trial->loop, &caller->watch, fd, LOOP_WRITABLE) < 0)
        end_call(caller, "no memory");
}

int trial_begin(struct network_trial *trial, const Wire__Try *targets,
                void (*done)(void *context, const Wire__Tried *tried), void *context, ty_error *err) {
    size_t n = targets->n_targets < TRIAL_TARGETS_MAX ? targets->n_targets : TRIAL_TARGETS_MAX;
    if (trial->callers != NULL) return ty_fail(err, TY_EUSAGE, "the network is being tried already");
    trial->callers = calloc(n + 1, sizeof *trial->callers);
    if (trial->callers == NULL) return ty_fail_memory(err);
    trial->n_callers = trial->n_left = n;
    trial->begun = loop_now(trial->loop);
    trial->done = done;
    trial->context = context;
    for (size_t i = 0; i < n; i++)
        trial->callers[i] = (struct caller){
            .trial = trial, .node_rank = targets->targets[i]->node_rank, .transport = TRANSPORT_PLAIN(-1)};
    (void)loop_timer_start(trial->loop, n > 0 ? &trial->limit : &trial->end, n > 0 ? TRIAL_LIMIT : 0);
    for (size_t i = 0; i < n; i++)
        call(&trial->callers[i], targets->targets[i]);
    return 0;
}

/* -- open and close */

int trial_open(struct loop *loop, const struct run_key *key, uint32_t node_rank, struct network_trial **trial,
               ty_error *err) {
    struct network_trial *made = calloc(1, sizeof *made);
    if (made == NULL) return ty_fail_memory(err);
    *made = (struct network_trial){.loop = loop,
                                   .key = *key,
                                   .node_rank = node_rank,
                                   .gate = {.loop = loop,
                                            .most = TRIAL_VISITORS_MAX,
                                            .limit = TRIAL_PROOF_LIMIT,
                                            .let_in = on_let_in,
                                            .context = made}};
    made->limit = made->rest = made->end = (struct loop_timer){.callback = on_over, .context = made};
    int result = gate_open(&made->gate, key, err);
    if (result == 0 && (result = gate_listen_anywhere(&made->gate)) < 0)
        (void)ty_fail(err, result, "cannot listen for a trial of the network: %s", strerror(-result));
    if (result < 0) {
        trial_close(made);
        return result;
    }
    made->port = (uint32_t)result;
    *trial = made;
    return 0;
}

void trial_close(struct network_trial *trial) {
    if (trial == NULL) return;
    trial->done = NULL;
    if (trial->callers != NULL) finish(trial);
    gate_close(&trial->gate);
    key_forget(&trial->key);
    free(trial);
}

uint32_t trial_port(const struct network_trial *trial) {
    return trial->port;
}
