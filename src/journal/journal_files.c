/* A layer between SQLite and the system (a VFS) for run.db: locks that belong to open files, so that closing
 * another descriptor of the same file drops none, and an index of the log that is the run's user's alone, as
 * whoever may lock it can keep the writer from writing. The system's layer opens, reads and writes; what is
 * ours of a file lies behind what is the system's of it. */
#include "journal/journal_sqlite.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/file.h"
#include "base/str.h"

/* Where clients of SQLite lock: the lock bytes of its file format (sqlite.org/src/doc/trunk/src/os.h). */
enum {
    PENDING_BYTE = 0x40000000,
    RESERVED_BYTE = PENDING_BYTE + 1,
    SHARED_FIRST = PENDING_BYTE + 2,
    SHARED_SIZE = 510,
    INDEX_FIRST = JOURNAL_INDEX_USED - SQLITE_SHM_NLOCK,
    INDEX_WRITER = 0,    /* the first of these: who has it writes */
    INDEX_OF_NOBODY = 3, /* the size of an index that is to be made again */
};

struct region {
    void *at;
    size_t size;
};

struct held {
    const sqlite3_io_methods *system;
    sqlite3_io_methods methods;
    char *path;
    int fd;    /* of the file, for its locks; a log's is without any rights */
    int index; /* its locks; -1: not open */
    int map;   /* its bytes: a mapping keeps its file open, with the locks, in a child as well */
    int level; /* of the lock in run.db, SQLITE_LOCK_ */
    struct region *regions;
    int n_regions;
};

static sqlite3_vfs *system_layer;

static struct held *held_of(sqlite3_file *file) {
    size_t behind = ((size_t)system_layer->szOsFile + 7) & ~(size_t)7;
    return (struct held *)(void *)((char *)file + behind);
}

/* ----------------------------------------------------------------------------------------------------------
 * locks: the protocol of SQLite's own layer, so that other clients and we keep each other out as two of them do
 * (sqlite.org/lockingv3.html) */

/* The locks belong to an open file: those of a process would be gone as soon as it closes any descriptor of
 * that file, be it another library's. A kernel may have none; the process's own are better than none then. */
static int set_lock(int fd, short type, off_t first, off_t size) {
    static _Atomic bool by_process;
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = first, .l_len = size};
    const int command = by_process ? F_SETLK : F_OFD_SETLK; /* another thread may change that meanwhile */
    int result;
    do
        result = fcntl(fd, command, &lock);
    while (result < 0 && errno == EINTR);
    if (result == 0) return SQLITE_OK;
    if (errno == EINVAL && command == F_OFD_SETLK) {
        by_process = true;
        return set_lock(fd, type, first, size);
    }
    if (errno == EAGAIN || errno == EACCES) return SQLITE_BUSY;
    /* A file system without locks: the lock of the run keeps other writers away, and readers look twice. */
    if (errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP) return SQLITE_OK;
    return SQLITE_IOERR_LOCK;
}

/* The pending byte is passed through: a writer that waits for readers to end holds it, so that none begins. */
static int lock_shared(const struct held *held) {
    int rc = set_lock(held->fd, F_RDLCK, PENDING_BYTE, 1);
    if (rc != SQLITE_OK) return rc;
    rc = set_lock(held->fd, F_RDLCK, SHARED_FIRST, SHARED_SIZE);
    (void)set_lock(held->fd, F_UNLCK, PENDING_BYTE, 1);
    return rc;
}

/* SQLite asks for this lock once, when a journal is closed. A reader that is in the way is gone in a moment,
 * and none begins meanwhile; where one stays, the log stays too. */
static int lock_exclusive(struct held *held) {
    const struct timespec moment = {.tv_nsec = 5000000};
    int rc = held->level < SQLITE_LOCK_PENDING ? set_lock(held->fd, F_WRLCK, PENDING_BYTE, 1) : SQLITE_OK;
    if (rc != SQLITE_OK) return rc;
    held->level = SQLITE_LOCK_PENDING;
    rc = set_lock(held->fd, F_WRLCK, SHARED_FIRST, SHARED_SIZE);
    for (int tries = 0; rc == SQLITE_BUSY && tries < 100; tries++) {
        (void)nanosleep(&moment, NULL);
        rc = set_lock(held->fd, F_WRLCK, SHARED_FIRST, SHARED_SIZE);
    }
    return rc;
}

