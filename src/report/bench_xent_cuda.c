/* The head of a language model on the GPU: linear_xent forward and backward in turn with its three bare products (logits,
 * dx, dw) of the whole size, with classes padded to a multiple of 64, as they multiply best; their time is the ceiling of the
 * row. Operands are random: zeros would multiply faster. */
#include "report/bench.h"

#ifdef TN_HAVE_CUDA
#include "backend/backend.h"
#include "backend/cuda/gemm.h"
#include "base/alloc.h"
#include "base/rng.h"
#include "ops/linear_xent/linear_xent.h"
#include "report/timing.h"

#include <string.h>

enum { ROUNDS = 9, WARM = 2, SAMPLE = 1 << 20, INPUTS = 5, OUTPUTS = 3, PIECES = 9 };
enum { X = TN_LINEAR_XENT_X, W = TN_LINEAR_XENT_W, LABELS = TN_LINEAR_XENT_LABELS };

typedef struct head {
    void *queue;
    tn_linear_xent_attr attr;
    tn_arg in[INPUTS], out[OUTPUTS], dout[OUTPUTS], din[INPUTS];
    tn_call call;
    int64_t row; /* classes, padded to a multiple of 64 */
    void *logits; /* (tokens,row) bf16 of the bare products */
    void *piece[PIECES];
    int pieces;
} head;

static void head_free(head *h)
{
    for (int i = 0; i < h->pieces; i++) tn_backend_cuda.free(h->piece[i]);
    tn_backend_cuda.close(h->queue);
}

static tn_status new_memory(head *h, size_t bytes, void **out)
{
    *out = tn_backend_cuda.alloc(bytes);
    if (!*out) return TN_MEMORY;
    h->piece[h->pieces++] = *out;
    return TN_OK;
}

static tn_status new_tensor(head *h, tn_arg *a, tn_dtype type, tn_dims dims)
{
    *a = (tn_arg){ .dtype = type, .dims = dims };
    int64_t step = 1;
    for (int i = dims.rank - 1; i >= 0; step *= dims.dim[i--]) a->stride[i] = step;
    return new_memory(h, (size_t)step * tn_dtype_bytes(type), &a->data);
}

/* bf16 numbers with this deviation; SAMPLE of them, over and over. */
static tn_status fill_normal(head *h, void *to, int64_t n, float deviation, uint64_t stream)
{
    tn_status s = TN_OK;
    uint16_t *sample = tn_alloc(sizeof *sample * SAMPLE);
    if (!sample) return TN_MEMORY;
    for (uint64_t i = 0; i < SAMPLE; i++) {
        const float x = deviation * tn_rng_normal((tn_rng){ 11, stream }, i);
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        sample[i] = (uint16_t)((bits + 0x8000) >> 16);
    }
    for (int64_t i = 0; i < n; i += SAMPLE)
        TN_TRY(tn_backend_cuda.upload(h->queue, (uint16_t *)to + i, sample, sizeof *sample * (size_t)(n - i < SAMPLE ? n - i : SAMPLE)));
done:
    tn_free(sample);
    return s;
}

static tn_status fill_labels(head *h, int64_t n, int64_t classes)
{
    int32_t *label = tn_alloc(sizeof *label * (size_t)n);
    if (!label) return TN_MEMORY;
    for (int64_t i = 0; i < n; i++) label[i] = (int32_t)tn_rng_below((tn_rng){ 11, 3 }, (uint64_t)i, (uint64_t)classes);
    const tn_status s = tn_backend_cuda.upload(h->queue, h->in[LABELS].data, label, sizeof *label * (size_t)n);
    tn_free(label);
    return s;
}

static tn_status open_op(head *h, int64_t n, int64_t d, int64_t v)
{
    const float one = 1;
    tn_type types[INPUTS] = { { 0 } }, outs[OUTPUTS] = { { 0 } };
    TN_RETURN_IF(tn_backend_cuda.open(1, &h->queue));
    TN_RETURN_IF(new_tensor(h, &h->in[X], TN_BF16, tn_shape(n, d)));
    TN_RETURN_IF(new_tensor(h, &h->in[W], TN_BF16, tn_shape(h->row, d)));
    TN_RETURN_IF(new_tensor(h, &h->in[LABELS], TN_I32, tn_shape(n)));
    TN_RETURN_IF(new_tensor(h, &h->din[X], TN_BF16, tn_shape(n, d)));
    TN_RETURN_IF(new_tensor(h, &h->din[W], TN_F32, tn_shape(h->row, d)));
    h->in[W].dims.dim[0] = h->din[W].dims.dim[0] = v;
    TN_RETURN_IF(new_tensor(h, &h->out[0], TN_F32, (tn_dims){ 0 }));
    TN_RETURN_IF(new_tensor(h, &h->dout[0], TN_F32, (tn_dims){ 0 }));
    TN_RETURN_IF(fill_normal(h, h->in[X].data, n * d, 1, 1));
    TN_RETURN_IF(fill_normal(h, h->in[W].data, v * d, 0.02f, 2));
    TN_RETURN_IF(fill_labels(h, n, v));
    TN_RETURN_IF(tn_backend_cuda.upload(h->queue, h->dout[0].data, &one, sizeof one));
    h->attr = (tn_linear_xent_attr){ .ignore = -1 };
    for (int i = 0; i < INPUTS; i++) types[i] = (tn_type){ .dtype = h->in[i].dtype, .dims = h->in[i].dims, .absent = !h->in[i].data };
    const tn_sig sig = { .attr = &h->attr, .n_in = INPUTS, .n_out = OUTPUTS, .in = types, .out = outs, .threads = 1, .makes_out = true };
    h->call = (tn_call){ .attr = &h->attr, .n_in = INPUTS, .n_out = OUTPUTS, .in = h->in, .out = h->out, .dout = h->dout, .din = h->din,
                         .accumulate = 1u << W, .makes_out = true, .stream = h->queue };
    h->call.work_bytes = tn_op_linear_xent.kernel[TN_CUDA].work(&sig, true);
    return new_memory(h, h->call.work_bytes, &h->call.work);
}

