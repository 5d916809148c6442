/* The text bridge on sentences made up here, in f32 on the device of TENON_TEST_DEVICE: what does and does not depend on what,
 * that it learns, and that a reply token by token is what the whole network says at once. */
#include "models/bridge/bridge.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "device_memory.h"
#include "models/models.h"
#include "ops/rollout/rollout.h"
#include "sample/sample.h"
#include "testlib.h"
#include "train/run/train_settings.h"
#include "train/run/training.h"
#include "train/source/records.h"
#include "train/trainer/trainer.h"
#include "world.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- sentences -------------------------------------------------------------------------------------------------------------- */

/* A premise says one of VALUES for each of three things, with a word of no weight somewhere; its hypothesis says the first two and the
 * third, each in another word. Triples of held-out records are in no training record. */
enum {
    VALUES = 6,
    TRIPLES = VALUES * VALUES * VALUES,
    TEXT = 6,
    VOCAB = 2 + 6 * VALUES,
    VALID = 48,
    FILLER = VOCAB - 1
};

static const tn_input_row rows[] = {
    { "premise", TN_I32, { TN_B, "text" }, .below = "vocab" },
    { "premise_length", TN_I32, { TN_B }, .below = "text" },
    { "hypothesis", TN_I32, { TN_B, "text" }, .below = "vocab" },
    { "hypothesis_length", TN_I32, { TN_B }, .below = "text" },
    { "count", TN_I32, { "1" }, .valid_rows = true },
    { "sample", TN_I32, .dims = { TN_B } },
};
static const tn_source_number numbers[] = { { "text", TEXT }, { "vocab", VOCAB }, { "bits", 0.5 } };

static tn_status open_sentences(const tn_settings *st, void **data, tn_records_about *about)
{
    (void)st;
    *data = NULL;
    *about = (tn_records_about){
        .count = { 2 * (TRIPLES - VALID), VALID, 0 }, .numbers = numbers, .n_numbers = 3, .identity = 24
    };
    return TN_OK;
}

static int64_t read_sentence(const void *data, int split, int64_t i, int64_t step, void *const *at)
{
    const int64_t order = split == TN_TRAIN ? VALID + i % (TRIPLES - VALID) : i;
    const int triple = (int)(order * 125 % TRIPLES); /* 125 and 216 have no common factor */
    const int32_t part[3] = { triple % VALUES, triple / VALUES % VALUES, triple / VALUES / VALUES };
    const tn_rng r = { 5, (uint64_t)split };
    const int filler = (int)tn_rng_below(r, (uint64_t)i, 4);
    int32_t premise[TEXT] = { 0 }, hypothesis[TEXT] = { 0 };
    (void)data, (void)step;
    for (int t = 0, k = 0; t < 4; t++) premise[t] = t == filler ? FILLER : 1 + k * VALUES + part[k], k += t != filler;
    for (int k = 0; k < 3; k++) hypothesis[k] = 1 + (3 + k) * VALUES + part[k];
    if (at[0]) memcpy(at[0], premise, sizeof premise);
    if (at[1]) *(int32_t *)at[1] = 4;
    if (at[2]) memcpy(at[2], hypothesis, sizeof hypothesis);
    if (at[3]) *(int32_t *)at[3] = 3;
    if (at[5]) *(int32_t *)at[5] = split == TN_TRAIN ? (int32_t)i : 0;
    return 1;
}

static const tn_records sentences = { "sentences", rows, 6, .open = open_sentences, .read = read_sentence };

/* --- a rig ------------------------------------------------------------------------------------------------------------------- */

#define SMALL                                                                                                          \
    "width=8", "height=6", "prefix=6", "dim=32", "heads=4", "ffn=48", "layers=1", "hidden=32", "decoder.dim=32",       \
        "decoder.heads=4", "decoder.layers=1", "body=identity", "flow.dim=8", "flow.layers=1", "flow.depth=4"

static const char *const small[] = { SMALL, NULL };
static const char *const lattice[] = { SMALL, "body=lattice", "residual=true", "flow.field=2", NULL };
static const char *const letters[] = { SMALL, "vocab=256", "text=16", "body=mlp", NULL }; /* tokens are bytes */

