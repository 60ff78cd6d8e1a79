/* A program that calls fit() is started as it is by `kube --fit` and `submit --fit`: the options say on what,
 * and the program what is of the run. So options of the run are refused here, but for those that can be handed
 * on as variables. What the program does with them is its own. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/run_options.h"

int fit_check(const struct arguments *arguments, const struct option_group *const *groups, ty_error *err) {
    static const char *const taken[] = {"name", "env", "storage-path"};
    for (size_t i = 0; i < arguments->n_given; i++) {
        const struct option_given *given = &arguments->given[i];
        bool of_run = groups[given->group] == &run_group || groups[given->group] == &run_policy_group;
        if (of_run && str_find(given->option->name, taken, ARRAY_SIZE(taken)) < 0)
            return ty_fail(err, TY_EUSAGE, "--%s: with --fit the program says that itself, in its RunConfig",
                           given->option->name);
    }
    return 0;
}

/* A NAME alone has its value here: the option is refused where it has none (run_options.c). */
int fit_variables(const struct arguments *arguments, struct words *variables, ty_error *err) {
    int result = 0;
    for (size_t i = 0; i < arguments->n_given && result >= 0; i++) {
        const char *name = arguments->given[i].option->name, *value = arguments->given[i].value;
        if (str_equal(name, "storage-path"))
            result = words_add(variables, str_format("TRAINYARD_STORAGE=%s", value));
        else if (str_equal(name, "env"))
            result =
                words_add(variables, strchr(value, '=') != NULL ? strdup(value)
                                                                : str_format("%s=%s", value, getenv(value)));
    }
    return result < 0 ? ty_fail_memory(err) : 0;
}
