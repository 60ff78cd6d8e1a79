/* The machine: /proc/stat, meminfo, pressure, net/dev, diskstats, the counters of InfiniBand ports, and the
 * cgroup of this process. What does not exist on a machine is left out of the sample. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "accelerator/vendors.h"
#include "base/cleanup.h"
#include "base/process.h"
#include "base/str.h"
#include "usage/usage.h"

enum { NODE_TEXT_MAX = 64 << 10, SECTOR = 512, RDMA_UNIT = 4 };

/* -- the texts */

/* "cpu  USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL ...": guests are counted in USER already. */
bool usage_parse_stat(const char *text, uint64_t *busy, uint64_t *whole) {
    uint64_t ticks[8] = {0};
    const char *numbers;
    if (!str_prefix(text, "cpu ", &numbers)) return false;
    int n = sscanf(
        numbers, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64,
        &ticks[0], &ticks[1], &ticks[2], &ticks[3], &ticks[4], &ticks[5], &ticks[6], &ticks[7]);
    if (n < 4) return false;
    *whole = 0;
    for (size_t i = 0; i < ARRAY_SIZE(ticks); i++)
        *whole += ticks[i];
    *busy = *whole - ticks[3] - ticks[4];
    return true;
}

bool usage_parse_pressure(const char *text, double *ratio) {
    double percent;
    if (sscanf(text, "some avg10=%lf", &percent) != 1 || !(percent >= 0 && percent <= 100)) return false;
    *ratio = percent / 100;
    return true;
}

/* "  eth0: BYTES PACKETS ERRORS DROPPED FIFO FRAME COMPRESSED MULTICAST BYTES ...", behind two lines of
 * heads. */
void usage_parse_network(const char *text,
                         void (*each)(void *context, const char *name, uint64_t in, uint64_t out),
                         void *context) {
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        char name[32];
        uint64_t in, out;
        line += *line == '\n';
        if (sscanf(line, " %31[^: \n]: %" SCNu64 " %*u %*u %*u %*u %*u %*u %*u %" SCNu64, name, &in, &out) == 3)
            each(context, name, in, out);
    }
}

/* "8 0 sda READS MERGED SECTORS MS WRITES MERGED SECTORS ...". */
void usage_parse_disks(const char *text,
                       void (*each)(void *context, const char *name, uint64_t in, uint64_t out),
                       void *context) {
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        char name[64];
        uint64_t in, out;
        line += *line == '\n';
        if (sscanf(line, " %*u %*u %63s %*u %*u %" SCNu64 " %*u %*u %*u %" SCNu64, name, &in, &out) == 3)
            each(context, name, in * SECTOR, out * SECTOR);
    }
}

/* -- the files */

struct transfer {
    const char *device_of; /* below /sys: NAME/device is there for what is hardware */
    uint64_t in, out;
    uint64_t all_in, all_out; /* of those without hardware too: all that a container has */
    bool real, any;
};

/* What goes through a bridge, a tunnel or a virtual disk goes through hardware as well, and would count twice:
 * where there is any hardware it alone counts. A name with a slash, as some disks have (cciss/c0d0), stands in
 * /sys under another one, and is left out; ".." would lead elsewhere. */
static void add_transfer(void *context, const char *name, uint64_t in, uint64_t out) {
    struct transfer *transfer = context;
    char path[MACHINE_PATH_SIZE];
    if (strchr(name, '/') != NULL || str_equal(name, "lo") || str_equal(name, "..")) return;
    (void)snprintf(path, sizeof path, "/sys/%s/%s/device", transfer->device_of, name);
    transfer->any = true;
    transfer->all_in += in;
    transfer->all_out += out;
    if (!machine_has(path)) return;
    transfer->real = true;
    transfer->in += in;
    transfer->out += out;
}

static void add_network(struct usage_sample *sample, char *text) {
    struct transfer transfer = {.device_of = "class/net"};
    if (!machine_read_some("/proc/net/dev", text, NODE_TEXT_MAX)) return;
    usage_parse_network(text, add_transfer, &transfer);
    if (!transfer.any) return;
    usage_add(sample, USAGE_NODE_RECEIVE, -1, (double)(transfer.real ? transfer.in : transfer.all_in));
    usage_add(sample, USAGE_NODE_TRANSMIT, -1, (double)(transfer.real ? transfer.out : transfer.all_out));
}

