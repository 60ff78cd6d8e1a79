/* Stands in for libnvidia-ml.so.1: $FAKE_NVML is "COUNT:NAME", and a driver that does not answer when it is
 * unset. A MIG instance "MIG-N..." is a part of device N. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct nvml_device {
    unsigned index;
};

struct pci_info {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

struct memory {
    unsigned long long total, free, used;
};

enum { DRIVER_NOT_LOADED = 9, TIMED_OUT = 10, GPU_IS_LOST = 15, MOST_DEVICES = 64 };

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct nvml_device **device);
int nvmlDeviceGetName(struct nvml_device *device, char *name, unsigned size);
int nvmlDeviceGetUUID(struct nvml_device *device, char *uuid, unsigned size);
int nvmlDeviceGetPciInfo_v3(struct nvml_device *device, struct pci_info *info);
int nvmlDeviceGetMemoryInfo(struct nvml_device *device, struct memory *memory);

int nvmlDeviceGetHandleByUUID(const char *uuid, struct nvml_device **device);
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(struct nvml_device *instance, struct nvml_device **device);

int nvmlInit_v2(void) {
    return getenv("FAKE_NVML") == NULL ? DRIVER_NOT_LOADED : 0;
}

int nvmlShutdown(void) {
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = (unsigned)atoi(getenv("FAKE_NVML"));
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct nvml_device **device) {
    static struct nvml_device devices[MOST_DEVICES];
    devices[index].index = index;
    *device = &devices[index];
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, struct nvml_device **device) {
    unsigned index;
    if (sscanf(uuid, "MIG-%u", &index) != 1 || index >= MOST_DEVICES) return DRIVER_NOT_LOADED;
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(struct nvml_device *instance, struct nvml_device **device) {
    *device = instance;
    return 0;
}

int nvmlDeviceGetName(struct nvml_device *device, char *name, unsigned size) {
    (void)device;
    (void)snprintf(name, size, "%s", strchr(getenv("FAKE_NVML"), ':') + 1);
    return 0;
}

int nvmlDeviceGetUUID(struct nvml_device *device, char *uuid, unsigned size) {
    (void)snprintf(uuid, size, "GPU-%08u-1111-2222-3333-444444444444", device->index);
    return 0;
}

int nvmlDeviceGetPciInfo_v3(struct nvml_device *device, struct pci_info *info) {
    *info = (struct pci_info){.domain = 0, .bus = 0x3b + device->index, .device = 1};
    return 0;
}

int nvmlDeviceGetMemoryInfo(struct nvml_device *device, struct memory *memory) {
    (void)device;
    *memory = (struct memory){.total = 80ULL << 30, .used = 1ULL << 30};
    return 0;
}

/* Faults are lines of the file that $FAKE_NVML_FAULTS names, as a test adds them: "xid 79 1" is an event of
 * device 1, "ecc 3 1" counts its errors, "lost 1 1" takes it away. The last of a kind and device counts. */

struct event_set;

struct event_data {
    struct nvml_device *device;
    unsigned long long type, data;
    unsigned instance, part;
};

int nvmlEventSetCreate(struct event_set **set);
int nvmlDeviceRegisterEvents(struct nvml_device *device, unsigned long long types, struct event_set *set);
int nvmlEventSetWait_v2(struct event_set *set, struct event_data *event, unsigned timeout_ms);
int nvmlDeviceGetTotalEccErrors(struct nvml_device *device, int type, int counter, unsigned long long *count);

static FILE *open_faults(void) {
    const char *path = getenv("FAKE_NVML_FAULTS");
    return path != NULL ? fopen(path, "re") : NULL;
}

static unsigned long long fault_of(const char *kind, unsigned index) {
    char word[16];
    unsigned device;
    unsigned long long number, last = 0;
    FILE *faults = open_faults();
    while (faults != NULL && fscanf(faults, "%15s %llu %u\n", word, &number, &device) == 3)
        if (strcmp(word, kind) == 0 && device == index) last = number;
    if (faults != NULL) (void)fclose(faults);
    return last;
}

int nvmlEventSetCreate(struct event_set **set) {
    static char some;
    *set = (struct event_set *)&some;
    return 0;
}

