/* Who is there, by rank: joins, waits for the others, the cluster that they make, and the channels of those
 * that a run has not taken or has given back. How nodes come in is rendezvous_door.c's, and which addresses
 * they use is rendezvous_network.c's. */
#include "engine/rendezvous.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "base/module.h"
#include "base/str.h"
#include "engine/address.h"
#include "engine/description.h"
#include "engine/rendezvous_internal.h"

#define TELL_FIRST (3 * NS_PER_S)
#define TELL_EACH (5 * NS_PER_S)
#define GOODBYE_LIMIT (2 * NS_PER_S)
#define RECALL_LIMIT (4 * NS_PER_S)
#define DEFAULT_LIMIT (300 * NS_PER_S)
#define PROMISE_LIMIT (10 * NS_PER_S)
/* How long a run waits for a node to come back, and how often its agent is started again meanwhile. */
#define WANTED_LIMIT (60 * NS_PER_S)
#define AGAIN_EACH (2 * NS_PER_S)
/* Agents of a controller that died try ten times meanwhile (way_back.c). */
#define RETURN_LIMIT (2 * NS_PER_S)
enum { NAMED_AT_MOST = 8 };

static const char *name_of(const struct rendezvous *rendezvous, uint32_t rank, char text[32]) {
    if (rendezvous->config.names != NULL) return rendezvous->config.names[rank];
    if (rendezvous->slots[rank].name != NULL) return rendezvous->slots[rank].name;
    (void)snprintf(text, 32, "node %u", rank);
    return text;
}

static void set_note(struct slot *slot, const char *text) {
    free(slot->note);
    slot->note = strdup(text);
}

/* The one place that changes a state, and so the count of those that are there. */
void slot_set_state(struct slot *slot, enum slot_state state) {
    struct rendezvous *rendezvous = slot->rendezvous;
    rendezvous->n_there -= slot->state != SLOT_ABSENT;
    rendezvous->n_there += state != SLOT_ABSENT;
    slot->state = state;
}

static void set_given_up(struct slot *slot, bool given_up) {
    slot->rendezvous->n_given_up -= slot->given_up;
    slot->rendezvous->n_given_up += given_up;
    slot->given_up = given_up;
}

static struct slot *find(const struct rendezvous *rendezvous, const char *name) {
    const uintptr_t *slot = hash_get(rendezvous->names, name);
    return slot != NULL ? (struct slot *)*slot : NULL;
}

/* -- goodbye */

/* Says goodbye over a channel, and closes it. */
void rendezvous_say_goodbye(struct channel *channel, int status, const char *why) {
    Wire__Dismissal body = WIRE__DISMISSAL__INIT;
    body.status = status;
    body.why = (char *)why;
    channel_let_go(channel);
    (void)channel_send(channel, &WIRE_MESSAGE(DISMISSAL, dismissal, &body));
    channel_flush(channel);
}

/* -- joining */

/* One that waits has nothing else to say that matters. */
static void on_message(void *context, const Wire__Message *message) {
    if (message->body_case == WIRE__MESSAGE__BODY_TRIED) rendezvous_tried(context, message->tried);
}

void slot_closed(void *context, const ty_error *reason) {
    struct slot *slot = context;
    struct rendezvous *rendezvous = slot->rendezvous;
    channel_destroy(TAKE(slot->channel));
    if (slot->adrift != NULL) rendezvous->adrift_at = clock_boot();
    if (rendezvous->config.local && slot->rank == 0) {
        /* Nobody has looked after what an agent leaves that ends before it is told to. */
        rendezvous->left.unproven |= slot->adrift != NULL;
        rendezvous->left.awaited = false;
        loop_timer_stop(rendezvous->config.loop, &rendezvous->left.limit);
    }
    slot_forget_adrift(slot);
    slot_set_state(slot, SLOT_ABSENT);
    rendezvous_forget_tried(slot);
    set_note(slot, reason->code != 0 ? reason->message : "it joined, and left again");
    if (rendezvous->changed != NULL) rendezvous->changed(rendezvous->context);
}

static const struct channel_events waiting_events = {.message = on_message, .closed = slot_closed};

