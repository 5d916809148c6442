/* Dynamic loss scaling: a number and a counter. */
#include "optim/loss_scale.h"

#include <math.h>

static float power_of_two(float x, float otherwise)
{
    return x > 0 && isfinite(x) ? exp2f(floorf(log2f(x))) : otherwise;
}

tn_loss_scale tn_loss_scale_start(const tn_loss_scale_options *o)
{
    tn_loss_scale s = { .lowest = power_of_two(o->lowest, 1.f),
                        .highest = power_of_two(o->highest, 16777216.f),
                        .grow_after = o->grow_after > 0 ? o->grow_after : 2000 };
    const float first = power_of_two(o->first, 65536.f);
    if (!(o->highest > 0)) s.highest = fmaxf(s.highest, first);
    s.scale = fminf(fmaxf(first, s.lowest), s.highest);
    return s;
}

bool tn_loss_scale_update(tn_loss_scale *s, bool ok)
{
    if (!ok) {
        const bool fits = s->scale > s->lowest;
        if (fits) s->scale *= 0.5f;
        s->good = 0;
        return fits;
    }
    if (++s->good >= s->grow_after) {
        s->good = 0;
        if (s->scale < s->highest) s->scale *= 2;
    }
    return true;
}
