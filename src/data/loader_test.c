/* The loader's promises: the stream of batches is a function of data, seed and cursor; resumes exactly; covers an evaluation
 * once; marks documents; allocates nothing while it runs; hands on a worker's error. */
#include "data/loader.h"

#include "base/rng.h"
#include "data/loader_parts.h"
#include "dataset_files.h"

#include <stdlib.h>

typedef struct world {
    tn_tempdir dir;
    tn_dataset *data;
} world;

static void setup(world *w, int documents, const char *settings)
{
    char out[1024];
    tn_tempdir_make(&w->dir);
    const char *in = tn_tempdir_file(&w->dir, "d.jsonl");
    tn_put_documents(in, documents);
    snprintf(out, sizeof out, "%s", tn_tempdir_file(&w->dir, "out"));
    assert_ok(tn_prepare_try(in, out, settings, NULL));
    assert_ok(tn_dataset_open(out, NULL, &w->data));
}

static void teardown(world *w)
{
    tn_dataset_close(w->data);
    tn_tempdir_clear(&w->dir);
}

static tn_loader_options options(const world *w, tn_loader_mode mode, int workers)
{
    return (tn_loader_options){ .dataset = w->data,
                                .split = TN_TRAIN,
                                .batch = 3,
                                .length = 40,
                                .mode = mode,
                                .seed = 7,
                                .workers = workers,
                                .window_batches = 4 };
}

/* One number for all that a batch holds. */
static uint64_t digest(const tn_loader_batch *b)
{
    uint64_t h = 1469598103934665603u ^ (uint64_t)b->width;
    for (int64_t i = 0; i < b->rows * b->width; i++)
        h = (h ^ (uint64_t)(uint32_t)b->tokens[i] ^ (uint64_t)(uint32_t)b->targets[i] << 20 ^
             (uint64_t)b->reset[i] << 50) *
            1099511628211u;
    return h;
}

enum { STEPS = 60 };

static void stream_of(const tn_loader_options *o, uint64_t *out, tn_loader_cursor *cursors)
{
    tn_loader *l = NULL;
    const tn_loader_batch *b = NULL;
    assert_ok(tn_loader_open(o, &l));
    for (int i = 0; i < STEPS; i++) {
        if (cursors) cursors[i] = tn_loader_position(l);
        if (i % 7 == 0) tn_loader_rest(l); /* which changes nothing */
        assert_true(tn_loader_next(l, &b) == TN_OK && b);
        assert_int_equal(b->step, i);
        out[i] = digest(b);
    }
    tn_loader_free(l);
}

/* Where a row begins can be read in the data set itself. */
static void rows_are_found(void **state)
{
    const tn_loader_mode mode = (tn_loader_mode)(intptr_t)*state;
    world w;
    tn_loader *l = NULL;
    const tn_loader_batch *b = NULL;
    uint64_t document, offset, start, tokens, inside = 0;
    int32_t id[2];
    setup(&w, 25, "shard_tokens=3000 valid_frac=0");
    const tn_loader_options o = options(&w, mode, 1);
    assert_ok(tn_loader_open(&o, &l));
    assert_fails(tn_loader_row(l, 0, &document, &offset), TN_USAGE, "row 0");
    for (int i = 0; i < STEPS; i++) {
        assert_ok(tn_loader_next(l, &b));
        for (int64_t r = 0; r < b->rows && b->targets[r * b->width] >= 0; r++) {
            assert_ok(tn_loader_row(l, r, &document, &offset));
            assert_ok(tn_dataset_document(w.data, TN_TRAIN, document, &start, &tokens));
            assert_true(offset < tokens);
            assert_ok(tn_dataset_read(w.data, TN_TRAIN, start + offset, offset + 1 < tokens ? 2 : 1, id));
            assert_int_equal(b->tokens[r * b->width], id[0]);
            if (offset + 1 < tokens) assert_int_equal(b->targets[r * b->width], id[1]);
            inside += offset > 0;
        }
    }
    assert_true(inside > 0);
    assert_fails(tn_loader_row(l, o.batch, &document, &offset), TN_USAGE, "row 3");
    tn_loader_free(l);
    teardown(&w);
}

