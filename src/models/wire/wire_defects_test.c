/* Ways in which such a model went wrong elsewhere, each with the test that fails on it.
 *
 *   D1   labels are shifted twice              "wire defects: D1 ..." (the reader that counts: T6), "wire model: a label's state has read what
 *                                              stands before it" (wire_test.c), "wire layout: the answer is not shifted" (wire_layout_test.c)
 *   D2   BOS as a target                       "wire defects: D2 ...", "wire layout: BOS is first and no target", "wire source: batches"
 *   D3   distillation at another token         "wire defects: D3 ...", "wire source: batches" (x.told ends as x.tokens does)
 *   D4   states of another token               "wire defects: D4 ..."
 *   D5   anchors differ between losses         "wire defects: D5 D6 ...", "wire layout: text mode ends in the same ids"
 *   D6   an anchor with other tokens in it     "wire defects: D5 D6 ...", "wire defects: D6 ..."
 *   D7   the first token without its blank,    "wire layout: the answer keeps its blank", "wire layout: the blank of GPT-2's Paris";
 *        and looked for at padding             "wire defects: D7 ..." (wire_metrics_test.c)
 *   D8   the length of an answer leaks         "wire source: nothing of an answer's length" (source_wire_test.c), "wire model: answers change
 *                                              no message", "wire messages: answers as the evaluation says" (wire_post_test.c: no cap by gold)
 *   D9   padding is read                       "wire model: bytes behind a text ...", "wire model: a row alone or padded says the same"
 *   D10  the best by one batch; parts that     "wire run: the best checkpoint is the best whole evaluation" (wire_train_test.c), "run: best is the
 *        are not saved                         best evaluation" (run_test.c); "wire defects: D10 ..."
 *   D11  a limit of LoRA without effect        not here: there is no LoRA
 *   D12  terms that train nothing, twice       "wire defects: D12 ..."
 *   D13  a refiner that is off                 "wire defects: D13 ...", "wire model: gradients reach all but the readers (.., refiner=1)"
 *   D14  clipping of a part;                   "wire defects: D14 ...";
 *        a schedule in batches;                "wire run: the learning rate counts steps, not batches" (wire_train_test.c);
 *        F1 on sets, one gold, bytes of a      "wire answers: exact match and F1" (answers_test.c); "wire controls: budgets and bits"
 *        batch, keys merged along heads        (controls_test.c); decoder_test.c: "decoder: equals one in double" has keys before
 *   D15  no end to be said                     "wire layout: the end is a target", "wire source: batches"
 *
 * And what such a build is to be tested by: T1 ids and vectors are the same: "decoder: ids are vectors" (decoder_test.c). T2 finite
 * differences: "decoder: gradients of inputs are slopes", `tenon check wire`. T3 a second implementation: "wire controls: text is the reader
 * alone", tests/golden (wire_*.safetensors), "llama2c: ... speaks as its twin". T4 "decoder: batch is single", "wire model: a row alone or
 * padded says the same". T5 "decoder: cached is whole", "wire messages: answers as the evaluation says". T6 here. */
#include "models/wire/wire.h"

#include "tempdir.h"
#include "train/checkpoint/checkpoint.h"
#include "wire_rig.h"

static float train_loss(rig *r)
{
    float loss;
    assert_ok(tn_trainer_grad(r->trainer, 0, &loss));
    return loss;
}
static const tn_entry *entry(rig *r, const char *name)
{
    const tn_entry *e = tn_store_find(tn_trainer_store(r->trainer), name);
    if (!e) fail_msg("there is no %s", name);
    return e;
}

static int32_t another(int32_t id) { return 3 + (id + 5) % (IDS - 3); }

/* --- D1 to D4: a reader that counts (T6) ------------------------------------------------------------------------------------------ */

#define COUNTS "readers=a", "a.shape=dim=32 layers=2 heads=2 vocab=29 tied=false"

static void put_table(rig *r, const char *name, int shift, float size)
{
    const tn_entry *e = entry(r, name);
    float x[IDS * 32] = { 0 };
    assert_true(tn_dims_count(e->dims) == IDS * 32);
    for (int i = shift; i < IDS; i++) x[i * 32 + i - shift] = size;
    tn_memory_put(tn_trainer_store(r->trainer), e->data, x, sizeof x);
}

