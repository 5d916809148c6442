/* One panel of rollout's rows on the CPU: neuron, GRU layers, heads, move; sizes, products and scratch that go with it. */
#include "ops/gru/gru_gates.h"
#include "ops/rollout/rollout_cpu.h"
#include "ops/rows.h"
#include "ops/slots.h"

#include <string.h>

enum { NEURON = TN_ROLLOUT_NEURON, FEATURES = TN_ROLLOUT_FEATURES, HIDDEN = TN_ROLLOUT_HIDDEN, X = TN_ROLLOUT_X };
/* A panel of gates, packed rows beside it, should stay in a core's own cache; so many rows share each load of the weights. */
enum { PANEL_BYTES = 512 << 10, FEWEST = 16, MOST = 256, UNIT = 8 };

/* --- sizes ---------------------------------------------------------------------------------------------------------- */

tn_rollout_sizes tn_rollout_sizes_of(const tn_rollout_attr *a, int64_t B)
{
    tn_rollout_sizes z = { .a = a,
                           .B = B,
                           .S = (int64_t)a->width * a->height,
                           .T = a->steps,
                           .L = a->layers,
                           .E = a->energy,
                           .H = a->state,
                           .F = a->field };
    z.N = z.S + (a->spawn ? z.S / 4 : 0);
    z.C = B * z.N;
    z.P = 3 + z.E;
    z.I = 3 + z.E + z.F;
    z.G = z.H / 2 + HIDDEN;
    z.voxels = z.F ? (int64_t)a->grid[0] * a->grid[1] * a->grid[2] : 0;
    z.pieces = B * tn_tiles(z.N, TN_ROLLOUT_PIECE);
    return z;
}

int64_t tn_rollout_panel_most(const tn_rollout_sizes *z)
{
    if (z->a->panel) return z->a->panel;
    const int64_t n = PANEL_BYTES / (16 * z->H);
    return n < FEWEST ? FEWEST : n > MOST ? MOST : n / UNIT * UNIT;
}

int64_t tn_rollout_panel_rows(const tn_rollout_sizes *z, int64_t rows, int64_t threads)
{
    const int64_t most = tn_rollout_panel_most(z), panels = tn_tiles(tn_tiles(rows, most), threads) * threads;
    const int64_t each = (tn_tiles(rows, panels ? panels : 1) + UNIT - 1) / UNIT * UNIT;
    return z->a->panel || each > most ? most : each < FEWEST ? FEWEST : each;
}

tn_rollout_product tn_rollout_product_of(const tn_rollout_sizes *z, int which)
{
    const int64_t H = z->H;
    const tn_rollout_product fixed[BY_LAYER] = {
        [BY_V1] = { TN_ROLLOUT_V1, 0, NEURON, z->I, false },     [BY_V2] = { TN_ROLLOUT_V2, 0, NEURON, NEURON, false },
        [BY_V3] = { TN_ROLLOUT_V3, 0, FEATURES, NEURON, false }, [BY_E1] = { TN_ROLLOUT_E1, 0, H / 2, H, true },
        [BY_E2] = { TN_ROLLOUT_E2, 0, z->E, H / 2, false },      [BY_D1] = { TN_ROLLOUT_D1, 0, HIDDEN, H, true },
        [BY_D2] = { TN_ROLLOUT_D2, 0, 3, HIDDEN, false },        [BY_F] = { TN_ROLLOUT_F, 0, z->F, H, false },
    };
    if (which < BY_LAYER) {
        tn_rollout_product p = fixed[which];
        if (which == BY_F && !z->F) p.input = -1;
        return p;
    }
    const int layer = (which - BY_LAYER) / LAYER_PRODUCTS, kind = (which - BY_LAYER) % LAYER_PRODUCTS;
    return (tn_rollout_product){ .input = layer < z->L ? TN_ROLLOUT_GRU + 4 * layer + (kind != BY_I) : -1,
                                 .row = kind == BY_H_N ? 2 * H : 0,
                                 .rows = (kind == BY_I      ? 3
                                          : kind == BY_H_RZ ? 2
                                                            : 1) *
                                         H,
                                 .columns = kind == BY_I && !layer ? FEATURES + z->E : H,
                                 .rounded = true };
}

tn_gemm tn_rollout_gemm(const tn_rollout_sizes *z, const tn_rollout_product *p, bool backward)
{
    return (tn_gemm){ .n = backward ? p->columns : p->rows,
                      .k = backward ? p->rows : p->columns,
                      .b_row = backward ? p->columns : 1,
                      .b_col = backward ? 1 : p->columns,
                      .a_col = 1,
                      .batch = 1,
                      .round = p->rounded ? z->round : TN_F32,
                      .bf16x3 = p->rounded && z->bf16x3,
                      .portable_only = z->portable,
                      .alpha = 1 };
}

