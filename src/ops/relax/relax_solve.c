/* The solves of relax: one phase (free, nudged, adjoint) for all samples, by tiles.
 *
 * Each sample by itself (rtol): a thread fills its tile with samples that wait, steps it, and puts the next one into the
 * column of each that has arrived; when none waits, columns move together and the tile gets narrower. All together (tol):
 * a step of all tiles, then one look at all samples. Who computes a sample changes nothing in it. */
#include "ops/relax/relax_cpu.h"

#include <math.h>
#include <string.h>

/* --- memory ------------------------------------------------------------------------------------------------------- */

static tn_relax_pairs lay_pairs(tn_relax_memory *s, int memory, int64_t d)
{
    enum { W = TN_RELAX_LANES };
    tn_relax_pairs p = { .memory = memory };
    p.r = tn_relax_take(s, sizeof *p.r * (size_t)(memory * d * W));
    p.f = tn_relax_floats(s, memory * d * W);
    p.gram = tn_relax_take(s, sizeof *p.gram * (size_t)(memory * memory * W));
    p.system = tn_relax_take(s, sizeof *p.system * (size_t)(memory * memory * W));
    return p;
}

static tn_relax_tile lay_tile(const tn_relax_job *j, bool backward, char *base, size_t *used)
{
    enum { W = TN_RELAX_LANES };
    tn_relax_memory s = { .base = base };
    tn_relax_tile t = { .width = W };
    const int64_t most = j->f > j->d ? j->f : j->d, widest = most > j->C ? most : j->C;
    t.h = tn_relax_floats(&s, j->d * W), t.a = tn_relax_floats(&s, j->d * W), t.u = tn_relax_floats(&s, j->d * W);
    t.x = tn_relax_floats(&s, j->d * W), t.y = tn_relax_floats(&s, j->d * W), t.z = tn_relax_floats(&s, j->f * W);
    t.residual = tn_relax_floats(&s, W), t.distance = tn_relax_floats(&s, W), t.moved = tn_relax_floats(&s, W);
    t.eta = tn_relax_floats(&s, W), t.weight = tn_relax_floats(&s, W);
    if (backward && j->attr.grad == TN_LOOP_EP)
        t.rest = tn_relax_floats(&s, j->d * W), t.origin = tn_relax_floats(&s, j->d * W);
    if (backward || (j->block && j->attr.grad == TN_LOOP_BPTT))
        t.n = tn_relax_floats(&s, j->d * W), t.s = tn_relax_floats(&s, W);
    if (backward) {
        t.slope = tn_relax_floats(&s, j->f * W), t.n2 = tn_relax_floats(&s, j->d * W), t.s2 = tn_relax_floats(&s, W);
        t.logits = tn_relax_floats(&s, j->C * W);
    }
    if (j->rounded) {
        t.rows = tn_relax_floats(&s, (widest + 31) / 32 * 32 * W);
        t.gemm = tn_relax_take(&s, tn_gemm_work_most(W, widest, 1));
    }
    if (j->attr.solver == TN_SOLVE_ANDERSON && j->together) t.row = tn_relax_floats(&s, 2 * j->d);
    if (j->attr.solver == TN_SOLVE_ANDERSON && !j->together) t.pairs = lay_pairs(&s, j->attr.memory, j->d);
    *used = s.used;
    return t;
}

static size_t tile_bytes(const tn_relax_job *j, bool backward)
{
    size_t used;
    lay_tile(j, backward, NULL, &used);
    return (used + 63) / 64 * 64;
}

