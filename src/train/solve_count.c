/* Counting evaluations of a map. */
#include "train/solve_count.h"

#include <math.h>
#include <string.h>

tn_solve_count tn_solve_count_of(const tn_settings *st, int64_t batch)
{
    const bool has = tn_settings_find(st, "grad") < tn_settings_count(st);
    return (tn_solve_count){ .batch = batch, .through_time = has && strcmp(tn_settings_text(st, "grad"), "bptt") == 0 };
}

/* Evaluations of all samples in one phase of the batch that just ran; *there: samples that took any. */
static double evaluations(const tn_solve_count *c, tn_bound *b, const char *output, int64_t *there)
{
    const int32_t *steps = b ? tn_bound_data(b, output) : NULL;
    double sum = 0;
    *there = 0;
    for (int64_t i = 0; steps && i < c->batch; i++) {
        sum += steps[i];
        *there += steps[i] > 0;
    }
    return sum;
}

static void count_step(tn_solve_count *c, tn_bound *b)
{
    int64_t there, nudged, adjoint;
    const double free = evaluations(c, b, "steps", &there);
    c->free += free;
    c->nudged += evaluations(c, b, "nudged_steps", &nudged);
    c->adjoint += evaluations(c, b, "adjoint_steps", &adjoint);
    c->backward += c->through_time ? free : (double)there;
    c->samples += there;
    c->solver_calls += (there > 0) + (nudged > 0) + (adjoint > 0);
}

void tn_solve_count_add(tn_solve_count *c, tn_ran what, tn_bound *b)
{
    int64_t there;
    if (what == TN_RAN_GRAD) count_step(c, b);
    if (what != TN_RAN_EVAL) return;
    c->eval += evaluations(c, b, "steps", &there);
    c->eval_samples += there;
    c->solver_calls += there > 0;
}

double tn_solve_count_units(const tn_solve_count *c)
{
    if (c->solver_calls == 0) return NAN;
    return c->free + c->nudged + c->adjoint + c->eval + (c->through_time ? 2 : 3) * c->backward;
}
