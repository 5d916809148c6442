/* rollout on the GPU: workspaces, and the launches of all steps.
 *
 * Forward, a step: features, a kernel or two a layer, the heads' first products, moves, rows of the next step; with a field two
 * more. Backward: gradients of a step's rows from those of their rows in the next one, and sums over rows for the parameters,
 * which stay f32 in the workspace until all steps are done. */
#include "ops/rollout/rollout_grad.cuh"
#include "ops/rollout/rollout_tiles.cuh"

using namespace tn_rollout;

enum { THREADS = 256 };

/* --- sizes and workspace ------------------------------------------------------------------------------------------------- */

static net sizes_of(const tn_rollout_attr *a, int64_t B, tn_dtype type)
{
    net m = {};
    m.a = *a;
    m.B = (int32_t)B, m.S = a->width * a->height, m.N = m.S + (a->spawn ? m.S / 4 : 0), m.C = m.B * m.N;
    m.E = a->energy, m.H = a->state, m.L = a->layers, m.F = a->field, m.T = a->steps;
    m.P = 3 + m.E, m.X = FEATURES + m.E, m.W1 = m.H / 2 + HIDDEN;
    m.voxels = m.F ? a->grid[0] * a->grid[1] * a->grid[2] : 0;
    m.type = type;
    return m;
}

/* Memory of a call beside its arguments. */
struct space {
    void *x, *heads, *packed, *gates,
        *states;   /* heads, gates, states: one step's, or a segment's (backward), or two in turn */
    void *earlier; /* (L,C,H): as a cell's; NULL where that is in the place of r, or none is wanted */
    float *raw;
    float *weights[TN_ROLLOUT_INPUTS]; /* sums of the weights' gradients */
    char *clear, *clear_end;           /* what is 0 at first */
    size_t bytes;
};

static void *take(void *base, space *s, int64_t count, int64_t bytes)
{
    return count > 0 ? tn_d_carve(base, &s->bytes, (size_t)(count * bytes)) : NULL;
}

static void take_rows(net *m, space *s, void *base)
{
    m->after = (float *)take(base, s, (int64_t)m->C * m->P, 4);
    m->born = (int32_t *)take(base, s, m->C, 4);
    m->origin = (int32_t *)take(base, s, m->C, 4);
    m->sum = (tally *)take(base, s, 2 * m->B, sizeof(tally));
    m->leaving = (unsigned long long *)take(base, s, (int64_t)m->T * m->B, 8);
    m->phi = (float *)take(base, s, (int64_t)m->C * m->F, 4);
}

/* Lists of rows by corner. */
static void take_lists(net *m, space *s, void *base)
{
    const int64_t n = m->F ? m->C : 0;
    m->key = (int32_t *)take(base, s, n, 4);
    m->rank = (int32_t *)take(base, s, n, 4);
    m->list = (int32_t *)take(base, s, n, 4);
    m->start = (int32_t *)take(base, s, m->F ? (int64_t)m->B * (m->voxels + 1) : 0, 4);
}

/* Outputs that nobody asked for, where the kernels need them: two steps in turn. A measuring call takes them all. */
static void take_missing(net *m, space *s, void *base)
{
    const bool all = !base, ring = all || !m->places || !m->slot || !m->from || !m->bits;
    const int64_t item = (int64_t)tn_dtype_bytes(m->type), slots = m->C;
    float **slot_f[] = { &m->u, &m->v, &m->d };
    int32_t **slot_i[] = { &m->plane, &m->age, &m->landed };
    if (ring) {
        m->ring = true;
        m->places = (float *)take(base, s, 2 * slots * m->P, 4);
        m->slot = (int32_t *)take(base, s, 2 * slots, 4);
        m->from = (int32_t *)take(base, s, 2 * slots, 4);
        m->bits = (int32_t *)take(base, s, 2 * slots, 4);
    }
    for (int i = 0; i < 3; i++) {
        if (all || !*slot_f[i]) *slot_f[i] = (float *)take(base, s, slots, 4);
        if (all || !*slot_i[i]) *slot_i[i] = (int32_t *)take(base, s, slots, 4);
    }
    if (all || !m->e) m->e = (float *)take(base, s, slots * m->E, 4);
    if (all || !m->counts) m->counts = (int32_t *)take(base, s, (int64_t)m->B * TN_ROLLOUT_TALLIES, 4);
    if (all || !m->live) m->live = (int32_t *)take(base, s, (int64_t)(m->T + 1) * (m->B + 1), 4);
    if (m->F && (all || !m->grid)) {
        m->grid_ring = true;
        m->grid = (float *)take(base, s, 2ll * m->B * m->voxels * m->F, 4);
    }
    s->states = take(base, s, 2 * (int64_t)m->L * slots * m->H, item);
    s->heads = take(base, s, slots * m->W1, item);
}

