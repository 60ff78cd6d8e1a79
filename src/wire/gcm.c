/* The cipher of gcm.h. The hash of GCM counts bits from the wrong end of each byte: blocks are turned around
 * (`turn`), and the key of the hash is doubled once, so that products of turned blocks come out right (Gueron
 * and Kounavis, Intel's white paper on carry-less multiplication). Groups of sixteen blocks are hashed with
 * sixteen powers of that key, and reduced once. */
#include "wire/gcm.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

/* Two blocks are a lane. */
enum { LANES = GCM_AT_ONCE / 2, LANE = 2 * GCM_BLOCK, GROUP = LANES * LANE };
#define WIDE __attribute__((target("avx2,aes,pclmul,vaes,vpclmulqdq")))
#define EACH_LANE _Pragma("GCC unroll 8") for (int i = 0; i < LANES; i++)

bool gcm_is_here(void) {
    unsigned a, b, c = 0, d;
    const unsigned both = bit_VAES | bit_VPCLMULQDQ;
    return __builtin_cpu_supports("avx2") && __get_cpuid_count(7, 0, &a, &b, &c, &d) == 1 && (c & both) == both;
}

WIDE static inline __m128i load(const void *from) {
    return _mm_loadu_si128(from);
}

WIDE static inline void store(void *to, __m128i block) {
    _mm_storeu_si128(to, block);
}

WIDE static inline __m256i both(__m128i block) {
    return _mm256_broadcastsi128_si256(block);
}

