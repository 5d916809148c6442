/* The blocked recurrence of scan_core.h: the cut, then edges, then forward and backward tiles around the inner loops of
 * scan_loops.h. A piece of tokens never crosses a reset, so the inner loops know nothing of documents: a reset zeroes
 * the state (or, backwards, the adjoint) between two pieces. */
#include "ops/scan/scan_core.h"

#include "ops/scan/scan_lines.h"
#include "ops/scan/scan_planes.h"

enum {
    W = TN_SCAN_W,
    N = TN_SCAN_N,
    NARROW = 16,        /* channels of the smallest block: one cache line of f32 */
    FEW = 4,            /* time is cut when rows times narrow blocks are fewer */
    MOST_CHUNKS = 1024, /* bounds the workspace of very long rows */
};

/* Between the phases: rows of (padded K) doubles for every row of the batch and piece of time. */
enum {
    LEFT_RE, /* what the piece leaves behind when nothing enters it */
    LEFT_IM,
    PRODUCT_RE, /* of its lambdas */
    PRODUCT_IM,
    ENTERS_RE, /* the state (backward: the adjoint) that really enters it */
    ENTERS_IM,
    CUT,  /* 1: a document starts inside, so what enters does not leave */
    SUMS, /* TN_SCAN_SUMS rows */
    EDGE_ROWS = SUMS + TN_SCAN_SUMS
};

typedef tn_scan_numbers numbers;
typedef tn_scan_planes planes;
typedef tn_scan_copy padded;

/* --- powers ------------------------------------------------------------------------------------------------------- */

size_t tn_scan_powers_bytes(int64_t padded_K)
{
    return (size_t)(2 * (N + 1) * padded_K) * (sizeof(double) + sizeof(float));
}

tn_scan_powers tn_scan_powers_in(void *room, int64_t padded_K)
{
    const int64_t rows = (N + 1) * padded_K;
    tn_scan_powers p = { .wide_re = room, .wide_im = (double *)room + rows };
    p.re = (float *)(void *)(p.wide_im + rows);
    p.im = p.re + rows;
    return p;
}

void tn_scan_powers_fill(const tn_scan_powers *p, int64_t padded_K)
{
    const double *re = p->wide_re + padded_K, *im = p->wide_im + padded_K; /* lambda */
    for (int64_t m = 0; m <= N; m++)
        for (int64_t k = 0; k < padded_K; k++) {
            const int64_t o = m * padded_K + k, last = o - padded_K;
            if (m != 1) p->wide_re[o] = m ? p->wide_re[last] * re[k] - p->wide_im[last] * im[k] : 1;
            if (m != 1) p->wide_im[o] = m ? p->wide_re[last] * im[k] + p->wide_im[last] * re[k] : 0;
            p->re[o] = (float)p->wide_re[o];
            p->im[o] = (float)p->wide_im[o];
        }
}

void tn_scan_powers_use(const tn_scan_powers *p, int64_t padded_K, int64_t k, tn_scan_coef *q)
{
    q->lr = q->li = NULL;
    q->power_re = p->re + k;
    q->power_im = p->im + k;
    q->wide_re = p->wide_re + k;
    q->wide_im = p->wide_im + k;
    q->power_step = padded_K;
    q->brief = false;
}

/* --- the cut ------------------------------------------------------------------------------------------------------ */

static int64_t span_of(int64_t B, int64_t T, int64_t K, int64_t chunk)
{
    const int64_t blocks = B * ((K + NARROW - 1) / NARROW), least = (T + MOST_CHUNKS - 1) / MOST_CHUNKS;
    if (blocks >= FEW || T <= chunk) return T > 0 ? T : 1;
    return chunk > least ? chunk : least;
}

static int64_t chunks_of(int64_t T, int64_t span) { return T > 0 ? (T + span - 1) / span : 1; }

