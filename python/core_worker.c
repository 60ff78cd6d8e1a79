/* Inside a worker: its place in the run, reports, the store. One thread at a time speaks to the agent; the
 * interpreter's lock is released while it waits. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/report.h>

#include "core.h"

static pthread_mutex_t speaking = PTHREAD_MUTEX_INITIALIZER;

/* A child that is forked while another thread speaks has nobody who would end that. */
static void begin_child(void) {
    speaking = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

static void watch_forks(void) {
    (void)pthread_atfork(NULL, NULL, begin_child);
}

/* Runs `call` with nobody else speaking to the agent, and without the interpreter's lock. */
#define SPEAK(call)                                  \
    do {                                             \
        PyThreadState *saved_ = PyEval_SaveThread(); \
        (void)pthread_mutex_lock(&speaking);         \
        call;                                        \
        (void)pthread_mutex_unlock(&speaking);       \
        PyEval_RestoreThread(saved_);                \
    } while (0)

/* The worker of this process, or NULL with the exception. */
static ty_worker *self_of(PyObject *module) {
    ty_error err = {0};
    ty_worker *worker = ty_worker_self(&err);
    if (worker == NULL) (void)core_raise(PyModule_GetState(module), &err);
    return worker;
}

static PyObject *devices_of(const ty_worker *worker) {
    size_t n = 0;
    const int *devices = ty_devices(worker, &n);
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list != NULL && i < n; i++) {
        PyObject *index = PyLong_FromLong(devices[i]);
        if (index == NULL || PyList_SetItem(list, (Py_ssize_t)i, index) < 0) Py_CLEAR(list);
    }
    return list;
}

static PyObject *worker(PyObject *module, PyObject *nothing) {
    (void)nothing;
    const ty_worker *self = self_of(module);
    if (self == NULL) return NULL;
    PyObject *devices = devices_of(self);
    if (devices == NULL) return NULL;
    return Py_BuildValue("{si,si,si,si,si,si,sN,sN,sN}", "world_rank", ty_world_rank(self), "world_size",
                         ty_world_size(self), "local_rank", ty_local_rank(self), "local_world_size",
                         ty_local_world_size(self), "node_rank", ty_node_rank(self), "attempt",
                         ty_attempt(self), "run_name", core_text(ty_run_name(self)), "run_path",
                         core_text(ty_run_path(self)), "devices", devices);
}

static PyObject *checkpoint_latest(PyObject *module, PyObject *nothing) {
    (void)nothing;
    const ty_worker *self = self_of(module);
    return self != NULL ? core_text(ty_checkpoint_latest(self)) : NULL;
}

static PyObject *stop_requested(PyObject *module, PyObject *nothing) {
    (void)nothing;
    ty_worker *self = self_of(module);
    return self != NULL ? PyBool_FromLong(ty_stop_requested(self)) : NULL;
}

static PyObject *done(PyObject *module, int result, const ty_error *err) {
    if (result < 0) return core_raise(PyModule_GetState(module), err);
    Py_RETURN_NONE;
}

/* None, or, when a checkpoint was lost and the run goes on without it, why. Warns of another rank's file that
 * was kept. */
static PyObject *reported(PyObject *module, int result, const ty_error *err) {
    if (result < 0) return core_raise(PyModule_GetState(module), err);
    if (result == 2 && PyErr_WarnEx(PyExc_RuntimeWarning, err->message, 1) < 0) return NULL;
    return core_text(result == 1 ? err->message : NULL);
}

static PyObject *report(PyObject *module, PyObject *args) {
    const char *metrics;
    ty_report_options options = {0};
    int mode = TY_SYNC, delete_after = 0;
    ty_worker *self = self_of(module);
    if (self == NULL || !PyArg_ParseTuple(args, "s|zzip:report", &metrics, &options.checkpoint, &options.name,
                                          &mode, &delete_after))
        return NULL;
    options.mode = (enum ty_report_mode)mode;
    options.delete_after = delete_after != 0;
    options.may_differ =
        true; /* programs for Ray Train save one model in every rank, whose buffers may differ */
    ty_error err = {0};
    int result;
    SPEAK(result = ty_report_with(self, metrics, &options, &err));
    return reported(module, result, &err);
}

