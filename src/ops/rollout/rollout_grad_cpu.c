/* rollout on the CPU, backward: from the last step to the first. With keep, the steps between two states that were kept are computed
 * again first; places and decisions are read, never made again. */
#include "ops/cuda_kernels.h"
#include "ops/rollout/rollout_back.h"
#include "ops/rows.h"
#include "ops/slots.h"

#include <string.h>

tn_kernel tn_rollout_backward_cpu;

enum { NEURON = TN_ROLLOUT_NEURON, X = TN_ROLLOUT_X };
enum { GROUP_BYTES = 16 << 20, GROUP_FEWEST = 1024, GROUP_MOST = 8192, BY_THREAD = 128 };

static size_t floats(int64_t n) { return sizeof(float) * (size_t)n; }

/* --- workspace ------------------------------------------------------------------------------------------------------ */

static tn_rollout_group make_group(const tn_rollout_sizes *z, void *base)
{
    const int64_t row = 2 * z->I + 8 * NEURON + 2 * X + 5 * z->L * z->H + 2 * z->G + z->E + 3 + z->F;
    const int64_t fewest = GROUP_FEWEST > BY_THREAD * z->threads ? GROUP_FEWEST : BY_THREAD * z->threads;
    int64_t most = GROUP_BYTES / (int64_t)floats(row);
    most = most < fewest ? fewest : most > GROUP_MOST ? GROUP_MOST : most;
    if (most > z->C) most = z->C;
    tn_rollout_group g = { .most = most };
    float **const each[] = { &g.in, &g.din, &g.a1, &g.dz1,   &g.dy1,  &g.dn1,    &g.a2, &g.dz2,    &g.dy2, &g.dn2,
                             &g.x,  &g.dx,  &g.h,  &g.gates, &g.gelu, &g.dheads, &g.de, &g.ddelta, &g.dphi };
    const int64_t width[] = { z->I, z->I, NEURON,      NEURON,          NEURON, NEURON, NEURON, NEURON, NEURON, NEURON,
                              X,    X,    z->L * z->H, 4 * z->L * z->H, z->G,   z->G,   z->E,   3,      z->F };
    for (size_t i = 0; i < sizeof width / sizeof *width; i++)
        *each[i] = tn_carve(base, &g.bytes, floats(most * width[i]));
    return g;
}

/* base NULL: only measures. */
static tn_rollout_back make_back(const tn_rollout_job *j, void *base)
{
    tn_rollout_back r = { .j = *j };
    const tn_rollout_sizes *z = &r.j.z;
    const int64_t keep = z->a->keep < z->T ? z->a->keep : z->T;
    size_t *n = &r.bytes;
    r.gates = tn_carve(base, n, floats(keep * z->L * z->C * 4 * z->H));
    r.heads = tn_carve(base, n, floats(keep * z->C * z->G));
    r.state = tn_carve(base, n, floats(keep * z->L * z->C * z->H));
    for (int i = 0; i < 2; i++) {
        r.dh[i] = tn_carve(base, n, floats(z->L * z->C * z->H));
        r.dplace[i] = tn_carve(base, n, floats(z->C * z->P));
        r.dgrid[i] = tn_carve(base, n, floats(z->B * z->voxels * z->F));
        r.packed[i] = tn_carve(base, n, tn_rollout_pack(&r.j, i, NULL));
    }
    r.row_of = tn_carve(base, n, floats(z->C));
    r.child = tn_carve(base, n, floats(z->C));
    r.used = tn_carve(base, n, floats(z->B));
    r.piece = tn_carve(base, n, floats(z->pieces + 1));
    r.g = make_group(z, base ? (char *)base + *n : NULL);
    *n += r.g.bytes;
    r.panel_bytes = tn_align64(tn_rollout_slopes_at(z, NULL).bytes);
    r.panels = tn_carve(base, n, r.panel_bytes * (size_t)z->threads);
    r.weight_bytes = tn_rollout_weights_work(z);
    r.weights = tn_carve(base, n, r.weight_bytes * (size_t)z->threads);
    return r;
}

size_t tn_rollout_backward_work(const tn_rollout_job *j) { return make_back(j, NULL).bytes; }

/* --- steps ---------------------------------------------------------------------------------------------------------- */

static const int32_t *live_at(const tn_rollout_back *r, int64_t t)
{
    return (const int32_t *)r->j.c->out[TN_ROLLOUT_LIVE].data + t * (r->j.z.B + 1);
}

