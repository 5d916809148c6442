/* The decoder with frozen weights in f32 on the device of TENON_TEST_DEVICE, beside one in double: logits, states of layers, and
 * gradients of its inputs (vectors in the place of tokens, keys and values before each layer's own) against differences; ids =
 * vectors, batch = single, cached = whole; and no memory or work for the gradients of weights. */
#include "base/alloc.h"
#include "device_memory.h"
#include "models/blocks.h"
#include "models/decode_cache.h"
#include "models/decoder.h"
#include "train/run/train_settings.h"
#include "world.h"

#include <stdio.h>

enum { B = 2, T = 5, P = 3, V = 19, DIM = 32, MOST_D = 12, MOST_LAYERS = 6, MOST_KEYS = P + 2 * T, MOST_WEIGHTS = 64 };

#define SHAPE(l, D)                                                                                                    \
    .dim = DIM, .layers = (l), .head_dim = (D), .heads = 4, .kv_heads = 2, .ffn = 24, .vocab = V, .context = 64,       \
    .llama = true, .rope_base = 100, .rope_stretch_context = 16, .norm_eps = 1e-5f

typedef struct kind {
    const char *name;
    bool before; /* keys and values before the layers' own */
    tn_decoder_shape shape;
} kind;

static const kind kinds[] = {
    { "llama", false, { SHAPE(2, 8), .tied = true } },
    { "qwen3 with keys before", true, { SHAPE(2, 8), .qk_norm = true, .tied = true } },
    { "wide heads, biases", false, { SHAPE(2, 12), .qkv_bias = true } },
    { "yarn", false, { SHAPE(2, 8), .rope_scaling = TN_ROPE_YARN, .rope_stretch = 4, .rope_beta_fast = 2 } },
    { "linear, interleaved, keys before",
      true,
      { SHAPE(2, 8), .rope_scaling = TN_ROPE_LINEAR, .rope_stretch = 2, .interleaved = true } },
    { "all of it",
      true,
      { SHAPE(3, 12), .qk_norm = true, .qkv_bias = true, .rope_scaling = TN_ROPE_YARN, .rope_stretch = 4,
        .rope_beta_fast = 2, .rope_attention_factor = 1.25 } },
};

/* --- in double ------------------------------------------------------------------------------------------------------------- */

/* The host's copies of what is in a store. */
typedef struct weights {
    const char *name[MOST_WEIGHTS];
    float *x[MOST_WEIGHTS];
    size_t n;
} weights;

typedef struct oracle {
    const tn_decoder_shape *c;
    const weights *w;
    int64_t before;
    const double *x, *keys, *values; /* (B,T,d), (B,P,layers*KV,D) twice */
    const int32_t *labels;           /* (B,T) */
    double states[MOST_LAYERS + 1][B * T * DIM], logits[B * T * V];
} oracle;

static const float *weight(const oracle *o, int layer, const char *name)
{
    char full[96];
    if (layer < 0) snprintf(full, sizeof full, "reader.%s", name);
    else snprintf(full, sizeof full, "reader.layer%d.%s", layer, name);
    for (size_t i = 0; i < o->w->n; i++)
        if (strcmp(o->w->name[i], full) == 0) return o->w->x[i];
    fail_msg("there is no %s", full);
    return NULL;
}

static void rms(const double *x, const float *w, int64_t n, double *y)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += x[i] * x[i];
    s = 1 / sqrt(s / (double)n + (double)1e-5f);
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * s * (double)w[i];
}

/* y (n) = w (n,k) x + bias. */
static void multiply(const float *w, const float *bias, const double *x, int64_t n, int64_t k, double *y)
{
    for (int64_t i = 0; i < n; i++) {
        double s = bias ? (double)bias[i] : 0;
        for (int64_t j = 0; j < k; j++) s += (double)w[i * k + j] * x[j];
        y[i] = s;
    }
}

static double frequency(const tn_decoder_shape *c, int64_t j)
{
    const double half = (double)c->head_dim / 2, w = pow(c->rope_base, -(double)j / half), L = c->rope_stretch_context;
    if (c->rope_stretch == 0) return w;
    if (c->rope_scaling == TN_ROPE_LINEAR) return w / c->rope_stretch;
    const double low = fmax(floor(half * log(L / (2 * M_PI * c->rope_beta_fast)) / log(c->rope_base)), 0);
    const double high = ceil(half * log(L / (2 * M_PI)) / log(c->rope_base)); /* beta_slow is 1 */
    const double keep = 1 - fmin(fmax(((double)j - low) / (high - low), 0), 1);
    return w * keep + w / c->rope_stretch * (1 - keep);
}

