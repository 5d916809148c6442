/* Frames: a plan with its pointers resolved, in the caller's memory. The inner loop of execution; it allocates nothing
 * and looks nothing up. */
#include "plan/decode/decode.h"
#include "plan/plan_internal.h"

#include <string.h>

static size_t arg_bytes(const tn_plan *p) { return (sizeof(tn_arg) * (size_t)(p->n_args + 1) + 63) / 64 * 64; }

static size_t call_bytes(const tn_plan *p) { return (sizeof(tn_call) * (p->n_steps + 1) + 63) / 64 * 64; }

size_t tn_plan_frame_bytes(const tn_plan *p) { return arg_bytes(p) + call_bytes(p) + p->host_bytes; }

tn_frame tn_frame_parts(const tn_plan *p, const void *frame)
{
    return (tn_frame){ (tn_arg *)(uintptr_t)frame, (tn_call *)((uintptr_t)frame + arg_bytes(p)) };
}

static char *slot_memory(const tn_plan *p, int slot, char *arena, void *const *externs)
{
    const tn_slot *s = &p->place.slot[slot];
    return s->ext >= 0 ? externs[s->ext] : arena + s->offset;
}

void tn_frame_init(const tn_plan *p, void *frame, void *arena, void *const *externs, struct tn_pool *pool, void *stream)
{
    const tn_frame f = tn_frame_parts(p, frame);
    char *host = (char *)frame + arg_bytes(p) + call_bytes(p);
    for (int i = 0; i < p->n_args; i++) {
        const tn_arg_template *t = &p->arg[i];
        f.arg[i] = t->arg;
        f.arg[i].data = t->slot < 0 ? NULL : slot_memory(p, t->slot, arena, externs) + t->offset;
        f.arg[i].live = t->live_slot < 0
                            ? NULL
                            : (const int32_t *)(void *)(slot_memory(p, t->live_slot, arena, externs) + t->live_offset);
    }
    for (size_t i = 0; i < p->n_steps; i++) {
        const tn_step *s = &p->step[i];
        f.call[i] = (tn_call){ .attr = s->node->attr,
                               .n_in = s->n_in,
                               .n_out = s->n_out,
                               .in = f.arg + s->in,
                               .out = f.arg + s->out,
                               .accumulate = s->node->accumulate,
                               .work_bytes = s->work_bytes,
                               .round = p->graph->options.round,
                               .bf16x3 = p->graph->options.bf16x3,
                               .tf32 = p->graph->options.tf32,
                               .portable = p->portable,
                               .makes_out = s->node->makes_out,
                               .pool = pool,
                               .stream = stream };
        if (s->backward) {
            f.call[i].dout = f.arg + s->dout;
            f.call[i].din = f.arg + s->din;
        }
        /* never NULL: a kernel may add nothing to the address of no bytes */
        f.call[i].host = host + s->host_at;
        f.call[i].work = s->work_slot < 0 ? (void *)&f.call[i] : slot_memory(p, s->work_slot, arena, externs);
    }
}

static tn_status run_from(const tn_plan *p, const void *frame, size_t first)
{
    const tn_frame f = tn_frame_parts(p, frame);
    for (size_t i = first, took = 0; i < p->n_steps; i += took ? took : 1) {
        took = 0;
        if (p->decode && i >= p->prologue)
            TN_RETURN_IF(tn_decode_run_cuda(p->decode + i, f.call + i, p->n_steps - i, &took));
        if (took) continue;
        const tn_status s = p->step[i].kernel(&f.call[i]);
        if (s != TN_OK) {
            const tn_node *n = p->step[i].node;
            tn_error_prefix("%s%s in %s", n->op->name, n->backward ? " (backward)" : "",
                            p->graph->region[n->region][0] ? p->graph->region[n->region] : "the graph");
            return s;
        }
    }
    return TN_OK;
}

tn_status tn_frame_run(const tn_plan *p, const void *frame) { return run_from(p, frame, 0); }

tn_status tn_frame_run_again(const tn_plan *p, const void *frame) { return run_from(p, frame, p->prologue); }

void *tn_frame_output(const tn_plan *p, const void *frame, const char *name)
{
    const tn_graph *g = p->graph;
    const tn_frame f = tn_frame_parts(p, frame);
    for (size_t i = 0; i < g->n_outputs; i++) {
        if (strcmp(g->output[i].name, name) != 0) continue;
        const int slot = p->place.slot_of[g->tensor[g->output[i].id].base];
        for (int k = 0; k < p->n_args; k++) /* any argument in the same memory tells where it lies */
            if (p->arg[k].slot == slot)
                return (char *)f.arg[k].data - p->arg[k].offset +
                       (size_t)g->tensor[g->output[i].id].offset * tn_dtype_bytes(g->tensor[g->output[i].id].dtype);
    }
    return NULL;
}
