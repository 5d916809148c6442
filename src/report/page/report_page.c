/* The report as one HTML page: findings, then pictures of the same numbers, then tables. */
#include "report/page/report.h"

#include "base/alloc.h"
#include "report/chart/chart.h"
#include "report/chart/html.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void put_finding(void *ctx, const char *sentence) { tn_html_tag(ctx, "li", sentence); }

static const char *label(tn_arena *a, const char *name, const char *pass)
{
    const char *s = pass[0] ? tn_arena_printf(a, "%s, %s", name, pass) : name;
    return s ? s : name;
}

/* --- pictures ---------------------------------------------------------------------------------------------------------------- */

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

/* Parts whose FLOPs and bytes are known, below the ceilings of this run. */
static tn_status draw_roofline(tn_arena *a, const tn_profile *p, FILE *out)
{
    tn_profile_part part[TN_PROFILE_PARTS];
    const char *names[TN_PROFILE_PARTS];
    double x[TN_PROFILE_PARTS], y[TN_PROFILE_PARTS], weight[TN_PROFILE_PARTS];
    size_t n = 0;
    const size_t all = tn_profile_parts(p, part);
    const double bandwidth = p->ceilings.cache_gbs > 0 ? p->ceilings.cache_gbs : p->ceilings.copy_gbs;
    for (size_t i = 0; i < all; i++) {
        if (!(part[i].flops > 0) || !(part[i].bytes > 0) || !(part[i].ms > 0)) continue;
        names[n] = label(a, part[i].name, part[i].pass);
        x[n] = part[i].flops / part[i].bytes;
        y[n] = part[i].flops / part[i].ms * 1e-6;
        weight[n++] = part[i].ms;
    }
    if (!n) return TN_OK;
    return tn_chart_roofline(&(tn_roofline){ .title = "Roofline",
                                             .x_label = "FLOPs for each byte of arguments",
                                             .y_label = "GFLOP/s",
                                             .peak = tn_ceilings_of_compute(&p->ceilings, p->compute),
                                             .bandwidth = bandwidth,
                                             .peak_name = "arithmetic",
                                             .bandwidth_name = p->ceilings.cache_gbs > 0 ? "cache" : "memory",
                                             .n = n,
                                             .x = x,
                                             .y = y,
                                             .names = names,
                                             .weight = weight },
                             out);
}

/* Rows one behind the other, in the order of the plan: nodes of one op, region and direction together. */
static tn_status draw_timeline(tn_arena *a, const tn_profile *p, FILE *out)
{
    static const char *const lanes[] = { "data", "forward", "backward", "optimizer" };
    const size_t most = p->n + 2;
    double *begin = tn_arena_alloc(a, 2 * most * sizeof *begin), *end = begin ? begin + most : NULL, at = p->data_ms;
    int *lane = tn_arena_alloc(a, 2 * most * sizeof *lane), *state = lane ? lane + most : NULL;
    const char **names = tn_arena_alloc(a, most * sizeof *names);
    size_t n = 0;
    if (!begin || !lane || !names) return TN_MEMORY;
    begin[n] = 0, end[n] = at, lane[n] = state[n] = 0, names[n++] = "data";
    for (int back = 0; back < 2; back++)
        for (size_t i = 0; i < p->n; i++) {
            const tn_profile_row *r = &p->row[i];
            if (r->backward != (back == 1)) continue;
            begin[n] = at, end[n] = at += r->ms, lane[n] = state[n] = 1 + back;
            names[n++] = label(a, r->op, r->region);
        }
    begin[n] = at, end[n] = at + p->optimizer_ms, lane[n] = state[n] = 3, names[n++] = "optimizer";
    return tn_chart_timeline(&(tn_timeline){ .title = "A step, op by op",
                                             .x_label = "ms",
                                             .states = lanes,
                                             .lanes = lanes,
                                             .n_states = 4,
                                             .n_lanes = 4,
                                             .n = n,
                                             .begin = begin,
                                             .end = end,
                                             .lane = lane,
                                             .state = state,
                                             .names = names },
                             out);
}

static tn_status draw_memory(tn_arena *a, const tn_plan *plan, FILE *out)
{
    static const char *const kinds[] = { "forward", "backward", "workspace" };
    const size_t n = plan ? tn_plan_layout(plan, NULL) : 0;
    if (!n) return TN_OK;
    tn_layout_row *row = tn_arena_alloc(a, n * sizeof *row);
    double *begin = tn_arena_alloc(a, 4 * n * sizeof *begin);
    int *kind = tn_arena_alloc(a, n * sizeof *kind);
    const char **names = tn_arena_alloc(a, n * sizeof *names);
    if (!row || !begin || !kind || !names) return TN_MEMORY;
    double *end = begin + n, *low = end + n, *high = low + n;
    tn_plan_layout(plan, row);
    for (size_t i = 0; i < n; i++) {
        begin[i] = (double)row[i].first, end[i] = (double)row[i].last + 1;
        low[i] = (double)row[i].offset * 1e-6, high[i] = (double)(row[i].offset + row[i].bytes) * 1e-6;
        kind[i] = row[i].workspace ? 2 : row[i].backward ? 1 : 0;
        names[i] = label(a, row[i].op ? row[i].op : "", row[i].region ? row[i].region : "");
    }
    return tn_chart_memory(&(tn_memory_map){ .title = "Memory of a step, as planned",
                                             .x_label = "ops of the plan",
                                             .y_label = "MB",
                                             .kinds = kinds,
                                             .n_kinds = 3,
                                             .n = n,
                                             .begin = begin,
                                             .end = end,
                                             .low = low,
                                             .high = high,
                                             .kind = kind,
                                             .names = names },
                           out);
}

