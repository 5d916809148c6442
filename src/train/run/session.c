/* Opens a session. */
#include "train/run/session.h"

#include "train/trainer/graph_setup.h"
#include "train/run/metrics.h"
#include "train/run/parts.h"
#include "train/run/run.h"
#include "train/run/saved_model.h"
#include "train/run/train_settings.h"
#include "train/checkpoint/weights_check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static tn_data_split heldout_of(const tn_session *s, const tn_session_options *o)
{
    if (o->trained || (o->whole && s->source.text)) return TN_TRAIN;
    return o->split ? o->split : TN_VALID;
}

static tn_source_start start_of(const tn_session *s, tn_data_split heldout, bool heldout_only, int64_t batch)
{
    return (tn_source_start){ .trainer = s->trainer,
                              .batch = batch,
                              .length = s->length,
                              .accumulate = tn_settings_int(s->settings, "train.accumulate"),
                              .microbatches = heldout_only ? 1 : tn_settings_int(s->settings, "plan.microbatches"),
                              .heldout = heldout,
                              .heldout_only = heldout_only };
}

/* Of the metrics that the data allow: outputs beside the plans' own, which all steps without gradients are asked for, and steps of their own,
 * which are run on data alone. */
static void list_needs(const tn_session *s, const char *const *more, const char *wants[TN_BATCH_WANTS + 1],
                       const char *steps[TN_METRICS_MAX + TN_STEPS_MAX + 1])
{
    size_t n = 0, runs = 0, k;
    tn_metric_list all;
    tn_metric_rows(s->model, &all);
    for (size_t i = 0; i < all.n; i++) {
        const tn_metric_row *m = all.row[i];
        if (m->needs && isnan(tn_source_number_of(&s->source, m->needs))) continue;
        for (k = 0; m->reads && k < n && strcmp(wants[k], m->reads) != 0; k++) {
        }
        if (m->reads && k == n && n < TN_BATCH_WANTS) wants[n++] = m->reads;
        if (m->runs && s->source.ctx && runs < TN_METRICS_MAX) steps[runs++] = m->runs;
    }
    if (s->source.prepares && runs < TN_METRICS_MAX) steps[runs++] = s->source.prepares;
    for (k = 0; more && more[k] && k < TN_STEPS_MAX; k++) steps[runs++] = more[k];
    wants[n] = steps[runs] = NULL;
}

/* Batches that are made ahead by a thread. Trials of a study have the cores for themselves. */
static int prefetch_of(const tn_session *s)
{
    if (tn_settings_int(s->settings, "loader.workers") == 0) return 0;
    if (!tn_settings_is_auto(s->settings, "loader.prefetch"))
        return (int)tn_settings_int(s->settings, "loader.prefetch");
    return s->shared ? 0 : s->source.prefetch_depth;
}

static tn_status check_microbatches(const tn_session *s, int64_t batch, int64_t parts)
{
    if (parts > 1 && s->source.on_policy)
        return tn_error(TN_USAGE, "plan.microbatches is not for environments: lower rl.episodes");
    if (parts > 1 && s->model->couples_rows && s->model->couples_rows(s->settings))
        return tn_error(TN_USAGE,
                        "plan.microbatches=%lld: this loss of %s compares the rows of a batch, and parts have another: "
                        "use plan.microbatches=1 and a smaller train.batch",
                        (long long)parts, s->model->name);
    if (batch % parts == 0) return TN_OK;
    return tn_error(TN_USAGE,
                    "plan.microbatches=%lld does not divide train.batch=%lld: use a divisor of train.batch, or 1",
                    (long long)parts, (long long)batch);
}

