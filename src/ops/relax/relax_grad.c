/* The gradients of relax: lambda for every sample by one of tn_loop's ways, then lambda^T df/d(everything).
 *
 * The second part linearises f at the state, tile by tile, and leaves rows for all samples; the gradients of the parameters
 * are sums over these rows: matrix products over the batch, and sums down columns in double in the order of the samples. So
 * no bits depend on threads. */
#include "ops/relax/relax_cpu.h"

#include "base/status.h"

#include <math.h>
#include <string.h>

typedef struct grad {
    const tn_call *c;
    const tn_relax_job *j;
    const tn_relax_space *s;
    const tn_relax_rows *r;
    const float *state; /* (B,d): where f is linearised */
    bool recalls;       /* it has been already: what was kept is there */
    bool adds;          /* to gradients of this call: not the first sum of bptt */
    int64_t rows;       /* that the sums are over: the samples, or what bptt has come to */
} grad;

static bool adds_to(const grad *g, int input) { return g->adds || (g->c->accumulate >> input & 1); }

/* --- lambda ------------------------------------------------------------------------------------------------------- */

/* Of one sample: lambda from the free state h, f(h) and the nudged states, and how far the nudge stands out. */
static void propagate(const grad *g, int64_t b, const float *f)
{
    const tn_relax_job *j = g->j;
    const float n = (float)j->count, weight = j->attr.mean ? 1 / n : j->attr.weight, d = (float)j->d;
    const float *h = g->state + b * j->d, *up = g->r->nudged + b * j->d, *down = up + j->B * j->d;
    float *lambda = g->r->lambda + b * j->d, *signal = g->c->out[TN_RELAX_SIGNAL].data;
    double moved = 0, noise = 0;
    for (int64_t i = 0; signal && i < j->d; i++) {
        moved += ((double)up[i] - (double)h[i]) * ((double)up[i] - (double)h[i]);
        noise += ((double)f[i] - (double)h[i]) * ((double)f[i] - (double)h[i]);
    }
    if (signal) signal[b] = (float)(sqrt(moved) / fmax(sqrt(noise), 1e-30));
    if (j->attr.proxy)
        for (int64_t i = 0; i < j->d; i++) lambda[i] = (f[i] - up[i]) * (2 / (j->beta * n * d));
    else if (!j->attr.centred)
        for (int64_t i = 0; i < j->d; i++) lambda[i] = (h[i] - up[i]) * (weight / j->beta);
    else
        for (int64_t i = 0; i < j->d; i++) lambda[i] = (down[i] - up[i]) * (weight / (2 * j->beta));
}

/* --- f's gradients at a state ------------------------------------------------------------------------------------- */

static void load_state(const grad *g, tn_relax_tile *t, int64_t first)
{
    const tn_relax_job *j = g->j;
    const tn_relax_kept *k = &g->r->kept;
    tn_relax_load(t->h, t->width, g->state + first * j->d, j->d, t->live, j->d);
    tn_relax_load(t->a, t->width, j->a + first * j->d, j->d, t->live, j->d);
    tn_relax_apply(j, t, TN_RELAX_KEEP_ALL);
    tn_relax_store(t->z, t->width, k->active + first * k->f_apart, k->f_apart, t->live, j->f);
    if (!j->hopfield) tn_relax_store(t->x, t->width, k->x + first * k->d_apart, k->d_apart, t->live, j->d);
}

/* u of samples from row on. */
static void store_u(const grad *g, const tn_relax_tile *t, const float *u, int64_t row)
{
    const int64_t apart = g->r->kept.d_apart;
    tn_relax_store(u, t->width, g->r->u + row * apart, apart, t->live, g->j->d);
}

static void linearise_share(void *arg, tn_relax_tile *t, int64_t first)
{
    const grad *g = arg;
    load_state(g, t, first);
    tn_relax_remember(g->j, t, &g->r->kept, first);
}

