/* attention: shapes, masks, gradient rule, cost, registration of the tiled op and of its plain twin. */
#include "ops/attention/attention.h"

#include "base/status.h"
#include "ops/attention/attention_mask.h"
#include "ops/cuda_kernels.h"

#include <math.h>

static tn_status check_integers(const tn_sig *s, int i, const char *name, tn_dims want)
{
    char text[64];
    if (s->in[i].absent || (s->in[i].dtype == TN_I32 && tn_dims_equal(s->in[i].dims, want))) return TN_OK;
    return tn_error(TN_USAGE, "%s must be i32 of shape %s", name, tn_dims_text(want, text, sizeof text));
}

static tn_status attention_check(const tn_sig *s)
{
    const tn_dims q = s->in[TN_ATT_Q].dims, k = s->in[TN_ATT_K].dims, v = s->in[TN_ATT_V].dims;
    for (int i = TN_ATT_Q; i <= TN_ATT_V; i++) {
        if (s->in[i].absent || s->in[i].dims.rank != 4)
            return tn_error(TN_USAGE, "q must be (B,T,H,D), k and v (B,S,KV,D)");
        if (!tn_dtype_is_float(s->in[i].dtype) || s->in[i].dtype == TN_F64)
            return tn_error(TN_USAGE, "input %d is %s: use f32, bf16 or f16", i, tn_dtype_name(s->in[i].dtype));
    }
    if (!tn_dims_equal(k, v) || q.dim[0] != k.dim[0] || q.dim[3] != k.dim[3])
        return tn_error(TN_USAGE, "k and v must both be (B,S,KV,D) with the B and D of q");
    if (k.dim[2] < 1 || q.dim[2] < 1 || q.dim[2] % k.dim[2])
        return tn_error(TN_USAGE, "%lld query heads cannot share %lld key heads: use a multiple", (long long)q.dim[2],
                        (long long)k.dim[2]);
    TN_RETURN_IF(check_integers(s, TN_ATT_LENGTHS, "lengths", tn_shape(q.dim[0])));
    const int64_t one = s->in[TN_ATT_KV_LENGTH].dims.dim[0] == 1 ? 1 : q.dim[0];
    TN_RETURN_IF(check_integers(s, TN_ATT_KV_LENGTH, "kv_length", tn_shape(one)));
    TN_RETURN_IF(check_integers(s, TN_ATT_DOCUMENT, "document", tn_shape(q.dim[0], q.dim[1])));
    if (!s->in[TN_ATT_DOCUMENT].absent && q.dim[1] != k.dim[1])
        return tn_error(TN_USAGE, "with `document`, k must be as long as q: q has %lld positions, k has %lld",
                        (long long)q.dim[1], (long long)k.dim[1]);
    if (((const tn_attention_attr *)s->attr)->window < 0) return tn_error(TN_USAGE, "the window must not be negative");
    return TN_OK;
}

static tn_status attention_infer(tn_sig *s)
{
    TN_RETURN_IF(attention_check(s));
    const tn_dims q = s->in[TN_ATT_Q].dims;
    s->n_out = 2;
    s->out[0].dims = q;
    s->out[1].dims = tn_shape(q.dim[0], q.dim[2], q.dim[1]);
    s->out[1].dtype = TN_F32;
    return TN_OK;
}

static tn_status plain_infer(tn_sig *s)
{
    TN_RETURN_IF(attention_infer(s));
    const tn_dims q = s->in[TN_ATT_Q].dims;
    s->out[1].dims = tn_shape(q.dim[0], q.dim[2], q.dim[1], s->in[TN_ATT_K].dims.dim[1]);
    return TN_OK;
}

tn_status tn_attention_mask_make(const tn_call *c, tn_attention_mask *m)
{
    const tn_attention_attr *a = c->attr;
    const tn_arg *in = c->in, *doc = &in[TN_ATT_DOCUMENT];
    const int64_t B = in[TN_ATT_Q].dims.dim[0], T = in[TN_ATT_Q].dims.dim[1], S = in[TN_ATT_K].dims.dim[1];
    *m = (tn_attention_mask){ .T = T,
                              .S = S,
                              .keys = in[TN_ATT_KV_LENGTH].data,
                              .window = a->window,
                              .causal = a->causal,
                              .lengths = in[TN_ATT_LENGTHS].data,
                              .document = doc->data };
    m->keys_b = m->keys && in[TN_ATT_KV_LENGTH].dims.dim[0] > 1;
    for (int64_t b = 0; m->keys && b < (m->keys_b ? B : 1); b++)
        if (m->keys[b] < 0 || m->keys[b] > S)
            return tn_error(TN_USAGE, "kv_length is %d: it must be 0 to %lld, the number of keys", (int)m->keys[b],
                            (long long)S);
    for (int64_t b = 0; m->lengths && b < B; b++)
        if (m->lengths[b] < 0 || m->lengths[b] > S)
            return tn_error(TN_USAGE, "lengths[%lld] is %d, there are %lld keys", (long long)b, (int)m->lengths[b],
                            (long long)S);
    if (doc->data) m->document_b = doc->stride[0], m->document_t = doc->stride[1];
    return TN_OK;
}

