/* Leases: the short lock on the directory, claiming, releasing, and reading who holds what. A lease's state is the kernel's
 * lock alone; the file's text only says whose it is and for what. */
#include "cluster/lease.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "cluster/lease_directory.h"

struct lease {
    int directory; /* a description of its own: the lock of lease_begin must not live in it */
    int fd;
    char file[64];
};

static void cleanup_json(json_t **json) {
    json_decref(*json);
}

/* -- the directory's lock -- */

#define LOCK_LIMIT (10 * NS_PER_S)

/* The lock is held for a fraction of a millisecond; only a stopped process makes others wait long, so this asks again instead
 * of blocking without an end. */
static int lock_directory(int fd, ty_error *err) {
    nanoseconds deadline = clock_monotonic() + LOCK_LIMIT;
    struct timespec pause = {.tv_nsec = 200 * NS_PER_US};
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return ty_fail(err, -errno, "cannot lock %s: %s", lease_directory_path(), strerror(errno));
        if (clock_monotonic() > deadline)
            return ty_fail(err, -ETIMEDOUT,
                           "lease directory %s has been locked by another process for 10 s; is one stopped?",
                           lease_directory_path());
        (void)nanosleep(&pause, NULL);
        if (pause.tv_nsec < 10 * NS_PER_MS) pause.tv_nsec *= 2;
    }
    return 0;
}

int lease_begin(int *directory, ty_error *err) {
    CLEANUP_FD int fd = lease_directory_open(err);
    if (fd < 0) return fd;
    int rc = lock_directory(fd, err);
    if (rc == 0) *directory = TAKE_FD(fd);
    return rc;
}

void lease_end(int directory) {
    (void)close(directory);
}

/* -- claiming -- */

void lease_claim_device(const struct node_devices *devices, size_t index, quantity amount,
                        struct lease_claim *claim) {
    char number[24];
    const char *id = devices->uuids != NULL ? devices->uuids[index] : "";
    if (id[0] == '\0') id = node_device_id(devices, index, number);
    *claim = (struct lease_claim){.amount = amount};
    (void)snprintf(claim->resource, sizeof claim->resource, "%s", devices->resource);
    (void)snprintf(claim->id, sizeof claim->id, "%s", id);
}

static json_t *describe(const char *run, const struct lease_claim *claims, size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        (void)json_array_append_new(list, json_pack("{s:s, s:s, s:I}", "resource", claims[i].resource, "id",
                                                    claims[i].id, "amount", (json_int_t)claims[i].amount));
    return json_pack("{s:i, s:s, s:I, s:o}", "pid", (int)getpid(), "run", run, "since",
                     (json_int_t)clock_wall(), "claims", list);
}

static int write_claims(int fd, const char *run, const struct lease_claim *claims, size_t n, ty_error *err) {
    CLEANUP(cleanup_json) json_t *json = describe(run, claims, n);
    if (json == NULL || json_array_size(json_object_get(json, "claims")) != n) return ty_fail_memory(err);
    CLEANUP_FREE char *text = json_dumps(json, JSON_COMPACT);
    if (text == NULL) return ty_fail_memory(err);
    size_t size = strlen(text);
    if (size > LEASE_FILE_MAX) return ty_fail(err, TY_EUSAGE, "a lease of %zu devices is too big", n);
    int rc = file_write_all(fd, text, size);
    return rc < 0 ? ty_fail(err, rc, "cannot write a lease in %s: %s", lease_directory_path(), strerror(-rc))
                  : 0;
}

