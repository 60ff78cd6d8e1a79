/* Engines by name, and which one `auto` is: join or ssh where options say so, slurm inside an allocation, what
 * TRAINYARD_ENGINE names, else local. What each does is in its own file; options that do not go with the engine
 * that was found are refused here, before anything is looked at. */
#include "engine/engine.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/str.h"
#include "engine/join.h"
#include "engine/local.h"
#include "engine/slurm.h"

int engine_find(const char *name, const struct engine_options *options, const struct engine **engine,
                ty_error *err) {
    bool automatic = name == NULL || str_equal(name, "auto");
    bool joins = options != NULL && options->max_nodes > 1;
    bool hosts = options != NULL && options->hosts != NULL;
    const char *variable = getenv(ENGINE_VARIABLE);
    if (automatic && !joins && !hosts && variable != NULL && !str_equal(variable, "auto")) {
        int result = engine_find(variable, options, engine, err);
        return result < 0 ? ty_wrap(err, ENGINE_VARIABLE) : result;
    }
    bool slurm = str_equal(name, engine_slurm.name) || (automatic && !joins && !hosts && slurm_is_chosen());
    if (!automatic && !slurm && !str_equal(name, engine_local.name) && !str_equal(name, engine_join.name) &&
        !str_equal(name, engine_ssh.name))
        return ty_fail(err, TY_EUSAGE, "engine \"%.80s\" is unknown; allowed: auto, local, join, ssh, slurm",
                       name);
    if (hosts && !automatic && !str_equal(name, engine_ssh.name))
        return ty_fail(err, TY_EUSAGE, "--hosts is for engine ssh, not for %s", name);
    if (!hosts && str_equal(name, engine_ssh.name))
        return ty_fail(err, TY_EUSAGE, "engine ssh needs --hosts a,b:8 or --hostfile FILE");
    if (hosts) {
        *engine = &engine_ssh;
        return ssh_check(options, err);
    }
    if (options != NULL) {
        int result = join_check(options, err);
        if (result < 0) return result;
    }
    if (str_equal(name, engine_local.name) && joins)
        return ty_fail(err, TY_EUSAGE, "engine local is one machine: --nnodes %u needs engine join",
                       options->max_nodes);
    if (str_equal(name, engine_join.name) && !joins)
        return ty_fail(err, TY_EUSAGE,
                       "engine join needs --nnodes N, --node-rank I and --rendezvous HOST:PORT");
    if (slurm && joins)
        return ty_fail(
            err, TY_EUSAGE,
            "engine slurm starts the nodes itself: leave out --nnodes, --node-rank and --rendezvous");
    *engine = joins ? &engine_join : slurm ? &engine_slurm : &engine_local;
    return 0;
}
