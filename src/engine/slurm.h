/* Slurm, through its commands, whose output is a stable interface (docs/spec/slurm.md). As a run goes:
 *
 *   slurm_show.c        what scontrol shows becomes nodes
 *   slurm_allocation.c  the allocation that this process is in
 *   slurm_request.c     a demand becomes a request: options of sbatch, salloc, srun; what no node can ever give
 *                       is refused here, before it is asked for
 *   slurm_batch.c       the script of a batch job, its submission, why it waits
 *   slurm_states.c      what Slurm says of the nodes meanwhile
 *   slurm.c             the engine: one agent on each node of the allocation, started by one srun
 */
#ifndef ENGINE_SLURM_H
#define ENGINE_SLURM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "cluster/cluster.h"
#include "engine/engine.h"
#include "placement/plan.h"
#include "scaling/scaling.h"

/* One generic resource in an entry as "gpu:a100:2(IDX:0-1)". */
struct slurm_gres {
    char *name, *type; /* owned; type NULL: none */
    int64_t count;     /* of a site: the most that one node has */
    char *detail;      /* what stands in parentheses; owned; NULL */
};

struct slurm_licence {
    char *name; /* owned */
    int64_t total, free;
};

/* The nodes that Slurm has, of one partition or of one allocation. */
struct slurm_site {
    /* Owned; labels are the features; a node that is down or drained is there, with nothing free. */
    struct cluster *nodes;
    struct slurm_gres *gres; /* owned: each name and type that is there */
    size_t n_gres;
    struct slurm_licence *licences; /* owned */
    size_t n_licences;
    int64_t *shards; /* owned: of each node, how many shards one of its GPUs is shared into; 0: it is not */
    size_t n_shards;
    char *partition; /* owned; NULL: all */
};

void slurm_site_done(struct slurm_site *site);
const struct slurm_licence *slurm_find_licence(const struct slurm_site *site,
                                               const char *name); /* NULL: none */
/* The most of a GRES, of whichever type, that one node has; 0: none. */
int64_t slurm_most_gres(const struct slurm_site *site, const char *name);
/* Whether a GRES type is this accelerator type ("a100" and "nvidia_a100-sxm4-80gb" are A100). */
bool slurm_type_is(const char *gres_type, const char *accelerator_type);
/* How a name that counts without its case is written by the site; itself where the site has no such GRES. */
const char *slurm_gres_spelling(const struct slurm_site *site, const char *name);
/* The most shards that a GPU of this accelerator type is shared into; type NULL: of any; 0 where none is. */
int64_t slurm_shards_per_gpu(const struct slurm_site *site, const char *accelerator_type);

/* -- slurm_show.c: texts alone, nothing is started */

/* "gpu:a100:4(S:0-1),fast:2"; `each` borrows. */
typedef int slurm_gres_entry(void *context, const struct slurm_gres *gres);
int slurm_each_gres(const char *text, slurm_gres_entry *each, void *context, ty_error *err);
/* The output of `scontrol show node -d -o`, which is changed. `demand` (may be NULL): a constraint KEY=VALUE of
 * its selectors is met by the feature VALUE. `partition`, one or several with commas between: nodes of others
 * are left out; NULL: none is. */
int slurm_read_nodes(char *text, const char *partition, const struct demand *demand, struct slurm_site *site,
                     ty_error *err);
/* The output of `scontrol show licenses -o`. */
int slurm_read_licences(char *text, struct slurm_site *site, ty_error *err);
/* The name of the default partition in `scontrol show partition -o`; `wanted` not NULL: that one, or those with
 * commas between, which must be there. The caller frees. */
int slurm_read_partition(char *text, const char *wanted, char **partition, ty_error *err);
/* What `scontrol show job -d -o` says was granted, with the labels and types of `all` (which may be NULL): a
 * site of the allocation's nodes, in the order of the node list. */
int slurm_read_job(char *text, const struct slurm_site *all, struct slurm_site *granted, ty_error *err);

/* -- slurm_allocation.c */

