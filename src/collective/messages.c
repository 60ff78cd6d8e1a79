/* Messages over streams of bytes. A send puts its header and data into the stream, in as many pieces as there
 * is room for. What comes out goes to the first receive with the tag of the header. A message that none of the
 * receives under way has asked for is kept aside until one does, so that those behind it can be reached; while
 * no receive is under way, nothing is taken out. */
#include <string.h>

#include "base/cleanup.h"
#include "collective/comm.h"

/* What goes before the data. */
struct header {
    uint64_t count;
    int32_t tag;
    uint32_t type;
};

/* A message that was kept aside. */
struct aside {
    struct aside *next;
    struct header header;
    bool complete;
    char data[];
};

struct inbox {
    struct request_list receives; /* that no message has come for */
    struct header header;         /* of the message that comes now */
    size_t step;                  /* bytes of its header and data that have come */
    size_t bytes;                 /* of its data */
    char *to;                     /* where those go: of `taker`, or else of `keeper` */
    struct ty_request *taker;
    struct aside *keeper;
    struct aside *first, *last; /* kept aside, in the order in which they came */
};

void request_list_append(struct request_list *list, struct ty_request *request) {
    request->next = NULL;
    if (list->first == NULL)
        list->first = request;
    else
        list->last->next = request;
    list->last = request;
}

struct ty_request *request_list_take(struct request_list *list) {
    struct ty_request *request = list->first;
    if (request != NULL) list->first = request->next;
    return request;
}

int messages_init(struct messages *messages, ty_error *err) {
    messages->sends = calloc((size_t)messages->size, sizeof *messages->sends);
    messages->inboxes = calloc((size_t)messages->size, sizeof *messages->inboxes);
    return messages->sends != NULL && messages->inboxes != NULL ? 0 : ty_fail_memory(err);
}

void messages_done(struct messages *messages) {
    for (int peer = 0; messages->inboxes != NULL && peer < messages->size; peer++)
        while (messages->inboxes[peer].first != NULL) {
            struct aside *kept = messages->inboxes[peer].first;
            messages->inboxes[peer].first = kept->next;
            free(kept);
        }
    free(messages->sends);
    free(messages->inboxes);
}

static void end(struct messages *messages, struct ty_request *request) {
    request->done = true;
    messages->under_way--;
}

/* The first receive for the tag, which is no longer waiting then; or NULL. */
static struct ty_request *take_receive(struct inbox *inbox, int32_t tag) {
    struct ty_request *before = NULL, *request = inbox->receives.first;
    for (; request != NULL && request->call.tag != tag; request = request->next)
        before = request;
    if (request == NULL) return NULL;
    if (before == NULL)
        inbox->receives.first = request->next;
    else
        before->next = request->next;
    if (inbox->receives.last == request) inbox->receives.last = before;
    return request;
}

/* Whether the receive asks for what the message is. If not, the call that the sender made is told as the vote's
 * lowest. */
static bool fits(struct messages *messages, struct ty_request *request, const struct header *header) {
    if (header->count == request->call.count && header->type == request->call.type) return true;
    messages->way->vote = (struct comm_vote){
        .failure = TY_EMISMATCH,
        .lowest = {.operation = COMM_SEND,
                   .count = header->count,
                   .type = (uint8_t)header->type,
                   .tag = header->tag,
                   .root = messages->rank},
        .lowest_rank = request->call.root,
    };
    messages->way->failed = request;
    return false;
}

/* A message that was kept aside goes to its receive. */
static void hand_over(struct messages *messages, struct aside *kept, struct ty_request *request) {
    struct inbox *inbox = &messages->inboxes[request->call.root];
    if (!fits(messages, request, &kept->header)) return;
    if (request->bytes > 0) memcpy(request->output, kept->data, request->bytes);
    struct aside *before = NULL;
    for (struct aside *other = inbox->first; other != kept; other = other->next)
        before = other;
    if (before == NULL)
        inbox->first = kept->next;
    else
        before->next = kept->next;
    if (inbox->last == kept) inbox->last = before;
    free(kept);
    end(messages, request);
}

