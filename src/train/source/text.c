/* A data set of tokens as a source: a loader with workers for training, one without for held-out batches. The cursor
 * identifies the data: a run does not resume on others. */
#include "train/source/text.h"

#include "base/alloc.h"
#include "base/text.h"
#include "train/source/task_setup.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What it fills, in this order. Marks of documents only where a row may hold several. */
enum { TOKENS, LABELS, RESET, DOCUMENT, POSITIONS, ROWS, UNMARKED = RESET };
static const tn_input_row rows[ROWS] = {
    { "tokens", TN_I32, { TN_B, TN_T }, .cut = true },    { "labels", TN_I32, { TN_B, TN_T }, .cut = true, .pad = -1 },
    { "reset", TN_I32, { TN_B, TN_T }, .cut = true },     { "document", TN_I32, { TN_B, TN_T }, .cut = true },
    { "positions", TN_I32, { TN_B, TN_T }, .cut = true },
};

typedef struct dataset_source {
    char path[TN_PATH_BYTES]; /* as the settings name it */
    tn_source_text_options o;
    tn_source_start at;
    tn_feed_map map;
    tn_dataset *own;            /* the data set, where it closes it */
    tn_loader *train, *heldout; /* NULL where there is none */
    int64_t of_step;            /* batches taken of the step at work */
    tn_loader_cursor step_at;   /* where it began */
    bool failed;                /* a batch of it could not be read */
    struct tn_tracer *tracer;   /* of the training loader's workers, or NULL */
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
static void copy_row(const tn_loader_batch *b, int64_t row, const tn_feed *to, const tn_feed_map *m)
{
    const int64_t T = to->length, W = b->width;
    const int32_t *from[] = { [TOKENS] = b->tokens, [LABELS] = b->targets, [RESET] = b->reset };
    int32_t *document = tn_feed_row(to, m, DOCUMENT), *positions = tn_feed_row(to, m, POSITIONS);
    for (int k = 0; k <= RESET; k++) {
        int32_t *x = tn_feed_row(to, m, k);
        if (x) memcpy(x + row * T, from[k] + row * W, (size_t)W * sizeof *x);
    }
    if (W < T) tn_feed_pad_row(to, row, W);
    if (document || positions)
        mark_row(b->reset + row * W, W, document ? document + row * T : NULL, positions ? positions + row * T : NULL);
}

static tn_status take(const dataset_source *s, tn_loader *l, const tn_feeder *t, int64_t *count)
{
    const tn_loader_batch *b;
    TN_RETURN_IF(tn_loader_next(l, &b));
    *count = b ? b->count : 0;
    if (!b) return TN_OK;
    const tn_feed to = tn_feed_for(t, b->width);
    for (int64_t row = 0; row < b->rows; row++) copy_row(b, row, &to, &s->map);
    return TN_OK;
}

static tn_status source_next(void *ctx, int64_t step, const tn_feeder *to, int64_t *count)
{
    dataset_source *s = ctx;
    (void)step;
    if (s->of_step == 0) s->step_at = tn_loader_position(s->train);
    const tn_status st = take(s, s->train, to, count);
    s->failed = st != TN_OK;
    if (!s->failed && ++s->of_step >= s->at.accumulate) s->of_step = 0;
    return st;
}

static tn_status source_heldout(void *ctx, int64_t i, const tn_feeder *to, int64_t *count)
{
    dataset_source *s = ctx;
    *count = 0;
    if (!s->heldout) return TN_OK;
    if (i == 0) tn_loader_rewind(s->heldout);
    return take(s, s->heldout, to, count);
}

/* --- loaders --------------------------------------------------------------------------------------------------------- */

static int prefetch_of(const tn_source_text_options *o, const tn_source_start *at)
{
    enum { USUAL = 4 };
    if (o->prefetch >= 0) return o->prefetch;
    const double each = 3.0 * sizeof(int32_t) * (double)at->batch * (double)at->length;
    int n = USUAL;
    while (n > 1 && n * each > 256e6) n--;
    return n;
}

static tn_loader_options train_options(const tn_source_text_options *o, const tn_source_start *at)
{
    return (tn_loader_options){ .dataset = o->data,
                                .split = TN_TRAIN,
                                .batch = at->batch,
                                .length = at->length,
                                .mode = o->mode,
                                .seed = o->seed,
                                .workers = o->workers,
                                .depth = prefetch_of(o, at) + 1 };
}

static tn_loader_options heldout_options(const tn_source_text_options *o, const tn_source_start *at)
{
    return (tn_loader_options){ .dataset = o->data,
                                .split = at->heldout,
                                .batch = at->batch,
                                .length = at->length,
                                .mode = o->mode == TN_LOADER_BUCKET ? TN_LOADER_BUCKET : TN_LOADER_PACK,
                                .evaluate = true };
}

static bool has_heldout(const tn_source_text_options *o, const tn_source_start *at)
{
    const tn_dataset_counts c = tn_dataset_count(o->data, at->heldout);
    return c.tokens > (tn_dataset_about(o->data)->eot < 0 ? c.documents : 0);
}

static size_t source_bytes(void *ctx, const tn_source_start *at)
{
    const dataset_source *s = ctx;
    const tn_loader_options train = train_options(&s->o, at), heldout = heldout_options(&s->o, at);
    const size_t a = at->heldout_only ? 0 : tn_loader_bytes(&train),
                 b = has_heldout(&s->o, at) ? tn_loader_bytes(&heldout) : 0;
    size_t all;
    return tn_add_ok(a, b, &all) && tn_add_ok(all, tn_dataset_bytes(s->o.data), &all) ? all : SIZE_MAX;
}

static tn_status open_train(dataset_source *s, const tn_loader_cursor *from)
{
    tn_loader *l = NULL;
    tn_loader_options how = train_options(&s->o, &s->at);
    how.from = from;
    TN_RETURN_IF(tn_loader_open(&how, &l));
    tn_loader_free(s->train);
    s->train = l;
    if (s->tracer) tn_loader_trace(l, s->tracer);
    s->of_step = 0;
    s->failed = false;
    return TN_OK;
}

static tn_status open_heldout(dataset_source *s)
{
    const tn_loader_options how = heldout_options(&s->o, &s->at);
    return has_heldout(&s->o, &s->at) ? tn_loader_open(&how, &s->heldout) : TN_OK;
}

/* --- the cursor ------------------------------------------------------------------------------------------------------ */

static json_t *source_save(void *ctx)
{
    const dataset_source *s = ctx;
    const tn_loader_cursor c = s->failed ? s->step_at : tn_loader_position(s->train);
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "kind", "dataset",
                     "data", tn_dataset_about(s->o.data)->fingerprint, "content", tn_dataset_about(s->o.data)->content,
                     "batches", (json_int_t)c.step, "epoch", (json_int_t)c.epoch, "index", (json_int_t)c.index,
                     "offset", (json_int_t)c.offset, "batch", (json_int_t)c.batch, "seed", (json_int_t)c.seed,
                     "documents", (json_int_t)c.documents, "train", (json_int_t)c.tokens, "heldout",
                     (json_int_t)tn_dataset_count(s->o.data, s->at.heldout).tokens, "rows", (json_int_t)c.rows,
                     "length", (json_int_t)c.length, "mode", (json_int_t)c.mode);
}

