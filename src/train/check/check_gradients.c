/* Compares a model's gradients, by its tensors and by inputs, with finite differences of its loss, always in f32: with compute=bf16 rounding moves the
 * loss by about 1e-4 of it, more than the step along a small gradient does. Gradients in half precision are therefore
 * compared with those in f32, number by number. */
#include "train/check/check_internal.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "train/trainer/graph_setup.h"
#include "train/run/parts.h"
#include "train/run/train_settings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_TENSORS = 24 };
static const double ROUNDINGS =
    16; /* how many of them a gradient may be off: 3 to 6 are seen, on the CPU and on a GPU */
static const double SMALL = 1e-3;
static const float NEAR_ZERO = 0.02f, BESIDE = 0.2f;

/* One tensor as it was, its gradient, and room to move it: (n) each. */
typedef struct probe {
    tn_trainer *trainer;
    const char *step; /* whose loss it is; NULL: the model has one build for all */
    const tn_entry *e;
    float *input; /* (n), instead of e: an input's memory */
    int64_t n;
    float *kept, *grad, *moved;
} probe;

static void close_probe(probe *p)
{
    tn_free(p->kept);
    tn_free(p->grad);
    tn_free(p->moved);
}

static tn_status open_probe(tn_trainer *t, const char *step, const tn_entry *e, probe *p)
{
    tn_status s = TN_OK;
    const tn_store *st = tn_trainer_store(t);
    const int64_t n = tn_dims_count(e->dims);
    const size_t bytes = sizeof(float) * (size_t)n;
    tn_host_copy host = { 0 };
    *p = (probe){ .trainer = t,
                  .step = step,
                  .e = e,
                  .n = n,
                  .kept = tn_alloc(bytes + 64),
                  .grad = tn_alloc(bytes + 64),
                  .moved = tn_alloc(bytes + 64) };
    if (!p->kept || !p->grad || !p->moved) TN_TRY(TN_MEMORY);
    for (int i = 0; i < 2; i++) {
        const void *x = tn_store_read(st, i ? (const void *)e->grad : e->data, bytes, &host);
        if (!x) TN_TRY(TN_MEMORY);
        memcpy(i ? p->grad : p->kept, x, bytes);
    }
done:
    tn_host_copy_free(&host);
    if (s != TN_OK) close_probe(p);
    return s;
}

/* Of the training step itself: the evaluation may be another graph. */
static tn_status loss_of(const probe *p, float *loss)
{
    int64_t n;
    if (!p->step) return tn_trainer_eval(p->trainer, loss);
    TN_RETURN_IF(tn_trainer_run_step(p->trainer, p->step));
    *loss = *(const float *)tn_trainer_step_output(p->trainer, p->step, "loss", NULL, &n);
    return TN_OK;
}

static tn_status put(const probe *p, const float *x)
{
    const size_t bytes = sizeof *x * (size_t)p->n;
    if (!p->input) return tn_store_write(tn_trainer_store(p->trainer), p->e->data, x, bytes);
    memcpy(p->input, x, bytes);
    return TN_OK;
}

static tn_status loss_at(const probe *p, float along, float *loss)
{
    for (int64_t i = 0; i < p->n; i++) p->moved[i] = p->kept[i] + along * p->grad[i];
    TN_RETURN_IF(put(p, p->moved));
    return loss_of(p, loss);
}

/* Slope of the loss along the tensor's own gradient, by central differences. */
static tn_status slope(const probe *p, double norm, double h, double *out)
{
    float up = 0, down = 0;
    tn_status s = loss_at(p, (float)(h / norm), &up);
    if (s == TN_OK) s = loss_at(p, -(float)(h / norm), &down);
    const tn_status back = put(p, p->kept);
    if (s == TN_OK) *out = ((double)up - (double)down) / (2 * h);
    return s == TN_OK ? back : s;
}

static double norm_of(const float *x, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += (double)x[i] * (double)x[i];
    return sqrt(s);
}

