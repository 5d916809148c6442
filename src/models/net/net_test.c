/* The baselines, in f32 on the device of TENON_TEST_DEVICE: which cells of the input a cell of the output depends on, losses by
 * hand, what each kind can learn, widths for a number of parameters, and what is refused. */
#include "models/models.h"
#include "tep_world.h"
#include "train/trainer/width_fit.h"

#include <stdio.h>
#include <string.h>

enum { B = 3, W = 8, H = 4, S = W * H, C = 5 };

typedef struct shape {
    int64_t batch, width, height;
    bool labels, target, evaluate;
} shape;

#define LIST(...) ((const char *const[]){ __VA_ARGS__, NULL })
static const char *const kinds[] = { "kind=linear", "kind=mlp", "kind=cell_mlp", "kind=conv", "kind=patches" };
enum { LINEAR, MLP, CELL_MLP, CONV, PATCHES, KINDS };

static tn_settings *settings_of(const char *const *more, const tn_model **model)
{
    tn_settings *st;
    size_t n = 0;
    while (more[n]) n++;
    assert_ok(tn_settings_resolve("net", more, n, &st, model));
    return st;
}

static tn_batch batch_of(tn_graph *g, const shape *z)
{
    tn_batch b = { .size = sizeof b, .batch = z->batch, .length = 1, .want = { "logits" }, .n_wants = z->labels };
    const int64_t cells = z->width * z->height;
    tn_batch_add(&b, "features", tn_input(g, "features", tn_shape(z->batch, 1, cells), TN_F32));
    if (z->labels) tn_batch_add(&b, "labels", tn_input(g, "labels", tn_shape(z->batch, 1), TN_I32));
    if (z->target) tn_batch_add(&b, "target", tn_input(g, "target", tn_shape(z->batch, cells), TN_F32));
    tn_batch_add(&b, "count", tn_input(g, "count", tn_shape(1), TN_I32));
    return b;
}

static float number(int64_t i) { return 0.5f + 0.5f * (float)sin(1.7 * (double)i + 0.3 * (double)(i % 7)); }

static tn_bound *add(tn_world *w, const shape *z, const char *const *more)
{
    const tn_model *model;
    tn_settings *st = settings_of(more, &model);
    tn_graph *g = tn_world_graph_on(w->device, &(tn_graph_options){ .training = !z->evaluate, .threads = 1 });
    const tn_batch b = batch_of(g, z);
    assert_ok(model->build(g, st, &b));
    tn_settings_free(st);
    tn_bound *bound =
        tn_world_add(w, g,
                     &(tn_compile_options){ .threads = 1, .loss = z->evaluate ? TN_NONE : tn_graph_output(g, "loss") });
    float *x = tn_world_data(bound, "features"), *t = z->target ? tn_world_data(bound, "target") : NULL;
    int32_t *labels = z->labels ? tn_world_data(bound, "labels") : NULL;
    for (int64_t i = 0; i < z->batch * z->width * z->height; i++) x[i] = number(i);
    for (int64_t i = 0; t && i < z->batch * z->width * z->height; i++) t[i] = number(3 * i + 1);
    for (int64_t i = 0; labels && i < z->batch; i++) labels[i] = (int32_t)(i * 2 % C);
    if (!labels) *(int32_t *)tn_world_data(bound, "count") = (int32_t)z->batch; /* labels of -1 say it themselves */
    return bound;
}

static const shape to_surface = { B, W, H, .target = true, .evaluate = true };

/* --- which cells see which -------------------------------------------------------------------------------------------------- */

/* Cells of the output that change with cell `at` of the input; those of other samples never do. The plan is the same, and so are its
 * bits. */
static void who_changes(tn_bound *b, int64_t at, bool changed[S])
{
    float before[B * S];
    float *x = tn_world_data(b, "features");
    assert_ok(tn_run(b));
    memcpy(before, tn_world_data(b, "surface"), sizeof before);
    x[S + at] += 0.5f; /* of the second sample */
    assert_ok(tn_run(b));
    x[S + at] -= 0.5f;
    const float *y = tn_world_data(b, "surface");
    for (int64_t i = 0; i < S; i++) {
        changed[i] = before[S + i] != y[S + i];
        assert_true(before[i] == y[i] && before[2 * S + i] == y[2 * S + i]);
    }
}

