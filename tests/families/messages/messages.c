/* messages: two language models that stay as they are, and a trained message between them.
 *
 * A record is four things x, y, z, w of six each, and a tone. `source` is a vector of numbers that mixes codes of the four; `asked` says x, y
 * and z in the sender's language, among words that say nothing, in a tone of two; the answer, in the receiver's language, is x, y and then
 * w in the tone that was asked in. So neither input has all of it: w is in the source alone, the tone in the question alone.
 *
 *     heard   = pooled hidden states of the frozen sender on `asked`
 *     message = an MLP of (source, heard), P vectors of the receiver's width
 *     said    = the frozen receiver behind the message, its hidden states turned by one trained matrix, its own head
 *     loss    = cross-entropy of the answer + contrast * InfoNCE of (source, heard)
 *
 * Held-out records have an x, y, z that no training record has, each once: their pairs can be ranked (recall@k), and their answers are
 * composed. The file is a shared object of its own and includes <tenon/model.h> alone. */
#include <tenon/model.h>

#include <stdlib.h>
#include <string.h>

enum {
    VALUES = 6,
    CONTENTS = VALUES * VALUES * VALUES,
    THINGS = 4,
    VALID = 40,
    TEST = 40,
    KNOWN = CONTENTS - VALID - TEST,
    WORDS = 3 * VALUES, /* of either language: those of x, of y, of z or w */
    TONE = WORDS,
    NOTHING = TONE + 2,
    SENDER_VOCAB = NOTHING + 1, /* a tone is one of two tokens */
    BEGIN = WORDS,
    END = BEGIN + 1,
    RECEIVER_VOCAB = END + 1,
    SPOKEN = 4 /* three words and the end */
};

static const tn_setting settings[] = {
    TN_SETTING_INT("features", "32", TN_RANGE(8, 256), "", "numbers of a source"),
    TN_SETTING_FLOAT("noise", "0.5", TN_RANGE(0, 10), "", "deviation of the noise on them"),
    TN_SETTING_INT("records", "1088", TN_RANGE(1, 1e6), "", "training records"),
    TN_SETTING_INT("asked", "7", TN_RANGE(4, 64), "tokens", "length of a question"),
    TN_SETTING_INT("hidden", "64", TN_RANGE(1, 4096), "", "width of the encoder"),
    TN_SETTING_INT("shared", "24", TN_RANGE(1, 4096), "", "width in which sources and questions are compared"),
    TN_SETTING_INT("vectors", "3", TN_RANGE(1, 64), "", "vectors of a message"),
    TN_SETTING_FLOAT("contrast", "0.5", TN_RANGE(0, 100), "", "weight of the comparison in the loss"),
    TN_SETTING_TEXT("sender.model", "ten", "model or preset of the sender"),
    TN_SETTING_INT("sender.vocab", "21", TN_RANGE(SENDER_VOCAB, 1e6), "", "tokens of the sender"),
    TN_SETTING_INT("sender.dim", "32", TN_RANGE(2, 4096), "", "width of the sender"),
    TN_SETTING_TEXT("receiver.model", "gpt", "model or preset of the receiver"),
    TN_SETTING_INT("receiver.vocab", "20", TN_RANGE(RECEIVER_VOCAB, 1e6), "", "tokens of the receiver"),
    TN_SETTING_INT("receiver.dim", "64", TN_RANGE(2, 4096), "", "width of the receiver"),
};

/* --- data ------------------------------------------------------------------------------------------------------------------- */

static const tn_input_row inputs[] = {
    { "source", TN_F32, { TN_B, "features" }, .pad = 0 },
    { "asked", TN_I32, { TN_B, "asked" }, .below = "sender.vocab" },
    { "begin",
      TN_I32,
      { TN_B, "1" },
      .below = "receiver.vocab" }, /* what an answer begins with: generation reads it, and nothing else does */
    { "said", TN_I32, { TN_B, "4" }, .below = "receiver.vocab" },
    { "labels", TN_I32, { TN_B, "4" }, .below = "receiver.vocab", .pad = -1 },
    { "rows", TN_I32, { "1" }, .valid_rows = true },
};
enum { SOURCE, ASKED, BEGINS, SAID, LABELS };

typedef struct data {
    uint64_t seed;
    int64_t features, asked;
    float noise;
    int32_t content[CONTENTS]; /* in the order of the splits */
    float code[];              /* (THINGS, VALUES, features) */
} data;

