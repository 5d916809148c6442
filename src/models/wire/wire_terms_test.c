/* The terms that are off unless set, each against its formula in double: what it adds to the loss, and what its gradient reaches. What a
 * reader is given is made again here from Z and the adapter's weights, and what it says first from -log p of every token. */
#include "models/wire/wire.h"

#include "wire_rig.h"

enum { M = 3, WIDTH = 8, HIDDEN = 12, MOST_D = 16, MOST_V = 4100 };

/* --- what a reader is given, in double --------------------------------------------------------------------------------------- */

typedef struct given {
    double raw[B * M][MOST_D], p[B * M][MOST_D]; /* slot j of text b: row b * M + j */
    double table[MOST_V][MOST_D];
    double rho, gain;
    int d, V;
} given;

static const tn_entry *entry(const rig *r, const char *scope, char x, const char *name)
{
    char full[64];
    snprintf(full, sizeof full, "%s%c.%s", scope, x, name);
    const tn_entry *e = tn_store_find(tn_trainer_store(r->trainer), full);
    if (!e) fail_msg("there is no %s", full);
    return e;
}

static float *weights(const rig *r, char x, const char *name)
{
    const tn_entry *e = entry(r, "to.", x, name);
    return tn_memory_floats(tn_trainer_store(r->trainer), e->data, tn_dims_count(e->dims));
}

static void dense(const rig *r, char x, const char *name, const double *in, int from, double *out, int to)
{
    char full[32];
    snprintf(full, sizeof full, "%s.w", name);
    float *w = weights(r, x, full);
    snprintf(full, sizeof full, "%s.b", name);
    float *bias = weights(r, x, full);
    for (int i = 0; i < to; i++) {
        out[i] = (double)bias[i];
        for (int k = 0; k < from; k++) out[i] += (double)w[i * from + k] * in[k];
    }
    free(w);
    free(bias);
}

static void gelu(double *x, int n)
{
    for (int i = 0; i < n; i++) x[i] *= 0.5 * (1 + erf(x[i] / sqrt(2)));
}

static void layernorm(const rig *r, char x, double *u)
{
    double mean = 0, square = 0;
    float *w = weights(r, x, "norm.w"), *bias = weights(r, x, "norm.b");
    for (int i = 0; i < WIDTH; i++) mean += u[i] / WIDTH;
    for (int i = 0; i < WIDTH; i++) square += (u[i] - mean) * (u[i] - mean) / WIDTH;
    for (int i = 0; i < WIDTH; i++) u[i] = (double)w[i] * (u[i] - mean) / sqrt(square + 1e-5) + (double)bias[i];
    free(w);
    free(bias);
}

static double size_of(const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum / n);
}

static void adapt(const rig *r, char x, const float *z, const float *place, given *g, double *raw, double *p)
{
    double in[WIDTH], u[WIDTH], h[HIDDEN], mid[HIDDEN], skip[MOST_D], gate[MOST_D], shift[MOST_D];
    for (int i = 0; i < WIDTH; i++) in[i] = (double)z[i], u[i] = in[i] + (double)place[i];
    layernorm(r, x, u);
    dense(r, x, "in", u, WIDTH, h, HIDDEN), gelu(h, HIDDEN);
    dense(r, x, "mid", h, HIDDEN, mid, HIDDEN), gelu(mid, HIDDEN);
    dense(r, x, "out", mid, HIDDEN, raw, g->d);
    dense(r, x, "skip", u, WIDTH, skip, g->d);
    dense(r, x, "film_gain", in, WIDTH, gate, g->d);
    dense(r, x, "film_shift", in, WIDTH, shift, g->d);
    for (int i = 0; i < g->d; i++) raw[i] = (raw[i] + skip[i]) / (1 + exp(-gate[i])) + shift[i];
    for (int i = 0; i < g->d; i++) p[i] = g->rho * g->gain * raw[i] / size_of(raw, g->d);
}

/* keys: P is not scaled, and these terms do not look at it. */
static void give(rig *r, char x, bool keys, given *g)
{
    seen s;
    const tn_entry *e = entry(r, "", x, "embed");
    const int64_t n = tn_dims_count(e->dims);
    memset(g, 0, sizeof *g);
    g->V = (int)e->dims.dim[0], g->d = (int)e->dims.dim[1];
    assert_true(g->V <= MOST_V && g->d <= MOST_D);
    float *table = tn_memory_floats(tn_trainer_store(r->trainer), e->data, n), *place = weights(r, x, "place"),
          *rho = weights(r, x, "rms"), *gain = keys ? NULL : weights(r, x, "gain");
    for (int64_t i = 0; i < n; i++) g->table[i / g->d][i % g->d] = (double)table[i];
    g->rho = (double)*rho, g->gain = keys ? 1 : (double)*gain;
    look(r, NULL, &s);
    for (int b = 0; b < B; b++)
        for (int j = 0; j < M; j++)
            adapt(r, x, s.z + (b * M + j) * WIDTH, place + j * WIDTH, g, g->raw[b * M + j], g->p[b * M + j]);
    free(table);
    free(place);
    free(rho);
    free(gain);
}

