/* AES-GCM of wide instructions: the same bytes and the same tag as OpenSSL's for messages of all sizes around
 * a block and around a group of blocks, in pieces, in place, and wherever they lie. */
#include <openssl/evp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "wire/gcm.h"

enum { MOST = 1100, PIECE = 33 * GCM_BLOCK };
static const uint8_t SECRET[16] = {0xfe, 0xff, 0xe9, 0x92, 0x86, 0x65, 0x73, 0x1c, 0x80, 1},
                     NONCE[12] = {7, 0xff, 9};
static const uint8_t HEADER[] = {23, 3, 3, 1, 0xff};

static struct gcm_key key;
static uint8_t plain[MOST], sealed[MOST], tag[GCM_BLOCK];

/* What OpenSSL makes of the first `size` bytes. */
static void seal_by_openssl(size_t header, size_t size) {
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    int n;
    assert_int_equal(EVP_CipherInit_ex(cipher, EVP_aes_128_gcm(), NULL, SECRET, NONCE, 1), 1);
    assert_int_equal(EVP_CipherUpdate(cipher, NULL, &n, HEADER, (int)header), 1);
    assert_int_equal(EVP_CipherUpdate(cipher, sealed, &n, plain, (int)size), 1);
    assert_int_equal(EVP_CipherFinal_ex(cipher, sealed + size, &n), 1);
    assert_int_equal(EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, sizeof tag, tag), 1);
    EVP_CIPHER_CTX_free(cipher);
}

static int set_up(void **state) {
    (void)state;
    if (gcm_is_here()) gcm_expand(&key, SECRET);
    for (size_t i = 0; i < sizeof plain; i++)
        plain[i] = (uint8_t)(i * 7 + i / 253);
    return 0;
}

typedef void direction(struct gcm *gcm, const uint8_t *from, size_t size, uint8_t *to);

static void crypt(direction *way, size_t header, const uint8_t *from, size_t size, uint8_t *to) {
    struct gcm gcm;
    uint8_t made[GCM_BLOCK];
    gcm_begin(&gcm, &key, NONCE, HEADER, header);
    for (size_t at = 0; at < size; at += PIECE)
        way(&gcm, from + at, size - at < PIECE ? size - at : PIECE, to + at);
    gcm_end(&gcm, made);
    assert_memory_equal(made, tag, sizeof tag);
}

static void all_sizes_are_sealed_and_opened_as_openssl_does(void **state) {
    (void)state;
    static uint8_t bytes[MOST + 2];
    if (!gcm_is_here()) skip();
    for (size_t size = 0; size < MOST - GCM_BLOCK; size++) {
        size_t header = size % (sizeof HEADER + 1), shift = size % 3;
        seal_by_openssl(header, size);
        memset(bytes, 0xee, sizeof bytes);
        crypt(gcm_seal, header, plain, size, bytes + shift);
        assert_memory_equal(bytes + shift, sealed, size);
        assert_int_equal(bytes[shift + size], 0xee);
        crypt(gcm_open, header, bytes + shift, size, bytes + shift);
        assert_memory_equal(bytes + shift, plain, size);
        assert_int_equal(bytes[shift + size], 0xee);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_sizes_are_sealed_and_opened_as_openssl_does)};
    return cmocka_run_group_tests(tests, set_up, NULL);
}
