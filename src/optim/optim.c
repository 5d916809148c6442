/* Building the optimizer's plan over the buckets of a store. Nodes of adamw and sgd write the memory they read, so they
 * are emitted by hand: their outputs are their first inputs. */
#include "optim/optim.h"

#include "ops/adamw/adamw.h"
#include "ops/clipnorm/clipnorm.h"
#include "ops/fill/fill.h"
#include "ops/segments.h"
#include "ops/sgd/sgd.h"
#include "ops/sumsq/sumsq.h"

#include <math.h>
#include <stdio.h>

/* What every bucket's node reads besides its arrays; none of them is made when the rule has no use for it. */
typedef struct shared {
    tn_ref lr, beta1, beta2, eps, momentum, decay, opt_step;
    tn_clipnorm_result clip;
} shared;

static int32_t flat(tn_graph *g, const tn_store *st, int bucket, const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "bucket%d.%s", bucket, what);
    const int32_t old = tn_graph_find(g, name);
    return old ? old : tn_graph_new_tensor(g, TN_ROLE_FLAT, name, TN_F32, tn_shape(tn_store_bucket(st, bucket)->count));
}

/* One segment per trainable tensor of the bucket; the store lists them in the order of their offsets. */
static tn_segments segments_of(tn_graph *g, const tn_store *st, int bucket, bool decay_all)
{
    const size_t n = tn_store_count(st);
    tn_segment *at = tn_arena_alloc(&g->memory, sizeof *at * (n + 1));
    tn_segments s = { .at = at };
    if (!at) g->status = TN_MEMORY;
    for (size_t i = 0; at && i < n; i++) {
        const tn_entry *e = tn_store_at(st, i);
        if (e->role != TN_ROLE_PARAM || e->bucket != bucket) continue;
        at[s.n++] = (tn_segment){
            .offset = e->offset, .count = tn_dims_count(e->dims), .lr = e->lr, .decay = e->decay || decay_all
        };
    }
    return s;
}

/* A node whose outputs are its first `flats` inputs. */
static void emit_in_place(tn_graph *g, const tn_op *op, const void *attr, const int32_t *in, int n_in, int flats)
{
    tn_type out[TN_MAX_ARGS];
    const tn_node *n = tn_graph_emit(g, op, attr, in, n_in, in, flats);
    if (!n) return;
    tn_sig sig = tn_node_sig(g, n, 1);
    sig.out = out;
    const tn_status s = op->infer(&sig);
    if (s != TN_OK) tn_graph_fail(g, "optim", 0, s, "%s: %s", op->name, tn_error_text());
}

/* The bucket's arrays as a node's first inputs. One statement per tensor here and below: the order of a plan's tensors
 * must not be the compiler's choice. */
static void put_flats(tn_graph *g, const tn_store *st, int bucket, int32_t *in, int flats)
{
    static const char *const what[] = { "param", "grad", "m", "v" };
    for (int i = 0; i < flats; i++) in[i] = flat(g, st, bucket, what[i]);
}

static void emit_adamw(tn_graph *g, const tn_store *st, int bucket, const shared *x, const tn_optim_options *o)
{
    const tn_segments s = segments_of(g, st, bucket, o->decay_all);
    int32_t in[TN_ADAMW_INPUTS] = { 0,
                                    0,
                                    0,
                                    0,
                                    x->lr.id,
                                    x->beta1.id,
                                    x->beta2.id,
                                    x->eps.id,
                                    x->decay.id,
                                    x->opt_step.id,
                                    x->clip.coefficient.id,
                                    x->clip.ok.id };
    put_flats(g, st, bucket, in, TN_ADAMW_FLATS);
    const int64_t each = o->apart ? 1 : s.n;
    for (int64_t i = 0; i < s.n && g->status == TN_OK; i += each) {
        const tn_adamw_attr a = { .segment = s.at + i, .n = each, .keeps_grad = o->apart };
        emit_in_place(g, &tn_op_adamw, &a, in, TN_ADAMW_INPUTS, TN_ADAMW_FLATS);
    }
    const tn_fill_attr zero = { .dtype = TN_F32, .dims = tn_shape(tn_store_bucket(st, bucket)->count) };
    if (o->apart && g->status == TN_OK) tn_graph_emit(g, &tn_op_fill, &zero, NULL, 0, &in[1], 1);
}

