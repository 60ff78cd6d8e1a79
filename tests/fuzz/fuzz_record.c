/* Records of TLS: the input is taken as records of somebody without the secret, none of which is opened, as
 * what a peer with the secret seals, which is opened again, and as what such a peer says to the end of a
 * connection, piece by piece and for rooms of several sizes: never more is handed on than was asked for, or
 * than came. */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "wire/record.h"
#include "wire/tls.h"

enum { ROOM = 3 * RECORD_PLAIN };

extern const struct tls_module trainyard_tls;
static const uint8_t SECRET[RECORD_SECRET] = {7};

static void try_strange(const uint8_t *data, size_t size) {
    static uint8_t plain[RECORD_PLAIN + 1];
    struct record_way way;
    enum record_type type;
    fuzz_require(record_begin(&way, SECRET));
    EVP_CIPHER_CTX *cipher = record_cipher(&way, false);
    ssize_t whole;
    for (size_t at = 0; (whole = record_size(data + at, size - at)) > 0 && (size_t)whole <= size - at;
         at += (size_t)whole)
        fuzz_require(record_open(&way, cipher, data + at, (size_t)whole, plain, &type) == -EBADMSG);
    fuzz_require(whole >= 0 || whole == -EBADMSG);
    EVP_CIPHER_CTX_free(cipher);
}

static void try_sealed(const uint8_t *data, size_t size) {
    static uint8_t record[RECORD_PLAIN + RECORD_EXTRA], plain[RECORD_PLAIN + 1];
    struct record_way near, far;
    enum record_type said = (enum record_type)(size > 0 ? data[0] : 0), heard = said;
    fuzz_require(record_begin(&near, SECRET) && record_begin(&far, SECRET));
    EVP_CIPHER_CTX *seals = record_cipher(&near, true), *opens = record_cipher(&far, false);
    if (size > RECORD_PLAIN) size = RECORD_PLAIN;
    size_t sealed = record_seal(&near, seals, said, data, size, record);
    fuzz_require(sealed == size + RECORD_EXTRA && record_size(record, sealed) == (ssize_t)sealed);
    ssize_t opened = record_open(&far, opens, record, sealed, plain, &heard);
    if (said != 0) fuzz_require(opened == (ssize_t)size && heard == said);
    fuzz_require(opened <= (ssize_t)size &&
                 (opened < 0 || size == 0 || memcmp(plain, data, (size_t)opened) == 0));
    EVP_CIPHER_CTX_free(seals);
    EVP_CIPHER_CTX_free(opens);
}

static void shake_hands(int fds[2], struct tls **near, struct tls **far) {
    struct tls_server *server;
    struct run_key key;
    bool writable;
    fuzz_require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0 && key_make(&key, NULL) == 0);
    fuzz_require(trainyard_tls.server_create(&key, &server, NULL) == 0 &&
                 trainyard_tls.accept(server, fds[0], near, NULL) == 0 &&
                 trainyard_tls.connect(&key, 1, fds[1], far, NULL) == 0);
    for (int a = 0, b = 0; a == 0 || b == 0;) {
        if (b == 0) b = trainyard_tls.shake_hands(*far, &writable, NULL);
        if (a == 0) a = trainyard_tls.shake_hands(*near, &writable, NULL);
        fuzz_require(a >= 0 && b >= 0);
    }
    trainyard_tls.server_destroy(server);
}

/* Two bytes say how much is read at once; all of it comes as it is, or as the peer seals it. */
static void try_connection(const uint8_t *data, size_t size, bool sealed) {
    static char to[ROOM];
    struct tls *near, *far;
    int fds[2];
    size_t room = size > 1 ? (size_t)(data[0] << 8 | data[1]) % ROOM + 1 : 1, got = 0;
    shake_hands(fds, &near, &far);
    if (size > RECORD_PLAIN) size = RECORD_PLAIN; /* what a socket takes at once */
    if (size > 0 && sealed) fuzz_require(trainyard_tls.write(far, data, size) == (ssize_t)size);
    if (size > 0 && !sealed) fuzz_require(send(fds[1], data, size, 0) == (ssize_t)size);
    ssize_t n;
    while ((n = trainyard_tls.read(near, to + got, room < ROOM - got ? room : ROOM - got)) > 0) {
        got += (size_t)n;
        fuzz_require((size_t)n <= room && got <= size);
    }
    if (sealed) fuzz_require(got == size && n == -EAGAIN && memcmp(to, data, size) == 0);
    if (!sealed) fuzz_require(got == 0 && (n == -EAGAIN || n == -EBADMSG));
    trainyard_tls.destroy(near, true);
    trainyard_tls.destroy(far, true);
    fuzz_require(close(fds[0]) == 0 && close(fds[1]) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    try_strange(data, size);
    try_sealed(data, size);
    try_connection(data, size, true);
    try_connection(data, size, false);
    return 0;
}
