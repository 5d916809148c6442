/* rope: rows (dim = B, T, H, D), both layouts, offsets, positions per token, scaled frequencies. */
#include "optest.h"

#include <tenon/ops.h>

#include <math.h>
#include <string.h>

enum { OFFSET = 1, EACH = 2, INTERLEAVED = 4, STRETCH = 8, LIVE = 16, LINEAR = 32, YARN = 64, ROWS = 128 };

static const tn_case cases[] = {
    /*              B  T  H  D */
    { "half split", { 2, 5, 3, 8 }, 0, 1e-6f, 2e-2f },
    { "interleaved", { 2, 5, 3, 8 }, INTERLEAVED | OFFSET, 1e-6f, 2e-2f },
    { "far", { 1, 3, 2, 64 }, OFFSET, 1e-6f, 2e-2f },
    { "each", { 3, 4, 2, 6 }, EACH, 1e-6f, 2e-2f },
    { "stretch", { 1, 9, 2, 64 }, STRETCH | OFFSET, 1e-6f, 2e-2f },
    { "linear", { 2, 5, 2, 16 }, LINEAR | OFFSET, 1e-6f, 2e-2f },
    { "yarn", { 2, 7, 2, 64 }, YARN | OFFSET, 1e-6f, 2e-2f },
    { "yarn interleaved", { 2, 5, 3, 24 }, YARN | INTERLEAVED | EACH, 1e-6f, 2e-2f },
    { "sequences", { 3, 4, 2, 6 }, ROWS, 1e-6f, 2e-2f },
    { "live", { 5, 4, 2, 6 }, LIVE | EACH, 1e-6f, 0 },
    { "large", { 3, 50, 4, 64 }, TN_FEW, 1e-6f, 2e-2f },
    { "many tokens", { 2, 150, 3, 64 }, EACH | TN_FEW, 1e-6f, 2e-2f },
    { "many tokens, offset", { 1, 300, 2, 6 }, OFFSET | INTERLEAVED | TN_FEW, 1e-6f, 2e-2f },
    { "many tokens, live", { 5, 80, 2, 16 }, LIVE | EACH | TN_FEW, 1e-6f, 0 },
    { "empty", { 2, 0, 3, 4 }, 0, 1e-6f, 0 },
};

enum { ALIVE = 3 };

enum { BETA_FAST = 24, BETA_SLOW = 2, ORIGINAL = 2048 };
static const double factor = 8, louder = 1.3;

static tn_rope_options options(const tn_case *c)
{
    tn_rope_options o = { .interleaved = c->flags & INTERLEAVED };
    if (c->flags & (STRETCH | LINEAR | YARN)) o.stretch = factor;
    if (c->flags & STRETCH) o.base = 5e5;
    if (c->flags & LINEAR) o.scaling = TN_ROPE_LINEAR;
    if (c->flags & YARN)
        o.scaling = TN_ROPE_YARN, o.beta_fast = BETA_FAST, o.beta_slow = BETA_SLOW, o.stretch_context = ORIGINAL,
        o.attention_factor = louder;
    return o;
}

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
    tn_rope_options o = options(c);
    o.position = p;
    const tn_ref y = tn_rope_(g, __FILE__, __LINE__, x, o);
    tn_test_output(io, c->flags & LIVE ? tn_slice(g, y, 0, 0, ALIVE) : y);
}