static tn_relax_space lay_space(const tn_relax_job *j, bool backward, int slots, char *base, size_t *used)
{
    tn_relax_memory s = { .base = base };
    tn_relax_space r = { .tile_bytes = tile_bytes(j, backward), .slots = slots, .backward = backward };
    r.tiles = tn_relax_take(&s, r.tile_bytes * (size_t)slots);
    if (j->together) {
        r.residual = tn_relax_floats(&s, j->B), r.moved = tn_relax_floats(&s, j->B),
        r.spare = tn_relax_floats(&s, j->B * j->d);
        if (j->attr.solver == TN_SOLVE_ANDERSON) {
            void *pairs = tn_relax_take(&s, tn_anderson_bytes(j->attr.memory, j->B, j->d));
            if (base) r.pairs = tn_anderson_at(pairs, j->attr.memory, j->B, j->d);
        }
    }
    *used = s.used;
    return r;
}

size_t tn_relax_space_bytes(const tn_relax_job *j, bool backward, int slots)
{
    size_t used;
    lay_space(j, backward, slots, NULL, &used);
    return used;
}

tn_relax_space tn_relax_space_at(const tn_relax_job *j, bool backward, int slots, void *base)
{
    size_t used;
    return lay_space(j, backward, slots, base, &used);
}

static tn_relax_tile tile_at(const tn_relax_job *j, const tn_relax_space *s, int64_t slot)
{
    size_t used;
    return lay_tile(j, s->backward, s->tiles + s->tile_bytes * (size_t)slot, &used);
}

/* --- sharing out -------------------------------------------------------------------------------------------------- */

/* Samples of a tile: full ones, but no thread is to wait while another has two vectors of them. */
static int share(int64_t samples, int slots)
{
    const int64_t each = (samples + slots - 1) / slots;
    return tn_relax_width(each < TN_RELAX_LANES ? (int)each : TN_RELAX_LANES);
}

typedef struct shares {
    const tn_relax_job *j;
    const tn_relax_space *s;
    tn_relax_share *fn;
    void *arg;
    int64_t samples;
    int each;
    _Atomic int64_t next;
} shares;

static void shares_slot(void *arg, int64_t slot)
{
    shares *w = arg;
    tn_relax_tile t = tile_at(w->j, w->s, slot);
    memset(t.eta, 0, sizeof *t.eta * TN_RELAX_LANES); /* of columns without a sample, which are computed too */
    memset(t.weight, 0, sizeof *t.weight * TN_RELAX_LANES);
    if (w->j->amx) tn__relax_amx_begin();
    for (int64_t at; (at = atomic_fetch_add_explicit(&w->next, w->each, memory_order_relaxed)) < w->samples;) {
        t.live = (int)(w->samples - at < w->each ? w->samples - at : w->each);
        t.width = tn_relax_width(t.live);
        w->fn(w->arg, &t, at);
    }
    if (w->j->amx) tn__relax_amx_end();
}

void tn_relax_each(const tn_relax_job *j, const tn_relax_space *s, int64_t n, tn_relax_share *fn, void *arg)
{
    shares w = { .j = j, .s = s, .fn = fn, .arg = arg, .samples = n, .each = share(n, s->slots) };
    if (n) tn_pool_run(j->pool, s->slots, shares_slot, &w);
}

/* --- samples in columns ------------------------------------------------------------------------------------------- */

static void put_column(float *a, int width, int lane, const float *row, int64_t k)
{
    for (int64_t i = 0; i < k; i++) a[i * width + lane] = row ? row[i] : 0;
}

static void get_column(const float *a, int width, int lane, float *row, int64_t k)
{
    for (int64_t i = 0; i < k; i++) row[i] = a[i * width + lane];
}

void tn_relax_load(float *a, int width, const float *rows, int64_t step, int n, int64_t k)
{
    const float *at[TN_RELAX_LANES];
    for (int l = 0; l < n; l++) at[l] = rows + l * step;
    tn_relax_gather(a, width, at, n, k);
}

void tn_relax_store(const float *a, int width, float *rows, int64_t step, int n, int64_t k)
{
    float *at[TN_RELAX_LANES];
    for (int l = 0; l < n; l++) at[l] = rows + l * step;
    tn_relax_scatter(a, width, at, n, k);
}

