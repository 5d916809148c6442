/* Helpers for CPU kernels of losses over rows of logits: a vectorisable exp, online logsumexp, softmax rows, and
 * labels with weights. All sums have a fixed order: 16 lanes within a chunk, chunks in order, in double where many add
 * up. Nothing here knows of threads; kernels call these from tiles. */
#ifndef TN_OPS_LOGITS_H
#define TN_OPS_LOGITS_H

#include "backend/cpu/vmath.h"
#include "base/status.h"
#include "ops/slots.h"

#include <tenon/op.h>

#include <math.h>
#include <string.h>

enum { TN_LANES = 16, TN_LOGIT_BLOCK = 2048 }; /* both are part of the numerical definition */

static inline int64_t tn_least(int64_t a, int64_t b) { return a < b ? a : b; }

static inline int64_t tn_last_dim(tn_dims d) { return d.dim[d.rank - 1]; }

/* Rows of x (...,d). */
static inline int64_t tn_row_count(tn_dims d)
{
    d.rank--;
    return tn_dims_count(d);
}

/* --- exp ---------------------------------------------------------------------------------------------------------- */

/* e^x within 2 ulp for x <= 88: softmax never asks for more, and so this is a third faster than tn_v_exp. 0 below -87.3
 * (no subnormal results), NaN for NaN and for +infinity. The polynomial interpolates (e^r - 1 - r)/r^2 at Chebyshev
 * nodes of |r| <= ln2/2 (relative error 9e-9). */
static inline float tn_logit_exp(float x)
{
    uint32_t n;
    const float r = tn_v_reduce(x, &n);
    float q = 1.35233406e-3f;
    q = q * r + 8.36323288e-3f;
    q = q * r + 4.16726157e-2f;
    q = q * r + 1.66665767e-1f;
    q = q * r + 4.99999818e-1f;
    const float y = (1.f + (r + r * r * q)) * tn_v_power2(n);
    return x < -87.3f ? 0.f : y;
}

/* --- rows: x (n) contiguous --------------------------------------------------------------------------------------- */

/* Largest element, NaNs passed over; -infinity for none. */
static inline float tn_row_max(const float *x, int64_t n)
{
    float lane[TN_LANES], m = -INFINITY;
    int64_t i = 0;
    for (int l = 0; l < TN_LANES; l++) lane[l] = -INFINITY;
    for (; i + TN_LANES <= n; i += TN_LANES)
        for (int l = 0; l < TN_LANES; l++) lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
    for (int l = 0; l < TN_LANES; l++) m = lane[l] > m ? lane[l] : m;
    for (; i < n; i++) m = x[i] > m ? x[i] : m;
    return m;
}

/* Sum of exp(scale (x - shift)). n <= TN_LOGIT_BLOCK keeps the f32 lanes accurate. */
static inline float tn_row_exp_sum(const float *x, int64_t n, float scale, float shift)
{
    float lane[TN_LANES] = { 0 }, sum = 0;
    int64_t i = 0;
    for (; i + TN_LANES <= n; i += TN_LANES)
        for (int l = 0; l < TN_LANES; l++) lane[l] += tn_logit_exp(scale * (x[i + l] - shift));
    for (int l = 0; l < TN_LANES; l++) sum += lane[l];
    for (; i < n; i++) sum += tn_logit_exp(scale * (x[i] - shift));
    return sum;
}

/* log sum exp(scale x) of a row that comes in pieces. Start from { -INFINITY, 0 }. */
typedef struct tn_lse {
    float max;  /* of x, unscaled */
    double sum; /* of exp(scale (x - max)) */
} tn_lse;

/* Infinity has no distance from itself: a row of -inf alone is shifted by 0, and its lse is -inf. */
static inline float tn_lse_shift(const tn_lse *s) { return s->max == -INFINITY ? 0.f : s->max; }

static inline void tn_lse_add(tn_lse *s, const float *x, int64_t n, float scale)
{
    for (int64_t i = 0; i < n; i += TN_LOGIT_BLOCK) {
        const int64_t k = tn_least(n - i, TN_LOGIT_BLOCK);
        const float m = tn_row_max(x + i, k);
        if (m > s->max) {
            s->sum *= (double)tn_logit_exp(scale * (s->max - m));
            s->max = m;
        }
        s->sum += (double)tn_row_exp_sum(x + i, k, scale, tn_lse_shift(s));
    }
}

static inline float tn_lse_value(const tn_lse *s, float scale)
{
    return (float)((double)tn_lse_shift(s) * (double)scale + log(s->sum));
}

/* --- pieces ------------------------------------------------------------------------------------------------------- */

