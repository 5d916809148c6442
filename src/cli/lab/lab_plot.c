/* tenon lab plot and export: a study as pictures, a page, or a file for other programs. */
#include "cli/lab/lab_view.h"
#include "cli/term.h"
#include "lab/view/view.h"

#include <string.h>

/* --- plot -------------------------------------------------------------------------------------------------------------------- */

static tn_status side_of(const tn_cli *c, const tn_study *s, int *out)
{
    const char *name = tn_args_value(&c->args, "side");
    *out = 0;
    return name ? tn_lab_view_side(s, "side", name, out) : TN_OK;
}

static tn_status chart_of(const char *name, tn_study_chart *out)
{
    char all[128] = "";
    for (int i = 0; i < TN_STUDY_CHARTS; i++) {
        const char *known = tn_study_chart_name((tn_study_chart)i);
        if (strcmp(known, name) == 0) return *out = (tn_study_chart)i, TN_OK;
        const size_t n = strlen(all);
        snprintf(all + n, sizeof all - n, "%s%s", i ? ", " : "", known);
    }
    return tn_error(TN_USAGE, "%.64s is not a chart: choose one of %s", name, all);
}

/* In the terminal: the best so far, each side. */
static tn_status text_history(tn_cli *c, const tn_study *study, size_t objective)
{
    tn_arena a = { 0 };
    tn_plot p;
    const tn_term term = tn_term_of(c->out);
    tn_status s = tn_study_history(study, objective, &a, &p);
    p.width = term.width, p.colour = term.color;
    if (s == TN_OK) s = tn_plot_text(&p, term.f);
    tn_arena_free(&a);
    return s;
}

tn_status tn_lab_plot(tn_cli *c)
{
    tn_lab_view v;
    FILE *f;
    tn_study_chart chart = TN_STUDY_HISTORY;
    size_t objective = 0;
    int side = 0;
    const char *kind = tn_args_positional(&c->args, 2);
    const bool html = tn_args_value(&c->args, "html"), svg = tn_args_value(&c->args, "svg");
    TN_RETURN_IF(tn_lab_view_open(c, 0, 1, TN_LAB_READ, &v));
    tn_status s = kind ? chart_of(kind, &chart) : TN_OK;
    if (s == TN_OK) s = tn_lab_view_objective(c, v.study, &objective);
    if (s == TN_OK) s = side_of(c, v.study, &side);
    if (s == TN_OK && chart == TN_STUDY_PARETO && objective == 0 && v.study->n_objectives > 1) objective = 1;
    if (s == TN_OK && html) {
        s = tn_lab_view_file(c, "html", &f);
        if (s == TN_OK) s = tn_lab_view_put(c, "html", f, tn_page_write(v.study, v.lab, f));
    }
    if (s == TN_OK && kind && !svg && !html && chart != TN_STUDY_HISTORY && tn_term_of(c->out).tty)
        s = tn_error(TN_USAGE, "%s is a picture, not a text: write it to a file with --svg=%s.svg", kind, kind);
    if (s == TN_OK && (svg || (kind && !html && chart != TN_STUDY_HISTORY))) {
        s = tn_lab_view_file(c, "svg", &f);
        if (s == TN_OK)
            s = tn_lab_view_put(c, "svg", f, tn_study_chart_draw(chart, v.study, v.lab, side, objective, f));
    } else if (s == TN_OK && !html) s = text_history(c, v.study, objective);
    tn_lab_view_close(&v);
    return s;
}

/* --- export ------------------------------------------------------------------------------------------------------------------ */

tn_status tn_lab_export(tn_cli *c)
{
    static const char *const names[] = { "csv", "jsonl", "optuna" };
    const char *format = tn_args_value(&c->args, "format");
    tn_lab_view v;
    FILE *f;
    int which = 0;
    while (format && which < 3 && strcmp(names[which], format) != 0) which++;
    if (which == 3) return tn_error(TN_USAGE, "--format=%.32s: choose csv, jsonl or optuna", format);
    TN_RETURN_IF(tn_lab_view_open(c, 0, 0, TN_LAB_READ, &v));
    tn_status s = tn_lab_view_file(c, "out", &f);
    if (s == TN_OK) {
        s = which == 0   ? tn_export_csv(v.study, f)
            : which == 1 ? tn_export_jsonl(v.study, f)
                         : tn_export_optuna(v.study, v.lab, f);
        s = tn_lab_view_put(c, "out", f, s);
    }
    tn_lab_view_close(&v);
    return s;
}
