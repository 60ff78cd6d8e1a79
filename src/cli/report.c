/* `trainyard report`: a worker in any language hands over metrics, and perhaps a checkpoint, through the
 * channel that it has inherited. It ends when the report is done: with a checkpoint, when that is committed.
 * Values are numbers, NaN and infinities among them, which a diverging loss is; the metrics of a program may be
 * any JSON, those of this command are not. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <trainyard/worker.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/terminal.h"

struct report_options {
    const char *checkpoint;
};

static const struct option_spec specs[] = {
    {"checkpoint", 0, "DIR",
     "a directory whose files become the checkpoint of this report; every rank must then report", option_text,
     offsetof(struct report_options, checkpoint), NULL},
};
static const struct option_group report_group = {"Options", specs, ARRAY_SIZE(specs)};

/* A number; also those that are none, which a diverging loss is. */
static bool parse_value(const char *text, double *value) {
    static const struct {
        const char *text;
        double value;
    } special[] = {{"nan", (double)NAN},
                   {"inf", (double)INFINITY},
                   {"+inf", (double)INFINITY},
                   {"-inf", -(double)INFINITY}};
    for (size_t i = 0; i < ARRAY_SIZE(special); i++) {
        if (strcasecmp(text, special[i].text) != 0) continue;
        *value = special[i].value;
        return true;
    }
    return str_to_double(text, value);
}

static int report_run(const struct arguments *arguments, ty_error *err) {
    struct report_options options = {0};
    int result = options_apply(arguments, (void *[]){&options}, err);
    if (result < 0) return result;
    if (arguments->n_words == 0 && options.checkpoint == NULL)
        return ty_fail(err, TY_EUSAGE, "nothing to report: give NAME=NUMBER, --checkpoint DIR, or both");
    CLEANUP_FREE ty_metric *metrics = calloc(arguments->n_words + 1, sizeof *metrics);
    if (metrics == NULL) return ty_fail_memory(err);
    for (size_t i = 0; i < arguments->n_words; i++) {
        /* "loss=0.31" taken apart in place. */
        char *word = arguments->words[i];
        char *equals = strchr(word, '=');
        if (equals == NULL || equals == word)
            return ty_fail(err, TY_EUSAGE, "'%.80s' must be NAME=NUMBER, as in loss=0.31", word);
        if (!parse_value(equals + 1, &metrics[i].value))
            return ty_fail(err, TY_EUSAGE, "'%.80s': the value must be a number, nan or inf", word);
        *equals = '\0';
        if (strlen(word) > 255)
            return ty_fail(err, TY_EUSAGE, "metric '%.80s...': a name has at most 255 bytes", word);
        metrics[i].name = word;
        for (size_t j = 0; j < i; j++)
            if (str_equal(metrics[j].name, metrics[i].name))
                return ty_fail(err, TY_EUSAGE, "metric '%.80s' is given twice", metrics[i].name);
    }
    ty_worker *worker = inside_worker(err);
    if (worker == NULL) return err->code;
    result = ty_report(worker, (ty_metrics){metrics, arguments->n_words}, options.checkpoint, err);
    if (result > 0) terminal_warning("report", err->message);
    return result < 0 ? result : EXIT_SUCCESS;
}

const struct command command_report = {
    .name = "report",
    .summary = "hand over metrics, and perhaps a checkpoint, from inside a worker",
    .usage = (const char *const[]){"NAME=NUMBER... [--checkpoint DIR]", NULL},
    .description =
        "For workers in any language: speaks to the worker's agent over the socket that the worker "
        "inherited. Without a checkpoint it returns at once; with one it returns when the checkpoint of "
        "this report is committed.",
    .examples = (const char *const[]){"trainyard report loss=0.31 step=40 --checkpoint ./state",
                                      "two metrics and the files below ./state", NULL},
    .groups = (const struct option_group *const[]){&report_group, NULL},
    .max_words = 4096,
    .run = report_run,
};
