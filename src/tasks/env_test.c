/* The environments against their physics derived another way: CartPole from its two equations of motion solved as a linear
 * system, Acrobot from its Lagrangian with derivatives by differences; numbers worked out by hand; energy; the rules by which
 * episodes end; and states as plain bytes. Both states begin with four doubles. */
#include "task_sets.h"

#include <math.h>

typedef union buffer {
    double d[8];
    unsigned char bytes[64];
} buffer;

static const tn_env *env_of(const char *task)
{
    const tn_task *t = tn_task_named(task);
    assert_true(t && t->env && t->env->state_bytes <= sizeof(buffer));
    return t->env;
}

static double rest(double a, double b) { return fabs(a - b) / (1 + fabs(b)); }

/* --- CartPole ---------------------------------------------------------------------------------------------------------------- */

/* (M + m) x'' + m l cos(a) a'' = F + m l a'^2 sin(a) and cos(a) x'' + 4/3 l a'' = g sin(a), by Cramer's rule; one Euler step. */
static void cart_step(double *s, double force)
{
    const double m = 0.1, l = 0.5, total = 1.1, c = cos(s[2]), si = sin(s[2]);
    const double p = force + m * l * s[3] * s[3] * si, q = 9.8 * si;
    const double det = total * (4.0 / 3) * l - m * l * c * c;
    const double xx = (p * (4.0 / 3) * l - m * l * c * q) / det, aa = (total * q - c * p) / det;
    const double next[4] = { s[0] + 0.02 * s[1], s[1] + 0.02 * xx, s[2] + 0.02 * s[3], s[3] + 0.02 * aa };
    memcpy(s, next, sizeof next);
}

static void cart_by_hand(void **state)
{
    (void)state;
    const tn_env *e = env_of("cartpole");
    buffer b = { { 0 } };
    float obs[4], reward;
    bool done;
    assert_true(e->observations == 4 && e->actions == 2 && e->max_steps == 500 && e->solved == 475);
    e->reset(&b, &(tn_rng){ 1, 2 }, obs);
    for (int i = 0; i < 4; i++) b.d[i] = 0;
    e->step(&b, 1, obs, &reward, &done); /* from rest: x'' = 400/41, a'' = -600/41 */
    assert_true(b.d[0] == 0 && rest(b.d[1], 8.0 / 41) < 1e-15 && b.d[2] == 0 && rest(b.d[3], -12.0 / 41) < 1e-15);
    assert_true(reward == 1 && !done && obs[1] == (float)(8.0 / 41) && obs[3] == (float)(-12.0 / 41));
    e->step(&b, 1, obs, &reward, &done); /* upright still, spinning: the same accelerations, and now it has moved */
    assert_true(rest(b.d[0], 0.16 / 41) < 1e-15 && rest(b.d[1], 16.0 / 41) < 1e-15 &&
                rest(b.d[2], -0.24 / 41) < 1e-15 && rest(b.d[3], -24.0 / 41) < 1e-15);
    e->step(&b, 0, obs, &reward, &done);
    /* a = -0.24/41, a' = -24/41: x'' = -9.7519735, a'' = 14.5416614 */
    assert_true(fabs((b.d[1] - 16.0 / 41) / 0.02 + 9.7519735) < 1e-6 &&
                fabs((b.d[3] + 24.0 / 41) / 0.02 - 14.5416614) < 1e-6);
}

static void cart_physics(void **state)
{
    (void)state;
    const tn_env *e = env_of("cartpole");
    buffer b;
    float obs[4], reward;
    bool done;
    for (uint64_t episode = 0; episode < 50; episode++) {
        double s[4];
        e->reset(&b, &(tn_rng){ 7, episode }, obs);
        for (int i = 0; i < 4; i++) b.d[i] *= i < 2 ? 10 : 3; /* wider than episodes begin */
        memcpy(s, b.d, sizeof s);
        done = false;
        for (uint64_t t = 0; !done && t < 60; t++) {
            const int action = (int)tn_rng_below((tn_rng){ 8, episode }, t, 2);
            cart_step(s, action ? 10 : -10);
            e->step(&b, action, obs, &reward, &done);
            for (int i = 0; i < 4; i++) assert_true(rest(b.d[i], s[i]) < 1e-12 && obs[i] == (float)b.d[i]);
            assert_int_equal(done, fabs(s[0]) > 2.4 || fabs(s[2]) > 12 * acos(-1) / 180);
            assert_true(reward == 1);
        }
    }
}

static bool cart_ends(double x, double v, double angle, double spin)
{
    const tn_env *e = env_of("cartpole");
    buffer b;
    float obs[4], reward;
    bool done;
    e->reset(&b, &(tn_rng){ 1, 1 }, obs);
    const double s[4] = { x, v, angle, spin };
    memcpy(&b, s, sizeof s);
    e->step(&b, 0, obs, &reward, &done);
    assert_true(reward == 1);
    return done;
}

