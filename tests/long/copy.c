/* Can the network remember one token over thousands? The first token of a sequence is the class, the rest is noise; every
 * later token has the class as its label, and what counts is the guess after the last one.
 *     copy LENGTH SECONDS [key=value ...]
 * trains on sequences of 64 tokens, then four times as long, and so on up to LENGTH, each until 99 % of fresh sequences are
 * right or the time is over, and prints a line for each. Exit 0: 99 % reached at LENGTH. */
#include "base/clock.h"
#include "base/rng.h"
#include "train/train_settings.h"
#include "train/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 8, CLASSES = 10, TESTS = 16 /* batches */ };

static void fill(tn_trainer *t, int64_t length, uint64_t stream)
{
    const tn_rng r = { .seed = 3, .stream = stream };
    int32_t *tokens = tn_trainer_tokens(t), *labels = tn_trainer_labels(t); /* (B,T) */
    for (int64_t i = 0; i < BATCH * length; i++) {
        tokens[i] = (int32_t)tn_rng_below(r, (uint64_t)i, CLASSES);
        labels[i] = tokens[i / length * length];
    }
}

/* Part of fresh sequences whose class the last token's logits name. */
static tn_status accuracy(tn_trainer *t, int64_t length, double *out)
{
    int right = 0;
    for (int i = 0; i < TESTS; i++) {
        float loss;
        fill(t, length, (uint64_t)1 << 40 | (uint64_t)i);
        TN_RETURN_IF(tn_trainer_eval(t, &loss));
        const float *logits = tn_bound_data(tn_trainer_bound(t, false), "logits"); /* (B,T,CLASSES) */
        for (int64_t b = 0; b < BATCH; b++) {
            const float *z = logits + ((b + 1) * length - 1) * CLASSES;
            int best = 0;
            for (int c = 1; c < CLASSES; c++)
                if (z[c] > z[best]) best = c;
            right += best == tn_trainer_tokens(t)[b * length];
        }
    }
    *out = (double)right / (TESTS * BATCH);
    return TN_OK;
}

/* Until 99 % are right or the clock says `until`. */
static tn_status train(tn_trainer *t, int64_t length, double until, double *reached)
{
    float loss = 0;
    tn_applied a;
    int64_t step = 0;
    const int64_t every = length < 1024 ? 50 : 10;
    for (;; step++) {
        const bool over = tn_clock_s() > until;
        if (over || step % every == 0) TN_RETURN_IF(accuracy(t, length, reached));
        if (over || *reached >= 0.99) break;
        fill(t, length, (uint64_t)length << 20 | (uint64_t)step);
        TN_RETURN_IF(tn_trainer_grad(t, step, &loss));
        TN_RETURN_IF(tn_trainer_apply(t, step, 1, loss, &a));
    }
    printf("%lld tokens: %.1f %% right after %lld steps\n", (long long)length, 100 * *reached, (long long)step);
    fflush(stdout);
    return TN_OK;
}

/* The weights go on to longer sequences. */
static void take_over(tn_trainer *to, tn_trainer *from)
{
    for (int i = 0; from && i < tn_store_buckets(tn_trainer_store(to)); i++) {
        const tn_bucket *a = tn_store_bucket(tn_trainer_store(to), i), *b = tn_store_bucket(tn_trainer_store(from), i);
        memcpy(a->param, b->param, sizeof *a->param * (size_t)a->count);
    }
}

int main(int argc, char **argv)
{
    tn_status s = TN_OK;
    tn_settings *st = NULL;
    tn_trainer *t = NULL, *shorter = NULL;
    double reached = 0;
    if (argc < 3) return fprintf(stderr, "copy LENGTH SECONDS [key=value ...]\n"), 2;
    const int64_t most = atoll(argv[1]);
    const double until = tn_clock_s() + atof(argv[2]);
    tn_trainer_options o = { .batch = BATCH, .logits = true };
    TN_TRY(tn_settings_resolve("ten", (const char *const *)argv + 3, (size_t)(argc - 3), &st, &o.model));
    o.settings = st;
    for (o.length = most < 64 ? most : 64; o.length <= most; o.length *= 4) {
        TN_TRY(tn_trainer_new(&o, &t));
        take_over(t, shorter);
        tn_trainer_free(shorter);
        shorter = t;
        t = NULL;
        TN_TRY(train(shorter, o.length, until, &reached));
    }
done:
    if (s != TN_OK) fprintf(stderr, "error: %s\n", tn_error_text());
    tn_trainer_free(t);
    tn_trainer_free(shorter);
    tn_settings_free(st);
    return s != TN_OK || reached < 0.99;
}
