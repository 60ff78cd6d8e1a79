/* Option tables for getopt_long: gathers what was given, and says in one line what is wrong with a command
 * line. Unlike getopt_long we refuse shortened names, so that a script cannot break when an option is added.
 * What an option means is its row's function. */
#include "cli/options.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/duration.h"
#include "base/str.h"

enum { MAX_OPTIONS = 128, FIRST_KEY = 256 };

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

/* One reader: the options of all groups in one table, and what was seen. */
struct options_reader {
    const struct option_spec *options[MAX_OPTIONS];
    size_t group[MAX_OPTIONS];
    size_t n;
    bool rest;
    int argc;
    char **argv;
    struct arguments *arguments;
};

static const struct option_spec *option_named(const struct options_reader *reader, const char *name) {
    for (size_t i = 0; i < reader->n; i++)
        if (str_equal(reader->options[i]->name, name)) return reader->options[i];
    return NULL;
}

static const struct option_spec *option_lettered(const struct options_reader *reader, char letter) {
    for (size_t i = 0; i < reader->n; i++)
        if (reader->options[i]->letter == letter) return reader->options[i];
    return NULL;
}

static int fail_unknown(const struct options_reader *reader, const char *name, ty_error *err) {
    const char *near = NULL, *names[MAX_OPTIONS];
    size_t n_near = 0;
    /* The only option that begins with the name is what getopt_long would take the name for. */
    for (size_t i = 0; i < reader->n; i++) {
        names[i] = reader->options[i]->name;
        if (!str_prefix(names[i], name, NULL)) continue;
        near = names[i];
        n_near++;
    }
    if (n_near != 1) near = str_nearest(name, names, reader->n);
    if (near != NULL) return ty_fail(err, TY_EUSAGE, "unknown option --%.80s; did you mean --%s?", name, near);
    return ty_fail(err, TY_EUSAGE, "unknown option --%.80s; --help lists those there are", name);
}

/* Other launchers' options are looked for where workers are asked for. */
static bool is_foreign(const struct options_reader *reader, const char *name, const char *word, ty_error *err) {
    return option_named(reader, "num-workers") != NULL && foreign_option(name, word, err);
}

static int fail_no_argument(const struct option_spec *option, ty_error *err) {
    return ty_fail(err, TY_EUSAGE, "option --%s needs a value: --%s %s", option->name, option->name,
                   option->argument);
}

static int explain_long(const struct options_reader *reader, const char *word, ty_error *err) {
    const char *equals = strchr(word, '=');
    CLEANUP_FREE char *name =
        equals != NULL ? strndup(word + 2, (size_t)(equals - word - 2)) : strdup(word + 2);
    if (name == NULL) return ty_fail_memory(err);
    const struct option_spec *option = option_named(reader, name);
    if (option == NULL) {
        CLEANUP(buffer_done) struct buffer given = {0};
        buffer_printf(&given, "--%s", name);
        if (given.failed) return ty_fail_memory(err);
        return is_foreign(reader, name, given.data, err) ? TY_EUSAGE : fail_unknown(reader, name, err);
    }
    if (option->argument == NULL)
        return ty_fail(err, TY_EUSAGE, "option --%s takes no value, but was given '%.80s'", name,
                       equals != NULL ? equals + 1 : "");
    return fail_no_argument(option, err);
}

/* getopt_long does not tell what it has against a word. */
static int explain(const struct options_reader *reader, const char *word, ty_error *err) {
    if (str_prefix(word, "--", NULL)) return explain_long(reader, word, err);
    for (const char *letter = word + 1; *letter != '\0'; letter++) {
        const struct option_spec *option = option_lettered(reader, *letter);
        if (option == NULL && letter == word + 1 && *letter >= '0' && *letter <= '9')
            return ty_fail(err, TY_EUSAGE,
                           "unknown option %.80s; put -- before a value that begins with a dash", word);
        const char name[] = {*letter, '\0'}, given[] = {'-', *letter, '\0'};
        if (option == NULL && letter == word + 1 && is_foreign(reader, name, given, err)) return TY_EUSAGE;
        if (option == NULL)
            return ty_fail(err, TY_EUSAGE, "unknown option -%c in %.80s; --help lists those there are", *letter,
                           word);
        if (option->argument != NULL) return fail_no_argument(option, err);
    }
    return ty_fail(err, TY_EUSAGE, "cannot understand %.80s", word);
}

