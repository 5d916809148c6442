/* Gradients of the block map of `tep` (one token) against an oracle in double: the map's vector-Jacobian product written out by
 * hand, checked against differences; the implicit gradient at an equilibrium, checked against differences of the loss there; and
 * both against what the graph gives in f32. Then the estimators beside each other: cosines to the implicit gradient, the known
 * size of the faithful proxy, and the energy map, where equilibrium propagation is exact and purely local. */
#include "tep_world.h"

enum { B = 3, F = 4, D = 5, M = 20, C = 3 };

enum { EMBED_W, EMBED_B, WV, BV, WO, BO, NORM2_W, NORM2_B, W1, B1, W2, B2, NORM_W, NORM_B, HEAD_W, HEAD_B, TENSORS };
static const char *const names[TENSORS] = { "embed.w",  "embed.b",  "attn.wv", "attn.bv", "attn.wo", "attn.bo",
                                            "norm2.w",  "norm2.b",  "ffn.w1",  "ffn.b1",  "ffn.w2",  "ffn.b2",
                                            "norm_f.w", "norm_f.b", "head.w",  "head.b" };
static const int sizes[TENSORS] = { D * F, D, D *D, D, D *D, D, D, D, M *D, M, D *M, D, D, D, C *D, C };
enum { MOST = 512 };

/* One parameter vector, p[k] the place of tensor k in it; so are gradients. */
typedef struct params {
    double all[MOST];
    double *p[TENSORS];
    int n;
} params;

static void params_init(params *q)
{
    q->n = 0;
    for (int k = 0; k < TENSORS; k++) {
        q->p[k] = q->all + q->n;
        q->n += sizes[k];
    }
    assert_true(q->n <= MOST);
    memset(q->all, 0, sizeof q->all);
}

static void params_read(params *q, const tn_world *w, bool grad)
{
    params_init(q);
    for (int k = 0; k < TENSORS; k++) {
        const tn_entry *e = tn_world_entry(w, names[k]);
        assert_int_equal(tn_dims_count(e->dims), sizes[k]);
        for (int i = 0; i < sizes[k]; i++) q->p[k][i] = (double)(grad ? e->grad[i] : ((float *)e->data)[i]);
    }
}

/* --- the oracle ------------------------------------------------------------------------------------------------------ */

/* y (n) = w (n,k) x + b */
static void affine(const double *w, const double *b, const double *x, int n, int k, double *y)
{
    for (int i = 0; i < n; i++) {
        y[i] = b[i];
        for (int j = 0; j < k; j++) y[i] += w[i * k + j] * x[j];
    }
}

/* dx += w^T dy, dw += dy x^T, db += dy; each may be NULL */
static void affine_back(const double *w, const double *x, const double *dy, int n, int k, double *dx, double *dw,
                        double *db)
{
    for (int i = 0; i < n; i++) {
        for (int j = 0; dx && j < k; j++) dx[j] += w[i * k + j] * dy[i];
        for (int j = 0; dw && j < k; j++) dw[i * k + j] += dy[i] * x[j];
        if (db) db[i] += dy[i];
    }
}

/* Layer norm of x (D): n = (x - mean) is, y = w n + b; returns is. */
static double norm(const double *w, const double *b, const double *x, double *n, double *y)
{
    double mean = 0, var = 0;
    for (int i = 0; i < D; i++) mean += x[i] / D;
    for (int i = 0; i < D; i++) var += (x[i] - mean) * (x[i] - mean) / D;
    const double is = 1 / sqrt(var + 1e-5);
    for (int i = 0; i < D; i++) {
        n[i] = (x[i] - mean) * is;
        y[i] = w[i] * n[i] + b[i];
    }
    return is;
}

/* dx += J^T dy, dw += .., db += .. */
static void norm_back(const double *w, const double *n, double is, const double *dy, double *dx, double *dw, double *db)
{
    double mean = 0, along = 0;
    for (int i = 0; i < D; i++) {
        mean += dy[i] * w[i] / D;
        along += dy[i] * w[i] * n[i] / D;
    }
    for (int i = 0; i < D; i++) {
        dx[i] += is * (dy[i] * w[i] - mean - n[i] * along);
        if (dw) dw[i] += dy[i] * n[i];
        if (db) db[i] += dy[i];
    }
}

