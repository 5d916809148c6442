/* What a race has to show: curves, the table (race_table.c), samples, and the table by context; as text, as JSON Lines, as SVG and CSV
 * files, which come last. Computes nothing. Racers that did not train a step are left out, numbers that are not there are '-' or null. */
#include "cli/next.h"
#include "cli/race/race.h"
#include "cli/view.h"
#include "cli/table_file.h"
#include "report/chart/plot.h"

#include <math.h>
#include <string.h>

/* --- curves ----------------------------------------------------------------------------------------------------------- */

static size_t add_train(tn_series *to, size_t n, const tn_racer *x, const tn_train_view *v)
{
    to[n] = (tn_series){ .name = x->name, .x = v->train.x, .y = v->train.y, .n = v->train.n };
    return n + 1;
}

/* A ring marks the best step where later ones are worse. */
static size_t add_heldout(tn_series *to, size_t n, const tn_racer *x, const tn_train_view *v)
{
    const tn_curve *c = &v->heldout;
    to[n] = (tn_series){ .name = x->name, .x = c->x, .y = c->y, .n = c->n, .ring = v->best < c->n ? v->best : 0 };
    return n + 1;
}

static tn_status draw_svg(const tn_race *r, const tn_plot *text, size_t n)
{
    FILE *f;
    tn_series series[2 * TN_RACE_MOST];
    tn_plot p = *text;
    memcpy(series, text->series, n * sizeof *series);
    for (size_t i = 0, k = 0; i < r->n; i++) {
        const tn_racer *x = &r->racer[i];
        const tn_race_trial *t = tn_race_chosen(x);
        if (!t) continue;
        k++;
        if (!t->view.heldout.n) continue;
        p.count = add_heldout(series, p.count, x, &t->view);
        series[p.count - 1].like = k;
        series[p.count - 1].points = true;
        series[k - 1].faint = true;
    }
    p.series = series;
    if (p.count > n) p.title = "held-out loss (pale: training loss)";
    TN_RETURN_IF(tn_table_open(r->svg, &f));
    return tn_table_close(r->svg, f, tn_plot_svg(&p, f));
}

/* Held-out losses, if every side has enough of them for a curve; else training losses. */
static bool has_heldout(const tn_race *r)
{
    for (size_t i = 0; i < r->n; i++) {
        const tn_race_trial *t = tn_race_chosen(&r->racer[i]);
        if (t && t->view.heldout.n < 2) return false;
    }
    return true;
}

/* As text, or in the file: there the training losses stand behind the held-out ones. */
static tn_status draw(const tn_race *r, bool file)
{
    static const char *const axes[] = { "step", "tokens", "seconds of training" };
    tn_series series[TN_RACE_MOST];
    const tn_term term = tn_term_of(r->c->out);
    char unit[64];
    size_t n = 0;
    const bool heldout = !file && has_heldout(r);
    const tn_progress_report *first = &tn_race_chosen(&r->racer[0])->last;
    for (size_t i = 0; i < r->n; i++) {
        const tn_race_trial *t = tn_race_chosen(&r->racer[i]);
        if (t) n = (heldout ? add_heldout : add_train)(series, n, &r->racer[i], &t->view);
    }
    tn_plot p = { .title = heldout ? "held-out loss" : "training loss",
                  .x_label = axes[r->equal],
                  .series = series,
                  .count = n,
                  .ring = "best step",
                  .y_label = tn_score_axis(&first->metrics, first->bits, unit) };
    tn_chart_fit(&p, &term, 22);
    return file ? draw_svg(r, &p, n) : tn_plot_text(&p, term.f);
}

/* --- samples ---------------------------------------------------------------------------------------------------------- */

/* On one line, whatever breaks it has. */
static void print_prompt(const tn_text *prompt, FILE *f)
{
    for (size_t i = 0; i < prompt->n; i++) fputc((unsigned char)prompt->data[i] < ' ' ? ' ' : prompt->data[i], f);
}

static tn_status show_sample(const tn_race *r, const tn_racer *x)
{
    if (x->no_sample[0]) {
        fprintf(r->c->err, "note    no sample of %s: %s\n", x->name, x->no_sample);
        return TN_OK;
    }
    const size_t start = r->prompt.n, bytes = x->sample.n - start; /* of what the model wrote */
    const char *prompt = r->prompt.data ? r->prompt.data : "", *text = x->sample.data + start;
    if (!r->c->json) {
        fprintf(r->c->out, "\n--- %s, after \"", x->name);
        print_prompt(&r->prompt, r->c->out);
        fprintf(r->c->out, "\":\n%.*s\n", (int)bytes, text);
        return TN_OK;
    }
    return tn_cli_emit(r->c, json_pack("{s:s, s:s, s:s%, s:s%}", "name", "sample", "config", x->name, "prompt", prompt,
                                       start, "text", text, bytes));
}

