/* The frame and the letters of an SVG. */
#include "report/chart/svg.h"

#include "report/chart/plot_axis.h"

#include <math.h>

static const char *const light[TN_SVG_STYLES] = { "#1f6feb", "#d9480f", "#1a7f37", "#a2349c",
                                                  "#b8860b", "#0b8a94", "#cf222e", "#57606a" };
static const char *const dark[TN_SVG_STYLES] = { "#6cb0ff", "#ff9a5c", "#56d37a", "#e08be0",
                                                 "#e3b341", "#4fd1d9", "#ff7b83", "#a8b3bf" };

void tn__svg_text(FILE *out, const char *s, size_t most)
{
    char c[5];
    const size_t n = tn__plot_columns(s);
    for (size_t i = 0; tn__plot_char(&s, c); i++) {
        if (n > most && i + 1 == most) {
            fputs("…", out);
            return;
        }
        fputs(*c == '<' ? "&lt;" : *c == '>' ? "&gt;" : *c == '&' ? "&amp;" : *c == '"' ? "&quot;" : c, out);
    }
}

void tn__svg_number(FILE *out, char before, double v)
{
    const long tenths = lround(v * 10);
    if (before) fputc(before, out);
    if (tenths < 0) fputc('-', out);
    const long size = tenths < 0 ? -tenths : tenths;
    if (size % 10 == 0) fprintf(out, "%ld", size / 10);
    else fprintf(out, "%ld.%ld", size / 10, size % 10);
}

void tn__svg_label(FILE *out, const char *class, double x, double y, const char *s, size_t most)
{
    fprintf(out, "<text class=\"%s\"", class);
    fputs(" x=\"", out), tn__svg_number(out, 0, x);
    fputs("\" y=\"", out), tn__svg_number(out, 0, y);
    fputs("\">", out);
    tn__svg_text(out, s, most);
    fputs("</text>\n", out);
}

static void put_style(FILE *out, size_t groups)
{
    const size_t used = groups < TN_SVG_STYLES ? groups : TN_SVG_STYLES;
    fputs("<style>text{font:12px system-ui,-apple-system,\"Segoe UI\",\"DejaVu Sans\",Helvetica,Arial,sans-serif}"
          ".h{font-size:15px;font-weight:600}.e{text-anchor:end}.c{text-anchor:middle}"
          "path{fill:none;stroke-width:1.75;stroke-linejoin:round;stroke-linecap:round}line{stroke-width:1}.p{stroke-"
          "width:1;opacity:.4}\n"
          ".b{fill:#fff}.t{fill:#1f2328}.m{fill:#656d76}.g{stroke:#e4e8ec}.a{stroke:#9aa4ae}",
          out);
    for (size_t i = 0; i < used; i++) fprintf(out, ".s%zu{stroke:%s}.n%zu{fill:%s}", i, light[i], i, light[i]);
    fputs("\n@media(prefers-color-scheme:dark){.b{fill:#0d1117}.t{fill:#e6edf3}.m{fill:#9198a1}.g{stroke:#242b33}.a{"
          "stroke:#656d76}",
          out);
    for (size_t i = 0; i < used; i++) fprintf(out, ".s%zu{stroke:%s}.n%zu{fill:%s}", i, dark[i], i, dark[i]);
    fputs("}</style>\n", out);
}

void tn__svg_begin(FILE *out, int width, int height, const char *title, size_t groups)
{
    fprintf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\">\n",
        width, height, width, height);
    fputs("<title>", out);
    tn__svg_text(out, title, 200);
    fputs("</title>\n", out);
    put_style(out, groups);
    fprintf(out, "<rect class=\"b\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n", width, height);
}

void tn__svg_heading(FILE *out, const char *title)
{
    if (title) tn__svg_label(out, "h t", 20, 29, title, 80);
}

void tn__svg_end(FILE *out) { fputs("</svg>\n", out); }
