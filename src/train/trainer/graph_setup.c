/* Graph options from the settings. */
#include "train/trainer/graph_setup.h"

#include "backend/backend.h"
#include "models/models.h"
#include "ops/linear_xent/linear_xent.h"
#include "ops/xent/xent.h"

#include <string.h>
#include <unistd.h>

static int wanted_threads(const tn_settings *st)
{
    if (!tn_settings_is_auto(st, "threads")) return (int)tn_settings_int(st, "threads");
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > 256 ? 256 : (int)n;
}

static tn_status list_off(const tn_settings *st, const char **off)
{
    int n = 0;
    for (size_t i = 0; i < tn_settings_count(st); i++) {
        const tn_setting *row = tn_settings_row_at(st, i);
        if (row->type != TN_TYPE_SWITCH || tn_settings_on(st, row->key)) continue;
        if (n == TN_SWITCHES_MAX - 1) return tn_error(TN_USAGE, "more than %d switches are off", TN_SWITCHES_MAX - 1);
        off[n++] = row->key;
    }
    off[n] = NULL;
    return TN_OK;
}

static tn_status find_device(const tn_settings *st, tn_device *out)
{
    const char *wanted = tn_settings_text(st, "device");
    const bool gpu = strcmp(wanted, "cpu") != 0 && tn_backend_get(TN_CUDA);
    if (!gpu && strcmp(wanted, "cuda") == 0) return TN_USAGE; /* tn_backend_get has said why */
    *out = gpu ? TN_CUDA : TN_CPU;
    return TN_OK;
}

static bool typed(const tn_settings *st, const char *key)
{
    return strcmp(tn_settings_source(st, key), "command line") == 0;
}

tn_status tn_graph_setup_here(tn_settings *st, bool on_cpu)
{
    if (typed(st, "device")) return TN_OK;
    const char *wanted = tn_settings_text(st, "device"), *compute = tn_settings_text(st, "compute");
    const bool wants = !on_cpu && strcmp(wanted, "cpu") != 0, gpu = wants && tn_backend_get(TN_CUDA);
    if (gpu) return TN_OK;
    if (strcmp(compute, "tf32") == 0 && !typed(st, "compute"))
        TN_RETURN_IF(tn_settings_set(st, "compute", "f32", "no GPU here"));
    return wants && strcmp(wanted, "cuda") == 0 ? tn_settings_set(st, "device", "cpu", "no GPU here") : TN_OK;
}

/* A GPU's products take a weight in f32 (it is rounded, or read as tf32) or in the type of activations. */
static tn_status read_frozen(const tn_settings *st, tn_graph_setup *out)
{
    static const tn_dtype types[] = { TN_DTYPES, TN_F32, TN_BF16, TN_F16 }; /* in the order of the choices */
    const int64_t which = tn_settings_choice(st, "frozen");
    out->frozen = types[which];
    if (out->device == TN_CPU || which < 2 || out->frozen == out->options.activation) return TN_OK;
    return tn_error(TN_USAGE, "frozen=%s on a GPU: use frozen=auto or f32, or compute=%s",
                    tn_settings_text(st, "frozen"), tn_dtype_name(out->frozen));
}

/* What the operands of products are rounded to, which on a GPU is the type of activations too: its products take what lies in memory,
 * and write it. */
static const struct {
    const char *name;
    tn_dtype half; /* TN_F32: none */
    bool not_on[TN_DEVICES];
} computes[] = {
    { "bf16", TN_BF16, { false } },
    { "f32", TN_F32, { false } },
    { "f16", TN_F16, { false } },
    { "tf32", TN_F32, { [TN_CPU] = true } },
    { "bf16x3", TN_F32, { [TN_CUDA] = true } },
};

static tn_status read_compute(const tn_settings *st, tn_device device, size_t *out)
{
    const char *compute = tn_settings_text(st, "compute");
    size_t i = 0;
    if (strcmp(compute, "auto") == 0) compute = device == TN_CUDA ? "bf16" : "f32";
    while (strcmp(computes[i].name, compute) != 0) i++;
    *out = i;
    if (!computes[i].not_on[device]) return TN_OK;
    if (device == TN_CUDA)
        return tn_error(TN_USAGE, "compute=%s is for the CPU: on the GPU use compute=bf16, f16, tf32 or f32", compute);
    return tn_error(TN_USAGE, "compute=%s needs a GPU: on the CPU use compute=f32, bf16 or bf16x3, or set device=cuda",
                    compute);
}

tn_status tn_graph_setup_read(const tn_settings *st, const tn_device *device, int threads, tn_graph_setup *out)
{
    size_t how;
    TN_RETURN_IF(list_off(st, out->off));
    if (device) out->device = *device;
    else TN_RETURN_IF(find_device(st, &out->device));
    TN_RETURN_IF(read_compute(st, out->device, &how));
    out->options = (tn_graph_options){ .threads = threads > 0 ? threads : wanted_threads(st),
                                       .off = out->off,
                                       .device = out->device,
                                       .activation = out->device == TN_CUDA ? computes[how].half : TN_F32,
                                       .round = computes[how].half,
                                       .bf16x3 = strcmp(computes[how].name, "bf16x3") == 0,
                                       .tf32 = strcmp(computes[how].name, "tf32") == 0 };
    return read_frozen(st, out);
}

