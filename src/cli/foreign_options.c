/* Options that other launchers have and `trainyard run` does not, by what they are for: who types one of them
 * is told what to write instead. Nothing is translated: what reads alike need not mean the same. torchrun's are
 * translated, by a command of their own (torchrun.c). */
#include "cli/options.h"

#include <stddef.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

#define TORCHRUN "torchrun"
#define MPIRUN "mpirun"
#define SRUN "srun"

#define COUNT "here -n N says how many workers there are in all"
#define NODES "here -n N says how many workers there are in all, and --cluster FILE names nodes"
#define GPUS "here --use-gpu gives each worker a GPU, and --use-gpu --resources GPU=N more of them or a part"
#define CPUS "here --resources CPU=N says what each worker needs"
#define MEMORY "here --resources memory=8GiB says what each worker needs"
#define MORE_THAN_THERE_IS \
    "here --num-cpus N says how many CPUs this machine has, and --resources CPU=0.5 lets workers share one"
#define HOSTS                                                                                                 \
    "here --hosts a,b:8 and --hostfile FILE, of `trainyard run`, name hosts that ssh reaches, and --cluster " \
    "FILE names nodes"
#define SOME_NODES "here --label-selector KEY=VALUE says which nodes"
#define LAYOUT                                                                                                \
    "here --placement PACK|SPREAD|STRICT_PACK|STRICT_SPREAD says who goes where, and `trainyard plan` shows " \
    "it"
#define BINDING "here --bind numa|none says whether workers stay near their devices"
#define MEETING "it is not needed: workers find each other, by a port that is free; --name NAME names the run"
#define RANKS "it is not needed: the plan gives the ranks"
#define LOGS                                                                                                   \
    "here each rank's output is in the run's directory, below --storage-path DIR: trainyard logs NAME --rank " \
    "N"
#define LABELS "it is not needed: lines begin with [rank N], unless --no-prefix is given"
#define VARIABLES "here workers inherit the environment, and --env NAME=VALUE sets more"
#define PROGRAM "here the program stands behind the options: -- python train.py, or -- python -m MODULE"
#define DIRECTORY "here workers begin in the working directory: cd there first"
#define UNNEEDED "it is not needed here"
#define LIMIT "here it is --time-limit DURATION"
#define QUEUE "here no queue is asked: the run begins on this machine"
#define RETRIES "here it is --max-failures N"

