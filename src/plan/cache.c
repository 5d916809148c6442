/* A short list of plans by key, searched in order. */
#include "plan/plan.h"

#include <string.h>

typedef struct cached {
    const char *key;
    tn_plan *plan;
} cached;

struct tn_plan_cache {
    tn_arena keys;
    cached *item;
    size_t n, capacity;
};

tn_status tn_plan_cache_new(tn_plan_cache **out)
{
    tn_plan_cache *c = tn_alloc(sizeof *c);
    if (!c) return TN_MEMORY;
    *out = c;
    return TN_OK;
}

void tn_plan_cache_free(tn_plan_cache *c)
{
    if (!c) return;
    for (size_t i = 0; i < c->n; i++) tn_plan_free(c->item[i].plan);
    tn_free(c->item);
    tn_arena_free(&c->keys);
    tn_free(c);
}

tn_status tn_plan_cache_get(tn_plan_cache *c, const char *key, tn_plan_make *make, void *user, const tn_plan **out)
{
    tn_plan *p;
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->item[i].key, key) == 0) {
            *out = c->item[i].plan;
            return TN_OK;
        }
    TN_RETURN_IF(tn_grow((void **)&c->item, &c->capacity, c->n + 1, sizeof *c->item));
    const char *copy = tn_arena_strdup(&c->keys, key);
    if (!copy) return TN_MEMORY;
    TN_RETURN_IF(make(user, &p));
    c->item[c->n++] = (cached){ copy, p };
    *out = p;
    return TN_OK;
}

size_t tn_plan_cache_count(const tn_plan_cache *c) { return c->n; }
