/* Sets of small integers as bit maps; the text form is that of Flux RFC 22. A map is as long as the largest
 * member needs and never shrinks, which suits ranks and devices, dense and below some ten thousands. No member
 * is above IDSET_MAX, so that a list from outside takes no more than a map of that size. */
#include "base/idset.h"
#include "base/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

enum { WORD_BITS = 64 };

void idset_done(struct idset *set) {
    free(set->words);
    *set = (struct idset){0};
}

int idset_add(struct idset *set, int64_t id) {
    return idset_add_range(set, id, id);
}

int idset_add_range(struct idset *set, int64_t first, int64_t last) {
    if (first < 0 || last < first || last >= IDSET_MAX) return -EINVAL;
    size_t wanted = (size_t)last / WORD_BITS + 1;
    if (ARRAY_REACH(set->words, set->n_words, wanted) < 0) return -ENOMEM;
    for (int64_t id = first; id <= last;) {
        int64_t word = id / WORD_BITS, end = word * WORD_BITS + WORD_BITS - 1;
        if (end > last) end = last;
        uint64_t mask = (UINT64_MAX >> (WORD_BITS - 1 - (end - id))) << id % WORD_BITS;
        set->words[word] |= mask;
        id = end + 1;
    }
    return 0;
}

bool idset_has(const struct idset *set, int64_t id) {
    if (id < 0 || (uint64_t)id / WORD_BITS >= set->n_words) return false;
    return set->words[id / WORD_BITS] >> id % WORD_BITS & 1;
}

size_t idset_count(const struct idset *set) {
    size_t count = 0;
    for (size_t i = 0; i < set->n_words; i++)
        count += (size_t)__builtin_popcountll(set->words[i]);
    return count;
}

int64_t idset_next(const struct idset *set, int64_t after) {
    int64_t id = after < 0 ? 0 : after + 1;
    size_t word = (size_t)id / WORD_BITS;
    if (word >= set->n_words) return IDSET_END;
    uint64_t rest = set->words[word] >> id % WORD_BITS;
    if (rest != 0) return id + __builtin_ctzll(rest);
    while (++word < set->n_words)
        if (set->words[word] != 0) return (int64_t)word * WORD_BITS + __builtin_ctzll(set->words[word]);
    return IDSET_END;
}

struct idset_reader {
    struct idset set;
    int64_t last; /* of the ranges before */
};

static bool parse_id(const char *text, int64_t *id) {
    bool padded = text[0] == '0' && text[1] != '\0';
    return !padded && str_to_int64(text, 0, IDSET_MAX - 1, id);
}

static int parse_ranges(struct idset_reader *reader, char *text) {
    size_t size = strlen(text);
    if (size >= 2 && text[0] == '[' && text[size - 1] == ']') {
        text[size - 1] = '\0';
        text++;
    }
    if (text[0] == '\0') return 0;
    for (char *range = text; range != NULL;) {
        char *comma = strchr(range, ',');
        if (comma != NULL) *comma = '\0';
        /* The range is cut up and spoilt. */
        int64_t first, last;
        char *dash = strchr(range, '-');
        if (dash != NULL) *dash = '\0';
        if (!parse_id(range, &first)) return -EINVAL;
        last = first;
        if (dash != NULL && (!parse_id(dash + 1, &last) || last <= first)) return -EINVAL;
        if (first <= reader->last) return -EINVAL;
        reader->last = last;
        int result = idset_add_range(&reader->set, first, last);
        if (result < 0) return result;
        range = comma == NULL ? NULL : comma + 1;
    }
    return 0;
}

int idset_parse(struct idset *set, const char *text, ty_error *err) {
    struct idset_reader reader = {.last = -1};
    char *copy = strdup(text);
    int result = copy == NULL ? -ENOMEM : parse_ranges(&reader, copy);
    free(copy);
    if (result < 0) {
        idset_done(&reader.set);
        if (result == -ENOMEM) return ty_fail_memory(err);
        return ty_fail(err, TY_EUSAGE,
                       "\"%.80s\" is no set of ids: give ascending numbers below %d and ranges, as in 0-3,7",
                       text, IDSET_MAX);
    }
    idset_done(set);
    *set = reader.set;
    return 0;
}

void idset_format(const struct idset *set, struct buffer *out) {
    const char *comma = "";
    for (int64_t first = idset_next(set, -1); first != IDSET_END;) {
        int64_t last = first;
        while (idset_has(set, last + 1))
            last++;
        buffer_printf(out, "%s%lld", comma, (long long)first);
        if (last > first) buffer_printf(out, "-%lld", (long long)last);
        comma = ",";
        first = idset_next(set, last);
    }
}