static const float *weight(const tn_rollout_job *j, int input) { return j->c->in[input].data; }

size_t tn_rollout_pack(tn_rollout_job *j, bool backward, void *to)
{
    size_t bytes = 0;
    for (int i = 0; i < TN_ROLLOUT_PRODUCTS; i++) {
        const tn_rollout_product p = tn_rollout_product_of(&j->z, i);
        if (p.input < 0) continue;
        tn_gemm g = tn_rollout_gemm(&j->z, &p, backward);
        void *at = tn_carve(to, &bytes, tn_gemm_packed_bytes(&g));
        if (!to) continue;
        g.b = weight(j, p.input) + p.row * p.columns;
        tn_gemm_pack_b(j->c->pool, &g, at);
        j->packed[backward][i] = at;
    }
    return bytes;
}

tn_gemm tn_rollout_with(const tn_rollout_job *j, int which, bool backward, int64_t rows)
{
    const tn_rollout_product p = tn_rollout_product_of(&j->z, which);
    tn_gemm g = tn_rollout_gemm(&j->z, &p, backward);
    g.m = rows;
    g.b = weight(j, p.input) + p.row * p.columns;
    g.packed_b = j->packed[backward][which];
    return g;
}

tn_rollout_panel tn_rollout_panel_at(const tn_rollout_sizes *z, void *base)
{
    tn_rollout_panel p = { 0 };
    const size_t rows = sizeof(float) * (size_t)tn_rollout_panel_most(z);
    const int64_t widest = 3 * z->H > X ? 3 * z->H : X;
    p.in = tn_carve(base, &p.bytes, rows * (size_t)z->I);
    p.a1 = tn_carve(base, &p.bytes, rows * NEURON);
    p.a2 = tn_carve(base, &p.bytes, rows * NEURON);
    p.x = tn_carve(base, &p.bytes, rows * X);
    p.h = tn_carve(base, &p.bytes, rows * (size_t)z->H);
    p.gates = tn_carve(base, &p.bytes, rows * (size_t)(4 * z->H));
    p.heads = tn_carve(base, &p.bytes, rows * (size_t)z->G);
    p.gelu = tn_carve(base, &p.bytes, rows * (size_t)z->G);
    p.delta = tn_carve(base, &p.bytes, rows * 3);
    p.e = tn_carve(base, &p.bytes, rows * (size_t)z->E);
    p.work = tn_carve(base, &p.bytes, tn_gemm_work_most(tn_rollout_panel_most(z), widest, 1));
    return p;
}

/* --- the cell ------------------------------------------------------------------------------------------------------- */

static void multiply(const tn_rollout_job *j, int which, const float *a, int64_t a_row, const float *bias, float *c,
                     int64_t c_row, int64_t rows, bool add, void *work)
{
    tn_gemm g = tn_rollout_with(j, which, false, rows);
    g.a = a, g.a_row = a_row;
    g.bias = bias;
    g.c = c, g.c_row = c_row;
    g.accumulate = add;
    tn_gemm_run(NULL, &g, work);
}

static void read_field(const tn_rollout_job *j, const tn_rollout_step *s, float *in, int64_t first, int64_t rows)
{
    const tn_rollout_sizes *z = &j->z;
    for (int64_t r = 0; r < rows; r++) {
        float *to = in + r * z->I + z->P;
        memset(to, 0, sizeof *to * (size_t)z->F);
        if (!s->grid) continue;
        const int64_t b = s->slot[first + r] / z->N;
        tn_rollout_read(z, s->grid + b * z->voxels * z->F, s->places + (first + r) * z->P, to);
    }
}

void tn_rollout_neuron(const tn_rollout_job *j, const tn_rollout_step *s, const tn_rollout_panel *p, int64_t first,
                       int64_t rows, float *const z_of[2], float *const slope[2])
{
    const tn_rollout_sizes *z = &j->z;
    const float *places = s->places + first * z->P;
    float *y1 = z_of ? z_of[0] : p->a1, *y2 = z_of ? z_of[1] : p->a2;
    tn_rollout_see(weight(j, TN_ROLLOUT_Q), weight(j, TN_ROLLOUT_QB), places, rows, z->P, z->I, p->in);
    if (z->F) read_field(j, s, p->in, first, rows);
    multiply(j, BY_V1, p->in, z->I, weight(j, TN_ROLLOUT_V1B), y1, NEURON, rows, false, p->work);
    tn_rollout_norm_gelu(y1, weight(j, TN_ROLLOUT_N1G), weight(j, TN_ROLLOUT_N1B), p->a1, slope ? slope[0] : NULL,
                         rows);
    multiply(j, BY_V2, p->a1, NEURON, weight(j, TN_ROLLOUT_V2B), y2, NEURON, rows, false, p->work);
    tn_rollout_norm_gelu(y2, weight(j, TN_ROLLOUT_N2G), weight(j, TN_ROLLOUT_N2B), p->a2, slope ? slope[1] : NULL,
                         rows);
    multiply(j, BY_V3, p->a2, NEURON, weight(j, TN_ROLLOUT_V3B), p->x, X, rows, false, p->work);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < z->E; k++) p->x[r * X + FEATURES + k] = places[r * z->P + 3 + k];
}

