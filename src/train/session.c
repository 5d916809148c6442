/* Opening a session: the steps that all that runs a model takes. */
#include "train/session.h"

#include "train/graph_setup.h"
#include "train/metrics.h"
#include "train/train_settings.h"
#include "train/weights_check.h"

#include <stdio.h>
#include <string.h>

static tn_status open_dataset(tn_session *s, const char *path, bool trains)
{
    const char *tokenizer = tn_settings_text(s->settings, "tokenizer");
    const bool bytes = !tokenizer[0] || strcmp(tokenizer, "bytes") == 0;
    const tn_dataset_options o = { .holdout_frac = tn_settings_float(s->settings, "train.holdout_frac"),
                                   .test_frac = tn_settings_float(s->settings, "train.test_frac"),
                                   .window = bytes ? (uint64_t)s->length + 1 : 0, .tokenizer = tokenizer,
                                   .seed = (uint64_t)tn_settings_int(s->settings, "seed"), .content = trains };
    TN_RETURN_IF(tn_dataset_open(path, &o, &s->data));
    const tn_dataset_info *info = tn_dataset_about(s->data);
    if (info->kind != TN_SHARD_TOKENS)
        return tn_error(TN_USAGE, "%.640s holds arrays, and %s learns from tokens: prepare text instead", path, s->model->name);
    if (!info->is_raw && tokenizer[0])
        return tn_error(TN_USAGE, "%.640s is prepared and has its own tokenizer: leave tokenizer= out", path);
    return TN_OK;
}

static tn_loader_mode mode_of(const tn_session *s)
{
    const char *mode = tn_settings_text(s->settings, "loader.mode");
    const bool one = tn_dataset_about(s->data)->is_raw && tn_dataset_count(s->data, TN_TRAIN).documents == 1;
    if (strcmp(mode, "auto") == 0) return one ? TN_LOADER_WINDOW : TN_LOADER_PACK;
    return strcmp(mode, "window") == 0 ? TN_LOADER_WINDOW : strcmp(mode, "bucket") == 0 ? TN_LOADER_BUCKET : TN_LOADER_PACK;
}

static tn_status take_vocab(tn_session *s, const char *path)
{
    char text[32];
    const long long needs = (long long)tn_dataset_about(s->data)->vocab;
    snprintf(text, sizeof text, "%lld", needs);
    if (tn_settings_find(s->settings, "vocab") == tn_settings_count(s->settings)) return TN_OK;
    if (tn_settings_is_auto(s->settings, "vocab")) return tn_settings_set(s->settings, "vocab", text, "data %s", path);
    const long long vocab = (long long)tn_settings_int(s->settings, "vocab");
    if (vocab >= needs) return TN_OK;
    return tn_error(TN_USAGE, "vocab=%lld is too small for %.640s, which has %lld different tokens: leave vocab at auto, or %lld "
                              "and more", vocab, path, needs, needs);
}

static tn_status open_data(tn_session *s, bool needs_data, bool trains)
{
    TN_RETURN_IF(tn_task_setup_shared(s->model, s->settings, needs_data, s->shared, &s->samples, &s->env));
    if (s->model->features) {
        s->length = tn_settings_tokens(s->settings);
        return TN_OK;
    }
    if (tn_settings_text(s->settings, "task.name")[0]) {
        s->length = tn_settings_int(s->settings, "train.context"); /* which the task may have set */
        return tn_probe_open(s->settings, &s->probe);
    }
    const char *path = tn_settings_text(s->settings, "data");
    if (!path[0]) {
        if (!needs_data) return TN_OK;
        return tn_error(TN_USAGE, "data is not set: name a text file, for example data=book.txt");
    }
    const tn_status st = open_dataset(s, path, trains);
    if (st != TN_OK) {
        tn_error_prefix("data");
        return st;
    }
    s->mode = mode_of(s);
    return take_vocab(s, path);
}

static int prefetch_of(const tn_session *s, int64_t batch)
{
    enum { USUAL = 4 };
    if (!tn_settings_is_auto(s->settings, "loader.prefetch")) return (int)tn_settings_int(s->settings, "loader.prefetch");
    const double each = 3.0 * sizeof(int32_t) * (double)batch * (double)s->length;
    int n = USUAL;
    while (n > 1 && n * each > 256e6) n--;
    return n;
}

static tn_source_options text_options(const tn_session *s, int64_t batch, tn_data_split heldout, bool heldout_only)
{
    return (tn_source_options){ .data = s->data, .batch = batch, .length = s->length, .mode = s->mode,
                                .seed = (uint64_t)tn_settings_int(s->settings, "seed"),
                                .workers = (int)tn_settings_int(s->settings, "loader.workers"), .prefetch = prefetch_of(s, batch),
                                .accumulate = tn_settings_int(s->settings, "train.accumulate"), .heldout = heldout, .heldout_only = heldout_only };
}

