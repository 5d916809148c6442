/* A run's time by parts. Checkpoints count what steps, evaluations and saves took; the part of the steps that waited for data is in
 * the metrics, for each session: the last lines have that of the last. No tensor is read, and no whole file of metrics. */
#include "report/run_time.h"

#include "base/text.h"
#include "report/run_tail.h"
#include "train/run/run_info.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Of the steps; NaN: not known. */
static double waited_part(const char *run)
{
    json_t *tail = tn_run_tail(run);
    const double part = tn_run_tail_last(tail, "stall_frac");
    json_decref(tail);
    return part >= 0 && part <= 1 ? part : NAN;
}

static double known(double x) { return isnan(x) ? 0 : x; }

const char *tn_run_time_label(int i)
{
    static const char *const words[TN_RUN_TIMES] = { "steps", "waiting for data", "evaluation", "saving",
                                                     "beginning, and the rest" };
    return words[i];
}

tn_status tn_run_time_read(const char *run, tn_run_time *out)
{
    static const char *const names[TN_RUN_TIMES] = { "steps", "data", "evaluation", "saving", "other" };
    char path[TN_PATH_BYTES], name[TN_CKPT_NAME];
    tn_run_info info;
    tn_ckpt_state st;
    TN_RETURN_IF(tn_run_info_read(run, &info));
    TN_RETURN_IF(tn_path_join(run, tn_ckpt_name(info.saved, name), path, sizeof path));
    TN_RETURN_IF(tn_ckpt_read_state(path, &st));
    const double part = waited_part(run), data = isnan(part) ? NAN : part * st.working;
    const double rest = st.seconds - st.working - known(st.evaluating) - known(st.saving);
    const double seconds[TN_RUN_TIMES] = { st.working - known(data), data, st.evaluating, st.saving, fmax(rest, 0) };
    *out = (tn_run_time){ .step = st.step, .seconds = st.seconds };
    for (int i = 0; i < TN_RUN_TIMES; i++) {
        out->part[i].name = names[i];
        out->part[i].seconds = seconds[i];
        out->part[i].share = st.seconds > 0 ? seconds[i] / st.seconds : NAN;
    }
    tn_ckpt_state_free(&st);
    return TN_OK;
}

const char *tn_run_time_text(const tn_run_time *t, char buf[TN_RUN_TIME_TEXT])
{
    int n = snprintf(buf, TN_RUN_TIME_TEXT, "The run took %s s to its checkpoint of step %lld", TN_NUMBER(t->seconds),
                     (long long)t->step);
    const char *lead = ": ";
    for (int i = 0; i < TN_RUN_TIMES && n > 0 && n < TN_RUN_TIME_TEXT; i++) {
        if (isnan(t->part[i].share)) continue;
        n += snprintf(buf + n, TN_RUN_TIME_TEXT - (size_t)n, "%s%s %.1f %%", lead, t->part[i].name,
                      100 * t->part[i].share);
        lead = ", ";
    }
    return buf;
}
