/* What `tenon wire eval` has found, as tables, lines of JSON, and a picture. */
#include "cli/table_file.h"
#include "cli/view.h"
#include "cli/wire/wire_eval.h"
#include "report/chart/chart.h"

#include <math.h>
#include <stdio.h>

/* --- words ---------------------------------------------------------------------------------------------------------------- */

static double first_of(const tn_wire_score *x) { return x->questions ? x->first / (double)x->questions : NAN; }
static double nats_of(const tn_wire_score *x) { return x->tokens ? x->nll / (double)x->tokens : NAN; }

/* What the task's answers are decides the columns: words are scored as words, continuations by their bits alone. */
static void print_reader(const tn_wire_evaluation *e, int k)
{
    const tn_wire_controls *f = &e->found;
    const bool words = e->said.in_words;
    FILE *out = e->c->out;
    fprintf(out, "reader %c", f->reader[k]);
    if (words) fprintf(out, ", answers of at most %lld tokens", (long long)e->said.max_tokens[k]);
    fprintf(out, "\n%-9s", "method");
    if (words) fprintf(out, "  %-6s  %-6s", "EM", "F1");
    fprintf(out, "  %-6s  %-6s  %-7s  %-9s  bytes\n", "exact", "first", "nats", "bits/byte");
    for (int m = 0; m < TN_WIRE_METHODS; m++) {
        const tn_wire_score *x = &f->score[m][k];
        const tn_wire_decoded_score *d = &e->said.score[m][k];
        fprintf(out, "%-9s", tn_wire_method_names[m]);
        if (words && d->em)
            fprintf(out, "  %6.4f  %6.4f", tn_wire_mean(d->em_sum, e->said.questions),
                    tn_wire_mean(d->f1_sum, e->said.questions));
        else if (words) fprintf(out, "  %6s  %6s", "-", "-");
        fprintf(out, "  %6.4f  %6.4f  %7.4f  %9.4f", tn_wire_em(x), first_of(x), nats_of(x),
                tn_wire_bits_per_byte(&e->said, x));
        if (f->bytes[m]) fprintf(out, "  %zu", f->bytes[m]);
        fprintf(out, "\n");
    }
}

/* It has words alone. */
static void print_relay(const tn_wire_evaluation *e, int k)
{
    const tn_wire_decoded *d = &e->said;
    if (!d->in_words) return;
    fprintf(e->c->out, "%-9s  %6.4f  %6.4f  reader %c says %.1f tokens of a text\n", "relay",
            tn_wire_mean(d->relay[k].em_sum, d->questions), tn_wire_mean(d->relay[k].f1_sum, d->questions),
            e->found.reader[0], tn_wire_mean(d->relay_tokens, e->found.contexts));
}

static void print_difference(const tn_wire_evaluation *e, const char *what, tn_wire_method other, const tn_paired *d)
{
    fprintf(e->c->out, "%-9s  latent - %s %+.4f, 95 %% %+.4f to %+.4f\n", what, tn_wire_method_names[other],
            d->difference, d->low, d->high);
}

/* Of continuations nobody says all tokens: bits decide. */
static const char *verdict_of_gain(const tn_wire_controls *f, int k)
{
    const double latent = tn_wire_recovered(f, TN_WIRE_LATENT, k, false),
                 last = tn_wire_recovered(f, TN_WIRE_LAST, k, false);
    if (isnan(latent) || nats_of(&f->score[TN_WIRE_TEXT][k]) >= nats_of(&f->score[TN_WIRE_NONE][k]))
        return "the reader continues no better with the text than without: messages cannot be judged";
    if (nats_of(&f->score[TN_WIRE_LATENT][k]) >= nats_of(&f->score[TN_WIRE_SHUFFLED][k]))
        return "another text's message does as well: it tells the reader nothing of its text";
    return latent > last ? "the message recovers more of the text's gain than as many last tokens of it"
                         : "the message tells of its text, but less than as many last tokens of it";
}

/* What exact answers say in words. A budget that a reader cannot use is beaten by anything: whether the message counts is whether another
 * text's would do as well. */
static const char *verdict(const tn_wire_evaluation *e, int k, const tn_paired *budget, const tn_paired *shuffled)
{
    const tn_wire_score *text = &e->found.score[TN_WIRE_TEXT][k], *none = &e->found.score[TN_WIRE_NONE][k];
    if (isnan(budget->difference)) return "no questions";
    if (tn_wire_em(text) <= tn_wire_em(none))
        return "the reader answers no better with the text than without: it does not know the task, and messages "
               "cannot be "
               "judged";
    if (!(shuffled->low > 0)) return "another text's message does as well: it tells the reader nothing of its text";
    if (budget->low > 0) return "the message is worth more than as many tokens of the text";
    if (budget->high < 0) return "the message tells of its text, but less than as many tokens of it";
    return "the message tells of its text, and about as much as as many tokens of it";
}

