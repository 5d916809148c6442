/* Batches of texts by length: how much of them is padding, the order they come in, and that a batch gives the loss and gradients that it has
 * in rows of the longest. */
#include "base/alloc.h"
#include "run_pieces.h"
#include "train/source/buckets.h"
#include "train/trainer/trainer_internal.h"
#include "wire_run.h"

#include <math.h>
#include <stdio.h>

enum { B = 4, STEPS = 9 };
#define BOTH "task.questions=1 encoder_sees=both"

/* --- texts with questions ----------------------------------------------------------------------------------------------------------- */

typedef struct lengths {
    int paragraphs, questions;
    int least, most; /* bytes of a context */
    int asked, said; /* bytes of questions and answers: so many on average, three times that at most */
} lengths;

/* Short ones are frequent, long ones rare: as SQuAD's questions and answers are. */
static int skewed(tn_rng r, uint64_t *at, int mean)
{
    const double u = (double)tn_rng_below(r, (*at)++, 1000) / 1000, v = (double)tn_rng_below(r, (*at)++, 1000) / 1000;
    const int n = (int)(0.5 * mean - 0.55 * mean * log(1 - 0.95 * u) + 0.1 * mean * v);
    return n < 1 ? 1 : n > 3 * mean ? 3 * mean : n;
}

static void put_words(FILE *f, tn_rng r, uint64_t *at, int bytes)
{
    for (int i = 0; i < bytes; i++)
        fputc(i % 6 == 5 && i < bytes - 1 ? ' ' : (char)('a' + tn_rng_below(r, (*at)++, 26)), f);
}

/* A file of the shape of SQuAD's. Answers are the beginning of their context. */
static void write_squad(const char *path, const lengths *l)
{
    const tn_rng r = { 11, 12 };
    uint64_t at = 0;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "{\"version\":\"1.1\",\"data\":[{\"title\":\"t\",\"paragraphs\":[");
    for (int i = 0; i < l->paragraphs; i++) {
        char *text = NULL;
        size_t bytes = 0;
        FILE *m = open_memstream(&text, &bytes);
        put_words(m, r, &at, l->least + (int)tn_rng_below(r, at++, (uint64_t)(l->most - l->least + 1)));
        fclose(m);
        fprintf(f, "%s{\"context\":\"%s\",\"qas\":[", i ? "," : "", text);
        for (int k = 0; k < l->questions; k++) {
            fprintf(f, "%s{\"id\":\"%d\",\"question\":\"", k ? "," : "", 100 * i + k);
            put_words(f, r, &at, skewed(r, &at, l->asked));
            int said = skewed(r, &at, l->said);
            said = said < (int)bytes ? said : (int)bytes;
            fprintf(f, "\",\"answers\":[{\"answer_start\":0,\"text\":\"%.*s\"}]}", said, text);
        }
        fprintf(f, "]}");
        free(text);
    }
    fprintf(f, "]}]}");
    fclose(f);
}

static const lengths few = { .paragraphs = 47, .questions = 3, .least = 12, .most = 90, .asked = 9, .said = 7 };

/* --- sessions ----------------------------------------------------------------------------------------------------------------------- */

typedef struct world {
    wire_run w; /* readers of bytes */
    char file[600];
} world;

static void begin(world *x, const lengths *l)
{
    wire_run_open_with(&x->w, "train.context=2600", "slots=3");
    snprintf(x->file, sizeof x->file, "%s/squad.json", x->w.d.path);
    write_squad(x->file, l);
}

static void end(world *x) { wire_run_close(&x->w); }

static void open_it(const world *x, const char *words, tn_session *s)
{
    char text[2800];
    snprintf(text, sizeof text,
             "a.model=%s b.model=%s task=squad task.data=%s task.questions=2 task.heldout=3 task.test_frac=0.05 "
             "train.batch=%d slots=3 width=8 dim=16 heads=2 ffn=24 layers=1 hidden=12 train.steps=%d train.warmup=3 "
             "train.lr=1e-2 log.every=1 ckpt.every=2 train.eval_every=4 seed=5 loader.mode=bucket %s",
             x->w.model[0], x->w.model[1], x->file, B, STEPS, words);
    tn_settings *st = wire_run_settings(tn_model_named("wire"), text);
    *s = (tn_session){ 0 };
    assert_ok(tn_session_open_with(
        &(tn_session_options){ .settings = st, .model = tn_model_named("wire"), .needs_data = true }, s));
    tn_settings_free(st);
}

