/* tenon runs: the runs of a folder, newest first: state, progress, best result, size; and what to type next. Reads their files alone. */
#include "cli/next.h"
#include "cli/term.h"
#include "cli/view.h"
#include "report/curves.h"
#include "train/run/run_info.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RUN, MODEL, STATE, STEP, BEST, AT, PARAMETERS, SIZE, AGE, COLUMNS, CELL = 64 };

typedef struct listed {
    const char *dir;
    tn_run_info info;
    int64_t parameters;       /* 0: not known */
    char cell[COLUMNS][CELL]; /* but for RUN, which is dir */
} listed;

static int newest_first(const void *a, const void *b)
{
    const listed *x = a, *y = b;
    if (x->info.changed != y->info.changed) return x->info.changed > y->info.changed ? -1 : 1;
    return strcmp(x->dir, y->dir);
}

/* --- cells ----------------------------------------------------------------------------------------------------------- */

static double best_of(const tn_run_info *r, const char **name, const char **unit)
{
    const double bits = tn_scores_get(&r->best, "bits_per_byte"),
                 chosen = r->select[0] ? tn_scores_get(&r->best, r->select) : NAN;
    *name = !isnan(chosen) ? r->select : "loss";
    *unit = !isnan(chosen) ? "" : !isnan(bits) ? "bits/byte" : r->unit;
    return !isnan(chosen) ? chosen : !isnan(bits) ? bits : tn_scores_first(&r->best);
}

static void best_text(const tn_run_info *r, char out[CELL])
{
    const char *name, *unit;
    const double best = best_of(r, &name, &unit);
    char text[24];
    tn_score_text(best, 4, text);
    if (isnan(best)) snprintf(out, CELL, "-");
    else if (!*unit) snprintf(out, CELL, "%.24s %s", name, text);
    else snprintf(out, CELL, "%s %s", text, strcmp(unit, "bits/byte") == 0 ? "b/B" : unit);
}

static void age_text(double s, char out[CELL])
{
    static const struct {
        double s;
        const char *name;
    } unit[] = { { 86400, "d" }, { 3600, "h" }, { 60, "min" } };
    for (size_t i = 0; i < sizeof unit / sizeof *unit; i++)
        if (s >= unit[i].s) {
            snprintf(out, CELL, "%.0f %s", floor(s / unit[i].s), unit[i].name);
            return;
        }
    snprintf(out, CELL, "%.0f s", fmax(s, 0));
}

/* "ten_tiny", or "cell" of ./models/cell.so */
static void model_text(const tn_run_info *r, char out[CELL])
{
    const char *slash = strrchr(r->model, '/');
    snprintf(out, CELL, "%.60s", r->preset[0] ? r->preset : slash ? slash + 1 : r->model[0] ? r->model : "?");
}

static void fill(listed *l, double now)
{
    const tn_run_info *r = &l->info;
    char size[24], count[16];
    model_text(r, l->cell[MODEL]);
    snprintf(l->cell[STATE], CELL, "%s", tn_run_state_name(r->state));
    snprintf(l->cell[STEP], CELL, r->steps ? "%lld/%lld" : "%lld", (long long)r->step, (long long)r->steps);
    best_text(r, l->cell[BEST]);
    snprintf(l->cell[AT], CELL, "%lld", (long long)r->best_step);
    if (isnan(tn_scores_first(&r->best))) snprintf(l->cell[AT], CELL, "-");
    snprintf(l->cell[PARAMETERS], CELL, "%s", l->parameters ? tn_count_text((double)l->parameters, count) : "-");
    snprintf(l->cell[SIZE], CELL, "%s", tn_bytes_text((double)r->bytes, size));
    age_text(now - (double)r->changed, l->cell[AGE]);
}

/* --- the table ------------------------------------------------------------------------------------------------------- */

static const char *const heads[COLUMNS] = {
    "run", "model", "state", "step", "best", "at step", "params", "size", "age"
};

static const char *cell(const listed *l, int column) { return column == RUN ? l->dir : l->cell[column]; }

/* The columns that fit; those that tell least go first. */
static void choose_columns(const listed *v, size_t n, int room, int width[COLUMNS])
{
    static const int dispensable[] = { SIZE, PARAMETERS, MODEL, AT, AGE };
    int all = -2;
    for (int k = 0; k < COLUMNS; k++) {
        width[k] = (int)strlen(heads[k]);
        for (size_t i = 0; i < n; i++)
            if ((int)strlen(cell(&v[i], k)) > width[k]) width[k] = (int)strlen(cell(&v[i], k));
        all += width[k] + 2;
    }
    for (size_t i = 0; i < sizeof dispensable / sizeof *dispensable && all > room; i++) {
        all -= width[dispensable[i]] + 2;
        width[dispensable[i]] = 0;
    }
}

static void print_row(FILE *f, const listed *l, const int width[COLUMNS])
{
    for (int k = 0; k < COLUMNS; k++) {
        if (!width[k]) continue;
        const char *text = l ? cell(l, k) : heads[k];
        const bool left = k == RUN || k == MODEL || k == STATE;
        fprintf(f, "%s%*s", k ? "  " : "", left ? -width[k] : width[k], text);
    }
    fputc('\n', f);
}