static void cart_rules(void **state)
{
    (void)state;
    assert_true(!cart_ends(2.39, 0.4, 0, 0) && cart_ends(2.39, 0.6, 0, 0));
    assert_true(!cart_ends(-2.39, -0.4, 0, 0) && cart_ends(-2.39, -0.6, 0, 0));
    assert_true(!cart_ends(0, 0, 0.2, 0.46) && cart_ends(0, 0, 0.2, 0.48)); /* 12 degrees are 0.20944 */
    assert_true(!cart_ends(0, 0, -0.2, -0.46) && cart_ends(0, 0, -0.2, -0.48));
    assert_true(cart_ends(NAN, 0, 0, 0));
}

static int cart_episode(uint64_t number, bool clever, bool *fell)
{
    const tn_env *e = env_of("cartpole");
    buffer b;
    float obs[4], reward;
    bool done = false;
    int steps = 0;
    e->reset(&b, &(tn_rng){ 3, number }, obs);
    for (; !done; steps++) {
        assert_true(steps < 500);
        const int action = clever ? obs[2] + 0.3f * obs[3] + 0.01f * obs[0] + 0.02f * obs[1] > 0
                                  : (int)tn_rng_below((tn_rng){ 4, number }, (uint64_t)steps, 2);
        e->step(&b, action, obs, &reward, &done);
    }
    *fell = fabsf(obs[0]) > 2.4f || fabsf(obs[2]) > 0.2094f;
    return steps;
}

/* A policy that balances is stopped after 500 steps; chance lasts about 22, as it is known to. */
static void cart_lasts(void **state)
{
    (void)state;
    double sum = 0;
    bool fell;
    for (uint64_t i = 0; i < 20; i++) {
        assert_int_equal(cart_episode(i, true, &fell), 500);
        assert_false(fell);
    }
    for (uint64_t i = 0; i < 1000; i++) {
        sum += cart_episode(i, false, &fell);
        assert_true(fell);
    }
    assert_true(sum / 1000 > 20 && sum / 1000 < 25);
}

/* --- Acrobot ----------------------------------------------------------------------------------------------------------------- */

/* Kinetic energy of two unit links: centres of mass from the positions, rotation with moment of inertia 1. */
static double kinetic(const double *s)
{
    const double w = s[2] + s[3];
    const double x1 = 0.5 * cos(s[0]) * s[2], y1 = 0.5 * sin(s[0]) * s[2];
    const double x2 = 2 * x1 + 0.5 * cos(s[0] + s[1]) * w, y2 = 2 * y1 + 0.5 * sin(s[0] + s[1]) * w;
    return 0.5 * (x1 * x1 + y1 * y1 + x2 * x2 + y2 * y2 + s[2] * s[2] + w * w);
}

static double potential(const double *s) { return 9.8 * (-0.5 * cos(s[0]) - cos(s[0]) - 0.5 * cos(s[0] + s[1])); }

/* d(T - V)/ds[i] and dp_i/dq_j by central differences; T is quadratic in the speeds, so those are exact for any width. */
static double lagrangian_slope(const double *s, int i)
{
    const double h = 1e-4;
    double a[4], b[4];
    memcpy(a, s, sizeof a);
    memcpy(b, s, sizeof b);
    a[i] += h;
    b[i] -= h;
    return (kinetic(a) - potential(a) - kinetic(b) + potential(b)) / (2 * h);
}

static double momentum_slope(const double *s, int i, int j)
{
    const double h = 1e-4;
    double a[4], b[4];
    memcpy(a, s, sizeof a);
    memcpy(b, s, sizeof b);
    a[j] += h;
    b[j] -= h;
    return (lagrangian_slope(a, 2 + i) - lagrangian_slope(b, 2 + i)) / (2 * h);
}

/* Euler-Lagrange: sum_j dp_i/dv_j a_j = dL/dq_i - sum_j dp_i/dq_j v_j + torque_i. */
static void acrobot_slope(const double *s, double torque, double *ds)
{
    double m[2][2], f[2];
    for (int i = 0; i < 2; i++) {
        f[i] = lagrangian_slope(s, i) + (i == 1 ? torque : 0);
        for (int j = 0; j < 2; j++) {
            m[i][j] = momentum_slope(s, i, 2 + j);
            f[i] -= momentum_slope(s, i, j) * s[2 + j];
        }
    }
    const double det = m[0][0] * m[1][1] - m[0][1] * m[1][0];
    ds[0] = s[2];
    ds[1] = s[3];
    ds[2] = (f[0] * m[1][1] - f[1] * m[0][1]) / det;
    ds[3] = (m[0][0] * f[1] - m[1][0] * f[0]) / det;
}

