/* The table of all ops, made from ops.def. */
#include <tenon/op.h>

#include <string.h>

#define TN_OP(name) extern const tn_op tn_op_##name;
#include "ops/ops.def"
#undef TN_OP

static const tn_op *const table[] = {
#define TN_OP(name) &tn_op_##name,
#include "ops/ops.def"
#undef TN_OP
};

const tn_op *tn_op_at(size_t i) { return i < sizeof table / sizeof *table ? table[i] : NULL; }

const tn_op *tn_op_find(const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i]->name, name) == 0) return table[i];
    return NULL;
}
