/* One panel of rollout's rows on the CPU, backward: from the gradients by place, energy and states after a step to those before it,
 * with what the weights' gradients need left in the group. The neuron is computed again; gates and heads are read. */
#include "ops/gru/gru_gates.h"
#include "ops/rollout/rollout_back.h"
#include "ops/slots.h"

#include <math.h>
#include <string.h>

enum { NEURON = TN_ROLLOUT_NEURON, FEATURES = TN_ROLLOUT_FEATURES, X = TN_ROLLOUT_X };

tn_rollout_slopes tn_rollout_slopes_at(const tn_rollout_sizes *z, void *base)
{
    tn_rollout_slopes s = { .p = tn_rollout_panel_at(z, base) };
    const size_t rows = sizeof(float) * (size_t)tn_rollout_panel_most(z);
    s.bytes = tn_align64(s.p.bytes);
    s.da = tn_carve(base, &s.bytes, rows * NEURON);
    s.place = tn_carve(base, &s.bytes, rows * 3);
    s.start = tn_carve(base, &s.bytes, rows * 3);
    s.e = tn_carve(base, &s.bytes, rows * (size_t)z->E);
    s.want = tn_carve(base, &s.bytes, rows * 3);
    s.phi = tn_carve(base, &s.bytes, rows * (size_t)z->F);
    s.after = tn_carve(base, &s.bytes, rows * 3);
    return s;
}

/* The rows at work: of the panel, of the group, of the step. */
typedef struct at {
    const tn_rollout_back *r;
    const tn_rollout_sizes *z;
    const tn_rollout_slopes *p;
    int64_t local, row, rows; /* first among the group's, first among the step's */
} at;

static const float *weight(const at *w, int input) { return w->r->j.c->in[input].data; }

static void multiply(const at *w, int which, bool backward, const float *a, int64_t a_row, float *c, int64_t c_row,
                     bool add)
{
    tn_gemm g = tn_rollout_with(&w->r->j, which, backward, w->rows);
    g.a = a, g.a_row = a_row;
    g.c = c, g.c_row = c_row;
    g.accumulate = add;
    tn_gemm_run(NULL, &g, w->p->p.work);
}

/* --- what comes from the step after ------------------------------------------------------------------------------------ */

static float number_at(const tn_arg *a, int64_t i) { return a->data ? ((const float *)a->data)[i] : 0; }

/* Adds the gradients of the flow in `slot` after the step: from its row, or from its landing. */
static void add_from(const at *w, int64_t slot, float *place, float *e, float *const *h)
{
    const tn_rollout_sizes *z = w->z;
    const tn_arg *dout = w->r->j.c->dout, *out = w->r->j.c->out;
    const int64_t from = w->r->row_of[slot];
    const int next = (int)((w->r->t + 1) % 2);
    if (from < 0) {
        const bool projected = ((const int32_t *)out[TN_ROLLOUT_LANDED].data)[slot] == 2;
        const bool upper = ((const int32_t *)out[TN_ROLLOUT_PLANE].data)[slot] == 1;
        const float d = projected ? number_at(&dout[TN_ROLLOUT_D], slot) : 0;
        place[0] += number_at(&dout[TN_ROLLOUT_U], slot);
        place[1] += number_at(&dout[TN_ROLLOUT_V], slot);
        place[2] += upper ? -d : d;
        for (int64_t k = 0; k < z->E; k++) e[k] += number_at(&dout[TN_ROLLOUT_E], slot * z->E + k);
        return;
    }
    const float *g = w->r->dplace[next] + from * z->P;
    for (int a = 0; a < 3; a++) place[a] += g[a];
    for (int64_t k = 0; k < z->E; k++) e[k] += g[3 + k];
    for (int64_t l = 0; l < z->L; l++) {
        const float *restrict dh = w->r->dh[next] + (l * z->C + from) * z->H;
        float *restrict to = h[l];
        for (int64_t k = 0; k < z->H; k++) to[k] += dh[k];
    }
}

