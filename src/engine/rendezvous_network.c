/* Which network connects the nodes. Each node tries all addresses of those that are 1, 2, 4, .. ranks on, so
 * that the work of one hardly grows with their number, and each is tried by several others. An address is good
 * when all who tried it have reached it. Of the networks (an address without the bits of its host) that with
 * good addresses of most nodes is chosen, and of equals that by which more nodes came to the controller. A node
 * without a good address in it, as where each has a network of its own that is routed, is given the best of its
 * good ones; one without any keeps that by which it came, with a warning. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "engine/address.h"
#include "engine/description.h"
#include "engine/rendezvous_internal.h"
#include "engine/trial.h"

/* A node that says nothing does not hold up the others. */
#define TELL_LIMIT (TRIAL_LIMIT + NS_PER_S)
enum { ADDRESSES_TRIED = 8, NETWORKS_TOLD = 8, NODES_TOLD = 8 };

static const char *label_of(const struct slot *slot) {
    return slot->name != NULL ? slot->name : slot->rendezvous->local->nodes[0].name;
}

/* "10.0.0.0/24" of an address. */
static void network_of(const Wire__Address *address, char text[64]) {
    uint8_t bytes[16];
    char host[INET6_ADDRSTRLEN] = "";
    int family = strchr(address->address, ':') != NULL ? AF_INET6 : AF_INET;
    uint32_t size = family == AF_INET6 ? 128 : 32;
    uint32_t prefix = address->prefix < size ? address->prefix : size;
    text[0] = '\0';
    if (inet_pton(family, address->address, bytes) != 1) return;
    for (uint32_t bit = prefix; bit < size; bit++)
        bytes[bit / 8] &= (uint8_t) ~(0x80U >> bit % 8);
    (void)snprintf(text, 64, "%s/%u", inet_ntop(family, bytes, host, sizeof host), prefix);
}

/* -- tried */

/* The nodes that are there, by rank. */
struct party {
    struct slot **slots;
    uint32_t n;
};

static void on_own_tried(void *context, const Wire__Tried *told) {
    rendezvous_tried(context, told);
}

/* `own`: this machine's, that of the slot which has no channel. */
static int ask(const struct party *party, uint32_t i, struct network_trial *own, ty_error *err) {
    struct slot *slot = party->slots[i];
    Wire__TryTarget targets[TRIAL_TARGETS_MAX], *list[TRIAL_TARGETS_MAX];
    Wire__Try trial = WIRE__TRY__INIT;
    trial.targets = list;
    for (uint32_t distance = 1; distance < party->n; distance *= 2) {
        const struct slot *of = party->slots[(i + distance) % party->n];
        for (uint32_t k = 0; k < of->n_tried && trial.n_targets < TRIAL_TARGETS_MAX; k++) {
            if (ARRAY_GROW(slot->targets, slot->n_targets) < 0) return ty_fail_memory(err);
            slot->targets[slot->n_targets++] = (struct target){of->rank, k};
            Wire__TryTarget *target = list[trial.n_targets] = &targets[trial.n_targets];
            trial.n_targets++;
            wire__try_target__init(target);
            target->node_rank = of->rank;
            target->address = of->join->addresses[k]->address;
            target->port = of->join->trial_port;
        }
    }
    slot->rendezvous->n_trying += slot->targets != NULL;
    if (slot->targets == NULL) return 0;
    if (slot->channel == NULL) return trial_begin(own, &trial, on_own_tried, slot, err);
    (void)channel_send(slot->channel, &WIRE_MESSAGE(TRIAL, trial, &trial)); /* one that is lost is heard of */
    channel_flush(slot->channel);
    return 0;
}

/* Also of a node that leaves while it tries: the count of those that are waited for goes by its targets. */
static void forget_targets(struct slot *slot) {
    if (slot->targets != NULL && slot->rendezvous->n_trying > 0) slot->rendezvous->n_trying--;
    free(TAKE(slot->targets));
    slot->n_targets = 0;
}

