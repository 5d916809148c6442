/* Rehearsal: a live set that shrinks inside a loop. Flows (N,D) move by a shared cell; those whose first component passes
 * a threshold leave, their energies land on a surface at their own place; the rest is compacted, with its names. The
 * gradient of a loss on the surface goes back through every step. Rows beyond the count are never looked at. */
#include "world.h"

#include <tenon/ops.h>

#include <limits.h>
#include <math.h>
#include <stdio.h>

enum { N = 24, START = 19, D = 3, E = D - 1, STEPS = 12 };
static const float EXIT = 1.1f;

/* states: flows (N,D), names (N) i32, count (1) i32, surface (N,E); constants: w (D,D), b (D); y: the count */
static void move(tn_graph *g, tn_body_io *io, void *user)
{
    (void)user;
    const tn_ref flows = tn_live(g, io->state[0], io->state[2]), names = io->state[1];
    const tn_ref push = tn_linear(g, flows, io->consts[0], .bias = io->consts[1], .act = TN_ACT_TANH);
    const tn_ref moved = tn_add(g, flows, tn_scale(g, push, 0.4f)), height = tn_slice(g, moved, 1, 0, 1);
    tn_ref stay, leave, staying, leaving;
    tn_compact(g, tn_not_above(g, height, EXIT), &stay, &staying);
    tn_compact(g, tn_above(g, height, EXIT), &leave, &leaving);
    stay = tn_live(g, stay, staying);
    leave = tn_live(g, leave, leaving);
    const tn_ref energy = tn_slice(g, tn_gather_rows(g, moved, leave), 1, 1, E);
    io->next[0] = tn_gather_rows(g, moved, stay);
    io->next[1] = tn_gather_rows(g, names, stay);
    io->next[2] = staying;
    io->next[3] = tn_add(g, io->state[3], tn_scatter_rows(g, energy, tn_gather_rows(g, names, leave), N));
    io->ys[0] = staying;
}

static tn_bound *add_plan(tn_world *w)
{
    tn_graph *g = tn_world_graph(NULL);
    const tn_ref flows = tn_want_gradient(g, tn_input(g, "flows", tn_shape(N, D), TN_F32));
    const tn_ref carry[] = { flows, tn_input(g, "names", tn_shape(N), TN_I32),
                             tn_input(g, "count", tn_shape(1), TN_I32), tn_fill(g, tn_shape(N, E), TN_F32, 0.f) };
    const tn_ref consts[] = { tn_want_gradient(g, tn_input(g, "w", tn_shape(D, D), TN_F32)),
                              tn_want_gradient(g, tn_input(g, "b", tn_shape(D), TN_F32)) };
    tn_ref final[4], counts;
    tn_loop(g, ((tn_body){ move, NULL }), .state = carry, .n_state = 4, .consts = consts, .n_consts = 2, .n_ys = 1,
            .steps = STEPS, .final = final, .ys = &counts);
    const tn_ref loss = tn_sum_all(g, tn_square(g, tn_sub(g, final[3], tn_input(g, "target", tn_shape(N, E), TN_F32))));
    tn_output(g, "loss", loss);
    tn_output(g, "counts", counts);
    tn_output(g, "surface", final[3]);
    return tn_world_add(w, g, &(tn_compile_options){ .loss = loss });
}

/* The same in plain C and doubles; flows do not meet, so each is followed by itself. x = flows, w, b in one array. */
enum { X_W = N * D, X_B = X_W + D * D, X_ALL = X_B + D };

static double reference(const double *x, const float *target, const int32_t *names, int *counts)
{
    double surface[N][E] = { { 0 } }, loss = 0;
    for (int t = 0; counts && t < STEPS; t++) counts[t] = START;
    for (int i = 0; i < START; i++) {
        double h[D], before[D];
        for (int d = 0; d < D; d++) h[d] = x[i * D + d];
        for (int t = 0; t < STEPS && !(h[0] > (double)EXIT); t++) {
            for (int d = 0; d < D; d++) before[d] = h[d];
            for (int d = 0; d < D; d++) {
                double a = x[X_B + d];
                for (int k = 0; k < D; k++) a += x[X_W + d * D + k] * before[k];
                h[d] = before[d] + 0.4 * tanh(a);
            }
            if (!(h[0] > (double)EXIT)) continue;
            for (int e = 0; e < E; e++) surface[names[i]][e] += h[1 + e];
            for (int s = t; counts && s < STEPS; s++) counts[s]--;
        }
    }
    for (int i = 0; i < N * E; i++) loss += pow(surface[i / E][i % E] - (double)target[i], 2);
    return loss;
}

