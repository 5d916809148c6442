/* Computing with a handle: steps of its model on the filled inputs, optimizer steps, rows of tokens. */
#include "api/net.h"

#include "base/alloc.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

static const int64_t MOST = (int64_t)1 << 40; /* tokens of a shape: far beyond any machine, far below overflow */

/* --- shapes ----------------------------------------------------------------------------------------------------------- */

/* The optimizer's counts outlive its trainer; moments lie in the store. */
static void drop(tenon_net *net, tn_net_part which)
{
    tn_trainer *t = net->part[which];
    if (t && which == TN_NET_GRAD) net->guard = tn_guard_state_of(tn_trainer_guard(t));
    if (net->ran == t) net->ran = NULL;
    tn_trainer_free(t);
    net->part[which] = NULL;
}

void tn__api_drop(tenon_net *net)
{
    for (int i = 0; i < TN_NET_PARTS; i++) drop(net, (tn_net_part)i);
    tn__api_forget_last(net);
    tenon_clear(net);
}

tenon_status tenon_shape(tenon_net *net, int64_t batch, int64_t length)
{
    if (batch < 1 || length < 1 || batch > MOST || length > MOST / batch)
        TN_API_USAGE("a shape of %lld sequences of %lld tokens%s", (long long)batch, (long long)length,
                     batch < 1 || length < 1 ? ": both must be 1 or more" : " is too large: use a smaller one");
    if (batch == net->batch && length == net->length) return TENON_OK;
    tn__api_drop(net);
    net->batch = batch;
    net->length = length;
    return TENON_OK;
}

int64_t tenon_batch(const tenon_net *net) { return net->batch; }

int64_t tenon_length(const tenon_net *net) { return net->length; }

int64_t tenon_vocab(const tenon_net *net) { return net->vocab; }

static tn_status need_part(tenon_net *net, tn_net_part which, tn_trainer **out)
{
    uint64_t optional = 0;
    if (which == TN_NET_GRAD) TN_RETURN_IF(tn__api_thaw(net));
    for (size_t i = 0; i < net->inputs.n; i++)
        optional |= (uint64_t)(net->inputs.slot[i].row->optional && net->input[i].filled) << i;
    if (optional != net->optional)
        for (int i = 0; i < TN_NET_PARTS; i++) drop(net, (tn_net_part)i);
    net->optional = optional;
    tn__api_forget_last(net);
    if (!net->part[which]) {
        tn_trainer *t;
        const char *wants[TN_BATCH_WANTS + 1] = { NULL };
        for (size_t i = 0; which == TN_NET_WANTS && i < net->n_wants; i++) wants[i] = net->want[i];
        const tn_trainer_options o = {
            .batch = net->batch, .length = net->length, .wants = wants, .forward_only = which != TN_NET_GRAD
        };
        TN_RETURN_IF(tn__api_trainer(net, o, false, &t));
        net->part[which] = t;
        if (which == TN_NET_GRAD && net->steps > 0)
            TN_RETURN_IF(tn_guard_resume(tn_trainer_guard(t), &net->guard, false, net->steps));
    }
    *out = net->part[which];
    return TN_OK;
}

/* --- one batch -------------------------------------------------------------------------------------------------------- */

static void pad(void *at, const tn_input_row *row, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (row->type == TN_F32) ((float *)at)[i] = (float)row->pad;
        else ((int32_t *)at)[i] = (int32_t)row->pad;
}

/* What is filled goes to the trainer. all: nothing that it reads may be missing. */
static tn_status give(const tenon_net *net, tn_trainer *t, bool all)
{
    const tn_feed f = tn_trainer_feed(t);
    bool any = false;
    for (size_t i = 0, k = 0; i < f.inputs->n; i++) {
        const tn_input_slot *s = &f.inputs->slot[i];
        const int64_t n = tn_input_items(s, net->batch, net->length);
        while (net->inputs.slot[k].row != s->row) k++; /* in the model's order, both */
        any |= net->input[k].filled;
        if (!f.at[i]) continue; /* the plan has no use for it */
        if (net->input[k].filled) memcpy(f.at[i], net->input[k].data, sizeof(float) * (size_t)n);
        else if (s->row->valid_rows) *(int32_t *)f.at[i] = (int32_t)net->batch;
        else if (all)
            return tn_error(TN_USAGE, "input %s of model %s is missing: fill it before the step", s->row->name,
                            net->saved.model->name);
        else pad(f.at[i], s->row, n);
    }
    return any ? TN_OK
               : tn_error(TN_USAGE, "no input of model %s is filled: fill what the step reads before it",
                          net->saved.model->name);
}

static bool among(const char *name, const char *const *outputs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (outputs[i] && strcmp(outputs[i], name) == 0) return true;
    return false;
}

/* Gradients by inputs do not stay: they cost a backward pass, and need their input filled. */
static void forget_gradients(tenon_net *net, const char *const *outputs, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < net->n_wants; i++)
        if (strncmp(net->want[i], "d.", 2) != 0 || among(net->want[i], outputs, n))
            memmove(net->want[kept++], net->want[i], sizeof net->want[i]);
    if (kept < net->n_wants) drop(net, TN_NET_WANTS);
    net->n_wants = kept;
}