static double frequency(const tn_case *c, int64_t j)
{
    const double w = pow(c->flags & STRETCH ? 5e5 : 1e4, -2.0 * (double)j / (double)c->dim[3]), length = 2 * M_PI / w;
    if (c->flags & LINEAR) return w / factor;
    if (c->flags & YARN) {
        const double half =
            (double)c->dim[3] / 2; /* pair of n turns in the context: half ln(context / (2 pi n)) / ln(base) */
        const double low = fmax(floor(half * log(ORIGINAL / (2 * M_PI * BETA_FAST)) / log(1e4)), 0);
        const double high = ceil(half * log(ORIGINAL / (2 * M_PI * BETA_SLOW)) / log(1e4));
        const double ramp = fmin(fmax(((double)j - low) / (high - low), 0), 1);
        return w / factor * ramp + w * (1 - ramp);
    }
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
                    const double m = c->flags & YARN ? louder : 1;
                    o->out[0][u] = m * (x * cos(a) - y * sin(a));
                    o->out[0][v] = m * (y * cos(a) + x * sin(a));
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

/* inv_freq and attention factor that transformers 5.23 computes: (1, 0) at position 1 becomes that angle at that length. */
typedef struct reference {
    tn_rope_options o;
    int pairs;
    double amplitude, frequency[16];
} reference;

static const reference references[] = {
    { { .base = 1e6, .scaling = TN_ROPE_YARN, .stretch = 4, .stretch_context = 32768 },
      16,
      1.138629436111989,
      { 1.0, 0.421696514, 0.177827939, 0.0749894157, 0.0316227786, 0.0133352149, 0.00477990136, 0.00165996165,
        0.000549999997, 0.000168678584, 4.44569851e-05, 1.87473561e-05, 7.90569356e-06, 3.33380353e-06, 1.40585337e-06,
        5.92843435e-07 } },
    { { .scaling = TN_ROPE_YARN,
        .stretch = 8,
        .stretch_context = 2048,
        .beta_fast = 24,
        .beta_slow = 2,
        .attention_factor = 1.5 },
      12,
      1.5,
      { 1.0, 0.464158893, 0.215443447, 0.100000001, 0.0362624116, 0.0121186972, 0.00343749998, 0.000580198714,
        0.000269304292, 0.000125000006, 5.80198684e-05, 2.69304273e-05 } },
};

static const reference *now;

static void build_reference(tn_op_io *io, const tn_case *c)
{
    tn_graph *g = tn_test_graph(io);
    const tn_ref x = tn_test_input(io, tn_shape(1, 1, 1, c->dim[3]), (tn_fill_spec){ 0 });
    tn_rope_options o = now->o;
    o.position = tn_test_input(io, tn_shape(1), (tn_fill_spec){ TN_FILL_INT, .lo = 1, .hi = 2 });
    tn_test_output(io, tn_rope_(g, __FILE__, __LINE__, x, o));
}

static void equals_transformers(void)
{
    const tn_op_test one = { .op = "rope", .build = build_reference };
    const int32_t p = 1;
    for (size_t r = 0; r < TN_COUNT(references); r++) {
        now = &references[r];
        const tn_case c = { "reference", { 1, 1, 1, 2 * now->pairs }, 0, 1, 0 };
        float x[32] = { 0 }, y[32];
        for (int j = 0; j < now->pairs; j++) x[j] = 1;
        tn_optest_run(&one, &c, 1, (const void *[]){ x, &p }, (void *[]){ y }, NULL, NULL);
        for (int j = 0; j < now->pairs; j++) {
            const double u = (double)y[j], v = (double)y[j + now->pairs], f = now->frequency[j];
            assert_float_equal(atan2(v, u) / f, 1, 2e-6);
            assert_float_equal(sqrt(u * u + v * v), now->amplitude, 1e-6);
        }
    }
}

/* What yarn cannot be is said when the graph is built. */
static void refuses_betas(void)
{
    tn_graph *g = NULL;
    assert_ok(tn_graph_new(&(tn_graph_options){ .threads = 1 }, &g));
    const tn_ref x = tn_input(g, "x", tn_shape(1, 2, 1, 8), TN_F32);
    tn_rope(g, x, .scaling = TN_ROPE_YARN, .stretch = 4, .beta_fast = -1);
    assert_fails(tn_graph_status(g), TN_USAGE, "betas");
    tn_graph_free(g);
}

static const tn_property properties[] = {
    { "scores depend on distance alone", only_distance_counts },
    { "one token at its offset equals the whole pass", offset_equals_whole },
    { "yarn equals transformers", equals_transformers },
    { "yarn refuses betas that are not positive", refuses_betas },
};

static const tn_op_test test = { .op = "rope",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_rope(tn_test_list *l) { tn_optest_add(l, &test); }
