/* `trainyard checkpoints`: which checkpoints of a run are kept, which of them is the best, and, where that is
 * asked for, whether they are as they were written. It reads the journal and the files, beside a run that goes
 * on as well, and removes nothing. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/metrics.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "controller/run_directory.h"
#include "journal/journal.h"
#include "run/settings.h"

/* What is made of the rows, one after the other. */
struct survey {
    const char *run_path;
    bool verify, text;
    char *attribute;                 /* the metric that tells which are best; NULL: the newest are */
    struct checkpoint_policy policy; /* by which the run's last controller ranked them */
    double *scores;                  /* of the rows */
    size_t n_scores, best;
    struct text_table table; /* of `list` */
    struct buffer lines;     /* of `verify` */
    json_t *list;
    size_t n;
    ty_error bad; /* of the first that is not whole; code 0: none */
};

/* Of all rows before any is shown: which of them is the best is known at the end of the list alone. */
static int add_score(void *context, const struct journal_checkpoint *row) {
    struct survey *survey = context;
    if (ARRAY_GROW(survey->scores, survey->n_scores) < 0) return -ENOMEM;
    survey->scores[survey->n_scores++] = retention_score(row->metrics, survey->attribute);
    return 0;
}

static void add_row(struct survey *survey, const struct journal_checkpoint *row, int64_t bytes, bool best,
                    bool latest) {
    const char *attribute = survey->attribute;
    struct text_table *table = &survey->table;
    CLEANUP(buffer_done) struct buffer text = {0};
    if (survey->n == 0) {
        TABLE_HEADS(table, "NAME", "ATTEMPT", "COMMITTED", "BYTES", "AMONG THESE");
        bool least = survey->policy.score_order == SCORE_MIN;
        if (attribute != NULL) buffer_printf(&text, "SCORE: %s, %s", attribute, least ? "min" : "max");
        if (attribute != NULL) table_head(table, text.data != NULL ? text.data : "");
        buffer_clear(&text);
        table_head(table, "METRICS");
    }
    char when[CLOCK_TEXT];
    (void)clock_format((time_t)(row->time / NS_PER_S), when);
    table_cell(table, row->name);
    buffer_printf(&text, "%d", row->attempt);
    table_take(table, &text);
    table_cell(table, when);
    buffer_printf(&text, "%lld", (long long)bytes);
    table_take(table, &text);
    table_cell(table, best && latest ? "best, latest" : best ? "best" : latest ? "latest" : "");
    double score = retention_score(row->metrics, attribute);
    if (!isnan(score)) buffer_printf(&text, "%.6g", score);
    if (attribute != NULL) table_take(table, &text);
    table_cell(table, row->metrics != NULL ? row->metrics : "");
}

/* Borrowed from the list; NULL for want of memory. */
static json_t *add_entry(struct survey *survey, const struct journal_checkpoint *row, const char *path,
                         bool best, bool latest) {
    double score = retention_score(row->metrics, survey->attribute);
    json_t *metrics = row->metrics != NULL ? metrics_read(row->metrics, strlen(row->metrics)) : NULL;
    json_t *entry =
        json_pack("{s:I, s:s, s:s, s:i, s:f, s:o, s:b, s:b}", "number", (json_int_t)row->number, "name",
                  row->name, "path", path, "attempt", row->attempt, "time", duration_seconds(row->time),
                  "metrics", metrics != NULL ? metrics : json_null(), "best", best, "latest", latest);
    /* JSON has no number for what is infinite; metrics have these words. */
    const char *infinite = isinf(score) ? score > 0 ? "Infinity" : "-Infinity" : NULL;
    if (survey->attribute != NULL)
        (void)json_object_set_new(entry, "score",
                                  isnan(score)       ? json_null()
                                  : infinite != NULL ? json_string(infinite)
                                                     : json_real(score));
    return json_array_append_new(survey->list, entry) < 0 ? NULL : entry;
}

static int add(void *context, const struct journal_checkpoint *row) {
    struct survey *survey = context;
    CLEANUP(buffer_done) struct buffer path = {0};
    ty_error err = {0};
    size_t n_files = 0;
    int64_t bytes = 0;
    checkpoint_path(survey->run_path, row->name, &path);
    if (path.failed) return -ENOMEM;
    /* "ok", "outside" (nobody but its owner can tell), or what is wrong with it. */
    bool place = checkpoint_is_place(row->name);
    const char *state = place ? "outside" : "ok";
    int whole = !survey->verify ? 0
                : place         ? checkpoint_check_place(survey->run_path, "", path.data, &err)
                                : checkpoint_verify(path.data, &err);
    if (whole < 0) state = err.message;
    if (whole < 0 && survey->bad.code == 0) survey->bad = err;
    bool measured = !place && checkpoint_measure(path.data, &n_files, &bytes);
    bool best = survey->n_scores > 0 && survey->n == survey->best;
    bool latest = survey->n + 1 == survey->n_scores;
    if (survey->text && survey->verify) {
        utf8_escape(row->name, strlen(row->name), &survey->lines);
        buffer_text(&survey->lines, ": ");
        utf8_escape(state, strlen(state), &survey->lines);
        buffer_char(&survey->lines, '\n');
    } else if (survey->text) {
        add_row(survey, row, bytes, best, latest);
    } else {
        json_t *entry = add_entry(survey, row, path.data, best, latest);
        if (entry == NULL) return -ENOMEM;
        if (measured) (void)json_object_set_new(entry, "files", json_integer((json_int_t)n_files));
        if (measured) (void)json_object_set_new(entry, "bytes", json_integer(bytes));
        if (survey->verify) (void)json_object_set_new(entry, "state", json_string(state));
    }
    survey->n++;
    return 0;
}