static void turn(const tn_decoder_shape *c, double *x, int64_t position)
{
    const int64_t half = c->head_dim / 2;
    const bool yarn = c->rope_scaling == TN_ROPE_YARN && c->rope_stretch > 0;
    const double m = !yarn                          ? 1
                     : c->rope_attention_factor > 0 ? c->rope_attention_factor
                                                    : 0.1 * log(c->rope_stretch) + 1;
    for (int64_t j = 0; j < half; j++) {
        double *u = x + (c->interleaved ? 2 * j : j), *v = c->interleaved ? u + 1 : u + half;
        const double t = (double)position * frequency(c, j), a = *u, b = *v;
        *u = m * (a * cos(t) - b * sin(t));
        *v = m * (b * cos(t) + a * sin(t));
    }
}

/* One sequence of one layer: x (T,d) -> x, with its first n keys and values those before. */
static void attend(const oracle *o, int64_t b, int l, double *x)
{
    enum { MOST_HEADS = 8 };
    const tn_decoder_shape *c = o->c;
    const int64_t D = c->head_dim, H = c->heads, KV = c->kv_heads, rows = (H + 2 * KV) * D;
    static double qkv[MOST_KEYS][MOST_HEADS * MOST_D], K[MOST_KEYS][MOST_HEADS][MOST_D],
        W[MOST_KEYS][MOST_HEADS][MOST_D];
    for (int64_t p = 0; p < o->before; p++)
        for (int64_t h = 0; h < KV; h++)
            for (int64_t i = 0; i < D; i++) {
                const int64_t at = ((b * o->before + p) * c->layers * KV + l * KV + h) * D + i;
                K[p][h][i] = o->keys[at], W[p][h][i] = o->values[at];
            }
    for (int64_t t = 0; t < T; t++) {
        double u[DIM], n[MOST_D];
        const int64_t at = o->before + t;
        rms(x + t * DIM, weight(o, l, "norm1.w"), DIM, u);
        multiply(weight(o, l, "attn.w_qkv"), c->qkv_bias ? weight(o, l, "attn.b_qkv") : NULL, u, rows, DIM, qkv[t]);
        for (int64_t h = 0; h < H + KV; h++) {
            double *head = qkv[t] + h * D;
            if (c->qk_norm) {
                rms(head, weight(o, l, h < H ? "attn.norm_q.w" : "attn.norm_k.w"), D, n);
                memcpy(head, n, sizeof *n * (size_t)D);
            }
            turn(c, head, at);
        }
        for (int64_t h = 0; h < KV; h++) {
            memcpy(K[at][h], qkv[t] + (H + h) * D, sizeof(double) * (size_t)D);
            memcpy(W[at][h], qkv[t] + (H + KV + h) * D, sizeof(double) * (size_t)D);
        }
    }
    for (int64_t t = 0; t < T; t++) {
        double y[MOST_HEADS * MOST_D] = { 0 }, out[DIM];
        for (int64_t h = 0; h < H; h++) {
            double s[MOST_KEYS], sum = 0;
            for (int64_t k = 0; k <= o->before + t; k++) {
                s[k] = 0;
                for (int64_t i = 0; i < D; i++) s[k] += qkv[t][h * D + i] * K[k][h * KV / H][i];
                sum += s[k] = exp(s[k] / sqrt((double)D));
            }
            for (int64_t k = 0; k <= o->before + t; k++)
                for (int64_t i = 0; i < D; i++) y[h * D + i] += s[k] / sum * W[k][h * KV / H][i];
        }
        multiply(weight(o, l, "attn.w_out"), NULL, y, DIM, H * D, out);
        for (int i = 0; i < DIM; i++) x[t * DIM + i] += out[i];
    }
}

