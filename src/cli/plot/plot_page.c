/* The page of tenon plot. Everything that comes from a file is escaped. */
#include "cli/plot/plot.h"
#include "report/chart/html.h"

#include <math.h>

static void put_value(FILE *f, const tn_curves_value *v)
{
    char buf[24];
    fprintf(f, "<td>%s</td>", tn_plot_number(v->value, buf));
    if (isnan(v->step)) fputs("<td>-</td>", f);
    else fprintf(f, "<td>%.0f</td>", v->step);
}

tn_status tn_plot_page(const tn_curves *c, const tn_plot *chart, FILE *f)
{
    char buf[24], rise[TN_CURVES_RISE];
    tn_html_begin(f, c->n == 1 ? c->run[0].name : "Learning curves");
    fputs("<h1>Learning curves</h1>\n", f);
    TN_RETURN_IF(tn_plot_svg(chart, f));
    fputs("<table><tr><th>run</th><th>step</th><th>final</th><th>", f);
    fputs(c->metric ? "lowest</th><th>at step</th><th>highest</th><th>at step</th></tr>\n"
                    : "best</th><th>at step</th></tr>\n",
          f);
    for (size_t i = 0; i < c->n; i++) {
        const tn_curves_run *r = &c->run[i];
        fputs("<tr><td>", f), tn_html_text(f, r->dir);
        fprintf(f, "</td><td>%lld", (long long)r->step);
        if (r->steps) fprintf(f, " of %lld", (long long)r->steps);
        fprintf(f, "</td><td>%s</td>", tn_plot_number(r->final.value, buf));
        put_value(f, &r->lowest);
        if (c->metric) put_value(f, &r->highest);
        fputs("</tr>\n", f);
    }
    fputs("</table>\n", f);
    for (size_t i = 0; i < c->n; i++) {
        if (!*tn_curves_rise(&c->run[i], rise)) continue;
        fputs("<p>", f), tn_html_text(f, c->run[i].name);
        fprintf(f, ": %s</p>\n", rise);
    }
    tn_html_end(f);
    return ferror(f) ? tn_error(TN_DISK, "the page could not be written") : TN_OK;
}
