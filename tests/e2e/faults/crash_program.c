/* A worker that goes on behind its latest checkpoint: PROGRAM STEPS DIRECTORY. Each step is a report of metrics
 * and one with a checkpoint; when that is acknowledged, a line "ATTEMPT STEP" is in
 * DIRECTORY/acknowledged.RANK, by one write. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <trainyard/trainyard.h>
#include <unistd.h>

static int fail(const char *what) {
    perror(what);
    exit(9);
}

static int step_of(const char *checkpoint, int rank) {
    char path[4200];
    int step = 0;
    if (checkpoint == NULL) return 0;
    (void)snprintf(path, sizeof path, "%s/step-%d", checkpoint, rank);
    FILE *file = fopen(path, "re");
    if (file == NULL || fscanf(file, "%d", &step) != 1) fail(path);
    (void)fclose(file);
    return step;
}

static void write_step(const char *directory, int rank, int step) {
    char path[4200];
    (void)mkdir(directory, 0755);
    (void)snprintf(path, sizeof path, "%s/step-%d", directory, rank);
    FILE *file = fopen(path, "we");
    if (file == NULL || fprintf(file, "%d\n", step) < 0 || fclose(file) != 0) fail(path);
}

int main(int argc, char **argv) {
    ty_error err = {0};
    ty_worker *worker = argc == 3 ? ty_worker_self(&err) : NULL;
    if (worker == NULL) return fprintf(stderr, "%s\n", err.message), 8;
    int rank = ty_world_rank(worker), steps = atoi(argv[1]);
    char own[4096], log[4096];
    (void)snprintf(own, sizeof own, "%s/own.%d", argv[2], rank);
    (void)snprintf(log, sizeof log, "%s/acknowledged.%d", argv[2], rank);
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) fail(log);
    for (int step = step_of(ty_checkpoint_latest(worker), rank) + 1; step <= steps; step++) {
        char metrics[64];
        (void)snprintf(metrics, sizeof metrics, "{\"half\": %d}", step);
        if (ty_report_json(worker, metrics, NULL, &err) < 0) return fprintf(stderr, "%s\n", err.message), 7;
        write_step(own, rank, step);
        (void)snprintf(metrics, sizeof metrics, "{\"step\": %d}", step);
        if (ty_report_json(worker, metrics, own, &err) < 0) return fprintf(stderr, "%s\n", err.message), 7;
        /* Within libc, so that it is none of the calls at which this worker is killed. */
        if (dprintf(fd, "%s %d\n", getenv("TRAINYARD_ATTEMPT"), step) < 0) fail(log);
    }
    return 0;
}
