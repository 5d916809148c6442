/* conv2d on the CPU. A patch matrix (C*kh*kw, pixels) is made for a block of output pixels at a time, in a slot's
 * scratch memory, and multiplied there. Forward: a tile of work per (image, block). dx: per image, whose blocks
 * overlap. dw: per few input channels, over all images and blocks in order. db: per output channel. So every sum has
 * a fixed order. */
#include "backend/cpu/gemm.h"
#include "ops/conv2d/conv2d.h"
#include "ops/rows.h"
#include "ops/slots.h"

#include <string.h>

tn_kernel tn_conv2d_forward_cpu, tn_conv2d_backward_cpu;
size_t tn_conv2d_work_cpu(const tn_sig *s, bool backward);

enum { X, W, BIAS };
enum {
    PIXELS = 512,
    PATCHES = 1 << 16,
    COLUMNS = 64
}; /* most of a block; most numbers of a patch matrix; of dw's tile */

typedef struct shape {
    int64_t C, H, Wd, O, kh, kw, kk, rows, oh, ow, pixels; /* kk = kh*kw, rows = C*kk, pixels = oh*ow */
    int64_t block, blocks;                                 /* pixels of a block */
    int64_t channels;                                      /* of a tile of dw */
    size_t patch_bytes, slot_bytes;
} shape;

static shape measure(tn_dims x, tn_dims w, tn_dims y)
{
    shape z = { .C = x.dim[1],
                .H = x.dim[2],
                .Wd = x.dim[3],
                .O = w.dim[0],
                .kh = w.dim[2],
                .kw = w.dim[3],
                .oh = y.dim[2],
                .ow = y.dim[3] };
    z.kk = z.kh * z.kw;
    z.rows = z.C * z.kk;
    z.pixels = z.oh * z.ow;
    z.block = z.rows ? PATCHES / z.rows : PIXELS;
    z.block = z.block > PIXELS ? PIXELS : z.block < 16 ? 16 : z.block;
    z.blocks = tn_tiles(z.pixels, z.block);
    if (z.blocks > 0)
        z.block = tn_tiles(z.pixels, z.blocks); /* equal parts: a short last one would be mostly overhead */
    z.channels = z.kk < COLUMNS ? COLUMNS / z.kk : 1;
    const int64_t columns = z.channels * z.kk > z.block ? z.channels * z.kk : z.block;
    z.patch_bytes = tn_align64(sizeof(float) * (size_t)(z.rows * z.block));
    z.slot_bytes = z.patch_bytes + tn_gemm_work_most(z.O > z.rows ? z.O : z.rows, columns, 1);
    return z;
}

size_t tn_conv2d_work_cpu(const tn_sig *s, bool backward)
{
    (void)backward;
    return measure(s->in[X].dims, s->in[W].dims, s->out[0].dims).slot_bytes * (size_t)s->threads;
}

typedef struct job {
    const tn_call *c;
    shape z;
    int64_t stride, pad, images; /* images alive */
} job;

static job make_job(const tn_call *c, const tn_arg *y)
{
    const tn_conv2d_attr *a = c->attr;
    job w = { .c = c,
              .z = measure(c->in[X].dims, c->in[W].dims, y->dims),
              .stride = a->stride,
              .pad = a->pad,
              .images = y->dims.dim[0] };
    if (y->live && *y->live < w.images) w.images = *y->live < 0 ? 0 : *y->live;
    return w;
}

/* --- patches ----------------------------------------------------------------------------------------------------- */

/* One row (channel, u, v) of the patch matrix. Of every output row, pixels [lo,hi) fall into the image's width. */
typedef struct tap {
    int64_t y, x; /* in the channel's image, of output pixel (0,0) */
    int64_t lo, hi;
} tap;

static tap tap_of(const job *w, int64_t r)
{
    const int64_t step = w->stride, ow = w->z.ow;
    tap t = { .y = r % w->z.kk / w->z.kw - w->pad, .x = r % w->z.kw - w->pad };
    t.lo = t.x < 0 ? (-t.x + step - 1) / step : 0;
    t.hi = t.x < w->z.Wd ? (w->z.Wd - t.x + step - 1) / step : 0;
    if (t.hi > ow) t.hi = ow;
    if (t.lo > t.hi) t.lo = t.hi;
    return t;
}

/* Walks over the n pixels from p0 on, one stretch of an output row after the other. body sees a stretch of pixels
 * [j_, j_ + end_), of which [lo_,hi_) lie in the image, pixel k at at_ + k * stride. */
