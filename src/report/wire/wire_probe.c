/* Ridge regression by its normal equations, and the numbers of a message and a question that it sees. */
#include "report/wire/wire_probe.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "base/status.h"
#include "report/answers.h"
#include "report/wire/rows.h"

#include <math.h>
#include <string.h>

enum { MOST_FLAT = 256, MOST_NUMBERS = 512, WORDS = 64, PRODUCTS = 256, SHRINKS = 4 };

const char *const tn_wire_probe_names[TN_PROBES] = { "message", "question", "both" };

/* --- ridge ----------------------------------------------------------------------------------------------------------------- */

/* A = L L^T in place, lower half; false: it is not positive definite. */
static bool cholesky(double *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = a[i * n + j];
            for (int64_t k = 0; k < j; k++) sum -= a[i * n + k] * a[j * n + k];
            if (i == j && !(sum > 0)) return false;
            a[i * n + j] = i == j ? sqrt(sum) : sum / a[j * n + j];
        }
    return true;
}

static void solve(const double *l, int64_t n, double *b)
{
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < i; k++) b[i] -= l[i * n + k] * b[k];
        b[i] /= l[i * n + i];
    }
    for (int64_t i = n; i-- > 0;) {
        for (int64_t k = i + 1; k < n; k++) b[i] -= l[k * n + i] * b[k];
        b[i] /= l[i * n + i];
    }
}

/* X^T X and X^T Y of rows with a constant behind them. */
static void products(const float *x, const int32_t *y, int64_t n, int64_t d, double *a, double *w)
{
    const int64_t D = d + 1;
    for (int64_t r = 0; r < n; r++) {
        const float *row = x + r * d;
        for (int64_t i = 0; i < D; i++) {
            const double xi = i < d ? row[i] : 1;
            if (xi == 0) continue;
            for (int64_t j = 0; j <= i; j++) a[i * D + j] += xi * (j < d ? row[j] : 1);
            w[y[r] * D + i] += xi;
        }
    }
}

tn_status tn_ridge_fit(const float *x, const int32_t *y, int64_t n, int64_t d, int64_t classes, double shrink,
                       double *w)
{
    const int64_t D = d + 1;
    double trace = 0, *a = tn_alloc(sizeof *a * (size_t)(D * D));
    if (!a) return TN_MEMORY;
    memset(a, 0, sizeof *a * (size_t)(D * D));
    memset(w, 0, sizeof *w * (size_t)(classes * D));
    products(x, y, n, d, a, w);
    for (int64_t i = 0; i < d; i++) trace += a[i * D + i];
    for (int64_t i = 0; i < d; i++) a[i * D + i] += shrink * (trace / (double)d) + 1e-12;
    const bool ok = cholesky(a, D);
    for (int64_t k = 0; ok && k < classes; k++) solve(a, D, w + k * D);
    tn_free(a);
    return ok ? TN_OK : tn_error(TN_DIVERGED, "a probe cannot be fitted: messages are not finite");
}

int32_t tn_ridge_class(const double *w, const float *x, int64_t d, int64_t classes)
{
    int32_t best = 0;
    double most = -INFINITY;
    for (int64_t k = 0; k < classes; k++) {
        double sum = w[k * (d + 1) + d];
        for (int64_t i = 0; i < d; i++) sum += w[k * (d + 1) + i] * x[i];
        if (sum > most) most = sum, best = (int32_t)k;
    }
    return best;
}

static double accuracy(const double *w, const float *x, const int32_t *y, int64_t n, int64_t d, int64_t classes)
{
    int64_t right = 0;
    for (int64_t i = 0; i < n; i++) right += tn_ridge_class(w, x + i * d, d, classes) == y[i];
    return n ? (double)right / (double)n : NAN;
}

/* --- examples -------------------------------------------------------------------------------------------------------------- */

/* All answers of a split: what each probe sees, and the class. */
typedef struct examples {
    float *x;   /* (n, d): message, words of the question, products */
    int32_t *y; /* (n) */
    size_t x_room, y_room;
    int64_t n;
} examples;

typedef struct probing {
    tn_session *s;
    tn_wire_golds golds;
    int64_t slots, width, numbers, d; /* numbers: of a message that are seen */
    tn_text label[TN_PROBE_CLASSES];
    int64_t classes;
    bool many; /* more classes than a probe has */
    examples train, test;
} probing;