/* Energy and place of a row after the step. */
static void find_after(const at *w, int64_t slot, bool up, float *e, float *place)
{
    const tn_rollout_sizes *z = w->z;
    const tn_arg *out = w->r->j.c->out;
    const int64_t next = w->r->row_of[slot];
    if (next >= 0) {
        const float *there = (const float *)out[TN_ROLLOUT_PLACES].data + ((w->r->t + 1) * z->C + next) * z->P;
        memcpy(place, there, sizeof *place * 3);
        memcpy(e, there + 3, sizeof *e * (size_t)z->E);
        return;
    }
    memcpy(e, (const float *)out[TN_ROLLOUT_E].data + slot * z->E, sizeof *e * (size_t)z->E);
    /* it left: who was projected gave to a field that nobody read */
    place[0] = number_at(&out[TN_ROLLOUT_U], slot);
    place[1] = number_at(&out[TN_ROLLOUT_V], slot);
    place[2] = up ? 1 : -1;
}

/* dh of the step gets the gradients by the new states, place and start those by place after and (of children) before the step. */
static void gather(const at *w)
{
    const tn_rollout_sizes *z = w->z;
    const tn_rollout_slopes *p = w->p;
    float *de = w->r->g.de + w->local * z->E, *dh = w->r->dh[w->r->t % 2];
    memset(p->place, 0, sizeof(float) * (size_t)(w->rows * 3));
    memset(p->start, 0, sizeof(float) * (size_t)(w->rows * 3));
    memset(de, 0, sizeof(float) * (size_t)(w->rows * z->E));
    for (int64_t l = 0; l < z->L; l++)
        memset(dh + (l * z->C + w->row) * z->H, 0, sizeof(float) * (size_t)(w->rows * z->H));
    for (int64_t i = 0; i < w->rows; i++) {
        const int32_t bits = w->r->s.bits[w->row + i], slot = w->r->s.slot[w->row + i];
        float *e = p->e + i * z->E, *after = p->after + i * 3, *h[TN_ROLLOUT_LAYERS];
        if (bits & TN_ROLLOUT_OFF) {
            memset(e, 0, sizeof *e * (size_t)z->E);
            memset(after, 0, sizeof *after * 3);
            continue;
        }
        for (int64_t l = 0; l < z->L; l++) h[l] = dh + (l * z->C + w->row + i) * z->H;
        find_after(w, slot, bits & TN_ROLLOUT_UPPER, e, after);
        add_from(w, slot, p->place + i * 3, de + i * z->E, h);
        for (int32_t k = 0; k < bits >> TN_ROLLOUT_CHILDREN; k++)
            add_from(w, w->r->child[w->row + i] + k, p->start + i * 3, de + i * z->E, h);
        for (int64_t k = 0; k < z->E; k++) de[i * z->E + k] *= 1.0f - e[k] * e[k];
    }
}

/* --- move, heads ------------------------------------------------------------------------------------------------------ */

static void field_back(const at *w)
{
    const tn_rollout_sizes *z = w->z;
    const int64_t sample = z->voxels * z->F;
    const float *o = w->r->s.h_after + ((z->L - 1) * z->C + w->row) * z->H;
    float *dphi = w->r->g.dphi + w->local * z->F;
    if (z->a->smooth) multiply(w, BY_F, false, o, z->H, w->p->phi, z->F, false);
    for (int64_t i = 0; i < w->rows; i++) {
        const int64_t b = w->r->s.slot[w->row + i] / z->N;
        memset(dphi + i * z->F, 0, sizeof *dphi * (size_t)z->F);
        if (w->r->s.bits[w->row + i] & TN_ROLLOUT_OFF) continue;
        tn_rollout_deposit_back(z, w->r->dgrid[0] + b * sample, w->p->after + i * 3,
                                z->a->smooth ? w->p->phi + i * z->F : NULL, dphi + i * z->F, w->p->place + i * 3);
    }
}

