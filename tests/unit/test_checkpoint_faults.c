/* No death, no power cut and no failing call, wherever it strikes a checkpoint, leaves a directory that looks
 * complete and is not.
 *
 * The calls that change a file system are wrapped by the linker (meson.build): the k-th of them fails, or kills
 * the process, or comes when the power has gone, and with it what was not synced. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <jansson.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/copy.h"
#include "checkpoint_world.h"
#include "descriptors.h"

static long countdown; /* the call at which it reaches 0 fails; never when negative */
static int fault;      /* errno of the failure; 0: the process dies instead */

static void cut_power(void);
enum { POWER_CUT = -1 }; /* a fault: all goes on, and nothing of it reaches the disk */

static bool strikes(void) {
    if (countdown < 0 || countdown-- != 0) return false;
    if (fault == 0) (void)raise(SIGKILL);
    if (fault == POWER_CUT) {
        cut_power();
        return false;
    }
    errno = fault;
    return true;
}

#define WRAP(name, parameters, arguments)                \
    int __real_##name parameters;                        \
    int __wrap_##name parameters;                        \
    int __wrap_##name parameters {                       \
        return strikes() ? -1 : __real_##name arguments; \
    }

/* True when a power cut is played: the disk is ours. */
static bool keep_synced(int fd);
static bool keep_all(void);

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd) {
    if (strikes()) return -1;
    return keep_synced(fd) ? 0 : __real_fsync(fd);
}

int __real_syncfs(int fd);
int __wrap_syncfs(int fd);
int __wrap_syncfs(int fd) {
    if (strikes()) return -1;
    return keep_all() ? 0 : __real_syncfs(fd);
}

WRAP(fchmod, (int fd, mode_t mode), (fd, mode))
WRAP(mkdir, (const char *path, mode_t mode), (path, mode))
WRAP(mkdirat, (int at, const char *path, mode_t mode), (at, path, mode))
WRAP(symlinkat, (const char *target, int at, const char *path), (target, at, path))
WRAP(rename, (const char *from, const char *to), (from, to))
WRAP(renameat2, (int a, const char *from, int b, const char *to, unsigned flags), (a, from, b, to, flags))

static long removals = -1; /* the same for calls that take names away, which then fail with EIO */
static bool removals_stop; /* and all after it */
static bool one_stayed;

static bool stays(void) {
    if (removals < 0) return false;
    errno = EIO;
    bool fails = removals == 0;
    if (!fails || !removals_stop) removals--;
    one_stayed |= fails;
    return fails;
}

int __real_unlinkat(int at, const char *path, int flags);
int __wrap_unlinkat(int at, const char *path, int flags);
int __wrap_unlinkat(int at, const char *path, int flags) {
    if (fault == 0) (void)strikes();
    return stays() ? -1 : __real_unlinkat(at, path, flags);
}

int __real_linkat(int from_at, const char *from, int to_at, const char *to, int flags);
int __wrap_linkat(int from_at, const char *from, int to_at, const char *to, int flags);
int __wrap_linkat(int from_at, const char *from, int to_at, const char *to, int flags) {
    if (fault == 0) (void)strikes();
    return __real_linkat(from_at, from, to_at, to, flags);
}

int __real_renameat(int from_at, const char *from, int to_at, const char *to);
int __wrap_renameat(int from_at, const char *from, int to_at, const char *to);
int __wrap_renameat(int from_at, const char *from, int to_at, const char *to) {
    return stays() || strikes() ? -1 : __real_renameat(from_at, from, to_at, to);
}

ssize_t __real_write(int fd, const void *bytes, size_t size);
ssize_t __wrap_write(int fd, const void *bytes, size_t size);
ssize_t __wrap_write(int fd, const void *bytes, size_t size) {
    return strikes() ? -1 : __real_write(fd, bytes, size);
}

static struct buffer others; /* the list of a rank that was first; without one: empty */
static bool beside;          /* there is such a rank */

static int set_up(void **state) {
    countdown = -1;
    beside = false;
    return checkpoint_world_begin(state);
}

static int set_up_beside(void **state) {
    int result = set_up(state);
    beside = true;
    return result;
}

