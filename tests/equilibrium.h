/* A network to solve in tests: h = a + s W^T tanh(W h + b) with the cost |h - y|^2 / 2, as a plan with every option of a
 * solve, and the same in double, one sample at a time. Its Jacobian is symmetric, and df/da = 1, so that the gradient by a
 * is lambda itself. Header only. */
#ifndef TN_EQUILIBRIUM_H
#define TN_EQUILIBRIUM_H

#include "anderson_oracle.h"
#include "world.h"

#include <tenon/ops.h>

#include <math.h>
#include <stdio.h>

enum { EQ_B = 7, EQ_S = 2, EQ_H = 6, EQ_M = 5, EQ_WIDTH = EQ_S * EQ_H, EQ_N = EQ_B * EQ_WIDTH };
static const double EQ_SCALE = 0.6;

typedef struct eq_options {
    tn_loop_grad grad;
    bool centred, mean, proxy, tol, anderson, untrained;
    int64_t steps; /* 0 = 200 */
    int memory, threads;
    bool unmarked;   /* no constant is said to have samples */
    const char *off; /* a switch */
    int64_t *rows;   /* (2): counts the rows of h that the map saw, forward and backward */
} eq_options;

/* The identity, which counts the rows it sees in the array its attribute points to. */
static tn_status eq_count_infer(tn_sig *s)
{
    s->n_out = 1;
    s->out[0] = (tn_type){ .dtype = s->in[0].dtype, .dims = s->in[0].dims };
    return TN_OK;
}

static void eq_count_grad(const tn_sig *s, uint64_t want, tn_uses *u) { (void)s, (void)want, (void)u; }

static tn_status eq_count_pass(const tn_call *c, const tn_arg *from, const tn_arg *to, int which)
{
    int64_t *rows = *(int64_t *const *)c->attr;
    rows[which] += tn_arg_rows(from) / EQ_S;
    memcpy(to->data, from->data, sizeof(float) * (size_t)tn_arg_count(from));
    return TN_OK;
}

static tn_status eq_count_forward(const tn_call *c) { return eq_count_pass(c, &c->in[0], &c->out[0], 0); }
static tn_status eq_count_backward(const tn_call *c) { return eq_count_pass(c, &c->dout[0], &c->din[0], 1); }

static const tn_op eq_count = { .name = "eq_count",
                                .attr_bytes = sizeof(int64_t *),
                                .flags = TN_OP_ROWWISE,
                                .infer = eq_count_infer,
                                .grad = eq_count_grad,
                                .kernel = {
                                    [TN_CPU] = { .forward = eq_count_forward, .backward = eq_count_backward } } };

/* state h (B,S,H); constants a (B,S,H), W (M,H), b (M) */
static void eq_map(tn_graph *g, tn_body_io *io, void *user)
{
    tn_ref h = io->state[0];
    if (user) tn_graph_add(g, __FILE__, __LINE__, &eq_count, &user, &h, 1, &h);
    const tn_ref t = tn_linear(g, h, io->consts[1], .bias = io->consts[2], .act = TN_ACT_TANH);
    io->next[0] = tn_add(g, io->consts[0], tn_matmul(g, t, io->consts[1], .scale = (float)EQ_SCALE));
}

static void eq_cost(tn_graph *g, tn_body_io *io, void *user)
{
    (void)user;
    io->ys[0] = tn_scale(g, tn_sum_all(g, tn_square(g, tn_sub(g, io->state[0], io->consts[0]))), 0.5f);
}