/* --- the terms, in double ------------------------------------------------------------------------------------------------------ */

/* Of a reader, in a batch whose first `rows` contexts are texts. */
typedef double value(rig *r, const given *g, char x, int rows, int k);

static bool is_asked(int row, int rows) { return row / Q < rows && !(row / Q == 1 && row % Q == 1); }

static double entropy(rig *r, const given *g, char x, int rows, int k)
{
    int32_t *labels = input(r, x == 'a' ? "a" : "b", ".labels"), kept[B * Q * LENGTH];
    double sum = 0, answers = 0;
    seen s;
    (void)k;
    memcpy(kept, labels, sizeof kept);
    for (int v = 0; v < g->V; v++) {
        for (int row = 0; row < B * Q; row++)
            if (is_asked(row, rows)) labels[row * LENGTH + asked(row / Q) + 1] = v;
        look(r, NULL, &s);
        for (int row = 0; row < B * Q; row++)
            if (is_asked(row, rows)) {
                const double nll = (double)s.nll[x - 'a'][row * (LENGTH - 1) + asked(row / Q)];
                sum -= nll * exp(-nll);
                answers += v == 0;
            }
    }
    memcpy(labels, kept, sizeof kept);
    return sum / answers;
}

/* Mean and deviation of column i of n rows. */
static void moments(const double (*x)[MOST_D], int n, int i, double *mean, double *deviation)
{
    double square = 0;
    *mean = 0;
    for (int row = 0; row < n; row++) *mean += x[row][i] / n;
    for (int row = 0; row < n; row++) square += (x[row][i] - *mean) * (x[row][i] - *mean) / n;
    *deviation = sqrt(square);
}

static double manifold(rig *r, const given *g, char x, int rows, int k)
{
    double sum = 0;
    (void)r, (void)x, (void)k;
    for (int i = 0; i < g->d; i++) {
        double mean[2], deviation[2];
        moments(g->p, rows * M, i, &mean[0], &deviation[0]);
        moments(g->table, g->V, i, &mean[1], &deviation[1]);
        sum +=
            (mean[0] - mean[1]) * (mean[0] - mean[1]) + (deviation[0] - deviation[1]) * (deviation[0] - deviation[1]);
    }
    return sum / g->d;
}

static double rms(rig *r, const given *g, char x, int rows, int k)
{
    double sum = 0;
    (void)r, (void)x, (void)k;
    for (int j = 0; j < rows * M; j++) {
        const double gap = size_of(g->raw[j], g->d) - g->rho;
        sum += gap * gap;
    }
    return sum / (rows * M);
}

static double scale(rig *r, const given *g, char x, int rows, int k)
{
    (void)r, (void)x, (void)rows, (void)k;
    return (g->gain - 1) * (g->gain - 1);
}

/* Of slot t and token t of each answer, its end among them; k 0: as many as there are. */
static double aligned(rig *r, const given *g, char x, int rows, int k, bool cosine)
{
    const int32_t *tokens = input(r, x == 'a' ? "a" : "b", ".tokens");
    double sum = 0;
    int n = 0;
    for (int row = 0; row < B * Q; row++) {
        const int begin = asked(row / Q) + 1;
        for (int t = 0; t < M && begin + t < row_of(row / Q) && (!k || t < k) && is_asked(row, rows); t++, n++) {
            const double *p = g->p[row / Q * M + t], *y = g->table[tokens[row * LENGTH + begin + t]];
            double gap = 0, dot = 0;
            for (int i = 0; i < g->d; i++) gap += (p[i] - y[i]) * (p[i] - y[i]), dot += p[i] * y[i];
            sum += cosine ? 1 - dot / (g->d * size_of(p, g->d) * size_of(y, g->d)) : gap / g->d;
        }
    }
    return sum / n;
}
static double align(rig *r, const given *g, char x, int rows, int k) { return aligned(r, g, x, rows, k, false); }
static double cosine(rig *r, const given *g, char x, int rows, int k) { return aligned(r, g, x, rows, k, true); }

/* --- tests ----------------------------------------------------------------------------------------------------------------------- */

typedef struct term {
    const char *name, *word;
    double weight;
    value *value;
    int k;
    bool keys;
    const char *reaches, *encodes; /* what it moves: of adapters, to.x.NAME; of the encoder, or NULL: nothing */
    const char *shape;             /* of reader a, or NULL: that of the rig */
} term;

