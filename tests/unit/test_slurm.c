/* Slurm's texts: what scontrol shows becomes nodes; a demand becomes a request; what can never be is
 * refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "engine/slurm.h"
#include "placement/plan.h"

#define NODE(name, state, gres, used)                                                                       \
    "NodeName=" name                                                                                        \
    " Arch=x86_64 CoresPerSocket=1  CPUAlloc=2 CPUEfctv=8 CPUTot=8 AvailableFeatures=a100,rack1 "           \
    "ActiveFeatures=a100,rack1 Gres=" gres " GresDrain=N/A GresUsed=" used                                  \
    " NodeAddr=h OS=Linux 6.1 #1 SMP RealMemory=16000 AllocMem=1000 FreeMem=9 State=" state                 \
    " ThreadsPerCore=1 Partitions=main,urgent  BootTime=2026 Reason=Gres=gpu:9 Partitions=none State=IDLE " \
    "[root@x]\n"

#define A100S "gpu:a100:4(S:0-1),shard:a100:16,fast:2"
#define IDLE_GPUS "gpu:a100:0(IDX:N/A),shard:a100:0(IDX:N/A),fast:0"

static void read_nodes(const char *text, const char *partition, const struct demand *demand,
                       struct slurm_site *site) {
    CLEANUP_FREE char *copy = strdup(text);
    ty_error err = {0};
    if (slurm_read_nodes(copy, partition, demand, site, &err) < 0) fail_msg("%s", err.message);
}

static quantity total(const struct slurm_site *site, size_t node, const char *name) {
    return resources_get(&site->nodes->nodes[node].shape->total, name) / QUANTITY_ONE;
}

static quantity available(const struct slurm_site *site, size_t node, const char *name) {
    return node_available(&site->nodes->nodes[node], name) / QUANTITY_ONE;
}

static void nodes_are_read(void **state) {
    (void)state;
    struct slurm_site site = {0};
    read_nodes(NODE("h1", "MIXED", A100S, "gpu:a100:3(IDX:0-2),fast:1(CNT:1)"), "main", NULL, &site);
    assert_int_equal(site.nodes->n, 1);
    assert_string_equal(site.nodes->nodes[0].name, "h1");
    assert_int_equal(total(&site, 0, "CPU"), 8);
    assert_int_equal(total(&site, 0, "GPU"), 4);
    assert_int_equal(total(&site, 0, "fast"), 2);
    assert_int_equal(total(&site, 0, "shard"), 0);
    assert_int_equal(total(&site, 0, "memory"), (quantity)16000 * 1024 * 1024);
    assert_int_equal(available(&site, 0, "CPU"), 6);
    assert_int_equal(available(&site, 0, "GPU"), 1);
    assert_int_equal(available(&site, 0, "fast"), 1);
    assert_string_equal(site.nodes->nodes[0].shape->accelerator_type, "A100");
    assert_non_null(labels_get(&site.nodes->nodes[0].shape->labels, "rack1"));
    assert_int_equal(slurm_shards_per_gpu(&site, NULL), 4);
    assert_int_equal(slurm_most_gres(&site, "gpu"), 4);
    slurm_site_done(&site);
}

/* Several entries of one name add up, to what an amount can hold. */
static void gres_of_any_size(void **state) {
    (void)state;
    struct slurm_site site = {0};
    read_nodes(NODE("h1", "IDLE", "fast:400T,fast:400T,fast:400T,slow:a:1,slow:b:2", "fast:1,fast:2"), NULL,
               NULL, &site);
    assert_int_equal(total(&site, 0, "fast"), QUANTITY_MAX / QUANTITY_ONE);
    assert_int_equal(available(&site, 0, "fast"), QUANTITY_MAX / QUANTITY_ONE - 3);
    assert_int_equal(total(&site, 0, "slow"), 3);
    slurm_site_done(&site);
}

/* The reason of a drain, an operating system: free text that looks like fields. */
static void free_text_is_no_field(void **state) {
    (void)state;
    struct slurm_site site = {0};
    read_nodes("NodeName=h1 CPUTot=4 Gres=(null) State=IDLE+DRAIN Partitions=main Reason=State=IDLE CPUTot=64 "
               "Gres=gpu:8\n",
               NULL, NULL, &site);
    assert_int_equal(total(&site, 0, "CPU"), 4);
    assert_int_equal(total(&site, 0, "GPU"), 0);
    assert_int_equal(available(&site, 0, "CPU"), 0);
    slurm_site_done(&site);
}

