/* Anderson acceleration of a tile against the same of single samples (ops/anderson.h), step by step, with columns that come
 * late, diverge, stand still or meet an infinity. */
#include "ops/relax/relax_cpu.h"
#include "testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { D = 9, M = 4, STEPS = 14, LANES = TN_RELAX_LANES };

typedef struct setup {
    tn_relax_job j;
    tn_relax_tile t;
    tn_anderson rows;
    float h[LANES][D];
    void *memory, *pairs;
} setup;

static void *zeroed(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(p);
    memset(p, 0xff, bytes); /* NaN: what is not a column's own must not reach it */
    return p;
}

static setup make(int width, int live)
{
    setup s = {
        .j = { .attr = { .memory = M, .solver = TN_SOLVE_ANDERSON, .steps = STEPS }, .d = D, .f = 1, .damping = 0.8f }
    };
    const tn_relax_memory none = { 0 };
    tn_relax_memory m = none;
    for (int pass = 0; pass < 2; pass++) {
        s.t = (tn_relax_tile){ .width = width, .live = live };
        s.t.h = tn_relax_floats(&m, D * LANES), s.t.y = tn_relax_floats(&m, D * LANES);
        s.t.residual = tn_relax_floats(&m, LANES), s.t.distance = tn_relax_floats(&m, LANES),
        s.t.moved = tn_relax_floats(&m, LANES);
        s.t.pairs = (tn_relax_pairs){ .memory = M,
                                      .r = tn_relax_take(&m, sizeof(double) * M * D * LANES),
                                      .f = tn_relax_floats(&m, M * D * LANES),
                                      .gram = tn_relax_take(&m, sizeof(double) * M * M * LANES),
                                      .system = tn_relax_take(&m, sizeof(double) * M * M * LANES) };
        if (!pass) m = (tn_relax_memory){ .base = s.memory = zeroed(m.used) };
    }
    s.pairs = zeroed(tn_anderson_bytes(M, LANES, D));
    s.rows = tn_anderson_at(s.pairs, M, LANES, D);
    for (int l = 0; l < LANES; l++) tn_anderson_restart(&s.rows, l);
    for (int l = 0; l < width; l++)
        for (int i = 0; i < D; i++) s.t.h[i * width + l] = s.h[l][i] = sinf((float)(1 + l * D + i));
    return s;
}

/* Column l's map, of a kind that depends on the column. */
static float map(int l, int step, int i, const float *h)
{
    const float next = h[(i + 1) % D], pull = 0.5f + 0.03f * (float)l;
    if (l % 5 == 1 && step == 5 && i == 2) return INFINITY;
    if (l % 5 == 2) return (float)(step + 1) * (float)(step % 3 + 1) * 10 * sinf((float)i); /* residuals that grow */
    if (l % 5 == 3 && step < 4) return h[i];                                                /* no residual at first */
    return pull * h[i] - 0.2f * next + cosf((float)(l + i));
}

/* Another sample takes the place of column l, which was NaN through and through. */
static void replace(setup *s, int l)
{
    tn_relax_pairs *p = &s->t.pairs;
    const int W = s->t.width;
    tn_anderson_restart(&s->rows, l);
    p->kept[l] = 0;
    for (int i = 0; i < M * D; i++) p->r[i * W + l] = (double)(p->f[i * W + l] = NAN);
    for (int i = 0; i < M * M; i++) p->gram[i * W + l] = (double)NAN;
}

static void check_width(int width, int live)
{
    setup s = make(width, live);
    for (int step = 0; step < STEPS; step++) {
        float moved[LANES];
        for (int l = 0; l < width; l++)
            for (int i = 0; i < D; i++) s.t.y[i * width + l] = l < live ? map(l, step, i, s.h[l]) : 0;
        for (int l = 0; l < live; l++) {
            float y[D];
            for (int i = 0; i < D; i++) y[i] = s.t.y[i * width + l];
            if (step == 7 && l % 4 == 0) replace(&s, l);
            moved[l] = (float)tn_anderson_step(&s.rows, l, s.j.damping, s.h[l], y);
        }
        s.t.limit = s.j.rtol;
        tn_relax_advance(&s.j, &s.t, true);
        tn_relax_accelerate(&s.j, &s.t);
        for (int l = 0; l < live; l++) {
            float size = 0, apart = 0;
            for (int i = 0; i < D; i++) {
                const float e = fabsf(s.t.h[i * width + l] - s.h[l][i]);
                size = fmaxf(size, fabsf(s.h[l][i]));
                if (!(e <= apart)) apart = e;
            }
            if (!(apart <= 2e-3f * (1 + size)))
                fail_msg("step %d, column %d of %d: %g apart", step, l, width, (double)apart);
            if (!(fabsf(moved[l] - s.t.moved[l]) <= 1e-2f * (1 + moved[l])))
                fail_msg("step %d, column %d: moved", step, l);
            for (int i = 0; i < D; i++) s.t.h[i * width + l] = s.h[l][i]; /* rounding must not add up */
        }
    }
    free(s.memory);
    free(s.pairs);
}

static void as_its_samples(void **state)
{
    (void)state;
    for (int live = 1; live <= LANES; live++) check_width(tn_relax_width(live), live);
}

void tn_tests_relax_anderson(tn_test_list *l)
{
    tn_test_add(l, as_its_samples, NULL, "relax: Anderson of a tile is that of its samples");
}
