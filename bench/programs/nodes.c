/* nodes agents N SECONDS [gather]: N agents, that are sockets of one child and no processes, join a rendezvous
 * with TLS, beat for SECONDS and leave; with `gather` they first gather 64 bytes of each of them.
 * nodes floor N SECONDS: as many bare sockets, each of which says 64 bytes a second to an epoll and hears 64.
 * nodes stream MIB: through one channel with TLS. nodes plain MIB: through a socket.
 *
 * Prints numbers of the process that listens, one "name value" a line. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/module.h"
#include "cluster/cluster.h"
#include "controller/answers.h"
#include "engine/address.h"
#include "engine/description.h"
#include "engine/rendezvous.h"
#include "wire/tls.h"

enum { AT_ONCE = 64, SOURCES = 8, SAID = 64, CHUNK = 256 << 10 };

static void fail(const char *what, const ty_error *err) {
    (void)fprintf(stderr, "nodes: %s: %s\n", what, err != NULL ? err->message : strerror(errno));
    exit(1);
}

static double cpu_seconds(void) {
    struct rusage used;
    (void)getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static double now(void) {
    return (double)clock_monotonic() / NS_PER_S;
}

static long resident_kib(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file != NULL && fscanf(file, "%*d %ld", &pages) != 1) pages = 0;
    if (file != NULL) (void)fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void allow_descriptors(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* One source address has too few ports to be searched fast. */
static int connect_from(uint32_t rank, uint16_t port) {
    int one = 1;
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000002 + rank % SOURCES)};
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    if (fd < 0 || bind(fd, (struct sockaddr *)&from, sizeof from) < 0 ||
        connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
        fail("connect", NULL);
    address_prepare(fd);
    return fd;
}

static int listen_here(uint16_t *port) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&here, sizeof here) < 0 || listen(fd, 4096) < 0)
        fail("listen", NULL);
    *port = address_port_of_socket(fd);
    return fd;
}

/* -- agents: the child */

struct crowd {
    struct loop *loop;
    const struct run_key *key;
    uint16_t port;
    uint32_t n, next, joining, left, gathered;
    int told; /* a byte when all have gathered */
    struct cluster *cluster;
    struct agent *agents;
};

struct agent {
    struct crowd *crowd;
    uint32_t rank;
    struct transport transport;
    struct loop_watch watch;
    struct channel *channel;
};

static void gather(struct agent *agent) {
    uint8_t value[SAID] = {0};
    Wire__StoreRequest body = WIRE__STORE_REQUEST__INIT;
    body.operation = WIRE__STORE_REQUEST__OPERATION__GATHER;
    body.rank = agent->rank;
    body.key = (char *)"all";
    body.value = (ProtobufCBinaryData){sizeof value, value};
    body.timeout_ms = -1;
    (void)channel_send(agent->channel, &WIRE_MESSAGE(STORE_REQUEST, store_request, &body));
    channel_flush(agent->channel);
}

static void agent_hears(void *context, const Wire__Message *message) {
    struct agent *agent = context;
    struct crowd *crowd = agent->crowd;
    if (message->body_case == WIRE__MESSAGE__BODY_START) gather(agent);
    bool whole = message->body_case == WIRE__MESSAGE__BODY_ANSWER && message->answer->n_channels > 0;
    if (whole && ++crowd->gathered == crowd->n && write(crowd->told, "", 1) != 1) fail("tell", NULL);
}

static void no_output(void *context, uint32_t rank, int stream, const uint8_t *bytes, size_t size) {
    (void)context, (void)rank, (void)stream, (void)bytes, (void)size;
}

static void agent_ends(void *context, const ty_error *reason) {
    (void)reason;
    struct agent *agent = context;
    channel_destroy(TAKE(agent->channel));
    agent->crowd->left--;
}

static void join(struct agent *agent) {
    static const struct channel_events events = {
        .message = agent_hears, .output = no_output, .closed = agent_ends};
    struct crowd *crowd = agent->crowd;
    char name[24];
    ty_error err = {0};
    Wire__Join body = WIRE__JOIN__INIT;
    (void)snprintf(name, sizeof name, "n%u", agent->rank);
    if (channel_create_over(crowd->loop, &agent->transport, &events, agent, &agent->channel, &err) < 0 ||
        description_make(&crowd->cluster->nodes[0], &body, &err) < 0)
        fail("join", &err);
    body.protocol = FRAME_PROTOCOL;
    body.version = (char *)base_build;
    body.node_rank = agent->rank;
    body.node_name = name;
    body.pid = getpid();
    body.time = clock_wall();
    (void)channel_send(agent->channel, &WIRE_MESSAGE(JOIN, join, &body));
    channel_keep_alive(agent->channel, CHANNEL_LEASED);
    description_done(&body);
}

