/* The pictures of a report. */
#include "report/page/report_parts.h"

#include "base/alloc.h"
#include "base/text.h"
#include "report/chart/chart.h"

#include <math.h>
#include <string.h>

static const char *label(tn_arena *a, const char *name, const char *pass)
{
    const char *s = pass[0] ? tn_arena_printf(a, "%s, %s", name, pass) : name;
    return s ? s : name;
}

static tn_status draw_shares(tn_arena *a, const tn_profile *p, FILE *out)
{
    tn_profile_part part[TN_PROFILE_PARTS];
    const char *names[TN_PROFILE_PARTS];
    double ms[TN_PROFILE_PARTS];
    const size_t n = tn_profile_parts(p, part);
    for (size_t i = 0; i < n; i++) names[i] = label(a, part[i].name, part[i].pass), ms[i] = part[i].ms;
    return tn_chart_shares(
        &(tn_shares){ .title = "Where a step's time goes", .unit = "ms", .n = n, .names = names, .value = ms }, out);
}

/* --- roofline ----------------------------------------------------------------------------------------------------------------- */

enum { ARITHMETIC, MEMORY, CACHE, LAUNCHES, BOUNDS };
static const char *const bounds[BOUNDS] = { "bound by arithmetic", "memory", "cache", "launches" };

static int bound_of(const char *what)
{
    static const char *const words[BOUNDS] = { "arithmetic", "memory", "cache", "launches" };
    int i = 0;
    while (i < BOUNDS && strcmp(words[i], what) != 0) i++;
    return i < BOUNDS ? i : ARITHMETIC;
}

static const char *with_value(tn_arena *a, const char *name, double value, const char *unit)
{
    const char *s = tn_arena_printf(a, "%s %s %s", name, TN_NUMBER(value), unit);
    return s ? s : name;
}

/* Types that are equally fast have one line. */
static size_t peaks_of(tn_arena *a, const tn_profile *p, tn_roof peak[TN_ROOFS])
{
    const tn_ceilings *c = &p->ceilings;
    const double own = tn_ceilings_of_compute(c, p->compute);
    const struct {
        double value;
        const char *name;
    } all[] = { { c->fma_gflops, "fp32" }, { c->tf32_gflops, "tf32" }, { c->bf16_gflops, "bf16" } };
    size_t n = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!(all[i].value > 0)) continue;
        const bool same = n && all[i].value < 1.02 * peak[n - 1].value && all[i].value > 0.98 * peak[n - 1].value;
        tn_roof *to = same ? &peak[n - 1] : &peak[n++];
        const char *name = same ? tn_arena_printf(a, "%s, %s", to->name, all[i].name) : all[i].name;
        const bool aside = all[i].value != own && (!same || to->aside);
        *to = (tn_roof){ fmax(all[i].value, same ? to->value : 0), name ? name : all[i].name, ARITHMETIC, aside };
    }
    for (size_t i = 0; i < n; i++) peak[i].name = with_value(a, peak[i].name, peak[i].value, "GFLOP/s");
    return n;
}

static size_t bandwidths_of(tn_arena *a, const tn_profile *p, tn_roof to[TN_ROOFS])
{
    const tn_ceilings *c = &p->ceilings;
    const tn_roof all[] = { { c->memory_gbs, "memory", MEMORY, false },
                            { c->shared_gbs, "last cache", CACHE, false },
                            { c->cache_gbs, "own caches", CACHE, false } };
    size_t n = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!(all[i].value > 0)) continue;
        to[n] = all[i];
        to[n++].name = with_value(a, all[i].name, all[i].value, "GB/s");
    }
    return n;
}

/* Parts whose FLOPs and bytes are known, in the colour of what bounds them, below the ceilings of this run. */
static tn_status draw_roofline(tn_arena *a, const tn_profile *p, FILE *out)
{
    tn_profile_part part[TN_PROFILE_PARTS];
    tn_roof peak[TN_ROOFS], bandwidth[TN_ROOFS];
    const char *names[TN_PROFILE_PARTS];
    double x[TN_PROFILE_PARTS], y[TN_PROFILE_PARTS], weight[TN_PROFILE_PARTS];
    int group[TN_PROFILE_PARTS];
    size_t n = 0;
    const size_t all = tn_profile_parts(p, part), peaks = peaks_of(a, p, peak), slopes = bandwidths_of(a, p, bandwidth);
    for (size_t i = 0; i < all; i++) {
        if (!(part[i].flops > 0) || !(part[i].bytes > 0) || !(part[i].ms > 0)) continue;
        names[n] = label(a, part[i].name, part[i].pass);
        x[n] = part[i].flops / part[i].bytes;
        y[n] = part[i].flops / part[i].ms * 1e-6;
        group[n] = bound_of(part[i].bound);
        weight[n++] = part[i].ms;
    }
    if (!n || !peaks || !slopes) return TN_OK;
    return tn_chart_roofline(&(tn_roofline){ .title = "Roofline",
                                             .x_label = "FLOPs for each byte of arguments",
                                             .y_label = "GFLOP/s",
                                             .peak = peak,
                                             .n_peaks = peaks,
                                             .bandwidth = bandwidth,
                                             .n_bandwidths = slopes,
                                             .n = n,
                                             .x = x,
                                             .y = y,
                                             .names = names,
                                             .weight = weight,
                                             .groups = bounds,
                                             .n_groups = BOUNDS,
                                             .group = group },
                             out);
}

