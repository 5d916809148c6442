/* Counts ops of a timed step of either side. */
#include "report/ablate/ops_alone.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "report/ablate/side.h"
#include "report/bench/timing.h"
#include "report/profile/profile.h"

#include <string.h>

enum { PAIRS = 15, MOST_ROWS = 4096 };

static bool same_place(const tn_node_time *a, const tn_node_time *b)
{
    return a->backward == b->backward && strcmp(a->op, b->op) == 0 && strcmp(a->region, b->region) == 0;
}

static double sum_apart(const tn_node_time *a, size_t n, const tn_node_time *b, size_t m, const char *component)
{
    double ms = 0;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < m && !same_place(&a[i], &b[k])) k++;
        const bool common = k < m && a[i].calls == b[k].calls;
        if (!common || strcmp(tn_component_of(a[i].op), component) == 0) ms += a[i].ms;
    }
    return ms;
}

void tn_ops_apart(const tn_node_time *a, size_t n, const tn_node_time *b, size_t m, const char *component, double ms[2])
{
    ms[0] = sum_apart(a, n, b, m, component);
    ms[1] = sum_apart(b, m, a, n, component);
}

/* One step. */
static tn_status time_step(void *side, tn_node_time *rows, size_t *n)
{
    double ms;
    tn_trainer *t = tn_side_session(side)->trainer;
    tn_trainer_timers(t, true);
    const tn_status s = tn_side_step.run(side, 1, &ms);
    *n = s == TN_OK ? tn_trainer_node_times(t, rows, MOST_ROWS) : 0;
    tn_trainer_timers(t, false);
    return s;
}

static tn_status take(void *side[2], const char *component, double until, tn_node_time *rows, tn_ops_alone *out)
{
    double all[2][PAIRS], ratio[PAIRS];
    int n = 0;
    for (; n < PAIRS && (n < TN_RATIOS_LEAST || tn_clock_s() < until); n++) {
        size_t count[2];
        double ms[2];
        for (int i = 0; i < 2; i++) {
            const int which = (i + n) % 2;
            TN_RETURN_IF(time_step(side[which], rows + which * MOST_ROWS, &count[which]));
        }
        tn_ops_apart(rows, count[0], rows + MOST_ROWS, count[1], component, ms);
        if (!(ms[0] > 0) || !(ms[1] > 0)) return TN_OK; /* no clock for them, or no such op */
        for (int i = 0; i < 2; i++) all[i][n] = ms[i];
        ratio[n] = ms[0] / ms[1];
    }
    *out = (tn_ops_alone){ .plain_ms = tn_median(all[0], (size_t)n, NULL),
                           .fast_ms = tn_median(all[1], (size_t)n, NULL),
                           .ratio = tn_ratio_of(ratio, n, TN_RATIOS_TAIL) };
    return TN_OK;
}

tn_status tn_ops_alone_take(void *side[2], const char *component, double until, tn_ops_alone *out)
{
    tn_node_time *rows = tn_alloc(sizeof *rows * 2 * MOST_ROWS);
    if (!rows) return tn_error(TN_MEMORY, "out of memory");
    const tn_status s = take(side, component, until, rows, out);
    tn_free(rows);
    return s;
}
