/* The agent as its controller sees it (agent_controller.h), with workers that this program itself is
 * (agent_worker.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent_controller.h"
#include "agent_worker.h"
#include "base/cleanup.h"

static char **shell(char *script) {
    static char *argv[4];
    argv[0] = "sh";
    argv[1] = "-c";
    argv[2] = script;
    argv[3] = NULL;
    return argv;
}

static void launches_nothing_and_ends(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    assert_true(strcmp(c->address, "127.0.0.1") == 0 || strcmp(c->address, "::1") == 0);
    controller_launch(c, (struct launch_options){.n = 0, .mode = "nothing"});
    assert_int_equal(controller_end(c), 0);
}

static void sixty_four_workers_end(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    for (int attempt = 0; attempt < 3; attempt++) {
        controller_launch(c, (struct launch_options){.n = 64, .mode = "nothing"});
        HEAR_UNTIL(c, controller_all_gone(c, 64));
        for (int i = 0; i < 64; i++)
            assert_true(c->ranks[i].started && c->ranks[i].exited && c->ranks[i].wait_status == 0);
    }
    assert_int_equal(controller_end(c), 0);
}

static void every_exit_code_arrives(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    controller_launch(c, (struct launch_options){.n = 256, .mode = "rank-status"});
    HEAR_UNTIL(c, controller_all_gone(c, 256));
    for (int i = 0; i < 256; i++) {
        assert_true(WIFEXITED(c->ranks[i].wait_status));
        assert_int_equal(WEXITSTATUS(c->ranks[i].wait_status), i);
        assert_false(c->ranks[i].stopped);
    }
    assert_int_equal(controller_end(c), 0);
}

static void deadly_signals_arrive(void **state) {
    (void)state;
    static const int harmless[] = {SIGCHLD, SIGCONT, SIGURG, SIGWINCH, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU};
    struct controller *c = controller_begin();
    controller_launch(c, (struct launch_options){.n = 31, .mode = "signal"});
    unsigned others = 0;
    for (size_t i = 0; i < ARRAY_SIZE(harmless); i++)
        others |= 1u << harmless[i];
    for (int i = 1; i <= 31; i++)
        if ((others & 1u << i) == 0) HEAR_UNTIL(c, c->ranks[i - 1].gone);
    controller_stop(c, true);
    HEAR_UNTIL(c, controller_all_gone(c, 31));
    for (int i = 1; i <= 31; i++)
        if ((others & 1u << i) == 0) assert_int_equal(WTERMSIG(c->ranks[i - 1].wait_status), i);
    assert_int_equal(controller_end(c), 0);
}

static void workers_are_set_up(void **state) {
    (void)state;
    struct rlimit before, small = {.rlim_cur = 512, .rlim_max = 1024};
    getrlimit(RLIMIT_NOFILE, &before);
    small.rlim_max = before.rlim_max;
    setrlimit(RLIMIT_NOFILE, &small);
    signal(SIGUSR1, SIG_IGN);
    signal(SIGCHLD, SIG_IGN); /* as some parents do */
    signal(SIGSYS, SIG_IGN);
    signal(SIGRTMAX, SIG_IGN);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    sigaddset(&mask, SIGCHLD);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    struct controller *c = controller_begin();
    setrlimit(RLIMIT_NOFILE, &before);
    sigprocmask(SIG_UNBLOCK, &mask, NULL);
    signal(SIGUSR1, SIG_DFL);
    signal(SIGCHLD, SIG_DFL);
    signal(SIGSYS, SIG_DFL);
    signal(SIGRTMAX, SIG_DFL);
    controller_launch(c, (struct launch_options){.n = 3,
                                                 .mode = "set-up",
                                                 .working_directory = "/usr",
                                                 .payload = "payload",
                                                 .worker_environment = "SHARED"});
    HEAR_UNTIL(c, controller_all_gone(c, 3));
    for (int i = 0; i < 3; i++)
        assert_int_equal(c->ranks[i].wait_status, 0);
    assert_int_equal(controller_end(c), 0);
}

