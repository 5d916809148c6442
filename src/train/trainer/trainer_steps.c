/* The steps that a model declares, over one store: several training steps of which each optimizer step chooses one, and
 * others by name, planned on first use. Also schedules: run-time scalars that follow the run. */
#include "train/trainer/trainer_internal.h"

#include <math.h>
#include <string.h>

static const tn_step_row *find_row(const tn_model *m, const char *name)
{
    for (size_t i = 0; i < m->n_steps; i++)
        if (strcmp(m->steps[i].name, name) == 0) return &m->steps[i];
    return NULL;
}

static tn_status check_rows(const tn_model *m)
{
    size_t trains = 0;
    if (m->n_steps > TN_STEPS_MAX)
        return tn_error(TN_USAGE, "model %s has more than %d steps: combine some", m->name, TN_STEPS_MAX);
    if (m->n_schedules > TN_SCHEDULES_MAX)
        return tn_error(TN_USAGE, "model %s has more than %d schedules: combine some", m->name, TN_SCHEDULES_MAX);
    for (size_t i = 0; i < m->n_schedules; i++)
        if (!m->schedules[i].name || !m->schedules[i].value)
            return tn_error(TN_USAGE, "model %s has a schedule without a name or a function: complete its row",
                            m->name);
    for (size_t i = 0; i < m->n_steps; i++) {
        const tn_step_row *row = &m->steps[i];
        if (!row->name || !row->name[0] || !row->build)
            return tn_error(TN_USAGE, "model %s: step %s has no %s: add it to its row", m->name,
                            row->name ? row->name : "?", row->build ? "name" : "build");
        if (find_row(m, row->name) != row)
            return tn_error(TN_USAGE, "model %s has two steps called %s: rename one of the rows", m->name, row->name);
        trains += row->gradients;
    }
    if (m->n_steps && !trains && !m->build)
        return tn_error(TN_USAGE,
                        "model %s has no step with gradients: set .gradients in the row of the one that trains",
                        m->name);
    if (m->choose && trains < 2)
        return tn_error(TN_USAGE,
                        "model %s has a choose function and %zu step with gradients: add a second step with gradients, "
                        "or remove .choose",
                        m->name, trains);
    return TN_OK;
}

tn_status tn__steps_list(tn_trainer *t, const char *only)
{
    const tn_model *m = t->model;
    TN_RETURN_IF(check_rows(m));
    for (size_t i = 0; i < m->n_steps && !t->forward_only; i++)
        if (m->steps[i].gradients && (!only || strcmp(only, m->steps[i].name) == 0))
            t->step[t->n_train++] = (tn_trainer_step){ .name = m->steps[i].name, .row = (int)i };
    if (!t->n_train && !t->forward_only) t->step[t->n_train++] = (tn_trainer_step){ .name = "train", .row = -1 };
    t->grad = t->step;
    t->eval = &t->step[t->n_train];
    *t->eval = (tn_trainer_step){ .name = "eval", .row = -1 };
    t->n_steps = t->n_train + 1;
    return TN_OK;
}

/* --- schedules ---------------------------------------------------------------------------------------------------------- */

static tn_status value_of(const tn_trainer *t, const tn_schedule_row *row, int64_t step, double *out)
{
    *out = row->value(t->settings, step);
    if (isfinite(*out)) return TN_OK;
    return tn_error(
        TN_USAGE, "model %s, schedule %s: its value at step %lld is %g: correct the function, or the settings it reads",
        t->model->name, row->name, (long long)step, *out);
}

/* The values of a step, in its plan or in those of all chunks. */
static tn_status set_schedules(const tn_trainer *t, const tn_trainer_step *s, int64_t step)
{
    for (size_t i = 0; i < t->model->n_schedules; i++) {
        double value;
        TN_RETURN_IF(value_of(t, &t->model->schedules[i], step, &value));
        if (t->chunks) tn_chunks_schedule(t->chunks, i, (float)value);
        else if (s->scalar[i]) *s->scalar[i] = (float)value;
    }
    return TN_OK;
}

void tn__step_resolve(const tn_trainer *t, tn_trainer_step *s)
{
    const bool trains = s < t->step + t->n_train;
    for (size_t i = 0; i < t->inputs.n; i++) /* one that the plan takes from samples is nobody's to write */
        if (t->inputs.slot[i].read && !(trains && t->inputs.slot[i].samples))
            s->at[i] = tn_bound_data(s->bound, t->inputs.slot[i].row->name);
    for (size_t i = 0; i < t->model->n_schedules; i++)
        s->scalar[i] = tn_plan_scalar(s->bound, t->model->schedules[i].name);
}

