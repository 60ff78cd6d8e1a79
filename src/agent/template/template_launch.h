/* What a launch means for the template: how its zygote is started, by what it is known, and the words of requests to it. */
#ifndef AGENT_TEMPLATE_LAUNCH_H
#define AGENT_TEMPLATE_LAUNCH_H

#include "agent/node_launch.h"
#include "base/buffer.h"
#include "base/duration.h"

/* A zygote serves every launch with the same key: words, program file, directory, and those variables that an interpreter, a loader
 * or a framework reads when it starts. */
void template_key(const struct node_launch *launch, struct buffer *key);

/* Executes the zygote: `control_fd` becomes its descriptor 3, `output_fd` both outputs. */
int template_execute(const struct node_launch *launch, int control_fd, int output_fd, pid_t *pid,
                     ty_error *err);

/* Words of a request (control.h), appended. The run's: its directory and environment. A worker's: its cores, soft and hard limit of
 * descriptors, directory, and environment. The directory is "" where it stays. */
int template_run_words(const struct node_launch *launch, struct buffer *words, ty_error *err);
int template_worker_words(const struct node_launch *launch, size_t index, struct buffer *words, ty_error *err);

/* How long an answer may take: TRAINYARD_TEMPLATE_LIMIT of the launch's environment, else two minutes. */
nanoseconds template_limit(const struct node_launch *launch);

#endif
