/* Graphs of cuDNN operations. cuDNN takes a graph apart and looks for a kernel that does all of it at once; steps between
 * operations are named, but never exist in memory. */
#include "backend/cuda/cudnn_graph.h"

enum { MOST_CONFIGS = 16 };

static void fail(tn_dnn_graph *g, int status, const char *what, int line)
{
    if (g->status == TN_OK) g->status = tn_cudnn_failed(g->lib, status, what, __FILE__, line);
}

#define KEEP(g, call)                                                                                                  \
    do {                                                                                                               \
        const int e_ = (g)->status == TN_OK ? (g)->lib->call : 0;                                                      \
        if (e_ != 0) fail((g), e_, #call, __LINE__);                                                                   \
    } while (0)

/* --- descriptors ------------------------------------------------------------------------------------------------------ */

static tn_dnn_desc make(tn_dnn_graph *g, int kind)
{
    tn_dnn_desc d = NULL;
    if (g->status == TN_OK && g->n_made == TN_DNN_MOST_MADE)
        g->status = tn_error(TN_INTERNAL, "more than %d descriptors in a cuDNN graph", TN_DNN_MOST_MADE);
    KEEP(g, BackendCreateDescriptor(kind, &d));
    if (d) g->made[g->n_made++] = d;
    return d;
}

static void set(tn_dnn_graph *g, tn_dnn_desc d, int name, int type, int64_t n, const void *values)
{
    KEEP(g, BackendSetAttribute(d, name, type, n, values));
}

static void set_number(tn_dnn_graph *g, tn_dnn_desc d, int name, int type, int value)
{
    set(g, d, name, type, 1, &value);
}

static void set_desc(tn_dnn_graph *g, tn_dnn_desc d, int name, tn_dnn_desc value)
{
    set(g, d, name, TN_DNN_IS_DESC, 1, &value);
}

static void finish(tn_dnn_graph *g, tn_dnn_desc d) { KEEP(g, BackendFinalize(d)); }

static void add(tn_dnn_graph *g, tn_dnn_desc op)
{
    finish(g, op);
    if (g->status == TN_OK && g->n_ops == TN_DNN_MOST_OPS)
        g->status = tn_error(TN_INTERNAL, "more than %d operations in a cuDNN graph", TN_DNN_MOST_OPS);
    if (g->status == TN_OK) g->op[g->n_ops++] = op;
}

void tn_dnn_graph_clear(tn_dnn_graph *g)
{
    while (g->n_made > 0) g->lib->BackendDestroyDescriptor(g->made[--g->n_made]);
    *g = (tn_dnn_graph){ .lib = g->lib, .handle = g->handle };
}

/* --- tensors ---------------------------------------------------------------------------------------------------------- */

tn_dnn_axes tn_dnn_dense(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (tn_dnn_axes){ { a, b, c, d }, { b * c * d, c * d, d, 1 } };
}

tn_dnn_axes tn_dnn_swapped(tn_dnn_axes x)
{
    return (tn_dnn_axes){ { x.dim[0], x.dim[1], x.dim[3], x.dim[2] },
                          { x.stride[0], x.stride[1], x.stride[3], x.stride[2] } };
}

static tn_dnn_tensor new_tensor(tn_dnn_graph *g, tn_dnn_type type, tn_dnn_axes x, bool is_virtual, bool by_value)
{
    const int64_t alignment = 16, id = ++g->next_id;
    const tn_dnn_desc d = make(g, TN_DNN_TENSOR);
    set_number(g, d, TN_DNN_TENSOR_TYPE, TN_DNN_IS_TYPE, type);
    set(g, d, TN_DNN_TENSOR_DIMS, TN_DNN_IS_INT64, 4, x.dim);
    set(g, d, TN_DNN_TENSOR_STRIDES, TN_DNN_IS_INT64, 4, x.stride);
    set(g, d, TN_DNN_TENSOR_ID, TN_DNN_IS_INT64, 1, &id);
    set(g, d, TN_DNN_TENSOR_ALIGNMENT, TN_DNN_IS_INT64, 1, &alignment);
    set(g, d, TN_DNN_TENSOR_VIRTUAL, TN_DNN_IS_BOOL, 1, &is_virtual);
    set(g, d, TN_DNN_TENSOR_BY_VALUE, TN_DNN_IS_BOOL, 1, &by_value);
    finish(g, d);
    return (tn_dnn_tensor){ d, id, x };
}

tn_dnn_tensor tn_dnn_memory(tn_dnn_graph *g, tn_dnn_type type, tn_dnn_axes x)
{
    return new_tensor(g, type, x, false, false);
}

tn_dnn_tensor tn_dnn_step(tn_dnn_graph *g, tn_dnn_type type, tn_dnn_axes x)
{
    return new_tensor(g, type, x, true, false);
}

tn_dnn_tensor tn_dnn_scalar(tn_dnn_graph *g, tn_dnn_type type)
{
    return new_tensor(g, type, tn_dnn_dense(1, 1, 1, 1), false, true);
}

/* --- operations ------------------------------------------------------------------------------------------------------- */

void tn_dnn_add_matmul(tn_dnn_graph *g, tn_dnn_tensor a, tn_dnn_tensor b, tn_dnn_tensor c)
{
    const tn_dnn_desc how = make(g, TN_DNN_MATMUL), op = make(g, TN_DNN_OP_MATMUL);
    set_number(g, how, TN_DNN_MATMUL_TYPE, TN_DNN_IS_TYPE, TN_DNN_F32);
    finish(g, how);
    set_desc(g, op, TN_DNN_OP_MATMUL_HOW, how);
    set_desc(g, op, TN_DNN_OP_MATMUL_A, a.desc);
    set_desc(g, op, TN_DNN_OP_MATMUL_B, b.desc);
    set_desc(g, op, TN_DNN_OP_MATMUL_C, c.desc);
    add(g, op);
}

void tn_dnn_add_reduction(tn_dnn_graph *g, tn_dnn_reduction by, tn_dnn_tensor x, tn_dnn_tensor y)
{
    const tn_dnn_desc how = make(g, TN_DNN_REDUCTION), op = make(g, TN_DNN_OP_REDUCTION);
    set_number(g, how, TN_DNN_REDUCTION_OPERATOR, TN_DNN_IS_REDUCTION, by);
    set_number(g, how, TN_DNN_REDUCTION_TYPE, TN_DNN_IS_TYPE, TN_DNN_F32);
    finish(g, how);
    set_desc(g, op, TN_DNN_OP_REDUCTION_HOW, how);
    set_desc(g, op, TN_DNN_OP_REDUCTION_X, x.desc);
    set_desc(g, op, TN_DNN_OP_REDUCTION_Y, y.desc);
    add(g, op);
}

static void add_pointwise(tn_dnn_graph *g, tn_dnn_pointwise mode, tn_dnn_type in, const int64_t *axis, tn_dnn_tensor x,
                          const tn_dnn_tensor *b, const tn_dnn_tensor *t, tn_dnn_tensor y)
{
    const tn_dnn_desc how = make(g, TN_DNN_POINTWISE), op = make(g, TN_DNN_OP_POINTWISE);
    set_number(g, how, TN_DNN_POINTWISE_MODE, TN_DNN_IS_POINTWISE, mode);
    set_number(g, how, TN_DNN_POINTWISE_TYPE, TN_DNN_IS_TYPE, in);
    if (axis) set(g, how, TN_DNN_POINTWISE_AXIS, TN_DNN_IS_INT64, 1, axis);
    finish(g, how);
    set_desc(g, op, TN_DNN_OP_POINTWISE_HOW, how);
    set_desc(g, op, TN_DNN_OP_POINTWISE_X, x.desc);
    if (b) set_desc(g, op, TN_DNN_OP_POINTWISE_B, b->desc);
    if (t) set_desc(g, op, TN_DNN_OP_POINTWISE_T, t->desc);
    set_desc(g, op, TN_DNN_OP_POINTWISE_Y, y.desc);
    add(g, op);
}

void tn_dnn_add_pointwise(tn_dnn_graph *g, tn_dnn_pointwise how, tn_dnn_type in, tn_dnn_tensor x,
                          const tn_dnn_tensor *b, const tn_dnn_tensor *t, tn_dnn_tensor y)
{
    add_pointwise(g, how, in, NULL, x, b, t, y);
}

void tn_dnn_add_index(tn_dnn_graph *g, int64_t axis, tn_dnn_tensor x, tn_dnn_tensor y)
{
    add_pointwise(g, TN_DNN_INDEX, TN_DNN_F32, &axis, x, NULL, NULL, y);
}

tn_dnn_tensor tn_dnn_pointwise_step(tn_dnn_graph *g, tn_dnn_pointwise how, tn_dnn_tensor x, const tn_dnn_tensor *b)
{
    const tn_dnn_tensor y = tn_dnn_step(g, TN_DNN_F32, x.axes);
    add_pointwise(g, how, TN_DNN_F32, NULL, x, b, NULL, y);
    return y;
}

/* --- plans ------------------------------------------------------------------------------------------------------------ */

static tn_status try_config(const tn_dnn_graph *g, tn_dnn_desc config, tn_dnn_desc *plan, int64_t *workspace)
{
    tn_dnn_desc p = NULL;
    int64_t n = 0, bytes = 0;
    int e = g->lib->BackendCreateDescriptor(TN_DNN_PLAN, &p);
    if (e == 0) e = g->lib->BackendSetAttribute(p, TN_DNN_PLAN_HANDLE, TN_DNN_IS_HANDLE, 1, &g->handle);
    if (e == 0) e = g->lib->BackendSetAttribute(p, TN_DNN_PLAN_CONFIG, TN_DNN_IS_DESC, 1, &config);
    if (e == 0) e = g->lib->BackendFinalize(p);
    if (e == 0) e = g->lib->BackendGetAttribute(p, TN_DNN_PLAN_WORKSPACE, TN_DNN_IS_INT64, 1, &n, &bytes);
    if (e != 0) {
        const tn_status s = tn_cudnn_failed(g->lib, e, "making a plan", __FILE__, __LINE__);
        if (p) g->lib->BackendDestroyDescriptor(p);
        return s;
    }
    *plan = p;
    *workspace = bytes;
    return TN_OK;
}

/* Asks for proposals; config (MOST_CONFIGS) are made here and freed with the graph. */
static int64_t propose(tn_dnn_graph *g, tn_dnn_desc graph, tn_dnn_desc *config)
{
    int64_t n = 0;
    const tn_dnn_desc heuristic = make(g, TN_DNN_ENGINEHEUR);
    set_desc(g, heuristic, TN_DNN_HEUR_GRAPH, graph);
    set_number(g, heuristic, TN_DNN_HEUR_MODE, TN_DNN_IS_HEUR, TN_DNN_HEUR_A);
    finish(g, heuristic);
    for (int i = 0; i < MOST_CONFIGS; i++) config[i] = make(g, TN_DNN_ENGINECFG);
    KEEP(g, BackendGetAttribute(heuristic, TN_DNN_HEUR_RESULTS, TN_DNN_IS_DESC, MOST_CONFIGS, &n, config));
    return g->status == TN_OK ? n : 0;
}

tn_status tn_dnn_plan_make(tn_dnn_graph *g, tn_dnn_desc *plan, int64_t *workspace)
{
    tn_dnn_desc config[MOST_CONFIGS];
    const tn_dnn_desc graph = make(g, TN_DNN_GRAPH);
    set(g, graph, TN_DNN_GRAPH_OPS, TN_DNN_IS_DESC, g->n_ops, g->op);
    set(g, graph, TN_DNN_GRAPH_HANDLE, TN_DNN_IS_HANDLE, 1, &g->handle);
    finish(g, graph);
    const int64_t n = propose(g, graph, config);
    TN_RETURN_IF(g->status);
    tn_status s = tn_error(TN_INTERNAL, "cuDNN %zu proposes no kernel", g->lib->GetVersion());
    for (int64_t i = 0; i < n && s != TN_OK; i++) s = try_config(g, config[i], plan, workspace);
    return s;
}

tn_status tn_dnn_run(const tn_cudnn *lib, tn_dnn_handle handle, tn_dnn_desc plan, int n, const int64_t *ids,
                     void *const *pointers, void *workspace)
{
    tn_dnn_desc pack = NULL;
    int e = lib->BackendCreateDescriptor(TN_DNN_PACK, &pack);
    if (e == 0) e = lib->BackendSetAttribute(pack, TN_DNN_PACK_IDS, TN_DNN_IS_INT64, n, ids);
    if (e == 0) e = lib->BackendSetAttribute(pack, TN_DNN_PACK_POINTERS, TN_DNN_IS_POINTER, n, pointers);
    if (e == 0) e = lib->BackendSetAttribute(pack, TN_DNN_PACK_WORKSPACE, TN_DNN_IS_POINTER, 1, &workspace);
    if (e == 0) e = lib->BackendFinalize(pack);
    if (e == 0) e = lib->BackendExecute(handle, plan, pack);
    const tn_status s = e ? tn_cudnn_failed(lib, e, "running a plan", __FILE__, __LINE__) : TN_OK;
    if (pack) lib->BackendDestroyDescriptor(pack);
    return s;
}
