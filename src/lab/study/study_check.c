/* Validating a study against the settings of its models: every key known, every value and end of a range allowed. */
#include "lab/study/study_parse.h"

#include "base/setting_value.h"
#include "lab/study/study.h"
#include "train/run/train_settings.h"
#include "train/source/task_setup.h"

#include <stdio.h>
#include <string.h>

/* What a trial itself decides, and why it cannot be asked for. */
static const struct {
    const char *key, *why;
} reserved[] = {
    { "seed", "a trial's seed is the study's `seed` plus its number" },
    { "run", "a trial's directory is named by its number" },
    { "model", "give each model a side of its own, with its `base`" },
    { "preset", "give each preset a side of its own, with its `base`" },
};

static const char *reason(const char *key, bool searched)
{
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (strcmp(reserved[i].key, key) == 0 && (searched || i < 2)) return reserved[i].why;
    return NULL;
}

typedef struct checker {
    tn_study_plan *p;
    const tn_study_side *side;
    tn_settings *st;
} checker;

/* "study.yaml:7" or "command line" */
static const char *place(const checker *c, size_t line, char buf[300])
{
    char quoted[256];
    if (!line) return "command line";
    snprintf(buf, 300, "%s:%zu", tn_text_quote(c->p->file, quoted, sizeof quoted), line);
    return buf;
}

/* --- names -------------------------------------------------------------------------------------------------------- */

const tn_metric_row *tn_study_metric(const char *name)
{
    const tn_model *m;
    for (size_t i = 0; (m = tn_model_at(i)); i++) {
        tn_metric_list rows;
        tn_metric_rows(m, &rows);
        const tn_metric_row *r = tn_metric_find(&rows, name);
        if (r) return r;
    }
    return strcmp(tn_env_reward.name, name) == 0 ? &tn_env_reward : NULL;
}

bool tn_study_number(const char *name, bool *maximise)
{
    static const struct {
        const char *name;
        bool maximise;
    } numbers[] = {
        { "seconds", false },     { "parameters", false },  { "epochs_to_90", false },
        { "block_evals", false }, { "tokens_per_s", true }, { "memory_bytes", false },
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(numbers[i].name, name) == 0) {
            *maximise = numbers[i].maximise;
            return true;
        }
    return false;
}

/* --- what is set -------------------------------------------------------------------------------------------------- */

/* Adds the model's new metrics. The direction of `prune_by` may be known only now, from a shared object. */
static void add_metrics(tn_study_plan *p, const tn_model *model)
{
    tn_metric_list rows;
    bool is_objective = false;
    tn_metric_rows(model, &rows);
    for (size_t i = 0; i < rows.n; i++)
        if (rows.row[i]->name && !tn_metric_find(&p->metrics, rows.row[i]->name) && p->metrics.n < TN_METRICS_MAX)
            p->metrics.row[p->metrics.n++] = rows.row[i];
    for (size_t i = 0; i < p->n_objectives; i++)
        is_objective |= !p->objectives[i].by_row && strcmp(p->objectives[i].name, p->prune_by) == 0;
    const tn_metric_row *by = tn_metric_find(&rows, p->prune_by);
    if (by && !is_objective) p->prune_max = by->better == TN_HIGHER;
}

/* Whether a name is that of an instrument: neither a metric of the models or environments nor a number of every
 * trial. */
static bool is_instrument(const tn_study_plan *p, const char *name)
{
    bool unused;
    return !tn_metric_find(&p->metrics, name) && !tn_study_metric(name) && !tn_study_number(name, &unused);
}

bool tn_study_instruments(const tn_study_plan *p)
{
    for (size_t i = 0; i < p->n_objectives; i++)
        if (is_instrument(p, p->objectives[i].name)) return true;
    return is_instrument(p, p->prune_by);
}

