/* Plans a batch: from a cursor to what the batch holds and the next cursor. Reads document tables, never tokens, so it
 * is quick enough to run under the lock; a batch depends on its cursor alone. */
#include "data/loader_parts.h"

#include <stdlib.h>

/* Places of a document that have a target. */
static uint64_t positions_of(const tn_walk *w, uint64_t tokens) { return w->eot >= 0 ? tokens : tokens - 1; }

/* Behind the last document the next epoch begins; an evaluation stays there. */
static void wrap(const tn_walk *w, tn_loader_cursor *c)
{
    if (c->index < w->counts.documents || w->evaluate) return;
    c->index = 0;
    c->epoch++;
}

/* Moves T positions on. */
static tn_status advance_row(const tn_walk *w, tn_loader_cursor *c)
{
    uint64_t want = (uint64_t)w->T, start, tokens;
    tn_order order = tn_order_of(w->counts.documents, !w->evaluate, w->seed, c->epoch);
    while (want && c->index < w->counts.documents) {
        const uint64_t epoch = c->epoch;
        TN_RETURN_IF(tn_dataset_document(w->data, w->split, tn_order_at(&order, c->index), &start, &tokens));
        const uint64_t n = positions_of(w, tokens), left = n > c->offset ? n - c->offset : 0;
        if (left > want) {
            c->offset += want;
            return TN_OK;
        }
        want -= left;
        c->offset = 0;
        c->index++;
        wrap(w, c);
        if (c->epoch != epoch) order = tn_order_of(w->counts.documents, !w->evaluate, w->seed, c->epoch);
    }
    /* The last row of an evaluation must not be one without targets. */
    while (w->evaluate && c->offset == 0 && c->index < w->counts.documents) {
        TN_RETURN_IF(tn_dataset_document(w->data, w->split, c->index, &start, &tokens));
        if (positions_of(w, tokens)) break;
        c->index++;
    }
    return TN_OK;
}

static void plan_samples(const tn_walk *w, tn_loader_cursor *c)
{
    for (int64_t b = 0; b < w->B && c->index < w->counts.documents; b++) {
        c->index++;
        wrap(w, c);
    }
}

/* --- windows of batches ----------------------------------------------------------------------------------------------------- */

int tn_loader_widths(int64_t T, int64_t widths[TN_LOADER_WIDTHS])
{
    const int64_t each = (T + TN_LOADER_WIDTHS - 1) / TN_LOADER_WIDTHS;
    int n = 0;
    for (int64_t width = each; width < T; width += each) widths[n++] = width;
    widths[n++] = T;
    return n;
}

