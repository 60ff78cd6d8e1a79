/* What a worker may do on its channels to its agent (docs/worker-protocol.md), and what the controller may
 * answer meanwhile.
 *
 * An input is a list of moves of a worker of two, of its processes and of the controller. Whatever they are:
 * what the agent says to the controller is whole frames whose contents are checked, what it says to the worker
 * is answers as the page says, its buffers are bounded, and in the end no descriptor is left. */
#include <fcntl.h>
#include <jansson.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/node_storage.h"
#include "agent/worker_request.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "fuzz.h"
#include "worker/link.h"

enum {
    WORKERS = 2,
    ENDS = 6,
    WAITING = 16,
    ANSWER_MAX = 3 << 20,
    ROOM = WORKER_LINE_MAX + WORKER_VALUE_MAX + (1 << 20)
};

/* The worker's side of a channel. */
struct client {
    int fd; /* -1: none */
    struct buffer in;
    size_t value; /* bytes of a value still to come */
};

struct world {
    const uint8_t *data;
    size_t size;
    struct loop *loop;
    struct outbox outbox;
    struct worker_channels all;
    struct node_storage storage;
    struct speaker speakers[WORKERS];
    struct client clients[ENDS];
    int controller; /* its end of the agent's channel */
    struct buffer heard;
    uint64_t reports[WORKERS];
    unsigned ready[WORKERS];
    struct {
        uint32_t channel;
        bool commit;
    } waiting
        [WAITING]; /* for the controller's answer; the latest, as nothing tells who commits and goes away */
    unsigned n_waiting;
};

static unsigned take(struct world *world) {
    if (world->size == 0) return 0;
    world->size--;
    return *world->data++;
}

/* -- the controller */

static void expect_key(const char *key) {
    size_t size = strlen(key);
    fuzz_require(size >= 1 && size <= WORKER_KEY_MAX);
    for (size_t i = 0; i < size; i++)
        fuzz_require((unsigned char)key[i] > ' ' && key[i] != 0x7f);
}

static void forget_waiting(struct world *world, uint32_t channel) {
    for (unsigned i = 0; i < world->n_waiting; i++)
        if (world->waiting[i].channel == channel) world->waiting[i--] = world->waiting[--world->n_waiting];
}

static void note_waiting(struct world *world, uint32_t channel, bool commit) {
    for (unsigned i = 0; i < world->n_waiting; i++)
        fuzz_require(world->waiting[i].channel != channel); /* one request at a time */
    if (world->n_waiting == WAITING)
        memmove(world->waiting, world->waiting + 1, --world->n_waiting * sizeof world->waiting[0]);
    world->waiting[world->n_waiting].channel = channel;
    world->waiting[world->n_waiting++].commit = commit;
}

static void hear_request(struct world *world, const Wire__StoreRequest *request) {
    fuzz_require(request->rank < WORKERS && request->operation <= WIRE__STORE_REQUEST__OPERATION__FORGET);
    fuzz_require(request->operation != WIRE__STORE_REQUEST__OPERATION__DELETE);
    if (request->operation == WIRE__STORE_REQUEST__OPERATION__FORGET) {
        forget_waiting(world, request->channel);
        return;
    }
    expect_key(request->key);
    fuzz_require(request->value.len <= WORKER_VALUE_MAX && request->timeout_ms >= -1);
    int64_t delta;
    if (request->operation == WIRE__STORE_REQUEST__OPERATION__ADD) {
        CLEANUP_FREE char *text = fuzz_text(request->value.data, request->value.len);
        fuzz_require(str_to_int64(text, INT64_MIN, INT64_MAX, &delta));
    }
    note_waiting(world, request->channel, false);
}

static void expect_json(const ProtobufCBinaryData *bytes, int type) {
    json_error_t error;
    json_t *value = json_loadb((const char *)bytes->data, bytes->len, JSON_DECODE_ANY, &error);
    fuzz_require(value != NULL && (type < 0 || (int)json_typeof(value) == type));
    json_decref(value);
}

