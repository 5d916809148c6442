/* The blocked recurrence of scan_core.h: tiles and phases first, then the three inner loops (advance, retreat,
 * spread). A piece of tokens never crosses a reset, so the inner loops know nothing of documents: a reset zeroes the
 * state (or, backwards, the adjoint) between two pieces. */
#include "ops/scan/scan_core.h"

#include <string.h>

enum {
    W = TN_SCAN_W,
    N = TN_SCAN_N,
    FEW_TILES = 4,    /* fewer tiles than this are cut along time as well */
    MOST_CHUNKS = 1024 /* bounds the workspace of very long rows */
};

/* A state, an adjoint or a product of lambdas of one block of channels. */
typedef struct number_row {
    double re[W], im[W];
} number_row;

/* Between the phases, one per tile. */
typedef struct tn_scan_edge {
    number_row left;    /* what the piece leaves behind when nothing enters it */
    number_row product; /* of its lambdas */
    number_row enters;  /* the state (backward: the adjoint) that really enters it */
    double sums[TN_SCAN_SUMS][W];
    int64_t cut; /* a document starts inside: what enters does not leave */
} tn_scan_edge;

/* --- the cut --------------------------------------------------------------------------------------------------------- */

static int64_t span_of(int64_t B, int64_t T, int64_t K, int64_t chunk)
{
    const int64_t tiles = B * (tn_scan_padded(K) / W), least = (T + MOST_CHUNKS - 1) / MOST_CHUNKS;
    if (tiles >= FEW_TILES || T <= chunk) return T > 0 ? T : 1;
    return chunk > least ? chunk : least;
}

static int64_t chunks_of(int64_t T, int64_t span) { return T > 0 ? (T + span - 1) / span : 1; }

size_t tn_scan_core_work(int64_t B, int64_t T, int64_t K, int64_t chunk)
{
    const size_t tiles = (size_t)(B * (tn_scan_padded(K) / W) * chunks_of(T, span_of(B, T, K, chunk)));
    return tiles * sizeof(tn_scan_edge) + (size_t)(TN_SCAN_SUMS * tn_scan_padded(K)) * sizeof(double);
}

static void cut_job(tn_scan_job *j)
{
    j->blocks = tn_scan_padded(j->K) / W;
    j->span = span_of(j->B, j->T, j->K, j->chunk);
    j->chunks = chunks_of(j->T, j->span);
    j->sums = j->work;
    j->edge = (tn_scan_edge *)(void *)(j->sums + TN_SCAN_SUMS * tn_scan_padded(j->K));
}

typedef struct tile {
    int64_t b, k, w, first, last; /* tokens first..last-1 */
    tn_scan_edge *edge;
} tile;

static tile tile_at(const tn_scan_job *j, int64_t i)
{
    const int64_t chunk = i % j->chunks, block = i / j->chunks % j->blocks;
    tile t = { .b = i / j->chunks / j->blocks, .k = block * W, .first = chunk * j->span, .edge = &j->edge[i] };
    t.last = t.first + j->span < j->T ? t.first + j->span : j->T;
    t.w = j->K - t.k < W ? j->K - t.k : W;
    return t;
}

static bool starts(const tn_scan_job *j, int64_t b, int64_t t) { return j->reset && j->reset[b * j->T + t]; }

/* Tokens from t on (at most N, before `last`) up to the next document. */
static int64_t piece_after(const tn_scan_job *j, int64_t b, int64_t t, int64_t last)
{
    int64_t n = 1;
    while (n < N && t + n < last && !starts(j, b, t + n)) n++;
    return n;
}

/* Tokens before `end` (at most N, from `first` on) back to the start of their document. */
static int64_t piece_before(const tn_scan_job *j, int64_t b, int64_t end, int64_t first)
{
    int64_t n = 1;
    while (n < N && end - n > first && !starts(j, b, end - n)) n++;
    return n;
}

static void load_row(number_row *s, const float *row, int64_t K, int64_t w)
{
    memset(s, 0, sizeof *s);
    for (int64_t k = 0; row && k < w; k++) {
        s->re[k] = (double)row[k];
        s->im[k] = (double)row[K + k];
    }
}

