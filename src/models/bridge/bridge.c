/* The steps of the text bridge, and the row of the model. */
#include "models/bridge/bridge.h"

#include "base/status.h"
#include "models/encoder.h"
#include "models/flow/flow.h"

typedef struct sentence {
    tn_ref tokens, lengths;
    bridge_mask mask;
} sentence;

static sentence sentence_of(tn_graph *g, const bridge_config *c, tn_ref tokens, tn_ref lengths)
{
    return (sentence){ .tokens = tokens, .lengths = lengths, .mask = bridge_masks(g, c, lengths) };
}

static tn_ref encode(tn_graph *g, const bridge_config *c, const sentence *s)
{
    return bridge_encode(g, c, s->tokens, s->lengths, s->mask.words);
}

static tn_ref unit(tn_graph *g, tn_ref surface) { return tn_l2_normalize(g, surface, 1e-6f); }

static tn_status build_token(tn_graph *g, const tn_settings *st, const tn_batch *b);

/* The loss; evaluation also leaves both vectors of each row, for recall. */
static tn_status build_step(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    bridge_config c;
    tn_part decoder;
    tn_forward f;
    bridge_mapped q;
    if (b->cached) return build_token(g, st, b);
    TN_RETURN_IF(bridge_config_read(st, &c));
    TN_RETURN_IF(bridge_decoder_open(g, st, &c, &decoder));
    const sentence p = sentence_of(g, &c, tn_in(b, "premise"), tn_in(b, "premise_length"));
    const sentence h = sentence_of(g, &c, tn_in(b, "hypothesis"), tn_in(b, "hypothesis_length"));
    TN_RETURN_IF(bridge_body_build(g, st, b, &c, encode(g, &c, &p), &q));
    const tn_ref predicted = unit(g, q.surface), wanted = unit(g, encode(g, &c, &h));
    const tn_ref contrast = tn_infonce(g, tn_live(g, predicted, tn_in(b, "count")),
                                       tn_live(g, wanted, tn_in(b, "count")), .temperature = c.temperature);
    TN_RETURN_IF(bridge_decode(g, &decoder, &c, b->step, wanted, h.tokens, &f));
    const tn_ref xent = tn_linear_xent(g, f.hidden, f.head, h.tokens, .weights = h.mask.written);
    const tn_ref weight = tn_scalar(g, "decoder.weight", (float)tn_settings_float(st, "decoder.weight"));
    const bool training = tn_graph_get_options(g)->training;
    tn_ref loss = tn_add_scaled(g, tn_reshape(g, contrast, tn_shape(1)), weight, tn_reshape(g, xent, tn_shape(1)));
    if (training && q.extra.id) loss = tn_add(g, loss, q.extra);
    tn_output(g, "loss", loss);
    if (training) return tn_graph_status(g);
    const tn_ref both = tn_sum(g, tn_mul(g, predicted, wanted), 1);
    tn_output(g, "infonce", contrast);
    tn_output(g, "xent", xent);
    tn_output(g, "written", tn_sum_all(g, h.mask.written));
    tn_output(g, "cosine", tn_mean_all(g, tn_live(g, both, tn_in(b, "count"))));
    tn_output(g, "predicted", predicted);
    tn_output(g, "wanted", wanted);
    return tn_graph_status(g);
}

/* Row 0 has that of row 1, every other that of the row before: no padding comes among them. */
static tn_ref shuffle(tn_graph *g, tn_ref x)
{
    const int64_t B = tn_ref_dim(g, x, 0);
    if (B < 2) return tn_scale(g, x, 0);
    const tn_ref parts[] = { tn_slice(g, x, 0, 1, 1), tn_slice(g, x, 0, 0, B - 1) };
    return tn_concat(g, parts, 2, 0);
}

