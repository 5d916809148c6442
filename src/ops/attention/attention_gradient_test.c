/* attention in bf16: every number of the output and of all three gradients against a naive computation in doubles. The rows of
 * attention_test.c try gradients at a few places by differences of the loss, which bf16 blurs: a kernel that is wrong
 * elsewhere passes them. Shapes: those that a GPU's kernels for whole tiles take, with partial tiles. */
#include "ops/attention/attention.h"

#include "base/rng.h"
#include "world.h"

enum { MOST_T = 200 };

typedef struct row {
    const char *name;
    int64_t T, D, heads, key_heads;
    bool causal;
} row;

/* Many heads: enough that a GPU's blocks take several whole heads each. */
static const row rows[] = {
    { "width 64, causal", 200, 64, 2, 2, true },
    { "width 64", 145, 64, 2, 2, false },
    { "width 40, causal", 130, 40, 2, 2, true },
    { "width 128, causal", 200, 128, 2, 2, true },
    { "width 128", 129, 128, 2, 2, false },
    { "width 64, causal, many heads", 150, 64, 225, 225, true },
    { "width 40, many heads that share keys", 145, 40, 256, 128, false },
};

enum { Q, K, V, DY, INPUTS };
static const char *const names[INPUTS] = { "q", "k", "v", "dy" };

/* As the kernels see them: rounded to bf16. The same for one row and input each time. */
static void fill(double *x, int64_t n, int input)
{
    const tn_rng r = { 77, tn_rng_stream(names[input]) };
    for (int64_t i = 0; i < n; i++)
        x[i] = (double)tn_bf16_to_f32(tn_f32_to_bf16(2 * tn_rng_uniform(r, (uint64_t)i) - 1));
}

static int64_t heads_of(const row *c, int input) { return input == K || input == V ? c->key_heads : c->heads; }

/* x (T,heads,D) of head h at token t. */
static double *at(double *x, const row *c, int64_t heads, int64_t t, int64_t h) { return x + (t * heads + h) * c->D; }

static double dot(const double *a, const double *b, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += a[i] * b[i];
    return s;
}

/* One query: its output, and what it adds to the gradients. */
static void query(const row *c, double *const *in, int64_t t, int64_t h, double *y, double *const *grad)
{
    static double p[MOST_T], dp[MOST_T];
    const int64_t S = c->causal ? t + 1 : c->T, H = c->heads, KV = c->key_heads, kv = h * KV / H;
    const double scale = 1 / sqrt((double)c->D);
    double largest = -INFINITY, sum = 0, mean = 0;
    for (int64_t s = 0; s < S; s++) {
        p[s] = scale * dot(at(in[Q], c, H, t, h), at(in[K], c, KV, s, kv), c->D);
        largest = fmax(largest, p[s]);
    }
    for (int64_t s = 0; s < S; s++) sum += p[s] = exp(p[s] - largest);
    for (int64_t s = 0; s < S; s++) {
        p[s] /= sum;
        dp[s] = dot(at(in[DY], c, H, t, h), at(in[V], c, KV, s, kv), c->D);
        mean += p[s] * dp[s];
    }
    for (int64_t s = 0; s < S; s++)
        for (int64_t d = 0; d < c->D; d++) {
            const double ds = scale * p[s] * (dp[s] - mean);
            at(y, c, H, t, h)[d] += p[s] * at(in[V], c, KV, s, kv)[d];
            at(grad[Q], c, H, t, h)[d] += ds * at(in[K], c, KV, s, kv)[d];
            at(grad[K], c, KV, s, kv)[d] += ds * at(in[Q], c, H, t, h)[d];
            at(grad[V], c, KV, s, kv)[d] += p[s] * at(in[DY], c, H, t, h)[d];
        }
}

static void compare(const row *c, const char *what, const uint16_t *got, const double *want, int64_t n)
{
    double largest = 0, worst = 0;
    assert_non_null(got);
    for (int64_t i = 0; i < n; i++) {
        const double off = fabs((double)tn_bf16_to_f32(got[i]) - want[i]);
        largest = fmax(largest, fabs(want[i]));
        if (!(off <= worst)) worst = off; /* NaN stays */
    }
    if (!(worst <= 1e-2 * largest)) fail_msg("%s: %s is off by %.2e of %.2e", c->name, what, worst, largest);
}

static double *numbers(int64_t n)
{
    double *x = calloc((size_t)n, sizeof *x);
    assert_non_null(x);
    return x;
}

static void all_numbers(void **state)
{
    const row *c = &rows[(uintptr_t)*state];
    const tn_device device = tn_test_device();
    double *in[INPUTS], *grad[V + 1], *y = numbers(c->T * c->heads * c->D);
    tn_graph *g;
    tn_ref x[INPUTS];
    tn_world w = tn_world_open_on(device, 1, 1);
    assert_ok(
        tn_graph_new(&(tn_graph_options){ .activation = TN_BF16, .training = true, .threads = 1, .device = device },
                     &g));
    for (int i = 0; i < INPUTS; i++) x[i] = tn_input(g, names[i], tn_shape(1, c->T, heads_of(c, i), c->D), TN_BF16);
    for (int i = 0; i <= V; i++) tn_want_gradient(g, x[i]);
    const tn_ref out = tn_attention(g, x[Q], x[K], x[V], .causal = c->causal);
    tn_output(g, "y", out);
    const tn_seed seed = { .y = out, .dy = x[DY] };
    tn_bound *b = tn_world_add(&w, g, &(tn_compile_options){ .threads = 1, .seeds = &seed, .n_seeds = 1 });
    for (int i = 0; i < INPUTS; i++) {
        const int64_t n = c->T * heads_of(c, i) * c->D;
        uint16_t *to = tn_bound_data(b, names[i]);
        in[i] = numbers(n);
        if (i <= V) grad[i] = numbers(n);
        fill(in[i], n, i);
        for (int64_t k = 0; k < n; k++) to[k] = tn_f32_to_bf16((float)in[i][k]);
    }
    assert_ok(tn_run(b));
    for (int64_t t = 0; t < c->T; t++)
        for (int64_t h = 0; h < c->heads; h++) query(c, in, t, h, y, grad);
    compare(c, "y", tn_bound_data(b, "y"), y, c->T * c->heads * c->D);
    for (int i = 0; i <= V; i++) {
        char name[] = "d.?", what[] = "the gradient of ?";
        name[2] = what[sizeof what - 2] = names[i][0];
        compare(c, what, tn_bound_data(b, name), grad[i], c->T * heads_of(c, i) * c->D);
    }
    for (int i = 0; i < INPUTS; i++) {
        free(in[i]);
        if (i <= V) free(grad[i]);
    }
    free(y);
    tn_world_close(&w);
}

void tn_tests_attention_gradient(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!TN_SANITIZED || !strstr(rows[i].name, "many heads")) /* the same code, 20 s a row */
            tn_test_add(l, all_numbers, (const void *)i, "attention: every number, %s", rows[i].name);
}
