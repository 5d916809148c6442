/* Compiling bodies: builds one iteration in a graph of its own, with the op's inputs as named inputs, and turns it
 * into one of its entry points. */
#include <tenon/body.h>

#include "plan/plan_internal.h"

#include <stdio.h>
#include <string.h>

static tn_ref named_input(tn_graph *g, const char *kind, int i, const tn_type *t)
{
    char name[32];
    snprintf(name, sizeof name, "%s%d", kind, i);
    return tn_input(g, name, t->dims, t->dtype);
}

/* Results lie in the body's arena, contiguous: what came in may be handed on, but not its memory. */
static void named_output(tn_graph *g, const char *kind, int i, tn_ref x)
{
    char name[32];
    snprintf(name, sizeof name, "%s%d", kind, i);
    if (x.id && g->status == TN_OK &&
        (!tn_gtensor_contiguous(&g->tensor[x.id]) || g->tensor[g->tensor[x.id].base].role != TN_ROLE_ACTIVATION))
        x = tn_copy(g, x);
    tn_output(g, name, x);
}

/* The state comes back as it went in. */
static void check_next(tn_graph *g, const tn_body_spec *s, const tn_ref *next)
{
    char a[128], b[128];
    for (int i = 0; i < s->n_state && g->status == TN_OK; i++) {
        const tn_gtensor *t = &g->tensor[next[i].id];
        if (next[i].id && t->dtype == s->state[i].dtype && tn_dims_equal(t->dims, s->state[i].dims)) continue;
        tn_graph_fail(g, "body", i, TN_USAGE, "state %d goes in as %s %s and comes out as %s %s", i,
                      tn_dtype_name(s->state[i].dtype), tn_dims_text(s->state[i].dims, a, sizeof a),
                      tn_dtype_name(t->dtype), next[i].id ? tn_dims_text(t->dims, b, sizeof b) : "nothing");
    }
}

/* Row-wise ops state a live extent from their first input on: what loses it would compute with rows nobody wrote. */
static void check_live(tn_graph *g, const tn_body_spec *s, const tn_ref *state, const tn_ref *next)
{
    for (int i = 0; s->live && i < s->n_state && g->status == TN_OK; i++)
        if (g->tensor[next[i].id].live != g->tensor[state[i].id].live)
            tn_graph_fail(g, "body", i, TN_USAGE,
                          "state %d comes out without its live extent: put what has samples first "
                          "in sums and products, mark every constant that has them, or mark none",
                          i);
}

/* Only what the op hands over may be used: the frame has no store. */
static void check_outside(tn_graph *g)
{
    for (size_t i = 1; i < g->n_tensors && g->status == TN_OK; i++) {
        const tn_gtensor *t = &g->tensor[i];
        const bool rng = t->role == TN_ROLE_INPUT && t->name &&
                         (strcmp(t->name, "rng") == 0 || strcmp(t->name, TN_UPDATE_SEED) == 0);
        if (t->role == TN_ROLE_PARAM || t->role == TN_ROLE_FROZEN || t->role == TN_ROLE_STATE ||
            t->role == TN_ROLE_CACHE || t->role == TN_ROLE_DATA || t->role == TN_ROLE_SCALAR || rng)
            tn_graph_fail(g, "body", 0, TN_USAGE, "%s inside a body: make it outside and pass it as a constant",
                          t->name ? t->name : "a tensor");
    }
}

static void want(tn_graph *g, const tn_ref *refs, const tn_type *types, int n, bool adds)
{
    for (int i = 0; i < n && g->status == TN_OK; i++) {
        if (!refs[i].id || !types[i].trainable || !tn_dtype_is_float(types[i].dtype)) continue;
        tn_want_gradient(g, refs[i]);
        g->tensor[refs[i].id].wanted_adds = adds;
    }
}

static int add_seeds(tn_graph *g, const char *kind, const tn_ref *y, int n, tn_seed *seeds, int at)
{
    for (int i = 0; i < n && g->status == TN_OK; i++) {
        if (!y[i].id || !tn_dtype_is_float(tn_ref_dtype(g, y[i])) || !g->tensor[y[i].id].needs_grad) continue;
        const tn_type t = { .dtype = tn_ref_dtype(g, y[i]), .dims = tn_ref_dims(g, y[i]) };
        seeds[at++] = (tn_seed){ .y = y[i], .dy = named_input(g, kind, i, &t) };
        if (g->status == TN_OK) g->tensor[seeds[at - 1].dy.id].live = g->tensor[y[i].id].live;
    }
    return at;
}