static uint64_t number_of(const json_t *cursor, const char *key) { return (uint64_t)tn_cursor_number(cursor, key); }

static tn_status check_counts(const json_t *cursor)
{
    static const char *const counts[] = { "batches", "epoch",   "index", "offset", "batch", "documents",
                                          "train",   "heldout", "rows",  "length", "mode" };
    int64_t n;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) TN_RETURN_IF(tn_cursor_count(cursor, counts[i], &n));
    return TN_OK;
}

static tn_status check_same_data(const dataset_source *s, const json_t *cursor)
{
    const tn_dataset_info *info = tn_dataset_about(s->o.data);
    const char *was = json_string_value(json_object_get(cursor, "data"));
    const uint64_t train = tn_dataset_count(s->o.data, TN_TRAIN).tokens,
                   heldout = tn_dataset_count(s->o.data, s->at.heldout).tokens;
    if (number_of(cursor, "train") != train || number_of(cursor, "heldout") != heldout)
        return tn_error(TN_USAGE,
                        "the text has %llu + %llu %s and had %llu + %llu when the run began: put the old text back, or "
                        "start over with --fresh or run=OTHER",
                        (unsigned long long)train, (unsigned long long)heldout,
                        info->item == TN_ITEM_U8 ? "bytes" : "tokens", (unsigned long long)number_of(cursor, "train"),
                        (unsigned long long)number_of(cursor, "heldout"));
    const char *content = json_string_value(json_object_get(cursor, "content"));
    if (content && content[0] && info->content[0]) { /* older checkpoints have none */
        if (strcmp(content, info->content) == 0) return TN_OK;
        return tn_error(
            TN_USAGE,
            "the %s changed since the run began, though not in size: put the old one back, or start over with --fresh "
            "or run=OTHER",
            info->is_raw ? "text (or its tokenizer) has" : "data set has");
    }
    if (strcmp(was ? was : "", info->fingerprint) != 0)
        return tn_error(TN_USAGE, "the data set was prepared again from other files or settings since the run began: "
                                  "prepare it as before, or start over with --fresh or run=OTHER");
    return TN_OK;
}