/* What f(h*) serves at once: it is linearised there, and every nudge takes its first step. */
typedef struct first_step {
    grad *g;
    tn_relax_solve *v;
} first_step;

/* f(h*), linearised, and what it leaves. */
static void rest_share(void *arg, tn_relax_tile *t, int64_t first)
{
    const first_step *w = arg;
    const tn_relax_job *j = w->g->j;
    const int64_t d = first * j->d;
    linearise_share(w->g, t, first);
    store_u(w->g, t, t->y, first); /* free until lambda is known */
    if (!w->v->rest) return;
    for (int64_t i = 0; i < j->d * t->width; i++) t->rest[i] = t->y[i] - t->h[i];
    tn_relax_store(t->rest, t->width, w->g->r->rest + d, j->d, t->live, j->d);
}

static void first_share(void *arg, tn_relax_tile *t, int64_t first)
{
    const first_step *w = arg;
    const grad *g = w->g;
    const tn_relax_job *j = g->j;
    const int64_t apart = g->r->kept.d_apart;
    const float *f = g->r->u + first * apart;
    rest_share(arg, t, first);
    tn_relax_set_phase(j, w->v, t);
    if (t->origin) memcpy(t->origin, t->h, sizeof *t->h * (size_t)(j->d * t->width));
    for (int sign = 0; sign < w->v->signs; sign++) {
        const int64_t at = sign * j->B + first;
        for (int l = 0; l < t->live; l++) tn_relax_set_cost(j, w->v, t, l, first + l, sign);
        if (sign) tn_relax_load(t->h, t->width, g->state + first * j->d, j->d, t->live, j->d);
        if (sign) tn_relax_load(t->y, t->width, f, apart, t->live, j->d);
        tn_relax_nudge(j, t);
        tn_relax_advance(j, t, false);
        tn_relax_store(t->h, t->width, w->v->to + at * j->d, j->d, t->live, j->d);
        for (int l = 0; l < t->live; l++) g->r->waiting[at + l] = !(t->residual[l] < t->limit);
    }
}

/* The flags of those that wait become a list of tasks, in order. */
static void list_waiting(const grad *g, tn_relax_solve *v)
{
    const tn_relax_job *j = g->j;
    int32_t *list = g->r->waiting;
    for (int sign = 0; sign < v->signs; sign++)
        for (int64_t b = 0; b < j->count; b++) {
            v->steps[sign * j->B + b] = 1;
            if (list[sign * j->B + b] && j->attr.steps > 1) list[v->n_waiting++] = (int32_t)(sign * j->count + b);
        }
    v->waiting = list;
}

static tn_status nudge(grad *g)
{
    const tn_relax_job *j = g->j;
    int32_t *steps = g->c->out[TN_RELAX_NUDGED_STEPS].data;
    if (!(j->beta > 0)) return tn_error(TN_USAGE, "beta must be above 0");
    tn_relax_solve v = { .phase = TN_RELAX_NUDGED,
                         .from = g->state,
                         .to = g->r->nudged,
                         .inject = j->a,
                         .rest = j->attr.at_rest ? g->r->rest : NULL,
                         .signs = j->attr.centred ? 2 : 1,
                         .eta = j->attr.proxy ? j->beta / (float)j->count : j->beta,
                         .steps = g->r->steps };
    first_step start = { g, &v };
    if (!j->together && j->attr.solver == TN_SOLVE_PICARD) {
        tn_relax_each(j, g->s, j->count, first_share, &start);
        list_waiting(g, &v);
        g->recalls = true;
    } else if (v.rest) {
        tn_relax_each(j, g->s, j->count, rest_share, &start);
        g->recalls = true;
    }
    tn_relax_run(j, g->s, &v);
    for (int64_t b = 0; steps && b < j->count; b++)
        steps[b] = g->r->steps[b] + (j->attr.centred ? g->r->steps[j->B + b] : 0);
    return TN_OK;
}

