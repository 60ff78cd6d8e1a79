/* Hosts: whatever is taken is a list of names that are no option of ssh, each of which is a host by itself. */
#include "base/buffer.h"
#include "base/cleanup.h"
#include "cluster/hosts.h"
#include "fuzz.h"

enum { MOST_NAMES = 1000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CLEANUP_FREE char *text = fuzz_text(data, size);
    CLEANUP(hosts_done) struct hosts hosts = {0};
    if (hosts_parse(text, &hosts, NULL) < 0) return 0;
    fuzz_require(hosts.n > 0 && hosts.n <= HOSTS_MAX);
    for (size_t i = 0; i < hosts.n && i < MOST_NAMES; i++) {
        const struct host *host = &hosts.items[i];
        CLEANUP(buffer_done) struct buffer alone = {0};
        CLEANUP(hosts_done) struct hosts again = {0};
        fuzz_require(host->slots <= HOST_SLOTS_MAX && host->name[0] != '-' &&
                     strpbrk(host->name, " ;$`'\"\n") == NULL);
        buffer_printf(&alone, "[%s]:7", host->name);
        if (strchr(host->name, ':') == NULL) continue;
        fuzz_require(hosts_parse(alone.data, &again, NULL) == 0 && again.n == 1 && again.items[0].slots == 7);
    }
    return 0;
}
