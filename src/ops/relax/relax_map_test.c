/* Inside the maps of relax: the activations' values and slopes, and the same bits in every width of a tile. */
#include "ops/relax/relax_cpu.h"
#include "testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { D = 5, F = 3001, W = TN_RELAX_LANES };

typedef struct setup {
    tn_relax_job j;
    tn_relax_tile t;
    float w1[F * D], w2[D * F], vector[F], one[F], zero[D];
    void *memory;
} setup;

static void take_all(setup *s, tn_relax_memory *m)
{
    tn_relax_tile *t = &s->t;
    float **const of_d[] = { &t->h, &t->a,  &t->u, &t->x,     &t->y,        &t->n2,
                             &t->n, &t->s2, &t->s, &t->moved, &t->residual, &t->distance };
    for (size_t i = 0; i < sizeof of_d / sizeof *of_d; i++) *of_d[i] = tn_relax_floats(m, D * W);
    t->z = tn_relax_floats(m, F * W), t->slope = tn_relax_floats(m, F * W);
    s->j.up.packed = tn_relax_take(m, tn_relax_packed_bytes(&s->j, &s->j.up));
    s->j.down.packed = tn_relax_take(m, tn_relax_packed_bytes(&s->j, &s->j.down));
}

/* A block of f(h) = LN(u + w2 gelu(w1 LN(u) + vector)). */
static setup *make(void)
{
    setup *s = calloc(1, sizeof *s);
    tn_relax_memory m = { 0 };
    assert_non_null(s);
    for (int i = 0; i < F; i++) s->one[i] = 1;
    s->j = (tn_relax_job){ .d = D,
                           .f = F,
                           .block = true,
                           .damping = 0.7f,
                           .b1 = s->vector,
                           .b2 = s->zero,
                           .gain2 = s->one,
                           .bias2 = s->zero,
                           .gain = s->one,
                           .bias = s->zero };
    s->j.up = (tn_relax_matrix){ .w = s->w1, .n = F, .k = D, .row = D, .col = 1 };
    s->j.down = (tn_relax_matrix){ .w = s->w2, .n = D, .k = F, .row = F, .col = 1 };
    take_all(s, &m);
    s->memory = aligned_alloc(64, (m.used + 63) / 64 * 64);
    assert_non_null(s->memory);
    m = (tn_relax_memory){ .base = s->memory };
    take_all(s, &m);
    return s;
}

static void drop(setup *s)
{
    free(s->memory);
    free(s);
}

static void apply(setup *s, int width)
{
    s->t.width = s->t.live = width;
    tn_relax_pack(&s->j, &s->j.up);
    tn_relax_pack(&s->j, &s->j.down);
    for (int i = 0; i < D; i++)
        for (int l = 0; l < width; l++) {
            s->t.h[i * width + l] = sinf((float)(3 * l + i));
            s->t.a[i * width + l] = cosf((float)(5 * l - i));
        }
    tn_relax_apply(&s->j, &s->t, TN_RELAX_KEEP_ALL);
}

/* With w1 = 0 the activations are those of the bias. */
static void activations(void **state)
{
    (void)state;
    setup *s = make();
    for (int k = 0; k < F; k++) s->vector[k] = (float)k * 0.008f - 12;
    s->vector[0] = -INFINITY, s->vector[1] = -1e30f, s->vector[2] = 1e30f, s->vector[3] = NAN;
    apply(s, W);
    for (int k = 4; k < F; k++) {
        const double x = (double)s->vector[k], phi = 0.5 * erfc(-x / sqrt(2)), y = (double)s->t.z[k * W + k % W];
        const double slope = (double)s->t.slope[k * W + k % W],
                     exact = phi + x * exp(-0.5 * x * x) / sqrt(2 * acos(-1.0));
        if (!(fabs(y - x * phi) <= 2.5e-7 * fmin(fabs(x), 5.25) + 2.5e-7 * fmax(x - 5.25, 0)))
            fail_msg("gelu(%g) is %.9g instead of %.9g", x, y, x * phi);
        if (!(fabs(slope - exact) <= (fabs(x) <= 5.25 ? 5e-7 : 2.5e-6))) fail_msg("its slope at %g is %.9g", x, slope);
    }
    for (int k = 0; k < 2; k++) assert_true(fabsf(s->t.z[k * W]) < 2e-6f);
    assert_float_equal(s->t.z[2 * W], 1e30f, 1e24f);
    assert_true(isnan(s->t.z[3 * W]) && isnan(s->t.slope[3 * W]));
    drop(s);
}

/* Column 0 in a tile of every width, after a step. */
static void widths(void **state)
{
    (void)state;
    setup *s = make();
    float first[D + 2];
    for (int k = 0; k < F * D; k++) s->w1[k] = 0.3f * sinf(1.3f * (float)k), s->w2[k] = 0.02f * cosf(0.7f * (float)k);
    for (int k = 0; k < F; k++) s->vector[k] = 0.1f * sinf((float)k);
    for (int samples = W; samples > 0; samples--) {
        const int width = tn_relax_width(samples);
        float mine[D + 2];
        apply(s, width);
        tn_relax_advance(&s->j, &s->t, false);
        for (int i = 0; i < D; i++) mine[i] = s->t.h[i * width];
        mine[D] = s->t.residual[0], mine[D + 1] = s->t.moved[0];
        if (samples == W) memcpy(first, mine, sizeof first);
        assert_memory_equal(first, mine, sizeof first);
    }
    drop(s);
}

