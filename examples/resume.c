/* Going on where an earlier attempt, or an earlier run of this program, has stopped.
 *
 *     resume NAME STEPS [FAIL_AT]
 *
 * Two workers count to STEPS and save every second step. With FAIL_AT the first attempt fails on purpose at
 * that step: the run starts its workers again, and they go on from the last checkpoint. Called again with the
 * same name and more STEPS, the program goes on counting. */
#include <stdio.h>
#include <stdlib.h>
#include <trainyard/trainyard.h>
#include <unistd.h>

struct counter_config {
    int steps, fail_at;
};

/* The step that the last checkpoint holds, 0 without one. */
static int load_step(const char *checkpoint) {
    char path[4096];
    int step = 0;
    if (checkpoint == NULL) return 0;
    snprintf(path, sizeof path, "%s/step", checkpoint);
    FILE *file = fopen(path, "r");
    if (file == NULL || fscanf(file, "%d", &step) != 1) fprintf(stderr, "%s holds no step\n", path);
    if (file != NULL) fclose(file);
    return step;
}

/* Writes the step into a directory of its own, hands it over, and removes it: the run keeps a copy. */
static int save_step(ty_worker *worker, int step, ty_error *err) {
    char directory[] = "/tmp/counter-XXXXXX", path[64];
    if (mkdtemp(directory) == NULL) return -1;
    snprintf(path, sizeof path, "%s/step", directory);
    FILE *file = fopen(path, "w");
    int written = file != NULL && fprintf(file, "%d\n", step) > 0;
    if (file != NULL && fclose(file) != 0) written = 0;
    int rc = written ? ty_report(worker, TY_METRICS({"step", step}), directory, err) : -1;
    unlink(path);
    rmdir(directory);
    return rc;
}

static int count(ty_worker *worker, const void *config, size_t config_size) {
    (void)config_size;
    const struct counter_config *wanted = config;
    int rank = ty_world_rank(worker), step = load_step(ty_checkpoint_latest(worker));
    ty_error err = {0};
    if (rank == 0) printf("attempt %d begins behind step %d\n", ty_attempt(worker), step);
    while (step < wanted->steps && !ty_stop_requested(worker)) {
        step++;
        if (rank == 0 && step == wanted->fail_at && ty_attempt(worker) == 1) {
            fprintf(stderr, "failing on purpose at step %d\n", step);
            return 7;
        }
        /* Rank 0 holds the state; the others make the same reports, so that the checkpoint of a report is
         * complete. */
        int rc = rank == 0 && step % 2 == 0 ? save_step(worker, step, &err)
                                            : ty_report(worker, TY_METRICS({"step", step}), NULL, &err);
        if (rc < 0) {
            fprintf(stderr, "step %d: %s\n", step, err.code < 0 ? err.message : "it cannot be written");
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    ty_init(&argc, &argv);
    if (argc < 3) {
        fprintf(stderr, "usage: resume NAME STEPS [FAIL_AT]\n");
        return 2;
    }
    struct counter_config config = {.steps = atoi(argv[2]), .fail_at = argc > 3 ? atoi(argv[3]) : 0};
    ty_scaling_config scaling = {.num_workers = 2, .resources_per_worker = TY_RESOURCES({"CPU", 0.25})};
    ty_run_config run = {.name = argv[1], .resume = true, .max_failures = 1};
    ty_trainer_config trainer = {
        .train = count, .config = &config, .config_size = sizeof config, .scaling = &scaling, .run = &run};
    ty_result *result = NULL;
    ty_error err = {0};
    double step = 0;
    int rc = ty_fit(&trainer, &result, &err);
    if (rc < 0) {
        fprintf(stderr, "resume: %s\n", err.message);
    } else {
        const char *checkpoint = ty_result_checkpoint(result);
        ty_result_metric(result, "step", &step);
        printf("counted to %g in %d attempts; checkpoint: %s\n", step, ty_result_attempts(result),
               checkpoint != NULL ? checkpoint : "none");
    }
    ty_result_free(result);
    return ty_error_exit_status(rc);
}
