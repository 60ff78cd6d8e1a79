/* From a launch to a zygote and to what it is asked. In the template numeric libraries are held to one thread:
 * a process with threads cannot be forked. When that is done is the table's (template_table.c). */
#include "agent/template/template_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "worker/link.h"

#define ZYGOTE_FD_VARIABLE "TRAINYARD_TEMPLATE_FD"
#define LIMIT_DEFAULT (120 * NS_PER_S)

/* As long as a token may be: the run's is written over it, so that /proc tells whose the processes are. */
#define TOKEN_PLACE WORKER_TOKEN_VARIABLE "=----------------------------------------------------------------"

#define ONE_THREAD "OMP_NUM_THREADS=1", "MKL_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1"

/* Read once, when an interpreter, a loader or a library starts. */
static const char *const start_prefixes[] = {"PYTHON", "LD_",       "TORCH", "PYTORCH", "OMP_",   "MKL_",
                                             "KMP_",   "OPENBLAS_", "CUDA_", "NVIDIA_", "HIP_",   "ROCR_",
                                             "JAX_",   "XLA_",      "TF_",   "TPU_",    "GLIBC_", "MALLOC_"};
/* Of those, what a run sets anew, or the template itself. */
static const char *const run_prefixes[] = {"TORCHELASTIC_",        "TORCH_NCCL_",      "TPU_",
                                           "JAX_COORDINATOR_",     "OMP_NUM_THREADS=", "MKL_NUM_THREADS=",
                                           "OPENBLAS_NUM_THREADS="};

static bool has_prefix(const char *entry, const char *const *prefixes, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (str_prefix(entry, prefixes[i], NULL)) return true;
    return false;
}

bool template_is_start_variable(const char *entry) {
    size_t name = strcspn(entry, "=");
    if (memmem(entry, name, "_VISIBLE_", strlen("_VISIBLE_")) != NULL) return false;
    if (str_prefix(entry, "TPU_LIBRARY_PATH=", NULL)) return true;
    return has_prefix(entry, start_prefixes, ARRAY_SIZE(start_prefixes)) &&
           !has_prefix(entry, run_prefixes, ARRAY_SIZE(run_prefixes));
}

/* What is executed as a template. */
static char **words_of(const Wire__Launch *body, size_t *n) {
    *n = body->n_template_argv > 0 ? body->n_template_argv : body->n_argv;
    return body->n_template_argv > 0 ? body->template_argv : body->argv;
}

static void append_word(struct buffer *words, const char *word) {
    buffer_append(words, word, strlen(word) + 1);
}

/* What a zygote must have in common with a launch to serve it: the interpreter, by what the file is and when it
 * was changed, the directory, its words, and the variables that it reads when it starts. */
void template_key(const struct node_launch *launch, struct buffer *key) {
    const Wire__Launch *body = launch->body;
    struct stat status = {0};
    size_t n;
    char **words = words_of(body, &n);
    (void)stat(words[0], &status);
    buffer_printf(key, "%llu %llu %lld.%09ld", (unsigned long long)status.st_dev,
                  (unsigned long long)status.st_ino, (long long)status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
    buffer_char(key, '\0');
    append_word(key, body->working_directory);
    for (size_t i = 0; i < n; i++)
        append_word(key, words[i]);
    for (size_t i = 0; i < launch->n_base; i++)
        if (template_is_start_variable(launch->base[i])) append_word(key, launch->base[i]);
}

int template_execute(const struct node_launch *launch, int control_fd, int output_fd, pid_t *pid,
                     ty_error *err) {
    static char token[] = TOKEN_PLACE;
    static char *const changes[] = {token,
                                    WORKER_FD_VARIABLE,
                                    WORKER_PATH_VARIABLE,
                                    WORKER_PAYLOAD_VARIABLE,
                                    WORKER_CHECKPOINT_VARIABLE,
                                    ONE_THREAD};
    const size_t n_of_program = ARRAY_SIZE(changes) - ARRAY_SIZE((const char *[]){ONE_THREAD});
    static char own[] = ZYGOTE_FD_VARIABLE "=3";
    size_t n;
    char **words = words_of(launch->body, &n);
    bool is_program = template_is_program(launch);
    CLEANUP_FREE char *python_path = NULL;
    CLEANUP_FREE char **environment =
        is_program ? template_program_environment(launch, changes, n_of_program, own, &python_path)
                   : node_launch_environment(launch, changes, ARRAY_SIZE(changes), own);
    CLEANUP_FREE char **argv = calloc(n + 1, sizeof *argv);
    int outputs[2] = {-1, -1};
    if (environment == NULL || argv == NULL) return ty_fail_memory(err);
    memcpy(argv, words, n * sizeof *argv);
    const char *directory = node_launch_directory(launch);
    CLEANUP_FREE char *path =
        spawn_find(argv[0], node_launch_variable(launch, "PATH"), directory != NULL ? directory : ".", err);
    if (path == NULL) return TY_ESTART;
    struct spawn spawn = {.path = path,
                          .argv = argv,
                          .envp = environment,
                          .directory = directory,
                          .fds = {launch->no_input_fd, output_fd, output_fd, control_fd, -1},
                          .nofile = &launch->nofile};
    if (!is_program) return spawn_start(&spawn, pid, err);
    if (pipe2(outputs, O_CLOEXEC) < 0)
        return ty_fail(err, TY_ESTART, "cannot make a pipe: %s", strerror(errno));
    spawn.fds[1] = spawn.fds[2] = outputs[1]; /* as its workers have: what it is, streams remember */
    spawn.fds[4] = outputs[0];
    int result = spawn_start(&spawn, pid, err);
    (void)close(outputs[0]);
    (void)close(outputs[1]);
    return result;
}

static int append_list(struct buffer *words, char **list, ty_error *err) {
    for (char **entry = list; list != NULL && *entry != NULL; entry++)
        append_word(words, *entry);
    return list == NULL || words->failed ? ty_fail_memory(err) : 0;
}

int template_run_words(const struct node_launch *launch, struct buffer *words, ty_error *err) {
    static char *const changes[] = {ONE_THREAD, WORKER_FD_VARIABLE};
    CLEANUP_FREE char **environment = node_launch_environment(launch, changes, ARRAY_SIZE(changes), NULL);
    append_word(words, launch->body->working_directory);
    return append_list(words, environment, err);
}

int template_worker_words(const struct node_launch *launch, size_t index, struct buffer *words, ty_error *err) {
    const Wire__LaunchWorker *worker = launch->body->workers[index];
    CLEANUP_FREE char **environment =
        node_launch_environment(launch, worker->environment, worker->n_environment, NULL);
    append_word(words, worker->cpus);
    buffer_printf(words, "%llu", (unsigned long long)launch->nofile.rlim_cur);
    buffer_char(words, '\0');
    buffer_printf(words, "%llu", (unsigned long long)launch->nofile.rlim_max);
    buffer_char(words, '\0');
    append_word(words, launch->body->working_directory);
    return append_list(words, environment, err);
}

nanoseconds template_limit(const struct node_launch *launch) {
    nanoseconds limit = LIMIT_DEFAULT;
    const char *text = node_launch_variable(launch, TEMPLATE_LIMIT_VARIABLE); /* checked by the controller */
    (void)duration_of_variable(TEMPLATE_LIMIT_VARIABLE, text, &limit, NULL);
    return limit;
}
