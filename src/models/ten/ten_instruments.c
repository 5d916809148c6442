/* Instruments of `ten`. From the parameters, at every line: the shortest and longest time constant, gated states at a
 * gate of 1/2. From an evaluation (tn_graph_options.instruments): the decay of every state, averaged over the tokens of
 * a batch, and the size of the final states. The evaluation plan puts these out; training steps compute nothing for
 * them. */
#include "models/ten/ten.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- in the graph --------------------------------------------------------------------------------------------------- */

bool ten_is_instrumented(const ten_net *n, const tn_batch *b)
{
    return tn_graph_get_options(n->g)->instruments && !b->cached;
}

/* "layer3.D", or "layer3.scale4.D" */
static void name_layer(char *name, size_t bytes, int64_t layer, int64_t scale, char kind)
{
    char at[32] = "";
    if (scale) snprintf(at, sizeof at, "scale%lld.", (long long)scale);
    snprintf(name, bytes, "layer%lld.%s%c", (long long)layer, at, kind);
}

static void put_out(ten_net *n, char kind, const char *what, tn_ref x)
{
    char layer[64], name[360];
    name_layer(layer, sizeof layer, n->layer, n->scale, kind);
    snprintf(name, sizeof name, "look.%.*s%s%s.%s", n->scope, tn_scope(n->g), n->scope ? "." : "", layer, what);
    tn_output(n->g, name, x);
}

static tn_ref as_f32(tn_graph *g, tn_ref x) { return tn_ref_dtype(g, x) == TN_F32 ? x : tn_cast(g, x, TN_F32); }

tn_ref ten_time_mean(tn_graph *g, tn_ref x)
{
    x = as_f32(g, x);
    return tn_ref_dims(g, x).rank == 3 ? tn_mean(g, tn_mean(g, x, 0), 0) : x;
}

tn_ref ten_gated_decay(tn_graph *g, tn_ref gates, tn_ref nu)
{
    return tn_scale(g, tn_mul(g, ten_time_mean(g, tn_part(g, gates, 0, 2)), tn_softplus(g, as_f32(g, nu))), -8);
}

void ten_put_instruments(ten_net *n, char kind, tn_ref decay, tn_ref states)
{
    tn_graph *g = n->g;
    if (tn_ref_dims(g, states).rank == 3) states = tn_slice(g, states, 1, tn_ref_dim(g, states, 1) - 1, 1);
    put_out(n, kind, "decay", decay);
    put_out(n, kind, "state", tn_mean_all(g, tn_square(g, as_f32(g, states))));
}

/* --- what they say -------------------------------------------------------------------------------------------------- */

/* log|lambda| of one state: of a gated recurrence at a gate of one half, else of the fixed eigenvalue. */
static double log_modulus(const ten_config *c, char kind, double x)
{
    if (kind == 'D' || c->select == TEN_SELECT_RG) return -4 * log1p(exp(x));
    if (c->expexp) return -exp(x);
    return log((double)c->rho_min + ((double)c->rho_max - (double)c->rho_min) / (1 + exp(-x)));
}

typedef struct place {
    int64_t layer, scale; /* scale 0: the layer has none */
    char kind;
} place;

static place place_of(const ten_config *c, int64_t i)
{
    const int64_t scales = c->n_scales ? c->n_scales : 1, layer = i / scales;
    return (place){ .layer = layer,
                    .scale = c->n_scales ? c->scale[i % scales] : 0,
                    .kind = c->pattern[(size_t)layer % strlen(c->pattern)] };
}

/* tau = -1 / log|lambda| of the D and E layers. Of an hten layer, in tokens of its own scale. */
static void report_ends(const ten_config *c, const tn_instruments *in, int64_t places)
{
    double shortest = HUGE_VAL, longest = 0;
    for (int64_t p = 0; p < places; p++) {
        const place at = place_of(c, p);
        const bool nu = at.kind == 'D' || c->expexp || c->select == TEN_SELECT_RG;
        char name[96], scale[32] = "";
        int64_t n = 0;
        if (at.scale) snprintf(scale, sizeof scale, "scale%lld.", (long long)at.scale);
        snprintf(name, sizeof name, "layer%lld.%smixer.%s", (long long)at.layer, scale, nu ? "nu" : "alpha");
        const float *x = in->param(in->ctx, name, &n);
        for (int64_t i = 0; x && i < n; i++) {
            const double tau = -1 / log_modulus(c, at.kind, (double)x[i]);
            shortest = fmin(shortest, tau);
            longest = fmax(longest, tau);
        }
    }
    if (longest <= 0) return;
    in->report(in->ctx, "tau_min", shortest, "tokens");
    in->report(in->ctx, "tau_max", longest, "tokens");
}

static const float *look_at(const tn_instruments *in, const char *layer, const char *what, int64_t *n)
{
    char name[96];
    *n = 0;
    snprintf(name, sizeof name, "look.%s.%s", layer, what);
    return in->output(in->ctx, name, n);
}

static void report_layer(const tn_instruments *in, place at)
{
    char layer[64], name[96];
    int64_t n;
    name_layer(layer, sizeof layer, at.layer, at.scale, at.kind);
    const float *square = look_at(in, layer, "state", &n);
    if (square && n == 1) {
        snprintf(name, sizeof name, "%s.state_rms", layer);
        in->report(in->ctx, name, sqrt((double)*square), "");
    }
    const float *decay = look_at(in, layer, "decay", &n);
    snprintf(name, sizeof name, "%s.tau", layer);
    for (int64_t i = 0; in->spread && decay && i < n; i++) in->spread(in->ctx, name, -1 / (double)decay[i], "tokens");
}

void ten_instruments(const tn_settings *st, const tn_instruments *in)
{
    ten_config c;
    if (ten_config_read(st, &c) != TN_OK) return;
    const int64_t places = c.layers * (c.n_scales ? c.n_scales : 1);
    report_ends(&c, in, places);
    for (int64_t p = 0; in->output && p < places; p++) report_layer(in, place_of(&c, p));
}

static double modulus(double tau) { return exp(-1 / tau); }

const tn_view_row ten_views[1] = {
    { "tau", "time constant", "tokens", "states", .twin = "|lambda|", .twin_key = "lambda", .twin_of = modulus,
      .extra = "state_rms", .extra_label = "state rms",
      .how = "decays as the mean over # tokens, states after the last of each row", .what = "decaying states",
      .where = "D, O or E layers" },
};
