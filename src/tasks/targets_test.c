/* Images with target surfaces, and images drawn without files: moves cell by cell against their definition, the growth of a shift,
 * damage that repeats, strokes whose class can be read off the pixels, and what is refused. */
#include "task_sets.h"

#include "base/hash.h"

#include <math.h>

enum { SIDE = 28, CELLS = SIDE * SIDE };

static const char small[] = "task.images=strokes task.size=40 ";

static tn_samples *opened(const char *task, const char *more)
{
    char words[300];
    snprintf(words, sizeof words, "%s%s", small, more);
    return tn_task_set(task, words);
}

typedef struct surfaces {
    float x[CELLS], target[CELLS];
    int32_t goal[CELLS];
} surfaces;

static void read_at(const tn_samples *s, int64_t row, int64_t step, double progress, surfaces *to)
{
    s->targets->read(s, row, step, progress, to->x, to->target, to->goal);
}

/* --- route -------------------------------------------------------------------------------------------------------------------- */

typedef struct moved {
    const char *words;
    int xx, xy, yx, yy, x0, y0; /* the cell (x, y) goes to (xx x + xy y + x0, yx x + yy y + y0) */
} moved;

static const moved moves[] = {
    { "task.dx=1", 1, 0, 0, 1, 1, 0 },
    { "task.dx=3 task.dy=-2", 1, 0, 0, 1, 3, -2 },
    { "task.dx=-27 task.dy=27", 1, 0, 0, 1, -27, 27 },
    { "task.dx=0", 1, 0, 0, 1, 0, 0 },
    { "task.move=mirror", -1, 0, 0, 1, SIDE - 1, 0 },
    { "task.move=transpose", 0, 1, 1, 0, 0, 0 },
};

/* Every cell's number lies in its goal and nowhere else, to the bit; what comes from outside is background. */
static void moves_exactly(void **state)
{
    const moved *m = *state;
    static surfaces v;
    float wanted[CELLS], image[CELLS];
    tn_samples *s = opened("route", m->words);
    assert_true(s->targets && s->targets->has_goals && s->width == SIDE && s->height == SIDE);
    for (int64_t row = 0; row < s->n; row++) {
        memset(wanted, 0, sizeof wanted);
        tn_samples_read(s, row, image);
        read_at(s, row, -1, 1, &v);
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++) {
                const int tx = m->xx * x + m->xy * y + m->x0, ty = m->yx * x + m->yy * y + m->y0;
                const bool inside = tx >= 0 && ty >= 0 && tx < SIDE && ty < SIDE;
                assert_int_equal(v.goal[y * SIDE + x], inside ? ty * SIDE + tx : -1);
                if (inside) wanted[ty * SIDE + tx] = image[y * SIDE + x];
            }
        assert_memory_equal(v.x, image, sizeof image);
        assert_memory_equal(v.target, wanted, sizeof wanted);
    }
    tn_samples_free(s);
}

/* A quarter of (2, -4) is half a column to the right and one row up. */
static void grows(void **state)
{
    (void)state;
    static surfaces v;
    tn_samples *s = opened("route", "task.dx=2 task.dy=-4 task.grow=0.5"),
               *mirror = opened("route", "task.move=mirror");
    const tn_targets *t = s->targets;
    assert_true(tn_targets_progress(t, 0, 200) == 0 && tn_targets_progress(t, 25, 200) == 0.25 &&
                tn_targets_progress(t, 99, 200) == 0.99 && tn_targets_progress(t, 100, 200) == 1 &&
                tn_targets_progress(t, 199, 200) == 1 && tn_targets_progress(t, -1, 200) == 1);
    assert_true(tn_targets_progress(mirror->targets, 0, 200) == 1); /* whole from the start */
    for (int64_t row = 0; row < 8; row++) {
        read_at(s, row, 0, 0, &v);
        assert_memory_equal(v.x, v.target, sizeof v.x);
        for (int i = 0; i < CELLS; i++) assert_int_equal(v.goal[i], i);
        read_at(s, row, 25, 0.25, &v);
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++) {
                const float *below = v.x + (y + 1) * SIDE + x;
                const float a = y + 1 < SIDE ? below[0] : 0, b = y + 1 < SIDE && x > 0 ? below[-1] : 0;
                assert_true(v.target[y * SIDE + x] == 0.5f * a + 0.5f * b);
                assert_int_equal(v.goal[y * SIDE + x], y > 0 && x + 1 < SIDE ? (y - 1) * SIDE + x + 1 : -1);
            }
    }
    tn_samples_free(s);
    tn_samples_free(mirror);
}

static void moves_mnist(void **state)
{
    const char *images = *state;
    char path[40], words[600];
    static surfaces v;
    snprintf(path, sizeof path, "images/%s", images);
    const char *folder = tn_test_data(path);
    if (!folder) return;
    snprintf(words, sizeof words, "task.images=%s task.data=%s task.dx=3 task.dy=-2", images, folder);
    tn_samples *s = tn_task_set("route", words);
    const int64_t w = s->width, h = s->height;
    assert_true(w == (strcmp(images, "mnist") == 0 ? 28 : 8) && h == w && s->features == w * h);
    for (int64_t i = 0; i < s->count[TN_TEST]; i += 97) {
        read_at(s, s->index[TN_TEST][i], -1, 1, &v);
        for (int64_t c = 0; c < w * h; c++)
            assert_true(v.target[c] == (c % w < 3 || c / w >= h - 2 ? 0 : v.x[c + 2 * w - 3]));
    }
    tn_samples_free(s);
}

