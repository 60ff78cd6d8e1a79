/* Reading and writing through one piece of memory is as fast as copy_file_range here, and the checksum of what
 * was written costs no second look at it; a file that changes meanwhile gets the checksum of what was stored.
 *
 * A large file goes past the page cache where the file system is a local one: that takes no memory from the
 * training, its sync finds nothing left to do, and it is the faster way. */
#include "checkpoint/copy.h"
#include "checkpoint/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/file.h"

/* COPY_PIECE: what is read, summed and written at once through the page cache, while the processor's cache
 * holds it; past the page cache the more the better, up to BYTES_ROOM. */
enum {
    CLONE_MIN = 64 << 10,
    PUSH = 512 << 10,
    COPY_PIECE = 128 << 10,
    DIRECT_MIN = 8 << 20,
    DIRECT_ALIGN = 4096
};

struct pass {
    struct bytes *bytes;
    int from, to; /* `to` is -1 when only the checksum is wanted */
    int64_t at;
    int64_t pushed; /* up to here the kernel was asked to write */
    bool direct;    /* `to` is written past the page cache */
    XXH3_state_t hash;
};

bool digest_equal(const struct digest *a, const struct digest *b) {
    return a->size == b->size && strcmp(a->xxh3, b->xxh3) == 0;
}

int bytes_init(struct bytes *bytes) {
    *bytes = (struct bytes){.room = aligned_alloc(DIRECT_ALIGN, BYTES_ROOM)};
    return bytes->room != NULL ? 0 : -ENOMEM;
}

void bytes_done(struct bytes *bytes) {
    free(bytes->room);
    bytes->room = NULL;
}

static void tell(XXH128_hash_t hash, int64_t size, struct digest *digest) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, hash);
    for (size_t i = 0; i < sizeof canonical.digest; i++)
        for (int half = 0; half < 2; half++)
            digest->xxh3[2 * i + (size_t)half] =
                "0123456789abcdef"[canonical.digest[i] >> (half == 0 ? 4 : 0) & 15];
    digest->xxh3[DIGEST_SIZE - 1] = '\0';
    digest->size = size;
}

void bytes_digest_memory(const void *data, size_t size, struct digest *digest) {
    tell(XXH3_128bits(data, size), (int64_t)size, digest);
}