static void store_row(float *row, const number_row *s, int64_t K, int64_t w, bool add)
{
    for (int64_t k = 0; k < w; k++) {
        row[k] = (float)s->re[k] + (add ? row[k] : 0.f);
        row[K + k] = (float)s->im[k] + (add ? row[K + k] : 0.f);
    }
}

/* --- planes: rows of w channels in a tensor (B,T,2K), or a padded copy of them --------------------------------------- */

typedef struct planes {
    float *at;        /* real part of the first token's first channel */
    int64_t step, im; /* to the next token; to the imaginary part */
} planes;

typedef struct padded {
    float x[N][2 * W];
} padded;

static planes planes_of(const float *p, const tn_scan_job *j, const tn_scan_at *a)
{
    return (planes){ (float *)(uintptr_t)p + (a->b * j->T + a->t) * 2 * j->K + a->k, 2 * j->K, j->K };
}

/* Full blocks are read where they lie; a last, narrow block is copied between zeros. */
static planes read_planes(const float *p, const tn_scan_job *j, const tn_scan_at *a, padded *room)
{
    const planes from = planes_of(p, j, a);
    if (a->w == W) return from;
    memset(room, 0, sizeof *room);
    for (int64_t i = 0; i < a->n; i++)
        for (int64_t k = 0; k < a->w; k++) {
            room->x[i][k] = from.at[i * from.step + k];
            room->x[i][W + k] = from.at[i * from.step + from.im + k];
        }
    return (planes){ room->x[0], 2 * W, W };
}

static void write_back(float *p, const tn_scan_job *j, const tn_scan_at *a, const padded *room)
{
    const planes to = planes_of(p, j, a);
    for (int64_t i = 0; i < a->n; i++)
        for (int64_t k = 0; k < a->w; k++) {
            to.at[i * to.step + k] = room->x[i][k];
            to.at[i * to.step + to.im + k] = room->x[i][W + k];
        }
}

/* --- the inner loops: two channels per vector, eight per pass so that the state stays in registers ------------------- */

typedef double pair __attribute__((vector_size(16)));
typedef float half_pair __attribute__((vector_size(8)));
enum { LANES = 2, VECTORS = 4, PASS = LANES * VECTORS };

static inline pair load_f32(const float *p)
{
    half_pair x;
    memcpy(&x, p, sizeof x);
    return __builtin_convertvector(x, pair);
}

static inline void store_f32(float *p, pair x)
{
    const half_pair y = __builtin_convertvector(x, half_pair);
    memcpy(p, &y, sizeof y);
}

static inline pair load_f64(const double *p)
{
    pair x;
    memcpy(&x, p, sizeof x);
    return x;
}

static inline void store_f64(double *p, pair x) { memcpy(p, &x, sizeof x); }

/* c_t = lambda_t c_{t-1} + gain_t x_t for n tokens of channels h..h+7; c.at may be NULL: only the state moves. */
static inline void advance_pass(number_row *s, const tn_scan_coef *q, int64_t n, planes x, planes c, int64_t h, bool gain)
{
    pair re[VECTORS], im[VECTORS];
    for (int v = 0; v < VECTORS; v++) re[v] = load_f64(&s->re[h + LANES * v]), im[v] = load_f64(&s->im[h + LANES * v]);
    for (int64_t i = 0; i < n; i++) {
        const float *xi = x.at + i * x.step + h;
        const double *lr = q->lr + i * q->step + h, *li = q->li + i * q->step + h;
        for (int v = 0; v < VECTORS; v++) {
            const int k = LANES * v;
            pair ur = load_f32(xi + k), ui = load_f32(xi + x.im + k);
            if (gain) {
                const pair g = load_f64(q->gain + i * q->gain_step + h + k);
                ur *= g;
                ui *= g;
            }
            const pair a = load_f64(lr + k), b = load_f64(li + k);
            const pair r = ur + a * re[v] - b * im[v];
            im[v] = ui + a * im[v] + b * re[v];
            re[v] = r;
            if (c.at) {
                store_f32(c.at + i * c.step + h + k, re[v]);
                store_f32(c.at + i * c.step + c.im + h + k, im[v]);
            }
        }
    }
    for (int v = 0; v < VECTORS; v++) store_f64(&s->re[h + LANES * v], re[v]), store_f64(&s->im[h + LANES * v], im[v]);
}

