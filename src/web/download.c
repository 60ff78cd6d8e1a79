/* Exports and whole logs: sent while a thread still makes them. A pipe lies between the thread and the loop, so
 * that the thread writes no faster than the client takes, and a client that goes ends the thread's writes. What
 * is sent is made by view. */
#include "web/api.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/idset.h"
#include "view/export.h"
#include "web/run_output.h"

enum { EXPORT_BLOCK = 64 << 10, EXPORT_AHEAD = 256 << 10 };

/* -- the thread */

/* Waits while the pipe is full, which is while the client does not read; a client that went is EPIPE. */
static int write_pipe(void *context, const char *text, size_t size, ty_error *err) {
    const struct api_call *call = context;
    while (size > 0) {
        ssize_t written = write(call->pipe[1], text, size);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return ty_fail(err, -errno, "cannot send: %s", strerror(errno));
        text += written;
        size -= (size_t)written;
    }
    return 0;
}

static int read_selection(const struct api_call *call, struct view_selection *selection, struct idset *ranks,
                          ty_error *err) {
    int result = parameter_ranks(call, "rank", ranks, &selection->ranks, err);
    return result < 0 ? result : parameter_history(call, &selection->history, err);
}

int answer_csv(struct api_call *call, ty_error *err) {
    CLEANUP(idset_done) struct idset ranks = {0};
    struct view_selection selection = {0};
    struct view_csv *csv = NULL;
    int result = read_selection(call, &selection, &ranks, err);
    if (result >= 0) result = view_csv_open(call->run->path, &selection, &csv, err);
    if (result < 0) return result;
    result = view_csv_write_head(csv, write_pipe, call, err);
    if (result >= 0) result = view_csv_write_rows(csv, write_pipe, call, err);
    view_csv_close(csv);
    return result;
}

int answer_jsonl(struct api_call *call, ty_error *err) {
    CLEANUP(idset_done) struct idset ranks = {0};
    struct view_selection selection = {0};
    int result = read_selection(call, &selection, &ranks, err);
    return result < 0 ? result : view_jsonl_write(call->run->path, &selection, write_pipe, call, err);
}

static int read_trace(const struct api_call *call, struct view_trace *trace, struct idset *ranks,
                      ty_error *err) {
    int result = parameter_ranks(call, "ranks", ranks, &trace->ranks, err);
    if (result >= 0) result = parameter_numbers(call, &trace->from, &trace->to, err);
    return result < 0 ? result : parameter_flag(call, "with_profile", &trace->with_profile, err);
}

int answer_trace(struct api_call *call, ty_error *err) {
    CLEANUP(idset_done) struct idset ranks = {0};
    struct view_trace trace = {0};
    int result = read_trace(call, &trace, &ranks, err);
    return result < 0 ? result
                      : view_trace_write(call->run->name, call->run->path, &trace, write_pipe, call, err);
}

static int send_file(struct api_call *call, int fd, ty_error *err) {
    CLEANUP_FREE char *block = malloc(EXPORT_BLOCK);
    if (block == NULL) return ty_fail_memory(err);
    for (;;) {
        ssize_t got = read(fd, block, EXPORT_BLOCK);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return got == 0 ? 0 : ty_fail(err, -errno, "cannot read the file: %s", strerror(errno));
        int result = write_pipe(call, block, (size_t)got, err);
        if (result < 0) return result;
    }
}

int answer_whole_log(struct api_call *call, ty_error *err) {
    CLEANUP_FD int fd = run_output_open(call->run->path, call->rank, err);
    return fd < 0 ? fd : send_file(call, fd, err);
}

int answer_profile(struct api_call *call, ty_error *err) {
    CLEANUP_FD int fd = run_output_profile(call->run->path, call->rank, err);
    return fd < 0 ? fd : send_file(call, fd, err);
}

/* -- the loop */

/* "NAME.csv": what is safe in any file system of the name, as much of it as there is room for before the
 * ending. */
static void file_name(const struct api_call *call, char *name, size_t size) {
    size_t n = 0, most = size - strlen(".") - strlen(call->route->file) - 1;
    for (const char *at = call->run->name; *at != '\0' && n < most; at++, n++) {
        bool word = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || (*at >= '0' && *at <= '9');
        name[n] = word || *at == '-' || (*at == '.' && n > 0) ? *at : '_';
    }
    (void)snprintf(name + n, size - n, ".%s", call->route->file);
}

/* The head of the reply waits for the first bytes: what cannot be read is an error, and no file that breaks
 * off. Only what is refused, a link in the place of a file, breaks off. */
static void begin_stream(struct api_call *call) {
    char name[128];
    if (call->streaming) return;
    file_name(call, name, sizeof name);
    call->site->http->stream(call->request, call->route->type, name);
    call->streaming = true;
}

