/* Sequences of a probe as batches. Held-out batches take the groups in turn, as tn_source says; the last ones of each group may have
 * rows without a question. */
#include "train/source_probe.h"

#include "base/alloc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct probe_source {
    tn_source_probe_options o;
    char hash[TN_HASH_BYTES]; /* of the probe */
    int64_t batches;          /* handed out */
    int32_t *scratch;
    const char *name[TN_PROBE_GROUPS];
} probe_source;

/* Tokens behind a sequence (the trainer may have no plan of its length) count nowhere, and nothing before them sees them. */
static void pad(const tn_feed *f, int64_t row, int64_t from)
{
    const size_t rest = (size_t)(f->length - from);
    memset(f->tokens + row * f->length + from, 0, rest * sizeof *f->tokens);
    memset(f->labels + row * f->length + from, -1, rest * sizeof *f->labels);
}

static tn_status source_next(void *ctx, tn_trainer *to, int64_t *count)
{
    probe_source *s = ctx;
    tn_probe_which w;
    tn_probe_batch(s->o.probe, s->batches, &w);
    const tn_feed f = tn_trainer_feed_for(to, w.length);
    for (int64_t b = 0; b < s->o.batch; b++) {
        (void)tn_probe_train(s->o.probe, s->o.seed, &w, s->o.batch, b, s->scratch, f.tokens + b * f.length, f.labels + b * f.length);
        pad(&f, b, w.length);
    }
    s->batches++;
    *count = s->o.batch * w.length;
    return TN_OK;
}

static tn_status source_heldout(void *ctx, int64_t i, tn_trainer *to, int64_t *count)
{
    probe_source *s = ctx;
    const tn_probe *p = s->o.probe;
    const int64_t group = i % p->groups, first = i / p->groups * s->o.batch, T = p->group[group].length;
    *count = 0;
    if (first >= p->heldout) return TN_OK;
    const tn_feed f = tn_trainer_feed_for(to, T);
    for (int64_t b = 0; b < s->o.batch; b++) {
        const bool there = first + b < p->heldout;
        int32_t *tokens = f.tokens + b * f.length, *labels = f.labels + b * f.length;
        if (there) tn_probe_held(p, s->o.heldout, group, first + b, s->scratch, tokens, labels);
        pad(&f, b, there ? T : 0);
        for (int64_t t = 0; t < f.length; t++) *count += labels[t] >= 0;
    }
    return TN_OK;
}

/* --- the cursor --------------------------------------------------------------------------------------------------------- */

static json_t *source_save(void *ctx)
{
    const probe_source *s = ctx;
    return json_pack("{s:s, s:s, s:I, s:I, s:I}", "kind", "probe", "data", s->hash, "batches", (json_int_t)s->batches, "rows",
                     (json_int_t)s->o.batch, "seed", (json_int_t)s->o.seed);
}

static int64_t number_of(const json_t *cursor, const char *key) { return json_integer_value(json_object_get(cursor, key)); }

static tn_status source_load(void *ctx, const json_t *cursor)
{
    probe_source *s = ctx;
    const char *kind = json_string_value(json_object_get(cursor, "kind")), *data = json_string_value(json_object_get(cursor, "data"));
    int64_t batches;
    if (!kind || strcmp(kind, "probe") != 0)
        return tn_error(TN_USAGE, "the run was not trained on the task %s: give it the same data, or start over with --fresh",
                        s->o.probe->task->name);
    if (!data || strcmp(data, s->hash) != 0)
        return tn_error(TN_USAGE, "the sequences of the task are not those the run began with: put the old task.* settings, train.context "
                                  "and task.data back, or start over with --fresh or run=OTHER");
    if (number_of(cursor, "seed") != (int64_t)s->o.seed || number_of(cursor, "rows") != s->o.batch)
        return tn_error(TN_USAGE, "the run has seed=%lld and train.batch=%lld: set them so, or start over with --fresh",
                        (long long)number_of(cursor, "seed"), (long long)number_of(cursor, "rows"));
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
    const int n = snprintf(buf, bytes, "batch %lld of the sequences that seed %llu makes", (long long)s->batches, (unsigned long long)s->o.seed);
    if (row >= 0 && n > 0 && (size_t)n < bytes) snprintf(buf + n, bytes - (size_t)n, ", row %lld", (long long)row);
}

/* --- opening ------------------------------------------------------------------------------------------------------------ */

static void source_close(void *ctx)
{
    tn_free(((probe_source *)ctx)->scratch);
    tn_free(ctx);
}

tn_status tn_source_probe_open(const tn_source_probe_options *o, tn_source *out)
{
    probe_source *s = tn_alloc(sizeof *s);
    if (!s) return TN_MEMORY;
    *s = (probe_source){ .o = *o, .scratch = tn_alloc(sizeof *s->scratch * (size_t)tn_probe_scratch(o->probe)) };
    if (!s->scratch) {
        source_close(s);
        return TN_MEMORY;
    }
    tn_probe_hash(o->probe, s->hash);
    for (int64_t i = 0; i < o->probe->groups; i++) s->name[i] = o->probe->group[i].name;
    *out = (tn_source){ .ctx = s, .mark = source_mark, .back = source_back, .describe = source_describe, .next = source_next, .heldout = source_heldout, .save = source_save, .load = source_load,
                        .close = source_close, .bits = NAN, .train_tokens = NAN, .groups = o->probe->groups, .group_name = s->name };
    return TN_OK;
}
