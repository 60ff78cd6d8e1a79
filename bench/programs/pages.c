/* pages PORT ID N: N pages that watch a run of the dashboard on this port. Each has a stream, and asks for a
 * plot of the step upon each event; what is sent is read and thrown away, so that nearly all that looking
 * costs is the dashboard's. The token is the first line of standard input, whose end ends the pages; then the
 * replies and the processor time of this process (ns) are printed. */
#include <arpa/inet.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PAGES_MOST = 16, EVENT_BYTES = 4096, REPLY_BYTES = 1 << 16 };

struct page {
    char line[EVENT_BYTES]; /* of the stream, `size` bytes so far */
    size_t size;
    bool asked, again, drawn;  /* a reply is awaited; something came since it was asked for; it is a plot */
    char head[EVENT_BYTES];    /* of the reply, `head_size` bytes so far */
    size_t head_size, missing; /* missing: bytes of its body */
};

static char token[128], request[512];
static const char *id;

static int connect_to(int port) {
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof address) < 0) {
        perror("pages: connect");
        exit(1);
    }
    return fd;
}

static void ask(int fd, const char *path) {
    int size = snprintf(request, sizeof request,
                        "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n\r\n", path, token);
    (void)send(fd, request, (size_t)size, MSG_NOSIGNAL); /* where it is closed that shows when it is read */
}

static void ask_for_plot(struct page *page, int fd) {
    char path[256];
    (void)snprintf(path, sizeof path, "/api/series?run=%s&metric=step&x=step&buckets=600&history=all", id);
    page->again = page->asked;
    if (page->asked) return;
    page->asked = true;
    page->head_size = page->missing = 0;
    ask(fd, path);
}

/* False: the stream has ended. */
static bool read_stream(struct page *page, int stream, int plots) {
    ssize_t size = read(stream, page->line + page->size, sizeof page->line - 1 - page->size);
    if (size <= 0) return false;
    page->size += (size_t)size;
    page->line[page->size] = '\0';
    bool heard = strstr(page->line, "\ndata:") != NULL; /* several at once are answered with one plot */
    char *last = strrchr(page->line, '\n');
    page->size = last != NULL ? strlen(last) : page->size;
    if (last != NULL) memmove(page->line, last, page->size + 1);
    if (page->size == sizeof page->line - 1) page->size = 0;
    if (heard) ask_for_plot(page, plots);
    return true;
}

/* 1: a reply is there, whole, of a run that was removed an error; 0: not yet; -1: there will be none. */
static int read_plot(struct page *page, int plots) {
    static char bytes[REPLY_BYTES];
    ssize_t size = read(plots, bytes, sizeof bytes);
    size_t at = 0;
    if (size <= 0) return -1;
    while (at < (size_t)size && page->missing == 0 && page->head_size < sizeof page->head - 1) {
        page->head[page->head_size++] = bytes[at++];
        page->head[page->head_size] = '\0';
        if (page->head_size < 4 || strcmp(page->head + page->head_size - 4, "\r\n\r\n") != 0) continue;
        const char *length = strcasestr(page->head, "\ncontent-length:");
        if (length == NULL) return -1;
        page->drawn = strncmp(page->head, "HTTP/1.1 200", 12) == 0;
        page->missing = strtoul(length + strlen("\ncontent-length:"), NULL, 10);
    }
    size_t left = (size_t)size - at;
    page->missing -= left < page->missing ? left : page->missing;
    return page->missing == 0;
}

int main(int argc, char **argv) {
    static struct page pages[PAGES_MOST];
    struct pollfd watched[2 * PAGES_MOST + 1];
    int port = argc > 3 ? atoi(argv[1]) : 0, n = argc > 3 ? atoi(argv[3]) : 0;
    unsigned long replies = 0;
    char path[128];
    if (n < 1 || n > PAGES_MOST || fgets(token, sizeof token, stdin) == NULL) return 2;
    token[strcspn(token, "\n")] = '\0';
    id = argv[2];
    (void)snprintf(path, sizeof path, "/api/stream?run=%s", id);
    for (int i = 0; i < 2 * n; i++)
        watched[i] = (struct pollfd){.fd = connect_to(port), .events = POLLIN};
    for (int i = 0; i < n; i++)
        ask(watched[i].fd, path);
    watched[2 * n] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
    while (poll(watched, 2 * (nfds_t)n + 1, -1) >= 0 && watched[2 * n].revents == 0)
        for (int i = 0; i < n; i++) {
            if (watched[i].revents != 0 && !read_stream(&pages[i], watched[i].fd, watched[n + i].fd)) return 1;
            int got = watched[n + i].revents != 0 ? read_plot(&pages[i], watched[n + i].fd) : 0;
            if (got < 0) { /* one that was idle for long is closed */
                (void)close(watched[n + i].fd);
                watched[n + i].fd = connect_to(port);
                pages[i].again |= pages[i].asked;
                pages[i].asked = false;
                if (pages[i].again) ask_for_plot(&pages[i], watched[n + i].fd);
                continue;
            }
            replies += got > 0 && pages[i].drawn;
            if (got > 0) pages[i].asked = false;
            if (got > 0 && pages[i].again) ask_for_plot(&pages[i], watched[n + i].fd);
        }
    struct timespec used;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    (void)printf("%lu %lld\n", replies, (long long)used.tv_sec * 1000000000 + used.tv_nsec);
    return 0;
}
