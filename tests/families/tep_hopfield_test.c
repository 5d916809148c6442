/* The Hopfield map of `tep`: its state against the recurrence written out in double, and equilibrium propagation in the energy's
 * coordinates against the gradient through the iterations: all of it, with nudges ever smaller, and not for another reading of
 * the same map (D left out), which the test would otherwise not notice. */
#include "tep_world.h"

enum { B = 4, F = 5, C = 3, D = 10, MOST = 4096 };

static const tep_shape shape = { .B = B, .S = 1, .F = F, .C = C, .L = 1 };

/* The largest singular value of w (D,D), a symmetric matrix. */
static double largest(double w[D][D])
{
    double v[D], u[D], length = 0;
    for (int i = 0; i < D; i++) v[i] = 1 + 0.1 * i;
    for (int t = 0; t < 2000; t++) {
        length = 0;
        for (int i = 0; i < D; i++) {
            u[i] = 0;
            for (int j = 0; j < D; j++) u[i] += w[i][j] * v[j];
            length += u[i] * u[i];
        }
        length = sqrt(length);
        for (int i = 0; i < D; i++) v[i] = u[i] / length;
    }
    return length;
}

static void against_recurrence(void **state)
{
    (void)state;
    tn_world w = tn_world_open(3, 1);
    tn_bound *b = tep_add(&w, &shape, TEP_LIST("dim=10", "mode=hopfield", "rtol=1e-7", "iterations=400", "kappa=0.8"));
    float *m = tn_world_entry(&w, "hopfield.w")->data;
    double W[D][D];
    for (int i = 0; i < D * D; i++) m[i] *= 3;         /* steep enough to be scaled down */
    for (int i = 0; i < 50; i++) assert_ok(tn_run(b)); /* until the power iteration has settled */
    for (int i = 0; i < D; i++)
        for (int j = 0; j < D; j++) W[i][j] = 0.5 * ((double)m[i * D + j] + (double)m[j * D + i]);
    const double sigma = largest(W), factor = fmin(1, 0.8 / sigma);
    assert_true(sigma > 0.8);
    const float *v = tn_world_data(b, "state"), *x = tn_world_data(b, "features");
    const float *we = tn_world_entry(&w, "embed.w")->data, *be = tn_world_entry(&w, "embed.b")->data;
    for (int s = 0; s < B; s++) {
        double a[D], at[D] = { 0 }, next[D];
        for (int i = 0; i < D; i++) {
            a[i] = (double)be[i];
            for (int j = 0; j < F; j++) a[i] += (double)we[i * F + j] * (double)x[s * F + j];
        }
        for (int t = 0; t < 500; t++) {
            for (int i = 0; i < D; i++) {
                next[i] = a[i];
                for (int j = 0; j < D; j++) next[i] += factor * W[i][j] * tanh(at[j]);
            }
            memcpy(at, next, sizeof at);
        }
        for (int i = 0; i < D; i++)
            if (!(fabs((double)v[s * D + i] - at[i]) <= 2e-5))
                fail_msg("sample %d, number %d: %g and %g", s, i, (double)v[s * D + i], at[i]);
    }
    tn_world_close(&w);
}

static void propagation_is_exact(void **state)
{
    static double exact[MOST], got[MOST];
    static const char *const betas[] = { "beta=0.3", "beta=0.1", "beta=0.03" };
    double before = 1;
    int64_t n = 0;
    (void)state;
    tn_world w = tn_world_open(3, 1);
    tn_bound *b = tep_add(&w, &shape, TEP_LIST("dim=10", "mode=hopfield", "rtol=1e-7", "iterations=300", "grad=bptt"));
    float *m = tn_world_entry(&w, "hopfield.w")->data, *we = tn_world_entry(&w, "embed.w")->data;
    for (int i = 0; i < D * D; i++) m[i] *= 2;
    for (int i = 0; i < D * F; i++) we[i] *= 2; /* slopes D far from 1: leaving them out would show */
    n = tep_gradients(&w, b, "", exact, MOST);
    for (int k = 0; k < 3; k++) {
        b = tep_add(&w, &shape,
                    TEP_LIST("dim=10", "mode=hopfield", "rtol=1e-7", "iterations=300", "grad=ep_centred", betas[k]));
        assert_int_equal(tep_gradients(&w, b, "", got, MOST), n);
        for (int64_t i = 0; i < n; i++) got[i] -= exact[i];
        const double off = sqrt(tep_dot(got, got, n) / tep_dot(exact, exact, n));
        if (!(off < 0.5 * before)) fail_msg("%s: off by %g, by %g before", betas[k], off, before);
        before = off;
    }
    assert_true(before < 2e-3);
    tn_world_close(&w);
}

void tn_tests_tep_hopfield(tn_test_list *l)
{
    tn_test_add(l, against_recurrence, NULL, "tep hopfield: the recurrence itself");
    tn_test_add(l, propagation_is_exact, NULL, "tep hopfield: equilibrium propagation tends to the exact gradient");
}
