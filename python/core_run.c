/* `_core.Run`: a run on its way, stepped by Python: poll(fileno(), timeout_ms()), dispatch(), next_event(),
 * until dispatch() says that it has ended; then close(). Nothing here calls back into Python.
 *
 * Whatever may wait does so without the interpreter's lock, so that other threads go on. A run is meanwhile the
 * thread's that is in the call: another one is refused, but for stop(), which is kept for the end of the
 * call. */
#include <stdbool.h>
#include <stdlib.h>
#include <sys/types.h>
#include <trainyard/run.h>
#include <unistd.h>

#include "core.h"

enum { STOPS_MAX = 2 }; /* politely, and at once */

struct run_object {
    PyObject_HEAD ty_run *run; /* NULL once closed */
    pid_t owner;               /* the process that began it */
    bool busy;                 /* a thread is in a call, without the interpreter's lock */
    int stops[STOPS_MAX];      /* asked for meanwhile */
    int n_stops;
};

static const struct core_state *state_of(PyObject *self) {
    return PyType_GetModuleState(Py_TYPE(self));
}

/* The run, or NULL with ValueError once it is closed, RuntimeError in another process or while another thread
 * is in a call. */
static ty_run *run_of(PyObject *self) {
    const struct run_object *object = (struct run_object *)self;
    if (object->owner != getpid()) {
        PyErr_Format(PyExc_RuntimeError,
                     "this run belongs to process %d, which began it: a child that was "
                     "forked can neither drive nor end it",
                     (int)object->owner);
        return NULL;
    }
    if (object->busy) {
        PyErr_SetString(PyExc_RuntimeError, "another thread is in a call of this run: one at a time drives it, "
                                            "and any may call stop()");
        return NULL;
    }
    if (object->run == NULL) PyErr_SetString(PyExc_ValueError, "the run is closed");
    return object->run;
}

/* Does `call` on the run, which is nobody else's meanwhile, without the interpreter's lock. */
#define ALONE(self, call)                            \
    do {                                             \
        ((struct run_object *)(self))->busy = true;  \
        PyThreadState *saved_ = PyEval_SaveThread(); \
        call;                                        \
        PyEval_RestoreThread(saved_);                \
        ((struct run_object *)(self))->busy = false; \
    } while (0)

/* What others asked for during a call. */
static void apply_stops(PyObject *self, ty_run *run) {
    struct run_object *object = (struct run_object *)self;
    while (object->n_stops > 0) {
        int signal_number = object->stops[0];
        object->stops[0] = object->stops[--object->n_stops];
        ALONE(self, (void)ty_run_stop(run, signal_number));
    }
}

static PyObject *new (PyTypeObject *type, PyObject *args, PyObject *keywords) {
    const char *request, *payload = NULL;
    Py_ssize_t size = 0;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "sy#:Run", &request, &payload, &size)) return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *self = allocate(type, 0);
    if (self == NULL) return NULL;
    ((struct run_object *)self)->owner = getpid();
    ty_error err = {0};
    int result;
    ALONE(self, result = ty_run_open(request, payload, (size_t)size, &((struct run_object *)self)->run, &err));
    if (result == 0) return self;
    (void)core_raise(state_of(self), &err);
    Py_DECREF(self);
    return NULL;
}

static void dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    ty_result *result = NULL;
    const struct run_object *object = (struct run_object *)self;
    if (object->run != NULL && object->owner == getpid())
        ALONE(self, (void)ty_run_close(object->run, &result, NULL));
    ty_result_free(result);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *fileno_(PyObject *self, PyObject *nothing) {
    (void)nothing;
    const ty_run *run = run_of(self);
    return run != NULL ? PyLong_FromLong(ty_run_fd(run)) : NULL;
}

static PyObject *timeout_ms(PyObject *self, PyObject *nothing) {
    (void)nothing;
    const ty_run *run = run_of(self);
    return run != NULL ? PyLong_FromLong(ty_run_timeout_ms(run)) : NULL;
}

static PyObject *dispatch(PyObject *self, PyObject *nothing) {
    (void)nothing;
    ty_run *run = run_of(self);
    if (run == NULL) return NULL;
    ty_error err = {0};
    int result;
    ALONE(self, result = ty_run_dispatch(run, &err));
    apply_stops(self, run);
    return result < 0 ? core_raise(state_of(self), &err) : PyBool_FromLong(result);
}