static tn_status resolve(checker *c, const tn_study_side *side)
{
    const char *which[2];
    size_t n = 0;
    const tn_model *model;
    for (size_t i = 0; i < side->n_set && n < 2; i++)
        if (strncmp(side->set[i], "model=", 6) == 0 || strncmp(side->set[i], "preset=", 7) == 0)
            which[n++] = side->set[i];
    const tn_status s = tn_settings_resolve_user(c->p->user, side->base, which, n, &c->st, &model);
    if (s != TN_OK) tn_error_prefix("%s%s%s: base", c->p->file, side->name[0] ? ": side " : "", side->name);
    else add_metrics(c->p, model);
    return s;
}

static tn_status check_set(const checker *c)
{
    for (size_t i = 0; i < c->side->n_set; i++) {
        char key[160], where[300];
        const char *eq = strchr(c->side->set[i], '=');
        snprintf(key, sizeof key, "%.*s", (int)(eq - c->side->set[i]), c->side->set[i]);
        const char *why = reason(key, false);
        if (why)
            return tn_error(TN_USAGE, "%s cannot be set: %s  (%s)", key, why, place(c, c->side->set_line[i], where));
        TN_RETURN_IF(tn_settings_set(c->st, key, eq + 1, "%s", place(c, c->side->set_line[i], where)));
    }
    return TN_OK;
}

/* --- what is searched --------------------------------------------------------------------------------------------- */

static const tn_setting *setting_row(const checker *c, const char *key)
{
    char name[200];
    size_t i = tn_settings_find(c->st, key);
    snprintf(name, sizeof name, "%s.name", key);
    if (i == tn_settings_count(c->st)) i = tn_settings_find(c->st, name); /* task is short for task.name */
    return i == tn_settings_count(c->st) ? NULL : tn_settings_row_at(c->st, i);
}

static tn_status check_range(const tn_setting *row, tn_dim *d, const char *where)
{
    tn_setting_value v;
    char text[64], said[1024];
    const bool whole = row->type == TN_TYPE_INT || row->type == TN_TYPE_AUTO_INT;
    if (!whole && row->type != TN_TYPE_FLOAT && row->type != TN_TYPE_AUTO_FLOAT) {
        if (row->type == TN_TYPE_CHOICE)
            return tn_error(TN_USAGE, "%s is one of %s: write a list of them to search  (%s)", d->key, row->choices,
                            where);
        return tn_error(TN_USAGE, "%s is a %s and has no range: write a list of values to search  (%s)", d->key,
                        tn_setting_type_name(row->type), where);
    }
    if (whole) {
        const tn_status s = tn_dim_make_int(d);
        snprintf(said, sizeof said, "%s", tn_error_text());
        if (s != TN_OK) return tn_error(s, "%s: %s  (%s)", d->key, said, where);
    }
    tn_dim_text(d, d->lo, text, sizeof text);
    TN_RETURN_IF(tn_setting_parse(row, text, where, &v));
    tn_dim_text(d, d->hi, text, sizeof text);
    return tn_setting_parse(row, text, where, &v);
}

static tn_status check_dimension(const checker *c, tn_dim *d, size_t line)
{
    char where[300];
    const char *at = place(c, line, where), *why = reason(d->key, true);
    if (why) return tn_error(TN_USAGE, "%s cannot be searched: %s  (%s)", d->key, why, at);
    const tn_setting *row = setting_row(c, d->key);
    if (!row) return tn_settings_set(c->st, d->key, "", "%s", at); /* says what is near */
    if (d->kind != TN_DIM_CHOICE) return check_range(row, d, at);
    for (size_t i = 0; i < d->n_choices; i++) {
        tn_setting_value v;
        TN_RETURN_IF(tn_setting_parse(row, d->choices[i], at, &v));
    }
    return TN_OK;
}

