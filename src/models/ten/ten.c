/* ten: the Temporal Eigenstate Network. Layers of two kinds in a pattern: D, a gated complex diagonal recurrence, and
 * O, an outer-product state with data-dependent decay. Linear in the length of the context; no attention, no position
 * table. Pre-norm (rms), swiglu, tied head, no biases but those of the gates. */
#include "models/blocks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct ten_config {
    int64_t dim, layers, k, heads, head_dim, ffn, vocab, chunk;
    const char *pattern; /* repeated over the layers */
    float dropout, out_std;
} ten_config;

static const tn_setting settings[] = {
    TN_SETTING_TEXT("pattern", "DO", "kinds of the layers, repeated: D diagonal, O outer-product"),
    TN_SETTING_INT("dim", "256", TN_RANGE(1, 65536), "", "width of the residual stream"),
    TN_SETTING_INT("layers", "4", TN_RANGE(1, 1024), "", "number of layers"),
    TN_SETTING_AUTO_INT("k", "auto", TN_RANGE(1, 65536), "", "complex eigenstates of a D layer (auto: dim/2)"),
    TN_SETTING_AUTO_INT("heads", "auto", TN_RANGE(1, 1024), "", "states of an O layer (auto: dim/64)"),
    TN_SETTING_AUTO_INT("head_dim", "auto", TN_RANGE(1, 1024), "", "rows and columns of a state (auto: dim/heads)"),
    TN_SETTING_AUTO_INT("ffn", "auto", TN_RANGE(1, 1e6), "", "inner width (auto: 5/2 dim)"),
    TN_SETTING_INT("chunk", "64", TN_RANGE(1, 4096), "tokens", "block of the O layers' evaluation; changes no result"),
    TN_SETTING_AUTO_INT("vocab", "auto", TN_RANGE(2, 1e7), "", "tokens of the vocabulary (auto: the data's, 50257 without data)"),
};

static const char *const tiny[] = { "dim=64", "layers=2", "heads=2", "train.context=128", NULL };
static const char *const recall[] = { "pattern=O", NULL };
static const tn_preset presets[] = {
    { "ten_tiny", "a network that trains in a minute on two cores", tiny },
    { "recall", "outer-product layers only: for work that looks things up", recall },
};

static tn_status config_read(const tn_settings *st, ten_config *c)
{
    *c = (ten_config){ .dim = tn_settings_int(st, "dim"), .layers = tn_settings_int(st, "layers"),
                       .k = tn_settings_int(st, "k"), .heads = tn_settings_int(st, "heads"),
                       .head_dim = tn_settings_int(st, "head_dim"), .ffn = tn_settings_int(st, "ffn"),
                       .vocab = tn_settings_int(st, "vocab"), .chunk = tn_settings_int(st, "chunk"),
                       .pattern = tn_settings_text(st, "pattern"),
                       .dropout = (float)tn_settings_float(st, "train.dropout") };
    if (!c->k) c->k = c->dim >= 2 ? c->dim / 2 : 1;
    if (!c->heads) c->heads = c->dim >= 64 ? c->dim / 64 : 1;
    if (!c->head_dim) c->head_dim = c->dim / c->heads;
    if (!c->vocab) c->vocab = 50257;
    if (!c->ffn) c->ffn = (5 * c->dim / 2 + 7) / 8 * 8;
    c->out_std = 0.02f / sqrtf(2.f * (float)c->layers);
    if (!c->pattern[0] || strspn(c->pattern, "DO") != strlen(c->pattern))
        return tn_model_error("pattern=%.40s: a word of D and O, such as DO or DDDO", c->pattern);
    if (c->head_dim < 1) return tn_model_error("heads=%lld is more than dim=%lld", (long long)c->heads, (long long)c->dim);
    return TN_OK;
}

/* --- initial values (ten_quality: ring near the unit circle, slow decays) --------------------------------------------- */

/* nu such that a gate of 1 gives |lambda| = a, a^2 uniform in [0.9^2, 0.999^2]. */
static void init_nu(float *x, tn_dims dims, float (*uniform)(const void *, uint64_t), const void *ctx, const float *p)
{
    (void)p;
    for (int64_t i = 0; i < tn_dims_count(dims); i++) {
        const double a = sqrt((double)uniform(ctx, (uint64_t)i) * (0.999 * 0.999 - 0.81) + 0.81);
        x[i] = (float)log(expm1(-log(a) / 8));
    }
}

