/* How fast the planner decides, and how well, of clusters made up here. One line a measurement:
 *
 *     placement 10000x80000 PACK 0.012 s 6666667 workers/s
 *     placement gangs 5000 nodes alike 8 x GPU 1 PACK 200000 gangs/s refused 300000 gangs/s
 *     placement quality PACK 1000 clusters nodes 3120 optimum 3050 ratio 1.023
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/duration.h"
#include "placement/plan.h"
#include "placement/planner.h"

static uint64_t random_state = 42;

static uint32_t below(uint32_t n) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)((random_state >> 32) * n >> 32);
}

static void stop_on(ty_error *err) {
    (void)fprintf(stderr, "bench_placement: %s\n", err->message);
    exit(1);
}

static void *need(void *memory) {
    ty_error err = {0};
    if (!memory) (void)ty_fail_memory(&err), stop_on(&err);
    return memory;
}

static struct resources parse(const char *text) {
    struct resources resources = {0};
    ty_error err = {0};
    if (resources_parse(&resources, text, &err) < 0) stop_on(&err);
    return resources;
}

static void add_node(struct cluster *cluster, const char *total) {
    ty_error err = {0};
    struct node_shape shape = {.total = parse(total)};
    const struct node_shape *shared = NULL;
    char name[32];
    (void)snprintf(name, sizeof name, "node%zu", cluster->n);
    if (cluster_shape(cluster, &shape, &shared, &err) < 0 ||
        cluster_add_node(cluster, name, shared, NULL, &err) < 0)
        stop_on(&err);
}

/* `unlike`: every node has its own amount of memory, as real machines do. */
static struct cluster *gpu_cluster(uint32_t n, bool unlike) {
    struct cluster *cluster = need(cluster_create());
    for (uint32_t i = 0; i < n; i++) {
        char total[96];
        (void)snprintf(total, sizeof total, "CPU=64,GPU=8,memory=%u",
                       512000000 + (unlike ? below(3000000000) : 0));
        add_node(cluster, total);
    }
    return cluster;
}

static double seconds(nanoseconds since) {
    return (double)(clock_monotonic() - since) / (double)NS_PER_S;
}

/* ---- one big gang, the planner's own start included; the least of some repeats ---- */

enum { REPEATS = 5 };

struct big {
    const struct cluster *cluster;
    struct gang gang;
    uint32_t *node_of;
    uint16_t *positions;
};

static double time_big(const struct big *big, int *result) {
    nanoseconds start = clock_monotonic();
    struct planner *planner = need(planner_create(big->cluster, false));
    *result = planner_place(planner, &big->gang, big->node_of, big->positions);
    double took = seconds(start);
    planner_destroy(planner);
    return took;
}

static void bench_big(uint32_t n, bool unlike, enum placement_strategy strategy, size_t workers) {
    struct cluster *cluster = gpu_cluster(n, unlike);
    struct resources wanted = parse("CPU=4,GPU=1,memory=1000000");
    struct bundle_kind kind = {.resources = &wanted};
    struct big big = {.cluster = cluster};
    big.gang =
        (struct gang){.kinds = &kind, .n_kinds = 1, .n = workers, .strategy = strategy, .soft_target = -1};
    big.node_of = need(malloc(workers * sizeof *big.node_of));
    big.positions = need(malloc(workers * sizeof *big.positions));
    int result;
    double least = time_big(&big, &result);
    for (int i = 1; i < REPEATS; i++) {
        double took = time_big(&big, &result);
        if (took < least) least = took;
    }
    printf("placement %ux%zu%s %s %.4f s %.0f workers/s%s\n", n, workers, unlike ? " unlike" : "",
           placement_strategy_name(strategy), least, (double)workers / least,
           result == PLANNER_PLACED ? "" : " refused");
    free(big.node_of);
    free(big.positions);
    resources_done(&wanted);
    cluster_destroy(cluster);
}

/* ---- a whole plan: elastic search, ranks and devices, or the refusal in words ---- */

