/* How agents of other machines are started: a tree of branches. A branch is a process: ssh to its first host,
 * or what runs here in place of that, and the lines that it says. Agents join by the network as any; a branch
 * only starts them, tells why one could not be, and ends them. */
#include "engine/branches.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/duration.h"
#include "base/error.h"
#include "base/kernel.h"
#include "base/module.h"
#include "base/program.h"
#include "base/shell.h"
#include "base/str.h"
#include "cluster/hosts.h"

/* From TREE_FROM nodes on there are TREE_WIDTH branches with the same number of nodes. */
enum {
    TREE_FROM = 32,
    TREE_WIDTH = 16,
    LINE_SIZE = 4096,
    LAST_SIZE = 512,
    REST_MOST = 64 * 1024,
    BRANCH_END_MS = 3000
};
#define CONNECT_LIMIT "20" /* seconds for ssh to be answered */
/* What the script of a host says to whoever sends it its input. */
#define SAYS_HERE "@here"
#define SAYS_COPY "@copy"

struct branch {
    struct branches *all;
    struct branch *next;
    struct branch_node *nodes; /* owned, with the hosts; the first is its head's */
    size_t n;
    pid_t pid;
    int pidfd, input, output;
    struct loop_watch feeding, listening, waiting;
    size_t archive_sent;  /* all of it where it need not be sent */
    struct buffer unsent; /* behind the archive */
    struct buffer line;   /* what it has said of a line */
    char last[LAST_SIZE]; /* the last line of its own */
};

struct branches {
    struct branches_config config;
    const char *command;   /* of this build, here */
    struct buffer archive; /* the command and its library, of a run that copies them */
    struct branch *first;
};

/* -- words */

bool branches_is_here(const char *host) {
    static const char *const names[] = {"localhost", "127.0.0.1", "::1"};
    char own[256] = "";
    (void)gethostname(own, sizeof own - 1);
    return str_find(host, names, ARRAY_SIZE(names)) >= 0 || (own[0] != '\0' && str_equal(host, own));
}

/* Behind the path of the command. */
static void add_words(const struct branch *branch, struct buffer *out) {
    const struct branches_config *config = &branch->all->config;
    const struct branch_node *head = &branch->nodes[0];
    buffer_text(out, branch->n > 1 ? "agent --branches " : "agent --rendezvous ");
    shell_quote(config->rendezvous, true, out);
    if (branch->n > 1) {
        buffer_text(out, config->copy ? " --copy" : "");
    } else {
        buffer_printf(out, " --node-rank %u --ends-with %s", head->rank,
                      config->outlive ? "early-input" : "input");
        if (head->slots > 0) buffer_printf(out, " --slots %u", head->slots);
    }
    buffer_text(out, config->outlive ? " --awaits another" : "");
}

/* What is executed on a host is one word for ssh, which gives it to the user's shell there; here it is given to
 * sh. It ends with exec, so that the agent is the process whose input and end ssh has. */
static char *make_script(const struct branch *branch) {
    CLEANUP(buffer_done) struct buffer script = {0};
    struct buffer line = {0};
    if (branch->nodes[0].here) {
        /* What is executed here in place of ssh. */
        buffer_text(&script, "exec ");
        shell_quote(branch->all->command, true, &script);
        buffer_char(&script, ' ');
        add_words(branch, &script);
        return buffer_take(&script);
    }
    if (branch->all->config.copy) {
        /* A host that may be without says whether the command is there, and takes the archive if it is not. */
        buffer_printf(&script,
                      "d=\"$HOME\"/.cache/trainyard/%s; if test -x \"$d/trainyard\"; then echo " SAYS_HERE
                      "; else t=\"$d.$$\"; mkdir -p \"$t\" && echo " SAYS_COPY
                      " && head -c %zu | tar -xf - -C \"$t\" && "
                      "{ mv -T \"$t\" \"$d\" 2>/dev/null || rm -rf \"$t\"; }; fi; exec \"$d/trainyard\" ",
                      base_build, branch->all->archive.size);
    } else {
        /* The same path as here, else what the host's PATH names. */
        buffer_text(&script, "c=");
        shell_quote(branch->all->command, true, &script);
        buffer_text(&script,
                    "; command -v \"$c\" >/dev/null 2>&1 || c=trainyard; command -v \"$c\" >/dev/null 2>&1 || "
                    "{ echo \"there is no trainyard on this host: install it, or use --copy\" >&2; exit 127; "
                    "}; exec \"$c\" ");
    }
    add_words(branch, &script);
    if (script.failed) return NULL;
    buffer_text(&line, "exec sh -c "); /* whatever shell the user has there */
    shell_quote(script.data, true, &line);
    return buffer_take(&line);
}