static void open_ready(const world *x, const char *words, tn_session *s)
{
    open_it(x, words, s);
    const tn_training t = {
        .trainer = s->trainer, .settings = s->settings, .source = &s->source, .dir = x->w.d.path, .batch = s->batch
    };
    assert_ok(tn_run_begin_parts(&t));
    assert_ok(tn_run_prepare(&t, false));
}

static double printed(const tn_session *s, const char *before)
{
    char text[1000] = "";
    FILE *f = fmemopen(text, sizeof text, "w");
    s->source.about(s->source.ctx, f);
    fclose(f);
    const char *at = strstr(text, before);
    if (!at) fail_msg("no \"%s\" in: %s", before, text);
    return atof(at + strlen(before));
}

static const int32_t *input(const tn_session *s, const char *name)
{
    const tn_feed f = tn_trainer_feed_again(s->trainer);
    const int32_t *x = tn_feed_at(&f, name);
    assert_non_null(x);
    return x;
}

static int64_t items(const tn_session *s, const char *name)
{
    const tn_feed f = tn_trainer_feed_again(s->trainer);
    for (size_t i = 0; i < f.inputs->n; i++)
        if (strcmp(f.inputs->slot[i].row->name, name) == 0)
            return tn_input_items(&f.inputs->slot[i], f.batch, f.length);
    fail_msg("no input %s", name);
    return 0;
}

/* --- the same numbers --------------------------------------------------------------------------------------------------------------- */

typedef struct outcome {
    float loss;
    int64_t n;
    float *grad; /* of all, one behind the other */
} outcome;

static outcome outcome_of(tn_session *s, int64_t step)
{
    const tn_bucket *b = tn_store_bucket(tn_trainer_store(s->trainer), 0);
    outcome o = { .n = b->count, .grad = calloc((size_t)b->count, sizeof(float)) };
    tn_store_zero_grad(tn_trainer_store(s->trainer));
    assert_ok(tn_trainer_grad(s->trainer, step, &o.loss));
    memcpy(o.grad, b->grad, (size_t)b->count * sizeof *o.grad);
    return o;
}

static void compare(const outcome *a, const outcome *b)
{
    double apart = 0, most = 0;
    assert_true(a->n == b->n && isfinite(a->loss));
    if (!(fabsf(a->loss - b->loss) <= 1e-6f * fabsf(b->loss)))
        fail_msg("losses %.9g and %.9g", (double)a->loss, (double)b->loss);
    for (int64_t i = 0; i < a->n; i++) {
        apart = fmax(apart, fabs((double)a->grad[i] - (double)b->grad[i]));
        most = fmax(most, fabs((double)b->grad[i]));
    }
    if (!(most > 0 && apart <= 1e-6 * most)) fail_msg("gradients of %g differ by %g", most, apart);
}

/* A batch as it comes, and again where there is no plan but that of the longest rows. */
static void same_numbers(void **state)
{
    world x;
    tn_session s;
    int64_t count, again, narrow = 0;
    begin(&x, &few);
    open_ready(&x, *state, &s);
    assert_true(s.source.n_shapes > 2);
    for (int64_t step = 0; step < 14; step++) { /* more than an epoch */
        tn_source_mark from;
        s.source.mark(s.source.ctx, &from);
        assert_ok(tn_source_next(&s.source, step, s.trainer, &count));
        narrow += tn_trainer_feed_again(s.trainer).shape > 0;
        outcome a = outcome_of(&s, 0);
        tn_trainer *narrower = s.trainer->narrower;
        s.trainer->narrower = NULL;
        assert_ok(tn_source_back(&s.source, &from));
        assert_ok(tn_source_next(&s.source, step, s.trainer, &again));
        assert_true(count == again && tn_trainer_feed_again(s.trainer).shape == 0);
        outcome b = outcome_of(&s, 0);
        s.trainer->narrower = narrower;
        compare(&a, &b);
        free(a.grad);
        free(b.grad);
    }
    assert_true(narrow > 5);
    tn_session_close(&s);
    end(&x);
}

