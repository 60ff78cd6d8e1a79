/* Finding what outlived its worker. /proc is read only when the kernel says that there are children;
 * descendants are found by their parents, so that one that hides in a session or group of its own is found
 * too. */
#include "agent/node_run.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/process.h"

#define RESCAN_EVERY (5 * NS_PER_MS)
#define GIVE_UP_AFTER (10 * NS_PER_S)

enum kin { UNKNOWN, OURS, OTHERS };

struct relative {
    pid_t pid, parent;
    enum kin kin;
};

struct process_table {
    struct relative *items; /* once read, in the order of their pids */
    size_t n;
};

static int compare_pids(const void *a, const void *b) {
    const struct relative *one = a, *other = b;
    return (one->pid > other->pid) - (one->pid < other->pid);
}

static void read_processes(struct process_table *table) {
    DIR *proc = opendir("/proc");
    if (proc == NULL) return;
    for (pid_t pid; (pid = process_next(proc)) > 0;) {
        if (ARRAY_GROW(table->items, table->n) < 0) break;
        struct process process;
        (void)process_read(pid, &process);
        if (process.parent == getpid() && process.end_signal == 0) continue; /* of our own storage */
        table->items[table->n++] = (struct relative){.pid = pid, .parent = process.parent};
    }
    (void)closedir(proc);
    if (table->n > 0) qsort(table->items, table->n, sizeof *table->items, compare_pids);
}

/* The agent's own, which outlive attempts. */
static bool is_kept(const struct node_sweep *sweep, pid_t pid) {
    return template_owns(sweep->template, pid) || sampling_owns(sweep->sampling, pid);
}

/* Any child, living or not, beside the agent's own three processes. The kernel's own list of children is exact
 * here: they come first in it as long as nothing older is left, and while an entry lives, the one behind it
 * is found without counting. */
static bool has_children(const struct node_sweep *sweep) {
    pid_t first[4];
    if (!process_has_children()) return false;
    if (!template_lives(sweep->template) && sweep->sampling->pid <= 0) return true;
    int n = process_children(getpid(), first, ARRAY_SIZE(first));
    for (int i = 0; i < n; i++)
        if (!is_kept(sweep, first[i])) return true;
    if (n >= 0) return false;
    struct process_table table = {0};
    bool found = false;
    read_processes(&table);
    for (size_t i = 0; i < table.n && !found; i++)
        found = table.items[i].parent == getpid() && !is_kept(sweep, table.items[i].pid);
    free(table.items);
    return found;
}

static struct relative *find(const struct process_table *table, pid_t pid) {
    const struct relative key = {.pid = pid};
    return table->n == 0 ? NULL : bsearch(&key, table->items, table->n, sizeof key, compare_pids);
}

/* A descendant of this process, but for what is kept and what is below it: its ancestors are followed up to
 * one that is known, and then all of them are. While they are, they count as others', so that a pid used
 * again meanwhile closes no circle. */
static bool is_ours(const struct process_table *table, const struct node_sweep *sweep,
                    struct relative *process) {
    struct relative *top = process;
    for (; top != NULL && top->kin == UNKNOWN; top = find(table, top->parent)) {
        top->kin = OTHERS;
        if (is_kept(sweep, top->pid)) break;
        if (top->parent == getpid()) {
            top->kin = OURS;
            break;
        }
    }
    bool ours = top != NULL && top->kin == OURS;
    for (; ours && process != top; process = find(table, process->parent))
        process->kin = OURS;
    return ours;
}

/* Each is asked to end once, and woken (CONT), as one that is stopped hears nothing; when the time is up all
 * that are there are killed at each look, those too that came since. */
static void end_descendants(struct node_sweep *sweep) {
    struct process_table table = {0};
    read_processes(&table);
    for (size_t i = 0; i < table.n; i++)
        if (is_ours(&table, sweep, &table.items[i])) {
            pid_t pid = table.items[i].pid;
            bool known = idset_has(&sweep->found, pid);
            if (!known) {
                sweep->leftovers++;
                (void)idset_add(&sweep->found, pid);
            }
            if (sweep->state == SWEEP_KILLING) {
                (void)kill(pid, SIGKILL);
            } else if (!known) {
                (void)kill(pid, SIGTERM);
                (void)kill(pid, SIGCONT);
            }
        }
    free(table.items);
}