/* A piece of logits = x w^T + bias, and its gradients in place. */
typedef struct tn_logits {
    int64_t rows, columns, d;
    float *at; /* (rows,columns), rows `apart` numbers apart */
    int64_t apart;
    const float *x; /* (rows,d) */
    const void *w;  /* (columns,d) */
    tn_dtype w_type;
    const float *bias; /* (columns) or NULL */
    void *gemm;        /* workspace of the products */
} tn_logits;

void tn_logits_make(const tn_call *c, const tn_logits *l);
void tn_logits_dx(const tn_call *c, const tn_logits *l, float *dx, bool add); /* (rows,d) (+)= at w */
void tn_logits_dw(const tn_call *c, const tn_logits *l, float *dw, bool add); /* (columns,d) (+)= at^T x */
/* Workspace of these products, for pieces of at most tile rows and block classes. */
size_t tn_logits_work(int64_t tile, int64_t block, int64_t d, bool backward, int threads);
/* Rows of a tile: `asked`, or (0) as many as have their logits in `kept` bytes, from 32 to 256. kept 0: only a block's logits exist. */
int64_t tn_logits_tile(int64_t asked, int64_t classes, int64_t kept);

/* --- labels ------------------------------------------------------------------------------------------------------- */

/* The labels of n tokens, each with a weight. Those equal to `ignore` do not count, and neither does their weight. */
typedef struct tn_labels {
    const int32_t *label; /* (n) or NULL: all count */
    const float *weight;  /* (n) or NULL: 1 each */
    int64_t n, classes;
    int32_t ignore;
} tn_labels;

static inline bool tn_label_counts(const tn_labels *l, int64_t i) { return !l->label || l->label[i] != l->ignore; }

static inline float tn_label_weight(const tn_labels *l, int64_t i) { return l->weight ? l->weight[i] : 1.f; }

/* x (...,d), labels i32 (...), weights float (...) or absent. */
tn_status tn_labels_infer(const tn_type *x, const tn_type *labels, const tn_type *weights);
/* TN_USAGE, naming the first label that counts and is not in [0, classes). */
tn_status tn_labels_check(const tn_labels *l);
/* What the sum over tokens is multiplied by: 1, or 1 / (sum of the weights that count); 0 when none counts. */
double tn_labels_scale(const tn_labels *l, bool sum);
/* Gathers the next rows of x (...,d) that count, from *at on, as f32 into to (most,d); index (most): which they are. Returns how
 * many, 0 behind the last. */
int64_t tn_labels_gather(const tn_labels *l, const tn_arg *x, int64_t d, int64_t most, int64_t *at, float *to,
                         int64_t *index);
/* dx[index[r]] += from[r] for rows (rows,d). */
void tn_rows_scatter(float *dx, const float *from, const int64_t *index, int64_t rows, int64_t d);
/* Gradient of the loss by the weights, into (or onto) d (n). nll, lse (n): what the forward pass left; dy: incoming. */
void tn_labels_backward(const tn_labels *l, bool sum, double z, const float *nll, const float *lse, float loss,
                        float dy, float *d, bool add);

/* --- divergences: loss = T^2 mean by weight of KL ------------------------------------------------------------------ */

/* Temperature, labels and weights of rows of x; labels that are absent: all count. *rows: the axes of labels. */
tn_status tn_kl_infer(float temperature, const tn_type *x, const tn_type *labels, const tn_type *weights,
                      tn_dims *rows);
/* w: a head for rows of x; name, of: for errors. */
tn_status tn_kl_head_infer(const tn_type *x, const tn_type *w, const char *name, const char *of);
/* Of a loss with KL and two logsumexps of each row. */
void tn_kl_outputs(tn_sig *s, tn_dims rows);
/* out[0] from the sum of weight KL. */
void tn_kl_loss(const tn_call *c, const tn_labels *l, float temperature, double sum);
/* dloss/dw_r = (T^2 KL_r - loss) / sum w, into or onto din[slot], from out[0] and out[1]. */
void tn_kl_weights(const tn_call *c, const tn_labels *l, float temperature, double dy, int slot);

/* --- small things shared by the losses ---------------------------------------------------------------------------- */

/* Axes of `weights` must be the first axes of x, up to `most` of them. */
tn_status tn_weights_infer(const tn_type *x, const tn_type *weights, int most);
/* Sum of n weights, in order; n when w is NULL. */
double tn_weights_sum(const float *w, int64_t n);
/* Zeroes what is alive of d from element `from` on: rows that another input's live count leaves out. */
void tn_zero_from(const tn_arg *d, int64_t from);

#endif
