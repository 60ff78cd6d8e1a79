/* Stands in for libnvidia-ml.so.1: $FAKE_NVML is "COUNT:NAME", and a driver that does not answer when it is
 * unset. A MIG instance "MIG-N..." is a part of device N. */
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

enum { DRIVER_NOT_LOADED = 9, MOST_DEVICES = 64 };

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