static space forward_space(net *m, void *base)
{
    space s = {};
    const int64_t item = (int64_t)tn_dtype_bytes(m->type);
    const bool tiles = takes_tiles(m->type, m->H);
    take_rows(m, &s, base);
    take_lists(m, &s, base);
    s.x = take(base, &s, (int64_t)m->C * X_ROOM, item);
    s.raw = (float *)take(base, &s, tiles ? 0 : 4ll * m->C * m->H, 4);
    s.packed = take(base, &s, tiles ? (int64_t)packed_bytes(*m) : 0, 1);
    take_missing(m, &s, base);
    return s;
}

/* More for f32 than for bf16, always (type_of). */
static size_t forward_bytes(const tn_rollout_attr *a, int64_t B, tn_dtype type)
{
    net m = sizes_of(a, B, type);
    const size_t own = forward_space(&m, NULL).bytes;
    if (type != TN_F32) return own;
    const size_t least = forward_bytes(a, B, TN_BF16) + 256;
    return own > least ? own : least;
}

static bool is_weight(const net &m, int input)
{
    if (input == TN_ROLLOUT_E1 || input == TN_ROLLOUT_D1) return true;
    return input >= TN_ROLLOUT_GRU && input < TN_ROLLOUT_GRU + 4 * m.L && (input - TN_ROLLOUT_GRU) % 4 < 2;
}

static int64_t weight_rows(const net &m, int input)
{
    return input == TN_ROLLOUT_E1 ? m.H / 2 : input == TN_ROLLOUT_D1 ? HIDDEN : 3 * m.H;
}

static int64_t weight_columns(const net &m, int input)
{
    if (input < TN_ROLLOUT_GRU || (input - TN_ROLLOUT_GRU) % 4) return m.H;
    return layer_inputs(m, (input - TN_ROLLOUT_GRU) / 4);
}

/* Sums of a weight's gradient that are added up at the end. */
static int32_t shares_of(const net &m) { return takes_tiles(m.type, m.H) ? outer_shares(m) : 1; }

/* Partial sums, 0 at first. */
static void take_sums(const net &m, grads *g, space *s, void *base)
{
    const size_t first = s->bytes;
    g->chunks = (m.C + CHUNK - 1) / CHUNK;
    g->head_part = (float *)take(base, s, (int64_t)g->chunks * head_sums_of(m).all, 4);
    g->gate_part = (float *)take(base, s, (int64_t)m.L * g->chunks * 4 * m.H, 4);
    g->neuron_part = (float *)take(base, s, (int64_t)g->blocks * SUM_MOST, 4);
    for (int i = 0; i < TN_ROLLOUT_INPUTS; i++)
        if (is_weight(m, i))
            s->weights[i] = (float *)take(base, s, shares_of(m) * weight_rows(m, i) * weight_columns(m, i), 4);
    if (base) s->clear = (char *)base + first, s->clear_end = (char *)base + s->bytes;
}

enum { NEURON_BLOCKS = 264 }; /* most blocks of the neuron's backward pass, whatever the device */

