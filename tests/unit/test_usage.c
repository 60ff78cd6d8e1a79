/* What is sampled: the texts of /proc, whole and hostile; packets; usage.db, its thinning and its bound;
 * rates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "journal/usage_db.h"
#include "usage/usage.h"
#include "view/usage.h"

#define HOUR (3600 * NS_PER_S)

/* -- texts */

static void processors(void **state) {
    (void)state;
    uint64_t busy = 0, whole = 0;
    assert_true(usage_parse_stat("cpu  10 5 20 100 40 3 2 1 7 0\ncpu0 1 1 1\n", &busy, &whole));
    assert_int_equal(busy, 41);
    assert_int_equal(whole, 181);
    static const char *const hostile[] = {"",           "cpu", "cpu 1 2 3", "cpu0 1 2 3 4", "intr 1 2 3 4 5",
                                          "cpu a b c d"};
    for (size_t i = 0; i < ARRAY_SIZE(hostile); i++)
        assert_false(usage_parse_stat(hostile[i], &busy, &whole));
}

static void pressure(void **state) {
    (void)state;
    double ratio = -1;
    assert_true(
        usage_parse_pressure("some avg10=12.50 avg60=1.00 avg300=0.00 total=9\nfull avg10=1.00\n", &ratio));
    assert_true(fabs(ratio - 0.125) < 1e-12);
    static const char *const hostile[] = {
        "", "full avg10=1", "some avg10=nan", "some avg10=-1", "some avg10=1e9", "some"};
    for (size_t i = 0; i < ARRAY_SIZE(hostile); i++)
        assert_false(usage_parse_pressure(hostile[i], &ratio));
}

struct seen {
    char names[256];
    uint64_t in, out;
};

static void see(void *context, const char *name, uint64_t in, uint64_t out) {
    struct seen *seen = context;
    size_t size = strlen(seen->names);
    (void)snprintf(seen->names + size, sizeof seen->names - size, "%s ", name);
    seen->in += in;
    seen->out += out;
}

static void transfers(void **state) {
    (void)state;
    struct seen seen = {0};
    usage_parse_network("Inter-|   Receive\n face |bytes packets\n    lo: 1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\n"
                        "  eth0:100 2 0 0 0 0 0 0 300 4 0 0 0 0 0 0\n eth1: 5\n\n:\nx: a b",
                        see, &seen);
    assert_string_equal(seen.names, "lo eth0 ");
    assert_int_equal(seen.in, 101);
    assert_int_equal(seen.out, 303);
    seen = (struct seen){0};
    usage_parse_disks("   8       0 sda 10 0 100 5 20 0 200 5 0 0 0\n   8       1 sda1 1 0\nx\n", see, &seen);
    assert_string_equal(seen.names, "sda ");
    assert_int_equal(seen.in, 51200);
    assert_int_equal(seen.out, 102400);
}

/* Any bytes: nothing is read behind the end, which the sanitizers watch. */
static void noise(void **state) {
    (void)state;
    uint32_t random = 7;
    for (int round = 0; round < 2000; round++) {
        char text[200];
        uint64_t a, b;
        double c;
        struct seen seen = {0};
        static const char some[] = "cpu some avg10= eth0: sda 0123456789\n\t -.e";
        size_t size = (random >> 8) % (sizeof text - 1);
        for (size_t i = 0; i < size; i++) {
            random = random * 1664525 + 1013904223;
            text[i] = round % 2 == 0 ? some[(random >> 16) % (sizeof some - 1)] : (char)(random >> 16 | 1);
        }
        text[size] = '\0';
        (void)usage_parse_stat(text, &a, &b);
        (void)usage_parse_pressure(text, &c);
        usage_parse_network(text, see, &seen);
        usage_parse_disks(text, see, &seen);
    }
}

/* -- packets, names */

