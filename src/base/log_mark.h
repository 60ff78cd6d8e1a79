/* The line of a log that stands for what a limit left out, written by agents and understood by readers. Its
 * length is always the same. */
#ifndef BASE_LOG_MARK_H
#define BASE_LOG_MARK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LOG_MARK_SIZE = 74 };

void log_mark_format(uint64_t left_out, char mark[LOG_MARK_SIZE + 1]);

/* Looks for a mark in text: its offset and the number, or false. */
bool log_mark_find(const char *text, size_t size, size_t *offset, uint64_t *left_out);

#endif
