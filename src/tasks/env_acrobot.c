/* Acrobot-v1 (Sutton 1996; the equations of Sutton and Barto's book): two links of length and mass 1 hang from a hinge, a
 * torque of -1, 0 or 1 acts between them. One Runge-Kutta step of 0.2 s per action; then angles are wrapped to [-pi, pi] and
 * speeds cut at 4 pi and 9 pi. Reward -1 per step, 0 for the one that lifts the end above a link's length, which ends it.
 * Observation: cos and sin of both angles, both speeds. */
#include "tasks/samples.h"

#include <math.h>

enum { MAX_STEPS = 500 };

typedef struct acrobot {
    double s[4]; /* angle of the first link from hanging down, of the second from the first; their speeds */
    int64_t step;
} acrobot;

static const double pi = 3.14159265358979323846;

static void observe(const acrobot *a, float *obs)
{
    obs[0] = (float)cos(a->s[0]);
    obs[1] = (float)sin(a->s[0]);
    obs[2] = (float)cos(a->s[1]);
    obs[3] = (float)sin(a->s[1]);
    obs[4] = (float)a->s[2];
    obs[5] = (float)a->s[3];
}

static void reset(void *state, const tn_rng *rng, float *obs)
{
    acrobot *a = state;
    tn_task_draws d = { *rng, 0 };
    for (int i = 0; i < 4; i++) a->s[i] = tn__draw_between(&d, -0.1, 0.1);
    a->step = 0;
    observe(a, obs);
}

/* ds/dt of s (4) under a torque, with masses, lengths and moments of inertia 1 and centres of mass in the middle. */
static void derivative(const double *s, double torque, double *ds)
{
    const double gravity = 9.8, centre = 0.5, inertia = 1;
    const double co = cos(s[1]), si = sin(s[1]), v1 = s[2], v2 = s[3];
    const double d1 = centre * centre + (1 + centre * centre + 2 * centre * co) + 2 * inertia;
    const double d2 = centre * centre + centre * co + inertia;
    const double phi2 = centre * gravity * sin(s[0] + s[1]);
    const double phi1 = -centre * v2 * v2 * si - 2 * centre * v2 * v1 * si + (centre + 1) * gravity * sin(s[0]) + phi2;
    ds[0] = v1;
    ds[1] = v2;
    ds[3] = (torque + d2 / d1 * phi1 - centre * v1 * v1 * si - phi2) / (centre * centre + inertia - d2 * d2 / d1);
    ds[2] = -(d2 * ds[3] + phi1) / d1;
}

static void runge_kutta(double *s, double torque)
{
    const double dt = 0.2;
    double k[4][4], at[4];
    for (int n = 0; n < 4; n++) {
        const double h = n == 0 ? 0 : n == 3 ? dt : dt / 2;
        for (int i = 0; i < 4; i++) at[i] = n == 0 ? s[i] : s[i] + h * k[n - 1][i];
        derivative(at, torque, k[n]);
    }
    for (int i = 0; i < 4; i++) s[i] += dt / 6 * (k[0][i] + 2 * k[1][i] + 2 * k[2][i] + k[3][i]);
}

static double cut(double x, double most) { return x > most ? most : x < -most ? -most : x; }

static void step(void *state, int action, float *obs, float *reward, bool *done)
{
    acrobot *a = state;
    runge_kutta(a->s, action - 1);
    a->s[0] = remainder(a->s[0], 2 * pi);
    a->s[1] = remainder(a->s[1], 2 * pi);
    a->s[2] = cut(a->s[2], 4 * pi);
    a->s[3] = cut(a->s[3], 9 * pi);
    a->step++;
    observe(a, obs);
    const bool up = -cos(a->s[0]) - cos(a->s[0] + a->s[1]) > 1;
    *reward = up ? 0 : -1;
    *done = up || a->step >= MAX_STEPS;
}

static const tn_env env = { .name = "Acrobot-v1",
                            .observations = 6,
                            .actions = 3,
                            .max_steps = MAX_STEPS,
                            .state_bytes = sizeof(acrobot),
                            .solved = -100,
                            .reset = reset,
                            .step = step };

const tn_task tn_task_acrobot = { .name = "acrobot",
                                  .summary = "environment: swing a double pendulum up",
                                  .env = &env };
