/* The name of a C training function that holds in another process of the same program: "BUILDID:OFFSET", the
 * build id of the object that holds it and its offset from where that object is loaded, both in hex. An object
 * without a build id goes by "file-HASH", a hash of its file. */
#ifndef WORKER_FUNCTION_H
#define WORKER_FUNCTION_H

#include <trainyard/trainer.h>

enum { WORKER_FUNCTION_SIZE = 192 };

/* TY_EUSAGE when the function lies in no loaded object. */
int worker_function_name(ty_train_function *function, char text[WORKER_FUNCTION_SIZE], ty_error *err);

/* The function of that name in this process. TY_EVERSION, naming both builds, when no loaded object has that
 * build id; TY_EUSAGE for a malformed name. */
int worker_function_find(const char *text, ty_train_function **function, ty_error *err);

#endif