static int check(const struct rendezvous *rendezvous, const Wire__Join *join, ty_error *err) {
    const struct rendezvous_config *config = &rendezvous->config;
    uint32_t first = config->local ? 1 : 0;
    if (join->protocol != FRAME_PROTOCOL || strcmp(join->version, base_build) != 0)
        return ty_fail(
            err, TY_EVERSION,
            "its trainyard is of build %.60s, but that of the controller is %s: install both from one "
            "build",
            join->version, base_build);
    if (join->node_rank == RENDEZVOUS_RANK_NONE) return 0;
    /* Which is final for one that was there. */
    if (join->node_rank < first || join->node_rank >= config->max_nodes)
        return ty_fail(err, join->swept ? TY_ENODE : TY_EUSAGE, "node rank %u is not one of %u to %u",
                       join->node_rank, first, config->max_nodes - 1);
    const struct slot *slot = &rendezvous->slots[join->node_rank];
    if (join->adrift != NULL && rendezvous->begins_anew)
        return ty_fail(err, TY_ENODE, "its controller was given up: what it runs ends, and it may come again");
    if (slot->state != SLOT_ABSENT)
        return ty_fail(err, TY_EUSAGE, "node rank %u has joined already, from %s (%s)", join->node_rank,
                       slot->name, slot->address);
    if (config->run != NULL && join->run[0] != '\0' && strcmp(config->run, join->run) != 0)
        return ty_fail(
            err, TY_EUSAGE,
            "it was started for the run %.100s, and this is the run %.100s: give both one --name, or "
            "each run a rendezvous of its own",
            join->run, config->run);
    return description_check(join, err);
}

/* Hosts of one name, or agents of one host, are told apart by their ranks. The name is the caller's; NULL
 * without memory. */
static char *choose_name(const struct rendezvous *rendezvous, const Wire__Join *join) {
    struct buffer chosen = {0};
    const struct slot *other = find(rendezvous, join->node_name);
    bool taken = other != NULL && other->rank != join->node_rank;
    if (rendezvous->local != NULL) taken |= str_equal(rendezvous->local->nodes[0].name, join->node_name);
    buffer_text(&chosen, join->node_name);
    if (taken) buffer_printf(&chosen, "-%u", join->node_rank);
    return buffer_take(&chosen);
}

/* A run that is resumed with fewer nodes has no use for one that is there no more, but knows that nothing is
 * left on it. */
static void note_departed(struct rendezvous *rendezvous, const Wire__Join *join) {
    CLEANUP_FREE char *name = choose_name(rendezvous, join);
    if (name == NULL || hash_size(rendezvous->departed) >= RENDEZVOUS_NODES_MAX) return;
    (void)hash_set(rendezvous->departed, name, 0);
    if (rendezvous->changed != NULL) rendezvous->changed(rendezvous->context);
}

/* The description is tried on a cluster of its own first: one that no cluster takes is refused here, where its
 * node hears why, and not when the run is planned. */
static int take_seat(struct rendezvous *rendezvous, struct slot *slot, const Wire__Join *join,
                     const struct visitor *visitor, ty_error *err) {
    struct cluster *tried = cluster_create();
    int result = tried == NULL ? ty_fail_memory(err) : description_add(join, "node", tried, err);
    cluster_destroy(tried);
    if (result < 0) return result;
    Wire__Join *copy = frame_copy(&join->base); /* the message goes with its callback */
    char *name = choose_name(rendezvous, join);
    if (copy == NULL || name == NULL || hash_set(rendezvous->names, name, (uintptr_t)slot) < 0) {
        wire__join__free_unpacked(copy, NULL);
        free(name);
        return ty_fail_memory(err);
    }
    wire__join__free_unpacked(slot->join, NULL);
    if (slot->name != NULL && strcmp(slot->name, name) != 0) (void)hash_remove(rendezvous->names, slot->name);
    free(slot->name);
    slot->join = copy;
    slot->name = name;
    slot_forget_adrift(slot);
    slot->adrift = TAKE(copy->adrift);
    set_given_up(slot, false);
    slot->gone = false;
    slot->wanted = slot->overdue = 0;
    strcpy(slot->address, visitor->address);
    slot->here = str_equal(visitor->address, visitor->own_address) || str_equal(visitor->address, "::1") ||
                 str_prefix(visitor->address, "127.", NULL);
    rendezvous_choose_again(rendezvous, slot);
    return 0;
}

