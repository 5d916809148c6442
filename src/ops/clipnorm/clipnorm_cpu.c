/* clipnorm on the CPU: a few scalar operations. Tests are written so that a NaN fails them. */
#include "ops/clipnorm/clipnorm.h"

#include <float.h>
#include <math.h>

tn_kernel tn_clipnorm_forward_cpu;

static inline bool finite_number(float x) { return fabsf(x) <= FLT_MAX; /* false for NaN */ }

tn_status tn_clipnorm_forward_cpu(const tn_call *c)
{
    const float sumsq = *(const float *)c->in[0].data, clip = *(const float *)c->in[1].data;
    const float scale = *(const float *)c->in[2].data, *loss = c->in[3].data;
    const float norm = sqrtf(sumsq) * scale;
    bool ok = finite_number(norm) && finite_number(scale);
    for (int64_t i = 0; loss && i < tn_dims_count(c->in[3].dims); i++) ok = ok && finite_number(loss[i]);
    const bool limit = clip > 0 && norm > clip;
    *(float *)c->out[0].data = !ok ? 0.f : limit ? scale * (clip / norm) : scale;
    *(int32_t *)c->out[1].data = ok;
    *(float *)c->out[2].data = norm;
    return TN_OK;
}