static void nodes_that_take_no_jobs(void **state) {
    (void)state;
    static const struct {
        const char *state;
        bool usable;
    } cases[] = {{"IDLE", true},
                 {"MIXED", true},
                 {"ALLOCATED", true},
                 {"IDLE+CLOUD", true},
                 {"MIXED+PLANNED", true},
                 {"IDLE*", false},
                 {"DOWN*+DRAIN", false},
                 {"MIXED+DRAIN", false},
                 {"FAIL", false},
                 {"IDLE+NOT_RESPONDING", false},
                 {"DOWN+REBOOT^", false},
                 {"UNKNOWN", false},
                 {"IDLE+POWERED_DOWN", false}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct slurm_site site = {0};
        char text[200];
        (void)snprintf(text, sizeof text, "NodeName=n CPUTot=4 State=%s Partitions=main\n", cases[i].state);
        read_nodes(text, NULL, NULL, &site);
        if ((available(&site, 0, "CPU") == 4) != cases[i].usable) fail_msg("%s", cases[i].state);
        slurm_site_done(&site);
    }
}

static void other_partitions_are_left_out(void **state) {
    (void)state;
    struct slurm_site site = {0};
    const char *text =
        NODE("h1", "IDLE", A100S, IDLE_GPUS) "NodeName=x CPUTot=1 State=IDLE Partitions=mainly\n";
    read_nodes(text, "main", NULL, &site);
    assert_int_equal(site.nodes->n, 1);
    read_nodes(text, "urgent", NULL, &site);
    assert_int_equal(site.nodes->n, 1);
    read_nodes(text, NULL, NULL, &site);
    assert_int_equal(site.nodes->n, 2);
    slurm_site_done(&site);
}

static int note_gres(void *context, const struct slurm_gres *gres) {
    struct buffer *out = context;
    buffer_printf(out, "%s/%s/%lld/%s ", gres->name, gres->type != NULL ? gres->type : "-",
                  (long long)gres->count, gres->detail != NULL ? gres->detail : "-");
    return 0;
}

static void forms_of_gres(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"gpu:a100:4(S:0-1),fast:2", "gpu/a100/4/S:0-1 fast/-/2/- "},
        {"gpu:2(IDX:0,3)", "gpu/-/2/IDX:0,3 "},
        {"bandwidth:lustre:no_consume:4G", "bandwidth/lustre/4294967296/- "},
        {"craynetwork:no_consume:2K", "craynetwork/-/2048/- "},
        {"gpu", "gpu/-/1/- "},
        {"gpu:a100", "gpu/a100/1/- "},
        {"(null)", ""},
        {"", ""},
        {"gpu:a100_3g.20gb:7", "gpu/a100_3g.20gb/7/- "},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        CLEANUP(buffer_done) struct buffer told = {0};
        buffer_text(&told, "");
        assert_int_equal(slurm_each_gres(cases[i][0], note_gres, &told, NULL), 0);
        assert_string_equal(told.data, cases[i][1]);
    }
}

