/* Finds and loads the modules of module.h, and finds the command, both from where this code itself lies: beside
 * it in a build tree, ../bin and ../lib of an installed one, then the directories that were configured. A
 * module of another build is refused; nothing is searched for in the working directory or by the loader's path.
 * */
#include "base/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

#define MODULE_DIRECTORY "trainyard-modules"

/* Takes the last name off an absolute path; "/" stays. */
static void cut_name(char *path) {
    char *slash = strrchr(path, '/');
    slash[slash == path ? 1 : 0] = '\0';
}

static char home[PATH_MAX];

/* By the loader's name of the object that holds this code; for the main program that name is empty, or whatever
 * argv[0] said, so the kernel is asked instead. */
static void find_home(void) {
    Dl_info info;
    struct link_map *map = NULL;
    bool found = dladdr1((const void *)find_home, &info, (void **)&map, RTLD_DL_LINKMAP) != 0 && map != NULL;
    bool main_program = found && (map->l_name == NULL || map->l_name[0] == '\0');
    if (!found || realpath(main_program ? "/proc/self/exe" : map->l_name, home) == NULL) {
        home[0] = '\0';
        return;
    }
    cut_name(home);
    char *directory = strrchr(home, '/');
    if (strcmp(directory, "/" MODULE_DIRECTORY) == 0)
        cut_name(home); /* a module uses others, and the command, too */
}

const char *module_home(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, find_home);
    return home;
}

/* Writes to `path` the first of the places where the file exists. */
static bool find_module(const char *name, char *path, size_t size) {
    static const char *const beside[] = {MODULE_DIRECTORY, "../lib/" MODULE_DIRECTORY};
    for (size_t i = 0; i < ARRAY_SIZE(beside); i++) {
        int length = snprintf(path, size, "%s/%s/%s.so", module_home(), beside[i], name);
        if (length > 0 && (size_t)length < size && access(path, F_OK) == 0) return true;
    }
    int length = snprintf(path, size, "%s/%s.so", TY_MODULE_DIR, name);
    return length > 0 && (size_t)length < size && access(path, F_OK) == 0;
}

static const void *fail_load(const char *name, const char *why, ty_error *err) {
    (void)ty_fail(err, TY_EUNSUPPORTED, "cannot load module %s: %s", name, why);
    return NULL;
}

const void *module_load(const char *name, ty_error *err) {
    char path[PATH_MAX], symbol[64];
    int length = snprintf(symbol, sizeof symbol, "trainyard_%s", name);
    if (length < 0 || (size_t)length >= sizeof symbol || strchr(name, '/') != NULL)
        return fail_load(name, "no module has such a name", err);
    if (!find_module(name, path, sizeof path)) {
        (void)ty_fail(err, TY_EUNSUPPORTED,
                      "module %s is not installed: looked for %s.so in %s/trainyard-modules and %s", name, name,
                      module_home(), TY_MODULE_DIR);
        return NULL;
    }
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) return fail_load(name, dlerror(), err);
    const char *const *module = dlsym(handle, symbol); /* the struct begins with its build */
    if (module == NULL) {
        (void)fail_load(name, dlerror(), err);
        (void)dlclose(handle);
        return NULL;
    }
    if (!str_equal(module[0], base_build)) {
        (void)ty_fail(err, TY_EVERSION,
                      "%s is of build %.60s, but this is trainyard %s: install both from one build", path,
                      module[0] != NULL ? module[0] : "unknown", base_build);
        (void)dlclose(handle);
        return NULL;
    }
    return module;
}

const char *module_command(ty_error *err) {
    static char command[PATH_MAX];
    static const char *const beside[] = {"trainyard", "../bin/trainyard"};
    char path[PATH_MAX];
    for (size_t i = 0; i < ARRAY_SIZE(beside); i++) {
        int length = snprintf(path, sizeof path, "%s/%s", module_home(), beside[i]);
        if (length > 0 && (size_t)length < sizeof path && access(path, X_OK) == 0) return strcpy(command, path);
    }
    if (access(TY_COMMAND, X_OK) == 0) return TY_COMMAND;
    (void)ty_fail(err, TY_EUNSUPPORTED, "cannot find the trainyard command: looked in %s, %s/../bin and at %s",
                  module_home(), module_home(), TY_COMMAND);
    return NULL;
}