/* Outputs join those that were asked for before, so that asking in turn makes no plans; where there is no room for both, those before go. */
static tn_status want(tenon_net *net, const char *const *outputs, size_t n)
{
    forget_gradients(net, outputs, n);
    const size_t before = net->n_wants;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        TN_RETURN_IF(tn__api_need(outputs[i], "a name in outputs"));
        while (k < net->n_wants && strcmp(net->want[k], outputs[i]) != 0) k++;
        if (k < net->n_wants) continue;
        if (k == TN_BATCH_WANTS || strlen(outputs[i]) >= TN_NET_NAME) {
            net->n_wants = 0;
            drop(net, TN_NET_WANTS);
            if (before && n <= TN_BATCH_WANTS) return want(net, outputs, n);
            return tn_error(TN_USAGE,
                            "output %.60s: at most %d outputs can be asked for, with names of at most %d letters",
                            outputs[i], TN_BATCH_WANTS, TN_NET_NAME - 1);
        }
        strcpy(net->want[net->n_wants++], outputs[i]);
    }
    if (net->n_wants > before) drop(net, TN_NET_WANTS);
    return TN_OK;
}

/* The step's name as the model has it. */
static tn_status find_step(const tenon_net *net, const char *step, const char **out)
{
    const tn_model *m = net->saved.model;
    char names[TN_NET_NAMES] = "train, eval";
    TN_RETURN_IF(tn__api_need(step, "step"));
    *out = strcmp(step, "train") == 0 ? "train" : strcmp(step, "eval") == 0 ? "eval" : NULL;
    for (size_t i = 0; !*out && i < m->n_steps; i++) {
        const char *is = m->steps[i].name;
        if (strcmp(is, step) == 0) *out = is;
        if (strcmp(is, "train") != 0 && strcmp(is, "eval") != 0) tn__api_list(names, is);
    }
    return *out ? TN_OK : tn_error(TN_USAGE, "model %s has no step %.60s: it has %s", m->name, step, names);
}

/* Trainers count batches: where a step is one of several, as a run counts them. */
static int64_t batch_number(const tenon_net *net)
{
    const int64_t n = tn_settings_int(net->saved.settings, "train.accumulate");
    return net->steps * n + (net->added < n ? net->added : n - 1);
}

static tn_status add_gradients(tenon_net *net, double *loss)
{
    tn_trainer *t;
    float x;
    TN_RETURN_IF(need_part(net, TN_NET_GRAD, &t));
    TN_RETURN_IF(give(net, t, true));
    TN_RETURN_IF(tn_trainer_grad(t, batch_number(net), &x));
    tn_trainer_unscale(t);
    net->added++;
    net->loss += (double)x;
    if (loss) *loss = (double)x;
    return TN_OK;
}

tenon_status tenon_run(tenon_net *net, const char *name, const char *const *outputs, size_t n, double *loss)
{
    tn_trainer *t;
    float x = NAN;
    const char *step;
    tenon_tensor out = { .size = sizeof out };
    TN_API_TRY(find_step(net, name, &step));
    net->ran = NULL;
    if (n) TN_API_TRY(tn__api_need(outputs, "outputs"));
    if (strcmp(step, "train") == 0 && n)
        TN_API_USAGE("step train has no outputs: ask for them in eval or another step");
    if (strcmp(step, "train") == 0) return (tenon_status)add_gradients(net, loss);
    if (n) TN_API_TRY(want(net, outputs, n));
    TN_API_TRY(need_part(net, n ? TN_NET_WANTS : TN_NET_EVAL, &t));
    const bool eval = strcmp(step, "eval") == 0;
    TN_API_TRY(give(net, t, eval && !n));
    TN_API_TRY(eval ? tn_trainer_eval(t, &x) : tn_trainer_run_step(t, step));
    net->ran = t;
    net->step = step;
    for (size_t i = 0; i < n; i++)
        if (tenon_output_find(net, outputs[i], &out) != TENON_OK) {
            net->n_wants = 0; /* not to ask for it again */
            drop(net, TN_NET_WANTS);
            return TENON_USAGE;
        }
    if (loss && !eval && tn__api_output(net, "loss", &out) && out.dtype == TENON_F32) x = *(const float *)out.data;
    if (loss) *loss = (double)x;
    return TENON_OK;
}

/* --- tokens ----------------------------------------------------------------------------------------------------------- */

/* Plans come before the arrays: a shape that is refused reads nothing. labels may be NULL: none counts. */
static tenon_status fill_tokens(tenon_net *net, tn_net_part which, const int32_t *tokens, const int32_t *labels)
{
    tn_trainer *t;
    tenon_input in = { .size = sizeof in };
    const size_t n = (size_t)(net->batch * net->length);
    TN_API_TRY(tenon_input_find(net, "tokens", &in));
    tenon_clear(net);
    TN_API_TRY(need_part(net, which, &t));
    TN_API_TRY(tenon_fill(net, "tokens", TENON_I32, tokens, n));
    return labels ? tenon_fill(net, "labels", TENON_I32, labels, n) : TENON_OK;
}

