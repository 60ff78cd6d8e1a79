/* The screen of `trainyard top`: a module, as only it needs ncurses. It shows text and gives keys; what the
 * text is, and what a key does, is top.c's. One screen in a process. */
#ifndef CLI_SCREEN_MODULE_H
#define CLI_SCREEN_MODULE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum screen_key {
    SCREEN_NONE = 0, /* nothing was pressed */
    SCREEN_UP = 0x10000,
    SCREEN_DOWN,
    SCREEN_ENTER,
    SCREEN_BACK,
    SCREEN_SORT,
    SCREEN_RESIZED,
    SCREEN_ERASE,
};

struct screen_module {
    const char *version;
    /* Takes the terminal over; it is as before after close. TY_EUSAGE where it cannot place its cursor. */
    int (*open)(ty_error *err);
    void (*size)(size_t *rows, size_t *columns);
    /* Shows lines, each cut to its columns; the `marked`th stands out (SIZE_MAX: none), as does the first. */
    void (*show)(const char *text, size_t size, size_t marked);
    /* A key, or the character of one; SCREEN_NONE after that time without one. */
    int (*key)(int wait_ms);
    void (*close)(void);
};

extern const struct screen_module trainyard_screen;

#endif
