/* Rows of a profile, summed by what they are parts of, and what bounds them. */
#include "report/profile/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *op, *component;
} table[] = {
#define TN_COMPONENT(op, component) { #op, component },
#include "report/profile/components.def"
#undef TN_COMPONENT
};

const char *tn_component_of(const char *op)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].op, op) == 0) return table[i].component;
    return "other ops";
}

/* Arguments of a call that fit into the last cache may be there already: others come from memory. */
enum { LAST_CACHE = 16 << 20 };

static const char *const memory = "memory", *const cache = "cache", *const arithmetic = "arithmetic";

static tn_bound_by least(const tn_profile *p, double flops, double bytes, double calls)
{
    const tn_ceilings *c = &p->ceilings;
    const bool cached = c->cache_gbs > 0 && bytes / fmax(calls, 1) <= LAST_CACHE;
    const double move = bytes / (1e6 * (cached ? c->cache_gbs : c->copy_gbs)),
                 compute = flops / (1e6 * tn_ceilings_of_compute(c, p->compute));
    if (move <= 0 && compute <= 0) return (tn_bound_by){ "", 0 };
    return compute > move ? (tn_bound_by){ arithmetic, compute } : (tn_bound_by){ cached ? cache : memory, move };
}

tn_bound_by tn_profile_bound(const tn_profile *p, const tn_profile_row *row)
{
    return least(p, row->varies ? 0 : row->flops, row->bytes, row->calls);
}

/* --- parts ----------------------------------------------------------------------------------------------------------------- */

typedef struct sums {
    tn_profile_part *part;
    size_t n;
    double by[TN_PROFILE_PARTS][3]; /* least time of its rows by what bounds them */
} sums;

static size_t find(sums *s, const char *name, const char *pass)
{
    size_t i = 0;
    while (i < s->n && (strcmp(s->part[i].name, name) != 0 || strcmp(s->part[i].pass, pass) != 0)) i++;
    if (i == s->n && s->n < TN_PROFILE_PARTS) s->part[s->n++] = (tn_profile_part){ .name = name, .pass = pass };
    return i < TN_PROFILE_PARTS ? i : TN_PROFILE_PARTS - 1;
}

static void add(sums *s, size_t i, double calls, double ms, double spread, double flops, double bytes, tn_bound_by b)
{
    tn_profile_part *x = &s->part[i];
    x->calls += calls;
    x->ms += ms;
    x->spread_ms = sqrt(x->spread_ms * x->spread_ms + spread * spread);
    x->flops += flops;
    x->bytes += bytes;
    x->bound_ms += b.ms;
    s->by[i][b.what == arithmetic ? 0 : b.what == memory ? 1 : 2] += b.ms;
}

static int longer(const void *a, const void *b)
{
    const tn_profile_part *x = a, *y = b;
    return (x->ms < y->ms) - (x->ms > y->ms);
}

size_t tn_profile_parts(const tn_profile *p, tn_profile_part parts[TN_PROFILE_PARTS])
{
    static const char *const names[] = { "arithmetic", "memory", "cache" };
    sums s = { .part = parts };
    const tn_bound_by none = { "", 0 };
    double all = 0;
    for (size_t i = 0; i < p->n; i++) {
        const tn_profile_row *r = &p->row[i];
        add(&s, find(&s, r->component, r->backward ? "backward" : "forward"), r->calls, r->ms, r->spread_ms,
            r->varies ? NAN : r->flops, r->bytes, tn_profile_bound(p, r));
    }
    add(&s, find(&s, "optimizer", ""), 1, p->optimizer_ms, p->optimizer_spread_ms, 0, p->optimizer_bytes,
        least(p, 0, p->optimizer_bytes, 1));
    add(&s, find(&s, "data", ""), (double)p->batches, p->data_ms, p->data_spread_ms, 0, 0, none);
    add(&s, find(&s, "host", ""), 0, p->host_ms, p->host_spread_ms, 0, 0, none);
    for (size_t i = 0; i < s.n; i++) all += parts[i].ms;
    add(&s, find(&s, "other", ""), 0, fmax(p->timed_ms - all, 0), 0, 0, 0, none);
    all = fmax(all, p->timed_ms);
    for (size_t i = 0; i < s.n; i++) {
        int most = 0;
        for (int k = 1; k < 3; k++) most = s.by[i][k] > s.by[i][most] ? k : most;
        parts[i].bound = parts[i].bound_ms > 0 ? names[most] : "";
        parts[i].share = all > 0 ? parts[i].ms / all : 0;
    }
    qsort(parts, s.n, sizeof *parts, longer);
    return s.n;
}