/* Half of the eigenstates turn slowly (up to pi/10 a token), half at any speed up to pi. */
static void init_omega(float *x, tn_dims dims, float (*uniform)(const void *, uint64_t), const void *ctx, const float *p)
{
    const int64_t n = tn_dims_count(dims);
    (void)p;
    for (int64_t i = 0; i < n; i++) x[i] = uniform(ctx, (uint64_t)i) * 3.14159265f * (i < n / 2 ? 0.1f : 1.f);
}

/* Decays with time constants log-spaced from 4 to 1024 tokens over the heads; write strengths start at 1/2. */
static void init_decay(float *x, tn_dims dims, float (*uniform)(const void *, uint64_t), const void *ctx, const float *p)
{
    const int64_t heads = tn_dims_count(dims) / 2;
    (void)uniform, (void)ctx, (void)p;
    for (int64_t h = 0; h < heads; h++) {
        const double at = heads > 1 ? (double)h / (double)(heads - 1) : 0;
        const double tau = exp(log(4.0) + at * (log(1024.0) - log(4.0)));
        x[h] = (float)log(expm1(1 / tau));
        x[heads + h] = 0;
    }
}

#define CALL(f) ((tn_init){ .kind = TN_INIT_CALL, .fill = (f) })

/* --- layers ------------------------------------------------------------------------------------------------------------- */

/* D layer: u (B,T,d) is the normalised input; returns the mixer's output (B,T,d).
 *     [x;z] = w_in u, x <- conv4 x, [r;i] = sigmoid(w_ri u + b_ri)
 *     c_t = rho_t e^{i omega} c_{t-1} + gamma_t i_t x_t,  rho_t = exp(-8 r_t softplus(nu)),  gamma_t = sqrt(1-rho_t^2)
 *     out = w_out((c + skip x) silu(z)) */
static tn_ref d_layer(tn_graph *g, const ten_config *c, tn_ref u, const tn_batch *b)
{
    const int64_t d = c->dim, K = c->k;
    const tn_ref xz = tn_linear(g, u, tn_param(g, "w_in", tn_shape(4 * K, d), tn_normal(0.02f)));
    const tn_ref x = tn_conv_causal(g, tn_part(g, xz, 0, 2),
                                    tn_param(g, "conv", tn_shape(4, 2 * K), tn_uniform(-0.5f, 0.5f), .no_decay = true),
                                    .reset = b->reset);
    const tn_ref ri = tn_linear(g, u, tn_param(g, "w_ri", tn_shape(2 * K, d), tn_normal(0.02f)),
                                .bias = tn_param(g, "b_ri", tn_shape(2 * K), tn_zeros), .act = TN_ACT_SIGMOID);
    const tn_ref s = tn_scan_gated(g, x, ri, tn_param(g, "nu", tn_shape(K), CALL(init_nu), .lr = 0.3f),
                                   tn_param(g, "omega", tn_shape(K), CALL(init_omega), .lr = 0.3f), .reset = b->reset);
    const tn_ref y = tn_add(g, s, tn_mul(g, x, tn_param(g, "skip", tn_shape(2 * K), tn_ones)));
    return tn_linear(g, tn_mul_silu(g, y, tn_part(g, xz, 1, 2)),
                     tn_param(g, "w_out", tn_shape(d, 2 * K), tn_normal(c->out_std)));
}

/* O layer: per head h, with q, k, v = silu(conv4(.)) and write strength beta:
 *     S_t = e^{alpha_t} S_{t-1} + k_t (beta_t v_t)^T,  o_t = S_t^T q_t / sqrt(N),  y = o + skip v
 *     out = w_out(norm(y) silu(z)) */
