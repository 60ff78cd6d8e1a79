/* Traces of torch's profiler that workers wrote (python/trainyard/profiling.py), as events of the run's own
 * trace: a file is an object with the list `traceEvents`, whose times count from `baseTimeNanoseconds`, without
 * it from the epoch. Files may be far larger than memory, so they are read an event at a time. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "controller/run_directory.h"
#include "view/export.h"

#define PROFILE_ENDING ".pt.trace.json.gz"

enum {
    PROFILE_CHUNK = 64 << 10,
    PROFILE_ITEM = 16 << 20, /* bytes of an event */
    PROFILE_PROCESSES = 256, /* of a file; what lies beyond shares one */
    FIRST_PROCESS = 2000000  /* those of the nodes lie below */
};

struct profile {
    gzFile file;
    char name[VIEW_PROFILE_NAME];
    int rank;
    int64_t base;                         /* of its times, ns since the epoch */
    nanoseconds first;                    /* of the run's trace */
    json_t *processes[PROFILE_PROCESSES]; /* n_processes, owned: their `pid` */
    size_t n_processes;
    int first_process;  /* its number here; the others follow */
    struct buffer item; /* what is being read */
    struct view_outlet *outlet;
    uint64_t limit;
    ty_error *err;
};

/* -- the file, taken apart: members of the object, and those of its list of events each by itself */

/* Takes the text of an event, or of `"key": value`; 1 ends the reading. */
typedef int take_item(struct profile *profile);

struct split {
    int depth;
    bool text, escaped, events; /* within a string; behind a \; in the list */
};

/* What `c` does to the item: it goes on (0), has ended (1), or is forgotten (2). Items are what lies between
 * commas at the outer depth, and at that of the list of events; brackets are counted, and strings are passed
 * over with their escapes. What is no JSON is found when an event is parsed. */
static int split_at(struct split *split, const struct buffer *item, char c) {
    static const char key[] = "\"traceEvents\"";
    const size_t size = sizeof key - 1;
    int outer = split->events ? 2 : 1;
    if (split->text) {
        split->text = split->escaped || c != '"';
        split->escaped = !split->escaped && c == '\\';
        return 0;
    }
    switch (c) {
    case '"':
        split->text = true;
        return 0;
    case '[':
    case '{':
        if (split->depth++ == 0) return 2;
        if (split->events || split->depth != 2 || c != '[' || item->size <= size ||
            memcmp(item->data, key, size) != 0 || memchr(item->data + size, ':', item->size - size) == NULL)
            return 0;
        split->events = true;
        return 2;
    case ']':
    case '}':
        if (split->depth-- > outer) return 0;
        split->events = false;
        return 1;
    case ',':
        return split->depth == outer ? 1 : 0;
    default:
        return item->size == 0 && strchr(" \t\r\n", c) != NULL ? 2 : 0;
    }
}

static int fail_profile(const struct profile *profile, const char *why) {
    return ty_fail(profile->err, TY_EUSAGE,
                   "cannot read logs/profile/%s: %s; remove the file, or choose other --ranks", profile->name,
                   why);
}

/* A chunk may end anywhere: the state of the split, and the item so far, go over to the next. */
static int take_chunk(struct profile *profile, struct split *split, const char *text, size_t size,
                      take_item *take) {
    struct buffer *item = &profile->item;
    for (size_t i = 0; i < size; i++) {
        int what = split_at(split, item, text[i]);
        int result = what == 1 && item->size > 0 ? take(profile) : 0;
        if (result != 0) return result;
        if (what != 0)
            buffer_clear(item);
        else
            buffer_char(item, text[i]);
        if (split->depth < 0) return fail_profile(profile, "it is no JSON");
        if (item->failed) return ty_fail_memory(profile->err);
        if (item->size > PROFILE_ITEM) return fail_profile(profile, "it has an event of more than 16 MiB");
    }
    return 0;
}