int nvmlDeviceRegisterEvents(struct nvml_device *device, unsigned long long types, struct event_set *set) {
    (void)device, (void)types, (void)set;
    return 0;
}

/* The next line that is whole. */
int nvmlEventSetWait_v2(struct event_set *set, struct event_data *event, unsigned timeout_ms) {
    static long at;
    (void)set;
    for (unsigned passed = 0; passed <= timeout_ms; passed += 5, (void)usleep(5000)) {
        char line[64], word[16];
        FILE *faults = open_faults();
        bool whole = faults != NULL && fseek(faults, at, SEEK_SET) == 0 &&
                     fgets(line, sizeof line, faults) != NULL && strchr(line, '\n') != NULL;
        if (faults != NULL) (void)fclose(faults);
        if (!whole) continue;
        unsigned device;
        at += (long)strlen(line);
        if (sscanf(line, "%15s %llu %u", word, &event->data, &device) != 3) continue;
        if (strcmp(word, "lost") == 0) return GPU_IS_LOST;
        if (strcmp(word, "xid") != 0) continue;
        event->type = 8;
        return nvmlDeviceGetHandleByIndex_v2(device, &event->device);
    }
    return TIMED_OUT;
}

int nvmlDeviceGetTotalEccErrors(struct nvml_device *device, int type, int counter, unsigned long long *count) {
    (void)type, (void)counter;
    *count = fault_of("ecc", device->index);
    return 0;
}

/* GPM: each look at an odd device finds its processors 12.5 % busier than the one before; others have none. */

struct sample {
    unsigned looks;
};

struct support {
    unsigned version, supported;
};

struct question {
    unsigned version, n;
    struct sample *before, *now;
    struct {
        unsigned id;
        int code;
        double value;
        const char *names[3];
    } values[333];
};

int nvmlGpmQueryDeviceSupport(struct nvml_device *device, struct support *support);
int nvmlGpmSampleAlloc(struct sample **sample);
int nvmlGpmSampleGet(struct nvml_device *device, struct sample *sample);
int nvmlGpmMetricsGet(struct question *question);

int nvmlGpmQueryDeviceSupport(struct nvml_device *device, struct support *support) {
    if (support->version != 1) return DRIVER_NOT_LOADED;
    support->supported = device->index % 2;
    return 0;
}

int nvmlGpmSampleAlloc(struct sample **sample) {
    static struct sample samples[2 * MOST_DEVICES];
    static size_t n;
    *sample = &samples[n++];
    return 0;
}

int nvmlGpmSampleGet(struct nvml_device *device, struct sample *sample) {
    static unsigned looks[MOST_DEVICES];
    sample->looks = ++looks[device->index];
    return 0;
}

int nvmlGpmMetricsGet(struct question *question) {
    if (question->version != 1 || question->n != 1 || question->values[0].id != 2) return DRIVER_NOT_LOADED;
    question->values[0].code = 0;
    question->values[0].value = (question->now->looks - question->before->looks) * 12.5;
    return 0;
}

/* What a sampler asks: of device N 37 % and 412 W on each odd one, else idle; hangs while $FAKE_NVML_HANGS
 * names a file that is there. */

struct utilization {
    unsigned gpu, memory;
};

int nvmlDeviceGetUtilizationRates(struct nvml_device *device, struct utilization *utilization);
int nvmlDeviceGetPowerUsage(struct nvml_device *device, unsigned *milliwatts);
int nvmlDeviceGetCurrentClocksThrottleReasons(struct nvml_device *device, unsigned long long *reasons);

int nvmlDeviceGetUtilizationRates(struct nvml_device *device, struct utilization *utilization) {
    const char *hangs = getenv("FAKE_NVML_HANGS");
    while (hangs != NULL && access(hangs, F_OK) == 0)
        (void)usleep(20000);
    if (fault_of("lost", device->index) != 0) return GPU_IS_LOST;
    *utilization = (struct utilization){.gpu = device->index % 2 == 1 ? 37 : 0};
    return 0;
}

int nvmlDeviceGetPowerUsage(struct nvml_device *device, unsigned *milliwatts) {
    *milliwatts = device->index % 2 == 1 ? 412000 : 70000;
    return 0;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(struct nvml_device *device, unsigned long long *reasons) {
    *reasons = device->index % 2 == 1 ? 0x40 : 0;
    return 0;
}
