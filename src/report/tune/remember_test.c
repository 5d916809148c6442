/* Tuned settings on the disk: what the key depends on, and what is done with files that are not whole or not ours. */
#include "report/tune/remember.h"
#include "base/alloc.h"
#include "base/fs.h"
#include "testlib.h"
#include "train/run/train_settings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const here = "A processor, 2 cores";

static tn_tuned_key key_of(const char *target, const char *word, const char *machine, const char *version)
{
    tn_settings *st = NULL;
    const tn_model *m;
    tn_tuned_key k = { .name = "" };
    assert_ok(tn_settings_resolve(target, &word, word != NULL, &st, &m));
    assert_ok(tn_tuned_key_of(st, machine, version, &k));
    tn_settings_free(st);
    return k;
}

/* Another machine, version, model or shape is another key; what only names or schedules a run is not. */
static void keys(void **state)
{
    static const char *const same[] = { "run=runs/x",     "seed=7",       "train.steps=10",     "train.lr=0.5",
                                        "log.level=info", "ckpt.every=3", "train.eval_every=7", "train.from=x" };
    static const char *const other[] = { "dim=32",           "train.batch=3",        "train.context=77",
                                         "threads=1",        "plan.recompute=layer", "opt.scan=off",
                                         "plan.memory_gb=1", "compute=bf16",         "data=x.txt",
                                         "vocab=99",         "train.accumulate=2",   "train.dropout=0.1" };
    (void)state;
    const tn_tuned_key k = key_of("ten_tiny", NULL, here, "1.0");
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        assert_string_equal(key_of("ten_tiny", same[i], here, "1.0").name, k.name);
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        assert_string_not_equal(key_of("ten_tiny", other[i], here, "1.0").name, k.name);
    assert_string_not_equal(key_of("ten", NULL, here, "1.0").name, k.name);
    assert_string_not_equal(key_of("gpt_tiny", NULL, here, "1.0").name, k.name);
    assert_string_not_equal(key_of("ten_tiny", NULL, "A processor, 4 cores", "1.0").name, k.name);
    assert_string_not_equal(key_of("ten_tiny", NULL, "A processor, 2 cores, 8 GB", "1.0").name, k.name);
    assert_string_not_equal(key_of("ten_tiny", NULL, here, "1.1").name, k.name);
}

/* Not synced: there are hundreds. */
static void write_bytes(const char *path, const char *text, size_t bytes)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fwrite(text, 1, bytes, f) == bytes && fclose(f) == 0);
}

static void write_text(const char *path, const char *text) { write_bytes(path, text, strlen(text)); }

/* Processor and GPUs from files of /proc; control characters in them are text. */
static void machines(void **state)
{
    char dir[] = "/tmp/tn_tune_XXXXXX", path[512], a[TN_MACHINE_TEXT], b[TN_MACHINE_TEXT];
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/cpuinfo", dir);
    write_text(path, "processor : 0\nmodel name\t: A \033[1mprocessor\nflags : x\n");
    tn_machine_text(dir, 16.4e9, a);
    assert_true(strncmp(a, "A ?[1mprocessor, ", 17) == 0 && strstr(a, " cores, 16 GB"));
    assert_string_not_equal(tn_machine_text(dir, 8.2e9, b), a);
    assert_string_equal(tn_machine_text(dir, 16.3e9, b), a);
    snprintf(path, sizeof path, "%s/driver/nvidia/gpus/0000:01", dir);
    assert_ok(tn_dir_make(path));
    snprintf(path, sizeof path, "%s/driver/nvidia/gpus/0000:01/information", dir);
    write_text(path, "Model: \t NVIDIA H200\nIRQ: 3\n");
    tn_machine_text(dir, 16.4e9, b);
    assert_true(strncmp(a, b, strlen(a)) == 0);
    assert_string_equal(b + strlen(a), ", NVIDIA H200");
    snprintf(path, sizeof path, "%s/cpuinfo", dir);
    write_text(path, "processor : 0\nCPU implementer : 0x41\nCPU part\t: 0xd40\n");
    assert_non_null(strstr(tn_machine_text(dir, 1e9, a), " 0x41 0xd40, "));
    snprintf(path, sizeof path, "rm -rf %s", dir);
    assert_int_equal(system(path), 0);
    assert_true(strlen(tn_machine_text("/nowhere", 0.5e9, a)) > 0);
}

typedef struct folder {
    char dir[32], path[512];
    tn_tuned_key key;
    char *text;
    size_t bytes;
} folder;

