/* What the files of the extension share. The extension turns the public C interface into Python objects and
 * back, and has no policy: that is in trainyard/.py. */
#ifndef PYTHON_CORE_H
#define PYTHON_CORE_H

#include <Python.h>
#include <trainyard/trainyard.h>

/* Of one module object. */
struct core_state {
    PyObject *error; /* _core.Error: what no exception of Python's own stands for */
};

/* Raises `err` as the exception that fits: ValueError for a wrong value, FileExistsError, TimeoutError,
 * MemoryError, OSError for -errno, else _core.Error, which is a RuntimeError. Each carries `code` (negative)
 * and `symbol` ("TY_EUSAGE"). Always NULL. */
PyObject *core_raise(const struct core_state *state, const ty_error *err);

/* Text that C handed over, invalid UTF-8 replaced; None for NULL. */
PyObject *core_text(const char *text);

/* The methods of a worker, and those of a run on its way, added to the module. 0 or -1. */
int core_add_worker(PyObject *module);
int core_add_run(PyObject *module);
int core_add_fork(PyObject *module); /* what a fork template needs */

#endif