static void fill(tn_bound *b, float dead)
{
    float *flows = tn_world_data(b, "flows"), *w = tn_world_data(b, "w"), *bias = tn_world_data(b, "b");
    float *target = tn_world_data(b, "target");
    int32_t *names = tn_world_data(b, "names");
    for (int i = 0; i < N * D; i++) flows[i] = i < START * D ? 0.9f * sinf(1.7f * (float)i) : dead;
    for (int i = 0; i < N; i++) names[i] = i < START ? (i * 7 + 3) % N : INT_MIN;
    for (int i = 0; i < D * D; i++) w[i] = 0.8f * cosf(2.1f * (float)i);
    for (int i = 0; i < D; i++) bias[i] = 0.3f - 0.2f * (float)i;
    for (int i = 0; i < N * E; i++) target[i] = 0.5f * cosf((float)i);
    *(int32_t *)tn_world_data(b, "count") = START;
}

static void shrink(void **state)
{
    (void)state;
    tn_world w = tn_world_open(1, 1);
    tn_bound *b = add_plan(&w);
    double x[X_ALL];
    int counts[STEPS];
    float largest = 0, surface[N * E], grads[X_ALL], *const part[] = { grads, grads + X_W, grads + X_B };
    static const char *const in[] = { "flows", "w", "b" }, *const out[] = { "d.flows", "d.w", "d.b" };
    const size_t bytes[] = { sizeof(float) * X_W, sizeof(float) * D * D, sizeof(float) * D };
    static const float poison[] = { 0, NAN, 1e30f, -INFINITY };
    for (int run = 0; run < 4; run++) { /* what dead rows hold changes no bit: from the start, or left by another run */
        fill(b, poison[run]);
        for (int i = 0; run && i < START * D; i++) ((float *)tn_world_data(b, "flows"))[i] = poison[run];
        if (run) assert_ok(tn_run(b));
        fill(b, poison[run]);
        assert_ok(tn_run(b));
        if (run) assert_memory_equal(surface, tn_world_data(b, "surface"), sizeof surface);
        memcpy(surface, tn_world_data(b, "surface"), sizeof surface);
        for (int k = 0; k < 3; k++) {
            if (run) assert_memory_equal(part[k], tn_world_data(b, out[k]), bytes[k]);
            memcpy(part[k], tn_world_data(b, out[k]), bytes[k]);
        }
    }
    fill(b, 0);
    for (int k = 0; k < 3; k++)
        for (size_t i = 0; i < bytes[k] / sizeof(float); i++)
            x[part[k] - grads + (int64_t)i] = (double)((float *)tn_world_data(b, in[k]))[i];
    const float *target = tn_world_data(b, "target");
    const int32_t *names = tn_world_data(b, "names"), *got = tn_world_data(b, "counts");
    assert_float_equal(*(float *)tn_world_data(b, "loss"), reference(x, target, names, counts), 1e-4f);
    for (int t = 0; t < STEPS; t++) assert_int_equal(got[t], counts[t]);
    assert_true(counts[0] < START && counts[STEPS / 2] < counts[0] && counts[STEPS - 1] < counts[STEPS / 2] &&
                counts[STEPS - 1] > 0);
    for (int i = 0; i < X_ALL; i++)
        if (fabsf(grads[i]) > largest) largest = fabsf(grads[i]);
    for (int i = 0; i < X_ALL; i++) {
        const double keep = x[i], h = 1e-6;
        x[i] = keep + h;
        const double up = reference(x, target, names, NULL);
        x[i] = keep - h;
        const double want = (up - reference(x, target, names, NULL)) / (2 * h);
        x[i] = keep;
        if (!(fabs((double)grads[i] - want) <= 1e-3 * fmax(fabs(want), 1e-2 * (double)largest)))
            fail_msg("gradient %d: %g, by differences %g", i, (double)grads[i], want);
        if (i >= START * D && i < X_W) assert_true(grads[i] == 0);
    }
    tn_world_close(&w);
}

void tn_tests_liveset(tn_test_list *l)
{
    tn_test_add(l, shrink, NULL, "families: gradients through a live set that shrinks");
}
