/* A model's training step. The session is opened before anything is measured: a wrong key should not have to wait. */
#include "cli/bench/bench_parts.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "report/bench/timing.h"
#include "train/trainer/inputs.h"
#include "train/run/parts.h"
#include "train/run/session.h"
#include "train/run/train_settings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_OVERRIDES = 256, MOST_STEPS = 32 };

/* The model runs on as many threads as its ceilings are measured with: --threads, or what the settings say. `more`: settings
 * that count beside the command line's, NULL-terminated. */
static tn_status open_session(tn_cli *c, const char *target, int threads, const char *const *more, tn_session *s)
{
    const char *list[MOST_OVERRIDES + 1];
    char text[32];
    size_t n = 0;
    for (; *more; more++) list[n++] = *more;
    if (n + c->args.overrides_n > MOST_OVERRIDES) return tn_error(TN_USAGE, "too many settings");
    for (size_t i = 0; i < c->args.overrides_n; i++) list[n++] = c->args.overrides[i];
    snprintf(text, sizeof text, "threads=%d", threads);
    if (threads) list[n++] = text;
    TN_RETURN_IF(
        tn_session_open_with(&(tn_session_options){ .user = &c->user, .target = target, .overrides = list, .n = n },
                             s));
    const tn_status st = tn_parts_load(s->settings, s->model, tn_trainer_store(s->trainer));
    if (st != TN_OK) tn_session_close(s);
    return st;
}

/* A spread of tokens: all the same would be too kind to caches and to the embedding's gradient. */
static void fill_tokens(tn_session *s)
{
    const tn_feed f = tn_trainer_feed(s->trainer);
    if (s->source.example) s->source.example(s->source.ctx, &f);
    else tn_feed_random(&f, (tn_rng){ .seed = 1, .stream = 1 });
}

/* Over a few steps: each region of the model, or each op, forward and backward. */
static tn_status time_parts(tn_cli *c, tn_session *s, const tn_ceilings *m, double peak)
{
    tn_status st = TN_OK;
    tn_bench_parts *p = NULL;
    float loss;
    if (!tn_args_flag(&c->args, "regions") && !tn_args_flag(&c->args, "by-op")) return TN_OK;
    if (!(p = tn_alloc(sizeof *p))) return TN_MEMORY;
    tn_trainer_timers(s->trainer, true);
    for (int i = 0; i < TN_BENCH_TIMED && st == TN_OK; i++) st = tn_trainer_grad(s->trainer, i, &loss);
    p->n_regions = tn_trainer_times(s->trainer, p->region, TN_BENCH_ROWS);
    if (p->n_regions > TN_BENCH_ROWS) p->n_regions = TN_BENCH_ROWS;
    p->n_ops = tn_trainer_op_times(s->trainer, p->op, TN_BENCH_ROWS);
    tn_trainer_timers(s->trainer, false);
    tn_store_zero_grad(tn_trainer_store(s->trainer));
    if (st == TN_OK) st = tn_bench_print_parts(c, p, m, peak);
    tn_free(p);
    return st;
}

/* --- steps ----------------------------------------------------------------------------------------------------------------- */

static tn_status queue_step(tn_session *s, int64_t step)
{
    const int64_t batches = tn_trainer_batches(s->trainer);
    for (int64_t i = 0; i < batches; i++) TN_RETURN_IF(tn_trainer_queue_grad(s->trainer, step * batches + i, 1, false));
    return tn_trainer_queue_apply(s->trainer, step);
}

/* Queued ahead as in training: a step's time is that from the end of the one before it to its own. Those behind the last one
 * that counts are finished too. *begun: the first. */
static tn_status time_steps(tn_session *s, double seconds, double *times, size_t *runs, tn_step_result *begun)
{
    tn_trainer *t = s->trainer;
    const double start = tn_clock_s();
    double last = start;
    tn_step_result x;
    *runs = 0;
    for (int64_t queued = 0; *runs < MOST_STEPS && (*runs < 4 || tn_clock_s() - start < seconds); queued++) {
        TN_RETURN_IF(queue_step(s, queued));
        if (tn_trainer_queued(t) < tn_trainer_queue_depth(t)) continue;
        TN_RETURN_IF(tn_trainer_collect(t, &x));
        if (!*runs) *begun = x;
        const double now = tn_clock_s();
        times[(*runs)++] = now - last;
        last = now;
    }
    while (tn_trainer_queued(t)) TN_RETURN_IF(tn_trainer_collect(t, &x));
    return TN_OK;
}

static tn_status run_steps(void *ctx, int64_t steps)
{
    tn_session *s = ctx;
    tn_step_result x;
    for (int64_t i = 0; i < steps; i++) {
        TN_RETURN_IF(queue_step(s, i));
        if (tn_trainer_queued(s->trainer) == tn_trainer_queue_depth(s->trainer))
            TN_RETURN_IF(tn_trainer_collect(s->trainer, &x));
    }
    while (tn_trainer_queued(s->trainer)) TN_RETURN_IF(tn_trainer_collect(s->trainer, &x));
    return TN_OK;
}

