/* conv2d on the GPU. For as many images as the workspace holds, patches are laid out as a matrix (pixels, C*kh*kw), a
 * row for every output pixel, and multiplied with the kernel through cuBLASLt; a second kernel brings the product home
 * into y's order and type, with the bias. Backward the same two matrices give dw in one product for each part of the
 * batch, and dx is gathered from the patches' gradients: each number looks for the patches it was in. Products are f32
 * (tf32 where operands may be rounded). Images that are not alive count as zeros, and nothing of them is written. */
#include "backend/cuda/gemm.h"
#include "ops/conv2d/conv2d.h"
#include "ops/elem_sum.cuh"

enum { X, W, BIAS };
enum { MOST = 1 << 26 }; /* numbers of a patch matrix, unless one image has more */

struct job {
    int64_t C, H, Wd, O, kh, kw, oh, ow;
    int64_t patch, pixels; /* C*kh*kw, oh*ow */
    int64_t stride, pad;
    int64_t images, part; /* images of the batch, and most of them at a time */
    int64_t first, here;  /* the current part */
    float *col;           /* (part*pixels, patch): patches, or their gradients */
    float *rows;          /* (part*pixels, O): y or dy */
    float *w, *dw;        /* (O, patch): w as f32, where it is not; its gradient */
    size_t bytes;
};

static job measure(tn_dims x, tn_dims w, tn_dims y, const tn_conv2d_attr *a)
{
    job j = {};
    j.C = x.dim[1], j.H = x.dim[2], j.Wd = x.dim[3];
    j.O = w.dim[0], j.kh = w.dim[2], j.kw = w.dim[3];
    j.oh = y.dim[2], j.ow = y.dim[3];
    j.patch = j.C * j.kh * j.kw, j.pixels = j.oh * j.ow;
    j.stride = a->stride, j.pad = a->pad, j.images = x.dim[0];
    const int64_t each = j.patch * j.pixels;
    j.part = each ? MOST / each : 1;
    j.part = j.part < 1 ? 1 : j.part < j.images ? j.part : j.images;
    return j;
}

static void carve(job *j, void *work)
{
    char *base = (char *)work;
    float **to[] = { &j->col, &j->rows, &j->w, &j->dw };
    const int64_t n[] = { j->part * j->pixels * j->patch, j->part * j->pixels * j->O, j->O * j->patch,
                          j->O * j->patch };
    for (int i = 0; i < 4; i++) {
        *to[i] = base ? (float *)(base + j->bytes) : NULL;
        j->bytes += (sizeof(float) * (size_t)n[i] + 255) & ~(size_t)255;
    }
}

/* db's sum uses the same bytes before the rest does. */
extern "C" size_t tn_conv2d_work_cuda(const tn_sig *s, bool backward)
{
    const tn_dims bias = { 3, { s->in[W].dims.dim[0], 1, 1 } };
    const size_t sum = backward ? tn_d_sum_work(s->out[0].dims, bias) : 0;
    job j = measure(s->in[X].dims, s->in[W].dims, s->out[0].dims, (const tn_conv2d_attr *)s->attr);
    carve(&j, NULL);
    return j.bytes > sum ? j.bytes : sum;
}

static job make_job(const tn_call *c, tn_dims y)
{
    job j = measure(c->in[X].dims, c->in[W].dims, y, (const tn_conv2d_attr *)c->attr);
    carve(&j, c->work);
    return j;
}

/* --- between images and matrices ---------------------------------------------------------------------------------- */

/* Where element k of output pixel p of an image comes from in the image, or -1: padding. */
__device__ __forceinline__ int64_t source(const job &j, int64_t p, int64_t k)
{
    const int64_t channel = k / (j.kh * j.kw), tap = k - channel * j.kh * j.kw;
    const int64_t y = p / j.ow * j.stride + tap / j.kw - j.pad, x = p % j.ow * j.stride + tap % j.kw - j.pad;
    return y < 0 || y >= j.H || x < 0 || x >= j.Wd ? -1 : (channel * j.H + y) * j.Wd + x;
}

__global__ void __launch_bounds__(TN_D_THREADS)
    lay_patches(const __grid_constant__ job j, tn_arg x, const int32_t *live)
{
    const int64_t alive = tn_d_alive(live, j.images), n = j.here * j.pixels * j.patch;
    const int64_t step = (int64_t)gridDim.x * TN_D_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * TN_D_THREADS + threadIdx.x; i < n; i += step) {
        const int64_t row = i / j.patch, b = j.first + row / j.pixels;
        const int64_t at = b < alive ? source(j, row % j.pixels, i - row * j.patch) : -1;
        j.col[i] = at < 0 ? 0.f : tn_load(x.data, x.dtype, b * j.C * j.H * j.Wd + at);
    }
}

