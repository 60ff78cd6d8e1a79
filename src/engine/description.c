/* Between a node and its description. What is read comes from another machine: lists and texts are bounded,
 * names and labels are checked as those of a cluster file are, and what belongs together has the same
 * length. */
#include "engine/description.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include "engine/address.h"
#include "scaling/device.h"

/* -- made */

static int make_devices(const struct node *node, size_t index, Wire__Join *join) {
    const struct node_devices *devices = &node->shape->devices[index];
    Wire__Devices *made = calloc(1, sizeof *made);
    if (made == NULL) return -ENOMEM;
    wire__devices__init(made);
    join->devices[join->n_devices++] = made;
    made->resource = devices->resource;
    made->number = (uint32_t)devices->n;
    made->ids = devices->ids;
    made->n_ids = devices->ids != NULL ? devices->n : 0;
    made->uuids = devices->uuids;
    made->n_uuids = devices->uuids != NULL ? devices->n : 0;
    made->bus_ids = devices->bus_ids;
    made->n_bus_ids = devices->bus_ids != NULL ? devices->n : 0;
    if (node->use == NULL) return 0;
    made->free = node->use->device_free[index];
    made->n_free = devices->n;
    return 0;
}

/* Texts stay the node's: lists and their items alone are made, and freed by description_done. */
int description_make(const struct node *node, Wire__Join *join, ty_error *err) {
    const struct node_shape *shape = node->shape;
    int result = 0;
    join->resources = calloc(shape->total.n + 1, sizeof(Wire__Amount *));
    join->labels = calloc(shape->labels.n + 1, sizeof(Wire__Label *));
    join->devices = calloc(shape->n_devices + 1, sizeof(Wire__Devices *));
    if (join->resources == NULL || join->labels == NULL || join->devices == NULL) result = -ENOMEM;
    for (size_t i = 0; i < shape->total.n && result == 0; i++) {
        Wire__Amount *amount = calloc(1, sizeof *amount);
        if (amount == NULL) {
            result = -ENOMEM;
            break;
        }
        wire__amount__init(amount);
        amount->name = shape->total.items[i].name;
        amount->amount = shape->total.items[i].amount;
        join->resources[join->n_resources++] = amount;
    }
    for (size_t i = 0; i < shape->labels.n && result == 0; i++) {
        Wire__Label *label = calloc(1, sizeof *label);
        if (label == NULL) {
            result = -ENOMEM;
            break;
        }
        wire__label__init(label);
        label->key = shape->labels.items[i].key;
        label->value = shape->labels.items[i].value;
        join->labels[join->n_labels++] = label;
    }
    for (size_t i = 0; i < shape->n_devices && result == 0; i++)
        result = make_devices(node, i, join);
    if (shape->accelerator_type != NULL) join->accelerator_type = shape->accelerator_type;
    if (result == 0) return 0;
    description_done(join);
    return ty_fail_memory(err);
}

/* Bits of a network's mask. */
static uint32_t prefix_of(const struct ifaddrs *one) {
    struct address mask;
    uint32_t bits = 0;
    if (!address_of(one->ifa_netmask, &mask)) return 0;
    bool v6 = mask.socket.ss_family == AF_INET6;
    const uint8_t *bytes = v6 ? (const uint8_t *)&((struct sockaddr_in6 *)&mask.socket)->sin6_addr
                              : (const uint8_t *)&((struct sockaddr_in *)&mask.socket)->sin_addr;
    for (size_t i = 0; i < (v6 ? 16 : 4); i++)
        bits += (uint32_t)__builtin_popcount(bytes[i]);
    return bits;
}

static int add_address(Wire__Join *join, const struct ifaddrs *one) {
    struct address address;
    if (!address_of_interface(one, &address)) return 0;
    if (ARRAY_GROW(join->addresses, join->n_addresses) < 0) return -ENOMEM;
    Wire__Address *made = calloc(1, sizeof *made);
    if (made == NULL) return -ENOMEM;
    wire__address__init(made);
    join->addresses[join->n_addresses++] = made;
    char text[64];
    address_format_host(&address, text);
    made->address = strdup(text);
    made->interface = strdup(one->ifa_name);
    made->prefix = prefix_of(one);
    return made->address != NULL && made->interface != NULL ? 0 : -ENOMEM;
}