/* Nothing is added to embeddings, which are unit vectors: after token i it says i + 1, whatever else it has read. */
static void make_it_count(rig *r)
{
    tn_store *st = tn_trainer_store(r->trainer);
    for (size_t i = 0; i < tn_store_count(st); i++) {
        const tn_entry *e = tn_store_at(st, i);
        if (of_reader(e) && (strstr(e->name, ".w_out") || strstr(e->name, ".w2")))
            assert_ok(tn_store_clear(st, e->data, sizeof(float) * (size_t)tn_dims_count(e->dims)));
    }
    put_table(r, "a.embed", 0, 1);
    put_table(r, "a.head", 1, 8);
}

/* Rows of numbers that count up; labels are the tokens, `by` more. The first of a row is said by the anchor, which cannot count. */
static void fill_counting(rig *r, int by)
{
    fill(r, 0);
    int32_t *tokens = input(r, "a", ".tokens"), *labels = input(r, "a", ".labels"), *told = input(r, "a", ".told"),
            *text = input(r, "a", ".text"), *text_labels = input(r, "a", ".text_labels");
    for (int row = 0; row < B * Q; row++)
        for (int i = 1; i < LENGTH; i++) {
            tokens[row * LENGTH + i] = told[row * TOLD + TOLD - LENGTH + i] = 4 + row + i;
            labels[row * LENGTH + i] = i < 2 ? -1 : 4 + row + i + by;
        }
    for (int b = 0; b < B; b++)
        for (int i = 1; i < TEXT; i++) {
            text[b * TEXT + i] = 4 + 2 * b + i;
            text_labels[b * TEXT + i] = i < 2 ? -1 : 4 + 2 * b + i + by;
        }
}

/* The loss is nothing where labels are the tokens themselves, and more than that of chance where they are moved by one. */
static void counts(void **state)
{
    rig r;
    float loss;
    int64_t n;
    open_rig(&r, &usual, *state, true);
    make_it_count(&r);
    for (int by = -1; by <= 1; by++) {
        float x[3];
        fill_counting(&r, by);
        x[0] = train_loss(&r);
        assert_ok(tn_trainer_eval(r.trainer, &loss));
        x[1] = loss;
        assert_ok(tn_trainer_run_step(r.trainer, "text"));
        x[2] = *output_of(&r, "text", "a.nats", &n);
        for (int k = 0; k < 3; k++)
            if (by ? !(x[k] > logf(IDS)) : !(x[k] >= 0 && x[k] < 1e-3f))
                fail_msg("labels moved by %d: %s %g", by, k == 0 ? "train" : k == 1 ? "eval" : "text", (double)x[k]);
    }
    close_rig(&r);
}

static const char *const plain_counts[] = { COUNTS, "place=embeddings", NULL },
                         *const key_counts[] = { COUNTS, "place=keys", NULL },
                         *const ae_counts[] = { COUNTS, "loss.ae=1", NULL },
                         *const first_counts[] = { COUNTS, "loss.first=1", NULL },
                         *const kd_counts[] = { COUNTS, "loss.kd=1", "loss.kd_temperature=1", NULL },
                         *const state_counts[] = { COUNTS, "loss.state=1", NULL };

/* --- D2 ----------------------------------------------------------------------------------------------------------------------------- */

/* The first token's own term is -log p of each answer's first token, which the evaluation says too: no other token, and no BOS. */
static void first_token(void **state)
{
    (void)state;
    static const char *const with[] = { "loss.first=1", NULL };
    rig a, b;
    seen s;
    double sum = 0;
    int rows = 0;
    open_rig(&a, &usual, NULL, true);
    open_rig(&b, &usual, with, true);
    fill(&a, 0);
    fill(&b, 0);
    look(&a, NULL, &s);
    for (int k = 0; k < 2; k++)
        for (int64_t row = 0; row < B * Q; row++) {
            const int64_t c = row / Q;
            if (c == 1 && row % Q == 1) continue; /* no question */
            sum += s.nll[k][row * (LENGTH - 1) + asked(c)];
            rows++;
        }
    const double more = train_loss(&b) - train_loss(&a);
    if (!(fabs(more - sum / rows) < 1e-4 * fabs(more))) fail_msg("%g instead of %g", more, sum / rows);
    close_rig(&a);
    close_rig(&b);
}

