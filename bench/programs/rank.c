/* The least that a worker of libtrainyard does: it asks for its rank. */
#include <trainyard/trainyard.h>

int main(void) {
    ty_worker *worker = ty_worker_self(NULL);
    return worker == NULL || ty_world_rank(worker) >= ty_world_size(worker);
}
