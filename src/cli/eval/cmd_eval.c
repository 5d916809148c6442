/* tenon eval: the held-out metrics of a trained run over a whole split, those of a run or a file of weights on all of a text that is
 * named, or one of the views of eval.h. Trains nothing. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/setting_value.h"
#include "base/text.h"
#include "cli/eval/eval.h"
#include "cli/next.h"
#include "train/run/run_info.h"
#include "cli/view.h"
#include "data/manifest.h"
#include "train/checkpoint/checkpoint.h"
#include "train/run/saved_model.h"
#include "train/run/training.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- flags: one view at a time, and what belongs to it --- */

static const tn_setting rows[] = {
    TN_SETTING_INT("--positions", "0", TN_RANGE(2, 1e9), "tokens", ""),
    TN_SETTING_INT("--effective", "0", TN_RANGE(8, 1e9), "tokens", ""),
    TN_SETTING_INT("--tokens", "0", TN_RANGE(1, 1e18), "tokens", ""),
    TN_SETTING_INT("--samples", "0", TN_RANGE(1, 4096), "samples", ""),
};

static const struct {
    const char *flag;
    tn_eval_view view;
    const tn_setting *value; /* its value is a context, which may be left out; NULL: not so */
} view_flags[] = {
    { "positions", TN_EVAL_POSITIONS, &rows[0] },
    { "contexts", TN_EVAL_CONTEXTS, NULL },
    { "effective", TN_EVAL_RECEPTIVE_FIELD, &rows[1] },
    { "spectrum", TN_EVAL_SPECTRUM, NULL },
    { "flows", TN_EVAL_FLOWS, NULL },
};

static tn_status read_number(const tn_setting *row, const char *text, int64_t *out)
{
    tn_setting_value v;
    if (!text) return TN_OK;
    TN_RETURN_IF(tn_setting_parse(row, text, "command line", &v));
    *out = v.i;
    return TN_OK;
}

/* Splits of the text that a run was trained on are those of its training: others would count tokens that it has seen. A text that is named
 * is evaluated whole where no part of it is. */
static tn_status keep_splits(const tn_cli *c)
{
    static const char *const keys[] = { "train.test_frac", "train.holdout_frac" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (!tn_cli_override(c, keys[i])) continue;
        if (!tn_cli_override(c, "data"))
            return tn_error(
                TN_USAGE,
                "%s: the run may have trained on that part of its text: set it when training, or name other "
                "text with data=FILE",
                keys[i]);
        if (!tn_cli_override(c, "split"))
            return tn_error(TN_USAGE, "%s: data=FILE is evaluated whole: name the part with split=valid or split=test",
                            keys[i]);
    }
    return TN_OK;
}

/* Text that the command names; a prepared folder has splits of its own. */
static bool names_raw_data(const tn_cli *c)
{
    char path[TN_PATH_BYTES];
    const char *data = tn_cli_override(c, "data");
    return data && data[0] && tn_path_join(data, TN_MANIFEST_NAME, path, sizeof path) == TN_OK &&
           access(path, F_OK) != 0;
}

const char *tn_eval_part(const tn_eval *e) { return e->whole ? "all" : tn_data_split_names[e->split]; }

static tn_status read_options(tn_cli *c, tn_eval *out)
{
    TN_RETURN_IF(keep_splits(c));
    const tn_args *a = &c->args;
    tn_eval e = { .c = c,
                  .target = tn_args_positional(a, 0),
                  .csv = tn_args_value(a, "csv"),
                  .svg = tn_args_value(a, "svg"),
                  .html = tn_args_value(a, "html"),
                  .whole = names_raw_data(c) && !tn_cli_override(c, "split") };
    for (size_t i = 0; i < sizeof view_flags / sizeof *view_flags; i++) {
        if (!tn_args_flag(a, view_flags[i].flag)) continue;
        if (e.view)
            return tn_error(TN_USAGE,
                            "--positions, --contexts, --effective, --spectrum and --flows conflict: choose one");
        e.view = view_flags[i].view;
        if (view_flags[i].value)
            TN_RETURN_IF(read_number(view_flags[i].value, tn_args_value(a, view_flags[i].flag), &e.context));
    }
    if (e.view == TN_EVAL_CONTEXTS)
        TN_RETURN_IF(tn_spans_read("--contexts", tn_args_value(a, "contexts"), &e.contexts));
    TN_RETURN_IF(read_number(&rows[2], tn_args_value(a, "tokens"), &e.tokens));
    TN_RETURN_IF(read_number(&rows[3], tn_args_value(a, "samples"), &e.samples));
    if (e.view == TN_EVAL_LOSS && (e.csv || e.svg))
        return tn_error(TN_USAGE, "--csv and --svg need --positions, --contexts, --effective, --spectrum or --flows");
    if ((e.view == TN_EVAL_LOSS || e.view == TN_EVAL_FLOWS) && e.tokens)
        return tn_error(TN_USAGE, "--tokens needs --positions, --contexts, --effective or --spectrum");
    if (e.view != TN_EVAL_FLOWS && (e.html || e.samples))
        return tn_error(TN_USAGE, "--html and --samples need --flows");
    *out = e;
    return TN_OK;
}

