/* A worker's requests to its agent when memory runs short: an answer that was not read to its end is never
 * taken for that of the next request. Linked with --wrap for the allocating functions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/str.h"
#include "failing_memory.h"
#include "worker_agent.h"

enum { ALLOCATIONS = 12 }; /* more than a request has */

static long allowed; /* allocations of the first request before one fails */

static int get(ty_worker *worker, const char *key) {
    void *value = NULL;
    int rc = ty_store_get(worker, key, &value, NULL, NULL);
    CHECK(rc < 0 || (rc == 1 && str_equal(value, key)));
    free(value);
    return rc;
}

static void body_gets(void) {
    ty_worker *worker = worker_self();
    (void)memory_fails_after(allowed, false);
    int first = get(worker, "a");
    bool was_short = memory_fails_after(-1, false) < 0;
    int second = get(worker, "b");
    CHECK(was_short || (first == 1 && second == 1));
    CHECK(!was_short || allowed < ALLOCATIONS);
}

static void an_answer_is_that_of_its_request(void **state) {
    (void)state;
    for (allowed = 0; allowed <= ALLOCATIONS; allowed++) {
        struct agent agent = worker_start(body_gets);
        const char *line, *key;
        while (*(line = agent_read_line(agent.fd)) != '\0') {
            if (!str_prefix(line, "get ", &key)) continue;
            char answer[] = "value 1\n?";
            answer[sizeof answer - 2] = key[0];
            /* Whoever found no memory may have ended without the answer. */
            (void)send(agent.fd, answer, sizeof answer - 1, MSG_NOSIGNAL);
        }
        worker_expect_end(&agent);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_answer_is_that_of_its_request)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