static void hear_report(struct world *world, const Wire__Report *report) {
    fuzz_require(report->rank < WORKERS && memchr(report->name, '/', strlen(report->name)) == NULL);
    switch (report->kind) {
    case WIRE__REPORT__KIND__METRICS:
    case WIRE__REPORT__KIND__BEGIN:
        fuzz_require(report->number == ++world->reports[report->rank]);
        expect_json(&report->metrics, JSON_OBJECT);
        break;
    case WIRE__REPORT__KIND__COMMIT:
        expect_json(&report->files, -1);
        note_waiting(world, report->channel, true);
        break;
    case WIRE__REPORT__KIND__LIST:
        note_waiting(world, report->channel, false);
        break;
    default:
        fuzz_require(report->number <= world->reports[report->rank]);
    }
    fuzz_require(report->number <= world->reports[report->rank]);
}

static void hear_event(struct world *world, const Wire__WorkerEvent *event) {
    fuzz_require(event->rank < WORKERS);
    if (event->kind == WIRE__WORKER_EVENT__KIND__READY) fuzz_require(++world->ready[event->rank] == 1);
    if (event->kind == WIRE__WORKER_EVENT__KIND__FAILED) expect_json(&event->tail, JSON_OBJECT);
}

static void hear_message(struct world *world, const Wire__Message *message) {
    switch (message->body_case) {
    case WIRE__MESSAGE__BODY_HELLO:
    case WIRE__MESSAGE__BODY_LOG:
        break;
    case WIRE__MESSAGE__BODY_STORE_REQUEST:
        hear_request(world, message->store_request);
        break;
    case WIRE__MESSAGE__BODY_REPORTS:
        for (size_t i = 0; i < message->reports->n_reports; i++)
            hear_report(world, message->reports->reports[i]);
        break;
    case WIRE__MESSAGE__BODY_EVENTS:
        for (size_t i = 0; i < message->events->n_events; i++)
            hear_event(world, message->events->events[i]);
        break;
    default:
        fuzz_require(!"a message that no worker causes");
    }
}

/* Everything that the agent has sent. */
static void hear(struct world *world) {
    char *to;
    ssize_t n = 0;
    do {
        world->heard.size += (size_t)n;
        to = buffer_reserve(&world->heard, 64 << 10);
        fuzz_require(to != NULL);
        n = recv(world->controller, to, 64 << 10, MSG_DONTWAIT);
    } while (n > 0);
    size_t at = 0;
    struct frame frame;
    int64_t size = 0;
    while ((size = frame_next((uint8_t *)world->heard.data + at, world->heard.size - at, FRAME_MAX, &frame,
                              NULL)) > 0) {
        Wire__Message *message = frame_unpack(&frame, NULL);
        fuzz_require(message != NULL);
        hear_message(world, message);
        wire__message__free_unpacked(message, NULL);
        at += (size_t)size;
    }
    fuzz_require(size == 0);
    if (at > 0) buffer_consume(&world->heard, at);
}

static void answer_commit(struct world *world, uint32_t channel) {
    Wire__Committed committed = WIRE__COMMITTED__INIT;
    unsigned how = take(world);
    committed.channel = channel;
    committed.path = how % 2 == 0 ? "/place" : "";
    committed.error = how % 3 == 0 ? "no\nroom" : "";
    worker_channels_committed(&world->all, &committed);
}

/* In one part or several, for one channel or all that wait for the store. */
static void answer_store(struct world *world, uint32_t channel) {
    unsigned how = take(world);
    size_t size = (size_t)take(world) * (how & 8 ? 1 << 13 : 1);
    CLEANUP_FREE uint8_t *bytes = malloc(size + 1);
    fuzz_require(bytes != NULL && size <= ANSWER_MAX);
    memset(bytes, 'v', size);
    for (size_t at = 0, part; at <= size; at += part > 0 ? part : 1) {
        Wire__Answer answer = WIRE__ANSWER__INIT;
        part = how & 16 && size - at > 1 ? (size - at) / 2 : size - at;
        answer.status = (Wire__Answer__Status)(how % 6);
        answer.size = size;
        answer.value = (ProtobufCBinaryData){part, bytes + at};
        answer.channels = &channel;
        answer.n_channels = at + part == size;
        worker_channels_answer(&world->all, &answer);
        if (at + part == size) break;
    }
}

