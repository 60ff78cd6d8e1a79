/* TensorBoard's event files, one for each rank and one for the means. Files for ten thousand ranks cannot
 * stay open: records gather in memory, and go to the files together. A mean waits until all ranks have made
 * its number. */
#include "view/export.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/str.h"
#include "view/facts.h"
#include "view/scan.h"
#include "view/tensorboard.pb-c.h"
#include "view/values.h"

enum { GATHERED_MAX = 8 << 20, MEANS_WAITING = 1024, DTYPE_DOUBLE = 2, CLASS_SCALAR = 1 };

struct board_file {
    char *path; /* owned */
    struct buffer records;
};

struct board_value {
    size_t place; /* of its name */
    double value;
};

/* The sums of one number of an attempt, until all of its ranks have made it. */
struct board_mean {
    int attempt;
    uint64_t number;
    int64_t step;
    nanoseconds time;
    size_t ranks;
    double *sums; /* by name; n_sums, owned */
    uint64_t *counts;
    size_t n_sums;
};

struct tensorboard {
    char *run_path, *directory; /* owned */
    struct view_selection selection;
    struct view_facts facts;
    struct board_file *files; /* by rank; n_files, owned */
    size_t n_files;
    struct board_file mean;
    struct board_mean *means; /* by number modulo MEANS_WAITING; owned */
    struct hash *places;      /* name -> place */
    char **names;             /* n_names, owned */
    size_t n_names;
    uint64_t *given, n_reports; /* by place: the last report, counted from 1, that had a number; owned */
    struct board_value *values; /* of the report at hand; n_values */
    size_t n_values, gathered;
    int64_t step;
    ty_error *err;
    bool failed;
};

/* -- records */

/* CRC-32C (Castagnoli), bit by bit for each byte's remainder; RFC 3720, B.4. A checksum of data that holds
 * checksums says little, so it is turned (tensorflow/core/lib/hash/crc32c.h). */
static uint32_t masked_crc(const void *data, size_t size) {
    const unsigned char *bytes = data;
    static uint32_t table[256];
    static bool made;
    if (!made) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t rest = i;
            for (int bit = 0; bit < 8; bit++)
                rest = (rest >> 1) ^ ((rest & 1) != 0 ? 0x82f63b78 : 0);
            table[i] = rest;
        }
        made = true;
    }
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < size; i++)
        crc = (crc >> 8) ^ table[(crc ^ bytes[i]) & 0xff];
    crc = ~crc;
    return htole32(((crc >> 15) | (crc << 17)) + 0xa282ead8);
}

/* Length, its checksum, the event, its checksum: TensorFlow's record format
 * (tensorflow/core/lib/io/record_writer.h). Numbers are little-endian. */
static void append_record(struct buffer *out, const Tensorboard__Event *event) {
    size_t size = tensorboard__event__get_packed_size(event);
    uint64_t length = htole64(size);
    uint32_t crc = masked_crc(&length, sizeof length);
    buffer_append(out, &length, sizeof length);
    buffer_append(out, &crc, sizeof crc);
    char *at = buffer_reserve(out, size);
    if (at == NULL) return;
    (void)tensorboard__event__pack(event, (uint8_t *)at);
    out->size += size;
    crc = masked_crc(at, size);
    buffer_append(out, &crc, sizeof crc);
}

/* An event with a summary of all values of the report at hand, as tensors without dimensions: simple values, as
 * older writers make them, are floats. */
