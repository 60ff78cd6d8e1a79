/* The table of settings.def as data, and one reader for each type of setting and form of value: an option's
 * text, JSON, a field of ty_run_config. All of them end in one check a type, so that bounds and messages are
 * the same everywhere. What a setting does is not known here. */
#include "run/settings.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/document.h"
#include "base/quantity.h"
#include "base/str.h"

#define SECTION_RUN NULL
#define SECTION_INNER NULL
#define SECTION_FAILURE "failure_config"
#define SECTION_CHECKPOINT "checkpoint_config"
#define MEMBER_RUN(member) member
#define MEMBER_INNER(member) member
#define MEMBER_FAILURE(member) failures.member
#define MEMBER_CHECKPOINT(member) checkpoints.member
#define PLACE_C(key) (ptrdiff_t) offsetof(ty_run_config, key)
#define PLACE_NO_C(key) (-1)

const struct setting settings_table[] = {
#define SETTING(section, type, member, key, c, option, letter, argument, low, high, standard, help) \
    {SECTION_##section,                                                                             \
     SETTING_##type,                                                                                \
     offsetof(struct run_settings, MEMBER_##section(member)),                                       \
     #key,                                                                                          \
     PLACE_##c(key),                                                                                \
     option,                                                                                        \
     argument,                                                                                      \
     low,                                                                                           \
     high,                                                                                          \
     standard,                                                                                      \
     help},
#include SETTINGS_DEF
#undef SETTING
};
const size_t settings_count = ARRAY_SIZE(settings_table);

enum { WORDS_MAX = 8, WORD_SIZE = 24, GIVEN_SHOWN = 40, NAME_MAX_BYTES = 200, KEYS_MAX = 64 };

static void *member_of(const struct setting *setting, struct run_settings *settings) {
    return (char *)settings + setting->offset;
}

void settings_init(struct run_settings *settings) {
    *settings = (struct run_settings){0};
    for (size_t i = 0; i < settings_count; i++) {
        const struct setting *setting = &settings_table[i];
        if (setting->type == SETTING_SECONDS || setting->type == SETTING_PERIOD)
            *(nanoseconds *)member_of(setting, settings) = (nanoseconds)(setting->standard * (double)NS_PER_S);
        else if (setting->type == SETTING_COUNT || setting->type == SETTING_RANK)
            *(int *)member_of(setting, settings) = (int)setting->standard;
        else if (setting->type == SETTING_BYTES)
            *(int64_t *)member_of(setting, settings) = (int64_t)setting->standard;
    }
}

const char *setting_spelled(enum setting_member member, enum face face, char text[SETTING_SPELLED]) {
    const struct setting *setting = &settings_table[member];
    bool option = face == FACE_COMMAND && setting->option != NULL;
    (void)snprintf(text, SETTING_SPELLED, option ? "--%s" : "`%s`", option ? setting->option : setting->key);
    return text;
}

const struct setting *setting_find(const char *key) {
    for (size_t i = 0; i < settings_count; i++)
        if (str_equal(settings_table[i].key, key)) return &settings_table[i];
    return NULL;
}

/* -- what is allowed */

int run_name_check(const char *name, ty_error *err) {
    size_t size = strlen(name);
    bool plain = size > 0 && size <= NAME_MAX_BYTES && name[0] != '.' && name[0] != '-';
    for (const char *c = name; plain && *c != '\0'; c++)
        plain = *c != '/' && (unsigned char)*c >= ' ' && *c != 127;
    if (plain && utf8_valid(name, size)) return 0;
    return ty_fail(err, TY_EUSAGE,
                   "the run name \"%.80s\" is not usable: %sno '/', no control characters, no '.' or '-' first",
                   name, plain ? "it is not UTF-8; 1 to 200 bytes, " : "1 to 200 bytes, ");
}

static const char no_directory[] =
    "must be a directory; other file systems are not provided (mount it, or copy checkpoints there)";

int storage_path_check(const char **path, ty_error *err) {
    const char *local;
    if (str_prefix(*path, "file://", &local) && *local == '/') *path = local;
    return strstr(*path, "://") == NULL ? 0 : ty_fail(err, TY_EUSAGE, "%s", no_directory);
}

/* "TERM", "SIGUSR1", "12". Refused are those by which the run is stopped for other reasons, by which a process
 * is ended or stopped whatever it does, or by which the loop lives. */
static int parse_signal(const char *text, int *number, ty_error *err) {
    static const int reserved[] = {SIGKILL, SIGSTOP, SIGINT, SIGCHLD, SIGPIPE, SIGSEGV,
                                   SIGBUS,  SIGFPE,  SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    const char *name = text;
    int64_t found = 0;
    (void)str_prefix(text, "SIG", &name);
    for (int i = 1; i < NSIG && found == 0; i++)
        if (str_equal(str_signal_name(i), name)) found = i;
    if (found == 0) (void)str_to_int64(text, 1, SIGSYS, &found);
    for (size_t i = 0; i < ARRAY_SIZE(reserved); i++)
        if (reserved[i] == found) found = 0;
    if (found == 0)
        return ty_fail(err, TY_EUSAGE,
                       "\"%.40s\" is no signal of a preemption: TERM, USR1, USR2, HUP, XCPU and the like",
                       text);
    *number = (int)found;
    return 0;
}

/* What a value must be, in JSON. */
static const char *rule_of(const struct setting *setting, char text[96]) {
    switch (setting->type) {
    case SETTING_FLAG:
    case SETTING_RESUME:
        return "true or false";
    case SETTING_WORD:
    case SETTING_CHOICE:
        (void)snprintf(text, 96, "one of %s", setting->argument);
        return text;
    case SETTING_SECONDS:
        (void)str_print(text, 96, "a number of seconds from 0 to %.10g", setting->high);
        return text;
    case SETTING_PERIOD:
        (void)str_print(text, 96, "a time from %.10g to %.10g seconds, or \"off\"", setting->low,
                        setting->high);
        return text;
    case SETTING_COUNT:
        (void)snprintf(text, 96, "a whole number from %.0f to %.0f%s", setting->low < 0 ? 0 : setting->low,
                       setting->high, setting->low < 0 ? ", or -1 for no bound" : "");
        return text;
    case SETTING_BYTES:
        (void)snprintf(text, 96, "an amount of bytes from %.0f to %.0f, as 100MiB, or 0 for any", setting->low,
                       setting->high);
        return text;
    case SETTING_RANK:
        return strstr(setting->argument, "|all") == NULL ? "a rank" : "a rank, \"all\" or \"none\"";
    case SETTING_SIGNAL:
        return "the name of a signal";
    case SETTING_CHAOS:
        return "a text SEED[:EVERY]";
    case SETTING_DIRECTORY:
    case SETTING_TEXT:
    case SETTING_NAME:
        break;
    }
    return "a text that is not empty";
}

/* -- readers: a value of the right form into its member */

static int set_word(const struct setting *setting, void *member, const char *text, ty_error *err) {
    char words[WORDS_MAX][WORD_SIZE], hint[STR_HINT_SIZE];
    const char *names[WORDS_MAX];
    /* The words of "one|two" apart; how many. */
    size_t n = 0;
    for (const char *at = setting->argument; *at != '\0' && n < WORDS_MAX; n++) {
        size_t size = strcspn(at, "|");
        (void)snprintf(words[n], WORD_SIZE, "%.*s", (int)size, at);
        at += size + (at[size] == '|');
    }
    for (size_t i = 0; i < n; i++) {
        names[i] = words[i];
        if (!str_equal(text, words[i])) continue;
        if (setting->type == SETTING_CHOICE)
            *(int *)member = (int)i;
        else
            *(const char **)member = i == 0 ? NULL : text;
        return 0;
    }
    return ty_fail(err, TY_EUSAGE, "must be one of %s%s", setting->argument, str_hint(text, names, n, hint));
}

static int set_seconds(const struct setting *setting, void *member, double seconds, ty_error *err) {
    char rule[96];
    if (!(seconds >= 0 && seconds <= setting->high))
        return ty_fail(err, TY_EUSAGE, "must be %s", rule_of(setting, rule));
    nanoseconds ns = (nanoseconds)(seconds * (double)NS_PER_S);
    *(nanoseconds *)member = ns == 0 && seconds > 0 ? 1 : ns; /* 0 is none */
    return 0;
}

static int set_duration(const struct setting *setting, void *member, const char *text, ty_error *err) {
    CLEANUP(buffer_done) struct buffer most = {0};
    nanoseconds duration = 0;
    int result = duration_parse(text, &duration, err);
    if (result < 0) return result;
    if (set_seconds(setting, member, duration_seconds(duration), NULL) == 0) return 0;
    duration_format((nanoseconds)(setting->high * (double)NS_PER_S), &most);
    return ty_fail(err, TY_EUSAGE, "must be at most %s", most.failed ? "what --help tells" : most.data);
}

/* 0 is not off: whoever wants as many samples as can be had is not to get none. */
static int set_period(const struct setting *setting, nanoseconds *member, double seconds, ty_error *err) {
    char rule[96];
    if (!(seconds >= setting->low && seconds <= setting->high))
        return ty_fail(err, TY_EUSAGE, "must be %s", rule_of(setting, rule));
    *member = (nanoseconds)(seconds * (double)NS_PER_S);
    return 0;
}

static int parse_period(const struct setting *setting, nanoseconds *member, const char *text, ty_error *err) {
    nanoseconds period = 0;
    if (str_equal(text, "off")) {
        *member = 0;
        return 0;
    }
    (void)duration_parse(text, &period, NULL);
    return set_period(setting, member, duration_seconds(period), err);
}

static int set_count(const struct setting *setting, void *member, bool whole, int64_t number, ty_error *err) {
    char rule[96];
    if (!whole || number < (int64_t)setting->low || number > (int64_t)setting->high)
        return ty_fail(err, TY_EUSAGE, "must be %s", rule_of(setting, rule));
    *(int *)member = (int)number;
    return 0;
}

static int set_bytes(const struct setting *setting, void *member, double bytes, ty_error *err) {
    char rule[96];
    if (bytes != 0 && !(bytes >= setting->low && bytes <= setting->high))
        return ty_fail(err, TY_EUSAGE, "must be %s", rule_of(setting, rule));
    *(int64_t *)member = (int64_t)bytes;
    return 0;
}

static int set_size(const struct setting *setting, void *member, const char *text, ty_error *err) {
    quantity amount = -1;
    (void)quantity_parse(text, "", &amount, NULL);
    return set_bytes(setting, member, quantity_to_double(amount), err);
}

/* "RANK|all|none": a number, or one of the words that follow. */
static int set_rank(const struct setting *setting, int *member, const char *text, ty_error *err) {
    int64_t rank = RANK_NONE;
    bool all = str_equal(text, "all") && strstr(setting->argument, "|all") != NULL;
    if (all) rank = RANK_ALL;
    if (!all && !str_equal(text, "none") && !str_to_int64(text, 0, SETTING_COUNT_MAX, &rank))
        return ty_fail(err, TY_EUSAGE, "must be one of %s", setting->argument);
    *member = (int)rank;
    return 0;
}

/* Of the types that are written as text in every form. */
static int set_from_text(const struct setting *setting, void *member, const char *text, ty_error *err) {
    if (setting->type == SETTING_SIGNAL) return parse_signal(text, member, err);
    if (setting->type == SETTING_BYTES) return set_size(setting, member, text, err);
    if (setting->type == SETTING_RANK) return set_rank(setting, member, text, err);
    if (setting->type == SETTING_PERIOD) return parse_period(setting, member, text, err);
    if (setting->type == SETTING_CHAOS) return chaos_parse(text, member, err);
    if (setting->type == SETTING_WORD || setting->type == SETTING_CHOICE)
        return set_word(setting, member, text, err);
    if (*text == '\0') return ty_fail(err, TY_EUSAGE, "must not be empty");
    if (setting->type == SETTING_NAME && run_name_check(text, err) < 0) return TY_EUSAGE;
    if (setting->type == SETTING_DIRECTORY && storage_path_check(&text, err) < 0) return TY_EUSAGE;
    *(const char **)member = text;
    return 0;
}

int setting_set_text(const struct setting *setting, struct run_settings *settings, const char *text,
                     ty_error *err) {
    void *member = member_of(setting, settings);
    int64_t number = 0;
    bool whole;
    int result = 0;
    switch (setting->type) {
    case SETTING_FLAG:
        *(bool *)member = true;
        return 0;
    case SETTING_RESUME:
        if (text != NULL) result = run_name_check(text, err);
        if (result == 0) *(const char **)member = text == NULL ? "" : text;
        return result;
    case SETTING_SECONDS:
        return set_duration(setting, member, text, err);
    case SETTING_COUNT:
        whole = str_to_int64(text, -1, SETTING_COUNT_MAX, &number);
        return set_count(setting, member, whole, number, err);
    default:
        return set_from_text(setting, member, text, err);
    }
}

/* -- JSON and C: values that are named by a subject, with what they must be */

/* A parser of text says itself what is wrong; any other failure is told as the rule and the value. */
static int refuse_for(const struct setting *setting, const char *subject, const char *given,
                      const ty_error *why, ty_error *err) {
    if (why->code == -ENOMEM) return ty_fail_memory(err);
    if (str_equal(why->message, no_directory))
        return ty_fail(err, why->code, "%s: %.*s: %s", subject, GIVEN_SHOWN, given, no_directory);
    if (!str_prefix(why->message, "must ", NULL))
        return ty_fail(err, why->code, "%s: %s", subject, why->message);
    char rule[96];
    bool no_text = setting->type == SETTING_WORD && *given != '"';
    const char *hint = strstr(why->message, "; did you mean ");
    return ty_fail(err, TY_EUSAGE, "%s must be %s%s, not %.*s%s%s", subject, no_text ? "a text, " : "",
                   rule_of(setting, rule), GIVEN_SHOWN, given, strlen(given) > GIVEN_SHOWN ? ".." : "",
                   hint == NULL ? "" : hint);
}

/* JSON has fewer types than settings: a size or a length of time may be a number, or a text with its unit. */
static bool has_form(const struct setting *setting, const json_t *value) {
    switch (setting->type) {
    case SETTING_FLAG:
    case SETTING_RESUME:
        return json_is_boolean(value);
    case SETTING_SECONDS:
        return json_is_number(value);
    case SETTING_COUNT:
        return json_is_integer(value);
    case SETTING_BYTES:
    case SETTING_PERIOD:
        return json_is_number(value) || json_is_string(value);
    case SETTING_RANK:
        return json_is_integer(value) || json_is_string(value);
    default:
        return json_is_string(value) && json_string_length(value) > 0;
    }
}

static int set_json(const struct setting *setting, void *member, const json_t *value, ty_error *why) {
    char rank[32];
    if (!has_form(setting, value)) return ty_fail(why, TY_EUSAGE, "must be of another type");
    switch (setting->type) {
    case SETTING_FLAG:
        *(bool *)member = json_is_true(value);
        return 0;
    case SETTING_RESUME:
        *(const char **)member = json_is_true(value) ? "" : NULL;
        return 0;
    case SETTING_SECONDS:
        return set_seconds(setting, member, json_number_value(value), why);
    case SETTING_COUNT:
        return set_count(setting, member, true, json_integer_value(value), why);
    case SETTING_BYTES:
        if (json_is_number(value)) return set_bytes(setting, member, json_number_value(value), why);
        return set_size(setting, member, json_string_value(value), why);
    case SETTING_PERIOD:
        if (json_is_number(value)) return set_period(setting, member, json_number_value(value), why);
        return parse_period(setting, member, json_string_value(value), why);
    case SETTING_RANK:
        (void)snprintf(rank, sizeof rank, "%lld", (long long)json_integer_value(value));
        return set_from_text(setting, member, json_is_integer(value) ? rank : json_string_value(value), why);
    default:
        return set_from_text(setting, member, json_string_value(value), why);
    }
}

int setting_set_json(const struct setting *setting, struct run_settings *settings, const json_t *value,
                     const char *subject, ty_error *err) {
    ty_error why = {0};
    if (json_is_null(value) || set_json(setting, member_of(setting, settings), value, &why) == 0) return 0;
    CLEANUP_FREE char *given = json_format(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    return given == NULL ? ty_fail_memory(err) : refuse_for(setting, subject, given, &why, err);
}

/* Unknown keys first: a mistyped one is told with the nearest that there is, before anything is said of
 * values. */
static int read_section(struct run_settings *settings, const json_t *map, const char *section,
                        const struct document *document, const char *const *others, size_t n_others,
                        ty_error *err) {
    const char *what = section != NULL ? section : document != NULL ? "run_config" : "the request";
    const char *known[KEYS_MAX];
    size_t n = n_others;
    if (!json_is_object(map) && document == NULL)
        return ty_fail(err, TY_EUSAGE, "%s must be a map of fields", what);
    if (!json_is_object(map))
        return ty_fail(err, TY_EUSAGE, "%s: %s must be a map", document_where(document, map), what);
    if (n_others > 0) memcpy(known, others, n_others * sizeof *known);
    for (size_t i = 0; i < settings_count && n < KEYS_MAX; i++)
        if (str_equal(settings_table[i].section, section) &&
            (document == NULL || settings_table[i].option != NULL))
            known[n++] = settings_table[i].key;
    int result = document_check_keys(document, map, what, known, n, err);
    for (size_t i = 0; i < settings_count && result >= 0; i++) {
        const struct setting *setting = &settings_table[i];
        const json_t *value = json_object_get(map, setting->key);
        if (value == NULL || !str_equal(setting->section, section)) continue;
        CLEANUP_FREE char *subject = document == NULL
                                         ? str_format("`%s`", setting->key)
                                         : str_format("%s: %s", document_where(document, value), setting->key);
        if (subject == NULL) return ty_fail_memory(err);
        result = setting_set_json(setting, settings, value, subject, err);
    }
    return result;
}

int settings_read(struct run_settings *settings, const json_t *map, const struct document *document,
                  const char *const *others, size_t n_others, ty_error *err) {
    static const char *const sections[] = {SECTION_FAILURE, SECTION_CHECKPOINT};
    const char *known[KEYS_MAX];
    if (n_others > 0) memcpy(known, others, n_others * sizeof *others);
    memcpy(known + n_others, sections, sizeof sections);
    int result = read_section(settings, map, NULL, document, known, n_others + ARRAY_SIZE(sections), err);
    for (size_t i = 0; i < ARRAY_SIZE(sections) && result >= 0; i++) {
        const json_t *part = json_object_get(map, sections[i]);
        if (part != NULL && !json_is_null(part))
            result = read_section(settings, part, sections[i], document, NULL, 0, err);
    }
    return result;
}

/* A field of ty_run_config; `given` is how a message shows its value. C has no null for numbers: a zero was not
 * given. */
static int set_public(const struct setting *setting, void *member, const void *field, char given[64],
                      ty_error *why) {
    switch (setting->type) {
    case SETTING_FLAG:
        if (*(const bool *)field) *(bool *)member = true;
        return 0;
    case SETTING_RESUME:
        if (*(const bool *)field) *(const char **)member = "";
        return 0;
    case SETTING_SECONDS:
        (void)str_print(given, 64, "%.10g", *(const double *)field);
        return *(const double *)field == 0 ? 0 : set_seconds(setting, member, *(const double *)field, why);
    case SETTING_COUNT:
        (void)snprintf(given, 64, "%d", *(const int *)field);
        return *(const int *)field == 0 ? 0 : set_count(setting, member, true, *(const int *)field, why);
    case SETTING_BYTES:
        (void)snprintf(given, 64, "%lld", (long long)*(const int64_t *)field);
        return set_bytes(setting, member, (double)*(const int64_t *)field, why);
    case SETTING_SIGNAL:
        (void)snprintf(given, 64, "%d", *(const int *)field);
        return *(const int *)field == 0 ? 0 : set_from_text(setting, member, given, why);
    default:
        if (*(const char *const *)field == NULL) return 0;
        (void)snprintf(given, 64, "\"%s\"", *(const char *const *)field);
        return set_from_text(setting, member, *(const char *const *)field, why);
    }
}

int settings_from_public(struct run_settings *settings, const ty_run_config *config, ty_error *err) {
    for (size_t i = 0; i < settings_count; i++) {
        const struct setting *setting = &settings_table[i];
        char given[64] = "";
        ty_error why = {0};
        if (setting->c_offset < 0) continue;
        const void *field = (const char *)config + setting->c_offset;
        if (set_public(setting, member_of(setting, settings), field, given, &why) < 0)
            return refuse_for(setting, setting->key, given, &why, err);
    }
    return 0;
}

/* -- once all is read */

int settings_finish(struct run_settings *settings, enum face face, ty_error *err) {
    const char *resumed = settings->resume;
    settings->face = face;
    if (resumed != NULL && *resumed != '\0') {
        if (settings->name != NULL && !str_equal(resumed, settings->name))
            return ty_fail(err, TY_EUSAGE,
                           "--resume %.80s: the run is called %.80s already; put -- in front of the program",
                           resumed, settings->name);
        settings->name = resumed;
    }
    if (settings->debug != RANK_NONE) {
        if (settings->input == RANK_NONE) settings->input = settings->debug;
        settings->hang_timeout = 0; /* who stands at a breakpoint, and who waits for him, does not hang */
    }
    const char *score = settings->checkpoints.score_attribute;
    char order[SETTING_SPELLED], attribute[SETTING_SPELLED];
    if (score != NULL && !utf8_valid(score, strlen(score)))
        return ty_fail(err, TY_EUSAGE, "%s \"%.80s\" is not UTF-8, so no metric can be called so",
                       setting_spelled(SETTING_IS_score_attribute, face, attribute), score);
    if (settings->checkpoints.score_order == SCORE_MIN && score == NULL)
        return ty_fail(err, TY_EUSAGE,
                       face == FACE_COMMAND ? "%s min needs %s, whose order it is"
                                            : "%s \"min\" needs %s, whose order it is",
                       setting_spelled(SETTING_IS_score_order, face, order),
                       setting_spelled(SETTING_IS_score_attribute, face, attribute));
    if (settings->failures.max_preemption_failures == PREEMPTIONS_AS_FAILURES)
        settings->failures.max_preemption_failures = settings->failures.max_failures != 0 ? -1 : 0;
    return 0;
}