/* What `parameters` changes cannot be searched too. */
static tn_status check_width(const checker *c)
{
    const char *width = c->p->width;
    if (!c->p->parameters) return TN_OK;
    if (width && !setting_row(c, width))
        return tn_error(TN_USAGE, "width: %s%s%s has no setting %.60s  (%s)", c->side->name[0] ? "side " : "the model",
                        c->side->name, c->side->name[0] ? "'s model" : "", width, c->p->file);
    for (size_t i = 0; i < c->side->space.n; i++) {
        const char *key = c->side->space.dims[i].key;
        const bool changed = width ? strcmp(key, width) == 0 : strcmp(key, "dim") == 0 || strcmp(key, "ffn") == 0;
        char where[300];
        if (changed)
            return tn_error(TN_USAGE,
                            "%s is searched, and `parameters` changes it: remove one of them, or name another "
                            "setting with `width`  (%s)",
                            key, place(c, c->side->search_line[i], where));
    }
    return TN_OK;
}

/* --- what is quoted ----------------------------------------------------------------------------------------------- */

/* Settings of published points are those of the side's model, so that one of them can be trained. */
static tn_status check_published(const checker *c, const tn_published_side *quoted)
{
    for (size_t i = 0; i < quoted->n_points; i++)
        for (size_t k = 0; k < quoted->points[i].n_set; k++) {
            char key[160], where[300];
            const char *text = quoted->points[i].set[k], *eq = strchr(text, '=');
            const char *at = place(c, quoted->points[i].set_line[k], where);
            tn_setting_value v;
            snprintf(key, sizeof key, "%.*s", (int)(eq - text), text);
            const tn_setting *row = setting_row(c, key);
            if (!row) return tn_settings_set(c->st, key, "", "%s", at); /* says what is near */
            TN_RETURN_IF(tn_setting_parse(row, eq + 1, at, &v));
        }
    return TN_OK;
}

static tn_status check_side(checker *c, tn_study_side *side)
{
    const tn_study_reader r = { .file = c->p->file };
    c->side = side;
    TN_RETURN_IF(resolve(c, side));
    TN_RETURN_IF(check_set(c));
    for (size_t i = 0; i < side->space.n; i++)
        TN_RETURN_IF(check_dimension(c, (tn_dim *)&side->space.dims[i], side->search_line[i]));
    if (c->p->published) TN_RETURN_IF(check_published(c, &c->p->published->sides[side - c->p->sides]));
    TN_RETURN_IF(check_width(c));
    const size_t line = side->space.n ? side->search_line[0] : 1;
    TN_RETURN_IF(tn__study_at(&r, tn_space_check(&side->space), side->name[0] ? side->name : "search", line));
    return tn__study_at(&r, c->p->sampler->check(&c->p->sampling, &side->space), "sampler", line);
}

/* Which way is better, where the file does not say it: the row of the model does. */
static tn_status find_directions(const tn_study_plan *p)
{
    for (size_t i = 0; i < p->n_objectives; i++) {
        tn_objective *o = (tn_objective *)&p->objectives[i];
        const tn_metric_row *row = o->by_row ? tn_metric_find(&p->metrics, o->name) : NULL;
        if (o->by_row && !row) return tn_error(TN_USAGE, "objectives: %s: add max or min  (%s)", o->name, p->file);
        if (row) o->maximise = row->better == TN_HIGHER;
    }
    return TN_OK;
}

tn_status tn_study_check(tn_study_plan *p)
{
    checker c = { .p = p };
    p->metrics.n = 0;
    for (size_t i = 0; i < p->n_sides; i++) {
        const tn_status s = check_side(&c, (tn_study_side *)&p->sides[i]);
        tn_settings_free(c.st);
        c.st = NULL;
        if (s != TN_OK) return s;
    }
    return find_directions(p);
}

tn_status tn_study_point(const tn_study_side *side, const double *x, tn_arena *arena, const char **out, size_t *n)
{
    *n = 0;
    for (size_t i = 0; i < side->space.n; i++) {
        char text[512];
        if (!tn_space_has(&side->space, x, i)) continue;
        tn_dim_text(&side->space.dims[i], x[i], text, sizeof text);
        out[*n] = tn_arena_printf(arena, "%s=%s", side->space.dims[i].key, text);
        if (!out[*n]) return TN_MEMORY;
        ++*n;
    }
    return TN_OK;
}
