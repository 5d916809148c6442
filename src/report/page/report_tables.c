/* The tables of a report. */
#include "report/page/report_parts.h"

#include "base/text.h"

#include <tenon/op.h>

#include <math.h>

#define HEADS(...) ((const char *const[]){ __VA_ARGS__ }), sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *)

void tn_report_put_parts(const tn_page *to, const tn_profile *p)
{
    tn_profile_part part[TN_PROFILE_PARTS];
    const size_t n = tn_profile_parts(p, part);
    tn_page_heading(to, "Components of a step");
    tn_table_begin(to, HEADS("component", "pass", "calls", "ms", to->html ? "±" : "+-", "share", "GFLOP", "MB",
                             "GFLOP/s", "bound by", "reached"));
    for (size_t i = 0; i < n; i++) {
        const tn_profile_part *x = &part[i];
        tn_row_begin(to);
        tn_cell_text(to, x->name);
        tn_cell_text(to, x->pass);
        tn_cell_number(to, x->calls);
        tn_cell_number(to, x->ms);
        tn_cell_number(to, x->spread_ms);
        tn_cell_percent(to, x->share);
        tn_cell_number(to, 1e-9 * x->flops);
        tn_cell_number(to, 1e-6 * x->bytes);
        tn_cell_number(to, x->flops / x->ms * 1e-6);
        tn_cell_text(to, x->bound);
        tn_cell_percent(to, x->bound_ms / x->ms);
        tn_row_end(to);
    }
    tn_table_end(to);
}

const char *tn_report_folder(const char *op) { return tn_op_find(op) ? "src/ops/" : ""; }

static void put_row(const tn_page *to, const tn_profile *p, const tn_profile_row *r)
{
    const tn_bound_by b = tn_profile_bound(p, r);
    const double flops = r->varies ? NAN : r->flops;
    tn_row_begin(to);
    tn_cell_path(to, tn_report_folder(r->op), r->op);
    tn_cell_text(to, r->region);
    tn_cell_text(to, r->backward ? "backward" : "forward");
    tn_cell_number(to, r->calls);
    tn_cell_number(to, r->ms);
    tn_cell_number(to, r->spread_ms);
    tn_cell_percent(to, r->ms / tn_profile_whole(p));
    tn_cell_number(to, 1e-9 * flops);
    tn_cell_number(to, 1e-6 * r->bytes);
    tn_cell_number(to, flops / r->ms * 1e-6);
    tn_cell_number(to, r->bytes / r->ms * 1e-6);
    tn_cell_text(to, b.what);
    tn_cell_percent(to, b.ms / r->ms);
    tn_row_end(to);
}

void tn_report_put_ops(const tn_page *to, const tn_profile *p)
{
    tn_page_heading(to, "Ops");
    tn_table_begin(to, HEADS("op", "region", "pass", "calls", "ms", to->html ? "±" : "+-", "share", "GFLOP", "MB",
                             "GFLOP/s", "GB/s", "bound by", "reached"));
    for (size_t i = 0; i < p->n; i++) put_row(to, p, &p->row[i]);
    tn_table_end(to);
}

/* --- figures ------------------------------------------------------------------------------------------------------------------- */

void tn_report_put_run(const tn_page *to, const tn_run_time *t)
{
    char text[TN_RUN_TIME_TEXT];
    if (!t) return;
    snprintf(text, sizeof text, "Its %lld steps took %s s of wall-clock, up to the newest checkpoint.",
             (long long)t->step, TN_NUMBER(t->seconds));
    tn_page_heading(to, "Where the run's time went");
    tn_page_note(to, text);
    tn_table_begin(to, HEADS("part", "seconds", "share", "ms for each step"));
    for (int i = 0; i < TN_RUN_TIMES; i++) {
        if (isnan(t->part[i].seconds)) continue;
        tn_row_begin(to);
        tn_cell_text(to, tn_run_time_label(i));
        tn_cell_known(to, t->part[i].seconds);
        tn_cell_percent(to, t->part[i].share);
        tn_cell_known(to, 1e3 * t->part[i].seconds / (double)t->step);
        tn_row_end(to);
    }
    tn_table_end(to);
}

static void put_figures(const tn_page *to, const char *heading, const tn_figure *row, size_t n)
{
    if (!n) return;
    tn_page_heading(to, heading);
    tn_table_begin(to, HEADS("", "value", "unit"));
    for (size_t i = 0; i < n; i++) {
        tn_row_begin(to);
        tn_cell_text(to, row[i].name);
        tn_cell_number(to, row[i].value);
        tn_cell_text(to, row[i].unit);
        tn_row_end(to);
    }
    tn_table_end(to);
}

void tn_report_put_figures(const tn_page *to, const tn_report *r)
{
    tn_figure row[TN_FIGURES];
    put_figures(to, "Memory", row, tn_figures_of_memory(r->profile, r->plan, row));
    put_figures(to, "Ceilings of this machine", row, tn_figures_of_ceilings(r->profile, row));
}

void tn_report_put_use(const tn_page *to, const tn_report *r)
{
    tn_figure row[TN_FIGURES];
    const size_t n = tn_figures_of_use(r->profile, row);
    if (!n && !r->n_figures) return;
    tn_page_heading(to, "Utilisation");
    tn_table_begin(to, HEADS("", "measured by", "mean", "least", "most", "unit"));
    for (size_t i = 0; i < n; i++) {
        tn_row_begin(to);
        tn_cell_text(to, row[i].name);
        tn_cell_text(to, "this report");
        tn_cell_number(to, row[i].value);
        tn_cell_text(to, "");
        tn_cell_text(to, "");
        tn_cell_text(to, row[i].unit);
        tn_row_end(to);
    }
    for (size_t i = 0; i < r->n_figures; i++) {
        const tn_run_figure *x = &r->figure[i];
        tn_row_begin(to);
        tn_cell_text(to, x->what);
        tn_cell_text(to, "the run");
        tn_cell_known(to, x->mean);
        tn_cell_known(to, x->least);
        tn_cell_known(to, x->most);
        tn_cell_text(to, x->unit);
        tn_row_end(to);
    }
    tn_table_end(to);
}