/* --- D3, D4: what a teacher's term looks at --------------------------------------------------------------------------------------- */

#define ONE "readers=a", "loss.kd_temperature=1", "loss.states=1"
static const char *const teaches[][5] = { { ONE, "loss.kd=10", NULL }, { ONE, "loss.state=10", NULL } };

/* The weighted term alone: the loss without that of the same model that has none. */
static double term(rig *with, rig *without) { return (double)train_loss(with) - (double)train_loss(without); }

/* One label counts, t of a row: the teacher and the student have each read what stands before it, with that next to it, and nothing else. Rows
 * have texts of different lengths. */
static void aligned_label(rig *with, rig *without, int64_t row, int t)
{
    rig *both[] = { with, without };
    const int64_t c = row / Q;
    for (int k = 0; k < 2; k++) {
        int32_t *labels = input(both[k], "a", ".labels");
        memset(labels, -1, sizeof *labels * B * Q * LENGTH);
        labels[row * LENGTH + t] = input(both[k], "a", ".tokens")[row * LENGTH + t];
    }
    const double x = term(with, without);
    int32_t *told = input(with, "a", ".told") + row * TOLD + TOLD - LENGTH;
    for (int i = -words_of(c); i < row_of(c); i++) {
        const int32_t id = told[i];
        told[i] = another(id);
        const double moved = fabs(term(with, without) - x);
        if (i >= t ? moved != 0 : moved < 1e-4)
            fail_msg("row %d: what is told at %d moves the term of label %d by %g", (int)row, i, t, moved);
        told[i] = id;
    }
    for (int i = 0; i < row_of(c); i++) {
        int32_t *mine = input(with, "a", ".tokens") + row * LENGTH + i,
                *other = input(without, "a", ".tokens") + row * LENGTH + i;
        const int32_t id = *mine;
        *mine = *other = another(id);
        const double moved = fabs(term(with, without) - x);
        if (i >= t ? moved != 0 : moved < 1e-4)
            fail_msg("row %d: token %d moves the term of label %d by %g", (int)row, i, t, moved);
        *mine = *other = id;
    }
}

static void aligned(void **state)
{
    static const char *const none[] = { ONE, NULL };
    rig with, without;
    open_rig(&with, &usual, *state, true);
    open_rig(&without, &usual, none, true);
    fill(&with, 0);
    fill(&without, 0);
    const double x = term(&with, &without);
    for (int64_t row = 0; row < B * Q; row++) { /* what stands before a text is nothing */
        int32_t *told = input(&with, "a", ".told") + row * TOLD,
                *document = input(&with, "a", ".told_document") + row * TOLD;
        for (int i = 0; i < TOLD && !document[i]; i++) told[i] = 9;
    }
    assert_true(fabs(x) > 1e-3 && term(&with, &without) == x);
    static const int64_t rows[] = { 0, 2, B * Q - 1 };
    for (size_t k = 0; k < 3; k++)
        for (int t = asked(rows[k] / Q) + 1; t < row_of(rows[k] / Q); t++) aligned_label(&with, &without, rows[k], t);
    close_rig(&with);
    close_rig(&without);
}

/* --- D5, D6: the anchor ------------------------------------------------------------------------------------------------------------- */

static void swap_anchors(rig *r, const char *name, int64_t d)
{
    tn_store *st = tn_trainer_store(r->trainer);
    const tn_entry *e = entry(r, name);
    assert_true(e->role == TN_ROLE_PARAM && tn_dims_count(e->dims) == WIRE_ANCHORS * d);
    float *x = tn_memory_floats(st, e->data, WIRE_ANCHORS * d);
    for (int64_t i = 0; i < d; i++) {
        const float y = x[i];
        x[i] = x[2 * d + i];
        x[2 * d + i] = y;
    }
    tn_memory_put(st, e->data, x, sizeof *x * (size_t)(WIRE_ANCHORS * d));
    free(x);
}

static void send(rig *r)
{
    int64_t n;
    assert_ok(tn_trainer_run_step(r->trainer, "encode"));
    const float *z = output_of(r, "encode", "z", &n);
    tn_memory_put(tn_trainer_store(r->trainer), entry(r, "message")->data, z, sizeof *z * (size_t)n);
}

