/* Metrics as they lie in a journal: whatever the text is, what a walk gives lies within it. Where it is a JSON
 * object by a parser of a whole tree, without names that come twice, both find the same names and values in the
 * same order, also when names were learned of texts before. Numbers that are passed over end a walk where
 * others do. */
#include <jansson.h>
#include <math.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "fuzz.h"
#include "view/values.h"

enum { LEAVES_MAX = 4096, DEPTH_COMPARED = 16 };

struct leaf {
    char *name;
    const json_t *value; /* borrowed */
};

struct walk {
    const char *text;
    size_t size;
    struct leaf *leaves; /* NULL: nothing to compare with */
    size_t n, at;
};

/* False where the tree is deeper, or has more, than is compared. */
static bool gather(json_t *object, const char *around, int depth, struct walk *walk) {
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        if (depth == 0 && (str_equal(key, "$types") || str_equal(key, "$validation"))) continue;
        char *name = NULL;
        fuzz_require(asprintf(&name, "%s%s%s", around, depth > 0 ? "/" : "", key) >= 0);
        bool whole = true;
        if (json_is_object(value)) {
            whole = depth < DEPTH_COMPARED && gather(value, name, depth + 1, walk);
            free(name);
        } else {
            whole = walk->n < LEAVES_MAX;
            if (whole)
                walk->leaves[walk->n++] = (struct leaf){name, value};
            else
                free(name);
        }
        if (!whole) return false;
    }
    return true;
}

static bool is_text(const struct value *value, const char *expected) {
    CLEANUP(buffer_done) struct buffer text = {0};
    values_text(value->text, value->text_size, &text);
    buffer_text(&text, "");
    return (value->type == VALUE_TEXT || value->type == VALUE_NONFINITE) && str_equal(text.data, expected);
}

static bool is_same(const json_t *expected, const struct value *value) {
    if (json_is_string(expected)) return is_text(value, json_string_value(expected));
    if (json_is_boolean(expected))
        return value->type == VALUE_NUMBER && value->flag && value->number == (json_is_true(expected) ? 1 : 0);
    if (!json_is_number(expected)) return value->type == VALUE_OTHER;
    return value->type == VALUE_NUMBER && !value->flag && value->number == json_number_value(expected);
}

static bool take(void *context, const struct value *value) {
    struct walk *walk = context;
    fuzz_require(value->text >= walk->text && value->text_size > 0);
    fuzz_require(value->text_size <= walk->size - (size_t)(value->text - walk->text));
    fuzz_require((value->type == VALUE_NUMBER) <= isfinite(value->number));
    if (*value->text == '"') fuzz_require(value->text_size >= 2 && value->text[value->text_size - 1] == '"');
    if (walk->leaves == NULL) return true;
    fuzz_require(walk->at < walk->n);
    const struct leaf *leaf = &walk->leaves[walk->at++];
    fuzz_require(strlen(leaf->name) == value->name_size);
    fuzz_require(memcmp(leaf->name, value->name, value->name_size) == 0);
    fuzz_require(is_same(leaf->value, value));
    return true;
}

static struct values_shape passing; /* of which no number is wanted a second time */

static bool take_once(void *context, const struct value *value) {
    (void)context;
    if (value->type == VALUE_NUMBER && !value->flag) values_pass(&passing, value);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CLEANUP_FREE char *text = malloc(size > 0 ? size : 1); /* what is read beyond it is found */
    struct walk walk = {.text = text, .size = size};
    fuzz_require(text != NULL);
    if (size > 0) memcpy(text, data, size);
    bool nul = memchr(text, '\0', size) != NULL; /* the other parser passes over some */
    json_t *tree = nul ? NULL : json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
    struct leaf *leaves = walk.leaves = calloc(LEAVES_MAX, sizeof *leaves);
    fuzz_require(leaves != NULL);
    bool compared = json_is_object(tree) && gather(tree, "", 0, &walk);
    if (!compared) walk.leaves = NULL;
    static struct values_shape shape; /* also of texts before */
    for (int times = 0; times < 3; times++) {
        walk.at = 0;
        bool right = times == 0 ? values_each(text, size, take, &walk)
                                : values_each_like(&shape, text, size, take, &walk);
        if (compared) fuzz_require(right && walk.at == walk.n);
        fuzz_require(values_each_like(&passing, text, size, take_once, NULL) == right);
    }
    for (size_t i = 0; i < walk.n; i++)
        free(leaves[i].name);
    free(leaves);
    json_decref(tree);
    return 0;
}
