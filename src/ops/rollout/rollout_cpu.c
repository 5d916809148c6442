/* rollout on the CPU, forward: step after step, panels of rows side by side, then samples side by side. Everything is read where it
 * lies: rows of a step point to their rows in the step before, and no state moves when flows leave. */
#include "ops/cuda_kernels.h"
#include "ops/rollout/rollout_move.h"
#include "ops/rollout/rollout_run.h"
#include "ops/rows.h"
#include "ops/slots.h"

#include <string.h>

tn_kernel tn_rollout_forward_cpu;
tn_kernel_work tn_rollout_work_cpu;

tn_rollout_job tn_rollout_job_of(const tn_call *c)
{
    tn_rollout_job j = { .c = c, .z = tn_rollout_sizes_of(c->attr, c->in[TN_ROLLOUT_E0].dims.dim[0]) };
    const int64_t *seed = c->in[TN_ROLLOUT_SEED].data;
    j.z.round = c->round, j.z.bf16x3 = c->bf16x3, j.z.portable = c->portable;
    j.z.threads = tn_pool_threads(c->pool);
    j.kappa = tn_arg_scalar(&c->in[TN_ROLLOUT_KAPPA], 1);
    j.drift = tn_arg_scalar(&c->in[TN_ROLLOUT_DRIFT], 0);
    j.sigma = seed ? tn_arg_scalar(&c->in[TN_ROLLOUT_SIGMA], 0) : 0;
    j.seed = seed ? tn_rollout_seed(seed) : 0;
    j.number = c->in[TN_ROLLOUT_NUMBER].data;
    return j;
}

static size_t floats(int64_t n) { return sizeof(float) * (size_t)n; }

/* base NULL: only measures. */
static tn_rollout_run make_run(const tn_rollout_job *j, void *base)
{
    tn_rollout_run r = { .j = *j };
    const tn_rollout_sizes *z = &r.j.z;
    size_t *n = &r.bytes;
    for (int i = 0; i < 2; i++) {
        r.places[i] = tn_carve(base, n, floats(z->C * z->P));
        r.state[i] = tn_carve(base, n, floats(z->L * z->C * z->H));
        r.grid[i] = tn_carve(base, n, floats(z->B * z->voxels * z->F));
        r.slot[i] = tn_carve(base, n, floats(z->C));
        r.from[i] = tn_carve(base, n, floats(z->C));
        r.bits[i] = tn_carve(base, n, floats(z->C));
    }
    r.live = tn_carve(base, n, floats((z->T + 1) * (z->B + 1)));
    r.after = tn_carve(base, n, floats(z->C * z->P));
    r.phi = tn_carve(base, n, floats(z->C * z->F));
    r.even = tn_carve(base, n, floats(z->C));
    r.birth = tn_carve(base, n, floats(z->C));
    r.parent = tn_carve(base, n, floats(z->C));
    r.counts = tn_carve(base, n, floats(z->B * TN_ROLLOUT_TALLIES));
    int32_t **const by_sample[] = { &r.active, &r.child, &r.last, &r.stale, &r.stopped };
    for (size_t i = 0; i < sizeof by_sample / sizeof *by_sample; i++) *by_sample[i] = tn_carve(base, n, floats(z->B));
    r.packed = tn_carve(base, n, tn_rollout_pack(&r.j, false, NULL));
    r.panel_bytes = tn_align64(tn_rollout_panel_at(z, NULL).bytes);
    r.panels = tn_carve(base, n, r.panel_bytes * (size_t)z->threads);
    return r;
}

size_t tn_rollout_forward_work(const tn_rollout_job *j) { return make_run(j, NULL).bytes; }

size_t tn_rollout_work_cpu(const tn_sig *s, bool backward)
{
    tn_rollout_job j = { .z = tn_rollout_sizes_of(s->attr, s->in[TN_ROLLOUT_E0].dims.dim[0]) };
    j.z.round = s->round, j.z.bf16x3 = s->bf16x3, j.z.portable = s->portable;
    j.z.threads = s->threads;
    return backward ? tn_rollout_backward_work(&j) : tn_rollout_forward_work(&j);
}

/* The part of output `i` that belongs to step t, or of two parts in turn. */
static void *part(const tn_rollout_run *r, int i, int64_t t, int64_t numbers, void *const *turn)
{
    char *out = r->j.c->out[i].data;
    return out ? out + floats(t * numbers) : turn[t % 2];
}

