/* mpi: what plain sets. How its ranks find each other is for the command that executes the program
 * (`framework_mpi.command`), which offers it PMI. No options. */
#include "framework/shared.h"

const struct framework framework_mpi = {
    .name = "mpi", .shared = plain_shared, .worker = plain_worker, .command = "mpi-worker"};
