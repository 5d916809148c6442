/* A file that describes a model it does not hold is refused before memory is taken for the model: allocations beyond 8 MB
 * fail here, so that a model which was made first would be out of memory instead of a bad file. */
#include "train/checkpoint/weights_check.h"

#include "base/alloc.h"
#include "dataset_files.h"
#include "train/run/saved_model.h"
#include "train/run/session.h"

#include <tenon/tenon.h>

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *model, *settings;
} rows[] = {
    { "wide", "gpt", "dim=16384 heads=64 layers=2 vocab=256" },
    { "deep", "gpt", "dim=256 layers=1024 vocab=256" },
    { "many words", "gpt", "dim=64 layers=1 vocab=10000000" },
    { "long", "gpt", "dim=8 layers=1 vocab=256 shape=gpt2 train.context=100000000" },
    { "ten", "ten", "dim=8192 layers=64 vocab=256" },
    { "ten with all cells", "ten", "dim=4096 layers=1024 vocab=256 pattern=E n_cells=64" },
};
enum { ROWS = sizeof rows / sizeof *rows, MOST = 8 << 20 };

static void write_file(const char *path, size_t i)
{
    const tn_text_pair meta[] = { { "format", "tenon-model 1" },
                                  { "model", rows[i].model },
                                  { "settings", rows[i].settings } };
    const float x[4] = { 1, 2, 3, 4 };
    tn_safetensors_writer *w = NULL;
    assert_ok(tn_safetensors_writer_begin(path, meta, 3, &w));
    assert_ok(tn_safetensors_writer_declare(w, "embed", TN_F32, tn_shape(2, 2)));
    assert_ok(tn_safetensors_writer_put(w, "embed", x, sizeof x));
    assert_ok(tn_safetensors_writer_finish(w));
}

static void refused_first(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_tempdir_make(&d);
    char path[1024];
    snprintf(path, sizeof path, "%s", tn_tempdir_file(&d, "m.safetensors"));
    for (size_t i = 0; i < ROWS; i++) {
        tn_saved_model m = { .weights = "" };
        tenon_net *net = NULL;
        write_file(path, i);
        tn_alloc_fail_above(MOST);
        const tn_status found = tn_saved_model_find(NULL, path, NULL, 0, "best", &m);
        if (found != TN_BAD_FILE || !strstr(tn_error_text(), "embed is f32"))
            fail_msg("%s: %d, %s", rows[i].name, (int)found, tn_error_text());
        const int opened = (int)tenon_open(path, NULL, 0, &net);
        tn_alloc_fail_above(0);
        if (opened != (int)TENON_BAD_FILE)
            fail_msg("%s: tenon_open says %d, %s", rows[i].name, opened, tn_error_text());
    }
    tn_tempdir_clear(&d);
}

/* As eval opens it. */
static void refused_in_a_session(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_tempdir_make(&d);
    char path[1024];
    snprintf(path, sizeof path, "%s", tn_tempdir_file(&d, "m.safetensors"));
    write_file(path, 0);
    static const char *const words[] = { "model=gpt", "dim=16384", "heads=64", "layers=2", "vocab=256", "threads=1" };
    tn_session s = { 0 };
    const tn_session_options o = { .overrides = words, .n = 6, .evaluates = true, .weights = path };
    tn_alloc_fail_above(MOST);
    const tn_status st = tn_session_open_with(&o, &s);
    tn_alloc_fail_above(0);
    if (st != TN_BAD_FILE) fail_msg("%d, %s", (int)st, tn_error_text());
    tn_tempdir_clear(&d);
}

void tn_tests_weights_check(tn_test_list *l)
{
    tn_test_add(l, refused_first, NULL, "weights check: before memory is taken");
    tn_test_add(l, refused_in_a_session, NULL, "weights check: in a session");
}
