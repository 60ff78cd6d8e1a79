/* Traces of torch's profiler, in whatever form: what is made of one is a list of JSON objects with numbers of
 * processes that lie behind those of the run and times from its beginning on, or it is refused in one line. */
#include <fcntl.h>
#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "fuzz.h"
#include "view/export.h"

static char place[] = "/tmp/trainyard-fuzz-XXXXXX";
static char logs[64], profiles[96], path[160];

static void remove_place(void) {
    (void)unlink(path);
    (void)rmdir(profiles);
    (void)rmdir(logs);
    (void)rmdir(place);
}

static void make_place(void) {
    if (path[0] != '\0') return;
    fuzz_require(mkdtemp(place) != NULL);
    (void)snprintf(logs, sizeof logs, "%s/logs", place);
    (void)snprintf(profiles, sizeof profiles, "%s/profile", logs);
    (void)snprintf(path, sizeof path, "%s/rank-0.pt.trace.json.gz", profiles);
    fuzz_require(mkdir(logs, 0700) == 0 && mkdir(profiles, 0700) == 0);
    fuzz_require(atexit(remove_place) == 0);
}

static int take(void *context, const char *text, size_t size, ty_error *err) {
    (void)err;
    buffer_append(context, text, size);
    return 0;
}

static void check_events(const struct buffer *made) {
    CLEANUP(buffer_done) struct buffer text = {0};
    size_t i;
    json_t *event;
    buffer_text(&text, "[{}");
    if (made->size > 0) buffer_append(&text, made->data, made->size);
    buffer_char(&text, ']');
    json_t *list = json_loadb(text.data, text.size, 0, NULL);
    fuzz_require(json_is_array(list));
    json_array_foreach(list, i, event) {
        fuzz_require(json_is_object(event));
        fuzz_require(i == 0 || json_integer_value(json_object_get(event, "pid")) >= 2000000);
        fuzz_require(json_number_value(json_object_get(event, "ts")) >= 0);
    }
    json_decref(list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CLEANUP(buffer_done) struct buffer made = {0};
    ty_error err = {0};
    make_place();
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    fuzz_require(fd >= 0 && file_write_all(fd, data, size) == 0 && close(fd) == 0);
    struct view_outlet outlet = {.sink = take, .context = &made, .err = &err};
    int result = view_profiles_write(place, NULL, 1700000000000000000, UINT64_MAX, &outlet);
    fuzz_require(result == 0 || (err.message[0] != '\0' && strchr(err.message, '\n') == NULL));
    result = view_outlet_finish(&outlet, result);
    if (result == 0) check_events(&made);
    return 0;
}