static void feed_forward(const oracle *o, int l, double *x)
{
    enum { MOST_FFN = 32 };
    const int64_t f = o->c->ffn;
    double u[DIM], ab[2 * MOST_FFN], out[DIM];
    for (int64_t t = 0; t < T; t++) {
        rms(x + t * DIM, weight(o, l, "norm2.w"), DIM, u);
        multiply(weight(o, l, "ffn.w1"), NULL, u, 2 * f, DIM, ab);
        for (int64_t i = 0; i < f; i++) ab[i] *= ab[f + i] / (1 + exp(-ab[i]));
        multiply(weight(o, l, "ffn.w2"), NULL, ab, DIM, f, out);
        for (int i = 0; i < DIM; i++) x[t * DIM + i] += out[i];
    }
}

/* The mean loss; fills states and logits. */
static double evaluate(oracle *o)
{
    double loss = 0;
    for (int64_t b = 0; b < B; b++) {
        double x[T * DIM], u[DIM];
        memcpy(x, o->x + b * T * DIM, sizeof x);
        for (int l = 0; l <= o->c->layers; l++) {
            memcpy(o->states[l] + b * T * DIM, x, sizeof x);
            if (l == o->c->layers) break;
            attend(o, b, l, x);
            feed_forward(o, l, x);
        }
        for (int64_t t = 0; t < T; t++) {
            double *y = o->logits + (b * T + t) * V, sum = 0;
            rms(x + t * DIM, weight(o, -1, "norm_f.w"), DIM, u);
            multiply(weight(o, -1, o->c->tied ? "embed" : "head"), NULL, u, V, DIM, y);
            for (int i = 0; i < V; i++) sum += exp(y[i]);
            loss += log(sum) - y[o->labels[b * T + t]];
        }
    }
    return loss / (B * T);
}

/* --- ours ------------------------------------------------------------------------------------------------------------------ */

typedef struct asked {
    int64_t batch, length; /* 0: B, T */
    bool ids, gradient, trained, cached, before;
} asked;

static tn_bound *add(tn_world *w, const tn_decoder_shape *c, asked a, tn_batch *b)
{
    tn_graph *g = tn_world_graph_on(w->device, NULL);
    tn_ref states[MOST_LAYERS + 1];
    tn_forward f;
    const int64_t n = a.batch ? a.batch : B, length = a.length ? a.length : T;
    const tn_dims heads = tn_shape(n, P, c->layers * c->kv_heads, c->head_dim);
    *b = (tn_batch){ .size = sizeof *b, .batch = n, .length = length };
    tn_batch_want(b, "logits");
    if (a.ids) tn_batch_add(b, "tokens", tn_input(g, "tokens", tn_shape(n, length), TN_I32));
    else tn_batch_add(b, "prefix", tn_input(g, "x", tn_shape(n, length, c->dim), TN_F32));
    if (a.before) tn_batch_add(b, "prefix_keys", tn_input(g, "K", heads, TN_F32));
    if (a.before) tn_batch_add(b, "prefix_values", tn_input(g, "V", heads, TN_F32));
    for (size_t i = 0; i < b->n_inputs && a.gradient && !a.ids; i++) tn_want_gradient(g, b->input[i].ref);
    if (a.gradient || a.trained) tn_batch_add(b, "labels", tn_input(g, "labels", tn_shape(n, length), TN_I32));
    if (a.cached) tn_decode_cache_inputs(g, b, MOST_KEYS);
    const tn_region r = tn_region_begin(g, "reader");
    if (!a.trained) tn_frozen_begin(g);
    assert_ok(tn_decoder_forward(g, c, b, states, &f));
    if (!a.trained) tn_frozen_end(g);
    tn_block_head(g, &f, b);
    tn_region_end(g, r);
    for (int l = 0; l <= c->layers && !a.gradient && !a.trained && !a.cached; l++) {
        char name[16];
        snprintf(name, sizeof name, "state%d", l);
        tn_output(g, name, states[l]);
    }
    const bool loss = a.gradient || a.trained;
    const tn_compile_options o = { .loss = tn_graph_output(g, "loss"), .threads = tn_context_threads(w->context) };
    return tn_world_add(w, g, loss ? &o : NULL);
}

static float noise(uint32_t *seed)
{
    float s = -6;
    for (int i = 0; i < 12; i++) s += (float)((*seed = *seed * 1664525u + 1013904223u) >> 8) / 16777216.f;
    return s;
}