/* Number i of a stream, whatever was asked before (splitmix64). */
static uint64_t draw(uint64_t seed, uint64_t stream, uint64_t i)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + stream * 0xd1342543de82ef95u + (i + 1) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static float normal(uint64_t seed, uint64_t stream, uint64_t i)
{
    double sum = -6; /* of twelve uniform numbers */
    for (uint64_t k = 0; k < 12; k++) sum += (double)(draw(seed, stream, i * 12 + k) >> 11) * 0x1p-53;
    return (float)sum;
}

static tn_status data_open(const tn_settings *st, void **out, tn_records_about *about)
{
    const int64_t features = tn_settings_int(st, "features"), codes = THINGS * VALUES * features;
    data *d = malloc(sizeof *d + sizeof *d->code * (size_t)codes);
    if (!d) return tn_model_error("no memory for the codes of features=%lld: use fewer", (long long)features);
    *d = (data){ .seed = (uint64_t)tn_settings_int(st, "seed"),
                 .features = features,
                 .asked = tn_settings_int(st, "asked"),
                 .noise = (float)tn_settings_float(st, "noise") };
    for (int64_t i = 0; i < codes; i++) d->code[i] = normal(d->seed, 1, (uint64_t)i);
    for (int i = 0; i < CONTENTS; i++) d->content[i] = i;
    for (int i = CONTENTS - 1; i > 0; i--) {
        const int k = (int)(draw(d->seed, 2, (uint64_t)i) % (uint64_t)(i + 1)), was = d->content[i];
        d->content[i] = d->content[k];
        d->content[k] = was;
    }
    *about = (tn_records_about){ .count = { tn_settings_int(st, "records"), VALID, TEST },
                                 .identity = draw(d->seed, (uint64_t)(features * 1000 + d->asked),
                                                  (uint64_t)(d->noise * 1e6f)) };
    *out = d;
    return TN_OK;
}

static void data_close(void *d) { free(d); }

static void put_source(const data *d, const int *thing, uint64_t stream, float *to)
{
    for (int64_t f = 0; f < d->features; f++) {
        to[f] = d->noise * normal(d->seed, stream, 100 + (uint64_t)f);
        for (int k = 0; k < THINGS; k++) to[f] += d->code[(k * VALUES + thing[k]) * d->features + f];
    }
}

/* The words of x, y, z and the tone stand in this order, at places that differ from record to record. */
static void put_asked(const data *d, const int *thing, int tone, uint64_t stream, int32_t *to)
{
    const int32_t word[] = { TONE + tone, thing[0], VALUES + thing[1], 2 * VALUES + thing[2] };
    int64_t left = 4;
    for (int64_t t = 0; t < d->asked; t++) {
        const bool here = left && (int64_t)(draw(d->seed, stream, 10 + (uint64_t)t) % (uint64_t)(d->asked - t)) < left;
        to[t] = here ? word[4 - left--] : NOTHING;
    }
}

static int64_t data_read(const void *from, int split, int64_t i, int64_t step, void *const *at)
{
    const data *d = from;
    const uint64_t stream = 16 + (uint64_t)i * TN_RECORD_SPLITS + (uint64_t)split;
    const int content = d->content[split == 0 ? i % KNOWN : split == 1 ? KNOWN + i : KNOWN + VALID + i];
    const int tone = (int)(draw(d->seed, stream, 0) % 2), w = (int)(draw(d->seed, stream, 1) % VALUES);
    const int thing[THINGS] = { content % VALUES, content / VALUES % VALUES, content / VALUES / VALUES, w };
    const int32_t answer[SPOKEN] = { thing[0], VALUES + thing[1], 2 * VALUES + (w + 3 * tone) % VALUES, END };
    (void)step;
    if (at[SOURCE]) put_source(d, thing, stream, at[SOURCE]);
    if (at[ASKED]) put_asked(d, thing, tone, stream, at[ASKED]);
    if (at[BEGINS]) *(int32_t *)at[BEGINS] = BEGIN;
    for (int t = 0; t < SPOKEN; t++) {
        if (at[SAID]) ((int32_t *)at[SAID])[t] = t ? answer[t - 1] : BEGIN;
        if (at[LABELS]) ((int32_t *)at[LABELS])[t] = answer[t];
    }
    return SPOKEN;
}

static const tn_records records = { .name = "messages",
                                    .inputs = inputs,
                                    .n_inputs = sizeof inputs / sizeof *inputs,
                                    .open = data_open,
                                    .close = data_close,
                                    .read = data_read };

/* --- the network ------------------------------------------------------------------------------------------------------------ */

typedef struct net {
    tn_graph *g;
    const tn_settings *st;
    const tn_batch *b;
    tn_part sender, receiver;
    int64_t d; /* of the receiver */
    tn_ref heard, message;
    tn_ref source_at, asked_at; /* (B, shared), of length 1 */
} net;

