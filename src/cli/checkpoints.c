/* `trainyard checkpoints`: which checkpoints of a run are kept, and whether they are as they were written. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "base/utf8.h"
#include "checkpoint/checkpoint.h"
#include "cli/command.h"
#include "controller/run_directory.h"
#include "journal/journal.h"

struct checkpoints_options {
    const char *storage_path;
};

static const struct option_spec specs[] = {
    {"storage-path", 0, "DIR", "where runs are kept (default: ~/trainyard_runs)", option_text,
     offsetof(struct checkpoints_options, storage_path), NULL},
};
static const struct option_group checkpoints_group = {"Checkpoints", specs, ARRAY_SIZE(specs)};

/* What is made of the rows, one after the other. */
struct survey {
    const char *run_path;
    bool verify, text;
    struct buffer lines;
    json_t *list;
    size_t n;
    ty_error bad; /* of the first that is not whole; code 0: none */
};

/* The state of one: "ok", "outside" (nobody but its owner can tell), or what is wrong with it. */
static const char *look(struct survey *survey, const char *name, const char *path, ty_error *err) {
    if (checkpoint_is_outside(name)) return "outside";
    if (!survey->verify) return "";
    if (checkpoint_verify(path, err) >= 0) return "ok";
    if (survey->bad.code == 0) survey->bad = *err;
    return err->message;
}

static void add_text(struct survey *survey, const struct journal_checkpoint *row, const char *state,
                     int64_t bytes) {
    struct buffer *out = &survey->lines;
    char when[32] = "";
    struct tm parts;
    time_t seconds = (time_t)(row->time / NS_PER_S);
    if (localtime_r(&seconds, &parts) != NULL) (void)strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &parts);
    utf8_escape(row->name, strlen(row->name), out);
    if (survey->verify) {
        buffer_text(out, ": ");
        utf8_escape(state, strlen(state), out);
    } else {
        buffer_printf(out, "  attempt %d  %s  %lld bytes  ", row->attempt, when, (long long)bytes);
        const char *metrics = row->metrics != NULL ? row->metrics : "";
        utf8_escape(metrics, strlen(metrics), out);
    }
    buffer_char(out, '\n');
}

static int add(void *context, const struct journal_checkpoint *row) {
    struct survey *survey = context;
    CLEANUP(buffer_done) struct buffer path = {0};
    ty_error err = {0};
    size_t n_files = 0;
    int64_t bytes = 0;
    checkpoint_path(survey->run_path, row->name, &path);
    if (path.failed) return -ENOMEM;
    const char *state = look(survey, row->name, path.data, &err);
    bool measured = !checkpoint_is_outside(row->name) && checkpoint_measure(path.data, &n_files, &bytes);
    survey->n++;
    if (survey->text) {
        add_text(survey, row, state, bytes);
        return 0;
    }
    json_t *metrics = row->metrics != NULL ? json_loads(row->metrics, 0, NULL) : NULL;
    json_t *entry =
        json_pack("{s:I, s:s, s:s, s:i, s:f, s:o}", "number", (json_int_t)row->number, "name", row->name,
                  "path", path.data, "attempt", row->attempt, "time", (double)row->time / (double)NS_PER_S,
                  "metrics", metrics != NULL ? metrics : json_null());
    if (measured) (void)json_object_set_new(entry, "files", json_integer((json_int_t)n_files));
    if (measured) (void)json_object_set_new(entry, "bytes", json_integer(bytes));
    if (survey->verify) (void)json_object_set_new(entry, "state", json_string(state));
    return json_array_append_new(survey->list, entry) < 0 ? -ENOMEM : 0;
}

static int print(struct survey *survey, ty_error *err) {
    if (survey->text) {
        if (survey->n == 0) buffer_text(&survey->lines, "no checkpoints\n");
        return cli_print(&survey->lines, err);
    }
    CLEANUP_FREE char *text = json_dumps(survey->list, JSON_INDENT(1));
    if (text == NULL) return ty_fail_memory(err);
    buffer_printf(&survey->lines, "%s\n", text);
    return cli_print(&survey->lines, err);
}