/* What the decoder says at every token of a hypothesis, from its own surface and from another's. */
static tn_status build_said(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    bridge_config c;
    tn_part decoder;
    tn_forward f;
    TN_RETURN_IF(bridge_config_read(st, &c));
    TN_RETURN_IF(bridge_decoder_open(g, st, &c, &decoder));
    const sentence h = sentence_of(g, &c, tn_in(b, "hypothesis"), tn_in(b, "hypothesis_length"));
    const tn_ref own = unit(g, encode(g, &c, &h));
    TN_RETURN_IF(bridge_decode(g, &decoder, &c, b->step, own, h.tokens, &f));
    tn_output(g, "said", tn_argmax(g, tn_linear(g, f.hidden, f.head)));
    TN_RETURN_IF(bridge_decode(g, &decoder, &c, b->step, shuffle(g, own), h.tokens, &f));
    tn_output(g, "said_shuffled", tn_argmax(g, tn_linear(g, f.hidden, f.head)));
    return tn_graph_status(g);
}

/* The tokens themselves: what can be found without learning. */
static tn_status build_words(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    (void)st;
    tn_output(g, "premise_words", tn_copy(g, tn_in(b, "premise")));
    tn_output(g, "hypothesis_words", tn_copy(g, tn_in(b, "hypothesis")));
    return tn_graph_status(g);
}

/* Sentences to surfaces (B,S), for whoever wants those alone. */
static tn_status build_encode(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    bridge_config c;
    TN_RETURN_IF(bridge_config_read(st, &c));
    const sentence p = sentence_of(g, &c, tn_in(b, "premise"), tn_in(b, "premise_length"));
    tn_output(g, "surface", encode(g, &c, &p));
    return tn_graph_status(g);
}

static void put_logits(tn_graph *g, const tn_forward *f)
{
    tn_output(g, "logits", tn_floats(g, tn_linear(g, f->hidden, f->head)));
}

/* A prompt (B,n), every token a word; where there is none, the premises of a batch. */
static tn_status read_prompt(tn_graph *g, const bridge_config *c, const tn_batch *b, tn_ref *surface)
{
    const tn_ref tokens = tn_in(b, "tokens");
    if (!tokens.id) {
        const sentence p = sentence_of(g, c, tn_in(b, "premise"), tn_in(b, "premise_length"));
        *surface = encode(g, c, &p);
        return TN_OK;
    }
    const int64_t n = tn_ref_dim(g, tokens, 1);
    if (n > c->text)
        return tn_model_error("the prompt has %lld tokens, and the encoder reads text=%lld: use a shorter prompt",
                              (long long)n, (long long)c->text);
    *surface = bridge_encode(g, c, tokens, TN_NONE, TN_NONE);
    return TN_OK;
}

/* A prompt through encoder and body into the decoder's caches, and the logits of the first token (src/sample). */
static tn_status build_reply(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    bridge_config c;
    tn_part decoder;
    tn_forward f;
    tn_ref p;
    bridge_mapped q;
    TN_RETURN_IF(bridge_config_read(st, &c));
    TN_RETURN_IF(read_prompt(g, &c, b, &p));
    TN_RETURN_IF(bridge_decoder_open(g, st, &c, &decoder));
    TN_RETURN_IF(bridge_body_build(g, st, b, &c, p, &q));
    TN_RETURN_IF(bridge_decode_start(g, &decoder, &c, b, unit(g, q.surface), &f));
    put_logits(g, &f);
    tn_output(g, "position", tn_fill(g, tn_shape(1), TN_I32, (float)c.prefix));
    tn_output(g, "capacity", tn_fill(g, tn_shape(1), TN_I32, (float)(c.prefix + c.text)));
    return tn_graph_status(g);
}

/* The next token of a reply. */
static tn_status build_token(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    bridge_config c;
    tn_part decoder;
    tn_forward f;
    TN_RETURN_IF(bridge_config_read(st, &c));
    TN_RETURN_IF(bridge_decoder_open(g, st, &c, &decoder));
    TN_RETURN_IF(bridge_decode_token(g, &decoder, &c, b, &f));
    if (tn_wants(b, "logits")) put_logits(g, &f);
    return tn_graph_status(g);
}