int description_add_addresses(Wire__Join *join, ty_error *err) {
    struct ifaddrs *all = NULL;
    int result = 0;
    if (getifaddrs(&all) < 0)
        return ty_fail(err, -errno, "cannot list network interfaces: %s", strerror(errno));
    for (struct ifaddrs *one = all; one != NULL && result == 0; one = one->ifa_next)
        result = add_address(join, one);
    freeifaddrs(all);
    return result == 0 ? 0 : ty_fail_memory(err);
}

static void free_list(void **list, size_t n) {
    for (size_t i = 0; i < n; i++)
        free(list[i]);
    free(list);
}

void description_done(Wire__Join *join) {
    for (size_t i = 0; i < join->n_addresses; i++) {
        free(join->addresses[i]->address);
        free(join->addresses[i]->interface);
    }
    free_list((void **)join->addresses, join->n_addresses);
    free_list((void **)join->resources, join->n_resources);
    free_list((void **)join->labels, join->n_labels);
    free_list((void **)join->devices, join->n_devices);
    join->resources = NULL;
    join->labels = NULL;
    join->devices = NULL;
    join->addresses = NULL;
    join->n_resources = join->n_labels = join->n_devices = join->n_addresses = 0;
}

/* -- read */

/* These texts come into errors, events and files, so control characters are refused here, once. */
static int check_text(const char *what, const char *text, ty_error *err) {
    size_t size = strnlen(text, DESCRIPTION_MAX_TEXT + 1);
    if (size > DESCRIPTION_MAX_TEXT)
        return ty_fail(err, TY_EUSAGE, "its %s is longer than %d bytes", what, DESCRIPTION_MAX_TEXT);
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            return ty_fail(err, TY_EUSAGE, "its %s holds control characters", what);
    return utf8_valid(text, size) ? 0 : ty_fail(err, TY_EUSAGE, "its %s is not UTF-8", what);
}

static int check_number(const char *what, size_t n, ty_error *err) {
    if (n <= DESCRIPTION_MAX_LIST) return 0;
    return ty_fail(err, TY_EUSAGE, "it names %zu %s; at most %d are possible", n, what, DESCRIPTION_MAX_LIST);
}

static int check_texts(const char *what, char *const *texts, size_t n, size_t expected, ty_error *err) {
    if (n != 0 && n != expected)
        return ty_fail(err, TY_EUSAGE, "it names %zu %s of %zu devices", n, what, expected);
    int result = 0;
    for (size_t i = 0; i < n && result == 0; i++)
        result = check_text(what, texts[i], err);
    return result;
}

static int check_devices(const Wire__Join *join, const Wire__Devices *devices, ty_error *err) {
    int result = check_text("resource", devices->resource, err);
    if (result == 0) result = check_number("devices", devices->number, err);
    if (result == 0) result = check_texts("ids", devices->ids, devices->n_ids, devices->number, err);
    if (result == 0) result = check_texts("UUIDs", devices->uuids, devices->n_uuids, devices->number, err);
    if (result == 0)
        result = check_texts("PCI ids", devices->bus_ids, devices->n_bus_ids, devices->number, err);
    if (result == 0 && devices->n_free != 0 && devices->n_free != devices->number)
        return ty_fail(err, TY_EUSAGE, "it says of %zu of %u devices what is free", devices->n_free,
                       devices->number);
    for (size_t i = 0; i < devices->n_free && result == 0; i++)
        if (devices->free[i] < 0 || devices->free[i] > QUANTITY_ONE)
            return ty_fail(err, TY_EUSAGE, "an amount that is free is not 0 to 1");
    size_t same = 0;
    for (size_t i = 0; i < join->n_devices; i++)
        same += strcmp(join->devices[i]->resource, devices->resource) == 0;
    if (result == 0 && same != 1)
        return ty_fail(err, TY_EUSAGE, "it describes its %.40s twice", devices->resource);
    return result;
}

