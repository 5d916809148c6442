/* tenon lab compare: the best points of each side again on common seeds, and what that says. */
#include "cli/lab/lab_campaign.h"
#include "cli/lab/lab_view.h"
#include "lab/db/trials.h"
#include "lab/statistics/compare.h"
#include "lab/statistics/select.h"
#include "lab/worker/trial_run.h"
#include "lab/worker/worker.h"

#include <math.h>
#include <string.h>

typedef struct request {
    size_t top, seeds;
    int workers, lanes; /* 0: not said */
    tn_side_set sides;
    double effect; /* NaN: not said */
} request;

/* A study with `seeds` has run what is compared: all its points, on its seeds. */
static tn_status read_request(const tn_cli *c, const tn_study_plan *p, request *r)
{
    int64_t top = p->seeds ? TN_COMPARE_TOP : 3, seeds = p->seeds ? p->seeds : 10, workers = 0, lanes = 0;
    TN_RETURN_IF(tn_args_whole(&c->args, "top", 1, TN_COMPARE_TOP, &top));
    TN_RETURN_IF(tn_args_whole(&c->args, "seeds", 1, TN_SEEDS_MOST, &seeds));
    TN_RETURN_IF(tn_args_whole(&c->args, "workers", 1, TN_CAMPAIGN_WORKERS, &workers));
    TN_RETURN_IF(tn_args_whole(&c->args, "lanes", 1, TN_WORKER_LANES, &lanes));
    *r = (request){ .top = (size_t)top, .seeds = (size_t)seeds, .workers = (int)workers, .lanes = (int)lanes };
    TN_RETURN_IF(tn_lab_effect(c, &r->effect));
    return tn_args_value(&c->args, "sides") ? tn_side_set_parse(p, tn_args_value(&c->args, "sides"), &r->sides) : TN_OK;
}

static bool there_already(const tn_study *s, const tn_trial *of, uint64_t seed)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->trials[i].kind == TN_TRIAL_COMPARE && s->trials[i].config == of->id && s->trials[i].seed == seed)
            return true;
    return false;
}

/* Points that several efforts chose are run once. efforts: how many of them are asked about. */
static tn_status enqueue(tn_lab *lab, const tn_study *s, const tn_study_plan *p, const tn_comparison *k, size_t efforts,
                         size_t seeds, tn_arena *arena, size_t *points)
{
    const tn_trial **chosen = tn_arena_alloc(arena, sizeof *chosen * TN_EFFORTS * s->n_sides * TN_COMPARE_TOP);
    size_t n = 0;
    if (!chosen) return tn_error(TN_MEMORY, "out of memory");
    for (size_t i = 0; i < efforts * s->n_sides; i++)
        for (size_t m = 0; m < k->contenders[i].n; m++) {
            size_t at = 0;
            while (at < n && chosen[at] != k->contenders[i].trial[m]) at++;
            if (at == n) chosen[n++] = k->contenders[i].trial[m];
        }
    for (size_t seed = 0; seed < seeds; seed++) /* seed by seed, so that a verdict is possible early */
        for (size_t i = 0; i < n; i++)
            if (!there_already(s, chosen[i], TN_FIRST_SEED + seed))
                TN_RETURN_IF(tn_lab_enqueue(lab, s->id, p, (size_t)chosen[i]->side, TN_TRIAL_COMPARE, chosen[i]->id,
                                            TN_FIRST_SEED + seed, chosen[i]->x));
    *points = n;
    return TN_OK;
}

static tn_status emit_verdict(tn_cli *c, const tn_study *s, const tn_comparison *k, const tn_verdict *v, const char *a,
                              const char *b)
{
    const tn_paired *r = &v->paired;
    json_t *row =
        json_pack("{s:s, s:s, s:f, s:s, s:s, s:s, s:I, s:f, s:f, s:f, s:o}", "name", "verdict", "equal",
                  tn_effort_name(v->effort), "effort", k->effort[v->effort], "objective", s->objectives[0].name, "a", a,
                  "b", b, "pairs", (json_int_t)r->n, "mean_a", r->mean_a, "mean_b", r->mean_b, "p_holm", v->p_adjusted,
                  "effect", tn_number_or_null(isfinite(r->effect) ? r->effect : NAN));
    if (row) tn_lab_verdict_json(row, r, &v->judged, s->sides[v->a].name, s->sides[v->b].name);
    return tn_cli_emit(c, row);
}

