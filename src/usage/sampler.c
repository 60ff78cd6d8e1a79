/* The sampler's process: it sleeps until the next sample is due or the agent says something, and ends with the
 * agent. What is sampled is in usage_node.c, usage_workers.c and a file for each vendor. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/str.h"
#include "usage/usage.h"

/* The first sample follows the look that it is compared with, not a whole period later. */
#define FIRST_WITHIN (1 * NS_PER_S)

struct sampler {
    nanoseconds period, next;
    struct usage_node node;
    struct usage_workers workers;
    struct usage_nvidia *nvidia;
    struct usage_watch watch;
    struct usage_sample sample;
};

/* One sample, in the place of the one before. What its values tell of faults is found last, when all are
 * there. */
static void look(struct sampler *sampler) {
    struct usage_sample *sample = &sampler->sample;
    sample->n = sample->n_faults = 0;
    sample->time = clock_wall();
    usage_node_look(&sampler->node, sample);
    if (sampler->nvidia != NULL) usage_nvidia_look(sampler->nvidia, sample);
    usage_amd_look(sample);
    usage_workers_look(&sampler->workers, sample);
    usage_watch_look(&sampler->watch, sample);
}

/* False once the agent is gone; one that does not read loses samples: to wait for it would make the next look
 * late, and the faults with it. */
static bool tell(const struct sampler *sampler) {
    return send(STDIN_FILENO, &sampler->sample, usage_size(&sampler->sample), MSG_DONTWAIT | MSG_NOSIGNAL) >=
               0 ||
           errno == EAGAIN;
}

/* Takes the workers that the agent names, all in one packet, in place of those before. False once the agent is
 * gone: of a socket of packets an empty one is the end, so the agent sends nothing where it has no workers. */
static bool hear(struct sampler *sampler) {
    struct usage_target targets[USAGE_TARGETS_MAX];
    ssize_t size = recv(STDIN_FILENO, targets, sizeof targets, MSG_DONTWAIT);
    if (size < 0) return errno == EAGAIN || errno == EINTR;
    if (size == 0) return false;
    sampler->workers.n = (size_t)size / sizeof *targets;
    memcpy(sampler->workers.targets, targets, sampler->workers.n * sizeof *targets);
    return true;
}

/* Until the next sample is due. False once the agent is gone. */
static bool rest(struct sampler *sampler) {
    for (nanoseconds left; (left = sampler->next - clock_monotonic()) > 0;) {
        struct pollfd agent = {.fd = STDIN_FILENO, .events = POLLIN};
        int ready = poll(&agent, 1, (int)((left + NS_PER_MS - 1) / NS_PER_MS));
        if (ready > 0 && !hear(sampler)) return false;
    }
    return true;
}

int usage_sampler_main(int argc, char **argv) {
    static struct sampler sampler;
    int64_t period_ms;
    if (argc != 2 || !str_to_int64(argv[1], 1, INT32_MAX, &period_ms)) return ty_error_exit_status(TY_EUSAGE);
    sampler.period = period_ms * NS_PER_MS;
    if (!hear(&sampler)) return EXIT_SUCCESS;
    sampler.nvidia = usage_nvidia_open();
    if (sampler.nvidia != NULL) usage_nvidia_listen(sampler.nvidia, STDIN_FILENO);
    look(&sampler);
    sampler.sample.n = 0; /* rates are not known yet; faults are */
    if (sampler.sample.n_faults > 0) (void)tell(&sampler);
    sampler.next = clock_monotonic() + (sampler.period < FIRST_WITHIN ? sampler.period : FIRST_WITHIN);
    while (rest(&sampler)) {
        look(&sampler);
        if (!tell(&sampler)) break;
        nanoseconds now = clock_monotonic();
        sampler.next += sampler.period;
        if (sampler.next < now) sampler.next = now + sampler.period; /* it was held up: none is made up for */
    }
    _exit(EXIT_SUCCESS); /* a thread is inside the driver's library, which must not be taken down under it */
}