void rendezvous_tried(struct slot *slot, const Wire__Tried *told) {
    const struct rendezvous *rendezvous = slot->rendezvous;
    for (size_t i = 0; i < told->n_faults && i < slot->n_targets; i++) {
        const struct slot *of = &rendezvous->slots[slot->targets[i].rank];
        struct tried *tried = of->tried != NULL ? &of->tried[slot->targets[i].address] : NULL;
        if (tried == NULL) continue; /* it has left, and is another now */
        tried->by++;
        tried->reached += told->faults[i][0] == '\0';
        if (told->faults[i][0] == '\0' || tried->fault != NULL) continue;
        struct buffer fault = {0};
        buffer_printf(&fault, "%.60s does not reach ", label_of(slot));
        buffer_printf(&fault, "%s of %.60s: ", of->join->addresses[slot->targets[i].address]->address,
                      label_of(of));
        utf8_escape(told->faults[i], strnlen(told->faults[i], 100), &fault);
        tried->fault = buffer_take(&fault);
    }
    forget_targets(slot);
}

void rendezvous_forget_tried(struct slot *slot) {
    forget_targets(slot);
    for (size_t i = 0; slot->tried != NULL && i < slot->n_tried; i++)
        free(slot->tried[i].fault);
    free(TAKE(slot->tried));
    slot->n_tried = 0;
}

/* -- chosen */

/* A good address, in a list that is sorted by networks. */
struct good_address {
    char network[64];
    struct slot *slot;
    uint32_t address;
    bool joined;                /* the node came to the controller by it */
    uint32_t nodes, nodes_came; /* of its network: with a good address there, and of those that came by it */
};

static bool is_good(const struct tried *tried) {
    return tried->by > 0 && tried->reached == tried->by;
}

static const char *came_by(const struct slot *slot) {
    bool local = slot->rendezvous->config.local && slot->rank == 0;
    return local ? slot->rendezvous->local_address : slot->address;
}

static int compare_networks(const void *a, const void *b) {
    const struct good_address *one = a, *other = b;
    int order = strcmp(one->network, other->network);
    if (order != 0) return order;
    return one->slot->rank < other->slot->rank ? -1 : one->slot->rank > other->slot->rank;
}

/* Negative: `a` is to be preferred. */
static int compare_worth(const struct good_address *a, const struct good_address *b) {
    if (a->nodes != b->nodes) return a->nodes > b->nodes ? -1 : 1;
    if (a->nodes_came != b->nodes_came) return a->nodes_came > b->nodes_came ? -1 : 1;
    int order = strcmp(a->network, b->network);
    return order != 0 ? order : (int)b->joined - (int)a->joined;
}

static size_t list_candidates(const struct party *party, struct good_address *candidates) {
    size_t n = 0;
    for (uint32_t i = 0; i < party->n; i++) {
        struct slot *slot = party->slots[i];
        for (uint32_t k = 0; k < slot->n_tried; k++) {
            if (!is_good(&slot->tried[k])) continue;
            struct good_address *candidate = &candidates[n++];
            *candidate = (struct good_address){.slot = slot, .address = k};
            candidate->joined = str_equal(slot->join->addresses[k]->address, came_by(slot));
            network_of(slot->join->addresses[k], candidate->network);
        }
    }
    qsort(candidates, n, sizeof *candidates, compare_networks);
    for (size_t begin = 0, end; begin < n; begin = end) {
        uint32_t nodes = 0, nodes_came = 0;
        for (end = begin; end < n && str_equal(candidates[end].network, candidates[begin].network); end++) {
            nodes += end == begin || candidates[end].slot != candidates[end - 1].slot;
            nodes_came += candidates[end].joined;
        }
        for (size_t i = begin; i < end; i++) {
            candidates[i].nodes = nodes;
            candidates[i].nodes_came = nodes_came;
        }
    }
    return n;
}

static void choose(const struct party *party, struct good_address *candidates, size_t n) {
    struct rendezvous *rendezvous = party->slots[0]->rendezvous;
    const struct good_address *best = NULL;
    for (uint32_t i = 0; i < party->n; i++)
        party->slots[i]->chosen = -1;
    for (size_t i = 0; i < n; i++) {
        struct slot *slot = candidates[i].slot;
        if (best == NULL || compare_worth(&candidates[i], best) < 0) best = &candidates[i];
        /* The best of the slot so far is noted by its place in `chosen`, until all are known. */
        if (slot->chosen < 0 || compare_worth(&candidates[i], &candidates[slot->chosen]) < 0)
            slot->chosen = (int)i;
    }
    if (best != NULL) (void)snprintf(rendezvous->network, sizeof rendezvous->network, "%s", best->network);
    for (uint32_t i = 0; i < party->n; i++) {
        struct slot *slot = party->slots[i];
        if (slot->chosen >= 0) slot->chosen = (int)candidates[slot->chosen].address;
    }
}

