/* What a journal tells beside the values of its reports: ranks, time, facts, the list of runs, the
 * exposition. */
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "journal/usage_db.h"
#include "view/export.h"
#include "view/facts.h"
#include "view/ranks.h"
#include "view/runs.h"
#include "view/summary.h"
#include "view/timeline.h"
#include "view_world.h"

static void test_ranks(void **state) {
    (void)state;
    struct view_ranks ranks;
    CLEANUP(buffer_done) struct buffer text = {0};
    assert_int_equal(view_ranks_read(a_path, &ranks, NULL), 0);
    assert_int_equal(ranks.n, 8);
    assert_near(0.1, ranks.usual);
    view_ranks_encode(&ranks, 2, 3, &text);
    json_t *reply = parse(&text);
    assert_int_equal(json_array_size(json_object_get(reply, "items")), 3);
    json_decref(reply);
    buffer_clear(&text);
    view_placement_encode(&ranks, &text);
    json_decref(parse(&text));
    for (size_t i = 0; i < 8; i++)
        if (ranks.items[i].rank == 3) assert_near(0.043, ranks.items[i].lag);
    view_ranks_done(&ranks);
}

/* Whatever a plan says, nothing is drawn that is no grid. */
static void test_topologies_that_are_too_large(void **state) {
    (void)state;
    static const struct {
        const char *slice, *expected;
    } cases[] = {
        {"0-0 v6e-4 2x2 a", "[{\"name\": \"a\", \"type\": \"v6e-4\", \"topology\": \"2x2\", \"columns\": 2, "
                            "\"ranks\": [[0,0], [0,0]]}]"},
        {"0-0 v6e-4 65537 a", "[]"},
        {"0-0 v6e-4 65536x2 a", "[]"},
        {"0-0 v6e-4 65536x65536x65536x65536 a", "[]"},
        {"0-0 v6e-4 2x0 a", "[]"},
        {"0-1 v6e-4 2x2 a", "[]"},
        {"1-0 v6e-4 2x2 a", "[]"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        CLEANUP(buffer_done) struct buffer text = {0};
        char slice[64], *slices[] = {slice};
        struct view_rank rank = {.rank = 0};
        (void)snprintf(slice, sizeof slice, "%s", cases[i].slice);
        view_grids_encode(&(struct view_ranks){.items = &rank, .n = 1, .slices = slices, .n_slices = 1}, &text);
        assert_string_equal(text.data, cases[i].expected);
    }
}

/* Two ranks report once a second, the second of them `behind` numbers behind. */
static double lag_of(int rank, int behind, int numbers) {
    char path[64];
    struct view_ranks ranks;
    double lag = (double)NAN;
    view_world_make(path);
    struct journal *journal = view_world_open(path, 2);
    view_world_event(journal, 0, EVENT_ATTEMPT, 1, -1, "{\"workers\": 2}");
    for (int n = 1; n <= numbers; n++) {
        view_world_report(journal, n * NS_PER_S, 1, 0, (uint64_t)n, "{}");
        if (n > behind) view_world_report(journal, n * NS_PER_S + 1, 1, 1, (uint64_t)(n - behind), "{}");
    }
    view_world_close(journal);
    assert_int_equal(view_ranks_read(path, &ranks, NULL), 0);
    for (size_t i = 0; i < ranks.n; i++)
        if (ranks.items[i].rank == rank) lag = ranks.items[i].lag;
    view_ranks_done(&ranks);
    view_world_remove(path);
    return lag;
}

/* Whom a rank lags behind made its number long ago; where that is too far back, the lag is not known. */
static void test_lags_of_one_that_is_far_behind(void **state) {
    (void)state;
    assert_near(3 + 1e-9, lag_of(1, 3, 100));
    assert_near(1000 + 1e-9, lag_of(1, 1000, 3000));
    assert_near(0, lag_of(0, 1000, 3000));
    assert_near(2000 + 1e-9, lag_of(1, 2000, 3000));
    assert_true(isnan(lag_of(1, 20000, 30000)));
    assert_near(0, lag_of(0, 20000, 30000));
}

/* The report of another arrives later, and was made before. */
static void test_lags_of_reports_that_came_late(void **state) {
    (void)state;
    char path[64];
    struct view_ranks ranks;
    view_world_make(path);
    struct journal *journal = view_world_open(path, 2);
    view_world_event(journal, 0, EVENT_ATTEMPT, 1, -1, "{\"workers\": 2}");
    view_world_report(journal, 5 * NS_PER_S, 1, 0, 1, "{}");
    view_world_report(journal, 3 * NS_PER_S, 1, 1, 1, "{}");
    view_world_close(journal);
    assert_int_equal(view_ranks_read(path, &ranks, NULL), 0);
    for (size_t i = 0; i < 2; i++)
        assert_near(ranks.items[i].rank == 0 ? 2 : 0, ranks.items[i].lag);
    view_ranks_done(&ranks);
    view_world_remove(path);
}

static void test_timeline(void **state) {
    (void)state;
    struct view_timeline timeline;
    CLEANUP(buffer_done) struct buffer text = {0};
    assert_int_equal(view_timeline_read("b", b_path, NULL, &timeline, NULL), 0);
    assert_near(251, timeline.seconds);
    assert_near(50, timeline.shares[SHARE_LOST]);
    view_timeline_encode(&timeline, &text);
    view_timeline_done(&timeline);
    json_t *reply = parse(&text);
    assert_int_equal(json_array_size(json_object_get(reply, "attempts")), 2);
    json_decref(reply);
}

/* Of the last attempt, however many reports were made before it, and of the rank that took longest. */
static void test_the_slowest_first_report(void **state) {
    (void)state;
    char path[64];
    struct view_summary summary;
    view_world_make(path);
    struct journal *journal = view_world_open(path, 2);
    for (int attempt = 1; attempt <= 2; attempt++) {
        nanoseconds at = attempt * 1000 * NS_PER_S;
        view_world_event(journal, at, EVENT_ATTEMPT, attempt, -1, "{\"workers\": 2}");
        for (int rank = 0; rank < 2; rank++) {
            view_world_event(journal, at + NS_PER_S, EVENT_STARTED, attempt, rank, "{\"pid\": 10}");
            view_world_event(journal, at + 2 * NS_PER_S, EVENT_READY, attempt, rank, NULL);
        }
        for (int n = 1; n <= 100; n++)
            for (int rank = 0; rank < 2; rank++)
                view_world_report(journal, at + (2 + n + 4 * rank) * NS_PER_S, attempt, rank, (uint64_t)n,
                                  "{}");
    }
    view_world_close(journal);
    assert_int_equal(view_summary_read("first", path, &summary, NULL), 0);
    assert_true(summary.phases[PHASE_REPORT].known);
    assert_int_equal(summary.phases[PHASE_REPORT].rank, 1);
    assert_near(5, duration_seconds(summary.phases[PHASE_REPORT].duration));
    view_summary_done(&summary);
    view_world_remove(path);
}

/* It starts until its last worker is ready, and they are together. */
static void test_the_share_of_a_slow_start(void **state) {
    (void)state;
    char path[64];
    struct view_timeline timeline;
    view_world_make(path);
    struct journal *journal = view_world_open(path, 2);
    view_world_event(journal, 0, EVENT_ATTEMPT, 1, -1, "{\"workers\": 2}");
    for (int rank = 0; rank < 2; rank++)
        view_world_event(journal, NS_PER_S, EVENT_STARTED, 1, rank, "{\"pid\": 10}");
    view_world_event(journal, 2 * NS_PER_S, EVENT_READY, 1, 0, NULL);
    view_world_event(journal, 32 * NS_PER_S, EVENT_READY, 1, 1, NULL);
    for (int rank = 0; rank < 2; rank++)
        view_world_event(journal, 40 * NS_PER_S, EVENT_RENDEZVOUS, 1, rank, NULL);
    view_world_event(journal, 70 * NS_PER_S, EVENT_RENDEZVOUS, 1, 0, NULL); /* another group */
    view_world_event(journal, 100 * NS_PER_S, EVENT_ATTEMPT_END, 1, -1, "{\"outcome\": \"succeeded\"}");
    view_world_event(journal, 100 * NS_PER_S, EVENT_RUN_END, 1, -1, "{\"outcome\": \"succeeded\"}");
    view_world_close(journal);
    assert_int_equal(view_timeline_read("slow", path, NULL, &timeline, NULL), 0);
    assert_near(40, timeline.shares[SHARE_START]);
    assert_near(60, timeline.shares[SHARE_TRAINING]);
    view_timeline_done(&timeline);
    view_world_remove(path);
}

/* A controller dies 20 s behind a checkpoint, another one goes on a minute later: no event tells when the first
 * attempt ended. */
static void test_an_attempt_that_died(void **state) {
    (void)state;
    char path[64];
    struct view_timeline timeline;
    struct view_facts facts;
    view_world_make(path);
    struct journal *journal = view_world_open(path, 1);
    view_world_event(journal, 0, EVENT_ATTEMPT, 1, -1, "{\"workers\": 1}");
    view_world_event(journal, NS_PER_S, EVENT_STARTED, 1, 0, "{\"pid\": 10}");
    for (int n = 1; n <= 50; n++) {
        view_world_report(journal, n * NS_PER_S, 1, 0, (uint64_t)n, "{}");
        if (n == 30)
            view_world_event(journal, 30 * NS_PER_S, EVENT_CHECKPOINT, 1, -1,
                             "{\"number\": 30, \"path\": \"checkpoint_000030\"}");
    }
    view_world_event(journal, 110 * NS_PER_S, EVENT_RUN, 0, -1, "{}");
    view_world_event(journal, 110 * NS_PER_S, EVENT_CHECKPOINT_REMOVED, 1, -1, "{\"number\": 10}");
    view_world_event(journal, 110 * NS_PER_S, EVENT_ATTEMPT, 2, -1,
                     "{\"workers\": 1, \"checkpoint\": \"checkpoint_000030\"}");
    view_world_event(journal, 111 * NS_PER_S, EVENT_STARTED, 2, 0, "{\"pid\": 10}");
    view_world_event(journal, 112 * NS_PER_S, EVENT_READY, 2, 0, NULL);
    view_world_event(journal, 142 * NS_PER_S, EVENT_ATTEMPT_END, 2, -1, "{\"outcome\": \"succeeded\"}");
    view_world_event(journal, 142 * NS_PER_S, EVENT_RUN_END, 2, -1, "{\"outcome\": \"succeeded\"}");
    view_world_close(journal);
    assert_int_equal(view_facts_read(path, &facts, NULL), 0);
    assert_near(20, facts.lost_seconds);
    view_facts_done(&facts);
    assert_int_equal(view_timeline_read("died", path, NULL, &timeline, NULL), 0);
    assert_near(20, timeline.shares[SHARE_LOST]);
    assert_near(60, timeline.shares[SHARE_WAITING]);
    assert_near(3, timeline.shares[SHARE_START]);
    assert_near(59, timeline.shares[SHARE_TRAINING]);
    view_timeline_done(&timeline);
    view_world_remove(path);
}

/* Facts that are kept take only the events that came since. */
static void test_shares_of_kept_facts(void **state) {
    (void)state;
    char path[64];
    struct view_timeline timeline;
    CLEANUP(facts_kept_done) struct facts_kept kept;
    facts_kept_init(&kept);
    view_world_make(path);
    struct journal *journal = view_world_open(path, 2);
    view_world_event(journal, 0, EVENT_ATTEMPT, 1, -1, "{\"workers\": 2}");
    view_world_event(journal, 5 * NS_PER_S, EVENT_READY, 1, 0, NULL);
    assert_int_equal(journal_commit(journal, NULL), 0);
    assert_int_equal(view_timeline_read("kept", path, &kept, &timeline, NULL), 0);
    assert_near(5, timeline.shares[SHARE_START]);
    view_timeline_done(&timeline);
    view_world_event(journal, 8 * NS_PER_S, EVENT_READY, 1, 1, NULL);
    view_world_event(journal, 10 * NS_PER_S, EVENT_ATTEMPT_END, 1, -1, "{\"outcome\": \"failed\"}");
    view_world_event(journal, 15 * NS_PER_S, EVENT_RUN_END, 1, -1, "{\"outcome\": \"failed\"}");
    view_world_close(journal);
    for (int own = 0; own < 2; own++) {
        assert_int_equal(view_timeline_read("kept", path, own == 0 ? &kept : NULL, &timeline, NULL), 0);
        assert_near(8, timeline.shares[SHARE_START]);
        assert_near(2, timeline.shares[SHARE_TRAINING]);
        assert_near(5, timeline.shares[SHARE_WAITING]);
        view_timeline_done(&timeline);
    }
    view_world_remove(path);
}

static void test_events_and_checkpoints(void **state) {
    (void)state;
    CLEANUP(buffer_done) struct buffer text = {0};
    assert_int_equal(view_events_encode(b_path, &(struct view_events){0, 2, NULL}, &text, NULL), 0);
    json_t *reply = parse(&text);
    assert_near(2, number_of(reply, "last"));
    assert_int_equal(json_array_size(json_object_get(reply, "events")), 2);
    json_decref(reply);
    buffer_clear(&text);
    assert_int_equal(view_events_encode(b_path, &(struct view_events){2, 100, NULL}, &text, NULL), 0);
    reply = parse(&text);
    const json_t *end = json_array_get(json_object_get(reply, "events"), 0);
    assert_string_equal(text_of(end, "kind"), "attempt_end");
    assert_string_equal(text_of(json_object_get(end, "data"), "cause"), "rank 1 exited with code 3");
    json_decref(reply);
    buffer_clear(&text);
    assert_int_equal(view_checkpoints_encode(b_path, &text, NULL), 0);
    reply = parse(&text);
    assert_int_equal(json_array_size(reply), 1);
    assert_near(100, number_of(json_array_get(reply, 0), "number"));
    json_decref(reply);
}

/* A list of two runs and one that is damaged; one of them goes on, another goes. */
/* The time of a run's journal. */
static void set_time(const char *path, nanoseconds time) {
    char db[128];
    const struct timespec at = {.tv_sec = time / NS_PER_S};
    (void)snprintf(db, sizeof db, "%s/run.db", path);
    assert_int_equal(utimensat(AT_FDCWD, db, (const struct timespec[]){at, at}, 0), 0);
}

static void test_runs(void **state) {
    (void)state;
    char storage[64], paths[3][96];
    CLEANUP(buffer_done) struct buffer text = {0};
    view_world_make(storage);
    for (int i = 0; i < 3; i++) {
        (void)snprintf(paths[i], sizeof paths[i], "%s/run%d", storage, i);
        assert_int_equal(mkdir(paths[i], 0755), 0);
        view_world_b(paths[i]);
    }
    char db[128];
    (void)snprintf(db, sizeof db, "%s/run.db", paths[2]);
    assert_int_equal(truncate(db, 700), 0);
    for (int i = 0; i < 3; i++)
        set_time(paths[i], VIEW_WORLD_BEGAN);
    struct view_runs *runs = view_runs_create(&(const char *){storage}, 1, NULL);
    assert_non_null(runs);
    assert_int_equal(view_runs_look(runs, NULL), 1);
    assert_int_equal(view_runs_look(runs, NULL), 0);
    view_runs_encode(runs, 0, &text);
    json_t *list = parse(&text);
    assert_int_equal(json_array_size(json_object_get(list, "runs")), 2);
    const json_t *bad = json_array_get(json_object_get(list, "unreadable"), 0);
    assert_string_equal(text_of(bad, "name"), "run2");
    json_int_t cursor = json_integer_value(json_object_get(list, "cursor"));
    char id[VIEW_ID_SIZE];
    assert_true(view_run_id(paths[0], id));
    assert_int_equal(view_runs_count(runs), 3);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(strcmp(view_runs_at(runs, i)->id, id) == 0,
                         strcmp(view_runs_at(runs, i)->name, "run0") == 0);
    json_decref(list);

    struct journal *journal = NULL;
    assert_int_equal(journal_open(paths[0], JOURNAL_APPEND, &journal, NULL), 0);
    view_world_event(journal, 300 * NS_PER_S, EVENT_RUN, 0, -1, "{}");
    view_world_event(journal, 301 * NS_PER_S, EVENT_ATTEMPT, 3, -1, "{\"workers\": 2}");
    assert_int_equal(journal_commit(journal, NULL), 0);
    view_world_remove(paths[1]);
    assert_int_equal(view_runs_look(runs, NULL), 1);
    journal_close(journal);
    buffer_clear(&text);
    view_runs_encode(runs, (uint64_t)cursor, &text);
    list = parse(&text);
    assert_int_equal(json_array_size(json_object_get(list, "runs")), 1);
    assert_near(3, number_of(json_array_get(json_object_get(list, "runs"), 0), "attempts"));
    assert_int_equal(json_array_size(json_object_get(list, "gone")), 1);
    json_decref(list);
    view_runs_destroy(runs);
    view_world_remove(paths[0]);
    view_world_remove(paths[2]);
    assert_int_equal(rmdir(storage), 0);
}

static void write_attempts(const char *path, int n) {
    struct journal *journal = view_world_open(path, 1);
    for (int attempt = 1; attempt <= n; attempt++)
        view_world_event(journal, attempt * NS_PER_S, EVENT_ATTEMPT, attempt, -1, "{\"workers\": 1}");
    view_world_close(journal);
}

/* In the same file, which changes neither its size nor its time. */
static void copy_journal(const char *from, const char *to, nanoseconds time) {
    char path[128];
    struct stat before, after;
    CLEANUP(buffer_done) struct buffer bytes = {0};
    (void)snprintf(path, sizeof path, "%s/run.db", from);
    assert_int_equal(file_read(path, 1 << 20, &bytes, NULL), 0);
    (void)snprintf(path, sizeof path, "%s/run.db", to);
    assert_int_equal(stat(path, &before), 0);
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(write(fd, bytes.data, bytes.size), bytes.size);
    set_time(to, time);
    assert_int_equal(stat(path, &after), 0);
    assert_true(file_is_unchanged(&before, &after));
}

/* A commit that a look met between its writing and its being seen: the files are as they were then. They are
 * new by a clock that is ahead, so that no machine is too slow for this. */
static void test_what_had_just_been_written_is_read_again(void **state) {
    (void)state;
    char storage[64], path[96], other[64];
    nanoseconds ahead = clock_wall() + 3600 * NS_PER_S;
    view_world_make(storage);
    view_world_make(other);
    (void)snprintf(path, sizeof path, "%s/run", storage);
    assert_int_equal(mkdir(path, 0755), 0);
    write_attempts(path, 1);
    write_attempts(other, 2);
    set_time(path, ahead);
    struct view_runs *runs = view_runs_create(&(const char *){storage}, 1, NULL);
    assert_int_equal(view_runs_look(runs, NULL), 1);
    assert_int_equal(view_runs_at(runs, 0)->summary.attempts, 1);
    copy_journal(other, path, ahead);
    assert_int_equal(view_runs_look(runs, NULL), 1);
    assert_int_equal(view_runs_at(runs, 0)->summary.attempts, 2);
    while (view_runs_look(runs, NULL) > 0) /* they rest, though their time is to come */
        assert_int_equal(nanosleep(&(struct timespec){.tv_nsec = 50 * NS_PER_MS}, NULL), 0);
    set_time(path, VIEW_WORLD_BEGAN); /* of an old one nothing is read again */
    assert_int_equal(view_runs_look(runs, NULL), 1);
    assert_int_equal(view_runs_look(runs, NULL), 0);
    view_runs_destroy(runs);
    view_world_remove(path);
    view_world_remove(other);
    assert_int_equal(rmdir(storage), 0);
}

/* Whether or not the last word is the end of the run. */
static void test_the_end_alone(void **state) {
    (void)state;
    char resumed[64];
    view_world_make(resumed);
    view_world_b(resumed);
    struct journal *journal = NULL;
    assert_int_equal(journal_open(resumed, JOURNAL_APPEND, &journal, NULL), 0);
    view_world_event(journal, 300 * NS_PER_S, EVENT_RUN, 2, -1, "{\"num_workers\": 2}");
    view_world_close(journal);
    const char *paths[] = {a_path, b_path, resumed};
    struct journal_ends *ends = NULL;
    assert_int_equal(journal_ends_create(&ends, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        struct view_summary whole, end;
        assert_int_equal(view_summary_read("x", paths[i], &whole, NULL), 0);
        assert_int_equal(view_summary_read_end(ends, "x", paths[i], &end, NULL), 0);
        assert_int_equal(end.standing, whole.standing);
        assert_int_equal(end.standing == STANDING_SUCCEEDED, i < 2);
        assert_int_equal(end.ended, whole.ended);
        assert_int_equal(end.ends, whole.ends);
        assert_string_equal(end.path, whole.path);
        if (whole.last_checkpoint == NULL)
            assert_null(end.last_checkpoint);
        else
            assert_string_equal(end.last_checkpoint, whole.last_checkpoint);
        view_summary_done(&whole);
        view_summary_done(&end);
    }
    journal_ends_destroy(ends);
    view_world_remove(resumed);
}

/* Where a run is removed and another one of its name begins, its journal may even have the same inode. */
static void test_facts_of_a_journal_in_the_place_of_another(void **state) {
    (void)state;
    char path[64], other[64], command[200];
    struct journal *journal;
    struct view_facts facts;
    view_world_make(path);
    view_world_make(other);
    for (int i = 0; i < 2; i++) {
        journal = view_world_open(i == 0 ? path : other, 2);
        for (int attempt = 1; attempt <= 2 - i; attempt++)
            view_world_event(journal, (1 + attempt + i) * NS_PER_S, EVENT_ATTEMPT, attempt, -1,
                             "{\"workers\": 2}");
        view_world_report(journal, 5 * NS_PER_S, 1, 0, 1, "{}");
        view_world_close(journal);
    }
    assert_int_equal(view_facts_read(path, &facts, NULL), 0);
    assert_int_equal(facts.n_attempts, 2);
    int64_t before = facts.sequence;
    assert_int_equal(view_facts_renew(path, &facts, NULL), 0);
    assert_int_equal(facts.n_attempts, 2);
    assert_int_equal(facts.sequence, before);
    (void)snprintf(command, sizeof command, "cat %s/run.db > %s/run.db", other, path);
    assert_int_equal(system(command), 0);
    assert_int_equal(view_facts_renew(path, &facts, NULL), 0);
    assert_int_equal(facts.n_attempts, 1);
    view_facts_done(&facts);
    view_world_remove(path);
    view_world_remove(other);
}

static void expect_counted(const struct view_facts *facts, int attempt, uint64_t to) {
    assert_true(view_facts_count(facts, attempt, to));
    assert_false(view_facts_count(facts, attempt, to + 1));
}

/* An attempt began from a checkpoint whose name tells no number, or another one, and whose row is gone. */
static void test_what_counts_of_attempts_before_a_place(void **state) {
    (void)state;
    static const char *const places[] = {"s3://bucket/a", "/runs/r/epoch 3", "/elsewhere/checkpoint_000777"};
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        char path[64], commit[128], attempt[128];
        struct view_facts facts;
        view_world_make(path);
        struct journal *journal = view_world_open(path, 2);
        view_world_event(journal, 0, EVENT_ATTEMPT, 1, -1, "{\"workers\": 2}");
        (void)snprintf(commit, sizeof commit, "{\"number\": 100, \"path\": \"%s\"}", places[i]);
        view_world_event(journal, 100 * NS_PER_S, EVENT_CHECKPOINT, 1, -1, commit);
        (void)snprintf(attempt, sizeof attempt, "{\"workers\": 2, \"checkpoint\": \"%s\"}", places[i]);
        view_world_event(journal, 150 * NS_PER_S, EVENT_ATTEMPT, 2, -1, attempt);
        view_world_close(journal);
        assert_int_equal(view_facts_read(path, &facts, NULL), 0);
        expect_counted(&facts, 1, 100);
        /* It is committed there again, and gone on with once more. */
        assert_int_equal(journal_open(path, JOURNAL_APPEND, &journal, NULL), 0);
        commit[strlen("{\"number\": ")] = '7';
        view_world_event(journal, 800 * NS_PER_S, EVENT_CHECKPOINT, 2, -1, commit);
        view_world_event(journal, 850 * NS_PER_S, EVENT_ATTEMPT, 3, -1, attempt);
        view_world_close(journal);
        assert_int_equal(view_facts_renew(path, &facts, NULL), 0);
        expect_counted(&facts, 1, 100);
        expect_counted(&facts, 2, 700);
        view_facts_done(&facts);
        view_world_remove(path);
    }
}

/* What was read of a journal is not read again: events that are gone from it since still tell. */
static void test_facts_that_are_kept(void **state) {
    (void)state;
    char path[64], command[200];
    struct facts_kept kept;
    const struct view_facts *facts;
    struct journal *journal;
    view_world_make(path);
    view_world_b(path);
    facts_kept_init(&kept);
    assert_int_equal(facts_take(path, &kept, NULL, &facts, NULL), 0);
    assert_int_equal(facts->n_attempts, 2);
    facts_give_back(&kept, NULL);
    assert_int_equal(journal_open(path, JOURNAL_APPEND, &journal, NULL), 0);
    view_world_event(journal, 300 * NS_PER_S, EVENT_RUN, 2, -1, "{\"num_workers\": 2}");
    view_world_event(journal, 301 * NS_PER_S, EVENT_ATTEMPT, 3, -1,
                     "{\"workers\": 2, \"checkpoint\": \"checkpoint_000100\"}");
    view_world_event(journal, 302 * NS_PER_S, EVENT_HUNG, 3, 1, "{\"cause\": \"rank 1 hung\"}");
    view_world_report(journal, 303 * NS_PER_S, 3, 0, 101, "{}");
    assert_int_equal(journal_forget_checkpoint(journal, 100, NULL), 0);
    view_world_close(journal);
    (void)snprintf(command, sizeof command,
                   "%s -c \"import sqlite3; d = sqlite3.connect('%s/run.db'); d.execute('DELETE FROM events "
                   "WHERE attempt = 1'); d.commit()\"",
                   "python3", path);
    assert_int_equal(system(command), 0);
    CLEANUP(view_facts_done) struct view_facts whole;
    assert_int_equal(view_facts_read(path, &whole, NULL), 0);
    assert_int_equal(whole.n_attempts, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(facts_take(path, &kept, NULL, &facts, NULL), 0);
        assert_int_equal(facts->n_attempts, 3);
        assert_int_equal(facts->sequence, whole.sequence);
        assert_int_equal(facts->reports, whole.reports);
        assert_int_equal(facts->n_checkpoints, 0);
        assert_int_equal(facts->n_faults, 1);
        assert_int_equal(facts->replay.last, whole.replay.last);
        assert_true(view_facts_count(facts, 1, 100));
        assert_false(view_facts_count(facts, 1, 101));
        assert_false(view_facts_count(facts, 2, 151));
        assert_true(view_facts_count(facts, 3, 151));
        facts_give_back(&kept, NULL);
    }
    view_world_remove(path);
    assert_true(facts_take(path, &kept, NULL, &facts, NULL) < 0);
    facts_kept_done(&kept);
}

static void expose(const struct view_exposed *runs, size_t n, struct buffer *out) {
    ty_error err = {0};
    buffer_clear(out);
    if (view_exposition_encode(runs, n, &(struct view_exposition){0}, out, &err) < 0)
        fail_msg("%s", err.message);
}

/* Of two storage paths: no two series have the same labels. */
static void test_exposition_of_runs_of_one_name(void **state) {
    (void)state;
    CLEANUP(buffer_done) struct buffer out = {0};
    char expected[160];
    const struct view_exposed runs[] = {{.name = "r", .path = a_path}, {.name = "r", .path = b_path}};
    expose(runs, 2, &out);
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(expected, sizeof expected, "trainyard_reports_total{run=\"%s\"} %d\n", runs[i].path,
                       i == 0 ? 8000 : 500);
        assert_non_null(strstr(out.data, expected));
    }
    expose(runs, 1, &out);
    assert_non_null(strstr(out.data, "trainyard_reports_total{run=\"r\"} 8000\n"));
}

