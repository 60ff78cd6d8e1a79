/* News of a run that goes on: its log is watched where the file system tells of changes, else looked at every
 * 2 s; either only while somebody waits. */
#ifndef VIEW_WATCH_H
#define VIEW_WATCH_H

enum { VIEW_LOOK_MS = 2000 };

/* A descriptor that is readable when something was written in the run's directory; -1 where there can be none,
 * and one must look. The caller's. */
int view_watch_open(const char *run_path);
/* Waits for news, VIEW_LOOK_MS at most, and a moment longer, so that a flood of them is one. */
void view_watch_wait(int watch);

#endif
