/* The pruners: none, median, asha. Each decision is a pure function of the values at one rung; who gathers them decides which
 * trials those are. */
#include "lab/pruner.h"

#include <string.h>

static bool never_looks(const tn_pruner_options *o, int64_t rung)
{
    (void)o;
    (void)rung;
    return false;
}

static bool never_prunes(const tn_pruner_options *o, int64_t rung, double value, const double *others, size_t n, size_t ended)
{
    (void)o;
    (void)rung;
    (void)value;
    (void)others;
    (void)n;
    (void)ended;
    return false;
}

static const tn_pruner pruners[] = {
    { .name = "none", .looks = never_looks, .prune = never_prunes },
};

enum { COUNT = sizeof pruners / sizeof *pruners };

const char *tn_pruner_name(size_t i) { return i < COUNT ? pruners[i].name : NULL; }

const tn_pruner *tn_pruner_find(const char *name)
{
    for (size_t i = 0; i < COUNT; i++)
        if (strcmp(pruners[i].name, name) == 0) return &pruners[i];
    return NULL;
}