/* "equal trials (12), seconds (80)": at all efforts that compare the same two points. */
static void put_efforts(tn_cli *c, const tn_comparison *k, const tn_verdict *v, size_t n, size_t first)
{
    char text[128] = "equal", spent[24];
    size_t used = strlen(text);
    for (size_t i = first; i < n && used < sizeof text; i++)
        if (v[i].first == first)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s %s (%s)", i == first ? "" : ",",
                                     tn_effort_name(v[i].effort), tn_lab_number(round(k->effort[v[i].effort]), spent));
    fprintf(c->out, "%s: ", text);
}

static tn_status put_verdict(tn_cli *c, const tn_study *s, const tn_comparison *k, const tn_verdict *v, size_t n,
                             size_t i)
{
    const tn_paired *r = &v[i].paired;
    char a[128], b[128], words[256];
    tn_trial_name(s, v[i].of_a, a, sizeof a);
    tn_trial_name(s, v[i].of_b, b, sizeof b);
    if (c->json) return emit_verdict(c, s, k, &v[i], a, b);
    if (v[i].first < i) return TN_OK;
    put_efforts(c, k, v, n, i);
    fprintf(c->out, "%s %.4f, %s %.4f: difference %+.4f, ", a, r->mean_a, b, r->mean_b, r->difference);
    if (r->n > 1)
        fprintf(c->out, "95 %% interval %+.4f to %+.4f, p %.3g (Holm %.3g), effect %+.2f, ", r->lo, r->hi, r->p,
                v[i].p_adjusted, r->effect);
    fprintf(c->out, "%zu pair%s: %s\n", r->n, r->n > 1 ? "s" : "",
            tn_verdict_text(r, &v[i].judged, s->sides[v[i].a].name, s->sides[v[i].b].name, words, sizeof words));
    return TN_OK;
}

static tn_status judge(tn_cli *c, tn_lab *lab, const tn_study *s, const request *r, tn_arena *arena)
{
    tn_comparison k;
    tn_verdict *v;
    size_t n;
    TN_RETURN_IF(tn_compare_pick(s, lab, r->sides, r->top, arena, &k)); /* the same again: the search has not gone on */
    if (!c->json)
        fprintf(c->out,
                "%s on the test split; each side is represented by its best point on validation, of its top %lld\n",
                s->objectives[0].name, (long long)((int64_t)r->top < s->planned ? (int64_t)r->top : s->planned));
    if (tn_args_value(&c->args, "against")) return tn_lab_standings(c, lab, s, &k, r->effect, arena);
    TN_RETURN_IF(tn_compare_judge(s, lab, &k, r->effect, arena, &v, &n));
    for (size_t i = 0; i < n; i++) TN_RETURN_IF(put_verdict(c, s, &k, v, n, i));
    if (isnan(k.effort[TN_EFFORT_EVALUATIONS]) && !c->json)
        fputs("equal block evaluations: not counted by these models\n", c->out);
    return TN_OK;
}

/* Where its points run, by the first of them. One that cannot be opened is for its trial to say. */
static tn_status find_device(const tn_study_plan *p, const tn_comparison *k, tn_device *device)
{
    tn_trial_host h = { .plan = p, .runs = "" };
    const tn_contenders *of = k->contenders;
    for (size_t i = 0; i < p->n_sides && !of->n; i++) of = &k->contenders[i]; /* a side that is left out has none */
    TN_RETURN_IF(tn_shared_new(&h.shared));
    bool testable = true;
    if (of->n) (void)tn_trial_try(&h, (size_t)of->trial[0]->side, of->trial[0]->x, device, &testable);
    tn_context_slot_free(&h.context_slot);
    tn_shared_free(h.shared);
    if (testable) return TN_OK;
    tn_trial_untested();
    tn_error_prefix("%s", p->name);
    return TN_USAGE;
}

