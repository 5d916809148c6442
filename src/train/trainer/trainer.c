/* Runs a trainer's plans. Sets the learning rate and the other run-time scalars of each step; sequences in chunks:
 * chunks.c. */
#include "train/trainer/trainer_internal.h"

#include "base/clock.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const int64_t MOST_TOKENS = (int64_t)1 << 40; /* of a step: far beyond any machine, far below overflow */

/* --- making a trainer ------------------------------------------------------------------------------------------------------- */

static tn_status make_guard(tn_trainer *t)
{
    const char *policy = tn_settings_text(t->settings, "train.nonfinite");
    const tn_guard_options o = { .policy = strcmp(policy, "skip") == 0       ? TN_NONFINITE_SKIP
                                           : strcmp(policy, "rollback") == 0 ? TN_NONFINITE_ROLLBACK
                                                                             : TN_NONFINITE_STOP,
                                 .device = t->setup.device };
    return tn_guard_new(t->store, &o, &t->guard);
}

/* optim.loss_scale: a number switches it on for every compute, since a power of two changes no digit. */
static void start_loss_scale(tn_trainer *t)
{
    const int64_t first = tn_settings_int(t->settings, "optim.loss_scale"); /* 0: auto or off */
    const int64_t growth = tn_settings_int(t->settings, "optim.loss_scale_growth");
    const bool half = strcmp(tn_settings_text(t->settings, "compute"), "f16") == 0;
    t->scales = !t->forward_only && (first > 0 || (half && tn_settings_is_auto(t->settings, "optim.loss_scale")));
    t->loss_scale = tn_loss_scale_start(
        &(tn_loss_scale_options){ .first = (float)first, .grow_after = growth ? (int)growth : INT_MAX });
}

/* Where the host writes each input: of the training plan, or of another where that has no use for it. */
static void find_inputs(tn_trainer *t)
{
    if (t->chunks) {
        t->feed = tn_chunks_feed(t->chunks);
        t->feed.valid = &t->valid;
        return;
    }
    t->feed = (tn_feed){
        .inputs = &t->inputs, .batch = t->batch, .length = t->length, .shape = t->shape, .valid = &t->valid
    };
    for (size_t k = 0; k < t->n_steps; k++) {
        tn__step_resolve(t, &t->step[k]);
        for (size_t i = 0; i < t->inputs.n; i++)
            if (!t->feed.at[i]) t->feed.at[i] = t->step[k].at[i];
    }
}

static tn_status make_kept_of(tn_trainer_step *s, const char *lead)
{
    const tn_graph *g = tn_plan_graph(s->plan);
    s->kept = tn_alloc(sizeof *s->kept * (g->n_outputs + 1));
    if (!s->kept) return TN_MEMORY;
    for (size_t i = 0; i < g->n_outputs; i++) {
        const tn_ref x = { g->output[i].id };
        const tn_dtype type = tn_ref_dtype(g, x);
        if ((type != TN_F32 && type != TN_I32) || strncmp(g->output[i].name, lead, strlen(lead)) != 0) continue;
        tn_kept_output *k = &s->kept[s->n_kept];
        *k = (tn_kept_output){ .name = g->output[i].name,
                               .is_i32 = type == TN_I32,
                               .count = tn_dims_count(tn_ref_dims(g, x)) };
        k->value = tn_alloc(sizeof *k->value * (size_t)k->count);
        if (!k->value) return TN_MEMORY;
        s->n_kept++;
    }
    return TN_OK;
}

/* Room for the outputs that instruments may ask for when others have run. */
static tn_status make_kept(tn_trainer *t)
{
    if (!t->model->instruments || t->chunks) return TN_OK;
    for (size_t i = 0; i < t->n_train; i++) TN_RETURN_IF(make_kept_of(&t->step[i], ""));
    return t->instruments ? make_kept_of(t->eval, "look.") : TN_OK;
}

static tn_status open_trainer(const tn_trainer_options *o, tn_trainer *whole, int shape, bool *drop, tn_trainer **out);

/* One that the model refuses is left out. */
static tn_status add_narrower(const tn_trainer_options *o, tn_trainer *whole, int shape, tn_trainer ***at)
{
    const tn_status s = open_trainer(o, whole, shape, NULL, *at);
    if (s == TN_OK) *at = &(**at)->narrower;
    if (s != TN_USAGE) return s;
    if (shape && !whole->shapes_refused++)
        snprintf(whole->why_refused, sizeof whole->why_refused, "%s", tn_error_text());
    return TN_OK;
}

