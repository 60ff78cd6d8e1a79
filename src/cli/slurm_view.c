/* What Slurm would be asked for, as text and as JSON, for `plan` and `submit`. A request is shown in the order
 * in which it was made, the user's own options as such. How many nodes and what of each is decided in
 * engine/slurm.h; nothing is submitted here. */
#include "cli/run_options.h"

#include <string.h>

#include "base/cleanup.h"
#include "cli/command.h"

int slurm_view_look(const struct cluster_options *options, const struct demand *demand, struct slurm_view *view,
                    ty_error *err) {
    view->inside = slurm_inside(NULL);
    if (options->cluster_file != NULL)
        return ty_fail(
            err, TY_EUSAGE,
            "--engine slurm plans on the nodes of Slurm, --cluster %.200s on those of a file: give one of "
            "the two",
            options->cluster_file);
    struct slurm_inquiry inquiry = {0};
    if (view->inside) return slurm_look_at_allocation(&inquiry, demand, &view->site, err);
    const char *partition = slurm_own_value(options->slurm_options.items, "partition"); /* NULL: the default */
    return slurm_look_at_site(partition, demand, &view->site, err);
}

/* In an allocation there is nothing to be asked for: what was granted is what there is. */
int slurm_view_ask(const struct cluster_options *options, const struct demand *demand, struct slurm_view *view,
                   ty_error *err) {
    if (view->inside) return 0;
    return slurm_request_make(demand, &view->site, options->slurm_options.items, &view->request, err);
}

void slurm_view_done(struct slurm_view *view) {
    slurm_site_done(&view->site);
    slurm_request_done(&view->request);
}

/* The reasons stand in one column, but behind a line that is too long by far: it would move all of them. */
void slurm_view_text(const struct slurm_view *view, struct buffer *out) {
    int width = 0;
    for (size_t i = 0; i < view->request.n; i++) {
        const struct slurm_line *line = &view->request.lines[i];
        int size = (int)(strlen(line->name) + (line->value != NULL ? strlen(line->value) + 1 : 0));
        if (size > width && size <= 40) width = size;
    }
    if (view->request.n > 0) buffer_text(out, "\nSlurm is asked for\n");
    for (size_t i = 0; i < view->request.n; i++) {
        const struct slurm_line *line = &view->request.lines[i];
        bool valued = line->value != NULL;
        int size = (int)(strlen(line->name) + (valued ? strlen(line->value) + 1 : 0));
        buffer_printf(out, "  --%s%s%s%*s  %s\n", line->name, valued ? "=" : "", valued ? line->value : "",
                      size < width ? width - size : 0, "",
                      line->why != NULL ? line->why : "as given (--slurm-option)");
    }
}

int slurm_view_json(const struct slurm_view *view, struct buffer *json, ty_error *err) {
    json_t *tree = json_loadb(json->data, json->size, 0, NULL), *list = json_array();
    bool failed = tree == NULL || list == NULL;
    for (size_t i = 0; i < view->request.n && !failed; i++) {
        const struct slurm_line *line = &view->request.lines[i];
        failed = json_array_append_new(list, json_pack("{s:s, s:s?, s:s?}", "option", line->name, "value",
                                                       line->value, "why", line->why)) < 0;
    }
    failed = failed || json_object_set(tree, "request", list) < 0;
    json_decref(list);
    if (failed) json_decref(TAKE(tree));
    return cli_json_put(tree, json, err);
}
