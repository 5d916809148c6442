/* Random search: every trial from the prior, whatever the others found. */
#include "lab/search/samplers.h"

static tn_status draw(const tn_sampler_options *o, const tn_space *s, const tn_observed *seen, int64_t number,
                      double *x)
{
    (void)seen;
    tn_draws draws = tn_draws_open(o->seed, "lab.random", (uint64_t)number);
    tn_prior_draw(s, &draws, x);
    return TN_OK;
}

const tn_sampler tn_sampler_random = {
    .name = "random",
    .needs = tn_sampler_needs_none,
    .count = tn_sampler_endless,
    .check = tn_sampler_takes_all,
    .draw = draw,
};