static double shuffled_minus_mean(const tn_wire_controls *f, int k)
{
    return tn_wire_em(&f->score[TN_WIRE_SHUFFLED][k]) - tn_wire_em(&f->score[TN_WIRE_MEAN][k]);
}

static tn_status print_differences(const tn_wire_evaluation *e, int k)
{
    static const char *const names[] = { "exact", "EM", "F1" };
    const tn_wire_controls *f = &e->found;
    tn_wire_difference d;
    tn_paired shuffled;
    const char *says = "";
    for (int by = 0; by < (e->said.in_words ? 3 : 1); by++) {
        TN_RETURN_IF(tn_wire_eval_compare(e, k, (tn_wire_by)by, &d));
        print_difference(e, names[by], d.budget, &d.latent);
        if (by == TN_WIRE_BY_TOKENS) {
            TN_RETURN_IF(tn_wire_eval_against(e, k, TN_WIRE_BY_TOKENS, TN_WIRE_SHUFFLED, &shuffled));
            print_difference(e, names[by], TN_WIRE_SHUFFLED, &shuffled);
            says = verdict(e, k, &d.latent, &shuffled);
        }
    }
    fprintf(e->c->out, "exact      shuffled - mean %+.4f; int4 - fp16 %+.4f\n", shuffled_minus_mean(f, k),
            tn_wire_em(&f->score[TN_WIRE_INT4][k]) - tn_wire_em(&f->score[TN_WIRE_FP16][k]));
    fprintf(e->c->out, "first      different first tokens said, for each right one: latent %.4f, mean %.4f\n",
            f->score[TN_WIRE_LATENT][k].unique, f->score[TN_WIRE_MEAN][k].unique);
    if (e->said.continues)
        fprintf(e->c->out,
                "gain       of the text's, recovered: latent %.4f, last %.4f; copies from afar (%lld tokens): latent "
                "%.4f, last %.4f\n",
                tn_wire_recovered(f, TN_WIRE_LATENT, k, false), tn_wire_recovered(f, TN_WIRE_LAST, k, false),
                (long long)f->score[TN_WIRE_LATENT][k].far, tn_wire_recovered(f, TN_WIRE_LATENT, k, true),
                tn_wire_recovered(f, TN_WIRE_LAST, k, true));
    fprintf(e->c->out, "verdict    %s\n", e->said.continues ? verdict_of_gain(f, k) : says);
    return TN_OK;
}

static void print_joint(const tn_wire_evaluation *e)
{
    const tn_wire_joint *j = &e->said.joint;
    const int64_t n = e->said.questions;
    if (!j->em_of) return;
    fprintf(e->c->out,
            "joint      EM %.4f, F1 %.4f; readers agree %.4f; the best of their answers EM %.4f, F1 %.4f; taken",
            tn_wire_mean(j->em, n), tn_wire_mean(j->f1, n), tn_wire_mean(j->agree, n), tn_wire_mean(j->oracle_em, n),
            tn_wire_mean(j->oracle_f1, n));
    for (int k = 0; k < e->found.readers; k++)
        fprintf(e->c->out, " %c %.4f", e->found.reader[k], tn_wire_mean((double)j->taken[k], n));
    fprintf(e->c->out, "\n");
}

static void print_probe(const tn_wire_evaluation *e)
{
    const tn_wire_probe *p = &e->probe;
    if (!p->done) return;
    fprintf(e->c->out, "probe     ");
    for (int i = 0; i < TN_PROBES; i++)
        fprintf(e->c->out, " %s %.4f%s", tn_wire_probe_names[i], p->accuracy[i], i + 1 < TN_PROBES ? "," : "");
    fprintf(e->c->out, "; the most frequent answer %.4f (linear, fitted on %lld training answers)\n", p->frequent,
            (long long)p->fitted);
}

static void print_costs(const tn_wire_evaluation *e)
{
    const tn_wire_controls *f = &e->found;
    const double n = (double)f->contexts, encode = 1e3 * f->encode_seconds / n,
                 message = 1e3 * f->seconds[TN_WIRE_LATENT] / n, text = 1e3 * f->seconds[TN_WIRE_TEXT] / n;
    if (e->sizes.contexts)
        fprintf(e->c->out,
                "size       a text has %.1f bytes, with zstd -19 %.1f; its message in int4 %zu (%lld x %lld)\n",
                e->sizes.bytes, e->sizes.packed, f->bytes[TN_WIRE_INT4], (long long)f->slots, (long long)f->width);
    fprintf(e->c->out,
            "time       of a text: encoding %.3g ms, reading its message %.3g ms, reading itself %.3g ms (%.2fx), all "
            "readers with their questions\n",
            encode, message, text, text / message);
    fprintf(e->c->out, "messages   mean cosine of two %.4f\n", f->cosine);
}