/* One that ends just now is named by nobody. */
static void tell(const struct node_sweep *sweep) {
    CLEANUP(idset_done) struct idset left = {0};
    struct process_table table = {0};
    struct process process;
    read_processes(&table);
    for (size_t i = 0; i < table.n; i++) {
        pid_t pid = table.items[i].pid;
        if (!is_ours(&table, sweep, &table.items[i])) continue;
        if (process_read(pid, &process) && process.state != 'Z' && !process.ending) (void)idset_add(&left, pid);
    }
    free(table.items);
    sweep->left(sweep->context, &left);
}

static void stop(struct node_sweep *sweep, bool clean) {
    sweep->state = SWEEP_IDLE;
    loop_timer_stop(sweep->loop, &sweep->timer);
    idset_done(&sweep->found);
    if (sweep->linger > 0)
        sweep->waited(sweep->context);
    else
        sweep->ended(sweep->context, clean);
}

static void on_timer(void *context);

static void start_timer(struct node_sweep *sweep, nanoseconds delay) {
    sweep->timer = (struct loop_timer){.callback = on_timer, .context = sweep, .state = sweep->timer.state};
    (void)loop_timer_start(sweep->loop, &sweep->timer, delay);
}

/* Whoever is found later, as a child of one that ended, is asked as well as long as this lasts
 * (node_sweep_check); without a grace, or without anybody, the next look is at once, and kills. */
static void ask(struct node_sweep *sweep) {
    bool left = has_children(sweep);
    sweep->state = SWEEP_ASKING;
    if (left && sweep->grace > 0) end_descendants(sweep);
    start_timer(sweep, left ? sweep->grace : 0);
}

/* The time of its state is over, or no child is left. */
static void on_timer(void *context) {
    struct node_sweep *sweep = context;
    if (!has_children(sweep) || sweep->state == SWEEP_LINGERING) {
        stop(sweep, true);
        return;
    }
    if (sweep->state == SWEEP_SETTLING) {
        tell(sweep);
        if (sweep->linger > 0) {
            sweep->state = SWEEP_LINGERING;
            start_timer(sweep, sweep->linger > LEFTOVERS_SETTLE ? sweep->linger - LEFTOVERS_SETTLE : 0);
        } else {
            ask(sweep);
        }
        return;
    }
    if (sweep->state == SWEEP_ASKING) sweep->give_up = loop_now(sweep->loop) + GIVE_UP_AFTER;
    sweep->state = SWEEP_KILLING;
    if (loop_now(sweep->loop) > sweep->give_up) {
        stop(sweep, false);
        return;
    }
    end_descendants(sweep);
    start_timer(sweep, RESCAN_EVERY); /* some may have been forked after this look */
}

static void settle(struct node_sweep *sweep) {
    sweep->state = SWEEP_SETTLING;
    start_timer(sweep, has_children(sweep) ? LEFTOVERS_SETTLE : 0);
}

void node_sweep_wait(struct node_sweep *sweep, nanoseconds linger) {
    sweep->linger = linger;
    settle(sweep);
}

void node_sweep_start(struct node_sweep *sweep, nanoseconds grace, bool by_itself) {
    sweep->linger = 0;
    sweep->grace = grace;
    if (by_itself && grace > 0)
        settle(sweep);
    else
        ask(sweep);
}

bool node_sweep_runs(const struct node_sweep *sweep) {
    return sweep->state != SWEEP_IDLE;
}

/* By the way of a wait that is over: `waited` comes in the next turn, and never from within this call. */
void node_sweep_hurry(struct node_sweep *sweep) {
    if (sweep->state == SWEEP_IDLE || sweep->linger == 0) return;
    sweep->state = SWEEP_LINGERING;
    start_timer(sweep, 0);
}

void node_sweep_kill(struct node_sweep *sweep) {
    node_sweep_hurry(sweep);
    if (sweep->state != SWEEP_SETTLING && sweep->state != SWEEP_ASKING) return;
    sweep->state = SWEEP_ASKING;
    start_timer(sweep, 0);
}

void node_sweep_check(struct node_sweep *sweep) {
    if (sweep->state == SWEEP_IDLE) return;
    if (!has_children(sweep))
        start_timer(sweep, 0);
    else if (sweep->state == SWEEP_ASKING)
        end_descendants(sweep); /* its orphans are ours now */
}

void node_sweep_done(struct node_sweep *sweep) {
    loop_timer_stop(sweep->loop, &sweep->timer);
    idset_done(&sweep->found);
}
