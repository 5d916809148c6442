/* Computes a step again to find what was not finite. States that the bad step made non-finite start from zero. */
#include "train/run/training_internal.h"

#include "train/trainer/trainer_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- states ------------------------------------------------------------------------------------------------------------- */

static bool is_finite(const tn_entry *e, const void *data)
{
    const float *x = data;
    for (int64_t i = 0; e->dtype == TN_F32 && i < tn_dims_count(e->dims); i++)
        if (!isfinite(x[i])) return false;
    return true;
}

static size_t bytes_of(const tn_entry *e) { return (size_t)tn_dims_count(e->dims) * tn_dtype_bytes(e->dtype); }

static size_t states_bytes(const tn_store *st)
{
    size_t n = 0;
    for (size_t i = 0; i < tn_store_count(st); i++)
        if (tn_store_at(st, i)->role == TN_ROLE_STATE) n += bytes_of(tn_store_at(st, i));
    return n;
}

/* Into `kept`, one after the other; those that are not finite become zero, and *bad is the first of them. */
static tn_status keep_states(const tn_store *st, unsigned char *kept, const tn_entry **bad)
{
    tn_status s = TN_OK;
    tn_host_copy host = { 0 };
    for (size_t i = 0, at = 0; i < tn_store_count(st); i++) {
        const tn_entry *e = tn_store_at(st, i);
        if (e->role != TN_ROLE_STATE) continue;
        const void *data = tn_store_read(st, e->data, bytes_of(e), &host);
        if (!data) TN_TRY(TN_MEMORY);
        memcpy(kept + at, data, bytes_of(e));
        if (!is_finite(e, kept + at)) {
            TN_TRY(tn_store_clear(st, e->data, bytes_of(e)));
            if (!*bad) *bad = e;
        }
        at += bytes_of(e);
    }
done:
    tn_host_copy_free(&host);
    return s;
}

static tn_status put_states_back(const tn_store *st, const unsigned char *kept)
{
    for (size_t i = 0, at = 0; i < tn_store_count(st); i++) {
        const tn_entry *e = tn_store_at(st, i);
        if (e->role != TN_ROLE_STATE) continue;
        TN_RETURN_IF(tn_store_write(st, e->data, kept + at, bytes_of(e)));
        at += bytes_of(e);
    }
    return TN_OK;
}

/* --- the step ------------------------------------------------------------------------------------------------------------- */

/* Of which row of the batch a place along the outermost axis is: sequences, or tokens one after the other. */
static int64_t row_of(const tn_training *t, const tn_finding *f)
{
    const tn_feed feed = tn_trainer_feed_again(t->trainer);
    if (f->row < 0 || feed.batch < 1) return -1;
    return f->rows == feed.batch ? f->row : f->rows == feed.batch * feed.length ? f->row / feed.length : -1;
}

/* Batch by batch, to the first that has such a number. */
static tn_status compute(const tn_training *t, int64_t step, tn_finding *f, tn_diagnosis *out)
{
    const int64_t n = tn_trainer_batches(t->trainer);
    for (int64_t i = 0; i < n && !f->found; i++) {
        int64_t count;
        TN_RETURN_IF(tn_source_next(t->source, step, t->trainer, &count));
        const float weight = n > 1 ? tn_source_weight(t->source, count) : 1;
        if (weight == 0) continue; /* as in the step */
        tn_trainer_weigh(t->trainer, weight);
        tn_trainer_steady(t->trainer, true); /* packed anew, from the parameters as they are */
        TN_RETURN_IF(tn__trainer_run_grad(t->trainer, step * n + i));
        if (f->found || n == 1)
            tn_source_describe(t->source, f->found ? row_of(t, f) : -1, out->batch, sizeof out->batch);
    }
    if (!f->found && n > 1)
        snprintf(out->batch, sizeof out->batch, "the %lld batches of step %lld", (long long)n, (long long)step + 1);
    return TN_OK;
}

static tn_status diagnose(const tn_training *t, int64_t step, tn_diagnosis *out)
{
    tn_status s = TN_OK;
    tn_finding f = { 0 };
    const tn_entry *bad = NULL;
    tn_store *st = tn_trainer_store(t->trainer);
    unsigned char *kept = tn_alloc(states_bytes(st) + 1);
    if (!kept) return TN_MEMORY;
    TN_TRY(keep_states(st, kept, &bad));
    tn_trainer_check(t->trainer, &f);
    s = compute(t, step, &f, out);
    tn_trainer_check(t->trainer, NULL);
    if (s == TN_OK && f.found) snprintf(out->tensor, sizeof out->tensor, "%s", f.text);
    else if (s == TN_OK && bad)
        snprintf(out->tensor, sizeof out->tensor, "the state %.200s, kept from step to step", bad->name);
    else if (s == TN_OK)
        snprintf(out->tensor, sizeof out->tensor,
                 "none found when the step was recomputed: later steps have changed the weights, or the norm alone "
                 "overflowed");
    tn_store_zero_grad(st);
    const tn_status back = put_states_back(st, kept);
    if (s == TN_OK) s = back;
done:
    tn_free(kept);
    return s;
}

tn_status tn_diagnose(const tn_training *t, const tn_source_mark *from, int64_t step, tn_diagnosis *out)
{
    tn_source_mark now;
    tn_diagnosis d = { .tensor = "" };
    *out = d;
    if (!t->source->mark || t->undiagnosed) return TN_OK;
    tn_source_mark_here(t->source, &now);
    TN_RETURN_IF(tn_source_back(t->source, from));
    tn_status s = diagnose(t, step, &d);
    const tn_status back = tn_source_back(t->source, &now);
    if (s == TN_OK) s = back;
    if (s == TN_OK) *out = d;
    return s;
}