static void a_program_that_is_not_there_is_named(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    char *missing[] = {"./train", NULL}, *nowhere[] = {"no-such-program", NULL};
    controller_launch(c, (struct launch_options){.n = 2, .argv = missing});
    HEAR_UNTIL(c, controller_all_gone(c, 2));
    assert_true(c->ranks[0].failed && !c->ranks[0].started);
    assert_string_equal(c->ranks[1].text, "cannot execute ./train: No such file or directory");
    controller_launch(c, (struct launch_options){.n = 1, .argv = nowhere});
    HEAR_UNTIL(c, controller_all_gone(c, 1));
    assert_string_equal(c->ranks[0].text,
                        "cannot execute no-such-program: No such file or directory in PATH=/usr/bin:/bin");
    controller_launch(c, (struct launch_options){.n = 1, .mode = "nothing", .working_directory = "/no/such"});
    HEAR_UNTIL(c, controller_all_gone(c, 1));
    assert_string_equal(c->ranks[0].text, "cannot enter directory /no/such: No such file or directory");
    assert_int_equal(controller_end(c), 0);
}

/* A thread writes logs: the bytes come a little after the end of their worker is told. */
static void assert_file(const struct controller *c, int rank, const char *wanted) {
    char path[128], bytes[4096];
    ssize_t n = -1;
    (void)snprintf(path, sizeof path, "%s/logs/rank-%d.log", c->run_path, rank);
    for (int waits = 0; waits < 6000 && n < (ssize_t)strlen(wanted); waits++) {
        int fd = open(path, O_RDONLY);
        n = fd < 0 ? -1 : read(fd, bytes, sizeof bytes);
        if (fd >= 0) close(fd);
        (void)usleep(10000);
    }
    assert_int_equal(n, strlen(wanted));
    assert_memory_equal(bytes, wanted, strlen(wanted));
}

static void output_is_relayed(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    controller_launch(
        c, (struct launch_options){.n = 2,
                                   .argv = shell("printf 'one\\r\\ntwo\\033[1m'; printf err >&2; exit 3"),
                                   .prefix = true,
                                   .escape = true});
    HEAR_UNTIL(c, controller_all_gone(c, 2));
    assert_string_equal(c->ranks[1].output[0].data, "[rank 1] one\n[rank 1] two\\x1b[1m\n");
    assert_string_equal(c->ranks[0].output[1].data, "[rank 0] err\n");
    assert_non_null(strstr(c->ranks[0].tail.data, "two\\x1b[1m"));
    assert_non_null(strstr(c->ranks[0].tail.data, "err"));
    assert_file(c, 0, "one\r\ntwo\033[1merr");
    controller_launch(c, (struct launch_options){.n = 1, .argv = shell("echo quiet"), .quiet = true});
    HEAR_UNTIL(c, controller_all_gone(c, 1));
    assert_null(c->ranks[0].output[0].data);
    assert_file(c, 0, "one\r\ntwo\033[1merrquiet\n");
    assert_int_equal(c->ranks[0].tail.size, 0); /* it did not fail */
    assert_int_equal(controller_end(c), 0);
}

