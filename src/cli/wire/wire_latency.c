/* tenon wire eval --latency: how long answers take from the text and from the message, at several batch sizes. */
#include "cli/wire/wire_eval.h"
#include "report/wire/latency.h"

#include <stdio.h>

enum { TOKENS = 16, REPEATS = 5 };
static const char *const batches[] = { "1", "16", "64" };

static tn_status watch(void *ctx)
{
    (void)ctx;
    return tn_interrupted(NULL) ? tn_error(TN_INTERRUPTED, "interrupted") : TN_OK;
}

static tn_status emit(const tn_wire_evaluation *e, const tn_wire_latency *l, const char *name, int k,
                      const char *method, double value, const char *unit)
{
    json_t *row = json_pack("{s:s, s:I, s:I, s:o, s:s}", "name", name, "batch", (json_int_t)l->batch, "tokens",
                            (json_int_t)l->tokens, "value", tn_number_or_null(value), "unit", unit);
    const char x[2] = { k < 0 ? 0 : l->reader[k], 0 };
    if (row && method) json_object_set_new(row, "method", json_string(method));
    if (row && k >= 0) json_object_set_new(row, "reader", json_string(x));
    return tn_cli_emit(e->c, row);
}

/* encode_ms: of what the method needs before it can be read. */
static tn_status emit_path(const tn_wire_evaluation *e, const tn_wire_latency *l, int k, const char *method,
                           const tn_wire_path_times *t, double encode_ms)
{
    TN_RETURN_IF(emit(e, l, "prefill_ms", k, method, t->prefill_ms, "ms"));
    TN_RETURN_IF(emit(e, l, "decode_ms", k, method, t->decode_ms, "ms"));
    TN_RETURN_IF(emit(e, l, "answer_ms", k, method, encode_ms + t->prefill_ms + t->decode_ms, "ms"));
    return emit(e, l, "positions", k, method, t->positions, "positions");
}

static tn_status show(const tn_wire_evaluation *e, const tn_wire_latency *l, bool first)
{
    FILE *out = e->c->out;
    if (e->c->json) {
        TN_RETURN_IF(emit(e, l, "encode_ms", -1, NULL, l->encode_ms, "ms"));
        for (int k = 0; k < l->readers; k++) {
            TN_RETURN_IF(emit_path(e, l, k, "text", &l->text[k], 0));
            TN_RETURN_IF(emit_path(e, l, k, "latent", &l->message[k], l->encode_ms));
        }
        return TN_OK;
    }
    if (first) {
        fprintf(out, "%s, %s: ms of a whole batch, medians of %lld, answers of %lld tokens\n", e->target, e->split,
                (long long)l->repeats, (long long)l->tokens);
        fprintf(out, "%-5s  %-6s  %-6s  %9s  %8s  %8s  %8s  %8s\n", "batch", "reader", "method", "positions", "encode",
                "prefill", "decode", "all");
    }
    for (int k = 0; k < l->readers; k++)
        for (int text = 1; text >= 0; text--) {
            const tn_wire_path_times *t = text ? &l->text[k] : &l->message[k];
            const double sent = text ? 0 : l->encode_ms;
            fprintf(out, "%-5lld  %-6c  %-6s  %9.1f  %8.3g  %8.3g  %8.3g  %8.3g\n", (long long)l->batch, l->reader[k],
                    text ? "text" : "latent", t->positions, sent, t->prefill_ms, t->decode_ms,
                    sent + t->prefill_ms + t->decode_ms);
        }
    return TN_OK;
}

tn_status tn_wire_eval_latency(tn_wire_evaluation *e, tn_saved_model *m, const tn_settings *keys)
{
    const int64_t tokens = tn_settings_is_auto(keys, "max_tokens") ? TOKENS : tn_settings_int(keys, "max_tokens");
    tn_interrupt_watch();
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        tn_wire_latency l;
        TN_RETURN_IF(tn_settings_set(m->settings, "train.batch", batches[i], "--latency"));
        TN_RETURN_IF(tn_wire_eval_open(e, m, keys)); /* caches have the size of the batch: a session for each */
        tn_trainer_steady(e->s.trainer, true);
        TN_RETURN_IF(tn_wire_latency_measure(&e->s, tokens, REPEATS, watch, NULL, &l));
        TN_RETURN_IF(show(e, &l, i == 0));
        tn_session_close(&e->s);
        e->s = (tn_session){ 0 };
    }
    return TN_OK;
}
