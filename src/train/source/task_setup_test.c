/* What a run's data does to its settings: sizes that are auto, defaults of a task, and what is refused. */
#include "train/source/task_setup.h"

#include "mlp.h"
#include "train/run/train_settings.h"
#include "train/source/source.h"

/* What the settings of a run become by its data. */
static tn_status find(const tn_model *model, tn_settings *st, bool needed, tn_source *out)
{
    return tn_source_find(&(tn_source_open){ .model = model, .settings = st, .needed = needed, .trains = true }, out);
}

static const struct setup_row {
    const char *set[4];
    const char *key, *value; /* what the key is then; or key NULL and a part of the refusal */
} setup_rows[] = {
    { { "task=xor" }, "inputs", "2" },
    { { "task=xor", "classes=5" }, "classes", "5" },
    { { "task=xor" }, "tokens", "1" },
    { { "task=xor" }, "train.batch", "64" },
    { { "task=xor", "task.size=30" }, "train.batch", "30" },
    { { "task=xor", "task.size=640" }, "train.eval_every", "20" },
    { { "task=xor", "task.size=448" }, "train.eval_every", "21" },
    { { "task=xor" }, "train.eval_every", "32" },
    { { "task=xor", "train.eval_every=7" }, "train.eval_every", "7" },
    { { "task=xor" }, "train.eval_batches", "0" },
    { { "task=xor", "train.eval_batches=3" }, "train.eval_batches", "3" },
    { { "task=xor" }, "train.test", "true" },
    { { "task=xor", "train.test=off" }, "train.test", "false" },
    { { "task=xor", "task.test_frac=0" }, "train.test", "false" },
    { { "task=xor", "train.epochs=3" }, "train.steps", "96" },
    { { "task=xor", "train.epochs=3", "train.batch=63" }, "train.steps", "96" },
    { { "task=xor", "train.epochs=1", "train.accumulate=5" }, "train.steps", "7" },
    { { "task=xor" }, "train.steps", "2000" },
    { { "task=xor", "train.epochs=3", "train.steps=9" }, NULL, "remove one of them" },
    { { "task=xor", "inputs=3" }, NULL, "inputs=3 does not fit the task xor, which has 2: use inputs=auto" },
    { { "task=xor", "classes=1" }, NULL, NULL },
    { { "task=xor", "train.test=on", "task.test_frac=0" }, NULL, "make task.test_frac larger than 0" },
    { { "task=xorr" }, NULL, "did you mean xor?" },
    { { "seed=1" }, NULL, "name one with task=NAME, which may be xor" },
    { { "task=xor", "data=book.txt" }, NULL, "mlp learns from a task" },
    { { "task=cartpole" }, "train.batch", "500" },
    { { "task=cartpole", "rl.episodes=4" }, "train.batch", "2000" },
    { { "task=cartpole", "rl.episodes=4" }, "train.steps", "250" },
    { { "task=cartpole" }, "classes", "2" },
    { { "task=cartpole", "train.batch=64" }, NULL, "leave train.batch at auto" },
    { { "task=cartpole", "train.epochs=2" }, NULL, "set train.steps instead" },
    { { "task=cartpole", "train.accumulate=2" }, NULL, "rl.episodes says how many" },
};

static void setup(void **state)
{
    const struct setup_row *r = *state;
    tn_settings *st = tn_mlp_settings(NULL, 0);
    tn_source source = { 0 };
    tn_status s = TN_OK;
    for (int i = 0; i < 4 && r->set[i] && s == TN_OK; i++) s = tn_settings_override(st, r->set[i]);
    if (!r->key && !r->value) assert_int_equal(s, TN_USAGE); /* by the setting's own range */
    else if (!r->key) assert_fails(find(&tn_mlp, st, true, &source), TN_USAGE, r->value);
    else {
        assert_ok(s);
        assert_ok(find(&tn_mlp, st, true, &source));
        assert_string_equal(tn_settings_text(st, r->key), r->value);
    }
    tn_source_close(&source);
    tn_settings_free(st);
}

/* A file's or preset's epochs give way to the command line's steps; without a task sizes are assumed; tokens refuse tasks. */
static void setup_others(void **state)
{
    (void)state;
    tn_settings *st = tn_mlp_settings(NULL, 0);
    tn_source source;
    const tn_model *gpt;
    const char *task = "task=xor";
    assert_ok(find(&tn_mlp, st, false, &source));
    assert_null(source.ctx);
    assert_true(tn_settings_int(st, "inputs") == 64 && tn_settings_int(st, "tokens") == 1 &&
                tn_settings_int(st, "classes") == 10);
    tn_settings_free(st);
    st = tn_mlp_settings(&task, 1);
    assert_ok(tn_settings_set(st, "train.epochs", "50", "preset some"));
    assert_ok(tn_settings_override(st, "train.steps=11"));
    assert_ok(find(&tn_mlp, st, true, &source));
    assert_true(tn_settings_int(st, "train.steps") == 11 && tn_settings_int(st, "train.epochs") == 0);
    tn_source_close(&source);
    tn_settings_free(st);
    assert_ok(tn_settings_resolve("gpt_tiny", &task, 1, &st, &gpt));
    assert_fails(find(gpt, st, true, &source), TN_USAGE, "gpt learns from text: name a text file with data=FILE");
    assert_ok(tn_settings_override(st, "task="));
    assert_ok(tn_settings_override(st, "train.epochs=2"));
    assert_fails(find(gpt, st, true, &source), TN_USAGE, "set train.steps instead");
    tn_settings_free(st);
}

void tn_tests_task_setup(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof setup_rows / sizeof *setup_rows; i++)
        tn_test_add(l, setup, &setup_rows[i], "task setup: %s %s %s", setup_rows[i].set[0],
                    setup_rows[i].set[1] ? setup_rows[i].set[1] : "", setup_rows[i].set[2] ? setup_rows[i].set[2] : "");
    tn_test_add(l, setup_others, NULL, "task setup: others");
}