static space backward_space(net *m, grads *g, void *base)
{
    space s = {};
    const int64_t item = (int64_t)tn_dtype_bytes(m->type), C = m->C, keep = m->a.keep;
    const int64_t segment = keep < m->T ? keep : m->T;
    const bool tiles = takes_tiles(m->type, m->H);
    take_lists(m, &s, base);
    g->next = (int32_t *)take(base, &s, m->T * C, 4);
    g->kid = (int32_t *)take(base, &s, m->a.spawn ? m->T * C : 0, 4);
    g->kid_slot = (int32_t *)take(base, &s, m->a.spawn ? m->T * C : 0, 4);
    g->dplace = (float *)take(base, &s, 2 * C * m->P, 4);
    g->dh = take(base, &s, 2 * m->L * C * m->H, item);
    g->dpre = take(base, &s, C * m->W1, item);
    g->small = (float *)take(base, &s, C * m->P, 4);
    g->dphi = (float *)take(base, &s, C * m->F, 4);
    g->dread = (float *)take(base, &s, C * m->F, 4);
    g->dgrid = (float *)take(base, &s, (int64_t)m->B * m->voxels * m->F, 4);
    g->above = take(base, &s, C * m->H, item);
    g->dx = take(base, &s, C * X_ROOM, item);
    g->gates = take(base, &s, 4 * m->L * C * m->H, item);
    s.x = take(base, &s, C * X_ROOM, item);
    s.packed = take(base, &s, tiles ? (int64_t)packed_bytes(*m) : 0, 1);
    s.raw = (float *)take(base, &s, tiles || !keep ? 0 : 4 * C * m->H, 4);
    s.states = take(base, &s, segment * m->L * C * m->H, item);
    s.gates = take(base, &s, 4 * segment * m->L * C * m->H, item);
    s.heads = take(base, &s, segment * C * m->W1, item);
    s.earlier = take(base, &s, tiles && !keep ? m->L * C * m->H : 0, item);
    take_sums(*m, g, &s, base);
    return s;
}

extern "C" size_t tn_rollout_work_cuda(const tn_sig *s, bool backward)
{
    const tn_rollout_attr *a = (const tn_rollout_attr *)s->attr;
    const int64_t B = s->in[TN_ROLLOUT_E0].dims.dim[0];
    const tn_dtype type = s->out[TN_ROLLOUT_STATE].dtype;
    net m = sizes_of(a, B, type);
    grads g = {};
    g.blocks = NEURON_BLOCKS;
    return backward ? backward_space(&m, &g, NULL).bytes : forward_bytes(a, B, type);
}

/* --- arguments ----------------------------------------------------------------------------------------------------------- */

static weight weight_of(const tn_arg *a)
{
    const weight w = { a->data, a->dtype };
    return w;
}

/* The type of states. Where nobody asked for them nothing says it but the workspace: f32 takes more. */
static tn_dtype type_of(const tn_call *c)
{
    const tn_arg *states = &c->out[TN_ROLLOUT_STATE];
    if (states->dims.rank) return states->dtype;
    const int64_t B = c->in[TN_ROLLOUT_E0].dims.dim[0];
    return c->work_bytes >= forward_bytes((const tn_rollout_attr *)c->attr, B, TN_F32) ? TN_F32 : TN_BF16;
}

static net net_of(const tn_call *c)
{
    const tn_arg *in = c->in, *out = c->out;
    net m = sizes_of((const tn_rollout_attr *)c->attr, in[TN_ROLLOUT_E0].dims.dim[0], type_of(c));
    for (int i = TN_ROLLOUT_Q; i < c->n_in; i++) m.p[i] = weight_of(&in[i]);
    m.e0 = weight_of(&in[TN_ROLLOUT_E0]);
    m.number = (const int32_t *)in[TN_ROLLOUT_NUMBER].data, m.count = (const int32_t *)in[TN_ROLLOUT_COUNT].data;
    m.seed = (const int64_t *)in[TN_ROLLOUT_SEED].data;
    m.kappa = (const float *)in[TN_ROLLOUT_KAPPA].data, m.drift = (const float *)in[TN_ROLLOUT_DRIFT].data;
    m.sigma = (const float *)in[TN_ROLLOUT_SIGMA].data;
    m.e = (float *)out[TN_ROLLOUT_E].data, m.u = (float *)out[TN_ROLLOUT_U].data;
    m.v = (float *)out[TN_ROLLOUT_V].data, m.d = (float *)out[TN_ROLLOUT_D].data;
    m.plane = (int32_t *)out[TN_ROLLOUT_PLANE].data, m.age = (int32_t *)out[TN_ROLLOUT_AGE].data;
    m.landed = (int32_t *)out[TN_ROLLOUT_LANDED].data, m.counts = (int32_t *)out[TN_ROLLOUT_COUNTS].data;
    m.paths = (float *)out[TN_ROLLOUT_PATHS].data, m.places = (float *)out[TN_ROLLOUT_PLACES].data;
    m.slot = (int32_t *)out[TN_ROLLOUT_SLOT].data, m.from = (int32_t *)out[TN_ROLLOUT_FROM].data;
    m.bits = (int32_t *)out[TN_ROLLOUT_BITS].data, m.live = (int32_t *)out[TN_ROLLOUT_LIVE].data;
    m.grid = (float *)out[TN_ROLLOUT_GRID].data;
    return m;
}

