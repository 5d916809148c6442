/* Chooses a run's source, and what all sources share. */
#include "train/source/source.h"

#include "base/alloc.h"
#include "base/status.h"
#include "train/source/prefetch.h"
#include "train/source/split.h"
#include "train/source/task_setup.h"

#include <string.h>

static const struct {
    bool (*takes)(const tn_source_open *o);
    tn_status (*open)(const tn_source_open *o, tn_source *out);
} kinds[] = {
#define TN_SOURCE_KIND(name) { tn_source_takes_##name, tn_source_open_##name },
#include "train/source/sources.def"
#undef TN_SOURCE_KIND
};

tn_status tn_source_find(const tn_source_open *o, tn_source *out)
{
    *out = (tn_source){ 0 };
    TN_RETURN_IF(tn_inputs_check(o->model, o->settings));
    TN_RETURN_IF(tn_task_check(o->model, o->settings));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!kinds[i].takes(o)) continue;
        const tn_status s = kinds[i].open(o, out);
        if (s != TN_OK) tn_source_close(out);
        return s;
    }
    return o->needed ? tn_task_missing(o->model) : tn_task_defaults(o->model, o->settings);
}

void tn_source_stop(tn_source *s)
{
    tn_split_free(s->split);
    tn_prefetch_free(s->prefetch);
    s->split = NULL;
    s->prefetch = NULL;
}

void tn_source_close(tn_source *s)
{
    tn_source_stop(s);
    if (s->ctx) s->close(s->ctx);
    *s = (tn_source){ 0 };
}

tn_status tn_source_started(tn_source *s, const tn_source_start *how)
{
    const tn_status st = s->start(s, how);
    if (st != TN_OK) tn_source_close(s);
    return st;
}

/* --- a run's calls -------------------------------------------------------------------------------------------------------- */

static bool can_prefetch(const tn_source *s, const tn_source_start *how)
{
    return !s->on_policy && !s->text && s->mark && !how->heldout_only;
}

tn_status tn_source_begin(tn_source *s, const tn_source_start *how, int prefetch)
{
    tn_source_stop(s);
    TN_RETURN_IF(s->start(s, how));
    if (prefetch > 0 && can_prefetch(s, how)) TN_RETURN_IF(tn_prefetch_new(s, how, prefetch, &s->prefetch));
    return how->microbatches > 1 ? tn_split_new(s, how, &s->split) : TN_OK;
}

tn_status tn_source_bytes(const tn_source *s, const tn_model *model, const tn_settings *st, const tn_source_start *how,
                          int prefetch, size_t *out)
{
    const tn_input_spec input_spec = tn_source_input_spec(s);
    tn_inputs in;
    const bool ahead = prefetch > 0 && can_prefetch(s, how);
    *out = s->bytes ? s->bytes(s->ctx, how) : 0;
    if (!ahead && how->microbatches < 2) return TN_OK;
    TN_RETURN_IF(tn_inputs_match(model, st, &input_spec, &in));
    if (!tn_add_ok(*out, ahead ? tn_prefetch_bytes(&in, how->batch, how->length, prefetch) : 0, out) ||
        !tn_add_ok(*out, tn_split_bytes(&in, how), out))
        *out = SIZE_MAX;
    return TN_OK;
}

tn_status tn_source_make_ready(const tn_source *s, const tn_source_prepare *how)
{
    if (!s->prepare) return TN_OK;
    if (s->prefetch) TN_RETURN_IF(tn_prefetch_sync(s->prefetch, false)); /* nobody reads what is made anew */
    return s->prepare(s->ctx, how);
}

void tn_source_trace(const tn_source *s, struct tn_tracer *to)
{
    if (s->prefetch) tn_prefetch_trace(s->prefetch, to);
    if (s->trace) s->trace(s->ctx, to);
}

void tn_source_rest(const tn_source *s)
{
    if (s->prefetch) tn_prefetch_pause(s->prefetch);
    if (s->rest) s->rest(s->ctx);
}

static tn_status next_batch(void *source, int64_t step, const tn_feeder *to, int64_t *count)
{
    const tn_source *s = source;
    return s->prefetch ? tn_prefetch_next(s->prefetch, step, to, count) : s->next(s->ctx, step, to, count);
}