/* --- what is evaluated --- */

/* A checkpoint stands in its run, which has the settings. */
static tn_status find_run(const char *target, char run[TN_PATH_BYTES])
{
    char path[TN_PATH_BYTES];
    for (int up = 0; up < 2; up++) {
        TN_RETURN_IF(up ? tn_path_join(target, "..", run, TN_PATH_BYTES)
                        : tn_path_join("", target, run, TN_PATH_BYTES));
        TN_RETURN_IF(tn_path_join(run, "config.yaml", path, sizeof path));
        if (access(path, F_OK) == 0) return TN_OK;
    }
    return tn_error(TN_BAD_FILE,
                    "%.640s is not a run: it has no config.yaml (`tenon train` makes runs), nor config.json, as a "
                    "Hugging Face folder has",
                    target);
}

/* What the target says of its settings: a run by its config.yaml, a file of weights by words. */
static tn_status find_settings(tn_cli *c, const char *target, char run[TN_PATH_BYTES], tn_arena *arena,
                               tn_session_options *o)
{
    const char **said;
    tn_matrices matrices;
    if (!tn_is_weights_file(target)) {
        o->target = run;
        return find_run(target, run);
    }
    TN_RETURN_IF(tn_weights_words(target, arena, &said, &o->n_said, &matrices));
    if (o->frozen) tn_cli_expanded(c, target, &matrices);
    o->matrices = matrices.type;
    o->file = target;
    o->said = said;
    return TN_OK;
}

/* split= is ours; all other overrides are settings. */
static tn_status sort_overrides(const tn_args *a, const char **settings, size_t *n, tn_data_split *split)
{
    *n = 0;
    *split = TN_VALID;
    for (size_t i = 0; i < a->overrides_n; i++) {
        const char *o = a->overrides[i];
        if (strncmp(o, "window=", 7) == 0 || strncmp(o, "stride=", 7) == 0)
            return tn_error(TN_USAGE,
                            "%.80s: windows are for a whole text (data=TEXT, without split= and views): remove it", o);
        if (strncmp(o, "split=", 6) != 0) settings[(*n)++] = o;
        else if (strcmp(o + 6, "test") == 0) *split = TN_TEST;
        else if (strcmp(o + 6, "valid") == 0) *split = TN_VALID;
        else return tn_error(TN_USAGE, "%.80s: choose valid or test", o);
    }
    return TN_OK;
}

/* Raw text is read with the model's own tokenizer, which settings do not name where a file or a data set brings it. *word: tokenizer=..., or
 * NULL. Where the model is not found, opening the session says why. */
static tn_status tokenizer_word(const tn_eval *e, tn_arena *arena, const char **word)
{
    tn_status st = TN_OK;
    tn_saved_model m = { 0 };
    char spec[TN_PATH_BYTES];
    *word = NULL;
    if (!names_raw_data(e->c)) return TN_OK;
    const bool reads =
        tn_saved_model_find(&e->c->user, e->target, NULL, 0, "best", &m) == TN_OK && tn_model_reads_sequences(m.model);
    if (reads && e->whole) st = tn_eval_warn_of_own(e->c, m.settings, tn_cli_override(e->c, "data"));
    if (reads && st == TN_OK && !tn_cli_override(e->c, "tokenizer")) {
        st = tn_saved_model_tokenizer_spec(&m, spec);
        if (st == TN_OK && strcmp(spec, "bytes") != 0) *word = tn_arena_printf(arena, "tokenizer=%s", spec);
    }
    tn_saved_model_free(&m);
    return st;
}

typedef struct outcome {
    const char *target, *split;
    tn_evaluation found;
    double seconds;
    const char *counts; /* what is counted, and how many of it */
    int64_t counted;
} outcome;

