/* Sequences of a probe as batches. Held-out batches take the groups in turn; the last ones of a group may have rows
 * without a question. */
#include "train/source/task_setup.h"

#include "base/alloc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What it fills, in this order. */
enum { TOKENS, LABELS, ROWS };
static const tn_input_row rows[ROWS] = {
    { "tokens", TN_I32, { TN_B, TN_T }, .cut = true },
    { "labels", TN_I32, { TN_B, TN_T }, .cut = true, .pad = -1 },
};

typedef struct probe_source {
    const tn_probe *probe;
    uint64_t seed; /* of the training sequences */
    tn_source_start at;
    tn_feed_map map;
    tn_probe *own;            /* closed with it, or NULL */
    int32_t *spare;           /* (2, length): a row of an input that nobody reads */
    char hash[TN_HASH_BYTES]; /* of the probe */
    int64_t batches;          /* handed out */
    int32_t *scratch;
    const char *name[TN_PROBE_GROUPS];
} probe_source;

/* Where a row of an input is written, whoever reads it. */
static int32_t *row_of(const probe_source *s, const tn_feed *f, int which, int64_t b)
{
    int32_t *x = tn_feed_row(f, &s->map, which);
    return x ? x + b * f->length : s->spare + which * s->probe->length;
}

/* Tokens behind a sequence (the trainer may have no plan of its length) count nowhere, and nothing before them sees them. */
static tn_status source_next(void *ctx, int64_t step, const tn_feeder *to, int64_t *count)
{
    probe_source *s = ctx;
    tn_probe_which w;
    (void)step;
    tn_probe_batch(s->probe, s->batches, &w);
    const tn_feed f = tn_feed_for(to, w.length);
    for (int64_t b = 0; b < s->at.batch; b++) {
        (void)tn_probe_train(s->probe, s->seed, &w, s->at.batch, b, s->scratch, row_of(s, &f, TOKENS, b),
                             row_of(s, &f, LABELS, b));
        if (w.length < f.length) tn_feed_pad_row(&f, b, w.length);
    }
    s->batches++;
    *count = s->at.batch * w.length;
    return TN_OK;
}

static tn_status source_heldout(void *ctx, int64_t i, const tn_feeder *to, int64_t *count)
{
    probe_source *s = ctx;
    const tn_probe *p = s->probe;
    const int64_t group = i % p->groups, first = i / p->groups * s->at.batch, T = p->group[group].length;
    *count = 0;
    if (first >= p->heldout) return TN_OK;
    const tn_feed f = tn_feed_for(to, T);
    for (int64_t b = 0; b < s->at.batch; b++) {
        const bool valid = first + b < p->heldout;
        int32_t *labels = row_of(s, &f, LABELS, b);
        if (valid) tn_probe_held(p, s->at.heldout, group, first + b, s->scratch, row_of(s, &f, TOKENS, b), labels);
        if (!valid || T < f.length) tn_feed_pad_row(&f, b, valid ? T : 0);
        for (int64_t t = 0; valid && t < T; t++) *count += labels[t] >= 0;
    }
    return TN_OK;
}

/* --- the cursor --------------------------------------------------------------------------------------------------------- */

static json_t *source_save(void *ctx)
{
    const probe_source *s = ctx;
    return json_pack("{s:s, s:s, s:I, s:I, s:I}", "kind", "probe", "data", s->hash, "batches", (json_int_t)s->batches,
                     "rows", (json_int_t)s->at.batch, "seed", (json_int_t)s->seed);
}

static tn_status source_load(void *ctx, const json_t *cursor)
{
    probe_source *s = ctx;
    const char *kind = json_string_value(json_object_get(cursor, "kind")),
               *data = json_string_value(json_object_get(cursor, "data"));
    int64_t batches;
    if (!kind || strcmp(kind, "probe") != 0)
        return tn_error(TN_USAGE,
                        "the run was not trained on the task %s: give it the same data, or start over with --fresh",
                        s->probe->task->name);
    if (!data || strcmp(data, s->hash) != 0)
        return tn_error(
            TN_USAGE,
            "the sequences of the task are not those the run began with: put the old task.* settings, train.context "
            "and task.data back, or start over with --fresh or run=OTHER");
    if (tn_cursor_number(cursor, "seed") != (int64_t)s->seed || tn_cursor_number(cursor, "rows") != s->at.batch)
        return tn_error(TN_USAGE, "the run has seed=%lld and train.batch=%lld: set them so, or start over with --fresh",
                        (long long)tn_cursor_number(cursor, "seed"), (long long)tn_cursor_number(cursor, "rows"));
    TN_RETURN_IF(tn_cursor_count(cursor, "batches", &batches));
    s->batches = batches;
    return TN_OK;
}

