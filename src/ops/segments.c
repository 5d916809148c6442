/* Walking the segments of a flat array tile by tile, and the checks optimizers share. A tile finds its first segment by
 * bisection, so that thousands of small tensors cost no more than a few large ones. */
#include "ops/segments.h"

#include "base/status.h"

enum { TILE = 16384 }; /* elements */

typedef struct sweep {
    tn_segments s;
    tn_segment_fn *fn;
    const void *job;
} sweep;

/* Ascending, disjoint and inside an array of `count` elements. */
static tn_status check_order(tn_segments s, int64_t count)
{
    int64_t end = 0;
    for (int64_t i = 0; i < s.n; i++) {
        if (s.at[i].offset < end || s.at[i].count < 0 || s.at[i].count > count - s.at[i].offset)
            return tn_error(TN_INTERNAL, "segment %lld (%lld elements from %lld) overlaps or leaves the array of %lld",
                            (long long)i, (long long)s.at[i].count, (long long)s.at[i].offset, (long long)count);
        end = s.at[i].offset + s.at[i].count;
    }
    return TN_OK;
}

/* The first segment that ends after element `at`; n when there is none. */
static int64_t first_after(tn_segments s, int64_t at)
{
    int64_t lo = 0, hi = s.n;
    while (lo < hi) {
        const int64_t mid = lo + (hi - lo) / 2;
        if (s.at[mid].offset + s.at[mid].count > at) hi = mid;
        else lo = mid + 1;
    }
    return lo;
}

static void tile(void *arg, int64_t t)
{
    const sweep *w = arg;
    const int64_t begin = t * TILE, end = begin + TILE;
    for (int64_t i = first_after(w->s, begin); i < w->s.n && w->s.at[i].offset < end; i++) {
        const tn_segment *s = &w->s.at[i];
        const int64_t from = s->offset > begin ? s->offset : begin;
        const int64_t to = s->offset + s->count < end ? s->offset + s->count : end;
        if (to > from) w->fn(w->job, s, from, to - from);
    }
}

void tn_segments_run(tn_segments s, tn_pool *pool, tn_segment_fn *fn, const void *job)
{
    if (!s.n) return;
    sweep w = { .s = s, .fn = fn, .job = job };
    const tn_segment *last = &s.at[s.n - 1];
    tn_pool_run(pool, (last->offset + last->count + TILE - 1) / TILE, tile, &w);
}

tn_status tn_segments_infer(tn_sig *sig, tn_segments s, int flats)
{
    for (int i = 0; i < sig->n_in; i++) {
        const tn_type *t = &sig->in[i];
        const tn_dtype want = i == sig->n_in - 1 ? TN_I32 : TN_F32;
        const bool size = i < flats ? tn_dims_equal(t->dims, sig->in[0].dims) : tn_dims_count(t->dims) == 1;
        if (t->absent || t->dtype != want || !size)
            return tn_error(TN_USAGE, "input %d must be %s %s", i, tn_dtype_name(want),
                            i < flats ? "and as long as the parameters" : "and one number");
    }
    sig->n_out = flats;
    for (int i = 0; i < flats; i++) sig->out[i] = (tn_type){ .dtype = TN_F32, .dims = sig->in[0].dims };
    return check_order(s, tn_dims_count(sig->in[0].dims));
}

tn_status tn_segments_in_place(const tn_call *c)
{
    for (int i = 0; i < c->n_out; i++)
        if (c->out[i].data != c->in[i].data)
            return tn_error(TN_INTERNAL, "output %d is not the memory of input %d: add the node with tn_optim_plan", i,
                            i);
    return TN_OK;
}
