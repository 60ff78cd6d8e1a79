/* Leases: claims seen by others, void files removed, unsafe directories refused, waiting told by the kernel;
 * and many processes that compete for four devices, some of them killed, never hold more than there is. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/dice.h"
#include "cluster/lease.h"

enum { N_DEVICES = 4 };

static char top[PATH_MAX], directory[PATH_MAX + 16];

static int make_directory(void **state) {
    (void)state;
    (void)snprintf(top, sizeof top, "/tmp/trainyard-test-XXXXXX");
    if (mkdtemp(top) == NULL) return -1;
    (void)snprintf(directory, sizeof directory, "%s/leases", top);
    return setenv("TRAINYARD_LEASE_DIR", directory, 1);
}

static int remove_directory(void **state) {
    (void)state;
    char command[PATH_MAX + 16];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", top);
    return system(command);
}

static size_t count_files(void) {
    char command[PATH_MAX + 64];
    (void)snprintf(command, sizeof command, "ls -A '%s' | wc -l", directory);
    FILE *pipe = popen(command, "r");
    unsigned long n = 0;
    assert_non_null(pipe);
    assert_int_equal(fscanf(pipe, "%lu", &n), 1);
    assert_int_equal(pclose(pipe), 0);
    return n;
}

static struct lease_claim claim_of(const char *id, quantity amount) {
    struct lease_claim claim = {.resource = "GPU", .amount = amount};
    (void)snprintf(claim.id, sizeof claim.id, "%s", id);
    return claim;
}

static struct lease *claim(const char *id, quantity amount) {
    struct lease *lease = NULL;
    struct lease_claim one = claim_of(id, amount);
    assert_int_equal(lease_open("a run", &lease, NULL), 0);
    assert_int_equal(lease_claim(lease, &one, 1, NULL), 0);
    return lease;
}

static size_t look(const struct lease *own, struct lease_holder **holders) {
    size_t n = 0;
    ty_error err = {0};
    if (lease_holders(own, holders, &n, &err) < 0) fail_msg("%s", err.message);
    return n;
}

static size_t count_holders(const struct lease *own) {
    struct lease_holder *holders = NULL;
    size_t n = look(own, &holders);
    lease_holders_free(holders, n);
    return n;
}

static void test_claim_and_release(void **state) {
    (void)state;
    mode_t mask = umask(0077);
    assert_int_equal(count_holders(NULL), 0);
    struct lease *lease = claim("GPU-1f2e", QUANTITY_ONE / 2);
    (void)umask(mask);
    struct stat status;
    assert_int_equal(stat(directory, &status), 0);
    assert_int_equal(status.st_mode & 07777, 01777);
    assert_int_equal(fstat(lease_fd(lease), &status), 0);
    assert_int_equal(status.st_mode & 07777, 01644); /* sticky: nobody tidies it up */
    assert_true((fcntl(lease_fd(lease), F_GETFD) & FD_CLOEXEC) != 0);

    struct lease_holder *holders = NULL;
    assert_int_equal(look(NULL, &holders), 1);
    assert_int_equal(holders[0].pid, getpid());
    assert_string_equal(holders[0].run, "a run");
    assert_true(holders[0].user[0] != '\0');
    assert_true(holders[0].since > 0 && holders[0].since <= clock_wall());
    assert_int_equal(holders[0].n, 1);
    assert_string_equal(holders[0].claims[0].resource, "GPU");
    assert_string_equal(holders[0].claims[0].id, "GPU-1f2e");
    assert_int_equal(holders[0].claims[0].amount, QUANTITY_ONE / 2);
    lease_holders_free(holders, 1);
    assert_int_equal(count_holders(lease), 0);

    lease_release(lease);
    lease_release(NULL);
    assert_int_equal(count_holders(NULL), 0);
    assert_int_equal(count_files(), 0);
}

static void test_two_leases_of_one_process(void **state) {
    (void)state;
    struct lease *first = claim("0", QUANTITY_ONE), *second = claim("1", QUANTITY_ONE);
    assert_int_equal(count_holders(NULL), 2);
    assert_int_equal(count_holders(first), 1);
    lease_release(first);
    assert_int_equal(count_holders(second), 0);
    lease_release(second);
}

static pid_t start_holder(const char *id) {
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)claim(id, QUANTITY_ONE);
        (void)!write(ready[1], "x", 1);
        for (;;)
            (void)pause();
    }
    char byte;
    (void)close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    return child;
}

