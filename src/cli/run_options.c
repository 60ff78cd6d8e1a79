/* Options made of the table of settings: a new row there is an option here; and the environment of the workers,
 * which --env adds to. What the values may be is checked by run/settings.c. Two options are no rows:
 * --start-method, which knows torchrun's words as well, and --env, which may be given many times. */
#include "cli/run_options.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

static int set_setting(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    return setting_set_text(&settings_table[option->offset], &((struct run_options *)target)->settings, value,
                            err);
}

/* NAME=VALUE, or NAME alone, which must be set here (it is inherited then). */
static int add_variable(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    const char *equals = strchr(value, '=');
    CLEANUP_FREE char *name = equals != NULL ? strndup(value, (size_t)(equals - value)) : strdup(value);
    (void)option;
    if (name == NULL) return ty_fail_memory(err);
    int result = config_check_variable(name, err);
    if (result < 0) return result;
    if (equals == NULL && getenv(name) == NULL)
        return ty_fail(err, TY_EUSAGE, "is not set here: give it a value, as in --env %s=VALUE", name);
    bool added = equals == NULL || text_list_add(&((struct run_options *)target)->environment, value) == 0;
    return added ? 0 : ty_fail_memory(err);
}

/* How the workers of a program start. torchrun's words stand for the same: its workers are always executed. */
static int set_start_method(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    static const char *const words[] = {"auto", "spawn", "template", "fork", "forkserver", NULL};
    static const char *const methods[] = {"auto", "spawn", "template", "auto", "auto"};
    struct option_spec any = *option;
    int chosen = 0;
    any.offset = 0;
    any.choices = words;
    int result = option_choice(&any, &chosen, value, err);
    if (result < 0) return result;
    return setting_set_text(setting_find("start_method"), &((struct run_options *)target)->settings,
                            methods[chosen], err);
}

/* The options of the settings: each row's place in the table is its option's offset. */
enum setting_row {
#define SETTING(section, type, member, ...) ROW_##member,
#include SETTINGS_DEF
#undef SETTING
};
#define OPTION(option, letter, argument, help, row) {option, letter, argument, help, set_setting, row, NULL},
#define SETTING(section, type, member, key, c, option, letter, argument, low, high, standard, help) \
    OF_##section(option, letter, argument, help, ROW_##member)
#define OF_INNER(option, letter, argument, help, row)

#define OF_RUN OPTION
#define OF_FAILURE OF_INNER
#define OF_CHECKPOINT OF_INNER
static const struct option_spec run_specs[] = {
#include SETTINGS_DEF
    {"start-method", 0, "auto|spawn|template|fork|forkserver",
     "spawn executes the program for each worker; auto, where the workers of a node are of a Python script "
     "that imports torch first, imports that once and forks them, where they cannot tell the difference; "
     "template insists; torchrun's fork and forkserver are auto (default: auto)",
     set_start_method, 0, NULL},
    {"env", 0, "NAME=VALUE",
     "a variable for the workers, which otherwise inherit this environment; may be given many times; NAME "
     "alone demands that it is set here",
     add_variable, 0, NULL},
};
const struct option_group run_group = {"Run", run_specs, ARRAY_SIZE(run_specs)};

#undef OF_RUN
#undef OF_FAILURE
#undef OF_CHECKPOINT
#define OF_RUN OF_INNER
#define OF_FAILURE OPTION
#define OF_CHECKPOINT OPTION
static const struct option_spec policy_specs[] = {
#include SETTINGS_DEF
};
const struct option_group run_policy_group = {"Failures and checkpoints", policy_specs,
                                              ARRAY_SIZE(policy_specs)};

/* -- the environment that workers inherit -- */

/* The last word is that of the command line, as with all options. */
int run_environment_make(const struct text_list *given, char *const *file, struct environment *made,
                         ty_error *err) {
    struct environment environment = {0};
    int result = environment_add(&environment, environ);
    if (result >= 0 && file != NULL) result = environment_add(&environment, file);
    if (result >= 0 && given->items != NULL)
        result = environment_add(&environment, (char *const *)(uintptr_t)given->items);
    if (result < 0) {
        environment_done(&environment);
        return ty_fail_memory(err);
    }
    *made = environment;
    return 0;
}