/* --- forward ------------------------------------------------------------------------------------------------------------- */

/* Where the states after step t go: kept, or in turn. */
static void *states_after(const net &m, void *kept, void *turn, int t)
{
    const int64_t size = (int64_t)m.L * m.C * m.H;
    if (kept && m.a.keep == 0) return item(kept, m.type, t * size);
    if (kept && (t + 1) % m.a.keep == 0) return item(kept, m.type, ((t + 1) / m.a.keep - 1) * size);
    return item(turn, m.type, (t & 1) * size);
}

extern "C" tn_status tn_rollout_forward_cuda(const tn_call *c)
{
    net m = net_of(c);
    void *kept = c->out[TN_ROLLOUT_STATE].data, *gates = c->out[TN_ROLLOUT_GATES].data,
         *heads = c->out[TN_ROLLOUT_HEADS].data;
    if (m.B == 0) return TN_OK;
    const space s = forward_space(&m, c->work);
    if (s.packed) TN_RETURN_IF(pack_tiles(c, m, s.packed, false));
    TN_RETURN_IF(begin_rows(c, m));
    for (int t = 0; t < m.T; t++) {
        cell y = {};
        y.t = t, y.x = s.x, y.raw = s.raw, y.packed = s.packed;
        y.h.before = t ? states_after(m, kept, s.states, t - 1) : NULL;
        y.h.after = states_after(m, kept, s.states, t);
        y.gates = gates && !m.a.keep ? item(gates, m.type, 4ll * t * m.L * m.C * m.H) : NULL;
        y.heads = heads && !m.a.keep ? item(heads, m.type, (int64_t)t * m.C * m.W1) : s.heads;
        TN_RETURN_IF(run_cell(c, m, y));
        TN_RETURN_IF(move_rows(c, m, y));
    }
    return TN_OK;
}

/* --- backward ------------------------------------------------------------------------------------------------------------ */

/* Step t's numbers: kept, or in the segment that begins at step `first`. */
static cell kept_cell(const tn_call *c, const net &m, const space &s, int t, int first)
{
    void *states = c->out[TN_ROLLOUT_STATE].data;
    const int64_t size = (int64_t)m.L * m.C * m.H;
    cell y = {};
    y.t = t, y.x = s.x, y.raw = s.raw, y.packed = s.packed;
    if (m.a.keep == 0) {
        y.h.before = t ? item(states, m.type, (t - 1) * size) : NULL;
        y.h.after = item(states, m.type, t * size);
        y.gates = item(c->out[TN_ROLLOUT_GATES].data, m.type, 4 * t * size);
        y.heads = item(c->out[TN_ROLLOUT_HEADS].data, m.type, (int64_t)t * m.C * m.W1);
        y.earlier = s.earlier, y.earlier_row = m.H;
        return y;
    }
    y.h.before = t > first ? item(s.states, m.type, (t - first - 1) * size)
                 : first   ? item(states, m.type, (first / m.a.keep - 1) * size)
                           : NULL;
    y.h.after = item(s.states, m.type, (t - first) * size);
    y.gates = item(s.gates, m.type, 4 * (t - first) * size);
    y.heads = item(s.heads, m.type, (int64_t)(t - first) * m.C * m.W1);
    if (s.packed) y.earlier = y.gates, y.earlier_row = 4 * m.H; /* in the place of r, which nobody needs after it */
    return y;
}

