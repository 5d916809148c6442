/* Reports of what runs recorded: runs made by hand, whole and damaged in turn; names and values with tags in them. */
#include "report/recorded/recorded.h"

#include "report/run_tail.h"
#include "tempdir.h"
#include "train/checkpoint/checkpoint.h"

#include <math.h>
#include <unistd.h>

static void write_in(const char *dir, const char *name, const char *text)
{
    char path[TN_PATH_BYTES];
    assert_ok(tn_path_join(dir, name, path, sizeof path));
    assert_ok(tn_file_write_atomic(path, text, strlen(text)));
}

static void write_json(const char *dir, const char *name, json_t *x)
{
    char *text = json_dumps(x, JSON_COMPACT);
    assert_non_null(text);
    write_in(dir, name, text);
    free(text);
    json_decref(x);
}

/* A checkpoint without tensors, as `version` of tenon would write it. */
static void make_checkpoint(const char *run, int64_t step, const char *version)
{
    char dir[TN_PATH_BYTES], name[TN_CKPT_NAME], hash[TN_HASH_BYTES];
    tn_ckpt_state st = { .step = step,
                         .batch = 2,
                         .length = 8,
                         .loss = 3,
                         .lr = 1e-3,
                         .grad_norm = 1,
                         .seconds = 10,
                         .working = 8,
                         .evaluating = 1,
                         .saving = 0.5,
                         .tokens_per_s = 1234,
                         .samples_per_s = NAN,
                         .planned_bytes = 5e6,
                         .peak_bytes = 9e6,
                         .utilisation = 0.25,
                         .guard = { .lr_factor = 1 },
                         .scaling = { .scale = 1 },
                         .settings = "0123",
                         .unit = "nats" };
    tn_scores_put(&st.now, "loss", NAN), tn_scores_put(&st.last, "loss", NAN), tn_scores_put(&st.best, "loss", NAN);
    assert_ok(tn_path_join(run, tn_ckpt_name(step, name), dir, sizeof dir));
    assert_ok(tn_dir_make(dir));
    json_t *state = tn__ckpt_state_json(&st);
    char *text = json_dumps(state, JSON_COMPACT);
    tn_ckpt_file file = { .name = "state.json", .bytes = strlen(text) };
    tn_hash_memory(text, strlen(text), file.hash);
    free(text);
    write_json(dir, "state.json", state);
    json_t *manifest = tn__ckpt_manifest_json(&st, &file, 1);
    assert_non_null(manifest);
    json_object_set_new(manifest, "tenon", json_string(version));
    json_object_del(manifest, "self");
    text = json_dumps(manifest, JSON_COMPACT | JSON_SORT_KEYS);
    tn_hash_memory(text, strlen(text), hash);
    free(text);
    json_object_set_new(manifest, "self", json_string(hash));
    write_json(dir, "manifest.json", manifest);
}

static const char lines[] =
    "{\"step\":10,\"loss\":3,\"step_ms\":4,\"stall_frac\":0.5,\"attn.forward_ms\":1,\"optimizer_ms\":2}\n"
    "{\"step\":20,\"loss\":2,\"heldout\":2.5,\"step_ms\":8,\"stall_frac\":0.25,\"attn.forward_ms\":3,"
    "\"attn.backward_ms\":5,\"<script>x.forward_ms\":0.5,\"op.linear.forward_ms\":9,\"optimizer_ms\":2}\n"
    "{\"step\":30,\"loss\":\"NaN\",\"heldout\":2.25}\n";

static const char *make_run(tn_tempdir *d, const char *name)
{
    const char *dir = tn_tempdir_file(d, name);
    assert_ok(tn_dir_make(dir));
    write_in(dir, "config.yaml",
             "# A run of tenon: its settings\nmodel: gpt\ndata: <script>alert(1)</script>.txt\n"
             "train:\n  steps: 40\n");
    write_in(dir, "metrics.jsonl", lines);
    make_checkpoint(dir, 20, TN_VERSION);
    return dir;
}

static char *written(const tn_recorded *r, tn_status (*write)(const tn_recorded *r, FILE *out))
{
    char *text = NULL;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);
    assert_non_null(f);
    assert_ok(write(r, f));
    fclose(f);
    return text;
}

static double number_of(const tn_recorded *r, const char *name, size_t i)
{
    for (size_t k = 0; k < r->n_numbers; k++)
        if (strcmp(r->number[k].name, name) == 0) return r->number[k].value[i];
    return NAN;
}

/* Why `what` is missing, or "". */
static const char *why_of(const tn_recorded *r, const char *what)
{
    for (size_t k = 0; k < r->n_missing; k++)
        if (strstr(r->missing[k].what, what)) return r->missing[k].why;
    return "";
}