static tn_status source_load(void *ctx, const json_t *cursor)
{
    dataset_source *s = ctx;
    const char *kind = json_string_value(json_object_get(cursor, "kind"));
    if (!kind || strcmp(kind, "dataset") != 0)
        return tn_error(TN_USAGE, "the run was not trained on a text or data set: give it the data it was trained on, "
                                  "or start over with --fresh");
    TN_RETURN_IF(check_counts(cursor));
    TN_RETURN_IF(check_same_data(s, cursor));
    const tn_loader_cursor c = { .step = number_of(cursor, "batches"),
                                 .epoch = number_of(cursor, "epoch"),
                                 .index = number_of(cursor, "index"),
                                 .offset = number_of(cursor, "offset"),
                                 .batch = number_of(cursor, "batch"),
                                 .seed = number_of(cursor, "seed"),
                                 .documents = number_of(cursor, "documents"),
                                 .tokens = number_of(cursor, "train"),
                                 .rows = (int64_t)number_of(cursor, "rows"),
                                 .length = (int64_t)number_of(cursor, "length"),
                                 .mode = number_of(cursor, "mode") };
    return open_train(s, &c);
}

static void source_trace(void *ctx, struct tn_tracer *to)
{
    dataset_source *s = ctx;
    s->tracer = to;
    if (s->train) tn_loader_trace(s->train, to);
}

static void source_rest(void *ctx)
{
    const dataset_source *s = ctx;
    if (s->train) tn_loader_rest(s->train);
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
    const bool known = row >= 0 && row < s->at.batch;
    const int64_t first = known ? row : 0, end = known ? row + 1 : s->at.batch < SHOWN ? s->at.batch : SHOWN;
    uint64_t document, offset;
    size_t n =
        (size_t)snprintf(buf, bytes, "batch %llu", (unsigned long long)c.step); /* counted from 1, as steps are */
    if (s->o.mode != TN_LOADER_WINDOW)
        n += (size_t)snprintf(buf + n, bytes - n, " of epoch %llu", (unsigned long long)c.epoch);
    for (int64_t i = first; i < end && n < bytes; i++) {
        if (tn_loader_row(s->train, i, &document, &offset) != TN_OK) return;
        const char *lead = i > first ? ", " : known ? ", row " : ", rows from ";
        n += (size_t)snprintf(buf + n, bytes - n, "%s", lead);
        if (known && n < bytes) n += (size_t)snprintf(buf + n, bytes - n, "%lld from ", (long long)row);
        if (n < bytes)
            n += (size_t)snprintf(buf + n, bytes - n, "document %llu %s %llu", (unsigned long long)document, unit,
                                  (unsigned long long)offset);
    }
    if (!known && end < s->at.batch && n < bytes)
        snprintf(buf + n, bytes - n, " and %lld more", (long long)(s->at.batch - end));
}

/* --- opening --------------------------------------------------------------------------------------------------------- */

/* Tokens and text of the split as a whole: what is not predicted (the first of a document without an end-of-text token)
 * is taken to be as long as the rest. */
