/* Host names reach a command line of ssh, so what is no part of a name is refused: a host cannot be an option,
 * nor hold what a shell reads. Whether a host is there is found out by connecting, and whether two names are
 * one host is not found out at all: only the same name adds its slots up. */
#include "cluster/hosts.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/hostlist.h"
#include "base/str.h"

enum { FILE_MAX = 16 * 1024 * 1024, NAME_MAX_LENGTH = 255 };

struct naming {
    struct hosts hosts;
    struct hash *places; /* of names in `hosts` */
    uint32_t slots;      /* of the names that are being added */
    ty_error *err;
};

void hosts_done(struct hosts *hosts) {
    for (size_t i = 0; i < hosts->n; i++)
        free(hosts->items[i].name);
    free(hosts->items);
    *hosts = (struct hosts){0};
}

static void naming_done(struct naming *naming) {
    hosts_done(&naming->hosts);
    hash_destroy(naming->places);
}

/* -- one host */

static int check_name(const char *name, ty_error *err) {
    static const char others[] = "._-:%@+~";
    if (*name == '\0') return ty_fail(err, TY_EUSAGE, "a host has no name");
    if (*name == '-' || strstr(name, "@-") != NULL)
        return ty_fail(err, TY_EUSAGE, "host \"%.80s\": a name does not begin with '-'", name);
    for (const char *at = name; *at != '\0'; at++)
        if (!isalnum((unsigned char)*at) && strchr(others, *at) == NULL)
            return ty_fail(err, TY_EUSAGE,
                           "host \"%.80s\": a name has letters, digits, and of other characters only %s", name,
                           others);
    if (strlen(name) > NAME_MAX_LENGTH)
        return ty_fail(err, TY_EUSAGE, "host \"%.40s...\": a name has at most %d characters", name,
                       NAME_MAX_LENGTH);
    return 0;
}

static uint32_t at_least_one(uint32_t slots) {
    return slots > 0 ? slots : 1;
}

/* Of hostlist_each. A name without slots counts as one where the same name is there already: a file that lists
 * a host once for each of its processes says how many there are. */
static int add(void *context, const char *name) {
    struct naming *naming = context;
    struct hosts *hosts = &naming->hosts;
    int result = check_name(name, naming->err);
    if (result < 0) return result;
    const uintptr_t *place = hash_get(naming->places, name);
    if (place != NULL) {
        uint32_t *slots = &hosts->items[*place].slots;
        *slots = at_least_one(*slots) + at_least_one(naming->slots);
        if (*slots > HOST_SLOTS_MAX)
            return ty_fail(naming->err, TY_EUSAGE, "host %.80s: more than %d slots", name, HOST_SLOTS_MAX);
        return 0;
    }
    if (hosts->n == HOSTS_MAX) return ty_fail(naming->err, TY_EUSAGE, "more than %d hosts", HOSTS_MAX);
    if (ARRAY_GROW(hosts->items, hosts->n) < 0) return ty_fail_memory(naming->err);
    char *copy = strdup(name);
    if (copy == NULL || hash_set(naming->places, name, hosts->n) < 0) {
        free(copy);
        return ty_fail_memory(naming->err);
    }
    hosts->items[hosts->n++] = (struct host){copy, naming->slots};
    return 0;
}

static int parse_slots(const char *text, const char *of, uint32_t *slots, ty_error *err) {
    int64_t number;
    if (!str_to_int64(text, 1, HOST_SLOTS_MAX, &number))
        return ty_fail(err, TY_EUSAGE, "%.80s: \"%.40s\" is not a number of slots, 1 to %d", of, text,
                       HOST_SLOTS_MAX);
    *slots = (uint32_t)number;
    return 0;
}

static int take_own_slots(struct naming *naming, const char *word, const char *text) {
    if (naming->slots > 0) return ty_fail(naming->err, TY_EUSAGE, "host %.80s has its slots twice", word);
    return parse_slots(text, word, &naming->slots, naming->err);
}

/* NAME or NAME:SLOTS, where a host list stands for several names (gpu[01-04]:8). An address of IPv6 that has
 * its slots behind it is in brackets. */
static int take_word(struct naming *naming, char *word) {
    char *end = word[0] == '[' && strchr(word, ':') != NULL ? strchr(word, ']') : NULL;
    if (end != NULL && (end[1] == '\0' || end[1] == ':')) {
        /* [ADDRESS] or [ADDRESS]:SLOTS, of IPv6. */
        int result = end[1] == '\0' ? 0 : take_own_slots(naming, word, end + 2);
        *end = '\0';
        return result < 0 ? result : add(naming, word + 1);
    }
    char *colon = strrchr(word, ':');
    if (colon != NULL && strchr(word, ':') == colon) {
        int result = take_own_slots(naming, word, colon + 1);
        if (result < 0) return result;
        *colon = '\0';
    }
    if (strchr(word, '[') == NULL) return add(naming, word);
    struct hostlist *list;
    int result = hostlist_parse(word, &list, naming->err);
    if (result < 0) return result;
    result = hostlist_count(list) > HOSTS_MAX
                 ? ty_fail(naming->err, TY_EUSAGE, "%.80s: more than %d hosts", word, HOSTS_MAX)
                 : hostlist_each(list, add, naming);
    hostlist_destroy(list);
    return result;
}

