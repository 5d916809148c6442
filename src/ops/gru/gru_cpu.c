/* gru on the CPU. Rows are cut into panels whose gates fit a core's cache. Forward, a panel's products write into the panel of
 * gates (output 1 itself where it is wanted) and the gates are computed there. Backward, a panel of gate gradients is made
 * and multiplied at once for dx and dh; the weights' gradients are products over all rows afterwards.
 *
 * Invariant: no bits depend on how rows are cut, as a row of tn_gemm depends on that row alone, and rows are added up in chunks of
 * TN_GRU_CHUNK that panels never cut. So panels may depend on the number of threads. */
#include "backend/cpu/gemm.h"
#include "ops/cuda_kernels.h"
#include "ops/gru/gru.h"
#include "ops/gru/gru_gates.h"
#include "ops/rows.h"
#include "ops/slots.h"

#include <string.h>

tn_kernel tn_gru_forward_cpu, tn_gru_backward_cpu;
tn_kernel_work tn_gru_work_cpu;

enum { X = TN_GRU_X, HID = TN_GRU_H, WI = TN_GRU_WI, WH = TN_GRU_WH, BI = TN_GRU_BI, BH = TN_GRU_BH };
/* A panel of gates, packed rows beside it, should stay in a core's own cache; so many rows share each load of the weights. */
enum { PANEL_BYTES = 512 << 10, FEWEST = 16, MOST = 128, UNIT = TN_GRU_CHUNK, KERNEL_ROWS = 32 };
_Static_assert(FEWEST % UNIT == 0 && MOST % UNIT == 0 && KERNEL_ROWS % UNIT == 0, "panels begin where chunks do");
enum {
    BIAS_COLUMNS = 128
}; /* columns summed by one tile: several cache lines of every row, so that they are fetched ahead */
/* Bytes between rows of d beyond 4H numbers: a power of two between them would leave most of a cache unused where columns
 * are read. */
enum { APART = 64 };

/* The products with a weight, forward and backward: w_h is cut between z and n, because q is kept apart from n's other part. */
enum { BY_X, BY_H_RZ, BY_H_N, PRODUCTS };

typedef struct sizes {
    int64_t I, H;
    tn_dtype round;
    bool bf16x3, portable;
} sizes;

static int64_t panel_most(int64_t H)
{
    const int64_t n = H ? PANEL_BYTES / (16 * H) : MOST;
    return n < FEWEST ? FEWEST : n > MOST ? MOST : n / UNIT * UNIT;
}

/* Rows of a panel, so that all threads have the same number of them; one thread alone takes what kernels take whole. */
static int64_t panel_rows(int64_t rows, int64_t H, int64_t threads)
{
    const int64_t most = panel_most(H);
    if (threads == 1) return most < KERNEL_ROWS ? most : most / KERNEL_ROWS * KERNEL_ROWS;
    const int64_t panels = tn_tiles(tn_tiles(rows, most), threads) * threads;
    const int64_t each = (tn_tiles(rows, panels ? panels : 1) + UNIT - 1) / UNIT * UNIT;
    return each < FEWEST ? FEWEST : each > most ? most : each;
}

/* Columns of C and steps along k of a product. */
static tn_gemm shape_of(const sizes *s, int which, bool backward)
{
    const int64_t gates = (which == BY_X ? 3 : which == BY_H_RZ ? 2 : 1) * s->H, width = which == BY_X ? s->I : s->H;
    return (tn_gemm){ .n = backward ? width : gates,
                      .k = backward ? gates : width,
                      .batch = 1,
                      .round = s->round,
                      .bf16x3 = s->bf16x3,
                      .portable_only = s->portable,
                      .alpha = 1 };
}

/* --- workspace ------------------------------------------------------------------------------------------------------ */

typedef struct space {
    void *d;                /* backward (N,4H), rows d_row apart: bf16 where products round to it, else f32 */
    float *sums;            /* backward: d's rows added up, TN_GRU_CHUNK at a time */
    void *packed[PRODUCTS]; /* the weights, where several panels share them */
    void *slots;            /* per thread: a panel of gates (forward), then a product's workspace */
    size_t slot_bytes, gate_bytes;
    void *whole; /* workspace of a product that all threads share; takes the place of packed and slots */
    size_t bytes;
} space;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static tn_dtype d_type(const sizes *s) { return s->round == TN_BF16 ? TN_BF16 : TN_F32; }

