/* tenon wire eval: what readers answer given the message, less than the message, and the text itself, with what it costs. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/table_file.h"
#include "cli/term.h"
#include "cli/view.h"
#include "cli/wire/wire_cli.h"
#include "report/answers.h"
#include "report/chart/chart.h"
#include "report/wire/controls.h"
#include "report/wire/texts.h"

#include <math.h>
#include <string.h>

enum { DRAWS = 2000 };

static const tn_setting rows[] = {
    TN_SETTING_CHOICE("split", "valid", "valid|test|train", "held-out texts, or those of the training"),
};

typedef struct evaluation {
    tn_cli *c;
    const char *target, *split;
    tn_session s;
    tn_wire_controls found;
    tn_wire_sizes sizes;
    tn_progress line;
    int64_t batches, asked; /* asked: how often whether to stop, which is before every batch */
} evaluation;

/* Latent minus best budget over the contexts that have questions. */
typedef struct difference {
    tn_wire_method budget;
    tn_paired latent; /* NaN where no context has a question */
    double shuffled;  /* minus mean */
} difference;

/* --- running ------------------------------------------------------------------------------------------------------------ */

static tn_status watch(void *ctx)
{
    evaluation *e = ctx;
    if (tn_interrupted(NULL)) return tn_error(TN_INTERRUPTED, "interrupted");
    const bool encodes = e->asked <= e->batches;
    const int64_t at = encodes ? e->asked : e->asked - e->batches - 1;
    tn_progress_line(&e->line, tn_clock_s(), "%s  batch %lld of %lld", encodes ? "encoding" : "reading",
                     (long long)(at < e->batches ? at + 1 : at), (long long)e->batches);
    e->asked++;
    return TN_OK;
}

static tn_status open_session(evaluation *e, tn_saved_model *m, const tn_settings *keys)
{
    static const tn_data_split splits[] = { TN_VALID, TN_TEST, TN_TRAIN };
    const tn_data_split split = splits[tn_settings_choice(keys, "split")];
    const tn_session_options o = { .user = &e->c->user,
                                   .settings = m->settings,
                                   .model = m->model,
                                   .needs_data = true,
                                   .evaluates = true,
                                   .frozen = true,
                                   .split = split,
                                   .trained = split == TN_TRAIN,
                                   .matrices = tn_is_weights_file(e->target) ? m->matrices.type : TN_F32,
                                   .steps = tn_wire_control_steps,
                                   .weights = m->weights };
    char shown[512];
    if (!tn_settings_text(m->settings, "task.name")[0])
        return tn_error(TN_USAGE, "%.640s has no task: name one whose texts are evaluated, as task=recall", e->target);
    TN_RETURN_IF(tn_session_open_with(&o, &e->s));
    const int64_t count = tn_session_count(&e->s, split);
    if (!count)
        return tn_error(TN_USAGE, "the task %s has no %s split: set task.heldout, or task.%s_frac",
                        tn_settings_text(e->s.settings, "task.name"), e->split, e->split);
    e->batches = (count + e->s.batch - 1) / e->s.batch;
    TN_RETURN_IF(tn_saved_model_load(m, tn_trainer_store(e->s.trainer)));
    tn_session_describe(&e->s, e->c->err);
    fprintf(e->c->err, "weights %s\n", tn_text_quote(m->weights, shown, sizeof shown));
    return TN_OK;
}

static tn_status measure(evaluation *e)
{
    const uint64_t seed = (uint64_t)tn_settings_int(e->s.settings, "seed");
    tn_interrupt_watch();
    tn_progress_start(&e->line, e->c->err);
    e->line.last_s = tn_clock_s(); /* a quick job draws nothing */
    e->line.drawn = !e->line.term.tty;
    tn_trainer_steady(e->s.trainer, true);
    const tn_status s = tn_wire_controls_run(&e->s, seed, watch, e, &e->found);
    e->line.pending = e->line.pending && e->line.term.tty;
    tn_progress_end(&e->line);
    TN_RETURN_IF(s);
    return tn_wire_sizes_measure(&e->s, &e->sizes);
}

static tn_status compare(const evaluation *e, int k, difference *out)
{
    tn_status s = TN_OK;
    const tn_wire_controls *f = &e->found;
    difference d = { .budget = tn_wire_best_budget(f, k), .latent = { NAN, NAN, NAN } };
    double *a = tn_alloc(2 * sizeof *a * (size_t)f->contexts), *b = a ? a + f->contexts : NULL;
    int64_t n = 0;
    if (!a) return TN_MEMORY;
    for (int64_t i = 0; i < f->contexts; i++) {
        if (isnan(f->score[TN_WIRE_LATENT][k].em[i])) continue;
        a[n] = f->score[TN_WIRE_LATENT][k].em[i];
        b[n++] = f->score[d.budget][k].em[i];
    }
    if (n) TN_TRY(tn_paired_bootstrap(a, b, n, DRAWS, (uint64_t)tn_settings_int(e->s.settings, "seed"), &d.latent));
    d.shuffled = tn_wire_em(&f->score[TN_WIRE_SHUFFLED][k]) - tn_wire_em(&f->score[TN_WIRE_MEAN][k]);
    *out = d;
done:
    tn_free(a);
    return s;
}