/* --- the row ------------------------------------------------------------------------------------------------------------------ */

static const tn_step_row steps[] = {
    { "train", build_step, .gradients = true }, { "eval", .build = build_step },     { "said", .build = build_said },
    { "words", .build = build_words },          { "encode", .build = build_encode }, { "reply", .build = build_reply },
};

static const tn_input_row inputs[] = {
    { "premise", TN_I32, { TN_B, "text" }, .below = "vocab" },
    { "premise_length", TN_I32, { TN_B }, .below = "text+1" },
    { "hypothesis", TN_I32, { TN_B, "text" }, .below = "vocab" },
    { "hypothesis_length", TN_I32, { TN_B }, .below = "text+1" },
    { "count", TN_I32, { "1" }, .valid_rows = true },
    { "sample", TN_I32, .dims = { TN_B } },
};

static const tn_source_number assumes[] = { { "vocab", 4096 }, { "text", 32 } };

#define VECTORS .keep = { "predicted", "wanted" }
#define WORDS .keep = { "premise_words", "hypothesis_words" }, .runs = "words"
static const tn_metric_row metrics[] = {
    { "loss", "", TN_LOWER, TN_MEAN_BY_COUNT, .key = "heldout" },
    { "infonce", "nats", TN_LOWER, .how = TN_MEAN_BY_COUNT },
    { "xent", "nats", TN_LOWER, TN_MEAN_BY_COUNT, .sums = { "xent", "written" } },
    { "bits_per_byte", "bits/byte", TN_LOWER, TN_MEAN_BY_COUNT, .sums = { "xent", "written" }, .needs = "bits" },
    { "cosine", "", TN_HIGHER, .how = TN_MEAN_BY_COUNT },
    { "recall_1", "", TN_HIGHER, TN_OF_WHOLE, VECTORS, .whole = bridge_recall_1 },
    { "recall_10", "", TN_HIGHER, TN_OF_WHOLE, VECTORS, .whole = bridge_recall_10 },
    { "overlap_1", "", TN_HIGHER, TN_OF_WHOLE, WORDS, .whole = bridge_overlap_1 },
    { "overlap_10", "", TN_HIGHER, TN_OF_WHOLE, WORDS, .whole = bridge_overlap_10 },
    { "token_accuracy", "", TN_HIGHER, TN_ADDED, .add = bridge_add_right, .runs = "said" },
    { "token_accuracy_shuffled", "", TN_LOWER, TN_ADDED, .add = bridge_add_right_shuffled, .runs = "said" },
};

