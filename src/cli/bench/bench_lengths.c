/* Time per token against the length of the sequences. A step has as many tokens as the longest sequence, whatever the
 * length; steps of the lengths alternate, so that neighbours of this process meet all alike. The processor's time is what
 * is compared: it does not count waiting for a core. All trainers are open at once; their memory adds up. */
#include "cli/bench/bench_print.h"

#include "base/clock.h"
#include "report/bench/timing.h"
#include "train/run/session.h"
#include "train/run/train_settings.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_LENGTHS = 8, MOST_ROUNDS = 32, MOST_OVERRIDES = 256 };

typedef struct runner {
    int64_t length, batch;
    tn_session session;
    double cpu_s[MOST_ROUNDS], wall_s[MOST_ROUNDS];
} runner;

/* "2048,131072" */
static tn_status read_lengths(const char *text, runner *r, size_t *n)
{
    int64_t longest = 1;
    for (const char *p = text;; p++) {
        char *end;
        const long long v = strtoll(p, &end, 10);
        if (end == p || v < 1 || v > 1000000000 || (*end && *end != ',') || *n == MOST_LENGTHS)
            return tn_error(TN_USAGE, "--lengths=%.40s: at most %d lengths such as 2048,131072", text, MOST_LENGTHS);
        r[(*n)++].length = v;
        if (v > longest) longest = v;
        if (!*end) break;
        p = end;
    }
    for (size_t i = 0; i < *n; i++) {
        r[i].batch = longest / r[i].length;
        if (r[i].batch * r[i].length != longest)
            return tn_error(
                TN_USAGE, "--lengths=%.40s: %lld does not divide %lld, so their steps cannot have equally many tokens",
                text, (long long)r[i].length, (long long)longest);
    }
    return TN_OK;
}

static tn_status open_runner(tn_cli *c, const char *target, runner *r)
{
    const char *list[MOST_OVERRIDES + 2];
    char length[48], batch[48];
    size_t n = c->args.overrides_n;
    if (n > MOST_OVERRIDES) return tn_error(TN_USAGE, "too many settings");
    for (size_t i = 0; i < n; i++) list[i] = c->args.overrides[i];
    snprintf(length, sizeof length, "train.context=%lld", (long long)r->length);
    snprintf(batch, sizeof batch, "train.batch=%lld", (long long)r->batch);
    list[n++] = length;
    list[n++] = batch;
    TN_RETURN_IF(
        tn_session_open_with(&(tn_session_options){ .user = &c->user, .target = target, .overrides = list, .n = n },
                             &r->session));
    if (!tn_model_reads_sequences(r->session.model))
        return tn_error(TN_USAGE, "--lengths needs a model of sequences, and %s is trained on samples: remove it",
                        r->session.model->name);
    const tn_feed f = tn_trainer_feed(r->session.trainer);
    tn_feed_random(&f, (tn_rng){ .seed = 1, .stream = 1 });
    return TN_OK;
}

static tn_status step(runner *r, int i)
{
    float loss;
    tn_update_result a;
    const double wall = tn_clock_s(), cpu = tn_clock_cpu_s();
    TN_RETURN_IF(tn_trainer_grad(r->session.trainer, i, &loss));
    TN_RETURN_IF(tn_trainer_apply(r->session.trainer, i, 1, loss, &a));
    r->cpu_s[i] = tn_clock_cpu_s() - cpu;
    r->wall_s[i] = tn_clock_s() - wall;
    return TN_OK;
}

/* The best step of each: what disturbs a step only makes it longer. */
static double best(const double *x, int n)
{
    double least = x[0];
    for (int i = 1; i < n; i++)
        if (x[i] < least) least = x[i];
    return least;
}

static tn_status print_runner(tn_cli *c, const runner *r, const runner *first, int rounds)
{
    const double tokens = (double)(r->batch * r->length), cpu = 1e6 * best(r->cpu_s, rounds) / tokens;
    const double of_first = best(r->cpu_s, rounds) / best(first->cpu_s, rounds),
                 wall = 1e6 * best(r->wall_s, rounds) / tokens;
    const double bytes = (double)tn_trainer_memory(r->session.trainer).total;
    if (c->json) {
        char name[32];
        snprintf(name, sizeof name, "length %lld", (long long)r->length);
        return tn_cli_emit(c, json_pack("{s:s, s:s, s:f, s:s, s:I, s:f, s:f, s:f}", "group", "lengths", "name", name,
                                        "value", cpu, "unit", "us of cpu per token", "batch", (json_int_t)r->batch,
                                        "of_first", of_first, "wall_us", wall, "memory_bytes", bytes));
    }
    fprintf(c->out, "%10lld x %-8lld %10.2f us %8.3f %12.2f us %9.0f MB\n", (long long)r->batch, (long long)r->length,
            cpu, of_first, wall, bytes / 1e6);
    return TN_OK;
}

tn_status tn_bench_lengths(tn_cli *c, const char *target, const char *lengths)
{
    tn_status s = TN_OK;
    runner *r = tn_alloc(sizeof *r * MOST_LENGTHS);
    int64_t rounds = 3;
    size_t n = 0;
    if (!r) TN_TRY(TN_MEMORY);
    TN_TRY(tn_args_whole(&c->args, "rounds", 1, MOST_ROUNDS, &rounds));
    TN_TRY(read_lengths(lengths, r, &n));
    for (size_t i = 0; i < n; i++) TN_TRY(open_runner(c, target, &r[i]));
    for (int k = 0; k < (int)rounds; k++)
        for (size_t i = 0; i < n; i++) TN_TRY(step(&r[i], k));
    if (!c->json)
        fprintf(c->out,
                "best of %d alternating steps; CPU time of all threads per token\n%10s x %-8s %13s %8s %15s %12s\n",
                (int)rounds, "batch", "length", "cpu", "of first", "wall", "memory");
    for (size_t i = 0; i < n; i++) TN_TRY(print_runner(c, &r[i], &r[0], (int)rounds));
done:
    for (size_t i = 0; i < n; i++) tn_session_close(&r[i].session);
    tn_free(r);
    return s;
}
