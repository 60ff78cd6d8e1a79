/* Programs as templates: an interpreter of Python that is started with the program's own command line, and is
 * caught before it comes to the program (python/trainyard/_program.py). When that may be tried is said here, by
 * what can be seen without the interpreter; what it finds itself, it answers. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/template/template_internal.h"
#include "base/cleanup.h"
#include "base/module.h"
#include "base/str.h"

enum { HEAD_SIZE = 64 << 10 };

/* Of the module that the interpreter looks for before anything else, in a build tree or an installed package;
 * NULL where the Python package is not there. */
static const char *hook_directory(void) {
    static char directory[PATH_MAX];
    static const char *const beside[] = {"python/trainyard/_interpreter", "../_interpreter"};
    char path[PATH_MAX];
    for (size_t i = 0; i < ARRAY_SIZE(beside) && directory[0] == '\0'; i++) {
        int length = snprintf(path, sizeof path, "%s/%s/sitecustomize.py", module_home(), beside[i]);
        if (length < 0 || (size_t)length >= sizeof path || realpath(path, directory) == NULL)
            directory[0] = '\0';
        else
            *strrchr(directory, '/') = '\0';
    }
    return directory[0] != '\0' ? directory : NULL;
}

bool template_is_program(const struct node_launch *launch) {
    const Wire__Launch *body = launch->body;
    bool forks = str_equal(body->start_method, "auto") || str_equal(body->start_method, "template");
    return forks && body->n_template_argv == 0;
}

/* "python3", "python3.11", "python"; no script that looks for an interpreter, and so may change what is asked
 * of it. */
