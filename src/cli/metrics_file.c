/* The process that keeps the file of `trainyard run --metrics-file`: it reads the journal as everybody does who
 * looks at a run, and is told of the end over its standard input, a socket. A file of the text format 0.0.4 is
 * written beside and renamed, so that a reader finds a whole one. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/kernel.h"
#include "base/str.h"
#include "cli/command.h"
#include "view/export.h"

enum { NICE = 10 /* training goes first */, FIRST_MS = 1000 };

/* `made` becomes the status of the file that has the name now. */
static int write_once(const struct view_exposed *run, const char *path, struct stat *made, ty_error *err) {
    static const struct view_exposition how = {.openmetrics = false};
    CLEANUP(buffer_done) struct buffer text = {0};
    struct file_draft draft;
    int result = view_exposition_encode(run, 1, &how, &text, err);
    if (result < 0) return result;
    result = file_draft_open(path, 0666, &draft);
    if (result == 0) result = file_draft_close(&draft, file_write_all(draft.fd, text.data, text.size));
    if (result == 0) *made = draft.status;
    return result < 0 ? ty_fail(err, result, "cannot write %s: %s", path, strerror(-result)) : 0;
}

int metrics_file_main(int argc, char **argv) {
    int64_t period;
    char told[sizeof((ty_error *)NULL)->message] = "", word;
    if (argc != 5 || !str_to_int64(argv[4], 1, INT32_MAX / 2, &period)) return ty_error_exit_status(TY_EUSAGE);
    CLEANUP(view_counts_done) struct view_counts counts = {0};
    /* What somebody else puts there, another run of the same file, is not ours to remove. */
    struct stat made = {0};
    const struct view_exposed run = {.path = argv[1], .name = argv[2], .counts = &counts};
    /* Locks and channels of the run are none of this process's: held open here they would say that the run
     * lives. */
    kernel_close_from(STDERR_FILENO + 1, false);
    (void)setpriority(PRIO_PROCESS, 0, NICE);
    for (int wait = FIRST_MS;; wait *= 2) { /* what has just begun changes sooner */
        ty_error err = {0};
        /* The first failure is told, and each one that is another. */
        if (write_once(&run, argv[3], &made, &err) < 0 && !str_equal(err.message, told)) {
            (void)snprintf(told, sizeof told, "%s", err.message);
            (void)send(STDIN_FILENO, told, strlen(told), MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        struct pollfd control = {.fd = STDIN_FILENO, .events = POLLIN};
        if (wait > period) wait = (int)period;
        if (poll(&control, 1, wait) <= 0) continue;
        if (recv(STDIN_FILENO, &word, 1, 0) > 0) break;
        return write_once(&run, argv[3], &made, NULL) < 0 ? EXIT_FAILURE : 0; /* the controller is no more */
    }
    return file_remove_own(argv[3], &made) < 0 ? EXIT_FAILURE : 0;
}