/* The wanted moves once more, where they were cut. */
static void find_want(const at *w)
{
    const tn_rollout_sizes *z = w->z;
    tn_rollout_moves m = tn_rollout_moves_of(&w->r->j, &w->r->s, w->row, w->rows);
    tn_gemm g = tn_rollout_with(&w->r->j, BY_D2, false, w->rows);
    g.a = w->r->g.gelu + w->local * z->G + z->H / 2, g.a_row = z->G;
    g.bias = weight(w, TN_ROLLOUT_D2B);
    g.c = w->p->p.delta, g.c_row = 3;
    tn_gemm_run(NULL, &g, w->p->p.work);
    m.delta = w->p->p.delta;
    m.want = w->p->want;
    tn_rollout_move(&m);
}

/* Gradient by the wanted move, from that by the cut one. */
static void cut_back(const tn_rollout_attr *a, const float *want, float *d)
{
    const float length = sqrtf(want[0] * want[0] + want[1] * want[1] + want[2] * want[2]);
    if (!(length > a->rho)) return;
    float along = 0;
    for (int k = 0; k < 3; k++) d[k] *= a->rho / length;
    for (int k = 0; k < 3; k++) along += d[k] * want[k];
    for (int k = 0; k < 3; k++) d[k] -= along * want[k] / (length * length);
}

static void move_back(const at *w)
{
    const tn_rollout_attr *a = w->z->a;
    const bool cut = a->spawn && a->shorten;
    float *ddelta = w->r->g.ddelta + w->local * 3;
    if (cut) find_want(w);
    for (int64_t i = 0; i < w->rows; i++) {
        const int32_t bits = w->r->s.bits[w->row + i];
        const float *place = w->p->place + i * 3,
                    sign[3] = { bits & TN_ROLLOUT_FOLDED ? -1 : 1, bits & TN_ROLLOUT_FOLDED << 1 ? -1 : 1,
                                bits & TN_ROLLOUT_LEFT ? 0 : 1 };
        float want[3];
        for (int k = 0; k < 3; k++) {
            want[k] = sign[k] * place[k];
            w->p->start[i * 3 + k] += want[k];
        }
        if (cut) cut_back(a, w->p->want + i * 3, want);
        for (int k = 0; k < 3; k++) ddelta[i * 3 + k] = bits & TN_ROLLOUT_CLAMPED << k ? 0 : w->r->j.kappa * want[k];
    }
}

static void heads_back(const at *w)
{
    const tn_rollout_sizes *z = w->z;
    const tn_rollout_group *g = &w->r->g;
    const int64_t H = z->H, G = z->G;
    float *d = g->dheads + w->local * G, *dh = w->r->dh[w->r->t % 2] + ((z->L - 1) * z->C + w->row) * H;
    multiply(w, BY_E2, true, g->de + w->local * z->E, z->E, d, G, false);
    multiply(w, BY_D2, true, g->ddelta + w->local * 3, 3, d + H / 2, G, false);
    tn_rollout_times(w->p->p.heads, d, w->rows * G);
    multiply(w, BY_E1, true, d, G, dh, H, true);
    multiply(w, BY_D1, true, d + H / 2, G, dh, H, true);
    if (z->F) multiply(w, BY_F, true, g->dphi + w->local * z->F, z->F, dh, H, true);
}

/* --- GRU, neuron ------------------------------------------------------------------------------------------------------ */

