/* Engines by name. */
#include "engine/engine.h"

#include "base/error.h"
#include "base/str.h"
#include "engine/local.h"

int engine_find(const char *name, const struct engine **engine, ty_error *err) {
    if (name != NULL && str_equal(name, "slurm"))
        return ty_fail(err, TY_EUSAGE, "engine slurm is not in this version; allowed: auto, local");
    if (name != NULL && !str_equal(name, "auto") && !str_equal(name, engine_local.name))
        return ty_fail(err, TY_EUSAGE, "engine \"%.80s\" is unknown; allowed: auto, local", name);
    *engine = &engine_local;
    return 0;
}