static void types_of_gres(void **state) {
    (void)state;
    static const struct {
        const char *gres, *type;
        bool same;
    } cases[] = {{"a100", "A100", true},
                 {"A100", "A100", true},
                 {"nvidia_a100-sxm4-80gb", "A100", true},
                 {"h100", "A100", false},
                 {"nvidia_h100_80gb_hbm3", "H100", true},
                 {"gb200", "B200", false},
                 {"rtx-pro-6000", "RTX-PRO-6000", true},
                 {"b200", "GB200", false},
                 {"l40s", "L4", false}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        if (slurm_type_is(cases[i].gres, cases[i].type) != cases[i].same)
            fail_msg("%s, %s", cases[i].gres, cases[i].type);
}

static void run_lengths(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t counts[6];
        int n;
    } cases[] = {{"2(x3),1", {2, 2, 2, 1}, 4},
                 {"8", {8}, 1},
                 {"1,2,3", {1, 2, 3}, 3},
                 {"0(x2)", {0, 0}, 2},
                 {"2(x3", {0}, -1},
                 {"2(3)", {0}, -1},
                 {"", {0}, -1},
                 {"2,,1", {0}, -1},
                 {"-1", {0}, -1},
                 {"1(x99999999)", {0}, -1},
                 {"1(x0)", {0}, -1},
                 {"x", {0}, -1},
                 {"18446744073709551617", {0}, -1}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int64_t *counts = NULL;
        size_t n = 0;
        ty_error err = {0};
        int result = slurm_expand_counts(cases[i].text, &counts, &n, &err);
        if (cases[i].n < 0) {
            assert_int_equal(result, TY_EUSAGE);
            assert_null(counts);
            continue;
        }
        assert_int_equal(result, 0);
        assert_int_equal(n, cases[i].n);
        assert_memory_equal(counts, cases[i].counts, n * sizeof *counts);
        free(counts);
    }
}

static void what_was_granted(void **state) {
    (void)state;
    struct slurm_site all = {0}, granted = {0};
    ty_error err = {0};
    read_nodes(NODE("h1", "MIXED", A100S, IDLE_GPUS) NODE("h2", "MIXED", A100S, IDLE_GPUS)
                   NODE("h3", "IDLE", A100S, IDLE_GPUS),
               NULL, NULL, &all);
    char text[] =
        "JobId=3 JobName=Nodes=x NodeList=h[1-3] NumNodes=3 JOB_GRES=gpu:a100:5   Nodes=h[1-2] CPU_IDs=0,6-7 "
        "Mem=1000 "
        "GRES=gpu:a100:2(IDX:0-1) Nodes=h3 CPU_IDs=5 Mem=2000 GRES=gpu:a100:1(IDX:3),fast(CNT:2) MinCPUsNode=2 "
        "MinMemoryNode=0 Features=(null) Nodes=evil CPU_IDs=0-63";
    if (slurm_read_job(text, &all, &granted, &err) < 0) fail_msg("%s", err.message);
    /* a name of a job cannot pretend to be nodes: JobName is a field of its own */
    assert_int_equal(granted.nodes->n, 3);
    assert_int_equal(total(&granted, 0, "CPU"), 3);
    assert_int_equal(total(&granted, 1, "GPU"), 2);
    assert_int_equal(total(&granted, 2, "CPU"), 1);
    assert_int_equal(total(&granted, 2, "GPU"), 1);
    assert_int_equal(total(&granted, 2, "fast"), 1);
    assert_int_equal(total(&granted, 2, "memory"), (quantity)2000 * 1024 * 1024);
    assert_string_equal(granted.nodes->nodes[2].shape->accelerator_type, "A100");
    assert_non_null(labels_get(&granted.nodes->nodes[0].shape->labels, "rack1"));
    slurm_site_done(&granted);
    char shards[] = "JobId=4 Nodes=h1 CPU_IDs=0 Mem=0 GRES=shard:3(IDX:0) MinCPUsNode=1";
    assert_int_equal(slurm_read_job(shards, &all, &granted, &err), 0);
    assert_int_equal(node_available(&granted.nodes->nodes[0], "GPU"), 7500);
    slurm_site_done(&granted);
    char none[] = "JobId=5 NodeList= NumNodes=2";
    assert_int_equal(slurm_read_job(none, &all, &granted, &err), TY_EUSAGE);
    slurm_site_done(&all);
}

/* Well nodes are left out; nothing in a reason is another field or line. */
static void states_of_nodes(void **state) {
    (void)state;
    char text[] = "h1|mixed|none\nh2|draining|fan | slow\tturn\nh3|down*|Not responding\nh4|idle*|none\n"
                  "h5|allocated$|down for lunch\nno state\nh6|drained\n";
    CLEANUP(buffer_done) struct buffer out = {0};
    slurm_read_states(text, &out);
    buffer_text(&out, "");
    assert_string_equal(out.data, "h2\tdraining\tfan | slow turn\n"
                                  "h3\tdown, and does not answer Slurm\tNot responding\n"
                                  "h4\tidle, and does not answer Slurm\t\n");
}

