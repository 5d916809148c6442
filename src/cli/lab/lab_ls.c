/* tenon lab ls, best, show: what is in a database. */
#include "base/clock.h"
#include "cli/lab/lab_view.h"
#include "lab/statistics/select.h"
#include "lab/study/study.h"

#include <math.h>
#include <string.h>

/* --- ls ---------------------------------------------------------------------------------------------------------------------- */

/* "  runs tep/12, tep/13": by name, the first few. */
static void put_running(tn_cli *c, const tn_study *s, size_t side)
{
    enum { SHOWN = 16 };
    char name[128];
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        const tn_trial *t = &s->trials[i];
        if (t->side != (int)side || t->state != TN_TRIAL_RUNNING || t->kind == TN_TRIAL_COMPARE || n++ >= SHOWN)
            continue;
        tn_trial_name(s, t, name, sizeof name);
        fprintf(c->out, "%s%s", n == 1 ? "; running " : ", ", name);
    }
    if (n > SHOWN) fprintf(c->out, " and %zu more", n - SHOWN);
}

static tn_status put_study(tn_cli *c, const tn_study *s, tn_arena *a)
{
    for (size_t side = 0; side < s->n_sides; side++) {
        size_t count[TN_TRIAL_STATES] = { 0 };
        tn_selection e;
        double volume;
        char best[24];
        for (size_t i = 0; i < s->n; i++)
            if (s->trials[i].side == (int)side && s->trials[i].kind != TN_TRIAL_COMPARE) count[s->trials[i].state]++;
        TN_RETURN_IF(tn_select_ended(s, (int)side, a, &e));
        TN_RETURN_IF(tn_select_volume(s, &e, &volume));
        tn_select_sort(s, 0, e.trial, e.n);
        const double top = e.n && e.trial[0]->state == TN_TRIAL_DONE && e.trial[0]->y ? e.trial[0]->y[0] : NAN;
        if (c->json) {
            TN_RETURN_IF(
                tn_cli_emit(c, json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o*}", "name",
                                         "study", "study", s->name, "side", s->sides[side].name, "planned",
                                         (json_int_t)s->planned, "waiting", (json_int_t)count[0], "running",
                                         (json_int_t)count[1], "done", (json_int_t)count[2], "pruned",
                                         (json_int_t)count[3], "failed", (json_int_t)count[4], "timeout",
                                         (json_int_t)count[5], "best", tn_number_or_null(top), "hypervolume",
                                         tn_number_or_null(volume), "published", tn_lab_quoted_json(s, side))));
            continue;
        }
        fprintf(c->out,
                "%s%s%-*s %lld planned: %zu done, %zu pruned, %zu failed, %zu timeout, %zu running, %zu waiting; best "
                "%s %s",
                s->name, s->sides[side].name[0] ? "/" : "", s->sides[side].name[0] ? 8 : 1, s->sides[side].name,
                (long long)s->planned, count[TN_TRIAL_DONE], count[TN_TRIAL_PRUNED], count[TN_TRIAL_FAILED],
                count[TN_TRIAL_TIMEOUT], count[TN_TRIAL_RUNNING], count[TN_TRIAL_WAITING], s->objectives[0].name,
                tn_lab_number(top, best));
        if (!isnan(volume)) fprintf(c->out, ", hypervolume %.6g", volume);
        put_running(c, s, side);
        fputc('\n', c->out);
        tn_lab_quoted_line(c, s, side);
    }
    return TN_OK;
}

static tn_status each_study(tn_cli *c, tn_lab *lab, tn_arena *a)
{
    const char *const *names;
    size_t n;
    tn_study *s;
    TN_RETURN_IF(tn_lab_studies(lab, a, &names, &n));
    for (size_t i = 0; i < n; i++) {
        TN_RETURN_IF(tn_lab_load(lab, names[i], &s));
        tn_status st = tn_lab_view_quote(c, s);
        if (st == TN_OK) st = put_study(c, s, a);
        tn_study_free(s);
        TN_RETURN_IF(st);
    }
    return TN_OK;
}

