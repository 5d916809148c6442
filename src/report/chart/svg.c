/* SVG documents: head, text, numbers. */
#include "report/chart/svg.h"

#include <math.h>
#include <string.h>

void tn__svg_text(FILE *out, const char *s, size_t most)
{
    char c[5];
    const size_t n = tn__plot_columns(s), head = n > most ? most / 2 : n, tail = n > most && most ? most - head - 1 : 0;
    for (size_t i = 0; tn__plot_char(&s, c); i++) {
        if (i >= head && i < n - tail) {
            if (i == head) fputs("…", out);
            continue;
        }
        fputs(*c == '<' ? "&lt;" : *c == '>' ? "&gt;" : *c == '&' ? "&amp;" : *c == '"' ? "&quot;" : c, out);
    }
}

/* Widths in DejaVu Sans, the widest font of our list, rounded up; in pixels at 12 to the em. */
static double letter_width(const char *c)
{
    if (c[1]) return (unsigned char)c[0] >= 0xe3 ? 12.5 : 10; /* from U+3000 on: as wide as high */
    if (strchr("ijlI.,:;'| ", *c)) return 4.1;
    if (strchr("ftr()[]/\\-!\"J", *c)) return 5.6;
    if (strchr("mwMW@%", *c)) return 12.1;
    if (strchr("+=<>~#^&", *c)) return 10.1;
    if (*c >= 'A' && *c <= 'Z') return 9.5;
    return TN_SVG_LETTER;
}

double tn__svg_width(const char *s)
{
    char c[5];
    double sum = 0;
    while (tn__plot_char(&s, c)) sum += letter_width(c);
    return sum;
}

/* Both ends grow in turn until the next letter, or the ellipsis between them, has no room. */
size_t tn__svg_fit(const char *s, double width)
{
    enum { LONGEST = 256 };
    double w[LONGEST], sum = 12;
    char c[5];
    const size_t n = tn__plot_columns(s);
    if (n < LONGEST && tn__svg_width(s) <= width) return n;
    if (n >= LONGEST) return (size_t)fmin(fmax(width / 12.5, 1), LONGEST);
    for (size_t i = 0; tn__plot_char(&s, c); i++) w[i] = letter_width(c);
    size_t most = 1; /* the ellipsis */
    for (size_t head = 0, tail = 0; most < n; most++) {
        const bool front = (most + 1) / 2 > head; /* as tn__svg_text shares them */
        sum += front ? w[head] : w[n - 1 - tail];
        if (sum > width) break;
        if (front) head++;
        else tail++;
    }
    return most;
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

const char *tn__svg_value(double v, char out[16])
{
    static const char units[] = " kMGTP";
    int i = 0, decimals = 0;
    if (v != 0 && !(fabs(v) >= 1e-3 && fabs(v) < 9.995e17)) {
        snprintf(out, 16, "%.2e", v);
        return out;
    }
    for (; fabs(v) >= (i ? 999.5 : 9999.5); i++) v /= 1e3;
    for (double size = fabs(v); size > 0 && size < 99.95 && decimals < 5; size *= 10) decimals++;
    snprintf(out, 16, "%.*f%.*s", decimals, v, i > 0, &units[i]);
    return out;
}

void tn__svg_rect(FILE *out, double x, double y, double width, double height)
{
    const double v[] = { x, y, width, height };
    static const char *const names[] = { "x", "y", "width", "height" };
    for (int i = 0; i < 4; i++) {
        fprintf(out, " %s=\"", names[i]);
        tn__svg_number(out, 0, v[i]);
        fputc('"', out);
    }
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

void tn__svg_hint(FILE *out, const char *s)
{
    fputs("<title>", out);
    tn__svg_text(out, s, 200);
    fputs("</title>", out);
}

void tn__svg_begin(FILE *out, int width, int height, const char *title, const char *name, size_t groups)
{
    fprintf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\">\n",
        width, height, width, height);
    tn__svg_hint(out, title ? title : name);
    fputc('\n', out);
    tn__svg_rules(out, groups);
    fprintf(out, "<rect class=\"b\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n", width, height);
    if (title)
        tn__svg_label(out, "h t", 20, 29, title, tn__svg_fit(title, (width - 40) * 0.72)); /* it is larger, and bold */
}

void tn__svg_end(FILE *out) { fputs("</svg>\n", out); }