/* da of samples first.. : rows of t->y for the block, lambda for the others. */
static void give_da(const grad *g, const tn_relax_tile *t, int64_t first)
{
    const tn_relax_job *j = g->j;
    float *da = g->c->din[TN_RELAX_A].data;
    for (int l = 0; da && l < t->live; l++) {
        float *to = da + (first + l) * j->d;
        const float *from = j->block ? t->y + l : g->r->lambda + (first + l) * j->d;
        const int64_t step = j->block ? t->width : 1;
        if (adds_to(g, TN_RELAX_A))
            for (int64_t i = 0; i < j->d; i++) to[i] += from[i * step];
        else
            for (int64_t i = 0; i < j->d; i++) to[i] = from[i * step];
    }
}

static void pull_share(void *arg, tn_relax_tile *t, int64_t first)
{
    const grad *g = arg;
    const tn_relax_job *j = g->j;
    const tn_relax_rows *r = g->r;
    const int64_t d = first * j->d;
    if (g->recalls) {
        tn_relax_recall(j, t, &r->kept, first);
    } else {
        load_state(g, t, first);
        store_u(g, t, t->y, first);
        if (j->block) {
            tn_relax_store(t->n2, t->width, r->kept.n2 + d, j->d, t->live, j->d);
            tn_relax_store(t->n, t->width, r->kept.n + d, j->d, t->live, j->d);
        }
    }
    for (int l = 0; j->attr.grad == TN_LOOP_EP && l < t->live; l++)
        propagate(g, first + l, r->u + (first + l) * r->kept.d_apart);
    tn_relax_load(t->h, t->width, r->lambda + d, j->d, t->live, j->d);
    if (j->hopfield && j->attr.grad == TN_LOOP_EP) { /* from how far h moved to the adjoint */
        for (int64_t i = 0; i < j->d * t->width; i++) t->h[i] *= t->slope[i];
        tn_relax_store(t->h, t->width, r->lambda + d, j->d, t->live, j->d);
    }
    tn_relax_pull(j, t, t->h);
    if (!j->hopfield) tn_relax_store(t->z, t->width, r->z + first * r->kept.f_apart, r->kept.f_apart, t->live, j->f);
    if (j->block) {
        store_u(g, t, t->u, first);
        tn_relax_store(t->x, t->width, r->q + d, j->d, t->live, j->d);
    }
    give_da(g, t, first);
}

/* --- sums over the samples ---------------------------------------------------------------------------------------- */

enum { COLUMNS = 64 };

typedef struct columns {
    const float *x, *y; /* (rows,n) of rows `row` numbers apart; y may be NULL: 1 */
    float *to;          /* (n) */
    int64_t rows, row, n;
    float factor;
    bool add;
} columns;

static void columns_tile(void *arg, int64_t tile)
{
    const columns *w = arg;
    const int64_t from = tile * COLUMNS, n = w->n - from < COLUMNS ? w->n - from : COLUMNS;
    double sum[COLUMNS];
    tn__relax_columns(w->x + from, w->y ? w->y + from : NULL, w->rows, w->row, n, sum);
    for (int64_t i = 0; i < n; i++)
        w->to[from + i] = (float)(sum[i] * (double)w->factor) + (w->add ? w->to[from + i] : 0);
}

/* din[input] (n) gets factor sum_b x_b y_b, of rows `row` numbers apart. */
static void sum_columns(const grad *g, int input, const float *x, const float *y, int64_t row, float factor)
{
    const tn_arg *to = &g->c->din[input];
    columns w = { .x = x,
                  .y = y,
                  .to = to->data,
                  .rows = g->rows,
                  .row = row,
                  .n = to->data ? to->dims.dim[0] : 0,
                  .factor = factor,
                  .add = adds_to(g, input) };
    if (w.to) tn_pool_run(g->j->pool, (w.n + COLUMNS - 1) / COLUMNS, columns_tile, &w);
}

enum { OUTER_ROWS = 16 };

