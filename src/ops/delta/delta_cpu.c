/* delta on the CPU: sequences and heads over the threads, chunks in order. Chunks also begin at resets, so that none lies
 * inside one; they have at most MOST tokens, since what a pair of tokens costs grows with their distance and what the state
 * costs does not. Backwards a head is walked forward once, to keep the states before chunks and what tokens wrote. */
#include "ops/delta/delta_cpu.h"

#include "backend/cpu/gemm.h"
#include "ops/delta/delta.h"

#include <stdatomic.h>
#include <string.h>

enum { ALIGN = 64, MOST = 32 };

typedef tn_outer_view view;
typedef tn_delta_seq seq;
typedef tn_delta_chunk chunk;

typedef struct shape {
    int64_t B, T, H, N, P, C;
    bool bf16x3, portable, by_row;
    tn_dtype round;
    size_t gemm_bytes;
} shape;

void tn_delta_multiply(const seq *s, int64_t m, int64_t n, int64_t k, view a, view b, float *c, bool add)
{
    const tn_gemm g = { .m = m,
                        .n = n,
                        .k = k,
                        .a = a.data,
                        .a_row = a.row,
                        .a_col = a.col,
                        .a_type = TN_F32,
                        .b = b.data,
                        .b_row = b.row,
                        .b_col = b.col,
                        .b_type = TN_F32,
                        .c = c,
                        .c_row = n,
                        .batch = 1,
                        .round = s->round,
                        .bf16x3 = s->bf16x3,
                        .portable_only = s->portable,
                        .accumulate = add,
                        .alpha = 1 };
    tn_gemm_run(NULL, &g, s->gemm);
}

/* --- workspace --------------------------------------------------------------------------------------------------- */

/* What one sequence of one head needs beside seq: where chunks begin, and the states before those that have one. */
typedef struct walk {
    seq s;
    int64_t *starts; /* (T+1) */
    float *states;   /* (T/C+1,N,P): a chunk that is not fresh follows a full one, or begins the sequence */
    float *zero;     /* (P) */
} walk;

/* Of the largest product; the last chunk and those that documents cut may be shorter. */
static size_t gemm_bytes(const shape *z)
{
    const int64_t side[][2] = { { 2 * z->C, z->P }, { 2 * z->C, z->C }, { 2 * z->C, z->N }, { z->N, z->P } };
    size_t most = ALIGN;
    for (int i = 0; i < 4; i++) {
        const size_t bytes = tn_gemm_work_most(side[i][0], side[i][1], 1);
        if (bytes > most) most = bytes;
    }
    return most;
}

static void *take(uintptr_t *at, int64_t count, size_t each)
{
    void *p = (void *)*at;
    *at += ((size_t)count * each + ALIGN - 1) / ALIGN * ALIGN;
    return p;
}

static void lay_out_backward(const shape *z, uintptr_t *at, walk *w)
{
    const int64_t C = z->C, N = z->N, P = z->P;
    const size_t f = sizeof(float);
    seq *s = &w->s;
    s->g = take(at, N * P, f);
    s->held = take(at, 2 * C * P, f);
    s->pairs = take(at, 2 * C * C, f);
    s->d_led = take(at, 2 * C * N, f);
    s->d_out = take(at, C * N, f);
    s->between = take(at, C * N, f);
    s->sums = take(at, 3 * C * N, f);
    s->run = take(at, N, sizeof(double));
    w->starts = take(at, z->T + 1, sizeof *w->starts);
    w->states = take(at, (z->T / C + 1) * N * P, f);
    w->zero = take(at, P, f);
}

/* Lays a walk's memory out from `at`; returns its size. */
static size_t lay_out(const shape *z, bool backward, uintptr_t at, walk *w)
{
    const uintptr_t start = at;
    const int64_t C = z->C, N = z->N, P = z->P, kept = backward ? z->T : C;
    const size_t f = sizeof(float);
    seq *s = &w->s;
    *w = (walk){ .s = { .N = N,
                        .P = P,
                        .C = C,
                        .round = z->round,
                        .bf16x3 = z->bf16x3,
                        .portable = z->portable,
                        .by_row = z->by_row } };
    s->s = take(&at, N * P, f);
    s->raw = take(&at, 2 * C * N, f);
    s->led = take(&at, 2 * C * N, f);
    s->decay = take(&at, C * N, f);
    s->lead = take(&at, C * N, f);
    s->out = take(&at, C * N, f);
    s->a = take(&at, C * C, f);
    s->m = take(&at, C * C, f);
    s->read = take(&at, 2 * C * P, f);
    s->beta_row = take(&at, C, f);
    s->u = take(&at, kept * P, f);
    s->w = take(&at, kept * P, f);
    s->gemm = take(&at, (int64_t)z->gemm_bytes, 1);
    if (backward) lay_out_backward(z, &at, w);
    return at - start;
}