/* What rank 0 said last is found behind what the others said since. */
static void test_exposition_of_a_rank_that_reports_seldom(void **state) {
    (void)state;
    char path[64];
    CLEANUP(buffer_done) struct buffer out = {0};
    view_world_make(path);
    struct journal *journal = view_world_open(path, 2);
    view_world_event(journal, 0, EVENT_ATTEMPT, 1, -1, "{\"workers\": 2}");
    view_world_report(journal, 0, 1, 0, 1, "{\"accuracy\":0.75}");
    for (int n = 1; n <= 20000; n++)
        view_world_report(journal, n * NS_PER_MS, 1, 1, (uint64_t)n, "{\"loss\":1}");
    view_world_close(journal);
    expose(&(struct view_exposed){.name = "r", .path = path}, 1, &out);
    assert_non_null(strstr(out.data, "trainyard_metric{run=\"r\",metric=\"accuracy\"} 0.75\n"));
    view_world_remove(path);
}

static size_t count_lines(const char *text, const char *begin) {
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, begin)) != NULL; at++)
        n += at == text || at[-1] == '\n';
    return n;
}

static void test_exposition_of_many_nodes(void **state) {
    (void)state;
    char path[64], file[96];
    struct journal *db = NULL;
    static const char family[] = "trainyard_node_cpu_used_ratio{";
    CLEANUP(buffer_done) struct buffer out = {0};
    static struct usage_sample sample = {.time = VIEW_WORLD_BEGAN};
    view_world_make(path);
    view_world_close(view_world_open(path, 1));
    assert_int_equal(usage_db_open(path, &db, NULL), 0);
    usage_add(&sample, USAGE_NODE_CPU, -1, 0.5);
    for (int node = 0; node < 200; node++) {
        char name[16];
        (void)snprintf(name, sizeof name, "n%d", node);
        assert_int_equal(usage_db_add(db, name, &sample, NULL), 0);
    }
    view_world_close(db);
    const struct view_exposed run = {.name = "r", .path = path};
    expose(&run, 1, &out);
    assert_int_equal(count_lines(out.data, family), 128);
    buffer_clear(&out);
    const struct view_exposition each = {.per_device = true};
    assert_int_equal(view_exposition_encode(&run, 1, &each, &out, NULL), 0);
    assert_int_equal(count_lines(out.data, family), 200);
    (void)snprintf(file, sizeof file, "%s/usage.db", path);
    assert_int_equal(unlink(file), 0);
    view_world_remove(path);
}