static void licences_and_partitions(void **state) {
    (void)state;
    struct slurm_site site = {0};
    char licences[] =
        "LicenseName=tpuslice Total=2 Used=1 Free=1 Reserved=0 Remote=no\nLicenseName=b Total=9 Free=9\n";
    assert_int_equal(slurm_read_licences(licences, &site, NULL), 0);
    assert_int_equal(slurm_find_licence(&site, "tpuslice")->total, 2);
    assert_int_equal(slurm_find_licence(&site, "tpuslice")->free, 1);
    assert_null(slurm_find_licence(&site, "tpu"));
    slurm_site_done(&site);
    ty_error err = {0};
    char *partition = NULL;
    char text[] = "PartitionName=a Default=NO State=UP\nPartitionName=b Default=YES State=UP\n";
    char *copy = strdup(text);
    assert_int_equal(slurm_read_partition(copy, NULL, &partition, &err), 0);
    assert_string_equal(partition, "b");
    free(partition);
    free(copy);
    assert_int_equal(slurm_read_partition(text, "c", &partition, &err), TY_EUSAGE);
    assert_string_equal(err.message, "partition c is unknown to Slurm; there are: a,b");
}

/* -- requests -- */

struct asked {
    struct slurm_site site;
    struct slurm_request request;
    struct demand demand;
    ty_error err;
    int result;
};

#define H100S "gpu:h100:8"

static void ask_of(struct asked *asked, const char *nodes, char *licences, const char *config,
                   const char *const *own) {
    struct scaling scaling;
    struct document *document = NULL;
    *asked = (struct asked){0};
    scaling_init(&scaling);
    assert_int_equal(document_parse(config, strlen(config), "config", &document, NULL), 0);
    if (scaling_read(&scaling, document_root(document), document, &asked->err) < 0 ||
        scaling_resolve(&scaling, false, &asked->demand, &asked->err) < 0)
        fail_msg("%s: %s", config, asked->err.message);
    read_nodes(nodes, "main", &asked->demand, &asked->site);
    assert_int_equal(slurm_read_licences(licences, &asked->site, NULL), 0);
    asked->result = slurm_request_make(&asked->demand, &asked->site, own, &asked->request, &asked->err);
    document_destroy(document);
    scaling_done(&scaling);
}

static void ask(struct asked *asked, const char *config, const char *const *own) {
    static const char six[] = NODE("h1", "MIXED", A100S, IDLE_GPUS) NODE("h2", "MIXED", A100S, IDLE_GPUS)
        NODE("h3", "MIXED", A100S, IDLE_GPUS)
            NODE("h4", "MIXED", A100S, IDLE_GPUS) "NodeName=h5 CPUTot=8 ActiveFeatures=h100,rack2 Gres=" H100S
                                                  " RealMemory=16000 State=IDLE Partitions=main\n"
                                                  "NodeName=h6 CPUTot=8 ActiveFeatures=h100,rack2 Gres=" H100S
                                                  " RealMemory=16000 State=IDLE Partitions=main\n";
    char licences[] = "LicenseName=tpuslice Total=2 Used=0 Free=2\n";
    ask_of(asked, six, licences, config, own);
}

/* "nodes=1 exclusive ...", each line with its reason. */
static void write_lines(const struct slurm_request *request, struct buffer *out) {
    for (size_t i = 0; i < request->n; i++) {
        const struct slurm_line *line = &request->lines[i];
        assert_non_null(line->why);
        buffer_printf(out, "%s%s%s%s", i > 0 ? " " : "", line->name, line->value != NULL ? "=" : "",
                      line->value != NULL ? line->value : "");
    }
}

static void asked_done(struct asked *asked) {
    slurm_request_done(&asked->request);
    slurm_site_done(&asked->site);
    demand_done(&asked->demand);
}

