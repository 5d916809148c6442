/* Measures what the rules list: each candidate in turn with the configuration as it is. */
#include "report/advice/advice.h"

#include "base/clock.h"
#include "report/probe/probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct advising {
    const tn_session *s;
    const tn_advice_options *o;
    tn_step_probe *as_is;
} advising;

/* Lines of metrics are measured in a run without an end or an evaluation. */
static const char *const endless[] = { "train.epochs=0", "train.steps=1000000", "train.eval_every=0",
                                       "train.eval_batches=1" };
enum { ENDLESS = sizeof endless / sizeof *endless };

/* As it is: n = 0. */
static tn_status open_probe(const advising *x, const tn_advice *a, size_t n, tn_step_probe **out)
{
    const char *word[ENDLESS + TN_ADVICE_WORDS];
    size_t words = 0;
    for (size_t i = 0; a && a->lines && i < ENDLESS; i++) word[words++] = endless[i];
    for (size_t i = 0; i < n; i++) word[words++] = a->word[i];
    return tn_step_probe_open(&(tn_step_probe_options){ .user = x->o->user,
                                                        .settings = x->s->settings,
                                                        .model = x->s->model,
                                                        .word = word,
                                                        .n = words,
                                                        .source = "advice",
                                                        .dir = x->o->dir },
                              out);
}

static void close_as_is(advising *x)
{
    tn_step_probe_close(x->as_is);
    x->as_is = NULL;
}

/* One side serves all candidates, unless the work of a step depends on its data or the weights: then equal steps are compared. */
static tn_status open_as_is(advising *x, const tn_advice *a)
{
    if (x->as_is && (a->lines || tn_step_probe_varies(x->as_is))) close_as_is(x);
    return x->as_is ? TN_OK : open_probe(x, a, 0, &x->as_is);
}

/* A candidate that does not fit, or that the model refuses, is none. */
static tn_status probe(advising *x, double until, tn_advice *a, bool *late)
{
    tn_step_probe *b = NULL;
    *late = false;
    tn_status s = open_as_is(x, a);
    if (s != TN_OK) return a->lines && s == TN_USAGE ? TN_OK : s;
    s = open_probe(x, a, a->n, &b);
    if (s == TN_MEMORY || s == TN_USAGE) return TN_OK;
    if (s == TN_OK) a->more_bytes = tn_step_probe_bytes(b) - tn_step_probe_bytes(x->as_is);
    if (s == TN_OK)
        s = tn_advice_measure(&(tn_advice_turns){ .as_is = x->as_is, .changed = b, .until = until }, a, late);
    tn_step_probe_close(b);
    if (a->lines) close_as_is(x); /* it is another run */
    return s;
}

/* What leaves the training as it is comes first, if it is worth a line of its own. */
static bool is_free(const tn_advice *a) { return a->same && a->gain.median >= 1.1; }

static int larger(const void *a, const void *b)
{
    const tn_advice *x = a, *y = b;
    if (is_free(x) != is_free(y)) return is_free(x) ? -1 : 1;
    return (x->gain.median < y->gain.median) - (x->gain.median > y->gain.median);
}

/* Only what was seen, and of each rule the best. */
static size_t choose(tn_advice *advice, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (advice[i].gain.median >= TN_ADVICE_LEAST && advice[i].gain.low > 1) advice[kept++] = advice[i];
    qsort(advice, kept, sizeof *advice, larger);
    n = kept, kept = 0;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < kept && strcmp(advice[k].about, advice[i].about) != 0) k++;
        if (k == kept) advice[kept++] = advice[i];
    }
    return kept;
}

/* What is known of the data before anything is probed. */
static tn_advice_facts facts_of(const tn_session *s, const tn_profile *p)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const tn_source *source = &s->source;
    tn_advice_facts f = {
        .settings = s->settings, .profile = p, .cores = cores > 0 ? (int)cores : 1, .has_data = source->ctx != NULL
    };
    if (source->ctx && source->train_samples > 0 && source->epoch_batches > 0)
        f.epoch = source->epoch_batches / tn_settings_int(s->settings, "train.accumulate") + 1;
    if (source->text && source->mode != TN_LOADER_WINDOW) {
        const tn_dataset_counts n = tn_dataset_count(source->text, TN_TRAIN);
        f.rows = source->mode == TN_LOADER_PACK ? "pack" : "bucket";
        f.document = n.documents ? (double)n.tokens / (double)n.documents : 0;
    }
    return f;
}

tn_status tn_advice_find(const tn_session *of, const tn_profile *p, const tn_advice_options *o,
                         tn_advice advice[TN_ADVICE_MOST], size_t *n, size_t *untried)
{
    tn_status s = TN_OK;
    size_t probes = 0;
    bool late;
    advising x = { .s = of, .o = o };
    const double until = tn_clock_s() + o->seconds;
    const tn_advice_facts facts = facts_of(of, p);
    const size_t all = tn_advice_list(&facts, advice);
    *n = *untried = 0;
    for (size_t i = 0; i < all; i++) probes += !advice[i].computed;
    for (size_t i = 0, tried = 0; i < all; i++) { /* what one does not need of its part of the time is for the next */
        const double now = tn_clock_s();
        if (advice[i].computed) continue;
        late = tried > 0 && now >= until;
        if (!late) TN_TRY(probe(&x, now + fmax(until - now, 0) / (double)(probes - tried), &advice[i], &late));
        *untried += late;
        tried++;
    }
    *n = choose(advice, all);
done:
    close_as_is(&x);
    return s;
}
