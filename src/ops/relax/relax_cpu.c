/* relax on the CPU: what a call consists of, its workspace, the free phase. relax_solve.c iterates, relax_grad.c has the
 * gradients. Nothing is allocated; weights are packed once for a call and read by all threads. */
#include "ops/relax/relax_cpu.h"

#include "base/status.h"

#include <string.h>

/* --- the job ------------------------------------------------------------------------------------------------------ */

/* Sizes and kinds: all that workspace depends on. */
static tn_relax_job size_job(const tn_relax_attr *a, tn_dims x, tn_dims w1, tn_dims head, bool absolute, tn_dtype round,
                             bool bf16x3, bool portable)
{
    tn_relax_job j = { .attr = *a,
                       .B = x.dim[0],
                       .d = x.dim[1],
                       .f = w1.dim[0],
                       .C = head.rank == 2 ? head.dim[0] : 0,
                       .block = a->kind == TN_RELAX_BLOCK,
                       .hopfield = a->kind == TN_RELAX_HOPFIELD,
                       .absolute = absolute,
                       .together = absolute,
                       .round = round,
                       .bf16x3 = bf16x3,
                       .portable = portable,
                       .rounded = round != TN_F32 || bf16x3 || portable,
                       .amx = round == TN_BF16 && !bf16x3 && !portable && tn__relax_amx() };
    const tn_relax_matrix to_f = { .n = j.f, .k = j.d, .row = j.d, .col = 1 },
                          to_d = { .n = j.d, .k = j.f, .row = j.f, .col = 1 };
    const tn_relax_matrix to_f_back = { .n = j.f, .k = j.d, .row = 1, .col = j.f },
                          to_d_back = { .n = j.d, .k = j.f, .row = 1, .col = j.d };
    j.up = to_f;
    j.down = j.block || j.hopfield ? to_d : to_d_back;
    j.up_back = j.block || j.hopfield ? to_f_back : to_f;
    j.down_back = to_d_back;
    j.head = (tn_relax_matrix){ .n = j.C, .k = j.d, .row = j.d, .col = 1 };
    j.head_back = (tn_relax_matrix){ .n = j.d, .k = j.C, .row = 1, .col = j.d };
    return j;
}

static tn_status check_labels(const tn_relax_job *j)
{
    for (int64_t b = 0; j->labels && b < j->count; b++)
        if (j->labels[b] < -1 || j->labels[b] >= j->C)
            return tn_error(TN_USAGE, "label %d of sample %lld is neither in [0,%lld) nor -1", (int)j->labels[b],
                            (long long)b, (long long)j->C);
    return TN_OK;
}

static tn_status make_job(const tn_call *c, tn_relax_job *out)
{
    tn_relax_job j = size_job(c->attr, c->in[TN_RELAX_A].dims, c->in[TN_RELAX_W1].dims, c->in[TN_RELAX_HEAD_W].dims,
                              c->in[TN_RELAX_TOL].data != NULL, c->round, c->bf16x3, c->portable);
    const int32_t *count = c->in[TN_RELAX_COUNT].data;
    const float *w1 = c->in[TN_RELAX_W1].data, *w2 = c->in[TN_RELAX_W2].data;
    if (count && (*count < 0 || *count > j.B))
        return tn_error(TN_USAGE, "count is %d and the batch has %lld rows", (int)*count, (long long)j.B);
    j.pool = c->pool;
    j.count = count ? *count : j.B;
    j.a = c->in[TN_RELAX_A].data, j.h0 = c->in[TN_RELAX_H0].data;
    j.labels = c->in[TN_RELAX_LABELS].data, j.weights = c->in[TN_RELAX_WEIGHTS].data;
    j.scale = tn_arg_scalar(&c->in[TN_RELAX_SCALE], 1), j.damping = tn_arg_scalar(&c->in[TN_RELAX_DAMPING], 1);
    j.rtol = tn_arg_scalar(&c->in[TN_RELAX_RTOL], 0), j.tol = tn_arg_scalar(&c->in[TN_RELAX_TOL], 0),
    j.beta = tn_arg_scalar(&c->in[TN_RELAX_BETA], 0);
    j.move = tn_arg_scalar(&c->in[TN_RELAX_MOVE], 0);
    j.up.w = j.down_back.w = w1;
    j.down.w = j.up_back.w = j.block ? w2 : w1;
    j.head.w = j.head_back.w = c->in[TN_RELAX_HEAD_W].data;
    TN_RETURN_IF(check_labels(&j));
    *out = j;
    return TN_OK;
}

