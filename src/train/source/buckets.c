/* Groups of rows, halved greedily. All choices follow from the rows alone: equal sizes are in the order of rows. */
#include "train/source/buckets.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

typedef struct place {
    int32_t value, row;
} place;

typedef struct group {
    int64_t first, n; /* places */
    int32_t most[TN_BUCKET_SIZES];
    double cost; /* of all its rows */
    /* its best cut: by which size, after so many of its places in that order, and what it saves */
    int by;
    int64_t left;
    double gain;
} group;

typedef struct work {
    const tn_bucket_rows *r;
    place *at;      /* (n) */
    double *behind; /* (n): of the rows from here on, as a group */
    group group[TN_BUCKETS_MOST + 1];
    int groups;
} work;

static int by_value(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->value != y->value) return x->value < y->value ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

static void sort(const work *w, const group *g, int by)
{
    place *at = w->at + g->first;
    for (int64_t i = 0; i < g->n; i++) at[i].value = w->r->size[(int64_t)at[i].row * w->r->sizes + by];
    qsort(at, (size_t)g->n, sizeof *at, by_value);
}

static void include(const work *w, const place *at, int32_t *most)
{
    const int32_t *x = w->r->size + (int64_t)at->row * w->r->sizes;
    for (int k = 0; k < w->r->sizes; k++) most[k] = x[k] > most[k] ? x[k] : most[k];
}

static double cost_of(const work *w, int64_t n, const int32_t *most) { return (double)n * w->r->cost(w->r->ctx, most); }

/* Between two values that differ, what both sides cost. */
static void look_along(work *w, group *g, int by)
{
    int32_t most[TN_BUCKET_SIZES] = { 0 };
    const place *at = w->at + g->first;
    double *behind = w->behind + g->first;
    sort(w, g, by);
    for (int64_t i = g->n; i-- > 1;) {
        include(w, &at[i], most);
        if (at[i].value != at[i - 1].value) behind[i] = cost_of(w, g->n - i, most);
    }
    memset(most, 0, sizeof most);
    for (int64_t i = 1; i < g->n; i++) {
        include(w, &at[i - 1], most);
        if (at[i].value == at[i - 1].value) continue;
        const double gain = g->cost - cost_of(w, i, most) - behind[i];
        if (gain > g->gain) g->gain = gain, g->by = by, g->left = i;
    }
}

static void look(work *w, group *g)
{
    memset(g->most, 0, sizeof g->most);
    for (int64_t i = 0; i < g->n; i++) include(w, &w->at[g->first + i], g->most);
    g->cost = cost_of(w, g->n, g->most);
    g->gain = 0;
    for (int by = 0; by < w->r->sizes; by++) look_along(w, g, by);
}

/* Halves the group where that saves the most; false: nowhere. */
static bool halve(work *w)
{
    group *best = w->group, *right = &w->group[w->groups];
    for (int i = 1; i < w->groups; i++) best = w->group[i].gain > best->gain ? &w->group[i] : best;
    if (best->gain <= 0) return false;
    sort(w, best, best->by);
    *right = (group){ .first = best->first + best->left, .n = best->n - best->left };
    best->n = best->left;
    w->groups++;
    look(w, best);
    look(w, right);
    return true;
}

static double cost_of_all(const work *w)
{
    double sum = 0;
    for (int i = 0; i < w->groups; i++) sum += w->group[i].cost;
    return sum;
}

/* The group whose rows lose the least at the shape that is always there goes to it. */
static void give_one(work *w)
{
    const double all = w->r->cost(w->r->ctx, w->r->all);
    int least = 0;
    for (int i = 1; i < w->groups; i++) {
        const group *a = &w->group[least], *b = &w->group[i];
        if ((double)b->n * all - b->cost < (double)a->n * all - a->cost) least = i;
    }
    w->group[least] = w->group[--w->groups];
}

static int by_cost(const void *a, const void *b)
{
    const group *x = a, *y = b;
    const double cx = x->cost / (double)x->n, cy = y->cost / (double)y->n;
    if (cx < cy || cx > cy) return cx < cy ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

tn_status tn_buckets_choose(const tn_bucket_rows *r, double enough, int most, int32_t *shape, int *n)
{
    tn_status s = TN_OK;
    work *w = tn_alloc(sizeof *w);
    *n = 0;
    if (!w) return TN_MEMORY;
    *w = (work){ .r = r };
    if (r->n < 1 || r->n > INT32_MAX || r->sizes > TN_BUCKET_SIZES || most > TN_BUCKETS_MOST)
        TN_FAIL(TN_INTERNAL, "%lld rows of %d sizes for %d shapes", (long long)r->n, r->sizes, most);
    w->at = tn_alloc(sizeof *w->at * (size_t)r->n);
    w->behind = tn_alloc(sizeof *w->behind * (size_t)r->n);
    if (!w->at || !w->behind) TN_TRY(TN_MEMORY);
    for (int64_t i = 0; i < r->n; i++) w->at[i] = (place){ 0, (int32_t)i };
    w->group[0] = (group){ .n = r->n };
    w->groups = 1;
    look(w, &w->group[0]);
    /* One of them will have the shape that holds everything. */
    while (w->groups <= most && cost_of_all(w) > enough && halve(w)) {
    }
    give_one(w);
    qsort(w->group, (size_t)w->groups, sizeof *w->group, by_cost);
    for (int i = 0; i < w->groups; i++)
        memcpy(shape + i * r->sizes, w->group[i].most, sizeof *shape * (size_t)r->sizes);
    *n = w->groups;
done:
    if (w) {
        tn_free(w->at);
        tn_free(w->behind);
    }
    tn_free(w);
    return s;
}
