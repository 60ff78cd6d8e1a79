/* Records of TLS 1.3: keys as the standard has them, and what a record that is not the next one of the peer
 * comes to. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "wire/record.h"

/* The client's application traffic in the simple handshake of RFC 8448, 3. */
static const uint8_t SECRET[RECORD_SECRET] = {0x9e, 0x40, 0x64, 0x6c, 0xe7, 0x9a, 0x7f, 0x9d, 0xc0, 0x5a, 0xf8,
                                              0x88, 0x9b, 0xce, 0x65, 0x52, 0x87, 0x5a, 0xfa, 0x0b, 0x06, 0xdf,
                                              0x00, 0x87, 0xf7, 0x92, 0xeb, 0xb7, 0xc1, 0x75, 0x04, 0xa5};
static const uint8_t KEY[] = {0x17, 0x42, 0x2d, 0xda, 0x59, 0x6e, 0xd5, 0xd9,
                              0xac, 0xd8, 0x90, 0xe3, 0xc6, 0x3f, 0x50, 0x51};
static const uint8_t IV[] = {0x5b, 0x78, 0x92, 0x3d, 0xee, 0x08, 0x57, 0x90, 0x33, 0xe5, 0x23, 0xd9};

enum { ROOM = RECORD_PLAIN + RECORD_EXTRA };

struct ends {
    struct record_way near, far;
    EVP_CIPHER_CTX *seals, *opens;
    uint8_t record[ROOM], plain[ROOM];
};

static void begin(struct ends *ends) {
    assert_true(record_begin(&ends->near, SECRET));
    assert_true(record_begin(&ends->far, SECRET));
    ends->seals = record_cipher(&ends->near, true);
    ends->opens = record_cipher(&ends->far, false);
    assert_true(ends->seals != NULL && ends->opens != NULL);
}

static void end(struct ends *ends) {
    EVP_CIPHER_CTX_free(ends->seals);
    EVP_CIPHER_CTX_free(ends->opens);
}

static size_t seal(struct ends *ends, const char *text) {
    return record_seal(&ends->near, ends->seals, RECORD_DATA, text, strlen(text), ends->record);
}

static ssize_t open_again(struct ends *ends, size_t size) {
    enum record_type type;
    return record_open(&ends->far, ends->opens, ends->record, size, ends->plain, &type);
}

static void keys_are_those_of_the_standard(void **state) {
    (void)state;
    struct record_way way;
    assert_true(record_begin(&way, SECRET));
    assert_memory_equal(way.key, KEY, sizeof KEY);
    assert_memory_equal(way.iv, IV, sizeof IV);
}

static void records_of_every_size_are_opened(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 31, 32, 4096, RECORD_PLAIN - 1, RECORD_PLAIN};
    static uint8_t bytes[RECORD_PLAIN];
    static struct ends ends;
    enum record_type type;
    begin(&ends);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i / 253 + i);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t size = record_seal(&ends.near, ends.seals, i % 2 == 0 ? RECORD_DATA : RECORD_ALERT, bytes,
                                  sizes[i], ends.record);
        assert_int_equal(size, sizes[i] + RECORD_EXTRA);
        assert_int_equal(record_size(ends.record, size), size);
        assert_int_equal(record_open(&ends.far, ends.opens, ends.record, size, ends.plain, &type), sizes[i]);
        assert_int_equal(type, i % 2 == 0 ? RECORD_DATA : RECORD_ALERT);
        assert_memory_equal(ends.plain, bytes, sizes[i]);
    }
    end(&ends);
}

static void a_record_is_opened_where_it_lies(void **state) {
    (void)state;
    static struct ends ends;
    enum record_type type;
    begin(&ends);
    size_t size = seal(&ends, "in place");
    assert_int_equal(record_open(&ends.far, ends.opens, ends.record, size, ends.record + RECORD_HEADER, &type),
                     8);
    assert_memory_equal(ends.record + RECORD_HEADER, "in place", 8);
    end(&ends);
}

static void each_byte_of_a_record_counts(void **state) {
    (void)state;
    for (size_t i = 0; i < RECORD_EXTRA + 5; i++) {
        static struct ends ends;
        begin(&ends);
        size_t size = seal(&ends, "hello");
        ends.record[i] ^= 1;
        if (record_size(ends.record, size) == (ssize_t)size)
            assert_int_equal(open_again(&ends, size), -EBADMSG);
        end(&ends);
    }
}

static void neither_a_repeated_record_nor_a_later_one_is_the_next(void **state) {
    (void)state;
    static struct ends ends;
    begin(&ends);
    size_t size = seal(&ends, "first");
    assert_int_equal(open_again(&ends, size), 5);
    assert_int_equal(open_again(&ends, size), -EBADMSG);
    end(&ends);
    begin(&ends);
    (void)seal(&ends, "first");
    size = seal(&ends, "later");
    assert_int_equal(open_again(&ends, size), -EBADMSG);
    end(&ends);
}

static void only_what_may_be_a_record_is_waited_for(void **state) {
    (void)state;
    static const struct {
        uint8_t header[RECORD_HEADER];
        ssize_t size;
    } cases[] = {
        {{23, 3, 3, 0, 16}, -EBADMSG},      {{23, 3, 3, 0, 17}, 22},
        {{23, 3, 3, 0x40, 0x11}, 16406},    {{23, 3, 3, 0x40, 0x12}, -EBADMSG},
        {{23, 3, 3, 0xff, 0xff}, -EBADMSG}, {{22, 3, 3, 0, 17}, -EBADMSG},
        {{20, 3, 3, 0, 17}, -EBADMSG},      {{23, 3, 1, 0, 17}, -EBADMSG},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(record_size(cases[i].header, RECORD_HEADER), cases[i].size);
    assert_int_equal(record_size(cases[1].header, RECORD_HEADER - 1), 0);
}

static void padding_counts_for_nothing_and_alone_is_no_record(void **state) {
    (void)state;
    static const uint8_t padded[] = {'a', 'b', RECORD_DATA, 0, 0}, nothing[3] = {0};
    static struct ends ends;
    enum record_type type = (enum record_type)0;
    begin(&ends);
    size_t size = record_seal(&ends.near, ends.seals, type, padded, sizeof padded, ends.record);
    assert_int_equal(record_open(&ends.far, ends.opens, ends.record, size, ends.plain, &type), 2);
    assert_int_equal(type, RECORD_DATA);
    size = record_seal(&ends.near, ends.seals, (enum record_type)0, nothing, sizeof nothing, ends.record);
    assert_int_equal(open_again(&ends, size), -EBADMSG);
    end(&ends);
}

static void the_next_key_is_another(void **state) {
    (void)state;
    static struct ends ends;
    begin(&ends);
    (void)seal(&ends, "counts");
    assert_true(record_next_key(&ends.near) && record_next_key(&ends.far));
    assert_memory_not_equal(ends.near.key, KEY, sizeof KEY);
    assert_memory_equal(ends.near.key, ends.far.key, sizeof KEY);
    assert_int_equal(ends.near.sequence, 0);
    end(&ends);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_those_of_the_standard),
        cmocka_unit_test(records_of_every_size_are_opened),
        cmocka_unit_test(a_record_is_opened_where_it_lies),
        cmocka_unit_test(each_byte_of_a_record_counts),
        cmocka_unit_test(neither_a_repeated_record_nor_a_later_one_is_the_next),
        cmocka_unit_test(only_what_may_be_a_record_is_waited_for),
        cmocka_unit_test(padding_counts_for_nothing_and_alone_is_no_record),
        cmocka_unit_test(the_next_key_is_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
