/* `/metrics`: behind a look at the list each run is read in its own lane, all at once. One that does not answer
 * is left out, and keeps neither the list nor another run waiting. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "web/api.h"

/* Shared by the call and the jobs that read for it; freed by the last of these, as the call may go on before
 * them. */
struct exposing {
    struct api_call *call; /* NULL: it goes on with what there was in time */
    struct loop_timer patience;
    size_t n_reading;
};

struct exposing_job {
    struct lane_job base;
    struct exposing *of;
    struct site_run *run;
    size_t place;
    struct exposed_run *read; /* owned; NULL: the run cannot be read */
};

static void read_run(struct lane_job *base) {
    struct exposing_job *job = (struct exposing_job *)base;
    const struct view_exposed run = {job->run->name, job->run->path, job->run->counts};
    (void)exposed_run_read(&run, false, &job->read, NULL);
}

/* With what there is: the text is made in a thread of its own, as it may be of thousands of series. */
static void go_on(struct exposing *of) {
    struct api_call *call = TAKE(of->call);
    loop_timer_stop(call->site->loop, &of->patience);
    call->route = &route_exposed;
    call_post(call, &call->own);
}

static void lose_patience(void *context) {
    go_on(context);
}

/* What was read too late goes with its job. */
static void free_job(struct exposing_job *job) {
    struct exposing *of = job->of;
    exposed_run_free(job->read);
    if (--of->n_reading == 0) free(of);
    free(job);
}

static void take_run(struct lane_job *base) {
    struct exposing_job *job = (struct exposing_job *)base;
    struct exposing *of = job->of;
    if (of->call != NULL) of->call->exposed[job->place] = TAKE(job->read);
    if (of->call != NULL && of->n_reading == 1) go_on(of);
    free_job(job);
}

/* The server ended before. */
static void drop_run(struct lane_job *base) {
    struct exposing_job *job = (struct exposing_job *)base;
    struct exposing *of = job->of;
    if (of->call != NULL) loop_timer_stop(of->call->site->loop, &of->patience);
    if (of->call != NULL) call_free(TAKE(of->call));
    free_job(job);
}

static bool post_run(struct exposing *of, const struct found_run *found) {
    struct api_call *call = of->call;
    const uintptr_t *known = hash_get(call->site->runs, found->id);
    struct site_run *run = known != NULL ? (struct site_run *)*known : NULL;
    struct exposing_job *job = calloc(1, sizeof *job);
    if (run != NULL && run->counts == NULL) run->counts = calloc(1, sizeof *run->counts);
    if (job == NULL || run == NULL || run->counts == NULL) {
        free(job);
        return false;
    }
    *job = (struct exposing_job){.of = of, .run = run, .place = call->n_exposed++};
    job->base = (struct lane_job){.work = read_run, .done = take_run, .drop = drop_run};
    of->n_reading++;
    lane_post(call->site->lanes, &run->lane, &job->base);
    return true;
}

/* Behind the look at the list, on the loop: one job in the lane of each run. A run that was never asked for is
 * known by now, since the look's runs were noted (call_done). */
void expose_begin(struct api_call *call) {
    struct exposing *of = calloc(1, sizeof *of);
    call->exposed = calloc(call->n_found + 1, sizeof(struct exposed_run *));
    bool whole = of != NULL && call->exposed != NULL;
    if (whole) *of = (struct exposing){.call = call, .patience = {.callback = lose_patience, .context = of}};
    for (size_t i = 0; i < call->n_found && whole; i++)
        if (call->found[i].exposed) whole = post_run(of, &call->found[i]);
    if (whole && of->n_reading > 0) {
        (void)loop_timer_start(call->site->loop, &of->patience, SITE_PATIENCE_SECONDS * NS_PER_S);
    } else if (whole) {
        go_on(of);
        free(of);
    } else {
        if (of != NULL && of->n_reading > 0)
            of->call = NULL;
        else
            free(of);
        call_refuse(call, 500, "out of memory");
    }
}

int answer_exposed(struct api_call *call, ty_error *err) {
    const struct view_exposition how = {.openmetrics = call->openmetrics};
    size_t n = 0;
    for (size_t i = 0; i < call->n_exposed; i++)
        if (call->exposed[i] != NULL) call->exposed[n++] = call->exposed[i];
    call->n_exposed = n;
    call->type = view_exposition_type(call->openmetrics);
    return exposed_runs_encode(call->exposed, n, &how, &call->out, err);
}
