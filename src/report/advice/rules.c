/* Where a profile says that time is lost, and the setting that may win it back. */
#include "report/advice/advice.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct listing {
    const tn_advice_facts *f;
    tn_advice *advice;
    size_t n;
} listing;

static bool has(const tn_settings *st, const char *key) { return tn_settings_find(st, key) < tn_settings_count(st); }

static bool is(const tn_settings *st, const char *key, const char *value)
{
    return has(st, key) && strcmp(tn_settings_text(st, key), value) == 0;
}

TN_PRINTF(4, 5) static tn_advice *add(listing *l, const char *about, const char *price, const char *why, ...)
{
    if (l->n == TN_ADVICE_MOST) return NULL;
    tn_advice *a = &l->advice[l->n++];
    va_list args;
    *a = (tn_advice){ .about = about, .price = price, .same = true, .gain = { .median = NAN }, .more_bytes = NAN };
    va_start(args, why);
    vsnprintf(a->why, sizeof a->why, why, args);
    va_end(args);
    return a;
}

TN_PRINTF(2, 3) static void set(tn_advice *a, const char *word, ...)
{
    va_list args;
    if (!a || a->n == TN_ADVICE_WORDS) return;
    va_start(args, word);
    vsnprintf(a->word[a->n++], TN_ADVICE_WORD, word, args);
    va_end(args);
}

static tn_advice *changes_training(tn_advice *a)
{
    if (a) a->same = false;
    return a;
}

static double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

/* --- rules -------------------------------------------------------------------------------------------------------------------- */

/* Weights are read, packed and updated once for a batch, and kernels begun: few rows share the cost. */
static void batch(listing *l)
{
    const tn_profile *p = l->f->profile;
    const tn_settings *st = l->f->settings;
    const bool sequences = strcmp(p->unit, "tokens") == 0;
    const int64_t each = sequences ? p->length : 1, accumulate = tn_settings_int(st, "train.accumulate");
    const int64_t enough = sequences ? (TN_SESSION_TOKENS + each - 1) / each : TN_SESSION_SAMPLES;
    const double reached = tn_profile_reached(p);
    char arithmetic[64] = "";
    if (p->batch <= 0 || p->batch * 2 > enough) return;
    if (isfinite(reached))
        snprintf(arithmetic, sizeof arithmetic, ", and it reaches %.0f %% of this machine's arithmetic", 100 * reached);
    if (accumulate > 1) {
        int64_t times = 1; /* batches that become one */
        for (int64_t k = 2; k <= accumulate && p->batch * k <= enough; k++)
            if (accumulate % k == 0) times = k;
        if (times == 1) return;
        tn_advice *a = add(l, "batch", "", "a step takes %lld batches of %lld %s%s", (long long)accumulate,
                           (long long)(p->batch * each), p->unit, arithmetic);
        set(a, "train.batch=%lld", (long long)(p->batch * times));
        set(a, "train.accumulate=%lld", (long long)(accumulate / times));
        return;
    }
    for (int64_t rows = enough; rows >= 2 * p->batch && rows * 4 >= enough; rows /= 4) {
        tn_advice *a =
            add(l, "batch", "fewer updates for as much data: compare held-out losses, and try a larger train.lr",
                "a batch has %lld %s%s; the optimizer takes %.0f %% of the step", (long long)(p->batch * each), p->unit,
                arithmetic, percent(p->optimizer_ms, p->timed_ms));
        set(changes_training(a), "train.batch=%lld", (long long)rows);
    }
}

static void data(listing *l)
{
    const tn_profile *p = l->f->profile;
    const tn_settings *st = l->f->settings;
    const double waits = percent(p->data_ms, p->timed_ms);
    const int64_t workers = tn_settings_int(st, "loader.workers");
    if (!l->f->has_data || waits < 3) return;
    tn_advice *a =
        add(l, "loader", "a thread, and the memory of batches made ahead",
            "steps wait for data %.0f %% of the time, and %s", waits,
            workers ? "the threads that prepare batches do not keep up" : "no thread prepares batches meanwhile");
    if (a) a->loads = true;
    set(a, "loader.workers=%lld", workers ? (long long)(2 * workers) : 1LL);
    if (tn_settings_is_auto(st, "loader.prefetch") || tn_settings_int(st, "loader.prefetch") < 2)
        set(a, "loader.prefetch=%lld", workers ? (long long)(4 * workers) : 4LL);
}

