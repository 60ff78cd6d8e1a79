/* Settings for all runs. A file is read only where its owner is the superuser or the caller, and nobody else
 * may write it: it says where files of a run go. Which settings there are is the table's (run/settings.def). */
#include "controller/site.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/document.h"
#include "base/file.h"

enum { FILES = 2, SITE_FILE_MAX = 1 << 20 };

/* Read once, and kept: settings borrow their texts from it. */
static struct {
    pthread_mutex_t lock;
    bool read;
    ty_error error; /* of the reading */
    struct document *documents[FILES];
    struct run_settings settings; /* what is right in all of it */
    char *storage_path;
} site = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The map `run_config` of a file, or NULL. */
static const json_t *run_config_of(const struct document *document, ty_error *err) {
    static const char *const known[] = {"run_config"};
    static const char *const of_one_run[] = {"name", "resume"};
    const json_t *root = document_root(document);
    if (!json_is_object(root)) {
        (void)ty_fail(err, TY_EUSAGE, "%s: must be a map with run_config", document_where(document, root));
        return NULL;
    }
    if (document_check_keys(document, root, "a file of settings for all runs", known, 1, err) < 0) return NULL;
    const json_t *map = json_object_get(root, known[0]);
    for (size_t i = 0; i < ARRAY_SIZE(of_one_run); i++)
        if (json_object_get(map, of_one_run[i]) != NULL) {
            (void)ty_fail(err, TY_EUSAGE, "%s: %s belongs to one run, and cannot be set for all",
                          document_where_key(document, map, of_one_run[i]), of_one_run[i]);
            return NULL;
        }
    return map;
}

/* $NAME and ${NAME} as they are in the environment. */
static char *expand(const char *text, const char *where, ty_error *err) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
    struct buffer out = {0};
    while (*text != '\0') {
        char name[64];
        size_t plain = strcspn(text, "$");
        buffer_append(&out, text, plain);
        text += plain;
        if (*text == '\0') break;
        bool braced = text[1] == '{';
        const char *begin = text + 1 + braced;
        size_t size = strspn(begin, letters);
        (void)snprintf(name, sizeof name, "%.*s", (int)size, begin);
        const char *value = size == 0 || (braced && begin[size] != '}') ? NULL : getenv(name);
        if (value == NULL) {
            buffer_done(&out);
            (void)ty_fail(err, TY_EUSAGE, "%s: storage_path: $%s is not set in the environment", where, name);
            return NULL;
        }
        buffer_text(&out, value);
        text = begin + size + braced;
    }
    if (out.failed) (void)ty_fail_memory(err);
    return buffer_take(&out);
}

/* Settings of a later file stand in place of those of an earlier one, key by key. A file that is not there is
 * none; one that cannot be trusted is an error, since to pass over it would change where runs go. */
static int read_file(const char *path, size_t index, ty_error *err) {
    struct stat status;
    if (stat(path, &status) < 0) {
        if (errno == ENOENT || errno == ENOTDIR || errno == EACCES) return 0;
        return ty_fail(err, TY_EUSAGE, "cannot read %s: %s", path, strerror(errno));
    }
    if (!S_ISREG(status.st_mode)) return ty_fail(err, TY_EUSAGE, "%s must be a file", path);
    bool ours = status.st_uid == 0 || status.st_uid == geteuid();
    if (!ours || (status.st_mode & 022) != 0)
        return ty_fail(err, TY_EUSAGE,
                       "%s may be changed by others than you and root: it is not obeyed (%s %s)", path,
                       ours ? "chmod go-w" : "chown root", path);
    int result = document_read(path, SITE_FILE_MAX, &site.documents[index], err);
    if (result < 0) return result;
    const json_t *map = run_config_of(site.documents[index], err);
    if (map == NULL) return err->code;
    result = settings_read(&site.settings, map, site.documents[index], NULL, 0, err);
    if (result < 0 || site.settings.storage_path == NULL) return result;
    const char *where = document_where(site.documents[index], json_object_get(map, "storage_path"));
    char *storage_path = expand(TAKE(site.settings.storage_path), where, err);
    free(site.storage_path);
    site.storage_path = storage_path;
    return storage_path == NULL ? err->code : 0;
}

static int read_files(ty_error *err) {
    const char *given = getenv("TRAINYARD_CONFIG"), *home = getenv("XDG_CONFIG_HOME");
    CLEANUP_FREE char *own = NULL, *path = NULL;
    settings_init(&site.settings);
    if (given != NULL && *given == '\0') return 0;
    if (given != NULL && access(given, R_OK) < 0)
        return ty_fail(err, TY_EUSAGE, "TRAINYARD_CONFIG=%s: %s", given, strerror(errno));
    if (given != NULL) return read_file(given, 0, err);
    int result = read_file("/etc/trainyard.yaml", 0, err);
    if (result < 0) return result;
    if (asprintf(&own, "%s/trainyard.yaml", home != NULL && *home == '/' ? home : "~/.config") < 0) {
        own = NULL;
        return ty_fail_memory(err);
    }
    path = file_absolute(own); /* NULL: there is no home */
    return path == NULL ? 0 : read_file(path, 1, err);
}

static int read_once(ty_error *err) {
    (void)pthread_mutex_lock(&site.lock);
    if (!site.read) (void)read_files(&site.error);
    site.read = true;
    if (site.error.code < 0 && err != NULL) *err = site.error;
    int result = site.error.code;
    (void)pthread_mutex_unlock(&site.lock);
    return result;
}

int site_settings(struct run_settings *settings, ty_error *err) {
    int result = read_once(err);
    *settings = site.settings;
    return result;
}

const char *site_storage_path(ty_error *err) {
    return read_once(err) < 0 ? NULL : site.storage_path;
}