/* Finds a place for the data behind a header that has come. */
static bool place(struct messages *messages, struct inbox *inbox) {
    const struct header *header = &inbox->header;
    struct ty_request *request = take_receive(inbox, header->tag);
    if (request != NULL) {
        if (!fits(messages, request, header)) return false;
        inbox->taker = request;
        inbox->to = request->output;
        inbox->bytes = request->bytes;
        return true;
    }
    /* What a header says is the peer's word: what it announces must be a size that memory can have. */
    size_t width = comm_type_size((ty_data_type)header->type);
    struct aside *kept = NULL;
    if (width > 0 && header->count <= PTRDIFF_MAX / 2 / width)
        kept = malloc(sizeof *kept + (size_t)header->count * width);
    if (kept == NULL) {
        messages->way->failed = inbox->receives.first;
        (void)ty_fail_memory(&messages->way->error);
        return false;
    }
    *kept = (struct aside){.header = *header};
    if (inbox->first == NULL)
        inbox->first = kept;
    else
        inbox->last->next = kept;
    inbox->last = inbox->keeper = kept;
    inbox->to = kept->data;
    inbox->bytes = (size_t)header->count * width;
    return true;
}

/* All of a message has come. */
static void complete(struct messages *messages, struct inbox *inbox) {
    inbox->step = 0;
    if (inbox->taker != NULL) {
        end(messages, TAKE(inbox->taker));
        return;
    }
    struct aside *kept = TAKE(inbox->keeper);
    kept->complete = true;
    struct ty_request *request = take_receive(inbox, kept->header.tag); /* it may have come meanwhile */
    if (request != NULL) hand_over(messages, kept, request);
}

/* Only as long as somebody receives: what nobody asks for stays in the stream, which fills up, and then holds
 * the sender back. */
static void receive_some(struct messages *messages, int from) {
    struct inbox *inbox = &messages->inboxes[from];
    const size_t ahead = sizeof inbox->header;
    while (messages->way->failed == NULL && (inbox->taker != NULL || inbox->receives.first != NULL)) {
        bool in_header = inbox->step < ahead;
        char *to = in_header ? (char *)&inbox->header + inbox->step : inbox->to + (inbox->step - ahead);
        size_t n = messages->streams->read(messages->context, from, to,
                                           (in_header ? ahead : ahead + inbox->bytes) - inbox->step);
        if (n == 0) return;
        inbox->step += n;
        if (inbox->step < ahead || (in_header && !place(messages, inbox))) continue;
        if (inbox->step == ahead + inbox->bytes) complete(messages, inbox);
    }
}

/* The header is made anew in each turn, and sent from where the last one ended: a request keeps a count of
 * bytes and nothing else. */
static void send_some(struct messages *messages, int to) {
    struct request_list *sends = &messages->sends[to];
    while (sends->first != NULL && messages->way->failed == NULL) {
        struct ty_request *request = sends->first;
        struct header header = {
            .count = request->call.count, .tag = request->call.tag, .type = request->call.type};
        bool in_header = request->step < sizeof header;
        const char *from = in_header ? (const char *)&header + request->step
                                     : (const char *)request->input + (request->step - sizeof header);
        size_t n = messages->streams->write(messages->context, to, from,
                                            (in_header ? sizeof header : sizeof header + request->bytes) -
                                                request->step);
        if (n == 0) return;
        request->step += n;
        if (request->step == sizeof header + request->bytes) end(messages, request_list_take(sends));
    }
}

void messages_begin(struct messages *messages, struct ty_request *request) {
    int peer = request->call.root;
    messages->under_way++;
    if (request->call.operation == COMM_SEND) {
        request_list_append(&messages->sends[peer], request);
        return;
    }
    /* One that is still coming is handed over when it is whole. */
    for (struct aside *kept = messages->inboxes[peer].first; kept != NULL; kept = kept->next)
        if (kept->complete && kept->header.tag == request->call.tag) {
            hand_over(messages, kept, request);
            return;
        }
    request_list_append(&messages->inboxes[peer].receives, request);
}

void messages_progress(struct messages *messages) {
    for (int peer = 0; peer < messages->size && messages->under_way > 0; peer++) {
        send_some(messages, peer);
        receive_some(messages, peer);
    }
}

struct ty_request *messages_waiting_for(const struct messages *messages, int rank) {
    const struct inbox *inbox = &messages->inboxes[rank];
    if (messages->sends[rank].first != NULL) return messages->sends[rank].first;
    return inbox->taker != NULL ? inbox->taker : inbox->receives.first;
}
