/* Documents: what is refused, what each scalar means, places, unknown keys, streaming. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/document.h"
#include "base/file.h"

static void expect_refused(const char *text, size_t size, const char *message) {
    struct document *document = NULL;
    ty_error err = {0};
    assert_int_equal(document_parse(text, size, "f.yaml", &document, &err), TY_EUSAGE);
    assert_null(document);
    assert_string_equal(err.message, message);
}

static struct document *parse(const char *text) {
    struct document *document = NULL;
    ty_error err = {0};
    if (document_parse(text, strlen(text), "f.yaml", &document, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    return document;
}

static void what_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "f.yaml is empty"},
        {" \n# only a comment\n", "f.yaml is empty"},
        {"\xef\xbb\xbf", "f.yaml is empty"},
        {"a: 1\nb: 2\na: 3\n", "f.yaml:3:1: key \"a\" appears twice in one map"},
        {"{\"a\": 1, \"a\": 2}", "f.yaml:1:10: key \"a\" appears twice in one map"},
        {"x: {b: 1, 'b': 2}", "f.yaml:1:11: key \"b\" appears twice in one map"},
        {"a: &x 1\nb: *x\n", "f.yaml:1:4: anchors are not supported (&x): write the value out"},
        {"a: &x [1]", "f.yaml:1:4: anchors are not supported (&x): write the value out"},
        {"a: &x {b: 1}", "f.yaml:1:4: anchors are not supported (&x): write the value out"},
        {"&x a: 1", "f.yaml:1:1: anchors are not supported (&x): write the value out"},
        {"a: *x", "f.yaml:1:4: aliases are not supported (*x): write the value out"},
        {"*x : 1", "f.yaml:1:1: aliases are not supported (*x): write the value out"},
        {"a: !!int 1",
         "f.yaml:1:4: tags are not supported (tag:yaml.org,2002:int): put text that begins with ! in quotes"},
        {"a: !x [1]", "f.yaml:1:4: tags are not supported (!x): put text that begins with ! in quotes"},
        {"--- 1\n--- 2\n", "f.yaml:2:1: a second document begins: a file holds one"},
        {"1\n---\n", "f.yaml:2:1: a second document begins: a file holds one"},
        {"[1]: 2", "f.yaml:1:1: a key must be text, not a list or a map"},
        {"{{a: 1}: 2}", "f.yaml:1:2: a key must be text, not a list or a map"},
        {"a: .inf", "f.yaml:1:4: \".inf\" is no finite number"},
        {"a: -.Inf", "f.yaml:1:4: \"-.Inf\" is no finite number"},
        {"a: .NaN", "f.yaml:1:4: \".NaN\" is no finite number"},
        {"a: 1e999", "f.yaml:1:4: \"1e999\" is too large a number"},
        {"a: \"x\\0y\"", "f.yaml:1:4: text cannot hold a NUL byte"},
        {"\"x\\0y\": 1", "f.yaml:1:1: text cannot hold a NUL byte"},
        {"a: [1, 2", "f.yaml:2:1: did not find expected ',' or ']' while parsing a flow sequence"},
        {"a: b: c", "f.yaml:1:5: mapping values are not allowed in this context"},
        {"{\"a\": 1} x", "f.yaml:1:10: did not find expected <document start>"},
        {"a\xff", "f.yaml: invalid leading UTF-8 octet (at byte 1)"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        expect_refused(cases[i].text, strlen(cases[i].text), cases[i].message);
    expect_refused(NULL, 0, "f.yaml is empty");
    expect_refused("a\0b", 3, "f.yaml: control characters are not allowed (at byte 1)");
    expect_refused("\xff\xfe"
                   "1\0",
                   4, "f.yaml is UTF-16: save it as UTF-8");
    expect_refused("\xfe\xff"
                   "\0001",
                   4, "f.yaml is UTF-16: save it as UTF-8");
}

static void expect_tree(const char *text, const char *json) {
    struct document *document = parse(text);
    CLEANUP_FREE char *dump =
        json_dumps(document_root(document), JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    assert_string_equal(dump, json);
    document_destroy(document);
}

static void scalars(void **state) {
    (void)state;
    static const struct {
        const char *text, *json;
    } cases[] = {
        {"[true, True, TRUE, false, False, FALSE]", "[true,true,true,false,false,false]"},
        {"[yes, no, on, off, tRue]", "[\"yes\",\"no\",\"on\",\"off\",\"tRue\"]"},
        {"[null, Null, NULL, ~, nUll]", "[null,null,null,null,\"nUll\"]"},
        {"{a: , b: ''}", "{\"a\":null,\"b\":\"\"}"},
        {"[0, 1, -1, +5, 007, -0]", "[0,1,-1,5,7,0]"},
        {"[0x10, 0o7, 1_000, 0b1]", "[\"0x10\",\"0o7\",\"1_000\",\"0b1\"]"},
        {"[9223372036854775807, -9223372036854775808]", "[9223372036854775807,-9223372036854775808]"},
        {"[9223372036854775808]", "[9.22337203685478e18]"},
        {"[1.5, .5, 5., 1e3, -1E-2, +1.]", "[1.5,0.5,5.0,1000.0,-0.01,1.0]"},
        {"[1.2.3, 2024-01-01, 1e, ., -, 12:30:45, 8GiB]",
         "[\"1.2.3\",\"2024-01-01\",\"1e\",\".\",\"-\",\"12:30:45\",\"8GiB\"]"},
        {"['1', \"true\", 'null', \"\\u00e9\"]", "[\"1\",\"true\",\"null\",\"\xc3\xa9\"]"},
        {"a: |\n  x\n  y\n", "{\"a\":\"x\\ny\\n\"}"},
        {"a: >-\n  1\n", "{\"a\":\"1\"}"},
        {"1: a\ntrue: b\n? c\n: d\n", "{\"1\":\"a\",\"true\":\"b\",\"c\":\"d\"}"},
        {"just text", "\"just text\""},
        {"--- {a: 1}\n...\n", "{\"a\":1}"},
        {"%YAML 1.1\n---\na: 1\n", "{\"a\":1}"},
        {"\xef\xbb\xbf"
         "a: 1\nb: 2\n",
         "{\"a\":1,\"b\":2}"},
        {"a: 1\r\nb:\r\n  - x\r\n", "{\"a\":1,\"b\":[\"x\"]}"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        expect_tree(cases[i].text, cases[i].json);
}

static void json_as_programs_write_it(void **state) {
    (void)state;
    expect_tree("{\n\t\"a\":1,\n\t\"b\":[true,null,-1.5e3,\"x\\/y\"]\n}\n",
                "{\"a\":1,\"b\":[true,null,-1500.0,\"x/y\"]}");
    expect_tree("{\"a\":\"\\ud83d\\ude00\"}", "{\"a\":\"\xf0\x9f\x98\x80\"}"); /* YAML has no surrogate pairs */
    expect_tree("\t[\"\\ud83d\\ude00\",true]", "[\"\xf0\x9f\x98\x80\",true]");
    expect_refused("{\"a\":\"\\ud83d\\ude00\",\"a\":1}", 26,
                   "f.yaml:1:9: found invalid Unicode character escape code while parsing a quoted scalar");
    CLEANUP(buffer_done) struct buffer text = {0};
    buffer_text(&text, "{\"");
    for (int i = 0; i < 3000; i++)
        buffer_char(&text, 'k');
    buffer_text(&text, "\": {\"a\": 1}}");
    struct document *document = parse(text.data);
    assert_int_equal(json_object_size(document_root(document)), 1);
    assert_string_equal(document_where(document, document_root(document)), "f.yaml");
    document_destroy(document);
}

