/* The report as one HTML page: findings, then pictures of the same numbers, then tables. */
#include "report/page/report_parts.h"

#include "base/alloc.h"
#include "report/chart/chart.h"
#include "report/chart/html.h"

#include <stdio.h>

static void put_finding(void *ctx, const char *sentence) { tn_html_tag(ctx, "li", sentence); }

static void put_tables(const tn_report *r, FILE *out)
{
    const tn_page to = { .out = out, .html = true };
    tn_report_put_parts(&to, r->profile);
    tn_report_put_run(&to, r->run);
    tn_report_put_use(&to, r);
    tn_report_put_figures(&to, r);
    tn_report_put_ops(&to, r->profile);
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
    if (r->advised) {
        fputs("<h2>Advice</h2>\n<ul>\n", out);
        tn_report_advice(r, put_finding, out);
        fputs("</ul>\n", out);
    }
    if (r->against) TN_TRY(tn_report_changes_page(r->against, out));
    else TN_TRY(tn_report_draw(&a, r, out));
    if (r->curves) TN_TRY(tn_curves_draw(r->curves, &a, out));
    if (!r->against) put_tables(r, out);
    tn_html_end(out);
    if (ferror(out)) s = tn_error(TN_DISK, "the page could not be written");
done:
    tn_arena_free(&a);
    return s;
}
