/* Questions to the run from outside, and what agents answer: the side of whoever asks, for the command, and
 * that of the controller. A question is handed to the agents of the ranks that it names, and answered when they
 * have answered, or when its time is over; the look itself is theirs (agent/looks.c). */
#include "controller/control_socket.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/process.h"
#include "controller/ty_run.h"

enum { PACKET = 32 << 10, WAITING_MAX = 8 };

static socklen_t address_of(const char *run_id, struct sockaddr_un *address) {
    return descriptors_name(address, "trainyard-control-%s", run_id);
}

/* -- the side that asks */

int control_socket_ask(const char *run_id, nanoseconds length, nanoseconds period, const struct idset *ranks) {
    struct sockaddr_un address;
    CLEANUP(buffer_done) struct buffer question = {0};
    const struct timeval patience = {.tv_sec = CONTROL_PATIENCE / NS_PER_S};
    CLEANUP_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    socklen_t size = address_of(run_id, &address);
    if (fd < 0) return -errno;
    /* Others of the machine may wait there, or listen in its place, as many as may. */
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(fd, (const struct sockaddr *)&address, size) < 0) return errno == EAGAIN ? -ETIMEDOUT : -errno;
    if (!process_is_trusted(fd, NULL, NULL)) return -ECONNREFUSED;
    buffer_printf(&question, "look %" PRId64 " %" PRId64 " ", length, period);
    idset_format(ranks, &question);
    if (question.failed) return -ENOMEM;
    if (send(fd, question.data, question.size, MSG_NOSIGNAL) < 0)
        return errno == EPIPE ? -EBUSY : errno == EAGAIN ? -ETIMEDOUT : -errno;
    return TAKE_FD(fd);
}

int control_socket_answer(int question, nanoseconds length, struct buffer *out) {
    CLEANUP_FD int fd = question;
    nanoseconds limit = length + 2 * CONTROL_PATIENCE;
    const struct timeval wait = {.tv_sec = limit / NS_PER_S, .tv_usec = limit % NS_PER_S / 1000};
    char packet[PACKET];
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    for (ssize_t got; (got = recv(fd, packet, sizeof packet, 0)) != 0;) {
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno == EAGAIN ? -ETIMEDOUT : -errno;
        buffer_append(out, packet, (size_t)got);
    }
    return out->failed ? -ENOMEM : 0;
}

/* -- the controller, which answers */

/* Whatever is under way with the client is over; the listener goes on. Answers of agents that still come find
 * nobody missing. */
static void hang_up(void *context) {
    struct control_socket *control = context;
    struct ty_run *run = control->run;
    loop_timer_stop(run->loop, &control->limit);
    loop_watch_stop(run->loop, &control->client_watch);
    descriptors_close(&control->client);
    control->sent = 0;
    buffer_done(&control->answer);
    idset_done(&control->ranks);
    idset_done(&control->missing);
}