/* The narrower widths, the widest first, or the shapes. All are there before the first step, so that it is known then what
 * fits. Rows of a length that the model refuses go to the next wider plan, batches of such a shape to the whole one. */
static tn_status make_narrower(tn_trainer *t, const tn_trainer_options *o)
{
    tn_trainer **at = &t->narrower;
    for (int64_t i = o->n_widths; i-- > 0;) {
        tn_trainer_options part = *o;
        if (o->widths[i] >= o->length) continue;
        part.length = o->widths[i];
        TN_RETURN_IF(add_narrower(&part, t, 0, &at));
    }
    for (int i = o->n_shapes; i > 0; i--) TN_RETURN_IF(add_narrower(o, t, i, &at));
    return tn__trainer_fits(t);
}

static tn_status check_shape(const tn_trainer_options *o, const tn_inputs *in)
{
    if (!in->cut && strcmp(tn_settings_text(o->settings, "plan.recompute"), "chunk") == 0)
        return tn_error(TN_USAGE, "plan.recompute=chunk cuts sequences, and %s learns from samples: use none or layer",
                        o->model->name);
    int64_t each = o->length;
    for (size_t i = 0; i < in->n; i++) {
        const int64_t items = tn_input_items(&in->slot[i], 1, o->length);
        each = items > each ? items : each;
    }
    if (o->batch <= MOST_TOKENS / (each > 0 ? each : 1)) return TN_OK;
    if (!in->cut)
        return tn__trainer_refuse(
            o->refused, 0, 0,
            tn_error(TN_MEMORY,
                     "train.batch=%lld samples of %lld numbers are more than a step can have: use a smaller batch",
                     (long long)o->batch, (long long)each));
    return tn__trainer_refuse(
        o->refused, 0, 0,
        tn_error(TN_MEMORY,
                 "train.batch=%lld times train.context=%lld is more tokens than a step can have: use a smaller one",
                 (long long)o->batch, (long long)o->length));
}

static void list_wants(tn_trainer *t, const tn_trainer_options *o)
{
    size_t n = 0;
    if (o->logits) t->want[n++] = "logits";
    for (size_t i = 0; o->wants && o->wants[i] && n < TN_BATCH_WANTS; i++)
        if (!o->logits || strcmp(o->wants[i], "logits") != 0) t->want[n++] = o->wants[i];
}

/* A place to run, and where plans come from: a part has those of the whole. A store that others use too may have more in it than the
 * settings tell. */
static tn_status settle(tn_trainer *t, const tn_trainer_options *o, const tn_trainer *whole)
{
    if (whole) {
        t->memory_limit = whole->memory_limit;
        t->context = whole->context;
        t->plans = whole->plans;
        t->shared = whole->shared;
        memcpy(t->key, whole->key, sizeof t->key);
        return TN_OK;
    }
    t->borrowed_context = o->context_slot != NULL;
    TN_RETURN_IF(t->borrowed_context ? tn_context_slot_open(o->context_slot, t->setup.device, t->threads, &t->context)
                                     : tn_context_new(t->setup.device, t->threads, &t->context));
    t->memory_limit = tn__trainer_memory_limit(t);
    t->shared = t->borrowed ? NULL : o->shared;
    if (t->shared) return tn_plan_key(t->model, t->settings, t->key);
    return tn_plan_cache_new(&t->plans);
}

/* whole: the trainer that this one is a narrower part of, or NULL. *drop: samples were to stay on the device although nobody asked. shape:
 * which of the options', where its sizes are. */
