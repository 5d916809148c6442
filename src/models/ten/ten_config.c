/* Settings and presets of `ten`, reading them with their cross-checks, and the row that registers the model. The first group
 * shapes the frame and the layers D, O and W, the second what D, O and E layers have in common, the third the O layer, the
 * fourth the E layer, the plain eigenstate cell in which the historical networks are written. docs/variants.md has a line for
 * each network that was compared. */
#include "models/ten/ten.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const tn_setting settings[] = {
    TN_SETTING_TEXT(
        "pattern", "DO",
        "kinds of the layers, repeated: D gated diagonal, O outer-product, E eigenstates, W window attention"),
    TN_SETTING_INT("dim", "256", TN_RANGE(1, 65536), "", "width of the residual stream"),
    TN_SETTING_INT("layers", "4", TN_RANGE(1, 1024), "", "number of layers"),
    TN_SETTING_AUTO_INT("k", "auto", TN_RANGE(1, 65536), "",
                        "complex eigenstates of a D layer or an E cell (auto: dim/2)"),
    TN_SETTING_AUTO_INT("heads", "auto", TN_RANGE(1, 1024), "",
                        "states of an O layer, heads of a W layer, blocks of the resonance (auto: dim/64)"),
    TN_SETTING_AUTO_INT("head_dim", "auto", TN_RANGE(1, 1024), "",
                        "rows and columns of an O layer's state (auto: dim/heads)"),
    TN_SETTING_AUTO_INT("ffn", "auto", TN_RANGE(1, 1e6), "", "inner width (auto: 5/2 dim for swiglu, else 4 dim)"),
    TN_SETTING_INT("chunk", "64", TN_RANGE(1, 4096), "tokens", "block size in O layers; does not affect results"),
    TN_SETTING_INT("window", "256", TN_RANGE(1, 1e9), "tokens", "attention window of W layers"),
    TN_SETTING_AUTO_INT("vocab", "auto", TN_RANGE(2, 1e7), "",
                        "size of the vocabulary (auto: the data's, 50257 without data)"),
    TN_SETTING_CHOICE("norm", "pre", "pre|post", "normalise before a branch, or after its sum"),
    TN_SETTING_CHOICE("norm_kind", "rms", "rms|layer", "rms, or layer norm with gain and offset"),
    TN_SETTING_CHOICE("act", "swiglu", "swiglu|silu|gelu_tanh|gelu_erf",
                      "feed-forward network; all but swiglu have biases"),
    TN_SETTING_CHOICE("pos", "none", "none|learned|sin",
                      "what is added to the embedding; tables have train.context rows"),
    TN_SETTING_TEXT("hten", "off",
                    "scales such as 1,2,4: each layer is a mixture of causal layers on averages of 1, 2 and 4 tokens"),
    TN_SETTING_BOOL("scaled_init", "true", "branches end in matrices of deviation 0.02/sqrt(2 layers) (false: 0.02)"),
    TN_SETTING_FLOAT("spectrum_lr", "0.3", TN_RANGE_LO_OPEN(0, 10), "",
                     "factor on the learning rate of moduli and phases"),
    TN_SETTING_FLOAT("energy", "0", TN_RANGE(0, 1e6), "",
                     "adds this times the mean squared state of D and E layers to the loss"),
    TN_SETTING_INT("tbptt", "0", TN_RANGE(0, 1e9), "tokens",
                   "E layers: tokens after which the gradient is truncated (0: never)"),
    TN_SETTING_SWITCH(
        "opt.batched_input", "on",
        "input matrices of D, O and E layers meet all tokens in one product (off: a product per time step)"),
    TN_SETTING_SWITCH(
        "opt.batched_output", "on",
        "output matrices of D, O and E layers meet all tokens in one product (off: a product per time step)"),
    TN_SETTING_SWITCH("opt.one_pass_energy", "on",
                      "energy: squares are summed where they are made (off: all squares, then their mean)"),
    TN_SETTING_SWITCH("opt.fused_step", "on",
                      "E, fixed eigenvalues: the complex recurrence in one op (off: a loop of elementwise ops)"),
    TN_SETTING_SWITCH("opt.fold_resonance", "on",
                      "E: the resonance is multiplied into the matrix behind it (off: the states of every token are)"),

    TN_SETTING_INT("conv", "4", TN_RANGE(0, 8), "tokens",
                   "taps of the short causal convolution of D, O and E layers (0: none)"),
    TN_SETTING_BOOL("skip", "true", "D, O, E: skip connection around the recurrence, with a learned factor"),
    TN_SETTING_CHOICE("gate", "silu", "none|sigmoid|silu",
                      "D, O, E: silu branch before the output matrix, or sigmoid on its output"),
    TN_SETTING_CHOICE("omega", "learned", "learned|fixed|zero",
                      "D, E: phases of the eigenvalues (zero: they are real)"),
    TN_SETTING_FLOAT("ring_min", "0.9", TN_RANGE_OPEN(0, 1), "",
                     "smallest initial |lambda| of D layers (gate open) and of E layers with spectrum=ring"),
    TN_SETTING_FLOAT("ring_max", "0.999", TN_RANGE_OPEN(0, 1), "", "largest initial |lambda| (see ring_min)"),

    TN_SETTING_CHOICE("rotate", "false", "false|true|learned|token",
                      "O: keys and queries rotate with the position, at fixed, learned or token-dependent speeds"),
    TN_SETTING_CHOICE("rotate_pairs", "all", "all|half", "O: how many of a head's pairs rotate"),
    TN_SETTING_CHOICE(
        "write", "sigmoid", "sigmoid|normed|decay|delta",
        "O: strength of writing, a gate, the gate times sqrt(1-rho^2), or 1-rho; delta: the gate in the delta rule"),
    TN_SETTING_CHOICE("forget", "token", "token|fixed|channel",
                      "O: decay by token, one number per head, or by token for each key channel (write=delta)"),
    TN_SETTING_BOOL("qk_norm", "false", "O: normalise keys and queries to length 1"),
    TN_SETTING_CHOICE("conv_act", "silu", "none|silu", "O: activation after the convolution"),

    TN_SETTING_BOOL("beta_complex", "true", "E: the input drives real and imaginary parts"),
    TN_SETTING_CHOICE("readout", "re+im", "re|re+im", "E: parts of the state that are read"),
    TN_SETTING_CHOICE("resonance", "none", "none|dense_frob|blockdiag",
                      "E: coupling of eigenstates where they are read"),
    TN_SETTING_FLOAT("resonance_eps", "0.01", TN_RANGE(0, 10), "", "E: norm of a dense_frob coupling"),
    TN_SETTING_BOOL("xmem", "false", "E: the states of the previous E layer are added to the input"),
    TN_SETTING_CHOICE("select", "none", "none|bounded|rg", "E: eigenvalues that depend on the token"),
    TN_SETTING_CHOICE("rho", "expexp", "sigmoid|expexp", "E: modulus, lo + (hi-lo) sigmoid(alpha) or exp(-exp(nu))"),
    TN_SETTING_FLOAT("rho_min", "0", TN_RANGE_HI_OPEN(0, 1), "", "E: lo of rho=sigmoid"),
    TN_SETTING_FLOAT("rho_max", "1", TN_RANGE_LO_OPEN(0, 1), "", "E: hi of rho=sigmoid"),
    TN_SETTING_CHOICE(
        "gamma_norm", "true", "false|true|free",
        "E: the input is scaled by sqrt(1-rho^2) and a learned factor; free: by a factor that starts as that root"),
    TN_SETTING_CHOICE(
        "spectrum", "log", "log|ring|uniform",
        "E: initial moduli, by log-uniform time constants 4 to 4096, uniform on a ring, or alpha uniform"),
    TN_SETTING_FLOAT("alpha_min", "-3", TN_RANGE_ANY, "", "E: smallest initial alpha of spectrum=uniform"),
    TN_SETTING_FLOAT("alpha_max", "-0.1", TN_RANGE_ANY, "", "E: largest initial alpha of spectrum=uniform"),
    TN_SETTING_INT("n_cells", "1", TN_RANGE(1, 64), "", "E: cells whose outputs are averaged"),
};