static int append_values(struct tensorboard *board, struct buffer *out, nanoseconds time, int64_t step) {
    size_t n = board->n_values;
    if (n == 0) return 0;
    CLEANUP_FREE Tensorboard__SummaryValue *values = calloc(n, sizeof *values);
    CLEANUP_FREE Tensorboard__Tensor *tensors = calloc(n, sizeof *tensors);
    CLEANUP_FREE Tensorboard__SummaryValue **pointers = calloc(n, sizeof *pointers);
    if (values == NULL || tensors == NULL || pointers == NULL) return -ENOMEM;
    static char scalars[] = "scalars";
    Tensorboard__PluginData plugin = TENSORBOARD__PLUGIN_DATA__INIT;
    Tensorboard__SummaryMetadata metadata = TENSORBOARD__SUMMARY_METADATA__INIT;
    Tensorboard__TensorShape shape = TENSORBOARD__TENSOR_SHAPE__INIT;
    plugin.plugin_name = scalars;
    metadata.plugin_data = &plugin;
    metadata.data_class = CLASS_SCALAR;
    for (size_t i = 0; i < n; i++) {
        tensorboard__tensor__init(&tensors[i]);
        tensors[i].dtype = DTYPE_DOUBLE;
        tensors[i].tensor_shape = &shape;
        tensors[i].n_double_val = 1;
        tensors[i].double_val = &board->values[i].value;
        tensorboard__summary_value__init(&values[i]);
        values[i].tag = board->names[board->values[i].place];
        values[i].tensor = &tensors[i];
        values[i].metadata = &metadata;
        pointers[i] = &values[i];
    }
    Tensorboard__Summary summary = TENSORBOARD__SUMMARY__INIT;
    summary.n_value = n;
    summary.value = pointers;
    Tensorboard__Event event = TENSORBOARD__EVENT__INIT;
    event.wall_time = duration_seconds(time);
    event.step = step;
    event.what_case = TENSORBOARD__EVENT__WHAT_SUMMARY;
    event.summary = &summary;
    size_t before = out->size;
    append_record(out, &event);
    board->gathered += out->size - before;
    return out->failed ? -ENOMEM : 0;
}

/* -- files */

/* TensorBoard takes files with "tfevents" in their names, and sorts those of a directory by them: all have the
 * time of the run's first event there. The first record says of which form the others are. */
static int begin_file(const struct tensorboard *board, struct board_file *file, const char *name) {
    static char version[] = "brain.Event:2";
    CLEANUP_FREE char *directory = str_format("%s/%s", board->directory, name);
    char host[65] = "localhost";
    (void)gethostname(host, sizeof host - 1);
    if (directory == NULL) return -ENOMEM;
    if (mkdir(directory, 0777) < 0 && errno != EEXIST) return -errno;
    long long seconds = (long long)(board->facts.first / NS_PER_S);
    file->path = str_format("%s/events.out.tfevents.%010lld.%s.trainyard", directory, seconds, host);
    if (file->path == NULL) return -ENOMEM;
    Tensorboard__Event event = TENSORBOARD__EVENT__INIT;
    event.wall_time = duration_seconds(board->facts.first);
    event.what_case = TENSORBOARD__EVENT__WHAT_FILE_VERSION;
    event.file_version = version;
    append_record(&file->records, &event);
    return file->records.failed ? -ENOMEM : 0;
}