/* Which of the training steps the optimizer's step takes. */
static tn_status find_training(const tn_trainer *t, int64_t step, size_t *out)
{
    const tn_model *m = t->model;
    *out = 0;
    if (!m->choose || t->n_train < 2) return TN_OK;
    const size_t row = m->choose(t->settings, step);
    for (size_t k = 0; k < t->n_train; k++)
        if (t->step[k].row == (int)row) return *out = k, TN_OK;
    return tn_error(
        TN_USAGE,
        "model %s: choose returned %zu at step %lld, which is not a step with gradients: return the index of one",
        m->name, row, (long long)step);
}

/* A run should not end in the middle by what could be known before: all its steps are looked at, of a long one many. */
static tn_status look_ahead(const tn_trainer *t)
{
    enum { MOST = 4096 };
    const int64_t last = t->last_step, n = t->forward_only || last == 0 ? 1 : last < MOST ? last : MOST;
    size_t unused;
    double value;
    for (int64_t i = 0; i <= n; i++) {
        const int64_t step = last / n * i + last % n * i / n;
        TN_RETURN_IF(find_training(t, step, &unused));
        for (size_t k = 0; k < t->model->n_schedules; k++)
            TN_RETURN_IF(value_of(t, &t->model->schedules[k], step, &value));
    }
    return TN_OK;
}

/* Counts are read for every row of the batch. */
static tn_status check_costs(const tn_trainer *t)
{
    for (size_t i = 0; i < t->model->n_costs; i++)
        for (size_t k = 0; k < t->n_steps && !t->chunks; k++) {
            const tn_graph *g = tn_plan_graph(t->step[k].plan);
            const tn_cost_row *row = &t->model->costs[i];
            const tn_ref x = tn_graph_output(g, row->output);
            if (x.id && (tn_ref_dtype(g, x) != TN_I32 || tn_dims_count(tn_ref_dims(g, x)) != t->batch))
                return tn_error(
                    TN_USAGE,
                    "model %s, cost %s: its output %s is not i32 (B): output one integer for each row of the batch",
                    t->model->name, row->name, row->output);
        }
    return TN_OK;
}

/* Under these settings it may make the scalar for nothing. */
static bool makes(const tn_trainer_step *s, const char *scalar)
{
    const tn_graph *g = s->plan ? tn_plan_graph(s->plan) : NULL;
    const int32_t i = g ? tn_graph_find(g, scalar) : 0;
    return i && g->tensor[i].role == TN_ROLE_SCALAR;
}

tn_status tn__steps_check(const tn_trainer *t)
{
    TN_RETURN_IF(check_costs(t));
    for (size_t i = 0; i < t->model->n_schedules; i++) {
        const char *name = t->model->schedules[i].name;
        bool read = t->chunks && tn_chunks_schedule(t->chunks, i, 0);
        for (size_t k = 0; k < t->n_steps; k++) read |= t->step[k].scalar[i] || makes(&t->step[k], name);
        const bool all = !t->forward_only && !t->shape &&
                         (t->n_train > 1 || !t->model->choose); /* plans that it may be in are here */
        if (!read && all)
            return tn_error(TN_USAGE,
                            "model %s, schedule %s: no plan has a scalar of that name: call tn_scalar(g, \"%s\", "
                            "value) where it is "
                            "read, or remove the row",
                            t->model->name, name, name);
    }
    return t->model->n_schedules || t->model->choose ? look_ahead(t) : TN_OK;
}

/* --- running ------------------------------------------------------------------------------------------------------------ */

/* Plans have inputs of their own; the feed's are those of the first. */
static void give_inputs(const tn_trainer *t, const tn_trainer_step *s)
{
    for (size_t i = 0; i < t->inputs.n; i++)
        if (s->at[i] && t->feed.at[i] && s->at[i] != t->feed.at[i])
            memcpy(s->at[i], t->feed.at[i],
                   sizeof(float) * (size_t)tn_input_items(&t->inputs.slot[i], t->batch, t->length));
}

tn_status tn__step_choose(tn_trainer *t, int64_t step)
{
    const int64_t of_optimizer = step / t->accumulate;
    size_t k;
    TN_RETURN_IF(find_training(t, of_optimizer, &k));
    t->grad = &t->step[k];
    give_inputs(t, t->grad);
    return set_schedules(t, t->grad, of_optimizer);
}

tn_status tn__step_before_eval(tn_trainer *t)
{
    give_inputs(t, t->eval);
    return set_schedules(t, t->eval, t->last_step);
}