/* --- the table by context --------------------------------------------------------------------------------------------- */

static tn_status emit_cell(tn_cli *c, const tn_racer *x, const tn_context_row *k)
{
    const bool per_byte = !isnan(k->bits);
    if (k->why[0])
        return tn_cli_emit(c, json_pack("{s:s, s:s, s:I, s:s}", "name", "context_refused", "config", x->name, "context",
                                        (json_int_t)k->context, "reason", k->why));
    if (!isnan(k->loss))
        TN_RETURN_IF(tn_cli_emit(c, json_pack("{s:s, s:s, s:I, s:f, s:s, s:I}", "name",
                                              per_byte ? "context_bits_per_byte" : "context_bits_per_token", "config",
                                              x->name, "context", (json_int_t)k->context, "value",
                                              k->loss * (per_byte ? k->bits : 1 / log(2)), "unit",
                                              per_byte ? "bits/byte" : "bits/token", "scored", (json_int_t)k->scored)));
    if (isnan(k->tokens_per_s)) return TN_OK;
    TN_RETURN_IF(
        tn_cli_emit(c, json_pack("{s:s, s:s, s:I, s:I, s:f, s:s, s:i}", "name", "context_tokens_per_s", "config",
                                 x->name, "context", (json_int_t)k->context, "batch", (json_int_t)k->batch, "value",
                                 k->tokens_per_s, "unit", "tokens/s", "timed_steps", k->steps)));
    return tn_cli_emit(c, json_pack("{s:s, s:s, s:I, s:I, s:I, s:s}", "name", "context_memory", "config", x->name,
                                    "context", (json_int_t)k->context, "batch", (json_int_t)k->batch, "value",
                                    (json_int_t)k->bytes, "unit", "bytes"));
}

static void print_cell(const tn_race *r, const tn_racer *x, const tn_context_row *k, int width)
{
    char at[48], rate[16], loss[24], memory[24], scored[24] = "-", speed[24] = "-";
    snprintf(at, sizeof at, "%lld x %lld", (long long)k->batch, (long long)k->context);
    if (k->scored) snprintf(scored, sizeof scored, "%lld", (long long)k->scored);
    if (!isnan(k->tokens_per_s))
        snprintf(speed, sizeof speed, "%s%s", tn_count_text(k->tokens_per_s, rate), k->steps == 1 ? "*" : " ");
    tn_race_print_name(r, x->name, width);
    fprintf(r->c->out, " %14s %14s %9s %11s %10s\n", at, tn_race_loss_text(k->loss, k->bits, loss), scored, speed,
            k->bytes ? tn_bytes_text((double)k->bytes, memory) : "-");
}

/* What the numbers of a context are: nobody should take them for those of a model that was trained there. */
static void print_trained_at(const tn_race *r)
{
    const int64_t first = tn_settings_int(r->racer[0].settings, "train.context");
    bool same = true;
    for (size_t i = 1; i < r->n; i++) same = same && tn_settings_int(r->racer[i].settings, "train.context") == first;
    fputs("These are the weights trained at a context of ", r->c->out);
    if (same) fprintf(r->c->out, "%lld", (long long)first);
    for (size_t i = 0; i < r->n && !same; i++)
        fprintf(r->c->out, "%s%lld (%s)", i ? ", " : "",
                (long long)tn_settings_int(r->racer[i].settings, "train.context"), r->racer[i].name);
    fputs(". Speed and memory are those of a training step at each length; memory is weights, gradients, optimizer "
          "state and activations, as planned.\n",
          r->c->out);
}

/* Why cells are empty, once for each reason; and what the star means. */
static void print_notes(const tn_race *r)
{
    bool star = false;
    for (size_t i = 0; i < r->n; i++)
        for (size_t j = 0; j < r->racer[i].n_measured; j++) {
            const tn_context_row *k = &r->racer[i].context[j];
            star = star || (!isnan(k->tokens_per_s) && k->steps == 1);
            if (k->why[0] && (j == 0 || strcmp(k->why, k[-1].why) != 0))
                fprintf(r->c->out, "- %s at %lld: %s\n", r->racer[i].name, (long long)k->context, k->why);
        }
    if (star) fprintf(r->c->out, "* a step takes more than a second: only one was timed\n");
    print_trained_at(r);
}