static void end_holder(pid_t child) {
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void test_killed_holder(void **state) {
    (void)state;
    pid_t child = start_holder("0");
    assert_int_equal(count_holders(NULL), 1);
    end_holder(child);
    assert_int_equal(count_files(), 1);
    assert_int_equal(count_holders(NULL), 0);
    assert_int_equal(count_files(), 0);
}

static bool is_readable(int fd, int timeout_ms) {
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    return poll(&wait, 1, timeout_ms) == 1;
}

static void test_watch(void **state) {
    (void)state;
    for (int way = 0; way < 3; way++) {
        struct lease *lease = way == 0 ? claim("0", QUANTITY_ONE) : NULL;
        pid_t child = way > 0 ? start_holder("0") : -1;
        struct lease_holder *holders = NULL;
        assert_int_equal(look(NULL, &holders), 1);
        if (way == 2) end_holder(child); /* gone before the watch begins */
        int fd = lease_watch(holders, 1, NULL);
        assert_true(fd >= 0);
        if (way < 2) assert_false(is_readable(fd, 0));
        if (way == 0) lease_release(lease);
        if (way == 1) end_holder(child);
        assert_true(is_readable(fd, 120000));
        (void)close(fd);
        lease_holders_free(holders, 1);
        assert_int_equal(count_holders(NULL), 0);
    }
}

/* Who watched is woken by a change, and who read before it and watches after it, too. */
static void test_change(void **state) {
    (void)state;
    struct lease *lease = claim("GPU-a-long-name-of-a-device", QUANTITY_ONE);
    struct lease_claim two[] = {claim_of("0", QUANTITY_ONE), claim_of("1", QUANTITY_ONE)};
    struct lease_holder *holders = NULL;
    assert_int_equal(look(NULL, &holders), 1);
    for (size_t claims = 3; claims-- > 0;) { /* two, one, none: shorter ones leave nothing of the longer */
        int fd = lease_watch(holders, 1, NULL);
        assert_false(is_readable(fd, 0));
        assert_int_equal(lease_claim(lease, two, claims, NULL), 0);
        assert_true(is_readable(fd, 120000));
        (void)close(fd);
        fd = lease_watch(holders, 1, NULL);
        assert_true(is_readable(fd, 0));
        (void)close(fd);
        lease_holders_free(holders, 1);
        assert_int_equal(look(NULL, &holders), 1);
        assert_int_equal(holders[0].n, claims);
        assert_string_equal(holders[0].run, "a run");
        if (claims > 0) assert_string_equal(holders[0].claims[claims - 1].id, claims == 2 ? "1" : "0");
    }
    lease_holders_free(holders, 1);
    lease_release(lease);
    assert_int_equal(count_files(), 0);
}

static struct lease_holder *look_at(struct lease *lease, const struct lease_claim *claims, size_t n) {
    struct lease_holder *holders = NULL;
    assert_int_equal(lease_claim(lease, claims, n, NULL), 0);
    assert_int_equal(look(NULL, &holders), 1);
    return holders;
}

/* A run's name may have 200 bytes, of letters of several. */
static void test_a_long_name(void **state) {
    (void)state;
    char name[201] = "";
    for (size_t i = 0; i < 200; i += 2)
        memcpy(name + i, "\u00e9", 2);
    struct lease *lease = NULL;
    ty_error err = {0};
    if (lease_open(name, &lease, &err) < 0) fail_msg("%s", err.message);
    struct lease_holder *holders = look_at(lease, NULL, 0);
    assert_string_equal(holders[0].run, name);
    lease_holders_free(holders, 1);
    lease_release(lease);
}

/* What another user has written moves no cursor, and is one short line. */
static void test_words_of_others(void **state) {
    (void)state;
    enum { N = 1000 };
    static struct lease_claim claims[N];
    CLEANUP(buffer_done) struct buffer line = {0};
    struct lease *lease = NULL;
    assert_int_equal(lease_open("a\302\2332J\u202eb\tc", &lease, NULL), 0);
    for (size_t i = 0; i < N; i++) {
        claims[i] = claim_of("0", QUANTITY_ONE);
        (void)snprintf(claims[i].resource, sizeof claims[i].resource, i == 0 ? "GPU" : "thing-%zu", i);
    }
    struct lease_holder *holders = look_at(lease, claims, N);
    assert_string_equal(holders[0].run, "a?2J?b?c");
    lease_describe(&holders[0], &line);
    assert_non_null(strstr(line.data, " has held 1 GPU since "));
    lease_holders_free(holders, 1);
    lease_release(lease);
}

/* The lease of a killed controller lives on in its agent, and goes with it. */
static void test_lock_is_inherited(void **state) {
    (void)state;
    struct lease *lease = claim("0", QUANTITY_ONE);
    pid_t agent = fork();
    if (agent == 0)
        for (;;)
            (void)pause();
    (void)close(lease_fd(lease)); /* as the kernel does for a killed holder; the file stays */
    assert_int_equal(count_holders(NULL), 1);
    end_holder(agent);
    assert_int_equal(count_holders(NULL), 0);
    free(lease);
}

/* Also before anybody has waited for it: whose agents still hold the lease is nobody then. */
static void test_a_dead_holder_has_no_pid(void **state) {
    (void)state;
    int alive[2];
    siginfo_t end;
    struct lease_holder *holders = NULL;
    assert_int_equal(pipe2(alive, O_CLOEXEC), 0);
    pid_t controller = fork();
    if (controller == 0) {
        (void)claim("0", QUANTITY_ONE);
        pid_t agent = fork();
        if (agent == 0)
            for (;;)
                (void)pause();
        (void)!write(alive[1], &agent, sizeof agent);
        _exit(0);
    }
    pid_t agent = 0;
    assert_int_equal(read(alive[0], &agent, sizeof agent), sizeof agent);
    assert_int_equal(waitid(P_PID, (id_t)controller, &end, WEXITED | WNOWAIT), 0);
    size_t n = look(NULL, &holders);
    struct lease_holder holder = n == 1 ? holders[0] : (struct lease_holder){.pid = -1};
    lease_holders_free(holders, n);
    assert_int_equal(kill(agent, SIGKILL), 0);
    assert_int_equal(waitpid(controller, NULL, 0), controller);
    assert_int_equal(holder.pid, 0);
    assert_int_equal(holder.owner, geteuid());
    (void)close(alive[1]);
    char byte;
    assert_int_equal(read(alive[0], &byte, 1), 0); /* the agent has gone, and its descriptors */
    (void)close(alive[0]);
    assert_int_equal(count_holders(NULL), 0);
}

static void test_planted(void **state) {
    (void)state;
    char path[PATH_MAX + 64];
    ty_error err = {0};
    struct lease *lease;

    assert_int_equal(symlink("/tmp", directory), 0);
    assert_int_equal(lease_open("a run", &lease, &err), -EPERM);
    assert_non_null(strstr(err.message, directory));
    assert_int_equal(unlink(directory), 0);

    int file = open(directory, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    assert_true(file >= 0 && close(file) == 0);
    assert_int_equal(lease_open("a run", &lease, &err), -EPERM);
    assert_int_equal(unlink(directory), 0);

    assert_int_equal(mkdir(directory, 0777), 0);
    assert_int_equal(chmod(directory, 0777), 0);
    assert_int_equal(lease_open("a run", &lease, &err), -EPERM);
    assert_non_null(strstr(err.message, "1777"));

    assert_int_equal(chmod(directory, 0700), 0); /* a private one is the owner's business */
    assert_int_equal(count_holders(NULL), 0);
    struct stat status;
    assert_int_equal(stat(directory, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0700);

    (void)snprintf(path, sizeof path, "%s/trainyard-1-000000000000000a.lease", directory);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    (void)snprintf(path, sizeof path, "%s/trainyard-1-000000000000000b.lease", directory);
    assert_int_equal(mkfifo(path, 0666), 0);
    (void)snprintf(path, sizeof path, "%s/trainyard-1-000000000000000c.lease", directory);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(count_holders(NULL), 0);
    assert_int_equal(access("/etc/passwd", F_OK), 0);
}

/* Its owner may remove what lies in it, sticky or not. He is named, and so is what to do. */
static void test_foreign_directory(void **state) {
    (void)state;
    if (geteuid() != 0) skip();
    struct lease *lease;
    static const mode_t modes[] = {0755, 01777, 0700};
    assert_int_equal(mkdir(directory, 0755), 0);
    assert_int_equal(chown(directory, 12345, 12345), 0);
    for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
        ty_error err = {0};
        assert_int_equal(chmod(directory, modes[i]), 0);
        assert_int_equal(lease_open("a run", &lease, &err), -EPERM);
        assert_non_null(strstr(err.message, "12345"));
        assert_non_null(strstr(err.message, "sudo install -d -m 1777 -o root"));
    }
    assert_int_equal(count_files(), 0);
}

static void become_somebody(void) {
    if (setresgid(12345, 12345, 12345) < 0 || setresuid(12345, 12345, 12345) < 0) _exit(1);
}

/* What another user can do with our files and the directory while it holds them as hard as it can: nothing. */
static void test_another_user_cannot_disturb(void **state) {
    (void)state;
    if (geteuid() != 0) skip();
    assert_int_equal(chmod(top, 0755), 0);
    struct lease *mine = claim("0", QUANTITY_ONE);
    char name[PATH_MAX + 64];
    (void)snprintf(name, sizeof name, "cd '%s' && echo -n trainyard-*.lease", directory);
    FILE *pipe_of_names = popen(name, "r");
    assert_non_null(fgets(name, sizeof name, pipe_of_names));
    assert_int_equal(pclose(pipe_of_names), 0);
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t stranger = fork();
    if (stranger == 0) {
        become_somebody();
        (void)close(lease_fd(mine));
        int place = open(directory, O_RDONLY | O_DIRECTORY), file = openat(place, name, O_RDONLY);
        struct flock read_lock = {.l_type = F_RDLCK}, write_lock = {.l_type = F_WRLCK};
        if (flock(place, LOCK_EX | LOCK_NB) < 0 || flock(file, LOCK_EX | LOCK_NB) < 0) _exit(2);
        (void)fcntl(file, F_OFD_SETLK, &read_lock);
        if (fcntl(file, F_OFD_SETLK, &write_lock) == 0 || openat(place, name, O_RDWR) >= 0 ||
            unlinkat(place, name, 0) == 0 || renameat(place, name, place, "away") == 0)
            _exit(3);
        (void)!write(ready[1], "x", 1);
        for (;;)
            (void)pause();
    }
    char byte;
    (void)close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    assert_int_equal(count_holders(NULL), 1);
    struct lease *another = claim("1", QUANTITY_ONE); /* nobody's lock is waited for */
    assert_int_equal(count_holders(NULL), 2);
    lease_release(another);
    (void)close(lease_fd(
        mine)); /* as the kernel does for a killed holder: whatever the stranger holds, the lease is void */
    assert_int_equal(count_holders(NULL), 0);
    assert_int_equal(count_files(), 0);
    end_holder(stranger);
    free(mine);
}

/* A stranger who claims everything holds everything, under his own name. The pid is told only where it is one
 * of his. */
static void test_a_lie_is_told_of(void **state) {
    (void)state;
    if (geteuid() != 0) skip();
    assert_int_equal(chmod(top, 0755), 0);
    lease_release(claim("0", QUANTITY_ONE)); /* the directory is ours */
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t stranger = fork();
    if (stranger == 0) {
        become_somebody();
        struct lease *lease = claim("0", QUANTITY_ONE);
        static const char text[] =
            "{\"since\":7,\"pid\":1,\"run\":\"x\",\"user\":\"root\",\"claims\":[{\"resource\":\"GPU\","
            "\"id\":\"0\",\"amount\":10000}],\"until\":7}";
        if (ftruncate(lease_fd(lease), 0) < 0 || pwrite(lease_fd(lease), text, sizeof text - 1, 0) < 0)
            _exit(2);
        (void)!write(ready[1], "x", 1);
        for (;;)
            (void)pause();
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    struct lease_holder *holders = NULL;
    assert_int_equal(look(NULL, &holders), 1);
    assert_string_equal(holders[0].user, "12345");
    assert_int_equal(holders[0].pid, 0);
    lease_holders_free(holders, 1);
    end_holder(stranger);
    assert_int_equal(count_holders(NULL), 0);
    (void)close(ready[0]);
    (void)close(ready[1]);
}

/* Two runs that begin in two directories would meet nobody. */
static void test_a_relative_directory(void **state) {
    static const char *const paths[] = {"leases", "~/leases", "./leases"};
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        struct lease *lease = NULL;
        ty_error err = {0};
        assert_int_equal(setenv("TRAINYARD_LEASE_DIR", paths[i], 1), 0);
        assert_int_equal(lease_open("a run", &lease, &err), TY_EUSAGE);
        assert_non_null(strstr(err.message, paths[i]));
        assert_non_null(strstr(err.message, "absolute path"));
        assert_int_not_equal(access(paths[i], F_OK), 0);
    }
}

/* The default is in nobody's hands, and what else lies there is not touched. */
static void test_default_directory(void **state) {
    (void)state;
    assert_int_equal(unsetenv("TRAINYARD_LEASE_DIR"), 0);
    static const char foreign[] = "/tmp/trainyard-test-foreign.lease";
    int fd = open(foreign, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && close(fd) == 0);
    struct lease *lease = claim("a device of no machine", QUANTITY_ONE);
    struct lease_holder *holders = NULL;
    size_t n = look(NULL, &holders), found = 0;
    for (size_t i = 0; i < n; i++)
        found += holders[i].n == 1 && strcmp(holders[i].claims[0].id, "a device of no machine") == 0;
    assert_int_equal(found, 1);
    lease_holders_free(holders, n);
    lease_release(lease);
    assert_int_equal(unlink(foreign), 0);
}

/* Half of a new text over the old one is no claim, and neither is what is not locked yet, which stays. */
static void test_torn(void **state) {
    (void)state;
    struct lease *lease = claim("0", QUANTITY_ONE);
    char text[512] = "";
    ssize_t size = pread(lease_fd(lease), text, sizeof text - 1, 0);
    assert_true(size > 0);
    char *until = strstr(text, "\"until\":");
    assert_non_null(until);
    until[8] = until[8] == '9' ? '8' : '9';
    assert_int_equal(pwrite(lease_fd(lease), text, (size_t)size, 0), size);
    assert_int_equal(count_holders(NULL), 0);
    lease_release(lease);
    char path[PATH_MAX + 64];
    (void)snprintf(path, sizeof path, "%s/trainyard-1-000000000000000a.lease.unborn", directory);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_int_equal(count_holders(NULL), 0);
    assert_int_equal(count_files(), 1);
    assert_int_equal(futimens(fd, (struct timespec[]){{.tv_sec = 1}, {.tv_sec = 1}}), 0);
    assert_int_equal(count_holders(NULL), 0);
    assert_int_equal(count_files(), 0);
    (void)close(fd);
}

/* A lease has its text when it gets its name: whoever finds it then, on a busy machine, is told no nonsense. */
static void test_made_whole(void **state) {
    (void)state;
    struct lease *first = NULL;
    assert_int_equal(lease_open("first", &first, NULL), 0); /* makes the directory */
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 5000; i++) {
            struct lease *lease = NULL;
            if (lease_open("short", &lease, NULL) < 0) _exit(1);
            lease_release(lease);
        }
        _exit(0);
    }
    size_t n_found = 0;
    int status = -1;
    while (waitpid(child, &status, WNOHANG) == 0) {
        DIR *entries = opendir(directory);
        const struct dirent *entry;
        assert_non_null(entries);
        while ((entry = readdir(entries)) != NULL) {
            struct stat found;
            CLEANUP_FD int fd = openat(dirfd(entries), entry->d_name, O_RDONLY);
            if (fd < 0 || fstat(fd, &found) < 0 || !S_ISREG(found.st_mode)) continue;
            assert_true(found.st_size > 0);
            n_found++;
        }
        (void)closedir(entries);
    }
    assert_int_equal(status, 0);
    assert_true(n_found > 0);
    lease_release(first);
}