static tn_status make_trainer(const tn_session *s, const tn_session_options *o, int64_t batch, tn_refusal *refused,
                              tn_trainer **out)
{
    const tn_source *src = &s->source;
    const bool instruments = o->instruments || (!o->evaluates && tn_log_level_of(s->settings) >= TN_LOG_TRAINING);
    const tn_source_start how = start_of(s, heldout_of(s, o), o->evaluates, batch);
    const tn_input_spec input_spec = tn_source_input_spec(src);
    const char *wants[TN_BATCH_WANTS + 1], *steps[TN_METRICS_MAX + TN_STEPS_MAX + 1];
    size_t reserved_bytes = 0;
    TN_RETURN_IF(check_microbatches(s, batch, how.microbatches));
    list_needs(s, o->steps, wants, steps);
    if (src->ctx) TN_RETURN_IF(tn_source_bytes(src, s->model, s->settings, &how, prefetch_of(s), &reserved_bytes));
    const tn_trainer_options t = { .instruments = instruments,
                                   .model = s->model,
                                   .settings = s->settings,
                                   .batch = batch / how.microbatches,
                                   .microbatches = how.microbatches,
                                   .length = s->length,
                                   .input_spec = src->ctx ? &input_spec : NULL,
                                   .on_policy = src->on_policy,
                                   .wants = wants,
                                   .steps = steps,
                                   .widths = src->width,
                                   .n_widths = src->n_widths,
                                   .shapes = src->shape,
                                   .n_shapes = src->n_shapes,
                                   .forward_only = o->evaluates,
                                   .frozen = o->frozen,
                                   .weights = o->matrices,
                                   .reserved_bytes = reserved_bytes,
                                   .refused = refused,
                                   .shared = s->shared,
                                   .context_slot = s->context_slot,
                                   .resident = src->resident,
                                   .store = o->store };
    return tn_trainer_new(&t, out);
}

static int64_t first_batch(const tn_session *s)
{
    if (!tn_model_reads_sequences(s->model)) return TN_SESSION_SAMPLES;
    return TN_SESSION_TOKENS / s->length > 0 ? TN_SESSION_TOKENS / s->length : 1;
}

/* The largest batch that fits, to a sixteenth. The trainer refuses a plan that does not fit before any of its memory is
 * touched, so that trying costs time alone, and only where memory is short; one is alive at a time. */
static tn_status find_batch(tn_session *s, const tn_session_options *o)
{
    const int64_t parts = o->evaluates ? 1 : tn_settings_int(s->settings, "plan.microbatches");
    int64_t fits = 0, fails = 0, rows = first_batch(s) / parts > 0 ? first_batch(s) / parts : 1; /* of a part */
    do {
        s->batch = rows * parts;
        const tn_status st = make_trainer(s, o, s->batch, NULL, &s->trainer);
        if (st != TN_OK && (st != TN_MEMORY || rows == 1)) return st;
        if (st != TN_OK) fails = rows;
        else if (!fails || fails - rows <= 1 + rows / 16) return TN_OK;
        else fits = rows;
        tn_trainer_free(s->trainer);
        s->trainer = NULL;
        rows = fits ? (fits + fails) / 2 : fails / 2;
    } while (fails - fits > 1 + fits / 16);
    s->batch = fits * parts;
    return make_trainer(s, o, s->batch, NULL, &s->trainer);
}

/* A run names its data as they were seen from the folder where it began: from elsewhere they are not there. */
static tn_status explain_place(const tn_settings *st, tn_status s)
{
    static const char *const keys[] = { "data", "task.data" };
    char why[1024];
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (tn_settings_find(st, keys[i]) == tn_settings_count(st)) continue;
        const char *path = tn_settings_text(st, keys[i]), *source = tn_settings_source(st, keys[i]);
        if (!path[0] || path[0] == '/' || !strstr(source, "/config.yaml:") || access(path, F_OK) == 0) continue;
        snprintf(why, sizeof why, "%s", tn_error_text());
        return tn_error(s, "%s; %.300s names it as seen from the folder where the run began: work there", why, source);
    }
    return s;
}

static tn_status find_source(tn_session *s, bool evaluates, bool whole)
{
    const tn_source_open how = { .model = s->model,
                                 .settings = s->settings,
                                 .needed = s->needs_data,
                                 .trains = !evaluates,
                                 .whole = whole,
                                 .shared = s->shared,
                                 .tokenizer = tn_saved_model_reader,
                                 .user = s->user };
    snprintf(s->dropped, sizeof s->dropped, "%s", tn_settings_text(s->settings, "train.dropped"));
    const tn_status st = tn_source_find(&how, &s->source);
    if (st != TN_OK) return explain_place(s->settings, st);
    s->length = tn_inputs_length(s->model, s->settings); /* which the data may have set */
    return TN_OK;
}