static double gelu(double z) { return 0.5 * z * (1 + erf(z / sqrt(2))); }
static double gelu_slope(double z)
{
    return 0.5 * (1 + erf(z / sqrt(2))) + z * exp(-0.5 * z * z) / sqrt(2 * 3.14159265358979323846);
}

/* What an evaluation of f leaves for its vector-Jacobian product. */
typedef struct trace {
    double u[D], n2[D], v2[D], is2, z[M], g[M], r[D], n[D], is, y[D];
} trace;

static void map(const params *q, const double *h, const double *a, trace *t)
{
    for (int i = 0; i < D; i++) t->u[i] = h[i] + a[i];
    t->is2 = norm(q->p[NORM2_W], q->p[NORM2_B], t->u, t->n2, t->v2);
    affine(q->p[W1], q->p[B1], t->v2, M, D, t->z);
    for (int i = 0; i < M; i++) t->g[i] = gelu(t->z[i]);
    affine(q->p[W2], q->p[B2], t->g, D, M, t->r);
    for (int i = 0; i < D; i++) t->r[i] += t->u[i];
    t->is = norm(q->p[NORM_W], q->p[NORM_B], t->r, t->n, t->y);
}

/* du (D) = dy^T df/dh (= dy^T df/da); d: gradients of the parameters are added to, or NULL. */
static void map_back(const params *q, const trace *t, const double *dy, double *du, params *d)
{
    double dr[D] = { 0 }, dg[M] = { 0 }, dv[D] = { 0 };
    norm_back(q->p[NORM_W], t->n, t->is, dy, dr, d ? d->p[NORM_W] : NULL, d ? d->p[NORM_B] : NULL);
    affine_back(q->p[W2], t->g, dr, D, M, dg, d ? d->p[W2] : NULL, d ? d->p[B2] : NULL);
    for (int i = 0; i < M; i++) dg[i] *= gelu_slope(t->z[i]);
    affine_back(q->p[W1], t->v2, dg, M, D, dv, d ? d->p[W1] : NULL, d ? d->p[B1] : NULL);
    memcpy(du, dr, sizeof dr);
    norm_back(q->p[NORM2_W], t->n2, t->is2, dv, du, d ? d->p[NORM2_W] : NULL, d ? d->p[NORM2_B] : NULL);
}

typedef struct batch {
    double x[B][F], h[B][D];
    int label[B];
} batch;

static void inject(const params *q, const double *x, double *e, double *v, double *a)
{
    affine(q->p[EMBED_W], q->p[EMBED_B], x, D, F, e);
    affine(q->p[WV], q->p[BV], e, D, D, v);
    affine(q->p[WO], q->p[BO], v, D, D, a);
}

/* Cross-entropy of a state, and what softmax makes of the logits less the label. */
static double classify(const params *q, const double *h, int label, double *off)
{
    double sum = 0;
    affine(q->p[HEAD_W], q->p[HEAD_B], h, C, D, off);
    const double chosen = off[label];
    for (int c = 0; c < C; c++) sum += exp(off[c]);
    for (int c = 0; c < C; c++) off[c] = exp(off[c]) / sum - (c == label);
    return log(sum) - chosen;
}

/* The mean loss at the equilibria, which b->h holds from then on (and starts from). */
static double settle(const params *q, batch *b)
{
    double loss = 0, e[D], v[D], a[D], off[C];
    for (int s = 0; s < B; s++) {
        trace t;
        double moved = 1;
        inject(q, b->x[s], e, v, a);
        for (int i = 0; i < 20000 && moved > 1e-15; i++) {
            map(q, b->h[s], a, &t);
            moved = 0;
            for (int k = 0; k < D; k++) moved = fmax(moved, fabs(t.y[k] - b->h[s][k]));
            memcpy(b->h[s], t.y, sizeof t.y);
        }
        assert_true(moved < 1e-12);
        loss += classify(q, b->h[s], b->label[s], off) / B;
    }
    return loss;
}

