/* Pages. */
#include "report/chart/html.h"

#include <math.h>

static const char style[] =
    ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,-apple-system,\"Segoe UI\",\"DejaVu "
    "Sans\",Helvetica,Arial,sans-serif;max-width:980px;"
    "margin:2rem auto;padding:0 "
    "1rem;background:#fff;color:#1f2328}h1{font-size:1.6rem}h2{font-size:1.15rem;margin-top:2.2rem}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.2rem "
    ".7rem;text-align:right;border-bottom:1px solid #d0d7de}"
    "th:first-child,td:first-child{text-align:left}.wide{overflow-x:auto;margin:.8rem "
    "0}td.set,th.set{text-align:left;white-space:"
    "nowrap}.dense{font-size:13px}.dense td,.dense th{padding:.15rem "
    ".45rem;white-space:nowrap}svg{max-width:100%;height:auto;margin:.6rem 0}pre{overflow-x:auto;padding:.8rem;"
    "background:#f6f8fa}.note{color:#656d76}"
    "@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}td,th{border-color:#30363d}pre{background:"
    "#161b22}.note{color:#9198a1}}"
    "@page{size:A4;margin:14mm}@media print{body{font-size:11px;max-width:182mm;margin:0;padding:0}td,th{padding:.1rem "
    ".4rem}.wide{overflow:visible}.dense{font-size:8px}.dense td,.dense th{padding:.1rem "
    ".2rem}svg,tr,li,pre{break-inside:avoid}h1,h2{break-after:avoid}}";

void tn_html_text(FILE *out, const char *s)
{
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        if (c == '<') fputs("&lt;", out);
        else if (c == '>') fputs("&gt;", out);
        else if (c == '&') fputs("&amp;", out);
        else if (c == '"') fputs("&quot;", out);
        else if (c < 0x20 && c != '\n' && c != '\t') fputc('?', out);
        else fputc(*s, out);
    }
}

void tn_html_tag(FILE *out, const char *tag, const char *text)
{
    fprintf(out, "<%s>", tag);
    tn_html_text(out, text);
    fprintf(out, "</%s>", tag);
}

void tn_html_number(FILE *out, double v)
{
    if (isnan(v)) fputs("<td>-</td>", out);
    else fprintf(out, "<td>%.*g</td>", fabs(v) >= 1000 && fabs(v) < 1e7 ? 7 : 4, v);
}

void tn_html_begin(FILE *out, const char *title)
{
    fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
          "content=\"width=device-width\">\n<title>",
          out);
    tn_html_text(out, title);
    fprintf(out, "</title>\n<style>%s</style></head><body>\n", style);
}

void tn_html_end(FILE *out) { fputs("</body></html>\n", out); }
