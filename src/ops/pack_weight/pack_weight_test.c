/* pack_weight: shapes, and that a linear which is given a packed weight has the bits of one that is not. */
#include "world.h"

#include <tenon/ops.h>

#include <math.h>
#include <string.h>

static void shapes(void **state)
{
    (void)state;
    tn_graph *g = tn_world_graph(NULL);
    const tn_ref p = tn_pack_weight(g, tn_input(g, "w", tn_shape(9, 5), TN_F32), false);
    assert_ok(tn_graph_status(g));
    assert_int_equal(tn_ref_dtype(g, p), TN_U8);
    assert_true(tn_ref_dim(g, p, 0) >= 9 * 5 * 2); /* a bf16 kernel packs halves */
    tn_pack_weight(g, tn_input(g, "v", tn_shape(9), TN_F32), false);
    assert_fails(tn_graph_status(g), TN_USAGE, "w must be (n,k)");
    tn_graph_free(g);
}

static void integers(void **state)
{
    (void)state;
    tn_graph *g = tn_world_graph(NULL);
    tn_pack_weight(g, tn_input(g, "w", tn_shape(3, 4), TN_I32), true);
    assert_fails(tn_graph_status(g), TN_USAGE, "use f32, bf16 or f16");
    tn_graph_free(g);
}

/* NaN in the weight comes out where it belongs. */
static void nan_passes(void **state)
{
    (void)state;
    enum { M = 9, N = 70, K = 66 };
    tn_world w = tn_world_open(1, 1);
    tn_graph *g = tn_world_graph(NULL);
    const tn_ref weight = tn_input(g, "w", tn_shape(N, K), TN_F32);
    const tn_ref in[TN_LINEAR_INPUTS] = { tn_input(g, "x", tn_shape(M, K), TN_F32), weight, TN_NONE, TN_NONE,
                                          tn_pack_weight(g, weight, false) };
    tn_ref out[2];
    tn_output(g, "y", tn_graph_add(g, "test", 0, &tn_op_linear, &(tn_linear_attr){ 0 }, in, TN_LINEAR_INPUTS, out));
    tn_bound *b = tn_world_add(&w, g, NULL);
    float *x = tn_bound_data(b, "x"), *v = tn_bound_data(b, "w");
    for (int i = 0; i < M * K; i++) x[i] = sinf((float)i);
    for (int i = 0; i < N * K; i++) v[i] = cosf((float)i);
    v[40 * K + 3] = NAN;
    assert_ok(tn_run(b));
    const float *y = tn_world_data(b, "y");
    for (int i = 0; i < M * N; i++) assert_true(isnan(y[i]) == (i % N == 40));
    tn_world_close(&w);
}

void tn_tests_pack_weight(tn_test_list *l)
{
    tn_test_add(l, shapes, NULL, "pack_weight: shapes");
    tn_test_add(l, integers, NULL, "pack_weight: floats only");
    tn_test_add(l, nan_passes, NULL, "pack_weight: NaN passes");
}
