/* Pieces of logits: the three products, and tiles of rows. Labels and weights of losses: checks, sums, and the gradient by the weights;
 * serial, a few numbers per token. */
#include "ops/logits.h"

#include "backend/cpu/gemm.h"

static void multiply(const tn_call *c, const tn_logits *l, tn_gemm g)
{
    g.batch = 1;
    g.alpha = 1;
    g.round = c->round;
    g.bf16x3 = c->bf16x3;
    g.portable_only = c->portable;
    tn_gemm_run(c->pool, &g, l->gemm);
}

void tn_logits_make(const tn_call *c, const tn_logits *l)
{
    multiply(c, l,
             (tn_gemm){ .m = l->rows,
                        .n = l->columns,
                        .k = l->d,
                        .a = l->x,
                        .a_row = l->d,
                        .a_col = 1,
                        .b = l->w,
                        .b_row = 1,
                        .b_col = l->d,
                        .b_type = l->w_type,
                        .c = l->at,
                        .c_row = l->apart,
                        .bias = l->bias });
}

void tn_logits_dx(const tn_call *c, const tn_logits *l, float *dx, bool add)
{
    multiply(c, l,
             (tn_gemm){ .m = l->rows,
                        .n = l->d,
                        .k = l->columns,
                        .a = l->at,
                        .a_row = l->apart,
                        .a_col = 1,
                        .b = l->w,
                        .b_row = l->d,
                        .b_col = 1,
                        .b_type = l->w_type,
                        .c = dx,
                        .c_row = l->d,
                        .accumulate = add });
}

void tn_logits_dw(const tn_call *c, const tn_logits *l, float *dw, bool add)
{
    multiply(c, l,
             (tn_gemm){ .m = l->columns,
                        .n = l->d,
                        .k = l->rows,
                        .a = l->at,
                        .a_row = 1,
                        .a_col = l->apart,
                        .b = l->x,
                        .b_row = l->d,
                        .b_col = 1,
                        .c = dw,
                        .c_row = l->d,
                        .accumulate = add });
}

static tn_dims without_last(tn_dims d)
{
    if (d.rank > 0) d.rank--;
    return d;
}

tn_status tn_labels_infer(const tn_type *x, const tn_type *labels, const tn_type *weights)
{
    char a[128], b[128];
    if (x->dims.rank < 1 || !tn_dtype_is_float(x->dtype))
        return tn_error(TN_USAGE, "the rows must be floats of rank 1 or more, not %s %s", tn_dtype_name(x->dtype),
                        tn_dims_text(x->dims, a, sizeof a));
    const tn_dims tokens = without_last(x->dims);
    if (labels->absent || labels->dtype != TN_I32)
        return tn_error(TN_USAGE, "labels must be i32, not %s",
                        labels->absent ? "absent" : tn_dtype_name(labels->dtype));
    if (!tn_dims_equal(labels->dims, tokens))
        return tn_error(TN_USAGE, "labels have shape %s, expected %s: one label per row",
                        tn_dims_text(labels->dims, a, sizeof a), tn_dims_text(tokens, b, sizeof b));
    if (!weights->absent && (!tn_dims_equal(weights->dims, tokens) || !tn_dtype_is_float(weights->dtype)))
        return tn_error(TN_USAGE, "weights are %s %s: one float per label, %s", tn_dtype_name(weights->dtype),
                        tn_dims_text(weights->dims, a, sizeof a), tn_dims_text(tokens, b, sizeof b));
    return TN_OK;
}

size_t tn_logits_work(int64_t tile, int64_t block, int64_t d, bool backward, int threads)
{
    const size_t logits = tn_gemm_work_most(tile, block, threads), dx = tn_gemm_work_most(tile, d, threads),
                 dw = tn_gemm_work_most(block, d, threads);
    size_t most = logits;
    if (backward && dx > most) most = dx;
    if (backward && dw > most) most = dw;
    return most;
}

int64_t tn_logits_tile(int64_t asked, int64_t classes, int64_t kept)
{
    enum { TILE = 256, LEAST = 32 };
    const int64_t most = kept && classes ? kept / (int64_t)sizeof(float) / classes : TILE;
    return asked ? asked : tn_least(most < LEAST ? LEAST : most, TILE);
}

int64_t tn_labels_gather(const tn_labels *l, const tn_arg *x, int64_t d, int64_t most, int64_t *at, float *to,
                         int64_t *index)
{
    const int64_t row = d * (int64_t)tn_dtype_bytes(x->dtype);
    int64_t n = 0;
    for (; *at < l->n && n < most; ++*at) {
        if (!tn_label_counts(l, *at)) continue;
        tn_convert(to + n * d, TN_F32, (const char *)x->data + *at * row, x->dtype, d);
        index[n++] = *at;
    }
    return n;
}

void tn_rows_scatter(float *dx, const float *from, const int64_t *index, int64_t rows, int64_t d)
{
    for (int64_t r = 0; r < rows; r++) {
        const float *restrict x = from + r * d;
        float *restrict to = dx + index[r] * d;
        for (int64_t i = 0; i < d; i++) to[i] += x[i];
    }
}

/* --- divergences -------------------------------------------------------------------------------------------------- */

