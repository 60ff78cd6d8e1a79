/* What stands behind ty_run_open and the calls beside it. */
#ifndef CONTROLLER_SESSION_H
#define CONTROLLER_SESSION_H

#include <trainyard/run.h>

int session_open(const char *request_json, const void *payload, size_t payload_size, ty_run **out,
                 ty_error *err);
int session_fd(const ty_run *run);
int session_timeout_ms(const ty_run *run);
int session_dispatch(ty_run *run, ty_error *err);
int session_next_event(ty_run *run, char **event_json);
int session_fork(int *control_fd, ty_error *err);
void session_fork_drop(void);
int session_stop(ty_run *run, int signal_number);
int session_close(ty_run *run, ty_result **result, ty_error *err);

#endif
