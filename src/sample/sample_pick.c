/* Choosing a token. Without a limit the weights are walked in the order of ids; with one, a heap hands the tokens out in
 * falling order until top_k or top_p is reached, so that a large vocabulary is never sorted whole. */
#include "sample/sample_pick.h"

#include "base/alloc.h"

#include <math.h>

struct tn_picker {
    int64_t vocab;
    double *weight; /* (vocab): exp((logit - largest) / temperature) */
    int32_t *heap;  /* (vocab): ids */
};

tn_status tn_picker_new(int64_t vocab, tn_picker **out)
{
    tn_picker *p = tn_alloc(sizeof *p);
    if (!p) return TN_MEMORY;
    *p = (tn_picker){ .vocab = vocab,
                      .weight = tn_alloc(sizeof *p->weight * (size_t)vocab),
                      .heap = tn_alloc(sizeof *p->heap * (size_t)vocab) };
    if (!p->weight || !p->heap) {
        tn_picker_free(p);
        return TN_MEMORY;
    }
    *out = p;
    return TN_OK;
}

void tn_picker_free(tn_picker *p)
{
    if (!p) return;
    tn_free(p->weight);
    tn_free(p->heap);
    tn_free(p);
}

double tn_pick_uniform(tn_rng r, uint64_t index)
{
    uint32_t x[4];
    tn_rng_block(r, index, x);
    return ((double)(x[0] >> 5) * 67108864.0 + (double)(x[1] >> 6)) / 9007199254740992.0; /* (27 + 26 bits) / 2^53 */
}

static tn_status check_options(const tn_pick_options *o)
{
    if (!(o->temperature >= 0) || isinf(o->temperature))
        return tn_error(TN_USAGE,
                        "temperature=%g is below 0 or not a number: 0 is greedy, 1 the model's own distribution",
                        o->temperature);
    if (o->top_k < 0) return tn_error(TN_USAGE, "top_k=%lld is below 0: 0 means no limit", (long long)o->top_k);
    if (!(o->top_p > 0 && o->top_p <= 1))
        return tn_error(TN_USAGE, "top_p=%g is outside (0, 1]: 1 means no limit", o->top_p);
    return TN_OK;
}

/* The lowest id of the largest logit. */
static tn_status find_largest(const float *logits, int64_t vocab, int32_t *id)
{
    int64_t best = -1;
    for (int64_t i = 0; i < vocab; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY)
            return tn_error(TN_DIVERGED,
                            "the model's logit of token %lld is %s: its weights are damaged or diverged in training; "
                            "use an earlier checkpoint",
                            (long long)i, isnan(logits[i]) ? "NaN" : "infinite");
        if (logits[i] > -INFINITY && (best < 0 || logits[i] > logits[best])) best = i;
    }
    if (best < 0) return tn_error(TN_DIVERGED, "no token has a probability: all logits are -infinity");
    *id = (int32_t)best;
    return TN_OK;
}

/* --- a heap of ids, the likeliest at its top -------------------------------------------------------------------------- */

static bool before(const tn_picker *p, int32_t a, int32_t b)
{
    return p->weight[a] > p->weight[b] || (p->weight[a] == p->weight[b] && a < b);
}

static void sink(tn_picker *p, int64_t n, int64_t at)
{
    const int32_t id = p->heap[at];
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && before(p, p->heap[child + 1], p->heap[child])) child++;
        if (!before(p, p->heap[child], id)) break;
        p->heap[at] = p->heap[child];
    }
    p->heap[at] = id;
}

/* The top goes to the end of the array, behind what is left: n of them end up last, in rising order. */
static int32_t pop(tn_picker *p, int64_t n)
{
    const int32_t top = p->heap[0];
    p->heap[0] = p->heap[n - 1];
    p->heap[n - 1] = top;
    sink(p, n - 1, 0);
    return top;
}

/* --- drawing ---------------------------------------------------------------------------------------------------------- */

/* Rounding may leave the walk beyond its end: then the last token with a weight is it. */
static int32_t draw_any(const tn_picker *p, double target)
{
    double sum = 0;
    int32_t last = 0;
    for (int64_t i = 0; i < p->vocab; i++) {
        if (p->weight[i] <= 0) continue;
        last = (int32_t)i;
        sum += p->weight[i];
        if (sum > target) break;
    }
    return last;
}

/* All with a weight, less those that cannot be among the likeliest of probability top_p: if one below (1-p)/(V-1) of the
 * sum were, then it and all after it together would have less than 1-p, so that p was reached before it. */
static int64_t fill_heap(tn_picker *p, double least)
{
    int64_t n = 0;
    for (int64_t i = 0; i < p->vocab; i++)
        if (p->weight[i] > 0 && p->weight[i] >= least) p->heap[n++] = (int32_t)i;
    for (int64_t i = n / 2; i-- > 0;) sink(p, n, i);
    return n;
}

/* Of the top_k likeliest, whose weights sum to `mass`, the first that reach top_p of it. What was popped lies at the end of
 * the array, the likeliest last. */
static int32_t draw_limited(tn_picker *p, const tn_pick_options *o, double sum, double u)
{
    const bool by_count = o->top_k > 0 && o->top_k < p->vocab;
    const double least = by_count || p->vocab < 2 ? 0 : sum * (1 - o->top_p) / (double)(p->vocab - 1) * (1 - 1e-9);
    const int64_t n = fill_heap(p, least), most = by_count && o->top_k < n ? o->top_k : n;
    double mass = sum, kept = 0;
    int64_t taken = 0;
    if (by_count) {
        mass = 0;
        for (int64_t i = 0; i < most; i++) mass += p->weight[pop(p, n - i)];
    }
    for (; taken < most && (taken == 0 || kept < o->top_p * mass); taken++)
        kept += p->weight[by_count ? p->heap[n - 1 - taken] : pop(p, n - taken)];
    double walked = 0;
    for (int64_t i = 0; i < taken - 1; i++) {
        walked += p->weight[p->heap[n - 1 - i]];
        if (walked > u * kept) return p->heap[n - 1 - i];
    }
    return p->heap[n - taken];
}

tn_status tn_pick(tn_picker *p, const tn_pick_options *o, const float *logits, double u, int32_t *id)
{
    int32_t largest = 0;
    double sum = 0;
    TN_RETURN_IF(check_options(o));
    TN_RETURN_IF(find_largest(logits, p->vocab, &largest));
    if (o->temperature == 0 || o->top_k == 1) {
        *id = largest;
        return TN_OK;
    }
    for (int64_t i = 0; i < p->vocab; i++) {
        const double below = (double)logits[i] - (double)logits[largest];
        p->weight[i] = below == 0 ? 1 : exp(below / o->temperature);
        sum += p->weight[i];
    }
    const bool limited = (o->top_k > 0 && o->top_k < p->vocab) || o->top_p < 1;
    *id = limited ? draw_limited(p, o, sum, u) : draw_any(p, u * sum);
    return TN_OK;
}
