/* Records as batches. The order of an epoch depends on the seed and the epoch alone, so epoch and position are the
 * whole cursor. It also identifies the records: a run does not resume on others. */
#include "train/source/records.h"

#include "base/alloc.h"
#include "train/source/records_order.h"
#include "train/source/task_setup.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct record_source {
    tn_record_set set;
    tn_source_start at;
    tn_feed_map map;
    char hash[TN_HASH_BYTES];   /* of the records and their splits */
    char shapes[TN_HASH_BYTES]; /* of the shapes of batches, by which they are ordered; "": there are none */
    int64_t epoch, next;        /* the next row is order.row[next] of this epoch */
    int64_t batches;            /* handed out */
    int64_t rows;               /* of the last one */
    int64_t shown;              /* rows of the held-out part handed out */
    double padding;             /* of the first epoch's batches */
    tn_record_order order;
} record_source;

/* --- batches ------------------------------------------------------------------------------------------------------------ */

static void shuffle(record_source *s) { tn_record_order_shuffle(&s->order, &s->set, s->at.batch, s->epoch); }

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

void tn_records_row(const tn_feed_map *m, const tn_feed *f, int64_t b, size_t n, void **at)
{
    for (size_t k = 0; k < n; k++) {
        const int slot = m->slot[k];
        const tn_input_slot *s = slot < 0 ? NULL : &f->inputs->slot[slot];
        at[k] = s && f->at[slot] && s->each
                    ? (char *)f->at[slot] + sizeof(float) * (size_t)(b * s->each * (s->has_time ? f->length : 1))
                    : NULL;
    }
}

/* Row b of the inputs is record i. Returns what it counts. */
static int64_t put(const tn_record_set *set, const tn_feed_map *m, const tn_feed *f, int64_t b, int split, int64_t i,
                   int64_t step)
{
    void *at[TN_INPUTS_MAX];
    tn_records_row(m, f, b, set->n_rows, at);
    return set->read(set->data, split, i, step, f->shape, at);
}

/* The next n records of the epoch, as a batch. */
static tn_status put_next(record_source *s, int64_t n, int64_t step, const tn_feed *f, int64_t *count)
{
    const int64_t by = s->set.shapes.n ? s->epoch : step;
    *count = 0;
    for (int64_t b = 0; b < n; b++) {
        const int64_t counts = put(&s->set, &s->map, f, b, TN_TRAIN, s->order.row[s->next + b], by);
        if (counts < 0) return TN_BAD_FILE;
        *count += counts;
    }
    return TN_OK;
}

static tn_status source_next(void *ctx, int64_t step, const tn_feeder *to, int64_t *count)
{
    record_source *s = ctx;
    const tn_record_shapes *shapes = &s->set.shapes;
    if (s->next == s->set.count[TN_TRAIN]) {
        s->epoch++;
        s->next = 0;
        shuffle(s);
    }
    const int64_t n = smaller(s->at.batch, s->set.count[TN_TRAIN] - s->next);
    const int shape = shapes->n ? shapes->fit(s->set.data, s->order.row + s->next, n, s->epoch, 0) : 0;
    const tn_feed f = tn_feed_of(to, shape);
    TN_RETURN_IF(put_next(s, n, step, &f, count));
    tn_feed_end(&f, n);
    s->next += n;
    s->rows = n;
    s->batches++;
    return TN_OK;
}

/* A batch without a label that counts would look like the end. */
static tn_status source_heldout(void *ctx, int64_t i, const tn_feeder *to, int64_t *count)
{
    record_source *s = ctx;
    const tn_feed f = tn_feed_full(to);
    const int64_t all = s->set.count[s->at.heldout];
    if (i == 0) s->shown = 0;
    *count = 0;
    while (s->shown < all && *count == 0) {
        const int64_t n = smaller(s->at.batch, all - s->shown);
        for (int64_t b = 0; b < n; b++) *count += put(&s->set, &s->map, &f, b, (int)s->at.heldout, s->shown + b, -1);
        tn_feed_end(&f, n);
        s->shown += n;
    }
    return TN_OK;
}

