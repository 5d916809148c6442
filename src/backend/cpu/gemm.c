/* The loop nest of the matrix product: C is cut into tiles, threads take tiles, and each tile packs what it needs.
 *
 * For every block along k (TN_GEMM_KC, or the kernel's own) a tile packs its rows of A once (they stay in L2, with some
 * kernels for all tiles of these rows that a thread takes in a row), then packs a few panels of nr
 * columns of B at a time (one stays in L1) and lets the micro-kernel sweep A; with a few rows only, B is read where it
 * lies instead, if it can and is not packed already. B may also be packed ahead: by the caller once for many products, or here once for all rows of
 * tiles of one product. The panels are the same, and so are the bits. The sums live in a tile of the workspace until the epilogue, so that C may
 * hold the residual or the value to accumulate on; or in C itself, where it holds neither and a tile of it stays in L2.
 * How C is cut depends on the threads, and may: no element's sum crosses a tile (see gemm.h for the order). */
#include "backend/cpu/gemm_kernel.h"

#include <stdatomic.h>
#include <string.h>

enum { ALIGN = 64 };
/* Below this many multiply-adds (about 2 us of one core) waking a thread costs more than it brings. */
enum { SERIAL_BELOW = 1 << 15 };

typedef struct cut {
    const tn_gemm_ukernel *kernel;
    int parts;              /* of each operand: TN_GEMM_PARTS with bf16x3, else 1 */
    int64_t tile_m, tile_n; /* multiples of mr and nr */
    int64_t row; /* of the sums: a panel more than tile_n, as panels may begin anywhere after columns in place */
    int64_t tiles_m, tiles_n;            /* per product of the batch */
    int64_t tiles, slots;                /* slots: how many tiles may be under way at once */
    bool keep;                           /* A stays packed, block after block along k */
    size_t a_bytes, b_bytes, slot_bytes; /* a_bytes, b_bytes: of all parts */
} cut;

/* Panels of columns first..first+columns-1 of B for all of k, packed ahead; base NULL: each tile packs its own. */
typedef struct ahead {
    const unsigned char *base;
    int64_t first, columns; /* first a multiple of nr */
} ahead;

typedef struct job {
    const tn_gemm *g;
    cut cut;
    ahead b;
    int64_t j0, tiles_n, tiles; /* the tiles to do begin at column j0, tiles_n of them side by side */
    unsigned char
        *work; /* slots of cut.slot_bytes: A (parts,tile_m,kc) or more, B (parts,GROUP,kc,nr), sums (tile_m,row) */
    _Atomic int64_t next;
} job;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static size_t align_up(size_t bytes) { return (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1); }

/* The size of equal parts of `whole` no larger than `largest`, in whole units: 300 becomes 2 x 152, not 256 + 44. */
static int64_t even_part(int64_t whole, int64_t largest, int64_t unit)
{
    const int64_t parts = ceil_div(whole, largest - largest % unit);
    return ceil_div(ceil_div(whole, parts), unit) * unit;
}

static void count_tiles(cut *t, const tn_gemm *g)
{
    t->tiles_m = ceil_div(g->m, t->tile_m);
    t->tiles_n = ceil_div(g->n, t->tile_n);
    t->tiles = g->batch * t->tiles_m * t->tiles_n;
}

/* What the rows of a tile take, so much of k at a time. */
static size_t rows_bytes(const cut *t, int64_t k)
{
    return (size_t)(t->parts * t->tile_m * k) * tn_dtype_bytes(t->kernel->type);
}

/* Room to keep the rows of a tile for all of k, if C of n columns has more tiles beside it. Six products hide the packing of
 * three parts. */
static size_t keep_room(const cut *t, int64_t n)
{
    const size_t most = rows_bytes(t, TN_GEMM_KEEP_K);
    if (n <= t->kernel->tile_n || t->parts > 1) return 0;
    return most < t->kernel->keep_bytes ? most : t->kernel->keep_bytes;
}

