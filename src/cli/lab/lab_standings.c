/* tenon lab compare --against=SIDE: every side in one line, against that one; what was asked of one side in a line of its own. */
#include "cli/lab/lab_view.h"

#include "lab/statistics/select.h"
#include "lab/statistics/standings.h"

#include <math.h>
#include <string.h>

static tn_status side_named(const tn_study *s, const tn_comparison *k, const char *flag, const char *name, int *out)
{
    int i = 0;
    TN_RETURN_IF(tn_lab_view_side(s, flag, name, &i));
    if (!tn_side_in(k->sides, (size_t)i))
        return tn_error(
            TN_USAGE, "--%s=%s: the side has no finished trial, or is not in --sides: run it first, or choose another",
            flag, name);
    *out = i;
    return TN_OK;
}

tn_status tn_lab_standings_ask(const tn_cli *c, const tn_study *s, const tn_comparison *k, int *against, int *asked)
{
    const char *side = tn_args_value(&c->args, "side");
    *asked = -1;
    TN_RETURN_IF(side_named(s, k, "against", tn_args_value(&c->args, "against"), against));
    if (side) TN_RETURN_IF(side_named(s, k, "side", side, asked));
    if (*asked == *against)
        return tn_error(TN_USAGE, "--side=%s is the side that --against names: choose another one", side);
    return TN_OK;
}

/* "29.4M", "1.02k", "3.408" */
static const char *short_number(double v, char buf[24])
{
    static const char *const units[] = { "", "k", "M", "G", "T" };
    size_t i = 0;
    if (!isfinite(v)) return "-";
    for (; fabs(v) >= 9999.5 && i + 1 < sizeof units / sizeof *units; i++) v /= 1000;
    if (i && fabs(v) < 100) snprintf(buf, 24, "%.3g%s", v, units[i]);
    else snprintf(buf, 24, i ? "%.0f%s" : "%.4g%s", v, units[i]);
    return buf;
}

/* --- the table -------------------------------------------------------------------------------------------------------- */

static int name_width(const tn_study *s)
{
    int w = 4;
    for (size_t i = 0; i < s->n_sides; i++) w = (int)strlen(s->sides[i].name) > w ? (int)strlen(s->sides[i].name) : w;
    return w;
}

static void put_head(tn_cli *c, const tn_study *s, int against)
{
    char minus[64];
    snprintf(minus, sizeof minus, "minus %.20s", s->sides[against].name);
    fprintf(c->out, "%-*s %5s %8s %8s %8s  %14s %18s %8s  %-14s", name_width(s), "side", "seeds", "valid", "test", "+-",
            minus, "95 % interval", "p Holm", "verdict");
    for (size_t k = 1; k < s->n_objectives; k++) fprintf(c->out, " %13.13s", s->objectives[k].name);
    fputs("  settings\n", c->out);
}

static void put_row(tn_cli *c, const tn_study *s, const tn_standing *v)
{
    char half[24] = "-";
    if (!isnan(v->half)) snprintf(half, sizeof half, "%.4f", v->half);
    char number[24], interval[64] = "", difference[24] = "", p[24] = "", word[32] = "";
    if (v->paired.n) {
        snprintf(difference, sizeof difference, "%+.4f", v->paired.difference);
        if (v->paired.n > 1) snprintf(interval, sizeof interval, "%+.4f..%+.4f", v->paired.lo, v->paired.hi);
        snprintf(p, sizeof p, "%.2g", v->p_adjusted);
        tn_lab_verdict_short(&v->judged, word, sizeof word);
    }
    fprintf(c->out, "%-*s %5zu %8.4f %8.4f %8s  %14s %18s %8s  %-14s", name_width(s), s->sides[v->runs.side].name,
            v->runs.n, v->runs.validation, v->mean, half, difference, interval, p, word);
    for (size_t k = 1; k < s->n_objectives; k++) fprintf(c->out, " %13s", short_number(v->y[k], number));
    fputs("  ", c->out);
    tn_lab_point_text(s, v->runs.of, c->out);
    fputc('\n', c->out);
}