/* Two users of one machine: each sees and respects what the other holds. */
static void test_another_user(void **state) {
    (void)state;
    if (geteuid() != 0) skip();
    assert_int_equal(chmod(top, 0755), 0);
    struct lease *lease = claim("0", QUANTITY_ONE);
    pid_t child = fork();
    if (child == 0) {
        struct lease_holder *holders = NULL;
        become_somebody();
        size_t n = look(NULL, &holders);
        if (n != 1 || strcmp(holders[0].claims[0].id, "0") != 0) _exit(2);
        lease_holders_free(holders, n);
        lease_release(claim("1", QUANTITY_ONE));
        (void)claim("2", QUANTITY_ONE);
        _exit(count_holders(NULL) == 2 ? 0 : 3);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(count_holders(NULL), 1);
    lease_release(lease);
}

/* Locked files whose text is nonsense hold nothing and harm nobody. */
static void test_nonsense(void **state) {
    (void)state;
    static const char *const texts[] = {"",
                                        "{",
                                        "[]",
                                        "{\"claims\": 3}",
                                        "{\"claims\": [3, {}, {\"amount\": -5}]}",
                                        "{\"pid\": \"x\", \"claims\": [{\"resource\": 1, \"amount\": 9e99}]}"};
    assert_int_equal(count_holders(NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct lease *lease = claim("0", QUANTITY_ONE);
        assert_int_equal(ftruncate(lease_fd(lease), 0), 0);
        assert_int_equal(pwrite(lease_fd(lease), texts[i], strlen(texts[i]), 0), strlen(texts[i]));
        struct lease_holder *holders = NULL;
        size_t n = look(NULL, &holders);
        for (size_t h = 0; h < n; h++)
            for (size_t c = 0; c < holders[h].n; c++)
                assert_int_equal(holders[h].claims[c].amount, 0);
        lease_holders_free(holders, n);
        lease_release(lease);
    }
}

/* -- what others hold, on this machine's node -- */

static char *text(const char *value) {
    char *copy = strdup(value);
    assert_non_null(copy);
    return copy;
}

static struct cluster *four_devices(bool known) {
    struct cluster *cluster = cluster_create();
    struct node_shape shape = {0};
    assert_int_equal(resources_parse(&shape.total, "CPU=8,GPU=4", NULL), 0);
    shape.devices = calloc(1, sizeof *shape.devices);
    shape.n_devices = 1;
    shape.devices[0] = (struct node_devices){.resource = text("GPU"), .n = N_DEVICES};
    if (known) {
        shape.devices[0].uuids = calloc(N_DEVICES, sizeof(char *));
        shape.devices[0].bus_ids = calloc(N_DEVICES, sizeof(char *));
        for (size_t i = 0; i < N_DEVICES; i++) {
            shape.devices[0].uuids[i] = text(i == 2 ? "GPU-two" : "");
            shape.devices[0].bus_ids[i] = text(i == 1 ? "0000:3b:00.0" : "");
        }
    }
    const struct node_shape *shared = NULL;
    assert_int_equal(cluster_shape(cluster, &shape, &shared, NULL), 0);
    assert_int_equal(cluster_add_node(cluster, "here", shared, NULL, NULL), 0);
    return cluster;
}

static void test_apply(void **state) {
    (void)state;
    struct cluster *cluster = four_devices(true);
    struct node *node = &cluster->nodes[0];
    struct lease_claim claims[] = {claim_of("0", QUANTITY_ONE), claim_of("GPU-two", QUANTITY_ONE / 4),
                                   claim_of("GPU-other", QUANTITY_ONE), claim_of("7", QUANTITY_ONE)};
    struct lease_holder holders[] = {{.claims = claims, .n = 4}, {.claims = &claims[1], .n = 1}};
    assert_true(lease_fits(claims, 2, cluster));
    assert_int_equal(lease_apply(NULL, 0, cluster, NULL), 0);
    assert_null(node->use);
    assert_int_equal(lease_apply(holders, 2, cluster, NULL), 0);
    const quantity left[] = {0, QUANTITY_ONE, QUANTITY_ONE / 2, QUANTITY_ONE};
    assert_memory_equal(node->use->device_free[0], left, sizeof left);
    assert_int_equal(node_available(node, "GPU"), 5 * QUANTITY_ONE / 2);
    assert_int_equal(node_available(node, "CPU"), 8 * QUANTITY_ONE);

    assert_true(lease_fits(&claims[1], 1, cluster));
    assert_true(lease_fits(&claims[1], 1, cluster)); /* a quarter each: now it is taken */
    assert_false(lease_fits(&claims[1], 1, cluster));
    assert_int_equal(lease_apply(holders, 2, cluster, NULL), 0); /* anew, not on top */
    assert_memory_equal(node->use->device_free[0], left, sizeof left);
    assert_false(lease_fits(claims, 1, cluster));

    struct lease_claim own;
    lease_claim_device(&node->shape->devices[0], 2, QUANTITY_ONE, &own);
    assert_string_equal(own.id, "GPU-two");
    lease_claim_device(&node->shape->devices[0], 1, QUANTITY_ONE, &own);
    assert_string_equal(own.id, "0000:3b:00.0");
    assert_true(lease_fits(&own, 1, cluster));
    assert_int_equal(node->use->device_free[0][1], 0);
    lease_claim_device(&node->shape->devices[0], 3, QUANTITY_ONE, &own);
    assert_string_equal(own.id, "3");
    assert_string_equal(own.resource, "GPU");
    cluster_destroy(cluster);
}

/* -- many processes compete -- */

/* What is held, told by the kernel beside the leases: a claimant whose claim stands locks as many bytes of the
 * device's part of a file as it holds, which fails where there are none left. The kernel drops them before it
 * drops the lease, whose descriptor is higher. */
struct board {
    int file;
    int64_t *grants, *violations;
};

static bool pick(const struct node *node, quantity amount, size_t *device) {
    for (size_t i = 0; i < N_DEVICES; i++)
        if (node->use == NULL || node->use->device_free[0][i] >= amount) {
            *device = i;
            return true;
        }
    return false;
}

enum { PART = 20 }; /* a device in as many bytes: all amounts are multiples of one */

static bool lock_byte(const struct board *board, size_t at, short type) {
    struct flock byte = {.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)at, .l_len = 1};
    return fcntl(board->file, F_SETLK, &byte) == 0;
}

static void note(const struct board *board, size_t device, quantity amount) {
    quantity wanted = amount * PART / QUANTITY_ONE;
    for (size_t i = 0; i < PART && wanted > 0; i++)
        if (lock_byte(board, device * PART + i, F_WRLCK)) wanted--;
    if (wanted > 0) __atomic_add_fetch(board->violations, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(board->grants, 1, __ATOMIC_SEQ_CST);
}

static void unnote(const struct board *board, size_t device) {
    for (size_t i = 0; i < PART; i++)
        (void)lock_byte(board, device * PART + i, F_UNLCK);
}

/* Looks, claims if there is room, and looks again. 1 when the claim stands, 0 when there is no room,
 * -EAGAIN. */
static int try_claim(struct cluster *cluster, const struct lease *lease, quantity amount, size_t *device) {
    struct lease_holder *holders = NULL;
    struct lease_claim mine;
    size_t n = 0;
    if (lease_holders(lease, &holders, &n, NULL) < 0 || lease_apply(holders, n, cluster, NULL) < 0) _exit(1);
    lease_holders_free(holders, n);
    if (!pick(&cluster->nodes[0], amount, device)) return 0;
    lease_claim_device(&cluster->nodes[0].shape->devices[0], *device, amount, &mine);
    if (lease_claim(lease, &mine, 1, NULL) < 0 || lease_holders(lease, &holders, &n, NULL) < 0 ||
        lease_apply(holders, n, cluster, NULL) < 0)
        _exit(1);
    lease_holders_free(holders, n);
    if (lease_fits(&mine, 1, cluster)) return 1;
    if (lease_claim(lease, NULL, 0, NULL) < 0) _exit(1);
    return -EAGAIN;
}

/* Until it is known: how often claimants meet is for the machine to say. */
static int claim_room(struct cluster *cluster, const struct lease *lease, quantity amount, size_t *device) {
    int got = try_claim(cluster, lease, amount, device);
    for (int tries = 1; got < 0; tries += tries < LEASE_TRIES - 1) {
        lease_pause(tries);
        got = try_claim(cluster, lease, amount, device);
    }
    return got;
}

static void compete_once(const struct board *board, quantity amount) {
    struct cluster *cluster = four_devices(false);
    struct lease *lease = NULL;
    size_t device;
    if (lease_open("race", &lease, NULL) < 0) _exit(1);
    int got = claim_room(cluster, lease, amount, &device);
    if (got > 0) note(board, device, amount);
    (void)usleep(200);
    if (got > 0) unnote(board, device);
    lease_release(lease);
    cluster_destroy(cluster);
}

static void compete(const struct board *board, int rounds, uint64_t seed) {
    static const quantity amounts[] = {QUANTITY_ONE, QUANTITY_ONE / 2, QUANTITY_ONE / 4, QUANTITY_ONE / 10};
    struct dice dice;
    dice_seed(&dice, seed);
    for (int i = 0; i < rounds; i++)
        compete_once(board, amounts[dice_below(&dice, ARRAY_SIZE(amounts))]);
}

static pid_t start_claimant(const struct board *board, int rounds, uint64_t seed) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        compete(board, rounds, seed);
        _exit(0);
    }
    return child;
}

