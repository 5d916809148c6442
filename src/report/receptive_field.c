/* Measuring the effective context. Windows are read once; for each n a trainer on rows of n tokens scores all their
 * targets, so that losses are compared on the same labels. */
#include "report/receptive_field.h"

#include "base/alloc.h"
#include "report/at_context.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_ROWS = 256 }; /* of a batch: a short row still has a state of full size */

typedef struct windows {
    int64_t T, G, n;                       /* tokens of one that are given, of them scored; how many there are */
    int32_t *tokens;                       /* (n,T+1) */
    double *loss[TN_RECEPTIVE_FIELD_ROWS]; /* (n): sums over its targets, by n of the table */
} windows;

/* --- windows ------------------------------------------------------------------------------------------------------ */

/* Windows that a document holds, one every G tokens. */
static int64_t windows_of(uint64_t tokens, int64_t T, int64_t G)
{
    return (int64_t)tokens > T ? ((int64_t)tokens - T - 1) / G + 1 : 0;
}

static tn_status count_windows(const tn_receptive_field_options *o, int64_t G, int64_t *out)
{
    const uint64_t documents = tn_dataset_count(o->data, o->split).documents;
    uint64_t start, tokens, longest = 0;
    *out = 0;
    for (uint64_t d = 0; d < documents; d++) {
        TN_RETURN_IF(tn_dataset_document(o->data, o->split, d, &start, &tokens));
        *out += windows_of(tokens, o->whole, G);
        longest = tokens > longest ? tokens : longest;
    }
    if (*out > 0) return TN_OK;
    return tn_error(TN_USAGE,
                    "no held-out document has more than %lld tokens, the longest has %llu: use a shorter context",
                    (long long)o->whole, (unsigned long long)longest);
}

/* Every `stride`-th window of all, counted over the documents. */
static tn_status read_windows(const tn_receptive_field_options *o, int64_t stride, windows *w, int64_t *documents)
{
    int64_t seen = 0, made = 0;
    *documents = 0;
    for (uint64_t d = 0; made < w->n; d++) {
        uint64_t start, tokens;
        TN_RETURN_IF(tn_dataset_document(o->data, o->split, d, &start, &tokens));
        const int64_t here = windows_of(tokens, w->T, w->G), before = made;
        for (; made < w->n && made * stride < seen + here; made++)
            TN_RETURN_IF(tn_dataset_read(o->data, o->split, start + (uint64_t)((made * stride - seen) * w->G),
                                         (size_t)w->T + 1, w->tokens + made * (w->T + 1)));
        seen += here;
        *documents += made > before;
    }
    return TN_OK;
}

static tn_status open_windows(const tn_receptive_field_options *o, windows *w, tn_receptive_field *out)
{
    int64_t all;
    *w = (windows){ .T = o->whole, .G = o->whole / 8 };
    TN_RETURN_IF(count_windows(o, w->G, &all));
    const int64_t wanted = (o->targets + w->G - 1) / w->G;
    w->n = wanted < 1 ? 1 : wanted < all ? wanted : all;
    w->tokens = tn_alloc(sizeof *w->tokens * (size_t)(w->n * (w->T + 1)));
    if (!w->tokens) return TN_MEMORY;
    for (size_t i = 0; i < out->n; i++) {
        w->loss[i] = tn_alloc(sizeof **w->loss * (size_t)w->n);
        if (!w->loss[i]) return TN_MEMORY;
        memset(w->loss[i], 0, sizeof **w->loss * (size_t)w->n);
    }
    out->windows = w->n;
    out->targets = w->n * w->G;
    return read_windows(o, all / w->n, w, &out->documents);
}

static void close_windows(windows *w)
{
    tn_free(w->tokens);
    for (int i = 0; i < TN_RECEPTIVE_FIELD_ROWS; i++) tn_free(w->loss[i]);
}

/* --- one n -------------------------------------------------------------------------------------------------------- */

/* Row `part` of window `at` on n tokens, of which the last `scored` are targets not yet taken by parts before it. */
static void fill_row(const windows *w, int64_t at, int64_t part, int64_t n, int64_t scored, const tn_feed *f,
                     int64_t row)
{
    int32_t *tokens = (int32_t *)tn_feed_at(f, "tokens") + row * n,
            *labels = (int32_t *)tn_feed_at(f, "labels") + row * n;
    const int64_t last = w->T - 1 - part * scored, left = w->G - part * scored;
    const int32_t *from = w->tokens + at * (w->T + 1) + last - n + 1;
    memcpy(tokens, from, sizeof *tokens * (size_t)n);
    for (int64_t t = 0; t < n; t++) labels[t] = n - t <= (left < scored ? left : scored) ? from[t + 1] : -1;
}

