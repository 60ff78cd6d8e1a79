/* A worker for test_collectives.py: collective_program MODE. Uses the public interface only, and prints what
 * came of its calls. */
#include <signal.h>
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

/* Each rank's number goes round the ring of all, and then round that of the even or the odd ones, while a sum
 * is under way. */
static int pass_round(ty_error *err) {
    static float numbers[300000];
    ty_comm *half = NULL;
    ty_request *sent, *sum = NULL;
    int rc = ty_comm_split(comm, rank % 2, rank, &half, err), last = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        numbers[i] = 1;
    if (rc == 0)
        rc =
            ty_all_reduce_start(comm, numbers, sizeof numbers / sizeof *numbers, TY_FLOAT32, TY_SUM, &sum, err);
    ty_comm *rings[] = {comm, half};
    for (int i = 0; i < 2 && rc == 0; i++) {
        int own = ty_comm_rank(rings[i]), n = ty_comm_size(rings[i]);
        rc = ty_send_start(rings[i], &rank, 1, TY_INT32, (own + 1) % n, &sent, err);
        if (rc == 0) rc = ty_receive(rings[i], &last, 1, TY_INT32, (own + n - 1) % n, err);
        if (rc == 0) rc = ty_request_wait(&sent, err);
        if (rc == 0) printf("ring %d: %d\n", i, last);
    }
    if (rc == 0) rc = ty_request_wait(&sum, err);
    if (rc == 0) printf("meanwhile %g of %d\n", (double)numbers[299999], size);
    ty_comm_free(&half);
    return rc;
}

/* Rank 1 is killed in the midst of calls of all lengths. */
static int lose_one(ty_error *err) {
    static float numbers[500000];
    int rc = 0;
    for (int i = 0; rc == 0; i++) {
        if (rank == 1 && i == 50) (void)raise(SIGKILL);
        rc = ty_all_reduce(comm, numbers, i % 2 == 0 ? 1 : 500000, TY_FLOAT32, TY_SUM, err);
    }
    return rc;
}

/* All wait for messages of the last rank, which is killed after the first one to each. */
static int orphan(ty_error *err) {
    int number = 0, last = size - 1, rc = 0;
    if (rank == last) {
        for (int to = 0; to < last && rc == 0; to++)
            rc = ty_send(comm, &number, 1, TY_INT32, to, err);
        (void)raise(SIGKILL);
    }
    rc = ty_receive(comm, &number, 1, TY_INT32, last, err);
    return rc < 0 ? rc : ty_receive(comm, &number, 1, TY_INT32, last, err);
}

static int run(const char *mode, ty_error *err) {
    double numbers[4] = {0};
    if (strcmp(mode, "sum") == 0) return sum(err);
    if (strcmp(mode, "ring") == 0) return pass_round(err);
    if (strcmp(mode, "lose") == 0) return lose_one(err);
    if (strcmp(mode, "orphan") == 0) return orphan(err);
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
