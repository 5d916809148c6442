/* delta on the CPU: sequences and heads over the threads, chunks in order. Chunks also begin at resets, so that none lies
 * inside one; they have at most TN_DELTA_CHUNK tokens, since what a pair of tokens costs grows with their distance and what
 * the state costs does not. Backwards a head is walked forward once, to keep the states before chunks and what tokens wrote. */
#include "ops/delta/delta_cpu.h"

#include "ops/delta/delta.h"
#include "ops/slots.h"

#include <string.h>

typedef tn_strided view;
typedef tn_delta_seq seq;
typedef tn_delta_chunk chunk;

typedef struct shape {
    int64_t B, T, H, N, P, C;
    bool by_row;
    tn_strided_products how;
    size_t gemm_bytes;
} shape;

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
    const int64_t most[4][2] = { { 2 * z->C, z->P }, { 2 * z->C, z->C }, { 2 * z->C, z->N }, { z->N, z->P } };
    return tn_strided_work(most, 4);
}

static void lay_out_backward(const shape *z, void *base, size_t *used, walk *w)
{
    const int64_t C = z->C, N = z->N, P = z->P;
    const size_t f = sizeof(float);
    seq *s = &w->s;
    s->g = tn_carve(base, used, (size_t)(N * P) * f);
    s->held = tn_carve(base, used, (size_t)(2 * C * P) * f);
    s->pairs = tn_carve(base, used, (size_t)(2 * C * C) * f);
    s->d_led = tn_carve(base, used, (size_t)(2 * C * N) * f);
    s->d_out = tn_carve(base, used, (size_t)(C * N) * f);
    s->between = tn_carve(base, used, (size_t)(C * N) * f);
    s->sums = tn_carve(base, used, (size_t)(3 * C * N) * f);
    s->run = tn_carve(base, used, (size_t)N * sizeof(double));
    w->starts = tn_carve(base, used, (size_t)(z->T + 1) * sizeof *w->starts);
    w->states = tn_carve(base, used, (size_t)((z->T / C + 1) * N * P) * f);
    w->zero = tn_carve(base, used, (size_t)P * f);
}

/* Lays a walk's memory out from `base` (NULL: measures alone); returns its size. */
static size_t lay_out(const shape *z, bool backward, void *base, walk *w)
{
    size_t used = 0;
    const int64_t C = z->C, N = z->N, P = z->P, kept = backward ? z->T : C;
    const size_t f = sizeof(float);
    seq *s = &w->s;
    *w = (walk){ .s = { .N = N, .P = P, .C = C, .how = z->how, .by_row = z->by_row } };
    s->s = tn_carve(base, &used, (size_t)(N * P) * f);
    s->raw = tn_carve(base, &used, (size_t)(2 * C * N) * f);
    s->led = tn_carve(base, &used, (size_t)(2 * C * N) * f);
    s->decay = tn_carve(base, &used, (size_t)(C * N) * f);
    s->lead = tn_carve(base, &used, (size_t)(C * N) * f);
    s->out = tn_carve(base, &used, (size_t)(C * N) * f);
    s->a = tn_carve(base, &used, (size_t)(C * C) * f);
    s->m = tn_carve(base, &used, (size_t)(C * C) * f);
    s->read = tn_carve(base, &used, (size_t)(2 * C * P) * f);
    s->beta_row = tn_carve(base, &used, (size_t)C * f);
    s->u = tn_carve(base, &used, (size_t)(kept * P) * f);
    s->w = tn_carve(base, &used, (size_t)(kept * P) * f);
    s->how.work = tn_carve(base, &used, z->gemm_bytes);
    if (backward) lay_out_backward(z, base, &used, w);
    return used;
}

static shape shape_of(tn_dims q, tn_dims v, tn_dims alpha, const tn_delta_attr *a, tn_strided_products how)
{
    shape z = { .how = how };
    const int64_t chunk_most = a->chunk < TN_DELTA_CHUNK ? a->chunk : TN_DELTA_CHUNK;
    z.B = q.dim[0], z.T = q.dim[1], z.H = q.dim[2], z.N = q.dim[3], z.P = v.dim[3];
    z.C = z.T < 1 ? 1 : z.T < chunk_most ? z.T : chunk_most;
    z.by_row = alpha.rank == 4;
    z.gemm_bytes = gemm_bytes(&z);
    return z;
}

size_t tn_delta_work_cpu(const tn_sig *s, bool backward)
{
    const tn_strided_products how = { .round = s->round, .bf16x3 = s->bf16x3, .portable = s->portable };
    const shape z = shape_of(s->in[TN_DELTA_Q].dims, s->in[TN_DELTA_V].dims, s->in[TN_DELTA_ALPHA].dims, s->attr, how);
    const int64_t heads = z.B * z.H;
    walk w;
    return lay_out(&z, backward, NULL, &w) * (size_t)(heads < s->threads ? heads : s->threads);
}