/* Of a message all numbers, or where these are many the mean over its slots, in which wide slots are folded. */
static void see_message(const probing *p, const float *z, float *x)
{
    const bool flat = p->numbers == p->slots * p->width;
    for (int64_t i = 0; i < p->numbers; i++) x[i] = 0;
    for (int64_t i = 0; i < p->slots * p->width; i++)
        x[flat ? i : i % p->width % p->numbers] += flat ? z[i] : z[i] / (float)p->slots;
}

/* Its words, each counted in one of WORDS places with a sign by its hash. */
static tn_status see_question(tn_answer question, float *x)
{
    tn_text text = { 0 };
    for (int i = 0; i < WORDS; i++) x[i] = 0;
    TN_RETURN_IF(tn_answer_normalize(question.text, question.bytes, &text));
    for (size_t at = 0, end; at < text.n; at = end + 1) {
        const char *blank = memchr(text.data + at, ' ', text.n - at);
        uint64_t h = 1469598103934665603u; /* FNV-1a */
        end = blank ? (size_t)(blank - text.data) : text.n;
        for (size_t i = at; i < end; i++) h = (h ^ (unsigned char)text.data[i]) * 1099511628211u;
        x[h % WORDS] += (h >> 32) & 1 ? 1.f : -1.f;
    }
    tn_text_free(&text);
    return TN_OK;
}

/* Products of a number of the message and a word's place, drawn once. */
static void see_products(const probing *p, const float *z, const float *q, float *x)
{
    const tn_rng r = { 1, tn_rng_stream("wire.probe") };
    for (int64_t i = 0; i < PRODUCTS; i++)
        x[i] = z[tn_rng_below(r, (uint64_t)(2 * i), (uint64_t)p->numbers)] *
               q[tn_rng_below(r, (uint64_t)(2 * i + 1), WORDS)];
}

static tn_status class_of(probing *p, tn_answer gold, int32_t *out)
{
    for (int32_t k = 0; k < p->classes; k++)
        if (p->label[k].n == gold.bytes && memcmp(p->label[k].data, gold.text, gold.bytes) == 0) return *out = k, TN_OK;
    if ((p->many = p->classes == TN_PROBE_CLASSES)) return *out = 0, TN_OK;
    tn_text *to = &p->label[p->classes];
    void *data = to->data;
    TN_RETURN_IF(tn_grow(&data, &to->capacity, gold.bytes + 1, 1));
    to->data = data;
    memcpy(to->data, gold.text, to->n = gold.bytes);
    *out = (int32_t)p->classes++;
    return TN_OK;
}

static tn_status add_context(probing *p, int split, int64_t context, const float *z, examples *to)
{
    p->golds.split = split;
    TN_RETURN_IF(tn_wire_golds_read(&p->golds, context));
    for (int64_t q = 0; q < p->golds.n; q++) {
        tn_answer gold[1];
        void *x = to->x, *y = to->y;
        TN_RETURN_IF(tn_grow(&x, &to->x_room, (size_t)((to->n + 1) * p->d), sizeof *to->x));
        to->x = x;
        TN_RETURN_IF(tn_grow(&y, &to->y_room, (size_t)(to->n + 1), sizeof *to->y));
        to->y = y;
        float *row = to->x + to->n * p->d;
        (void)tn_wire_golds_of(&p->golds, q, gold, 1);
        TN_RETURN_IF(class_of(p, gold[0], &to->y[to->n]));
        see_message(p, z, row);
        TN_RETURN_IF(see_question(tn_wire_golds_question(&p->golds, q), row + p->numbers));
        see_products(p, row, row + p->numbers, row + p->numbers + WORDS);
        to->n++;
    }
    return TN_OK;
}

/* Training texts in their order, through the encoder. */
static tn_status add_training(probing *p, int64_t most, tn_wire_stop *stop, void *ctx)
{
    tn_status s = TN_OK;
    tn_source source = { .ctx = NULL };
    int64_t before = 0;
    const int64_t each = p->slots * p->width;
    TN_TRY(tn_session_heldout(p->s, TN_TRAIN, &source));
    for (int64_t i = 0, count; before < most && !p->many; i++) {
        int64_t n;
        tn_dtype type;
        if (stop) TN_TRY(stop(ctx));
        TN_TRY(tn_source_heldout(&source, i, p->s->trainer, &count));
        if (!count) break;
        TN_TRY(tn_trainer_run_step(p->s->trainer, "encode"));
        const float *z = tn_trainer_step_output(p->s->trainer, "encode", "z", &type, &n);
        if (!z || n != p->s->batch * each) TN_FAIL(TN_INTERNAL, "step encode: z has another shape");
        const int64_t rows = tn_wire_valid(p->s);
        for (int64_t k = 0; k < rows; k++) TN_TRY(add_context(p, TN_TRAIN, before + k, z + k * each, &p->train));
        before += rows;
    }
done:
    tn_source_close(&source);
    return s;
}