static tn_data_split heldout_of(const tn_session_options *o) { return o->split ? o->split : TN_VALID; }

/* What the data take, with the batches that are made ahead; samples that several sessions share are nobody's. */
static size_t data_bytes(const tn_session *s, const tn_session_options *o, int64_t batch)
{
    const tn_samples *set = s->samples;
    size_t all;
    if (s->data) {
        const tn_source_options text = text_options(s, batch, heldout_of(o), o->evaluates);
        return tn_add_ok(tn_dataset_bytes(s->data), tn_source_bytes(&text), &all) ? all : SIZE_MAX;
    }
    if (!set || s->shared) return 0;
    return (size_t)set->n * ((size_t)(set->tokens * set->features) * (set->x_u8 ? 1 : sizeof(float)) + (size_t)(set->labels + 1) * sizeof(int32_t));
}

static tn_status make_trainer(const tn_session *s, const tn_session_options *o, int64_t batch, bool *refused, tn_trainer **out)
{
    const bool looks = o->looks || (!o->evaluates && tn_log_level_of(s->settings) >= TN_LOG_TRAINING);
    const tn_trainer_options t = { .look = looks, .model = s->model, .settings = s->settings, .batch = batch, .length = s->length,
                                   .labels = s->samples ? s->samples->labels : 0, .samples = s->samples ? s->samples->count[TN_TRAIN] : 0, .weighted = s->env != NULL,
                                   .logits = s->samples || s->probe, .widths = s->probe ? s->probe->lengths : NULL, .n_widths = s->probe ? s->probe->n_lengths : 0, .forward_only = o->evaluates, .documents = s->data && tn_source_marks_documents(s->mode),
                                   .buckets = s->data && s->mode == TN_LOADER_BUCKET, .beside = data_bytes(s, o, batch), .refused = refused, .shared = s->shared, .seat = s->seat, .store = o->store };
    return tn_trainer_new(&t, out);
}

/* The largest batch that fits, to an eighth. The trainer refuses a plan that does not fit before any of its memory is
 * touched, so that trying costs time alone, and only where memory is short; one is alive at a time. */
static tn_status find_batch(tn_session *s, const tn_session_options *o)
{
    int64_t fits = 0, fails = 0;
    s->batch = s->model->features ? TN_TASK_BATCH : TN_SESSION_TOKENS / s->length > 0 ? TN_SESSION_TOKENS / s->length : 1;
    do {
        const tn_status st = make_trainer(s, o, s->batch, NULL, &s->trainer);
        if (st != TN_OK && (st != TN_MEMORY || s->batch == 1)) return st;
        if (st != TN_OK) fails = s->batch;
        else if (!fails || fails - s->batch <= 1 + s->batch / 8) return TN_OK;
        else fits = s->batch;
        tn_trainer_free(s->trainer);
        s->trainer = NULL;
        s->batch = fits ? (fits + fails) / 2 : fails / 2;
    } while (fails - fits > 1 + fits / 8);
    s->batch = fits;
    return make_trainer(s, o, fits, NULL, &s->trainer);
}

/* The settings of half the batch; false where there is none, or a step means something else (an environment's episodes). */
static bool halve_settings(tn_session *s)
{
    char batch[32], times[32];
    const int64_t n = tn_settings_int(s->settings, "train.accumulate");
    if (s->batch < 2 || s->batch % 2 || s->env || n > 500000) return false;
    snprintf(batch, sizeof batch, "%lld", (long long)(s->batch / 2));
    snprintf(times, sizeof times, "%lld", (long long)(2 * n));
    if (tn_settings_set(s->settings, "train.batch", batch, "out of memory") != TN_OK) return false;
    if (tn_settings_set(s->settings, "train.accumulate", times, "out of memory") != TN_OK) return false;
    if (!s->asked) s->asked = s->batch;
    s->batch /= 2;
    return true;
}

static tn_status halve_until_it_fits(tn_session *s, const tn_session_options *o)
{
    char why[512];
    for (;;) {
        bool refused = false;
        const tn_status st = make_trainer(s, o, s->batch, &refused, &s->trainer);
        if (st != TN_MEMORY || refused || o->evaluates) return st;
        snprintf(why, sizeof why, "%s", tn_error_text());
        if (!halve_settings(s)) return tn_error(TN_MEMORY, "%s", why);
    }
}

