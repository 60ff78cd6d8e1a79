/* Reads small files and directories of the machine. All paths are below the system root, which
 * TRAINYARD_SYSROOT names: the files of another machine can be looked at, as the tests do. What the files say
 * of devices is the vendors' to know. */
#include "accelerator/vendors.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

/* The path below the system root; false when it is too long. */
static bool locate(const char *path, char *out, size_t size) {
    const char *root = getenv("TRAINYARD_SYSROOT");
    int length = snprintf(out, size, "%s%s", root == NULL ? "" : root, path);
    return length >= 0 && (size_t)length < size;
}

bool machine_has(const char *path) {
    char real[MACHINE_PATH_SIZE];
    return locate(path, real, sizeof real) && access(real, F_OK) == 0;
}

static ssize_t read_at_once(const char *path, char *text, size_t size) {
    char real[MACHINE_PATH_SIZE];
    if (!locate(path, real, sizeof real)) return -1;
    CLEANUP_FD int fd = open(real, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return fd < 0 ? -1 : read(fd, text, size);
}

bool machine_read_some(const char *path, char *text, size_t size) {
    ssize_t got = read_at_once(path, text, size - 1);
    text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

bool machine_read(const char *path, char *text, size_t size) {
    ssize_t got = read_at_once(path, text, size);
    if (got < 0 || (size_t)got >= size) return false;
    while (got > 0 && isspace((unsigned char)text[got - 1]))
        got--;
    text[got] = '\0';
    return true;
}

static bool to_number(const char *text, int64_t *number) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 0);
    if (errno != 0 || end == text || (*end != '\0' && !isspace((unsigned char)*end))) return false;
    *number = value;
    return true;
}

bool machine_read_number(const char *path, int64_t *number) {
    char text[64];
    return machine_read(path, text, sizeof text) && to_number(text, number);
}

bool machine_link(const char *path, char *name, size_t size) {
    char real[MACHINE_PATH_SIZE], target[MACHINE_PATH_SIZE];
    if (!locate(path, real, sizeof real)) return false;
    ssize_t length = readlink(real, target, sizeof target - 1);
    if (length <= 0) return false;
    target[length] = '\0';
    const char *slash = strrchr(target, '/');
    const char *last = slash == NULL ? target : slash + 1;
    if (strlen(last) >= size) return false;
    memcpy(name, last, strlen(last) + 1);
    return true;
}

/* A blank or a colon must follow, so that a key is not found in a longer one. */
bool machine_property(const char *path, const char *key, int64_t *value) {
    char text[8192], *rest = text;
    if (!machine_read(path, text, sizeof text)) return false;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        const char *after;
        if (!str_prefix(line, key, &after) || (*after != ' ' && *after != ':')) continue;
        return to_number(after + strspn(after, ": \t"), value);
    }
    return false;
}

struct listing {
    struct dirent **entries;
    int n; /* -errno: it cannot be read; 0: it was not */
};

/* Of /dev, while the machine is probed by this thread: every vendor looks for its own names there. */
static _Thread_local struct {
    bool kept;
    struct listing listing;
} devices;

/* By name in byte order, so that what is found does not depend on the file system. */
static void read_listing(const char *directory, struct listing *listing) {
    char real[MACHINE_PATH_SIZE];
    bool fits = locate(directory, real, sizeof real);
    listing->n = fits ? scandir(real, &listing->entries, NULL, alphasort) : -ENAMETOOLONG;
    if (fits && listing->n < 0) listing->n = -errno;
}

static void free_listing(struct listing *listing) {
    for (int i = 0; i < listing->n; i++)
        free(listing->entries[i]);
    free(listing->entries);
    *listing = (struct listing){0};
}

void machine_keep_devices(bool kept) {
    free_listing(&devices.listing);
    devices.kept = kept;
}

int machine_each(const char *directory, int (*each)(void *context, const char *name), void *context) {
    CLEANUP(free_listing) struct listing own = {0};
    struct listing *listing = devices.kept && str_equal(directory, "/dev") ? &devices.listing : &own;
    if (listing->n == 0) read_listing(directory, listing);
    if (listing->n < 0) return listing->n == -ENOENT || listing->n == -ENOTDIR ? 0 : listing->n;
    int result = 0;
    for (int i = 0; i < listing->n && result == 0; i++)
        if (listing->entries[i]->d_name[0] != '.') result = each(context, listing->entries[i]->d_name);
    return result;
}

struct numbered {
    const char *directory, *prefix, *suffix;
    bool directories;
    struct idset *numbers;
};

/* What cannot be looked at counts as one, and so as no device. */
static bool is_directory(const char *directory, const char *name) {
    char path[MACHINE_PATH_SIZE], real[MACHINE_PATH_SIZE];
    struct stat status;
    int length = snprintf(path, sizeof path, "%s/%s", directory, name);
    if (length < 0 || (size_t)length >= sizeof path || !locate(path, real, sizeof real)) return true;
    return stat(real, &status) < 0 || S_ISDIR(status.st_mode);
}

static int add_number(void *context, const char *name) {
    const struct numbered *numbered = context;
    const char *digits;
    char text[16];
    int64_t number;
    if (!str_prefix(name, numbered->prefix, &digits)) return 0;
    size_t size = strspn(digits, "0123456789");
    if (size == 0 || size >= sizeof text || strcmp(digits + size, numbered->suffix) != 0) return 0;
    memcpy(text, digits, size);
    text[size] = '\0';
    if (!str_to_int64(text, 0, IDSET_MAX - 1, &number)) return 0;
    if (!numbered->directories && is_directory(numbered->directory, name)) return 0;
    return idset_add(numbered->numbers, number);
}

int machine_numbers(const char *directory, const char *prefix, const char *suffix, bool directories,
                    struct idset *numbers) {
    struct numbered numbered = {directory, prefix, suffix, directories, numbers};
    return machine_each(directory, add_number, &numbered);
}
