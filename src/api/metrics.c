/* Metrics of a handle by name: those of its checkpoint, or the last measured. */
#include "api/net.h"

#include "base/status.h"
#include "train/run/session.h"
#include "train/run/training.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

void tn__api_recorded(tenon_net *net)
{
    char manifest[TN_PATH_BYTES];
    tn_ckpt_state st;
    tn_metric_rows(net->saved.model, &net->metrics);
    net->scores.n = 0;
    if (!net->saved.weights[0] || tn_path_join(net->saved.weights, "manifest.json", manifest, sizeof manifest) != TN_OK)
        return;
    if (access(manifest, F_OK) != 0 || tn_ckpt_read_state(net->saved.weights, &st) != TN_OK) return;
    net->scores = st.now;
    if (net->scores.n) snprintf(net->scores.at[0].name, sizeof net->scores.at[0].name, "%s", net->metrics.row[0]->name);
    tn_ckpt_state_free(&st);
}

static bool stopped(void *net) { return atomic_load(&((tenon_net *)net)->interrupted); }

tenon_status tenon_measure(tenon_net *net, const char *split)
{
    tn_status s = TN_OK;
    tn_session on = { 0 };
    tn_evaluator *v = NULL;
    tn_evaluation e;
    atomic_store(&net->interrupted, false);
    TN_TRY(tn__api_need(split, "split"));
    const bool test = strcmp(split, tn_data_split_names[TN_TEST]) == 0;
    if (!test && strcmp(split, tn_data_split_names[TN_VALID]) != 0)
        TN_FAIL(TN_USAGE, "split \"%.40s\": the splits are valid and test", split);
    const tn_session_options o = { .settings = net->saved.settings,
                                   .model = net->saved.model,
                                   .store = net->store,
                                   .needs_data = true,
                                   .evaluates = true,
                                   .frozen = net->frozen,
                                   .matrices = net->frozen ? net->matrices : TN_F32,
                                   .split = test ? TN_TEST : TN_VALID };
    TN_TRY(tn_session_open_with(&o, &on));
    if (tn_session_count(&on, o.split) == 0)
        TN_FAIL(TN_USAGE,
                "the data have no %s split: prepare text with %s_frac= or %s=FILE, set task.%s_frac, or give the "
                "model's records a %s split",
                split, split, split, split, split);
    TN_TRY(tn_evaluator_new(on.trainer, &on.source, &v));
    tn_evaluator_stop(v, stopped, net);
    TN_TRY(tn_evaluator_run(v, &on.source, 0, &e));
    net->metrics = e.metrics;
    net->scores = e.scores;
done:
    tn_evaluator_free(v);
    tn_session_close(&on);
    return (tenon_status)s;
}

size_t tenon_metrics(const tenon_net *net) { return net->scores.n; }

tenon_status tenon_metric_at(const tenon_net *net, size_t i, tenon_metric *out)
{
    if (i >= net->scores.n) TN_API_USAGE("there are %zu metrics: index %zu is out of range", net->scores.n, i);
    const tn_metric_row *r = tn_metric_find(&net->metrics, net->scores.at[i].name);
    const tenon_metric m = { .name = net->scores.at[i].name,
                             .unit = r && r->unit ? r->unit : "",
                             .higher = r && r->better == TN_HIGHER,
                             .value = net->scores.at[i].value };
    return tn__api_give(&m, sizeof m, out, "tenon_metric");
}

tenon_status tenon_metric_find(const tenon_net *net, const char *name, tenon_metric *out)
{
    char names[TN_NET_NAMES] = "";
    TN_API_TRY(tn__api_need(name, "name"));
    for (size_t i = 0; i < net->scores.n; i++) {
        if (strcmp(net->scores.at[i].name, name) == 0) return tenon_metric_at(net, i, out);
        tn__api_list(names, net->scores.at[i].name);
    }
    if (!names[0]) TN_API_USAGE("no metrics are known yet: call tenon_measure first");
    TN_API_USAGE("unknown metric %.60s: choose %s", name, names);
}
