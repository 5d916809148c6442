/* How sentences are found and written. Each row looks for its own partner among those of AMONG rows, itself and the ones that follow
 * (behind the last comes the first), whatever the size of the held-out part. Equal ones count against it: surfaces that are all the
 * same have found nothing. */
#include "models/bridge/bridge.h"

#include "base/alloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 8, AMONG = 1000 };

static int64_t candidates(int64_t rows) { return rows < AMONG ? rows : AMONG; }

/* In a fixed order that a compiler can take side by side. */
static float dot(const float *a, const float *b, int64_t n)
{
    float lane[LANES] = { 0 }, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) lane[k] += a[i + k] * b[i + k];
    for (; i < n; i++) lane[0] += a[i] * b[i];
    for (int k = 0; k < LANES; k++) sum += lane[k];
    return sum;
}

/* The part of rows whose own partner is among the k that are most alike; NaN is like nothing. */
static double recall(const float *const *kept, int64_t rows, int64_t each, int64_t k)
{
    int64_t hits = 0;
    for (int64_t i = 0; i < rows; i++) {
        const float *a = kept[0] + i * each, own = dot(a, kept[1] + i * each, each);
        int64_t before = isnan(own) ? k : 0;
        for (int64_t j = 1; j < candidates(rows) && before < k; j++)
            before += !(dot(a, kept[1] + (i + j) % rows * each, each) < own);
        hits += before < k;
    }
    return (double)hits / (double)rows;
}

double bridge_recall_1(const float *const *kept, int64_t rows, const int64_t *each, const tn_settings *st)
{
    (void)st;
    return recall(kept, rows, each[0], 1);
}

double bridge_recall_10(const float *const *kept, int64_t rows, const int64_t *each, const tn_settings *st)
{
    (void)st;
    return recall(kept, rows, each[0], 10);
}

/* --- bags of words -------------------------------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Each row's different tokens in order, without 0, and their number. */
static void make_bags(const float *rows, int64_t n, int64_t each, float *bag, int64_t *size)
{
    for (int64_t i = 0; i < n; i++) {
        float *x = bag + i * each;
        int64_t m = 0;
        memcpy(x, rows + i * each, sizeof *x * (size_t)each);
        qsort(x, (size_t)each, sizeof *x, ascending);
        for (int64_t k = 0; k < each; k++)
            if (x[k] > 0 && (m == 0 || x[k] > x[m - 1])) x[m++] = x[k];
        size[i] = m;
    }
}

/* Cosine of two sets. */
static double overlap(const float *a, int64_t n, const float *b, int64_t m)
{
    int64_t both = 0;
    for (int64_t i = 0, k = 0; i < n && k < m;) {
        both += a[i] == b[k];
        if (a[i] < b[k]) i++;
        else if (a[i] > b[k]) k++;
        else i++, k++;
    }
    return n && m ? (double)both / sqrt((double)n * (double)m) : 0;
}

static double overlap_recall(const float *const *kept, int64_t rows, const int64_t *each, int64_t k)
{
    float *bag[2] = { tn_alloc(sizeof(float) * (size_t)(rows * each[0] + 1)),
                      tn_alloc(sizeof(float) * (size_t)(rows * each[1] + 1)) };
    int64_t *size = tn_alloc(sizeof *size * (size_t)(2 * rows + 1)), hits = 0;
    const bool ok = bag[0] && bag[1] && size;
    for (int s = 0; s < 2 && ok; s++) make_bags(kept[s], rows, each[s], bag[s], size + s * rows);
    for (int64_t i = 0; i < rows && ok; i++) {
        const float *a = bag[0] + i * each[0];
        const double own = overlap(a, size[i], bag[1] + i * each[1], size[rows + i]);
        int64_t before = 0;
        for (int64_t n = 1; n < candidates(rows) && before < k; n++) {
            const int64_t j = (i + n) % rows;
            before += overlap(a, size[i], bag[1] + j * each[1], size[rows + j]) >= own;
        }
        hits += before < k;
    }
    tn_free(bag[0]);
    tn_free(bag[1]);
    tn_free(size);
    return ok ? (double)hits / (double)rows : (double)NAN;
}

double bridge_overlap_1(const float *const *kept, int64_t rows, const int64_t *each, const tn_settings *st)
{
    (void)st;
    return overlap_recall(kept, rows, each, 1);
}

double bridge_overlap_10(const float *const *kept, int64_t rows, const int64_t *each, const tn_settings *st)
{
    (void)st;
    return overlap_recall(kept, rows, each, 10);
}

/* --- tokens ----------------------------------------------------------------------------------------------------------------- */

/* Words of hypotheses, and what stands behind each, that the decoder names when it has read those before. */
static void add_right(const tn_metric_view *v, const char *output, double *sums)
{
    int64_t n, lengths;
    const float *said = v->output(v->ctx, output, &n);
    const int32_t *text = v->input(v->ctx, "hypothesis", &n);
    const int32_t *length = v->input(v->ctx, "hypothesis_length", &lengths);
    if (!said || !text || !length) {
        sums[0] = NAN;
        return;
    }
    const int64_t T = n / lengths;
    for (int64_t i = 0; i < v->rows; i++)
        for (int64_t t = 0; length[i] && t <= length[i] && t < T; t++) {
            sums[0] += said[i * T + t] == (float)text[i * T + t];
            sums[1] += 1;
        }
}

void bridge_add_right(const tn_metric_view *v, double *sums) { add_right(v, "said", sums); }

void bridge_add_right_shuffled(const tn_metric_view *v, double *sums) { add_right(v, "said_shuffled", sums); }
