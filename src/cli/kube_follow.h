/* A run on Kubernetes as kubectl shows it: made, waited for, its output copied, its end taken over. The
 * first pod has the run's controller, so its output and its exit status are those of the run. */
#ifndef CLI_KUBE_FOLLOW_H
#define CLI_KUBE_FOLLOW_H

#include "engine/kubernetes.h"

/* The exit status of the run; TY_EUNSUPPORTED without kubectl. `manifests` is what `kubectl apply` reads. */
int kube_apply_and_follow(const struct kubernetes_request *request, const struct kubernetes_layout *layout,
                          const char *manifests, ty_error *err);

#endif
