/* What a node that joins says of itself: refused with a reason, or a node of a cluster that describes itself
 * again in words that are taken. */
#include "base/cleanup.h"
#include "engine/description.h"
#include "fuzz.h"

static void free_cluster(struct cluster **cluster) {
    cluster_destroy(*cluster);
}

static void free_join(Wire__Join **join) {
    wire__join__free_unpacked(*join, NULL);
}

static void describe_again(const struct cluster *cluster) {
    CLEANUP(free_cluster) struct cluster *second = cluster_create();
    CLEANUP(description_done) Wire__Join again = WIRE__JOIN__INIT;
    ty_error err = {0};
    fuzz_require(description_make(&cluster->nodes[0], &again, &err) == 0);
    again.node_name = (char *)cluster->nodes[0].name;
    fuzz_require(second != NULL && description_check(&again, &err) == 0);
    fuzz_require(description_add(&again, "again", second, &err) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CLEANUP(free_join) Wire__Join *join = wire__join__unpack(NULL, size, data);
    CLEANUP(free_cluster) struct cluster *cluster = cluster_create();
    ty_error err = {0};
    if (join == NULL || cluster == NULL) return 0;
    int result = description_check(join, &err);
    if (result == 0) result = description_add(join, "node", cluster, &err);
    fuzz_require((result < 0) == (err.message[0] != '\0'));
    fuzz_require(cluster->n == (result < 0 ? 0 : 1));
    if (result == 0) describe_again(cluster);
    return 0;
}
