/* Fills a planned batch with tokens, on any thread, without a lock. */
#include "data/loader_parts.h"

#include "base/rng.h"

#include <string.h>

/* One row and how far it is filled. */
typedef struct row {
    int32_t *tokens, *targets, *reset; /* (width) */
    int64_t at, width;
} row;

static row row_of(const tn_batch_memory *m, int64_t b, int64_t width)
{
    return (row){ m->tokens + b * width, m->targets + b * width, m->reset + b * width, 0, width };
}

static void pad(row *r)
{
    const size_t bytes = (size_t)(r->width - r->at) * sizeof(int32_t);
    memset(r->tokens + r->at, 0, bytes);
    memset(r->reset + r->at, 0, bytes);
    memset(r->targets + r->at, -1, bytes);
    r->at = r->width;
}

/* n positions of a document (start, tokens) from `offset` on. */
static tn_status put(const tn_walk *w, row *r, uint64_t start, uint64_t tokens, uint64_t offset, int64_t n)
{
    int32_t *x = r->tokens + r->at, *y = r->targets + r->at;
    TN_RETURN_IF(tn_dataset_read(w->data, w->split, start + offset, (size_t)n, x));
    memcpy(y, x + 1, (size_t)(n - 1) * sizeof *y);
    y[n - 1] = w->eot;
    if (offset + (uint64_t)n < tokens)
        TN_RETURN_IF(tn_dataset_read(w->data, w->split, start + offset + (uint64_t)n, 1, &y[n - 1]));
    memset(r->reset + r->at, 0, (size_t)n * sizeof *r->reset);
    if (offset == 0 || r->at == 0) r->reset[r->at] = 1;
    r->at += n;
    return TN_OK;
}

/* T positions from g on, into the next epoch where one ends. */
static tn_status fill_pack_row(const tn_walk *w, const tn_segment *g, row *r, int64_t *count)
{
    uint64_t epoch = g->epoch, index = g->index, offset = g->offset, start, tokens;
    tn_order order = tn_order_of(w->counts.documents, !w->evaluate, w->seed, epoch);
    while (r->at < w->T && index < w->counts.documents) {
        TN_RETURN_IF(tn_dataset_document(w->data, w->split, tn_order_at(&order, index), &start, &tokens));
        const uint64_t n = w->eot >= 0 ? tokens : tokens - 1, left = n > offset ? n - offset : 0;
        const int64_t take = left < (uint64_t)(w->T - r->at) ? (int64_t)left : w->T - r->at;
        if (take) TN_RETURN_IF(put(w, r, start, tokens, offset, take));
        *count += take;
        offset = 0;
        if (++index < w->counts.documents || w->evaluate) continue;
        index = 0;
        order = tn_order_of(w->counts.documents, true, w->seed, ++epoch);
    }
    return TN_OK;
}

static tn_status fill_pack(const tn_walk *w, const tn_loader_plan *plan, const tn_batch_memory *m, int64_t *count)
{
    for (int64_t b = 0; b < w->B; b++) {
        row r = row_of(m, b, w->T);
        if (b < plan->rows_n) TN_RETURN_IF(fill_pack_row(w, &plan->rows[b], &r, count));
        pad(&r);
    }
    return TN_OK;
}

static tn_status fill_bucket(const tn_walk *w, const tn_loader_plan *plan, const tn_batch_memory *m, int64_t *count)
{
    for (int64_t b = 0; b < w->B; b++) {
        row r = row_of(m, b, plan->width);
        if (b < plan->rows_n) {
            const tn_segment *g = &plan->rows[b];
            uint64_t start, tokens;
            TN_RETURN_IF(tn_dataset_document(w->data, w->split, g->document, &start, &tokens));
            TN_RETURN_IF(put(w, &r, start, tokens, g->offset, g->length));
            *count += g->length;
        }
        pad(&r);
    }
    return TN_OK;
}

