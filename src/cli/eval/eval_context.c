/* A trained model over its context: loss by position, at other contexts, and how far back it reaches. As a table, JSON Lines, CSV and
 * SVG; numbers that are not there are '-', null or empty. */
#include "cli/eval/eval.h"

#include "base/clock.h"
#include "cli/table_file.h"
#include "cli/train/train_view.h"
#include "report/chart/chart.h"
#include "report/contexts.h"
#include "report/positions.h"
#include "report/receptive_field.h"

#include <math.h>
#include <string.h>

enum { REACH_TARGETS = 8192, MOST_POINTS = 64 };

typedef struct watcher {
    tn_progress progress;
    double start;
} watcher;

static watcher watch(const tn_eval *e)
{
    watcher w = { .start = tn_clock_s() };
    tn_progress_start(&w.progress, e->c->err);
    tn_interrupt_watch();
    return w;
}

static const char *number_text(char buf[24], const char *format, double x)
{
    if (isfinite(x)) snprintf(buf, 24, format, x);
    else snprintf(buf, 24, "-");
    return buf;
}

/* A line through points over tokens, in powers of ten. */
static tn_status draw(const tn_eval *e, const char *title, const char *x_label, const double *x, const double *y,
                      size_t n)
{
    FILE *f;
    bool joined[MOST_POINTS];
    for (size_t i = 0; i < MOST_POINTS; i++) joined[i] = true;
    const tn_scatter c = { .title = title,
                           .x_label = x_label,
                           .y_label = "nats per token",
                           .groups = &e->target,
                           .n_groups = 1,
                           .n = n < MOST_POINTS ? n : MOST_POINTS,
                           .x = x,
                           .y = y,
                           .front = joined,
                           .log_x = true };
    if (!e->svg) return TN_OK;
    TN_RETURN_IF(tn_table_open(e->svg, &f));
    return tn_table_close(e->svg, f, tn_chart_scatter(&c, f));
}

static int64_t batch_at(const tn_session *s, int64_t context)
{
    const int64_t step = s->batch * s->length;
    return step / context > 0 ? step / context : 1;
}

/* --- by position ------------------------------------------------------------------------------------------------------ */

static void say_tokens(void *ctx, int64_t tokens)
{
    watcher *w = ctx;
    tn_progress_line(&w->progress, tn_clock_s() - w->start, "positions  %lld tokens", (long long)tokens);
}

static void print_positions(const tn_eval *e, const tn_positions *p, int64_t context)
{
    FILE *f = e->c->out;
    char loss[24], error[24], bits[24], at[48];
    fprintf(f, "%s, %s, context %lld: %.4f nats per token, %lld tokens\n", e->target, tn_eval_part(e),
            (long long)context, p->loss, (long long)p->tokens);
    fprintf(f, "%-20s %10s %8s %9s %8s %10s\n", "position", "tokens", "rows", "nats", "+-", "bits/byte");
    for (size_t i = 0; i < p->n; i++) {
        const tn_position_row *r = &p->row[i];
        snprintf(at, sizeof at, "%lld - %lld", (long long)r->first, (long long)r->last);
        fprintf(f, "%-20s %10lld %8lld %9s %8s %10s\n", at, (long long)r->tokens, (long long)r->rows,
                number_text(loss, "%.4f", r->loss), number_text(error, "%.4f", r->error),
                number_text(bits, "%.4f", r->loss * p->bits));
    }
}

static tn_status emit_positions(const tn_eval *e, const tn_positions *p, int64_t context)
{
    TN_RETURN_IF(tn_cli_emit(e->c, json_pack("{s:s, s:s, s:I, s:o, s:s, s:I}", "name", "loss", "split", tn_eval_part(e),
                                             "context", (json_int_t)context, "value", tn_number_or_null(p->loss),
                                             "unit", "nats/token", "tokens", (json_int_t)p->tokens)));
    for (size_t i = 0; i < p->n; i++) {
        const tn_position_row *r = &p->row[i];
        TN_RETURN_IF(
            tn_cli_emit(e->c,
                        json_pack("{s:s, s:s, s:I, s:I, s:o, s:s, s:o, s:o, s:I, s:I}", "name", "position_loss",
                                  "split", tn_eval_part(e), "first", (json_int_t)r->first, "last", (json_int_t)r->last,
                                  "value", tn_number_or_null(r->loss), "unit", "nats/token", "error",
                                  tn_number_or_null(r->error), "bits_per_byte", tn_number_or_null(r->loss * p->bits),
                                  "tokens", (json_int_t)r->tokens, "rows", (json_int_t)r->rows)));
    }
    return TN_OK;
}