static long resident_kib(pid_t pid) {
    char path[64];
    long pages = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/statm", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) return 0;
    if (fscanf(file, "%*s %ld", &pages) != 1) pages = 0;
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

#ifdef __SANITIZE_ADDRESS__
enum { RESIDENT_LIMIT_KIB = 1 << 20 };
#else
enum { RESIDENT_LIMIT_KIB = 32 << 10 };
#endif

static void a_flood_meets_a_slow_reader(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    for (int lines = 1; lines >= 0; lines--) {
        controller_launch(
            c, (struct launch_options){
                   .n = 64, .mode = lines ? "flood" : "flood-no-newline", .prefix = true, .escape = true});
        usleep(300000); /* reads nothing */
        assert_in_range(resident_kib(c->agent), 1, RESIDENT_LIMIT_KIB);
        HEAR_UNTIL(c, controller_all_gone(c, 64));
        assert_in_range(resident_kib(c->agent), 1, RESIDENT_LIMIT_KIB);
    }
    assert_true(c->n_output > 2ul * 64 * (4 << 20)); /* nothing was dropped */
    assert_int_equal(controller_end(c), 0);
}

static void workers_speak(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    c->answer_store = true;
    controller_launch(c, (struct launch_options){.n = 4, .mode = "speak"});
    HEAR_UNTIL(c, controller_all_gone(c, 4));
    for (int i = 0; i < 4; i++) {
        if (c->ranks[i].wait_status != 0)
            fail_msg("rank %d: %d %s", i, c->ranks[i].wait_status, c->ranks[i].tail.data);
        assert_true(c->ranks[i].ready && c->ranks[i].rendezvous);
        assert_int_equal(c->ranks[i].n_reports, 3);
    }
    assert_string_equal(c->last_metrics, "{\"d\":1}");
    assert_int_equal(c->n_store, 4 * 5);
    assert_int_equal(controller_end(c), 0);
}

static void strange_numbers_become_strings(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    controller_launch(
        c, (struct launch_options){
               .n = 1,
               .argv = shell("echo 'report {\"b\": NaN, \"c\": [-Infinity, 1e999], \"NaN\": \"a NaN\"}' >&3")});
    HEAR_UNTIL(c, controller_all_gone(c, 1));
    assert_string_equal(c->last_metrics,
                        "{\"b\": \"NaN\", \"c\": [\"-Infinity\", \"Infinity\"], \"NaN\": \"a NaN\"}");
    assert_int_equal(controller_end(c), 0);
}

static void checkpoints_are_committed(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    controller_launch(c, (struct launch_options){.n = 1, .mode = "checkpoint", .report_base = 10});
    HEAR_UNTIL(c, c->commit_number == 12);
    assert_string_equal(c->last_files, "[{\"path\":\"a\"}]");
    assert_string_equal(c->last_metrics, "{\"loss\":2}");
    controller_reply_commit(c, "/some/where", "");
    HEAR_UNTIL(c, c->commit_number == 13);
    controller_reply_commit(c, "", "disk full");
    HEAR_UNTIL(c, c->commit_number == 14);
    assert_string_equal(c->last_files, "no space");
    HEAR_UNTIL(c, c->n_store == 1);
    controller_reply_store(c, c->store_channel, WIRE__ANSWER__STATUS__NONE, "");
    HEAR_UNTIL(c, c->commit_number == 15);
    assert_string_equal(c->last_files, "its channel was closed before the commit");
    HEAR_UNTIL(c, controller_all_gone(c, 1));
    if (c->ranks[0].wait_status != 0) fail_msg("%d %s", c->ranks[0].wait_status, c->ranks[0].tail.data);
    assert_int_equal(controller_end(c), 0);
}

static void a_second_channel_is_not_held_up(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    controller_launch(c, (struct launch_options){.n = 1, .mode = "second"});
    HEAR_UNTIL(c, c->n_store == 2); /* the wait, then the get behind it */
    assert_string_equal(c->store_key, "1 key");
    uint32_t second = c->store_channel;
    controller_reply_store(c, second, WIRE__ANSWER__STATUS__OK, "key");
    controller_reply_store(c, second + 1000, WIRE__ANSWER__STATUS__OK, "stray");
    for (uint32_t slot = 0; slot < 4; slot++) /* the first channel's number is not known here: one of these */
        for (uint32_t age = 0; age < 4; age++)
            if ((slot | age << 16) != second)
                controller_reply_store(c, slot | age << 16, WIRE__ANSWER__STATUS__OK, "never");
    HEAR_UNTIL(c, controller_all_gone(c, 1));
    if (c->ranks[0].wait_status != 0) fail_msg("%d %s", c->ranks[0].wait_status, c->ranks[0].tail.data);
    assert_int_equal(controller_end(c), 0);
}

static void many_reports_keep_their_order(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    controller_launch(c, (struct launch_options){.n = 8, .mode = "report"});
    HEAR_UNTIL(c, controller_all_gone(c, 8));
    for (int i = 0; i < 8; i++) {
        assert_int_equal(c->ranks[i].wait_status, 0);
        assert_int_equal(c->ranks[i].n_reports, 50000);
    }
    assert_int_equal(controller_end(c), 0);
}

static bool all_ready(const struct controller *c, int n) {
    for (int i = 0; i < n; i++)
        if (!c->ranks[i].ready) return false;
    return true;
}

static void signal_all(const struct controller *c, int n, int number) {
    for (int i = 0; i < n; i++)
        assert_int_equal(kill(c->ranks[i].pid, number), 0);
}

static int count_sockets_of(pid_t pid) {
    char path[64], link[64];
    int n = 0;
    for (int fd = 0; fd < 256; fd++) {
        (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
        n += readlink(path, link, sizeof link) > 7 && memcmp(link, "socket:", 7) == 0;
    }
    return n;
}

/* They end a while after the agent has seen that their channels are closed. */
static void closed_descriptors_do_no_harm(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    controller_launch(c, (struct launch_options){.n = 8, .mode = "close-all"});
    HEAR_UNTIL(c, all_ready(c, 8));
    int open = count_sockets_of(c->agent);
    signal_all(c, 8, SIGUSR1);
    for (int i = 0; i < 60000 && count_sockets_of(c->agent) > open - 8; i++)
        (void)usleep(1000);
    (void)usleep(200000);
    signal_all(c, 8, SIGUSR1);
    HEAR_UNTIL(c, controller_all_gone(c, 8));
    for (int i = 0; i < 8; i++)
        assert_int_equal(WEXITSTATUS(c->ranks[i].wait_status), 5);
    assert_string_equal(c->ranks[7].text, "it had closed its report channel");
    assert_int_equal(controller_end(c), 0);
}

static void those_that_obey_are_stopped(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    controller_launch(c, (struct launch_options){.n = 64, .mode = "wait", .grace_ms = 60000});
    HEAR_UNTIL(c, all_ready(c, 64));
    kill(c->ranks[10].pid, SIGKILL);
    HEAR_UNTIL(c, c->ranks[10].exited);
    controller_stop(c, false);
    HEAR_UNTIL(c, controller_all_gone(c, 64));
    for (int i = 0; i < 64; i++) {
        assert_int_equal(WTERMSIG(c->ranks[i].wait_status), i == 10 ? SIGKILL : SIGTERM);
        assert_int_equal(c->ranks[i].stopped, i != 10);
    }
    assert_int_equal(controller_end(c), 0);
}

static void those_that_do_not_are_killed(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    for (int at_once = 0; at_once < 2; at_once++) {
        controller_launch(
            c, (struct launch_options){.n = 16, .mode = "stubborn", .grace_ms = at_once ? 60000 : 100});
        HEAR_UNTIL(c, all_ready(c, 16));
        controller_stop(c, at_once);
        HEAR_UNTIL(c, controller_all_gone(c, 16));
        for (int i = 0; i < 16; i++)
            assert_int_equal(WTERMSIG(c->ranks[i].wait_status), SIGKILL);
    }
    assert_int_equal(controller_end(c), 0);
}

static void a_launch_waits_for_the_one_before(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    controller_launch(c, (struct launch_options){.n = 4, .mode = "daemon", .grace_ms = 50});
    HEAR_UNTIL(c, controller_all_gone(c, 4));
    controller_launch(c, (struct launch_options){.n = 4, .mode = "nothing"}); /* while the daemons are swept */
    HEAR_UNTIL(c, controller_all_gone(c, 4));
    assert_int_equal(c->ranks[3].wait_status, 0);
    controller_finish(c);
    assert_true(c->clean);
    assert_int_equal(c->leftovers, 4);
    assert_int_equal(controller_end(c), 0);
}

static void a_stop_meets_the_launch_that_waits(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    controller_launch(c, (struct launch_options){.n = 4, .mode = "daemon", .grace_ms = 200});
    HEAR_UNTIL(c, controller_all_gone(c, 4));
    controller_launch(c, (struct launch_options){.n = 4, .mode = "nothing"});
    controller_stop(c, false);
    HEAR_UNTIL(c, controller_all_gone(c, 4));
    for (int i = 0; i < 4; i++) {
        assert_false(c->ranks[i].started);
        assert_true(c->ranks[i].stopped);
    }
    controller_finish(c);
    assert_int_equal(controller_end(c), 0);
}

static void an_agent_that_ends_starts_nobody(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    controller_launch(c, (struct launch_options){.n = 4, .mode = "daemon", .grace_ms = 500});
    HEAR_UNTIL(c, controller_all_gone(c, 4));
    assert_int_equal(kill(c->agent, SIGTERM), 0);
    HEAR_UNTIL(c, c->leaving);
    controller_launch(c, (struct launch_options){.n = 2, .mode = "nothing"}); /* while the daemons are swept */
    HEAR_UNTIL(c, controller_all_gone(c, 2));
    assert_true(c->ranks[0].failed && c->ranks[0].stopped); /* which is no failure of theirs */
    HEAR_UNTIL(c, c->bye);
    assert_int_equal(controller_end(c), 0);
}

static void background_jobs_end_with_their_worker(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    controller_launch(c, (struct launch_options){.n = 2, .argv = shell("sleep 1000 & echo $!; exit 0")});
    HEAR_UNTIL(c, controller_all_gone(c, 2));
    assert_int_equal(c->ranks[0].wait_status, 0);
    assert_int_equal(kill(atoi(c->ranks[0].output[0].data), 0), -1);
    assert_int_equal(controller_end(c), 0);
}

static void a_stranger_with_the_pipe_does_not_hold_the_end(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    controller_launch(c, (struct launch_options){
                             .n = 1,
                             .argv = shell("echo before; setsid sh -c 'sleep 0.1; sleep 1000' & sleep 0.05"),
                             .grace_ms = 60000});
    HEAR_UNTIL(c, controller_all_gone(c, 1));
    assert_string_equal(c->ranks[0].output[0].data, "before\n");
    assert_int_equal(controller_end(c), 0);
}

static void many_processes_are_swept(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    controller_launch(c, (struct launch_options){.n = 2, .mode = "bomb", .grace_ms = 50});
    HEAR_UNTIL(c, c->ranks[1].started);
    usleep(100000);
    controller_stop(c, false);
    HEAR_UNTIL(c, controller_all_gone(c, 2));
    assert_int_equal(controller_end(c), 0);
}

static void zombies_are_reaped(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    controller_launch(c, (struct launch_options){.n = 1, .mode = "zombies"});
    HEAR_UNTIL(c, c->ranks[0].ready);
    char path[64], text[4096] = "";
    for (int tries = 0; tries < 20000; tries++) { /* until no child of the agent but the worker is left */
        unsigned children = 0;
        DIR *proc = opendir("/proc");
        for (struct dirent *entry; (entry = readdir(proc)) != NULL;) {
            (void)snprintf(path, sizeof path, "/proc/%.20s/stat", entry->d_name);
            int fd = open(path, O_RDONLY);
            if (fd < 0) continue;
            ssize_t n = read(fd, text, sizeof text - 1);
            close(fd);
            text[n > 0 ? n : 0] = '\0';
            const char *end_of_name = strrchr(text, ')');
            if (end_of_name != NULL && atoi(end_of_name + 3) == c->agent) children++;
        }
        closedir(proc);
        if (children == 1) break;
        assert_true(tries < 19999);
        usleep(1000);
    }
    controller_stop(c, true);
    HEAR_UNTIL(c, controller_all_gone(c, 1));
    assert_int_equal(controller_end(c), 0);
}

static void without_a_controller_all_ends(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    controller_launch(c, (struct launch_options){.n = 16, .mode = "stubborn", .grace_ms = 60000});
    HEAR_UNTIL(c, all_ready(c, 16));
    controller_vanish(c);
    assert_int_equal(controller_end(c), 1);
}

static void a_controller_that_is_killed_in_a_flood(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    controller_launch(c, (struct launch_options){.n = 16, .mode = "flood", .prefix = true});
    HEAR_UNTIL(c, c->n_output > 1 << 20);
    controller_vanish(c);
    assert_int_equal(controller_end(c), 1);
}

static void signals_end_the_agent(void **state) {
    (void)state;
    static const int signals[] = {SIGTERM, SIGINT};
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
        struct controller *c = controller_begin();
        controller_launch(c, (struct launch_options){.n = 8, .mode = "wait"});
        HEAR_UNTIL(c, all_ready(c, 8));
        kill(c->agent, SIGHUP); /* ignored */
        kill(c->agent, signals[i]);
        HEAR_UNTIL(c, c->bye);
        assert_true(controller_all_gone(c, 8));
        assert_true(c->ranks[0].stopped);
        assert_int_equal(controller_end(c), 0);
    }
}

static void workers_die_with_a_killed_agent(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    controller_launch(c, (struct launch_options){.n = 8, .mode = "wait"});
    HEAR_UNTIL(c, all_ready(c, 8));
    kill(c->agent, SIGKILL);
    int status, reaped = 0;
    while (wait(&status) > 0) /* this process adopts them */
        reaped++;
    assert_int_equal(reaped, 9);
    controller_vanish(c);
    c->agent = fork();
    if (c->agent == 0) _exit(0);
    assert_int_equal(controller_end(c), 0);
}

static void without_descriptors_workers_are_refused(void **state) {
    (void)state;
    struct controller *c = controller_begin_with((struct begin_options){.descriptors = 40});
    controller_launch(c, (struct launch_options){.n = 20, .mode = "wait"});
    HEAR_UNTIL(c, c->ranks[19].gone);
    assert_true(c->ranks[0].started && !c->ranks[0].exited);
    assert_non_null(
        strstr(c->ranks[19].text, "has no descriptor left for another worker (limit 40: ulimit -Hn)"));
    controller_stop(c, false);
    HEAR_UNTIL(c, controller_all_gone(c, 20));
    assert_int_equal(WTERMSIG(c->ranks[0].wait_status), SIGTERM);
    assert_int_equal(controller_end(c), 0);
}

static long count_wake_ups(pid_t pid) {
    char path[64], line[256];
    long count = -1;
    (void)snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *file = fopen(path, "r");
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "voluntary_ctxt_switches: %ld", &count) == 1) break;
    fclose(file);
    return count;
}