typedef struct rig {
    tn_model model; /* the bridge, on these sentences */
    tn_settings *settings;
    tn_source source;
    tn_trainer *trainer;
} rig;

static tn_status settings_of(const char *const *words, const char *more, tn_settings **out)
{
    assert_ok(tn_settings_new(out));
    assert_ok(tn_settings_common(*out));
    assert_ok(
        tn_settings_add(*out, tn_model_named("bridge")->settings, tn_model_named("bridge")->n_settings, "bridge"));
    assert_ok(tn_settings_override(*out, "compute=f32"));
    assert_ok(tn_settings_override(*out, tn_test_device() == TN_CUDA ? "device=cuda" : "device=cpu"));
    for (; *words; words++) assert_ok(tn_settings_override(*out, *words));
    return more ? tn_settings_override(*out, more) : TN_OK;
}

static void open_rig_of(rig *r, const char *const *words, const char *more, int64_t batch, bool forward_only)
{
    *r = (rig){ .model = *tn_model_named("bridge") };
    r->model.records = &sentences;
    assert_ok(settings_of(words, more, &r->settings));
    assert_ok(tn_settings_override(r->settings, "train.lr=1e-2"));
    assert_ok(tn_settings_override(r->settings, "train.warmup=10"));
    assert_ok(tn_settings_override(r->settings, "train.steps=100"));
    const tn_source_open how = { .model = &r->model, .settings = r->settings, .needed = true, .trains = !forward_only };
    assert_ok(tn_source_find(&how, &r->source));
    const tn_input_spec spec = tn_source_input_spec(&r->source);
    const char *const asks[] = { "said", "words", "encode", NULL };
    const tn_trainer_options o = { .model = &r->model,
                                   .settings = r->settings,
                                   .batch = batch,
                                   .length = 1,
                                   .input_spec = &spec,
                                   .steps = asks,
                                   .forward_only = forward_only,
                                   .threads = 1 };
    assert_ok(tn_trainer_new(&o, &r->trainer));
    const tn_source_start start = { .trainer = r->trainer,
                                    .batch = batch,
                                    .length = 1,
                                    .accumulate = 1,
                                    .heldout = TN_VALID,
                                    .heldout_only = forward_only };
    assert_ok(r->source.start(&r->source, &start));
}

static void open_rig(rig *r, const char *more, int64_t batch, bool forward_only)
{
    open_rig_of(r, small, more, batch, forward_only);
}

static void close_rig(rig *r)
{
    tn_source_close(&r->source);
    tn_trainer_free(r->trainer);
    tn_settings_free(r->settings);
}

static void train(rig *r, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t count;
        float loss;
        tn_update_result done;
        assert_ok(tn_source_next(&r->source, i, r->trainer, &count));
        assert_ok(tn_trainer_grad(r->trainer, i, &loss));
        assert_ok(tn_trainer_apply(r->trainer, i, 1, loss, &done));
        assert_true(done.ok);
    }
}

static const float *output(rig *r, const char *name, int64_t *n)
{
    const float *x = tn_trainer_output(r->trainer, name, n);
    assert_non_null(x);
    return x;
}

/* --- what depends on what ------------------------------------------------------------------------------------------------------ */

