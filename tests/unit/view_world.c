#include "view_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"

void view_world_make(char path[64]) {
    strcpy(path, "/tmp/test_view.XXXXXX");
    assert_non_null(mkdtemp(path));
}

void view_world_remove(const char *path) {
    static const char *const names[] = {"run.db", "run.db-wal", "run.db-shm"};
    char name[256];
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        (void)snprintf(name, sizeof name, "%s/%s", path, names[i]);
        (void)unlink(name);
    }
    assert_int_equal(rmdir(path), 0);
}

struct journal *view_world_open(const char *path, int workers) {
    struct journal *journal = NULL;
    char data[128];
    assert_int_equal(journal_open(path, JOURNAL_CREATE, &journal, NULL), 0);
    (void)snprintf(data, sizeof data, "{\"name\": \"r\", \"num_workers\": %d}", workers);
    view_world_event(journal, 0, EVENT_RUN, 0, -1, data);
    return journal;
}

void view_world_event(struct journal *journal, nanoseconds after, enum run_event_kind kind, int attempt,
                      int rank, const char *data) {
    struct journal_event event = {.time = VIEW_WORLD_BEGAN + after,
                                  .kind = kind,
                                  .attempt = attempt,
                                  .rank = rank,
                                  .node = -1,
                                  .data = data};
    assert_int_equal(journal_event(journal, &event, NULL), 0);
}

void view_world_report(struct journal *journal, nanoseconds after, int attempt, int rank, uint64_t number,
                       const char *metrics) {
    struct journal_report report = {.attempt = attempt,
                                    .rank = rank,
                                    .number = number,
                                    .time = VIEW_WORLD_BEGAN + after,
                                    .metrics = metrics,
                                    .metrics_size = strlen(metrics)};
    assert_int_equal(journal_report(journal, &report, NULL), 0);
}

void view_world_close(struct journal *journal) {
    assert_int_equal(journal_commit(journal, NULL), 0);
    journal_close(journal);
}

void view_world_a(const char *path) {
    struct journal *journal = view_world_open(path, 8);
    view_world_event(journal, 0, EVENT_ATTEMPT, 1, -1, "{\"workers\": 8, \"nodes\": 1}");
    for (int n = 1; n <= 1000; n++)
        for (int rank = 0; rank < 8; rank++) {
            char loss[40], metrics[128];
            (void)snprintf(loss, sizeof loss, "%.17g", 2.0 / (1 + n) + rank / 1000.0);
            const char *value = rank == 5 && n == 500 ? "99" : rank == 2 && n == 700 ? "\"NaN\"" : loss;
            (void)snprintf(metrics, sizeof metrics, "{\"loss\":%s,\"step\":%d,\"epoch\":%d}", value, n,
                           (n - 1) / 100);
            nanoseconds late = rank == 3 && n >= 600 ? 40 * NS_PER_MS : 0;
            view_world_report(journal, n * 100 * NS_PER_MS + rank * NS_PER_MS + late, 1, rank, (uint64_t)n,
                              metrics);
        }
    view_world_event(journal, 101 * NS_PER_S, EVENT_ATTEMPT_END, 1, -1, "{\"outcome\": \"succeeded\"}");
    view_world_event(journal, 101 * NS_PER_S, EVENT_RUN_END, 1, -1,
                     "{\"outcome\": \"succeeded\", \"status\": 0}");
    view_world_close(journal);
}

static void report_both(struct journal *journal, int attempt, int number, int step) {
    for (int rank = 0; rank < 2; rank++) {
        char metrics[64];
        (void)snprintf(metrics, sizeof metrics, "{\"loss\":%.17g,\"step\":%d}", 1.0 / step, step);
        view_world_report(journal, number * NS_PER_S + rank * NS_PER_MS, attempt, rank, (uint64_t)number,
                          metrics);
    }
}

void view_world_b(const char *path) {
    struct journal *journal = view_world_open(path, 2);
    view_world_event(journal, 0, EVENT_ATTEMPT, 1, -1, "{\"workers\": 2, \"nodes\": 1}");
    for (int n = 1; n <= 150; n++)
        report_both(journal, 1, n, n);
    struct journal_checkpoint checkpoint = {.number = 100,
                                            .attempt = 1,
                                            .time = VIEW_WORLD_BEGAN + 100 * NS_PER_S,
                                            .name = "checkpoint_000100",
                                            .metrics = "{\"loss\":0.01,\"step\":100}"};
    assert_int_equal(journal_checkpoint(journal, &checkpoint, NULL), 0);
    view_world_event(journal, 150 * NS_PER_S + 10 * NS_PER_MS, EVENT_ATTEMPT_END, 1, -1,
                     "{\"outcome\": \"failed\", \"rank\": 1, \"cause\": \"rank 1 exited with code 3\", "
                     "\"lost_seconds\": 50.0}");
    view_world_event(journal, 150 * NS_PER_S + 20 * NS_PER_MS, EVENT_ATTEMPT, 2, -1,
                     "{\"workers\": 2, \"nodes\": 1, \"checkpoint\": \"checkpoint_000100\"}");
    for (int n = 151; n <= 250; n++)
        report_both(journal, 2, n, n - 50);
    view_world_event(journal, 251 * NS_PER_S, EVENT_ATTEMPT_END, 2, -1, "{\"outcome\": \"succeeded\"}");
    view_world_event(journal, 251 * NS_PER_S, EVENT_RUN_END, 2, -1,
                     "{\"outcome\": \"succeeded\", \"status\": 0}");
    view_world_close(journal);
}
