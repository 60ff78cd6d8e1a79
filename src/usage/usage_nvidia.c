/* NVIDIA's devices. A function that this driver lacks, or a question that it does not answer, leaves the value
 * out. A call that hangs takes this process with it, which is there for that.
 *
 * Faults come from a thread that waits in the driver for them: workers end within milliseconds of one, and a
 * look each period would find it too late to be told as the cause. */
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "accelerator/accelerator.h"
#include "accelerator/vendors.h"
#include "base/cleanup.h"
#include "usage/usage.h"

enum { GPM_VERSION = 1, GPM_SM_UTILIZATION = 2, GPM_VALUES = 333 };
enum { CLOCK_SM = 1, SENSOR_GPU = 0, ECC_UNCORRECTED = 1, ECC_SINCE_START = 0, EVENT_XID = 8 };
enum { DRIVER_TIMEOUT = 10, DRIVER_GPU_IS_LOST = 15 };
enum { WAIT_MS = 5000, BREATH_MS = 1000 /* between waits that fail at once */, LISTENER_STACK = 256 << 10 };
#define REPEATED_WITHIN (10 * NS_PER_S) /* the same number of a device: counted, not told */

struct nvml_device; /* opaque */
struct nvml_event_set;

struct nvml_utilization {
    unsigned gpu, memory; /* percent */
};

struct nvml_memory_used {
    unsigned long long total, free, used;
};

struct nvml_event {
    struct nvml_device *device;
    unsigned long long type, data;
    unsigned instance, part;
};

/* What the processors did between two looks (GPM, Hopper and later). */
struct gpm_sample; /* opaque */

struct gpm_support {
    unsigned version, supported;
};

struct gpm_question {
    unsigned version, n;
    struct gpm_sample *before, *now;
    struct {
        unsigned id;
        int code;
        double value;
        const char *names[3];
    } values[GPM_VALUES]; /* n are asked for; the rest is room that the driver may count on */
};

/* X(member, symbol, arguments behind the device) */
#define DEVICE_CALLS(X)                                                          \
    X(utilization, "nvmlDeviceGetUtilizationRates", struct nvml_utilization *)   \
    X(memory, "nvmlDeviceGetMemoryInfo", struct nvml_memory_used *)              \
    X(power, "nvmlDeviceGetPowerUsage", unsigned *)                              \
    X(energy, "nvmlDeviceGetTotalEnergyConsumption", unsigned long long *)       \
    X(temperature, "nvmlDeviceGetTemperature", int, unsigned *)                  \
    X(clock, "nvmlDeviceGetClockInfo", int, unsigned *)                          \
    X(clock_max, "nvmlDeviceGetMaxClockInfo", int, unsigned *)                   \
    X(limits, "nvmlDeviceGetCurrentClocksThrottleReasons", unsigned long long *) \
    X(ecc, "nvmlDeviceGetTotalEccErrors", int, int, unsigned long long *)        \
    X(gpm_support, "nvmlGpmQueryDeviceSupport", struct gpm_support *)            \
    X(gpm_look, "nvmlGpmSampleGet", struct gpm_sample *)                         \
    X(listen, "nvmlDeviceRegisterEvents", unsigned long long, struct nvml_event_set *)

struct usage_nvidia {
#define X(member, symbol, ...) int (*member)(struct nvml_device *, __VA_ARGS__);
    DEVICE_CALLS(X)
#undef X
    int (*wait)(struct nvml_event_set *set, struct nvml_event *event, unsigned timeout_ms);
    int (*by_uuid)(const char *uuid, struct nvml_device **device);
    int (*gpm_create)(struct gpm_sample **sample);
    int (*gpm_compare)(struct gpm_question *question);
    struct gpm_sample *gpm[USAGE_DEVICES_MAX][2]; /* the last look, and room for the next; NULL: it has none */
    bool gpm_looked[USAGE_DEVICES_MAX];           /* there is a last one */
    struct nvml_event_set *events;
    struct nvml_device *devices[USAGE_DEVICES_MAX]; /* NULL: it cannot be asked */
    size_t n;
    int fd; /* faults go there */
    /* Both threads'. */
    atomic_uint_least64_t xids[USAGE_DEVICES_MAX]; /* since this process began */
    atomic_bool lost[USAGE_DEVICES_MAX];           /* and told */
    /* The listening thread's. */
    struct {
        uint64_t code;
        nanoseconds at; /* monotonic; 0: none */
    } told[USAGE_DEVICES_MAX];
};