/* y (B,O,pixels) from rows (pixels,O), with the bias. */
__global__ void __launch_bounds__(TN_D_THREADS) put_pixels(const __grid_constant__ job j, tn_arg y, tn_arg bias)
{
    const int64_t alive = tn_d_alive(y.live, j.images), n = j.here * j.O * j.pixels;
    const int64_t step = (int64_t)gridDim.x * TN_D_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * TN_D_THREADS + threadIdx.x; i < n; i += step) {
        const int64_t p = i % j.pixels, o = i / j.pixels % j.O, b = i / (j.pixels * j.O);
        if (j.first + b >= alive) continue;
        const float x = j.rows[(b * j.pixels + p) * j.O + o];
        tn_store(y.data, y.dtype, j.first * j.O * j.pixels + i, bias.data ? x + tn_load(bias.data, bias.dtype, o) : x);
    }
}

__global__ void __launch_bounds__(TN_D_THREADS) get_pixels(const __grid_constant__ job j, tn_arg dy)
{
    const int64_t alive = tn_d_alive(dy.live, j.images), n = j.here * j.pixels * j.O;
    const int64_t step = (int64_t)gridDim.x * TN_D_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * TN_D_THREADS + threadIdx.x; i < n; i += step) {
        const int64_t o = i % j.O, p = i / j.O % j.pixels, b = j.first + i / (j.pixels * j.O);
        j.rows[i] = b < alive ? tn_load(dy.data, dy.dtype, (b * j.O + o) * j.pixels + p) : 0.f;
    }
}

/* Number (y,x) of a channel was at (u,v) of the patch of output pixel ((y + pad - u) / stride, (x + pad - v) / stride).
 */
__global__ void __launch_bounds__(TN_D_THREADS)
    gather_image(const __grid_constant__ job j, tn_arg dx, const int32_t *live, bool add)
{
    const int64_t image = j.C * j.H * j.Wd, n = j.here * image, alive = tn_d_alive(live, j.images);
    const int64_t step = (int64_t)gridDim.x * TN_D_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * TN_D_THREADS + threadIdx.x; i < n; i += step) {
        const int64_t x = i % j.Wd + j.pad, y = i / j.Wd % j.H + j.pad, channel = i / (j.Wd * j.H) % j.C, b = i / image;
        float sum = 0;
        if (j.first + b >= alive) continue;
        for (int64_t u = 0; u < j.kh; u++)
            for (int64_t v = 0; v < j.kw; v++) {
                const int64_t py = y - u, px = x - v;
                if (py < 0 || px < 0 || py % j.stride || px % j.stride) continue;
                if (py / j.stride >= j.oh || px / j.stride >= j.ow) continue;
                const int64_t row = b * j.pixels + py / j.stride * j.ow + px / j.stride;
                sum += j.col[row * j.patch + (channel * j.kh + u) * j.kw + v];
            }
        tn_put(dx.data, dx.dtype, j.first * image + i, sum, add);
    }
}

struct pass_map {
    template <int N>
    __device__ __forceinline__ void operator()(int64_t, const float (&x)[1][N], float (&y)[1][N]) const
    {
#pragma unroll
        for (int e = 0; e < N; e++) y[0][e] = x[0][e];
    }
};

/* Numbers from one contiguous tensor to another of its shape. */
static tn_status convert(const tn_call *c, const tn_arg *from, const tn_arg *to, bool add)
{
    const tn_arg *args[] = { from, to };
    return tn_d_map<1, 1>(c, tn_d_space_make(from->dims, NULL, 2, args), add, pass_map{});
}

/* w as f32: where it lies, or converted. */
static tn_status float_weights(const tn_call *c, job *j)
{
    const tn_arg *w = &c->in[W];
    tn_arg to = *w;
    if (w->dtype == TN_F32) {
        j->w = (float *)w->data;
        return TN_OK;
    }
    to.data = j->w, to.dtype = TN_F32;
    return convert(c, w, &to, false);
}

