/* copy: rows (dim = R, C), casts and properties. */
#include "optest.h"
#include "world.h"

#include <tenon/ops.h>

#include <math.h>

enum { TO_BF16 = 1, TWICE = 2 };

static const tn_case cases[] = {
    { "matrix", { 5, 7 }, 0, 1e-7f, 1e-2f },
    { "large", { 700, 97 }, TN_FEW, 1e-7f, 1e-2f },
    { "empty", { 0, 7 }, 0, 1e-7f, 1e-2f },
    { "cast", { 5, 7 }, TO_BF16, 5e-3f, 0 },
};

static void build(tn_op_io *io, const tn_case *c)
{
    tn_graph *g = tn_test_graph(io);
    const tn_ref x = tn_test_input(io, tn_shape(c->dim[0], c->dim[1]), (tn_fill_spec){ 0 });
    tn_test_output(io, c->flags & TO_BF16 ? tn_cast(g, x, TN_BF16) : tn_copy(g, x));
    const tn_ref turned = tn_copy(g, tn_transpose(g, x, 1, 0));
    tn_test_output(io, c->flags & TWICE ? tn_copy(g, tn_transpose(g, turned, 1, 0)) : turned);
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t R = c->dim[0], C = c->dim[1];
    for (int64_t i = 0; i < R; i++)
        for (int64_t j = 0; j < C; j++) {
            o->out[0][i * C + j] = o->in[0][i * C + j];
            o->out[1][j * R + i] = o->in[0][i * C + j];
        }
}

static const tn_op_test test;

/* Transposed and copied twice: the same bits, NaN payloads and negative zeros included; so is the gradient. */
static void twice_is_nothing(void)
{
    enum { R = 33, C = 130 };
    const tn_case c = { "property", { R, C }, TWICE, 1, 0 };
    static float x[R * C], y[R * C], once[R * C], dx[R * C], dy[R * C];
    for (uint32_t i = 0; i < R * C; i++) {
        const uint32_t bits = i * 2654435761u, plain = 0x3F000000u + i;
        memcpy(&x[i], &bits, 4);
        memcpy(&dy[i], &plain, 4);
    }
    for (int threads = 1; threads <= 2; threads++) {
        tn_optest_run(&test, &c, threads, (const void *[]){ x }, (void *[]){ once, y }, NULL, NULL);
        assert_memory_equal(y, x, sizeof x);
        assert_memory_equal(once, x, sizeof x);
    }
    static const float zero[R * C]; /* the other output counts for nothing: 0 + dy = dy */
    tn_optest_run(&test, &c, 1, (const void *[]){ x }, NULL, (void *[]){ dx }, (const float *[]){ zero, dy });
    assert_memory_equal(dx, dy, sizeof dx);
}

/* f32 -> bf16 -> f32: the nearest of the two neighbours, the even one where both are as near. */
static void rounds_to_nearest_even(void)
{
    static const struct {
        uint32_t from, to;
    } bits[] = {
        { 0x3F800000, 0x3F800000 }, { 0x3F807FFF, 0x3F800000 }, { 0x3F808000, 0x3F800000 }, /* half way: down to even */
        { 0x3F808001, 0x3F810000 }, { 0x3F818000, 0x3F820000 },                             /* half way: up to even */
        { 0xBF818000, 0xBF820000 }, { 0x80000000, 0x80000000 }, { 0x7F7FFFFF, 0x7F800000 }, /* overflows to infinity */
        { 0x7F800000, 0x7F800000 }, { 0x00008000, 0x00000000 }, { 0x00018000, 0x00020000 }, /* subnormal */
        { 0xFF800000, 0xFF800000 },
    };
    tn_world w = tn_world_open(1, 1);
    tn_graph *g = tn_world_graph(NULL);
    const tn_ref x = tn_input(g, "x", tn_shape(TN_COUNT(bits) + 1), TN_F32);
    tn_output(g, "y", tn_cast(g, tn_cast(g, x, TN_BF16), TN_F32));
    tn_bound *b = tn_world_add(&w, g, NULL);
    uint32_t *in = tn_world_data(b, "x");
    for (size_t i = 0; i < TN_COUNT(bits); i++) in[i] = bits[i].from;
    in[TN_COUNT(bits)] = 0x7F800001; /* a NaN whose payload would be rounded away */
    assert_ok(tn_run(b));
    const uint32_t *y = tn_world_data(b, "y");
    for (size_t i = 0; i < TN_COUNT(bits); i++)
        if (y[i] != bits[i].to) fail_msg("%08x became %08x instead of %08x", bits[i].from, y[i], bits[i].to);
    assert_true(isnan(((const float *)tn_world_data(b, "y"))[TN_COUNT(bits)]));
    tn_world_close(&w);
}

