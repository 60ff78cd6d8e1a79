/* The agent's process: connect, prove, join, and then one Start after another until the controller says
 * goodbye. What comes before a Start is told on standard error; what comes after goes to the controller. The
 * controller's side is rendezvous_door.c. */
#include "engine/join_node.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/spawn.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/error.h"
#include "base/kernel.h"
#include "base/module.h"
#include "base/str.h"
#include "cluster/lease.h"
#include "engine/address.h"
#include "engine/description.h"
#include "engine/rendezvous.h"
#include "engine/trial.h"
#include "wire/channel.h"
#include "wire/tls.h"

#define TELL_EACH (5 * NS_PER_S)
#define DEFAULT_LIMIT (300 * NS_PER_S)
#define REFUSED_LIMIT (2 * NS_PER_S)
#define STRANGE_LIMIT (2 * NS_PER_S)
enum { CONNECT_LIMIT_MS = 3000, PROOF_LIMIT_MS = 5000, RETRY_FIRST_MS = 50, RETRY_MOST_MS = 1000 };

void join_node_tell(const struct join_node *node, const char *format, ...) {
    char text[1200], name[32] = "a node without a rank yet";
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (node->node_rank != RENDEZVOUS_RANK_NONE) (void)snprintf(name, sizeof name, "node %u", node->node_rank);
    (void)dprintf(STDERR_FILENO, "trainyard %s: %s: %s\n", node->command, name, text);
}

/* -- connect */

static int await(int fd, short events, int limit_ms) {
    struct pollfd waited = {.fd = fd, .events = events};
    int n;
    do
        n = poll(&waited, 1, limit_ms);
    while (n < 0 && errno == EINTR);
    return n > 0 ? 0 : n == 0 ? -ETIMEDOUT : -errno;
}

