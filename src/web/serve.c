/* The dashboard while it serves: one thread with a loop, which sleeps until a client comes. What reads journals
 * is a job of the lanes' threads; the loop takes what they have done and answers. What is answered is in
 * answers.c, and who may ask in guard.c. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/module.h"
#include "base/str.h"
#include "controller/run_directory.h"
#include "run/settings.h"
#include "view/run_look.h"
#include "web/site.h"

/* Whatever a run's names and texts do in a page, they load nothing from elsewhere, run nothing, and send
 * nothing: all of the page comes from us, and no other page may frame it. */
static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

static const char *const headers[] = {
    "Content-Security-Policy",
    policy,
    "X-Content-Type-Options",
    "nosniff",
    "Referrer-Policy",
    "no-referrer",
    "Cross-Origin-Opener-Policy",
    "same-origin",
    "Cross-Origin-Resource-Policy",
    "same-origin",
    NULL,
};

/* -- requests */

/* No data is in it, so whoever reached us may have it. */
static void send_asset(struct site *site, struct http_request *request, const struct http_asset *asset) {
    const char *known = site->http->header(request, "If-None-Match");
    struct buffer body = {0};
    struct http_reply reply = {
        .status = 304, .type = asset->type, .etag = asset->etag, .cache = "no-cache", .gzipped = true};
    if (known == NULL || strstr(known, asset->etag) == NULL) {
        reply.status = 200;
        buffer_append(&body, asset->gzip, asset->size);
    }
    reply.body = &body;
    reply.gzipped = reply.status == 200;
    site->http->reply(request, &reply);
}

/* What is refused without the token is told first, and as little as may be: who asks by another name or from
 * another page hears nothing of what there is. Files of the page are anybody's, as they hold no data. */
static void on_request(void *context, struct http_request *request) {
    struct site *site = context;
    const struct http_asset *asset = site->http->assets;
    while (asset->path != NULL && !str_equal(asset->path, request->path))
        asset++;
    bool reads = str_equal(request->method, "GET") || str_equal(request->method, "HEAD");
    bool action = site->config.allow_actions && api_is_action(request->path);
    bool readable = !action || api_is_read(request->path);
    if (request->url_too_long)
        api_fail(site, request, 414, "the address is longer than 4096 bytes");
    else if (!guard_origin(&site->guard, site->http, request))
        api_fail(site, request, 403,
                 "asked for by another name or from another page (--allow-host H allows a host)");
    else if (!(reads && readable) && !(action && str_equal(request->method, "POST")))
        api_refuse_method(site, request, !action ? "GET, HEAD" : readable ? "GET, HEAD, POST" : "POST");
    else if (request->body_too_large)
        api_fail(site, request, 413, "the body is larger than 4096 bytes");
    else if (asset->path != NULL)
        send_asset(site, request, asset);
    else if (!guard_token(&site->guard, site->http, request))
        api_fail(site, request, 401,
                 "the token is missing or wrong: open the address that `trainyard dashboard` printed");
    else
        api_request(site, request);
}

/* A call has the request in `owner` until it is answered; a stream is found by the request itself. */
static void on_gone(void *context, struct http_request *request) {
    if (request->owner != NULL)
        api_gone(request);
    else
        stream_gone(context, request);
}

static void on_drained(void *context, struct http_request *request) {
    (void)context;
    api_drained(request);
}

/* -- the server's turns */

/* Who comes when there are enough waits until one goes. */
static void listen_on(struct site *site) {
    bool full = site->http->full(site->server);
    if (full)
        loop_listener_stop(&site->listener);
    else if (site->listener.loop == NULL)
        (void)loop_listener_start(site->loop, &site->listener, site->listening.fd);
}

static void on_connected(void *context, int fd) {
    struct site *site = context;
    site->http->add(site->server, fd);
    listen_on(site);
    site_stir(site);
}

static void on_time(void *context) {
    struct site *site = context;
    site->http->turn(site->server);
    listen_on(site);
    site_stir(site);
}

static void on_ready(void *context, unsigned events) {
    (void)events;
    on_time(context);
}

/* libmicrohttpd says when it wants to be called next, if not for a descriptor: that changes with each call of
 * it. */
