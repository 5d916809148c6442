/* The checks of check.h, except gradients and spectrum. Each uses its own trainer, so checks cannot disturb each
 * other. */
#include "train/check/check_internal.h"

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/memory_peak.h"
#include "base/rng.h"
#include "train/trainer/inputs.h"
#include "train/run/parts.h"
#include "train/run/train_settings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { OVERFIT_STEPS = 200, OVERFIT_LEAST = 30 }; /* fewer steps decide nothing */
static const double OVERFIT_RATE = 2e-3;

static void fill(const tn_check *c, tn_trainer *t)
{
    const tn_feed f = tn_trainer_feed(t);
    if (c->source && c->source->example) c->source->example(c->source->ctx, &f);
    else tn_feed_random(&f, (tn_rng){ .seed = 1, .stream = 11 });
}

/* Samples are small and of one size: a model that learns from them is always checked on the same batch. */
tn_status tn__check_open(const tn_check *c, tn_trainer_options o, tn_trainer **t)
{
    const tn_input_spec input_spec = c->source ? tn_source_input_spec(c->source) : (tn_input_spec){ 0 };
    const bool samples = !tn_model_reads_sequences(c->model);
    o.model = c->model;
    o.settings = c->settings;
    o.step = c->step;
    o.input_spec = c->source && c->source->ctx ? &input_spec : NULL;
    if (!o.batch || samples) o.batch = c->batch;
    if (!o.length || samples) o.length = c->length;
    TN_RETURN_IF(tn_trainer_new(&o, t));
    fill(c, *t);
    const tn_status s = tn_parts_load(c->settings, c->model, tn_trainer_store(*t));
    if (s == TN_OK) return TN_OK;
    tn_trainer_free(*t);
    *t = NULL;
    return s;
}

/* --- leak ----------------------------------------------------------------------------------------------------------------- */

static tn_status check_leak(const tn_check *c, tn_check_row *r)
{
    tn_status s = TN_OK;
    tn_trainer *t = NULL;
    float *before = NULL, loss;
    const int64_t B = c->batch, T = c->length, at = T / 2;
    int64_t count, V;
    if (!tn_model_reads_sequences(c->model) || !tn_model_reads(c->model, "tokens")) {
        r->verdict = TN_SKIPPED;
        snprintf(r->detail, sizeof r->detail, "samples have no future: for models that learn from sequences of tokens");
        return TN_OK;
    }
    TN_TRY(tn__check_open(c, (tn_trainer_options){ .logits = true, .forward_only = true }, &t));
    if (!tn_trainer_output(t, "logits", &count) || (V = count / (B * T)) < 2 || count % (B * T)) {
        r->verdict = TN_SKIPPED;
        snprintf(r->detail, sizeof r->detail, "the model outputs no logits");
        goto done;
    }
    TN_TRY(tn_trainer_eval(t, &loss));
    before = tn_alloc(sizeof *before * (size_t)(B * T * V));
    if (!before) TN_TRY(TN_MEMORY);
    memcpy(before, tn_trainer_output(t, "logits", &count), sizeof *before * (size_t)(B * T * V));
    int32_t *tokens = tn_trainer_input(t, "tokens");
    for (int64_t b = 0; tokens && b < B; b++) {
        int32_t *token = tokens + b * T + at;
        *token = (int32_t)((*token + 1) % V);
    }
    TN_TRY(tn_trainer_eval(t, &loss));
    const float *after = tn_trainer_output(t, "logits", &count);
    int64_t leaks = 0, moved = 0;
    for (int64_t i = 0; i < B * T * V; i++) {
        const bool differs = memcmp(&before[i], &after[i], sizeof *after) != 0;
        if (i / V % T < at) leaks += differs;
        else moved += differs;
    }
    r->value = (double)leaks;
    r->verdict = leaks == 0 && moved > 0 ? TN_PASS : TN_FAILED;
    snprintf(r->detail, sizeof r->detail,
             "forward [%lld,%lld,%lld]; token %lld changed: %lld earlier logits differ, %lld later ones", (long long)B,
             (long long)T, (long long)V, (long long)at, (long long)leaks, (long long)moved);
done:
    tn_free(before);
    tn_trainer_free(t);
    return s;
}

