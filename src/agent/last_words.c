/* The error file that torchrun's programs write on failure (TORCHELASTIC_ERROR_FILE), read once the worker has
 * ended: opened without following links or waiting, read within bounds, taken apart. The thread of the logs
 * reads, since the file lies on the run's storage; where that hangs the end is told without. */
#include "agent/worker_process.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/str.h"

enum { LAST_WORDS_MAX = 1 << 20, MESSAGE_MAX = 300, TRACEBACK_MAX = 16 << 10 };

/* How long the news of an end waits for it: for so many looks. A time in which the agent itself stands still
 * counts as one of them. */
enum { LOOKS_MOST = 20 };
static const nanoseconds LOOK = 100 * NS_PER_MS;

struct last_words {
    struct storage_job job;
    struct logs *logs;
    void (*told)(void *context, const struct last_words_found *found); /* NULL: nobody waits */
    void *context;
    struct loop_timer look;
    int looks; /* in vain */
    char *path;
    nanoseconds since, began; /* when the worker was started: as the clock was then, and as it is now */
    struct last_words_found found;
};

struct last_words_moment last_words_now(void) {
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return (struct last_words_moment){now.tv_sec * NS_PER_S + now.tv_nsec, clock_monotonic()};
}

/* -- in the thread */

/* {"message": TEXT, "timestamp": N}, or {"message": {"message": TEXT, "extraInfo": {"py_callstack": TEXT,
 * "timestamp": N}}}. */
static void take_apart(struct last_words *words, const json_t *root, nanoseconds written) {
    const json_t *message = json_object_get(root, "message"), *stamp = json_object_get(root, "timestamp");
    const json_t *extra = json_object_get(message, "extraInfo");
    if (extra != NULL) stamp = json_object_get(extra, "timestamp");
    const char *text =
        json_string_value(json_is_object(message) ? json_object_get(message, "message") : message);
    const char *stack = json_string_value(json_object_get(extra, "py_callstack"));
    if (text == NULL) return;
    struct buffer line = {0};
    size_t size = strcspn(text, "\n");
    utf8_escape(text, size < MESSAGE_MAX ? size : MESSAGE_MAX, &line);
    if (size > MESSAGE_MAX) buffer_text(&line, "...");
    words->found.message = size == 0 ? NULL : buffer_take(&line);
    /* Of the traceback the end, where the exception is, from the beginning of a line on. */
    if (stack != NULL && strlen(stack) > TRACEBACK_MAX) {
        stack += strlen(stack) - TRACEBACK_MAX;
        const char *newline = strchr(stack, '\n');
        if (newline != NULL) stack = newline + 1;
    }
    words->found.traceback = stack == NULL || stack[0] == '\0' ? NULL : strdup(stack);
    /* The timestamp is in seconds since the epoch, a number or text: the file's own time is finer where the two
     * agree, but can be that of the tick before. What was written in answer to another's end is then of a time
     * behind that end. A time before the worker's start, or ahead of now, says nothing. */
    int64_t seconds = json_is_integer(stamp) ? json_integer_value(stamp) : 0;
    if (json_is_string(stamp)) (void)str_to_int64(json_string_value(stamp), 0, INT64_MAX / NS_PER_S, &seconds);
    nanoseconds told = seconds > 0 && seconds < INT64_MAX / NS_PER_S ? seconds * NS_PER_S : 0;
    nanoseconds now = clock_wall();
    if (told == 0 || (written >= told && written - told < 2 * NS_PER_S)) {
        struct timespec tick = {0};
        (void)clock_getres(CLOCK_REALTIME_COARSE, &tick);
        told = written + tick.tv_nsec;
        if (told > now && written <= now) told = now;
    }
    words->found.time = told + NS_PER_S > words->since && told <= now ? told : 0;
}

/* Whether it was written since the worker was started; also by a clock that was set back meanwhile. */
static bool is_of_worker(const struct last_words *words, nanoseconds written) {
    if (written >= words->since) return true;
    bool set_back = words->began < words->since - NS_PER_S;
    return set_back && written >= words->began && written <= clock_wall();
}

/* Reads a plain file of this attempt, of bounded size. */
static void look(struct storage_job *job) {
    struct last_words *words = (struct last_words *)job;
    struct stat status;
    CLEANUP(buffer_done) struct buffer bytes = {0};
    CLEANUP_FD int fd = open(words->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode)) return;
    nanoseconds written = status.st_mtim.tv_sec * NS_PER_S + status.st_mtim.tv_nsec;
    if (status.st_size > LAST_WORDS_MAX || !is_of_worker(words, written)) return;
    char *room = buffer_reserve(&bytes, LAST_WORDS_MAX);
    while (room != NULL && bytes.size < LAST_WORDS_MAX) {
        ssize_t n = read(fd, room + bytes.size, LAST_WORDS_MAX - bytes.size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        bytes.size += (size_t)n;
    }
    if (bytes.size == 0) return;
    json_t *root = json_loadb(bytes.data, bytes.size, 0, NULL);
    take_apart(words, root, written);
    json_decref(root);
}

static void free_words(struct storage_job *job) {
    struct last_words *words = (struct last_words *)job;
    free(words->found.message);
    free(words->found.traceback);
    free(words->path);
    free(words);
}

/* -- on the loop */

static void tell(struct last_words *words, const struct last_words_found *found) {
    void (*told)(void *, const struct last_words_found *) = TAKE(words->told);
    loop_timer_stop(words->logs->loop, &words->look);
    if (told != NULL) told(words->context, found);
}

static void on_read(struct storage_job *job) {
    struct last_words *words = (struct last_words *)job;
    if (words->told != NULL) tell(words, &words->found);
}

static void on_look(void *context) {
    struct last_words *words = context;
    bool goes_on = ++words->looks < LOOKS_MOST && loop_timer_start(words->logs->loop, &words->look, LOOK) == 0;
    if (!goes_on) tell(words, &(struct last_words_found){0});
}

/* NULL where no answer can be had soon: the end of a worker is not held back for storage that is slow. */
struct last_words *last_words_ask(struct logs *logs, const char *run_path, uint32_t rank,
                                  struct last_words_moment since,
                                  void (*told)(void *context, const struct last_words_found *found),
                                  void *context) {
    if (logs->storage == NULL || run_path[0] == '\0' || storage_slow(logs->storage)) return NULL;
    struct last_words *words = calloc(1, sizeof *words);
    if (words == NULL) return NULL;
    struct last_words_moment now = last_words_now();
    struct buffer path = {0};
    buffer_printf(&path, "%s/logs/rank-%u.error.json", run_path, rank);
    *words = (struct last_words){.logs = logs,
                                 .told = told,
                                 .context = context,
                                 .path = buffer_take(&path),
                                 .since = since.dated,
                                 .began = now.dated - (now.monotonic - since.monotonic)};
    words->job = (struct storage_job){
        .work = look, .done = on_read, .release = free_words, .what = "reading", .path = words->path};
    words->look = (struct loop_timer){.callback = on_look, .context = words};
    if (words->path == NULL || loop_timer_start(logs->loop, &words->look, LOOK) < 0) {
        free_words(&words->job);
        return NULL;
    }
    logs_post(logs, &words->job);
    return words;
}

void last_words_drop(struct last_words *words) {
    if (words == NULL) return;
    words->told = NULL;
    loop_timer_stop(words->logs->loop, &words->look);
}
