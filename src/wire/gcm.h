/* AES-128-GCM (NIST SP 800-38D) by the 256-bit instructions for it that x86 processors have since 2020 (VAES,
 * VPCLMULQDQ): twice as fast as OpenSSL, which uses them only beside AVX-512, and from 3.1 on. How long it
 * takes depends on sizes alone. Pure. Part of the module tls. */
#ifndef WIRE_GCM_H
#define WIRE_GCM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GCM_BLOCK = 16, GCM_ROUNDS = 10, GCM_AT_ONCE = 16 };

/* Of one key: what each round adds, and the powers of the key of the hash, the highest first. Secret. */
struct gcm_key {
    uint8_t round[GCM_ROUNDS + 1][GCM_BLOCK], power[GCM_AT_ONCE][GCM_BLOCK];
};

/* A message under way. */
struct gcm {
    const struct gcm_key *key;
    uint8_t hash[GCM_BLOCK], counter[GCM_BLOCK];
    size_t header, size; /* bytes so far */
};

/* Whether this processor can. The others may be called only where it can. */
bool gcm_is_here(void);

void gcm_expand(struct gcm_key *key, const uint8_t secret[16]);
/* `header`: at most a block, which is authenticated and not encrypted. No two messages of a key have the same
 * nonce. */
void gcm_begin(struct gcm *gcm, const struct gcm_key *key, const uint8_t nonce[12], const uint8_t *header,
               size_t size);
/* The next bytes, whole blocks unless they are the last. `to` may be `from`. */
void gcm_seal(struct gcm *gcm, const uint8_t *from, size_t size, uint8_t *to);
void gcm_open(struct gcm *gcm, const uint8_t *from, size_t size, uint8_t *to);
void gcm_end(struct gcm *gcm, uint8_t tag[GCM_BLOCK]);

#endif