static void size_slot(cut *t, int64_t n)
{
    const size_t each = (size_t)(t->parts * tn__gemm_kc(t->kernel)) * tn_dtype_bytes(t->kernel->type);
    const size_t block = (size_t)t->tile_m * each, room = keep_room(t, n);
    t->row = t->tile_n + t->kernel->nr;
    t->a_bytes = align_up(block > room ? block : room);
    t->b_bytes = align_up((size_t)(t->kernel->nr * TN_GEMM_GROUP) * each);
    t->slot_bytes = t->a_bytes + t->b_bytes + align_up((size_t)(t->tile_m * t->row) * sizeof(float));
}

static const tn_gemm_ukernel *choose_kernel(const tn_gemm *g)
{
    if (g->kernel) return g->kernel;
    if (g->portable_only) return &tn__gemm_portable;
    const tn_gemm_ukernel *u = g->round == TN_BF16 || (g->bf16x3 && !g->round) ? tn__gemm_kernel_bf16() : NULL;
    return u && (g->round == TN_BF16 || u->split_pays) ? u : tn__gemm_kernel_best();
}

static int count_parts(const tn_gemm *g, const tn_gemm_ukernel *u)
{
    return u->type == TN_BF16 && g->bf16x3 && !g->round ? TN_GEMM_PARTS : 1;
}

const char *tn_gemm_kernel_of(const tn_gemm *g) { return choose_kernel(g)->name; }

/* Panels of columns that the busiest of the threads computes, if tiles of `panels` panels are dealt out in turn: the last tile may
 * be a smaller one, which counts if it is alone in its round. */
static int64_t busiest(int64_t all, int64_t panels, int threads)
{
    const int64_t before_last = ceil_div(all, panels) - 1, rounds = before_last / threads;
    return rounds * panels + (before_last % threads ? panels : all - before_last * panels);
}

/* One row of tiles: of the widths that give each thread one, two or three, the one that keeps none waiting. */
static void even_columns(cut *t, const tn_gemm *g, int threads)
{
    enum { MOST = 3 };
    const int64_t nr = t->kernel->nr, all = ceil_div(g->n, nr);
    int64_t best = t->tile_n / nr;
    for (int each = MOST; each > 0; each--) {
        const int64_t panels = ceil_div(all, (int64_t)each * threads);
        if (panels * nr <= t->kernel->tile_n && panels >= 4 &&
            busiest(all, panels, threads) < busiest(all, best, threads))
            best = panels;
    }
    t->tile_n = best * nr;
    count_tiles(t, g);
}

/* g must not be empty. Tiles shrink until every thread has two, but not below four panels a side: smaller ones pack more
 * than they compute. */
static cut cut_tiles(const tn_gemm *g, int threads)
{
    cut t = { .kernel = choose_kernel(g) };
    const int64_t mr = t.kernel->mr, nr = t.kernel->nr;
    const int64_t fmas = g->m * g->n * (g->k + 1);
    if (fmas < SERIAL_BELOW && fmas * g->batch < SERIAL_BELOW) threads = 1;
    t.parts = count_parts(g, t.kernel);
    t.tile_m = even_part(g->m, t.kernel->tile_m, mr);
    t.tile_n = even_part(g->n, t.kernel->tile_n, nr);
    count_tiles(&t, g);
    while (threads > 1 && t.tiles < 2 * threads && (t.tile_n >= 8 * nr || t.tile_m >= 8 * mr)) {
        if (t.tile_n >= 8 * nr && (t.tile_n >= t.tile_m || t.tile_m < 8 * mr))
            t.tile_n = even_part(t.tile_n, t.tile_n / 2, nr);
        else t.tile_m = even_part(t.tile_m, t.tile_m / 2, mr);
        count_tiles(&t, g);
    }
    if (threads > 1 && g->batch * t.tiles_m == 1) even_columns(&t, g, threads);
    t.slots = t.tiles < threads ? t.tiles : threads;
    size_slot(&t, g->n);
    const int64_t kc = tn__gemm_kc(t.kernel);
    t.keep = keep_room(&t, g->n) && rows_bytes(&t, ceil_div(g->k, kc) * kc) <= t.a_bytes;
    return t;
}