/* What is kept is the same, to the last bit, whether all of it is, its first part without f's value, or its second. */
static void parts_kept(void **state)
{
    (void)state;
    enum { ZS = F * W, DS = D * W };
    setup *s = make();
    float *all = malloc(sizeof *all * (2 * ZS + 4 * DS + 2 * W)), *part = calloc(2 * ZS + 4 * DS + 2 * W, sizeof *part);
    assert_true(all && part);
    const tn_relax_tile *t = &s->t;
    const struct {
        const float *from;
        int n;
    } in[] = { { t->z, ZS }, { t->slope, ZS }, { t->x, DS }, { t->n2, DS }, { t->s2, W } },
      out[] = { { t->y, DS }, { t->n, DS }, { t->s, W } };
    enum { INS = sizeof in / sizeof *in, OUTS = sizeof out / sizeof *out };
    for (int k = 0; k < F * D; k++) s->w1[k] = 0.3f * sinf(1.3f * (float)k), s->w2[k] = 0.02f * cosf(0.7f * (float)k);
    for (int k = 0; k < F; k++) s->vector[k] = 0.1f * sinf((float)k);
    apply(s, W);
    size_t at = 0;
    for (int i = 0; i < INS; at += (size_t)in[i].n, i++) memcpy(all + at, in[i].from, sizeof *all * (size_t)in[i].n);
    for (int i = 0; i < OUTS; at += (size_t)out[i].n, i++)
        memcpy(all + at, out[i].from, sizeof *all * (size_t)out[i].n);
    float *const clear[] = { t->z, t->slope, t->x, t->n2, t->s2, t->y, t->n, t->s };
    for (int i = 0; i < INS + OUTS; i++) memset(clear[i], 0, sizeof(float) * (size_t)(i < 2 ? ZS : D * W));
    tn_relax_enter(&s->j, &s->t);
    for (int i = 0; i < DS; i++) assert_true(t->y[i] == 0.f); /* left out */
    at = 0;
    for (int i = 0; i < INS; at += (size_t)in[i].n, i++) memcpy(part + at, in[i].from, sizeof *part * (size_t)in[i].n);
    tn_relax_apply(&s->j, &s->t, TN_RELAX_KEEP_OUT);
    for (int i = 0; i < OUTS; at += (size_t)out[i].n, i++)
        memcpy(part + at, out[i].from, sizeof *part * (size_t)out[i].n);
    assert_memory_equal(all, part, sizeof *all * at);
    free(all), free(part);
    drop(s);
}

/* --- products ----------------------------------------------------------------------------------------------------- */

static double rounded(float x, bool bf16) { return (double)(bf16 ? tn_bf16_to_f32(tn_f32_to_bf16(x)) : x); }

/* out (n,width) = w in against sums in double, w lying by rows or by columns; with bf16 by whichever way this machine has. */
static void check_product(int n, int k, bool by_columns, bool bf16)
{
    const tn_relax_job j = { .round = bf16 ? TN_BF16 : TN_F32, .rounded = bf16, .amx = bf16 && tn__relax_amx() };
    const int width = tn_relax_width(W);
    tn_relax_matrix m = { .n = n, .k = k, .row = by_columns ? 1 : k, .col = by_columns ? n : 1 };
    float *w = malloc(sizeof *w * (size_t)(n * k)), *in = malloc(sizeof *in * (size_t)(k * width)),
          *out = malloc(sizeof *out * (size_t)(n * width + 1)),
          *rows = malloc(sizeof *rows * (size_t)((n > k ? n : k) + 31) * W);
    void *gemm = aligned_alloc(64, (tn_gemm_work_most(W, n > k ? n : k, 1) + 127) / 64 * 64);
    m.w = w;
    m.packed = aligned_alloc(64, (tn_relax_packed_bytes(&j, &m) + 127) / 64 * 64);
    assert_true(w && in && out && rows && gemm && m.packed);
    for (int i = 0; i < n * k; i++) w[i] = sinf(1.3f * (float)i);
    for (int i = 0; i < k * width; i++) in[i] = cosf(0.7f * (float)i);
    out[n * width] = 77;
    tn_relax_pack(&j, &m);
    if (j.amx) tn__relax_amx_begin();
    tn_relax_multiply(&j, &m, &(tn_relax_tile){ .width = width, .live = width, .rows = rows, .gemm = gemm }, in, out);
    if (j.amx) tn__relax_amx_end();
    for (int r = 0; r < n; r++)
        for (int l = 0; l < width; l++) {
            double sum = 0, size = 0;
            for (int p = 0; p < k; p++) {
                const double term = rounded(w[r * m.row + p * m.col], bf16) * rounded(in[p * width + l], bf16);
                sum += term, size += fabs(term);
            }
            if (!(fabs((double)out[r * width + l] - sum) <= 1e-6 * size))
                fail_msg("(%d,%d) row %d lane %d: %.9g instead of %.9g", n, k, r, l, (double)out[r * width + l], sum);
        }
    assert_true(out[n * width] == 77.f); /* nothing behind it */
    free(w), free(in), free(out), free(rows), free(gemm), free(m.packed);
}

static void products(void **state)
{
    (void)state;
    static const int sizes[][2] = { { 256, 64 }, { 64, 256 }, { 10, 64 }, { 64, 10 },
                                    { 52, 13 },  { 13, 52 },  { 1, 1 },   { 81, 33 } };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int kind = 0; kind < 4; kind++) check_product(sizes[i][0], sizes[i][1], kind & 1, kind & 2);
}

void tn_tests_relax_map(tn_test_list *l)
{
    tn_test_add(l, products, NULL, "relax: products of tiles");
    tn_test_add(l, activations, NULL, "relax: gelu and its slope");
    tn_test_add(l, widths, NULL, "relax: the same bits in every width");
    tn_test_add(l, parts_kept, NULL, "relax: parts of what is kept");
}
