/* From a path to the lane of its run, and back with the reply. What a handler does is done in a thread; the
 * loop looks at the request, waits SITE_PATIENCE_SECONDS, and sends what there is. What is answered is in
 * answers.c. */
#include "web/api.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "journal/journal.h"
#include "view/run_look.h"

static const struct route stream_route = {.path = "/api/stream", .parameters = "run"};

/* From here on the request is the server's again: it may be gone before the call is freed. */
static void reply(struct api_call *call, unsigned status) {
    const struct http_reply message = {
        .status = status, .type = call->type != NULL ? call->type : "application/json", .body = &call->out};
    call->site->http->reply(call->request, &message);
    call->request->owner = NULL;
    call->request = NULL;
    site_stir(call->site);
}

static void reply_error(struct site *site, struct http_request *request, unsigned status, const char *message,
                        const char *allow) {
    struct buffer body = {0};
    buffer_text(&body, "{\"error\": ");
    buffer_json_text(&body, message);
    buffer_char(&body, '}');
    const struct http_reply answer = {
        .status = status, .type = "application/json", .allow = allow, .body = &body};
    site->http->reply(request, &answer);
    site_stir(site);
}

void api_fail(struct site *site, struct http_request *request, unsigned status, const char *message) {
    reply_error(site, request, status, message, NULL);
}

void api_refuse_method(struct site *site, struct http_request *request, const char *allow) {
    ty_error message;
    (void)ty_fail(&message, TY_EUSAGE, "%.20s: must be one of %s here", request->method, allow);
    reply_error(site, request, 405, message.message, allow);
}

static void fail(struct api_call *call, unsigned status, const char *message) {
    struct http_request *request = TAKE(call->request);
    if (request == NULL) return;
    request->owner = NULL;
    api_fail(call->site, request, status, message);
}

void call_free(struct api_call *call) {
    loop_timer_stop(call->site->loop, &call->patience);
    loop_watch_stop(call->site->loop, &call->pipe_watch);
    for (size_t i = 0; i < ARRAY_SIZE(call->pipe); i++)
        if (call->pipe[i] >= 0) (void)close(call->pipe[i]);
    for (size_t i = 0; i < call->n_found; i++) {
        free(call->found[i].name);
        free(call->found[i].path);
    }
    free(call->found);
    for (size_t i = 0; i < call->n_series; i++)
        view_series_done(&call->series[i]);
    free(call->series);
    for (size_t i = 0; i < call->n_exposed; i++)
        exposed_run_free(call->exposed[i]);
    free(call->exposed);
    free(call->asked);
    url_query_done(&call->query);
    buffer_done(&call->out);
    buffer_done(&call->body);
    free(call);
}

/* What the storage does not answer is 503, to be tried again; what is wrong with the request is 4xx. */
static unsigned status_of(int result) {
    switch (result) {
    case TY_EUSAGE:
        return 400;
    case -EACCES:
    case -EPERM:
        return 403;
    case -ENOENT:
        return 404;
    case -EBUSY:
    case -ETIMEDOUT:
        return 503;
    default:
        return 500;
    }
}

void call_fail(struct api_call *call) {
    if (call->deleted)
        fail(call, 410, "the run was deleted");
    else
        fail(call, status_of(call->result), call->err.message);
}

void call_refuse(struct api_call *call, unsigned status, const char *message) {
    fail(call, status, message);
    call_free(call);
}

/* Notes a run of the list. NULL when memory is short. */
static struct site_run *note_run(struct site *site, const char *id, const char *name, const char *path) {
    uintptr_t *known = hash_get(site->runs, id);
    if (known != NULL) return (struct site_run *)*known;
    struct site_run *run = calloc(1, sizeof *run);
    if (run == NULL) return NULL;
    run->site = site;
    run->name = strdup(name);
    run->path = strdup(path);
    run->news.directory = run->news.logs = -1;
    (void)strcpy(run->id, id);
    if (run->name != NULL && run->path != NULL && hash_set(site->runs, id, (uintptr_t)run) >= 0) return run;
    free(run->name);
    free(run->path);
    free(run);
    return NULL;
}

static void dispatch(struct api_call *call);

/* On the loop, behind each piece of work for a call: the list that was looked at, one of several runs, the
 * answer. The runs that a look found are noted first, whatever became of the request, as the next one asks for
 * them. */