/* A node that has no rank is promised one, with which it comes again: first those that nobody had. The keys and
 * addresses of nodes go by their ranks, so that none joins without. */
static int promise_seat(struct rendezvous *rendezvous, struct channel *channel, ty_error *err) {
    nanoseconds now = clock_monotonic();
    struct slot *seat = NULL;
    uint32_t first = rendezvous->config.local ? 1 : 0, n = rendezvous->config.max_nodes - first;
    for (uint32_t i = 0; i < n && (seat == NULL || seat->join != NULL); i++) {
        struct slot *slot = &rendezvous->slots[first + (rendezvous->n_promised + i) % n];
        if (slot->state != SLOT_ABSENT || slot->promised > now) continue;
        if (seat == NULL || slot->join == NULL) seat = slot;
    }
    if (seat == NULL)
        return ty_fail(err, TY_EUSAGE, "all %u nodes are there already", rendezvous->config.max_nodes);
    Wire__Seat body = WIRE__SEAT__INIT;
    body.node_rank = seat->rank;
    seat->promised = now + PROMISE_LIMIT;
    rendezvous->n_promised++;
    channel_let_go(channel);
    (void)channel_send(channel, &WIRE_MESSAGE(SEAT, seat, &body));
    channel_flush(channel);
    channel_destroy(channel);
    return 0;
}

void rendezvous_enter(struct rendezvous *rendezvous, struct channel *channel, const Wire__Join *join,
                      const struct visitor *visitor) {
    ty_error err = {0};
    int result = check(rendezvous, join, &err);
    if (result == 0 && join->node_rank == RENDEZVOUS_RANK_NONE) {
        result = promise_seat(rendezvous, channel, &err);
        if (result == 0) return;
    }
    struct slot *slot = result == 0 ? &rendezvous->slots[join->node_rank] : NULL;
    if (result == 0) result = take_seat(rendezvous, slot, join, visitor, &err);
    if (result < 0) {
        log_warning("join", "a node at %s cannot take part: %s", visitor->address, err.message);
        rendezvous_say_goodbye(channel, ty_error_exit_status(result), err.message);
        channel_destroy(channel);
        if (result == TY_ENODE && join->swept) note_departed(rendezvous, join);
        return;
    }
    slot->channel = channel;
    slot->promised = 0;
    slot_set_state(slot, SLOT_JOINED);
    if (rendezvous->local_address[0] == '\0') {
        strcpy(rendezvous->local_address, visitor->own_address);
        address_interface(rendezvous->local_address, rendezvous->local_interface);
    }
    channel_adopt(channel, &waiting_events, slot);
    channel_keep_alive(channel, CHANNEL_JUDGES);
    if (rendezvous->changed != NULL) rendezvous->changed(rendezvous->context);
}

/* -- coming back */

static void start_again_later(const struct slot *slot) {
    struct rendezvous *rendezvous = slot->rendezvous;
    bool waits =
        rendezvous->config.starter.start != NULL && slot->wanted > 0 && (slot->gone || slot->overdue > 0);
    if (!waits || rendezvous->again.state != NULL) return;
    (void)loop_timer_start(rendezvous->config.loop, &rendezvous->again, AGAIN_EACH);
}

/* Of nodes that a run waits for. Those that still have a keeper come by themselves, as long as that can reach
 * this machine. */
static void start_again(void *context) {
    struct rendezvous *rendezvous = context;
    const struct rendezvous_starter *starter = &rendezvous->config.starter;
    nanoseconds now = clock_monotonic();
    for (uint32_t rank = 0; rank < rendezvous->config.max_nodes; rank++) {
        struct slot *slot = &rendezvous->slots[rank];
        if (slot->state != SLOT_ABSENT || now > slot->wanted) continue;
        if (slot->gone || (slot->overdue > 0 && now > slot->overdue)) {
            slot->overdue = 0;
            slot->gone = starter->start(starter->context, rendezvous, rank, 1, NULL) < 0;
        }
        start_again_later(slot);
    }
}

