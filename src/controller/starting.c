/* What an agent that joined is told when the run starts it: the devices of its node that the run takes, which
 * it claims there, and the programs of the workers, which are to be the same there as here. How such a node
 * joins is the engine's (engine/rendezvous.h). */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/spawn.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/file.h"
#include "base/str.h"
#include "controller/ty_run.h"

/* -- programs, looked at once */

static void add_program(struct node_programs *programs, const char *name, bool script) {
    struct program_whereabouts place = {programs->search, programs->directory, script};
    struct listed_program *program = &programs->programs[programs->n];
    ty_error err = {0};
    /* One that is not here may be on the nodes. */
    if (program_look(&place, name, &program->digest, &err) < 0) {
        if (script) return;
        program->digest = (struct digest){0};
    }
    wire__program__init(&program->wire);
    program->wire.name = (char *)name;
    program->wire.script = script;
    program->wire.size = program->digest.size;
    program->wire.xxh3 = program->digest.xxh3;
    programs->list[programs->n++] = &program->wire;
}

/* The program itself, and the script where that is an interpreter: a node whose file differs would train
 * something else. What they import is not looked at. */
static void list_programs(struct node_programs *programs, const struct run_request *request) {
    char *const *entry = request->environment == NULL ? environ : request->environment;
    programs->looked = true;
    programs->search = "";
    for (; *entry != NULL; entry++)
        if (str_prefix(*entry, "PATH=", &programs->search)) break;
    if (file_working_directory(programs->directory, sizeof programs->directory, NULL) < 0) return;
    const char *program = request->executable != NULL ? request->executable : request->argv[0];
    const char *script =
        request->executable == NULL && program_is_interpreter(program) ? request->argv[1] : NULL;
    add_program(programs, program, false);
    if (script != NULL && script[0] != '-') add_program(programs, script, true);
}

/* -- devices */

int claims_list(const struct prepared *prepared, uint32_t node_rank, Wire__Claim ***list, size_t *n,
                ty_error *err) {
    CLEANUP_FREE struct lease_claim *claims = NULL;
    size_t wanted = 0;
    bool leased = !prepared->engine->allots && node_rank != NODE_UNUSED;
    int result = leased ? prepare_claims(prepared, node_rank, &claims, &wanted, err) : 0;
    if (result < 0 || wanted == 0) return result;
    *list = calloc(wanted, sizeof(Wire__Claim *));
    for (size_t i = 0; i < wanted && *list != NULL; i++) {
        Wire__Claim *claim = (*list)[i] = calloc(1, sizeof *claim);
        if (claim == NULL) return ty_fail_memory(err);
        *n = i + 1;
        wire__claim__init(claim);
        claim->resource = strdup(claims[i].resource);
        claim->id = strdup(claims[i].id);
        claim->amount = claims[i].amount;
        if (claim->resource == NULL || claim->id == NULL) return ty_fail_memory(err);
    }
    return *list != NULL ? 0 : ty_fail_memory(err);
}

void claims_free(Wire__Claim **list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        free(list[i]->resource);
        free(list[i]->id);
        free(list[i]);
    }
    free(list);
}

int starting_fill(struct ty_run *run, const struct peer *peer, Wire__Start *start, ty_error *err) {
    struct node_programs *programs = &run->programs;
    if (!programs->looked) list_programs(programs, run->request);
    start->run = run->name;
    start->search = (char *)programs->search;
    start->directory = programs->directory;
    start->programs = programs->list;
    start->n_programs = programs->n;
    return claims_list(&run->prepared, peer->node_rank, &start->claims, &start->n_claims, err);
}
