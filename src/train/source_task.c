/* Samples as batches. The order of an epoch is a function of the seed and the epoch's number, so that epoch and place are
 * the whole cursor. The cursor also holds what the samples are: a run is not continued on others. */
#include "train/source_task.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "train/feed.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct task_source {
    tn_source_task_options o;
    char hash[TN_HASH_BYTES]; /* of the samples and their splits */
    int64_t epoch, next;      /* the next row is order[next] of this epoch */
    int64_t batches;          /* handed out */
    int64_t rows;             /* of the last one */
    int64_t shown;            /* rows of the held-out part handed out */
    int32_t *order;           /* (training samples): places in index[TN_TRAIN] */
} task_source;

int64_t tn_source_task_batches(const tn_samples *set, int64_t batch) { return (set->count[TN_TRAIN] + batch - 1) / batch; }

/* --- batches ------------------------------------------------------------------------------------------------------------ */

static void shuffle(task_source *s)
{
    const tn_rng r = { s->o.seed, tn_rng_stream("task.order") + (uint64_t)s->epoch };
    const int64_t n = s->o.samples->count[TN_TRAIN];
    for (int64_t i = 0; i < n; i++) s->order[i] = (int32_t)i;
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t k = (int64_t)tn_rng_below(r, (uint64_t)i, (uint64_t)i + 1);
        const int32_t x = s->order[i];
        s->order[i] = s->order[k];
        s->order[k] = x;
    }
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static tn_status source_next(void *ctx, tn_trainer *to, int64_t *count)
{
    task_source *s = ctx;
    const tn_samples *set = s->o.samples;
    const tn_feed f = tn_trainer_feed(to);
    if (s->next == set->count[TN_TRAIN]) {
        s->epoch++;
        s->next = 0;
        shuffle(s);
    }
    const int64_t n = smaller(s->o.batch, set->count[TN_TRAIN] - s->next);
    *count = 0;
    for (int64_t b = 0; b < n; b++) {
        const int32_t which = s->order[s->next + b];
        *count += tn_feed_sample(&f, b, set, set->index[TN_TRAIN][which], which);
    }
    tn_feed_end(&f, n);
    s->next += n;
    s->rows = n;
    s->batches++;
    return TN_OK;
}

/* A batch without a label that counts would look like the end. */
static tn_status source_heldout(void *ctx, int64_t i, tn_trainer *to, int64_t *count)
{
    task_source *s = ctx;
    const tn_samples *set = s->o.samples;
    const tn_feed f = tn_trainer_feed(to);
    const int64_t all = set->count[s->o.heldout];
    if (i == 0) s->shown = 0;
    *count = 0;
    while (s->shown < all && *count == 0) {
        const int64_t n = smaller(s->o.batch, all - s->shown);
        for (int64_t b = 0; b < n; b++) *count += tn_feed_sample(&f, b, set, set->index[s->o.heldout][s->shown + b], 0);
        tn_feed_end(&f, n);
        s->shown += n;
    }
    return TN_OK;
}

/* --- the cursor --------------------------------------------------------------------------------------------------------- */

static tn_status hash_samples(const tn_samples *set, char hash[TN_HASH_BYTES])
{
    const int64_t shape[] = { set->n, set->tokens, set->features, set->labels, set->classes };
    const size_t numbers = (size_t)(set->n * set->tokens * set->features);
    tn_hash *h;
    TN_RETURN_IF(tn_hash_begin(&h));
    tn_hash_add(h, shape, sizeof shape);
    if (set->x_u8) tn_hash_add(h, set->x_u8, numbers);
    else tn_hash_add(h, set->x_f32, sizeof *set->x_f32 * numbers);
    tn_hash_add(h, set->y, sizeof *set->y * (size_t)(set->n * set->labels));
    for (int k = 0; k < TN_SPLITS; k++) {
        tn_hash_add(h, &set->count[k], sizeof set->count[k]);
        tn_hash_add(h, set->index[k], sizeof *set->index[k] * (size_t)set->count[k]);
    }
    tn_hash_text(h, hash);
    tn_hash_free(h);
    return TN_OK;
}

static json_t *source_save(void *ctx)
{
    const task_source *s = ctx;
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "kind", "task", "data", s->hash, "batches", (json_int_t)s->batches,
                     "epoch", (json_int_t)s->epoch, "next", (json_int_t)s->next, "rows", (json_int_t)s->o.batch, "seed",
                     (json_int_t)s->o.seed, "train", (json_int_t)s->o.samples->count[TN_TRAIN]);
}

static int64_t number_of(const json_t *cursor, const char *key) { return json_integer_value(json_object_get(cursor, key)); }