/* -- processes */

/* In a session of its own: what the terminal sends is for the run, which ends its agents in order. */
static int start_apart(const char *const *argv, int input, int output, pid_t *pid) {
    const int fds[] = {input, output, output};
    return program_start(
        &(struct program_start){.argv = argv, .fds = fds, .n_fds = 3, .place = PROGRAM_SESSION}, pid);
}

/* -- what is sent */

/* Ends the input, which ends the agent. */
static void close_input(struct branch *branch) {
    if (branch->input < 0) return;
    loop_watch_stop(branch->all->config.loop, &branch->feeding);
    descriptors_close(&branch->input);
}

/* Of a host that takes no more the rest waits for its next turn; its input stays open when all is sent, since
 * its end is the agent's. */
static void feed(void *context, unsigned events) {
    (void)events;
    struct branch *branch = context;
    const struct buffer *archive = &branch->all->archive;
    bool of_archive = branch->archive_sent < archive->size;
    const char *from = of_archive ? archive->data + branch->archive_sent : branch->unsent.data;
    size_t size = of_archive ? archive->size - branch->archive_sent : branch->unsent.size;
    ssize_t sent = size == 0 ? 0 : write(branch->input, from, size);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (sent < 0) {
        close_input(branch);
        return;
    }
    if (of_archive)
        branch->archive_sent += (size_t)sent;
    else
        buffer_consume(&branch->unsent, (size_t)sent);
    bool more = branch->archive_sent < archive->size || branch->unsent.size > 0;
    (void)loop_watch_start(branch->all->config.loop, &branch->feeding, branch->input, more ? LOOP_WRITABLE : 0);
}

static void begin_input(struct branch *branch, bool with_archive) {
    if (!with_archive) branch->archive_sent = branch->all->archive.size;
    if (branch->input >= 0)
        (void)loop_watch_start(branch->all->config.loop, &branch->feeding, branch->input, LOOP_WRITABLE);
}

/* The key, and to the head of many nodes those. */
static int write_input(struct branch *branch) {
    struct buffer *out = &branch->unsent;
    buffer_printf(out, "%s\n", branch->all->config.key->text);
    for (size_t i = 0; i < branch->n && branch->n > 1; i++)
        buffer_printf(out, "%u %u %s\n", branch->nodes[i].rank, branch->nodes[i].slots, branch->nodes[i].host);
    if (branch->n > 1) buffer_text(out, ".\n");
    return out->failed ? -ENOMEM : 0;
}

/* -- what is heard */

/* Once for each node. */
static void lose(struct branch *branch, struct branch_node *node, const char *why) {
    const struct branches_config *config = &branch->all->config;
    if (!node->lost) config->lost(config->context, node->rank, why);
    node->lost = true;
}

/* "@note RANK TEXT" and "@lost RANK TEXT", of the head of a branch about those behind it. */
static bool take_report(struct branch *branch, char *line) {
    const struct branches_config *config = &branch->all->config;
    const char *rest;
    bool lost = str_prefix(line, "@lost ", &rest);
    int64_t rank;
    if (branch->n == 1 || (!lost && !str_prefix(line, "@note ", &rest))) return false;
    char *text = strchr(rest, ' ');
    if (text == NULL) return true;
    *text++ = '\0';
    struct branch_node *node = NULL;
    bool known = str_to_int64(rest, 0, UINT32_MAX, &rank);
    for (size_t i = 0; known && i < branch->n && node == NULL; i++)
        if (branch->nodes[i].rank == rank) node = &branch->nodes[i];
    if (node != NULL && lost)
        lose(branch, node, text);
    else if (node != NULL)
        config->note(config->context, node->rank, text);
    return true;
}