/* Of a database with a log SQLite holds SHARED as long as that is open, and asks for EXCLUSIVE when it closes;
 * RESERVED is for rollback journals, which no writer of ours makes. */
static int file_lock(sqlite3_file *file, int level) {
    struct held *held = held_of(file);
    if (held->level >= level) return SQLITE_OK;
    int rc = level == SQLITE_LOCK_SHARED     ? lock_shared(held)
             : level == SQLITE_LOCK_RESERVED ? set_lock(held->fd, F_WRLCK, RESERVED_BYTE, 1)
                                             : lock_exclusive(held);
    if (rc == SQLITE_OK) held->level = level;
    return rc;
}

/* Down to SHARED, or to nothing. The pending byte and the reserved one lie beside each other: one call opens
 * both. */
static int file_unlock(sqlite3_file *file, int level) {
    struct held *held = held_of(file);
    if (held->level <= level) return SQLITE_OK;
    int rc = level == SQLITE_LOCK_SHARED ? set_lock(held->fd, F_RDLCK, SHARED_FIRST, SHARED_SIZE) : SQLITE_OK;
    if (rc == SQLITE_OK) rc = set_lock(held->fd, F_UNLCK, PENDING_BYTE, SHARED_FIRST - PENDING_BYTE);
    if (rc == SQLITE_OK && level == SQLITE_LOCK_NONE)
        rc = set_lock(held->fd, F_UNLCK, SHARED_FIRST, SHARED_SIZE);
    if (rc == SQLITE_OK) held->level = level;
    return rc;
}

/* Asked only where a rollback journal lies beside the file, which no writer of ours leaves. */
static int file_check_reserved(sqlite3_file *file, int *reserved) {
    const struct held *held = held_of(file);
    int rc = held->level >= SQLITE_LOCK_RESERVED ? SQLITE_OK : set_lock(held->fd, F_WRLCK, RESERVED_BYTE, 1);
    *reserved = held->level >= SQLITE_LOCK_RESERVED || rc == SQLITE_BUSY;
    if (!*reserved) (void)set_lock(held->fd, F_UNLCK, RESERVED_BYTE, 1);
    return rc == SQLITE_BUSY ? SQLITE_OK : rc;
}

/* ----------------------------------------------------------------------------------------------------------
 * index */

static char *index_path(const struct held *held) {
    return str_format("%s-shm", held->path);
}

/* The index is its owner's alone: whoever can open it can lock it, and a lock for reading is enough to keep
 * the writer from writing. Other users' readers need none. */
static int open_index(struct held *held) {
    CLEANUP_FREE char *path = index_path(held);
    if (path == NULL) return SQLITE_NOMEM;
    CLEANUP_FD int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0) return SQLITE_CANTOPEN;
    (void)fchmod(fd, 0600);
    CLEANUP_FD int map = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (map < 0) return SQLITE_CANTOPEN;
    /* Of an index that nobody has open the content is void: a writer may have died within it. */
    int rc = set_lock(fd, F_WRLCK, JOURNAL_INDEX_USED, 1);
    if (rc == SQLITE_OK && ftruncate(fd, INDEX_OF_NOBODY) < 0) return SQLITE_IOERR_SHMOPEN;
    if (rc == SQLITE_OK || rc == SQLITE_BUSY) rc = set_lock(fd, F_RDLCK, JOURNAL_INDEX_USED, 1);
    if (rc != SQLITE_OK) return rc;
    held->index = TAKE_FD(fd);
    held->map = TAKE_FD(map);
    descriptors_withhold(held->index);
    descriptors_withhold(held->map);
    return SQLITE_OK;
}

/* SQLite asks for regions of 32 KiB. A system with larger pages maps from where a page begins: the region is
 * the end of such a mapping. */
static int map_region(struct held *held, int region, size_t size) {
    if (ARRAY_RESIZE(held->regions, (size_t)region + 1) < 0) return SQLITE_IOERR_NOMEM;
    while (held->n_regions <= region) {
        off_t first = (off_t)size * held->n_regions, begin = first & ~((off_t)sysconf(_SC_PAGESIZE) - 1);
        size_t whole = size + (size_t)(first - begin);
        char *at = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, held->map, begin);
        if (at == MAP_FAILED) return SQLITE_IOERR_SHMMAP;
        held->regions[held->n_regions++] = (struct region){at, whole};
    }
    return SQLITE_OK;
}