static void requests(void **state) {
    (void)state;
    static const struct {
        const char *config, *lines; /* sorted */
    } cases[] = {
        {"num_workers: 4", "nodes=1-4 use-min-nodes ntasks=4 cpus-per-task=1"},
        {"{num_workers: 4, resources_per_worker: {CPU: 1.5, memory: 3GiB}}",
         "nodes=1-4 use-min-nodes ntasks=4 cpus-per-task=2 mem-per-cpu=1536M"},
        {"{num_workers: 6, use_gpu: true, accelerator_type: A100}",
         "gpus-per-task=a100:1 gpu-bind=per_task:1 nodes=1-6 use-min-nodes ntasks=6 cpus-per-task=1"},
        {"{num_workers: 2, use_gpu: true, resources_per_worker: {GPU: 3}}",
         "gpus-per-task=3 gpu-bind=per_task:3 nodes=1-2 use-min-nodes ntasks=2 cpus-per-task=1"},
        {"{num_workers: 4, use_gpu: true, placement_strategy: SPREAD}",
         "gpus-per-task=1 gpu-bind=per_task:1 nodes=4 ntasks=4 ntasks-per-node=1 cpus-per-task=1"},
        {"{num_workers: 8, placement_strategy: SPREAD}", "nodes=6 ntasks=8 ntasks-per-node=2 cpus-per-task=1"},
        {"{num_workers: 3, placement_strategy: STRICT_SPREAD}",
         "nodes=3 ntasks=3 ntasks-per-node=1 cpus-per-task=1"},
        {"{num_workers: 3, placement_strategy: STRICT_PACK}",
         "nodes=1 ntasks=3 ntasks-per-node=3 cpus-per-task=1"},
        {"{num_workers: 1, use_gpu: true, resources_per_worker: {GPU: 0.5}}",
         "nodes=1 ntasks=1 ntasks-per-node=1 cpus-per-task=1 gres=shard:2"},
        {"{num_workers: 4, use_gpu: true, resources_per_worker: {GPU: 0.3}}",
         "nodes=2 ntasks=4 ntasks-per-node=2 cpus-per-task=1 gres=shard:4"},
        {"{num_workers: 2, resources_per_worker: {CPU: 1, fast: 2}}",
         "nodes=2 ntasks=2 ntasks-per-node=1 cpus-per-task=1 gres=fast:2"},
        {"{num_workers: 2, resources_per_worker: {CPU: 1, tpuslice: 1}}",
         "nodes=1-2 use-min-nodes ntasks=2 cpus-per-task=1 licenses=tpuslice:2"},
        {"{num_workers: 2, label_selector: {rack: rack2}}",
         "nodes=1-2 use-min-nodes ntasks=2 cpus-per-task=1 constraint=rack2"},
        {"{num_workers: 2, label_selector: {rack2: 'true'}}",
         "nodes=1-2 use-min-nodes ntasks=2 cpus-per-task=1 constraint=rack2"},
        {"{num_workers: 2, label_selector: {rack: 'in(rack1,rack2)', kind: a100}}",
         "nodes=1-2 use-min-nodes ntasks=2 cpus-per-task=1 constraint=(rack1|rack2)&a100"},
        {"{num_workers: 2, label_selector: {rack: '!rack1'}}",
         "nodes=1-2 use-min-nodes ntasks=2 cpus-per-task=1 exclude=h1,h2,h3,h4"},
        {"{num_workers: [2, 8], placement_strategy: SPREAD}", "nodes=1-6 ntasks-per-node=2 cpus-per-task=1"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct asked asked;
        CLEANUP(buffer_done) struct buffer lines = {0};
        ask(&asked, cases[i].config, NULL);
        if (asked.result < 0) fail_msg("%s: %s", cases[i].config, asked.err.message);
        write_lines(&asked.request, &lines);
        assert_string_equal(lines.data, cases[i].lines);
        asked_done(&asked);
    }
}

static void what_can_never_be(void **state) {
    (void)state;
    static const char *const five[] = {"gres=shard:5", NULL}, *const two_lines[] = {
                                                                  "comment=a\n#SBATCH --uid=0", NULL};
    static const struct {
        const char *config;
        const char *const *own;
        const char *words;
    } cases[] = {
        {"num_workers: 49", NULL, "48"},
        {"{num_workers: 17, use_gpu: true, accelerator_type: A100}", NULL, "16"},
        {"{num_workers: 5, use_gpu: true, accelerator_type: A100, placement_strategy: STRICT_SPREAD}", NULL,
         "5 nodes"},
        {"{num_workers: 5, use_gpu: true, accelerator_type: A100, placement_strategy: STRICT_PACK}", NULL,
         "STRICT_PACK"},
        {"{num_workers: 1, use_gpu: true, accelerator_type: V100}", NULL, "V100"},
        {"{num_workers: 3, resources_per_worker: {CPU: 1, tpuslice: 1}}", NULL, "licence tpuslice: 3"},
        {"{num_workers: 1, resources_per_worker: {CPU: 1, unknown: 1}}", NULL, "unknown"},
        {"{num_workers: 1, resources_per_worker: {CPU: 1, shard: 5}}", NULL, "a GPU has 4"},
        {"{num_workers: 1, use_gpu: true, resources_per_worker: {GPU: 1, shard: 1}}", NULL, "not both"},
        {"{num_workers: 3, use_gpu: true, resources_per_worker: {GPU: 0.5}, placement_strategy: STRICT_PACK}",
         NULL, "shards"},
        {"{num_workers: 0}", NULL, "at least 1"},
        {"{num_workers: 0, use_tpu: true, topology: 4x4, accelerator_type: TPU-V6E}", NULL, "at least 1"},
        {"{num_workers: 2, label_selector: {zone: mars}}", NULL, "mars"},
        {"{num_workers: 2, label_selector: [{a: b}, {c: d}]}", NULL, "heterogeneous"},
        {"num_workers: 1", five, "a GPU has 4"},
        {"num_workers: 1", two_lines, "NAME=VALUE"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct asked asked;
        ask(&asked, cases[i].config, cases[i].own);
        assert_true(asked.result == TY_EINFEASIBLE || asked.result == TY_EUSAGE);
        if (strstr(asked.err.message, cases[i].words) == NULL)
            fail_msg("%s: %s", cases[i].config, asked.err.message);
        assert_int_equal(asked.request.n, 0);
        asked_done(&asked);
    }
}

/* A site of its own, a demand, and what is asked for then; "" for what cannot be asked for. */
static void unlike_nodes(void **state) {
    (void)state;
#define UNLIKE(name, cpus, gres) \
    "NodeName=" name " CPUTot=" cpus " Gres=" gres " RealMemory=16000 State=IDLE Partitions=main,a\n"
#define SMALL(name) UNLIKE(name, "8", "gpu:a100:4,shard:a100:16,fast:2,npu:4")
#define LARGE(name) UNLIKE(name, "16", "gpu:h100:8,shard:h100:16,fast:6,npu:4")
    static const char site_text[] = SMALL("s1") SMALL("s2") LARGE("l1");
    static const struct {
        const char *config, *lines;
    } cases[] = {
        /* the small ones hold less than an even share */
        {"{num_workers: 14, use_gpu: true, placement_strategy: SPREAD}",
         "gpus-per-task=1 gpu-bind=per_task:1 nodes=3 ntasks=14 cpus-per-task=1"},
        {"{num_workers: 6, use_gpu: true, placement_strategy: SPREAD}",
         "gpus-per-task=1 gpu-bind=per_task:1 nodes=3 ntasks=6 ntasks-per-node=2 cpus-per-task=1"},
        /* nodes have as much each of a GRES */
        {"{num_workers: 8, resources_per_worker: {CPU: 1, fast: 1}}", ""},
        {"{num_workers: 6, resources_per_worker: {CPU: 1, fast: 1}}",
         "nodes=1 ntasks=6 ntasks-per-node=6 cpus-per-task=1 gres=fast:6"},
        {"{num_workers: 4, resources_per_worker: {CPU: 3, fast: 1}}",
         "nodes=1 ntasks=4 ntasks-per-node=4 cpus-per-task=3 gres=fast:4"},
        {"{num_workers: 6, resources_per_worker: {CPU: 3, fast: 1}}",
         "nodes=3 ntasks=6 ntasks-per-node=2 cpus-per-task=3 gres=fast:2"},
        {"{num_workers: [2, 16], use_gpu: true}",
         "gpus-per-node=4 nodes=1-3 ntasks-per-node=4 cpus-per-task=1"},
        /* a name is written as the site does */
        {"{num_workers: 1, resources_per_worker: {CPU: 1, NPU: 2}}",
         "nodes=1 ntasks=1 ntasks-per-node=1 cpus-per-task=1 gres=npu:2"},
        /* GPUs of one type are shared into more parts than those of the other */
        {"{num_workers: 1, use_gpu: true, accelerator_type: A100, resources_per_worker: {GPU: 0.5}}",
         "nodes=1 ntasks=1 ntasks-per-node=1 cpus-per-task=1 gres=shard:2 exclude=l1"},
        {"{num_workers: 1, use_gpu: true, accelerator_type: H100, resources_per_worker: {GPU: 0.5}}",
         "nodes=1 ntasks=1 ntasks-per-node=1 cpus-per-task=1 gres=shard:1 exclude=s1,s2"},
        {"{num_workers: 1, use_gpu: true, resources_per_worker: {GPU: 0.5}}",
         "nodes=1 ntasks=1 ntasks-per-node=1 cpus-per-task=1 gres=shard:2"},
        {"{num_workers: 6, use_gpu: true, resources_per_worker: {GPU: 0.5}}", ""},
        {"{num_workers: 1, resources_per_worker: {CPU: 1, shard: 4}}",
         "nodes=1 ntasks=1 ntasks-per-node=1 cpus-per-task=1 gres=shard:4"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct asked asked;
        CLEANUP(buffer_done) struct buffer lines = {0};
        char licences[] = "";
        buffer_text(&lines, "");
        ask_of(&asked, site_text, licences, cases[i].config, NULL);
        if ((asked.result < 0) != (cases[i].lines[0] == '\0'))
            fail_msg("%s: %s", cases[i].config, asked.err.message);
        write_lines(&asked.request, &lines);
        assert_string_equal(lines.data, cases[i].lines);
        asked_done(&asked);
    }
}

/* A host of TPU chips for each task, slices on a switch each, and the licence that a site may have for them. */
static void slices(void **state) {
    (void)state;
#define HOST(name) UNLIKE(name, "8", "tpu:4")
    static const char site_text[] =
        HOST("t1") HOST("t2") HOST("t3") HOST("t4") HOST("t5") HOST("t6") HOST("t7") HOST("t8");
    static const struct {
        const char *config, *lines;
    } cases[] = {
        {"{num_workers: 4, use_tpu: true, topology: 4x4, accelerator_type: TPU-V6E}",
         "nodes=4 ntasks=4 ntasks-per-node=1 cpus-per-task=1 switches=1 gres=tpu:4 licenses=tpuslice-v6e-16:1"},
        {"{num_workers: 8, use_tpu: true, topology: 4x4, accelerator_type: TPU-V6E}",
         "nodes=8 ntasks=8 ntasks-per-node=1 cpus-per-task=1 switches=2 gres=tpu:4 licenses=tpuslice-v6e-16:2"},
        {"{num_workers: 4, use_tpu: true, topology: 2x2x2, accelerator_type: TPU-V4}",
         "nodes=4 ntasks=4 ntasks-per-node=1 cpus-per-task=1 switches=2 gres=tpu:4"},
        {"{num_workers: 8, use_tpu: true, topology: 4x8, accelerator_type: TPU-V6E}",
         "nodes=8 ntasks=8 ntasks-per-node=1 cpus-per-task=1 switches=1 gres=tpu:4"},
        {"{num_workers: 16, use_tpu: true, topology: 4x4, accelerator_type: TPU-V6E}", ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct asked asked;
        CLEANUP(buffer_done) struct buffer lines = {0};
        char licences[] = "LicenseName=tpuslice-v6e-16 Total=9 Used=0 Free=9\n";
        buffer_text(&lines, "");
        ask_of(&asked, site_text, licences, cases[i].config, NULL);
        if ((asked.result < 0) != (cases[i].lines[0] == '\0'))
            fail_msg("%s: %s", cases[i].config, asked.err.message);
        write_lines(&asked.request, &lines);
        assert_string_equal(lines.data, cases[i].lines);
        asked_done(&asked);
    }
}

/* As large a part as the GPUs of that node are shared into. */
static void granted_shards(void **state) {
    (void)state;
    struct slurm_site all = {0}, granted = {0};
    char text[] =
        "JobId=4 Nodes=s1 CPU_IDs=0 Mem=0 GRES=shard:1(IDX:0) Nodes=l1 CPU_IDs=0 Mem=0 GRES=shard:1(IDX:0) "
        "MinCPUsNode=1";
    read_nodes(SMALL("s1") LARGE("l1"), NULL, NULL, &all);
    assert_int_equal(slurm_read_job(text, &all, &granted, NULL), 0);
    assert_int_equal(node_available(&granted.nodes->nodes[0], "GPU"), 2500);
    assert_int_equal(node_available(&granted.nodes->nodes[1], "GPU"), 5000);
    slurm_site_done(&granted);
    slurm_site_done(&all);
}

/* Nodes of any of several partitions. */
static void several_partitions(void **state) {
    (void)state;
    struct slurm_site site = {0};
    ty_error err = {0};
    char *partition = NULL;
    char text[] = "PartitionName=a Default=NO\nPartitionName=b Default=YES\n", *copy = strdup(text);
    assert_int_equal(slurm_read_partition(copy, "b,a", &partition, &err), 0);
    assert_string_equal(partition, "b,a");
    read_nodes(SMALL("s1") "NodeName=x CPUTot=1 State=IDLE Partitions=b\nNodeName=y CPUTot=1 State=IDLE "
                           "Partitions=ab\n",
               partition, NULL, &site);
    assert_int_equal(site.nodes->n, 2);
    assert_int_equal(slurm_read_partition(text, "a,c", &partition, &err), TY_EUSAGE);
    assert_string_equal(err.message, "partition c is unknown to Slurm; there are: a,b");
    slurm_site_done(&site);
    free(partition);
    free(copy);
}

static void own_options_replace(void **state) {
    (void)state;
    static const char *const own[] = {"-N=3", "exclusive", "comment=a=b", "p=main", NULL};
    struct asked asked;
    ask(&asked, "num_workers: 3", own);
    assert_int_equal(asked.result, 0);
    assert_string_equal(slurm_request_value(&asked.request, "nodes"), "3");
    assert_string_equal(slurm_request_value(&asked.request, "comment"), "a=b");
    assert_string_equal(slurm_request_value(&asked.request, "partition"), "main");
    size_t exclusive = 0;
    for (size_t i = 0; i < asked.request.n; i++)
        exclusive += strcmp(asked.request.lines[i].name, "exclusive") == 0;
    assert_int_equal(exclusive, 1);
    asked_done(&asked);
}

/* As many nodes as the largest sites have. */
static void many_nodes(void **state) {
    (void)state;
    CLEANUP(buffer_done) struct buffer text = {0};
    for (int i = 0; i < 10000; i++)
        buffer_printf(&text, NODE("n%05d", "IDLE", A100S, IDLE_GPUS), i);
    struct slurm_site site = {0};
    struct plan *plan = NULL;
    struct demand demand = {.min_workers = 20000, .max_workers = 20000};
    assert_int_equal(resources_set(&demand.per_worker, "GPU", QUANTITY_ONE), 0);
    read_nodes(text.data, "main", NULL, &site);
    assert_int_equal(site.nodes->n, 10000);
    assert_int_equal(slurm_plan(&site, &demand, &plan, NULL), 0);
    assert_int_equal(plan->verdict, PLAN_FEASIBLE);
    plan_destroy(plan);
    resources_done(&demand.per_worker);
    slurm_site_done(&site);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_are_read),
        cmocka_unit_test(gres_of_any_size),
        cmocka_unit_test(free_text_is_no_field),
        cmocka_unit_test(nodes_that_take_no_jobs),
        cmocka_unit_test(other_partitions_are_left_out),
        cmocka_unit_test(forms_of_gres),
        cmocka_unit_test(types_of_gres),
        cmocka_unit_test(run_lengths),
        cmocka_unit_test(what_was_granted),
        cmocka_unit_test(states_of_nodes),
        cmocka_unit_test(licences_and_partitions),
        cmocka_unit_test(requests),
        cmocka_unit_test(what_can_never_be),
        cmocka_unit_test(unlike_nodes),
        cmocka_unit_test(slices),
        cmocka_unit_test(granted_shards),
        cmocka_unit_test(several_partitions),
        cmocka_unit_test(own_options_replace),
        cmocka_unit_test(many_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