static void same_with_any_workers(void **state)
{
    const tn_loader_mode mode = (tn_loader_mode)(intptr_t)*state;
    world w;
    uint64_t a[STEPS], b[STEPS];
    setup(&w, 25, "shard_tokens=3000 valid_frac=0");
    tn_loader_options o = options(&w, mode, 0);
    stream_of(&o, a, NULL);
    for (int workers = 1; workers <= 4; workers *= 2)
        for (int depth = 2; depth <= 5; depth += 3) {
            o.workers = workers;
            o.depth = depth;
            stream_of(&o, b, NULL);
            assert_memory_equal(a, b, sizeof a);
        }
    o.seed = 8;
    stream_of(&o, b, NULL);
    assert_memory_not_equal(a, b, sizeof a);
    teardown(&w);
}

static void resumes_at_every_batch(void **state)
{
    const tn_loader_mode mode = (tn_loader_mode)(intptr_t)*state;
    world w;
    uint64_t all[STEPS];
    tn_loader_cursor at[STEPS];
    setup(&w, 25, "shard_tokens=3000 valid_frac=0");
    tn_loader_options o = options(&w, mode, 2);
    stream_of(&o, all, at);
    if (mode != TN_LOADER_WINDOW) assert_true(at[STEPS - 1].epoch >= 1); /* the end of an epoch is inside */
    for (int i = 0; i < STEPS; i++) {
        tn_loader *l = NULL;
        const tn_loader_batch *b;
        o.from = &at[i];
        o.workers = i % 3;
        assert_ok(tn_loader_open(&o, &l));
        for (int k = i; k < STEPS && k < i + 3; k++) {
            assert_ok(tn_loader_next(l, &b));
            assert_true(digest(b) == all[k]);
            assert_int_equal(b->step, k);
        }
        tn_loader_free(l);
    }
    teardown(&w);
}

static void refuses_foreign_cursors(void **state)
{
    (void)state;
    world w;
    tn_loader *l = NULL;
    setup(&w, 20, "valid_frac=0");
    tn_loader_options o = options(&w, TN_LOADER_PACK, 0);
    assert_ok(tn_loader_open(&o, &l));
    tn_loader_cursor c = tn_loader_position(l);
    tn_loader_free(l);
    o.from = &c;
    o.seed++;
    assert_fails(tn_loader_open(&o, &l), TN_USAGE, "another seed");
    o.seed--;
    c.index = 1000000;
    assert_fails(tn_loader_open(&o, &l), TN_BAD_FILE, "beyond the data");
    c.index = 0;
    c.offset = UINT64_MAX;
    assert_fails(tn_loader_open(&o, &l), TN_BAD_FILE, "beyond the data");
    teardown(&w);
}

static void epochs_differ(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 70; n += n < 10 ? 1 : 13) {
        int moved = 0;
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            unsigned char seen[128] = { 0 };
            const tn_order o = tn_order_of(n, true, 5, epoch), next = tn_order_of(n, true, 5, epoch + 1),
                           plain = tn_order_of(n, false, 5, epoch);
            for (uint64_t i = 0; i < n; i++) {
                const uint64_t x = tn_order_at(&o, i);
                assert_true(x < n && !seen[x]);
                seen[x] = 1;
                moved += x != tn_order_at(&next, i);
                assert_true(tn_order_at(&plain, i) == i);
            }
        }
        if (n > 4) assert_true(moved > (int)n);
    }
}