static int index_map(sqlite3_file *file, int region, int size, int extend, void volatile **at) {
    enum { PAGE = 4096 };
    struct held *held = held_of(file);
    struct stat status;
    *at = NULL;
    int rc = held->index < 0 ? open_index(held) : SQLITE_OK;
    if (rc != SQLITE_OK) return rc;
    if (held->n_regions <= region) {
        off_t needed = (off_t)size * (region + 1);
        if (fstat(held->index, &status) < 0) return SQLITE_IOERR_SHMSIZE;
        if (status.st_size < needed && extend == 0) return SQLITE_OK;
        /* Each page is written, so that a full disk is an error here and no signal later. */
        for (off_t page = status.st_size / PAGE; page < needed / PAGE; page++)
            if (pwrite(held->index, "", 1, page * PAGE + PAGE - 1) != 1) return SQLITE_IOERR_SHMSIZE;
        rc = map_region(held, region, (size_t)size);
        if (rc != SQLITE_OK) return rc;
    }
    const struct region *mapped = &held->regions[region];
    *at = (char *)mapped->at + (mapped->size - (size_t)size);
    return SQLITE_OK;
}

/* The lock of who writes stays from the first row to the end: another that took it between two would keep
 * rows off the record. */
static int index_lock(sqlite3_file *file, int first, int n, int flags) {
    if (first == INDEX_WRITER && (flags & SQLITE_SHM_UNLOCK) != 0) return SQLITE_OK;
    short type = (flags & SQLITE_SHM_UNLOCK) != 0   ? F_UNLCK
                 : (flags & SQLITE_SHM_SHARED) != 0 ? F_RDLCK
                                                    : F_WRLCK;
    return set_lock(held_of(file)->index, type, INDEX_FIRST + first, n);
}

static void index_barrier(sqlite3_file *file) {
    (void)file;
    atomic_thread_fence(memory_order_seq_cst);
}

/* With `forget` nobody else has the journal open, and run.db is all there is. */
static int index_unmap(sqlite3_file *file, int forget) {
    struct held *held = held_of(file);
    for (int i = 0; i < held->n_regions; i++)
        (void)munmap(held->regions[i].at, held->regions[i].size);
    free(held->regions);
    held->regions = NULL;
    held->n_regions = 0;
    if (held->index < 0) return SQLITE_OK;
    CLEANUP_FREE char *path = forget != 0 ? index_path(held) : NULL;
    if (path != NULL) (void)unlink(path);
    descriptors_close(&held->map);
    descriptors_close(&held->index);
    return SQLITE_OK;
}

/* ----------------------------------------------------------------------------------------------------------
 * files */

static int file_close(sqlite3_file *file) {
    struct held *held = held_of(file);
    (void)index_unmap(file, 0);
    int rc = held->system->xClose(file);
    descriptors_close(&held->fd);
    free(TAKE(held->path));
    return rc;
}

/* A file of the writer's: opened by the system's layer, and a second time for what that layer does not tell:
 * its locks (run.db), or whether the name is still that file's (run.db and the log). The methods are a copy of
 * the system's in which our own stand, as `methods` of each file. */
static int open_written(sqlite3_vfs *layer, const char *path, sqlite3_file *file, int flags, int *given) {
    (void)layer;
    int rc = system_layer->xOpen(system_layer, path, file, flags, given);
    if (rc != SQLITE_OK || (flags & (SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_WAL)) == 0) return rc;
    struct held *held = held_of(file);
    bool locked = (flags & SQLITE_OPEN_MAIN_DB) != 0;
    *held = (struct held){.system = file->pMethods, .methods = *file->pMethods, .index = -1, .map = -1};
    held->path = strdup(path);
    held->fd = open(path, locked ? O_RDWR | O_CLOEXEC : O_PATH | O_CLOEXEC);
    int why = errno; /* SQLite asks for it when all is undone */
    descriptors_withhold(held->fd);
    held->methods.xClose = file_close;
    if (locked) {
        held->methods.xLock = file_lock;
        held->methods.xUnlock = file_unlock;
        held->methods.xCheckReservedLock = file_check_reserved;
        held->methods.xShmMap = index_map;
        held->methods.xShmLock = index_lock;
        held->methods.xShmBarrier = index_barrier;
        held->methods.xShmUnmap = index_unmap;
    }
    file->pMethods = &held->methods;
    if (held->path != NULL && held->fd >= 0) return SQLITE_OK;
    rc = held->path == NULL ? SQLITE_NOMEM : SQLITE_CANTOPEN;
    (void)file_close(file);
    file->pMethods = NULL;
    errno = why;
    return rc;
}

