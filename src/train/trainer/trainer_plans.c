/* The plans of a trainer: whether they fit into memory, compiling them or taking shared ones, and binding them. */
#include "train/trainer/trainer_internal.h"

#include "backend/backend.h"
#include "optim/optim.h"

#include <stdio.h>
#include <string.h>

static bool is_sgd(const tn_trainer *t) { return strcmp(tn_settings_text(t->settings, "train.optimizer"), "sgd") == 0; }

/* --- what fits -------------------------------------------------------------------------------------------------------------- */

/* What all that a trainer needs may take. The last tenth is left to the system and to what is not planned; on a GPU, of what is
 * free and what a borrowed store, or a borrowed context, has of it already, a little to the workspaces and the code of kernels. */
static double device_limit(const tn_trainer *t)
{
    size_t left, all;
    if (t->setup.device == TN_CPU) return 0.9 * tn_memory_limit();
    const tn_memory_plan m = tn_trainer_memory(t);
    if (tn_backend_get(t->setup.device)->memory(&left, &all) != TN_OK) return 0;
    return 0.98 * (double)left - 3e8 + (double)m.total + (double)tn_context_bytes(t->context);
}

/* plan.memory_gb, or 0: as much as there is. */
static double allowed(const tn_trainer *t) { return 1e9 * tn_settings_float(t->settings, "plan.memory_gb"); }

double tn__trainer_memory_limit(const tn_trainer *t)
{
    const double has = device_limit(t), may = allowed(t);
    return may > 0 && may < has ? may : has;
}

static bool is_allowed(const tn_trainer *t) { return t->memory_limit == allowed(t); }

/* For messages: whose memory it is, and how much of it. */
static const char *where_text(const tn_trainer *t)
{
    if (is_allowed(t)) return "plan.memory_gb allows";
    return t->setup.device == TN_CPU ? "the machine has" : "the GPU has";
}

/* The caller is told that nothing was asked for. */
tn_status tn__trainer_refuse(tn_refusal *refused, double need, double limit, tn_status s)
{
    if (refused) *refused = (tn_refusal){ .refused = true, .need = need, .limit = limit };
    return s;
}

/* ... and that no other plan of the same model and data would change it. */
static tn_status refuse_all(const tn_trainer *t, double need, double limit, tn_status s)
{
    (void)tn__trainer_refuse(t->refused, need, limit, s);
    if (t->refused) t->refused->fixed = need > limit;
    return s;
}

static double in_all(const tn_trainer *t, double limit)
{
    return t->setup.device == TN_CPU && !is_allowed(t) ? limit / 0.9e9 : limit / 1e9;
}

/* Before anything is allocated: all that the store will hold, and no tensor that alone is too large (which also keeps the
 * planner's sums of bytes far from overflow). In double, so that nothing here can overflow. */
static tn_status check_graph_fits(void *trainer, const tn_graph *g)
{
    const tn_trainer *t = trainer;
    const double copies = t->forward_only ? 2
                          : is_sgd(t)     ? 3
                                          : 4,
                 limit = t->memory_limit; /* parameters, gradients, moments */
    double store = 0, largest = 0;
    size_t at = 0;
    for (size_t i = 1; i < g->n_tensors; i++) {
        const tn_gtensor *x = &g->tensor[i];
        if (x->base != (int32_t)i) continue;
        const double bytes = (double)tn_gtensor_count(x) * (double)tn_dtype_bytes(x->dtype);
        if (x->role == TN_ROLE_PARAM) store += copies * bytes;
        if (x->role == TN_ROLE_FROZEN || x->role == TN_ROLE_STATE || x->role == TN_ROLE_CACHE ||
            x->role == TN_ROLE_DATA)
            store += bytes;
        if (bytes <= largest) continue;
        largest = bytes;
        at = i;
    }
    char dims[128];
    const tn_gtensor *x = &g->tensor[at];
    if (store > limit)
        return refuse_all(t, store, limit,
                          tn_error(TN_MEMORY,
                                   "the model needs %.4g GB for its parameters in training and %s %.4g GB: choose a "
                                   "smaller model (dim, layers, vocab)",
                                   store / 1e9, where_text(t), in_all(t, limit)));
    if (largest > limit)
        return tn__trainer_refuse(
            t->refused, largest, limit,
            tn_error(TN_MEMORY,
                     "a step needs %.4g GB for one tensor %s and %s %.4g GB: use a smaller train.batch "
                     "or train.context, or a smaller model",
                     largest / 1e9, tn_dims_text(x->dims, dims, sizeof dims), where_text(t), in_all(t, limit)));
    return TN_OK;
}

static bool recomputes_trained(const tn_trainer *t)
{
    return strcmp(tn_settings_text(t->settings, "plan.recompute"), "trained") == 0;
}