/* A row that is not alive is neither read nor written: what stood in a state there stays. */
static void only_live_rows(void)
{
    enum { R = 5, C = 3 };
    tn_world w = tn_world_open(1, 2);
    tn_graph *g = tn_world_graph(&(tn_graph_options){ .threads = 2 });
    const tn_ref x = tn_live(g, tn_input(g, "x", tn_shape(R, C), TN_F32), tn_input(g, "n", tn_shape(1), TN_I32));
    tn_assign(g, tn_state(g, "kept", tn_shape(R, C), TN_F32), x);
    tn_bound *b = tn_world_add(&w, g, NULL);
    float *in = tn_world_data(b, "x"), *kept = tn_world_entry(&w, "kept")->data;
    static const int32_t counts[] = { 0, 2, R, R + 4, -3 };
    for (size_t k = 0; k < TN_COUNT(counts); k++) {
        const int alive = counts[k] < 0 ? 0 : counts[k] > R ? R : counts[k];
        for (int i = 0; i < R * C; i++) in[i] = (float)i, kept[i] = -1;
        *(int32_t *)tn_world_data(b, "n") = counts[k];
        assert_ok(tn_run(b));
        for (int i = 0; i < R * C; i++) assert_true(kept[i] == (i / C < alive ? (float)i : -1.f));
    }
    tn_world_close(&w);
}

/* Exact up to 2^24; views too. */
static void integers_become_floats(void)
{
    enum { R = 3, C = 5 };
    tn_world w = tn_world_open(1, 2);
    tn_graph *g = tn_world_graph(&(tn_graph_options){ .threads = 2 });
    const tn_ref x = tn_input(g, "x", tn_shape(R, C), TN_I32);
    tn_output(g, "y", tn_cast(g, x, TN_F32));
    tn_output(g, "turned", tn_cast(g, tn_transpose(g, x, 1, 0), TN_F32));
    tn_bound *b = tn_world_add(&w, g, NULL);
    int32_t *in = tn_world_data(b, "x");
    for (int i = 0; i < R * C; i++) in[i] = i % 2 ? -i * 1000003 : i << 20;
    assert_ok(tn_run(b));
    const float *y = tn_world_data(b, "y"), *turned = tn_world_data(b, "turned");
    for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++)
            assert_true(y[r * C + c] == (float)in[r * C + c] && turned[c * R + r] == y[r * C + c]);
    tn_world_close(&w);
}

static void no_cast_to_integers(void)
{
    tn_graph *g = tn_world_graph(NULL);
    tn_cast(g, tn_input(g, "x", tn_shape(3), TN_F32), TN_I32);
    assert_fails(tn_graph_status(g), TN_USAGE, "no cast from f32 to i32");
    tn_graph_free(g);
}

static const tn_property properties[] = {
    { "transposing twice changes no bit", twice_is_nothing },
    { "bf16 is the nearest, ties to even", rounds_to_nearest_even },
    { "only live rows", only_live_rows },
    { "integers become floats", integers_become_floats },
    { "floats do not become integers", no_cast_to_integers },
};

static const tn_op_test test = { .op = "copy",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_copy(tn_test_list *l) { tn_optest_add(l, &test); }
