/* Early stopping in hindsight. A resumed run knows best_step, stale and longest from its checkpoint, but not where it would have
 * stopped: evaluations are `every` steps apart. */
#include "train/run/patience.h"

#include "base/text.h"
#include "train/run/overfit_watch.h"

#include <math.h>
#include <stdio.h>

void tn_patience_add(tn_patience_record *p, int64_t step, bool is_best)
{
    if (is_best) {
        const int64_t longest = p->stale > p->longest ? p->stale : p->longest;
        *p = (tn_patience_record){ .best_step = step, .longest = longest };
    } else if (++p->stale == tn_patience_least(p)) p->stop = step;
}

int64_t tn_patience_least(const tn_patience_record *p)
{
    return p->longest < TN_OVERFIT_EVALUATIONS ? TN_OVERFIT_EVALUATIONS : p->longest + 1;
}

int64_t tn_patience_stop(const tn_patience_record *p, int64_t steps, int64_t every)
{
    const int64_t stop = p->stop ? p->stop : p->best_step + tn_patience_least(p) * every;
    return p->best_step > 0 && stop > p->best_step && stop < steps ? stop : 0;
}

const char *tn_patience_text(const tn_patience_record *p, int64_t steps, int64_t every, double tokens, bool over,
                             char buf[TN_PATIENCE_TEXT])
{
    const int64_t stop = tn_patience_stop(p, steps, every);
    char saved[16], all[16];
    buf[0] = 0;
    if (!stop) return buf;
    const double part = (double)(steps - stop) / (double)steps, total = isnan(tokens) ? (double)steps : tokens;
    snprintf(buf, TN_PATIENCE_TEXT, "train.stop_patience=%lld would %s at step %lld and %s %s of %s %s (%.0f %%)",
             (long long)tn_patience_least(p), over ? "have stopped" : "stop", (long long)stop, over ? "saved" : "save",
             tn_count_text(part * total, saved), tn_count_text(total, all), isnan(tokens) ? "steps" : "tokens",
             100 * part);
    return buf;
}
