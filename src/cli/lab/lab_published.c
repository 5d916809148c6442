/* Published figures beside ours. */
#include "cli/lab/lab_view.h"

#include "lab/statistics/published.h"
#include "lab/statistics/select.h"

#include <math.h>
#include <string.h>

static const char *side_name(const tn_study *s, int i)
{
    return i < 0 ? "none" : s->sides[i].name[0] ? s->sides[i].name : "all";
}

static double ours_of(const tn_against_published *b, size_t side, size_t k)
{
    return b->sides[side].best[k] ? b->sides[side].best[k]->y[k] : NAN;
}

static const char *bound_of(const tn_study *s, size_t side, size_t k)
{
    return !s->published->sides[side].bound[k] ? "" : s->objectives[k].maximise ? ">=" : "<=";
}

/* --- one side ----------------------------------------------------------------------------------------------------------------- */

void tn_lab_quoted_line(tn_cli *c, const tn_study *s, size_t side)
{
    char number[24];
    bool any = false;
    if (!s->published) return;
    const tn_published_side *q = &s->published->sides[side];
    fprintf(c->out, "  published:");
    for (size_t k = 0; k < s->n_objectives; k++) {
        if (isnan(q->best[k])) continue;
        fprintf(c->out, "%s %s %s%s", any ? "," : "", s->objectives[k].name, bound_of(s, side, k),
                tn_lab_number(q->best[k], number));
        any = true;
    }
    if (q->front) fprintf(c->out, "%s front of %lld", any ? "," : "", (long long)q->front);
    fprintf(c->out, "%s\n", any || q->front ? "" : " nothing for this side");
}

static json_t *values_json(const tn_study *s, const double *y)
{
    json_t *o = json_object();
    for (size_t k = 0; o && k < s->n_objectives; k++)
        json_object_set_new(o, s->objectives[k].name, tn_number_or_null(y[k]));
    return o;
}

json_t *tn_lab_quoted_json(const tn_study *s, size_t side)
{
    if (!s->published) return NULL;
    const tn_published_side *q = &s->published->sides[side];
    json_t *o = values_json(s, q->best);
    if (o && q->front) json_object_set_new(o, "front", json_integer(q->front));
    if (o && q->hours > 0) json_object_set_new(o, "hours", json_real(q->hours));
    return o;
}

/* --- as JSON Lines -------------------------------------------------------------------------------------------------------------- */

static tn_status emit_sides(tn_cli *c, const tn_study *s, const tn_against_published *b)
{
    for (size_t i = 0; i < s->n_sides; i++) {
        const tn_against_published_side *v = &b->sides[i];
        json_t *best = json_object();
        for (size_t k = 0; best && k < s->n_objectives; k++)
            json_object_set_new(best, s->objectives[k].name, tn_number_or_null(ours_of(b, i, k)));
        TN_RETURN_IF(tn_cli_emit(c, json_pack("{s:s, s:s, s:o, s:o, s:I, s:I, s:o, s:f}", "name", "published", "side",
                                              side_name(s, (int)i), "theirs", tn_lab_quoted_json(s, i), "ours", best,
                                              "front", (json_int_t)v->front, "unbeaten", (json_int_t)v->nondominated,
                                              "hypervolume", tn_number_or_null(v->volume), "hours", v->hours)));
    }
    return tn_cli_emit(c, json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "name", "winner", "source",
                                    s->published->source, "note", s->published->note, "theirs",
                                    side_name(s, s->published->winner), "fronts", side_name(s, b->winner), "decided",
                                    b->decided, "hypervolume", side_name(s, b->larger)));
}

static tn_status emit_points(tn_cli *c, const tn_study *s, const tn_against_published *b)
{
    for (size_t i = 0; i < b->n_points; i++) {
        const tn_against_published_point *p = &b->points[i];
        char name[128] = "";
        if (p->ours) tn_trial_name(s, p->ours, name, sizeof name);
        TN_RETURN_IF(
            tn_cli_emit(c, json_pack("{s:s, s:s, s:o, s:s, s:o}", "name", "published_point", "side",
                                     side_name(s, (int)p->side), "theirs", values_json(s, p->theirs->y), "trial", name,
                                     "ours", p->ours ? values_json(s, p->ours->y) : json_null())));
    }
    return TN_OK;
}

/* --- as tables ------------------------------------------------------------------------------------------------------------------- */

