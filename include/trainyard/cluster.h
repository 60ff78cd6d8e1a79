/* What nodes a run would have. */
#ifndef TRAINYARD_CLUSTER_H
#define TRAINYARD_CLUSTER_H

#include <trainyard/api.h>
#include <trainyard/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `request_json`: {"cluster": PATH of a cluster file, or for this machine "num_cpus": N, "num_gpus": N,
 * "node_resources": {..}}, each key optional. Sets `*nodes_json` (the caller's to free()) to {"nodes":
 * [{"name": "n1", "accelerator_type": "A100", "resources": {..}, "available": {..}, "labels": {..}}]};
 * `available` is what no other run of this machine holds; accelerator_type is left out when unknown. */
TY_API int ty_cluster_nodes(const char *request_json, char **nodes_json, ty_error *err);

#ifdef __cplusplus
}
#endif
#endif