/* How far the slope along the gradient (which is its norm) is from what differences say, as a part of it. A step is a
 * part of the tensor's own size, which counts as 1 a number at most (large ones are logarithms, of frequencies or time constants, and
 * losses swing with those): curvature wants it small, the noise of f32 losses wants it large, so the best of a few
 * counts. *noise is the error that noise and curvature alone can make there (the latter goes with the square of the step: of how
 * far the slope moved when the step became a third, 9/8 were the wider step's and 1/8 are the narrower one's); 1 and more: the
 * gradient is too small to tell. Two steps alone condemn nothing. */
static tn_status slope_error(const probe *p, double loss, double *error, double *noise)
{
    const double norm = norm_of(p->grad, p->n), each = norm_of(p->kept, p->n) / sqrt((double)p->n),
                 size = fmin(fmax(each, 0.02), 1) * sqrt((double)p->n);
    double best = HUGE_VAL, wider = NAN;
    int steps = 0;
    *error = *noise = HUGE_VAL;
    if (!isfinite(norm)) *noise = 0; /* as wrong as it gets */
    for (double part = 0.1; norm > 0 && isfinite(norm); part /= 3) {
        double got, h = part * size;
        if (h * norm > 0.05 * fmax(loss, 1)) continue;
        TN_RETURN_IF(slope(p, norm, h, &got));
        const double bend = isnan(wider) ? 0 : fabs(got - wider) / (8 * norm);
        if (steps++ == 1) { /* only now is known what curvature did to the first */
            best += 9 * bend;
            *noise += 9 * bend;
        }
        const double off = fabs(got - norm) / norm, floor = 4e-6 * fmax(loss, 1) / (h * norm);
        wider = got;
        if (off + floor + bend < best) {
            best = off + floor + bend;
            *error = off;
            *noise = floor + bend;
        }
        if (off < 2e-3 || floor > 0.05) break; /* good enough, or smaller steps would show noise alone */
    }
    if (steps && steps < 3 && *error > 0.02 + *noise) *noise = HUGE_VAL;
    return TN_OK;
}

/* Every tensor is moved by a part of its size: starts are special places. A sample whose input and bias are zero is at rest before the first step of
 * a solve, and then there are no steps for back-propagation to go through, though the loss around it has a slope; the largest singular value of
 * an orthogonal matrix, which all others equal, has no gradient at all. */
static tn_status leave_start(tn_trainer *t)
{
    tn_status s = TN_OK;
    tn_store *st = tn_trainer_store(t);
    tn_host_copy host = { 0 };
    float *moved = NULL;
    for (size_t k = 0; k < tn_store_count(st); k++) {
        const tn_entry *e = tn_store_at(st, k);
        const int64_t n = tn_dims_count(e->dims);
        const tn_rng r = { .seed = 1, .stream = tn_rng_stream(e->name) };
        if (e->role != TN_ROLE_PARAM || e->dtype != TN_F32) continue;
        const float *x = tn_store_read(st, e->data, sizeof *x * (size_t)n, &host);
        if (!x) TN_TRY(TN_MEMORY);
        const double size = norm_of(x, n) / sqrt((double)n);
        const float by = size > 0 ? BESIDE * (float)size : NEAR_ZERO;
        tn_free(moved);
        if (!(moved = tn_alloc(sizeof *moved * (size_t)n + 64))) TN_TRY(TN_MEMORY);
        for (int64_t i = 0; i < n; i++) moved[i] = x[i] + 2 * by * (tn_rng_uniform(r, (uint64_t)i) - 0.5f);
        TN_TRY(tn_store_write(st, e->data, moved, sizeof *moved * (size_t)n));
    }
done:
    tn_free(moved);
    tn_host_copy_free(&host);
    return s;
}

/* Plans that are not trained have the schedules' last values, so the gradient is taken with those. */
static int64_t step_of(const tn_check *c)
{
    return c->model->n_schedules
               ? (tn_settings_int(c->settings, "train.steps") - 1) * tn_settings_int(c->settings, "train.accumulate")
               : 0;
}

