/* Forking for _template.py: a child that is its parent's sibling, and what the system shows of a process that
 * was forked.
 *
 * The fork is one clone with CLONE_PARENT, so that whoever waits for this process waits for the child too. The
 * C library knows nothing of it: it keeps the thread's number in the place that the kernel is asked to set and
 * clear here, as its own fork does, and its list of robust locks is registered again. Only for a process with
 * one thread. */
#include "core.h"

#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NAME_SIZE = 16 };

/* What the C library has registered with the kernel for this thread. */
struct registered {
    int *thread_id;
    void *locks;
    size_t locks_size;
};

static int read_registered(struct registered *registered) {
    if (prctl(PR_GET_TID_ADDRESS, &registered->thread_id) < 0) return -1;
    return (int)syscall(SYS_get_robust_list, 0, &registered->locks, &registered->locks_size);
}

static pid_t clone_sibling(const struct registered *registered) {
    unsigned long flags = CLONE_PARENT | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
    int *id =
        registered
            ->thread_id; /* the fourth word or, on Arm, the fifth: neither counts for anything else here */
    return (pid_t)syscall(SYS_clone, flags, NULL, NULL, id, id);
}

/* In the child: its own session, and an end with its parent, which may have gone before the kernel was told. */
static void settle(const struct registered *registered, pid_t parent) {
    (void)syscall(SYS_set_robust_list, registered->locks, registered->locks_size);
    (void)setsid();
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
}

static PyObject *fork_sibling(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    struct registered registered = {0};
    if (read_registered(&registered) < 0) return PyErr_SetFromErrno(PyExc_OSError);
    pid_t parent = getppid();
    (void)fflush(NULL);
    PyOS_BeforeFork();
    pid_t pid = clone_sibling(&registered);
    int code = errno;
    if (pid == 0) {
        settle(&registered, parent);
        PyOS_AfterFork_Child();
    } else {
        PyOS_AfterFork_Parent();
    }
    errno = code;
    return pid < 0 ? PyErr_SetFromErrno(PyExc_OSError) : PyLong_FromLong(pid);
}

static PyObject *fork_driver(PyObject *module, PyObject *unused) {
    (void)unused;
    ty_error err = {0};
    int control_fd = -1;
    PyOS_BeforeFork();
    int result = ty_run_fork(&control_fd, &err);
    if (result == 0)
        PyOS_AfterFork_Child();
    else
        PyOS_AfterFork_Parent();
    if (result < 0) return core_raise(PyModule_GetState(module), &err);
    if (result > 0) Py_RETURN_NONE;
    return PyLong_FromLong(control_fd);
}

static PyObject *fork_drop(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    Py_BEGIN_ALLOW_THREADS;
    ty_run_fork_drop();
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

/* The memory that the kernel filled when this process was executed, which /proc shows: [arguments start, end),
 * [environment start, end), fields 48 to 51 of stat, counted behind the name, which is the second. False when
 * it is not told. */
static bool find_initial(uintptr_t areas[4]) {
    char text[1024];
    FILE *file = fopen("/proc/self/stat", "re");
    if (file == NULL) return false;
    size_t size = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file);
    text[size] = '\0';
    const char *at = strrchr(text, ')');
    for (int field = 3; at != NULL && field <= 48; field++)
        at = strchr(at + 1, ' ');
    for (int i = 0; at != NULL && i < 4; i++) {
        char *end;
        areas[i] = strtoull(at + 1, &end, 10);
        at = end;
    }
    return at != NULL && areas[0] != 0 && areas[0] < areas[1] && areas[2] < areas[3];
}

static PyObject *set_title(PyObject *module, PyObject *args) {
    (void)module;
    const char *title;
    uintptr_t areas[4];
    if (!PyArg_ParseTuple(args, "s:set_title", &title)) return NULL;
    char name[NAME_SIZE];
    (void)snprintf(name, sizeof name, "%s", title);
    (void)prctl(PR_SET_NAME, name);
    if (!find_initial(areas)) Py_RETURN_NONE;
    size_t room = areas[1] - areas[0];
    memset((char *)areas[0], 0, room);
    (void)snprintf((char *)areas[0], room, "%s", title);
    Py_RETURN_NONE;
}

/* The value of a variable of the initial environment, and how long it is; NULL when there is none. */
static char *find_variable(const uintptr_t areas[4], const char *name, size_t *room) {
    size_t size = strlen(name);
    char *end = (char *)areas[3];
    for (char *at = (char *)areas[2]; at < end; at += strnlen(at, (size_t)(end - at)) + 1) {
        size_t left = (size_t)(end - at);
        if (left <= size + 1 || strncmp(at, name, size) != 0 || at[size] != '=') continue;
        *room = strnlen(at, left) - size - 1;
        return at + size + 1;
    }
    return NULL;
}

/* Writes over what stands at `place`; false without room for it. */
static bool overwrite(char *place, size_t room, const char *text) {
    size_t size = strlen(text);
    if (place == NULL || size > room) return false;
    memset(place, 0, room);
    memcpy(place, text, size);
    return true;
}

static PyObject *show_variable(PyObject *module, PyObject *args) {
    (void)module;
    const char *name, *value;
    uintptr_t areas[4];
    size_t room = 0;
    if (!PyArg_ParseTuple(args, "ss:show_variable", &name, &value)) return NULL;
    char *place = find_initial(areas) ? find_variable(areas, name, &room) : NULL;
    if (!overwrite(place, room, value))
        return PyErr_Format(PyExc_ValueError, "the initial environment has no room for %s=%s", name, value);
    Py_RETURN_NONE;
}

static PyObject *show_only(PyObject *module, PyObject *args) {
    (void)module;
    const char *entry;
    uintptr_t areas[4];
    if (!PyArg_ParseTuple(args, "s:show_only", &entry)) return NULL;
    bool shown = find_initial(areas) && overwrite((char *)areas[2], areas[3] - areas[2], entry);
    return PyBool_FromLong(shown);
}

static PyMethodDef methods[] = {
    {"fork_sibling", fork_sibling, METH_NOARGS,
     "fork_sibling() -> int\n\nForks this process, which must have one thread, into a child of its parent: 0 "
     "in the child, which "
     "leads a session and is killed when that parent ends; its pid here. OSError."},
    {"fork_driver", fork_driver, METH_NOARGS,
     "fork_driver() -> int | None\n\nForks this process, which must have one thread, for the workers of the "
     "next run: the socket to "
     "the agent in the copy; None here. OSError, Error."},
    {"fork_drop", fork_drop, METH_NOARGS, "fork_drop()\n\nEnds the copy if no run has taken it."},
    {"set_title", set_title, METH_VARARGS,
     "set_title(text)\n\nWhat ps shows of this process, cut to the room that its command line had."},
    {"show_variable", show_variable, METH_VARARGS,
     "show_variable(name, value)\n\nWrites over the value of a variable in the environment that /proc shows. "
     "ValueError when it was "
     "not there or shorter. os.environ is not changed."},
    {"show_only", show_only, METH_VARARGS,
     "show_only(entry) -> bool\n\nMakes `entry`, NAME=VALUE, all of the environment that /proc shows; nothing "
     "must point into that memory "
     "any more. False without room."},
    {NULL, NULL, 0, NULL},
};

int core_add_fork(PyObject *module) {
    return PyModule_AddFunctions(module, methods);
}