/* Context c is of kind c. Its anchor is all that its kind decides, in training, evaluation and for a message that was sent: with rows 0 and 2 of
 * the anchors exchanged contexts 0 and 2 hear something else, context 1 does not, and with their kinds exchanged too nothing has happened. */
static void anchors(void **state)
{
    rig r;
    seen before[2], after[2];
    static const char *const step[] = { NULL, "read" };
    open_rig(&r, &usual, *state, true);
    fill(&r, 0);
    send(&r);
    const float loss = train_loss(&r);
    for (int k = 0; k < 2; k++) look(&r, step[k], &before[k]);
    swap_anchors(&r, "to.a.anchors", 16);
    swap_anchors(&r, "to.b.anchors", 12);
    assert_true(!near(train_loss(&r), loss));
    for (int k = 0; k < 2; k++) {
        look(&r, step[k], &after[k]);
        for (int x = 0; x < 2; x++) {
            assert_true(tn_world_same(after[0].nll[x], after[k].nll[x], after[k].n, 1e-6));
            for (int64_t row = 0; row < B * Q; row++)
                for (int i = asked(row / Q); i < row_of(row / Q) - 1; i++) {
                    const int64_t at = row * (LENGTH - 1) + i;
                    const bool equal = near(after[k].nll[x][at], before[k].nll[x][at]);
                    if (equal != (row / Q == 1)) fail_msg("reader %d, row %d, label %d", x, (int)row, i + 1);
                }
        }
    }
    input(&r, "", "kind")[0] = 2;
    input(&r, "", "kind")[2] = 0;
    assert_true(same(train_loss(&r), loss));
    for (int k = 0; k < 2; k++) {
        look(&r, step[k], &after[k]);
        for (int x = 0; x < 2; x++) assert_true(tn_world_same(after[k].nll[x], before[k].nll[x], after[k].n, 1e-6));
    }
    close_rig(&r);
}

static double flops_of(const tn_bound *b, const char *op)
{
    enum { MOST_OPS = 128 };
    tn_op_time rows[MOST_OPS];
    const size_t n = tn_bound_op_times(b, rows, 0, MOST_OPS);
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].op, op) == 0) sum += rows[i].flops;
    return sum;
}

/* FLOPs of attention of a gpt with the shape of reader a, in rows of n tokens. */
static double flops_of_gpt(int64_t n)
{
    static const char *const set[] = { "dim=16", "layers=2", "heads=2", "vocab=29", "compute=f32", "threads=1" };
    tn_settings *st;
    tn_trainer *t;
    const tn_model *found;
    float loss;
    assert_ok(tn_settings_resolve("gpt", set, 6, &st, &found));
    assert_ok(tn_settings_override(st, tn_test_device() == TN_CUDA ? "device=cuda" : "device=cpu"));
    assert_ok(tn_trainer_new(
        &(tn_trainer_options){ .model = found, .settings = st, .batch = B * Q, .length = n, .forward_only = true },
        &t));
    assert_ok(tn_trainer_eval(t, &loss));
    const double x = flops_of(tn_trainer_bound(t, false), "attention");
    tn_trainer_free(t);
    tn_settings_free(st);
    return x;
}

/* BOS ; message ; anchor ; tokens but BOS and the last one: as much work as rows of so many tokens, and no more. */
static void nothing_between(void **state)
{
    (void)state;
    static const char *const set[] = { "encoder=constant", "readers=a", "place=embeddings", NULL };
    const int64_t M = 3;
    rig r;
    float loss;
    open_rig(&r, &usual, set, false);
    fill(&r, 0);
    assert_ok(tn_trainer_eval(r.trainer, &loss));
    assert_ok(tn_trainer_run_step(r.trainer, "read"));
    const double is = flops_of_gpt(M + LENGTH);
    assert_true(is > 0 && flops_of_gpt(M + LENGTH + 1) > is);
    assert_true(flops_of(tn_trainer_bound(r.trainer, false), "attention") == is);
    assert_true(flops_of(tn_trainer_step_bound(r.trainer, "read"), "attention") == is);
    close_rig(&r);
}

