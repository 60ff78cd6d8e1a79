/* Records of TLS 1.3 (RFC 8446, 5) with AES-128-GCM, for what follows OpenSSL's handshake: an SSL object
 * that stays takes 13 KiB of each of ten thousand agents, and copies each byte twice. A way is one
 * direction of a connection. A cipher is made for a batch of records and freed again. Pure: no system call.
 * Part of the module tls. */
#ifndef WIRE_RECORD_H
#define WIRE_RECORD_H

#include <openssl/evp.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* EXTRA: bytes of a record beside its plain text: header, type, tag. A_KEY: how many one key may seal. */
enum {
    RECORD_PLAIN = 16 << 10,
    RECORD_HEADER = 5,
    RECORD_EXTRA = RECORD_HEADER + 1 + 16,
    RECORD_SECRET = 32,
    RECORDS_A_KEY = 1 << 24
};
enum record_type { RECORD_ALERT = 21, RECORD_HANDSHAKE = 22, RECORD_DATA = 23 };

struct record_way {
    uint8_t secret[RECORD_SECRET], key[16], iv[12];
    uint64_t sequence; /* records of this key that have passed */
};

/* A key of `size` bytes by HKDF, or a function made of it, of OpenSSL's ("HKDF", "TLS13-KDF"). False without
 * memory. */
bool record_derive(const char *function, const OSSL_PARAM *parameters, uint8_t *key, size_t size);

/* Keys from a traffic secret; record_next_key goes on to the next one, after a KeyUpdate. False without
 * memory. */
bool record_begin(struct record_way *way, const uint8_t secret[RECORD_SECRET]);
bool record_next_key(struct record_way *way);

/* With the way's key of now. NULL without memory; EVP_CIPHER_CTX_free. */
EVP_CIPHER_CTX *record_cipher(const struct record_way *way, bool seals);

/* Writes a record of at most RECORD_PLAIN bytes to `to`, where there is room for RECORD_EXTRA more: its
 * size, or 0 where OpenSSL fails. */
size_t record_seal(struct record_way *way, EVP_CIPHER_CTX *cipher, enum record_type type, const void *from,
                   size_t size, uint8_t *to);

/* How long the record is that `bytes` begin with: 0 while that cannot be told, -EBADMSG where it is none. */
ssize_t record_size(const uint8_t *bytes, size_t n);

/* Opens a whole record to `to`, which has room for all of it but RECORD_EXTRA - 1 bytes, or is where its
 * payload begins: the size of what it carries, with its type; -EBADMSG where it is not what the peer
 * sealed. */
ssize_t record_open(struct record_way *way, EVP_CIPHER_CTX *cipher, const uint8_t *record, size_t size,
                    uint8_t *to, enum record_type *type);

#endif