/* --- restore ------------------------------------------------------------------------------------------------------------------ */

static void hole(void **state)
{
    (void)state;
    static surfaces v;
    float image[CELLS];
    tn_samples *s = opened("restore", "task.damage=hole");
    assert_false(s->targets->has_goals);
    for (int64_t row = 0; row < s->n; row++) {
        tn_samples_read(s, row, image);
        read_at(s, row, 3, 1, &v);
        assert_memory_equal(v.target, image, sizeof image);
        for (int i = 0; i < CELLS; i++) {
            const int y = i / SIDE, x = i % SIDE;
            assert_true(v.x[i] == (y >= 8 && y < 20 && x >= 8 && x < 20 ? 0 : image[i]));
        }
    }
    tn_samples_free(s);
}

/* Another one in each step and for each image, the same one again; normal with the deviation that was asked for. */
static void noise(void **state)
{
    (void)state;
    static surfaces v, again, other;
    static const int64_t steps[] = { -1, 0, 1, 1000000 };
    double sum = 0, squares = 0, n = 0;
    tn_samples *s = opened("restore", "task.noise=0.3"), *seed = opened("restore", "task.noise=0.3 task.split_seed=1");
    float before[CELLS] = { 0 };
    for (int64_t row = 0; row < s->n; row++)
        for (size_t k = 0; k < 4; k++) {
            float added[CELLS];
            read_at(s, row, steps[k], 1, &v);
            read_at(s, row, steps[k], 0, &again);
            assert_memory_equal(&v, &again, sizeof v.x + sizeof v.target);
            for (int i = 0; i < CELLS; i++) {
                added[i] = v.x[i] - v.target[i];
                sum += (double)added[i];
                squares += (double)added[i] * (double)added[i];
                n++;
            }
            assert_true(fabsf(added[0] - before[0]) > 1e-6f || fabsf(added[1] - before[1]) > 1e-6f);
            memcpy(before, added, sizeof before);
        }
    assert_true(fabs(sum / n) < 6 * 0.3 / sqrt(n) && fabs(squares / n - 0.09) < 6 * 0.09 * sqrt(2 / n));
    read_at(s, 0, -1, 1, &v);
    read_at(seed, 0, -1, 1, &other);
    assert_true(memcmp(v.x, other.x, sizeof v.x) != 0);
    tn_samples_free(s);
    tn_samples_free(seed);
}

/* --- strokes ------------------------------------------------------------------------------------------------------------------ */

enum { GRID = 8 };

/* Where the figure is dark, its box stretched to GRID x GRID: neither place nor size is left. */
static void boxed(const tn_samples *s, int64_t row, float grid[GRID * GRID])
{
    const uint8_t *p = s->x_u8 + row * CELLS;
    int low[2] = { SIDE, SIDE }, high[2] = { -1, -1 };
    for (int i = 0; i < CELLS; i++)
        if (p[i] > 100)
            for (int k = 0; k < 2; k++) {
                const int at = k ? i / SIDE : i % SIDE;
                low[k] = at < low[k] ? at : low[k];
                high[k] = at > high[k] ? at : high[k];
            }
    const int wide = high[0] - low[0], tall = high[1] - low[1], side = (wide > tall ? wide : tall) + 1;
    assert_true(high[0] >= low[0] && side >= 6);
    memset(grid, 0, sizeof(float) * GRID * GRID);
    for (int i = 0; i < CELLS; i++) {
        const int x = (2 * (i % SIDE) - low[0] - high[0] + side) * GRID / (2 * side),
                  y = (2 * (i / SIDE) - low[1] - high[1] + side) * GRID / (2 * side);
        if (p[i] && x >= 0 && y >= 0 && x < GRID && y < GRID) grid[y * GRID + x] += (float)p[i] / (float)(side * side);
    }
}