static tn_status emit_run(tn_cli *c, const listed *l)
{
    const tn_run_info *r = &l->info;
    const char *name, *unit;
    const double best = best_of(r, &name, &unit);
    return tn_cli_emit(c,
                       json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:s}", "name",
                                 "run", "run", l->dir, "model", r->model, "preset", r->preset, "state",
                                 tn_run_state_name(r->state), "step", (json_int_t)r->step, "steps",
                                 (json_int_t)r->steps, "best", tn_number_or_null(best), "metric", name, "unit", unit,
                                 "best_step", (json_int_t)r->best_step, "parameters", (json_int_t)l->parameters,
                                 "bytes", (json_int_t)r->bytes, "changed", (json_int_t)r->changed, "reason", r->why));
}

/* --- what next ------------------------------------------------------------------------------------------------------- */

static const listed *first_in(const listed *v, size_t n, tn_run_state a, tn_run_state b)
{
    for (size_t i = 0; i < n; i++)
        if (v[i].info.state == a || v[i].info.state == b) return &v[i];
    return NULL;
}

static void say_next(tn_cli *c, const listed *v, size_t n)
{
    char dir[TN_PATH_BYTES], model[512];
    const listed *stopped = first_in(v, n, TN_RUN_STOPPED, TN_RUN_BEGUN),
                 *trained = first_in(v, n, TN_RUN_FINISHED, TN_RUN_RUNNING);
    if (stopped) {
        const bool object = tn_word_asks(stopped->info.model);
        tn_shell_word(stopped->dir, dir, sizeof dir);
        tn_next(c, "train %s/config.yaml%s%s run=%s", dir, object ? " model=" : "",
                object ? tn_shell_word(stopped->info.model, model, sizeof model) : "", dir);
    }
    if (!trained) trained = stopped && stopped->info.step ? stopped : NULL;
    if (trained) tn_next(c, "plot %s", tn_shell_word(trained->dir, dir, sizeof dir));
}

static void say_damage(tn_cli *c, const listed *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (v[i].info.state == TN_RUN_DAMAGED) fprintf(c->err, "note    %s is damaged: %s\n", v[i].dir, v[i].info.why);
        else if (v[i].info.state == TN_RUN_FAILED)
            fprintf(c->err, "note    %s failed: the loss was not finite; lower train.lr\n", v[i].dir);
}

/* Of the newest runs that were best a while ago: the first that overfitted, and what early stopping would have saved. */
static void say_rise(tn_cli *c, const listed *v, size_t n)
{
    enum { MOST = 3, LEAST = 3 }; /* runs whose metrics are read; evaluations since the best one */
    char text[TN_CURVES_RISE];
    for (size_t i = 0, read = 0; i < n && read < MOST; i++) {
        tn_arena arena = { 0 };
        tn_curves curves;
        if (v[i].info.stale < LEAST || v[i].info.select[0]) continue;
        read++;
        const bool said =
            tn_curves_read(&v[i].dir, 1, NULL, &arena, &curves) == TN_OK && *tn_curves_rise(&curves.run[0], text);
        if (said) fprintf(c->err, "note    %s: %s\n", v[i].dir, text);
        tn_arena_free(&arena);
        if (said) return;
    }
}

static tn_status list(tn_cli *c, const char *const *dirs, size_t n)
{
    tn_status s = TN_OK;
    int width[COLUMNS];
    listed *v = tn_alloc((n + 1) * sizeof *v);
    size_t m = 0;
    if (!v) return TN_MEMORY;
    for (size_t i = 0; i < n; i++, m++) {
        v[m].dir = dirs[i];
        if (tn_run_info_read(dirs[i], &v[m].info) != TN_OK) m--; /* removed meanwhile */
        else {
            v[m].parameters = tn_run_parameters(dirs[i], &v[m].info);
            fill(&v[m], (double)time(NULL));
        }
    }
    qsort(v, m, sizeof *v, newest_first);
    for (size_t i = 0; c->json && i < m && s == TN_OK; i++) s = emit_run(c, &v[i]);
    if (!c->json) {
        choose_columns(v, m, tn_term_of(c->out).width, width);
        print_row(c->out, NULL, width);
        for (size_t i = 0; i < m; i++) print_row(c->out, &v[i], width);
        fflush(c->out);
        say_damage(c, v, m);
        say_rise(c, v, m);
        say_next(c, v, m);
    }
    tn_free(v);
    return s;
}

tn_status tn_cmd_runs(tn_cli *c)
{
    tn_arena arena = { 0 };
    const char **dirs, *given = tn_args_positional(&c->args, 0);
    size_t n = 0;
    tn_status s = TN_OK;
    TN_TRY(tn_args_expect(&c->args, 0, 1));
    if (c->args.overrides_n) TN_FAIL(TN_USAGE, "runs takes no settings: remove %.64s", c->args.overrides[0]);
    if (given || access("runs", F_OK) == 0) TN_TRY(tn_run_find_all(given ? given : "runs", &arena, &dirs, &n));
    if (n) TN_TRY(list(c, dirs, n));
    else if (!c->json) fprintf(c->out, "no runs in %s: `tenon train data=FILE` starts one\n", given ? given : "runs/");
done:
    tn_arena_free(&arena);
    return s;
}
