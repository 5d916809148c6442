/* The row of the model. */
#include "models/wire/wire.h"

/* There where the source has the reader; `yes`: also where there is no source. */
#define READER_INPUTS(x, yes)                                                                                              \
    { x ".tokens", TN_I32, { TN_B, "questions", x ".length" }, .below = x ".ids", .optional = true, .assumed = yes },      \
        { x ".labels",      TN_I32,        { TN_B, "questions", x ".length" }, .pad = -1, .below = x ".ids",               \
          .optional = true, .assumed = yes },                                                                              \
        { x ".text", TN_I32, { TN_B, x ".text" }, .below = x ".ids", .optional = true, .assumed = yes },                   \
        { x ".text_labels", TN_I32, { TN_B, x ".text" }, .pad = -1, .below = x ".ids", .optional = true, .assumed = yes }, \
        { x ".text_length", TN_I32, .dims = { TN_B }, .below = x ".text+1", .optional = true, .assumed = yes },            \
        { x ".told", TN_I32, { TN_B, "questions", x ".told" }, .below = x ".ids", .optional = true, .assumed = yes },      \
        { x ".teach_ids", TN_I32, { TN_B, "questions", x ".length", x ".top" }, .optional = true },                        \
        { x ".teach_logits", TN_F32, { TN_B, "questions", x ".length", x ".top" }, .optional = true },                     \
        { x ".teach_lse", TN_F32, { TN_B, "questions", x ".length" }, .optional = true },                                  \
        { x ".teach_states", TN_F32, { TN_B, "questions", x ".length", x ".states" }, .optional = true },                  \
    {                                                                                                                      \
        x ".told_document", TN_I32, { TN_B, "questions", x ".told" }, .below = "2", .optional = true, .assumed = yes       \
    }

static const tn_input_row inputs[] = {
    { "bytes", TN_I32, { TN_B, "bytes" }, .below = "256" },
    { "lengths", TN_I32, .dims = { TN_B }, .below = "bytes+1" },
    { "sample", TN_I32, .dims = { TN_B } },
    { "kind", TN_I32, .dims = { TN_B }, .below = "3" },
    { "count", TN_I32, { "1" }, .valid_rows = true },
    { "features", TN_F32, { TN_B, "features.tokens", "features.width" }, .optional = true },
    { "sent", TN_I32, { TN_B, "sent" }, .optional = true },
    { "sent_length", TN_I32, .dims = { TN_B }, .below = "sent+1", .optional = true },
    READER_INPUTS("a", true),
    READER_INPUTS("b", true),
    READER_INPUTS("c", false),
};

/* Without data there are two small readers (wire_config.c). */
#define ASSUMED(x, length, text, told)                                                                                 \
    { x ".ids", 97 }, { x ".length", length }, { x ".text", text }, { x ".told", told }, { x ".top", 4 },              \
    {                                                                                                                  \
        x ".states", 64                                                                                                \
    }
static const tn_source_number assumes[] = {
    { "bytes", 24 },          { "questions", 2 },      { "contexts", 64 },      { "features.tokens", 10 },
    { "features.width", 32 }, ASSUMED("a", 6, 10, 16), ASSUMED("b", 7, 12, 19), ASSUMED("c", 6, 10, 16),
};

static const tn_step_row steps[] = {
    { "train", wire_build_train, .gradients = true },
    { "eval", wire_build_eval, false },
    { "task", wire_build_task, .gradients = true },
    { "ae", wire_build_ae, .gradients = true },
    { "encode", wire_build_encode, false },
    { "read", wire_build_read, false },
    { "text", wire_build_text, false },
    { "teach", wire_build_teach, false },
};

/* What an encoder's numbers mean depends on these. */
static const char *const same[] = { "slots",        "private",      "width", "encoder", "sender",
                                    "sender_layer", "refiner",      "dim",   "heads",   "ffn",
                                    "layers",       "encoder_sees", NULL };
static const tn_part_row parts[] = {
    { "a", "a.model", .shape = "a.shape", .rms = "to.a.rms", .optional = true },
    { "b", "b.model", .shape = "b.shape", .rms = "to.b.rms", .optional = true },
    { "c", "c.model", .shape = "c.shape", .rms = "to.c.rms", .optional = true },
    { "encoder", "encoder_from", .same = same },
};

/* Distillation, without which no teacher reads the text: a step is then less than half as large. */
static const char *const gives_up[] = { "loss.kd=0", "loss.state=0", NULL };
static const tn_loss_row losses[] = { { "loss", "a.labels" } };

static bool couples_rows(const tn_settings *st)
{
    return tn_settings_float(st, "loss.nce") != 0 || tn_settings_float(st, "loss.manifold") != 0;
}

#define VALUES(...) ((const char *const[]){ __VA_ARGS__, NULL })
/* The workload that the first wire was measured at: a reader of Llama 3.1's shape with random weights, 64 texts of 1,280 bytes, 32 slots,
 * the anchor and 2 tokens of a question, 23 of an answer (its end among them), K = 4. The pass over BOS ; P ; anchor ; question ; answer
 * reads 58 places; the teacher's row ends with the answer, and its pass, which ends before token K + 1, reads 254. */
static const tn_preset presets[] = {
    { "wire_seed", "one frozen reader with 8.03 G random parameters, texts made up",
      VALUES("a.shape=dim=4096 layers=32 heads=32 kv_heads=8 ffn=14336 vocab=128256 rope_base=500000 norm_eps=1e-5 "
             "tied=false train.context=8192",
             "task=letters", "a.ids=128256", "a.length=26", "a.before=3", "a.text=250", "a.told=274", "bytes=1280",
             "questions=1", "contexts=4096", "slots=32", "width=256", "encoder=bytes", "dim=256", "layers=6", "heads=8",
             "ffn=1024", "hidden=512", "place=embeddings", "loss.first=0.5", "loss.k=4", "loss.k_ce=0.5", "loss.kd=1",
             "loss.kd_temperature=2", "train.batch=64", "plan.recompute=trained", "train.lr=1e-4", "train.eval_every=0",
             "ckpt.every=0") },
};

static const char *const defaults[] = { "train.lr=3e-4", "train.warmup=200", "train.decay=0.01", NULL };

const tn_model tn_model_wire = {
    TN_MODEL_HEAD,
    .name = "wire",
    .summary = "a text as a short latent message that frozen language models read",
    .settings = wire_settings,
    .n_settings = WIRE_SETTINGS,
    .build = wire_build_train,
    .defaults = defaults,
    .presets = presets,
    .n_presets = sizeof presets / sizeof *presets,
    .assumes = assumes,
    .n_assumes = sizeof assumes / sizeof *assumes,
    .choose = wire_choose,
    .losses = losses,
    .n_losses = 1,
    .gives_up = gives_up,
    .couples_rows = couples_rows,
    TN_INPUTS(inputs),
    TN_STEPS(steps),
    TN_PARTS(parts),
    .metrics = wire_metrics,
    .n_metrics = WIRE_METRICS,
};