/* -- open and close */

int rendezvous_open(const struct rendezvous_config *config, struct rendezvous **rendezvous, ty_error *err) {
    ty_error unseen = {0};
    if (err == NULL) err = &unseen;
    struct rendezvous *made = calloc(1, sizeof *made);
    if (made == NULL) {
        if (config->starter.stop != NULL) config->starter.stop(config->starter.context);
        return ty_fail_memory(err);
    }
    made->config = *config;
    made->key = *config->key;
    made->again = (struct loop_timer){.callback = start_again, .context = made};
    if (made->config.limit <= 0) made->config.limit = DEFAULT_LIMIT;
    int result = 0;
    made->slots = calloc(config->max_nodes, sizeof *made->slots);
    made->names = hash_create();
    made->departed = hash_create();
    if (made->slots == NULL || made->names == NULL || made->departed == NULL) result = ty_fail_memory(err);
    for (uint32_t rank = 0; rank < config->max_nodes && result == 0; rank++)
        made->slots[rank] = (struct slot){.rendezvous = made, .rank = rank, .chosen = -1};
    if (config->local && result == 0) {
        struct cluster_overrides none = {.num_cpus = -1, .num_gpus = -1};
        result = cluster_probe(config->overrides != NULL ? config->overrides : &none, &made->local, err);
    }
    if (result == 0 && config->starter.start != NULL) {
        door_take_kept(made);
        if (made->key.text[0] == '\0') result = key_make(&made->key, err);
    }
    if (result == 0) result = door_open(made, err);
    if (result < 0) {
        rendezvous_close(made, ty_error_exit_status(result));
        return result;
    }
    *rendezvous = made;
    return 0;
}

void rendezvous_note_time(void *context) {
    *(bool *)context = true;
}

/* Until all have it, or for a moment: a node that takes nothing must not hold up the end of the command. */
static void say_goodbye_to_all(struct rendezvous *rendezvous, int status) {
    bool late = false;
    struct loop_timer limit = {.callback = rendezvous_note_time, .context = &late};
    for (uint32_t rank = 0; rank < rendezvous->config.max_nodes; rank++)
        if (rendezvous->slots[rank].channel != NULL)
            rendezvous_say_goodbye(rendezvous->slots[rank].channel, status, "");
    (void)loop_timer_start(rendezvous->config.loop, &limit, GOODBYE_LIMIT);
    while (!late) {
        bool told = true;
        for (uint32_t rank = 0; rank < rendezvous->config.max_nodes && told; rank++)
            told = rendezvous->slots[rank].channel == NULL || channel_empty(rendezvous->slots[rank].channel);
        if (told) break;
        (void)loop_turn(rendezvous->config.loop, true);
    }
    loop_timer_stop(rendezvous->config.loop, &limit);
}

/* The program closed the loop's descriptor, and with it those of the channels. Agents look for another
 * controller where they found this one (agent/adrift.h): there they are told that there is none, end what they
 * run, and come once more, for the exit status. On a loop that takes the place of the other, or NULL. */
static struct loop *recall(struct rendezvous *rendezvous) {
    uint32_t n = rendezvous->config.local ? rendezvous->n_there : 0;
    bool late = false;
    struct loop_timer limit = {.callback = rendezvous_note_time, .context = &late};
    for (uint32_t rank = 0; rank < rendezvous->config.max_nodes; rank++) {
        channel_destroy(TAKE(rendezvous->slots[rank].channel));
        slot_forget_adrift(&rendezvous->slots[rank]);
        slot_set_state(&rendezvous->slots[rank], SLOT_ABSENT);
    }
    struct loop *loop = n > 0 ? loop_create(NULL) : NULL;
    if (loop == NULL) return NULL;
    rendezvous->config.loop = loop;
    rendezvous->begins_anew = true;
    int result = door_open(rendezvous, NULL);
    if (result == 0) result = loop_timer_start(loop, &limit, RECALL_LIMIT);
    while (result == 0 && rendezvous->n_there < n && !late && loop_intact(loop))
        (void)loop_turn(loop, true);
    loop_timer_stop(loop, &limit);
    return loop;
}

