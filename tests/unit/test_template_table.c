/* Every event in every state of a template: where it leads, that whoever waits for a worker is answered when
 * the template is lost, that the next launch still gets its template, and that nothing is left. The zygote and
 * the run's template are sockets that the test holds, and children that only sleep; no program is executed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/template/template_internal.h"
#include "base/cleanup.h"
#include "descriptors.h"

enum { CHILDREN_MAX = 4 };

struct world {
    struct loop *loop;
    struct template *template;
    Wire__LaunchWorker worker, *workers[1];
    Wire__Launch body;
    struct node_launch launch;
    struct template_fork fork;
    unsigned answers;
    pid_t children[CHILDREN_MAX]; /* what the zygote is said to have forked */
    size_t n_children;
};

/* How often an entry of the table was looked up. */
static unsigned visits[TEMPLATE_EVENTS][TEMPLATE_STATES_END];
static int zygote_end = -1, run_end = -1; /* the ends of the sockets that the two processes would hold */

void __real_template_take(struct template *template, const struct template_event *event);
void __wrap_template_take(struct template *template, const struct template_event *event);
int __wrap_template_start_zygote(struct template *template, ty_error *err);
int __wrap_template_ask_run(struct template *template, ty_error *err);

void __wrap_template_take(struct template *template, const struct template_event *event) {
    visits[event->kind][template->state]++;
    __real_template_take(template, event);
}

int __wrap_template_start_zygote(struct template *template, ty_error *err) {
    cleanup_fd(&zygote_end);
    zygote_end = -1;
    buffer_done(&template->key);
    template_key(template->launch, &template->key);
    assert_int_equal(control_open(&template->zygote.control, &zygote_end, err), 0);
    return control_watch(&template->zygote.control, template->loop, err);
}

int __wrap_template_ask_run(struct template *template, ty_error *err) {
    cleanup_fd(&run_end);
    run_end = -1;
    return control_open(&template->run.control, &run_end, err);
}

static void on_changed(void *context) {
    (void)context;
}

static void on_answered(void *context, pid_t pid, const char *why) {
    struct world *world = context;
    assert_true(pid > 0 || why != NULL);
    world->answers++;
}

static void open_world(struct world *world) {
    static char *words[] = {"/bin/true", "of the test"};
    *world = (struct world){0};
    wire__launch__init(&world->body);
    wire__launch_worker__init(&world->worker);
    world->workers[0] = &world->worker;
    world->body.template_argv = words;
    world->body.n_template_argv = 2;
    world->body.workers = world->workers;
    world->body.n_workers = 1;
    world->launch.body = &world->body;
    world->fork = (struct template_fork){.answered = on_answered, .context = world};
    world->loop = loop_create(NULL);
    world->template = template_create();
    assert_true(world->loop != NULL && world->template != NULL);
    template_enter(world->template, world->loop, &(struct template_log){NULL, ""}, on_changed, NULL);
}

static void close_world(struct world *world) {
    (void)template_leave(world->template, false);
    assert_int_equal(template_state(world->template), TEMPLATE_NONE);
    assert_false(template_lives(world->template));
    template_destroy(world->template);
    loop_destroy(world->loop);
    for (size_t i = 0; i < world->n_children; i++)
        if (waitpid(world->children[i], NULL, WNOHANG) == 0) { /* its pid was not taken over: still ours */
            (void)kill(world->children[i], SIGKILL);
            assert_int_equal(waitpid(world->children[i], NULL, 0), world->children[i]);
        }
    cleanup_fd(&zygote_end);
    cleanup_fd(&run_end);
    zygote_end = run_end = -1;
}

/* -- events, each by the way that it comes in the agent */

static void zygote_says(struct world *world, const char *line) {
    struct control *control = &world->template->zygote.control;
    control->line(control, line);
}

static void run_says(struct world *world, const char *line) {
    struct control *control = &world->template->run.control;
    control->line(control, line);
}

/* A pid is killed when its template ends: it is that of a child of ours. */
static void zygote_forks(struct world *world) {
    char line[32];
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        for (;;)
            (void)pause();
    assert_true(world->n_children < CHILDREN_MAX);
    world->children[world->n_children++] = pid;
    (void)snprintf(line, sizeof line, "pid %d", pid);
    zygote_says(world, line);
}

