/* tenon lab run STUDY --plan: what the study will run, and about how long it will take. Nothing is written. */
#include "base/alloc.h"
#include "cli/lab/lab_campaign.h"
#include "cli/view.h"
#include "lab/worker/trial_probe.h"
#include "lab/worker/worker.h"

#include <math.h>

static const double PROBE_S = 1;

typedef struct plan {
    tn_cli *c;
    const tn_study_plan *p;
    int64_t trials; /* of all these sides */
    double seconds; /* of them together */
    tn_device device;
} plan;

static tn_status put_side(plan *k, size_t side, int64_t trials, const tn_trial_probe *t)
{
    const char *name = k->p->sides[side].name[0] ? k->p->sides[side].name : k->p->name;
    char parameters[16], tokens[16], memory[24];
    k->trials += trials;
    k->seconds += (double)trials * t->seconds;
    k->device = t->device;
    if (k->c->json)
        return tn_cli_emit(k->c, json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:s, s:f, s:o, s:o}", "name", "plan", "side",
                                           name, "trials", (json_int_t)trials, "parameters", (json_int_t)t->parameters,
                                           "steps", (json_int_t)t->steps, "tokens", (json_int_t)t->tokens, "width",
                                           t->width.text, "memory_bytes", t->memory_bytes, "step_s",
                                           tn_number_or_null(t->step_s), "seconds", tn_number_or_null(t->seconds)));
    fprintf(k->c->out, "%-12s %6lld %10s %8s %7lld %9s %8.3g %8.3g  %s\n", name, (long long)trials,
            tn_count_text((double)t->parameters, parameters), tn_count_text((double)t->tokens, tokens),
            (long long)t->steps, tn_bytes_text(t->memory_bytes, memory), t->step_s, t->seconds, t->width.text);
    return TN_OK;
}

static tn_status probe_side(plan *k, tn_trial_host *h, size_t side, int64_t asked)
{
    const tn_study_plan *p = k->p;
    const tn_space *space = &p->sides[side].space;
    const int64_t most = p->sampler->count(space);
    const tn_claim c = { .side = side, .seed = p->seed, .kind = p->seeds ? TN_TRIAL_COMPARE : TN_TRIAL_SEARCH };
    const tn_observed none = { .objectives = p->n_objectives };
    tn_trial_probe t;
    double *x = tn_alloc(sizeof *x * (space->n + 1));
    if (!x) return TN_MEMORY;
    tn_status s = p->sampler->draw(&p->sampling, space, &none, 0, x);
    if (s == TN_OK) s = tn_trial_probe_side(h, &c, x, PROBE_S, &t);
    tn_free(x);
    if (s != TN_OK) tn_error_prefix("%s%s%s", p->name, p->sides[side].name[0] ? ", side " : "", p->sides[side].name);
    if (s != TN_OK) return s;
    return put_side(k, side, (most > 0 && asked > most ? most : asked) * (p->seeds ? p->seeds : 1), &t);
}

tn_status tn_lab_plan(tn_cli *c, const tn_study_plan *p, const char *db, int64_t trials, tn_side_set sides, int workers,
                      int lanes)
{
    char runs[TN_PATH_BYTES];
    plan k = { .c = c, .p = p };
    TN_RETURN_IF(tn_lab_runs(db, runs, sizeof runs));
    tn_trial_host h = { .plan = p, .runs = runs };
    tn_campaign crew = { .plan = p, .sides = sides };
    char text[64];
    tn_status s = TN_OK;
    TN_RETURN_IF(tn_shared_new(&h.shared));
    if (!c->json)
        fprintf(c->out, "%-12s %6s %10s %8s %7s %9s %8s %8s  %s\n", "side", "trials", "parameters", "tokens", "steps",
                "memory", "s/step", "s/trial", p->parameters ? "width" : "");
    for (size_t i = 0; i < p->n_sides && s == TN_OK; i++)
        if (tn_side_in(sides, i)) s = probe_side(&k, &h, i, trials);
    tn_context_slot_free(&h.context_slot);
    tn_shared_free(h.shared);
    if (s != TN_OK || c->json) return s;
    tn_campaign_crew(p, k.device, workers, lanes, &crew);
    const double at_once = k.device == TN_CUDA ? 1 : crew.workers * crew.lanes; /* lanes on a GPU share it */
    fprintf(c->out, "%lld trials, ", (long long)k.trials);
    if (isnan(k.seconds)) fputs("time unknown: environments are not run for a plan\n", c->out);
    else {
        const double seconds = k.seconds / at_once;
        fprintf(c->out, "about %.*f %s with %s on an idle machine\n", seconds < 120 || seconds >= 600 ? 0 : 1,
                seconds < 120 ? ceil(seconds) : seconds / 60, seconds < 120 ? "seconds" : "minutes",
                tn_campaign_crew_text(&crew, text));
    }
    return TN_OK;
}