tenon_status tenon_forward(tenon_net *net, const int32_t *tokens, float *logits)
{
    static const char *const outputs[] = { "logits" };
    tenon_tensor out = { .size = sizeof out };
    size_t n = 1;
    TN_API_TRY(tn__api_need(logits, "logits"));
    if (!net->vocab)
        TN_API_USAGE("model %s has no output \"logits\": request another output with tenon_run",
                     net->saved.model->name);
    TN_API_TRY(want(net, outputs, 1));
    TN_API_TRY(fill_tokens(net, TN_NET_WANTS, tokens, NULL));
    TN_API_TRY(tenon_run(net, "eval", outputs, 1, NULL));
    TN_API_TRY(tenon_output_find(net, "logits", &out));
    for (int k = 0; k < out.rank; k++) n *= (size_t)out.shape[k];
    memcpy(logits, out.data, sizeof *logits * n);
    return TENON_OK;
}

tenon_status tenon_loss(tenon_net *net, const int32_t *tokens, const int32_t *labels, double *loss)
{
    TN_API_TRY(tn__api_need(labels, "labels"));
    TN_API_TRY(fill_tokens(net, TN_NET_EVAL, tokens, labels));
    return tenon_run(net, "eval", NULL, 0, loss);
}

tenon_status tenon_gradients(tenon_net *net, const int32_t *tokens, const int32_t *labels, double *loss)
{
    TN_API_TRY(tn__api_need(labels, "labels"));
    TN_API_TRY(fill_tokens(net, TN_NET_GRAD, tokens, labels));
    return tenon_run(net, "train", NULL, 0, loss);
}

void tenon_zero_gradients(tenon_net *net)
{
    tn_store_zero_grad(net->store);
    net->added = 0;
    net->loss = 0;
}

/* --- steps ------------------------------------------------------------------------------------------------------------ */

tenon_status tenon_step(tenon_net *net, tenon_step_report *report)
{
    tn_trainer *t;
    tn_update_result a;
    if (report) TN_API_TRY(tn__api_check_size(report, "tenon_step_report")); /* before anything changes */
    TN_API_TRY(need_part(net, TN_NET_GRAD, &t));
    const double mean = net->added ? net->loss / net->added : 0;
    const tn_status s = tn_trainer_apply(t, net->steps, net->added, (float)mean, &a);
    net->added = 0;
    net->loss = 0;
    TN_API_TRY(s);
    net->steps++;
    const tenon_step_report r = {
        .step = net->steps, .lr = (double)a.lr, .grad_norm = (double)a.grad_norm, .applied = a.ok
    };
    return report ? tn__api_give(&r, sizeof r, report, "tenon_step_report") : TENON_OK;
}

/* --- a row of tokens -------------------------------------------------------------------------------------------------- */

/* Windows [first, first + batch) of the row; returns how many labels count. */
static int64_t cut_windows(const tenon_net *net, const int32_t *tokens, int64_t n, int64_t first, int32_t *in,
                           int32_t *out)
{
    int64_t counted = 0;
    for (int64_t i = 0; i < net->batch * net->length; i++) {
        const int64_t at = first * net->length + i; /* windows lie one after another, as do the rows of a batch */
        in[i] = at < n ? tokens[at] : 0;
        out[i] = at + 1 < n ? tokens[at + 1] : -1;
        counted += at + 1 < n;
    }
    return counted;
}

tenon_status tenon_evaluate(tenon_net *net, const int32_t *tokens, size_t many, double *nats, size_t *counted)
{
    const int64_t n = (int64_t)many;
    tn_trainer *t;
    void *in, *out;
    double sum = 0, loss;
    atomic_store(&net->interrupted, false);
    TN_API_TRY(tn__api_need(nats, "nats"));
    if (n < 2) TN_API_USAGE("%lld tokens: at least 2 are needed, since the first is not predicted", (long long)n);
    TN_API_TRY(tn__api_check_values(net, "tokens", tokens, many));
    tenon_clear(net);
    TN_API_TRY(need_part(net, TN_NET_EVAL, &t));
    TN_API_TRY(tn__api_input(net, "tokens", &in));
    TN_API_TRY(tn__api_input(net, "labels", &out));
    for (int64_t first = 0; first * net->length < n - 1; first += net->batch) {
        if (atomic_load(&net->interrupted)) return (tenon_status)tn_error(TN_INTERRUPTED, "interrupted");
        const int64_t count = cut_windows(net, tokens, n, first, in, out);
        TN_API_TRY(tenon_run(net, "eval", NULL, 0, &loss));
        sum += loss * (double)count;
    }
    *nats = sum / (double)(n - 1);
    if (counted) *counted = many - 1;
    return TENON_OK;
}