/* --- gradients and cost ------------------------------------------------------------------------------------------ */

static uint64_t masks_given(const tn_sig *s)
{
    uint64_t bits = 0;
    for (int i = TN_ATT_LENGTHS; i < TN_ATT_INPUTS; i++)
        if (!s->in[i].absent) bits |= (uint64_t)1 << i;
    return bits;
}

static void attention_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    const bool scores = want & (1 << TN_ATT_Q | 1 << TN_ATT_K);
    u->in = masks_given(s) | 1 << TN_ATT_Q | 1 << TN_ATT_K | (scores ? 1 << TN_ATT_V : 0);
    u->out = 1 << 1 | (scores ? 1 : 0);
}

static void plain_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    (void)s;
    const bool scores = want & (1 << TN_ATT_Q | 1 << TN_ATT_K);
    u->in = (want >> TN_ATT_Q & 1 ? 1 << TN_ATT_K : 0) | (want >> TN_ATT_K & 1 ? 1 << TN_ATT_Q : 0) |
            (scores ? 1 << TN_ATT_V : 0);
    u->out = 1 << 1;
}

/* Pairs that shapes and options hide are not counted; those that lengths and documents hide are. */
static void attention_cost(const tn_sig *s, tn_cost *c)
{
    const tn_attention_attr *a = s->attr;
    const tn_dims q = s->in[TN_ATT_Q].dims;
    const tn_attention_mask m = {
        .T = q.dim[1], .S = s->in[TN_ATT_K].dims.dim[1], .window = a->window, .causal = a->causal
    };
    double pairs = 0;
    for (int64_t t = 0; t < m.T; t++) {
        int64_t first, end;
        tn_attention_range(&m, 0, t, &first, &end);
        pairs += (double)(end - first);
    }
    c->flops = 4 * pairs * (double)(q.dim[0] * q.dim[2] * q.dim[3]);
    c->flops_backward = 2.5 * c->flops;
}

static tn_status attention_as_plain(tn_graph *g, const void *attr, const tn_ref *in, int n_in, tn_ref *out)
{
    tn_graph_add(g, __FILE__, __LINE__, &tn_op_attention_plain, attr, in, n_in, out);
    return tn_graph_status(g);
}

const tn_op tn_op_attention = {
    .name = "attention",
    .attr_bytes = sizeof(tn_attention_attr),
    .flags = TN_OP_STRIDED | TN_OP_ROWWISE | TN_OP_AUX_FROM_1 | TN_OP_COSTLY,
    .half_in = 1 << TN_ATT_Q | 1 << TN_ATT_K | 1 << TN_ATT_V,
    .infer = attention_infer,
    .grad = attention_grad,
    .cost = attention_cost,
    .kernel = { [TN_CPU] = { .forward = tn_attention_forward_cpu,
                             .backward = tn_attention_backward_cpu,
                             .work = tn_attention_work_cpu },
                [TN_CUDA] = { .forward = tn_attention_forward_cuda,
                              .backward = tn_attention_backward_cuda,
                              .work = tn_attention_work_cuda } },
    TN_OP_SWITCH("opt.flash", "attention in tiles (off: whole matrices, probabilities kept for the backward pass)"),
    .plain = attention_as_plain,
};

const tn_op tn_op_attention_plain = {
    .name = "attention_plain",
    .attr_bytes = sizeof(tn_attention_attr),
    .flags = TN_OP_STRIDED | TN_OP_ROWWISE | TN_OP_AUX_FROM_1 | TN_OP_COSTLY,
    .half_in = 1 << TN_ATT_Q | 1 << TN_ATT_K | 1 << TN_ATT_V,
    .infer = plain_infer,
    .grad = plain_grad,
    .cost = attention_cost,
    .kernel = { [TN_CPU] = { .forward = tn_attention_plain_forward_cpu,
                             .backward = tn_attention_plain_backward_cpu,
                             .work = tn_attention_plain_work_cpu },
                [TN_CUDA] = { .forward = tn_attention_plain_forward_cuda,
                              .backward = tn_attention_plain_backward_cuda,
                              .work = tn_attention_plain_work_cuda } },
};

tn_ref tn_attention_(tn_graph *g, const char *file, int line, tn_ref q, tn_ref k, tn_ref v, tn_attention_options o)
{
    const int64_t D = q.id && tn_graph_status(g) == TN_OK ? tn_ref_dim(g, q, -1) : 1;
    const tn_attention_attr a = { .causal = o.causal,
                                  .window = o.window,
                                  .cudnn = tn_graph_switch(g, "opt.cudnn"),
                                  .scale = o.scale == 0 ? 1.f / sqrtf((float)(D > 0 ? D : 1)) : o.scale };
    const tn_ref in[TN_ATT_INPUTS] = { q, k, v, o.lengths, o.kv_length, o.document };
    tn_ref out[2];
    return tn_graph_add(g, file, line, &tn_op_attention, &a, in, TN_ATT_INPUTS, out);
}