/* --- steps by name -------------------------------------------------------------------------------------------------------- */

/* Its plan is among the named ones from then on: what fits is asked of all of them. */
static tn_status plan_it(tn_trainer *t, const char *name)
{
    const tn_step_row *row = find_row(t->model, name);
    if (!row) return tn_error(TN_USAGE, "model %s has no step %s: add it to its steps", t->model->name, name);
    if (t->chunks)
        return tn_error(
            TN_USAGE,
            "model %s, step %s: plan.recompute=chunk supports training and evaluation only: use plan.recompute=layer",
            t->model->name, name);
    tn_trainer_step *s = &t->step[t->n_steps++];
    *s = (tn_trainer_step){ .name = row->name, .row = (int)(row - t->model->steps) };
    return tn__trainer_plan_step(t, s);
}

static tn_trainer_step *planned(tn_trainer *t, const char *name)
{
    for (size_t i = t->n_train + 1; i < t->n_steps; i++)
        if (strcmp(t->step[i].name, name) == 0) return &t->step[i];
    return NULL;
}

/* Where there is none of a name, whoever runs it says so. The evaluation's exists. */
tn_status tn__steps_plan(tn_trainer *t, const char *const *names)
{
    for (; names && *names; names++)
        if (strcmp(*names, "eval") != 0 && find_row(t->model, *names) && !planned(t, *names))
            TN_RETURN_IF(plan_it(t, *names));
    return TN_OK;
}

/* The batch is filled, except for inputs that only this step reads. */
static tn_status check_fed(const tn_trainer *t, const tn_trainer_step *s)
{
    for (size_t i = 0; i < t->inputs.n; i++)
        if (s->at[i] && !t->feed.at[i])
            return tn_error(TN_USAGE,
                            "model %s, step %s: it reads the input %s, which no step before it does: name the step in "
                            "a metric's .runs",
                            t->model->name, s->name, t->inputs.slot[i].row->name);
    return TN_OK;
}

static tn_status plan_late(tn_trainer *t, const char *name)
{
    TN_RETURN_IF(plan_it(t, name));
    tn_trainer_step *s = &t->step[t->n_steps - 1];
    TN_RETURN_IF(tn__trainer_fits(t));
    TN_RETURN_IF(tn__trainer_bind_step(t, s));
    tn__step_resolve(t, s);
    return check_fed(t, s);
}

static void forget_last(tn_trainer *t)
{
    tn_trainer_step *s = &t->step[--t->n_steps];
    tn_bound_free(s->bound);
    if (t->shared && s->plan) tn_shared_return_plan(t->shared, s->plan);
}

static tn_status find_step(tn_trainer *t, const char *name, tn_trainer_step **out)
{
    const size_t before = t->n_steps;
    const tn_status s = planned(t, name) ? TN_OK : plan_late(t, name);
    if (s != TN_OK && t->n_steps > before) forget_last(t);
    if (s == TN_OK) *out = planned(t, name);
    return s;
}

tn_status tn_trainer_run_step(tn_trainer *t, const char *name)
{
    tn_trainer *w = t->now;
    tn_trainer_step *s = NULL;
    TN_RETURN_IF(find_step(w, name, &s));
    give_inputs(w, s);
    TN_RETURN_IF(set_schedules(w, s, w->last_step));
    t->fresh = true; /* what was packed for the other plans is not this one's */
    return tn_run(s->bound);
}

tn_bound *tn_trainer_step_bound(tn_trainer *t, const char *name)
{
    const tn_trainer_step *s = planned(t->now, name);
    return s ? s->bound : NULL;
}

const void *tn__step_output(const tn_trainer_step *s, const char *name, tn_dtype *type, int64_t *count)
{
    const tn_graph *g = tn_plan_graph(s->plan);
    const tn_ref x = tn_graph_output(g, name);
    const tn_gtensor *by = x.id ? NULL : tn_plan_input_gradient(s->plan, name);
    if (by) {
        *count = tn_gtensor_count(by);
        if (type) *type = by->dtype;
        return tn_bound_data(s->bound, name);
    }
    *count = x.id ? tn_dims_count(tn_ref_dims(g, x)) : 0;
    if (x.id && type) *type = tn_ref_dtype(g, x);
    return x.id ? tn_bound_data(s->bound, name) : NULL;
}

const void *tn_trainer_step_output(tn_trainer *t, const char *name, const char *output, tn_dtype *type, int64_t *count)
{
    const tn_trainer_step *s = planned(t->now, name);
    *count = 0;
    return s ? tn__step_output(s, output, type, count) : NULL;
}
