/* The table of samplers and what several of them share. */
#include "lab/samplers.h"

#include <string.h>

static const tn_sampler *const samplers[] = { &tn_sampler_random };

enum { COUNT = sizeof samplers / sizeof *samplers };

const char *tn_sampler_name(size_t i) { return i < COUNT ? samplers[i]->name : NULL; }

const tn_sampler *tn_sampler_find(const char *name)
{
    for (size_t i = 0; i < COUNT; i++)
        if (strcmp(samplers[i]->name, name) == 0) return samplers[i];
    return NULL;
}

void tn_prior_draw(const tn_space *s, tn_lots *lots, double *x)
{
    for (size_t i = 0; i < s->n; i++) x[i] = tn_dim_at(&s->dims[i], tn_lots_uniform(lots));
    tn_space_apply_when(s, x);
}

int64_t tn_sampler_needs_none(const tn_sampler_options *o, int64_t number)
{
    (void)o;
    (void)number;
    return 0;
}

int64_t tn_sampler_endless(const tn_space *s)
{
    (void)s;
    return 0;
}

tn_status tn_sampler_takes_all(const tn_sampler_options *o, const tn_space *s)
{
    (void)o;
    return tn_space_check(s);
}
