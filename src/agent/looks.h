/* Workers of a node looked at again and again, as the controller asks for somebody elsewhere: by a process of
 * its own, `trainyard agent --looks LENGTH PERIOD RANK:PID...` (ns), since to read another's /proc can wait for
 * that process. One at a time; it ends with the workers. */
#ifndef AGENT_LOOKS_H
#define AGENT_LOOKS_H

#include "agent/outbox.h"
#include "agent/worker_process.h"

struct looks { /* zero-initialised but for `outbox` */
    struct outbox *outbox;
    pid_t pid; /* 0: none */
    int fd;    /* of what is found out, in memory */
    uint32_t ticket;
};

/* Begins; what was seen is sent when it is over. Nothing was, where it cannot begin or another goes on. */
void looks_begin(struct looks *looks, const Wire__Look *order, const struct worker_process *workers, size_t n);
/* A child of this process was reaped: true when it was that one. */
bool looks_reaped(struct looks *looks, pid_t pid);
/* Kills it; it goes on until it is reaped. */
void looks_end(struct looks *looks);
bool looks_go_on(const struct looks *looks);

/* Exit status. argv[0] is the word before LENGTH. */
int looks_main(int argc, char **argv);

#endif
