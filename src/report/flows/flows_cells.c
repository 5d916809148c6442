/* Surfaces as coloured cells. All cells of a colour are one path, runs of a row one rectangle: a digit takes about 3 kB. */
#include "report/flows/flows_cells.h"

#include "base/alloc.h"

#include <math.h>
#include <string.h>

enum { LEAST_PIXELS = 2 }; /* of a cell */

int tn__flow_bin(double value, double scale)
{
    if (!isfinite(value)) return -1;
    const double x = value / scale * TN_FLOW_ZERO;
    return TN_FLOW_ZERO + (x >= TN_FLOW_ZERO ? TN_FLOW_ZERO : x <= -TN_FLOW_ZERO ? -TN_FLOW_ZERO : (int)lround(x));
}

typedef struct colour {
    int r, g, b;
} colour;

static colour mixed(colour a, colour b, double t)
{
    return (colour){ (int)lround(a.r + t * (b.r - a.r)), (int)lround(a.g + t * (b.g - a.g)),
                     (int)lround(a.b + t * (b.b - a.b)) };
}

/* Both ends differ from each other in lightness too where one is mixed with the background; no pair is red and green. */
static void put_ramp(FILE *out, bool dark)
{
    const colour low = dark ? (colour){ 90, 165, 255 } : (colour){ 20, 80, 210 },
                 high = dark ? (colour){ 255, 178, 62 } : (colour){ 196, 64, 6 },
                 cell = dark ? (colour){ 24, 30, 38 } : (colour){ 241, 243, 246 },
                 line = dark ? (colour){ 84, 94, 106 } : (colour){ 186, 194, 203 };
    for (int i = 0; i < TN_FLOW_BINS; i++) {
        const double t = fabs((double)(i - TN_FLOW_ZERO)) / TN_FLOW_ZERO;
        const colour end = i < TN_FLOW_ZERO ? low : high, f = mixed(cell, end, t), l = mixed(line, end, t);
        fprintf(out, ".f%d{fill:#%02x%02x%02x}.l%d{stroke:#%02x%02x%02x}", i, f.r, f.g, f.b, i, l.r, l.g, l.b);
    }
}

void tn__flow_style(FILE *out)
{
    fputs("<style>.l{stroke-width:1;opacity:.75}.v{stroke-width:1}.d{stroke-width:3.4}.z{font-size:11px}", out);
    put_ramp(out, false);
    fputs("\n@media(prefers-color-scheme:dark){", out);
    put_ramp(out, true);
    fputs("}</style>\n", out);
}

/* The mean of what is finite in a block. */
static double mean_of(const double *values, int64_t width, int64_t height, int64_t x, int64_t y, int64_t block)
{
    double sum = 0, n = 0;
    for (int64_t j = y; j < y + block && j < height; j++)
        for (int64_t i = x; i < x + block && i < width; i++)
            if (isfinite(values[j * width + i])) sum += values[j * width + i], n++;
    return n > 0 ? sum / n : NAN;
}

static void put_bin(FILE *out, const signed char *bins, int64_t columns, int64_t rows, int bin)
{
    bool any = false;
    for (int64_t y = 0; y < rows; y++)
        for (int64_t x = 0; x < columns; x++) {
            int64_t n = 0;
            while (x + n < columns && bins[y * columns + x + n] == bin) n++;
            if (!n) continue;
            if (!any) fprintf(out, "<path class=\"f%d\" d=\"", bin);
            fprintf(out, "M%lld %lldh%lldv1h-%lldz", (long long)x, (long long)y, (long long)n, (long long)n);
            any = true;
            x += n - 1;
        }
    if (any) fputs("\"/>\n", out);
}

tn_status tn__flow_cells(FILE *out, const double *values, int64_t width, int64_t height, double scale, double pixels,
                         tn_flow_affine to)
{
    const int64_t longer = width > height ? width : height;
    const int64_t most = (int64_t)(pixels / LEAST_PIXELS), block = (longer + most - 1) / most;
    const int64_t columns = (width + block - 1) / block, rows = (height + block - 1) / block;
    signed char *bins = tn_alloc((size_t)(columns * rows));
    if (!bins) return TN_MEMORY;
    for (int64_t y = 0; y < rows; y++)
        for (int64_t x = 0; x < columns; x++)
            bins[y * columns + x] =
                (signed char)tn__flow_bin(mean_of(values, width, height, x * block, y * block, block), scale);
    const double k = (double)block;
    fprintf(out, "<g shape-rendering=\"crispEdges\" transform=\"matrix(%.4g %.4g %.4g %.4g %.2f %.2f)\">\n",
            k * to.across_x, k * to.across_y, k * to.down_x, k * to.down_y, to.x0, to.y0);
    for (int i = 0; i < TN_FLOW_BINS; i++) put_bin(out, bins, columns, rows, i);
    fputs("</g>\n", out);
    tn_free(bins);
    return TN_OK;
}
