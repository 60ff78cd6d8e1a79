/* The list of files that a worker gives for its checkpoint, and the manifest: no entry that is accepted names a
 * place outside the checkpoint or a size that cannot be. */
#include "base/cleanup.h"
#include "checkpoint/manifest.h"
#include "fuzz.h"

static void check(const json_t *value) {
    struct manifest_entry entry;
    if (!manifest_entry_read(value, &entry)) return;
    fuzz_require(entry.path[0] != '/' && entry.path[0] != '\0');
    fuzz_require(strcmp(entry.path, "..") != 0 && strncmp(entry.path, "../", 3) != 0);
    fuzz_require(strstr(entry.path, "/../") == NULL && strstr(entry.path, "//") == NULL);
    size_t size = strlen(entry.path);
    fuzz_require(size < 3 || strcmp(entry.path + size - 3, "/..") != 0);
    fuzz_require(entry.size >= 0 && (entry.link == NULL || entry.xxh3 == NULL));
    fuzz_require(entry.xxh3 == NULL || strlen(entry.xxh3) == 32);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    json_t *list = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    for (size_t i = 0; i < json_array_size(list); i++)
        check(json_array_get(list, i));
    json_decref(list);
    return 0;
}
