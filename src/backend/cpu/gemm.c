/* The loop nest of the matrix product: C is cut into tiles, threads take tiles, and each tile packs what it needs.
 *
 * A tile is at most TILE_M x TILE_N. For every block of TN_GEMM_KC along k it packs its rows of A once (they stay in L2),
 * then packs a few panels of nr columns of B at a time (one stays in L1) and lets the micro-kernel sweep A. The sums live in a tile
 * of the workspace, not in C, until the epilogue: so C may hold the residual or the value to accumulate on.
 * How C is cut depends on the threads, and may: no element's sum crosses a tile (see gemm.h for the order). */
#include "backend/cpu/gemm_kernel.h"

#include <stdatomic.h>
#include <string.h>

/* A's block is 256 KiB and the tile of sums 256 KiB of a 1 MiB L2; a panel of B is 12 KiB with nr 12. */
enum { TILE_M = 256, TILE_N = 256, ALIGN = 64 };
/* Below this many multiply-adds (about 2 us of one core) waking a thread costs more than it brings. */
enum { SERIAL_BELOW = 1 << 15 };

typedef struct cut {
    const tn_gemm_ukernel *kernel;
    int64_t tile_m, tile_n;   /* multiples of mr and nr */
    int64_t tiles_m, tiles_n; /* per product of the batch */
    int64_t tiles, slots;     /* slots: how many tiles may be under way at once */
    size_t a_bytes, b_bytes, slot_bytes;
} cut;

