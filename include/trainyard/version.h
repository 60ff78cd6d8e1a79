/* The version of the library in use. */
#ifndef TRAINYARD_VERSION_H
#define TRAINYARD_VERSION_H

#include <trainyard/api.h>

#ifdef __cplusplus
extern "C" {
#endif

TY_API const char *ty_version(void); /* "0.1.0"; static storage */

#ifdef __cplusplus
}
#endif
#endif
