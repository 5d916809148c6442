/* outer on the CPU: sequences and heads over the threads, chunks in order, a chunk by matrix products. With A_i the sum
 * of alpha up to token i of a chunk, S0 the state before it and M_ij = (q_i . k_j) e^{A_i - A_j} for j <= i, else 0:
 *
 *     O = M V + diag(e^A) Q S0              S1 = e^{A_C} S0 + (diag(e^{A_C - A}) K)^T V
 *
 * Chunks also begin at resets, so that none lies inside one. The factors e^{A_i - A_j} are running products of
 * e^{alpha} in double: no overflow, no difference of sums, and row i knows nothing of tokens after i.
 * Invariant: row i of O is summed in an order that depends on i alone. */
#include "backend/cpu/level.h"
#include "ops/outer/outer_cpu.h"
#include "ops/outer/outer.h"
#include "ops/slots.h"

#include <math.h>
#include <string.h>

typedef tn_strided view;
typedef tn_outer_seq seq;
typedef tn_outer_chunk chunk;

typedef struct shape {
    int64_t B, T, H, N, P, C;
    bool steps;
    tn_strided_products how;
    size_t gemm_bytes;
} shape;

/* --- small pieces ------------------------------------------------------------------------------------------------ */

static void multiply(const seq *s, int64_t m, int64_t n, int64_t k, view a, view b, float *c, bool add)
{
    tn_strided_multiply(&s->how, m, n, k, a, b, c, add, TN_GEMM_WHOLE);
}

static view from(view a, int64_t t0) { return (view){ a.data ? a.data + t0 * a.row : NULL, a.row, a.col, a.add }; }

static void scale_rows(float *x, const double *by, int64_t rows, int64_t n)
{
    for (int64_t i = 0; i < rows; i++) {
        const float f = (float)by[i];
        for (int64_t j = 0; j < n; j++) x[i * n + j] *= f;
    }
}

static void load_scaled(view a, const double *by, int64_t rows, int64_t n, float *x)
{
    tn_strided_load_rows(a, rows, n, x);
    scale_rows(x, by, rows, n);
}

/* Denormal factors would be slow and mean nothing. */
static double damp(double x) { return x < 1e-37 ? 0 : x; }

static void load_decays(const seq *s, const chunk *k)
{
    double lead = 1, tail = 1;
    for (int64_t i = 0; i < k->c; i++) {
        s->decay[i] = exp((double)tn_strided_at(s->alpha, k->t0 + i, 0));
        s->lead[i] = lead = damp(lead * s->decay[i]);
    }
    for (int64_t i = k->c; i-- > 0;) {
        s->tail[i] = tail;
        tail = damp(tail * s->decay[i]);
    }
}

/* Turns row i-1 of the mask e^{A_i - A_j}, j <= i, into row i. */
static void next_row(const seq *s, int64_t i)
{
    double *restrict row = s->row;
    const double d = s->decay[i];
    for (int64_t j = 0; j < i; j++) row[j] = damp(row[j] * d);
    row[i] = 1;
}

/* --- forward ----------------------------------------------------------------------------------------------------- */

/* state (N,P) from before the chunk to behind it. */
static void carry(const seq *s, const chunk *k, float *state)
{
    const float all = (float)s->lead[k->c - 1];
    load_scaled(from(s->k, k->t0), s->tail, k->c, s->N, s->scaled);
    for (int64_t i = 0; !k->fresh && i < s->N * s->P; i++) state[i] *= all;
    multiply(s, s->N, s->P, k->c, tn_strided_flipped(tn_strided_dense(s->scaled, s->N)), from(s->v, k->t0), state,
             !k->fresh);
}

static bool is_finite(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (u & 0x7f800000u) != 0x7f800000u;
}