/* --- overfit ---------------------------------------------------------------------------------------------------------------- */

/* Whether parts that should come from files have random numbers: what is trained around them can learn little. */
static bool parts_are_random(const tn_check *c)
{
    for (size_t i = 0; i < c->model->n_parts; i++)
        if (c->model->parts[i].shape && *tn_settings_text(c->settings, c->model->parts[i].file)) return false;
    return c->model->n_parts > 0;
}

static tn_status check_overfit(const tn_check *c, tn_check_row *r)
{
    tn_status s = TN_OK;
    tn_trainer *t = NULL;
    tn_settings *fast = NULL;
    float first = 0, loss = 0;
    int steps = 0;
    const double begun = tn_clock_s(), most = c->overfit_s > 0 ? c->overfit_s : 25;
    tn_check quick = *c;
    char rate[32];
    if (parts_are_random(c)) {
        r->verdict = TN_SKIPPED;
        snprintf(r->detail, sizeof r->detail, "its frozen parts are random: name a trained one, %s=RUN",
                 c->model->parts[0].file);
        return TN_OK;
    }
    TN_TRY(tn_settings_clone(c->settings, &fast));
    /* Adam moves a weight by the rate in a step, and small models have far to go: their own rate, where it is larger. */
    snprintf(rate, sizeof rate, "%.9g", fmax(OVERFIT_RATE, tn_settings_float(fast, "train.lr")));
    TN_TRY(tn_settings_set(fast, "train.schedule", "constant", "check"));
    TN_TRY(tn_settings_set(fast, "train.warmup", "0", "check"));
    TN_TRY(tn_settings_set(fast, "train.lr", rate, "check"));
    TN_TRY(tn_settings_set(fast, "train.dropout", "0", "check"));
    quick.settings = fast;
    TN_TRY(tn__check_open(&quick, (tn_trainer_options){ .batch = 1, .length = c->length < 32 ? c->length : 32 }, &t));
    for (; steps == 0 || (steps < OVERFIT_STEPS && tn_clock_s() - begun < most); steps++) {
        tn_update_result a;
        TN_TRY(tn_trainer_grad(t, steps, &loss));
        if (steps == 0) first = loss;
        if (loss < 0.5f * first) break;
        TN_TRY(tn_trainer_apply(t, steps, 1, loss, &a));
    }
    r->value = (double)loss;
    r->unit = "nats";
    r->verdict = loss < 0.5f * first ? TN_PASS : steps < OVERFIT_LEAST ? TN_SKIPPED : TN_FAILED;
    snprintf(r->detail, sizeof r->detail, "loss on one batch %.3f -> %.3f in %d steps%s", (double)first, (double)loss,
             steps, r->verdict == TN_SKIPPED ? ", all there was time for: try a smaller size, or an idle machine" : "");
done:
    tn_trainer_free(t);
    tn_settings_free(fast);
    return s;
}

/* --- determinism, allocations ------------------------------------------------------------------------------------------------ */

/* Two steps from the seed; the parameters' sum of bits. */
static tn_status fingerprint(const tn_check *c, int threads, uint64_t *hash, uint64_t *allocations)
{
    tn_status s = TN_OK;
    tn_trainer *t = NULL;
    float loss;
    tn_update_result a;
    uint64_t h = 0xcbf29ce484222325u;
    tn_host_copy host = { 0 };
    TN_TRY(
        tn__check_open(c, (tn_trainer_options){ .length = c->length < 64 ? c->length : 64, .threads = threads }, &t));
    for (int i = 0; i < 3; i++) {
        const uint64_t before = tn_alloc_count();
        TN_TRY(tn_trainer_grad(t, i, &loss));
        TN_TRY(tn_trainer_apply(t, i, 1, loss, &a));
        *allocations = tn_alloc_count() - before;
    }
    for (int i = 0; i < tn_store_buckets(tn_trainer_store(t)); i++) {
        const tn_bucket *b = tn_store_bucket(tn_trainer_store(t), i);
        const unsigned char *p = tn_store_read(tn_trainer_store(t), b->param, sizeof(float) * (size_t)b->count, &host);
        if (!p) TN_TRY(TN_MEMORY);
        for (int64_t k = 0; k < b->count * 4; k++) h = (h ^ p[k]) * 0x100000001b3u;
    }
    *hash = h;
done:
    tn_host_copy_free(&host);
    tn_trainer_free(t);
    return s;
}