/* First numbers say next to nothing, and norms of 1 nothing at all. */
static void draw_weights(const tn_world *w, weights *out)
{
    uint32_t seed = 7;
    for (size_t i = 0; i < tn_store_count(w->store); i++) {
        const tn_entry *e = tn_store_at(w->store, i);
        const int64_t n = tn_dims_count(e->dims);
        if (e->role == TN_ROLE_CACHE) continue;
        float *x = tn_memory_floats(w->store, e->data, n);
        for (int64_t k = 0; k < n; k++) x[k] = e->dims.rank > 1 ? 0.3f * noise(&seed) : 1 + 0.3f * noise(&seed);
        tn_memory_put(w->store, e->data, x, sizeof *x * (size_t)n);
        assert_true(out->n < MOST_WEIGHTS);
        out->name[out->n] = e->name;
        out->x[out->n++] = x;
    }
}

enum { MOST_INPUT = B * P * MOST_LAYERS * 2 * MOST_D > B *T *DIM ? B *P *MOST_LAYERS * 2 * MOST_D : B *T *DIM };

static void draw_input(tn_bound *b, const char *name, int64_t n, uint32_t seed, double *copy)
{
    float *x = tn_world_data(b, name);
    assert_true(n <= MOST_INPUT);
    for (int64_t i = 0; i < n; i++) copy[i] = (double)(x[i] = noise(&seed));
}

static double apart(const float *got, const double *want, int64_t n)
{
    double most = 0, off = 0;
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs(want[i]));
        if (!(fabs((double)got[i] - want[i]) <= off)) off = fabs((double)got[i] - want[i]);
    }
    return off / most;
}

static int64_t heads_count(const kind *k)
{
    return (int64_t)B * P * k->shape.layers * k->shape.kv_heads * k->shape.head_dim;
}

typedef struct rig {
    tn_world w;
    tn_batch batch;
    tn_bound *bound;
    weights drawn;
    double in[3][MOST_INPUT]; /* x, keys, values */
    oracle o;
} rig;

static rig *open_rig(const kind *k, bool gradient)
{
    rig *r = tn_alloc(sizeof *r);
    r->w = tn_world_open_on(tn_test_device(), 3, 2);
    r->bound = add(&r->w, &k->shape, (asked){ .gradient = gradient, .before = k->before }, &r->batch);
    draw_weights(&r->w, &r->drawn);
    draw_input(r->bound, "x", B * T * DIM, 11, r->in[0]);
    if (k->before) draw_input(r->bound, "K", heads_count(k), 12, r->in[1]);
    if (k->before) draw_input(r->bound, "V", heads_count(k), 13, r->in[2]);
    static int32_t labels[B * T];
    for (int i = 0; i < B * T; i++) labels[i] = (i * 7 + 3) % V;
    if (gradient) memcpy(tn_world_data(r->bound, "labels"), labels, sizeof labels);
    r->o = (oracle){ .c = &k->shape, .w = &r->drawn, .before = k->before ? P : 0, .labels = labels };
    r->o.x = r->in[0], r->o.keys = r->in[1], r->o.values = r->in[2];
    assert_ok(tn_run(r->bound));
    return r;
}

static void close_rig(rig *r)
{
    tn_world_close(&r->w);
    for (size_t i = 0; i < r->drawn.n; i++) free(r->drawn.x[i]);
    tn_free(r);
}

/* A GPU adds in other orders and approximates exp. */
static double looser(double off) { return tn_test_device() == TN_CPU ? off : off / 4; }

static void equals_double(void **state)
{
    const kind *k = *state;
    rig *r = open_rig(k, false);
    evaluate(&r->o);
    for (int l = 0; l <= k->shape.layers; l++) {
        char name[16];
        snprintf(name, sizeof name, "state%d", l);
        const double off = looser(apart(tn_world_data(r->bound, name), r->o.states[l], B * T * DIM));
        if (!(off < 3e-6)) fail_msg("%s is off by %g", name, off);
    }
    const double off = looser(apart(tn_world_data(r->bound, "logits"), r->o.logits, B * T * V));
    if (!(off < 5e-6)) fail_msg("logits are off by %g", off);
    close_rig(r);
}