/* However many devices it has beside. */
static void test_exposition_of_many_devices_and_ranks(void **state) {
    (void)state;
    char path[64], file[96];
    struct journal *db = NULL;
    CLEANUP(buffer_done) struct buffer out = {0}, metrics = {0};
    static struct usage_sample sample = {.time = VIEW_WORLD_BEGAN};
    view_world_make(path);
    struct journal *journal = view_world_open(path, 200);
    view_world_event(journal, 0, EVENT_ATTEMPT, 1, -1, "{\"workers\": 200}");
    for (int i = 0; i < 90; i++)
        buffer_printf(&metrics, "%s\"m%d\":1", i == 0 ? "{" : ",", i);
    buffer_char(&metrics, '}');
    for (int rank = 0; rank < 200; rank++)
        view_world_report(journal, NS_PER_S, 1, rank, 1, metrics.data);
    view_world_close(journal);
    assert_int_equal(usage_db_open(path, &db, NULL), 0);
    usage_add(&sample, USAGE_NODE_CPU, -1, 0.5);
    usage_add(&sample, USAGE_NODE_MEMORY, -1, 1e9);
    for (int device = 0; device < 8; device++)
        for (enum usage_what what = USAGE_DEVICE_UTILIZATION; what <= USAGE_DEVICE_CLOCK; what++)
            usage_add(&sample, what, device, 1);
    for (int node = 0; node < 16; node++) {
        char name[16];
        (void)snprintf(name, sizeof name, "n%d", node);
        assert_int_equal(usage_db_add(db, name, &sample, NULL), 0);
    }
    view_world_close(db);
    const struct view_exposed run = {.name = "r", .path = path};
    for (int per_device = 0; per_device < 2; per_device++) {
        const struct view_exposition how = {.per_rank = true, .per_device = per_device != 0};
        buffer_clear(&out);
        assert_int_equal(view_exposition_encode(&run, 1, &how, &out, NULL), 0);
        assert_int_equal(count_lines(out.data, "trainyard_device_power_watts{"), 128);
        assert_int_equal(count_lines(out.data, "trainyard_"), 10000);
        assert_true(count_lines(out.data, "trainyard_metric{") > 5000);
    }
    (void)snprintf(file, sizeof file, "%s/usage.db", path);
    assert_int_equal(unlink(file), 0);
    view_world_remove(path);
}

