/* The module `trainyard._core`: errors as exceptions, the scaling config, and what stands on its own. Runs are
 * in core_run.c, what a worker says to its agent in core_worker.c, forking in fork.c. */
#include "core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static PyObject *exception_class(const struct core_state *state, int code) {
    switch (code) {
    case TY_EUSAGE:
        return PyExc_ValueError;
    case TY_EEXISTS:
        return PyExc_FileExistsError;
    case TY_ETIMEOUT:
        return PyExc_TimeoutError;
    case -ENOMEM:
        return PyExc_MemoryError;
    default:
        return code > -10000 ? PyExc_OSError : state->error;
    }
}

PyObject *core_text(const char *text) {
    if (text == NULL) Py_RETURN_NONE;
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

PyObject *core_raise(const struct core_state *state, const ty_error *err) {
    PyObject *type = exception_class(state, err->code);
    PyObject *message = core_text(err->message);
    PyObject *exception = message != NULL ? PyObject_CallFunctionObjArgs(type, message, NULL) : NULL;
    PyObject *code = PyLong_FromLong(err->code);
    PyObject *symbol = core_text(ty_error_name(err->code));
    if (exception != NULL && code != NULL && symbol != NULL &&
        PyObject_SetAttrString(exception, "code", code) == 0 &&
        PyObject_SetAttrString(exception, "symbol", symbol) == 0)
        PyErr_SetObject(type, exception);
    Py_XDECREF(symbol);
    Py_XDECREF(code);
    Py_XDECREF(exception);
    Py_XDECREF(message);
    return NULL;
}

/* A question to the library: JSON in, JSON out. */
static PyObject *ask(PyObject *module, int (*function)(const char *, char **, ty_error *),
                     const char *question) {
    ty_error err = {0};
    char *json = NULL;
    int result;
    Py_BEGIN_ALLOW_THREADS; /* this machine is asked about its devices */
    result = function(question, &json, &err);
    Py_END_ALLOW_THREADS;
    if (result < 0) return core_raise(PyModule_GetState(module), &err);
    PyObject *text = core_text(json);
    free(json);
    return text;
}

static PyObject *resolve(PyObject *module, PyObject *args) {
    const char *config;
    if (!PyArg_ParseTuple(args, "s:resolve", &config)) return NULL;
    return ask(module, ty_scaling_resolve, config);
}

static PyObject *nodes(PyObject *module, PyObject *args) {
    const char *request;
    if (!PyArg_ParseTuple(args, "s:nodes", &request)) return NULL;
    return ask(module, ty_cluster_nodes, request);
}

static PyObject *check_run(PyObject *module, PyObject *args) {
    const char *request;
    ty_error err = {0};
    if (!PyArg_ParseTuple(args, "s:check_run", &request)) return NULL;
    if (ty_run_check(request, &err) < 0) return core_raise(PyModule_GetState(module), &err);
    Py_RETURN_NONE;
}

static PyObject *storage_path(PyObject *module, PyObject *args) {
    ty_error err = {0};
    char *path = NULL;
    (void)args;
    if (ty_storage_path(&path, &err) < 0) return core_raise(PyModule_GetState(module), &err);
    PyObject *text = core_text(path);
    free(path);
    return text;
}

static PyObject *result_read(PyObject *module, PyObject *args) {
    const char *path;
    ty_error err = {0};
    ty_result *result = NULL;
    int code;
    if (!PyArg_ParseTuple(args, "s:result_read", &path)) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    code = ty_result_read(path, &result, &err);
    Py_END_ALLOW_THREADS;
    if (code < 0) return core_raise(PyModule_GetState(module), &err);
    PyObject *text = core_text(ty_result_json(result));
    ty_result_free(result);
    return text;
}

static PyMethodDef methods[] = {
    {"resolve", resolve, METH_VARARGS,
     "resolve(config_json) -> str\n\nThe scaling config, checked and resolved, as JSON (see "
     "ty_scaling_resolve)."},
    {"check_run", check_run, METH_VARARGS,
     "check_run(request_json)\n\nValueError for a request that no run would begin with (see ty_run_check)."},
    {"storage_path", storage_path, METH_NOARGS,
     "storage_path() -> str\n\nWhere a run is kept that does not say (see ty_storage_path)."},
    {"result_read", result_read, METH_VARARGS,
     "result_read(path) -> str\n\nThe result of the run in this directory, as JSON (see ty_result_read)."},
    {"nodes", nodes, METH_VARARGS,
     "nodes(request_json) -> str\n\nThe nodes that a run would have, as JSON (see ty_cluster_nodes)."},
    {NULL, NULL, 0, NULL},
};

static int add_error(PyObject *module) {
    struct core_state *state = PyModule_GetState(module);
    state->error = PyErr_NewExceptionWithDoc("trainyard._core.Error",
                                             "A failure that no exception of Python's own stands for.",
                                             PyExc_RuntimeError, NULL);
    if (state->error == NULL) return -1;
    return PyModule_AddObjectRef(module, "Error", state->error);
}

static int execute(PyObject *module) {
    if (add_error(module) < 0) return -1;
    if (core_add_worker(module) < 0 || core_add_run(module) < 0) return -1;
    if (core_add_fork(module) < 0) return -1;
    return PyModule_AddStringConstant(module, "version", ty_version());
}

static int traverse(PyObject *module, visitproc visit, void *arg) {
    struct core_state *state = PyModule_GetState(module);
    if (state != NULL) Py_VISIT(state->error);
    return 0;
}

static int clear(PyObject *module) {
    struct core_state *state = PyModule_GetState(module);
    if (state != NULL) Py_CLEAR(state->error);
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)execute}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_core",
    .m_doc = "The C library as Python objects; the package's own modules use it, programs need not.",
    .m_size = sizeof(struct core_state),
    .m_methods = methods,
    .m_slots = slots,
    .m_traverse = traverse,
    .m_clear = clear,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void) {
    return PyModuleDef_Init(&definition);
}