void rendezvous_close(struct rendezvous *rendezvous, int status) {
    if (rendezvous == NULL) return;
    struct loop *another = NULL;
    rendezvous->changed = NULL;
    loop_timer_stop(rendezvous->config.loop, &rendezvous->left.limit);
    loop_timer_stop(rendezvous->config.loop, &rendezvous->again);
    door_close(rendezvous);
    if (rendezvous->slots != NULL && !loop_intact(rendezvous->config.loop)) another = recall(rendezvous);
    if (rendezvous->slots != NULL && loop_intact(rendezvous->config.loop) &&
        !rendezvous_is_undecided(rendezvous))
        say_goodbye_to_all(rendezvous, status);
    for (uint32_t rank = 0; rendezvous->slots != NULL && rank < rendezvous->config.max_nodes; rank++) {
        struct slot *slot = &rendezvous->slots[rank];
        channel_destroy(slot->channel);
        slot_forget_adrift(slot);
        rendezvous_forget_tried(slot);
        wire__join__free_unpacked(slot->join, NULL);
        free(slot->name);
        free(slot->note);
    }
    door_close(rendezvous);
    loop_destroy(another);
    if (rendezvous->config.starter.stop != NULL)
        rendezvous->config.starter.stop(rendezvous->config.starter.context);
    free(rendezvous->slots);
    hash_destroy(rendezvous->names);
    hash_destroy(rendezvous->departed);
    buffer_done(&rendezvous->table);
    door_forget_kept(rendezvous);
    cluster_destroy(rendezvous->local);
    key_forget(&rendezvous->key);
    free(rendezvous);
}

/* -- what others ask */

const char *rendezvous_addresses(const struct rendezvous *rendezvous) {
    return rendezvous->door.addresses.size > 0 ? rendezvous->door.addresses.data : "";
}

const struct run_key *rendezvous_key(const struct rendezvous *rendezvous) {
    return &rendezvous->key;
}

bool rendezvous_outlives(const struct rendezvous *rendezvous) {
    return rendezvous->config.outlives;
}

struct loop *rendezvous_loop(const struct rendezvous *rendezvous) {
    return rendezvous->config.loop;
}

void *rendezvous_starter(const struct rendezvous *rendezvous) {
    return rendezvous->config.starter.context;
}

bool rendezvous_starts(const struct rendezvous *rendezvous) {
    return rendezvous->config.starter.start != NULL;
}

void rendezvous_note(struct rendezvous *rendezvous, uint32_t node_rank, const char *text) {
    if (node_rank < rendezvous->config.max_nodes) set_note(&rendezvous->slots[node_rank], text);
}

void rendezvous_give_up(struct rendezvous *rendezvous, uint32_t node_rank, const char *why) {
    if (node_rank >= rendezvous->config.max_nodes) return;
    struct slot *slot = &rendezvous->slots[node_rank];
    set_note(slot, why);
    set_given_up(slot, slot->state == SLOT_ABSENT);
    slot->gone = true;
    start_again_later(slot);
    if (rendezvous->changed != NULL) rendezvous->changed(rendezvous->context);
}

static uint32_t count_nodes(const struct rendezvous *rendezvous) {
    return rendezvous->n_there + (rendezvous->local != NULL);
}

bool rendezvous_is_local(const struct rendezvous *rendezvous, const char *name) {
    return rendezvous->local != NULL && strcmp(rendezvous->local->nodes[0].name, name) == 0;
}

bool rendezvous_is_swept(const struct rendezvous *rendezvous, const char *node_name) {
    const struct slot *slot = find(rendezvous, node_name);
    if (slot == NULL) return hash_get(rendezvous->departed, node_name) != NULL;
    return slot->state == SLOT_JOINED && slot->join->swept;
}

void rendezvous_listen(struct rendezvous *rendezvous, void (*changed)(void *context), void *context) {
    rendezvous->changed = changed;
    rendezvous->context = context;
}

struct slot *rendezvous_slot_of(const struct rendezvous *rendezvous, const char *node_name) {
    return rendezvous_is_local(rendezvous, node_name) ? &rendezvous->slots[0] : find(rendezvous, node_name);
}

