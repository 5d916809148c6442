/* Elementary functions of vmath.h, as vector loops, against the C library in double: every 4099th f32 (about a million,
 * subnormals and infinities included), then limits, NaN, and that an element's bits do not depend on its place. */
#include "backend/cpu/vmath.h"
#include "testlib.h"

#include <tenon/tensor.h>

#include <float.h>

/* --- oracles ------------------------------------------------------------------------------------------------------ */

static double sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }
static double sigmoid_grad(double x) { return sigmoid(x) * sigmoid(-x); }
static double tanh_grad(double x) { return 4 * sigmoid_grad(2 * x); }
static double silu(double x) { return x == -INFINITY ? 0 : x * sigmoid(x); }
static double silu_grad(double x) { return isinf(x) ? x > 0 : sigmoid(x) + x * sigmoid_grad(x); }
static double cubic(double x) { return 2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x); }
static double gelu(double x) { return x == -INFINITY ? 0 : x * sigmoid(cubic(x)); }
static double gelu_erf(double x) { return x == -INFINITY ? 0 : 0.5 * x * erfc(-x / sqrt(2)); }
static double softplus(double x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }

static double gelu_grad(double x)
{
    if (fabs(x) > 100) return x > 0;
    return sigmoid(cubic(x)) + x * sigmoid_grad(cubic(x)) * 2 * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

static double gelu_erf_grad(double x)
{
    return isinf(x) ? x > 0 : 0.5 * erfc(-x / sqrt(2)) + x * exp(-x * x / 2) / sqrt(2 * M_PI);
}

static double logcosh(double x)
{
    const double a = fabs(x);
    return a < 0.01 ? a * a * (0.5 - a * a / 12) : a + log1p(exp(-2 * a)) - log(2);
}

static double inverse_sqrt(double x) { return 1 / sqrt(x); }
static double expm1_below(double x) { return expm1(x > 88 ? 88 : x); }
static double relu(double x) { return x < 0 ? 0 : x; }
static double relu_grad(double x) { return x > 0 ? 1 : x <= 0 ? 0 : x; }

/* --- the table ---------------------------------------------------------------------------------------------------- */

#define FUNCTIONS(X)                                                                                                   \
    X(exp, exp, 2.5e-7, 0, INFINITY)                                                                                   \
    X(expm1, expm1, 2.5e-7, 0, INFINITY)                                                                               \
    X(tanh, tanh, 2.5e-7, 0, INFINITY)                                                                                 \
    X(sigmoid, sigmoid, 2.5e-7, 0, INFINITY)                                                                           \
    X(log, log, 2.5e-7, 0, INFINITY)                                                                                   \
    X(softplus, softplus, 2.5e-7, 0, INFINITY)                                                                         \
    X(logcosh, logcosh, 1e-6, 0, INFINITY)                                                                             \
    X(silu, silu, 2e-6, 0, INFINITY)                                                                                   \
    X(gelu, gelu, 2e-5, 0, INFINITY)                                                                                   \
    X(gelu_erf, gelu_erf, 6e-7, 0, INFINITY)                                                                           \
    X(relu, relu, 0, 0, INFINITY)                                                                                      \
    X(expm1_below, expm1_below, 2.5e-7, 0, INFINITY)                                                                   \
    X(sin, sin, 0, 1e-7, 8192)                                                                                         \
    X(cos, cos, 0, 1e-7, 8192)                                                                                         \
    X(tanh_grad, tanh_grad, 5e-7, 0, INFINITY)                                                                         \
    X(sigmoid_grad, sigmoid_grad, 5e-7, 0, INFINITY)                                                                   \
    X(silu_grad, silu_grad, 0, 3e-7, INFINITY)                                                                         \
    X(gelu_grad, gelu_grad, 0, 3e-7, INFINITY)                                                                         \
    X(gelu_erf_grad, gelu_erf_grad, 0, 3e-7, INFINITY)                                                                 \
    X(relu_grad, relu_grad, 0, 0, INFINITY)

#define ROW_OF(name, oracle, share, size, most)                                                                        \
    static void row_##name(float *y, const float *x, int64_t n) { tn_v_map(y, x, n, tn_v_##name); }                    \
    static void times_##name(float *z, const float *y, const float *x, int64_t n)                                      \
    {                                                                                                                  \
        tn_v_map_times(z, y, x, n, tn_v_##name);                                                                       \
    }
FUNCTIONS(ROW_OF)
ROW_OF(inverse_sqrt, , , , )

typedef struct function {
    const char *name;
    void (*row)(float *y, const float *x, int64_t n);
    void (*times)(float *z, const float *y, const float *x, int64_t n);
    double (*oracle)(double x);
    double share, size; /* of the error: share of |result| + 1e-30, and absolute */
    float most;         /* |x| */
} function;

#define TABLE_ROW(name, oracle, share, size, most) { #name, row_##name, times_##name, oracle, share, size, most },
static const function table[] = { FUNCTIONS(TABLE_ROW) };

enum { N = 1024, STEP = 4099 };

static const function roots = { "inverse_sqrt", row_inverse_sqrt, times_inverse_sqrt, inverse_sqrt, 2.5e-7, 0, 1e30f };

static void check(const function *f, const float *x, const float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double want = f->oracle((double)x[i]), error = fabs((double)y[i] - want);
        if (fabsf(x[i]) > f->most) continue;
        if (isnan(want) ? isnan(y[i]) : isinf((float)want) ? y[i] == (float)want : false) continue;
        if (!(error <= f->share * (fabs(want) + 1e-30) + f->size))
            fail_msg("%s(%.9g) = %.9g instead of %.9g", f->name, (double)x[i], (double)y[i], want);
    }
}

static void all_of_f32(void **state)
{
    const function *f = *state;
    float x[N], y[N];
    for (uint64_t u = 0; u >> 32 == 0; u += (uint64_t)STEP * N) {
        int64_t n = 0;
        for (; n < N && (u + (uint64_t)n * STEP) >> 32 == 0; n++)
            x[n] = tn_v_from_bits((uint32_t)(u + (uint64_t)n * STEP));
        f->row(y, x, n);
        check(f, x, y, n);
    }
}

/* Where f32's own grid is coarse: a dense grid about 0, and the ends of every range. */
static void grid_and_ends(void **state)
{
    const function *f = *state;
    static const float ends[] = {
        0,        -0.0f,     1,   -1,   FLT_MIN, -FLT_MIN, FLT_TRUE_MIN, -FLT_TRUE_MIN, FLT_MAX, -FLT_MAX,
        INFINITY, -INFINITY, NAN, 87,   -87,     88.7f,    88.73f,       -103.97f,      -104,    12,
        -12,      15,        -15, 8192, -8192,   0.4f,     1.41421354f,  0.707106769f
    };
    enum { ENDS = sizeof ends / sizeof *ends };
    float x[N], y[N];
    f->row(y, ends, ENDS);
    check(f, ends, y, ENDS);
    for (int block = -10; block < 10; block++) {
        for (int i = 0; i < N; i++) x[i] = (float)(block * N + i) * 0.0021f;
        f->row(y, x, N);
        check(f, x, y, N);
    }
}

/* In place, in stretches of any length, and as a factor: the same bits. */
static void place_does_not_matter(void **state)
{
    const function *f = *state;
    float x[100], y[100], z[100], ones[100];
    for (int i = 0; i < 100; i++) x[i] = 0.37f * (float)(i - 50), ones[i] = 1;
    f->row(y, x, 100);
    f->times(z, ones, x, 100);
    assert_memory_equal(y, z, sizeof y);
    for (int first = 0, n; first < 100; first += n) {
        n = 1 + first % 23;
        if (first + n > 100) n = 100 - first;
        f->row(x + first, x + first, n);
    }
    assert_memory_equal(x, y, sizeof y);
}

static void inverse_roots(void **state)
{
    (void)state;
    float x[N], y[N];
    for (uint32_t u = 0x0DA24261u; u < 0x7149F2C9u; u += STEP * N) { /* 1e-30 to 1e30 */
        int64_t n = 0;
        for (; n < N && u + (uint32_t)n * STEP < 0x7149F2C9u; n++) x[n] = tn_v_from_bits(u + (uint32_t)n * STEP);
        roots.row(y, x, n);
        check(&roots, x, y, n);
    }
    x[0] = NAN;
    roots.row(y, x, 1);
    assert_true(isnan(y[0]));
    place_does_not_matter(&(void *){ (void *)(uintptr_t)&roots });
}

/* The bits of the conversion there and back. */
static void half_rounding(void **state)
{
    (void)state;
    for (uint64_t u = 0; u < (uint64_t)1 << 32; u += STEP) {
        const float x = tn_v_from_bits((uint32_t)u), got = tn_v_round_f16(x), want = tn_f16_to_f32(tn_f32_to_f16(x));
        if (isnan(x) ? !isnan(got) : tn_v_bits(got) != tn_v_bits(want))
            fail_msg("%a becomes %a instead of %a", (double)x, (double)got, (double)want);
    }
}

void tn_tests_vmath(tn_test_list *l)
{
    tn_test_add(l, half_rounding, NULL, "vmath: rounding to half precision over all of f32");
    tn_test_add(l, inverse_roots, NULL, "vmath: inverse roots");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        tn_test_add(l, all_of_f32, &table[i], "vmath: %s over all of f32", table[i].name);
        tn_test_add(l, grid_and_ends, &table[i], "vmath: %s on a grid and at the ends", table[i].name);
        tn_test_add(l, place_does_not_matter, &table[i], "vmath: %s anywhere in a row", table[i].name);
    }
}