/* The width of the panel for the next `rows` rows: mr, or the smallest kernel that covers the last few. */
static int panel_rows(const tn_gemm_ukernel *u, int64_t rows)
{
    if (rows >= u->mr) return u->mr;
    int r = (int)rows;
    while (!u->run[r]) r++;
    return r;
}

static const void *element(const void *base, tn_dtype type, int64_t index)
{
    return (const unsigned char *)base + index * (int64_t)tn_dtype_bytes(type);
}

/* One tile: product `batch`, rows i0..i0+m-1, columns j0..j0+n-1. */
typedef struct tile {
    int64_t batch, i0, j0, m, n;
    unsigned char *a,
        *b;      /* workspace: (parts,tile_m,kc) in panels, once or for each block along k; (parts,GROUP,kc,nr) */
    float *sum;  /* (tile_m,row): workspace or C */
    int64_t row; /* from row to row of the sums */
    bool packed; /* A is packed */
    bool fresh;  /* the first block along k writes the sums instead of adding to them */
    bool done;   /* they are in C, and nothing is left to do to them */
} tile;

/* The block of k under way: p0..p0+k-1, in panels of `padded`. */
typedef struct block {
    int64_t p0, k, padded;
} block;

static block block_at(const tn_gemm *g, const tn_gemm_ukernel *u, int64_t p0)
{
    const int64_t left = g->k - p0, k = left < tn__gemm_kc(u) ? left : tn__gemm_kc(u);
    const int64_t unit = u->a_depth > u->b_depth ? u->a_depth : u->b_depth;
    return (block){ p0, k, ceil_div(k, unit) * unit };
}

/* All parts of `valid` rows or columns into panels of `width`; parts lie part_bytes apart. */
static void pack_parts(const tn_gemm_ukernel *u, int parts, unsigned char *dst, size_t part_bytes, int width, int depth,
                       tn_gemm_source src, int64_t valid, const block *p)
{
    if (u->type == TN_F32) {
        u->pack_f32((float *)dst, width, src, valid, p->k);
        return;
    }
    const tn_gemm_panel to = { width, depth, p->padded };
    for (src.part = 0; src.part < parts; src.part++)
        u->pack((uint16_t *)(dst + (size_t)src.part * part_bytes), to, src, valid, p->k);
}

/* Columns of B: as many panels as whole calls take, the last ones of zeros. */
static void pack_columns(const tn_gemm_ukernel *u, int parts, unsigned char *dst, size_t part_bytes, tn_gemm_source src,
                         int64_t valid, const block *p)
{
    const int width = tn__gemm_b_width(u);
    const int64_t given = ceil_div(valid, width) * width, wanted = ceil_div(valid, u->nr) * u->nr;
    const size_t column = (size_t)p->padded * tn_dtype_bytes(u->type);
    pack_parts(u, parts, dst, part_bytes, width, u->b_depth, src, valid, p);
    for (int part = 0; part < parts && given < wanted; part++)
        memset(dst + (size_t)part * part_bytes + (size_t)given * column, 0, (size_t)(wanted - given) * column);
}

/* Where a block's rows of A lie; their parts are a_bytes / parts apart, and what is kept is of one part. */
static unsigned char *rows_at(const cut *c, const tile *t, const block *p)
{
    return t->a + (c->keep ? rows_bytes(c, p->p0) : 0);
}

