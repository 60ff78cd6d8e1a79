/* The Python lines of a process that nobody prepared, as of `trainyard run -- python train.py`: read out of its
 * memory, which neither stops it nor asks anything of it. What is there moves meanwhile: every pointer is
 * followed only to an object of the type that has to be there, and where that is another one all is read again.
 * Where fields lie differs between versions; those of CPython 3.11 to 3.13 are known here. */
#include "agent/stack_save.h"

#include <elf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/str.h"

enum {
    CPYTHON_THREADS_MAX = 64,
    CPYTHON_DEPTH_MAX = 100,
    NAME_MAX_READ = 512,
    CPYTHON_LINES_MAX = 1 << 20,
    TRIES = 5
};

/* Offsets that all these versions have in common, on machines of 64 bits. */
enum {
    THREAD_NEXT = 8,
    FRAME_INSTRUCTION = 56, /* the last one that was begun */
    CODE_FILE = 112,
    CODE_NAME = 120,
    CODE_LINES = 136,
    OBJECT_TYPE = 8,
    OBJECT_SIZE = 16, /* of bytes; of a string its characters */
    BYTES_DATA = 32,
    STRING_STATE = 32,
};

/* Where fields lie in a version, in bytes, as CPython's own headers have them: those of the interpreter, of its
 * frames and of code objects. */
struct cpython_layout {
    uint64_t version;     /* Py_Version, without its lower half */
    uint64_t interpreter; /* _PyRuntimeState.interpreters.head */
    uint64_t thread;      /* PyInterpreterState.threads.head: the newest; the main thread is the last */
    uint64_t thread_frame, thread_id;
    int64_t cframe;                    /* of the frame in what thread_frame leads to; -1: it is the frame */
    uint64_t code, previous, owner;    /* _PyInterpreterFrame */
    uint64_t first_line, instructions; /* PyCodeObject */
    uint64_t ascii_data, string_data;  /* of PyASCIIObject, of PyCompactUnicodeObject: their sizes */
    bool tells;                        /* the first two stand at the front of the runtime's state, as below */
};

static const struct cpython_layout layouts[] = {
    {0x030b, 40, 16, 56, 152, 8, 32, 48, 69, 72, 184, 48, 72, false},
    {0x030c, 40, 72, 56, 136, 0, 0, 8, 70, 68, 192, 40, 56, false},
    {0x030d, 632, 7344, 72, 152, -1, 0, 8, 70, 68, 200, 40, 56, true},
};

enum { TOLD_INTERPRETER = 40, TOLD_THREAD = 72 }; /* in _Py_DebugOffsets */
enum { OWNED_BY_C = 3 };                          /* a frame that stands for a call from C, from 3.12 on */

/* -- memory of the other process */

static bool take(const struct stack_cpython *python, uint64_t address, void *out, size_t size) {
    struct iovec to = {out, size}, from = {(void *)(uintptr_t)address, size}; /* NOLINT: an address there */
    return size == 0 || process_vm_readv(python->pid, &to, 1, &from, 1, 0) == (ssize_t)size;
}

static bool take_pointer(const struct stack_cpython *python, uint64_t address, uint64_t *out) {
    return take(python, address, out, sizeof *out);
}

static bool is_of(const struct stack_cpython *python, uint64_t object, uint64_t type) {
    uint64_t found;
    return object != 0 && take_pointer(python, object + OBJECT_TYPE, &found) && found == type;
}

/* -- where the interpreter's variables lie */

struct cpython_file {
    const unsigned char *bytes;
    size_t size;
    uint64_t loaded; /* what is added to the addresses in the file */
};

static bool take_image(const struct cpython_file *image, uint64_t offset, void *out, size_t size) {
    if (offset > image->size || image->size - offset < size) return false;
    memcpy(out, image->bytes + offset, size);
    return true;
}

static bool has_name(const struct cpython_file *image, uint64_t names, uint32_t name, const char *wanted) {
    uint64_t at = names + name;
    size_t size = strlen(wanted) + 1;
    return at <= image->size && image->size - at >= size && memcmp(image->bytes + at, wanted, size) == 0;
}