/* From what the heads' inside gets to the gradient by the last layer's new state. */
static tn_status multiply_heads(const tn_call *c, const net &m, const grads &g, const cell &y)
{
    product p = {};
    p.a = g.dpre, p.a_row = m.W1, p.parts = 2, p.columns = m.H, p.tile = TILES_HEADS_BACK;
    for (int i = 0; i < 2; i++) {
        p.part[i].first = i ? m.H / 2 : 0;
        p.part[i].k = p.part[i].gap_at = i ? HIDDEN : m.H / 2;
        p.part[i].w = m.p[i ? TN_ROLLOUT_D1 : TN_ROLLOUT_E1], p.part[i].w_k = m.H, p.part[i].w_j = 1;
    }
    p.to = g.above, p.to_row = m.H;
    return multiply_rows(c, m, y.t, &p, 1, y.packed);
}

/* Of a layer: the gradient by what came from below, or (own) by its own state before. */
static product layer_product(const net &m, const grads &g, int t, int l, bool own)
{
    product p = {};
    p.a = item(g.gates, m.type, 4ll * l * m.C * m.H), p.a_row = 4 * m.H;
    p.parts = 1, p.columns = own ? m.H : layer_inputs(m, l), p.tile = (own ? TILES_DH : TILES_DX) + l;
    p.part[0].k = 3 * m.H, p.part[0].gap_at = own ? 2 * m.H : 3 * m.H, p.part[0].gap = own ? m.H : 0;
    p.part[0].w = m.p[TN_ROLLOUT_GRU + 4 * l + own], p.part[0].w_k = p.columns, p.part[0].w_j = 1;
    p.to = own ? dh_of(m, g, t, l) : l ? g.above : g.dx;
    p.to_row = own || l ? m.H : X_ROOM;
    p.add = own;
    return p;
}

/* A layer's gradients by what came in. Only the step before reads those by states: upper layers leave to the last launch what would
 * begin a round of their own. */
static tn_status multiply_layer(const tn_call *c, const net &m, const grads &g, const cell &y, int l)
{
    product p[MOST_PRODUCTS];
    int n = 0;
    p[n++] = layer_product(m, g, y.t, l, false);
    if (y.t == 0) return multiply_rows(c, m, y.t, p, n, y.packed); /* nothing is before the first step */
    p[n] = layer_product(m, g, y.t, l, true);
    p[n++].share = l ? FILLS : WHOLE;
    for (int k = 1; y.packed && l == 0 && k < m.L; k++) {
        p[n] = layer_product(m, g, y.t, k, true);
        p[n++].share = LEFT;
    }
    return multiply_rows(c, m, y.t, p, n, y.packed);
}

/* The weights' gradients of a step. */
static tn_status add_weights(const tn_call *c, const net &m, const grads &g, const space &s, const cell &y)
{
    const int64_t states = (int64_t)m.C * m.H;
    const void *top = item(y.h.after, m.type, (m.L - 1) * states);
    outer o[MOST_OUTER] = {};
    int n = 0;
    for (int l = 0; l < m.L; l++)
        for (int i = 0; i < (y.h.before ? 2 : 1); i++) {
            outer *p = &o[n++];
            p->d = item(g.gates, m.type, 4 * l * states), p->d_row = 4 * m.H, p->rows = 3 * m.H;
            p->gap_at = i ? 2 * m.H : 3 * m.H, p->gap = i ? m.H : 0;
            p->a = i ? item(y.h.before, m.type, l * states) : l ? item(y.h.after, m.type, (l - 1) * states) : y.x;
            p->a_row = i || l ? m.H : X_ROOM, p->columns = i ? m.H : layer_inputs(m, l);
            p->from = i ? from_of(m, y.t) : NULL;
            if (i && y.earlier)
                p->a = item(y.earlier, m.type, l * m.C * y.earlier_row), p->a_row = y.earlier_row, p->from = NULL;
            p->sum = s.weights[TN_ROLLOUT_GRU + 4 * l + i];
        }
    for (int i = 0; i < 2; i++) {
        outer *p = &o[n++];
        p->d = g.dpre, p->d_row = m.W1, p->d_first = i ? m.H / 2 : 0, p->rows = p->gap_at = i ? HIDDEN : m.H / 2;
        p->a = top, p->a_row = m.H, p->columns = m.H, p->sum = s.weights[i ? TN_ROLLOUT_D1 : TN_ROLLOUT_E1];
    }
    return add_outer(c, m, y.t, o, n, y.packed);
}