static bool is_interpreter(const char *path) {
    char real[PATH_MAX], magic[4] = "";
    const char *rest;
    if (realpath(path, real) == NULL || !str_prefix(strrchr(real, '/'), "/python", &rest)) return false;
    if (rest[strspn(rest, "0123456789.")] != '\0') return false;
    CLEANUP_FD int fd = open(real, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && read(fd, magic, sizeof magic) == (ssize_t)sizeof magic &&
           memcmp(magic, "\177ELF", 4) == 0;
}

/* The file that holds the program: of a script, or of a module below the working directory. Written to `path`,
 * relative to `directory`. */
static bool find_program_file(const Wire__Launch *body, const char *directory, char path[PATH_MAX]) {
    static const char *const endings[] = {"", ".py", "/__main__.py"};
    struct stat status;
    size_t at = 1;
    while (at < body->n_argv && str_equal(body->argv[at], "-u"))
        at++;
    bool module = at + 1 < body->n_argv && str_equal(body->argv[at], "-m");
    at += module;
    if (at >= body->n_argv || body->argv[at][0] == '-' || body->argv[at][0] == '\0') return false;
    const char *word = body->argv[at];
    for (size_t i = module; i < (module ? ARRAY_SIZE(endings) : 1); i++) {
        int length =
            snprintf(path, PATH_MAX, "%s%s", word[0] == '/' ? "" : directory, word[0] == '/' ? "" : "/");
        if (length < 0 || length >= PATH_MAX) return false;
        int more = snprintf(path + length, (size_t)(PATH_MAX - length), "%s%s", word, endings[i]);
        if (more < 0 || more >= PATH_MAX - length) return false;
        for (char *dot = path + length; module && dot < path + length + strlen(word); dot++)
            if (*dot == '.') *dot = '/';
        if (stat(path, &status) == 0 && S_ISREG(status.st_mode)) return true;
    }
    return false;
}

/* Whether it has a line "import ..torch.." or "from torch..": the interpreter is not started in vain for
 * others. */
static bool imports_torch(const char *path) {
    CLEANUP_FREE char *text = malloc(HEAD_SIZE + 1);
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = text != NULL && fd >= 0 ? read(fd, text, HEAD_SIZE) : -1;
    if (size < 0) return false;
    text[size] = '\0';
    for (char *line = text, *next; line != NULL; line = next) {
        next = strchr(line, '\n');
        if (next != NULL) *next++ = '\0';
        const char *rest;
        if (str_prefix(line, "from torch", NULL)) return true;
        if (str_prefix(line, "import ", &rest) && strstr(rest, "torch") != NULL) return true;
    }
    return false;
}

static bool has_entry(const Wire__LaunchWorker *worker, const char *entry) {
    return str_find(entry, (const char *const *)worker->environment, worker->n_environment) >= 0;
}

/* Of the workers' own variables those in which they do not differ, as changes; NULL when memory is short. */
static char **common_changes(const Wire__Launch *body, size_t *n) {
    const Wire__LaunchWorker *first = body->workers[0];
    char **changes = calloc(first->n_environment + 1, sizeof *changes);
    *n = 0;
    for (size_t i = 0; changes != NULL && i < first->n_environment; i++) {
        size_t alike = 1;
        while (alike < body->n_workers && has_entry(body->workers[alike], first->environment[i]))
            alike++;
        if (alike >= body->n_workers) changes[(*n)++] = first->environment[i];
    }
    return changes;
}

/* A variable that is read when an interpreter or a library starts, in which this worker is not as the first. */
static const char *find_difference(const Wire__Launch *body, const Wire__LaunchWorker *worker) {
    const Wire__LaunchWorker *first = body->workers[0];
    for (size_t i = 0; i < worker->n_environment; i++)
        if (template_is_start_variable(worker->environment[i]) && !has_entry(first, worker->environment[i]))
            return worker->environment[i];
    return NULL;
}

static const char *find_value(char *const *list, const char *name) {
    const char *value;
    for (; *list != NULL; list++)
        if (str_prefix(*list, name, &value)) return value;
    return NULL;
}

/* Why each worker is better executed by itself; NULL: they may be forked. What costs least is asked first;
 * files are looked at last. */
const char *template_refuse_program(const struct node_launch *launch) {
    static const char *const per_process[] = {"TORCH_TRACE=", "TORCH_LOGS_OUT=", "COVERAGE_PROCESS_START="};
    const Wire__Launch *body = launch->body;
    const char *directory = node_launch_directory(launch) != NULL ? body->working_directory : ".";
    char path[PATH_MAX];
    if (body->n_workers < 2) return "a lone worker has nothing to share";
    if (body->executable[0] != '\0' || body->n_argv < 2) return "the program is not of Python";
    for (size_t i = 0; i < body->n_workers; i++) {
        if (body->workers[i]->input || body->workers[i]->pty)
            return "a worker has a terminal, or standard input";
        if (find_difference(body, body->workers[i]) != NULL)
            return "workers differ in a variable that libraries read when they are imported";
    }
    CLEANUP_FREE char *interpreter =
        spawn_find(body->argv[0], node_launch_variable(launch, "PATH"), directory, NULL);
    if (interpreter == NULL || !is_interpreter(interpreter))
        return "the program is not an interpreter of Python";
    if (!find_program_file(body, directory, path))
        return "what Python is to run is no script and no module of the working directory";
    if (!imports_torch(path)) return "the program does not begin with an import of torch";
    if (hook_directory() == NULL) return "the Python package does not lie beside this command";
    size_t n = 0;
    CLEANUP_FREE char **changes = common_changes(body, &n);
    CLEANUP_FREE char **list = changes != NULL ? node_launch_environment(launch, changes, n, NULL) : NULL;
    if (list == NULL) return "memory is short";
    if (!str_equal(find_value(list, "OMP_NUM_THREADS="), "1"))
        return "OMP_NUM_THREADS is not 1: libraries start threads when they are imported";
    for (size_t i = 0; i < ARRAY_SIZE(per_process); i++)
        if (find_value(list, per_process[i]) != NULL)
            return "a variable asks for a record of each process (TORCH_TRACE, TORCH_LOGS_OUT, "
                   "COVERAGE_PROCESS_START)";
    return NULL;
}

char **template_program_environment(const struct node_launch *launch, char *const *changes, size_t n,
                                    char *last, char **path) {
    const char *hook = hook_directory(), *others = node_launch_variable(launch, "PYTHONPATH");
    size_t n_common = 0;
    CLEANUP_FREE char **common = common_changes(launch->body, &n_common);
    CLEANUP_FREE char **all = common != NULL ? calloc(n_common + n + 1, sizeof *all) : NULL;
    bool more = others != NULL && others[0] != '\0';
    if (all == NULL || hook == NULL ||
        asprintf(path, "PYTHONPATH=%s%s%s", hook, more ? ":" : "", more ? others : "") < 0)
        return NULL;
    memcpy(all, common, n_common * sizeof *all);
    if (n > 0) memcpy(all + n_common, changes, n * sizeof *all);
    all[n_common + n] = *path;
    return node_launch_environment(launch, all, n_common + n + 1, last);
}