static void take_option(struct options_reader *reader, size_t index, char *value) {
    const struct option_spec *option = reader->options[index];
    struct arguments *arguments = reader->arguments;
    if (option == &help_option) {
        arguments->help = true;
        return;
    }
    /* A value that may be left out is the next word, where the program is still to come, behind a "--". */
    if (option_is_optional(option) && value == NULL && reader->rest && optind < reader->argc &&
        reader->argv[optind][0] != '-') {
        int dashes = optind + 1;
        while (dashes < reader->argc && !str_equal(reader->argv[dashes], "--"))
            dashes++;
        if (dashes < reader->argc) value = reader->argv[optind++];
    }
    arguments->given[arguments->n_given++] =
        (struct option_given){.option = option, .group = reader->group[index], .value = value};
}

static void take_words(struct options_reader *reader, int from, int to) {
    struct arguments *arguments = reader->arguments;
    for (int i = from; i < to; i++)
        arguments->words[arguments->n_words++] = reader->argv[i];
}

/* All options, and their two forms for getopt_long: words are given in their order (-), a missing value is told
 * apart (:). */
static void fill(struct options_reader *reader, const struct option_group *const *groups, struct option *table,
                 char *letters) {
    for (size_t g = 0; groups[g] != NULL; g++) {
        for (size_t i = 0; i < groups[g]->n; i++) {
            assert(reader->n < MAX_OPTIONS - 1); /* an option that is left out would be an unknown one */
            reader->group[reader->n] = g;
            reader->options[reader->n++] = &groups[g]->options[i];
        }
    }
    reader->options[reader->n++] = &help_option;
    *letters++ = '-';
    *letters++ = ':';
    for (size_t i = 0; i < reader->n; i++) {
        const struct option_spec *option = reader->options[i];
        int form = option->argument == NULL     ? no_argument
                   : option_is_optional(option) ? optional_argument
                                                : required_argument;
        table[i] = (struct option){option->name, form, NULL, FIRST_KEY + (int)i};
        if (option->letter == 0) continue;
        *letters++ = option->letter;
        if (form != no_argument) *letters++ = ':';
    }
    *letters = '\0';
}

/* mpirun's "-np 2" is "-n 2", although it reads as -n with the value "p"; others of its options have one dash,
 * and read as letters too. */
static int take_one_dash(const struct options_reader *reader, const char *word, char **value, ty_error *err) {
    if (word[0] != '-' || word[1] == '-' || word[1] == '\0' || word[2] == '\0') return 0;
    if (!str_equal(word, "-np")) return is_foreign(reader, word + 1, word, err) ? TY_EUSAGE : 0;
    const struct option_spec *option = option_lettered(reader, 'n');
    if (option == NULL || !str_equal(*value, "p")) return 0;
    if (optind >= reader->argc) return fail_no_argument(option, err);
    *value = reader->argv[optind++];
    return 0;
}

/* Goes through the command line; the words behind the first one, or behind "--", are the program's where there
 * is one. */
