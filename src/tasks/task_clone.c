/* Behaviour cloning: observations of an environment drawn at random, labelled with what a simple hand-written policy does.
 * A network that learnt one can act in the environment, since it has seen the same numbers in the same order. */
#include "tasks/samples.h"

#include <math.h>

/* Push the cart to the side to which the pole leans. */
static void draw_cartpole(const tn_recipe *r, tn_task_draws *d, float *x, int32_t *y)
{
    for (int64_t i = 0; i < r->features; i++) x[i] = (float)tn__draw_between(d, -0.2, 0.2);
    *y = x[2] >= 0;
}

/* No torque while the end hangs low, else torque along the motion. */
static void draw_acrobot(const tn_recipe *r, tn_task_draws *d, float *x, int32_t *y)
{
    const double pi = 3.14159265358979323846;
    const double a = tn__draw_between(d, -pi, pi), b = tn__draw_between(d, -pi, pi);
    const double va = tn__draw_between(d, -4, 4), vb = tn__draw_between(d, -9, 9);
    const double obs[6] = { cos(a), sin(a), cos(b), sin(b), va, vb };
    for (int64_t i = 0; i < r->features; i++) x[i] = (float)obs[i];
    *y = cos(a) + cos(a + b) > 0.5 ? 1 : va + vb > 0 ? 2 : 0;
}

static tn_status open_cartpole_bc(const tn_settings *st, tn_samples **out)
{
    const tn_recipe r = { .name = "cartpole_bc",
                          .tokens = 1,
                          .features = 4,
                          .labels = 1,
                          .classes = 2,
                          .size = 2000,
                          .draw = draw_cartpole };
    return tn__samples_draw(st, &r, out);
}

static tn_status open_acrobot_bc(const tn_settings *st, tn_samples **out)
{
    const tn_recipe r = {
        .name = "acrobot_bc", .tokens = 1, .features = 6, .labels = 1, .classes = 3, .size = 2000, .draw = draw_acrobot
    };
    return tn__samples_draw(st, &r, out);
}

const tn_task tn_task_cartpole_bc = { .name = "cartpole_bc",
                                      .summary = "observations of cartpole: what a simple policy does",
                                      .open = open_cartpole_bc };
const tn_task tn_task_acrobot_bc = { .name = "acrobot_bc",
                                     .summary = "observations of acrobot: what a simple policy does",
                                     .open = open_acrobot_bc };
