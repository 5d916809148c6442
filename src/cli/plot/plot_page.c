/* The page of tenon plot. Everything that comes from a file is escaped. */
#include "cli/plot/plot.h"

#include <math.h>

static const char style[] =
    ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,-apple-system,\"Segoe UI\",\"DejaVu "
    "Sans\",Helvetica,Arial,sans-serif;max-width:780px;margin:2rem auto;padding:0 1rem;background:#fff;color:#1f2328}"
    "h1{font-size:1.4rem}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "td,th{padding:.2rem .7rem;text-align:right;border-bottom:1px solid #d0d7de}"
    "th:first-child,td:first-child{text-align:left}svg{max-width:100%;height:auto;margin:.6rem 0}"
    "@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}td,th{border-color:#30363d}}";

static void put_text(FILE *f, const char *s)
{
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        fputs(c == '<'   ? "&lt;"
              : c == '>' ? "&gt;"
              : c == '&' ? "&amp;"
              : c == '"' ? "&quot;"
              : c < 0x20 ? "?"
                         : "",
              f);
        if (c >= 0x20 && c != '<' && c != '>' && c != '&' && c != '"') fputc(c, f);
    }
}

static void put_value(FILE *f, const tn_curves_value *v)
{
    char buf[24];
    fprintf(f, "<td>%s</td>", tn_plot_number(v->value, buf));
    if (isnan(v->step)) fputs("<td>-</td>", f);
    else fprintf(f, "<td>%.0f</td>", v->step);
}

tn_status tn_plot_page(const tn_curves *c, const tn_plot *chart, FILE *f)
{
    char buf[24];
    fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
          "content=\"width=device-width\">\n<title>",
          f);
    for (size_t i = 0; i < c->n && i < 4; i++) fputs(i ? ", " : "", f), put_text(f, c->run[i].name);
    fprintf(f, "</title>\n<style>%s</style></head><body>\n<h1>Learning curves</h1>\n", style);
    TN_RETURN_IF(tn_plot_svg(chart, f));
    fputs("<table><tr><th>run</th><th>step</th><th>final</th><th>", f);
    fputs(c->metric ? "lowest</th><th>at step</th><th>highest</th><th>at step</th></tr>\n"
                    : "best</th><th>at step</th></tr>\n",
          f);
    for (size_t i = 0; i < c->n; i++) {
        const tn_curves_run *r = &c->run[i];
        fputs("<tr><td>", f), put_text(f, r->dir);
        fprintf(f, "</td><td>%lld", (long long)r->step);
        if (r->steps) fprintf(f, " of %lld", (long long)r->steps);
        fprintf(f, "</td><td>%s</td>", tn_plot_number(r->final.value, buf));
        put_value(f, &r->lowest);
        if (c->metric) put_value(f, &r->highest);
        fputs("</tr>\n", f);
    }
    fputs("</table>\n</body></html>\n", f);
    return ferror(f) ? tn_error(TN_DISK, "the page could not be written") : TN_OK;
}