size_t tn_scan_core_work(int64_t B, int64_t T, int64_t K, int64_t chunk)
{
    const int64_t pieces = B * chunks_of(T, span_of(B, T, K, chunk));
    return (size_t)((pieces * EDGE_ROWS + TN_SCAN_SUMS) * tn_scan_padded(K)) * sizeof(double);
}

static int64_t blocks_of(const tn_scan_job *j) { return (j->K + j->block - 1) / j->block; }

static int64_t tiles_of(const tn_scan_job *j) { return j->rows * blocks_of(j) * j->chunks; }

/* Channels do not mix, so the width of a block may follow the threads; where time is cut must not. */
static void cut_job(tn_scan_job *j, int threads)
{
    j->span = span_of(j->B, j->T, j->K, j->chunk);
    j->chunks = chunks_of(j->T, j->span);
    j->block = W;
    while (j->block > NARROW && tiles_of(j) < threads) j->block /= 2;
    j->sums = j->work;
    j->edge = j->sums + TN_SCAN_SUMS * tn_scan_padded(j->K);
}

/* Channels k..k+w-1 of row b, tokens first..last-1. */
typedef struct tile {
    int64_t b, k, w, first, last;
    double *edge; /* the block's part of row 0 of its edge; further rows padded K apart */
    int64_t edge_step;
} tile;

static tile tile_at(const tn_scan_job *j, int64_t i)
{
    const int64_t chunk = i % j->chunks, padded_K = tn_scan_padded(j->K);
    tile t = { .b = i / j->chunks / blocks_of(j), .k = i / j->chunks % blocks_of(j) * j->block, .edge_step = padded_K };
    t.w = j->K - t.k < j->block ? j->K - t.k : j->block;
    t.first = chunk * j->span;
    t.last = t.first + j->span < j->T ? t.first + j->span : j->T;
    t.edge = j->edge + (t.b * j->chunks + chunk) * EDGE_ROWS * padded_K + t.k;
    return t;
}

static double *edge_row(const tile *t, int row) { return t->edge + row * t->edge_step; }

static bool starts(const tn_scan_job *j, int64_t b, int64_t t) { return j->reset && j->reset[b * j->T + t]; }

/* Tokens from t on (at most `most`, before `last`) up to the next document. */
static int64_t tokens_after(const tn_scan_job *j, int64_t b, int64_t t, int64_t last, int64_t most)
{
    const int64_t all = last - t < most ? last - t : most;
    int64_t n = j->reset ? 1 : all;
    while (n < all && !starts(j, b, t + n)) n++;
    return n;
}

/* Tokens before `end` (at most `most`, from `first` on) back to the start of their document. */
static int64_t tokens_before(const tn_scan_job *j, int64_t b, int64_t end, int64_t first, int64_t most)
{
    const int64_t all = end - first < most ? end - first : most;
    int64_t n = j->reset ? 1 : all;
    while (n < all && !starts(j, b, end - n)) n++;
    return n;
}

/* --- edges -------------------------------------------------------------------------------------------------------- */

static void multiply(const tile *t, const tn_scan_coef *q, int64_t n)
{
    double *restrict re = edge_row(t, PRODUCT_RE), *restrict im = edge_row(t, PRODUCT_IM);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < t->w; k++) {
            const double rho = q->u ? 1 + (double)q->u[i * W + k] : 1;
            const double a = rho * (q->lr ? q->lr[i * W + k] : q->wide_re[q->power_step + k]);
            const double b = rho * (q->li ? q->li[i * W + k] : q->wide_im[q->power_step + k]);
            const double r = re[k] * a - im[k] * b;
            im[k] = re[k] * b + im[k] * a;
            re[k] = r;
        }
}

static void clear_edge(const tile *t)
{
    for (int r = 0; r < EDGE_ROWS; r++)
        for (int64_t k = 0; k < t->w; k++) edge_row(t, r)[k] = r == PRODUCT_RE;
}

/* Zeroes a state where a document starts, and notes that in the tile's edge. */
static void cut_here(const tile *t, numbers *s)
{
    memset(s, 0, sizeof *s);
    for (int64_t k = 0; k < t->w; k++) edge_row(t, CUT)[k] = 1;
}