static void outer_tile(void *arg, int64_t tile)
{
    const tn_relax_outer *o = arg;
    const int64_t end = (tile + 1) * OUTER_ROWS;
    tn__relax_outer_rows(o, tile * OUTER_ROWS, end < o->m ? end : o->m);
}

/* Rows of n numbers, so many apart. */
typedef struct factor {
    const float *rows;
    int64_t n, apart;
} factor;

/* din[input] (m,n) gets by sum_b x_b (m) y_b (n)^T; `more`: to what the call before left. */
static void sum_outer(const grad *g, int input, factor x, factor y, float by, bool more)
{
    const tn_relax_job *j = g->j;
    const int64_t m = x.n, n = y.n;
    tn_relax_outer plain = { .x = x.rows,
                             .y = y.rows,
                             .x_row = x.apart,
                             .y_row = y.apart,
                             .c = g->c->din[input].data,
                             .rows = g->rows,
                             .m = m,
                             .n = n,
                             .factor = by,
                             .add = more || adds_to(g, input) };
    if (plain.c && !j->rounded && tn__relax_outer_fits(m, n)) {
        tn_pool_run(j->pool, (m + OUTER_ROWS - 1) / OUTER_ROWS, outer_tile, &plain);
        return;
    }
    const tn_gemm product = { .m = m,
                              .n = n,
                              .k = g->rows,
                              .batch = 1,
                              .a = x.rows,
                              .a_row = 1,
                              .a_col = x.apart,
                              .b = y.rows,
                              .b_row = y.apart,
                              .b_col = 1,
                              .c = g->c->din[input].data,
                              .c_row = n,
                              .alpha = by,
                              .accumulate = more || adds_to(g, input),
                              .round = j->round,
                              .bf16x3 = j->bf16x3,
                              .portable_only = j->portable };
    if (product.c) tn_gemm_run(j->pool, &product, g->r->gemm);
}

/* lambda^T df/d(parameters), from the rows that are there. */
static void sum_up(grad *g)
{
    const tn_relax_job *j = g->j;
    const tn_relax_rows *r = g->r;
    const factor z = { r->z, j->f, r->kept.f_apart }, active = { r->kept.active, j->f, r->kept.f_apart };
    const factor x = { r->kept.x, j->d, r->kept.d_apart }, u = { r->u, j->d, r->kept.d_apart },
                 lambda = { r->lambda, j->d, j->d };
    if (j->block) {
        sum_outer(g, TN_RELAX_W1, z, x, 1, false);
        sum_outer(g, TN_RELAX_W2, u, active, 1, false);
        sum_columns(g, TN_RELAX_B1, r->z, NULL, r->kept.f_apart, 1);
        sum_columns(g, TN_RELAX_B2, r->u, NULL, r->kept.d_apart, 1);
        sum_columns(g, TN_RELAX_GAIN2, r->q, r->kept.n2, j->d, 1);
        sum_columns(g, TN_RELAX_BIAS2, r->q, NULL, j->d, 1);
        sum_columns(g, TN_RELAX_GAIN, r->lambda, r->kept.n, j->d, 1);
        sum_columns(g, TN_RELAX_BIAS, r->lambda, NULL, j->d, 1);
    } else if (j->hopfield) {
        sum_outer(g, TN_RELAX_W1, lambda, active, 1, false);
    } else {
        sum_outer(g, TN_RELAX_W1, z, x, j->scale, false);
        sum_outer(g, TN_RELAX_W1, active, lambda, j->scale, true);
        sum_columns(g, TN_RELAX_B1, r->z, NULL, r->kept.f_apart, j->scale);
    }
    g->adds = true;
}

/* --- through time -------------------------------------------------------------------------------------------------- */

/* Who takes how many steps: the samples by their steps, those with most first, so that the ones that take step t are the first
 * live[t] of them. */