static float *state_at(const tn_rollout_run *r, int64_t t)
{
    const tn_rollout_sizes *z = &r->j.z;
    const int64_t keep = z->a->keep ? z->a->keep : 1, numbers = z->L * z->C * z->H;
    float *kept = r->j.c->out[TN_ROLLOUT_STATE].data;
    return kept && (t + 1) % keep == 0 ? kept + ((t + 1) / keep - 1) * numbers : r->state[t % 2];
}

tn_rollout_step tn_rollout_step_at(const tn_rollout_run *r, int64_t t)
{
    const tn_rollout_sizes *z = &r->j.z;
    const tn_arg *out = r->j.c->out;
    float *gates = z->a->keep ? NULL : out[TN_ROLLOUT_GATES].data,
          *heads = z->a->keep ? NULL : out[TN_ROLLOUT_HEADS].data;
    const int64_t field = z->B * z->voxels * z->F;
    const int32_t *live = r->live + t * (z->B + 1);
    return (tn_rollout_step){
        .t = t,
        .rows = live[z->B],
        .live = live,
        .places = part(r, TN_ROLLOUT_PLACES, t, z->C * z->P, (void *const *)r->places),
        .slot = part(r, TN_ROLLOUT_SLOT, t, z->C, (void *const *)r->slot),
        .from = part(r, TN_ROLLOUT_FROM, t, z->C, (void *const *)r->from),
        .bits = part(r, TN_ROLLOUT_BITS, t, z->C, (void *const *)r->bits),
        .h_before = t ? state_at(r, t - 1) : NULL,
        .h_after = state_at(r, t),
        .gates = gates ? gates + t * z->L * z->C * 4 * z->H : NULL,
        .heads = heads ? heads + t * z->C * z->G : NULL,
        .grid = t && z->F ? part(r, TN_ROLLOUT_GRID, t - 1, field, (void *const *)r->grid) : NULL,
        .deposit = z->F ? part(r, TN_ROLLOUT_GRID, t, field, (void *const *)r->grid) : NULL,
        .after = r->after,
        .phi = r->phi,
    };
}

/* --- one step ------------------------------------------------------------------------------------------------------- */

typedef struct panels {
    const tn_rollout_job *j;
    const tn_rollout_step *s;
    int64_t each;
} panels;

static void panel_tile(void *arg, void *scratch, int64_t t)
{
    const panels *p = arg;
    const tn_rollout_panel space = tn_rollout_panel_at(&p->j->z, scratch);
    const int64_t first = t * p->each, left = p->s->rows - first;
    tn_rollout_cell(p->j, p->s, &space, first, left < p->each ? left : p->each);
}

void tn_rollout_panels(const tn_rollout_job *j, const tn_rollout_step *s, void *space, size_t bytes)
{
    panels p = { j, s, tn_rollout_panel_rows(&j->z, s->rows, tn_pool_threads(j->c->pool)) };
    tn_slots_run(j->c->pool, tn_tiles(s->rows, p.each), panel_tile, &p, space, bytes);
}

static void deposit_tile(void *arg, int64_t b)
{
    const panels *p = arg;
    const tn_rollout_sizes *z = &p->j->z;
    tn_rollout_deposit(z, p->s, b, p->s->deposit + b * z->voxels * z->F);
}

tn_status tn_rollout_forward_cpu(const tn_call *c)
{
    const tn_rollout_job j = tn_rollout_job_of(c);
    tn_rollout_run r = make_run(&j, c->work);
    const tn_rollout_sizes *z = &r.j.z;
    if (c->out[TN_ROLLOUT_LIVE].data) r.live = c->out[TN_ROLLOUT_LIVE].data;
    if (c->out[TN_ROLLOUT_COUNTS].data) r.counts = c->out[TN_ROLLOUT_COUNTS].data;
    r.j.even = r.even;
    tn_rollout_pack(&r.j, false, r.packed);
    tn_rollout_begin(&r);
    for (int64_t t = 0; t < z->T; t++) {
        const tn_rollout_step s = tn_rollout_step_at(&r, t);
        if (s.rows) {
            tn_rollout_panels(&r.j, &s, r.panels, r.panel_bytes);
            if (z->F) tn_pool_run(c->pool, z->B, deposit_tile, &(panels){ &r.j, &s, 0 });
        }
        tn_rollout_finish(&r, &s);
    }
    return TN_OK;
}