static tn_status source_load(void *ctx, const json_t *cursor)
{
    task_source *s = ctx;
    const char *kind = json_string_value(json_object_get(cursor, "kind")), *data = json_string_value(json_object_get(cursor, "data"));
    int64_t epoch, next, batches;
    if (!kind || strcmp(kind, "task") != 0)
        return tn_error(TN_USAGE, "the run was not trained on a task: give it the same data, or start over with --fresh");
    if (!data || strcmp(data, s->hash) != 0)
        return tn_error(TN_USAGE, "the samples of the task, or their splits, are not those the run began with: put the old files and "
                                  "task.* settings back, or start over with --fresh or run=OTHER");
    if (number_of(cursor, "seed") != (int64_t)s->o.seed || number_of(cursor, "rows") != s->o.batch)
        return tn_error(TN_USAGE, "the run has seed=%lld and train.batch=%lld: set them so, or start over with --fresh",
                        (long long)number_of(cursor, "seed"), (long long)number_of(cursor, "rows"));
    TN_RETURN_IF(tn_cursor_count(cursor, "epoch", &epoch));
    TN_RETURN_IF(tn_cursor_count(cursor, "next", &next));
    TN_RETURN_IF(tn_cursor_count(cursor, "batches", &batches));
    if (next > s->o.samples->count[TN_TRAIN])
        return tn_error(TN_BAD_FILE, "the place in the samples is impossible: use another checkpoint");
    s->epoch = epoch;
    s->next = next;
    s->batches = batches;
    shuffle(s);
    return TN_OK;
}

/* --- a batch again -------------------------------------------------------------------------------------------------------- */

static void source_mark(void *ctx, tn_source_mark *out)
{
    const task_source *s = ctx;
    *out = (tn_source_mark){ { (uint64_t)s->epoch, (uint64_t)s->next, (uint64_t)s->batches } };
}

static tn_status source_back(void *ctx, const tn_source_mark *to)
{
    task_source *s = ctx;
    s->epoch = (int64_t)to->at[0];
    s->next = (int64_t)to->at[1];
    s->batches = (int64_t)to->at[2];
    shuffle(s);
    return TN_OK;
}

/* "batch 3 of epoch 1, sample 17 (row 4)", or "..., samples 17, 3, 90, 4 and 60 more" */
static void source_describe(void *ctx, int64_t row, char *buf, size_t bytes)
{
    enum { SHOWN = 8 };
    const task_source *s = ctx;
    const int32_t *order = s->order + s->next - s->rows;
    const int64_t shown = s->rows < SHOWN ? s->rows : SHOWN;
    size_t n = (size_t)snprintf(buf, bytes, "batch %lld, of epoch %lld, ", (long long)s->batches, (long long)s->epoch);
    if (row >= 0 && row < s->rows) {
        snprintf(buf + n, bytes - n, "sample %lld (row %lld)", (long long)s->o.samples->index[TN_TRAIN][order[row]], (long long)row);
        return;
    }
    for (int64_t i = 0; i < shown && n < bytes; i++)
        n += (size_t)snprintf(buf + n, bytes - n, "%s%lld", i ? ", " : "samples ", (long long)s->o.samples->index[TN_TRAIN][order[i]]);
    if (shown < s->rows && n < bytes) snprintf(buf + n, bytes - n, " and %lld more", (long long)(s->rows - shown));
}

/* --- opening ------------------------------------------------------------------------------------------------------------ */

static void source_close(void *ctx)
{
    task_source *s = ctx;
    tn_free(s->order);
    tn_free(s);
}

static int64_t counted_labels(const tn_samples *set)
{
    int64_t n = 0;
    for (int64_t i = 0; i < set->count[TN_TRAIN]; i++)
        for (int64_t k = 0; k < set->labels; k++) n += set->y[set->index[TN_TRAIN][i] * set->labels + k] >= 0;
    return n;
}

tn_status tn_source_task_open(const tn_source_task_options *o, tn_source *out)
{
    tn_status st = TN_OK;
    const int64_t n = o->samples->count[TN_TRAIN];
    if (n < 1 && !o->heldout_only)
        return tn_error(TN_USAGE, "the task has no samples to train on: make task.valid_frac and task.test_frac smaller");
    task_source *s = tn_alloc(sizeof *s);
    if (!s) return TN_MEMORY;
    *s = (task_source){ .o = *o };
    tn_source made = { .ctx = s, .mark = source_mark, .back = source_back, .describe = source_describe, .next = source_next, .heldout = source_heldout, .save = source_save, .load = source_load,
                       .close = source_close, .bits = NAN, .train_samples = (double)n, .train_tokens = (double)counted_labels(o->samples) };
    if (!o->heldout_only) {
        st = hash_samples(o->samples, s->hash);
        s->order = st == TN_OK ? tn_alloc(sizeof *s->order * (size_t)n) : NULL;
        if (s->order) shuffle(s);
        else if (st == TN_OK) st = TN_MEMORY;
    }
    if (st != TN_OK) source_close(s);
    else *out = made;
    return st;
}
