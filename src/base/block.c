/* The blocks of block.h: a few places, for all threads. Nobody waits for the lock, which may have been held
 * when this process was forked: without it a block is one of malloc. What a block is for is its user's; none is
 * zeroed. */
#include "base/block.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/cleanup.h"

/* LEAST: of less than that malloc asks the kernel seldom. */
enum { KEPT = 4, LEAST = 128 << 10 };

static struct {
    pthread_mutex_t lock;
    void *blocks[KEPT];
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

void *block_take(size_t size) {
    void *block = NULL;
    if (size >= LEAST && pthread_mutex_trylock(&kept.lock) == 0) {
        for (int i = 0; i < KEPT && block == NULL; i++)
            if (malloc_usable_size(kept.blocks[i]) >= size) block = TAKE(kept.blocks[i]);
        (void)pthread_mutex_unlock(&kept.lock);
    }
    return block != NULL ? block : malloc(size);
}

void block_give(void *block) {
    if (malloc_usable_size(block) >= LEAST && pthread_mutex_trylock(&kept.lock) == 0) {
        for (int i = 0; i < KEPT && block != NULL; i++)
            if (kept.blocks[i] == NULL) kept.blocks[i] = TAKE(block);
        (void)pthread_mutex_unlock(&kept.lock);
    }
    free(block);
}

void block_drop(void) {
    if (pthread_mutex_trylock(&kept.lock) != 0) return;
    for (int i = 0; i < KEPT; i++)
        free(TAKE(kept.blocks[i]));
    (void)pthread_mutex_unlock(&kept.lock);
}
