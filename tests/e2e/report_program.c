/* A worker that reports as the test tells it: PROGRAM MODE STEPS DIRECTORY [FAIL_AT]. Each step writes a file
 * of its own into a new directory, hands it over and prints what came of it. PROGRAM fail TEXT...: tells of
 * each failure and ends with 5. */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <trainyard/trainyard.h>
#include <unistd.h>

static void make_files(const char *directory, int rank, int step) {
    char path[5000];
    (void)mkdir(directory, 0755);
    (void)snprintf(path, sizeof path, "%s/part-%d", directory, rank);
    FILE *file = fopen(path, "w");
    if (file == NULL || fprintf(file, "rank %d step %d\n", rank, step) < 0 || fclose(file) != 0) {
        perror(path);
        exit(9);
    }
}

static int upload(ty_worker *worker, const char *metrics, const char *directory, ty_error *err) {
    uint64_t number;
    char *path = NULL;
    int rc = ty_report_begin(worker, metrics, NULL, &number, &path, err);
    if (rc != 0) return rc;
    bool fails = strcmp(directory, "none") == 0;
    rc = ty_report_end(worker, number, fails ? NULL : directory, err);
    free(path);
    return rc;
}

/* "NULL" is no text, "large" one that is too large by itself. */
static int fail(char **texts) {
    enum { LARGE = 1024 * 1024 + 1 };
    char *large = malloc(LARGE + 1);
    if (large == NULL) return 9;
    memset(large, ' ', LARGE);
    large[LARGE] = '\0';
    for (; *texts != NULL; texts++) {
        ty_error err = {0};
        const char *text = strcmp(*texts, "NULL") == 0 ? NULL : strcmp(*texts, "large") == 0 ? large : *texts;
        int rc = ty_report_failure(text, &err);
        printf("told: %s %s\n", rc == 0 ? "ok" : ty_error_name(rc), err.message);
    }
    free(large);
    return 5;
}

int main(int argc, char **argv) {
    ty_error err = {0};
    if (argc > 1 && strcmp(argv[1], "fail") == 0) return fail(argv + 2);
    ty_worker *worker = argc > 3 ? ty_worker_self(&err) : NULL;
    if (worker == NULL) return fprintf(stderr, "%s\n", err.message), 8;
    const char *mode = argv[1];
    int rank = ty_world_rank(worker), steps = atoi(argv[2]);
    const char *latest = ty_checkpoint_latest(worker);
    printf("latest %s\n", latest != NULL ? strrchr(latest, '/') + 1 : "none");
    for (int step = 1; step <= steps; step++) {
        char directory[4096], metrics[128], name[64];
        (void)snprintf(directory, sizeof directory, "%s/r%d-s%d", argv[3], rank, step);
        (void)snprintf(metrics, sizeof metrics, "{\"step\": %d, \"score\": %d}", step, step * 37 % 11);
        (void)snprintf(name, sizeof name, "epoch %d", step);
        make_files(directory, rank, step);
        ty_report_options options = {.checkpoint = directory};
        int rc;
        if (strcmp(mode, "upload") == 0) {
            rc = upload(worker, metrics, argc > 4 ? argv[4] : directory, &err);
        } else {
            if (strcmp(mode, "async") == 0) options.mode = TY_ASYNC, options.delete_after = true;
            if (strcmp(mode, "keep") == 0) options.mode = TY_ASYNC;
            if (strcmp(mode, "give") == 0) options.delete_after = true;
            if (strcmp(mode, "stay") == 0) options.mode = TY_NO_UPLOAD, options.checkpoint = argv[3];
            if (strcmp(mode, "name") == 0) options.name = argc > 4 ? argv[4] : name;
            rc = ty_report_with(worker, metrics, &options, &err);
        }
        printf("step %d: %d %s%s\n", step, rc, rc != 0 ? err.message : "ok",
               access(directory, F_OK) == 0 ? ", there" : "");
        if (rc < 0) return 7;
    }
    int rc = ty_report_drain(worker, &err);
    if (rc != 0) printf("drained: %d %s\n", rc, err.message);
    char *json = NULL;
    if (rc >= 0 && ty_checkpoints_reported(worker, -1, &json, &err) == 0) printf("kept %s\n", json);
    free(json);
    latest = ty_checkpoint_latest(worker);
    printf("at the end %s\n", latest != NULL ? strrchr(latest, '/') + 1 : "none");
    return rc < 0 ? 6 : 0;
}