/* A trainer on the batch of the gradient check, and its gradients. exact: with the settings under which they are; f32: in it. */
static tn_status open_gradients(const tn_check *c, bool exact, bool f32, tn_settings **st, tn_trainer **t, float *loss)
{
    tn_check still = *c;
    TN_RETURN_IF(tn_settings_clone(c->settings, st));
    TN_RETURN_IF(tn_settings_set(*st, "train.dropout", "0", "check")); /* differences are taken without it */
    for (const char *const *v = exact ? c->model->exact : NULL; v && *v; v++)
        TN_RETURN_IF(tn_settings_override(*st, *v));
    if (f32) TN_RETURN_IF(tn_settings_set(*st, "compute", "f32", "check"));
    still.settings = *st;
    TN_RETURN_IF(
        tn__check_open(&still, (tn_trainer_options){ .batch = 1, .length = c->length < 32 ? c->length : 32 }, t));
    TN_RETURN_IF(leave_start(*t));
    TN_RETURN_IF(tn_trainer_grad(*t, step_of(c), loss));
    tn_trainer_unscale(*t);
    return TN_OK;
}

/* Cosine of two gradients over the parameters that both have. */
static tn_status cosine(tn_trainer *a, tn_trainer *b, double *out)
{
    tn_status s = TN_OK;
    tn_host_copy x = { 0 }, y = { 0 };
    double dot = 0, aa = 0, bb = 0;
    const tn_store *st = tn_trainer_store(a);
    for (size_t k = 0; k < tn_store_count(st); k++) {
        const tn_entry *e = tn_store_at(st, k), *o = tn_store_find(tn_trainer_store(b), e->name);
        if (e->role != TN_ROLE_PARAM || !o || !tn_dims_equal(e->dims, o->dims)) continue;
        const int64_t n = tn_dims_count(e->dims);
        const float *p = tn_store_read(st, e->grad, sizeof *p * (size_t)n, &x);
        const float *q = tn_store_read(tn_trainer_store(b), o->grad, sizeof *q * (size_t)n, &y);
        if (!p || !q) TN_TRY(TN_MEMORY);
        for (int64_t i = 0; i < n; i++) {
            dot += (double)p[i] * (double)q[i];
            aa += (double)p[i] * (double)p[i];
            bb += (double)q[i] * (double)q[i];
        }
    }
    *out = dot / sqrt(aa * bb);
done:
    tn_host_copy_free(&x);
    tn_host_copy_free(&y);
    return s;
}

/* A gradient that only comes near: it has to point the same way. */
static tn_status check_estimate(const tn_check *c, tn_trainer *exact, tn_check_row *r)
{
    tn_status s = TN_OK;
    tn_trainer *t = NULL;
    tn_settings *st = NULL;
    float loss;
    double same;
    size_t at = strlen(r->detail);
    TN_TRY(open_gradients(c, false, false, &st, &t, &loss));
    TN_TRY(cosine(exact, t, &same));
    if (!(same > 0)) r->verdict = TN_FAILED;
    for (const char *const *v = c->model->exact; *v && at < sizeof r->detail; v++)
        at +=
            (size_t)snprintf(r->detail + at, sizeof r->detail - at, "%s%s", v == c->model->exact ? ", with " : " ", *v);
    if (at < sizeof r->detail) snprintf(r->detail + at, sizeof r->detail - at, "; as set: cosine with it %.4f", same);
done:
    tn_trainer_free(t);
    tn_settings_free(st);
    return s;
}

/* Half the distance of neighbouring numbers as a part of them, in the type that products or activations are rounded to; 0: none. */
static tn_status rounding_of(const tn_check *c, double *out)
{
    tn_graph_setup s;
    TN_RETURN_IF(tn_graph_setup_read(c->settings, NULL, 0, &s));
    *out = s.options.round == TN_BF16 ? 0x1p-9 : s.options.round == TN_F16 || s.options.tf32 ? 0x1p-12 : 0;
    return TN_OK;
}

