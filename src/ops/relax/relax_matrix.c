/* A matrix of relax: packed once for a call, then multiplied with tiles, in the lanes' own order, by AMX or by tn_gemm. */
#include "ops/relax/relax_cpu.h"

enum { SLACK = 16 }; /* floats behind the panels that vectors may read */

/* The product as tn_gemm sees it: samples are rows, and w is B. */
static tn_gemm gemm_of(const tn_relax_job *j, const tn_relax_matrix *m, int rows)
{
    return (tn_gemm){ .m = rows,
                      .n = m->n,
                      .k = m->k,
                      .batch = 1,
                      .alpha = 1,
                      .b = m->w,
                      .b_row = m->col,
                      .b_col = m->row,
                      .round = j->round,
                      .bf16x3 = j->bf16x3,
                      .portable_only = j->portable };
}

size_t tn_relax_packed_bytes(const tn_relax_job *j, const tn_relax_matrix *m)
{
    if (!j->rounded) return ((size_t)(m->n * m->k) + SLACK) * sizeof(float);
    if (j->amx) return tn__relax_amx_bytes(m);
    const tn_gemm g = gemm_of(j, m, TN_RELAX_LANES);
    return tn_gemm_packed_bytes(&g);
}

typedef struct packing {
    const tn_relax_matrix *m;
    void (*pack)(const tn_relax_matrix *m, int64_t i);
    int64_t panels, each;
} packing;

static void pack_some(void *arg, int64_t i)
{
    const packing *w = arg;
    for (int64_t k = i * w->each; k < (i + 1) * w->each && k < w->panels; k++) w->pack(w->m, k);
}

void tn_relax_pack(const tn_relax_job *j, tn_relax_matrix *m)
{
    enum { ENOUGH = 8192 }; /* numbers: packing fewer takes less time than waking a thread */
    const tn_gemm g = gemm_of(j, m, TN_RELAX_LANES);
    if (j->rounded && !j->amx) {
        tn_gemm_pack_b(j->pool, &g, m->packed);
        return;
    }
    packing w = { .m = m, .pack = tn__relax_panel, .panels = tn__relax_panels(m) };
    if (j->amx) w.pack = tn__relax_amx_panel, w.panels = tn__relax_amx_panels(m);
    w.each = m->n * m->k > 0 ? (ENOUGH * w.panels + m->n * m->k - 1) / (m->n * m->k) : 1;
    tn_pool_run(j->pool, (w.panels + w.each - 1) / w.each, pack_some, &w);
}

void tn_relax_multiply(const tn_relax_job *j, const tn_relax_matrix *m, const tn_relax_tile *t, const float *in,
                       float *out)
{
    if (!j->rounded) {
        tn__relax_product(m, t->width, in, out);
        return;
    }
    if (j->amx) {
        tn__relax_amx_product(m, in, out, t->rows);
        return;
    }
    tn_gemm g = gemm_of(j, m, t->width);
    g.a = in, g.a_row = 1, g.a_col = t->width;
    g.packed_b = m->packed;
    g.c = t->rows, g.c_row = m->n;
    tn_gemm_run(NULL, &g, t->gemm); /* inside a tile of the pool already */
    tn_relax_load(out, t->width, t->rows, m->n, t->width, m->n);
}
