/* The largest singular value of a matrix that is put together in double precision from known ones, and its gradient, which is the product of the
 * two directions, also where the next value is close. */
#include "models/tep/tep.h"

#include "testlib.h"
#include "world.h"

enum { N = 12, K = 5 };

/* Rows of unit length at right angles to those before: (n, k), from numbers of a formula. */
static void directions(double *q, int n, int k, double phase)
{
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < k; j++) q[i * k + j] = sin(1.3 * i * k + 2.1 * j + phase * (j + 1) * (i + 2));
        for (int twice = 0; twice < 2; twice++)
            for (int b = 0; b < i; b++) {
                double dot = 0;
                for (int j = 0; j < k; j++) dot += q[i * k + j] * q[b * k + j];
                for (int j = 0; j < k; j++) q[i * k + j] -= dot * q[b * k + j];
            }
        double size = 0;
        for (int j = 0; j < k; j++) size += q[i * k + j] * q[i * k + j];
        for (int j = 0; j < k; j++) q[i * k + j] /= sqrt(size);
    }
}

typedef struct row {
    double next; /* the second singular value; the first is 1.5 */
    double tolerance;
} row;

static const row rows[] = { { 0.7, 1e-5 }, { 1.45, 1e-5 }, { 1.495, 1e-4 }, { 1.499, 2e-3 } };

static void gradient_of_sigma(void **state)
{
    const row *r = *state;
    const tep_config c = { .through_sigma = true };
    const double sigma[K] = { 1.5, r->next, 0.6, 0.3, 0.01 };
    double u[K * N], v[K * K], off = 0;
    directions(u, K, N, 0.37);
    directions(v, K, K, 0.61);
    tn_world w = tn_world_open(1, 1);
    tn_graph *g = tn_world_graph(&(tn_graph_options){ .training = true, .threads = 1 });
    const tep_net n = { .g = g, .c = &c };
    const tn_ref x = tn_param(g, "w", tn_shape(N, K), tn_normal(1.f)), s = tn_sum_all(g, tep_sigma(&n, x, "direction"));
    tn_output(g, "sigma", s);
    tn_bound *b = tn_world_add(&w, g, &(tn_compile_options){ .threads = 1, .loss = s });
    const tn_entry *e = tn_world_entry(&w, "w");
    for (int i = 0; i < N; i++)
        for (int j = 0; j < K; j++) {
            double sum = 0;
            for (int k = 0; k < K; k++) sum += sigma[k] * u[k * N + i] * v[k * K + j];
            ((float *)e->data)[i * K + j] = (float)sum;
        }
    tn_store_zero_grad(w.store);
    assert_ok(tn_run(b));
    assert_true(fabs((double)*(const float *)tn_world_data(b, "sigma") - 1.5) < 2e-6);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < K; j++) off = fmax(off, fabs((double)e->grad[i * K + j] - u[i] * v[j]));
    if (!(off < r->tolerance)) fail_msg("gradient off by %g", off);
    tn_world_close(&w);
}

void tn_tests_tep_spectrum(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        tn_test_add(l, gradient_of_sigma, &rows[i], "tep: gradient of sigma, the next value at %g of 1.5",
                    rows[i].next);
}