/* Temporary files of SQLite, as for sorting, are no run's, and stay as they are. */
static int open_read(sqlite3_vfs *layer, const char *path, sqlite3_file *file, int flags, int *given) {
    (void)layer;
    const int lasting = SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL;
    if ((flags & lasting) != 0) {
        flags &= ~(SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_DELETEONCLOSE);
        flags |= SQLITE_OPEN_READONLY;
    }
    sqlite3_vfs *below = layer->pAppData;
    return below->xOpen(below, path, file, flags, given);
}

/* Whatever a reader would clear away, as the last one at a log does, stays. */
static int delete_nothing(sqlite3_vfs *layer, const char *path, int sync) {
    (void)layer, (void)path, (void)sync;
    return SQLITE_IOERR_DELETE;
}

static sqlite3_vfs writer, reader, lone_reader;
static int layers_made = SQLITE_ERROR;

/* The layer is the one below with another name and two calls of ours: what is open is the system's file. */
static int make_reader(sqlite3_vfs *layer, const char *name, const char *below) {
    sqlite3_vfs *system = sqlite3_vfs_find(below);
    if (system == NULL) return SQLITE_ERROR;
    *layer = *system;
    layer->zName = name;
    layer->pNext = NULL;
    layer->pAppData = system;
    layer->xOpen = open_read;
    layer->xDelete = delete_nothing;
    return sqlite3_vfs_register(layer, 0);
}

static void make_layers(void) {
    system_layer = sqlite3_vfs_find("unix");
    if (system_layer == NULL) return;
    writer = *system_layer;
    writer.zName = JOURNAL_WRITER;
    writer.pNext = NULL;
    writer.szOsFile = ((system_layer->szOsFile + 7) & ~7) + (int)sizeof(struct held);
    writer.xOpen = open_written;
    layers_made = sqlite3_vfs_register(&writer, 0);
    if (layers_made == SQLITE_OK) layers_made = make_reader(&reader, JOURNAL_READER, "unix");
    if (layers_made == SQLITE_OK) layers_made = make_reader(&lone_reader, JOURNAL_LONE_READER, "unix-none");
}

int journal_files_init(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, make_layers);
    return layers_made;
}

static bool is_named(int fd, const char *path) {
    struct stat open_file, named;
    return fstat(fd, &open_file) == 0 && stat(path, &named) == 0 && file_is_same(&open_file, &named);
}

static const struct held *find_held(sqlite3 *db, int which) {
    sqlite3_file *file = NULL;
    int rc = sqlite3_file_control(db, "main", which, &file);
    return rc == SQLITE_OK && file != NULL && file->pMethods != NULL ? held_of(file) : NULL;
}

bool journal_files_hold_name(sqlite3 *db) {
    const struct held *database = find_held(db, SQLITE_FCNTL_FILE_POINTER);
    return database != NULL && is_named(database->fd, database->path);
}

bool journal_files_are_local(sqlite3 *db) {
    const struct held *database = find_held(db, SQLITE_FCNTL_FILE_POINTER);
    return database != NULL && file_is_local(database->fd);
}

bool journal_files_hold_log(sqlite3 *db) {
    const struct held *database = find_held(db, SQLITE_FCNTL_FILE_POINTER);
    const struct held *log = find_held(db, SQLITE_FCNTL_JOURNAL_POINTER);
    if (log == NULL) return true; /* nothing was written yet */
    if (!is_named(log->fd, log->path)) return false;
    CLEANUP_FREE char *path = database->index >= 0 ? index_path(database) : NULL;
    return path == NULL || is_named(database->index, path);
}
