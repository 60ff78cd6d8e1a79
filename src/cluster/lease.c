/* Leases: claiming, releasing, and reading who holds what. A lease's state is the kernel's lock alone; the
 * file's text only says whose it is and for what. Files of other users lie beside ours, and whatever is in them
 * is taken for a claim at most. What is left of a node beside leases is lease_apply.c's, where the directory is
 * safe lease_directory.c's. */
#include "cluster/lease.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/document.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "base/str.h"
#include "scaling/device.h"

#define PREFIX "trainyard-"
#define SUFFIX ".lease"
#define UNBORN \
    ".unborn"           /* behind the name of a file that is not locked yet, where none can be without a name */
#define UNBORN_LIMIT 60 /* s; then whoever made it is dead */

/* The mode of a lease file: seen by all; the sticky bit keeps systemd-tmpfiles from removing an old one. */
enum { FILE_MODE = 01644 };

/* The most of one lease, and of all that are read: another user cannot fill our memory with his. */
enum { CLAIMS_MAX = 4 * NODE_MAX_DEVICES, ALL_CLAIMS_MAX = 64 * CLAIMS_MAX };

struct lease {
    int directory;
    int fd;
    char file[64];
    char run[LEASE_RUN_SIZE];
};

static void cleanup_json(json_t **json) {
    json_decref(*json);
}

/* -- claiming -- */

void lease_claim_device(const struct node_devices *devices, size_t index, quantity amount,
                        struct lease_claim *claim) {
    char number[24];
    const char *id = devices->uuids != NULL ? devices->uuids[index] : "";
    if (id[0] == '\0' && devices->bus_ids != NULL) id = devices->bus_ids[index];
    if (id[0] == '\0') id = node_device_id(devices, index, number);
    *claim = (struct lease_claim){.amount = amount};
    (void)snprintf(claim->resource, sizeof claim->resource, "%s", devices->resource);
    (void)snprintf(claim->id, sizeof claim->id, "%s", id);
}

/* "until" is "since" again, at the end: a text that is half of one claim and half of the next is known by
 * it. */
static json_t *describe(const char *run, const struct lease_claim *claims, size_t n) {
    json_int_t now = clock_wall();
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        (void)json_array_append_new(list, json_pack("{s:s, s:s, s:I}", "resource", claims[i].resource, "id",
                                                    claims[i].id, "amount", (json_int_t)claims[i].amount));
    if (json_array_size(list) == n)
        return json_pack("{s:I, s:i, s:s, s:o, s:I}", "since", now, "pid", (int)getpid(), "run", run, "claims",
                         list, "until", now);
    json_decref(list);
    return NULL;
}

/* The text is written at once, with blanks over an older and longer one, so that a process that is killed
 * meanwhile leaves a file that can be read. */
static int write_claims(const struct lease *lease, int fd, const struct lease_claim *claims, size_t n) {
    CLEANUP(cleanup_json) json_t *json = describe(lease->run, claims, n);
    CLEANUP_FREE char *text = json == NULL ? NULL : json_format(json, JSON_COMPACT);
    struct stat status;
    if (text == NULL) return -ENOMEM;
    size_t size = strlen(text);
    if (size > LEASE_FILE_MAX) return -E2BIG;
    if (fstat(fd, &status) == 0 && (size_t)status.st_size > size) size = (size_t)status.st_size;
    CLEANUP_FREE char *padded = malloc(size + 1);
    if (padded == NULL) return -ENOMEM;
    (void)snprintf(padded, size + 1, "%-*s", (int)size, text);
    ssize_t written = pwrite(fd, padded, size, 0);
    return written == (ssize_t)size ? 0 : written < 0 ? -errno : -ENOSPC;
}

/* Through a descriptor of its own, whose close wakes the runs that watch: the descriptor of the lock stays
 * open, and what is written through it nobody would hear of. */