static void advance(number_row *s, const tn_scan_coef *q, int64_t n, planes x, planes c)
{
    for (int64_t h = 0; h < W; h += PASS)
        if (q->gain) advance_pass(s, q, n, x, c, h, true);
        else advance_pass(s, q, n, x, c, h, false);
}

/* a_t = dc_t + g, g = conj(lambda_t) a_t for n tokens, last first; dc.at NULL: zero. */
static inline void retreat_pass(number_row *g, const tn_scan_coef *q, int64_t n, planes dc, tn_scan_found *f, int64_t h,
                                bool local)
{
    pair re[VECTORS], im[VECTORS];
    for (int v = 0; v < VECTORS; v++) re[v] = load_f64(&g->re[h + LANES * v]), im[v] = load_f64(&g->im[h + LANES * v]);
    for (int64_t i = n - 1; i >= 0; i--) {
        const double *lr = q->lr + i * q->step + h, *li = q->li + i * q->step + h;
        for (int v = 0; v < VECTORS; v++) {
            const int k = LANES * v;
            pair ar = re[v], ai = im[v];
            if (local) {
                ar += load_f32(dc.at + i * dc.step + h + k);
                ai += load_f32(dc.at + i * dc.step + dc.im + h + k);
            }
            store_f64(&f->ar[i * W + h + k], ar);
            store_f64(&f->ai[i * W + h + k], ai);
            const pair a = load_f64(lr + k), b = load_f64(li + k);
            re[v] = a * ar + b * ai;
            im[v] = a * ai - b * ar;
        }
    }
    for (int v = 0; v < VECTORS; v++) store_f64(&g->re[h + LANES * v], re[v]), store_f64(&g->im[h + LANES * v], im[v]);
}

static void retreat(number_row *g, const tn_scan_coef *q, int64_t n, planes dc, tn_scan_found *f)
{
    for (int64_t h = 0; h < W; h += PASS)
        if (dc.at) retreat_pass(g, q, n, dc, f, h, true);
        else retreat_pass(g, q, n, dc, f, h, false);
}

static void multiply(number_row *p, const tn_scan_coef *q, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < W; k++) {
            const double a = q->lr[i * q->step + k], b = q->li[i * q->step + k], r = p->re[k] * a - p->im[k] * b;
            p->im[k] = p->re[k] * b + p->im[k] * a;
            p->re[k] = r;
        }
}

/* --- what follows from the adjoint, token by token --------------------------------------------------------------------- */

static inline void write_dx(float *restrict re, float *restrict im, const double *restrict ar, const double *restrict ai,
                            const double *restrict gain, int64_t w, bool add)
{
    for (int64_t k = 0; k < w; k++) {
        const double g = gain ? gain[k] : 1;
        const float r = (float)(g * ar[k]), i = (float)(g * ai[k]);
        re[k] = add ? re[k] + r : r;
        im[k] = add ? im[k] + i : i;
    }
}

/* m = a conj(c_{t-1}) */
static inline void write_m(double *restrict mr, double *restrict mi, const double *restrict ar, const double *restrict ai,
                           const float *restrict cr, const float *restrict ci, int64_t w)
{
    for (int64_t k = 0; k < w; k++) {
        const double r = (double)cr[k], i = (double)ci[k];
        mr[k] = ar[k] * r + ai[k] * i;
        mi[k] = ai[k] * r - ar[k] * i;
    }
}

static inline void write_e(double *restrict e, const double *restrict ar, const double *restrict ai,
                           const float *restrict xr, const float *restrict xi, int64_t w)
{
    for (int64_t k = 0; k < w; k++) e[k] = ar[k] * (double)xr[k] + ai[k] * (double)xi[k];
}

/* c before token t: the row before it, the given state, or NULL for zero. */
static const float *row_before(const tn_scan_job *j, int64_t b, int64_t t, int64_t k)
{
    if (starts(j, b, t)) return NULL;
    if (t > 0) return j->c + (b * j->T + t - 1) * 2 * j->K + k;
    return j->state ? j->state + b * 2 * j->K + k : NULL;
}