/* Makes and locks the file of `lease`. Readable for all under any umask: a file that cannot be read holds nothing. */
static int create_file(struct lease *lease, ty_error *err) {
    uint64_t number;
    if (getrandom(&number, sizeof number, 0) != sizeof number) return ty_fail(err, -errno, "no random number");
    (void)snprintf(lease->file, sizeof lease->file, "%d-%016" PRIx64 LEASE_SUFFIX, (int)getpid(), number);
    lease->fd = openat(lease->directory, lease->file, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (lease->fd >= 0 && fchmod(lease->fd, 0644) == 0 && flock(lease->fd, LOCK_EX | LOCK_NB) == 0) return 0;
    return ty_fail(err, -errno, "cannot make a lease in %s: %s", lease_directory_path(), strerror(errno));
}

int lease_claim(int directory, const char *run, const struct lease_claim *claims, size_t n,
                struct lease **lease, ty_error *err) {
    struct lease *made = malloc(sizeof *made);
    if (made == NULL) return ty_fail_memory(err);
    *made = (struct lease){.fd = -1};
    made->directory = openat(directory, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int rc = 0;
    if (made->directory < 0)
        rc = ty_fail(err, -errno, "cannot open %s: %s", lease_directory_path(), strerror(errno));
    if (rc == 0) rc = create_file(made, err);
    if (rc == 0) rc = write_claims(made->fd, run, claims, n, err);
    if (rc == 0)
        *lease = made;
    else
        lease_release(made);
    return rc;
}

/* One write, with blanks over what was there: whoever is killed in between leaves a file that can be read. Through a descriptor of its
 * own, whose close wakes those that watch. */
int lease_change(const struct lease *lease, const char *run, const struct lease_claim *claims, size_t n,
                 ty_error *err) {
    CLEANUP(cleanup_json) json_t *json = describe(run, claims, n);
    CLEANUP_FREE char *text = json == NULL ? NULL : json_dumps(json, JSON_COMPACT);
    struct stat status;
    if (text == NULL || json_array_size(json_object_get(json, "claims")) != n) return ty_fail_memory(err);
    size_t size = strlen(text);
    if (size > LEASE_FILE_MAX) return ty_fail(err, TY_EUSAGE, "a lease of %zu devices is too big", n);
    if (fstat(lease->fd, &status) == 0 && (size_t)status.st_size > size) size = (size_t)status.st_size;
    CLEANUP_FREE char *padded = malloc(size + 1);
    if (padded == NULL) return ty_fail_memory(err);
    (void)snprintf(padded, size + 1, "%-*s", (int)size, text);
    CLEANUP_FD int fd = openat(lease->directory, lease->file, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && pwrite(fd, padded, size, 0) == (ssize_t)size) return 0;
    return ty_fail(err, -errno, "cannot write a lease in %s: %s", lease_directory_path(), strerror(errno));
}

int lease_fd(const struct lease *lease) {
    return lease->fd;
}

void lease_release(struct lease *lease) {
    if (lease == NULL) return;
    if (lease->fd >= 0) {
        (void)unlinkat(lease->directory, lease->file, 0);
        (void)close(lease->fd);
    }
    if (lease->directory >= 0) (void)close(lease->directory);
    free(lease);
}

/* The kernel knows the name; once it is removed that ends in " (deleted)", and no such file is there. */
void lease_abandoned(int fd) {
    char link[64], path[PATH_MAX];
    struct stat held, named;
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size <= 0) return;
    path[size] = '\0';
    if (fstat(fd, &held) < 0 || lstat(path, &named) < 0) return;
    if (held.st_dev == named.st_dev && held.st_ino == named.st_ino) (void)unlink(path);
}

/* -- reading -- */

/* Whoever may write here: nothing that would move a terminal's cursor. */
static void copy_text(char *to, size_t size, const json_t *value) {
    const char *text = json_string_value(value);
    (void)snprintf(to, size, "%s", text != NULL ? text : "");
    for (char *c = to; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
}

static void read_claim(const json_t *json, struct lease_claim *claim) {
    copy_text(claim->resource, sizeof claim->resource, json_object_get(json, "resource"));
    copy_text(claim->id, sizeof claim->id, json_object_get(json, "id"));
    json_int_t amount = json_integer_value(json_object_get(json, "amount"));
    claim->amount = amount < 0 ? 0 : amount > QUANTITY_ONE ? QUANTITY_ONE : amount;
}

/* The user who owns the file: nobody can hold a lease in another's name. */
static void read_user(int fd, char *user, size_t size) {
    struct stat status;
    struct passwd entry, *found = NULL;
    char text[4096];
    if (fstat(fd, &status) < 0) return;
    (void)getpwuid_r(status.st_uid, &entry, text, sizeof text, &found);
    if (found != NULL)
        (void)snprintf(user, size, "%s", found->pw_name);
    else
        (void)snprintf(user, size, "%u", (unsigned)status.st_uid);
}

static json_t *read_json(int fd) {
    struct stat status;
    if (fstat(fd, &status) < 0 || status.st_size <= 0 || status.st_size > LEASE_FILE_MAX) return NULL;
    CLEANUP_FREE char *text = malloc((size_t)status.st_size);
    if (text == NULL) return NULL;
    ssize_t size = pread(fd, text, (size_t)status.st_size, 0);
    return size <= 0 ? NULL : json_loadb(text, (size_t)size, 0, NULL);
}

/* False when the file says nothing that can be understood; then it holds nothing. */
static bool read_holder(int fd, const char *name, struct lease_holder *holder) {
    CLEANUP(cleanup_json) json_t *json = read_json(fd);
    const json_t *list = json_object_get(json, "claims");
    *holder = (struct lease_holder){.n = json_array_size(list)};
    holder->claims = calloc(holder->n + 1, sizeof *holder->claims);
    if (json == NULL || !json_is_array(list) || holder->claims == NULL) {
        free(holder->claims);
        return false;
    }
    json_int_t pid = json_integer_value(json_object_get(json, "pid"));
    holder->pid = pid > 0 && pid <= INT32_MAX ? (int)pid : 0;
    holder->since = json_integer_value(json_object_get(json, "since"));
    copy_text(holder->run, sizeof holder->run, json_object_get(json, "run"));
    memcpy(holder->file, name, strlen(name) + 1); /* is_lease_name has measured it */
    read_user(fd, holder->user, sizeof holder->user);
    for (size_t i = 0; i < holder->n; i++)
        read_claim(json_array_get(list, i), &holder->claims[i]);
    return true;
}

bool lease_changed(int fd, const struct lease_holder *holder) {
    CLEANUP(cleanup_json) json_t *json = read_json(fd);
    return json_integer_value(json_object_get(json, "since")) != holder->since;
}

static bool is_lease_name(const char *name) {
    size_t size = strlen(name), suffix = strlen(LEASE_SUFFIX);
    return size > suffix && size < sizeof((struct lease_holder *)NULL)->file &&
           strcmp(name + size - suffix, LEASE_SUFFIX) == 0;
}

/* 1 when `name` is held and was read, 0 when it holds nothing. A void file of another user's may have to stay. */
static int look(int directory, const char *name, struct lease_holder *holder) {
    CLEANUP_FD int fd = lease_file_open(directory, name);
    if (fd < 0) return 0;
    if (!lease_file_held(fd)) {
        (void)unlinkat(directory, name, 0);
        return 0;
    }
    if (read_holder(fd, name, holder)) return 1;
    log_warning("lease", "%s/%s is locked but cannot be understood; it is passed over", lease_directory_path(),
                name);
    return 0;
}

struct holders {
    struct lease_holder *items;
    size_t n;
};

static int add_holder(struct holders *holders, int directory, const char *name) {
    struct lease_holder *grown = reallocarray(holders->items, holders->n + 1, sizeof *grown);
    if (grown == NULL) return -ENOMEM;
    holders->items = grown;
    holders->n += (size_t)look(directory, name, &grown[holders->n]);
    return 0;
}

static int list_holders(int directory, DIR *entries, const struct lease *own, struct holders *holders) {
    const struct dirent *entry;
    while ((entry = readdir(entries)) != NULL) {
        if (!is_lease_name(entry->d_name) || (own != NULL && strcmp(own->file, entry->d_name) == 0)) continue;
        if (add_holder(holders, directory, entry->d_name) < 0) return -ENOMEM;
    }
    return 0;
}

int lease_holders(int directory, const struct lease *own, struct lease_holder **holders, size_t *n,
                  ty_error *err) {
    /* A description of its own: fdopendir takes the descriptor over, and the lock must stay with the caller's. */
    int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (entries == NULL) {
        int rc = ty_fail(err, -errno, "cannot list %s: %s", lease_directory_path(), strerror(errno));
        if (fd >= 0) (void)close(fd);
        return rc;
    }
    struct holders found = {0};
    int rc = list_holders(directory, entries, own, &found);
    (void)closedir(entries);
    if (rc < 0) {
        lease_holders_free(found.items, found.n);
        return ty_fail_memory(err);
    }
    *holders = found.items;
    *n = found.n;
    return 0;
}

void lease_holders_free(struct lease_holder *holders, size_t n) {
    for (size_t i = 0; i < n; i++)
        free(holders[i].claims);
    free(holders);
}