/* However long the run is; what was counted is not read again, and another run is counted anew. */
static void test_exposition_counts_on(void **state) {
    (void)state;
    char path[64];
    CLEANUP(buffer_done) struct buffer out = {0};
    CLEANUP(view_counts_done) struct view_counts counts = {0};
    struct journal *journal = NULL;
    view_world_make(path);
    write_large(path, false);
    const struct view_exposed run = {.name = "r", .path = path},
                              kept = {.name = "r", .path = path, .counts = &counts};
    expose(&run, 1, &out);
    assert_non_null(strstr(out.data, "trainyard_nonfinite_values_total{run=\"r\",metric=\"loss\"} 10\n"));
    assert_non_null(strstr(out.data, "trainyard_nonfinite_values_total{run=\"r\",metric=\"step\"} 0\n"));
    expose(&kept, 1, &out);
    assert_non_null(strstr(out.data, "trainyard_nonfinite_values_total{run=\"r\",metric=\"loss\"} 10\n"));
    assert_int_equal(journal_open(path, JOURNAL_APPEND, &journal, NULL), 0);
    view_world_report(journal, 201 * NS_PER_S, 1, 0, 10001,
                      "{\"loss\":\"Infinity\",\"step\":1,\"name\":\"x\"}");
    view_world_close(journal);
    expose(&kept, 1, &out);
    assert_non_null(strstr(out.data, "trainyard_nonfinite_values_total{run=\"r\",metric=\"loss\"} 11\n"));
    assert_null(strstr(out.data, "metric=\"name\""));
    const struct view_exposed other = {.name = "a", .path = a_path, .counts = &counts};
    expose(&other, 1, &out);
    assert_non_null(strstr(out.data, "trainyard_nonfinite_values_total{run=\"a\",metric=\"loss\"} 1\n"));
    view_world_remove(path);
}