static void take_line(struct branch *branch, char *line) {
    const struct branches_config *config = &branch->all->config;
    CLEANUP(buffer_done) struct buffer text = {0};
    if (config->copy && !branch->nodes[0].here && (str_equal(line, SAYS_HERE) || str_equal(line, SAYS_COPY))) {
        begin_input(branch, str_equal(line, SAYS_COPY));
        return;
    }
    if (*line == '\0' || take_report(branch, line)) return;
    utf8_escape(line, strlen(line), &text);
    if (text.failed) return;
    (void)snprintf(branch->last, sizeof branch->last, "%.*s", LAST_SIZE - 1, text.data);
    config->note(config->context, branch->nodes[0].rank, branch->last);
}

/* What is too long for a line is more than one. */
static void take_words(struct branch *branch, const char *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) {
        bool ends = bytes[i] == '\n' || branch->line.size == LINE_SIZE;
        if (ends && branch->line.data != NULL) {
            take_line(branch, branch->line.data);
            buffer_clear(&branch->line);
        }
        if (bytes[i] != '\n' && bytes[i] != '\r' && bytes[i] != '\0')
            buffer_printf(&branch->line, "%c", bytes[i]);
    }
}

static void stop_listening(struct branch *branch) {
    if (branch->output < 0) return;
    loop_watch_stop(branch->all->config.loop, &branch->listening);
    descriptors_close(&branch->output);
}

static void listen_to(void *context, unsigned events) {
    (void)events;
    struct branch *branch = context;
    char bytes[LINE_SIZE];
    ssize_t size = read(branch->output, bytes, sizeof bytes);
    if (size > 0)
        take_words(branch, bytes, (size_t)size);
    else if (size == 0 || (errno != EAGAIN && errno != EINTR))
        stop_listening(branch);
}

/* Hears what a process that has ended had said, which may be as much as a pipe holds. Its end of the pipe may
 * still be open in what it has left, a connection that ssh shares: that is not waited for, nor heard for
 * long. */
static void listen_to_the_rest(struct branch *branch) {
    struct pollfd waits = {.fd = branch->output, .events = POLLIN};
    for (size_t heard = 0; heard < REST_MOST && branch->output >= 0 && poll(&waits, 1, 0) > 0;
         heard += LINE_SIZE)
        listen_to(branch, LOOP_READABLE);
    take_words(branch, "\n", 1);
}

/* -- the end */

/* The process has ended: what it said last is why. */
static void on_end(void *context, unsigned events) {
    (void)events;
    struct branch *branch = context;
    const struct branches_config *config = &branch->all->config;
    CLEANUP(buffer_done) struct buffer why = {0};
    int status = 0;
    loop_watch_stop(config->loop, &branch->waiting);
    listen_to_the_rest(branch);
    (void)kernel_reap(branch->pidfd, branch->pid, BRANCH_END_MS, &status);
    branch->pid = 0;
    close_input(branch);
    stop_listening(branch);
    const char *what = branch->nodes[0].here ? "its agent" : "ssh";
    char text[32];
    if (branch->last[0] != '\0')
        buffer_text(&why, branch->last);
    else if (WIFSIGNALED(status))
        buffer_printf(&why, "%s was killed by %s", what, str_signal(WTERMSIG(status), text));
    else
        buffer_printf(&why, "%s ended with status %d, and said nothing", what, WEXITSTATUS(status));
    for (size_t i = 0; i < branch->n; i++)
        lose(branch, &branch->nodes[i], why.failed ? "ssh ended" : why.data);
}

/* Which ends it, sooner or later. */
static void let_go(struct branch *branch) {
    close_input(branch);
    loop_watch_stop(branch->all->config.loop, &branch->waiting);
    stop_listening(branch);
}

