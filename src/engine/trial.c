/* Callers connect, prove the key and read the rank of the node at the other end; knockers are those who call
 * here, and get it. */
#include "engine/trial.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/error.h"
#include "base/str.h"
#include "engine/address.h"
#include "wire/tls.h"
#include "wire/transport.h"

enum { KNOCKS_WAITING = 256, KNOCKS_A_TURN = 16 };
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

struct knocker {
    struct network_trial *trial;
    struct transport transport;
    struct loop_watch watch;
    struct loop_timer limit;
    struct knocker *older, *newer;
};

struct network_trial {
    struct loop *loop;
    struct run_key key;
    uint32_t node_rank, port;
    int fds[2]; /* listeners, -1 */
    struct loop_watch knocks[2];
    struct tls_server *tls;
    struct knocker *oldest, *newest;
    size_t n_knockers;
    struct caller *callers; /* n_callers; NULL: no trial goes on */
    size_t n_callers, n_left;
    nanoseconds begun;
    struct loop_timer limit, rest, end;
    void (*done)(void *context, const Wire__Tried *tried);
    void *context;
};

/* -- knockers */

static void forget_knocker(struct knocker *knocker) {
    struct network_trial *trial = knocker->trial;
    loop_watch_stop(trial->loop, &knocker->watch);
    loop_timer_stop(trial->loop, &knocker->limit);
    *(knocker->older != NULL ? &knocker->older->newer : &trial->oldest) = knocker->newer;
    *(knocker->newer != NULL ? &knocker->newer->older : &trial->newest) = knocker->older;
    trial->n_knockers--;
    transport_close(&knocker->transport);
    free(knocker);
}

static void on_late_knocker(void *context) {
    forget_knocker(context);
}

/* One that has proven the key gets the rank, which fits into the empty buffer of its socket. */
static void on_knocker(void *context, unsigned events) {
    (void)events;
    struct knocker *knocker = context;
    struct network_trial *trial = knocker->trial;
    bool writable;
    uint32_t rank = htonl(trial->node_rank);
    int result = tls_shake_hands(knocker->transport.tls, &writable, &(ty_error){0});
    if (result == 0) {
        (void)loop_watch_start(trial->loop, &knocker->watch, knocker->transport.fd,
                               writable ? LOOP_WRITABLE : LOOP_READABLE);
        return;
    }
    if (result > 0) (void)transport_write(&knocker->transport, &rank, sizeof rank);
    forget_knocker(knocker);
}

static void receive(struct network_trial *trial, int fd) {
    if (trial->n_knockers == TRIAL_KNOCKERS_MAX) forget_knocker(trial->oldest);
    struct knocker *knocker = calloc(1, sizeof *knocker);
    if (knocker == NULL) {
        (void)close(fd);
        return;
    }
    *knocker = (struct knocker){.trial = trial, .transport = TRANSPORT_PLAIN(fd), .older = trial->newest};
    *(trial->newest != NULL ? &trial->newest->newer : &trial->oldest) = knocker;
    trial->newest = knocker;
    trial->n_knockers++;
    descriptors_withhold(fd);
    address_prepare(fd);
    knocker->limit = (struct loop_timer){.callback = on_late_knocker, .context = knocker};
    knocker->watch = (struct loop_watch){.callback = on_knocker, .context = knocker};
    (void)loop_timer_start(trial->loop, &knocker->limit, TRIAL_PROOF_LIMIT);
    if (tls_accept(trial->tls, fd, &knocker->transport.tls, NULL) < 0 ||
        loop_watch_start(trial->loop, &knocker->watch, fd, LOOP_READABLE) < 0)
        forget_knocker(knocker);
}

static void knock(struct network_trial *trial, int listener) {
    for (int i = 0; i < KNOCKS_A_TURN; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            receive(trial, fd);
        else if ((errno == EMFILE || errno == ENFILE) && trial->oldest != NULL)
            forget_knocker(trial->oldest);
        else if (errno != ECONNABORTED && errno != EINTR)
            return;
    }
}

static void on_knock_six(void *context, unsigned events) {
    (void)events;
    knock(context, ((struct network_trial *)context)->fds[0]);
}

static void on_knock_four(void *context, unsigned events) {
    (void)events;
    knock(context, ((struct network_trial *)context)->fds[1]);
}

/* -- callers */

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
    descriptors_withhold(fd);
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

static int listen_on(struct network_trial *trial, const struct address *address) {
    int one = 1;
    CLEANUP_FD int fd = socket(address->socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && address->socket.ss_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address->socket, address->size) < 0 ||
        listen(fd, KNOCKS_WAITING) < 0)
        return -errno;
    trial->port = address_port_of_socket(fd);
    descriptors_withhold(fd);
    return TAKE_FD(fd);
}

/* The port that IPv6 has got may be another's in IPv4: it is drawn again then. */
static int listen_everywhere(struct network_trial *trial) {
    struct address_list list;
    for (int tries = 0;; tries++) {
        address_list_any(&list, 0);
        trial->fds[0] = listen_on(trial, &list.items[1]);
        if (trial->fds[0] >= 0) address_set_port(&list.items[0], (uint16_t)trial->port);
        trial->fds[1] = listen_on(trial, &list.items[0]);
        if (trial->fds[1] != -EADDRINUSE || tries == 8) break;
        (void)close(TAKE_FD(trial->fds[0]));
    }
    return trial->fds[0] >= 0 ? 0 : trial->fds[1] >= 0 ? 0 : trial->fds[1];
}

int trial_open(struct loop *loop, const struct run_key *key, uint32_t node_rank, struct network_trial **trial,
               ty_error *err) {
    struct network_trial *made = calloc(1, sizeof *made);
    if (made == NULL) return ty_fail_memory(err);
    *made = (struct network_trial){.loop = loop, .key = *key, .node_rank = node_rank, .fds = {-1, -1}};
    made->limit = made->rest = made->end = (struct loop_timer){.callback = on_over, .context = made};
    made->knocks[0] = (struct loop_watch){.callback = on_knock_six, .context = made};
    made->knocks[1] = (struct loop_watch){.callback = on_knock_four, .context = made};
    int result = tls_server_create(key, &made->tls, err);
    if (result == 0 && (result = listen_everywhere(made)) < 0)
        (void)ty_fail(err, result, "cannot listen for a trial of the network: %s", strerror(-result));
    for (size_t i = 0; i < ARRAY_SIZE(made->fds) && result == 0; i++)
        if (made->fds[i] >= 0) result = loop_watch_start(loop, &made->knocks[i], made->fds[i], LOOP_READABLE);
    if (result < 0) {
        trial_close(made);
        return result;
    }
    *trial = made;
    return 0;
}

void trial_close(struct network_trial *trial) {
    if (trial == NULL) return;
    trial->done = NULL;
    if (trial->callers != NULL) finish(trial);
    while (trial->oldest != NULL)
        forget_knocker(trial->oldest);
    for (size_t i = 0; i < ARRAY_SIZE(trial->fds); i++) {
        loop_watch_stop(trial->loop, &trial->knocks[i]);
        if (trial->fds[i] >= 0) (void)close(trial->fds[i]);
    }
    tls_server_destroy(trial->tls);
    key_forget(&trial->key);
    free(trial);
}

uint32_t trial_port(const struct network_trial *trial) {
    return trial->port;
}