static void happen(struct world *world, enum template_event_kind kind) {
    struct template *template = world->template;
    switch (kind) {
    case ON_LAUNCH:
        template_prepare(template, &world->launch);
        break;
    case ON_GIVE_UP:
        template_abandon(template, "the attempt is over");
        break;
    case ON_ZYGOTE_READY:
        zygote_says(world, "ready");
        break;
    case ON_ZYGOTE_PID:
        zygote_forks(world);
        break;
    case ON_ZYGOTE_REFUSAL:
        zygote_says(world, "unsafe a thread runs in it");
        break;
    case ON_ZYGOTE_END:
        template->zygote.control.ended(&template->zygote.control);
        break;
    case ON_RUN_READY:
        run_says(world, "ready");
        break;
    case ON_RUN_PID:
        run_says(world, "pid 1000");
        break;
    case ON_RUN_REFUSAL:
        run_says(world, "error no such function");
        break;
    case ON_RUN_END:
        template->run.control.ended(&template->run.control);
        break;
    default:
        template->limit.callback(template);
    }
}

/* -- how a template comes into each state: by events, the last of which leads there */

static const enum template_event_kind *way_into(enum template_state state) {
    static const enum template_event_kind ways[TEMPLATE_STATES_END][6] = {
        [TEMPLATE_NONE] = {TEMPLATE_EVENTS},
        [TEMPLATE_RESTED] = {ON_LAUNCH, ON_ZYGOTE_READY, TEMPLATE_EVENTS},
        [TEMPLATE_IMPORTING] = {ON_LAUNCH, TEMPLATE_EVENTS},
        [TEMPLATE_WAKING] = {ON_LAUNCH, ON_ZYGOTE_READY, TEMPLATE_EVENTS},
        [TEMPLATE_FORKING] = {ON_LAUNCH, ON_ZYGOTE_READY, TEMPLATE_EVENTS},
        [TEMPLATE_LOADING] = {ON_LAUNCH, ON_ZYGOTE_READY, ON_ZYGOTE_PID, TEMPLATE_EVENTS},
        [TEMPLATE_READY] = {ON_LAUNCH, ON_ZYGOTE_READY, ON_ZYGOTE_PID, ON_RUN_READY, TEMPLATE_EVENTS},
        [TEMPLATE_REFUSED] = {ON_LAUNCH, ON_ZYGOTE_REFUSAL, TEMPLATE_EVENTS},
        [TEMPLATE_FAILED] = {ON_LAUNCH, ON_ZYGOTE_END, TEMPLATE_EVENTS},
    };
    return ways[state];
}

static void bring_into(struct world *world, enum template_state state) {
    int fds[SPAWN_FDS];
    open_world(world);
    for (const enum template_event_kind *event = way_into(state); *event != TEMPLATE_EVENTS; event++)
        happen(world, *event);
    if (state == TEMPLATE_RESTED || state == TEMPLATE_WAKING) {
        /* The zygote's pid is what tells the next run that it lives: a child that only sleeps stands for it. */
        zygote_forks(world);
        world->template->zygote.control.pid = world->template->run.control.pid;
        world->template->run.control.pid = 0;
        template_abandon(world->template, "the attempt is over");
        (void)template_leave(world->template, true);
        template_enter(world->template, world->loop, &(struct template_log){NULL, ""}, on_changed, NULL);
    }
    if (state == TEMPLATE_WAKING) happen(world, ON_LAUNCH);
    assert_int_equal(template_state(world->template), state);
    if (state != TEMPLATE_READY) return;
    CLEANUP_FD int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < SPAWN_FDS; i++)
        fds[i] = null;
    assert_int_equal(template_fork(world->template, &world->fork, &world->launch, 0, fds, NULL), 0);
}

/* -- where each event leads */

#define SAME TEMPLATE_STATES_END
#define NONE TEMPLATE_NONE
#define IMP TEMPLATE_IMPORTING
#define FORK TEMPLATE_FORKING
#define WAKE TEMPLATE_WAKING
#define LOAD TEMPLATE_LOADING
#define READY TEMPLATE_READY
#define REF TEMPLATE_REFUSED
#define FAIL TEMPLATE_FAILED