/* The addresses of symbols that a program shows to its libraries: even of a stripped one. */
static void find_symbols(const struct cpython_file *image, const char *const *wanted, uint64_t *const *out,
                         size_t n) {
    Elf64_Ehdr header;
    Elf64_Shdr section, names;
    Elf64_Sym symbol;
    if (!take_image(image, 0, &header, sizeof header) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof section)
        return;
    for (unsigned i = 0; i < header.e_shnum; i++) {
        if (!take_image(image, header.e_shoff + (uint64_t)i * sizeof section, &section, sizeof section)) return;
        if (section.sh_type != SHT_DYNSYM || section.sh_link >= header.e_shnum ||
            !take_image(image, header.e_shoff + (uint64_t)section.sh_link * sizeof names, &names, sizeof names))
            continue;
        for (uint64_t at = 0; at + sizeof symbol <= section.sh_size; at += sizeof symbol) {
            if (!take_image(image, section.sh_offset + at, &symbol, sizeof symbol)) return;
            for (size_t k = 0; k < n; k++)
                if (symbol.st_value != 0 && has_name(image, names.sh_offset, symbol.st_name, wanted[k]))
                    *out[k] = image->loaded + symbol.st_value;
        }
    }
}

/* What lies at `address` is the beginning of the file. */
static bool look_at_file(struct stack_cpython *python, const char *path, uint64_t address) {
    static const char *const names[] = {"_PyRuntime", "PyCode_Type", "PyUnicode_Type", "PyBytes_Type",
                                        "Py_Version"};
    struct stat status;
    Elf64_Ehdr header;
    Elf64_Phdr part;
    uint64_t version = 0;
    uint64_t *const found[] = {&python->runtime, &python->code, &python->string, &python->bytes, &version};
    CLEANUP_FREE char *there = str_format("/proc/%d/root%s", python->pid, path);
    CLEANUP_FD int fd = there == NULL ? -1 : open(there, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || status.st_size <= 0) return false;
    void *bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED) return false;
    struct cpython_file image = {.bytes = bytes, .size = (size_t)status.st_size};
    if (take_image(&image, 0, &header, sizeof header) && header.e_phentsize == sizeof part)
        for (unsigned i = 0; i < header.e_phnum; i++)
            if (take_image(&image, header.e_phoff + (uint64_t)i * sizeof part, &part, sizeof part) &&
                part.p_type == PT_LOAD && part.p_offset == 0)
                image.loaded = address - part.p_vaddr;
    find_symbols(&image, names, found, ARRAY_SIZE(names));
    (void)munmap(bytes, (size_t)status.st_size);
    for (size_t i = 0; i < ARRAY_SIZE(found); i++)
        if (*found[i] == 0) return false;
    if (!take_pointer(python, version, &version)) return false;
    for (size_t i = 0; i < ARRAY_SIZE(layouts); i++)
        if (version >> 16 == layouts[i].version) python->layout = &layouts[i];
    return python->layout != NULL;
}

/* The interpreter is in the program, or in a library of its own: of each file that may be it, the mapping of
 * its beginning tells where it was loaded. */
bool stack_cpython_open(struct stack_cpython *python) {
    char name[64], line[4096], path[4096];
    uint64_t address, offset;
    bool found = false;
    if (sizeof(void *) != sizeof(uint64_t)) return false;
    (void)snprintf(name, sizeof name, "/proc/%d/maps", python->pid);
    FILE *maps = fopen(name, "re");
    while (maps != NULL && !found && fgets(line, sizeof line, maps) != NULL) {
        if (sscanf(line, "%" SCNx64 "-%*x %*s %" SCNx64 " %*s %*s %4095[^\n]", &address, &offset, path) != 3 ||
            offset != 0)
            continue;
        const char *file = strrchr(path, '/');
        if (file != NULL && (str_prefix(file, "/python3", NULL) || str_prefix(file, "/libpython3", NULL)))
            found = look_at_file(python, path, address);
    }
    if (maps != NULL) (void)fclose(maps);
    return found;
}