static void rank(const grad *g)
{
    const tn_relax_job *j = g->j;
    const tn_relax_rows *r = g->r;
    const int32_t *steps = g->c->out[TN_RELAX_FREE_STEPS].data;
    memset(r->live, 0, sizeof *r->live * (size_t)(j->attr.steps + 1));
    for (int64_t b = 0; b < j->count; b++) r->live[steps[b] - 1]++;
    for (int64_t t = j->attr.steps; t-- > 0;) r->live[t] += r->live[t + 1];
    for (int64_t b = 0; b < j->count; b++) r->order[r->live[steps[b]]++] = (int32_t)b; /* behind those that take more */
    memmove(r->live, r->live + 1,
            sizeof *r->live * (size_t)j->attr.steps); /* each has moved on to the next one's number */
}

/* Back through one step of the samples that take it. */
typedef struct back_step {
    const grad *g;
    const float *states; /* (B,d): before it */
    const float *normal; /* (B,d), (B): what the block's second norm made in it */
    const float *scales;
    int64_t at; /* where their rows begin */
} back_step;

/* n and s of the tile's samples as the way there left them, and n as rows. */
static void recall_normals(const back_step *w, tn_relax_tile *t, const int32_t *sample, float *rows)
{
    const tn_relax_job *j = w->g->j;
    const float *n[TN_RELAX_LANES];
    memset(t->s, 0, sizeof *t->s * (size_t)t->width);
    for (int l = 0; l < t->live; l++) {
        n[l] = w->normal + sample[l] * j->d;
        t->s[l] = w->scales[sample[l]];
        memcpy(rows + l * j->d, n[l], sizeof *rows * (size_t)j->d);
    }
    tn_relax_gather(t->n, t->width, n, t->live, j->d);
}

/* u of the tile is done with: it serves as rows. */
static void add_da(const grad *g, const tn_relax_tile *t, const int32_t *sample, const float *lambda)
{
    const tn_relax_job *j = g->j;
    float *da = g->c->din[TN_RELAX_A].data;
    if (!da) return;
    if (j->block) tn_relax_store(t->y, t->width, t->u, j->d, t->live, j->d);
    for (int l = 0; l < t->live; l++) {
        float *restrict to = da + sample[l] * j->d;
        const float *restrict from = (j->block ? t->u : lambda) + l * j->d;
        for (int64_t i = 0; i < j->d; i++) to[i] += from[i];
    }
}

static void back_share(void *arg, tn_relax_tile *t, int64_t first)
{
    const back_step *w = arg;
    const grad *g = w->g;
    const tn_relax_job *j = g->j;
    const tn_relax_rows *r = g->r;
    const int32_t *sample = r->order + first;
    const int64_t row = w->at + first, d = row * j->d, f = row * r->kept.f_apart;
    float *carried = r->carried + first * j->d, *lambda = r->lambda + d;
    const float *h[TN_RELAX_LANES], *a[TN_RELAX_LANES];
    for (int l = 0; l < t->live; l++) h[l] = w->states + sample[l] * j->d, a[l] = j->a + sample[l] * j->d;
    tn_relax_gather(t->h, t->width, h, t->live, j->d);
    tn_relax_gather(t->a, t->width, a, t->live, j->d);
    tn_relax_enter(j, t);
    if (j->block) recall_normals(w, t, sample, r->kept.n + d);
    tn_relax_store(t->z, t->width, r->kept.active + f, r->kept.f_apart, t->live, j->f);
    if (!j->hopfield) tn_relax_store(t->x, t->width, r->kept.x + row * r->kept.d_apart, r->kept.d_apart, t->live, j->d);
    tn_relax_load(t->a, t->width, carried, j->d, t->live, j->d); /* the injection is done with */
    for (int64_t i = 0; i < j->d * t->width; i++) t->h[i] = j->damping * t->a[i];
    tn_relax_store(t->h, t->width, lambda, j->d, t->live, j->d);
    tn_relax_pull(j, t, t->h);
    for (int64_t i = 0; i < j->d * t->width; i++)
        t->a[i] = (1 - j->damping) * t->a[i] + t->y[i]; /* past f, and through it */
    tn_relax_store(t->a, t->width, carried, j->d, t->live, j->d);
    if (!j->hopfield) tn_relax_store(t->z, t->width, r->z + f, r->kept.f_apart, t->live, j->f);
    if (j->block) {
        tn_relax_store(t->n2, t->width, r->kept.n2 + d, j->d, t->live, j->d);
        store_u(g, t, t->u, row);
        tn_relax_store(t->x, t->width, r->q + d, j->d, t->live, j->d);
    }
    add_da(g, t, sample, lambda);
}

