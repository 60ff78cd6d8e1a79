/* Errors of the public interface.
 *
 * Every call that can fail returns 0 or a positive value on success and a negative code on failure: either
 * -errno or one of the TY_E... codes below. A call that takes a `ty_error *` also fills it, when it is not
 * NULL, with one line for a person: what failed, on which object, what is allowed or what to do.
 */
#ifndef TRAINYARD_ERROR_H
#define TRAINYARD_ERROR_H

#include <trainyard/api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, number, exit status of the command, meaning) */
#define TY_ERROR_CODES(X)                                                      \
    X(TY_EUSAGE, -10001, 2, "wrong value, option or file")                     \
    X(TY_EEXISTS, -10002, 2, "the run name is taken")                          \
    X(TY_EINFEASIBLE, -10003, 3, "the request never fits these nodes")         \
    X(TY_EBUSY, -10004, 3, "the request fits once others have finished")       \
    X(TY_ESTART, -10005, 4, "workers could not be started")                    \
    X(TY_ENODE, -10006, 5, "an agent or node was lost")                        \
    X(TY_EWORKER, -10007, 1, "a worker failed")                                \
    X(TY_ETIMEOUT, -10008, 124, "the time limit passed")                       \
    X(TY_EINTERRUPTED, -10009, 130, "interrupted")                             \
    X(TY_EMISMATCH, -10010, 1, "ranks disagree about a collective call")       \
    X(TY_ECOMM, -10011, 1, "a peer or the agent could not be reached")         \
    X(TY_EPROTOCOL, -10012, 1, "a message could not be understood")            \
    X(TY_EVERSION, -10013, 4, "two parts are of different versions or builds") \
    X(TY_ECORRUPT, -10014, 1, "a file is damaged or incomplete")               \
    X(TY_EUNSUPPORTED, -10015, 1, "not available here")                        \
    X(TY_EFAULT, -10016, 1, "an internal invariant does not hold")             \
    X(TY_EPREEMPTED, -10017, 143, "the machines were taken away")

enum ty_error_code {
#define TY_X(name, number, status, meaning) name = number,
    TY_ERROR_CODES(TY_X)
#undef TY_X
};

enum { TY_ERROR_MESSAGE_SIZE = 1024 };

/* Owned by the caller, of fixed size, no pointers: `ty_error err = {0};` */
typedef struct ty_error {
    int code;                            /* 0: no error */
    char message[TY_ERROR_MESSAGE_SIZE]; /* one line, NUL-terminated, never a trailing newline */
} ty_error;

/* The name of a code ("TY_EUSAGE", or "EINVAL" for -errno). Static storage. */
TY_API const char *ty_error_name(int code);

/* The exit status that the `trainyard` command ends with for `code`; 0 for success, 1 for -errno. */
TY_API int ty_error_exit_status(int code);

#ifdef __cplusplus
}
#endif
#endif