/* What is shown can be given to a shell again. */
static void test_a_command_with_quotes(void **state) {
    (void)state;
    char path[64];
    struct view_summary summary;
    view_world_make(path);
    struct journal *journal = view_world_open(path, 1);
    view_world_event(journal, 0, EVENT_RUN, 0, -1,
                     "{\"argv\": [\"echo\", \"it's\", \"\", \"a b\", \"'\", \"plain\", \"~\", \"#1\", \"[a]\", "
                     "\"{a,b}\", \"a!b\", "
                     "\"a\\rb\", \"--lr=1e-3\"]}");
    view_world_close(journal);
    assert_int_equal(view_summary_read("r", path, &summary, NULL), 0);
    assert_string_equal(
        summary.command,
        "echo 'it'\\''s' '' 'a b' ''\\''' plain '~' '#1' '[a]' '{a,b}' 'a!b' $'a\\015b' --lr=1e-3");
    view_summary_done(&summary);
    view_world_remove(path);
}

/* Another reader of the run may count on, or begin anew, before what was read is written. */
static void test_exposition_of_counts_that_go_on(void **state) {
    (void)state;
    CLEANUP(buffer_done) struct buffer out = {0};
    struct view_counts counts = {0};
    struct exposed_run *read = NULL;
    const struct view_exposed run = {.name = "a", .path = a_path, .counts = &counts};
    assert_int_equal(exposed_run_read(&run, false, &read, NULL), 0);
    view_counts_done(&counts);
    assert_int_equal(exposed_runs_encode(&read, 1, &(struct view_exposition){0}, &out, NULL), 0);
    assert_non_null(strstr(out.data, "trainyard_nonfinite_values_total{run=\"a\",metric=\"loss\"} 1\n"));
    exposed_run_free(read);
}

