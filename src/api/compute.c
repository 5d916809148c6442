/* Computing with a handle: shapes, forward passes, losses, gradients, steps, evaluation. */
#include "api/net.h"

#include "base/alloc.h"
#include "base/status.h"

#include <string.h>

/* --- shapes ----------------------------------------------------------------------------------------------------------- */

/* The optimizer's counts outlive its trainer; moments lie in the store. */
static void drop_parts(tenon_net *net)
{
    if (net->part[TN_NET_GRAD]) net->guard = tn_guard_state_of(tn_trainer_guard(net->part[TN_NET_GRAD]));
    for (int i = 0; i < TN_NET_PARTS; i++) {
        tn_trainer_free(net->part[i]);
        net->part[i] = NULL;
    }
}

tenon_status tenon_shape(tenon_net *net, int64_t batch, int64_t length)
{
    if (batch < 1 || length < 1)
        return (tenon_status)tn_error(TN_USAGE, "a shape of %lld sequences of %lld tokens: both must be 1 or more",
                                      (long long)batch, (long long)length);
    if (batch == net->batch && length == net->length) return TENON_OK;
    drop_parts(net);
    net->batch = batch;
    net->length = length;
    return TENON_OK;
}

int64_t tenon_batch(const tenon_net *net) { return net->batch; }

int64_t tenon_length(const tenon_net *net) { return net->length; }

int64_t tenon_vocab(const tenon_net *net) { return net->vocab; }

static tn_status need_part(tenon_net *net, tn_net_part which, tn_trainer **out)
{
    if (!tn_model_reads(net->saved.model, "tokens")) {
        (void)tn_error(TN_USAGE, "model %s reads no tokens, which this call takes: use tenon_measure, or `tenon train`", net->saved.model->name);
        return TN_USAGE;
    }
    const tn_trainer_options o = { .model = net->saved.model,
                                   .settings = net->saved.settings,
                                   .batch = net->batch,
                                   .length = net->length,
                                   .logits = which == TN_NET_LOGITS,
                                   .forward_only = which != TN_NET_GRAD,
                                   .store = net->store };
    if (!net->part[which]) {
        tn_trainer *t;
        TN_RETURN_IF(tn_trainer_new(&o, &t));
        net->part[which] = t;
        if (which == TN_NET_GRAD && net->step > 0)
            TN_RETURN_IF(tn_guard_resume(tn_trainer_guard(t), &net->guard, false, net->step));
    }
    *out = net->part[which];
    return TN_OK;
}

/* --- one batch -------------------------------------------------------------------------------------------------------- */

static tn_status check_ids(const tenon_net *net, const char *what, const int32_t *ids, int64_t n, int32_t least)
{
    TN_RETURN_IF(tn__api_need(ids, what));
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < least || (net->vocab && ids[i] >= net->vocab))
            return tn_error(TN_USAGE, "%s[%lld] is %d, outside %d to %lld", what, (long long)i, (int)ids[i], (int)least,
                            (long long)net->vocab - 1);
    return TN_OK;
}

/* labels may be NULL: none counts. */
static tn_status fill(const tenon_net *net, tn_trainer *t, const int32_t *tokens, const int32_t *labels)
{
    const int64_t n = net->batch * net->length;
    TN_RETURN_IF(check_ids(net, "tokens", tokens, n, 0));
    if (labels) TN_RETURN_IF(check_ids(net, "labels", labels, n, -1));
    int32_t *in = tn_trainer_input(t, "tokens"), *out = tn_trainer_input(t, "labels");
    if (in) memcpy(in, tokens, sizeof *tokens * (size_t)n);
    if (labels && out) memcpy(out, labels, sizeof *labels * (size_t)n);
    else if (out) memset(out, 0xff, sizeof *labels * (size_t)n); /* -1 */
    return TN_OK;
}

static tn_status forward(tenon_net *net, const int32_t *tokens, float *logits)
{
    tn_trainer *t;
    float loss;
    TN_RETURN_IF(tn__api_need(logits, "logits"));
    if (!net->vocab) return tn_error(TN_USAGE, "model %s puts out no \"logits\"", net->saved.model->name);
    TN_RETURN_IF(need_part(net, TN_NET_LOGITS, &t));
    TN_RETURN_IF(fill(net, t, tokens, NULL));
    TN_RETURN_IF(tn_trainer_eval(t, &loss));
    int64_t count;
    const float *from = tn_trainer_output(t, "logits", &count);
    memcpy(logits, from, sizeof *logits * (size_t)count);
    return TN_OK;
}

tenon_status tenon_forward(tenon_net *net, const int32_t *tokens, float *logits)
{
    return (tenon_status)forward(net, tokens, logits);
}

