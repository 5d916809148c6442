/* Gradients of rollout's weights on the CPU. A group's pieces are added one after the other, each a product of at most 256 rows, which
 * tn_gemm sums in one chain: rows of zeros between them change no bit. Tasks are parts of weights, never of pieces. */
#include "ops/rollout/rollout_back.h"
#include "ops/rows.h"
#include "ops/slots.h"

enum { NEURON = TN_ROLLOUT_NEURON, FEATURES = TN_ROLLOUT_FEATURES, HIDDEN = TN_ROLLOUT_HIDDEN, X = TN_ROLLOUT_X };
enum { MOST = 24 + 9 * TN_ROLLOUT_LAYERS, UNIT = 8, COLUMNS = 64 };

/* dw (m,n) from row `row` += the sum over rows of d (rows,m) times a (rows,n); a NULL: dw (m) += sums of d. */
typedef struct sum {
    int input;
    int64_t row, m, n;
    const float *d, *a;
    int64_t d_row, a_row;
    bool rounded;
} sum;

typedef struct tasks {
    const tn_rollout_back *r;
    sum sum[MOST];
    int first[MOST + 1]; /* task of each sum */
    int64_t each[MOST];  /* rows of its dw that a task takes */
    int n;
} tasks;

static void add(tasks *t, sum s)
{
    const tn_arg *din = &t->r->j.c->din[s.input];
    if (!din->data) return;
    const int64_t threads = t->r->j.z.threads, share = tn_tiles(tn_tiles(s.m, threads), UNIT) * UNIT;
    t->sum[t->n] = s;
    t->each[t->n] = s.a ? share : COLUMNS;
    t->first[t->n + 1] = t->first[t->n] + (int)tn_tiles(s.m, t->each[t->n]);
    t->n++;
}

static void add_layers(tasks *t)
{
    const tn_rollout_back *r = t->r;
    const tn_rollout_sizes *z = &r->j.z;
    const tn_rollout_group *g = &r->g;
    const int64_t H = z->H;
    for (int64_t l = 0; l < z->L; l++) {
        const int at = TN_ROLLOUT_GRU + 4 * (int)l;
        const float *d = g->gates + l * g->most * 4 * H, *h = g->h + l * g->most * H;
        const float *x = l ? r->s.h_after + ((l - 1) * z->C + g->first) * H : g->x;
        add(t, (sum){ at, 0, 3 * H, l ? H : FEATURES + z->E, d, x, 4 * H, l ? H : X, true });
        if (r->t) { /* states before the first step are 0 */
            add(t, (sum){ at + 1, 0, 2 * H, H, d, h, 4 * H, H, true });
            add(t, (sum){ at + 1, 2 * H, H, H, d + 3 * H, h, 4 * H, H, true });
        }
        add(t, (sum){ at + 2, 0, 3 * H, 1, d, NULL, 4 * H, 0, false });
        add(t, (sum){ at + 3, 0, 2 * H, 1, d, NULL, 4 * H, 0, false });
        add(t, (sum){ at + 3, 2 * H, H, 1, d + 3 * H, NULL, 4 * H, 0, false });
    }
}

