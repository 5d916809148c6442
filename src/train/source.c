/* A data set as a source: a loader with workers for training, one without for held-out batches. Batches are copied from the
 * loader's slot into the trainer's inputs. The cursor also holds what the data are, so that a run is not continued on
 * others. */
#include "train/source.h"

#include "base/alloc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct dataset_source {
    tn_source_options o;
    tn_loader *train, *heldout; /* NULL where there is none */
    int64_t of_step;            /* batches taken of the step at work */
    tn_loader_cursor step_at;   /* where it began */
    bool failed;                /* a batch of it could not be read */
} dataset_source;

/* --- batches --------------------------------------------------------------------------------------------------------- */

/* Where documents start, as attention and tables of positions want it: (T) each. */
static void mark_row(const int32_t *reset, int64_t T, int32_t *document, int32_t *positions)
{
    int32_t d = 0, p = 0;
    for (int64_t t = 0; t < T; t++, p++) {
        if (reset[t]) {
            d++;
            p = 0;
        }
        if (document) document[t] = d;
        if (positions) positions[t] = p;
    }
}

/* Rows narrower than the trainer's (which has no plan for every width) are padded: such tokens count nowhere, and nothing before them sees them. */
static void copy_row(const tn_loader_batch *b, int64_t row, const tn_feed *to)
{
    const int64_t T = to->length, W = b->width;
    const size_t bytes = (size_t)W * sizeof(int32_t);
    int32_t *tokens = to->tokens + row * T, *labels = to->labels + row * T;
    memcpy(tokens, b->tokens + row * W, bytes);
    memcpy(labels, b->targets + row * W, bytes);
    memset(tokens + W, 0, (size_t)(T - W) * sizeof *tokens);
    memset(labels + W, -1, (size_t)(T - W) * sizeof *labels);
    if (!to->reset && !to->document && !to->positions) return;
    int32_t *reset = to->reset ? to->reset + row * T : NULL;
    if (reset) memcpy(reset, b->reset + row * W, bytes);
    if (reset) memset(reset + W, 0, (size_t)(T - W) * sizeof *reset);
    mark_row(b->reset + row * W, W, to->document ? to->document + row * T : NULL,
             to->positions ? to->positions + row * T : NULL);
}

static tn_status take(tn_loader *l, tn_trainer *t, int64_t *count)
{
    const tn_loader_batch *b;
    TN_RETURN_IF(tn_loader_next(l, &b));
    *count = b ? b->count : 0;
    if (!b) return TN_OK;
    const tn_feed to = tn_trainer_feed_for(t, b->width);
    for (int64_t row = 0; row < b->rows; row++) copy_row(b, row, &to);
    return TN_OK;
}

static tn_status source_next(void *ctx, tn_trainer *to, int64_t *count)
{
    dataset_source *s = ctx;
    if (s->of_step == 0) s->step_at = tn_loader_position(s->train);
    const tn_status st = take(s->train, to, count);
    s->failed = st != TN_OK;
    if (!s->failed && ++s->of_step >= s->o.accumulate) s->of_step = 0;
    return st;
}

static tn_status source_heldout(void *ctx, int64_t i, tn_trainer *to, int64_t *count)
{
    dataset_source *s = ctx;
    *count = 0;
    if (!s->heldout) return TN_OK;
    if (i == 0) tn_loader_rewind(s->heldout);
    return take(s->heldout, to, count);
}

/* --- loaders --------------------------------------------------------------------------------------------------------- */

static tn_loader_options train_options(const tn_source_options *o)
{
    return (tn_loader_options){ .dataset = o->data, .split = TN_TRAIN, .batch = o->batch, .length = o->length, .mode = o->mode,
                                .seed = o->seed, .workers = o->workers, .depth = o->prefetch + 1 };
}

static tn_loader_options heldout_options(const tn_source_options *o)
{
    return (tn_loader_options){ .dataset = o->data, .split = o->heldout, .batch = o->batch, .length = o->length,
                                .mode = o->mode == TN_LOADER_BUCKET ? TN_LOADER_BUCKET : TN_LOADER_PACK, .evaluate = true };
}

static bool has_heldout(const tn_source_options *o)
{
    const tn_dataset_counts c = tn_dataset_count(o->data, o->heldout);
    return c.tokens > (tn_dataset_about(o->data)->eot < 0 ? c.documents : 0);
}

size_t tn_source_bytes(const tn_source_options *o)
{
    const tn_loader_options train = train_options(o), heldout = heldout_options(o);
    const size_t a = o->heldout_only ? 0 : tn_loader_bytes(&train), b = has_heldout(o) ? tn_loader_bytes(&heldout) : 0;
    size_t all;
    return tn_add_ok(a, b, &all) ? all : SIZE_MAX;
}