/* Rebuilds every document of the split from the batches of an evaluation. */
static void evaluation_covers_once(void **state)
{
    const tn_loader_mode mode = (tn_loader_mode)(intptr_t)*state;
    world w;
    tn_loader *l = NULL;
    const tn_loader_batch *b;
    setup(&w, 50, "shard_tokens=3000 valid_frac=0.3");
    for (tn_data_split split = TN_TRAIN; split <= TN_VALID; split++) {
        const tn_dataset_counts n = tn_dataset_count(w.data, split);
        uint64_t targets = 0, pairs[2] = { 0 }, expected[2] = { 0 }, batches = 0;
        tn_loader_options o = options(&w, mode, 2);
        o.split = split;
        o.evaluate = true;
        assert_ok(tn_loader_open(&o, &l));
        for (;; batches++) {
            assert_ok(tn_loader_next(l, &b));
            if (!b) break;
            int64_t count = 0;
            for (int64_t i = 0; i < b->rows * b->width; i++) {
                if (b->targets[i] < 0) continue;
                count++;
                pairs[0] += (uint64_t)b->tokens[i] * 257 + (uint64_t)b->targets[i];
                pairs[1] += ((uint64_t)b->tokens[i] * 257 + (uint64_t)b->targets[i]) * ((uint64_t)b->tokens[i] + 3);
            }
            assert_int_equal(count, b->count);
            assert_true(count > 0);
            targets += (uint64_t)count;
        }
        assert_ok(tn_loader_next(l, &b));
        assert_null(b); /* it stays at the end */
        tn_loader_free(l);
        assert_true(batches > 1);
        assert_int_equal(targets, n.tokens - n.documents);
        for (uint64_t d = 0; d < n.documents; d++) {
            uint64_t start, tokens;
            int32_t ids[1024];
            assert_ok(tn_dataset_document(w.data, split, d, &start, &tokens));
            assert_ok(tn_dataset_read(w.data, split, start, tokens, ids));
            for (uint64_t i = 0; i + 1 < tokens; i++) {
                expected[0] += (uint64_t)ids[i] * 257 + (uint64_t)ids[i + 1];
                expected[1] += ((uint64_t)ids[i] * 257 + (uint64_t)ids[i + 1]) * ((uint64_t)ids[i] + 3);
            }
        }
        assert_int_equal(pairs[0], expected[0]);
        assert_int_equal(pairs[1], expected[1]);
    }
    teardown(&w);
}

/* Every document here begins "document N:", and 'd' 'o' 'c' occurs nowhere else: each must carry a mark, and nothing else. */
static void documents_are_marked(void **state)
{
    const tn_loader_mode mode = (tn_loader_mode)(intptr_t)*state;
    world w;
    tn_loader *l = NULL;
    const tn_loader_batch *b;
    int starts = 0;
    setup(&w, 50, "shard_tokens=3000 valid_frac=0");
    const tn_loader_options o = options(&w, mode, 1);
    assert_ok(tn_loader_open(&o, &l));
    for (int s = 0; s < STEPS; s++) {
        assert_ok(tn_loader_next(l, &b));
        for (int64_t i = 0; i < b->rows; i++)
            for (int64_t t = 0; t < b->width; t++) {
                const int32_t *x = b->tokens + i * b->width + t, *y = b->targets + i * b->width + t;
                const bool marked = b->reset[i * b->width + t] == 1;
                const bool starts_here = t + 2 < b->width && x[0] == 'd' && x[1] == 'o' && x[2] == 'c';
                if (starts_here) {
                    assert_true(marked);
                    starts++;
                } else if (t + 2 < b->width) assert_true(!marked || t == 0);
                if (t + 1 < b->width && b->reset[i * b->width + t + 1] == 0 && y[1] != -1) assert_int_equal(y[0], x[1]);
            }
    }
    assert_true(starts > 20);
    tn_loader_free(l);
    teardown(&w);
}

/* Over a window the rows are those of the plain order, in another one. */
static void rows_are_shuffled(void **state)
{
    (void)state;
    enum { BATCHES = 8 };
    world w;
    uint64_t row[2][3 * BATCHES] = { { 0 } }, sum[2] = { 0 };
    int moved = 0;
    setup(&w, 50, "valid_frac=0");
    for (int k = 0; k < 2; k++) {
        tn_loader *l = NULL;
        const tn_loader_batch *b;
        tn_loader_options o = options(&w, TN_LOADER_PACK, 1);
        o.window_batches = k ? BATCHES : 1;
        assert_ok(tn_loader_open(&o, &l));
        for (int i = 0; i < BATCHES; i++) {
            assert_ok(tn_loader_next(l, &b));
            for (int r = 0; r < 3; r++) {
                const tn_loader_batch one = { .rows = 1,
                                              .width = b->width,
                                              .tokens = b->tokens + r * b->width,
                                              .targets = b->targets + r * b->width,
                                              .reset = b->reset + r * b->width };
                row[k][3 * i + r] = digest(&one);
                sum[k] += row[k][3 * i + r];
            }
        }
        tn_loader_free(l);
    }
    for (int i = 0; i < 3 * BATCHES; i++) moved += row[0][i] != row[1][i];
    assert_int_equal(sum[0], sum[1]);
    assert_true(moved > 2 * BATCHES);
    teardown(&w);
}

