/* take_samples: rows (dim = samples, rows, width, valid); what a byte becomes, what padding is, and that no bit is lost. */
#include "optest.h"
#include "world.h"

#include <tenon/ops.h>

#include <math.h>
#include <string.h>

enum { BYTES = 1, LABELS = 2, CUBES = 4 };
enum { NUMBER, VALID, SET };

static const float SCALE = 1.f / 255;

static const tn_case cases[] = {
    { "floats", { 6, 9, 5, 7 }, TN_NO_GRAD, 1e-30f, 0 },
    { "bytes", { 6, 9, 5, 7 }, BYTES | TN_NO_GRAD, 1e-6f, 0 },
    { "bytes by fours", { 6, 9, 8, 9 }, BYTES | TN_NO_GRAD, 1e-6f, 0 },
    { "labels", { 6, 9, 1, 7 }, LABELS | TN_NO_GRAD, 1e-30f, 0 },
    { "cubes", { 6, 9, 4, 7 }, BYTES | CUBES | TN_NO_GRAD, 1e-6f, 0 },
    { "images", { 50, 300, 784, 299 }, BYTES | TN_FEW | TN_NO_GRAD, 1e-6f, 0 },
    { "nothing valid", { 6, 9, 5, 0 }, TN_NO_GRAD, 1e-30f, 0 },
    { "no rows", { 6, 0, 5, 0 }, TN_NO_GRAD, 1e-30f, 0 },
    { "no samples", { 0, 3, 5, 3 }, TN_NO_GRAD, 1e-30f, 0 },
    { "no numbers", { 6, 4, 0, 4 }, TN_NO_GRAD, 1e-30f, 0 },
};

static tn_dims set_dims(const tn_case *c)
{
    return c->flags & CUBES ? tn_shape(c->dim[0], c->dim[2], 2, 3) : tn_shape(c->dim[0], c->dim[2]);
}

static float pad_of(const tn_case *c) { return c->flags & LABELS ? -1 : 0.5f; }

static void build(tn_op_io *io, const tn_case *c)
{
    const tn_fill_spec of = c->flags & BYTES    ? (tn_fill_spec){ .kind = TN_FILL_INT, .hi = 256, .dtype = TN_U8 }
                            : c->flags & LABELS ? (tn_fill_spec){ .kind = TN_FILL_INT, .lo = -2e9, .hi = 2e9 }
                                                : (tn_fill_spec){ .constant = true };
    const double samples = (double)(c->dim[0] > 0 ? c->dim[0] : 1);
    const tn_ref number = tn_test_input(io, tn_shape(c->dim[1]), (tn_fill_spec){ .kind = TN_FILL_INT, .hi = samples });
    const tn_ref valid = tn_test_input(io, tn_shape(1), (tn_fill_spec){ .kind = TN_FILL_INT, .hi = 1 });
    tn_test_output(io, tn_take_samples(tn_test_graph(io), tn_test_input(io, set_dims(c), of), number, valid, SCALE,
                                       pad_of(c)));
}

/* One number lies outside, and the rows that do not count have numbers like the others. */
static void adjust(const tn_case *c, int input, double *x, int64_t n)
{
    if (input == VALID) x[0] = (double)c->dim[3];
    if (input == NUMBER && n > 2) x[1] = -1, x[2] = (double)c->dim[0];
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t w = c->dim[2] * (c->flags & CUBES ? 6 : 1);
    for (int64_t i = 0; i < c->dim[1]; i++)
        for (int64_t j = 0; j < w; j++) {
            const int64_t r = (int64_t)o->in[NUMBER][i];
            const bool there = i < (int64_t)o->in[VALID][0] && r >= 0 && r < c->dim[0];
            o->out[0][i * w + j] =
                !there ? (double)pad_of(c) : o->in[SET][r * w + j] * (c->flags & BYTES ? (double)SCALE : 1);
        }
}

static const tn_op_test test;

/* The 256 numbers that a byte may be are those of the same product on the host. */
static void every_byte(void)
{
    enum { N = 256 };
    const tn_case c = { "property", { N, N, 1, N }, BYTES, 1, 0 };
    uint8_t set[N];
    int32_t number[N];
    const int32_t valid = N;
    float y[N];
    for (int i = 0; i < N; i++) set[i] = (uint8_t)i, number[i] = N - 1 - i;
    tn_optest_run(&test, &c, 1, (const void *[]){ number, &valid, set }, (void *[]){ y }, NULL, NULL);
    for (int i = 0; i < N; i++) {
        const float want = (float)(N - 1 - i) * SCALE;
        assert_memory_equal(&y[i], &want, sizeof want);
    }
}

/* Floats move: infinities, zeros with a sign, denormal numbers and the bits of a NaN. */
static void no_bit_is_lost(void)
{
    enum { N = 8 };
    const tn_case c = { "property", { N, N, 1, N }, 0, 1, 0 };
    static const uint32_t set[N] = { 0x7fc01234, 0xff800000, 0x80000000, 1, 0x7f7fffff, 0x3f800001, 0, 0xffc00001 };
    static const int32_t number[N] = { 7, 6, 5, 4, 3, 2, 1, 0 };
    const int32_t valid = N;
    uint32_t y[N];
    tn_optest_run(&test, &c, 1, (const void *[]){ number, &valid, set }, (void *[]){ y }, NULL, NULL);
    for (int i = 0; i < N; i++) assert_int_equal(y[i], set[N - 1 - i]);
}

static void shapes_are_checked(void)
{
    static const struct {
        tn_dtype set, number;
        int64_t valid;
        const char *says;
    } wrong[] = { { TN_F32, TN_F32, 1, "must be an i32 vector" },
                  { TN_F32, TN_I32, 2, "must be one i32 number" },
                  { TN_BF16, TN_I32, 1, "must be u8, f32 or i32" } };
    for (size_t i = 0; i < TN_COUNT(wrong); i++) {
        tn_graph *g = tn_world_graph(NULL);
        tn_take_samples(g, tn_input(g, "set", tn_shape(3, 2), wrong[i].set),
                        tn_input(g, "number", tn_shape(4), wrong[i].number),
                        tn_input(g, "valid", tn_shape(wrong[i].valid), TN_I32), 1, 0);
        assert_fails(tn_graph_status(g), TN_USAGE, wrong[i].says);
        tn_graph_free(g);
    }
}

static const tn_property properties[] = { { "every byte", every_byte },
                                          { "no bit is lost", no_bit_is_lost },
                                          { "shapes are checked", shapes_are_checked } };

static const tn_op_test test = {
    .op = "take_samples",
    .cases = cases,
    .n_cases = TN_COUNT(cases),
    .build = build,
    .oracle = oracle,
    .adjust = adjust,
    .properties = properties,
    .n_properties = TN_COUNT(properties),
};

void tn_tests_take_samples(tn_test_list *l) { tn_optest_add(l, &test); }