static void an_idle_agent_sleeps(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    controller_launch(c, (struct launch_options){.n = 8, .mode = "wait"});
    HEAR_UNTIL(c, all_ready(c, 8));
    long before = -1, now = count_wake_ups(c->agent);
    for (int tries = 0; now != before; tries++) { /* on a busy machine it comes late to its rest */
        assert_true(tries < 100);
        before = now;
        usleep(300000);
        now = count_wake_ups(c->agent);
    }
    controller_stop(c, true);
    HEAR_UNTIL(c, controller_all_gone(c, 8));
    assert_int_equal(controller_end(c), 0);
}

/* A memory cgroup with a limit of 128 MiB, where this machine lets us make one: its path, or NULL. */
static const char *make_cgroup(void) {
    static const char *const kinds[][2] = {{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
                                           {"/sys/fs/cgroup", "memory.max"}};
    static char path[200];
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        char limit[300];
        (void)snprintf(path, sizeof path, "%s/trainyard-test-%d", kinds[i][0], getpid());
        (void)snprintf(limit, sizeof limit, "%s/%s", path, kinds[i][1]);
        if (mkdir(path, 0755) < 0) continue;
        int fd = open(limit, O_WRONLY | O_CLOEXEC);
        bool set = fd >= 0 && dprintf(fd, "%d", 128 << 20) > 0;
        if (fd >= 0) close(fd);
        if (set) return path;
        rmdir(path);
    }
    return NULL;
}

