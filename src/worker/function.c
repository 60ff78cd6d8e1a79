/* Training functions by name: finds loaded objects by build id and back, so that the driver's pointer means the
 * same function in a worker that has its objects elsewhere. The id is the note that the linker puts into each
 * object, read from memory; where there is none a hash of the object's file stands for it. */
#include "worker/driver.h"

#include <elf.h>
#include <inttypes.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"

enum { ID_SIZE = 2 * 64 + 1, OBJECT_FILE_MAX = 1 << 30 };

struct object {
    char id[ID_SIZE];     /* "" when it could not be made */
    uintptr_t base;       /* where it is loaded */
    uintptr_t begin, end; /* of its executable segments */
};

/* Looks for NT_GNU_BUILD_ID among the notes of a segment; their parts are padded to four bytes. */
static bool read_build_id(const unsigned char *notes, size_t size, char id[ID_SIZE]) {
    for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= size;) {
        ElfW(Nhdr) note;
        memcpy(&note, notes + at, sizeof note);
        size_t name = at + sizeof note, text = name + ((note.n_namesz + 3u) & ~3u);
        size_t next = text + ((note.n_descsz + 3u) & ~3u);
        if (next > size) return false;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(notes + name, "GNU", 4) == 0) {
            for (size_t i = 0; i < note.n_descsz && i < (ID_SIZE - 1) / 2; i++)
                (void)snprintf(id + 2 * i, 3, "%02x", notes[text + i]);
            return note.n_descsz > 0;
        }
        at = next;
    }
    return false;
}

static bool holds(const struct object *object, uintptr_t address) {
    return address >= object->begin && address < object->end;
}

struct search {
    uintptr_t address;     /* looked for, or 0 */
    const char *id;        /* looked for, or NULL */
    struct object object;  /* what was found */
    struct object program; /* the first object is the program itself */
    bool any;
};

/* Of each loaded object, the id and where its code lies; 1 ends the search. The id is read from memory, where
 * the linker's note is always mapped, while the file may have been replaced since. */
static int visit(struct dl_phdr_info *info, size_t size, void *context) {
    struct search *search = context;
    (void)size;
    struct object *object = &search->object;
    bool found = false;
    *object = (struct object){.base = info->dlpi_addr, .begin = UINTPTR_MAX};
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_NOTE && !found)
            found = read_build_id((const unsigned char *)begin, part->p_memsz, object->id);
        if (part->p_type != PT_LOAD || (part->p_flags & PF_X) == 0) continue;
        if (begin < object->begin) object->begin = begin;
        if (begin + part->p_memsz > object->end) object->end = begin + part->p_memsz;
    }
    if (!found && object->begin < object->end) {
        CLEANUP(buffer_done) struct buffer bytes = {0};
        if (file_read(info->dlpi_name[0] != '\0' ? info->dlpi_name : "/proc/self/exe", OBJECT_FILE_MAX, &bytes,
                      NULL) == 0)
            (void)snprintf(object->id, ID_SIZE, "file-%016" PRIx64, str_hash(bytes.data, bytes.size));
    }
    if (!search->any) search->program = search->object;
    search->any = true;
    return search->id != NULL ? str_equal(search->object.id, search->id)
                              : holds(&search->object, search->address);
}

int worker_function_name(ty_train_function *function, char text[WORKER_FUNCTION_SIZE], ty_error *err) {
    struct search search = {.address = (uintptr_t)function};
    if (function == NULL) return ty_fail(err, TY_EUSAGE, "the training function is NULL");
    if (dl_iterate_phdr(visit, &search) != 1 || search.object.id[0] == '\0')
        return ty_fail(err, TY_EUSAGE, "the training function lies in no loaded program or library");
    (void)snprintf(text, WORKER_FUNCTION_SIZE, "%s:%" PRIxPTR, search.object.id,
                   search.address - search.object.base);
    return 0;
}

/* The name has come over the environment: it may name no more than code of the very build that it was made
 * in. */
int worker_function_find(const char *text, ty_train_function **function, ty_error *err) {
    const char *colon = strchr(text, ':');
    CLEANUP_FREE char *id = colon != NULL ? strndup(text, (size_t)(colon - text)) : NULL;
    if (colon == NULL || colon == text || colon[1 + strspn(colon + 1, "0123456789abcdef")] != '\0')
        return ty_fail(err, TY_EUSAGE, "\"%.80s\" is no name of a training function", text);
    if (id == NULL) return ty_fail_memory(err);
    struct search search = {.id = id};
    if (dl_iterate_phdr(visit, &search) != 1)
        return ty_fail(
            err, TY_EVERSION,
            "the training function is of build %s, but this program is of build %s: start workers from "
            "the program that called ty_fit",
            id, search.program.id);
    uintptr_t address = search.object.base + (uintptr_t)strtoull(colon + 1, NULL, 16);
    if (!holds(&search.object, address))
        return ty_fail(err, TY_EUSAGE, "\"%.80s\" names no code of this program", text);
    *function = (ty_train_function *)address;
    return 0;
}
