/* `trainyard report` and `trainyard store` as a script calls them, and whatever an agent answers. The first
 * byte of an input chooses the command, its words follow, each ended by a NUL, an empty one ends them; the rest
 * is what the agent says.
 *
 * A command ends with a value, or with one line that says why not; what it has sent is one request of
 * docs/worker-protocol.md, or none, and no word becomes a line of its own. */
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "fuzz.h"
#include "worker/worker.h"

enum { WORDS_MAX = 32, INPUT_MAX = 8 << 10 };

static ty_worker worker;
static size_t printed;

/* In place of cli/inside.c, which would keep the worker of the input before. */
ty_worker *inside_worker(ty_error *err) {
    (void)err;
    return &worker;
}

/* In place of main.c's. */
int cli_print(const struct buffer *text, ty_error *err) {
    if (text->failed) return ty_fail_memory(err);
    fuzz_require(text->size > 0 && text->data[text->size - 1] == '\n');
    printed++;
    return 0;
}

void terminal_warning(const char *who, const char *text) {
    (void)who;
    fuzz_require(text[0] != '\0');
}

/* The worker's socket with what the agent says, and then its end; the agent's end. */
static int open_worker(const uint8_t *said, size_t size) {
    char text[16];
    int fds[2];
    fuzz_require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    if (size > 0) fuzz_require(send(fds[1], said, size, MSG_DONTWAIT) == (ssize_t)size);
    (void)shutdown(fds[1], SHUT_WR);
    (void)snprintf(text, sizeof text, "%d", fds[0]);
    fuzz_require(setenv(WORKER_FD_VARIABLE, text, 1) == 0);
    worker = (ty_worker){.world_size = 1, .local_world_size = 1, .attempt = 1, .pid = getpid()};
    fuzz_require(link_open(&worker.link, NULL) == 0);
    return fds[1];
}

static void close_worker(int agent) {
    ty_error err = {0};
    if (worker.link != NULL) (void)link_flush(worker.link, &err);
    worker_done(&worker);
    (void)close(atoi(getenv(WORKER_FD_VARIABLE)));
    (void)close(agent);
}

/* "set KEY SIZE": what follows the line is SIZE bytes; other requests are their line. */
static void expect_request(const char *text, size_t size) {
    static const char *const words[] = {"report ", "set ", "get ", "wait ", "add "};
    const char *end = memchr(text, '\n', size), *rest;
    size_t i = 0;
    fuzz_require(end != NULL);
    while (i < ARRAY_SIZE(words) && strncmp(text, words[i], strlen(words[i])) != 0)
        i++;
    fuzz_require(i < ARRAY_SIZE(words));
    size_t value = size - (size_t)(end - text) - 1;
    if (i != 1) {
        fuzz_require(value == 0);
        return;
    }
    CLEANUP_FREE char *line = strndup(text, (size_t)(end - text));
    int64_t told;
    fuzz_require(line != NULL && (rest = strrchr(line, ' ')) != NULL);
    fuzz_require(str_to_int64(rest + 1, 0, WORKER_VALUE_MAX, &told) && (size_t)told == value);
}

static void expect_sent(int agent) {
    char sent[2 * INPUT_MAX + 256];
    ssize_t n = recv(agent, sent, sizeof sent, MSG_DONTWAIT);
    if (n <= 0) return;
    fuzz_require((size_t)n < sizeof sent);
    expect_request(sent, (size_t)n);
}

static void run(const struct command *command, int n, char **words, int agent) {
    CLEANUP(arguments_done) struct arguments arguments = {0};
    ty_error err = {0};
    printed = 0;
    int result = options_parse(command->groups, command->rest, n, words, &arguments, &err);
    bool fits = result == 0 && !arguments.help && arguments.n_words >= command->min_words &&
                arguments.n_words <= command->max_words;
    if (result == 0 && !fits) return; /* main.c says why */
    if (fits) result = command->run(&arguments, &err);
    if (result < 0) fuzz_require(err.code == result && err.message[0] != '\0' && printed == 0);
    if (result >= 0) fuzz_require(result <= 1 && printed <= 1);
    if (fits) expect_sent(agent);
}

/* The words of the input, and how many bytes they took. */
static int take_words(char *text, size_t size, char **words, size_t *taken) {
    int n = 1;
    size_t at = 0;
    while (at < size && text[at] != '\0' && n < WORDS_MAX) {
        words[n++] = text + at;
        at += strlen(text + at) + 1;
    }
    words[n] = NULL;
    *taken = at < size ? at + 1 : size;
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *words[WORDS_MAX + 1] = {"trainyard"}, pid[16];
    if (size == 0 || size > INPUT_MAX) return 0;
    const struct command *command = data[0] % 2 == 0 ? &command_report : &command_store;
    CLEANUP_FREE char *text = fuzz_text(data + 1, size - 1);
    size_t taken = 0;
    int n = take_words(text, size - 1, words, &taken);
    for (int i = 1; i < n; i++)
        if (strncmp(words[i], "--c", 3) == 0) return 0; /* a checkpoint would be written where the input says */
    (void)snprintf(pid, sizeof pid, "%d", getpid());
    fuzz_require(setenv(WORKER_PID_VARIABLE, pid, 1) == 0);
    int agent = open_worker(data + 1 + taken, size - 1 - taken);
    run(command, n, words, agent);
    close_worker(agent);
    return 0;
}