/* Distance of two tensors' gradients, and the first one's size. */
static tn_status distance(tn_trainer *a, tn_trainer *b, const tn_entry *e, double *apart, double *size)
{
    tn_status s = TN_OK;
    tn_host_copy x = { 0 }, y = { 0 };
    double sum = 0;
    const int64_t n = tn_dims_count(e->dims);
    const tn_entry *o = tn_store_find(tn_trainer_store(b), e->name);
    const float *p = tn_store_read(tn_trainer_store(a), e->grad, sizeof *p * (size_t)n, &x);
    const float *q = tn_store_read(tn_trainer_store(b), o->grad, sizeof *q * (size_t)n, &y);
    if (!p || !q) TN_TRY(TN_MEMORY);
    for (int64_t i = 0; i < n; i++) sum += pow((double)p[i] - (double)q[i], 2);
    *apart = sqrt(sum);
    *size = norm_of(p, n);
done:
    tn_host_copy_free(&x);
    tn_host_copy_free(&y);
    return s;
}

/* Gradients as `compute` rounds them against those in f32, the worst as a part of the tensor's. One that is next to nothing beside the
 * others is a small difference of large numbers, and counts by the largest. */
static tn_status check_rounded(const tn_check *c, tn_trainer *strict, double rounding, tn_check_row *r)
{
    tn_status s = TN_OK;
    tn_trainer *t = NULL;
    tn_settings *st = NULL;
    float loss;
    double most = 0, worst = 0, apart, size;
    const char *where = "none";
    const tn_store *from = tn_trainer_store(strict);
    const size_t at = strlen(r->detail);
    TN_TRY(open_gradients(c, true, false, &st, &t, &loss));
    for (int pass = 0; pass < 2; pass++)
        for (size_t k = 0; k < tn_store_count(from); k++) {
            const tn_entry *e = tn_store_at(from, k);
            if (e->role != TN_ROLE_PARAM) continue;
            TN_TRY(distance(strict, t, e, &apart, &size));
            if (!pass) most = fmax(most, size);
            else if (!(apart / fmax(size, SMALL * most) <= worst)) {
                worst = apart / fmax(size, SMALL * most);
                where = e->name;
            }
        }
    if (!(worst <= ROUNDINGS * rounding)) r->verdict = TN_FAILED;
    snprintf(r->detail + at, sizeof r->detail - at, " in f32; rounded ones off by %.1e at most, at %s", worst, where);
done:
    tn_trainer_free(t);
    tn_settings_free(st);
    return s;
}

typedef struct findings {
    int checked, probed, total,
        bad;               /* of all tensors some are probed; checked: those whose slope can be told from rounding */
    double worst, largest; /* largest: norm of a gradient */
    char where[96];
} findings;

/* Worst difference over a spread of tensors; an odd stride meets every kind of tensor, each in another layer. */
static tn_status check_tensors(const tn_check *c, tn_trainer *t, float loss, findings *f)
{
    const double begun = tn_clock_s();
    const size_t n = tn_store_count(tn_trainer_store(t)), stride = n > MOST_TENSORS ? (n / MOST_TENSORS) | 1 : 1;
    for (size_t k = 0; k < n; k++) {
        const tn_entry *e = tn_store_at(tn_trainer_store(t), k);
        double error, noise;
        if (e->role != TN_ROLE_PARAM) continue;
        f->total++;
        if (k % stride || tn_clock_s() - begun > 20) continue;
        probe p;
        TN_RETURN_IF(open_probe(t, c->step, e, &p));
        const tn_status s = slope_error(&p, (double)loss, &error, &noise);
        f->probed++;
        f->largest = fmax(f->largest, norm_of(p.grad, p.n));
        close_probe(&p);
        if (s != TN_OK) return s;
        if (noise > 0.05) continue;
        f->checked++;
        f->bad += error > 0.02 + noise;
        if (error <= f->worst) continue;
        f->worst = error;
        snprintf(f->where, sizeof f->where, "%s%s%s", e->name, c->step ? " of step " : "", c->step ? c->step : "");
    }
    return TN_OK;
}

