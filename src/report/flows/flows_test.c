/* Pictures of flows: what they show is what the arrays hold, and nothing is too small, empty or broken to be drawn. */
#include "report/flows/flows.h"

#include "golden_svg.h"
#include "report/flows/flows_cells.h"
#include "testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Flows whose paths are known: those of cell c go (dx, dy) cells and to the side of c's parity, a part of the way each step. */
typedef struct world {
    tn_flows f;
    float *paths, *e, *u, *v, *input, *output, *target;
    int32_t *plane, *age, *landed, *label;
} world;

typedef struct shape {
    int64_t width, height, steps, energy, samples, planes;
    int dx, dy;
    bool spawn, no_target, no_landings, one_cell;
} shape;

#define MADE(type, n) ((type *)calloc((size_t)(n), sizeof(type)))

static float ink(int64_t b, int64_t x, int64_t y, int64_t W, int64_t H)
{
    const double r = hypot(2.0 * (double)x / (double)(W - 1) - 1, 2.0 * (double)y / (double)(H - 1) - 1);
    return (float)(fabs(r - 0.6 - 0.15 * (double)b) < 0.25 ? 1 - r / 2 : 0);
}

static double clamped(double x) { return fmax(-1, fmin(1, x)); }

/* Leaves by itself at step 1 + c % T, except for every 7th, which is projected at the end. */
static void fill_flow(world *w, const shape *s, int64_t b, int64_t i)
{
    const tn_flows *f = &w->f;
    const int64_t S = s->width * s->height, cell = i < S ? i : (i * 5) % S, at = b * f->slots + i;
    const int64_t x = cell % s->width, y = cell / s->width, born = i < S ? 0 : 1,
                  last = i % 7 == 0 ? s->steps : 1 + i % s->steps;
    const double u = 2.0 * (double)x / (double)(s->width - 1) - 1, v = 2.0 * (double)y / (double)(s->height - 1) - 1;
    const double to_u = s->one_cell ? 1 : clamped(u + 2.0 * s->dx / (double)(s->width - 1)),
                 to_v = s->one_cell ? 1 : clamped(v + 2.0 * s->dy / (double)(s->height - 1)), side = i % 2 ? 1 : -1;
    const int64_t P = 3 + s->energy;
    for (int64_t t = 0; t <= s->steps; t++)
        for (int64_t k = 0; k < P; k++) w->paths[((t * s->samples + b) * f->slots + i) * P + k] = NAN;
    if (last <= born) return; /* never used */
    for (int64_t t = born; t <= last; t++) {
        const double part = (double)(t - born) / (double)(last - born);
        float *p = &w->paths[((t * s->samples + b) * f->slots + i) * P];
        p[0] = (float)(u + part * (to_u - u)), p[1] = (float)(v + part * (to_v - v)),
        p[2] = (float)(side * part * (i % 7 ? 1 : 0.6)); /* projected ones end on the way */
        for (int64_t k = 0; k < s->energy; k++)
            p[3 + k] = (float)((1 - 0.1 * part) * ink(b, x, y, s->width, s->height) - 0.2 * part * (i % 5 == 0));
    }
    if (s->no_landings) return;
    memcpy(&w->e[at * s->energy], &w->paths[((last * s->samples + b) * f->slots + i) * P + 3],
           sizeof(float) * (size_t)s->energy);
    w->u[at] = (float)to_u, w->v[at] = (float)to_v, w->plane[at] = i % 2, w->age[at] = (int32_t)(last - born),
    w->landed[at] = i % 7 == 0 ? 2 : 1;
}