/* From the beginning of the file. A file that is cut off, as where a worker was killed, is told as such. */
static int each_item(struct profile *profile, take_item *take) {
    char text[PROFILE_CHUNK];
    struct split split = {0};
    buffer_clear(&profile->item);
    if (gzrewind(profile->file) != 0) return fail_profile(profile, "it cannot be read again");
    for (;;) {
        int got = gzread(profile->file, text, sizeof text), code;
        if (got < 0) return fail_profile(profile, gzerror(profile->file, &code));
        int result = got > 0 ? take_chunk(profile, &split, text, (size_t)got, take) : 0;
        if (result != 0) return result;
        if (got == 0) break;
    }
    return split.depth == 0 && !split.text ? 0 : fail_profile(profile, "it ends in the middle");
}

/* -- events */

/* The member may stand anywhere in the file, behind the events too: so the file is read twice. */
static int take_base(struct profile *profile) {
    static const char key[] = "\"baseTimeNanoseconds\"";
    const struct buffer *item = &profile->item;
    if (item->size < sizeof key || memcmp(item->data, key, sizeof key - 1) != 0) return 0;
    char text[64];
    int size = snprintf(text, sizeof text, "{%.*s}", (int)item->size, item->data);
    json_t *member = size < (int)sizeof text ? json_loads(text, 0, NULL) : NULL;
    int64_t base = json_integer_value(json_object_get(member, "baseTimeNanoseconds"));
    profile->base = base > 0 ? base : 0;
    json_decref(member);
    return 1;
}

static int put_event(struct profile *profile, json_t *event) {
    char *text = json_dumps(event, JSON_COMPACT | JSON_REAL_PRECISION(15));
    if (text == NULL) return ty_fail_memory(profile->err);
    buffer_text(&profile->outlet->text, ",\n");
    buffer_text(&profile->outlet->text, text);
    free(text);
    return 0;
}

/* "rank 3 profile: GPU 0", behind the nodes. */
static int name_process(struct profile *profile, int number, const char *about) {
    char name[96];
    (void)snprintf(name, sizeof name, "rank %d profile: %.40s", profile->rank, about);
    json_t *named = json_pack("{ss si si ss s{ss}}", "ph", "M", "pid", number, "ts", 0, "name", "process_name",
                              "args", "name", name);
    json_t *sorted = json_pack("{ss si si ss s{si}}", "ph", "M", "pid", number, "ts", 0, "name",
                               "process_sort_index", "args", "sort_index", number);
    int result = put_event(profile, named);
    if (result == 0) result = put_event(profile, sorted);
    json_decref(named);
    json_decref(sorted);
    return result;
}

/* Processes of two ranks may have the same number: each gets one of its own, and a name. */
static int number_process(struct profile *profile, json_t *pid, int *number) {
    size_t i = 0;
    while (i < profile->n_processes && !json_equal(profile->processes[i], pid))
        i++;
    if (i == PROFILE_PROCESSES) i--;
    *number = profile->first_process + (int)i;
    if (i < profile->n_processes) return 0;
    profile->processes[profile->n_processes++] = json_incref(pid);
    const char *about = json_string_value(pid);
    return name_process(profile, *number, about != NULL && *about != '\0' ? about : "process");
}

/* Times become those of the run's trace, in microseconds since its first event. A base of ns and a time in us
 * add up beyond what a double holds to the last digit: the two large ones are subtracted first, as whole
 * numbers. */
static void move_event(const struct profile *profile, json_t *event, int process) {
    double from_base = json_number_value(json_object_get(event, "ts")) * 1e3;
    double at = from_base + (double)(profile->base - profile->first);
    json_t *id = json_object_get(event, "id");
    (void)json_object_set_new(event, "ts", json_real(at > 0 && isfinite(at) ? round(at) / 1e3 : 0));
    (void)json_object_set_new(event, "pid", json_integer(process));
    if (json_is_integer(id)) /* an arrow leads from one of these to the other of the same id, in all files */
        (void)json_integer_set(id,
                               ((int64_t)(profile->rank + 1) << 32) | (json_integer_value(id) & UINT32_MAX));
}