static void acrobot_runge_kutta(double *s, double torque, double dt)
{
    double k1[4], k2[4], k3[4], k4[4], t[4];
    acrobot_slope(s, torque, k1);
    for (int i = 0; i < 4; i++) t[i] = s[i] + dt / 2 * k1[i];
    acrobot_slope(t, torque, k2);
    for (int i = 0; i < 4; i++) t[i] = s[i] + dt / 2 * k2[i];
    acrobot_slope(t, torque, k3);
    for (int i = 0; i < 4; i++) t[i] = s[i] + dt * k3[i];
    acrobot_slope(t, torque, k4);
    for (int i = 0; i < 4; i++) s[i] += dt / 6 * (k1[i] + 2 * k2[i] + 2 * k3[i] + k4[i]);
}

/* The slope goes through two differences, which leaves about 1e-7 of it; compared per step. */
static void acrobot_physics(void **state)
{
    (void)state;
    const tn_env *e = env_of("acrobot");
    buffer b;
    float obs[6], reward;
    bool done;
    assert_true(e->observations == 6 && e->actions == 3 && e->max_steps == 500 && e->solved == -100);
    for (uint64_t episode = 0; episode < 20; episode++) {
        e->reset(&b, &(tn_rng){ 5, episode }, obs);
        done = false;
        for (uint64_t t = 0; !done && t < 60; t++) {
            const int action = obs[4] > 0 ? 2 : (int)tn_rng_below((tn_rng){ 6, episode }, t, 3);
            double s[4];
            memcpy(s, b.d, sizeof s);
            acrobot_runge_kutta(s, action - 1, 0.2);
            e->step(&b, action, obs, &reward, &done);
            for (int i = 0; i < 2; i++) assert_true(fabs(sin((b.d[i] - s[i]) / 2)) < 1e-6);
            for (int i = 2; i < 4; i++) assert_true(rest(b.d[i], s[i]) < 2e-6);
            const double seen[6] = { cos(s[0]), sin(s[0]), cos(s[1]), sin(s[1]), s[2], s[3] };
            for (int i = 0; i < 6; i++) assert_true(fabs((double)obs[i] - seen[i]) < 1e-5);
        }
    }
}

/* Without torque nothing puts energy in: what Runge-Kutta loses in 10 s is little, and it grows with the step's fifth power. */
static void acrobot_energy(void **state)
{
    (void)state;
    const tn_env *e = env_of("acrobot");
    buffer b;
    float obs[6], reward;
    bool done;
    e->reset(&b, &(tn_rng){ 5, 1 }, obs);
    const double start[4] = { 0.8, -0.5, 0, 0 };
    memcpy(&b, start, sizeof start);
    const double first = kinetic(b.d) + potential(b.d), lowest = -9.8 * 2;
    for (int t = 0; t < 50; t++) e->step(&b, 1, obs, &reward, &done);
    const double after = kinetic(b.d) + potential(b.d);
    assert_true(fabs(after - first) < 0.02 * (first - lowest) && after != first);
    double fine[4];
    memcpy(fine, start, sizeof fine);
    for (int t = 0; t < 1000; t++) acrobot_runge_kutta(fine, 0, 0.01);
    assert_true(fabs(kinetic(fine) + potential(fine) - first) < 1e-4); /* the test's own equations keep it */
    for (int t = 0; t < 50; t++) e->step(&b, 2, obs, &reward, &done);  /* a torque does put some in */
    assert_true(fabs(kinetic(b.d) + potential(b.d) - after) > 0.1);
}

/* What one step makes of a state, under no torque. */
static void acrobot_from(const double s[4], buffer *b, float *reward, bool *done)
{
    const tn_env *e = env_of("acrobot");
    float obs[6];
    e->reset(b, &(tn_rng){ 5, 1 }, obs);
    memcpy(b, s, 4 * sizeof *s);
    e->step(b, 1, obs, reward, done);
}