static tn_status open_trainer(tn_session *s, const tn_session_options *o)
{
    if (tn_settings_is_auto(s->settings, "train.batch")) return find_batch(s, o);
    s->batch = tn_settings_int(s->settings, "train.batch");
    const tn_status st = halve_until_it_fits(s, o);
    /* What is evaluated was perhaps trained on a larger machine, and its loss does not depend on how many rows are looked at together. */
    const bool typed = strcmp(tn_settings_source(s->settings, "train.batch"), "command line") == 0;
    return st == TN_MEMORY && o->evaluates && !s->env && !typed ? find_batch(s, o) : st;
}

static tn_status open_split(const tn_session *s, tn_data_split heldout, bool heldout_only, tn_source *out)
{
    const tn_source_options text = text_options(s, s->batch, heldout, heldout_only);
    const tn_source_task_options task = { .samples = s->samples, .batch = s->batch, .seed = text.seed, .heldout = heldout,
                                          .heldout_only = heldout_only };
    const tn_source_probe_options probe = { .probe = s->probe, .batch = s->batch, .seed = text.seed, .heldout = heldout };
    const tn_status st = s->probe     ? tn_source_probe_open(&probe, out)
                         : s->samples ? tn_source_task_open(&task, out)
                                      : tn_source_open(&text, out);
    if (st != TN_OK) tn_error_prefix(s->data ? "data" : "task");
    return st;
}

static tn_status open_source(tn_session *s, const tn_session_options *o)
{
    if (s->env)
        return tn_source_env_open(&(tn_source_env_options){ .env = s->env, .model = s->model, .settings = s->settings, .learner = s->trainer },
                                  &s->source);
    if (!s->data && !s->samples && !s->probe) return TN_OK;
    return open_split(s, heldout_of(o), o->evaluates, &s->source);
}

tn_status tn_session_halve(tn_session *s)
{
    const tn_session_options o = { 0 };
    char why[512];
    snprintf(why, sizeof why, "%s", tn_error_text());
    if (!halve_settings(s)) return tn_error(TN_MEMORY, "%s", why);
    tn_source_close(&s->source);
    tn_trainer_free(s->trainer);
    s->trainer = NULL;
    TN_RETURN_IF(halve_until_it_fits(s, &o));
    return open_source(s, &o);
}

tn_status tn_session_heldout(const tn_session *s, tn_data_split split, tn_source *out) { return open_split(s, split, true, out); }

int64_t tn_session_count(const tn_session *s, tn_data_split split)
{
    if (s->probe) return split == TN_TRAIN ? INT64_MAX : s->probe->heldout * s->probe->groups;
    return s->samples ? s->samples->count[split] : (int64_t)tn_dataset_count(s->data, split).tokens;
}

tn_status tn_session_open_with(const tn_session_options *o, tn_session *out)
{
    tn_session s = { .shared = o->shared, .seat = o->seat };
    const tn_settings_from from = { .asked = o->asked,
                                    .target = o->target,
                                    .file = o->file,
                                    .said = o->said,
                                    .n_said = o->n_said,
                                    .overrides = o->overrides,
                                    .n = o->n };
    tn_status st = o->settings ? tn_settings_clone(o->settings, &s.settings) : tn_settings_resolve_from(&from, &s.settings, &s.model);
    if (o->settings) s.model = o->model;
    if (st == TN_OK && o->evaluates) st = tn_graph_setup_here(s.settings, false);
    if (st == TN_OK) s.length = tn_settings_int(s.settings, "train.context");
    if (st == TN_OK) st = open_data(&s, o->needs_data, !o->evaluates);
    if (st == TN_OK && o->parameters) st = tn_width_fit(s.model, s.settings, o->width, o->parameters, &s.width);
    if (st == TN_OK && o->weights) st = tn_weights_check(o->weights, s.model, s.settings, s.model->features || s.length < 8 ? s.length : 8);
    if (st == TN_OK) st = open_trainer(&s, o);
    if (st == TN_OK) st = open_source(&s, o);
    if (st == TN_OK && s.source.ctx) st = tn_metric_settle(&s.source, s.trainer, s.settings);
    if (st != TN_OK) tn_session_close(&s);
    else *out = s;
    return st;
}

tn_status tn_session_open(const char *target, const char *const *overrides, size_t n, bool needs_data, tn_session *out)
{
    return tn_session_open_with(&(tn_session_options){ .target = target, .overrides = overrides, .n = n, .needs_data = needs_data },
                                out);
}

void tn_session_close(tn_session *s)
{
    tn_source_close(&s->source); /* who acts in an environment borrows the trainer's store */
    tn_probe_free(s->probe);
    tn_trainer_free(s->trainer);
    tn_dataset_close(s->data);
    if (s->shared) tn_shared_return_samples(s->shared, s->samples);
    else tn_samples_free(s->samples);
    tn_settings_free(s->settings);
    *s = (tn_session){ 0 };
}
