/* What Kubernetes takes as the name of an object, a label, a resource, an amount, an image: its server would
 * refuse other texts only when the manifests reach it, and an image that cannot be none of its nodes would ever
 * fetch. */
#include <ctype.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "engine/kubernetes.h"

#define SMALL "abcdefghijklmnopqrstuvwxyz"
#define CAPITALS "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

enum { LABEL_LONGEST = 63, DOMAIN_LONGEST = 253, TAG_LONGEST = 128 };

/* A letter or digit first and last, and of these letters between. */
static bool is_word(const char *text, size_t size, const char *letters) {
    return size > 0 && isalnum((unsigned char)text[0]) && isalnum((unsigned char)text[size - 1]) &&
           strspn(text, letters) >= size;
}

/* One such word, or several with a dot between. */
static bool is_domain(const char *text, size_t size, bool dots) {
    for (const char *end = text + size;; text++) {
        size_t part = dots ? strcspn(text, ".") : size;
        if (part > (size_t)(end - text)) part = (size_t)(end - text);
        if (!is_word(text, part, SMALL DIGITS "-")) return false;
        text += part;
        if (text == end) return true;
    }
}

int kubernetes_check_name(const char *text, size_t size, enum kubernetes_name kind, ty_error *err) {
    size_t longest = kind == KUBERNETES_OBJECT ? DOMAIN_LONGEST : LABEL_LONGEST;
    bool dots = kind != KUBERNETES_SPACE;
    if (size <= longest && is_domain(text, size, dots)) return 0;
    return ty_fail(err, TY_EUSAGE,
                   "must be a name in Kubernetes: small letters, digits%s and '-', a letter or digit first and "
                   "last%s, %zu at most",
                   dots ? ", '.'" : "", dots ? " and beside each dot" : "", longest);
}

int kubernetes_check_label(const char *key, const char *value, ty_error *err) {
    int result = label_check_key(key, err);
    const char *slash = strchr(key, '/');
    if (result >= 0 && slash != NULL && !is_domain(key, (size_t)(slash - key), true))
        return ty_fail(err, TY_EUSAGE,
                       "label key \"%.80s\": what stands before the '/' must be a domain in Kubernetes: small "
                       "letters, digits, '.' and '-'",
                       key);
    if (result >= 0 && value != NULL) result = label_check_value(key, value, err);
    return result;
}

/* -- resources -- */

int kubernetes_check_resource(const char *name, ty_error *err) {
    static const char *const own[] = {"cpu", "memory", "ephemeral-storage"};
    bool good = strchr(name, '/') != NULL
                    ? kubernetes_check_label(name, NULL, NULL) == 0
                    : str_find(name, own, ARRAY_SIZE(own)) >= 0 || str_prefix(name, "hugepages-", NULL);
    if (good) return 0;
    return ty_fail(
        err, TY_EUSAGE,
        "resource %.80s: Kubernetes has cpu, memory, ephemeral-storage, hugepages-SIZE, and others as "
        "DOMAIN/NAME, as in example.com/dongle",
        name);
}

/* A number without a sign, and what it is multiplied with: of letters, or a power of ten. */
static bool is_quantity(const char *text, const char **suffix) {
    static const char *const suffixes[] = {"",  "n", "u",  "m",  "k",  "M",  "G",  "T",
                                           "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
    size_t whole = strspn(text, DIGITS), point = text[whole] == '.';
    size_t fraction = point ? strspn(text + whole + 1, DIGITS) : 0;
    *suffix = text + whole + point + fraction;
    if (whole + fraction == 0) return false;
    if (str_find(*suffix, suffixes, ARRAY_SIZE(suffixes)) >= 0) return true;
    if (**suffix != 'e' && **suffix != 'E') return false;
    const char *power = *suffix + 1;
    power += *power == '+' || *power == '-';
    return *power != '\0' && power[strspn(power, DIGITS)] == '\0';
}

int kubernetes_check_amount(const char *name, const char *amount, ty_error *err) {
    const char *suffix;
    bool good = is_quantity(amount, &suffix), device = strchr(name, '/') != NULL;
    if (good && device) good = amount[strspn(amount, DIGITS)] == '\0';
    if (good && !str_equal(name, "cpu")) good = strchr("num", *suffix) == NULL || *suffix == '\0';
    if (good) return 0;
    return ty_fail(err, TY_EUSAGE, "%.80s: the amount \"%.80s\" must be %s", name, amount,
                   device                   ? "a whole number: Kubernetes gives no parts of these"
                   : str_equal(name, "cpu") ? "as Kubernetes writes CPUs: 2, 0.5 or 500m"
                                            : "as Kubernetes writes bytes: 1000, 500M, 1.5Gi");
}

/* -- images -- */

/* [HOST[:PORT]/]PATH, of which the host is what a path cannot be. */
static bool is_repository(const char *text, size_t size) {
    const char *slash = memchr(text, '/', size), *end = text + size;
    size_t host = slash != NULL ? (size_t)(slash - text) : 0;
    bool named = strcspn(text, ".:" CAPITALS) < host || (host == 9 && strncmp(text, "localhost", host) == 0);
    if (named && strspn(text, SMALL CAPITALS DIGITS "-._:[]") < host) return false;
    if (named) text = slash + 1;
    for (;; text++) {
        const char *next = memchr(text, '/', (size_t)(end - text));
        size_t part = (size_t)((next != NULL ? next : end) - text);
        if (!is_word(text, part, SMALL DIGITS "-._")) return false;
        if (next == NULL) return true;
        text += part;
    }
}

int kubernetes_check_image(const char *text, ty_error *err) {
    size_t size = strcspn(text, "@");
    const char *digest = text + size, *tag = digest;
    while (tag > text && tag[-1] != '/' && tag[-1] != ':')
        tag--;
    bool tagged = tag > text && tag[-1] == ':', good = true;
    if (tagged) {
        size_t length = (size_t)(digest - tag);
        good = length > 0 && length <= TAG_LONGEST && strspn(tag, SMALL CAPITALS DIGITS "-._") >= length;
        size = (size_t)(tag - 1 - text);
    }
    if (*digest == '@') good = good && strchr(digest, ':') != NULL && digest[1] != ':';
    if (good && is_repository(text, size)) return 0;
    return ty_fail(err, TY_EUSAGE,
                   "must be [HOST[:PORT]/]NAME[:TAG][@DIGEST], as in registry.example/train:1, NAME of small "
                   "letters, digits, '-', '.', '_' and '/'");
}