/* --- timeline ----------------------------------------------------------------------------------------------------------------- */

typedef struct spans {
    double *begin, *end;
    int *lane, *state;
    const char **names;
    size_t n;
} spans;

static tn_status spans_alloc(tn_arena *a, size_t most, spans *s)
{
    s->begin = tn_arena_alloc(a, 2 * most * sizeof *s->begin);
    s->lane = tn_arena_alloc(a, 2 * most * sizeof *s->lane);
    s->names = tn_arena_alloc(a, most * sizeof *s->names);
    if (!s->begin || !s->lane || !s->names) return TN_MEMORY;
    s->end = s->begin + most, s->state = s->lane + most;
    return TN_OK;
}

static void spans_add(spans *s, double begin, double end, int lane, int state, const char *name)
{
    const size_t i = s->n++;
    s->begin[i] = begin, s->end[i] = end, s->lane[i] = lane, s->state[i] = state, s->names[i] = name;
}

static tn_status draw_spans(const spans *s, const char *title, const char *const *states, size_t n_states,
                            const char *const *lanes, size_t n_lanes, FILE *out)
{
    return tn_chart_timeline(&(tn_timeline){ .title = title,
                                             .x_label = "ms",
                                             .states = states,
                                             .lanes = lanes,
                                             .n_states = n_states,
                                             .n_lanes = n_lanes,
                                             .n = s->n,
                                             .begin = s->begin,
                                             .end = s->end,
                                             .lane = s->lane,
                                             .state = s->state,
                                             .names = s->names },
                             out);
}

/* What each thread did; waits last, over the ops in which they are. */
static tn_status draw_recorded(tn_arena *a, const tn_step_record *r, FILE *out)
{
    static const char *const states[TN_DOINGS] = { "forward", "backward", "optimizer", "batch", "waiting" };
    const char *lanes[TN_STEP_TRACKS];
    spans all = { 0 };
    TN_RETURN_IF(spans_alloc(a, r->n, &all));
    for (int k = 0; k < r->tracks; k++) lanes[k] = r->track[k];
    for (size_t i = 0; i < r->n; i++) {
        const tn_step_span *s = &r->span[i];
        spans_add(&all, s->begin_ms, s->end_ms, s->track, (int)s->doing,
                  label(a, s->name ? s->name : "", s->where ? s->where : ""));
    }
    return draw_spans(&all, "A step as it was recorded", states, TN_DOINGS, lanes, (size_t)r->tracks, out);
}

/* Rows one behind the other, in the order of the plan: nodes of one op, region and direction together. */
static tn_status draw_rows(tn_arena *a, const tn_profile *p, FILE *out)
{
    enum { DATA, FORWARD_OPS, BACKWARD_OPS, UPDATE, LANES };
    static const char *const lanes[LANES] = { "data", "forward", "backward", "optimizer" };
    spans all = { 0 };
    double at = p->data_ms;
    TN_RETURN_IF(spans_alloc(a, p->n + 2, &all));
    spans_add(&all, 0, at, DATA, DATA, "data");
    for (int lane = FORWARD_OPS; lane <= BACKWARD_OPS; lane++)
        for (size_t i = 0; i < p->n; i++) {
            const tn_profile_row *r = &p->row[i];
            if (r->backward != (lane == BACKWARD_OPS)) continue;
            spans_add(&all, at, at + r->ms, lane, lane, label(a, r->op, r->region));
            at += r->ms;
        }
    spans_add(&all, at, at + p->optimizer_ms, UPDATE, UPDATE, "optimizer");
    return draw_spans(&all, "A step, its ops one behind the other", lanes, LANES, lanes, LANES, out);
}

/* --- memory ------------------------------------------------------------------------------------------------------------------- */

