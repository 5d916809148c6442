/* What a run of wire is judged by: answers that are said exactly, by each reader; and instruments that show a collapse, where all
 * messages are alike. */
#include "models/wire/wire.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct answers {
    const float *said;     /* (N,n-1) */
    const int32_t *labels; /* (N,n) */
    int64_t rows, n;
} answers;

/* Of reader x, or false: it is not there. */
static bool answers_of(const tn_metric_view *v, char x, answers *out)
{
    char said[16], labels[16];
    int64_t n_said = 0, n_labels = 0;
    snprintf(said, sizeof said, "%c.said", x);
    snprintf(labels, sizeof labels, "%c.labels", x);
    out->said = v->output(v->ctx, said, &n_said);
    out->labels = v->input(v->ctx, labels, &n_labels);
    if (!out->said || !out->labels) return false;
    const int64_t N = n_labels - n_said; /* rows: each has one label more than there are tokens to say */
    if (N < 1) return false;
    out->n = n_labels / N;
    const int64_t B_times_Q = N, Q = tn_settings_int(v->settings, "questions");
    out->rows = v->rows * (Q > 0 ? Q : 1);
    if (out->rows > B_times_Q) out->rows = B_times_Q;
    return true;
}

/* Of a row: whether it asks at all, whether its first token is said, and whether all are. */
static bool row_right(const answers *a, int64_t i, bool *first, bool *all)
{
    bool asked = false;
    *first = *all = true;
    for (int64_t t = 1; t < a->n; t++) {
        const int32_t label = a->labels[i * a->n + t];
        if (label < 0) continue;
        const bool right = (int32_t)a->said[i * (a->n - 1) + t - 1] == label;
        if (!asked) *first = right;
        *all = *all && right;
        asked = true;
    }
    return asked;
}

static void add_right(const tn_metric_view *v, char x, bool whole, double *sums)
{
    answers a;
    bool first, all;
    if (!answers_of(v, x, &a)) return;
    for (int64_t i = 0; i < a.rows; i++)
        if (row_right(&a, i, &first, &all)) sums[0] += whole ? all : first, sums[1] += 1;
}

static void add_em(const tn_metric_view *v, double *sums)
{
    for (char x = 'a'; x < 'a' + WIRE_READERS; x++) add_right(v, x, true, sums);
}
static void add_em_a(const tn_metric_view *v, double *sums) { add_right(v, 'a', true, sums); }
static void add_em_b(const tn_metric_view *v, double *sums) { add_right(v, 'b', true, sums); }
static void add_em_c(const tn_metric_view *v, double *sums) { add_right(v, 'c', true, sums); }
static void add_first_a(const tn_metric_view *v, double *sums) { add_right(v, 'a', false, sums); }
static void add_first_b(const tn_metric_view *v, double *sums) { add_right(v, 'b', false, sums); }
static void add_first_c(const tn_metric_view *v, double *sums) { add_right(v, 'c', false, sums); }

/* Tokens of the text that autoencoding says. */
static void add_text(const tn_metric_view *v, double *sums)
{
    for (char x = 'a'; x < 'a' + WIRE_READERS; x++) {
        char name[2][24];
        int64_t n_said = 0, n_labels = 0;
        snprintf(name[0], sizeof name[0], "%c.text_said", x);
        snprintf(name[1], sizeof name[1], "%c.text_labels", x);
        const float *said = v->output(v->ctx, name[0], &n_said);
        const int32_t *labels = v->input(v->ctx, name[1], &n_labels);
        const int64_t rows = n_labels - n_said;
        if (!said || !labels || rows < 1) continue;
        const int64_t n = n_labels / rows;
        for (int64_t i = 0; i < v->rows; i++)
            for (int64_t t = 1; t < n; t++)
                if (labels[i * n + t] >= 0)
                    sums[0] += (int32_t)said[i * (n - 1) + t - 1] == labels[i * n + t], sums[1] += 1;
    }
}

/* Different first tokens that reader a says, over different ones that it should. */
static void add_unique(const tn_metric_view *v, double *sums)
{
    answers a;
    if (!answers_of(v, 'a', &a)) return;
    for (int64_t i = 0; i < a.rows; i++) {
        bool new_said = true, new_label = true;
        int64_t t = 1;
        while (t < a.n && a.labels[i * a.n + t] < 0) t++;
        if (t == a.n) continue;
        for (int64_t k = 0; k < i; k++) {
            int64_t u = 1;
            while (u < a.n && a.labels[k * a.n + u] < 0) u++;
            if (u == a.n) continue;
            new_said &= a.said[k * (a.n - 1) + u - 1] != a.said[i * (a.n - 1) + t - 1];
            new_label &= a.labels[k * a.n + u] != a.labels[i * a.n + t];
        }
        sums[0] += new_said, sums[1] += new_label;
    }
}

static double length_of(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    return sqrt(sum);
}

/* Mean cosine of two messages of different texts; 1: all are alike. Of all pairs it is (|S|^2 - rows) / (rows (rows - 1)), S the sum of
 * the messages at unit length, whose square is taken coordinate by coordinate in blocks that fit a stack. */
static double cosine(const float *const *kept, int64_t rows, const int64_t *each, const tn_settings *st)
{
    enum { BLOCK = 256 };
    const int64_t n = each[0];
    double square = 0;
    (void)st;
    if (rows < 2) return NAN;
    for (int64_t k = 0; k < n; k += BLOCK) {
        double sum[BLOCK] = { 0 };
        const int64_t m = n - k < BLOCK ? n - k : BLOCK;
        for (int64_t i = 0; i < rows; i++) {
            const float *x = kept[0] + i * n;
            const double length = length_of(x, n);
            for (int64_t j = 0; j < m && length > 0; j++) sum[j] += x[k + j] / length;
        }
        for (int64_t j = 0; j < m; j++) square += sum[j] * sum[j];
    }
    return (square - (double)rows) / ((double)rows * (double)(rows - 1));
}

const tn_metric_row wire_metrics[WIRE_METRICS] = {
    { "loss", "nats", TN_LOWER, TN_MEAN_BY_COUNT, .key = "heldout" },
    { "em", "", TN_HIGHER, TN_ADDED, .add = add_em },
    { "em_a", "", TN_HIGHER, TN_ADDED, .add = add_em_a, .needs = "a.length" },
    { "em_b", "", TN_HIGHER, TN_ADDED, .add = add_em_b, .needs = "b.length" },
    { "em_c", "", TN_HIGHER, TN_ADDED, .add = add_em_c, .needs = "c.length" },
    { "first_a", "", TN_HIGHER, TN_ADDED, .add = add_first_a, .needs = "a.length" },
    { "first_b", "", TN_HIGHER, TN_ADDED, .add = add_first_b, .needs = "b.length" },
    { "first_c", "", TN_HIGHER, TN_ADDED, .add = add_first_c, .needs = "c.length" },
    { "text_accuracy", "", TN_HIGHER, TN_ADDED, .add = add_text },
    { "unique_first", "", TN_HIGHER, TN_ADDED, .add = add_unique, .needs = "a.length" },
    { "cosine", "", TN_LOWER, TN_OF_WHOLE, .keep = { "z" }, .whole = cosine },
};
