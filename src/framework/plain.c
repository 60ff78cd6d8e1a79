/* plain: ranks, sizes and addresses under the names that torchrun uses, the visible devices, and the place in a
 * run of several TPU slices. Any program can read them. No options. What other frameworks add stands in files
 * of their own. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/str.h"
#include "framework/framework.h"
#include "placement/plan.h"

/* Across slices workers find each other by these (docs/spec/accelerators.md 2.12); a single slice has none of
 * them, whatever an outer run left. */
static void share_slices(const struct framework_context *context, struct variables *variables) {
    size_t slices = context->plan->n_slices;
    if (slices > 1) {
        variables_set(variables, "MEGASCALE_COORDINATOR_ADDRESS", context->master_address);
        variables_format(variables, "MEGASCALE_NUM_SLICES", "%zu", slices);
        if (framework_inherited(context, "MEGASCALE_PORT") == NULL)
            variables_set(variables, "MEGASCALE_PORT", "8081");
    } else if (slices == 1) {
        variables_set(variables, "MEGASCALE_COORDINATOR_ADDRESS", NULL);
        variables_set(variables, "MEGASCALE_NUM_SLICES", NULL);
        variables_set(variables, "MEGASCALE_SLICE_ID", NULL);
    }
}

/* A launcher around the run, as srun with --mpi=pmix or mpirun, has named itself for its one process, which
 * is not each of the workers. What is a parameter of libpmix stays. */
static void forget_launcher(const struct framework_context *context, struct variables *variables) {
    for (char *const *item = context->user_environment; item != NULL && *item != NULL; item++) {
        char name[128];
        const char *rest;
        bool launcher = str_prefix(*item, "PMI_", NULL) ||
                        (str_prefix(*item, "PMIX_", &rest) && !str_prefix(rest, "MCA_", NULL));
        size_t size = strcspn(*item, "=");
        if (!launcher || size >= sizeof name) continue;
        memcpy(name, *item, size);
        name[size] = '\0';
        variables_set(variables, name, NULL);
    }
}

/* A TPU host's place in its slice. What the workers inherit is that of the host where the run was started. */
static void place_in_slice(const struct framework_context *context, const struct plan_worker *worker,
                           struct variables *variables) {
    static const char *const names[][2] = {{"TPU_NAME", "ray.io/tpu-slice-name"},
                                           {"TPU_WORKER_ID", "ray.io/tpu-worker-id"},
                                           {"TPU_TOPOLOGY", "ray.io/tpu-topology"},
                                           {"TPU_ACCELERATOR_TYPE", "ray.io/tpu-pod-type"}};
    const struct labels *labels = &context->cluster->nodes[worker->node].shape->labels;
    for (size_t i = 0; worker->slice >= 0 && i < sizeof names / sizeof names[0]; i++)
        if (labels_get(labels, names[i][1]) != NULL)
            variables_set(variables, names[i][0], labels_get(labels, names[i][1]));
}

/* The place that a program which knows Slurm reads: the worker's, and not that of the shell or step around
 * it. */
static void place_in_slurm(const struct framework_context *context, const struct plan_worker *worker,
                           size_t rank, struct variables *variables) {
    if (framework_inherited(context, "SLURM_JOB_ID") == NULL) return;
    variables_format(variables, "SLURM_PROCID", "%zu", rank);
    variables_format(variables, "SLURM_LOCALID", "%u", worker->local_rank);
    variables_format(variables, "SLURM_NODEID", "%u", worker->node_rank);
    variables_format(variables, "SLURM_NTASKS", "%zu", context->plan->n_workers);
    variables_set(variables, "SLURMD_NODENAME", context->cluster->nodes[worker->node].name);
}

static void add_id(void *context, const char *id, bool numbered) {
    struct buffer *ids = context;
    (void)numbered;
    bool follows = ids->size > 0 && ids->data[ids->size - 1] != '=';
    buffer_printf(ids, "%s%s", follows ? "," : "", id);
}

/* Which devices the worker holds, whatever it sees: "GPU=2,3;NPU=0". Indices say nothing once the visible
 * ones are changed. */
static void name_devices(const struct framework_context *context, size_t rank, struct variables *variables) {
    const struct plan_worker *worker = &context->plan->workers[rank];
    const struct node_shape *shape = context->cluster->nodes[worker->node].shape;
    struct buffer all = {0};
    for (uint32_t g = 0; g < worker->n_grants && !all.failed; g++) {
        size_t devices = context->plan->grants[worker->first_grant + g].devices;
        struct buffer ids = {0};
        buffer_printf(&ids, "%s=", shape->devices[devices].resource);
        if (plan_each_device(context->plan, context->cluster, rank, devices, add_id, &ids) < 0 || ids.failed)
            all.failed = true;
        else
            buffer_printf(&all, "%s%s", g > 0 ? ";" : "", ids.data);
        buffer_done(&ids);
    }
    if (all.failed) variables->result = -ENOMEM;
    variables_set(variables, "TRAINYARD_DEVICE_IDS", all.size > 0 ? all.data : "");
    buffer_done(&all);
}

