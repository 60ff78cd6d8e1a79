#include "view_world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/dice.h"

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

char a_path[64], b_path[64];

int set_up(void **state) {
    (void)state;
    view_world_make(a_path);
    view_world_a(a_path);
    view_world_make(b_path);
    view_world_b(b_path);
    return 0;
}

int tear_down(void **state) {
    (void)state;
    view_world_remove(a_path);
    view_world_remove(b_path);
    return 0;
}

void assert_near(double expected, double found) {
    if (!(fabs(expected - found) <= 1e-9)) fail_msg("%.17g is not %.17g", found, expected);
}

struct view_series read_series(const char *path, const struct view_query *query) {
    struct view_series series;
    ty_error err = {0};
    if (view_series_read(path, query, &series, &err) < 0) fail_msg("%s", err.message);
    return series;
}

void assert_marks(const struct view_query *query, const char *path, const char *expected) {
    CLEANUP(view_series_done) struct view_series series = read_series(path, query);
    CLEANUP(buffer_done) struct buffer found = {0};
    for (size_t i = 0; i < series.n_marks; i++)
        buffer_printf(&found, "%s%s@%g", i > 0 ? ", " : "", series.marks[i].text, series.marks[i].x);
    assert_string_equal(found.size > 0 ? found.data : "", expected);
}

json_t *parse(const struct buffer *text) {
    assert_false(text->failed);
    json_t *tree = json_loadb(text->data, text->size, 0, NULL);
    if (tree == NULL) fail_msg("no JSON: %.*s", (int)text->size, text->data);
    return tree;
}

double number_of(const json_t *tree, const char *key) {
    return json_number_value(json_object_get(tree, key));
}

const char *text_of(const json_t *tree, const char *key) {
    return json_string_value(json_object_get(tree, key));
}

void grow(struct view_index *index) {
    ty_error err = {0};
    int result;
    do
        result = view_index_grow(index, &err);
    while (result > 0);
    if (result < 0) fail_msg("%s", err.message);
}

void write_large(const char *path, bool ends) {
    struct journal *journal = view_world_open(path, 8);
    view_world_event(journal, 0, EVENT_ATTEMPT, 1, -1, "{\"workers\": 8}");
    for (int n = 1; n <= 10000; n++)
        for (int rank = 0; rank < 8; rank++) {
            char metrics[96];
            if (n % 1000 == 0 && rank == 3)
                (void)snprintf(metrics, sizeof metrics, "{\"loss\":99,\"step\":%d,\"epoch\":%d}", 2 * n,
                               n / 100);
            else if (n % 1000 == 1 && rank == 4)
                (void)snprintf(metrics, sizeof metrics, "{\"loss\":\"NaN\",\"step\":%d,\"epoch\":%d}", 2 * n,
                               n / 100);
            else
                (void)snprintf(metrics, sizeof metrics, "{\"loss\":0.5,\"step\":%d,\"epoch\":%d}", 2 * n,
                               n / 100);
            view_world_report(journal, n * 10 * NS_PER_MS + rank, 1, rank, (uint64_t)n, metrics);
        }
    if (ends) view_world_event(journal, 200 * NS_PER_S, EVENT_RUN_END, 1, -1, "{\"outcome\": \"succeeded\"}");
    view_world_close(journal);
}

const char *const unlike_xs[] = {"number", "step", "epoch", "time", "relative"};

/* Numbers with a gap, so that a slot of the index takes several. */
static int unlike_number(int n) {
    return n > UNLIKE_NUMBERS / 3 ? n + 200000 : n;
}

void write_unlike(const char *path, struct view_bucket expected[2][UNLIKE_XS]) {
    struct dice dice;
    dice_seed(&dice, 1);
    struct journal *journal = view_world_open(path, UNLIKE_RANKS);
    int64_t id = 0;
    uint64_t kind = 0;
    for (int attempt = 1; attempt <= 2; attempt++) {
        nanoseconds began = attempt * 1000 * NS_PER_S;
        view_world_event(journal, began, EVENT_ATTEMPT, attempt, -1,
                         attempt == 1 ? "{\"workers\": 6}"
                                      : "{\"workers\": 6, \"checkpoint\": \"checkpoint_204001\"}");
        for (int i = 0; i < UNLIKE_NUMBERS * UNLIKE_RANKS; i++) {
            int rank = i % UNLIKE_RANKS, n = i / UNLIKE_RANKS + (attempt == 1 ? 1 : UNLIKE_KEPT + 1);
            if (i % (9 * UNLIKE_RANKS) == 0) kind = dice_below(&dice, 10);
            bool finite = dice_below(&dice, 50) > 0;
            double value = !finite ? (double)NAN : (double)dice_below(&dice, 1000) / 8;
            nanoseconds after = began + n * NS_PER_MS + (nanoseconds)dice_below(&dice, NS_PER_MS / 10);
            double relative = (double)after / (double)NS_PER_S;
            double x[] = {unlike_number(n), 2 * unlike_number(n) + (double)dice_below(&dice, 2),
                          dice_below(&dice, 200) > 0 ? n / 300.0 : (double)NAN,
                          relative + (double)VIEW_WORLD_BEGAN / (double)NS_PER_S, relative};
            char metrics[160], loss[40] = "\"NaN\"", epoch[40] = "";
            if (finite) (void)snprintf(loss, sizeof loss, "%.17g", value);
            if (!isnan(x[2])) (void)snprintf(epoch, sizeof epoch, ",\"epoch\":%.17g", x[2]);
            (void)snprintf(metrics, sizeof metrics, "{%s\"%s\":%s,\"step\":%.0f%s}",
                           kind < 5 ? "" : "\"other\":5,", kind == 0 ? "other" : "loss", loss, x[1], epoch);
            view_world_report(journal, after, attempt, rank, (uint64_t)unlike_number(n), metrics);
            id++;
            for (size_t axis = 0; axis < ARRAY_SIZE(unlike_xs) && kind != 0; axis++)
                if (!isnan(x[axis]))
                    view_bucket_add(&expected[attempt == 1 && n > UNLIKE_KEPT][axis], x[axis], value, rank, id);
        }
    }
    view_world_close(journal);
}