/* Constants that never change may be packed once; those with samples are cut to the rows alive, as the states are. */
static void mark_inputs(tn_graph *g, const tn_body_spec *s, const tn_ref *state, const tn_ref *consts)
{
    const tn_ref live = s->live ? tn_input(g, "live", tn_shape(1), TN_I32) : TN_NONE;
    if (g->status != TN_OK) return;
    for (int i = 0; s->live && i < s->n_state; i++) g->tensor[state[i].id].live = live.id;
    for (int i = 0; i < s->n_consts; i++) {
        if (!consts[i].id) continue;
        const bool moves = s->live && (s->live_consts >> i & 1);
        g->tensor[consts[i].id].constant = !moves;
        if (moves) g->tensor[consts[i].id].live = live.id;
    }
}

tn_status tn_body_compile(tn_body_spec *s, tn_body_entry entry, tn_plan **out)
{
    tn_ref state[TN_BODY_MAX], xs[TN_BODY_MAX], consts[TN_BODY_MAX];
    tn_ref next[TN_BODY_MAX] = { { 0 } }, ys[TN_BODY_MAX] = { { 0 } };
    tn_seed seeds[2 * TN_BODY_MAX];
    tn_graph *g;
    int n_seeds = 0;
    if (s->n_state > TN_BODY_MAX || s->n_xs > TN_BODY_MAX || s->n_consts > TN_BODY_MAX || s->n_ys > TN_BODY_MAX)
        return tn_error(TN_USAGE, "a body takes at most %d states, sequences, constants and outputs each", TN_BODY_MAX);
    TN_RETURN_IF(tn_graph_new(&s->options, &g));
    for (int i = 0; i < s->n_state; i++) state[i] = named_input(g, "state", i, &s->state[i]);
    for (int i = 0; i < s->n_xs; i++) xs[i] = named_input(g, "x", i, &s->xs[i]);
    for (int i = 0; i < s->n_consts; i++)
        consts[i] = s->consts[i].absent ? TN_NONE : named_input(g, "const", i, &s->consts[i]);
    mark_inputs(g, s, state, consts);
    if (entry != TN_BODY_FORWARD) want(g, state, s->state, s->n_state, false);
    if (entry == TN_BODY_VJP_ALL) {
        want(g, xs, s->xs, s->n_xs, false);
        want(g, consts, s->consts, s->n_consts, true);
    }
    tn_body_io io = { .state = state, .xs = xs, .consts = consts, .next = next, .ys = ys };
    if (g->status == TN_OK) s->body.build(g, &io, s->body.user);
    for (int i = 0; i < s->n_state; i++) (void)tn_graph_knows(g, "body", 0, next[i]);
    for (int i = 0; i < s->n_ys; i++) (void)tn_graph_knows(g, "body", 0, ys[i]);
    check_outside(g);
    check_next(g, s, next);
    check_live(g, s, state, next);
    if (entry == TN_BODY_FORWARD) {
        for (int i = 0; i < s->n_state; i++) named_output(g, "next", i, next[i]);
        for (int i = 0; i < s->n_ys; i++) {
            named_output(g, "y", i, ys[i]);
            s->ys[i] = (tn_type){ .dtype = tn_ref_dtype(g, ys[i]), .dims = tn_ref_dims(g, ys[i]) };
        }
    } else {
        n_seeds = add_seeds(g, "dnext", next, s->n_state, seeds, 0);
        n_seeds = add_seeds(g, "dy", ys, s->n_ys, seeds, n_seeds);
    }
    const tn_compile_options o = {
        .device = s->options.device, .threads = s->threads, .seeds = seeds, .n_seeds = n_seeds, .repeats = s->repeats
    };
    return tn_graph_compile(g, &o, out);
}

size_t tn_plan_arena_bytes(const tn_plan *p) { return p->place.arena_bytes; }
