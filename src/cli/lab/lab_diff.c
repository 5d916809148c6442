/* tenon lab diff: two trials side by side: what was set differently, what came out, where their curves part. */
#include "cli/lab/lab_view.h"
#include "lab/statistics/select.h"

#include <math.h>
#include <string.h>

static bool text_of(const tn_study *s, const tn_trial *t, const char *key, char out[128])
{
    const tn_space *space = &s->sides[t->side].space;
    snprintf(out, 128, "-");
    for (size_t k = 0; t->x && k < space->n; k++) {
        if (strcmp(space->dims[k].key, key) != 0 || isnan(t->x[k])) continue;
        tn_dim_text(&space->dims[k], t->x[k], out, 128);
        return true;
    }
    return false;
}

static tn_status put_line(tn_cli *c, const char *what, const char *key, const char *a, const char *b)
{
    if (c->json) return tn_cli_emit(c, json_pack("{s:s, s:s, s:s, s:s}", "name", what, "key", key, "a", a, "b", b));
    fprintf(c->out, "%-10s %-26s %20s %20s\n", what, key, a, b);
    return TN_OK;
}

static tn_status put_settings(tn_cli *c, const tn_study *s, const tn_trial *const t[2])
{
    char a[128], b[128];
    for (int side = 0; side < 2; side++) {
        const tn_space *space = &s->sides[t[side]->side].space;
        for (size_t k = 0; k < space->n; k++) {
            const char *key = space->dims[k].key;
            const bool in_a = text_of(s, t[0], key, a), in_b = text_of(s, t[1], key, b);
            if ((side == 1 && in_a) || (!in_a && !in_b) || strcmp(a, b) == 0)
                continue; /* those of the first were said */
            TN_RETURN_IF(put_line(c, "setting", key, a, b));
        }
    }
    return TN_OK;
}

/* The first evaluation of the same step whose numbers differ in any bit. */
static tn_status put_parting(tn_cli *c, tn_lab *lab, const tn_trial *const t[2])
{
    tn_arena arena = { 0 };
    tn_trial_curve v[2];
    char a[24], b[24], what[96];
    tn_status s = tn_lab_curve(lab, t[0]->id, &arena, &v[0]);
    if (s == TN_OK) s = tn_lab_curve(lab, t[1]->id, &arena, &v[1]);
    const size_t n = s != TN_OK ? 0 : v[0].n < v[1].n ? v[0].n : v[1].n;
    bool found = false;
    for (size_t i = 0; !found && i < n && v[0].step[i] == v[1].step[i]; i++)
        for (size_t k = 0; !found && k < v[0].metrics; k++) {
            size_t m = 0;
            while (m < v[1].metrics && strcmp(v[1].name[m], v[0].name[k]) != 0) m++;
            if (m == v[1].metrics) continue;
            const double x = v[0].value[i * v[0].metrics + k], y = v[1].value[i * v[1].metrics + m];
            if (memcmp(&x, &y, sizeof x) == 0 || (isnan(x) && isnan(y))) continue;
            snprintf(what, sizeof what, "%.48s after step %lld", v[0].name[k], (long long)v[0].step[i]);
            s = put_line(c, "parting", what, tn_lab_number(x, a), tn_lab_number(y, b));
            found = true;
        }
    if (s == TN_OK && n && !found && !c->json) fprintf(c->out, "the curves are bit-identical for %zu evaluations\n", n);
    tn_arena_free(&arena);
    return s;
}

tn_status tn_lab_diff(tn_cli *c)
{
    tn_lab_view v;
    const tn_trial *t[2];
    char a[128], b[128];
    TN_RETURN_IF(tn_lab_view_open(c, 2, 2, TN_LAB_READ, &v));
    tn_status s = tn_select_named(v.study, tn_args_positional(&c->args, 2), &t[0]);
    if (s == TN_OK) s = tn_select_named(v.study, tn_args_positional(&c->args, 3), &t[1]);
    if (s == TN_OK && !c->json) {
        tn_trial_name(v.study, t[0], a, sizeof a);
        tn_trial_name(v.study, t[1], b, sizeof b);
        fprintf(c->out, "%-37s %20s %20s\n", "", a, b);
    }
    if (s == TN_OK) s = put_settings(c, v.study, t);
    if (s == TN_OK && t[0]->seed != t[1]->seed) {
        snprintf(a, sizeof a, "%llu", (unsigned long long)t[0]->seed);
        snprintf(b, sizeof b, "%llu", (unsigned long long)t[1]->seed);
        s = put_line(c, "setting", "seed", a, b);
    }
    if (s == TN_OK) s = put_line(c, "state", "", tn_trial_state_name(t[0]->state), tn_trial_state_name(t[1]->state));
    for (size_t k = 0; s == TN_OK && k < v.study->n_objectives; k++)
        s = put_line(c, "objective", v.study->objectives[k].name, tn_lab_number(t[0]->y ? t[0]->y[k] : NAN, a),
                     tn_lab_number(t[1]->y ? t[1]->y[k] : NAN, b));
    if (s == TN_OK) s = put_parting(c, v.lab, t);
    tn_lab_view_close(&v);
    return s;
}
