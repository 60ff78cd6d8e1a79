/* What a run does with each input in each of its states: the whole of the state machine, on one screen. An
 * entry `x` is the function run_on_x; `no` changes nothing: the input is late, doubled, or of an earlier
 * attempt. */
#include "run/internal.h"

#include <stdint.h>

/* -- the lifecycles of state.h, unrolled */

#define LIFECYCLE(kind, STATES)                            \
    const char *kind##_name(enum kind state) {             \
        static const char *const names[] = {STATES(NAME)}; \
        return names[state];                               \
    }                                                      \
    bool kind##_may_follow(enum kind from, enum kind to) { \
        static const uint32_t next[] = {STATES(NEXT)};     \
        return next[from] >> to & 1;                       \
    }

#define NAME(name, text, next) [name] = text,
#define NEXT(name, text, next) [name] = next,

LIFECYCLE(run_state, RUN_STATES)
LIFECYCLE(node_state, NODE_STATES)
LIFECYCLE(worker_state, WORKER_STATES)

#undef NAME
#undef NEXT

/* -- inputs */

static void run_on_no(struct run *run, const struct run_input *input) {
    (void)run, (void)input;
}

#define CELLS(idle, sta, run, hang, stop, compl, comm, rest, pau, chk, wait, fin, end)                       \
    {run_on_##idle, run_on_##sta, run_on_##run, run_on_##hang, run_on_##stop, run_on_##compl, run_on_##comm, \
     run_on_##rest, run_on_##pau, run_on_##chk, run_on_##wait, run_on_##fin,  run_on_##end},
#define ON(input, ...) [INPUT_##input] = CELLS(__VA_ARGS__)
#define TIMER(timer, ...) [(int)TIMER_##timer] = CELLS(__VA_ARGS__)

/* Where the row of a timer has `no`, what the timer limited is over. What an input of a node or worker means
 * depends on that one's own state as well, which the entry looks at: a move that its table (state.h) does not
 * allow changes nothing. */
/* clang-format off */
static run_entry *const table[RUN_INPUTS][RUN_STATE_COUNT] = {
/*                  idle   star-  run-    hang-   stop-  compl- comm-  rest-  paus-  check- wait-  fin-   end-
                           ting   ning    ing     ping   eting  itting ing    ing    ing    ing    ish    ed */
    ON(START,       begin, no,    no,     no,     no,    no,    no,    no,    no,    no,    no,    no,    no)
    ON(ADOPT,       adopt, no,    no,     no,     no,    no,    no,    no,    no,    no,    no,    no,    no)
    ON(NODE_UP,     no,    enrol, probe,  probe,  join,  join,  join,  join,  join,  join,  join,  no,    no)
    ON(NODE_LOST,   no,    lose,  lose,   lose,   miss,  lose,  miss,  drop,  drop,  drop,  drop,  part,  no)
    ON(LEAVING,     no,    no,    leave,  leave,  go,    leave, go,    no,    no,    no,    no,    no,    no)
    ON(BYE,         no,    no,    no,     no,     no,    no,    no,    no,    no,    no,    no,    bye,   no)
    ON(UNCLEAN,     stain, stain, stain,  stain,  stain, stain, stain, stain, stain, stain, stain, stain, stain)
    ON(STARTED,     no,    no,    began,  began,  began, no,    no,    no,    no,    no,    no,    no,    no)
    ON(READY,       no,    no,    ready,  ready,  ready, no,    no,    no,    no,    no,    no,    no,    no)
    ON(RENDEZVOUS,  no,    no,    met,    met,    met,   no,    no,    no,    no,    no,    no,    no,    no)
    ON(EXITED,      no,    no,    exit,   exit,   end,   no,    no,    no,    no,    no,    no,    no,    no)
    ON(NOT_STARTED, no,    no,    fail,   fail,   skip,  no,    no,    no,    no,    no,    no,    no,    no)
    ON(GONE,        no,    no,    gone,   gone,   left,  no,    no,    no,    no,    no,    no,    no,    no)
    ON(HUNG,        no,    no,    hang,   no,     no,    no,    no,    no,    no,    no,    no,    no,    no)
    ON(STACKS,      no,    no,    no,     stack,  no,    no,    no,    no,    no,    no,    no,    no,    no)
    ON(FAULT,       no,    fault, fault,  fault,  fault, fault, fault, fault, fault, fault, fault, fault, no)
    ON(REPORT,      no,    no,    report, report, hear,  hear,  hear,  no,    no,    no,    no,    no,    no)
    ON(PUBLISHED,   free,  free,  commit, commit, store, last,  last,  free,  free,  free,  free,  free,  free)
    ON(CHECKED,     no,    no,    no,     no,     no,    no,    no,    pause, no,    next,  no,    no,    no)
    ON(ROOM,        no,    no,    no,     no,     no,    no,    no,    no,    no,    no,    next,  no,    no)
    ON(INTERRUPT,   count, halt,  halt,   halt,   kill,  rush,  rush,  quit,  quit,  quit,  quit,  hurry, no)
    ON(QUIT,        count, halt,  dump,   halt,   kill,  rush,  rush,  quit,  quit,  quit,  quit,  hurry, no)
    TIMER(START,    no,    late,  late,   late,   prune, prune, prune, prune, prune, prune, prune, no,    no)
    TIMER(LIMIT,    no,    limit, limit,  limit,  limit, limit, limit, over,  over,  over,  over,  no,    no)
    TIMER(PAUSE,    no,    no,    no,     no,     no,    no,    no,    check, next,  no,    next,  no,    no)
    TIMER(STOP,     no,    no,    no,     no,     force, no,    force, no,    no,    no,    no,    no,    no)
    TIMER(FINISH,   no,    no,    no,     no,     no,    no,    no,    no,    no,    no,    no,    shut,  no)
    TIMER(STACKS,   no,    no,    no,     blame,  no,    no,    no,    no,    no,    no,    no,    no,    no)
    TIMER(STORAGE,  no,    no,    no,     no,     no,    close, close, pause, no,    next,  no,    no,    no)
    TIMER(REPORTS,  no,    no,    tell,   tell,   tell,  tell,  tell,  no,    no,    no,    no,    no,    no)
    TIMER(RESIZE,   no,    no,    resize, resize, no,    no,    no,    no,    no,    no,    no,    no,    no)
};
/* clang-format on */

void run_take(struct run *run, const struct run_input *input) {
    table[input->kind][run->state](run, input);
}
