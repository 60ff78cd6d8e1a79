/* One world a seed. Faults come for the first half hour of virtual time; after it all is well, so that every
 * run must come to its end. */
#include "world.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/dice.h"
#include "engine/sim.h"
#include "replay.h"
#include "run/internal.h"
#include "shortage.h"

enum { RANKS = 12, NODES = 5, NUMBERS = 4096 };

#define FAULTS_END (1800 * NS_PER_S)
#define WORLD_END (4 * 3600 * NS_PER_S)

struct world;

/* A worker's training function: reports, and checkpoints that it writes beside (async) or waits for. */
struct actor {
    struct world *world;
    uint32_t rank, node;
    int holder; /* attempt whose worker holds this rank's device; 0: nobody */
    uint64_t number, last;
    uint64_t writing; /* number; 0: none */
    bool stalled;     /* until the checkpoint is committed */
    bool asked;       /* which checkpoints there are */
    int silences;     /* since it hangs */
    struct loop_timer step, write, silence;
};

/* What the workers really did about one number. */
struct truth {
    int attempt;
    uint32_t reported, began, wrote; /* sets of ranks */
};

/* X(name) */
#define FAULTS(X)      \
    X(FAULT_KILL_NODE) \
    X(FAULT_PARTITION) \
    X(FAULT_FREEZE)    \
    X(FAULT_END_AGENT) \
    X(FAULT_CRASH)     \
    X(FAULT_EXIT)      \
    X(FAULT_HANG)      \
    X(FAULT_RESTART)   \
    X(FAULT_ROOM)      \
    X(FAULT_INTERRUPT)

enum fault {
#define X(name) name,
    FAULTS(X)
#undef X
        FAULT_COUNT
};

struct world {
    struct dice dice, strays;
    bool astray;                  /* inputs come that nobody expects, */
    enum run_state prey, strayed; /* in this state; in which the run was when that was looked at last */
    bool elastic;                 /* nodes may be away while it runs */
    bool hasty;                   /* workers do not wait for their last checkpoint, which takes long */
    struct run_config config;
    struct sim *sim;
    struct replay replay;
    struct {
        int attempt;
        char checkpoint[64];
    } durable;                   /* as of the last step: the journal is committed at the end of each */
    int dying;                   /* steps that the controller still has; 0: it lives on */
    uint64_t used, acknowledged; /* numbers: of a report, of a checkpoint that a rank was told of */
    uint32_t node_of[RANKS], looked_at[RANKS];
    uint32_t room[NODES], least; /* of an elastic run; least 0: the size is fixed */
    struct actor actors[RANKS];
    struct truth truths[NUMBERS];
    uint64_t committed; /* number of the last commit */
    char latest[64];
    uint64_t reports, every; /* of an attempt; every so many a checkpoint */
    bool async;
    double malice; /* 0 to 1: how often things go wrong */
    struct loop_timer fault, heal[NODES];
    struct healing {
        struct world *world;
        uint32_t node;
    } healings[NODES];
    int interrupts;
    enum run_state state; /* as of the last step, */
    int attempt;
    nanoseconds since; /* from then on */
    int trace;
    struct world_result *result;
    char wrong[512]; /* the first thing that did not hold */
};

static double seconds(const struct world *world) {
    return (double)loop_now(sim_loop(world->sim)) / (double)NS_PER_S;
}