/* Tokens behind the one that ends a text are nothing to anybody. */
static void padding(void **state)
{
    (void)state;
    enum { B = 8 };
    rig r;
    int64_t n, count;
    float loss, again;
    open_rig(&r, NULL, B, true);
    assert_ok(tn_source_heldout(&r.source, 0, r.trainer, &count));
    assert_ok(tn_trainer_eval(r.trainer, &loss));
    const float *x = output(&r, "predicted", &n);
    float *before = test_malloc(sizeof *before * (size_t)n);
    memcpy(before, x, sizeof *before * (size_t)n);
    int32_t *premise = tn_trainer_input(r.trainer, "premise"), *told = tn_trainer_input(r.trainer, "hypothesis");
    for (int b = 0; b < B; b++)
        for (int t = 0; t < TEXT; t++) {
            if (t >= 4) premise[b * TEXT + t] = (b + t) % VOCAB;
            if (t > 3) told[b * TEXT + t] = (3 * b + t) % VOCAB;
        }
    assert_ok(tn_trainer_eval(r.trainer, &again));
    assert_true(tn_world_same(output(&r, "predicted", &n), before, n, 1e-6));
    assert_true(fabsf(loss - again) <= (tn_test_device() == TN_CPU ? 0 : 1e-6f * fabsf(loss)));
    told[3] = 1 + told[3]; /* ... but the one that ends it is */
    assert_ok(tn_trainer_eval(r.trainer, &again));
    assert_true(fabsf(loss - again) > 1e-5f * fabsf(loss));
    premise[2] = 1 + premise[2] % (VOCAB - 1);
    assert_ok(tn_trainer_eval(r.trainer, &again));
    assert_true(tn_world_distance(output(&r, "predicted", &n), before, n / B) > 1e-4);
    assert_true(tn_world_same(output(&r, "predicted", &n) + n / B, before + n / B, n - n / B, 1e-6));
    test_free(before);
    close_rig(&r);
}

/* Rows behind the last valid one count nowhere. */
static void short_batch(void **state)
{
    (void)state;
    rig full, part;
    int64_t n, count;
    float a, b;
    open_rig(&full, NULL, 5, true);
    open_rig(&part, NULL, 8, true);
    for (int64_t i = 0; i < 2; i++) {
        assert_ok(tn_source_heldout(&full.source, 0, full.trainer, &count));
        assert_ok(tn_source_heldout(&part.source, 0, part.trainer, &count));
        const tn_feed f = tn_trainer_feed_again(part.trainer);
        tn_feed_end(&f, 5);
        assert_ok(tn_trainer_eval(full.trainer, &a));
        assert_ok(tn_trainer_eval(part.trainer, &b));
        assert_true(fabsf(a - b) < 1e-5f * fabsf(a));
        assert_true(*output(&full, "written", &n) == 20 && *output(&part, "written", &n) == 20);
        assert_true(fabsf(*output(&full, "cosine", &n) - *output(&part, "cosine", &n)) < 1e-5f);
    }
    close_rig(&full);
    close_rig(&part);
}

static void one_by_one(void **state)
{
    (void)state;
    enum { B = 8, CELLS = 48 };
    rig many, one;
    int64_t n, count;
    open_rig(&many, NULL, B, true);
    open_rig(&one, NULL, 1, true);
    assert_ok(tn_source_heldout(&many.source, 0, many.trainer, &count));
    const int32_t *from = tn_trainer_input(many.trainer, "premise");
    ((int32_t *)tn_trainer_input(many.trainer, "premise_length"))[2] = 2;
    ((int32_t *)tn_trainer_input(many.trainer, "premise_length"))[3] = 0; /* nothing is a sentence too */
    assert_ok(tn_trainer_run_step(many.trainer, "encode"));
    const float *all = tn_trainer_step_output(many.trainer, "encode", "surface", NULL, &n);
    assert_int_equal(n, B * CELLS);
    for (int b = 0; b < B; b++) {
        memcpy(tn_trainer_input(one.trainer, "premise"), from + b * TEXT, sizeof *from * TEXT);
        *(int32_t *)tn_trainer_input(one.trainer, "premise_length") = b == 2 ? 2 : b == 3 ? 0 : 4;
        assert_ok(tn_trainer_run_step(one.trainer, "encode"));
        const float *x = tn_trainer_step_output(one.trainer, "encode", "surface", NULL, &n);
        assert_int_equal(n, CELLS);
        for (int i = 0; i < CELLS; i++) {
            assert_true(fabsf(x[i]) <= 1);
            if (!(fabsf(x[i] - all[b * CELLS + i]) <= 1e-5f)) fail_msg("row %d, cell %d", b, i);
        }
    }
    close_rig(&many);
    close_rig(&one);
}