/* -- TensorBoard's files */

struct board {
    char path[64], directory[96];
    struct tensorboard *files;
};

static void report_loss(struct journal *journal, int attempt, int rank, uint64_t number, double loss) {
    char metrics[64];
    (void)snprintf(metrics, sizeof metrics, "{\"loss\":%.17g}", loss);
    view_world_report(journal, (nanoseconds)number * NS_PER_S, attempt, rank, number, metrics);
}

/* An attempt of three ranks, of which one reports, and one of two, which both do. */
static void begin_board(struct board *board, enum view_history history) {
    const struct view_selection selection = {.history = history};
    view_world_make(board->path);
    struct journal *journal = view_world_open(board->path, 3);
    view_world_event(journal, 0, EVENT_ATTEMPT, 1, -1, "{\"workers\": 3}");
    report_loss(journal, 1, 0, 1, 0);
    view_world_event(journal, 0, EVENT_ATTEMPT, 2, -1, "{\"workers\": 2}");
    report_loss(journal, 2, 0, 1, 1);
    report_loss(journal, 2, 1, 1, 1);
    view_world_close(journal);
    (void)snprintf(board->directory, sizeof board->directory, "%s.board", board->path);
    assert_int_equal(tensorboard_open(board->path, board->directory, &selection, &board->files, NULL), 0);
}