/* --- presets ------------------------------------------------------------------------------------------------------ */

#define HISTORICAL                                                                                                     \
    "pattern=E", "norm_kind=layer", "pos=learned", "conv=0", "skip=false", "rho=sigmoid", "gamma_norm=false",          \
        "spectrum=uniform", "spectrum_lr=1", "scaled_init=false", "vocab=50257", "train.lr=3e-4", "train.dropout=0.1"
#define TEN_A                                                                                                          \
    HISTORICAL, "beta_complex=false", "readout=re", "resonance=dense_frob", "norm=post", "act=gelu_tanh", "gate=none", \
        "rho_max=0.99", "alpha_max=0", "n_cells=2", "train.beta2=0.999", "train.decay=0.01"
#define TEN_B HISTORICAL, "resonance=blockdiag", "act=silu", "gate=sigmoid"
#define SIZE(d, l, k, t) "dim=" #d, "layers=" #l, "k=" #k, "train.context=" #t
#define VALUES(...) ((const char *const[]){ __VA_ARGS__, NULL })

static const tn_preset presets[] = {
    { "ten_tiny", "a network that trains in a minute on two cores",
      VALUES("dim=64", "layers=2", "heads=2", "train.context=128", "train.steps=500", "train.warmup=20") },
    { "recall", "outer-product layers only, for associative recall", VALUES("pattern=O") },
    { "ten_hybrid", "outer-product layers and one window attention in four", VALUES("pattern=OOOW") },
    { "ten_static", "eigenstates with fixed eigenvalues, convolution, skip and silu branch",
      VALUES("pattern=E", "gamma_norm=free") },
    { "ten_a", "the first published network: real input, dense resonance, post-norm",
      VALUES(TEN_A, SIZE(512, 6, 64, 2048)) },
    { "ten_a_nano", "TEN-A with 35 M parameters", VALUES(TEN_A, SIZE(512, 4, 64, 512)) },
    { "ten_a_micro", "TEN-A with 70 M parameters", VALUES(TEN_A, SIZE(768, 6, 96, 1024)) },
    { "ten_a_small", "TEN-A with 124 M parameters", VALUES(TEN_A, SIZE(1024, 8, 128, 1024)) },
    { "ten_a_medium", "TEN-A with 233 M parameters", VALUES(TEN_A, SIZE(1280, 12, 160, 1024)) },
    { "ten_a_large", "TEN-A on three scales, 1.1 G parameters",
      VALUES(TEN_A, SIZE(1536, 16, 192, 1024), "hten=1,2,4") },
    { "ten_a_xlarge", "TEN-A on four scales, 3.2 G parameters",
      VALUES(TEN_A, SIZE(2048, 20, 256, 2048), "hten=1,2,4,8") },
    { "ten_a_small_32k", "TEN-A for 32,768 tokens, 157 M parameters", VALUES(TEN_A, SIZE(1024, 8, 128, 32768)) },
    { "small_32k", "ten_a_small_32k by the name it was published under, four sequences a step",
      VALUES(TEN_A, SIZE(1024, 8, 128, 32768), "train.batch=4") },
    { "ten_a_medium_32k", "TEN-A for 32,768 tokens on three scales",
      VALUES(TEN_A, SIZE(1280, 12, 160, 32768), "hten=1,2,4") },
    { "ten_a_large_32k", "TEN-A for 32,768 tokens on four scales",
      VALUES(TEN_A, SIZE(1536, 16, 192, 32768), "hten=1,2,4,8") },
    { "ten_b", "the second published network: complex input, block resonance, sigmoid gate, 41 M parameters",
      VALUES(TEN_B, SIZE(512, 6, 64, 512), "heads=4") },
    { "ten_b_ring", "TEN-B with moduli near 1, normalised input and a slower spectrum",
      VALUES(TEN_B, SIZE(512, 6, 64, 512), "heads=4", "rho=expexp", "spectrum=log", "gamma_norm=free",
             "spectrum_lr=0.3") },
    { "ten_b_wide", "TEN-B with 112 M parameters", VALUES(TEN_B, SIZE(1024, 6, 128, 512), "heads=8") },
    { "ten_b_small", "TEN-B with 15 M parameters", VALUES(TEN_B, SIZE(256, 4, 32, 256), "heads=4") },
};

