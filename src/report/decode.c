/* Measuring decoding. All decoders of a point are open at once and rounds alternate, so that other load affects all
 * alike. */
#include "report/decode.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "report/bench/timing.h"
#include "sample/sample_decode.h"

#include <stdio.h>
#include <string.h>

enum { WARM = 3, WARM_PROMPTS = 1, MOST_TOKENS = 512 };

typedef struct runner {
    tn_decoder *decoder;
    int32_t *in, *out; /* (B) or, of prompts, (B,prompt); (B,MOST_TOKENS) */
    int64_t prompt;    /* tn_decode_point's */
    int64_t times;     /* that a round feeds a token, or a prompt */
    double ms[TN_DECODE_ROUNDS], cpu_ms[TN_DECODE_ROUNDS];
} runner;

/* Parameters of a file are loaded as soon as a graph says which there are. */
static tn_status load_side(tn_decode_side *side)
{
    if (!side->file || side->loaded) return TN_OK;
    TN_RETURN_IF(tn_saved_model_load(side->file, side->store));
    side->loaded = true;
    return TN_OK;
}

static tn_status open_runner(tn_decode_side *side, const tn_decode_point *at, runner *r)
{
    const int64_t each = at->prompt ? at->prompt : 1;
    const tn_decoder_options o = { .model = side->model,
                                   .settings = side->settings,
                                   .store = side->store,
                                   .frozen = side->file || tn_store_device(side->store) != TN_CPU,
                                   .drawn = !side->file,
                                   .weights = side->file ? side->file->matrices.type : TN_F32,
                                   .batch = at->batch,
                                   .capacity = at->prompt ? at->prompt : at->context,
                                   .threads = at->threads,
                                   .greedy = !at->prompt,
                                   .interrupted = at->interrupted };
    TN_RETURN_IF(tn_decoder_new(&o, &r->decoder));
    TN_RETURN_IF(load_side(side));
    r->prompt = at->prompt;
    r->in = tn_alloc(sizeof *r->in * (size_t)(at->batch * each));
    r->out = tn_alloc(sizeof *r->out * (size_t)at->batch * MOST_TOKENS);
    if (!r->in || !r->out) return tn_error(TN_MEMORY, "out of memory");
    for (int64_t i = 0; i < at->batch * each; i++) r->in[i] = (int32_t)(i % tn_decoder_vocab(r->decoder));
    return at->prompt ? TN_OK : tn_decoder_fill_to(r->decoder, at->context - 1, 1);
}

static void close_runner(runner *r)
{
    tn_decoder_free(r->decoder);
    tn_free(r->in);
    tn_free(r->out);
    *r = (runner){ 0 };
}

/* Forgetting the prompt before is not measured; packing weights for the last token is: a prompt needs it. */
static tn_status feed_prompts(runner *r, int64_t times, double *seconds, double *cpu_s)
{
    const float *logits;
    *seconds = *cpu_s = 0;
    for (int64_t i = 0; i < times; i++) {
        tn_decoder_clear(r->decoder);
        const double start = tn_clock_s(), cpu = tn_clock_cpu_s();
        TN_RETURN_IF(tn_decoder_feed(r->decoder, r->in, r->prompt, &logits));
        *seconds += tn_clock_s() - start;
        *cpu_s += tn_clock_cpu_s() - cpu;
    }
    return TN_OK;
}

static tn_status feed_tokens(runner *r, int64_t times, double *seconds, double *cpu_s)
{
    const double start = tn_clock_s(), cpu = tn_clock_cpu_s();
    TN_RETURN_IF(tn_decoder_greedy(r->decoder, r->in, times, r->out));
    *seconds = tn_clock_s() - start;
    *cpu_s = tn_clock_cpu_s() - cpu;
    return TN_OK;
}

static tn_status run_more(void *one, int64_t n)
{
    double seconds, cpu_s;
    runner *r = one;
    return r->prompt ? feed_prompts(r, n, &seconds, &cpu_s) : feed_tokens(r, n, &seconds, &cpu_s);
}