static void a_kill_for_want_of_memory_is_named(void **state) {
    (void)state;
    const char *cgroup = make_cgroup();
    if (cgroup == NULL) return; /* needs a memory cgroup that we may write */
    struct controller *c = controller_begin_with((struct begin_options){.cgroup = cgroup});
    controller_launch(c, (struct launch_options){.n = 2, .mode = "hog"});
    HEAR_UNTIL(c, c->ranks[0].gone);
    assert_int_equal(WTERMSIG(c->ranks[0].wait_status), SIGKILL);
    assert_int_equal(strncmp(c->ranks[0].text, "out of memory: limit 128 MiB, peak ", 35), 0);
    assert_false(c->ranks[0].stopped);
    kill(c->ranks[1].pid, SIGKILL); /* by hand: that is no want of memory */
    HEAR_UNTIL(c, c->ranks[1].gone);
    assert_string_equal(c->ranks[1].text, "");
    assert_int_equal(controller_end(c), 0);
    assert_int_equal(rmdir(cgroup), 0);
}

static bool is_read_to_the_end(int fd) {
    struct pollfd ended = {.fd = fd, .events = POLLIN};
    return poll(&ended, 1, 0) == 1 && (ended.revents & POLLHUP) != 0;
}

/* The writing end of a pipe stands for the lease: while anybody has it open, the reading end has not ended. */
static void a_kept_agent_serves_the_next_run(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    for (int run = 0; run < 3; run++) {
        int lease[2];
        controller_launch(c, (struct launch_options){.n = 4, .mode = "nothing"});
        HEAR_UNTIL(c, controller_all_gone(c, 4));
        controller_rest(c);
        assert_true(c->clean);
        assert_int_equal(pipe(lease), 0);
        controller_start(c, lease[1]);
        close(lease[1]);
        assert_false(is_read_to_the_end(lease[0]));
        controller_launch(c, (struct launch_options){.n = 1, .mode = "rank-status"});
        HEAR_UNTIL(c, controller_all_gone(c, 1));
        controller_rest(c);
        assert_true(is_read_to_the_end(lease[0]));
        close(lease[0]);
        controller_start(c, -1);
    }
    assert_int_equal(controller_end(c), 0);
}