static void gradients_are_slopes(void **state)
{
    static const char *const names[] = { "d.x", "d.K", "d.V" };
    static double slope[MOST_INPUT];
    const kind *k = *state;
    const double h = 1e-5;
    rig *r = open_rig(k, true);
    assert_true(fabs((double)*(float *)tn_world_data(r->bound, "loss") - evaluate(&r->o)) < 1e-5);
    for (int i = 0; i < (k->before ? 3 : 1); i++) {
        const int64_t n = i ? heads_count(k) : B * T * DIM;
        for (int64_t j = 0; j < n; j++) {
            double *x = &r->in[i][j], was = *x;
            *x = was + h;
            slope[j] = evaluate(&r->o);
            *x = was - h;
            slope[j] = (slope[j] - evaluate(&r->o)) / (2 * h);
            *x = was;
        }
        const double off = looser(apart(tn_world_data(r->bound, names[i]), slope, n));
        if (!(off < 2e-5)) fail_msg("%s is off by %g", names[i], off);
    }
    close_rig(r);
}

/* --- the same in other ways ------------------------------------------------------------------------------------------------ */

static void ids_are_vectors(void **state)
{
    const kind *k = *state;
    rig *r = open_rig(k, false);
    tn_batch batch;
    tn_bound *ids = add(&r->w, &k->shape, (asked){ .ids = true, .before = k->before }, &batch);
    const float *table = weight(&r->o, -1, "embed");
    float *x = tn_world_data(r->bound, "x");
    int32_t *tokens = tn_world_data(ids, "tokens");
    float logits[B * T * V];
    for (int i = 0; i < B * T; i++) {
        tokens[i] = (i * 5 + 1) % V;
        memcpy(x + i * DIM, table + tokens[i] * DIM, sizeof *x * DIM);
    }
    if (k->before) memcpy(tn_world_data(ids, "K"), tn_world_data(r->bound, "K"), sizeof *x * (size_t)heads_count(k));
    if (k->before) memcpy(tn_world_data(ids, "V"), tn_world_data(r->bound, "V"), sizeof *x * (size_t)heads_count(k));
    assert_ok(tn_run(r->bound));
    memcpy(logits, tn_world_data(r->bound, "logits"), sizeof logits);
    assert_ok(tn_run(ids));
    assert_true(tn_world_same(tn_world_data(ids, "logits"), logits, B * T * V, 1e-5));
    close_rig(r);
}

/* Copies row b of the rig's inputs into row 0 of another plan, whose length is its own: what is behind T is anything. */
static void give_row(rig *r, const kind *k, tn_bound *to, int64_t b, int64_t length)
{
    const int64_t n = heads_count(k) / B;
    float *x = tn_world_data(to, "x");
    for (int64_t i = 0; i < length * DIM; i++) x[i] = i < T * DIM ? (float)r->in[0][b * T * DIM + i] : 3.f;
    for (int64_t i = 0; i < n && k->before; i++) {
        ((float *)tn_world_data(to, "K"))[i] = (float)r->in[1][b * n + i];
        ((float *)tn_world_data(to, "V"))[i] = (float)r->in[2][b * n + i];
    }
}

/* A row alone, and one with more behind it, has the bits it has among others (on a GPU: nearly). */
static void batch_is_single(void **state)
{
    const kind *k = *state;
    rig *r = open_rig(k, false);
    float logits[B * T * V];
    memcpy(logits, tn_world_data(r->bound, "logits"), sizeof logits);
    for (int longer = 0; longer < 2; longer++) {
        tn_batch batch;
        const int64_t length = T + 3 * longer;
        tn_bound *one = add(&r->w, &k->shape, (asked){ .batch = 1, .length = length, .before = k->before }, &batch);
        for (int64_t b = 0; b < B; b++) {
            give_row(r, k, one, b, length);
            assert_ok(tn_run(one));
            assert_true(tn_world_same(tn_world_data(one, "logits"), logits + b * T * V, T * V, 2e-5));
        }
    }
    close_rig(r);
}