static void end_board(struct board *board) {
    CLEANUP(buffer_done) struct buffer command = {0};
    tensorboard_close(board->files);
    buffer_printf(&command, "rm -rf '%s'", board->directory);
    assert_int_equal(system(command.data), 0); /* NOLINT(cert-env33-c): a directory of this test's */
    view_world_remove(board->path);
}

/* The bytes of the file of means; none where there is no such file. */
static void read_means(const struct board *board, struct buffer *out) {
    char path[128];
    (void)snprintf(path, sizeof path, "%s/mean", board->directory);
    DIR *entries = opendir(path);
    buffer_clear(out);
    for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
        CLEANUP(buffer_done) struct buffer name = {0};
        buffer_printf(&name, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.') assert_int_equal(file_read(name.data, 1 << 20, out, NULL), 0);
    }
    if (entries != NULL) (void)closedir(entries);
}

static bool has_mean(const struct buffer *file, double mean) {
    return file->size > 0 && memmem(file->data, file->size, &mean, sizeof mean) != NULL;
}

/* Means of an attempt with fewer workers do not wait for the ranks that are no more. */
static void test_means_of_fewer_workers(void **state) {
    (void)state;
    struct board board;
    CLEANUP(buffer_done) struct buffer means = {0};
    begin_board(&board, VIEW_EFFECTIVE);
    assert_int_equal(tensorboard_write(board.files, false, NULL), 0);
    read_means(&board, &means);
    assert_true(has_mean(&means, 1));
    end_board(&board);
}