/* What is given up may be what the source has rows for: a teacher's. */
static tn_status find_source_again(tn_session *s)
{
    if (!s->source.ctx || strcmp(s->dropped, tn_settings_text(s->settings, "train.dropped")) == 0) return TN_OK;
    tn_source_close(&s->source);
    return find_source(s, false, false);
}

/* The next rung; *refusal is why. */
static tn_status lower(tn_session *s, const tn_refusal *refusal)
{
    const tn_ladder_step how = { .model = s->model,
                                 .batch = s->batch,
                                 .whole_batch = s->source.on_policy,
                                 .gives_up = s->runs,
                                 .refusal = *refusal };
    TN_RETURN_IF(tn_ladder_lower(&s->ladder, &how, s->settings));
    return s->trainer ? TN_OK : find_source_again(s); /* else the one that is there is freed first */
}

/* What is known not to fit is refused where nobody saves a run: who measures wants what was asked for. */
static bool may_lower(const tn_session *s, const tn_session_options *o, const tn_refusal *refusal)
{
    return !o->evaluates && !refusal->fixed && tn_ladder_on(s->settings) && (s->runs || !refusal->refused);
}

static tn_status lower_until_it_fits(tn_session *s, const tn_session_options *o)
{
    for (;;) {
        tn_refusal refusal = { 0 };
        const tn_status st = make_trainer(s, o, s->batch, &refusal, &s->trainer);
        if (st != TN_MEMORY || !may_lower(s, o, &refusal)) return st;
        TN_RETURN_IF(lower(s, &refusal));
    }
}

/* An automatic batch is as large as fits; where not even one row does, the ladder begins below it. */
static tn_status find_or_lower(tn_session *s, const tn_session_options *o)
{
    for (;;) {
        const tn_status st = find_batch(s, o);
        if (st != TN_MEMORY || !may_lower(s, o, &(tn_refusal){ .refused = true })) return st;
        TN_RETURN_IF(lower(s, &(tn_refusal){ 0 }));
    }
}

static tn_status open_trainer(tn_session *s, const tn_session_options *o)
{
    if (tn_settings_is_auto(s->settings, "train.batch")) return find_or_lower(s, o);
    s->batch = tn_settings_int(s->settings, "train.batch");
    const tn_status st = lower_until_it_fits(s, o);
    /* What is evaluated was perhaps trained on a larger machine, and its loss does not depend on how many rows are looked at together. */
    const bool typed = strcmp(tn_settings_source(s->settings, "train.batch"), "command line") == 0;
    return st == TN_MEMORY && o->evaluates && !s->source.on_policy && !typed ? find_batch(s, o) : st;
}

/* --- dropout by the epochs that are planned --------------------------------------------------------------------------- */

/* Only of a run with data: elsewhere auto is 0. An automatic batch is taken for what it nearly always is; see choose_again. */
static tn_status choose_dropout(tn_session *s, const tn_session_options *o)
{
    const bool guess = tn_settings_is_auto(s->settings, "train.batch");
    if (o->evaluates || !s->source.ctx || !tn_settings_is_auto(s->settings, "train.dropout")) return TN_OK;
    s->batch = guess ? first_batch(s) : tn_settings_int(s->settings, "train.batch");
    s->dropout = tn_dropout_auto_plan(s->settings, &s->source, s->batch, s->length);
    return tn_dropout_auto_take(&s->dropout, s->settings);
}

/* Where memory is short the batch is smaller than that: fewer epochs, so that less dropout fits too. */
static tn_status choose_again(tn_session *s, const tn_session_options *o)
{
    const double before = s->dropout.rate;
    if (!s->dropout.chosen) return TN_OK;
    s->dropout = tn_dropout_auto_plan(s->settings, &s->source, s->batch, s->length);
    if (s->dropout.rate == before) return TN_OK;
    TN_RETURN_IF(tn_dropout_auto_take(&s->dropout, s->settings));
    tn_trainer_free(s->trainer);
    s->trainer = NULL;
    return lower_until_it_fits(s, o);
}

static tn_status start_source(tn_session *s, const tn_session_options *o)
{
    if (!s->source.ctx) return TN_OK;
    const tn_source_start how = start_of(s, heldout_of(s, o), o->evaluates, s->batch);
    tn_status st = tn_source_begin(&s->source, &how, prefetch_of(s));
    if (st == TN_OK) st = tn_trainer_load_samples(s->trainer, s->source.resident);
    if (st != TN_OK) tn_error_prefix("%s", s->source.what);
    return st;
}

