/* Sums over some axes of a space (elem.h): gradients of broadcast inputs, and the reductions.
 *
 * Results are grouped in units: a piece of the last axis when that is kept, one number when it is summed. Where units
 * are few, what each sums is split into segments whose partial sums are added in order. The split depends on sizes
 * alone, never on threads; all partial sums are double. */
#include "backend/cpu/level.h"
#include "backend/cpu/pool.h"
#include "ops/elem.h"

enum { TILE = 16384, LANES = 8 };

typedef struct sums {
    const tn_elem *e;
    const tn_elem_sum *s;
    bool columns;                                                 /* the last axis is kept */
    int kept[TN_MAX_RANK], summed[TN_MAX_RANK], n_kept, n_summed; /* outer axes */
    int64_t length, pieces;                                       /* of the last axis */
    int64_t units, items, segments, per_tile;
} sums;

/* Adds the offsets of position `index` among the given axes to at. */
static void locate(const tn_elem *e, const int *axis, int n, int64_t index, int64_t *at)
{
    for (int i = n - 1; i >= 0; i--) {
        const int64_t d = e->dim[axis[i]], j = index % d;
        index /= d;
        for (int k = 0; k < e->n; k++) at[k] += j * e->stride[k][axis[i]];
    }
}

/* Moves at to piece p of the last axis; returns the piece's length. */
static int64_t piece_of(const sums *m, int64_t p, int64_t *at)
{
    const int64_t first = p * TN_ELEM_PIECE, left = m->length - first;
    for (int k = 0; k < m->e->n; k++) at[k] += first * tn_elem_step(m->e, k);
    return left < TN_ELEM_PIECE ? left : TN_ELEM_PIECE;
}

static double sum_piece(const float *x, int64_t n)
{
    double lane[LANES] = { 0 };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) lane[k] += (double)x[i + k];
    for (; i < n; i++) lane[i % LANES] += (double)x[i];
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* Sums items [lo, hi) of a unit into acc; returns how many numbers the unit has. at: the unit's first result. */
static int64_t sum_unit(const sums *m, int64_t unit, int64_t lo, int64_t hi, double *acc, int64_t *at)
{
    float buf[TN_ELEM_PIECE];
    int64_t n = 1, here[TN_ELEM_ARGS];
    memset(at, 0, sizeof *at * TN_ELEM_ARGS);
    locate(m->e, m->kept, m->n_kept, m->columns ? unit / m->pieces : unit, at);
    if (m->columns) n = piece_of(m, unit % m->pieces, at);
    memset(acc, 0, sizeof *acc * (size_t)n);
    for (int64_t item = lo; item < hi; item++) {
        memcpy(here, at, sizeof here);
        locate(m->e, m->summed, m->n_summed, m->columns ? item : item / m->pieces, here);
        if (m->columns) {
            const float *x = m->s->fn(m->s->job, m->e, here, n, buf);
            for (int64_t i = 0; i < n; i++) acc[i] += (double)x[i];
        } else {
            const int64_t count = piece_of(m, item % m->pieces, here);
            acc[0] += sum_piece(m->s->fn(m->s->job, m->e, here, count, buf), count);
        }
    }
    return n;
}

static void write_unit(const sums *m, const double *acc, int64_t n, const int64_t *at)
{
    const int k = m->s->target;
    float *y = m->e->data[k] + at[k];
    const int64_t step = tn_elem_step(m->e, k);
    for (int64_t i = 0; i < n; i++) {
        const float x = (float)(acc[i] * m->s->factor);
        y[i * step] = m->s->add ? y[i * step] + x : x;
    }
}

static void whole_tile(void *arg, int64_t t)
{
    const sums *m = arg;
    double acc[TN_ELEM_PIECE];
    int64_t at[TN_ELEM_ARGS];
    const int64_t end = (t + 1) * m->per_tile < m->units ? (t + 1) * m->per_tile : m->units;
    for (int64_t u = t * m->per_tile; u < end; u++) {
        const int64_t n = sum_unit(m, u, 0, m->items, acc, at);
        write_unit(m, acc, n, at);
    }
}

static void segment_tile(void *arg, int64_t t)
{
    const sums *m = arg;
    int64_t at[TN_ELEM_ARGS];
    const int64_t unit = t / m->segments, s = t % m->segments;
    sum_unit(m, unit, m->items * s / m->segments, m->items * (s + 1) / m->segments,
             (double *)m->s->work + t * TN_ELEM_PIECE, at);
}

static void join_tile(void *arg, int64_t unit)
{
    const sums *m = arg;
    double acc[TN_ELEM_PIECE];
    int64_t at[TN_ELEM_ARGS];
    const double *part = (const double *)m->s->work + unit * m->segments * TN_ELEM_PIECE;
    const int64_t n = sum_unit(m, unit, 0, 0, acc, at);
    for (int64_t s = 0; s < m->segments; s++)
        for (int64_t i = 0; i < n; i++) acc[i] += part[s * TN_ELEM_PIECE + i];
    write_unit(m, acc, n, at);
}

TN_LEVELED(void, tn_elem_sum_run, (const tn_elem *e, struct tn_pool *pool, const tn_elem_sum *s), (e, pool, s))
{
    sums m = { .e = e, .s = s, .length = e->dim[e->rank - 1], .units = 1, .items = 1 };
    m.columns = e->stride[s->target][e->rank - 1] != 0;
    m.pieces = (m.length + TN_ELEM_PIECE - 1) / TN_ELEM_PIECE;
    for (int i = 0; i < e->rank - 1; i++) {
        const bool kept = e->stride[s->target][i] != 0;
        if (kept) m.kept[m.n_kept++] = i;
        else m.summed[m.n_summed++] = i;
        *(kept ? &m.units : &m.items) *= e->dim[i];
    }
    *(m.columns ? &m.units : &m.items) *= m.pieces;
    if (!m.units) return;
    const int64_t item = m.length < TN_ELEM_PIECE ? m.length : TN_ELEM_PIECE; /* elements of one */
    const int64_t most = TN_ELEM_TASKS / m.units, worth = m.items * item / 4096;
    m.segments = most < worth ? most : worth;
    if (m.segments > m.items) m.segments = m.items;
    if (m.segments > 1) {
        tn_pool_run(pool, m.units * m.segments, segment_tile, &m);
        tn_pool_run(pool, m.units, join_tile, &m);
        return;
    }
    m.per_tile = TILE / (m.items * item + 1) + 1;
    tn_pool_run(pool, (m.units + m.per_tile - 1) / m.per_tile, whole_tile, &m);
}