static PyObject *next_event(PyObject *self, PyObject *nothing) {
    (void)nothing;
    ty_run *run = run_of(self);
    char *event = NULL;
    if (run == NULL) return NULL;
    int result;
    ALONE(self, result = ty_run_next_event(run, &event));
    apply_stops(self, run);
    if (result == 0) Py_RETURN_NONE;
    if (result < 0) return PyErr_NoMemory();
    PyObject *text = core_text(event);
    free(event);
    return text;
}

static PyObject *stop(PyObject *self, PyObject *args) {
    int signal_number;
    struct run_object *object = (struct run_object *)self;
    if (!PyArg_ParseTuple(args, "i:stop", &signal_number)) return NULL;
    if (object->busy && object->owner == getpid()) {
        if (object->n_stops < STOPS_MAX) object->stops[object->n_stops++] = signal_number;
        Py_RETURN_NONE;
    }
    ty_run *run = run_of(self);
    if (run == NULL) return NULL;
    ALONE(self, (void)ty_run_stop(run, signal_number));
    apply_stops(self, run);
    Py_RETURN_NONE;
}

static PyObject *checkpoint_metrics(PyObject *self, PyObject *args) {
    unsigned long long number;
    const char *metrics;
    if (!PyArg_ParseTuple(args, "Ks:checkpoint_metrics", &number, &metrics)) return NULL;
    ty_run *run = run_of(self);
    if (run == NULL) return NULL;
    ty_error err = {0};
    int result;
    ALONE(self, result = ty_run_checkpoint_metrics(run, number, metrics, &err));
    apply_stops(self, run);
    return result < 0 ? core_raise(state_of(self), &err) : PyBool_FromLong(result);
}

/* Gives the exception that is being raised the attribute `result`; what goes wrong there leaves it without. */
static void attach_result(PyObject *json) {
    PyObject *type, *exception, *trace;
    PyErr_Fetch(&type, &exception, &trace);
    PyErr_NormalizeException(&type, &exception, &trace);
    if (exception != NULL && json != NULL && PyObject_SetAttrString(exception, "result", json) < 0)
        PyErr_Clear();
    PyErr_Restore(type, exception, trace);
}

static PyObject *close_(PyObject *self, PyObject *nothing) {
    (void)nothing;
    ty_run *run = run_of(self);
    if (run == NULL) return NULL;
    ((struct run_object *)self)->run = NULL;
    ty_error err = {0};
    ty_result *result = NULL;
    int code;
    ALONE(self, code = ty_run_close(run, &result, &err));
    PyObject *json = core_text(result != NULL ? ty_result_json(result) : NULL);
    ty_result_free(result);
    if (code >= 0 || json == NULL) return json;
    (void)core_raise(state_of(self), &err);
    attach_result(json);
    Py_DECREF(json);
    return NULL;
}

static PyMethodDef methods[] = {
    {"fileno", fileno_, METH_NOARGS, "fileno() -> int\n\nReadable when dispatch() has something to do."},
    {"timeout_ms", timeout_ms, METH_NOARGS, "timeout_ms() -> int\n\nThe longest to wait for it; -1: no limit."},
    {"dispatch", dispatch, METH_NOARGS,
     "dispatch() -> bool\n\nDoes what can be done now; False: it has ended."},
    {"next_event", next_event, METH_NOARGS, "next_event() -> str | None\n\nThe next event, as JSON."},
    {"checkpoint_metrics", checkpoint_metrics, METH_VARARGS,
     "checkpoint_metrics(number, metrics_json) -> bool\n\nThe metrics of a kept checkpoint from now on; False: "
     "it is not kept (see ty_run_checkpoint_metrics)."},
    {"stop", stop, METH_VARARGS, "stop(signal)\n\nAs one Ctrl-C: first politely, again: at once."},
    {"close", close_, METH_NOARGS,
     "close() -> str\n\nThe result as JSON. Raises what failed; its attribute `result` is then that JSON, or "
     "None."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)new},
    {Py_tp_dealloc, (void *)dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc,
     "Run(request_json, payload)\n\nStarts a run; see ty_run_open. ValueError: nothing was started."},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "trainyard._core.Run",
    .basicsize = sizeof(struct run_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

int core_add_run(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    if (type == NULL) return -1;
    int result = PyModule_AddObjectRef(module, "Run", type);
    Py_DECREF(type);
    return result;
}
