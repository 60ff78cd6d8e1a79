/* Which addresses of other nodes this one reaches, and its own part in what they find out: as the interfaces of
 * a machine may lead anywhere, or nowhere, each address is tried before ranks are told to use it.
 *
 * A trial listens on one port of every address. Both ends of a connection prove there that they have the key of
 * the run (tls.h), and whoever listens says which node it is: the same address may well be another machine's,
 * as those of virtual bridges are. Nobody learns or changes anything else by it, and what is not proven within
 * TRIAL_PROOF_LIMIT is closed. */
#ifndef ENGINE_TRIAL_H
#define ENGINE_TRIAL_H

#include "base/duration.h"
#include "loop/loop.h"
#include "wire/key.h"
#include "wire/trainyard.pb-c.h"

/* A node's targets; visitors that have not proven anything (gate.h). */
enum { TRIAL_TARGETS_MAX = 128, TRIAL_VISITORS_MAX = 256 };
#define TRIAL_LIMIT (2 * NS_PER_S) /* of one trial */
#define TRIAL_PROOF_LIMIT (3 * NS_PER_S)

struct network_trial; /* opaque */

/* Listens, on IPv6 and IPv4, or on the one that there is. */
int trial_open(struct loop *loop, const struct run_key *key, uint32_t node_rank, struct network_trial **trial,
               ty_error *err);
void trial_close(struct network_trial *trial); /* also while it goes on: nobody is told then; NULL is fine */
uint32_t trial_port(const struct network_trial *trial);

/* Tries all targets at once, of which the first TRIAL_TARGETS_MAX count, and calls `done` from the loop when
 * all have answered, or at TRIAL_LIMIT; sooner, when one address of each node has answered and the others were
 * given a moment more. Once at a time: a second begin is refused with TY_EUSAGE. */
int trial_begin(struct network_trial *trial, const Wire__Try *targets,
                void (*done)(void *context, const Wire__Tried *tried), void *context, ty_error *err);

#endif