static void packets(void **state) {
    (void)state;
    static struct usage_sample sample;
    usage_add(&sample, USAGE_NODE_CPU, -1, 0.5);
    usage_add(&sample, USAGE_NODE_CPU, -1, (double)NAN);
    usage_add(&sample, USAGE_NODE_CPU, -1, (double)INFINITY);
    assert_int_equal(sample.n, 1);
    assert_true(usage_is_whole(&sample, usage_size(&sample)));
    assert_false(usage_is_whole(&sample, usage_size(&sample) - 1));
    assert_false(usage_is_whole(&sample, 3));
    sample.values[0].what = USAGES_N;
    assert_false(usage_is_whole(&sample, usage_size(&sample)));
    sample.n = UINT32_MAX;
    assert_false(usage_is_whole(&sample, sizeof sample));
    sample.n = 0;
    for (int i = 0; i < 2 * USAGE_FAULTS_MAX; i++)
        usage_fault_add(&sample, USAGE_FAULT_LOST, i, 0);
    assert_int_equal(sample.n_faults, USAGE_FAULTS_MAX);
    assert_true(usage_is_whole(&sample, usage_size(&sample)));
    sample.faults[3].kind = USAGE_FAULTS_N;
    assert_false(usage_is_whole(&sample, usage_size(&sample)));
    sample.n_faults = UINT32_MAX;
    assert_false(usage_is_whole(&sample, usage_size(&sample)));
    sample.n_faults = 0;
    for (int i = 0; i < 2 * USAGE_VALUES_MAX; i++)
        usage_add(&sample, USAGE_WORKER_CPU, i, 1);
    assert_int_equal(sample.n, USAGE_VALUES_MAX);
}

static void names(void **state) {
    (void)state;
    for (int i = 0; i < USAGES_N; i++)
        assert_int_equal(usage_of(usage_table[i].text), i);
    assert_int_equal(usage_of("loss"), USAGES_N);
    CLEANUP(buffer_done) struct buffer text = {0};
    usage_limits(4 | 1, &text);
    assert_string_equal(text.data, "power, thermal limit");
}

static void note_entry(void *context, size_t place, const char *text) {
    struct buffer *out = context;
    buffer_printf(out, "%zu=%s ", place, text);
}

static void visible_devices(void **state) {
    (void)state;
    int indices[USAGE_DEVICES_MAX];
    CLEANUP(buffer_done) struct buffer named = {0};
    assert_int_equal(usage_visible(NULL, 3, indices, NULL, NULL), 3);
    assert_int_equal(indices[2], 2);
    assert_int_equal(usage_visible("2,0", 3, indices, NULL, NULL), 2);
    assert_int_equal(indices[0], 2);
    assert_int_equal(usage_visible("1,GPU-abc,9", 3, indices, note_entry, &named), 3);
    assert_int_equal(indices[1], -1);
    assert_int_equal(indices[2], -1);
    assert_string_equal(named.data, "1=GPU-abc ");
    assert_int_equal(usage_visible("", 3, indices, NULL, NULL), 0);
    assert_int_equal(usage_visible(NULL, 1000, indices, NULL, NULL), USAGE_DEVICES_MAX);
}

/* -- faults */

static void expect_fault(enum usage_fault_kind kind, uint64_t code, const char *text,
                         enum usage_weight weight) {
    CLEANUP(buffer_done) struct buffer out = {0};
    const struct usage_fault fault = {(uint32_t)kind, 0, code};
    usage_fault_text(&fault, &out);
    assert_string_equal(out.data, text);
    assert_int_equal(usage_fault_weight(&fault), weight);
}

static void faults_in_words(void **state) {
    (void)state;
    expect_fault(USAGE_FAULT_XID, 79, "Xid 79, it has fallen off the bus", USAGE_OF_HARDWARE);
    expect_fault(USAGE_FAULT_XID, 31, "Xid 31, GPU memory page fault, most often by a fault of the program",
                 USAGE_OF_PROGRAM);
    expect_fault(USAGE_FAULT_XID, 45, "Xid 45, cleaned up after an earlier error", USAGE_NOTED);
    expect_fault(USAGE_FAULT_XID, UINT64_MAX, "Xid 18446744073709551615", USAGE_OF_PROGRAM);
    expect_fault(USAGE_FAULT_LOST, 0, "the driver has lost it", USAGE_OF_HARDWARE);
    expect_fault(USAGE_FAULT_ECC, 1, "1 uncorrected error of its memory", USAGE_OF_HARDWARE);
    expect_fault(USAGE_FAULT_THROTTLED, 4 | 8, "its clock is held down: thermal limit, power brake",
                 USAGE_NOTED);
}

