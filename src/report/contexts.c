/* Measuring other contexts: a trainer per context on the same store, first without gradients for the loss, then with
 * them for speed and memory. */
#include "report/contexts.h"

#include "base/clock.h"
#include "report/at_context.h"
#include "report/bench/timing.h"
#include "train/run/training.h"

#include <math.h>
#include <stdio.h>

enum { MOST_STEPS = 3 };

typedef struct bench {
    tn_at_context at;
    tn_source source;
} bench;

static void close_bench(bench *b)
{
    tn_source_close(&b->source);
    tn_at_context_close(&b->at);
}

static tn_status open_bench(const tn_contexts *o, const tn_context_row *r, bool trains, bench *b)
{
    TN_RETURN_IF(tn_at_context_open(&(tn_at_context_options){ .model = o->model,
                                                              .settings = o->settings,
                                                              .store = o->store,
                                                              .batch = r->batch,
                                                              .context = r->context,
                                                              .trains = trains,
                                                              .documents = tn_source_marks_documents(o->mode) },
                                    &b->at));
    return tn_source_text_open(&(tn_source_text_options){ .data = o->data, .mode = o->mode, .prefetch = 1 },
                               &(tn_source_start){ .trainer = b->at.trainer,
                                                   .batch = r->batch,
                                                   .length = r->context,
                                                   .heldout = o->split,
                                                   .heldout_only = !trains },
                               &b->source);
}

static tn_status score(const tn_contexts *o, bench *b, tn_context_row *r)
{
    tn_evaluation e;
    const int64_t a_batch = r->batch * r->context;
    TN_RETURN_IF(tn_evaluate(b->at.trainer, &b->source, (o->score + a_batch - 1) / a_batch, &e));
    r->loss = tn_scores_first(&e.scores);
    r->scored = e.count;
    r->bits = b->source.bits;
    return TN_OK;
}

static tn_status one_step(bench *b, double *seconds)
{
    int64_t count;
    float loss;
    tn_update_result applied;
    const double start = tn_clock_s();
    TN_RETURN_IF(tn_source_next(&b->source, 0, b->at.trainer, &count));
    TN_RETURN_IF(tn_trainer_grad(b->at.trainer, 0, &loss));
    TN_RETURN_IF(tn_trainer_apply(b->at.trainer, 0, 1, loss, &applied));
    *seconds = tn_clock_s() - start;
    return TN_OK;
}

static tn_status time_steps(const tn_contexts *o, bench *b, tn_context_row *r)
{
    double first, took[MOST_STEPS], all = 0;
    r->bytes = tn_trainer_memory(b->at.trainer).total;
    TN_RETURN_IF(one_step(b, &first));
    took[0] = first;
    r->steps = 1;
    for (int n = 0; first <= o->budget_s && n < MOST_STEPS && (n == 0 || all + all / n <= 2 * o->budget_s); n++) {
        TN_RETURN_IF(one_step(b, &took[n]));
        all += took[n];
        r->steps = n + 1;
    }
    r->tokens_per_s = (double)(r->batch * r->context) / tn_median(took, (size_t)r->steps, NULL);
    return TN_OK;
}

/* Before memory and time go into a sequence that the held-out text cannot fill; where steps are timed as well, those come first. */
static tn_status check_text(const tn_contexts *o, const tn_context_row *r)
{
    const unsigned long long has = tn_dataset_count(o->data, o->split).tokens;
    if (!o->loss_only || (uint64_t)r->context <= has) return TN_OK;
    return tn_error(TN_USAGE, "the held-out text ends after %llu tokens", has);
}

/* What is wrong with one context is said in its row; what is wrong with the machine ends it all. */
static tn_status measure(const tn_contexts *o, tn_context_row *r, bool trains)
{
    bench b = { 0 };
    if (r->why[0]) return TN_OK;
    if (o->interrupted && o->interrupted(o->ctx))
        return tn_error(TN_INTERRUPTED, "interrupted while measuring contexts");
    if (o->progress) o->progress(o->ctx, trains ? "training speed" : "held-out loss", r->context);
    tn_status s = check_text(o, r);
    if (s == TN_OK) s = open_bench(o, r, trains, &b);
    if (s == TN_OK) s = trains ? time_steps(o, &b, r) : score(o, &b, r);
    close_bench(&b);
    if (s != TN_USAGE && s != TN_MEMORY && s != TN_BAD_FILE) return s;
    snprintf(r->why, sizeof r->why, "%s", tn_error_text());
    return TN_OK;
}

tn_status tn_contexts_measure(const tn_contexts *o, tn_context_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const int64_t T = rows[i].context;
        rows[i] = (tn_context_row){
            .context = T, .batch = o->tokens / T > 0 ? o->tokens / T : 1, .loss = NAN, .bits = NAN, .tokens_per_s = NAN
        };
    }
    for (size_t i = 0; i < n; i++) TN_RETURN_IF(measure(o, &rows[i], false));
    for (size_t i = 0; i < n; i++)
        if (!o->loss_only) TN_RETURN_IF(measure(o, &rows[i], true));
    return TN_OK;
}
