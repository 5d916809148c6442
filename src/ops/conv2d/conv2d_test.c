/* conv2d: rows (dim = B, C, size, O, kernel, stride, pad; images are size x size+1), bias, halves, live images. */
#include "optest.h"

#include <tenon/ops.h>

#include <math.h>
#include <string.h>

enum { BIAS = 1, HALF = 2, LIVE = 4 };

static const tn_case cases[] = {
    /*              B  C  n  O  k  s  p */
    { "plain", { 2, 3, 5, 4, 3, 1, 0 }, 0, 4e-6f, 2e-2f },
    { "padded", { 2, 2, 4, 3, 3, 1, 1 }, BIAS, 4e-6f, 2e-2f },
    { "strided", { 1, 2, 7, 3, 3, 2, 1 }, BIAS, 4e-6f, 2e-2f },
    { "pixel", { 2, 3, 3, 2, 1, 1, 0 }, 0, 4e-6f, 2e-2f },
    { "even kernel", { 1, 1, 6, 2, 4, 3, 2 }, BIAS, 4e-6f, 2e-2f },
    { "half", { 1, 2, 4, 3, 3, 1, 1 }, BIAS | HALF, 4e-6f, 2e-2f },
    { "live", { 4, 2, 4, 3, 3, 1, 1 }, BIAS | LIVE, 4e-6f, 0 },
    { "large", { 2, 9, 19, 8, 5, 1, 2 }, BIAS | TN_FEW, 6e-6f, 2e-2f },
    { "no images", { 0, 2, 4, 3, 3, 1, 1 }, BIAS, 1e-6f, 0 },
    { "no channels", { 2, 0, 4, 3, 3, 1, 1 }, BIAS, 1e-6f, 0 },
};

enum { ALIVE = 2 };

static void build(tn_op_io *io, const tn_case *c)
{
    const int64_t *d = c->dim;
    tn_graph *g = tn_test_graph(io);
    tn_ref x = tn_test_input(io, tn_shape(d[0], d[1], d[2], d[2] + 1), (tn_fill_spec){ 0 }), b = TN_NONE;
    const tn_ref w = tn_test_input(io, tn_shape(d[3], d[1], d[4], d[4]),
                                   (tn_fill_spec){ .dtype = c->flags & HALF ? TN_F16 : TN_F32 });
    if (c->flags & BIAS) b = tn_test_input(io, tn_shape(d[3]), (tn_fill_spec){ 0 });
    if (c->flags & LIVE)
        x = tn_live(g, x, tn_test_input(io, tn_shape(1), (tn_fill_spec){ TN_FILL_INT, .lo = ALIVE, .hi = ALIVE + 1 }));
    const tn_ref y = tn_conv2d(g, x, w, .bias = b, .stride = d[5] == 1 ? 0 : d[5], .pad = d[6]);
    tn_test_output(io, c->flags & LIVE ? tn_slice(g, y, 0, 0, ALIVE) : y);
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t B = c->flags & LIVE ? ALIVE : c->dim[0], C = c->dim[1], H = c->dim[2], Wd = H + 1, O = c->dim[3];
    const int64_t k = c->dim[4], s = c->dim[5], p = c->dim[6], oh = (H + 2 * p - k) / s + 1,
                  ow = (Wd + 2 * p - k) / s + 1;
    for (int64_t n = 0; n < B * O * oh * ow; n++) {
        const int64_t j = n % ow, i = n / ow % oh, q = n / ow / oh % O, b = n / ow / oh / O;
        double sum = c->flags & BIAS ? o->in[2][q] : 0;
        for (int64_t r = 0; r < C * k * k; r++) {
            const int64_t ch = r / (k * k), y = i * s + r / k % k - p, x = j * s + r % k - p;
            if (y < 0 || y >= H || x < 0 || x >= Wd) continue;
            sum += o->in[0][((b * C + ch) * H + y) * Wd + x] * o->in[1][(q * C + ch) * k * k + r % (k * k)];
        }
        o->out[0][n] = sum;
    }
}

static const tn_op_test test;

/* An image gets the same bits whatever else is in the batch. */
static void images_stand_alone(void)
{
    enum { N = 3, C = 2, H = 6, O = 3, K = 3, IN = C * H * (H + 1), OUT = O * H * (H + 1) };
    const tn_case many = { "many", { N, C, H, O, K, 1, 1 }, 0, 1, 0 },
                  one = { "one", { 1, C, H, O, K, 1, 1 }, 0, 1, 0 };
    float x[N * IN], w[O * C * K * K], y[N * OUT], z[OUT];
    for (int i = 0; i < N * IN; i++) x[i] = sinf((float)i);
    for (int i = 0; i < O * C * K * K; i++) w[i] = cosf((float)i);
    tn_optest_run(&test, &many, 2, (const void *[]){ x, w }, (void *[]){ y }, NULL, NULL);
    for (int n = 0; n < N; n++) {
        tn_optest_run(&test, &one, 1, (const void *[]){ x + n * IN, w }, (void *[]){ z }, NULL, NULL);
        assert_memory_equal(z, y + n * OUT, sizeof z);
    }
}

/* A kernel with a single 1 in its middle is the identity. */
static void centre_is_identity(void)
{
    enum { H = 9, IN = H * (H + 1) };
    const tn_case c = { "centre", { 1, 1, H, 1, 3, 1, 1 }, 0, 1, 0 };
    float x[IN], y[IN], w[9] = { [4] = 1 };
    for (int i = 0; i < IN; i++) x[i] = sinf((float)i);
    tn_optest_run(&test, &c, 1, (const void *[]){ x, w }, (void *[]){ y }, NULL, NULL);
    assert_memory_equal(x, y, sizeof x);
}

static const tn_property properties[] = {
    { "an image does not depend on the batch", images_stand_alone },
    { "the unit kernel is the identity", centre_is_identity },
};

static const tn_op_test test = { .op = "conv2d",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_conv2d(tn_test_list *l) { tn_optest_add(l, &test); }
