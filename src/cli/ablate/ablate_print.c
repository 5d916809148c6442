/* Lines of at most 100 columns. */
#include "cli/ablate/ablate_print.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MS = 24, CELL = 40, WORDS = 400 };

/* --- cells ------------------------------------------------------------------------------------------------------------------------ */

static const char *ms_text(double ms, char buf[MS])
{
    if (!(ms > 0)) snprintf(buf, MS, "-");
    else if (ms >= 1000) snprintf(buf, MS, "%.2f s", ms / 1000);
    else snprintf(buf, MS, "%.*f ms", ms < 10 ? 2 : ms < 100 ? 1 : 0, ms);
    return buf;
}

static const char *rate_text(double items, double ms, char buf[16])
{
    if (ms > 0 && items > 0) return tn_count_text(1e3 * items / ms, buf);
    snprintf(buf, 16, "-");
    return buf;
}

static const char *ratio_text(const tn_ratio *r, char buf[CELL])
{
    snprintf(buf, CELL, r->median < 10 ? "%.2f (%.2f to %.2f)" : "%.1f (%.1f to %.1f)", r->median, r->low, r->high);
    return buf;
}

static const char *gain_text(const tn_ablation *a, char buf[CELL])
{
    if (a->verdict == TN_GAIN_SHOWN || a->verdict == TN_GAIN_NEGATIVE) return ratio_text(&a->ratio, buf);
    if (a->failed) snprintf(buf, CELL, "-");
    else if (a->verdict == TN_GAIN_SHORT && !a->ratio.n) snprintf(buf, CELL, "not measured");
    else if (a->verdict == TN_GAIN_SHORT) snprintf(buf, CELL, "%.2f (no time)", a->ratio.median);
    else snprintf(buf, CELL, "no difference shown");
    return buf;
}

/* What the fast side's memory is, as a change: of measured peaks where they are known, else of what is planned or written. */
static const char *memory_text(const tn_ablation *a, char buf[24])
{
    const bool measured = a->plain_peak > 0 && a->fast_peak > 0;
    const double plain = measured ? a->plain_peak : a->plain_bytes, fast = measured ? a->fast_peak : a->fast_bytes;
    const double more = 100 * (fast / plain - 1);
    if (!(plain > 0) || !(fast > 0)) snprintf(buf, 24, "-");
    else if (fabs(more) < (measured ? 1 : 0.5)) snprintf(buf, 24, "same");
    else snprintf(buf, 24, "%+.0f %%", more);
    return buf;
}

static const char *parity_text(const tn_ablation *a, char buf[CELL])
{
    if (isnan(a->row->tolerance)) snprintf(buf, CELL, "changes the training");
    else if (!a->steps) snprintf(buf, CELL, "not compared");
    else if (a->failed) snprintf(buf, CELL, "FAILED");
    else if (a->parity.identical) snprintf(buf, CELL, "bit-identical");
    else snprintf(buf, CELL, "within %.0e", fmax(a->parity.error, 1e-9));
    return buf;
}

/* The folder of prepared text is gone when somebody reads its name. */
static const char *words_of(const tn_ablate_row *r, bool fast, char buf[WORDS])
{
    size_t at = 0;
    const size_t n = fast ? r->n_fast : r->n_plain;
    snprintf(buf, WORDS, "%s", n ? "" : "as it is");
    for (size_t i = 0; i < n && at < WORDS; i++) {
        const char *word = fast ? r->fast[i] : r->plain[i];
        at += (size_t)snprintf(buf + at, WORDS - at, "%s%s", i ? " " : "",
                               strncmp(word, "data=", 5) == 0 ? "data=prepared" : word);
    }
    return buf;
}

/* --- the configuration ------------------------------------------------------------------------------------------------------------- */

void tn_ablate_print_base(tn_ablate_printing *p, const tn_ablate_base *b)
{
    char bytes[24], ms[MS];
    const bool sequences = tn_model_reads_sequences(b->session->model);
    p->items = b->items;
    p->unit = sequences ? "tokens" : "samples";
    p->measured = tn_trainer_device(b->session->trainer) == TN_CPU;
    if (p->c->json) {
        (void)tn_cli_emit(p->c, json_pack("{s:s, s:f, s:s, s:f, s:f, s:s}", "name", "step", "value", b->ms, "unit",
                                          "ms", "bytes", b->bytes, "items", b->items, "of", p->unit));
        return;
    }
    fprintf(p->c->err, "ablate  %s a step of %.0f %s, %s; measuring for at most %.3g s%s\n", ms_text(b->ms, ms),
            b->items, p->unit, tn_bytes_text(b->bytes, bytes), p->options->seconds,
            b->session->source.ctx ? "" : ", on made-up numbers");
    if (strcmp(tn_settings_source(b->session->settings, "train.batch"), "tenon ablate") == 0)
        fprintf(p->c->err, "        train.batch=%lld: a step of more takes too long for the time\n",
                (long long)b->session->batch);
}