static double padding(const world *w, int window_batches)
{
    tn_loader *l = NULL;
    const tn_loader_batch *b;
    tn_loader_options o = options(w, TN_LOADER_BUCKET, 1);
    o.batch = 4;
    o.length = 160;
    o.window_batches = window_batches;
    assert_ok(tn_loader_open(&o, &l));
    for (int i = 0; i < 40; i++) assert_ok(tn_loader_next(l, &b));
    const tn_loader_stats s = tn_loader_measure(l);
    assert_int_equal(s.batches, 40);
    tn_loader_free(l);
    return 1 - (double)s.targets / (double)s.positions;
}

static void buckets_save_padding(void **state)
{
    (void)state;
    world w;
    setup(&w, 200, "valid_frac=0");
    const double sorted = padding(&w, 16), random = padding(&w, 1);
    if (!(sorted < 0.6 * random)) fail_msg("padding %.3f sorted, %.3f in random order", sorted, random);
    teardown(&w);
}

static void allocates_nothing(void **state)
{
    const tn_loader_mode mode = (tn_loader_mode)(intptr_t)*state;
    world w;
    tn_loader *l = NULL;
    const tn_loader_batch *b;
    setup(&w, 50, "valid_frac=0");
    const tn_loader_options o = options(&w, mode, 2);
    assert_ok(tn_loader_open(&o, &l));
    const uint64_t before = tn_alloc_count();
    for (int i = 0; i < STEPS; i++) assert_ok(tn_loader_next(l, &b));
    assert_int_equal(tn_alloc_count(), before);
    tn_loader_free(l);
    teardown(&w);
}

/* Stopping in the middle, at once, and with batches nobody took. */
static void stops_promptly(void **state)
{
    (void)state;
    world w;
    tn_loader *l = NULL;
    const tn_loader_batch *b;
    setup(&w, 50, "valid_frac=0");
    for (int i = 0; i < 40; i++) {
        const tn_loader_options o = options(&w, (tn_loader_mode)(i % 3), 1 + i % 4);
        assert_ok(tn_loader_open(&o, &l));
        for (int k = 0; k < i % 4; k++) assert_ok(tn_loader_next(l, &b));
        tn_loader_free(l);
    }
    teardown(&w);
}

/* Random windows over one file: places are a function of seed and step alone, by a formula that old runs rely on. */
static void windows_of_bytes(void **state)
{
    (void)state;
    enum { B = 3, T = 40 };
    tn_tempdir dir;
    tn_dataset *data = NULL;
    tn_loader *l = NULL;
    const tn_loader_batch *b;
    unsigned char text[5000];
    const tn_rng rng = { .seed = 11, .stream = tn_rng_stream("batch") };
    tn_tempdir_make(&dir);
    for (size_t i = 0; i < sizeof text; i++) text[i] = (unsigned char)('a' + i * i % 23);
    const char *path = tn_tempdir_file(&dir, "t.txt");
    tn_put_file(path, text, sizeof text);
    assert_ok(tn_dataset_open(path, &(tn_dataset_options){ .holdout_frac = 0.1, .window = T + 1 }, &data));
    assert_int_equal(tn_dataset_count(data, TN_TRAIN).tokens, 4500);
    assert_int_equal(tn_dataset_count(data, TN_VALID).tokens, 500);
    const tn_loader_options o = {
        .dataset = data, .batch = B, .length = T, .mode = TN_LOADER_WINDOW, .seed = 11, .workers = 1
    };
    assert_ok(tn_loader_open(&o, &l));
    for (uint64_t i = 0; i < 10; i++) {
        assert_ok(tn_loader_next(l, &b));
        for (uint64_t r = 0; r < B; r++) {
            const uint64_t at = tn_rng_below(rng, i * B + r, 4500 - T);
            for (uint64_t t = 0; t < T; t++) {
                assert_int_equal(b->tokens[r * T + t], text[at + t]);
                assert_int_equal(b->targets[r * T + t], text[at + t + 1]);
            }
        }
    }
    tn_loader_free(l);
    tn_dataset_close(data);
    tn_tempdir_clear(&dir);
}

