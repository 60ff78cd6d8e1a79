/* The spelling of torchrun's command line: its PET_ variables, underscores, shortened names, "-r=3". All
 * becomes the spelling that the parser of options knows; what the options mean is in torchrun.c. Words behind
 * the script are the script's own, and stay as they are. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/command.h"

/* A flag is given by a number that is not 0. */
static int add_from_variable(const struct option_spec *option, struct words *made, ty_error *err) {
    static const char *const without[] = {"logs-specs", "numa-binding"}; /* read from the command line alone */
    char name[64];
    int64_t number = 0;
    (void)snprintf(name, sizeof name, "PET_%s", option->name);
    for (char *letter = name; *letter != '\0'; letter++)
        *letter = *letter == '-' ? '_' : (char)toupper((unsigned char)*letter);
    const char *value = getenv(name);
    if (value == NULL || str_find(option->name, without, ARRAY_SIZE(without)) >= 0) return 0;
    if (option->argument == NULL && !str_to_int64(value, INT32_MIN, INT32_MAX, &number))
        return ty_fail(err, TY_EUSAGE, "%s=%.80s must be 0 or 1, for --%s", name, value, option->name);
    if (option->argument == NULL && number == 0) return 0;
    char *word = option->argument == NULL ? str_format("--%s", option->name)
                                          : str_format("--%s=%s", option->name, value);
    return words_add(made, word) < 0 ? ty_fail_memory(err) : 0;
}

/* The option of this name or letter, or the only one of torchrun that the name is the beginning of. */
static const struct option_spec *find_option(const char *name, char letter) {
    const struct option_spec *found = NULL;
    size_t n = 0;
    for (size_t g = 0; command_torchrun.groups[g] != NULL; g++) {
        const struct option_group *group = command_torchrun.groups[g];
        for (size_t i = 0; i < group->n; i++) {
            const struct option_spec *option = &group->options[i];
            if (str_equal(option->name, name) || (letter != 0 && option->letter == letter)) return option;
            if (name == NULL || group != &torchrun_group || !str_prefix(option->name, name, NULL)) continue;
            found = option;
            n++;
        }
    }
    return n == 1 ? found : NULL;
}

/* The options, up to the script; what follows is its own. A value that stands apart is taken along with its
 * option, or it would be taken for the script. */
static int spell(char **argv, struct words *made) {
    while (*argv != NULL && (*argv)[0] == '-' && (*argv)[1] != '\0' && !str_equal(*argv, "--")) {
        const char *word = *argv++;
        const struct option_spec *option;
        char *spelled;
        if (word[1] == '-') { /* "--nproc_per_node=4" and "--nproc=4" as "--nproc-per-node=4" */
            size_t size = strcspn(word + 2, "=");
            CLEANUP_FREE char *name = strndup(word + 2, size);
            if (name == NULL) return -ENOMEM;
            for (char *letter = name; *letter != '\0'; letter++)
                if (*letter == '_') *letter = '-';
            option = find_option(name, 0);
            spelled = str_format("--%s%s", option != NULL ? option->name : name, word + 2 + size);
        } else { /* "-r=3" as "-r3" */
            option = find_option(NULL, word[1]);
            bool equals = option != NULL && option->argument != NULL && word[2] == '=';
            spelled = equals ? str_format("-%c%s", word[1], word + 3) : strdup(word);
        }
        if (words_add(made, spelled) < 0) return -ENOMEM;
        bool needs_value = option != NULL && option->argument != NULL && !option_is_optional(option);
        bool has_value = spelled[1] == '-' ? strchr(spelled, '=') != NULL : spelled[2] != '\0';
        if (needs_value && !has_value && *argv != NULL && words_add(made, strdup(*argv++)) < 0) return -ENOMEM;
    }
    for (; *argv != NULL; argv++)
        if (words_add(made, strdup(*argv)) < 0) return -ENOMEM;
    return 0;
}

int torchrun_rewrite(char **argv, struct words *made, ty_error *err) {
    int result = words_add(made, strdup(argv[0])) < 0 ? ty_fail_memory(err) : 0;
    for (size_t i = 0; i < torchrun_group.n && result >= 0; i++)
        result = add_from_variable(&torchrun_group.options[i], made, err);
    if (result >= 0 && spell(argv + 1, made) < 0) result = ty_fail_memory(err);
    return result;
}
