/* Non-domination ranks and crowding. Points are taken in lexicographic order, in which none is dominated by a later
 * one; each joins the first front without a dominator, found by bisection (Zhang, Tian, Cheng and Jin 2015). */
#include "lab/search/pareto.h"

#include "base/alloc.h"
#include "lab/search/sorted.h"

#include <math.h>
#include <string.h>

static bool finite_all(const double *a, size_t m)
{
    for (size_t k = 0; k < m; k++)
        if (!isfinite(a[k])) return false;
    return true;
}

static bool dominates_finite(const double *a, const double *b, size_t m)
{
    bool better = false;
    for (size_t k = 0; k < m; k++) {
        if (a[k] > b[k]) return false;
        better |= a[k] < b[k];
    }
    return better;
}

bool tn_dominates(const double *a, const double *b, size_t m)
{
    if (!finite_all(a, m)) return false;
    return !finite_all(b, m) || dominates_finite(a, b, m);
}

typedef struct row {
    const double *y; /* (m) */
    size_t m, at;
} row;

static int row_compare(const void *a, const void *b)
{
    const row *p = a, *q = b;
    for (size_t k = 0; k < p->m; k++)
        if (p->y[k] != q->y[k]) return p->y[k] < q->y[k] ? -1 : 1;
    return (p->at > q->at) - (p->at < q->at);
}

/* The finite points in lexicographic order. *rows is the caller's to free. */
static tn_status sorted_rows(const double *y, size_t n, size_t m, row **rows, size_t *count)
{
    size_t bytes, cells, k = 0;
    if (m == 0) return tn_error(TN_USAGE, "a front needs one objective or more");
    if (!tn_mul_ok(n ? n : 1, sizeof(row), &bytes) || !tn_mul_ok(n, m, &cells))
        return tn_error(TN_MEMORY, "%zu points are too many", n);
    row *v = tn_alloc(bytes);
    if (!v) return TN_MEMORY;
    for (size_t i = 0; i < n; i++)
        if (finite_all(y + i * m, m)) v[k++] = (row){ .y = y + i * m, .m = m, .at = i };
    qsort(v, k, sizeof *v, row_compare);
    *rows = v;
    *count = k;
    return TN_OK;
}

/* Fronts as chains: last[f] is the newest member of front f, before[i] the one before row i (SIZE_MAX: none). */
typedef struct fronts {
    const row *rows;
    size_t m, *last, *before, count;
} fronts;

/* With two objectives the newest member is the lowest in the second, so it alone can tell. */
static bool front_dominates(const fronts *f, size_t front, size_t i)
{
    for (size_t j = f->last[front]; j != SIZE_MAX; j = f->m <= 2 ? SIZE_MAX : f->before[j])
        if (dominates_finite(f->rows[j].y, f->rows[i].y, f->m)) return true;
    return false;
}

static size_t first_front(const fronts *f, size_t i)
{
    size_t lo = 0, hi = f->count;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (front_dominates(f, mid, i)) lo = mid + 1;
        else hi = mid;
    }
    return lo;
}

static void front_join(fronts *f, size_t front, size_t i)
{
    if (front == f->count) f->last[f->count++] = SIZE_MAX;
    f->before[i] = f->last[front];
    f->last[front] = i;
}

tn_status tn_pareto_ranks(const double *y, size_t n, size_t m, int *rank)
{
    tn_status s = TN_OK;
    row *rows = NULL;
    size_t *chains = NULL, k = 0;
    TN_TRY(sorted_rows(y, n, m, &rows, &k));
    if (!(chains = tn_alloc((2 * k + 1) * sizeof *chains))) TN_TRY(TN_MEMORY);
    fronts f = { .rows = rows, .m = m, .last = chains, .before = chains + k };
    for (size_t i = 0; i < n; i++) rank[i] = -1;
    for (size_t i = 0; i < k; i++) {
        const size_t front = first_front(&f, i);
        front_join(&f, front, i);
        rank[rows[i].at] = (int)front;
    }
    for (size_t i = 0; i < n; i++)
        if (rank[i] < 0) rank[i] = (int)f.count;
done:
    tn_free(rows);
    tn_free(chains);
    return s;
}

tn_status tn_pareto_front(const double *y, size_t n, size_t m, bool *on)
{
    tn_status s = TN_OK;
    row *rows = NULL;
    size_t *chains = NULL, k = 0;
    TN_TRY(sorted_rows(y, n, m, &rows, &k));
    if (!(chains = tn_alloc((k + 1) * sizeof *chains))) TN_TRY(TN_MEMORY);
    size_t none = SIZE_MAX;
    fronts f = { .rows = rows, .m = m, .last = &none, .before = chains, .count = 1 };
    for (size_t i = 0; i < n; i++) on[i] = k == 0; /* where none is finite, none dominates */
    for (size_t i = 0; i < k; i++) {
        if (front_dominates(&f, 0, i)) continue;
        front_join(&f, 0, i);
        on[rows[i].at] = true;
    }
done:
    tn_free(rows);
    tn_free(chains);
    return s;
}

/* Adds objective k's part for the members of one rank: order (c), sorted by that objective. */
static void crowd_one(const double *y, size_t m, size_t k, const tn_keyed *order, size_t c, double *crowding)
{
    const double width = order[c - 1].key - order[0].key;
    if (!(width > 0)) return;
    crowding[order[0].at] = crowding[order[c - 1].at] = INFINITY;
    for (size_t i = 1; i + 1 < c; i++)
        crowding[order[i].at] += (y[order[i + 1].at * m + k] - y[order[i - 1].at * m + k]) / width;
}

tn_status tn_crowding(const double *y, size_t n, size_t m, const int *rank, double *crowding)
{
    tn_keyed *by_rank = tn_alloc((2 * n + 1) * sizeof *by_rank);
    if (!by_rank) return TN_MEMORY;
    tn_keyed *order = by_rank + n;
    size_t c = 0;
    for (size_t i = 0; i < n; i++) {
        crowding[i] = 0;
        if (finite_all(y + i * m, m)) by_rank[c++] = (tn_keyed){ (double)rank[i], i };
    }
    tn_keyed_sort(by_rank, c);
    for (size_t a = 0, b; a < c; a = b) {
        for (b = a; b < c && by_rank[b].key == by_rank[a].key; b++) {
        }
        for (size_t k = 0; k < m; k++) {
            for (size_t i = a; i < b; i++) order[i - a] = (tn_keyed){ y[by_rank[i].at * m + k], by_rank[i].at };
            tn_keyed_sort(order, b - a);
            crowd_one(y, m, k, order, b - a, crowding);
        }
    }
    tn_free(by_rank);
    return TN_OK;
}