static void one_run(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_arena arena = { 0 };
    tn_recorded r;
    tn_tempdir_make_quick(&d);
    const char *dir = make_run(&d, "r<script>");
    assert_ok(tn_recorded_read(&dir, 1, NULL, &arena, &r));
    assert_true(number_of(&r, "speed", 0) == 1234 && number_of(&r, "memory planned", 0) == 5);
    assert_true(number_of(&r, "time of a step", 0) == 6 && number_of(&r, "utilisation", 0) == 25);
    assert_true(number_of(&r, "training loss, last", 0) == 2);         /* the last that is a number */
    assert_true(r.run[0].timed && r.run[0].time.part[1].seconds == 2); /* a quarter of 8 s */
    assert_true(fabs(r.run[0].time.part[4].seconds - 0.5) < 1e-9);
    assert_int_equal(r.run[0].n_parts, 3); /* ops are no components; the longest first */
    assert_string_equal(r.run[0].part[0].name, "attn");
    assert_true(r.run[0].part[0].forward_ms == 2 && r.run[0].part[0].backward_ms == 5);
    assert_true(isnan(r.run[0].part[1].backward_ms) && r.run[0].part[1].forward_ms == 2);
    assert_int_equal(r.n_missing, 1);
    assert_non_null(strstr(why_of(&r, "memory map"), "--recorded"));
    assert_int_equal(r.curves.n, 1);
    char *page = written(&r, tn_recorded_page), *text = written(&r, tn_recorded_text);
    assert_null(strstr(page, "<script"));
    assert_non_null(strstr(page, "<td>&lt;script&gt;alert(1)&lt;/script&gt;.txt</td>"));
    assert_non_null(strstr(page, "r&lt;script&gt;</h1>"));
    assert_non_null(strstr(page, "<td>&lt;script&gt;x</td>"));
    assert_null(strstr(text, " <script"));
    assert_non_null(strstr(text, "| speed, tokens/s | 1234 |\n"));
    assert_non_null(strstr(text, "step 30 of 40, stopped\n"));
    free(page), free(text);
    tn_arena_free(&arena);
    tn_tempdir_remove_all(&d);
}

/* What is damaged or not there is a row, and the rest is there. */
static void damaged(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_arena arena = { 0 };
    tn_recorded r;
    tn_tempdir_make_quick(&d);
    const char *dir = make_run(&d, "r");
    make_checkpoint(dir, 30, "9.9.9");
    assert_ok(tn_recorded_read(&dir, 1, "no such key", &arena, &r));
    assert_non_null(strstr(why_of(&r, "memory map"), "no such key; tenon 9.9.9, which wrote the run, measures it"));
    char *text = written(&r, tn_recorded_text);
    assert_non_null(strstr(text, "; written by tenon 9.9.9, this is "));
    free(text);
    write_in(tn_tempdir_file(&d, "r/step-30"), "manifest.json", "{\"format\":7}");
    assert_ok(tn_recorded_read(&dir, 1, NULL, &arena, &r));
    assert_true(r.run[0].timed && r.run[0].time.step == 20);
    assert_non_null(strstr(why_of(&r, "after step 20"), "format 7 and this tenon reads up to 1: use a newer tenon"));
    write_in(tn_tempdir_file(&d, "r/step-20"), "state.json", "{");
    write_in(dir, "config.yaml", "# A run of tenon: its settings\nmodel: [gpt\n");
    write_in(dir, "metrics.jsonl", "{\"step\":10,\"loss\":NaN}\n{\"step\":10,\"loss\":3,\"memory_mb\":7}\nNaN\n{\"ste");
    assert_ok(tn_recorded_read(&dir, 1, NULL, &arena, &r));
    assert_true(!r.run[0].timed && r.run[0].info.state == TN_RUN_DAMAGED && number_of(&r, "memory at most", 0) == 7);
    assert_int_equal(r.run[0].info.step, 10);
    assert_non_null(strstr(why_of(&r, "settings of"), "config.yaml:"));
    assert_non_null(strstr(why_of(&r, "shares of the time"), "use a newer tenon"));
    assert_non_null(strstr(why_of(&r, "times of components"), "log.level=performance"));
    assert_non_null(strstr(why_of(&r, "parts of the learning curve"), "2 lines of "));
    assert_int_equal(r.curves.n, 1);
    assert_int_equal(unlink(tn_tempdir_file(&d, "r/metrics.jsonl")), 0);
    assert_ok(tn_recorded_read(&dir, 1, NULL, &arena, &r));
    assert_non_null(strstr(why_of(&r, "learning curve of"), "metrics.jsonl"));
    char *page = written(&r, tn_recorded_page);
    assert_non_null(strstr(page, "<h2>What is missing</h2>"));
    assert_null(strstr(page, "<svg"));
    free(page);
    tn_arena_free(&arena);
    tn_tempdir_remove_all(&d);
}