/* What the steps are of, where neither data nor the command line say it (source/task_setup.c). */
static void say_tokens(const tn_cli *c, const tn_session *s)
{
    const tn_settings *st = s->settings;
    if (c->json || tn_settings_find(st, "vocab") == tn_settings_count(st)) return;
    if (strcmp(tn_settings_source(st, "vocab"), "no data") == 0)
        fprintf(c->err,
                "note    steps of %lld x %lld random tokens out of %lld: data=FILE measures a text, vocab=N another "
                "vocabulary\n",
                (long long)s->batch, (long long)s->length, (long long)tn_settings_int(st, "vocab"));
}

/* m: filled by the first row; idle: of the GPU's memory before the session. */
static tn_status bench_session(tn_cli *c, const char *name, tn_session *s, tn_ceilings *m, size_t idle)
{
    double times[MOST_STEPS], seconds = 20;
    tn_step_result begun;
    size_t runs;
    const bool gpu = tn_trainer_device(s->trainer) != TN_CPU;
    TN_RETURN_IF(tn_args_number(&c->args, "seconds", 0.001, 3600, &seconds));
    if (!m->threads)
        TN_RETURN_IF(tn_bench_ceilings(c, tn_trainer_device(s->trainer), tn_trainer_threads(s->trainer), seconds, m));
    say_tokens(c, s);
    fill_tokens(s);
    TN_RETURN_IF(time_steps(s, seconds, times, &runs, &begun));
    tn_bench_row r = { .group = "model", .name = name };
    r.ms = 1e3 * tn_median(times + 1, runs - 1, &r.spread_ms); /* the first touches the memory */
    r.spread_ms *= 1e3;
    const double batches = (double)tn_settings_int(s->settings, "train.accumulate");
    const double flops = (double)tn_trainer_batches(s->trainer) * tn_trainer_flops(s->trainer),
                 peak = tn_ceilings_of_compute(m, tn_settings_text(s->settings, "compute"));
    if (!isnan(flops)) r.gflops = flops / r.ms * 1e-6;
    r.of_ceiling = r.gflops / peak;
    tn_bench_print_row(c, &r);
    if (!tn_model_reads_sequences(s->model))
        TN_RETURN_IF(tn_bench_print_rate(c, name, batches * (double)s->batch / r.ms * 1e3, "samples/s"));
    else TN_RETURN_IF(tn_bench_print_rate(c, name, batches * (double)(s->batch * s->length) / r.ms * 1e3, "tokens/s"));
    if (idle || !gpu) TN_RETURN_IF(tn_bench_print_memory(c, name, s->trainer, gpu ? idle : 0));
    TN_RETURN_IF(tn_bench_print_loss(c, name, &begun));
    TN_RETURN_IF(tn_bench_trace(c, name, tn_trainer_device(s->trainer), s->trainer, run_steps, s));
    return time_parts(c, s, m, peak);
}

/* The size the first TEN was hoped to train at: a row of its own beside whatever was asked for. */
static tn_status bench_prototype(tn_cli *c, int threads, tn_ceilings *m)
{
    static const char *const sizes[] = { "preset=ten_b",      "vocab=50257",    "dim=1024",    "layers=8", "k=128",
                                         "train.context=512", "train.batch=16", "device=cuda", NULL };
    tn_session s = { 0 };
    tn_cli plain = *c;
    plain.args.overrides_n = 0;
    TN_RETURN_IF(open_session(&plain, "ten", threads, sizes, &s));
    const tn_status st = bench_session(&plain, "ten_b d1024 L8 K128 16x512", &s, m, 0);
    tn_session_close(&s);
    return st;
}

tn_status tn_bench_model(tn_cli *c)
{
    static const char *const none[] = { NULL };
    const char *target = tn_args_positional(&c->args, 0), *lengths = tn_args_value(&c->args, "lengths");
    int threads;
    TN_RETURN_IF(tn_args_expect(&c->args, 1, 1));
    TN_RETURN_IF(tn_bench_threads(c, &threads));
    if (lengths) return tn_bench_lengths(c, target, lengths);
    tn_session s = { 0 };
    tn_ceilings m = { 0 };
    const size_t idle = tn_bench_gpu_taken();
    TN_RETURN_IF(open_session(c, target, threads, none, &s));
    tn_status st = bench_session(c, target, &s, &m, idle);
    const bool prototype = st == TN_OK && m.gpu && strcmp(target, "ten") == 0;
    tn_session_close(&s);
    return prototype ? bench_prototype(c, threads, &m) : st;
}
