/* The controller: drives one run from the process that asks for it. Resolves, plans, claims devices, starts
 * agents, then carries out what run/ decides: journal first, then acts. Here is what the faces say to it; the
 * run itself is in controller/ty_run.h. */
#ifndef CONTROLLER_CONTROLLER_H
#define CONTROLLER_CONTROLLER_H

#include <trainyard/run.h>

#include "base/duration.h"
#include "cluster/cluster.h"
#include "engine/engine.h"
#include "run/settings.h"
#include "scaling/scaling.h"

/* All that a run needs, from whichever face; borrowed during the call. Zero-initialised is the default but for
 * `settings`, `scaling` and `argv`. */
struct run_request {
    struct run_settings settings; /* finished */
    const struct scaling *scaling;
    bool train_v1;                               /* RAY_TRAIN_V2_ENABLED=0 */
    const char *engine;                          /* NULL: auto */
    const struct engine_options *engine_options; /* NULL: none */
    const char *cluster_file;                    /* logical nodes; NULL: this machine */
    const struct cluster_overrides *overrides;   /* NULL: as probed */
    const char *const *argv;                     /* NULL-terminated */
    const char *executable;                      /* NULL: argv[0] by PATH */
    const char *const *template_argv;            /* NULL-terminated; NULL: none */
    const void *payload;                         /* handed to each worker; NULL: none */
    size_t payload_size;
    char *const *environment; /* what workers inherit; NULL: this process's */
    char *const *replaced;    /* variables of workers in place of those that the framework sets; NULL: none */
    /* By local rank: streams (1, 2 or 3 for both) that go to the log alone; NULL: none. */
    const uint8_t *hidden;
    uint32_t events; /* kinds that controller_next_event gives, see events.h */
    /* Gets them instead, in controller_run; NULL: none. */
    int (*on_event)(void *context, const char *event_json);
    void *event_context;
    bool alone;          /* this process does nothing but the run, and has no other children */
    bool handle_signals; /* SIGINT, SIGTERM, SIGHUP and SIGQUIT stop the run */
};

/* Runs it to its end. As ty_fit; ty_result_failure(result) is the first cause on one screen. */
int controller_run(const struct run_request *request, ty_result **result, ty_error *err);

/* The calls of <trainyard/run.h>, which says what they do. */
int controller_open(const char *request_json, const void *payload, size_t payload_size, ty_run **out,
                    ty_error *err);
int controller_fd(const ty_run *run);
int controller_timeout_ms(const ty_run *run);
int controller_dispatch(ty_run *run, ty_error *err);
int controller_next_event(ty_run *run, char **event_json);
int controller_checkpoint_metrics(ty_run *run, uint64_t number, const char *metrics_json, ty_error *err);
int controller_stop(ty_run *run, int signal_number);
int controller_close(ty_run *run, ty_result **result, ty_error *err);

/* -- request.c: a run as JSON describes it (the keys are told in <trainyard/run.h>) */

struct request; /* opaque: owns all that its run_request borrows */

/* `payload` is copied. TY_EUSAGE for what is unknown, of a wrong type, or out of range. */
int request_read(const char *json, const void *payload, size_t payload_size, struct request **out,
                 ty_error *err);
/* What ty_run_check of <trainyard/run.h> does. */
int request_check(const char *json, ty_error *err);
const struct run_request *run_request_of(const struct request *request);
void request_destroy(struct request *request); /* NULL is fine */

#endif
