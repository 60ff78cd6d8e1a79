/* Each file is opened below the descriptor of its directory, links not followed, and without waiting for
 * whoever may write into a FIFO. Served are logs, what is found in them, saved stacks and profiles; nothing of
 * them is changed. */
#include "web/run_output.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/stack_save.h"
#include "base/array.h"
#include "base/cleanup.h"
#include "base/duration.h"
#include "base/str.h"
#include "controller/run_directory.h"
#include "view/export.h"

enum { LINE_SHOWN = 400, CHUNK = 256 << 10, LAST_BYTES = 4096 };

/* A run's directory may be reached by links, its logs must lie in it. */
static int open_logs(const char *run_path, ty_error *err) {
    CLEANUP_FD int run = open(run_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = run < 0 ? -1 : openat(run, "logs", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) return fd;
    if (errno == ELOOP || errno == ENOTDIR)
        return ty_fail(err, TY_EUSAGE, "logs is no directory of the run: refused");
    return ty_fail(err, -errno, "cannot open %s/logs: %s", run_path, strerror(errno));
}

/* A FIFO is opened without waiting for a writer (O_NONBLOCK), a terminal does not become ours (O_NOCTTY); then
 * either is refused as no regular file. */
static int open_file(int directory, const char *name, struct stat *status, ty_error *err) {
    int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 && (errno == ELOOP || errno == ENXIO))
        return ty_fail(err, TY_EUSAGE, "%s is no regular file: refused", name);
    if (fd < 0) return ty_fail(err, -errno, "cannot open %s: %s", name, strerror(errno));
    if (fstat(fd, status) == 0 && S_ISREG(status->st_mode)) return fd;
    (void)close(fd);
    return ty_fail(err, TY_EUSAGE, "%s is no regular file: refused", name);
}

static int open_rank(const char *run_path, int rank, struct stat *status, ty_error *err) {
    char name[32];
    CLEANUP_FD int directory = open_logs(run_path, err);
    if (directory < 0) return directory;
    (void)snprintf(name, sizeof name, "rank-%d.log", rank);
    return open_file(directory, name, status, err);
}

int run_output_open(const char *run_path, int rank, ty_error *err) {
    struct stat status;
    return open_rank(run_path, rank, &status, err);
}