static void recompute(listing *l)
{
    const tn_settings *st = l->f->settings;
    if (is(st, "plan.recompute", "none")) return;
    tn_advice *a = add(l, "recompute", "", "activations are computed twice to save memory (plan.recompute=%s)",
                       tn_settings_text(st, "plan.recompute"));
    set(a, "plan.recompute=none");
}

static void parts(listing *l)
{
    const int64_t n = tn_settings_int(l->f->settings, "plan.microbatches");
    if (n > 1)
        set(add(l, "parts", "", "batches are computed in %lld parts to save memory", (long long)n),
            "plan.microbatches=1");
}

static void chunk(listing *l)
{
    const tn_settings *st = l->f->settings;
    if (!is(st, "plan.recompute", "chunk") || tn_settings_is_auto(st, "plan.chunk")) return;
    set(add(l, "chunk", "", "sequences are computed in chunks of %lld tokens",
            (long long)tn_settings_int(st, "plan.chunk")),
        "plan.chunk=auto");
}

/* auto is f32 on the CPU. */
static void precision(listing *l)
{
    const tn_profile *p = l->f->profile;
    const tn_ceilings *c = &p->ceilings;
    const bool single = strcmp(p->compute, "f32") == 0 || (strcmp(p->compute, "auto") == 0 && p->device == TN_CPU);
    if (!single || !(c->bf16_gflops > 1.2 * c->fma_gflops)) return;
    set(changes_training(add(l, "precision", "operands are rounded to bf16, sums stay f32: compare held-out losses",
                             "this machine computes matrix products in bf16 %.1f times as fast as in f32",
                             c->bf16_gflops / c->fma_gflops)),
        "compute=bf16");
}

static void threads(listing *l)
{
    const tn_profile *p = l->f->profile;
    if (p->device != TN_CPU || p->threads >= l->f->cores) return;
    set(add(l, "threads", "", "%d of %d cores compute", p->threads, l->f->cores), "threads=auto");
}

/* Of equilibrium networks. */
static void tolerance(listing *l)
{
    const tn_settings *st = l->f->settings;
    const size_t i = tn_settings_find(st, "rtol");
    if (i == tn_settings_count(st)) return;
    const tn_setting *row = tn_settings_row_at(st, i);
    if (!(tn_settings_float(st, "rtol") < 0.99 * strtod(row->value, NULL))) return;
    set(changes_training(add(l, "solver", "equilibria are less exact: compare the held-out metric",
                             "each solve goes on until it moves by less than %s of its length; the default is %s",
                             tn_settings_text(st, "rtol"), row->value)),
        "rtol=%s", row->value);
}

/* The equilibria of the last epoch are near those of this one: probed behind a whole epoch. */
static void equilibria(listing *l)
{
    const tn_settings *st = l->f->settings;
    if (!l->f->epoch || !is(st, "cache", "false")) return;
    tn_advice *a = changes_training(
        add(l, "cache", "a state for every sample; solves end a little elsewhere: compare the held-out metric",
            "every solve begins at 0, though its sample was solved %lld steps before", (long long)l->f->epoch));
    if (!a) return;
    set(a, "cache=true");
    a->after = l->f->epoch + 1;
}

/* Of text in documents: a batch of one document a row is as narrow as they are, attention within it as cheap; rows in which documents follow one
 * another have no padding. Either with about as many tokens in a step. */
