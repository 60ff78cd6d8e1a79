/* A template without an interpreter: it answers as src/agent/template/template.h says, or misbehaves as its
 * mode says, and what it forks executes this program as a worker. */
#ifndef TESTS_STAND_IN_TEMPLATE_H
#define TESTS_STAND_IN_TEMPLATE_H

/* Modes: "good"; "unsafe", "error", "die", "silent" while it imports; "run-unsafe", "run-error", "run-die",
 * "run-silent" while it loads; "fork-unsafe", "fork-die", "fork-silent" when it is asked for rank 1. A zygote
 * that gets SIGUSR1 lives on under the name "deaf", and nobody can write to it. Does not return but in what it
 * forks last. */
void stand_in_template(const char *mode, const char *worker_mode);

#endif
