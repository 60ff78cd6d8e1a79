/* The shared bytes of shared.h. Large ones are mapped: what is freed goes back to the system at once, however
 * the heap lies around it, so that many large values that come and go take no more memory than those that are
 * there. */
#include "base/shared.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MAPPED = 256 << 10 };

static size_t whole_size(size_t size) {
    return sizeof(struct shared) + size + 1;
}

struct shared *shared_create(size_t size, size_t *account) {
    if (size > PTRDIFF_MAX - sizeof(struct shared) - 1) return NULL;
    size_t whole = whole_size(size);
    struct shared *shared = whole < MAPPED
                                ? malloc(whole)
                                : mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (shared == NULL || shared == MAP_FAILED) return NULL;
    *shared = (struct shared){.references = 1, .account = account, .size = size};
    shared->bytes[size] = '\0';
    if (account != NULL) *account += size;
    return shared;
}

struct shared *shared_copy(const void *bytes, size_t size, size_t *account) {
    struct shared *shared = shared_create(size, account);
    if (shared != NULL && size > 0) memcpy(shared->bytes, bytes, size);
    return shared;
}

struct shared *shared_hold(struct shared *shared) {
    if (shared != NULL) shared->references++;
    return shared;
}

void shared_release(struct shared *shared) {
    if (shared == NULL || --shared->references > 0) return;
    if (shared->account != NULL) *shared->account -= shared->size;
    size_t size = whole_size(shared->size);
    if (size < MAPPED)
        free(shared);
    else
        (void)munmap(shared, size);
}
