/* The smallest program: a function that runs in every worker and says who and where it is.
 *
 *     hello [WORKERS [GPUS]]      GPUS: of each worker, 0.5 shares one between two */
#include <stdio.h>
#include <stdlib.h>
#include <trainyard/trainyard.h>

static int say_hello(ty_worker *worker, const void *config, size_t config_size) {
    (void)config;
    (void)config_size;
    size_t n;
    const int *devices = ty_devices(worker, &n);
    printf("hello from worker %d of %d: local rank %d of %d on node %d, devices:", ty_world_rank(worker),
           ty_world_size(worker), ty_local_rank(worker), ty_local_world_size(worker), ty_node_rank(worker));
    for (size_t i = 0; i < n; i++)
        printf(" %d", devices[i]);
    printf("%s\n", n > 0 ? "" : " none");
    return 0; /* the worker's exit status */
}

int main(int argc, char **argv) {
    ty_init(&argc, &argv); /* in a worker this runs say_hello, and does not return */

    double gpus = argc > 2 ? atof(argv[2]) : 0;
    ty_scaling_config scaling = {
        .num_workers = argc > 1 ? atoi(argv[1]) : 2,
        .use_gpu = gpus > 0,
        .resources_per_worker = TY_RESOURCES({"CPU", 0.25}, {"GPU", gpus}),
    };
    ty_trainer_config trainer = {.train = say_hello, .scaling = &scaling};
    ty_result *result = NULL;
    ty_error err = {0};
    int rc = ty_fit(&trainer, &result, &err);
    if (rc < 0)
        fprintf(stderr, "hello: %s\n", err.message);
    else
        printf("all %d workers are done; their output is also in %s/logs\n", ty_result_num_workers(result),
               ty_result_path(result));
    ty_result_free(result);
    return ty_error_exit_status(rc);
}