/* ls DB: the studies; ls DB trials: every trial of one. */
tn_status tn_lab_ls(tn_cli *c)
{
    tn_lab_view v = { 0 };
    tn_arena a = { 0 };
    tn_status s = TN_OK;
    const char *what = tn_args_positional(&c->args, 2);
    if (what) {
        if (strcmp(what, "trials") != 0)
            return tn_error(
                TN_USAGE,
                "unexpected argument %.32s: use `lab ls DB` or `lab ls DB trials` (--study=NAME chooses a study)",
                what);
        TN_RETURN_IF(tn_lab_view_open(c, 0, 1, TN_LAB_READ, &v));
        tn_lab_table_head(c, v.study);
        for (size_t i = 0; s == TN_OK && i < v.study->n; i++) s = tn_lab_table_row(c, v.study, &v.study->trials[i]);
        tn_lab_view_close(&v);
        return s;
    }
    s = tn_lab_view_open(c, 0, 0, TN_LAB_BARE, &v);
    if (s == TN_OK) s = each_study(c, v.lab, &a);
    tn_arena_free(&a);
    tn_lab_view_close(&v);
    return s;
}

/* --- best -------------------------------------------------------------------------------------------------------------------- */

tn_status tn_lab_best(tn_cli *c)
{
    tn_lab_view v;
    tn_arena a = { 0 };
    int64_t count = 5;
    size_t objective = 0;
    TN_RETURN_IF(tn_lab_view_open(c, 0, 0, TN_LAB_READ, &v));
    tn_status s = tn_args_whole(&c->args, "count", 1, 1000000000, &count);
    if (s == TN_OK) s = tn_lab_view_objective(c, v.study, &objective);
    if (s == TN_OK) tn_lab_table_head(c, v.study);
    for (size_t side = 0; s == TN_OK && side < v.study->n_sides; side++) {
        tn_selection e;
        size_t shown = 0;
        s = tn_select_ended(v.study, (int)side, &a, &e);
        if (s != TN_OK) break;
        const bool front = tn_args_flag(&c->args, "front");
        for (size_t i = 0; front && i < e.n; i++)
            if (e.front[i]) e.trial[shown++] = e.trial[i];
        if (front) e.n = shown;
        tn_select_sort(v.study, objective, e.trial, e.n);
        for (size_t i = 0; s == TN_OK && i < e.n && (front || i < (size_t)count) && e.trial[i]->state == TN_TRIAL_DONE;
             i++)
            s = tn_lab_table_row(c, v.study, e.trial[i]);
    }
    if (s == TN_OK && v.study->published) s = tn_lab_published(c, v.study);
    if (s == TN_OK)
        tn_lab_next(c, v.study->n_sides > 1 ? "compare" : "plot", tn_args_positional(&c->args, 1), v.study->name);
    tn_arena_free(&a);
    tn_lab_view_close(&v);
    return s;
}

/* --- show -------------------------------------------------------------------------------------------------------------------- */

/* What the study names: objectives, what its pruner compares and what its rules watch. */
static bool is_named(const tn_study_plan *p, const char *metric)
{
    for (size_t k = 0; k < p->n_objectives; k++)
        if (strcmp(p->objectives[k].name, metric) == 0) return true;
    for (size_t k = 0; k < p->n_rules; k++)
        if (strcmp(p->rules[k].metric, metric) == 0) return true;
    return strcmp(p->prune_by, metric) == 0;
}

/* The columns of a curve: what the study names, or with --all (and where it names nothing that was reported) everything. */
static tn_status columns_of(const tn_cli *c, const tn_study *s, tn_arena *a, const tn_trial_curve *v, size_t **column,
                            size_t *n)
{
    tn_study_plan plan;
    size_t *list = tn_arena_alloc(a, sizeof *list * (v->metrics + 1));
    if (!list) return tn_error(TN_MEMORY, "out of memory");
    TN_RETURN_IF(tn__study_plan_of(s, a, &plan));
    *n = 0;
    for (size_t k = 0; k < v->metrics; k++)
        if (!tn_args_flag(&c->args, "all") && is_named(&plan, v->name[k])) list[(*n)++] = k;
    for (size_t k = 0, none = *n == 0; none && k < v->metrics; k++) list[(*n)++] = k;
    *column = list;
    return TN_OK;
}