static tn_status step_back(const tn_call *c, const net &m, const grads &g, const space &s, const cell &y)
{
    TN_RETURN_IF(heads_back(c, m, g, y));
    TN_RETURN_IF(multiply_heads(c, m, g, y));
    for (int l = m.L - 1; l >= 0; l--) {
        TN_RETURN_IF(gates_back(c, m, g, y, l));
        TN_RETURN_IF(multiply_layer(c, m, g, y, l));
    }
    TN_RETURN_IF(neuron_back(c, m, g, y.t, y.x));
    TN_RETURN_IF(add_weights(c, m, g, s, y));
    if (!m.F || y.t == 0) return TN_OK;
    return add_to_field(c, m, y.t, places_of(m, y.t), false, g.dread, g.dgrid);
}

/* --- the end: sums into gradients ---------------------------------------------------------------------------------------- */

/* to (count) = or += the sum over slots of part (slots,stride). */
struct total {
    const float *part;
    int64_t stride;
    int32_t slots, count;
    void *to;
    tn_dtype type;
    bool add;
};
struct totals {
    total of[TN_ROLLOUT_INPUTS];
};

static __global__ void __launch_bounds__(THREADS) add_totals(TN_GRID totals all)
{
    const total &s = all.of[blockIdx.y];
    for (int32_t i = (int32_t)blockIdx.x * THREADS + (int32_t)threadIdx.x; i < s.count;
         i += (int32_t)gridDim.x * THREADS) {
        double sum = 0;
        for (int32_t k = 0; k < s.slots; k++) sum += (double)s.part[k * s.stride + i];
        tn_put(s.to, s.type, i, (float)sum, s.add);
    }
}

/* The sums of an input's gradient. */
static total total_of(const net &m, const grads &g, const space &s, int input)
{
    const head_sums h = head_sums_of(m);
    const struct {
        int input, first, count;
    } neuron[] = { { TN_ROLLOUT_Q, SUM_Q, 9 },
                   { TN_ROLLOUT_QB, SUM_QB, 3 },
                   { TN_ROLLOUT_V1, SUM_V1, NEURON * (m.P + m.F) },
                   { TN_ROLLOUT_V1B, SUM_V1B, NEURON },
                   { TN_ROLLOUT_N1G, SUM_N1G, NEURON },
                   { TN_ROLLOUT_N1B, SUM_N1B, NEURON },
                   { TN_ROLLOUT_V2, SUM_V2, NEURON * NEURON },
                   { TN_ROLLOUT_V2B, SUM_V2B, NEURON },
                   { TN_ROLLOUT_N2G, SUM_N2G, NEURON },
                   { TN_ROLLOUT_N2B, SUM_N2B, NEURON },
                   { TN_ROLLOUT_V3, SUM_V3, FEATURES * NEURON },
                   { TN_ROLLOUT_V3B, SUM_V3B, FEATURES } },
      heads[] = { { TN_ROLLOUT_E1B, h.b1, m.H / 2 },        { TN_ROLLOUT_D1B, h.b1 + m.H / 2, HIDDEN },
                  { TN_ROLLOUT_E2, h.e2, m.E * (m.H / 2) }, { TN_ROLLOUT_D2, h.d2, 3 * HIDDEN },
                  { TN_ROLLOUT_E2B, h.e2b, m.E },           { TN_ROLLOUT_D2B, h.d2b, 3 },
                  { TN_ROLLOUT_F, h.f, m.F * m.H } };
    total t = {};
    t.slots = 1;
    if (is_weight(m, input)) {
        t.part = s.weights[input], t.slots = shares_of(m);
        t.stride = t.count = (int32_t)(weight_rows(m, input) * weight_columns(m, input));
        return t;
    }
    for (const auto &n : neuron)
        if (n.input == input)
            t.part = g.neuron_part + n.first, t.stride = SUM_MOST, t.slots = g.blocks, t.count = n.count;
    for (const auto &n : heads)
        if (n.input == input) t.part = g.head_part + n.first, t.stride = h.all, t.slots = g.chunks, t.count = n.count;
    return t;
}