/* --- the cursor --------------------------------------------------------------------------------------------------------- */

static json_t *source_save(void *ctx)
{
    const record_source *s = ctx;
    return json_pack("{s:s, s:s, s:s*, s:I, s:I, s:I, s:I, s:I, s:I}", "kind", s->set.kind, "data", s->hash, "shapes",
                     s->shapes[0] ? s->shapes : NULL, "batches", (json_int_t)s->batches, "epoch", (json_int_t)s->epoch,
                     "next", (json_int_t)s->next, "rows", (json_int_t)s->at.batch, "seed", (json_int_t)s->set.seed,
                     "train", (json_int_t)s->set.count[TN_TRAIN]);
}

/* Else a model's own: there is no task to speak of. */
static bool of_task(const record_source *s) { return strcmp(s->set.kind, "task") == 0; }

static tn_status source_load(void *ctx, const json_t *cursor)
{
    record_source *s = ctx;
    const char *kind = json_string_value(json_object_get(cursor, "kind")),
               *data = json_string_value(json_object_get(cursor, "data")),
               *shapes = json_string_value(json_object_get(cursor, "shapes"));
    int64_t epoch, next, batches;
    if (!kind || strcmp(kind, s->set.kind) != 0)
        return tn_error(TN_USAGE, "the run was not trained on %s: give it the same data, or start over with --fresh",
                        of_task(s) ? "a task" : "the model's own records");
    if (!data || strcmp(data, s->hash) != 0)
        return tn_error(TN_USAGE,
                        "the %ss%s, or their splits, are not those the run began with: put the old files and %s back, "
                        "or start over with "
                        "--fresh or run=OTHER",
                        s->set.noun, of_task(s) ? " of the task" : "", of_task(s) ? "task.* settings" : "settings");
    if (strcmp(shapes ? shapes : "", s->shapes) != 0)
        return tn_error(TN_USAGE,
                        "batches by length have other shapes than those the run began with, and another order: "
                        "use its version of tenon and its settings, or start over with --fresh or run=OTHER");
    if (tn_cursor_number(cursor, "seed") != (int64_t)s->set.seed || tn_cursor_number(cursor, "rows") != s->at.batch)
        return tn_error(TN_USAGE, "the run has seed=%lld and train.batch=%lld: set them so, or start over with --fresh",
                        (long long)tn_cursor_number(cursor, "seed"), (long long)tn_cursor_number(cursor, "rows"));
    TN_RETURN_IF(tn_cursor_count(cursor, "epoch", &epoch));
    TN_RETURN_IF(tn_cursor_count(cursor, "next", &next));
    TN_RETURN_IF(tn_cursor_count(cursor, "batches", &batches));
    if (next > s->set.count[TN_TRAIN])
        return tn_error(TN_BAD_FILE, "the position in the %ss is invalid: use another checkpoint", s->set.noun);
    s->epoch = epoch;
    s->next = next;
    s->batches = batches;
    shuffle(s);
    return TN_OK;
}

/* --- a batch again -------------------------------------------------------------------------------------------------------- */

static void source_mark(void *ctx, tn_source_mark *out)
{
    const record_source *s = ctx;
    *out = (tn_source_mark){ { (uint64_t)s->epoch, (uint64_t)s->next, (uint64_t)s->batches } };
}

static tn_status source_back(void *ctx, const tn_source_mark *to)
{
    record_source *s = ctx;
    const bool other = s->epoch != (int64_t)to->at[0];
    s->epoch = (int64_t)to->at[0];
    s->next = (int64_t)to->at[1];
    s->batches = (int64_t)to->at[2];
    if (other) shuffle(s); /* every checkpoint comes by here */
    return TN_OK;
}

static long long number_at(const record_source *s, int64_t i)
{
    return (long long)(s->set.place ? s->set.place(s->set.data, i) : i);
}