/* --- D10 ---------------------------------------------------------------------------------------------------------------------------- */

#define TERMS "loss.first=0.5", "loss.kd=0.5", "loss.state=0.5", "loss.ae=0.5", "loss.nce=0.1"
static const char *const whole[][8] = { { TERMS, "place=embeddings", "refiner=1", NULL },
                                        { TERMS, "place=keys", "private=1", NULL },
                                        { TERMS, "encoder=sender", "refiner=1", NULL },
                                        { TERMS, "encoder=free", "place=embeddings", NULL } };

/* Loss, -log p and Z of an evaluation, in one row. */
static int64_t outputs(rig *r, float *to)
{
    static const char *const names[] = { "a.nll", "b.nll", "z" };
    int64_t at = 1, n;
    assert_ok(tn_trainer_eval(r->trainer, &to[0]));
    for (int k = 0; k < 3; k++, at += n) {
        const float *x = output_of(r, NULL, names[k], &n);
        memcpy(to + at, x, sizeof *x * (size_t)n);
    }
    return at;
}

/* Some steps, saved, and read into a model that was drawn differently: the same bits. Frozen readers are there too. */
static void saved(void **state)
{
    rig a, b;
    tn_tempdir d;
    char path[TN_PATH_BYTES];
    float x[1024], y[1024];
    tn_update_result done;
    tn_ckpt_state got;
    const tn_ckpt_state is = {
        .step = 3, .tokens = 1, .batch = B, .length = 1, .seed = 1, .guard = { .lr_factor = 1 }, .scaling = { 1, 0 }
    };
    const char *other[10] = { "seed=99" };
    for (int i = 0; i < 8 && ((const char *const *)*state)[i]; i++) other[i + 1] = ((const char *const *)*state)[i];
    open_rig(&a, &usual, *state, true);
    open_rig(&b, &usual, other, true);
    fill(&a, 0);
    fill(&b, 0);
    tn_memory_set(tn_trainer_store(a.trainer), entry(&a, "to.a.rms")->data, 0.7f); /* of its reader's embeddings */
    for (int i = 0; i < 3; i++) assert_ok(tn_trainer_apply(a.trainer, i, 1, train_loss(&a), &done));
    const int64_t n = outputs(&a, x);
    assert_true(n < 1024 && outputs(&b, y) == n && !near(x[0], y[0]));
    tn_tempdir_make_quick(&d);
    assert_ok(tn_ckpt_save(d.path, &(tn_ckpt_what){ .store = tn_trainer_store(a.trainer), .state = &is }));
    snprintf(path, sizeof path, "%s/latest", d.path);
    assert_ok(tn_ckpt_load(path, tn_trainer_store(b.trainer), NULL, &got));
    tn_ckpt_state_free(&got);
    outputs(&b, y);
    assert_true(tn_world_same(y, x, n, 1e-6));
    const tn_store *sa = tn_trainer_store(a.trainer);
    for (size_t i = 0; i < tn_store_count(sa); i++) {
        const tn_entry *e = tn_store_at(sa, i);
        if (e->role != TN_ROLE_PARAM && e->role != TN_ROLE_FROZEN) continue;
        float *was = tn_memory_floats(sa, e->data, tn_dims_count(e->dims));
        if (!tn_memory_equal(tn_trainer_store(b.trainer), entry(&b, e->name)->data, was,
                             sizeof *was * (size_t)tn_dims_count(e->dims)))
            fail_msg("%s was not saved", e->name);
        free(was);
    }
    tn_tempdir_remove_all(&d);
    close_rig(&a);
    close_rig(&b);
}

/* --- D12, D13 ----------------------------------------------------------------------------------------------------------------------- */

static float gradient_gap(rig *a, rig *b)
{
    tn_store *sa = tn_trainer_store(a->trainer), *sb = tn_trainer_store(b->trainer);
    float most = 0;
    for (size_t i = 0; i < tn_store_count(sa); i++) {
        const tn_entry *e = tn_store_at(sa, i);
        if (e->role != TN_ROLE_PARAM) continue;
        const int64_t n = tn_dims_count(e->dims);
        float *x = tn_memory_floats(sa, e->grad, n), *y = tn_memory_floats(sb, entry(b, e->name)->grad, n);
        for (int64_t k = 0; k < n; k++)
            if (fabsf(x[k] - y[k]) > most) most = fabsf(x[k] - y[k]);
        free(x);
        free(y);
    }
    return most;
}