static int shorter(const void *a, const void *b)
{
    const tn_segment *x = a, *y = b;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    if (x->document != y->document) return x->document < y->document ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static tn_status collect_rows(const tn_walk *w, tn_window *win, tn_loader_cursor *c)
{
    while (win->n < win->capacity && c->index < w->counts.documents) {
        win->v[win->n++] = (tn_segment){ .epoch = c->epoch, .index = c->index, .offset = c->offset };
        TN_RETURN_IF(advance_row(w, c));
    }
    return TN_OK;
}

/* Parts of documents, to the end of the epoch at most. */
static tn_status collect_parts(const tn_walk *w, tn_window *win, tn_loader_cursor *c)
{
    uint64_t start, tokens;
    const tn_order order = tn_order_of(w->counts.documents, !w->evaluate, w->seed, c->epoch);
    while (win->n < win->capacity && c->index < w->counts.documents) {
        const uint64_t document = tn_order_at(&order, c->index);
        TN_RETURN_IF(tn_dataset_document(w->data, w->split, document, &start, &tokens));
        const uint64_t n = positions_of(w, tokens), left = n > c->offset ? n - c->offset : 0;
        const int64_t take = left < (uint64_t)w->T ? (int64_t)left : w->T;
        if (take) win->v[win->n++] = (tn_segment){ .document = document, .offset = c->offset, .length = take };
        c->offset += (uint64_t)take;
        if (c->offset < n) continue;
        c->offset = 0;
        c->index++;
    }
    if (win->capacity > (size_t)w->B) qsort(win->v, win->n, sizeof *win->v, shorter);
    wrap(w, c);
    return TN_OK;
}

static tn_status load_window(tn_walk *w, const tn_loader_cursor *from)
{
    tn_window *win = &w->window;
    tn_loader_cursor c = *from;
    win->loaded = false;
    win->n = 0;
    win->start = c;
    TN_RETURN_IF(w->mode == TN_LOADER_PACK ? collect_rows(w, win, &c) : collect_parts(w, win, &c));
    c.batch = 0;
    win->end = c;
    win->loaded = true;
    return TN_OK;
}

static bool same_window(const tn_loader_cursor *a, const tn_loader_cursor *b)
{
    return a->epoch == b->epoch && a->index == b->index && a->offset == b->offset;
}

/* Batch number c->batch of the window: the rows of pack are shuffled one by one, those of bucket by batches of like length. */
static void take_rows(const tn_walk *w, const tn_loader_cursor *c, tn_loader_plan *plan)
{
    const tn_window *win = &w->window;
    const bool by_row = w->mode == TN_LOADER_PACK;
    const uint64_t B = (uint64_t)w->B, batches = (win->n + B - 1) / B, units = by_row ? win->n : batches;
    const bool shuffled = !w->evaluate && win->capacity > (size_t)B;
    const tn_order order = tn_order_of(units, shuffled, w->seed ^ c->epoch, c->index + 1);
    const uint64_t first = by_row ? c->batch * B : tn_order_at(&order, c->batch) * B;
    int64_t longest = 1, widths[TN_LOADER_WIDTHS];
    plan->rows_n = 0;
    for (uint64_t i = first; i < win->n && i < first + B; i++) {
        const tn_segment *g = &win->v[by_row ? tn_order_at(&order, i) : i];
        plan->rows[plan->rows_n++] = *g;
        longest = g->length > longest ? g->length : longest;
    }
    if (by_row) return;
    const int64_t *width = widths;
    tn_loader_widths(w->T, widths);
    while (*width < longest) width++;
    plan->width = *width;
}

static tn_status plan_rows(tn_walk *w, tn_loader_cursor *c, tn_loader_plan *plan)
{
    const tn_window *win = &w->window;
    const uint64_t step = c->step, B = (uint64_t)w->B;
    if (!win->loaded || !same_window(&win->start, c)) TN_RETURN_IF(load_window(w, c));
    if (win->n == 0) { /* documents without targets to the end of the epoch */
        *c = win->end;
        c->step = step;
        plan->is_end = w->evaluate;
        return w->evaluate ? TN_OK : plan_rows(w, c, plan);
    }
    const uint64_t batches = (win->n + B - 1) / B;
    if (c->batch >= batches)
        return tn_error(TN_BAD_FILE,
                        "the data position to resume from does not fit the data; the checkpoint is damaged");
    take_rows(w, c, plan);
    if (++c->batch == batches) {
        *c = win->end;
        c->step = step;
    }
    return TN_OK;
}

tn_status tn__loader_plan(tn_walk *w, tn_loader_cursor *at, tn_loader_plan *plan)
{
    tn_loader_cursor c = *at;
    plan->start = c;
    plan->width = w->T;
    plan->is_end = w->evaluate && c.index >= w->counts.documents;
    if (plan->is_end) return TN_OK;
    if (tn_dataset_about(w->data)->kind == TN_SHARD_ARRAYS) plan_samples(w, &c);
    else if (w->mode != TN_LOADER_WINDOW) TN_RETURN_IF(plan_rows(w, &c, plan));
    if (!plan->is_end) c.step++;
    plan->after = c;
    *at = c;
    return TN_OK;
}