#define LARGE "out.w", "encoder.pool.z.w", "a.shape=dim=16 layers=1 heads=2 vocab=4100"
#define ALL "out.w", "encoder.pool.z.w", NULL
static const term terms[] = {
    { "entropy", "loss.entropy=2", 2, entropy, 0, false, ALL },
    { "entropy, keys", "loss.entropy=2", 2, entropy, 0, true, ALL },
    { "manifold", "loss.manifold=100", 100, manifold, 0, false, ALL },
    { "manifold of a large table", "loss.manifold=100", 100, manifold, 0, false, LARGE },
    { "rms", "loss.rms=20", 20, rms, 0, false, ALL },
    { "rms, keys", "loss.rms=20", 20, rms, 0, true, ALL },
    { "scale", "loss.scale=30", 30, scale, 0, false, "gain", NULL, NULL },
    { "align", "loss.align=50", 50, align, 1, false, ALL },
    { "align, two slots", "loss.align=50 loss.align_k=2", 50, align, 2, false, ALL },
    { "align, more slots than there are", "loss.align=50 loss.align_k=9", 50, align, 9, false, ALL },
    { "align, the whole answer", "loss.align=50 loss.align_k=0", 50, align, 0, false, ALL },
    { "cosine", "loss.cosine=5", 5, cosine, 1, false, ALL },
    { "cosine, the whole answer", "loss.cosine=5 loss.align_k=0", 5, cosine, 0, false, ALL },
};

/* Words of one string, apart. */
static void split(const char *text, char (*to)[32], const char **words, size_t *n)
{
    for (int used; sscanf(text, " %31s%n", to[*n], &used) == 1; text += used) words[*n] = to[*n], ++*n;
    words[*n] = NULL;
}

/* They are small at first, and would say nearly nothing. */
static void enlarge_keys(rig *r, char x)
{
    const tn_entry *e = entry(r, "to.", x, "w_keys");
    const int64_t n = tn_dims_count(e->dims);
    float *w = weights(r, x, "w_keys");
    for (int64_t i = 0; i < n; i++) w[i] *= 100;
    tn_memory_put(tn_trainer_store(r->trainer), e->data, w, sizeof *w * (size_t)n);
    free(w);
}

static void open_side(rig *r, const term *t, bool on, bool is_free)
{
    char text[8][32];
    const char *words[8];
    size_t n = 0;
    split(t->keys ? "place=keys b.ids=37" : "place=embeddings b.ids=37", text, words, &n);
    if (is_free) split("encoder=free", text, words, &n);
    if (on) split(t->word, text, words, &n);
    if (t->shape) words[n++] = t->shape, words[n] = NULL;
    open_rig(r, &usual, words, true);
    fill(r, 0);
    for (char x = 'a'; x <= 'b' && t->keys; x++) enlarge_keys(r, x);
    for (char x = 'a'; x <= 'b' && !t->keys; x++)
        tn_memory_set(tn_trainer_store(r->trainer), entry(r, "to.", x, "gain")->data, x == 'a' ? 1.3f : 0.8f);
}

static float train_loss(rig *r)
{
    float loss;
    assert_ok(tn_trainer_grad(r->trainer, 0, &loss));
    return loss;
}

/* The largest difference of a parameter's gradient. */
static float moved(const rig *a, const rig *b, const char *name)
{
    const tn_store *p = tn_trainer_store(a->trainer), *q = tn_trainer_store(b->trainer);
    const tn_entry *x = tn_store_find(p, name), *y = tn_store_find(q, name);
    if (!x || !y) fail_msg("there is no %s", name);
    const int64_t n = tn_dims_count(x->dims);
    float *dx = tn_memory_floats(p, x->grad, n), *dy = tn_memory_floats(q, y->grad, n), most = 0;
    for (int64_t i = 0; i < n; i++) most = fmaxf(most, fabsf(dx[i] - dy[i]));
    free(dx);
    free(dy);
    return most;
}

static double expected(rig *r, const term *t, int rows)
{
    static given g;
    double sum = 0;
    for (char x = 'a'; x <= 'b'; x++) {
        give(r, x, t->keys, &g);
        sum += t->value(r, &g, x, rows, t->k);
    }
    return t->weight * sum / 2;
}

static void compare(rig *with, rig *without, const term *t, int rows)
{
    const double is = (double)train_loss(with) - (double)train_loss(without), want = expected(without, t, rows);
    if (!(fabs(want) > 0.1 && fabs(is - want) <= 2e-5 * fmax(1, fabs(want)))) fail_msg("%.9g, and not %.9g", is, want);
}