static inline void spread_rows(const tn_scan_job *j, const tn_scan_at *at, const tn_scan_coef *q, tn_scan_found *f,
                               int64_t w)
{
    const int64_t K = j->K;
    for (int64_t i = 0; i < at->n; i++) {
        const int64_t row = (at->b * j->T + at->t + i) * 2 * K + at->k, o = i * W;
        if (j->dx && q->gain) write_dx(j->dx + row, j->dx + row + K, f->ar + o, f->ai + o, q->gain + i * q->gain_step, w, j->add_x);
        else if (j->dx) write_dx(j->dx + row, j->dx + row + K, f->ar + o, f->ai + o, NULL, w, j->add_x);
        if (j->want_e) write_e(f->e + o, f->ar + o, f->ai + o, j->x + row, j->x + row + K, w);
        if (!j->want_m) continue;
        const float *before = row_before(j, at->b, at->t + i, at->k);
        if (before) write_m(f->mr + o, f->mi + o, f->ar + o, f->ai + o, before, before + K, w);
        else memset(f->mr + o, 0, sizeof(double) * W), memset(f->mi + o, 0, sizeof(double) * W);
    }
}

static void spread(const tn_scan_job *j, const tn_scan_at *at, const tn_scan_coef *q, tn_scan_found *f)
{
    if (at->w == W) spread_rows(j, at, q, f, W);
    else spread_rows(j, at, q, f, at->w);
}

/* --- forward ------------------------------------------------------------------------------------------------------------ */

/* Runs the state s through a tile; c is written when `write`, lambdas are multiplied up otherwise. */
static void forward_tile(const tn_scan_job *j, const tile *t, number_row *s, bool write)
{
    tn_scan_coef q;
    padded xs, cs;
    for (int64_t at = t->first, n; at < t->last; at += n) {
        n = piece_after(j, t->b, at, t->last);
        const tn_scan_at a = { t->b, at, n, t->k, t->w };
        if (starts(j, t->b, at)) memset(s, 0, sizeof *s), t->edge->cut = 1;
        j->coef(j->self, &a, &q);
        const planes x = read_planes(j->x, j, &a, &xs);
        planes c = { 0 };
        if (write) c = t->w == W ? planes_of(j->c, j, &a) : (planes){ cs.x[0], 2 * W, W };
        advance(s, &q, n, x, c);
        if (!write) multiply(&t->edge->product, &q, n);
        else if (t->w < W) write_back(j->c, j, &a, &cs);
    }
}

static void clear_edge(tn_scan_edge *e)
{
    memset(e, 0, sizeof *e);
    for (int k = 0; k < W; k++) e->product.re[k] = 1;
}

static void forward_local(void *arg, int64_t i)
{
    const tn_scan_job *j = arg;
    const tile t = tile_at(j, i);
    clear_edge(t.edge);
    if (t.last < j->T) forward_tile(j, &t, &t.edge->left, false); /* nothing follows the last piece */
}

/* Next = left + product entered, or left alone when a document starts inside. */
static void carry_over(number_row *next, const tn_scan_edge *e, double conjugate)
{
    *next = e->left;
    for (int k = 0; k < W && !e->cut; k++) {
        const double a = e->product.re[k], b = conjugate * e->product.im[k];
        next->re[k] += a * e->enters.re[k] - b * e->enters.im[k];
        next->im[k] += a * e->enters.im[k] + b * e->enters.re[k];
    }
}

static void forward_carry(void *arg, int64_t i)
{
    const tn_scan_job *j = arg;
    const tile t = tile_at(j, i * j->chunks);
    load_row(&t.edge->enters, j->state ? j->state + t.b * 2 * j->K + t.k : NULL, j->K, t.w);
    for (int64_t c = 1; c < j->chunks; c++) carry_over(&t.edge[c].enters, &t.edge[c - 1], 1);
}

static void forward_apply(void *arg, int64_t i)
{
    const tn_scan_job *j = arg;
    const tile t = tile_at(j, i);
    number_row s = t.edge->enters;
    forward_tile(j, &t, &s, true);
    if (t.last == j->T && j->final) store_row(j->final + t.b * 2 * j->K + t.k, &s, j->K, t.w, false);
}