static world made(shape s)
{
    world w = { 0 };
    const int64_t S = s.width * s.height, N = s.spawn ? S + S / 4 : S, B = s.samples;
    w.f = (tn_flows){ .run = "runs/a & b",
                      .split = "test",
                      .width = s.width,
                      .height = s.height,
                      .depth = 10,
                      .samples = B,
                      .steps = s.steps,
                      .slots = N,
                      .energy = s.energy,
                      .planes = s.planes,
                      .answers = s.energy == 1,
                      .target_planes = s.planes };
    w.f.paths = w.paths = MADE(float, (s.steps + 1) * B * N * (3 + s.energy));
    w.f.e = w.e = MADE(float, B *N *s.energy);
    w.f.u = w.u = MADE(float, B *N), w.f.v = w.v = MADE(float, B *N);
    w.f.plane = w.plane = MADE(int32_t, B * N), w.f.age = w.age = MADE(int32_t, B * N);
    w.f.landed = w.landed = MADE(int32_t, B * N);
    w.f.input = w.input = MADE(float, B *S);
    w.f.output = w.output = MADE(float, B *s.planes *S);
    w.f.label = w.label = MADE(int32_t, B);
    w.target = MADE(float, B *s.planes *S);
    w.f.target = s.no_target ? NULL : w.target;
    for (int64_t b = 0; b < B; b++) {
        w.label[b] = (int32_t)(b % 3 == 2 ? -1 : 7 - b);
        for (int64_t i = 0; i < S; i++) w.input[b * S + i] = ink(b, i % s.width, i / s.width, s.width, s.height);
        for (int64_t i = 0; i < s.planes * S; i++) {
            w.target[b * s.planes * S + i] = w.input[b * S + i % S];
            w.output[b * s.planes * S + i] = w.input[b * S + i % S] + 0.1f;
        }
        for (int64_t i = 0; i < N; i++) fill_flow(&w, &s, b, i);
    }
    return w;
}

static void freed(world *w)
{
    free(w->paths), free(w->e), free(w->u), free(w->v), free(w->plane), free(w->age), free(w->landed), free(w->input);
    free(w->output), free(w->label), free(w->target);
}

static char *written(tn_status (*write)(const tn_flows *f, FILE *out), const tn_flows *f)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    assert_ok(write(f, out));
    assert_int_equal(fclose(out), 0);
    return text;
}

static size_t count_of(const char *text, const char *part)
{
    size_t n = 0;
    for (const char *s = text; (s = strstr(s, part)); s += strlen(part)) n++;
    return n;
}

static const shape usual = {
    .width = 9, .height = 7, .steps = 5, .energy = 1, .samples = 3, .planes = 1, .dx = 1, .dy = -1
};

/* --- figures ---------------------------------------------------------------------------------------------------------------- */

static void figures(void **state)
{
    (void)state;
    world w = made(usual);
    tn_flows_figures m;
    assert_ok(tn_flows_measure(&w.f, 0, 3, &m));
    assert_int_equal(m.flows, 3 * 63);
    assert_int_equal(m.projected, 3 * 9);
    assert_int_equal(m.exited, 3 * 54);
    assert_float_equal(m.psnr, 20, 1e-4); /* 0.1 off everywhere */
    double age = 0;
    for (int i = 0; i < 63; i++) age += i % 7 == 0 ? 5 : 1 + i % 5;
    assert_float_equal(m.age, age / 63, 1e-12);
    assert_float_equal(m.hit, 8 * 6, 0); /* a column and a row are left, and the flows of the rim share cells */
    assert_true(m.entropy > log(40) && m.entropy < log(48) && m.most == log(63));
    freed(&w);
    shape s = usual;
    s.one_cell = true, s.samples = 1;
    w = made(s);
    assert_ok(tn_flows_measure(&w.f, 0, 1, &m));
    assert_float_equal(m.hit, 1, 0);
    assert_float_equal(m.entropy, 0, 0);
    assert_float_equal(m.upper, 31.0 / 63, 1e-12);
    freed(&w);
    s = usual;
    s.no_landings = s.no_target = true;
    w = made(s);
    assert_ok(tn_flows_measure(&w.f, 0, 3, &m));
    assert_true(m.flows == 0 && isnan(m.age) && isnan(m.psnr) && m.hit == 0 && m.entropy == 0);
    freed(&w);
}

/* Half evenly, half by ink: no slot twice, none that was never used, and far more ink than by chance. */
static void choice(void **state)
{
    (void)state;
    shape s = usual;
    s.width = s.height = 28, s.samples = 1;
    world w = made(s);
    int64_t slots[100], n = tn__flows_choose(&w.f, 0, 100, slots);
    double ink_chosen = 0, ink_all = 0;
    assert_true(n > 80 && n <= 100);
    for (int64_t i = 0; i < n; i++) {
        assert_true(slots[i] >= 0 && slots[i] < 784 && (i == 0 || slots[i] > slots[i - 1]));
        ink_chosen += w.input[slots[i]] / (double)n;
    }
    for (int i = 0; i < 784; i++) ink_all += w.input[i] / 784.0;
    assert_true(ink_chosen > 1.3 * ink_all);
    memset(w.input, 0, 784 * sizeof(float)); /* none: evenly */
    n = tn__flows_choose(&w.f, 0, 100, slots);
    assert_int_equal(n, 100);
    for (int64_t i = 1; i < n; i++) assert_true(slots[i] - slots[i - 1] >= 7 && slots[i] - slots[i - 1] <= 8);
    freed(&w);
    w = made(usual); /* fewer than asked for: all */
    assert_int_equal(tn__flows_choose(&w.f, 0, 100, slots), 63);
    freed(&w);
}

