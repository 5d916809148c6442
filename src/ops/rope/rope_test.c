/* rope: rows (dim = B, T, H, D), both layouts, offsets, positions per token, stretched frequencies. */
#include "optest.h"

#include <tenon/ops.h>

#include <math.h>
#include <string.h>

enum { OFFSET = 1, EACH = 2, INTERLEAVED = 4, STRETCH = 8, LIVE = 16, ROWS = 128 };

static const tn_case cases[] = {
    /*              B  T  H  D */
    { "half split", { 2, 5, 3, 8 }, 0, 1e-6f, 2e-2f },
    { "interleaved", { 2, 5, 3, 8 }, INTERLEAVED | OFFSET, 1e-6f, 2e-2f },
    { "far", { 1, 3, 2, 64 }, OFFSET, 1e-6f, 2e-2f },
    { "each", { 3, 4, 2, 6 }, EACH, 1e-6f, 2e-2f },
    { "stretch", { 1, 9, 2, 64 }, STRETCH | OFFSET, 1e-6f, 2e-2f },
    { "sequences", { 3, 4, 2, 6 }, ROWS, 1e-6f, 2e-2f },
    { "live", { 5, 4, 2, 6 }, LIVE | EACH, 1e-6f, 0 },
    { "large", { 3, 50, 4, 64 }, TN_FEW, 1e-6f, 2e-2f },
    { "empty", { 2, 0, 3, 4 }, 0, 1e-6f, 0 },
};

enum { ALIVE = 3 };

static void build(tn_op_io *io, const tn_case *c)
{
    const int64_t B = c->dim[0], T = c->dim[1];
    tn_graph *g = tn_test_graph(io);
    tn_ref x = tn_test_input(io, tn_shape(B, T, c->dim[2], c->dim[3]), (tn_fill_spec){ 0 }), p = TN_NONE;
    if (c->flags & OFFSET)
        p = tn_test_input(io, tn_shape(1), (tn_fill_spec){ TN_FILL_INT, .lo = 100000, .hi = 100100 });
    if (c->flags & ROWS) p = tn_test_input(io, tn_shape(B), (tn_fill_spec){ TN_FILL_INT, .lo = 0, .hi = 50 });
    if (c->flags & EACH) p = tn_test_input(io, tn_shape(B, T), (tn_fill_spec){ TN_FILL_INT, .lo = 0, .hi = 50 });
    if (c->flags & LIVE)
        x = tn_live(g, x, tn_test_input(io, tn_shape(1), (tn_fill_spec){ TN_FILL_INT, .lo = ALIVE, .hi = ALIVE + 1 }));
    const tn_ref y = tn_rope(g, x, .position = p, .interleaved = c->flags & INTERLEAVED,
                             .base = c->flags & STRETCH ? 5e5 : 0, .stretch = c->flags & STRETCH ? 8 : 0);
    tn_test_output(io, c->flags & LIVE ? tn_slice(g, y, 0, 0, ALIVE) : y);
}

static double frequency(const tn_case *c, int64_t j)
{
    const double w = pow(c->flags & STRETCH ? 5e5 : 1e4, -2.0 * (double)j / (double)c->dim[3]), length = 2 * M_PI / w;
    if (!(c->flags & STRETCH) || length < 8192.0 / 4) return w;
    if (length > 8192) return w / 8;
    const double s = (8192 / length - 1) / 3;
    return (1 - s) * w / 8 + s * w;
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t B = c->flags & LIVE ? ALIVE : c->dim[0], T = c->dim[1], H = c->dim[2], D = c->dim[3];
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < T; t++) {
            const double p = c->flags & EACH ? o->in[1][b * T + t]
                                             : (double)t + (c->flags & ROWS     ? o->in[1][b]
                                                            : c->flags & OFFSET ? o->in[1][0]
                                                                                : 0);
            for (int64_t h = 0; h < H; h++)
                for (int64_t j = 0; j < D / 2; j++) {
                    const int64_t row = ((b * T + t) * H + h) * D;
                    const int64_t u = row + (c->flags & INTERLEAVED ? 2 * j : j),
                                  v = c->flags & INTERLEAVED ? u + 1 : u + D / 2;
                    const double a = p * frequency(c, j), x = o->in[0][u], y = o->in[0][v];
                    o->out[0][u] = x * cos(a) - y * sin(a);
                    o->out[0][v] = y * cos(a) + x * sin(a);
                }
        }
}

static const tn_op_test test;

enum { T0 = 12, D0 = 16 };

/* Scores depend on the distance of two tokens alone. */
static void only_distance_counts(void)
{
    const tn_case c = { "score", { 1, 2, 1, D0 }, OFFSET, 1, 0 };
    float x[2 * D0], y[2 * D0];
    double first = 0;
    for (int i = 0; i < 2 * D0; i++) x[i] = sinf((float)i);
    for (int32_t p = 0; p < 100000; p += 33333) {
        double score = 0;
        tn_optest_run(&test, &c, 1, (const void *[]){ x, &p }, (void *[]){ y }, NULL, NULL);
        for (int j = 0; j < D0; j++) score += (double)y[j] * (double)y[D0 + j];
        if (p == 0) first = score;
        assert_float_equal(score, first, 1e-5);
    }
}

/* A token at its offset gets the bits it has inside a longer pass. */
static void offset_equals_whole(void)
{
    const tn_case whole = { "whole", { 1, T0, 2, D0 }, OFFSET, 1, 0 }, one = { "one", { 1, 1, 2, D0 }, OFFSET, 1, 0 };
    float x[T0 * 2 * D0], y[T0 * 2 * D0], z[2 * D0];
    int32_t start = 7;
    for (int i = 0; i < T0 * 2 * D0; i++) x[i] = cosf((float)i);
    tn_optest_run(&test, &whole, 2, (const void *[]){ x, &start }, (void *[]){ y }, NULL, NULL);
    for (int t = 0; t < T0; t++) {
        const int32_t p = start + t;
        tn_optest_run(&test, &one, 1, (const void *[]){ x + t * 2 * D0, &p }, (void *[]){ z }, NULL, NULL);
        assert_memory_equal(z, y + t * 2 * D0, sizeof z);
    }
}

static const tn_property properties[] = {
    { "scores depend on distance alone", only_distance_counts },
    { "one token at its offset equals the whole pass", offset_equals_whole },
};

static const tn_op_test test = { .op = "rope",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_rope(tn_test_list *l) { tn_optest_add(l, &test); }