/* Rows of A: the whole panels, then the last few rows in a panel as narrow as the kernels allow. */
static void pack_a(const tn_gemm *g, const cut *c, const tile *t, const block *p)
{
    const tn_gemm_ukernel *u = c->kernel;
    const int64_t whole = t->m - t->m % u->mr, at = t->batch * g->a_batch + t->i0 * g->a_row + p->p0 * g->a_col;
    const size_t part = c->a_bytes / (size_t)c->parts;
    unsigned char *to = rows_at(c, t, p);
    tn_gemm_source src = { element(g->a, g->a_type, at), g->a_type, g->a_row, g->a_col, g->round, 0 };
    pack_parts(u, c->parts, to, part, u->mr, u->a_depth, src, whole, p);
    if (whole == t->m) return;
    src.data = element(g->a, g->a_type, at + whole * g->a_row);
    pack_parts(u, c->parts, to + whole * p->padded * (int64_t)tn_dtype_bytes(u->type), part,
               panel_rows(u, t->m - whole), u->a_depth, src, t->m - whole, p);
}

/* Packed panels of B: column j of the first one lies at `base`, and the parts part_bytes apart. */
typedef struct panels {
    const unsigned char *base;
    size_t part_bytes;
} panels;

/* Columns j..j+n-1 of B; j of the whole product. */
static tn_gemm_source source_b(const tn_gemm *g, int64_t batch, int64_t j, const block *p)
{
    const int64_t at = batch * g->b_batch + p->p0 * g->b_row + j * g->b_col;
    return (tn_gemm_source){ element(g->b, g->b_type, at), g->b_type, g->b_col, g->b_row, g->round, 0 };
}

static panels pack_b(const tn_gemm *g, const cut *c, const tile *t, int64_t j, int64_t n, const block *p)
{
    const size_t part = c->b_bytes / (size_t)c->parts;
    pack_columns(c->kernel, c->parts, t->b, part, source_b(g, t->batch, t->j0 + j, p), n, p);
    return (panels){ t->b, part };
}

/* A block of k steps from p0 on: which of them rows i..i+r-1 need for the columns from j on, in whole `unit`s (what
 * lies outside the triangle is zero there). Rows and columns of C. */
static void needed_steps(tn_gemm_part part, int64_t i, int r, int64_t j, const block *p, int64_t unit, int64_t *lo,
                         int64_t *hi)
{
    *lo = part == TN_GEMM_A_UPPER && i > p->p0 ? (i - p->p0) / unit * unit : 0;
    *hi = part == TN_GEMM_A_LOWER && i + r < p->p0 + p->k ? ceil_div(i + r - p->p0, unit) * unit : p->padded;
    if (part == TN_GEMM_C_LOWER && j >= i + r) *hi = 0;
}

/* The kernels for this many columns, by rows. */
static tn_gemm_micro *const *kernels_for(const tn_gemm_ukernel *u, int64_t columns, bool fresh)
{
    for (int i = 0; i < TN_GEMM_NARROW; i++)
        if (u->narrow[i].columns >= columns) return fresh ? u->narrow[i].fresh : u->narrow[i].run;
    return fresh ? u->fresh : u->run;
}

/* All rows of the tile times one packed panel of B, whose columns begin at j of the tile. */
static void sweep_rows(const tn_gemm *g, const cut *c, const tile *t, const block *p, const unsigned char *a,
                       const unsigned char *b, int64_t j)
{
    const tn_gemm_ukernel *u = c->kernel;
    const int64_t bytes = (int64_t)tn_dtype_bytes(u->type), unit = u->a_depth > u->b_depth ? u->a_depth : u->b_depth;
    const int64_t width = tn__gemm_b_width(u), b_step = width < u->nr ? p->padded : u->nr;
    tn_gemm_micro *const *run = kernels_for(u, t->n - j, t->fresh && p->p0 == 0);
    for (int64_t i = 0; i < t->m;) {
        const int r = panel_rows(u, t->m - i);
        int64_t lo, hi;
        needed_steps(g->part, t->i0 + i, r, t->j0 + j, p, unit, &lo, &hi);
        if (lo < hi)
            run[r](hi - lo, a + (i * p->padded + lo * r) * bytes, b + lo * width * bytes, b_step,
                   t->sum + i * t->row + j, t->row);
        i += r;
    }
}

/* --- B packed ahead ------------------------------------------------------------------------------------------------ */