/* Rate and last rate with which the default network was chosen. */
static const char *const defaults[] = { "train.lr=3e-3", "train.lr_min_frac=0.05", NULL };

/* --- reading ------------------------------------------------------------------------------------------------------ */

static float number(const tn_settings *st, const char *key) { return (float)tn_settings_float(st, key); }

static void read_frame(const tn_settings *st, ten_config *c)
{
    *c = (ten_config){ .pattern = tn_settings_text(st, "pattern"),
                       .dim = tn_settings_int(st, "dim"),
                       .layers = tn_settings_int(st, "layers"),
                       .k = tn_settings_int(st, "k"),
                       .heads = tn_settings_int(st, "heads"),
                       .head_dim = tn_settings_int(st, "head_dim"),
                       .ffn = tn_settings_int(st, "ffn"),
                       .vocab = tn_settings_int(st, "vocab"),
                       .chunk = tn_settings_int(st, "chunk"),
                       .window = tn_settings_int(st, "window"),
                       .context = tn_settings_int(st, "train.context"),
                       .tbptt = tn_settings_int(st, "tbptt"),
                       .post_norm = tn_settings_choice(st, "norm") == 1,
                       .layer_norm = tn_settings_choice(st, "norm_kind") == 1,
                       .act = (ten_act)tn_settings_choice(st, "act"),
                       .pos = (ten_pos)tn_settings_choice(st, "pos"),
                       .dropout = number(st, "train.dropout"),
                       .energy = number(st, "energy"),
                       .spectrum_lr = number(st, "spectrum_lr") };
    if (!c->k) c->k = c->dim >= 2 ? c->dim / 2 : 1;
    if (!c->heads) c->heads = c->dim >= 64 ? c->dim / 64 : 1;
    if (!c->head_dim) c->head_dim = c->dim / c->heads;
    if (!c->vocab) c->vocab = 50257;
    if (!c->ffn) c->ffn = c->act == TEN_ACT_SWIGLU ? (5 * c->dim / 2 + 7) / 8 * 8 : 4 * c->dim;
    c->out_std = tn_settings_on(st, "scaled_init") ? 0.02f / sqrtf(2.f * (float)c->layers) : 0.02f;
}