/* Opened for each writing, appended to, and closed. */
static int flush_file(struct board_file *file) {
    if (file->path == NULL || file->records.size == 0) return 0;
    CLEANUP_FD int fd = open(file->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    int result = fd < 0 ? -errno : file_write_all(fd, file->records.data, file->records.size);
    buffer_done(&file->records);
    return result;
}

static int flush(struct tensorboard *board) {
    int result = flush_file(&board->mean);
    const char *path = board->mean.path;
    for (size_t i = 0; i < board->n_files && result >= 0; i++) {
        path = board->files[i].path;
        result = flush_file(&board->files[i]);
    }
    board->gathered = 0;
    if (result < 0) return ty_fail(board->err, result, "cannot write %s: %s", path, strerror(-result));
    return 0;
}

static int find_file(struct tensorboard *board, int rank, struct board_file **file) {
    if (ARRAY_REACH(board->files, board->n_files, (size_t)rank + 1) < 0) return -ENOMEM;
    *file = &board->files[rank];
    if ((*file)->path != NULL) return 0;
    char name[32];
    (void)snprintf(name, sizeof name, "rank-%d", rank);
    int result = begin_file(board, *file, name);
    if (result < 0 && result != -ENOMEM)
        return ty_fail(board->err, result, "cannot make %s/%s: %s", board->directory, name, strerror(-result));
    return result;
}

/* -- one report after the other */

/* The place of the value's name, a new one where it was not seen before and `adds`. SIZE_MAX: it has none, or
 * memory is short, which `failed` tells. */
static size_t place_of(struct tensorboard *board, const struct value *value, bool adds) {
    char name[METRIC_NAME_BYTES + 1];
    if (!value_name(value, name)) return SIZE_MAX;
    const uintptr_t *known = hash_get(board->places, name);
    if (known != NULL) return *known;
    if (!adds) return SIZE_MAX;
    size_t n = board->n_names;
    bool room = ARRAY_GROW(board->values, n) == 0 && ARRAY_GROW(board->given, n) == 0 &&
                ARRAY_GROW(board->names, n) == 0;
    char *copy = room ? strdup(name) : NULL;
    board->failed = copy == NULL || hash_set(board->places, name, n) < 0;
    if (board->failed) {
        free(copy);
        return SIZE_MAX;
    }
    board->given[n] = 0;
    board->names[n] = copy;
    board->n_names++;
    return n;
}

static bool take_value(void *context, const struct value *value) {
    struct tensorboard *board = context;
    bool number = value_is_number(value);
    size_t place = place_of(board, value, number), at = board->n_values;
    if (place == SIZE_MAX) return !board->failed;
    bool again = board->given[place] == board->n_reports;
    if (again)
        for (at = 0; board->values[at].place != place;)
            at++;
    board->given[place] = number ? board->n_reports : 0;
    if (number)
        board->values[at] = (struct board_value){place, value->number};
    else if (again)
        board->values[at] = board->values[--board->n_values];
    board->n_values += number && !again;
    return true;
}

/* The first of these names that the report has tells its step, else its number does. */
static int64_t find_step(const struct tensorboard *board, uint64_t number) {
    static const char *const steps[] = {"step", "global_step", "iteration", "training_iteration"};
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
        for (size_t at = 0; at < board->n_values; at++) {
            const struct board_value *value = &board->values[at];
            if (fabs(value->value) < 9e15 && str_equal(board->names[value->place], steps[i]))
                return (int64_t)value->value;
        }
    return (int64_t)number;
}

static int flush_mean(struct tensorboard *board, struct board_mean *mean) {
    if (mean->ranks == 0) return 0;
    board->n_values = 0;
    for (size_t i = 0; i < mean->n_sums; i++)
        if (mean->counts[i] > 0)
            board->values[board->n_values++] = (struct board_value){i, mean->sums[i] / (double)mean->counts[i]};
    mean->ranks = 0;
    int result = board->mean.path == NULL ? begin_file(board, &board->mean, "mean") : 0;
    return result < 0 ? result : append_values(board, &board->mean.records, mean->time, mean->step);
}

/* How many ranks an attempt has; 0: nothing tells. */
static size_t ranks_of(const struct tensorboard *board, int attempt) {
    const struct run_replay *replay = &board->facts.replay;
    for (size_t i = replay->n_attempts; i > 0; i--)
        if (replay->attempts[i - 1].attempt == attempt) return (size_t)replay->attempts[i - 1].num_workers;
    return replay->n_workers;
}

static int add_to_mean(struct tensorboard *board, const struct journal_report *report) {
    struct board_mean *mean = &board->means[report->number % MEANS_WAITING];
    if (ARRAY_RESIZE(mean->sums, board->n_names + 1) < 0 || ARRAY_RESIZE(mean->counts, board->n_names + 1) < 0)
        return -ENOMEM;
    for (; mean->n_sums < board->n_names; mean->n_sums++) {
        mean->sums[mean->n_sums] = 0;
        mean->counts[mean->n_sums] = 0;
    }
    if (mean->ranks == 0) {
        memset(mean->sums, 0, mean->n_sums * sizeof *mean->sums);
        memset(mean->counts, 0, mean->n_sums * sizeof *mean->counts);
        mean->attempt = report->attempt;
        mean->number = report->number;
        mean->step = board->step;
    }
    mean->time = report->time;
    mean->ranks++;
    for (size_t i = 0; i < board->n_values; i++) {
        const struct board_value *value = &board->values[i];
        if (!isfinite(value->value)) continue;
        mean->sums[value->place] += value->value;
        mean->counts[value->place]++;
    }
    size_t all = ranks_of(board, report->attempt);
    return all > 0 && mean->ranks >= all ? flush_mean(board, mean) : 0;
}

/* A number has its place among the means by its remainder: where another one, or another attempt's, still waits
 * there, that is written with the ranks that it has. */
static int write_report(void *context, const struct journal_report *report) {
    struct tensorboard *board = context;
    struct board_file *file;
    if (report->rank < 0 || report->rank >= IDSET_MAX ||
        !view_facts_select(&board->facts, &board->selection, report))
        return 0;
    struct board_mean *mean = &board->means[report->number % MEANS_WAITING];
    bool others = mean->ranks > 0 && (mean->number != report->number || mean->attempt != report->attempt);
    int result = others ? flush_mean(board, mean) : 0;
    board->n_values = 0;
    board->n_reports++;
    (void)values_each(report->metrics, report->metrics_size, take_value, board);
    if (board->failed) return -ENOMEM;
    board->step = find_step(board, report->number);
    if (result == 0) result = find_file(board, report->rank, &file);
    if (result == 0) result = append_values(board, &file->records, report->time, board->step);
    if (result == 0) result = add_to_mean(board, report);
    return result == 0 && board->gathered > GATHERED_MAX ? flush(board) : result;
}

/* -- together */

static int make_directory(const char *path, ty_error *err) {
    if (mkdir(path, 0777) == 0) return 0;
    if (errno != EEXIST) return ty_fail(err, TY_EUSAGE, "cannot make %s: %s", path, strerror(errno));
    DIR *stream = opendir(path);
    if (stream == NULL) return ty_fail(err, TY_EUSAGE, "cannot write to %s: %s", path, strerror(errno));
    size_t n = 0;
    while (readdir(stream) != NULL)
        n++;
    (void)closedir(stream);
    if (n > 2) return ty_fail(err, TY_EUSAGE, "%s is not empty; name a new directory", path);
    return 0;
}

int tensorboard_open(const char *run_path, const char *directory, const struct view_selection *selection,
                     struct tensorboard **out, ty_error *err) {
    struct tensorboard *board = calloc(1, sizeof *board);
    if (board == NULL) return ty_fail_memory(err);
    board->selection = *selection;
    board->run_path = strdup(run_path);
    board->directory = strdup(directory);
    board->places = hash_create();
    board->means = calloc(MEANS_WAITING, sizeof *board->means);
    bool whole =
        board->run_path != NULL && board->directory != NULL && board->places != NULL && board->means != NULL;
    int result = whole ? view_facts_read(run_path, &board->facts, err) : ty_fail_memory(err);
    if (result >= 0) result = make_directory(directory, err);
    if (result < 0) {
        tensorboard_close(board);
        return result;
    }
    *out = board;
    return 0;
}

static int by_number(const void *a, const void *b) {
    const struct board_mean *const *x = a, *const *y = b;
    return ((*x)->number > (*y)->number) - ((*x)->number < (*y)->number);
}

int tensorboard_write(struct tensorboard *board, bool last, ty_error *err) {
    struct view_scan scan = {.after = board->selection.after};
    struct board_mean *waiting[MEANS_WAITING];
    size_t n = 0;
    board->err = err;
    int result = view_facts_renew(board->run_path, &board->facts, err);
    if (result == 0) result = view_scan(board->run_path, &scan, write_report, board, err);
    board->selection.after = scan.last;
    for (size_t i = 0; last && i < MEANS_WAITING; i++)
        if (board->means[i].ranks > 0) waiting[n++] = &board->means[i];
    if (n > 0) qsort(waiting, n, sizeof(struct board_mean *), by_number);
    for (size_t i = 0; i < n && result == 0; i++)
        result = flush_mean(board, waiting[i]);
    if (result == 0) result = flush(board);
    return result == -ENOMEM ? ty_fail_memory(err) : result;
}

void tensorboard_close(struct tensorboard *board) {
    if (board == NULL) return;
    for (size_t i = 0; i < board->n_files; i++) {
        free(board->files[i].path);
        buffer_done(&board->files[i].records);
    }
    for (size_t i = 0; board->means != NULL && i < MEANS_WAITING; i++) {
        free(board->means[i].sums);
        free(board->means[i].counts);
    }
    for (size_t i = 0; i < board->n_names; i++)
        free(board->names[i]);
    free(board->mean.path);
    buffer_done(&board->mean.records);
    free(board->files);
    free(board->means);
    free(board->names);
    free(board->values);
    free(board->given);
    hash_destroy(board->places);
    view_facts_done(&board->facts);
    free(board->run_path);
    free(board->directory);
    free(board);
}