/* "batch 3 of epoch 1, sample 17 (row 4)", or "..., samples 17, 3, 90, 4 and 60 more" */
static void source_describe(void *ctx, int64_t row, char *buf, size_t bytes)
{
    enum { SHOWN = 8 };
    const record_source *s = ctx;
    const int32_t *order = s->order.row + s->next - s->rows;
    const int64_t shown = s->rows < SHOWN ? s->rows : SHOWN;
    size_t n = (size_t)snprintf(buf, bytes, "batch %lld, of epoch %lld, ", (long long)s->batches, (long long)s->epoch);
    if (row >= 0 && row < s->rows) {
        snprintf(buf + n, bytes - n, "%s %lld (row %lld)", s->set.noun, number_at(s, order[row]), (long long)row);
        return;
    }
    for (int64_t i = 0; i < shown && n < bytes; i++) {
        if (i == 0) n += (size_t)snprintf(buf + n, bytes - n, "%ss ", s->set.noun);
        if (n < bytes) n += (size_t)snprintf(buf + n, bytes - n, "%s%lld", i ? ", " : "", number_at(s, order[i]));
    }
    if (shown < s->rows && n < bytes) snprintf(buf + n, bytes - n, " and %lld more", (long long)(s->rows - shown));
}

/* --- opening ------------------------------------------------------------------------------------------------------------ */

static void source_close(void *ctx)
{
    record_source *s = ctx;
    if (s->set.close) s->set.close((void *)(uintptr_t)s->set.data);
    tn_record_order_free(&s->order);
    tn_free(s);
}

static tn_status hash_shapes(const tn_record_shapes *shapes, char hash[TN_HASH_BYTES])
{
    tn_hash *h;
    hash[0] = 0;
    if (!shapes->n) return TN_OK;
    TN_RETURN_IF(tn_hash_begin(&h));
    for (int i = 0; i < shapes->n; i++)
        for (size_t k = 0; k < shapes->shape[i].n; k++) {
            const tn_source_number *x = &shapes->shape[i].size[k];
            tn_hash_add(h, x->name, strlen(x->name) + 1);
            tn_hash_add(h, &x->value, sizeof x->value);
        }
    tn_hash_text(h, hash);
    tn_hash_free(h);
    return TN_OK;
}

static tn_record_batches batches_of(const record_source *s)
{
    return (tn_record_batches){ .row = s->order.row,
                                .n = s->set.count[TN_TRAIN],
                                .rows = s->at.batch,
                                .accumulate = s->at.accumulate > 0 ? s->at.accumulate : 1,
                                .epoch = s->epoch };
}

/* The last batch of an epoch may be short, and counts less among those of its step. */
static tn_status source_start(tn_source *self, const tn_source_start *how)
{
    record_source *s = self->ctx;
    const int64_t n = s->set.count[TN_TRAIN];
    if (n < 1 && !how->heldout_only)
        return of_task(s)
                   ? tn_error(TN_USAGE,
                              "the task has no samples to train on: make task.valid_frac and task.test_frac smaller")
                   : tn_error(TN_USAGE, "the model's records have no training split: return a count above 0 from open, "
                                        "or use other data");
    s->at = *how;
    s->map = tn_feed_map_of(tn_trainer_inputs(how->trainer), s->set.rows, s->set.n_rows);
    self->epoch_batches = (n + how->batch - 1) / how->batch;
    self->weigh_by = self->train_samples;
    self->weigh_of = (double)how->batch * self->train_tokens;
    if (how->heldout_only) return TN_OK;
    TN_RETURN_IF(s->set.hash(s->set.data, s->hash));
    TN_RETURN_IF(hash_shapes(&s->set.shapes, s->shapes));
    if (!s->order.row) TN_RETURN_IF(tn_record_order_new(&s->set, &s->order));
    s->epoch = s->next = s->batches = s->rows = 0;
    shuffle(s);
    const tn_record_batches first = batches_of(s);
    if (s->set.padding) s->padding = s->set.padding(s->set.data, &first);
    return TN_OK;
}

static double source_padding(void *ctx) { return ((const record_source *)ctx)->padding; }