static const tn_setting settings[] = {
    TN_SETTING_INT("width", "32", TN_RANGE(2, 1024), "cells", "width of the surface"),
    TN_SETTING_INT("height", "24", TN_RANGE(2, 1024), "cells", "height of the surface"),
    TN_SETTING_AUTO_INT("vocab", "auto", TN_RANGE(2, 1e7), "", "size of the vocabulary (auto: the data's)"),
    TN_SETTING_AUTO_INT("text", "auto", TN_RANGE(2, 4096), "tokens", "longest sentence (auto: the data's)"),
    TN_SETTING_INT("dim", "256", TN_RANGE(1, 65536), "", "width of the encoder"),
    TN_SETTING_INT("layers", "2", TN_RANGE(1, 64), "", "layers of the encoder, and of body=transformer"),
    TN_SETTING_INT("heads", "8", TN_RANGE(1, 1024), "", "attention heads; dim is a multiple of it"),
    TN_SETTING_INT("ffn", "512", TN_RANGE(1, 1e6), "", "inner width of these layers"),
    TN_SETTING_CHOICE("body", "lattice", "lattice|identity|mean|linear|mlp|transformer",
                      "from the premise's surface to the predicted one"),
    TN_SETTING_BOOL("residual", "false", "add what the body computes to the premise's surface"),
    TN_SETTING_INT("hidden", "256", TN_RANGE(1, 65536), "", "width inside body=mlp and body=transformer"),
    TN_SETTING_INT("flow.depth", "16", TN_RANGE(2, 1e6), "", "depth of the lattice"),
    TN_SETTING_AUTO_INT("flow.steps", "auto", TN_RANGE(1, 4096), "steps", "most steps of a flow (auto: depth / 2)"),
    TN_SETTING_INT("flow.dim", "64", TN_RANGE(2, 65536), "", "width of a flow's state"),
    TN_SETTING_INT("flow.layers", "2", TN_RANGE(1, TN_ROLLOUT_LAYERS), "", "layers of the lattice's recurrent cell"),
    TN_SETTING_INT("flow.energy", "1", TN_RANGE(1, TN_ROLLOUT_ENERGY), "", "numbers of an energy"),
    TN_SETTING_INT("flow.field", "0", TN_RANGE(0, TN_ROLLOUT_FIELD), "channels",
                   "channels of a field that flows write and read, so that they see each other (0: none)"),
    TN_SETTING_CHOICE("flow.field_deposit", "nearest", "nearest|smooth",
                      "flows write to the nearest corner, or to all eight around them"),
    TN_SETTING_CHOICE("flow.stop", "sample", "never|batch|sample",
                      "flows end early where enough have left: not at all, as a whole batch, or each sample by itself"),
    TN_SETTING_FLOAT("flow.start", "0", TN_RANGE_OPEN(-1, 1), "", "where between the planes at -1 and 1 flows start"),
    TN_SETTING_FLOAT("flow.drift", "1.2", TN_RANGE(0, 100), "",
                     "distance that a flow drifts to the nearer plane in all its steps"),
    TN_SETTING_FLOAT("flow.noise", "0.02", TN_RANGE(0, 1), "", "standard deviation of noise on each step, in training"),
    TN_SETTING_FLOAT("flow.lambda_exit", "0.05", TN_RANGE(0, 1e3), "",
                     "weight in the loss of the distance that flows had left"),
    TN_SETTING_INT("flow.exit_steps", "3000", TN_RANGE(0, 1e12), "steps",
                   "training steps in which lambda_exit goes to 0 (0: it stays)"),
    TN_SETTING_BOOL("flow.movement", "true", "false: flows stay above their cell and only drift to a plane"),
    TN_SETTING_CHOICE("flow.lattice", "on", "on|frozen|off", "frozen: as it starts; off: the surface as it is"),
    TN_SETTING_AUTO_INT("flow.keep", "auto", TN_RANGE(0, 4096), "steps",
                        "states kept for the gradient: every so many steps (0: everything; auto: what fits in memory)"),
    TN_SETTING_FLOAT("temperature", "0.05", TN_RANGE_LO_OPEN(0, 100), "", "of InfoNCE"),
    TN_SETTING_INT("prefix", "24", TN_RANGE(1, 1024), "", "states that the decoder reads a surface as"),
    TN_SETTING_INT("decoder.dim", "256", TN_RANGE(1, 65536), "", "width of the decoder"),
    TN_SETTING_INT("decoder.layers", "2", TN_RANGE(1, 64), "", "layers of the decoder"),
    TN_SETTING_INT("decoder.heads", "8", TN_RANGE(1, 1024), "", "attention heads of the decoder"),
    TN_SETTING_FLOAT("decoder.weight", "1", TN_RANGE(0, 1e3), "", "weight of the decoder's cross-entropy in the loss"),
};