void tn_ablate_print_progress(tn_ablate_printing *p, const char *what, double part)
{
    if (!p->c->json) tn_progress_line(&p->progress, tn_clock_s(), "ablate  %3.0f %%  %s", 100 * part, what);
}

/* --- rows ---------------------------------------------------------------------------------------------------------------------------- */

static const char *const verdicts[] = {
    [TN_GAIN_NONE] = "none", [TN_GAIN_SHOWN] = "gain", [TN_GAIN_NEGATIVE] = "loss", [TN_GAIN_SHORT] = "not measured"
};

static void emit_row(tn_ablate_printing *p, const tn_ablation *a)
{
    char plain[WORDS], fast[WORDS];
    json_t *o = json_pack("{s:s, s:o, s:s, s:o, s:o, s:i, s:i, s:s, s:s, s:s}", "name", a->row->name, "value",
                          tn_number_or_null(a->ratio.median), "unit", "x", "low", tn_number_or_null(a->ratio.low),
                          "high", tn_number_or_null(a->ratio.high), "pairs", a->ratio.n, "rounds",
                          tn_paired_rounds(&a->pairs), "verdict", verdicts[a->verdict], "plain",
                          words_of(a->row, false, plain), "fast", words_of(a->row, true, fast));
    if (o) {
        const bool compared = a->steps > 0;
        (void)json_object_update_new(o, json_pack("{s:s, s:f, s:f, s:f, s:f, s:o, s:s, s:o, s:b, s:b, s:i, s:s}", "of",
                                                  a->what, "plain_ms", a->plain_ms, "fast_ms", a->fast_ms,
                                                  "plain_bytes", a->plain_bytes, "fast_bytes", a->fast_bytes, "error",
                                                  compared ? tn_number_or_null(a->parity.error) : json_null(), "worst",
                                                  a->parity.worst, "tolerance", tn_number_or_null(a->row->tolerance),
                                                  "identical", compared && a->parity.identical, "failed", a->failed,
                                                  "steps", a->steps, "why", a->why));
        (void)json_object_update_new(o, json_pack("{s:o, s:o}", "plain_peak", tn_number_or_null(a->plain_peak),
                                                  "fast_peak", tn_number_or_null(a->fast_peak)));
    }
    if (o && a->alone.ratio.n)
        (void)json_object_update_new(o, json_pack("{s:f, s:f, s:f, s:f, s:f, s:i}", "alone_plain_ms", a->alone.plain_ms,
                                                  "alone_fast_ms", a->alone.fast_ms, "alone", a->alone.ratio.median,
                                                  "alone_low", a->alone.ratio.low, "alone_high", a->alone.ratio.high,
                                                  "alone_pairs", a->alone.ratio.n));
    (void)tn_cli_emit(p->c, o);
}

static void print_head(tn_ablate_printing *p)
{
    char rate[32];
    snprintf(rate, sizeof rate, "%s/s", strcmp(p->unit, "tokens") == 0 ? "tok" : "samp");
    fprintf(p->c->out, "%-20s %8s %8s %8s  %-19s %7s  %s\n", "row", "plain", "fast", rate, "times as fast",
            p->measured ? "peak" : "planned", "parity");
    p->rows = true;
}

/* For the lines below the table. */
static void note_setting(tn_ablate_printing *p, const tn_ablation *a)
{
    char plain[WORDS], fast[WORDS];
    const size_t at = strlen(p->settings);
    if (a->row->is_switch || (!a->row->n_plain && !a->row->n_fast)) return;
    snprintf(p->settings + at, sizeof p->settings - at, "%-20s %s, then %s%s%s\n", a->row->name,
             words_of(a->row, false, plain), words_of(a->row, true, fast),
             strcmp(a->what, "step") == 0 ? "" : "; of a ", strcmp(a->what, "step") == 0 ? "" : a->what);
}