static void answer(struct world *world) {
    if (world->n_waiting == 0) return;
    unsigned which = take(world) % world->n_waiting;
    uint32_t channel = world->waiting[which].channel;
    bool commit = world->waiting[which].commit;
    world->waiting[which] = world->waiting[--world->n_waiting];
    if (commit)
        answer_commit(world, channel);
    else
        answer_store(world, channel);
}

/* -- the worker's processes */

static void send_bytes(const struct client *client, const void *bytes, size_t size) {
    if (client->fd >= 0 && size > 0) (void)send(client->fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void send_text(struct world *world, const struct client *client) {
    size_t size = take(world);
    if (size > world->size) size = world->size;
    send_bytes(client, world->data, size);
    world->data += size;
    world->size -= size;
}

static void send_many(struct world *world, const struct client *client) {
    static char bytes[16 << 10];
    memset(bytes, (int)take(world), sizeof bytes);
    send_bytes(client, bytes, (take(world) + 1) * 64);
}

/* A line with a descriptor: that of a new channel, or of something else. */
static void send_descriptor(struct world *world, const struct client *from) {
    int fds[2];
    unsigned kind = take(world);
    struct client *made = &world->clients[kind / 4 % ENDS];
    struct iovec text = {.iov_base = (char *)(kind & 1 ? "open\n" : "rea"), .iov_len = kind & 1 ? 5 : 3};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct msghdr message = {.msg_iov = &text,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    if (from->fd < 0) return;
    fuzz_require(socketpair(AF_UNIX, kind & 2 ? SOCK_STREAM : SOCK_DGRAM, 0, fds) == 0);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header =
        (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(header), &fds[1], sizeof(int));
    (void)sendmsg(from->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)close(fds[1]);
    if (made->fd < 0)
        made->fd = fds[0];
    else
        (void)close(fds[0]);
}

static bool begins(const char *line, const char *word) {
    size_t size = strlen(word);
    return strncmp(line, word, size) == 0 && (line[size] == ' ' || line[size] == '\0');
}

/* One line of an answer; the bytes of a value follow. */
static void expect_answer(struct client *client, const char *line) {
    static const char *const words[] = {"value", "ok", "none", "timeout", "error", "failed", "directory"};
    size_t i = 0;
    int64_t size;
    while (i < ARRAY_SIZE(words) && !begins(line, words[i]))
        i++;
    fuzz_require(i < ARRAY_SIZE(words));
    if (i > 0) return;
    fuzz_require(str_to_int64(line + strlen("value "), 0, ANSWER_MAX, &size));
    client->value = (size_t)size;
}

static void read_answers(struct client *client) {
    char *to = client->fd < 0 ? NULL : buffer_reserve(&client->in, 64 << 10);
    ssize_t n = to == NULL ? 0 : recv(client->fd, to, 64 << 10, MSG_DONTWAIT);
    if (n <= 0) return;
    client->in.size += (size_t)n;
    while (client->in.size > 0) {
        size_t value = client->value < client->in.size ? client->value : client->in.size;
        buffer_consume(&client->in, value);
        client->value -= value;
        char *end = client->in.size == 0 ? NULL : memchr(client->in.data, '\n', client->in.size);
        if (client->value > 0 || end == NULL) break;
        *end = '\0';
        expect_answer(client, client->in.data);
        buffer_consume(&client->in, (size_t)(end - client->in.data) + 1);
    }
}

static void close_client(struct client *client) {
    if (client->fd >= 0) (void)close(TAKE_FD(client->fd));
    buffer_done(&client->in);
    client->value = 0;
}

/* -- the agent */

static void on_ended(void *context) {
    (void)context;
}

static void on_failed(void *context, const char *traceback) {
    (void)context;
    fuzz_require(traceback != NULL);
}

static void on_message(void *context, const Wire__Message *message) {
    (void)context;
    (void)message;
}

static void on_output(void *context, uint32_t rank, int stream, const uint8_t *bytes, size_t size) {
    (void)context, (void)rank, (void)stream, (void)bytes, (void)size;
}

static void on_drained(void *context) {
    struct world *world = context;
    outbox_wake(&world->outbox);
}

static void on_closed(void *context, const ty_error *reason) {
    (void)context;
    fuzz_require(reason == NULL);
}

/* The end of a turn, as in agent/node_run.c. */
static void on_turn_end(void *context) {
    struct world *world = context;
    outbox_flush(&world->outbox);
    fuzz_require(!world->outbox.failed);
    for (int rank = 0; rank < WORKERS; rank++)
        for (struct worker_channel *channel = world->speakers[rank].channels; channel != NULL;
             channel = channel->next)
            fuzz_require(channel->in.size <= ROOM && channel->out.size <= ROOM &&
                         channel->n_fds <= CHANNEL_FDS);
}

static void turn(struct world *world, unsigned n) {
    while (n-- > 0)
        (void)loop_turn(world->loop, false);
    on_turn_end(world);
    hear(world);
}

static void open_world(struct world *world) {
    static const struct channel_events events = {
        .message = on_message, .output = on_output, .drained = on_drained, .closed = on_closed};
    int fds[2];
    world->loop = world->outbox.loop = loop_create(NULL);
    fuzz_require(world->loop != NULL && socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    fuzz_require(channel_create(world->loop, fds[0], &events, world, &world->outbox.channel, NULL) == 0);
    world->controller = fds[1];
    world->all = (struct worker_channels){
        .outbox = &world->outbox, .run_path = "/run", .attempt = 1, .storage = &world->storage};
    world->storage = (struct node_storage){.outbox = &world->outbox, .channels = &world->all};
    loop_on_turn_end(world->loop, on_turn_end, world);
    Wire__Hello hello = WIRE__HELLO__INIT;
    outbox_send(&world->outbox, &WIRE_MESSAGE(HELLO, hello, &hello));
    for (int i = 0; i < ENDS; i++)
        world->clients[i].fd = -1;
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        world->speakers[rank] =
            (struct speaker){.all = &world->all, .rank = rank, .ended = on_ended, .failed = on_failed};
        fuzz_require(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
        fuzz_require(speaker_start(&world->speakers[rank], fds[0], NULL) == 0);
        world->clients[rank].fd = fds[1];
    }
}

static void close_world(struct world *world) {
    world->all.preemption = NULL;
    for (int rank = 0; rank < WORKERS; rank++) {
        speaker_take(&world->speakers[rank]);
        speaker_finish(&world->speakers[rank]);
    }
    turn(world, 2);
    for (int rank = 0; rank < WORKERS; rank++)
        speaker_done(&world->speakers[rank]);
    fuzz_require(world->all.answer_bytes ==
                 (world->all.arriving.value != NULL ? world->all.arriving.value->size : 0));
    worker_channels_done(&world->all);
    outbox_done(&world->outbox);
    channel_destroy(world->outbox.channel);
    for (int i = 0; i < ENDS; i++)
        close_client(&world->clients[i]);
    (void)close(world->controller);
    buffer_done(&world->heard);
    while (loop_turn(world->loop, false)) {
    }
    loop_destroy(world->loop);
}

static void move(struct world *world) {
    unsigned what = take(world);
    struct client *client = &world->clients[what / 16 % ENDS];
    switch (what % 16) {
    case 0:
        send_many(world, client);
        break;
    case 1:
    case 2:
        send_descriptor(world, client);
        break;
    case 3:
        read_answers(client);
        break;
    case 4:
        close_client(client);
        break;
    case 5:
    case 6:
    case 7:
        turn(world, 1);
        answer(world);
        break;
    case 8:
        turn(world, 1 + take(world) % 4);
        break;
    case 9:
        world->all.preemption = world->all.preemption == NULL ? "{\"deadline\": 1}" : NULL;
        break;
    case 10:
        speaker_take(&world->speakers[take(world) % WORKERS]);
        break;
    default:
        send_text(world, client);
        turn(world, 1);
    }
}

/* The lowest free descriptor is higher when one was left open. */
static int lowest_free(void) {
    int fd = dup(STDIN_FILENO);
    fuzz_require(fd >= 0);
    (void)close(fd);
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct world world = {.data = data, .size = size};
    static bool warm;
    int before = lowest_free();
    open_world(&world);
    while (world.size > 0)
        move(&world);
    close_world(&world);
    if (warm) fuzz_require(lowest_free() == before);
    warm = true;
    return 0;
}