/* --- CSV -------------------------------------------------------------------------------------------------------------------- */

static void trajectories(void **state)
{
    (void)state;
    shape s = { .width = 3, .height = 2, .steps = 2, .energy = 1, .samples = 1, .planes = 1, .dx = 1 };
    world w = made(s);
    w.paths[((1 * 1 + 0) * 6 + 3) * 4 + 3] = NAN; /* an energy that is none */
    char *t = written(tn_flows_csv, &w.f);
    assert_string_equal(t, "sample,slot,step,x,y,z,energy,status\n"
                           "0,0,0,0,0,5,0,active\n"
                           "0,0,1,0.5,0,3.5,-0.1,active\n"
                           "0,0,2,1,0,2,-0.2,projected\n"
                           "0,1,0,1,0,5,0,active\n"
                           "0,1,1,1.5,0,7.5,0,active\n"
                           "0,1,2,2,0,10,0,exited\n"
                           "0,2,0,2,0,5,0,active\n"
                           "0,2,1,2,0,0,0,exited\n"
                           "0,3,0,0,1,5,0,active\n"
                           "0,3,1,0.5,1,7.5,,active\n"
                           "0,3,2,1,1,10,0,exited\n"
                           "0,4,0,1,1,5,0,active\n"
                           "0,4,1,2,1,0,0,exited\n"
                           "0,5,0,2,1,5,0,active\n"
                           "0,5,1,2,1,7.5,-0.1,active\n"
                           "0,5,2,2,1,10,-0.2,exited\n");
    free(t);
    freed(&w);
    s.energy = 3, s.samples = 2;
    w = made(s);
    w.f.depth = 0;
    t = written(tn_flows_csv, &w.f);
    assert_true(strstr(t, "z,energy0,energy1,energy2,status\n0,0,0,0,0,0,0,0,0,active\n") == t + 21);
    assert_non_null(strstr(t, "\n1,5,2,2,1,1,-0.2,-0.2,-0.2,exited\n"));
    free(t);
    freed(&w);
}

/* --- SVG -------------------------------------------------------------------------------------------------------------------- */

static void still(void **state)
{
    (void)state;
    world w = made(usual);
    char *t = written(tn_flows_svg, &w.f);
    assert_golden_svg("flows", t);
    assert_non_null(strstr(t, "runs/a &amp; b"));
    assert_non_null(strstr(t, "189 flows: 162 exited, 27 projected"));
    assert_int_equal(count_of(t, "stroke-dasharray"), 1);
    assert_true(!strstr(t, "nan") && !strstr(t, "inf"));
    free(t);
    freed(&w);
}

/* --- the page --------------------------------------------------------------------------------------------------------------- */

/* Every tag that is opened is closed, in order; scripts and styles are skipped. */
static void assert_tags_match(const char *page)
{
    char open[64][16];
    size_t n = 0;
    for (const char *s = page; (s = strchr(s, '<')); s++) {
        char name[16] = "";
        const bool closes = s[1] == '/';
        const char *word = s + 1 + closes;
        const size_t length = strcspn(word, " >\n");
        assert_true(length < sizeof name);
        memcpy(name, word, length), name[length] = 0;
        if (!strcmp(name, "!doctype") || !strcmp(name, "meta") || !strcmp(name, "input")) continue;
        if (closes) {
            assert_true(n > 0);
            assert_string_equal(open[--n], name);
            continue;
        }
        assert_true(n < 64);
        memcpy(open[n++], name, sizeof name);
        if (!strcmp(name, "script")) assert_non_null(s = strstr(s, "</script>")), s--;
        else if (!strcmp(name, "style")) assert_non_null(s = strstr(s, "</style>")), s--;
    }
    assert_int_equal(n, 0);
}