/* The nearest training image has the same class; ten of them, about equally frequent. */
static void strokes(void **state)
{
    (void)state;
    enum { TRAIN = 2000, TEST = 400 };
    static float grid[TRAIN + 2 * TEST][GRID * GRID];
    char hash[TN_HASH_BYTES];
    int64_t right = 0;
    tn_samples *s = tn_task_set("strokes", "task.size=2000");
    assert_true(s->count[TN_TRAIN] == TRAIN && s->count[TN_TEST] == TEST && s->classes == 10 && s->width == SIDE);
    tn_task_set_check(s, true);
    for (int c = 0; c < 10; c++) assert_in_range(tn_task_class_count(s, TN_TRAIN, c), 130, 270);
    for (int64_t i = 0; i < s->n; i++) {
        const uint8_t *p = s->x_u8 + i * CELLS;
        for (int k = 0; k < SIDE; k++) /* nothing is cut off */
            assert_true(!p[k] && !p[CELLS - 1 - k] && !p[k * SIDE] && !p[k * SIDE + SIDE - 1]);
        boxed(s, i, grid[i]);
    }
    for (int64_t i = TRAIN + TEST; i < s->n; i++) {
        double best = INFINITY;
        int32_t label = -1;
        for (int64_t k = 0; k < TRAIN; k++) {
            double d = 0;
            for (int c = 0; c < GRID * GRID; c++) d += (double)((grid[i][c] - grid[k][c]) * (grid[i][c] - grid[k][c]));
            if (d < best) best = d, label = s->y[k];
        }
        right += label == s->y[i];
    }
    if (right < TEST * 97 / 100) fail_msg("%lld of %d", (long long)right, TEST);
    tn_hash_memory(s->x_u8, (size_t)(s->n * CELLS), hash);
    assert_string_equal(hash, "076410638b99163942c2b97ff0d91516");
    tn_samples *fewer = tn_task_set("strokes", "task.size=100"),
               *other = tn_task_set("strokes", "task.size=100 task.split_seed=1");
    assert_memory_equal(fewer->x_u8, s->x_u8, 100 * CELLS);
    assert_true(memcmp(other->x_u8, s->x_u8, 100 * CELLS) != 0);
    tn_samples_free(s);
    tn_samples_free(fewer);
    tn_samples_free(other);
    s = tn_task_set("strokes", "");
    assert_true(s->count[TN_TRAIN] == 12000 && s->count[TN_VALID] == 2400 && s->count[TN_TEST] == 2400);
    tn_samples_free(s);
}

/* --- refused ------------------------------------------------------------------------------------------------------------------ */

/* A pixel is the mean of a square; moves are then by the larger pixels. */
static void pooled(void **state)
{
    enum { HALF = SIDE / 2 };
    static surfaces v;
    float image[CELLS], half[HALF * HALF];
    tn_samples *whole = opened("route", ""), *s = opened("route", "task.pool=2 task.dx=13");
    (void)state;
    assert_true(s->width == HALF && s->height == HALF && s->features == HALF * HALF && s->n == whole->n);
    for (int64_t row = 0; row < s->n; row++) {
        tn_samples_read(whole, row, image);
        tn_samples_read(s, row, half);
        for (int y = 0; y < HALF; y++)
            for (int x = 0; x < HALF; x++) {
                const float *at = &image[2 * y * SIDE + 2 * x], mean = (at[0] + at[1] + at[SIDE] + at[SIDE + 1]) / 4;
                assert_true(fabsf(half[y * HALF + x] - mean) <= 0.5f / 255 + 1e-6f);
            }
        read_at(s, row, -1, 1, &v);
        for (int y = 0; y < HALF; y++) assert_true(v.target[y * HALF + 13] == half[y * HALF]);
    }
    tn_samples_free(whole);
    tn_samples_free(s);
}

static void refused(void **state)
{
    (void)state;
    static const struct {
        const char *task, *words, *says;
    } rows[] = {
        { "route", "", "task.images=mnist needs its files: give task.data=FOLDER" },
        { "route", "", "; task.images=strokes needs none" },
        { "restore", "task.images=digits", "task.images=digits needs its files" },
        { "route", "task.images=strokes task.size=5 task.dx=28",
          "task.dx=28 moves all of an image with 28 columns outside: use -27 to 27" },
        { "route", "task.images=strokes task.size=5 task.dy=-100", "task.dy=-100 moves all of an image with 28 rows" },
        { "restore", "task.images=strokes task.size=5 task.damage=hole task.hole=28",
          "task.hole=28 leaves nothing of an image with 28 x 28 cells: use 1 to 27" },
        { "route", "task.images=strokes task.size=5 task.pool=2 task.dx=14", "with 14 columns outside" },
        { "route", "task.images=strokes task.size=5 task.pool=3", "task.pool=3 does not divide samples of 28 x 28" },
        { "restore", "task.images=strokes task.size=5", "task.noise=64 is the standard deviation of noise" },
    };
    tn_samples *set = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_fails(tn_task_try(rows[i].task, rows[i].words, &set), TN_USAGE, rows[i].says);
    assert_fails(tn_task_try("route", "task.data=/no/such/folder", &set), TN_BAD_FILE, "/no/such/folder");
    assert_null(set);
}

void tn_tests_targets(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++)
        tn_test_add(l, moves_exactly, &moves[i], "tasks: route, %s", moves[i].words);
    tn_test_add(l, grows, NULL, "tasks: route, a shift that grows");
    tn_test_add(l, moves_mnist, "mnist", "tasks: route, mnist");
    tn_test_add(l, moves_mnist, "digits", "tasks: route, digits");
    tn_test_add(l, hole, NULL, "tasks: restore, a hole");
    tn_test_add(l, noise, NULL, "tasks: restore, noise");
    tn_test_add(l, strokes, NULL, "tasks: strokes");
    tn_test_add(l, pooled, NULL, "tasks: pooled images");
    tn_test_add(l, refused, NULL, "tasks: targets, what is refused");
}