/* kind: round, bf16x3 and portable; the rest is found here. */
static shape shape_of(tn_dims q, tn_dims v, tn_dims alpha, const tn_delta_attr *a, shape kind)
{
    shape z = kind;
    const int64_t chunk_most = a->chunk < MOST ? a->chunk : MOST;
    z.B = q.dim[0], z.T = q.dim[1], z.H = q.dim[2], z.N = q.dim[3], z.P = v.dim[3];
    z.C = z.T < 1 ? 1 : z.T < chunk_most ? z.T : chunk_most;
    z.by_row = alpha.rank == 4;
    z.gemm_bytes = gemm_bytes(&z);
    return z;
}

size_t tn_delta_work_cpu(const tn_sig *s, bool backward)
{
    const shape kind = { .round = s->round, .bf16x3 = s->bf16x3, .portable = s->portable };
    const shape z = shape_of(s->in[TN_DELTA_Q].dims, s->in[TN_DELTA_V].dims, s->in[TN_DELTA_ALPHA].dims, s->attr, kind);
    const int64_t heads = z.B * z.H;
    walk w;
    return lay_out(&z, backward, 0, &w) * (size_t)(heads < s->threads ? heads : s->threads);
}

/* --- sequences over threads -------------------------------------------------------------------------------------- */

typedef struct job {
    const tn_call *c;
    shape z;
    bool backward;
    size_t walk_bytes;
    _Atomic int64_t next; /* sequence to be taken: any slot may take any, each has its own result */
} job;

/* Head h of sequence b of a (B,T,H,n) or (B,T,H) tensor as a matrix over time. */
static view head(const tn_arg *a, int64_t b, int64_t h, bool add)
{
    if (!a->data) return (view){ 0 };
    return (view){ (float *)a->data + b * a->stride[0] + h * a->stride[2], a->stride[1],
                   a->dims.rank == 4 ? a->stride[3] : 1, add };
}

/* The (N,P) matrix of head h of sequence b of a (B,H,N,P) tensor. */
static view matrix(const tn_arg *a, int64_t b, int64_t h, bool add)
{
    if (!a->data) return (view){ 0 };
    return (view){ (float *)a->data + b * a->stride[0] + h * a->stride[1], a->stride[2], a->stride[3], add };
}

static void load_matrix(view from, int64_t rows, int64_t n, float *x)
{
    for (int64_t i = 0; i < rows; i++) tn_outer_load(from, i, n, x + i * n);
}

static void store_matrix(view to, int64_t rows, int64_t n, const float *x)
{
    for (int64_t i = 0; to.data && i < rows; i++) tn_outer_store(to, i, n, x + i * n);
}

static bool is_reset(const job *j, int64_t b, int64_t t)
{
    const tn_arg *r = &j->c->in[TN_DELTA_RESET];
    return r->data && ((const int32_t *)r->data)[b * r->stride[0] + t * r->stride[1]];
}

/* The chunk that begins at t: up to C tokens, ending before the next reset. */
static chunk next_chunk(const job *j, const walk *w, int64_t b, int64_t t)
{
    const int64_t kept = j->backward ? t * w->s.P : 0;
    chunk k = { .t0 = t,
                .c = 1,
                .fresh = is_reset(j, b, t) || (t == 0 && j->c->in[TN_DELTA_STATE].dims.rank == 0),
                .u = w->s.u + kept,
                .w = w->s.w + kept };
    while (k.c < j->z.C && t + k.c < j->z.T && !is_reset(j, b, t + k.c)) k.c++;
    return k;
}

static void load_inputs(const job *j, walk *w, int64_t b, int64_t h)
{
    const tn_arg *in = j->c->in;
    seq *s = &w->s;
    s->q = head(&in[TN_DELTA_Q], b, h, false);
    s->k = head(&in[TN_DELTA_K], b, h, false);
    s->v = head(&in[TN_DELTA_V], b, h, false);
    s->alpha = head(&in[TN_DELTA_ALPHA], b, h, false);
    s->beta = head(&in[TN_DELTA_BETA], b, h, false);
    load_matrix(matrix(&in[TN_DELTA_STATE], b, h, false), s->N, s->P, s->s);
}