/* --- words ---------------------------------------------------------------------------------------------------------------- */

static double first_of(const tn_wire_score *x) { return x->questions ? x->first / (double)x->questions : NAN; }
static double nats_of(const tn_wire_score *x) { return x->tokens ? x->nll / (double)x->tokens : NAN; }

static void print_table(const evaluation *e)
{
    const tn_wire_controls *f = &e->found;
    FILE *out = e->c->out;
    fprintf(out, "%s, %s, %lld texts, %lld questions\n", e->target, e->split, (long long)f->contexts,
            (long long)f->score[TN_WIRE_LATENT][0].questions);
    fprintf(out, "%-9s", "");
    for (int k = 0; k < f->readers; k++) fprintf(out, "  reader %c%*s", f->reader[k], k + 1 < f->readers ? 14 : 0, "");
    fprintf(out, "\n%-9s", "method");
    for (int k = 0; k < f->readers; k++) fprintf(out, "  %-6s  %-6s  %-6s", "EM", "first", "nats");
    fprintf(out, "  bytes\n");
    for (int m = 0; m < TN_WIRE_METHODS; m++) {
        fprintf(out, "%-9s", tn_wire_method_names[m]);
        for (int k = 0; k < f->readers; k++) {
            const tn_wire_score *x = &f->score[m][k];
            fprintf(out, "  %6.4f  %6.4f  %6.4f", tn_wire_em(x), first_of(x), nats_of(x));
        }
        if (f->bytes[m]) fprintf(out, "  %zu", f->bytes[m]);
        fprintf(out, "\n");
    }
}

static void print_reader(const evaluation *e, int k, const difference *d)
{
    const tn_wire_controls *f = &e->found;
    fprintf(e->c->out,
            "reader %c  best budget %s; latent - %s %+.4f, 95 %% %+.4f to %+.4f; shuffled - mean %+.4f; int4 - fp16 "
            "%+.4f\n",
            f->reader[k], tn_wire_method_names[d->budget], tn_wire_method_names[d->budget], d->latent.difference,
            d->latent.low, d->latent.high, d->shuffled,
            tn_wire_em(&f->score[TN_WIRE_INT4][k]) - tn_wire_em(&f->score[TN_WIRE_FP16][k]));
}

static void print_costs(const evaluation *e)
{
    const tn_wire_controls *f = &e->found;
    const double n = (double)f->contexts, encode = 1e3 * f->encode_seconds / n,
                 message = 1e3 * f->seconds[TN_WIRE_LATENT] / n, text = 1e3 * f->seconds[TN_WIRE_TEXT] / n;
    if (e->sizes.contexts)
        fprintf(e->c->out,
                "size      a text has %.1f bytes, with zstd -19 %.1f; its message in int4 %zu (%lld x %lld)\n",
                e->sizes.bytes, e->sizes.packed, f->bytes[TN_WIRE_INT4], (long long)f->slots, (long long)f->width);
    fprintf(e->c->out,
            "time      of a text: encoding %.3g ms, reading its message %.3g ms, reading itself %.3g ms (%.2fx), all "
            "readers with their questions\n",
            encode, message, text, text / message);
    fprintf(e->c->out, "messages  mean cosine of two %.4f\n", f->cosine);
}

/* --- JSON ------------------------------------------------------------------------------------------------------------------ */

static tn_status emit_of(const evaluation *e, const char *name, int method, int k, double value, const char *unit)
{
    json_t *row = json_pack("{s:s, s:s, s:o, s:s}", "name", name, "split", e->split, "value", tn_number_or_null(value),
                            "unit", unit);
    const char x[2] = { k < 0 ? 0 : e->found.reader[k], 0 };
    if (row && method >= 0) json_object_set_new(row, "method", json_string(tn_wire_method_names[method]));
    if (row && k >= 0) json_object_set_new(row, "reader", json_string(x));
    return tn_cli_emit(e->c, row);
}

static tn_status emit_scores(const evaluation *e)
{
    for (int m = 0; m < TN_WIRE_METHODS; m++) {
        for (int k = 0; k < e->found.readers; k++) {
            const tn_wire_score *x = &e->found.score[m][k];
            TN_RETURN_IF(emit_of(e, "em", m, k, tn_wire_em(x), ""));
            TN_RETURN_IF(emit_of(e, "first", m, k, first_of(x), ""));
            TN_RETURN_IF(emit_of(e, "nats", m, k, nats_of(x), "nats/token"));
        }
        if (e->found.bytes[m]) TN_RETURN_IF(emit_of(e, "message_bytes", m, -1, (double)e->found.bytes[m], "bytes"));
    }
    return TN_OK;
}

