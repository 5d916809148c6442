/* adamw on the GPU: one sweep over the four arrays, 32 bytes a parameter (g is zeroed on the way). The formula is the one
 * of adamw_cpu.c: bias corrections in double, folded into two factors by a kernel of one thread; `ok` is looked at on the
 * device, and with ok = 0 nothing but g is written. */
#include "ops/adamw/adamw.h"
#include "ops/segments.cuh"

/* What one step needs, in the workspace. */
struct numbers {
    double rate, decay; /* lr / (1 - beta1^t), lr * decay */
    float coefficient, beta1, beta2, eps, root;
    int32_t ok;
};

struct scalars {
    const float *lr, *beta1, *beta2, *eps, *decay, *step, *coefficient;
    const int32_t *ok;
};

static __global__ void prepare(scalars s, numbers *to)
{
    const double lr = *s.lr, t = fmax((double)*s.step, 1.0);
    numbers n;
    n.rate = lr / (1 - pow((double)*s.beta1, t));
    n.decay = lr * (double)*s.decay;
    n.root = (float)(1 / sqrt(1 - pow((double)*s.beta2, t)));
    n.coefficient = *s.coefficient, n.beta1 = *s.beta1, n.beta2 = *s.beta2, n.eps = *s.eps;
    n.ok = *s.ok;
    *to = n;
}

struct adamw_rule {
    float *param, *grad, *m, *v; /* (n) */
    const numbers *numbers_;
    bool keeps_grad;
    numbers n;
    float rate, shrink;

    __device__ __forceinline__ void begin(float lr, bool decay)
    {
        n = *numbers_;
        rate = (float)(n.rate * (double)lr);
        shrink = decay ? (float)(n.decay * (double)lr) : 0.f;
    }

    __device__ __forceinline__ void update(float *p, float g, float *mi, float *vi) const
    {
        g *= n.coefficient;
        *mi = n.beta1 * *mi + (1 - n.beta1) * g;
        *vi = n.beta2 * *vi + (1 - n.beta2) * (g * g);
        *p -= shrink * *p + rate * *mi / (sqrtf(*vi) * n.root + n.eps);
    }

    __device__ __forceinline__ void one(int64_t i) const
    {
        if (n.ok) update(&param[i], grad[i], &m[i], &v[i]);
        if (!keeps_grad) grad[i] = 0;
    }

    __device__ __forceinline__ void four(int64_t i) const
    {
        float4 *pg = (float4 *)(grad + i), *pp = (float4 *)(param + i), *pm = (float4 *)(m + i),
               *pv = (float4 *)(v + i);
        if (n.ok) {
            const float4 g = *pg;
            float4 p = *pp, a = *pm, b = *pv;
            update(&p.x, g.x, &a.x, &b.x);
            update(&p.y, g.y, &a.y, &b.y);
            update(&p.z, g.z, &a.z, &b.z);
            update(&p.w, g.w, &a.w, &b.w);
            *pp = p, *pm = a, *pv = b;
        }
        if (!keeps_grad) *pg = make_float4(0, 0, 0, 0);
    }
};

extern "C" size_t tn_adamw_work_cuda(const tn_sig *s, bool backward)
{
    (void)s;
    return backward ? 0 : sizeof(numbers);
}

extern "C" tn_status tn_adamw_forward_cuda(const tn_call *c)
{
    const tn_adamw_attr *a = (const tn_adamw_attr *)c->attr;
    TN_RETURN_IF(tn_segments_in_place(c));
    const float *in[11];
    for (int i = 4; i < 11; i++) in[i] = (const float *)c->in[i].data;
    const scalars s = { in[4], in[5], in[6], in[7], in[8], in[9], in[10], (const int32_t *)c->in[11].data };
    prepare<<<1, 1, 0, tn_cuda_stream(c)>>>(s, (numbers *)c->work);
    TN_CUDA_LAUNCHED();
    adamw_rule r = {};
    r.param = (float *)c->out[0].data, r.grad = (float *)c->out[1].data;
    r.m = (float *)c->out[2].data, r.v = (float *)c->out[3].data;
    r.numbers_ = (const numbers *)c->work, r.keeps_grad = a->keeps_grad;
    return tn_sweep_all(c, { a->segment, a->n }, r);
}