/* Block after block along k; in each, part after part; in each, the panels of all columns. */
static size_t part_bytes(const tn_gemm_ukernel *u, int64_t columns, int64_t padded)
{
    return align_up((size_t)(ceil_div(columns, u->nr) * u->nr * padded) * tn_dtype_bytes(u->type));
}

/* Where block p0 begins. */
static size_t block_offset(const tn_gemm_ukernel *u, int parts, int64_t columns, int64_t p0)
{
    return (size_t)(p0 / tn__gemm_kc(u) * parts) * part_bytes(u, columns, tn__gemm_kc(u));
}

static size_t ahead_bytes(const tn_gemm *g, const tn_gemm_ukernel *u, int64_t columns)
{
    const int parts = count_parts(g, u);
    if (columns <= 0 || g->k <= 0) return ALIGN;
    const block last = block_at(g, u, (g->k - 1) / tn__gemm_kc(u) * tn__gemm_kc(u));
    return block_offset(u, parts, columns, last.p0) + part_bytes(u, columns, last.padded) * (size_t)parts;
}

/* The panels of block p from column j of the product on, which must begin one. */
static panels ahead_at(const ahead *b, const cut *c, int64_t j, const block *p)
{
    const size_t column = (size_t)((j - b->first) * p->padded) * tn_dtype_bytes(c->kernel->type);
    return (panels){ b->base + block_offset(c->kernel, c->parts, b->columns, p->p0) + column,
                     part_bytes(c->kernel, b->columns, p->padded) };
}

typedef struct pack_job {
    const tn_gemm *g;
    const tn_gemm_ukernel *kernel;
    unsigned char *dst;
    int64_t first, columns; /* of B */
    int64_t each;           /* columns of a task */
    int64_t tasks_n;        /* tasks along n; there is a row of them for each block of k */
} pack_job;

static void pack_task(void *arg, int64_t i)
{
    const pack_job *w = arg;
    const tn_gemm_ukernel *u = w->kernel;
    const int parts = count_parts(w->g, u);
    const block p = block_at(w->g, u, i / w->tasks_n * tn__gemm_kc(u));
    const int64_t j = i % w->tasks_n * w->each, n = w->columns - j < w->each ? w->columns - j : w->each;
    const size_t at = block_offset(u, parts, w->columns, p.p0) + (size_t)(j * p.padded) * tn_dtype_bytes(u->type);
    pack_columns(u, parts, w->dst + at, part_bytes(u, w->columns, p.padded), source_b(w->g, 0, w->first + j, &p), n,
                 &p);
}

static void pack_ahead(tn_pool *pool, const tn_gemm *g, int64_t first, int64_t columns, unsigned char *dst)
{
    pack_job w = { .g = g, .kernel = choose_kernel(g), .dst = dst, .first = first, .columns = columns };
    w.each = (int64_t)w.kernel->nr * TN_GEMM_GROUP;
    w.tasks_n = ceil_div(columns, w.each);
    tn_pool_run(pool, w.tasks_n * ceil_div(g->k, tn__gemm_kc(w.kernel)), pack_task, &w);
}

size_t tn_gemm_packed_bytes(const tn_gemm *g) { return ahead_bytes(g, choose_kernel(g), g->n); }

void tn_gemm_pack_b(tn_pool *pool, const tn_gemm *g, void *dst)
{
    if (g->n > 0 && g->k > 0) pack_ahead(pool, g, 0, g->n, dst);
}

/* The packed panel of B at column j of the group at j0 times all rows. Of the nine products of parts the three smallest are
 * below fp32's last bit; the others are added from the smallest on. */
static void sweep_parts(const tn_gemm *g, const cut *c, const tile *t, const block *p, panels from, int64_t j0,
                        int64_t j)
{
    const size_t a_part = c->a_bytes / (size_t)c->parts;
    const unsigned char *a = rows_at(c, t, p),
                        *b = from.base + j * p->padded * (int64_t)tn_dtype_bytes(c->kernel->type);
    for (int order = c->parts - 1; order >= 0; order--)
        for (int q = 0; q <= order; q++)
            sweep_rows(g, c, t, p, a + (size_t)(order - q) * a_part, b + (size_t)q * from.part_bytes, j0 + j);
}