static int open_socket(const struct address *address, ty_error *err) {
    char text[64];
    address_format(address, text);
    CLEANUP_FD int fd = socket(address->socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return ty_fail(err, -errno, "%s: %s", text, strerror(errno));
    int result = connect(fd, (const struct sockaddr *)&address->socket, address->size) < 0 ? -errno : 0;
    if (result == -EINPROGRESS) {
        int code = 0;
        socklen_t size = sizeof code;
        result = await(fd, POLLOUT, CONNECT_LIMIT_MS);
        if (result == 0) (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &size);
        if (code != 0) result = -code;
    }
    if (result < 0) return ty_fail(err, result, "%s: %s", text, strerror(-result));
    address_prepare(fd);
    return TAKE_FD(fd);
}

static int prove(const struct join_node *node, const struct address *address, struct transport *transport,
                 ty_error *err) {
    if (node->key.text[0] == '\0') {
        if (address_is_loopback(address) && address_is_served_by_me(address)) return 0;
        if (!address_is_loopback(address)) return address_fail_keyless(node->rendezvous, err);
        return ty_fail(err, TY_EUSAGE,
                       "who listens at %s is another user, and there is no key to tell friends by",
                       node->rendezvous);
    }
    int result = tls_connect(&node->key, node->node_rank, transport->fd, &transport->tls, err);
    nanoseconds end = clock_monotonic() + PROOF_LIMIT_MS * NS_PER_MS;
    bool writable = false;
    while (result == 0 && (result = tls_shake_hands(transport->tls, &writable, err)) == 0) {
        nanoseconds left = (end - clock_monotonic()) / NS_PER_MS;
        int waited = left > 0 ? await(transport->fd, writable ? POLLOUT : POLLIN, (int)left) : -ETIMEDOUT;
        if (waited < 0) return ty_fail(err, waited, "the handshake did not end: %s", strerror(-waited));
    }
    return result < 0 ? result : 0;
}

/* One after the other, until one answers. What the last one says is told. A handshake that fails is the end of
 * it: who answers has another key, or is somebody else. */
static int try_all(const struct join_node *node, struct transport *transport, ty_error *err) {
    char one[300];
    int last = -EAGAIN;
    for (const char *at = node->rendezvous; at != NULL;) {
        struct address_name name;
        struct address_list list = {0};
        at = address_next(at, one, sizeof one);
        if (address_parse(one, &name, err) < 0) return TY_EUSAGE;
        if (address_resolve(&name, &list, err) < 0) continue;
        for (size_t i = 0; i < list.n; i++) {
            int fd = open_socket(&list.items[i], err);
            if (fd < 0) last = fd;
            if (fd < 0) continue;
            *transport = TRANSPORT_PLAIN(fd);
            int result = prove(node, &list.items[i], transport, err);
            if (result == 0) return 0;
            transport_close(transport);
            return result;
        }
    }
    return last;
}

/* Somebody else may be about to leave the port to the controller, which tries for as long to have it
 * (rendezvous_door.c). A handshake that does not end is tried again and again: either machine may be too busy
 * for it. For one that comes back nobody at the door means that the run is over, unless it may be resumed. */
static int connect_to_controller(const struct join_node *node, bool again, struct transport *transport,
                                 ty_error *err) {
    nanoseconds begin = clock_monotonic(), told = begin, answered = begin, strange = 0;
    nanoseconds limit = node->limit > 0 ? node->limit : DEFAULT_LIMIT;
    for (int pause = RETRY_FIRST_MS;; pause = pause * 2 < RETRY_MOST_MS ? pause * 2 : RETRY_MOST_MS) {
        int result = try_all(node, transport, err);
        nanoseconds now = clock_monotonic();
        if (result != TY_EPROTOCOL) strange = 0;
        if (result == TY_EPROTOCOL && strange == 0) strange = now;
        if (result == 0 || result == TY_EUSAGE || result == TY_EUNSUPPORTED || result == TY_EVERSION ||
            (strange > 0 && now - strange > STRANGE_LIMIT))
            return result;
        if (result != -ECONNREFUSED || !again || node->awaits_another) answered = now;
        if (now - begin > limit || now - answered > REFUSED_LIMIT)
            return ty_fail(err, TY_ESTART, "the controller at %s did not answer within %lld s: %s",
                           node->rendezvous, (long long)(limit / NS_PER_S), err->message);
        if (now - told > TELL_EACH) {
            told = now;
            join_node_tell(node, "waiting for the controller at %s: %s", node->rendezvous, err->message);
        }
        (void)poll(NULL, 0, pause);
    }
}

/* Between runs the channel is on a loop of its own. */
struct resting {
    struct loop *loop;
    struct channel *channel;
    struct network_trial *trial; /* while others may try to reach this node, and it them; NULL */
    Wire__Start *start;          /* owned */
    nanoseconds heard;           /* when it came, wall */
    struct cluster *cluster;     /* this node as it joined, owned; of one rest after another */
    Wire__Join *said;            /* when it joined, owned; of one rest after another */
    bool dismissed, closed;
    bool seated; /* it may join with this rank */
    uint32_t node_rank;
    int status;
    char why[512]; /* of the dismissal, or the end */
};

/* -- what this node is */

/* Devices that other runs hold here are not offered; `held` says who does, in a line that the controller tells
 * where something does not fit. */
static int probe(const struct join_node *node, struct cluster **cluster, struct buffer *held, ty_error *err) {
    struct cluster_overrides none = {.num_cpus = -1, .num_gpus = -1};
    int result = cluster_probe(node->overrides != NULL ? node->overrides : &none, cluster, err);
    if (result < 0 || (*cluster)->nodes[0].shape->n_devices == 0) return result;
    struct lease_holder *holders = NULL;
    size_t n = 0, named = 0;
    result = lease_holders(NULL, &holders, &n, err);
    if (result >= 0) result = lease_apply(holders, n, *cluster, err);
    for (size_t i = 0; i < n && named < LEASE_HOLDERS_NAMED; i++) {
        if (holders[i].n == 0) continue;
        if (named++ > 0) buffer_text(held, "; ");
        lease_describe(&holders[i], held);
    }
    lease_holders_free(holders, n);
    return result;
}

static int say_join(const struct join_node *node, bool swept, struct resting *resting, ty_error *err) {
    struct cluster *cluster = NULL;
    CLEANUP(buffer_done) struct buffer held = {0};
    Wire__Join join = WIRE__JOIN__INIT;
    int result = probe(node, &cluster, &held, err);
    if (result >= 0) result = description_make(&cluster->nodes[0], &join, err);
    if (result >= 0) result = description_add_addresses(&join, err);
    if (result >= 0) {
        join.protocol = FRAME_PROTOCOL;
        join.version = (char *)base_build;
        join.node_rank = node->node_rank;
        join.node_name = (char *)(node->node_name != NULL ? node->node_name : cluster->nodes[0].name);
        if (node->run != NULL) join.run = (char *)node->run;
        join.pid = getpid();
        join.time = clock_wall();
        join.swept = swept;
        if (resting->trial != NULL) join.trial_port = trial_port(resting->trial);
        if (held.size > 0 && !held.failed) join.held = held.data;
        result = channel_send(resting->channel, &WIRE_MESSAGE(JOIN, join, &join));
        if (result < 0) (void)ty_fail(err, TY_ECOMM, "cannot send the description of this node");
        wire__join__free_unpacked(resting->said, NULL);
        resting->said = frame_copy(&join.base);
    }
    description_done(&join);
    cluster_destroy(resting->cluster);
    resting->cluster = cluster;
    return result;
}

/* -- between runs */

static void free_start(Wire__Start **start) {
    wire__start__free_unpacked(*start, NULL);
}

static void on_tried(void *context, const Wire__Tried *tried) {
    struct resting *resting = context;
    if (resting->channel == NULL) return;
    (void)channel_send(resting->channel, &WIRE_MESSAGE(TRIED, tried, (Wire__Tried *)tried));
    channel_flush(resting->channel);
}

/* What follows a Start is read by the run. */
static void on_message(void *context, const Wire__Message *message) {
    struct resting *resting = context;
    if (message->body_case == WIRE__MESSAGE__BODY_START && resting->start == NULL) {
        channel_pause(resting->channel, true);
        resting->start = frame_copy(&message->start->base);
        resting->heard = clock_wall();
    } else if (message->body_case == WIRE__MESSAGE__BODY_TRIAL && resting->trial != NULL) {
        (void)trial_begin(resting->trial, message->trial, on_tried, resting, NULL);
    } else if (message->body_case == WIRE__MESSAGE__BODY_DISMISSAL) {
        resting->dismissed = true;
        resting->status = message->dismissal->status;
        (void)snprintf(resting->why, sizeof resting->why, "%.500s", message->dismissal->why);
    } else if (message->body_case == WIRE__MESSAGE__BODY_SEAT) {
        resting->seated = true;
        resting->node_rank = message->seat->node_rank;
    }
}

static void on_closed(void *context, const ty_error *reason) {
    struct resting *resting = context;
    channel_destroy(TAKE(resting->channel));
    resting->closed = true;
    if (!resting->dismissed)
        (void)snprintf(resting->why, sizeof resting->why, "the controller is gone%s%.480s",
                       reason->code != 0 ? ": " : "", reason->code != 0 ? reason->message : "");
}

static const struct channel_events resting_events = {.message = on_message, .closed = on_closed};

/* With `node` it joins first. Until a Start, whose transport is then handed on, or the end. */
static int rest(const struct join_node *node, bool swept, struct transport *transport, struct resting *resting,
                ty_error *err) {
    *resting = (struct resting){.loop = loop_create(err),
                                .cluster = resting->cluster,
                                .said = resting->said,
                                .status = ty_error_exit_status(TY_ENODE)};
    if (resting->loop == NULL) return err->code;
    int result =
        channel_create_over(resting->loop, transport, &resting_events, resting, &resting->channel, err);
    if (node != NULL && node->key.text[0] != '\0')
        (void)trial_open(resting->loop, &node->key, node->node_rank, &resting->trial, NULL);
    if (result == 0 && node != NULL) result = say_join(node, swept, resting, err);
    if (result == 0) channel_keep_alive(resting->channel, CHANNEL_LEASED);
    while (result == 0 && resting->start == NULL && !resting->dismissed && !resting->seated && !resting->closed)
        (void)loop_turn(resting->loop, true);
    if (result == 0 && resting->start != NULL && resting->channel != NULL)
        *transport = channel_release_transport(TAKE(resting->channel));
    channel_destroy(TAKE(resting->channel));
    trial_close(TAKE(resting->trial));
    loop_destroy(TAKE(resting->loop));
    return result;
}

/* -- the agent */

struct node_agent {
    struct join_life *life;
    struct agent_process process;
    int parent_fd, leases;
    struct cluster *cluster;   /* this node as it joined; borrowed */
    const char *run;           /* that is served */
    struct lease *lease;       /* its; NULL: it has claimed nothing yet */
    struct way_back_home home; /* where another controller of the run would be */
};

/* At the start of each attempt, whose claims take the place of those before. A lease is opened by the first
 * that claims something: a run without devices leaves no file. */
static int claim_devices(void *context, Wire__Claim *const *claims, size_t n, int *held, ty_error *err) {
    struct node_agent *agent = context;
    CLEANUP_FREE struct lease_claim *wanted = calloc(n + 1, sizeof *wanted);
    if (wanted == NULL) return ty_fail_memory(err);
    if (agent->cluster == NULL || (n == 0 && agent->lease == NULL)) return 0;
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(wanted[i].resource, sizeof wanted[i].resource, "%s", claims[i]->resource);
        (void)snprintf(wanted[i].id, sizeof wanted[i].id, "%s", claims[i]->id);
        wanted[i].amount = claims[i]->amount;
    }
    if (agent->lease == NULL) { /* the keeper holds it as well */
        int result = lease_open(agent->run, &agent->lease, err);
        if (result < 0) return result;
        int fd = lease_fd(agent->lease);
        (void)descriptors_send(agent->leases, "", 1, &fd, 1, MSG_DONTWAIT);
        *held = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (*held < 0) return ty_fail(err, -errno, "cannot keep a lease: %s", strerror(errno));
    }
    return lease_take(agent->lease, wanted, n, agent->cluster, err);
}