static bool next_part(job *j, bool begin)
{
    j->first = begin ? 0 : j->first + j->part;
    j->here = j->images - j->first < j->part ? j->images - j->first : j->part;
    return j->here > 0;
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static tn_status forward_part(const tn_call *c, const job &j)
{
    const cudaStream_t stream = tn_cuda_stream(c);
    const int64_t rows = j.here * j.pixels;
    tn_cuda_gemm g = {};
    if (j.patch == 0) {
        TN_CUDA_TRY(cudaMemsetAsync(j.rows, 0, sizeof(float) * (size_t)(rows * j.O), stream));
    } else {
        lay_patches<<<tn_blocks(c, rows * j.patch, TN_D_THREADS), TN_D_THREADS, 0, stream>>>(j, c->in[X],
                                                                                             c->out[0].live);
        TN_CUDA_LAUNCHED();
        g.m = rows, g.n = j.O, g.k = j.patch;
        g.a = j.col, g.a_row = j.patch, g.a_col = 1;
        g.b = j.w, g.b_row = 1, g.b_col = j.patch;
        g.c = j.rows;
        const tn_status s = tn_cuda_gemm_f32(c, g, false);
        if (s != TN_OK) return s;
    }
    put_pixels<<<tn_blocks(c, rows * j.O, TN_D_THREADS), TN_D_THREADS, 0, stream>>>(j, c->out[0], c->in[BIAS]);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

extern "C" tn_status tn_conv2d_forward_cuda(const tn_call *c)
{
    job j = make_job(c, c->out[0].dims);
    if (j.images * j.O * j.pixels == 0) return TN_OK;
    tn_status s = float_weights(c, &j);
    for (bool more = next_part(&j, true); s == TN_OK && more; more = next_part(&j, false)) s = forward_part(c, j);
    return s;
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* dw += dy^T patches, over the part's pixels. */
static tn_status add_dw(const tn_call *c, const job &j)
{
    tn_cuda_gemm g = {};
    lay_patches<<<tn_blocks(c, j.here * j.pixels * j.patch, TN_D_THREADS), TN_D_THREADS, 0, tn_cuda_stream(c)>>>(
        j, c->in[X], c->dout[0].live);
    TN_CUDA_LAUNCHED();
    g.m = j.O, g.n = j.patch, g.k = j.here * j.pixels;
    g.a = j.rows, g.a_row = 1, g.a_col = j.O;
    g.b = j.col, g.b_row = j.patch, g.b_col = 1;
    g.c = j.dw;
    return tn_cuda_gemm_f32(c, g, j.first > 0);
}

static tn_status make_dx(const tn_call *c, const job &j)
{
    const int64_t n = j.here * j.C * j.H * j.Wd;
    tn_cuda_gemm g = {};
    g.m = j.here * j.pixels, g.n = j.patch, g.k = j.O;
    g.a = j.rows, g.a_row = j.O, g.a_col = 1;
    g.b = j.w, g.b_row = j.patch, g.b_col = 1;
    g.c = j.col;
    const tn_status s = tn_cuda_gemm_f32(c, g, false);
    if (s != TN_OK) return s;
    gather_image<<<tn_blocks(c, n, TN_D_THREADS), TN_D_THREADS, 0, tn_cuda_stream(c)>>>(j, c->din[X], c->dout[0].live,
                                                                                        c->accumulate >> X & 1);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

static tn_status backward_part(const tn_call *c, const job &j)
{
    const int64_t n = j.here * j.pixels * j.O;
    tn_status s = TN_OK;
    get_pixels<<<tn_blocks(c, n, TN_D_THREADS), TN_D_THREADS, 0, tn_cuda_stream(c)>>>(j, c->dout[0]);
    TN_CUDA_LAUNCHED();
    if (c->din[W].data) s = add_dw(c, j);
    if (s == TN_OK && c->din[X].data) s = make_dx(c, j); /* after dw: it takes the patches' place */
    return s;
}

/* db = the sum of dy over images and pixels. */
static tn_status make_db(const tn_call *c)
{
    tn_arg db = c->din[BIAS];
    const tn_arg *dy = &c->dout[0], *args[] = { dy, &db };
    db.dims.rank = 3;
    db.dims.dim[1] = db.dims.dim[2] = 1;
    db.stride[1] = db.stride[2] = 0;
    const tn_d_sum m = tn_d_sum_make(dy->dims, dy->live, 1, args, c->accumulate >> BIAS & 1, false, c->work);
    return tn_d_sum_run<1>(c, m, pass_map{});
}

/* Nothing is multiplied: no images, or no output channels. */
static tn_status zero_gradients(const tn_call *c)
{
    for (int i = X; i <= W; i++) {
        const tn_arg *d = &c->din[i];
        if (!d->data || (c->accumulate >> i & 1)) continue;
        TN_CUDA_TRY(cudaMemsetAsync(d->data, 0, (size_t)tn_all_count(d) * tn_dtype_bytes(d->dtype), tn_cuda_stream(c)));
    }
    return TN_OK;
}

extern "C" tn_status tn_conv2d_backward_cuda(const tn_call *c)
{
    job j = make_job(c, c->dout[0].dims);
    tn_arg dw = c->din[W];
    dw.data = j.dw, dw.dtype = TN_F32;
    tn_status s = c->din[BIAS].data ? make_db(c) : TN_OK;
    if (s != TN_OK || (!c->din[X].data && !c->din[W].data)) return s;
    if (j.images * j.pixels * j.patch * j.O == 0) return zero_gradients(c);
    if (c->din[X].data) s = float_weights(c, &j);
    for (bool more = next_part(&j, true); s == TN_OK && more; more = next_part(&j, false)) s = backward_part(c, j);
    if (s == TN_OK && c->din[W].data) s = convert(c, &dw, &c->din[W], c->accumulate >> W & 1);
    return s;
}