/* before: what stands before theirs, "<=" where it is only bounded. */
static void put_pair(tn_cli *c, const char *before, double theirs, double ours)
{
    char number[24], text[32];
    snprintf(text, sizeof text, "%s%s", before, tn_lab_number(theirs, number));
    fprintf(c->out, " %12s", text);
    fprintf(c->out, " %12s", tn_lab_number(ours, number));
}

static void put_sides(tn_cli *c, const tn_study *s, const tn_against_published *b)
{
    fprintf(c->out, "%-20s", "best");
    for (size_t i = 0; i < s->n_sides; i++) {
        char name[64];
        snprintf(name, sizeof name, "%.24s theirs", side_name(s, (int)i));
        fprintf(c->out, " %12s %12s", name, "ours");
    }
    fputc('\n', c->out);
    for (size_t k = 0; k < s->n_objectives; k++) {
        fprintf(c->out, "%-20.20s", s->objectives[k].name);
        for (size_t i = 0; i < s->n_sides; i++)
            put_pair(c, bound_of(s, i, k), s->published->sides[i].best[k], ours_of(b, i, k));
        fputc('\n', c->out);
    }
    static const char *const rows[] = { "points on the front", "not dominated", "hours of trials", "hypervolume" };
    for (int r = 0; r < 4; r++) {
        fprintf(c->out, "%-20s", rows[r]);
        for (size_t i = 0; i < s->n_sides; i++) {
            const tn_published_side *q = &s->published->sides[i];
            const tn_against_published_side *v = &b->sides[i];
            const double theirs[] = { q->front ? (double)q->front : NAN, NAN, q->hours > 0 ? q->hours : NAN, NAN };
            const double ours[] = { (double)v->front, (double)v->nondominated, v->hours, v->volume };
            put_pair(c, "", theirs[r], ours[r]);
        }
        fputc('\n', c->out);
    }
}

static void put_winner(tn_cli *c, const tn_study *s, const tn_against_published *b)
{
    if (s->n_sides < 2) return;
    fprintf(c->out, "winner      theirs %s; ours by their rule %s (%s), by hypervolume %s\n",
            side_name(s, s->published->winner), side_name(s, b->winner), b->decided, side_name(s, b->larger));
    fputs(
        "            (the rule favours large fronts; `tenon lab compare` decides on common seeds and the test split)\n",
        c->out);
}

static void put_points(tn_cli *c, const tn_study *s, const tn_against_published *b)
{
    char name[128], number[24];
    if (!b->n_points) return;
    fprintf(c->out, "\n%-14s", "theirs");
    for (size_t k = 0; k < s->n_objectives; k++) fprintf(c->out, " %12s", s->objectives[k].name);
    fputs("  settings; below each, our best with no more parameters\n", c->out);
    for (size_t i = 0; i < b->n_points; i++) {
        const tn_against_published_point *p = &b->points[i];
        fprintf(c->out, "%-14.14s", side_name(s, (int)p->side));
        for (size_t k = 0; k < s->n_objectives; k++)
            fprintf(c->out, " %*s", tn_lab_width(s, k), tn_lab_number(p->theirs->y[k], number));
        fputc(' ', c->out);
        for (size_t k = 0; k < p->theirs->n_set; k++) fprintf(c->out, " %s", p->theirs->set[k]);
        if (p->ours) tn_trial_name(s, p->ours, name, sizeof name);
        else snprintf(name, sizeof name, "none");
        fprintf(c->out, "\n  %-12.12s", name);
        for (size_t k = 0; k < s->n_objectives; k++)
            fprintf(c->out, " %*s", tn_lab_width(s, k), tn_lab_number(p->ours ? p->ours->y[k] : NAN, number));
        fputs("  ", c->out);
        if (p->ours) tn_lab_point_text(s, p->ours, c->out);
        fputc('\n', c->out);
    }
}

tn_status tn_lab_published(tn_cli *c, const tn_study *s)
{
    tn_arena a = { 0 };
    tn_against_published b;
    tn_status st = tn_against_published_make(s, &a, &b);
    if (st == TN_OK && c->json) {
        st = emit_sides(c, s, &b);
        if (st == TN_OK) st = emit_points(c, s, &b);
    } else if (st == TN_OK) {
        const tn_published *q = s->published;
        fprintf(c->out, "\npublished   %s\n", q->source);
        if (q->note[0]) fprintf(c->out, "protocol    %s\n", q->note);
        if (q->hours > 0) fprintf(c->out, "hours       theirs %.4g in all, ours %.3g\n", q->hours, s->spent / 3600);
        put_sides(c, s, &b);
        put_winner(c, s, &b);
        put_points(c, s, &b);
    }
    tn_arena_free(&a);
    return st;
}