/* Each program must be there, and where workers begin; a program that is another is told of. */
static int look_at_programs(const Wire__Start *start, struct buffer *differing, ty_error *err) {
    if (start->directory[0] != '\0' && access(start->directory, X_OK) < 0)
        return ty_fail(
            err, TY_ESTART,
            "cannot enter directory %s: %s; the run begins there, and it must be there on every node",
            start->directory, strerror(errno));
    for (size_t i = 0; i < start->n_programs; i++) {
        const Wire__Program *program = start->programs[i];
        struct program_whereabouts place = {start->search, start->directory, program->script};
        struct digest digest;
        int result = program_look(&place, program->name, &digest, err);
        if (result < 0)
            return ty_fail(err, result, "%s; it must be at the same path on every node", err->message);
        bool known = program->xxh3[0] != '\0' && digest.xxh3[0] != '\0';
        if (!known || (program->size == digest.size && str_equal(program->xxh3, digest.xxh3))) continue;
        buffer_printf(differing, "%s%s is another there (%lld bytes, here %lld)",
                      differing->size > 0 ? ", " : "", program->name, (long long)digest.size,
                      (long long)program->size);
    }
    if (differing->size > 0) buffer_text(differing, ": bring the same to all nodes");
    return 0;
}

/* While nothing runs here: else the agent sees to the end of that first (agent/node_run.c). */
static void end_with_keeper(const struct node_agent *agent, bool at_once) {
    struct pollfd gone = {.fd = agent->parent_fd, .events = POLLIN};
    (void)prctl(PR_SET_PDEATHSIG, at_once ? SIGKILL : 0);
    if (at_once && poll(&gone, 1, 0) > 0) (void)raise(SIGKILL); /* it went before that */
}