/* The part of output i that belongs to step t. */
static void *part(const tn_rollout_back *r, int i, int64_t t, int64_t numbers)
{
    return (char *)r->j.c->out[i].data + floats(t * numbers);
}

static float *state_at(const tn_rollout_back *r, int64_t t)
{
    const tn_rollout_sizes *z = &r->j.z;
    const int64_t keep = z->a->keep, numbers = z->L * z->C * z->H;
    if (t < 0) return NULL;
    return keep ? r->state + t % keep * numbers : part(r, TN_ROLLOUT_STATE, t, numbers);
}

static tn_rollout_step step_at(const tn_rollout_back *r, int64_t t)
{
    const tn_rollout_sizes *z = &r->j.z;
    const int64_t keep = z->a->keep, gates = z->L * z->C * 4 * z->H, heads = z->C * z->G;
    tn_rollout_step s = {
        .t = t,
        .live = live_at(r, t),
        .rows = live_at(r, t)[z->B],
        .places = part(r, TN_ROLLOUT_PLACES, t, z->C * z->P),
        .slot = part(r, TN_ROLLOUT_SLOT, t, z->C),
        .from = part(r, TN_ROLLOUT_FROM, t, z->C),
        .bits = part(r, TN_ROLLOUT_BITS, t, z->C),
        .h_before = state_at(r, t - 1),
        .h_after = state_at(r, t),
        .gates = keep ? r->gates + t % keep * gates : part(r, TN_ROLLOUT_GATES, t, gates),
        .heads = keep ? r->heads + t % keep * heads : part(r, TN_ROLLOUT_HEADS, t, heads),
        .grid = t && z->F ? part(r, TN_ROLLOUT_GRID, t - 1, z->B * z->voxels * z->F) : NULL,
    };
    if (keep && t && t % keep == 0) s.h_before = part(r, TN_ROLLOUT_STATE, t / keep - 1, z->L * z->C * z->H);
    return s;
}

/* The steps from the state that was kept before step t, up to it. */
static void compute_again(const tn_rollout_back *r, int64_t t)
{
    for (int64_t k = t - t % r->j.z.a->keep; k <= t; k++) {
        const tn_rollout_step s = step_at(r, k);
        tn_rollout_panels(&r->j, &s, r->panels, r->panel_bytes);
    }
}

/* --- rows of a step ------------------------------------------------------------------------------------------------- */

/* The rows that a sample's slots have in the step after, and the slots of its rows' children. */
static void relate_tile(void *arg, int64_t b)
{
    const tn_rollout_back *r = arg;
    const tn_rollout_sizes *z = &r->j.z;
    if (r->t + 1 < z->T) {
        const tn_rollout_step next = step_at(r, r->t + 1);
        for (int64_t i = next.live[b]; i < next.live[b + 1]; i++)
            if (!(next.bits[i] & TN_ROLLOUT_OFF)) r->row_of[next.slot[i]] = (int32_t)i;
    }
    if (!z->a->spawn) return;
    int32_t slot = r->used[b];
    for (int64_t i = r->s.live[b]; i < r->s.live[b + 1]; i++) slot -= r->s.bits[i] >> TN_ROLLOUT_CHILDREN;
    r->used[b] = slot;
    for (int64_t i = r->s.live[b]; i < r->s.live[b + 1]; i++) {
        r->child[i] = slot;
        slot += r->s.bits[i] >> TN_ROLLOUT_CHILDREN;
    }
}

/* First rows of all pieces of slots; returns how many pieces there are. */
static int64_t find_pieces(const tn_rollout_back *r)
{
    const tn_rollout_sizes *z = &r->j.z;
    int64_t n = 0;
    for (int64_t b = 0; b < z->B; b++) {
        int64_t row = r->s.live[b];
        for (int64_t first = 0; first < z->N; first += TN_ROLLOUT_PIECE) {
            int64_t high = r->s.live[b + 1];
            r->piece[n++] = (int32_t)row;
            while (row < high) { /* the first row of a later slot */
                const int64_t middle = (row + high) / 2;
                if (r->s.slot[middle] < b * z->N + first + TN_ROLLOUT_PIECE) row = middle + 1;
                else high = middle;
            }
        }
    }
    r->piece[n] = (int32_t)r->s.rows;
    return n;
}

typedef struct panels {
    const tn_rollout_back *r;
    int64_t each;
} panels;

static void panel_tile(void *arg, void *scratch, int64_t t)
{
    const panels *p = arg;
    const tn_rollout_slopes space = tn_rollout_slopes_at(&p->r->j.z, scratch);
    const int64_t first = t * p->each, left = p->r->g.rows - first;
    tn_rollout_cell_back(p->r, &space, first, left < p->each ? left : p->each);
}