/* Evaluations are those of rows of one length. */
static void same_metrics(void **state)
{
    (void)state;
    world x;
    tn_session s[2];
    float loss[2];
    int64_t count[2];
    begin(&x, &few);
    open_ready(&x, "loader.workers=0", &s[0]);
    open_ready(&x, "loader.workers=0 loader.mode=auto", &s[1]);
    assert_true(s[0].source.n_shapes > 2 && s[1].source.n_shapes == 0);
    assert_ok(tn_source_next(&s[0].source, 0, s[0].trainer, &count[0])); /* a batch of another shape before */
    for (int i = 0; i < 2; i++) {
        assert_ok(tn_source_heldout(&s[i].source, 0, s[i].trainer, &count[i]));
        assert_ok(tn_trainer_eval(s[i].trainer, &loss[i]));
    }
    assert_true(count[0] == count[1] && fabsf(loss[0] - loss[1]) <= 1e-6f * loss[1]);
    for (int i = 0; i < 2; i++) tn_session_close(&s[i]);
    end(&x);
}

/* --- the order ---------------------------------------------------------------------------------------------------------------------- */

enum { BATCHES = 30, MOST_TEXTS = 64 };
typedef struct order {
    int64_t n, rows[BATCHES];
    uint64_t text[BATCHES][B], asked[BATCHES][B]; /* hashes of texts, and of what is asked of them */
    int32_t shape[BATCHES];
} order;

static uint64_t hash_of(const int32_t *x, int64_t n)
{
    uint64_t h = 1469598103934665603u;
    for (int64_t i = 0; i < n; i++)
        if (x[i]) h = (h ^ (uint64_t)x[i]) * 1099511628211u; /* padding aside */
    return h;
}

static void take(tn_session *s, order *o, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        const int64_t at = o->n++;
        assert_ok(tn_source_next(&s->source, at, s->trainer, &o->rows[at]));
        o->shape[at] = tn_trainer_feed_again(s->trainer).shape;
        const int64_t text = items(s, "bytes") / B, asked = items(s, "a.tokens") / B;
        for (int64_t b = 0; b < o->rows[at]; b++) {
            o->text[at][b] = hash_of(input(s, "bytes") + b * text, text);
            o->asked[at][b] = hash_of(input(s, "a.tokens") + b * asked, asked);
        }
    }
}