static tn_status open_train(dataset_source *s, const tn_loader_cursor *from)
{
    tn_loader *l = NULL;
    tn_loader_options how = train_options(&s->o);
    how.from = from;
    TN_RETURN_IF(tn_loader_open(&how, &l));
    tn_loader_free(s->train);
    s->train = l;
    s->of_step = 0;
    s->failed = false;
    return TN_OK;
}

static tn_status open_heldout(dataset_source *s)
{
    const tn_loader_options how = heldout_options(&s->o);
    return has_heldout(&s->o) ? tn_loader_open(&how, &s->heldout) : TN_OK;
}

/* --- the cursor ------------------------------------------------------------------------------------------------------ */

static json_t *source_save(void *ctx)
{
    const dataset_source *s = ctx;
    const tn_loader_cursor c = s->failed ? s->step_at : tn_loader_position(s->train);
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "kind", "dataset", "data",
                     tn_dataset_about(s->o.data)->fingerprint, "content", tn_dataset_about(s->o.data)->content, "batches", (json_int_t)c.step, "epoch", (json_int_t)c.epoch,
                     "index", (json_int_t)c.index, "offset", (json_int_t)c.offset, "batch", (json_int_t)c.batch, "seed",
                     (json_int_t)c.seed, "documents", (json_int_t)c.documents, "train", (json_int_t)c.tokens, "heldout",
                     (json_int_t)tn_dataset_count(s->o.data, s->o.heldout).tokens, "rows", (json_int_t)c.rows, "length",
                     (json_int_t)c.length, "mode", (json_int_t)c.mode);
}

tn_status tn_cursor_count(const json_t *cursor, const char *key, int64_t *out)
{
    const json_t *v = json_object_get(cursor, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > TN_CURSOR_MAX)
        return tn_error(TN_BAD_FILE, "the checkpoint's place in the data is impossible (%s is no count): use another checkpoint, or start "
                                     "over with --fresh", key);
    *out = json_integer_value(v);
    return TN_OK;
}

/* Of a key that was looked at. */
static uint64_t number_of(const json_t *cursor, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(cursor, key));
}

static tn_status check_counts(const json_t *cursor)
{
    static const char *const counts[] = { "batches", "epoch", "index", "offset", "batch", "documents", "train", "heldout", "rows",
                                          "length", "mode" };
    int64_t n;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) TN_RETURN_IF(tn_cursor_count(cursor, counts[i], &n));
    return TN_OK;
}

static tn_status check_same_data(const dataset_source *s, const json_t *cursor)
{
    const tn_dataset_info *info = tn_dataset_about(s->o.data);
    const char *was = json_string_value(json_object_get(cursor, "data"));
    const uint64_t train = tn_dataset_count(s->o.data, TN_TRAIN).tokens,
                   heldout = tn_dataset_count(s->o.data, s->o.heldout).tokens;
    if (number_of(cursor, "train") != train || number_of(cursor, "heldout") != heldout)
        return tn_error(TN_USAGE, "the text has %llu + %llu %s and had %llu + %llu when the run began: put the old text back, or "
                                  "start over with --fresh or run=OTHER", (unsigned long long)train, (unsigned long long)heldout,
                        info->item == TN_ITEM_U8 ? "bytes" : "tokens", (unsigned long long)number_of(cursor, "train"),
                        (unsigned long long)number_of(cursor, "heldout"));
    const char *content = json_string_value(json_object_get(cursor, "content"));
    if (content && content[0] && info->content[0]) { /* older checkpoints have none */
        if (strcmp(content, info->content) == 0) return TN_OK;
        return tn_error(TN_USAGE, "the %s changed since the run began, though not in size: put the old one back, or start over with --fresh "
                                  "or run=OTHER", info->is_raw ? "text (or its tokenizer) has" : "data set has");
    }
    if (strcmp(was ? was : "", info->fingerprint) != 0)
        return tn_error(TN_USAGE, "the data set was prepared anew from other files or settings since the run began: prepare it as "
                                  "before, or start over with --fresh or run=OTHER");
    return TN_OK;
}