static tn_status draw_curve(tn_arena *a, const tn_curves *c, FILE *out)
{
    tn_plot plot;
    if (!c) return TN_OK;
    TN_RETURN_IF(tn_curves_plot(c, TN_CURVES_STEPS, true, a, &plot));
    return tn_plot_svg(&plot, out);
}

/* --- tables ------------------------------------------------------------------------------------------------------------------ */

/* Nothing where it is 0 or no number: a part that takes no time has no rate. */
static void put_number(FILE *out, double v)
{
    if (v > 0 && isfinite(v)) fprintf(out, "<td>%.4g</td>", v);
    else fputs("<td></td>", out);
}

static void put_percent(FILE *out, double v)
{
    if (v > 0 && isfinite(v)) fprintf(out, "<td>%.1f %%</td>", 100 * v);
    else fputs("<td></td>", out);
}

static void put_parts(const tn_profile *p, FILE *out)
{
    tn_profile_part part[TN_PROFILE_PARTS];
    const size_t n = tn_profile_parts(p, part);
    fputs("<h2>Components of a "
          "step</h2>\n<table><tr><th>component</th><th>pass</th><th>ms</th><th>&plusmn;</th><th>share</th>"
          "<th>GFLOP/s</th><th>bound by</th><th>reached</th></tr>\n",
          out);
    for (size_t i = 0; i < n; i++) {
        const tn_profile_part *x = &part[i];
        fputs("<tr>", out);
        tn_html_tag(out, "td", x->name);
        tn_html_tag(out, "td", x->pass);
        put_number(out, x->ms);
        put_number(out, x->spread_ms);
        put_percent(out, x->share);
        put_number(out, x->flops / x->ms * 1e-6);
        tn_html_tag(out, "td", x->bound);
        put_percent(out, x->bound_ms / x->ms);
        fputs("</tr>\n", out);
    }
    fputs("</table>\n", out);
}

static void put_rows(const tn_profile *p, FILE *out)
{
    fputs("<h2>Ops</h2>\n<table><tr><th>op</th><th>region</th><th>pass</th><th>calls</th><th>ms</th><th>&plusmn;</th>"
          "<th>GFLOP/s</th><th>GB/s</th><th>bound by</th><th>reached</th></tr>\n",
          out);
    for (size_t i = 0; i < p->n; i++) {
        const tn_profile_row *r = &p->row[i];
        const tn_bound_by b = tn_profile_bound(p, r);
        fputs("<tr>", out);
        tn_html_tag(out, "td", r->op);
        tn_html_tag(out, "td", r->region);
        tn_html_tag(out, "td", r->backward ? "backward" : "forward");
        fprintf(out, "<td>%.0f</td>", r->calls);
        put_number(out, r->ms);
        put_number(out, r->spread_ms);
        put_number(out, r->varies ? 0 : r->flops / r->ms * 1e-6);
        put_number(out, r->bytes / r->ms * 1e-6);
        tn_html_tag(out, "td", b.what);
        put_percent(out, b.ms / r->ms);
        fputs("</tr>\n", out);
    }
    fputs("</table>\n", out);
}

tn_status tn_report_page(const tn_report *r, FILE *out)
{
    tn_status s = TN_OK;
    tn_arena a = { 0 };
    tn_html_begin(out, r->title);
    tn_html_tag(out, "h1", r->title);
    tn_html_tag(out, "p", r->machine);
    fputs("<ul>\n", out);
    tn_report_findings(r, put_finding, out);
    fputs("</ul>\n", out);
    TN_TRY(draw_shares(&a, r->profile, out));
    TN_TRY(draw_roofline(&a, r->profile, out));
    TN_TRY(draw_timeline(&a, r->profile, out));
    TN_TRY(draw_memory(&a, r->plan, out));
    TN_TRY(draw_curve(&a, r->curves, out));
    put_parts(r->profile, out);
    put_rows(r->profile, out);
    tn_html_end(out);
    if (ferror(out)) s = tn_error(TN_DISK, "the page could not be written");
done:
    tn_arena_free(&a);
    return s;
}