static tn_status open_trainer(const tn_trainer_options *o, tn_trainer *whole, int shape, bool *drop, tn_trainer **out)
{
    tn_status s = TN_OK;
    tn_trainer *t = tn_alloc(sizeof *t);
    if (!t) TN_TRY(TN_MEMORY);
    *t = (tn_trainer){ .model = o->model,
                       .settings = o->settings,
                       .batch = o->batch,
                       .length = o->length,
                       .on_policy = o->on_policy,
                       .nll = o->nll,
                       .instruments = o->instruments,
                       .forward_only = o->forward_only,
                       .weight = 1,
                       .part = whole != NULL,
                       .shape = shape,
                       .refused = o->refused,
                       .microbatches = o->microbatches > 0 ? o->microbatches : 1,
                       .reserved_bytes = whole ? 0 : o->reserved_bytes,
                       .store = whole ? whole->store : o->store };
    t->borrowed = t->store != NULL;
    t->now = t;
    if (shape) tn_inputs_narrow(&whole->inputs, &o->shapes[shape - 1], &t->inputs);
    else if (whole) t->inputs = whole->inputs;
    else TN_TRY(tn_inputs_match(o->model, o->settings, o->input_spec, &t->inputs));
    TN_TRY(check_shape(o, &t->inputs));
    TN_TRY(tn__steps_list(t, o->step));
    tn_trainer_reread(t);
    list_wants(t, o);
    const tn_device where = t->store ? tn_store_device(t->store) : TN_CPU;
    TN_TRY(tn_graph_setup_read(o->settings, t->store ? &where : NULL, o->threads, &t->setup));
    t->threads = t->setup.options.threads;
    t->setup.options.frozen = o->frozen;
    tn_graph_setup_freeze(&t->setup, o->weights);
    if (!t->store) TN_TRY(tn_store_new(t->setup.device, (uint64_t)tn_settings_int(o->settings, "seed"), &t->store));
    if (o->frozen && !o->drawn) tn_store_loads_weights(t->store);
    TN_TRY(settle(t, o, whole));
    tn__trainer_keep_samples(t, o->resident);
    if (drop) *drop = t->may_drop_samples;
    TN_TRY(tn__trainer_bind(t, o));
    if (!whole) TN_TRY(make_narrower(t, o));
    if (!whole && !t->forward_only) TN_TRY(make_guard(t));
    if (!whole) start_loss_scale(t);
    if (!whole && !t->forward_only) TN_TRY(tn__ring_new(t, o->queue_depth, &t->ring));
    find_inputs(t);
    TN_TRY(tn__steps_check(t));
    TN_TRY(make_kept(t));
    *out = t;
    t = NULL;
done:
    tn_trainer_free(t);
    return s;
}

int tn_trainer_shapes_refused(const tn_trainer *t, const char **why)
{
    *why = t->why_refused;
    return t->shapes_refused;
}

/* Where memory is short with samples that may as well stay on the host, or the model wants what only a plain input has (its gradient),
 * they do. */
tn_status tn_trainer_new(const tn_trainer_options *o, tn_trainer **out)
{
    bool drop = false;
    const tn_status s = open_trainer(o, NULL, 0, &drop, out);
    if (s == TN_OK || !drop) return s;
    tn_trainer_options without = *o;
    without.resident = NULL;
    if (o->refused) *o->refused = (tn_refusal){ 0 };
    return open_trainer(&without, NULL, 0, NULL, out);
}

void tn_trainer_free(tn_trainer *t)
{
    if (!t) return;
    tn_trainer_free(t->narrower);
    tn__ring_free(t->ring);
    tn_guard_free(t->guard);
    for (size_t i = 0; i < t->n_steps; i++) {
        for (size_t k = 0; k < t->step[i].n_kept; k++) tn_free(t->step[i].kept[k].value);
        tn_free(t->step[i].kept);
        tn_bound_free(t->step[i].bound);
        if (t->shared) tn_shared_return_plan(t->shared, t->step[i].plan);
    }
    tn_bound_free(t->apply_bound);
    tn_chunks_free(t->chunks);
    if (t->shared) tn_shared_return_plan(t->shared, t->apply);
    if (!t->part) tn_plan_cache_free(t->plans);
    if (!t->part && !t->borrowed_context) tn_context_free(t->context);
    if (!t->borrowed) tn_store_free(t->store);
    tn_free(t);
}

/* --- running --------------------------------------------------------------------------------------------------------------- */

const tn_inputs *tn_trainer_inputs(const tn_trainer *t) { return &t->inputs; }

void *tn_trainer_input(tn_trainer *t, const char *name)
{
    const tn_feed f = tn_trainer_feed(t);
    return tn_feed_at(&f, name);
}

/* The narrowest plan that holds such rows, or that of the shape. */
static const tn_trainer *plan_for(const tn_trainer *t, int64_t width, int shape)
{
    const tn_trainer *w = t;
    while (shape && w && w->shape != shape) w = w->narrower;
    if (shape) return w ? w : t;
    while (w->narrower && !w->narrower->shape && w->narrower->length >= width) w = w->narrower;
    return w;
}

static tn_feed hand_out(void *trainer, int64_t width, int shape)
{
    tn_trainer *t = trainer;
    t->now = (tn_trainer *)(uintptr_t)plan_for(t, width, shape); /* one of its own */
    t->now->valid = t->now->batch;
    return t->now->feed;
}