/* --- JSON ------------------------------------------------------------------------------------------------------------------ */

static tn_status emit_of(const tn_wire_evaluation *e, const char *name, int method, int k, double value,
                         const char *unit)
{
    json_t *row = json_pack("{s:s, s:s, s:o, s:s}", "name", name, "split", e->split, "value", tn_number_or_null(value),
                            "unit", unit);
    const char x[2] = { k < 0 ? 0 : e->found.reader[k], 0 };
    if (row && method >= 0) json_object_set_new(row, "method", json_string(tn_wire_method_names[method]));
    if (row && k >= 0) json_object_set_new(row, "reader", json_string(x));
    return tn_cli_emit(e->c, row);
}

static tn_status emit_scores(const tn_wire_evaluation *e)
{
    for (int m = 0; m < TN_WIRE_METHODS; m++) {
        for (int k = 0; k < e->found.readers; k++) {
            const tn_wire_score *x = &e->found.score[m][k];
            const tn_wire_decoded_score *d = &e->said.score[m][k];
            TN_RETURN_IF(emit_of(e, "em", m, k, tn_wire_em(x), ""));
            TN_RETURN_IF(emit_of(e, "first", m, k, first_of(x), ""));
            TN_RETURN_IF(emit_of(e, "unique_first", m, k, x->unique, ""));
            TN_RETURN_IF(emit_of(e, "nats", m, k, nats_of(x), "nats/token"));
            TN_RETURN_IF(emit_of(e, "bits_per_byte", m, k, tn_wire_bits_per_byte(&e->said, x), "bits/byte"));
            if (!d->em) continue;
            TN_RETURN_IF(emit_of(e, "answer_em", m, k, tn_wire_mean(d->em_sum, e->said.questions), ""));
            TN_RETURN_IF(emit_of(e, "answer_f1", m, k, tn_wire_mean(d->f1_sum, e->said.questions), ""));
        }
        if (e->found.bytes[m]) TN_RETURN_IF(emit_of(e, "message_bytes", m, -1, (double)e->found.bytes[m], "bytes"));
    }
    return TN_OK;
}

static tn_status emit_relay(const tn_wire_evaluation *e)
{
    static const char *const names[] = { "relay_em", "relay_f1" };
    const tn_wire_decoded *d = &e->said;
    for (int k = 0; k < e->found.readers && d->in_words; k++) {
        TN_RETURN_IF(emit_of(e, names[0], -1, k, tn_wire_mean(d->relay[k].em_sum, d->questions), ""));
        TN_RETURN_IF(emit_of(e, names[1], -1, k, tn_wire_mean(d->relay[k].f1_sum, d->questions), ""));
    }
    return d->in_words ? emit_of(e, "relay_tokens", -1, -1, tn_wire_mean(d->relay_tokens, e->found.contexts), "tokens")
                       : TN_OK;
}

static tn_status emit_paired(const tn_wire_evaluation *e, int k, const char *name, tn_wire_method other,
                             const tn_paired *d)
{
    char part[64];
    TN_RETURN_IF(emit_of(e, name, (int)other, k, d->difference, ""));
    snprintf(part, sizeof part, "%s_low", name);
    TN_RETURN_IF(emit_of(e, part, (int)other, k, d->low, ""));
    snprintf(part, sizeof part, "%s_high", name);
    return emit_of(e, part, (int)other, k, d->high, "");
}

static tn_status emit_difference(const tn_wire_evaluation *e, int k, tn_wire_by by, const char *name)
{
    tn_wire_difference d;
    TN_RETURN_IF(tn_wire_eval_compare(e, k, by, &d));
    return emit_paired(e, k, name, d.budget, &d.latent);
}

static tn_status emit_recovered(const tn_wire_evaluation *e, int k)
{
    static const tn_wire_method of[] = { TN_WIRE_LATENT, TN_WIRE_LAST };
    const tn_wire_controls *f = &e->found;
    for (int i = 0; i < 2; i++) {
        TN_RETURN_IF(emit_of(e, "recovered", of[i], k, tn_wire_recovered(f, of[i], k, false), ""));
        TN_RETURN_IF(emit_of(e, "recovered_afar", of[i], k, tn_wire_recovered(f, of[i], k, true), ""));
    }
    return emit_of(e, "tokens_afar", -1, k, (double)f->score[TN_WIRE_LATENT][k].far, "tokens");
}

