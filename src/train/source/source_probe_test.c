/* Probes on their way into a step: batches are the task's sequences whatever came before, a source that was stopped goes on with
 * the same bytes, accuracy is that of a network that knows every answer, of one that always says the same, and of one that knows
 * some groups only; settings that a probe makes of a run; and a run that was stopped anywhere ends with the bits of one that was not. */
#include "train/source/task_setup.h"

#include "base/alloc.h"
#include "tempdir.h"
#include "train/run/run.h"
#include "train/run/session.h"
#include "train/run/train_settings.h"
#include "train/run/training.h"

#include <math.h>
#include <stdlib.h>

/* --- a network that repeats its input -------------------------------------------------------------------------------------------- */

enum { VOCAB = 30, B = 3 };

static const tn_setting echo_rows[] = {
    TN_SETTING_AUTO_INT("vocab", "auto", TN_RANGE(2, 1e7), "", "tokens"),
};

static tn_status echo_build(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    const int64_t V = tn_settings_int(st, "vocab");
    const tn_ref x = tn_embed(g, tn_in(b, "tokens"), tn_param(g, "table", tn_shape(V, V), tn_zeros));
    const tn_ref head = tn_param(g, "head", tn_shape(V, V), tn_zeros), logits = tn_linear(g, x, head);
    if (tn_wants(b, "logits")) tn_output(g, "logits", logits);
    tn_output(g, "loss", tn_linear_xent(g, x, head, tn_in(b, "labels")));
    return tn_graph_status(g);
}

static const tn_model echo = { TN_MODEL_HEAD,         .name = "echo",  .summary = "says what it hears",
                               .settings = echo_rows, .n_settings = 1, .build = echo_build,
                               TN_LANGUAGE_ROWS };

typedef struct rig {
    tn_settings *settings;
    tn_probe *probe;
    tn_trainer *trainer;
    tn_source source;
    int64_t known; /* groups below this one are answered by hand */
    int32_t says;  /* what is said to all others */
} rig;

static tn_settings *settings_of(const char *words)
{
    char text[1024];
    tn_settings *st;
    assert_ok(tn_settings_new(&st));
    assert_ok(tn_settings_common(st));
    assert_ok(tn_settings_add(st, echo_rows, 1, "echo"));
    snprintf(text, sizeof text, "%s", words);
    for (char *rest = text, *word; (word = strtok_r(rest, " ", &rest));) assert_ok(tn_settings_override(st, word));
    return st;
}

/* What a network would have to say stands in the tokens: it repeats them. */
static tn_status answer(void *ctx, int64_t i, const tn_feeder *to, int64_t *count)
{
    rig *r = ctx;
    TN_RETURN_IF(r->source.heldout(r->source.ctx, i, to, count));
    const tn_feed f = tn_trainer_feed_again(r->trainer);
    int32_t *tokens = tn_feed_at(&f, "tokens");
    const int32_t *labels = tn_feed_at(&f, "labels");
    for (int64_t k = 0; k < f.batch * f.length; k++)
        if (labels[k] >= 0) tokens[k] = i % r->probe->groups < r->known ? labels[k] : r->says;
    return TN_OK;
}

static void write_identity(tn_trainer *t, const char *name, int64_t n, float by)
{
    const tn_entry *e = tn_store_find(tn_trainer_store(t), name);
    float *x = e->data;
    for (int64_t i = 0; i < n * n; i++) x[i] = i % (n + 1) == 0 ? by : 0;
}

/* What the settings of a run become by its task. */
static tn_status find(tn_settings *st, tn_source *out)
{
    return tn_source_find(&(tn_source_open){ .model = &echo, .settings = st, .needed = true, .trains = true }, out);
}

static void open_rig(rig *r, const char *words, uint64_t seed)
{
    *r = (rig){ .settings = settings_of(words) };
    assert_ok(find(r->settings, &r->source));
    assert_true(r->source.groups > 0 && !r->source.play);
    tn_source_close(&r->source);
    assert_ok(tn_probe_open(r->settings, &r->probe));
    assert_int_equal(tn_settings_int(r->settings, "vocab"), r->probe->vocab);
    assert_ok(tn_trainer_new(&(tn_trainer_options){ .model = &echo,
                                                    .settings = r->settings,
                                                    .batch = B,
                                                    .length = r->probe->length,
                                                    .logits = true,
                                                    .widths = r->probe->lengths,
                                                    .n_widths = r->probe->n_lengths },
                             &r->trainer));
    assert_ok(tn_source_probe_open(
        r->probe, seed,
        &(tn_source_start){ .trainer = r->trainer, .batch = B, .length = r->probe->length, .heldout = TN_VALID },
        &r->source));
    write_identity(r->trainer, "table", r->probe->vocab, 1);
    write_identity(r->trainer, "head", r->probe->vocab, 20);
}

