/* What a user may set of a run, from whichever face: the table of settings.def as structs, and the readers that
 * every face shares. A face reads its own form (an option's text, a JSON value, the fields of ty_run_config)
 * into one struct run_settings and calls settings_finish; defaults, bounds and messages are therefore the same
 * everywhere. Pure. */
#ifndef RUN_SETTINGS_H
#define RUN_SETTINGS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <trainyard/trainer.h>

#include "base/document.h"
#include "base/duration.h"
#include "base/error.h"
#include "run/chaos.h"

#ifndef SETTINGS_DEF /* a test adds a row of its own */
#define SETTINGS_DEF "run/settings.def"
#endif

/* X(type, what a member of the type is in C) */
#define SETTING_TYPES(X)                                                                                      \
    X(FLAG, bool)                                                                                             \
    X(TEXT, const char *)      /* not empty; NULL: not given; borrowed, as all text here */                   \
    X(NAME, const char *)      /* a TEXT that can be the name of a run */                                     \
    X(DIRECTORY, const char *) /* a TEXT that is a path: storage_path_check */                                \
    X(RESUME, const char *) /* the name that was said with it, "" without one; NULL: the run is a new one */  \
    X(WORD, const char *)   /* one of the words of the argument; NULL: the first */                           \
    X(CHOICE, int)          /* the same, as its place among the words */                                      \
    X(SECONDS, nanoseconds)                                                                                   \
    X(PERIOD, nanoseconds) /* within its bounds, or 0: "off"; JSON has a number or a text */                  \
    X(COUNT, int)                                                                                             \
    X(BYTES, int64_t) /* in text "100MiB"; JSON has either; 0 is below any bound: none */                     \
    X(RANK, int)      /* a rank, or RANK_NONE, or, where the argument has the word, RANK_ALL */               \
    X(SIGNAL, int)    /* one that a process can catch, and that is not used for something else; 0: SIGTERM */ \
    X(CHAOS, struct chaos_policy)

enum setting_type {
#define X(type, ctype) SETTING_##type,
    SETTING_TYPES(X)
#undef X
};

#define X(type, ctype) typedef ctype setting_##type;
SETTING_TYPES(X)
#undef X

enum { SETTING_COUNT_MAX = 1000000 };
enum { RANK_NONE = -1, RANK_ALL = -2 };
#define SETTING_SECONDS_MAX 3e9 /* 95 years */

/* What keeps a node from starting workers (no process or descriptor left, an agent that is slow to come up)
 * passes within seconds or not at all: three more tries take three seconds, and whoever waits for the run is
 * told soon. */
enum { CONTROLLER_FAILURE_LIMIT_DEFAULT = 3 };
/* The bound of preemptions where none is given: none where failures may be followed by another attempt at all,
 * else 0. */
enum { PREEMPTIONS_AS_FAILURES = -2 };
/* How long workers outlive their controller where that was not said: struct engine. */
enum { OUTLIVE_BY_ENGINE = -1 };

/* The words of the CHOICEs, in their order. */
enum progress_mode { PROGRESS_AUTO, PROGRESS_PLAIN, PROGRESS_NONE };
enum bind_mode { BIND_NUMA, BIND_NONE };
enum output_mode { OUTPUT_INHERIT, OUTPUT_EVENTS };
enum score_order { SCORE_MAX, SCORE_MIN };
enum checkpoint_error { CHECKPOINT_ERROR_FAIL, CHECKPOINT_ERROR_CONTINUE };
enum manifest_where { MANIFEST_INSIDE, MANIFEST_BESIDE };

#define SETTING(section, type, member, ...) SETTING_OF_##section(setting_##type member;)

/* How many further attempts each kind of failure may lead to; -1: without bound. */
#define SETTING_OF_RUN(member)
#define SETTING_OF_INNER(member)
#define SETTING_OF_FAILURE(member) member
#define SETTING_OF_CHECKPOINT(member)
struct failure_policy {
#include SETTINGS_DEF
};
#undef SETTING_OF_FAILURE
#undef SETTING_OF_CHECKPOINT

/* Which checkpoints stay (num_to_keep 0: all), and what becomes of the training when one could not be written.
 * The one before it is kept in any case. */