static tn_status emit_reader(const tn_wire_evaluation *e, int k)
{
    const tn_wire_method best = tn_wire_best_budget(&e->found, k);
    TN_RETURN_IF(emit_of(e, "best_budget", (int)best, k, tn_wire_em(&e->found.score[best][k]), ""));
    tn_paired shuffled;
    TN_RETURN_IF(emit_difference(e, k, TN_WIRE_BY_TOKENS, "latent_minus_budget"));
    TN_RETURN_IF(tn_wire_eval_against(e, k, TN_WIRE_BY_TOKENS, TN_WIRE_SHUFFLED, &shuffled));
    TN_RETURN_IF(emit_paired(e, k, "latent_minus_shuffled", TN_WIRE_SHUFFLED, &shuffled));
    if (e->said.in_words) {
        TN_RETURN_IF(emit_difference(e, k, TN_WIRE_BY_EM, "answer_em_minus_budget"));
        TN_RETURN_IF(emit_difference(e, k, TN_WIRE_BY_F1, "answer_f1_minus_budget"));
        TN_RETURN_IF(emit_of(e, "max_tokens", -1, k, (double)e->said.max_tokens[k], "tokens"));
    }
    if (e->said.continues) TN_RETURN_IF(emit_recovered(e, k));
    return emit_of(e, "shuffled_minus_mean", -1, k, shuffled_minus_mean(&e->found, k), "");
}

static tn_status emit_joint(const tn_wire_evaluation *e)
{
    const tn_wire_joint *j = &e->said.joint;
    const int64_t n = e->said.questions;
    if (!j->em_of) return TN_OK;
    TN_RETURN_IF(emit_of(e, "joint_em", -1, -1, tn_wire_mean(j->em, n), ""));
    TN_RETURN_IF(emit_of(e, "joint_f1", -1, -1, tn_wire_mean(j->f1, n), ""));
    TN_RETURN_IF(emit_of(e, "agreement", -1, -1, tn_wire_mean(j->agree, n), ""));
    TN_RETURN_IF(emit_of(e, "oracle_em", -1, -1, tn_wire_mean(j->oracle_em, n), ""));
    TN_RETURN_IF(emit_of(e, "oracle_f1", -1, -1, tn_wire_mean(j->oracle_f1, n), ""));
    for (int k = 0; k < e->found.readers; k++)
        TN_RETURN_IF(emit_of(e, "joint_taken", -1, k, tn_wire_mean((double)j->taken[k], n), ""));
    return TN_OK;
}

static tn_status emit_probe(const tn_wire_evaluation *e)
{
    static const char *const names[TN_PROBES] = { "probe_message", "probe_question", "probe_both" };
    for (int i = 0; i < TN_PROBES && e->probe.done; i++)
        TN_RETURN_IF(emit_of(e, names[i], -1, -1, e->probe.accuracy[i], ""));
    return e->probe.done ? emit_of(e, "probe_frequent", -1, -1, e->probe.frequent, "") : TN_OK;
}

static tn_status emit_costs(const tn_wire_evaluation *e)
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

static tn_status draw(const tn_wire_evaluation *e, const char *path)
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

static tn_status print_all(const tn_wire_evaluation *e)
{
    fprintf(e->c->out, "%s, %s, %lld texts, %lld questions\n", e->target, e->split, (long long)e->found.contexts,
            (long long)e->found.score[TN_WIRE_LATENT][0].questions);
    for (int k = 0; k < e->found.readers; k++) {
        print_reader(e, k);
        print_relay(e, k);
        TN_RETURN_IF(print_differences(e, k));
    }
    print_joint(e);
    print_probe(e);
    print_costs(e);
    return TN_OK;
}

tn_status tn_wire_eval_show(const tn_wire_evaluation *e)
{
    const char *svg = tn_args_value(&e->c->args, "svg");
    if (e->c->json) {
        TN_RETURN_IF(emit_scores(e));
        for (int k = 0; k < e->found.readers; k++) TN_RETURN_IF(emit_reader(e, k));
        TN_RETURN_IF(emit_joint(e));
        TN_RETURN_IF(emit_relay(e));
        TN_RETURN_IF(emit_probe(e));
        TN_RETURN_IF(emit_costs(e));
    } else TN_RETURN_IF(print_all(e));
    return svg ? draw(e, svg) : TN_OK;
}