static tn_status emit_number(tn_cli *c, const outcome *o, const char *name, double value, const char *unit)
{
    return tn_cli_emit(c, json_pack("{s:s, s:s, s:o, s:s}", "name", name, "split", o->split, "value",
                                    tn_number_or_null(value), "unit", unit));
}

static tn_status emit_count(tn_cli *c, const outcome *o, const char *name, int64_t value)
{
    return tn_cli_emit(c, json_pack("{s:s, s:s, s:I, s:s}", "name", name, "split", o->split, "value", (json_int_t)value,
                                    "unit", name));
}

static tn_status emit(tn_cli *c, const outcome *o)
{
    char name[32];
    const double rate = (double)o->counted / o->seconds, loss = tn_scores_first(&o->found.scores);
    const bool perplexity = strcmp(o->counts, "tokens") == 0 && strcmp(o->found.scores.at[0].name, "loss") == 0;
    if (!c->json) {
        fprintf(c->out, "%s, %s: ", o->target, o->split);
        tn_scores_print(c->out, &o->found.metrics, &o->found.scores, o->counts, false);
        if (perplexity) fprintf(c->out, ", perplexity %s", TN_NUMBER(exp(loss)));
        fprintf(c->out, ", %lld %s, %.0f %s/s\n", (long long)o->counted, o->counts, rate, o->counts);
        return TN_OK;
    }
    TN_RETURN_IF(tn_scores_emit(c, &o->found.metrics, &o->found.scores, "", o->counts, o->split));
    if (perplexity) TN_RETURN_IF(emit_number(c, o, "perplexity", exp(loss), ""));
    TN_RETURN_IF(emit_count(c, o, o->counts, o->counted));
    snprintf(name, sizeof name, "%s_per_s", o->counts);
    return tn_cli_emit(c, json_pack("{s:s, s:s, s:f, s:s++}", "name", name, "split", o->split, "value", rate, "unit",
                                    o->counts, "/", "s"));
}

static tn_status check_split(const tn_session *s, tn_data_split split)
{
    struct stat file;
    if (split == TN_TRAIN) return TN_OK; /* of what is evaluated whole: text that is not there is no data set */
    const char *name = tn_data_split_names[split];
    if (tn_session_count(s, split) > 0) return TN_OK;
    if (s->model->records && s->source.epoch_batches && !tn_settings_text(s->settings, "task.name")[0])
        return tn_error(TN_USAGE, "the data of model %s have no %s split: hold out some of its records", s->model->name,
                        name);
    if (s->source.epoch_batches)
        return tn_error(TN_USAGE, "the task %s has no %s split: train with task.%s_frac larger than 0",
                        tn_settings_text(s->settings, "task.name"), name, name);
    const char *data = tn_settings_text(s->settings, "data");
    if (stat(data, &file) == 0 && S_ISREG(file.st_mode))
        return tn_error(TN_USAGE, "%.640s has no %s split: set %s=0.1", data, name,
                        split == TN_TEST ? "train.test_frac" : "train.holdout_frac");
    return tn_error(TN_USAGE, "%.640s has no %s split: prepare it with %s_frac= or %s=FILE", data, name, name, name);
}

static tn_status emit_play(tn_cli *c, const char *target, const tn_metric_row *own, const tn_source_play *p)
{
    if (!c->json) {
        fprintf(c->out, "%s, greedy actions: mean %s %.1f +-%.1f over %lld episodes\n", target, own->name, p->mean,
                p->deviation, (long long)p->episodes);
        return TN_OK;
    }
    return tn_cli_emit(c, json_pack("{s:s, s:f, s:s, s:f, s:I}", "name", own->name, "value", p->mean, "unit", own->unit,
                                    "deviation", p->deviation, "episodes", (json_int_t)p->episodes));
}

static tn_status (*const views[])(const tn_eval *e, tn_session *s) = {
    [TN_EVAL_POSITIONS] = tn_eval_positions,
    [TN_EVAL_CONTEXTS] = tn_eval_contexts,
    [TN_EVAL_RECEPTIVE_FIELD] = tn_eval_receptive_field,
    [TN_EVAL_SPECTRUM] = tn_eval_spectrum,
    [TN_EVAL_FLOWS] = tn_eval_flows,
};

static tn_status check_view(const tn_eval *e, const tn_session *s)
{
    if (e->view == TN_EVAL_FLOWS && !tn_eval_has_flows(s->model))
        return tn_error(TN_USAGE,
                        "--flows needs a model of flows: %.640s is a %s model; train one with `tenon "
                        "train flow task=strokes`",
                        e->target, s->model->name);
    if (e->view && e->view != TN_EVAL_FLOWS && !s->source.text)
        return tn_error(
            TN_USAGE,
            "%.640s is trained on samples: --positions, --contexts, --effective and --spectrum need a model of text",
            e->target);
    return TN_OK;
}