void tn_relax_set_cost(const tn_relax_job *j, const tn_relax_solve *v, tn_relax_tile *t, int lane, int64_t sample,
                       int sign)
{
    t->label[lane] = j->labels[sample];
    t->weight[lane] = j->weights ? j->weights[sample] : 1;
    t->eta[lane] = sign ? -v->eta : v->eta;
}

void tn_relax_set_phase(const tn_relax_job *j, const tn_relax_solve *v, tn_relax_tile *t)
{
    if (!v->rest) t->rest = NULL;
    if (v->phase != TN_RELAX_NUDGED || !(j->move > 0)) t->origin = NULL;
    t->limit = t->origin ? j->move : j->rtol;
}

void tn_relax_recall(const tn_relax_job *j, tn_relax_tile *t, const tn_relax_kept *k, int64_t first)
{
    tn_relax_load(t->slope, t->width, k->slope + first * k->f_apart, k->f_apart, t->live, j->f);
    if (!j->block) return;
    tn_relax_load(t->n2, t->width, k->n2 + first * j->d, j->d, t->live, j->d);
    tn_relax_load(t->n, t->width, k->n + first * j->d, j->d, t->live, j->d);
    tn_relax_load(t->s2, t->width, k->s2 + first, 1, t->live, 1);
    tn_relax_load(t->s, t->width, k->s + first, 1, t->live, 1);
}

void tn_relax_remember(const tn_relax_job *j, const tn_relax_tile *t, const tn_relax_kept *k, int64_t first)
{
    tn_relax_store(t->slope, t->width, k->slope + first * k->f_apart, k->f_apart, t->live, j->f);
    if (!j->block) return;
    tn_relax_store(t->n2, t->width, k->n2 + first * j->d, j->d, t->live, j->d);
    tn_relax_store(t->n, t->width, k->n + first * j->d, j->d, t->live, j->d);
    tn_relax_store(t->s2, t->width, k->s2 + first, 1, t->live, 1);
    tn_relax_store(t->s, t->width, k->s + first, 1, t->live, 1);
}

/* --- each sample by itself ---------------------------------------------------------------------------------------- */

typedef struct flow {
    const tn_relax_job *j;
    const tn_relax_space *s;
    tn_relax_solve *v;
    int64_t tasks;
    _Atomic int64_t next;
} flow;

/* An array (rows,width) of the tile that a sample has a column of. */
typedef struct array {
    void *data;
    int64_t rows;
    size_t bytes; /* of an element: 4 or 8 */
} array;

enum { MOST_ARRAYS = 12 };

/* All that a sample takes along between two steps of this phase. */
static int arrays_of(const flow *w, const tn_relax_tile *t, array *a)
{
    const tn_relax_job *j = w->j;
    const tn_relax_pairs *p = &t->pairs;
    int n = 0;
    a[n++] = (array){ t->h, j->d, sizeof *t->h };
    a[n++] = (array){ t->a, j->d, sizeof *t->a };
    a[n++] = (array){ t->eta, 1, sizeof *t->eta };
    a[n++] = (array){ t->weight, 1, sizeof *t->weight };
    if (t->rest) a[n++] = (array){ t->rest, j->d, sizeof *t->rest };
    if (t->origin) a[n++] = (array){ t->origin, j->d, sizeof *t->origin };
    if (w->v->phase == TN_RELAX_ADJOINT) {
        a[n++] = (array){ t->slope, j->f, sizeof *t->slope };
        a[n++] = (array){ t->n2, j->d, sizeof *t->n2 };
        a[n++] = (array){ t->n, j->d, sizeof *t->n };
        a[n++] = (array){ t->s2, 1, sizeof *t->s2 };
        a[n++] = (array){ t->s, 1, sizeof *t->s };
    }
    if (p->memory) {
        a[n++] = (array){ p->r, p->memory * j->d, sizeof *p->r };
        a[n++] = (array){ p->f, p->memory * j->d, sizeof *p->f };
        a[n++] = (array){ p->gram, p->memory * p->memory, sizeof *p->gram };
    }
    return n;
}