static tn_status table_positions(const tn_eval *e, const tn_positions *p, int64_t context)
{
    FILE *f;
    TN_RETURN_IF(tn_table_open(e->csv, &f));
    fputs("run,context,first,last,tokens,rows,loss,error,bits_per_byte\n", f);
    for (size_t i = 0; i < p->n; i++) {
        const tn_position_row *r = &p->row[i];
        tn_table_field(f, e->target);
        fprintf(f, ",%lld,%lld,%lld,%lld,%lld", (long long)context, (long long)r->first, (long long)r->last,
                (long long)r->tokens, (long long)r->rows);
        tn_table_number(f, "%.6f", r->loss);
        tn_table_number(f, "%.6f", r->error);
        tn_table_number(f, "%.6f", r->loss * p->bits);
        fputc('\n', f);
    }
    return tn_table_close(e->csv, f, TN_OK);
}

tn_status tn_eval_positions(const tn_eval *e, tn_session *s)
{
    tn_positions p;
    watcher w = watch(e);
    const int64_t context = e->context ? e->context : s->length;
    const tn_positions_options o = { .model = s->model,
                                     .settings = s->settings,
                                     .store = tn_trainer_store(s->trainer),
                                     .data = s->source.text,
                                     .mode = s->source.mode,
                                     .split = e->split,
                                     .context = context,
                                     .batch = batch_at(s, context),
                                     .tokens = e->tokens,
                                     .ctx = &w,
                                     .progress = say_tokens,
                                     .interrupted = tn_interrupted };
    const tn_status measured = tn_positions_measure(&o, &p);
    tn_progress_end(&w.progress);
    if (measured != TN_OK) {
        tn_error_prefix("%s at a context of %lld", e->target, (long long)context);
        return measured;
    }
    if (e->c->json) TN_RETURN_IF(emit_positions(e, &p, context));
    else print_positions(e, &p, context);
    if (e->csv) TN_RETURN_IF(table_positions(e, &p, context));
    double x[TN_POSITION_ROWS], y[TN_POSITION_ROWS];
    for (size_t i = 0; i < p.n; i++) {
        x[i] = sqrt((double)(p.row[i].first + 1) * (double)(p.row[i].last + 1));
        y[i] = p.row[i].loss;
    }
    return draw(e, "held-out loss by position", "tokens in view", x, y, p.n);
}

/* --- at other contexts ------------------------------------------------------------------------------------------------ */

static void say_context(void *ctx, const char *what, int64_t context)
{
    watcher *w = ctx;
    tn_progress_line(&w->progress, tn_clock_s() - w->start, "context %lld, %s", (long long)context, what);
}

static void print_contexts(const tn_eval *e, const tn_context_row *rows, size_t n, int64_t trained)
{
    FILE *f = e->c->out;
    char loss[24], bits[24];
    fprintf(f, "%s, %s, trained at a context of %lld\n", e->target, tn_eval_part(e), (long long)trained);
    fprintf(f, "%10s %8s %9s %10s %10s\n", "context", "batch", "nats", "bits/byte", "tokens");
    for (size_t i = 0; i < n; i++)
        fprintf(f, "%10lld %8lld %9s %10s %10lld\n", (long long)rows[i].context, (long long)rows[i].batch,
                number_text(loss, "%.4f", rows[i].loss), number_text(bits, "%.4f", rows[i].loss * rows[i].bits),
                (long long)rows[i].scored);
    for (size_t i = 0; i < n; i++)
        if (rows[i].why[0] && (i == 0 || strcmp(rows[i].why, rows[i - 1].why) != 0))
            fprintf(f, "- %s at %lld: %s\n", e->target, (long long)rows[i].context, rows[i].why);
}