/* --- fitting --------------------------------------------------------------------------------------------------------------- */

/* Columns from .. from + d of all examples. */
static float *columns(const probing *p, const examples *e, int64_t from, int64_t d)
{
    float *x = tn_alloc(sizeof *x * (size_t)(e->n * d + 1));
    for (int64_t i = 0; x && i < e->n; i++) memcpy(x + i * d, e->x + i * p->d + from, sizeof *x * (size_t)d);
    return x;
}

/* The shrinkage that is best on the last fifth of the training answers, fitted on the others; then all of them. */
static tn_status fit(const probing *p, int64_t from, int64_t d, double *out)
{
    static const double shrinks[SHRINKS] = { 1e-4, 1e-2, 1, 100 };
    tn_status s = TN_OK;
    const int64_t n = p->train.n, first = n - n / 5, C = p->classes;
    float *train = columns(p, &p->train, from, d), *test = columns(p, &p->test, from, d);
    double best = -1, shrink = shrinks[0], *w = tn_alloc(sizeof *w * (size_t)(C * (d + 1)));
    if (!train || !test || !w) TN_FAIL(TN_MEMORY, "out of memory for a probe");
    for (int k = 0; k < SHRINKS && n / 5; k++) {
        TN_TRY(tn_ridge_fit(train, p->train.y, first, d, C, shrinks[k], w));
        const double right = accuracy(w, train + first * d, p->train.y + first, n / 5, d, C);
        if (right > best) best = right, shrink = shrinks[k];
    }
    TN_TRY(tn_ridge_fit(train, p->train.y, n, d, C, shrink, w));
    *out = accuracy(w, test, p->test.y, p->test.n, d, C);
done:
    tn_free(train);
    tn_free(test);
    tn_free(w);
    return s;
}

static tn_status measure(const probing *p, tn_wire_probe *out)
{
    int64_t count[TN_PROBE_CLASSES] = { 0 }, most = 0, right = 0;
    *out = (tn_wire_probe){ .done = true, .classes = p->classes, .fitted = p->train.n, .n = p->test.n };
    TN_RETURN_IF(fit(p, 0, p->numbers, &out->accuracy[TN_PROBE_MESSAGE]));
    TN_RETURN_IF(fit(p, p->numbers, WORDS, &out->accuracy[TN_PROBE_QUESTION]));
    TN_RETURN_IF(fit(p, 0, p->d, &out->accuracy[TN_PROBE_BOTH]));
    for (int64_t i = 0; i < p->train.n; i++) count[p->train.y[i]]++;
    for (int64_t k = 1; k < p->classes; k++)
        if (count[k] > count[most]) most = k;
    for (int64_t i = 0; i < p->test.n; i++) right += p->test.y[i] == most;
    out->frequent = (double)right / (double)p->test.n;
    return TN_OK;
}

static void release(probing *p)
{
    tn_wire_golds_free(&p->golds);
    for (int k = 0; k < TN_PROBE_CLASSES; k++) tn_text_free(&p->label[k]);
    tn_free(p->train.x);
    tn_free(p->train.y);
    tn_free(p->test.x);
    tn_free(p->test.y);
}

tn_status tn_wire_probe_run(tn_session *session, const tn_wire_controls *c, int split, int64_t most, tn_wire_stop *stop,
                            void *ctx, tn_wire_probe *out)
{
    tn_status s = TN_OK;
    probing p = { .s = session, .slots = c->slots, .width = c->width };
    const int64_t all = c->slots * c->width;
    p.numbers = all <= MOST_FLAT ? all : c->width < MOST_NUMBERS ? c->width : MOST_NUMBERS;
    p.d = p.numbers + WORDS + PRODUCTS;
    *out = (tn_wire_probe){ .done = false };
    if (split == TN_TRAIN) return TN_OK; /* it is fitted there */
    TN_TRY(tn_wire_golds_open(session, split, &p.golds));
    if (strcmp(p.golds.texts->task, "cls") != 0) goto done;
    TN_TRY(add_training(&p, most, stop, ctx));
    for (int64_t i = 0; i < c->contexts && !p.many; i++) TN_TRY(add_context(&p, split, i, c->z + i * all, &p.test));
    if (!p.many && p.train.n && p.test.n) TN_TRY(measure(&p, out));
done:
    release(&p);
    return s;
}