WIDE static inline __m128i turning(void) {
    return _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

WIDE static inline __m128i turn(__m128i block) {
    return _mm_shuffle_epi8(block, turning());
}

/* -- the hash */

/* x^128 + x^127 + x^126 + x^121 + 1 */
WIDE static inline __m128i polynomial(void) {
    return _mm_set_epi64x((long long)0xc200000000000000, 1);
}

/* A product of 256 bits, of which `middle` overlaps both halves. */
WIDE static inline __m128i reduce(__m128i low, __m128i middle, __m128i high) {
    middle ^= _mm_shuffle_epi32(low, 0x4e) ^ _mm_clmulepi64_si128(polynomial(), low, 0x01);
    return high ^ _mm_shuffle_epi32(middle, 0x4e) ^ _mm_clmulepi64_si128(polynomial(), middle, 0x01);
}

WIDE static __m128i multiply(__m128i a, __m128i b) {
    __m128i middle = _mm_clmulepi64_si128(a, b, 0x01) ^ _mm_clmulepi64_si128(a, b, 0x10);
    return reduce(_mm_clmulepi64_si128(a, b, 0x00), middle, _mm_clmulepi64_si128(a, b, 0x11));
}

WIDE static inline __m128i sum(__m256i lane) {
    return _mm256_castsi256_si128(lane) ^ _mm256_extracti128_si256(lane, 1);
}

WIDE static inline __m128i hash_group(const struct gcm_key *key, __m128i hash, const uint8_t *from) {
    __m256i low = _mm256_setzero_si256(), middle = low, high = low, carried = _mm256_zextsi128_si256(hash);
    EACH_LANE {
        __m256i power = _mm256_loadu_si256((const void *)key->power[2 * i]);
        __m256i lane = _mm256_loadu_si256((const void *)(from + i * LANE));
        lane = _mm256_shuffle_epi8(lane, both(turning()));
        if (i == 0) lane ^= carried;
        low ^= _mm256_clmulepi64_epi128(lane, power, 0x00);
        middle ^= _mm256_clmulepi64_epi128(lane, power, 0x01) ^ _mm256_clmulepi64_epi128(lane, power, 0x10);
        high ^= _mm256_clmulepi64_epi128(lane, power, 0x11);
    }
    return reduce(sum(low), sum(middle), sum(high));
}

WIDE static __m128i hash_block(const struct gcm_key *key, __m128i hash, __m128i block) {
    return multiply(hash ^ turn(block), load(key->power[GCM_AT_ONCE - 1]));
}

/* -- the cipher */

WIDE static __m128i encrypt(const struct gcm_key *key, __m128i block) {
    block ^= load(key->round[0]);
    for (int i = 1; i < GCM_ROUNDS; i++)
        block = _mm_aesenc_si128(block, load(key->round[i]));
    return _mm_aesenclast_si128(block, load(key->round[GCM_ROUNDS]));
}

/* `counter` is that of the block before. */
WIDE static inline void encrypt_group(const struct gcm_key *key, __m128i counter, const uint8_t *from,
                                      uint8_t *to) {
    __m256i lanes[LANES], next = _mm256_add_epi32(both(counter), _mm256_set_epi64x(0, 2, 0, 1));
    EACH_LANE {
        lanes[i] = _mm256_shuffle_epi8(next, both(turning())) ^ both(load(key->round[0]));
        next = _mm256_add_epi32(next, _mm256_set_epi64x(0, 2, 0, 2));
    }
    _Pragma("GCC unroll 9") for (int round = 1; round < GCM_ROUNDS; round++) {
        __m256i added = both(load(key->round[round]));
        EACH_LANE lanes[i] = _mm256_aesenc_epi128(lanes[i], added);
    }
    __m256i last = both(load(key->round[GCM_ROUNDS]));
    EACH_LANE lanes[i] =
        _mm256_aesenclast_epi128(lanes[i], last) ^ _mm256_loadu_si256((const void *)(from + i * LANE));
    EACH_LANE _mm256_storeu_si256((void *)(to + i * LANE), lanes[i]);
}

/* The next round's key, of that of the round before and of what the processor makes of it. */
WIDE static __m128i mix(__m128i before, __m128i assist) {
    before ^= _mm_slli_si128(before, 4);
    before ^= _mm_slli_si128(before, 8);
    return before ^ _mm_shuffle_epi32(assist, 0xff);
}

#define NEXT(index, constant) \
    store(key->round[index], round = mix(round, _mm_aeskeygenassist_si128(round, constant)))

WIDE void gcm_expand(struct gcm_key *key, const uint8_t secret[16]) {
    __m128i round = load(secret);
    store(key->round[0], round);
    NEXT(1, 0x01);
    NEXT(2, 0x02);
    NEXT(3, 0x04);
    NEXT(4, 0x08);
    NEXT(5, 0x10);
    NEXT(6, 0x20);
    NEXT(7, 0x40);
    NEXT(8, 0x80);
    NEXT(9, 0x1b);
    NEXT(10, 0x36);
    __m128i hash = turn(encrypt(key, _mm_setzero_si128()));
    __m128i over = _mm_srai_epi32(_mm_shuffle_epi32(hash, 0xff), 31) & polynomial();
    hash = _mm_slli_epi64(hash, 1) ^ _mm_slli_si128(_mm_srli_epi64(hash, 63), 8) ^ over;
    __m128i power = hash;
    for (int i = GCM_AT_ONCE - 1; i >= 0; i--) {
        store(key->power[i], power);
        power = multiply(power, hash);
    }
}

/* -- a message */

WIDE void gcm_begin(struct gcm *gcm, const struct gcm_key *key, const uint8_t nonce[12], const uint8_t *header,
                    size_t size) {
    uint8_t first[GCM_BLOCK] = {[GCM_BLOCK - 1] = 1}, padded[GCM_BLOCK] = {0};
    memcpy(first, nonce, 12);
    memcpy(padded, header, size);
    *gcm = (struct gcm){.key = key, .header = size};
    store(gcm->counter, turn(load(first)));
    store(gcm->hash, hash_block(key, _mm_setzero_si128(), load(padded)));
}

/* Up to a block, which is zeros to the hash where there is less. */
WIDE static void crypt_block(struct gcm *gcm, const uint8_t *from, size_t size, uint8_t *to, bool seals) {
    uint8_t in[GCM_BLOCK] = {0}, out[GCM_BLOCK];
    __m128i counter = _mm_add_epi32(load(gcm->counter), _mm_set_epi32(0, 0, 0, 1));
    memcpy(in, from, size);
    store(gcm->counter, counter);
    store(out, load(in) ^ encrypt(gcm->key, turn(counter)));
    memcpy(to, out, size);
    memset(out + size, 0, sizeof out - size);
    store(gcm->hash, hash_block(gcm->key, load(gcm->hash), load(seals ? out : in)));
}

WIDE static void crypt(struct gcm *gcm, const uint8_t *from, size_t size, uint8_t *to, bool seals) {
    __m128i hash = load(gcm->hash), counter = load(gcm->counter);
    gcm->size += size;
    for (; size >= GROUP; from += GROUP, to += GROUP, size -= GROUP) {
        if (!seals) hash = hash_group(gcm->key, hash, from);
        encrypt_group(gcm->key, counter, from, to);
        if (seals) hash = hash_group(gcm->key, hash, to);
        counter = _mm_add_epi32(counter, _mm_set_epi32(0, 0, 0, GCM_AT_ONCE));
    }
    store(gcm->hash, hash);
    store(gcm->counter, counter);
    for (size_t n; size > 0; from += n, to += n, size -= n) {
        n = size < GCM_BLOCK ? size : GCM_BLOCK;
        crypt_block(gcm, from, n, to, seals);
    }
}

WIDE void gcm_seal(struct gcm *gcm, const uint8_t *from, size_t size, uint8_t *to) {
    crypt(gcm, from, size, to, true);
}

WIDE void gcm_open(struct gcm *gcm, const uint8_t *from, size_t size, uint8_t *to) {
    crypt(gcm, from, size, to, false);
}

WIDE void gcm_end(struct gcm *gcm, uint8_t tag[GCM_BLOCK]) {
    __m128i bits = _mm_set_epi64x((long long)gcm->header * 8, (long long)gcm->size * 8);
    __m128i hash = multiply(load(gcm->hash) ^ bits, load(gcm->key->power[GCM_AT_ONCE - 1]));
    __m128i first = _mm_insert_epi32(load(gcm->counter), 1, 0);
    store(tag, turn(hash) ^ encrypt(gcm->key, turn(first)));
}

#else /* of another kind of processor */

bool gcm_is_here(void) {
    return false;
}

void gcm_expand(struct gcm_key *key, const uint8_t secret[16]) {
    (void)key, (void)secret;
}

void gcm_begin(struct gcm *gcm, const struct gcm_key *key, const uint8_t nonce[12], const uint8_t *header,
               size_t size) {
    (void)gcm, (void)key, (void)nonce, (void)header, (void)size;
}

void gcm_seal(struct gcm *gcm, const uint8_t *from, size_t size, uint8_t *to) {
    (void)gcm, (void)from, (void)size, (void)to;
}

void gcm_open(struct gcm *gcm, const uint8_t *from, size_t size, uint8_t *to) {
    (void)gcm, (void)from, (void)size, (void)to;
}

void gcm_end(struct gcm *gcm, uint8_t tag[GCM_BLOCK]) {
    (void)gcm, (void)tag;
}

#endif
