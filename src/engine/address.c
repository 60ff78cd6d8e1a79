/* Addresses: HOST:PORT taken apart and resolved by getaddrinfo, shown, asked of sockets and of this machine's
 * interfaces. Whose a socket of this machine is stands in /proc/net/tcp: without a key a rendezvous is for one
 * user's processes, and an address does not tell whose it is. Who is let in is decided elsewhere (gate.c). */
#include "engine/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/str.h"
#include "wire/key.h"

/* -- text */

int address_parse(const char *text, struct address_name *name, ty_error *err) {
    static const char FORM[] = "HOST:PORT, as in node-0:29400 or [2001:db8::1]:29400";
    const char *colon = strrchr(text, ':'), *end = colon;
    const char *begin = text;
    int64_t port;
    if (colon == NULL) return ty_fail(err, TY_EUSAGE, "\"%.200s\" has no port: %s", text, FORM);
    if (*begin == '[' && end > begin && end[-1] == ']') {
        begin++;
        end--;
    } else if (memchr(begin, ':', (size_t)(end - begin)) != NULL) {
        return ty_fail(err, TY_EUSAGE, "\"%.200s\": an IPv6 address stands in brackets: %s", text, FORM);
    }
    size_t size = (size_t)(end - begin);
    if (size == 0 || size >= sizeof name->host || strcspn(begin, " \t\r\n") < size)
        return ty_fail(err, TY_EUSAGE, "\"%.200s\" has no host: %s", text, FORM);
    if (!str_to_int64(colon + 1, 0, UINT16_MAX, &port))
        return ty_fail(err, TY_EUSAGE, "\"%.200s\": a port is a number from 0 to 65535", text);
    memcpy(name->host, begin, size);
    name->host[size] = '\0';
    name->port = (uint16_t)port;
    unsigned char bytes[sizeof(struct in6_addr)];
    name->literal = inet_pton(AF_INET, name->host, bytes) == 1 || strchr(name->host, ':') != NULL;
    return 0;
}

const char *address_next(const char *list, char *one, size_t size) {
    size_t length = strcspn(list, ",");
    (void)snprintf(one, size, "%.*s", (int)length, list);
    return list[length] == ',' ? list + length + 1 : NULL;
}

void address_format(const struct address *address, char text[64]) {
    char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "";
    (void)getnameinfo((const struct sockaddr *)&address->socket, address->size, host, sizeof host, port,
                      sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    bool v6 = address->socket.ss_family == AF_INET6;
    (void)snprintf(text, 64, "%s%.52s%s:%.6s", v6 ? "[" : "", host, v6 ? "]" : "", port);
}

/* An IPv4 peer of a socket that serves both families has the form ::ffff:10.0.0.1, and is called as others call
 * it. */
static void format_host(const struct sockaddr_storage *name, socklen_t size, char text[64]) {
    char host[NI_MAXHOST] = "";
    (void)getnameinfo((const struct sockaddr *)name, size, host, sizeof host, NULL, 0, NI_NUMERICHOST);
    bool mapped = strncmp(host, "::ffff:", 7) == 0 && strchr(host, '.') != NULL;
    (void)snprintf(text, 64, "%.63s", mapped ? host + 7 : host);
}

void address_format_host(const struct address *address, char text[64]) {
    format_host(&address->socket, address->size, text);
}

void address_of_peer(int fd, char text[64]) {
    struct sockaddr_storage name = {0};
    socklen_t size = sizeof name;
    text[0] = '\0';
    if (getpeername(fd, (struct sockaddr *)&name, &size) == 0) format_host(&name, size, text);
}

void address_of_socket(int fd, char text[64]) {
    struct sockaddr_storage name = {0};
    socklen_t size = sizeof name;
    text[0] = '\0';
    if (getsockname(fd, (struct sockaddr *)&name, &size) == 0) format_host(&name, size, text);
}

uint16_t address_port_of_socket(int fd) {
    struct sockaddr_storage name = {0};
    socklen_t size = sizeof name;
    (void)getsockname(fd, (struct sockaddr *)&name, &size);
    return name.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&name)->sin6_port)
                                      : ntohs(((struct sockaddr_in *)&name)->sin_port);
}

/* -- addresses */

static const struct in6_addr *v6_of(const struct address *address) {
    return &((const struct sockaddr_in6 *)&address->socket)->sin6_addr;
}

bool address_of_interface(const struct ifaddrs *from, struct address *address) {
    bool usable = (from->ifa_flags & IFF_UP) != 0 && (from->ifa_flags & IFF_LOOPBACK) == 0;
    if (!usable || !address_of(from->ifa_addr, address)) return false;
    return address->socket.ss_family != AF_INET6 || !IN6_IS_ADDR_LINKLOCAL(v6_of(address));
}

/* ::ffff:10.0.0.1 is IPv4: a socket of IPv6 alone has it not. */
bool address_of(const struct sockaddr *from, struct address *address) {
    if (from == NULL || (from->sa_family != AF_INET && from->sa_family != AF_INET6)) return false;
    *address = (struct address){0};
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)from;
    if (from->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
        struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = six->sin6_port};
        memcpy(&four.sin_addr, &six->sin6_addr.s6_addr[12], sizeof four.sin_addr);
        return address_of((const struct sockaddr *)&four, address);
    }
    address->size = from->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    memcpy(&address->socket, from, address->size);
    return true;
}

bool address_is_loopback(const struct address *address) {
    if (address->socket.ss_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK(v6_of(address));
    return ntohl(((const struct sockaddr_in *)&address->socket)->sin_addr.s_addr) >> 24 == 127;
}

void address_set_port(struct address *address, uint16_t port) {
    if (address->socket.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&address->socket)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)&address->socket)->sin_port = htons(port);
}