static void close_rig(rig *r)
{
    tn_source_close(&r->source);
    tn_trainer_free(r->trainer);
    tn_probe_free(r->probe);
    tn_settings_free(r->settings);
}

/* --- what accuracy says ---------------------------------------------------------------------------------------------------------- */

static const char *const probes[] = {
    "threads=1 task=mqar task.pairs=2,4,5 task.keys=10 task.values=8 task.noise=4 train.context=16 task.heldout=10",
    "threads=1 task=tokens_copy task.lengths=8,32 task.heldout=7",
    "threads=1 task=needle task.lengths=16,64 task.keys=9 task.values=3 task.noise=5 task.depths=3 task.heldout=8",
};

/* Labels of each group that are `says`, counted from the probe itself. */
static double share_of(const rig *r, int64_t group, int32_t says)
{
    const tn_probe *p = r->probe;
    int32_t tokens[256], labels[256], scratch[512];
    int64_t n = 0, right = 0;
    for (int64_t i = 0; i < p->heldout; i++) {
        tn_probe_held(p, TN_VALID, group, i, scratch, tokens, labels);
        for (int64_t t = 0; t < p->group[group].length; t++) {
            n += labels[t] >= 0;
            right += labels[t] == says;
        }
    }
    return (double)right / (double)n;
}

static double group_of(const tn_evaluation *e, const tn_probe *p, int64_t group)
{
    char name[64];
    snprintf(name, sizeof name, "accuracy_%s", p->group[group].name);
    return tn_scores_get(&e->scores, name);
}

static void accuracy(void **state)
{
    rig r;
    tn_evaluation e;
    open_rig(&r, *state, 1);
    const tn_probe *p = r.probe;
    tn_source by_hand = r.source;
    by_hand.ctx = &r;
    by_hand.heldout = answer;
    r.says = (int32_t)(p->keys + 1);
    for (r.known = 0; r.known <= p->groups; r.known++) {
        double sum = 0;
        int64_t asked = 0;
        assert_ok(tn_evaluate(r.trainer, &by_hand, 0, &e));
        assert_int_equal(e.scores.n, 2 + p->groups);
        for (int64_t g = 0; g < p->groups; g++) {
            const double want = g < r.known ? 1 : share_of(&r, g, r.says);
            assert_true(fabs(group_of(&e, p, g) - want) < 1e-12 && (g < r.known || want < 1));
            sum += want;
            asked += p->heldout * (p->task->reads[0] == 'p' && p->group[g].pairs > 1 ? p->group[g].pairs : 1);
        }
        assert_true(fabs(tn_scores_get(&e.scores, "accuracy") - sum / (double)p->groups) < 1e-12);
        assert_int_equal(e.count, asked);
    }
    assert_true(tn_scores_get(&e.scores, "accuracy") == 1 && tn_scores_get(&e.scores, "loss") < 1e-3);
    assert_ok(tn_evaluate(r.trainer, &by_hand, p->groups - 1, &e)); /* the last group was not asked */
    assert_true(isnan(group_of(&e, p, p->groups - 1)) && group_of(&e, p, 0) == 1 &&
                tn_scores_get(&e.scores, "accuracy") == 1);
    close_rig(&r);
}

/* --- batches and the cursor ------------------------------------------------------------------------------------------------------ */

/* What the next batch holds, with labels that count. */
static int64_t take(rig *r, int32_t *tokens, int32_t *labels, int64_t *length)
{
    int64_t count;
    assert_ok(tn_source_next(&r->source, 0, r->trainer, &count));
    const tn_feed f = tn_trainer_feed_again(r->trainer);
    memcpy(tokens, tn_feed_at(&f, "tokens"), sizeof *tokens * (size_t)(f.batch * f.length));
    memcpy(labels, tn_feed_at(&f, "labels"), sizeof *labels * (size_t)(f.batch * f.length));
    *length = f.length;
    return count;
}

static void goes_on(void **state)
{
    enum { MOST = B * 64, BATCHES = 9 };
    rig a, b;
    int32_t x[MOST], y[MOST], u[MOST], v[MOST];
    int64_t length, other;
    open_rig(&a, *state, 7);
    for (int stop = 0; stop < BATCHES; stop++) {
        open_rig(&b, *state, 7);
        for (int i = 0; i < stop; i++) (void)take(&b, u, v, &other);
        json_t *cursor = b.source.save(b.source.ctx);
        close_rig(&b);
        open_rig(&b, *state, 7);
        assert_ok(b.source.load(b.source.ctx, cursor));
        (void)take(&a, x, y, &length);
        const int64_t count = take(&b, u, v, &other);
        assert_int_equal(length, other);
        assert_int_equal(count, B * length);
        assert_memory_equal(x, u, sizeof *x * (size_t)(B * length));
        assert_memory_equal(y, v, sizeof *y * (size_t)(B * length));
        json_decref(cursor);
        close_rig(&b);
    }
    close_rig(&a);
}