/* What a look `at` so many seconds finds; the kind of the fault, -1 without. */
static int watch(struct usage_watch *watch, double at, unsigned limits, double errors) {
    static struct usage_sample sample;
    sample.n = sample.n_faults = 0;
    sample.time = (nanoseconds)((1.7e9 + at) * (double)NS_PER_S);
    usage_add(&sample, USAGE_DEVICE_LIMITED, 3, limits);
    usage_add(&sample, USAGE_DEVICE_ECC, 3, errors);
    usage_add(&sample, USAGE_DEVICE_ECC, INT32_MAX, errors); /* of no device that there is */
    usage_watch_look(watch, &sample);
    assert_in_range(sample.n_faults, 0, 1);
    if (sample.n_faults > 0) assert_int_equal(sample.faults[0].device, 3);
    return sample.n_faults > 0 ? (int)sample.faults[0].kind : -1;
}

static void faults_between_samples(void **state) {
    (void)state;
    struct usage_watch seen = {0};
    assert_int_equal(watch(&seen, 0, USAGE_LIMITED_POWER, 1e6),
                     -1); /* what was there before, and what is usual */
    assert_int_equal(watch(&seen, 10, USAGE_LIMITED_POWER | USAGE_LIMITED_THERMAL, 1e6), USAGE_FAULT_THROTTLED);
    assert_int_equal(watch(&seen, 20, 0, 1e6), -1);
    assert_int_equal(watch(&seen, 30, USAGE_LIMITED_THERMAL, 1e6), -1); /* comes and goes */
    assert_int_equal(watch(&seen, 40, USAGE_LIMITED_BRAKE, 1e6), USAGE_FAULT_THROTTLED);
    assert_int_equal(watch(&seen, 2000, USAGE_LIMITED_THERMAL, 1e6), USAGE_FAULT_THROTTLED);
    assert_int_equal(watch(&seen, 2010, 0, 1e6 + 2), USAGE_FAULT_ECC);
    assert_int_equal(watch(&seen, 2020, 0, 0), -1); /* the driver was loaded anew */
    assert_int_equal(watch(&seen, 2030, 0, 1), USAGE_FAULT_ECC);
}

/* -- AMD, by files that stand for a machine */

static void put_file(const char *root, const char *path, const char *text) {
    char full[512];
    int size = snprintf(full, sizeof full, "%s%s", root, path);
    assert_in_range(size, 1, sizeof full - 1);
    for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        (void)mkdir(full, 0755);
        *at = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    (void)fputs(text, file);
    (void)fclose(file);
}

static double value_of(const struct usage_sample *sample, enum usage_what what, int number) {
    for (uint32_t i = 0; i < sample->n; i++)
        if (sample->values[i].what == what && sample->values[i].number == number)
            return sample->values[i].value;
    return -1;
}

static void amd(void **state) {
    static struct usage_sample sample;
    const char *root = *state;
    put_file(root, "/dev/kfd", "");
    put_file(root, "/dev/dri/renderD128", "");
    put_file(root, "/sys/class/kfd/kfd/topology/nodes/1/properties",
             "simd_count 304\nvendor_id 4098\ndevice_id 29857\ndrm_render_minor 128\n");
#define DEVICE "/sys/class/drm/renderD128/device"
    put_file(root, DEVICE "/gpu_busy_percent", "37\n");
    put_file(root, DEVICE "/mem_info_vram_used", "1073741824\n");
    put_file(root, DEVICE "/mem_info_vram_total", "many\n");
    put_file(root, DEVICE "/hwmon/hwmon3/power1_average", "412000000\n");
    put_file(root, DEVICE "/hwmon/hwmon3/temp1_input", "-5\n");
    (void)setenv("TRAINYARD_SYSROOT", root, 1);
    sample.n = 0;
    usage_amd_look(&sample);
    (void)unsetenv("TRAINYARD_SYSROOT");
    assert_true(value_of(&sample, USAGE_DEVICE_UTILIZATION, 0) == 0.37);
    assert_true(value_of(&sample, USAGE_DEVICE_MEMORY, 0) == 1073741824);
    assert_true(value_of(&sample, USAGE_DEVICE_POWER, 0) == 412);
    assert_int_equal(sample.n, 3); /* the others are no numbers that can be */
    CLEANUP(buffer_done) struct buffer command = {0};
    buffer_printf(&command, "rm -rf '%s/dev' '%s/sys'", root, root);
    assert_int_equal(system(command.data), 0); /* NOLINT(cert-env33-c): a directory of this test's */
}

