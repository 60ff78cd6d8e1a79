/* kubectl is asked every two seconds until the first pod runs, which may take hours of waiting for nodes;
 * why it does not is told when the words change. */
#include "cli/kube_follow.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/program.h"
#include "base/str.h"
#include "cli/terminal.h"

#define ASK_LIMIT (60 * NS_PER_S)
enum { ASK_EVERY_S = 2, KUBECTL_WORDS_MAX = 12, LOST_MAX = 30 };

struct follow {
    const struct kubernetes_request *request;
    char selector[256];   /* of the first pod */
    struct buffer told;   /* the reason of the wait, as it was last told */
    struct buffer phase;  /* Pending, Running, Succeeded, Failed; "" while there is no pod */
    struct buffer why;    /* why a pod waits */
    struct buffer status; /* the exit status of its container, "" while it runs */
};

/* kubectl with words of its own, in the run's namespace; `out` NULL: on this terminal. */
static int kubectl(const struct follow *follow, const char *const *words, const char *input, struct buffer *out,
                   ty_error *err) {
    const char *argv[KUBECTL_WORDS_MAX + 4] = {"kubectl"};
    size_t n = 1;
    if (follow->request->space != NULL) {
        argv[n++] = "--namespace";
        argv[n++] = follow->request->space;
    }
    for (size_t i = 0; words[i] != NULL; i++)
        argv[n++] = words[i];
    struct program_call call = {.argv = argv, .input = input, .out = out, .limit = out != NULL ? ASK_LIMIT : 0};
    return out != NULL ? program_ask(&call, err) : program_run(&call, err);
}

/* One line with what there is to know of the first pod: phase|reason|status. */
static int look(struct follow *follow, ty_error *err) {
    static const char path[] =
        "jsonpath={.items[0].status.phase}|{.items[0].status.conditions[?(@.status==\"False\")].message}|"
        "{.items[0].status.containerStatuses[0].state.terminated.exitCode}";
    const char *const words[] = {"get", "pods", "--ignore-not-found", "-l", follow->selector, "-o", path, NULL};
    CLEANUP(buffer_done) struct buffer line = {0};
    struct buffer *const parts[] = {&follow->phase, &follow->why, &follow->status};
    int result = kubectl(follow, words, NULL, &line, err);
    if (result < 0) return result;
    const char *at = line.size > 0 ? line.data : "";
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        size_t size = strcspn(at, "|\n");
        buffer_clear(parts[i]);
        buffer_append(parts[i], at, size);
        buffer_text(parts[i], "");
        if (parts[i]->failed) return ty_fail_memory(err);
        at += size + (at[size] == '|');
    }
    return 0;
}

static bool phase_is(const struct follow *follow, const char *phase) {
    return str_equal(follow->phase.data, phase);
}

static void pause_a_while(void) {
    (void)nanosleep(&(struct timespec){.tv_sec = ASK_EVERY_S}, NULL);
}

/* Until it runs, or has run. A server that does not answer is asked again for a while. */
static int wait_for_pod(struct follow *follow, ty_error *err) {
    int lost = 0;
    for (;; pause_a_while()) {
        int result = look(follow, err);
        if (result < 0 && (result == TY_EUNSUPPORTED || ++lost > LOST_MAX)) return result;
        if (result < 0) continue;
        lost = 0;
        if (phase_is(follow, "Running") || phase_is(follow, "Succeeded") || phase_is(follow, "Failed"))
            return 0;
        const char *why = follow->why.data;
        if (follow->why.size == 0 || str_equal(follow->told.data, why)) continue;
        char text[600];
        (void)snprintf(text, sizeof text, "waiting for nodes: %.500s", why);
        terminal_error("kube", text);
        buffer_clear(&follow->told);
        buffer_text(&follow->told, why);
    }
}

static int wait_for_end(struct follow *follow, ty_error *err) {
    for (int times = 0;; times++) {
        int64_t status;
        int result = look(follow, err);
        if (result >= 0 && str_to_int64(follow->status.data, 0, 255, &status)) return (int)status;
        if (result >= 0 && phase_is(follow, "Succeeded")) return 0;
        bool gone = result < 0 || !phase_is(follow, "Running");
        if (gone && times > LOST_MAX)
            return result < 0
                       ? result
                       : ty_fail(err, TY_ENODE, "the first pod is gone, and with it what it came to: %.200s",
                                 follow->why.size > 0 ? follow->why.data : "nothing is known of it");
        pause_a_while();
    }
}

static int apply_and_follow(struct follow *follow, const char *manifests, ty_error *err) {
    static const char *const apply[] = {"apply", "-f", "-", NULL};
    const char *logs[] = {"logs", "--follow", "--tail=-1", "-l", follow->selector, NULL};
    CLEANUP(buffer_done) struct buffer said = {0};
    int result = kubectl(follow, apply, manifests, &said, err);
    if (result < 0) return ty_wrap(err, "kubectl apply");
    result = wait_for_pod(follow, err);
    /* A connection that is cut ends the copy, not the run: it is taken up again while the pod runs. */
    while (result >= 0) {
        result = kubectl(follow, logs, NULL, NULL, err);
        if (result >= 0) result = look(follow, err);
        if (result >= 0 && !phase_is(follow, "Running")) break;
        logs[2] = "--since=2s";
        if (result >= 0) pause_a_while();
    }
    return result < 0 ? result : wait_for_end(follow, err);
}

int kube_apply_and_follow(const struct kubernetes_request *request, const struct kubernetes_layout *layout,
                          const char *manifests, ty_error *err) {
    struct follow follow = {.request = request};
    (void)snprintf(follow.selector, sizeof follow.selector,
                   "app.kubernetes.io/instance=%s,batch.kubernetes.io/job-completion-index=0%s", request->name,
                   layout->set ? ",jobset.sigs.k8s.io/job-index=0" : "");
    int result = apply_and_follow(&follow, manifests, err);
    struct buffer *const buffers[] = {&follow.told, &follow.phase, &follow.why, &follow.status};
    for (size_t i = 0; i < ARRAY_SIZE(buffers); i++)
        buffer_done(buffers[i]);
    return result;
}
