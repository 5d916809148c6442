/* Decoding speed of several models: every batch with every context, a table or JSON Lines. */
#include "cli/bench/bench_print.h"

#include "backend/backend.h"
#include "cli/target.h"
#include "cli/view.h"
#include "cli/train/train_view.h"
#include "report/decode.h"
#include "train/trainer/graph_setup.h"
#include "train/source/task_setup.h"
#include "train/run/train_settings.h"

#include <string.h>

typedef struct decode_bench {
    tn_cli *c;
    tn_arena arena;                   /* names and settings */
    const char *name[TN_DECODE_MOST]; /* as typed */
    tn_settings *settings[TN_DECODE_MOST];
    tn_decode_side side[TN_DECODE_MOST];
    size_t n;
    tn_spans batch, context;
    tn_device device;
    int threads, rounds;
    double seconds;
    tn_ceilings ceilings;
} decode_bench;

/* --- what was typed ----------------------------------------------------------------------------------------------------- */

static tn_status read_flags(decode_bench *b)
{
    const char *contexts = tn_args_value(&b->c->args, "contexts"), *batches = tn_args_value(&b->c->args, "batch");
    int64_t rounds = 5;
    b->seconds = 1;
    TN_RETURN_IF(tn_args_whole(&b->c->args, "rounds", 1, TN_DECODE_ROUNDS, &rounds));
    TN_RETURN_IF(tn_args_number(&b->c->args, "seconds", 0, 3600, &b->seconds));
    b->rounds = (int)rounds;
    TN_RETURN_IF(tn_spans_read("--contexts", contexts ? contexts : "1024..131072", &b->context));
    return tn_spans_read("--batch", batches ? batches : "1,64", &b->batch);
}

/* A store of its own: two of one model may differ in their sizes. */
static tn_status open_side(decode_bench *b, const char *word)
{
    tn_target t;
    tn_graph_setup setup = { 0 };
    const size_t i = b->n;
    tn_decode_side *x = &b->side[i];
    TN_RETURN_IF(tn_target_read(&b->arena, &b->c->user, word, b->c->args.overrides, b->c->args.overrides_n, &t));
    b->name[i] = word;
    b->n++;
    TN_RETURN_IF(tn_settings_resolve_user(&b->c->user, t.target, t.overrides, t.n, &b->settings[i], &x->model));
    TN_RETURN_IF(tn_task_defaults(x->model, b->settings[i]));
    if (!tn_model_reads_sequences(x->model))
        return tn_error(TN_USAGE, "%s is trained on samples, and decode needs a model of tokens: remove it",
                        x->model->name);
    TN_RETURN_IF(tn_graph_setup_read(b->settings[i], NULL, b->threads, &setup));
    if (i > 0 && setup.device != b->device)
        return tn_error(TN_USAGE, "%.40s runs on another device than %.40s: set device= for both", word, b->name[0]);
    b->device = setup.device;
    if (i == 0) b->threads = setup.options.threads;
    x->settings = b->settings[i];
    return tn_store_new(b->device, 0, &x->store);
}

static void close_bench(decode_bench *b)
{
    for (size_t i = 0; i < b->n; i++) {
        tn_store_free(b->side[i].store);
        tn_settings_free(b->settings[i]);
    }
    tn_arena_free(&b->arena);
}

/* --- rows ---------------------------------------------------------------------------------------------------------------- */

static tn_status emit_row(decode_bench *b, size_t i, const tn_decode_point *at, const tn_decode_row *r)
{
    json_t *row = json_pack("{s:s, s:s, s:I, s:I}", "group", "decode", "name", b->name[i], "batch",
                            (json_int_t)at->batch, "context", (json_int_t)at->context);
    if (row && r->why[0]) json_object_set_new(row, "why", json_string(r->why));
    else if (row)
        json_object_update_new(row, json_pack("{s:f, s:s, s:f, s:f, s:f, s:i, s:I, s:f, s:f, s:f, s:f}", "value",
                                              r->tokens_s, "unit", "tokens/s", "ms", r->ms, "spread", r->spread_ms,
                                              "cpu_ms", r->cpu_ms, "rounds", at->rounds, "tokens",
                                              (json_int_t)r->tokens, "weight_bytes", r->weight_bytes, "state_bytes",
                                              r->state_bytes, "of_limit", r->of_limit, "ratio", r->ratio));
    return tn_cli_emit(b->c, row);
}

static tn_status print_row(decode_bench *b, size_t i, const tn_decode_point *at, const tn_decode_row *r)
{
    char weights[24], state[24];
    if (b->c->json) return emit_row(b, i, at, r);
    fprintf(b->c->out, "%5lld %8lld  %-12s ", (long long)at->batch, (long long)at->context, b->name[i]);
    if (r->why[0]) fprintf(b->c->out, "%s\n", r->why);
    else
        fprintf(b->c->out, "%11.1f %10.3f +-%-7.3f %9.3f %10s %11s %6.0f %% %7.2fx\n", r->tokens_s, r->ms, r->spread_ms,
                r->cpu_ms, tn_bytes_text(r->weight_bytes, weights), tn_bytes_text(r->state_bytes, state),
                100 * r->of_limit, r->ratio);
    fflush(b->c->out);
    return TN_OK;
}

static void print_head(const decode_bench *b)
{
    if (b->c->json) return;
    fprintf(b->c->out,
            "greedy decoding, token by token: median of %d alternating rounds, +- half the interquartile range\n"
            "weights, states and caches are random numbers; a cache holds as many positions as the context, all read "
            "by every token\n"
            "limit: weights and state or cache read once a token at %.1f GB/s (measured copy bandwidth); "
            "ratio: to %s\n\n"
            "%5s %8s  %-12s %11s %10s %9s %9s %10s %11s %8s %8s\n",
            b->rounds, b->ceilings.copy_gbs, b->name[0], "batch", "context", "model", "tokens/s", "ms/token", "",
            "cpu ms", "weights", "state", "of limit", "ratio");
}

static tn_status measure_all(decode_bench *b)
{
    tn_decode_row rows[TN_DECODE_MOST];
    for (size_t i = 0; i < b->batch.n; i++)
        for (size_t k = 0; k < b->context.n; k++) {
            const tn_decode_point at = { .batch = b->batch.at[i],
                                         .context = b->context.at[k],
                                         .rounds = b->rounds,
                                         .seconds = b->seconds,
                                         .copy_gbs = b->ceilings.copy_gbs,
                                         .threads = b->device == TN_CPU ? b->threads : 0 };
            if (tn_interrupted(NULL)) return tn_error(TN_INTERRUPTED, "interrupted");
            TN_RETURN_IF(tn_decode_measure(b->side, b->n, &at, rows));
            for (size_t m = 0; m < b->n; m++) TN_RETURN_IF(print_row(b, m, &at, &rows[m]));
        }
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
    tn_interrupt_watch();
    TN_TRY(tn_bench_ceilings(c, b->device, b->threads, &b->ceilings));
    print_head(b);
    TN_TRY(measure_all(b));
done:
    close_bench(b);
    tn_free(b);
    return s;
}