void tn_ablate_print_row(tn_ablate_printing *p, const tn_ablation *a)
{
    char plain[MS], fast[MS], rate[16], gain[CELL], memory[24], parity[CELL];
    if (p->c->json) {
        emit_row(p, a);
        return;
    }
    if (!a->why[0] && !a->ratio.n && !a->steps) return; /* counted at the end */
    tn_progress_end(&p->progress);
    if (!p->rows) print_head(p);
    if (a->why[0]) fprintf(p->c->out, "%-20s %.76s\n", a->row->name, a->why);
    else
        fprintf(p->c->out, "%-20s %8s %8s %8s  %-19s %7s  %s\n", a->row->name, ms_text(a->plain_ms, plain),
                ms_text(a->fast_ms, fast),
                rate_text(strcmp(a->what, "step") == 0    ? p->items
                          : strcmp(a->what, "token") == 0 ? 1
                                                          : 0,
                          a->fast_ms, rate),
                gain_text(a, gain), memory_text(a, memory), parity_text(a, parity));
    if (a->alone.ratio.n)
        fprintf(p->c->out, "%-20s %8s %8s %8s  %s\n", "  its ops alone", ms_text(a->alone.plain_ms, plain),
                ms_text(a->alone.fast_ms, fast), "", ratio_text(&a->alone.ratio, gain));
    if (a->failed)
        fprintf(p->c->out, "    %.50s differs by %.1e after %d step%s (tolerance %.0e)\n", a->parity.worst,
                a->parity.error, a->steps, a->steps == 1 ? "" : "s", a->row->tolerance);
    note_setting(p, a);
    fflush(p->c->out);
}

/* --- turns ---------------------------------------------------------------------------------------------------------------------------- */

void tn_ablate_print_turn(tn_ablate_printing *p, const tn_ablate_turn *t)
{
    char ms[MS], rate[16], bytes[24], name[64];
    if (p->c->json) {
        (void)tn_cli_emit(p->c, json_pack("{s:s, s:s, s:f, s:s, s:f, s:f}", "group", "cumulative", "name",
                                          t->name ? t->name : "plain", "value", t->ms, "unit", "ms", "times", t->times,
                                          "bytes", t->bytes));
        return;
    }
    tn_progress_end(&p->progress);
    if (!p->turns)
        fprintf(p->c->out, "\n%-24s %9s %9s %11s  %s\n", "one after the other", "step",
                strcmp(p->unit, "tokens") == 0 ? "tok/s" : "samp/s", "planned", "times as fast as all plain");
    p->turns = true;
    snprintf(name, sizeof name, "%s%s", t->name ? "+ " : "", t->name ? t->name : "all plain");
    fprintf(p->c->out, "%-24s %9s %9s %11s  %.2f\n", name, ms_text(t->ms, ms), rate_text(p->items, t->ms, rate),
            tn_bytes_text(t->bytes, bytes), t->times);
    fflush(p->c->out);
}

/* --- held-out metrics ------------------------------------------------------------------------------------------------------------------- */

static void print_score(tn_ablate_printing *p, const tn_ablate_scores *s, size_t i)
{
    char a[24], b[24];
    const char *name = s->plain.at[i].name;
    const double plain = s->plain.at[i].value, fast = tn_scores_get(&s->fast, name);
    const double allowed = s->strict ? tn_ablate_allowed(s, i) : NAN;
    const bool moved = tn_ablate_moved(s, i);
    if (isnan(plain) && isnan(fast)) return;
    if (p->c->json) {
        (void)tn_cli_emit(p->c, json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:b, s:I}", "group", "heldout", "name",
                                          s->row->name, "metric", name, "plain", tn_number_or_null(plain), "value",
                                          tn_number_or_null(fast), "allowed", tn_number_or_null(allowed), "moved",
                                          moved, "steps", (json_int_t)s->steps));
        return;
    }
    fprintf(p->c->out, "%-20s %-24s %12s %12s", s->row->name, name, tn_score_text(plain, 4, a),
            tn_score_text(fast, 4, b));
    if (s->strict) fprintf(p->c->out, " %12.2g%s", allowed, moved ? "  MOVED" : "");
    fprintf(p->c->out, "\n");
}

void tn_ablate_print_scores(tn_ablate_printing *p, const tn_ablate_scores *s)
{
    if (!p->c->json) tn_progress_end(&p->progress);
    if (!p->c->json && !p->scores)
        fprintf(p->c->out, "\nheld-out after %lld steps of training\n%-20s %-24s %12s %12s %12s\n", (long long)s->steps,
                "row", "metric", "plain", "fast", "may differ");
    p->scores = true;
    for (size_t i = 0; i < s->plain.n; i++) print_score(p, s, i);
    fflush(p->c->out);
}

void tn_ablate_print_end(tn_ablate_printing *p, const tn_ablate_result *r)
{
    if (!p->c->json) tn_progress_end(&p->progress);
    if (!r || p->c->json) return;
    if (p->settings[0]) fprintf(p->c->out, "\n%s", p->settings);
    if (!r->rows) fprintf(p->c->out, "no row changes anything here\n");
    if (r->unmeasured)
        fprintf(p->c->out, "\n%d row%s not measured twice: time was up (--seconds=%.0f)\n", r->unmeasured,
                r->unmeasured == 1 ? " was" : "s were", 2 * p->options->seconds);
}