static tn_status score(const tn_receptive_field_options *o, const windows *w, tn_trainer *t, int64_t n, double *loss)
{
    const tn_feed f = tn_trainer_feed(t);
    const int64_t scored = n < 8 ? 1 : n / 8, parts = (w->G + scored - 1) / scored, all = w->n * parts;
    tn_trainer_steady(t, true);
    for (int64_t first = 0; first < all; first += f.batch) {
        float mean;
        int64_t count;
        if (o->interrupted && o->interrupted(o->ctx))
            return tn_error(TN_INTERRUPTED, "interrupted while measuring the effective context");
        for (int64_t row = 0; row < f.batch; row++) {
            const int64_t i = first + row;
            if (i < all) fill_row(w, i / parts, i % parts, n, scored, &f, row);
            else tn_feed_pad_row(&f, row, 0);
        }
        TN_RETURN_IF(tn_trainer_eval(t, &mean));
        const float *nll = tn_trainer_output(t, "nll", &count); /* 0 where nothing is scored */
        if (!nll || count != f.batch * n) return tn_error(TN_INTERNAL, "the plan has no loss by label");
        for (int64_t i = 0; i < f.batch * n && first + i / n < all; i++)
            loss[(first + i / n) / parts] += (double)nll[i];
    }
    return TN_OK;
}

static tn_status measure(const tn_receptive_field_options *o, const windows *w, tn_receptive_field_row *r, double *loss)
{
    tn_at_context at = { 0 };
    int64_t rows = o->tokens / r->given;
    rows = rows < 1 ? 1 : rows > MOST_ROWS ? MOST_ROWS : rows;
    if (o->progress) o->progress(o->ctx, r->given);
    tn_status s = tn_at_context_open(&(tn_at_context_options){ .model = o->model,
                                                               .settings = o->settings,
                                                               .store = o->store,
                                                               .batch = rows,
                                                               .context = r->given,
                                                               .nll = true },
                                     &at);
    if (s == TN_OK) s = score(o, w, at.trainer, r->given, loss);
    tn_at_context_close(&at);
    if (r->given == o->whole || s != TN_USAGE) return s;
    snprintf(r->why, sizeof r->why, "%s", tn_error_text()); /* a length that it does not take */
    return TN_OK;
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

static void compare(const windows *w, const double *whole, const double *loss, tn_receptive_field_row *r)
{
    double sum = 0, more = 0, squares = 0;
    const double n = (double)w->n, G = (double)w->G;
    for (int64_t i = 0; i < w->n; i++) {
        sum += loss[i];
        more += loss[i] - whole[i];
    }
    r->loss = sum / (n * G);
    r->more = more / (n * G);
    for (int64_t i = 0; i < w->n; i++) squares += pow((loss[i] - whole[i]) / G - r->more, 2);
    r->error = w->n < 2 ? NAN : sqrt(squares / (n - 1) / n);
}

tn_status tn_receptive_field_measure(const tn_receptive_field_options *o, tn_receptive_field *out)
{
    tn_status s = TN_OK;
    windows w = { 0 };
    *out = (tn_receptive_field){ 0 };
    if (o->whole < 8)
        return tn_error(TN_USAGE, "measuring the effective context needs 8 tokens or more, not %lld",
                        (long long)o->whole);
    for (int64_t n = 1; n < o->whole && out->n < TN_RECEPTIVE_FIELD_ROWS - 1; n *= 2) out->row[out->n++].given = n;
    out->row[out->n++].given = o->whole;
    const size_t last = out->n - 1;
    TN_TRY(open_windows(o, &w, out));
    for (size_t i = out->n; i > 0; i--)
        TN_TRY(measure(o, &w, &out->row[i - 1], w.loss[i - 1])); /* the whole first: it may be refused */
    out->effective = o->whole;
    for (size_t i = out->n; i > 0; i--) {
        tn_receptive_field_row *r = &out->row[i - 1];
        if (r->why[0]) r->loss = r->more = r->error = NAN;
        else compare(&w, w.loss[last], w.loss[i - 1], r);
        if (r->more <= TN_RECEPTIVE_FIELD_TOLERANCE) out->effective = r->given;
    }
done:
    close_windows(&w);
    return s;
}