/* `function` is the address of a pointer to a function; it becomes NULL where this driver has none of that
 * name. C converts no pointer of dlsym's into one to a function, so the bytes are copied (POSIX, dlsym). */
static bool find(void *library, const char *symbol, void *function) {
    void *address = dlsym(library, symbol);
    memcpy(function, &address, sizeof address);
    return address != NULL;
}

static void take_named(void *context, size_t place, const char *text) {
    struct usage_nvidia *nvidia = context;
    if (nvidia->by_uuid == NULL || nvidia->by_uuid(text, &nvidia->devices[place]) != 0)
        nvidia->devices[place] = NULL;
}

/* Devices in the order and of the number that workers see: what CUDA_VISIBLE_DEVICES leaves, by index or by
 * UUID. */
static bool take_devices(struct usage_nvidia *nvidia, void *library) {
    int (*init)(void), (*count)(unsigned *), (*by_index)(unsigned, struct nvml_device **);
    int indices[USAGE_DEVICES_MAX];
    unsigned there = 0;
    if (!find(library, "nvmlInit_v2", &init) || !find(library, "nvmlDeviceGetCount_v2", &count) ||
        !find(library, "nvmlDeviceGetHandleByIndex_v2", &by_index) || init() != 0 || count(&there) != 0)
        return false;
    nvidia->n = usage_visible(getenv(accelerator_nvidia.visible), there, indices, take_named, nvidia);
    for (size_t i = 0; i < nvidia->n; i++)
        if (indices[i] >= 0 && by_index((unsigned)indices[i], &nvidia->devices[i]) != 0)
            nvidia->devices[i] = NULL;
    return nvidia->n > 0;
}

/* A device that takes no listener is left out, without a word: its count of faults stays 0. */
static void register_events(struct usage_nvidia *nvidia, void *library) {
    int (*create)(struct nvml_event_set **);
    if (!find(library, "nvmlEventSetCreate", &create) || !find(library, "nvmlEventSetWait_v2", &nvidia->wait) ||
        nvidia->listen == NULL || create(&nvidia->events) != 0) {
        nvidia->events = NULL;
        return;
    }
    for (size_t i = 0; i < nvidia->n; i++)
        if (nvidia->devices[i] != NULL) (void)nvidia->listen(nvidia->devices[i], EVENT_XID, nvidia->events);
}

/* Utilization says that some kernel ran; how many processors worked GPM alone tells. A device without it has no
 * first sample. */
static void prepare_activity(struct usage_nvidia *nvidia, void *library) {
    if (!find(library, "nvmlGpmSampleAlloc", &nvidia->gpm_create) || nvidia->gpm_support == NULL ||
        !find(library, "nvmlGpmMetricsGet", &nvidia->gpm_compare) || nvidia->gpm_look == NULL)
        return;
    for (size_t i = 0; i < nvidia->n; i++) {
        struct gpm_support support = {.version = GPM_VERSION};
        struct gpm_sample **pair = nvidia->gpm[i];
        if (nvidia->devices[i] == NULL || nvidia->gpm_support(nvidia->devices[i], &support) != 0 ||
            support.supported == 0 || nvidia->gpm_create(&pair[0]) != 0 || nvidia->gpm_create(&pair[1]) != 0)
            pair[0] = NULL;
    }
}

