/* From the launch message to an executed worker: its environment, its program, its cores, its descriptors. The
 * message is read once for all workers of the attempt. When which worker starts is decided in attempt.c;
 * workers that are forked from a template take their environment and their payload from here as well
 * (template/template_launch.c). */
#include "agent/node_launch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/idset.h"
#include "base/kernel.h"
#include "base/str.h"
#include "wire/frame.h"
#include "worker/link.h"

/* The descriptors of a worker beside the standard ones. */
enum { WORKER_SOCKET = 3, WORKER_PAYLOAD = 4 };

/* The first byte is compared apart: an environment has hundreds of entries, and each worker looks for
 * dozens. */
static char **find_entry(char **list, size_t n, const char *name, size_t size) {
    for (size_t i = 0; i < n; i++)
        if (list[i][0] == name[0] && strncmp(list[i], name, size) == 0 && list[i][size] == '=') return &list[i];
    return NULL;
}

/* "K=V" replaces or adds, "K" alone removes. The list has room for one more. */
static void set_entry(char **list, size_t *n, char *entry) {
    size_t size = strcspn(entry, "=");
    if (size == 0) return;
    char **found = find_entry(list, *n, entry, size);
    if (entry[size] == '=') {
        if (found == NULL) found = &list[(*n)++];
        *found = entry;
    } else if (found != NULL) {
        *found = list[--*n];
    }
}

/* Variables of an outer run, inside whose worker this one was started, are replaced or removed. */
static int make_base(struct node_launch *launch) {
    const Wire__Launch *body = launch->body;
    char socket_text[12], payload_text[12];
    (void)snprintf(socket_text, sizeof socket_text, "%d", WORKER_SOCKET);
    (void)snprintf(payload_text, sizeof payload_text, "%d", WORKER_PAYLOAD);
    const char *const made[][2] = {
        {WORKER_FD_VARIABLE, socket_text},
        {WORKER_TOKEN_VARIABLE, body->token},
        {WORKER_PATH_VARIABLE, body->run_path},
        {WORKER_PAYLOAD_VARIABLE, body->payload.len > 0 ? payload_text : NULL},
        {WORKER_CHECKPOINT_VARIABLE, body->checkpoint[0] != '\0' ? body->checkpoint : NULL},
        {WORKER_PID_VARIABLE, NULL}};
    _Static_assert(ARRAY_SIZE(made) == ARRAY_SIZE(((struct node_launch *)0)->constants), "one place each");
    launch->base = reallocarray(NULL, body->n_environment + ARRAY_SIZE(made), sizeof(char *));
    if (launch->base == NULL) return -ENOMEM;
    if (body->n_environment > 0) memcpy(launch->base, body->environment, body->n_environment * sizeof(char *));
    launch->n_base = body->n_environment;
    for (size_t i = 0; i < ARRAY_SIZE(made); i++) {
        char *entry;
        int size = made[i][1] != NULL ? asprintf(&entry, "%s=%s", made[i][0], made[i][1])
                                      : asprintf(&entry, "%s", made[i][0]);
        launch->constants[i] = size < 0 ? NULL : entry;
        if (launch->constants[i] == NULL) return -ENOMEM;
        set_entry(launch->base, &launch->n_base, launch->constants[i]);
    }
    return 0;
}

/* An empty file that nobody can write to, as /dev/null is; but a file keeps the time when it was last read, and
 * so tells that a worker wanted something. Zero stands for never. */
static const struct timespec NEVER_READ[2] = {{0, 0}, {0, UTIME_OMIT}};

static int open_no_input(void) {
    char path[64];
    CLEANUP_FD int made = kernel_memory_file("trainyard-no-input");
    if (made < 0 || kernel_seal(made) < 0) return -1;
    (void)futimens(made, NEVER_READ);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", made);
    return open(path, O_RDONLY | O_CLOEXEC);
}

bool node_launch_was_read(const struct node_launch *launch) {
    struct stat status;
    if (fstat(launch->no_input_fd, &status) < 0) return false;
    if (status.st_atim.tv_sec == 0 && status.st_atim.tv_nsec == 0) return false;
    (void)futimens(launch->no_input_fd, NEVER_READ);
    return true;
}

enum face node_launch_face(const struct node_launch *launch) {
    return launch->body->by_fields ? FACE_FIELDS : FACE_COMMAND;
}

int node_launch_init(struct node_launch *launch, const Wire__Launch *body, const struct rlimit *nofile,
                     ty_error *err) {
    *launch = (struct node_launch){.payload_fd = -1, .no_input_fd = -1, .nofile = *nofile};
    launch->body = frame_copy(&body->base);
    if (launch->body != NULL) launch->argv = calloc(body->n_argv + 1, sizeof(char *));
    if (launch->argv == NULL || make_base(launch) < 0) {
        node_launch_done(launch);
        return ty_fail_memory(err);
    }
    if (body->n_argv > 0) memcpy(launch->argv, launch->body->argv, body->n_argv * sizeof(char *));
    launch->no_input_fd = open_no_input();
    int result = launch->no_input_fd < 0
                     ? ty_fail(err, TY_ESTART, "cannot make the standard input of workers: %s", strerror(errno))
                     : 0;
    const ProtobufCBinaryData *payload = &launch->body->payload;
    if (result == 0 && payload->len > 0) {
        /* A sealed file in memory: whoever inherits it can only read it. */
        launch->payload_fd = kernel_memory_file("trainyard-payload");
        int code =
            launch->payload_fd < 0 ? -errno : file_write_all(launch->payload_fd, payload->data, payload->len);
        if (code == 0 && kernel_seal(launch->payload_fd) < 0) code = -errno;
        if (code < 0)
            result = ty_fail(err, TY_ESTART, "cannot pass the payload of %zu bytes to workers: %s",
                             payload->len, strerror(-code));
    }
    if (result < 0) node_launch_done(launch);
    return result;
}

