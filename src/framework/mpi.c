/* mpi: what plain sets. How its ranks find each other is for the command that executes the program
 * (`framework_mpi.command`), which offers it PMI. No options. */
#include "framework/shared.h"

static int shared(const struct framework_context *context, environment_change *change, void *change_context,
                  ty_error *err) {
    return framework_plain.shared(context, change, change_context, err);
}

static int worker(const struct framework_context *context, size_t rank, environment_change *change,
                  void *change_context, ty_error *err) {
    return framework_plain.worker(context, rank, change, change_context, err);
}

const struct framework framework_mpi = {
    .name = "mpi", .shared = shared, .worker = worker, .command = "mpi-worker"};