/* All that the thread wrote went to the client, and what came of it is known. */
static void settle(struct api_call *call) {
    if (!call->streaming && call->result < 0 && call->result != TY_EUSAGE) {
        call_fail(call);
        return;
    }
    begin_stream(call);
    struct http_request *request = TAKE(call->request);
    request->owner = NULL;
    call->site->http->finish(request, call->result >= 0);
    site_stir(call->site);
}

/* Two ends come in any order, each on the loop. A call that was given up counts among those that are left until
 * its thread has come back. */
void download_end(struct api_call *call) {
    if (!call->finished) {
        call->finished = true; /* the pipe may still hold its end */
        return;
    }
    if (call->request != NULL) settle(call);
    if (call->left) {
        call->site->n_left--;
        call->run->n_left--;
    } else {
        call->site->n_exports--;
    }
    call_free(call);
}

void download_close(struct api_call *call) {
    if (call->pipe[0] < 0) return;
    loop_watch_stop(call->site->loop, &call->pipe_watch);
    (void)close(call->pipe[0]); /* a thread that writes on finds that out, unless it hangs */
    call->pipe[0] = -1;
    if (!call->left)
        (void)loop_timer_start(call->site->loop, &call->patience, SITE_PATIENCE_SECONDS * NS_PER_S);
    download_end(call);
}

/* The thread keeps the call, and finds the pipe closed when it writes on. The reply breaks off, so that no
 * client takes what it has for the whole. */
void download_give_up(struct api_call *call) {
    struct http_request *request = TAKE(call->request);
    call->left = true;
    call->site->n_exports--;
    call->site->n_left++;
    call->run->n_left++;
    if (request != NULL) {
        request->owner = NULL;
        call->site->http->finish(request, false);
        site_stir(call->site);
    }
    download_close(call);
}

/* What is in the pipe goes to the client, unless much waits for it already: then it is the client who is waited
 * for, HTTP_STALL_SECONDS at most, and else the thread. */
static void on_readable(void *context, unsigned events) {
    (void)events;
    struct api_call *call = context;
    struct site *site = call->site;
    char block[EXPORT_BLOCK];
    ssize_t got = read(call->pipe[0], block, sizeof block);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
        download_close(call);
        return;
    }
    begin_stream(call);
    site->http->write(call->request, block, (size_t)got);
    if (site->http->waiting(call->request) >= EXPORT_AHEAD) {
        (void)loop_watch_start(site->loop, &call->pipe_watch, call->pipe[0], 0);
        loop_timer_stop(site->loop, &call->patience);
    } else {
        (void)loop_timer_start(site->loop, &call->patience, SITE_STALL_SECONDS * NS_PER_S);
    }
    site_stir(site);
}

/* The client has taken all that waited: the pipe is read again, and from now on it is the thread who is waited
 * for. */
void api_drained(struct http_request *request) {
    struct api_call *call = request->owner;
    if (call == NULL || !call->exporting || call->pipe[0] < 0) return;
    (void)loop_watch_start(call->site->loop, &call->pipe_watch, call->pipe[0], LOOP_READABLE);
    (void)loop_timer_start(call->site->loop, &call->patience, SITE_STALL_SECONDS * NS_PER_S);
}

/* What is wrong with the parameters is told before the first byte is sent. */
static int check(const struct api_call *call, ty_error *err) {
    CLEANUP(idset_done) struct idset rows = {0}, traced = {0};
    struct view_selection selection = {0};
    struct view_trace trace = {0};
    int result = read_selection(call, &selection, &rows, err);
    return result < 0 ? result : read_trace(call, &trace, &traced, err);
}

/* The end that the thread writes to stays blocking; ours must not block the loop. Threads that hang with
 * earlier downloads leave fewer for others, so that there is a bound on these too. */
void download_begin(struct api_call *call) {
    struct site *site = call->site;
    if (check(call, &call->err) < 0) {
        call_refuse(call, 400, call->err.message);
        return;
    }
    if (call->run->n_left > 0) {
        (void)ty_fail(&call->err, -ETIMEDOUT, "%s: not answering: an earlier download of it hangs",
                      call->run->name);
        call_refuse(call, 503, call->err.message);
        return;
    }
    if (site->n_exports == SITE_EXPORTS || site->n_left >= LANE_THREADS - SITE_EXPORTS ||
        pipe2(call->pipe, O_CLOEXEC) < 0) {
        call_refuse(call, 503, "too many downloads at once: try again when one has ended");
        return;
    }
    site->n_exports++;
    call->exporting = true;
    call->pipe_watch = (struct loop_watch){.callback = on_readable, .context = call};
    int flags = fcntl(call->pipe[0], F_GETFL);
    (void)fcntl(call->pipe[0], F_SETFL, flags | O_NONBLOCK);
    (void)loop_watch_start(site->loop, &call->pipe_watch, call->pipe[0], LOOP_READABLE);
    call_post_patiently(call, &call->own);
}