static int64_t d_row(const sizes *s) { return 4 * s->H + APART / (int64_t)tn_dtype_bytes(d_type(s)); }

static size_t most_of(size_t a, size_t b) { return a > b ? a : b; }

/* The products over all rows that give the weights' gradients. */
static size_t weight_work(const sizes *s, int64_t N, int threads)
{
    const int64_t width = s->I > s->H ? s->I : s->H;
    tn_gemm g = shape_of(s, BY_X, true);
    g.m = 3 * s->H, g.n = width, g.k = N;
    return tn_gemm_work_most(g.m, g.n, threads) + tn_gemm_share_bytes(&g);
}

/* base NULL: only measures. */
static space make_space(const sizes *s, int64_t N, bool backward, int threads, void *base)
{
    space p = { 0 };
    const int64_t panel = panel_most(s->H), widest = backward ? (s->I > s->H ? s->I : s->H) : 3 * s->H;
    p.d = tn_carve(base, &p.bytes, backward ? tn_dtype_bytes(d_type(s)) * (size_t)(d_row(s) * N) : 0);
    p.sums = tn_carve(base, &p.bytes, backward ? sizeof(float) * (size_t)(4 * s->H * tn_tiles(N, TN_GRU_CHUNK)) : 0);
    const size_t before = p.bytes;
    p.whole = tn_carve(base, &p.bytes, 0);
    for (int i = 0; i < PRODUCTS; i++) {
        const tn_gemm g = shape_of(s, i, backward);
        p.packed[i] = tn_carve(base, &p.bytes, tn_gemm_packed_bytes(&g));
    }
    p.gate_bytes = backward ? 0 : tn_align64(sizeof(float) * (size_t)(4 * s->H * panel));
    p.slot_bytes = p.gate_bytes + tn_align64(tn_gemm_work_most(panel, widest, 1));
    p.slots = tn_carve(base, &p.bytes, p.slot_bytes * (size_t)threads);
    const size_t whole =
        p.gate_bytes + most_of(tn_gemm_work_most(panel, widest, threads), backward ? weight_work(s, N, threads) : 0);
    p.bytes = most_of(p.bytes, before + whole);
    return p;
}

size_t tn_gru_work_cpu(const tn_sig *s, bool backward)
{
    const sizes z = { s->in[X].dims.dim[1], s->in[HID].dims.dim[1], s->round, s->bf16x3, s->portable };
    return make_space(&z, s->in[X].dims.dim[0], backward, s->threads, NULL).bytes;
}

/* --- panels --------------------------------------------------------------------------------------------------------- */

typedef struct job {
    const tn_call *c;
    sizes z;
    space s;
    bool backward, packed;
    int64_t rows, per_panel;
    const float *dy; /* (rows,H) */
} job;

static job make_job(const tn_call *c, bool backward, const tn_arg *y)
{
    job j = { .c = c, .backward = backward, .rows = tn_arg_rows(y) };
    const int threads = tn_pool_threads(c->pool);
    j.z = (sizes){ c->in[X].dims.dim[1], c->in[HID].dims.dim[1], c->round, c->bf16x3, c->portable };
    j.s = make_space(&j.z, c->in[X].dims.dim[0], backward, threads, c->work);
    j.per_panel = j.rows <= panel_most(j.z.H) ? j.rows : panel_rows(j.rows, j.z.H, threads);
    return j;
}

/* Column `at` of row `row` of d. */
static void *d_at(const job *j, int64_t row, int64_t at)
{
    return (char *)j->s.d + (row * d_row(&j->z) + at) * (int64_t)tn_dtype_bytes(d_type(&j->z));
}

static const void *element(const tn_arg *a, int64_t index)
{
    return (const char *)a->data + index * (int64_t)tn_dtype_bytes(a->dtype);
}