static void begin_some(struct crowd *crowd);

static void shake_hands(void *context, unsigned events) {
    (void)events;
    struct agent *agent = context;
    bool writable;
    ty_error err = {0};
    int result = tls_shake_hands(agent->transport.tls, &writable, &err);
    if (result < 0) fail("handshake", &err);
    loop_watch_start(agent->crowd->loop, &agent->watch, agent->transport.fd,
                     writable ? LOOP_WRITABLE : LOOP_READABLE);
    if (result == 0) return;
    loop_watch_stop(agent->crowd->loop, &agent->watch);
    join(agent);
    agent->crowd->joining--;
    begin_some(agent->crowd);
}

static void begin_some(struct crowd *crowd) {
    while (crowd->joining < AT_ONCE && crowd->next < crowd->n) {
        struct agent *agent = &crowd->agents[crowd->next];
        ty_error err = {0};
        *agent = (struct agent){.crowd = crowd, .rank = crowd->next++};
        agent->transport = TRANSPORT_PLAIN(connect_from(agent->rank, crowd->port));
        agent->watch = (struct loop_watch){.callback = shake_hands, .context = agent};
        crowd->joining++;
        (void)fcntl(agent->transport.fd, F_SETFL, O_NONBLOCK);
        if (tls_connect(crowd->key, agent->rank, agent->transport.fd, &agent->transport.tls, &err) < 0)
            fail("TLS", &err);
        if (loop_watch_start(crowd->loop, &agent->watch, agent->transport.fd, LOOP_WRITABLE) < 0)
            fail("watch", NULL);
    }
}

static void be_agents(const struct run_key *key, uint16_t port, uint32_t n, int told) {
    struct cluster_overrides one = {.num_cpus = 1, .num_gpus = 0};
    ty_error err = {0};
    struct crowd crowd = {.loop = loop_create(&err), .key = key, .port = port, .n = n, .left = n, .told = told};
    crowd.agents = calloc(n, sizeof *crowd.agents);
    if (crowd.loop == NULL || crowd.agents == NULL || cluster_probe(&one, &crowd.cluster, &err) < 0)
        fail("agents", &err);
    begin_some(&crowd);
    while (crowd.left > 0)
        (void)loop_turn(crowd.loop, true);
    _exit(0);
}

/* -- agents: the controller's end */

struct bench_site {
    struct loop *loop;
    struct rendezvous *rendezvous;
    struct store *store;
    struct member *members;
    uint32_t n;
    int told;
    bool over;
};

struct member {
    struct bench_site *site;
    struct channel *channel;
    struct answers answers;
    char name[24];
};

static void answer(void *context, uint32_t node, uint32_t channel, enum store_status status,
                   struct shared *value) {
    struct member *member = &((struct bench_site *)context)->members[node];
    if (status != STORE_OK || answers_add(&member->answers, channel, status, value) < 0) fail("gather", NULL);
    answers_send(&member->answers, member->channel);
    channel_flush(member->channel);
}

static void member_says(void *context, const Wire__Message *message) {
    struct member *member = context;
    const Wire__StoreRequest *body = message->store_request;
    if (message->body_case != WIRE__MESSAGE__BODY_STORE_REQUEST) return;
    struct store_request request = {.operation = STORE_GATHER,
                                    .rank = body->rank,
                                    .node = (uint32_t)(member - member->site->members),
                                    .key = body->key,
                                    .value = body->value.data,
                                    .size = body->value.len,
                                    .timeout = -1};
    store_ask(member->site->store, &request, clock_monotonic());
}

static void member_has_room(void *context) {
    struct member *member = context;
    answers_send(&member->answers, member->channel);
    channel_flush(member->channel);
}

static void member_leaves(void *context, const ty_error *reason) {
    (void)context;
    fail("an agent has left", reason);
}

static void end_wait(void *context) {
    ((struct bench_site *)context)->over = true;
}

static void on_told(void *context, unsigned events) {
    (void)events;
    end_wait(context);
}

