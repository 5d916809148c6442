/* adamw on the CPU: one sweep over the four arrays. Bias corrections are folded into two factors computed in double;
 * the decay is subtracted as a product, because 1 - lr * decay would be rounded to the spacing of f32 near 1. */
#include "backend/cpu/level.h"
#include "base/status.h"
#include "ops/adamw/adamw.h"
#include "ops/segments.h"

#include <math.h>
#include <string.h>

tn_kernel tn_adamw_forward_cpu;

typedef struct job {
    float *param, *grad, *m, *v; /* (n) */
    bool ok, keeps_grad;
    float coefficient, beta1, beta2, eps;
    double lr, decay;
    double correct_m; /* 1 / (1 - beta1^t) */
    float correct_v;  /* 1 / sqrt(1 - beta2^t) */
} job;

static inline void move(const job *j, const tn_segment *s, int64_t first, int64_t n, bool clears)
{
    float *restrict p = j->param + first, *restrict g = j->grad + first;
    float *restrict m = j->m + first, *restrict v = j->v + first;
    const double lr = j->lr * (double)s->lr;
    const float rate = (float)(lr * j->correct_m), shrink = s->decay ? (float)(lr * j->decay) : 0.f;
    const float c = j->coefficient, b1 = j->beta1, b2 = j->beta2, a1 = 1 - b1, a2 = 1 - b2;
    const float root = j->correct_v, eps = j->eps;
    for (int64_t i = 0; i < n; i++) {
        const float gi = c * g[i];
        const float mi = b1 * m[i] + a1 * gi;
        const float vi = b2 * v[i] + a2 * (gi * gi);
        m[i] = mi;
        v[i] = vi;
        p[i] -= shrink * p[i] + rate * mi / (sqrtf(vi) * root + eps);
        if (clears) g[i] = 0;
    }
}

static void update(const void *arg, const tn_segment *s, int64_t first, int64_t n)
{
    const job *j = arg;
    if (j->ok && j->keeps_grad) move(j, s, first, n, false);
    else if (j->ok) move(j, s, first, n, true);
    else if (!j->keeps_grad) memset(j->grad + first, 0, sizeof(float) * (size_t)n);
}

TN_LEVELED_KERNEL(tn_adamw_forward_cpu)
{
    const tn_adamw_attr *a = c->attr;
    TN_RETURN_IF(tn_segments_in_place(c));
    job j = { .param = c->out[0].data,
              .grad = c->out[1].data,
              .m = c->out[2].data,
              .v = c->out[3].data,
              .lr = (double)tn_arg_scalar(&c->in[4], 0),
              .beta1 = tn_arg_scalar(&c->in[5], 0),
              .beta2 = tn_arg_scalar(&c->in[6], 0),
              .eps = tn_arg_scalar(&c->in[7], 0),
              .decay = (double)tn_arg_scalar(&c->in[8], 0),
              .coefficient = tn_arg_scalar(&c->in[10], 0),
              .ok = *(const int32_t *)c->in[11].data != 0,
              .keeps_grad = a->keeps_grad };
    const double t = fmax((double)tn_arg_scalar(&c->in[9], 0), 1);
    j.correct_m = 1 / (1 - pow((double)j.beta1, t));
    j.correct_v = (float)(1 / sqrt(1 - pow((double)j.beta2, t)));
    tn_segments_run((tn_segments){ a->segment, a->n }, c->pool, update, &j);
    return TN_OK;
}
