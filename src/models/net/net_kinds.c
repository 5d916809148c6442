/* The five networks. */
#include "models/net/net.h"

#include <math.h>
#include <stdio.h>

static const float HIDDEN = 1.41421356f; /* gain before a gelu */

static bool surface(const net *n) { return n->c->classes == 0; }

static net_affine layer(const net *n, int64_t l, int64_t out, int64_t in, float gain)
{
    char name[32];
    snprintf(name, sizeof name, "layer%lld", (long long)l);
    return net_affine_make(n->g, name, out, in, gain);
}

static tn_ref drop(const net *n, tn_ref x) { return tn_dropout(n->g, x, n->c->dropout); }

static tn_ref out(const net *n, tn_ref x, int64_t width)
{
    const net_affine p = net_affine_make(n->g, "out", width, tn_ref_dim(n->g, x, -1), 1);
    return tn_linear(n->g, x, p.w, .bias = p.b);
}

/* --- all cells with each other ---------------------------------------------------------------------------------------- */

/* With a width it is still linear, in two factors of that rank: its number of parameters can then be chosen. */
static tn_ref linear(const net *n, tn_ref x)
{
    if (n->c->dim)
        x = tn_linear(n->g, x,
                      tn_param(n->g, "factor.w", tn_shape(n->c->dim, n->c->cells),
                               tn_normal(1 / sqrtf((float)n->c->cells))));
    return surface(n) ? out(n, x, n->c->cells) : x;
}

static tn_ref hidden_layers(const net *n, tn_ref x, int64_t from)
{
    for (int64_t l = from; l < n->c->layers; l++) {
        const net_affine p = layer(n, l, n->c->dim, tn_ref_dim(n->g, x, -1), HIDDEN);
        x = drop(n, tn_linear(n->g, x, p.w, .bias = p.b, .act = TN_ACT_GELU));
    }
    return x;
}

static tn_ref mlp(const net *n, tn_ref x)
{
    const tn_ref h = hidden_layers(n, x, 0);
    return surface(n) ? out(n, h, n->c->cells) : h;
}

/* --- each cell by itself ---------------------------------------------------------------------------------------------- */

/* (S,2): u, v in [-1,1] of cell y W + x; p[0] is W. */
static void fill_places(float *x, tn_dims dims, float (*uniform)(const void *ctx, uint64_t i), const void *ctx,
                        const float *p)
{
    const int64_t W = (int64_t)p[0], S = dims.dim[0], H = S / W;
    (void)uniform, (void)ctx;
    for (int64_t c = 0; c < S; c++) {
        x[2 * c] = W > 1 ? 2.f * (float)(c % W) / (float)(W - 1) - 1 : 0;
        x[2 * c + 1] = H > 1 ? 2.f * (float)(c / W) / (float)(H - 1) - 1 : 0;
    }
}

/* The first layer reads (value, u, v); what it makes of the place is the same for all samples. */
static tn_ref cell_mlp(const net *n, tn_ref x)
{
    tn_graph *g = n->g;
    const int64_t S = n->c->cells;
    const tn_init at = { .kind = TN_INIT_CALL, .fill = fill_places, .p = { (float)n->c->width } };
    const net_affine first = layer(n, 0, n->c->dim, 3, HIDDEN);
    const tn_ref places = tn_frozen(g, "places", tn_shape(S, 2), TN_F32, at);
    const tn_ref by_value = tn_linear(g, tn_reshape(g, x, tn_shape(n->batch, S, 1)), tn_slice(g, first.w, 1, 0, 1));
    const tn_ref by_place = tn_linear(g, places, tn_slice(g, first.w, 1, 1, 2), .bias = first.b);
    const tn_ref h = hidden_layers(n, drop(n, tn_gelu(g, tn_add(g, by_value, by_place))), 1);
    return tn_reshape(g, out(n, h, 1), tn_shape(n->batch, S));
}

/* --- neighbours ------------------------------------------------------------------------------------------------------- */

enum { TAPS = 3 };