static tn_ref dense(net *n, tn_ref x, const char *w, const char *bias, int64_t to, tn_act act)
{
    const int64_t from = tn_ref_dim(n->g, x, -1);
    return tn_linear(n->g, x, tn_param(n->g, w, tn_shape(to, from), tn_normal(1 / sqrtf((float)from))),
                     .bias = tn_param(n->g, bias, tn_shape(to), tn_zeros), .act = act);
}

/* A part on tokens, a prefix, or both; it is never trained. */
static tn_status ask(net *n, const tn_part *p, tn_ref prefix, tn_ref tokens, tn_forward *out)
{
    tn_batch in = { .size = sizeof in, .batch = n->b->batch, .step = n->b->step };
    if (prefix.id) tn_batch_add(&in, "prefix", prefix), in.length += tn_ref_dim(n->g, prefix, 1);
    if (tokens.id) tn_batch_add(&in, "tokens", tokens), in.length += tn_ref_dim(n->g, tokens, 1);
    tn_frozen_begin(n->g);
    const tn_status s = tn_part_forward(n->g, p, &in, out);
    tn_frozen_end(n->g);
    return s;
}

/* Everything that all steps share: what was asked, the two places to compare, the message. */
static tn_status begin(net *n, tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    static const char *const sender[] = { "layers=1", "train.context=64", NULL };
    static const char *const receiver[] = { "layers=2", "heads=4", "train.context=72", NULL };
    const int64_t P = tn_settings_int(st, "vectors"), shared = tn_settings_int(st, "shared");
    tn_forward f;
    *n = (net){ .g = g, .st = st, .b = b };
    tn_status s = tn_part_open(g, st, "sender", tn_settings_text(st, "sender.model"), sender, &n->sender);
    if (s == TN_OK) s = tn_part_open(g, st, "receiver", tn_settings_text(st, "receiver.model"), receiver, &n->receiver);
    if (s == TN_OK) s = ask(n, &n->sender, TN_NONE, tn_in(b, "asked"), &f);
    if (s != TN_OK) return s;
    n->d = tn_settings_int(n->receiver.settings, "dim");
    n->heard = tn_mean(g, f.hidden, 1);
    const tn_ref source = tn_in(b, "source");
    n->source_at =
        tn_l2_normalize(g, dense(n, source, "compare.source", "compare.source_bias", shared, TN_ACT_NONE), 1e-6f);
    n->asked_at =
        tn_l2_normalize(g, dense(n, n->heard, "compare.asked", "compare.asked_bias", shared, TN_ACT_NONE), 1e-6f);
    const tn_ref both = tn_concat(g, ((const tn_ref[]){ source, n->heard }), 2, 1);
    const tn_ref h = dense(n, both, "encoder.w1", "encoder.b1", tn_settings_int(st, "hidden"), TN_ACT_GELU);
    n->message =
        tn_reshape(g, dense(n, h, "encoder.w2", "encoder.b2", P * n->d, TN_ACT_NONE), tn_shape(b->batch, P, n->d));
    return TN_OK;
}

/* The last `last` hidden states of the receiver, turned. */
static tn_ref ear(net *n, tn_ref hidden, int64_t last)
{
    const tn_ref x = tn_slice(n->g, hidden, 1, tn_ref_dim(n->g, hidden, 1) - last, last);
    return tn_linear(n->g, x, tn_param(n->g, "ear", tn_shape(n->d, n->d), tn_normal(1 / sqrtf((float)n->d))));
}

static tn_status build_step(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    net n;
    tn_forward f;
    tn_status s = begin(&n, g, st, b);
    if (s == TN_OK) s = ask(&n, &n.receiver, n.message, tn_in(b, "said"), &f);
    if (s != TN_OK) return s;
    const tn_ref turned = ear(&n, f.hidden, SPOKEN), answer = tn_linear_xent(g, turned, f.head, tn_in(b, "labels"));
    if (tn_wants(b, "logits")) tn_output(g, "logits", tn_linear(g, turned, f.head));
    const tn_ref compared = tn_infonce(g, tn_live(g, n.source_at, tn_in(b, "rows")),
                                       tn_live(g, n.asked_at, tn_in(b, "rows")), .temperature = 0.1f);
    tn_output(g, "answer", answer);
    tn_output(g, "compared", compared);
    tn_output(g, "source_at", n.source_at);
    tn_output(g, "asked_at", n.asked_at);
    tn_output(g, "loss",
              tn_add(g, answer,
                     tn_mean_all(g, tn_mul(g, compared,
                                           tn_scalar(g, "contrast", (float)tn_settings_float(st, "contrast"))))));
    return tn_graph_status(g);
}