const char *rendezvous_interface_of(const struct rendezvous *rendezvous, const char *node_name) {
    const struct slot *slot = rendezvous_slot_of(rendezvous, node_name);
    if (slot == NULL) return "";
    if (slot->chosen >= 0) return slot->join->addresses[slot->chosen]->interface;
    if (rendezvous_is_local(rendezvous, node_name)) return rendezvous->local_interface;
    for (size_t i = 0; slot->join != NULL && i < slot->join->n_addresses; i++)
        if (str_equal(slot->join->addresses[i]->address, slot->address))
            return slot->join->addresses[i]->interface;
    return "";
}

const char *rendezvous_address_of(const struct rendezvous *rendezvous, const char *node_name) {
    const struct slot *slot = rendezvous_slot_of(rendezvous, node_name);
    if (slot == NULL) return NULL;
    if (slot->chosen >= 0) return slot->join->addresses[slot->chosen]->address;
    if (!rendezvous_is_local(rendezvous, node_name)) return slot->address;
    return rendezvous->local_address[0] != '\0' ? rendezvous->local_address : NULL;
}

const char *rendezvous_network(const struct rendezvous *rendezvous) {
    return rendezvous->network;
}

const char *rendezvous_table(const struct rendezvous *rendezvous) {
    return rendezvous->table.size > 0 ? rendezvous->table.data : "";
}

int rendezvous_cluster(struct rendezvous *rendezvous, struct cluster **cluster, ty_error *err) {
    struct cluster *made = cluster_create();
    if (made == NULL) return ty_fail_memory(err);
    int result = 0;
    if (rendezvous->local != NULL) {
        const struct node *here = &rendezvous->local->nodes[0];
        CLEANUP(description_done) Wire__Join self = WIRE__JOIN__INIT;
        result = description_make(here, &self, err);
        if (result == 0) result = description_add(&self, here->name, made, err);
    }
    for (uint32_t rank = 0; rank < rendezvous->config.max_nodes && result == 0; rank++) {
        const struct slot *slot = &rendezvous->slots[rank];
        if (slot->state != SLOT_ABSENT) result = description_add(slot->join, slot->name, made, err);
    }
    if (result == 0)
        *cluster = made;
    else
        cluster_destroy(made);
    return result;
}

void rendezvous_list_holders(const struct rendezvous *rendezvous, struct buffer *out) {
    size_t n = 0;
    for (uint32_t rank = 0; rank < rendezvous->config.max_nodes; rank++) {
        const struct slot *slot = &rendezvous->slots[rank];
        if (slot->state == SLOT_ABSENT || slot->join->held[0] == '\0' || n++ >= NAMED_AT_MOST) continue;
        buffer_printf(out, "; node %s: %s", slot->name, slot->join->held);
    }
}

/* -- a run's use of a node */

/* Whoever asks for a node that is not there makes it wanted for a while, so that nobody need say when it no
 * longer is. */
int rendezvous_take(struct rendezvous *rendezvous, const char *node_name, const Wire__Start *start,
                    struct channel **channel, ty_error *err) {
    struct slot *slot = find(rendezvous, node_name);
    if (slot != NULL && slot->state == SLOT_ABSENT) {
        nanoseconds now = clock_monotonic(), patience = rendezvous->config.starter.patience;
        if (patience > 0 && now > slot->wanted) slot->overdue = now + patience;
        slot->wanted = now + WANTED_LIMIT;
        start_again_later(slot);
    }
    if (slot == NULL || slot->state != SLOT_JOINED || slot->adrift != NULL)
        return ty_fail(err, TY_ENODE, "node %s is not there%s%s", node_name,
                       slot != NULL && slot->note != NULL ? ": " : "",
                       slot != NULL && slot->note != NULL ? slot->note : "");
    int result = channel_send(slot->channel, &WIRE_MESSAGE(START, start, (Wire__Start *)start));
    if (result < 0) return ty_fail(err, TY_ENODE, "node %s cannot be reached", node_name);
    channel_flush(slot->channel);
    slot_set_state(slot, SLOT_TAKEN);
    *channel = TAKE(slot->channel);
    return 0;
}