static PyObject *report_drain(PyObject *module, PyObject *nothing) {
    (void)nothing;
    ty_worker *self = self_of(module);
    if (self == NULL) return NULL;
    ty_error err = {0};
    int result;
    SPEAK(result = ty_report_drain(self, &err));
    return reported(module, result, &err);
}

/* Without the lock of those who speak: it asks nobody. */
static PyObject *report_is_writing(PyObject *module, PyObject *nothing) {
    (void)nothing;
    const ty_worker *self = self_of(module);
    return self != NULL ? PyBool_FromLong(ty_report_is_writing(self)) : NULL;
}

static PyObject *report_begin(PyObject *module, PyObject *args) {
    const char *metrics, *name = NULL;
    ty_worker *self = self_of(module);
    if (self == NULL || !PyArg_ParseTuple(args, "s|z:report_begin", &metrics, &name)) return NULL;
    ty_error err = {0};
    uint64_t number = 0;
    char *path = NULL;
    int result;
    SPEAK(result = ty_report_begin(self, metrics, name, &number, &path, &err));
    if (result < 0) return reported(module, result, &err);
    PyObject *begun = Py_BuildValue("KN", (unsigned long long)number, core_text(path));
    free(path);
    return begun;
}

/* May run beside the other calls: it has a channel of its own. */
static PyObject *report_end(PyObject *module, PyObject *args) {
    unsigned long long number;
    const char *place;
    ty_worker *self = self_of(module);
    if (self == NULL || !PyArg_ParseTuple(args, "Kz:report_end", &number, &place)) return NULL;
    ty_error err = {0};
    PyThreadState *saved = PyEval_SaveThread();
    int result = ty_report_end(self, number, place, &err);
    PyEval_RestoreThread(saved);
    return reported(module, result, &err);
}

/* May run beside the other calls: it has a channel of its own. */
static PyObject *report_failure(PyObject *module, PyObject *args) {
    const char *failure;
    if (!PyArg_ParseTuple(args, "s:report_failure", &failure)) return NULL;
    ty_error err = {0};
    PyThreadState *saved = PyEval_SaveThread();
    int result = ty_report_failure(failure, &err);
    PyEval_RestoreThread(saved);
    return done(module, result, &err);
}

/* May run beside the other calls: it has a channel of its own. */
static PyObject *report_wait(PyObject *module, PyObject *args) {
    unsigned long long count;
    double timeout_s;
    ty_worker *self = self_of(module);
    if (self == NULL || !PyArg_ParseTuple(args, "Kd:report_wait", &count, &timeout_s)) return NULL;
    ty_error err = {0};
    PyThreadState *saved = PyEval_SaveThread();
    int result = ty_report_wait(self, count, timeout_s, &err);
    PyEval_RestoreThread(saved);
    return done(module, result, &err);
}

static PyObject *checkpoints_reported(PyObject *module, PyObject *args) {
    double timeout_s = -1;
    ty_worker *self = self_of(module);
    if (self == NULL || !PyArg_ParseTuple(args, "|d:checkpoints_reported", &timeout_s)) return NULL;
    ty_error err = {0};
    char *json = NULL;
    int result;
    SPEAK(result = ty_checkpoints_reported(self, timeout_s, &json, &err));
    if (result < 0) return done(module, result, &err);
    PyObject *text = core_text(json);
    free(json);
    return text;
}

static PyObject *store_set(PyObject *module, PyObject *args) {
    const char *key, *value;
    Py_ssize_t size;
    ty_worker *self = self_of(module);
    if (self == NULL || !PyArg_ParseTuple(args, "sy#:store_set", &key, &value, &size)) return NULL;
    ty_error err = {0};
    int result;
    SPEAK(result = ty_store_set(self, key, value, (size_t)size, &err));
    return done(module, result, &err);
}

