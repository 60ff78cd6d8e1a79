/* The output of one worker: read from its two pipes, handed to its log as it is, and sent to the controller as
 * whole lines. Nothing is dropped: when the controller or the logs do not keep up, the pipes are not read, and
 * the worker waits in its write. */
#ifndef AGENT_RELAY_H
#define AGENT_RELAY_H

#include "agent/lines.h"
#include "agent/logs.h"
#include "agent/outbox.h"
#include "agent/pty.h"

enum { RELAY_TAIL_BYTES = 4 << 10, RELAY_TAIL_LINES = 20 };

struct relay_config {
    uint32_t rank;
    struct logs *logs;
    const char *run_path; /* its logs/ takes the log, "": none; borrowed during the call */
    bool prefix, escape;
    bool colour;     /* of a terminal: those go on */
    bool pass;       /* with neither: bytes go as they come */
    struct pty *pty; /* the worker has a terminal, which is both streams: only the first is read; NULL: none */
    bool quiet;      /* to the log only */
    unsigned hidden; /* likewise, of one stream: 1, 2, or 3 for both */
    uint32_t live;   /* bit N - 1: lines of stream N that have not ended are told while they stand */
};

struct relay_stream {
    struct relay *relay;
    struct source source;
    struct lines lines;
    int number;                   /* 1 or 2 */
    bool enlarged;                /* its pipe holds more than by default */
    bool held;                    /* the logs are full */
    size_t left;                  /* while `finishing`: bytes that are still read */
    struct loop_timer live_timer; /* runs when the line that stands is to be told */
    nanoseconds live_told;        /* when it was last */
    bool live_shown;              /* and it was not empty */
};

struct relay {
    struct outbox *outbox;
    struct relay_config config;
    struct relay_stream streams[2];
    void (*ended)(void *context); /* both streams are read to their end and closed */
    void *context;
    struct log *log;    /* NULL: none */
    uint64_t bytes;     /* that were read */
    struct buffer tail; /* the last bytes of both streams */
    struct buffer note; /* what it told beside its output: behind the last lines, whole */
    bool taking_last;   /* of a worker that failed: what lies in the pipes is read though nobody keeps up */
    bool finishing;     /* what lay in the pipes is read, whatever a stranger adds, and then they are closed */
};

/* Takes over the reading ends of both pipes, or of a terminal and -1, also when it fails. */
int relay_start(struct relay *relay, struct outbox *outbox, const struct relay_config *config, const int fds[2],
                void (*ended)(void *context), void *context, ty_error *err);
void relay_done(struct relay *relay); /* closes and frees; a zeroed one is fine */
bool relay_has_ended(const struct relay *relay);

/* The logs have room again. */
void relay_go_on(struct relay *relay);
/* Takes what lies in the pipes now, as long as the controller and the logs keep up. */
void relay_take(struct relay *relay);
/* The same though they do not: of a worker that failed, whose last lines lie there. It writes no more, so this
 * is no more than its pipes hold. */
void relay_take_last(struct relay *relay);
/* Nobody that matters writes any more: takes what lies in the pipes now and ends, even if a stranger holds them
 * open and writes on. */
void relay_finish(struct relay *relay);

/* What the worker tells of its end beside its output, such as a traceback: it goes to the log, and behind the
 * last lines, but is not printed; who prints the last lines prints it. */
void relay_note(struct relay *relay, const char *text, size_t size);

/* Appends the last bytes of output, as they came. */
void relay_recent(const struct relay *relay, struct buffer *out);

/* Whether the last line of `text` is among the last lines of output. */
bool relay_has_shown(const struct relay *relay, const char *text);

/* Appends the last lines of output and the note behind them, escaped, without prefix. */
void relay_tail(const struct relay *relay, struct buffer *out);

#endif