static void what_came_late_does_not_begin_a_run(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    controller_rest(c);
    controller_stop(c, true);
    controller_start(c, -1);
    controller_launch(c, (struct launch_options){.n = 1, .mode = "nothing"});
    HEAR_UNTIL(c, controller_all_gone(c, 1));
    assert_int_equal(c->ranks[0].wait_status, 0);
    assert_int_equal(controller_end(c), 0);
}

static void a_resting_agent_ends_with_its_channel(void **state) {
    (void)state;
    struct controller *c = controller_begin();
    controller_rest(c);
    controller_vanish(c);
    assert_int_equal(controller_end(c), 0);
}

/* What a driver under test tells of itself. */
struct agent_driver {
    pid_t agent, child;
    char run_path[64];
};

/* Begins an agent, which rests or runs a worker, and forks a child that holds the channel too. */
static void drive(bool rests, int told) {
    struct controller *c = controller_begin();
    if (rests)
        controller_rest(c);
    else
        controller_launch(c, (struct launch_options){.n = 1, .mode = "wait"});
    struct agent_driver driver = {.agent = c->agent, .child = fork()};
    memcpy(driver.run_path, c->run_path, sizeof driver.run_path);
    if (driver.child != 0) (void)!write(told, &driver, sizeof driver);
    pause();
    _exit(0);
}

