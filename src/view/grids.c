/* TPU slices as grids of chips, each with the rank that holds it: hosts take blocks of the topology, in their
 * order, row by row; ranks share the chips of their host evenly, in theirs. Nothing is known of the chips'
 * state. */
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "view/encode.h"
#include "view/ranks.h"

enum { CHIPS_MAX = 1 << 16 };

/* As the plan tells it: "0-3 v6e-16 4x4 NAME". */
struct chip_slice {
    unsigned first, last; /* ranks */
    char type[32], topology[40];
    const char *name;
};

struct chip_grid {
    size_t rows, columns, layers; /* a third dimension is drawn below the first two */
    size_t block_rows, block_columns;
    int *ranks; /* owned; -1: nobody's */
};

static bool parse_slice(const char *text, struct chip_slice *slice) {
    int size = 0;
    if (sscanf(text, "%u-%u %31s %39s %n", &slice->first, &slice->last, slice->type, slice->topology, &size) !=
        4)
        return false;
    slice->name = text + size;
    return slice->first <= slice->last;
}

static bool parse_topology(const char *text, struct chip_grid *grid) {
    unsigned long long sides[4] = {1, 1, 1, 1}, chips = 1;
    int n = sscanf(text, "%llux%llux%llux%llu", &sides[0], &sides[1], &sides[2], &sides[3]);
    for (int i = 0; i < n; i++)
        if (sides[i] == 0 || sides[i] > CHIPS_MAX || (chips *= sides[i]) > CHIPS_MAX) return false;
    grid->rows = (size_t)sides[0];
    grid->columns = (size_t)sides[1];
    grid->layers = (size_t)(sides[2] * sides[3]);
    return n > 0;
}

/* Chips of a host lie beside each other; where no block of theirs fits they are a row. */
static void choose_block(struct chip_grid *grid, size_t chips) {
    static const struct { size_t chips, rows, columns; } blocks[] = {{4, 2, 2}, {8, 2, 4}};
    grid->block_rows = 1;
    grid->block_columns = chips;
    for (size_t i = 0; i < ARRAY_SIZE(blocks); i++)
        if (blocks[i].chips == chips && grid->rows % blocks[i].rows == 0 &&
            grid->columns % blocks[i].columns == 0) {
            grid->block_rows = blocks[i].rows;
            grid->block_columns = blocks[i].columns;
        }
}

/* Hosts take blocks row by row, layer below layer, chips their block row by row. Where blocks do not divide the
 * columns chips are counted through. */
static size_t cell_of(const struct chip_grid *grid, size_t host, size_t chip, size_t chips) {
    size_t across = grid->columns / grid->block_columns, down = grid->rows / grid->block_rows;
    if (grid->columns % grid->block_columns != 0) return host * chips + chip;
    size_t layer = host / (across * down), block = host % (across * down);
    size_t row = layer * grid->rows + block / across * grid->block_rows + chip / grid->block_columns;
    return row * grid->columns + block % across * grid->block_columns + chip % grid->block_columns;
}

/* False where hosts and chips do not come out even, as after a resize. */
static bool fill(struct chip_grid *grid, const struct chip_slice *slice, const int *node_of) {
    size_t all = grid->rows * grid->columns * grid->layers, hosts = 1, host = 0;
    for (unsigned rank = slice->first + 1; rank <= slice->last; rank++)
        hosts += node_of[rank] != node_of[rank - 1];
    if (all % hosts != 0) return false;
    size_t chips = all / hosts;
    choose_block(grid, chips);
    for (unsigned first = slice->first, n; first <= slice->last; first += n, host++) {
        for (n = 1; first + n <= slice->last && node_of[first + n] == node_of[first];)
            n++;
        for (size_t chip = 0; chip < chips; chip++)
            grid->ranks[cell_of(grid, host, chip, chips)] = (int)(first + chip * n / chips);
    }
    return true;
}

static void encode_grid(const struct chip_grid *grid, const struct chip_slice *slice, struct buffer *out) {
    buffer_text(out, "{\"name\": ");
    buffer_json_text(out, slice->name);
    buffer_text(out, ", \"type\": ");
    buffer_json_text(out, slice->type);
    buffer_text(out, ", \"topology\": ");
    buffer_json_text(out, slice->topology);
    buffer_printf(out, ", \"columns\": %zu, \"ranks\": [", grid->columns);
    for (size_t row = 0; row < grid->rows * grid->layers; row++) {
        buffer_text(out, row > 0 ? ", [" : "[");
        for (size_t column = 0; column < grid->columns; column++) {
            if (column > 0) buffer_char(out, ',');
            encode_rank(out, grid->ranks[row * grid->columns + column]);
        }
        buffer_char(out, ']');
    }
    buffer_text(out, "]}");
}

void view_grids_encode(const struct view_ranks *ranks, struct buffer *out) {
    CLEANUP_FREE int *node_of = calloc(ranks->n + 1, sizeof *node_of);
    const char *between = "";
    for (size_t i = 0; node_of != NULL && i < ranks->n; i++)
        node_of[ranks->items[i].rank] = ranks->items[i].node;
    buffer_char(out, '[');
    for (size_t i = 0; node_of != NULL && i < ranks->n_slices; i++) {
        struct chip_slice slice;
        struct chip_grid grid;
        if (!parse_slice(ranks->slices[i], &slice) || slice.last >= ranks->n) continue;
        if (!parse_topology(slice.topology, &grid)) continue;
        size_t cells = grid.rows * grid.columns * grid.layers;
        CLEANUP_FREE int *cell = malloc(cells * sizeof *cell);
        grid.ranks = cell;
        for (size_t k = 0; cell != NULL && k < cells; k++)
            cell[k] = -1;
        if (cell == NULL || !fill(&grid, &slice, node_of)) continue;
        buffer_text(out, between);
        encode_grid(&grid, &slice, out);
        between = ", ";
    }
    buffer_char(out, ']');
}