/* Of b_i (side 0) and b_h: gradients before r and z, then n's or q's. */
static void bias_totals(const net &m, const grads &g, int input, total (&t)[2])
{
    const int l = (input - TN_ROLLOUT_GRU) / 4, side = (input - TN_ROLLOUT_GRU) % 4 - 2;
    const float *part = g.gate_part + (int64_t)l * g.chunks * 4 * m.H;
    for (int i = 0; i < 2; i++) {
        t[i] = {};
        t[i].part = part + (i ? (2 + side) * m.H : 0), t[i].stride = 4 * m.H, t[i].slots = g.chunks;
        t[i].count = i ? m.H : 2 * m.H;
    }
}

static tn_status finish(const tn_call *c, const net &m, const grads &g, const space &s)
{
    enum { MOST = TN_ROLLOUT_INPUTS };
    totals all = {};
    int n = 0;
    for (int i = TN_ROLLOUT_Q; i <= c->n_in; i++) {
        const bool end = i == c->n_in;
        const tn_arg *d = end ? NULL : &c->din[i];
        total t[2] = {};
        int parts = 1;
        if (n > MOST - 2 || (end && n)) {
            add_totals<<<dim3(256, (unsigned)n), THREADS, 0, tn_cuda_stream(c)>>>(all);
            TN_CUDA_LAUNCHED();
            n = 0;
        }
        if (end || !d->data) continue;
        if (i >= TN_ROLLOUT_GRU && (i - TN_ROLLOUT_GRU) % 4 >= 2) bias_totals(m, g, i, t), parts = 2;
        else t[0] = total_of(m, g, s, i);
        for (int k = 0; k < parts; k++) {
            t[k].to = item(d->data, d->dtype, k ? 2 * m.H : 0), t[k].type = d->dtype, t[k].add = c->accumulate >> i & 1;
            all.of[n++] = t[k];
        }
    }
    return TN_OK;
}

static grads grads_of(const tn_call *c)
{
    const tn_arg *d = c->dout;
    const int multiprocessors = tn_cuda_queue_of(c)->multiprocessors;
    grads g = {};
    g.de = (const float *)d[TN_ROLLOUT_E].data, g.du = (const float *)d[TN_ROLLOUT_U].data;
    g.dv = (const float *)d[TN_ROLLOUT_V].data, g.dd = (const float *)d[TN_ROLLOUT_D].data;
    g.blocks = 2 * multiprocessors < NEURON_BLOCKS ? 2 * multiprocessors : NEURON_BLOCKS;
    g.de0 = c->din[TN_ROLLOUT_E0].data, g.de0_type = c->din[TN_ROLLOUT_E0].dtype;
    g.de0_add = c->accumulate >> TN_ROLLOUT_E0 & 1;
    return g;
}

extern "C" tn_status tn_rollout_backward_cuda(const tn_call *c)
{
    net m = net_of(c);
    if (m.B == 0) {
        for (int i = 0; i < c->n_in; i++) TN_RETURN_IF(tn_clear_gradient(c, &c->din[i], c->accumulate >> i & 1));
        return TN_OK;
    }
    grads g = grads_of(c);
    const space s = backward_space(&m, &g, c->work);
    const int k = m.a.keep ? m.a.keep : m.T;
    TN_RETURN_IF(tn_clear_gradient(c, &c->din[TN_ROLLOUT_E0], g.de0_add));
    TN_CUDA_TRY(cudaMemsetAsync(s.clear, 0, (size_t)(s.clear_end - s.clear), tn_cuda_stream(c)));
    if (s.packed) TN_RETURN_IF(pack_tiles(c, m, s.packed, true));
    TN_RETURN_IF(link_rows(c, m, g));
    for (int first = (m.T - 1) / k * k; first >= 0; first -= k) {
        const int end = first + k < m.T ? first + k : m.T;
        for (int t = first; m.a.keep && t < end; t++) TN_RETURN_IF(run_cell(c, m, kept_cell(c, m, s, t, first)));
        for (int t = end - 1; t >= first; t--) TN_RETURN_IF(step_back(c, m, g, s, kept_cell(c, m, s, t, first)));
    }
    return finish(c, m, g, s);
}
