/* tenon wire eval: what readers answer given the message, less than the message, and the text itself, with what it costs. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/view.h"
#include "cli/wire/wire_eval.h"

#include <math.h>
#include <string.h>

enum { DRAWS = 2000, PROBED = 4000 }; /* PROBED: training texts that a probe is fitted on */

static const tn_setting rows[] = {
    TN_SETTING_CHOICE("split", "valid", "valid|test|train", "held-out texts, or those of the training"),
    TN_SETTING_BOOL("decode", "true", "answers are decoded, for EM and F1 (false: faster)"),
    TN_SETTING_AUTO_INT("max_tokens", "auto", TN_RANGE(1, 1e5), "tokens",
                        "of a decoded answer at most (auto: the longest right answer and a few more)"),
};

/* --- running ------------------------------------------------------------------------------------------------------------ */

static tn_status watch(void *ctx)
{
    tn_wire_evaluation *e = ctx;
    if (tn_interrupted(NULL)) return tn_error(TN_INTERRUPTED, "interrupted");
    const bool later = e->what != NULL, encodes = e->asked <= e->batches; /* asked once more where encoding ends */
    const int64_t at = later || encodes ? e->asked : e->asked - e->batches - 1, n = at % e->batches + 1;
    tn_progress_line(&e->line, tn_clock_s(), "%s  batch %lld of %lld",
                     later     ? e->what
                     : encodes ? "encoding"
                               : "reading",
                     (long long)n, (long long)e->batches);
    e->asked++;
    return TN_OK;
}

tn_status tn_wire_eval_open(tn_wire_evaluation *e, tn_saved_model *m, const tn_settings *keys)
{
    static const tn_data_split splits[] = { TN_VALID, TN_TEST, TN_TRAIN };
    const tn_data_split split = e->of = splits[tn_settings_choice(keys, "split")];
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

static tn_status measure(tn_wire_evaluation *e, const tn_settings *keys)
{
    const uint64_t seed = (uint64_t)tn_settings_int(e->s.settings, "seed");
    tn_interrupt_watch();
    tn_progress_start(&e->line, e->c->err);
    e->line.last_s = tn_clock_s(); /* a quick job draws nothing */
    e->line.drawn = !e->line.term.tty;
    tn_trainer_steady(e->s.trainer, true);
    tn_status s = tn_wire_controls_run(&e->s, seed, watch, e, &e->found);
    e->what = "decoding", e->asked = 0;
    if (s == TN_OK)
        s = tn_wire_decoded_run(&e->s, &e->found,
                                &(tn_wire_decoded_options){ .user = &e->c->user,
                                                            .split = e->of,
                                                            .seed = seed,
                                                            .only_bytes = !tn_settings_on(keys, "decode"),
                                                            .max_tokens = tn_settings_is_auto(keys, "max_tokens")
                                                                              ? 0
                                                                              : tn_settings_int(keys, "max_tokens"),
                                                            .stop = watch,
                                                            .ctx = e },
                                &e->said);
    e->what = "probing", e->asked = 0;
    if (s == TN_OK) s = tn_wire_probe_run(&e->s, &e->found, e->of, PROBED, watch, e, &e->probe);
    e->line.pending = e->line.pending && e->line.term.tty;
    tn_progress_end(&e->line);
    TN_RETURN_IF(s);
    return tn_wire_sizes_measure(&e->s, (int)e->of, &e->sizes);
}

/* Scores of the contexts (contexts), and their mean. */
static const float *scores_of(const tn_wire_evaluation *e, tn_wire_by by, tn_wire_method m, int k, double *mean)
{
    const tn_wire_decoded_score *d = &e->said.score[m][k];
    *mean = by == TN_WIRE_BY_TOKENS ? tn_wire_em(&e->found.score[m][k])
                                    : tn_wire_mean(by == TN_WIRE_BY_EM ? d->em_sum : d->f1_sum, e->said.questions);
    return by == TN_WIRE_BY_TOKENS ? e->found.score[m][k].em : by == TN_WIRE_BY_EM ? d->em : d->f1;
}

tn_status tn_wire_eval_against(const tn_wire_evaluation *e, int k, tn_wire_by by, tn_wire_method other, tn_paired *out)
{
    tn_status s = TN_OK;
    double mean;
    const int64_t contexts = e->found.contexts;
    const float *x = scores_of(e, by, TN_WIRE_LATENT, k, &mean), *y = scores_of(e, by, other, k, &mean);
    *out = (tn_paired){ NAN, NAN, NAN };
    double *a = tn_alloc(2 * sizeof *a * (size_t)contexts), *b = a ? a + contexts : NULL;
    int64_t n = 0;
    if (!a) return TN_MEMORY;
    for (int64_t i = 0; i < contexts; i++)
        if (!isnan(x[i])) a[n] = x[i], b[n++] = y[i];
    if (n) TN_TRY(tn_paired_bootstrap(a, b, n, DRAWS, (uint64_t)tn_settings_int(e->s.settings, "seed"), out));
done:
    tn_free(a);
    return s;
}

tn_status tn_wire_eval_compare(const tn_wire_evaluation *e, int k, tn_wire_by by, tn_wire_difference *out)
{
    double best, mean;
    out->budget = TN_WIRE_FIRST;
    (void)scores_of(e, by, TN_WIRE_FIRST, k, &best);
    for (tn_wire_method m = TN_WIRE_LAST; m <= TN_WIRE_RANDOM; m++) {
        (void)scores_of(e, by, m, k, &mean);
        if (mean > best) best = mean, out->budget = m;
    }
    return tn_wire_eval_against(e, k, by, out->budget, &out->latent);
}

tn_status tn_cmd_wire_eval(tn_cli *c)
{
    tn_status s = TN_OK;
    tn_settings *keys = NULL;
    tn_saved_model m = { .weights = "" };
    tn_wire_evaluation e = { .c = c, .target = tn_args_positional(&c->args, 1) };
    TN_TRY(tn_args_expect(&c->args, 2, 2));
    TN_TRY(tn_wire_keys(rows, sizeof rows / sizeof *rows, &keys));
    TN_TRY(tn_wire_find(c, keys, &m));
    e.split = tn_settings_text(keys, "split");
    if (tn_args_flag(&c->args, "latency")) TN_TRY(tn_wire_eval_latency(&e, &m, keys));
    else {
        TN_TRY(tn_wire_eval_open(&e, &m, keys));
        TN_TRY(measure(&e, keys));
        TN_TRY(tn_wire_eval_show(&e));
    }
done:
    tn_wire_decoded_free(&e.said);
    tn_wire_controls_free(&e.found);
    tn_session_close(&e.s);
    tn_saved_model_free(&m);
    tn_settings_free(keys);
    return s;
}
