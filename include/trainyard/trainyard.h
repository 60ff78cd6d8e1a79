/* Trainyard: run a training function on many workers. This header includes all others. */
#ifndef TRAINYARD_TRAINYARD_H
#define TRAINYARD_TRAINYARD_H

#include <trainyard/cluster.h>
#include <trainyard/collective.h>
#include <trainyard/error.h>
#include <trainyard/report.h>
#include <trainyard/run.h>
#include <trainyard/scaling.h>
#include <trainyard/trainer.h>
#include <trainyard/version.h>
#include <trainyard/worker.h>

#endif
