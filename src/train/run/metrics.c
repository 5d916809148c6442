/* Measures and writes metrics. Regions of the model are timed only in steps that write a line. */
#include "train/run/metrics.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/memory_peak.h"
#include "train/run/training_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PEAK_AFTER_S = 2, MOST_PARTS = 64, MOST_OPS = 64, KEPT_BYTES = 1 << 20 };

static const char *const level_names[] = { "info", "training", "performance", "profiling" };

tn_log_level tn_log_level_of(const tn_settings *st)
{
    const char *name = tn_settings_text(st, "log.level");
    int i = TN_LOG_PROFILING;
    while (i > 0 && strcmp(name, level_names[i]) != 0) i--;
    return (tn_log_level)i;
}

tn_status tn_metrics_open(const tn_training *t, tn_metrics *out)
{
    tn_metrics m = {
        .t = t, .level = tn_log_level_of(t->settings), .every = tn_settings_int(t->settings, "log.every"), .peak = NAN
    };
    m.n_regions = tn_trainer_times(t->trainer, NULL, 0);
    m.regions = tn_alloc(sizeof *m.regions * (m.n_regions + 1));
    const bool spreads = m.level >= TN_LOG_TRAINING && tn_trainer_has_instruments(t->trainer);
    m.spreads = spreads ? tn_alloc(sizeof *m.spreads) : NULL;
    if (!m.regions || (spreads && !m.spreads)) {
        tn_metrics_close(&m);
        return TN_MEMORY;
    }
    const tn_status kept = t->metrics && t->warn ? tn_jsonl_buffer(t->metrics, KEPT_BYTES) : TN_OK;
    if (kept != TN_OK) {
        tn_metrics_close(&m);
        return kept;
    }
    if (spreads) *m.spreads = (tn_histograms){ 0 };
    if (m.level >= TN_LOG_TRAINING && tn_trainer_device(t->trainer) == TN_CUDA) m.gpu = tn_gpu_usage_start(NULL);
    m.holes = m.level >= TN_LOG_TRAINING ? tn_plan_holes(tn_trainer_plan(t->trainer, true)) : NAN;
    tn_trainer_times(t->trainer, m.regions, m.n_regions);
    *out = m;
    return TN_OK;
}

void tn_metrics_close(tn_metrics *m)
{
    tn_gpu_usage_stop(m->gpu);
    m->gpu = NULL;
    tn_free(m->regions);
    tn_free(m->spreads);
    m->regions = NULL;
    m->spreads = NULL;
}

bool tn_metrics_has_instruments(const tn_metrics *m)
{
    return m->level >= TN_LOG_PERFORMANCE || m->t->source->report ||
           (m->level >= TN_LOG_TRAINING && tn_trainer_has_instruments(m->t->trainer));
}

bool tn_metrics_due(const tn_metrics *m, int64_t step, int64_t steps) { return step == steps || step % m->every == 0; }

/* --- around a step --------------------------------------------------------------------------------------------------- */

void tn_metrics_before(tn_metrics *m, bool line)
{
    m->step_data_s = m->step_optimizer_s = m->step_flops = 0;
    m->timed = line && m->level >= TN_LOG_PERFORMANCE;
    if (m->timed) tn_trainer_timers(m->t->trainer, true);
}

double tn_metrics_clock(const tn_metrics *m, tn_log_level level) { return m->level >= level ? tn_clock_s() : 0; }

static void read_gpu(const tn_metrics *m, tn_progress_report *r)
{
    tn_gpu_sample now;
    if (!tn_gpu_usage_read(m->gpu, &now)) return;
    r->gpu_busy = now.busy;
    r->gpu_clock = now.clock_mhz;
    r->gpu_watt = now.watt;
    r->gpu_used = now.used;
    r->gpu_all = now.all;
}

void tn_metrics_memory(const tn_metrics *m, double *planned, double *peak)
{
    tn_gpu_sample now;
    const bool gpu = tn_trainer_device(m->t->trainer) != TN_CPU;
    *planned = (double)tn_trainer_memory(m->t->trainer).total;
    *peak = !gpu ? tn_process_peak() : m->gpu && tn_gpu_usage_last(m->gpu, &now) ? now.used : NAN;
}

