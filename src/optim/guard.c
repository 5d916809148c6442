/* The non-finite policy. A snapshot is a list of the store's arrays and one block of host memory that holds them all,
 * one after the other. */
#include "optim/guard.h"

#include "backend/backend.h"

typedef struct part {
    void *data; /* in the store */
    size_t bytes, at;
} part;

struct tn_guard {
    const tn_backend *backend;
    tn_nonfinite policy;
    int64_t every, good; /* good steps since the snapshot */
    int most_bad, bad;   /* bad steps in a row */
    float lr_factor;
    int64_t applied, snapshot_applied, snapshot_step;
    part *part;
    size_t n_parts, capacity;
    unsigned char *memory;
    size_t bytes;
};

static tn_status add_part(tn_guard *g, void *data, size_t bytes)
{
    if (!data || !bytes) return TN_OK;
    TN_RETURN_IF(tn_grow((void **)&g->part, &g->capacity, g->n_parts + 1, sizeof *g->part));
    g->part[g->n_parts++] = (part){ .data = data, .bytes = bytes, .at = g->bytes };
    if (!tn_add_ok(g->bytes, bytes, &g->bytes))
        return tn_error(TN_MEMORY, "the snapshot of the parameters is too large");
    return TN_OK;
}

static tn_status list_parts(tn_guard *g, const tn_store *st)
{
    for (int i = 0; i < tn_store_buckets(st); i++) {
        const tn_bucket *b = tn_store_bucket(st, i);
        const size_t bytes = sizeof(float) * (size_t)b->count;
        TN_RETURN_IF(add_part(g, b->param, bytes));
        TN_RETURN_IF(add_part(g, b->m, bytes));
        TN_RETURN_IF(add_part(g, b->v, bytes));
    }
    for (size_t i = 0; i < tn_store_count(st); i++) { /* a bad step may have left NaN in a state */
        const tn_entry *e = tn_store_at(st, i);
        if (e->role == TN_ROLE_STATE)
            TN_RETURN_IF(add_part(g, e->data, (size_t)tn_dims_count(e->dims) * tn_dtype_bytes(e->dtype)));
    }
    return TN_OK;
}

static tn_status take(tn_guard *g, int64_t step)
{
    for (size_t i = 0; i < g->n_parts; i++)
        TN_RETURN_IF(g->backend->download(NULL, g->memory + g->part[i].at, g->part[i].data, g->part[i].bytes));
    g->snapshot_step = step;
    g->snapshot_applied = g->applied;
    g->good = 0;
    return TN_OK;
}

static tn_status restore(tn_guard *g)
{
    for (size_t i = 0; i < g->n_parts; i++)
        TN_RETURN_IF(g->backend->upload(NULL, g->part[i].data, g->memory + g->part[i].at, g->part[i].bytes));
    g->applied = g->snapshot_applied;
    g->good = 0;
    return TN_OK;
}

tn_status tn_guard_new(tn_store *st, const tn_guard_options *o, tn_guard **out)
{
    tn_status s = TN_OK;
    tn_guard *g = NULL;
    const tn_backend *b = tn_backend_get(o->device);
    if (!b) return TN_USAGE;
    g = tn_alloc(sizeof *g);
    if (!g) return TN_MEMORY;
    *g = (tn_guard){ .backend = b,
                     .policy = o->policy,
                     .every = o->every > 0 ? o->every : 100,
                     .most_bad = o->most_bad > 0 ? o->most_bad : 3,
                     .lr_factor = o->lr_factor > 0 ? o->lr_factor : 1,
                     .applied = o->applied,
                     .snapshot_step = o->step };
    if (o->policy == TN_NONFINITE_ROLLBACK) {
        TN_TRY(list_parts(g, st));
        g->memory = tn_alloc(g->bytes);
        if (!g->memory) TN_TRY(TN_MEMORY);
        TN_TRY(take(g, o->step));
    }
    *out = g;
    g = NULL;
done:
    tn_guard_free(g);
    return s;
}

void tn_guard_free(tn_guard *g)
{
    if (!g) return;
    tn_free(g->part);
    tn_free(g->memory);
    tn_free(g);
}

static tn_status diverged(const tn_guard *g, int64_t step)
{
    static const char advice[] = "lower train.lr, raise train.warmup or lower train.clip";
    if (g->policy == TN_NONFINITE_STOP)
        return tn_error(TN_DIVERGED,
                        "step %lld: the loss or the gradient is not finite: %s; train.nonfinite=skip or rollback "
                        "continues after single bad steps",
                        (long long)step, advice);
    return tn_error(TN_DIVERGED,
                    "step %lld: the loss or the gradient is not finite, %d steps in a row although "
                    "train.nonfinite=%s: %s, and look at the data of these steps",
                    (long long)step, g->bad, g->policy == TN_NONFINITE_SKIP ? "skip" : "rollback", advice);
}

tn_status tn_guard_after_step(tn_guard *g, bool ok, int64_t step, tn_guard_action *action)
{
    if (ok) {
        g->bad = 0;
        g->good++;
        g->applied++;
        if (g->policy == TN_NONFINITE_ROLLBACK && g->good >= g->every) TN_RETURN_IF(take(g, step));
        *action = TN_GUARD_CONTINUE;
        return TN_OK;
    }
    g->bad++;
    if (g->policy == TN_NONFINITE_ROLLBACK) TN_RETURN_IF(restore(g)); /* also before the end: it may be saved */
    if (g->policy == TN_NONFINITE_STOP || g->bad >= g->most_bad) return diverged(g, step);
    if (g->policy == TN_NONFINITE_ROLLBACK) g->lr_factor *= 0.5f;
    *action = g->policy == TN_NONFINITE_ROLLBACK ? TN_GUARD_ROLLED_BACK : TN_GUARD_SKIPPED;
    return TN_OK;
}

int64_t tn_guard_applied(const tn_guard *g) { return g->applied; }

int64_t tn_guard_snapshot_step(const tn_guard *g) { return g->snapshot_step; }

float tn_guard_lr_factor(const tn_guard *g) { return g->lr_factor; }

size_t tn_guard_bytes(const tn_guard *g) { return g->bytes; }

tn_guard_state tn_guard_state_of(const tn_guard *g)
{
    return (tn_guard_state){ .applied = g->applied,
                             .good = g->good,
                             .bad = g->bad,
                             .snapshot_applied = g->snapshot_applied,
                             .snapshot_step = g->snapshot_step,
                             .lr_factor = g->lr_factor };
}

size_t tn_guard_parts(const tn_guard *g) { return g->n_parts; }

void *tn_guard_part(const tn_guard *g, size_t i, size_t *bytes)
{
    *bytes = g->part[i].bytes;
    return g->memory + g->part[i].at;
}

tn_status tn_guard_resume(tn_guard *g, const tn_guard_state *from, bool has_snapshot, int64_t step)
{
    g->applied = from->applied;
    g->good = from->good;
    g->bad = (int)from->bad;
    g->lr_factor = from->lr_factor;
    g->snapshot_applied = from->snapshot_applied;
    g->snapshot_step = from->snapshot_step;
    return g->policy == TN_NONFINITE_ROLLBACK && !has_snapshot ? take(g, step) : TN_OK;
}