/* x (c,P) += M V. A zero of the mask times NaN is NaN, so what is not finite in V goes only to rows that may see it. */
static void add_masked(const seq *s, const chunk *k, bool add)
{
    const view v = from(s->v, k->t0);
    const int64_t c = k->c, P = s->P;
    bool finite = true;
    for (int64_t j = 0; j < c; j++) {
        float *row = s->clean + j * P;
        bool ok = true;
        tn_strided_load(v, j, P, row);
        for (int64_t p = 0; p < P; p++) ok &= is_finite(row[p]);
        for (int64_t p = 0; !ok && p < P; p++) row[p] = is_finite(row[p]) ? row[p] : 0;
        finite &= ok;
    }
    tn_strided_multiply(&s->how, c, P, c, tn_strided_dense(s->m, c), tn_strided_dense(s->clean, P), s->x, add,
                        TN_GEMM_A_LOWER);
    if (finite) return;
    for (int64_t j = 0; j < c; j++)
        for (int64_t p = 0; p < P; p++) {
            const float bad = tn_strided_at(v, j, p);
            for (int64_t i = j; !is_finite(bad) && i < c; i++) s->x[i * P + p] += s->m[i * c + j] * bad;
        }
}

static void chunk_forward(const seq *s, const chunk *k)
{
    const view q = from(s->q, k->t0);
    const int64_t c = k->c;
    load_decays(s, k);
    tn_strided_multiply(&s->how, c, c, s->N, q, tn_strided_flipped(from(s->k, k->t0)), s->m, false, TN_GEMM_C_LOWER);
    for (int64_t i = 0; i < c; i++) {
        float *m = s->m + i * c;
        next_row(s, i);
        for (int64_t j = 0; j <= i; j++) m[j] *= (float)s->row[j];
        for (int64_t j = i + 1; j < c; j++) m[j] = 0;
    }
    if (!k->fresh) {
        multiply(s, c, s->P, s->N, q, tn_strided_dense(s->s, s->P), s->x, false);
        scale_rows(s->x, s->lead, c, s->P);
    }
    add_masked(s, k, !k->fresh);
    tn_strided_store_rows(from(s->o, k->t0), c, s->P, s->x);
    carry(s, k, s->s);
}

/* --- backward ---------------------------------------------------------------------------------------------------- */

/* m = M and dp = dL/d(Q K^T); sum_i = sum_j<i dM_ij M_ij - sum_j>i dM_ji M_ji. Both parts see the same rounded numbers,
 * so that what cancels in alpha's gradient cancels exactly. */
static void masks_backward(const seq *s, const chunk *k)
{
    const int64_t c = k->c;
    tn_strided_multiply(&s->how, c, c, s->N, from(s->q, k->t0), tn_strided_flipped(from(s->k, k->t0)), s->m, false,
                        TN_GEMM_C_LOWER);
    tn_strided_multiply(&s->how, c, c, s->P, from(s->d_o, k->t0), tn_strided_flipped(from(s->v, k->t0)), s->dp, false,
                        TN_GEMM_C_LOWER);
    memset(s->sum, 0, sizeof *s->sum * (size_t)c);
    for (int64_t i = 0; i < c; i++) {
        float *restrict m = s->m + i * c, *restrict dp = s->dp + i * c;
        double row = 0;
        next_row(s, i);
        for (int64_t j = 0; j <= i; j++) dp[j] *= (float)s->row[j];
        for (int64_t j = 0; j < i; j++) {
            const double w = (double)dp[j] * (double)m[j];
            row += w;
            s->sum[j] -= w;
        }
        s->sum[i] += row;
        for (int64_t j = 0; j <= i; j++) m[j] *= (float)s->row[j];
        for (int64_t j = i + 1; j < c; j++) m[j] = dp[j] = 0;
    }
}

static double dot_row(view a, int64_t i, const float *x, int64_t n)
{
    double d = 0;
    for (int64_t j = 0; j < n; j++) d += (double)tn_strided_at(a, i, j) * (double)x[j];
    return d;
}

