/* The few lines of a saved stack that a person wants to see first. Pure. */
#ifndef AGENT_STACK_TEXT_H
#define AGENT_STACK_TEXT_H

#include "base/buffer.h"

/* What begins a part of a stack file; the rest of the line is for people. */
#define STACK_PART_FACTS "== process"
#define STACK_PART_PYTHON "== python"
#define STACK_PART_NATIVE "== native"

/* From the text of a stack file: the innermost lines of the thread that runs the training, 6 at most. Python's where there are some,
 * else frames of C, else what the kernel tells of the first thread. Control characters show as '?'. */
void stack_text_frames(const char *text, size_t size, struct buffer *out);

#endif