static void layers_back(const at *w)
{
    const tn_rollout_sizes *z = w->z;
    const tn_rollout_group *g = &w->r->g;
    const int64_t H = z->H;
    for (int64_t l = z->L - 1; l >= 0; l--) {
        const int by = BY_LAYER + (int)l * LAYER_PRODUCTS;
        float *h = g->h + (l * g->most + w->local) * H, *d = g->gates + (l * g->most + w->local) * 4 * H;
        float *dh = w->r->dh[w->r->t % 2] + (l * z->C + w->row) * H, *below = dh - z->C * H;
        const float *from = tn_rollout_states(z, &w->r->s, l, w->row, w->rows, h);
        if (from != h) memcpy(h, from, sizeof *h * (size_t)(w->rows * H));
        tn_gru_gate_slopes(&(tn_gru_slopes){ .gates = w->r->s.gates + (l * z->C + w->row) * 4 * H,
                                             .h = h,
                                             .dy = dh,
                                             .h_row = H,
                                             .d = d,
                                             .d_row = 4 * H,
                                             .dh = dh,
                                             .dh_row = H,
                                             .rows = w->rows,
                                             .H = H });
        if (w->r->t) { /* states before the first step are no one's */
            multiply(w, by + BY_H_RZ, true, d, 4 * H, dh, H, true);
            multiply(w, by + BY_H_N, true, d + 3 * H, 4 * H, dh, H, true);
        }
        if (l) multiply(w, by + BY_I, true, d, 4 * H, below, H, true);
        else multiply(w, by + BY_I, true, d, 4 * H, g->dx + w->local * X, X, false);
    }
}

static void neuron_back(const at *w)
{
    const tn_rollout_group *g = &w->r->g;
    const int64_t I = w->z->I, from = w->local * NEURON;
    tn_rollout_panel p = w->p->p;
    p.in = g->in + w->local * I;
    p.a1 = g->a1 + from;
    p.a2 = g->a2 + from;
    p.x = g->x + w->local * X;
    float *const z[] = { g->dz1 + from, g->dz2 + from }, *const slope[] = { g->dy1 + from, g->dy2 + from };
    tn_rollout_neuron(&w->r->j, &w->r->s, &p, w->row, w->rows, z, slope);
    multiply(w, BY_V3, true, g->dx + w->local * X, X, w->p->da, NEURON, false);
    tn_rollout_norm_back(weight(w, TN_ROLLOUT_N2G), w->p->da, g->dz2 + from, g->dy2 + from, g->dn2 + from, w->rows);
    multiply(w, BY_V2, true, g->dz2 + from, NEURON, w->p->da, NEURON, false);
    tn_rollout_norm_back(weight(w, TN_ROLLOUT_N1G), w->p->da, g->dz1 + from, g->dy1 + from, g->dn1 + from, w->rows);
    multiply(w, BY_V1, true, g->dz1 + from, NEURON, g->din + w->local * I, I, false);
}

static void place_back(const at *w)
{
    const tn_rollout_sizes *z = w->z;
    const float *q = weight(w, TN_ROLLOUT_Q);
    for (int64_t i = 0; i < w->rows; i++) {
        const float *din = w->r->g.din + (w->local + i) * z->I, *dx = w->r->g.dx + (w->local + i) * X + FEATURES;
        float *to = w->r->dplace[w->r->t % 2] + (w->row + i) * z->P;
        for (int a = 0; a < 3; a++)
            to[a] = w->p->start[i * 3 + a] + (din[0] * q[a] + din[1] * q[3 + a] + din[2] * q[6 + a]);
        for (int64_t k = 0; k < z->E; k++) to[3 + k] = din[3 + k] + dx[k];
        if (!w->r->s.grid) continue;
        const int64_t b = w->r->s.slot[w->row + i] / z->N;
        tn_rollout_read_back(z, w->r->s.grid + b * z->voxels * z->F, w->r->s.places + (w->row + i) * z->P, din + z->P,
                             to);
    }
}

void tn_rollout_cell_back(const tn_rollout_back *r, const tn_rollout_slopes *p, int64_t first, int64_t rows)
{
    const at w = { .r = r, .z = &r->j.z, .p = p, .local = first, .row = r->g.first + first, .rows = rows };
    tn_rollout_gelu_slope(r->s.heads + w.row * w.z->G, r->g.gelu + first * w.z->G, p->p.heads, rows * w.z->G);
    gather(&w);
    if (w.z->F) field_back(&w);
    move_back(&w);
    heads_back(&w);
    layers_back(&w);
    neuron_back(&w);
    place_back(&w);
}
