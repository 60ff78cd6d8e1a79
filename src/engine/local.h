/* The engine of this machine. */
#ifndef ENGINE_LOCAL_H
#define ENGINE_LOCAL_H

#include "engine/engine.h"

extern const struct engine engine_local;

#endif