/* Greedy: each word is the largest logit behind the words before it; all of them are embedded by the receiver's own table. */
static tn_status build_generate(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    static const char *const name[SPOKEN] = { "word0", "word1", "word2", "word3" };
    net n;
    tn_forward f;
    tn_status s = begin(&n, g, st, b);
    tn_ref before = n.message, said = tn_in(b, "begin");
    for (int t = 0; t < SPOKEN && s == TN_OK; t++) {
        s = ask(&n, &n.receiver, before, said, &f);
        if (s != TN_OK) break;
        before = tn_concat(g, ((const tn_ref[]){ before, tn_embed(g, said, tn_tied(g, "receiver.embed")) }), 2, 1);
        said = tn_argmax(g, tn_linear(g, ear(&n, f.hidden, 1), f.head));
        tn_output(g, name[t], said);
    }
    return s == TN_OK ? tn_graph_status(g) : s;
}

static const tn_step_row steps[] = {
    { "train", build_step, .gradients = true },
    { "eval", build_step, .gradients = false },
    { "generate", build_generate, .gradients = false },
};

/* --- what it is judged by --------------------------------------------------------------------------------------------------- */

/* Of all questions, how many stand at least as near to a source as its own does; equal ones count against it. */
static double recall(const float *const *kept, int64_t rows, int64_t each, int64_t k)
{
    int64_t hits = 0;
    for (int64_t i = 0; i < rows; i++) {
        int64_t before = 0;
        double own = 0;
        for (int64_t f = 0; f < each; f++) own += (double)kept[0][i * each + f] * (double)kept[1][i * each + f];
        for (int64_t j = 0; j < rows; j++) {
            double other = 0;
            for (int64_t f = 0; f < each; f++) other += (double)kept[0][i * each + f] * (double)kept[1][j * each + f];
            before += j != i && !(other < own);
        }
        hits += before < k;
    }
    return (double)hits / (double)rows;
}

static double recall_1(const float *const *kept, int64_t rows, const int64_t *each, const tn_settings *st)
{
    (void)st;
    return recall(kept, rows, each[0], 1);
}

static double recall_5(const float *const *kept, int64_t rows, const int64_t *each, const tn_settings *st)
{
    (void)st;
    return recall(kept, rows, each[0], 5);
}

/* Answers of which every word is right, the end too. */
static void add_exact(const tn_metric_view *v, double *sums)
{
    static const char *const name[SPOKEN] = { "word0", "word1", "word2", "word3" };
    int64_t n;
    const int32_t *labels = v->input(v->ctx, "labels", &n);
    const float *word[SPOKEN];
    for (int t = 0; t < SPOKEN; t++) word[t] = v->output(v->ctx, name[t], &n);
    for (int64_t i = 0; i < v->rows; i++) {
        bool right = labels != NULL;
        for (int t = 0; t < SPOKEN && right; t++) right = word[t] && (int32_t)word[t][i] == labels[i * SPOKEN + t];
        sums[0] += right;
        sums[1] += 1;
    }
}

static const tn_metric_row metrics[] = {
    { "loss", "", TN_LOWER, TN_MEAN_BY_COUNT, .key = "heldout" },
    { "answer", "nats", TN_LOWER, .how = TN_MEAN_BY_COUNT },
    { "recall@1", "", TN_HIGHER, TN_OF_WHOLE, .keep = { "source_at", "asked_at" }, .whole = recall_1 },
    { "recall@5", "", TN_HIGHER, TN_OF_WHOLE, .keep = { "source_at", "asked_at" }, .whole = recall_5 },
    { "exact", "", TN_HIGHER, TN_ADDED, .add = add_exact, .runs = "generate" },
};

static const char *const scalars[] = { "contrast", NULL };
static const char *const defaults[] = { "train.lr=2e-2",   "train.decay=0",  "train.warmup=10",
                                        "train.steps=300", "train.batch=64", NULL };

static const tn_model model = {
    TN_MODEL_HEAD,
    .name = "messages",
    .summary = "a trained message between two frozen language models",
    .settings = settings,
    .n_settings = sizeof settings / sizeof *settings,
    .build = build_step,
    .defaults = defaults,
    .scalars = scalars,
    .records = &records,
    TN_INPUTS(inputs),
    TN_METRICS(metrics),
    TN_STEPS(steps),
};

const tn_model *tenon_model(void);
const tn_model *tenon_model(void) { return &model; }