static tn_ref convolve(const net *n, const char *scope, tn_ref x, int64_t channels, int64_t stride, float gain)
{
    tn_graph *g = n->g;
    const int64_t from = tn_ref_dim(g, x, 1);
    const net_affine p = net_affine_make(g, scope, channels, from * TAPS * TAPS, gain);
    return tn_conv2d(g, x, tn_reshape(g, p.w, tn_shape(channels, from, TAPS, TAPS)), .bias = p.b, .stride = stride,
                     .pad = TAPS / 2);
}

/* For classes, every layer but the first halves the sides. */
static tn_ref conv(const net *n, tn_ref x)
{
    tn_graph *g = n->g;
    tn_ref y = tn_reshape(g, x, tn_shape(n->batch, 1, n->c->height, n->c->width));
    for (int64_t l = 0; l < n->c->layers; l++) {
        char name[32];
        snprintf(name, sizeof name, "layer%lld", (long long)l);
        y = drop(n, tn_gelu(g, convolve(n, name, y, n->c->dim, l && !surface(n) ? 2 : 1, HIDDEN)));
    }
    if (surface(n)) y = convolve(n, "out", y, 1, 1, 1);
    return tn_reshape(g, y, tn_shape(n->batch, tn_dims_count(tn_ref_dims(g, y)) / n->batch));
}

/* --- patches ---------------------------------------------------------------------------------------------------------- */

/* (B, rows, p, columns, p) and (B, rows, columns, p, p) are made of each other by the same exchange of axes. */
static tn_ref exchange(const net *n, tn_ref x, tn_dims from, tn_dims to)
{
    tn_graph *g = n->g;
    return tn_reshape(g, tn_copy(g, tn_transpose(g, tn_reshape(g, x, from), 0, 1, 3, 2, 4)), to);
}

static tn_ref transformer_layer(const net *n, tn_ref x, int64_t tokens)
{
    tn_graph *g = n->g;
    const net_config *c = n->c;
    const float std = 0.02f / sqrtf(2.f * (float)c->layers);
    const tn_batch b = { .size = sizeof b, .batch = n->batch, .length = tokens };
    const tn_block_heads h = {
        .heads = c->heads, .kv_heads = c->heads, .qkv_bias = true, .out_bias = true, .out_std = std, .both_ways = true
    };
    tn_region r = tn_region_begin(g, "attn");
    const tn_ref y = tn_block_attention(g, tn_block_layernorm(g, x, "norm", 0), &h, &b);
    tn_region_end(g, r);
    x = tn_add(g, x, drop(n, y));
    r = tn_region_begin(g, "ffn");
    const tn_ref z = tn_block_mlp(g, tn_block_layernorm(g, x, "norm", 0), c->ffn, TN_ACT_GELU, std);
    tn_region_end(g, r);
    return tn_add(g, x, drop(n, z));
}

static tn_ref patches(const net *n, tn_ref x)
{
    tn_graph *g = n->g;
    const net_config *c = n->c;
    const int64_t B = n->batch, p = c->patch, rows = c->height / p, columns = c->width / p, P = rows * columns;
    const net_affine e = net_affine_make(g, "embed", c->dim, p * p, 1);
    const tn_ref cut = exchange(n, x, tn_shape(B, rows, p, columns, p), tn_shape(B, P, p * p));
    tn_ref y =
        tn_add(g, tn_linear(g, cut, e.w, .bias = e.b), tn_param(g, "position", tn_shape(P, c->dim), tn_normal(0.02f)));
    for (int64_t l = 0; l < c->layers; l++) {
        tn_region r = tn_segment_begin(g, "layer%d", (int)l);
        y = transformer_layer(n, y, P);
        tn_region_end(g, r);
    }
    y = tn_block_layernorm(g, y, "norm_f", 0);
    if (!surface(n)) return tn_mean(g, y, 1);
    return exchange(n, out(n, y, p * p), tn_shape(B, rows, columns, p, p), tn_shape(B, c->cells));
}

tn_ref net_kind_forward(const net *n, tn_ref x)
{
    static tn_ref (*const kinds[NET_KINDS])(const net *, tn_ref) = {
        [NET_LINEAR] = linear, [NET_MLP] = mlp, [NET_CELL_MLP] = cell_mlp, [NET_CONV] = conv, [NET_PATCHES] = patches
    };
    return kinds[n->c->kind](n, x);
}
