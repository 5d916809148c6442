/* Compares a model with another implementation: a safetensors file holds weights, inputs and the other side's results
 * (docs/against.md). Rows come in the order outputs, gradients, training; the first that differs is where to look. */
#include "io/safetensors.h"
#include "train/check/check.h"
#include "train/trainer/inputs.h"
#include "train/checkpoint/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct against {
    const tn_check *c;
    const char *path;
    tn_safetensors *file;
    tn_trainer *trainer;
    int64_t steps; /* batches in the file */
    int failed, compared;
} against;

/* Tolerances for f32 against f64: max|x - ref| / max|ref|. */
static const double output_tolerance = 1e-4, gradient_tolerance = 1e-4, losses_tolerance = 1e-4;

/* values: n numbers to show beside it, or NULL. */
static void emit(against *a, const char *name, double error, double tolerance, const char *what, const float *values,
                 int64_t n)
{
    tn_check_row r = { .name = name,
                       .value = error,
                       .unit = "",
                       .verdict = error <= tolerance ? TN_PASS : TN_FAILED,
                       .values = values,
                       .n_values = n };
    snprintf(r.detail, sizeof r.detail, "%s: error %.2e, tolerance %.0e", what, error, tolerance);
    a->compared++;
    if (r.verdict == TN_FAILED && a->failed++ == 0) {
        const size_t used = strlen(r.detail);
        snprintf(r.detail + used, sizeof r.detail - used, "  <- the first that differs");
    }
    a->c->row(a->c->ctx, &r);
}

static tn_status read_doubles(const against *a, const char *name, int64_t count, double **out)
{
    const tn_file_tensor *t;
    TN_RETURN_IF(tn_safetensors_find(a->file, name, &t));
    if (tn_dims_count(t->dims) != count)
        return tn_error(TN_BAD_FILE, "%s: %s has %lld numbers, the model's has %lld", a->path, name,
                        (long long)tn_dims_count(t->dims), (long long)count);
    double *x = tn_alloc(sizeof *x * (size_t)(count + 1));
    if (!x) return TN_MEMORY;
    const size_t item = tn_dtype_bytes(t->dtype);
    for (int64_t i = 0; i < count; i++) {
        char aligned[8]; /* the file's data may lie at any address */
        memcpy(aligned, (const char *)t->data + (size_t)i * item, item);
        tn_convert(&x[i], TN_F64, aligned, t->dtype, 1);
    }
    *out = x;
    return TN_OK;
}

static double error_of(const float *x, const double *ref, int64_t n)
{
    double worst = 0, scale = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs((double)x[i] - ref[i]);
        if (isnan(d) || d > worst) worst = d; /* a NaN stays */
        scale = fmax(scale, fabs(ref[i]));
    }
    return worst / fmax(scale, 1e-12);
}

static tn_status compare(against *a, const char *name, const float *x, int64_t n, double tolerance, const char *what)
{
    double *ref;
    TN_RETURN_IF(read_doubles(a, name, n, &ref));
    emit(a, name, error_of(x, ref, n), tolerance, what, NULL, 0);
    tn_free(ref);
    return TN_OK;
}

/* --- inputs and weights ------------------------------------------------------------------------------------------------ */

/* Batch `step` of an input. */
static tn_status load_input(const against *a, const tn_input_slot *s, const char *name, int64_t step, const tn_feed *f,
                            void *to)
{
    const int64_t n = tn_input_items(s, f->batch, f->length);
    double *x;
    TN_RETURN_IF(read_doubles(a, name, n * a->steps, &x));
    tn_convert(to, s->row->type, x + step * n, TN_F64, n);
    tn_free(x);
    return TN_OK;
}

/* The numbers of samples may be left out: a row's own. What decides about the result may not. */
static bool may_be_left_out(const tn_input_row *row) { return row->type == TN_I32 && !row->below; }

static tn_status load_batch(const against *a, int64_t step)
{
    const tn_feed f = tn_trainer_feed(a->trainer);
    tn_feed_random(&f, (tn_rng){ .seed = 1 });
    for (size_t i = 0; i < f.inputs->n; i++) {
        const tn_input_slot *s = &f.inputs->slot[i];
        char name[128];
        snprintf(name, sizeof name, "input.%.100s", s->row->name);
        if (!f.at[i] || (may_be_left_out(s->row) && !tn_safetensors_has(a->file, name))) continue;
        TN_RETURN_IF(load_input(a, s, name, step, &f, f.at[i]));
    }
    return TN_OK;
}