void site_stir(struct site *site) {
    if (site->server == NULL) return;
    int after = site->http->timeout_ms(site->server);
    if (after < 0)
        loop_timer_stop(site->loop, &site->timer);
    else
        (void)loop_timer_start(site->loop, &site->timer, after * NS_PER_MS);
}

static void on_signal(void *context, int number) {
    (void)number;
    loop_stop(((struct site *)context)->loop);
}

static void on_child(void *context, int number) {
    (void)number;
    registry_reap_browser(context);
}

/* -- what is printed */

/* Whoever came by ssh has a browser elsewhere. */
static void print_way(const struct site *site, struct buffer *out) {
    const char *connection = getenv("SSH_CONNECTION");
    const struct listening *listening = &site->listening;
    if (!listening->is_unix && listening->asked != 0 && listening->port != listening->asked)
        buffer_printf(out, "port %d is taken: %d is used\n", listening->asked, listening->port);
    if (connection == NULL || *connection == '\0') return;
    char address[64] = "", user[64] = "USER";
    (void)sscanf(connection, "%*s %*s %63s", address);
    const struct passwd *self = getpwuid(getuid());
    if (self != NULL) (void)snprintf(user, sizeof user, "%s", self->pw_name);
    if (listening->is_unix)
        buffer_printf(out, "from your own machine: ssh -N -L %d:%s %s@%s, then http://127.0.0.1:%d/\n",
                      LISTEN_PORT, listening->path, user, address, LISTEN_PORT);
    else
        buffer_printf(out, "from your own machine: ssh -N -L %d:%s:%d %s@%s, then the address above\n",
                      listening->port, listening->host, listening->port, user, address);
}

/* The token's file takes the place of a file, never of a device or a link: both its making and its end would
 * take that away. */
static int write_token(struct site *site, ty_error *err) {
    const char *path = site->config.token_file;
    struct file_draft draft;
    if (path == NULL) return 0;
    if (lstat(path, &site->token_file) == 0 && !S_ISREG(site->token_file.st_mode))
        return ty_fail(err, TY_EUSAGE, "--token-file %s: it is there, and no regular file", path);
    int result = file_draft_open(path, 0600, &draft);
    if (result == 0)
        result = file_draft_close(&draft, file_write_all(draft.fd, site->guard.token, TOKEN_SIZE - 1));
    site->token_file = draft.status;
    return result < 0 ? ty_fail(err, result, "cannot write the token to %s: %s", path, strerror(-result)) : 0;
}

/* A look for each name below each storage path, all at once: a path that hangs keeps nobody from the page. */
static int look_for_names(const struct dashboard_config *config, struct run_look **looks, ty_error *err) {
    const struct run_files nothing_known = {0};
    size_t n = config->n_names * config->n_storage_paths;
    for (size_t i = 0; i < n; i++) {
        const char *name = config->names[i / config->n_storage_paths];
        if (run_name_check(name, err) < 0) return err->code;
        CLEANUP_FREE char *path =
            run_directory_path(config->storage_paths[i % config->n_storage_paths], name, FACE_COMMAND, err);
        if (path == NULL) return err->code;
        looks[i] = run_look_create(path, &nothing_known);
        if (looks[i] == NULL) return ty_fail_memory(err);
    }
    return run_looks_make(looks, n, err);
}

/* Of the first storage path that has a run of this name, one look for each of them. 1: the ID; 0: none has,
 * but some do not answer, of which a hint tells. */
static int take_id(const struct dashboard_config *config, const char *name, struct run_look *const *looks,
                   char id[VIEW_ID_SIZE], struct buffer *hints, ty_error *err) {
    bool hangs = false;
    for (size_t i = 0; i < config->n_storage_paths; i++) {
        bool answers = run_look_state(looks[i]) == LOOK_IS_DONE;
        if (answers && looks[i]->found != FOUND_NOTHING && view_run_id(looks[i]->real, id)) return 1;
        if (!answers)
            buffer_printf(hints, "%s: not answering for %d s: it is not shown first\n", looks[i]->path,
                          RUN_LOOK_SECONDS);
        hangs = hangs || !answers;
    }
    if (hangs) return 0;
    CLEANUP_FREE char *path = run_directory_find(config->storage_paths[config->n_storage_paths - 1], name, err);
    return path == NULL ? err->code : ty_fail(err, -ENOENT, "%s is gone", path);
}