static void bench_plan(uint32_t n, enum placement_strategy strategy, size_t least, size_t most) {
    struct cluster *cluster = gpu_cluster(n, false);
    struct demand demand = {
        .min_workers = least, .max_workers = most, .elastic = least != most, .strategy = strategy};
    demand.per_worker = parse("CPU=4,GPU=1,memory=1000000");
    ty_error err = {0};
    struct plan *plan = NULL;
    nanoseconds start = clock_monotonic();
    if (plan_make(cluster, &demand, &plan, &err) < 0) stop_on(&err);
    double took = seconds(start);
    printf("placement plan %ux%zu..%zu %s %.4f s %zu workers\n", n, least, most,
           placement_strategy_name(strategy), took, plan->n_workers);
    plan_destroy(plan);
    demand_done(&demand);
    cluster_destroy(cluster);
}

static void bench_plans(void) {
    for (uint32_t n = 10000; n <= 100000; n *= 10)
        for (int strategy = PLACE_PACK; strategy <= PLACE_SPREAD; strategy++) {
            bench_plan(n, (enum placement_strategy)strategy, (size_t)n * 8, (size_t)n * 8);
            bench_plan(n, (enum placement_strategy)strategy, 1, (size_t)n * 10);
            bench_plan(n, (enum placement_strategy)strategy, (size_t)n * 8 + 1, (size_t)n * 8 + 1);
        }
}

/* ---- many small gangs in a steady state: one goes at random, one comes ---- */

enum { GANG = 8, KINDS = 4 };

struct small_gang {
    uint32_t kind;
    uint32_t node_of[GANG];
    uint16_t positions[GANG * 2];
};

struct steady {
    struct planner *planner;
    struct resources wanted[KINDS];
    uint32_t n_kinds;
    enum placement_strategy strategy;
    struct small_gang *gangs;
    size_t n;
};

static struct gang gang_of(const struct steady *steady, struct bundle_kind *kind, uint32_t number) {
    *kind = (struct bundle_kind){.resources = &steady->wanted[number]};
    return (struct gang){
        .kinds = kind, .n_kinds = 1, .n = GANG, .strategy = steady->strategy, .soft_target = -1};
}

static int place_one(struct steady *steady) {
    struct small_gang *small = &steady->gangs[steady->n];
    struct bundle_kind kind;
    small->kind = below(steady->n_kinds);
    struct gang gang = gang_of(steady, &kind, small->kind);
    int result = planner_place(steady->planner, &gang, small->node_of, small->positions);
    if (result == PLANNER_PLACED) steady->n++;
    return result;
}

static void release_one(struct steady *steady) {
    size_t victim = below((uint32_t)steady->n);
    struct small_gang *small = &steady->gangs[victim];
    struct bundle_kind kind;
    struct gang gang = gang_of(steady, &kind, small->kind);
    planner_release(steady->planner, &gang, small->node_of, small->positions);
    steady->gangs[victim] = steady->gangs[--steady->n];
}

static double time_turnover(struct steady *steady, int rounds) {
    nanoseconds start = clock_monotonic();
    for (int i = 0; i < rounds; i++) {
        if (steady->n > 0) release_one(steady);
        (void)place_one(steady);
    }
    return rounds / seconds(start);
}

static double time_refusals(struct steady *steady, int rounds) {
    while (place_one(steady) == PLANNER_PLACED)
        ;
    nanoseconds start = clock_monotonic();
    int refused = 0;
    for (int i = 0; i < rounds; i++)
        refused += place_one(steady) != PLANNER_PLACED;
    return refused / seconds(start);
}

static void bench_steady(uint32_t n_nodes, bool unlike, enum placement_strategy strategy,
                         const char *const *wanted, uint32_t n_kinds) {
    struct cluster *cluster = gpu_cluster(n_nodes, unlike);
    struct steady steady = {
        .planner = need(planner_create(cluster, false)), .n_kinds = n_kinds, .strategy = strategy};
    steady.gangs = need(malloc(n_nodes * 32 * sizeof *steady.gangs));
    for (uint32_t k = 0; k < n_kinds; k++)
        steady.wanted[k] = parse(wanted[k]);
    for (uint32_t i = 0; i < n_nodes * 4 / 5 && place_one(&steady) == PLANNER_PLACED; i++)
        ;
    double turnover = time_turnover(&steady, 100000);
    double refusals = time_refusals(&steady, 100000);
    printf("placement gangs %u nodes%s %u kinds %s %.0f gangs/s refused %.0f gangs/s\n", n_nodes,
           unlike ? " unlike" : "", n_kinds, placement_strategy_name(strategy), turnover, refusals);
    for (uint32_t k = 0; k < n_kinds; k++)
        resources_done(&steady.wanted[k]);
    free(steady.gangs);
    planner_destroy(steady.planner);
    cluster_destroy(cluster);
}

