/* A run as JSON describes it (the keys are told in <trainyard/run.h>). */
#ifndef CONTROLLER_REQUEST_H
#define CONTROLLER_REQUEST_H

#include "controller/controller.h"

struct request; /* opaque: owns all that its run_request borrows */

/* `payload` is copied. TY_EUSAGE for what is unknown, of a wrong type, or out of range. */
int request_read(const char *json, const void *payload, size_t payload_size, struct request **out,
                 ty_error *err);
/* What ty_run_check of <trainyard/run.h> does. */
int request_check(const char *json, ty_error *err);
const struct run_request *request_get(const struct request *request);
void request_destroy(struct request *request); /* NULL is fine */

#endif