/* Before the arena is allocated. */
tn_status tn__trainer_fits(const tn_trainer *t)
{
    const tn_memory_plan m = tn_trainer_memory(t);
    const double need = (double)m.total, limit = t->memory_limit, data = (double)(m.data + m.host),
                 machine = 0.9 * tn_memory_limit(), samples = (double)m.samples;
    if (t->may_drop_samples && !tn_resident_fits(samples, need - samples, limit))
        return tn_error(TN_MEMORY, "the samples have no room beside the plan"); /* tn_trainer_new goes on without */
    if (data > machine || (need > limit && data > need / 2))
        return refuse_all(t, data, data > machine ? machine : limit,
                          tn_error(TN_MEMORY,
                                   "the plan needs %.4g GB for data and prefetched batches and the machine has "
                                   "%.4g GB: use a smaller loader.prefetch, train.batch or train.context",
                                   data / 1e9, machine / 0.9e9));
    if (need <= limit) return TN_OK;
    const bool least =
        t->batch == 1 && !recomputes_trained(t) && strcmp(tn_settings_text(t->settings, "plan.recompute"), "none") != 0;
    return tn__trainer_refuse(t->refused, need, limit,
                              tn_error(TN_MEMORY, "the plan needs %.4g GB and %s %.4g GB: use %s", need / 1e9,
                                       where_text(t), in_all(t, limit),
                                       least ? "a smaller model or train.context"
                                             : "a smaller train.batch or train.context, or plan.recompute=layer or "
                                               "chunk"));
}

/* --- making plans --------------------------------------------------------------------------------------------------------- */

/* Where weights have been trained or loaded, more of them would have the numbers of a seed. */
static tn_status check_known(const tn_trainer *t, const tn_graph *g, const char *step)
{
    for (size_t i = 1; i < g->n_tensors && t->sealed; i++)
        if (g->tensor[i].weight && g->tensor[i].base == (int32_t)i && !tn_store_find(t->store, g->tensor[i].name))
            return tn_error(TN_USAGE,
                            "model %s, step %s: it creates the parameter %s, which no step before it has: create it in "
                            "the training step too, "
                            "and name the step in a metric's .runs",
                            t->model->name, step, g->tensor[i].name);
    return TN_OK;
}

/* The model's graph for this shape; what the store lacks is added to it. */
static tn_status build_graph(tn_trainer *t, bool training, const char *step, tn_graph **out)
{
    tn_status s = TN_OK;
    tn_graph *g = NULL;
    const tn_graph_shape shape = { .batch = t->batch,
                                   .length = t->length,
                                   .training = training,
                                   .step = step,
                                   .wants = training ? NULL : t->want,
                                   .nll = t->nll && !training,
                                   .instruments = t->instruments && !training,
                                   .inputs = &t->inputs };
    s = tn_graph_setup_build(&t->setup, t->model, t->settings, &shape, &g);
    if (s == TN_MEMORY) (void)tn__trainer_refuse(t->refused, 0, 0, s); /* the model knows what fits */
    TN_TRY(s);
    TN_TRY(check_graph_fits(t, g));
    TN_TRY(check_known(t, g, step));
    TN_TRY(tn_store_adopt(t->store, g));
    *out = g;
    g = NULL;
done:
    tn_graph_free(g);
    return s;
}

typedef struct making {
    tn_trainer *t;
    const char *step; /* of the model's rows */
} making;

static bool recomputes_layers(const tn_trainer *t)
{
    return recomputes_trained(t) || strcmp(tn_settings_text(t->settings, "plan.recompute"), "layer") == 0;
}

static tn_status make_grad(void *user, tn_plan **out)
{
    const making *m = user;
    tn_trainer *t = m->t;
    tn_graph *g;
    TN_RETURN_IF(build_graph(t, true, m->step, &g));
    const tn_compile_options o = { .device = t->setup.device,
                                   .loss = tn_graph_output(g, "loss"),
                                   .repeats = t->accumulate,
                                   .recompute = recomputes_layers(t),
                                   .trained_alone = recomputes_trained(t) };
    return tn_graph_compile(g, &o, out);
}

static tn_status make_eval(void *user, tn_plan **out)
{
    const making *m = user;
    tn_trainer *t = m->t;
    tn_graph *g;
    TN_RETURN_IF(build_graph(t, false, m->step, &g));
    /* Beside a step that packs its weights it costs no memory: its copies lie where the step's were. */
    const bool packs = (t->forward_only && !t->setup.options.frozen) || t->accumulate > 1;
    const int64_t batches = tn_settings_int(t->settings, "train.eval_batches");
    const tn_ref loss = strcmp(m->step, "eval") == 0 ? tn_graph_setup_loss(g, t->want) : TN_NONE;
    const tn_compile_options o = { .device = t->setup.device,
                                   .loss = loss,
                                   .repeats = !packs    ? 1
                                              : batches ? batches
                                                        : 16,
                                   .recompute = loss.id && recomputes_layers(t) };
    return tn_graph_compile(g, &o, out);
}

static tn_status make_apply(void *user, tn_plan **out)
{
    const making *m = user;
    tn_trainer *t = m->t;
    const tn_optim_options o = { .kind = is_sgd(t) ? TN_SGD : TN_ADAMW,
                                 .losses = tn__ring_losses(t),
                                 .decay_all = tn_settings_choice(t->settings, "train.decay_on") == 1,
                                 .apart = !tn_settings_on(t->settings, "opt.fused_optimizer") };
    return tn_optim_plan(t->store, &o, t->setup.device, t->threads, out);
}

