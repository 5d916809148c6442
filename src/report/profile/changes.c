/* What differs between the profiles of two configurations, part by part. */
#include "report/profile/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BEFORE, AFTER, SIDES };

typedef struct change {
    tn_profile_change row;
    double ms[SIDES][TN_PROFILE_ROUNDS], spread[SIDES][TN_PROFILE_ROUNDS];
} change;

static change *find(change *c, size_t *n, const char *name, const char *pass)
{
    for (size_t i = 0; i < *n; i++)
        if (strcmp(c[i].row.name, name) == 0 && strcmp(c[i].row.pass, pass) == 0) return &c[i];
    if (*n == TN_PROFILE_CHANGES) return NULL;
    c[*n] = (change){ .row = { .name = name, .pass = pass } };
    return &c[(*n)++];
}

static void settle(change *c)
{
    bool more = true, less = true;
    for (int k = 0; k < TN_PROFILE_ROUNDS; k++) {
        const double by = c->ms[AFTER][k] - c->ms[BEFORE][k], noise = c->spread[AFTER][k] + c->spread[BEFORE][k];
        more &= by > noise;
        less &= -by > noise;
        c->row.before_ms += c->ms[BEFORE][k] / TN_PROFILE_ROUNDS;
        c->row.after_ms += c->ms[AFTER][k] / TN_PROFILE_ROUNDS;
    }
    c->row.seen = more || less;
}

static int larger(const void *a, const void *b)
{
    const tn_profile_change *x = a, *y = b;
    const double p = fabs(x->after_ms - x->before_ms), q = fabs(y->after_ms - y->before_ms);
    return (p < q) - (p > q);
}

size_t tn_profile_changes(const tn_profile *const before[TN_PROFILE_ROUNDS],
                          const tn_profile *const after[TN_PROFILE_ROUNDS],
                          tn_profile_change changes[TN_PROFILE_CHANGES + 1])
{
    change c[TN_PROFILE_CHANGES], step = { .row = { .name = "step", .pass = "" } };
    tn_profile_part part[TN_PROFILE_PARTS];
    size_t n = 0;
    for (int side = BEFORE; side < SIDES; side++)
        for (int k = 0; k < TN_PROFILE_ROUNDS; k++) {
            const tn_profile *p = side == BEFORE ? before[k] : after[k];
            const double as_much = before[0]->items / p->items;
            const size_t parts = tn_profile_parts(p, part);
            for (size_t i = 0; i < parts; i++) {
                change *x = find(c, &n, part[i].name, part[i].pass);
                if (x) x->ms[side][k] = as_much * part[i].ms, x->spread[side][k] = as_much * part[i].spread_ms;
            }
            step.ms[side][k] = as_much * p->step_ms, step.spread[side][k] = as_much * p->spread_ms;
        }
    for (size_t i = 0; i < n; i++) {
        settle(&c[i]);
        changes[i] = c[i].row;
    }
    qsort(changes, n, sizeof *changes, larger);
    settle(&step);
    changes[n] = step.row;
    return n + 1;
}