/* --- a batch again -------------------------------------------------------------------------------------------------------- */

static void source_mark(void *ctx, tn_source_mark *out) { out->at[0] = (uint64_t)((const probe_source *)ctx)->batches; }

static tn_status source_back(void *ctx, const tn_source_mark *to)
{
    ((probe_source *)ctx)->batches = (int64_t)to->at[0];
    return TN_OK;
}

static void source_describe(void *ctx, int64_t row, char *buf, size_t bytes)
{
    const probe_source *s = ctx;
    const int n = snprintf(buf, bytes, "batch %lld of the sequences that seed %llu makes", (long long)s->batches,
                           (unsigned long long)s->seed);
    if (row >= 0 && n > 0 && (size_t)n < bytes) snprintf(buf + n, bytes - (size_t)n, ", row %lld", (long long)row);
}

/* --- opening ------------------------------------------------------------------------------------------------------------ */

static void source_close(void *ctx)
{
    probe_source *s = ctx;
    tn_free(s->scratch);
    tn_free(s->spare);
    tn_probe_free(s->own);
    tn_free(s);
}

static tn_status source_start(tn_source *self, const tn_source_start *how)
{
    probe_source *s = self->ctx;
    s->at = *how;
    s->map = tn_feed_map_of(tn_trainer_inputs(how->trainer), rows, ROWS);
    s->batches = 0;
    return TN_OK;
}

static int64_t source_count(void *ctx, tn_data_split split)
{
    const tn_probe *p = ((const probe_source *)ctx)->probe;
    return split == TN_TRAIN ? INT64_MAX : p->heldout * p->groups;
}

static void source_about(void *ctx, FILE *f)
{
    const tn_probe *p = ((const probe_source *)ctx)->probe;
    fprintf(f, "task    %s, sequences made as they are needed, %lld different tokens, %lld held out of each of",
            p->task->name, (long long)p->vocab, (long long)p->heldout);
    for (int64_t i = 0; i < p->groups; i++) fprintf(f, " %s", p->group[i].name);
    fprintf(f, "\n");
}

static tn_status source_open_heldout(void *ctx, const tn_source_start *how, tn_source *out)
{
    const probe_source *s = ctx;
    return tn_source_probe_open(s->probe, s->seed, how, out);
}

_Static_assert((int)TN_PROBE_LENGTHS <= (int)TN_LOADER_WIDTHS, "a source has room for the widths of a probe");

/* own: closed with the source, also where that fails; or NULL. */
static tn_status make(const tn_probe *p, uint64_t seed, tn_probe *own, tn_source *out)
{
    probe_source *s = tn_alloc(sizeof *s);
    if (!s) {
        tn_probe_free(own);
        return TN_MEMORY;
    }
    *s = (probe_source){ .probe = p,
                         .seed = seed,
                         .own = own,
                         .scratch = tn_alloc(sizeof *s->scratch * (size_t)tn_probe_scratch(p)),
                         .spare = tn_alloc(sizeof *s->spare * 2 * (size_t)p->length) };
    if (!s->scratch || !s->spare) {
        source_close(s);
        return TN_MEMORY;
    }
    tn_probe_hash(p, s->hash);
    for (int64_t i = 0; i < p->groups; i++) s->name[i] = p->group[i].name;
    *out = (tn_source){ .ctx = s,
                        .what = "task",
                        .start = source_start,
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
                        .close = source_close,
                        .rows = rows,
                        .n_rows = ROWS,
                        .bits = NAN,
                        .train_tokens = NAN,
                        .prefetch_depth = 2,
                        .groups = p->groups,
                        .group_name = s->name,
                        .n_widths = p->n_lengths };
    memcpy(out->width, p->lengths, sizeof *out->width * (size_t)out->n_widths);
    tn_source_add_number(out, "vocab", (double)p->vocab);
    tn_source_add_number(out, "answers", 1);
    return TN_OK;
}

tn_status tn_source_probe_open(const tn_probe *p, uint64_t seed, const tn_source_start *how, tn_source *out)
{
    TN_RETURN_IF(make(p, seed, NULL, out));
    return tn_source_started(out, how);
}

bool tn_source_takes_probe(const tn_source_open *o)
{
    const tn_task *task = tn_task_named(tn_settings_text(o->settings, "task.name"));
    return task && task->probe && tn_model_reads(o->model, "tokens");
}

tn_status tn_source_open_probe(const tn_source_open *o, tn_source *out)
{
    tn_probe *p = NULL;
    TN_RETURN_IF(tn_task_fit_probe(o->settings));
    TN_RETURN_IF(tn_probe_open(o->settings, &p));
    return make(p, (uint64_t)tn_settings_int(o->settings, "seed"), p, out);
}