/* The gradient of the mean loss at the states of b: implicit (lambda = g + J^T lambda), or of one step (lambda = g). */
static void gradient(const params *q, const batch *b, bool implicit, params *d)
{
    params_init(d);
    for (int s = 0; s < B; s++) {
        double e[D], v[D], a[D], off[C], g[D] = { 0 }, lambda[D], du[D], dv[D] = { 0 }, de[D] = { 0 };
        trace t;
        inject(q, b->x[s], e, v, a);
        map(q, b->h[s], a, &t);
        classify(q, b->h[s], b->label[s], off);
        for (int c = 0; c < C; c++) off[c] /= B;
        affine_back(q->p[HEAD_W], b->h[s], off, C, D, g, d->p[HEAD_W], d->p[HEAD_B]);
        memcpy(lambda, g, sizeof g);
        for (int i = 0; implicit && i < 20000; i++) {
            map_back(q, &t, lambda, du, NULL);
            for (int k = 0; k < D; k++) lambda[k] = g[k] + du[k];
        }
        map_back(q, &t, lambda, du, d);
        affine_back(q->p[WO], v, du, D, D, dv, d->p[WO], d->p[BO]);
        affine_back(q->p[WV], e, dv, D, D, de, d->p[WV], d->p[BV]);
        affine_back(q->p[EMBED_W], b->x[s], de, D, F, NULL, d->p[EMBED_W], d->p[EMBED_B]);
    }
}

/* --- the oracle against differences ------------------------------------------------------------------------------------ */

static void close_to(const char *what, const double *a, const double *b, int n, double tolerance)
{
    double largest = 0;
    for (int i = 0; i < n; i++) largest = fmax(largest, fabs(b[i]));
    assert_true(largest > 1e-3);
    for (int i = 0; i < n; i++)
        if (!(fabs(a[i] - b[i]) <= tolerance * largest)) fail_msg("%s, number %d: %.9g and %.9g", what, i, a[i], b[i]);
}

static double projected(const params *q, const double *h, const double *a, const double *y)
{
    trace t;
    double s = 0;
    map(q, h, a, &t);
    for (int i = 0; i < D; i++) s += y[i] * t.y[i];
    return s;
}

/* A trained network's parameters and batch in double, and its plan: training makes the map contract. */
static tn_bound *trained(tn_world *w, params *q, batch *b)
{
    const tep_shape z = { .B = B, .S = 1, .F = F, .C = C, .L = 1 };
    tn_bound *plan = tep_add(w, &z, TEP_LIST("dim=5", "grad=implicit", "rtol=1e-6", "iterations=1000"));
    tep_train(w, plan, 0.01, 20);
    params_read(q, w, false);
    for (int s = 0; s < B; s++) {
        for (int i = 0; i < F; i++) b->x[s][i] = (double)((float *)tn_world_data(plan, "features"))[s * F + i];
        for (int i = 0; i < D; i++) b->h[s][i] = (double)((float *)tn_world_data(plan, "state"))[s * D + i];
        b->label[s] = ((int32_t *)tn_world_data(plan, "labels"))[s];
    }
    return plan;
}

static void product_by_hand(void **state)
{
    tn_world w = tn_world_open(11, 1);
    params q, d;
    batch b;
    double a[D], e[D], v[D], y[D], du[D], moved[D], differences[MOST];
    trace t;
    (void)state;
    trained(&w, &q, &b);
    inject(&q, b.x[0], e, v, a);
    for (int i = 0; i < D; i++) y[i] = cos(2.0 * i);
    params_init(&d);
    map(&q, b.h[0], a, &t);
    map_back(&q, &t, y, du, &d);
    for (int i = 0; i < D; i++) {
        const double keep = b.h[0][i];
        b.h[0][i] = keep + 1e-6;
        const double up = projected(&q, b.h[0], a, y);
        b.h[0][i] = keep - 1e-6;
        moved[i] = (up - projected(&q, b.h[0], a, y)) / 2e-6;
        b.h[0][i] = keep;
    }
    close_to("by the state", du, moved, D, 1e-6);
    for (int i = 0; i < q.n; i++) {
        const double keep = q.all[i];
        q.all[i] = keep + 1e-6;
        const double up = projected(&q, b.h[0], a, y);
        q.all[i] = keep - 1e-6;
        differences[i] = (up - projected(&q, b.h[0], a, y)) / 2e-6;
        q.all[i] = keep;
    }
    close_to("by the parameters", d.all, differences, q.n, 1e-6);
    tn_world_close(&w);
}

static void implicit_by_differences(void **state)
{
    tn_world w = tn_world_open(11, 1);
    params q, d;
    batch b;
    double differences[MOST];
    (void)state;
    trained(&w, &q, &b);
    settle(&q, &b);
    gradient(&q, &b, true, &d);
    for (int i = 0; i < q.n; i++) {
        const double keep = q.all[i];
        q.all[i] = keep + 1e-5;
        const double up = settle(&q, &b);
        q.all[i] = keep - 1e-5;
        differences[i] = (up - settle(&q, &b)) / 2e-5;
        q.all[i] = keep;
    }
    close_to("the implicit gradient", d.all, differences, q.n, 1e-6);
    tn_world_close(&w);
}