static void free_branch(struct branch *branch) {
    let_go(branch);
    for (size_t i = 0; i < branch->n; i++)
        free((void *)(uintptr_t)branch->nodes[i].host);
    free(branch->nodes);
    buffer_done(&branch->unsent);
    buffer_done(&branch->line);
    descriptors_close(&branch->pidfd);
    free(branch);
}

/* A host that stays away is tried again and again. */
static void free_ended(struct branches *branches) {
    for (struct branch **link = &branches->first, *branch; (branch = *link) != NULL;) {
        if (branch->pid > 0) {
            link = &branch->next;
            continue;
        }
        *link = branch->next;
        free_branch(branch);
    }
}

/* -- the start */

static int execute(struct branch *branch, ty_error *err) {
    CLEANUP_FREE char *script = make_script(branch);
    int input[2], output[2];
    if (script == NULL) return ty_fail_memory(err);
    static const char connect_limit[] = "ConnectTimeout=" CONNECT_LIMIT;
    const char *const remote[] = {
        "ssh", "-T", "-o", "BatchMode=yes", "-o", connect_limit, "--", branch->nodes[0].host, script, NULL};
    const char *const local[] = {"sh", "-c", script, NULL};
    if (pipe2(input, O_CLOEXEC) < 0) return ty_fail(err, -errno, "cannot make a pipe: %s", strerror(errno));
    CLEANUP_FD int their_input = input[0];
    branch->input = input[1];
    if (pipe2(output, O_CLOEXEC) < 0) return ty_fail(err, -errno, "cannot make a pipe: %s", strerror(errno));
    CLEANUP_FD int their_output = output[1];
    branch->output = output[0];
    descriptors_withhold(branch->input);
    descriptors_withhold(branch->output);
    const char *const *argv = branch->nodes[0].here ? local : remote;
    int result = start_apart(argv, their_input, their_output, &branch->pid);
    if (result < 0)
        return ty_fail(err, TY_ESTART, "cannot execute %s: %s", argv[0],
                       result == -ENOENT ? "it is not installed (openssh-client)" : strerror(-result));
    branch->pidfd = kernel_hold(branch->pid);
    descriptors_withhold(branch->pidfd);
    return 0;
}

static int watch(struct branch *branch, ty_error *err) {
    struct loop *loop = branch->all->config.loop;
    branch->feeding = (struct loop_watch){.callback = feed, .context = branch};
    branch->listening = (struct loop_watch){.callback = listen_to, .context = branch};
    branch->waiting = (struct loop_watch){.callback = on_end, .context = branch};
    int result = loop_watch_start(loop, &branch->listening, branch->output, LOOP_READABLE);
    if (result == 0) result = loop_watch_start(loop, &branch->feeding, branch->input, 0);
    if (result == 0) result = loop_watch_start(loop, &branch->waiting, branch->pidfd, LOOP_READABLE);
    if (result < 0) return ty_fail(err, result, "cannot watch ssh: %s", strerror(-result));
    if (!branch->all->config.copy || branch->nodes[0].here) begin_input(branch, false);
    return 0;
}

/* The branch is in the list from the first moment on, so that whatever ends the others ends it too. */
static int start_branch(struct branches *branches, const struct branch_node *nodes, size_t n, ty_error *err) {
    struct branch *branch = calloc(1, sizeof *branch);
    if (branch == NULL) return ty_fail_memory(err);
    *branch = (struct branch){.all = branches, .next = branches->first, .pidfd = -1, .input = -1, .output = -1};
    branches->first = branch;
    bool copied = (branch->nodes = calloc(n, sizeof *branch->nodes)) != NULL;
    for (size_t i = 0; copied && i < n; i++) {
        branch->nodes[i] = nodes[i];
        branch->nodes[i].host = strdup(nodes[i].host);
        copied = branch->nodes[i].host != NULL;
        branch->n += copied;
    }
    if (!copied || write_input(branch) < 0) return ty_fail_memory(err);
    int result = execute(branch, err);
    if (result == 0) result = watch(branch, err);
    return result < 0 ? ty_wrap(err, "host %s", nodes[0].host) : 0;
}

