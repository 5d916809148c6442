/* Attention as the graphs of operations that cuDNN's fused kernels are found by. The order and kinds of the operations
 * are what it looks for: the same numbers computed otherwise find no kernel. */
#include "backend/cuda/cudnn_sdpa.h"

/* Axes are (sequence, head, token, D) for cuDNN. */
static tn_dnn_axes axes_of(const int64_t *step, int64_t B, int64_t heads, int64_t tokens, int64_t D)
{
    return (tn_dnn_axes){ { B, heads, tokens, D }, { step[0], step[2], step[1], 1 } };
}

/* Scores that a causal mask hides become `hidden`. */
static tn_dnn_tensor mask(tn_dnn_graph *g, tn_dnn_tensor scores, const tn_dnn_tensor *hidden)
{
    const tn_dnn_tensor row = tn_dnn_step(g, TN_DNN_I32, scores.axes), column = tn_dnn_step(g, TN_DNN_I32, scores.axes);
    const tn_dnn_tensor seen = tn_dnn_step(g, TN_DNN_BOOL, scores.axes), y = tn_dnn_step(g, TN_DNN_F32, scores.axes);
    tn_dnn_add_index(g, 2, scores, row);
    tn_dnn_add_index(g, 3, scores, column);
    tn_dnn_add_pointwise(g, TN_DNN_AT_LEAST, TN_DNN_BOOL, row, &column, NULL, seen);
    tn_dnn_add_pointwise(g, TN_DNN_SELECT, TN_DNN_F32, scores, hidden, &seen, y);
    return y;
}

typedef struct parts {
    tn_dnn_graph *g;
    const tn_sdpa_shape *s;
    int64_t *id; /* (TN_SDPA_SLOTS) */
} parts;

static tn_dnn_tensor memory(parts *p, int slot, int64_t heads, int64_t tokens)
{
    const tn_dnn_tensor t =
        tn_dnn_memory(p->g, TN_DNN_BF16, axes_of(p->s->step[slot], p->s->B, heads, tokens, p->s->D));
    p->id[slot] = t.id;
    return t;
}

/* As a product takes it: (D, tokens). */
static tn_dnn_tensor turned_memory(parts *p, int slot, int64_t heads, int64_t tokens)
{
    const tn_dnn_axes x = axes_of(p->s->step[slot], p->s->B, heads, tokens, p->s->D);
    const tn_dnn_tensor t = tn_dnn_memory(p->g, TN_DNN_BF16, tn_dnn_swapped(x));
    p->id[slot] = t.id;
    return t;
}

static tn_dnn_tensor rows(parts *p, int slot) /* f32 (B,H,T,1) */
{
    const tn_dnn_tensor t = tn_dnn_memory(p->g, TN_DNN_F32, tn_dnn_dense(p->s->B, p->s->H, p->s->T, 1));
    p->id[slot] = t.id;
    return t;
}

static tn_dnn_tensor scalar(parts *p, int slot)
{
    const tn_dnn_tensor t = tn_dnn_scalar(p->g, TN_DNN_F32);
    p->id[slot] = t.id;
    return t;
}

static tn_dnn_tensor row_step(parts *p)
{
    return tn_dnn_step(p->g, TN_DNN_F32, tn_dnn_dense(p->s->B, p->s->H, p->s->T, 1));
}

static tn_dnn_tensor square_step(parts *p)
{
    return tn_dnn_step(p->g, TN_DNN_F32, tn_dnn_dense(p->s->B, p->s->H, p->s->T, p->s->S));
}

static void compose(parts *p)
{
    const tn_sdpa_shape *s = p->s;
    tn_dnn_graph *g = p->g;
    const tn_dnn_tensor q = memory(p, TN_SDPA_Q, s->H, s->T), kt = turned_memory(p, TN_SDPA_K, s->KV, s->S),
                        v = memory(p, TN_SDPA_V, s->KV, s->S);
    const tn_dnn_tensor y = memory(p, TN_SDPA_Y, s->H, s->T), scale = scalar(p, TN_SDPA_SCALE);
    const tn_dnn_tensor products = square_step(p), largest = row_step(p), sum = row_step(p);
    const tn_dnn_tensor weights = tn_dnn_step(g, TN_DNN_BF16, products.axes);
    tn_dnn_add_matmul(g, q, kt, products);
    tn_dnn_tensor scores = tn_dnn_pointwise_step(g, TN_DNN_MUL, products, &scale);
    if (s->causal) {
        const tn_dnn_tensor hidden = scalar(p, TN_SDPA_HIDDEN);
        scores = mask(g, scores, &hidden);
    }
    tn_dnn_add_reduction(g, TN_DNN_MAX, scores, largest);
    const tn_dnn_tensor below = tn_dnn_pointwise_step(g, TN_DNN_SUB, scores, &largest);
    const tn_dnn_tensor powers = tn_dnn_pointwise_step(g, TN_DNN_EXP, below, NULL);
    tn_dnn_add_reduction(g, TN_DNN_SUM, powers, sum);
    const tn_dnn_tensor logs = tn_dnn_pointwise_step(g, TN_DNN_LOG, sum, NULL);
    tn_dnn_add_pointwise(g, TN_DNN_ADD, TN_DNN_F32, largest, &logs, NULL,
                         s->has_lse ? rows(p, TN_SDPA_LSE) : row_step(p));
    tn_dnn_add_pointwise(g, TN_DNN_DIV, TN_DNN_F32, powers, &sum, NULL, weights);
    tn_dnn_add_matmul(g, weights, v, y);
}

void tn_sdpa_compose(tn_dnn_graph *g, const tn_sdpa_shape *s, int64_t *id)
{
    parts p = { g, s, id };
    compose(&p);
}
