/* Images that are made up are those that their tasks read; a text is prepared, a folder is not. */
#include "report/ablate/scratch.h"
#include "testlib.h"
#include "tempdir.h"
#include "train/run/train_settings.h"
#include "train/source/task_setup.h"

#include <string.h>

static tn_settings *resolve(const char *target, const char *word)
{
    tn_settings *st = NULL;
    const tn_model *m;
    assert_ok(tn_settings_resolve(target, &word, word != NULL, &st, &m));
    return st;
}

static void images(void **state)
{
    static const char *const presets[] = { "flow_mnist", "digits_tep" };
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        tn_tempdir d;
        tn_samples *set = NULL;
        bool made;
        tn_tempdir_make_quick(&d);
        tn_settings *st = resolve(presets[i], NULL);
        assert_ok(tn_ablate_make_images(st, d.path, &made));
        assert_true(made);
        assert_string_equal(tn_settings_text(st, "task.data"), d.path);
        assert_ok(tn_task_samples(st, NULL, &set));
        assert_true(set->count[TN_TRAIN] >= 256 && set->classes == 10);
        tn_samples_free(set);
        assert_ok(tn_ablate_make_images(st, d.path, &made)); /* a folder is named */
        assert_false(made);
        tn_settings_free(st);
        tn_ablate_sweep(d.path);
        assert_int_not_equal(access(d.path, F_OK), 0);
    }
    bool made;
    tn_settings *st = resolve("ten_tiny", NULL);
    assert_ok(tn_ablate_make_images(st, "/nowhere", &made));
    assert_false(made);
    tn_settings_free(st);
}

static void texts(void **state)
{
    tn_tempdir d;
    char path[TN_PATH_BYTES], word[400];
    (void)state;
    tn_tempdir_make_quick(&d);
    const char *text = tn_tempdir_file(&d, "t.txt");
    FILE *f = fopen(text, "w");
    assert_non_null(f);
    for (int i = 0; i < 400; i++) fprintf(f, "line %d of a text that is prepared\n", i);
    assert_int_equal(fclose(f), 0);
    snprintf(word, sizeof word, "data=%s", text);
    tn_settings *st = resolve("ten_tiny", word);
    assert_ok(tn_ablate_prepare(st, d.path, path));
    assert_true(path[0] && access(path, F_OK) == 0);
    assert_ok(tn_settings_set(st, "data", path, "test"));
    assert_ok(tn_ablate_prepare(st, d.path, path)); /* prepared already */
    assert_string_equal(path, "");
    assert_ok(tn_settings_set(st, "data", "/nowhere/t.txt", "test"));
    assert_ok(tn_ablate_prepare(st, d.path, path));
    assert_string_equal(path, "");
    tn_settings_free(st);
    tn_ablate_sweep(d.path);
}

void tn_tests_ablate_scratch(tn_test_list *l)
{
    tn_test_add(l, images, NULL, "ablate: made-up images");
    tn_test_add(l, texts, NULL, "ablate: prepared text");
}
