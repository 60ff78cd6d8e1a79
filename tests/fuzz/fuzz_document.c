/* Documents: any bytes are read or refused; what was read has a place for everything, and is JSON. */
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/document.h"
#include "fuzz.h"

static void ask_places(const struct document *document, json_t *value) {
    fuzz_require(strncmp(document_where(document, value), "input", 5) == 0);
    const char *key;
    json_t *member;
    size_t i;
    json_object_foreach(value, key, member) {
        fuzz_require(strncmp(document_where_key(document, value, key), "input", 5) == 0);
        ask_places(document, member);
    }
    json_array_foreach(value, i, member) {
        ask_places(document, member);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const known[] = {"name", "resources"};
    struct document *document = NULL;
    ty_error err = {0};
    if (document_parse((const char *)data, size, "input", &document, &err) < 0) {
        fuzz_require(document == NULL && err.code < 0 && strncmp(err.message, "input", 5) == 0);
        return 0;
    }
    fuzz_require(err.code == 0);
    json_t *root = document_root(document);
    ask_places(document, root);
    (void)document_check_keys(document, root, "node", known, ARRAY_SIZE(known), NULL);
    CLEANUP_FREE char *dump = json_dumps(root, JSON_ENCODE_ANY);
    json_t *again = dump == NULL ? NULL : json_loads(dump, JSON_DECODE_ANY, NULL);
    fuzz_require(again != NULL);
    json_decref(again);
    document_destroy(document);
    return 0;
}
