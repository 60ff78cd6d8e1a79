/* Option tables for argp: gathers what was given, and says in one line what is wrong with a command line. argp
 * prints nothing itself here; unlike it we refuse shortened names, so that a script cannot break when an option
 * is added. */
#include "cli/options.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/duration.h"
#include "base/str.h"

enum { MAX_OPTIONS = 64, FIRST_KEY = 256 };

static const char *const formats[] = {"text", "json", NULL};
static const struct option_spec format_options[] = {
    {"format", 0, "text|json", "how to print: for a person, or as JSON for a program", option_choice,
     offsetof(struct format_options, format), formats},
};
const struct option_group format_group = {"Output", format_options, ARRAY_SIZE(format_options)};

static const struct option_spec storage_options[] = {
    {"storage-path", 0, "DIR", STORAGE_PATH_HELP, option_text, offsetof(struct storage_options, storage_path),
     NULL},
};
const struct option_group storage_group = {"Storage", storage_options, ARRAY_SIZE(storage_options)};

static const struct option_spec help_option = {"help", 'h', NULL, "print this help", NULL, 0, NULL};

/* One parse: the options of all groups in one table, and what was seen. */
struct parse {
    const struct option_spec *options[MAX_OPTIONS];
    size_t group[MAX_OPTIONS];
    size_t n;
    bool rest;
    int argc;
    char **argv;
    int next; /* the first word that was not yet understood */
    struct arguments *arguments;
    ty_error *err;
    bool failed;
};

static int fail(struct parse *parse, int code) {
    parse->failed = true;
    return code;
}

static const char *nearest_option(const struct parse *parse, const char *name) {
    const char *names[MAX_OPTIONS];
    for (size_t i = 0; i < parse->n; i++)
        names[i] = parse->options[i]->name;
    return str_nearest(name, names, parse->n);
}

static const struct option_spec *option_named(const struct parse *parse, const char *name) {
    for (size_t i = 0; i < parse->n; i++)
        if (str_equal(parse->options[i]->name, name)) return parse->options[i];
    return NULL;
}

static const struct option_spec *option_lettered(const struct parse *parse, char letter) {
    for (size_t i = 0; i < parse->n; i++)
        if (parse->options[i]->letter == letter) return parse->options[i];
    return NULL;
}

/* The only option that begins with `name`: what argp would have taken it for. */
static const char *option_beginning(const struct parse *parse, const char *name) {
    const char *found = NULL;
    for (size_t i = 0; i < parse->n; i++) {
        if (!str_prefix(parse->options[i]->name, name, NULL)) continue;
        if (found != NULL) return NULL;
        found = parse->options[i]->name;
    }
    return found;
}

static int fail_unknown(const struct parse *parse, const char *name, ty_error *err) {
    const char *near = option_beginning(parse, name);
    if (near == NULL) near = nearest_option(parse, name);
    if (near != NULL) return ty_fail(err, TY_EUSAGE, "unknown option --%.80s; did you mean --%s?", name, near);
    return ty_fail(err, TY_EUSAGE, "unknown option --%.80s; --help lists those there are", name);
}

static int fail_no_argument(const struct option_spec *option, ty_error *err) {
    return ty_fail(err, TY_EUSAGE, "option --%s needs a value: --%s %s", option->name, option->name,
                   option->argument);
}

static int explain_long(const struct parse *parse, const char *word, ty_error *err) {
    const char *equals = strchr(word, '=');
    CLEANUP_FREE char *name =
        equals != NULL ? strndup(word + 2, (size_t)(equals - word - 2)) : strdup(word + 2);
    if (name == NULL) return ty_fail_memory(err);
    const struct option_spec *option = option_named(parse, name);
    if (option == NULL) return fail_unknown(parse, name, err);
    if (option->argument == NULL)
        return ty_fail(err, TY_EUSAGE, "option --%s takes no value, but was given '%.80s'", name,
                       equals != NULL ? equals + 1 : "");
    return fail_no_argument(option, err);
}

static int explain_letters(const struct parse *parse, const char *word, ty_error *err) {
    for (const char *letter = word + 1; *letter != '\0'; letter++) {
        const struct option_spec *option = option_lettered(parse, *letter);
        if (option == NULL && letter == word + 1 && *letter >= '0' && *letter <= '9')
            return ty_fail(err, TY_EUSAGE,
                           "unknown option %.80s; put -- before a value that begins with a dash", word);
        if (option == NULL)
            return ty_fail(err, TY_EUSAGE, "unknown option -%c in %.80s; --help lists those there are", *letter,
                           word);
        if (option->argument != NULL) return fail_no_argument(option, err);
    }
    return ty_fail(err, TY_EUSAGE, "cannot understand %.80s", word);
}

/* argp stopped at a word without telling why. */
static int explain(const struct parse *parse, ty_error *err) {
    const char *word = parse->next < parse->argc ? parse->argv[parse->next] : "";
    if (str_prefix(word, "--", NULL)) return explain_long(parse, word, err);
    return explain_letters(parse, word, err);
}

static int take_words(struct parse *parse, struct argp_state *state) {
    int n = parse->rest ? state->argc - state->next + 1 : 1;
    struct arguments *arguments = parse->arguments;
    memcpy(arguments->words + arguments->n_words, state->argv + state->next - 1, (size_t)n * sizeof(char *));
    arguments->n_words += (size_t)n;
    state->next += n - 1;
    return 0;
}

/* A long option as written, when it was not written in full. */
static bool is_shortened(const struct option_spec *option, const struct argp_state *state, const char *value) {
    const char *word = state->argv[state->next - 1];
    if (value == word) word = state->argv[state->next - 2];
    if (!str_prefix(word, "--", &word)) return false;
    return strcspn(word, "=") != strlen(option->name);
}