void tn_scan_core_forward(tn_pool *pool, tn_scan_job *j)
{
    cut_job(j);
    if (j->chunks > 1) tn_pool_run(pool, j->rows * j->blocks * j->chunks, forward_local, j);
    tn_pool_run(pool, j->rows * j->blocks, forward_carry, j);
    tn_pool_run(pool, j->rows * j->blocks * j->chunks, forward_apply, j);
}

/* --- backward ----------------------------------------------------------------------------------------------------------- */

/* Runs the adjoint g (what reaches the state before the tile's later end) back through a tile. */
static void backward_tile(const tn_scan_job *j, const tile *t, number_row *g, bool write)
{
    tn_scan_coef q;
    tn_scan_found f;
    padded dcs;
    if (t->w < W) memset(&f, 0, sizeof f); /* lanes beyond the last channel are summed too */
    for (int64_t end = t->last, n; end > t->first; end -= n) {
        n = piece_before(j, t->b, end, t->first);
        const tn_scan_at a = { t->b, end - n, n, t->k, t->w };
        j->coef(j->self, &a, &q);
        const planes dc = j->dc ? read_planes(j->dc, j, &a, &dcs) : (planes){ 0 };
        retreat(g, &q, n, dc, &f);
        if (write) {
            spread(j, &a, &q, &f);
            if (j->sink) j->sink(j->self, &a, &q, &f, t->edge->sums[0]);
        } else {
            multiply(&t->edge->product, &q, n);
        }
        if (starts(j, t->b, end - n)) memset(g, 0, sizeof *g), t->edge->cut = 1;
    }
}

static void backward_local(void *arg, int64_t i)
{
    const tn_scan_job *j = arg;
    const tile t = tile_at(j, i);
    clear_edge(t.edge);
    if (t.first > 0) backward_tile(j, &t, &t.edge->left, false); /* nothing precedes the first piece */
}

static void backward_carry(void *arg, int64_t i)
{
    const tn_scan_job *j = arg;
    const tile t = tile_at(j, i * j->chunks);
    load_row(&t.edge[j->chunks - 1].enters, j->dfinal ? j->dfinal + t.b * 2 * j->K + t.k : NULL, j->K, t.w);
    for (int64_t c = j->chunks - 1; c > 0; c--) carry_over(&t.edge[c - 1].enters, &t.edge[c], -1);
}

static void backward_apply(void *arg, int64_t i)
{
    const tn_scan_job *j = arg;
    const tile t = tile_at(j, i);
    number_row g = t.edge->enters;
    memset(t.edge->sums, 0, sizeof t.edge->sums);
    backward_tile(j, &t, &g, true);
    if (t.first == 0 && j->dstate) store_row(j->dstate + t.b * 2 * j->K + t.k, &g, j->K, t.w, j->add_state);
}

/* Sums of all tiles, rows and then pieces of time in order. */
static void add_sums(const tn_scan_job *j)
{
    const int64_t padded_K = tn_scan_padded(j->K);
    memset(j->sums, 0, sizeof(double) * (size_t)(TN_SCAN_SUMS * padded_K));
    for (int64_t i = 0; i < j->rows * j->blocks * j->chunks; i++) {
        const tile t = tile_at(j, i);
        for (int s = 0; s < TN_SCAN_SUMS; s++)
            for (int k = 0; k < W; k++) j->sums[s * padded_K + t.k + k] += t.edge->sums[s][k];
    }
}

void tn_scan_core_backward(tn_pool *pool, tn_scan_job *j)
{
    cut_job(j);
    if (j->chunks > 1) tn_pool_run(pool, j->rows * j->blocks * j->chunks, backward_local, j);
    tn_pool_run(pool, j->rows * j->blocks, backward_carry, j);
    tn_pool_run(pool, j->rows * j->blocks * j->chunks, backward_apply, j);
    if (j->sink) add_sums(j);
}

int64_t tn_scan_rows(const tn_call *c)
{
    int64_t n = c->in[0].dims.dim[0];
    const int32_t *live = c->in[0].live;
    for (int k = 0; !live && c->dout && k < c->n_out; k++) live = c->dout[k].live;
    if (live && *live < n) n = *live < 0 ? 0 : *live;
    return n;
}
