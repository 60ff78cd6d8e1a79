/* The controller: drives one run from the process that asks for it. Resolves, plans, claims devices, starts
 * agents, then carries out what run/ decides: journal first, then acts. */
#ifndef CONTROLLER_CONTROLLER_H
#define CONTROLLER_CONTROLLER_H

#include <trainyard/trainer.h>

#include "base/duration.h"
#include "cluster/cluster.h"
#include "run/settings.h"
#include "scaling/scaling.h"

/* All that a run needs, from whichever face; borrowed during the call. Zero-initialised is the default but for
 * `settings`, `scaling` and `argv`. */
struct run_request {
    struct run_settings settings; /* finished */
    const struct scaling *scaling;
    bool train_v1;                             /* RAY_TRAIN_V2_ENABLED=0 */
    const char *engine;                        /* NULL: auto */
    const char *cluster_file;                  /* logical nodes; NULL: this machine */
    const struct cluster_overrides *overrides; /* NULL: as probed */
    const char *const *argv;                   /* NULL-terminated */
    const char *executable;                    /* NULL: argv[0] by PATH */
    const char *const *template_argv;          /* NULL-terminated; NULL: none */
    const void *payload;                       /* handed to each worker; NULL: none */
    size_t payload_size;
    char *const *environment; /* what workers inherit; NULL: this process's */
    uint32_t events;          /* kinds that controller_next_event gives, see events.h */
    bool alone;               /* this process does nothing but the run, and has no other children */
    bool handle_signals;      /* SIGINT, SIGTERM and SIGHUP stop the run */
};

struct controller; /* opaque: one run on its way */

/* Checks, plans and begins it; `request` is borrowed until the end. The other calls do what <trainyard/run.h>
 * says of theirs, with SIGPIPE held (signals.h). */
int controller_open(const struct run_request *request, struct controller **out, ty_error *err);
int controller_fd(const struct controller *controller);
int controller_timeout_ms(const struct controller *controller);
bool controller_step(struct controller *controller,
                     bool wait); /* one turn of the loop; false once it has ended */
int controller_next_event(struct controller *controller, char **text);
void controller_stop(struct controller *controller, int signal_number);
int controller_close(struct controller *controller, ty_result **result, ty_error *err);

/* Runs it to its end. As ty_fit; ty_result_failure(result) is the first cause on one screen. */
int controller_run(const struct run_request *request, ty_result **result, ty_error *err);

/* The signal that ends the run as a preemption. */
int preempt_signal_of(const struct run_request *request);

/* "run-20260131-235959-a1b2": unique. */
void controller_make_name(char name[64]);
/* {storage_path}/{name}, absolute; the caller frees. NULL with the error. */
char *controller_run_path(const char *storage_path, const char *name, ty_error *err);

#endif
