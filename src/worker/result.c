/* The getters of a result: what is in it is made by the controller (controller/result.c), of a run that has
 * ended, or of a run's directory. Texts are the result's, until ty_result_free. Nothing is read from disk here.
 * */
#include "worker/driver.h"

#include <stdlib.h>
#include <string.h>

#include "run/replay.h"

void ty_result_free(ty_result *result) {
    if (result == NULL) return;
    for (size_t i = 0; i < result->n_values; i++)
        free(result->values[i].name);
    free(result->values);
    free(result->name);
    free(result->path);
    free(result->metrics);
    free(result->checkpoint);
    free(result->failure);
    free(result->summary);
    free(result->exits);
    attempts_free(result->history, result->n_history);
    free(result->json);
    free(result);
}

const char *ty_result_name(const ty_result *result) {
    return result->name;
}

const char *ty_result_path(const ty_result *result) {
    return result->path;
}

const char *ty_result_metrics(const ty_result *result) {
    return result->metrics;
}

int ty_result_metric(const ty_result *result, const char *name, double *value) {
    for (size_t i = 0; i < result->n_values; i++) {
        if (strcmp(result->values[i].name, name) != 0) continue;
        *value = result->values[i].value;
        return 1;
    }
    return 0;
}

const char *ty_result_checkpoint(const ty_result *result) {
    return result->checkpoint;
}

const char *ty_result_failure(const ty_result *result) {
    return result->failure;
}

int ty_result_attempts(const ty_result *result) {
    return result->attempts;
}

const ty_attempt_info *ty_result_attempt(const ty_result *result, int index) {
    return index >= 0 && (size_t)index < result->n_history ? &result->history[index] : NULL;
}

int ty_result_num_workers(const ty_result *result) {
    return result->num_workers;
}

int ty_result_status(const ty_result *result) {
    return result->status;
}

int ty_result_exit(const ty_result *result, int rank) {
    return rank >= 0 && rank < result->num_workers ? result->exits[rank] : -1;
}

const char *ty_result_json(const ty_result *result) {
    return result->json;
}