/* The next task that waits into column `lane`; false: none does. */
static bool enter(flow *w, tn_relax_tile *t, int lane)
{
    const tn_relax_job *j = w->j;
    const tn_relax_solve *v = w->v;
    if (atomic_load_explicit(&w->next, memory_order_relaxed) >= w->tasks) return false;
    const int64_t at = atomic_fetch_add_explicit(&w->next, 1, memory_order_relaxed);
    if (at >= w->tasks) return false;
    const int64_t task = v->waiting ? v->waiting[at] : at, b = task % j->count;
    const tn_relax_kept *k = v->kept;
    const float *from = v->waiting ? v->to + (task / j->count * j->B + b) * j->d : v->from ? v->from + b * j->d : NULL;
    t->task[lane] = task;
    t->steps[lane] = v->waiting ? 1 : 0;
    put_column(t->h, t->width, lane, from, j->d);
    put_column(t->a, t->width, lane, v->inject + b * j->d, j->d);
    if (v->phase == TN_RELAX_NUDGED) tn_relax_set_cost(j, v, t, lane, b, task >= j->count);
    if (t->rest) put_column(t->rest, t->width, lane, v->rest + b * j->d, j->d);
    if (t->origin) put_column(t->origin, t->width, lane, v->from + b * j->d, j->d);
    if (v->phase == TN_RELAX_ADJOINT) {
        put_column(t->slope, t->width, lane, k->slope + b * k->f_apart, j->f);
        if (j->block) {
            put_column(t->n2, t->width, lane, k->n2 + b * j->d, j->d);
            put_column(t->n, t->width, lane, k->n + b * j->d, j->d);
            t->s2[lane] = k->s2[b], t->s[lane] = k->s[b];
        }
    }
    t->pairs.kept[lane] = 0;
    return true;
}

static void leave(const flow *w, tn_relax_tile *t, int lane)
{
    const tn_relax_job *j = w->j;
    const tn_relax_solve *v = w->v;
    const int64_t sign = t->task[lane] / j->count, b = t->task[lane] % j->count;
    get_column(t->h, t->width, lane, v->to + (sign * j->B + b) * j->d, j->d);
    if (v->steps) v->steps[sign * j->B + b] = t->steps[lane];
    if (v->residuals) v->residuals[b] = t->residual[lane];
}

/* The last column takes the place of `lane`. */
static void close_gap(const flow *w, tn_relax_tile *t, int lane)
{
    array a[MOST_ARRAYS];
    const int last = --t->live, n = arrays_of(w, t, a), W = t->width;
    if (lane == last) return;
    for (int k = 0; k < n; k++) {
        float *f = a[k].data;
        double *d = a[k].data;
        if (a[k].bytes == sizeof *f)
            for (int64_t i = 0; i < a[k].rows; i++) f[i * W + lane] = f[i * W + last];
        else
            for (int64_t i = 0; i < a[k].rows; i++) d[i * W + lane] = d[i * W + last];
    }
    t->task[lane] = t->task[last], t->steps[lane] = t->steps[last], t->label[lane] = t->label[last];
    t->pairs.kept[lane] = t->pairs.kept[last], t->pairs.before[lane] = t->pairs.before[last];
}

/* The tile becomes as narrow as the samples it holds allow. */
static void narrow(const flow *w, tn_relax_tile *t)
{
    array a[MOST_ARRAYS];
    const int n = arrays_of(w, t, a), width = tn_relax_width(t->live);
    for (int k = 0; width < t->width && k < n; k++) {
        const size_t from = (size_t)t->width * a[k].bytes, to = (size_t)width * a[k].bytes;
        for (size_t i = 1; i < (size_t)a[k].rows; i++)
            memmove((char *)a[k].data + i * to, (char *)a[k].data + i * from, to);
    }
    t->width = width;
}

