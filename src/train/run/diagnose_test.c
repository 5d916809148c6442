/* What is said of a step that was not finite: in a weight, in the data, in an activation, in a gradient alone, with the sample that did it.
 * Nothing is changed by the refusal or by looking into it; healthy steps of all models have nothing to find. */
#include "train/run/training_internal.h"

#include "base/rng.h"
#include "mlp.h"
#include "tempdir.h"
#include "train/run/session.h"
#include "train/source/task_setup.h"

#include <tenon/ops.h>

#include <math.h>

enum { N = 24, B = 4, F = 6, C = 3, DIM = 8 };

/* --- a model that is easily hurt ---------------------------------------------------------------------------------------- */

static tn_status build_fragile(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    (void)st;
    const tn_ref x = tn_reshape(g, tn_in(b, "features"), tn_shape(b->batch, F));
    const tn_ref w = tn_param(g, "w", tn_shape(DIM, F), tn_normal(0.1f)),
                 v = tn_param(g, "v", tn_shape(C, DIM), tn_normal(0.1f));
    const tn_ref c = tn_param(g, "c", tn_shape(DIM), tn_ones);
    const tn_ref h = tn_exp(g, tn_linear(g, x, w)), logits = tn_linear(g, h, v);
    if (tn_wants(b, "logits")) tn_output(g, "logits", tn_reshape(g, logits, tn_shape(b->batch, 1, C)));
    const tn_ref xent = tn_xent(g, logits, tn_reshape(g, tn_in(b, "labels"), tn_shape(b->batch)));
    tn_output(g, "loss", tn_add(g, xent, tn_scale(g, tn_sum_all(g, tn_sqrt(g, c)), 0.01f)));
    return tn_graph_status(g);
}

static const tn_model fragile = { TN_MODEL_HEAD,
                                  .name = "mlp",
                                  .summary = "for tests",
                                  .settings = tn_mlp_rows,
                                  .n_settings = sizeof tn_mlp_rows / sizeof *tn_mlp_rows,
                                  .build = build_fragile,
                                  TN_MLP_ROWS };

typedef struct rig {
    float x[N * F];
    int32_t y[N], index[N];
    tn_samples set;
    tn_settings *settings;
    tn_trainer *trainer;
    tn_source source;
    /* what happens on the way */
    int64_t hurt_before; /* > 0: before that step one number of a parameter is written, */
    const char *hurt;
    int64_t at;
    float with;
    float *before; /* (parameters): all of them then; or NULL */
    int notes;
    char note[1024];
} rig;

static void open_rig(rig *r, const char *policy, const char *accumulate)
{
    const char *const set[] = { "inputs=6",       "tokens=1",      "classes=3",          "threads=1", "train.steps=24",
                                "train.warmup=0", "train.lr=1e-3", "train.eval_every=0", policy,      accumulate };
    *r = (rig){ .hurt_before = 0 };
    for (int i = 0; i < N * F; i++) r->x[i] = (float)(i * i % 7) / 7 - 0.4f;
    for (int i = 0; i < N; i++) r->index[i] = (int32_t)(i * 5 % N);
    for (int i = 0; i < N; i++) r->y[i] = i % C;
    r->set = (tn_samples){ .n = N,
                           .tokens = 1,
                           .features = F,
                           .labels = 1,
                           .classes = C,
                           .x_f32 = r->x,
                           .scale = 1,
                           .y = r->y,
                           .index = { r->index, r->index + 20, r->index + 20 },
                           .count = { 20, 4, 0 } };
    r->settings = tn_mlp_settings(set, sizeof set / sizeof *set);
    assert_ok(tn_trainer_new(&(tn_trainer_options){ .model = &fragile,
                                                    .settings = r->settings,
                                                    .batch = B,
                                                    .length = 1,
                                                    .input_spec = TN_MLP_SUPPLY(1, 20),
                                                    .logits = true,
                                                    .queue_depth = 1 },
                             &r->trainer));
    assert_ok(tn_source_samples_open(
        &r->set, 3, &(tn_source_start){ .trainer = r->trainer, .batch = B, .length = 1, .heldout = TN_VALID },
        &r->source));
}

