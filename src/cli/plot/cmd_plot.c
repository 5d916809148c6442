/* tenon plot: learning curves of runs, in the terminal, as an SVG file or as a page, and a table of their final and best values. */
#include "cli/next.h"
#include "cli/plot/plot.h"
#include "cli/table_file.h"
#include "cli/view.h"
#include "train/run/run_info.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_RUNS = 60, NAME_COLUMNS = 36 };

/* --- which runs ------------------------------------------------------------------------------------------------------ */

typedef struct chosen {
    tn_arena *arena;
    const char *dir[MOST_RUNS];
    size_t n;
} chosen;

static bool ends_in(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* A checkpoint, or a file of a run, stands for the run. */
static tn_status run_of(tn_arena *arena, const char *path, const char **out)
{
    struct stat st;
    char *dir = tn_arena_strdup(arena, path);
    if (!dir) return TN_MEMORY;
    for (size_t n = strlen(dir); n > 1 && dir[n - 1] == '/'; n--) dir[n - 1] = 0;
    *out = dir;
    if (stat(dir, &st) != 0) {
        char known[TN_PATH_BYTES];
        const bool short_name = tn_path_join("runs", dir, known, sizeof known) == TN_OK && access(known, F_OK) == 0;
        return tn_error(TN_USAGE, "no run %.300s: %s%.300s%s", dir, short_name ? "did you mean " : "",
                        short_name ? known : "", short_name ? "?" : "`tenon runs` lists those that are here");
    }
    if (S_ISREG(st.st_mode) && !ends_in(dir, "metrics.jsonl"))
        return tn_error(TN_USAGE,
                        ends_in(dir, ".db") || ends_in(dir, ".yaml")
                            ? "%.300s is not a run; for a study: `tenon lab plot %.300s`"
                            : "%.300s is not a run: name its folder (`tenon runs` lists them)",
                        dir, dir);
    char *slash = strrchr(dir, '/');
    if (S_ISREG(st.st_mode)) {
        if (slash) *slash = 0;
        else *out = ".";
    } else if (!tn_is_run(dir) && slash && access(tn_arena_printf(arena, "%s/manifest.json", dir), F_OK) == 0)
        *slash = 0;
    return TN_OK;
}

static tn_status choose_runs(tn_cli *c, chosen *r)
{
    for (size_t i = 0; i < c->args.positional_n; i++) {
        const char *path, **dirs;
        size_t n;
        TN_RETURN_IF(run_of(r->arena, c->args.positional[i], &path));
        TN_RETURN_IF(tn_run_find_all(path, r->arena, &dirs, &n));
        if (!n) return tn_error(TN_USAGE, "%.300s holds no run: `tenon runs` lists those that are here", path);
        for (size_t k = 0; k < n; k++) {
            if (r->n == MOST_RUNS)
                return tn_error(TN_USAGE, "more than %d runs are too many for one chart: name fewer", MOST_RUNS);
            r->dir[r->n++] = dirs[k];
        }
    }
    return TN_OK;
}

/* Lines that are damaged are left out, and told; a run that has no others is damaged itself. */
static tn_status say_trouble(tn_cli *c, const tn_curves *v, tn_arena *arena)
{
    bool none;
    int64_t damaged = 0;
    const char *trouble = tn_curves_trouble(v, arena, &none);
    for (size_t i = 0; i < v->n; i++) damaged += v->run[i].damaged;
    if (!damaged || !trouble) return TN_OK;
    return none ? tn_error(TN_BAD_FILE, "%s", trouble) : tn_cli_warn(c, trouble);
}

static tn_status axis_of(const tn_cli *c, tn_curves_axis *out)
{
    static const char *const names[] = { "steps", "tokens", "seconds" };
    const char *x = tn_args_value(&c->args, "x");
    for (int i = 0; x && i < 3; i++)
        if (strcmp(x, names[i]) == 0) return *out = (tn_curves_axis)i, TN_OK;
    *out = TN_CURVES_STEPS;
    return x ? tn_error(TN_USAGE, "--x=%.32s: choose steps, tokens or seconds", x) : TN_OK;
}

/* --- table ----------------------------------------------------------------------------------------------------------- */

const char *tn_plot_number(double x, char buf[24])
{
    if (isnan(x)) snprintf(buf, 24, "-");
    else snprintf(buf, 24, fabs(x) >= 1e5 || (x != 0 && fabs(x) < 0.01) ? "%.4g" : "%.4f", x);
    return buf;
}

static const char *step_text(const tn_curves_run *r, char buf[48])
{
    snprintf(buf, 48, r->steps ? "%lld/%lld" : "%lld", (long long)r->step, (long long)r->steps);
    return buf;
}

static int step_width(const tn_curves *v)
{
    char buf[48];
    int width = 4;
    for (size_t i = 0; i < v->n; i++) {
        const int n = (int)strlen(step_text(&v->run[i], buf));
        width = n > width ? n : width;
    }
    return width;
}

static int name_width(const tn_curves *v)
{
    int width = 3;
    for (size_t i = 0; i < v->n; i++) {
        const int n = (int)strlen(v->run[i].name);
        width = n > width && n <= NAME_COLUMNS ? n : width;
    }
    return width;
}

/* Of a metric nobody here knows whether less is better. */
static void print_table(tn_cli *c, const tn_curves *v)
{
    const int w = name_width(v), steps = step_width(v);
    fprintf(c->out, "\n%-*s  %*s  %9s  %s\n", w, "run", steps, "step", "final",
            v->metric ? "   lowest  at step    highest  at step" : "     best  at step");
    for (size_t i = 0; i < v->n; i++) {
        const tn_curves_run *r = &v->run[i];
        char step[48], a[24], b[24], d[24];
        const bool wide = (int)strlen(r->name) > w;
        if (wide) fprintf(c->out, "%s\n", r->name);
        fprintf(c->out, "%-*s  %*s  %9s  %9s  %7s", w, wide ? "" : r->name, steps, step_text(r, step),
                tn_plot_number(r->final.value, a), tn_plot_number(r->lowest.value, b),
                isnan(r->lowest.step) ? "-" : (snprintf(d, 24, "%.0f", r->lowest.step), d));
        if (v->metric)
            fprintf(c->out, "  %9s  %7s", tn_plot_number(r->highest.value, a),
                    isnan(r->highest.step) ? "-" : (snprintf(d, 24, "%.0f", r->highest.step), d));
        fputc('\n', c->out);
    }
    if (!v->metric && !v->evaluated)
        fprintf(c->out, "training loss, in %s: too few evaluations for a held-out curve (train.eval_every=N)\n",
                v->unit);
}

/* What overfitted, and what early stopping would have saved. */
static void say_rises(tn_cli *c, const tn_curves *v)
{
    char text[TN_CURVES_RISE];
    for (size_t i = 0; i < v->n; i++)
        if (*tn_curves_rise(&v->run[i], text)) fprintf(c->out, "%s: %s\n", v->run[i].name, text);
}

static tn_status emit_run(tn_cli *c, const tn_curves *v, const tn_curves_run *r)
{
    const int64_t stop = tn_curves_stop(r);
    return tn_cli_emit(c,
                       json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:b, s:I, s:I}", "name",
                                 "curve", "run", r->dir, "metric",
                                 v->metric      ? v->metric
                                 : v->evaluated ? "heldout"
                                                : "loss",
                                 "unit", v->metric ? "" : v->unit, "step", (json_int_t)r->step, "steps",
                                 (json_int_t)r->steps, "final", tn_number_or_null(r->final.value), "lowest",
                                 tn_number_or_null(r->lowest.value), "lowest_step", tn_number_or_null(r->lowest.step),
                                 "highest", tn_number_or_null(r->highest.value), "highest_step",
                                 tn_number_or_null(r->highest.step), "worse_since_best", (int)r->worse, "stop_patience",
                                 (json_int_t)(stop ? tn_patience_least(&r->patience) : 0), "stop_step",
                                 (json_int_t)stop));
}

