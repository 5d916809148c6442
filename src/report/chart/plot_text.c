/* A plot as text: fine dots (braille, 2 x 4 to a character) or one mark per series, axes, ticks and a legend.
 *
 * It does not ask the terminal anything: size, characters and colours are the caller's choice. Lines have no trailing
 * blanks, and none is wider than the width asked for. */
#include "base/alloc.h"
#include "report/chart/plot_axis.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Marks and colours by series; more series than colours get marks, letters behind the first eight. */
static const char *const marks_utf8[] = { "•", "×", "+", "o", "*", "#", "%", "@" };
static const char *const marks_ascii[] = { "*", "x", "+", "o", "#", "%", "@", "&" };
static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
static const char *const colours[] = { "36", "33", "35", "32", "31", "34", "95", "92" };
enum { STYLES = 8 };

typedef struct canvas {
    const tn_plot *p;
    FILE *out;
    int width, columns, rows; /* of the whole; of the field inside the axes */
    int label_width;
    int dots_x, dots_y;  /* dots per character: 2 x 4 in braille, else 1 x 1 */
    unsigned char *dots; /* (rows, columns) braille bits, or 1 */
    unsigned *owner;     /* (rows, columns) series that was drawn last */
    bool *ring;          /* (rows, columns) a ring stands there */
    size_t rings;
    tn_plot_axis x, y;
} canvas;

static void put_mark(const canvas *c, size_t series)
{
    if (c->dots_x == 2) fputs("━━", c->out);
    else if (series < STYLES) fputs((c->p->ascii ? marks_ascii : marks_utf8)[series], c->out);
    else fputc(letters[(series - STYLES) % (sizeof letters - 1)], c->out);
}

static void colour_on(const canvas *c, size_t series)
{
    if (c->p->colour) fprintf(c->out, "\x1b[%sm", colours[series % STYLES]);
}

static void colour_off(const canvas *c)
{
    if (c->p->colour) fputs("\x1b[0m", c->out);
}

/* Prints s in at most `most` columns, with a sign where it was cut; returns how many. */
static int put_text(const canvas *c, const char *s, int most)
{
    const bool cut = tn__plot_columns(s) > (size_t)(most > 0 ? most : 0);
    char ch[5];
    int n = 0;
    for (; n < most - cut && tn__plot_char(&s, ch); n++) fputs(c->p->ascii && ch[1] ? "?" : ch, c->out);
    if (!cut || most <= 0) return n;
    fputs(c->p->ascii ? "~" : "…", c->out);
    return n + 1;
}

static void put_spaces(const canvas *c, int n)
{
    if (n > 0) fprintf(c->out, "%*s", n, "");
}

static void dot(canvas *c, int x, int y, unsigned series)
{
    static const unsigned char braille[2][4] = { { 0x01, 0x02, 0x04, 0x40 }, { 0x08, 0x10, 0x20, 0x80 } };
    const int cell = y / c->dots_y * c->columns + x / c->dots_x;
    c->dots[cell] |= c->dots_x == 2 ? braille[x % 2][y % 4] : 1;
    c->owner[cell] = series;
}

static void draw_line(canvas *c, int x0, int y0, int x1, int y1, unsigned series)
{
    const int dx = x1 - x0, dy = y1 - y0, steps = abs(dx) > abs(dy) ? abs(dx) : abs(dy);
    for (int i = 1; i <= steps; i++)
        dot(c, x0 + (int)lround((double)dx * i / steps), y0 + (int)lround((double)dy * i / steps), series);
    if (steps == 0) dot(c, x1, y1, series);
}

/* Rows count downward, so y is turned over here, once. */
static int dot_row(const canvas *c, double place) { return (int)lround((1 - place) * (c->rows * c->dots_y - 1)); }
static int dot_column(const canvas *c, double place) { return (int)lround(place * (c->columns * c->dots_x - 1)); }

static void draw_series(canvas *c, unsigned k)
{
    const tn_series *s = &c->p->series[k];
    bool line = false;
    int x0 = 0, y0 = 0;
    for (size_t i = 0; i < s->n; i++) {
        double u, v;
        if (!tn__plot_point(&c->x, &c->y, s, i, &u, &v)) {
            line = false;
            continue;
        }
        const int x1 = dot_column(c, u), y1 = dot_row(c, v);
        draw_line(c, line ? x0 : x1, line ? y0 : y1, x1, y1, k);
        line = true, x0 = x1, y0 = y1;
    }
}

