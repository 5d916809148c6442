/* Folding batch axes into GEMMs. Only order matters for bits, and the order of a sum is: along k, then along the axes
 * that sum, outermost last. It depends on the strides (which axes fold), never on threads. */
#include "ops/product.h"

size_t tn_product_work(int64_t m, int64_t n, int threads)
{
    const size_t a = tn_gemm_work_most(m, n, threads), b = tn_gemm_work_most(n, m, threads);
    return a > b ? a : b; /* C may be computed transposed */
}

static bool is_sum(const tn_product_axis *x) { return x->c == 0; }

/* Axes of 1 go; a sum over nothing is a product with k = 0. False: C is empty. */
static bool drop_trivial(tn_product *p)
{
    int n = 0;
    for (int i = 0; i < p->axes; i++) {
        if (p->axis[i].dim == 0 && !is_sum(&p->axis[i])) return false;
        if (p->axis[i].dim == 0) p->g.k = 0;
        else if (p->axis[i].dim != 1) p->axis[n++] = p->axis[i];
    }
    p->axes = n;
    return p->g.m > 0 && p->g.n > 0;
}

static bool fold_into_k(tn_gemm *g, const tn_product_axis *x)
{
    if (g->k == 1) {
        g->a_col = x->a;
        g->b_row = x->b;
    } else if (x->a != g->k * g->a_col || x->b != g->k * g->b_row) {
        return g->k == 0;
    }
    g->k *= x->dim;
    return true;
}

static bool fold_into_m(tn_gemm *g, const tn_product_axis *x)
{
    if (g->m == 1) {
        g->a_row = x->a;
        g->c_row = x->c;
        g->residual_row = x->residual;
    } else if (x->a != g->m * g->a_row || x->c != g->m * g->c_row ||
               (g->residual && x->residual != g->m * g->residual_row)) {
        return false;
    }
    g->m *= x->dim;
    return true;
}

static bool fold_into_n(tn_product *p, const tn_product_axis *x)
{
    tn_gemm *g = &p->g;
    if (g->bias || g->residual || g->pre) return false;
    if (g->n == 1) {
        g->b_col = x->b;
        p->c_col = x->c;
    } else if (x->b != g->n * g->b_col || x->c != g->n * p->c_col) {
        return false;
    }
    g->n *= x->dim;
    return true;
}

static void fold(tn_product *p)
{
    while (p->axes > 0) {
        const tn_product_axis *x = &p->axis[p->axes - 1];
        const bool done = is_sum(x)   ? fold_into_k(&p->g, x)
                          : x->b == 0 ? fold_into_m(&p->g, x)
                          : x->a == 0 ? fold_into_n(p, x)
                                      : false;
        if (!done) return;
        p->axes--;
    }
}

/* Neighbouring axes that step through all operands alike become one. */
static void merge_axes(tn_product *p)
{
    int n = 0;
    for (int i = 1; i < p->axes; i++) {
        tn_product_axis *x = &p->axis[n];
        const tn_product_axis *y = &p->axis[i];
        if (x->a == y->dim * y->a && x->b == y->dim * y->b && x->c == y->dim * y->c &&
            x->residual == y->dim * y->residual && x->pre == y->dim * y->pre) {
            const int64_t dim = x->dim * y->dim;
            *x = *y;
            x->dim = dim;
        } else {
            p->axis[++n] = *y;
        }
    }
    if (p->axes) p->axes = n + 1;
}

/* C^T = B^T A^T, for a C whose columns are contiguous. */
static void transpose(tn_product *p)
{
    tn_gemm *g = &p->g;
    const tn_gemm o = *g;
    g->m = o.n, g->n = o.m;
    g->a = o.b, g->a_row = o.b_col, g->a_col = o.b_row, g->a_type = o.b_type;
    g->b = o.a, g->b_row = o.a_col, g->b_col = o.a_row, g->b_type = o.a_type;
    g->packed_b = NULL; /* that was of the other operand */
    g->share_b = false;
    g->c_row = p->c_col, p->c_col = o.c_row;
    for (int i = 0; i < p->axes; i++) {
        const int64_t a = p->axis[i].a;
        p->axis[i].a = p->axis[i].b;
        p->axis[i].b = a;
    }
}

/* The GEMM writes contiguous rows. Where C has none, each column becomes a product of its own. */
static void fix_layout(tn_product *p)
{
    if (p->g.n == 1) p->c_col = 1;
    if (p->c_col == 1) return;
    if (p->g.c_row == 1 || p->g.m == 1) {
        transpose(p);
        p->c_col = 1;
        return;
    }
    p->axis[p->axes++] = (tn_product_axis){ .dim = p->g.n, .b = p->g.b_col, .c = p->c_col };
    p->g.n = 1;
    p->g.packed_b = NULL;
    p->c_col = 1;
}

static const void *moved(const void *p, tn_dtype t, int64_t elements)
{
    return (const char *)p + elements * (int64_t)tn_dtype_bytes(t);
}

/* The innermost axis that is not a sum is the GEMM's batch; returns it, or -1. */
static int batch_axis(const tn_product *p)
{
    int i = p->axes - 1;
    while (i >= 0 && is_sum(&p->axis[i])) i--;
    if (i >= 0 && p->g.pre && i != p->axes - 1) return -1; /* `pre` is dense: only its own innermost axis will do */
    return i;
}

static void run_all(tn_pool *pool, const tn_product *p, void *work)
{
    const int batch = batch_axis(p);
    int64_t at[TN_MAX_RANK + 1] = { 0 };
    for (;;) {
        tn_gemm g = p->g;
        g.batch = 1;
        for (int i = 0; i < p->axes; i++) {
            const tn_product_axis *x = &p->axis[i];
            if (i == batch) {
                g.batch = x->dim, g.a_batch = x->a, g.b_batch = x->b, g.c_batch = x->c, g.residual_batch = x->residual;
                continue;
            }
            g.a = moved(g.a, g.a_type, at[i] * x->a);
            g.b = moved(g.b, g.b_type, at[i] * x->b);
            g.c += at[i] * x->c;
            if (g.residual) g.residual += at[i] * x->residual;
            if (g.pre) g.pre += at[i] * x->pre;
            g.accumulate |= is_sum(x) && at[i] > 0;
        }
        tn_gemm_run(pool, &g, work);
        int i = p->axes - 1;
        while (i >= 0 && (i == batch || ++at[i] == p->axis[i].dim)) at[i--] = 0;
        if (i < 0) return;
    }
}

void tn_product_run(tn_pool *pool, const tn_product *p, void *work)
{
    tn_product q = *p;
    if (!drop_trivial(&q)) return;
    fold(&q);
    merge_axes(&q);
    fix_layout(&q);
    run_all(pool, &q, work);
}