static bool is_optional(const struct option_spec *option) {
    return option->argument != NULL && option->argument[0] == '[';
}

/* The next word, for an option whose value may be left out: where the program is still to come, behind a "--". */
static char *take_value(const struct parse *parse, struct argp_state *state) {
    if (!parse->rest || state->next >= state->argc || state->argv[state->next][0] == '-') return NULL;
    for (int i = state->next + 1; i < state->argc; i++)
        if (str_equal(state->argv[i], "--")) return state->argv[state->next++];
    return NULL;
}

static int take_option(struct parse *parse, size_t index, char *value, struct argp_state *state) {
    const struct option_spec *option = parse->options[index];
    if (is_shortened(option, state, value)) return fail(parse, explain(parse, parse->err));
    if (is_optional(option) && value == NULL) value = take_value(parse, state);
    if (option == &help_option) {
        parse->arguments->help = true;
        return 0;
    }
    parse->arguments->given[parse->arguments->n_given++] =
        (struct option_given){.option = option, .group = parse->group[index], .value = value};
    return 0;
}

static error_t parse_one(int key, char *arg, struct argp_state *state) {
    struct parse *parse = state->input;
    int result = ARGP_ERR_UNKNOWN;
    if (key == ARGP_KEY_ARG) {
        result = take_words(parse, state);
    } else {
        for (size_t i = 0; i < parse->n; i++) {
            const struct option_spec *option = parse->options[i];
            if (key == (option->letter != 0 ? option->letter : FIRST_KEY + (int)i))
                result = take_option(parse, i, arg, state);
        }
    }
    if (result == 0) parse->next = state->next;
    return parse->failed ? EINVAL : result;
}

/* argp's own form of the table. */
static void fill(struct parse *parse, const struct option_group *const *groups, struct argp_option *table) {
    for (size_t g = 0; groups[g] != NULL; g++) {
        for (size_t i = 0; i < groups[g]->n && parse->n < MAX_OPTIONS - 1; i++) {
            parse->group[parse->n] = g;
            parse->options[parse->n++] = &groups[g]->options[i];
        }
    }
    parse->options[parse->n++] = &help_option;
    for (size_t i = 0; i < parse->n; i++) {
        const struct option_spec *option = parse->options[i];
        int key = option->letter != 0 ? option->letter : FIRST_KEY + (int)i;
        table[i] = (struct argp_option){.name = option->name,
                                        .key = key,
                                        .arg = option->argument,
                                        .flags = is_optional(option) ? OPTION_ARG_OPTIONAL : 0};
    }
}

void arguments_done(struct arguments *arguments) {
    free(arguments->given);
    free(arguments->words);
    *arguments = (struct arguments){0};
}

int options_parse(const struct option_group *const *groups, bool rest, int argc, char **argv,
                  struct arguments *arguments, ty_error *err) {
    struct argp_option table[MAX_OPTIONS + 1] = {0};
    struct parse parse = {
        .rest = rest, .argc = argc, .argv = argv, .next = 1, .arguments = arguments, .err = err};
    fill(&parse, groups, table);
    size_t most = (size_t)argc; /* options or words; a cluster of letters holds several */
    for (int i = 1; i < argc; i++)
        if (argv[i][0] == '-' && argv[i][1] != '-') most += strlen(argv[i]);
    *arguments = (struct arguments){.given = calloc(most + 1, sizeof *arguments->given),
                                    .words = calloc((size_t)argc + 1, sizeof *arguments->words)};
    if (arguments->given == NULL || arguments->words == NULL) return ty_fail_memory(err);
    const struct argp argp = {.options = table, .parser = parse_one};
    error_t result =
        argp_parse(&argp, argc, argv, ARGP_NO_ERRS | ARGP_NO_HELP | ARGP_NO_EXIT | ARGP_IN_ORDER, NULL, &parse);
    if (result == ENOMEM) return ty_fail_memory(err);
    if (parse.failed) return TY_EUSAGE;
    if (result != 0 && !arguments->help) return explain(&parse, err);
    return 0;
}

const char *options_value(const struct arguments *arguments, const char *name) {
    for (size_t i = arguments->n_given; i > 0; i--)
        if (str_equal(arguments->given[i - 1].option->name, name)) return arguments->given[i - 1].value;
    return NULL;
}

int options_apply(const struct arguments *arguments, void *const *targets, ty_error *err) {
    for (size_t i = 0; i < arguments->n_given; i++) {
        const struct option_given *given = &arguments->given[i];
        if (given->option->set(given->option, targets[given->group], given->value, err) >= 0) continue;
        if (given->value == NULL) return ty_wrap(err, "--%s", given->option->name);
        bool cut = strlen(given->value) > 80;
        return ty_wrap(err, "--%s %.80s%s", given->option->name, *given->value == '\0' ? "''" : given->value,
                       cut ? "..." : "");
    }
    return 0;
}

int option_flag(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)value;
    (void)err;
    *(bool *)((char *)target + option->offset) = true;
    return 0;
}

int option_text(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    if (*value == '\0') return ty_fail(err, TY_EUSAGE, "must not be empty");
    *(const char **)((char *)target + option->offset) = value;
    return 0;
}

int option_choice(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    int n = 0;
    for (; option->choices[n] != NULL; n++) {
        if (!str_equal(option->choices[n], value)) continue;
        *(int *)((char *)target + option->offset) = n;
        return 0;
    }
    char hint[STR_HINT_SIZE];
    return ty_fail(err, TY_EUSAGE, "must be one of %s%s", option->argument,
                   str_hint(value, option->choices, (size_t)n, hint));
}

int option_duration(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    return duration_parse(value, (nanoseconds *)(void *)((char *)target + option->offset), err);
}