static int tear_down(void **state) {
    buffer_done(&others);
    return checkpoint_world_end(state);
}

static int sweep(const char *const *names, size_t n, uint64_t last) {
    CLEANUP(checkpoint_swept_done) struct checkpoint_swept swept = {0};
    return checkpoint_sweep(run_path, &(struct checkpoint_known){RUN, names, n, last}, &swept, NULL);
}

static int remove_best(ty_error *err) {
    return checkpoint_remove(run_path, &(struct checkpoint_mark){RUN, "best", 3}, err);
}

/* Killed at any moment: it is whole under its name, or has none, and the next controller's sweep removes the
 * rest. */
static void deaths_while_removing(void **state) {
    (void)state;
    static const char *const names[] = {"best"};
    for (int i = 0; i < 20; i++) {
        shell("mkdir -p run/best/a && cd run/best && for i in 1 2 3 4 5 6 7 8 9; do : > $i; : > a/$i; done");
        mark("best", 3, true);
        pid_t child = fork();
        if (child == 0) _exit(remove_best(NULL) < 0);
        (void)usleep((useconds_t)(rand() % 600));
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        if (exists(in(run_path, "best"))) shell("test $(find run/best -type f | wc -l) = 19");
        assert_int_equal(sweep(names, 1, 3), 0);
        assert_false(exists(in(run_path, ".checkpoint_000003.removed")));
    }
    assert_int_equal(remove_best(NULL), 0);
}

/* ---- faults ---- */

/* False when it did not come to the failure. */
static bool remove_with_failure(long k, bool for_good) {
    ty_error err = {0};
    shell("mkdir -p run/best/a && cd run/best && for i in 1 2 3; do : > $i; : > a/$i; done");
    mark("best", 3, true);
    removals = k;
    removals_stop = for_good;
    one_stayed = false;
    int result = remove_best(&err);
    removals = -1;
    if (result < 0) expect_refusal(result, -EIO, &err, "run/best: Input/output error");
    if (for_good && one_stayed) assert_true(result < 0);
    if (exists(in(run_path, "best"))) shell("test $(find run/best -type f | wc -l) = 7");
    assert_int_equal(remove_best(NULL), 0);
    shell("test -z \"$(ls -A run)\"");
    return one_stayed;
}

/* A name that cannot be taken away is told, or taken at the next try; what is half gone has no name. */
static void every_removal_fails(void **state) {
    (void)state;
    for (int for_good = 0; for_good < 2; for_good++) {
        long k = 0;
        while (remove_with_failure(k, for_good))
            k++;
        assert_in_range(k, 9, 20); /* a rename, seven files, two directories */
    }
}

static void tree_with_all_sorts(void) {
    small_tree();
    shell("seq 400000 > source/large"); /* is synced by itself */
    if (beside)
        shell("cp -r source other && rm other/large other/model.bin && echo > other/own && echo > "
              "other/shard/own");
}

static void let_others_be_first(void) {
    ty_error err = {0};
    buffer_done(&others);
    if (beside && copy_from(in(base, "other"), &others, &err) < 0) fail_msg("%s", err.message);
}

static int publish_all(const struct buffer *files, char **path, ty_error *err) {
    const char *lists[] = {files->data, others.data};
    return publish_lists(lists, beside ? 2 : 1, path, err);
}

/* Whatever stands under the name of a checkpoint is a whole one. True when there is one. */
static bool expect_whole_or_none(void) {
    char *path = in(run_path, "checkpoint_000012");
    if (!exists(path)) return false;
    verify_well(path);
    shell("for f in model.bin empty shard/0.bin large; do cmp source/$f run/checkpoint_000012/$f; done");
    if (beside)
        shell("cd run/checkpoint_000012 && cmp own ../../other/own && cmp shard/own ../../other/shard/own");
    return true;
}