static int go_through(struct options_reader *reader, const char *letters, const struct option *table,
                      ty_error *err) {
    int key, at = 1;
    optind = 0; /* glibc's way to begin anew */
    opterr = 0;
    while ((key = getopt_long(reader->argc, reader->argv, letters, table, NULL)) != -1) {
        if (take_one_dash(reader, reader->argv[at], &optarg, err) < 0) return TY_EUSAGE;
        if (key == '?' || key == ':') return explain(reader, reader->argv[at], err);
        if (key == 1) {
            int last = reader->rest ? reader->argc : optind;
            take_words(reader, optind - 1, last);
            if (reader->rest) return 0;
        } else {
            size_t index = key >= FIRST_KEY ? (size_t)(key - FIRST_KEY) : 0;
            while (key < FIRST_KEY && reader->options[index]->letter != key)
                index++;
            const char *name;
            /* A beginning of a name that getopt_long took for the whole is explained as unknown. */
            bool shortened = str_prefix(reader->argv[at], "--", &name) &&
                             strcspn(name, "=") != strlen(reader->options[index]->name);
            if (shortened) return explain(reader, reader->argv[at], err);
            take_option(reader, index, optarg);
        }
        at = optind; /* of a word that is a cluster of letters, the same until its last */
    }
    take_words(reader, optind, reader->argc);
    return 0;
}

void arguments_done(struct arguments *arguments) {
    free(arguments->given);
    free(arguments->words);
    *arguments = (struct arguments){0};
}

int options_parse(const struct option_group *const *groups, bool rest, int argc, char **argv,
                  struct arguments *arguments, ty_error *err) {
    struct option table[MAX_OPTIONS + 1] = {0};
    char letters[2 * MAX_OPTIONS + 3];
    struct options_reader reader = {.rest = rest, .argc = argc, .argv = argv, .arguments = arguments};
    fill(&reader, groups, table, letters);
    size_t most = (size_t)argc; /* options or words; a cluster of letters holds several */
    for (int i = 1; i < argc; i++)
        if (argv[i][0] == '-' && argv[i][1] != '-') most += strlen(argv[i]);
    *arguments = (struct arguments){.given = calloc(most + 1, sizeof *arguments->given),
                                    .words = calloc((size_t)argc + 1, sizeof *arguments->words)};
    if (arguments->given == NULL || arguments->words == NULL) return ty_fail_memory(err);
    int result = go_through(&reader, letters, table, err);
    return arguments->help ? 0 : result;
}

const char *options_value(const struct arguments *arguments, const char *name) {
    for (size_t i = arguments->n_given; i > 0; i--)
        if (str_equal(arguments->given[i - 1].option->name, name)) return arguments->given[i - 1].value;
    return NULL;
}

/* In the order of the command line: the last of a plain option counts, and a list grows in the order in which
 * it was written. */
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

int option_output(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    if (str_equal(value, "-"))
        return ty_fail(err, TY_EUSAGE, "must be a file: standard output is /dev/stdout, a file named - is ./-");
    return option_text(option, target, value, err);
}

int text_list_add(struct text_list *list, const char *text) {
    if (ARRAY_GROW(list->items, list->n + 1) < 0) return -ENOMEM;
    list->items[list->n++] = text;
    list->items[list->n] = NULL;
    return 0;
}

void text_list_done(struct text_list *list) {
    free(list->items);
    *list = (struct text_list){0};
}

int option_texts(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    if (*value == '\0') return ty_fail(err, TY_EUSAGE, "must not be empty");
    bool added = text_list_add((void *)((char *)target + option->offset), value) == 0;
    return added ? 0 : ty_fail_memory(err);
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

int option_whole(const char *value, int64_t least, int64_t most, int64_t *number, ty_error *err) {
    if (str_to_int64(value, least, most, number)) return 0;
    return ty_fail(err, TY_EUSAGE, "must be a whole number from %lld to %lld", (long long)least,
                   (long long)most);
}

int option_ranks(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    struct rank_choice *choice = (void *)((char *)target + option->offset);
    choice->chosen = true;
    return idset_parse(&choice->ranks, value, err);
}

const struct idset *rank_choice_get(const struct rank_choice *choice) {
    return choice->chosen ? &choice->ranks : NULL;
}
