/* What an administrator or a user set for all runs: /etc/trainyard.yaml, then ~/.config/trainyard.yaml, whose
 * settings go before; or the one file that TRAINYARD_CONFIG names, "" for none. Each has
 *
 *     run_config:
 *       storage_path: /scratch/$USER/runs
 *       log_limit: 1GiB
 *
 * with the keys of the `run_config` of a --config file but `name` and `resume`, which belong to one run. What a
 * run itself is asked for with goes before all of it, as does TRAINYARD_STORAGE. Files are read once in the
 * life of a process. */
#ifndef CONTROLLER_SITE_H
#define CONTROLLER_SITE_H

#include "base/error.h"
#include "run/settings.h"

/* The standard values (settings_init), and what the files set, but for the storage path. Texts live as long
 * as the process. TY_EUSAGE with the place in the file. */
int site_settings(struct run_settings *settings, ty_error *err);

/* The storage path of the files, NULL where they have none, or with `err` filled where they cannot be read. */
const char *site_storage_path(ty_error *err);

#endif