static int compare_ints(const void *a, const void *b) {
    const int *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Ranks that have a file with this ending, sorted, and the directory; the caller's. Where no worker has begun
 * yet there is no directory, and no rank: `*logs` is below 0. */
static int list_ranks(const char *run_path, const char *ending, int *logs, int **ranks, size_t *n,
                      ty_error *err) {
    *logs = open_logs(run_path, err);
    if (*logs < 0) return *logs == -ENOENT && access(run_path, F_OK) == 0 ? 0 : *logs;
    CLEANUP_FD int copy = fcntl(*logs, F_DUPFD_CLOEXEC, 0);
    DIR *entries = copy >= 0 ? fdopendir(copy) : NULL;
    if (entries == NULL) return ty_fail(err, -errno, "cannot read logs: %s", strerror(errno));
    (void)TAKE_FD(copy); /* it is the stream's */
    int result = 0;
    for (struct dirent *entry; result == 0 && (entry = readdir(entries)) != NULL;) {
        int rank = run_directory_rank(entry->d_name, ending);
        if (rank < 0) continue;
        if (ARRAY_GROW(*ranks, *n) < 0)
            result = ty_fail_memory(err);
        else
            (*ranks)[(*n)++] = rank;
    }
    (void)closedir(entries);
    if (*n > 0) qsort(*ranks, *n, sizeof **ranks, compare_ints);
    return result;
}

void run_output_profiles(const char *run_path, struct buffer *out) {
    CLEANUP(idset_done) struct idset ranks = {0};
    CLEANUP_FD int fd = view_profiles_open(run_path);
    const char *between = "";
    buffer_text(out, "{\"profiles\": [");
    if (fd >= 0) (void)view_profiles_list(fd, &ranks);
    for (int64_t rank = -1; (rank = idset_next(&ranks, rank)) != IDSET_END;) {
        struct stat status;
        char name[VIEW_PROFILE_NAME];
        view_profile_name((int)rank, name);
        if (fstatat(fd, name, &status, AT_SYMLINK_NOFOLLOW) < 0) continue;
        buffer_printf(out, "%s{\"rank\": %d, \"name\": \"%s\", \"size\": %lld}", between, (int)rank, name,
                      (long long)status.st_size);
        between = ", ";
    }
    buffer_text(out, "]}");
}

int run_output_profile(const char *run_path, int rank, ty_error *err) {
    CLEANUP_FD int directory = view_profiles_open(run_path);
    struct stat status;
    char name[VIEW_PROFILE_NAME];
    view_profile_name(rank, name);
    int fd = directory < 0 ? -ENOENT : open_file(directory, name, &status, err);
    return fd == -ENOENT ? ty_fail(err, -ENOENT, "rank %d has no profile", rank) : fd;
}

int run_output_list(const char *run_path, struct buffer *out, ty_error *err) {
    CLEANUP_FREE int *ranks = NULL;
    CLEANUP_FD int logs = -1;
    size_t n = 0;
    int result = list_ranks(run_path, ".log", &logs, &ranks, &n, err);
    if (result < 0) return result;
    const char *between = "";
    buffer_text(out, "{\"ranks\": [");
    for (size_t i = 0; i < n; i++) {
        char name[32];
        struct stat status;
        (void)snprintf(name, sizeof name, "rank-%d.log", ranks[i]);
        if (fstatat(logs, name, &status, AT_SYMLINK_NOFOLLOW) < 0) continue;
        if (S_ISREG(status.st_mode))
            buffer_printf(out, "%s{\"rank\": %d, \"size\": %lld, \"modified\": %lld.%03ld}", between, ranks[i],
                          (long long)status.st_size, (long long)status.st_mtim.tv_sec,
                          status.st_mtim.tv_nsec / 1000000);
        else
            buffer_printf(out, "%s{\"rank\": %d, \"size\": null, \"error\": \"no regular file: refused\"}",
                          between, ranks[i]);
        between = ", ";
    }
    buffer_text(out, "]}");
    return 0;
}

/* As much as there is; less than `size` is the end of the file. */
static ssize_t read_at(int fd, char *out, size_t size, int64_t from) {
    size_t done = 0;
    while (done < size) {
        ssize_t got = pread(fd, out + done, size - done, from + (int64_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -errno;
        if (got == 0) break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

/* Bytes at the end that begin a character and do not finish it. */
static size_t unfinished(const char *text, size_t size) {
    for (size_t back = 1; back <= 3 && back <= size; back++) {
        unsigned char c = (unsigned char)text[size - back];
        if ((c & 0xc0) == 0x80) continue;
        size_t length = c >= 0xf0 && c <= 0xf4 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 1;
        return c < 0xf5 && length > back ? back : 0;
    }
    return 0;
}

/* A file that is cut off or written on meanwhile is told as it was when it was read. */
int run_output_read(const char *run_path, int rank, int64_t from, int64_t bytes, struct buffer *out,
                    ty_error *err) {
    struct stat status;
    CLEANUP_FD int fd = open_rank(run_path, rank, &status, err);
    if (fd < 0) return fd;
    int64_t size = status.st_size;
    if (from < 0) from = from < -size ? 0 : size + from;
    if (from > size) from = size; /* the file was cut off since */
    CLEANUP_FREE char *text = malloc((size_t)bytes + 1);
    if (text == NULL) return ty_fail_memory(err);
    ssize_t got = read_at(fd, text, (size_t)bytes, from);
    if (got < 0) return ty_fail(err, (int)got, "cannot read the log of rank %d: %s", rank, strerror((int)-got));
    size_t kept = (size_t)got, open_end = unfinished(text, kept);
    if (open_end < kept) kept -= open_end;
    buffer_printf(out, "{\"rank\": %d, \"from\": %lld, \"next\": %lld, \"size\": %lld, \"text\": ", rank,
                  (long long)from, (long long)from + (long long)kept,
                  (long long)(size > from + got ? size : from + got));
    buffer_json_string(out, text, kept);
    buffer_char(out, '}');
    return 0;
}

/* A line that is drawn again and again is what was drawn last. Colours (CSI ... m) are left out; any other
 * escape stays to be seen, as text. */
static void add_plain(const char *text, size_t size, struct buffer *out) {
    CLEANUP(buffer_done) struct buffer bare = {0};
    while (size > 0 && text[size - 1] == '\r')
        size--;
    const char *drawn = memrchr(text, '\r', size);
    for (size_t i = drawn != NULL ? (size_t)(drawn + 1 - text) : 0; i < size;) {
        size_t n = size - i > 2 && text[i] == '\033' && text[i + 1] == '[' ? 2 : 0;
        while (n > 0 && i + n < size && ((text[i + n] >= '0' && text[i + n] <= '9') || text[i + n] == ';'))
            n++;
        if (n > 0 && i + n < size && text[i + n] == 'm')
            i += n + 1;
        else
            buffer_char(&bare, text[i++]);
    }
    if (bare.size > 0) utf8_escape(bare.data, bare.size, out);
    buffer_char(out, '\n');
}

void run_output_last(const char *run_path, int rank, int lines, struct buffer *out) {
    char text[LAST_BYTES];
    struct stat status;
    CLEANUP_FD int fd = open_rank(run_path, rank, &status, NULL);
    if (fd < 0) return;
    int64_t from = status.st_size > LAST_BYTES ? status.st_size - LAST_BYTES : 0;
    ssize_t got = read_at(fd, text, LAST_BYTES, from);
    if (got <= 0) return;
    const char *end = text + got, *at = end;
    for (int n = 0; at > text && (n += at[-1] == '\n' && at < end) < lines; at--)
        continue;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t size = (size_t)((newline != NULL ? newline : end) - at);
        add_plain(at, size, out);
        at += size + 1;
    }
}

/* -- search */

struct output_search {
    const char *text; /* in small letters */
    size_t size;
    nanoseconds until;
    struct buffer hits, counts;
    int n;         /* hits in all */
    int next_rank; /* where to go on, -1: it is done */
    int64_t next_offset;
};

/* A hit is shown with its line, or as much of a long one as stands around it; `base`: offset of the piece. */
static void add_hit(struct output_search *search, int rank, const char *text, size_t size, size_t at,
                    int64_t base) {
    size_t begin = at, end = at;
    while (begin > 0 && text[begin - 1] != '\n' && at - begin < LINE_SHOWN / 4)
        begin--;
    while (end < size && text[end] != '\n' && end - begin < LINE_SHOWN)
        end++;
    buffer_printf(&search->hits, "%s{\"rank\": %d, \"offset\": %lld, \"line\": ", search->n++ == 0 ? "" : ", ",
                  rank, (long long)base + (long long)begin);
    buffer_json_string(&search->hits, text + begin, end - begin);
    buffer_char(&search->hits, '}');
}

/* All hits of a piece; how far it was looked through: up to the line behind the last hit, or all but what a hit
 * could begin in. */
static size_t search_piece(struct output_search *search, int rank, const char *text, const char *small,
                           size_t size, bool last, int64_t base, int *found) {
    size_t at = 0;
    while (at + search->size <= size && search->n < OUTPUT_HITS) {
        const char *hit = memmem(small + at, size - at, search->text, search->size);
        if (hit == NULL) break;
        size_t place = (size_t)(hit - small);
        const char *end = memchr(hit, '\n', size - place);
        if (end == NULL && !last && place > 0 && size - place < LINE_SHOWN) return place; /* its line goes on */
        add_hit(search, rank, text, size, place, base);
        ++*found;
        at = end != NULL ? (size_t)(end - small) + 1 : size;
    }
    if (search->n >= OUTPUT_HITS || last) return at > 0 && search->n >= OUTPUT_HITS ? at : size;
    return size - search->size + 1 > at ? size - search->size + 1 : at;
}

/* Piece by piece, each from where the one before was looked through: a hit that lies across two is found in the
 * second. Where the time or the hits are used up the place to go on is noted. */
static void search_file(struct output_search *search, int fd, int rank, int64_t offset, char *text,
                        char *small) {
    int found = 0;
    while (search->next_rank < 0) {
        ssize_t got = read_at(fd, text, CHUNK, offset);
        if (got <= 0) break;
        for (ssize_t i = 0; i < got; i++)
            small[i] = (char)tolower((unsigned char)text[i]);
        bool last = got < CHUNK;
        offset += (int64_t)search_piece(search, rank, text, small, (size_t)got, last, offset, &found);
        if (search->n >= OUTPUT_HITS || (!last && clock_monotonic() >= search->until)) {
            search->next_rank = rank;
            search->next_offset = offset;
        } else if (last) {
            break;
        }
    }
    if (found > 0)
        buffer_printf(&search->counts, "%s{\"rank\": %d, \"hits\": %d}", search->counts.size == 0 ? "" : ", ",
                      rank, found);
}

static bool parse_cursor(const char *text, int *rank, int64_t *offset) {
    char digits[24];
    int64_t number;
    size_t n = strcspn(text, ":");
    if (text[n] != ':' || n >= sizeof digits) return false;
    memcpy(digits, text, n);
    digits[n] = '\0';
    if (!str_to_int64(digits, 0, INT32_MAX, &number) ||
        !str_to_int64(text + n + 1, 0, INT64_MAX - CHUNK, offset))
        return false;
    *rank = (int)number;
    return true;
}

/* A rank is begun only while there is time, but for the one that the cursor names: else a slow storage would
 * give no progress at all. */
static void search_ranks(struct output_search *search, int logs, const int *ranks, size_t n,
                         const struct idset *chosen, int from, int64_t offset, char *memory) {
    for (size_t i = 0; i < n && search->next_rank < 0; i++) {
        char name[32];
        struct stat status;
        if (ranks[i] < from || (chosen != NULL && !idset_has(chosen, ranks[i]))) continue;
        if (clock_monotonic() >= search->until && ranks[i] != from) {
            search->next_rank = ranks[i];
            search->next_offset = 0;
            break;
        }
        (void)snprintf(name, sizeof name, "rank-%d.log", ranks[i]);
        CLEANUP_FD int fd = open_file(logs, name, &status, NULL);
        if (fd >= 0) search_file(search, fd, ranks[i], ranks[i] == from ? offset : 0, memory, memory + CHUNK);
    }
}

int run_output_search(const char *run_path, const char *text, const struct idset *chosen, const char *cursor,
                      struct buffer *out, ty_error *err) {
    CLEANUP_FREE int *ranks = NULL;
    CLEANUP_FREE char *memory = malloc(2 * CHUNK);
    CLEANUP_FD int logs = -1;
    char small[OUTPUT_QUERY_MAX + 1];
    size_t n = 0, size = strlen(text);
    int from = 0;
    int64_t offset = 0;
    if (cursor != NULL && !parse_cursor(cursor, &from, &offset))
        return ty_fail(err, TY_EUSAGE, "cursor=%.80s: must be one that a search gave", cursor);
    if (size == 0 || size > OUTPUT_QUERY_MAX)
        return ty_fail(err, TY_EUSAGE, "q=%.80s: must be 1 to %d bytes of text", text, OUTPUT_QUERY_MAX);
    if (memory == NULL) return ty_fail_memory(err);
    for (size_t i = 0; i <= size; i++)
        small[i] = (char)tolower((unsigned char)text[i]);
    int result = list_ranks(run_path, ".log", &logs, &ranks, &n, err);
    if (result < 0) return result;
    struct output_search search = {.text = small,
                                   .size = size,
                                   .next_rank = -1,
                                   .until = clock_monotonic() + OUTPUT_SEARCH_MS * NS_PER_MS};
    search_ranks(&search, logs, ranks, n, chosen, from, offset, memory);
    buffer_printf(out, "{\"hits\": [%s], \"counts\": [%s], \"cursor\": ",
                  search.hits.data != NULL ? search.hits.data : "",
                  search.counts.data != NULL ? search.counts.data : "");
    if (search.next_rank >= 0)
        buffer_printf(out, "\"%d:%lld\"}", search.next_rank, (long long)search.next_offset);
    else
        buffer_text(out, "null}");
    out->failed |= search.hits.failed || search.counts.failed;
    buffer_done(&search.hits);
    buffer_done(&search.counts);
    return 0;
}

/* -- stacks */

/* The last record of the file: it begins with the last line of the first kind of part behind another kind. */
static void read_frames(int fd, int64_t size, struct buffer *out) {
    int64_t from = size > OUTPUT_READ_MAX ? size - OUTPUT_READ_MAX : 0;
    CLEANUP_FREE char *text = malloc(OUTPUT_READ_MAX);
    ssize_t got = text != NULL ? read_at(fd, text, OUTPUT_READ_MAX, from) : -1;
    if (got <= 0) return;
    size_t begin = 0;
    for (const char *at = text; (at = memmem(at, (size_t)(text + got - at), "\n==== ", 6)) != NULL; at++)
        begin = (size_t)(at - text) + 1;
    stack_text_frames(text + begin, (size_t)got - begin, out);
}

int run_output_stacks(const char *run_path, bool actions, struct buffer *out, ty_error *err) {
    CLEANUP_FREE int *ranks = NULL;
    CLEANUP(stack_groups_done) struct stack_groups groups = {0};
    CLEANUP_FD int logs = -1;
    size_t n = 0;
    int result = list_ranks(run_path, ".stack", &logs, &ranks, &n, err);
    if (result < 0) return result;
    for (size_t i = 0; i < n && result == 0; i++) {
        char name[32];
        struct stat status;
        struct buffer frames = {0};
        (void)snprintf(name, sizeof name, "rank-%d.stack", ranks[i]);
        CLEANUP_FD int fd = open_file(logs, name, &status, NULL);
        if (fd < 0) continue;
        buffer_text(&frames, "");
        read_frames(fd, status.st_size, &frames);
        double at = (double)status.st_mtim.tv_sec + (double)status.st_mtim.tv_nsec / 1e9;
        if (stack_groups_add(&groups, ranks[i], buffer_take(&frames), at) < 0) result = ty_fail_memory(err);
    }
    if (result == 0) stack_groups_sort(&groups);
    buffer_printf(out, "{\"actions\": %s, \"groups\": ", actions ? "true" : "false");
    stack_groups_json(&groups, out);
    buffer_char(out, '}');
    return result;
}