int description_check(const Wire__Join *join, ty_error *err) {
    int result = check_text("name", join->node_name, err);
    if (result == 0 && join->node_name[0] == '\0') return ty_fail(err, TY_EUSAGE, "its name is empty");
    if (result == 0) result = check_text("accelerator type", join->accelerator_type, err);
    if (result == 0) result = check_text("list of who has its devices", join->held, err);
    if (result == 0 && join->n_resources > RESOURCES_MAX)
        return ty_fail(err, TY_EUSAGE, "it names %zu resources; at most %d are possible", join->n_resources,
                       RESOURCES_MAX);
    if (result == 0) result = check_number("labels", join->n_labels, err);
    if (result == 0 && join->n_devices > 16) return ty_fail(err, TY_EUSAGE, "it has too many kinds of devices");
    if (result == 0) result = check_number("addresses", join->n_addresses, err);
    for (size_t i = 0; i < join->n_addresses && result == 0; i++)
        result = check_text("address", join->addresses[i]->address, err) < 0
                     ? TY_EUSAGE
                     : check_text("interface", join->addresses[i]->interface, err);
    if (result == 0 && join->trial_port > UINT16_MAX)
        return ty_fail(err, TY_EUSAGE, "its port %u is none", join->trial_port);
    for (size_t i = 0; i < join->n_devices && result == 0; i++)
        result = check_devices(join, join->devices[i], err);
    return result;
}

/* Lists are of all devices, or empty: description_check has seen to that. */
static int read_devices(const Wire__Devices *from, struct node_shape *shape, ty_error *err) {
    struct node_devices *devices = node_shape_add_devices(shape, from->resource, from->number);
    bool named = devices != NULL && node_devices_name(devices, from->n_ids > 0 ? from->ids : NULL,
                                                      from->n_uuids > 0 ? from->uuids : NULL,
                                                      from->n_bus_ids > 0 ? from->bus_ids : NULL) == 0;
    return named ? 0 : ty_fail_memory(err);
}

static int read_shape(const Wire__Join *join, struct node_shape *shape, ty_error *err) {
    int result = 0;
    for (size_t i = 0; i < join->n_resources && result == 0; i++) {
        const Wire__Amount *amount = join->resources[i];
        result = resource_check_name(amount->name, err);
        if (result == 0 && resources_set(&shape->total, amount->name, amount->amount) < 0)
            result = ty_fail_memory(err);
    }
    for (size_t i = 0; i < join->n_labels && result == 0; i++)
        result = labels_set(&shape->labels, join->labels[i]->key, join->labels[i]->value, err);
    for (size_t i = 0; i < join->n_devices && result == 0; i++)
        result = read_devices(join->devices[i], shape, err);
    if (result < 0 || join->accelerator_type[0] == '\0') return result;
    shape->accelerator_type = strdup(join->accelerator_type);
    return shape->accelerator_type == NULL ? ty_fail_memory(err) : 0;
}

/* What others hold there; `*use` stays NULL where all is free. The sum of the devices is the amount that is
 * available: nothing else of a node is ever another run's. */
static int read_use(const Wire__Join *join, const struct node_shape *shape, struct node_use **use,
                    ty_error *err) {
    bool all_free = true;
    for (size_t i = 0; i < join->n_devices; i++)
        all_free = all_free && join->devices[i]->n_free == 0;
    if (all_free) return 0;
    int result = node_use_create(shape, &(struct resources){0}, use, err);
    if (result < 0) return result;
    for (size_t d = 0; d < shape->n_devices; d++) {
        const Wire__Devices *devices = NULL;
        quantity sum = 0;
        for (size_t i = 0; i < join->n_devices && devices == NULL; i++)
            if (str_equal(join->devices[i]->resource, shape->devices[d].resource)) devices = join->devices[i];
        for (size_t i = 0; i < shape->devices[d].n; i++) {
            if (devices != NULL && i < devices->n_free) (*use)->device_free[d][i] = devices->free[i];
            sum += (*use)->device_free[d][i];
        }
        if (resources_set(&(*use)->available, shape->devices[d].resource, sum) < 0) return ty_fail_memory(err);
    }
    return 0;
}

/* What is read of the machine becomes the cluster's, or is found there already: machines that are alike share
 * one shape. What others hold there is each machine's own. */
int description_add(const Wire__Join *join, const char *name, struct cluster *cluster, ty_error *err) {
    CLEANUP(node_shape_done) struct node_shape shape = {0};
    struct node_use *use = NULL;
    const struct node_shape *shared = NULL;
    int result = read_shape(join, &shape, err);
    if (result == 0) result = cluster_shape(cluster, &shape, &shared, err);
    if (result == 0) result = read_use(join, shared, &use, err);
    if (result == 0) result = cluster_add_node(cluster, name, shared, &use, err);
    node_use_destroy(use);
    return result;
}