tn_feed tn_trainer_feed_for(tn_trainer *t, int64_t width) { return hand_out(t, width, 0); }

tn_feeder tn_trainer_feeder(tn_trainer *t) { return (tn_feeder){ t, hand_out }; }

static tn_feed hand_out_batch(void *t, int64_t width, int shape)
{
    tn_feed f = hand_out(t, width, shape);
    for (size_t i = 0; i < f.inputs->n; i++)
        if (f.inputs->slot[i].left_out) f.at[i] = NULL;
    return f;
}

tn_feeder tn_trainer_batch_feeder(tn_trainer *t) { return (tn_feeder){ t, hand_out_batch }; }

tn_feed tn_trainer_feed_blank(const tn_trainer *t, int64_t width, int shape)
{
    const tn_trainer *w = plan_for(t, width, shape);
    return (tn_feed){ .inputs = &w->inputs, .batch = w->batch, .length = w->length, .shape = w->shape };
}

tn_feed tn_trainer_feed_again(tn_trainer *t) { return t->now->feed; }

tn_feed tn_trainer_feed(tn_trainer *t) { return tn_trainer_feed_for(t, t->length); }

void tn_trainer_steady(tn_trainer *t, bool steady)
{
    t->steady = steady;
    t->fresh = true;
}

/* The apply plan runs on the same context, so what was packed before it is not taken for what it wrote. */
static bool packed_before(tn_trainer *t)
{
    const bool again = t->steady && !t->fresh;
    t->fresh = false;
    return again;
}

static tn_status run_plan(tn_trainer *t, tn_bound *b) { return packed_before(t) ? tn_run_again(b) : tn_run(b); }

static void multiply_gradients(tn_trainer *t, float by)
{
    tn_host_copy host = { 0 };
    for (int k = 0; k < tn_store_buckets(t->store); k++) {
        const tn_bucket *b = tn_store_bucket(t->store, k);
        const size_t bytes = sizeof *b->grad * (size_t)b->count;
        float *x = (float *)(uintptr_t)tn_store_read(t->store, b->grad, bytes, &host);
        for (int64_t i = 0; x && i < b->count; i++) x[i] *= by;
        if (x && x != b->grad) (void)tn_store_write(t->store, b->grad, x, bytes);
    }
    tn_host_copy_free(&host);
}

void tn_trainer_unscale(tn_trainer *t)
{
    if (t->scales && !t->unscaled) multiply_gradients(t, 1 / t->loss_scale.scale);
    t->unscaled = t->scales;
}

void tn_trainer_weigh(tn_trainer *t, float weight) { t->weight = weight; }

static const tn_trainer_step *keep_outputs(const tn_trainer_step *s)
{
    for (size_t i = 0; i < s->n_kept; i++) {
        const tn_kept_output *k = &s->kept[i];
        const void *from = tn_bound_data(s->bound, k->name);
        if (!from) continue; /* a device did not give it */
        if (!k->is_i32) memcpy(k->value, from, sizeof *k->value * (size_t)k->count);
        else
            for (int64_t n = 0; n < k->count; n++) k->value[n] = (float)((const int32_t *)from)[n];
    }
    return s;
}

void tn__trainer_keep(tn_trainer *t) { t->stepped = keep_outputs(t->now->grad); }

void tn_trainer_keep_outputs(tn_trainer *t) { t->evaluated = keep_outputs(t->now->eval); }

void tn_trainer_watch(tn_trainer *t, tn_watch w) { t->watch = w; }

double tn_trainer_watch_clock(const tn_trainer *t) { return t->watch.ran ? tn_clock_s() : 0; }

void tn_trainer_watch_data(const tn_trainer *t, double begun)
{
    if (t->watch.ran) t->watch.ran(t->watch.ctx, TN_EVENT_DATA, NULL, tn_clock_s() - begun);
}

static tn_status tell_watch(const tn_trainer *t, tn_trainer_event what, tn_bound *b, double begun, tn_status s)
{
    if (t->watch.ran && s == TN_OK) t->watch.ran(t->watch.ctx, what, b, tn_clock_s() - begun);
    return s;
}

static float gradient_scale(const tn_trainer *t) { return t->weight * (t->scales ? t->loss_scale.scale : 1); }

