/* Which build this is. Parts that were built apart (modules, the agent's command) may lay the same structs and
 * messages out in another way, though their version is the same: they are refused by this name. */
#ifndef BASE_BUILD_H
#define BASE_BUILD_H

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0+1f3a5c7e9b2d": the version, and a digest of the headers and messages that parts share
 * (make_build.py). */
extern const char base_build[];

#ifdef __cplusplus
}
#endif

#endif
