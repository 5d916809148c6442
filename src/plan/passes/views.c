/* Views: other shapes and parts of a tensor's memory, without a copy. A view of a view refers to the tensor that owns
 * the memory: there is only one level. */
#include "plan/graph.h"

#include <string.h>

static bool usable(tn_graph *g, const char *file, int line, tn_ref x)
{
    return g->status == TN_OK && x.id && tn_graph_knows(g, file, line, x);
}

tn_ref tn_reshape_(tn_graph *g, const char *file, int line, tn_ref x, tn_dims dims)
{
    char a[128], b[128];
    if (!usable(g, file, line, x)) return TN_NONE;
    if (tn_dims_count(dims) != tn_gtensor_count(&g->tensor[x.id]) || dims.rank > TN_MAX_RANK) {
        tn_graph_fail(g, file, line, TN_USAGE, "reshape of %s to %s: the counts differ",
                      tn_dims_text(g->tensor[x.id].dims, a, sizeof a), tn_dims_text(dims, b, sizeof b));
        return TN_NONE;
    }
    if (!tn_gtensor_contiguous(&g->tensor[x.id])) x = tn_copy_(g, file, line, x, g->tensor[x.id].dtype);
    if (!usable(g, file, line, x)) return TN_NONE;
    const int32_t id = tn_graph_new_view(g, x.id);
    if (!id) return TN_NONE;
    tn_gtensor *t = &g->tensor[id];
    if (t->live && (!dims.rank || dims.dim[0] != t->dims.dim[0])) {
        tn_graph_fail(g, file, line, TN_USAGE, "reshape must keep axis 0 of a tensor with a live extent");
        return TN_NONE;
    }
    t->dims = dims;
    int64_t n = 1;
    for (int i = dims.rank - 1; i >= 0; i--) {
        t->stride[i] = n;
        n *= dims.dim[i];
    }
    return (tn_ref){ id };
}

tn_ref tn_slice_(tn_graph *g, const char *file, int line, tn_ref x, int axis, int64_t start, int64_t length)
{
    char a[128];
    if (!usable(g, file, line, x)) return TN_NONE;
    const tn_dims d = g->tensor[x.id].dims;
    if (axis < 0) axis += d.rank;
    if (axis < 0 || axis >= d.rank || start < 0 || length < 0 || length > d.dim[axis] || start > d.dim[axis] - length) {
        tn_graph_fail(g, file, line, TN_USAGE, "slice [%lld, %lld) of axis %d is outside %s", (long long)start,
                      (long long)(start + length), axis, tn_dims_text(d, a, sizeof a));
        return TN_NONE;
    }
    if (g->tensor[x.id].live && axis == 0 && start > 0) {
        tn_graph_fail(g, file, line, TN_USAGE,
                      "slice [%lld, %lld) of rows with a live extent: it must start at 0, or copy them out first",
                      (long long)start, (long long)(start + length));
        return TN_NONE;
    }
    const int32_t id = tn_graph_new_view(g, x.id);
    if (!id) return TN_NONE;
    g->tensor[id].offset += start * g->tensor[id].stride[axis];
    g->tensor[id].dims.dim[axis] = length;
    return (tn_ref){ id };
}

tn_ref tn_part_(tn_graph *g, const char *file, int line, tn_ref x, int i, int n)
{
    if (!usable(g, file, line, x)) return TN_NONE;
    const int64_t width = tn_ref_dim(g, x, -1);
    if (n < 1 || width % n || i < 0 || i >= n) {
        tn_graph_fail(g, file, line, TN_USAGE, "part %d of %d of a last axis of %lld", i, n, (long long)width);
        return TN_NONE;
    }
    return tn_slice_(g, file, line, x, -1, i * (width / n), width / n);
}

tn_ref tn_transpose_(tn_graph *g, const char *file, int line, tn_ref x, const int *order, int n)
{
    char a[128];
    if (!usable(g, file, line, x)) return TN_NONE;
    const tn_gtensor from = g->tensor[x.id];
    unsigned seen = 0;
    for (int j = 0; j < n && n == from.dims.rank; j++)
        if (order[j] >= 0 && order[j] < n) seen |= 1u << order[j];
    if (n != from.dims.rank || seen != (1u << n) - 1 || (from.live && order[0] != 0)) {
        tn_graph_fail(g, file, line, TN_USAGE, "transpose of %s: the order must name each axis once%s",
                      tn_dims_text(from.dims, a, sizeof a), from.live ? " and keep axis 0 (it has a live extent)" : "");
        return TN_NONE;
    }
    const int32_t id = tn_graph_new_view(g, x.id);
    if (!id) return TN_NONE;
    for (int j = 0; j < n; j++) {
        g->tensor[id].dims.dim[j] = from.dims.dim[order[j]];
        g->tensor[id].stride[j] = from.stride[order[j]];
    }
    return (tn_ref){ id };
}

tn_ref tn_stop_gradient(tn_graph *g, tn_ref x)
{
    if (!usable(g, "stop_gradient", 0, x)) return TN_NONE;
    const int32_t id = tn_graph_new_view(g, x.id);
    if (id) g->tensor[id].needs_grad = false;
    return (tn_ref){ id };
}

tn_ref tn_want_gradient(tn_graph *g, tn_ref input)
{
    if (!usable(g, "want_gradient", 0, input)) return input;
    if (g->tensor[input.id].role != TN_ROLE_INPUT) {
        tn_graph_fail(g, "want_gradient", 0, TN_USAGE, "only an input's gradient can be asked for");
        return input;
    }
    g->tensor[input.id].needs_grad = g->tensor[input.id].wanted = true;
    return input;
}

tn_ref tn_live_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref count)
{
    if (!usable(g, file, line, x) || !usable(g, file, line, count)) return TN_NONE;
    const tn_gtensor *c = &g->tensor[count.id];
    if (c->dtype != TN_I32 || tn_gtensor_count(c) != 1 || g->tensor[x.id].dims.rank < 1) {
        tn_graph_fail(g, file, line, TN_USAGE, "a live extent is an i32 of shape (1), on a tensor of rank 1 or more");
        return TN_NONE;
    }
    const int32_t id = tn_graph_new_view(g, x.id);
    if (id) g->tensor[id].live = count.id;
    return (tn_ref){ id };
}