static void send_on(void *context, unsigned events) {
    struct control_socket *control = context;
    (void)events;
    while (control->sent < control->answer.size) {
        size_t left = control->answer.size - control->sent;
        ssize_t sent = send(control->client, control->answer.data + control->sent,
                            left < PACKET ? left : PACKET, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (sent < 0) break;
        control->sent += (size_t)sent;
    }
    hang_up(control);
}

/* "node 2-3 n2": the ranks that were asked for, of a node. */
static void name_node(struct control_socket *control, const char *word, uint32_t node) {
    struct ty_run *run = control->run;
    CLEANUP(idset_done) struct idset ranks = {0};
    for (int64_t rank = -1; (rank = idset_next(&control->ranks, rank)) != IDSET_END;)
        if (run->agents.node_of[rank] == node && idset_add(&ranks, rank) < 0) control->answer.failed = true;
    buffer_printf(&control->answer, "%s ", word);
    idset_format(&ranks, &control->answer);
    buffer_printf(&control->answer, " %s\n", run->agents.peers[node].name);
}

/* All have answered, or nobody waits for those that did not. */
static void reply(void *context) {
    struct control_socket *control = context;
    struct ty_run *run = control->run;
    for (int64_t node = -1; (node = idset_next(&control->missing, node)) != IDSET_END;)
        name_node(control, "silent", (uint32_t)node);
    idset_done(&control->missing);
    loop_timer_stop(run->loop, &control->limit);
    loop_watch_stop(run->loop, &control->client_watch);
    control->limit = (struct loop_timer){.callback = hang_up, .context = control};
    control->client_watch = (struct loop_watch){.callback = send_on, .context = control};
    if (control->answer.failed || control->answer.size == 0 ||
        loop_watch_start(run->loop, &control->client_watch, control->client, LOOP_WRITABLE) < 0 ||
        loop_timer_start(run->loop, &control->limit, CONTROL_PATIENCE) < 0)
        hang_up(control);
}

void control_socket_take(struct peer *peer, const Wire__Look *seen) {
    struct control_socket *control = &peer->run->control;
    struct idset left = {0};
    if (seen->ticket != control->ticket || !idset_has(&control->missing, peer->node)) return;
    name_node(control, "node", peer->node);
    buffer_append(&control->answer, seen->seen.data, seen->seen.len);
    for (int64_t node = -1; (node = idset_next(&control->missing, node)) != IDSET_END;)
        if (node != peer->node && idset_add(&left, node) < 0) control->answer.failed = true;
    idset_done(&control->missing);
    control->missing = left;
    if (idset_count(&left) == 0) reply(control);
}

static void ask_node(struct control_socket *control, uint32_t node, nanoseconds length, nanoseconds period) {
    const struct ty_run *run = control->run;
    CLEANUP_FREE uint32_t *ranks = calloc(idset_count(&control->ranks), sizeof *ranks);
    Wire__Look body = WIRE__LOOK__INIT;
    if (ranks == NULL) return; /* it is silent then */
    body.ticket = control->ticket;
    body.length = (uint64_t)length;
    body.period = (uint64_t)period;
    body.ranks = ranks;
    for (int64_t rank = -1; (rank = idset_next(&control->ranks, rank)) != IDSET_END;)
        if (run->agents.node_of[rank] == node) ranks[body.n_ranks++] = (uint32_t)rank;
    peer_send(&run->agents.peers[node], &WIRE_MESSAGE(LOOK, look, &body));
}

/* False: the text is no question, or one of ranks that are not there. */
static bool take_question(struct control_socket *control, const char *text) {
    const struct ty_run *run = control->run;
    nanoseconds length, period;
    int behind = 0;
    if (sscanf(text, "look %" SCNd64 " %" SCNd64 " %n", &length, &period, &behind) != 2 || behind == 0 ||
        length < 0 || length > INT64_MAX / 2 || period <= 0 ||
        idset_parse(&control->ranks, text + behind, NULL) < 0)
        return false;
    if (run->phase != PHASE_RUNNING || idset_count(&control->ranks) == 0) return false;
    for (int64_t rank = -1; (rank = idset_next(&control->ranks, rank)) != IDSET_END;)
        if (rank >= (int64_t)run_size(run->core) || idset_add(&control->missing, run->agents.node_of[rank]) < 0)
            return false;
    control->ticket++;
    for (int64_t node = -1; (node = idset_next(&control->missing, node)) != IDSET_END;)
        ask_node(control, (uint32_t)node, length, period);
    loop_timer_stop(run->loop, &control->limit);
    control->limit = (struct loop_timer){.callback = reply, .context = control};
    return loop_timer_start(control->run->loop, &control->limit, length + CONTROL_PATIENCE) == 0;
}

/* A question; behind it the client says no more, so what can be read is its end. */
static void on_client(void *context, unsigned events) {
    struct control_socket *control = context;
    char text[PACKET];
    (void)events;
    ssize_t size = recv(control->client, text, sizeof text - 1, MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    text[size > 0 ? size : 0] = '\0';
    bool asked = idset_count(&control->missing) > 0;
    if (size <= 0 || asked || !take_question(control, text)) hang_up(control);
}

/* Whoever comes while another is served is closed again, and hears EPIPE for its question. */
static void on_connection(void *context, int connected) {
    struct control_socket *control = context;
    CLEANUP_FD int fd = connected;
    if (control->client >= 0 || !process_is_trusted(fd, NULL, NULL)) return;
    descriptors_withhold(fd);
    control->client = TAKE_FD(fd);
    control->client_watch = (struct loop_watch){.callback = on_client, .context = control};
    control->limit = (struct loop_timer){.callback = hang_up, .context = control};
    if (loop_watch_start(control->run->loop, &control->client_watch, control->client, LOOP_READABLE) < 0 ||
        loop_timer_start(control->run->loop, &control->limit, CONTROL_PATIENCE) < 0)
        hang_up(control);
}

/* Workers of this machine are looked at without. A run goes on where it cannot be had: then nobody can ask. */
void control_socket_open(struct ty_run *run) {
    struct control_socket *control = &run->control;
    struct sockaddr_un address;
    *control = (struct control_socket){.client = -1, .listener = {.fd = -1}};
    if (run->prepared.rendezvous == NULL) return;
    control->run = run;
    CLEANUP_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t size = address_of(run->id, &address);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, size) < 0 || listen(fd, WAITING_MAX) < 0) return;
    control->listener = (struct loop_listener){.connected = on_connection, .context = control, .fd = -1};
    if (loop_listener_start(run->loop, &control->listener, fd) < 0) return;
    descriptors_withhold(TAKE_FD(fd));
}

void control_socket_close(struct ty_run *run) {
    struct control_socket *control = &run->control;
    if (control->run == NULL) return;
    hang_up(control);
    loop_listener_stop(&control->listener);
    descriptors_close(&control->listener.fd);
    control->run = NULL;
}