static void gather_all(struct bench_site *site) {
    static const struct channel_events events = {
        .message = member_says, .output = no_output, .drained = member_has_room, .closed = member_leaves};
    static size_t bytes;
    struct loop_watch told = {.callback = on_told, .context = site};
    ty_error err = {0};
    double began = now();
    site->store = store_create(site->n, &bytes, answer, site);
    site->members = calloc(site->n, sizeof *site->members);
    for (uint32_t i = 0; i < site->n; i++) {
        struct member *member = &site->members[i];
        Wire__Start start = WIRE__START__INIT;
        start.node = i;
        member->site = site;
        (void)snprintf(member->name, sizeof member->name, "n%u", i);
        if (rendezvous_take(site->rendezvous, member->name, &start, &member->channel, &err) < 0)
            fail("take", &err);
        channel_adopt(member->channel, &events, member);
    }
    (void)loop_watch_start(site->loop, &told, site->told, LOOP_READABLE);
    while (!site->over)
        (void)loop_turn(site->loop, true);
    loop_watch_stop(site->loop, &told);
    (void)printf("gather_s %.4f\n", now() - began);
    for (uint32_t i = 0; i < site->n; i++)
        rendezvous_give_back(site->rendezvous, site->members[i].name, site->members[i].channel, NULL);
    store_destroy(site->store);
}

static void beat(struct bench_site *site, long seconds) {
    struct loop_timer end = {.callback = end_wait, .context = site};
    double spent = cpu_seconds(), began = now();
    site->over = false;
    (void)loop_timer_start(site->loop, &end, seconds * NS_PER_S);
    while (!site->over)
        (void)loop_turn(site->loop, true);
    (void)printf("beat_cpu %.6f\n", (cpu_seconds() - spent) / (now() - began));
}

static int agents(uint32_t n, long seconds, bool with_gather) {
    struct run_key key;
    struct bench_site site = {.n = n};
    int told[2];
    ty_error err = {0};
    site.loop = loop_create(&err);
    if (site.loop == NULL || key_make(&key, &err) < 0 || pipe(told) < 0) fail("agents", &err);
    struct rendezvous_config config = {.loop = site.loop,
                                       .listen = "127.0.0.1:0",
                                       .key = &key,
                                       .min_nodes = n,
                                       .max_nodes = n,
                                       .limit = 120 * NS_PER_S};
    if (rendezvous_open(&config, &site.rendezvous, &err) < 0) fail("rendezvous", &err);
    long before = resident_kib();
    double began = now(), spent = cpu_seconds();
    uint16_t port = (uint16_t)atoi(strrchr(rendezvous_addresses(site.rendezvous), ':') + 1);
    site.told = told[0];
    pid_t child = fork();
    if (child == 0) be_agents(&key, port, n, told[1]);
    if (child < 0 || rendezvous_wait(site.rendezvous, &err) < 0) fail("wait", &err);
    (void)printf("join_s %.4f\njoin_cpu %.4f\n", now() - began, cpu_seconds() - spent);
    if (with_gather) gather_all(&site);
    beat(&site, 2); /* what the joins and the gather used is given back */
    if (seconds > 0) beat(&site, seconds);
    (void)printf("resident_kib %ld\neach_kib %.2f\n", resident_kib(), (double)(resident_kib() - before) / n);
    began = now();
    rendezvous_close(site.rendezvous, 0);
    int status = 1;
    if (waitpid(child, &status, 0) != child || status != 0) fail("the agents", NULL);
    (void)printf("leave_s %.4f\n", now() - began);
    return 0;
}

/* -- the floor of those */

static void say_each_second(uint16_t port, int n) {
    int *fds = calloc((size_t)n, sizeof *fds);
    char bytes[SAID] = {0};
    for (int i = 0; i < n; i++)
        fds[i] = connect_from((uint32_t)i, port);
    double began = now();
    for (long said = 0;;) {
        for (long due = (long)((now() - began) * n); said < due; said++) {
            int fd = fds[said % n];
            (void)recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
            if (send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) < 0) _exit(0);
        }
        (void)poll(NULL, 0, 1);
    }
}

static int bare(int n, long seconds) {
    uint16_t port;
    int listener = listen_here(&port), epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event events[256];
    char bytes[SAID];
    pid_t child = fork();
    if (child == 0) say_each_second(port, n);
    for (int i = 0; i < n; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, event.data.fd, &event) < 0) fail("accept", NULL);
    }
    double began = now(), spent = cpu_seconds();
    while (now() - began < (double)seconds) {
        int ready = epoll_wait(epoll, events, 256, 100);
        for (int i = 0; i < ready; i++) {
            ssize_t size = recv(events[i].data.fd, bytes, sizeof bytes, 0);
            if (size > 0) (void)send(events[i].data.fd, bytes, (size_t)size, MSG_NOSIGNAL);
        }
    }
    (void)printf("beat_cpu %.6f\n", (cpu_seconds() - spent) / (now() - began));
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    return 0;
}

/* -- bytes */

struct stream {
    struct channel *channel;
    size_t left;
    bool over;
};

static void no_message(void *context, const Wire__Message *message) {
    (void)context, (void)message;
}

