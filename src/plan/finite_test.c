/* The first number that is not finite, wherever it comes from: what a plan is given, a forward pass, a backward pass. A look changes no bit. */
#include "plan/graph.h"
#include "world.h"

#include <tenon/ops.h>

enum { R = 3, D = 4 };

/* loss = sum exp(x w) / 100 + sum sqrt(c) */
static tn_bound *open_plan(tn_world *w)
{
    tn_graph *g = tn_world_graph_on(w->device, NULL);
    const tn_ref x = tn_input(g, "x", tn_shape(R, D), TN_F32), m = tn_param(g, "w", tn_shape(D, D), tn_normal(0.5f));
    const tn_ref c = tn_param(g, "c", tn_shape(D), tn_ones);
    const tn_region r = tn_region_begin(g, "inner");
    const tn_ref h = tn_exp(g, tn_linear(g, x, m));
    tn_region_end(g, r);
    const tn_ref loss = tn_add(g, tn_scale(g, tn_sum_all(g, h), 0.01f), tn_sum_all(g, tn_sqrt(g, c)));
    tn_output(g, "loss", loss);
    return tn_world_add(w, g, &(tn_compile_options){ .loss = loss });
}

static void put(const tn_world *w, const char *name, int64_t i, float x)
{
    assert_ok(tn_store_write(w->store, (float *)tn_world_entry(w, name)->data + i, &x, sizeof x));
}

static const struct bad_row {
    const char *what, *tensor; /* "": the input */
    int64_t at;
    float x;
    const char *says[3];
    int64_t row;
} bad_rows[] = {
    { "nothing", "", 0, 1, { "" }, 0 },
    { "an input", "", 6, NAN, { "the input x, f32 (3,4): NaN at (1,2)" }, 1 },
    { "a parameter", "w", 5, -INFINITY, { "the parameter w, f32 (4,4): infinity at (1,1)" }, -1 },
    { "an overflow", "w", 0, 3e38f, { "the output of linear in inner (finite_test.c:", "infinity at (1,0)" }, 1 },
    { "an exponential",
      "w",
      0,
      1e4f,
      { "the output of unary in inner (finite_test.c:", "infinity at (0,0)", "numbers are not finite" },
      0 },
    { "a gradient alone",
      "c",
      2,
      0,
      { "the gradient of ", "unary in the graph (finite_test.c:", "infinity at (2)" },
      -1 },
};

static void finds(void **state)
{
    const struct bad_row *r = *state;
    tn_world w = tn_world_open_on(tn_test_device(), 3, 1);
    tn_bound *b = open_plan(&w);
    tn_finding f = { 0 };
    float *x = tn_world_data(b, "x"), loss[2];
    for (int i = 0; i < R * D; i++) x[i] = (float)(i % 5) + 1;
    if (r->tensor[0]) put(&w, r->tensor, r->at, r->x);
    else x[r->at] = r->x;
    assert_ok(tn_run(b));
    memcpy(&loss[0], tn_world_data(b, "loss"), sizeof *loss);
    tn_store_zero_grad(w.store);
    tn_bound_check(b, &f);
    assert_ok(tn_run(b));
    memcpy(&loss[1], tn_world_data(b, "loss"), sizeof *loss);
    tn_bound_check(b, NULL);
    if (isfinite(loss[0])) assert_memory_equal(&loss[0], &loss[1], sizeof *loss);
    assert_true(f.found == (r->says[0][0] != 0));
    for (int i = 0; i < 3 && r->says[i]; i++)
        if (!strstr(f.text, r->says[i])) fail_msg("\"%s\" does not say \"%s\"", f.text, r->says[i]);
    if (f.found) assert_int_equal(f.row, r->row);
    f.found = false;
    assert_ok(tn_run(b)); /* off again */
    assert_false(f.found);
    tn_world_close(&w);
}

/* Samples that stay in the store belong to no batch. */
static void finds_in_samples(void **state)
{
    (void)state;
    tn_world w = tn_world_open_on(tn_test_device(), 3, 1);
    tn_finding f = { 0 };
    tn_graph *g = tn_world_graph_on(w.device, NULL);
    const tn_ref set = tn_graph_data(g, "set", tn_shape(5, D), TN_F32),
                 number = tn_input(g, "number", tn_shape(R), TN_I32);
    const tn_ref valid = tn_input(g, "valid", tn_shape(1), TN_I32);
    tn_output(g, "y", tn_take_samples(g, set, number, valid, 1, 0));
    tn_bound *b = tn_world_add(&w, g, NULL);
    put(&w, "set", 3 * D + 1, NAN);
    tn_bound_check(b, &f);
    assert_ok(tn_run(b));
    assert_true(f.found && f.row == -1);
    if (!strstr(f.text, "the samples set, f32 (5,4): NaN at (3,1)")) fail_msg("\"%s\"", f.text);
    tn_world_close(&w);
}

void tn_tests_finite(tn_test_list *l)
{
    tn_test_add(l, finds_in_samples, NULL, "finite: samples that stay");
    for (size_t i = 0; i < sizeof bad_rows / sizeof *bad_rows; i++)
        tn_test_add(l, finds, &bad_rows[i], "finite: %s", bad_rows[i].what);
}