tn_status tn_kl_infer(float temperature, const tn_type *x, const tn_type *labels, const tn_type *weights, tn_dims *rows)
{
    tn_type l = *labels;
    if (!(temperature > 0) || isinf(temperature))
        return tn_error(TN_USAGE, "temperature %g: it must be positive and finite", (double)temperature);
    if (labels->absent) l = (tn_type){ .dtype = TN_I32, .dims = x->dims };
    if (labels->absent && l.dims.rank > 0) l.dims.rank--;
    *rows = l.dims;
    return tn_labels_infer(x, &l, weights);
}

tn_status tn_kl_head_infer(const tn_type *x, const tn_type *w, const char *name, const char *of)
{
    const int64_t d = tn_last_dim(x->dims);
    if (w->dims.rank != 2 || w->dims.dim[0] < 1 || w->dims.dim[1] != d || !tn_dtype_is_float(w->dtype))
        return tn_error(TN_USAGE, "%s must be floats of shape (V,%lld): one row per class, as long as a row of %s",
                        name, (long long)d, of);
    return TN_OK;
}

void tn_kl_outputs(tn_sig *s, tn_dims rows)
{
    s->n_out = 3;
    for (int i = 0; i < 3; i++) s->out[i].dtype = TN_F32;
    s->out[0].dims = (tn_dims){ 0 };
    s->out[1].dims = s->out[2].dims = rows;
    s->out[2].dims.dim[s->out[2].dims.rank++] = 2;
}

void tn_kl_loss(const tn_call *c, const tn_labels *l, float temperature, double sum)
{
    const double scale = tn_labels_scale(l, false) * (double)temperature * (double)temperature;
    if (c->out[0].data) *(float *)c->out[0].data = scale == 0 ? 0.f : (float)(sum * scale);
}

void tn_kl_weights(const tn_call *c, const tn_labels *l, float temperature, double dy, int slot)
{
    const double scale = tn_labels_scale(l, false) * dy, loss = (double)*(const float *)c->out[0].data;
    const double square = (double)temperature * (double)temperature;
    const float *kl = c->out[1].data;
    const bool add = c->accumulate >> slot & 1;
    float *d = c->din[slot].data;
    for (int64_t i = 0; i < l->n; i++) {
        const float g = tn_label_counts(l, i) ? (float)(scale * (square * (double)kl[i] - loss)) : 0.f;
        d[i] = add ? d[i] + g : g;
    }
    if (!add) tn_zero_from(&c->din[slot], l->n);
}

/* --- labels ------------------------------------------------------------------------------------------------------- */

tn_status tn_labels_check(const tn_labels *l)
{
    for (int64_t i = 0; i < l->n; i++)
        if (tn_label_counts(l, i) && (l->label[i] < 0 || l->label[i] >= l->classes))
            return tn_error(TN_USAGE,
                            "label %d of token %lld is not in [0,%lld) and is not the ignored label %d: check the "
                            "data, or set .ignore",
                            (int)l->label[i], (long long)i, (long long)l->classes, (int)l->ignore);
    return TN_OK;
}

double tn_labels_scale(const tn_labels *l, bool sum)
{
    double total = 0;
    if (sum) return 1;
    for (int64_t i = 0; i < l->n; i++)
        if (tn_label_counts(l, i)) total += (double)tn_label_weight(l, i);
    return total == 0 ? 0 : 1 / total;
}

/* loss = scale sum w_t l_t with l = nll + z lse^2. Mean: scale = 1 / sum w, so dloss/dw_t = scale (l_t - loss). */
void tn_labels_backward(const tn_labels *l, bool sum, double z, const float *nll, const float *lse, float loss,
                        float dy, float *d, bool add)
{
    const double scale = tn_labels_scale(l, sum) * (double)dy, mean = sum ? 0 : (double)loss;
    for (int64_t i = 0; i < l->n; i++) {
        const double s = (double)lse[i];
        const float g = tn_label_counts(l, i) ? (float)(scale * ((double)nll[i] + z * s * s - mean)) : 0.f;
        d[i] = add ? d[i] + g : g;
    }
}

tn_status tn_weights_infer(const tn_type *x, const tn_type *weights, int most)
{
    char a[128], b[128];
    bool ok = weights->dims.rank <= most && tn_dtype_is_float(weights->dtype);
    if (weights->absent) return TN_OK;
    for (int i = 0; ok && i < weights->dims.rank; i++) ok = weights->dims.dim[i] == x->dims.dim[i];
    if (!ok)
        return tn_error(TN_USAGE, "weights are %s %s: floats whose axes are the first axes of %s, at most %d of them",
                        tn_dtype_name(weights->dtype), tn_dims_text(weights->dims, a, sizeof a),
                        tn_dims_text(x->dims, b, sizeof b), most);
    return TN_OK;
}

double tn_weights_sum(const float *w, int64_t n)
{
    double sum = 0;
    if (!w) return (double)n;
    for (int64_t i = 0; i < n; i++) sum += (double)w[i];
    return sum;
}

void tn_zero_from(const tn_arg *d, int64_t from)
{
    const int64_t end = tn_arg_count(d);
    if (from < end) memset((float *)d->data + from, 0, sizeof(float) * (size_t)(end - from));
}
