/* Options as tables: one entry per option feeds the parser (getopt_long), `--help` and the man page, so they
 * cannot drift.
 *
 * Parsing has two steps. options_parse looks at the shape of the command line alone (known names, arguments
 * present) and gathers what was given; options_apply then sets the values in the order in which they were
 * given. Between the two a command can read its config file, so that what the command line says wins over
 * it. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/idset.h"

struct option_spec {
    const char *name; /* long name, without dashes */
    char letter;      /* short name, 0: none */
    /* What follows, as help shows it ("N|MIN:MAX"); "[NAME]": it may be left out; NULL: a flag. */
    const char *argument;
    const char *help; /* one sentence or two; the first letter small, no full stop at the end */
    /* Sets the value in the group's target; fails with what is allowed (the caller names option and value). */
    int (*set)(const struct option_spec *option, void *target, const char *value, ty_error *err);
    size_t offset; /* of the field in the target, for the setters below */
    /* NULL-terminated. With option_choice the field is an int, the index; shells offer them with any setter. */
    const char *const *choices;
};

/* Whether the option's value may be left out. */
static inline bool option_is_optional(const struct option_spec *option) {
    return option->argument != NULL && option->argument[0] == '[';
}

/* Options that belong together, and are set in one struct. */
struct option_group {
    const char *title; /* heading in help: "Scaling" */
    const struct option_spec *options;
    size_t n;
};

/* Setters for plain fields: a bool that becomes true; a const char *, not ""; an int; nanoseconds; a struct
 * rank_choice; a struct text_list, of texts that are not "". */
int option_flag(const struct option_spec *option, void *target, const char *value, ty_error *err);
int option_text(const struct option_spec *option, void *target, const char *value, ty_error *err);
/* A file to be written, and not "-", which some programs take for standard output. */
int option_output(const struct option_spec *option, void *target, const char *value, ty_error *err);
int option_choice(const struct option_spec *option, void *target, const char *value, ty_error *err);
int option_duration(const struct option_spec *option, void *target, const char *value, ty_error *err);
int option_ranks(const struct option_spec *option, void *target, const char *value, ty_error *err);
int option_texts(const struct option_spec *option, void *target, const char *value, ty_error *err);

/* Of an option that may be given several times. Zero-initialised is empty. */
struct text_list {
    const char **items; /* owned array of borrowed texts; NULL-terminated, NULL when empty */
    size_t n;
};
int text_list_add(struct text_list *list, const char *text); /* -ENOMEM */
void text_list_done(struct text_list *list);

/* For setters of whole numbers: TY_EUSAGE, and `*number` as it was, unless `value` is one of least to most. */
int option_whole(const char *value, int64_t least, int64_t most, int64_t *number, ty_error *err);

struct rank_choice {
    bool chosen; /* else all */
    struct idset ranks;
};
/* NULL: all. */
const struct idset *rank_choice_get(const struct rank_choice *choice);

struct option_given {
    const struct option_spec *option;
    size_t group;      /* index of its group in the command */
    const char *value; /* in argv; NULL for a flag, and for a value that was left out */
};

/* A command line taken apart. Everything borrowed from argv. */
struct arguments {
    struct option_given *given; /* owned, in order */
    size_t n_given;
    char **words; /* owned, NULL-terminated: what is no option */
    size_t n_words;
    bool help; /* --help was among them; nothing else counts then */
};

void arguments_done(struct arguments *arguments);

/* `groups` is NULL-terminated. With `rest` the first word ends the options: it and all that follow are words.
 * argv[0] is skipped. */
int options_parse(const struct option_group *const *groups, bool rest, int argc, char **argv,
                  struct arguments *arguments, ty_error *err);

/* The last value given for an option, or NULL. */
const char *options_value(const struct arguments *arguments, const char *name);

/* Calls the setters; targets[i] belongs to groups[i]. The message gets "--name value: " in front. */
int options_apply(const struct arguments *arguments, void *const *targets, ty_error *err);

/* --format text|json, for the commands that print data; its target is a struct format_options. */
enum output_format { FORMAT_TEXT, FORMAT_JSON };
struct format_options {
    int format;
};
extern const struct option_group format_group;

/* --storage-path DIR, for the commands that read runs; its target is a struct storage_options. */
#define STORAGE_PATH_HELP "where runs are kept (default: as `trainyard run --help` tells)"
struct storage_options {
    const char *storage_path; /* NULL: the default */
};
extern const struct option_group storage_group;

/* Options of torchrun, mpirun and srun: who types one by habit is told what says the same here. A table, of
 * which a row is one option of theirs; it is asked only for options that are none of ours. */

/* `name` without dashes and without a value: "nproc-per-node", "nproc_per_node", "np", "N". False when it is no
 * option of theirs; else `err` has the line, TY_EUSAGE. `word` is how it was written. */
bool foreign_option(const char *name, const char *word, ty_error *err);

#endif