/* Two hidden layers of convolutions and the last one reach three cells far. */
static void reach(void **state)
{
    const int kind = *(const int *)*state;
    tn_world w = tn_world_open_on(tn_test_device(), 3, 1);
    tn_bound *b = add(&w, &to_surface, LIST(kinds[kind], "width=8", "dim=8", kind == LINEAR ? "ffn=auto" : "layers=2"));
    for (int64_t at = 0; at < S; at += 5) {
        bool changed[S];
        who_changes(b, at, changed);
        for (int64_t i = 0; i < S; i++) {
            const int64_t dx = llabs(i % W - at % W), dy = llabs(i / W - at / W);
            const bool sees = kind == CELL_MLP ? i == at : kind == CONV ? dx <= 3 && dy <= 3 : true;
            if (changed[i] != sees)
                fail_msg("cell %lld %s cell %lld", (long long)i, sees ? "does not see" : "sees", (long long)at);
        }
    }
    tn_world_close(&w);
}

/* The same value gives another one in another cell only if the place is read: u and v are. */
static void places(void **state)
{
    tn_world w = tn_world_open_on(tn_test_device(), 3, 1);
    tn_bound *b = add(&w, &to_surface, LIST("kind=cell_mlp", "width=8", "dim=8"));
    const tn_entry *e = tn_world_entry(&w, "places");
    float *x = tn_world_data(b, "features"), *uv = tn_memory_floats(w.store, e->data, 2 * S);
    (void)state;
    assert_int_equal(e->role, TN_ROLE_FROZEN);
    for (int64_t i = 0; i < S; i++) {
        assert_float_equal(uv[2 * i], -1 + 2. * (double)(i % W) / (W - 1), 1e-6);
        assert_float_equal(uv[2 * i + 1], -1 + 2. * (double)(i / W) / (H - 1), 1e-6);
        x[i] = 0.5f;
    }
    assert_ok(tn_run(b));
    const float *y = tn_world_data(b, "surface");
    for (int64_t i = 1; i < S; i++) assert_true(y[i] != y[i - 1]);
    free(uv);
    tn_world_close(&w);
}

/* Without its table of positions the transformer knows patches by their content: those that change places do so in the output. */
static void patches_are_cut_and_put_back(void **state)
{
    enum { P = 4, COLUMNS = W / P };
    tn_world w = tn_world_open_on(tn_test_device(), 3, 1);
    tn_bound *b = add(&w, &to_surface, LIST("kind=patches", "width=8", "dim=8"));
    float *x = tn_world_data(b, "features"), before[S];
    const tn_entry *e = tn_world_entry(&w, "position");
    (void)state;
    assert_int_equal(e->dims.dim[0], COLUMNS * H / P);
    assert_ok(tn_store_clear(w.store, e->data, sizeof(float) * (size_t)tn_dims_count(e->dims)));
    assert_ok(tn_run(b));
    memcpy(before, tn_world_data(b, "surface"), sizeof before);
    for (int64_t i = 0; i < S; i++) x[i] = number(i / W * W + (i % W + P) % W); /* the two patches exchanged */
    assert_ok(tn_run(b));
    const float *y = tn_world_data(b, "surface");
    for (int64_t i = 0; i < S; i++) assert_float_equal(y[i], before[i / W * W + (i % W + P) % W], 1e-5);
    tn_world_close(&w);
}

/* --- losses ------------------------------------------------------------------------------------------------------------------ */

static const tn_metric_row *metric(const char *name)
{
    for (size_t i = 0; i < tn_model_named("net")->n_metrics; i++)
        if (strcmp(tn_model_named("net")->metrics[i].name, name) == 0) return &tn_model_named("net")->metrics[i];
    fail_msg("there is no metric %s", name);
    return NULL;
}

