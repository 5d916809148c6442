/* The report of a study: tables and charts in one HTML page. Everything that comes from a file is escaped. */

#include "lab/statistics/published.h"
#include "lab/statistics/select.h"
#include "lab/view/view.h"
#include "report/chart/html.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BEST = 10, NAME = 128 };

static const char *side_name(const tn_study *s, size_t i) { return s->sides[i].name[0] ? s->sides[i].name : "all"; }

/* --- head --------------------------------------------------------------------------------------------------------- */

static void put_facts(const tn_study *s, FILE *out)
{
    char when[64] = "";
    struct tm t;
    const time_t made = (time_t)s->created;
    if (gmtime_r(&made, &t)) strftime(when, sizeof when, "%Y-%m-%d %H:%M UTC", &t);
    fputs("<h1>Study ", out), tn_html_text(out, s->name);
    fprintf(out, "</h1>\n<p class=\"note\">Started %s; ran for %.1f minutes; sampler ", when, s->spent / 60);
    tn_html_text(out, s->sampler), fputs(", pruner ", out), tn_html_text(out, s->pruner);
    fprintf(out, "; %lld trials planned per side. Objectives: ", (long long)s->planned);
    for (size_t k = 0; k < s->n_objectives; k++) {
        fputs(k ? ", " : "", out), tn_html_text(out, s->objectives[k].name);
        fputs(s->objectives[k].maximise ? " (max)" : " (min)", out);
    }
    fputs(".</p>\n", out);
}

static tn_status put_sides(const tn_study *s, tn_arena *a, FILE *out)
{
    fputs("<table><tr><th>side</th>", out);
    for (int st = 0; st < TN_TRIAL_STATES; st++) fprintf(out, "<th>%s</th>", tn_trial_state_name((tn_trial_state)st));
    fputs("<th>trial hours</th><th>front size</th><th>hypervolume</th></tr>\n", out);
    for (size_t side = 0; side < s->n_sides; side++) {
        size_t count[TN_TRIAL_STATES] = { 0 }, front = 0;
        double seconds = 0, volume;
        tn_selection e;
        for (size_t i = 0; i < s->n; i++) {
            if (s->trials[i].side != (int)side || s->trials[i].kind == TN_TRIAL_COMPARE) continue;
            count[s->trials[i].state]++;
            if (isfinite(s->trials[i].seconds)) seconds += s->trials[i].seconds;
        }
        TN_RETURN_IF(tn_select_ended(s, (int)side, a, &e));
        TN_RETURN_IF(tn_select_volume(s, &e, &volume));
        for (size_t i = 0; i < e.n; i++) front += e.front[i];
        fputs("<tr>", out), tn_html_tag(out, "td", side_name(s, side));
        for (int st = 0; st < TN_TRIAL_STATES; st++) fprintf(out, "<td>%zu</td>", count[st]);
        fprintf(out, "<td>%.2f</td><td>%zu</td>", seconds / 3600, front);
        tn_html_number(out, volume);
        fputs("</tr>\n", out);
    }
    fputs("</table>\n", out);
    return TN_OK;
}

/* --- the best ----------------------------------------------------------------------------------------------------- */