#define SETTING_OF_FAILURE(member)
#define SETTING_OF_CHECKPOINT(member) member
struct checkpoint_policy {
#include SETTINGS_DEF
};
#undef SETTING_OF_RUN
#undef SETTING_OF_INNER
#undef SETTING_OF_CHECKPOINT

/* All of them. settings_init gives the standard values. */
#define SETTING_OF_RUN(member) member
#define SETTING_OF_INNER(member) member
#define SETTING_OF_CHECKPOINT(member)
struct run_settings {
#include SETTINGS_DEF
    enum face face; /* through which they came */
    struct failure_policy failures;
    struct checkpoint_policy checkpoints;
};
#undef SETTING_OF_RUN
#undef SETTING_OF_INNER
#undef SETTING_OF_FAILURE
#undef SETTING_OF_CHECKPOINT
#undef SETTING

/* A row as data. */
struct setting {
    const char *section; /* "failure_config", "checkpoint_config"; NULL: of the run itself */
    enum setting_type type;
    size_t offset; /* in struct run_settings */
    const char *key;
    ptrdiff_t c_offset; /* in ty_run_config; -1: not there */
    const char *option; /* NULL: none */
    const char *argument;
    double low, high, standard;
    const char *help;
};

extern const struct setting settings_table[];
extern const size_t settings_count;

void settings_init(struct run_settings *settings);

/* An option's value; NULL for a flag. Fails with "must be ...", without the option's name. */
int setting_set_text(const struct setting *setting, struct run_settings *settings, const char *text,
                     ty_error *err);

/* A value of a request or a config file; null changes nothing. `subject` is how a message calls the setting:
 * "`grace_s`". */
int setting_set_json(const struct setting *setting, struct run_settings *settings, const json_t *value,
                     const char *subject, ty_error *err);

/* What a message of this face calls the setting of a member: "--storage-path" or "`storage_path`". */
enum setting_member {
#define SETTING(section, type, member, ...) SETTING_IS_##member,
#include SETTINGS_DEF
#undef SETTING
};
enum { SETTING_SPELLED = 64 };
const char *setting_spelled(enum setting_member member, enum face face, char text[SETTING_SPELLED]);

/* The row of a key, or NULL. */
const struct setting *setting_find(const char *key);

/* `run_config` of a file: the settings that are options, with those of `failure_config` and
 * `checkpoint_config` in maps of their own. Keys among `others` are the caller's. A message begins with the
 * place in the file. Without a document (NULL): a request, which may have all settings. */
int settings_read(struct run_settings *settings, const json_t *map, const struct document *document,
                  const char *const *others, size_t n_others, ty_error *err);

/* The fields of ty_run_config, of which zero and NULL are not given. */
int settings_from_public(struct run_settings *settings, const ty_run_config *config, ty_error *err);

/* What follows from what was given, once all of it is read: the name that came with resume, the bound of
 * preemptions. TY_EUSAGE for settings that do not go together, in the words of `face`, which is kept for what
 * is refused later. */
int settings_finish(struct run_settings *settings, enum face face, ty_error *err);

/* A run name is 1 to 200 bytes without '/', control characters, a leading '.' or '-'. */
int run_name_check(const char *name, ty_error *err);

/* Takes "file://" off *path; TY_EUSAGE for an address of another file system. */
int storage_path_check(const char **path, ty_error *err);

/* Which checkpoints stay: the best ones by their score, or the newest, and the latest in any case. Pure:
 * whoever has the checkpoints asks after each commit. */

/* Marks those that go: surplus[i] belongs to the checkpoint i, of which scores[i] is the score, NaN for
 * none. They stand in the order of their numbers, the last is the latest. One without a score is worse than
 * any other; of equals the newer is better. The number of those marked. */
size_t retention_choose(const struct checkpoint_policy *policy, const double *scores, size_t n, bool *surplus);
/* Which of the n is best, by the same order; 0 without any. */
size_t retention_best(const struct checkpoint_policy *policy, const double *scores, size_t n);

/* What a checkpoint's metrics (the text of a JSON object, or NULL) give for the score: the metric of this
 * name, "a/b" is also b in the object a. NaN where there is no such number, or no name. */
double retention_score(const char *metrics, const char *attribute);

/* Whether its validation is still to come, for which it stays: its metrics hold an object "$validation", as
 * Python's `report(validation=)` leaves there; a text in its place says how that ended. */
bool retention_is_awaited(const char *metrics);

#endif
