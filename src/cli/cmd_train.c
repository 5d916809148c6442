/* tenon train: trains a model on text and leaves a run directory behind. */
#include "base/fs.h"
#include "cli/train_view.h"
#include "train/run.h"

#include <math.h>

static tn_status emit_result(tn_cli *c, const char *dir, const tn_progress_report *r)
{
    const double bits = 1 / log(2);
    if (!c->json) {
        fprintf(c->out, "run %s: %lld steps, held out %.4f nats (%.3f bits per byte), %.0f tokens/s\n", dir, (long long)r->step,
                r->heldout, r->heldout * bits, r->tokens_per_s);
        return TN_OK;
    }
    TN_RETURN_IF(tn_cli_emit(c, json_pack("{s:s, s:s}", "name", "run", "value", dir)));
    TN_RETURN_IF(tn_cli_emit(c, json_pack("{s:s, s:I, s:s}", "name", "steps", "value", (json_int_t)r->step, "unit", "steps")));
    if (!isnan(r->heldout))
        TN_RETURN_IF(tn_cli_emit(c, json_pack("{s:s, s:f, s:s}", "name", "heldout_loss", "value", r->heldout, "unit", "nats/token")));
    return tn_cli_emit(c, json_pack("{s:s, s:f, s:s}", "name", "tokens_per_s", "value", r->tokens_per_s, "unit", "tokens/s"));
}

static tn_status train(tn_cli *c, tn_session *on, const char *dir, tn_train_view *view)
{
    tn_status s = TN_OK;
    char path[TN_RUN_PATH];
    tn_jsonl *metrics = NULL;
    tn_progress_report last = { .heldout = NAN };
    TN_TRY(tn_path_join(dir, "metrics.jsonl", path, sizeof path));
    TN_TRY(tn_jsonl_open(path, false, &metrics));
    const tn_training t = { .trainer = on->trainer, .settings = on->settings, .data = on->data, .metrics = metrics,
                            .batch = on->batch, .length = on->length, .ctx = view, .report = tn_train_view_report,
                            .interrupted = tn_interrupted };
    s = tn_training_run(&t, &last);
    tn_train_view_end(view);
    if (s == TN_OK || s == TN_INTERRUPTED) {
        const tn_status saved = tn_run_save_weights(dir, tn_trainer_store(on->trainer));
        if (saved != TN_OK) s = saved;
    }
    if (s == TN_OK) TN_TRY(emit_result(c, dir, &last));
done:
    if (metrics) {
        const tn_status closed = tn_jsonl_close(metrics);
        if (s == TN_OK) s = closed;
    }
    return s;
}

tn_status tn_cmd_train(tn_cli *c)
{
    tn_session s = { 0 };
    char dir[TN_RUN_PATH];
    tn_train_view view;
    TN_RETURN_IF(tn_args_expect(&c->args, 0, 1));
    TN_RETURN_IF(tn_session_open(tn_args_positional(&c->args, 0), c->args.overrides, c->args.overrides_n, true, &s));
    tn_status st = tn_run_create(s.settings, tn_settings_text(s.settings, "model"), tn_args_flag(&c->args, "fresh"), dir);
    if (st == TN_OK) {
        tn_session_describe(&s, c->err);
        fprintf(c->err, "run     %s\n", dir);
        tn_interrupt_watch();
        tn_train_view_start(&view, c->err, "");
        st = train(c, &s, dir, &view);
        tn_train_view_free(&view);
    }
    tn_session_close(&s);
    return st;
}
