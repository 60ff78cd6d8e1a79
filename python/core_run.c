/* `_core.Run`: a run on its way, stepped by Python: poll(fileno(), timeout_ms()), dispatch(), next_event(), until dispatch() says
 * that it has ended; then close(). Nothing here calls back into Python. */
#include <stdlib.h>
#include <trainyard/run.h>

#include "core.h"

struct run_object {
    PyObject_HEAD ty_run *run; /* NULL once closed */
};

static const struct core_state *state_of(PyObject *self) {
    return PyType_GetModuleState(Py_TYPE(self));
}

/* The run, or NULL with ValueError once it is closed. */
static ty_run *run_of(PyObject *self) {
    ty_run *run = ((struct run_object *)self)->run;
    if (run == NULL) PyErr_SetString(PyExc_ValueError, "the run is closed");
    return run;
}

static PyObject *new (PyTypeObject *type, PyObject *args, PyObject *keywords) {
    const char *request, *payload = NULL;
    Py_ssize_t size = 0;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "sy#:Run", &request, &payload, &size)) return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *self = allocate(type, 0);
    if (self == NULL) return NULL;
    ty_error err = {0};
    if (ty_run_open(request, payload, (size_t)size, &((struct run_object *)self)->run, &err) == 0) return self;
    (void)core_raise(state_of(self), &err);
    Py_DECREF(self);
    return NULL;
}

static void dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    ty_result *result = NULL;
    ty_run *run = ((struct run_object *)self)->run;
    if (run != NULL) (void)ty_run_close(run, &result, NULL);
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
    int result = ty_run_dispatch(run, &err);
    return result < 0 ? core_raise(state_of(self), &err) : PyBool_FromLong(result);
}

static PyObject *next_event(PyObject *self, PyObject *nothing) {
    (void)nothing;
    ty_run *run = run_of(self);
    char *event = NULL;
    if (run == NULL) return NULL;
    if (ty_run_next_event(run, &event) <= 0) Py_RETURN_NONE;
    PyObject *text = core_text(event);
    free(event);
    return text;
}

static PyObject *stop(PyObject *self, PyObject *args) {
    int signal_number;
    ty_run *run = run_of(self);
    if (run == NULL || !PyArg_ParseTuple(args, "i:stop", &signal_number)) return NULL;
    (void)ty_run_stop(run, signal_number);
    Py_RETURN_NONE;
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
    int code = ty_run_close(run, &result, &err);
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
