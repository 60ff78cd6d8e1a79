/* Host lists, kept as they are written: a list is items, an item is parts, a part is literal text and, perhaps,
 * a bracket of ranges. Name number i of an item is read like a number whose digits are the brackets, the last
 * one turning fastest. */
#include "base/hostlist.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buffer.h"
#include "base/cleanup.h"

enum { HOSTLIST_DIGITS = 18 };
static const char name_characters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-_:";

struct range {
    uint64_t first, last;
    size_t end; /* numbers in the bracket up to and with this range */
    int width;  /* digits at least */
};

struct host_part {
    const char *text; /* into the list's copy of the text */
    size_t text_size;
    struct range *ranges; /* owned */
    size_t n_ranges;
    size_t count; /* of the bracket's numbers; 1 without a bracket */
};

struct item {
    size_t first_part, n_parts;
    size_t end; /* names in the list up to and with this item */
};

struct hostlist {
    char *text; /* owned */
    struct host_part *parts;
    struct item *items;
    size_t n_parts, n_items;
};

void hostlist_destroy(struct hostlist *list) {
    if (list == NULL) return;
    for (size_t i = 0; i < list->n_parts; i++)
        free(list->parts[i].ranges);
    free(list->parts);
    free(list->items);
    free(list->text);
    free(list);
}

size_t hostlist_count(const struct hostlist *list) {
    return list->n_items == 0 ? 0 : list->items[list->n_items - 1].end;
}

/* Where reading stands; `problem` says what is wrong there. */
struct hostlist_reader {
    const char *at;
    const char *problem;
};

static int refuse(struct hostlist_reader *reader, const char *problem) {
    reader->problem = problem;
    return -EINVAL;
}

static int read_number(struct hostlist_reader *reader, uint64_t *number, int *width) {
    const char *begin = reader->at;
    *number = 0;
    for (; *reader->at >= '0' && *reader->at <= '9'; reader->at++) {
        if (reader->at - begin == HOSTLIST_DIGITS) return refuse(reader, "a number of more than 18 digits");
        *number = *number * 10 + (uint64_t)(*reader->at - '0');
    }
    *width = (int)(reader->at - begin);
    return *width > 0 ? 0 : refuse(reader, "a number is missing");
}

static int read_range(struct hostlist_reader *reader, struct range *range) {
    const char *begin = reader->at;
    int result = read_number(reader, &range->first, &range->width);
    if (result < 0) return result;
    range->last = range->first;
    if (*reader->at != '-') return 0;
    reader->at++;
    const char *second = reader->at;
    int width;
    result = read_number(reader, &range->last, &width);
    if (result < 0) return result;
    reader->at = begin;
    if (range->last < range->first) return refuse(reader, "a range that descends");
    if (width < range->width || (width > range->width && *second == '0'))
        return refuse(reader, "a range whose ends differ in their leading zeros");
    if (range->last - range->first >= HOSTLIST_MAX) return refuse(reader, "a range of too many hosts");
    reader->at = second + width;
    return 0;
}

/* Reads "1-3,5]". */
static int read_bracket(struct hostlist_reader *reader, struct host_part *part) {
    part->count = 0;
    for (;;) {
        struct range range;
        int result = read_range(reader, &range);
        if (result < 0) return result;
        if (ARRAY_GROW(part->ranges, part->n_ranges) < 0) return -ENOMEM;
        part->count += (size_t)(range.last - range.first + 1);
        range.end = part->count;
        part->ranges[part->n_ranges++] = range;
        if (part->count > HOSTLIST_MAX) return refuse(reader, "too many hosts");
        if (*reader->at == ']') break;
        if (*reader->at != ',')
            return refuse(reader, *reader->at == '\0' ? "a bracket that is not closed"
                                                      : "a character that cannot stand in a bracket");
        reader->at++;
    }
    reader->at++;
    return 0;
}

static int read_item(struct hostlist *list, struct hostlist_reader *reader) {
    struct item item = {.first_part = list->n_parts};
    size_t before = hostlist_count(list), count = 1;
    while (*reader->at != ',' && *reader->at != '\0') {
        if (ARRAY_GROW(list->parts, list->n_parts) < 0) return -ENOMEM;
        struct host_part *part = &list->parts[list->n_parts++];
        *part = (struct host_part){.text = reader->at, .count = 1};
        part->text_size = strspn(reader->at, name_characters);
        reader->at += part->text_size;
        if (*reader->at == '[') {
            reader->at++;
            int result = read_bracket(reader, part);
            if (result < 0) return result;
        }
        if (reader->at == part->text) return refuse(reader, "a character that host names do not have");
        count *= part->count;
        if (before + count > HOSTLIST_MAX) return refuse(reader, "too many hosts");
    }
    item.n_parts = list->n_parts - item.first_part;
    if (item.n_parts == 0) return refuse(reader, "a name is missing");
    item.end = before + count;
    if (ARRAY_GROW(list->items, list->n_items) < 0) return -ENOMEM;
    list->items[list->n_items++] = item;
    return 0;
}

int hostlist_parse(const char *text, struct hostlist **list, ty_error *err) {
    struct hostlist *read = calloc(1, sizeof *read);
    if (read == NULL) return ty_fail_memory(err);
    read->text = strdup(text);
    struct hostlist_reader reader = {.at = read->text};
    int result = read->text == NULL ? -ENOMEM : read_item(read, &reader);
    for (; result == 0 && *reader.at != '\0'; result = read_item(read, &reader))
        reader.at++;
    if (result == 0) {
        *list = read;
        return 0;
    }
    if (result == -ENOMEM)
        (void)ty_fail_memory(err);
    else
        result = ty_fail(err, TY_EUSAGE,
                         "host list \"%.200s\": %s at character %zu; a list is like gpu[01-04,7],login", text,
                         reader.problem, (size_t)(reader.at - read->text) + 1);
    hostlist_destroy(read);
    return result;
}

static void write_number(const struct host_part *part, size_t index, struct buffer *out) {
    size_t low = 0, high = part->n_ranges - 1;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (index < part->ranges[middle].end)
            high = middle;
        else
            low = middle + 1;
    }
    const struct range *range = &part->ranges[low];
    buffer_printf(out, "%0*" PRIu64, range->width, range->last - (range->end - 1 - index));
}

static void write_name(const struct hostlist *list, const struct item *item, size_t index, struct buffer *out) {
    size_t block = 1; /* names for one number of the bracket at hand */
    for (size_t i = 0; i < item->n_parts; i++)
        block *= list->parts[item->first_part + i].count;
    for (size_t i = 0; i < item->n_parts; i++) {
        const struct host_part *part = &list->parts[item->first_part + i];
        block /= part->count;
        buffer_append(out, part->text, part->text_size);
        if (part->n_ranges > 0) write_number(part, index / block, out);
        index %= block;
    }
}

int hostlist_each(const struct hostlist *list, int (*each)(void *context, const char *name), void *context) {
    CLEANUP(buffer_done) struct buffer name = {0};
    size_t index = 0;
    for (size_t i = 0; i < list->n_items; i++) {
        for (size_t begin = index; index < list->items[i].end; index++) {
            buffer_clear(&name);
            write_name(list, &list->items[i], index - begin, &name);
            if (name.failed) return -ENOMEM;
            int result = each(context, name.data);
            if (result != 0) return result;
        }
    }
    return 0;
}