/* -- the machine and its workers */

static double node_cpu(struct usage_node *node, const char *root, const char *text) {
    static struct usage_sample sample;
    put_file(root, "/proc/stat", text);
    (void)setenv("TRAINYARD_SYSROOT", root, 1);
    sample.n = 0;
    usage_node_look(node, &sample);
    (void)unsetenv("TRAINYARD_SYSROOT");
    return value_of(&sample, USAGE_NODE_CPU, -1);
}

static void processors_between_looks(void **state) {
    const char *root = *state;
    struct usage_node node = {0};
    assert_true(node_cpu(&node, root, "cpu  100 0 0 100 100 0 0 0\n") < 0);
    assert_true(node_cpu(&node, root, "cpu  150 0 0 150 100 0 0 0\n") == 0.5);
    assert_true(node_cpu(&node, root, "cpu  250 0 0 150 90 0 0 0\n") == 1); /* the wait for disks goes back */
    CLEANUP(buffer_done) struct buffer command = {0};
    buffer_printf(&command, "rm -rf '%s/proc'", root);
    assert_int_equal(system(command.data), 0); /* NOLINT(cert-env33-c): a directory of this test's */
}

static double worker_cpu(struct usage_workers *workers) {
    static struct usage_sample sample;
    sample.n = 0;
    usage_workers_look(workers, &sample);
    return value_of(&sample, USAGE_WORKER_CPU, 7);
}

/* What a worker has used in its whole life is not taken for what it used since a look that found nothing. */
static void a_look_that_finds_no_processes(void **state) {
    (void)state;
    static struct usage_workers workers;
    struct rlimit files;
    int busy[2];
    char done;
    assert_int_equal(pipe(busy), 0);
    pid_t worker = fork();
    assert_true(worker >= 0);
    if (worker == 0) {
        (void)setpgid(0, 0);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* of a test that fails too nothing is left */
        while (clock() < CLOCKS_PER_SEC / 10)
            continue;
        (void)close(busy[1]);
        for (;;)
            (void)pause();
    }
    (void)close(busy[1]);
    assert_int_equal(read(busy[0], &done, 1), 0);
    (void)close(busy[0]);
    workers.targets[0] = (struct usage_target){7, worker};
    workers.n = 1;
    assert_true(worker_cpu(&workers) < 0);
    assert_true(worker_cpu(&workers) >= 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, files.rlim_max}), 0);
    double unseen = worker_cpu(&workers);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    assert_true(unseen < 0);
    assert_true(worker_cpu(&workers) < 0);
    assert_true(worker_cpu(&workers) >= 0);
    (void)kill(worker, SIGKILL);
    assert_int_equal(waitpid(worker, NULL, 0), worker);
}

/* -- usage.db */

static int make_directory(void **state) {
    char *path = strdup("/tmp/trainyard-usage-XXXXXX");
    *state = path;
    return path != NULL && mkdtemp(path) != NULL ? 0 : -1;
}

static int remove_directory(void **state) {
    static const char *const names[] = {"/usage.db", "/usage.db-wal", "/usage.db-shm", ""};
    char path[256];
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        (void)snprintf(path, sizeof path, "%s%s", (char *)*state, names[i]);
        (void)(names[i][0] == '\0' ? rmdir(path) : unlink(path));
    }
    free(*state);
    return 0;
}

static void add(struct journal *db, const char *node, nanoseconds time, enum usage_what what, double value) {
    static struct usage_sample sample;
    ty_error err = {0};
    sample.n = 0;
    sample.time = time;
    usage_add(&sample, what, -1, value);
    assert_int_equal(usage_db_add(db, node, &sample, &err), 0);
}

