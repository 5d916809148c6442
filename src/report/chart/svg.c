/* SVG documents, text, axes. */
#include "report/chart/svg.h"

#include <math.h>

/* Chosen so that any two differ also to a reader who sees no red, green or blue (OKLab distance of at least 0.1 under
 * each simulated deficiency), and stand out from the background with a contrast of at least 3. */
static const char *const light[TN_SVG_STYLES] = { "#1450d2", "#f0560a", "#0a9fa6", "#a81467", "#111827", "#7a4a00" };
static const char *const dark[TN_SVG_STYLES] = { "#3585ff", "#ff6d1f", "#1fd9d2", "#c274b8", "#fbfdff", "#ffcb1f" };

void tn__svg_dash(FILE *out, size_t style)
{
    static const char *const dashes[] = { "7 5", "2 4", "10 4 2 4" };
    const size_t n = style / TN_SVG_STYLES, known = sizeof dashes / sizeof *dashes;
    if (!n) return;
    if (n <= known) fprintf(out, " stroke-dasharray=\"%s\"", dashes[n - 1]);
    else fprintf(out, " stroke-dasharray=\"%zu 4 2 4 2 4\"", 10 + 4 * (n - known));
}

void tn__svg_text(FILE *out, const char *s, size_t most)
{
    char c[5];
    const size_t n = tn__plot_columns(s), head = n > most ? most / 2 : n, tail = n > most ? most - head - 1 : 0;
    for (size_t i = 0; tn__plot_char(&s, c); i++) {
        if (i >= head && i < n - tail) {
            if (i == head) fputs("…", out);
            continue;
        }
        fputs(*c == '<' ? "&lt;" : *c == '>' ? "&gt;" : *c == '&' ? "&amp;" : *c == '"' ? "&quot;" : c, out);
    }
}

void tn__svg_number(FILE *out, char before, double v)
{
    const long tenths = lround(10 * fmin(fmax(v, -1e6), 1e6)); /* what is not finite lies far outside */
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
          "path{fill:none;stroke-width:1.75;stroke-linejoin:round;stroke-linecap:round}line{stroke-width:1}.k{stroke-"
          "width:2}.p{stroke-width:1;opacity:.4}\n"
          ".b{fill:#fff}.t{fill:#1f2328}.m{fill:#656d76}.g{stroke:#e4e8ec}.a{stroke:#9aa4ae}",
          out);
    for (size_t i = 0; i < used; i++) fprintf(out, ".s%zu{stroke:%s}.n%zu{fill:%s}", i, light[i], i, light[i]);
    fputs("\n@media(prefers-color-scheme:dark){.p{opacity:.6}.b{fill:#0d1117}.t{fill:#e6edf3}.m{fill:#9198a1}.g{stroke:"
          "#242b33}.a{"
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
    for (int i = 0; y_ticks && i < f->y.minors && !f->y.empty; i++) {
        const double y = tn__frame_y(f, f->y.minor[i]);
        put_line(f, "a", f->left, y, f->left + 4, y);
    }
    put_line(f, "a", f->left, f->bottom, f->right, f->bottom);
    for (int i = 0; i < f->x.minors && !f->x.empty; i++) {
        const double x = tn__frame_x(f, f->x.minor[i]);
        put_line(f, "a", x, f->bottom - 4, x, f->bottom);
    }
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

enum { NAMES_LEFT = 20, NAMES_TOP = 52, NAMES_ROW = 18, NAME_COLUMNS = 32 };

static double name_width(const char *name) { return 7.4 * fmin(NAME_COLUMNS, (double)tn__plot_columns(name)) + 32; }

/* Where the next name begins: behind the one before it, or in a new row. */
static void next_name(const char *name, double right, double *x, int *row)
{
    if (*x > NAMES_LEFT && *x + name_width(name) > right) *x = NAMES_LEFT, ++*row;
}

double tn__names_height(const char *const *names, size_t n, double width)
{
    double x = NAMES_LEFT;
    int row = 0;
    for (size_t i = 0; names && i < n; i++) {
        if (!names[i]) continue;
        next_name(names[i], width - NAMES_LEFT, &x, &row);
        x += name_width(names[i]);
    }
    return x > NAMES_LEFT ? NAMES_ROW * (row + 1) : 0;
}

void tn__frame_names(const tn_frame *f, const char *const *names, size_t n)
{
    double x = NAMES_LEFT;
    int row = 0;
    for (size_t i = 0; names && i < n; i++) {
        if (!names[i]) continue;
        next_name(names[i], f->right, &x, &row);
        const double y = NAMES_TOP + NAMES_ROW * row;
        fprintf(f->out, "<circle class=\"n%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>", i % TN_SVG_STYLES, x + 4, y - 4);
        tn__svg_label(f->out, "t", x + 13, y, names[i], NAME_COLUMNS);
        x += name_width(names[i]);
    }
}

tn_status tn__frame_done(const tn_frame *f)
{
    tn__svg_end(f->out);
    return ferror(f->out) ? tn_error(TN_DISK, "the chart could not be written") : TN_OK;
}