void tn_metrics_after(tn_metrics *m, double took_s, bool line, tn_progress_report *r)
{
    m->working_s += took_s;
    m->data_s += m->step_data_s;
    m->since_s += took_s;
    m->since_flops += m->step_flops;
    r->step_ms = 1e3 * m->since_s / (double)++m->since;
    if (m->level < TN_LOG_TRAINING) return;
    r->stall_s = m->data_s;
    r->stall_frac = m->working_s > 0 ? m->data_s / m->working_s : 0;
    if (isnan(m->peak) && m->t->peak && m->working_s > PEAK_AFTER_S) m->peak = m->t->peak(m->t->ctx);
    r->utilisation = m->peak > 0 ? m->since_flops / m->since_s / m->peak : NAN;
    if (!line) return;
    r->memory_bytes = tn_process_peak();
    read_gpu(m, r);
}

/* --- lines ----------------------------------------------------------------------------------------------------------- */

/* A number, and again under the further key that the model's rows have for it. */
static void write_number(const tn_metrics *m, tn_jsonl *w, const char *name, double x)
{
    const tn_model *model = tn_trainer_model(m->t->trainer);
    tn_jsonl_number(w, name, x);
    for (size_t i = 0; i < model->n_reported; i++)
        if (model->reported[i].key && strcmp(model->reported[i].name, name) == 0)
            tn_jsonl_number(w, model->reported[i].key, x);
}

/* What is counted for a sample, per second too. */
static void write_rate(const tn_metrics *m, tn_jsonl *w, const char *name, double x, double samples_per_s)
{
    const tn_model *model = tn_trainer_model(m->t->trainer);
    for (size_t i = 0; i < model->n_reported; i++)
        if (model->reported[i].rate && !isnan(samples_per_s) && strcmp(model->reported[i].name, name) == 0)
            tn_jsonl_number(w, model->reported[i].rate, x * samples_per_s);
}

typedef struct instrument_line {
    const tn_metrics *m;
    tn_jsonl *w; /* or NULL */
    tn_progress_report *r;
    tn_histograms *spreads;
} instrument_line;

/* The first one is also for the terminal. */
static void write_instrument(void *ctx, const char *name, double value, const char *unit)
{
    const instrument_line *l = ctx;
    (void)unit;
    if (l->w) write_number(l->m, l->w, name, value);
    if (l->w) write_rate(l->m, l->w, name, value, l->r->samples_per_s);
    if (l->r->instrument[0]) return;
    snprintf(l->r->instrument, sizeof l->r->instrument, "%s", name);
    l->r->instrument_value = value;
}

static void count_instrument(void *ctx, const char *name, double value, const char *unit)
{
    tn_histograms_take(((const instrument_line *)ctx)->spreads, name, value, unit);
}

static void write_spread(tn_jsonl *w, const tn_histogram *s, bool octaves)
{
    static const struct {
        const char *name;
        double q;
    } part[] = { { "p10", 0.1 }, { "p50", 0.5 }, { "p90", 0.9 } };
    char key[96];
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        snprintf(key, sizeof key, "%s_%s", s->name, part[i].name);
        tn_jsonl_number(w, key, tn_histogram_quantile(s, part[i].q));
    }
    for (int k = TN_HISTOGRAM_FIRST; octaves && k < TN_HISTOGRAM_FIRST + TN_HISTOGRAM_OCTAVES; k++) {
        const int64_t n = tn_histogram_octave(s, k);
        if (n == 0) continue;
        snprintf(key, sizeof key, "%s_hist.%g", s->name, exp2(k));
        tn_jsonl_number(w, key, (double)n / (double)s->n);
    }
}

/* Of all layers together; one by one only where a line may be long. */
static void write_spreads(const tn_metrics *m, tn_jsonl *w)
{
    for (size_t i = 0; i < m->spreads->n; i++) {
        const tn_histogram *s = &m->spreads->row[i];
        const bool all = !strchr(s->name, '.');
        if (s->n && (all || m->level >= TN_LOG_PROFILING)) write_spread(w, s, all && m->level >= TN_LOG_PROFILING);
    }
}