static tn_status load_weights(const against *a)
{
    const tn_store *st = tn_trainer_store(a->trainer);
    for (size_t i = 0; i < tn_store_count(st); i++) {
        const tn_entry *e = tn_store_at(st, i);
        const tn_file_tensor *t;
        char name[600], want[128], have[128];
        if (e->role != TN_ROLE_PARAM && e->role != TN_ROLE_FROZEN) continue;
        snprintf(name, sizeof name, "param.%s", e->name);
        TN_RETURN_IF(tn_safetensors_find(a->file, name, &t));
        if (!tn_dims_equal(t->dims, e->dims))
            return tn_error(TN_BAD_FILE, "%s: %s has shape %s, the model expects %s", a->path, name,
                            tn_dims_text(t->dims, have, sizeof have), tn_dims_text(e->dims, want, sizeof want));
        if (e->dtype == TN_F32) TN_RETURN_IF(tn_store_take_floats(st, e, t));
        else if (e->dtype != t->dtype)
            return tn_error(TN_BAD_FILE, "%s: %s is %s, the model expects %s", a->path, name, tn_dtype_name(t->dtype),
                            tn_dtype_name(e->dtype));
        else
            TN_RETURN_IF(
                tn_store_write(st, e->data, t->data, (size_t)tn_dims_count(e->dims) * tn_dtype_bytes(e->dtype)));
    }
    return TN_OK;
}

/* --- comparisons --------------------------------------------------------------------------------------------------------- */

/* Whether evaluations have a step of their own, whose loss is not the one that is minimised. */
static bool evaluates_apart(const tn_model *m)
{
    for (size_t i = 0; i < m->n_steps; i++)
        if (strcmp(m->steps[i].name, "eval") == 0) return true;
    return false;
}

/* output.NAME of the file: logits, and whatever else evaluations put out as f32. */
static tn_status compare_outputs(against *a)
{
    static const char lead[] = "output.";
    float loss;
    int64_t count;
    TN_RETURN_IF(load_batch(a, 0));
    TN_RETURN_IF(tn_trainer_eval(a->trainer, &loss));
    for (size_t i = 0; i < tn_safetensors_count(a->file); i++) {
        const char *name = tn_safetensors_at(a->file, i)->name, *own = name + sizeof lead - 1;
        if (strncmp(name, lead, sizeof lead - 1) != 0 || strcmp(own, "loss") == 0 || strcmp(own, "losses") == 0)
            continue;
        const float *x = tn_trainer_output(a->trainer, own, &count);
        if (!x) return tn_error(TN_USAGE, "the file has %s, but the model outputs no %s", name, own);
        TN_RETURN_IF(compare(a, name, x, count, output_tolerance, "of the first batch"));
    }
    if (evaluates_apart(a->c->model)) return TN_OK;
    return compare(a, "output.loss", &loss, 1, output_tolerance, "loss of the first batch");
}

static tn_status compare_gradients(against *a)
{
    tn_status s = TN_OK;
    const tn_store *st = tn_trainer_store(a->trainer);
    tn_host_copy host = { 0 };
    float loss;
    TN_TRY(tn_trainer_grad(a->trainer, 0, &loss));
    if (evaluates_apart(a->c->model))
        TN_TRY(compare(a, "output.loss", &loss, 1, output_tolerance, "loss of the first batch, in training"));
    tn_trainer_unscale(a->trainer);
    for (size_t i = 0; i < tn_store_count(st); i++) {
        const tn_entry *e = tn_store_at(st, i);
        char name[600];
        if (e->role != TN_ROLE_PARAM) continue;
        snprintf(name, sizeof name, "grad.%s", e->name);
        if (!tn_safetensors_has(a->file, name)) continue;
        const float *grad = tn_store_read(st, e->grad, sizeof *grad * (size_t)tn_dims_count(e->dims), &host);
        if (!grad) TN_TRY(TN_MEMORY);
        TN_TRY(compare(a, name, grad, tn_dims_count(e->dims), gradient_tolerance, "gradient"));
    }
    tn_store_zero_grad(tn_trainer_store(a->trainer));
done:
    tn_host_copy_free(&host);
    return s;
}

