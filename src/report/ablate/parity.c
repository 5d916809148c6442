/* Compares two stores by the names of their tensors, whatever the order in which they lie there. */
#include "report/ablate/parity.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

tn_parity tn_parity_none(void) { return (tn_parity){ .identical = true }; }

static void take(tn_parity *p, const char *what, const char *name, double error)
{
    p->identical = false;
    if (p->worst[0] && !(error > p->error)) return;
    p->error = error;
    snprintf(p->worst, sizeof p->worst, "%s%s", what, name);
}

/* One NaN where the other side has none is a difference that no tolerance allows. */
static double difference(double a, double b)
{
    if (isnan(a) && isnan(b)) return 0;
    if (a == b) return 0;
    return isfinite(a) && isfinite(b) ? fabs(a - b) : HUGE_VAL;
}

static double largest(const float *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        if (fabs((double)x[i]) > most && isfinite(x[i])) most = fabs((double)x[i]);
    return most;
}

void tn_parity_numbers(tn_parity *p, const char *what, const char *name, const float *a, const float *b, int64_t n,
                       double least)
{
    double most = 0;
    p->compared += n;
    if (memcmp(a, b, (size_t)n * sizeof *a) == 0) return;
    for (int64_t i = 0; i < n; i++) most = fmax(most, difference((double)a[i], (double)b[i]));
    const double of = fmax(fmax(largest(a, n), largest(b, n)), least);
    take(p, what, name, most > 0 ? most / fmax(of, 1e-30) : 0);
}

void tn_parity_loss(tn_parity *p, double a, double b)
{
    p->compared++;
    if (a == b || (isnan(a) && isnan(b))) return;
    take(p, "", "loss", difference(a, b) / fmax(fmax(fabs(a), fabs(b)), 1e-12));
}

bool tn_parity_fails(const tn_parity *p, double tolerance) { return !isnan(tolerance) && p->error > tolerance; }

/* --- stores ---------------------------------------------------------------------------------------------------------------- */

static const float *read(const tn_store *s, const tn_entry *e, bool gradient, tn_host_copy *h)
{
    return tn_store_read(s, gradient ? e->grad : e->data, sizeof(float) * (size_t)tn_dims_count(e->dims), h);
}

static bool is_compared(const tn_entry *e) { return e->grad && e->dtype == TN_F32; }

static bool same_shape(const tn_entry *a, const tn_entry *b)
{
    if (!is_compared(b) || a->dims.rank != b->dims.rank) return false;
    for (int i = 0; i < a->dims.rank; i++)
        if (a->dims.dim[i] != b->dims.dim[i]) return false;
    return true;
}

static tn_status scale_of(const tn_store *s, bool gradients, tn_host_copy *h, double *most)
{
    for (size_t i = 0; i < tn_store_count(s); i++) {
        const tn_entry *e = tn_store_at(s, i);
        if (!is_compared(e)) continue;
        const float *x = read(s, e, gradients, h);
        if (!x) return tn_error(TN_MEMORY, "out of memory");
        *most = fmax(*most, largest(x, tn_dims_count(e->dims)));
    }
    return TN_OK;
}

static tn_status compare(tn_parity *p, const tn_store *a, const tn_store *b, bool gradients, tn_host_copy h[2])
{
    const char *what = gradients ? "gradient of " : "";
    double most = 0;
    TN_RETURN_IF(scale_of(a, gradients, &h[0], &most));
    for (size_t i = 0; i < tn_store_count(a); i++) {
        const tn_entry *e = tn_store_at(a, i), *f = tn_store_find(b, e->name);
        if (!is_compared(e)) continue;
        if (!f || !same_shape(e, f)) {
            take(p, what, e->name, HUGE_VAL);
            continue;
        }
        const float *x = read(a, e, gradients, &h[0]), *y = read(b, f, gradients, &h[1]);
        if (!x || !y) return tn_error(TN_MEMORY, "out of memory");
        tn_parity_numbers(p, what, e->name, x, y, tn_dims_count(e->dims), TN_PARITY_SMALL * most);
    }
    for (size_t i = 0; i < tn_store_count(b); i++) {
        const tn_entry *e = tn_store_at(b, i);
        if (is_compared(e) && !tn_store_find(a, e->name)) take(p, what, e->name, HUGE_VAL);
    }
    return TN_OK;
}

tn_status tn_parity_stores(tn_parity *p, const tn_store *a, const tn_store *b, bool gradients)
{
    tn_host_copy h[2] = { { 0 } };
    const tn_status s = compare(p, a, b, gradients, h);
    tn_host_copy_free(&h[0]);
    tn_host_copy_free(&h[1]);
    return s;
}