/* T positions from anywhere in the split; a document may begin inside. */
static tn_status fill_window_row(const tn_walk *w, row *r, uint64_t at, int64_t *count)
{
    uint64_t document, start, tokens;
    const int64_t T = r->width;
    TN_RETURN_IF(tn_dataset_read(w->data, w->split, at, (size_t)T, r->tokens));
    memcpy(r->targets, r->tokens + 1, (size_t)(T - 1) * sizeof *r->targets);
    TN_RETURN_IF(tn_dataset_read(w->data, w->split, at + (uint64_t)T, 1, &r->targets[T - 1]));
    memset(r->reset, 0, (size_t)T * sizeof *r->reset);
    r->reset[0] = 1;
    *count += T;
    TN_RETURN_IF(tn_dataset_find(w->data, w->split, at, &document));
    for (;; document++) { /* each document that ends inside the window or right behind it */
        TN_RETURN_IF(tn_dataset_document(w->data, w->split, document, &start, &tokens));
        const uint64_t end = start + tokens - at;
        if (end > (uint64_t)T) return TN_OK;
        if (end < (uint64_t)T) r->reset[end] = 1;
        if (w->eot < 0) { /* else the next document begins with it, and so the target stands there already */
            r->targets[end - 1] = -1;
            --*count;
        }
        if (document + 1 == w->counts.documents) return TN_OK;
    }
}

static uint64_t window_at(const tn_walk *w, const tn_loader_plan *plan, int64_t b)
{
    const tn_rng rng = { .seed = w->seed, .stream = tn_rng_stream("batch") };
    return tn_rng_below(rng, plan->start.step * (uint64_t)w->B + (uint64_t)b, w->counts.tokens - (uint64_t)w->T);
}

static tn_status fill_window(const tn_walk *w, const tn_loader_plan *plan, const tn_batch_memory *m, int64_t *count)
{
    for (int64_t b = 0; b < w->B; b++) {
        row r = row_of(m, b, w->T);
        TN_RETURN_IF(fill_window_row(w, &r, window_at(w, plan, b), count));
    }
    return TN_OK;
}

static tn_status fill_samples(const tn_walk *w, const tn_loader_plan *plan, const tn_batch_memory *m, int64_t *count)
{
    tn_loader_cursor c = plan->start;
    const int64_t n = tn_dataset_about(w->data)->sample;
    tn_order order = tn_order_of(w->counts.documents, !w->evaluate, w->seed, c.epoch);
    for (int64_t b = 0; b < w->B; b++) {
        float *x = m->features + b * n;
        if (c.index >= w->counts.documents) { /* the end of an evaluation */
            memset(x, 0, (size_t)n * sizeof *x);
            m->labels[b] = -1;
            continue;
        }
        TN_RETURN_IF(tn_dataset_sample(w->data, w->split, tn_order_at(&order, c.index), w->scale, x, &m->labels[b]));
        ++*count;
        if (++c.index < w->counts.documents || w->evaluate) continue;
        c.index = 0;
        order = tn_order_of(w->counts.documents, true, w->seed, ++c.epoch);
    }
    return TN_OK;
}

tn_status tn__loader_fill(const tn_walk *w, const tn_loader_plan *plan, const tn_batch_memory *m, int64_t *count)
{
    *count = 0;
    if (tn_dataset_about(w->data)->kind == TN_SHARD_ARRAYS) return fill_samples(w, plan, m, count);
    if (w->mode == TN_LOADER_BUCKET) return fill_bucket(w, plan, m, count);
    return w->mode == TN_LOADER_PACK ? fill_pack(w, plan, m, count) : fill_window(w, plan, m, count);
}

tn_status tn__loader_row(const tn_walk *w, const tn_loader_plan *plan, int64_t b, uint64_t *document, uint64_t *offset)
{
    uint64_t start, tokens;
    if (w->mode == TN_LOADER_WINDOW) {
        const uint64_t at = window_at(w, plan, b);
        TN_RETURN_IF(tn_dataset_find(w->data, w->split, at, document));
        TN_RETURN_IF(tn_dataset_document(w->data, w->split, *document, &start, &tokens));
        *offset = at - start;
        return TN_OK;
    }
    const tn_segment *g = &plan->rows[b];
    const tn_order order = tn_order_of(w->counts.documents, !w->evaluate, w->seed, g->epoch);
    *document = w->mode == TN_LOADER_BUCKET ? g->document : tn_order_at(&order, g->index);
    *offset = g->offset;
    return TN_OK;
}