/* Above all lines. */
static void draw_ring(canvas *c, unsigned k)
{
    double u, v;
    if (!tn__plot_ring(&c->x, &c->y, &c->p->series[k], &u, &v)) return;
    const int x = dot_column(c, u), y = dot_row(c, v);
    dot(c, x, y, k);
    c->ring[y / c->dots_y * c->columns + x / c->dots_x] = true;
    c->rings++;
}

static void put_ring(const canvas *c) { fputs(c->p->ascii ? "O" : "○", c->out); }

static const char *tick_on_row(const canvas *c, int row)
{
    for (int i = 0; i < c->y.ticks; i++)
        if (dot_row(c, c->y.at[i]) / c->dots_y == row) return c->y.label[i];
    return NULL;
}

static void put_row(const canvas *c, int row)
{
    const unsigned char *dots = c->dots + row * c->columns;
    const unsigned *owner = c->owner + row * c->columns;
    const char *label = c->y.empty ? NULL : tick_on_row(c, row);
    const char *axis = c->p->ascii ? (label ? "+" : "|") : (label ? "┤" : "│");
    fprintf(c->out, "%*s %s", c->label_width, label ? label : "", axis);
    int last = c->columns - 1;
    while (last >= 0 && !dots[last]) last--;
    for (int i = 0; i <= last; i++) {
        const bool starts = dots[i] && (i == 0 || !dots[i - 1] || owner[i - 1] != owner[i]);
        const bool ends = dots[i] && (i == last || !dots[i + 1] || owner[i + 1] != owner[i]);
        if (starts) colour_on(c, owner[i]);
        if (!dots[i]) fputc(' ', c->out);
        else if (c->ring[row * c->columns + i]) put_ring(c);
        else if (c->dots_x == 2) /* U+2800 + bits */
            fprintf(c->out, "\xe2%c%c", 0xa0 + (dots[i] >> 6), 0x80 + (dots[i] & 0x3f));
        else put_mark(c, owner[i]);
        if (ends) colour_off(c);
    }
    fputc('\n', c->out);
}

static bool tick_on_column(const canvas *c, int column)
{
    for (int i = 0; i < c->x.ticks; i++)
        if (dot_column(c, c->x.at[i]) / c->dots_x == column) return true;
    return false;
}

static void put_x_axis(const canvas *c)
{
    const bool ascii = c->p->ascii;
    fprintf(c->out, "%*s %s", c->label_width, "", ascii ? "+" : "└");
    for (int i = 0; i < c->columns; i++)
        fputs(!c->x.empty && tick_on_column(c, i) ? (ascii ? "+" : "┬") : (ascii ? "-" : "─"), c->out);
    fputc('\n', c->out);
    int at = 0; /* columns written in this row */
    const int left = c->label_width + 2;
    for (int i = 0; i < c->x.ticks && !c->x.empty; i++) {
        const int n = (int)strlen(c->x.label[i]), middle = left + dot_column(c, c->x.label_at[i]) / c->dots_x;
        int start = middle - n / 2;
        if (start + n > c->width) start = c->width - n;
        if (start < at + (at ? 2 : 0)) continue; /* no room: the tick alone */
        put_spaces(c, start - at);
        fputs(c->x.label[i], c->out);
        at = start + n;
    }
    fputc('\n', c->out);
}

/* Where an entry of the legend begins that needs so many columns: behind the one before it, or in a new row. */
static int begin_entry(const canvas *c, int at, int need)
{
    const int left = c->label_width + 2;
    if (at > left && at + 3 + need > c->width) {
        fputc('\n', c->out);
        put_spaces(c, left);
        return left;
    }
    if (at == left) return left;
    put_spaces(c, 3);
    return at + 3;
}

static int put_entry(const canvas *c, int at, size_t k)
{
    const char *const name = c->p->series[k].name;
    const int mark = c->dots_x == 2 ? 2 : 1;
    at = begin_entry(c, at, mark + 1 + (int)tn__plot_columns(name)) + mark + 1;
    colour_on(c, k);
    put_mark(c, k);
    colour_off(c);
    fputc(' ', c->out);
    return at + put_text(c, name, c->width - at);
}