static void found(struct world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void found(struct world *world, const char *format, ...) {
    if (world->wrong[0] != '\0') return;
    int size = snprintf(world->wrong, sizeof world->wrong, "at %.6f s: ", seconds(world));
    va_list args;
    va_start(args, format);
    (void)vsnprintf(world->wrong + size, sizeof world->wrong - (size_t)size, format, args);
    va_end(args);
}

static void trace(const struct world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void trace(const struct world *world, const char *format, ...) {
    if (!world->trace) return;
    (void)fprintf(stderr, "%12.6f ", seconds(world));
    va_list args;
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fputc('\n', stderr);
}

static bool faulty(const struct world *world) {
    return loop_now(sim_loop(world->sim)) < FAULTS_END;
}

/* Something that goes wrong now and then. */
static bool bad_luck(struct world *world, double probability) {
    return faulty(world) && dice_chance(&world->dice, probability * world->malice);
}

static nanoseconds between(struct world *world, double least, double most) {
    return (nanoseconds)((least + (most - least) * dice_unit(&world->dice)) * 1e9);
}

/* -- what workers do */

static struct truth *truth_of(struct world *world, uint64_t number, int attempt) {
    struct truth *truth = &world->truths[number % NUMBERS];
    if (truth->attempt != attempt) *truth = (struct truth){.attempt = attempt};
    return truth;
}

static void next_step(struct actor *actor) {
    (void)loop_timer_start(sim_loop(actor->world->sim), &actor->step, between(actor->world, 0.1, 4));
}

static void report(struct actor *actor, enum report_kind kind, uint64_t number) {
    struct world *world = actor->world;
    struct truth *truth = truth_of(world, number, actor->holder);
    if (number > world->used) world->used = number;
    uint32_t me = 1u << actor->rank;
    if (kind == REPORT_METRICS || kind == REPORT_BEGIN) truth->reported |= me;
    if (kind == REPORT_BEGIN) truth->began |= me;
    if (kind == REPORT_COMMIT) truth->wrote |= me;
    sim_worker_report(world->sim, actor->rank, kind, number);
}

/* The end of writing a rank's files: there, or not. */
static void on_written(void *context) {
    struct actor *actor = context;
    if (!bad_luck(actor->world, 0.05)) {
        report(actor, REPORT_COMMIT, actor->writing);
        if (actor->world->hasty && actor->number == actor->last)
            sim_worker_exit(actor->world->sim, actor->rank, 0);
        return;
    }
    report(actor, REPORT_ABORT, actor->writing);
    actor->writing = 0;
    if (actor->stalled) next_step(actor);
    actor->stalled = false;
}

static void begin_checkpoint(struct actor *actor) {
    struct world *world = actor->world;
    report(actor, REPORT_BEGIN, actor->number);
    actor->writing = actor->number;
    (void)loop_timer_start(sim_loop(world->sim), &actor->write, between(world, 0, 3));
    actor->stalled = !world->async;
    if (world->async) next_step(actor);
}

static void on_step(void *context) {
    struct actor *actor = context;
    struct world *world = actor->world;
    bool last = actor->number == actor->last, checkpoint = (actor->number + 1) % world->every == 0;
    if (actor->writing != 0 && (last || checkpoint)) {
        actor->stalled = true; /* one at a time, and none is left behind */
        return;
    }
    if (last) {
        sim_worker_exit(world->sim, actor->rank, 0);
        return;
    }
    actor->number++;
    if (checkpoint && dice_chance(&world->dice, 0.7)) {
        begin_checkpoint(actor);
        return;
    }
    report(actor, REPORT_METRICS, actor->number);
    actor->asked = dice_chance(&world->dice, 0.05);
    if (actor->asked)
        sim_worker_report(world->sim, actor->rank, REPORT_LIST, actor->number);
    else
        next_step(actor);
}

static void listed(void *context, uint32_t rank) {
    struct world *world = context;
    struct actor *actor = &world->actors[rank];
    if (actor->asked) next_step(actor);
    actor->asked = false;
}

static void answered(void *context, uint32_t rank, uint64_t number, bool committed) {
    struct world *world = context;
    struct actor *actor = &world->actors[rank];
    if (committed && number > world->acknowledged) world->acknowledged = number;
    if (!committed && actor->asked && actor->number == number)
        listed(context, rank); /* no memory to wait for it */
    if (actor->writing != number) return;
    trace(world, "rank %u: checkpoint %llu %s", rank, (unsigned long long)number,
          committed ? "is there" : "failed");
    actor->writing = 0;
    if (actor->stalled) next_step(actor);
    actor->stalled = false;
}

static void began(void *context, uint32_t rank) {
    struct world *world = context;
    struct actor *actor = &world->actors[rank];
    if (actor->holder != 0) found(world, "two workers hold the device of rank %u", rank);
    actor->holder = sim_worker_attempt(world->sim, rank);
    actor->node = world->node_of[rank];
    for (uint32_t other = 0; other < RANKS; other++) {
        int holder = world->actors[other].holder;
        if (world->actors[other].node == actor->node && holder != 0 && holder != actor->holder)
            found(world, "rank %u of attempt %d began beside rank %u of attempt %d", rank, actor->holder, other,
                  holder);
    }
    actor->number = run_report_base(sim_run(world->sim));
    if (actor->number < world->acknowledged)
        found(world, "rank %u begins behind report %llu, acknowledged was %llu", rank,
              (unsigned long long)actor->number, (unsigned long long)world->acknowledged);
    actor->last = actor->number + world->reports;
    actor->writing = 0;
    actor->stalled = actor->asked = false;
    if (dice_chance(&world->dice, 0.5)) sim_worker_ready(world->sim, rank);
    next_step(actor);
}

static void gone(void *context, uint32_t rank) {
    struct world *world = context;
    struct actor *actor = &world->actors[rank];
    actor->holder = 0;
    loop_timer_stop(sim_loop(world->sim), &actor->step);
    loop_timer_stop(sim_loop(world->sim), &actor->write);
    loop_timer_stop(sim_loop(world->sim), &actor->silence);
}

/* -- how the world is */

static nanoseconds start_agent(void *context, uint32_t node) {
    struct world *world = context;
    (void)node;
    if (bad_luck(world, 0.03)) return -EAGAIN;
    if (bad_luck(world, 0.002)) return TY_ESTART;
    return bad_luck(world, 0.03) ? between(world, 10, 120) : between(world, 0.01, 1);
}

static nanoseconds start_worker(void *context, uint32_t rank) {
    struct world *world = context;
    (void)rank;
    if (bad_luck(world, 0.01)) return -EAGAIN;
    if (bad_luck(world, 0.001)) return -ENOENT;
    return bad_luck(world, 0.03) ? between(world, 1, 20) : between(world, 0, 0.2);
}

static nanoseconds stop_worker(void *context, uint32_t rank) {
    struct world *world = context;
    (void)rank;
    if (bad_luck(world, 0.02)) return SIM_STUCK;
    if (dice_chance(&world->dice, 0.1)) return SIM_DISOBEYS;
    return dice_chance(&world->dice, 0.3) ? 0 : between(world, 0, 4);
}

static nanoseconds save_stacks(void *context, uint32_t node) {
    (void)node;
    return bad_luck(context, 0.2) ? -1 : between(context, 0, 2);
}

static nanoseconds message(void *context, uint32_t node, bool to_agent) {
    struct world *world = context;
    (void)node, (void)to_agent;
    return bad_luck(world, 0.02) ? between(world, 0, 5) : between(world, 0.0001, 0.005);
}

static bool doubled(void *context, uint32_t node) {
    (void)node;
    return bad_luck(context, 0.1);
}

static int launch(void *context, uint32_t node) {
    (void)node;
    return bad_luck(context, 0.01) ? -ENOMEM : 0;
}

/* Fills the nodes one after the other. */
static uint32_t layout(void *context, unsigned flags, const uint32_t **node_of) {
    struct world *world = context;
    bool claims = (flags & LAYOUT_CLAIM) != 0;
    uint32_t n = 0, found[RANKS];
    for (uint32_t node = 0; node < world->config.n_nodes; node++) {
        if ((flags & LAYOUT_LOST_TOO) == 0 && run_node_state(sim_run(world->sim), node) == NODE_LOST) continue;
        for (uint32_t i = 0; i < world->room[node] && n < RANKS; i++)
            found[n++] = node;
    }
    trace(world, "room for %u workers, wanted are %u%s", n, world->least, claims ? ", claimed" : "");
    if (n < world->least) return 0;
    *node_of = claims ? world->node_of : world->looked_at;
    memcpy(claims ? world->node_of : world->looked_at, found, n * sizeof *found);
    if (claims) world->result->resizes += world->config.n_workers != n;
    if (claims) world->config.n_workers = n;
    if (claims) replay_plan(&world->replay);
    return n;
}

/* A checkpoint is whole when every rank of this attempt made the report, and all that began to write have
 * written. */
static void check_whole(struct world *world, const struct run_commit *commit) {
    const struct truth *truth = &world->truths[commit->number % NUMBERS];
    uint32_t all = (1u << world->config.n_workers) - 1, files = 0;
    unsigned long long number = commit->number;
    for (size_t i = 0; i < commit->n; i++) {
        unsigned rank = 0;
        if (sscanf(commit->files[i], "[%u]", &rank) != 1)
            found(world, "checkpoint %llu: %s", number, commit->files[i]);
        files |= 1u << rank;
    }
    if (truth->attempt != commit->attempt)
        found(world, "checkpoint %llu is of attempt %d", number, truth->attempt);
    if (truth->reported != all)
        found(world, "checkpoint %llu: only ranks %x reported", number, truth->reported);
    if (truth->wrote != truth->began || files != truth->wrote || (size_t)__builtin_popcount(files) != commit->n)
        found(world, "checkpoint %llu: ranks %x began, %x wrote, %x are in it", number, truth->began,
              truth->wrote, files);
    if (commit->number <= world->committed) found(world, "checkpoint %llu comes late", number);
}

static nanoseconds publish(void *context, const struct run_commit *commit) {
    struct world *world = context;
    check_whole(world, commit);
    if (bad_luck(world, 0.05)) return -1;
    if (world->hasty) return between(world, 1, 10);
    if (dice_chance(&world->dice, 0.3)) return 0;
    return bad_luck(world, 0.1) ? between(world, 0, 300) : between(world, 0.001, 0.05);
}

static bool placed(void *context, uint64_t number) {
    struct world *world = context;
    if (bad_luck(world, 0.05)) return false;
    world->committed = number;
    world->result->checkpoints++;
    (void)snprintf(world->latest, sizeof world->latest, "checkpoint_%06llu", (unsigned long long)number);
    replay_row(&world->replay, world->latest);
    return true;
}

static nanoseconds check_latest(void *context) {
    struct world *world = context;
    if (dice_chance(&world->dice, 0.5)) return 0;
    return bad_luck(world, 0.1) ? between(world, 0, 300) : between(world, 0.001, 0.1);
}

static nanoseconds sync_record(void *context) {
    return bad_luck(context, 0.01) ? between(context, 0, 10) : 0;
}

static long draw_shortage(void *context, bool *for_good) {
    struct world *world = context;
    if (!bad_luck(world, 0.05)) return -1;
    *for_good = dice_chance(&world->dice, 0.3);
    return (long)dice_below(&world->dice, 4);
}

static uint64_t random_number(void *context) {
    return dice_next(&((struct world *)context)->dice);
}

static void record(void *context, const struct run_event *event) {
    struct world *world = context;
    struct buffer values = {0};
    run_event_encode(event, &values);
    trace(world, "%-12s rank %2d node %2d %s", run_event_name(event->kind), event->rank, event->node,
          values.size == 0 ? "" : values.data);
    buffer_done(&values);
    replay_event(&world->replay, event);
}

static const struct sim_hooks hooks = {
    .start_agent = start_agent,
    .start_worker = start_worker,
    .stop_worker = stop_worker,
    .save_stacks = save_stacks,
    .message = message,
    .doubled = doubled,
    .launch = launch,
    .publish = publish,
    .placed = placed,
    .check = check_latest,
    .sync = sync_record,
    .random = random_number,
    .layout = layout,
    .record = record,
    .began = began,
    .gone = gone,
    .listed = listed,
    .answered = answered,
};

/* -- faults */

static void on_heal(void *context) {
    const struct healing *healing = context;
    trace(healing->world, "node %u is heard again", healing->node);
    sim_partition(healing->world->sim, healing->node, SIM_CUT_NONE);
    sim_freeze(healing->world->sim, healing->node, false);
}

static void freeze(struct world *world, uint32_t node) {
    nanoseconds length = dice_chance(&world->dice, 0.5) ? between(world, 0.1, 20) : between(world, 20, 200);
    if (world->heal[node].state != NULL) return;
    sim_freeze(world->sim, node, true);
    (void)loop_timer_start(sim_loop(world->sim), &world->heal[node], length);
}

static void cut_off(struct world *world, uint32_t node) {
    nanoseconds length = dice_chance(&world->dice, 0.5) ? between(world, 0.1, 9) : between(world, 9, 40);
    if (world->heal[node].state != NULL) return;
    sim_partition(world->sim, node, (enum sim_cut)(1 + dice_below(&world->dice, SIM_CUT_BOTH)));
    (void)loop_timer_start(sim_loop(world->sim), &world->heal[node], length);
}

/* It does nothing more, and its agent says so again and again. */
static void hang(struct actor *actor) {
    struct loop *loop = sim_loop(actor->world->sim);
    if (!sim_worker_runs(actor->world->sim, actor->rank)) return;
    loop_timer_stop(loop, &actor->step);
    loop_timer_stop(loop, &actor->write);
    actor->stalled = actor->asked = false;
    actor->writing = 0;
    actor->silences = 0;
    sim_worker_ready(actor->world->sim, actor->rank); /* no other can hang */
    (void)loop_timer_start(loop, &actor->silence, 5 * NS_PER_S);
}

static void on_silence(void *context) {
    struct actor *actor = context;
    if (++actor->silences > 60 && run_state_of(sim_run(actor->world->sim)) == RUN_RUNNING)
        found(actor->world, "rank %u hangs, and nothing is done about it", actor->rank);
    sim_worker_hang(actor->world->sim, actor->rank);
    (void)loop_timer_start(sim_loop(actor->world->sim), &actor->silence, 5 * NS_PER_S);
}

static void interrupt(struct world *world) {
    if (!dice_chance(&world->dice, world->interrupts > 0 ? 0.5 : 0.03)) return;
    world->interrupts++;
    if (dice_chance(&world->dice, 0.1))
        run_quit(sim_run(world->sim), SIGQUIT);
    else if (dice_chance(&world->dice, 0.5))
        run_interrupt(sim_run(world->sim), SIGINT);
    else
        run_preempt(sim_run(world->sim), SIGTERM);
}

static void do_fault(struct world *world, enum fault fault) {
    static const char *const names[] = {
#define X(name) #name,
        FAULTS(X)
#undef X
    };
    static const int leavings[] = {-1, 0, SIGTERM};
    uint32_t node = (uint32_t)dice_below(&world->dice, world->config.n_nodes);
    uint32_t rank = (uint32_t)dice_below(&world->dice, world->config.n_workers);
    trace(world, "%s node %u rank %u", names[fault], node, rank);
    world->result->faults++;
    switch (fault) {
    case FAULT_KILL_NODE:
        sim_kill_node(world->sim, node, dice_chance(&world->dice, 0.5) ? 0 : between(world, 0, 10));
        break;
    case FAULT_PARTITION:
        cut_off(world, node);
        break;
    case FAULT_FREEZE:
        freeze(world, node);
        break;
    case FAULT_END_AGENT:
        sim_end_agent(world->sim, node, leavings[dice_below(&world->dice, 3)]);
        break;
    case FAULT_CRASH:
        sim_worker_exit(world->sim, rank, SIGKILL);
        break;
    case FAULT_HANG:
        hang(&world->actors[rank]);
        break;
    case FAULT_EXIT:
        sim_worker_exit(world->sim, rank, dice_chance(&world->dice, 0.3) ? 0 : 3 << 8);
        break;
    case FAULT_RESTART:
        if (world->dying == 0 && dice_chance(&world->dice, 0.3))
            world->dying = 1 + (int)dice_below(&world->dice, 60);
        break;
    case FAULT_ROOM:
        world->room[node] = (uint32_t)dice_below(&world->dice, 4);
        run_room_changed(sim_run(world->sim));
        break;
    default:
        interrupt(world);
    }
}

static void on_fault(void *context) {
    struct world *world = context;
    do_fault(world, (enum fault)dice_below(&world->dice, FAULT_COUNT));
    if (faulty(world))
        (void)loop_timer_start(sim_loop(world->sim), &world->fault,
                               dice_exponential(&world->dice, 10e9 / world->malice));
    else
        for (uint32_t i = 0; i < NODES; i++)
            world->room[i] = RANKS;
}

/* -- inputs that nobody expects: late, doubled, too early, or a word that turns out wrong. What would deny
 * the truth of the simulation (a worker that lives is gone) is left out; that comes from the simulation
 * itself. */

static bool is_away(const struct world *world, uint32_t node) {
    enum node_state state = run_node_state(sim_run(world->sim), node);
    return state == NODE_ABSENT || state == NODE_GONE || state == NODE_LOST;
}

static void break_device(struct run *run, uint32_t node) {
    const struct idset nobody = {0};
    const struct event_hardware told = {.fault = "xid", .device = 0, .code = 79, .cause = "Xid 79"};
    run_device_fault(run, &(struct run_fault){node, RUN_FAULT_OF_HARDWARE, &told, &nobody, 1});
}

static void stray_node(struct world *world, enum run_input_kind kind, uint32_t node) {
    struct run *run = sim_run(world->sim);
    enum node_state state = run_node_state(run, node);
    bool away = is_away(world, node);
    if (kind == INPUT_NODE_UP && state != NODE_CONNECTING) run_node_up(run, node, NULL);
    if (kind == INPUT_NODE_LOST && away) run_node_lost(run, node, "it never was there");
    if (kind == INPUT_NODE_LOST && !away) sim_kill_node(world->sim, node, 0);
    if (kind == INPUT_LEAVING) run_node_leaving(run, node, dice_chance(&world->strays, 0.5) ? SIGTERM : 0, 1);
    if (kind == INPUT_BYE && state != NODE_FINISHING) run_node_bye(run, node, true, 0);
    if (kind == INPUT_UNCLEAN && away) run_node_unclean(run, node);
    if (kind == INPUT_STACKS) run_node_stacks(run, node, "main", 4);
    if (kind == INPUT_FAULT) break_device(run, node);
}

static void stray_rank(struct world *world, enum run_input_kind kind, uint32_t rank) {
    struct run *run = sim_run(world->sim);
    enum worker_state state = run_worker(run, rank)->state;
    bool lives = state == WORKER_STARTED || state == WORKER_READY;
    bool nothing = state == WORKER_PLANNED || state == WORKER_GONE;
    struct run_report report = {.rank = rank, .kind = REPORT_METRICS};
    struct run_exit exit = {.wait_status = SIGKILL, .time = 1};
    struct run_start_failure failure = {.why = "no memory", .transient = true, .time = 1};
    if (kind == INPUT_STARTED && state != WORKER_LAUNCHED) run_worker_started(run, rank, 1, 1);
    if (kind == INPUT_READY && state != WORKER_STARTED) run_worker_ready(run, rank, 1);
    if (kind == INPUT_RENDEZVOUS) run_worker_rendezvous(run, rank, 1);
    if (kind == INPUT_EXITED && !lives) run_worker_exited(run, rank, &exit);
    if (kind == INPUT_NOT_STARTED && nothing) run_worker_start_failed(run, rank, &failure);
    if (kind == INPUT_GONE && nothing) run_worker_gone(run, rank, 1);
    if (kind == INPUT_HUNG) run_worker_hung(run, rank, "a word that is wrong", 1);
    if (kind == INPUT_REPORT) run_report(run, &report);
}

/* The attempt before the first of this controller, of whose workers nothing is known but that they go on. */
static void adopt(struct run *run, const struct run_config *config) {
    struct run_worker workers[REPLAY_WORKERS];
    for (uint32_t rank = 0; rank < REPLAY_WORKERS; rank++)
        workers[rank] = (struct run_worker){.state = WORKER_LAUNCHED, .reports = config->report_base};
    run_adopt(run, &(struct run_adoption){.report_base = config->report_base, .workers = workers});
}

static void stray(struct world *world) {
    struct run *run = sim_run(world->sim);
    enum run_input_kind kind = (enum run_input_kind)dice_below(&world->strays, RUN_INPUTS);
    uint32_t node = (uint32_t)dice_below(&world->strays, world->config.n_nodes);
    uint32_t rank = (uint32_t)dice_below(&world->strays, world->config.n_workers);
    if (is_away(world, node) && dice_chance(&world->strays, 0.3)) kind = INPUT_UNCLEAN; /* seldom away */
    trace(world, "a stray input %d of node %u or rank %u in %s", kind, node, rank, run_state_name(run->state));
    if (kind < (enum run_input_kind)RUN_TIMERS) run_timer_fired(run, (enum run_timer)kind);
    if (kind >= INPUT_NODE_UP && kind <= INPUT_UNCLEAN) stray_node(world, kind, node);
    if (kind == INPUT_STACKS || kind == INPUT_FAULT) stray_node(world, kind, node);
    if (kind >= INPUT_STARTED && kind <= INPUT_HUNG) stray_rank(world, kind, rank);
    if (kind == INPUT_REPORT) stray_rank(world, kind, rank);
    if (kind == INPUT_START) run_start(run);
    if (kind == INPUT_ADOPT && run->state != RUN_IDLE) adopt(run, &world->config);
    if (kind == INPUT_PUBLISHED) run_published(run, 0, strdup("nowhere"), NULL);
    if (kind == INPUT_CHECKED) run_checked(run);
    if (kind == INPUT_ROOM) run_room_changed(run);
    if (kind == INPUT_INTERRUPT) run_interrupt(run, SIGINT);
    if (kind == INPUT_QUIT) run_quit(run, SIGQUIT);
}

/* Several in a row, whenever the run comes into the state that they are drawn for; now and then while that
 * lasts. */
static void go_astray(struct world *world) {
    const struct run *run = sim_run(world->sim);
    bool comes = world->astray && run->state == world->prey &&
                 dice_chance(&world->strays, world->strayed != world->prey ? 0.95 : 0.0005);
    world->strayed = run->state;
    while (comes) {
        stray(world);
        comes = run->state == world->prey && dice_chance(&world->strays, 0.9);
    }
}

/* -- the controller dies, another one goes on with what the journal tells */

/* The nodes were there, and go as they are adopted. */
static void adopt_in_vain(struct world *world, const struct run_config *config) {
    struct run *run = sim_run(world->sim);
    trace(world, "attempt %d is adopted, and its nodes go", config->first_attempt - 1);
    adopt(run, config);
    for (uint32_t node = 0; node < config->n_nodes; node++)
        if (run_node_state(run, node) == NODE_LAUNCHED) run_node_lost(run, node, "it went as it was adopted");
}

static void commit(struct world *world) {
    world->durable.attempt = world->replay.fold.attempt;
    memcpy(world->durable.checkpoint, world->replay.checkpoint, sizeof world->durable.checkpoint);
}

static void restart(struct world *world) {
    struct run_config config = world->config;
    bool torn = dice_chance(&world->dice, 0.5);
    /* Torn: nothing of the last step came to the disk, and nothing left for an agent. */
    if (!torn) commit(world);
    char checkpoint[sizeof world->latest];
    memcpy(checkpoint, world->durable.checkpoint, sizeof checkpoint);
    trace(world, "the controller dies%s in attempt %d, checkpoint '%s'", torn ? " amid a step" : "",
          world->durable.attempt, checkpoint);
    world->committed = 0;
    (void)sscanf(checkpoint, "checkpoint_%" SCNu64, &world->committed);
    memcpy(world->latest, checkpoint, sizeof checkpoint);
    if (world->committed < world->acknowledged)
        found(world, "checkpoint %llu was acknowledged, the journal knows '%s'",
              (unsigned long long)world->acknowledged, checkpoint);
    config.first_attempt = world->durable.attempt + 1;
    /* The journal holds those that were heard: some of those that were made. */
    uint64_t unheard = world->used > world->committed ? world->used - world->committed : 0;
    config.report_base = world->committed + dice_below(&world->dice, unheard + 1);
    config.checkpoint = checkpoint[0] == '\0' ? NULL : checkpoint;
    if (sim_restart(world->sim, &config, NULL) < 0) {
        found(world, "no other controller can go on");
        return;
    }
    world->result->restarts++;
    world->config.first_attempt = config.first_attempt;
    replay_begin(&world->replay, &world->config);
    memcpy(world->replay.checkpoint, checkpoint, sizeof checkpoint);
    if (config.first_attempt > 1 && dice_chance(&world->strays, 0.3))
        adopt_in_vain(world, &config);
    else
        run_start(sim_run(world->sim));
}

/* -- what must always hold */

/* What waits for others waits under a limit; beyond it a slow journal holds up the controller. */
static nanoseconds longest(const struct world *world, enum run_state state) {
    static const nanoseconds held_up = 60 * NS_PER_S, storage = 30 * NS_PER_S, pause = 60 * NS_PER_S;
    switch (state) {
    case RUN_STARTING:
        return world->config.start_limit + held_up;
    case RUN_STOPPING:
        return world->config.grace + 10 * NS_PER_S + storage + held_up;
    case RUN_PAUSING:
        return world->least > 0 ? WORLD_END : pause + storage + held_up; /* an elastic one waits for room */
    case RUN_FINISHING:
        return world->config.grace + 10 * NS_PER_S + held_up;
    default:
        return WORLD_END;
    }
}

static void check_pace(struct world *world) {
    const struct run *run = sim_run(world->sim);
    nanoseconds now = loop_now(sim_loop(world->sim));
    if (world->state != run_state_of(run) || world->attempt != run_attempt(run)) world->since = now;
    world->state = run_state_of(run);
    world->attempt = run_attempt(run);
    if (now - world->since > longest(world, world->state))
        found(world, "the run is %s for %.1f s", run_state_name(world->state),
              (double)(now - world->since) / (double)NS_PER_S);
}

static void check(struct world *world) {
    const struct run *run = sim_run(world->sim);
    check_pace(world);
    if (sim_violation(world->sim) != NULL) found(world, "%s", sim_violation(world->sim));
    const char *differs = replay_differs(&world->replay, run);
    if (differs != NULL) found(world, "%s", differs);
    const char *checkpoint = run_checkpoint(run) == NULL ? "" : run_checkpoint(run);
    if (strcmp(checkpoint, world->latest) != 0)
        found(world, "the last checkpoint is '%s', committed was '%s'", checkpoint, world->latest);
    uint32_t counts[WORKER_STATE_COUNT], n = 0;
    run_count(run, counts);
    for (int state = 0; state < WORKER_STATE_COUNT; state++)
        n += counts[state];
    if (n != world->config.n_workers)
        found(world, "%u workers of %u are in a state", n, world->config.n_workers);
}

static void check_end(struct world *world) {
    const struct run *run = sim_run(world->sim);
    if (run_state_of(run) != RUN_ENDED) {
        found(world, "the run does not end: it is %s", run_state_name(run_state_of(run)));
        return;
    }
    for (uint32_t rank = 0; rank < world->config.n_workers; rank++) {
        if (sim_worker_attempt(world->sim, rank) != 0) found(world, "rank %u outlives the run", rank);
        if (run_outcome(run) == OUTCOME_SUCCEEDED && run_worker_exit(run, rank) != 0)
            found(world, "the run succeeded, rank %u did not", rank);
    }
    if (run_outcome(run) == OUTCOME_NONE) found(world, "the run has no outcome");
    const struct failure_policy *limits = &world->config.failures;
    int most = limits->max_failures + limits->controller_failure_limit + limits->max_preemption_failures + 1;
    bool bounded = world->least == 0 && limits->max_failures >= 0 && limits->controller_failure_limit >= 0 &&
                   limits->max_preemption_failures >= 0;
    int attempts = run_attempt(run) - world->config.first_attempt + 1; /* of this controller */
    if (bounded && attempts > most) found(world, "%d attempts, allowed are %d", attempts, most);
}

/* -- its life */

static int draw_limit(struct world *world) {
    return dice_chance(&world->dice, 0.3) ? -1 : (int)dice_below(&world->dice, 6);
}

static void draw_elastic(struct world *world) {
    world->least = 1 + (uint32_t)dice_below(&world->dice, world->config.n_workers);
    world->config.max_workers = RANKS;
    world->config.resize_interval = between(world, 1, 60);
    for (uint32_t rank = 0; rank < world->config.n_workers; rank++)
        world->room[world->node_of[rank]]++;
}

/* From a dice of their own: the other worlds stay as they are. Some states are rarer than others. */
static void draw_strays(struct world *world, uint64_t seed) {
    static const enum run_state rare[] = {RUN_COMPLETING, RUN_COMMITTING, RUN_HANGING, RUN_RESTING,
                                          RUN_WAITING};
    uint64_t drawn;
    dice_seed(&world->strays, ~seed);
    drawn = dice_below(&world->strays, RUN_STATE_COUNT + 2 * ARRAY_SIZE(rare));
    world->astray = seed % 8 == 1 || seed % 8 == 2 || seed % 8 == 5;
    world->prey =
        drawn < RUN_STATE_COUNT ? (enum run_state)drawn : rare[(drawn - RUN_STATE_COUNT) % ARRAY_SIZE(rare)];
    world->strayed = world->prey == RUN_IDLE ? RUN_ENDED : RUN_IDLE;
    world->elastic = dice_chance(&world->strays, 0.6) || world->prey == RUN_WAITING;
    world->hasty = world->astray && world->prey == RUN_COMPLETING;
}

static void draw(struct world *world) {
    struct dice *dice = &world->dice;
    uint32_t n_nodes = 1 + (uint32_t)dice_below(dice, NODES);
    uint32_t n_workers = n_nodes + (uint32_t)dice_below(dice, RANKS - n_nodes + 1);
    for (uint32_t rank = 0; rank < n_workers; rank++)
        world->node_of[rank] = rank * n_nodes / n_workers;
    world->config = (struct run_config){.n_workers = n_workers,
                                        .n_nodes = n_nodes,
                                        .node_of = world->node_of,
                                        .first_attempt = 1,
                                        .grace = between(world, 1, 10),
                                        .start_limit = between(world, 20, 60)};
    world->config.failures = (struct failure_policy){draw_limit(world), draw_limit(world), draw_limit(world)};
    if (dice_chance(dice, 0.3) || (world->astray && world->elastic)) draw_elastic(world);
    if (dice_chance(dice, 0.2)) world->config.time_limit = between(world, 10, 2000);
    world->reports = 1 + dice_below(dice, dice_chance(dice, 0.2) ? 200 : 30);
    world->every = 1 + dice_below(dice, 4);
    world->async = dice_chance(dice, 0.5);
    world->malice = dice_chance(dice, 0.1) ? 0.01 : dice_unit(dice);
}

static int set_up(struct world *world, uint64_t seed) {
    dice_seed(&world->dice, seed);
    dice_seed(&world->strays, ~seed);
    draw_strays(world, seed);
    draw(world);
    replay_begin(&world->replay, &world->config);
    if (sim_create(&world->config, &hooks, world, &world->sim, NULL) < 0) return -1;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        struct actor *actor = &world->actors[rank];
        *actor = (struct actor){.world = world, .rank = rank};
        actor->step = (struct loop_timer){.callback = on_step, .context = actor};
        actor->write = (struct loop_timer){.callback = on_written, .context = actor};
        actor->silence = (struct loop_timer){.callback = on_silence, .context = actor};
    }
    for (uint32_t node = 0; node < NODES; node++) {
        world->healings[node] = (struct healing){world, node};
        world->heal[node] = (struct loop_timer){.callback = on_heal, .context = &world->healings[node]};
    }
    world->fault = (struct loop_timer){.callback = on_fault, .context = world};
    return loop_timer_start(sim_loop(world->sim), &world->fault, 0);
}

static void tear_down(struct world *world) {
    struct loop *loop = sim_loop(world->sim);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        gone(world, rank);
    for (uint32_t node = 0; node < NODES; node++)
        loop_timer_stop(loop, &world->heal[node]);
    loop_timer_stop(loop, &world->fault);
    sim_destroy(world->sim);
    replay_done(&world->replay.fold);
}

const char *world_live(uint64_t seed, int tracing, struct world_result *result) {
    static struct world world;
    static const struct world blank;
    world = blank;
    world.trace = tracing;
    world.result = result;
    *result = (struct world_result){0};
    if (set_up(&world, seed) < 0) return "it cannot be made";
    shortage_begin(draw_shortage, &world);
    go_astray(&world);
    run_start(sim_run(world.sim));
    check(&world);
    commit(&world);
    while (world.wrong[0] == '\0' && run_state_of(sim_run(world.sim)) != RUN_ENDED &&
           loop_now(sim_loop(world.sim)) < WORLD_END && sim_step(world.sim)) {
        result->steps++;
        if (world.dying > 0 && --world.dying == 0) restart(&world);
        go_astray(&world);
        check(&world);
        commit(&world);
    }
    go_astray(&world);
    if (world.wrong[0] == '\0') check(&world);
    if (world.wrong[0] == '\0') check_end(&world);
    result->attempts = run_attempt(sim_run(world.sim));
    result->outcome = (int)run_outcome(sim_run(world.sim));
    result->shortages = shortage_count();
    shortage_begin(NULL, NULL);
    tear_down(&world);
    return world.wrong[0] == '\0' ? NULL : world.wrong;
}