static void add_disks(struct usage_sample *sample, char *text) {
    struct transfer transfer = {.device_of = "block"};
    if (!machine_read_some("/proc/diskstats", text, NODE_TEXT_MAX)) return;
    usage_parse_disks(text, add_transfer, &transfer);
    if (!transfer.real) return; /* partitions and layers over disks would be counted twice */
    usage_add(sample, USAGE_NODE_READ, -1, (double)transfer.in);
    usage_add(sample, USAGE_NODE_WRITE, -1, (double)transfer.out);
}

/* Ports count bytes divided by four (the kernel's Documentation/ABI/stable/sysfs-class-infiniband). */
struct rdma_ports {
    const char *adapter;
    int64_t in, out; /* bytes / 4 */
    bool any;
};

static int add_port(void *context, const char *port) {
    struct rdma_ports *ports = context;
    char path[MACHINE_PATH_SIZE];
    int64_t in, out;
    (void)snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/%s/counters/port_rcv_data",
                   ports->adapter, port);
    if (!machine_read_number(path, &in)) return 0;
    (void)snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/%s/counters/port_xmit_data",
                   ports->adapter, port);
    if (!machine_read_number(path, &out)) return 0;
    ports->in += in;
    ports->out += out;
    ports->any = true;
    return 0;
}

static int add_adapter(void *context, const char *adapter) {
    struct rdma_ports *ports = context;
    char path[MACHINE_PATH_SIZE];
    ports->adapter = adapter;
    (void)snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports", adapter);
    return machine_each(path, add_port, ports);
}

static void add_rdma(struct usage_sample *sample) {
    struct rdma_ports ports = {0};
    (void)machine_each("/sys/class/infiniband", add_adapter, &ports);
    if (!ports.any) return;
    usage_add(sample, USAGE_NODE_RDMA_RECEIVE, -1, (double)ports.in * RDMA_UNIT);
    usage_add(sample, USAGE_NODE_RDMA_TRANSMIT, -1, (double)ports.out * RDMA_UNIT);
}

/* Version 2. In a container the path may be that of another view: then the mount itself is our group. */
static void add_group(struct usage_sample *sample, char *text) {
    char group[MACHINE_PATH_SIZE / 2], path[MACHINE_PATH_SIZE];
    int64_t value;
    if (!machine_read_some("/proc/self/cgroup", text, NODE_TEXT_MAX)) return;
    if (!process_cgroup(text, "", group, sizeof group)) return;
    (void)snprintf(path, sizeof path, "/sys/fs/cgroup%s/cgroup.procs", group);
    if (!machine_has(path)) group[0] = '\0';
    (void)snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.current", group);
    if (machine_read_number(path, &value)) usage_add(sample, USAGE_NODE_GROUP_MEMORY, -1, (double)value);
    (void)snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.stat", group);
    if (machine_property(path, "usage_usec", &value))
        usage_add(sample, USAGE_NODE_GROUP_CPU, -1, (double)value / 1e6);
}

/* The kernel's count of time in which the processors waited for a disk may fall (proc_stat(5)): all of the time
 * grows by less than the busy time then, of which no processor had more than all. */
void usage_node_look(struct usage_node *node, struct usage_sample *sample) {
    static const struct {
        const char *path;
        enum usage_what what;
    } pressures[] = {{"/proc/pressure/cpu", USAGE_NODE_CPU_PRESSURE},
                     {"/proc/pressure/memory", USAGE_NODE_MEMORY_PRESSURE},
                     {"/proc/pressure/io", USAGE_NODE_IO_PRESSURE}};
    static char text[NODE_TEXT_MAX];
    uint64_t busy, whole;
    int64_t size, available;
    double ratio;
    if (machine_read_some("/proc/stat", text, sizeof text) && usage_parse_stat(text, &busy, &whole)) {
        if (node->whole > 0 && whole > node->whole && busy >= node->busy)
            usage_add(sample, USAGE_NODE_CPU, -1,
                      fmin((double)(busy - node->busy) / (double)(whole - node->whole), 1));
        node->busy = busy;
        node->whole = whole;
    }
    if (machine_property("/proc/meminfo", "MemTotal", &size)) {
        usage_add(sample, USAGE_NODE_MEMORY_SIZE, -1, (double)size * 1024);
        if (machine_property("/proc/meminfo", "MemAvailable", &available))
            usage_add(sample, USAGE_NODE_MEMORY, -1, (double)(size - available) * 1024);
    }
    for (size_t i = 0; i < ARRAY_SIZE(pressures); i++)
        if (machine_read_some(pressures[i].path, text, NODE_TEXT_MAX) && usage_parse_pressure(text, &ratio))
            usage_add(sample, pressures[i].what, -1, ratio);
    add_network(sample, text);
    add_rdma(sample);
    add_disks(sample, text);
    add_group(sample, text);
}