/* Two vectors at once, with what is before them, then one by one. */
static void cached_is_whole(void **state)
{
    enum { PROMPT = 2 };
    const kind *k = *state;
    const int64_t before = k->before ? P : 0;
    rig *r = open_rig(k, false);
    float logits[B * T * V];
    memcpy(logits, tn_world_data(r->bound, "logits"), sizeof logits);
    tn_batch first, next;
    tn_bound *prompt = add(&r->w, &k->shape, (asked){ .length = PROMPT, .cached = true, .before = k->before }, &first);
    tn_bound *step = add(&r->w, &k->shape, (asked){ .length = 1, .cached = true }, &next);
    for (int64_t t = 0; t < T; t += t ? 1 : PROMPT) {
        tn_bound *now = t ? step : prompt;
        const int64_t n = t ? 1 : PROMPT;
        float *x = tn_world_data(now, "x");
        for (int64_t i = 0; i < B * n * DIM; i++) x[i] = (float)r->in[0][(i / (n * DIM) * T + t) * DIM + i % (n * DIM)];
        for (int64_t i = 0; i < heads_count(k) && !t && k->before; i++) {
            ((float *)tn_world_data(now, "K"))[i] = (float)r->in[1][i];
            ((float *)tn_world_data(now, "V"))[i] = (float)r->in[2][i];
        }
        tn_decode_cache_position(now, t ? &next : &first, before + t);
        assert_ok(tn_run(now));
        const float *got = tn_world_data(now, "logits");
        for (int64_t b = 0; b < B; b++)
            assert_true(looser(tn_world_distance(got + b * n * V, logits + (b * T + t) * V, n * V)) < 1e-5);
    }
    close_rig(r);
}

/* --- what frozen weights cost ---------------------------------------------------------------------------------------------- */

/* Gradients of inputs alone: no node computes one of a weight, the store has no memory for any, and a layer keeps what attention, norms and
 * swiglu need and no input of a matrix product. How many bytes that is, is known of the CPU's kernels. */
static void nothing_for_weights(void **state)
{
    const kind *k = *state;
    tn_decoder_shape c = k->shape;
    size_t activations[2], trained;
    tn_batch batch;
    for (int more = 0; more < 2; more++) {
        tn_world w = tn_world_open_on(tn_test_device(), 3, 1);
        c.layers = more ? MOST_LAYERS : MOST_LAYERS / 2;
        add(&w, &c, (asked){ .batch = 8, .length = 32, .gradient = true, .before = k->before }, &batch);
        const tn_graph *g = tn_plan_graph(w.plan[0]);
        for (size_t i = 0; i < g->n_nodes; i++)
            for (int j = 0; g->node[i].backward && j < g->node[i].n_in; j++)
                if (g->node[i].din[j]) assert_true(tn_ref_trainable(g, (tn_ref){ g->node[i].in[j] }));
        for (size_t i = 0; i < tn_store_count(w.store); i++) {
            assert_int_equal(tn_store_at(w.store, i)->role, TN_ROLE_FROZEN);
            assert_null(tn_store_at(w.store, i)->grad);
        }
        assert_int_equal(tn_store_buckets(w.store), 0);
        assert_int_equal(tn_plan_memory(w.plan[0]).gradients, 0);
        activations[more] = tn_plan_memory(w.plan[0]).activations;
        tn_world_close(&w);
    }
    tn_world w = tn_world_open_on(tn_test_device(), 3, 1);
    add(&w, &c, (asked){ .batch = 8, .length = 32, .trained = true, .before = k->before }, &batch);
    trained = tn_plan_memory(w.plan[0]).activations;
    tn_world_close(&w);
    const int64_t D = c.head_dim, tokens = 8 * 32, qkv = (c.heads + 2 * c.kv_heads) * D;
    const int64_t keys = k->before ? 2 * c.kv_heads * D * (32 + P) / 32 : 0, turned = (c.heads + c.kv_heads) * D;
    const int64_t numbers = 2 * c.dim + qkv + keys + turned + c.heads * D + c.heads + 2 * c.ffn + 2 +
                            (c.qk_norm ? c.heads + c.kv_heads : 0);
    const size_t each = (activations[1] - activations[0]) / (MOST_LAYERS - MOST_LAYERS / 2);
    if (tn_test_device() == TN_CPU && each > (size_t)(numbers * tokens) * sizeof(float))
        fail_msg("a layer keeps %zu bytes, and %zu would do", each, (size_t)(numbers * tokens) * sizeof(float));
    assert_true(activations[1] < trained);
}

/* --- gpt, which is settings and this ----------------------------------------------------------------------------------------- */

