// Built and run by test_headers.py: the macros and calls of the headers in C++, outside of a run.
#include <cstdio>
#include <cstring>

extern "C" { // as some programs do
#include <trainyard/trainyard.h>
}

#define CHECK(condition)                                                    \
    do {                                                                    \
        if (!(condition)) {                                                 \
            std::fprintf(stderr, "%d: not so: %s\n", __LINE__, #condition); \
            return 1;                                                       \
        }                                                                   \
    } while (0)

static ty_resources at_file_scope = TY_RESOURCES({"CPU", 2});

static bool is_metric(const ty_metric &metric, const char *name, double value) {
    return std::strcmp(metric.name, name) == 0 && metric.value == value;
}

int main() {
    ty_error err = {};
    double loss = 0.5;
    int step = 3;

    ty_metrics metrics = TY_METRICS({"loss", loss}, {"step", double(step)});
    ty_metrics other = TY_METRICS({"accuracy", 1});
    CHECK(metrics.n == 2 && is_metric(metrics.items[0], "loss", 0.5) && is_metric(metrics.items[1], "step", 3));
    CHECK(other.n == 1 && is_metric(other.items[0], "accuracy", 1));
    CHECK(ty_report(nullptr, TY_METRICS({"loss", loss}), nullptr, &err) < 0 && err.message[0] != '\0');

    ty_scaling_config scaling = {};
    scaling.num_workers = 2;
    scaling.resources_per_worker = TY_RESOURCES({"CPU", 4}, {"GPU", 0.5});
    CHECK(scaling.resources_per_worker.n == 2 && scaling.resources_per_worker.items[1].amount == 0.5);
    CHECK(at_file_scope.n == 1 && at_file_scope.items[0].amount == 2);

    CHECK(std::strcmp(ty_error_name(TY_EUSAGE), "TY_EUSAGE") == 0);
    CHECK(ty_barrier(ty_comm(nullptr), &err) == TY_EUSAGE);
    float numbers[2] = {};
    const size_t counts[] = {1, 1};
    CHECK(ty_send_tagged(nullptr, numbers, 2, TY_BFLOAT16, 1, 7, &err) == TY_EUSAGE);
    CHECK(ty_gather(nullptr, numbers, nullptr, 2, TY_FLOAT32, 0, &err) == TY_EUSAGE);
    CHECK(ty_all_to_all_v(nullptr, numbers, counts, numbers, counts, TY_FLOAT32, &err) == TY_EUSAGE);
    return 0;
}
