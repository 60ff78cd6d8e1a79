/* A worker of the hang tests: hang_program HOW RANK [ATTEMPT]. The rank (-1: all) hangs in this attempt, or in
 * any, in a function that a test can look for in its stack; the others stay alive by heartbeats until they are
 * told to end. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/trainyard.h>
#include <unistd.h>

__attribute__((noinline)) static void sleep_for_ever(void) {
    for (;;)
        (void)sleep(1000);
}

__attribute__((noinline)) static void spin_for_ever(void) {
    for (volatile unsigned long turns = 0;; turns = turns + 1) {
    }
}

/* It tells that it could be stopped. */
__attribute__((noinline)) static void wait_to_be_stopped(const ty_worker *worker) {
    char name[32];
    (void)snprintf(name, sizeof name, "there.%d", ty_world_rank(worker));
    FILE *file = fopen(name, "w");
    if (file != NULL) (void)fprintf(file, "%d", (int)getpid());
    if (file != NULL) (void)fclose(file);
}

static void live(ty_worker *worker, int beats) {
    for (int i = 0; beats < 0 || i < beats; i++) {
        (void)ty_heartbeat(worker, NULL);
        if (ty_stop_requested(worker)) exit(0);
        (void)usleep(20000);
    }
}

static int be_kept_waiting(ty_worker *worker) {
    size_t size;
    void *value = NULL;
    return ty_store_gather(worker, "all", "1", 1, -1, &value, &size, NULL) < 0;
}

/* All but the last gather; it waits for what nobody will say. */
static int be_stuck(ty_worker *worker) {
    size_t size;
    void *value = NULL;
    bool last = ty_world_rank(worker) == ty_world_size(worker) - 1;
    return last ? ty_store_wait(worker, "never", 1000, &value, &size, NULL) < 0 : be_kept_waiting(worker);
}

/* Rank 0 trains on while its checkpoint waits for the others, who wait in the store for what it does. */
static int train_on(ty_worker *worker) {
    size_t size;
    void *value = NULL;
    ty_report_options options = {.checkpoint = "d", .mode = TY_ASYNC};
    if (ty_world_rank(worker) > 0) {
        int code = ty_store_wait(worker, "late", 180, &value, &size, NULL);
        free(value);
        return code < 0 || ty_report_json(worker, "{}", NULL, NULL) < 0;
    }
    if (ty_report_with(worker, "{}", &options, NULL) < 0) return 1;
    live(worker, 80);
    return ty_store_set(worker, "late", "1", 1, NULL) < 0 || ty_report_drain(worker, NULL) < 0;
}

int main(int argc, char **argv) {
    ty_error err = {0};
    ty_worker *worker = ty_worker_self(&err);
    if (worker == NULL || argc < 3) return 2;
    int rank = atoi(argv[2]), attempt = argc > 3 ? atoi(argv[3]) : 0;
    if (attempt > 0 && ty_attempt(worker) != attempt) return 0;
    if (strcmp(argv[1], "live") == 0) live(worker, 80);
    if (strcmp(argv[1], "live") == 0) return 0;
    if (strcmp(argv[1], "wait") == 0 && ty_world_rank(worker) == 0) {
        size_t size;
        void *value = NULL;
        int code = ty_store_wait(worker, "late", 180, &value, &size, &err);
        free(value);
        return code < 0;
    }
    if (strcmp(argv[1], "wait") == 0) {
        live(worker, 80);
        return ty_store_set(worker, "late", "1", 1, &err) < 0;
    }
    if (strcmp(argv[1], "async") == 0) return train_on(worker);
    if (strcmp(argv[1], "stuck") == 0) return be_stuck(worker);
    if (strcmp(argv[1], "keep") == 0 && ty_world_rank(worker) != rank) return be_kept_waiting(worker);
    if (strcmp(argv[1], "keep") == 0) sleep_for_ever();
    wait_to_be_stopped(worker);
    if (rank < 0 || ty_world_rank(worker) == rank) {
        if (strcmp(argv[1], "sleep") == 0) sleep_for_ever();
        if (strcmp(argv[1], "spin") == 0) spin_for_ever();
    }
    live(worker, -1);
    return 0;
}