/* dq, and into `sum` what the state read by token i gives to alpha_t, t <= i. */
static void q_backward(const seq *s, const chunk *k)
{
    const int64_t c = k->c, N = s->N;
    if (!k->fresh) {
        multiply(s, c, N, s->P, from(s->d_o, k->t0), tn_strided_flipped(tn_strided_dense(k->s0, s->P)), s->x, false);
        scale_rows(s->x, s->lead, c, N);
        for (int64_t i = 0; i < c; i++) s->sum[i] += dot_row(from(s->q, k->t0), i, s->x + i * N, N);
    }
    if (!s->dq.data) return;
    tn_strided_multiply(&s->how, c, N, c, tn_strided_dense(s->dp, c), from(s->k, k->t0), s->x, !k->fresh,
                        TN_GEMM_A_LOWER);
    tn_strided_store_rows(from(s->dq, k->t0), c, N, s->x);
}

/* dk, and into `row` what token j leaves in the state for alpha_t, t > j. */
static void k_backward(const seq *s, const chunk *k)
{
    const int64_t c = k->c, N = s->N;
    multiply(s, c, N, s->P, from(s->v, k->t0), tn_strided_flipped(tn_strided_dense(s->g, s->P)), s->x, false);
    scale_rows(s->x, s->tail, c, N);
    for (int64_t j = 0; s->dalpha.data && j < c; j++) s->row[j] = dot_row(from(s->k, k->t0), j, s->x + j * N, N);
    if (!s->dk.data) return;
    tn_strided_multiply(&s->how, c, N, c, tn_strided_flipped(tn_strided_dense(s->dp, c)), from(s->q, k->t0), s->x, true,
                        TN_GEMM_A_UPPER);
    tn_strided_store_rows(from(s->dk, k->t0), c, N, s->x);
}

static void v_backward(const seq *s, const chunk *k)
{
    const int64_t c = k->c;
    multiply(s, c, s->P, s->N, from(s->k, k->t0), tn_strided_dense(s->g, s->P), s->x, false);
    scale_rows(s->x, s->tail, c, s->P);
    tn_strided_multiply(&s->how, c, s->P, c, tn_strided_flipped(tn_strided_dense(s->m, c)), from(s->d_o, k->t0), s->x,
                        true, TN_GEMM_A_UPPER);
    tn_strided_store_rows(from(s->dv, k->t0), c, s->P, s->x);
}

/* alpha_t decays everything that passes from before t to t or after it: pairs inside the chunk and reads of S0 (sum, by
 * the later token), writes to S1 (row, by the earlier token), and S0 passing through. */
static void alpha_backward(const seq *s, const chunk *k)
{
    double through = 0, later = 0;
    for (int64_t i = 0; !k->fresh && i < s->N * s->P; i++) through += (double)k->s0[i] * (double)s->g[i];
    through *= s->lead[k->c - 1];
    for (int64_t t = 0; t < k->c; t++) {
        const double here = s->row[t];
        s->row[t] = through;
        through += here;
    }
    for (int64_t t = k->c; t-- > 0;) {
        later += s->sum[t];
        const float d = t || !k->fresh ? (float)(later + s->row[t]) : 0;
        tn_strided_store(s->dalpha, k->t0 + t, 1, &d);
    }
}

static void chunk_backward(const seq *s, const chunk *k)
{
    const int64_t size = s->N * s->P;
    load_decays(s, k);
    if (s->dq.data || s->dk.data || s->dv.data || s->dalpha.data) masks_backward(s, k);
    if (s->dv.data) v_backward(s, k);
    if (s->dq.data || s->dalpha.data) q_backward(s, k);
    if (s->dk.data || s->dalpha.data) k_backward(s, k);
    if (s->dalpha.data) alpha_backward(s, k);
    if (k->fresh) {
        memset(s->g, 0, sizeof *s->g * (size_t)size);
        return;
    }
    const float all = (float)s->lead[k->c - 1];
    load_scaled(from(s->q, k->t0), s->lead, k->c, s->N, s->scaled);
    for (int64_t i = 0; i < size; i++) s->g[i] *= all;
    multiply(s, s->N, s->P, k->c, tn_strided_flipped(tn_strided_dense(s->scaled, s->N)), from(s->d_o, k->t0), s->g,
             true);
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
    const int64_t most[4][2] = { { z->C, z->C }, { z->C, z->P }, { z->C, z->N }, { z->N, z->P } };
    return tn_strided_work(most, 4);
}