static tn_status loss_of(tenon_net *net, tn_net_part which, const int32_t *tokens, const int32_t *labels, double *loss)
{
    tn_trainer *t;
    float x;
    TN_RETURN_IF(tn__api_need(labels, "labels"));
    TN_RETURN_IF(need_part(net, which, &t));
    TN_RETURN_IF(fill(net, t, tokens, labels));
    if (which == TN_NET_GRAD) {
        TN_RETURN_IF(tn_trainer_grad(t, net->step, &x));
        tn_trainer_unscale(t);
        net->added++;
        net->loss += (double)x;
    } else TN_RETURN_IF(tn_trainer_eval(t, &x));
    if (loss) *loss = (double)x;
    return TN_OK;
}

tenon_status tenon_loss(tenon_net *net, const int32_t *tokens, const int32_t *labels, double *loss)
{
    return (tenon_status)loss_of(net, TN_NET_LOSS, tokens, labels, loss);
}

tenon_status tenon_gradients(tenon_net *net, const int32_t *tokens, const int32_t *labels, double *loss)
{
    return (tenon_status)loss_of(net, TN_NET_GRAD, tokens, labels, loss);
}

void tenon_zero_gradients(tenon_net *net)
{
    tn_store_zero_grad(net->store);
    net->added = 0;
    net->loss = 0;
}

/* --- steps ------------------------------------------------------------------------------------------------------------ */

static tn_status step(tenon_net *net, tenon_step_report *report)
{
    tn_trainer *t;
    tn_applied a;
    if (report && (report->size < sizeof report->size || report->size > 1024))
        return tn_error(TN_USAGE, "tenon_step_report.size is %zu: set it to sizeof(tenon_step_report)", report->size);
    TN_RETURN_IF(need_part(net, TN_NET_GRAD, &t));
    const double mean = net->added ? net->loss / net->added : 0;
    const tn_status s = tn_trainer_apply(t, net->step, net->added, (float)mean, &a);
    net->added = 0;
    net->loss = 0;
    TN_RETURN_IF(s);
    net->step++;
    if (!report) return TN_OK;
    const tenon_step_report r = {
        .size = report->size, .step = net->step, .lr = (double)a.lr, .grad_norm = (double)a.grad_norm, .applied = a.ok
    };
    memcpy(report, &r, report->size < sizeof r ? report->size : sizeof r);
    return TN_OK;
}

tenon_status tenon_step(tenon_net *net, tenon_step_report *report) { return (tenon_status)step(net, report); }

/* --- a row of tokens -------------------------------------------------------------------------------------------------- */

/* Windows [first, first + batch) of the row; returns how many labels count. */
static int64_t cut_windows(const tenon_net *net, const int32_t *tokens, int64_t n, int64_t first, int32_t *in,
                           int32_t *out)
{
    int64_t counted = 0;
    for (int64_t i = 0; i < net->batch * net->length; i++) {
        const int64_t at = first * net->length + i; /* windows lie one after another, as do the rows of a batch */
        if (in) in[i] = at < n ? tokens[at] : 0;
        if (out) out[i] = at + 1 < n ? tokens[at + 1] : -1;
        counted += at + 1 < n;
    }
    return counted;
}

static tn_status evaluate(tenon_net *net, const int32_t *tokens, int64_t n, double *nats, size_t *counted)
{
    tn_status s = TN_OK;
    tn_trainer *t;
    double sum = 0;
    TN_TRY(tn__api_need(nats, "nats"));
    if (n < 2) TN_FAIL(TN_USAGE, "%lld tokens: the first is not predicted, so two are needed", (long long)n);
    TN_TRY(check_ids(net, "tokens", tokens, n, 0));
    TN_TRY(need_part(net, TN_NET_LOSS, &t));
    for (int64_t first = 0; first * net->length < n - 1; first += net->batch) {
        float loss;
        if (atomic_load(&net->interrupted)) TN_FAIL(TN_INTERRUPTED, "interrupted");
        const int64_t count = cut_windows(net, tokens, n, first, tn_trainer_input(t, "tokens"), tn_trainer_input(t, "labels"));
        TN_TRY(tn_trainer_eval(t, &loss));
        sum += (double)loss * (double)count;
    }
    *nats = sum / (double)(n - 1);
    if (counted) *counted = (size_t)(n - 1);
done:
    return s;
}

tenon_status tenon_evaluate(tenon_net *net, const int32_t *tokens, size_t n, double *nats, size_t *counted)
{
    atomic_store(&net->interrupted, false);
    return (tenon_status)evaluate(net, tokens, (int64_t)n, nats, counted);
}
