/* sgd on the GPU: one sweep over the three arrays, 24 bytes a parameter (g is zeroed on the way). The formula is the one
 * of sgd_cpu.c; `ok` is looked at on the device, and with ok = 0 nothing but g is written. */
#include "ops/segments.cuh"
#include "ops/sgd/sgd.h"

/* What one step needs, in the workspace. */
struct numbers {
    double lr, decay; /* lr, lr * decay */
    float coefficient, momentum, own, mix;
    int32_t ok;
};

struct scalars {
    const float *lr, *momentum, *decay, *coefficient;
    const int32_t *ok;
    bool nesterov;
};

static __global__ void prepare(scalars s, numbers *to)
{
    numbers n;
    n.lr = (double)*s.lr;
    n.decay = n.lr * (double)*s.decay;
    n.coefficient = *s.coefficient, n.momentum = *s.momentum;
    n.own = s.nesterov ? 1.f : 0.f;
    n.mix = s.nesterov ? n.momentum : 1.f;
    n.ok = *s.ok;
    *to = n;
}

struct sgd_rule {
    float *param, *grad, *m; /* (n) */
    const numbers *numbers_;
    numbers n;
    float rate, shrink;

    __device__ __forceinline__ void begin(float lr, bool decay)
    {
        n = *numbers_;
        rate = (float)(n.lr * (double)lr);
        shrink = decay ? (float)(n.decay * (double)lr) : 0.f;
    }

    __device__ __forceinline__ void update(float *p, float g, float *mi) const
    {
        g *= n.coefficient;
        *mi = n.momentum * *mi + g;
        *p -= shrink * *p + rate * (n.own * g + n.mix * *mi);
    }

    __device__ __forceinline__ void one(int64_t i) const
    {
        if (n.ok) update(&param[i], grad[i], &m[i]);
        grad[i] = 0;
    }

    __device__ __forceinline__ void four(int64_t i) const
    {
        float4 *pg = (float4 *)(grad + i), *pp = (float4 *)(param + i), *pm = (float4 *)(m + i);
        if (n.ok) {
            const float4 g = *pg;
            float4 p = *pp, a = *pm;
            update(&p.x, g.x, &a.x);
            update(&p.y, g.y, &a.y);
            update(&p.z, g.z, &a.z);
            update(&p.w, g.w, &a.w);
            *pp = p, *pm = a;
        }
        *pg = make_float4(0, 0, 0, 0);
    }
};

extern "C" size_t tn_sgd_work_cuda(const tn_sig *s, bool backward)
{
    (void)s;
    return backward ? 0 : sizeof(numbers);
}

extern "C" tn_status tn_sgd_forward_cuda(const tn_call *c)
{
    const tn_sgd_attr *a = (const tn_sgd_attr *)c->attr;
    TN_RETURN_IF(tn_segments_in_place(c));
    const float *in[7];
    for (int i = 3; i < 7; i++) in[i] = (const float *)c->in[i].data;
    const scalars s = { in[3], in[4], in[5], in[6], (const int32_t *)c->in[7].data, a->nesterov };
    prepare<<<1, 1, 0, tn_cuda_stream(c)>>>(s, (numbers *)c->work);
    TN_CUDA_LAUNCHED();
    sgd_rule r = {};
    r.param = (float *)c->out[0].data, r.grad = (float *)c->out[1].data, r.m = (float *)c->out[2].data;
    r.numbers_ = (const numbers *)c->work;
    return tn_sweep_all(c, { a->segment, a->n }, r);
}