int plain_shared(const struct framework_context *context, environment_change *change, void *change_context,
                 ty_error *err) {
    struct variables out = {change, change_context, 0};
    /* torchrun knows no "for ever". */
    int restarts = context->max_failures < 0 ? INT_MAX : context->max_failures;
    variables_format(&out, "WORLD_SIZE", "%zu", context->plan->n_workers);
    variables_set(&out, "MASTER_ADDR", context->master_address);
    variables_format(&out, "MASTER_PORT", "%u", context->master_port);
    variables_set(&out, "ROLE_NAME", "default");
    variables_format(&out, "ROLE_WORLD_SIZE", "%zu", context->plan->n_workers);
    variables_format(&out, "GROUP_WORLD_SIZE", "%zu", context->plan->n_nodes_used);
    variables_set(&out, "TORCHELASTIC_RUN_ID", context->run_name);
    variables_format(&out, "TORCHELASTIC_RESTART_COUNT", "%d", context->attempt - 1);
    variables_format(&out, "TORCHELASTIC_MAX_RESTARTS", "%d", restarts);
    variables_set(&out, "TORCHELASTIC_USE_AGENT_STORE", "False");
    variables_set(&out, "TRAINYARD_RUN", context->run_name);
    variables_format(&out, "TRAINYARD_ATTEMPT", "%d", context->attempt);
    if (context->backend != NULL) variables_set(&out, "TRAINYARD_BACKEND", context->backend);
    /* Their output is a pipe: without this Python holds lines back, and loses them when it is killed. */
    if (framework_inherited(context, "PYTHONUNBUFFERED") == NULL) variables_set(&out, "PYTHONUNBUFFERED", "1");
    variables_set(&out, "TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT");
    /* A broken NCCL communicator ends its process instead of hanging it, unless the user chose. */
    static const char *const nccl[] = {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_BLOCKING_WAIT",
                                       "NCCL_ASYNC_ERROR_HANDLING", "NCCL_BLOCKING_WAIT"};
    bool chosen = false;
    for (size_t i = 0; i < sizeof nccl / sizeof nccl[0]; i++)
        chosen = chosen || framework_inherited(context, nccl[i]) != NULL;
    if (!chosen) variables_set(&out, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
    forget_launcher(context, &out);
    /* `jax.distributed.initialize()` takes the address from JAX's own variable; the number of processes and
     * its own among them it knows by no name but those of Open MPI's launcher, which the first variable
     * tells it of. Left empty, that says nothing to Open MPI. */
    bool bare = strchr(context->master_address, ':') != NULL; /* an IPv6 address */
    variables_format(&out, "JAX_COORDINATOR_ADDRESS", "%s%s%s:%u", bare ? "[" : "", context->master_address,
                     bare ? "]" : "", context->master_port);
    variables_set(&out, "OMPI_MCA_orte_hnp_uri", "");
    variables_format(&out, "OMPI_COMM_WORLD_SIZE", "%zu", context->plan->n_workers);
    share_slices(context, &out);
    return variables_end(&out, err);
}

int plain_worker(const struct framework_context *context, size_t rank, environment_change *change,
                 void *change_context, ty_error *err) {
    const struct plan_worker *worker = &context->plan->workers[rank];
    struct variables out = {change, change_context, 0};
    struct buffer devices = {0};
    variables_format(&out, "RANK", "%zu", rank);
    variables_format(&out, "ROLE_RANK", "%zu", rank);
    variables_format(&out, "LOCAL_RANK", "%u", worker->local_rank);
    variables_format(&out, "LOCAL_WORLD_SIZE", "%u", worker->local_world_size);
    variables_format(&out, "NODE_RANK", "%u", worker->node_rank);
    variables_set(&out, "TRAINYARD_NODE", context->cluster->nodes[worker->node].name);
    variables_format(&out, "GROUP_RANK", "%u", worker->node_rank);
    variables_format(&out, "TORCHELASTIC_ERROR_FILE", "%s/logs/rank-%zu.error.json", context->run_path, rank);
    if (context->ports != NULL && context->ports[rank] != 0)
        variables_format(&out, "TRAINYARD_PORT", "%u", context->ports[rank]);
    /* One thread for each whole CPU of the worker, so that workers of one machine do not fight for cores; a
     * lone one may have all of them. */
    quantity cpus = resources_get(&context->demand->per_worker, "CPU") / QUANTITY_ONE;
    bool alone = context->cluster->logical ? context->plan->n_workers == 1 : worker->local_world_size == 1;
    if (!alone && framework_inherited(context, "OMP_NUM_THREADS") == NULL)
        variables_format(&out, "OMP_NUM_THREADS", "%lld", cpus > 0 ? (long long)cpus : 1LL);
    /* JAX would take the device of the local rank, which is another where a worker holds several or sees its
     * own alone. */
    variables_format(&out, "OMPI_COMM_WORLD_RANK", "%zu", rank);
    variables_format(&out, "OMPI_COMM_WORLD_LOCAL_RANK", "%u", worker->local_rank);
    plan_worker_devices(context->plan, context->cluster, rank, context->isolate_devices, &devices);
    if (devices.failed) out.result = -ENOMEM;
    bool held = devices.size > 0 && framework_inherited(context, "JAX_LOCAL_DEVICE_IDS") == NULL;
    if (held) variables_set(&out, "JAX_LOCAL_DEVICE_IDS", devices.data);
    if (context->plan->n_slices > 1) variables_format(&out, "MEGASCALE_SLICE_ID", "%d", worker->slice);
    place_in_slice(context, worker, &out);
    place_in_slurm(context, worker, rank, &out);
    variables_set(&out, "TRAINYARD_DEVICES", devices.size > 0 ? devices.data : "");
    buffer_done(&devices);
    name_devices(context, rank, &out);
    if (out.result >= 0)
        out.result = plan_worker_environment(context->plan, context->cluster, rank, context->isolate_devices,
                                             change, change_context);
    return variables_end(&out, err);
}

const struct framework framework_plain = {.name = "plain", .shared = plain_shared, .worker = plain_worker};