int branches_start(struct branches *branches, const struct branch_node *nodes, size_t n, ty_error *err) {
    size_t each = n < TREE_FROM ? 1 : (n + TREE_WIDTH - 1) / TREE_WIDTH;
    int result = 0;
    free_ended(branches);
    /* Those elsewhere begin first: they have the longer way. */
    for (int here = 0; here <= 1; here++)
        for (size_t at = 0; at < n && result == 0; at += each)
            if (nodes[at].here == (here == 1))
                result = start_branch(branches, nodes + at, at + each < n ? each : n - at, err);
    return result;
}

/* -- all of them */

/* The command, its modules and its library, wherever they are installed here. */
static int make_archive(struct branches *branches, ty_error *err) {
    static const char script[] =
        "cd \"${1%/*}\" && for m in . ../lib \"$2\"; do [ ! -d \"$m/trainyard-modules\" ] || break; done; "
        "exec tar -chf - --exclude='*.p' trainyard -C \"$m\" trainyard-modules $(cd \"$m\"; ls "
        "libtrainyard.so.0 2>/dev/null)";
    static const char installed[] = TY_MODULE_DIR "/..";
    const char *const argv[] = {"sh", "-c", script, "sh", branches->command, installed, NULL};
    int output[2], status = 0;
    pid_t pid = 0;
    if (pipe2(output, O_CLOEXEC) < 0) return ty_fail(err, -errno, "cannot make a pipe: %s", strerror(errno));
    int result = start_apart(argv, PROGRAM_NOTHING, output[1], &pid);
    (void)close(output[1]);
    ssize_t size = 1;
    while (result == 0 && size > 0) {
        char *to = buffer_reserve(&branches->archive, 65536);
        size = to != NULL ? read(output[0], to, 65536) : -1;
        if (size > 0) branches->archive.size += (size_t)size;
    }
    (void)close(output[0]);
    if (result == 0 && waitpid(pid, &status, 0) == pid && status == 0 && size == 0) return 0;
    return ty_fail(err, TY_ESTART, "cannot make an archive of %s for --copy with tar", branches->command);
}

struct branches *branches_create(const struct branches_config *config, ty_error *err) {
    struct branches *made = calloc(1, sizeof *made);
    if (made == NULL) {
        (void)ty_fail_memory(err);
        return NULL;
    }
    made->config = *config;
    made->command = module_command(err);
    if (made->command != NULL && (!config->copy || make_archive(made, err) == 0)) return made;
    branches_destroy(made);
    return NULL;
}

/* The inputs of all are closed before any is waited for, so that all end at the same time, under one limit. */
void branches_destroy(struct branches *branches) {
    if (branches == NULL) return;
    for (struct branch *branch = branches->first; branch != NULL; branch = branch->next)
        let_go(branch);
    nanoseconds end = clock_monotonic() + BRANCH_END_MS * NS_PER_MS;
    for (struct branch *branch; (branch = branches->first) != NULL;) {
        nanoseconds left = (end - clock_monotonic()) / NS_PER_MS;
        branches->first = branch->next;
        if (branch->pid > 0) (void)kernel_reap(branch->pidfd, branch->pid, left > 0 ? (int)left : 0, NULL);
        free_branch(branch);
    }
    buffer_done(&branches->archive);
    free(branches);
}

/* -- the head of a branch */

struct head {
    struct loop *loop;
    struct loop_watch input;
    bool over;
};

static void say_note(void *context, uint32_t rank, const char *text) {
    (void)context;
    (void)dprintf(STDERR_FILENO, "@note %u %s\n", rank, text);
}

static void say_lost(void *context, uint32_t rank, const char *why) {
    (void)context;
    (void)dprintf(STDERR_FILENO, "@lost %u %s\n", rank, why);
}

/* Behind the list nothing comes but the end, which is that of the connection, or of the run. */
static void on_input(void *context, unsigned events) {
    (void)events;
    char bytes[256];
    ssize_t size = read(STDIN_FILENO, bytes, sizeof bytes);
    if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) ((struct head *)context)->over = true;
}