static int by_hash(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The texts of these batches, sorted. Returns how many. */
static int64_t texts_of(const order *o, int64_t first, int64_t batches, uint64_t *text)
{
    int64_t n = 0;
    for (int64_t k = first; k < first + batches; k++)
        for (int64_t b = 0; b < o->rows[k]; b++) text[n++] = o->text[k][b];
    qsort(text, (size_t)n, sizeof *text, by_hash);
    return n;
}

static void every_text_once(void **state)
{
    (void)state;
    world x;
    tn_session s;
    order o = { 0 };
    uint64_t text[2][MOST_TEXTS];
    int used = 0, shapes[TN_SHAPES_MOST + 1] = { 0 };
    begin(&x, &few);
    open_it(&x, "loader.workers=0", &s);
    const int64_t texts = s.source.count(s.source.ctx, TN_TRAIN), batches = (texts + B - 1) / B;
    assert_true(texts > 30 && texts <= MOST_TEXTS && s.source.epoch_batches == batches && 2 * batches <= BATCHES);
    take(&s, &o, 2 * batches);
    for (int64_t k = 0; k < 2 * batches; k++) {
        const bool last = k % batches == batches - 1;
        assert_int_equal(o.rows[k], last && texts % B ? texts % B : B); /* one batch is short, the last */
        used += !shapes[o.shape[k]]++;
    }
    for (int e = 0; e < 2; e++) assert_int_equal(texts_of(&o, e * batches, batches, text[e]), texts);
    for (int64_t i = 1; i < texts; i++) assert_true(text[0][i] != text[0][i - 1]);
    assert_memory_equal(text[0], text[1], (size_t)texts * sizeof **text);
    assert_true(used > 2 && memcmp(o.text[0], o.text[batches], (size_t)batches * sizeof *o.text) != 0);
    tn_session_close(&s);
    end(&x);
}

static void same_order(void **state)
{
    (void)state;
    static const char *const words[] = { "loader.workers=0", "loader.workers=1 loader.prefetch=3",
                                         "loader.workers=4 loader.prefetch=1", "loader.workers=0 seed=6" };
    world x;
    order o[4] = { { 0 } };
    begin(&x, &few);
    for (int i = 0; i < 4; i++) {
        tn_session s;
        open_it(&x, words[i], &s);
        take(&s, &o[i], BATCHES);
        tn_session_close(&s);
    }
    for (int i = 1; i < 3; i++) assert_memory_equal(&o[i], &o[0], sizeof o[0]);
    assert_true(memcmp(&o[3], &o[0], sizeof o[0]) != 0);
    end(&x);
}

/* From a cursor that was saved in the middle of an epoch. */
static void goes_on(void **state)
{
    (void)state;
    world x;
    tn_session s;
    order whole = { 0 }, parts = { 0 };
    begin(&x, &few);
    open_it(&x, "loader.workers=0", &s);
    take(&s, &whole, BATCHES);
    tn_session_close(&s);
    open_it(&x, "loader.prefetch=2", &s);
    for (int i = 0; i < 5; i++) {
        take(&s, &parts, 6);
        json_t *cursor = tn_source_save(&s.source);
        tn_session_close(&s);
        open_it(&x, i % 2 ? "loader.prefetch=2" : "loader.workers=0", &s);
        assert_ok(tn_source_load(&s.source, cursor));
        json_decref(cursor);
    }
    tn_session_close(&s);
    assert_memory_equal(&parts, &whole, sizeof whole);
    end(&x);
}

/* Other shapes are another order: a cursor is for its own. What the ladder gives up leaves them as they were. */
static void other_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        bool same;
    } rows[] = { { "loss.kd=1", true },
                 { "loss.kd=1 loader.shapes=3", false },
                 { "loss.kd=0", false },
                 { "loss.kd=0 train.dropped=loss.kd=1", true },
                 { "loss.kd=0 train.dropped=loss.ae=1", false },
                 { "loss.kd=1 loader.mode=auto", false } };
    world x;
    tn_session s;
    begin(&x, &few);
    open_it(&x, rows[0].words, &s);
    json_t *cursor = tn_source_save(&s.source);
    tn_session_close(&s);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        open_it(&x, rows[i].words, &s);
        if (rows[i].same) assert_ok(tn_source_load(&s.source, cursor));
        else assert_fails(tn_source_load(&s.source, cursor), TN_USAGE, "other shapes than those the run began with");
        tn_session_close(&s);
    }
    json_decref(cursor);
    end(&x);
}

static tn_status train(const world *x, const char *run, const char *more, int64_t stop_after, tn_progress_report *last)
{
    char words[900];
    tn_session on;
    snprintf(words, sizeof words, "%s run=%s/%s", more, x->w.d.path, run);
    open_it(x, words, &on);
    return tn_run_piece(&on, "wire", stop_after, last);
}

static void in_sessions(void **state)
{
    const char *more = *state;
    world x;
    tn_progress_report whole, last = { 0 };
    begin(&x, &few);
    assert_ok(train(&x, "r1", more, -1, &whole));
    for (int i = 0; last.step < STEPS && i < 30; i++) {
        const tn_status status = train(&x, "r2", more, i, &last);
        assert_int_equal(status, last.step < STEPS ? TN_INTERRUPTED : TN_OK);
    }
    assert_true(last.step == STEPS && memcmp(&last.last, &whole.last, sizeof last.last) == 0);
    end(&x);
}

static void allocates_nothing(void **state)
{
    (void)state;
    world x;
    tn_session s;
    float loss;
    int64_t count;
    tn_update_result a;
    begin(&x, &few);
    open_it(&x, "loader.workers=0", &s);
    const uint64_t before = tn_alloc_count();
    for (int64_t i = 0; i < BATCHES; i++) {
        assert_ok(tn_source_next(&s.source, i, s.trainer, &count));
        assert_ok(tn_trainer_grad(s.trainer, i, &loss));
        assert_ok(tn_trainer_apply(s.trainer, i, 1, loss, &a));
    }
    assert_int_equal(tn_alloc_count(), before);
    tn_session_close(&s);
    end(&x);
}

/* --- padding ------------------------------------------------------------------------------------------------------------------------ */

