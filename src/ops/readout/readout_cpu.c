/* readout on the CPU: tiles of rows, a group (or SPAN numbers) of a row at a time in buffers that stay in the nearest cache.
 * Sums over a group go in 16 lanes of float, then pairwise; gradients of skip and gain in float over a tile's rows, then
 * over tiles in double. Tiles depend on the shape alone. */
#include "backend/cpu/level.h"
#include "backend/cpu/vmath.h"
#include "ops/readout/readout.h"
#include "ops/readout/readout_args.h"
#include "ops/rows.h"

#include <math.h>
#include <string.h>

tn_kernel tn_readout_forward_cpu, tn_readout_backward_cpu;

enum { SPAN = 256, COLUMNS = 64 };

typedef float slope_fn(float z, float *slope);
typedef void value_map(float *y, const float *n, const float *z, int64_t count);
typedef void slope_map(float *value, float *slope, const float *z, int64_t count);

typedef struct job {
    const tn_call *c;
    const tn_readout_attr *a;
    int64_t rows, width, span, per_tile;
    const float *skip, *gain; /* (W) or NULL */
    float *partial;           /* (tiles,2,W): skip, gain */
} job;

/* --- activations -------------------------------------------------------------------------------------------------- */

TN_INLINE void map_slopes(float *value, float *slope, const float *z, int64_t n, slope_fn *f)
{
    int64_t i = 0;
    for (; i + TN_V_BLOCK <= n; i += TN_V_BLOCK) {
        TN_UNROLL
        for (int k = 0; k < TN_V_BLOCK; k++) value[i + k] = f(z[i + k], &slope[i + k]);
    }
    for (; i < n; i++) value[i] = f(z[i], &slope[i]);
}