static void open_folder(folder *f)
{
    const tn_tuned t = {
        .word = { "plan.microbatches=2", "threads=auto" }, .n = 2, .gain = { 1.25, 1.2, 1.3, 12 }, .when = "2026-01-01"
    };
    snprintf(f->dir, sizeof f->dir, "/tmp/tn_tune_XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    f->key = key_of("ten_tiny", NULL, here, "1.0");
    assert_ok(tn_tuned_save(f->dir, &f->key, &t));
    snprintf(f->path, sizeof f->path, "%s/%s", f->dir, f->key.name);
    assert_ok(tn_file_read_all(f->path, 1 << 16, &f->text, &f->bytes));
}

static void close_folder(folder *f)
{
    char command[64];
    tn_free(f->text);
    snprintf(command, sizeof command, "rm -rf %s", f->dir);
    assert_int_equal(system(command), 0);
}

static void saved_and_loaded(void **state)
{
    folder f;
    tn_tuned t;
    bool found;
    (void)state;
    open_folder(&f);
    assert_ok(tn_tuned_load(f.dir, &f.key, &t, &found));
    assert_true(found && t.n == 2 && t.gain.n == 12 && t.gain.median == 1.25 && t.gain.low == 1.2);
    assert_string_equal(t.word[0], "plan.microbatches=2");
    assert_string_equal(t.word[1], "threads=auto");
    assert_string_equal(t.when, "2026-01-01");
    const tn_tuned_key other = key_of("ten_tiny", NULL, "Another processor, 2 cores", "1.0");
    assert_ok(tn_tuned_load(f.dir, &other, &t, &found));
    assert_false(found);
    close_folder(&f);
}

/* A file of another machine under our name. */
static void copied(void **state)
{
    folder f;
    tn_tuned t = { .n = 0 };
    char path[512];
    bool found;
    (void)state;
    open_folder(&f);
    const tn_tuned_key other = key_of("ten_tiny", NULL, "Another processor, 2 cores", "1.0");
    snprintf(path, sizeof path, "%s/%s", f.dir, other.name);
    write_text(path, f.text);
    assert_fails(tn_tuned_load(f.dir, &other, &t, &found), TN_BAD_FILE, "another machine");
    assert_false(found);
    close_folder(&f);
}

/* Cut anywhere it is refused; with a byte changed it is refused, or says what a whole one could say. */
static void damaged(void **state)
{
    folder f;
    tn_tuned t;
    bool found;
    (void)state;
    open_folder(&f);
    for (size_t n = 0; n + 1 < f.bytes; n++) {
        write_bytes(f.path, f.text, n);
        assert_int_equal(tn_tuned_load(f.dir, &f.key, &t, &found), TN_BAD_FILE);
        assert_false(found);
    }
    for (size_t n = 0; n < f.bytes; n++) {
        const char was = f.text[n];
        f.text[n] = (char)(was ^ (n % 2 ? 0x80 : 0x01));
        write_bytes(f.path, f.text, f.bytes);
        if (tn_tuned_load(f.dir, &f.key, &t, &found) == TN_OK)
            assert_true(found && t.n == 2 && isfinite(t.gain.median));
        f.text[n] = was;
    }
    close_folder(&f);
}

/* No file makes a setting of the run anything that tuning would not. */
static void other_settings(void **state)
{
    static const char *const words[] = { "model=/tmp/x.so", "train.lr=1",      "data=/etc/passwd",
                                         "threads=1;x",     "threads",         "=1",
                                         "run=x",           "threads=\\u0000", "plan.memory_gb=1" };
    folder f;
    tn_tuned t;
    bool found;
    (void)state;
    open_folder(&f);
    char *at = strstr(f.text, "threads=auto");
    assert_non_null(at);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char text[4096];
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - f.text), f.text, words[i], at + strlen("threads=auto"));
        write_text(f.path, text);
        assert_fails(tn_tuned_load(f.dir, &f.key, &t, &found), TN_BAD_FILE, "tenon tune");
        assert_false(found);
    }
    close_folder(&f);
}

void tn_tests_remember(tn_test_list *l)
{
    tn_test_add(l, keys, NULL, "tune memory: what the key depends on");
    tn_test_add(l, machines, NULL, "tune memory: the machine");
    tn_test_add(l, saved_and_loaded, NULL, "tune memory: saved and loaded");
    tn_test_add(l, copied, NULL, "tune memory: a file of another machine");
    tn_test_add(l, damaged, NULL, "tune memory: damaged files");
    tn_test_add(l, other_settings, NULL, "tune memory: settings that are not tuned");
}