static void buckets(listing *l)
{
    const tn_profile *p = l->f->profile;
    const double document = l->f->document, eighth = fmax((double)p->length / 8, 1);
    if (!l->f->rows || !(document > 0) || p->batch <= 0) return;
    const bool packed = strcmp(l->f->rows, "pack") == 0;
    const double width = fmin(ceil(document / eighth) * eighth, (double)p->length), rows = (double)p->batch;
    if (packed && 2 * width > (double)p->length) return;
    tn_advice *a = changes_training(
        packed ? add(l, "bucketing", "steps hold documents of one length: compare held-out losses",
                     "documents have %.0f tokens and rows %lld: attention spans what it may not see", document,
                     (long long)p->length)
               : add(l, "bucketing", "rows hold several documents, cut where a row ends: compare held-out losses",
                     "documents have %.0f tokens, and rows of one are padded to eighths of %lld", document,
                     (long long)p->length));
    set(a, "loader.mode=%s", packed ? "bucket" : "pack");
    set(a, "train.batch=%lld",
        (long long)fmax(floor(packed ? rows * (double)p->length / width : rows * width / (double)p->length), 1));
}

/* Lines of metrics look at the whole network; above log.level=training they time every op of their step, and nothing is queued behind it. */
static void lines(listing *l)
{
    static const char *const dear[] = { "performance", "profiling" };
    enum { ENOUGH = 10, RARE = 30 };
    const tn_settings *st = l->f->settings;
    const int64_t every = tn_settings_int(st, "log.every"), times = (ENOUGH + every - 1) / every;
    const bool timed = is(st, "log.level", dear[0]) || is(st, "log.level", dear[1]);
    if (!l->f->has_data || every > RARE || (!timed && every >= ENOUGH)) return;
    if (timed) {
        tn_advice *a = add(l, "log", "metrics.jsonl no longer says where a step's time goes",
                           "every %lld steps one is timed op by op (log.level=%s)", (long long)every,
                           tn_settings_text(st, "log.level"));
        set(a, "log.level=training");
        if (a) a->lines = every;
    }
    if (every < ENOUGH) {
        tn_advice *a = add(l, "log", "the curves have fewer points", "a line of metrics is written every %lld step%s",
                           (long long)every, every > 1 ? "s" : "");
        set(a, "log.every=%lld", (long long)(every * times));
        if (a) a->lines = every * times;
    }
}

/* A forward pass for each held-out batch: seen in a whole run, not in a step. Brought to 2 % of the time. */
static void evaluations(listing *l)
{
    const tn_profile *p = l->f->profile;
    const tn_settings *st = l->f->settings;
    const int64_t every = tn_settings_int(st, "train.eval_every"), batches = tn_settings_int(st, "train.eval_batches");
    double forward = 0;
    if (!l->f->has_data || every <= 0 || batches <= 0) return;
    for (size_t i = 0; i < p->n; i++)
        if (!p->row[i].backward) forward += p->row[i].ms;
    const double share = (double)batches * forward / (double)p->batches / ((double)every * p->step_ms);
    const double times = ceil(share / 0.02);
    if (share < 0.05) return;
    tn_advice *a = add(l, "evaluation", "the curve has fewer points, and the best step is found less exactly",
                       "evaluations of %lld batches every %lld steps take %.0f %% as long as the steps themselves",
                       (long long)batches, (long long)every, 100 * share);
    if (!a) return;
    set(a, "train.eval_every=%lld", (long long)((double)every * times));
    const double gain = (1 + share) / (1 + share / times), noise = p->spread_ms / p->step_ms;
    a->computed = true;
    a->gain = (tn_ratio){ gain, 1 + (gain - 1) * (1 - noise), 1 + (gain - 1) * (1 + noise), p->steps };
}

size_t tn_advice_list(const tn_advice_facts *f, tn_advice advice[TN_ADVICE_MOST])
{
    static void (*const rules[])(listing *) = { data,  batch, recompute, tolerance, precision,  threads,
                                                parts, chunk, lines,     buckets,   equilibria, evaluations };
    listing l = { .f = f, .advice = advice };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) rules[i](&l);
    return l.n;
}

const char *tn_advice_words(const tn_advice *a, char *buf, size_t bytes)
{
    size_t at = 0;
    if (bytes) buf[0] = 0;
    for (size_t i = 0; i < a->n && at < bytes; i++) {
        const int n = snprintf(buf + at, bytes - at, "%s%s", i ? " " : "", a->word[i]);
        at += n > 0 ? (size_t)n : 0;
    }
    return buf;
}