static struct board make_board(void) {
    int64_t *counts = mmap(NULL, 2 * sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(counts, MAP_FAILED);
    struct board board = {open(top, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), counts, counts + 1};
    if (board.file < 0) board.file = memfd_create("board", MFD_CLOEXEC);
    assert_true(board.file >= 0);
    return board;
}

static void end_board(const struct board *board) {
    (void)close(board->file);
    assert_int_equal(munmap(board->grants, 2 * sizeof *board->grants), 0);
}

static void test_race(void **state) {
    (void)state;
    enum { CLAIMANTS = 16, ROUNDS = 40 };
    struct board board = make_board();
    pid_t children[CLAIMANTS];
    for (size_t i = 0; i < CLAIMANTS; i++)
        children[i] = start_claimant(&board, ROUNDS, i);
    for (size_t i = 0; i < CLAIMANTS; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(*board.violations, 0);
    assert_true(*board.grants > CLAIMANTS);
    assert_int_equal(count_holders(NULL), 0);
    assert_int_equal(count_files(), 0);
    end_board(&board);
}

static void test_race_with_kills(void **state) {
    (void)state;
    enum { CLAIMANTS = 8, KILLS = 100 };
    struct board board = make_board();
    pid_t children[CLAIMANTS];
    struct dice dice;
    dice_seed(&dice, 7);
    for (size_t i = 0; i < CLAIMANTS; i++)
        children[i] = start_claimant(&board, INT_MAX, i);
    for (int kills = 0; kills < KILLS; kills++) {
        size_t victim = dice_below(&dice, CLAIMANTS);
        (void)usleep((useconds_t)dice_below(&dice, 2000));
        end_holder(children[victim]);
        children[victim] = start_claimant(&board, INT_MAX, dice_next(&dice));
    }
    for (size_t i = 0; i < CLAIMANTS; i++)
        end_holder(children[i]);
    assert_int_equal(*board.violations, 0);
    assert_true(*board.grants > 0);
    char command[PATH_MAX + 64]; /* who was killed as it made its lease leaves a file, for a while */
    (void)snprintf(command, sizeof command, "find '%s' -name '*.unborn' -exec touch -d @1 {} +", directory);
    assert_int_equal(system(command), 0);
    assert_int_equal(count_holders(NULL), 0);
    assert_int_equal(count_files(), 0);
    end_board(&board);
}

/* Waits until a whole device is free, claims it, and goes on to its end without releasing it: the kernel
 * does. */
static void wait_and_take(void) {
    for (;;) {
        struct cluster *cluster = four_devices(false);
        struct lease_holder *holders = NULL;
        struct lease *lease = NULL;
        size_t device, n = 0;
        if (lease_open("wait", &lease, NULL) < 0) _exit(1);
        int got = claim_room(cluster, lease, QUANTITY_ONE, &device);
        if (got > 0) _exit(0);
        lease_release(lease);
        if (lease_holders(NULL, &holders, &n, NULL) < 0 || lease_apply(holders, n, cluster, NULL) < 0) _exit(1);
        int fd = pick(&cluster->nodes[0], QUANTITY_ONE, &device) ? -1 : lease_watch(holders, n, NULL);
        if (fd >= 0 && !is_readable(fd, 120000)) _exit(2);
        if (fd >= 0) (void)close(fd);
        lease_holders_free(holders, n);
        cluster_destroy(cluster);
    }
}

/* No end of a lease goes unheard: each of many in a queue gets its turn. */
static void test_queue(void **state) {
    (void)state;
    enum { WAITERS = 48, HOLDERS = 4 };
    pid_t holders[HOLDERS], waiters[WAITERS];
    for (size_t i = 0; i < HOLDERS; i++) {
        char id[8];
        (void)snprintf(id, sizeof id, "%zu", i);
        holders[i] = start_holder(id);
    }
    for (size_t i = 0; i < WAITERS; i++) {
        waiters[i] = fork();
        if (waiters[i] == 0) wait_and_take();
    }
    (void)usleep(20000);
    for (size_t i = 0; i < HOLDERS; i++)
        end_holder(holders[i]);
    for (size_t i = 0; i < WAITERS; i++) {
        int status;
        assert_int_equal(waitpid(waiters[i], &status, 0), waiters[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(count_holders(NULL), 0);
}

/* What is planned elsewhere is claimed as it is, or refused with who is in the way; half a device beside half
 * of it. */
static void test_take(void **state) {
    (void)state;
    struct cluster *cluster = four_devices(true);
    struct lease_claim wanted[] = {claim_of("3", QUANTITY_ONE), claim_of("GPU-two", QUANTITY_ONE / 2)};
    struct lease *other = claim("GPU-two", QUANTITY_ONE / 2);
    ty_error err = {0};
    struct lease *first, *second;
    assert_int_equal(lease_open("b run", &first, &err), 0);
    assert_int_equal(lease_open("c run", &second, &err), 0);
    if (lease_take(first, wanted, 2, cluster, &err) < 0) fail_msg("%s", err.message);
    assert_int_equal(count_holders(other), 2);
    assert_int_equal(lease_take(second, wanted, 2, cluster, &err), TY_EBUSY);
    assert_non_null(strstr(err.message, "GPU 3 is taken: run b run of "));
    assert_int_equal(lease_take(second, &wanted[1], 1, cluster, &err), TY_EBUSY);
    assert_non_null(strstr(err.message, "GPU GPU-two is taken: run "));
    lease_release(other);
    assert_int_equal(lease_take(second, &wanted[1], 1, cluster, &err), 0); /* what was refused is not claimed */
    assert_int_equal(lease_take(first, wanted, 1, cluster, &err), 0);      /* less, */
    assert_int_equal(lease_take(first, wanted, 2, cluster, &err), 0);      /* and more again */
    lease_abandoned(lease_fd(first));
    assert_int_equal(count_files(), 1);
    assert_int_equal(lease_take(second, wanted, 2, cluster, &err), 0);
    lease_release(first);
    lease_release(second);
    assert_int_equal(count_holders(NULL), 0);
    cluster_destroy(cluster);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, remove_directory)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_planted),
        TEST(test_foreign_directory),
        TEST(test_claim_and_release),
        TEST(test_two_leases_of_one_process),
        TEST(test_killed_holder),
        TEST(test_watch),
        TEST(test_change),
        TEST(test_a_long_name),
        TEST(test_words_of_others),
        TEST(test_lock_is_inherited),
        TEST(test_a_dead_holder_has_no_pid),
        TEST(test_another_user),
        TEST(test_another_user_cannot_disturb),
        TEST(test_a_lie_is_told_of),
        TEST(test_a_relative_directory),
        TEST(test_default_directory),
        TEST(test_made_whole),
        TEST(test_torn),
        TEST(test_nonsense),
        cmocka_unit_test(test_apply),
        TEST(test_take),
        TEST(test_race),
        TEST(test_race_with_kills),
        TEST(test_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