/* A rewound evaluation hands out what it did before. */
static void rewound(void **state)
{
    (void)state;
    tn_tempdir dir;
    tn_dataset *data = NULL;
    tn_loader *l = NULL;
    const tn_loader_batch *b;
    int32_t first[2 * 16];
    int n[2] = { 0, 0 };
    tn_tempdir_make(&dir);
    const char *in = tn_tempdir_file(&dir, "d.jsonl");
    tn_put_documents(in, 9);
    assert_ok(tn_dataset_open(in, NULL, &data));
    assert_ok(tn_loader_open(&(tn_loader_options){ .dataset = data, .batch = 2, .length = 16, .evaluate = true }, &l));
    for (int round = 0; round < 2; round++, tn_loader_rewind(l)) {
        for (;; n[round]++) {
            assert_ok(tn_loader_next(l, &b));
            if (!b) break;
            if (n[round]) continue;
            if (round) assert_memory_equal(b->tokens, first, sizeof first);
            else memcpy(first, b->tokens, sizeof first);
        }
    }
    assert_true(n[0] > 3 && n[0] == n[1]);
    tn_loader_free(l);
    tn_dataset_close(data);
    tn_tempdir_clear(&dir);
}

static void put_csv(const char *path, int rows)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < rows; i++) fprintf(f, "%d,%g,%d\n", i, i * 0.5, i % 3);
    assert_int_equal(fclose(f), 0);
}

static void arrays(void **state)
{
    (void)state;
    tn_tempdir dir;
    tn_dataset *data = NULL;
    char out[1024], seen[100] = { 0 };
    tn_tempdir_make(&dir);
    const char *in = tn_tempdir_file(&dir, "d.csv");
    put_csv(in, 100);
    snprintf(out, sizeof out, "%s", tn_tempdir_file(&dir, "out"));
    assert_ok(tn_prepare_try(in, out, "valid_frac=0 shard_tokens=60", NULL));
    assert_ok(tn_dataset_open(out, NULL, &data));
    assert_int_equal(tn_dataset_about(data)->classes, 3);
    float first[2][100];
    for (int workers = 0; workers <= 2; workers++) {
        tn_loader *l = NULL;
        const tn_loader_batch *b;
        const tn_loader_options o = { .dataset = data, .batch = 8, .seed = 3, .workers = workers };
        assert_ok(tn_loader_open(&o, &l));
        for (int i = 0; i < 13; i++) {
            assert_ok(tn_loader_next(l, &b));
            for (int r = 0; r < 8; r++) {
                const float x = b->features[2 * r];
                assert_true(b->features[2 * r + 1] == x * 0.5f && b->labels[r] == (int)x % 3);
                if (i * 8 + r < 100) {
                    if (workers) assert_true(first[0][i * 8 + r] == x);
                    else first[0][i * 8 + r] = x;
                    seen[(int)x]++;
                }
            }
        }
        tn_loader_free(l);
    }
    for (int i = 0; i < 100; i++) assert_int_equal(seen[i], 3); /* each once in the first epoch */
    tn_dataset_close(data);
    tn_tempdir_clear(&dir);
}

static void array_evaluation(void **state)
{
    (void)state;
    tn_tempdir dir;
    tn_dataset *data = NULL;
    tn_loader *l = NULL;
    const tn_loader_batch *b;
    char out[1024];
    int n = 0;
    tn_tempdir_make(&dir);
    const char *in = tn_tempdir_file(&dir, "d.csv");
    put_csv(in, 30);
    snprintf(out, sizeof out, "%s", tn_tempdir_file(&dir, "out"));
    assert_ok(tn_prepare_try(in, out, "valid_frac=0", NULL));
    assert_ok(tn_dataset_open(out, NULL, &data));
    assert_ok(tn_loader_open(&(tn_loader_options){ .dataset = data, .batch = 8, .evaluate = true, .workers = 1 }, &l));
    for (;;) {
        assert_ok(tn_loader_next(l, &b));
        if (!b) break;
        for (int64_t r = 0; r < b->rows; r++)
            if (b->labels[r] >= 0) assert_true(b->features[2 * r] == (float)n++);
            else assert_true(r >= b->count);
    }
    assert_int_equal(n, 30);
    tn_loader_free(l);
    tn_dataset_close(data);
    tn_tempdir_clear(&dir);
}