/* --- the graph against the oracle ---------------------------------------------------------------------------------------- */

static void graph_against_oracle(void **state)
{
    tn_world w = tn_world_open(11, 1);
    params q, exact, got;
    batch b;
    const tep_shape z = { .B = B, .S = 1, .F = F, .C = C, .L = 1 };
    static double all[1 << 12];
    (void)state;
    tn_bound *plan = trained(&w, &q, &b);
    settle(&q, &b);
    tep_gradients(&w, plan, "", all, 1 << 12);
    for (int s = 0; s < B; s++)
        for (int i = 0; i < D; i++)
            assert_float_equal(((float *)tn_world_data(plan, "state"))[s * D + i], b.h[s][i], 2e-5);
    gradient(&q, &b, true, &exact);
    params_read(&got, &w, true);
    close_to("implicit", got.all, exact.all, q.n, 1e-4);
    plan = tep_add(&w, &z, TEP_LIST("dim=5", "grad=one_step", "rtol=1e-6", "iterations=1000"));
    tep_gradients(&w, plan, "", all, 1 << 12);
    gradient(&q, &b, false, &exact);
    params_read(&got, &w, true);
    close_to("one step", got.all, exact.all, q.n, 1e-4);
    tn_world_close(&w);
}

/* --- estimators ------------------------------------------------------------------------------------------------------------ */

enum { WIDE = 1 << 14 };

/* Six classes of 64 samples with 16 features, one of which carries most of the class. */
static void fill_classes(tn_bound *b, const tep_shape *z)
{
    float *x = tn_world_data(b, "features");
    int32_t *y = tn_world_data(b, "labels");
    for (int64_t s = 0; s < z->B; s++) {
        y[s] = (int32_t)(s % z->C);
        for (int64_t i = 0; i < z->F; i++)
            x[s * z->F + i] = 0.5f * sinf(2.3f * (float)(s * z->F + i)) + (i == y[s] ? 1.f : 0.f);
    }
}

static void estimators(void **state)
{
    enum { EP, CENTRED, ONE_STEP, BPTT, KINDS };
    static const char *const kind[KINDS] = { "grad=ep", "grad=ep_centred", "grad=one_step", "grad=bptt" };
    static const double least[KINDS] = { 0.9, 0.9, 0.9, 0.9999 }, smallest[KINDS] = { 0.7, 0.7, 0.1, 0.999 };
    static double exact[WIDE], got[WIDE];
    const tep_shape z = { .B = 64, .S = 1, .F = 16, .C = 6, .L = 1 };
    tn_world w = tn_world_open(5, 1);
    (void)state;
    tn_bound *b = tep_add(&w, &z, TEP_LIST("dim=13", "grad=ep", "rtol=1e-3", "iterations=60"));
    fill_classes(b, &z);
    tep_train(&w, b, 0.01, 100); /* by ep */
    b = tep_add(&w, &z, TEP_LIST("dim=13", "grad=implicit", "rtol=1e-6", "iterations=500"));
    fill_classes(b, &z);
    const int64_t n = tep_gradients(&w, b, "ffn", exact, WIDE);
    for (int k = 0; k < KINDS; k++) {
        b = tep_add(&w, &z, TEP_LIST("dim=13", kind[k], "rtol=1e-6", "iterations=500", "beta=0.01"));
        fill_classes(b, &z);
        tep_gradients(&w, b, "ffn", got, WIDE);
        const double cosine = tep_cosine(exact, got, n), size = sqrt(tep_dot(got, got, n) / tep_dot(exact, exact, n));
        if (!(cosine >= least[k] && size > smallest[k] && size < 1.4))
            fail_msg("%s: cosine %g, size %g", kind[k], cosine, size);
    }
    b = tep_add(&w, &z, TEP_LIST("dim=13", "variant=faithful", "grad=ep", "tol=1e-6", "iterations=500", "beta=0.3"));
    fill_classes(b, &z);
    tep_gradients(&w, b, "ffn", got, WIDE);
    const double size = sqrt(tep_dot(got, got, n) / tep_dot(exact, exact, n)), expect = 2. / (64 * 13);
    if (!(fabs(size / expect - 1) < 0.1)) fail_msg("the proxy is %g of the gradient, 2/(B d) is %g", size, expect);
    tn_world_close(&w);
}