/* Exit status, or -1 to rest again. Whoever lost the controller by the network has ended what it ran. */
static int serve_start(struct node_agent *agent, const struct join_node *node, struct transport *transport,
                       const struct resting *resting, const Wire__Start *start) {
    bool returns = node->awaits_another &&
                   way_back_note(&agent->home, transport->fd, resting->said, &node->key, node->node_rank);
    struct agent_service service = {.transport = transport,
                                    .parent_fd = agent->parent_fd,
                                    .lease_fd = -1,
                                    .claim = claim_devices,
                                    .context = agent,
                                    .start = start,
                                    .heard = resting->heard,
                                    .way = returns ? &agent->home.way : NULL,
                                    .status = -1};
    ty_error err = {0};
    agent->life->served = true;
    agent->cluster = resting->cluster;
    agent->run = start->run;
    CLEANUP(buffer_done) struct buffer differing = {0};
    int result = look_at_programs(start, &differing, &err);
    if (result == 0) result = claim_devices(agent, start->claims, start->n_claims, &service.lease_fd, &err);
    if (result < 0) service.refusal = err.message;
    if (differing.size > 0 && !differing.failed) service.warning = differing.data;
    end_with_keeper(agent, false);
    enum agent_end end = agent_serve(&agent->process, &service);
    end_with_keeper(agent, true);
    lease_release(TAKE(agent->lease));
    if (end == AGENT_KEPT) return -1;
    transport_close(transport);
    agent->life->again = service.lost && service.status < 0;
    return service.status >= 0 ? service.status : ty_error_exit_status(TY_ENODE);
}

