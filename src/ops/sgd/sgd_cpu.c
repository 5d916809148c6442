/* sgd on the CPU: one sweep over the three arrays. Nesterov's choice is two factors of one formula, so that the loop
 * has no branch: u = own * g' + mix * m. */
#include "base/status.h"
#include "ops/segments.h"
#include "ops/sgd/sgd.h"

#include <string.h>

tn_kernel tn_sgd_forward_cpu;

typedef struct job {
    float *param, *grad, *m; /* (n) */
    bool ok;
    float coefficient, momentum;
    float own, mix;
    double lr, decay;
} job;

static void update(const void *arg, const tn_segment *s, int64_t first, int64_t n)
{
    const job *j = arg;
    float *restrict p = j->param + first, *restrict g = j->grad + first, *restrict m = j->m + first;
    if (!j->ok) {
        memset(g, 0, sizeof *g * (size_t)n);
        return;
    }
    const double lr = j->lr * (double)s->lr;
    const float rate = (float)lr, shrink = s->decay ? (float)(lr * j->decay) : 0.f;
    const float c = j->coefficient, mu = j->momentum, own = j->own, mix = j->mix;
    for (int64_t i = 0; i < n; i++) {
        const float gi = c * g[i];
        const float mi = mu * m[i] + gi;
        m[i] = mi;
        p[i] -= shrink * p[i] + rate * (own * gi + mix * mi);
        g[i] = 0;
    }
}

tn_status tn_sgd_forward_cpu(const tn_call *c)
{
    const tn_sgd_attr *a = c->attr;
    TN_RETURN_IF(tn_segments_in_place(c));
    job j = { .param = c->out[0].data,
              .grad = c->out[1].data,
              .m = c->out[2].data,
              .lr = (double)tn_arg_scalar(&c->in[3], 0),
              .momentum = tn_arg_scalar(&c->in[4], 0),
              .decay = (double)tn_arg_scalar(&c->in[5], 0),
              .coefficient = tn_arg_scalar(&c->in[6], 0),
              .ok = *(const int32_t *)c->in[7].data != 0 };
    j.own = a->nesterov ? 1 : 0;
    j.mix = a->nesterov ? j.momentum : 1;
    tn_segments_run((tn_segments){ a->segment, a->n }, c->pool, update, &j);
    return TN_OK;
}