/* --- sequences over threads -------------------------------------------------------------------------------------- */

typedef struct job {
    const tn_call *c;
    shape z;
    bool backward;
} job;

/* The chunk that begins at t: up to C tokens, ending before the next reset. */
static chunk next_chunk(const job *j, const walk *w, int64_t b, int64_t t)
{
    const int64_t kept = j->backward ? t * w->s.P : 0;
    const tn_arg *reset = &j->c->in[TN_DELTA_RESET];
    chunk k = { .t0 = t,
                .c = 1,
                .fresh = tn_state_is_reset(reset, b, t) || (t == 0 && j->c->in[TN_DELTA_STATE].dims.rank == 0),
                .u = w->s.u + kept,
                .w = w->s.w + kept };
    while (k.c < j->z.C && t + k.c < j->z.T && !tn_state_is_reset(reset, b, t + k.c)) k.c++;
    return k;
}

static void load_inputs(const job *j, walk *w, int64_t b, int64_t h)
{
    const tn_arg *in = j->c->in;
    seq *s = &w->s;
    s->q = tn_strided_head(&in[TN_DELTA_Q], b, h, false);
    s->k = tn_strided_head(&in[TN_DELTA_K], b, h, false);
    s->v = tn_strided_head(&in[TN_DELTA_V], b, h, false);
    s->alpha = tn_strided_head(&in[TN_DELTA_ALPHA], b, h, false);
    s->beta = tn_strided_head(&in[TN_DELTA_BETA], b, h, false);
    tn_strided_load_rows(tn_strided_state(&in[TN_DELTA_STATE], b, h, false), s->N, s->P, s->s);
}

static void walk_forward(const job *j, walk *w, int64_t b, int64_t h)
{
    seq *s = &w->s;
    load_inputs(j, w, b, h);
    s->o = tn_strided_head(&j->c->out[0], b, h, false);
    for (int64_t t = 0; t < j->z.T;) {
        const chunk k = next_chunk(j, w, b, t);
        tn_delta_chunk_prepare(s, &k);
        tn_delta_chunk_forward(s, &k, s->o.data != NULL);
        t += k.c;
    }
    tn_strided_store_rows(tn_strided_state(&j->c->out[1], b, h, false), s->N, s->P, s->s);
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
    s->dq = tn_strided_head(&c->din[TN_DELTA_Q], b, h, c->accumulate >> TN_DELTA_Q & 1);
    s->dk = tn_strided_head(&c->din[TN_DELTA_K], b, h, c->accumulate >> TN_DELTA_K & 1);
    s->dv = tn_strided_head(&c->din[TN_DELTA_V], b, h, c->accumulate >> TN_DELTA_V & 1);
    s->dalpha = tn_strided_head(&c->din[TN_DELTA_ALPHA], b, h, c->accumulate >> TN_DELTA_ALPHA & 1);
    s->dbeta = tn_strided_head(&c->din[TN_DELTA_BETA], b, h, c->accumulate >> TN_DELTA_BETA & 1);
    s->d_o = tn_strided_head(&c->dout[0], b, h, false);
    memset(w->zero, 0, sizeof *w->zero * (size_t)s->P);
    if (!s->d_o.data) s->d_o = (view){ w->zero, 0, 1, false };
    tn_strided_load_rows(tn_strided_state(&c->dout[1], b, h, false), s->N, s->P, s->g);
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
    tn_strided_store_rows(tn_strided_state(&c->din[TN_DELTA_STATE], b, h, c->accumulate >> TN_DELTA_STATE & 1), s->N,
                          s->P, s->g);
}

static void walk_head(void *arg, void *scratch, int64_t i)
{
    const job *j = arg;
    walk w;
    lay_out(&j->z, j->backward, scratch, &w);
    (j->backward ? walk_backward : walk_forward)(j, &w, i / j->z.H, i % j->z.H);
}

static tn_status run(const tn_call *c, bool backward)
{
    walk w;
    job j = { .c = c, .backward = backward };
    const tn_strided_products how = { .round = c->round, .bf16x3 = c->bf16x3, .portable = c->portable };
    j.z = shape_of(c->in[TN_DELTA_Q].dims, c->in[TN_DELTA_V].dims, c->in[TN_DELTA_ALPHA].dims, c->attr, how);
    tn_slots_run(c->pool, j.z.B * j.z.H, walk_head, &j, c->work, lay_out(&j.z, backward, NULL, &w));
    return TN_OK;
}

tn_status tn_delta_forward_cpu(const tn_call *c) { return run(c, false); }

tn_status tn_delta_backward_cpu(const tn_call *c) { return run(c, true); }
