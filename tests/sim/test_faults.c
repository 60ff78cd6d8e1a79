/* Thousands of worlds that go wrong: whatever fails, what must hold holds after every step, and the run
 * comes to its end. FILE: the kept seeds that are in it, then thousands that are always the same and as many
 * from TRAINYARD_TEST_SEED on. FILE SEED: all of them from there on. SEED: that world, with all that happens
 * in it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/internal.h"
#include "world.h"

/* Fewer are slower worlds, and do not come to each input in each state. */
#if defined(__SANITIZE_ADDRESS__)
enum { SEEDS = 4000, ALL_SEEDS = 20000 };
#else
enum { SEEDS = 20000, ALL_SEEDS = SEEDS };
#endif

/* What was seen in all worlds: a schedule that shows nothing proves nothing. */
static struct {
    uint64_t worlds, steps, checkpoints, faults, restarts, resizes, shortages, attempts, outcomes[16];
} seen;

/* How often an input came while a run was in a state. */
static uint64_t visits[RUN_INPUTS][RUN_STATE_COUNT];

void __real_run_take(struct run *run, const struct run_input *input);
void __wrap_run_take(struct run *run, const struct run_input *input);

void __wrap_run_take(struct run *run, const struct run_input *input) {
    visits[input->kind][run->state]++;
    __real_run_take(run, input);
}

static int live(uint64_t seed, int trace) {
    struct world_result result;
    const char *wrong = world_live(seed, trace, &result);
    seen.worlds++;
    seen.steps += result.steps;
    seen.checkpoints += result.checkpoints;
    seen.faults += result.faults;
    seen.restarts += result.restarts;
    seen.resizes += result.resizes;
    seen.shortages += result.shortages;
    seen.attempts += (uint64_t)result.attempts;
    seen.outcomes[result.outcome]++;
    if (wrong == NULL) return 0;
    (void)printf("seed %" PRIu64 ": %s\n", seed, wrong);
    return 1;
}

static int live_kept(const char *path) {
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        perror(path);
        return 1;
    }
    char line[256];
    int failed = 0;
    while (fgets(line, sizeof line, file) != NULL)
        if (line[0] != '#') failed += live(strtoull(line, NULL, 10), 0);
    (void)fclose(file);
    return failed;
}

static int live_some(uint64_t first, uint64_t n) {
    int failed = 0;
    for (uint64_t seed = first; seed < first + n && failed < 5; seed++)
        failed += live(seed, 0);
    return failed;
}

static int tell_seen(void) {
    (void)printf("%" PRIu64 " worlds: %" PRIu64 " steps, %" PRIu64 " faults, %" PRIu64
                 " controllers that died, %" PRIu64 " without memory, %" PRIu64 " resizes, %" PRIu64
                 " attempts, %" PRIu64 " checkpoints\n",
                 seen.worlds, seen.steps, seen.faults, seen.restarts, seen.shortages, seen.resizes,
                 seen.attempts, seen.checkpoints);
    int unseen = seen.checkpoints < seen.worlds || seen.attempts < 2 * seen.worlds ||
                 seen.restarts < seen.worlds / 10 || seen.resizes < seen.worlds / 10 ||
                 seen.shortages < seen.worlds / 2;
    for (int outcome = OUTCOME_SUCCEEDED; outcome <= OUTCOME_PREEMPTED; outcome++) {
        (void)printf("  %-12s %" PRIu64 "\n", run_outcome_name((enum run_outcome)outcome),
                     seen.outcomes[outcome]);
        unseen += seen.outcomes[outcome] == 0;
    }
    for (int input = 0; input < RUN_INPUTS; input++)
        for (int state = 0; state < RUN_STATE_COUNT; state++) {
            if (visits[input][state] > 0 || SEEDS < ALL_SEEDS) continue;
            (void)printf("  no input %d came while a run was %s\n", input,
                         run_state_name((enum run_state)state));
            unseen++;
        }
    if (unseen > 0) (void)printf("not everything that can happen was seen\n");
    return unseen;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--help") != 0 && strchr(argv[1], '/') == NULL)
        return live(strtoull(argv[1], NULL, 10), 1);
    int failed = argc > 1 ? live_kept(argv[1]) : 0;
    const char *drawn = getenv("TRAINYARD_TEST_SEED");
    uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1, half = SEEDS / 2;
    failed += live_some(first, half);
    failed += live_some(drawn != NULL && argc <= 2 ? strtoull(drawn, NULL, 10) : first + half, half);
    return failed > 0 ? failed : tell_seen();
}
