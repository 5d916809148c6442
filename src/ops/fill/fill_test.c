/* fill: every value in every type, and what the planner uses it for: zeroing gradients, whole ones and strided parts.
 * It has no inputs and no gradient, so it does not go through the common driver. */
#include "world.h"

#include <tenon/ops.h>

#include <math.h>

static const tn_dtype types[] = { TN_F32, TN_BF16, TN_F16, TN_F64, TN_I32, TN_I64, TN_U8 };

/* Calls the kernel itself on memory of bytes 0xA5, so that what it leaves alone can be told. */
static void fill_view(tn_dtype type, float value, tn_dims dims, const int64_t *stride, void *data)
{
    const tn_fill_attr a = { .value = value, .dtype = type, .dims = dims };
    tn_arg out = { .data = data, .dtype = type, .dims = dims };
    for (int i = 0; i < dims.rank; i++) out.stride[i] = stride[i];
    assert_ok(tn_op_fill.kernel[TN_CPU].forward(&(tn_call){ .attr = &a, .n_out = 1, .out = &out }));
}

static double number(const void *data, tn_dtype type, int64_t i)
{
    double x;
    tn_convert(&x, TN_F64, (const char *)data + i * (int64_t)tn_dtype_bytes(type), type, 1);
    return x;
}

/* All of these are exact in every type but the last, which integers cut towards zero. */
static void values(void **state)
{
    const tn_dtype type = *(const tn_dtype *)*state;
    static const float value[] = { 0, 1, 96, 2.5f };
    for (size_t k = 0; k < sizeof value / sizeof *value; k++) {
        tn_world w = tn_world_open_on(tn_test_device(), 1, 2);
        tn_graph *g = tn_world_graph_on(tn_test_device(), NULL);
        tn_output(g, "y", tn_fill(g, tn_shape(3, 5), type, value[k]));
        tn_bound *b = tn_world_add(&w, g, NULL);
        assert_ok(tn_run(b));
        const double want = tn_dtype_is_float(type) ? (double)value[k] : floor((double)value[k]);
        for (int64_t i = 0; i < 15; i++) assert_true(number(tn_world_data(b, "y"), type, i) == want);
        tn_world_close(&w);
    }
}

/* Columns 1, 3, 5 of rows 0 and 2 of a (3,7) matrix: the other elements keep every bit, whether a row is zeroed at
 * once (value 0, step 1) or number by number. */
static void only_the_view(void **state)
{
    const tn_dtype type = *(const tn_dtype *)*state;
    const size_t bytes = tn_dtype_bytes(type);
    unsigned char old[8];
    memset(old, 0xA5, sizeof old);
    for (int value = 0; value < 2; value++)
        for (int64_t step = 1; step < 3; step++) {
            unsigned char data[3 * 7 * 8];
            memset(data, 0xA5, sizeof data);
            fill_view(type, (float)value, tn_shape(2, 3), (const int64_t[]){ 14, step }, data + bytes);
            for (int64_t i = 0; i < 21; i++) {
                const int64_t r = i / 7, c = i % 7 - 1;
                const bool inside = r != 1 && c >= 0 && c % step == 0 && c / step < 3;
                if (inside) assert_true(number(data, type, i) == value);
                else assert_memory_equal(data + i * (int64_t)bytes, old, bytes);
            }
        }
}

static void no_elements(void **state)
{
    (void)state;
    float one = 7;
    fill_view(TN_F32, 1, tn_shape(0, 4), (const int64_t[]){ 4, 1 }, &one);
    fill_view(TN_F32, 1, tn_shape(4, 0), (const int64_t[]){ 1, 1 }, &one);
    assert_true(one == 7);
    fill_view(TN_F32, 1, (tn_dims){ 0 }, NULL, &one); /* a scalar is one element */
    assert_true(one == 1);
}

static void special_values(void **state)
{
    (void)state;
    float y[2];
    uint16_t half[2];
    fill_view(TN_F32, NAN, tn_shape(2), (const int64_t[]){ 1 }, y);
    assert_true(isnan(y[0]) && isnan(y[1]));
    fill_view(TN_F32, -0.f, tn_shape(2), (const int64_t[]){ 1 }, y);
    assert_true(y[0] == 0 && y[1] == 0);
    fill_view(TN_BF16, -INFINITY, tn_shape(2), (const int64_t[]){ 1 }, half);
    assert_true(number(half, TN_BF16, 1) == (double)-INFINITY);
}