static void acrobot_rules(void **state)
{
    (void)state;
    const double pi = acos(-1);
    buffer b;
    float reward;
    bool done;
    acrobot_from((double[]){ pi, 0, 0, 0 }, &b, &reward, &done); /* upright: 2 above the hinge */
    assert_true(done && reward == 0);
    acrobot_from((double[]){ 0, 0, 0, 0 }, &b, &reward, &done); /* hanging: at rest for ever */
    assert_true(!done && reward == -1 && fabs(b.d[0]) + fabs(b.d[1]) + fabs(b.d[2]) + fabs(b.d[3]) < 1e-12);
    acrobot_from((double[]){ pi, pi, 0, 0 }, &b, &reward, &done); /* folded: the end is at the hinge */
    assert_true(!done && reward == -1);
    acrobot_from((double[]){ 3, 0, 4 * pi, 0 }, &b, &reward, &done); /* round and round: angles stay within pi */
    assert_true(fabs(b.d[0]) <= pi && fabs(b.d[1]) <= pi && b.d[0] != 3);
    acrobot_from((double[]){ 1, 2, 12, -80 }, &b, &reward, &done); /* cut speeds */
    assert_true(fabs(b.d[2]) <= 4 * pi && fabs(b.d[3]) <= 9 * pi);
    assert_true(b.d[2] == 4 * pi || b.d[2] == -4 * pi || b.d[3] == 9 * pi || b.d[3] == -9 * pi);
}

/* A torque that follows the second link puts energy in and swings it up; none at all runs into the limit. */
static void acrobot_lasts(void **state)
{
    (void)state;
    const tn_env *e = env_of("acrobot");
    for (uint64_t i = 0; i < 10; i++) {
        buffer b;
        float obs[6], reward = -1;
        bool done = false;
        double sum = 0;
        int steps = 0;
        e->reset(&b, &(tn_rng){ 9, i }, obs);
        for (; !done; steps++) {
            assert_true(steps < 500);
            e->step(&b, i % 2 ? 1 : obs[5] > 0 ? 2 : 0, obs, &reward, &done);
            sum += (double)reward;
        }
        const bool up = -(double)obs[0] - ((double)obs[0] * (double)obs[2] - (double)obs[1] * (double)obs[3]) > 1;
        if (i % 2) assert_true(steps == 500 && sum == -500 && !up);
        else assert_true(steps > 20 && steps < 500 && sum == -(steps - 1) && up && reward == 0);
    }
}

/* --- states ---------------------------------------------------------------------------------------------------------------- */

static void plain_bytes(void **state)
{
    const char *task = *state;
    const tn_env *e = env_of(task);
    const double most = strcmp(task, "cartpole") == 0 ? 0.05 : 0.1;
    double sum = 0;
    buffer a, b, saved;
    float x[8], y[8], rx, ry;
    bool dx, dy;
    memset(&a, 0xAA, sizeof a);
    memset(&b, 0x55, sizeof b);
    e->reset(&a, &(tn_rng){ 11, 4 }, x);
    e->reset(&b, &(tn_rng){ 11, 4 }, y);
    assert_memory_equal(&a, &b, e->state_bytes); /* all of it is written, and nothing behind it */
    for (size_t i = e->state_bytes; i < sizeof a; i++) assert_true(a.bytes[i] == 0xAA);
    for (int t = 0; t < 7; t++) e->step(&a, t % e->actions, x, &rx, &dx);
    memcpy(&saved, &a, e->state_bytes);
    for (int t = 0; t < 7; t++) e->step(&a, 1, x, &rx, &dx);
    for (int t = 0; t < 7; t++) e->step(&saved, 1, y, &ry, &dy);
    assert_memory_equal(&a, &saved, e->state_bytes);
    assert_true(memcmp(x, y, (size_t)e->observations * sizeof *x) == 0 && rx == ry && dx == dy);
    for (uint64_t i = 0; i < 1000; i++) { /* beginnings differ, and are spread evenly */
        e->reset(&b, &(tn_rng){ 11, i }, y);
        for (int k = 0; k < 4; k++) {
            assert_true(fabs(b.d[k]) <= most);
            sum += b.d[k] / most;
        }
    }
    assert_true(fabs(sum / 4000) < 0.04 && memcmp(&a, &b, sizeof(double)) != 0);
}

void tn_tests_env(tn_test_list *l)
{
    tn_test_add(l, cart_by_hand, NULL, "env: cartpole: steps worked out by hand");
    tn_test_add(l, cart_physics, NULL, "env: cartpole: its equations of motion");
    tn_test_add(l, cart_rules, NULL, "env: cartpole: when it is over");
    tn_test_add(l, cart_lasts, NULL, "env: cartpole: 500 steps, and chance");
    tn_test_add(l, acrobot_physics, NULL, "env: acrobot: its Lagrangian");
    tn_test_add(l, acrobot_energy, NULL, "env: acrobot: energy");
    tn_test_add(l, acrobot_rules, NULL, "env: acrobot: goal, angles and speeds");
    tn_test_add(l, acrobot_lasts, NULL, "env: acrobot: up, and 500 steps");
    tn_test_add(l, plain_bytes, "cartpole", "env: cartpole: a state is plain bytes");
    tn_test_add(l, plain_bytes, "acrobot", "env: acrobot: a state is plain bytes");
}