/* Network file systems are left to their own caches, which keep many writes under way. */
static bool set_direct(int fd, bool direct) {
    struct statfs fs;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fstatfs(fd, &fs) < 0) return false;
    bool local = fs.f_type == EXT4_SUPER_MAGIC || fs.f_type == XFS_SUPER_MAGIC;
    return local && fcntl(fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

/* What cannot be written past the cache (the last piece; a device with larger blocks) is written through it. */
static int store(struct pass *pass, size_t size) {
    if (pass->direct && size % DIRECT_ALIGN == 0) {
        ssize_t n = write(pass->to, pass->bytes->room, size);
        if (n == (ssize_t)size) return 0;
        if (n >= 0 && lseek(pass->to, pass->at, SEEK_SET) < 0) return -errno;
        if (n < 0 && errno != EINVAL && errno != EINTR) return -errno;
    }
    if (pass->direct && !set_direct(pass->to, false)) return -EIO;
    pass->direct = false;
    return file_write_all(pass->to, pass->bytes->room, size);
}

/* One piece of at most `most` bytes: 1, 0 at the end, -errno. */
static int step(struct pass *pass, int64_t most) {
    int64_t room = pass->direct ? BYTES_ROOM : COPY_PIECE;
    if (pass->bytes->enough != NULL && *pass->bytes->enough) return -ECANCELED;
    size_t size = (size_t)(most < room ? most : room), have = 0;
    /* A whole piece, also where the file system gives less at once: what goes past the page cache is written in
     * multiples of DIRECT_ALIGN. */
    while (have < size) {
        ssize_t n = read(pass->from, pass->bytes->room + have, size - have);
        if (n < 0 && errno != EINTR) return -errno;
        if (n == 0) break;
        if (n > 0) have += (size_t)n;
    }
    if (have == 0) return 0;
    (void)XXH3_128bits_update(&pass->hash, pass->bytes->room, have);
    int result = pass->to >= 0 ? store(pass, have) : 0;
    if (result < 0) return result;
    pass->at += (int64_t)have;
    /* Syncing later finds most of the work done. Errors are the business of that sync. */
    if (pass->to >= 0 && !pass->direct && pass->at - pass->pushed >= PUSH) {
        (void)sync_file_range(pass->to, pass->pushed, pass->at - pass->pushed, SYNC_FILE_RANGE_WRITE);
        pass->pushed = pass->at;
    }
    return 1;
}

/* From data to hole to data, as far as the file was long when it was looked at. Where another process has cut
 * it off meanwhile the walk ends. */
static int pass_sparse(struct pass *pass, int64_t size) {
    while (pass->at < size) {
        int result = 0;
        int64_t data = lseek(pass->from, pass->at, SEEK_DATA);
        if (data < 0 && errno != ENXIO) return -errno; /* ENXIO: a hole up to the end */
        int64_t hole_end = data >= 0 ? data : size;
        memset(pass->bytes->room, 0, COPY_PIECE);
        while (pass->at < hole_end) { /* a hole counts as zeros and takes no room on the disk */
            int64_t zeros = hole_end - pass->at < COPY_PIECE ? hole_end - pass->at : COPY_PIECE;
            (void)XXH3_128bits_update(&pass->hash, pass->bytes->room, (size_t)zeros);
            pass->at += zeros;
        }
        /* To look for data or a hole moves the place from which is read. */
        if (lseek(pass->from, pass->at, SEEK_SET) < 0) return -errno;
        if (pass->to >= 0 && lseek(pass->to, pass->at, SEEK_SET) < 0) return -errno;
        int64_t hole = lseek(pass->from, pass->at, SEEK_HOLE);
        if (hole < 0 && errno != ENXIO) return -errno;
        if (lseek(pass->from, pass->at, SEEK_SET) < 0) return -errno;
        while (pass->at < hole && (result = step(pass, hole - pass->at)) > 0) {
        }
        if (result < 0) return result;
        if (pass->at < hole) break; /* cut off meanwhile */
    }
    return pass->to >= 0 && ftruncate(pass->to, pass->at) < 0 ? -errno : 0;
}

/* A file with less on the disk than its size has holes; a file system that compresses only seems to have some,
 * and names none when it is asked. */
static int pass_all(struct bytes *bytes, int from, int to, const struct stat *status, struct digest *digest) {
    struct pass pass = {.bytes = bytes, .from = from, .to = to};
    (void)XXH3_128bits_reset(&pass.hash);
    if (status->st_size > COPY_PIECE) (void)posix_fadvise(from, 0, 0, POSIX_FADV_SEQUENTIAL);
    bool sparse = status->st_blocks * 512 < status->st_size;
    pass.direct = to >= 0 && !sparse && status->st_size >= DIRECT_MIN && set_direct(to, true);
    int result = sparse ? pass_sparse(&pass, status->st_size) : 1;
    while (result > 0)
        result = step(&pass, BYTES_ROOM);
    if (result == 0) tell(XXH3_128bits_digest(&pass.hash), pass.at, digest);
    return result;
}

int bytes_copy(struct bytes *bytes, int from, const struct stat *status, int to, struct digest *digest) {
    /* Shared blocks cost nothing to copy; then the copy itself is read for the checksum. */
    if (!bytes->cannot_clone && status->st_size >= CLONE_MIN) {
        if (ioctl(to, FICLONE, from) == 0) return bytes_digest(bytes, to, digest);
        /* Nor will the next file of this checkpoint: all of them lie on the same file systems. */
        bytes->cannot_clone = true;
    }
    return pass_all(bytes, from, to, status, digest);
}

int bytes_digest(struct bytes *bytes, int fd, struct digest *digest) {
    struct stat status;
    if (fstat(fd, &status) < 0) return -errno;
    return pass_all(bytes, fd, -1, &status, digest);
}