/* clang-format off */
static const enum template_state leads_to[TEMPLATE_EVENTS][TEMPLATE_STATES_END] = {
    /*                      NONE  RESTED IMPORTING WAKING FORKING LOADING READY REFUSED FAILED */
    [ON_LAUNCH]         = { IMP,  WAKE,  SAME,     SAME,  SAME,   SAME,   SAME, SAME,   IMP },
    [ON_GIVE_UP]        = { SAME, SAME,  SAME,     NONE,  NONE,   NONE,   NONE, SAME,   SAME },
    [ON_ZYGOTE_READY]   = { SAME, SAME,  FORK,     REF,   REF,    SAME,   SAME, SAME,   SAME },
    [ON_ZYGOTE_PID]     = { SAME, SAME,  REF,      LOAD,  LOAD,   SAME,   SAME, SAME,   SAME },
    [ON_ZYGOTE_REFUSAL] = { SAME, SAME,  REF,      REF,   REF,    SAME,   SAME, SAME,   SAME },
    [ON_ZYGOTE_END]     = { SAME, NONE,  FAIL,     IMP,   FAIL,   SAME,   SAME, SAME,   SAME },
    [ON_RUN_READY]      = { SAME, SAME,  SAME,     SAME,  SAME,   READY,  SAME, SAME,   SAME },
    [ON_RUN_PID]        = { SAME, SAME,  SAME,     SAME,  SAME,   REF,    SAME, SAME,   SAME },
    [ON_RUN_REFUSAL]    = { SAME, SAME,  SAME,     SAME,  SAME,   REF,    SAME, SAME,   SAME },
    [ON_RUN_END]        = { SAME, SAME,  SAME,     SAME,  SAME,   FAIL,   NONE, SAME,   SAME },
    [ON_LIMIT]          = { SAME, SAME,  FAIL,     FAIL,  FAIL,   FAIL,   FAIL, SAME,   SAME },
};
/* clang-format on */

/* Whatever happened, another launch comes to its template. */
static void expect_next_launch(struct world *world) {
    static char *words[] = {"/bin/true", "another template"};
    template_forget(world->template);
    (void)template_leave(world->template, false);
    template_enter(world->template, world->loop, &(struct template_log){NULL, ""}, on_changed, NULL);
    world->body.template_argv = words;
    for (const enum template_event_kind *event = way_into(TEMPLATE_READY); *event != TEMPLATE_EVENTS; event++)
        happen(world, *event);
    assert_int_equal(template_state(world->template), TEMPLATE_READY);
}

static void take_event(enum template_event_kind kind, enum template_state before) {
    struct world world;
    bring_into(&world, before);
    unsigned pending = template_pending(world.template);
    happen(&world, kind);
    enum template_state expected = leads_to[kind][before] == SAME ? before : leads_to[kind][before];
    if (template_state(world.template) != expected)
        fail_msg("event %d leads from state %d to %d, not to %d", kind, before, template_state(world.template),
                 expected);
    /* Who waits for a worker is answered by the run's template, or when there is none any more. */
    bool answers = kind == ON_RUN_READY || kind == ON_RUN_PID || kind == ON_RUN_REFUSAL;
    assert_int_equal(pending, before == TEMPLATE_READY ? 1 : 0);
    assert_int_equal(world.answers, pending > 0 && (answers || expected != TEMPLATE_READY) ? 1 : 0);
    assert_int_equal(template_pending(world.template), pending - world.answers);
    expect_next_launch(&world);
    close_world(&world);
}

static void every_event_in_every_state_leads_where_the_table_says(void **state) {
    (void)state;
    take_event(ON_LAUNCH, TEMPLATE_NONE); /* the loop's library keeps what it opens first */
    unsigned open_before = count_descriptors();
    memset(visits, 0, sizeof visits);
    for (int kind = 0; kind < TEMPLATE_EVENTS; kind++)
        for (int before = 0; before < TEMPLATE_STATES_END; before++)
            take_event((enum template_event_kind)kind, (enum template_state)before);
    for (int kind = 0; kind < TEMPLATE_EVENTS; kind++)
        for (int before = 0; before < TEMPLATE_STATES_END; before++)
            if (visits[kind][before] == 0) fail_msg("event %d did not come in state %d", kind, before);
    assert_int_equal(count_descriptors(), open_before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_event_in_every_state_leads_where_the_table_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