static void check_end_with_driver(bool rests) {
    int told[2];
    struct agent_driver driver;
    assert_int_equal(pipe(told), 0);
    pid_t pid = fork();
    if (pid == 0) drive(rests, told[1]);
    close(told[1]);
    assert_int_equal(read(told[0], &driver, sizeof driver), sizeof driver);
    close(told[0]);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(waitpid(driver.agent, NULL, 0), driver.agent); /* we adopted it; the child lives */
    assert_int_equal(kill(driver.child, SIGKILL), 0);
    while (waitpid(-1, NULL, 0) > 0) {
    }
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf %s", driver.run_path);
    assert_int_equal(system(command), 0);
}

static void an_agent_ends_with_its_driver(void **state) {
    (void)state;
    check_end_with_driver(true);
    check_end_with_driver(false);
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "worker") == 0) return agent_worker_run(argv[2]);
    ssize_t n = readlink("/proc/self/exe", controller_worker, sizeof controller_worker - 1);
    if (n < 0) return 1;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kill_for_want_of_memory_is_named), /* first: the memory of this process counts */
        cmocka_unit_test(launches_nothing_and_ends),
        cmocka_unit_test(sixty_four_workers_end),
        cmocka_unit_test(every_exit_code_arrives),
        cmocka_unit_test(deadly_signals_arrive),
        cmocka_unit_test(workers_are_set_up),
        cmocka_unit_test(a_program_that_is_not_there_is_named),
        cmocka_unit_test(output_is_relayed),
        cmocka_unit_test(a_flood_meets_a_slow_reader),
        cmocka_unit_test(workers_speak),
        cmocka_unit_test(strange_numbers_become_strings),
        cmocka_unit_test(checkpoints_are_committed),
        cmocka_unit_test(a_second_channel_is_not_held_up),
        cmocka_unit_test(many_reports_keep_their_order),
        cmocka_unit_test(closed_descriptors_do_no_harm),
        cmocka_unit_test(those_that_obey_are_stopped),
        cmocka_unit_test(those_that_do_not_are_killed),
        cmocka_unit_test(a_launch_waits_for_the_one_before),
        cmocka_unit_test(a_stop_meets_the_launch_that_waits),
        cmocka_unit_test(an_agent_that_ends_starts_nobody),
        cmocka_unit_test(background_jobs_end_with_their_worker),
        cmocka_unit_test(a_stranger_with_the_pipe_does_not_hold_the_end),
        cmocka_unit_test(many_processes_are_swept),
        cmocka_unit_test(zombies_are_reaped),
        cmocka_unit_test(without_a_controller_all_ends),
        cmocka_unit_test(a_controller_that_is_killed_in_a_flood),
        cmocka_unit_test(signals_end_the_agent),
        cmocka_unit_test(workers_die_with_a_killed_agent),
        cmocka_unit_test(without_descriptors_workers_are_refused),
        cmocka_unit_test(an_idle_agent_sleeps),
        cmocka_unit_test(a_kept_agent_serves_the_next_run),
        cmocka_unit_test(what_came_late_does_not_begin_a_run),
        cmocka_unit_test(a_resting_agent_ends_with_its_channel),
        cmocka_unit_test(an_agent_ends_with_its_driver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