static void nest(struct buffer *text, const char *open, const char *inner, const char *close, int depth) {
    for (int i = 0; i < depth; i++)
        buffer_text(text, open);
    buffer_text(text, inner);
    for (int i = 0; i < depth; i++)
        buffer_text(text, close);
}

static void nesting_has_an_end(void **state) {
    (void)state;
    static const struct {
        const char *open, *inner, *close, *where;
    } forms[] = {{"[", "1", "]", "f.yaml:1:65"},
                 {"{a: ", "1", "}", "f.yaml:1:257"},
                 {"[", "\"\\ud83d\\ude00\"", "]", NULL}};
    for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
        struct buffer text = {0};
        struct document *document = NULL;
        ty_error err = {0};
        nest(&text, forms[i].open, forms[i].inner, forms[i].close, 64);
        document = parse(text.data);
        document_destroy(document);
        buffer_clear(&text);
        nest(&text, forms[i].open, forms[i].inner, forms[i].close, 65);
        document = NULL;
        assert_int_equal(document_parse(text.data, text.size, "f.yaml", &document, &err), TY_EUSAGE);
        if (forms[i].where != NULL) assert_non_null(strstr(err.message, forms[i].where));
        if (forms[i].where != NULL) assert_non_null(strstr(err.message, ": nested deeper than 64 levels"));
        buffer_clear(&text);
        nest(&text, forms[i].open, forms[i].inner, forms[i].close, 5000);
        assert_int_equal(document_parse(text.data, text.size, "f.yaml", &document, &err), TY_EUSAGE);
        buffer_done(&text);
    }
}