/* Where all that was reported is asked for, the same number of two attempts has two means. */
static void test_means_of_two_attempts(void **state) {
    (void)state;
    struct board board;
    CLEANUP(buffer_done) struct buffer means = {0};
    begin_board(&board, VIEW_ALL);
    assert_int_equal(tensorboard_write(board.files, true, NULL), 0);
    read_means(&board, &means);
    assert_true(has_mean(&means, 1));
    assert_false(has_mean(&means, 2.0 / 3));
    assert_false(has_mean(&means, 0.5));
    end_board(&board);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_topologies_that_are_too_large),
        cmocka_unit_test(test_lags_of_one_that_is_far_behind),
        cmocka_unit_test(test_lags_of_reports_that_came_late),
        cmocka_unit_test(test_timeline),
        cmocka_unit_test(test_the_slowest_first_report),
        cmocka_unit_test(test_the_share_of_a_slow_start),
        cmocka_unit_test(test_an_attempt_that_died),
        cmocka_unit_test(test_shares_of_kept_facts),
        cmocka_unit_test(test_events_and_checkpoints),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_what_had_just_been_written_is_read_again),
        cmocka_unit_test(test_the_end_alone),
        cmocka_unit_test(test_facts_of_a_journal_in_the_place_of_another),
        cmocka_unit_test(test_what_counts_of_attempts_before_a_place),
        cmocka_unit_test(test_facts_that_are_kept),
        cmocka_unit_test(test_exposition_of_runs_of_one_name),
        cmocka_unit_test(test_exposition_of_a_rank_that_reports_seldom),
        cmocka_unit_test(test_exposition_of_many_nodes),
        cmocka_unit_test(test_exposition_of_many_devices_and_ranks),
        cmocka_unit_test(test_exposition_counts_on),
        cmocka_unit_test(test_a_command_with_quotes),
        cmocka_unit_test(test_exposition_of_counts_that_go_on),
        cmocka_unit_test(test_means_of_fewer_workers),
        cmocka_unit_test(test_means_of_two_attempts),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
