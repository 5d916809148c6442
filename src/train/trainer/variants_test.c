/* Every network of docs/variants.md at a small size: gradients against differences, no token sees a later one, one batch is learned
 * by heart, the same bits on one thread and two, whole or layer by layer; the page names each with the line that is checked here.
 * Decode caches and chunks: decode_cache_test.c, chunks_test.c. */
#include "optest.h"
#include "ten_variants.h"
#include "testlib.h"
#include "train/check/check.h"
#include "train/run/train_settings.h"

#include <math.h>
#include <stdlib.h>

enum { B = 2, T = 24 };

static tn_settings *settings_of(const tn_variant *v, const char *more, const tn_model **model)
{
    char room[256];
    const char *list[24], *words[TN_VARIANT_WORDS];
    size_t n = 0;
    const size_t own = tn_variant_words(v, room, words);
    tn_settings *st;
    for (size_t i = 0; i < own; i++) list[n++] = words[i];
    static const char *const small[] = { "dim=32",   "layers=2",         "heads=2",
                                         "vocab=19", "train.context=24", "train.dropout=0" };
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) list[n++] = small[i];
    if (strcmp(v->model, "ten") == 0) list[n++] = "k=8";
    if (strstr(v->line, "hybrid")) list[n++] = "layers=4";
    if (strstr(v->line, "hybrid")) list[n++] = "window=5";
    if (more) list[n++] = more;
    assert_ok(tn_settings_resolve(v->model, list, n, &st, model));
    return st;
}

static tn_trainer *open_trainer(const tn_settings *st, const tn_model *model)
{
    tn_trainer *t;
    assert_ok(tn_trainer_new(&(tn_trainer_options){ .model = model,
                                                    .settings = st,
                                                    .batch = B,
                                                    .length = T,
                                                    .input_spec = &(tn_input_spec){ .rows = tn_language_inputs,
                                                                                    .n_rows = TN_LANGUAGE_INPUTS },
                                                    .threads = 2 },
                             &t));
    int32_t *tokens = tn_trainer_input(t, "tokens"), *labels = tn_trainer_input(t, "labels"),
            *reset = tn_trainer_input(t, "reset"), *document = tn_trainer_input(t, "document"),
            *positions = tn_trainer_input(t, "positions");
    uint32_t x = 5;
    for (int i = 0; i < B * T; i++) {
        const int at = i % T, start = at < 7 ? 0 : at < 16 ? 7 : 16;
        tokens[i] = (int32_t)((x = x * 1664525u + 1013904223u) >> 24) % 19;
        labels[i] = (int32_t)((x = x * 1664525u + 1013904223u) >> 24) % 19;
        if (reset) reset[i] = at == start;
        if (document) document[i] = start;
        if (positions) positions[i] = at - start;
    }
    return t;
}

static void note(void *ctx, const tn_check_row *r)
{
    (void)ctx;
    if (r->verdict == TN_FAILED) print_message("           %s: %s\n", r->name, r->detail);
}

static void passes_the_check(void **state)
{
    const tn_variant *v = *state;
    tn_check c = { .batch = B, .length = T, .only = "leak,overfit,determinism,allocations", .row = note };
    tn_settings *st = settings_of(v, NULL, &c.model);
    c.settings = st;
    assert_ok(tn_check_run(&c));
    tn_settings_free(st);
}

static void keep_row(void *ctx, const tn_check_row *r) { *(tn_check_row *)ctx = *r; }

/* A machine that is too slow for it decides nothing about the model. */
static void too_few_steps_decide_nothing(void **state)
{
    const tn_variant *v = *state;
    tn_check_row row = { .verdict = TN_FAILED };
    tn_check c = { .batch = B, .length = T, .only = "overfit", .overfit_s = 1e-9, .ctx = &row, .row = keep_row };
    tn_settings *st = settings_of(v, NULL, &c.model);
    c.settings = st;
    assert_ok(tn_check_run(&c));
    assert_int_equal(row.verdict, TN_SKIPPED);
    assert_non_null(strstr(row.detail, "in 1 steps, all there was time for"));
    tn_settings_free(st);
}

/* --- gradients ------------------------------------------------------------------------------------------------------- */

/* First values are small, and so is what layers do with them: larger ones make every gradient large enough to be told from the
 * rounding of losses. */
static void enlarge(const tn_store *st)
{
    for (size_t i = 0; i < tn_store_count(st); i++) {
        const tn_entry *e = tn_store_at(st, i);
        float *x = e->data, most = 0;
        if (e->role != TN_ROLE_PARAM || e->dims.rank < 2) continue;
        for (int64_t k = 0; k < tn_dims_count(e->dims); k++) most = fmaxf(most, fabsf(x[k]));
        for (int64_t k = 0; k < tn_dims_count(e->dims) && most < 0.2f; k++) x[k] *= 10;
    }
}