static void every_call_fails_once(int code) {
    tree_with_all_sorts();
    unsigned before = count_descriptors();
    for (long k = 0;; k++) {
        BUFFER files = {0};
        char *path = NULL;
        ty_error err = {0};
        let_others_be_first();
        fault = code;
        countdown = k;
        int result = copy_from(source, &files, &err);
        bool copied = result == 0;
        if (copied) result = publish_all(&files, &path, &err);
        bool struck = countdown < 0;
        countdown = -1;
        assert_int_equal(count_descriptors(), before);
        if (result < 0) {
            assert_int_equal(err.code, result);
            assert_false(exists(in(run_path, "checkpoint_000012")));
            if (!copied && beside)
                shell("diff -r --no-dereference other run/.checkpoint_000012.attempt-1");
            else if (!copied)
                assert_true(!exists(staging) || rmdir(staging) == 0);
            checkpoint_discard(run_path, 12, 1);
            shell("test -z \"$(ls -A run)\"");
        } else {
            assert_true(expect_whole_or_none());
            shell("rm -r run/checkpoint_000012");
        }
        free(path);
        if (!struck) {
            assert_true(k > 20);
            return;
        }
    }
}

/* ---- the power goes ---- */

/* What of the run's directory is on the disk: of a file what it held when it was synced, of a directory the
 * names it had then. A name that was not synced may be there all the same; that is EARLY: all that stood there
 * when the power went. */
struct kept_name {
    char name[256], target[256]; /* of a link */
    mode_t mode;
    ino_t inode;
};

static struct kept_file {
    ino_t inode;
    char *bytes; /* of a file; NULL for a directory */
    size_t size;
    struct kept_name *names;
    size_t n_names;
} disk[256];
static size_t n_disk;
static bool disk_works, names_early;

static struct kept_file *find_kept(ino_t inode) {
    for (size_t i = 0; i < n_disk; i++)
        if (disk[i].inode == inode) return &disk[i];
    return NULL;
}

static struct kept_file *renew_kept(ino_t inode) {
    struct kept_file *kept = find_kept(inode);
    if (kept == NULL) kept = &disk[n_disk++];
    assert_true(n_disk <= ARRAY_SIZE(disk));
    free(kept->bytes);
    free(kept->names);
    *kept = (struct kept_file){.inode = inode};
    return kept;
}

static void keep_names(ino_t inode, const char *path) {
    struct kept_file *kept = renew_kept(inode);
    DIR *directory = opendir(path);
    assert_non_null(directory);
    for (const struct dirent *next; (next = readdir(directory)) != NULL;) {
        struct stat status;
        struct kept_name name = {0};
        if (strcmp(next->d_name, ".") == 0 || strcmp(next->d_name, "..") == 0) continue;
        assert_int_equal(fstatat(dirfd(directory), next->d_name, &status, AT_SYMLINK_NOFOLLOW), 0);
        (void)snprintf(name.name, sizeof name.name, "%s", next->d_name);
        if (S_ISLNK(status.st_mode))
            assert_true(readlinkat(dirfd(directory), next->d_name, name.target, sizeof name.target - 1) > 0);
        name.mode = status.st_mode;
        name.inode = status.st_ino;
        kept->names = realloc(kept->names, (kept->n_names + 1) * sizeof name);
        assert_non_null(kept->names);
        kept->names[kept->n_names++] = name;
    }
    (void)closedir(directory);
}

static void keep_bytes(const struct stat *status, const char *path) {
    struct kept_file *kept = renew_kept(status->st_ino);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    kept->size = (size_t)status->st_size;
    kept->bytes = malloc(kept->size + 1);
    assert_true(fd >= 0 && kept->bytes != NULL);
    assert_int_equal(pread(fd, kept->bytes, kept->size, 0), kept->size);
    (void)close(fd);
}

static bool keep_synced(int fd) {
    struct stat status;
    char path[32];
    if (!disk_works) return fault == POWER_CUT;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    assert_int_equal(fstat(fd, &status), 0);
    if (S_ISDIR(status.st_mode))
        keep_names(status.st_ino, path);
    else
        keep_bytes(&status, path);
    return true;
}

static int keep_one(const char *path, const struct stat *status, int kind, struct FTW *place) {
    (void)place;
    if (kind == FTW_D) keep_names(status->st_ino, path);
    if (kind == FTW_F && !names_early) keep_bytes(status, path);
    return 0;
}

