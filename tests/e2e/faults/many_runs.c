/* One process that drives many runs: many_runs RUNS SEED STORAGE PROGRAM [WORD...]. Each has one fault at a
 * random moment: a killed worker, a killed agent, an interrupt, the run closed on its way; or none. No run may
 * hang, and in the end the process holds no more memory and descriptors than after its first runs. The runs'
 * directories are removed by the next one. */
#include <dirent.h>
#include <ftw.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <trainyard/trainyard.h>
#include <unistd.h>

enum { WORKERS = 8, LONGEST_S = 180, GROWTH_KIB = 2048 };

/* X(name) */
#define FAULTS(X)      \
    X(KILL_WORKER)     \
    X(KILL_AGENT)      \
    X(INTERRUPT)       \
    X(INTERRUPT_TWICE) \
    X(CLOSE)           \
    X(NOTHING)

enum fault {
#define X(name) name,
    FAULTS(X)
#undef X
        FAULT_COUNT
};

static const char *const names[] = {
#define X(name) #name,
    FAULTS(X)
#undef X
};

struct usage {
    size_t descriptors, kib;
};

static struct usage look(void) {
    struct usage usage = {0};
    DIR *directory = opendir("/proc/self/fd");
    while (directory != NULL && readdir(directory) != NULL)
        usage.descriptors++;
    if (directory != NULL) (void)closedir(directory);
    FILE *file = fopen("/proc/self/statm", "re");
    size_t pages = 0;
    if (file != NULL && fscanf(file, "%*u %zu", &pages) == 1) usage.kib = pages * (size_t)getpagesize() / 1024;
    if (file != NULL) (void)fclose(file);
    return usage;
}

static void keep_most(struct usage *most, struct usage usage) {
    if (usage.descriptors > most->descriptors) most->descriptors = usage.descriptors;
    if (usage.kib > most->kib) most->kib = usage.kib;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *place) {
    (void)status, (void)type, (void)place;
    return remove(path);
}

static void remove_below(const char *path) {
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static json_t *make_request(char **argv, bool keeps) {
    json_t *words = json_array();
    for (char **word = argv + 4; *word != NULL; word++)
        (void)json_array_append_new(words, json_string(*word));
    return json_pack("{s:s, s:s, s:o, s:i, s:{s:i}, s:b, s:s, s:[s,s,s,s], s:b, s:f, s:{s:i}}", "storage_path",
                     argv[3], "name", "run", "argv", words, "num_cpus", WORKERS, "scaling", "num_workers",
                     WORKERS, "quiet", 1, "output", "events", "events", "node", "started", "report", "exited",
                     "keep_agents", keeps, "grace_s", 1.0, "failure_config", "max_failures", WORKERS);
}

/* What is known of a run on its way. */
struct live_run {
    ty_run *run;
    pid_t agent, workers[WORKERS];
    int n_events;
};

static void hear(struct live_run *live) {
    char *text;
    while (ty_run_next_event(live->run, &text) == 1) {
        json_t *event = json_loads(text, 0, NULL);
        const char *kind = json_string_value(json_object_get(event, "event"));
        pid_t pid = (pid_t)json_integer_value(json_object_get(event, "pid"));
        json_int_t rank = json_integer_value(json_object_get(event, "rank"));
        if (strcmp(kind, "node") == 0) live->agent = pid;
        if (strcmp(kind, "started") == 0 && rank < WORKERS) live->workers[rank] = pid;
        if (strcmp(kind, "exited") == 0 && rank < WORKERS) live->workers[rank] = 0;
        live->n_events++;
        json_decref(event);
        free(text);
    }
}

/* False when the run is to be closed at once. */
static bool strike(struct live_run *live, enum fault fault) {
    pid_t victim = fault == KILL_AGENT ? live->agent : live->workers[rand() % WORKERS];
    if (fault <= KILL_AGENT && victim > 0) (void)kill(victim, SIGKILL);
    for (int i = INTERRUPT; i <= (int)fault && fault <= INTERRUPT_TWICE; i++)
        (void)ty_run_stop(live->run, SIGINT);
    return fault != CLOSE;
}

static int drive(struct live_run *live, enum fault fault, int at) {
    ty_error err = {0};
    int code;
    (void)alarm(LONGEST_S); /* a run that hangs ends the test */
    while ((code = ty_run_dispatch(live->run, &err)) > 0) {
        hear(live);
        if (live->n_events >= at && fault != NOTHING) {
            if (!strike(live, fault)) break;
            fault = NOTHING;
        }
        (void)poll(&(struct pollfd){ty_run_fd(live->run), POLLIN, 0}, 1, ty_run_timeout_ms(live->run));
    }
    hear(live);
    (void)ty_run_close(live->run, NULL, &err);
    (void)alarm(0);
    return code < 0 ? code : 0;
}

/* A calm one has no fault, and leaves an agent that rests. */
static int run_once(char **argv, bool calm, bool keeps) {
    enum fault fault = calm ? NOTHING : (enum fault)(rand() % FAULT_COUNT);
    struct live_run live = {0};
    ty_error err = {0};
    remove_below(argv[3]);
    json_t *request = make_request(argv, calm || keeps);
    char *text = json_dumps(request, 0);
    int code = ty_run_open(text, NULL, 0, &live.run, &err);
    free(text);
    json_decref(request);
    if (code == 0) code = drive(&live, fault, rand() % 60);
    if (code < 0) (void)fprintf(stderr, "%s: %s\n", names[fault], err.message);
    return code;
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    int runs = atoi(argv[1]), unflat = 0;
    struct usage before = {0}, after = {0};
    srand((unsigned)atoi(argv[2]));
    for (int i = 0; i < runs; i++) {
        /* So that the descriptors of an agent that rests are among the early ones, whatever is drawn. */
        if (run_once(argv, i == runs / 4, i % 2 == 0) < 0) return 1;
        if (i >= runs / 4 && i < runs / 2) keep_most(&before, look());
        if (i >= runs - runs / 4) keep_most(&after, look());
    }
    (void)printf("%d runs, seed %s: %zu descriptors and %zu KiB early, %zu and %zu late\n", runs, argv[2],
                 before.descriptors, before.kib, after.descriptors, after.kib);
    unflat += after.descriptors > before.descriptors;
#if !defined(__SANITIZE_ADDRESS__) /* which keeps what was freed */
    unflat += after.kib > before.kib + GROWTH_KIB;
#endif
    return unflat;
}
