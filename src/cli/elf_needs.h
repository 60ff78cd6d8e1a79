/* What a program is linked to, as its file says. */
#ifndef CLI_ELF_NEEDS_H
#define CLI_ELF_NEEDS_H

#include <stdbool.h>

/* True when the program that execvp would execute for `name` is an ELF file of this machine's kind which needs
 * a library whose name begins with `library` ("libmpi.so"). False for anything that is not, or cannot be
 * read. */
bool elf_needs(const char *name, const char *library);

#endif