/* "RANK SLOTS HOST" */
static bool parse_node(char *line, struct branch_node *node) {
    line[strcspn(line, "\n")] = '\0';
    char *slots = strchr(line, ' ');
    char *host = slots != NULL ? strchr(slots + 1, ' ') : NULL;
    int64_t rank, number;
    if (host == NULL) return false;
    *slots++ = *host++ = '\0';
    if (!str_to_int64(line, 0, UINT32_MAX, &rank) || !str_to_int64(slots, 0, HOST_SLOTS_MAX, &number))
        return false;
    *node = (struct branch_node){.rank = (uint32_t)rank, .slots = (uint32_t)number, .host = host};
    return true;
}

struct branch_list {
    struct branch_node *nodes; /* owned, with the hosts */
    size_t n;
};

static void branch_list_done(struct branch_list *list) {
    for (size_t i = 0; i < list->n; i++)
        free((void *)(uintptr_t)list->nodes[i].host);
    free(list->nodes);
}

/* What write_input wrote behind the key. The first of them is this machine. */
static int read_nodes(FILE *input, struct branch_list *list, ty_error *err) {
    CLEANUP_FREE char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, input) > 0 && !str_equal(line, ".\n")) {
        struct branch_node node;
        if (!parse_node(line, &node)) return ty_fail(err, TY_EPROTOCOL, "this is started by `trainyard run`");
        node.host = strdup(node.host);
        if (node.host == NULL || ARRAY_GROW(list->nodes, list->n) < 0) {
            free((void *)(uintptr_t)node.host);
            return ty_fail_memory(err);
        }
        node.here = list->n == 0;
        list->nodes[list->n++] = node;
    }
    return list->n > 0 ? 0 : ty_fail(err, TY_EPROTOCOL, "there are no hosts: the list was cut short");
}

static bool any_runs(const struct branches *branches) {
    for (const struct branch *branch = branches->first; branch != NULL; branch = branch->next)
        if (branch->pid > 0) return true;
    return false;
}

/* What agents that outlive this process leave of it: their ssh, till the run's end. */
static void outlast(struct branches *branches) {
    for (struct branch *branch = branches->first; branch != NULL; branch = branch->next)
        close_input(branch);
    while (any_runs(branches))
        (void)loop_turn(branches->config.loop, true);
}

int branches_main(int argc, char **argv) {
    struct head head = {.input = {.callback = on_input, .context = &head}};
    struct run_key key;
    ty_error err = {0};
    CLEANUP(branch_list_done) struct branch_list list = {0};
    struct branches_config config = {
        .rendezvous = argv[0], .key = &key, .note = say_note, .lost = say_lost, .context = &head};
    for (int i = 1; i < argc; i++) {
        config.copy |= str_equal(argv[i], "--copy");
        config.outlive |= str_equal(argv[i], "another");
    }
    (void)signal(SIGPIPE, SIG_IGN);
    int result = key_read_line(&key, STDIN_FILENO, &err);
    if (result == 0) result = read_nodes(stdin, &list, &err);
    if (result == 0 && (config.loop = loop_create(&err)) == NULL) result = err.code;
    struct branches *branches = result == 0 ? branches_create(&config, &err) : NULL;
    if (result == 0 && branches == NULL) result = err.code;
    /* What is behind this node begins first: it has the longer way. */
    if (result == 0 && list.n > 1) result = branches_start(branches, list.nodes + 1, list.n - 1, &err);
    if (result == 0) result = branches_start(branches, &list.nodes[0], 1, &err);
    if (result == 0) result = loop_watch_start(config.loop, &head.input, STDIN_FILENO, LOOP_READABLE);
    while (result == 0 && !head.over && any_runs(branches))
        (void)loop_turn(config.loop, true);
    if (branches != NULL) loop_watch_stop(config.loop, &head.input);
    if (result == 0 && config.outlive) outlast(branches);
    branches_destroy(branches);
    if (config.loop != NULL) loop_destroy(config.loop);
    key_forget(&key);
    if (result == 0) return EXIT_SUCCESS;
    (void)dprintf(STDERR_FILENO, "trainyard agent: %s\n", err.message);
    return ty_error_exit_status(result);
}