#define FOR_STRETCHES(w, t, p0, n, body)                                                                               \
    for (int64_t j_ = 0, i_ = (p0) / (w)->z.ow, k_ = (p0) % (w)->z.ow, end_; j_ < (n); j_ += end_, k_ = 0, i_++) {     \
        const int64_t y_ = i_ * (w)->stride + (t).y, at_ = y_ * (w)->z.Wd + k_ * (w)->stride + (t).x;                  \
        end_ = (w)->z.ow - k_ < (n)-j_ ? (w)->z.ow - k_ : (n)-j_;                                                      \
        const bool in_ = y_ >= 0 && y_ < (w)->z.H;                                                                     \
        const int64_t lo_ = !in_ ? 0 : clamp((t).lo - k_, end_), hi_ = !in_ ? 0 : clamp((t).hi - k_, end_);            \
        body                                                                                                           \
    }

static int64_t clamp(int64_t x, int64_t most) { return x < 0 ? 0 : x < most ? x : most; }

/* col (channels*kk, block): patches of `channels` channels from image x (channels,H,W). */
static void gather(const job *w, const float *restrict x, int64_t channels, int64_t p0, int64_t n, float *restrict col)
{
    for (int64_t r = 0; r < channels * w->z.kk; r++, col += w->z.block) {
        const float *image = x + r / w->z.kk * w->z.H * w->z.Wd;
        const tap t = tap_of(w, r);
        FOR_STRETCHES(w, t, p0, n, {
            float *to = col + j_;
            for (int64_t k = 0; k < lo_; k++) to[k] = 0;
            if (w->stride == 1)
                for (int64_t k = lo_; k < hi_; k++) to[k] = image[at_ + k];
            else
                for (int64_t k = lo_; k < hi_; k++) to[k] = image[at_ + k * w->stride];
            for (int64_t k = hi_; k < end_; k++) to[k] = 0;
        })
    }
}

/* The transpose of gather: adds patches to the image they came from. */
static void scatter(const job *w, const float *restrict col, int64_t p0, int64_t n, float *restrict x)
{
    for (int64_t r = 0; r < w->z.rows; r++, col += w->z.block) {
        float *image = x + r / w->z.kk * w->z.H * w->z.Wd;
        const tap t = tap_of(w, r);
        FOR_STRETCHES(w, t, p0, n, {
            const float *from = col + j_;
            if (w->stride == 1)
                for (int64_t k = lo_; k < hi_; k++) image[at_ + k] += from[k];
            else
                for (int64_t k = lo_; k < hi_; k++) image[at_ + k * w->stride] += from[k];
        })
    }
}

static int64_t block_pixels(const job *w, int64_t block)
{
    const int64_t left = w->z.pixels - block * w->z.block;
    return left < w->z.block ? left : w->z.block;
}

/* --- forward ----------------------------------------------------------------------------------------------------- */

static void forward_tile(void *arg, void *scratch, int64_t i)
{
    const job *w = arg;
    const tn_call *c = w->c;
    const int64_t b = i / w->z.blocks, p0 = i % w->z.blocks * w->z.block, n = block_pixels(w, i % w->z.blocks);
    const float *x = (const float *)c->in[X].data + b * w->z.C * w->z.H * w->z.Wd, *bias = c->in[BIAS].data;
    float *y = (float *)c->out[0].data + b * w->z.O * w->z.pixels + p0, *col = scratch;
    gather(w, x, w->z.C, p0, n, col);
    for (int64_t o = 0; bias && o < w->z.O; o++)
        for (int64_t j = 0; j < n; j++) y[o * w->z.pixels + j] = bias[o];
    const tn_gemm g = { .m = w->z.O,
                        .n = n,
                        .k = w->z.rows,
                        .a = c->in[W].data,
                        .a_row = w->z.rows,
                        .a_col = 1,
                        .a_type = c->in[W].dtype,
                        .b = col,
                        .b_row = w->z.block,
                        .b_col = 1,
                        .c = y,
                        .c_row = w->z.pixels,
                        .batch = 1,
                        .round = c->round,
                        .bf16x3 = c->bf16x3,
                        .portable_only = c->portable,
                        .accumulate = bias != NULL,
                        .alpha = 1 };
    tn_gemm_run(NULL, &g, (char *)scratch + w->z.patch_bytes);
}

tn_status tn_conv2d_forward_cpu(const tn_call *c)
{
    job w = make_job(c, &c->out[0]);
    tn_slots_run(c->pool, w.images * w.z.blocks, forward_tile, &w, c->work, w.z.slot_bytes);
    return TN_OK;
}

