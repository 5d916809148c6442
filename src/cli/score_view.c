/* Metrics on the screen and as JSON Lines. */
#include "cli/score_view.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *tn_score_unit(const tn_metric_row *r, const char *counts, char buf[40])
{
    const bool each = tn_metric_is_nats(r) && strcmp(counts, "tokens") == 0;
    snprintf(buf, 40, "%.24s%s", tn_metric_unit(r), each ? "/token" : "");
    return buf;
}

double tn_score_scale(const tn_metric_list *l, double bits)
{
    return !tn_metric_is_nats(l->row[0]) ? 1 : isnan(bits) ? 1 / log(2) : bits;
}

const char *tn_score_axis(const tn_metric_list *l, double bits, char buf[64])
{
    const tn_metric_row *r = l->row[0];
    if (tn_metric_is_nats(r)) snprintf(buf, 64, "bits per %s", isnan(bits) ? "token" : "byte");
    else snprintf(buf, 64, "%.24s%s%.24s", r->name, *tn_metric_unit(r) ? ", " : "", tn_metric_unit(r));
    return buf;
}

/* "bits per byte" */
static void print_words(FILE *f, const char *name)
{
    for (; *name; name++) fputc(*name == '_' ? ' ' : *name, f);
}

/* Scores stand in the order of rows, groups behind theirs. */
static void print_groups(FILE *f, const tn_scores *s, size_t *i, const char *name)
{
    const char *lead = " (";
    const size_t n = strlen(name);
    for (; *i < s->n && strncmp(s->at[*i].name, name, n) == 0 && s->at[*i].name[n] == '_'; ++*i) {
        if (isnan(s->at[*i].value)) continue;
        fprintf(f, "%s%s %.4f", lead, s->at[*i].name + n + 1, s->at[*i].value);
        lead = ", ";
    }
    if (lead[0] == ',') fputc(')', f);
}

static void print_first(FILE *f, const tn_metric_row *r, double value, const char *counts, bool brief)
{
    if (!*tn_metric_unit(r)) fprintf(f, "%s %.4f", r->name, value);
    else fprintf(f, "%.4f %s", value, r->unit);
    if (!brief && tn_metric_is_nats(r) && strcmp(counts, "tokens") == 0) fputs(" per token", f);
}

void tn_scores_print(FILE *f, const tn_metric_list *l, const tn_scores *s, const char *counts, bool brief)
{
    for (size_t i = 0; i < s->n;) {
        const double x = s->at[i].value;
        const char *name = s->at[i++].name;
        const tn_metric_row *r = tn_metric_find(l, name);
        if (!r) continue;
        if (r == l->row[0]) print_first(f, r, x, counts, brief);
        else if (!isnan(x) && tn_metric_is_other_unit(r)) {
            fprintf(f, brief ? " (%.3f " : ", %.4f ", x);
            print_words(f, name);
            if (brief) fputc(')', f);
        } else if (!isnan(x)) fprintf(f, ", %s %.4f%s%s", name, x, *tn_metric_unit(r) ? " " : "", tn_metric_unit(r));
        if (r->by_group) print_groups(f, s, &i, r->name);
    }
}

tn_status tn_scores_emit(tn_cli *c, const tn_metric_list *l, const tn_scores *s, const char *lead, const char *counts,
                         const char *split)
{
    char name[TN_SCORE_KEY], unit[40];
    for (size_t i = 0; i < s->n; i++) {
        const tn_metric_row *r = tn_metric_find(l, s->at[i].name);
        if (!r || isnan(s->at[i].value)) continue;
        snprintf(name, sizeof name, "%s%s", lead, s->at[i].name);
        TN_RETURN_IF(
            tn_cli_emit(c, json_pack("{s:s, s:s*, s:o, s:s}", "name", name, "split", split, "value",
                                     tn_number_or_null(s->at[i].value), "unit", tn_score_unit(r, counts, unit))));
    }
    return TN_OK;
}
