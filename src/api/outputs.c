/* What a handle's last step put out, by name. */
#include "api/net.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>

static bool is_eval(const tenon_net *net) { return strcmp(net->step, "eval") == 0; }

static const tn_graph *graph_of(const tenon_net *net)
{
    if (!net->ran) return NULL;
    return tn_plan_graph(is_eval(net) ? tn_trainer_plan(net->ran, false) : tn_bound_plan(tn_trainer_step_bound(net->ran, net->step)));
}

/* Where sequences are computed in chunks the graph is that of one: its second axis is a part of time. */
static void give_shape(tn_dims d, int64_t count, tenon_tensor *out)
{
    const int64_t has = tn_dims_count(d);
    out->rank = d.rank;
    for (int k = 0; k < d.rank; k++) out->shape[k] = d.dim[k];
    if (count != has && d.rank > 1) out->shape[1] = count / (has / d.dim[1]);
}

/* Only what the caller's struct has room for is written. false: chunks do not keep it. */
static bool give_output(tenon_net *net, const tn_graph *g, size_t i, tenon_tensor *out)
{
    const char *name = g->output[i].name;
    const tn_ref x = { g->output[i].id };
    tenon_tensor t = { .size = out->size, .name = name, .dtype = (tenon_dtype)tn_ref_dtype(g, x) };
    int64_t count;
    const void *at = is_eval(net) ? tn_trainer_output(net->ran, name, &count) : tn_trainer_step_output(net->ran, net->step, name, NULL, &count);
    t.data = (void *)(uintptr_t)at;
    give_shape(tn_ref_dims(g, x), at ? count : tn_dims_count(tn_ref_dims(g, x)), &t);
    memcpy(out, &t, out->size < sizeof t ? out->size : sizeof t);
    return at != NULL;
}

bool tn__api_output(tenon_net *net, const char *name, tenon_tensor *out)
{
    const tn_graph *g = graph_of(net);
    for (size_t i = 0; g && i < g->n_outputs; i++)
        if (strcmp(g->output[i].name, name) == 0) return give_output(net, g, i, out);
    return false;
}

size_t tenon_outputs(const tenon_net *net) { return net->ran ? graph_of(net)->n_outputs : 0; }

static tn_status check_size(const tenon_tensor *out)
{
    if (out->size >= sizeof out->size && out->size <= 1024) return TN_OK;
    return tn_error(TN_USAGE, "tenon_tensor.size is %zu: set it to sizeof(tenon_tensor)", out->size);
}

tenon_status tenon_output_at(tenon_net *net, size_t i, tenon_tensor *out)
{
    const tn_status s = check_size(out);
    if (s != TN_OK) return (tenon_status)s;
    if (i >= tenon_outputs(net)) return (tenon_status)tn_error(TN_USAGE, "there are %zu outputs, none of number %zu", tenon_outputs(net), i);
    (void)give_output(net, graph_of(net), i, out);
    return TENON_OK;
}

tenon_status tenon_output_find(tenon_net *net, const char *name, tenon_tensor *out)
{
    char names[320] = "";
    size_t at = 0;
    const tn_status s = tn__api_need(name, "name");
    if (s != TN_OK || check_size(out) != TN_OK) return TENON_USAGE;
    if (!net->ran) return (tenon_status)tn_error(TN_USAGE, "nothing has put out %.60s: call tenon_run for it", name);
    if (tn__api_output(net, name, out)) return TENON_OK;
    const tn_graph *g = graph_of(net);
    for (size_t i = 0; i < g->n_outputs && at < sizeof names; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "", g->output[i].name);
    return (tenon_status)tn_error(TN_USAGE, "model %s, step %s puts out no %.60s: it puts out %s", net->saved.model->name, net->step, name, names);
}