static tn_status check_determinism(const tn_check *c, tn_check_row *r)
{
    uint64_t a = 0, b = 0, two = 0, allocations = 0;
    TN_RETURN_IF(fingerprint(c, 1, &a, &allocations));
    TN_RETURN_IF(fingerprint(c, 1, &b, &allocations));
    TN_RETURN_IF(fingerprint(c, 2, &two, &allocations));
    r->verdict = a == b && a == two ? TN_PASS : TN_FAILED;
    snprintf(r->detail, sizeof r->detail, "3 steps twice: %s bits; 1 and 2 threads: %s bits",
             a == b ? "the same" : "other", a == two ? "the same" : "other");
    return TN_OK;
}

static tn_status check_allocations(const tn_check *c, tn_check_row *r)
{
    uint64_t hash, allocations = 0;
    TN_RETURN_IF(fingerprint(c, 0, &hash, &allocations));
    r->value = (double)allocations;
    r->verdict = allocations ? TN_FAILED : TN_PASS;
    snprintf(r->detail, sizeof r->detail, "%llu in the third step", (unsigned long long)allocations);
    return TN_OK;
}

/* --- memory and speed ----------------------------------------------------------------------------------------------------------- */

/* Bytes of the GPU's memory that are taken, by whomever; 0: there is none. */
static size_t gpu_bytes(void)
{
    size_t left, all;
    const tn_backend *gpu = tn_backend_get(TN_CUDA);
    return gpu && gpu->memory(&left, &all) == TN_OK ? all - left : 0;
}

/* What the process took against the plan. Of a GPU only what all processes have is known: where it is not back afterwards, others
 * came or went, and there is nothing to say. */
static void compare_memory(double took, double left, const tn_memory_plan *m, bool gpu, tn_check_row *r)
{
    const size_t at = strlen(r->detail);
    const double off = took - (double)m->total;
    const double slack =
        0.05 * (double)m->total + (gpu ? 2e8 : 4e6); /* stacks, tables, the C library; cuBLASLt's workspace, code */
    if (fabs(left) > slack) {
        snprintf(r->detail + at, sizeof r->detail - at, "; not measured: other processes use the GPU");
        return;
    }
    snprintf(r->detail + at, sizeof r->detail - at, "; measured %.1f MB (%+.1f %%)", took / 1e6,
             100 * off / (double)m->total);
    if (off > slack || off < -slack - (double)m->workspace)
        r->verdict = TN_FAILED; /* idle threads touch no scratch memory */
}

/* The plan against what the process really took: a step runs, and the peak of its memory is compared. On a GPU the plan is
 * of its memory; the libraries' own scratch memory there comes on top. */
static tn_status check_memory(const tn_check *c, tn_check_row *r)
{
    tn_status s = TN_OK;
    tn_trainer *t = NULL;
    float loss;
    tn_update_result a;
    const double idle = tn_memory_peak_begin();
    const size_t idle_gpu = gpu_bytes();
    TN_TRY(tn__check_open(c, (tn_trainer_options){ 0 }, &t));
    const tn_memory_plan m = tn_trainer_memory(t);
    r->value = (double)m.total;
    r->unit = "bytes";
    (void)tn_memory_plan_text(&m, r->detail, sizeof r->detail);
    if (isnan(idle)) goto done;
    TN_TRY(tn_trainer_grad(t, 0, &loss));
    TN_TRY(tn_trainer_apply(t, 0, 1, loss, &a));
    const bool gpu = tn_trainer_device(t) != TN_CPU;
    const double took = gpu ? (double)gpu_bytes() - (double)idle_gpu : tn_memory_peak() - idle;
    tn_trainer_free(t);
    t = NULL;
    compare_memory(took, gpu ? (double)gpu_bytes() - (double)idle_gpu : 0, &m, gpu, r);
done:
    tn_trainer_free(t);
    return s;
}