/* What cannot be answered is better said before anything is trained; so is what is left out. */
static tn_status can_answer(tn_cli *c, const tn_study *s, const tn_study_plan *p, const request *r,
                            const tn_comparison *k)
{
    const size_t n = tn_side_count(k->sides, p->n_sides);
    char names[512];
    int against, asked;
    if (n < tn_side_count(r->sides, p->n_sides)) {
        tn_side_set without = 0;
        for (size_t i = 0; i < p->n_sides; i++)
            without |= (tn_side_set)(tn_side_in(r->sides, i) && !tn_side_in(k->sides, i)) << i;
        fprintf(c->err, "note    skipped, no finished trial: %s\n", tn_side_set_text(p, without, names, sizeof names));
    }
    if (tn_args_value(&c->args, "against")) return tn_lab_standings_ask(c, s, k, &against, &asked);
    if (n >= 2) return TN_OK;
    return tn_error(TN_USAGE,
                    "a comparison needs two sides with finished trials, and only %s has one: run others first, or add "
                    "them to --sides",
                    tn_side_set_text(p, k->sides, names, sizeof names));
}

static tn_status run_again(tn_cli *c, tn_lab_view *v, const tn_study_plan *plan, const request *r, tn_arena *arena)
{
    tn_comparison k;
    size_t points = 0;
    tn_device device = TN_CPU;
    char crew[64];
    TN_RETURN_IF(tn_compare_pick(v->study, v->lab, r->sides, r->top, arena, &k));
    TN_RETURN_IF(can_answer(c, v->study, plan, r, &k));
    TN_RETURN_IF(find_device(plan, &k, &device));
    /* A table against one side is about equal trials alone, which come first. */
    const size_t efforts = tn_args_value(&c->args, "against") ? TN_EFFORT_TRIALS + 1 : TN_EFFORTS;
    TN_RETURN_IF(enqueue(v->lab, v->study, plan, &k, efforts, r->seeds, arena, &points));
    tn_campaign run = { .plan = plan, .lab = v->lab, .study = v->study->id, .compare = true, .sides = k.sides };
    tn_campaign_crew(plan, device, r->workers, r->lanes, &run);
    fprintf(c->err, "compare %s: %zu points on %zu common seeds; %s   (rerun this command to resume)\n", v->study->name,
            points, r->seeds, tn_campaign_crew_text(&run, crew));
    return tn_campaign_run(c, &run);
}

tn_status tn_lab_compare(tn_cli *c)
{
    tn_lab_view v = { 0 };
    tn_arena arena = { 0 };
    request r;
    tn_study_plan plan;
    tn_study *after = NULL;
    const size_t words = c->args.positional_n > 2 ? c->args.positional_n - 2 : 0;
    TN_RETURN_IF(tn_lab_objects(c, 2));
    tn_status s = tn_lab_view_open(c, 0, words, TN_LAB_WRITE, &v);
    if (s == TN_OK) s = tn__study_plan_of(v.study, &arena, &plan);
    if (s == TN_OK) plan.user = &c->user;
    if (s == TN_OK) s = tn_study_check(&plan);
    if (s == TN_OK) s = read_request(c, &plan, &r);
    if (s == TN_OK) s = run_again(c, &v, &plan, &r, &arena);
    if (s == TN_OK) s = tn_lab_load(v.lab, v.study->name, &after);
    if (s == TN_OK) s = judge(c, v.lab, after, &r, &arena);
    if (s == TN_OK) tn_lab_next(c, "plot", tn_args_positional(&c->args, 1), v.study->name);
    tn_study_free(after);
    tn_arena_free(&arena);
    tn_lab_view_close(&v);
    return s;
}
