/* A matrix of relax: packed once for a call, then multiplied with tiles, in the lanes' own order or by tn_gemm. */
#include "ops/relax/relax_cpu.h"

enum { SLACK = 16 }; /* floats behind the panels that vectors may read */

/* The product as tn_gemm sees it: samples are rows, and w is B. */
static tn_gemm gemm_of(const tn_relax_job *j, const tn_relax_matrix *m, int rows)
{
    return (tn_gemm){ .m = rows, .n = m->n, .k = m->k, .batch = 1, .alpha = 1, .b = m->w, .b_row = m->col, .b_col = m->row,
                      .round = j->round, .bf16x3 = j->bf16x3, .portable_only = j->portable };
}

size_t tn_relax_packed_bytes(const tn_relax_job *j, const tn_relax_matrix *m)
{
    if (!j->rounded) return ((size_t)(m->n * m->k) + SLACK) * sizeof(float);
    const tn_gemm g = gemm_of(j, m, TN_RELAX_LANES);
    return tn_gemm_packed_bytes(&g);
}

void tn_relax_pack(const tn_relax_job *j, tn_relax_matrix *m)
{
    const tn_gemm g = gemm_of(j, m, TN_RELAX_LANES);
    if (j->rounded) tn_gemm_pack_b(j->pool, &g, m->packed);
    else tn__relax_panels(m, m->packed);
}

void tn_relax_multiply(const tn_relax_job *j, const tn_relax_matrix *m, const tn_relax_tile *t, const float *in, float *out)
{
    if (!j->rounded) {
        tn__relax_product(m, t->width, in, out);
        return;
    }
    tn_gemm g = gemm_of(j, m, t->width);
    g.a = in, g.a_row = 1, g.a_col = t->width;
    g.packed_b = m->packed;
    g.c = t->rows, g.c_row = m->n;
    tn_gemm_run(NULL, &g, t->gemm); /* inside a tile of the pool already */
    tn_relax_load(out, t->width, t->rows, m->n, t->width, m->n);
}