/* -- frames */

static void add_character(uint32_t character, struct buffer *out) {
    if (character >= ' ' && character <= '~')
        buffer_char(out, (char)character);
    else
        buffer_printf(out,
                      character <= 0xff     ? "\\x%02x"
                      : character <= 0xffff ? "\\u%04x"
                                            : "\\U%08x",
                      character);
}

/* A string, cut where it is long, in ASCII as faulthandler writes it. */
static bool add_string(const struct stack_cpython *python, uint64_t object, struct buffer *out) {
    enum { ASCII = 1 << 6, COMPACT = 1 << 5 };
    unsigned char data[NAME_MAX_READ * 4];
    uint32_t state;
    uint64_t length;
    if (!is_of(python, object, python->string) || !take_pointer(python, object + OBJECT_SIZE, &length) ||
        !take(python, object + STRING_STATE, &state, sizeof state) || (state & COMPACT) == 0)
        return false;
    size_t width = (state >> 2) & 7, n = length < NAME_MAX_READ ? (size_t)length : NAME_MAX_READ;
    if ((width != 1 && width != 2 && width != 4) ||
        !take(python,
              object + ((state & ASCII) != 0 ? python->layout->ascii_data : python->layout->string_data), data,
              n * width))
        return false;
    for (size_t i = 0; i < n; i++) {
        uint32_t character = 0;
        memcpy(&character, data + i * width, width); /* which lies with its lowest byte in front */
        add_character(character, out);
    }
    return true;
}

struct line_table {
    const unsigned char *at, *end;
};

static int next_byte(struct line_table *table) {
    return table->at < table->end ? *table->at++ : 0;
}

/* A number in pieces of six bits, the lowest first, as in all entries of the table (CPython's text on the
 * locations in its code objects). */
static long next_number(struct line_table *table) {
    unsigned long number = 0, byte = 0x40;
    for (unsigned shift = 0; (byte & 0x40) != 0 && shift < 32; shift += 6) {
        byte = (unsigned long)next_byte(table);
        number |= (byte & 0x3f) << shift;
    }
    return (long)number;
}

static long next_signed(struct line_table *table) {
    long number = next_number(table);
    return (number & 1) != 0 ? -(number >> 1) : number >> 1;
}

/* Passes over the columns of an entry; by how many lines it is farther than the one before. */
static long next_delta(struct line_table *table, int kind) {
    enum { SHORT_LAST = 9, ONE_LINE = 10, ONE_LINE_LAST = 12, NO_COLUMNS = 13, LONG = 14 };
    long delta = 0;
    if (kind <= SHORT_LAST) (void)next_byte(table);
    if (kind >= ONE_LINE && kind <= ONE_LINE_LAST) {
        (void)next_byte(table);
        (void)next_byte(table);
        return kind - ONE_LINE;
    }
    if (kind == NO_COLUMNS || kind == LONG) delta = next_signed(table);
    for (int i = 0; i < 3 && kind == LONG; i++)
        (void)next_number(table);
    return delta;
}

/* The line of the instruction `at` bytes behind the first one: entries of a code object's table, each with how
 * many instructions it is of. */
static long line_of(struct line_table table, long line, int64_t at) {
    enum { INSTRUCTION = 2 };
    for (int64_t begin = 0, end; table.at < table.end; begin = end) {
        int head = next_byte(&table);
        end = begin + INSTRUCTION * ((head & 7) + 1);
        line += next_delta(&table, (head >> 3) & 15);
        if (at < end) break;
    }
    return line;
}