static void get_entering(const tile *t, numbers *s)
{
    memset(s, 0, sizeof *s);
    memcpy(s->re, edge_row(t, ENTERS_RE), sizeof(double) * (size_t)t->w);
    memcpy(s->im, edge_row(t, ENTERS_IM), sizeof(double) * (size_t)t->w);
}

static void put_left(const tile *t, const numbers *s)
{
    memcpy(edge_row(t, LEFT_RE), s->re, sizeof(double) * (size_t)t->w);
    memcpy(edge_row(t, LEFT_IM), s->im, sizeof(double) * (size_t)t->w);
}

/* What enters the first piece: a row (B,2K), or zero. */
static void enter(const tile *t, const tn_scan_job *j, const float *rows)
{
    const float *row = rows ? rows + t->b * 2 * j->K + t->k : NULL;
    for (int64_t k = 0; k < t->w; k++) {
        edge_row(t, ENTERS_RE)[k] = row ? (double)row[k] : 0;
        edge_row(t, ENTERS_IM)[k] = row ? (double)row[j->K + k] : 0;
    }
}

/* What enters the piece after `e`: what e left, and what entered e times its lambdas unless a document starts in it. */
static void carry_over(const tile *next, const tile *e, double conjugate)
{
    for (int64_t k = 0; k < e->w; k++) {
        double re = edge_row(e, LEFT_RE)[k], im = edge_row(e, LEFT_IM)[k];
        if (edge_row(e, CUT)[k] == 0) {
            const double a = edge_row(e, PRODUCT_RE)[k], b = conjugate * edge_row(e, PRODUCT_IM)[k];
            const double r = edge_row(e, ENTERS_RE)[k], i = edge_row(e, ENTERS_IM)[k];
            re += a * r - b * i;
            im += a * i + b * r;
        }
        edge_row(next, ENTERS_RE)[k] = re;
        edge_row(next, ENTERS_IM)[k] = im;
    }
}