static void emit_sgd(tn_graph *g, const tn_store *st, int bucket, const shared *x, const tn_optim_options *o)
{
    const tn_segments s = segments_of(g, st, bucket, o->decay_all);
    const tn_sgd_attr a = { .segment = s.at, .n = s.n, .nesterov = o->nesterov };
    int32_t in[TN_SGD_INPUTS] = {
        0, 0, 0, x->lr.id, x->momentum.id, x->decay.id, x->clip.coefficient.id, x->clip.ok.id
    };
    put_flats(g, st, bucket, in, TN_SGD_FLATS);
    emit_in_place(g, &tn_op_sgd, &a, in, TN_SGD_INPUTS, TN_SGD_FLATS);
}

static tn_clipnorm_result add_clip(tn_graph *g, const tn_store *st, int64_t losses)
{
    tn_ref grad[TN_MAX_ARGS];
    const int n = tn_store_buckets(st);
    for (int i = 0; i < n; i++) grad[i] = (tn_ref){ flat(g, st, i, "grad") };
    const tn_ref sumsq = tn_sumsq(g, grad, n);
    const tn_ref clip = tn_scalar(g, "clip", 0);
    const tn_ref scale = tn_scalar(g, "scale", 1);
    const tn_ref loss = tn_input(g, "loss", tn_shape(losses > 0 ? losses : 1), TN_F32);
    return tn_clipnorm(g, sumsq, clip, scale, .loss = loss);
}

static void build(tn_graph *g, const tn_store *st, const tn_optim_options *o)
{
    const tn_region r = tn_region_begin(g, "optim");
    shared x = { .clip = add_clip(g, st, o->losses) };
    x.lr = tn_scalar(g, "lr", 0);
    x.decay = tn_scalar(g, "decay", 0);
    if (o->kind == TN_SGD) {
        x.momentum = tn_scalar(g, "momentum", 0);
    } else {
        x.beta1 = tn_scalar(g, "beta1", 0.9f);
        x.beta2 = tn_scalar(g, "beta2", 0.95f);
        x.eps = tn_scalar(g, "eps", 1e-8f);
        x.opt_step = tn_scalar(g, "opt_step", 1);
    }
    for (int i = 0; i < tn_store_buckets(st); i++) {
        if (o->kind == TN_SGD) emit_sgd(g, st, i, &x, o);
        else emit_adamw(g, st, i, &x, o);
    }
    tn_output(g, "grad_norm", x.clip.norm);
    tn_output(g, "ok", x.clip.ok);
    tn_region_end(g, r);
}

tn_status tn_optim_plan(tn_store *st, const tn_optim_options *o, tn_device device, int threads, tn_plan **out)
{
    const int buckets = tn_store_buckets(st);
    if (!buckets) return tn_error(TN_USAGE, "the model has no trainable tensors: there is nothing to optimize");
    if (buckets > TN_MAX_ARGS)
        return tn_error(TN_USAGE, "the store has %d buckets, at most %d: adopt the whole model at once", buckets,
                        TN_MAX_ARGS);
    TN_RETURN_IF(tn_store_moments(st, o->kind == TN_SGD ? 1 : 2));
    tn_graph *g;
    TN_RETURN_IF(tn_graph_new(&(tn_graph_options){ .threads = threads }, &g));
    build(g, st, o);
    return tn_graph_compile(g, &(tn_compile_options){ .device = device, .threads = threads }, out);
}

tn_status tn_optim_set(tn_bound *b, const tn_optim_scalars *v)
{
    const struct {
        const char *name;
        float value, low, high; /* low <= value < high; NaN fails */
    } row[] = {
        { "lr", v->lr, 0, INFINITY },
        { "beta1", v->beta1, 0, 1 },
        { "beta2", v->beta2, 0, 1 },
        { "eps", v->eps, 1e-30f, INFINITY },
        { "momentum", v->momentum, 0, 1 },
        { "decay", v->decay, 0, INFINITY },
        { "clip", v->clip, 0, INFINITY },
        { "scale", v->scale, 0, INFINITY },
        { "opt_step", (float)v->opt_step, 1, INFINITY },
    };
    const int n = (int)(sizeof row / sizeof *row);
    for (int i = 0; i < n; i++)
        if (tn_bound_data(b, row[i].name) && !(row[i].value >= row[i].low && row[i].value < row[i].high))
            return tn_error(TN_USAGE, "the optimizer's %s is %g, outside [%g, %g): check the settings and the schedule",
                            row[i].name, (double)row[i].value, (double)row[i].low, (double)row[i].high);
    for (int i = 0; i < n; i++)
        if (tn_bound_data(b, row[i].name)) TN_RETURN_IF(tn_bound_set(b, row[i].name, row[i].value));
    return TN_OK;
}
