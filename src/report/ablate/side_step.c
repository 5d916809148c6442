/* A side that trains. */
#include "report/ablate/side.h"

#include "base/clock.h"
#include "report/probe/probe.h"

#include <math.h>
#include <string.h>

static tn_status open_step(const tn_side_options *o, void **out)
{
    tn_step_probe *p = NULL;
    TN_RETURN_IF(tn_step_probe_open(&(tn_step_probe_options){ .user = o->user,
                                                              .settings = o->settings,
                                                              .model = o->model,
                                                              .word = o->word,
                                                              .n = o->n,
                                                              .source = "tenon ablate" },
                                    &p));
    *out = p;
    return TN_OK;
}

static void close_step(void *side) { tn_step_probe_close(side); }

static tn_status warm_step(void *side, double limit_s, double *ms) { return tn_step_probe_warm(side, limit_s, ms); }

static tn_status run_step(void *side, int times, double *ms) { return tn_step_probe_run(side, times, 0, ms); }

static double step_bytes(const void *side) { return tn_step_probe_bytes(side); }

const tn_session *tn_side_session(const void *side) { return tn_step_probe_session(side); }

static const tn_store *store_of(const void *side) { return tn_trainer_store(tn_side_session(side)->trainer); }

/* Gradients from the same parameters are compared first: an update hides much of a wrong one. With a loss scale they are in other units. */
static tn_status step_parity(void *plain, void *fast, double seconds, int *steps, tn_parity *out)
{
    const double begun = tn_clock_s();
    const int most = *steps;
    double ms;
    *out = tn_parity_none();
    TN_RETURN_IF(tn_step_probe_gradients(plain));
    TN_RETURN_IF(tn_step_probe_gradients(fast));
    if (tn_trainer_loss_scale(tn_side_session(fast)->trainer).scale == 1)
        TN_RETURN_IF(tn_parity_stores(out, store_of(plain), store_of(fast), true));
    for (*steps = 0; *steps < most && (*steps == 0 || tn_clock_s() - begun < seconds); ++*steps) {
        TN_RETURN_IF(tn_step_probe_run(plain, 1, 0, &ms));
        TN_RETURN_IF(tn_step_probe_run(fast, 1, 0, &ms));
    }
    TN_RETURN_IF(tn_parity_stores(out, store_of(plain), store_of(fast), false));
    const tn_step_losses *a = tn_step_probe_losses(plain), *b = tn_step_probe_losses(fast);
    for (int i = 0; i < a->n && i < b->n; i++) tn_parity_loss(out, a->loss[i], b->loss[i]);
    return TN_OK;
}

static bool same_attributes(const tn_node *a, const tn_node *b)
{
    return a->op->release || memcmp(a->attr, b->attr, a->op->attr_bytes) == 0;
}

/* Nodes, memory and kernels tell. Attributes may differ in bytes that nobody reads. */
static tn_plan_difference difference(const tn_plan *p, const tn_plan *q)
{
    const tn_graph *g = tn_plan_graph(p), *h = tn_plan_graph(q);
    tn_plan_difference found = TN_PLANS_SAME;
    if (tn_plan_steps(p) != tn_plan_steps(q) || tn_plan_memory(p).arena != tn_plan_memory(q).arena ||
        g->n_nodes != h->n_nodes || strcmp(tn_plan_kernel(p), tn_plan_kernel(q)) != 0)
        return TN_PLANS_DIFFER;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->node[i], *m = &h->node[i];
        if (n->op != m->op || n->n_in != m->n_in || n->n_out != m->n_out) return TN_PLANS_DIFFER;
        if (!same_attributes(n, m)) found = TN_PLANS_ATTRIBUTES;
    }
    return found;
}

tn_plan_difference tn_side_plans(const void *a, const void *b)
{
    const tn_trainer *p = tn_side_session(a)->trainer, *q = tn_side_session(b)->trainer;
    const tn_plan_difference grad = difference(tn_trainer_plan(p, true), tn_trainer_plan(q, true)),
                             apply = difference(tn_trainer_apply_plan(p), tn_trainer_apply_plan(q));
    return grad > apply ? grad : apply;
}

const tn_side_kind tn_side_step = { .what = "step",
                                    .open = open_step,
                                    .close = close_step,
                                    .warm = warm_step,
                                    .run = run_step,
                                    .bytes = step_bytes,
                                    .parity = step_parity,
                                    .most = 1024 };

const tn_side_kind *tn_side_kind_of(tn_ablate_price price)
{
    static const tn_side_kind *const kinds[TN_ABLATE_PRICES] = { [TN_ABLATE_STEP] = &tn_side_step,
                                                                 [TN_ABLATE_TRAIN] = &tn_side_train,
                                                                 [TN_ABLATE_TOKEN] = &tn_side_token,
                                                                 [TN_ABLATE_REREAD] = &tn_side_token,
                                                                 [TN_ABLATE_SAVE] = &tn_side_save };
    return kinds[price];
}
