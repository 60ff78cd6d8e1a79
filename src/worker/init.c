/* ty_init: in a worker that ty_fit started it runs the training function and ends the process; elsewhere it
 * only notes that it was called, for ty_fit to rely on. How a function is found in another process is
 * function.c's. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <trainyard/report.h>
#include <unistd.h>

#include "base/str.h"
#include "worker/driver.h"
#include "worker/worker.h"

static bool initialised;

bool worker_is_initialised(void) {
    return initialised;
}

/* The bytes that the driver gave as config, mapped for the life of the process; left as they are without. */
static int map_payload(const void **config, size_t *size, ty_error *err) {
    const char *text = getenv(WORKER_PAYLOAD_VARIABLE);
    int64_t fd;
    struct stat status;
    if (text == NULL) return 0;
    if (!str_to_int64(text, 0, INT32_MAX, &fd) || fstat((int)fd, &status) < 0)
        return ty_fail(err, TY_EUSAGE, WORKER_PAYLOAD_VARIABLE " is \"%.64s\", which is no open descriptor",
                       text);
    if (status.st_size == 0) return 0;
    void *bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, (int)fd, 0);
    if (bytes == MAP_FAILED) return ty_fail(err, -errno, "cannot map the config: %s", strerror(errno));
    (void)close((int)fd);
    *config = bytes;
    *size = (size_t)status.st_size;
    return 0;
}

static int run_function(const char *name, ty_error *err) {
    ty_train_function *function;
    const void *config = NULL;
    size_t size = 0;
    int rc = worker_function_find(name, &function, err);
    if (rc == 0) rc = map_payload(&config, &size, err);
    if (rc < 0) return rc;
    ty_worker *worker = ty_worker_self(err);
    if (worker == NULL) return TY_ECOMM;
    /* A program that this worker starts is no worker, though it may be this very program. */
    (void)unsetenv(WORKER_FUNCTION_VARIABLE);
    /* The agent relays lines, and they are to be seen as they are written. */
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    int returned = function(worker, config, size);
    int status = returned & 0xff;
    if (status == 0 && returned != 0) status = 1; /* a failure is no 0 because only 8 bits are kept */
    /* A checkpoint that was handed over and is lost after all is a failure of the worker, if it is not one
     * already. */
    rc = ty_report_drain(worker, err);
    return status == 0 && rc < 0 ? rc : status;
}

void ty_init(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    initialised = true;
    const char *function = getenv(WORKER_FUNCTION_VARIABLE);
    if (function == NULL) return;
    ty_error error = {0};
    int status = run_function(function, &error);
    if (status < 0) {
        (void)fprintf(stderr, "trainyard: %s\n", error.message);
        status = ty_error_exit_status(error.code);
    }
    exit(status); /* what is queued is sent on the way out */
}