static void places(void **state) {
    (void)state;
    struct document *document = parse("a: 1\nb:\n  - x\n  - {c: true, d: 2.5}\n");
    json_t *root = document_root(document), *list = json_object_get(root, "b"), *map = json_array_get(list, 1);
    assert_string_equal(document_where(document, root), "f.yaml:1:1");
    assert_string_equal(document_where(document, json_object_get(root, "a")), "f.yaml:1:4");
    assert_string_equal(document_where(document, list), "f.yaml:3:3");
    assert_string_equal(document_where(document, json_array_get(list, 0)), "f.yaml:3:5");
    assert_string_equal(document_where(document, map), "f.yaml:4:5");
    assert_string_equal(document_where(document, json_object_get(map, "d")), "f.yaml:4:18");
    assert_string_equal(document_where(document, json_object_get(map, "c")), "f.yaml");
    assert_string_equal(document_where_key(document, map, "c"), "f.yaml:4:6");
    assert_string_equal(document_where_key(document, root, "b"), "f.yaml:2:1");
    assert_string_equal(document_where_key(document, root, "missing"), "f.yaml");
    assert_string_equal(document_where(document, NULL), "f.yaml");
    assert_ptr_equal(document_where(document, map), document_where(document, map));
    document_destroy(document);
}

static void every_place_of_a_large_document(void **state) {
    (void)state;
    enum { LINES = 5000 };
    CLEANUP(buffer_done) struct buffer text = {0};
    for (int i = 0; i < LINES; i++)
        buffer_printf(&text, "- {k%d: %d}\n", i, i);
    struct document *document = parse(text.data);
    for (int i = 0; i < LINES; i++) {
        char key[16], where[32];
        (void)snprintf(key, sizeof key, "k%d", i);
        (void)snprintf(where, sizeof where, "f.yaml:%d:4", i + 1);
        json_t *map = json_array_get(document_root(document), (size_t)i);
        assert_string_equal(document_where_key(document, map, key), where);
        where[strlen(where) - 1] = '3';
        assert_string_equal(document_where(document, map), where);
        assert_int_equal(json_integer_value(json_object_get(map, key)), i);
    }
    document_destroy(document);
}

static void unknown_keys(void **state) {
    (void)state;
    static const char *const known[] = {"name", "resources", "labels"};
    struct document *document = parse("name: a\nresorces: 1\nzebra: 2\n");
    json_t *root = document_root(document);
    ty_error err = {0};
    assert_int_equal(document_check_keys(document, root, "node", known, 3, &err), TY_EUSAGE);
    assert_string_equal(err.message, "f.yaml:2:1: node has no key \"resorces\" (did you mean \"resources\"?); "
                                     "known: name, resources, labels");
    (void)json_object_del(root, "resorces");
    assert_int_equal(document_check_keys(document, root, "node", known, 3, &err), TY_EUSAGE);
    assert_string_equal(err.message, "f.yaml:3:1: node has no key \"zebra\"; known: name, resources, labels");
    assert_int_equal(document_check_keys(document, root, "node", NULL, 0, &err), TY_EUSAGE);
    assert_string_equal(err.message, "f.yaml:1:1: node has no key \"name\"; known: none");
    (void)json_object_del(root, "zebra");
    assert_int_equal(document_check_keys(document, root, "node", known, 3, &err), 0);
    assert_int_equal(document_check_keys(document, json_object_get(root, "name"), "node", known, 3, &err),
                     TY_EUSAGE);
    assert_string_equal(err.message, "f.yaml:1:7: node must be a map of keys and values");
    document_destroy(document);
}

static char path[] = "/tmp/test_base_document.XXXXXX";

static int make_file(void **state) {
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state) {
    (void)state;
    return unlink(path);
}

static void write_file(const char *text) {
    CLEANUP_FD int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    assert_int_equal(file_write_all(fd, text, strlen(text)), 0);
}