static tn_status check_parameters(const tn_check *c, tn_check_row *r)
{
    tn_trainer *t = NULL;
    TN_RETURN_IF(tn__check_open(c, (tn_trainer_options){ .batch = 1, .length = 1, .forward_only = true }, &t));
    r->value = (double)tn_trainer_parameters(t);
    size_t tensors = 0;
    for (size_t i = 0; i < tn_store_count(tn_trainer_store(t)); i++)
        tensors += tn_store_at(tn_trainer_store(t), i)->role == TN_ROLE_PARAM;
    snprintf(r->detail, sizeof r->detail, "%lld in %zu tensors", (long long)tn_trainer_parameters(t), tensors);
    tn_trainer_free(t);
    return TN_OK;
}

static tn_status check_speed(const tn_check *c, tn_check_row *r)
{
    tn_status s = TN_OK;
    tn_trainer *t = NULL;
    float loss;
    tn_update_result a;
    double best = HUGE_VAL;
    TN_TRY(tn__check_open(c, (tn_trainer_options){ 0 }, &t));
    const double begun = tn_clock_s();
    for (int i = 0; i < 5 && tn_clock_s() - begun < 8; i++) {
        const double start = tn_clock_s();
        TN_TRY(tn_trainer_grad(t, i, &loss));
        TN_TRY(tn_trainer_apply(t, i, 1, loss, &a));
        best = fmin(best, tn_clock_s() - start);
    }
    r->value = (double)(tn_model_reads_sequences(c->model) ? c->batch * c->length : c->batch) / best;
    r->unit = tn_model_reads_sequences(c->model) ? "tokens/s" : "samples/s";
    const double flops = tn_trainer_flops(t);
    char rate[32] = "";
    if (!isnan(flops)) snprintf(rate, sizeof rate, ", %.1f GFLOP/s", flops / best * 1e-9);
    snprintf(r->detail, sizeof r->detail, "%.0f %s%s on %d threads", r->value, r->unit, rate, tn_trainer_threads(t));
done:
    tn_trainer_free(t);
    return s;
}

/* Is `name` one of the words of a list with commas? */
static bool listed(const char *list, const char *name)
{
    const size_t n = strlen(name);
    for (const char *p = list; (p = strstr(p, name)); p += n)
        if ((p == list || p[-1] == ',') && (p[n] == 0 || p[n] == ',')) return true;
    return false;
}

tn_status tn_check_run(const tn_check *c)
{
    static const struct {
        const char *name;
        tn_status (*run)(const tn_check *c, tn_check_row *r);
    } checks[] = {
        { "parameters", check_parameters },   { "memory", check_memory },
        { "gradients", tn__check_gradients }, { "leak", check_leak },
        { "overfit", check_overfit },         { "determinism", check_determinism },
        { "allocations", check_allocations }, { "speed", check_speed },
        { "spectrum", tn__check_spectrum },
    };
    int failed = 0, done = 0;
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        if (c->only && !listed(c->only, checks[i].name)) continue;
        done++;
        tn_check_row r = { .name = checks[i].name, .value = NAN, .unit = "" };
        const double start = tn_clock_s();
        TN_RETURN_IF(checks[i].run(c, &r));
        r.seconds = tn_clock_s() - start;
        failed += r.verdict == TN_FAILED;
        c->row(c->ctx, &r);
    }
    if (failed) return tn_error(TN_DIVERGED, "%d of %d checks failed", failed, done);
    if (!done)
        return tn_error(TN_USAGE,
                        "--only=%s: unknown check; choose parameters, memory, gradients, leak, overfit, determinism, "
                        "allocations, speed or spectrum",
                        c->only);
    return TN_OK;
}