static void gpt_puts_out_states(void **state)
{
    (void)state;
    static const char *const words[] = { "dim=16",       "layers=3", "heads=2",         "head_dim=12",
                                         "qk_norm=true", "vocab=19", "train.context=16" };
    const tn_model *m;
    tn_settings *st;
    assert_ok(tn_settings_resolve("gpt", words, sizeof words / sizeof *words, &st, &m));
    tn_world w = tn_world_open_on(tn_test_device(), 3, 1);
    tn_graph *g = tn_world_graph_on(w.device, NULL);
    tn_batch b = { .size = sizeof b, .batch = B, .length = T };
    tn_batch_add(&b, "tokens", tn_input(g, "tokens", tn_shape(B, T), TN_I32));
    tn_batch_want(&b, "hidden");
    tn_batch_want(&b, "logits");
    assert_ok(m->build(g, st, &b));
    tn_bound *bound = tn_world_add(&w, g, NULL);
    int32_t *tokens = tn_world_data(bound, "tokens");
    for (int i = 0; i < B * T; i++) tokens[i] = i;
    assert_ok(tn_run(bound));
    const float *first = tn_world_data(bound, "hidden.0"), *last = tn_world_data(bound, "hidden.3");
    float *table = tn_memory_floats(w.store, tn_world_entry(&w, "embed")->data, B * T * 16);
    assert_memory_equal(first, table, sizeof *first * B * T * 16);
    free(table);
    assert_true(tn_world_distance(last, first, B * T * 16) > 1e-3);
    assert_null(tn_bound_data(bound, "hidden.4"));
    tn_world_close(&w);
    tn_settings_free(st);
}

typedef struct refusal {
    const char *words[3], *says;
    int keys; /* 1: keys alone, 2: both of another shape, 3: right ones beside documents, 4: right ones, too many */
} refusal;

static const refusal refusals[] = {
    { { "heads=3" }, "dim=16 must be a multiple of heads=3", 0 },
    { { "head_dim=7" }, "head_dim=7 must be even", 0 },
    { { "kv_heads=1" }, "prefix_keys needs prefix_values", 1 },
    { { "kv_heads=1" }, "prefix_keys is (2,3,4,8): it must be (2,P,2,8)", 2 },
    { { "kv_heads=2" }, "rows of one document", 3 },
    { { "kv_heads=2", "train.context=7" }, "a sequence of 8 tokens is longer than train.context=7", 4 },
};

static void refused(void **state)
{
    const refusal *r = *state;
    const char *words[8] = { "dim=16", "layers=2", "heads=2", "vocab=19", "train.context=16" };
    size_t n = 5;
    const tn_model *m;
    tn_settings *st;
    for (int i = 0; i < 3 && r->words[i]; i++) words[n++] = r->words[i];
    assert_ok(tn_settings_resolve("gpt", words, n, &st, &m));
    tn_graph *g = tn_world_graph(NULL);
    tn_batch b = { .size = sizeof b, .batch = B, .length = T };
    tn_batch_add(&b, "tokens", tn_input(g, "tokens", tn_shape(B, T), TN_I32));
    if (r->keys) tn_batch_add(&b, "prefix_keys", tn_input(g, "K", tn_shape(B, P, 4, 8), TN_F32));
    if (r->keys > 1) tn_batch_add(&b, "prefix_values", tn_input(g, "V", tn_shape(B, P, 4, 8), TN_F32));
    if (r->keys == 3) tn_batch_add(&b, "document", tn_input(g, "document", tn_shape(B, T), TN_I32));
    assert_fails(m->build(g, st, &b), TN_USAGE, r->says);
    tn_graph_free(g);
    tn_settings_free(st);
}

void tn_tests_decoder(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const kind *k = &kinds[i];
        tn_test_add(l, equals_double, k, "decoder: equals one in double, %s", k->name);
        tn_test_add(l, gradients_are_slopes, k, "decoder: gradients of inputs are slopes, %s", k->name);
        tn_test_add(l, ids_are_vectors, k, "decoder: ids are vectors, %s", k->name);
        tn_test_add(l, batch_is_single, k, "decoder: batch is single, %s", k->name);
        tn_test_add(l, cached_is_whole, k, "decoder: cached is whole, %s", k->name);
        tn_test_add(l, nothing_for_weights, k, "decoder: nothing for weights, %s", k->name);
    }
    tn_test_add(l, gpt_puts_out_states, NULL, "decoder: gpt puts out states of layers");
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        tn_test_add(l, refused, &refusals[i], "decoder: refused, %s", refusals[i].says);
}