#define ACT(name)                                                                                                      \
    static void name##_value(float *y, const float *n, const float *z, int64_t count)                                  \
    {                                                                                                                  \
        tn_v_map_times(y, n, z, count, tn_v_##name);                                                                   \
    }                                                                                                                  \
    static void name##_slopes(float *value, float *slope, const float *z, int64_t count)                               \
    {                                                                                                                  \
        map_slopes(value, slope, z, count, tn_v_##name##_slope);                                                       \
    }

ACT(silu)
ACT(sigmoid)
ACT(gelu)
#undef ACT

static const struct {
    value_map *value;
    slope_map *slopes;
} table[TN_GATE_KINDS] = {
    [TN_GATE_SILU] = { silu_value, silu_slopes },
    [TN_GATE_SIGMOID] = { sigmoid_value, sigmoid_slopes },
    [TN_GATE_GELU] = { gelu_value, gelu_slopes },
};

/* --- a span of a row ------------------------------------------------------------------------------------------------ */

/* The sum of x y, in 16 lanes. */
TN_INLINE float dot(const float *x, const float *y, int64_t n)
{
    float lane[TN_V_BLOCK] = { 0 };
    int64_t i = 0;
    for (; i + TN_V_BLOCK <= n; i += TN_V_BLOCK) {
        TN_UNROLL
        for (int k = 0; k < TN_V_BLOCK; k++) lane[k] += x[i + k] * y[i + k];
    }
    for (; i < n; i++) lane[i % TN_V_BLOCK] += x[i] * y[i];
    for (int w = TN_V_BLOCK / 2; w; w /= 2)
        for (int k = 0; k < w; k++) lane[k] += lane[k + w];
    return lane[0];
}

/* s = scale c + skip x */
TN_INLINE void sum_span(float *s, float scale, const float *c, const float *skip, const float *x, int64_t n)
{
    if (!x) {
        TN_VECTOR
        for (int64_t i = 0; i < n; i++) s[i] = scale * c[i];
        return;
    }
    TN_VECTOR
    for (int64_t i = 0; i < n; i++) s[i] = scale * c[i] + skip[i] * x[i];
}

/* s becomes n without its gain; returns what it was multiplied by. */
TN_INLINE float norm_span(float *s, int64_t n, float eps)
{
    const float r = 1 / sqrtf(dot(s, s, n) / (float)n + eps);
    TN_VECTOR
    for (int64_t i = 0; i < n; i++) s[i] *= r;
    return r;
}

TN_INLINE void times(float *y, const float *w, int64_t n)
{
    TN_VECTOR
    for (int64_t i = 0; i < n; i++) y[i] *= w[i];
}

static const float *from_row(const tn_arg *a, int64_t row, int64_t i)
{
    return a->data ? (const float *)a->data + tn_row_offset(a, row) + i : NULL;
}

static void forward_span(const job *j, int64_t row, int64_t i, int64_t n)
{
    float s[TN_READOUT_GROUP];
    const tn_arg *in = j->c->in, *y = &j->c->out[0];
    const float *x = from_row(&in[TN_READOUT_X], row, i);
    sum_span(s, j->a->scale, from_row(&in[TN_READOUT_C], row, i), x ? j->skip + i : NULL, x, n);
    if (j->a->group) (void)norm_span(s, n, j->a->eps);
    if (j->gain) times(s, j->gain + i, n);
    table[j->a->act].value((float *)y->data + tn_row_offset(y, row) + i, s, from_row(&in[TN_READOUT_Z], row, i), n);
}

static void forward_tile(void *arg, int64_t tile)
{
    const job *j = arg;
    const int64_t end = (tile + 1) * j->per_tile < j->rows ? (tile + 1) * j->per_tile : j->rows;
    for (int64_t row = tile * j->per_tile; row < end; row++)
        for (int64_t i = 0; i < j->width; i += j->span)
            forward_span(j, row, i, j->width - i < j->span ? j->width - i : j->span);
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* factor times d, or d times the vector w, into the gradient of an input. */
TN_INLINE void put_span(const job *j, int input, int64_t row, int64_t i, int64_t n, const float *d, float factor,
                        const float *w)
{
    const tn_arg *a = &j->c->din[input];
    const bool add = j->c->accumulate >> input & 1;
    float made[TN_READOUT_GROUP];
    if (!a->data) return;
    float *to = (float *)a->data + tn_row_offset(a, row) + i;
    TN_VECTOR
    for (int64_t k = 0; k < n; k++) made[k] = d[k] * (w ? w[k] : factor);
    if (!add) {
        memcpy(to, made, sizeof *to * (size_t)n);
        return;
    }
    TN_VECTOR
    for (int64_t k = 0; k < n; k++) to[k] += made[k];
}

TN_INLINE void add_products(float *to, const float *x, const float *y, int64_t n)
{
    TN_VECTOR
    for (int64_t i = 0; i < n; i++) to[i] += x[i] * y[i];
}

/* dskip and dgain: the tile's sums from column i on, or NULL. */
static void backward_span(const job *j, int64_t row, int64_t i, int64_t n, float *dskip, float *dgain)
{
    float s[TN_READOUT_GROUP], ds[TN_READOUT_GROUP], value[TN_READOUT_GROUP], slope[TN_READOUT_GROUP];
    const tn_arg *in = j->c->in;
    const float *x = from_row(&in[TN_READOUT_X], row, i), *dy = from_row(&j->c->dout[0], row, i);
    const float *gain = j->gain ? j->gain + i : NULL, *skip = x ? j->skip + i : NULL;
    sum_span(s, j->a->scale, from_row(&in[TN_READOUT_C], row, i), skip, x, n);
    const float r = j->a->group ? norm_span(s, n, j->a->eps) : 1;
    table[j->a->act].slopes(value, slope, from_row(&in[TN_READOUT_Z], row, i), n);
    TN_VECTOR
    for (int64_t k = 0; k < n; k++) {
        slope[k] *= dy[k] * s[k];
        ds[k] = dy[k] * value[k];
    }
    if (gain) times(slope, gain, n);
    put_span(j, TN_READOUT_Z, row, i, n, slope, 1, NULL);
    if (dgain) add_products(dgain, ds, s, n);
    if (gain) times(ds, gain, n);
    if (j->a->group) {
        const float along = dot(ds, s, n) / (float)n;
        TN_VECTOR
        for (int64_t k = 0; k < n; k++) ds[k] = r * (ds[k] - s[k] * along);
    }
    put_span(j, TN_READOUT_C, row, i, n, ds, j->a->scale, NULL);
    if (!x) return;
    if (dskip) add_products(dskip, ds, x, n);
    put_span(j, TN_READOUT_X, row, i, n, ds, 1, skip);
}

static void backward_tile(void *arg, int64_t tile)
{
    const job *j = arg;
    float *dskip = j->c->din[TN_READOUT_SKIP].data ? j->partial + tile * 2 * j->width : NULL;
    float *dgain = j->c->din[TN_READOUT_GAIN].data ? j->partial + (tile * 2 + 1) * j->width : NULL;
    const int64_t end = (tile + 1) * j->per_tile < j->rows ? (tile + 1) * j->per_tile : j->rows;
    if (dskip) memset(dskip, 0, sizeof *dskip * (size_t)j->width);
    if (dgain) memset(dgain, 0, sizeof *dgain * (size_t)j->width);
    for (int64_t row = tile * j->per_tile; row < end; row++)
        for (int64_t i = 0; i < j->width; i += j->span)
            backward_span(j, row, i, j->width - i < j->span ? j->width - i : j->span, dskip ? dskip + i : NULL,
                          dgain ? dgain + i : NULL);
}

/* Columns of the gradients of skip and gain: the tiles in order. */
static void reduce_tile(void *arg, int64_t tile)
{
    const job *j = arg;
    const int64_t end = (tile + 1) * COLUMNS < j->width ? (tile + 1) * COLUMNS : j->width;
    const int64_t tiles = tn_tiles(j->rows, j->per_tile);
    for (int which = 0; which < 2; which++) {
        const int input = which ? TN_READOUT_GAIN : TN_READOUT_SKIP;
        const tn_arg *to = &j->c->din[input];
        for (int64_t i = tile * COLUMNS; to->data && i < end; i++) {
            float *p = (float *)to->data + i * to->stride[0];
            double s = 0;
            for (int64_t t = 0; t < tiles; t++) s += (double)j->partial[(t * 2 + which) * j->width + i];
            *p = (float)s + (j->c->accumulate >> input & 1 ? *p : 0);
        }
    }
}

/* --- kernels ------------------------------------------------------------------------------------------------------ */

/* `rows`: the tensor whose live rows count. */
static job job_of(const tn_call *c, const tn_arg *rows)
{
    const tn_readout_attr *a = c->attr;
    job j = { .c = c, .a = a, .rows = tn_live_rows(rows), .width = tn_row_length(rows), .partial = c->work };
    j.span = a->group ? a->group : SPAN;
    j.skip = c->in[TN_READOUT_SKIP].data;
    j.gain = c->in[TN_READOUT_GAIN].data;
    j.per_tile = tn_readout_tile(tn_readout_rows(rows->dims), j.width);
    return j;
}

TN_LEVELED_KERNEL(tn_readout_forward_cpu)
{
    job j = job_of(c, &c->out[0]);
    if (j.width && j.rows) tn_pool_run(c->pool, tn_tiles(j.rows, j.per_tile), forward_tile, &j);
    return TN_OK;
}

TN_LEVELED_KERNEL(tn_readout_backward_cpu)
{
    job j = job_of(c, &c->dout[0]);
    if (!j.width) return TN_OK;
    if (j.rows) tn_pool_run(c->pool, tn_tiles(j.rows, j.per_tile), backward_tile, &j);
    if (c->din[TN_READOUT_SKIP].data || c->din[TN_READOUT_GAIN].data)
        tn_pool_run(c->pool, tn_tiles(j.width, COLUMNS), reduce_tile, &j);
    return TN_OK;
}