/* A term is a number, and it moves something that is trained. */
static void each_term(void **state)
{
    const char *const one[] = { *state, NULL };
    rig a, b;
    open_rig(&a, &usual, NULL, true);
    open_rig(&b, &usual, one, true);
    fill(&a, 0);
    fill(&b, 0);
    assert_true(!near(train_loss(&a), train_loss(&b)));
    assert_true(gradient_gap(&a, &b) > 1e-4f);
    close_rig(&a);
    close_rig(&b);
}

/* The step that such a run takes, without those that others ask for: what its batches hold, and what its attention costs. */
static double trained_alone(const char *const *words, bool *told, bool *text)
{
    tn_settings *st = settings_of(&usual, words);
    const tn_model *m = tn_model_named("wire");
    tn_trainer *t;
    float loss;
    const tn_trainer_options o = {
        .model = m, .settings = st, .batch = B, .length = 1, .threads = 1, .step = m->steps[m->choose(st, 0)].name
    };
    assert_ok(tn_trainer_new(&o, &t));
    *told = tn_trainer_input(t, "a.told") || tn_trainer_input(t, "a.told_document");
    *text = tn_trainer_input(t, "a.text") || tn_trainer_input(t, "a.text_labels");
    assert_ok(tn_trainer_grad(t, 0, &loss));
    const double flops = flops_of(tn_trainer_bound(t, true), "attention");
    tn_trainer_free(t);
    tn_settings_free(st);
    return flops;
}

/* Cross-entropy alone has no teacher and reads no text; distillation and states share one pass of it. */
static void no_wasted_pass(void **state)
{
    (void)state;
    static const char *const kd[] = { "loss.kd=1", NULL }, *const states[] = { "loss.state=1", NULL },
                             *const both[] = { "loss.kd=1", "loss.state=1", NULL }, *const ae[] = { "loss.ae=1", NULL };
    bool told, text;
    const double none = trained_alone(NULL, &told, &text);
    assert_true(none > 0 && !told && !text);
    const double x = trained_alone(kd, &told, &text);
    assert_true(x > none && told && !text);
    assert_true(trained_alone(states, &told, &text) == x && told && !text);
    assert_true(trained_alone(both, &told, &text) == x);
    assert_true(trained_alone(ae, &told, &text) > none && !told && text);
}

/* Asked for it is there, is read by all, and what asks for something that is not there is refused. */
static void refiner(void **state)
{
    (void)state;
    static const char *const words[3][2] = { { "refiner=0", NULL }, { "refiner=1", NULL }, { "refiner=2", NULL } };
    rig r[3];
    seen s[3];
    int64_t parameters[3];
    for (int k = 0; k < 3; k++) {
        open_rig(&r[k], &usual, words[k], false);
        fill(&r[k], 0);
        look(&r[k], NULL, &s[k]);
        parameters[k] = tn_trainer_parameters(r[k].trainer);
        if (!k) continue;
        assert_true(parameters[k] > parameters[k - 1]);
        assert_true(tn_world_distance(s[k].z, s[k - 1].z, s[k].n_z) > 1e-2);
        for (int x = 0; x < 2; x++) assert_true(tn_world_distance(s[k].nll[x], s[k - 1].nll[x], s[k].n) > 1e-3);
    }
    static const char *const none[] = { "refine=1", "loss.kl=1", "refiner=-1", "place=prompt" };
    for (int k = 0; k < 4; k++) assert_int_equal(tn_settings_override(r[0].settings, none[k]), TN_USAGE);
    for (int k = 0; k < 3; k++) close_rig(&r[k]);
}

/* --- D14 ---------------------------------------------------------------------------------------------------------------------------- */

#define PLAIN_DESCENT                                                                                                  \
    "train.optimizer=sgd", "train.momentum=0", "train.decay=0", "train.warmup=0", "train.schedule=constant",           \
        "train.lr=1"