/* The runs that were named, as the page's address has them: "&run=ID", or "&compare=ID,ID". */
static int make_fragment(const struct dashboard_config *config, struct buffer *out, struct buffer *hints,
                         ty_error *err) {
    size_t n = config->n_names * config->n_storage_paths;
    struct run_look **looks = calloc(n + 1, sizeof(struct run_look *));
    const char *between = config->n_names > 1 ? "&compare=" : "&run=";
    int result = looks == NULL ? ty_fail_memory(err) : look_for_names(config, looks, err);
    for (size_t i = 0; i < config->n_names && result >= 0; i++) {
        char id[VIEW_ID_SIZE];
        result = take_id(config, config->names[i], looks + i * config->n_storage_paths, id, hints, err);
        if (result <= 0) continue;
        buffer_printf(out, "%s%s", between, id);
        between = ",";
    }
    for (size_t i = 0; looks != NULL && i < n; i++)
        run_look_release(looks[i]);
    free(looks);
    return result >= 0 && out->failed ? ty_fail_memory(err) : result;
}

/* The address alone goes to standard output, in one line and with the token: a program reads it from there.
 * Nobody needs to read it: that the pipe is closed is no error. */
static int announce(const struct site *site, const char *fragment, struct buffer *hints, ty_error *err) {
    CLEANUP(buffer_done) struct buffer url = {0};
    if (site->listening.is_unix)
        buffer_printf(&url, "unix:%s  token %s\n", site->listening.path,
                      site->config.token_file != NULL ? "" : site->guard.token);
    else
        buffer_printf(&url, "http://%s:%d/%s%s%s\n", site->listening.host, site->listening.port,
                      site->config.token_file != NULL ? "" : "#token=",
                      site->config.token_file != NULL ? "" : site->guard.token, fragment);
    print_way(site, hints);
    if (url.failed || hints->failed) return ty_fail_memory(err);
    int result = file_write_all(STDOUT_FILENO, url.data, url.size);
    if (result >= 0 && hints->size > 0) result = file_write_all(STDERR_FILENO, hints->data, hints->size);
    return result < 0 && result != -EPIPE ? ty_fail(err, result, "cannot write: %s", strerror(-result)) : 0;
}

static int open_browser(const struct site *site, struct registry *registry, const char *fragment,
                        ty_error *err) {
    CLEANUP(buffer_done) struct buffer address = {0};
    if (site->listening.is_unix)
        return ty_fail(err, TY_EUSAGE, "--open: no browser opens a Unix socket; leave out --listen unix:PATH");
    buffer_printf(&address, "http://%s:%d/#token=%s%s", site->listening.host, site->listening.port,
                  site->guard.token, fragment);
    return address.failed ? ty_fail_memory(err) : registry_open_browser(registry, address.data, err);
}

/* -- from the beginning to the end */

/* Indexes have threads that are nicer than those of answers; downloads have some of their own, as each keeps
 * one for as long as its client reads. */
static int open_parts(struct site *site, ty_error *err) {
    enum { INDEX_NICE = 10 }; /* as nice(1) */
    int result = lanes_create(site->loop, 0, &site->lanes, err);
    if (result >= 0) result = lanes_create(site->loop, 0, &site->export_lanes, err);
    if (result >= 0) result = lanes_create(site->loop, INDEX_NICE, &site->index_lanes, err);
    if (result >= 0) result = news_open(site, err);
    if (result >= 0) result = listen_open(site->config.listen, &site->listening, err);
    if (result < 0) return result;
    site->guard.is_unix = site->listening.is_unix;
    const struct http_config http = {
        .request = on_request, .gone = on_gone, .drained = on_drained, .context = site, .headers = headers};
    result = site->http->start(&http, &site->server, err);
    if (result < 0) return result;
    site->watch = (struct loop_watch){.callback = on_ready, .context = site};
    site->timer = (struct loop_timer){.callback = on_time, .context = site};
    site->listener = (struct loop_listener){.connected = on_connected, .context = site};
    result = loop_watch_start(site->loop, &site->watch, site->http->fd(site->server), LOOP_READABLE);
    if (result >= 0) result = loop_listener_start(site->loop, &site->listener, site->listening.fd);
    return result < 0 ? ty_fail(err, result, "cannot watch the HTTP server: %s", strerror(-result)) : 0;
}