/* Lays a walk's memory out from `base` (NULL: measures alone); returns its size. */
static size_t lay_out(const shape *z, bool backward, void *base, walk *w)
{
    size_t used = 0;
    const int64_t C = z->C, N = z->N, P = z->P, wide = N > P ? N : P;
    const size_t f = sizeof(float), d = sizeof(double);
    seq *s = &w->s;
    *w = (walk){ .s = { .N = N, .P = P, .how = z->how } };
    s->s = tn_carve(base, &used, (size_t)(N * P) * f);
    s->x = tn_carve(base, &used, (size_t)(C * wide) * f);
    s->clean = tn_carve(base, &used, (size_t)(C * P) * f);
    if (!z->steps) {
        s->m = tn_carve(base, &used, (size_t)(C * C) * f);
        s->scaled = tn_carve(base, &used, (size_t)(C * N) * f);
        s->decay = tn_carve(base, &used, (size_t)C * d);
        s->lead = tn_carve(base, &used, (size_t)C * d);
        s->tail = tn_carve(base, &used, (size_t)C * d);
        s->row = tn_carve(base, &used, (size_t)C * d);
        s->how.work = tn_carve(base, &used, z->gemm_bytes);
    }
    if (backward) {
        s->g = tn_carve(base, &used, (size_t)(N * P) * f);
        w->starts = tn_carve(base, &used, (size_t)(z->T + 1) * sizeof *w->starts);
        w->states = tn_carve(base, &used, (size_t)((z->T / C + 1) * N * P) * f);
        w->zero = tn_carve(base, &used, (size_t)P * f);
        if (z->steps) {
            s->token = tn_carve(base, &used, (size_t)(P + 2 * N) * f);
            s->history = tn_carve(base, &used, (size_t)(C * N * P) * f);
        } else {
            s->dp = tn_carve(base, &used, (size_t)(C * C) * f);
            s->sum = tn_carve(base, &used, (size_t)C * d);
        }
    }
    return used;
}

static shape shape_of(tn_dims q, tn_dims v, const tn_outer_attr *a, tn_strided_products how)
{
    shape z = { .how = how };
    z.B = q.dim[0], z.T = q.dim[1], z.H = q.dim[2], z.N = q.dim[3], z.P = v.dim[3];
    z.C = z.T < 1 ? 1 : z.T < a->chunk ? z.T : a->chunk;
    z.steps = a->steps || z.T <= TN_OUTER_FEW;
    z.gemm_bytes = z.steps ? 0 : gemm_bytes(&z);
    return z;
}