tn_status tn_source_next(const tn_source *s, int64_t step, tn_trainer *to, int64_t *count)
{
    const double begun = tn_trainer_watch_clock(to);
    const tn_feeder feeder = tn_trainer_batch_feeder(to);
    void *own = (void *)(uintptr_t)s; /* which next_batch only reads */
    TN_RETURN_IF(s->split ? tn_split_next(s->split, next_batch, own, step, &feeder, count)
                          : next_batch(own, step, &feeder, count));
    tn_trainer_watch_data(to, begun);
    return TN_OK;
}

float tn_source_weight(const tn_source *s, int64_t count)
{
    const double of = s->split ? (double)tn_split_count(s->split) : (double)count;
    const double whole = s->weigh_of > 0 ? of * s->weigh_by / s->weigh_of : 1;
    return (float)(s->split ? whole * (double)tn_split_weight(s->split) : whole);
}

tn_status tn_source_heldout(const tn_source *s, int64_t i, tn_trainer *to, int64_t *count)
{
    const double begun = tn_trainer_watch_clock(to);
    const tn_feeder feeder = tn_trainer_feeder(to);
    *count = 0;
    if (!s->heldout) return TN_OK;
    if (s->split) return tn_source_heldout(tn_split_heldout(s->split), i, to, count);
    if (s->prefetch) tn_prefetch_pause(s->prefetch);
    const tn_status st = s->heldout(s->ctx, i, &feeder, count);
    if (s->prefetch) tn_prefetch_resume(s->prefetch);
    tn_trainer_watch_data(to, begun);
    return st;
}

json_t *tn_source_save(const tn_source *s)
{
    return s->prefetch && tn_prefetch_sync(s->prefetch, false) != TN_OK ? NULL : s->save(s->ctx);
}

tn_status tn_source_load(const tn_source *s, const json_t *cursor)
{
    if (s->split) tn_split_forget(s->split);
    if (s->prefetch) TN_RETURN_IF(tn_prefetch_sync(s->prefetch, false));
    return s->load(s->ctx, cursor);
}

void tn_source_mark_here(const tn_source *s, tn_source_mark *out)
{
    if (s->prefetch) tn_prefetch_mark(s->prefetch, out);
    else s->mark(s->ctx, out);
}

tn_status tn_source_back(const tn_source *s, const tn_source_mark *to)
{
    if (s->split) tn_split_forget(s->split);
    if (s->prefetch) TN_RETURN_IF(tn_prefetch_sync(s->prefetch, false));
    return s->back(s->ctx, to);
}

void tn_source_describe(const tn_source *s, int64_t row, char *buf, size_t bytes)
{
    buf[0] = 0;
    if (s->split) row = tn_split_row(s->split, row);
    if (!s->prefetch || tn_prefetch_sync(s->prefetch, true) == TN_OK) s->describe(s->ctx, row, buf, bytes);
}

/* --- numbers --------------------------------------------------------------------------------------------------------------- */

tn_input_spec tn_source_input_spec(const tn_source *s)
{
    return (tn_input_spec){ .rows = s->rows, .n_rows = s->n_rows, .numbers = s->number, .n_numbers = s->n_numbers };
}

void tn_source_add_number(tn_source *s, const char *name, double value)
{
    size_t i = 0;
    while (i < s->n_numbers && strcmp(s->number[i].name, name) != 0) i++;
    if (i == TN_SOURCE_NUMBERS) return;
    s->number[i] = (tn_source_number){ name, value };
    if (i == s->n_numbers) s->n_numbers++;
}

double tn_source_number_of(const tn_source *s, const char *name)
{
    const tn_input_spec has = tn_source_input_spec(s);
    return tn_input_spec_number(&has, name);
}

tn_status tn_cursor_count(const json_t *cursor, const char *key, int64_t *out)
{
    const json_t *v = json_object_get(cursor, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > TN_CURSOR_MAX)
        return tn_error(TN_BAD_FILE,
                        "the checkpoint's position in the data is invalid (%s is not a count): use another checkpoint, "
                        "or start over with --fresh",
                        key);
    *out = json_integer_value(v);
    return TN_OK;
}