/* A directory of a checkpoint itself, to be verified without its run. */
static int verify_one(const char *path, bool text, ty_error *err) {
    CLEANUP(buffer_done) struct buffer out = {0};
    int result = checkpoint_verify(path, err);
    if (result < 0) return result;
    buffer_text(&out, text ? "" : "[{\"path\": ");
    if (text)
        utf8_escape(path, strlen(path), &out);
    else
        buffer_json_text(&out, path);
    buffer_text(&out, text ? ": ok\n" : ", \"state\": \"ok\"}]\n");
    return cli_print(&out, err);
}

static int survey_run(const char *path, bool verify, bool text, ty_error *err) {
    struct journal *journal = NULL;
    int result = journal_open(path, JOURNAL_READ, &journal, err);
    if (result < 0) return result;
    struct survey survey = {.run_path = path, .verify = verify, .text = text, .list = json_array()};
    result = journal_each_checkpoint(journal, add, &survey, err);
    if (result == -ENOMEM) (void)ty_fail_memory(err);
    if (result >= 0) result = print(&survey, err);
    if (result >= 0 && survey.bad.code < 0) result = ty_fail(err, survey.bad.code, "%s", survey.bad.message);
    journal_close(journal);
    json_decref(survey.list);
    buffer_done(&survey.lines);
    return result;
}

/* The run's directory: of a path itself, else found by the run's name. The caller frees. */
static char *find_run(const char *word, const char *storage_path, ty_error *err) {
    if (strchr(word, '/') == NULL) return run_directory_find(storage_path, word, err);
    if (journal_exists(word)) return realpath(word, NULL);
    (void)ty_fail(err, TY_EUSAGE, "%s is no directory of a run: it has no run.db", word);
    return NULL;
}

static int checkpoints_run(const struct arguments *arguments, ty_error *err) {
    static const char *const actions[] = {"list", "verify"};
    struct checkpoints_options options = {0};
    struct format_options format = {0};
    char hint[STR_HINT_SIZE];
    const char *action = arguments->words[0];
    int result = options_apply(arguments, (void *[]){&options, &format}, err);
    if (result < 0) return result;
    bool verify = str_equal(action, "verify");
    if (!verify && !str_equal(action, "list"))
        return ty_fail(err, TY_EUSAGE, "unknown action '%.80s': list or verify%s", action,
                       str_hint(action, actions, ARRAY_SIZE(actions), hint));
    if (arguments->n_words < 2) return ty_fail(err, TY_EUSAGE, "of which run? `trainyard status` lists them");
    const char *word = arguments->words[1];
    bool text = format.format == FORMAT_TEXT;
    if (verify && strchr(word, '/') != NULL && !journal_exists(word)) return verify_one(word, text, err);
    CLEANUP_FREE char *path = find_run(word, options.storage_path, err);
    return path == NULL ? err->code : survey_run(path, verify, text, err);
}

const struct command command_checkpoints = {
    .name = "checkpoints",
    .summary = "show or verify the checkpoints of a run",
    .usage = (const char *const[]){"list NAME|PATH [OPTION...]", "verify NAME|PATH [OPTION...]", NULL},
    .description =
        "`list` shows the committed checkpoints that are kept, oldest first, with the metrics of "
        "rank 0's report. `verify` reads "
        "every file of them and compares sizes and checksums with what was stored; it fails, and "
        "names the first file, when one is "
        "missing or different. A run that is resumed, or starts its workers again, looks at the latest by "
        "itself, and passes over one that is damaged. PATH is the directory of a run, or, with `verify`, of a "
        "checkpoint.",
    .groups = (const struct option_group *const[]){&checkpoints_group, &format_group, NULL},
    .min_words = 1,
    .max_words = 2,
    .missing = "list or verify? As in: trainyard checkpoints verify NAME",
    .run = checkpoints_run,
};
