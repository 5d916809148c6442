/* tenon data prepare: files and folders into shards to train on. tenon data inspect is in data_inspect.c. */
#include "base/clock.h"
#include "cli/data/data_view.h"
#include "cli/next.h"
#include "cli/view.h"
#include "cli/term.h"
#include "data/prepare.h"

#include <string.h>

static void show_progress(void *view, const tn_prepare_progress *p)
{
    tn_progress *line = view;
    char tokens[16];
    const double s = p->seconds > 0 ? p->seconds : 1e-9,
                 left = p->done ? s * ((double)p->total / (double)p->done - 1) : 0;
    const int eta = left > 0 && left < 1e7 ? (int)left : 0;
    if (strcmp(p->phase, "merge") == 0) {
        tn_progress_line(line, tn_clock_s(), "tokenizer  %llu of %llu tokens", (unsigned long long)p->done,
                         (unsigned long long)p->total);
        return;
    }
    tn_progress_line(line, tn_clock_s(), "%s  %.1f of %.1f MB  %3.0f %%  %.1f MB/s  %s tokens  eta %d:%02d",
                     strcmp(p->phase, "count") == 0 ? "tokenizer" : p->phase, (double)p->done / 1e6,
                     (double)p->total / 1e6, p->total ? 100 * (double)p->done / (double)p->total : 100.0,
                     (double)p->done / 1e6 / s, tn_count_text((double)p->tokens, tokens), eta / 60, eta % 60);
}

static tn_status describe(tn_cli *c, const char *dir, const tn_prepare_report *r)
{
    tn_dataset *d = NULL;
    TN_RETURN_IF(tn_dataset_open(dir, NULL, &d));
    if (r->up_to_date) fprintf(c->err, "%s is up to date: same inputs and settings\n", dir);
    else
        fprintf(c->err, "prepared %zu file%s, %.1f MB, in %.1f s (%.1f MB/s)\n", r->files, r->files == 1 ? "" : "s",
                (double)r->input_bytes / 1e6, r->seconds,
                (double)r->input_bytes / 1e6 / (r->seconds > 0 ? r->seconds : 1e-9));
    if (r->skipped)
        fprintf(c->err, "note: skipped %zu file%s of unknown type\n", r->skipped, r->skipped == 1 ? "" : "s");
    if (tn_dataset_count(d, TN_VALID).documents == 0)
        fprintf(c->err, "note: the validation split is empty, there are few documents: set valid=FILE, doc_sep or a "
                        "larger valid_frac\n");
    TN_RETURN_IF(tn_data_emit_text(c, "dataset", dir));
    TN_RETURN_IF(tn_data_emit_text(c, "up_to_date", r->up_to_date ? "yes" : "no"));
    const tn_status s = tn_data_print(c, dir, d);
    tn_dataset_close(d);
    return s;
}

tn_status tn_data_prepare(tn_cli *c)
{
    tn_status s = TN_OK;
    tn_settings *st = NULL;
    tn_prepare_report report;
    tn_progress line;
    char out[TN_PATH_BYTES];
    TN_TRY(tn_prepare_settings(&st));
    for (size_t i = 0; i < c->args.overrides_n; i++) TN_TRY(tn_settings_override(st, c->args.overrides[i]));
    tn_progress_start(&line, c->err);
    line.last_s = tn_clock_s(); /* a quick job draws nothing */
    line.drawn = !line.term.tty;
    tn_interrupt_watch();
    const tn_prepare p = { .inputs = c->args.positional + 1,
                           .n = c->args.positional_n - 1,
                           .settings = st,
                           .ctx = &line,
                           .progress = show_progress,
                           .interrupted = tn_interrupted };
    s = tn_prepare_run(&p, &report);
    line.pending = line.pending && line.term.tty;
    tn_progress_end(&line);
    if (s == TN_OK) TN_TRY(describe(c, tn_settings_text(st, "out"), &report));
    if (s == TN_OK) tn_next(c, "train ten_tiny data=%s", tn_shell_word(tn_settings_text(st, "out"), out, sizeof out));
done:
    tn_settings_free(st);
    return s;
}
