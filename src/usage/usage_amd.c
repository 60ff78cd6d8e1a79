/* AMD's devices by the files of the amdgpu driver: those of the device, and of its monitor (hwmon). No library
 * of the vendor's is needed, and no device is opened. What a card's driver has no file for is left out of the
 * sample. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accelerator/accelerator.h"
#include "accelerator/vendors.h"
#include "usage/usage.h"

struct monitor {
    char path[MACHINE_PATH_SIZE / 2]; /* of the device; then of its monitor */
};

static int take_monitor(void *context, const char *name) {
    struct monitor *monitor = context;
    size_t size = strlen(monitor->path);
    (void)snprintf(monitor->path + size, sizeof monitor->path - size, "/%s", name);
    return 1; /* it has one */
}

/* Adds what the file says, in units of `unit`. False without the file. */
static bool add(struct usage_sample *sample, enum usage_what what, int device, const char *directory,
                const char *file, double unit) {
    char path[MACHINE_PATH_SIZE];
    int64_t value;
    (void)snprintf(path, sizeof path, "%s/%s", directory, file);
    if (!machine_read_number(path, &value) || value < 0) return false;
    usage_add(sample, what, device, (double)value * unit);
    return true;
}

static void look_at(struct usage_sample *sample, int device, int64_t render) {
    char path[MACHINE_PATH_SIZE / 4];
    struct monitor monitor;
    (void)snprintf(path, sizeof path, "/sys/class/drm/renderD%lld/device", (long long)render);
    (void)snprintf(monitor.path, sizeof monitor.path, "%s/hwmon", path);
    (void)add(sample, USAGE_DEVICE_UTILIZATION, device, path, "gpu_busy_percent", 0.01);
    (void)add(sample, USAGE_DEVICE_MEMORY, device, path, "mem_info_vram_used", 1);
    (void)add(sample, USAGE_DEVICE_MEMORY_SIZE, device, path, "mem_info_vram_total", 1);
    if (machine_each(monitor.path, take_monitor, &monitor) != 1) return;
    if (!add(sample, USAGE_DEVICE_POWER, device, monitor.path, "power1_average", 1e-6))
        (void)add(sample, USAGE_DEVICE_POWER, device, monitor.path, "power1_input", 1e-6);
    (void)add(sample, USAGE_DEVICE_TEMPERATURE, device, monitor.path, "temp1_input", 1e-3);
    (void)add(sample, USAGE_DEVICE_CLOCK, device, monitor.path, "freq1_input", 1);
}

void usage_amd_look(struct usage_sample *sample) {
    int64_t renders[USAGE_DEVICES_MAX];
    int indices[USAGE_DEVICES_MAX];
    size_t n = amd_render_devices(renders, USAGE_DEVICES_MAX);
    if (n == 0) return;
    const char *hip = getenv("HIP_VISIBLE_DEVICES");
    n = usage_visible(hip != NULL ? hip : getenv("CUDA_VISIBLE_DEVICES"), n, indices, NULL, NULL);
    for (size_t i = 0; i < n; i++)
        if (indices[i] >= 0) look_at(sample, (int)i, renders[indices[i]]);
}