static void instruments(const tn_metrics *m, tn_jsonl *w, tn_progress_report *r)
{
    instrument_line l = { m, w, r, m->spreads };
    const bool counts = m->spreads && w;
    r->instrument[0] = 0;
    if (m->t->source->report) m->t->source->report(m->t->source->ctx, write_instrument, &l);
    if (counts) tn_histograms_clear(m->spreads);
    if (m->level >= TN_LOG_TRAINING)
        (void)tn_trainer_instruments(m->t->trainer, write_instrument, counts ? count_instrument : NULL, &l);
    if (counts) write_spreads(m, w);
}

static void write_known(tn_jsonl *w, const char *name, double x)
{
    if (!isnan(x)) tn_jsonl_number(w, name, x);
}

/* The first is there even where it is not a number: that is news. */
static void write_scores(tn_jsonl *w, const tn_progress_report *r)
{
    char key[TN_SCORE_KEY];
    for (size_t i = 0; i < r->last.n; i++) {
        if (i && isnan(r->last.at[i].value)) continue;
        tn_jsonl_number(w, tn_metric_key(&r->metrics, r->last.at[i].name, key), r->last.at[i].value);
    }
}

static void write_times(tn_jsonl *w, const char *lead, const char *name, double forward_ms, double backward_ms)
{
    char key[128];
    snprintf(key, sizeof key, "%s%.80s.forward_ms", lead, name);
    tn_jsonl_number(w, key, forward_ms);
    snprintf(key, sizeof key, "%s%.80s.backward_ms", lead, name);
    tn_jsonl_number(w, key, backward_ms);
}

/* "layer3.mixer" is "mixer", "layer3" is "layer", "" is "rest". */
static const char *part_of(const char *region)
{
    const size_t n = strncmp(region, "layer", 5) == 0 ? 5 + strspn(region + 5, "0123456789") : 0;
    if (n > 5 && region[n] == '.') return region + n + 1;
    return n > 5 && !region[n] ? "layer" : region[0] ? region : "rest";
}

static bool is_part(const char *row, const char *part)
{
    const size_t n = strlen(part);
    return strncmp(row, part, n) == 0 && strcmp(row + n, ".ms") == 0;
}

/* Parts of the model as wholes, or all but one, where its rows have keys for that; none of a part that has no time. */
static void write_wholes(const tn_metrics *m, tn_jsonl *w)
{
    const tn_model *model = tn_trainer_model(m->t->trainer);
    for (size_t i = 0; i < model->n_reported; i++) {
        const tn_instrument_row *row = &model->reported[i];
        const bool others = row->name[0] == '-';
        double ms[2] = { 0 }; /* of others, of the part */
        for (size_t k = 0; k < m->n_regions; k++)
            ms[is_part(row->name + others, part_of(m->regions[k].region))] +=
                m->regions[k].forward_ms + m->regions[k].backward_ms;
        if (row->key && ms[!others] > 0) tn_jsonl_number(w, row->key, ms[!others]);
    }
}

/* Times of a part are those of all layers together. */
static void write_parts(const tn_metrics *m, tn_jsonl *w)
{
    struct {
        const char *name;
        double forward_ms, backward_ms;
    } part[MOST_PARTS];
    size_t n = 0;
    tn_trainer_times(m->t->trainer, m->regions, m->n_regions);
    for (size_t i = 0; i < m->n_regions; i++) {
        const tn_region_time *r = &m->regions[i];
        size_t k = 0;
        if (r->forward_ms + r->backward_ms == 0) continue;
        while (k < n && strcmp(part[k].name, part_of(r->region)) != 0) k++;
        if (k == MOST_PARTS) continue;
        if (k == n) {
            part[n].name = part_of(r->region);
            part[n].forward_ms = part[n].backward_ms = 0;
            n++;
        }
        part[k].forward_ms += r->forward_ms;
        part[k].backward_ms += r->backward_ms;
    }
    for (size_t i = 0; i < n; i++) write_times(w, "", part[i].name, part[i].forward_ms, part[i].backward_ms);
    write_wholes(m, w);
    tn_jsonl_number(w, "data_ms", 1e3 * m->step_data_s);
    tn_jsonl_number(w, "optimizer_ms", 1e3 * m->step_optimizer_s);
}