static tn_status get_plan(tn_trainer *t, const char *what, const char *step, tn_plan_make *make, const tn_plan **out)
{
    char key[320];
    making m = { t, step };
    if (!t->shared) {
        snprintf(key, sizeof key, "%s %s %lld %lld %d", what, step, (long long)t->batch, (long long)t->length,
                 t->shape);
        return tn_plan_cache_get(t->plans, key, make, &m, out);
    }
    char inputs[TN_HASH_BYTES];
    TN_RETURN_IF(tn_inputs_hash(&t->inputs, t->want, inputs));
    snprintf(key, sizeof key, "%s %s %s %lld %lld %s %d%d%d%d%d%d %d %d", t->key, what, step, (long long)t->batch,
             (long long)t->length, inputs, t->nll, t->instruments, t->forward_only, t->setup.options.frozen,
             (int)t->setup.options.weights, (int)t->setup.options.parts, t->threads, (int)t->setup.device);
    return tn_shared_plan(t->shared, key, make, &m, out);
}

static tn_status adopt(tn_trainer *t, const tn_plan *p)
{
    return t->shared ? tn_store_adopt(t->store, tn_plan_graph(p)) : TN_OK;
}

static tn_status make_whole(tn_trainer *t)
{
    for (size_t i = 0; i <= t->n_train; i++) {
        tn_trainer_step *s = &t->step[i];
        TN_RETURN_IF(s == t->eval ? get_plan(t, "eval", s->name, make_eval, &s->plan)
                                  : get_plan(t, "grad", s->name, make_grad, &s->plan));
        TN_RETURN_IF(adopt(t, s->plan));
    }
    return TN_OK;
}

tn_status tn__trainer_plan_step(tn_trainer *t, tn_trainer_step *s)
{
    TN_RETURN_IF(get_plan(t, "step", s->name, make_eval, &s->plan));
    if (t->shared) TN_RETURN_IF(check_known(t, tn_plan_graph(s->plan), s->name));
    return adopt(t, s->plan);
}

/* The optimizer's plan: of the store's arrays, all of which are there now. */
static tn_status make_update(tn_trainer *t)
{
    TN_RETURN_IF(get_plan(t, "apply", "", make_apply, &t->apply));
    return t->shared ? tn_store_moments(t->store, is_sgd(t) ? 1 : 2) : TN_OK;
}

/* A plan that was made for others has their scalars. */
tn_status tn__trainer_bind_step(tn_trainer *t, tn_trainer_step *s)
{
    TN_RETURN_IF(tn_bind(s->plan, t->context, t->store, &s->bound));
    if (t->shared) tn_plan_scalars(t->model, t->settings, s->bound);
    return TN_OK;
}

static tn_status make_chunks(tn_trainer *t, const tn_trainer_options *o, int64_t chunk)
{
    const tn_chunks_options how = { .trainer = o,
                                    .graph = &t->setup.options,
                                    .chunk = chunk,
                                    .inputs = &t->inputs,
                                    .wants = t->want,
                                    .store = t->store,
                                    .context = t->context,
                                    .fits = check_graph_fits,
                                    .ctx = t };
    return tn_chunks_new(&how, &t->chunks);
}

tn_status tn__trainer_bind(tn_trainer *t, const tn_trainer_options *o)
{
    const int64_t chunk = tn_chunk_length(t->settings, t->setup.device, t->batch, t->length);
    if (chunk && t->n_train > 1)
        return tn_error(
            TN_USAGE,
            "plan.recompute=chunk: model %s has %zu training steps, and chunks support one: use plan.recompute=layer",
            t->model->name, t->n_train);
    for (size_t i = 0; chunk && t->want[i]; i++)
        if (strncmp(t->want[i], "d.", 2) == 0)
            return tn_error(TN_USAGE,
                            "plan.recompute=chunk computes no gradient of an input (%.60s): use plan.recompute=layer",
                            t->want[i]);
    TN_RETURN_IF(chunk ? make_chunks(t, o, chunk) : make_whole(t));
    t->sealed = !t->forward_only;
    if (!t->shape) TN_RETURN_IF(tn__steps_plan(t, o->steps)); /* others run on whole batches alone */
    t->sealed = true;
    if (!t->forward_only && !t->part) TN_RETURN_IF(make_update(t));
    TN_RETURN_IF(tn__trainer_fits(t));
    if (t->apply) TN_RETURN_IF(tn_bind(t->apply, t->context, t->store, &t->apply_bound));
    if (t->apply) tn_bound_label(t->apply_bound, "optimizer");
    if (t->chunks) return tn_chunks_bind(t->chunks);
    for (size_t i = 0; i < t->n_steps; i++) TN_RETURN_IF(tn__trainer_bind_step(t, &t->step[i]));
    return TN_OK;
}
