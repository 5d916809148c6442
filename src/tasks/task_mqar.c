/* Associative recall with many questions (MQAR): n pairs of key and value one behind the other, then noise in which every key comes
 * once more, and is to be answered with its value. Keys of a sequence differ, values may be the same. Tokens: keys, then values, then
 * noise. A network that knows only which values it has seen is right 1 time in n. */
#include "tasks/probe.h"

#include <stdio.h>

static void draw_mqar(const tn_probe *p, const tn_probe_group *g, bool training, tn_task_draws *d, int32_t *scratch,
                      int32_t *tokens, int32_t *labels)
{
    const int64_t n = g->pairs, T = g->length;
    (void)training;
    tn__draw_tokens(d, tokens + 2 * n, T - 2 * n, p->keys + p->values, p->noise);
    for (int64_t t = 0; t < T; t++) labels[t] = -1;
    tn__draw_distinct(d, n, p->keys, scratch);
    for (int64_t i = 0; i < n; i++) {
        tokens[2 * i] = scratch[i];
        tokens[2 * i + 1] = (int32_t)(p->keys + tn__draw_below(d, p->values));
    }
    tn__draw_distinct(d, n, T - 2 * n, scratch);
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = 2 * n + scratch[i];
        tokens[at] = tokens[2 * i];
        labels[at] = tokens[2 * i + 1];
    }
}

static tn_status open_mqar(const tn_settings *st, tn_probe *p)
{
    int64_t pairs[TN_PROBE_GROUPS];
    TN_RETURN_IF(tn__probe_list(st, "task.pairs", "8,16,32,64", TN_PROBE_GROUPS, pairs, &p->groups));
    p->keys = tn__probe_size(st, "task.keys", 512);
    p->values = tn__probe_size(st, "task.values", 512);
    p->vocab = p->keys + p->values + p->noise;
    p->lengths[0] = p->length;
    p->n_lengths = 1;
    p->draw = draw_mqar;
    for (int64_t i = 0; i < p->groups; i++) {
        const long long n = pairs[i];
        if (n > p->keys)
            return tn_error(TN_USAGE,
                            "task.pairs=%lld needs as many different keys and task.keys is %lld: make it larger", n,
                            (long long)p->keys);
        if (3 * n > p->length)
            return tn_error(
                TN_USAGE,
                "task.pairs=%lld needs %lld tokens (the pairs, then the questions) and train.context is %lld: make "
                "it larger",
                n, 3 * n, (long long)p->length);
        p->group[i] = (tn_probe_group){ .length = p->length, .pairs = n };
        snprintf(p->group[i].name, sizeof p->group[i].name, "%lld", n);
    }
    return TN_OK;
}

const tn_task tn_task_mqar = { .name = "mqar",
                               .summary = "tokens: pairs of key and value, then the keys in noise: each one's value",
                               .probe = open_mqar,
                               .reads = "pairs keys values noise" };