static tn_status compare_training(against *a)
{
    tn_status s = TN_OK;
    double *ref = NULL;
    if (!tn_safetensors_has(a->file, "output.losses")) return TN_OK;
    float *got = tn_alloc(sizeof *got * (size_t)(a->steps + 1));
    char what[96];
    if (!got) return TN_MEMORY;
    TN_TRY(read_doubles(a, "output.losses", a->steps, &ref));
    double worst = 0;
    for (int64_t i = 0; i < a->steps; i++) {
        tn_update_result applied;
        TN_TRY(load_batch(a, i));
        TN_TRY(tn_trainer_grad(a->trainer, i, &got[i]));
        TN_TRY(tn_trainer_apply(a->trainer, i, 1, got[i], &applied));
        const double e = fabs((double)got[i] - ref[i]) / fmax(fabs(ref[i]), 1e-12);
        if (isnan(e) || e > worst) worst = e;
    }
    snprintf(what, sizeof what, "losses of %lld training steps, %.4f -> %.4f", (long long)a->steps, (double)got[0],
             (double)got[a->steps - 1]);
    emit(a, "output.losses", worst, losses_tolerance, what, got, a->steps);
done:
    tn_free(got);
    tn_free(ref);
    return s;
}

/* Sizes of the first input behind B and T are the model's. */
static tn_status check_sizes(const against *a)
{
    const tn_input_slot *s = &tn_trainer_inputs(a->trainer)->slot[0];
    const tn_file_tensor *t;
    char name[128];
    snprintf(name, sizeof name, "input.%.100s", s->row->name);
    TN_RETURN_IF(tn_safetensors_find(a->file, name, &t));
    for (int k = 0; k < s->rank && s->rank <= t->dims.rank; k++) {
        const int64_t has = t->dims.dim[t->dims.rank - s->rank + k];
        if (s->dim[k] && has != s->dim[k])
            return tn_error(
                TN_BAD_FILE,
                "%s: %s has size %lld where the model has %s=%lld: write it for this model, or change the setting",
                a->path, name, (long long)has, s->row->dims[k], (long long)s->dim[k]);
    }
    return TN_OK;
}

/* The model's first input says B, T and, with an axis in front, S steps; labels how many a sample has. */
static tn_status read_shape(against *a, tn_check *c, int64_t *labels)
{
    const tn_input_row *row = &c->model->inputs[0];
    const tn_file_tensor *t, *y = NULL;
    char name[128];
    int rank = 0;
    while (rank < TN_INPUT_RANK && row->dims[rank]) rank++;
    snprintf(name, sizeof name, "input.%.100s", row->name);
    TN_RETURN_IF(tn_safetensors_find(a->file, name, &t));
    if (tn_safetensors_has(a->file, "input.labels")) TN_RETURN_IF(tn_safetensors_find(a->file, "input.labels", &y));
    if (t->dims.rank != rank && t->dims.rank != rank + 1)
        return tn_error(TN_BAD_FILE, "%s: %s must have %d axes, or one more in front for steps", a->path, name, rank);
    const int at = t->dims.rank - rank;
    a->steps = at ? t->dims.dim[0] : 1;
    c->batch = t->dims.dim[at];
    if (row->dims[1] && strcmp(row->dims[1], TN_T) == 0) c->length = t->dims.dim[at + 1];
    if (tn_dims_count(t->dims) < 1) return tn_error(TN_BAD_FILE, "%s: %s is empty", a->path, name);
    *labels = y ? tn_dims_count(y->dims) / (a->steps * c->batch) : 1;
    if (*labels < 1) return tn_error(TN_BAD_FILE, "%s: input.labels is empty", a->path);
    return TN_OK;
}

tn_status tn_check_against(const tn_check *given, const char *path)
{
    tn_status s = TN_OK;
    tn_check c = *given;
    against a = { .c = &c, .path = path };
    int64_t labels = 0;
    TN_TRY(tn_safetensors_open(path, &a.file));
    TN_TRY(read_shape(&a, &c, &labels));
    const tn_trainer_options o = {
        .model = c.model,
        .settings = c.settings,
        .batch = c.batch,
        .length = c.length,
        .input_spec = &(tn_input_spec){ .numbers = &(tn_source_number){ "labels", (double)labels }, .n_numbers = 1 },
        .logits = tn_safetensors_has(a.file, "output.logits")
    };
    TN_TRY(tn_trainer_new(&o, &a.trainer));
    TN_TRY(check_sizes(&a));
    TN_TRY(load_weights(&a));
    TN_TRY(compare_outputs(&a));
    TN_TRY(compare_gradients(&a));
    TN_TRY(compare_training(&a));
    if (a.failed) TN_FAIL(TN_DIVERGED, "%d of %d tensors differ from %s", a.failed, a.compared, path);
done:
    tn_trainer_free(a.trainer);
    tn_safetensors_close(a.file);
    return s;
}