tn_status tn__trainer_run_grad(tn_trainer *t, int64_t step)
{
    tn_trainer *w = t->now;
    t->evaluated = NULL;
    TN_RETURN_IF(tn__step_choose(w, step));
    if (w->chunks) return tn_chunks_queue_grad(w->chunks, t->seed, step, packed_before(t), gradient_scale(t));
    tn_bound *b = w->grad->bound;
    if (tn_bound_data(b, "loss_scale"))
        TN_RETURN_IF(tn_bound_set(b, "loss_scale", gradient_scale(t))); /* else nothing trainable reaches the loss */
    tn_bound_seed(b, t->seed, step);
    tn_bound_update_seed(b, t->seed, step / t->accumulate);
    return run_plan(t, b);
}

static tn_status grad_batch(tn_trainer *t, int64_t step, float *loss)
{
    if (t->unscaled) multiply_gradients(t, t->loss_scale.scale); /* what is there and what comes must agree */
    t->unscaled = false;
    TN_RETURN_IF(tn__trainer_run_grad(t, step));
    if (t->now->chunks) return tn_chunks_loss(t->now->chunks, loss);
    *loss = *(const float *)tn_bound_data(t->now->grad->bound, "loss");
    tn__trainer_keep(t);
    return TN_OK;
}

tn_status tn_trainer_grad(tn_trainer *t, int64_t step, float *loss)
{
    const double begun = tn_trainer_watch_clock(t);
    const tn_status s = grad_batch(t, step, loss); /* which chooses the step */
    return tell_watch(t, TN_EVENT_GRAD, t->now->grad->bound, begun, s);
}

static tn_status eval_batch(tn_trainer *t, float *loss)
{
    tn_trainer *w = t->now;
    TN_RETURN_IF(tn__step_before_eval(w));
    if (w->chunks) return tn_chunks_eval(w->chunks, packed_before(t), loss);
    TN_RETURN_IF(run_plan(t, w->eval->bound));
    *loss = *(const float *)tn_bound_data(w->eval->bound, "loss");
    return TN_OK;
}

tn_status tn_trainer_eval(tn_trainer *t, float *loss)
{
    const double begun = tn_trainer_watch_clock(t);
    return tell_watch(t, TN_EVENT_EVAL, t->now->eval->bound, begun, eval_batch(t, loss));
}

void tn_trainer_schedule(tn_trainer *t, int64_t steps) { t->steps = steps; }

void tn_trainer_reread(tn_trainer *t)
{
    const tn_settings *st = t->settings;
    const char *kind = tn_settings_text(st, "train.schedule");
    t->rate = (tn_schedule){ .kind = strcmp(kind, "wsd") == 0        ? TN_SCHEDULE_WSD
                                     : strcmp(kind, "constant") == 0 ? TN_SCHEDULE_CONSTANT
                                                                     : TN_SCHEDULE_COSINE,
                             .lr = tn_settings_float(st, "train.lr"),
                             .lr_min_frac = tn_settings_float(st, "train.lr_min_frac"),
                             .warmup = tn_settings_int(st, "train.warmup"),
                             .steps = tn_settings_int(st, "train.steps"),
                             .cooldown_frac = tn_settings_float(st, "train.cooldown_frac") };
    t->fixed = (tn_optim_scalars){ .beta1 = (float)tn_settings_float(st, "train.beta1"),
                                   .beta2 = (float)tn_settings_float(st, "train.beta2"),
                                   .eps = (float)tn_settings_float(st, "train.eps"),
                                   .momentum = (float)tn_settings_float(st, "train.momentum"),
                                   .decay = (float)tn_settings_float(st, "train.decay"),
                                   .clip = (float)tn_settings_float(st, "train.clip") };
    t->accumulate = tn_settings_int(st, "train.accumulate") * t->microbatches;
    t->seed = tn_settings_int(st, "seed");
    t->last_step = t->rate.steps > 0 ? t->rate.steps - 1 : 0;
    if (t->narrower) tn_trainer_reread(t->narrower);
}

/* Gradients that overflowed although the loss is finite may do so for their scale: then it is halved and the guard, which
 * counts steps that went wrong, has nothing to do. */
tn_status tn__trainer_after_step(tn_trainer *t, int64_t step, float loss, tn_update_result *out)
{
    const bool scaled = t->scales && isfinite(loss);
    if (scaled && tn_loss_scale_update(&t->loss_scale, out->ok) && !out->ok) {
        out->action = TN_GUARD_RESCALED;
        return TN_OK;
    }
    return tn_guard_after_step(t->guard, out->ok, step + 1, &out->action); /* as people count */
}