struct counted {
    int64_t rows[3], n; /* raw, by the minute, by ten; samples in all */
    double min, max, sum;
};

static int count(void *context, const struct usage_row *row) {
    struct counted *counted = context;
    counted->rows[row->span == 0 ? 0 : row->span == 60 * NS_PER_S ? 1 : 2]++;
    if (counted->n == 0 || row->min < counted->min) counted->min = row->min;
    if (counted->n == 0 || row->max > counted->max) counted->max = row->max;
    counted->n += row->n;
    counted->sum += row->mean * (double)row->n;
    return 0;
}

static int count_all(void *context, struct journal *db, ty_error *err) {
    const struct usage_query all = {.to = INT64_MAX};
    *(struct counted *)context = (struct counted){0};
    return usage_db_each(db, &all, count, context, err);
}

/* 30 hours, a sample in 30 s: no extreme and no sum is lost on the way through the spans. */
static void thinning(void **state) {
    struct journal *db = NULL;
    ty_error err = {0};
    struct counted counted;
    const nanoseconds begin = 1700000000 * NS_PER_S;
    assert_int_equal(usage_db_open(*state, &db, &err), 0);
    double sum = 0;
    int64_t n = 0;
    for (nanoseconds at = 0; at < 30 * HOUR; at += 30 * NS_PER_S, n++) {
        double value = n == 1000 ? 99 : n == 2000 ? -7 : (double)(n % 10);
        sum += value;
        add(db, "n", begin + at, USAGE_NODE_CPU, value);
        if (n % 20 == 0) assert_int_equal(usage_db_thin(db, begin + at, USAGE_DB_MOST, &err), 0);
    }
    assert_int_equal(journal_commit(db, &err), 0);
    assert_int_equal(usage_db_read(*state, count_all, &counted, &err), 0); /* beside the writer */
    assert_int_equal(counted.n, n);
    assert_true(counted.min == -7 && counted.max == 99 && fabs(counted.sum - sum) < 1e-6);
    assert_in_range(counted.rows[0], 238, 270);
    assert_in_range(counted.rows[1], 22 * 60 - 20, 22 * 60 + 20);
    assert_in_range(counted.rows[2], 30, 40);
    journal_close(db);
}

/* Above the bound the oldest are coarser, and at last gone; the newest are there. */
static void bound(void **state) {
    struct journal *db = NULL;
    ty_error err = {0};
    struct counted counted;
    const nanoseconds begin = 1700000000 * NS_PER_S, most = 100 * 1000;
    assert_int_equal(usage_db_open(*state, &db, &err), 0);
    for (int node = 0; node < 40; node++) {
        char name[16];
        (void)snprintf(name, sizeof name, "n%d", node);
        for (int i = 0; i < 200; i++)
            add(db, name, begin + i * 10 * NS_PER_S, USAGE_NODE_CPU, 1);
    }
    for (int i = 0; i < 10; i++)
        assert_int_equal(usage_db_thin(db, begin + (2000 + 60 * i) * NS_PER_S, most, &err), 0);
    assert_int_equal(journal_commit(db, &err), 0);
    assert_int_equal(usage_db_read(*state, count_all, &counted, &err), 0);
    assert_true(counted.rows[0] + counted.rows[1] + counted.rows[2] < 2500);
    assert_true(counted.n > 100);
    journal_close(db);
}

static void damaged_begins_anew(void **state) {
    struct journal *db = NULL;
    ty_error err = {0};
    char path[256];
    struct counted counted;
    (void)snprintf(path, sizeof path, "%s/usage.db", (char *)*state);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 4096; i++)
        (void)fputc('x', file);
    (void)fclose(file);
    assert_true(usage_db_read(*state, count_all, &counted, &err) < 0);
    assert_int_equal(usage_db_open(*state, &db, &err), 0);
    add(db, "n", 1700000000 * NS_PER_S, USAGE_NODE_CPU, 1);
    journal_close(db);
    assert_int_equal(usage_db_read(*state, count_all, &counted, &err), 0);
    assert_int_equal(counted.n, 1);
}