static bool keep_all(void) {
    bool early = names_early;
    names_early = false;
    if (disk_works) assert_int_equal(nftw(run_path, keep_one, 16, FTW_PHYS), 0);
    names_early = early;
    return fault == POWER_CUT;
}

static void cut_power(void) {
    if (names_early) assert_int_equal(nftw(run_path, keep_one, 16, FTW_PHYS), 0);
    disk_works = false;
}

/* A file of which nothing was synced is empty. */
static void restore(ino_t inode, const char *path) {
    const struct kept_file *kept = find_kept(inode);
    assert_int_equal(mkdir(path, 0755), 0);
    for (size_t i = 0; kept != NULL && i < kept->n_names; i++) {
        const struct kept_name *name = &kept->names[i];
        const struct kept_file *file = find_kept(name->inode);
        char at[512];
        assert_true(snprintf(at, sizeof at, "%s/%s", path, name->name) < (int)sizeof at);
        if (S_ISDIR(name->mode))
            restore(name->inode, at);
        else if (S_ISLNK(name->mode))
            assert_int_equal(symlink(name->target, at), 0);
        else
            put_sized(at, file != NULL ? file->bytes : "", file != NULL ? file->size : 0);
    }
}

static void forget_disk(void) {
    while (n_disk > 0) {
        free(disk[--n_disk].bytes);
        free(disk[n_disk].names);
        disk[n_disk] = (struct kept_file){0};
    }
}

/* One life with the power cut at the k-th call; what the disk has is put in the place of the run. False: the
 * k-th never came. */
static bool live_until_cut(long k) {
    struct stat run;
    BUFFER files = {0};
    assert_int_equal(stat(run_path, &run), 0);
    disk_works = true;
    fault = POWER_CUT;
    let_others_be_first();
    countdown = k;
    copy_well(&files);
    CLEANUP_FREE char *path = NULL;
    assert_int_equal(publish_all(&files, &path, NULL), 0);
    bool cut = countdown < 0;
    countdown = -1;
    fault = 0;
    disk_works = false;
    shell("rm -r run");
    restore(run.st_ino, run_path);
    if (exists(in(run_path,
                  "checkpoint_000012/.metadata.json"))) /* a disk would have kept the directory's number */
        shell("cd run/checkpoint_000012 && sed -i \"s/\\(.directory.: \\)[0-9]*/\\1$(stat -c %i .)/\" "
              ".metadata.json");
    forget_disk();
    return cut;
}

static void the_power_goes_at_every_call(bool early) {
    names_early = early;
    long k = 0;
    for (; live_until_cut(k); k++) {
        (void)expect_whole_or_none();
        assert_int_equal(sweep(NULL, 0, 11), 0);
        shell("test -z \"$(ls -A run)\"");
    }
    assert_true(k > 20);
    assert_true(expect_whole_or_none()); /* it was acknowledged */
}

static void the_power_goes(void **state) {
    (void)state;
    tree_with_all_sorts();
    the_power_goes_at_every_call(false);
}

static void the_power_goes_after_the_names(void **state) {
    (void)state;
    tree_with_all_sorts();
    the_power_goes_at_every_call(true);
}

/* More than are synced one by one. */
static void the_power_goes_under_many_files(void **state) {
    (void)state;
    tree_with_all_sorts();
    shell("mkdir source/d && for i in $(seq 70); do echo $i > source/d/$i; done");
    the_power_goes_at_every_call(true);
}

static void every_call_fails_with_eio(void **state) {
    (void)state;
    every_call_fails_once(EIO);
}

static void every_call_fails_with_a_full_disk(void **state) {
    (void)state;
    every_call_fails_once(ENOSPC);
}

static void a_full_disk_says_how_much(void **state) {
    (void)state;
    shell("seq 400000 > source/large");
    fault = ENOSPC;
    countdown = 1; /* its first write, behind its directory */
    BUFFER files = {0};
    ty_error err = {0};
    assert_int_equal(copy_from(source, &files, &err), -ENOSPC);
    assert_non_null(strstr(err.message, "source/large"));
    assert_non_null(strstr(err.message, "needs 2688895 bytes"));
    assert_non_null(strstr(err.message, "are free"));
}