static void add_rest(tasks *t)
{
    const tn_rollout_back *r = t->r;
    const tn_rollout_sizes *z = &r->j.z;
    const tn_rollout_group *g = &r->g;
    const int64_t H = z->H, G = z->G, half = H / 2, I = z->I;
    const float *o = r->s.h_after + ((z->L - 1) * z->C + g->first) * H, *dd = g->dheads + half;
    add(t, (sum){ TN_ROLLOUT_E1, 0, half, H, g->dheads, o, G, H, true });
    add(t, (sum){ TN_ROLLOUT_D1, 0, HIDDEN, H, dd, o, G, H, true });
    if (z->F) add(t, (sum){ TN_ROLLOUT_F, 0, z->F, H, g->dphi, o, z->F, H, false });
    add(t, (sum){ TN_ROLLOUT_V3, 0, FEATURES, NEURON, g->dx, g->a2, X, NEURON, false });
    add(t, (sum){ TN_ROLLOUT_V2, 0, NEURON, NEURON, g->dz2, g->a1, NEURON, NEURON, false });
    add(t, (sum){ TN_ROLLOUT_V1, 0, NEURON, I, g->dz1, g->in, NEURON, I, false });
    add(t, (sum){ TN_ROLLOUT_D2, 0, 3, HIDDEN, g->ddelta, g->gelu + half, 3, G, false });
    add(t, (sum){ TN_ROLLOUT_E2, 0, z->E, half, g->de, g->gelu, z->E, G, false });
    add(t, (sum){ TN_ROLLOUT_Q, 0, 3, 3, g->din, r->s.places + g->first * z->P, I, z->P, false });
    const sum columns[] = {
        { TN_ROLLOUT_E1B, 0, half, 1, g->dheads, NULL, G, 0, false },
        { TN_ROLLOUT_D1B, 0, HIDDEN, 1, dd, NULL, G, 0, false },
        { TN_ROLLOUT_V3B, 0, FEATURES, 1, g->dx, NULL, X, 0, false },
        { TN_ROLLOUT_V2B, 0, NEURON, 1, g->dz2, NULL, NEURON, 0, false },
        { TN_ROLLOUT_N2G, 0, NEURON, 1, g->dn2, NULL, NEURON, 0, false },
        { TN_ROLLOUT_N2B, 0, NEURON, 1, g->dy2, NULL, NEURON, 0, false },
        { TN_ROLLOUT_V1B, 0, NEURON, 1, g->dz1, NULL, NEURON, 0, false },
        { TN_ROLLOUT_N1G, 0, NEURON, 1, g->dn1, NULL, NEURON, 0, false },
        { TN_ROLLOUT_N1B, 0, NEURON, 1, g->dy1, NULL, NEURON, 0, false },
        { TN_ROLLOUT_D2B, 0, 3, 1, g->ddelta, NULL, 3, 0, false },
        { TN_ROLLOUT_E2B, 0, z->E, 1, g->de, NULL, z->E, 0, false },
        { TN_ROLLOUT_QB, 0, 3, 1, g->din, NULL, I, 0, false },
    };
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) add(t, columns[i]);
}

/* --- one task ------------------------------------------------------------------------------------------------------- */

static void add_product(const tn_rollout_back *r, const sum *s, int64_t from, int64_t m, void *work)
{
    const tn_rollout_sizes *z = &r->j.z;
    tn_gemm g = { .m = m,
                  .n = s->n,
                  .a_row = 1,
                  .a_col = s->d_row,
                  .b_row = s->a_row,
                  .b_col = 1,
                  .c = (float *)r->j.c->din[s->input].data + (s->row + from) * s->n,
                  .c_row = s->n,
                  .batch = 1,
                  .round = s->rounded ? z->round : TN_F32,
                  .bf16x3 = s->rounded && z->bf16x3,
                  .portable_only = z->portable,
                  .accumulate = true,
                  .alpha = 1 };
    for (int64_t k = r->g.piece; k < r->g.piece + r->g.pieces; k++) {
        const int64_t at = r->piece[k] - r->g.first;
        g.k = r->piece[k + 1] - r->piece[k];
        g.a = s->d + at * s->d_row + from;
        g.b = s->a + at * s->a_row;
        if (g.k) tn_gemm_run(NULL, &g, work);
    }
}

static void add_columns(const tn_rollout_back *r, const sum *s, int64_t from, int64_t m)
{
    float *to = (float *)r->j.c->din[s->input].data + s->row + from;
    for (int64_t k = r->g.piece; k < r->g.piece + r->g.pieces; k++) {
        double total[COLUMNS] = { 0 };
        for (int64_t i = r->piece[k]; i < r->piece[k + 1]; i++) {
            const float *d = s->d + (i - r->g.first) * s->d_row + from;
            for (int64_t c = 0; c < m; c++) total[c] += (double)d[c];
        }
        for (int64_t c = 0; c < m; c++) to[c] += (float)total[c];
    }
}

static void task(void *arg, void *work, int64_t index)
{
    const tasks *t = arg;
    int i = 0;
    while (t->first[i + 1] <= index) i++;
    const sum *s = &t->sum[i];
    const int64_t from = (index - t->first[i]) * t->each[i], left = s->m - from,
                  m = left < t->each[i] ? left : t->each[i];
    if (s->a) add_product(t->r, s, from, m, work);
    else add_columns(t->r, s, from, m);
}

size_t tn_rollout_weights_work(const tn_rollout_sizes *z)
{
    const int64_t wide = z->H > X ? z->H : X;
    return tn_align64(tn_gemm_work_most(3 * z->H > FEATURES ? 3 * z->H : FEATURES, wide, 1));
}

void tn_rollout_weights(tn_rollout_back *r)
{
    tasks t = { .r = r };
    add_layers(&t);
    add_rest(&t);
    tn_slots_run(r->j.c->pool, t.first[t.n], task, &t, r->weights, r->weight_bytes);
}
