/* delta on the CPU: gradients of a chunk, from the state before it and from dL/dS behind it. With primes for gradients and
 * stacked rows [keys; queries], where B = diag(beta):
 *
 *     Y = (I + B A)^-T (M^T O' + (Gamma_C/Gamma K) S1')     V' = X = B Y     beta'_i = y_i . u_i
 *     [(Gamma K)'; (Gamma Q)'] = [-X; O'] S0^T              [A'; M'] = [-X; O'] W^T
 *     (Gamma_C/Gamma K)' = W S1'^T                          S0' = Gamma_C S1' + [Gamma K; Gamma Q]^T [-X; O']
 *
 * Then pair by pair what A' and M' give to keys, queries and decays. alpha_t decays everything that passes from before t to
 * t or after it: pairs inside the chunk and reads of S0 (by the later token), writes to S1 (by the earlier token), and S0
 * passing through. */
#include "backend/cpu/level.h"
#include "ops/delta/delta_cpu.h"
#include "ops/delta/delta_rows.h"

#include <string.h>

typedef tn_strided view;
typedef tn_delta_seq seq;
typedef tn_delta_chunk chunk;

/* From what is written, dL/dw as the state behind the chunk and outputs ask for it, to X (negated, in `held`), dv and dbeta. */
static void solve_back(const seq *s, const chunk *k)
{
    const int64_t c = k->c, P = s->P, C = s->C;
    const float *d_o = s->held + c * P;
    for (int64_t j = c; j-- > 0;) {
        float *restrict y = s->read + j * P, *restrict held = s->held + j * P;
        tn_delta_add_rows(y, 1, s->m + j * C + j, C, d_o + j * P, c - j, P);
        if (j + 1 < c) tn_delta_add_rows(y, 1, s->a + (j + 1) * C + j, C, held + P, c - j - 1, P);
        if (s->dbeta.data) tn_strided_store(s->dbeta, k->t0 + j, 1, &(float){ tn_delta_dot(y, k->u + j * P, P) });
        for (int64_t p = 0; p < P; p++) y[p] *= s->beta_row[j];
        if (s->dv.data) tn_strided_store(s->dv, k->t0 + j, P, y);
        for (int64_t p = 0; p < P; p++) held[p] = -y[p];
    }
}

/* One pair of tokens, later i and earlier j: `between` passes the decay of token i. */
static inline void part_pair(const float *restrict later_key, const float *restrict later_query,
                             const float *restrict earlier_key, const float *restrict decay, float *restrict between,
                             float da, float dm, float *restrict key_sum, float *restrict query_sum,
                             float *restrict earlier_sum, int64_t N)
{
    for (int64_t n = 0; n < N; n++) {
        const float e = tn_delta_damp_one(between[n] * decay[n]), key = e * earlier_key[n];
        between[n] = e;
        key_sum[n] += da * key;
        query_sum[n] += dm * key;
        earlier_sum[n] += (da * later_key[n] + dm * later_query[n]) * e;
    }
}

static void part_pairs(const seq *s, const chunk *k)
{
    const int64_t c = k->c, N = s->N;
    const float *keys = s->raw, *queries = s->raw + c * N;
    float *by_key = s->sums, *by_query = by_key + c * N, *earlier = by_query + c * N;
    memset(s->sums, 0, sizeof *s->sums * (size_t)(3 * c * N));
    for (int64_t i = 0; i < c; i++) {
        for (int64_t j = 0; j < i; j++)
            part_pair(keys + i * N, queries + i * N, keys + j * N, s->decay + i * N, s->between + j * N,
                      s->pairs[i * c + j], s->pairs[(c + i) * c + j], by_key + i * N, by_query + i * N, earlier + j * N,
                      N);
        for (int64_t n = 0; n < N; n++) s->between[i * N + n] = 1;
    }
}

/* Of token i from all its parts: dq and dk; in place of sums, what a later token has of the decays up to it, and an earlier
 * one of those after it. */
static void part_token(const seq *s, const chunk *k, int64_t i)
{
    const int64_t c = k->c, N = s->N;
    const float *restrict key = s->raw + i * N, *restrict query = s->raw + (c + i) * N;
    const float *restrict lead = s->lead + i * N, *restrict tail = s->between + i * N;
    const float *restrict read_key = s->d_led + i * N, *restrict read_query = s->d_led + (c + i) * N;
    const float same = s->pairs[(c + i) * c + i]; /* dL/dM_ii, which knows no decay */
    float *restrict by_key = s->sums + i * N, *restrict by_query = by_key + c * N, *restrict earlier = by_query + c * N;
    float *restrict dk = s->d_out + i * N, *restrict dq = s->led + (c + i) * N;
    for (int64_t n = 0; n < N; n++) {
        const float later_key = by_key[n] + lead[n] * read_key[n];
        const float later_query = by_query[n] + lead[n] * read_query[n], write = tail[n] * dk[n];
        dq[n] = later_query + same * key[n];
        dk[n] = later_key + earlier[n] + write + same * query[n];
        by_key[n] = query[n] * later_query + key[n] * (later_key - earlier[n]);
        by_query[n] = key[n] * write;
    }
    if (s->dq.data) tn_strided_store(s->dq, k->t0 + i, N, dq);
    if (s->dk.data) tn_strided_store(s->dk, k->t0 + i, N, dk);
}