/* -- what is looked at */

static double total_of(const struct view_usage *usage, size_t node) {
    assert_int_equal(usage->nodes[node].n, 1);
    return view_usage_total(&usage->nodes[node].items[0]);
}

/* A node that joined counts from where it began, and one that began anew has no less than nothing. */
static void totals(void **state) {
    struct journal *db = NULL;
    ty_error err = {0};
    struct view_usage usage;
    const nanoseconds begin = 1700000000 * NS_PER_S;
    assert_int_equal(usage_db_open(*state, &db, &err), 0);
    for (int i = 0; i < 100; i++) {
        add(db, "a", begin + i * 10 * NS_PER_S, USAGE_NODE_RECEIVE, 5e9 + i * 1000);
        if (i >= 60) add(db, "b", begin + i * 10 * NS_PER_S, USAGE_NODE_RECEIVE, 7e9 + i * 1000);
        add(db, "c", begin + i * 10 * NS_PER_S, USAGE_NODE_RECEIVE, i < 90 ? 9e9 : i);
    }
    journal_close(db);
    assert_int_equal(view_usage_read(*state, 0, &usage, &err), 0);
    assert_int_equal(usage.n, 3);
    assert_true(total_of(&usage, 0) == 99000);
    assert_true(total_of(&usage, 1) == 39000);
    assert_true(total_of(&usage, 2) == 0);
    view_usage_done(&usage);
}

static void lasts_and_rates(void **state) {
    struct journal *db = NULL;
    ty_error err = {0};
    struct view_usage usage;
    const nanoseconds begin = 1700000000 * NS_PER_S;
    assert_int_equal(view_usage_read(*state, 0, &usage, NULL), -ENOENT);
    assert_int_equal(usage_db_open(*state, &db, &err), 0);
    for (int i = 0; i < 10; i++) {
        add(db, "b", begin + i * 10 * NS_PER_S, USAGE_NODE_RECEIVE, 5e9 + i * 1000);
        add(db, "b", begin + i * 10 * NS_PER_S, USAGE_NODE_CPU, i / 10.0);
        if (i < 2) add(db, "a", begin + i * 10 * NS_PER_S, USAGE_NODE_CPU, 1);
    }
    journal_close(db);
    assert_int_equal(view_usage_read(*state, 0, &usage, &err), 0);
    assert_int_equal(usage.n, 2);
    assert_string_equal(usage.nodes[0].name, "a");
    assert_true(usage.nodes[0].stale);
    assert_false(usage.nodes[1].stale);
    for (size_t i = 0; i < usage.nodes[1].n; i++) {
        const struct view_usage_last *item = &usage.nodes[1].items[i];
        bool counts = item->what == USAGE_NODE_RECEIVE;
        assert_true(fabs(view_usage_shown(item) - (counts ? 100 : 0.9)) < 1e-9);
        if (counts) assert_true(item->value - item->first == 9000);
    }
    view_usage_done(&usage);
    assert_int_equal(view_usage_read(*state, begin + HOUR, &usage, &err), 0);
    assert_true(usage.nodes[1].stale); /* by the clock of who looks */
    view_usage_done(&usage);

    CLEANUP(buffer_done) struct buffer out = {0};
    struct view_usage_query query = {
        .node = "b", .what = "node_receive", .from = (double)NAN, .to = (double)NAN, .buckets = 3};
    struct view_usage_lines lines;
    assert_int_equal(view_usage_lines_read(*state, &query, &lines, &err), 0);
    view_usage_lines_encode(&lines, &out);
    assert_non_null(strstr(out.data, "\"n\": [3,3,3], \"min\": [100,100,100]"));
    view_usage_lines_done(&lines);
    query.what = "loss";
    assert_int_equal(view_usage_lines_read(*state, &query, &lines, &err), TY_EUSAGE);
}

