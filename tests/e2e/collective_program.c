/* A worker for test_collectives.py: collective_program MODE. Uses the public interface only, and prints what
 * came of its calls. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/trainyard.h>
#include <unistd.h>

static int rank, size;
static ty_comm *comm;

static int end(int rc, const ty_error *err) {
    if (rc < 0) printf("%s: %s\n", ty_error_name(rc), err->message);
    return rc < 0;
}

static int sum(ty_error *err) {
    double number = rank + 1;
    int rc = ty_all_reduce(comm, &number, 1, TY_FLOAT64, TY_SUM, err);
    if (rc == 0) printf("sum %g of %g\n", number, size * (size + 1) / 2.0);
    return rc;
}

static int run(const char *mode, ty_error *err) {
    double numbers[4] = {0};
    if (strcmp(mode, "sum") == 0) return sum(err);
    if (strcmp(mode, "mismatch") == 0)
        return ty_all_reduce(comm, numbers, rank == 1 ? 3 : 4, TY_FLOAT64, TY_SUM, err);
    if (strcmp(mode, "late") == 0) {
        if (rank == 1) sleep(1000);
        return ty_barrier(comm, err);
    }
    if (strcmp(mode, "leave") == 0)
        return rank == 1 ? 0 : ty_barrier(comm, err); /* rank 1 ends well, but too early */
    return ty_barrier(NULL, err);
}

int main(int argc, char **argv) {
    ty_error err = {0};
    ty_worker *worker = ty_worker_self(&err);
    if (argc != 2 || worker == NULL) return end(-1, &err) + 1;
    rank = ty_world_rank(worker);
    size = ty_world_size(worker);
    if (strcmp(argv[1], "absent") == 0 && rank == 1) sleep(1000);
    comm = ty_comm_get(worker, &err);
    if (comm == NULL) return end(err.code, &err);
    return end(run(argv[1], &err), &err);
}