/* Columns without a sample are computed too: they begin as zeros. */
static void clear(const flow *w, tn_relax_tile *t)
{
    array a[MOST_ARRAYS];
    const int n = arrays_of(w, t, a);
    for (int k = 0; k < n; k++) memset(a[k].data, 0, (size_t)(a[k].rows * t->width) * a[k].bytes);
}

/* The states before this step, where they are kept. */
static void keep_states(const flow *w, const tn_relax_tile *t)
{
    const tn_relax_job *j = w->j;
    float *rows[TN_RELAX_LANES];
    if (!w->v->history) return;
    for (int l = 0; l < t->live; l++) rows[l] = w->v->history + (t->steps[l] * j->B + t->task[l]) * j->d;
    tn_relax_scatter(t->h, t->width, rows, t->live, j->d);
}

/* And what the norm made in it. */
static void keep_normals(const flow *w, const tn_relax_tile *t)
{
    const tn_relax_job *j = w->j;
    float *rows[TN_RELAX_LANES];
    if (!w->v->normal) return;
    for (int l = 0; l < t->live; l++) {
        const int64_t row = t->steps[l] * j->B + t->task[l];
        rows[l] = w->v->normal + row * j->d;
        w->v->scales[row] = t->s[l];
    }
    tn_relax_scatter(t->n, t->width, rows, t->live, j->d);
}

/* y = the map of the phase at h. */
static void evaluate(const tn_relax_job *j, const tn_relax_solve *v, tn_relax_tile *t)
{
    if (v->phase == TN_RELAX_ADJOINT) {
        tn_relax_pull(j, t, t->h);
        tn_relax_add(j, t);
        return;
    }
    tn_relax_apply(j, t, v->normal ? TN_RELAX_KEEP_OUT : 0);
    if (v->phase == TN_RELAX_NUDGED) tn_relax_nudge(j, t);
}

/* h <- the next point, given y. */
static void step(const tn_relax_job *j, tn_relax_tile *t)
{
    const bool accelerates = j->attr.solver == TN_SOLVE_ANDERSON;
    tn_relax_advance(j, t, accelerates);
    if (accelerates) tn_relax_accelerate(j, t);
}

static void flow_slot(void *arg, int64_t slot)
{
    flow *w = arg;
    const tn_relax_job *j = w->j;
    tn_relax_tile t = tile_at(j, w->s, slot);
    tn_relax_set_phase(j, w->v, &t);
    const int most = share(w->tasks, w->s->slots);
    t.width = most;
    clear(w, &t);
    if (j->amx) tn__relax_amx_begin();
    while (t.live < most && enter(w, &t, t.live)) t.live++;
    while (t.live) {
        narrow(w, &t);
        keep_states(w, &t);
        evaluate(j, w->v, &t);
        keep_normals(w, &t);
        step(j, &t);
        for (int l = t.live - 1; l >= 0; l--) { /* from the end: what closes a gap has been looked at */
            if (++t.steps[l] < j->attr.steps && !(t.residual[l] < t.limit)) continue;
            leave(w, &t, l);
            if (!enter(w, &t, l)) close_gap(w, &t, l);
        }
    }
    if (j->amx) tn__relax_amx_end();
}

/* --- all together ------------------------------------------------------------------------------------------------- */

typedef struct march {
    const tn_relax_job *j;
    const tn_relax_space *s;
    const tn_relax_solve *v;
    const float *from; /* NULL: 0 */
    float *to;
    int64_t taken;
    int sign;
} march;

/* The pairs of samples that come back in every step lie in rows of their own. */
static void accelerate(const tn_relax_job *j, tn_relax_tile *t, const tn_anderson *pairs, int64_t first)
{
    float *h = t->row, *y = t->row + j->d;
    for (int l = 0; l < t->live; l++) {
        get_column(t->h, t->width, l, h, j->d);
        get_column(t->y, t->width, l, y, j->d);
        t->moved[l] = (float)tn_anderson_step(pairs, first + l, j->damping, h, y);
        put_column(t->h, t->width, l, h, j->d);
    }
}

