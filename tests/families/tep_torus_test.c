/* The toroidal map of `tep` against the recurrence written out in double, with its ring buffer: on the way, where the past
 * differs from the present, and at rest, where it is a coupling of the state to itself. */
#include "tep_world.h"

enum { B = 3, F = 4, C = 3, D = 6, K = 3 };

/* One step of s and its K predecessors, hist[0] the newest. */
static void recur(const tn_world *w, double factor, const double *a, double hist[K + 1][D])
{
    const float *wh = tn_world_entry(w, "torus.wh")->data, g = *(float *)tn_world_entry(w, "torus.buffer")->data;
    double next[D];
    for (int i = 0; i < D; i++) {
        double z = a[i], fade = 1;
        for (int j = 0; j < D; j++) z += factor * (double)wh[i * D + j] * hist[0][j];
        for (int k = 1; k <= K; k++) z += factor * (double)g * (fade *= 0.9) * hist[k][i];
        next[i] = 0.5 * hist[0][i] + 0.5 * tanh(z);
    }
    for (int k = K; k >= 1; k--) memcpy(hist[k], hist[k - 1], sizeof next);
    memcpy(hist[0], next, sizeof next);
}

static void against_recurrence(void **state)
{
    const char *const steps = *state;
    const int n = (int)strtol(steps + 11, NULL, 10);
    const tep_shape z = { .B = B, .S = 1, .F = F, .C = C, .L = 1 };
    tn_world w = tn_world_open(3, 1);
    tn_bound *b = tep_add(&w, &z, TEP_LIST("dim=6", "mode=toroidal", "rtol=1e-7", steps));
    *(float *)tn_world_entry(&w, "torus.buffer")->data = -0.3f; /* a past that counts */
    tep_run(&w, b);
    const float *h = tn_world_data(b, "state"), *x = tn_world_data(b, "features");
    const float *we = tn_world_entry(&w, "embed.w")->data, *be = tn_world_entry(&w, "embed.b")->data;
    const double factor = 0.95 / (0.9 + 0.3 * 2.439); /* |Wh| is 0.9 as made */
    for (int s = 0; s < B; s++) {
        double a[D], hist[K + 1][D] = { { 0 } };
        for (int i = 0; i < D; i++) {
            a[i] = (double)be[i];
            for (int j = 0; j < F; j++) a[i] += (double)we[i * F + j] * (double)x[s * F + j];
        }
        for (int t = 0; t < n; t++) recur(&w, factor, a, hist);
        for (int k = 0; k <= K; k++)
            for (int i = 0; i < D; i++) {
                const double got = (double)h[(s * (K + 1) + k) * D + i];
                if (!(fabs(got - hist[k][i]) <= 2e-6))
                    fail_msg("sample %d, %d steps ago, number %d: %g and %g", s, k, i, got, hist[k][i]);
            }
        assert_true(n > 100 ? fabs(hist[0][0] - hist[K][0]) < 1e-5 : fabs(hist[0][0] - hist[1][0]) > 1e-4);
    }
    tn_world_close(&w);
}

void tn_tests_tep_torus(tn_test_list *l)
{
    static const char *const steps[] = { "iterations=1", "iterations=2", "iterations=5", "iterations=400" };
    for (int i = 0; i < 4; i++)
        tn_test_add(l, against_recurrence, steps[i], "tep torus: the recurrence itself, %s", steps[i]);
}