/* What a run says is what its batches have, of rows whose lengths are an input: words, what is said, rows, lengths. */
static void said_padding(void **state)
{
    const char *const *what = *state;
    world x;
    tn_session s;
    double used = 0, all = 0;
    begin(&x, &few);
    open_it(&x, what[0], &s);
    const double said = printed(&s, what[1]);
    if (fabs(s.source.padding(s.source.ctx) - printed(&s, s.source.n_shapes ? "shapes; " : "shape; ") / 100) > 0.00051)
        fail_msg("as a metric %g", s.source.padding(s.source.ctx));
    for (int64_t k = 0; k < s.source.epoch_batches; k++) {
        int64_t rows;
        assert_ok(tn_source_next(&s.source, k, s.trainer, &rows));
        all += (double)items(&s, what[2]);
        for (int64_t b = 0; b < rows; b++) used += input(&s, what[3])[b];
    }
    if (fabs(said - 100 * (1 - used / all)) > 0.51) fail_msg("said %g %%, are %g", said, 100 * (1 - used / all));
    tn_session_close(&s);
    end(&x);
}

/* Bytes are tokens here, so that questions and answers have as many letters as SQuAD's have tokens of readers. Contexts are cut at 1,024
 * bytes, as a quarter of SQuAD's are. */
static void padding_of_squad(void **state)
{
    (void)state;
    static const lengths squad = {
        .paragraphs = 1300, .questions = 5, .least = 150, .most = 1300, .asked = 11, .said = 4
    };
    world x;
    tn_session s;
    begin(&x, &squad);
    open_it(&x, "task.questions=1 loader.mode=auto train.batch=16", &s);
    const double plain = printed(&s, "shape; ");
    tn_session_close(&s);
    open_it(&x, "task.questions=1 train.batch=16", &s);
    const double one = printed(&s, "shapes; ");
    assert_true(s.source.n_shapes <= 7);
    tn_session_close(&s);
    open_it(&x, "task.questions=4 train.batch=16", &s);
    const double four = printed(&s, "shapes; ");
    tn_session_close(&s);
    if (!(plain > 25 && one > 0 && one < 10 && four < 20)) fail_msg("padding %g, %g and %g %%", plain, one, four);
    end(&x);
}

/* Pieces of the documents of this repository, as tokens of a small vocabulary. */
static void padding_of_text(void **state)
{
    (void)state;
    static const char *const files[] = { "docs/wire.md", "docs/runs.md", "docs/models.md", "docs/data.md" };
    world x;
    tn_session s;
    char words[900], text[16384];
#define MINI "a.tokenizer=tests/token/mini_llama2.json b.tokenizer=tests/token/mini_llama2.json"
    wire_run_open_with(&x.w, "vocab=562", "slots=3 " MINI);
    snprintf(x.file, sizeof x.file, "%s/docs.txt", x.w.d.path);
    FILE *f = fopen(x.file, "w");
    for (size_t i = 0, n; f && i < sizeof files / sizeof *files; i++) {
        FILE *from = fopen(files[i], "r");
        assert_non_null(from);
        while ((n = fread(text, 1, sizeof text, from)) > 0) fwrite(text, 1, n, f);
        fclose(from);
    }
    assert_non_null(f);
    fclose(f);
    static const char ae[] = "task=ae task.heldout=20 train.batch=16 " MINI;
    snprintf(words, sizeof words, "%s loader.mode=auto", ae);
    open_it(&x, words, &s);
    const double plain = printed(&s, "shape; ");
    tn_session_close(&s);
    open_it(&x, ae, &s);
    const double here = printed(&s, "shapes; ");
    assert_true(s.source.n_shapes <= 7);
    if (!(plain > 2 * here && here > 0 && here < 10)) fail_msg("padding %g and %g %%", plain, here);
    tn_session_close(&s);
    end(&x);
}

/* --- shapes ------------------------------------------------------------------------------------------------------------------------- */

static double area(const void *ctx, const int32_t *size)
{
    (void)ctx;
    return (double)size[0] + 3.0 * (double)size[1];
}