static void close_rig(rig *r)
{
    free(r->before);
    tn_source_close(&r->source);
    tn_trainer_free(r->trainer);
    tn_settings_free(r->settings);
}

/* All parameters and gradients, one after the other; free it. */
static float *copy_store(rig *r, int64_t *n)
{
    const tn_store *st = tn_trainer_store(r->trainer);
    const tn_bucket *b = tn_store_bucket(st, 0);
    tn_host_copy host = { 0 };
    const size_t bytes = sizeof(float) * (size_t)b->count;
    float *out = malloc(2 * bytes);
    assert_non_null(out);
    memcpy(out, tn_store_read(st, b->param, bytes, &host), bytes);
    memcpy(out + b->count, tn_store_read(st, b->grad, bytes, &host), bytes);
    tn_host_copy_free(&host);
    *n = 2 * b->count;
    return out;
}

static bool hurt_now(void *ctx)
{
    rig *r = ctx;
    int64_t n;
    if (r->hurt_before <= 0 || --r->hurt_before) return false;
    const tn_store *st = tn_trainer_store(r->trainer);
    assert_ok(tn_store_write(st, (float *)tn_store_find(st, r->hurt)->data + r->at, &r->with, sizeof r->with));
    tn_trainer_steady(r->trainer, true);
    r->before = copy_store(r, &n);
    return false;
}

static void take_note(void *ctx, const char *text)
{
    rig *r = ctx;
    if (r->notes++ == 0) snprintf(r->note, sizeof r->note, "%s", text);
}

static tn_status train(rig *r, tn_jsonl *metrics, tn_progress_report *last)
{
    const tn_training job = { .trainer = r->trainer,
                              .settings = r->settings,
                              .source = &r->source,
                              .metrics = metrics,
                              .batch = B,
                              .length = 1,
                              .ctx = r,
                              .interrupted = hurt_now,
                              .note = take_note };
    return tn_training_run(&job, NULL, last);
}

/* --- what is said ----------------------------------------------------------------------------------------------------------- */

static const struct bad_row {
    const char *what, *tensor; /* NULL: sample 7 of the data */
    int64_t at;
    float x;
    const char *says[4];
} bad_rows[] = {
    { "a weight", "v", 11, NAN, { "(first: the parameter v, f32 (3,8): NaN at (1,3); batch 6, of epoch 1, samples " } },
    { "the data",
      NULL,
      0,
      NAN,
      { "(first: the input features, f32 (4,1,6): NaN at (", ",0,2); batch ", ", sample 7 (row " } },
    { "an activation",
      "w",
      2,
      1e4f,
      { "(first: the output of unary in the graph (diagnose_test.c:", "f32 (4,8): infinity at (",
        "; batch 6, of epoch 1, sample " } },
    { "a gradient alone",
      "c",
      5,
      0,
      { "(first: the gradient of ", "infinity at (5)", "; batch 6, of epoch 1, samples " } },
};