static void field_tile(void *arg, int64_t b)
{
    const tn_rollout_back *r = arg;
    const tn_rollout_sizes *z = &r->j.z;
    const int64_t end = r->g.first + r->g.rows, first = r->s.live[b] > r->g.first ? r->s.live[b] : r->g.first,
                  last = r->s.live[b + 1] < end ? r->s.live[b + 1] : end;
    if (first < last)
        tn_rollout_reads_back(z, &r->s, r->g.din + (first - r->g.first) * z->I, first, last,
                              r->dgrid[1] + b * z->voxels * z->F);
}

static void group_back(tn_rollout_back *r)
{
    const tn_rollout_sizes *z = &r->j.z;
    panels p = { r, tn_rollout_panel_rows(z, r->g.rows, z->threads) };
    tn_slots_run(r->j.c->pool, tn_tiles(r->g.rows, p.each), panel_tile, &p, r->panels, r->panel_bytes);
    if (r->s.grid) tn_pool_run(r->j.c->pool, z->B, field_tile, r);
    tn_rollout_weights(r);
}

static void step_back(tn_rollout_back *r)
{
    const tn_rollout_sizes *z = &r->j.z;
    const size_t field = floats(z->B * z->voxels * z->F);
    tn_pool_run(r->j.c->pool, z->B, relate_tile, r);
    if (field) memset(r->dgrid[1], 0, field);
    const int64_t pieces = find_pieces(r);
    for (int64_t k = 0; k < pieces; k = r->g.piece + r->g.pieces) {
        int64_t last = k;
        while (last < pieces && r->piece[last + 1] - r->piece[k] <= r->g.most) last++;
        r->g.first = r->piece[k], r->g.rows = r->piece[last] - r->piece[k];
        r->g.piece = k, r->g.pieces = last - k;
        if (r->g.rows) group_back(r);
    }
    float *const read = r->dgrid[1];
    r->dgrid[1] = r->dgrid[0], r->dgrid[0] = read;
}

/* --- all of it ------------------------------------------------------------------------------------------------------ */

static void clear(const tn_call *c)
{
    for (int i = 0; i < TN_ROLLOUT_INPUTS; i++)
        if (c->din[i].data && !(c->accumulate >> i & 1))
            memset(c->din[i].data, 0, floats(tn_dims_count(c->din[i].dims)));
}

static void births_back(const tn_rollout_back *r)
{
    const tn_rollout_sizes *z = &r->j.z;
    const tn_rollout_step s = step_at(r, 0);
    float *d = r->j.c->din[TN_ROLLOUT_E0].data;
    for (int64_t b = 0; d && b < z->B; b++)
        for (int64_t i = s.live[b]; i < s.live[b + 1] && i - s.live[b] < z->S; i++) {
            if (s.bits[i] & TN_ROLLOUT_OFF) continue;
            for (int64_t k = 0; k < z->E; k++)
                d[(b * z->S + i - s.live[b]) * z->E + k] += r->dplace[0][i * z->P + 3 + k];
        }
}

tn_status tn_rollout_backward_cpu(const tn_call *c)
{
    const tn_rollout_job j = tn_rollout_job_of(c);
    tn_rollout_back r = make_back(&j, c->work);
    const tn_rollout_sizes *z = &r.j.z;
    const int32_t *counts = c->out[TN_ROLLOUT_COUNTS].data;
    clear(c);
    for (int i = 0; i < 2; i++) tn_rollout_pack(&r.j, i, r.packed[i]);
    for (int64_t i = 0; i < z->C; i++) r.row_of[i] = -1;
    for (int64_t b = 0; b < z->B; b++, counts += TN_ROLLOUT_TALLIES)
        r.used[b] = (int32_t)(b * z->N) + counts[TN_ROLLOUT_ASKED] - counts[TN_ROLLOUT_REFUSED];
    if (z->F) memset(r.dgrid[0], 0, floats(z->B * z->voxels * z->F));
    bool computed = !z->a->keep;
    for (int64_t t = z->T - 1; t >= 0; t--) {
        if (!live_at(&r, t)[z->B]) continue;
        if (!computed) compute_again(&r, t);
        computed = !z->a->keep || t % z->a->keep;
        r.t = t;
        r.s = step_at(&r, t);
        step_back(&r);
    }
    if (live_at(&r, 0)[z->B]) births_back(&r);
    return TN_OK;
}