static void write_ops(const tn_metrics *m, tn_jsonl *w)
{
    tn_op_time row[MOST_OPS];
    const size_t n = tn_trainer_op_times(m->t->trainer, row, MOST_OPS);
    for (size_t i = 0; i < n; i++) write_times(w, "op.", row[i].op, row[i].forward_ms, row[i].backward_ms);
}

static const char *const actions[] = {
    [TN_GUARD_SKIPPED] = "skipped", [TN_GUARD_ROLLED_BACK] = "rolled back", [TN_GUARD_RESCALED] = "loss scale halved"
};

/* Warns when lines begin to wait, when they begin to be lost, and when they are written. */
static tn_status end_line(const tn_metrics *m, int64_t step)
{
    const tn_training *t = m->t;
    const tn_jsonl_backlog was = tn_jsonl_backlog_of(t->metrics);
    const tn_status s = tn_jsonl_end(t->metrics);
    const tn_jsonl_backlog now = tn_jsonl_backlog_of(t->metrics);
    if (!t->warn) return s;
    if (s == TN_OK && was.waiting)
        tn_training_warn(t, "the %zu buffered lines of metrics.jsonl are now written", was.waiting);
    if (s != TN_DISK) return s;
    if (!was.waiting && now.waiting)
        tn_training_warn(
            t, "%s; training continues, lines are buffered in memory (at most %d KiB) and retried with each new one",
            tn_error_text(), KEPT_BYTES >> 10);
    if (now.lost > was.lost && (was.lost == 0 || !was.waiting))
        tn_training_warn(t, "%s; the buffer is full: lines from step %lld on are lost", tn_error_text(),
                         (long long)step);
    return TN_OK;
}

tn_status tn_metrics_flush(const tn_metrics *m)
{
    tn_jsonl *w = m->t->metrics;
    if (!w) return TN_OK;
    const tn_status s = tn_jsonl_flush(w);
    const tn_jsonl_backlog b = tn_jsonl_backlog_of(w);
    if (s != TN_OK && b.waiting) tn_error_prefix("%zu lines of metrics.jsonl are buffered", b.waiting);
    return s;
}

void tn_metrics_finish(const tn_metrics *m)
{
    char text[1024];
    if (!m->t || !m->t->metrics || !m->t->warn) return;
    tn_jsonl_backlog b = tn_jsonl_backlog_of(m->t->metrics);
    if (b.waiting) { /* the error that ended the run keeps its text */
        snprintf(text, sizeof text, "%s", tn_error_text());
        (void)tn_jsonl_flush(m->t->metrics);
        tn_error(TN_OK, "%s", text);
        b = tn_jsonl_backlog_of(m->t->metrics);
    }
    if (b.waiting + b.lost)
        tn_training_warn(m->t, "%zu lines of metrics.jsonl could not be written and are lost", b.waiting + b.lost);
}

static void write_ladder(const tn_metrics *m, tn_jsonl *w)
{
    char text[TN_LADDER_LINES * TN_LADDER_LINE];
    if (m->t->ladder && m->t->ladder->n) tn_jsonl_text(w, "memory", tn_ladder_text(m->t->ladder, text, sizeof text));
}

