/* `trainyard trace`: a run over time, for Perfetto and chrome://tracing, of all of it, or of some ranks and a
 * span of reports. Here are the options and the file; what a trace holds is made in view/trace.c, piece by
 * piece, so that a long run does not lie in memory. */
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "cli/command.h"
#include "controller/run_directory.h"
#include "view/export.h"

struct trace_options {
    struct rank_choice wanted;
    const char *output;
    int64_t from, to;
    bool profile;
};

static int set_number(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    int64_t *number = (int64_t *)(void *)((char *)target + option->offset);
    if (str_to_int64(value, 1, INT64_MAX, number)) return 0;
    return ty_fail(err, TY_EUSAGE, "'%.40s' is not a whole number from 1 on", value);
}

static const struct option_spec specs[] = {
    {"output", 'o', "FILE.json[.gz]", "where to; compressed where the name ends in .gz", option_output,
     offsetof(struct trace_options, output), NULL},
    {"ranks", 0, "R[,R-R...]", "only these ranks", option_ranks, offsetof(struct trace_options, wanted), NULL},
    {"from", 0, "N", "reports from this number on", set_number, offsetof(struct trace_options, from), NULL},
    {"to", 0, "N", "reports up to this number", set_number, offsetof(struct trace_options, to), NULL},
    {"with-profile", 0, NULL, "with what torch's profiler saw in the ranks that `trainyard.profile` was for",
     option_flag, offsetof(struct trace_options, profile), NULL},
};
static const struct option_group trace_group = {"Options", specs, ARRAY_SIZE(specs)};

struct trace_file {
    gzFile file;
    const char *path;
};

/* gzwrite takes an unsigned and answers an int: pieces of 1 GiB fit both. zlib's codes tell of the system's
 * error only as Z_ERRNO, and errno is then what it was: read before gzerror. */
static int write_piece(void *context, const char *text, size_t size, ty_error *err) {
    const struct trace_file *to = context;
    while (size > 0) {
        unsigned piece = size < (1U << 30) ? (unsigned)size : 1U << 30;
        if (gzwrite(to->file, text, piece) != (int)piece) {
            int code, why = errno;
            const char *told = gzerror(to->file, &code);
            return ty_fail(err, code == Z_ERRNO && why > 0 ? -why : -EIO, "cannot write %s: %s", to->path,
                           code == Z_ERRNO ? strerror(why) : told);
        }
        text += piece;
        size -= piece;
    }
    return 0;
}

/* Both forms go by way of zlib, whose "T" writes what it is given. A full disk may be told as late as gzclose,
 * which writes what zlib still holds, and only then is the draft given its name. */
static int write_trace(const char *name, const char *path, const struct trace_options *options, ty_error *err) {
    const char *end = strrchr(options->output, '.');
    struct file_draft draft;
    int result = file_draft_open_output(options->output, 0666, &draft);
    if (result < 0) return ty_fail(err, TY_EUSAGE, "--output %s: %s", options->output, strerror(-result));
    const struct view_trace trace = {.ranks = rank_choice_get(&options->wanted),
                                     .from = (uint64_t)options->from,
                                     .to = (uint64_t)options->to,
                                     .with_profile = options->profile};
    struct trace_file to = {gzdopen(draft.fd, str_equal(end, ".gz") ? "w" : "wT"), options->output};
    if (to.file == NULL) {
        (void)file_draft_close(&draft, -ENOMEM);
        return ty_fail_memory(err);
    }
    draft.fd = -1; /* zlib's */
    result = view_trace_write(name, path, &trace, write_piece, &to, err);
    int ended = gzclose(to.file), why = ended == Z_ERRNO && errno > 0 ? errno : EIO;
    if (ended != Z_OK && result >= 0)
        result = ty_fail(err, -why, "cannot write %s: %s", options->output, strerror(why));
    int closed = file_draft_close(&draft, result);
    if (closed < 0 && result >= 0)
        result = ty_fail(err, closed, "cannot write %s: %s", options->output, strerror(-closed));
    return result;
}

static int trace_run(const struct arguments *arguments, ty_error *err) {
    struct trace_options options = {0};
    struct storage_options storage = {0};
    const char *name = arguments->words[0];
    int result = options_apply(arguments, (void *[]){&options, &storage}, err);
    if (result >= 0 && options.output == NULL)
        result = ty_fail(err, TY_EUSAGE, "where to? name a file with --output FILE.json[.gz]");
    if (result >= 0 && options.to > 0 && options.from > options.to)
        result = ty_fail(err, TY_EUSAGE, "--from %lld is above --to, %lld", (long long)options.from,
                         (long long)options.to);
    CLEANUP_FREE char *path = result >= 0 ? run_directory_find(storage.storage_path, name, err) : NULL;
    if (result >= 0) result = path == NULL ? err->code : write_trace(name, path, &options, err);
    idset_done(&options.wanted.ranks);
    return result;
}

const struct command command_trace = {
    .name = "trace",
    .summary = "write a run as a trace for Perfetto",
    .usage = (const char *const[]){"NAME -o FILE.json[.gz] [OPTION...]", NULL},
    .description =
        "Attempts, starts, reports of each rank, checkpoints, failures and the means of the metrics over time, "
        "as ui.perfetto.dev and chrome://tracing open them; at most 256 MiB, the file says where it was cut.",
    .groups = (const struct option_group *const[]){&trace_group, &storage_group, NULL},
    .min_words = 1,
    .max_words = 1,
    .missing = "which run? `trainyard status` lists them",
    .run = trace_run,
};
