/* Line plots of a caller's numbers, drawn as the command draws them. */
#include "api/net.h"

#include "base/alloc.h"
#include "base/status.h"
#include "report/chart/plot.h"

#include <stdlib.h>

void tenon_plot_init(tenon_plot_options *o) { *o = (tenon_plot_options){ .size = sizeof *o }; }

static tn_status check(const tenon_plot_options *o)
{
    TN_RETURN_IF(tn__api_need((const void *)(uintptr_t)o->write, "write"));
    if (o->count == 0 || !o->name || !o->x || !o->y || !o->n)
        return tn_error(TN_USAGE, "a plot needs at least one series: name, x, y and n");
    for (size_t i = 0; o->behind && i < o->count; i++)
        if (o->behind[i] > o->count)
            return tn_error(TN_USAGE, "behind[%zu] is %zu: there are %zu series", i, o->behind[i], o->count);
    for (size_t i = 0; o->ring && i < o->count; i++)
        if (o->ring[i] > o->n[i])
            return tn_error(TN_USAGE, "ring[%zu] is %zu: the series has %zu points", i, o->ring[i], o->n[i]);
    return TN_OK;
}

tenon_status tenon_plot(const tenon_plot_options *given)
{
    tn_status s = TN_OK;
    tenon_plot_options o;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = NULL;
    tn_series *series = NULL;
    tenon_plot_init(&o);
    TN_TRY(tn__api_take(given, &o, sizeof o, "tenon_plot_options"));
    TN_TRY(check(&o));
    series = tn_alloc(sizeof *series * o.count);
    out = open_memstream(&text, &bytes);
    if (!series || !out) TN_FAIL(TN_MEMORY, "out of memory for a plot of %zu series", o.count);
    for (size_t i = 0; i < o.count; i++) {
        const size_t behind = o.behind ? o.behind[i] : 0;
        series[i] = (tn_series){ .name = o.name[i],
                                 .x = o.x[i],
                                 .y = o.y[i],
                                 .n = o.n[i],
                                 .like = behind,
                                 .faint = behind,
                                 .ring = o.ring ? o.ring[i] : 0 };
    }
    const tn_plot p = { .title = o.title,
                        .x_label = o.x_label,
                        .y_label = o.y_label,
                        .ring = o.ring_name,
                        .series = series,
                        .count = o.count,
                        .log_y = o.log_y,
                        .width = o.width,
                        .height = o.height };
    TN_TRY(o.text ? tn_plot_text(&p, out) : tn_plot_svg(&p, out));
    if (fflush(out) != 0) TN_FAIL(TN_MEMORY, "out of memory for a plot of %zu series", o.count);
    o.write(o.user, text, bytes);
done:
    if (out) fclose(out);
    free(text);
    tn_free(series);
    return (tenon_status)s;
}
