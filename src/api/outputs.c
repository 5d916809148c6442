/* Outputs of a handle's last step, by name. */
#include "api/net.h"

#include "base/status.h"

#include <string.h>

static bool is_eval(const tenon_net *net) { return strcmp(net->step, "eval") == 0; }

static const tn_plan *plan_of(const tenon_net *net)
{
    return is_eval(net) ? tn_trainer_plan(net->ran, false) : tn_bound_plan(tn_trainer_step_bound(net->ran, net->step));
}

static const tn_graph *graph_of(const tenon_net *net) { return net->ran ? tn_plan_graph(plan_of(net)) : NULL; }

/* Where sequences are computed in chunks the graph is that of one: its second axis is a part of time. */
static void give_shape(tn_dims d, int64_t count, tenon_tensor *out)
{
    const int64_t has = tn_dims_count(d);
    out->rank = d.rank;
    for (int k = 0; k < d.rank; k++) out->shape[k] = d.dim[k];
    if (count != has && d.rank > 1) out->shape[1] = count / (has / d.dim[1]);
}

/* Its data are NULL where chunks do not keep it. */
static tenon_tensor output_at(const tenon_net *net, const tn_graph *g, size_t i)
{
    const char *name = g->output[i].name;
    const tn_ref x = { g->output[i].id };
    tenon_tensor t = { .name = name, .dtype = (tenon_dtype)tn_ref_dtype(g, x) };
    int64_t count;
    const void *at = is_eval(net) ? tn_trainer_output(net->ran, name, &count)
                                  : tn_trainer_step_output(net->ran, net->step, name, NULL, &count);
    t.data = (void *)(uintptr_t)at;
    give_shape(tn_ref_dims(g, x), at ? count : tn_dims_count(tn_ref_dims(g, x)), &t);
    return t;
}

/* The gradient of an input, which is no output of the graph. */
static bool input_gradient(const tenon_net *net, const char *name, tenon_tensor *out)
{
    const tn_gtensor *x = net->ran ? tn_plan_input_gradient(plan_of(net), name) : NULL;
    int64_t count;
    if (!x) return false;
    const void *at = tn_trainer_output(net->ran, name, &count);
    *out = (tenon_tensor){ .name = x->name, .dtype = (tenon_dtype)x->dtype, .data = (void *)(uintptr_t)at };
    give_shape(x->dims, count, out);
    return at != NULL;
}

bool tn__api_output(const tenon_net *net, const char *name, tenon_tensor *out)
{
    const tn_graph *g = graph_of(net);
    if (input_gradient(net, name, out)) return true;
    for (size_t i = 0; g && i < g->n_outputs; i++)
        if (strcmp(g->output[i].name, name) == 0) return (*out = output_at(net, g, i)).data != NULL;
    return false;
}

size_t tenon_outputs(const tenon_net *net) { return net->ran ? graph_of(net)->n_outputs : 0; }

tenon_status tenon_output_at(tenon_net *net, size_t i, tenon_tensor *out)
{
    if (i >= tenon_outputs(net))
        TN_API_USAGE("there are %zu outputs: index %zu is out of range", tenon_outputs(net), i);
    const tenon_tensor t = output_at(net, graph_of(net), i);
    return tn__api_give(&t, sizeof t, out, "tenon_tensor");
}

tenon_status tenon_output_find(tenon_net *net, const char *name, tenon_tensor *out)
{
    char names[TN_NET_NAMES] = "";
    tenon_tensor t;
    TN_API_TRY(tn__api_need(name, "name"));
    if (!net->ran) TN_API_USAGE("output %.60s is not computed yet: request it with tenon_run", name);
    if (tn__api_output(net, name, &t)) return tn__api_give(&t, sizeof t, out, "tenon_tensor");
    for (size_t i = 0; i < tenon_outputs(net); i++) tn__api_list(names, graph_of(net)->output[i].name);
    TN_API_USAGE("model %s, step %s has no output %.60s: it has %s", net->saved.model->name, net->step, name, names);
}