void node_launch_done(struct node_launch *launch) {
    if (launch->body == NULL) return;
    if (launch->payload_fd >= 0) (void)close(launch->payload_fd);
    if (launch->no_input_fd >= 0) (void)close(launch->no_input_fd);
    for (size_t i = 0; i < ARRAY_SIZE(launch->constants); i++)
        free(launch->constants[i]);
    free(launch->base);
    free(launch->argv);
    free(launch->program);
    wire__launch__free_unpacked(launch->body, NULL);
    *launch = (struct node_launch){0};
}

char **node_launch_environment(const struct node_launch *launch, char *const *changes, size_t n, char *last) {
    char **list = reallocarray(NULL, launch->n_base + n + 2, sizeof *list);
    if (list == NULL) return NULL;
    size_t size = launch->n_base;
    if (size > 0) memcpy(list, launch->base, size * sizeof *list);
    for (size_t i = 0; i < n; i++)
        set_entry(list, &size, changes[i]);
    if (last != NULL) list[size++] = last;
    list[size] = NULL;
    return list;
}

const char *node_launch_variable(const struct node_launch *launch, const char *name) {
    size_t size = strlen(name);
    char **entry = find_entry(launch->base, launch->n_base, name, size);
    return entry != NULL ? *entry + size + 1 : NULL;
}

const char *node_launch_directory(const struct node_launch *launch) {
    const char *directory = launch->body->working_directory;
    return directory[0] != '\0' ? directory : NULL;
}

/* Looked up once for all workers that have the same PATH. */
static const char *find_program(struct node_launch *launch, char **environment, ty_error *err) {
    const Wire__Launch *body = launch->body;
    if (body->executable[0] != '\0') return body->executable;
    size_t n = 0;
    while (environment[n] != NULL)
        n++;
    char **entry = find_entry(environment, n, "PATH", strlen("PATH"));
    const char *search = entry != NULL ? *entry + strlen("PATH=") : NULL;
    if (launch->program != NULL && str_equal(search, launch->search)) return launch->program;
    free(launch->program);
    launch->search = search;
    launch->program = spawn_find(body->argv[0], search,
                                 node_launch_directory(launch) != NULL ? body->working_directory : ".", err);
    return launch->program;
}

static int parse_cpus(const char *text, cpu_set_t *cpus, ty_error *err) {
    struct idset ids = {0};
    int result = idset_parse(&ids, text, err);
    CPU_ZERO(cpus);
    for (int64_t id = IDSET_END; result == 0 && (id = idset_next(&ids, id)) != IDSET_END;)
        if (id < CPU_SETSIZE)
            CPU_SET((size_t)id, cpus);
        else
            result = ty_fail(err, TY_ESTART, "core %lld is beyond the %d that can be bound", (long long)id,
                             CPU_SETSIZE);
    idset_done(&ids);
    return result;
}

/* An own open file each, so that no worker's reading moves another's place. */
int node_launch_open_payload(const struct node_launch *launch, int *fd, ty_error *err) {
    if (launch->payload_fd < 0) return 0;
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", launch->payload_fd);
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0) return ty_fail(err, TY_ESTART, "cannot open the payload again: %s", strerror(errno));
    return 0;
}

/* The entry with the worker's own pid is written by the child, in this very memory, just before it executes. */
int node_launch_worker(struct node_launch *launch, size_t index, const int fds[4], pid_t *pid, ty_error *err) {
    const Wire__Launch *body = launch->body;
    const Wire__LaunchWorker *worker = body->workers[index];
    char pid_entry[sizeof WORKER_PID_VARIABLE + SPAWN_PID_SIZE] = WORKER_PID_VARIABLE "=";
    CLEANUP_FREE char **environment =
        node_launch_environment(launch, worker->environment, worker->n_environment, pid_entry);
    if (environment == NULL) return ty_fail_memory(err);
    if (body->n_argv == 0)
        return ty_fail(err, TY_ESTART, "the launch of rank %u names no program", worker->rank);
    cpu_set_t cpus;
    bool bound = worker->cpus[0] != '\0';
    if (bound && parse_cpus(worker->cpus, &cpus, err) < 0) return TY_ESTART;
    CLEANUP_FD int payload_fd = -1;
    if (node_launch_open_payload(launch, &payload_fd, err) < 0) return TY_ESTART;
    struct spawn spawn = {
        .path = find_program(launch, environment, err),
        .argv = launch->argv,
        .envp = environment,
        .directory = node_launch_directory(launch),
        .fds = {fds[0] >= 0 ? fds[0] : launch->no_input_fd, fds[1], fds[2], fds[3], payload_fd},
        .session = true,
        .terminal = worker->pty,
        .cpus = bound ? &cpus : NULL,
        .nofile = &launch->nofile,
        .pid_text = pid_entry + sizeof WORKER_PID_VARIABLE,
    };
    return spawn.path == NULL ? TY_ESTART : spawn_start(&spawn, pid, err);
}