/* through (N): S0 times dL/dS1 by rows, times all decays. */
static void through_chunk(const seq *s, const chunk *k, double *through)
{
    const int64_t N = s->N, P = s->P;
    for (int64_t n = 0; n < N; n++)
        through[n] =
            k->fresh ? 0 : (double)s->lead[(k->c - 1) * N + n] * (double)tn_delta_dot(k->s0 + n * P, s->g + n * P, P);
}

/* run (N): what passes through on entry. */
static void alpha_backward(const seq *s, const chunk *k)
{
    const int64_t c = k->c, N = s->N;
    double *restrict run = s->run;
    for (int64_t t = 0; t < c; t++) {
        float *restrict write = s->sums + (c + t) * N;
        for (int64_t n = 0; n < N; n++) {
            const double here = (double)write[n];
            write[n] = (float)run[n];
            run[n] += here;
        }
    }
    memset(run, 0, sizeof *run * (size_t)N);
    for (int64_t t = c; t-- > 0;) {
        const float *restrict later = s->sums + t * N, *restrict write = later + c * N;
        float *restrict d = s->between + t * N;
        double all = 0;
        for (int64_t n = 0; n < N; n++) {
            run[n] += (double)later[n];
            d[n] = t || !k->fresh ? (float)(run[n] + (double)write[n]) : 0;
        }
        for (int64_t n = 0; !s->by_row && n < N; n++) all += (double)d[n];
        tn_strided_store(s->dalpha, k->t0 + t, s->by_row ? N : 1, s->by_row ? d : &(float){ (float)all });
    }
}

/* g: from behind the chunk to before it. led: dq has taken the place of its queries. */
static void carry_back(const seq *s, const chunk *k)
{
    const int64_t c = k->c, N = s->N, P = s->P;
    if (k->fresh) {
        memset(s->g, 0, sizeof *s->g * (size_t)(N * P));
        return;
    }
    for (int64_t n = 0; n < N; n++) {
        const float all = s->lead[(c - 1) * N + n];
        float *restrict g = s->g + n * P;
        for (int64_t p = 0; p < P; p++) g[p] *= all;
    }
    tn_strided_multiply(&s->how, N, P, 2 * c, tn_strided_flipped(tn_strided_dense(s->led, N)),
                        tn_strided_dense(s->held, P), s->g, true, TN_GEMM_WHOLE);
}

TN_LEVELED(void, tn_delta_chunk_backward, (const seq *s, const chunk *k), (s, k))
{
    const int64_t c = k->c, N = s->N, P = s->P;
    const view g = tn_strided_dense(s->g, P), held = tn_strided_dense(s->held, P), w = tn_strided_dense(k->w, P);
    for (int64_t i = 0; i < c; i++) tn_strided_load(s->d_o, k->t0 + i, P, s->held + (c + i) * P);
    tn_strided_multiply(&s->how, c, P, N, tn_strided_dense(s->out, N), g, s->read, false, TN_GEMM_WHOLE);
    solve_back(s, k);
    const bool pairs = s->dq.data || s->dk.data || s->dalpha.data;
    if (pairs) {
        tn_strided_multiply(&s->how, 2 * c, c, P, held, tn_strided_flipped(w), s->pairs, false, TN_GEMM_WHOLE);
        if (k->fresh) memset(s->d_led, 0, sizeof *s->d_led * (size_t)(2 * c * N));
        else
            tn_strided_multiply(&s->how, 2 * c, N, P, held, tn_strided_flipped(tn_strided_dense(k->s0, P)), s->d_led,
                                false, TN_GEMM_WHOLE);
        tn_strided_multiply(&s->how, c, N, P, w, tn_strided_flipped(g), s->d_out, false, TN_GEMM_WHOLE);
        part_pairs(s, k);
        through_chunk(s, k, s->run);
    }
    carry_back(s, k);
    for (int64_t i = 0; pairs && i < c; i++) part_token(s, k, i);
    if (s->dalpha.data) alpha_backward(s, k);
}