/* ---- quality: nodes that PACK uses against the fewest that would do, by trying every set of nodes ---- */

enum { FEW = 6 };

static size_t count_nodes(const uint32_t *node_of, size_t n) {
    uint32_t seen = 0;
    for (size_t i = 0; i < n; i++)
        seen |= 1u << node_of[i];
    return (size_t)__builtin_popcount(seen);
}

static size_t fewest_nodes(const int *holds, uint32_t n_nodes, int workers) {
    size_t fewest = n_nodes;
    for (uint32_t set = 1; set < 1u << n_nodes; set++) {
        int room = 0;
        for (uint32_t i = 0; i < n_nodes; i++)
            room += set >> i & 1 ? holds[i] : 0;
        size_t size = (size_t)__builtin_popcount(set);
        if (room >= workers && size < fewest) fewest = size;
    }
    return fewest;
}

static bool try_quality(size_t *used, size_t *optimum) {
    struct cluster *cluster = need(cluster_create());
    uint32_t n = 2 + below(FEW - 1);
    int holds[FEW], room = 0;
    for (uint32_t i = 0; i < n; i++) {
        char total[64];
        int cpus = 4 + 4 * (int)below(8), gpus = 1 + (int)below(8);
        (void)snprintf(total, sizeof total, "CPU=%d,GPU=%d", cpus, gpus);
        add_node(cluster, total);
        holds[i] = cpus / 4 < gpus ? cpus / 4 : gpus;
        room += holds[i];
    }
    struct resources wanted = parse("CPU=4,GPU=1");
    struct bundle_kind kind = {.resources = &wanted};
    uint32_t node_of[64];
    uint16_t positions[64];
    struct gang gang = {.kinds = &kind, .n_kinds = 1, .n = 1 + below((uint32_t)room), .soft_target = -1};
    struct planner *planner = need(planner_create(cluster, false));
    bool placed = planner_place(planner, &gang, node_of, positions) == PLANNER_PLACED;
    if (placed) *used += count_nodes(node_of, gang.n);
    if (placed) *optimum += fewest_nodes(holds, n, (int)gang.n);
    planner_destroy(planner);
    resources_done(&wanted);
    cluster_destroy(cluster);
    return placed;
}

static void bench_quality(int clusters) {
    size_t used = 0, optimum = 0;
    int missed = 0;
    for (int i = 0; i < clusters; i++)
        missed += !try_quality(&used, &optimum);
    printf("placement quality PACK %d clusters nodes %zu optimum %zu ratio %.3f missed %d\n", clusters, used,
           optimum, (double)used / (double)optimum, missed);
}

int main(void) {
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    static const char *const one[] = {"CPU=4,GPU=1,memory=1000000"};
    static const char *const several[] = {"CPU=4,GPU=1", "CPU=8,GPU=2", "CPU=2,GPU=0.5",
                                          "CPU=16,memory=50000000"};
    for (int unlike = 0; unlike < 2; unlike++)
        for (uint32_t n = 1000; n <= 100000; n *= 10)
            for (int strategy = PLACE_PACK; strategy <= PLACE_SPREAD; strategy++)
                bench_big(n, unlike, (enum placement_strategy)strategy, (size_t)n * 8);
    for (int strategy = PLACE_PACK; strategy <= PLACE_SPREAD; strategy++)
        bench_big(100000, false, (enum placement_strategy)strategy, 800001);
    bench_plans();
    for (int unlike = 0; unlike < 2; unlike++)
        for (int strategy = PLACE_PACK; strategy <= PLACE_STRICT_SPREAD; strategy++) {
            bench_steady(5000, unlike, (enum placement_strategy)strategy, one, 1);
            bench_steady(5000, unlike, (enum placement_strategy)strategy, several, KINDS);
        }
    bench_quality(1000);
    return 0;
}