/* The bytes that a call of the store gave, which are freed; None when it gave none. */
static PyObject *take_bytes(PyObject *module, int result, void *value, size_t size, const ty_error *err) {
    if (result <= 0) return done(module, result, err);
    PyObject *bytes = PyBytes_FromStringAndSize(value, (Py_ssize_t)size);
    free(value);
    return bytes;
}

static PyObject *store_get(PyObject *module, PyObject *args) {
    const char *key;
    ty_worker *self = self_of(module);
    if (self == NULL || !PyArg_ParseTuple(args, "s:store_get", &key)) return NULL;
    ty_error err = {0};
    void *value = NULL;
    size_t size = 0;
    int result;
    SPEAK(result = ty_store_get(self, key, &value, &size, &err));
    return take_bytes(module, result, value, size, &err);
}

static PyObject *store_wait(PyObject *module, PyObject *args) {
    const char *key;
    double timeout_s;
    ty_worker *self = self_of(module);
    if (self == NULL || !PyArg_ParseTuple(args, "sd:store_wait", &key, &timeout_s)) return NULL;
    ty_error err = {0};
    void *value = NULL;
    size_t size = 0;
    int result;
    SPEAK(result = ty_store_wait(self, key, timeout_s, &value, &size, &err));
    return take_bytes(module, result, value, size, &err);
}

static PyObject *store_add(PyObject *module, PyObject *args) {
    const char *key;
    long long delta;
    ty_worker *self = self_of(module);
    if (self == NULL || !PyArg_ParseTuple(args, "sL:store_add", &key, &delta)) return NULL;
    ty_error err = {0};
    int64_t sum = 0;
    int result;
    SPEAK(result = ty_store_add(self, key, delta, &sum, &err));
    return result < 0 ? done(module, result, &err) : PyLong_FromLongLong(sum);
}

/* The pieces of all ranks, each a size (4 bytes, little-endian) and its bytes, as a list. */
static PyObject *pieces(const unsigned char *all, size_t size) {
    PyObject *list = PyList_New(0);
    for (size_t at = 0; list != NULL && at + 4 <= size;) {
        size_t n = all[at] | (size_t)all[at + 1] << 8 | (size_t)all[at + 2] << 16 | (size_t)all[at + 3] << 24;
        PyObject *piece = PyBytes_FromStringAndSize((const char *)all + at + 4, (Py_ssize_t)n);
        if (piece == NULL || PyList_Append(list, piece) < 0) Py_CLEAR(list);
        Py_XDECREF(piece);
        at += 4 + n;
    }
    return list;
}

static PyObject *gather(PyObject *module, PyObject *args) {
    const char *key, *value;
    Py_ssize_t size;
    double timeout_s;
    ty_worker *self = self_of(module);
    if (self == NULL || !PyArg_ParseTuple(args, "sy#d:gather", &key, &value, &size, &timeout_s)) return NULL;
    ty_error err = {0};
    void *all = NULL;
    size_t all_size = 0;
    int result;
    SPEAK(result = ty_store_gather(self, key, value, (size_t)size, timeout_s, &all, &all_size, &err));
    if (result < 0) return done(module, result, &err);
    PyObject *list = pieces(all, all_size);
    free(all);
    return list;
}

static PyObject *heartbeat(PyObject *module, PyObject *nothing) {
    (void)nothing;
    ty_worker *self = self_of(module);
    if (self == NULL) return NULL;
    ty_error err = {0};
    int result;
    SPEAK(result = ty_heartbeat(self, &err));
    return done(module, result, &err);
}

