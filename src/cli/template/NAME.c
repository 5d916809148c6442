/* NAME: a recurrent language model with a cell of its own.
 *
 *     z_t = sigmoid(W_z x_t + U_z h_{t-1} + b_z)      how much of the state is replaced
 *     c_t = tanh   (W_c x_t + U_c h_{t-1} + b_c)      what replaces it
 *     h_t = h_{t-1} + z_t (c_t - h_{t-1})
 *
 * `make` builds NAME.so; `tenon check ./NAME.so` tests it and `tenon train ./NAME.so data=FILE` trains it. */
#include <tenon/model.h>

static const tn_setting settings[] = {
    TN_SETTING_INT("dim", "128", TN_RANGE(1, 65536), "", "width of the state"),
    TN_SETTING_INT("layers", "2", TN_RANGE(1, 1024), "", "number of layers"),
    TN_SETTING_AUTO_INT("vocab", "auto", TN_RANGE(2, 1e7), "",
                        "vocabulary size (auto: that of the data; 50257 without data)"),
};

/* What a step reads: B rows of T tokens, and the token that follows each. A row here is all that a new input takes. */
static const tn_input_row inputs[] = {
    { "tokens", TN_I32, { TN_B, TN_T }, .cut = true, .below = "vocab" },
    { "labels", TN_I32, { TN_B, TN_T }, .cut = true, .below = "vocab", .pad = -1 }, /* -1: not counted */
};
static const tn_source_number assumes[] = { { "vocab", 50257 } }; /* where there are no data: checks and benchmarks */

/* What a run is judged by on held-out data; training minimises the first. A row here is all that a new metric takes. */
static const tn_metric_row metrics[] = {
    { "loss", "nats", TN_LOWER, TN_MEAN_BY_COUNT, .key = "heldout" },
    { "bits_per_byte", "bits/byte", TN_LOWER, TN_MEAN_BY_COUNT, .sums = { "loss" }, .needs = "bits",
      .key = "bits_per_byte" },
    { "accuracy", "", TN_HIGHER, TN_ADDED, .add = tn_answers_add, .reads = "logits", .needs = "answers",
      .by_group = true },
};

/* One step of the cell. h (B,d) is the state; a (B,2d) holds W x_t + b of both gates; u (2d,d) is U. */
static void cell(tn_graph *g, tn_body_io *io, void *user)
{
    (void)user;
    const tn_ref h = io->state[0], a = io->xs[0], u = io->consts[0];
    const tn_ref gates = tn_linear(g, h, u, .residual = a);
    const tn_ref z = tn_sigmoid(g, tn_part(g, gates, 0, 2));
    const tn_ref c = tn_tanh(g, tn_part(g, gates, 1, 2));
    io->next[0] = tn_add(g, h, tn_mul(g, z, tn_sub(g, c, h)));
    io->ys[0] = io->next[0];
}

/* The cell over a whole sequence x (T,B,d); returns all its states (T,B,d). W x_t of all steps is one product. The state is 0 at
 * first; where a text is generated token by token (cached), it is what the last call left behind. */
static tn_ref cell_layer(tn_graph *g, tn_ref x, bool cached)
{
    const int64_t T = tn_ref_dim(g, x, 0), B = tn_ref_dim(g, x, 1), d = tn_ref_dim(g, x, 2);
    const tn_ref w = tn_param(g, "w", tn_shape(2 * d, d), tn_normal(0.1f));
    const tn_ref u = tn_param(g, "u", tn_shape(2 * d, d), tn_normal(0.1f));
    const tn_ref a = tn_linear(g, x, w, .bias = tn_param(g, "b", tn_shape(2 * d), tn_zeros));
    const tn_ref h0 = cached ? tn_cache(g, "h", tn_shape(B, d), TN_F32) : tn_fill(g, tn_shape(B, d), TN_F32, 0.f);
    tn_ref states = TN_NONE, last = TN_NONE;
    tn_loop(g, (tn_body){ .build = cell }, .steps = T, .state = &h0, .n_state = 1, .xs = &a, .n_xs = 1, .consts = &u,
            .n_consts = 1, .ys = &states, .n_ys = 1, .final = &last);
    if (cached) tn_assign(g, h0, last);
    return states;
}

static tn_status NAME_build(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    const int64_t d = tn_settings_int(st, "dim"), layers = tn_settings_int(st, "layers"),
                  vocab = tn_settings_int(st, "vocab");
    const tn_ref tokens = tn_in(b, "tokens"), labels = tn_in(b, "labels"); /* none where a text is written */
    const tn_ref table = tn_param(g, "embed", tn_shape(vocab, d), tn_normal(0.1f));

    /* Tokens are (B,T); a loop over time wants (T,B,d). */
    tn_ref x = tn_embed(g, tn_transpose(g, tokens, 1, 0), table);
    for (int l = 0; l < layers; l++) {
        /* A segment: parameters are called layer0.w, and plan.recompute=layer computes its inside again to save memory. */
        tn_region r = tn_segment_begin(g, "layer%d", l);
        x = tn_add(g, x, cell_layer(g, tn_rmsnorm(g, x, tn_param(g, "norm", tn_shape(d), tn_ones)), b->cached));
        tn_region_end(g, r);
    }
    x = tn_transpose(g, x, 1, 0, 2); /* (B,T,d) again */
    x = tn_rmsnorm(g, x, tn_param(g, "norm_f", tn_shape(d), tn_ones));

    /* The head is the embedding, transposed. Whole logits are made only where somebody asks: sampling, and metrics that read them. */
    if (tn_wants(b, "logits")) tn_output(g, "logits", tn_linear(g, x, table));
    if (labels.id) tn_output(g, "loss", tn_linear_xent(g, x, table, labels));
    return tn_graph_status(g);
}

static const tn_model model = {
    TN_MODEL_HEAD,
    .name = "NAME",
    .summary = "a recurrent language model with a cell of its own",
    .settings = settings,
    .n_settings = sizeof settings / sizeof *settings,
    .build = NAME_build,
    TN_INPUTS(inputs),
    .assumes = assumes,
    .n_assumes = sizeof assumes / sizeof *assumes,
    TN_METRICS(metrics),
};

const tn_model *tenon_model(void);
const tn_model *tenon_model(void) { return &model; }
