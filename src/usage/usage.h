/* What the hardware says while a run goes on: what is sampled, and the process that samples it.
 *
 * Each agent starts one sampler, `trainyard agent --sample PERIOD_MS`, with a socket of whole packets as its
 * standard input. A driver's call that never comes back stops its samples and nothing else. The agent sends the
 * workers whose processes are looked at (usage_target); the sampler sends a sample each period, and what
 * happens to a device (usage_fault) at once. It ends with the agent, or when the socket is closed. */
#ifndef USAGE_USAGE_H
#define USAGE_USAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "base/duration.h"

#define USAGE_DB_NAME "usage.db" /* of the run's directory */

/* A gauge says how much there is; a counter grows, from any beginning: its rate is what one looks at.
 * X(id, text, scope, kind, unit, help); the numbers of ids go over the wire: new ones come last. */
#define USAGES(X)                                                                                          \
    X(NODE_CPU, "node_cpu", NODE, GAUGE, "ratio", "share of the processors' time that was used")           \
    X(NODE_MEMORY, "node_memory", NODE, GAUGE, "bytes", "memory in use")                                   \
    X(NODE_MEMORY_SIZE, "node_memory_size", NODE, GAUGE, "bytes", "memory that there is")                  \
    X(NODE_CPU_PRESSURE, "node_cpu_pressure", NODE, GAUGE, "ratio",                                        \
      "time in which a task waited for a "                                                                 \
      "processor")                                                                                         \
    X(NODE_MEMORY_PRESSURE, "node_memory_pressure", NODE, GAUGE, "ratio", "the same for memory")           \
    X(NODE_IO_PRESSURE, "node_io_pressure", NODE, GAUGE, "ratio", "the same for input and output")         \
    X(NODE_RECEIVE, "node_receive", NODE, COUNTER, "bytes", "received by network interfaces")              \
    X(NODE_TRANSMIT, "node_transmit", NODE, COUNTER, "bytes", "sent by network interfaces")                \
    X(NODE_RDMA_RECEIVE, "node_rdma_receive", NODE, COUNTER, "bytes", "received by InfiniBand ports")      \
    X(NODE_RDMA_TRANSMIT, "node_rdma_transmit", NODE, COUNTER, "bytes", "sent by InfiniBand ports")        \
    X(NODE_READ, "node_read", NODE, COUNTER, "bytes", "read from disks")                                   \
    X(NODE_WRITE, "node_write", NODE, COUNTER, "bytes", "written to disks")                                \
    X(NODE_GROUP_CPU, "node_group_cpu", NODE, COUNTER, "seconds", "processor time of the agent's cgroup")  \
    X(NODE_GROUP_MEMORY, "node_group_memory", NODE, GAUGE, "bytes", "memory of the agent's cgroup")        \
    X(WORKER_CPU, "worker_cpu", WORKER, GAUGE, "cores", "processors used by the worker's process group")   \
    X(WORKER_MEMORY, "worker_memory", WORKER, GAUGE, "bytes", "resident memory of the group")              \
    X(WORKER_READ, "worker_read", WORKER, COUNTER, "bytes", "read from storage by the group")              \
    X(WORKER_WRITE, "worker_write", WORKER, COUNTER, "bytes", "written to storage by the group")           \
    X(DEVICE_UTILIZATION, "device_utilization", DEVICE, GAUGE, "ratio", "time in which some kernel ran")   \
    X(DEVICE_ACTIVITY, "device_activity", DEVICE, GAUGE, "ratio", "share of its processors that worked")   \
    X(DEVICE_MEMORY, "device_memory", DEVICE, GAUGE, "bytes", "device memory in use")                      \
    X(DEVICE_MEMORY_SIZE, "device_memory_size", DEVICE, GAUGE, "bytes", "device memory that there is")     \
    X(DEVICE_POWER, "device_power", DEVICE, GAUGE, "watts", "power drawn")                                 \
    X(DEVICE_ENERGY, "device_energy", DEVICE, COUNTER, "joules", "energy used")                            \
    X(DEVICE_TEMPERATURE, "device_temperature", DEVICE, GAUGE, "celsius", "temperature")                   \
    X(DEVICE_CLOCK, "device_clock", DEVICE, GAUGE, "hertz", "clock of the processors")                     \
    X(DEVICE_CLOCK_MAX, "device_clock_max", DEVICE, GAUGE, "hertz", "the clock that it can have")          \
    X(DEVICE_LIMITED, "device_limited", DEVICE, GAUGE, "bits", "why the clock is held down: usage_limits") \
    X(DEVICE_ECC, "device_ecc", DEVICE, COUNTER, "errors", "uncorrected errors of memory")                 \
    X(DEVICE_XID, "device_xid", DEVICE, COUNTER, "errors", "faults that the driver told of (Xid)")

enum usage_what {
#define X(id, text, scope, kind, unit, help) USAGE_##id,
    USAGES(X)
#undef X
        USAGES_N
};

enum usage_scope { USAGE_OF_NODE, USAGE_OF_WORKER, USAGE_OF_DEVICE };
enum usage_kind { USAGE_GAUGE, USAGE_COUNTER };

struct usage_about {
    const char *text, *unit, *help;
    enum usage_scope scope;
    enum usage_kind kind;
};

extern const struct usage_about usage_table[USAGES_N];
enum usage_what usage_of(const char *text); /* USAGES_N: there is none of this name */

/* Why a device's clock is held down, as bits of DEVICE_LIMITED: usage_limits. X(id, bit, text) */
#define USAGE_LIMITS(X)            \
    X(POWER, 1, "power")           \
    X(HARDWARE, 2, "hardware")     \
    X(THERMAL, 4, "thermal limit") \
    X(BRAKE, 8, "power brake")

