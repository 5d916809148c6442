/* What changes in the course of a run: how far a step goes, the drift towards the planes, noise, the price of not arriving. */
#include "models/flow/flow.h"

/* What is left of it at a step when it goes to 0 in so many; 0: it stays. */
static double left_at(int64_t step, int64_t steps)
{
    if (!steps) return 1;
    return step < steps ? 1 - (double)step / (double)steps : 0;
}

static bool moves(const tn_settings *st) { return tn_settings_on(st, "movement"); }

/* kappa for 100 steps, then a tenth less every 10 until it is kappa_min. */
double flow_kappa_at(const tn_settings *st, int64_t step)
{
    const double first = tn_settings_float(st, "kappa"), least = tn_settings_float(st, "kappa_min");
    if (!moves(st)) return 0;
    if (step < 100 || first <= least) return first;
    return fmax(least, first * pow(0.9, floor((double)(step - 100) / 10)));
}

/* Of one lattice step: all of them together go `drift`. */
double flow_drift_at(const tn_settings *st, int64_t step)
{
    return tn_settings_float(st, "drift") / (double)flow_steps(st) * left_at(step, tn_settings_int(st, "drift_steps"));
}

double flow_noise_at(const tn_settings *st, int64_t step)
{
    const double over = tn_settings_float(st, "noise_over") * (double)tn_settings_int(st, "train.steps");
    return moves(st) ? tn_settings_float(st, "noise") * left_at(step, (int64_t)ceil(over)) : 0;
}

double flow_exit_at(const tn_settings *st, int64_t step)
{
    return tn_settings_float(st, "lambda_exit") * left_at(step, tn_settings_int(st, "exit_steps"));
}