/* -- where they are named */

static int take_piece(void *context, char *piece) {
    ((struct naming *)context)->slots = 0;
    return take_word(context, piece);
}

static int finish(struct naming *naming, struct hosts *hosts) {
    if (naming->hosts.n == 0) return ty_fail(naming->err, TY_EUSAGE, "names no host: as in a,b:8,gpu[01-04]");
    *hosts = naming->hosts;
    naming->hosts = (struct hosts){0};
    return 0;
}

int hosts_parse(const char *text, struct hosts *hosts, ty_error *err) {
    CLEANUP(naming_done) struct naming naming = {.places = hash_create(), .err = err};
    if (naming.places == NULL) return ty_fail_memory(err);
    int result = str_split(text, ',', take_piece, &naming);
    return result < 0 ? result : finish(&naming, hosts);
}

/* The next word of a line, in place; "=" behind it is taken, too. NULL: none is left. */
static char *next_word(char **line, bool *assigned) {
    static const char blanks[] = " \t\r";
    char *word = *line + strspn(*line, blanks);
    char *end = word + strcspn(word, " \t\r=");
    char *next = end + strspn(end, blanks);
    *assigned = *next == '=';
    if (end == word && !*assigned) return NULL;
    *line = *assigned ? next + 1 : next;
    *end = '\0';
    return word;
}

/* Behind a host: KEY=NUMBER, with blanks or without. A most alone is the number of slots, too. */
static int take_attributes(struct naming *naming, char *line) {
    static const char *const of_slots[] = {"slots", "count", "cpu"};
    static const char *const of_max[] = {"max_slots", "max-slots", "slots_max", "slots-max"};
    uint32_t max = 0;
    bool assigned;
    for (char *key; (key = next_word(&line, &assigned)) != NULL;) {
        uint32_t *field = str_find(key, of_slots, ARRAY_SIZE(of_slots)) >= 0 ? &naming->slots
                          : str_find(key, of_max, ARRAY_SIZE(of_max)) >= 0   ? &max
                                                                             : NULL;
        bool again;
        const char *value = assigned ? next_word(&line, &again) : NULL;
        if (field == NULL || value == NULL || again)
            return ty_fail(naming->err, TY_EUSAGE,
                           "\"%.80s\" is not what goes behind a host: slots=N, max_slots=N", key);
        int result = parse_slots(value, key, field, naming->err);
        if (result < 0) return result;
    }
    if (max > 0 && max < naming->slots)
        return ty_fail(naming->err, TY_EUSAGE, "max_slots=%u is less than slots=%u", max, naming->slots);
    if (naming->slots == 0) naming->slots = max;
    return 0;
}

static int take_line(struct naming *naming, char *line) {
    bool assigned;
    naming->slots = 0;
    line[strcspn(line, "#")] = '\0';
    char *name = next_word(&line, &assigned);
    if (name == NULL) return 0;
    if (assigned) return ty_fail(naming->err, TY_EUSAGE, "a line begins with a host, not with %.80s=", name);
    int result = take_attributes(naming, line);
    return result < 0 ? result : take_word(naming, name);
}

int hosts_read(const char *path, struct hosts *hosts, ty_error *err) {
    CLEANUP(naming_done) struct naming naming = {.places = hash_create(), .err = err};
    CLEANUP(buffer_done) struct buffer text = {0};
    if (naming.places == NULL) return ty_fail_memory(err);
    int result = file_read(path, FILE_MAX, &text, err);
    if (result < 0 && result != -ENOMEM && err != NULL) err->code = result = TY_EUSAGE;
    buffer_text(&text, "");
    if (result == 0 && text.failed) return ty_fail_memory(err);
    if (result == 0 && strlen(text.data) < text.size)
        result = ty_fail(err, TY_EUSAGE, "%.200s is no text: there is a zero byte in it", path);
    if (result < 0) return result;
    unsigned number = 0;
    for (char *line = text.data, *next; line != NULL && result == 0; line = next) {
        number++;
        next = strchr(line, '\n');
        if (next != NULL) *next++ = '\0';
        result = take_line(&naming, line);
    }
    if (result < 0) return ty_wrap(err, "%.200s:%u", path, number);
    result = finish(&naming, hosts);
    return result < 0 ? ty_wrap(err, "%.200s", path) : result;
}