tn_status tn_metrics_line(tn_metrics *m, tn_progress_report *r, double first_step_s)
{
    tn_jsonl *w = m->t->metrics;
    const tn_source *source = m->t->source;
    m->since_s = m->since_flops = 0;
    m->since = 0;
    if (!w) {
        instruments(m, NULL, r);
        return TN_OK;
    }
    tn_jsonl_begin(w);
    tn_jsonl_integer(w, "step", r->step);
    write_known(w, "epoch", r->epoch);
    tn_jsonl_number(w, "loss", r->loss);
    if (r->evaluated) write_scores(w, r);
    tn_jsonl_number(w, "lr", r->lr);
    if (!isnan(first_step_s)) write_ladder(m, w);
    if (m->level >= TN_LOG_TRAINING) {
        write_known(w, "first_step_s", first_step_s);
        tn_jsonl_number(w, "grad_norm", r->grad_norm);
        if (isnan(r->samples_per_s)) tn_jsonl_number(w, "tokens_per_s", r->tokens_per_s);
        else write_number(m, w, "samples_per_s", r->samples_per_s);
        write_known(w, "utilisation", r->utilisation);
        write_known(w, "memory_mb", r->memory_bytes / 1e6);
        write_known(w, "gpu_utilization_percent", r->gpu_busy);
        write_known(w, "gpu_clock_mhz", r->gpu_clock);
        write_known(w, "gpu_power_w", r->gpu_watt);
        write_known(w, "memory_used_gb", r->gpu_used / 1e9);
        write_known(w, "memory_utilization_percent", 100 * r->gpu_used / r->gpu_all);
        write_known(w, "memory_fragmentation_percent", 100 * m->holes);
        write_known(w, "stall_s", r->stall_s);
        write_known(w, "stall_frac", r->stall_frac);
        if (source->padding) write_known(w, "padding_frac", source->padding(source->ctx));
    }
    write_known(w, "step_ms", r->step_ms);
    tn_jsonl_number(w, "seconds", r->seconds);
    write_known(w, "loss_scale", r->loss_scale);
    if (r->action != TN_GUARD_CONTINUE) tn_jsonl_text(w, "nonfinite", actions[r->action]);
    if (r->diverged) tn_jsonl_text(w, "nonfinite", "stopped");
    if (r->bad_tensor && r->bad_tensor[0]) tn_jsonl_text(w, "nonfinite_tensor", r->bad_tensor);
    if (r->bad_batch && r->bad_batch[0]) tn_jsonl_text(w, "nonfinite_batch", r->bad_batch);
    if (!isnan(r->step_ms)) instruments(m, w, r); /* no step was trained yet: an evaluation that was left */
    if (m->timed) write_parts(m, w);
    if (m->level >= TN_LOG_PERFORMANCE && r->evaluation_s > 0) tn_jsonl_number(w, "evaluation_s", r->evaluation_s);
    if (m->level >= TN_LOG_PERFORMANCE && r->saving_s > 0) tn_jsonl_number(w, "saving_s", r->saving_s);
    if (m->timed && m->level >= TN_LOG_PROFILING) write_ops(m, w);
    return end_line(m, r->step);
}

void tn_metrics_untime(tn_metrics *m)
{
    if (m->timed) tn_trainer_timers(m->t->trainer, false);
    m->timed = false;
}

static tn_status write_layout(const tn_metrics *m)
{
    char path[TN_PATH_BYTES];
    if (!m->t->dir) return TN_OK;
    TN_RETURN_IF(tn_path_join(m->t->dir, "memory.csv", path, sizeof path));
    return tn_layout_csv(m->t->trainer, path);
}

tn_status tn_metrics_plan(const tn_metrics *m, bool begins)
{
    tn_jsonl *w = m->t->metrics;
    const tn_memory_plan p = tn_trainer_memory(m->t->trainer);
    const struct {
        const char *name;
        size_t bytes;
    } row[] = {
        { "parameters", p.parameters }, { "gradients", p.gradients }, { "optimizer", p.optimizer },
        { "frozen", p.frozen },         { "state", p.state },         { "activations", p.activations },
        { "workspace", p.workspace },   { "other", p.other },         { "data", p.data + p.host },
        { "total", p.total },
    };
    if (m->level < TN_LOG_PROFILING) return TN_OK;
    TN_RETURN_IF(write_layout(m));
    if (!w || !begins) return TN_OK;
    tn_jsonl_begin(w);
    tn_jsonl_integer(w, "step", 0);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char key[64];
        snprintf(key, sizeof key, "plan.%s_bytes", row[i].name);
        tn_jsonl_integer(w, key, (int64_t)row[i].bytes);
    }
    return tn_jsonl_end(w);
}
