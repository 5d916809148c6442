/* dropout on the CPU: forward and backward are the same walk, from x to y or from dy to dx (either pair may be one). */
#include "backend/cpu/level.h"
#include "base/rng.h"
#include "ops/dropout/dropout.h"
#include "ops/elem.h"

#include <math.h>

tn_kernel tn_dropout_forward_cpu, tn_dropout_backward_cpu;

enum { FROM, TO };

typedef struct job {
    tn_rng rng;
    uint32_t threshold; /* kept: 24 random bits at least this */
    float scale;
    bool add;
} job;

static void piece(const void *arg, const tn_elem *e, const int64_t *at, int64_t n, int64_t index)
{
    const job *j = arg;
    uint32_t bits[TN_ELEM_PIECE + 8];
    float in[TN_ELEM_PIECE], out[TN_ELEM_PIECE];
    const int64_t skip = index % 4; /* a piece may start inside a block of four */
    tn_rng_blocks(j->rng, (uint64_t)(index / 4), (skip + n + 3) / 4, bits);
    const float *x = tn_elem_load(e, FROM, at, n, in);
    float *y = tn_elem_target(e, TO, at, j->add, out);
    TN_VECTOR
    for (int64_t i = 0; i < n; i++) y[i] = bits[skip + i] >> 8 >= j->threshold ? x[i] * j->scale : 0.0f;
    tn_elem_store(e, TO, at, n, j->add, y);
}

static tn_status run(const tn_call *c, const tn_arg *from, const tn_arg *to, bool add)
{
    const tn_dropout_attr *a = c->attr;
    const int64_t *seed = c->in[1].data; /* (2): seed, step */
    const job j = { .rng = { (uint64_t)seed[0] + (uint64_t)seed[1] * 0x9E3779B97F4A7C15u, a->stream },
                    .threshold = (uint32_t)ceil((double)a->p * 0x1p24),
                    .scale = 1 / (1 - a->p),
                    .add = add };
    tn_elem e;
    tn_elem_make(&e, from->dims, from->live, 2, (const tn_arg *[]){ from, to });
    tn_elem_run(&e, c->pool, piece, &j);
    return TN_OK;
}

TN_LEVELED_KERNEL(tn_dropout_forward_cpu) { return run(c, &c->in[0], &c->out[0], false); }

TN_LEVELED_KERNEL(tn_dropout_backward_cpu) { return run(c, &c->dout[0], &c->din[0], c->accumulate & 1); }