/* The bytes of the base64 string behind `key`, from `*at` on. */
static unsigned char *bytes_behind(const char **at, const char *key, size_t *n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *s = strstr(*at, key);
    assert_non_null(s);
    s += strlen(key);
    const size_t length = strcspn(s, "\"");
    unsigned char *out = malloc(length + 1);
    assert_non_null(out);
    uint32_t bits = 0;
    *n = 0;
    assert_int_equal(length % 4, 0);
    for (size_t i = 0; i < length && s[i] != '='; i++) {
        assert_non_null(strchr(digits, s[i]));
        bits = bits << 6 | (uint32_t)(strchr(digits, s[i]) - digits);
        if (i % 4) out[(*n)++] = (unsigned char)(bits >> (6 - 2 * (i % 4)));
    }
    *at = s + length;
    return out;
}

static void assert_byte(unsigned char byte, double value)
{
    if (!isfinite(value)) assert_int_equal(byte, 255);
    else assert_float_equal(byte / 127.0 - 1, fmax(-1, fmin(1, value)), 0.5 / 127 + 1e-6);
}

static void assert_embedded(const tn_flows *f, const char *page)
{
    const double scale = tn__flows_scale(f);
    const int64_t S = f->width * f->height;
    for (int64_t b = 0; b < f->samples; b++) {
        size_t n, k = 0;
        int64_t first, last;
        unsigned char *x = bytes_behind(&page, "\"paths\":\"", &n);
        for (int64_t i = 0; i < f->slots; i++) {
            if (!tn__flow_span(f, b, i, &first, &last)) continue;
            assert_true(k + 8 + 4 * (size_t)(last - first + 1) <= n);
            assert_int_equal(x[k] | x[k + 1] << 8 | x[k + 2] << 16, i);
            assert_int_equal(x[k + 3] | x[k + 4] << 8, first);
            assert_int_equal(x[k + 5] | x[k + 6] << 8, last - first + 1);
            assert_int_equal(x[k + 7], f->landed[b * f->slots + i] + 4 * f->plane[b * f->slots + i]);
            k += 8;
            for (int64_t t = first; t <= last; t++, k += 4) {
                const float *p = tn__flow_at(f, t, b, i);
                for (size_t c = 0; c < 3; c++) assert_byte(x[k + c], p[c]);
                assert_byte(x[k + 3], tn__flow_energy(f, p + 3) / scale);
            }
        }
        assert_int_equal(k, n);
        free(x);
        x = bytes_behind(&page, "\"input\":\"", &n);
        assert_int_equal(n, S);
        for (int64_t i = 0; i < S; i++) assert_byte(x[i], f->input[b * S + i] / scale);
        free(x);
        x = bytes_behind(&page, "\"output\":\"", &n);
        assert_int_equal(n, f->planes * S);
        for (int64_t i = 0; i < f->planes * S; i++) assert_byte(x[i], f->output[b * f->planes * S + i] / scale);
        free(x);
        if (!f->target) continue;
        x = bytes_behind(&page, "\"target\":\"", &n);
        assert_int_equal(n, f->target_planes * S);
        for (int64_t i = 0; i < f->target_planes * S; i++)
            assert_byte(x[i], f->target[b * f->target_planes * S + i] / scale);
        free(x);
    }
}

static void page(void **state)
{
    (void)state;
    world w = made(usual);
    w.f.run = "a</script><b>\"\\ & c";
    char *t = written(tn_flows_page, &w.f);
    assert_tags_match(t);
    assert_embedded(&w.f, t);
    assert_int_equal(count_of(t, "</script>"), 2);
    assert_non_null(strstr(t, "<h1>Flows of a&lt;/script&gt;&lt;b&gt;&quot;\\ &amp; c, test split</h1>"));
    assert_non_null(strstr(t, "\"run\":\"a\\u003c/script\\u003e\\u003cb\\u003e\\u0022\\u005c \\u0026 c\""));
    assert_true(!strstr(t, "http") && !strstr(t, "src=") && !strstr(t, "@import") && !strstr(t, "url("));
    free(t);
    freed(&w);
}

/* More than a page holds: fewer samples, then fewer flows, and the page says so. */
static void large_page(void **state)
{
    (void)state;
    shape s = { 100, 100, 40, 1, 3, 1, 1, 0, .spawn = true };
    world w = made(s);
    char *t = written(tn_flows_page, &w.f);
    assert_true(strlen(t) < 3000000 && count_of(t, "\"paths\"") == 1);
    assert_non_null(strstr(t, "The first 1 of 3 samples are played."));
    free(t);
    freed(&w);
    s.samples = 1, s.steps = 120;
    w = made(s);
    t = written(tn_flows_page, &w.f);
    assert_true(strlen(t) < 3000000 && strlen(t) > 1000000);
    assert_non_null(strstr(t, " of 12500 flows are played."));
    free(t);
    freed(&w);
}

