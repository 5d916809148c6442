/* Opening a trained model at another context. */
#include "report/at_context.h"

#include "train/trainer/width_fit.h"

#include <stdio.h>

void tn_at_context_close(tn_at_context *a)
{
    tn_trainer_free(a->trainer);
    tn_settings_free(a->settings);
    *a = (tn_at_context){ 0 };
}

static tn_status make_settings(const tn_at_context_options *o, tn_settings **out)
{
    char text[32];
    TN_RETURN_IF(tn_settings_clone(o->settings, out));
    TN_RETURN_IF(tn_settings_set(*out, "train.nonfinite", "skip", "contexts")); /* speed is asked for, not a good run */
    if (o->nll) TN_RETURN_IF(tn_settings_set(*out, "plan.recompute", "none", "contexts")); /* chunks put out one loss */
    if (o->context <= tn_settings_int(o->settings, "train.context")) return TN_OK;
    snprintf(text, sizeof text, "%lld", (long long)o->context);
    return tn_settings_set(*out, "train.context", text, "contexts");
}

/* A tensor whose shape follows train.context is a table of positions. */
static tn_status check_positions(const tn_at_context_options *o, const tn_settings *st)
{
    int64_t had, has, had_frozen, has_frozen;
    TN_RETURN_IF(tn_tensors_count(o->model, o->settings, NULL, &had, &had_frozen));
    TN_RETURN_IF(tn_tensors_count(o->model, st, NULL, &has, &has_frozen));
    if (had == has && had_frozen == has_frozen) return TN_OK;
    return tn_error(TN_USAGE, "its %s train.context=%s",
                    had != has ? "learned positions end at" : "table of positions ends at",
                    tn_settings_text(o->settings, "train.context"));
}

static tn_status open_it(const tn_at_context_options *o, tn_at_context *a)
{
    TN_RETURN_IF(make_settings(o, &a->settings));
    TN_RETURN_IF(check_positions(o, a->settings));
    return tn_trainer_new(&(tn_trainer_options){ .model = o->model,
                                                 .settings = a->settings,
                                                 .batch = o->batch,
                                                 .length = o->context,
                                                 .forward_only = !o->trains,
                                                 .store = o->store,
                                                 .input_spec = &(tn_input_spec){ .optional = o->documents },
                                                 .nll = o->nll },
                          &a->trainer);
}

tn_status tn_at_context_open(const tn_at_context_options *o, tn_at_context *out)
{
    tn_at_context a = { 0 };
    const tn_status s = open_it(o, &a);
    if (s != TN_OK) tn_at_context_close(&a);
    else *out = a;
    return s;
}