static double bits_of(const tn_dataset_counts *c)
{
    return c->text_bytes && c->tokens ? (double)c->tokens / (double)c->text_bytes / log(2) : NAN;
}

static void drop_loaders(dataset_source *s)
{
    tn_loader_free(s->train);
    tn_loader_free(s->heldout);
    s->train = s->heldout = NULL;
}

static void source_close(void *ctx)
{
    dataset_source *s = ctx;
    drop_loaders(s);
    tn_dataset_close(s->own);
    tn_free(s);
}

/* Rows of one document hold very different numbers of tokens, and each token should count alike; where rows are filled to the end batches
 * would count as 1 but for a few, and do. */
static void say_how(tn_source *to, const tn_source_text_options *o, const tn_source_start *how)
{
    const tn_dataset_counts held = tn_dataset_count(o->data, how->heldout);
    to->weigh_by = 1;
    to->weigh_of = o->mode == TN_LOADER_BUCKET ? (double)(how->batch * how->length) : 0;
    to->bits = bits_of(&held);
    tn_source_add_number(to, "bits", to->bits);
}

static tn_status source_start(tn_source *self, const tn_source_start *how)
{
    dataset_source *s = self->ctx;
    drop_loaders(s);
    s->at = *how;
    say_how(self, &s->o, how);
    s->map = tn_feed_map_of(tn_trainer_inputs(how->trainer), rows, ROWS);
    if (!how->heldout_only) TN_RETURN_IF(open_train(s, NULL));
    return open_heldout(s);
}

static int64_t source_count(void *ctx, tn_data_split split)
{
    return (int64_t)tn_dataset_count(((const dataset_source *)ctx)->o.data, split).tokens;
}

static const char *count_text(double n, char buf[16])
{
    const char *unit = n >= 1e9 ? " G" : n >= 1e6 ? " M" : n >= 1e3 ? " k" : "";
    const double x = n >= 1e9 ? n / 1e9 : n >= 1e6 ? n / 1e6 : n >= 1e3 ? n / 1e3 : n;
    snprintf(buf, 16, "%.*f%s", *unit && x < 100 ? 1 : 0, x, unit);
    return buf;
}

static void source_about(void *ctx, FILE *f)
{
    static const char *const modes[] = { "packed documents", "documents by length", "windows" };
    const dataset_source *s = ctx;
    const tn_dataset_info *info = tn_dataset_about(s->o.data);
    const bool bytes = info->item == TN_ITEM_U8;
    char count[16], held[16], name[512]; /* a file's name may have lines of its own */
    fprintf(f, "data    %s, %s %s, %s held out", tn_text_quote(s->o.path, name, sizeof name),
            count_text((double)source_count(ctx, TN_TRAIN), count), bytes ? "bytes" : "tokens",
            count_text((double)source_count(ctx, TN_VALID), held));
    if (!bytes) fprintf(f, ", vocabulary %lld", (long long)info->vocab);
    fprintf(f, ", %s\n", modes[s->o.mode]);
}

static tn_status source_open_heldout(void *ctx, const tn_source_start *how, tn_source *out)
{
    return tn_source_text_open(&((const dataset_source *)ctx)->o, how, out);
}

/* own: closed with the source, or NULL. */
static tn_status make(const tn_source_text_options *o, tn_dataset *own, int64_t length, tn_source *out)
{
    enum { TEXT_EVALUATIONS = 10 };
    dataset_source *s = tn_alloc(sizeof *s);
    if (!s) {
        tn_dataset_close(own);
        return TN_MEMORY;
    }
    *s = (dataset_source){ .o = *o, .own = own };
    snprintf(s->path, sizeof s->path, "%s",
             o->path ? o->path : ""); /* settings' texts live until the next one is set */
    s->o.path = s->path;
    *out = (tn_source){ .ctx = s,
                        .what = "data",
                        .start = source_start,
                        .bytes = source_bytes,
                        .next = source_next,
                        .heldout = source_heldout,
                        .save = source_save,
                        .load = source_load,
                        .mark = source_mark,
                        .back = source_back,
                        .describe = source_describe,
                        .open_heldout = source_open_heldout,
                        .count = source_count,
                        .about = source_about,
                        .trace = source_trace,
                        .rest = source_rest,
                        .close = source_close,
                        .text = o->data,
                        .mode = o->mode,
                        .train_tokens = (double)tn_dataset_count(o->data, TN_TRAIN).tokens,
                        .bits = NAN,
                        .evaluations = TEXT_EVALUATIONS,
                        .rows = rows,
                        .n_rows = o->mode == TN_LOADER_PACK ? ROWS : UNMARKED };
    if (o->mode == TN_LOADER_BUCKET) out->n_widths = tn_loader_widths(length, out->width);
    tn_source_add_number(out, "vocab", (double)tn_dataset_about(o->data)->vocab);
    return TN_OK;
}