static void put_curve_table(tn_cli *c, const tn_trial_curve *v, const size_t *column, size_t n)
{
    char number[24];
    if (!v->n) return;
    fprintf(c->out, "%8s %8s", "step", "epoch");
    for (size_t k = 0; k < n; k++) fprintf(c->out, " %14.14s", v->name[column[k]]);
    fputc('\n', c->out);
    for (size_t i = 0; i < v->n; i++) {
        fprintf(c->out, "%8lld %8.2f", (long long)v->step[i], v->epoch[i]);
        for (size_t k = 0; k < n; k++)
            fprintf(c->out, " %14s", tn_lab_number(v->value[i * v->metrics + column[k]], number));
        fputc('\n', c->out);
    }
    if (n == v->metrics) return;
    fputs("            --all also shows", c->out);
    for (size_t k = 0, at = 0; k < v->metrics; k++)
        if (at < n && column[at] == k) at++;
        else fprintf(c->out, " %s", v->name[k]);
    fputc('\n', c->out);
}

static tn_status emit_curve(tn_cli *c, const tn_trial_curve *v)
{
    for (size_t i = 0; i < v->n; i++) {
        json_t *o =
            json_pack("{s:s, s:I, s:f}", "name", "evaluation", "step", (json_int_t)v->step[i], "epoch", v->epoch[i]);
        for (size_t k = 0; k < v->metrics; k++) {
            const double y = v->value[i * v->metrics + k];
            json_object_set_new(o, v->name[k], tn_number_or_null(y));
        }
        TN_RETURN_IF(tn_cli_emit(c, o));
    }
    return TN_OK;
}

static tn_status put_curve(tn_cli *c, const tn_study *study, tn_lab *lab, const tn_trial *t)
{
    tn_arena a = { 0 };
    tn_trial_curve v;
    size_t *column = NULL, n = 0;
    tn_status s = tn_lab_curve(lab, t->id, &a, &v);
    if (s == TN_OK && c->json) s = emit_curve(c, &v);
    else if (s == TN_OK) {
        s = columns_of(c, study, &a, &v, &column, &n);
        if (s == TN_OK) put_curve_table(c, &v, column, n);
    }
    tn_arena_free(&a);
    return s;
}

static void put_trial(tn_cli *c, const tn_study *s, const tn_trial *t)
{
    char name[128], number[24];
    const tn_space *space = &s->sides[t->side].space;
    tn_trial_name(s, t, name, sizeof name);
    fprintf(c->out, "trial       %s of study %s, %s, seed %llu, started %d time%s", name, s->name,
            tn_trial_state_name(t->state), (unsigned long long)t->seed, t->attempt, t->attempt == 1 ? "" : "s");
    if (isfinite(t->seconds)) fprintf(c->out, ", %.1f s of work", t->seconds);
    fputc('\n', c->out);
    if (t->error && t->error[0]) fprintf(c->out, "error       %s\n", t->error);
    for (size_t k = 0; k < s->n_objectives; k++)
        fprintf(c->out, "objective   %-24s %s\n", s->objectives[k].name, tn_lab_number(t->y ? t->y[k] : NAN, number));
    for (size_t k = 0; t->x && k < space->n; k++) {
        if (isnan(t->x[k])) continue;
        tn_dim_text(&space->dims[k], t->x[k], name, sizeof name);
        fprintf(c->out, "setting     %-24s %s\n", space->dims[k].key, name);
    }
}

tn_status tn_lab_show(tn_cli *c)
{
    tn_lab_view v;
    const tn_trial *t = NULL;
    TN_RETURN_IF(tn_lab_view_open(c, 1, 1, TN_LAB_READ, &v));
    tn_status s = tn_select_named(v.study, tn_args_positional(&c->args, 2), &t);
    if (s == TN_OK && c->json) s = tn_lab_table_row(c, v.study, t);
    else if (s == TN_OK) put_trial(c, v.study, t);
    if (s == TN_OK) s = put_curve(c, v.study, v.lab, t);
    tn_lab_view_close(&v);
    return s;
}