static void read_layers(const tn_settings *st, ten_config *c)
{
    c->conv = tn_settings_int(st, "conv");
    c->skip = tn_settings_on(st, "skip");
    c->gate = (ten_gate)tn_settings_choice(st, "gate");
    c->omega = (ten_omega)tn_settings_choice(st, "omega");
    c->ring_min = number(st, "ring_min");
    c->ring_max = number(st, "ring_max");
    c->rotate = (ten_rotate)tn_settings_choice(st, "rotate");
    c->rotate_half = tn_settings_choice(st, "rotate_pairs") == 1;
    c->write = (ten_write)tn_settings_choice(st, "write");
    c->forget = (ten_forget)tn_settings_choice(st, "forget");
    c->qk_norm = tn_settings_on(st, "qk_norm");
    c->conv_silu = tn_settings_choice(st, "conv_act") == 1;
}

static void read_cell(const tn_settings *st, ten_config *c)
{
    c->beta_complex = tn_settings_on(st, "beta_complex");
    c->readout_im = tn_settings_choice(st, "readout") == 1;
    c->resonance = (ten_resonance)tn_settings_choice(st, "resonance");
    c->resonance_eps = number(st, "resonance_eps");
    c->xmem = tn_settings_on(st, "xmem");
    c->select = (ten_select)tn_settings_choice(st, "select");
    c->expexp = tn_settings_choice(st, "rho") == 1;
    c->rho_min = c->expexp ? 0 : number(st, "rho_min");
    c->rho_max = c->expexp ? 1 : number(st, "rho_max");
    c->gamma = (ten_gamma)tn_settings_choice(st, "gamma_norm");
    c->start = (ten_start)tn_settings_choice(st, "spectrum");
    c->alpha_min = number(st, "alpha_min");
    c->alpha_max = number(st, "alpha_max");
    c->cells = tn_settings_int(st, "n_cells");
}

