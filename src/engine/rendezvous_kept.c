/* What a controller keeps for the next one where it has started its agents itself: the port at which they look
 * for it, and the key by which they know it. Where nodes join by themselves their user has said both. The file
 * is in a directory of this machine that is the user's alone, and is gone at the end of the run. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "engine/rendezvous_internal.h"

enum { KEPT_MAX = 64 << 20 }; /* names of RENDEZVOUS_NODES_MAX nodes */

/* However the run's directory is spelled, the name is one. */
static int name_file(const char *run_path, bool make, char path[PATH_MAX], ty_error *err) {
    char directory[PATH_MAX];
    struct stat status;
    int result = file_private_directory(directory, make, err);
    if (result < 0) return result;
    if (stat(run_path, &status) < 0)
        return ty_fail(err, -errno, "cannot look at %s: %s", run_path, strerror(errno));
    int size = snprintf(path, PATH_MAX, "%s/run-%llx-%llx", directory, (unsigned long long)status.st_dev,
                        (unsigned long long)status.st_ino);
    return size < PATH_MAX ? 0 : ty_fail(err, -ENAMETOOLONG, "%s is too long", directory);
}

/* A node is known by its rank: what was kept is of no use where the ranks are other nodes'. */
static void add_names(const struct rendezvous *rendezvous, struct buffer *out) {
    for (uint32_t rank = 0; rank < rendezvous->config.max_nodes; rank++)
        buffer_printf(out, "%s\n", rendezvous->config.names[rank]);
}

void door_take_kept(struct rendezvous *rendezvous) {
    char path[PATH_MAX];
    CLEANUP(buffer_done) struct buffer text = {0};
    CLEANUP(buffer_done) struct buffer names = {0};
    int64_t port;
    if (rendezvous->config.run_path == NULL || name_file(rendezvous->config.run_path, false, path, NULL) < 0 ||
        file_read(path, KEPT_MAX, &text, NULL) < 0 || text.size == 0)
        return;
    add_names(rendezvous, &names);
    char *second = strchr(text.data, '\n'), *third = second != NULL ? strchr(second + 1, '\n') : NULL;
    bool whole = third != NULL && third - second <= KEY_SIZE && !names.failed;
    if (whole) *second = *third = '\0';
    if (whole && str_to_int64(text.data, 1, UINT16_MAX, &port) && str_equal(third + 1, names.data) &&
        (rendezvous->key.text[0] == '\0' || str_equal(rendezvous->key.text, second + 1))) {
        strcpy(rendezvous->key.text, second + 1);
        rendezvous->kept.port = (uint16_t)port;
    }
    explicit_bzero(text.data, text.size);
}

int rendezvous_keep(struct rendezvous *rendezvous, const char *run_path, ty_error *err) {
    char path[PATH_MAX];
    CLEANUP(buffer_done) struct buffer text = {0};
    if (!rendezvous_starts(rendezvous)) return 0;
    int result = name_file(run_path, true, path, err);
    if (result < 0) return result;
    buffer_printf(&text, "%u\n%s\n", rendezvous->door.port, rendezvous->key.text);
    add_names(rendezvous, &text);
    struct file_draft draft;
    result = text.failed ? -ENOMEM : file_draft_open(path, 0600, &draft);
    if (result >= 0) result = file_draft_close(&draft, file_write_all(draft.fd, text.data, text.size));
    if (text.data != NULL) explicit_bzero(text.data, text.size);
    if (result >= 0 && (rendezvous->kept.path = strdup(path)) == NULL) result = -ENOMEM;
    return result < 0 ? ty_fail(err, result, "cannot write %s: %s", path, strerror(-result)) : 0;
}

void rendezvous_forget(const char *run_path) {
    char path[PATH_MAX];
    if (name_file(run_path, false, path, NULL) == 0) (void)unlink(path);
}

void door_forget_kept(struct rendezvous *rendezvous) {
    bool undecided = rendezvous->kept.port > 0 && !rendezvous->begins_anew;
    if (rendezvous->kept.path != NULL && !undecided) (void)unlink(rendezvous->kept.path);
    free(rendezvous->kept.path);
}
