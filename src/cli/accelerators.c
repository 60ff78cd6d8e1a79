/* `trainyard accelerators`: what this machine has, the known types, the type of a device name, TPU arithmetic.
 * Devices are only looked at: what other runs hold of them is shown by `trainyard plan`. The rules are those of
 * the rooms accelerator and scaling; here they are printed. */
#include <stdio.h>
#include <string.h>

#include "accelerator/accelerator.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "scaling/device.h"
#include "scaling/tpu.h"

struct accelerators_options {
    int64_t chips_per_vm; /* 0: not given */
};

/* The words begin as those of docs/spec/accelerators.md, by which a caller may know them; so the option's
 * name is in them twice. */
static int set_chips(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)option;
    if (str_to_int64(value, 1, 1024, &((struct accelerators_options *)target)->chips_per_vm)) return 0;
    return ty_fail(err, TY_EUSAGE, "chips_per_vm must be positive: a whole number from 1 to 1024");
}

static const struct option_spec specs[] = {
    {"chips-per-vm", 0, "N", "with tpu: chips of one host, where it is not the usual number", set_chips, 0,
     NULL},
};
static const struct option_group accelerators_group = {"Options", specs, ARRAY_SIZE(specs)};

static void json_member(const char *before, const char *name, const char *value, struct buffer *out) {
    buffer_printf(out, "%s\"%s\": ", before, name);
    buffer_json_string(out, value, strlen(value));
}

static void devices_json(const struct inventory *inventories, size_t n, struct buffer *out) {
    buffer_text(out, "{\"devices\": [");
    bool first = true;
    for (size_t i = 0; i < n; i++) {
        for (size_t d = 0; d < inventories[i].n; d++) {
            buffer_text(out, first ? "" : ", ");
            const struct device *device = &inventories[i].devices[d];
            json_member("{", "resource", inventories[i].vendor->resource, out);
            json_member(", ", "vendor", inventories[i].vendor->vendor, out);
            if (inventories[i].type[0] != '\0')
                json_member(", ", "type", inventories[i].type, out);
            else
                buffer_text(out, ", \"type\": null");
            json_member(", ", "id", device->id, out);
            json_member(", ", "uuid", device->uuid, out);
            json_member(", ", "name", device->name, out);
            json_member(", ", "bus_id", device->bus_id, out);
            buffer_printf(out, ", \"memory_bytes\": %lld}", (long long)device->memory_bytes);
            first = false;
        }
    }
    buffer_text(out, "]}\n");
}

static void devices_text(const struct inventory *inventories, size_t n, struct buffer *out) {
    CLEANUP(table_done) struct text_table table = {0};
    size_t devices = 0;
    TABLE_HEADS(&table, "RESOURCE", "ID", "TYPE", "NAME", "MEMORY", "BUS", "UUID");
    for (size_t i = 0; i < n; i++)
        for (size_t d = 0; d < inventories[i].n; d++, devices++) {
            const struct device *device = &inventories[i].devices[d];
            char memory[32] = "-";
            if (device->memory_bytes > 0)
                (void)snprintf(memory, sizeof memory, "%.1f GiB", (double)device->memory_bytes / (1 << 30));
            const char *const cells[] = {inventories[i].vendor->resource,
                                         device->id,
                                         inventories[i].type,
                                         device->name,
                                         memory,
                                         device->bus_id,
                                         device->uuid};
            for (size_t j = 0; j < ARRAY_SIZE(cells); j++)
                table_cell(&table, *cells[j] != '\0' ? cells[j] : "-");
        }
    if (devices > 0)
        table_format(&table, out);
    else
        buffer_text(out, "No accelerators here: no driver of a known vendor shows a device to this process.\n");
}

static void list_types(int format, struct buffer *out) {
    size_t n = 0;
    const struct accelerator_type *types = accelerator_types(&n);
    if (format == FORMAT_JSON) {
        buffer_text(out, "{\"types\": [");
        for (size_t i = 0; i < n; i++) {
            json_member(i > 0 ? ",\n  {" : "\n  {", "type", types[i].type, out);
            json_member(", ", "vendor", types[i].vendor, out);
            json_member(", ", "resource", types[i].resource, out);
            json_member(", ", "note", types[i].note, out);
            buffer_char(out, '}');
        }
        buffer_text(out, "\n]}\n");
    } else {
        CLEANUP(table_done) struct text_table table = {0};
        TABLE_HEADS(&table, "TYPE", "VENDOR", "RESOURCE", "NOTE");
        for (size_t i = 0; i < n; i++) {
            table_cell(&table, types[i].type);
            table_cell(&table, types[i].vendor);
            table_cell(&table, types[i].resource);
            table_cell(&table, types[i].note);
        }
        table_format(&table, out);
    }
}

/* A name is anybody's, so is escaped; one that is no accelerator's has no type, which is an answer and no
 * failure. */
