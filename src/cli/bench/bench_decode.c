/* Decoding speed of several models: every batch with every context, then with every length of prompt; tables or JSON Lines. */
#include "cli/bench/bench_parts.h"
#include "cli/bench/bench_print.h"

#include "backend/backend.h"
#include "cli/view.h"
#include "cli/train/train_view.h"
#include "report/decode.h"
#include "train/trainer/graph_setup.h"
#include "train/run/saved_model.h"

#include <string.h>

typedef struct decode_bench {
    tn_cli *c;
    tn_arena arena;                   /* names and settings */
    const char *name[TN_DECODE_MOST]; /* as typed; in tables without the folders of a file, where that is enough */
    tn_saved_model model[TN_DECODE_MOST];
    tn_decode_side side[TN_DECODE_MOST];
    size_t n;
    tn_spans batch, context, prompt; /* prompt.n = 0: no prefill */
    tn_device device;
    int threads, rounds;
    double seconds;
    tn_ceilings ceilings;
} decode_bench;

/* --- what was typed ----------------------------------------------------------------------------------------------------- */

static tn_status read_flags(decode_bench *b)
{
    const char *contexts = tn_args_value(&b->c->args, "contexts"), *batches = tn_args_value(&b->c->args, "batch");
    const char *prompts = tn_args_value(&b->c->args, "prefill");
    int64_t rounds = 5;
    b->seconds = 1;
    TN_RETURN_IF(tn_args_whole(&b->c->args, "rounds", 1, TN_DECODE_ROUNDS, &rounds));
    TN_RETURN_IF(tn_args_number(&b->c->args, "seconds", 0, 3600, &b->seconds));
    b->rounds = (int)rounds;
    if (prompts) TN_RETURN_IF(tn_spans_read("--prefill", prompts, &b->prompt));
    TN_RETURN_IF(tn_spans_read("--contexts", contexts ? contexts : "1024..131072", &b->context));
    return tn_spans_read("--batch", batches ? batches : "1,64", &b->batch);
}

static tn_status find_side(decode_bench *b, const char *word, tn_saved_model *m)
{
    TN_RETURN_IF(tn_bench_find(b->c, &b->arena, word, m));
    if (tn_model_reads_sequences(m->model)) return TN_OK;
    return tn_error(TN_USAGE, "%s is trained on samples, and decode needs a model of tokens: remove it",
                    m->model->name);
}

/* A store of its own: two of one model may differ in their sizes. */
static tn_status open_side(decode_bench *b, const char *word)
{
    tn_graph_setup setup = { 0 };
    const size_t i = b->n++;
    tn_saved_model *m = &b->model[i];
    b->name[i] = word;
    TN_RETURN_IF(find_side(b, word, m));
    TN_RETURN_IF(tn_graph_setup_read(m->settings, NULL, b->threads, &setup));
    if (i > 0 && setup.device != b->device)
        return tn_error(TN_USAGE, "%.40s runs on another device than %.40s: set device= for both", word, b->name[0]);
    b->device = setup.device;
    if (i == 0) b->threads = setup.options.threads;
    b->side[i] = (tn_decode_side){ .model = m->model, .settings = m->settings, .file = m->weights[0] ? m : NULL };
    return tn_store_new(b->device, 0, &b->side[i].store);
}

static void close_bench(decode_bench *b)
{
    for (size_t i = 0; i < b->n; i++) {
        tn_store_free(b->side[i].store);
        tn_saved_model_free(&b->model[i]);
    }
    tn_arena_free(&b->arena);
}

/* --- rows ---------------------------------------------------------------------------------------------------------------- */

static tn_status emit_row(decode_bench *b, size_t i, const tn_decode_point *at, const tn_decode_row *r)
{
    json_t *row = json_pack("{s:s, s:s, s:I, s:I}", "group", at->prompt ? "prefill" : "decode", "name", b->name[i],
                            "batch", (json_int_t)at->batch, at->prompt ? "prompt" : "context",
                            (json_int_t)(at->prompt ? at->prompt : at->context));
    if (row && r->why[0]) json_object_set_new(row, "why", json_string(r->why));
    else if (row) {
        json_object_update_new(row, json_pack("{s:f, s:s, s:f, s:f, s:f, s:i, s:I, s:f, s:f}", "value", r->tokens_s,
                                              "unit", "tokens/s", "ms", r->ms, "spread", r->spread_ms, "cpu_ms",
                                              r->cpu_ms, "rounds", at->rounds, "tokens", (json_int_t)r->tokens,
                                              "weight_bytes", r->weight_bytes, "state_bytes", r->state_bytes));
        if (!at->prompt) json_object_set_new(row, "of_limit", json_real(r->of_limit));
        json_object_set_new(row, "ratio", json_real(r->ratio));
    }
    return tn_cli_emit(b->c, row);
}

/* The last part of a path, unless another side has the same. */
static const char *short_name(const decode_bench *b, size_t i)
{
    const char *slash = b->side[i].file ? strrchr(b->name[i], '/') : NULL;
    if (!slash || !slash[1]) return b->name[i];
    for (size_t k = 0; k < b->n; k++) {
        const char *other = strrchr(b->name[k], '/');
        if (k != i && strcmp(other ? other + 1 : b->name[k], slash + 1) == 0) return b->name[i];
    }
    return slash + 1;
}

static int name_width(const decode_bench *b)
{
    int most = 12;
    for (size_t i = 0; i < b->n; i++) {
        const int n = (int)strlen(short_name(b, i));
        most = n > most ? n : most;
    }
    return most;
}

