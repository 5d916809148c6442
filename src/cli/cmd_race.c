/* tenon race: trains several configurations on the same data with the same seed, step for step, one after the other,
 * and draws their held-out losses together. Every one gets the same number of steps and tokens. */
#include "cli/train_view.h"
#include "report/plot.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8 };

typedef struct racer {
    const char *name;
    tn_train_view view;
    double heldout, tokens_per_s;
    int64_t parameters;
    size_t bytes;
} racer;

static tn_status run_one(tn_cli *c, racer *r)
{
    tn_session s = { 0 };
    tn_progress_report last = { .heldout = NAN };
    TN_RETURN_IF(tn_session_open(r->name, c->args.overrides, c->args.overrides_n, true, &s));
    tn_session_describe(&s, c->err);
    r->parameters = tn_trainer_parameters(s.trainer);
    r->bytes = tn_trainer_memory(s.trainer).total;
    tn_train_view_start(&r->view, c->err, r->name);
    const tn_training t = { .trainer = s.trainer, .settings = s.settings, .source = &s.source, .batch = s.batch,
                            .length = s.length, .ctx = &r->view, .report = tn_train_view_report,
                            .interrupted = tn_interrupted };
    const tn_status st = tn_training_run(&t, NULL, &last);
    tn_train_view_end(&r->view);
    r->heldout = last.heldout * tn_bits_of(&last);
    r->tokens_per_s = last.tokens_per_s;
    tn_session_close(&s);
    return st == TN_OK ? r->view.status : st;
}

/* All of them, before the first one trains: a wrong name at the end should not cost a run. */
static tn_status check_all(tn_cli *c)
{
    for (size_t i = 0; i < c->args.positional_n; i++) {
        tn_session s = { 0 };
        const char *name = tn_args_positional(&c->args, i);
        const tn_status st = tn_session_open(name, c->args.overrides, c->args.overrides_n, true, &s);
        if (st != TN_OK) {
            if (!strstr(tn_error_text(), name)) tn_error_prefix("%s", name);
            return st;
        }
        tn_session_close(&s);
    }
    return TN_OK;
}

static tn_status draw(tn_cli *c, const racer *r, size_t n)
{
    tn_series series[MOST];
    const tn_term term = tn_term_of(c->out);
    const char *svg = tn_args_value(&c->args, "svg"), *lang = setlocale(LC_CTYPE, "");
    for (size_t i = 0; i < n; i++)
        series[i] = (tn_series){ .name = r[i].name, .x = r[i].view.train.x, .y = r[i].view.train.y, .n = r[i].view.train.n };
    tn_plot p = { .title = "training loss", .x_label = "step", .y_label = "bits per byte", .series = series, .count = n,
                  .width = term.width < 100 ? term.width : 100, .height = 22, .colour = term.color,
                  .ascii = !lang || !strstr(lang, "UTF-8") };
    TN_RETURN_IF(tn_plot_text(&p, c->out));
    if (!svg) return TN_OK;
    FILE *f = fopen(svg, "w");
    if (!f) return tn_error(TN_DISK, "cannot write %s", svg);
    const tn_status s = tn_plot_svg(&p, f);
    if (fclose(f) != 0 && s == TN_OK) return tn_error(TN_DISK, "cannot write %s", svg);
    return s;
}

static tn_status table(tn_cli *c, const racer *r, size_t n)
{
    char count[16], rate[16];
    if (!c->json) fprintf(c->out, "\n%-16s %12s %18s %14s %12s\n", "", "parameters", "held out", "tokens/s", "memory");
    for (size_t i = 0; i < n; i++) {
        if (c->json)
            TN_RETURN_IF(tn_cli_emit(c, json_pack("{s:s, s:s, s:f, s:s, s:I, s:f}", "name", "heldout_bits_per_byte", "config",
                                                  r[i].name, "value", r[i].heldout, "unit", "bits/byte", "parameters",
                                                  (json_int_t)r[i].parameters, "tokens_per_s", r[i].tokens_per_s)));
        else
            fprintf(c->out, "%-16s %12s %13.3f b/B %14s %9.0f MB\n", r[i].name, tn_count_text((double)r[i].parameters, count),
                    r[i].heldout, tn_count_text(r[i].tokens_per_s, rate), (double)r[i].bytes / 1e6);
    }
    return TN_OK;
}

tn_status tn_cmd_race(tn_cli *c)
{
    racer r[MOST] = { 0 };
    tn_status s = TN_OK;
    const size_t n = c->args.positional_n;
    TN_RETURN_IF(tn_args_expect(&c->args, 2, MOST));
    TN_RETURN_IF(check_all(c));
    tn_interrupt_watch();
    for (size_t i = 0; i < n && s == TN_OK; i++) {
        r[i].name = tn_args_positional(&c->args, i);
        s = run_one(c, &r[i]);
    }
    if (s == TN_OK && !c->json) s = draw(c, r, n);
    if (s == TN_OK) s = table(c, r, n);
    for (size_t i = 0; i < n; i++) tn_train_view_free(&r[i].view);
    return s;
}