static void march_share(void *arg, tn_relax_tile *t, int64_t first)
{
    const march *w = arg;
    const tn_relax_job *j = w->j;
    const tn_relax_solve *v = w->v;
    const tn_relax_kept *k = v->kept;
    tn_relax_set_phase(j, v, t);
    if (t->rest) tn_relax_load(t->rest, t->width, v->rest + first * j->d, j->d, t->live, j->d);
    if (w->from) tn_relax_load(t->h, t->width, w->from + first * j->d, j->d, t->live, j->d);
    else memset(t->h, 0, sizeof *t->h * (size_t)(j->d * t->width));
    tn_relax_load(t->a, t->width, v->inject + first * j->d, j->d, t->live, j->d);
    for (int l = 0; v->phase == TN_RELAX_NUDGED && l < t->live; l++) tn_relax_set_cost(j, v, t, l, first + l, w->sign);
    if (v->phase == TN_RELAX_ADJOINT) tn_relax_recall(j, t, k, first);
    evaluate(j, v, t);
    if (v->normal) {
        const int64_t row = w->taken * j->B + first;
        tn_relax_store(t->n, t->width, v->normal + row * j->d, j->d, t->live, j->d);
        memcpy(v->scales + row, t->s, sizeof *t->s * (size_t)t->live);
    }
    tn_relax_advance(j, t, j->attr.solver == TN_SOLVE_ANDERSON);
    if (j->attr.solver == TN_SOLVE_ANDERSON) accelerate(j, t, &w->s->pairs, first);
    tn_relax_store(t->h, t->width, w->to + first * j->d, j->d, t->live, j->d);
    memcpy(w->s->residual + first, t->residual, sizeof *t->residual * (size_t)t->live);
    memcpy(w->s->moved + first, t->moved, sizeof *t->moved * (size_t)t->live);
}

/* Have they arrived? By the move of the whole batch. */
static bool arrived(const tn_relax_job *j, const tn_relax_space *s)
{
    double moved = 0;
    for (int64_t b = 0; b < j->count; b++) moved += (double)s->moved[b];
    return sqrt(moved) < (double)j->tol;
}

/* One sign. States go back and forth between v->to and the spare rows, or through the history. */
static void march_all(const tn_relax_job *j, const tn_relax_space *s, tn_relax_solve *v, int sign)
{
    const size_t bytes = sizeof(float) * (size_t)(j->count * j->d);
    float *to = v->to + sign * j->B * j->d;
    march w = { .j = j, .s = s, .v = v, .from = v->from, .sign = sign };
    bool done = false;
    for (int64_t b = 0; j->attr.solver == TN_SOLVE_ANDERSON && b < j->count; b++) tn_anderson_restart(&s->pairs, b);
    for (; !done && w.taken < j->attr.steps; w.taken++) {
        float *now = v->history ? v->history + w.taken * j->B * j->d : NULL;
        if (now && w.from) memcpy(now, w.from, bytes);
        else if (now) memset(now, 0, bytes);
        w.to = w.from == to ? s->spare : to;
        tn_relax_each(j, s, j->count, march_share, &w);
        w.from = w.to;
        done = arrived(j, s);
    }
    if (w.from != to) memcpy(to, w.from, bytes);
    for (int64_t b = 0; v->steps && b < j->count; b++) v->steps[sign * j->B + b] = (int32_t)w.taken;
    if (v->residuals) memcpy(v->residuals, s->residual, sizeof(float) * (size_t)j->count);
}

void tn_relax_run(const tn_relax_job *j, const tn_relax_space *s, tn_relax_solve *v)
{
    flow w = { .j = j, .s = s, .v = v, .tasks = v->waiting ? v->n_waiting : j->count * v->signs };
    if (!w.tasks) return;
    if (!j->together) tn_pool_run(j->pool, s->slots, flow_slot, &w);
    for (int sign = 0; j->together && sign < v->signs; sign++) march_all(j, s, v, sign);
}
