/* The memory plan of a run and its line of text. */
#include "train/trainer/trainer.h"

#include <stdio.h>

void tn_memory_plan_add(tn_memory_plan *m, const tn_plan *p, size_t *arena)
{
    if (!p) return;
    const tn_memory q = tn_plan_memory(p);
    if (q.arena > *arena) { /* the plans share one arena */
        *arena = q.arena;
        m->activations = q.activations;
        m->workspace = q.workspace;
    }
    m->other += q.inputs + q.frame;
}

static size_t add_part(char *buf, size_t bytes, size_t at, const char *name, size_t value)
{
    if (!value || at >= bytes) return at;
    const double mb = (double)value / 1e6;
    return at + (size_t)snprintf(buf + at, bytes - at, "%s%s %.*f MB", at ? " · " : "", name, mb < 10 ? 1 : 0, mb);
}

const char *tn_memory_plan_text(const tn_memory_plan *m, char *buf, size_t bytes)
{
    size_t at = 0;
    buf[0] = 0;
    at = add_part(buf, bytes, at, "parameters", m->parameters);
    at = add_part(buf, bytes, at, "gradients", m->gradients);
    at = add_part(buf, bytes, at, "optimizer", m->optimizer);
    at = add_part(buf, bytes, at, "frozen", m->frozen);
    at = add_part(buf, bytes, at, "state", m->state);
    at = add_part(buf, bytes, at, "samples", m->samples);
    at = add_part(buf, bytes, at, "activations", m->activations);
    at = add_part(buf, bytes, at, "workspace", m->workspace);
    at = add_part(buf, bytes, at, "other", m->other);
    at = add_part(buf, bytes, at, "data", m->data);
    at = add_part(buf, bytes, at, "peak", m->total);
    add_part(buf, bytes, at, "data on the host", m->host);
    return buf;
}