/* A token beyond the vocabulary, put into a shard whose header is right: the error comes with its batch, and stays. */
static void hands_on_errors(void **state)
{
    (void)state;
    world w;
    char path[1200];
    tn_loader *l = NULL;
    const tn_loader_batch *b;
    setup(&w, 50, "valid_frac=0");
    tn_dataset_close(w.data);
    snprintf(path, sizeof path, "%s/out/train-00000.bin", w.dir.path);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, TN_SHARD_HEADER_BYTES + 2 * 2000, SEEK_SET), 0);
    assert_int_equal(fwrite("\xff\xff", 1, 2, f), 2);
    assert_int_equal(fclose(f), 0);
    snprintf(path, sizeof path, "%s/out", w.dir.path);
    assert_ok(tn_dataset_open(path, NULL, &w.data));
    assert_fails(tn_dataset_verify(w.data), TN_BAD_FILE, "damaged");
    for (int workers = 0; workers < 3; workers++) {
        tn_loader_options o = options(&w, TN_LOADER_PACK, workers);
        o.evaluate = true;
        assert_ok(tn_loader_open(&o, &l));
        tn_status s;
        int good = 0;
        while ((s = tn_loader_next(l, &b)) == TN_OK && b) good++;
        assert_int_equal(s, TN_BAD_FILE);
        assert_in_range(good, 15, 17);
        assert_fails(tn_loader_next(l, &b), TN_BAD_FILE, "vocabulary has 256");
        tn_loader_free(l);
    }
    teardown(&w);
}

static void refuses_bad_options(void **state)
{
    (void)state;
    world w;
    tn_loader *l = NULL;
    setup(&w, 20, "valid_frac=0");
    tn_loader_options o = options(&w, TN_LOADER_PACK, 0);
    o.split = TN_TEST;
    assert_fails(tn_loader_open(&o, &l), TN_BAD_FILE, "no test split");
    o = options(&w, TN_LOADER_WINDOW, 0);
    o.length = 1 << 30;
    assert_fails(tn_loader_open(&o, &l), TN_BAD_FILE, "too few");
    o.evaluate = true;
    assert_fails(tn_loader_open(&o, &l), TN_USAGE, "pack or bucket");
    o = options(&w, TN_LOADER_PACK, 0);
    o.batch = 0;
    assert_fails(tn_loader_open(&o, &l), TN_USAGE, "rows from 1");
    for (uint64_t n = 1; n < 30; n++) { /* out of memory at any of its allocations */
        o = options(&w, TN_LOADER_BUCKET, 0);
        tn_alloc_fail_at(n);
        const tn_status s = tn_loader_open(&o, &l);
        tn_alloc_fail_at(0);
        if (s == TN_OK) {
            tn_loader_free(l);
            assert_true(n > 5);
            break;
        }
        assert_int_equal(s, TN_MEMORY);
    }
    teardown(&w);
}

void tn_tests_loader(tn_test_list *l)
{
    static const char *const names[] = { "pack", "bucket", "window" };
    for (intptr_t m = 0; m < 3; m++) {
        tn_test_add(l, same_with_any_workers, (const void *)m,
                    "loader: %s gives the same stream with 0, 1, 2, 4 workers", names[m]);
        tn_test_add(l, rows_are_found, (const void *)m, "loader: %s says where its rows begin", names[m]);
        tn_test_add(l, resumes_at_every_batch, (const void *)m, "loader: %s resumes at every batch", names[m]);
        tn_test_add(l, documents_are_marked, (const void *)m, "loader: %s marks the starts of documents", names[m]);
        tn_test_add(l, allocates_nothing, (const void *)m, "loader: %s allocates nothing", names[m]);
        if (m < 2)
            tn_test_add(l, evaluation_covers_once, (const void *)m, "loader: %s covers each target once", names[m]);
    }
    tn_test_add(l, refuses_foreign_cursors, NULL, "loader: cursors of other data are refused");
    tn_test_add(l, epochs_differ, NULL, "loader: orders are permutations and differ by epoch");
    tn_test_add(l, buckets_save_padding, NULL, "loader: buckets waste less padding than random order");
    tn_test_add(l, rows_are_shuffled, NULL, "loader: pack shuffles the rows of a window and loses none");
    tn_test_add(l, stops_promptly, NULL, "loader: stops at any moment");
    tn_test_add(l, windows_of_bytes, NULL, "loader: windows of one file");
    tn_test_add(l, rewound, NULL, "loader: an evaluation starts over");
    tn_test_add(l, arrays, NULL, "loader: arrays, each sample once an epoch");
    tn_test_add(l, array_evaluation, NULL, "loader: arrays in their order for an evaluation");
    tn_test_add(l, hands_on_errors, NULL, "loader: a worker's error reaches the caller");
    tn_test_add(l, refuses_bad_options, NULL, "loader: bad options, no memory");
}