/* --- gradients by inputs ------------------------------------------------------------------------------------------------- */

/* The one input that is asked for, and its gradient with all weights frozen. */
static tn_status open_input_probe(tn_trainer *t, const char *output, probe *p)
{
    float *x = tn_trainer_input(t, output + 2);
    int64_t n;
    const float *grad = tn_trainer_output(t, output, &n);
    if (!x || !grad) return tn_error(TN_INTERNAL, "no gradient %s", output);
    const size_t bytes = sizeof(float) * (size_t)n + 64;
    *p = (probe){
        .trainer = t, .input = x, .n = n, .kept = tn_alloc(bytes), .grad = tn_alloc(bytes), .moved = tn_alloc(bytes)
    };
    if (!p->kept || !p->grad || !p->moved) {
        close_probe(p);
        return TN_MEMORY;
    }
    memcpy(p->kept, x, sizeof *x * (size_t)n);
    memcpy(p->grad, grad, sizeof *grad * (size_t)n);
    return TN_OK;
}

/* By one input: the model's own rows without the optional ones, but with this one. */
static tn_status check_input(const tn_check *c, const tn_settings *st, const tn_input_row *by, findings *f)
{
    tn_status s = TN_OK;
    tn_trainer *t = NULL;
    const tn_model *m = c->model;
    const tn_input_spec known = c->source ? tn_source_input_spec(c->source) : (tn_input_spec){ 0 };
    tn_input_row rows[TN_INPUTS_MAX];
    tn_input_spec spec = tn_input_spec_with(m, by->name, rows); /* with what it assumes where nobody has data */
    char output[96];
    const char *const wants[] = { output, NULL };
    float loss;
    double error, noise;
    probe p = { 0 };
    snprintf(output, sizeof output, "d.%s", by->name);
    if (known.n_numbers) spec.numbers = known.numbers, spec.n_numbers = known.n_numbers;
    const tn_trainer_options o = { .model = m,
                                   .settings = st,
                                   .batch = tn_model_reads_sequences(m) ? 1 : c->batch,
                                   .length = c->length < 32 ? c->length : 32,
                                   .input_spec = &spec,
                                   .wants = wants,
                                   .forward_only = true };
    TN_TRY(tn_trainer_new(&o, &t));
    TN_TRY(tn_parts_load(st, m, tn_trainer_store(t)));
    const tn_feed feed = tn_trainer_feed(t);
    tn_feed_random(&feed, (tn_rng){ .seed = 1, .stream = 11 });
    TN_TRY(tn_trainer_eval(t, &loss));
    TN_TRY(open_input_probe(t, output, &p));
    TN_TRY(slope_error(&p, (double)loss, &error, &noise));
    f->total++;
    if (noise > 0.05) goto done;
    f->checked++;
    f->bad += error > 0.02 + noise;
    if (error < f->worst) goto done;
    f->worst = error;
    snprintf(f->where, sizeof f->where, "%s", by->name);
done:
    close_probe(&p);
    tn_trainer_free(t);
    return s;
}

/* By vectors that stand in the place of tokens; and where no weight is trained, by all inputs of floats. */
static tn_status check_inputs(const tn_check *c, const tn_settings *st, bool all, findings *f)
{
    for (size_t i = 0; i < c->model->n_inputs; i++) {
        const tn_input_row *row = &c->model->inputs[i];
        const bool instead = row->optional && row->cut, always = all && !row->optional;
        if (row->type == TN_F32 && (instead || always)) TN_RETURN_IF(check_input(c, st, row, f));
    }
    return TN_OK;
}

