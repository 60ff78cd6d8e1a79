/* The screen of `trainyard top` by ncurses, which draws what changed, and no more. A module, so that the
 * command starts without the library; it knows text, a size and keys. What is drawn is made in top.c, and tried
 * there without a terminal. */
#include "cli/screen_module.h"

#include <curses.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/module.h"

static SCREEN *screen;

/* newterm, since initscr ends the process where the terminal is not known. Behind Escape ncurses would wait a
 * second for the rest of a key; 50 ms are enough for a terminal, by ssh as well. */
static int screen_open(ty_error *err) {
    const char *terminal = getenv("TERM");
    screen = newterm(NULL, stdout, stdin);
    if (screen == NULL)
        return ty_fail(err, TY_EUSAGE, "the terminal '%.40s' is not known here",
                       terminal != NULL ? terminal : "");
    (void)set_term(screen);
    (void)cbreak();
    (void)noecho();
    (void)nonl();
    (void)keypad(stdscr, TRUE);
    (void)curs_set(0);
    (void)set_escdelay(50);
    return 0;
}

static void screen_size(size_t *rows, size_t *columns) {
    *rows = (size_t)LINES;
    *columns = (size_t)COLS;
}

static void screen_show(const char *text, size_t size, size_t marked) {
    /* Not clear(), which would make ncurses paint all of the screen anew. */
    (void)erase();
    for (int row = 0; row < LINES && size > 0; row++) {
        const char *end = memchr(text, '\n', size);
        size_t length = end != NULL ? (size_t)(end - text) : size;
        bool reverse = row == 0 || (size_t)row == marked;
        if (reverse) (void)attron(A_REVERSE);
        (void)mvaddnstr(row, 0, text, (int)length);
        for (int at = getcurx(stdscr); reverse && getcury(stdscr) == row && at < COLS; at++)
            (void)addch(' ');
        if (reverse) (void)attroff(A_REVERSE);
        size -= end != NULL ? length + 1 : length;
        text += end != NULL ? length + 1 : length;
    }
    (void)refresh();
}

static int screen_key(int wait_ms) {
    timeout(wait_ms);
    int key = getch();
    switch (key) {
    case ERR:
        return SCREEN_NONE;
    case KEY_UP:
        return SCREEN_UP;
    case KEY_DOWN:
        return SCREEN_DOWN;
    case KEY_ENTER:
    case KEY_RIGHT:
    case '\r':
    case '\n':
        return SCREEN_ENTER;
    case KEY_LEFT:
    case 27:
        return SCREEN_BACK;
    case KEY_BACKSPACE:
    case 127:
    case 8:
        return SCREEN_ERASE;
    case KEY_F(6):
        return SCREEN_SORT;
    case KEY_RESIZE:
        return SCREEN_RESIZED;
    default:
        return key > 0 && key < 256 ? key : SCREEN_NONE;
    }
}

static void screen_close(void) {
    (void)endwin();
    delscreen(screen);
}

__attribute__((visibility("default"))) const struct screen_module trainyard_screen = {
    .version = base_build,
    .open = screen_open,
    .size = screen_size,
    .show = screen_show,
    .key = screen_key,
    .close = screen_close,
};