tn_status tn_source_text_open(const tn_source_text_options *o, const tn_source_start *how, tn_source *out)
{
    TN_RETURN_IF(make(o, NULL, how->length, out));
    return tn_source_started(out, how);
}

/* --- by settings ------------------------------------------------------------------------------------------------------- */

static tn_status open_dataset(const tn_source_open *o, const char *path, tn_dataset **out)
{
    const tn_settings *st = o->settings;
    const char *tokenizer = tn_settings_text(st, "tokenizer");
    const bool bytes = !tokenizer[0] || strcmp(tokenizer, "bytes") == 0;
    const tn_dataset_options how = { .holdout_frac = o->whole ? 0 : tn_settings_float(st, "train.holdout_frac"),
                                     .test_frac = o->whole ? 0 : tn_settings_float(st, "train.test_frac"),
                                     .window =
                                         bytes && !o->whole ? (uint64_t)tn_settings_int(st, "train.context") + 1 : 0,
                                     .tokenizer = tokenizer,
                                     .seed = (uint64_t)tn_settings_int(st, "seed"),
                                     .content = o->trains };
    TN_RETURN_IF(tn_dataset_open(path, &how, out));
    const tn_dataset_info *info = tn_dataset_about(*out);
    if (info->kind != TN_SHARD_TOKENS)
        return tn_error(TN_USAGE, "%.640s contains arrays, and %s learns from tokens: prepare text instead", path,
                        o->model->name);
    if (!info->is_raw && tokenizer[0])
        return tn_error(TN_USAGE, "%.640s is prepared and has its own tokenizer: remove tokenizer=", path);
    return TN_OK;
}

static tn_loader_mode mode_of(const tn_settings *st, const tn_dataset *data)
{
    const char *mode = tn_settings_text(st, "loader.mode");
    const bool one = tn_dataset_about(data)->is_raw && tn_dataset_count(data, TN_TRAIN).documents == 1;
    if (strcmp(mode, "auto") == 0) return one ? TN_LOADER_WINDOW : TN_LOADER_PACK;
    return strcmp(mode, "window") == 0   ? TN_LOADER_WINDOW
           : strcmp(mode, "bucket") == 0 ? TN_LOADER_BUCKET
                                         : TN_LOADER_PACK;
}

bool tn_source_takes_text(const tn_source_open *o)
{
    return tn_settings_text(o->settings, "data")[0] && tn_model_reads(o->model, "tokens");
}

tn_status tn_source_open_text(const tn_source_open *o, tn_source *out)
{
    const tn_settings *st = o->settings;
    const char *path = tn_settings_text(st, "data");
    tn_dataset *data = NULL;
    tn_status s = open_dataset(o, path, &data);
    if (s != TN_OK) tn_error_prefix("data");
    if (s == TN_OK) s = tn_task_fit_vocab(o->settings, (long long)tn_dataset_about(data)->vocab, "data", path);
    if (s != TN_OK) {
        tn_dataset_close(data);
        return s;
    }
    const tn_source_text_options how = { .data = data,
                                         .path = path,
                                         .mode = mode_of(st, data),
                                         .seed = (uint64_t)tn_settings_int(st, "seed"),
                                         .workers = (int)tn_settings_int(st, "loader.workers"),
                                         .prefetch = tn_settings_is_auto(st, "loader.prefetch")
                                                         ? -1
                                                         : (int)tn_settings_int(st, "loader.prefetch") };
    return make(&how, data, tn_settings_int(st, "train.context"), out);
}