/* The kernel for B as it lies in memory, if the tile has few rows and there is one for B's layout. *step: its b_step. */
static tn_gemm_direct direct_kernel(const tn_gemm *g, const tn_gemm_ukernel *u, const tile *t, int64_t *step)
{
    static const tn_gemm_direct none = { 0 };
    if (u->type != TN_F32 || t->m > TN_GEMM_DIRECT || t->m > u->mr) return none;
    const int r = panel_rows(u, t->m);
    const int way = tn__gemm_way(g->b_type, g->round);
    if (g->b_row == 1 && way >= 0) {
        *step = g->b_col;
        return u->along_k[way][r];
    }
    *step = g->b_row;
    return g->b_col == 1 && g->b_type == TN_F32 && !g->round ? u->along_n[r] : none;
}

/* Columns of the tile done without packing B. */
static int64_t sweep_direct(const tn_gemm *g, const cut *c, const tile *t, const block *p)
{
    int64_t j = 0, step = 0;
    const tn_gemm_direct d = direct_kernel(g, c->kernel, t, &step);
    for (; d.run && j + d.columns <= t->n; j += d.columns) {
        const int64_t at = t->batch * g->b_batch + p->p0 * g->b_row + (t->j0 + j) * g->b_col;
        d.run(p->k, rows_at(c, t, p), element(g->b, g->b_type, at), step, t->sum + j, t->row);
    }
    return j;
}

/* Columns of a single row of plain numbers that are done at once, all of k: B is read from its beginning to its end. */
static int64_t sweep_row(const tn_gemm *g, const cut *c, const tile *t)
{
    static const int columns[TN_GEMM_ROWS] = { [TN_GEMM_ROW_16] = 16, [TN_GEMM_ROW_8] = 8, [TN_GEMM_ROW_4] = 4 };
    const int way = tn__gemm_way(g->b_type, g->round);
    const float *a = (const float *)g->a + t->batch * g->a_batch + t->i0 * g->a_row;
    int64_t j = 0;
    if (t->m != 1 || g->a_type != TN_F32 || g->a_col != 1 || g->round || g->b_row != 1 || c->kernel->type != TN_F32 ||
        way < 0 || !c->kernel->row[way][TN_GEMM_ROW_4])
        return 0;
    for (int i = 0; i < TN_GEMM_ROWS; i++) {
        tn_gemm_row *run = c->kernel->row[way][i];
        for (; run && j + columns[i] <= t->n; j += columns[i]) {
            const int64_t at = t->batch * g->b_batch + (t->j0 + j) * g->b_col;
            run(g->k, a, element(g->b, g->b_type, at), g->b_col, t->sum + j);
        }
    }
    return j;
}

bool tn_gemm_pack_pays(const tn_gemm *g)
{
    /* Fewer numbers of B are packed in about a microsecond; more rows hide the packing, the later the faster the kernel. */
    enum { FEW_NUMBERS = 1 << 12, MANY_ROWS = 128, MANY_ROWS_BF16 = 512 };
    const tn_gemm_ukernel *u = choose_kernel(g);
    const tile t = { .m = g->m };
    int64_t step;
    if (g->m <= 0 || g->m > (u->type == TN_BF16 ? MANY_ROWS_BF16 : MANY_ROWS) || g->n * g->k < FEW_NUMBERS)
        return false;
    return !direct_kernel(g, u, &t, &step).run;
}