tn_status tn_session_refit(tn_session *s)
{
    const tn_session_options o = { .runs = s->runs };
    for (;;) {
        tn_source_stop(&s->source); /* who makes batches ahead asks the trainer for their widths */
        tn_trainer_free(s->trainer);
        s->trainer = NULL;
        TN_RETURN_IF(find_source_again(s));
        TN_RETURN_IF(lower_until_it_fits(s, &o));
        const tn_status st = start_source(s, &o);
        if (st != TN_MEMORY || !may_lower(s, &o, &(tn_refusal){ 0 })) return st;
        TN_RETURN_IF(lower(s, &(tn_refusal){ 0 }));
    }
}

tn_status tn_session_lower(tn_session *s)
{
    if (!tn_ladder_on(s->settings)) return TN_MEMORY;
    s->ladder.changed = s->ladder.n;
    TN_RETURN_IF(lower(s, &(tn_refusal){ 0 }));
    return tn_session_refit(s);
}

tn_status tn_session_heldout(const tn_session *s, tn_data_split split, tn_source *out)
{
    const tn_source_start how = start_of(s, split, true, s->batch / tn_trainer_microbatches(s->trainer));
    const tn_status st = s->source.open_heldout(s->source.ctx, &how, out);
    if (st != TN_OK) tn_error_prefix("%s", s->source.what);
    return st;
}

int64_t tn_session_count(const tn_session *s, tn_data_split split)
{
    return s->source.ctx ? s->source.count(s->source.ctx, split) : 0;
}

tn_status tn_session_open_with(const tn_session_options *o, tn_session *out)
{
    tn_session s = { .shared = o->shared,
                     .context_slot = o->context_slot,
                     .runs = o->runs,
                     .needs_data = o->needs_data,
                     .user = o->user };
    const tn_settings_from from = { .user = o->user,
                                    .target = o->target,
                                    .file = o->file,
                                    .said = o->said,
                                    .n_said = o->n_said,
                                    .overrides = o->overrides,
                                    .n = o->n };
    tn_status st = o->settings ? tn_settings_clone(o->settings, &s.settings)
                               : tn_settings_resolve_from(&from, &s.settings, &s.model);
    if (o->settings) s.model = o->model;
    if (st == TN_OK && o->goes_on) st = tn_run_is_target(s.settings, o->target);
    if (st == TN_OK) st = tn_parts_resolve(s.settings, s.model);
    if (st == TN_OK && o->evaluates) st = tn_graph_setup_here(s.settings, false);
    if (st == TN_OK) st = find_source(&s, o->evaluates, o->whole);
    const tn_input_spec input_spec = tn_source_input_spec(&s.source);
    if (st == TN_OK && o->parameters)
        st = tn_width_fit(s.model, s.settings, s.source.ctx ? &input_spec : NULL, o->width, o->parameters, &s.width);
    if (st == TN_OK && o->weights)
        st = tn_weights_check(o->weights, s.model, s.settings, s.source.ctx ? &input_spec : NULL,
                              tn_model_reads_sequences(s.model) && s.length > 8 ? 8 : s.length);
    if (st == TN_OK) st = choose_dropout(&s, o);
    if (st == TN_OK) st = open_trainer(&s, o);
    if (st == TN_OK) st = choose_again(&s, o);
    if (st == TN_OK) st = start_source(&s, o);
    if (st == TN_MEMORY && s.trainer && may_lower(&s, o, &(tn_refusal){ 0 })) st = tn_session_lower(&s);
    if (st == TN_OK && s.source.ctx) st = tn_metric_resolve(&s.source, s.trainer, s.settings);
    if (st != TN_OK) tn_session_close(&s);
    else *out = s;
    return st;
}

tn_status tn_session_open(const char *target, const char *const *overrides, size_t n, bool needs_data, tn_session *out)
{
    return tn_session_open_with(
        &(tn_session_options){ .target = target, .overrides = overrides, .n = n, .needs_data = needs_data }, out);
}

void tn_session_close(tn_session *s)
{
    tn_source_close(&s->source); /* who acts in an environment borrows the trainer's store */
    tn_trainer_free(s->trainer);
    tn_settings_free(s->settings);
    *s = (tn_session){ 0 };
}