static void surface_loss(void **state)
{
    tn_world w = tn_world_open_on(tn_test_device(), 3, 1);
    tn_bound *b = add(&w, &to_surface, LIST(kinds[*(const int *)*state], "width=8", "dim=8"));
    const float *x = tn_world_data(b, "features"), *t = tn_world_data(b, "target");
    double off = 0, idle = 0;
    *(int32_t *)tn_world_data(b, "count") = B - 1; /* the last row is padding */
    assert_ok(tn_run(b));
    const float *y = tn_world_data(b, "surface");
    for (int64_t i = 0; i < (B - 1) * S; i++) {
        off += pow((double)y[i] - (double)t[i], 2);
        idle += pow((double)x[i] - (double)t[i], 2);
    }
    const double cells = (B - 1) * S, sums[] = { *(float *)tn_world_data(b, "squares"), cells };
    assert_float_equal(*(float *)tn_world_data(b, "loss"), off / cells, 1e-5 * off);
    assert_float_equal(sums[0], off, 1e-5 * off);
    assert_float_equal(*(float *)tn_world_data(b, "squares_identity"), idle, 1e-5 * idle);
    assert_float_equal(*(float *)tn_world_data(b, "cells"), cells, 0);
    assert_float_equal(metric("psnr")->make(sums, NULL), 10 * log10(cells / off), 1e-4);
    assert_float_equal(metric("psnr")->make((const double[]){ 0, 1 }, NULL), 100, 1e-9);
    tn_world_close(&w);
}

static void class_loss(void **state)
{
    const shape z = { B, W, H, .labels = true, .evaluate = true };
    tn_world w = tn_world_open_on(tn_test_device(), 3, 1);
    tn_bound *b = add(&w, &z, LIST(kinds[*(const int *)*state], "width=8", "dim=8", "classes=5"));
    int32_t *labels = tn_world_data(b, "labels");
    double nll = 0;
    labels[B - 1] = -1;
    assert_ok(tn_run(b));
    const float *logits = tn_world_data(b, "logits");
    for (int64_t i = 0; i < B - 1; i++) {
        double sum = 0;
        for (int64_t c = 0; c < C; c++) sum += exp((double)logits[i * C + c]);
        nll += log(sum) - (double)logits[i * C + labels[i]];
    }
    assert_float_equal(*(float *)tn_world_data(b, "loss"), nll / (B - 1), 1e-5);
    tn_world_close(&w);
}

/* --- what they learn --------------------------------------------------------------------------------------------------------- */

/* Images moved by one cell to the right: the part of what doing nothing costs that is left after 150 steps of Adam. */
static double left_of_a_shift(int kind)
{
    enum { ROWS = 8, SIDE = 6, CELLS = SIDE * SIDE, MOST = 200000 };
    const shape z = { ROWS, SIDE, SIDE, .target = true };
    tn_world w = tn_world_open_on(tn_test_device(), 3, 1);
    tn_bound *b = add(&w, &z, LIST(kinds[kind], kind == LINEAR ? "dim=auto" : "dim=16", "patch=2"));
    float *x = tn_world_data(b, "features"), *t = tn_world_data(b, "target");
    double *moments = calloc(2 * MOST, sizeof *moments), idle = 0;
    assert_non_null(moments);
    for (int64_t i = 0; i < ROWS * CELLS; i++) t[i] = i % SIDE ? x[i - 1] : 0;
    for (int64_t i = 0; i < ROWS * CELLS; i++) idle += pow((double)x[i] - (double)t[i], 2) / (ROWS * CELLS);
    for (int step = 1; step <= 150; step++) {
        tn_store_zero_grad(w.store);
        assert_ok(tn_run(b));
        tep_adam(&w, 0.01, step, moments, MOST);
    }
    const double loss = *(float *)tn_world_data(b, "loss");
    free(moments);
    tn_world_close(&w);
    return loss / idle;
}