/* Behind the event the text may be drained; 1 where enough went out. */
static int take_event(struct profile *profile) {
    json_error_t why;
    int process;
    const struct buffer *item = &profile->item;
    if (item->data[0] != '{') return 0; /* a member of the object */
    json_t *event = json_loadb(item->data, item->size, 0, &why), *pid = json_object_get(event, "pid");
    if (event == NULL) return fail_profile(profile, why.text);
    const char *name = json_string_value(json_object_get(event, "name"));
    int result = number_process(profile, pid != NULL ? pid : json_null(), &process);
    if (result == 0 && name != NULL && str_prefix(name, "process_", NULL) &&
        str_equal(json_string_value(json_object_get(event, "ph")), "M")) {
        /* Of what the profiler says of a process only the device counts: its name and its place are ours. */
        const char *labels = json_string_value(json_object_get(json_object_get(event, "args"), "labels"));
        if (str_equal(name, "process_labels") && labels != NULL)
            result = name_process(profile, process, labels);
    } else if (result == 0) {
        move_event(profile, event, process);
        result = put_event(profile, event);
    }
    json_decref(event);
    if (result == 0) result = view_outlet_drain(profile->outlet);
    return result < 0 ? result : profile->outlet->written > profile->limit;
}

/* -- the files */

void view_profile_name(int rank, char name[VIEW_PROFILE_NAME]) {
    (void)snprintf(name, VIEW_PROFILE_NAME, "rank-%d" PROFILE_ENDING, rank);
}

int view_profiles_open(const char *run_path) {
    CLEANUP(buffer_done) struct buffer path = {0};
    buffer_printf(&path, "%s/logs", run_path);
    if (path.failed) return -ENOMEM;
    CLEANUP_FD int logs = open(path.data, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int fd = logs < 0 ? -1 : openat(logs, "profile", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int view_profiles_list(int directory, struct idset *ranks) {
    CLEANUP_FD int fd = fcntl(directory, F_DUPFD_CLOEXEC, 0);
    DIR *entries = fd >= 0 ? fdopendir(fd) : NULL;
    struct stat status;
    int result = 0;
    if (entries == NULL) return -errno;
    (void)TAKE_FD(fd); /* it is the stream's */
    for (struct dirent *entry; result == 0 && (entry = readdir(entries)) != NULL;) {
        int rank = run_directory_rank(entry->d_name, PROFILE_ENDING);
        if (rank >= 0 && fstatat(directory, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(status.st_mode))
            result = idset_add(ranks, rank);
    }
    (void)closedir(entries);
    return result;
}

/* 1: the limit is reached. */
static int merge(struct profile *profile, int directory) {
    struct stat status;
    int fd = openat(directory, profile->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) return fail_profile(profile, strerror(errno));
    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || (profile->file = gzdopen(fd, "r")) == NULL) {
        (void)close(fd);
        return fail_profile(profile, "it is no regular file");
    }
    int result = each_item(profile, take_base);
    if (result >= 0) result = each_item(profile, take_event);
    (void)gzclose_r(profile->file);
    for (size_t i = 0; i < profile->n_processes; i++)
        json_decref(profile->processes[i]);
    buffer_done(&profile->item);
    return result;
}

int view_profiles_write(const char *run_path, const struct idset *chosen, nanoseconds first, uint64_t limit,
                        struct view_outlet *outlet) {
    CLEANUP(idset_done) struct idset ranks = {0};
    CLEANUP_FD int directory = view_profiles_open(run_path);
    int result = directory >= 0 ? view_profiles_list(directory, &ranks) : directory == -ENOMEM ? -ENOMEM : 0;
    int next_process = FIRST_PROCESS;
    if (result < 0 && result != -ENOMEM)
        return ty_fail(outlet->err, result, "cannot read %s/logs/profile: %s", run_path, strerror(-result));
    for (int64_t rank = -1; result == 0 && (rank = idset_next(&ranks, rank)) != IDSET_END;) {
        struct profile profile = {.rank = (int)rank,
                                  .first = first,
                                  .first_process = next_process,
                                  .limit = limit,
                                  .outlet = outlet,
                                  .err = outlet->err};
        if (chosen != NULL && !idset_has(chosen, rank)) continue;
        view_profile_name((int)rank, profile.name);
        result = merge(&profile, directory);
        next_process += (int)profile.n_processes;
    }
    if (result == 0 && next_process == FIRST_PROCESS)
        return ty_fail(
            outlet->err, TY_EUSAGE,
            "no profile of these ranks is there: `with trainyard.profile():` in the training function "
            "writes them");
    return result;
}
