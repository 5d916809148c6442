/* Ablation: two trainers of the same seed, one with the switch off, run the same steps alternately, so that other
 * load on the machine affects both alike. */
#include "report/ablate.h"

#include "base/rng.h"
#include "base/clock.h"
#include "report/bench/timing.h"
#include "train/trainer/inputs.h"
#include "train/run/parts.h"
#include "train/run/train_settings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_RUNS = 64 };

typedef struct side {
    tn_settings *settings;
    tn_trainer *trainer;
    double ms[MOST_RUNS];
    float loss;
} side;

static tn_status set_off(tn_settings *st, const char *name)
{
    for (size_t i = 0; i < tn_settings_count(st); i++) {
        const tn_setting *row = tn_settings_row_at(st, i);
        if (row->type == TN_TYPE_SWITCH && (strcmp(name, "all") == 0 || strcmp(name, row->key) == 0))
            TN_RETURN_IF(tn_settings_set(st, row->key, "off", "ablate"));
    }
    return TN_OK;
}

static void fill(const tn_ablate *a, side *s)
{
    const tn_feed f = tn_trainer_feed(s->trainer);
    if (a->source->example) a->source->example(a->source->ctx, &f);
    else tn_feed_random(&f, (tn_rng){ 5, 1 });
}

static tn_status open_side(const tn_ablate *a, const char *off, side *s)
{
    TN_RETURN_IF(tn_settings_clone(a->settings, &s->settings));
    if (off) TN_RETURN_IF(set_off(s->settings, off));
    const tn_input_spec input_spec = tn_source_input_spec(a->source);
    const tn_trainer_options o = { .model = a->model,
                                   .settings = s->settings,
                                   .batch = a->batch,
                                   .length = a->length,
                                   .input_spec = a->source->ctx ? &input_spec : NULL };
    TN_RETURN_IF(tn_trainer_new(&o, &s->trainer));
    TN_RETURN_IF(tn_parts_load(s->settings, a->model, tn_trainer_store(s->trainer)));
    tn_trainer_steady(s->trainer, true);
    fill(a, s);
    return TN_OK;
}

static void close_side(side *s)
{
    tn_trainer_free(s->trainer);
    tn_settings_free(s->settings);
}

static tn_status step(side *s, int64_t i, double *ms)
{
    tn_update_result a;
    const int batches = (int)tn_settings_int(s->settings, "train.accumulate");
    const double t = tn_clock_s();
    for (int k = 0; k < batches; k++) TN_RETURN_IF(tn_trainer_grad(s->trainer, i * batches + k, &s->loss));
    TN_RETURN_IF(tn_trainer_apply(s->trainer, i, batches, s->loss, &a));
    *ms = 1e3 * (tn_clock_s() - t);
    return TN_OK;
}

/* Does the switch change the plan? Nodes, arena and kernel tell: a switch a model does not use leaves all alone. */
static bool same_plan(const side *a, const side *b)
{
    const tn_plan *p = tn_trainer_plan(a->trainer, true), *q = tn_trainer_plan(b->trainer, true);
    if (tn_plan_steps(p) != tn_plan_steps(q) || tn_plan_memory(p).arena != tn_plan_memory(q).arena) return false;
    if (strcmp(tn_plan_kernel(p), tn_plan_kernel(q)) != 0) return false;
    const tn_graph *g = tn_plan_graph(p), *h = tn_plan_graph(q);
    for (size_t i = 0; i < g->n_nodes; i++) {
        if (g->node[i].op != h->node[i].op) return false;
        if (!g->node[i].op->release && memcmp(g->node[i].attr, h->node[i].attr, g->node[i].op->attr_bytes))
            return false;
    }
    return true;
}

static tn_status compare(const tn_ablate *a, const char *name, side *off, side *on)
{
    const int runs = a->runs < MOST_RUNS ? a->runs : MOST_RUNS;
    double ratio[MOST_RUNS], unused;
    tn_ablation r = { .name = name, .runs = runs, .steps = a->steps };
    for (int i = 0; i < a->steps; i++) { /* the first steps also touch the memory */
        TN_RETURN_IF(step(off, i, &unused));
        TN_RETURN_IF(step(on, i, &unused));
    }
    r.loss_error = fabs((double)off->loss - (double)on->loss) / fmax(fabs((double)on->loss), 1e-12);
    for (int i = 0; i < runs; i++) {
        side *first = i % 2 ? on : off, *second = i % 2 ? off : on;
        TN_RETURN_IF(step(first, a->steps + i, &first->ms[i]));
        TN_RETURN_IF(step(second, a->steps + i, &second->ms[i]));
        ratio[i] = off->ms[i] / on->ms[i];
    }
    r.gain = tn_median(ratio, (size_t)runs, &r.gain_spread);
    r.off_ms = tn_median(off->ms, (size_t)runs, NULL);
    r.on_ms = tn_median(on->ms, (size_t)runs, NULL);
    r.off_bytes = tn_trainer_memory(off->trainer).total;
    r.on_bytes = tn_trainer_memory(on->trainer).total;
    a->row(a->ctx, &r);
    return TN_OK;
}

static tn_status ablate_one(const tn_ablate *a, const char *name)
{
    side off = { 0 }, on = { 0 };
    tn_status s = open_side(a, name, &off);
    if (s == TN_OK) s = open_side(a, NULL, &on);
    if (s == TN_OK && !same_plan(&off, &on)) s = compare(a, name, &off, &on);
    close_side(&off);
    close_side(&on);
    return s;
}

tn_status tn_ablate_run(const tn_ablate *a)
{
    for (size_t i = 0; i < tn_settings_count(a->settings); i++) {
        const tn_setting *row = tn_settings_row_at(a->settings, i);
        if (row->type == TN_TYPE_SWITCH && tn_settings_on(a->settings, row->key)) TN_RETURN_IF(ablate_one(a, row->key));
    }
    return ablate_one(a, "all");
}
