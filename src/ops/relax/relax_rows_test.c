/* Between relax's tiles and rows: columns from rows and back, and the sums over rows that gradients are, for sizes that leave rests. */
#include "ops/relax/relax_cpu.h"
#include "testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { W = TN_RELAX_LANES };

static float *numbers(int64_t n, float step)
{
    float *x = malloc(sizeof *x * (size_t)n);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = sinf(step * (float)(i + 1));
    return x;
}

/* n rows of k become columns of a tile and rows again; nothing else is written. */
static void check_columns(int n, int k)
{
    const int width = tn_relax_width(n), apart = k + 3;
    float *from = numbers(n * apart, 0.7f), *tile = numbers(k * width + 1, 0.3f), *to = numbers(n * apart, 0.1f);
    float *before = numbers(n * apart, 0.1f);
    const float *rows[W];
    float *back[W];
    for (int l = 0; l < n; l++) rows[l] = from + (n - 1 - l) * apart, back[l] = to + (n - 1 - l) * apart;
    tile[k * width] = 77;
    tn_relax_gather(tile, width, rows, n, k);
    for (int i = 0; i < k; i++)
        for (int l = 0; l < width; l++)
            if (tile[i * width + l] != (l < n ? rows[l][i] : 0))
                fail_msg("%d rows of %d: number %d of row %d", n, k, i, l);
    assert_true(tile[k * width] == 77.f);
    tn_relax_scatter(tile, width, back, n, k);
    for (int l = 0; l < n; l++) {
        assert_memory_equal(back[l], rows[l], sizeof(float) * (size_t)k);
        assert_memory_equal(back[l] + k, before + (back[l] + k - to), sizeof(float) * (size_t)(apart - k));
    }
    free(from), free(tile), free(to), free(before);
}

static void columns_and_rows(void **state)
{
    (void)state;
    for (int n = 1; n <= W; n++)
        for (int k = 1; k <= 21; k++) check_columns(n, k);
}

/* c = or += factor sum_b x_b y_b^T, rows further apart than they are long, against sums in double. */
static void check_outer(int rows, int m, int n, bool add)
{
    const int x_row = m + 5, y_row = n + 16;
    float *x = numbers(rows * x_row, 1.3f), *y = numbers(rows * y_row, 0.9f), *c = numbers(m * n, 0.2f),
          *old = numbers(m * n, 0.2f);
    const tn_relax_outer o = {
        .x = x, .y = y, .x_row = x_row, .y_row = y_row, .c = c, .rows = rows, .m = m, .n = n, .factor = 0.5f, .add = add
    };
    assert_true(tn__relax_outer_fits(m, n));
    tn__relax_outer_rows(&o, 0, 4);
    tn__relax_outer_rows(&o, 4, m);
    for (int i = 0; i < m; i++)
        for (int k = 0; k < n; k++) {
            double sum = add ? (double)old[i * n + k] : 0, size = 1;
            for (int b = 0; b < rows; b++) {
                const double term = 0.5 * (double)x[b * x_row + i] * (double)y[b * y_row + k];
                sum += term, size += fabs(term);
            }
            if (!(fabs((double)c[i * n + k] - sum) <= 1e-6 * size))
                fail_msg("%d rows, (%d,%d), element (%d,%d): %.9g instead of %.9g", rows, m, n, i, k,
                         (double)c[i * n + k], sum);
        }
    free(x), free(y), free(c), free(old);
}

static void outer_products(void **state)
{
    (void)state;
    static const int sizes[][3] = { { 1, 8, 16 },    { 3, 12, 32 },    { 128, 64, 256 },
                                    { 130, 20, 48 }, { 300, 256, 64 }, { 5, 24, 112 } };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int add = 0; add < 2; add++) check_outer(sizes[i][0], sizes[i][1], sizes[i][2], add);
}

/* In double and in the order of the rows, to the last bit: products of floats are exact there. */
static void check_sums(int rows, int count, bool pairs)
{
    const int n = count + 7;
    float *x = numbers(rows * n, 1.1f), *y = numbers(rows * n, 0.4f);
    double *got = malloc(sizeof *got * (size_t)count);
    assert_non_null(got);
    tn__relax_columns(x, pairs ? y : NULL, rows, n, count, got);
    for (int i = 0; i < count; i++) {
        double sum = 0;
        for (int b = 0; b < rows; b++) sum += (double)x[b * n + i] * (pairs ? (double)y[b * n + i] : 1);
        if (memcmp(&sum, &got[i], sizeof sum) != 0)
            fail_msg("%d rows, column %d of %d: %.17g instead of %.17g", rows, i, count, got[i], sum);
    }
    free(x), free(y), free(got);
}

static void column_sums(void **state)
{
    (void)state;
    static const int counts[] = { 1, 2, 15, 16, 17, 40, 63, 64 };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int rows = 1; rows <= 131; rows += 65)
            check_sums(rows, counts[i], false), check_sums(rows, counts[i], true);
}

void tn_tests_relax_rows(tn_test_list *l)
{
    tn_test_add(l, columns_and_rows, NULL, "relax: columns from rows, and back");
    tn_test_add(l, outer_products, NULL, "relax: outer products summed over rows");
    tn_test_add(l, column_sums, NULL, "relax: columns summed over rows");
}
