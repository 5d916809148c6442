/* delta on the CPU: a chunk forwards (delta_cpu.h has the formulas). The two triangles A and M are made pair by pair, since
 * decays differ from row to row of the state; w by forward substitution; what meets the state, by matrix products.
 * Invariant: row i is computed in an order that depends on i alone, from tokens up to i. */
#include "backend/cpu/level.h"
#include "ops/delta/delta_cpu.h"
#include "ops/delta/delta_rows.h"

#include <math.h>
#include <string.h>

typedef tn_strided view;
typedef tn_delta_seq seq;
typedef tn_delta_chunk chunk;

/* e^{alpha} of token t for every row of the state. */
static void load_decay(const seq *s, int64_t t, float *restrict x)
{
    if (!s->by_row) {
        const float decay = (float)exp((double)tn_strided_at(s->alpha, t, 0));
        for (int64_t n = 0; n < s->N; n++) x[n] = tn_delta_damp_one(decay);
        return;
    }
    tn_strided_load(s->alpha, t, s->N, x);
    for (int64_t n = 0; n < s->N; n++) x[n] = tn_delta_damp_one(tn_v_exp(x[n]));
}

static void multiply_rows(const float *restrict a, const float *restrict b, float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = a[i] * b[i];
}

/* Inputs of the chunk, and Gamma (else 0) with what it is multiplied with where there is a state to be read. */
static void load(const seq *s, const chunk *k)
{
    const int64_t c = k->c, N = s->N;
    for (int64_t i = 0; i < c; i++) {
        float *restrict lead = s->lead + i * N;
        tn_strided_load(s->k, k->t0 + i, N, s->raw + i * N);
        tn_strided_load(s->q, k->t0 + i, N, s->raw + (c + i) * N);
        load_decay(s, k->t0 + i, s->decay + i * N);
        s->beta_row[i] = tn_strided_at(s->beta, k->t0 + i, 0);
        if (k->fresh) {
            memset(lead, 0, sizeof *lead * (size_t)N);
            continue;
        }
        memcpy(lead, s->decay + i * N, sizeof *lead * (size_t)N);
        for (int64_t n = 0; i && n < N; n++) lead[n] = tn_delta_damp_one(lead[n - N] * lead[n]);
        multiply_rows(s->raw + i * N, lead, s->led + i * N, N);
        multiply_rows(s->raw + (c + i) * N, lead, s->led + (c + i) * N, N);
    }
}

/* The earlier key `out` passes the decay of token i; what the later one's key and query say to it. */
static inline void meet(const float *key, const float *query, const float *decay, float *out, int64_t N, float *a,
                        float *m)
{
    tn_vec keys[TN_VECS] = { 0 }, queries[TN_VECS] = { 0 };
    int64_t n = 0;
    for (; n + TN_LANES <= N; n += TN_LANES)
        for (int v = 0; v < TN_VECS; v++) {
            const int64_t at = n + v * TN_VEC;
            const tn_vec x = tn_delta_damp(tn_vec_get(out + at) * tn_vec_get(decay + at));
            tn_vec_put(out + at, x);
            keys[v] = tn_vec_get(key + at) * x + keys[v];
            queries[v] = tn_vec_get(query + at) * x + queries[v];
        }
    *a = tn_lanes_fold(keys), *m = tn_lanes_fold(queries);
    for (; n < N; n++) {
        out[n] = tn_delta_damp_one(out[n] * decay[n]);
        *a += key[n] * out[n];
        *m += query[n] * out[n];
    }
}

TN_LEVELED(void, tn_delta_chunk_prepare, (const seq *s, const chunk *k), (s, k))
{
    const int64_t c = k->c, N = s->N, C = s->C;
    load(s, k);
    for (int64_t i = 0; i < c; i++) {
        const float *key = s->raw + i * N, *query = s->raw + (c + i) * N, *decay = s->decay + i * N;
        for (int64_t j = 0; j < i; j++) meet(key, query, decay, s->out + j * N, N, &s->a[i * C + j], &s->m[i * C + j]);
        memcpy(s->out + i * N, key, sizeof *key * (size_t)N);
        s->m[i * C + i] = tn_delta_dot(query, key, N);
    }
}

/* u_i, w_i and o_i of one token after the other. */
static void solve(const seq *s, const chunk *k, bool outputs)
{
    const int64_t c = k->c, P = s->P, C = s->C;
    for (int64_t i = 0; i < c; i++) {
        float *restrict u = k->u + i * P, *restrict w = k->w + i * P;
        float *restrict o = s->read + (c + i) * P;
        tn_strided_load(s->v, k->t0 + i, P, u);
        for (int64_t p = 0; !k->fresh && p < P; p++) u[p] -= s->read[i * P + p];
        tn_delta_add_rows(u, -1, s->a + i * C, 1, k->w, i, P);
        for (int64_t p = 0; p < P; p++) w[p] = s->beta_row[i] * u[p];
        if (!outputs) continue;
        if (k->fresh) memset(o, 0, sizeof *o * (size_t)P);
        tn_delta_add_rows(o, 1, s->m + i * C, 1, k->w, i + 1, P);
        tn_strided_store(s->o, k->t0 + i, P, o);
    }
}

TN_LEVELED(void, tn_delta_chunk_forward, (const seq *s, const chunk *k, bool outputs), (s, k, outputs))
{
    const int64_t c = k->c, N = s->N, P = s->P;
    if (!k->fresh)
        tn_strided_multiply(&s->how, outputs ? 2 * c : c, P, N, tn_strided_dense(s->led, N), tn_strided_dense(s->s, P),
                            s->read, false, TN_GEMM_WHOLE);
    solve(s, k, outputs);
    for (int64_t n = 0; !k->fresh && n < N; n++) {
        const float all = s->lead[(c - 1) * N + n];
        float *restrict state = s->s + n * P;
        for (int64_t p = 0; p < P; p++) state[p] *= all;
    }
    tn_strided_multiply(&s->how, N, P, c, tn_strided_flipped(tn_strided_dense(s->out, N)), tn_strided_dense(k->w, P),
                        s->s, !k->fresh, TN_GEMM_WHOLE);
}