/* In one line: one node that reaches nobody leaves all those that it tried without a good address. */
static void warn_of_unreached(const struct party *party) {
    CLEANUP(buffer_done) struct buffer names = {0};
    const char *fault = NULL, *came = "";
    uint32_t n = 0;
    for (uint32_t i = 0; i < party->n; i++) {
        const struct slot *slot = party->slots[i];
        if (slot->chosen >= 0 || slot->tried == NULL) continue;
        if (n++ < NODES_TOLD) buffer_printf(&names, "%s%s", n > 1 ? ", " : "", label_of(slot));
        for (size_t k = 0; k < slot->n_tried && fault == NULL; k++)
            fault = slot->tried[k].fault;
        came = came_by(slot);
    }
    if (n > NODES_TOLD) buffer_printf(&names, " and %u more", n - NODES_TOLD);
    if (n > 0 && !names.failed)
        log_warning("network", "no address of node%s %s is reached by all that tried (%s): %s %s used",
                    n == 1 ? "" : "s", names.data,
                    fault != NULL ? fault : "nothing was heard of what they reach",
                    n == 1 ? came : "those by which they came", n == 1 ? "is" : "are");
}

void rendezvous_choose_again(struct rendezvous *rendezvous, struct slot *slot) {
    char network[64];
    slot->chosen = -1;
    for (size_t i = 0; i < slot->join->n_addresses && rendezvous->network[0] != '\0' && slot->chosen < 0; i++) {
        network_of(slot->join->addresses[i], network);
        if (str_equal(network, rendezvous->network)) slot->chosen = (int)i;
    }
}

/* -- told */

/* One address of each network stands for all: its interface, and why it does not connect all nodes. */
struct network_row {
    char network[64];
    const char *interface, *fault;
    uint32_t nodes, good;
};

static int compare_rows(const void *a, const void *b) {
    const struct network_row *one = a, *other = b;
    if (one->good != other->good) return one->good > other->good ? -1 : 1;
    return strcmp(one->network, other->network);
}

static void write_row(const struct network_row *row, uint32_t n, bool used, struct buffer *out) {
    size_t begin = out->size;
    if (row->good == n)
        buffer_printf(out, "%s (%.31s) connects all %u nodes%s\n", row->network, row->interface, n,
                      used ? ": it is used" : "");
    else
        buffer_printf(out, "%s (%.31s) connects %u of %u nodes%s%s%s\n", row->network, row->interface,
                      row->good, n, used ? ": it is used" : "", row->fault != NULL ? "; " : "",
                      row->fault != NULL ? row->fault : "");
    if (!out->failed) log_info("network", "%.*s", (int)(out->size - begin - 1), out->data + begin);
}

/* The first networks only: there may be one for each node. */
static void write_table(const struct party *party, const char *chosen, struct buffer *out) {
    struct network_row rows[NETWORKS_TOLD];
    size_t n = 0;
    for (uint32_t i = 0; i < party->n; i++) {
        const struct slot *slot = party->slots[i];
        for (size_t k = 0; k < slot->n_tried; k++) {
            char network[64];
            network_of(slot->join->addresses[k], network);
            struct network_row *row = rows;
            while (row < rows + n && !str_equal(row->network, network))
                row++;
            if (row == rows + NETWORKS_TOLD) continue;
            if (row == rows + n) {
                rows[n++] = (struct network_row){0};
                strcpy(row->network, network);
            }
            if (row->interface == NULL) row->interface = slot->join->addresses[k]->interface;
            if (row->fault == NULL) row->fault = slot->tried[k].fault;
            row->nodes++;
            row->good += is_good(&slot->tried[k]);
        }
    }
    qsort(rows, n, sizeof *rows, compare_rows);
    for (size_t pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < n; i++)
            if (str_equal(rows[i].network, chosen) == (pass == 0))
                write_row(&rows[i], party->n, pass == 0, out);
}

