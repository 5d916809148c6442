/* attention in bf16: every number of the output and of all three gradients against a naive computation in doubles. The rows of
 * attention_test.c try gradients at a few places by differences of the loss, which bf16 blurs: a kernel that is wrong
 * elsewhere passes them. Shapes: those that a GPU's kernels for whole tiles take, with partial tiles. */
#include "ops/attention/attention.h"

#include "base/rng.h"
#include "world.h"

enum { HEADS = 2, MOST_T = 200, MOST_D = 128, MOST = MOST_T * HEADS * MOST_D };

typedef struct row {
    const char *name;
    int64_t T, D;
    bool causal;
} row;

static const row rows[] = {
    { "width 64, causal", 200, 64, true },   { "width 64", 145, 64, false },  { "width 40, causal", 130, 40, true },
    { "width 128, causal", 200, 128, true }, { "width 128", 129, 128, false },
};

enum { Q, K, V, DY, INPUTS };
static const char *const names[INPUTS] = { "q", "k", "v", "dy" };

/* As the kernels see them: rounded to bf16. The same for one row and input each time. */
static void fill(double *x, int64_t n, int input)
{
    const tn_rng r = { 77, tn_rng_stream(names[input]) };
    for (int64_t i = 0; i < n; i++) x[i] = (double)tn_bf16_to_f32(tn_f32_to_bf16(2 * tn_rng_uniform(r, (uint64_t)i) - 1));
}

/* x (T,HEADS,D) of head h at token t. */
static double *at(double *x, const row *c, int64_t t, int h) { return x + (t * HEADS + h) * c->D; }

static double dot(const double *a, const double *b, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += a[i] * b[i];
    return s;
}

/* One query: its output, and what it adds to the gradients. */
static void query(const row *c, double *const *in, int64_t t, int h, double *y, double *const *grad)
{
    static double p[MOST_T], dp[MOST_T];
    const int64_t S = c->causal ? t + 1 : c->T;
    const double scale = 1 / sqrt((double)c->D);
    double largest = -INFINITY, sum = 0, mean = 0;
    for (int64_t s = 0; s < S; s++) {
        p[s] = scale * dot(at(in[Q], c, t, h), at(in[K], c, s, h), c->D);
        largest = fmax(largest, p[s]);
    }
    for (int64_t s = 0; s < S; s++) sum += p[s] = exp(p[s] - largest);
    for (int64_t s = 0; s < S; s++) {
        p[s] /= sum;
        dp[s] = dot(at(in[DY], c, t, h), at(in[V], c, s, h), c->D);
        mean += p[s] * dp[s];
    }
    for (int64_t s = 0; s < S; s++)
        for (int64_t d = 0; d < c->D; d++) {
            const double ds = scale * p[s] * (dp[s] - mean);
            at(y, c, t, h)[d] += p[s] * at(in[V], c, s, h)[d];
            at(grad[Q], c, t, h)[d] += ds * at(in[K], c, s, h)[d];
            at(grad[K], c, s, h)[d] += ds * at(in[Q], c, t, h)[d];
            at(grad[V], c, s, h)[d] += p[s] * at(in[DY], c, t, h)[d];
        }
}

static void compare(const row *c, const char *what, const uint16_t *got, const double *want)
{
    double largest = 0, worst = 0;
    const int64_t n = c->T * HEADS * c->D;
    assert_non_null(got);
    for (int64_t i = 0; i < n; i++) {
        const double off = fabs((double)tn_bf16_to_f32(got[i]) - want[i]);
        largest = fmax(largest, fabs(want[i]));
        if (!(off <= worst)) worst = off; /* NaN stays */
    }
    if (!(worst <= 1e-2 * largest)) fail_msg("%s: %s is off by %.2e of %.2e", c->name, what, worst, largest);
}

static void all_numbers(void **state)
{
    static double in[INPUTS][MOST], y[MOST], grad[V + 1][MOST];
    const row *c = &rows[(uintptr_t)*state];
    const tn_device device = tn_test_device();
    const int64_t n = c->T * HEADS * c->D;
    double *const inputs[] = { in[Q], in[K], in[V], in[DY] }, *const grads[] = { grad[Q], grad[K], grad[V] };
    tn_graph *g;
    tn_ref x[INPUTS];
    tn_world w = tn_world_open_on(device, 1, 1);
    assert_ok(tn_graph_new(&(tn_graph_options){ .activation = TN_BF16, .training = true, .threads = 1, .device = device }, &g));
    for (int i = 0; i < INPUTS; i++) x[i] = tn_input(g, names[i], tn_shape(1, c->T, HEADS, c->D), TN_BF16);
    for (int i = 0; i <= V; i++) tn_want_gradient(g, x[i]);
    const tn_ref out = tn_attention(g, x[Q], x[K], x[V], .causal = c->causal);
    tn_output(g, "y", out);
    const tn_seed seed = { .y = out, .dy = x[DY] };
    tn_bound *b = tn_world_add(&w, g, &(tn_compile_options){ .threads = 1, .seeds = &seed, .n_seeds = 1 });
    for (int i = 0; i < INPUTS; i++) {
        uint16_t *to = tn_bound_data(b, names[i]);
        fill(in[i], n, i);
        for (int64_t k = 0; k < n; k++) to[k] = tn_f32_to_bf16((float)in[i][k]);
    }
    assert_ok(tn_run(b));
    memset(y, 0, sizeof y);
    memset(grad, 0, sizeof grad);
    for (int64_t t = 0; t < c->T; t++)
        for (int h = 0; h < HEADS; h++) query(c, inputs, t, h, y, grads);
    compare(c, "y", tn_bound_data(b, "y"), y);
    compare(c, "the gradient of q", tn_bound_data(b, "d.q"), grad[Q]);
    compare(c, "the gradient of k", tn_bound_data(b, "d.k"), grad[K]);
    compare(c, "the gradient of v", tn_bound_data(b, "d.v"), grad[V]);
    tn_world_close(&w);
}

void tn_tests_attention_gradient(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) tn_test_add(l, all_numbers, (const void *)i, "attention: every number, %s", rows[i].name);
}