/* --- drawing --------------------------------------------------------------------------------------------------------- */

static tn_status draw_text(tn_cli *c, const tn_curves *v, tn_curves_axis x, tn_arena *arena)
{
    tn_plot p;
    const tn_term term = tn_term_of(c->out);
    TN_RETURN_IF(tn_curves_plot(v, x, false, arena, &p));
    tn_chart_fit(&p, &term, 18); /* with the table of a run or two it fits into 24 rows */
    return tn_plot_text(&p, term.f);
}

static tn_status draw_files(tn_cli *c, const tn_curves *v, tn_curves_axis x, tn_arena *arena)
{
    const char *const svg = tn_args_value(&c->args, "svg"), *const html = tn_args_value(&c->args, "html");
    tn_plot p;
    FILE *f;
    TN_RETURN_IF(tn_curves_plot(v, x, true, arena, &p));
    if (svg) {
        TN_RETURN_IF(tn_table_open(svg, &f));
        TN_RETURN_IF(tn_table_close(svg, f, tn_plot_svg(&p, f)));
    }
    if (!html) return TN_OK;
    TN_RETURN_IF(tn_table_open(html, &f));
    return tn_table_close(html, f, tn_plot_page(v, &p, f));
}

static void say_next(tn_cli *c, const chosen *r)
{
    char dir[TN_PATH_BYTES];
    const char *const svg = tn_args_value(&c->args, "svg"), *const html = tn_args_value(&c->args, "html");
    if (svg || html) {
        if (!c->json) fprintf(c->err, "wrote   %s%s%s\n", svg ? svg : "", svg && html ? ", " : "", html ? html : "");
        return;
    }
    if (c->args.positional_n == 1)
        tn_next(c, "plot %s --svg=curves.svg", tn_shell_word(c->args.positional[0], dir, sizeof dir));
    else tn_next(c, "eval %s", tn_shell_word(r->dir[0], dir, sizeof dir));
}

tn_status tn_cmd_plot(tn_cli *c)
{
    tn_arena arena = { 0 };
    chosen r = { .arena = &arena };
    tn_curves v;
    tn_curves_axis x;
    tn_status s = TN_OK;
    if (!c->args.positional_n) return tn_error(TN_USAGE, "plot needs a run: `tenon runs` lists those that are here");
    if (c->args.overrides_n) return tn_error(TN_USAGE, "plot takes no settings: remove %.64s", c->args.overrides[0]);
    TN_TRY(axis_of(c, &x));
    TN_TRY(choose_runs(c, &r));
    TN_TRY(tn_curves_read(r.dir, r.n, tn_args_value(&c->args, "metric"), &arena, &v));
    TN_TRY(say_trouble(c, &v, &arena));
    if (tn_args_value(&c->args, "svg") || tn_args_value(&c->args, "html")) TN_TRY(draw_files(c, &v, x, &arena));
    else if (!c->json) TN_TRY(draw_text(c, &v, x, &arena));
    for (size_t i = 0; c->json && i < v.n; i++) TN_TRY(emit_run(c, &v, &v.run[i]));
    if (!c->json) print_table(c, &v), say_rises(c, &v);
    say_next(c, &r);
done:
    tn_arena_free(&arena);
    return s;
}