/* One nudge after a loose free solve, in a map where propagation is exact: from the state it takes the rest for a signal. */
static void loose_nudges(void **state)
{
    static const char *const anchor[] = { "anchor=state", "anchor=rest", "anchor=auto" }, *const stop[] = {
        "nudge_rtol=0", "nudge_rtol=0", "nudge_rtol=0.02"
    };
    static double exact[WIDE], got[WIDE];
    const tep_shape z = { .B = 64, .S = 1, .F = 16, .C = 6, .L = 1 };
    tn_world w = tn_world_open(5, 1);
    double error[3];
    (void)state;
    tn_bound *b = tep_add(&w, &z, TEP_LIST("dim=13", "mode=energy", "grad=implicit", "rtol=1e-6", "iterations=500"));
    fill_classes(b, &z);
    const int64_t n = tep_gradients(&w, b, "energy", exact, WIDE);
    for (int k = 0; k < 3; k++) {
        b = tep_add(&w, &z,
                    TEP_LIST("dim=13", "mode=energy", "grad=ep", "rtol=1e-2", "iterations=500", "beta=0.05", anchor[k],
                             stop[k]));
        fill_classes(b, &z);
        tep_gradients(&w, b, "energy", got, WIDE);
        for (int64_t i = 0; i < n; i++) got[i] -= exact[i];
        error[k] = sqrt(tep_dot(got, got, n) / tep_dot(exact, exact, n));
    }
    if (!(error[1] < 0.5 * error[0] && error[2] < 0.5 * error[1] && error[2] < 0.1))
        fail_msg("errors: from the state %g, from rest %g, by its move %g", error[0], error[1], error[2]);
    tn_world_close(&w);
}

/* --- energy ------------------------------------------------------------------------------------------------------------------ */

enum { EB = 4, ED = 8, EM = 32 };

/* Sample b is unit vector b: row i of the gradient of embed.w holds number i of every sample's adjoint. */
static void fill_units(tn_bound *b)
{
    for (int i = 0; i < EB * EB; i++) ((float *)tn_world_data(b, "features"))[i] = i % (EB + 1) == 0;
}

static void energy_is_exact(void **state)
{
    static double exact[WIDE], got[WIDE];
    const tep_shape z = { .B = EB, .S = 1, .F = EB, .C = C, .L = 1 };
    tn_world w = tn_world_open(7, 1);
    (void)state;
    for (int k = 0; k < 2; k++) {
        tn_bound *b = tep_add(&w, &z,
                              TEP_LIST("dim=8", "mode=energy", "rtol=1e-6", "iterations=300", "beta=0.05",
                                       k ? "grad=ep_centred" : "grad=implicit"));
        fill_units(b);
        if (!k) tep_train(&w, b, 0.01, 50);
        const int64_t n = tep_gradients(&w, b, "embed.w", k ? got : exact, WIDE);
        assert_int_equal(n, ED * EB);
    }
    for (int s = 0; s < EB; s++) {
        double a[ED], b[ED];
        for (int i = 0; i < ED; i++) a[i] = exact[i * EB + s], b[i] = got[i * EB + s];
        if (!(tep_cosine(a, b, ED) >= 0.999)) fail_msg("sample %d: cosine %g of the adjoints", s, tep_cosine(a, b, ED));
    }
    tn_world_close(&w);
}

/* h = a + s W^T tanh(W h + b) - eta dC/dh, by iteration in double; t = tanh(W h + b). */
static void energy_settle(const tn_world *w, double s, const double *a, int label, double eta, double *h, double *t)
{
    const float *W = tn_world_entry(w, "energy.w1")->data, *b = tn_world_entry(w, "energy.b1")->data;
    const float *V = tn_world_entry(w, "head.w")->data, *c = tn_world_entry(w, "head.b")->data;
    memset(h, 0, sizeof *h * ED);
    for (int n = 0; n < 2000; n++) {
        double p[C], f[ED], sum = 0;
        for (int m = 0; m < EM; m++) {
            t[m] = (double)b[m];
            for (int i = 0; i < ED; i++) t[m] += (double)W[m * ED + i] * h[i];
            t[m] = tanh(t[m]);
        }
        for (int i = 0; i < ED; i++) {
            f[i] = a[i];
            for (int m = 0; m < EM; m++) f[i] += s * (double)W[m * ED + i] * t[m];
        }
        for (int k = 0; k < C; k++) { /* the nudge is felt at f(h) */
            p[k] = (double)c[k];
            for (int i = 0; i < ED; i++) p[k] += (double)V[k * ED + i] * f[i];
            sum += p[k] = exp(p[k]);
        }
        for (int i = 0; i < ED; i++) {
            h[i] = f[i];
            for (int k = 0; k < C; k++) h[i] -= eta * (double)V[k * ED + i] * (p[k] / sum - (k == label));
        }
    }
}