/* Whether A is packed after it: a row that is done in place needs none. */
static bool run_tile(const tn_gemm *g, const cut *c, const ahead *b, const tile *t)
{
    const int64_t group = c->kernel->nr * TN_GEMM_GROUP;
    if (!t->fresh && !t->done) memset(t->sum, 0, (size_t)(c->tile_m * t->row) * sizeof(float));
    const int64_t swept = b->base ? 0 : sweep_row(g, c, t);
    for (int64_t p0 = 0; p0 < g->k && swept < t->n; p0 += tn__gemm_kc(c->kernel)) {
        const block p = block_at(g, c->kernel, p0);
        if (!t->packed) pack_a(g, c, t, &p);
        const int64_t direct =
            b->base || swept ? swept : sweep_direct(g, c, t, &p); /* panels after it begin anywhere */
        for (int64_t j0 = direct; j0 < t->n; j0 += group) {
            const int64_t n = t->n - j0 < group ? t->n - j0 : group;
            const panels from = b->base ? ahead_at(b, c, t->j0 + j0, &p) : pack_b(g, c, t, j0, n, &p);
            for (int64_t j = 0; j < n; j += c->kernel->nr) sweep_parts(g, c, t, &p, from, j0, j);
        }
    }
    for (int64_t i = 0; !t->done && i < t->m; i++)
        tn__gemm_store_row(g, t->batch, t->i0 + i, t->j0, t->n, t->sum + i * t->row);
    return t->packed || swept < t->n;
}

/* Do the kernels write what the tile has and nothing beside it? */
static bool fits_exactly(const tn_gemm_ukernel *u, const tile *t)
{
    const int64_t rows = t->m % u->mr, columns = t->n % u->nr;
    bool narrow = columns == 0;
    for (int i = 0; i < TN_GEMM_NARROW; i++) narrow |= columns && u->narrow[i].columns == columns;
    return narrow && (rows == 0 || u->run[rows]);
}

/* Where the tile's sums live: in `own`, or in C. Adding to C in one block along k is what the fp32 kernels do themselves. */
static void place_sums(const tn_gemm *g, const cut *c, float *own, tile *t)
{
    enum { SPAN = 1 << 20 }; /* bytes of C from a tile's first row to its last that stay in a core's own cache */
    const tn_gemm_ukernel *u = c->kernel;
    const bool plain = g->alpha == 1.0f && !g->bias && !g->act && !g->pre && !g->residual;
    const bool direct = u->type == TN_F32 && t->m <= TN_GEMM_DIRECT; /* these kernels add */
    const bool fresh = u->fresh[u->mr] && c->parts == 1 && g->part == TN_GEMM_WHOLE && g->k > 0 && !direct;
    const bool adds = g->accumulate && plain && u->type == TN_F32 && g->k <= tn__gemm_kc(u);
    const bool in_c = fresh && (adds || (!g->accumulate && !g->residual)) && fits_exactly(u, t) && g->c_row > 0 &&
                      g->c_row * t->m <= SPAN / (int64_t)sizeof(float);
    t->sum = in_c ? g->c + t->batch * g->c_batch + t->i0 * g->c_row + t->j0 : own;
    t->row = in_c ? g->c_row : c->row;
    t->fresh = fresh && !(in_c && adds);
    t->done = in_c && plain;
}

/* A slot is a share of the workspace; whoever runs it takes tiles until none is left. */
static void run_slot(void *arg, int64_t slot)
{
    job *w = arg;
    const tn_gemm *g = w->g;
    const cut *c = &w->cut;
    unsigned char *base = w->work + (size_t)slot * c->slot_bytes;
    float *own = (float *)(base + c->a_bytes + c->b_bytes);
    tile t = { .a = base, .b = base + c->a_bytes };
    const int64_t each = c->tiles_m * w->tiles_n;
    int64_t rows = -1; /* of which product and tiles A is packed */
    if (c->kernel->begin) c->kernel->begin();
    for (int64_t at; (at = atomic_fetch_add_explicit(&w->next, 1, memory_order_relaxed)) < w->tiles;) {
        t.batch = at / each;
        t.i0 = at % each / w->tiles_n * c->tile_m;
        t.j0 = w->j0 + at % w->tiles_n * c->tile_n;
        t.m = g->m - t.i0 < c->tile_m ? g->m - t.i0 : c->tile_m;
        t.n = g->n - t.j0 < c->tile_n ? g->n - t.j0 : c->tile_n;
        t.packed = c->keep && at / w->tiles_n == rows;
        place_sums(g, c, own, &t);
        rows = run_tile(g, c, &w->b, &t) ? at / w->tiles_n : -1;
    }
    if (c->kernel->end) c->kernel->end();
}

