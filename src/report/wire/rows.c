/* Rows of a batch, and the texts that they were made of. */
#include "report/wire/rows.h"

#include "base/alloc.h"

#include <stdio.h>
#include <string.h>

tn_wire_input tn_wire_input_of(tn_session *s, char reader, const char *name)
{
    char full[32];
    const tn_inputs *in = tn_trainer_inputs(s->trainer);
    snprintf(full, sizeof full, "%c.%s", reader, name);
    for (size_t i = 0; i < in->n; i++) {
        const tn_input_slot *slot = &in->slot[i];
        if (strcmp(slot->row->name, full) != 0) continue;
        return (tn_wire_input){ tn_trainer_input(s->trainer, full), slot->rank == 3 ? slot->dim[1] : 1,
                                slot->rank == 3   ? slot->dim[2]
                                : slot->rank == 2 ? slot->dim[1]
                                                  : 1 };
    }
    return (tn_wire_input){ NULL, 0, 0 };
}

int64_t tn_wire_valid(tn_session *s)
{
    const int64_t rows = *tn_trainer_feed_again(s->trainer).valid;
    return rows < s->batch ? rows : s->batch;
}

tn_status tn_wire_golds_open(const tn_session *s, int split, tn_wire_golds *out)
{
    const tn_task *task = tn_task_named(tn_settings_text(s->settings, "task.name"));
    if (!task || !task->texts) return tn_error(TN_INTERNAL, "the session's task has no texts");
    tn_wire_golds g = { .split = split,
                        .seed = (uint64_t)tn_settings_int(s->settings, "seed"),
                        .most = tn_settings_int(s->settings, "questions") };
    g.picked = tn_alloc(sizeof *g.picked * (size_t)(g.most + 1));
    const tn_status status = g.picked ? task->texts(s->settings, &g.texts) : TN_MEMORY;
    if (status == TN_OK) *out = g;
    else tn_wire_golds_free(&g);
    return status;
}

void tn_wire_golds_free(tn_wire_golds *g)
{
    tn_wire_texts_free(g->texts);
    tn_wire_example_free(&g->example);
    tn_free(g->picked);
    *g = (tn_wire_golds){ 0 };
}

/* As the source picks for evaluations (train/source/wire.c): step -1. */
tn_status tn_wire_golds_read(tn_wire_golds *g, int64_t context)
{
    TN_RETURN_IF(tn_wire_read(g->texts, g->split, context, &g->example));
    g->n = tn_wire_pick(g->seed, -1, g->split, context, (int64_t)g->example.questions, g->most, g->picked);
    return TN_OK;
}

static tn_answer text_of(const tn_wire_golds *g, tn_wire_span s)
{
    return (tn_answer){ tn_wire_at(&g->example, s), s.bytes };
}

tn_answer tn_wire_golds_question(const tn_wire_golds *g, int64_t q)
{
    return text_of(g, g->example.question[g->picked[q]].question);
}

size_t tn_wire_golds_of(const tn_wire_golds *g, int64_t q, tn_answer *gold, size_t most)
{
    const tn_wire_question *x = &g->example.question[g->picked[q]];
    for (size_t i = 0; i < x->golds && i < most; i++) gold[i] = text_of(g, g->example.gold[x->gold + i]);
    return x->golds;
}