/* Only columns 1 and 2 of a product of x reach the loss: the planner zeroes the rest of its gradient (a strided view
 * would do, the whole is what it takes), and a second run finds dirt there. A constant has no gradient of its own. */
static void zeroes_gradients(void **state)
{
    (void)state;
    tn_world w = tn_world_open_on(tn_test_device(), 1, 1);
    tn_graph *g = tn_world_graph_on(tn_test_device(), NULL);
    const tn_ref x = tn_want_gradient(g, tn_input(g, "x", tn_shape(2, 4), TN_F32));
    const tn_ref p = tn_mul(g, x, tn_fill(g, tn_shape(2, 4), TN_F32, 3));
    tn_bound *b = tn_world_add(&w, g, &(tn_compile_options){ .loss = tn_sum_all(g, tn_slice(g, p, 1, 1, 2)) });
    int fills = 0;
    for (size_t i = 0; i < tn_plan_graph(w.plan[0])->n_nodes; i++)
        fills += tn_plan_graph(w.plan[0])->node[i].op == &tn_op_fill;
    assert_true(fills >= 2); /* ours, and the planner's */
    static const float want[] = { 0, 3, 3, 0, 0, 3, 3, 0 };
    for (int run = 0; run < 2; run++) {
        assert_ok(tn_run(b));
        assert_memory_equal(tn_world_data(b, "d.x"), want, sizeof want);
        memset(tn_world_data(b, "d.x"), 0x7F, sizeof want);
    }
    tn_world_close(&w);
}

/* All parts of p are read, the middle one behind a stop: only that strided part of the gradient is zeroed. */
static void zeroes_a_part(void **state)
{
    (void)state;
    tn_world w = tn_world_open_on(tn_test_device(), 1, 1);
    tn_graph *g = tn_world_graph_on(tn_test_device(), NULL);
    const tn_ref x = tn_want_gradient(g, tn_input(g, "x", tn_shape(2, 6), TN_F32)), p = tn_scale(g, x, 2);
    const tn_ref y = tn_mul(g, tn_part(g, p, 0, 3), tn_stop_gradient(g, tn_part(g, p, 1, 3)));
    tn_bound *b =
        tn_world_add(&w, g, &(tn_compile_options){ .loss = tn_sum_all(g, tn_add(g, y, tn_part(g, p, 2, 3))) });
    float *in = tn_world_data(b, "x");
    for (int i = 0; i < 12; i++) in[i] = (float)i;
    static const float want[] = { 8, 12, 0, 0, 2, 2, 32, 36, 0, 0, 2, 2 };
    for (int run = 0; run < 2; run++) {
        assert_ok(tn_run(b));
        assert_memory_equal(tn_world_data(b, "d.x"), want, sizeof want);
    }
    tn_world_close(&w);
}

/* The whole capacity is written, also where only some rows are alive: what dies later must not be garbage. */
static void whole_capacity(void **state)
{
    (void)state;
    const int32_t live = 1;
    float y[6] = { 9, 9, 9, 9, 9, 9 };
    const tn_fill_attr a = { .value = 4, .dtype = TN_F32, .dims = tn_shape(3, 2) };
    const tn_arg out = { .data = y, .dtype = TN_F32, .dims = a.dims, .stride = { 2, 1 }, .live = &live };
    assert_ok(tn_op_fill.kernel[TN_CPU].forward(&(tn_call){ .attr = &a, .n_out = 1, .out = &out }));
    for (int i = 0; i < 6; i++) assert_true(y[i] == 4);
}

void tn_tests_fill(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        tn_test_add(l, values, &types[i], "fill: values, %s", tn_dtype_name(types[i]));
        tn_test_add(l, only_the_view, &types[i], "fill: nothing outside a view, %s", tn_dtype_name(types[i]));
    }
    tn_test_add(l, no_elements, NULL, "fill: no elements, and one");
    tn_test_add(l, special_values, NULL, "fill: NaN, infinity, negative zero");
    tn_test_add(l, zeroes_gradients, NULL, "fill: the planner zeroes what no gradient reaches");
    tn_test_add(l, zeroes_a_part, NULL, "fill: the planner zeroes a strided part");
    tn_test_add(l, whole_capacity, NULL, "fill: live extents do not bound it");
}