/* Adds its value to the loss, and moves what is trained. */
static void formula(void **state)
{
    const term *t = *state;
    rig with, without;
    char name[32];
    open_side(&with, t, true, false);
    open_side(&without, t, false, false);
    compare(&with, &without, t, B);
    for (char x = 'a'; x <= 'b'; x++) {
        snprintf(name, sizeof name, "to.%c.%s", x, t->reaches);
        if (!(moved(&with, &without, name) > 1e-3f)) fail_msg("nothing reaches %s", name);
    }
    if (t->encodes && !(moved(&with, &without, t->encodes) > 1e-4f)) fail_msg("nothing reaches %s", t->encodes);
    close_rig(&with);
    close_rig(&without);
}

/* Rows behind the last text of a batch: they are in no mean, and nothing comes back to them. */
static void short_batch(void **state)
{
    const term *t = *state;
    rig r[2];
    for (int i = 0; i < 2; i++) {
        open_side(&r[i], t, i == 0, true);
        *input(&r[i], "", "count") = 2;
        for (int k = 0; k < 2; k++)
            for (int j = 2 * Q * LENGTH; j < B * Q * LENGTH; j++) input(&r[i], k ? "b" : "a", ".labels")[j] = -1;
    }
    compare(&r[0], &r[1], t, 2);
    const tn_entry *e = tn_store_find(tn_trainer_store(r[0].trainer), "free");
    assert_true(e && tn_dims_count(e->dims) == B * M * WIDTH);
    float *g = tn_memory_floats(tn_trainer_store(r[0].trainer), e->grad, B * M * WIDTH);
    for (int i = 0; i < B * M * WIDTH; i++)
        if (i >= 2 * M * WIDTH && g[i] != 0) fail_msg("a row that is no text has the gradient %g", (double)g[i]);
    assert_true(moved(&r[0], &r[1], "free") > 1e-3f || !t->encodes);
    free(g);
    for (int i = 0; i < 2; i++) close_rig(&r[i]);
}

/* How many nodes a training step has. */
static size_t nodes(rig *r)
{
    tn_node_time node;
    size_t n = 0;
    (void)train_loss(r);
    while (tn_plan_node_at(tn_bound_plan(tn_trainer_bound(r->trainer, true)), n, &node)) n++;
    assert_true(n > 100);
    return n;
}

/* With the weight 0 the step has not a node more, whatever else is said of the term, and the same numbers. */
static void off(void **state)
{
    (void)state;
    static const char *const zero[] = { "place=embeddings", "loss.entropy=0", "loss.manifold=0",
                                        "loss.rms=0",       "loss.scale=0",   "loss.align=0",
                                        "loss.cosine=0",    "loss.align_k=3", NULL },
                             *const none[] = { "place=embeddings", NULL };
    rig a, b, on;
    open_rig(&a, &usual, none, true);
    open_rig(&b, &usual, zero, true);
    fill(&a, 0);
    fill(&b, 0);
    const size_t n = nodes(&a);
    assert_true(nodes(&b) == n && same(train_loss(&a), train_loss(&b)) &&
                moved(&a, &b, "encoder.pool.z.w") <= (tn_test_device() == TN_CPU ? 0 : 1e-6f));
    for (size_t i = 0; i < sizeof terms / sizeof *terms; i++) {
        if (terms[i].keys || terms[i].shape) continue;
        open_side(&on, &terms[i], true, false);
        if (!(nodes(&on) > n)) fail_msg("%s is no node", terms[i].name);
        close_rig(&on);
    }
    close_rig(&a);
    close_rig(&b);
}

/* What looks at vectors among embeddings is refused where there are none. */
static void needs_embeddings(void **state)
{
    (void)state;
    static const char *const what[] = { "loss.manifold", "loss.scale", "loss.align", "loss.cosine" };
    for (int i = 0; i < 4; i++) {
        char word[32];
        const char *const words[] = { "place=keys", word, NULL };
        snprintf(word, sizeof word, "%s=1", what[i]);
        tn_settings *st = settings_of(&usual, words);
        tn_trainer *t;
        const tn_trainer_options o = { .model = tn_model_named("wire"), .settings = st, .batch = B, .length = 1 };
        assert_int_equal(tn_trainer_new(&o, &t), TN_USAGE);
        assert_true(strstr(tn_error_text(), what[i]) && strstr(tn_error_text(), "set place=embeddings"));
        tn_settings_free(st);
    }
}

void tn_tests_wire_terms(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof terms / sizeof *terms; i++)
        tn_test_add(l, formula, (void *)&terms[i], "wire terms: equal their formula, %s", terms[i].name);
    for (size_t i = 0; i < sizeof terms / sizeof *terms; i++)
        tn_test_add(l, short_batch, (void *)&terms[i], "wire terms: of a batch that is not full, %s", terms[i].name);
    tn_test_add(l, off, NULL, "wire terms: off they are not there");
    tn_test_add(l, needs_embeddings, NULL, "wire terms: keys are no embeddings");
}