static void classify(const char *name, int format, struct buffer *out) {
    char type[64];
    bool known = accelerator_classify(name, type);
    if (format == FORMAT_TEXT) {
        utf8_escape(known ? type : "none", strlen(known ? type : "none"), out);
    } else {
        json_member("{", "name", name, out);
        if (known)
            json_member(", ", "type", type, out);
        else
            buffer_text(out, ", \"type\": null");
        buffer_char(out, '}');
    }
    buffer_char(out, '\n');
}

/* `topology` is NULL where `type` is a pod type, which tells the shape as far as it can be known. */
static int tpu(const char *type, const char *topology, int64_t chips_per_vm, struct buffer *out,
               ty_error *err) {
    struct tpu_shape shape;
    int result;
    if (topology != NULL) {
        result = tpu_shape_of(type, topology, chips_per_vm, true, &shape, err);
        if (result < 0) return result;
    } else {
        result = tpu_pod_type(type, shape.pod_type, err);
        if (result == 0) result = tpu_pod_chips(shape.pod_type, &shape.chips, &shape.chips_per_host, err);
        if (result == 0 && chips_per_vm > 0) shape.chips_per_host = chips_per_vm;
        if (result == 0) result = tpu_pod_hosts(shape.pod_type, shape.chips_per_host, &shape.hosts, err);
        if (result < 0) return ty_wrap(err, "tpu takes TYPE TOPOLOGY, or a pod type alone");
    }
    buffer_printf(out, "{\"chips\":%lld,\"chips_per_host\":%lld,\"hosts\":%lld,\"pod_type\":\"%s\"}\n",
                  (long long)shape.chips, (long long)shape.chips_per_host, (long long)shape.hosts,
                  shape.pod_type);
    return 0;
}

/* The words of each form, its own name among them. */
static const struct form {
    const char *name;
    size_t least, most;
    const char *takes, *usage;
} forms[] = {{"types", 1, 1, "no argument", "trainyard accelerators types"},
             {"classify", 2, 2, "one argument", "trainyard accelerators classify NAME"},
             {"tpu", 2, 3, "one or two arguments",
              "trainyard accelerators tpu TYPE TOPOLOGY|POD_TYPE [--chips-per-vm N]"}};

static int find_form(const struct arguments *arguments, ty_error *err) {
    const char *names[ARRAY_SIZE(forms)];
    for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
        names[i] = forms[i].name;
        if (!str_equal(forms[i].name, arguments->words[0])) continue;
        if (arguments->n_words >= forms[i].least && arguments->n_words <= forms[i].most) return (int)i;
        return ty_fail(err, TY_EUSAGE, "%s takes %s, not %zu: %s", forms[i].name, forms[i].takes,
                       arguments->n_words - 1, forms[i].usage);
    }
    char hint[STR_HINT_SIZE];
    return ty_fail(err, TY_EUSAGE, "'%.80s' must be one of types, classify, tpu%s", arguments->words[0],
                   str_hint(arguments->words[0], names, ARRAY_SIZE(forms), hint));
}

static int accelerators_run(const struct arguments *arguments, ty_error *err) {
    struct accelerators_options options = {0};
    struct format_options format = {0};
    int result = options_apply(arguments, (void *[]){&options, &format}, err);
    if (result < 0) return result;
    char **words = arguments->words;
    int form = arguments->n_words > 0 ? find_form(arguments, err) : (int)ARRAY_SIZE(forms);
    if (form < 0) return form;
    if (options.chips_per_vm > 0 && form != 2)
        return ty_fail(err, TY_EUSAGE, "--chips-per-vm goes with tpu only: %s", forms[2].usage);
    CLEANUP(buffer_done) struct buffer text = {0};
    if (form == 0) {
        list_types(format.format, &text);
    } else if (form == 1) {
        classify(words[1], format.format, &text);
    } else if (form == 2) {
        result = tpu(words[1], words[2], options.chips_per_vm, &text, err);
    } else {
        struct inventory *inventories = NULL;
        size_t n = 0;
        result = accelerator_probe(&inventories, &n, err);
        if (result < 0) return result;
        (format.format == FORMAT_JSON ? devices_json : devices_text)(inventories, n, &text);
        accelerator_inventories_free(inventories, n);
    }
    return result < 0 ? result : cli_print(&text, err);
}

const struct command command_accelerators = {
    .name = "accelerators",
    .summary = "list this machine's accelerators, the known types, and TPU arithmetic",
    .usage =
        (const char *const[]){"[--format text|json]", "types", "classify NAME",
                              "tpu TYPE TOPOLOGY [--chips-per-vm N]", "tpu POD_TYPE [--chips-per-vm N]", NULL},
    .description =
        "Without a word: the devices that the drivers of this machine show to this process. types: the "
        "accelerator types that --accelerator-type knows. classify: the type of a device's name. tpu: "
        "chips, hosts and pod type of a slice, named by type and topology or by its pod type (v6e-16), as "
        "JSON.",
    .examples =
        (const char *const[]){"trainyard accelerators tpu TPU-V6E 4x4", "a slice of 16 chips on 4 hosts", NULL},
    .groups = (const struct option_group *const[]){&accelerators_group, &format_group, NULL},
    .max_words = 4,
    .run = accelerators_run,
};