static tn_status put_best(const tn_study *s, size_t side, tn_arena *a, FILE *out)
{
    tn_selection e;
    char text[NAME];
    const tn_space *space = &s->sides[side].space;
    TN_RETURN_IF(tn_select_ended(s, (int)side, a, &e));
    if (!e.n) return TN_OK;
    tn_select_sort(s, 0, e.trial, e.n);
    fputs("<h2>Best trials: ", out), tn_html_text(out, side_name(s, side)),
        fputs("</h2>\n<div class=\"wide\"><table><tr><th>trial</th>", out);
    for (size_t k = 0; k < s->n_objectives; k++) tn_html_tag(out, "th", s->objectives[k].name);
    for (size_t k = 0; k < space->n; k++) tn_html_tag(out, "th", space->dims[k].key);
    fputs("</tr>\n", out);
    for (size_t i = 0; i < e.n && i < BEST && e.trial[i]->state == TN_TRIAL_DONE; i++) {
        const tn_trial *t = e.trial[i];
        tn_trial_name(s, t, text, sizeof text);
        fputs("<tr>", out), tn_html_tag(out, "td", text);
        for (size_t k = 0; k < s->n_objectives; k++) tn_html_number(out, t->y ? t->y[k] : NAN);
        for (size_t k = 0; k < space->n; k++) {
            if (t->x && !isnan(t->x[k]) && space->dims[k].kind == TN_DIM_CHOICE)
                tn_dim_text(&space->dims[k], t->x[k], text, sizeof text), tn_html_tag(out, "td", text);
            else tn_html_number(out, t->x ? t->x[k] : NAN);
        }
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
    return TN_OK;
}

/* --- published figures -------------------------------------------------------------------------------------------- */

/* Theirs, with a sign where it is only bounded. */
static void put_theirs(const tn_study *s, size_t side, size_t k, FILE *out)
{
    const tn_published_side *q = &s->published->sides[side];
    if (!q->bound[k]) tn_html_number(out, q->best[k]);
    else fprintf(out, "<td>%s %.7g</td>", s->objectives[k].maximise ? "&ge;" : "&le;", q->best[k]);
}

static void put_totals(const tn_study *s, const tn_against_published *b, FILE *out)
{
    static const char *const rows[] = { "points on the front", "not dominated by another front", "trial hours",
                                        "hypervolume" };
    fputs("<div class=\"wide\"><table><tr><th>best</th>", out);
    for (size_t i = 0; i < s->n_sides; i++)
        fputs("<th>", out), tn_html_text(out, side_name(s, i)), fputs(": published</th><th>ours</th>", out);
    fputs("</tr>\n", out);
    for (size_t k = 0; k < s->n_objectives; k++) {
        fputs("<tr>", out), tn_html_tag(out, "td", s->objectives[k].name);
        for (size_t i = 0; i < s->n_sides; i++)
            put_theirs(s, i, k, out), tn_html_number(out, b->sides[i].best[k] ? b->sides[i].best[k]->y[k] : NAN);
        fputs("</tr>\n", out);
    }
    for (int r = 0; r < 4; r++) {
        fputs("<tr>", out), tn_html_tag(out, "td", rows[r]);
        for (size_t i = 0; i < s->n_sides; i++) {
            const tn_published_side *q = &s->published->sides[i];
            const tn_against_published_side *v = &b->sides[i];
            const double theirs[] = { q->front ? (double)q->front : NAN, NAN, q->hours > 0 ? q->hours : NAN, NAN };
            const double ours[] = { (double)v->front, (double)v->nondominated, v->hours, v->volume };
            tn_html_number(out, theirs[r]), tn_html_number(out, ours[r]);
        }
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

static bool has_published(const tn_against_published *b, size_t k)
{
    for (size_t i = 0; i < b->n_points; i++)
        if (!isnan(b->points[i].theirs->y[k])) return true;
    return false;
}

/* Objectives that no point gives have no columns. */
static void put_points(const tn_study *s, const tn_against_published *b, FILE *out)
{
    if (!b->n_points) return;
    fputs("<p>Each published point, and our best trial with at most as many parameters:</p>\n<div "
          "class=\"wide\"><table><tr><th>side</th>",
          out);
    for (size_t k = 0; k < s->n_objectives; k++)
        if (has_published(b, k))
            fputs("<th>", out), tn_html_text(out, s->objectives[k].name), fputs("</th><th>ours</th>", out);
    fputs("<th>trial</th><th class=\"set\">published settings</th></tr>\n", out);
    for (size_t i = 0; i < b->n_points; i++) {
        const tn_against_published_point *p = &b->points[i];
        char name[NAME] = "-";
        if (p->ours) tn_trial_name(s, p->ours, name, sizeof name);
        fputs("<tr>", out), tn_html_tag(out, "td", side_name(s, p->side));
        for (size_t k = 0; k < s->n_objectives; k++)
            if (has_published(b, k))
                tn_html_number(out, p->theirs->y[k]), tn_html_number(out, p->ours ? p->ours->y[k] : NAN);
        tn_html_tag(out, "td", name), fputs("<td class=\"set\">", out);
        for (size_t k = 0; k < p->theirs->n_set; k++) fputs(k ? " " : "", out), tn_html_text(out, p->theirs->set[k]);
        fputs("</td></tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

static tn_status put_published(const tn_study *s, tn_arena *a, FILE *out)
{
    tn_against_published b;
    const tn_published *q = s->published;
    TN_RETURN_IF(tn_against_published_make(s, a, &b));
    fputs("<h2>Comparison with published figures</h2>\n<p>", out), tn_html_text(out, q->source), fputs("</p>\n", out);
    if (q->note[0]) fputs("<p class=\"note\">Protocol: ", out), tn_html_text(out, q->note), fputs("</p>\n", out);
    if (q->hours > 0) fprintf(out, "<p>Total hours: published %.4g, ours %.3g.</p>\n", q->hours, s->spent / 3600);
    put_totals(s, &b, out);
    if (s->n_sides > 1) {
        fputs("<p>Winner: published ", out);
        tn_html_tag(out, "b", q->winner < 0 ? "not stated" : side_name(s, (size_t)q->winner));
        fputs("; ours by the published rule ", out);
        tn_html_tag(out, "b", b.winner < 0 ? "none" : side_name(s, (size_t)b.winner));
        fprintf(out, " (%s), by hypervolume ", b.decided);
        tn_html_tag(out, "b", b.larger < 0 ? "none" : side_name(s, (size_t)b.larger));
        fputs(". <span class=\"note\">The rule rewards large fronts; <code>tenon lab compare</code> decides on "
              "common seeds and the test split.</span></p>\n",
              out);
    }
    put_points(s, &b, out);
    return TN_OK;
}

/* --- charts ------------------------------------------------------------------------------------------------------- */

/* One that has nothing to draw yet says why in its place. */
static tn_status put_chart(tn_study_chart c, const tn_study *s, tn_lab *lab, size_t side, size_t objective, FILE *out)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (!to) return tn_error(TN_MEMORY, "out of memory");
    tn_status st = tn_study_chart_draw(c, s, lab, (int)side, objective, to);
    fclose(to);
    if (st == TN_OK) fwrite(text, 1, bytes, out);
    if (st == TN_USAGE) {
        fprintf(out, "<p class=\"note\">%s: ", tn_study_chart_name(c));
        tn_html_text(out, tn_error_text()), fputs("</p>\n", out);
        st = TN_OK;
    }
    free(text);
    return st;
}

static tn_status put_charts(const tn_study *s, tn_lab *lab, FILE *out)
{
    fputs("<h2>Search history</h2>\n", out);
    TN_RETURN_IF(put_chart(TN_STUDY_HISTORY, s, lab, 0, 0, out));
    if (s->n_objectives > 1) fputs("<h2>Trade-offs</h2>\n", out);
    for (size_t k = 1; k < s->n_objectives; k++) TN_RETURN_IF(put_chart(TN_STUDY_PARETO, s, lab, 0, k, out));
    fputs("<h2>Best settings</h2>\n", out);
    for (size_t side = 0; side < s->n_sides; side++) {
        fputs("<div class=\"wide\">", out);
        TN_RETURN_IF(put_chart(TN_STUDY_PARALLEL, s, lab, side, 0, out));
        fputs("</div>\n", out);
    }
    fputs("<h2>Parameter importance</h2>\n", out);
    TN_RETURN_IF(put_chart(TN_STUDY_IMPORTANCE, s, lab, 0, 0, out));
    fputs("<h2>Learning curves</h2>\n", out);
    for (size_t side = 0; side < s->n_sides; side++) TN_RETURN_IF(put_chart(TN_STUDY_CURVES, s, lab, side, 0, out));
    fputs("<h2>Worker timeline</h2>\n", out);
    return put_chart(TN_STUDY_TIMELINE, s, lab, 0, 0, out);
}

tn_status tn_page_write(const tn_study *s, tn_lab *lab, FILE *out)
{
    tn_arena a = { 0 };
    tn_status st = TN_OK;
    tn_html_begin(out, s->name);
    put_facts(s, out);
    st = put_sides(s, &a, out);
    if (st == TN_OK && s->n_sides > 1) st = tn__page_comparison(s, lab, &a, out);
    if (st == TN_OK && s->published) st = put_published(s, &a, out);
    for (size_t side = 0; st == TN_OK && side < s->n_sides; side++) st = put_best(s, side, &a, out);
    if (st == TN_OK) st = put_charts(s, lab, out);
    fputs("<h2>Study file</h2>\n<pre>", out), tn_html_text(out, s->text ? s->text : "");
    fputs("</pre>\n", out);
    tn_html_end(out);
    tn_arena_free(&a);
    if (st == TN_OK && (ferror(out) || fflush(out))) st = tn_error(TN_DISK, "the report could not be written");
    return st;
}