static void says(void **state)
{
    const struct bad_row *row = *state;
    rig r;
    tn_tempdir d;
    tn_jsonl *metrics;
    tn_progress_report last;
    int64_t n;
    char *text;
    open_rig(&r, "train.nonfinite=stop", "train.accumulate=1");
    tn_tempdir_make_quick(&d);
    assert_ok(tn_jsonl_open(tn_tempdir_file(&d, "m"), false, &metrics));
    if (!row->tensor) r.x[7 * F + 2] = row->x;
    r.hurt_before = row->tensor ? 6 : 0;
    r.hurt = row->tensor;
    r.at = row->at;
    r.with = row->x;
    assert_int_equal(train(&r, metrics, &last), TN_DIVERGED);
    assert_ok(tn_jsonl_close(metrics));
    for (int i = 0; i < 4 && row->says[i]; i++)
        if (!strstr(tn_error_text(), row->says[i]))
            fail_msg("\"%s\" does not say \"%s\"", tn_error_text(), row->says[i]);
    assert_non_null(strstr(tn_error_text(), "): lower train.lr"));
    if (row->tensor) { /* refused: no bit has moved, and looking moved none */
        float *after = copy_store(&r, &n);
        assert_memory_equal(r.before, after, sizeof *after * (size_t)n);
        for (int64_t i = n / 2; i < n; i++) assert_true(after[i] == 0);
        free(after);
        assert_int_equal(last.step, 6);
    }
    assert_ok(tn_file_read_all(tn_tempdir_file(&d, "m"), 1 << 20, &text, NULL));
    assert_non_null(strstr(text, "\"nonfinite\":\"stopped\",\"nonfinite_tensor\":\"the "));
    assert_non_null(strstr(text, "\"nonfinite_batch\":\"batch "));
    tn_free(text);
    tn_tempdir_remove_all(&d);
    close_rig(&r);
}

/* --- steps that are left out -------------------------------------------------------------------------------------------------- */

/* The sample comes once in an epoch of five batches, or with others in a step of three: such steps are left out, and the run ends with the
 * bits of one that nobody looked into. */
static void looks_change_nothing(void **state)
{
    const char *accumulate = *state;
    float *end[2];
    int64_t n;
    for (int blind = 0; blind < 2; blind++) {
        rig r;
        tn_progress_report last;
        open_rig(&r, "train.nonfinite=skip", accumulate);
        r.x[7 * F + 2] = NAN;
        if (blind) r.source.mark = NULL;
        assert_ok(train(&r, NULL, &last));
        assert_int_equal(last.step, 24);
        if (blind) assert_int_equal(r.notes, 0);
        else {
            assert_in_range(r.notes, 4, 10);
            assert_non_null(strstr(r.note, "was skipped: the loss or the gradient is not finite (first: the input "
                                           "features, f32 (4,1,6): NaN at ("));
            assert_non_null(strstr(r.note, ", sample 7 (row "));
        }
        end[blind] = copy_store(&r, &n);
        close_rig(&r);
    }
    assert_memory_equal(end[0], end[1], sizeof **end * (size_t)n);
    free(end[0]);
    free(end[1]);
}

/* --- healthy steps ------------------------------------------------------------------------------------------------------------- */

static const char *const healthy_rows[][3] = {
    { "ten", "pattern=DO", "plan.recompute=none" },
    { "ten", "pattern=EW", "window=8" },
    { "ten", "preset=ten_a", "n_cells=2" },
    { "ten", "preset=ten_b", "train.dropout=0.2" },
    { "ten", "pattern=E", "xmem=true" },
    { "ten", "pattern=D", "plan.recompute=chunk" },
    { "gpt", "shape=gpt2", "plan.recompute=layer" },
    { "gpt", "shape=llama", "train.dropout=0.2" },
    { "gpt", "preset=gpt_conv_gate", "tied=false" },
    { "gpt", "compute=f16", "shape=gpt2" },
    { "gpt", "compute=bf16", "shape=llama" },
};