/* Every sample from its own last step. Rows of several steps are summed over together, as many as there is room for. */
static void through_time(grad *g, const float *dout)
{
    const tn_relax_job *j = g->j;
    const tn_relax_rows *r = g->r;
    const size_t row = sizeof *dout * (size_t)j->d;
    back_step w = { .g = g };
    rank(g);
    for (int64_t k = 0; k < j->count; k++) memcpy(r->carried + k * j->d, dout + r->order[k] * j->d, row);
    for (int64_t t = j->attr.steps - 1; t >= 0; t--) {
        w.states = (const float *)g->c->out[TN_RELAX_HISTORY].data + t * j->B * j->d;
        if (j->block) {
            w.normal = (const float *)g->c->out[TN_RELAX_NORMAL].data + t * j->B * j->d;
            w.scales = (const float *)g->c->out[TN_RELAX_NORMAL_SCALE].data + t * j->B;
        }
        tn_relax_each(j, g->s, r->live[t], back_share, &w);
        w.at += r->live[t];
        if (!w.at || (t && w.at + r->live[t - 1] <= r->most)) continue;
        g->rows = w.at;
        sum_up(g);
        w.at = 0;
    }
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

/* Gradients nothing is added to here begin as 0: of rows that are not there, and of everything where nothing arrives. */
static void clear_rest(const tn_call *c, const tn_relax_job *j, bool all)
{
    for (int i = 0; i < c->n_in; i++) {
        const int64_t n = c->din[i].data ? tn_dims_count(c->din[i].dims) : 0,
                      from = i == TN_RELAX_A && !all && j->attr.grad != TN_LOOP_BPTT ? j->count * j->d : 0;
        if (!n || (c->accumulate >> i & 1) || (i != TN_RELAX_A && !all && i <= TN_RELAX_BIAS)) continue;
        memset((float *)c->din[i].data + from, 0, sizeof(float) * (size_t)(n - from));
    }
}

static void adjoint(grad *g, const float *dout)
{
    const tn_relax_job *j = g->j;
    tn_relax_solve v = { .phase = TN_RELAX_ADJOINT,
                         .from = dout,
                         .to = g->r->lambda,
                         .inject = dout,
                         .kept = &g->r->kept,
                         .signs = 1,
                         .steps = g->c->out[TN_RELAX_ADJOINT_STEPS].data };
    tn_relax_each(j, g->s, j->count, linearise_share, g);
    tn_relax_run(j, g->s, &v);
    g->recalls = true;
}

tn_status tn_relax_gradients(const tn_call *c, const tn_relax_job *j, const tn_relax_space *s, const tn_relax_rows *r)
{
    grad g = { .c = c, .j = j, .s = s, .r = r, .state = c->out[TN_RELAX_H].data, .rows = j->count };
    const float *dout = c->dout[TN_RELAX_H].data;
    const bool ep = j->attr.grad == TN_LOOP_EP, none = !j->count || (!ep && !dout);
    clear_rest(c, j, none);
    if (none) return TN_OK;
    if (j->attr.grad == TN_LOOP_BPTT) {
        through_time(&g, dout);
        return TN_OK;
    }
    if (ep) TN_RETURN_IF(nudge(&g));
    else if (j->attr.grad == TN_LOOP_IMPLICIT) adjoint(&g, dout);
    else memcpy(r->lambda, dout, sizeof *dout * (size_t)(j->count * j->d));
    tn_relax_each(j, s, j->count, pull_share, &g);
    sum_up(&g);
    return TN_OK;
}