static void take_bytes(void *context, uint32_t rank, int stream, const uint8_t *bytes, size_t size) {
    (void)rank, (void)stream, (void)bytes;
    ((struct stream *)context)->left -= size;
}

static void end_stream(void *context, const ty_error *reason) {
    (void)reason;
    ((struct stream *)context)->over = true;
}

static void send_more(void *context) {
    static const char bytes[CHUNK];
    struct stream *stream = context;
    while (stream->left > 0 && !channel_full(stream->channel)) {
        struct buffer *out = channel_out(stream->channel);
        size_t frame = frame_output_begin(out, 0, 1);
        buffer_append(out, bytes, sizeof bytes);
        frame_output_end(out, frame);
        stream->left -= sizeof bytes;
    }
}

/* Both ends: who sends is over when all of it is written. */
static void run_stream(struct transport *transport, size_t size, bool sends) {
    static const struct channel_events events = {
        .message = no_message, .output = take_bytes, .drained = send_more, .closed = end_stream};
    struct stream stream = {.left = size};
    ty_error err = {0};
    struct loop *loop = loop_create(&err);
    if (loop == NULL || channel_create_over(loop, transport, &events, &stream, &stream.channel, &err) < 0)
        fail("stream", &err);
    channel_keep_alive(stream.channel, CHANNEL_JUDGES);
    while (!stream.over && stream.left > 0) {
        if (sends) send_more(&stream);
        if (sends) channel_flush(stream.channel);
        (void)loop_turn(loop, true);
    }
    while (sends && !channel_empty(stream.channel))
        (void)loop_turn(loop, true);
    while (sends && !stream.over) /* the other end closes first */
        (void)loop_turn(loop, true);
    channel_destroy(stream.channel);
}

static void greet(struct transport *transport) {
    bool writable;
    ty_error err = {0};
    while (tls_shake_hands(transport->tls, &writable, &err) == 0) {
    }
    if (err.code < 0) fail("handshake", &err);
}

static void send_plain(int fd, size_t size) {
    static const char bytes[CHUNK];
    while (size > 0) {
        ssize_t n = send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
        if (n < 0) fail("send", NULL);
        size -= (size_t)n;
    }
}

static void take_plain(int fd, size_t size) {
    static char bytes[CHUNK];
    for (ssize_t n; size > 0; size -= (size_t)n)
        if ((n = recv(fd, bytes, sizeof bytes, 0)) <= 0) fail("recv", NULL);
}

static int stream(size_t size, bool with_tls) {
    uint16_t port;
    struct run_key key;
    struct tls_server *server = NULL;
    ty_error err = {0};
    int listener = listen_here(&port);
    if (key_make(&key, &err) < 0 || tls_server_create(&key, &server, &err) < 0) fail("stream", &err);
    pid_t child = fork();
    struct transport transport =
        TRANSPORT_PLAIN(child == 0 ? connect_from(0, port) : accept(listener, NULL, NULL));
    if (with_tls) {
        int result = child == 0 ? tls_connect(&key, 0, transport.fd, &transport.tls, &err)
                                : tls_accept(server, transport.fd, &transport.tls, &err);
        if (result < 0) fail("TLS", &err);
        greet(&transport);
    }
    double began = now();
    if (with_tls)
        run_stream(&transport, size, child == 0);
    else
        (child == 0 ? send_plain : take_plain)(transport.fd, size);
    if (child == 0) _exit(0);
    struct rusage used;
    double seconds = now() - began;
    (void)waitpid(child, NULL, 0);
    (void)getrusage(RUSAGE_CHILDREN, &used);
    (void)printf("mib_s %.1f\ncpu_here %.4f\ncpu_there %.4f\n", (double)(size >> 20) / seconds, cpu_seconds(),
                 (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                     (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6);
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 2 ? argv[1] : "";
    long n = argc > 2 ? atol(argv[2]) : 0, seconds = argc > 3 ? atol(argv[3]) : 0;
    allow_descriptors();
    (void)signal(SIGPIPE, SIG_IGN);
    if (n > 0 && strcmp(what, "agents") == 0) return agents((uint32_t)n, seconds, argc > 4);
    if (n > 0 && strcmp(what, "floor") == 0) return bare((int)n, seconds);
    if (n > 0 && strcmp(what, "stream") == 0) return stream((size_t)n << 20, true);
    if (n > 0 && strcmp(what, "plain") == 0) return stream((size_t)n << 20, false);
    (void)fprintf(stderr,
                  "usage: nodes agents N SECONDS [gather] | floor N SECONDS | stream MIB | plain MIB\n");
    return 2;
}