static tn_status emit_reader(const evaluation *e, int k, const difference *d)
{
    TN_RETURN_IF(emit_of(e, "best_budget", (int)d->budget, k, tn_wire_em(&e->found.score[d->budget][k]), ""));
    TN_RETURN_IF(emit_of(e, "latent_minus_budget", (int)d->budget, k, d->latent.difference, ""));
    TN_RETURN_IF(emit_of(e, "latent_minus_budget_low", (int)d->budget, k, d->latent.low, ""));
    TN_RETURN_IF(emit_of(e, "latent_minus_budget_high", (int)d->budget, k, d->latent.high, ""));
    return emit_of(e, "shuffled_minus_mean", -1, k, d->shuffled, "");
}

static tn_status emit_costs(const evaluation *e)
{
    const tn_wire_controls *f = &e->found;
    const double n = (double)f->contexts;
    const struct {
        const char *name;
        double value;
        const char *unit;
    } all[] = {
        { "texts", n, "texts" },
        { "questions", (double)f->score[TN_WIRE_LATENT][0].questions, "questions" },
        { "text_bytes", e->sizes.contexts ? e->sizes.bytes : NAN, "bytes" },
        { "text_zstd19_bytes", e->sizes.contexts ? e->sizes.packed : NAN, "bytes" },
        { "encode_ms", 1e3 * f->encode_seconds / n, "ms" },
        { "read_message_ms", 1e3 * f->seconds[TN_WIRE_LATENT] / n, "ms" },
        { "read_text_ms", 1e3 * f->seconds[TN_WIRE_TEXT] / n, "ms" },
        { "text_over_message", f->seconds[TN_WIRE_TEXT] / f->seconds[TN_WIRE_LATENT], "x" },
        { "cosine", f->cosine, "" },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        TN_RETURN_IF(emit_of(e, all[i].name, -1, -1, all[i].value, all[i].unit));
    return TN_OK;
}

static tn_status draw(const evaluation *e, const char *path)
{
    FILE *f;
    double value[TN_WIRE_METHODS * TN_CONTROL_READERS];
    char group[TN_CONTROL_READERS][16];
    const char *groups[TN_CONTROL_READERS];
    for (int k = 0; k < e->found.readers; k++) {
        snprintf(group[k], sizeof group[k], "reader %c", e->found.reader[k]);
        groups[k] = group[k];
        for (int m = 0; m < TN_WIRE_METHODS; m++) value[m * e->found.readers + k] = tn_wire_em(&e->found.score[m][k]);
    }
    const tn_bars c = { .title = "exact answers by what the reader is given",
                        .x_label = "EM",
                        .names = tn_wire_method_names,
                        .groups = groups,
                        .n = TN_WIRE_METHODS,
                        .n_groups = (size_t)e->found.readers,
                        .value = value };
    TN_RETURN_IF(tn_table_open(path, &f));
    return tn_table_close(path, f, tn_chart_bars(&c, f));
}

static tn_status show(const evaluation *e)
{
    difference d;
    const char *svg = tn_args_value(&e->c->args, "svg");
    if (e->c->json) TN_RETURN_IF(emit_scores(e));
    else print_table(e);
    for (int k = 0; k < e->found.readers; k++) {
        TN_RETURN_IF(compare(e, k, &d));
        if (e->c->json) TN_RETURN_IF(emit_reader(e, k, &d));
        else print_reader(e, k, &d);
    }
    if (e->c->json) TN_RETURN_IF(emit_costs(e));
    else print_costs(e);
    return svg ? draw(e, svg) : TN_OK;
}

tn_status tn_cmd_wire_eval(tn_cli *c)
{
    tn_status s = TN_OK;
    tn_settings *keys = NULL;
    tn_saved_model m = { .weights = "" };
    evaluation e = { .c = c, .target = tn_args_positional(&c->args, 1) };
    TN_TRY(tn_args_expect(&c->args, 2, 2));
    TN_TRY(tn_wire_keys(rows, sizeof rows / sizeof *rows, &keys));
    TN_TRY(tn_wire_find(c, keys, &m));
    e.split = tn_settings_text(keys, "split");
    TN_TRY(open_session(&e, &m, keys));
    TN_TRY(measure(&e));
    TN_TRY(show(&e));
done:
    tn_wire_controls_free(&e.found);
    tn_session_close(&e.s);
    tn_saved_model_free(&m);
    tn_settings_free(keys);
    return s;
}