static void chosen(void **state)
{
    (void)state;
    enum { N = 400, MOST = 7 };
    int32_t size[N][2], shape[MOST][2], twice[MOST][2], all[2] = { 120, 100 };
    int n, m;
    const tn_rng r = { 3, 4 };
    double used = 0, cost = 0;
    for (int i = 0; i < N; i++) {
        size[i][0] = 1 + (int32_t)tn_rng_below(r, 2 * (uint64_t)i, 100);
        size[i][1] =
            1 + (int32_t)tn_rng_below(r, 2 * (uint64_t)i + 1, 10) + (i == 7 ? 80 : 0); /* one that stands out */
        used += area(NULL, size[i]);
    }
    const tn_bucket_rows rows = { .n = N, .sizes = 2, .size = size[0], .all = all, .cost = area };
    assert_ok(tn_buckets_choose(&rows, used, MOST, shape[0], &n));
    assert_ok(tn_buckets_choose(&rows, used, MOST, twice[0], &m));
    assert_true(n == MOST && m == n);
    assert_memory_equal(shape, twice, sizeof shape);
    for (int i = 1; i < n; i++) assert_true(area(NULL, shape[i]) >= area(NULL, shape[i - 1]));
    for (int i = 0; i < N; i++) {
        int k = 0;
        while (k < n && (size[i][0] > shape[k][0] || size[i][1] > shape[k][1])) k++;
        cost += area(NULL, k < n ? shape[k] : all);
    }
    assert_true(1 - used / cost < 0.25 && 1 - used / (N * area(NULL, all)) > 0.8);
    for (int i = 0; i < n; i++) assert_true(shape[i][1] <= 10);                   /* nobody pays for the one */
    assert_ok(tn_buckets_choose(&rows, N * area(NULL, all), MOST, shape[0], &n)); /* it is enough as it is */
    assert_int_equal(n, 0);
    for (int i = 0; i < N; i++) size[i][0] = 120, size[i][1] = 100;
    assert_ok(tn_buckets_choose(&rows, 0, MOST, shape[0], &n)); /* nothing to gain */
    assert_int_equal(n, 0);
}

void tn_tests_wire_buckets(tn_test_list *l)
{
    static const char *const terms[] = {
        "loader.workers=0",
        "loader.workers=0 place=embeddings private=1 loss.first=0.5 loss.k=2 loss.k_ce=0.5 loss.nce=0.3",
        "loader.workers=0 loss.kd=1 loss.state=0.5 loss.ae=0.5",
        "loader.workers=0 loss.kd=1 loss.state=0.5 loss.k=2 opt.one_pass=off",
        "loader.workers=0 encoder=sender sender=b loss.kd=1 loss.state=1 loss.teacher=cached sender_features=cached",
        "loader.workers=0 " BOTH,
        "loader.workers=0 encoder=sender sender=b " BOTH,
        "loader.workers=0 encoder=sender sender=b sender_features=cached " BOTH,
    };
    static const char *const runs[] = { "loader.workers=1", BOTH,
                                        BOTH " encoder=sender sender=b sender_features=cached",
                                        BOTH " loader.mode=auto" };
    static const char *const said[][4] = {
        { "encoder=bytes", "(bytes ", "bytes", "lengths" },
        { "encoder=bytes loader.mode=auto", "(bytes ", "bytes", "lengths" },
        { "encoder=sender sender=b loader.prefetch=1", "text b ", "b.text", "b.text_length" },
        { BOTH, "(bytes ", "bytes", "lengths" },
        { "encoder=sender sender=b " BOTH, "(text and question ", "sent", "sent_length" },
    };
    for (size_t i = 0; i < sizeof terms / sizeof *terms; i++)
        tn_test_add(l, same_numbers, (void *)(uintptr_t)terms[i], "wire buckets: every batch as if padded: %s",
                    terms[i] + strlen("loader.workers=0"));
    tn_test_add(l, same_metrics, NULL, "wire buckets: evaluations as without");
    tn_test_add(l, every_text_once, NULL, "wire buckets: every text once in an epoch");
    tn_test_add(l, same_order, NULL, "wire buckets: the same order for 0, 1 and 4 workers");
    tn_test_add(l, goes_on, NULL, "wire buckets: the order goes on in the middle");
    tn_test_add(l, other_shapes, NULL, "wire buckets: a cursor is for its shapes");
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        tn_test_add(l, in_sessions, (void *)(uintptr_t)runs[i], "wire buckets: in sessions of 0, 1, 2, ... steps (%s)",
                    runs[i]);
    tn_test_add(l, allocates_nothing, NULL, "wire buckets: steps allocate nothing");
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        tn_test_add(l, said_padding, &said[i], "wire buckets: the padding that is said: %s", said[i][0]);
    tn_test_add(l, padding_of_text, NULL, "wire buckets: padding of pieces of text");
    tn_test_add(l, padding_of_squad, NULL, "wire buckets: padding at the lengths of SQuAD");
    tn_test_add(l, chosen, NULL, "wire buckets: shapes");
}