/* "1,2,4" */
static tn_status read_scales(const tn_settings *st, ten_config *c)
{
    const char *text = tn_settings_text(st, "hten");
    if (strcmp(text, "off") == 0) return TN_OK;
    for (const char *p = text;; p++) {
        char *end;
        const long v = strtol(p, &end, 10);
        if (end == p || v < 1 || v > 65536 || (*end && *end != ',') || c->n_scales == TEN_SCALES)
            return tn_model_error("hten=%.40s: off, or at most %d scales such as 1,2,4", text, TEN_SCALES);
        for (int i = 0; i < c->n_scales; i++)
            if (c->scale[i] == v) return tn_model_error("hten=%.40s: scale %ld appears twice", text, v);
        c->scale[c->n_scales++] = v;
        if (!*end) return TN_OK;
        p = end;
    }
}

static tn_status check(const ten_config *c)
{
    const long long d = c->dim, heads = c->heads, k = c->k;
    if (!c->pattern[0] || strspn(c->pattern, "DOEW") != strlen(c->pattern))
        return tn_model_error("pattern=%.40s: use the letters D, O, E and W, such as DO or OOOW", c->pattern);
    if (c->head_dim < 1) return tn_model_error("heads=%lld is more than dim=%lld", heads, d);
    if (strchr(c->pattern, 'W') && (c->dim % c->heads || c->dim / c->heads % 2))
        return tn_model_error("W layers need a dim (%lld) that is heads (%lld) times an even number", d, heads);
    if (c->rotate && c->head_dim % (c->rotate_half ? 4 : 2))
        return tn_model_error("rotate needs a head_dim divisible by %d, it is %lld", c->rotate_half ? 4 : 2,
                              (long long)c->head_dim);
    if (c->ring_min >= c->ring_max)
        return tn_model_error("ring_min=%g must be below ring_max=%g", (double)c->ring_min, (double)c->ring_max);
    if (c->write == TEN_WRITE_DELTA && !c->qk_norm)
        return tn_model_error("write=delta needs normalised keys: set qk_norm=true");
    if (c->forget == TEN_FORGET_CHANNEL && c->write != TEN_WRITE_DELTA)
        return tn_model_error("forget=channel is for the delta rule: set write=delta");
    if (c->select == TEN_SELECT_BOUNDED && c->omega == TEN_OMEGA_ZERO)
        return tn_model_error("select=bounded changes phases, omega=zero has none: use select=none or rg");
    if (c->resonance == TEN_RESONANCE_BLOCKS && c->k % c->heads)
        return tn_model_error("resonance=blockdiag needs a k (%lld) divisible by heads=%lld", k, heads);
    if (c->rho_min >= c->rho_max)
        return tn_model_error("rho_min=%g must be below rho_max=%g", (double)c->rho_min, (double)c->rho_max);
    if (c->tbptt && strspn(c->pattern, "E") != strlen(c->pattern))
        return tn_model_error("tbptt is for E layers only: use pattern=E");
    if (c->xmem && c->n_scales) return tn_model_error("xmem=true and hten=... cannot be combined: switch one off");
    return TN_OK;
}

tn_status ten_config_read(const tn_settings *st, ten_config *c)
{
    read_frame(st, c);
    read_layers(st, c);
    read_cell(st, c);
    const tn_status s = read_scales(st, c);
    return s == TN_OK ? check(c) : s;
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
    .forward = ten_forward,
    TN_LANGUAGE_ROWS,
    .defaults = defaults,
    .instruments = ten_instruments,
    TN_VIEWS(ten_views),
};
