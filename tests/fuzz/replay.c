/* Runs every file of a corpus directory through a fuzz target, so that what once was found stays found. Files
 * come in the order of their names; a crash leaves the name of the last one on standard output. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "fuzz.h"

enum { LARGEST_INPUT = 1 << 20 };

static int is_file(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

/* The input goes in a block of its very size, where a sanitizer sees every byte read beyond it. */
static int replay(const char *path) {
    CLEANUP(buffer_done) struct buffer input = {0};
    ty_error err = {0};
    if (file_read(path, LARGEST_INPUT, &input, &err) < 0) {
        (void)fprintf(stderr, "%s\n", err.message);
        return -1;
    }
    CLEANUP_FREE uint8_t *bytes = malloc(input.size > 0 ? input.size : 1);
    if (bytes == NULL) return -1;
    memcpy(bytes, input.data, input.size);
    (void)printf("%s (%zu bytes)\n", path, input.size);
    (void)fflush(stdout);
    return LLVMFuzzerTestOneInput(bytes, input.size);
}

static int replay_directory(const char *directory) {
    struct dirent **entries;
    int n = scandir(directory, &entries, is_file, alphasort), result = 0;
    if (n <= 0) {
        (void)fprintf(stderr, "%s: no corpus\n", directory);
        return -1;
    }
    for (int i = 0; i < n; i++) {
        CLEANUP(buffer_done) struct buffer path = {0};
        buffer_printf(&path, "%s/%s", directory, entries[i]->d_name);
        if (path.failed || replay(path.data) != 0) result = -1;
        free(entries[i]);
    }
    free(entries);
    return result;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        (void)fprintf(stderr, "usage: %s CORPUS-DIRECTORY\n", argv[0]);
        return 2;
    }
    return replay_directory(argv[1]) < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