static const struct foreign {
    const char *name; /* with dashes inside; a letter is one that stands alone */
    const char *whose, *hint;
} foreign[] = {
    {"nproc-per-node", TORCHRUN, COUNT},
    {"np", MPIRUN, COUNT},
    {"ntasks", SRUN, COUNT},
    {"ntasks-per-node", SRUN, COUNT},
    {"tasks-per-node", SRUN, COUNT},
    {"ntasks-per-gpu", SRUN, COUNT},
    {"npernode", MPIRUN, COUNT},
    {"ppn", MPIRUN, COUNT},
    {"nnodes", TORCHRUN, NODES},
    {"nodes", SRUN, NODES},
    {"N", SRUN, NODES},
    {"gpus", SRUN, GPUS},
    {"G", SRUN, GPUS},
    {"gpus-per-task", SRUN, GPUS},
    {"gpus-per-node", SRUN, GPUS},
    {"gpus-per-socket", SRUN, GPUS},
    {"gres", SRUN, GPUS},
    {"cpus-per-task", SRUN, CPUS},
    {"c", SRUN, CPUS},
    {"cpus-per-gpu", SRUN, CPUS},
    {"cpus-per-proc", MPIRUN, CPUS},
    {"mem", SRUN, MEMORY},
    {"mem-per-cpu", SRUN, MEMORY},
    {"mem-per-gpu", SRUN, MEMORY},
    {"oversubscribe", MPIRUN, MORE_THAN_THERE_IS},
    {"overcommit", SRUN, MORE_THAN_THERE_IS},
    {"O", SRUN, MORE_THAN_THERE_IS},
    {"use-hwthread-cpus", MPIRUN, MORE_THAN_THERE_IS},
    {"overlap", SRUN, MORE_THAN_THERE_IS},
    {"hostfile", MPIRUN, HOSTS},
    {"machinefile", MPIRUN, HOSTS},
    {"host", MPIRUN, HOSTS},
    {"hosts", MPIRUN, HOSTS},
    {"H", MPIRUN, HOSTS},
    {"f", MPIRUN, HOSTS},
    {"nodelist", SRUN, SOME_NODES},
    {"w", SRUN, SOME_NODES},
    {"exclude", SRUN, SOME_NODES},
    {"constraint", SRUN, SOME_NODES},
    {"C", SRUN, SOME_NODES},
    {"map-by", MPIRUN, LAYOUT},
    {"rank-by", MPIRUN, LAYOUT},
    {"bynode", MPIRUN, LAYOUT},
    {"byslot", MPIRUN, LAYOUT},
    {"display-map", MPIRUN, LAYOUT},
    {"distribution", SRUN, LAYOUT},
    {"exclusive", SRUN, LAYOUT},
    {"bind-to", MPIRUN, BINDING},
    {"report-bindings", MPIRUN, BINDING},
    {"cpu-bind", SRUN, BINDING},
    {"mem-bind", SRUN, BINDING},
    {"gpu-bind", SRUN, "here --isolate-devices hides the devices of other workers"},
    {"standalone", TORCHRUN, MEETING},
    {"rdzv-backend", TORCHRUN, MEETING},
    {"rdzv-endpoint", TORCHRUN, MEETING},
    {"rdzv-id", TORCHRUN, MEETING},
    {"rdzv-conf", TORCHRUN, MEETING},
    {"master-addr", TORCHRUN, MEETING},
    {"master-port", TORCHRUN, MEETING},
    {"local-addr", TORCHRUN, MEETING},
    {"node-rank", TORCHRUN, RANKS},
    {"role", TORCHRUN, RANKS},
    {"max-restarts", TORCHRUN, RETRIES},
    {"enable-recovery", MPIRUN, RETRIES},
    {"requeue", SRUN, RETRIES},
    {"monitor-interval", TORCHRUN, UNNEEDED},
    {"event-log-handler", TORCHRUN, UNNEEDED},
    {"allow-run-as-root", MPIRUN, UNNEEDED},
    {"kill-on-bad-exit", SRUN, UNNEEDED},
    {"K", SRUN, UNNEEDED},
    {"unbuffered", SRUN, UNNEEDED},
    {"u", SRUN, UNNEEDED},
    {"log-dir", TORCHRUN, LOGS},
    {"redirects", TORCHRUN, LOGS},
    {"tee", TORCHRUN, LOGS},
    {"local-ranks-filter", TORCHRUN, LOGS},
    {"output-filename", MPIRUN, LOGS},
    {"output", SRUN, LOGS},
    {"error", SRUN, LOGS},
    {"o", SRUN, LOGS},
    {"e", SRUN, LOGS},
    {"tag-output", MPIRUN, LABELS},
    {"prepend-rank", MPIRUN, LABELS},
    {"label", SRUN, LABELS},
    {"l", SRUN, LABELS},
    {"x", MPIRUN, VARIABLES},
    {"genv", MPIRUN, VARIABLES},
    {"genvall", MPIRUN, VARIABLES},
    {"genvlist", MPIRUN, VARIABLES},
    {"export", SRUN, VARIABLES},
    {"mca", MPIRUN, "here --env OMPI_MCA_NAME=VALUE sets it"},
    {"module", TORCHRUN, PROGRAM},
    {"m", TORCHRUN, PROGRAM},
    {"no-python", TORCHRUN, PROGRAM},
    {"run-path", TORCHRUN, PROGRAM},
    {"wdir", MPIRUN, DIRECTORY},
    {"wd", MPIRUN, DIRECTORY},
    {"chdir", SRUN, DIRECTORY},
    {"D", SRUN, DIRECTORY},
    {"time", SRUN, LIMIT},
    {"t", SRUN, LIMIT},
    {"timeout", MPIRUN, LIMIT},
    {"job-name", SRUN, "here it is --name NAME"},
    {"J", SRUN, "here it is --name NAME"},
    {"immediate", SRUN, "here it is --no-wait"},
    {"I", SRUN, "here it is --no-wait"},
    {"signal", SRUN, "here it is --preempt-signal SIGNAL"},
    {"partition", SRUN, QUEUE},
    {"p", SRUN, QUEUE},
    {"account", SRUN, QUEUE},
    {"A", SRUN, QUEUE},
    {"qos", SRUN, QUEUE},
    {"mpi", SRUN, "here --framework says what the program expects"},
};

bool foreign_option(const char *name, const char *word, ty_error *err) {
    for (size_t i = 0; i < ARRAY_SIZE(foreign); i++) {
        /* torchrun takes nproc_per_node for nproc-per-node. */
        const char *typed = name, *known = foreign[i].name;
        for (; *typed != '\0' && (*typed == *known || (*typed == '_' && *known == '-')); typed++)
            known++;
        if (*typed != *known) continue;
        (void)ty_fail(
            err, TY_EUSAGE, "unknown option %.80s, which is %s's: %s%s", word, foreign[i].whose,
            foreign[i].hint,
            str_equal(foreign[i].whose, TORCHRUN) ? "; `trainyard torchrun` takes its whole command line" : "");
        return true;
    }
    return false;
}
