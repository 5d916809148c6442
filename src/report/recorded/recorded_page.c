/* What runs recorded, as one HTML page without scripts. All that comes from a file is escaped. */
#include "report/recorded/recorded.h"

#include "base/text.h"
#include "report/chart/chart.h"
#include "report/chart/html.h"

#include <math.h>
#include <stdio.h>

static void put_missing(const tn_recorded *r, FILE *out)
{
    fputs("<h2>What is missing</h2>\n<ul>\n", out);
    for (size_t i = 0; i < r->n_missing; i++) {
        fputs("<li><b>", out);
        tn_html_text(out, r->missing[i].what);
        fputs("</b>: ", out);
        tn_html_text(out, r->missing[i].why);
        fputs("</li>\n", out);
    }
    fputs("</ul>\n", out);
}

static void put_abouts(const tn_recorded *r, FILE *out)
{
    char text[TN_RECORDED_TEXT];
    fputs("<ul>\n", out);
    for (size_t i = 0; i < r->n; i++) {
        tn_html_tag(out, "li", tn_recorded_about(&r->run[i], text));
        if (r->run[i].timed) tn_html_tag(out, "li", tn_run_time_text(&r->run[i].time, text));
    }
    fputs("</ul>\n", out);
}

/* --- pictures -------------------------------------------------------------------------------------------------------- */

static tn_status draw_time(const tn_recorded_run *x, tn_arena *a, FILE *out)
{
    const char *names[TN_RUN_TIMES];
    double seconds[TN_RUN_TIMES];
    size_t n = 0;
    for (int i = 0; x->timed && i < TN_RUN_TIMES; i++) {
        if (!(x->time.part[i].seconds > 0)) continue;
        names[n] = x->time.part[i].name;
        seconds[n++] = x->time.part[i].seconds;
    }
    if (!n) return TN_OK;
    return tn_chart_shares(&(tn_shares){ .title = tn_arena_printf(a, "Where the time of %s went", x->name),
                                         .unit = "s",
                                         .n = n,
                                         .names = names,
                                         .value = seconds },
                           out);
}

/* --- tables ---------------------------------------------------------------------------------------------------------- */

static void put_number(FILE *out, double v)
{
    if (isnan(v)) fputs("<td></td>", out);
    else fprintf(out, "<td>%s</td>", TN_NUMBER(v));
}

static void put_head(const tn_recorded *r, const char *heading, FILE *out)
{
    fprintf(out, "<h2>%s</h2>\n<div class=\"wide\"><table><tr><th></th>", heading);
    for (size_t i = 0; i < r->n; i++) tn_html_tag(out, "th", r->run[i].name);
    fputs("</tr>\n", out);
}

static void put_numbers(const tn_recorded *r, FILE *out)
{
    if (!r->n_numbers) return;
    put_head(r, "Numbers", out);
    for (size_t k = 0; k < r->n_numbers; k++) {
        const tn_recorded_number *x = &r->number[k];
        fprintf(out, "<tr><td>%s%s%s</td>", x->name, x->unit[0] ? ", " : "", x->unit);
        for (size_t i = 0; i < r->n; i++) put_number(out, x->value[i]);
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

static void put_settings(const tn_recorded *r, FILE *out)
{
    if (!r->n_settings) return;
    put_head(r, "Settings", out);
    for (size_t k = 0; k < r->n_settings; k++) {
        fprintf(out, "<tr><td>%s</td>", r->setting[k].key);
        for (size_t i = 0; i < r->n; i++) tn_html_tag(out, "td", r->setting[k].value[i]);
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

static void put_parts(const tn_recorded_run *x, FILE *out)
{
    if (!x->n_parts) return;
    fputs("<h2>Components, as ", out);
    tn_html_text(out, x->name);
    fputs(" timed them</h2>\n<table><tr><th>component</th><th>forward ms</th><th>backward ms</th></tr>\n", out);
    for (size_t k = 0; k < x->n_parts; k++) {
        fputs("<tr>", out);
        tn_html_tag(out, "td", x->part[k].name);
        put_number(out, x->part[k].forward_ms);
        put_number(out, x->part[k].backward_ms);
        fputs("</tr>\n", out);
    }
    fputs("</table>\n", out);
}

tn_status tn_recorded_page(const tn_recorded *r, FILE *out)
{
    tn_status s = TN_OK;
    tn_arena a = { 0 };
    tn_html_begin(out, r->title);
    tn_html_tag(out, "h1", r->title);
    tn_html_tag(out, "p", TN_RECORDED_LEAD);
    put_abouts(r, out);
    put_missing(r, out);
    TN_TRY(tn_curves_draw(&r->curves, &a, out));
    for (size_t i = 0; i < r->n; i++) TN_TRY(draw_time(&r->run[i], &a, out));
    put_numbers(r, out);
    for (size_t i = 0; i < r->n; i++) put_parts(&r->run[i], out);
    put_settings(r, out);
    tn_html_end(out);
    if (ferror(out)) s = tn_error(TN_DISK, "the page could not be written");
done:
    tn_arena_free(&a);
    return s;
}