static tn_ref o_layer(tn_graph *g, const ten_config *c, tn_ref u, const tn_batch *b)
{
    const int64_t d = c->dim, H = c->heads, N = c->head_dim, B = b->batch, T = b->length, HN = H * N;
    const tn_ref xz = tn_linear(g, u, tn_param(g, "w_in", tn_shape(4 * HN, d), tn_normal(0.02f)));
    const tn_ref conv = tn_conv_causal(g, tn_slice(g, xz, -1, 0, 3 * HN),
                                       tn_param(g, "conv", tn_shape(4, 3 * HN), tn_uniform(-0.5f, 0.5f), .no_decay = true),
                                       .reset = b->reset);
    const tn_ref qkv = tn_reshape(g, tn_silu(g, conv), tn_shape(B, T, 3 * H, N));
    const tn_ref q = tn_scale(g, tn_slice(g, qkv, 2, 0, H), 1.f / sqrtf((float)N));
    const tn_ref k = tn_slice(g, qkv, 2, H, H), v = tn_slice(g, qkv, 2, 2 * H, H);
    const tn_ref ab = tn_linear(g, u, tn_param(g, "w_ab", tn_shape(2 * H, d), tn_normal(0.02f)),
                                .bias = tn_param(g, "b_ab", tn_shape(2 * H), CALL(init_decay)));
    const tn_ref alpha = tn_neg(g, tn_softplus(g, tn_part(g, ab, 0, 2)));
    const tn_ref beta = tn_reshape(g, tn_sigmoid(g, tn_part(g, ab, 1, 2)), tn_shape(B, T, H, 1));
    const tn_ref o = tn_outer(g, q, k, tn_mul(g, v, beta), alpha, .reset = b->reset, .chunk = c->chunk);
    const tn_ref y = tn_add(g, o, tn_mul(g, v, tn_param(g, "skip", tn_shape(H, N), tn_ones, .no_decay = true)));
    const tn_ref n = tn_mul(g, tn_rmsnorm(g, y, TN_NONE), tn_param(g, "gain", tn_shape(H, N), tn_ones, .no_decay = true));
    const tn_ref z = tn_slice(g, xz, -1, 3 * HN, HN);
    return tn_linear(g, tn_mul_silu(g, tn_reshape(g, n, tn_shape(B, T, HN)), z),
                     tn_param(g, "w_out", tn_shape(d, HN), tn_normal(c->out_std)));
}

static tn_ref mixer(tn_graph *g, const ten_config *c, tn_ref u, const tn_batch *b, char kind)
{
    tn_region r = tn_region_begin(g, "mixer");
    const tn_ref y = kind == 'D' ? d_layer(g, c, u, b) : o_layer(g, c, u, b);
    tn_region_end(g, r);
    return y;
}

static tn_ref feed_forward(tn_graph *g, const ten_config *c, tn_ref u)
{
    tn_region r = tn_region_begin(g, "ffn");
    const tn_ref y = tn_block_swiglu(g, u, c->ffn, c->out_std);
    tn_region_end(g, r);
    return y;
}

static tn_status ten_build(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    ten_config c;
    const tn_status s = config_read(st, &c);
    if (s != TN_OK) return s;
    const tn_ref table = tn_param(g, "embed", tn_shape(c.vocab, c.dim), tn_normal(0.02f));
    tn_ref x = tn_dropout(g, tn_embed(g, b->tokens, table), c.dropout);
    for (int l = 0; l < c.layers; l++) {
        const char kind = c.pattern[(size_t)l % strlen(c.pattern)];
        tn_region r = tn_region_begin(g, "layer%d", l);
        x = tn_add(g, x, tn_dropout(g, mixer(g, &c, tn_block_rmsnorm(g, x, "norm1"), b, kind), c.dropout));
        x = tn_add(g, x, tn_dropout(g, feed_forward(g, &c, tn_block_rmsnorm(g, x, "norm2")), c.dropout));
        tn_region_end(g, r);
    }
    tn_block_head(g, tn_block_rmsnorm(g, x, "norm_f"), table, b);
    return tn_graph_status(g);
}

/* --- instruments ----------------------------------------------------------------------------------------------------------- */

/* Time constants of the D layers at a gate of one half: tau = -1 / log|lambda|, log|lambda| = -4 softplus(nu). */
static void ten_instruments(const tn_settings *st, const tn_instruments *in)
{
    double shortest = HUGE_VAL, longest = 0;
    ten_config c;
    if (config_read(st, &c) != TN_OK) return;
    for (int l = 0; l < c.layers; l++) {
        char name[64];
        int64_t n = 0;
        snprintf(name, sizeof name, "layer%d.mixer.nu", l);
        const float *nu = in->param(in->ctx, name, &n);
        for (int64_t i = 0; nu && i < n; i++) {
            const double tau = 1 / (4 * log1p(exp((double)nu[i])));
            shortest = fmin(shortest, tau);
            longest = fmax(longest, tau);
        }
    }
    if (longest <= 0) return;
    in->report(in->ctx, "tau_min", shortest, "tokens");
    in->report(in->ctx, "tau_max", longest, "tokens");
}

const tn_model tn_model_ten = {
    TN_MODEL_HEAD,
    .name = "ten",
    .summary = "Temporal Eigenstate Network: a learned complex spectrum, linear in the length of the context",
    .settings = settings,
    .n_settings = sizeof settings / sizeof *settings,
    .presets = presets,
    .n_presets = sizeof presets / sizeof *presets,
    .build = ten_build,
    .instruments = ten_instruments,
};
