/* The run's store as seen from a worker, and the gather of all ranks: one request each, answered by the
 * controller through the agent. Nothing is kept here from one request to the next. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "worker/worker.h"

static int check_key(const ty_worker *worker, const char *key, ty_error *err) {
    if (worker == NULL) return ty_fail(err, TY_EUSAGE, "store: the worker is NULL");
    size_t size = key != NULL ? strnlen(key, WORKER_KEY_MAX + 1) : 0;
    bool good = size > 0 && size <= WORKER_KEY_MAX;
    for (size_t i = 0; good && i < size; i++)
        good = (unsigned char)key[i] > ' ' && key[i] != 0x7f;
    if (good) return 0;
    return ty_fail(err, TY_EUSAGE,
                   "store key \"%.64s\" must be 1 to %d bytes without blanks and control characters",
                   key != NULL ? key : "", WORKER_KEY_MAX);
}

static bool answered(const ty_worker *worker, const char *word) {
    return str_equal(worker->answer.data, word);
}

static bool answered_value(const ty_worker *worker) {
    return str_prefix(worker->answer.data, "value ", NULL);
}

static int check_value(const char *key, const char *what, const void *value, size_t size, ty_error *err) {
    if (value == NULL && size > 0) return ty_fail(err, TY_EUSAGE, "store key %s: the value is NULL", key);
    if (size <= WORKER_VALUE_MAX) return 0;
    return ty_fail(err, TY_EUSAGE, "store key %s: a %s of %zu bytes is over the limit of %d", key, what, size,
                   WORKER_VALUE_MAX);
}

/* Hands the bytes over, with a NUL behind them. */
static int take_value(struct buffer *from, void **value, size_t *size, ty_error *err) {
    if (value == NULL) return ty_fail(err, TY_EUSAGE, "store: there is no place for the value: it is NULL");
    size_t n = from->size;
    char *bytes = buffer_take(from);
    if (bytes == NULL) return ty_fail_memory(err);
    *value = bytes;
    if (size != NULL) *size = n;
    return 1;
}

/* Sends worker->line: 1 with the value that came, 0 for another answer. */
static int ask_value(struct ty_worker *worker, void **value, size_t *size, ty_error *err) {
    CLEANUP(buffer_done) struct buffer bytes = {0};
    int rc = worker_request(worker, &bytes, err);
    return rc == 0 && answered_value(worker) ? take_value(&bytes, value, size, err) : rc;
}

int ty_store_set(ty_worker *worker, const char *key, const void *value, size_t size, ty_error *err) {
    int rc = check_key(worker, key, err);
    if (rc == 0) rc = check_value(key, "value", value, size, err);
    if (rc < 0) return rc;
    buffer_clear(&worker->line);
    buffer_printf(&worker->line, "set %s %zu\n", key, size);
    buffer_append(&worker->line, value, size);
    rc = worker_request(worker, NULL, err);
    if (rc < 0) return rc;
    return answered(worker, "ok") ? 0 : worker_fail_answer(worker->answer.data, err);
}

int ty_store_get(ty_worker *worker, const char *key, void **value, size_t *size, ty_error *err) {
    int rc = check_key(worker, key, err);
    if (rc < 0) return rc;
    buffer_clear(&worker->line);
    buffer_printf(&worker->line, "get %s\n", key);
    rc = ask_value(worker, value, size, err);
    return rc != 0 || answered(worker, "none") ? rc : worker_fail_answer(worker->answer.data, err);
}

int ty_store_wait(ty_worker *worker, const char *key, double timeout_s, void **value, size_t *size,
                  ty_error *err) {
    int rc = check_key(worker, key, err);
    if (rc < 0) return rc;
    if (!(timeout_s >= 0))
        return ty_fail(err, TY_EUSAGE, "store key %s: the time-out must be a number of seconds from 0", key);
    buffer_clear(&worker->line);
    buffer_printf(&worker->line, "wait %s %" PRId64 "\n", key, worker_timeout_ms(timeout_s));
    rc = ask_value(worker, value, size, err);
    if (rc != 0) return rc;
    if (answered(worker, "timeout"))
        return ty_fail(err, TY_ETIMEOUT, "store key %s was not set within %g s", key, timeout_s);
    return worker_fail_answer(worker->answer.data, err);
}

int ty_store_add(ty_worker *worker, const char *key, int64_t delta, int64_t *sum, ty_error *err) {
    int rc = check_key(worker, key, err);
    if (rc < 0) return rc;
    buffer_clear(&worker->line);
    buffer_printf(&worker->line, "add %s %" PRId64 "\n", key, delta);
    CLEANUP(buffer_done) struct buffer bytes = {0};
    int64_t total;
    rc = worker_request(worker, &bytes, err);
    if (rc < 0) return rc;
    if (!answered_value(worker) || bytes.size == 0 || !str_to_int64(bytes.data, INT64_MIN, INT64_MAX, &total))
        return worker_fail_answer(worker->answer.data, err);
    if (sum != NULL) *sum = total;
    return 0;
}

int64_t worker_timeout_ms(double timeout_s) {
    return timeout_s >= 0 && timeout_s < 1e12 ? (int64_t)ceil(timeout_s * 1e3) : -1;
}

int worker_fail_missing(const char *missing, ty_error *err) {
    return ty_fail(err, TY_ETIMEOUT, "rank%s %s did not come", strpbrk(missing, ",-") != NULL ? "s" : "",
                   missing[0] == ' ' ? missing + 1 : "?");
}

/* The key is made this attempt's own: an earlier one may have left half of its pieces. */
int worker_gather(struct ty_worker *worker, const char *key, const void *value, size_t size, int64_t timeout_ms,
                  struct buffer *all, ty_error *err) {
    buffer_clear(&worker->line);
    buffer_printf(&worker->line, "gather trainyard/%d/%s %" PRId64 " %zu\n", worker->attempt, key, timeout_ms,
                  size);
    buffer_append(&worker->line, value, size);
    int rc = worker_request(worker, all, err);
    if (rc < 0) return rc;
    const char *missing;
    if (str_prefix(worker->answer.data, "timeout", &missing)) return worker_fail_missing(missing, err);
    return answered_value(worker) ? 0 : worker_fail_answer(worker->answer.data, err);
}

int ty_store_gather(ty_worker *worker, const char *key, const void *value, size_t size, double timeout_s,
                    void **all, size_t *all_size, ty_error *err) {
    int rc = check_key(worker, key, err);
    if (rc == 0) rc = check_value(key, "piece", value, size, err);
    if (rc < 0) return rc;
    if (isnan(timeout_s)) return ty_fail(err, TY_EUSAGE, "store key %s: the time-out is not a number", key);
    CLEANUP(buffer_done) struct buffer pieces = {0};
    rc = worker_gather(worker, key, value, size, worker_timeout_ms(timeout_s), &pieces, err);
    if (rc == 0) rc = take_value(&pieces, all, all_size, err);
    return rc < 0 ? rc : 0;
}

int ty_rendezvous(ty_worker *worker, ty_error *err) {
    static const char stands[] = "rendezvous\n";
    struct link *link;
    if (worker == NULL) return ty_fail(err, TY_EUSAGE, "rendezvous: the worker is NULL");
    int rc = worker_link(worker, &link, err);
    return rc < 0 ? rc : link_post(link, stands, sizeof stands - 1, err);
}