tn_status tn__trainer_set_apply(tn_trainer *t, int64_t step, float batches, int queue_depth, tn_update_result *out)
{
    tn_schedule schedule = t->rate;
    tn_optim_scalars v = t->fixed;
    const float scaled = t->scales && !t->unscaled ? t->loss_scale.scale : 1;
    if (t->steps) schedule.steps = t->steps;
    v.lr = (float)tn_schedule_lr(&schedule, step) * tn_guard_lr_factor(t->guard);
    v.scale = 1.f / (scaled * (batches > 0 ? batches : 1));
    v.opt_step = tn_guard_applied(t->guard) + queue_depth + 1;
    t->unscaled = false;
    *out = (tn_update_result){ .lr = v.lr, .loss_scale = t->scales ? t->loss_scale.scale : NAN };
    return tn_optim_set(t->apply_bound, &v);
}

static tn_status apply_step(tn_trainer *t, int64_t step, float batches, float loss, int queue_depth,
                            tn_update_result *out)
{
    tn_bound *b = t->apply_bound;
    TN_RETURN_IF(tn__trainer_set_apply(t, step, batches, queue_depth, out));
    TN_RETURN_IF(tn_bound_take(b, "loss", NULL));
    *(float *)tn_bound_data(b, "loss") = loss;
    TN_RETURN_IF(tn_run(b));
    out->grad_norm = *(const float *)tn_bound_data(b, "grad_norm");
    out->ok = *(const int32_t *)tn_bound_data(b, "ok") != 0;
    return TN_OK;
}

tn_status tn__trainer_apply_now(tn_trainer *t, int64_t step, float batches, float loss, int queue_depth,
                                tn_update_result *out)
{
    const double begun = tn_trainer_watch_clock(t);
    return tell_watch(t, TN_EVENT_APPLY, t->apply_bound, begun, apply_step(t, step, batches, loss, queue_depth, out));
}

tn_status tn_trainer_apply(tn_trainer *t, int64_t step, float batches, float loss, tn_update_result *out)
{
    TN_RETURN_IF(tn__trainer_apply_now(t, step, batches, loss, 0, out));
    return tn__trainer_after_step(t, step, loss, out);
}

/* --- looking ---------------------------------------------------------------------------------------------------------------- */

tn_loss_scale_state tn_trainer_loss_scale(const tn_trainer *t)
{
    return (tn_loss_scale_state){ t->scales ? (double)t->loss_scale.scale : 1, t->scales ? t->loss_scale.good : 0 };
}

void tn_trainer_resume_loss_scale(tn_trainer *t, const tn_loss_scale_state *from)
{
    if (!t->scales) return;
    t->loss_scale.scale = (float)from->scale;
    t->loss_scale.good = (int)from->good;
}

tn_store *tn_trainer_store(tn_trainer *t) { return t->store; }

const tn_graph_options *tn_trainer_graph_options(const tn_trainer *t) { return &t->setup.options; }

tn_guard *tn_trainer_guard(tn_trainer *t) { return t->guard; }

tn_bound *tn_trainer_bound(const tn_trainer *t, bool training)
{
    const tn_trainer *w = t->now;
    if (w->chunks) return tn_chunks_bound(w->chunks, training);
    return !training ? w->eval->bound : w->forward_only ? NULL : w->grad->bound;
}

const tn_plan *tn_trainer_plan(const tn_trainer *t, bool training)
{
    const tn_bound *b = tn_trainer_bound(t, training);
    return b ? tn_bound_plan(b) : NULL;
}

const tn_plan *tn_trainer_apply_plan(const tn_trainer *t) { return t->apply; }

const float *tn_trainer_output(tn_trainer *t, const char *name, int64_t *count)
{
    const tn_trainer *w = t->now;
    return w->chunks ? tn_chunks_output(w->chunks, name, count) : tn__step_output(w->eval, name, NULL, count);
}

int tn_trainer_threads(const tn_trainer *t) { return t->threads; }

tn_device tn_trainer_device(const tn_trainer *t) { return t->setup.device; }

/* Frozen parts of a model that trains do not count; where all of it is frozen, they are the model. */
static bool is_counted(const tn_trainer *t, const tn_entry *e)
{
    return e->role == TN_ROLE_PARAM || (t->setup.options.frozen && e->weight);
}

int64_t tn_trainer_parameters(const tn_trainer *t)
{
    int64_t n = 0;
    for (size_t i = 0; i < tn_store_count(t->store); i++)
        if (is_counted(t, tn_store_at(t->store, i))) n += tn_dims_count(tn_store_at(t->store, i)->dims);
    return n;
}
