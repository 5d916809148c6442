/* One trial of the TEP report's workload, watched. */
#include "report/w2.h"

#include "base/clock.h"
#include "train/trainer/costs.h"

#include <string.h>

typedef struct trial {
    tn_w2_trial *to;
    tn_costs costs;
    double data_s;
} trial;

/* --- counting -------------------------------------------------------------------------------------------------------- */

static void count(void *ctx, tn_trainer_event what, tn_bound *b, double seconds)
{
    trial *t = ctx;
    if (what == TN_EVENT_APPLY) t->to->optimizer_s += seconds;
    if (what == TN_EVENT_DATA) t->data_s += seconds;
    tn_costs_add(&t->costs, what, b);
}

/* By the names of tep's cost rows, whose workload this is. */
static void take_counts(const tn_costs *c, tn_w2_trial *to)
{
    const struct {
        const char *row;
        double *to;
    } all[] = {
        { "free", &to->free },         { "nudged", &to->nudged }, { "adjoint", &to->adjoint },
        { "backward", &to->backward }, { "eval", &to->eval },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) *all[i].to = tn_costs_sum(c, all[i].row);
    to->solver_calls = c->calls;
    to->samples = c->samples, to->eval_samples = c->eval_samples;
}

/* --- timing ---------------------------------------------------------------------------------------------------------- */

/* The regions of the model, sorted into three. */
static void sort_times(const tn_region_time *rows, size_t n, double forward[3], double backward[3])
{
    for (size_t i = 0; i < n; i++) {
        const char *name = rows[i].region;
        const int k = strcmp(name, "solve") == 0 ? 0 : strcmp(name, "embed") == 0 || strcmp(name, "attn") == 0 ? 1 : 2;
        forward[k] += 1e-3 * rows[i].forward_ms;
        backward[k] += 1e-3 * rows[i].backward_ms;
    }
}

static void read_timers(tn_trainer *from, tn_w2_trial *to)
{
    enum { MOST = 64 };
    tn_region_time rows[MOST];
    double forward[3] = { 0 }, backward[3] = { 0 }, eval[3] = { 0 }, none[3] = { 0 };
    size_t n = tn_bound_times(tn_trainer_bound(from, true), rows, MOST);
    sort_times(rows, n < MOST ? n : MOST, forward, backward);
    n = tn_bound_times(tn_trainer_bound(from, false), rows, MOST);
    sort_times(rows, n < MOST ? n : MOST, eval, none);
    to->solve_s = forward[0], to->injection_s = forward[1], to->head_s = forward[2];
    to->solve_backward_s = backward[0], to->injection_backward_s = backward[1], to->head_backward_s = backward[2];
    to->eval_solve_s = eval[0], to->eval_injection_s = eval[1], to->eval_head_s = eval[2];
}

static void set_timers(tn_trainer *t, bool on)
{
    tn_bound_timers(tn_trainer_bound(t, true), on);
    tn_bound_timers(tn_trainer_bound(t, false), on);
}

/* --- the run --------------------------------------------------------------------------------------------------------- */

static double block_flops(const tn_settings *st, const tn_w2_trial *r)
{
    const double d = (double)tn_settings_int(st, "dim"),
                 ff = tn_settings_is_auto(st, "ff") ? 4 * d : (double)tn_settings_int(st, "ff");
    const double again = strcmp(tn_settings_text(st, "grad"), "bptt") == 0 ? 0.5 : 1;
    return 4 * d * ff * (r->free + r->nudged + r->adjoint + r->eval + (again + 2) * r->backward);
}

tn_status tn_w2_trial_run(const tn_training *t, tn_w2_trial *out)
{
    tn_progress_report last;
    *out = (tn_w2_trial){ 0 };
    trial self = { .to = out };
    TN_RETURN_IF(tn_costs_open(tn_trainer_model(t->trainer), t->settings, t->batch, &self.costs));
    tn_training run = *t;
    run.dir = NULL;
    tn_trainer_watch(t->trainer, (tn_watch){ .ctx = &self, .ran = count });
    set_timers(t->trainer, true);
    const double begun = tn_clock_s(), cpu = tn_clock_cpu_s();
    const tn_status s = tn_training_run(&run, NULL, &last);
    out->wall_s = tn_clock_s() - begun;
    out->cpu_s = tn_clock_cpu_s() - cpu;
    read_timers(t->trainer, out);
    set_timers(t->trainer, false);
    tn_trainer_watch(t->trainer, (tn_watch){ 0 });
    take_counts(&self.costs, out);
    out->data_s = self.data_s;
    out->score = tn_scores_get(&last.best, last.select->name);
    out->best_step = last.best_step;
    out->flops = block_flops(t->settings, out);
    return s;
}
