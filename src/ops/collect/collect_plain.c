/* collect as plain ops: the weights of all columns and of all rows of cells for every landing, and a product of the two per sample.
 *
 *     numerator (H,W) = Ky^T diag(w e) Kx      denominator (H,W) = Ky^T diag(w) Kx      Kx (N,W), Ky (N,H)
 *
 * It takes N (W + H) numbers and N W H multiplications a sample, where the kernels visit four cells a landing. */
#include "ops/binary/binary.h"
#include "ops/collect/collect_place.h"
#include "ops/concat/concat.h"
#include "ops/copy/copy.h"
#include "ops/fill/fill.h"
#include "ops/matmul/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/unary/unary.h"

static const float FAR = 1e30f; /* below any score: its weight is 0 */
static const float STEEP =
    1e20f; /* nearest: 0 or 1, but for a landing exactly between two cells, which is in neither */
static const float LEAST = 1e-37f;

/* 0, 1, ... n - 1. */
static tn_ref numbers(tn_graph *g, int64_t n)
{
    tn_ref x = tn_fill(g, tn_shape(1), TN_F32, 0.f);
    for (int64_t have = 1; have < n; have *= 2) {
        const tn_ref both[] = { x, tn_affine(g, x, 1, (float)have) };
        x = tn_concat(g, both, 2, 0);
    }
    return tn_slice(g, x, 0, 0, n);
}

/* (B,N,n): how much of a landing at `at` (B,N) in [-1,1] goes to each of n cells in a row. */
static tn_ref shares(tn_graph *g, tn_ref at, int64_t n, bool nearest)
{
    const int64_t B = tn_ref_dim(g, at, 0), N = tn_ref_dim(g, at, 1);
    const float half = (float)(n - 1) / 2;
    const tn_ref cell = tn_affine(g, nearest ? tn_stop_gradient(g, at) : at, half, half);
    const tn_ref away = tn_abs(g, tn_sub(g, tn_reshape(g, cell, tn_shape(B, N, 1)), numbers(g, n)));
    if (!nearest) return tn_relu(g, tn_affine(g, away, -1, 1));
    const tn_ref one = tn_fill(g, tn_shape(1), TN_F32, 1.f);
    return tn_minimum(g, tn_relu(g, tn_affine(g, away, -STEEP, STEEP / 2)), one);
}

/* (B,N): 1 where an integer is above 0. */
static tn_ref flags(tn_graph *g, tn_ref integers)
{
    return tn_minimum(g, tn_cast(g, integers, TN_F32), tn_fill(g, tn_shape(1), TN_F32, 1.f));
}

/* exp(s - M) of each landing, 0 of an empty slot. */
static tn_ref weights(tn_graph *g, const tn_collect_attr *a, const tn_ref *in)
{
    const int64_t B = tn_ref_dim(g, in[TN_COLLECT_E], 0), E = tn_ref_dim(g, in[TN_COLLECT_E], 2);
    const tn_ref e = in[TN_COLLECT_E];
    const tn_ref size = E == 1 ? tn_abs(g, tn_reshape(g, e, tn_shape(B, tn_ref_dim(g, e, 1))))
                               : tn_sqrt(g, tn_sum(g, tn_square(g, e), 2));
    const tn_ref older = tn_affine(g, tn_cast(g, in[TN_COLLECT_AGE], TN_F32), a->age_factor, 1);
    tn_ref s = tn_div(g, tn_mul(g, size, older), tn_affine(g, in[TN_COLLECT_D], 1, 1));
    if (in[TN_COLLECT_LANDED].id > 0) s = tn_add(g, s, tn_affine(g, flags(g, in[TN_COLLECT_LANDED]), FAR, -FAR));
    return tn_exp(g, tn_sub(g, s, tn_reshape(g, tn_max(g, s, 1), tn_shape(B, 1))));
}

/* A surface (B,S) of sums over landings: each counts `much` (B,N). */
static tn_ref spread(tn_graph *g, tn_ref much, tn_ref kx, tn_ref ky)
{
    const int64_t B = tn_ref_dim(g, kx, 0), N = tn_ref_dim(g, kx, 1), W = tn_ref_dim(g, kx, 2),
                  H = tn_ref_dim(g, ky, 2);
    const tn_ref scaled = tn_mul(g, ky, tn_reshape(g, much, tn_shape(B, N, 1)));
    return tn_reshape(g, tn_matmul(g, scaled, kx, .transpose_a = true), tn_shape(B, W * H, 1));
}

/* (B,S,E) of the landings that have the weights w. */
static tn_ref surface(tn_graph *g, const tn_collect_attr *a, tn_ref e, tn_ref w, tn_ref kx, tn_ref ky)
{
    const int64_t B = tn_ref_dim(g, e, 0), N = tn_ref_dim(g, e, 1), E = tn_ref_dim(g, e, 2);
    const tn_ref below = tn_affine(g, spread(g, w, kx, ky), 1, a->nearest ? LEAST : a->eps);
    tn_ref part[TN_MAX_ARGS];
    for (int64_t j = 0; j < E; j++) {
        const tn_ref number = tn_reshape(g, tn_copy(g, tn_slice(g, e, 2, j, 1)), tn_shape(B, N));
        part[j] = tn_div(g, spread(g, tn_mul(g, w, number), kx, ky), below);
    }
    return E == 1 ? part[0] : tn_concat(g, part, (int)E, 2);
}

tn_status tn_collect_plain(tn_graph *g, const void *attr, const tn_ref *in, int n_in, tn_ref *out)
{
    (void)n_in;
    const tn_collect_attr *a = attr;
    const tn_ref e = in[TN_COLLECT_E], w = weights(g, a, in);
    const tn_ref kx = shares(g, in[TN_COLLECT_U], a->width, a->nearest),
                 ky = shares(g, in[TN_COLLECT_V], a->height, a->nearest);
    if (!a->beside) {
        out[0] = surface(g, a, e, w, kx, ky);
        return tn_graph_status(g);
    }
    const tn_ref upper = flags(g, in[TN_COLLECT_PLANE]);
    const tn_ref both[] = { surface(g, a, e, tn_mul(g, w, tn_affine(g, upper, -1, 1)), kx, ky),
                            surface(g, a, e, tn_mul(g, w, upper), kx, ky) };
    out[0] = tn_concat(g, both, 2, 1);
    return tn_graph_status(g);
}