static void other_cursors(void **state)
{
    rig a, b, c;
    (void)state;
    open_rig(&a, probes[0], 7);
    open_rig(&b, probes[0], 8);
    open_rig(&c, "threads=1 task=mqar task.pairs=2,4,6 task.keys=10 task.values=8 task.noise=4 train.context=18", 7);
    json_t *cursor = a.source.save(a.source.ctx), *text = json_pack("{s:s}", "kind", "dataset");
    assert_fails(b.source.load(b.source.ctx, cursor), TN_USAGE, "seed=7");
    assert_fails(c.source.load(c.source.ctx, cursor), TN_USAGE, "put the old task.* settings");
    assert_fails(a.source.load(a.source.ctx, text), TN_USAGE, "not trained on the task mqar");
    assert_int_equal(json_object_set_new(cursor, "batches", json_integer(-1)), 0);
    assert_fails(a.source.load(a.source.ctx, cursor), TN_BAD_FILE, "invalid");
    json_decref(cursor);
    json_decref(text);
    close_rig(&a);
    close_rig(&b);
    close_rig(&c);
}

/* --- settings -------------------------------------------------------------------------------------------------------------------- */

static const struct setup_row {
    const char *words, *key, *value; /* key NULL: refused with `value` in the message */
} setups[] = {
    { "task=mqar", "vocab", "1088" },
    { "task=mqar vocab=2000", "vocab", "2000" },
    { "task=mqar", "train.eval_batches", "0" },
    { "task=mqar", "train.test", "true" },
    { "task=tokens_copy task.lengths=64,512", "train.context", "512" },
    { "task=tokens_copy task.lengths=64,512 train.context=512", "train.context", "512" },
    { "task=tokens_copy task.lengths=64,512 train.context=256", NULL, "set train.context=512" },
    { "task=mqar vocab=100", NULL, "vocab=100 is too small for the task mqar, which has 1088" },
    { "task=mqar data=book.txt", NULL, "remove one of them" },
    { "task=mqar train.epochs=2", NULL, "set train.steps instead" },
    { "task=mqar loader.mode=bucket", NULL, "leave it at auto" },
    { "task=mqar train.context=100", NULL, "task.pairs=64 needs 192 tokens" },
    { "task=xor", NULL, "or one of the tasks mqar, needle, tokens_copy" },
    { "task=mkar", NULL, "did you mean mqar?" },
};

static void setup(void **state)
{
    const struct setup_row *r = *state;
    tn_settings *st = settings_of(r->words);
    tn_source source = { 0 };
    const tn_status s = find(st, &source);
    if (r->key) {
        assert_ok(s);
        assert_string_equal(tn_settings_text(st, r->key), r->value);
    } else assert_fails(s, TN_USAGE, r->value);
    tn_source_close(&source);
    tn_settings_free(st);
}

/* A preset's context gives way to the lengths; samples are not for models that read tokens, nor tokens for those that do not. */
static void setup_presets(void **state)
{
    const char *const words[] = { "task=tokens_copy", "task.lengths=16,32" };
    const char *const other[] = { "task=mqar" };
    tn_session s;
    (void)state;
    assert_ok(tn_session_open("ten_tiny", words, 2, true, &s));
    assert_int_equal(s.length, 32);
    assert_int_equal(tn_session_count(&s, TN_TEST), 256);
    tn_session_close(&s);
    assert_fails(tn_session_open("tep", other, 1, true, &s), TN_USAGE,
                 "task=mqar is for models that read tokens, and tep learns from samples");
}

/* --- runs ------------------------------------------------------------------------------------------------------------------------ */

typedef struct stopper {
    int64_t after, seen; /* steps of this session */
} stopper;

static bool stop_now(void *ctx)
{
    stopper *s = ctx;
    return s->after >= 0 && s->seen++ >= s->after;
}

