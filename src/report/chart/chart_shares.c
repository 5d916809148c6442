/* Parts of a whole as bars, the largest first, each with its value and percentage. */
#include "base/alloc.h"
#include "report/chart/chart.h"
#include "report/chart/svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 720, ROW = 24, NAME_WIDTH = 240, TEXT_WIDTH = 150, ROWS_MOST = 30 };

typedef struct row {
    const char *name;
    double value;
    size_t i;
    bool rest; /* of several, or not named: grey */
} row;

static int largest_first(const void *a, const void *b)
{
    const row *p = a, *q = b;
    if (p->value != q->value) return p->value > q->value ? -1 : 1;
    return p->i < q->i ? -1 : 1;
}

static void write_share(double part, char out[24])
{
    if (part > 0 && part < 0.0005) snprintf(out, 24, "<0.1 %%");
    else snprintf(out, 24, "%.*f %%", part < 0.0995 ? 1 : 0, 100 * part);
}

static void put_row(const tn_shares *c, const tn_frame *f, const row *r, size_t at, double largest, double whole)
{
    const double y = f->top + (double)(at * ROW), width = largest > 0 ? r->value / largest * (f->right - f->left) : 0;
    char number[16], share[24], text[96];
    tn__svg_label(f->out, r->rest ? "m e" : "t e", f->left - 8, y + 16, r->name, tn__svg_fit(r->name, NAME_WIDTH));
    fputs("<rect", f->out);
    if (r->rest) fputs(" class=\"m\"", f->out);
    else tn__svg_fill(f->out, 0, "");
    tn__svg_rect(f->out, f->left, y + 4, fmax(width, 0.5), ROW - 8);
    fputc('>', f->out);
    tn__svg_hint(f->out, r->name);
    fputs("</rect>", f->out);
    write_share(whole > 0 ? r->value / whole : 0, share);
    snprintf(text, sizeof text, "%s · %s %.40s", share, tn__svg_value(r->value, number), c->unit ? c->unit : "");
    tn__svg_label(f->out, "m", f->left + fmax(width, 0.5) + 8, y + 16, text, tn__svg_fit(text, TEXT_WIDTH));
}

/* The rows to draw: the largest, then one for all others, then what no part accounts for. Returns how many. */
static size_t take_rows(const tn_shares *c, row *v, char others[48], double *whole)
{
    size_t n = 0, shown;
    double sum = 0, beyond = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (!isfinite(c->value[i]) || c->value[i] < 0) continue;
        v[n++] = (row){ c->names[i], c->value[i], i, false };
        sum += c->value[i];
    }
    qsort(v, n, sizeof *v, largest_first);
    shown = n > ROWS_MOST ? ROWS_MOST - 1 : n;
    for (size_t i = shown; i < n; i++) beyond += v[i].value;
    *whole = c->whole > 0 && isfinite(c->whole) ? c->whole : sum;
    if (n > shown) {
        snprintf(others, 48, "%zu others", n - shown);
        v[shown++] = (row){ others, beyond, 0, true };
    }
    if (n && *whole > sum * 1.0005) v[shown++] = (row){ "rest", *whole - sum, 0, true };
    return shown;
}

tn_status tn_chart_shares(const tn_shares *c, FILE *out)
{
    tn_status s = TN_OK;
    char others[48];
    double whole, widest = 0, largest = 0;
    row *v = tn_alloc(sizeof *v * (c->n + 2));
    if (!v) return TN_MEMORY;
    const size_t n = take_rows(c, v, others, &whole);
    if (!n) TN_FAIL(TN_USAGE, "shares need values that are not negative");
    for (size_t i = 0; i < n; i++) widest = fmax(widest, tn__svg_width(v[i].name)), largest = fmax(largest, v[i].value);
    const int top = c->title ? 48 : 16, height = top + (int)n * ROW + 16;
    const tn_frame f = { .out = out,
                         .width = WIDTH,
                         .left = 28 + fmin(widest, NAME_WIDTH),
                         .right = WIDTH - 26 - TEXT_WIDTH,
                         .top = top,
                         .bottom = height - 16 };
    tn__svg_begin(out, WIDTH, height, c->title, "shares", 1);
    for (size_t i = 0; i < n; i++) put_row(c, &f, &v[i], i, largest, whole);
    TN_TRY(tn__frame_done(&f));
done:
    tn_free(v);
    return s;
}
