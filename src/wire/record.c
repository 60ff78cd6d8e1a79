/* The record layer of record.h, by the AES-GCM of OpenSSL. */
#include "wire/record.h"

#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <pthread.h>
#include <string.h>

enum { TAG = 16, IV = 12, VERSION = 3, LEAST_INSIDE = 1, MOST_INSIDE = RECORD_PLAIN + 1 };

bool record_derive(const char *function, const OSSL_PARAM *parameters, uint8_t *key, size_t size) {
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, function, NULL);
    EVP_KDF_CTX *context = kdf != NULL ? EVP_KDF_CTX_new(kdf) : NULL;
    bool derived = context != NULL && EVP_KDF_derive(context, key, size, parameters) > 0;
    EVP_KDF_CTX_free(context);
    EVP_KDF_free(kdf);
    return derived;
}

/* HKDF-Expand-Label of TLS 1.3 (RFC 8446, 7.1), without a context. */
static bool expand(const uint8_t secret[RECORD_SECRET], const char *label, uint8_t *to, size_t size) {
    static char digest[] = "SHA256", prefix[] = "tls13 ";
    int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
    const OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)secret, RECORD_SECRET),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_PREFIX, prefix, sizeof prefix - 1),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_LABEL, (void *)label, strlen(label)),
        OSSL_PARAM_construct_end(),
    };
    return record_derive("TLS13-KDF", parameters, to, size);
}

bool record_begin(struct record_way *way, const uint8_t secret[RECORD_SECRET]) {
    memcpy(way->secret, secret, sizeof way->secret);
    way->sequence = 0;
    return expand(secret, "key", way->key, sizeof way->key) && expand(secret, "iv", way->iv, sizeof way->iv);
}

bool record_next_key(struct record_way *way) {
    uint8_t next[RECORD_SECRET];
    bool begun = expand(way->secret, "traffic upd", next, sizeof next) && record_begin(way, next);
    explicit_bzero(next, sizeof next);
    return begun;
}

static EVP_CIPHER *aes; /* looking it up costs more than a small record */

static void fetch_aes(void) {
    aes = EVP_CIPHER_fetch(NULL, "AES-128-GCM", NULL);
}

EVP_CIPHER_CTX *record_cipher(const struct record_way *way, bool seals) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, fetch_aes);
    EVP_CIPHER_CTX *cipher = aes != NULL ? EVP_CIPHER_CTX_new() : NULL;
    if (cipher == NULL || EVP_CipherInit_ex(cipher, aes, NULL, way->key, NULL, seals) == 1) return cipher;
    EVP_CIPHER_CTX_free(cipher);
    return NULL;
}

/* Each record has a nonce of its own, whatever becomes of it, and is bound to its header. */
static bool begin_record(struct record_way *way, EVP_CIPHER_CTX *cipher, const uint8_t header[RECORD_HEADER]) {
    uint8_t nonce[IV];
    int n;
    memcpy(nonce, way->iv, sizeof nonce);
    for (int i = 0; i < 8; i++)
        nonce[IV - 1 - i] ^= (uint8_t)(way->sequence >> (8 * i));
    way->sequence++;
    return EVP_CipherInit_ex(cipher, NULL, NULL, NULL, nonce, -1) == 1 &&
           EVP_CipherUpdate(cipher, NULL, &n, header, RECORD_HEADER) == 1;
}

size_t record_seal(struct record_way *way, EVP_CIPHER_CTX *cipher, enum record_type type, const void *from,
                   size_t size, uint8_t *to) {
    size_t payload = size + RECORD_EXTRA - RECORD_HEADER;
    uint8_t header[RECORD_HEADER] = {RECORD_DATA, VERSION, VERSION, (uint8_t)(payload >> 8), (uint8_t)payload};
    uint8_t inner = (uint8_t)type, *end = to + RECORD_HEADER + size;
    int n;
    memcpy(to, header, sizeof header);
    bool sealed = begin_record(way, cipher, header) &&
                  EVP_CipherUpdate(cipher, to + RECORD_HEADER, &n, from, (int)size) == 1 &&
                  EVP_CipherUpdate(cipher, end, &n, &inner, 1) == 1 &&
                  EVP_CipherFinal_ex(cipher, end + 1, &n) == 1 &&
                  EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, TAG, end + 1) == 1;
    return sealed ? size + RECORD_EXTRA : 0;
}

ssize_t record_size(const uint8_t *bytes, size_t n) {
    if (n < RECORD_HEADER) return 0;
    size_t payload = (size_t)bytes[3] << 8 | bytes[4];
    bool plausible = bytes[0] == RECORD_DATA && bytes[1] == VERSION && bytes[2] == VERSION &&
                     payload >= LEAST_INSIDE + TAG && payload <= MOST_INSIDE + TAG;
    return plausible ? (ssize_t)(RECORD_HEADER + payload) : -EBADMSG;
}

ssize_t record_open(struct record_way *way, EVP_CIPHER_CTX *cipher, const uint8_t *record, size_t size,
                    uint8_t *to, enum record_type *type) {
    size_t inside = size - RECORD_HEADER - TAG;
    uint8_t nothing[TAG];
    int n;
    bool opened = begin_record(way, cipher, record) &&
                  EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_SET_TAG, TAG,
                                      (void *)(record + RECORD_HEADER + inside)) == 1 &&
                  EVP_CipherUpdate(cipher, to, &n, record + RECORD_HEADER, (int)inside) == 1 &&
                  EVP_CipherFinal_ex(cipher, nothing, &n) == 1;
    if (!opened) return -EBADMSG;
    while (inside > 0 && to[inside - 1] == 0) /* padding, which we do not make */
        inside--;
    if (inside == 0) return -EBADMSG;
    *type = (enum record_type)to[inside - 1];
    return (ssize_t)(inside - 1);
}