/* The address goes before the lanes do: no request comes any more, and those that are here are told that it
 * ends. */
static void close_server(struct site *site) {
    if (site->loop != NULL) stream_close(site);
    if (site->server != NULL) {
        site->http->turn(site->server); /* so that streams say bye */
        loop_listener_stop(&site->listener);
        loop_watch_stop(site->loop, &site->watch);
        loop_timer_stop(site->loop, &site->timer);
        site->http->stop(TAKE(site->server));
    }
    listen_close(&site->listening);
}

/* Signals are taken before the address is told: whoever read it may end us. The token's file goes with us,
 * unless it is another one by now. */
static int serve(struct site *site, ty_error *err) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct loop_signal handles[ARRAY_SIZE(signals)], child = {.callback = on_child};
    CLEANUP(buffer_done) struct buffer fragment = {0}, hints = {0};
    struct registry registry = {.fd = -1};
    buffer_text(&fragment, "");
    int result = make_fragment(&site->config, &fragment, &hints, err);
    if (result >= 0) result = write_token(site, err);
    bool written = result >= 0;
    if (result >= 0) result = registry_enter(&site->listening, &registry, err);
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
        handles[i] = (struct loop_signal){.callback = on_signal, .context = site};
        (void)loop_signal_start(site->loop, &handles[i], signals[i]);
    }
    child.context = &registry;
    (void)loop_signal_start(site->loop, &child, SIGCHLD);
    if (result >= 0) result = announce(site, fragment.data, &hints, err);
    if (result >= 0 && site->config.open) result = open_browser(site, &registry, fragment.data, err);
    if (result >= 0) loop_run(site->loop);
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
        loop_signal_stop(site->loop, &handles[i]);
    loop_signal_stop(site->loop, &child);
    registry_leave(&registry);
    if (written && site->config.token_file != NULL)
        (void)file_remove_own(site->config.token_file, &site->token_file);
    return result;
}

static struct site *hanging; /* a thread of it hangs in the storage: the process ends around it */

/* Where a thread of the lanes hangs in the storage nothing that it knows is freed: the process ends around it,
 * right after this. */
int dashboard_serve(const struct dashboard_config *config, ty_error *err) {
    enum { LARGE_BYTES = 128 << 10, ARENAS = 2 };
    /* A large block goes back to the system when it is freed: left to itself the allocator would keep ever
     * larger ones, in each thread. */
    (void)mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
    (void)mallopt(M_ARENA_MAX, ARENAS);
    struct site *site = calloc(1, sizeof *site);
    if (site == NULL) return ty_fail_memory(err);
    *site = (struct site){.config = *config, .inotify = -1, .listening = {.fd = -1}};
    (void)pthread_mutex_init(&site->kept.lock, NULL);
    site->guard.hosts = config->hosts;
    site->guard.n_hosts = config->n_hosts;
    int result = guard_make_token(site->guard.token, err);
    site->http = result >= 0 ? module_load("http", err) : NULL;
    site->loop = site->http != NULL ? loop_create(err) : NULL;
    site->runs = hash_create();
    site->list =
        site->loop != NULL ? view_runs_create(config->storage_paths, config->n_storage_paths, err) : NULL;
    result = site->list == NULL ? err->code : site->runs == NULL ? ty_fail_memory(err) : open_parts(site, err);
    if (result >= 0) result = serve(site, err);
    close_server(site);
    if (!lanes_destroy(site->index_lanes) || !lanes_destroy(site->export_lanes) ||
        !lanes_destroy(site->lanes)) {
        hanging = site;
        return result;
    }
    news_close(site);
    indexing_close(site);
    uintptr_t value;
    for (size_t at = 0; hash_next(site->runs, &at, &value) != NULL;) {
        struct site_run *run = (struct site_run *)value;
        if (run->counts != NULL) view_counts_done(run->counts);
        free(run->counts);
        free(run->name);
        free(run->path);
        free(run);
    }
    hash_destroy(TAKE(site->runs));
    view_runs_destroy(site->list);
    for (size_t i = 0; i < KEPT_ANSWERS; i++)
        kept_forget(&site->kept.items[i]);
    (void)pthread_mutex_destroy(&site->kept.lock);
    if (site->loop != NULL) loop_destroy(site->loop);
    free(site);
    return result;
}
