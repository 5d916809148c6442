/* attention on the GPU: who computes it. cuDNN's kernels take bf16 with a causal mask or none, in whole sequences; they
 * are used where they were measured faster than ours (opt.cudnn), which take everything. Both keep the same log-sum-exp,
 * so that either may follow the other in the backward pass. */
extern "C" {
#include "backend/cuda/cudnn_attention.h"
#include "ops/attention/attention_mask.h"
}

/* Less than a tile is left to our kernels. WORK: for the gradients of as many scores at a time. */
enum { LEAST = 64, DEEPEST = 128, ALIGN = 256 };
static const size_t WORK = (size_t)512 << 20;

static tn_dnn_size size_of(tn_dims q, tn_dims k)
{
    return { q.dim[0], q.dim[1], k.dim[1], q.dim[2], k.dim[2], q.dim[3] };
}

static bool suits(const tn_attention_attr *a, const tn_dnn_size *n)
{
    return a->cudnn && a->window == 0 && (!a->causal || n->T == n->S) && n->D % 8 == 0 && n->D > 0 && n->D <= DEEPEST &&
           n->T >= LEAST && n->S >= LEAST && n->B > 0;
}

/* bf16 rows that lie as cuDNN reads them. */
static bool reads(const tn_arg *x)
{
    return x->data && x->dtype == TN_BF16 && !x->live && x->stride[3] == 1 && (uintptr_t)x->data % 16 == 0 &&
           (x->stride[0] | x->stride[1] | x->stride[2]) % 8 == 0;
}

static bool reads_inputs(const tn_call *c)
{
    for (int i = TN_ATT_LENGTHS; i < TN_ATT_INPUTS; i++)
        if (c->in[i].data) return false;
    return reads(&c->in[TN_ATT_Q]) && reads(&c->in[TN_ATT_K]) && reads(&c->in[TN_ATT_V]) && reads(&c->out[0]) &&
           (!c->out[1].data || tn_arg_contiguous(&c->out[1]));
}

static tn_dnn_view view_of(const tn_arg *x) { return { x->data, x->stride[0], x->stride[1], x->stride[2] }; }

/* done: cuDNN has it. */
static tn_status try_cudnn(const tn_call *c, bool backward, tn_kernel *own, bool *done)
{
    const tn_attention_attr *a = (const tn_attention_attr *)c->attr;
    tn_dnn_attention x = {};
    x.size = size_of(c->in[TN_ATT_Q].dims, c->in[TN_ATT_K].dims);
    *done = false;
    if (!suits(a, &x.size) || !reads_inputs(c)) return TN_OK;
    x.causal = a->causal, x.scale = a->scale, x.backward = backward;
    x.q = view_of(&c->in[TN_ATT_Q]), x.k = view_of(&c->in[TN_ATT_K]), x.v = view_of(&c->in[TN_ATT_V]);
    x.y = view_of(&c->out[0]), x.lse = (float *)c->out[1].data;
    if (backward) {
        const tn_arg *din = c->din;
        const uint64_t added = c->accumulate & (1 << TN_ATT_Q | 1 << TN_ATT_K | 1 << TN_ATT_V);
        if (added || !x.lse || !reads(&c->dout[0]) || !reads(&din[TN_ATT_Q]) || !reads(&din[TN_ATT_K]) || !reads(&din[TN_ATT_V]))
            return TN_OK;
        x.dy = view_of(&c->dout[0]);
        x.dq = view_of(&din[TN_ATT_Q]), x.dk = view_of(&din[TN_ATT_K]), x.dv = view_of(&din[TN_ATT_V]);
    }
    const size_t gap = (ALIGN - (uintptr_t)c->work % ALIGN) % ALIGN, bytes = tn_dnn_attention_work(&x.size, backward, WORK);
    if (bytes == 0 || gap + bytes > c->work_bytes) return TN_OK;
    x.work = (char *)c->work + gap, x.work_bytes = bytes;
    return tn_dnn_attention_run(tn_cuda_queue_of(c), &x, c, own, done);
}

extern "C" size_t tn_attention_work_cuda(const tn_sig *s, bool backward)
{
    const size_t own = tn_attention_work_own_cuda(s, backward);
    const tn_dnn_size n = size_of(s->in[TN_ATT_Q].dims, s->in[TN_ATT_K].dims);
    bool simple = suits((const tn_attention_attr *)s->attr, &n) && s->in[TN_ATT_Q].dtype == TN_BF16;
    for (int i = TN_ATT_LENGTHS; i < TN_ATT_INPUTS; i++) simple = simple && s->in[i].absent;
    if (!simple || !tn_dnn_present()) return own;
    const size_t bytes = tn_dnn_attention_work(&n, backward, WORK);
    return bytes && bytes + ALIGN > own ? bytes + ALIGN : own;
}

extern "C" tn_status tn_attention_forward_cuda(const tn_call *c)
{
    bool done;
    const tn_status s = try_cudnn(c, false, tn_attention_forward_own_cuda, &done);
    return s != TN_OK || done ? s : tn_attention_forward_own_cuda(c);
}

extern "C" tn_status tn_attention_backward_cuda(const tn_call *c)
{
    bool done;
    const tn_status s = try_cudnn(c, true, tn_attention_backward_own_cuda, &done);
    return s != TN_OK || done ? s : tn_attention_backward_own_cuda(c);
}