static tn_status run_round(runner *r, int64_t times, double *ms, double *cpu_ms)
{
    double seconds, cpu_s;
    TN_RETURN_IF(r->prompt ? feed_prompts(r, times, &seconds, &cpu_s) : feed_tokens(r, times, &seconds, &cpu_s));
    *ms = 1e3 * seconds / (double)times;
    *cpu_ms = 1e3 * cpu_s / (double)times;
    return TN_OK;
}

/* Kernels are looked up, plans made and recorded and weights packed by the first tokens, or the first prompts (a GPU
 * records a plan when it runs for the second time); then as many as fill a round's time. */
static tn_status warm_up(const tn_decode_point *at, runner *r)
{
    double ms, cpu;
    TN_RETURN_IF(run_round(r, r->prompt ? WARM_PROMPTS : WARM, &ms, &cpu));
    TN_RETURN_IF(run_round(r, 1, &ms, &cpu));
    const double fit = 1e3 * at->seconds / at->rounds / (ms > 1e-6 ? ms : 1e-6);
    r->times = fit < 1 ? 1 : fit < MOST_TOKENS ? (int64_t)fit : MOST_TOKENS;
    return TN_OK;
}

static void fill_row(const tn_decode_point *at, runner *r, tn_decode_row *row)
{
    const tn_plan *plan = tn_decoder_plan(r->decoder);
    const int64_t each = at->prompt ? at->prompt : 1;
    double unused;
    row->tokens = r->times * each;
    row->ms = tn_median(r->ms, (size_t)at->rounds, &row->spread_ms);
    row->cpu_ms = tn_median(r->cpu_ms, (size_t)at->rounds, &unused);
    row->tokens_s = 1e3 * (double)(at->batch * each) / row->ms;
    row->weight_bytes = (double)tn_plan_weight_bytes(plan);
    row->state_bytes = (double)tn_plan_memory(plan).state;
    if (at->copy_gbs > 0 && !at->prompt)
        row->of_limit = (row->weight_bytes + row->state_bytes) / at->copy_gbs * 1e-6 / row->ms;
}

/* A reason becomes a row; what else goes wrong ends the run. */
static tn_status take_reason(tn_status s, tn_decode_row *row)
{
    if (s != TN_USAGE && s != TN_MEMORY && s != TN_DIVERGED) return s;
    snprintf(row->why, sizeof row->why, "%s", tn_error_text());
    return TN_OK;
}

static void fill_rows(const tn_decode_point *at, runner *r, size_t n, tn_decode_row *rows)
{
    const tn_decode_row *first = NULL;
    for (size_t i = 0; i < n; i++) {
        if (rows[i].why[0]) continue;
        fill_row(at, &r[i], &rows[i]);
        if (!first) first = &rows[i];
        rows[i].ratio = rows[i].tokens_s / first->tokens_s;
    }
}

tn_status tn_decode_measure(tn_decode_side *sides, size_t n, const tn_decode_point *at, tn_decode_row *rows)
{
    tn_status s = TN_OK;
    runner *r = tn_alloc(sizeof *r * TN_DECODE_MOST);
    if (!r) TN_TRY(TN_MEMORY);
    if (n > TN_DECODE_MOST || at->rounds < 1 || at->rounds > TN_DECODE_ROUNDS)
        TN_FAIL(TN_USAGE, "use at most %d models, and 1 to %d rounds", TN_DECODE_MOST, TN_DECODE_ROUNDS);
    memset(rows, 0, sizeof *rows * n);
    for (size_t i = 0; i < n; i++) {
        TN_TRY(take_reason(open_runner(&sides[i], at, &r[i]), &rows[i]));
        if (!rows[i].why[0]) TN_TRY(take_reason(warm_up(at, &r[i]), &rows[i]));
        if (rows[i].why[0]) close_runner(&r[i]);
    }
    for (int k = 0; k < at->rounds; k++)
        for (size_t i = 0; i < n; i++)
            if (!rows[i].why[0]) TN_TRY(run_round(&r[i], r[i].times, &r[i].ms[k], &r[i].cpu_ms[k]));
    fill_rows(at, r, n, rows);
    for (size_t i = 0; at->more && i < n; i++)
        if (!rows[i].why[0]) TN_TRY(at->more(at->ctx, i, run_more, &r[i]));
done:
    for (size_t i = 0; r && i < n && i < TN_DECODE_MOST; i++) close_runner(&r[i]);
    tn_free(r);
    return s;
}
