/* Remembering the first token, or a segment of them, over a whole sequence of such tokens. task.segment=1: in training every later
 * token asks for the first, held out only the last one does. A longer segment: as many marks stand at the end, each of which asks for
 * the next token of the segment. Groups are lengths. */
#include "tasks/probe.h"

#include <stdio.h>

static void draw_copy(const tn_probe *p, const tn_probe_group *g, bool training, tn_task_draws *d, int32_t *scratch,
                      int32_t *tokens, int32_t *labels)
{
    const int64_t T = g->length, S = p->segment;
    (void)scratch;
    tn__draw_tokens(d, tokens, T, 0, p->values);
    for (int64_t t = 0; t < T; t++) labels[t] = S == 1 && training && t > 0 ? tokens[0] : -1;
    for (int64_t i = 0; i < S; i++) {
        labels[T - S + i] = tokens[i];
        if (S > 1) tokens[T - S + i] = (int32_t)p->values;
    }
}

static tn_status open_tokens_copy(const tn_settings *st, tn_probe *p)
{
    TN_RETURN_IF(tn__probe_lengths(st, p));
    p->values = tn__probe_size(st, "task.values", 10);
    p->vocab = p->values + (p->segment > 1);
    p->groups = p->n_lengths;
    p->draw = draw_copy;
    if (p->lengths[0] < 2 * p->segment)
        return tn_error(
            TN_USAGE,
            "task.segment=%lld needs %lld tokens and the shortest sequences have %lld: make train.context or the first "
            "of task.lengths larger",
            (long long)p->segment, 2 * (long long)p->segment, (long long)p->lengths[0]);
    for (int64_t i = 0; i < p->groups; i++) {
        p->group[i] = (tn_probe_group){ .length = p->lengths[i] };
        snprintf(p->group[i].name, sizeof p->group[i].name, "%lld", (long long)p->lengths[i]);
    }
    return TN_OK;
}

const tn_task tn_task_tokens_copy = { .name = "tokens_copy",
                                      .summary = "tokens: the first ones, asked for at the end of a long sequence",
                                      .probe = open_tokens_copy,
                                      .reads = "lengths values segment" };
