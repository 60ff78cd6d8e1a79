/* Reads keys from where they travel (a file, a variable), and makes them. A key is wiped where it has been: the
 * environment of a process can be read as long as the process lives. How a key is proven without being sent is
 * TLS's part (tls.h). */
#include "wire/key.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/kernel.h"

enum { DRAWN_BYTES = 32 };

void key_forget(struct run_key *key) {
    explicit_bzero(key, sizeof *key);
}

int key_make(struct run_key *key, ty_error *err) {
    int result = kernel_random_digits(key->text, DRAWN_BYTES);
    if (result == 0) return 0;
    return ty_fail(err, -EIO, "cannot draw random numbers for a key: %s", strerror(-result));
}

static int set(struct run_key *key, const char *text, ty_error *err) {
    static const char HOW[] = "`openssl rand -hex 32` makes one";
    while (isspace((unsigned char)*text))
        text++;
    size_t size = strlen(text);
    while (size > 0 && isspace((unsigned char)text[size - 1]))
        size--;
    if (size < KEY_MIN_CHARACTERS)
        return ty_fail(err, TY_EUSAGE, "the key has %zu characters, and at least %d are needed: %s", size,
                       KEY_MIN_CHARACTERS, HOW);
    if (size >= KEY_SIZE)
        return ty_fail(err, TY_EUSAGE, "the key is longer than %d characters: %s", KEY_SIZE - 1, HOW);
    memcpy(key->text, text, size);
    key->text[size] = '\0';
    return 0;
}

/* What is checked is what was opened, and not the path again. Without O_NONBLOCK the open of a pipe that nobody
 * writes to would wait before it can be seen whose it is. */
int key_read_file(struct run_key *key, const char *path, ty_error *err) {
    char text[KEY_SIZE + 64];
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) return ty_fail(err, TY_EUSAGE, "cannot open key file %s: %s", path, strerror(errno));
    struct stat is;
    if (fstat(fd, &is) < 0)
        return ty_fail(err, TY_EUSAGE, "cannot look at key file %s: %s", path, strerror(errno));
    if (!S_ISREG(is.st_mode) && !S_ISFIFO(is.st_mode))
        return ty_fail(err, TY_EUSAGE, "key file %s is neither a file nor a pipe", path);
    if (is.st_uid != geteuid() && is.st_uid != 0)
        return ty_fail(err, TY_EUSAGE, "key file %s belongs to user %u: it must be yours, or root's", path,
                       (unsigned)is.st_uid);
    if ((is.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return ty_fail(err, TY_EUSAGE, "key file %s can be used by others (mode %04o): chmod 600 %s", path,
                       (unsigned)is.st_mode & 07777, path);
    (void)fcntl(fd, F_SETFL, 0); /* a pipe is waited for */
    size_t size = 0;
    ssize_t n;
    while (size < sizeof text - 1 && (n = read(fd, text + size, sizeof text - 1 - size)) > 0)
        size += (size_t)n;
    text[size] = '\0';
    int result = set(key, text, err);
    explicit_bzero(text, sizeof text);
    return result < 0 ? ty_wrap(err, "key file %s", path) : 0;
}

int key_read_line(struct run_key *key, int fd, ty_error *err) {
    char text[KEY_SIZE + 64];
    size_t size = 0;
    while (size < sizeof text - 1 && read(fd, text + size, 1) == 1 && text[size] != '\n')
        size++;
    text[size] = '\0';
    int result = set(key, text, err);
    explicit_bzero(text, sizeof text);
    return result < 0 ? ty_wrap(err, "the first line of standard input") : 0;
}

int key_read_variable(struct run_key *key, ty_error *err) {
    const char *value = getenv(KEY_VARIABLE);
    key->text[0] = '\0';
    if (value == NULL || *value == '\0') return 0;
    return set(key, value, err) < 0 ? ty_wrap(err, KEY_VARIABLE) : 0;
}

int key_take_variable(struct run_key *key, ty_error *err) {
    int result = key_read_variable(key, err);
    char *value = getenv(KEY_VARIABLE);
    if (value == NULL) return result;
    explicit_bzero(value, strlen(value)); /* the key would be in /proc/PID/environ */
    (void)unsetenv(KEY_VARIABLE);
    return result;
}