/* Outputs: h, taken, steps, nudged, adjoint, residuals, signal; gradients d.a, d.W, d.b of sum(g h). */
static inline tn_bound *eq_plan(tn_world *w, const eq_options *o)
{
    const tn_body map = { eq_map, o->rows }, cost = { eq_cost, NULL };
    const char *const off[] = { o->off, NULL };
    tn_graph *g =
        tn_world_graph_on(w->device, &(tn_graph_options){ .threads = o->threads, .off = o->off ? off : NULL });
    const tn_dims dims = tn_shape(EQ_B, EQ_S, EQ_H);
    tn_ref consts[] = { tn_input(g, "a", dims, TN_F32), tn_input(g, "W", tn_shape(EQ_M, EQ_H), TN_F32),
                        tn_input(g, "b", tn_shape(EQ_M), TN_F32) };
    const tn_ref y = tn_input(g, "y", dims, TN_F32), h0 = tn_input(g, "h0", dims, TN_F32);
    tn_ref taken, steps, nudged, adjoint, residuals, signal;
    for (int i = 0; i < 3 && !o->untrained; i++) tn_want_gradient(g, consts[i]);
    const tn_ref limit = tn_scalar(g, "limit", 1e-4f);
    const tn_ref h =
        tn_loop(g, map, .state = &h0, .n_state = 1, .consts = consts, .n_consts = 3, .steps = o->steps ? o->steps : 200,
                .grad = o->grad, .rtol = o->tol ? TN_NONE : limit, .tol = o->tol ? limit : TN_NONE,
                .damping = tn_scalar(g, "damping", 0.9f), .cost = &cost, .cost_consts = &y, .n_cost_consts = 1,
                .beta = tn_scalar(g, "beta", 0.2f), .centred = o->centred, .mean = o->mean, .proxy = o->proxy,
                .weight = 0.5f, .solver = o->anderson ? TN_SOLVE_ANDERSON : TN_SOLVE_PICARD, .memory = o->memory,
                .count = tn_input(g, "count", tn_shape(1), TN_I32), .sample_consts = o->unmarked ? 0 : 1,
                .sample_cost_consts = o->unmarked ? 0 : 1, .iterations = &taken, .free_steps = &steps,
                .nudged_steps = &nudged, .adjoint_steps = &adjoint, .residuals = &residuals, .signal = &signal);
    const tn_ref out[] = { h, taken, steps, nudged, adjoint, residuals, signal };
    static const char *const names[] = { "h", "taken", "steps", "nudged", "adjoint", "residuals", "signal" };
    for (int i = 0; i < 7; i++) tn_output(g, names[i], out[i]);
    tn_output(g, "wanted", tn_copy(g, y)); /* an input of the plan, whatever the gradient */
    const tn_ref loss = tn_sum_all(g, tn_mul(g, h, tn_input(g, "g", dims, TN_F32)));
    return tn_world_add(w, g, &(tn_compile_options){ .loss = o->untrained ? TN_NONE : loss, .threads = o->threads });
}

/* The inputs of a batch whose sample i is the numbers of who[i]; samples differ in how fast they converge. */
static inline void eq_fill(tn_bound *b, const int *who, int count)
{
    float *a = tn_world_data(b, "a"), *y = tn_world_data(b, "y"), *h0 = tn_world_data(b, "h0");
    float *g = tn_bound_data(b, "g"), *W = tn_world_data(b, "W"), *bias = tn_world_data(b, "b");
    for (int s = 0; s < EQ_B; s++)
        for (int i = 0; i < EQ_WIDTH; i++) {
            const float n = (float)(who[s] * EQ_WIDTH + i);
            a[s * EQ_WIDTH + i] = 0.35f * (float)(1 + who[s]) * sinf(1.9f * n);
            y[s * EQ_WIDTH + i] = cosf(2.3f * n);
            h0[s * EQ_WIDTH + i] = 0.1f * sinf(0.7f * n);
            if (g) g[s * EQ_WIDTH + i] = sinf(0.3f + 1.1f * n);
        }
    for (int i = 0; i < EQ_M * EQ_H; i++) W[i] = 0.43f * sinf(1 + 0.7f * (float)(i * i)); /* s |W|^2 = 0.91 */
    for (int i = 0; i < EQ_M; i++) bias[i] = 0.2f * cosf((float)i);
    *(int32_t *)tn_world_data(b, "count") = count;
}

/* --- one sample in double ----------------------------------------------------------------------------------------------- */

typedef struct eq_sample {
    const float *a, *y, *g, *W, *b; /* as the plan has them */
    double damping, limit;
    int most, memory; /* memory: of Anderson, 0 = the damped iteration */
} eq_sample;

typedef struct eq_answer {
    double x[EQ_WIDTH], residual;
    int steps;
} eq_answer;

static inline eq_sample eq_sample_of(tn_bound *b, int s)
{
    return (eq_sample){ (float *)tn_world_data(b, "a") + s * EQ_WIDTH,
                        (float *)tn_world_data(b, "y") + s * EQ_WIDTH,
                        (float *)tn_world_data(b, "g") + s * EQ_WIDTH,
                        tn_world_data(b, "W"),
                        tn_world_data(b, "b"),
                        (double)0.9f,
                        (double)1e-4f,
                        200,
                        0 };
}