enum usage_limit {
#define X(id, bit, text) USAGE_LIMITED_##id = (bit),
    USAGE_LIMITS(X)
#undef X
};

/* "thermal limit, power"; "" where nothing does. */
void usage_limits(unsigned bits, struct buffer *out);

/* What happens to a device, which is told rather than sampled. X(id, text) */
#define USAGE_FAULTS(X)                                               \
    X(XID, "xid")             /* the driver's number of it is told */ \
    X(LOST, "lost")           /* the driver cannot reach it */        \
    X(ECC, "ecc")             /* so many uncorrected errors more */   \
    X(THROTTLED, "throttled") /* bits of USAGE_LIMITS */

enum usage_fault_kind {
#define X(id, text) USAGE_FAULT_##id,
    USAGE_FAULTS(X)
#undef X
        USAGE_FAULTS_N
};

enum {
    USAGE_VALUES_MAX = 1024,
    USAGE_FAULTS_MAX = 16, /* of one packet */
    USAGE_TARGETS_MAX = 512,
    USAGE_DEVICES_MAX = 64
};

struct usage_value {
    uint32_t what;
    int32_t number; /* rank or device; -1 for the node */
    double value;
};

struct usage_fault {
    uint32_t kind;
    int32_t device;
    uint64_t code; /* as its kind says */
};

struct usage_sample { /* a packet: as much of it as there are values; without any it tells of faults alone */
    nanoseconds time; /* wall */
    uint32_t n, n_faults;
    struct usage_fault faults[USAGE_FAULTS_MAX];
    struct usage_value values[USAGE_VALUES_MAX];
};

struct usage_target {
    int32_t rank;
    pid_t group;
};

size_t usage_size(const struct usage_sample *sample); /* of its packet */
/* Of a packet as it came. */
bool usage_is_whole(const struct usage_sample *sample, size_t size);
/* What is no finite number, or one too many, is left out. */
void usage_add(struct usage_sample *sample, enum usage_what what, int32_t number, double value);

/* What a fault explains of workers that fail soon after. */
enum usage_weight {
    USAGE_NOTED,      /* nothing */
    USAGE_OF_PROGRAM, /* the end of those that use the device */
    USAGE_OF_HARDWARE /* that of others too, who wait for them */
};

const char *usage_fault_name(enum usage_fault_kind kind);
enum usage_weight usage_fault_weight(const struct usage_fault *fault);
/* "Xid 79, it has fallen off the bus" */
void usage_fault_text(const struct usage_fault *fault, struct buffer *out);
/* One too many is left out. */
void usage_fault_add(struct usage_sample *sample, enum usage_fault_kind kind, int device, uint64_t code);

/* -- the sampler's parts. Each adds what its system answers, and leaves out the rest. */

/* usage_node.c: the machine by /proc and /sys (below TRAINYARD_SYSROOT), and the cgroup. */
struct usage_node {
    uint64_t busy, whole; /* the processors' ticks at the last look; 0: there was none */
};
void usage_node_look(struct usage_node *node, struct usage_sample *sample);

/* The texts of /proc, for the tests: hostile ones too. False without what is sought. */
bool usage_parse_stat(const char *text, uint64_t *busy, uint64_t *whole);
bool usage_parse_pressure(const char *text, double *ratio); /* "some avg10=1.50 ..." */
/* Calls `each` with name, bytes in and out of every interface of net/dev. */
void usage_parse_network(const char *text,
                         void (*each)(void *context, const char *name, uint64_t in, uint64_t out),
                         void *context);
/* The same of disks, of diskstats. */
void usage_parse_disks(const char *text,
                       void (*each)(void *context, const char *name, uint64_t in, uint64_t out), void *context);

/* usage_workers.c: the processes of the workers' groups. */
struct usage_workers {
    struct usage_target targets[USAGE_TARGETS_MAX];
    size_t n;
    nanoseconds looked_at; /* monotonic; 0: not yet */
    struct usage_worker {
        int32_t rank;
        pid_t group;
        uint64_t ticks;
    } before[USAGE_TARGETS_MAX];
    size_t n_before;
};
void usage_workers_look(struct usage_workers *workers, struct usage_sample *sample);

/* usage_faults.c: what the values of a sample tell when they are compared with those before.
 * Zero-initialised. */
struct usage_watch {
    unsigned held[USAGE_DEVICES_MAX]; /* limits that were told */
    nanoseconds held_at[USAGE_DEVICES_MAX];
    double errors[USAGE_DEVICES_MAX];
    bool counts[USAGE_DEVICES_MAX]; /* `errors` is known */
};
void usage_watch_look(struct usage_watch *watch, struct usage_sample *sample);

/* usage_nvidia.c: through NVML, loaded once. usage_amd.c: by sysfs. */

/* The devices that the value of a visible-devices variable leaves of `count`, by their index, -1 where an entry
 * is none; how many. NULL leaves all. `entry` (may be NULL) is called with what is no index, for its place. */
size_t usage_visible(const char *value, size_t count, int indices[USAGE_DEVICES_MAX],
                     void (*entry)(void *context, size_t place, const char *text), void *context);

struct usage_nvidia;                          /* opaque */
struct usage_nvidia *usage_nvidia_open(void); /* NULL: no driver, or no device */
void usage_nvidia_look(struct usage_nvidia *nvidia, struct usage_sample *sample);
/* Tells of faults as they come, by packets to `fd`, from a thread of its own that ends with the process. */
void usage_nvidia_listen(struct usage_nvidia *nvidia, int fd);
void usage_amd_look(struct usage_sample *sample);

/* The process. Exit status; argv[0] is the word before PERIOD_MS. */
int usage_sampler_main(int argc, char **argv);

#endif