/* What a terminal would act on, in a setting, a name and a version of a file: nothing of it is printed. */
static void controls(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_arena arena = { 0 };
    tn_recorded r;
    tn_tempdir_make_quick(&d);
    const char *dir = make_run(&d, "r");
    make_checkpoint(dir, 30,
                    "9\x1b[2J\xc2\x9b"
                    "9");
    write_in(dir, "config.yaml",
             "# A run of tenon: its settings\nmodel: \"g\\e[31m\"\npreset: \"p\\x7f\"\ndata: \"t\\e[2J.txt\"\n");
    write_in(dir, "metrics.jsonl", "{\"step\":10,\"loss\":3,\"a\\u009b\\u007fb.forward_ms\":1,\"optimizer_ms\":2}\n");
    assert_ok(tn_recorded_read(&dir, 1, NULL, &arena, &r));
    char *text = written(&r, tn_recorded_text), *page = written(&r, tn_recorded_page);
    for (int i = 0; i < 2; i++) {
        const char *s = i ? page : text;
        assert_null(strpbrk(s, "\x1b\x7f"));
        assert_null(strstr(s, "\xc2\x9b"));
        assert_non_null(strstr(s, "t?[2J.txt"));
        assert_non_null(strstr(s, "a???b"));
        assert_non_null(strstr(s, "written by tenon 9?[2J??9"));
    }
    free(text), free(page);
    tn_arena_free(&arena);
    tn_tempdir_remove_all(&d);
}

static void two_runs(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_arena arena = { 0 };
    tn_recorded r;
    tn_tempdir_make_quick(&d);
    const char *dirs[] = { make_run(&d, "a"), make_run(&d, "b") };
    write_in(dirs[0], "metrics.jsonl", "{\"step\":10,\"loss\":3,\"step_ms\":40}\n");
    assert_ok(tn_recorded_read(dirs, 2, NULL, &arena, &r));
    assert_true(number_of(&r, "time of a step", 0) == 40 && number_of(&r, "time of a step", 1) == 6);
    assert_int_equal(r.curves.n, 2);
    char *text = written(&r, tn_recorded_text);
    assert_non_null(strstr(text, "| time of a step, ms | 40 | 6 |\n"));
    free(text);
    assert_string_equal(why_of(&r, "learning curve"), "");
    write_in(dirs[1], "metrics.jsonl",
             "{\"step\":10,\"loss\":3,\"step_ms\":6}\nnot a line\n{\"step\":20,\"loss\":2}\n");
    assert_ok(tn_recorded_read(dirs, 2, NULL, &arena, &r));
    char what[300];
    snprintf(what, sizeof what, "learning curve of %s", dirs[1]); /* not of the first, which is whole */
    assert_non_null(strstr(why_of(&r, what), "line 2 of "));
    assert_int_equal(unlink(tn_tempdir_file(&d, "a/metrics.jsonl")), 0); /* the other's curve stays */
    assert_ok(tn_recorded_read(dirs, 2, NULL, &arena, &r));
    assert_true(r.curves.n == 1 && r.curves.run[0].dir == dirs[1]);
    assert_true(isnan(number_of(&r, "time of a step", 0)) && number_of(&r, "time of a step", 1) == 6);
    tn_arena_free(&arena);
    tn_tempdir_remove_all(&d);
}

/* A file that begins with a terabyte which nobody wrote: who reads it from its beginning does not come back. */
static void tail_is_bounded(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_tempdir_make_quick(&d);
    const char *dir = make_run(&d, "r"), *path = tn_tempdir_file(&d, "r/metrics.jsonl");
    assert_int_equal(truncate(path, (off_t)1 << 40), 0);
    FILE *f = fopen(path, "a");
    assert_non_null(f);
    for (int i = 0; i < 3 * TN_RUN_TAIL_LINES; i++) fprintf(f, "\n{\"step\":%d,\"stall_frac\":0.125}", i);
    fputs("\nnot a line\n{\"step\":", f);
    fclose(f);
    json_t *tail = tn_run_tail(dir);
    assert_int_equal(json_array_size(tail), TN_RUN_TAIL_LINES - 1);
    assert_true(tn_run_tail_last(tail, "step") == 3 * TN_RUN_TAIL_LINES - 1);
    assert_true(tn_run_tail_mean(tail, "stall_frac") == 0.125 && isnan(tn_run_tail_mean(tail, "nothing")));
    json_decref(tail);
    tn_run_time t;
    assert_ok(tn_run_time_read(dir, &t));
    assert_true(t.part[1].seconds == 1);
    tn_tempdir_remove_all(&d);
}

void tn_tests_recorded(tn_test_list *l)
{
    tn_test_add(l, one_run, NULL, "recorded: a run");
    tn_test_add(l, damaged, NULL, "recorded: damaged runs, another version's");
    tn_test_add(l, controls, NULL, "recorded: control characters in files");
    tn_test_add(l, two_runs, NULL, "recorded: two runs");
    tn_test_add(l, tail_is_bounded, NULL, "recorded: the last lines of a long file");
}