static bool add_line(const struct stack_cpython *python, uint64_t code, uint64_t instruction,
                     struct buffer *out) {
    int32_t first;
    uint64_t lines, size;
    if (!take(python, code + python->layout->first_line, &first, sizeof first) ||
        !take_pointer(python, code + CODE_LINES, &lines) || !is_of(python, lines, python->bytes) ||
        !take_pointer(python, lines + OBJECT_SIZE, &size) || size > CPYTHON_LINES_MAX)
        return false;
    CLEANUP_FREE unsigned char *table = malloc(size + 1);
    if (table == NULL || !take(python, lines + BYTES_DATA, table, size)) return false;
    int64_t at = (int64_t)(instruction - (code + python->layout->instructions));
    buffer_printf(out, "%ld",
                  at < 0 ? (long)first : line_of((struct line_table){table, table + size}, first, at));
    return true;
}

/* `  File "train.py", line 3 in f`, as faulthandler writes it. */
static bool add_frame(const struct stack_cpython *python, uint64_t frame, struct buffer *out) {
    uint64_t code, instruction, file, name;
    if (!take_pointer(python, frame + python->layout->code, &code) || !is_of(python, code, python->code) ||
        !take_pointer(python, frame + FRAME_INSTRUCTION, &instruction) ||
        !take_pointer(python, code + CODE_FILE, &file) || !take_pointer(python, code + CODE_NAME, &name))
        return false;
    buffer_text(out, "  File \"");
    if (!add_string(python, file, out)) return false;
    buffer_text(out, "\", line ");
    if (!add_line(python, code, instruction, out)) return false;
    buffer_text(out, " in ");
    bool added = add_string(python, name, out);
    buffer_char(out, '\n');
    return added;
}

/* The frame where a thread is; 0: in none. */
static bool take_frame(const struct stack_cpython *python, uint64_t thread, uint64_t *frame) {
    int64_t cframe = python->layout->cframe;
    if (!take_pointer(python, thread + python->layout->thread_frame, frame)) return false;
    return cframe < 0 || take_pointer(python, *frame + (uint64_t)cframe, frame);
}

static bool add_thread(const struct stack_cpython *python, uint64_t thread, struct buffer *out) {
    const struct cpython_layout *layout = python->layout;
    uint64_t id, frame;
    uint8_t owner;
    if (!take_pointer(python, thread + layout->thread_id, &id) || !take_frame(python, thread, &frame))
        return false;
    buffer_printf(out, "%sThread 0x%016" PRIx64 " (most recent call first):\n", out->size > 0 ? "\n" : "", id);
    if (frame == 0) buffer_text(out, "  <no Python frame>\n");
    for (int depth = 0; frame != 0 && depth < CPYTHON_DEPTH_MAX; depth++)
        if (!take(python, frame + layout->owner, &owner, 1) ||
            (owner != OWNED_BY_C && !add_frame(python, frame, out)) ||
            !take_pointer(python, frame + layout->previous, &frame))
            return false;
    return true;
}

static bool add_threads(const struct stack_cpython *python, struct buffer *out) {
    uint64_t to_interpreter = python->layout->interpreter, to_thread = python->layout->thread;
    uint64_t interpreter, thread;
    if (python->layout->tells && (!take_pointer(python, python->runtime + TOLD_INTERPRETER, &to_interpreter) ||
                                  !take_pointer(python, python->runtime + TOLD_THREAD, &to_thread)))
        return false;
    if (!take_pointer(python, python->runtime + to_interpreter, &interpreter) || interpreter == 0 ||
        !take_pointer(python, interpreter + to_thread, &thread))
        return false;
    bool any = thread != 0;
    for (int n = 0; thread != 0 && n < CPYTHON_THREADS_MAX; n++)
        if (!add_thread(python, thread, out) || !take_pointer(python, thread + THREAD_NEXT, &thread))
            return false;
    return any && !out->failed;
}

bool stack_cpython_read(const struct stack_cpython *python, struct buffer *out) {
    for (int i = 0; i < TRIES; i++) {
        CLEANUP(buffer_done) struct buffer found = {0};
        if (!add_threads(python, &found)) continue;
        buffer_append(out, found.data, found.size);
        return true;
    }
    return false;
}