/* A node without a rank asks for one first, and joins with that. */
static int join(struct join_node *node, bool again, bool swept, struct transport *transport,
                struct resting *resting, ty_error *err) {
    int result = rest(node, swept, transport, resting, err);
    if (result < 0 || !resting->seated) return result;
    node->node_rank = resting->node_rank;
    transport_close(transport);
    result = connect_to_controller(node, again, transport, err);
    return result < 0 ? result : rest(node, swept, transport, resting, err);
}

/* A node that comes back may be early: the controller has not noticed yet that it was gone, and says so. The
 * end of a run is told without a word. */
static int join_again(struct join_node *node, bool swept, struct transport *transport, struct resting *resting,
                      ty_error *err) {
    nanoseconds end = clock_monotonic() + node->limit;
    int result = join(node, true, swept, transport, resting, err);
    while (result == 0 && resting->dismissed && resting->status == ty_error_exit_status(TY_EUSAGE) &&
           resting->why[0] != '\0' && clock_monotonic() < end) {
        transport_close(transport);
        (void)poll(NULL, 0, RETRY_MOST_MS);
        result = connect_to_controller(node, true, transport, err);
        if (result == 0) result = join(node, true, swept, transport, resting, err);
    }
    return result;
}

int join_node_run(const struct join_node *node, bool again, int parent_fd, int leases, struct join_life *life) {
    struct join_node self = *node; /* which may be given another rank */
    struct transport transport = TRANSPORT_PLAIN(-1);
    struct resting resting = {0};
    struct node_agent agent = {.life = life, .parent_fd = parent_fd, .leases = leases};
    ty_error err = {0};
    (void)signal(SIGPIPE, SIG_IGN);
    end_with_keeper(&agent, true);
    int result = connect_to_controller(&self, again, &transport, &err);
    if (result == 0 && !agent_process_open(&agent.process)) result = ty_fail_memory(&err);
    if (result == 0)
        result = again ? join_again(&self, life->swept, &transport, &resting, &err)
                       : join(&self, false, false, &transport, &resting, &err);
    life->node_rank = self.node_rank;
    int status = -1;
    while (result == 0 && status < 0) {
        CLEANUP(free_start) Wire__Start *start = TAKE(resting.start);
        status = start != NULL && transport.fd >= 0 ? serve_start(&agent, &self, &transport, &resting, start)
                                                    : resting.status;
        if (start == NULL && resting.why[0] != '\0') join_node_tell(&self, "%s", resting.why);
        /* Nothing runs here, but the run is resumed with all of its nodes. */
        if (start == NULL && resting.closed && !resting.dismissed && node->awaits_another) life->again = true;
        if (status < 0) result = rest(NULL, false, &transport, &resting, &err);
    }
    agent_process_close(&agent.process);
    cluster_destroy(resting.cluster);
    wire__join__free_unpacked(resting.said, NULL);
    transport_close(&transport);
    if (result == 0) return status;
    if (!again) join_node_tell(&self, "%s", err.message);
    return ty_error_exit_status(again ? TY_ENODE : result); /* the run may have ended meanwhile */
}