/* --- backward ---------------------------------------------------------------------------------------------------- */

static const float *dy_block(const job *w, int64_t b, int64_t block)
{
    return (const float *)w->c->dout[0].data + b * w->z.O * w->z.pixels + block * w->z.block;
}

static void grad_x_tile(void *arg, void *scratch, int64_t b)
{
    const job *w = arg;
    const tn_call *c = w->c;
    const int64_t count = w->z.C * w->z.H * w->z.Wd;
    float *dx = (float *)c->din[X].data + b * count, *col = scratch;
    if (!(c->accumulate >> X & 1)) memset(dx, 0, sizeof *dx * (size_t)count);
    for (int64_t i = 0; i < w->z.blocks; i++) {
        const int64_t n = block_pixels(w, i);
        const tn_gemm g = { .m = w->z.rows,
                            .n = n,
                            .k = w->z.O,
                            .a = c->in[W].data,
                            .a_row = 1,
                            .a_col = w->z.rows,
                            .a_type = c->in[W].dtype,
                            .b = dy_block(w, b, i),
                            .b_row = w->z.pixels,
                            .b_col = 1,
                            .c = col,
                            .c_row = w->z.block,
                            .batch = 1,
                            .round = c->round,
                            .bf16x3 = c->bf16x3,
                            .portable_only = c->portable,
                            .alpha = 1 };
        tn_gemm_run(NULL, &g, (char *)scratch + w->z.patch_bytes);
        scatter(w, col, i * w->z.block, n, dx);
    }
}

static void grad_w_tile(void *arg, void *scratch, int64_t i)
{
    const job *w = arg;
    const tn_call *c = w->c;
    const int64_t c0 = i * w->z.channels, left = w->z.C - c0, channels = left < w->z.channels ? left : w->z.channels;
    float *dw = (float *)c->din[W].data + c0 * w->z.kk, *col = scratch;
    for (int64_t o = 0; !(c->accumulate >> W & 1) && o < w->z.O; o++)
        memset(dw + o * w->z.rows, 0, sizeof *dw * (size_t)(channels * w->z.kk));
    for (int64_t t = 0; t < w->images * w->z.blocks; t++) {
        const int64_t b = t / w->z.blocks, block = t % w->z.blocks, n = block_pixels(w, block);
        gather(w, (const float *)c->in[X].data + (b * w->z.C + c0) * w->z.H * w->z.Wd, channels, block * w->z.block, n,
               col);
        const tn_gemm g = { .m = w->z.O,
                            .n = channels * w->z.kk,
                            .k = n,
                            .a = dy_block(w, b, block),
                            .a_row = w->z.pixels,
                            .a_col = 1,
                            .b = col,
                            .b_row = 1,
                            .b_col = w->z.block,
                            .c = dw,
                            .c_row = w->z.rows,
                            .batch = 1,
                            .round = c->round,
                            .bf16x3 = c->bf16x3,
                            .portable_only = c->portable,
                            .accumulate = true,
                            .alpha = 1 };
        tn_gemm_run(NULL, &g, (char *)scratch + w->z.patch_bytes);
    }
}

static void grad_bias_tile(void *arg, int64_t o)
{
    const job *w = arg;
    float *db = (float *)w->c->din[BIAS].data + o;
    enum { CHAINS = 8 };
    double chain[CHAINS] = { 0 }, sum = 0;
    for (int64_t b = 0; b < w->images; b++) {
        const float *dy = (const float *)w->c->dout[0].data + (b * w->z.O + o) * w->z.pixels;
        int64_t p = 0;
        for (; p + CHAINS <= w->z.pixels; p += CHAINS)
            for (int i = 0; i < CHAINS; i++) chain[i] += (double)dy[p + i];
        for (; p < w->z.pixels; p++) chain[0] += (double)dy[p];
    }
    for (int i = 0; i < CHAINS; i++) sum += chain[i];
    *db = w->c->accumulate >> BIAS & 1 ? *db + (float)sum : (float)sum;
}

tn_status tn_conv2d_backward_cpu(const tn_call *c)
{
    job w = make_job(c, &c->dout[0]);
    if (c->din[X].data) tn_slots_run(c->pool, w.images, grad_x_tile, &w, c->work, w.z.slot_bytes);
    if (c->din[W].data) tn_slots_run(c->pool, tn_tiles(w.z.C, w.z.channels), grad_w_tile, &w, c->work, w.z.slot_bytes);
    if (c->din[BIAS].data) tn_pool_run(c->pool, w.z.O, grad_bias_tile, &w);
    return TN_OK;
}