static void walk_forward(const job *j, walk *w, int64_t b, int64_t h)
{
    seq *s = &w->s;
    load_inputs(j, w, b, h);
    s->o = head(&j->c->out[0], b, h, false);
    for (int64_t t = 0; t < j->z.T;) {
        const chunk k = next_chunk(j, w, b, t);
        tn_delta_chunk_prepare(s, &k);
        tn_delta_chunk_forward(s, &k, s->o.data != NULL);
        t += k.c;
    }
    store_matrix(matrix(&j->c->out[1], b, h, false), s->N, s->P, s->s);
}

/* Finds where chunks begin; computes the states before them and what tokens write. */
static int64_t recompute(const job *j, walk *w, int64_t b)
{
    seq *s = &w->s;
    int64_t n = 0, kept = 0;
    for (int64_t t = 0; t < j->z.T;) {
        const chunk k = next_chunk(j, w, b, t);
        w->starts[n++] = t;
        if (!k.fresh) memcpy(w->states + kept++ * s->N * s->P, s->s, sizeof(float) * (size_t)(s->N * s->P));
        tn_delta_chunk_prepare(s, &k);
        tn_delta_chunk_forward(s, &k, false);
        t += k.c;
    }
    return n;
}

static void load_gradients(const job *j, walk *w, int64_t b, int64_t h)
{
    const tn_call *c = j->c;
    seq *s = &w->s;
    s->dq = head(&c->din[TN_DELTA_Q], b, h, c->accumulate >> TN_DELTA_Q & 1);
    s->dk = head(&c->din[TN_DELTA_K], b, h, c->accumulate >> TN_DELTA_K & 1);
    s->dv = head(&c->din[TN_DELTA_V], b, h, c->accumulate >> TN_DELTA_V & 1);
    s->dalpha = head(&c->din[TN_DELTA_ALPHA], b, h, c->accumulate >> TN_DELTA_ALPHA & 1);
    s->dbeta = head(&c->din[TN_DELTA_BETA], b, h, c->accumulate >> TN_DELTA_BETA & 1);
    s->d_o = head(&c->dout[0], b, h, false);
    memset(w->zero, 0, sizeof *w->zero * (size_t)s->P);
    if (!s->d_o.data) s->d_o = (view){ w->zero, 0, 1, false };
    load_matrix(matrix(&c->dout[1], b, h, false), s->N, s->P, s->g);
}

static void walk_backward(const job *j, walk *w, int64_t b, int64_t h)
{
    const tn_call *c = j->c;
    seq *s = &w->s;
    load_inputs(j, w, b, h);
    load_gradients(j, w, b, h);
    const int64_t n = recompute(j, w, b);
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++) kept += !next_chunk(j, w, b, w->starts[i]).fresh;
    for (int64_t i = n; i-- > 0;) {
        chunk k = next_chunk(j, w, b, w->starts[i]);
        if (!k.fresh) k.s0 = w->states + --kept * s->N * s->P;
        tn_delta_chunk_prepare(s, &k);
        tn_delta_chunk_backward(s, &k);
    }
    store_matrix(matrix(&c->din[TN_DELTA_STATE], b, h, c->accumulate >> TN_DELTA_STATE & 1), s->N, s->P, s->g);
}

static void run_slot(void *arg, int64_t slot)
{
    job *j = arg;
    const int64_t heads = j->z.B * j->z.H;
    walk w;
    lay_out(&j->z, j->backward, (uintptr_t)j->c->work + (size_t)slot * j->walk_bytes, &w);
    for (int64_t i; (i = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < heads;)
        (j->backward ? walk_backward : walk_forward)(j, &w, i / j->z.H, i % j->z.H);
}

static tn_status run(const tn_call *c, bool backward)
{
    walk w;
    job j = { .c = c, .backward = backward };
    const shape kind = { .round = c->round, .bf16x3 = c->bf16x3, .portable = c->portable };
    j.z = shape_of(c->in[TN_DELTA_Q].dims, c->in[TN_DELTA_V].dims, c->in[TN_DELTA_ALPHA].dims, c->attr, kind);
    j.walk_bytes = lay_out(&j.z, backward, 0, &w);
    const int64_t heads = j.z.B * j.z.H, threads = tn_pool_threads(c->pool);
    tn_pool_run(c->pool, heads < threads ? heads : threads, run_slot, &j);
    return TN_OK;
}

tn_status tn_delta_forward_cpu(const tn_call *c) { return run(c, false); }

tn_status tn_delta_backward_cpu(const tn_call *c) { return run(c, true); }