static void bins(void **state)
{
    (void)state;
    assert_int_equal(tn__flow_bin(0, 1), TN_FLOW_ZERO);
    assert_int_equal(tn__flow_bin(1, 1), TN_FLOW_BINS - 1);
    assert_int_equal(tn__flow_bin(-7, 1), 0);
    assert_int_equal(tn__flow_bin(1e300, 1e-9), TN_FLOW_BINS - 1);
    assert_int_equal(tn__flow_bin(NAN, 1), -1);
    assert_int_equal(tn__flow_bin(INFINITY, 1), -1);
}

/* Every shape that a model may have, and arrays that training has broken. */
static const shape shapes[] = {
    { 2, 2, 1, 1, 1, 1, 0, 0, .spawn = false },       { 9, 7, 1, 3, 2, 2, 1, 0, .spawn = true },
    { 5, 12, 4, 3, 1, 1, 2, 1, .no_target = true },   { 9, 7, 5, 1, 3, 2, 1, 1, .one_cell = true },
    { 9, 7, 5, 1, 12, 1, 1, 1, .no_landings = true }, { 28, 28, 12, 1, 3, 1, 3, -2, .spawn = true },
    { 60, 40, 6, 1, 2, 2, 3, -2, .spawn = false },
};

static void broken(world *w, int how)
{
    const tn_flows *f = &w->f;
    const int64_t S = f->width * f->height, paths = (f->steps + 1) * f->samples * f->slots * (3 + f->energy);
    if (how == 1)
        for (int64_t i = 0; i < paths; i++) w->paths[i] = NAN;
    if (how == 2) {
        for (int64_t i = 0; i < paths; i += 3) w->paths[i] = i % 2 ? INFINITY : -1e30f;
        for (int64_t i = 0; i < f->samples * f->slots; i += 2) w->u[i] = NAN, w->e[i * f->energy] = INFINITY;
        for (int64_t i = 0; i < f->samples * S; i += 2) w->input[i] = NAN, w->output[i] = -INFINITY;
    }
}

static void full_disk(void **state)
{
    (void)state;
    tn_status (*const writers[])(const tn_flows *f, FILE *out) = { tn_flows_svg, tn_flows_page, tn_flows_csv };
    world w = made(usual);
    for (size_t i = 0; i < 3; i++) {
        FILE *full = fopen("/dev/full", "w");
        if (!full) break;
        setvbuf(full, NULL, _IONBF, 0);
        assert_fails(writers[i](&w.f, full), TN_DISK, "could not be written");
        fclose(full);
    }
    freed(&w);
}

static void nothing_crashes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int how = 0; how < 3; how++) {
            world w = made(shapes[i]);
            broken(&w, how);
            char *svg = written(tn_flows_svg, &w.f), *csv = written(tn_flows_csv, &w.f);
            assert_true(strlen(svg) < 1000000 && count_of(svg, "</svg>") == 1);
            assert_true(!strstr(svg, "nan") && !strstr(svg, "inf") && !strstr(csv, "nan") && !strstr(csv, "inf"));
            assert_int_equal(count_of(svg, "<g"), count_of(svg, "</g>"));
            free(svg), free(csv);
            char *html = written(tn_flows_page, &w.f);
            assert_tags_match(html);
            assert_embedded(&w.f, html);
            free(html);
            freed(&w);
        }
}

void tn_tests_flows(tn_test_list *l)
{
    tn_test_add(l, figures, NULL, "flows: figures");
    tn_test_add(l, choice, NULL, "flows: which are drawn");
    tn_test_add(l, trajectories, NULL, "flows: trajectories as CSV");
    tn_test_add(l, still, NULL, "flows: the still picture");
    tn_test_add(l, page, NULL, "flows: the page holds the arrays");
    tn_test_add(l, large_page, NULL, "flows: a page stays below 3 MB");
    tn_test_add(l, bins, NULL, "flows: colours");
    tn_test_add(l, full_disk, NULL, "flows: a full disk");
    tn_test_add(l, nothing_crashes, NULL, "flows: all shapes, and broken arrays");
}