enum { FORWARD, BACKWARD, WORKSPACE, PARAMETERS, GRADIENTS, OPTIMIZER, FIXED, MEMORY_KINDS };

typedef struct map {
    double *begin, *end, *low, *high;
    int *kind;
    const char **names;
    size_t n;
} map;

static tn_status map_alloc(tn_arena *a, size_t most, map *m)
{
    m->begin = tn_arena_alloc(a, 4 * most * sizeof *m->begin);
    m->kind = tn_arena_alloc(a, most * sizeof *m->kind);
    m->names = tn_arena_alloc(a, most * sizeof *m->names);
    if (!m->begin || !m->kind || !m->names) return TN_MEMORY;
    m->end = m->begin + most, m->low = m->end + most, m->high = m->low + most;
    return TN_OK;
}

static void map_add(map *m, double begin, double end, double low, double bytes, int kind, const char *name)
{
    const size_t i = m->n++;
    m->begin[i] = begin, m->end[i] = end;
    m->low[i] = low * 1e-6, m->high[i] = (low + bytes) * 1e-6;
    m->kind[i] = kind, m->names[i] = name;
}

/* What lives as long as the run lies below what a step needs. Returns where that begins. */
static double map_fixed(const tn_memory_plan *p, double steps, map *m)
{
    const struct {
        size_t bytes;
        int kind;
        const char *name;
    } row[] = { { p->parameters, PARAMETERS, "parameters" },
                { p->gradients, GRADIENTS, "gradients" },
                { p->optimizer, OPTIMIZER, "optimizer" },
                { p->frozen, FIXED, "frozen weights" },
                { p->state, FIXED, "state" },
                { p->samples, FIXED, "samples" },
                { p->other, FIXED, "inputs and tables" },
                { p->data, FIXED, "data" } };
    double at = 0;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        if (!row[i].bytes) continue;
        map_add(m, 0, steps, at, (double)row[i].bytes, row[i].kind, row[i].name);
        at += (double)row[i].bytes;
    }
    return at;
}

static tn_status draw_memory(tn_arena *a, const tn_profile *p, const tn_plan *plan, FILE *out)
{
    enum { MOST_FIXED = 8 };
    static const char *const kinds[MEMORY_KINDS] = { "forward",   "backward",  "workspace",       "parameters",
                                                     "gradients", "optimizer", "all else planned" };
    const size_t n = plan ? tn_plan_layout(plan, NULL) : 0;
    map m = { 0 };
    if (!n) return TN_OK;
    tn_layout_row *row = tn_arena_alloc(a, n * sizeof *row);
    if (!row) return TN_MEMORY;
    TN_RETURN_IF(map_alloc(a, n + MOST_FIXED, &m));
    tn_plan_layout(plan, row);
    const char *const peak =
        tn_arena_printf(a, "measured peak of the %s: %s MB", p->device == TN_CPU ? "process" : "device",
                        TN_NUMBER(1e-6 * p->peak_bytes));
    const double steps = (double)tn_plan_steps(plan), base = map_fixed(&p->memory, steps, &m);
    for (size_t i = 0; i < n; i++)
        map_add(&m, (double)row[i].first, fmin((double)row[i].last + 1, steps), base + (double)row[i].offset,
                (double)row[i].bytes,
                row[i].workspace  ? WORKSPACE
                : row[i].backward ? BACKWARD
                                  : FORWARD,
                label(a, row[i].op ? row[i].op : "", row[i].region ? row[i].region : ""));
    return tn_chart_memory(&(tn_memory_map){ .title = "Memory of a step, as planned",
                                             .x_label = "ops of the plan",
                                             .y_label = "MB",
                                             .kinds = kinds,
                                             .n_kinds = MEMORY_KINDS,
                                             .n = m.n,
                                             .begin = m.begin,
                                             .end = m.end,
                                             .low = m.low,
                                             .high = m.high,
                                             .kind = m.kind,
                                             .names = m.names,
                                             .limit = isnan(p->peak_bytes) ? 0 : 1e-6 * p->peak_bytes,
                                             .limit_name = peak },
                           out);
}

tn_status tn_report_draw(tn_arena *a, const tn_report *r, FILE *out)
{
    const tn_step_record *recorded = &r->profile->recorded;
    TN_RETURN_IF(draw_shares(a, r->profile, out));
    TN_RETURN_IF(draw_roofline(a, r->profile, out));
    TN_RETURN_IF(recorded->n ? draw_recorded(a, recorded, out) : draw_rows(a, r->profile, out));
    return draw_memory(a, r->profile, r->plan, out);
}