TN_LEVELED(size_t, tn_outer_work_cpu, (const tn_sig *s, bool backward), (s, backward))
{
    const tn_strided_products how = { .round = s->round, .bf16x3 = s->bf16x3, .portable = s->portable };
    const shape z = shape_of(s->in[TN_OUTER_Q].dims, s->in[TN_OUTER_V].dims, s->attr, how);
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
static chunk next_chunk(const job *j, int64_t b, int64_t t)
{
    const tn_arg *reset = &j->c->in[TN_OUTER_RESET];
    chunk k = { .t0 = t,
                .c = 1,
                .fresh = tn_state_is_reset(reset, b, t) || (t == 0 && j->c->in[TN_OUTER_STATE].dims.rank == 0) };
    while (k.c < j->z.C && t + k.c < j->z.T && !tn_state_is_reset(reset, b, t + k.c)) k.c++;
    return k;
}

static void walk_forward(const job *j, walk *w, int64_t b, int64_t h)
{
    const tn_call *c = j->c;
    seq *s = &w->s;
    s->q = tn_strided_head(&c->in[TN_OUTER_Q], b, h, false);
    s->k = tn_strided_head(&c->in[TN_OUTER_K], b, h, false);
    s->v = tn_strided_head(&c->in[TN_OUTER_V], b, h, false);
    s->alpha = tn_strided_head(&c->in[TN_OUTER_ALPHA], b, h, false);
    s->o = tn_strided_head(&c->out[0], b, h, false);
    tn_strided_load_rows(tn_strided_state(&c->in[TN_OUTER_STATE], b, h, false), s->N, s->P, s->s);
    for (int64_t t = 0; t < j->z.T;) {
        const chunk k = next_chunk(j, b, t);
        if (j->z.steps) tn_outer_steps_forward(s, &k);
        else chunk_forward(s, &k);
        t += k.c;
    }
    tn_strided_store_rows(tn_strided_state(&c->out[1], b, h, false), s->N, s->P, s->s);
}

/* Finds where chunks begin; computes the states before them if a gradient needs them. */
static int64_t recompute_states(const job *j, walk *w, int64_t b, int64_t h, bool wanted)
{
    seq *s = &w->s;
    int64_t n = 0, kept = 0;
    if (wanted) tn_strided_load_rows(tn_strided_state(&j->c->in[TN_OUTER_STATE], b, h, false), s->N, s->P, s->s);
    for (int64_t t = 0; t < j->z.T;) {
        const chunk k = next_chunk(j, b, t);
        w->starts[n++] = t;
        t += k.c;
        if (!wanted) continue;
        if (!k.fresh) memcpy(w->states + kept++ * s->N * s->P, s->s, sizeof(float) * (size_t)(s->N * s->P));
        if (j->z.steps) {
            tn_outer_steps_forward(s, &k);
        } else {
            load_decays(s, &k);
            carry(s, &k, s->s);
        }
    }
    return n;
}

static void walk_backward(const job *j, walk *w, int64_t b, int64_t h)
{
    const tn_call *c = j->c;
    seq *s = &w->s;
    s->q = tn_strided_head(&c->in[TN_OUTER_Q], b, h, false);
    s->k = tn_strided_head(&c->in[TN_OUTER_K], b, h, false);
    s->v = tn_strided_head(&c->in[TN_OUTER_V], b, h, false);
    s->alpha = tn_strided_head(&c->in[TN_OUTER_ALPHA], b, h, false);
    s->dq = tn_strided_head(&c->din[TN_OUTER_Q], b, h, c->accumulate >> TN_OUTER_Q & 1);
    s->dk = tn_strided_head(&c->din[TN_OUTER_K], b, h, c->accumulate >> TN_OUTER_K & 1);
    s->dv = tn_strided_head(&c->din[TN_OUTER_V], b, h, c->accumulate >> TN_OUTER_V & 1);
    s->dalpha = tn_strided_head(&c->din[TN_OUTER_ALPHA], b, h, c->accumulate >> TN_OUTER_ALPHA & 1);
    s->d_o = tn_strided_head(&c->dout[0], b, h, false);
    memset(w->zero, 0, sizeof *w->zero * (size_t)s->P);
    if (!s->d_o.data) s->d_o = (view){ w->zero, 0, 1, false };
    tn_strided_load_rows(tn_strided_state(&c->dout[1], b, h, false), s->N, s->P, s->g);

    const bool states = s->dq.data || s->dalpha.data;
    const int64_t n = recompute_states(j, w, b, h, states);
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++) kept += !next_chunk(j, b, w->starts[i]).fresh;
    for (int64_t i = n; i-- > 0;) {
        chunk k = next_chunk(j, b, w->starts[i]);
        if (!k.fresh) kept--;
        k.s0 = k.fresh || !states ? NULL : w->states + kept * s->N * s->P;
        if (j->z.steps) tn_outer_steps_backward(s, &k);
        else chunk_backward(s, &k);
    }
    tn_strided_store_rows(tn_strided_state(&c->din[TN_OUTER_STATE], b, h, c->accumulate >> TN_OUTER_STATE & 1), s->N,
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
    j.z = shape_of(c->in[TN_OUTER_Q].dims, c->in[TN_OUTER_V].dims, c->attr, how);
    tn_slots_run(c->pool, j.z.B * j.z.H, walk_head, &j, c->work, lay_out(&j.z, backward, NULL, &w));
    return TN_OK;
}

TN_LEVELED_KERNEL(tn_outer_forward_cpu) { return run(c, false); }

TN_LEVELED_KERNEL(tn_outer_backward_cpu) { return run(c, true); }