static size_t source_bytes(void *ctx, const tn_source_start *how)
{
    const record_source *s = ctx;
    (void)how;
    return s->set.bytes ? s->set.bytes(s->set.data) : 0;
}

static int64_t source_count(void *ctx, tn_data_split split) { return ((const record_source *)ctx)->set.count[split]; }

static void source_about(void *ctx, FILE *f)
{
    const record_source *s = ctx;
    const tn_record_batches b = batches_of(s);
    s->set.about(s->set.data, &b, f);
}

/* The training records in their order, as often as it takes. */
static void source_example(void *ctx, const tn_feed *f)
{
    const tn_record_set *set = &((const record_source *)ctx)->set;
    const tn_feed_map m = tn_feed_map_of(f->inputs, set->rows, set->n_rows);
    for (int64_t b = 0; b < f->batch; b++) (void)put(set, &m, f, b, TN_TRAIN, b % set->count[TN_TRAIN], 0);
    tn_feed_end(f, f->batch);
}

static tn_status source_prepare(void *ctx, const tn_source_prepare *how)
{
    const tn_record_set *set = &((const record_source *)ctx)->set;
    return set->prepare((void *)(uintptr_t)set->data, how);
}

static tn_status source_open_heldout(void *ctx, const tn_source_start *how, tn_source *out)
{
    tn_record_set set = ((const record_source *)ctx)->set;
    set.close = NULL;
    TN_RETURN_IF(tn_source_records_make(&set, out));
    return tn_source_started(out, how);
}

tn_status tn_source_records_make(const tn_record_set *set, tn_source *out)
{
    const double n = (double)set->count[TN_TRAIN];
    record_source *s = tn_alloc(sizeof *s);
    if (!s) {
        if (set->close) set->close((void *)(uintptr_t)set->data);
        return TN_MEMORY;
    }
    *s = (record_source){ .set = *set, .padding = NAN };
    *out = (tn_source){ .ctx = s,
                        .what = "task",
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
                        .padding = set->padding ? source_padding : NULL,
                        .example = n > 0 ? source_example : NULL,
                        .prepare = set->prepare ? source_prepare : NULL,
                        .prepares = set->prepares,
                        .resident = set->resident,
                        .close = source_close,
                        .rows = set->rows,
                        .n_rows = set->n_rows,
                        .shape = set->shapes.shape,
                        .n_shapes = set->shapes.n,
                        .bits = NAN,
                        .train_samples = n,
                        .train_tokens = set->labels };
    tn_source_add_number(out, "samples", n);
    for (size_t i = 0; i < set->n_numbers; i++) tn_source_add_number(out, set->numbers[i].name, set->numbers[i].value);
    return TN_OK;
}

/* --- a model's own -------------------------------------------------------------------------------------------------------- */

typedef struct owned {
    const tn_records *rows;
    void *data;
    tn_records_about about;
} owned;

static int64_t read_own(const void *data, int split, int64_t i, int64_t step, int shape, void *const *at)
{
    const owned *o = data;
    (void)shape;
    return o->rows->read(o->data, split, i, step, at);
}

static tn_status hash_own(const void *data, char hash[TN_HASH_BYTES])
{
    const owned *o = data;
    const uint64_t what[] = { o->about.identity, (uint64_t)o->about.count[0], (uint64_t)o->about.count[1],
                              (uint64_t)o->about.count[2] };
    tn_hash_memory(what, sizeof what, hash);
    return TN_OK;
}

static void about_own(const void *data, const tn_record_batches *b, FILE *f)
{
    const owned *o = data;
    (void)b;
    const int64_t *n = o->about.count;
    fprintf(f, "data    %s, %lld records, %lld valid, %lld test\n", o->rows->name, (long long)n[TN_TRAIN],
            (long long)n[TN_VALID], (long long)n[TN_TEST]);
}

static void close_own(void *data)
{
    owned *o = data;
    if (o->rows->close) o->rows->close(o->data);
    tn_free(o);
}