static void call_done(struct lane_job *job) {
    struct api_call *call = (struct api_call *)job;
    for (size_t i = 0; i < call->n_found; i++)
        (void)note_run(call->site, call->found[i].id, call->found[i].name, call->found[i].path);
    if (call->exporting) {
        download_end(call);
        return;
    }
    if (call->run != NULL) news_spend(call->run, call->spent);
    if (call->deleted) indexing_begin(call->run); /* which forgets all of it */
    bool looked = call->route == &route_look;
    /* A plot of several runs is read one run after the other, each in the lane of its own. */
    if (call->request != NULL && call->result >= 0 && call->n_read < call->n_runs && !looked) {
        call->run = call->runs[call->n_read];
        call_post(call, &call->run->lane);
        return;
    }
    loop_timer_stop(call->site->loop, &call->patience);
    /* The ID may be that of a run that has begun since: with the list looked at the path is taken once more. */
    void (*then)(struct api_call * call) = looked ? dispatch : call->route->then;
    if (call->request != NULL && then != NULL && (looked || call->result >= 0)) {
        then(call);
        return;
    }
    /* What the index lacked is read behind this answer, for the next one. */
    for (size_t i = 0; i < SERIES_RUNS; i++)
        if (call->behind[i]) indexing_begin(call->n_runs > 0 ? call->runs[i] : call->run);
    if (call->request == NULL) { /* nobody waits any more */
        call_free(call);
        return;
    }
    if (call->result >= 0 && !call->out.failed)
        reply(call, 200);
    else if (call->result >= 0)
        fail(call, 500, "out of memory");
    else
        call_fail(call);
    call_free(call);
}

/* The server ended before the call did. */
static void call_drop(struct lane_job *job) {
    call_free((struct api_call *)job);
}

/* In the thread of a lane. A run that was removed while it was read, or before, is told as such, whatever the
 * answer made of files that were going. */
static void call_work(struct lane_job *job) {
    struct api_call *call = (struct api_call *)job;
    nanoseconds began = clock_thread();
    bool kept = kept_take(call);
    call->result = kept ? 0 : call->route->answer(call, &call->err);
    call->spent = clock_thread() - began;
    if (kept) call->n_read = call->n_runs;
    if (call->result >= 0 && !kept) kept_add(call);
    call->deleted = call->run != NULL && journal_exists(call->run->path) == 0;
    if (call->deleted && !call->exporting && call->result >= 0) call->result = -ENOENT;
    if (call->exporting) { /* the reader sees the end */
        (void)close(call->pipe[1]);
        call->pipe[1] = -1;
    }
}

/* A look at the list gives up on storage paths, then on single runs, before it is itself given up. */
static int patience_of(const struct api_call *call) {
    return call->run != NULL ? SITE_PATIENCE_SECONDS : 2 * RUN_LOOK_SECONDS + SITE_PATIENCE_SECONDS;
}

/* The answer is given up, not the work: its thread is at it still, and call_done frees the call when that
 * ends. */
static void lose_patience(void *context) {
    struct api_call *call = context;
    ty_error message;
    (void)ty_fail(&message, -ETIMEDOUT, "%s: not answering for %d s",
                  call->run != NULL ? call->run->name : "the storage", patience_of(call));
    if (!call->streaming) fail(call, 503, message.message);
    if (call->exporting) download_give_up(call);
}

void call_post(struct api_call *call, struct lane *lane) {
    call->job = (struct lane_job){.work = call_work, .done = call_done, .drop = call_drop};
    lane_post(call->exporting ? call->site->export_lanes : call->site->lanes, lane, &call->job);
}

void call_post_patiently(struct api_call *call, struct lane *lane) {
    call->patience = (struct loop_timer){.callback = lose_patience, .context = call};
    (void)loop_timer_start(call->site->loop, &call->patience, patience_of(call) * NS_PER_S);
    call_post(call, lane);
}

/* The runs that the query names: the first that is not known, or NULL. */
static const char *take_runs(struct api_call *call) {
    call->n_runs = 0;
    for (size_t i = 0; i < call->query.n; i++) {
        if (!str_equal(call->query.items[i].name, "run")) continue;
        uintptr_t *run = hash_get(call->site->runs, call->query.items[i].value);
        if (run == NULL) return call->query.items[i].value;
        if (call->n_runs < SERIES_RUNS) call->runs[call->n_runs] = (struct site_run *)*run;
        call->n_runs++;
    }
    return NULL;
}