int address_resolve(const struct address_name *name, struct address_list *list, ty_error *err) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found = NULL;
    int result = getaddrinfo(name->host, NULL, &hints, &found);
    if (result != 0)
        return ty_fail(err, TY_EUSAGE, "host \"%s\" is not known here: %s", name->host, gai_strerror(result));
    static const int families[] = {AF_INET, AF_INET6};
    list->n = 0;
    for (size_t i = 0; i < ARRAY_SIZE(families); i++)
        for (struct addrinfo *one = found; one != NULL && list->n < ADDRESS_LIST_MAX; one = one->ai_next) {
            if (one->ai_family != families[i] || !address_of(one->ai_addr, &list->items[list->n])) continue;
            address_set_port(&list->items[list->n++], name->port);
        }
    freeaddrinfo(found);
    return list->n > 0 ? 0 : ty_fail(err, TY_EUSAGE, "host \"%s\" has no address", name->host);
}

void address_list_any(struct address_list *list, uint16_t port) {
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in four = {.sin_family = AF_INET};
    (void)address_of((const struct sockaddr *)&four, &list->items[0]);
    (void)address_of((const struct sockaddr *)&six, &list->items[1]);
    list->n = 2;
    address_set_port(&list->items[0], port);
    address_set_port(&list->items[1], port);
}

void address_interface(const char *address, char name[32]) {
    struct ifaddrs *all = NULL;
    name[0] = '\0';
    if (getifaddrs(&all) < 0) return;
    for (struct ifaddrs *one = all; one != NULL; one = one->ifa_next) {
        struct address found;
        char text[64];
        if ((one->ifa_flags & IFF_LOOPBACK) != 0 || !address_of(one->ifa_addr, &found)) continue;
        format_host(&found.socket, found.size, text);
        if (str_equal(text, address)) (void)snprintf(name, 32, "%.31s", one->ifa_name);
    }
    freeifaddrs(all);
}

int address_fail_keyless(const char *text, ty_error *err) {
    return ty_fail(err, TY_EUSAGE,
                   "no key: for %.100s, which others can reach, all nodes need the same one, in " KEY_VARIABLE
                   " or --key-file; `openssl rand -hex 32` makes one",
                   text);
}

void address_prepare(int fd) {
    int one = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    descriptors_withhold(fd);
}

/* -- whose a connection is */

/* As the kernel writes it there: words of the address in its own byte order. */
static void format_key(const struct sockaddr_storage *name, char text[64]) {
    const uint8_t *bytes = name->ss_family == AF_INET
                               ? (const uint8_t *)&((const struct sockaddr_in *)name)->sin_addr
                               : (const uint8_t *)&((const struct sockaddr_in6 *)name)->sin6_addr;
    uint16_t port = name->ss_family == AF_INET ? ((const struct sockaddr_in *)name)->sin_port
                                               : ((const struct sockaddr_in6 *)name)->sin6_port;
    size_t words = name->ss_family == AF_INET ? 1 : 4, at = 0;
    for (size_t i = 0; i < words; i++) {
        uint32_t word;
        memcpy(&word, bytes + 4 * i, sizeof word);
        at += (size_t)snprintf(text + at, 64 - at, "%08X", word);
    }
    (void)snprintf(text + at, 64 - at, ":%04X", ntohs(port));
}

/* A row of /proc/net/tcp. */
struct socket_row {
    char local[64], remote[64];
    unsigned state, user;
};

static bool read_row(FILE *file, struct socket_row *row) {
    char line[512];
    do {
        if (fgets(line, sizeof line, file) == NULL) return false;
    } while (sscanf(line, " %*d: %63s %63s %x %*x:%*x %*x:%*x %*x %u", row->local, row->remote, &row->state,
                    &row->user) != 4);
    return true;
}

static bool is_mine(const struct socket_row *row) {
    return row->user == geteuid() || row->user == 0;
}

/* The kernel lists both ends of a connection over loopback; the peer's is the row whose ends are ours
 * exchanged. One that has been closed since is in no row, and not ours. */
bool address_is_mine(int fd) {
    struct sockaddr_storage peer = {0}, own = {0};
    socklen_t peer_size = sizeof peer, own_size = sizeof own;
    char peer_key[64], own_key[64];
    struct socket_row row;
    if (getpeername(fd, (struct sockaddr *)&peer, &peer_size) < 0 ||
        getsockname(fd, (struct sockaddr *)&own, &own_size) < 0)
        return false;
    format_key(&peer, peer_key);
    format_key(&own, own_key);
    FILE *file = fopen(peer.ss_family == AF_INET ? "/proc/net/tcp" : "/proc/net/tcp6", "re");
    if (file == NULL) return false;
    bool mine = false;
    while (!mine && read_row(file, &row))
        mine = str_equal(row.local, peer_key) && str_equal(row.remote, own_key) && is_mine(&row);
    (void)fclose(file);
    return mine;
}

/* Of all who listen on the port, whichever address they listen on: which of them a connection would reach
 * depends on rules of the kernel that this need not know. */
bool address_is_served_by_me(const struct address *address) {
    static const char *const tables[] = {"/proc/net/tcp", "/proc/net/tcp6"};
    enum { LISTENS = 10 };
    char key[64];
    struct socket_row row;
    bool found = false, mine = true;
    format_key(&address->socket, key);
    const char *port = strrchr(key, ':');
    for (size_t i = 0; i < 2; i++) {
        FILE *file = fopen(tables[i], "re");
        while (file != NULL && read_row(file, &row)) {
            const char *colon = strrchr(row.local, ':');
            if (row.state != LISTENS || colon == NULL || !str_equal(colon, port)) continue;
            found = true;
            mine = mine && is_mine(&row);
        }
        if (file != NULL) (void)fclose(file);
    }
    return found && mine;
}