/* -- a channel that a run has no use for any more */

void rendezvous_give_back(struct rendezvous *rendezvous, const char *node_name, struct channel *channel,
                          const char *why) {
    struct slot *slot = find(rendezvous, node_name);
    if (slot == NULL) {
        channel_destroy(channel);
        return;
    }
    slot_set_state(slot, channel != NULL ? SLOT_JOINED : SLOT_ABSENT);
    slot->channel = channel;
    if (channel != NULL) channel_adopt(channel, &waiting_events, slot);
    if (why != NULL) set_note(slot, why);
}

void rendezvous_dismiss(struct rendezvous *rendezvous, const char *node_name, struct channel *channel,
                        const char *why) {
    rendezvous_say_goodbye(channel, ty_error_exit_status(TY_ENODE), why);
    channel_destroy(channel);
    rendezvous_give_back(rendezvous, node_name, NULL, why);
}

/* -- the wait */

static void list_missing(const struct rendezvous *rendezvous, struct buffer *out) {
    uint32_t n = 0;
    for (uint32_t rank = rendezvous->config.local ? 1 : 0; rank < rendezvous->config.min_nodes; rank++) {
        const struct slot *slot = &rendezvous->slots[rank];
        char text[32];
        if (slot->state != SLOT_ABSENT || n++ >= NAMED_AT_MOST) continue;
        buffer_printf(out, "%s%s (%s)", n > 1 ? ", " : "", name_of(rendezvous, rank, text),
                      slot->note != NULL ? slot->note : "nothing was heard of it");
    }
    if (n > NAMED_AT_MOST) buffer_printf(out, " and %u more", n - NAMED_AT_MOST);
}

struct roll_call {
    struct rendezvous *rendezvous;
    struct loop_timer tell, limit, more;
    struct loop_watch signals;
    bool late, enough, interrupted;
};

static void tell_missing(void *context) {
    struct roll_call *call = context;
    struct rendezvous *rendezvous = call->rendezvous;
    CLEANUP(buffer_done) struct buffer missing = {0};
    list_missing(rendezvous, &missing);
    if (!missing.failed && missing.size > 0)
        log_warning("join", "%u of %u nodes are here at %s; missing: %s", count_nodes(rendezvous),
                    rendezvous->config.min_nodes, rendezvous_addresses(rendezvous), missing.data);
    (void)loop_timer_start(rendezvous->config.loop, &call->tell, TELL_EACH);
}

static void on_signals(void *context, unsigned events) {
    (void)events;
    struct roll_call *call = context;
    unsigned char numbers[64];
    ssize_t n = read(call->rendezvous->config.signals_fd, numbers, sizeof numbers);
    for (ssize_t i = 0; i < n; i++)
        if (numbers[i] == SIGINT || numbers[i] == SIGTERM || numbers[i] == SIGHUP) call->interrupted = true;
    if (n == 0) loop_watch_stop(call->rendezvous->config.loop, &call->signals);
}

/* Others may come a moment later. */
static bool is_complete(struct roll_call *call) {
    struct rendezvous *rendezvous = call->rendezvous;
    uint32_t n = count_nodes(rendezvous);
    if (n >= rendezvous->config.max_nodes) return true;
    if (n < rendezvous->config.min_nodes) return false;
    if (call->more.state == NULL) (void)loop_timer_start(rendezvous->config.loop, &call->more, NS_PER_S);
    return call->enough;
}

/* One that has never come, where there is one: others may have gone because of it. */
static const struct slot *first_given_up(const struct rendezvous *rendezvous) {
    const struct slot *found = NULL;
    for (uint32_t rank = 0; rank < rendezvous->config.max_nodes; rank++) {
        const struct slot *slot = &rendezvous->slots[rank];
        if (slot->given_up && (found == NULL || (slot->join == NULL && found->join != NULL))) found = slot;
    }
    return found;
}