/* Whether a step trains anything: a trainer refuses one that does not. */
static tn_status has_trained(const tn_check *c, bool *out)
{
    tn_graph_setup setup;
    tn_graph *g;
    const tn_input_spec spec = c->source ? tn_source_input_spec(c->source) : (tn_input_spec){ 0 };
    const tn_graph_shape shape = { .batch = c->batch,
                                   .length = c->length,
                                   .training = true,
                                   .step = c->step,
                                   .input_spec = c->source && c->source->ctx ? &spec : NULL };
    TN_RETURN_IF(tn_graph_setup_read(c->settings, NULL, 0, &setup));
    TN_RETURN_IF(tn_graph_setup_build(&setup, c->model, c->settings, &shape, &g));
    *out = false;
    for (size_t i = 1; i < g->n_tensors; i++) *out |= g->tensor[i].role == TN_ROLE_PARAM;
    tn_graph_free(g);
    return TN_OK;
}

/* Of a step that trains nothing: by its inputs. */
static tn_status check_frozen(const tn_check *c, tn_check_row *r)
{
    findings f = { .where = "none" };
    TN_RETURN_IF(check_inputs(c, c->settings, true, &f));
    r->value = f.worst;
    r->verdict = f.checked && !f.bad ? TN_PASS : TN_FAILED;
    snprintf(r->detail, sizeof r->detail,
             "no tensor is trained; %d of %d inputs against differences of the loss, worst %.1e at %s", f.checked,
             f.total, f.worst, f.where);
    return TN_OK;
}

/* Nothing could be told: an untrained reader hardly depends on what it is given. Without any gradient at all something is wrong. */
static void say_too_small(const findings *f, float loss, tn_check_row *r)
{
    r->verdict = f->largest > 0 ? TN_SKIPPED : TN_FAILED;
    if (r->verdict == TN_SKIPPED)
        snprintf(r->detail, sizeof r->detail,
                 "gradients of %d tensors, of norm %.1e at most, are lost in the rounding of a loss of %.3g: "
                 "try trained parts or data",
                 f->probed, f->largest, (double)loss);
    else snprintf(r->detail, sizeof r->detail, "the gradients of all %d tensors are 0", f->probed);
}

static tn_status check_step(const tn_check *c, findings *f, tn_check_row *r)
{
    findings inputs = { .where = "none" };
    bool trained;
    TN_RETURN_IF(has_trained(c, &trained));
    if (!trained) return check_frozen(c, r);
    tn_status s = TN_OK;
    tn_trainer *t = NULL;
    tn_settings *fixed = NULL;
    float loss;
    double rounding;
    TN_TRY(rounding_of(c, &rounding));
    TN_TRY(open_gradients(c, true, rounding > 0, &fixed, &t, &loss));
    TN_TRY(check_tensors(c, t, loss, f));
    TN_TRY(check_inputs(c, fixed, false, &inputs));
    r->value = f->worst;
    r->verdict = f->checked && !f->bad && !inputs.bad ? TN_PASS : TN_FAILED;
    snprintf(r->detail, sizeof r->detail, "%d of %d tensors against differences of the loss, worst %.1e at %s",
             f->checked, f->total, f->worst, f->where);
    if (inputs.total) {
        const size_t at = strlen(r->detail);
        snprintf(r->detail + at, sizeof r->detail - at, ", by input %s %.1e", inputs.where, inputs.worst);
    }
    if (!f->checked && !f->bad && !inputs.bad) say_too_small(f, loss, r);
    if (rounding > 0) TN_TRY(check_rounded(c, t, rounding, r));
    if (c->model->exact) TN_TRY(check_estimate(c, t, r));
done:
    tn_trainer_free(t);
    tn_settings_free(fixed);
    return s;
}

/* Of every step that trains. */
tn_status tn__check_gradients(const tn_check *c, tn_check_row *r)
{
    const tn_model *m = c->model;
    findings f = { .where = "none" };
    tn_check one = *c;
    for (size_t i = 0; i < m->n_steps; i++) {
        if (!m->steps[i].gradients) continue;
        one.step = m->steps[i].name;
        TN_RETURN_IF(check_step(&one, &f, r));
        if (r->verdict == TN_FAILED) return TN_OK;
    }
    return one.step ? TN_OK : check_step(&one, &f, r);
}
