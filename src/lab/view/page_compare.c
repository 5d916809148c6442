/* The comparison of a study's sides on its page, from the trials that `tenon lab compare` has run. Nothing is trained here. */
#include "lab/statistics/compare.h"
#include "lab/statistics/select.h"
#include "lab/view/view.h"
#include "report/chart/html.h"

#include <math.h>
#include <string.h>

enum { NAME = 128 };

/* A line for each point that represents a side: its results on the test split. */
static tn_status put_side(const tn_study *s, const tn_side_runs *r, tn_arena *arena, FILE *out)
{
    char name[NAME];
    double mean, half = NAN, *v = tn_arena_alloc(arena, sizeof *v * (r->n + 1));
    if (!v) return TN_MEMORY;
    for (size_t i = 0; i < r->n; i++) v[i] = r->trial[i]->y[0];
    mean = r->n ? v[0] : NAN;
    if (r->n > 1) tn_mean_interval(v, r->n, &mean, &half);
    if (r->of) tn_trial_name(s, r->of, name, sizeof name);
    fputs("<tr>", out), tn_html_tag(out, "td", s->sides[r->side].name), tn_html_tag(out, "td", r->of ? name : "-");
    fprintf(out, "<td>%zu</td>", r->n), tn_html_number(out, mean), tn_html_number(out, half),
        tn_html_number(out, r->n ? r->validation : NAN);
    fputs("</tr>\n", out);
    return TN_OK;
}

static tn_status put_sides(const tn_study *s, tn_lab *lab, const tn_comparison *k, tn_arena *arena, FILE *out)
{
    fputs("<div class=\"wide\"><table><tr><th>side</th><th>trial</th><th>seeds</th><th>mean</th><th>&plusmn; 95 %</th>"
          "<th>validation</th></tr>\n",
          out);
    for (size_t i = 0; i < s->n_sides; i++) {
        tn_side_runs r;
        if (!tn_side_in(k->sides, i)) continue;
        TN_RETURN_IF(
            tn_compare_representative(s, lab, &k->contenders[(size_t)TN_EFFORT_TRIALS * s->n_sides + i], arena, &r));
        TN_RETURN_IF(put_side(s, &r, arena, out));
    }
    fputs("</table></div>\n", out);
    return TN_OK;
}

/* "trials, seconds": the efforts at which the same two points are compared. */
static void put_efforts(const tn_verdict *v, size_t n, size_t first, FILE *out)
{
    fputs("<td>", out);
    for (size_t i = first; i < n; i++)
        if (v[i].first == first) fprintf(out, "%s%s", i > first ? ", " : "", tn_effort_name(v[i].effort));
    fputs("</td>", out);
}

static void put_verdicts(const tn_study *s, const tn_verdict *v, size_t n, FILE *out)
{
    fputs("<div class=\"wide\"><table><tr><th>equal</th><th>sides</th><th>difference</th><th>95 % interval</th>"
          "<th>p (Holm)</th><th>pairs</th><th class=\"set\">verdict</th></tr>\n",
          out);
    for (size_t i = 0; i < n; i++) {
        const tn_paired *r = &v[i].paired;
        const char *a = s->sides[v[i].a].name, *b = s->sides[v[i].b].name;
        char words[256], sides[NAME];
        if (v[i].first < i) continue;
        snprintf(sides, sizeof sides, "%.60s - %.60s", a, b);
        fputs("<tr>", out), put_efforts(v, n, i, out), tn_html_tag(out, "td", sides);
        fprintf(out, "<td>%+.4g</td>", r->difference);
        if (r->n > 1) fprintf(out, "<td>%+.4g to %+.4g</td><td>%.3g</td>", r->lo, r->hi, v[i].p_adjusted);
        else fputs("<td>-</td><td>-</td>", out);
        fprintf(out, "<td>%zu</td><td class=\"set\">", r->n);
        tn_html_text(out, tn_verdict_text(r, &v[i].judged, a, b, words, sizeof words));
        fputs("</td></tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

/* One that cannot be made yet says why. */
static tn_status put_note(tn_status s, FILE *out)
{
    if (s != TN_USAGE) return s;
    fputs("<p class=\"note\">", out), tn_html_text(out, tn_error_text()), fputs("</p>\n", out);
    return TN_OK;
}

tn_status tn__page_comparison(const tn_study *s, tn_lab *lab, tn_arena *arena, FILE *out)
{
    tn_comparison k;
    tn_verdict *v;
    size_t n;
    const tn_side_set sides = tn_compare_finished(s);
    fputs("<h2>Comparison</h2>\n", out);
    if (!sides || tn_side_count(sides, s->n_sides) < 2) {
        fputs("<p class=\"note\">The sides have not been compared on common seeds yet: <code>tenon lab "
              "compare</code>.</p>\n",
              out);
        return TN_OK;
    }
    tn_status st = tn_compare_pick(s, lab, sides, TN_COMPARE_TOP, arena, &k);
    if (st == TN_OK) st = tn_compare_judge(s, lab, &k, NAN, arena, &v, &n);
    if (st != TN_OK) return put_note(st, out);
    fputs("<p>", out), tn_html_text(out, s->objectives[0].name);
    fprintf(out,
            " on the test split (%s is better), on common seeds; each side is represented by its best point on "
            "validation.</p>\n",
            s->objectives[0].maximise ? "more" : "less");
    TN_RETURN_IF(put_sides(s, lab, &k, arena, out));
    put_verdicts(s, v, n, out);
    return TN_OK;
}
