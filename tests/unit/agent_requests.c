/* Each request is followed by one that cannot be refused, and whose answer ends those to the first: so a report
 * that was refused is heard of. */
#include "agent_requests.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent_worker.h"

enum { ANSWER_SIZE = 1024 };

static int status = REQUESTS_WELL;

static _Noreturn void end(int with, const char *why) {
    (void)fprintf(stderr, "%s\n", why);
    _exit(with);
}

static void say(int fd, const char *text) {
    if (send(fd, text, strlen(text), MSG_NOSIGNAL) < 0) end(REQUESTS_CUT, "the channel is closed");
}

static void read_byte(int fd, char *byte) {
    if (read(fd, byte, 1) != 1) end(REQUESTS_CUT, "the channel was closed");
}

/* The next answer, with a value behind its line. */
static const char *hear(int fd) {
    static char answer[ANSWER_SIZE];
    size_t n = 0, value;
    do
        read_byte(fd, &answer[n]);
    while (answer[n] != '\n' && ++n < ANSWER_SIZE / 2);
    if (sscanf(answer, "value %zu", &value) == 1)
        while (value-- > 0)
            read_byte(fd, &answer[++n]);
    else
        n--;
    answer[n + 1] = '\0';
    return answer;
}

static bool begins(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

static void note_refusal(const char *answer) {
    (void)fprintf(stderr, "%s\n", answer);
    status = REQUESTS_REFUSED;
}

/* Copies the answer, which begins so, into `answer`; false when there was a refusal instead. */
static bool ask_for(int fd, const char *request, const char *wanted, char *answer) {
    bool refused = false, found = wanted[0] == '\0';
    say(fd, request);
    say(fd, "preemption\n");
    for (const char *heard; strcmp(heard = hear(fd), "none") != 0;) {
        if (begins(heard, "error ") || begins(heard, "failed ")) {
            note_refusal(heard);
            refused = true;
        } else if (!found && begins(heard, wanted)) {
            found = true;
            if (answer != NULL) (void)snprintf(answer, ANSWER_SIZE, "%s", heard);
        } else {
            end(REQUESTS_WRONG, heard);
        }
    }
    if (!found && !refused) end(REQUESTS_WRONG, request);
    return found;
}

static void ask(int fd, const char *request, const char *wanted) {
    (void)ask_for(fd, request, wanted, NULL);
}

/* Its number, or 0. */
static unsigned begin_checkpoint(int fd, const char *request) {
    char answer[ANSWER_SIZE];
    unsigned number;
    int path = 0;
    if (!ask_for(fd, request, "directory ", answer)) return 0;
    if (sscanf(answer, "directory %u %n", &number, &path) != 1 || answer[path] != '/')
        end(REQUESTS_WRONG, answer);
    return number;
}

static void end_checkpoint(int fd, unsigned number, const char *word, const char *rest) {
    char request[64];
    if (number == 0) return;
    (void)snprintf(request, sizeof request, "%s %u %s\n", word, number, rest);
    ask(fd, request, "ok");
}

/* Another channel; it is closed with a checkpoint that was begun over it. */
static void use_second_channel(void) {
    int pair[2];
    char byte;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0) end(REQUESTS_WRONG, "socketpair");
    if (!agent_worker_open(pair[1])) end(REQUESTS_CUT, "the channel is closed");
    (void)close(pair[1]);
    ask(3, "", ""); /* the open is behind that */
    if (recv(pair[0], &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0) {
        note_refusal(hear(pair[0]));
    } else {
        ask(pair[0], "get other\n", "value 5");
        (void)begin_checkpoint(pair[0], "checkpoint {}\n");
    }
    (void)close(pair[0]);
}

int requests_make(void) {
    ask(3, "ready\nrendezvous\nheartbeat\n", "");
    ask(3, "report {\"a\": 1}\n", "");
    ask(3, "report {\"b\": [NaN, 1e999, 12345678901234567890123]}\n", "");
    ask(3, "report \"name\" {\"c\": {\"d\": \"e\"}}\n", "");
    ask(3, "set key 5\nhello", "ok");
    ask(3, "get key\n", "value 3\nkey");
    ask(3, "wait other 2500\n", "value 5\nother");
    ask(3, "add n -3\n", "value 1\nn");
    ask(3, "gather g -1 3\nabc", "value 1\ng");
    end_checkpoint(3, begin_checkpoint(3, "checkpoint {\"loss\": 2}\n"), "commit", "[{\"path\": \"a\"}]");
    end_checkpoint(3, begin_checkpoint(3, "checkpoint \"named\" {}\n"), "commit", "\"/some/where\"");
    end_checkpoint(3, begin_checkpoint(3, "checkpoint {}\n"), "abort", "no room");
    ask(3, "checkpoints\n", "value 2\n[]");
    use_second_channel();
    ask(3, "failure 18\n{\"traceback\": \"t\"}", "ok");
    return status;
}

void requests_serve(struct controller *c) {
    c->answer_store = true;
    c->n_store = c->n_begun = c->n_ended = c->n_lists = 0;
    controller_launch(c, (struct launch_options){.n = 1, .mode = "requests"});
    while (!c->closed && !controller_all_gone(c, 1)) {
        controller_hear(c);
        if (c->commit_channel == 0 || c->closed) continue;
        if (c->commit_kind == WIRE__REPORT__KIND__LIST)
            controller_reply_list(c, "[]");
        else
            controller_reply_commit(c, "/some/where", "");
    }
}

void requests_expect_all(const struct controller *c) {
    const struct heard *heard = &c->ranks[0];
    assert_true(heard->ready && heard->rendezvous);
    assert_int_equal(heard->n_reports, 7);
    assert_int_equal(c->n_store, 6);
    assert_int_equal(c->n_begun, 4);
    assert_int_equal(c->n_lists, 1);
    assert_true(heard->told_failure);
}