static void healthy(void **state)
{
    const char *const *row = *state;
    const char *const set[] = { "dim=32",           "layers=2",     "heads=2", "vocab=16",
                                "train.context=32", "plan.chunk=8", row[1],    row[2] };
    tn_settings *st;
    tn_trainer *t;
    const tn_model *model;
    tn_finding f = { 0 };
    float loss;
    assert_ok(tn_settings_resolve(row[0], set, sizeof set / sizeof *set, &st, &model));
    assert_ok(tn_trainer_new(&(tn_trainer_options){ .model = model, .settings = st, .batch = 2, .length = 32 }, &t));
    tn_trainer_check(t, &f);
    for (int step = 0; step < 2; step++) {
        tn_update_result applied;
        for (int i = 0; i < 64; i++) {
            ((int32_t *)tn_trainer_input(t, "tokens"))[i] =
                (int32_t)tn_rng_below((tn_rng){ 1, 2 }, (uint64_t)(i + 64 * step), 16);
            ((int32_t *)tn_trainer_input(t, "labels"))[i] = i % 3 ? ((int32_t *)tn_trainer_input(t, "tokens"))[i] : -1;
        }
        assert_ok(tn_trainer_grad(t, step, &loss));
        if (f.found) fail_msg("%s", f.text);
        assert_ok(tn_trainer_apply(t, step, 1, loss, &applied));
        assert_true(applied.ok || applied.action == TN_GUARD_RESCALED);
    }
    tn_trainer_free(t);
    tn_settings_free(st);
}

/* Solves and tasks: whole sessions. The marks of a source lead back to the same batch. */
static const char *const solved_rows[][4] = {
    { "tep", "task=xor", "mode=block", "grad=ep" },        { "tep", "task=seq_copy", "mode=block", "grad=implicit" },
    { "tep", "task=xor", "mode=energy", "opt.relax=off" }, { "tep", "task=xor", "mode=toroidal", "solver=anderson" },
    { "tep", "task=xor", "mode=hopfield", "grad=bptt" },   { "gpt_tiny", "task=mqar", "train.context=192", "dim=32" },
};

/* A state from one step to the next, so that a second run of a step is another one. */
static bool carries(const tn_store *st)
{
    for (size_t i = 0; i < tn_store_count(st); i++)
        if (tn_store_at(st, i)->role == TN_ROLE_STATE) return true;
    return false;
}

static void healthy_solves(void **state)
{
    const char *const *row = *state;
    const char *const set[] = { "threads=1", "train.batch=4", row[1], row[2], row[3] };
    tn_session on;
    tn_finding f = { 0 };
    tn_source_mark at;
    char said[2][200];
    float loss[2];
    int64_t count;
    assert_ok(tn_session_open(row[0], set, sizeof set / sizeof *set, true, &on));
    tn_trainer_check(on.trainer, &f);
    for (int step = 0; step < 3; step++) {
        tn_source_mark_here(&on.source, &at);
        for (int again = 0; again < 2; again++) {
            assert_ok(tn_source_next(&on.source, step, on.trainer, &count));
            tn_source_describe(&on.source, 1, said[again], sizeof said[again]);
            tn_store_zero_grad(tn_trainer_store(on.trainer));
            assert_ok(tn_trainer_grad(on.trainer, step, &loss[again]));
            if (f.found) fail_msg("%s", f.text);
            if (!again) assert_ok(tn_source_back(&on.source, &at));
        }
        assert_string_equal(said[0], said[1]);
        if (!carries(tn_trainer_store(on.trainer))) assert_memory_equal(&loss[0], &loss[1], sizeof *loss);
    }
    tn_session_close(&on);
}

void tn_tests_diagnose(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof bad_rows / sizeof *bad_rows; i++)
        tn_test_add(l, says, &bad_rows[i], "diagnose: %s", bad_rows[i].what);
    tn_test_add(l, looks_change_nothing, "train.accumulate=1", "diagnose: steps left out");
    tn_test_add(l, looks_change_nothing, "train.accumulate=2", "diagnose: steps of two batches left out");
    for (size_t i = 0; i < sizeof solved_rows / sizeof *solved_rows; i++)
        tn_test_add(l, healthy_solves, solved_rows[i], "diagnose: healthy %s %s %s %s", solved_rows[i][0],
                    solved_rows[i][1], solved_rows[i][2], solved_rows[i][3]);
    for (size_t i = 0; i < sizeof healthy_rows / sizeof *healthy_rows; i++)
        tn_test_add(l, healthy, healthy_rows[i], "diagnose: healthy %s %s %s", healthy_rows[i][0], healthy_rows[i][1],
                    healthy_rows[i][2]);
}
