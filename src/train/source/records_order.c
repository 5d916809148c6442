/* Records are shuffled, then sorted by shape without changing the order within one. */
#include "train/source/records_order.h"

#include "base/alloc.h"
#include "base/rng.h"

#include <string.h>

enum { GROUPS = TN_SHAPES_MOST + 1 };

tn_status tn_record_order_new(const tn_record_set *set, tn_record_order *out)
{
    const size_t n = (size_t)set->count[TN_TRAIN];
    tn_record_order o = { .row = tn_alloc(sizeof *o.row * n) };
    if (set->shapes.n) {
        o.spare = tn_alloc(sizeof *o.spare * n);
        o.group = tn_alloc(sizeof *o.group * n);
    }
    if (!o.row || (set->shapes.n && (!o.spare || !o.group))) {
        tn_record_order_free(&o);
        return TN_MEMORY;
    }
    *out = o;
    return TN_OK;
}

void tn_record_order_free(tn_record_order *o)
{
    tn_free(o->row);
    tn_free(o->spare);
    tn_free(o->group);
    *o = (tn_record_order){ 0 };
}

static void swap(int32_t *x, int32_t *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const int32_t keep = x[i];
        x[i] = y[i];
        y[i] = keep;
    }
}

/* n blocks of `each`. */
static void shuffle(int32_t *x, int64_t n, int64_t each, tn_rng r)
{
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t k = (int64_t)tn_rng_below(r, (uint64_t)i, (uint64_t)i + 1);
        if (k != i) swap(x + i * each, x + k * each, each);
    }
}

/* The group of a record: of the least shape behind this one that holds it; the whole one's is the last. */
static int group_of(const tn_record_set *set, const int32_t *row, int64_t epoch, int after)
{
    const int shape = set->shapes.fit(set->data, row, 1, epoch, after);
    return shape ? shape - 1 : set->shapes.n;
}

/* What does not fill a batch of its group goes on to the next that holds it: so whole batches are left, and one rest of the last group. */
static void hand_on(tn_record_order *o, const tn_record_set *set, int64_t batch, int64_t epoch, int64_t count[GROUPS])
{
    for (int g = 0; g < set->shapes.n; g++) {
        int64_t rest = count[g] % batch;
        count[g] -= rest;
        for (int64_t i = set->count[TN_TRAIN]; rest > 0 && i-- > 0;) {
            if (o->group[i] != g) continue;
            o->group[i] = (unsigned char)group_of(set, &o->row[i], epoch, g + 1);
            count[o->group[i]]++;
            rest--;
        }
    }
}

static void sort(tn_record_order *o, const tn_record_set *set, int64_t batch, int64_t epoch)
{
    const int64_t n = set->count[TN_TRAIN];
    int64_t count[GROUPS] = { 0 }, at[GROUPS], next = 0;
    for (int64_t i = 0; i < n; i++) {
        o->group[i] = (unsigned char)group_of(set, &o->row[i], epoch, 0);
        count[o->group[i]]++;
    }
    hand_on(o, set, batch, epoch, count);
    for (int g = 0; g < GROUPS; g++) at[g] = next, next += count[g];
    for (int64_t i = 0; i < n; i++) o->spare[at[o->group[i]]++] = o->row[i];
    memcpy(o->row, o->spare, sizeof *o->row * (size_t)n);
}

void tn_record_order_shuffle(tn_record_order *o, const tn_record_set *set, int64_t batch, int64_t epoch)
{
    const int64_t n = set->count[TN_TRAIN];
    const tn_rng rows = { set->seed, tn_rng_stream("task.order") + (uint64_t)epoch },
                 batches = { set->seed, tn_rng_stream("task.batches") + (uint64_t)epoch };
    for (int64_t i = 0; i < n; i++) o->row[i] = (int32_t)i;
    shuffle(o->row, n, 1, rows);
    if (!set->shapes.n) return;
    sort(o, set, batch, epoch);
    shuffle(o->row, n / batch, batch, batches);
}
