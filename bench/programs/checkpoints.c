/* checkpoints give|async|sync SOURCE...: hands each directory over as a checkpoint, one after the other, given
 * away and copied meanwhile, copied meanwhile, or copied while the call lasts. Prints for each how long the
 * call took and how long it was until all was committed (ns). */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <trainyard/trainyard.h>

static long now(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static int fail(const ty_error *err) {
    (void)fprintf(stderr, "checkpoints: %s\n", err->message);
    return 1;
}

static int hand_over(ty_worker *worker, const char *source, const char *mode, ty_error *err) {
    ty_report_options options = {.checkpoint = source,
                                 .mode = strcmp(mode, "sync") == 0 ? TY_SYNC : TY_ASYNC,
                                 .delete_after = strcmp(mode, "give") == 0};
    long began = now();
    int result = ty_report_with(worker, "{\"loss\": 0.5}", &options, err);
    long handed = now();
    if (result == 0) result = ty_report_drain(worker, err);
    if (result == 0) printf("%ld %ld\n", handed - began, now() - began);
    return result;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    ty_error err = {0};
    ty_worker *worker = ty_worker_self(&err);
    /* What comes before is not to be waited for by the call that is measured. */
    if (worker == NULL || ty_report_json(worker, "{}", NULL, &err) < 0 || ty_report_drain(worker, &err) < 0)
        return fail(&err);
    for (int i = 2; i < argc; i++)
        if (hand_over(worker, argv[i], argv[1], &err) < 0) return fail(&err);
    return 0;
}