static void a_death_at_every_call(void **state) {
    (void)state;
    tree_with_all_sorts();
    int published = 0;
    for (long k = 0;; k++) {
        let_others_be_first();
        pid_t child = fork();
        if (child == 0) {
            fault = 0;
            countdown = k;
            BUFFER files = {0};
            char *path = NULL;
            if (copy_from(source, &files, NULL) < 0) _exit(1);
            _exit(publish_all(&files, &path, NULL) < 0 ? 2 : 0);
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        bool whole = expect_whole_or_none();
        if (whole) published++;
        if (!WIFSIGNALED(status)) {
            assert_int_equal(status, 0);
            assert_true(whole && k > 20);
            break;
        }
        assert_int_equal(sweep(NULL, 0, 11), 0);
        shell("test -z \"$(ls -A run)\"");
    }
    assert_true(published >= 2); /* once killed between the rename and the sync of the directory */
}

static int add_to_last(ty_error *err) {
    BUFFER files = {0};
    CLEANUP_FREE char *path = NULL;
    int result = copy_from(source, &files, err);
    const char *lists[] = {files.data};
    struct checkpoint_parts parts = {RUN, 12, 1, "last", 3, false, lists, 1, false};
    return result < 0 ? result : checkpoint_publish(run_path, &parts, &path, err);
}

/* What is added to a checkpoint is in it as a whole, or not at all; killed, or at a disk that fails. */
static void an_addition_that_ends_at_every_call(bool killed) {
    small_tree();
    int added = 0;
    for (long k = 0, ends = 0; ends == 0; k++) {
        shell("mkdir -p run/last/shard && echo older > run/last/older && echo 1 > run/last/shard/1.bin");
        mark("last", 3, true);
        pid_t child = fork();
        if (child == 0) {
            fault = killed ? 0 : EIO;
            countdown = k;
            _exit(add_to_last(NULL) < 0);
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        ends = status == 0;
        verify_well(in(run_path, "last"));
        shell("cat run/last/older run/last/shard/1.bin > source/../other");
        bool is_whole = exists(in(run_path, "last/model.bin"));
        assert_int_equal(is_whole, exists(in(run_path, "last/shard/0.bin")));
        added += is_whole;
        static const char *const names[] = {"last"};
        assert_int_equal(sweep(names, 1, 3), 0);
        shell("test \"$(ls -A run)\" = last && rm -r run/last");
    }
    assert_true(added >= 1);
}

static void a_death_at_every_call_of_an_addition(void **state) {
    (void)state;
    an_addition_that_ends_at_every_call(true);
}

static void every_call_of_an_addition_fails(void **state) {
    (void)state;
    an_addition_that_ends_at_every_call(false);
}

static bool manifest_beside;

/* What a rank says of its files where their list is too long for a message. */
static void put_list_aside(const char *gathers, struct buffer *files) {
    struct digest digest;
    char name[128];
    bytes_digest_memory(files->data, files->size, &digest);
    (void)snprintf(name, sizeof name, ".trainyard-part-list-%s", digest.xxh3);
    put(in(gathers, name), files->data);
    buffer_clear(files);
    buffer_printf(files, "[{\"list\": \"%s\"}]", name);
}

static int publish_last(unsigned number, uint64_t adds_to, bool again, const struct buffer *files,
                        ty_error *err) {
    const char *lists[] = {files->data};
    CLEANUP_FREE char *path = NULL;
    struct checkpoint_parts parts = {RUN, number, 1, "last", adds_to, manifest_beside, lists, 1, again};
    return checkpoint_publish(run_path, &parts, &path, err);
}

/* The files of checkpoint 12, whose rank has copied them all; it adds to number 3 where there is one. */
static void gather_last(bool adds, struct buffer *files) {
    ty_error err = {0};
    BUFFER older = {0}, place = {0};
    checkpoint_staging_path(run_path, 3, 1, &place);
    shell("rm -rf source && mkdir -p source/d && echo old > source/d/same && echo older > source/d/older");
    if (adds && (checkpoint_copy(source, place.data, &(struct checkpoint_copying){CHECKPOINT_COPY, false},
                                 &older, &err) < 0 ||
                 publish_last(3, 0, false, &older, &err) < 0))
        fail_msg("%s", err.message);
    shell("rm -r source && mkdir -p source/d && echo new > source/d/same && echo newer > source/d/newer");
    copy_well(files);
    put_list_aside(staging, files);
}

/* Another controller does it again, as the ranks still wait for it. */
static void a_death_at_every_call_and_another_try(bool adds, bool is_beside) {
    int status = -1;
    manifest_beside = is_beside;
    for (long k = 0; status != 0; k++) {
        ty_error err = {0};
        BUFFER files = {0};
        gather_last(adds, &files);
        pid_t child = fork();
        if (child == 0) {
            fault = 0;
            countdown = k;
            _exit(publish_last(12, adds ? 3 : 0, false, &files, NULL) < 0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(status == 0 || WIFSIGNALED(status));
        if (publish_last(12, adds ? 3 : 0, true, &files, &err) < 0) fail_msg("call %ld: %s", k, err.message);
        verify_well(in(run_path, "last"));
        shell("test \"$(cat run/last/d/same run/last/d/newer)\" = \"$(printf 'new\\nnewer')\"");
        shell(adds ? "test \"$(cat run/last/d/older)\" = older" : "test ! -e run/last/d/older");
        shell(adds ? "test $(cat run/last/.metadata.json run/.last.manifest 2>&- | grep -c xxh3) = 3"
                   : "test $(cat run/last/.metadata.json run/.last.manifest 2>&- | grep -c xxh3) = 2");
        shell(is_beside ? "test \"$(ls -A run | tr '\\n' ' ')\" = '.last.manifest last ' && test \"$(ls -A "
                          "run/last)\" = d"
                        : "test \"$(ls -A run)\" = last");
        shell("test -z \"$(find run -name '.trainyard-part-*')\"");
        shell("rm -r run && mkdir run");
    }
}

static void a_death_and_another_try(void **state) {
    (void)state;
    a_death_at_every_call_and_another_try(false, false);
    a_death_at_every_call_and_another_try(false, true);
}

static void a_death_and_another_try_of_an_addition(void **state) {
    (void)state;
    a_death_at_every_call_and_another_try(true, false);
    a_death_at_every_call_and_another_try(true, true);
}

static void deaths_at_any_moment(void **state) {
    (void)state;
    tree_with_all_sorts();
    srand(20250101);
    for (int trial = 0; trial < 40; trial++) {
        let_others_be_first();
        pid_t child = fork();
        if (child == 0) {
            BUFFER files = {0};
            char *path = NULL;
            if (copy_from(source, &files, NULL) < 0) _exit(1);
            _exit(publish_all(&files, &path, NULL) < 0 ? 2 : 0);
        }
        (void)usleep((useconds_t)(rand() % 20000));
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        (void)expect_whole_or_none();
        assert_int_equal(sweep(NULL, 0, 11), 0);
        shell("test -z \"$(ls -A run)\"");
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define BESIDE(name) \
    { "beside another rank: " #name, name, set_up_beside, tear_down, NULL }

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(deaths_while_removing),
        TEST(every_removal_fails),
        TEST(every_call_fails_with_eio),
        BESIDE(every_call_fails_with_eio),
        TEST(every_call_fails_with_a_full_disk),
        TEST(a_full_disk_says_how_much),
        TEST(a_death_at_every_call),
        TEST(a_death_at_every_call_of_an_addition),
        TEST(every_call_of_an_addition_fails),
        TEST(a_death_and_another_try),
        TEST(a_death_and_another_try_of_an_addition),
        BESIDE(a_death_at_every_call),
        TEST(deaths_at_any_moment),
        BESIDE(deaths_at_any_moment),
        TEST(the_power_goes),
        BESIDE(the_power_goes),
        TEST(the_power_goes_after_the_names),
        BESIDE(the_power_goes_after_the_names),
        TEST(the_power_goes_under_many_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