struct usage_nvidia *usage_nvidia_open(void) {
    void *library = nvidia_library();
    struct usage_nvidia *nvidia = library != NULL ? calloc(1, sizeof *nvidia) : NULL;
    if (nvidia == NULL) return NULL;
#define X(member, symbol, ...) (void)find(library, symbol, &nvidia->member);
    DEVICE_CALLS(X)
#undef X
    (void)find(library, "nvmlDeviceGetHandleByUUID", &nvidia->by_uuid);
    if (!take_devices(nvidia, library)) {
        free(nvidia);
        return NULL;
    }
    prepare_activity(nvidia, library);
    register_events(nvidia, library);
    return nvidia;
}

/* NVML's reasons: power by software 0x4, hardware 0x8, thermal by software 0x20 and hardware 0x40, brake
 * 0x80. */
static unsigned limits_of(unsigned long long reasons) {
    unsigned bits = 0;
    if (reasons & 0x4) bits |= USAGE_LIMITED_POWER;
    if (reasons & 0x8) bits |= USAGE_LIMITED_HARDWARE;
    if (reasons & 0x60) bits |= USAGE_LIMITED_THERMAL;
    if (reasons & 0x80) bits |= USAGE_LIMITED_BRAKE;
    return bits;
}

static void look_at(struct usage_nvidia *nvidia, size_t i, struct usage_sample *sample) {
    struct nvml_device *device = nvidia->devices[i];
    struct nvml_utilization utilization;
    struct nvml_memory_used memory;
    unsigned value;
    unsigned long long count;
    int number = (int)i;
    if (nvidia->utilization != NULL) {
        int code = nvidia->utilization(device, &utilization);
        if (code == 0) usage_add(sample, USAGE_DEVICE_UTILIZATION, number, utilization.gpu / 100.0);
        if (code == DRIVER_GPU_IS_LOST && !atomic_exchange(&nvidia->lost[i], true))
            usage_fault_add(sample, USAGE_FAULT_LOST, number, 0);
    }
    if (nvidia->memory != NULL && nvidia->memory(device, &memory) == 0) {
        usage_add(sample, USAGE_DEVICE_MEMORY, number, (double)memory.used);
        usage_add(sample, USAGE_DEVICE_MEMORY_SIZE, number, (double)memory.total);
    }
    if (nvidia->power != NULL && nvidia->power(device, &value) == 0)
        usage_add(sample, USAGE_DEVICE_POWER, number, value / 1e3);
    if (nvidia->energy != NULL && nvidia->energy(device, &count) == 0)
        usage_add(sample, USAGE_DEVICE_ENERGY, number, (double)count / 1e3);
    if (nvidia->temperature != NULL && nvidia->temperature(device, SENSOR_GPU, &value) == 0)
        usage_add(sample, USAGE_DEVICE_TEMPERATURE, number, value);
    if (nvidia->clock != NULL && nvidia->clock(device, CLOCK_SM, &value) == 0)
        usage_add(sample, USAGE_DEVICE_CLOCK, number, value * 1e6);
    if (nvidia->clock_max != NULL && nvidia->clock_max(device, CLOCK_SM, &value) == 0)
        usage_add(sample, USAGE_DEVICE_CLOCK_MAX, number, value * 1e6);
    if (nvidia->limits != NULL && nvidia->limits(device, &count) == 0)
        usage_add(sample, USAGE_DEVICE_LIMITED, number, limits_of(count));
    if (nvidia->ecc != NULL && nvidia->ecc(device, ECC_UNCORRECTED, ECC_SINCE_START, &count) == 0)
        usage_add(sample, USAGE_DEVICE_ECC, number, (double)count);
}