/* --- learning -------------------------------------------------------------------------------------------------------------------- */

typedef struct body_case {
    const char *word;
    int64_t steps;
    double recall_10, right; /* that it reaches; recall_10 of 0: the mean vector finds none */
} body_case;

static const body_case bodies[] = {
    { "body=lattice", 40, 0.4, 0.3 }, { "body=identity", 100, 0.9, 0.6 },    { "body=linear", 100, 0.9, 0.6 },
    { "body=mlp", 100, 0.9, 0.6 },    { "body=transformer", 100, 0.9, 0.6 }, { "body=mean", 100, 0, 0.4 },
};

static void learns(void **state)
{
    const body_case *c = *state;
    rig r;
    tn_evaluation first, then;
    open_rig(&r, c->word, 24, false);
    assert_ok(tn_evaluate(r.trainer, &r.source, 0, &first));
    train(&r, c->steps);
    assert_ok(tn_evaluate(r.trainer, &r.source, 0, &then));
    const tn_scores *a = &first.scores, *b = &then.scores;
    const double before = tn_scores_get(a, "recall_10"), ten = tn_scores_get(b, "recall_10"),
                 own = tn_scores_get(b, "token_accuracy"), other = tn_scores_get(b, "token_accuracy_shuffled");
    const bool finds = c->recall_10 > 0;
    if (!(before <= 0.35 && (finds ? ten >= c->recall_10 : ten <= 0.25) && own >= c->right && own > other))
        fail_msg("%s: recall_10 %g -> %g, tokens %g, of another %g", c->word, before, ten, own, other);
    assert_true(tn_scores_get(b, "loss") < tn_scores_get(a, "loss") && tn_scores_get(b, "recall_1") <= ten);
    assert_true(tn_scores_get(b, "cosine") <= 1.0001);
    assert_true(tn_scores_get(b, "overlap_1") == 0); /* the two say nothing in the same words */
    assert_true(fabs(tn_scores_get(b, "bits_per_byte") - 0.5 * tn_scores_get(b, "xent")) < 1e-9);
    close_rig(&r);
}

/* --- metrics by hand ------------------------------------------------------------------------------------------------------------- */

static void recalls(void **state)
{
    (void)state;
    const int64_t two[] = { 2, 2 }, four[] = { 4, 3 };
    float same[24], x[] = { 1, 0, 0, 1, -1, 0 }, turned[] = { 1, 0, -1, 0, 0, 1 };
    for (int i = 0; i < 24; i++) same[i] = i % 2 ? 0 : 1;
    const float *const equal[] = { same, same }, *const apart[] = { x, x }, *const third[] = { x, turned };
    assert_true(bridge_recall_1(equal, 12, two, NULL) == 0 && bridge_recall_10(equal, 12, two, NULL) == 0 &&
                bridge_recall_10(equal, 10, two, NULL) == 1);
    assert_true(bridge_recall_1(apart, 3, two, NULL) == 1 && bridge_recall_1(third, 3, two, NULL) == 1.0 / 3);
    x[2] = NAN;
    assert_true(bridge_recall_1(apart, 3, two, NULL) <= 2.0 / 3);
    /* among 1,000 of 1,500 rows: each sees its twin 750 rows on */
    float *many = test_malloc(sizeof *many * 3000);
    const float *const twins[] = { many, many };
    for (int i = 0; i < 1500; i++) {
        many[2 * i] = cosf(0.004f * (float)(i % 750));
        many[2 * i + 1] = sinf(0.004f * (float)(i % 750));
    }
    assert_true(bridge_recall_1(twins, 1500, two, NULL) == 0 && bridge_recall_10(twins, 1500, two, NULL) == 1);
    for (int i = 0; i < 1500; i++) many[2 * i + 1] = sinf(0.004f * (float)i), many[2 * i] = cosf(0.004f * (float)i);
    memcpy(many, many + 2002, 2 * sizeof *many); /* row 0 and row 1001: 1001 sees 0, 0 does not see 1001 */
    assert_true(bridge_recall_1(twins, 1500, two, NULL) == 1499.0 / 1500);
    test_free(many);
    /* words of premises and hypotheses: 0 is none, and twice is once */
    const float premise[] = { 1, 2, 3, 0, 4, 5, 4, 6, 7, 8, 0, 0 }, told[] = { 3, 1, 0, 4, 4, 9, 0, 0, 0 };
    const float *const bags[] = { premise, told };
    assert_true(bridge_overlap_1(bags, 3, four, NULL) == 2.0 / 3 && bridge_overlap_10(bags, 3, four, NULL) == 1);
}