/* What comes from a neighbour, a network of single cells cannot know. */
static void learns_a_shift(void **state)
{
    const int kind = *(const int *)*state;
    const double left = left_of_a_shift(kind);
    if (kind == CELL_MLP ? left < 0.2 : !(left < 0.05)) fail_msg("%s: %.4f is left", kinds[kind], left);
}

/* --- widths ------------------------------------------------------------------------------------------------------------------ */

static void widths(void **state)
{
    static const int64_t wanted[] = { 100000, 300000, 1000000 };
    static const tn_input_row rows[] = { { "features", TN_F32, .dims = { TN_B, TN_T, "inputs" } },
                                         { "labels", TN_I32, { TN_B, "labels" }, .pad = -1 },
                                         { "count", TN_I32, { "1" }, .valid_rows = true } };
    static const tn_source_number one = { "labels", 1 };
    const tn_input_spec data = { .rows = rows, .n_rows = 3, .numbers = &one, .n_numbers = 1 };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        const tn_model *m;
        tn_width found;
        tn_settings *st = settings_of(LIST(kinds[*(const int *)*state], "inputs=784", "tokens=1", "classes=10"), &m);
        assert_ok(tn_width_fit(m, st, &data, NULL, wanted[i], &found));
        assert_true(llabs(found.parameters - wanted[i]) <= (int64_t)(TN_WIDTH_TOLERANCE * (double)wanted[i]));
        tn_settings_free(st);
    }
}

/* --- what is refused --------------------------------------------------------------------------------------------------------- */

static const struct refusal {
    int64_t width, height;
    bool labels, target;
    const char *set[4];
    const char *error;
} refusals[] = {
    { 7,
      3,
      true,
      false,
      { "kind=conv", "classes=5" },
      "kind=conv needs a surface, and samples of 21 numbers are not a square: set width (a divisor of 21)" },
    { 7,
      3,
      false,
      true,
      { "kind=cell_mlp", "width=4" },
      "width=4 and height=5 does not hold samples of 21 numbers: set a width that divides 21" },
    { 6, 6, false, true, { "kind=patches" }, "patch=4 does not divide the surface of 6 x 6 cells" },
    { 8, 8, false, true, { "kind=patches", "dim=6" }, "dim=6 must be a multiple of heads=4" },
    { 8, 8, false, true, { "kind=linear", "layers=2" }, "kind=linear has no hidden layers: leave layers at auto" },
    { 8, 8, false, true, { "classes=5" }, "the task wants a surface, and classes=5: leave classes at auto" },
    { 8, 8, true, false, { NULL }, "classes is auto and no task is set" },
};

static void refused(void **state)
{
    const struct refusal *r = *state;
    const shape z = { B, r->width, r->height, .labels = r->labels, .target = r->target };
    const tn_model *m;
    tn_settings *st = settings_of(r->set, &m);
    tn_graph *g = tn_world_graph(&(tn_graph_options){ .threads = 1 });
    const tn_batch b = batch_of(g, &z);
    assert_fails(m->build(g, st, &b), TN_USAGE, r->error);
    tn_graph_free(g);
    tn_settings_free(st);
}

void tn_tests_net(tn_test_list *l)
{
    static const int each[KINDS] = { LINEAR, MLP, CELL_MLP, CONV, PATCHES };
    for (int k = 0; k < KINDS; k++) {
        tn_test_add(l, reach, &each[k], "net: %s: which cells see which", kinds[k]);
        tn_test_add(l, surface_loss, &each[k], "net: %s: the loss of a surface", kinds[k]);
        tn_test_add(l, class_loss, &each[k], "net: %s: the loss of classes", kinds[k]);
        tn_test_add(l, learns_a_shift, &each[k], "net: %s: a shift by one cell", kinds[k]);
        tn_test_add(l, widths, &each[k], "net: %s: widths for 100 k, 300 k and 1 M parameters", kinds[k]);
    }
    tn_test_add(l, places, NULL, "net: a cell's place");
    tn_test_add(l, patches_are_cut_and_put_back, NULL, "net: patches are cut and put back");
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        tn_test_add(l, refused, &refusals[i], "net refuses %s", refusals[i].error);
}
