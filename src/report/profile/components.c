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

/* What bounds a row; then time outside ops. */
enum { ARITHMETIC, MEMORY, CACHE, LAUNCHES, KINDS };
static const char *const kinds[KINDS] = { "arithmetic", "memory", "cache", "launches" };
/* A short call takes at most so many launches, or so long; far is so many times the time that arithmetic and memory would allow. */
static const double SHORT_LAUNCHES = 8, SHORT_MS = 0.005, FAR = 4;
static const char *const loader = "loader", *const host = "host";

/* Calls that are short, and take many times what their numbers and bytes would: beginning them takes the time. One that is shorter than
 * any launch made none, so that its own time is no bound. */
static bool is_launches(const tn_profile *p, const tn_profile_row *r, double *ms)
{
    const double launch = r->calls * p->launch_ms, most = fmax(SHORT_LAUNCHES * launch, r->calls * SHORT_MS);
    if (!(launch > 0) || r->ms > most || r->ms < FAR * *ms) return false;
    *ms = r->ms >= launch ? fmax(launch, *ms) : *ms;
    return *ms > 0;
}

/* A kind, or KINDS, and the least time. */
static int least(const tn_profile *p, const tn_profile_row *r, double *ms)
{
    const tn_ceilings *c = &p->ceilings;
    int kind = ARITHMETIC;
    *ms = 0;
    if (!r->varies) { /* how often it goes over its arguments, nobody knows */
        bool cached;
        const double move = r->bytes / (1e6 * tn_ceilings_bandwidth(c, r->bytes / fmax(r->calls, 1), &cached)),
                     compute = r->flops / (1e6 * tn_ceilings_of_compute(c, p->compute));
        *ms = fmax(compute, move);
        kind = compute > move ? ARITHMETIC : cached ? CACHE : MEMORY;
    }
    if (is_launches(p, r, ms)) kind = LAUNCHES;
    return *ms > 0 ? kind : KINDS;
}

tn_bound_by tn_profile_bound(const tn_profile *p, const tn_profile_row *row)
{
    double ms;
    const int k = least(p, row, &ms);
    return k < KINDS ? (tn_bound_by){ kinds[k], ms } : (tn_bound_by){ "", 0 };
}

double tn_profile_flops(const tn_profile *p)
{
    double flops = 0;
    for (size_t i = 0; i < p->n; i++) flops += p->row[i].varies ? NAN : p->row[i].flops;
    return flops;
}

double tn_profile_reached(const tn_profile *p)
{
    return tn_profile_flops(p) / (1e6 * p->step_ms * tn_ceilings_of_compute(&p->ceilings, p->compute));
}

/* --- parts ----------------------------------------------------------------------------------------------------------------- */

typedef struct sums {
    tn_profile_part *part;
    size_t n;
    double by[TN_PROFILE_PARTS][KINDS]; /* least time of its rows by what bounds them */
} sums;

static size_t find(sums *s, const char *name, const char *pass)
{
    size_t i = 0;
    while (i < s->n && (strcmp(s->part[i].name, name) != 0 || strcmp(s->part[i].pass, pass) != 0)) i++;
    if (i == s->n && s->n < TN_PROFILE_PARTS)
        s->part[s->n++] = (tn_profile_part){ .name = name, .pass = pass, .bound = "" };
    return i < TN_PROFILE_PARTS ? i : TN_PROFILE_PARTS - 1;
}

static void add(sums *s, const tn_profile *p, const char *name, const char *pass, const tn_profile_row *r)
{
    const size_t i = find(s, name, pass);
    tn_profile_part *x = &s->part[i];
    double ms;
    const int kind = least(p, r, &ms);
    x->calls += r->calls;
    x->ms += r->ms;
    x->spread_ms = sqrt(x->spread_ms * x->spread_ms + r->spread_ms * r->spread_ms);
    x->flops += r->varies ? NAN : r->flops;
    x->bytes += r->bytes;
    x->bound_ms += ms;
    if (kind < KINDS) s->by[i][kind] += ms;
}

static int longer(const void *a, const void *b)
{
    const tn_profile_part *x = a, *y = b;
    return (x->ms < y->ms) - (x->ms > y->ms);
}

static double known(const tn_profile *p)
{
    double all = p->optimizer_ms + p->data_ms + p->host_ms;
    for (size_t i = 0; i < p->n; i++) all += p->row[i].ms;
    return all;
}

double tn_profile_whole(const tn_profile *p) { return fmax(known(p), p->timed_ms); }

/* Outside ops nothing is computed that has a ceiling. On a GPU what is between kernels may be launches alone. */
static void add_outside(sums *s, const tn_profile *p)
{
    const char *const waits = p->gaps_ms > p->host_ms / 2 ? kinds[LAUNCHES] : host;
    const struct {
        const char *name, *bound;
        double calls, ms, spread_ms;
    } row[] = { { "data", loader, (double)p->batches, p->data_ms, p->data_spread_ms },
                { "host", waits, 0, p->host_ms, p->host_spread_ms },
                { "other", host, 0, fmax(p->timed_ms - known(p), 0), p->timed_spread_ms } };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const size_t k = find(s, row[i].name, "");
        s->part[k].calls = row[i].calls, s->part[k].ms = row[i].ms, s->part[k].spread_ms = row[i].spread_ms;
        s->part[k].bound = row[i].bound;
    }
}

size_t tn_profile_parts(const tn_profile *p, tn_profile_part parts[TN_PROFILE_PARTS])
{
    sums s = { .part = parts };
    const double all = tn_profile_whole(p);
    for (size_t i = 0; i < p->n; i++)
        add(&s, p, p->row[i].component, p->row[i].backward ? "backward" : "forward", &p->row[i]);
    add(&s, p, "optimizer", "",
        &(tn_profile_row){
            .calls = 1, .ms = p->optimizer_ms, .spread_ms = p->optimizer_spread_ms, .bytes = p->optimizer_bytes });
    add_outside(&s, p);
    for (size_t i = 0; i < s.n; i++) {
        int most = 0;
        for (int k = 1; k < KINDS; k++) most = s.by[i][k] > s.by[i][most] ? k : most;
        if (parts[i].bound_ms > 0) parts[i].bound = kinds[most];
        parts[i].share = all > 0 ? parts[i].ms / all : 0;
    }
    qsort(parts, s.n, sizeof *parts, longer);
    return s.n;
}