static double norm_of(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

static float loss_at(tn_trainer *t, const tn_entry *e, const float *from, const float *along, double h)
{
    float loss;
    for (int64_t i = 0; i < tn_dims_count(e->dims); i++) ((float *)e->data)[i] = from[i] + (float)h * along[i];
    assert_ok(tn_trainer_eval(t, &loss));
    memcpy(e->data, from, sizeof *from * (size_t)tn_dims_count(e->dims));
    return loss;
}

/* How far the slope along the tensor's gradient is from the gradient's norm, as a part of it: the best of a few steps. */
static double slope_error(tn_trainer *t, const tn_entry *e)
{
    const int64_t n = tn_dims_count(e->dims);
    float *from = malloc(sizeof *from * (size_t)n), *grad = malloc(sizeof *grad * (size_t)n);
    assert_true(from && grad);
    memcpy(from, e->data, sizeof *from * (size_t)n);
    memcpy(grad, e->grad, sizeof *grad * (size_t)n);
    const double norm = norm_of(grad, n);
    double best = HUGE_VAL;
    for (double rise = 0.1; rise > 1e-3; rise /= 3) { /* of the loss, roughly */
        const double h = rise / (norm * norm), wide = h * 2;
        const double one = ((double)loss_at(t, e, from, grad, h) - (double)loss_at(t, e, from, grad, -h)) / (2 * h);
        const double two =
            ((double)loss_at(t, e, from, grad, wide) - (double)loss_at(t, e, from, grad, -wide)) / (2 * wide);
        best = fmin(best, fabs((4 * one - two) / 3 / (norm * norm) - 1));
    }
    free(from);
    free(grad);
    return best;
}

/* Of every tensor, with documents in the rows. */
static void gradients_are_right(void **state)
{
    const tn_model *model;
    float loss;
    tn_settings *st = settings_of(*state, NULL, &model);
    tn_trainer *t = open_trainer(st, model);
    const tn_store *store = tn_trainer_store(t);
    int checked = 0, all = 0;
    enlarge(store);
    assert_ok(tn_trainer_grad(t, 0, &loss));
    for (size_t i = 0; i < tn_store_count(store); i++) {
        const tn_entry *e = tn_store_at(store, i);
        if (e->role != TN_ROLE_PARAM) continue;
        all++;
        if (norm_of(e->grad, tn_dims_count(e->dims)) < 2e-3) continue; /* too little for losses in f32 to tell */
        const double error = slope_error(t, e);
        if (!(error < 0.01)) fail_msg("%s is off by %.3f of its gradient", e->name, error);
        checked++;
    }
    if (checked * 10 < all * 8) fail_msg("only %d of %d tensors have a gradient worth checking", checked, all);
    tn_trainer_free(t);
    tn_settings_free(st);
}

/* Products of operands rounded to bf16 leave the gradient about where it points (least where a norm follows a difference). */
static void rounding_is_harmless(void **state)
{
    const tn_model *model;
    tn_settings *st[2];
    tn_trainer *t[2];
    float loss[2];
    double dot = 0, aa = 0, bb = 0;
    for (int i = 0; i < 2; i++) {
        st[i] = settings_of(*state, i ? "compute=bf16" : "compute=f32", &model);
        t[i] = open_trainer(st[i], model);
        enlarge(tn_trainer_store(t[i]));
        assert_ok(tn_trainer_grad(t[i], 0, &loss[i]));
    }
    for (size_t i = 0; i < tn_store_count(tn_trainer_store(t[0])); i++) {
        const tn_entry *e = tn_store_at(tn_trainer_store(t[0]), i);
        if (e->role != TN_ROLE_PARAM) continue;
        const float *x = e->grad, *y = tn_store_find(tn_trainer_store(t[1]), e->name)->grad;
        for (int64_t k = 0; k < tn_dims_count(e->dims); k++) {
            dot += (double)x[k] * (double)y[k];
            aa += (double)x[k] * (double)x[k];
            bb += (double)y[k] * (double)y[k];
        }
    }
    if (!(dot / sqrt(aa * bb) > 0.95) || !(fabsf(loss[0] - loss[1]) < 0.02f))
        fail_msg("cosine %.5f, losses %.4f and %.4f", dot / sqrt(aa * bb), (double)loss[0], (double)loss[1]);
    for (int i = 0; i < 2; i++) {
        tn_trainer_free(t[i]);
        tn_settings_free(st[i]);
    }
}

/* --- with recomputation ---------------------------------------------------------------------------------------------- */

/* With documents in its rows, a layer computed again gives the bits it gave. */
static void again_is_the_same(void **state)
{
    const tn_model *model;
    float loss[2] = { 0, 0 };
    double norm[2] = { 0, 0 };
    for (int i = 0; i < 2; i++) {
        tn_settings *st = settings_of(*state, i ? "plan.recompute=layer" : "plan.recompute=none", &model);
        tn_trainer *t = open_trainer(st, model);
        for (int step = 0; step < 3; step++) {
            tn_update_result a;
            assert_ok(tn_trainer_grad(t, step, &loss[i]));
            assert_ok(tn_trainer_apply(t, step, 1, loss[i], &a));
            norm[i] = (double)a.grad_norm;
        }
        tn_trainer_free(t);
        tn_settings_free(st);
    }
    assert_true(loss[0] > 2 && norm[0] > 0);
    assert_memory_equal(&loss[0], &loss[1], sizeof *loss);
    assert_memory_equal(&norm[0], &norm[1], sizeof *norm);
}

/* --- the groups of the optimizer ---------------------------------------------------------------------------------- */

/* Labels that do not count leave no gradient: what moves a tensor is weight decay alone, as a factor. */
static double decayed(const char *on, const char *name)
{
    const tn_model *model;
    tn_update_result a;
    float loss, before;
    tn_settings *st =
        settings_of(&(tn_variant){ "", "ten",
                                   "pattern=DO train.decay=0.5 train.lr=0.1 train.warmup=0 train.schedule=constant" },
                    on, &model);
    tn_trainer *t = open_trainer(st, model);
    for (int i = 0; i < B * T; i++) ((int32_t *)tn_trainer_input(t, "labels"))[i] = -1;
    const tn_entry *e = tn_store_find(tn_trainer_store(t), name);
    assert_non_null(e);
    before = *(const float *)e->data;
    assert_ok(tn_trainer_grad(t, 0, &loss));
    assert_ok(tn_trainer_apply(t, 0, 1, loss, &a));
    const double factor = (double)*(const float *)e->data / (double)before;
    tn_trainer_free(t);
    tn_settings_free(st);
    return factor;
}

static void decay_acts_where_asked(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double matrices, all;
    } rows[] = { { "layer0.mixer.w_in", 0.95, 0.95 },
                 { "layer0.mixer.conv", 1, 0.95 },
                 { "layer0.norm1.w", 1, 0.95 },
                 { "layer0.mixer.nu", 1, 1 - 0.05 * 0.3 },
                 { "layer1.mixer.gain", 1, 0.95 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_true(fabs(decayed("train.decay_on=matrices", rows[i].name) - rows[i].matrices) < 1e-6);
        assert_true(fabs(decayed("train.decay_on=all", rows[i].name) - rows[i].all) < 1e-6);
    }
}

/* --- what is refused -------------------------------------------------------------------------------------------------- */

static void silu_wants_a_convolution(void **state)
{
    const tn_model *model;
    tn_trainer *t = NULL;
    (void)state;
    tn_settings *st = settings_of(&(tn_variant){ "", "gpt", "conv_act=silu" }, NULL, &model);
    assert_fails(
        tn_trainer_new(&(tn_trainer_options){ .model = model, .settings = st, .batch = B, .length = T, .threads = 1 },
                       &t),
        TN_USAGE, "set conv=4, or conv_act=none");
    tn_settings_free(st);
}

/* --- the page ------------------------------------------------------------------------------------------------------ */

static void the_page_has_them(void **state)
{
    (void)state;
    FILE *f = fopen("docs/variants.md", "r");
    char *text = calloc(1, 1 << 16);
    assert_true(f && text);
    assert_true(fread(text, 1, (1 << 16) - 1, f) > 0);
    fclose(f);
    for (size_t i = 0; i < TN_VARIANTS; i++) {
        const tn_variant *v = &tn_variants[i];
        char row[320];
        snprintf(row, sizeof row, "| %s | `%s%s%s` |", v->name, v->model, v->line[0] ? " " : "", v->line);
        if (!strstr(text, row)) fail_msg("docs/variants.md has no row %s", row);
    }
    free(text);
}

void tn_tests_variants(tn_test_list *l)
{
    for (size_t i = 0; i < TN_VARIANTS; i++) {
        const tn_variant *v = &tn_variants[i];
        tn_test_add(l, passes_the_check, v, "variants: %s passes the check", v->name);
        if (!TN_SANITIZED) { /* digits, not memory: the other two run the same code */
            tn_test_add(l, gradients_are_right, v, "variants: %s has the gradient of its loss", v->name);
            tn_test_add(l, rounding_is_harmless, v, "variants: %s in bf16", v->name);
        }
        tn_test_add(l, again_is_the_same, v, "variants: %s computed again is the same", v->name);
    }
    tn_test_add(l, too_few_steps_decide_nothing, &tn_variants[0],
                "variants: overfit without the time for it is skipped");
    tn_test_add(l, decay_acts_where_asked, NULL, "variants: weight decay acts where asked");
    tn_test_add(l, silu_wants_a_convolution, NULL, "variants: gpt: silu wants a convolution");
    tn_test_add(l, the_page_has_them, NULL, "variants: the page has them");
}