/* The driver compares two looks. They change places: what was `now` is `before` the next time. */
static void look_at_activity(struct usage_nvidia *nvidia, size_t i, struct usage_sample *sample) {
    struct gpm_sample **pair = nvidia->gpm[i];
    struct gpm_question asked = {GPM_VERSION, 1, pair[0], pair[1], {{.id = GPM_SM_UTILIZATION}}};
    if (pair[0] == NULL || nvidia->gpm_look(nvidia->devices[i], pair[1]) != 0) return;
    if (nvidia->gpm_looked[i] && nvidia->gpm_compare(&asked) == 0 && asked.values[0].code == 0)
        usage_add(sample, USAGE_DEVICE_ACTIVITY, (int)i, asked.values[0].value / 100);
    nvidia->gpm_looked[i] = true;
    pair[1] = pair[0];
    pair[0] = asked.now;
}

void usage_nvidia_look(struct usage_nvidia *nvidia, struct usage_sample *sample) {
    for (size_t i = 0; i < nvidia->n; i++) {
        if (nvidia->devices[i] == NULL) continue;
        look_at(nvidia, i, sample);
        look_at_activity(nvidia, i, sample);
        if (nvidia->events != NULL) usage_add(sample, USAGE_DEVICE_XID, (int)i, (double)nvidia->xids[i]);
    }
}

/* -- faults */

/* Every event is counted, and told unless the one that was told last of the device had the same number within
 * REPEATED_WITHIN. */
static void take_event(struct usage_nvidia *nvidia, const struct nvml_event *event,
                       struct usage_sample *sample) {
    nanoseconds now = clock_monotonic();
    for (size_t i = 0; i < nvidia->n; i++) {
        if (nvidia->devices[i] != event->device) continue;
        (void)atomic_fetch_add(&nvidia->xids[i], 1);
        bool again = nvidia->told[i].code == event->data && now - nvidia->told[i].at < REPEATED_WITHIN;
        if (again && nvidia->told[i].at > 0) continue;
        nvidia->told[i].code = event->data;
        nvidia->told[i].at = now;
        usage_fault_add(sample, USAGE_FAULT_XID, (int)i, event->data);
    }
}

/* A device that is off the bus may end the wait in place of an event. */
static void find_lost(struct usage_nvidia *nvidia, struct usage_sample *sample) {
    struct nvml_utilization ignored;
    for (size_t i = 0; i < nvidia->n && nvidia->utilization != NULL; i++)
        if (nvidia->devices[i] != NULL &&
            nvidia->utilization(nvidia->devices[i], &ignored) == DRIVER_GPU_IS_LOST &&
            !atomic_exchange(&nvidia->lost[i], true))
            usage_fault_add(sample, USAGE_FAULT_LOST, (int)i, 0);
}

/* A wait that fails at once, as for a lost device, would turn without a rest: it gets one. A packet that the
 * agent has no room for is lost; the count of the next sample still has its event. */
static void *listen_to_faults(void *context) {
    struct usage_nvidia *nvidia = context;
    static struct usage_sample sample; /* of this one thread */
    struct nvml_event event;
    for (;;) {
        sample.n_faults = 0;
        int code = nvidia->wait(nvidia->events, &event, WAIT_MS);
        sample.time = clock_wall();
        if (code == 0) take_event(nvidia, &event, &sample);
        if (code == DRIVER_GPU_IS_LOST) find_lost(nvidia, &sample);
        if (sample.n_faults > 0)
            (void)send(nvidia->fd, &sample, usage_size(&sample), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (code != 0 && code != DRIVER_TIMEOUT) (void)poll(NULL, 0, BREATH_MS);
    }
    return NULL;
}

void usage_nvidia_listen(struct usage_nvidia *nvidia, int fd) {
    pthread_attr_t attributes;
    pthread_t thread;
    if (nvidia->events == NULL || pthread_attr_init(&attributes) != 0) return;
    nvidia->fd = fd;
    (void)pthread_attr_setstacksize(&attributes, LISTENER_STACK);
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void)pthread_create(&thread, &attributes, listen_to_faults, nvidia);
    (void)pthread_attr_destroy(&attributes);
}
