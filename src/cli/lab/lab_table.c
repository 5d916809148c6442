/* Lines of trials. */
#include "cli/lab/lab_view.h"

#include "lab/view/view.h"
#include "lab/statistics/select.h"

#include <math.h>
#include <string.h>

const char *tn_lab_number(double v, char buf[24])
{
    if (isnan(v)) snprintf(buf, 24, "-");
    else if (v == floor(v) && fabs(v) < 1e9) snprintf(buf, 24, "%.0f", v);
    else if (fabs(v) >= 1e-3 && fabs(v) < 1e5) snprintf(buf, 24, "%.4f", v);
    else snprintf(buf, 24, "%.3g", v);
    return buf;
}

int tn_lab_width(const tn_study *s, size_t objective)
{
    const int n = (int)strlen(s->objectives[objective].name);
    return n > 12 ? n : 12;
}

void tn_lab_table_head(tn_cli *c, const tn_study *s)
{
    if (c->json) return;
    fprintf(c->out, "%-14s %-8s", "trial", "state");
    for (size_t k = 0; k < s->n_objectives; k++) fprintf(c->out, " %12s", s->objectives[k].name);
    fputs("  settings\n", c->out);
}

void tn_lab_point_text(const tn_study *s, const tn_trial *t, FILE *out)
{
    const tn_space *space = &s->sides[t->side].space;
    bool first = true;
    for (size_t k = 0; t->x && k < space->n; k++) {
        char text[128];
        if (isnan(t->x[k])) continue;
        if (space->dims[k].kind == TN_DIM_FLOAT) snprintf(text, sizeof text, "%.4g", t->x[k]);
        else tn_dim_text(&space->dims[k], t->x[k], text, sizeof text);
        fprintf(out, "%s%s=%s", first ? "" : " ", space->dims[k].key, text);
        first = false;
    }
}

tn_status tn_lab_table_row(tn_cli *c, const tn_study *s, const tn_trial *t)
{
    char name[128], number[24];
    if (c->json) return tn_cli_emit(c, tn_trial_json(s, t));
    tn_trial_name(s, t, name, sizeof name);
    fprintf(c->out, "%-14s %-8s", name, tn_trial_state_name(t->state));
    for (size_t k = 0; k < s->n_objectives; k++)
        fprintf(c->out, " %*s", tn_lab_width(s, k), tn_lab_number(t->y ? t->y[k] : NAN, number));
    fputs("  ", c->out);
    if (t->state == TN_TRIAL_FAILED && t->error && t->error[0]) fprintf(c->out, "%.100s", t->error);
    else tn_lab_point_text(s, t, c->out);
    fputc('\n', c->out);
    return TN_OK;
}
