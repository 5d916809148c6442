/* SVG documents, text, axes. */
#include "report/chart/svg.h"

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

void tn__svg_begin(FILE *out, int width, int height, const char *title, const char *name, size_t groups)
{
    fprintf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\">\n",
        width, height, width, height);
    fputs("<title>", out);
    tn__svg_text(out, title ? title : name, 200);
    fputs("</title>\n", out);
    put_style(out, groups);
    fprintf(out, "<rect class=\"b\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n", width, height);
    if (title) tn__svg_label(out, "h t", 20, 29, title, 80);
}

void tn__svg_end(FILE *out) { fputs("</svg>\n", out); }

/* --- axes --------------------------------------------------------------------------------------------------------- */

double tn__frame_x(const tn_frame *f, double place) { return f->left + place * (f->right - f->left); }
double tn__frame_y(const tn_frame *f, double place) { return f->bottom - place * (f->bottom - f->top); }

static void put_line(const tn_frame *f, const char *class, double x1, double y1, double x2, double y2)
{
    fprintf(f->out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>", class, x1, y1, x2, y2);
}

void tn__frame_axes(const tn_frame *f, const char *x_label, const char *y_label, bool y_ticks)
{
    for (int i = 0; y_ticks && i < f->y.ticks && !f->y.empty; i++) {
        const double y = tn__frame_y(f, f->y.at[i]);
        put_line(f, "g", f->left, y, f->right, y);
        tn__svg_label(f->out, "m e", f->left - 8, y + 4, f->y.label[i], 24);
    }
    put_line(f, "a", f->left, f->bottom, f->right, f->bottom);
    fputc('\n', f->out);
    for (int i = 0; i < f->x.ticks && !f->x.empty; i++) {
        const double x = tn__frame_x(f, f->x.at[i]);
        put_line(f, "a", x, f->bottom, x, f->bottom + 4);
        tn__svg_label(f->out, "m c", x, f->bottom + 18, f->x.label[i], 24);
    }
    if (x_label) {
        fprintf(f->out, "<text class=\"m e\" x=\"%.0f\" y=\"%.0f\">", f->right, f->bottom + 36);
        tn__svg_text(f->out, x_label, 80);
        fprintf(f->out, "%s</text>\n", f->x.log ? " (log scale)" : "");
    }
    if (y_label) {
        fprintf(f->out, "<text class=\"m\" x=\"20\" y=\"%.0f\">", f->top - 14);
        tn__svg_text(f->out, y_label, 60);
        fprintf(f->out, "%s</text>\n", f->y.log ? " (log scale)" : "");
    }
}

void tn__frame_names(const tn_frame *f, const char *const *names, size_t n)
{
    double x = f->right;
    for (size_t i = n; i-- > 0;) {
        if (!names || !names[i]) continue;
        char class[16];
        snprintf(class, sizeof class, "e n%zu", i % TN_SVG_STYLES);
        tn__svg_label(f->out, class, x, f->top - 14, names[i], 24);
        x -= 7.2 * fmin(24, (double)tn__plot_columns(names[i])) + 22;
        fprintf(f->out, "<circle class=\"n%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>\n", i % TN_SVG_STYLES, x + 11,
                f->top - 18);
    }
}

tn_status tn__frame_done(const tn_frame *f)
{
    tn__svg_end(f->out);
    return ferror(f->out) ? tn_error(TN_DISK, "the chart could not be written") : TN_OK;
}
