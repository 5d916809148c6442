/* Trained maps between the numbers of a sample and the cells of a surface. They are quadratic in the number of cells: where a sample
 * has as many numbers as the surface has cells, it is the surface as it is.
 *
 *     in:  a1 = LN(gelu(A1 x))  a2 = LN(gelu(A2 a1))  gain tanh(A3 a2) + bias + field      F -> I -> 2S -> S, I = max(384, 2S)
 *     out: a1 = LN(gelu(B1 o))  a2 = LN(gelu(B2 a1))  B3 a2                                k -> 2k -> I -> outputs */
#include "models/flow/flow.h"

#include "base/status.h"

#include <math.h>

static tn_ref dense(tn_graph *g, const char *scope, tn_ref x, int64_t n, tn_act act)
{
    const int64_t k = tn_ref_dim(g, x, -1);
    tn_region r = tn_region_begin(g, "%s", scope);
    const tn_ref w = tn_param(g, "w", tn_shape(n, k), tn_normal(sqrtf(2.f / (float)(n + k))));
    const tn_ref y = tn_linear(g, x, w, .bias = tn_param(g, "b", tn_shape(n), tn_zeros), .act = act);
    tn_region_end(g, r);
    return y;
}

static tn_ref layer(const flow_net *n, const char *scope, const char *norm, tn_ref x, int64_t width, float dropout)
{
    const tn_ref y = tn_block_layernorm(n->g, dense(n->g, scope, x, width, TN_ACT_GELU_ERF), norm, 0);
    return tn_dropout(n->g, y, n->noisy ? dropout : 0);
}

static int64_t inner(int64_t cells) { return 2 * cells > 384 ? 2 * cells : 384; }

tn_ref flow_map_in(const flow_net *n, tn_ref x)
{
    tn_graph *g = n->g;
    const int64_t S = n->c->width * n->c->height;
    tn_region r = tn_region_begin(g, "mapper_in");
    const tn_ref a1 = layer(n, "a1", "norm1", x, inner(S), n->c->mapper_dropout);
    const tn_ref a2 = layer(n, "a2", "norm2", a1, 2 * S, n->c->mapper_dropout / 2);
    const tn_ref m = dense(g, "a3", a2, S, TN_ACT_TANH);
    const tn_ref moved =
        tn_add(g, tn_mul(g, m, tn_param(g, "gain", tn_shape(1), tn_ones)), tn_param(g, "bias", tn_shape(1), tn_zeros));
    const tn_ref y = tn_add(g, moved, tn_param(g, "field", tn_shape(S), tn_normal(0.02f)));
    tn_region_end(g, r);
    return y;
}

tn_ref flow_map_out(const flow_net *n, tn_ref x, int64_t outputs)
{
    tn_graph *g = n->g;
    const int64_t k = tn_ref_dim(g, x, -1);
    tn_region r = tn_region_begin(g, "mapper_out");
    const tn_ref a1 = layer(n, "a1", "norm1", x, 2 * k, n->c->mapper_dropout / 2);
    const tn_ref a2 = layer(n, "a2", "norm2", a1, inner(k), n->c->mapper_dropout);
    const tn_ref y = dense(g, "a3", a2, outputs, TN_ACT_NONE);
    tn_region_end(g, r);
    return y;
}

/* --- what fits ---------------------------------------------------------------------------------------------------------- */

static tn_status fits(const tn_graph *g, const flow_config *c, const char *key, double parameters)
{
    const double copies = tn_graph_get_options(g)->training ? 4 : 1, bytes = 4 * copies * parameters,
                 has = flow_memory(g);
    if (bytes <= has) return TN_OK;
    return tn_error(TN_MEMORY,
                    "%s=trained has %.3g M parameters at width=%lld x height=%lld, which take %.3g GB%s, and %s %.3g "
                    "GB: use %s=identity where data and surface have the same size, or a smaller surface",
                    key, parameters / 1e6, (long long)c->width, (long long)c->height, bytes / 1e9,
                    copies > 1 ? " in training" : "", flow_memory_where(g), has / 1e9, key);
}

tn_status flow_mapper_fits(const tn_graph *g, const flow_config *c)
{
    const double S = (double)(c->width * c->height), k = (double)(flow_cells(c) * c->energy), F = (double)c->inputs;
    const double in = fmax(384, 2 * S), out = fmax(384, 2 * k);
    if (c->map_in) TN_RETURN_IF(fits(g, c, "mapper_in", F * in + in * 2 * S + 2 * S * S));
    return c->map_out ? fits(g, c, "mapper_out", 2 * k * k + 2 * k * out + out * F) : TN_OK;
}
