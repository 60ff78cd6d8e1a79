/* Why a program cannot be executed, with a hint at what would run it, and whether it is what the controller
 * has. The hint follows from the name's ending and the file's mode; the words "No such file or directory" and
 * "Permission denied" stay where they are the cause. */
#include "agent/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

/* What runs files whose names end so ("train.py": "python"); NULL: nothing that is known. */
static const char *interpreter_of(const char *name) {
    static const struct {
        const char *ending, *interpreter;
    } known[] = {{".py", "python"}, {".sh", "sh"},   {".bash", "bash"}, {".pl", "perl"}, {".jl", "julia"},
                 {".R", "Rscript"}, {".rb", "ruby"}, {".lua", "lua"},   {".js", "node"}, {".jar", "java -jar"}};
    const char *ending = strrchr(name, '.');
    for (size_t i = 0; ending != NULL && i < ARRAY_SIZE(known); i++)
        if (str_equal(ending, known[i].ending)) return known[i].interpreter;
    return NULL;
}

bool program_is_interpreter(const char *name) {
    static const char *const known[] = {"python", "pypy", "sh",    "bash", "dash", "ksh",    "zsh",
                                        "perl",   "ruby", "julia", "lua",  "node", "Rscript"};
    const char *slash = strrchr(name, '/'), *version = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (str_prefix(slash != NULL ? slash + 1 : name, known[i], &version) &&
            version[strspn(version, "0123456789.")] == '\0')
            return true;
    return false;
}

/* The mode of a file; false when there is none. */
static bool look_at(const char *path, const char *directory, bool *is_directory, bool *is_executable) {
    struct stat status;
    CLEANUP_FD int at = open(directory != NULL ? directory : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (at < 0 || fstatat(at, path, &status, 0) < 0) return false;
    *is_directory = S_ISDIR(status.st_mode);
    *is_executable = faccessat(at, path, X_OK, AT_EACCESS) == 0;
    return true;
}

static int refuse_directory(const char *path, ty_error *err) {
    return ty_fail(err, TY_ESTART, "cannot execute %s: it is a directory", path);
}

int program_refuse(const char *path, const char *directory, int error, ty_error *err) {
    const char *interpreter = interpreter_of(path);
    bool is_directory = false, is_executable = false;
    bool there = look_at(path, directory, &is_directory, &is_executable);
    if (there && is_directory) return refuse_directory(path, err);
    if (!there || is_executable || error != EACCES)
        return ty_fail(err, TY_ESTART, "cannot execute %s: %s", path, strerror(error));
    if (interpreter != NULL)
        return ty_fail(err, TY_ESTART,
                       "cannot execute %s: Permission denied, as it is not executable; say `%s %s`", path,
                       interpreter, path);
    return ty_fail(err, TY_ESTART,
                   "cannot execute %s: Permission denied, as it is not executable; if it is a program, "
                   "`chmod +x %s`",
                   path, path);
}

int program_refuse_unfound(const char *name, const char *search, const char *directory, ty_error *err) {
    static const char missing[] = "No such file or directory in PATH";
    const char *interpreter = interpreter_of(name);
    bool is_directory = false, is_executable = false;
    if (!look_at(name, directory, &is_directory, &is_executable))
        return ty_fail(err, TY_ESTART, "cannot execute %s: %s=%s", name, missing, search);
    if (is_directory) return refuse_directory(name, err);
    const char *once = is_executable ? "" : ", once it is executable (chmod +x)";
    if (interpreter == NULL)
        return ty_fail(err, TY_ESTART, "cannot execute %s: %s; for the file here say ./%s%s", name, missing,
                       name, once);
    return ty_fail(err, TY_ESTART, "cannot execute %s: %s; for the file here say `%s %s`, or ./%s%s", name,
                   missing, interpreter, name, name, once);
}

/* -- is a program on this node what it is where the controller runs? */

/* Of a large program the bytes at its two ends are compared: the head of an executable has its build id. */
enum { END_SIZE = 512 * 1024 };

/* One that may be executed and not be read has no sum. */
static int sum(const char *path, struct digest *digest, ty_error *err) {
    struct stat status;
    CLEANUP_FREE char *bytes = malloc(2 * END_SIZE);
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (bytes == NULL) return ty_fail_memory(err);
    if (fd < 0 && errno == EACCES) return 0;
    if (fd < 0 || fstat(fd, &status) < 0) return program_refuse(path, NULL, errno, err);
    ssize_t head = pread(fd, bytes, END_SIZE, 0), tail = 0;
    if (head == END_SIZE && status.st_size > END_SIZE)
        tail = pread(fd, bytes + END_SIZE, END_SIZE,
                     status.st_size > 2 * END_SIZE ? status.st_size - END_SIZE : END_SIZE);
    if (head < 0 || tail < 0) return program_refuse(path, NULL, errno, err);
    bytes_digest_memory(bytes, (size_t)(head + tail), digest);
    digest->size = status.st_size;
    return 0;
}

int program_look(const struct program_whereabouts *place, const char *name, struct digest *digest,
                 ty_error *err) {
    CLEANUP(buffer_done) struct buffer path = {0};
    bool relative = strchr(name, '/') != NULL || place->script;
    CLEANUP_FREE char *found = relative ? strdup(name) : spawn_find(name, place->search, place->directory, err);
    if (found == NULL) return err->code < 0 ? err->code : ty_fail_memory(err);
    if (found[0] != '/') buffer_printf(&path, "%s/", place->directory);
    buffer_text(&path, found);
    if (path.failed) return ty_fail_memory(err);
    *digest = (struct digest){0};
    if (access(path.data, place->script ? R_OK : X_OK) < 0) return program_refuse(path.data, NULL, errno, err);
    return sum(path.data, digest, err);
}
