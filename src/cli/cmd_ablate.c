/* tenon ablate: every opt.* switch off and on, and what it is worth. */
#include "cli/cli.h"
#include "report/ablate.h"
#include "train/run/parts.h"
#include "train/run/saved_model.h"
#include "train/run/session.h"
#include "train/source/task_setup.h"
#include "train/run/train_settings.h"

#include <math.h>
#include <string.h>

static const char *ms_text(double ms, char buf[24])
{
    if (ms >= 1000) snprintf(buf, 24, "%.2f s", ms / 1000);
    else snprintf(buf, 24, "%.*f ms", ms < 10 ? 2 : 1, ms);
    return buf;
}

typedef struct table {
    tn_cli *c;
    const tn_ablate *ablate;
    bool begun; /* the head is printed with the first row, so that an error stands alone */
} table;

static void print_head(const tn_cli *c, const tn_ablate *a)
{
    fprintf(c->out, "median of %d alternating runs of %lld", a->runs, (long long)a->batch);
    if (!tn_model_reads_sequences(a->model)) fprintf(c->out, " samples; +- is the spread\n");
    else fprintf(c->out, " x %lld tokens; +- is the spread\n", (long long)a->length);
    fprintf(c->out, "%-18s %-10s %-10s %-14s %-7s loss, %d steps\n", "switch", "off", "on", "gain", "memory", a->steps);
}

static void print_row(void *ctx, const tn_ablation *a)
{
    table *t = ctx;
    tn_cli *c = t->c;
    if (c->json) {
        (void)tn_cli_emit(c, json_pack("{s:s, s:f, s:s, s:f, s:f, s:f, s:I, s:I, s:f}", "name", a->name, "value",
                                       a->gain, "unit", "x", "spread", a->gain_spread, "off_ms", a->off_ms, "on_ms",
                                       a->on_ms, "off_bytes", (json_int_t)a->off_bytes, "on_bytes",
                                       (json_int_t)a->on_bytes, "loss_error", a->loss_error));
        return;
    }
    if (!t->begun) print_head(c, t->ablate);
    t->begun = true;
    char off[24], on[24], gain[32], memory[24];
    const double saved = 100 * ((double)a->on_bytes / (double)a->off_bytes - 1);
    if (fabs(a->gain - 1) <= a->gain_spread) snprintf(gain, sizeof gain, "within spread");
    else snprintf(gain, sizeof gain, "%.2fx +-%.2f", a->gain, a->gain_spread);
    if (fabs(saved) < 0.5) snprintf(memory, sizeof memory, "same");
    else snprintf(memory, sizeof memory, "%+.0f %%", saved);
    char parity[24] = "bit-identical";
    if (a->loss_error != 0) /* NaN too */
        snprintf(parity, sizeof parity, "within %.0e", a->loss_error);
    fprintf(c->out, "%-18s %-10s %-10s %-14s %-7s %s\n", a->name, ms_text(a->off_ms, off), ms_text(a->on_ms, on), gain,
            memory, parity);
    fflush(c->out);
}

tn_status tn_cmd_ablate(tn_cli *c)
{
    tn_settings *st = NULL;
    tn_source source = { 0 };
    tn_ablate a = { .runs = 9, .steps = 5, .row = print_row, .batch = 2 };
    table t = { .c = c, .ablate = &a };
    a.ctx = &t;
    TN_RETURN_IF(tn_args_expect(&c->args, 1, 1));
    TN_RETURN_IF(tn_settings_resolve_user(&c->user, tn_args_positional(&c->args, 0), c->args.overrides,
                                          c->args.overrides_n, &st, &a.model));
    tn_status s = tn_parts_resolve(st, a.model);
    if (s == TN_OK)
        s = tn_source_find(
            &(tn_source_open){ .model = a.model, .settings = st, .tokenizer = tn_saved_model_reader, .user = &c->user },
            &source);
    if (s == TN_OK) s = tn_task_defaults(a.model, st);
    a.settings = st;
    a.source = &source;
    a.length = tn_inputs_length(a.model, st);
    if (!tn_model_reads_sequences(a.model)) a.batch = TN_SESSION_SAMPLES;
    if (!tn_settings_is_auto(st, "train.batch")) a.batch = tn_settings_int(st, "train.batch");
    if (s == TN_OK) s = tn_ablate_run(&a);
    tn_source_close(&source);
    tn_settings_free(st);
    return s;
}