static tn_status emit_row(tn_cli *c, const tn_study *s, const tn_standing *v, int against)
{
    char of[128];
    tn_trial_name(s, v->runs.of, of, sizeof of);
    json_t *row =
        json_pack("{s:s, s:s, s:s, s:I, s:s, s:f, s:f, s:o}", "name", "standing", "side", s->sides[v->runs.side].name,
                  "trial", of, "seeds", (json_int_t)v->runs.n, "objective", s->objectives[0].name, "validation",
                  v->runs.validation, "test", v->mean, "half", tn_number_or_null(v->half));
    for (size_t k = 1; row && k < s->n_objectives; k++)
        json_object_set_new(row, s->objectives[k].name, tn_number_or_null(v->y[k]));
    if (row && v->paired.n) {
        json_object_set_new(row, "against", json_string(s->sides[against].name));
        tn_lab_verdict_json(row, &v->paired, &v->judged, s->sides[v->runs.side].name, s->sides[against].name);
        json_object_set_new(row, "p_holm", json_real(v->p_adjusted));
    }
    return tn_cli_emit(c, row);
}

/* The question that was asked beforehand is one comparison: nothing is corrected for. */
static tn_status put_verdict(tn_cli *c, const tn_study *s, const tn_standing *v, int against, double effect)
{
    const tn_paired *r = &v->paired;
    const char *a = s->sides[v->runs.side].name, *b = s->sides[against].name;
    char words[256];
    tn_judged j;
    tn_compare_outcome(s, r, r->p, 1, effect, &j);
    if (c->json) {
        json_t *row =
            json_pack("{s:s, s:s, s:s, s:s}", "name", "verdict", "objective", s->objectives[0].name, "a", a, "b", b);
        if (row) tn_lab_verdict_json(row, r, &j, a, b);
        return tn_cli_emit(c, row);
    }
    fprintf(c->out, "verdict: test %s of %s %.4f, of %s %.4f: difference %+.4f, ", s->objectives[0].name, a, r->mean_a,
            b, r->mean_b, r->difference);
    if (r->n > 1) fprintf(c->out, "95 %% interval %+.4f to %+.4f, p %.2g ", r->lo, r->hi, r->p);
    fprintf(c->out, "(%zu common seed%s): %s\n", r->n, r->n > 1 ? "s" : "",
            tn_verdict_text(r, &j, a, b, words, sizeof words));
    return TN_OK;
}

static tn_status put_all(tn_cli *c, const tn_study *s, const tn_standing *v, size_t n, int against, int asked,
                         double effect)
{
    if (!c->json) put_head(c, s, against);
    for (size_t i = 0; i < n; i++) {
        if (c->json) TN_RETURN_IF(emit_row(c, s, &v[i], against));
        else put_row(c, s, &v[i]);
    }
    for (size_t i = 0; i < n && asked >= 0; i++)
        if (v[i].runs.side == asked) return put_verdict(c, s, &v[i], against, effect);
    return TN_OK;
}

tn_status tn_lab_standings(tn_cli *c, tn_lab *lab, const tn_study *s, const tn_comparison *k, double effect,
                           tn_arena *arena)
{
    tn_standing *v;
    tn_plot curves;
    FILE *f;
    size_t n;
    int against, asked;
    TN_RETURN_IF(tn_lab_standings_ask(c, s, k, &against, &asked));
    TN_RETURN_IF(tn_standings(s, lab, k, against, effect, arena, &v, &n));
    TN_RETURN_IF(put_all(c, s, v, n, against, asked, effect));
    if (!tn_args_value(&c->args, "svg")) return TN_OK;
    TN_RETURN_IF(tn_standings_curves(s, lab, v, n, arena, &curves));
    TN_RETURN_IF(tn_lab_view_file(c, "svg", &f));
    return tn_lab_view_put(c, "svg", f, tn_plot_svg(&curves, f));
}