static PyObject *preemption(PyObject *module, PyObject *nothing) {
    (void)nothing;
    ty_worker *self = self_of(module);
    if (self == NULL) return NULL;
    if (!ty_stop_requested(self)) Py_RETURN_NONE; /* nearly always: without giving the lock away */
    ty_error err = {0};
    char *json = NULL;
    int result;
    SPEAK(result = ty_preemption(self, &json, &err));
    if (result <= 0) return done(module, result, &err);
    PyObject *text = core_text(json);
    free(json);
    return text;
}

static PyObject *rendezvous(PyObject *module, PyObject *nothing) {
    (void)nothing;
    ty_worker *self = self_of(module);
    if (self == NULL) return NULL;
    ty_error err = {0};
    int result;
    SPEAK(result = ty_rendezvous(self, &err));
    return done(module, result, &err);
}

static PyMethodDef methods[] = {
    {"worker", worker, METH_NOARGS,
     "worker() -> dict\n\nThis worker's place in its run. The first call tells the agent that it is ready."},
    {"checkpoint_latest", checkpoint_latest, METH_NOARGS,
     "checkpoint_latest() -> str | None\n\nDirectory of the last committed checkpoint."},
    {"stop_requested", stop_requested, METH_NOARGS,
     "stop_requested() -> bool\n\nWhether the run asked this worker to stop; takes over SIGTERM."},
    {"report", report, METH_VARARGS,
     "report(metrics_json, checkpoint=None, name=None, mode=0, delete=False) -> str | None\n\nSee "
     "ty_report_with; the text says "
     "why a checkpoint was lost."},
    {"report_drain", report_drain, METH_NOARGS, "report_drain() -> str | None\n\nSee ty_report_drain."},
    {"report_is_writing", report_is_writing, METH_NOARGS,
     "report_is_writing() -> bool\n\nSee ty_report_is_writing."},
    {"report_begin", report_begin, METH_VARARGS,
     "report_begin(metrics_json, name=None) -> (number, directory)\n\nSee ty_report_begin."},
    {"report_end", report_end, METH_VARARGS,
     "report_end(number, place) -> str | None\n\nSee ty_report_end; None gives the checkpoint up."},
    {"report_failure", report_failure, METH_VARARGS,
     "report_failure(failure_json)\n\nThe exception that this worker ends with; see ty_report_failure."},
    {"report_wait", report_wait, METH_VARARGS,
     "report_wait(count, timeout_s)\n\nSee ty_report_wait; TimeoutError names the ranks that did not come."},
    {"checkpoints_reported", checkpoints_reported, METH_VARARGS,
     "checkpoints_reported(timeout_s=-1) -> str\n\nJSON; see ty_checkpoints_reported."},
    {"store_set", store_set, METH_VARARGS, "store_set(key, value)\n\nSets a key of the run's store to bytes."},
    {"store_get", store_get, METH_VARARGS, "store_get(key) -> bytes | None"},
    {"store_wait", store_wait, METH_VARARGS,
     "store_wait(key, timeout_s) -> bytes\n\nWaits for the key; TimeoutError."},
    {"store_add", store_add, METH_VARARGS, "store_add(key, delta) -> int\n\nThe sum after adding."},
    {"gather", gather, METH_VARARGS,
     "gather(key, value, timeout_s) -> list of bytes\n\nThe pieces of all ranks, in rank order; TimeoutError "
     "names "
     "the ranks that did not come."},
    {"heartbeat", heartbeat, METH_NOARGS, "heartbeat()\n\nTells the agent that this worker is alive."},
    {"preemption", preemption, METH_NOARGS,
     "preemption() -> str | None\n\nWhat is known of machines that are taken away, as JSON (see "
     "ty_preemption); takes over SIGTERM."},
    {"rendezvous", rendezvous, METH_NOARGS, "rendezvous()\n\nTells the run that the process group stands."},
    {NULL, NULL, 0, NULL},
};

int core_add_worker(PyObject *module) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, watch_forks);
    return PyModule_AddFunctions(module, methods);
}