static int put_ring_entry(const canvas *c, int at)
{
    at = begin_entry(c, at, 2 + (int)tn__plot_columns(c->p->ring)) + 2;
    put_ring(c);
    fputc(' ', c->out);
    return at + put_text(c, c->p->ring, c->width - at);
}

/* "y label, log scale" over the axis and "x label" at the legend's right are words enough; names wrap by whole
 * entries. */
static void put_legend(const canvas *c)
{
    const tn_plot *p = c->p;
    int at = c->label_width + 2;
    put_spaces(c, at);
    for (size_t k = 0; k < p->count; k++) at = put_entry(c, at, k);
    if (c->rings && p->ring) at = put_ring_entry(c, at);
    const int x_label = p->x_label ? (int)tn__plot_columns(p->x_label) : 0;
    if (x_label > 0) {
        const char *const arrow = p->ascii ? "x: " : "→ ";
        const int width = x_label + (p->ascii ? 3 : 2);
        if (at + 3 + width > c->width) {
            fputc('\n', c->out);
            at = 0;
        }
        put_spaces(c, c->width > at + width ? c->width - at - width : 0);
        fputs(arrow, c->out);
        put_text(c, p->x_label, c->width - (p->ascii ? 3 : 2));
    }
    fputc('\n', c->out);
}

static void put_head(const canvas *c)
{
    const tn_plot *p = c->p;
    if (p->title) {
        put_text(c, p->title, c->width);
        fputc('\n', c->out);
    }
    if (p->y_label) {
        const char *const scale = p->log_y ? " (log scale)" : "";
        put_text(c, p->y_label, c->width - (int)strlen(scale));
        fprintf(c->out, "%s\n", scale);
    }
}

static tn_status make_canvas(canvas *c)
{
    const tn_plot *p = c->p;
    const int height = p->height ? p->height : 20;
    c->width = p->width ? p->width : 80;
    if (c->width < 32 || c->width > 4096 || height < 8 || height > 1024)
        return tn_error(TN_USAGE, "a plot of %d columns and %d rows: it needs 32..4096 columns and 8..1024 rows",
                        c->width, height);
    c->rows = height - 3 - (p->title ? 1 : 0) - (p->y_label ? 1 : 0);
    const bool fine = !p->ascii && (p->count == 1 || (p->colour && p->count <= STYLES));
    c->dots_x = fine ? 2 : 1;
    c->dots_y = fine ? 4 : 1;
    tn__plot_ranges(p, &c->x, &c->y);
    tn__plot_ticks(&c->y, &(tn_plot_room){ .length = c->rows - 1, .gap = c->rows < 9 ? 1 : 2, .most = c->rows / 3 });
    c->label_width = (int)tn__plot_label_columns(&c->y);
    c->columns = c->width - c->label_width - 2;
    tn__plot_ticks(&c->x, &(tn_plot_room){
                              .length = c->columns - 1, .letter = 1, .gap = 2, .over = 1, .most = c->width / 12 });
    const size_t cells = (size_t)c->rows * (size_t)c->columns;
    c->dots = tn_alloc(cells);
    c->owner = tn_alloc(cells * sizeof *c->owner);
    c->ring = tn_alloc(cells * sizeof *c->ring);
    return c->dots && c->owner && c->ring ? TN_OK : TN_MEMORY;
}

tn_status tn_plot_text(const tn_plot *p, FILE *out)
{
    tn_status s = TN_OK;
    canvas c = { .p = p, .out = out };
    TN_TRY(tn__plot_check(p));
    TN_TRY(make_canvas(&c));
    for (unsigned k = 0; k < p->count; k++) draw_series(&c, k);
    for (unsigned k = 0; k < p->count; k++) draw_ring(&c, k);
    put_head(&c);
    for (int r = 0; r < c.rows; r++) put_row(&c, r);
    put_x_axis(&c);
    put_legend(&c);
    if (ferror(out)) TN_FAIL(TN_DISK, "the plot could not be written");
done:
    tn_free(c.dots);
    tn_free(c.owner);
    tn_free(c.ring);
    return s;
}
