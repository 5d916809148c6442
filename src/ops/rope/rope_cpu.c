/* rope on the CPU: a tile is a few token positions. Sines and cosines are made once per position and used for all
 * heads, and for all sequences when they share positions. */
#include "backend/cpu/level.h"
#include "ops/rope/rope_frequency.h"
#include "ops/rows.h"

#include <math.h>

tn_kernel tn_rope_forward_cpu, tn_rope_backward_cpu;

enum { TOKENS = 8, PAIRS = 512 };

typedef struct job {
    const tn_rope_attr *attr;
    const tn_arg *x, *y, *position; /* x -> y, both (B,T,H,D) */
    int64_t batch;                  /* sequences alive */
    float sign;                     /* -1: the inverse rotation */
    bool add;
} job;

static void angles(const double *f, double amplitude, int64_t pairs, int64_t position, float sign, float *c, float *s)
{
    for (int64_t j = 0; j < pairs; j++) {
        const double t = (double)position * f[j];
        c[j] = (float)(amplitude * cos(t));
        s[j] = sign * (float)(amplitude * sin(t));
    }
}

/* One head: pair j is at j*step and j*step + other. Both are read before either is written: y may be x. */
static void turn(const job *w, const float *x, float *y, int64_t pairs, const float *c, const float *s)
{
    const int64_t ex = w->x->stride[3], ey = w->y->stride[3], step = w->attr->interleaved ? 2 : 1;
    const int64_t other = w->attr->interleaved ? 1 : pairs;
    for (int64_t j = 0; j < pairs; j++) {
        const float a = x[j * step * ex], b = x[(j * step + other) * ex];
        const float p = a * c[j] - b * s[j], q = b * c[j] + a * s[j];
        float *u = &y[j * step * ey], *v = &y[(j * step + other) * ey];
        *u = w->add ? *u + p : p;
        *v = w->add ? *v + q : q;
    }
}

static int64_t position_of(const tn_arg *p, int64_t b, int64_t t)
{
    const int32_t *v = p->data;
    if (!v) return t;
    return p->dims.rank == 2 ? v[b * p->stride[0] + t * p->stride[1]]
                             : v[p->dims.dim[0] > 1 ? b * p->stride[0] : 0] + t;
}

static void tile(void *arg, int64_t i)
{
    const job *w = arg;
    const int64_t T = w->x->dims.dim[1], H = w->x->dims.dim[2], pairs = w->x->dims.dim[3] / 2;
    const int64_t end = (i + 1) * TOKENS < T ? (i + 1) * TOKENS : T, *sx = w->x->stride, *sy = w->y->stride;
    const bool own = w->position->data && tn_dims_count(w->position->dims) > 1; /* positions of a sequence */
    double f[PAIRS];
    float c[PAIRS], s[PAIRS];
    for (int64_t j = 0; j < pairs; j++) f[j] = tn_rope_frequency(w->attr, j, pairs);
    for (int64_t t = i * TOKENS; t < end; t++)
        for (int64_t b = 0; b < w->batch; b++) {
            if (b == 0 || own) angles(f, w->attr->amplitude, pairs, position_of(w->position, b, t), w->sign, c, s);
            for (int64_t h = 0; h < H; h++)
                turn(w, (const float *)w->x->data + b * sx[0] + t * sx[1] + h * sx[2],
                     (float *)w->y->data + b * sy[0] + t * sy[1] + h * sy[2], pairs, c, s);
        }
}

static tn_status rotate(const tn_call *c, const tn_arg *x, const tn_arg *y, float sign, bool add)
{
    job w = {
        .attr = c->attr, .x = x, .y = y, .position = &c->in[1], .batch = x->dims.dim[0], .sign = sign, .add = add
    };
    if (x->live && *x->live < w.batch) w.batch = *x->live;
    tn_pool_run(c->pool, tn_tiles(x->dims.dim[1], TOKENS), tile, &w);
    return TN_OK;
}

TN_LEVELED_KERNEL(tn_rope_forward_cpu) { return rotate(c, &c->in[0], &c->out[0], 1, false); }

TN_LEVELED_KERNEL(tn_rope_backward_cpu) { return rotate(c, &c->dout[0], &c->din[0], -1, c->accumulate & 1); }