static tn_status show_contexts(const tn_race *r)
{
    const int w = tn_race_name_width(r);
    if (!r->c->json)
        fprintf(r->c->out, "\n%-*s %14s %14s %9s %11s %10s\n", w, "by context", "batch x tokens", "held out", "scored",
                "tokens/s ", "memory");
    for (size_t j = 0; j < r->contexts.n; j++)
        for (size_t i = 0; i < r->n; i++) {
            const tn_racer *x = &r->racer[i];
            if (x->n_measured <= j) continue;
            if (!r->c->json) print_cell(r, x, &x->context[j], w);
            else TN_RETURN_IF(emit_cell(r->c, x, &x->context[j]));
        }
    if (!r->c->json) print_notes(r);
    return TN_OK;
}

static tn_status write_csv(const tn_race *r)
{
    FILE *f;
    TN_RETURN_IF(tn_table_open(r->csv, &f));
    fputs("config,context,batch,loss,bits_per_byte,scored,tokens_per_s,timed_steps,memory_bytes\n", f);
    for (size_t i = 0; i < r->n; i++)
        for (size_t j = 0; j < r->racer[i].n_measured; j++) {
            const tn_context_row *k = &r->racer[i].context[j];
            tn_table_field(f, r->racer[i].name);
            fprintf(f, ",%lld,%lld", (long long)k->context, (long long)k->batch);
            tn_table_number(f, "%.6f", k->loss);
            tn_table_number(f, "%.6f", k->loss * k->bits);
            tn_table_number(f, "%.0f", k->scored ? (double)k->scored : NAN);
            tn_table_number(f, "%.1f", k->tokens_per_s);
            tn_table_number(f, "%.0f", k->steps ? (double)k->steps : NAN);
            tn_table_number(f, "%.0f", k->bytes ? (double)k->bytes : NAN);
            fputc('\n', f);
        }
    return tn_table_close(r->csv, f, TN_OK);
}

/* --- all of it -------------------------------------------------------------------------------------------------------- */

/* Where the models are, and what to type for them. */
static tn_status show_runs(const tn_race *r)
{
    const tn_racer *shown = NULL;
    char dir[TN_PATH_BYTES];
    for (size_t i = 0; i < r->n; i++) {
        const tn_race_trial *t = tn_race_chosen(&r->racer[i]);
        if (!t || !t->dir) continue;
        if (!shown) shown = &r->racer[i];
        if (r->c->json)
            TN_RETURN_IF(tn_cli_emit(r->c, json_pack("{s:s, s:s, s:s}", "name", "run", "config", r->racer[i].name,
                                                     "value", t->dir)));
    }
    if (!shown) return TN_OK;
    if (!r->c->json) fprintf(r->c->out, "runs    %s\n", r->dir);
    char more[TN_PATH_BYTES + 16] = "", object[TN_PATH_BYTES];
    if (shown->target && tn_word_asks(shown->target))
        snprintf(more, sizeof more, " model=%s", tn_shell_word(shown->target, object, sizeof object));
    tn_next_of(r->c, shown->writes ? "sample" : "eval", tn_race_chosen(shown)->dir, more);
    tn_next(r->c, "plot %s", tn_shell_word(r->dir, dir, sizeof dir));
    return TN_OK;
}

tn_status tn_race_show(const tn_race *r)
{
    if (!r->c->json) TN_RETURN_IF(draw(r, false));
    TN_RETURN_IF(tn_race_table(r));
    for (size_t i = 0; i < r->n; i++)
        if (r->racer[i].sample.n || r->racer[i].no_sample[0]) TN_RETURN_IF(show_sample(r, &r->racer[i]));
    if (r->racer[0].n_measured) TN_RETURN_IF(show_contexts(r));
    if (!r->c->json) tn_race_verdict(r);
    fflush(r->c->out); /* a file that cannot be written takes none of it away */
    tn_status s = r->svg ? draw(r, true) : TN_OK;
    if (s == TN_OK && r->csv) s = write_csv(r);
    if (s == TN_OK && r->svg && !r->c->json) fprintf(r->c->out, "picture %s\n", r->svg);
    TN_RETURN_IF(s);
    return show_runs(r);
}
