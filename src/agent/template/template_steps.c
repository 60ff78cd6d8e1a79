/* From nothing to a template that forks workers of a launch, a step at a time. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "agent/template/template_parts.h"
#include "base/cleanup.h"

void template_tell(void *context) {
    struct template *template = context;
    template->changed(template->context);
}

void template_tell_later(struct template *template) {
    if (template->loop != NULL) (void)loop_timer_start(template->loop, &template->tell, 0);
}

void template_settle(struct template *template, enum template_state state, const char *reason) {
    if (reason != template->reason)
        (void)snprintf(template->reason, REASON_SIZE, "%.*s", REASON_SIZE - 1, reason);
    template->state = state;
    template_tell_later(template);
}

static int open_output(const struct template *template) {
    int fd = template->log_path[0] != '\0'
                 ? open(template->log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644)
                 : -1;
    return fd >= 0 ? fd : open("/dev/null", O_WRONLY | O_CLOEXEC);
}

static int start_zygote(struct template *template, ty_error *err) {
    struct template_process *zygote = &template->zygote;
    CLEANUP_FD int theirs = -1;
    CLEANUP_FD int output = open_output(template);
    zygote->log_offset = template_log_size(template);
    buffer_done(&template->key);
    template_key(template->launch, &template->key);
    int result = template->key.failed ? ty_fail_memory(err) : 0;
    if (result == 0) result = control_open(&zygote->control, template->loop, &theirs, err);
    if (result == 0) result = template_execute(template->launch, theirs, output, &zygote->control.pid, err);
    if (result < 0) {
        part_end(zygote, NULL);
        return result;
    }
    zygote->stage = STAGE_STARTING;
    template->rested = false;
    template_arm_limit(template);
    return 0;
}

static int ask_run(struct template *template, ty_error *err) {
    struct template_process *run = &template->run;
    CLEANUP(buffer_done) struct buffer words = {0};
    CLEANUP_FD int theirs = -1;
    CLEANUP_FD int output = open_output(template);
    CLEANUP_FD int payload = -1;
    run->log_offset = template_log_size(template);
    int result = template_run_words(template->launch, &words, err);
    if (result == 0) result = node_launch_open_payload(template->launch, &payload, err);
    if (result == 0) result = control_open(&run->control, template->loop, &theirs, err);
    const int fds[] = {theirs, output, payload};
    if (result == 0)
        result = control_send(&template->zygote.control, 'R', &words, fds, payload >= 0 ? 3 : 2, err);
    if (result < 0) {
        part_end(run, NULL);
        return result;
    }
    run->stage = STAGE_STARTING;
    template->asked = true;
    template_arm_limit(template);
    return 0;
}

static bool same_key(const struct template *template, const struct buffer *key) {
    return key->size == template->key.size && memcmp(key->data, template->key.data, key->size) == 0;
}

/* A zygote that this launch cannot use is ended. */
static int drop_unfit(struct template *template, ty_error *err) {
    CLEANUP(buffer_done) struct buffer key = {0};
    if (template->zygote.stage == STAGE_ABSENT) return 0;
    template_key(template->launch, &key);
    if (key.failed) return ty_fail_memory(err);
    if (!same_key(template, &key)) part_end(&template->zygote, NULL);
    return 0;
}

/* The next step from where both parts are; 0, or negative when it could not be taken. */
static int take_step(struct template *template, ty_error *err) {
    if (template->run.stage == STAGE_READY || template->run.stage == STAGE_REFUSED ||
        template->run.stage == STAGE_STARTING || template->asked)
        return 0;
    if (drop_unfit(template, err) < 0) return err->code;
    if (template->zygote.stage == STAGE_ABSENT) return start_zygote(template, err);
    if (template->zygote.stage != STAGE_READY) return 0;
    int result = ask_run(template, err);
    if (result == 0 || !template->rested) return result;
    part_end(&template->zygote, NULL); /* it is dying, or deaf, since before this run: another one may hear */
    return start_zygote(template, err);
}

void template_advance(struct template *template) {
    ty_error err = {0};
    if (template->launch == NULL) return;
    if (take_step(template, &err) < 0)
        template_settle(template, TEMPLATE_REFUSED, err.message);
    else if (template->run.stage == STAGE_READY && !template->asked)
        template_settle(template, TEMPLATE_READY, "");
    else if (template->run.stage == STAGE_REFUSED)
        template_settle(template, TEMPLATE_REFUSED, template->run.refusal);
    else if (template->zygote.stage == STAGE_REFUSED)
        template_settle(template, TEMPLATE_REFUSED, template->zygote.refusal);
    else
        template->state = TEMPLATE_WAITING;
}