int lease_claim(const struct lease *lease, const struct lease_claim *claims, size_t n, ty_error *err) {
    if (n > CLAIMS_MAX) return ty_fail(err, TY_EUSAGE, "a lease of %zu devices is too big", n);
    CLEANUP_FD int fd = openat(lease->directory, lease->file, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    int result = fd < 0 ? -errno : write_claims(lease, fd, claims, n);
    if (result == 0) return 0;
    if (result == -ENOMEM) return ty_fail_memory(err);
    if (result == -E2BIG) return ty_fail(err, TY_EUSAGE, "a lease of %zu devices is too big", n);
    return ty_fail(err, result, "cannot write a lease in %s: %s", lease_directory_path(), strerror(-result));
}

/* What makes a lease of an open file, all but its name: the lock, the mode and a text of no claims. The mode
 * comes behind the lock: whoever may read the file finds it locked. */
static int make_ready(const struct lease *lease, int fd) {
    if (lease_file_lock(fd) < 0 || fchmod(fd, FILE_MODE) < 0) return -errno;
    return write_claims(lease, fd, NULL, 0);
}

/* A file without a name, where the file system has such: whoever is killed before it gets one leaves
 * nothing. Returns its descriptor. */
static int create_nameless(const struct lease *lease) {
    char link[32];
    CLEANUP_FD int fd = openat(lease->directory, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    int result = fd < 0 ? -errno : make_ready(lease, fd);
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (result == 0 && linkat(AT_FDCWD, link, lease->directory, lease->file, AT_SYMLINK_FOLLOW) < 0)
        result = -errno;
    return result < 0 ? result : TAKE_FD(fd);
}

/* A file whose name nobody looks at until it is locked, where none can be without a name. */
static int create_unborn(const struct lease *lease) {
    char unborn[sizeof lease->file + sizeof UNBORN];
    (void)snprintf(unborn, sizeof unborn, "%s" UNBORN, lease->file);
    CLEANUP_FD int fd =
        openat(lease->directory, unborn, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return -errno;
    int result = make_ready(lease, fd);
    if (result == 0 && renameat(lease->directory, unborn, lease->directory, lease->file) < 0) result = -errno;
    if (result < 0) (void)unlinkat(lease->directory, unborn, 0);
    return result < 0 ? result : TAKE_FD(fd);
}

/* Makes the file of `lease`. It is whole and locked before it gets the name by which it is found: a file that
 * is found without a lock is void, and one without a text cannot be understood. Readable for all under any
 * umask. */
static int create_file(struct lease *lease, ty_error *err) {
    uint64_t number;
    if (getrandom(&number, sizeof number, 0) != sizeof number) return ty_fail(err, -errno, "no random number");
    (void)snprintf(lease->file, sizeof lease->file, PREFIX "%d-%016" PRIx64 SUFFIX, (int)getpid(), number);
    int fd = create_nameless(lease);
    if (fd < 0) fd = create_unborn(lease);
    if (fd < 0) return ty_fail(err, fd, "cannot make a lease in %s: %s", lease_directory_path(), strerror(-fd));
    lease->fd = fd;
    return 0;
}

/* The directory is withheld from children of the program (base/descriptors.h). The lock is its owner's to
 * withhold (lease_fd): agents are to have it, for it goes with the last of them. */
int lease_open(const char *run, struct lease **lease, ty_error *err) {
    struct lease *made = malloc(sizeof *made);
    if (made == NULL) return ty_fail_memory(err);
    *made = (struct lease){.fd = -1};
    (void)snprintf(made->run, sizeof made->run, "%s", run);
    made->directory = lease_directory_open(err);
    int rc = made->directory < 0 ? made->directory : create_file(made, err);
    descriptors_withhold(made->directory);
    if (rc == 0)
        *lease = made;
    else
        lease_release(made);
    return rc;
}

void lease_pause(int tries) {
    uint32_t chance = 0;
    (void)!getrandom(&chance, sizeof chance, 0);
    nanoseconds longest = NS_PER_MS << tries;
    (void)nanosleep(&(struct timespec){.tv_nsec = (long)(chance % (uint64_t)longest)}, NULL);
}

/* Claims, and looks again. 1 when the claim stands, 0 when others have some of it: then `err` names the
 * first, and nothing is claimed. */
static int claim_once(const struct lease *lease, const struct lease_claim *claims, size_t n,
                      struct cluster *cluster, ty_error *err) {
    struct lease_holder *holders = NULL;
    size_t n_holders = 0;
    const struct lease_claim *short_of = NULL;
    CLEANUP(buffer_done) struct buffer who = {0};
    int result = lease_claim(lease, claims, n, err);
    if (result == 0) result = lease_holders(lease, &holders, &n_holders, err);
    if (result == 0) result = lease_apply(holders, n_holders, cluster, err);
    const struct lease_holder *other =
        result < 0 ? NULL : lease_in_the_way(claims, n, holders, n_holders, cluster, &short_of);
    bool fits = result == 0 && lease_fits(claims, n, cluster);
    if (other != NULL) lease_describe(other, &who);
    if (result == 0 && !fits)
        (void)ty_fail(err, TY_EBUSY, "%s %s is taken: %s; start again when that run is over, or stop it",
                      other != NULL ? short_of->resource : "a device", other != NULL ? short_of->id : "of it",
                      who.size > 0 ? who.data : "another run has it");
    lease_holders_free(holders, n_holders);
    if (result == 0 && !fits) result = lease_claim(lease, NULL, 0, NULL);
    return result < 0 ? result : fits;
}

int lease_take(const struct lease *lease, const struct lease_claim *claims, size_t n, struct cluster *cluster,
               ty_error *err) {
    int result = claim_once(lease, claims, n, cluster, err);
    for (int tries = 0; result == 0 && tries < LEASE_TRIES; tries++) {
        lease_pause(tries);
        result = claim_once(lease, claims, n, cluster, err);
    }
    return result == 0 ? TY_EBUSY : result < 0 ? result : 0;
}

int lease_fd(const struct lease *lease) {
    return lease->fd;
}

void lease_release(struct lease *lease) {
    if (lease == NULL) return;
    if (lease->fd >= 0) {
        (void)unlinkat(lease->directory, lease->file, 0);
        descriptors_close(&lease->fd);
    }
    descriptors_close(&lease->directory);
    free(lease);
}

/* -- reading -- */

/* Any user may have written this text, and others read it on their terminals and in messages of UTF-8: what
 * would move a cursor or turn a line is replaced, and what does not fit is cut between two characters. */
static void copy_text(char *to, size_t size, const json_t *value) {
    const char *text = json_string_value(value);
    size_t n = json_string_length(value), used = 0;
    uint32_t character;
    for (size_t at = 0; at < n;) {
        int length = utf8_sequence(text + at, n - at, &character);
        bool shown = length > 0 && utf8_is_harmless(character) && character != '\t';
        size_t kept = shown ? (size_t)length : 1;
        if (used + kept >= size) break;
        memcpy(to + used, shown ? text + at : "?", kept);
        used += kept;
        at += (size_t)abs(length);
    }
    to[used] = '\0';
}

/* At once, by the size that it has: a file that grows meanwhile is read again (read_claims). */
static json_t *read_json(int fd) {
    struct stat status;
    if (fstat(fd, &status) < 0 || status.st_size <= 0 || status.st_size > LEASE_FILE_MAX) return NULL;
    CLEANUP_FREE char *text = malloc((size_t)status.st_size);
    if (text == NULL) return NULL;
    ssize_t size = pread(fd, text, (size_t)status.st_size, 0);
    return size <= 0 ? NULL : json_loadb(text, (size_t)size, 0, NULL);
}

/* The owner may be writing to the file at this moment, so that it is read again; NULL where it stays
 * nonsense. */
static json_t *read_claims(int fd) {
    enum { READS = 3 };
    for (int i = 0; i < READS; i++) {
        json_t *json = read_json(fd);
        const json_t *list = json_object_get(json, "claims");
        bool whole = json_is_array(list) && json_array_size(list) <= CLAIMS_MAX &&
                     json_equal(json_object_get(json, "since"), json_object_get(json, "until"));
        if (whole) return json;
        json_decref(json);
        (void)nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
    }
    return NULL;
}

/* False when the file cannot be understood; then the lease holds nothing. */
static bool read_holder(int fd, const char *name, struct lease_holder *holder) {
    CLEANUP(cleanup_json) json_t *json = read_claims(fd);
    const json_t *list = json_object_get(json, "claims");
    struct stat status;
    *holder = (struct lease_holder){.n = json_array_size(list)};
    if (json == NULL || fstat(fd, &status) < 0) return false;
    holder->claims = calloc(holder->n + 1, sizeof *holder->claims);
    if (holder->claims == NULL) return false;
    /* The pid that a file tells is its owner's word: it is one of his processes, or nobody's. */
    json_int_t pid = json_integer_value(json_object_get(json, "pid"));
    if (pid > 0 && pid <= INT32_MAX) {
        char path[32];
        struct stat entry;
        struct process process;
        (void)snprintf(path, sizeof path, "/proc/%d", (int)pid);
        bool is_his = stat(path, &entry) == 0 && entry.st_uid == status.st_uid;
        if (is_his && process_read((pid_t)pid, &process) && process.state != 'Z') holder->pid = (int)pid;
    }
    holder->owner = status.st_uid;
    holder->since = json_integer_value(json_object_get(json, "since"));
    copy_text(holder->run, sizeof holder->run, json_object_get(json, "run"));
    memcpy(holder->file, name, strlen(name) + 1); /* is_lease_name has measured it */
    struct passwd entry, *found = NULL;
    char text[4096];
    (void)getpwuid_r(status.st_uid, &entry, text, sizeof text, &found);
    if (found != NULL)
        (void)snprintf(holder->user, sizeof holder->user, "%s", found->pw_name);
    else
        (void)snprintf(holder->user, sizeof holder->user, "%u", (unsigned)status.st_uid);
    for (size_t i = 0; i < holder->n; i++) {
        const json_t *one = json_array_get(list, i);
        struct lease_claim *claim = &holder->claims[i];
        copy_text(claim->resource, sizeof claim->resource, json_object_get(one, "resource"));
        copy_text(claim->id, sizeof claim->id, json_object_get(one, "id"));
        json_int_t amount = json_integer_value(json_object_get(one, "amount"));
        claim->amount = amount < 0 ? 0 : amount > QUANTITY_ONE ? QUANTITY_ONE : amount;
    }
    return true;
}

bool lease_changed(int fd, const struct lease_holder *holder) {
    CLEANUP(cleanup_json) json_t *json = read_json(fd);
    return json_integer_value(json_object_get(json, "since")) != holder->since;
}

/* trainyard-PID-NUMBER.lease and nothing else: all kinds of files may lie beside leases. */
static bool is_lease_name(const char *name, const char *behind) {
    const char *at;
    if (strlen(name) >= sizeof((struct lease *)NULL)->file + strlen(behind)) return false;
    if (!str_prefix(name, PREFIX, &at)) return false;
    size_t pid = strspn(at, "0123456789");
    at += pid;
    if (pid == 0 || *at++ != '-' || strspn(at, "0123456789abcdef") != 16) return false;
    return str_prefix(at + 16, SUFFIX, &at) && strcmp(at, behind) == 0;
}

/* The kernel tells the directory of an open file, but not the name of one that was made without. */
void lease_abandoned(int fd) {
    char link[64], path[PATH_MAX];
    struct stat held, named;
    const struct dirent *entry;
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size <= 0 || fstat(fd, &held) < 0) return;
    path[size] = '\0';
    char *slash = strrchr(path, '/');
    if (slash == NULL) return;
    *slash = '\0';
    DIR *entries = opendir(path);
    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        if (entry->d_ino != held.st_ino || !is_lease_name(entry->d_name, "")) continue;
        if (fstatat(dirfd(entries), entry->d_name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
            file_is_same(&held, &named))
            (void)unlinkat(dirfd(entries), entry->d_name, 0);
    }
    if (entries != NULL) (void)closedir(entries);
}

struct holders {
    struct lease_holder *items;
    size_t n, n_claims;
};

/* Adds the holder of the lease `name`; a void lease, or one that cannot be understood, has none. The void
 * file of another user may have to stay. */
static int add_holder(struct holders *holders, int directory, const char *name, ty_error *err) {
    if (ARRAY_GROW(holders->items, holders->n) < 0) return ty_fail_memory(err);
    struct lease_holder *holder = &holders->items[holders->n];
    CLEANUP_FD int fd = lease_file_open(directory, name);
    if (fd < 0) return 0;
    if (!lease_file_held(fd)) {
        (void)unlinkat(directory, name, 0);
        return 0;
    }
    if (!read_holder(fd, name, holder)) {
        struct stat status = {0};
        (void)fstat(fd, &status);
        log_warning("lease", "%s/%s of user %u is locked but cannot be understood; it is passed over",
                    lease_directory_path(), name, (unsigned)status.st_uid);
        return 0;
    }
    holders->n++;
    holders->n_claims += holder->n;
    if (holders->n_claims <= ALL_CLAIMS_MAX) return 0;
    return ty_fail(err, -E2BIG, "the leases in %s claim more than %d devices, one of the holders is user %s",
                   lease_directory_path(), ALL_CLAIMS_MAX, holder->user);
}

int lease_holders(const struct lease *own, struct lease_holder **holders, size_t *n, ty_error *err) {
    CLEANUP_FD int fd = lease_directory_open(err);
    if (fd < 0) return fd;
    DIR *entries = fdopendir(fd);
    if (entries == NULL)
        return ty_fail(err, -errno, "cannot list %s: %s", lease_directory_path(), strerror(errno));
    (void)TAKE_FD(fd);
    struct holders found = {0};
    const struct dirent *entry;
    int rc = 0;
    while (rc == 0 && (entry = readdir(entries)) != NULL) {
        struct stat status;
        /* The file that a process left which was killed as it made its lease. */
        if (is_lease_name(entry->d_name, UNBORN) &&
            fstatat(dirfd(entries), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
            status.st_mtime + UNBORN_LIMIT < clock_wall() / NS_PER_S)
            (void)unlinkat(dirfd(entries), entry->d_name, 0);
        if (!is_lease_name(entry->d_name, "") || (own != NULL && strcmp(own->file, entry->d_name) == 0))
            continue;
        rc = add_holder(&found, dirfd(entries), entry->d_name, err);
    }
    (void)closedir(entries);
    if (rc < 0) {
        lease_holders_free(found.items, found.n);
        return rc;
    }
    *holders = found.items;
    *n = found.n;
    return 0;
}

/* Claims to what is no device say nothing of a node, and would let another user make the line as long as he
 * likes. */
void lease_describe(const struct lease_holder *holder, struct buffer *out) {
    CLEANUP(resources_done) struct resources held = {0};
    for (size_t i = 0; i < holder->n; i++) {
        const struct lease_claim *claim = &holder->claims[i];
        if (!accelerator_is_device(claim->resource)) continue;
        (void)resources_set(&held, claim->resource, resources_get(&held, claim->resource) + claim->amount);
    }
    char since[CLOCK_TEXT];
    (void)clock_format((time_t)(holder->since / NS_PER_S), since);
    buffer_printf(out, "run %s of %s", holder->run, holder->user);
    if (holder->pid > 0) buffer_printf(out, " (pid %d)", holder->pid);
    buffer_text(out, " has held ");
    resources_format(&held, out);
    buffer_printf(out, " since %s", since);
}

void lease_holders_free(struct lease_holder *holders, size_t n) {
    for (size_t i = 0; i < n; i++)
        free(holders[i].claims);
    free(holders);
}