const float *tn_rollout_states(const tn_rollout_sizes *z, const tn_rollout_step *s, int64_t l, int64_t first,
                               int64_t rows, float *to)
{
    const size_t bytes = sizeof(float) * (size_t)z->H;
    if (!s->h_before) {
        memset(to, 0, bytes * (size_t)rows);
        return to;
    }
    const float *h = s->h_before + l * z->C * z->H;
    const int32_t *from = s->from + first;
    int64_t run = 1;
    while (run < rows && from[run] == from[0] + run) run++;
    if (run == rows) return h + from[0] * z->H;
    for (int64_t r = 0; r < rows; r++) memcpy(to + r * z->H, h + from[r] * z->H, bytes);
    return to;
}

static void run_layers(const tn_rollout_job *j, const tn_rollout_step *s, const tn_rollout_panel *p, int64_t first,
                       int64_t rows)
{
    const tn_rollout_sizes *z = &j->z;
    const int64_t H = z->H;
    for (int l = 0; l < z->L; l++) {
        const int at = BY_LAYER + l * LAYER_PRODUCTS, bias = TN_ROLLOUT_GRU + 4 * l + 2;
        float *gates = s->gates ? s->gates + (l * z->C + first) * 4 * H : p->gates;
        float *after = s->h_after + (l * z->C + first) * H;
        const float *h = tn_rollout_states(z, s, l, first, rows, p->h);
        const float *x = l ? s->h_after + ((l - 1) * z->C + first) * H : p->x;
        multiply(j, at + BY_I, x, l ? H : X, NULL, gates, 4 * H, rows, false, p->work);
        multiply(j, at + BY_H_RZ, h, H, NULL, gates, 4 * H, rows, true, p->work);
        multiply(j, at + BY_H_N, h, H, NULL, gates + 3 * H, 4 * H, rows, false, p->work);
        tn_gru_gates(gates, weight(j, bias), weight(j, bias + 1), h, H, after, rows, H);
    }
}

static void run_heads(const tn_rollout_job *j, const tn_rollout_step *s, const tn_rollout_panel *p, int64_t first,
                      int64_t rows)
{
    const tn_rollout_sizes *z = &j->z;
    const int64_t H = z->H, G = z->G;
    const float *o = s->h_after + ((z->L - 1) * z->C + first) * H;
    float *heads = s->heads ? s->heads + first * G : p->heads;
    multiply(j, BY_E1, o, H, weight(j, TN_ROLLOUT_E1B), heads, G, rows, false, p->work);
    multiply(j, BY_D1, o, H, weight(j, TN_ROLLOUT_D1B), heads + H / 2, G, rows, false, p->work);
    if (!s->after) return;
    tn_rollout_gelu(heads, p->gelu, rows * G);
    multiply(j, BY_E2, p->gelu, G, weight(j, TN_ROLLOUT_E2B), p->e, z->E, rows, false, p->work);
    tn_rollout_tanh(p->e, rows * z->E);
    multiply(j, BY_D2, p->gelu + H / 2, G, weight(j, TN_ROLLOUT_D2B), p->delta, 3, rows, false, p->work);
    if (z->F) multiply(j, BY_F, o, H, NULL, s->phi + first * z->F, z->F, rows, false, p->work);
}

void tn_rollout_cell(const tn_rollout_job *j, const tn_rollout_step *s, const tn_rollout_panel *p, int64_t first,
                     int64_t rows)
{
    tn_rollout_neuron(j, s, p, first, rows, NULL, NULL);
    run_layers(j, s, p, first, rows);
    run_heads(j, s, p, first, rows);
    if (!s->after) return;
    tn_rollout_moves m = tn_rollout_moves_of(j, s, first, rows);
    m.delta = p->delta;
    m.e = p->e;
    m.after = s->after + first * j->z.P;
    tn_rollout_move(&m);
}

tn_rollout_moves tn_rollout_moves_of(const tn_rollout_job *j, const tn_rollout_step *s, int64_t first, int64_t rows)
{
    const tn_rollout_sizes *z = &j->z;
    return (tn_rollout_moves){ .a = z->a,
                               .places = s->places + first * z->P,
                               .slot = s->slot + first,
                               .even = j->even,
                               .number = j->number,
                               .seed = j->seed,
                               .kappa = j->kappa,
                               .drift = j->drift,
                               .sigma = j->sigma,
                               .rows = rows,
                               .N = z->N,
                               .P = z->P,
                               .E = z->E,
                               .t = s->t,
                               .bits = s->bits + first };
}