static double labels_of(const owned *o)
{
    void *nowhere[TN_INPUTS_MAX] = { NULL };
    double sum = 0;
    for (int64_t i = 0; i < o->about.count[TN_TRAIN]; i++)
        sum += (double)o->rows->read(o->data, TN_TRAIN, i, 0, nowhere);
    return sum;
}

/* Whether a record fills it: a row of the batch. How many rows are valid is said by who makes the batch. */
static bool fills(const tn_model *model, const tn_input_row *row)
{
    if (row->dims[0] && strcmp(row->dims[0], TN_B) == 0) return true;
    for (size_t i = 0; row->name && i < model->n_inputs; i++)
        if (strcmp(model->inputs[i].name, row->name) == 0) return model->inputs[i].valid_rows;
    return true; /* nobody reads it */
}

static tn_status check_rows(const tn_model *model, const tn_records *r)
{
    if (!r->name || !r->open || !r->read) return tn_error(TN_USAGE, "its row has no name, open or read: complete it");
    if (r->n_inputs > TN_INPUTS_MAX)
        return tn_error(TN_USAGE, "it has more than %d inputs: combine some", TN_INPUTS_MAX);
    for (size_t i = 0; i < r->n_inputs; i++)
        if (!fills(model, &r->inputs[i]))
            return tn_error(TN_USAGE, "input %s: a record fills one row of the batch: begin its dims with TN_B",
                            r->inputs[i].name);
    return TN_OK;
}

static tn_status check_about(const tn_records_about *a)
{
    for (int k = 0; k < TN_RECORD_SPLITS; k++)
        if (a->count[k] < 0 || a->count[k] > INT32_MAX)
            return tn_error(TN_USAGE, "%lld records of a split: 0 to %d are possible", (long long)a->count[k],
                            INT32_MAX);
    if (a->n_numbers < TN_SOURCE_NUMBERS) return TN_OK; /* one is "samples" */
    return tn_error(TN_USAGE, "it has more than %d numbers: remove some", TN_SOURCE_NUMBERS - 1);
}

/* What nobody set becomes what suits them, as for the samples of a task. */
static tn_status fit_settings(const tn_source_open *o, const owned *own)
{
    for (size_t i = 0; i < own->about.n_numbers; i++) {
        char text[32];
        const char *name = own->about.numbers[i].name;
        if (!tn_inputs_setting(o->settings, name) || !tn_settings_is_auto(o->settings, name)) continue;
        snprintf(text, sizeof text, "%.17g", own->about.numbers[i].value);
        TN_RETURN_IF(tn_settings_set(o->settings, name, text, "data %s", own->rows->name));
    }
    return tn_task_fit_counts(o->settings, own->rows->name, own->about.count);
}

bool tn_source_takes_records(const tn_source_open *o) { return o->model->records != NULL; }

tn_status tn_source_open_records(const tn_source_open *o, tn_source *out)
{
    const tn_records *r = o->model->records;
    owned *own = tn_alloc(sizeof *own);
    if (!own) return TN_MEMORY;
    *own = (owned){ .rows = r };
    tn_status s = check_rows(o->model, r);
    if (s == TN_OK) s = r->open(o->settings, &own->data, &own->about);
    if (s == TN_OK) s = check_about(&own->about);
    if (s == TN_OK) s = fit_settings(o, own);
    if (s != TN_OK) {
        if (own->data) close_own(own);
        else tn_free(own);
        tn_error_prefix("model %s, data %s", o->model->name, r->name ? r->name : "?");
        return s;
    }
    tn_record_set set = { .kind = "records",
                          .noun = "record",
                          .rows = r->inputs,
                          .n_rows = r->n_inputs,
                          .labels = labels_of(own),
                          .data = own,
                          .read = read_own,
                          .hash = hash_own,
                          .about = about_own,
                          .close = close_own,
                          .numbers = own->about.numbers,
                          .n_numbers = own->about.n_numbers,
                          .seed = (uint64_t)tn_settings_int(o->settings, "seed") };
    memcpy(set.count, own->about.count, sizeof set.count);
    TN_RETURN_IF(tn_source_records_make(&set, out));
    out->prefetch_depth = 2;
    return TN_OK;
}