/* As tenon train does it. */
static tn_status session(const tn_tempdir *d, const char *const *task, const char *run, int64_t stop_after,
                         tn_progress_report *last)
{
    char dir[TN_PATH_BYTES + 8], path[TN_PATH_BYTES];
    const char *const set[] = { task[1],
                                task[2],
                                task[3],
                                "threads=1",
                                "dim=8",
                                "layers=1",
                                "heads=1",
                                "train.steps=24",
                                "train.batch=2",
                                "train.warmup=2",
                                "train.eval_every=5",
                                "ckpt.every=4",
                                "train.accumulate=2",
                                "task.heldout=3",
                                dir };
    tn_status s = TN_OK;
    tn_session on = { 0 };
    tn_jsonl *metrics = NULL;
    tn_run_dir r = { .lock = -1 };
    tn_ckpt_state state = { 0 };
    stopper stop = { .after = stop_after };
    snprintf(path, sizeof path, "%s/%s", d->path, run);
    snprintf(dir, sizeof dir, "run=%s", path);
    TN_TRY(tn_session_open(task[0], set, sizeof set / sizeof *set, true, &on));
    TN_TRY(tn_run_open(on.settings, "probe", false, &r));
    if (r.checkpoint[0])
        TN_TRY(tn_run_resume(&r,
                             &(tn_training){ .trainer = on.trainer,
                                             .settings = on.settings,
                                             .source = &on.source,
                                             .batch = on.batch,
                                             .length = on.length },
                             &state));
    TN_TRY(tn_path_join(path, "metrics.jsonl", path, sizeof path));
    TN_TRY(tn_jsonl_open(path, r.checkpoint[0], &metrics));
    const tn_training job = { .trainer = on.trainer,
                              .settings = on.settings,
                              .source = &on.source,
                              .metrics = metrics,
                              .dir = r.dir,
                              .batch = on.batch,
                              .length = on.length,
                              .ctx = &stop,
                              .interrupted = stop_now };
    s = tn_training_run(&job, r.checkpoint[0] ? &state : NULL, last);
done:
    (void)tn_jsonl_close(metrics);
    tn_ckpt_state_free(&state);
    tn_run_close(&r);
    tn_session_close(&on);
    return s;
}

static const char *const runs[][4] = {
    { "recall", "task=mqar", "task.pairs=2,4", "train.context=16" },
    { "gpt", "task=needle", "task.pairs=2", "train.context=24" },
    { "ten", "task=tokens_copy", "task.lengths=8,24", "task.segment=2" },
};

static void stopped_and_continued(void **state)
{
    const char *const *task = *state;
    tn_tempdir d;
    tn_progress_report whole, last = { 0 };
    char command[900];
    tn_tempdir_make_quick(&d);
    assert_ok(session(&d, task, "a", -1, &whole));
    assert_true(whole.last.n > 3 && whole.last.at[2].value >= 0 && isnan(whole.epoch));
    assert_string_equal(whole.select->name, "accuracy"); /* as the task prefers */
    for (int i = 0; i < 20; i++) {
        const tn_status s = session(&d, task, "b", 3 + i % 4, &last);
        if (s == TN_OK) break;
        assert_int_equal(s, TN_INTERRUPTED);
    }
    assert_int_equal(last.step, 24);
    assert_memory_equal(&last.last, &whole.last, sizeof last.last);
    snprintf(command, sizeof command,
             "cd '%s' && for r in a b; do sed -E "
             "'s/,\"(tokens_per_s|first_step_s|seconds|step_ms|stall_s|stall_frac|memory_mb|utilisation)\":[^,}]*//g' "
             "$r/metrics.jsonl >$r.txt; done; grep -q '\"heldout_accuracy_' a.txt && grep -q '\"last_accuracy_' "
             "a/latest/state.json && cmp a.txt b.txt && "
             "cmp a/latest/model.safetensors b/latest/model.safetensors && cmp a/latest/state.safetensors "
             "b/latest/state.safetensors",
             d.path);
    assert_int_equal(system(command), 0);
    tn_tempdir_remove_all(&d);
}

void tn_tests_source_probe(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof probes / sizeof *probes; i++) {
        tn_test_add(l, accuracy, probes[i], "probe source: all known, some, none: %s", probes[i]);
        tn_test_add(l, goes_on, probes[i], "probe source: goes on where it was: %s", probes[i]);
    }
    tn_test_add(l, other_cursors, NULL, "probe source: cursors of others");
    for (size_t i = 0; i < sizeof setups / sizeof *setups; i++)
        tn_test_add(l, setup, &setups[i], "probe source: settings: %s %s", setups[i].words,
                    setups[i].key ? setups[i].key : "refused");
    tn_test_add(l, setup_presets, NULL, "probe source: presets");
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        tn_test_add(l, stopped_and_continued, runs[i], "probe source: a run that was stopped: %s %s", runs[i][0],
                    runs[i][1]);
}