tn_status bridge_config_read(const tn_settings *st, bridge_config *c)
{
    *c = (bridge_config){ .width = tn_settings_int(st, "width"),
                          .height = tn_settings_int(st, "height"),
                          .text = tn_settings_int(st, "text"),
                          .vocab = tn_settings_int(st, "vocab"),
                          .dim = tn_settings_int(st, "dim"),
                          .heads = tn_settings_int(st, "heads"),
                          .ffn = tn_settings_int(st, "ffn"),
                          .layers = tn_settings_int(st, "layers"),
                          .body = (bridge_body)tn_settings_choice(st, "body"),
                          .residual = tn_settings_on(st, "residual"),
                          .hidden = tn_settings_int(st, "hidden"),
                          .prefix = tn_settings_int(st, "prefix"),
                          .temperature = (float)tn_settings_float(st, "temperature"),
                          .dropout = (float)tn_settings_float(st, "train.dropout") };
    c->cells = c->width * c->height;
    if (!c->vocab) c->vocab = (int64_t)assumes[0].value;
    if (!c->text) c->text = (int64_t)assumes[1].value;
    if (c->dim % c->heads)
        return tn_model_error("dim=%lld must be a multiple of heads=%lld", (long long)c->dim, (long long)c->heads);
    if (c->body == BRIDGE_TRANSFORMER && c->hidden % c->heads)
        return tn_model_error("hidden=%lld must be a multiple of heads=%lld for body=transformer", (long long)c->hidden,
                              (long long)c->heads);
    if (c->cells % c->prefix)
        return tn_model_error("prefix=%lld does not divide the %lld cells of width=%lld and height=%lld: use %lld",
                              (long long)c->prefix, (long long)c->cells, (long long)c->width, (long long)c->height,
                              (long long)c->height);
    return TN_OK;
}

static const tn_schedule_row schedules[] = {
    { "kappa", bridge_kappa_at },
    { "drift", bridge_drift_at },
    { "noise", bridge_noise_at },
    { "lambda_exit", bridge_exit_at },
};

/* As of `flow`: no noise, and nothing that changes at once when a parameter moves a little. */
static const char *const exact[] = {
    "flow.noise=0", "flow.drift=0", "flow.start=0.4", "flow.stop=never", "flow.field_deposit=smooth", NULL
};

#define VALUES(...) ((const char *const[]){ __VA_ARGS__, NULL })
static const tn_preset presets[] = {
    { "flow_text", "premises to hypotheses of SNLI through a lattice of 32x24x16",
      VALUES("task=snli", "task.length=48", "residual=true", "flow.field=8", "train.batch=64", "train.epochs=20",
             "train.lr=1e-3", "train.warmup=200", "train.dropout=0.1", "train.decay=0.01", "train.select=recall_10") },
};

/* Of the lattice, where there is one. No setting of it makes flows spawn: a slot is a cell. */
static void instruments(const tn_settings *st, const tn_instruments *in)
{
    bridge_config c;
    if (bridge_config_read(st, &c) == TN_OK && c.body == BRIDGE_LATTICE) flow_report(in, c.width, c.height, c.cells);
}

/* Also by the names that the report of this network has for them. The text bridge is all that is not the lattice. */
#define LATTICE "flow.lattice"
static const tn_instrument_row reported[] = {
    { "samples_per_s", .key = "throughput_samples_per_sec" },
    { "lattice_steps", .cap = "flow.steps", .key = "flow_convergence_steps" },
    { "flow_steps", .rate = "flow_steps_per_s" },
    { LATTICE ".ms", .key = "energy_computation_time_ms" },
    { "-" LATTICE ".ms", .key = "text_bridge_time_ms" },
};

/* The loss is contrastive. */
static bool couples_rows(const tn_settings *st) { return st != NULL; }

static const char *const scalars[] = { "decoder.weight", NULL };

const tn_model tn_model_bridge = {
    TN_MODEL_HEAD,
    .name = "bridge",
    .summary = "sentences to surfaces and back: encoder, lattice or a baseline, decoder",
    .settings = settings,
    .n_settings = sizeof settings / sizeof *settings,
    .presets = presets,
    .n_presets = sizeof presets / sizeof *presets,
    .build = build_step,
    .exact = exact,
    .instruments = instruments,
    .scalars = scalars,
    .couples_rows = couples_rows,
    .assumes = assumes,
    .n_assumes = sizeof assumes / sizeof *assumes,
    TN_INPUTS(inputs),
    TN_METRICS(metrics),
    TN_STEPS(steps),
    TN_SCHEDULES(schedules),
    TN_REPORTED(reported),
};