/* A product with a weight, whose other operand and result the caller gives. */
static tn_gemm product_of(const job *j, int which, int64_t rows)
{
    const tn_arg *w = &j->c->in[which == BY_X ? WI : WH];
    const int64_t k = w->dims.dim[1];
    tn_gemm g = shape_of(&j->z, which, j->backward);
    g.m = rows;
    g.b = element(w, which == BY_H_N ? 2 * j->z.H * k : 0);
    g.b_row = j->backward ? k : 1;
    g.b_col = j->backward ? 1 : k;
    g.b_type = w->dtype;
    g.packed_b = j->packed ? j->s.packed[which] : NULL;
    return g;
}

static void forward_panel(const job *j, tn_pool *pool, void *scratch, int64_t first, int64_t rows)
{
    const tn_arg *in = j->c->in;
    const int64_t H = j->z.H;
    const float *h = (const float *)in[HID].data + first * in[HID].stride[0];
    float *kept = j->c->out[1].data, *gates = kept ? kept + first * 4 * H : scratch;
    void *work = (char *)scratch + j->s.gate_bytes;
    tn_gemm g = product_of(j, BY_X, rows);
    g.a = element(&in[X], first * in[X].stride[0]), g.a_row = in[X].stride[0], g.a_col = 1, g.a_type = in[X].dtype;
    g.c = gates, g.c_row = 4 * H;
    tn_gemm_run(pool, &g, work);
    for (int which = BY_H_RZ; which <= BY_H_N; which++) {
        g = product_of(j, which, rows);
        g.a = h, g.a_row = in[HID].stride[0], g.a_col = 1;
        g.c = which == BY_H_N ? gates + 3 * H : gates, g.c_row = 4 * H;
        g.accumulate = which == BY_H_RZ;
        tn_gemm_run(pool, &g, work);
    }
    tn_gru_gates(gates, in[BI].data, in[BH].data, h, in[HID].stride[0], (float *)j->c->out[0].data + first * H, rows,
                 H);
}

static void backward_panel(const job *j, tn_pool *pool, void *scratch, int64_t first, int64_t rows)
{
    const tn_arg *h = &j->c->in[HID], *dx = &j->c->din[X], *dh = &j->c->din[HID];
    const int64_t H = j->z.H;
    float *dh_at = dh->data ? (float *)dh->data + first * dh->stride[0] : NULL;
    const bool biases = j->c->din[BI].data || j->c->din[BH].data;
    float *sums = biases ? j->s.sums + 4 * H * (first / TN_GRU_CHUNK) : NULL;
    tn_gru_gate_slopes(&(tn_gru_slopes){ .gates = (const float *)j->c->out[1].data + first * 4 * H,
                                         .h = (const float *)h->data + first * h->stride[0],
                                         .dy = j->dy + first * H,
                                         .h_row = h->stride[0],
                                         .d = d_at(j, first, 0),
                                         .half = d_type(&j->z) == TN_BF16,
                                         .d_row = d_row(&j->z),
                                         .sums = sums,
                                         .dh = dh_at,
                                         .dh_row = dh->stride[0],
                                         .add = j->c->accumulate >> HID & 1,
                                         .rows = rows,
                                         .H = H });
    for (int which = 0; which < PRODUCTS; which++) {
        tn_gemm g = product_of(j, which, rows);
        const tn_arg *to = which == BY_X ? dx : dh;
        if (!to->data) continue;
        g.a = d_at(j, first, which == BY_H_N ? 3 * H : 0), g.a_row = d_row(&j->z), g.a_col = 1;
        g.a_type = d_type(&j->z);
        g.c = (float *)to->data + first * to->stride[0], g.c_row = to->stride[0];
        g.accumulate = which != BY_X || (j->c->accumulate >> X & 1);
        tn_gemm_run(pool, &g, scratch);
    }
}

static void run_panel(const job *j, tn_pool *pool, void *scratch, int64_t first, int64_t rows)
{
    if (j->backward) backward_panel(j, pool, scratch, first, rows);
    else forward_panel(j, pool, scratch, first, rows);
}

static void panel_tile(void *arg, void *scratch, int64_t t)
{
    const job *j = arg;
    const int64_t first = t * j->per_panel;
    run_panel(j, NULL, scratch, first, least(j->rows - first, j->per_panel));
}