/* True inside an allocation (SLURM_JOB_ID); `nodes` (may be NULL) how many it has. */
bool slurm_inside(int64_t *nodes);
/* 0 in an allocation that a run can have: TY_EUSAGE outside of any, TY_EUNSUPPORTED in a heterogeneous job. */
int slurm_check_allocation(ty_error *err);
/* How many tasks the job was asked for with; 0: nobody says. */
int64_t slurm_job_tasks(void);
/* Asks scontrol for all nodes of a partition (NULL: the default one), and for the licences. */
int slurm_look_at_site(const char *partition, const struct demand *demand, struct slurm_site *site,
                       ty_error *err);
/* scontrol, asked for this allocation's job and nodes, while something else goes on; zero-initialised. */
struct slurm_inquiry {
    struct slurm_answer {
        pid_t pid; /* 0: it was not asked, or has been heard */
        int pidfd, file;
    } job, nodes;
};
void slurm_ask_allocation(struct slurm_inquiry *inquiry); /* what is asked already stays so */
void slurm_inquiry_done(struct slurm_inquiry *inquiry);   /* ends what is not answered yet */
/* What this allocation was granted, by the answers to an inquiry, which is begun here where it was not before,
 * and is over then. Where scontrol does not tell, the environment does. */
int slurm_look_at_allocation(struct slurm_inquiry *inquiry, const struct demand *demand,
                             struct slurm_site *granted, ty_error *err);
/* "2(x3),1" becomes 2, 2, 2, 1: the caller frees. TY_EUSAGE for anything else. */
int slurm_expand_counts(const char *text, int64_t **counts, size_t *n, ty_error *err);

/* -- slurm_request.c */

struct slurm_line {
    char *name, *value; /* owned; "gpus-per-task", "a100:1"; value NULL: a flag */
    char *why;          /* owned; NULL: the user's own */
};

/* The options of a request, the same for sbatch, salloc and srun. */
struct slurm_request {
    struct slurm_line *lines; /* owned */
    size_t n;
};

/* The value that the last of `own` with this long name gives, spelled by its letter too; NULL: none does. */
const char *slurm_own_value(const char *const *own, const char *name);
/* `own` are the --slurm-option K=V (NULL-terminated; may be NULL): they replace a line of the same name.
 * TY_EUSAGE or TY_EINFEASIBLE for what Slurm cannot do, or would leave waiting for ever. */
int slurm_request_make(const struct demand *demand, const struct slurm_site *site, const char *const *own,
                       struct slurm_request *request, ty_error *err);
void slurm_request_done(struct slurm_request *request);
const char *slurm_request_value(const struct slurm_request *request, const char *name); /* NULL: not there */

/* Plans on the site as it stands; what licences give is taken off the demand before. The plan keeps names of
 * the site. */
int slurm_plan(const struct slurm_site *site, const struct demand *demand, struct plan **plan, ty_error *err);

/* -- slurm_batch.c */

struct slurm_batch {
    const char *name, *output;  /* of the job; the path of its output */
    const char *command;        /* `trainyard run ...`, or a program with fit(); quoted for a shell */
    const char *preempt_signal; /* by which it is told that the time is nearly over */
    int64_t max_requeues;
    int64_t notice_s; /* between that and the end */
};

int slurm_batch_format(const struct slurm_batch *batch, const struct slurm_request *request,
                       struct buffer *out);
/* Gives the script to sbatch; `job_id` is its number. Slurm's own words where it refuses. */
int slurm_batch_submit(const char *script, int64_t *job_id, ty_error *err);
/* "waits: other jobs hold what it needs (Resources)", or "runs"; appended. `*over`: it has ended; NULL: no
 * matter. False: Slurm does not tell. */
bool slurm_job_state(int64_t job_id, struct buffer *out, bool *over);

/* -- slurm_states.c */

/* Asks sinfo which nodes of this allocation are not well (struct engine's `ask`). */
int slurm_ask_states(struct buffer *out, ty_error *err);
/* What sinfo prints as NODE|STATE|REASON, which is changed: nodes that are not well, with tabs between. */
void slurm_read_states(char *text, struct buffer *out);

/* -- slurm.c */

extern const struct engine engine_slurm;
/* Whether "auto" is slurm: in an allocation of several nodes or components, unless this process is a task of a
 * step of several, or a worker of a run. */
bool slurm_is_chosen(void);
/* Of how many tasks of one step this process is one, "2"; NULL: of none, or of one. */
const char *slurm_is_one_of(void);

#endif