/* --- mistakes -------------------------------------------------------------------------------------------------------------------- */

static void mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *word, *says;
    } wrong[] = {
        { "prefix=7", "prefix=7 does not divide the 48 cells of width=8 and height=6: use 6" },
        { "heads=5", "dim=32 must be a multiple of heads=5" },
        { "decoder.heads=5", "part decoder: dim=32 must be a multiple of heads=5" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tn_settings *st;
        tn_trainer *t;
        assert_ok(settings_of(letters, wrong[i].word, &st));
        const tn_trainer_options o = {
            .model = tn_model_named("bridge"), .settings = st, .batch = 2, .length = 1, .threads = 1
        };
        assert_fails(tn_trainer_new(&o, &t), TN_USAGE, wrong[i].says);
        assert_null(strchr(tn_error_text(), '\n'));
        tn_settings_free(st);
    }
    tn_settings *st;
    assert_ok(settings_of(small, NULL, &st));
    assert_fails(tn_settings_override(st, "width=1"), TN_USAGE, "width");
    tn_settings_free(st);
}

/* Activations in half precision, as on a GPU: surfaces and what is put out stay f32. */
static void half(void **state)
{
    (void)state;
    static const char *const all[] = { "train", "eval", "said", "encode", "reply" };
    static const char *const puts[] = { "loss", "predicted", "wanted", "surface", "logits" };
    tn_settings *st;
    assert_ok(settings_of(letters, "body=lattice", &st));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const tn_graph_options o = { .activation = TN_BF16, .round = TN_BF16, .training = i == 0, .threads = 1 };
        tn_graph *g;
        tn_plan *plan;
        tn_inputs in;
        tn_batch b = { .size = sizeof b, .batch = 2, .length = 1, .step = all[i] };
        assert_ok(tn_inputs_match(tn_model_named("bridge"), st, NULL, &in));
        assert_ok(tn_graph_new(&o, &g));
        tn_inputs_build(&in, g, &b);
        assert_ok(tn_model_build(tn_model_named("bridge"), g, st, &b));
        for (size_t k = 0; k < sizeof puts / sizeof *puts; k++) {
            const tn_ref x = tn_graph_output(g, puts[k]);
            if (x.id && tn_ref_dtype(g, x) != TN_F32) fail_msg("step %s: %s is not f32", all[i], puts[k]);
        }
        assert_ok(
            tn_graph_compile(g, &(tn_compile_options){ .loss = i == 0 ? tn_graph_output(g, "loss") : TN_NONE }, &plan));
        tn_plan_free(plan);
    }
    tn_settings_free(st);
}

/* --- replies --------------------------------------------------------------------------------------------------------------------- */

/* First values are small: larger ones make the text vary. */
static void enlarge(tn_store *st)
{
    for (size_t i = 0; i < tn_store_count(st); i++) {
        const tn_entry *e = tn_store_at(st, i);
        const int64_t n = tn_dims_count(e->dims);
        if (e->role != TN_ROLE_PARAM || e->dims.rank < 2) continue;
        float *x = tn_memory_floats(st, e->data, n);
        for (int64_t k = 0; k < n; k++) x[k] *= 6;
        tn_memory_put(st, e->data, x, sizeof *x * (size_t)n);
        free(x);
    }
}