/* --- workspace ---------------------------------------------------------------------------------------------------- */

static void take_packed(tn_relax_memory *s, const tn_relax_job *j, tn_relax_matrix *m)
{
    m->packed = tn_relax_take(s, tn_relax_packed_bytes(j, m));
}

/* Back through time, f's value is known. The energy's `down` is the way back of its `up`. */
static bool needs_down(const tn_relax_job *j, bool backward)
{
    return !backward || j->attr.grad != TN_LOOP_BPTT || !(j->block || j->hopfield);
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* Steps of a small batch are summed over together: a product over a handful of rows is mostly its result. */
enum { LEAST_ROWS = 128, ROW_GAP = 16 };

static void take_rows(tn_relax_memory *s, const tn_relax_job *j, int threads, tn_relax_rows *r)
{
    const bool bptt = j->attr.grad == TN_LOOP_BPTT;
    r->most = bptt && j->B < LEAST_ROWS ? LEAST_ROWS : j->B;
    r->kept.f_apart = j->f + ROW_GAP, r->kept.d_apart = j->d + ROW_GAP;
    const int64_t d = r->most * j->d, f = r->most * r->kept.f_apart, wide = r->most * r->kept.d_apart,
                  signs = j->attr.centred ? 2 : 1;
    r->kept.active = tn_relax_floats(s, f), r->kept.slope = tn_relax_floats(s, f), r->kept.x = tn_relax_floats(s, wide);
    r->kept.n2 = tn_relax_floats(s, d), r->kept.n = tn_relax_floats(s, d);
    r->kept.s2 = tn_relax_floats(s, r->most), r->kept.s = tn_relax_floats(s, r->most);
    r->lambda = tn_relax_floats(s, d), r->u = tn_relax_floats(s, wide), r->q = tn_relax_floats(s, d);
    r->z = r->kept.slope;
    if (j->attr.grad == TN_LOOP_EP) {
        r->nudged = tn_relax_floats(s, signs * d);
        if (j->attr.at_rest) r->rest = tn_relax_floats(s, d);
        r->steps = tn_relax_take(s, sizeof *r->steps * (size_t)(signs * j->B));
        r->waiting = tn_relax_take(s, sizeof *r->waiting * (size_t)(signs * j->B));
    }
    if (bptt) {
        r->carried = tn_relax_floats(s, j->B * j->d);
        r->order = tn_relax_take(s, sizeof *r->order * (size_t)j->B);
        r->live = tn_relax_take(s, sizeof *r->live * (size_t)(j->attr.steps + 1));
    }
    r->gemm = tn_relax_take(s, larger(tn_gemm_work_most(j->f, j->d, threads), tn_gemm_work_most(j->d, j->f, threads)));
}

typedef struct workspace {
    float *ones, *zeros;
    float *h; /* (B,d): forward, where nobody reads the states */
    tn_relax_space space;
    tn_relax_rows rows;
    size_t total;
} workspace;

/* Fills in where j's matrices are packed. */
static workspace carve(tn_relax_job *j, bool backward, int threads, void *base)
{
    tn_relax_memory s = { .base = base };
    workspace w = { 0 };
    const int64_t most = j->f > j->d ? j->f : j->d, tiles = (j->B + TN_RELAX_LANES - 1) / TN_RELAX_LANES;
    const int slots = tiles * (TN_RELAX_LANES / 4) < threads ? (int)tiles * (TN_RELAX_LANES / 4) : threads;
    const bool ep = backward && j->attr.grad == TN_LOOP_EP, pulls = backward;
    w.ones = tn_relax_floats(&s, j->d);
    w.zeros = tn_relax_floats(&s, most > j->C ? most : j->C);
    if (!j->hopfield) take_packed(&s, j, &j->up);
    if (needs_down(j, backward)) take_packed(&s, j, &j->down);
    if (pulls && (j->block || j->hopfield)) take_packed(&s, j, &j->up_back);
    if (pulls && j->block) take_packed(&s, j, &j->down_back);
    if (!j->block && !j->hopfield) j->up_back = j->up, j->down_back = j->down;
    if (ep) take_packed(&s, j, &j->head), take_packed(&s, j, &j->head_back);
    const int used = slots < 1 ? 1 : slots;
    const size_t bytes = tn_relax_space_bytes(j, backward, used);
    void *p = tn_relax_take(&s, bytes);
    if (base) w.space = tn_relax_space_at(j, backward, used, p);
    if (backward) take_rows(&s, j, threads, &w.rows);
    else w.h = tn_relax_floats(&s, j->B * j->d);
    w.total = s.used;
    return w;
}

size_t tn_relax_work_cpu(const tn_sig *s, bool backward)
{
    tn_relax_job j = size_job(s->attr, s->in[TN_RELAX_A].dims, s->in[TN_RELAX_W1].dims, s->in[TN_RELAX_HEAD_W].dims,
                              !s->in[TN_RELAX_TOL].absent, s->round, s->bf16x3, s->portable);
    return carve(&j, backward, s->threads, NULL).total;
}

/* The job of a call, its workspace, and its weights packed. */
static tn_status prepare(const tn_call *c, bool backward, tn_relax_job *j, workspace *w)
{
    TN_RETURN_IF(make_job(c, j));
    *w = carve(j, backward, tn_pool_threads(c->pool), c->work);
    const float **const vector[] = { &j->b1, &j->b2, &j->gain2, &j->bias2, &j->gain, &j->bias, &j->head_b };
    static const int input[] = { TN_RELAX_B1,   TN_RELAX_B2,   TN_RELAX_GAIN2, TN_RELAX_BIAS2,
                                 TN_RELAX_GAIN, TN_RELAX_BIAS, TN_RELAX_HEAD_B };
    for (int64_t i = 0; i < j->d; i++) w->ones[i] = 1;
    const int64_t most = j->f > j->d ? j->f : j->d;
    memset(w->zeros, 0, sizeof(float) * (size_t)(most > j->C ? most : j->C));
    for (size_t i = 0; i < sizeof input / sizeof *input; i++) {
        const bool gain = input[i] == TN_RELAX_GAIN || input[i] == TN_RELAX_GAIN2;
        *vector[i] = c->in[input[i]].data ? c->in[input[i]].data : gain ? w->ones : w->zeros;
    }
    if (!j->hopfield) tn_relax_pack(j, &j->up);
    if (needs_down(j, backward)) tn_relax_pack(j, &j->down);
    if (backward && (j->block || j->hopfield)) tn_relax_pack(j, &j->up_back);
    if (backward && j->block) tn_relax_pack(j, &j->down_back);
    if (!j->block && !j->hopfield) j->up_back = j->up, j->down_back = j->down;
    if (backward && j->attr.grad == TN_LOOP_EP) tn_relax_pack(j, &j->head), tn_relax_pack(j, &j->head_back);
    return TN_OK;
}

/* --- kernels ------------------------------------------------------------------------------------------------------ */

tn_status tn_relax_forward_cpu(const tn_call *c)
{
    tn_relax_job j;
    workspace w;
    TN_RETURN_IF(prepare(c, false, &j, &w));
    const size_t row = sizeof(float) * (size_t)j.d;
    float *h = c->out[TN_RELAX_H].data ? c->out[TN_RELAX_H].data : w.h;
    tn_relax_solve v = { .phase = TN_RELAX_FREE,
                         .from = j.h0,
                         .to = h,
                         .inject = j.a,
                         .signs = 1,
                         .steps = c->out[TN_RELAX_FREE_STEPS].data,
                         .residuals = c->out[TN_RELAX_RESIDUALS].data };
    for (int i = TN_RELAX_FREE_STEPS; i <= TN_RELAX_SIGNAL; i++)
        if (c->out[i].data && j.B) memset(c->out[i].data, 0, sizeof(float) * (size_t)j.B);
    if (j.attr.grad == TN_LOOP_BPTT) v.history = c->out[TN_RELAX_HISTORY].data;
    if (j.attr.grad == TN_LOOP_BPTT && j.block)
        v.normal = c->out[TN_RELAX_NORMAL].data, v.scales = c->out[TN_RELAX_NORMAL_SCALE].data;
    tn_relax_run(&j, &w.space, &v);
    for (int64_t b = j.count; b < j.B; b++) {
        if (j.h0) memcpy(h + b * j.d, j.h0 + b * j.d, row);
        else memset(h + b * j.d, 0, row);
    }
    return TN_OK;
}

tn_status tn_relax_backward_cpu(const tn_call *c)
{
    tn_relax_job j;
    workspace w;
    TN_RETURN_IF(prepare(c, true, &j, &w));
    return tn_relax_gradients(c, &j, &w.space, &w.rows);
}