void tn_graph_setup_freeze(tn_graph_setup *setup, tn_dtype own)
{
    tn_graph_options *o = &setup->options;
    const tn_dtype usual = setup->device == TN_CPU ? own : o->activation,
                   set = setup->frozen != TN_DTYPES ? setup->frozen : usual;
    o->weights = o->frozen ? usual : set;
    o->parts = o->frozen ? set : TN_F32;
}

/* The op that makes the loss knows it label by label, whatever the model. */
static tn_status put_nll(tn_graph *g, const tn_model *model)
{
    const tn_ref xent = tn_graph_output(g, "xent"), loss = xent.id ? xent : tn_graph_output(g, "loss");
    const int32_t at = tn_graph_tensor(g, loss.id)->producer;
    const tn_node *n = at >= 0 ? &g->node[at] : NULL;
    if (!n || (n->op != &tn_op_linear_xent && n->op != &tn_op_xent))
        return tn_error(TN_USAGE, "the loss of model %s is not a cross-entropy: it has no loss by position",
                        model->name);
    tn_output(g, "nll", (tn_ref){ n->out[1] });
    return tn_graph_status(g);
}

/* Of steps that are trained or evaluated. */
static tn_status check_loss(const tn_graph *g, const tn_model *model, const char *step)
{
    char dims[96];
    const tn_ref loss = tn_graph_output(g, "loss");
    if (!loss.id)
        return tn_error(TN_USAGE, "model %s, step %s has no output loss: call tn_output(g, \"loss\", one number)",
                        model->name, step);
    if (tn_dims_count(tn_ref_dims(g, loss)) == 1) return TN_OK;
    return tn_error(TN_USAGE, "model %s, step %s: its loss is %s: make it one number, such as tn_mean_all of it",
                    model->name, step, tn_dims_text(tn_ref_dims(g, loss), dims, sizeof dims));
}

/* "d.NAME" -> "NAME"; NULL: another output. */
static const char *gradient_by(const char *want) { return strncmp(want, "d.", 2) == 0 ? want + 2 : NULL; }

/* Tells the batch what is wanted of it, and the graph by which inputs it is differentiated: any says whether there are such. */
static tn_status ask(const char *const *wants, const tn_model *model, tn_graph *g, tn_batch *b, bool *any)
{
    *any = false;
    for (; wants && *wants; wants++) {
        const char *name = gradient_by(*wants);
        if (!name) tn_batch_want(b, *wants);
        if (!name || strcmp(b->step, "eval") != 0) continue;
        const tn_ref x = tn_in(b, name);
        if (!x.id || !tn_dtype_is_float(tn_ref_dtype(g, x)))
            return tn_error(TN_USAGE,
                            "output %.60s: model %s reads no floats as %.60s here: fill that input, or ask for another",
                            *wants, model->name, name);
        tn_want_gradient(g, x);
        *any = true;
    }
    return TN_OK;
}

tn_ref tn_graph_setup_loss(const tn_graph *g, const char *const *wants)
{
    for (; wants && *wants; wants++)
        if (gradient_by(*wants)) return tn_graph_output(g, "loss");
    return TN_NONE;
}

tn_status tn_graph_setup_build(const tn_graph_setup *setup, const tn_model *model, const tn_settings *st,
                               const tn_graph_shape *shape, tn_graph **out)
{
    tn_status s = TN_OK;
    tn_graph *g = NULL;
    tn_graph_options o = setup->options;
    tn_inputs own;
    const tn_inputs *in = shape->inputs ? shape->inputs : &own;
    if (!shape->inputs) TN_RETURN_IF(tn_inputs_match(model, st, shape->input_spec, &own));
    o.training = shape->training;
    o.instruments = shape->instruments;
    TN_TRY(tn_graph_new(&o, &g));
    g->expect = shape->expect;
    g->expect_ctx = shape->expect_ctx;
    tn_batch b = { .size = sizeof b,
                   .batch = shape->batch,
                   .length = shape->length,
                   .step = shape->step       ? shape->step
                           : shape->training ? "train"
                                             : "eval" };
    tn_inputs_build(in, g, &b);
    TN_TRY(ask(shape->wants, model, g, &b, &g->untrained));
    TN_TRY(tn_model_build(model, g, st, &b));
    TN_TRY(tn_graph_status(g));
    if (shape->training || strcmp(b.step, "eval") == 0) TN_TRY(check_loss(g, model, b.step));
    if (shape->nll) TN_TRY(put_nll(g, model));
    *out = g;
    g = NULL;
done:
    tn_graph_free(g);
    return s;
}