/* s (t- h-^T - t+ h+^T) / (2 eta) and its like: what each place can compute from its own two states, without derivatives. */
static void energy_is_local(void **state)
{
    enum { N = EM * ED + EM + ED * EB };
    static double got[WIDE], local[N];
    const tep_shape z = { .B = EB, .S = 1, .F = EB, .C = C, .L = 1 };
    const double eta = 0.02, kappa = 0.7;
    tn_world w = tn_world_open(7, 1);
    (void)state;
    tn_bound *b =
        tep_add(&w, &z,
                TEP_LIST("dim=8", "mode=energy", "rtol=1e-6", "iterations=300", "beta=0.02", "grad=ep_centred"));
    fill_units(b);
    tep_train(&w, b, 0.01, 5);
    for (int i = 0; i < 40; i++) assert_ok(tn_run(b)); /* the direction of sigma comes to rest */
    const tn_entry *We = tn_world_entry(&w, "embed.w"), *be = tn_world_entry(&w, "embed.b"),
                   *w1 = tn_world_entry(&w, "energy.w1");
    const float *v = tn_world_entry(&w, "energy.direction")->data;
    double sigma2 = 0; /* |W v|^2 at the singular vector v */
    for (int m = 0; m < EM; m++) {
        double u = 0;
        for (int i = 0; i < ED; i++) u += (double)((float *)w1->data)[m * ED + i] * (double)v[i];
        sigma2 += u * u;
    }
    const double s = kappa / sigma2;
    memset(local, 0, sizeof local);
    for (int k = 0; k < EB; k++)
        for (int sign = -1; sign <= 1; sign += 2) {
            double a[ED], h[ED], t[EM];
            const double factor = -sign / (2 * eta * EB);
            for (int i = 0; i < ED; i++)
                a[i] = (double)((float *)We->data)[i * EB + k] + (double)((float *)be->data)[i];
            energy_settle(&w, s, a, ((int32_t *)tn_world_data(b, "labels"))[k], sign * eta, h, t);
            for (int m = 0; m < EM; m++)
                for (int i = 0; i < ED; i++) local[m * ED + i] += factor * s * t[m] * h[i];
            for (int m = 0; m < EM; m++) local[EM * ED + m] += factor * s * t[m];
            for (int i = 0; i < ED; i++) local[EM * ED + EM + i * EB + k] += factor * h[i];
        }
    tn_store_zero_grad(w.store);
    assert_ok(tn_run(b));
    int n = 0;
    static const char *const tensors[] = { "energy.w1", "energy.b1", "embed.w" };
    for (int k = 0; k < 3; k++) {
        const tn_entry *e = tn_world_entry(&w, tensors[k]);
        for (int64_t i = 0; i < tn_dims_count(e->dims); i++) got[n++] = (double)e->grad[i];
    }
    assert_int_equal(n, N);
    close_to("energy.w1", got, local, EM * ED, 5e-3);
    close_to("energy.b1", got + EM * ED, local + EM * ED, EM, 5e-3);
    close_to("embed.w", got + EM * ED + EM, local + EM * ED + EM, ED * EB, 5e-3);
    tn_world_close(&w);
}

void tn_tests_tep_gradients(tn_test_list *l)
{
    tn_test_add(l, product_by_hand, NULL, "tep gradients: the map's product by hand is that of differences");
    tn_test_add(l, implicit_by_differences, NULL, "tep gradients: the implicit gradient is that of differences");
    tn_test_add(l, graph_against_oracle, NULL, "tep gradients: the graph's are the oracle's");
    tn_test_add(l, estimators, NULL, "tep gradients: estimators beside the implicit gradient");
    tn_test_add(l, loose_nudges, NULL, "tep: one nudge after a loose solve");
    tn_test_add(l, energy_is_exact, NULL, "tep gradients: equilibrium propagation of an energy is exact");
    tn_test_add(l, energy_is_local, NULL, "tep gradients: equilibrium propagation of an energy is local");
}