/* One panel: all threads share its products. More: the weights are packed once, and a thread takes panel after panel. */
static void run_panels(job *j)
{
    const tn_arg *din = j->c->din;
    if (j->rows <= j->per_panel) {
        if (j->rows) run_panel(j, j->c->pool, j->s.whole, 0, j->rows);
        return;
    }
    for (int i = 0; i < PRODUCTS; i++) {
        const tn_gemm g = product_of(j, i, j->rows);
        if (!j->backward || din[i == BY_X ? X : HID].data) tn_gemm_pack_b(j->c->pool, &g, j->s.packed[i]);
    }
    j->packed = true;
    tn_slots_run(j->c->pool, tn_tiles(j->rows, j->per_panel), panel_tile, j, j->s.slots, j->s.slot_bytes);
}

tn_status tn_gru_forward_cpu(const tn_call *c)
{
    job j = make_job(c, false, &c->out[0]);
    run_panels(&j);
    return TN_OK;
}

/* --- backward, over all rows ---------------------------------------------------------------------------------------- */

/* dw (m,n) = the sum over rows of m columns of d, from column `column` on, times a (rows,n). */
static void weight_grad(const job *j, int64_t column, const tn_arg *a, const tn_arg *dw, int64_t from, int64_t m,
                        bool add)
{
    const tn_gemm g = { .m = m,
                        .n = dw->dims.dim[1],
                        .k = j->rows,
                        .a = d_at(j, 0, column),
                        .a_row = 1,
                        .a_col = d_row(&j->z),
                        .a_type = d_type(&j->z),
                        .b = a->data,
                        .b_row = a->stride[0],
                        .b_col = 1,
                        .b_type = a->dtype,
                        .share_b = true,
                        .c = (float *)dw->data + from * dw->dims.dim[1],
                        .c_row = dw->dims.dim[1],
                        .batch = 1,
                        .round = j->z.round,
                        .bf16x3 = j->z.bf16x3,
                        .portable_only = j->z.portable,
                        .accumulate = add,
                        .alpha = 1 };
    tn_gemm_run(j->c->pool, &g, j->s.whole);
}

/* Columns of d: those of r and z are of both biases, then comes n of b_i, then n of b_h. */
static void bias_tile(void *arg, int64_t t)
{
    const job *j = arg;
    const int64_t H = j->z.H, first = t * BIAS_COLUMNS, count = least(4 * H - first, BIAS_COLUMNS);
    double sum[BIAS_COLUMNS] = { 0 };
    tn_gru_sum_rows(j->s.sums + first, 4 * H, tn_tiles(j->rows, TN_GRU_CHUNK), count, sum);
    for (int b = BI; b <= BH; b++) {
        float *to = j->c->din[b].data;
        for (int64_t i = 0; to && i < count; i++) {
            const int64_t column = first + i, at = column >= 3 * H ? column - H : column;
            if (column >= 2 * H && (b == BI) != (column < 3 * H)) continue;
            to[at] = j->c->accumulate >> b & 1 ? to[at] + (float)sum[i] : (float)sum[i];
        }
    }
}

/* Rows that are dead, but alive in the gradient. */
static void clear_dead(const job *j, int input)
{
    const tn_arg *d = &j->c->din[input];
    if (!d->data || (j->c->accumulate >> input & 1)) return;
    for (int64_t r = j->rows; r < tn_arg_rows(d); r++)
        memset((float *)d->data + r * d->stride[0], 0, sizeof(float) * (size_t)d->dims.dim[1]);
}

tn_status tn_gru_backward_cpu(const tn_call *c)
{
    job j = make_job(c, true, &c->dout[0]);
    const int64_t H = j.z.H;
    j.dy = c->dout[0].data;
    run_panels(&j);
    clear_dead(&j, X);
    clear_dead(&j, HID);
    if (c->din[WI].data) weight_grad(&j, 0, &c->in[X], &c->din[WI], 0, 3 * H, c->accumulate >> WI & 1);
    if (c->din[WH].data) {
        weight_grad(&j, 0, &c->in[HID], &c->din[WH], 0, 2 * H, c->accumulate >> WH & 1);
        weight_grad(&j, 3 * H, &c->in[HID], &c->din[WH], 2 * H, H, c->accumulate >> WH & 1);
    }
    if (c->din[BI].data || c->din[BH].data) tn_pool_run(c->pool, tn_tiles(4 * H, BIAS_COLUMNS), bias_tile, &j);
    return TN_OK;
}