/* f(h), or with v the product of the Jacobian at h and v. */
static inline void eq_apply(const eq_sample *p, const double *h, const double *v, double *out)
{
    for (int s = 0; s < EQ_S; s++) {
        double t[EQ_M];
        for (int m = 0; m < EQ_M; m++) {
            double z = (double)p->b[m], d = 0;
            for (int i = 0; i < EQ_H; i++) {
                z += (double)p->W[m * EQ_H + i] * h[s * EQ_H + i];
                if (v) d += (double)p->W[m * EQ_H + i] * v[s * EQ_H + i];
            }
            t[m] = v ? d * (1 - tanh(z) * tanh(z)) : tanh(z);
        }
        for (int i = 0; i < EQ_H; i++) {
            double *q = &out[s * EQ_H + i];
            *q = v ? 0 : (double)p->a[s * EQ_H + i];
            for (int m = 0; m < EQ_M; m++) *q += EQ_SCALE * (double)p->W[m * EQ_H + i] * t[m];
        }
    }
}

/* dW (M,H) += lambda^T df/dW at h, with f(h) = a + s W^T tanh(W h + b). */
static inline void eq_weigh(const eq_sample *p, const double *h, const double *lambda, double *dW)
{
    for (int s = 0; s < EQ_S; s++)
        for (int m = 0; m < EQ_M; m++) {
            double z = (double)p->b[m], d = 0;
            for (int i = 0; i < EQ_H; i++) {
                z += (double)p->W[m * EQ_H + i] * h[s * EQ_H + i];
                d += (double)p->W[m * EQ_H + i] * lambda[s * EQ_H + i];
            }
            const double t = tanh(z);
            for (int i = 0; i < EQ_H; i++)
                dW[m * EQ_H + i] += EQ_SCALE * (t * lambda[s * EQ_H + i] + d * (1 - t * t) * h[s * EQ_H + i]);
        }
}

/* The target of one iteration: adjoint at h (v given: lambda), or nudged by eta (0: free). */
static inline void eq_target(const eq_sample *p, double eta, const double *at, const double *x, double *f)
{
    eq_apply(p, at ? at : x, at ? x : NULL, f);
    for (int i = 0; i < EQ_WIDTH; i++) f[i] += at ? (double)p->g[i] : -eta * (f[i] - (double)p->y[i]);
}

static inline double eq_norm(const double *a, const double *b)
{
    double s = 0;
    for (int i = 0; i < EQ_WIDTH; i++) s += pow(a[i] - (b ? b[i] : 0), 2);
    return sqrt(s);
}

/* Weights of pairs r (n,WIDTH). */
static inline void eq_weights(double r[][EQ_WIDTH], int n, double *w)
{
    double m[AO_PAIRS][AO_PAIRS + 1] = { { 0 } };
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            for (int j = 0; j < EQ_WIDTH; j++) m[i][k] += r[i][j] * r[k][j];
    ao_weights(m, n, w);
}

/* Iterates x until its relative residual is below the limit. */
static inline eq_answer eq_solve(const eq_sample *p, double eta, const double *at, const double *from)
{
    eq_answer o = { .steps = 0 };
    double f[16][EQ_WIDTH], r[16][EQ_WIDTH], target[EQ_WIDTH], w[16], before = 0;
    int n = 0;
    memcpy(o.x, from, sizeof o.x);
    while (o.steps < p->most) {
        eq_target(p, eta, at, o.x, target);
        const double distance = eq_norm(target, o.x);
        o.residual = distance / fmax(eq_norm(target, NULL), 1e-6);
        o.steps++;
        if (p->memory && !(o.residual < p->limit)) {
            if (n && distance > 2 * before) n = 0;
            before = distance;
            if (n == p->memory) {
                memmove(f[0], f[1], sizeof f[0] * (size_t)--n);
                memmove(r[0], r[1], sizeof r[0] * (size_t)n);
            }
            for (int i = 0; i < EQ_WIDTH; i++) f[n][i] = target[i], r[n][i] = target[i] - o.x[i];
            if (++n > 1) {
                eq_weights(r, n, w);
                memset(o.x, 0, sizeof o.x);
                for (int k = 0; k < n; k++)
                    for (int i = 0; i < EQ_WIDTH; i++) o.x[i] += w[k] * f[k][i];
                continue;
            }
        }
        for (int i = 0; i < EQ_WIDTH; i++) o.x[i] = (1 - p->damping) * o.x[i] + p->damping * target[i];
        if (o.residual < p->limit) break;
    }
    return o;
}

#endif