static bool is_empty(const tn_gemm *g) { return g->m <= 0 || g->n <= 0 || g->batch <= 0; }

/* Columns of B that are packed at a time for all rows, in whole tiles; 0: every tile packs what it needs. */
static int64_t shared_columns(const tn_gemm *g, const cut *c)
{
    if (!g->share_b || g->packed_b || c->tiles_m < 2 || g->m <= c->kernel->tile_m || g->k <= 0) return 0;
    if (g->batch > 1 && g->b_batch) return 0;
    if (ahead_bytes(g, c->kernel, g->n) <= TN_GEMM_SHARED) return g->n;
    int64_t columns = c->tiles_n * c->tile_n;
    while (columns > 0 && ahead_bytes(g, c->kernel, columns) > TN_GEMM_SHARED)
        columns = columns / c->tile_n / 2 * c->tile_n;
    return columns;
}

size_t tn_gemm_share_bytes(const tn_gemm *g)
{
    const size_t all = tn_gemm_packed_bytes(g);
    return g->m <= choose_kernel(g)->tile_m ? 0 : all < TN_GEMM_SHARED ? all : TN_GEMM_SHARED;
}

size_t tn_gemm_work_bytes(const tn_gemm *g, int threads)
{
    if (is_empty(g)) return ALIGN;
    const cut c = cut_tiles(g, threads);
    const int64_t shared = shared_columns(g, &c);
    return c.slot_bytes * (size_t)c.slots + (shared ? ahead_bytes(g, c.kernel, shared) : 0);
}

size_t tn_gemm_work_most(int64_t m, int64_t n, int threads)
{
    if (m <= 0 || n <= 0) return ALIGN;
    size_t most = 0;
    const tn_gemm_ukernel *u;
    for (int i = 0; (u = tn__gemm_kernel_at(i)); i++)
        for (int parts = 1; parts <= (u->type == TN_BF16 ? TN_GEMM_PARTS : 1); parts += TN_GEMM_PARTS - 1) {
            cut c = { .kernel = u, .parts = parts };
            c.tile_m = m < u->tile_m ? ceil_div(m, u->mr) * u->mr : u->tile_m;
            c.tile_n = n < u->tile_n ? ceil_div(n, u->nr) * u->nr : u->tile_n;
            size_slot(&c, n);
            most = c.slot_bytes > most ? c.slot_bytes : most;
        }
    return most * (size_t)(threads < 1 ? 1 : threads);
}

/* Columns j0..j0+columns-1 of C, whole tiles but for the last. */
static void run_columns(tn_pool *pool, job *w, int64_t j0, int64_t columns)
{
    w->j0 = j0;
    w->tiles_n = ceil_div(columns, w->cut.tile_n);
    w->tiles = w->g->batch * w->cut.tiles_m * w->tiles_n;
    atomic_store_explicit(&w->next, 0, memory_order_relaxed);
    tn_pool_run(pool, w->cut.slots, run_slot, w);
}

void tn_gemm_run(tn_pool *pool, const tn_gemm *g, void *work)
{
    if (is_empty(g)) return;
    job w = { .g = g, .cut = cut_tiles(g, tn_pool_threads(pool)), .work = work, .b = { g->packed_b, 0, g->n } };
    const int64_t shared = shared_columns(g, &w.cut);
    unsigned char *room = w.work + w.cut.slot_bytes * (size_t)w.cut.slots;
    if (!shared) run_columns(pool, &w, 0, g->n);
    for (int64_t j = 0; shared && j < g->n; j += shared) {
        const int64_t columns = g->n - j < shared ? g->n - j : shared;
        w.b = (ahead){ room, j, columns };
        pack_ahead(pool, g, j, columns, room);
        run_columns(pool, &w, j, columns);
    }
}
