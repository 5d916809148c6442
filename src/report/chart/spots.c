/* Thinning of points by cells. */
#include "report/chart/spots.h"

#include <math.h>
#include <stdlib.h>

static int by_cell(const void *a, const void *b)
{
    const tn_spot *p = a, *q = b;
    if (p->group != q->group) return p->group < q->group ? -1 : 1;
    if (p->row != q->row) return p->row < q->row ? -1 : 1;
    if (p->column != q->column) return p->column < q->column ? -1 : 1;
    return p->i < q->i ? -1 : p->i > q->i;
}

static bool is_same_cell(const tn_spot *p, const tn_spot *q)
{
    return p->group == q->group && p->row == q->row && p->column == q->column;
}

size_t tn__spots_thin(tn_spot *v, size_t n, double pixels, size_t most)
{
    for (double cell = pixels;; cell *= 1.25) {
        size_t kept = 0;
        for (size_t i = 0; i < n; i++) v[i].row = lround(v[i].y / cell), v[i].column = lround(v[i].x / cell);
        qsort(v, n, sizeof *v, by_cell);
        for (size_t i = 0; i < n; i++)
            if (!kept || !is_same_cell(&v[kept - 1], &v[i])) v[kept++] = v[i];
        n = kept;
        if (n <= most || cell > 1000) return n < most ? n : most;
    }
}

/* A dot is a line of no length with a round end, so that all are one path. */
void tn__spots_put(FILE *out, const tn_spot *v, size_t n, const char *class, double size)
{
    fprintf(out, "<path class=\"%s\" style=\"stroke-width:%.0f\" d=\"", class, size);
    for (size_t i = 0; i < n; i++) {
        tn__svg_number(out, 'M', v[i].x);
        tn__svg_number(out, ' ', v[i].y);
        fputs("h0", out);
    }
    fputs("\"/>\n", out);
}