static void reads_files(void **state) {
    (void)state;
    struct document *document = NULL;
    ty_error err = {0};
    char expected[128];
    assert_int_equal(document_read("/tmp/missing/f.yaml", 100, &document, &err), -ENOENT);
    write_file("");
    assert_int_equal(document_read(path, 100, &document, &err), TY_EUSAGE);
    (void)snprintf(expected, sizeof expected, "%s is empty", path);
    assert_string_equal(err.message, expected);
    write_file("a: 12345");
    assert_int_equal(document_read(path, 7, &document, &err), TY_EUSAGE);
    assert_null(document);
    assert_int_equal(document_read(path, 8, &document, &err), 0);
    (void)snprintf(expected, sizeof expected, "%s:1:1", path);
    assert_string_equal(document_where(document, document_root(document)), expected);
    document_destroy(document);
    document_destroy(NULL);
}

static int show_entry(void *context, const char *key, json_t *value, const char *where, ty_error *err) {
    CLEANUP_FREE char *dump = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    buffer_printf(context, "%s=%s@%s;", key, dump, where + strlen(path));
    return json_is_integer(value) && json_integer_value(value) == 13 ? ty_fail(err, TY_EINFEASIBLE, "unlucky")
                                                                     : 0;
}

static void expect_stream(const char *text, int result, const char *entries, const char *message) {
    CLEANUP(buffer_done) struct buffer out = {0};
    ty_error err = {0};
    write_file(text);
    buffer_text(&out, "");
    assert_int_equal(document_stream(path, "nodes", show_entry, &out, &err), result);
    assert_string_equal(out.data, entries);
    if (message == NULL) assert_int_equal(err.code, 0);
    if (message != NULL && strstr(err.message, message) == NULL) fail_msg("%s", err.message);
}

static void streams(void **state) {
    (void)state;
    expect_stream("nodes:\n  - a\n  - {b: [1]}\nzone: east\n", 0,
                  "nodes=\"a\"@:2:5;nodes={\"b\":[1]}@:3:5;zone=\"east\"@:4:7;", NULL);
    expect_stream("{\"x\": {\"nodes\": [1]}, \"nodes\": []}", 0, "x={\"nodes\":[1]}@:1:7;", NULL);
    expect_stream("{}", 0, "", NULL);
}

static void streams_refuse(void **state) {
    (void)state;
    ty_error err = {0};
    assert_int_equal(document_stream("/tmp/missing/f.yaml", "nodes", show_entry, NULL, &err), -ENOENT);
    assert_int_equal(document_stream("/tmp", "nodes", show_entry, NULL, &err), -EISDIR);
    assert_string_equal(err.message, "cannot read /tmp: Is a directory");
    expect_stream("", TY_EUSAGE, "", " is empty");
    expect_stream("- a\n", TY_EUSAGE, "", ":1:1: the file must be a map with the key \"nodes\"");
    expect_stream("nodes: 5", TY_EUSAGE, "", ":1:8: \"nodes\" must be a list");
    expect_stream("nodes: [1]\nnodes: [2]\n", TY_EUSAGE, "nodes=1@:1:9;",
                  ":2:1: key \"nodes\" appears twice in one map");
    expect_stream("a: 1\na: 2\n", TY_EUSAGE, "a=1@:1:4;", ":2:1: key \"a\" appears twice in one map");
    expect_stream("nodes: [1, 13, 2]", TY_EINFEASIBLE, "nodes=1@:1:9;nodes=13@:1:12;", "unlucky");
    expect_stream("a: 13\nb: 2", TY_EINFEASIBLE, "a=13@:1:4;", "unlucky");
    expect_stream("nodes: [1, &x 2]", TY_EUSAGE, "nodes=1@:1:9;", ":1:12: anchors are not supported");
    expect_stream("nodes: [1]\n---\n", TY_EUSAGE, "nodes=1@:1:9;", ":2:1: a second document begins");
    expect_stream("\xff\xfe"
                  "a",
                  TY_EUSAGE, "", "");
    CLEANUP(buffer_done) struct buffer deep = {0};
    buffer_text(&deep, "nodes: [1, ");
    nest(&deep, "[", "", "]", 63);
    buffer_text(&deep, "]");
    expect_stream(deep.data, TY_EUSAGE, "nodes=1@:1:9;", "nested deeper than 64 levels");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(scalars),
        cmocka_unit_test(json_as_programs_write_it),
        cmocka_unit_test(nesting_has_an_end),
        cmocka_unit_test(places),
        cmocka_unit_test(every_place_of_a_large_document),
        cmocka_unit_test(unknown_keys),
        cmocka_unit_test(reads_files),
        cmocka_unit_test(streams),
        cmocka_unit_test(streams_refuse),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