/* The norm is that of all gradients, and clipping makes all of them smaller by the same factor: a step of plain descent says so. */
static void clipped(void **state)
{
    (void)state;
    static const char *const words[] = { TERMS, PLAIN_DESCENT, "refiner=1", "private=1", "train.clip=0.25", NULL };
    rig r;
    tn_update_result done;
    float *before[256] = { NULL }, *grad[256] = { NULL };
    double square = 0;
    open_rig(&r, &usual, words, true);
    fill(&r, 0);
    const float loss = train_loss(&r);
    tn_store *st = tn_trainer_store(r.trainer);
    const size_t count = tn_store_count(st);
    assert_true(count <= 256);
    for (size_t i = 0; i < count; i++) {
        const tn_entry *e = tn_store_at(st, i);
        const int64_t n = tn_dims_count(e->dims);
        if (e->role != TN_ROLE_PARAM) continue;
        before[i] = tn_memory_floats(st, e->data, n);
        grad[i] = tn_memory_floats(st, e->grad, n);
        for (int64_t k = 0; k < n; k++) square += (double)grad[i][k] * (double)grad[i][k];
    }
    const double norm = sqrt(square);
    assert_ok(tn_trainer_apply(r.trainer, 0, 1, loss, &done));
    assert_true(norm > 0.5 && fabs((double)done.grad_norm - norm) < 1e-5 * norm);
    for (size_t i = 0; i < count; i++) {
        const tn_entry *e = tn_store_at(st, i);
        if (!before[i]) continue;
        float *after = tn_memory_floats(st, e->data, tn_dims_count(e->dims));
        for (int64_t k = 0; k < tn_dims_count(e->dims); k++) {
            const double wanted = (double)before[i][k] - 0.25 / norm * (double)grad[i][k];
            if (!(fabs((double)after[k] - wanted) <= 1e-6 * fmax(1, fabs(wanted))))
                fail_msg("%s: %g instead of %g", e->name, (double)after[k], wanted);
        }
        free(after);
        free(before[i]);
        free(grad[i]);
    }
    close_rig(&r);
}

static const char *const embeddings[] = { "place=embeddings", NULL }, *const keys[] = { "place=keys", NULL };
static const char *const terms[] = { "loss.first=1", "loss.kd=1", "loss.state=1", "loss.ae=1", "loss.nce=1" };

void tn_tests_wire_defects(tn_test_list *l)
{
    tn_test_add(l, counts, (void *)plain_counts, "wire defects: D1 a reader that counts (embeddings)");
    tn_test_add(l, counts, (void *)key_counts, "wire defects: D1 a reader that counts (keys)");
    tn_test_add(l, counts, (void *)ae_counts, "wire defects: D1 a reader that counts says the text");
    tn_test_add(l, counts, (void *)first_counts, "wire defects: D2 a reader that counts has the first token right");
    tn_test_add(l, first_token, NULL, "wire defects: D2 the first token's term is of the first token");
    tn_test_add(l, counts, (void *)kd_counts, "wire defects: D3 a reader that counts has nothing to distil");
    tn_test_add(l, aligned, (void *)teaches[0], "wire defects: D3 distillation looks at the states that say a label");
    tn_test_add(l, counts, (void *)state_counts, "wire defects: D4 a reader that counts is in its teacher's states");
    tn_test_add(l, aligned, (void *)teaches[1], "wire defects: D4 states are those that say a label");
    tn_test_add(l, anchors, (void *)embeddings, "wire defects: D5 D6 one anchor in every step (embeddings)");
    tn_test_add(l, anchors, (void *)keys, "wire defects: D5 D6 one anchor in every step (keys)");
    tn_test_add(l, nothing_between, NULL, "wire defects: D6 nothing between message, anchor and question");
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        tn_test_add(l, saved, (void *)whole[i], "wire defects: D10 a checkpoint has all that is trained (%s, %s)",
                    whole[i][5], whole[i][6]);
    for (size_t i = 0; i < sizeof terms / sizeof *terms; i++)
        tn_test_add(l, each_term, (void *)terms[i], "wire defects: D12 a term trains something (%s)", terms[i]);
    tn_test_add(l, no_wasted_pass, NULL, "wire defects: D12 no pass that no term needs");
    tn_test_add(l, refiner, NULL, "wire defects: D13 the refiner is there when asked for");
    tn_test_add(l, clipped, NULL, "wire defects: D14 clipping covers all that is trained");
}
