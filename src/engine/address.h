/* HOST:PORT, and the addresses that it stands for; and what a connection tells of the two that hold its ends:
 * their addresses, and whose process of this machine each is. Nothing is connected here (gate.h listens,
 * join_node.c and way_back.c connect). */
#ifndef ENGINE_ADDRESS_H
#define ENGINE_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/error.h"

struct ifaddrs;

struct address {
    struct sockaddr_storage socket;
    socklen_t size;
};

enum { ADDRESS_LIST_MAX = 16 };
struct address_list {
    struct address items[ADDRESS_LIST_MAX];
    size_t n;
};

struct address_name {
    char host[256];
    uint16_t port;
    bool literal; /* numbers, not a name */
};

/* "10.0.0.1:29400", "node-0:29400", "[fe80::1%eth0]:29400". TY_EUSAGE says what is wrong. */
int address_parse(const char *text, struct address_name *name, ty_error *err);
/* Asks the resolver, which may take its time. IPv4 comes first, whatever the resolver prefers: of networks that
 * are as good MASTER_ADDR is of the one by which nodes came, and programs write MASTER_ADDR:MASTER_PORT. */
int address_resolve(const struct address_name *name, struct address_list *list, ty_error *err);
/* All of this machine: any IPv4, any IPv6. */
void address_list_any(struct address_list *list, uint16_t port);
/* The next of a list with commas goes to `one`; NULL behind the last. */
const char *address_next(const char *list, char *one, size_t size);

bool address_of(const struct sockaddr *from, struct address *address); /* false: neither IPv4 nor IPv6 */
bool address_is_loopback(const struct address *address);
void address_set_port(struct address *address, uint16_t port);
void address_format(const struct address *address, char text[64]);      /* with its port */
void address_format_host(const struct address *address, char text[64]); /* without */
/* Without the port: of the other end of a connection, and of ours. "" when it has none. */
void address_of_peer(int fd, char text[64]);
void address_of_socket(int fd, char text[64]);
uint16_t address_port_of_socket(int fd);
/* That of a network interface by which others may reach this machine: false for one that is down, for loopback,
 * and for addresses of one link. */
bool address_of_interface(const struct ifaddrs *from, struct address *address);

/* The network interface that has this address (no port); "" for loopback, or when none has it. */
void address_interface(const char *address, char name[32]);

/* For a connection between agent and controller: no delay for small messages, and no child's
 * (descriptors_withhold). */
void address_prepare(int fd);
/* TY_EUSAGE: that address needs a key, and how to make one. */
int address_fail_keyless(const char *text, ty_error *err);

/* The other end of a connection over loopback is a socket of this user's (or of root's). */
bool address_is_mine(int fd);
/* The same before anything is said to it: who listens on this port here is this user (or root). */
bool address_is_served_by_me(const struct address *address);

#endif