static tn_status print_row(decode_bench *b, size_t i, const tn_decode_point *at, const tn_decode_row *r)
{
    char weights[24], state[24], limit[16] = "";
    if (b->c->json) return emit_row(b, i, at, r);
    fprintf(b->c->out, "%5lld %8lld  %-*s ", (long long)at->batch, (long long)(at->prompt ? at->prompt : at->context),
            name_width(b), short_name(b, i));
    if (!at->prompt) snprintf(limit, sizeof limit, "%6.0f %% ", 100 * r->of_limit);
    if (r->why[0]) fprintf(b->c->out, "%s\n", r->why);
    else
        fprintf(b->c->out, "%11.1f %10.3f +-%-7.3f %9.3f %10s %11s %s%7.2fx\n", r->tokens_s, r->ms, r->spread_ms,
                r->cpu_ms, tn_bytes_text(r->weight_bytes, weights), tn_bytes_text(r->state_bytes, state), limit,
                r->ratio);
    fflush(b->c->out);
    return TN_OK;
}

static void print_columns(const decode_bench *b, const char *size, const char *time, const char *limit)
{
    fprintf(b->c->out, "%5s %8s  %-*s %11s %10s %9s %9s %10s %11s %s%8s\n", "batch", size, name_width(b), "model",
            "tokens/s", time, "", "cpu ms", "weights", "state", limit, "ratio");
}

/* Which numbers are random. */
static const char *random_ones(const decode_bench *b)
{
    size_t files = 0;
    for (size_t i = 0; i < b->n; i++) files += b->side[i].file != NULL;
    if (files == 0) return "weights, states and caches are random numbers";
    return files == b->n ? "states and caches are random numbers, weights are those of the files"
                         : "states and caches are random numbers, and so are weights that no file has";
}

static void print_head(const decode_bench *b)
{
    if (b->c->json) return;
    fprintf(b->c->out,
            "greedy decoding, token by token: median of %d alternating rounds, +- half the interquartile range\n"
            "%s; a cache holds as many positions as the context, all read by every token\n"
            "limit: weights and state or cache read once a token at %.1f GB/s (measured copy bandwidth); "
            "ratio: to %s\n\n",
            b->rounds, random_ones(b), b->ceilings.copy_gbs, short_name(b, 0));
    print_columns(b, "context", "ms/token", "of limit ");
}

static void print_prefill_head(const decode_bench *b)
{
    if (b->c->json) return;
    fprintf(b->c->out, "\nprefill: a prompt from the first token to the logits behind the last\n\n");
    print_columns(b, "prompt", "ms", "");
}

/* Rows are printed when all of a point are measured, traces right after their rounds. */
static tn_status trace_side(void *ctx, size_t side, tn_bench_run *run, void *one)
{
    const decode_bench *b = ctx;
    return tn_bench_trace(b->c, short_name(b, side), b->device, NULL, run, one);
}

static tn_status measure_point(decode_bench *b, int64_t batch, int64_t context, int64_t prompt)
{
    tn_decode_row rows[TN_DECODE_MOST];
    const tn_decode_point at = { .batch = batch,
                                 .context = context,
                                 .prompt = prompt,
                                 .rounds = b->rounds,
                                 .seconds = b->seconds,
                                 .copy_gbs = b->ceilings.copy_gbs,
                                 .threads = b->device == TN_CPU ? b->threads : 0,
                                 .interrupted = tn_interrupted,
                                 .more = trace_side,
                                 .ctx = b };
    if (tn_interrupted(NULL)) return tn_error(TN_INTERRUPTED, "interrupted");
    TN_RETURN_IF(tn_decode_measure(b->side, b->n, &at, rows));
    for (size_t m = 0; m < b->n; m++) TN_RETURN_IF(print_row(b, m, &at, &rows[m]));
    return TN_OK;
}

static tn_status measure_all(decode_bench *b)
{
    print_head(b);
    for (size_t i = 0; i < b->batch.n; i++)
        for (size_t k = 0; k < b->context.n; k++) TN_RETURN_IF(measure_point(b, b->batch.at[i], b->context.at[k], 0));
    if (b->prompt.n) print_prefill_head(b);
    for (size_t i = 0; i < b->batch.n; i++)
        for (size_t k = 0; k < b->prompt.n; k++) TN_RETURN_IF(measure_point(b, b->batch.at[i], 0, b->prompt.at[k]));
    return TN_OK;
}

tn_status tn_bench_decode(tn_cli *c)
{
    tn_status s = TN_OK;
    decode_bench *b = tn_alloc(sizeof *b);
    if (!b) return TN_MEMORY;
    *b = (decode_bench){ .c = c };
    TN_TRY(tn_bench_threads(c, &b->threads));
    TN_TRY(tn_args_expect(&c->args, 2, 1 + TN_DECODE_MOST));
    TN_TRY(read_flags(b));
    for (size_t i = 1; i < c->args.positional_n; i++) TN_TRY(open_side(b, tn_args_positional(&c->args, i)));
    if (b->device == TN_CPU && tn_args_flag(&c->args, "trace"))
        TN_FAIL(TN_USAGE, "--trace of decoding needs a GPU, and the model runs on the CPU: set device=cuda");
    if (tn_args_value(&c->args, "trace"))
        TN_FAIL(TN_USAGE, "bench decode measures many rows, and a file holds one: use --trace without a file");
    tn_interrupt_watch();
    TN_TRY(tn_bench_ceilings(c, b->device, b->threads, b->seconds, &b->ceilings));
    TN_TRY(measure_all(b));
done:
    close_bench(b);
    tn_free(b);
    return s;
}
