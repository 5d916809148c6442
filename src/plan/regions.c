/* What is open while a graph is built: scopes (names of parameters, timing), segments, frozen parts. */
#include "plan/graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static tn_region open_region(tn_graph *g, const char *fmt, va_list ap)
{
    const size_t used = strlen(g->scope);
    tn_region r = { .previous = g->current_region, .name_length = (int32_t)used, .segment = g->current_segment };
    char name[128];
    vsnprintf(name, sizeof name, fmt, ap);
    snprintf(g->scope + used, sizeof g->scope - used, "%s%s", used ? "." : "", name);
    if (g->status != TN_OK) return r;
    for (size_t i = 0; i < g->n_regions; i++)
        if (strcmp(g->region[i], g->scope) == 0) {
            g->current_region = (int32_t)i;
            return r;
        }
    if (tn_grow((void **)&g->region, &g->cap_regions, g->n_regions + 1, sizeof *g->region) != TN_OK ||
        !(g->region[g->n_regions] = tn_arena_strdup(&g->memory, g->scope))) {
        g->status = TN_MEMORY;
        return r;
    }
    g->current_region = (int32_t)g->n_regions++;
    return r;
}

tn_region tn_region_begin(tn_graph *g, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const tn_region r = open_region(g, fmt, ap);
    va_end(ap);
    return r;
}

tn_region tn_segment_begin(tn_graph *g, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const tn_region r = open_region(g, fmt, ap);
    va_end(ap);
    if (g->current_segment < 0) g->current_segment = g->n_segments++;
    return r;
}

void tn_region_end(tn_graph *g, tn_region r)
{
    g->scope[r.name_length] = 0;
    g->current_region = r.previous;
    g->current_segment = r.segment;
}

const char *tn_scope(const tn_graph *g) { return g->scope; }

void tn_frozen_begin(tn_graph *g) { g->frozen++; }

void tn_frozen_end(tn_graph *g)
{
    if (g->frozen > 0) g->frozen--;
    else tn_graph_fail(g, "frozen", 0, TN_USAGE, "tn_frozen_end without a tn_frozen_begin before it");
}