/* All tokens of a reply at once: what the decoder says at each, from the surface that the body makes of the premise. */
static tn_status build_whole(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    bridge_config c;
    tn_part decoder;
    tn_forward f;
    bridge_mapped q;
    assert_ok(bridge_config_read(st, &c));
    assert_ok(bridge_decoder_open(g, st, &c, &decoder));
    const bridge_mask m = bridge_masks(g, &c, tn_in(b, "premise_length"));
    const tn_ref p = bridge_encode(g, &c, tn_in(b, "premise"), tn_in(b, "premise_length"), m.words);
    assert_ok(bridge_body_build(g, st, b, &c, p, &q));
    assert_ok(
        bridge_decode(g, &decoder, &c, b->step, tn_l2_normalize(g, q.surface, 1e-6f), tn_in(b, "hypothesis"), &f));
    tn_output(g, "said", tn_argmax(g, tn_linear(g, f.hidden, f.head)));
    return tn_graph_status(g);
}

static void token_by_token(void **state)
{
    (void)state;
    enum { B = 2, T = 16, N = 5 };
    const int32_t prompt[B * N] = { 'T', 'w', 'o', ' ', 'w', 'A', 'm', 'a', 'n', '.' };
    int32_t made[B][T], token[B];
    int64_t n;
    tn_settings *st;
    tn_decoder *d;
    tn_trainer *t;
    const float *logits;
    tn_model model = *tn_model_named("bridge");
    tn_step_row steps[TN_STEPS_MAX];
    memcpy(steps, model.steps, sizeof *steps * model.n_steps);
    steps[model.n_steps++] = (tn_step_row){ .name = "whole", .build = build_whole };
    model.steps = steps;
    assert_ok(settings_of(letters, NULL, &st));
    const char *const asks[] = { "whole", NULL };
    const tn_trainer_options o = {
        .model = &model, .settings = st, .batch = B, .length = 1, .steps = asks, .forward_only = true, .threads = 1
    };
    assert_ok(tn_trainer_new(&o, &t));
    enlarge(tn_trainer_store(t));
    const tn_decoder_options how = {
        .model = &model, .settings = st, .store = tn_trainer_store(t), .batch = B, .capacity = 8, .threads = 1
    };
    assert_ok(tn_decoder_new(&how, &d));
    for (int round = 0; round < 2; round++) { /* the second reply forgets the first */
        assert_ok(tn_decoder_reply(d, prompt, N, &logits));
        assert_int_equal(tn_decoder_tokens_left(d), T);
        for (int i = 0; i < T; i++) {
            for (int b = 0; b < B; b++) {
                token[b] = 0;
                for (int32_t v = 1; v < 256; v++)
                    if (logits[b * 256 + v] > logits[b * 256 + token[b]]) token[b] = v;
                made[b][i] = token[b];
            }
            if (i + 1 < T) assert_ok(tn_decoder_feed(d, token, 1, &logits));
        }
    }
    tn_decoder_free(d);
    int32_t *premise = tn_trainer_input(t, "premise"), *length = tn_trainer_input(t, "premise_length");
    for (int b = 0; b < B; b++) {
        memcpy(premise + b * T, prompt + b * N, sizeof *prompt * N);
        length[b] = N;
        memcpy((int32_t *)tn_trainer_input(t, "hypothesis") + b * T, made[b], sizeof made[b]);
    }
    assert_ok(tn_trainer_run_step(t, "whole"));
    const int32_t *said = tn_trainer_step_output(t, "whole", "said", NULL, &n);
    assert_int_equal(n, B * T);
    assert_memory_equal(said, made, sizeof made);
    assert_true(memcmp(made[0], made[1], sizeof made[0]) != 0); /* ... to different prompts */
    tn_trainer_free(t);
    tn_settings_free(st);
}

typedef struct gathered {
    char text[256];
    size_t n;
} gathered;

static tn_status gather(void *ctx, int64_t sample, const char *text, size_t bytes)
{
    gathered *to = (gathered *)ctx + sample;
    assert_true(to->n + bytes < sizeof to->text);
    memcpy(to->text + to->n, text, bytes);
    to->n += bytes;
    return TN_OK;
}