static tn_status emit_contexts(const tn_eval *e, const tn_context_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const tn_context_row *r = &rows[i];
        if (r->why[0])
            TN_RETURN_IF(
                tn_cli_emit(e->c, json_pack("{s:s, s:s, s:I, s:s}", "name", "context_refused", "split", tn_eval_part(e),
                                            "context", (json_int_t)r->context, "reason", r->why)));
        else
            TN_RETURN_IF(
                tn_cli_emit(e->c,
                            json_pack("{s:s, s:s, s:I, s:I, s:o, s:s, s:o, s:I}", "name", "context_loss", "split",
                                      tn_eval_part(e), "context", (json_int_t)r->context, "batch", (json_int_t)r->batch,
                                      "value", tn_number_or_null(r->loss), "unit", "nats/token", "bits_per_byte",
                                      tn_number_or_null(r->loss * r->bits), "tokens", (json_int_t)r->scored)));
    }
    return TN_OK;
}

static tn_status table_contexts(const tn_eval *e, const tn_context_row *rows, size_t n)
{
    FILE *f;
    TN_RETURN_IF(tn_table_open(e->csv, &f));
    fputs("run,context,batch,tokens,loss,bits_per_byte\n", f);
    for (size_t i = 0; i < n; i++) {
        tn_table_field(f, e->target);
        fprintf(f, ",%lld,%lld,%lld", (long long)rows[i].context, (long long)rows[i].batch, (long long)rows[i].scored);
        tn_table_number(f, "%.6f", rows[i].loss);
        tn_table_number(f, "%.6f", rows[i].loss * rows[i].bits);
        fputc('\n', f);
    }
    return tn_table_close(e->csv, f, TN_OK);
}

tn_status tn_eval_contexts(const tn_eval *e, tn_session *s)
{
    tn_context_row rows[TN_SPANS_MOST] = { { 0 } };
    double x[TN_SPANS_MOST], y[TN_SPANS_MOST];
    const size_t n = e->contexts.n;
    watcher w = watch(e);
    const tn_contexts o = { .model = s->model,
                            .settings = s->settings,
                            .store = tn_trainer_store(s->trainer),
                            .data = s->source.text,
                            .mode = s->source.mode,
                            .tokens = s->batch * s->length,
                            .score = e->tokens,
                            .split = e->split,
                            .loss_only = true,
                            .ctx = &w,
                            .progress = say_context,
                            .interrupted = tn_interrupted };
    for (size_t i = 0; i < n; i++) rows[i].context = e->contexts.at[i];
    const tn_status measured = tn_contexts_measure(&o, rows, n);
    tn_progress_end(&w.progress);
    TN_RETURN_IF(measured);
    if (e->c->json) TN_RETURN_IF(emit_contexts(e, rows, n));
    else print_contexts(e, rows, n, s->length);
    if (e->csv) TN_RETURN_IF(table_contexts(e, rows, n));
    for (size_t i = 0; i < n; i++) {
        x[i] = (double)rows[i].context;
        y[i] = rows[i].loss;
    }
    return draw(e, "held-out loss by context", "tokens of context", x, y, n);
}

/* --- how far back ----------------------------------------------------------------------------------------------------- */

static void say_given(void *ctx, int64_t given)
{
    watcher *w = ctx;
    tn_progress_line(&w->progress, tn_clock_s() - w->start, "effective context  %lld tokens given", (long long)given);
}

/* How well the difference is known that decided. */
static double error_at(const tn_receptive_field *r)
{
    for (size_t i = 0; i + 1 < r->n; i++)
        if (r->row[i].given >= r->effective / 2) return r->row[i].error;
    return NAN;
}