static tn_status source_load(void *ctx, const json_t *cursor)
{
    dataset_source *s = ctx;
    const char *kind = json_string_value(json_object_get(cursor, "kind"));
    if (!kind || strcmp(kind, "dataset") != 0)
        return tn_error(TN_USAGE, "the run was trained on other data than a data set: give it the same, or start over with --fresh");
    TN_RETURN_IF(check_counts(cursor));
    TN_RETURN_IF(check_same_data(s, cursor));
    const tn_loader_cursor c = { .step = number_of(cursor, "batches"), .epoch = number_of(cursor, "epoch"),
                                 .index = number_of(cursor, "index"), .offset = number_of(cursor, "offset"),
                                 .batch = number_of(cursor, "batch"), .seed = number_of(cursor, "seed"),
                                 .documents = number_of(cursor, "documents"), .tokens = number_of(cursor, "train"),
                                 .rows = (int64_t)number_of(cursor, "rows"), .length = (int64_t)number_of(cursor, "length"),
                                 .mode = number_of(cursor, "mode") };
    return open_train(s, &c);
}

/* --- a batch again ----------------------------------------------------------------------------------------------------- */

_Static_assert(sizeof(tn_loader_cursor) <= sizeof(tn_source_mark), "a mark has room for a cursor");

static void source_mark(void *ctx, tn_source_mark *out)
{
    const tn_loader_cursor c = tn_loader_position(((const dataset_source *)ctx)->train);
    memcpy(out, &c, sizeof c);
}

static tn_status source_back(void *ctx, const tn_source_mark *to)
{
    tn_loader_cursor c;
    memcpy(&c, to, sizeof c);
    return open_train(ctx, &c);
}

/* "batch 17 of epoch 0, rows from document 3 token 0, document 12 token 340 and 6 more" */
static void source_describe(void *ctx, int64_t row, char *buf, size_t bytes)
{
    enum { SHOWN = 4 };
    dataset_source *s = ctx;
    const tn_loader_cursor c = tn_loader_position(s->train);
    const char *unit = tn_dataset_about(s->o.data)->item == TN_ITEM_U8 ? "byte" : "token";
    const bool known = row >= 0 && row < s->o.batch;
    const int64_t first = known ? row : 0, end = known ? row + 1 : s->o.batch < SHOWN ? s->o.batch : SHOWN;
    uint64_t document, offset;
    size_t n = (size_t)snprintf(buf, bytes, "batch %llu", (unsigned long long)c.step); /* counted from 1, as steps are */
    if (s->o.mode != TN_LOADER_WINDOW) n += (size_t)snprintf(buf + n, bytes - n, " of epoch %llu", (unsigned long long)c.epoch);
    for (int64_t i = first; i < end && n < bytes; i++) {
        if (tn_loader_row(s->train, i, &document, &offset) != TN_OK) return;
        const char *lead = i > first ? ", " : known ? ", row " : ", rows from ";
        n += (size_t)snprintf(buf + n, bytes - n, "%s", lead);
        if (known && n < bytes) n += (size_t)snprintf(buf + n, bytes - n, "%lld from ", (long long)row);
        if (n < bytes) n += (size_t)snprintf(buf + n, bytes - n, "document %llu %s %llu", (unsigned long long)document, unit, (unsigned long long)offset);
    }
    if (!known && end < s->o.batch && n < bytes) snprintf(buf + n, bytes - n, " and %lld more", (long long)(s->o.batch - end));
}

/* --- opening --------------------------------------------------------------------------------------------------------- */

bool tn_source_marks_documents(tn_loader_mode mode) { return mode == TN_LOADER_PACK; }

/* Tokens and text of the split as a whole: what is not predicted (the first of a document without an end-of-text token)
 * is taken to be as long as the rest. */
static double bits_of(const tn_dataset_counts *c)
{
    return c->text_bytes && c->tokens ? (double)c->tokens / (double)c->text_bytes / log(2) : NAN;
}

static void source_close(void *ctx)
{
    dataset_source *s = ctx;
    tn_loader_free(s->train);
    tn_loader_free(s->heldout);
    tn_free(s);
}

tn_status tn_source_open(const tn_source_options *o, tn_source *out)
{
    tn_status st = TN_OK;
    dataset_source *s = tn_alloc(sizeof *s);
    if (!s) return TN_MEMORY;
    *s = (dataset_source){ .o = *o };
    const tn_dataset_counts held = tn_dataset_count(o->data, o->heldout);
    tn_source made = { .ctx = s, .mark = source_mark, .back = source_back, .describe = source_describe, .next = source_next, .heldout = source_heldout, .save = source_save, .load = source_load,
                       .close = source_close, .train_tokens = (double)tn_dataset_count(o->data, TN_TRAIN).tokens, .bits = bits_of(&held) };
    if (!o->heldout_only) st = open_train(s, NULL);
    if (st == TN_OK) st = open_heldout(s);
    if (st != TN_OK) tn_source_close(&made);
    else *out = made;
    return st;
}

void tn_source_close(tn_source *s)
{
    if (s->ctx) s->close(s->ctx);
    *s = (tn_source){ 0 };
}