/* -- all of it */

/* This machine's addresses, and its part in the trial. */
static int join_in(struct rendezvous *rendezvous, struct network_trial **own, ty_error *err) {
    Wire__Join *self = calloc(1, sizeof *self);
    if (self == NULL) return ty_fail_memory(err);
    wire__join__init(self);
    wire__join__free_unpacked(rendezvous->slots[0].join, NULL);
    rendezvous->slots[0].join = self;
    int result = description_add_addresses(self, err);
    if (result == 0) result = trial_open(rendezvous->config.loop, &rendezvous->key, 0, own, err);
    if (result == 0) self->trial_port = trial_port(*own);
    return result;
}

/* Those who can be reached at all. */
static int gather(struct rendezvous *rendezvous, struct party *party, ty_error *err) {
    bool apart = false;
    party->slots = calloc(rendezvous->config.max_nodes, sizeof *party->slots);
    if (party->slots == NULL) return ty_fail_memory(err);
    for (uint32_t rank = 0; rank < rendezvous->config.max_nodes; rank++) {
        struct slot *slot = &rendezvous->slots[rank];
        bool local = rendezvous->config.local && rank == 0;
        if (!local && slot->state == SLOT_ABSENT) continue;
        if (!local && slot->adrift != NULL) continue; /* its workers have found each other */
        apart = apart || (!local && !slot->here);
        party->slots[party->n++] = slot;
    }
    if (!apart || rendezvous->key.text[0] == '\0') party->n = 0;
    return 0;
}

/* All are asked before any answer is heard, as the loop turns only behind that. A node without a port could not
 * listen, and has no address that others could try. */
static int conduct(struct rendezvous *rendezvous, const struct party *party, struct network_trial *own,
                   ty_error *err) {
    bool late = false;
    struct loop_timer limit = {.callback = rendezvous_note_time, .context = &late};
    int result = 0;
    for (uint32_t i = 0; i < party->n; i++) {
        struct slot *slot = party->slots[i];
        rendezvous_forget_tried(slot);
        if (slot->join->trial_port == 0) continue;
        slot->n_tried = slot->join->n_addresses < ADDRESSES_TRIED ? slot->join->n_addresses : ADDRESSES_TRIED;
        slot->tried = calloc(slot->n_tried + 1, sizeof *slot->tried);
        if (slot->tried == NULL) return ty_fail_memory(err);
    }
    rendezvous->n_trying = 0;
    for (uint32_t i = 0; i < party->n && result == 0; i++)
        result = ask(party, i, own, err);
    (void)loop_timer_start(rendezvous->config.loop, &limit, TELL_LIMIT);
    while (result == 0 && rendezvous->n_trying > 0 && !late)
        (void)loop_turn(rendezvous->config.loop, true);
    loop_timer_stop(rendezvous->config.loop, &limit);
    return result;
}

static void free_party(struct party *party) {
    free(party->slots);
}

int rendezvous_try_network(struct rendezvous *rendezvous, ty_error *err) {
    CLEANUP(free_party) struct party party = {0};
    CLEANUP_FREE struct good_address *candidates = NULL;
    struct network_trial *own = NULL;
    int result = gather(rendezvous, &party, err);
    if (result == 0 && party.n >= 2 && rendezvous->config.local) result = join_in(rendezvous, &own, err);
    if (result == 0 && party.n >= 2) result = conduct(rendezvous, &party, own, err);
    if (result == 0 && party.n >= 2) {
        candidates = calloc((size_t)party.n * ADDRESSES_TRIED, sizeof *candidates);
        if (candidates == NULL) result = ty_fail_memory(err);
    }
    trial_close(own);
    if (candidates != NULL) {
        choose(&party, candidates, list_candidates(&party, candidates));
        warn_of_unreached(&party);
        write_table(&party, rendezvous->network, &rendezvous->table);
    }
    for (uint32_t i = 0; i < party.n; i++)
        rendezvous_forget_tried(party.slots[i]);
    return result;
}