static int wait_for_nodes(struct roll_call *call, ty_error *err) {
    struct rendezvous *rendezvous = call->rendezvous;
    while (!is_complete(call)) {
        if (rendezvous->config.max_nodes - rendezvous->n_given_up < rendezvous->config.min_nodes) {
            const struct slot *given_up = first_given_up(rendezvous);
            char text[32];
            return ty_fail(err, TY_ESTART, "%s cannot take part: %s", name_of(rendezvous, given_up->rank, text),
                           given_up->note != NULL ? given_up->note : "it was given up");
        }
        CLEANUP(buffer_done) struct buffer missing = {0};
        if (call->late || call->interrupted) list_missing(rendezvous, &missing);
        if (call->interrupted)
            return ty_fail(err, TY_EINTERRUPTED, "interrupted: %u of %u nodes have come to %s; missing: %s",
                           count_nodes(rendezvous), rendezvous->config.min_nodes,
                           rendezvous_addresses(rendezvous),
                           missing.failed || missing.size == 0 ? "?" : missing.data);
        if (call->late)
            return ty_fail(err, TY_ESTART, "%u of %u nodes came to %s within %lld s; missing: %s",
                           count_nodes(rendezvous), rendezvous->config.min_nodes,
                           rendezvous_addresses(rendezvous), (long long)(rendezvous->config.limit / NS_PER_S),
                           missing.failed || missing.size == 0 ? "?" : missing.data);
        (void)loop_turn(rendezvous->config.loop, true);
    }
    return 0;
}

/* All at once, but for those that came back. */
static int start_agents(struct rendezvous *rendezvous, ty_error *err) {
    const struct rendezvous_starter *starter = &rendezvous->config.starter;
    uint32_t first = rendezvous->config.local ? 1 : 0, most = rendezvous->config.max_nodes;
    bool late = false;
    struct loop_timer limit = {.callback = rendezvous_note_time, .context = &late};
    if (rendezvous->kept.port == 0)
        return starter->start(starter->context, rendezvous, first, most - first, err);
    (void)loop_timer_start(rendezvous->config.loop, &limit, RETURN_LIMIT);
    while (!late && rendezvous->n_there < most - first)
        (void)loop_turn(rendezvous->config.loop, true);
    loop_timer_stop(rendezvous->config.loop, &limit);
    int result = 0;
    for (uint32_t rank = first; rank < most && result >= 0; rank++) {
        uint32_t n = 0;
        while (rank + n < most && rendezvous->slots[rank + n].state == SLOT_ABSENT)
            n++;
        if (n > 0) result = starter->start(starter->context, rendezvous, rank, n, err);
        rank += n;
    }
    return result;
}

int rendezvous_wait(struct rendezvous *rendezvous, ty_error *err) {
    struct loop *loop = rendezvous->config.loop;
    struct roll_call call = {.rendezvous = rendezvous};
    int result = 0;
    if (!rendezvous->began && rendezvous_starts(rendezvous)) {
        rendezvous->began = true;
        result = start_agents(rendezvous, err);
    }
    if (result == 0 && rendezvous->config.local && rendezvous->config.run_path != NULL)
        rendezvous_find_left(rendezvous);
    if (result < 0) return result;
    call.tell = (struct loop_timer){.callback = tell_missing, .context = &call};
    call.limit = (struct loop_timer){.callback = rendezvous_note_time, .context = &call.late};
    call.more = (struct loop_timer){.callback = rendezvous_note_time, .context = &call.enough};
    call.signals = (struct loop_watch){.callback = on_signals, .context = &call};
    if (rendezvous->config.signals_fd > 0)
        (void)loop_watch_start(loop, &call.signals, rendezvous->config.signals_fd, LOOP_READABLE);
    (void)loop_timer_start(loop, &call.tell, TELL_FIRST);
    (void)loop_timer_start(loop, &call.limit, rendezvous->config.limit);
    do { /* one may leave while the network is tried */
        result = wait_for_nodes(&call, err);
        if (result == 0) result = rendezvous_try_network(rendezvous, err);
    } while (result == 0 && count_nodes(rendezvous) < rendezvous->config.min_nodes);
    loop_timer_stop(loop, &call.tell);
    loop_timer_stop(loop, &call.limit);
    loop_timer_stop(loop, &call.more);
    loop_watch_stop(loop, &call.signals);
    return result;
}