static int print(struct survey *survey, ty_error *err) {
    if (survey->text) {
        if (survey->n == 0) buffer_text(&survey->lines, "no checkpoints\n");
        if (survey->n > 0 && !survey->verify) table_format(&survey->table, &survey->lines);
        return cli_print(&survey->lines, err);
    }
    cli_json_add(TAKE(survey->list), &survey->lines);
    return cli_print(&survey->lines, err);
}

static void forget(struct survey *survey) {
    json_decref(survey->list);
    free(survey->attribute);
    free(survey->scores);
    table_done(&survey->table);
    buffer_done(&survey->lines);
    *survey = (struct survey){.run_path = survey->run_path, .verify = survey->verify, .text = survey->text};
}

/* journal_read begins again where the journal changed under it, so what an earlier try found is forgotten. */
static int read_rows(void *context, struct journal *journal, ty_error *err) {
    struct survey *survey = context;
    forget(survey);
    survey->list = json_array();
    /* Checkpoints are ranked as the run's last controller ranked them. */
    struct run_replay replay = {0};
    int result = journal_replay(journal, &replay, err);
    const struct event_run *run = &replay.run.event.of.run;
    const char *attribute = run->checkpoint_score_attribute;
    survey->attribute = attribute != NULL ? strdup(attribute) : NULL;
    survey->policy.score_order = str_equal(run->checkpoint_score_order, "min") ? SCORE_MIN : SCORE_MAX;
    replay_done(&replay);
    survey->policy.score_attribute = survey->attribute;
    if (result >= 0) result = journal_each_checkpoint(journal, add_score, survey, err);
    survey->best = retention_best(&survey->policy, survey->scores, survey->n_scores);
    if (result >= 0) result = journal_each_checkpoint(journal, add, survey, err);
    return result == -ENOMEM ? ty_fail_memory(err) : result;
}

static int checkpoints_run(const struct arguments *arguments, ty_error *err) {
    static const char *const actions[] = {"list", "verify"};
    struct storage_options options = {0};
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
    /* No run's name has a slash in it. */
    bool is_path = strchr(word, '/') != NULL, is_run = !is_path || journal_exists(word) > 0;
    if (!is_run && verify) {
        /* A directory of a checkpoint itself, to be verified without its run. */
        CLEANUP(buffer_done) struct buffer out = {0};
        result = checkpoint_verify(word, err);
        if (result < 0) return result;
        buffer_text(&out, text ? "" : "[{\"path\": ");
        if (text)
            utf8_escape(word, strlen(word), &out);
        else
            buffer_json_text(&out, word);
        buffer_text(&out, text ? ": ok\n" : ", \"state\": \"ok\"}]\n");
        return cli_print(&out, err);
    }
    if (!is_run) return ty_fail(err, TY_EUSAGE, "%s is no directory of a run: it has no run.db", word);
    /* Absolute, as JSON tells it to programs that may stand elsewhere. */
    CLEANUP_FREE char *path =
        is_path ? realpath(word, NULL) : run_directory_find(options.storage_path, word, err);
    if (path == NULL && is_path) return ty_fail(err, -errno, "cannot find %s: %s", word, strerror(errno));
    if (path == NULL) return err->code;
    struct survey survey = {.run_path = path, .verify = verify, .text = text};
    result = journal_read(path, read_rows, &survey, err);
    if (result >= 0) result = print(&survey, err);
    if (result >= 0 && survey.bad.code < 0) result = ty_fail(err, survey.bad.code, "%s", survey.bad.message);
    forget(&survey);
    return result;
}

const struct command command_checkpoints = {
    .name = "checkpoints",
    .summary = "show or verify the checkpoints of a run",
    .usage = (const char *const[]){"list NAME|PATH [OPTION...]", "verify NAME|PATH [OPTION...]", NULL},
    .description =
        "`list` shows the committed checkpoints that are kept, oldest first, with the metrics of rank 0's "
        "report, which of them is the latest and which the best; where the run ranks them by a metric "
        "(--checkpoint-score-attribute), also the score of each: with --format json as `score`, null for none, "
        "beside `best` and `latest`. `verify` reads every file of them and compares sizes and checksums with "
        "what was stored; it fails, and names the first file, when one is missing or different. A run that is "
        "resumed, or starts its workers again, looks at the latest by itself, and passes over one that is "
        "damaged. PATH is the directory of a run, or, with `verify`, of a checkpoint.",
    .groups = (const struct option_group *const[]){&storage_group, &format_group, NULL},
    .min_words = 1,
    .max_words = 2,
    .missing = "list or verify? As in: trainyard checkpoints verify NAME",
    .run = checkpoints_run,
};