typedef struct job {
    const tn_gemm *g;
    cut cut;
    unsigned char *work; /* slots of cut.slot_bytes: A (tile_m,KC), B (GROUP,KC,nr), sums (tile_m,tile_n) */
    _Atomic int64_t next;
} job;

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static size_t align_up(size_t bytes)
{
    return (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

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

static void size_slot(cut *t)
{
    t->a_bytes = align_up((size_t)(t->tile_m * TN_GEMM_KC) * sizeof(float));
    t->b_bytes = align_up((size_t)(t->kernel->nr * TN_GEMM_GROUP * TN_GEMM_KC) * sizeof(float));
    t->slot_bytes = t->a_bytes + t->b_bytes + align_up((size_t)(t->tile_m * t->tile_n) * sizeof(float));
}

/* g must not be empty. Tiles shrink until every thread has two, but not below four panels a side: smaller ones pack more
 * than they compute. */
static cut cut_tiles(const tn_gemm *g, int threads)
{
    cut t = { .kernel = g->kernel ? g->kernel : tn__gemm_kernel_best() };
    const int64_t mr = t.kernel->mr, nr = t.kernel->nr;
    const int64_t fmas = g->m * g->n * (g->k + 1);
    if (fmas < SERIAL_BELOW && fmas * g->batch < SERIAL_BELOW) threads = 1;
    t.tile_m = even_part(g->m, TILE_M, mr);
    t.tile_n = even_part(g->n, TILE_N, nr);
    count_tiles(&t, g);
    while (threads > 1 && t.tiles < 2 * threads && (t.tile_n >= 8 * nr || t.tile_m >= 8 * mr)) {
        if (t.tile_n >= 8 * nr && (t.tile_n >= t.tile_m || t.tile_m < 8 * mr))
            t.tile_n = even_part(t.tile_n, t.tile_n / 2, nr);
        else t.tile_m = even_part(t.tile_m, t.tile_m / 2, mr);
        count_tiles(&t, g);
    }
    t.slots = t.tiles < threads ? t.tiles : threads;
    size_slot(&t);
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
    float *a, *b, *sum; /* workspace: (tile_m,KC) in panels, (GROUP,KC,nr), (tile_m,tile_n) */
} tile;

/* Rows of A: the whole panels, then the last few rows in a panel as narrow as the kernels allow. */
static void pack_a(const tn_gemm *g, const tn_gemm_ukernel *u, const tile *t, int64_t p0, int64_t k)
{
    const int64_t whole = t->m - t->m % u->mr, at = t->batch * g->a_batch + t->i0 * g->a_row + p0 * g->a_col;
    tn_gemm_source src = { element(g->a, g->a_type, at), g->a_type, g->a_row, g->a_col, g->round_bf16 };
    tn__gemm_pack(t->a, u->mr, src, whole, k);
    if (whole == t->m) return;
    src.data = element(g->a, g->a_type, at + whole * g->a_row);
    tn__gemm_pack(t->a + whole * k, panel_rows(u, t->m - whole), src, t->m - whole, k);
}

static void pack_b(const tn_gemm *g, const tn_gemm_ukernel *u, const tile *t, int64_t j, int64_t n, int64_t p0,
                   int64_t k)
{
    const int64_t at = t->batch * g->b_batch + p0 * g->b_row + (t->j0 + j) * g->b_col;
    const tn_gemm_source src = { element(g->b, g->b_type, at), g->b_type, g->b_col, g->b_row, g->round_bf16 };
    tn__gemm_pack(t->b, u->nr, src, n, k);
}

/* A block of k steps from p0 on: which of them rows i..i+r-1 need for the columns from j on. Rows and columns of C. */
static void needed_steps(tn_gemm_part part, int64_t i, int r, int64_t j, int64_t p0, int64_t k, int64_t *lo,
                         int64_t *hi)
{
    *lo = part == TN_GEMM_A_UPPER && i > p0 ? i - p0 : 0;
    *hi = part == TN_GEMM_A_LOWER && i + r < p0 + k ? i + r - p0 : k;
    if (part == TN_GEMM_C_LOWER && j >= i + r) *hi = 0;
}

/* All rows of the tile times one packed panel of B, whose columns begin at j of the tile, over k steps from p0 on. */
static void sweep_rows(const tn_gemm *g, const tn_gemm_ukernel *u, const tile *t, int64_t p0, int64_t k, const float *b,
                       int64_t j, int64_t sum_row)
{
    for (int64_t i = 0; i < t->m;) {
        const int r = panel_rows(u, t->m - i);
        int64_t lo, hi;
        needed_steps(g->part, t->i0 + i, r, t->j0 + j, p0, k, &lo, &hi);
        if (lo < hi) u->run[r](hi - lo, t->a + i * k + lo * r, b + lo * u->nr, t->sum + i * sum_row + j, sum_row);
        i += r;
    }
}

static void run_tile(const tn_gemm *g, const cut *c, const tile *t)
{
    const tn_gemm_ukernel *u = c->kernel;
    const int64_t row = c->tile_n, group = u->nr * TN_GEMM_GROUP;
    memset(t->sum, 0, (size_t)(c->tile_m * row) * sizeof(float));
    for (int64_t p0 = 0; p0 < g->k; p0 += TN_GEMM_KC) {
        const int64_t k = g->k - p0 < TN_GEMM_KC ? g->k - p0 : TN_GEMM_KC;
        pack_a(g, u, t, p0, k);
        for (int64_t j0 = 0; j0 < t->n; j0 += group) {
            const int64_t n = t->n - j0 < group ? t->n - j0 : group;
            pack_b(g, u, t, j0, n, p0, k);
            for (int64_t j = 0; j < n; j += u->nr) sweep_rows(g, u, t, p0, k, t->b + j * k, j0 + j, row);
        }
    }
    for (int64_t i = 0; i < t->m; i++) tn__gemm_store_row(g, t->batch, t->i0 + i, t->j0, t->n, t->sum + i * row);
}

/* A slot is a share of the workspace; whoever runs it takes tiles until none is left. */
static void run_slot(void *arg, int64_t slot)
{
    job *w = arg;
    const tn_gemm *g = w->g;
    const cut *c = &w->cut;
    unsigned char *base = w->work + (size_t)slot * c->slot_bytes;
    tile t = { .a = (float *)base,
               .b = (float *)(base + c->a_bytes),
               .sum = (float *)(base + c->a_bytes + c->b_bytes) };
    const int64_t each = c->tiles_m * c->tiles_n;
    for (int64_t at; (at = atomic_fetch_add_explicit(&w->next, 1, memory_order_relaxed)) < c->tiles;) {
        t.batch = at / each;
        t.i0 = at % each / c->tiles_n * c->tile_m;
        t.j0 = at % c->tiles_n * c->tile_n;
        t.m = g->m - t.i0 < c->tile_m ? g->m - t.i0 : c->tile_m;
        t.n = g->n - t.j0 < c->tile_n ? g->n - t.j0 : c->tile_n;
        run_tile(g, c, &t);
    }
}

static bool is_empty(const tn_gemm *g)
{
    return g->m <= 0 || g->n <= 0 || g->batch <= 0;
}

size_t tn_gemm_work_bytes(const tn_gemm *g, int threads)
{
    if (is_empty(g)) return ALIGN;
    const cut c = cut_tiles(g, threads);
    return c.slot_bytes * (size_t)c.slots;
}

size_t tn_gemm_work_most(int64_t m, int64_t n, int threads)
{
    cut c = { .kernel = tn__gemm_kernel_best() };
    const int64_t mr = c.kernel->mr, nr = c.kernel->nr;
    if (m <= 0 || n <= 0) return ALIGN;
    c.tile_m = m < TILE_M ? ceil_div(m, mr) * mr : TILE_M - TILE_M % mr;
    c.tile_n = n < TILE_N ? ceil_div(n, nr) * nr : TILE_N - TILE_N % nr;
    size_slot(&c);
    return c.slot_bytes * (size_t)(threads < 1 ? 1 : threads);
}

void tn_gemm_run(tn_pool *pool, const tn_gemm *g, void *work)
{
    if (is_empty(g)) return;
    job w = { .g = g, .cut = cut_tiles(g, tn_pool_threads(pool)), .work = work };
    tn_pool_run(pool, w.cut.slots, run_slot, &w);
}
