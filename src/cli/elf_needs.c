/* Whether a program needs a library: the dynamic section of an ELF file, mapped; every offset in it is somebody
 * else's, and checked. Only what the program itself names is seen, not what its libraries need, nor what it
 * opens while it runs. So `trainyard run` tells a program of MPI. */
#include "cli/command.h"

#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "agent/spawn.h"
#include "base/cleanup.h"

struct image {
    const unsigned char *bytes;
    size_t size;
};

/* `size` bytes at `offset`, copied out since nothing need be aligned. */
static bool take(const struct image *image, uint64_t offset, void *out, size_t size) {
    if (offset > image->size || image->size - offset < size) return false;
    memcpy(out, image->bytes + offset, size);
    return true;
}

static bool segment(const struct image *image, const ElfW(Ehdr) * header, unsigned index, ElfW(Phdr) * out) {
    return header->e_phentsize == sizeof *out &&
           take(image, header->e_phoff + (uint64_t)index * sizeof *out, out, sizeof *out);
}

/* The offset in the file of an address of the program; the file's size when there is none. */
static uint64_t find_offset(const struct image *image, const ElfW(Ehdr) * header, uint64_t address) {
    ElfW(Phdr) part;
    for (unsigned i = 0; i < header->e_phnum && segment(image, header, i, &part); i++)
        if (part.p_type == PT_LOAD && address >= part.p_vaddr && address - part.p_vaddr < part.p_filesz)
            return part.p_offset + (address - part.p_vaddr);
    return image->size;
}

/* The names of libraries are offsets into a table of strings, of which the dynamic section tells the address,
 * perhaps behind the names: it is gone through twice. */
static bool look(const struct image *image, const char *library) {
    ElfW(Ehdr) header;
    ElfW(Phdr) part = {0};
    ElfW(Dyn) entry;
    uint64_t names = 0;
    size_t size = strlen(library);
    if (!take(image, 0, &header, sizeof header) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return false;
    if (header.e_ident[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32)) return false;
    for (unsigned i = 0; part.p_type != PT_DYNAMIC; i++)
        if (i == header.e_phnum || !segment(image, &header, i, &part)) return false;
    uint64_t n = part.p_filesz / sizeof entry;
    for (uint64_t i = 0; i < n && take(image, part.p_offset + i * sizeof entry, &entry, sizeof entry); i++)
        if (entry.d_tag == DT_STRTAB) names = find_offset(image, &header, entry.d_un.d_ptr);
    for (uint64_t i = 0; i < n && take(image, part.p_offset + i * sizeof entry, &entry, sizeof entry); i++) {
        if (entry.d_tag == DT_NULL) break;
        if (entry.d_tag != DT_NEEDED || entry.d_un.d_val >= image->size) continue;
        uint64_t at = names + entry.d_un.d_val;
        if (at <= image->size && image->size - at >= size && memcmp(image->bytes + at, library, size) == 0)
            return true;
    }
    return false;
}

bool elf_needs(const char *name, const char *library) {
    struct stat status;
    CLEANUP_FREE char *path = spawn_find(name, getenv("PATH"), ".", NULL);
    CLEANUP_FD int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || status.st_size <= 0) return false;
    void *bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED) return false;
    bool found = look(&(struct image){bytes, (size_t)status.st_size}, library);
    (void)munmap(bytes, (size_t)status.st_size);
    return found;
}