static void print_receptive_field(const tn_eval *e, const tn_receptive_field *r)
{
    FILE *f = e->c->out;
    char loss[24], more[24], error[24];
    fprintf(f, "%s, %s: loss on the same %lld tokens from %lld windows of %lld documents\n", e->target, tn_eval_part(e),
            (long long)r->targets, (long long)r->windows, (long long)r->documents);
    fprintf(f, "%12s %9s %12s %8s\n", "last tokens", "nats", "above full", "+-");
    for (size_t i = 0; i < r->n; i++)
        fprintf(f, "%12lld %9s %12s %8s\n", (long long)r->row[i].given, number_text(loss, "%.4f", r->row[i].loss),
                number_text(more, "%+.4f", r->row[i].more), number_text(error, "%.4f", r->row[i].error));
    for (size_t i = 0; i < r->n; i++)
        if (r->row[i].why[0] && (i == 0 || strcmp(r->row[i].why, r->row[i - 1].why) != 0))
            fprintf(f, "- %s on %lld: %s\n", e->target, (long long)r->row[i].given, r->row[i].why);
    fprintf(f, "effective context: %lld tokens (within %g nats of %lld)\n", (long long)r->effective,
            TN_RECEPTIVE_FIELD_TOLERANCE, (long long)r->row[r->n - 1].given);
    if (error_at(r) > TN_RECEPTIVE_FIELD_TOLERANCE)
        fprintf(f, "the standard error there is %.3f: --tokens=N evaluates more than %lld tokens\n", error_at(r),
                (long long)r->targets);
}

static tn_status emit_receptive_field(const tn_eval *e, const tn_receptive_field *r)
{
    for (size_t i = 0; i < r->n; i++) {
        const tn_receptive_field_row *k = &r->row[i];
        if (k->why[0]) continue;
        TN_RETURN_IF(tn_cli_emit(e->c, json_pack("{s:s, s:s, s:I, s:f, s:s, s:f, s:o, s:I}", "name", "given_loss",
                                                 "split", tn_eval_part(e), "given", (json_int_t)k->given, "value",
                                                 k->loss, "unit", "nats/token", "more", k->more, "error",
                                                 tn_number_or_null(k->error), "tokens", (json_int_t)r->targets)));
    }
    return tn_cli_emit(e->c, json_pack("{s:s, s:s, s:I, s:s, s:I, s:I}", "name", "effective_context", "split",
                                       tn_eval_part(e), "value", (json_int_t)r->effective, "unit", "tokens", "windows",
                                       (json_int_t)r->windows, "documents", (json_int_t)r->documents));
}

static tn_status table_receptive_field(const tn_eval *e, const tn_receptive_field *r)
{
    FILE *f;
    TN_RETURN_IF(tn_table_open(e->csv, &f));
    fputs("run,given,tokens,loss,more,error\n", f);
    for (size_t i = 0; i < r->n; i++) {
        tn_table_field(f, e->target);
        fprintf(f, ",%lld,%lld", (long long)r->row[i].given, (long long)r->targets);
        tn_table_number(f, "%.6f", r->row[i].loss);
        tn_table_number(f, "%.6f", r->row[i].more);
        tn_table_number(f, "%.6f", r->row[i].error);
        fputc('\n', f);
    }
    return tn_table_close(e->csv, f, TN_OK);
}

tn_status tn_eval_receptive_field(const tn_eval *e, tn_session *s)
{
    tn_receptive_field r;
    double x[TN_RECEPTIVE_FIELD_ROWS], y[TN_RECEPTIVE_FIELD_ROWS];
    watcher w = watch(e);
    const tn_receptive_field_options o = { .model = s->model,
                                           .settings = s->settings,
                                           .store = tn_trainer_store(s->trainer),
                                           .data = s->source.text,
                                           .split = e->split,
                                           .whole = e->context ? e->context : s->length,
                                           .targets = e->tokens ? e->tokens : REACH_TARGETS,
                                           .tokens = s->batch * s->length,
                                           .ctx = &w,
                                           .progress = say_given,
                                           .interrupted = tn_interrupted };
    const tn_status measured = tn_receptive_field_measure(&o, &r);
    tn_progress_end(&w.progress);
    if (measured != TN_OK) {
        tn_error_prefix("%s at a context of %lld", e->target, (long long)o.whole);
        return measured;
    }
    if (e->c->json) TN_RETURN_IF(emit_receptive_field(e, &r));
    else print_receptive_field(e, &r);
    if (e->csv) TN_RETURN_IF(table_receptive_field(e, &r));
    for (size_t i = 0; i < r.n; i++) {
        x[i] = (double)r.row[i].given;
        y[i] = r.row[i].loss;
    }
    return draw(e, "held-out loss given the last tokens only", "tokens given", x, y, r.n);
}