static tn_status evaluate(const tn_eval *e, tn_session *s)
{
    tn_cli *c = e->c;
    const char *target = e->target;
    const tn_data_split split = e->split;
    tn_source_play played;
    char checkpoint[TN_PATH_BYTES], note[TN_CKPT_NOTE];
    bool is_file;
    outcome o = { .target = target, .split = tn_eval_part(e) };
    TN_RETURN_IF(tn_ckpt_resolve(target, "best", checkpoint, &is_file, note));
    TN_RETURN_IF(tn_cli_warn(c, note));
    TN_RETURN_IF(check_view(e, s));
    if (!s->source.play) TN_RETURN_IF(check_split(s, split));
    tn_ckpt_id seen = tn_ckpt_id_of(checkpoint);
    tn_status st;
    do st = tn_weights_load(checkpoint, tn_trainer_store(s->trainer), note);
    while (st == TN_BAD_FILE && tn_ckpt_replaced(target, "best", checkpoint, &seen));
    TN_RETURN_IF(st);
    tn_session_describe(s, c->err);
    char shown[512]; /* a file's name may have lines of its own */
    fprintf(c->err, "weights %s\n", tn_text_quote(checkpoint, shown, sizeof shown));
    if (e->view) return views[e->view](e, s);
    if (s->source.play) {
        TN_RETURN_IF(s->source.play(s->source.ctx, TN_SESSION_EPISODES, &played));
        return emit_play(c, target, s->source.metrics, &played);
    }
    const double start = tn_clock_s();
    tn_trainer_steady(s->trainer, true);
    TN_RETURN_IF(tn_evaluate(s->trainer, &s->source, 0, &o.found));
    o.seconds = tn_clock_s() - start;
    o.counts = tn_metric_counts(&s->source);
    o.counted = strcmp(o.counts, "samples") == 0 ? tn_session_count(s, split) : o.found.count;
    return emit(c, &o);
}

static void say_next(const tn_eval *e, const tn_session *s)
{
    char path[TN_PATH_BYTES];
    if (s->source.text) tn_next_of(e->c, "sample", e->target, "");
    else if (!e->view && tn_eval_has_flows(s->model)) tn_next_of(e->c, "eval", e->target, " --flows --html=flows.html");
    else if (tn_is_run(e->target)) tn_next(e->c, "plot %s", tn_shell_word(e->target, path, sizeof path));
}

tn_status tn_cmd_eval(tn_cli *c)
{
    tn_status st = TN_OK;
    tn_session s = { 0 };
    tn_session_options o = { .user = &c->user, .needs_data = true, .evaluates = true };
    char run[TN_PATH_BYTES];
    tn_arena arena = { 0 };
    tn_eval e;
    TN_RETURN_IF(tn_args_expect(&c->args, 1, 1));
    TN_RETURN_IF(read_options(c, &e));
    bool taken = false;
    if (!e.view) TN_RETURN_IF(tn_eval_text(c, e.target, &taken));
    if (taken) return TN_OK;
    const char **settings = tn_alloc((c->args.overrides_n + 2) * sizeof *settings);
    if (!settings) return TN_MEMORY;
    st = sort_overrides(&c->args, settings, &o.n, &o.split);
    o.frozen = !e.view; /* views read parameters and change settings */
    if (st == TN_OK) st = find_settings(c, e.target, run, &arena, &o);
    o.overrides = settings;
    o.weights = e.target;
    o.instruments = e.view == TN_EVAL_SPECTRUM;
    if (o.instruments) settings[o.n++] = "plan.recompute=none"; /* chunks put out nothing for instruments */
    const char *tokenizer = NULL;
    if (st == TN_OK) st = tokenizer_word(&e, &arena, &tokenizer);
    if (tokenizer) settings[o.n++] = tokenizer;
    o.whole = e.whole;
    if (st == TN_OK) st = tn_session_open_with(&o, &s);
    e.whole = e.whole && s.source.text; /* records and samples have splits of their own */
    e.split = e.whole ? TN_TRAIN : o.split;
    if (st == TN_OK) st = evaluate(&e, &s);
    if (st == TN_OK) say_next(&e, &s);
    tn_session_close(&s);
    tn_arena_free(&arena);
    tn_free(settings);
    return st;
}