/* Only those who watch know when something is new: nobody else is answered with what was. */
static void note_asked(struct api_call *call) {
    const struct site_run *run = call->run;
    if (run == NULL || call->n_runs > 1 || run->news.n_streams == 0 || run->told == 0) return;
    call->told = run->told;
    call->asked = str_format("%s?%s", call->request->path, call->request->query);
}

static void begin(struct api_call *call) {
    struct site *site = call->site;
    if (call->route == &stream_route) {
        struct http_request *request = TAKE(call->request);
        request->owner = NULL;
        stream_begin(site, request, call->run);
        call_free(call);
    } else if (call->route->file != NULL) {
        download_begin(call);
    } else if (call->acts) { /* behind no answer about its run, and with no limit: what it comes to is told */
        call_post(call, &call->own);
    } else {
        note_asked(call);
        call_post_patiently(call, call->run != NULL ? &call->run->lane : &site->list_lane);
    }
}

/* A list may have ten thousand runs: one that nobody has asked about yet has no index. */
static bool have_indexes(const struct api_call *call) {
    size_t n = call->n_runs > 0 ? call->n_runs : call->run != NULL;
    for (size_t i = 0; i < n; i++) {
        struct site_run *run = call->n_runs > 0 ? call->runs[i] : call->run;
        if (run->index == NULL &&
            view_index_open(run->path, !call->site->config.no_cache, &run->index, NULL) < 0)
            return false;
    }
    return true;
}

/* Taken a second time behind a look at the list, where an ID was not known (call->looked). */
static void dispatch(struct api_call *call) {
    struct site *site = call->site;
    bool stream = !call->acts && str_equal(call->request->path, stream_route.path);
    call->route = stream ? &stream_route : route_find(call, call->request->path);
    if (call->route == NULL) {
        call_refuse(call, 404, "there is nothing here");
        return;
    }
    if (parameters_check(call, &call->err) < 0) {
        call_refuse(call, 400, call->err.message);
        return;
    }
    const char *unknown = take_runs(call);
    uintptr_t *own = call->id[0] != '\0' ? hash_get(site->runs, call->id) : NULL;
    if (call->id[0] != '\0' && own == NULL) unknown = call->id;
    if (unknown != NULL && call->looked) {
        call_refuse(call, 404, "there is no such run");
    } else if (unknown != NULL) {
        call->looked = true;
        call->route = &route_look;
        call_post_patiently(call, &site->list_lane);
    } else if (call->n_runs > SERIES_RUNS) {
        (void)ty_fail(&call->err, TY_EUSAGE, "run=%s: %zu runs are named, at most %d at once",
                      call->runs[0]->id, call->n_runs, SERIES_RUNS);
        call_refuse(call, 400, call->err.message);
    } else {
        call->run = own != NULL ? (struct site_run *)*own : call->n_runs > 0 ? call->runs[0] : NULL;
        if (have_indexes(call))
            begin(call);
        else
            call_refuse(call, 500, "out of memory");
    }
}

/* The call lives until its thread is done and its reply is sent, or given up; `owner` is how the server's news
 * of the request find it. */
void api_request(struct site *site, struct http_request *request) {
    struct api_call *call = calloc(1, sizeof *call);
    if (call == NULL) {
        api_fail(site, request, 500, "out of memory");
        return;
    }
    *call = (struct api_call){.site = site, .request = request, .pipe = {-1, -1}};
    const char *accept = site->http->header(request, "Accept");
    call->openmetrics = accept != NULL && strstr(accept, "application/openmetrics-text") != NULL;
    request->owner = call;
    call->acts = str_equal(request->method, "POST");
    if (call->acts) buffer_append(&call->body, request->body.data, request->body.size);
    if (url_query_parse(request->query, &call->query, &call->err) < 0) {
        call_refuse(call, 400, call->err.message);
        return;
    }
    dispatch(call);
}

/* The client went before the reply, or in the middle of an export. */
void api_gone(struct http_request *request) {
    struct api_call *call = TAKE(request->owner);
    if (call == NULL) return;
    call->request = NULL;
    if (call->exporting) download_close(call);
}
