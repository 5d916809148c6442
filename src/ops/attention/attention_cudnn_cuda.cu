/* attention on the GPU, forward: who computes it. cuDNN's kernel takes bf16 with a causal mask or none, in whole sequences;
 * it is used where it measures faster than ours (opt.cudnn), which take everything. Both keep the same log-sum-exp for the
 * backward pass, which is always ours. */
extern "C" {
#include "backend/cuda/cudnn_attention.h"
#include "ops/attention/attention_mask.h"
}

enum { LEAST = 64, DEEPEST = 128, ALIGN = 256 }; /* less than a tile is left to our kernels */

static bool suits(const tn_attention_attr *a, tn_dims q, tn_dims k)
{
    return a->cudnn && a->window == 0 && (!a->causal || q.dim[1] == k.dim[1]) && q.dim[3] % 8 == 0 && q.dim[3] > 0 &&
           q.dim[3] <= DEEPEST && q.dim[1] >= LEAST && k.dim[1] >= LEAST && q.dim[0] > 0;
}

/* bf16 rows that lie as cuDNN reads them. */
static bool reads(const tn_arg *x)
{
    return x->data && x->dtype == TN_BF16 && !x->live && x->stride[3] == 1 && (uintptr_t)x->data % 16 == 0 &&
           (x->stride[0] | x->stride[1] | x->stride[2]) % 8 == 0;
}

static bool reads_all(const tn_call *c)
{
    for (int i = TN_ATT_LENGTHS; i < TN_ATT_INPUTS; i++)
        if (c->in[i].data) return false;
    return reads(&c->in[TN_ATT_Q]) && reads(&c->in[TN_ATT_K]) && reads(&c->in[TN_ATT_V]) && reads(&c->out[0]) &&
           (!c->out[1].data || tn_arg_contiguous(&c->out[1]));
}

static tn_dnn_view view_of(const tn_arg *x) { return { x->data, x->stride[0], x->stride[1], x->stride[2] }; }

/* done: cuDNN has it. */
static tn_status try_cudnn(const tn_call *c, bool *done)
{
    const tn_attention_attr *a = (const tn_attention_attr *)c->attr;
    const tn_dims q = c->in[TN_ATT_Q].dims, k = c->in[TN_ATT_K].dims;
    const size_t gap = (ALIGN - (uintptr_t)c->work % ALIGN) % ALIGN;
    tn_dnn_attention x = {};
    *done = false;
    if (!suits(a, q, k) || !reads_all(c) || gap + TN_DNN_WORK > c->work_bytes) return TN_OK;
    x.B = q.dim[0], x.T = q.dim[1], x.S = k.dim[1], x.H = q.dim[2], x.KV = k.dim[2], x.D = q.dim[3];
    x.causal = a->causal, x.scale = a->scale;
    x.q = view_of(&c->in[TN_ATT_Q]), x.k = view_of(&c->in[TN_ATT_K]), x.v = view_of(&c->in[TN_ATT_V]);
    x.y = view_of(&c->out[0]), x.lse = (float *)c->out[1].data;
    x.work = (char *)c->work + gap;
    return tn_dnn_attention_run(tn_cuda_queue_of(c), &x, c, tn_attention_forward_own_cuda, done);
}

extern "C" size_t tn_attention_work_cuda(const tn_sig *s, bool backward)
{
    const size_t own = tn_attention_work_own_cuda(s, backward), ours = TN_DNN_WORK + ALIGN;
    bool simple = !backward && s->in[TN_ATT_Q].dtype == TN_BF16 &&
                  suits((const tn_attention_attr *)s->attr, s->in[TN_ATT_Q].dims, s->in[TN_ATT_K].dims);
    for (int i = TN_ATT_LENGTHS; i < TN_ATT_INPUTS; i++) simple = simple && s->in[i].absent;
    return simple && own < ours && tn_dnn_present() ? ours : own;
}

extern "C" tn_status tn_attention_forward_cuda(const tn_call *c)
{
    bool done;
    const tn_status s = try_cudnn(c, &done);
    return s != TN_OK || done ? s : tn_attention_forward_own_cuda(c);
}