/* A sampler answers: the same prompt gives the same text, whatever was asked before. */
static void sampler_replies(void **state)
{
    (void)state;
    tn_settings *st;
    tn_store *store;
    tn_tokenizer *bytes;
    tn_sampler *s;
    gathered first[2] = { 0 }, then[2] = { 0 };
    assert_ok(settings_of(letters, NULL, &st));
    assert_ok(tn_store_new(tn_test_device(), 4, &store));
    assert_ok(tn_tokenizer_open("bytes", &bytes));
    const tn_sampler_options o = { .decoder = { .model = tn_model_named("bridge"),
                                                .settings = st,
                                                .store = store,
                                                .batch = 2,
                                                .capacity = 8,
                                                .threads = 1 },
                                   .tokenizer = bytes,
                                   .start = -1 };
    assert_ok(tn_sampler_new(&o, &s));
    tn_sample_options run = { .pick = { 1, 0, 1 }, .seed = 3, .max_tokens = 100, .text = gather, .ctx = first };
    assert_ok(tn_sampler_prompt(s, "A man.", 6, NULL));
    assert_ok(tn_sampler_run(s, &run, NULL));
    assert_true(tn_sampler_result(s, 0).end == TN_SAMPLE_FULL && tn_sampler_result(s, 0).n == 17);
    assert_ok(tn_sampler_prompt(s, "Two women.", 10, NULL));
    tn_sampler_clear(s);
    run.ctx = then;
    assert_ok(tn_sampler_prompt(s, "A man.", 6, NULL));
    assert_ok(tn_sampler_run(s, &run, NULL));
    assert_memory_equal(first, then, sizeof first);
    assert_true(strcmp(first[0].text, first[1].text) != 0);
    assert_fails(tn_sampler_prompt(s, "", 0, NULL), TN_USAGE, "the prompt is empty: give the model a sentence");
    assert_fails(tn_sampler_prompt(s, "A man, a plan, a", 17, NULL), TN_USAGE,
                 "the prompt has 17 tokens, and the encoder reads text=16: use a shorter prompt");
    tn_sampler_free(s);
    tn_store_free(store);
    tn_tokenizer_free(bytes);
    tn_settings_free(st);
}

static int rollouts_of(const tn_trainer *t, bool training, bool backward)
{
    const tn_graph *g = tn_plan_graph(tn_trainer_plan(t, training));
    int n = 0;
    for (size_t i = 0; i < g->n_nodes; i++) n += g->node[i].op == &tn_op_rollout && g->node[i].backward == backward;
    return n;
}

/* The premises of a batch go through the lattice in one call, whatever is kept of it; nothing else does. */
static void one_run(void **state)
{
    static const char *const kept[] = { "flow.keep=0", "flow.keep=1", "plan.recompute=layer" };
    (void)state;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        rig r;
        open_rig_of(&r, lattice, kept[i], 8, false);
        assert_int_equal(rollouts_of(r.trainer, true, false), 1);
        assert_int_equal(rollouts_of(r.trainer, true, true), 1);
        assert_int_equal(rollouts_of(r.trainer, false, false), 1);
        close_rig(&r);
    }
}

void tn_tests_bridge(tn_test_list *l)
{
    tn_test_add(l, one_run, NULL, "bridge: one run of the lattice in a step");
    tn_test_add(l, padding, NULL, "bridge: tokens behind a text change nothing");
    tn_test_add(l, short_batch, NULL, "bridge: rows behind the last count nowhere");
    tn_test_add(l, one_by_one, NULL, "bridge: a batch of sentences is encoded as each of them alone");
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        tn_test_add(l, learns, &bodies[i], "bridge: %s finds and writes held-out sentences", bodies[i].word);
    tn_test_add(l, recalls, NULL, "bridge: recall and overlap by hand");
    tn_test_add(l, mistakes, NULL, "bridge: mistakes in settings");
    tn_test_add(l, half, NULL, "bridge: every step in half precision");
    tn_test_add(l, token_by_token, NULL, "bridge: a reply token by token is what the whole network says");
    tn_test_add(l, sampler_replies, NULL, "bridge: a sampler replies to prompts");
}