/* What comes out at the end, into a tensor (B,2K). */
static void leave(const tile *t, const tn_scan_job *j, const numbers *s, float *rows, bool add)
{
    float *row = rows + t->b * 2 * j->K + t->k;
    for (int64_t k = 0; k < t->w; k++) {
        row[k] = (float)s->re[k] + (add ? row[k] : 0.f);
        row[j->K + k] = (float)s->im[k] + (add ? row[j->K + k] : 0.f);
    }
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static void forward_piece(const tn_scan_job *j, const tn_scan_at *a, const tn_scan_coef *q, numbers *s, bool local)
{
    padded x_room, c_room;
    const int64_t width = tn_scan_padded(a->w), n = a->n;
    const planes x = tn_scan_read(j->x, j, a, &x_room);
    const planes c = tn_scan_ragged(a) ? tn_scan_planes_in(&c_room) : tn_scan_planes_of(j->c, j, a);
    const bool gain = q->gain;
#define LANES(...) tn_scan_lanes_advance(s, q, width, n, x, c, (tn_scan_form){ __VA_ARGS__ })
    if (!q->power_re) tn_scan_advance(s, q, width, n, x, c, (tn_scan_form){ .gain = gain, .write = !local });
    else if (local && q->u) LANES(.grown = true, .gain = gain);
    else if (local) LANES(.gain = gain);
    else if (q->u) LANES(.grown = true, .gain = true, .write = true);
    else if (q->brief && gain) LANES(.gain = true, .write = true, .brief = true);
    else if (q->brief) LANES(.write = true, .brief = true);
    else if (gain) LANES(.gain = true, .write = true);
    else LANES(.write = true);
#undef LANES
    if (!local && tn_scan_ragged(a)) tn_scan_write_back(j->c, j, a, &c_room);
}

/* Whether all coefficients are per channel and the block is whole lines of the cache. */
static bool in_lines(const tn_scan_job *j, const tile *t) { return j->fixed && t->w % TN_SCAN_LINE == 0; }

static void forward_lines(const tn_scan_job *j, const tile *t, numbers *s)
{
    tn_scan_coef q;
    j->coef(j->self, &(tn_scan_at){ t->b, t->first, 1, t->k, t->w }, &q);
    for (int64_t at = t->first, n; at < t->last; at += n) {
        n = tokens_after(j, t->b, at, t->last, t->last);
        const tn_scan_at a = { t->b, at, n, t->k, t->w };
        if (starts(j, t->b, at)) cut_here(t, s);
        tn_scan_lines_forward(s, &q, t->w, n, tn_scan_planes_of(j->x, j, &a), tn_scan_planes_of(j->c, j, &a));
    }
}

/* Runs the state s through a tile; the local phase multiplies the lambdas up and writes no output. */
static void forward_tile(const tn_scan_job *j, const tile *t, numbers *s, bool local)
{
    tn_scan_coef q;
    for (int64_t at = t->first, n; at < t->last; at += n) {
        n = tokens_after(j, t->b, at, t->last, N);
        const tn_scan_at a = { t->b, at, n, t->k, t->w };
        if (starts(j, t->b, at)) cut_here(t, s);
        j->coef(j->self, &a, &q);
        forward_piece(j, &a, &q, s, local);
        if (local) multiply(t, &q, n);
    }
}

static void forward_local(void *arg, int64_t i)
{
    const tn_scan_job *j = arg;
    const tile t = tile_at(j, i);
    numbers s = { { 0 }, { 0 } };
    clear_edge(&t);
    if (t.last == j->T) return; /* nothing follows the last piece */
    forward_tile(j, &t, &s, true);
    put_left(&t, &s);
}

static void forward_carry(void *arg, int64_t i)
{
    const tn_scan_job *j = arg;
    tile t = tile_at(j, i * j->chunks);
    enter(&t, j, j->state);
    for (int64_t c = 1; c < j->chunks; c++) {
        const tile next = tile_at(j, i * j->chunks + c);
        carry_over(&next, &t, 1);
        t = next;
    }
}

static void forward_apply(void *arg, int64_t i)
{
    const tn_scan_job *j = arg;
    const tile t = tile_at(j, i);
    numbers s;
    get_entering(&t, &s);
    if (in_lines(j, &t)) forward_lines(j, &t, &s);
    else forward_tile(j, &t, &s, false);
    if (t.last == j->T) leave(&t, j, &s, j->final, false);
}

void tn_scan_core_forward(tn_pool *pool, tn_scan_job *j)
{
    if (!j->K) return;
    cut_job(j, tn_pool_threads(pool));
    if (j->chunks > 1) tn_pool_run(pool, tiles_of(j), forward_local, j);
    tn_pool_run(pool, j->rows * blocks_of(j), forward_carry, j);
    tn_pool_run(pool, tiles_of(j), forward_apply, j);
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* c before the first token of a piece: the row before it, the given state, or nothing. */
static planes row_before(const tn_scan_job *j, const tn_scan_at *a)
{
    if (starts(j, a->b, a->t)) return (planes){ 0 };
    if (a->t > 0) return tn_scan_planes_of(j->c, j, &(tn_scan_at){ a->b, a->t - 1, 1, a->k, a->w });
    if (!j->state) return (planes){ 0 };
    return (planes){ (float *)(uintptr_t)j->state + a->b * 2 * j->K + a->k, 0, j->K };
}

/* What one piece's tokens need besides the adjoint. */
typedef struct backward_view {
    planes dc, a, dx, x, c, before; /* at is NULL where not wanted; a: the adjoint of every token */
    padded dc_room, a_room, dx_room, x_room, c_room, before_room;
} backward_view;

/* Without gain the gradient of x is the adjoint itself, written where it belongs. */
static void look_back(const tn_scan_job *j, const tn_scan_at *at, const tn_scan_coef *q, backward_view *v)
{
    v->dc = tn_scan_read(j->dc, j, at, &v->dc_room);
    v->dx = j->add_x ? tn_scan_read(j->dx, j, at, &v->dx_room) : tn_scan_planes_of(j->dx, j, at);
    if (j->dx.at && tn_scan_ragged(at)) v->dx = tn_scan_planes_in(&v->dx_room);
    v->a = v->dx.at && !q->gain && !j->add_x ? v->dx : tn_scan_planes_in(&v->a_room);
    v->x = tn_scan_read(j->want_e ? j->x : (tn_scan_tensor){ 0 }, j, at, &v->x_room);
    v->c = tn_scan_read(j->want_m ? j->c : (tn_scan_tensor){ 0 }, j, at, &v->c_room);
    v->before = j->want_m ? row_before(j, at) : (planes){ 0 };
    if (v->before.at && tn_scan_ragged(at)) v->before = tn_scan_copy_padded(v->before, 1, at->w, &v->before_room);
}

/* The adjoints of a piece's tokens into a (NULL: not wanted), g through all of them. */
static void run_back(const tn_scan_coef *q, numbers *g, int64_t width, int64_t n, planes dc, planes a)
{
    static float zeros[W]; /* no gradient of c */
    if (!dc.at) dc = (planes){ zeros, 0, 0 };
#define LANES(...) tn_scan_lanes_retreat(g, q, width, n, dc, a, (tn_scan_form){ __VA_ARGS__ })
    if (!q->power_re) tn_scan_retreat(g, q, width, n, dc, a, (tn_scan_form){ .write = a.at });
    else if (!a.at) LANES(.grown = q->u);
    else if (q->u) LANES(.grown = true, .write = true);
    else LANES(.write = true);
#undef LANES
}

/* What token i's adjoint gives to x, lambda and gain. */
static void spread(const tn_scan_job *j, const tn_scan_coef *q, const backward_view *v, int64_t width, int64_t i,
                   tn_scan_found *f)
{
    const float *a = v->a.at + i * v->a.step, *gain = q->gain ? q->gain + i * q->gain_step : NULL;
    const planes before = i > 0 && v->c.at ? (planes){ v->c.at + (i - 1) * v->c.step, 0, v->c.im } : v->before;
    if (v->dx.at && v->dx.at != v->a.at) {
        float *dx = v->dx.at + i * v->dx.step;
        if (gain && !j->add_x) tn_scan_write_dx(dx, v->dx.im, a, v->a.im, gain, width, false);
        else if (gain) tn_scan_write_dx(dx, v->dx.im, a, v->a.im, gain, width, true);
        else tn_scan_write_dx(dx, v->dx.im, a, v->a.im, NULL, width, true);
    }
    if (j->want_e) tn_scan_write_e(f->e + i * W, a, v->a.im, v->x.at + i * v->x.step, v->x.im, width);
    if (j->want_m && before.at) tn_scan_write_m(f->mr + i * W, f->mi + i * W, a, v->a.im, before.at, before.im, width);
    else if (j->want_m) memset(f->mr + i * W, 0, sizeof(float) * W), memset(f->mi + i * W, 0, sizeof(float) * W);
}

static void backward_piece(const tn_scan_job *j, const tn_scan_at *at, const tn_scan_coef *q, numbers *g,
                           tn_scan_found *f)
{
    backward_view v;
    const int64_t width = tn_scan_padded(at->w);
    look_back(j, at, q, &v);
    run_back(q, g, width, at->n, v.dc, f ? v.a : (planes){ 0 });
    for (int64_t i = 0; f && i < at->n; i++) spread(j, q, &v, width, i, f);
    if (f && j->dx.at && tn_scan_ragged(at)) tn_scan_write_back(j->dx, j, at, &v.dx_room);
}

static tn_scan_reverse_form reverse_form(const tn_scan_job *j, const tn_scan_coef *q)
{
    return (tn_scan_reverse_form){ q->gain, j->dx.at, j->add_x, j->want_m, j->want_e, q->brief };
}

/* The same where lambda and gain are per channel. */
static void backward_fixed(const tn_scan_job *j, const tn_scan_at *at, const tn_scan_coef *q, numbers *g,
                           tn_scan_sums *sums)
{
    static float zeros[W]; /* no gradient of c */
    backward_view v;
    const int64_t width = tn_scan_padded(at->w), n = at->n;
    look_back(j, at, q, &v);
    const tn_scan_reverse r = { v.dc.at ? v.dc : (planes){ zeros, 0, 0 }, v.c, v.before, v.x, v.dx };
    const tn_scan_reverse_form is = reverse_form(j, q);
    const bool usual = is.dx && is.m && !is.add, full = usual && is.gain && is.e, bare = usual && !is.gain && !is.e;
#define REVERSE(...) tn_scan_reverse_piece(g, q, width, n, &r, sums, (tn_scan_reverse_form){ __VA_ARGS__ })
    if (bare && is.brief) REVERSE(.dx = true, .m = true, .brief = true);
    else if (bare) REVERSE(.dx = true, .m = true);
    else if (full && is.brief) REVERSE(.dx = true, .m = true, .gain = true, .e = true, .brief = true);
    else if (full) REVERSE(.dx = true, .m = true, .gain = true, .e = true);
    else tn_scan_reverse_piece(g, q, width, n, &r, sums, is);
#undef REVERSE
    if (j->dx.at && tn_scan_ragged(at)) tn_scan_write_back(j->dx, j, at, &v.dx_room);
}

/* backward_tile where the core has a loop for it: false where it has none. */
static bool backward_lines(const tn_scan_job *j, const tile *t, numbers *g)
{
    tn_scan_coef q;
    tn_scan_sums sums = { { { 0 } } };
    if (!in_lines(j, t) || !j->dc.at) return false;
    j->coef(j->self, &(tn_scan_at){ t->b, t->first, 1, t->k, t->w }, &q);
    const tn_scan_reverse_form is = reverse_form(j, &q);
    if (!tn_scan_lines_reversible(is)) return false;
    for (int64_t end = t->last, n; end > t->first; end -= n) {
        n = tokens_before(j, t->b, end, t->first, t->last);
        const tn_scan_at a = { t->b, end - n, n, t->k, t->w };
        const tn_scan_reverse r = { tn_scan_planes_of(j->dc, j, &a), tn_scan_planes_of(j->c, j, &a), row_before(j, &a),
                                    tn_scan_planes_of(j->x, j, &a), tn_scan_planes_of(j->dx, j, &a) };
        tn_scan_lines_reverse(g, &q, t->w, n, &r, &sums, is);
        if (starts(j, t->b, end - n)) cut_here(t, g);
    }
    for (int i = 0; i < TN_SCAN_SUMS; i++) memcpy(edge_row(t, SUMS + i), sums.row[i], sizeof(double) * (size_t)t->w);
    return true;
}

/* Runs the adjoint g (what reaches the state after the tile's last token) back through a tile. */
static void backward_tile(const tn_scan_job *j, const tile *t, numbers *g, bool local)
{
    tn_scan_coef q;
    tn_scan_found f;
    tn_scan_sums fixed = { { { 0 } } };
    double *sums[TN_SCAN_SUMS];
    for (int i = 0; i < TN_SCAN_SUMS; i++) sums[i] = edge_row(t, SUMS + i);
    for (int64_t end = t->last, n; end > t->first; end -= n) {
        n = tokens_before(j, t->b, end, t->first, N);
        const tn_scan_at a = { t->b, end - n, n, t->k, t->w };
        j->coef(j->self, &a, &q);
        if (j->fixed && !local) backward_fixed(j, &a, &q, g, &fixed);
        else backward_piece(j, &a, &q, g, local ? NULL : &f);
        if (local) multiply(t, &q, n);
        else if (j->sink) j->sink(j->self, &a, &q, &f, sums);
        if (starts(j, t->b, end - n)) cut_here(t, g);
    }
    if (!j->fixed || local) return;
    for (int i = 0; i < TN_SCAN_SUMS; i++) memcpy(sums[i], fixed.row[i], sizeof(double) * (size_t)t->w);
}

static void backward_local(void *arg, int64_t i)
{
    const tn_scan_job *j = arg;
    const tile t = tile_at(j, i);
    numbers g = { { 0 }, { 0 } };
    clear_edge(&t);
    if (t.first == 0) return; /* nothing precedes the first piece */
    backward_tile(j, &t, &g, true);
    put_left(&t, &g);
}

static void backward_carry(void *arg, int64_t i)
{
    const tn_scan_job *j = arg;
    tile t = tile_at(j, (i + 1) * j->chunks - 1);
    enter(&t, j, j->dfinal);
    for (int64_t c = j->chunks - 2; c >= 0; c--) {
        const tile before = tile_at(j, i * j->chunks + c);
        carry_over(&before, &t, -1);
        t = before;
    }
}

static void backward_apply(void *arg, int64_t i)
{
    const tn_scan_job *j = arg;
    const tile t = tile_at(j, i);
    numbers g;
    get_entering(&t, &g);
    for (int s = 0; s < TN_SCAN_SUMS; s++) memset(edge_row(&t, SUMS + s), 0, sizeof(double) * (size_t)t.w);
    if (!backward_lines(j, &t, &g)) backward_tile(j, &t, &g, false);
    if (t.first == 0 && j->dstate) leave(&t, j, &g, j->dstate, j->add_state);
}

/* Sums of all edges: rows, then pieces of time, in order. */
static void add_sums(const tn_scan_job *j)
{
    const int64_t padded_K = tn_scan_padded(j->K);
    memset(j->sums, 0, sizeof(double) * (size_t)(TN_SCAN_SUMS * padded_K));
    for (int64_t i = 0; i < j->rows * j->chunks; i++)
        for (int s = 0; s < TN_SCAN_SUMS; s++) {
            const double *row = j->edge + (i * EDGE_ROWS + SUMS + s) * padded_K;
            for (int64_t k = 0; k < j->K; k++) j->sums[s * padded_K + k] += row[k];
        }
}

void tn_scan_core_backward(tn_pool *pool, tn_scan_job *j)
{
    if (!j->K) return;
    cut_job(j, tn_pool_threads(pool));
    if (j->chunks > 1) tn_pool_run(pool, tiles_of(j), backward_local, j);
    tn_pool_run(pool, j->rows * blocks_of(j), backward_carry, j);
    tn_pool_run(pool, tiles_of(j), backward_apply, j);
    if (j->want_m || j->want_e) add_sums(j);
}

int64_t tn_scan_rows(const tn_call *c)
{
    int64_t n = c->in[0].dims.dim[0];
    const int32_t *live = c->in[0].live;
    for (int k = 0; !live && c->dout && k < c->n_out; k++) live = c->dout[k].live;
    if (live && *live < n) n = *live < 0 ? 0 : *live;
    return n;
}

tn_scan_job tn_scan_job_of(const tn_call *c, bool backward, int64_t chunk, int state, int reset, size_t own)
{
    const int64_t *d = c->in[0].dims.dim;
    tn_scan_job j = { .B = d[0], .T = d[1], .K = d[2] / 2, .chunk = chunk, .rows = tn_scan_rows(c) };
    j.x = tn_scan_tensor_of(&c->in[0]);
    j.state = c->in[state].data;
    j.reset = c->in[reset].data;
    j.c = tn_scan_tensor_of(&c->out[0]);
    j.work = (char *)c->work + own;
    if (!backward) {
        j.final = c->out[1].data;
        return j;
    }
    j.dc = tn_scan_tensor_of(&c->dout[0]);
    j.dfinal = c->dout[1].data;
    j.dx = tn_scan_tensor_of(&c->din[0]);
    j.dstate = c->din[state].data;
    j.add_x = c->accumulate & 1;
    j.add_state = c->accumulate >> state & 1;
    return j;
}
