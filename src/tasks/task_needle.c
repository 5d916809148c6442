/* A needle in a haystack: a key with its value somewhere in a long text, and the key once more as the last token: what was its
 * value? The text is noise, or bytes of a file (task.data: the last tenth is for held-out sequences). With task.pairs=n there are
 * n - 1 other pairs in it. Groups are depths: equal parts of the sequence in which the pair lies, named by the percentage at which
 * they begin. Tokens: keys, then values, then noise or bytes. */
#include "tasks/probe.h"

#include <stdio.h>

static void draw_text(const tn_probe *p, int64_t T, bool training, tn_task_draws *d, int32_t *tokens)
{
    const int64_t base = p->keys + p->values, all = (int64_t)p->text_bytes, cut = all - all / 10;
    const int64_t from = training ? tn__draw_below(d, cut - T + 1) : cut + tn__draw_below(d, all - cut - T + 1);
    for (int64_t t = 0; t < T; t++) tokens[t] = (int32_t)(base + p->text[from + t]);
}

/* Places are pairs of tokens in front of the last token; where one token is left over, it is the first or the last but one. */
static void draw_needle(const tn_probe *p, const tn_probe_group *g, bool training, tn_task_draws *d, int32_t *scratch,
                        int32_t *tokens, int32_t *labels)
{
    const int64_t T = g->length, n = g->pairs, places = (T - 1) / 2, shift = T % 2 ? 0 : tn__draw_below(d, 2);
    const int64_t low = g->depth * places / p->depths, high = (g->depth + 1) * places / p->depths;
    const int64_t mine = low + tn__draw_below(d, high - low);
    int32_t *place = scratch, *key = scratch + p->length;
    if (p->text) draw_text(p, T, training, d, tokens);
    else tn__draw_tokens(d, tokens, T, p->keys + p->values, p->noise);
    tn__draw_distinct(d, n - 1, places - 1, place); /* of the places but mine */
    for (int64_t i = 0; i < n - 1; i++) place[i] += place[i] >= mine;
    place[n - 1] = (int32_t)mine;
    tn__draw_distinct(d, n, p->keys, key);
    for (int64_t i = 0; i < n; i++) {
        tokens[shift + 2 * place[i]] = key[i];
        tokens[shift + 2 * place[i] + 1] = (int32_t)(p->keys + tn__draw_below(d, p->values));
    }
    for (int64_t t = 0; t < T; t++) labels[t] = -1;
    tokens[T - 1] = key[n - 1];
    labels[T - 1] = tokens[shift + 2 * mine + 1];
}

static tn_status add_group(tn_probe *p, int64_t length, int64_t pairs, int64_t depth)
{
    tn_probe_group *g = &p->group[p->groups];
    const long long percent = 100 * depth / p->depths;
    if (p->groups == TN_PROBE_GROUPS)
        return tn_error(TN_USAGE, "task.lengths and task.depths make more than %d groups: remove some",
                        TN_PROBE_GROUPS);
    if ((length - 1) / 2 < p->depths || (length - 1) / 2 < pairs)
        return tn_error(
            TN_USAGE,
            "%lld tokens are too short for task.depths=%lld and task.pairs=%lld: make train.context or the first of "
            "task.lengths larger",
            (long long)length, (long long)p->depths, (long long)pairs);
    *g = (tn_probe_group){ .length = length, .pairs = pairs, .depth = depth };
    if (p->n_lengths > 1) snprintf(g->name, sizeof g->name, "%lld_d%lld", (long long)length, percent);
    else snprintf(g->name, sizeof g->name, "d%lld", percent);
    p->groups++;
    return TN_OK;
}

static tn_status open_needle(const tn_settings *st, tn_probe *p)
{
    int64_t pairs[1], n;
    TN_RETURN_IF(tn__probe_list(st, "task.pairs", "1", 1, pairs, &n));
    TN_RETURN_IF(tn__probe_lengths(st, p));
    p->keys = tn__probe_size(st, "task.keys", 64);
    p->values = tn__probe_size(st, "task.values", 64);
    if (p->text) p->noise = 256;
    p->vocab = p->keys + p->values + p->noise;
    p->mixed = true;
    p->draw = draw_needle;
    if (pairs[0] > p->keys)
        return tn_error(TN_USAGE, "task.pairs=%lld needs as many different keys and task.keys is %lld: make it larger",
                        (long long)pairs[0], (long long)p->keys);
    for (int64_t k = 0; k < p->n_lengths; k++)
        for (int64_t i = 0; i < p->depths; i++) TN_RETURN_IF(add_group(p, p->lengths[k], pairs[0], i));
    return TN_OK;
}

const tn_task tn_task_needle = { .name = "needle",
                                 .summary = "tokens: a key and its value hidden in a text, asked for at the end",
                                 .probe = open_needle,
                                 .reads = "pairs lengths keys values noise depths data" };