/* The same three products, each of the whole size. */
static void make_products(const head *h, tn_cuda_gemm g[3])
{
    const int64_t n = h->in[X].dims.dim[0], d = h->in[X].dims.dim[1], v = h->row;
    const tn_cuda_gemm one = { .type = TN_BF16, .c_type = TN_BF16, .alpha = 1 };
    g[0] = g[1] = g[2] = one;
    g[0].m = n, g[0].n = v, g[0].k = d, g[0].c = h->logits, g[0].c_row = h->row;
    g[0].a = h->in[X].data, g[0].a_row = d, g[0].a_col = 1, g[0].b = h->in[W].data, g[0].b_row = 1, g[0].b_col = d;
    g[1].m = n, g[1].n = d, g[1].k = v, g[1].c = h->din[X].data, g[1].c_row = d;
    g[1].a = h->logits, g[1].a_row = h->row, g[1].a_col = 1, g[1].b = h->in[W].data, g[1].b_row = d, g[1].b_col = 1;
    g[2].m = v, g[2].n = d, g[2].k = n, g[2].c = h->din[W].data, g[2].c_row = d, g[2].c_type = TN_F32;
    g[2].a = h->logits, g[2].a_row = 1, g[2].a_col = h->row, g[2].b = h->in[X].data, g[2].b_row = d, g[2].b_col = 1;
}

/* Marks 0 to 4: the op, then each product. */
static tn_status round_of(head *h, const tn_cuda_gemm g[3], double ms[4])
{
    TN_RETURN_IF(tn_backend_cuda.mark(h->queue, 0));
    TN_RETURN_IF(tn_op_linear_xent.kernel[TN_CUDA].backward(&h->call));
    for (int k = 0; k < 3; k++) {
        TN_RETURN_IF(tn_backend_cuda.mark(h->queue, (size_t)k + 1));
        TN_RETURN_IF(tn_cuda_gemm_run(h->queue, &g[k]));
    }
    TN_RETURN_IF(tn_backend_cuda.mark(h->queue, 4));
    TN_RETURN_IF(tn_backend_cuda.wait(h->queue));
    for (size_t k = 0; k < 4; k++) TN_RETURN_IF(tn_backend_cuda.between(h->queue, k, &ms[k]));
    return TN_OK;
}

tn_status tn_bench_xent_cuda(int64_t tokens, int64_t dim, int64_t classes, tn_bench_head *out)
{
    tn_status s = TN_OK;
    head h = { .row = (classes + 63) / 64 * 64 };
    tn_cuda_gemm g[3];
    double ms[4], times[4][ROUNDS];
    TN_TRY(open_op(&h, tokens, dim, classes));
    TN_TRY(new_memory(&h, 2 * (size_t)(tokens * h.row), &h.logits));
    make_products(&h, g);
    for (int i = -WARM; i < ROUNDS; i++) {
        TN_TRY(round_of(&h, g, ms));
        for (int k = 0; k < 4 && i >= 0; k++) times[k][i] = ms[k];
    }
    *out = (tn_bench_head){ .tokens = tokens, .dim = dim, .classes = classes };
    out->op_ms = tn_median(times[0], ROUNDS, &out->op_spread_ms);
    for (int k = 0; k < 3; k++) out->products_ms += out->product_ms[k] = tn_median(times[k + 1], ROUNDS, NULL);
    out->gflops = 6e-6 * (double)tokens * (double)dim * (double)classes / out->op_ms;
    out->of_products = out->products_ms / out->op_ms;
done:
    head_free(&h);
    return s;
}
#else
tn_status tn_bench_xent_cuda(int64_t tokens, int64_t dim, int64_t classes, tn_bench_head *out)
{
    (void)tokens, (void)dim, (void)classes, (void)out;
    return tn_error(TN_USAGE, "this program was built without CUDA");
}
#endif
