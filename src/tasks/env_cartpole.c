/* CartPole-v1 (Barto, Sutton and Anderson 1983): a pole on a cart that is pushed left (0) or right (1). Euler steps of 0.02 s
 * with the velocities of before the step. Reward 1 per step, also for the last; over when the cart is beyond 2.4 or the pole
 * beyond 12 degrees, or after 500 steps. Observation: position, velocity, angle, angular velocity. */
#include "tasks/samples.h"

#include <math.h>

enum { MAX_STEPS = 500 };

typedef struct cartpole {
    double x, v, angle, spin;
    int64_t step;
} cartpole;

static void observe(const cartpole *c, float *obs)
{
    obs[0] = (float)c->x;
    obs[1] = (float)c->v;
    obs[2] = (float)c->angle;
    obs[3] = (float)c->spin;
}

static void reset(void *state, const tn_rng *rng, float *obs)
{
    cartpole *c = state;
    tn_task_draws d = { *rng, 0 };
    c->x = tn__draw_between(&d, -0.05, 0.05);
    c->v = tn__draw_between(&d, -0.05, 0.05);
    c->angle = tn__draw_between(&d, -0.05, 0.05);
    c->spin = tn__draw_between(&d, -0.05, 0.05);
    c->step = 0;
    observe(c, obs);
}

static void step(void *state, int action, float *obs, float *reward, bool *done)
{
    const double gravity = 9.8, pole = 0.1, total = 1.0 + pole, half = 0.5, push = 10.0, dt = 0.02;
    const double far = 2.4, tilt = 12 * 3.14159265358979323846 / 180;
    cartpole *c = state;
    const double force = action == 1 ? push : -push, si = sin(c->angle), co = cos(c->angle);
    const double pull = (force + pole * half * c->spin * c->spin * si) / total;
    const double turn = (gravity * si - co * pull) / (half * (4.0 / 3.0 - pole * co * co / total));
    const double thrust = pull - pole * half * turn * co / total;
    c->x += dt * c->v;
    c->v += dt * thrust;
    c->angle += dt * c->spin;
    c->spin += dt * turn;
    c->step++;
    observe(c, obs);
    *reward = 1;
    *done = !(fabs(c->x) <= far && fabs(c->angle) <= tilt) || c->step >= MAX_STEPS;
}

static const tn_env env = { .name = "CartPole-v1",
                            .observations = 4,
                            .actions = 2,
                            .max_steps = MAX_STEPS,
                            .state_bytes = sizeof(cartpole),
                            .solved = 475,
                            .reset = reset,
                            .step = step };

const tn_task tn_task_cartpole = { .name = "cartpole",
                                   .summary = "environment: keep a pole upright on a cart",
                                   .env = &env };