/* A kept value may be anything. */
static void words(void **state) {
    (void)state;
    static const struct {
        enum usage_what what;
        double value;
        const char *expected;
    } cases[] = {{USAGE_NODE_MEMORY, 1536, "1.5 KiB"},       {USAGE_NODE_MEMORY, 0x1p50, "1 PiB"},
                 {USAGE_NODE_MEMORY, 1e300, "15.99 EiB"},    {USAGE_NODE_MEMORY, -1, "0 B"},
                 {USAGE_NODE_MEMORY, (double)INFINITY, "-"}, {USAGE_NODE_RECEIVE, 3e15, "2.66 PiB/s"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        CLEANUP(buffer_done) struct buffer out = {0};
        view_usage_text(cases[i].what, cases[i].value, &out);
        assert_string_equal(out.data, cases[i].expected);
    }
}

/* 300 nodes of two devices: the lines that there are room for, and bands over all of them. */
static void bands_over_nodes(void **state) {
    static struct usage_sample sample;
    struct journal *db = NULL;
    ty_error err = {0};
    struct view_usage_lines lines;
    struct view_usage_query query = {
        .what = "device_power", .from = (double)NAN, .to = (double)NAN, .buckets = 5};
    assert_int_equal(usage_db_open(*state, &db, &err), 0);
    for (int i = 0; i < 10; i++)
        for (int node = 0; node < 300; node++) {
            char name[8];
            (void)snprintf(name, sizeof name, "n%d", node);
            sample.n = 0;
            sample.time = (1700000000 + 10 * i) * NS_PER_S + node;
            usage_add(&sample, USAGE_DEVICE_POWER, 0, node);
            usage_add(&sample, USAGE_DEVICE_POWER, 1, 1000 + i);
            assert_int_equal(usage_db_add(db, name, &sample, &err), 0);
        }
    journal_close(db);
    assert_int_equal(view_usage_lines_read(*state, &query, &lines, &err), 0);
    assert_int_equal(lines.n, VIEW_USAGE_LINES);
    assert_int_equal(lines.n_all, 600);
    view_usage_lines_done(&lines);
    query.over = VIEW_USAGE_NODE;
    query.node = "n7";
    assert_int_equal(view_usage_lines_read(*state, &query, &lines, &err), 0);
    assert_int_equal(lines.n, 1);
    assert_string_equal(lines.items[0].node, "n7");
    assert_true(lines.items[0].points[0].min == 7 && lines.items[0].points[0].max == 1001);
    view_usage_lines_done(&lines);
    query.over = VIEW_USAGE_ALL;
    query.node = NULL;
    assert_int_equal(view_usage_lines_read(*state, &query, &lines, &err), 0);
    assert_int_equal(lines.n, 1);
    assert_null(lines.items[0].node);
    assert_in_range(lines.items[0].n, 5, 6); /* the newest sample is the end of the last bucket */
    int64_t n = 0;
    for (size_t i = 0; i < lines.items[0].n; i++) {
        assert_true(lines.items[0].points[i].min == 0);
        n += lines.items[0].points[i].n;
    }
    assert_int_equal(n, 6000);
    assert_true(lines.items[0].points[lines.items[0].n - 1].max == 1009);
    view_usage_lines_done(&lines);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processors),
        cmocka_unit_test(pressure),
        cmocka_unit_test(transfers),
        cmocka_unit_test(noise),
        cmocka_unit_test(packets),
        cmocka_unit_test(names),
        cmocka_unit_test(visible_devices),
        cmocka_unit_test(faults_in_words),
        cmocka_unit_test(faults_between_samples),
        cmocka_unit_test_setup_teardown(amd, make_directory, remove_directory),
        cmocka_unit_test_setup_teardown(processors_between_looks, make_directory, remove_directory),
        cmocka_unit_test(a_look_that_finds_no_processes),
        cmocka_unit_test_setup_teardown(thinning, make_directory, remove_directory),
        cmocka_unit_test_setup_teardown(bound, make_directory, remove_directory),
        cmocka_unit_test_setup_teardown(damaged_begins_anew, make_directory, remove_directory),
        cmocka_unit_test_setup_teardown(totals, make_directory, remove_directory),
        cmocka_unit_test_setup_teardown(lasts_and_rates, make_directory, remove_directory),
        cmocka_unit_test(words),
        cmocka_unit_test_setup_teardown(bands_over_nodes, make_directory, remove_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
