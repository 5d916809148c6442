/* Preparing: every input format gives the documents that were put in; splits, threads, repeats, leftovers and full disks. */
#include "data/prepare.h"

#include "base/hash.h"
#include "dataset_files.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <zlib.h>
#include <zstd.h>

static void put_gzip(const char *path, const void *data, size_t bytes)
{
    gzFile f = gzopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(gzwrite(f, data, (unsigned)bytes), (int)bytes);
    assert_int_equal(gzclose(f), Z_OK);
}

static void put_zstd(const char *path, const void *data, size_t bytes)
{
    const size_t room = ZSTD_compressBound(bytes);
    void *packed = malloc(room);
    const size_t n = ZSTD_compress(packed, room, data, bytes, 3);
    assert_false(ZSTD_isError(n));
    tn_put_file(path, packed, n);
    free(packed);
}

/* The documents of a split as text, joined by '|'. */
static void documents_text(const char *dir, tn_data_split split, char *out, size_t bytes)
{
    tn_dataset *d = NULL;
    size_t n = 0;
    assert_ok(tn_dataset_open(dir, NULL, &d));
    assert_ok(tn_dataset_verify(d));
    const tn_dataset_counts c = tn_dataset_count(d, split);
    for (uint64_t i = 0; i < c.documents; i++) {
        uint64_t start, tokens;
        int32_t id;
        assert_ok(tn_dataset_document(d, split, i, &start, &tokens));
        assert_true(n + tokens + 2 < bytes);
        if (i) out[n++] = '|';
        for (uint64_t k = 0; k < tokens; k++) {
            assert_ok(tn_dataset_read(d, split, start + k, 1, &id));
            out[n++] = (char)id;
        }
    }
    out[n] = 0;
    assert_int_equal(c.text_bytes, c.tokens);
    tn_dataset_close(d);
}

typedef struct text_case {
    const char *name, *file, *content, *settings, *documents; /* documents: NULL where it is refused */
} text_case;

#define WIKI " \n = One = \n \n text a \n = not a title = \n = = Part = = \n \n more \n \n = Two = \n \n text b \n"

static const text_case texts[] = {
    { "txt", "a.txt", "one\ntwo\n", "doc_bytes=0", "one\ntwo\n" },
    { "line", "a.txt", "one\n\ntwo\r\nthree", "doc_sep=line", "one|two\r|three" },
    { "blank", "a.txt", "\n\na\nb\n \nc\n\n\n\nd", "doc_sep=blank", "a\nb\n|c\n|d" },
    { "separator", "a.txt", "x\n<|endoftext|>\r\ny <|endoftext|>\n<|endoftext|>\n<|endoftext|>\nz",
      "doc_sep=<|endoftext|>", "x\n|y <|endoftext|>\n|z" },
    { "wikitext", "a.txt", WIKI, "doc_sep=wikitext",
      " \n = One = \n \n text a \n = not a title = \n = = Part = = \n \n more \n \n| = Two = \n \n text b \n" },
    { "cut", "a.txt", "aaaa\nbbbb\ncccc\ndd", "doc_bytes=8", "aaaa\nbbbb\n|cccc\ndd" },
    { "jsonl", "a.jsonl", "{\"text\":\"a\\nb\",\"n\":1}\n\n{\"n\":2,\"text\":\"\\u00e9\"}\n\"bare\"", "",
      "a\nb|\xc3\xa9|bare" },
    { "other key", "a.jsonl", "{\"body\":\"a\"}\n{\"body\":\" \"}\n{\"body\":\"b\"}\n", "text_key=body", "a|b" },
    { "json", "a.json", " [ \"a, ]\", {\"text\" : \"b\\\"\"} ,\"c\" ]\n", "", "a, ]|b\"|c" },
    { "format said", "a.dat", "[\"a\"]", "format=json", "a" },
    { "no name", "a", "plain\n", "doc_bytes=0", "plain\n" },
    { "utf-8 kept", "a.txt", "\xc3\xa9\xff\x01", "doc_bytes=0", "\xc3\xa9\xff\x01" },
};

static void text_formats(void **state)
{
    const text_case *c = *state;
    tn_tempdir d;
    char in[1024], out[1024], settings[256], got[512];
    const char *const packs[] = { "", ".gz", ".zst" };
    tn_tempdir_make(&d);
    for (int k = 0; k < 3; k++) {
        snprintf(in, sizeof in, "%s/%s%s", d.path, c->file, packs[k]);
        snprintf(out, sizeof out, "%s/out%d", d.path, k);
        snprintf(settings, sizeof settings, "valid_frac=0 %s", c->settings);
        if (k == 0) tn_put_text(in, c->content);
        if (k == 1) put_gzip(in, c->content, strlen(c->content));
        if (k == 2) put_zstd(in, c->content, strlen(c->content));
        assert_ok(tn_prepare_try(in, out, settings, NULL));
        documents_text(out, TN_TRAIN, got, sizeof got);
        assert_string_equal(got, c->documents);
    }
    tn_tempdir_clear(&d);
}

/* The names and hashes of all files of a folder, in one hash. */
static void folder_hash(const char *dir, char hex[TN_HASH_BYTES])
{
    struct dirent **list;
    tn_hash *h;
    char path[1300], one[TN_HASH_BYTES];
    assert_ok(tn_hash_begin(&h));
    const int n = scandir(dir, &list, NULL, alphasort);
    assert_true(n > 2);
    for (int i = 0; i < n; i++) {
        if (list[i]->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s", dir, list[i]->d_name);
            assert_ok(tn_hash_file(path, one));
            tn_hash_add(h, list[i]->d_name, strlen(list[i]->d_name));
            tn_hash_add(h, one, sizeof one);
        }
        free(list[i]);
    }
    free(list);
    tn_hash_text(h, hex);
    tn_hash_free(h);
}

/* A large text in one piece, cut for the threads, and many shards: always the same bytes. */
static void threads_do_not_matter(void **state)
{
    (void)state;
    tn_tempdir d;
    char in[1024], out[1024], settings[128], first[TN_HASH_BYTES], hex[TN_HASH_BYTES];
    const size_t n = 3500000;
    char *text = malloc(n);
    tn_tempdir_make(&d);
    for (size_t i = 0; i < n; i++)
        text[i] = i % 7 == 6 ? ' ' : i % 400000 == 399999 ? '\n' : (char)('a' + i * i / 7 % 26);
    snprintf(in, sizeof in, "%s/in", d.path);
    assert_int_equal(mkdir(in, 0777), 0);
    snprintf(in, sizeof in, "%s/in/a.txt", d.path);
    tn_put_file(in, text, n);
    snprintf(in, sizeof in, "%s/in/b.jsonl", d.path);
    tn_put_documents(in, 300);
    snprintf(in, sizeof in, "%s/in", d.path);
    for (int threads = 1; threads <= 3; threads++) {
        snprintf(out, sizeof out, "%s/out%d", d.path, threads);
        snprintf(settings, sizeof settings, "threads=%d valid_frac=0.2 test_frac=0.1 shard_tokens=5000", threads);
        assert_ok(tn_prepare_try(in, out, settings, NULL));
        folder_hash(out, threads == 1 ? first : hex);
        if (threads > 1) assert_string_equal(first, hex);
    }
    tn_dataset *data = NULL;
    assert_ok(tn_dataset_open(out, NULL, &data));
    uint64_t bytes = 0, documents = 0;
    for (tn_data_split k = TN_TRAIN; k <= TN_TEST; k++) {
        bytes += tn_dataset_count(data, k).text_bytes;
        documents += tn_dataset_count(data, k).documents;
        assert_true(tn_dataset_count(data, k).documents > 0);
    }
    assert_int_equal(documents, 301);
    assert_true(bytes > n);
    tn_dataset_close(data);
    free(text);
    tn_tempdir_clear(&d);
}

static void splits_by_document(void **state)
{
    (void)state;
    tn_tempdir d;
    char in[1024], out[2][1024];
    static char text[2][3][1 << 18];
    tn_tempdir_make(&d);
    snprintf(in, sizeof in, "%s/d.jsonl", d.path);
    tn_put_documents(in, 400);
    for (int seed = 0; seed < 2; seed++) {
        char settings[64];
        snprintf(out[seed], sizeof out[seed], "%s/out%d", d.path, seed);
        snprintf(settings, sizeof settings, "valid_frac=0.1 test_frac=0.1 seed=%d", seed);
        assert_ok(tn_prepare_try(in, out[seed], settings, NULL));
        for (tn_data_split k = TN_TRAIN; k <= TN_TEST; k++)
            documents_text(out[seed], k, text[seed][k], sizeof text[0][0]);
    }
    assert_string_not_equal(text[0][TN_VALID], text[1][TN_VALID]);
    for (tn_data_split k = TN_VALID; k <= TN_TEST; k++) { /* about a tenth, and none of it in train */
        int n = 1;
        for (const char *p = text[0][k]; *p; p++) n += *p == '|';
        assert_in_range(n, 20, 65);
        char head[24];
        snprintf(head, sizeof head, "%.14s", text[0][k]);
        *strchr(head, ':') = 0;
        strcat(head, ":");
        assert_null(strstr(text[0][TN_TRAIN], head));
    }
    tn_tempdir_clear(&d);
}

static void explicit_splits(void **state)
{
    (void)state;
    tn_tempdir d;
    char in[1024], out[1024], settings[2100], got[64];
    tn_tempdir_make(&d);
    snprintf(out, sizeof out, "%s/out", d.path);
    snprintf(in, sizeof in, "%s/v.txt", d.path);
    tn_put_text(in, "valid text");
    snprintf(in, sizeof in, "%s/t.txt", d.path);
    tn_put_text(in, "test text");
    snprintf(in, sizeof in, "%s/a.txt", d.path);
    tn_put_text(in, "train text");
    snprintf(settings, sizeof settings, "valid=%s/v.txt test=%s/t.txt", d.path, d.path);
    assert_ok(tn_prepare_try(in, out, settings, NULL));
    static const char *const want[] = { "train text", "valid text", "test text" };
    for (tn_data_split k = TN_TRAIN; k <= TN_TEST; k++) {
        documents_text(out, k, got, sizeof got);
        assert_string_equal(got, want[k]);
    }
    tn_tempdir_clear(&d);
}

static void second_run_is_up_to_date(void **state)
{
    (void)state;
    tn_tempdir d;
    char in[1024], out[1024], path[1100], a[TN_HASH_BYTES], b[TN_HASH_BYTES];
    tn_prepare_report r;
    tn_tempdir_make(&d);
    snprintf(in, sizeof in, "%s/d.jsonl", d.path);
    snprintf(out, sizeof out, "%s/out", d.path);
    tn_put_documents(in, 40);
    assert_ok(tn_prepare_try(in, out, "valid_frac=0.2", &r));
    assert_false(r.up_to_date);
    folder_hash(out, a);
    assert_ok(tn_prepare_try(in, out, "valid_frac=0.2 threads=2", &r));
    assert_true(r.up_to_date);
    assert_ok(tn_prepare_try(in, out, "valid_frac=0.3", &r)); /* another setting */
    assert_false(r.up_to_date);
    folder_hash(out, b);
    assert_string_not_equal(a, b);
    assert_ok(tn_prepare_try(in, out, "valid_frac=0.2", &r));
    folder_hash(out, b);
    assert_string_equal(a, b);
    snprintf(path, sizeof path, "%s/train-00000.bin", out); /* a shard that was cut */
    assert_int_equal(truncate(path, 300), 0);
    assert_ok(tn_prepare_try(in, out, "valid_frac=0.2", &r));
    assert_false(r.up_to_date);
    tn_put_documents(in, 41); /* another input */
    assert_ok(tn_prepare_try(in, out, "valid_frac=0.2", &r));
    assert_false(r.up_to_date);
    assert_int_equal(tn_tempdir_entries(&d, false), 2); /* no temporaries */
    tn_tempdir_clear(&d);
}

static void cleans_leftovers_and_keeps_others(void **state)
{
    (void)state;
    tn_tempdir d;
    char in[1024], out[1024], path[1100];
    tn_tempdir_make(&d);
    snprintf(in, sizeof in, "%s/a.txt", d.path);
    snprintf(out, sizeof out, "%s/out", d.path);
    tn_put_text(in, "some text\n");
    snprintf(path, sizeof path, "%s/.tmp-out-12345", d.path); /* what a killed process leaves */
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(path, sizeof path, "%s/.tmp-out-12345/train-00000.bin", d.path);
    tn_put_text(path, "half");
    snprintf(path, sizeof path, "%s/.tmp-out-mine", d.path); /* not ours */
    assert_int_equal(mkdir(path, 0777), 0);
    assert_ok(tn_prepare_try(in, out, "valid_frac=0", NULL));
    assert_int_equal(tn_tempdir_entries(&d, false), 3);
    snprintf(path, sizeof path, "%s/.tmp-out-12346", d.path); /* also by a run that has nothing else to do */
    assert_int_equal(mkdir(path, 0777), 0);
    assert_ok(tn_prepare_try(in, out, "valid_frac=0", NULL));
    assert_int_equal(tn_tempdir_entries(&d, false), 3);
    snprintf(path, sizeof path, "%s/notes.txt", out); /* a folder with something else in it is left alone */
    tn_put_text(path, "mine");
    assert_fails(tn_prepare_try(in, out, "valid_frac=0 seed=5", NULL), TN_USAGE, "/notes.txt was not written by tenon");
    assert_fails(tn_prepare_try(in, in, "valid_frac=0 seed=5", NULL), TN_DISK, "it is a file");
    assert_int_equal(access(path, R_OK), 0);
    tn_tempdir_clear(&d);
}

/* No file may grow beyond 64 KiB: TN_DISK, the old data set untouched, nothing beside it. In a process of its own. */
static void full_disk(void **state)
{
    (void)state;
    tn_tempdir d;
    char in[1024], out[1024], a[TN_HASH_BYTES], b[TN_HASH_BYTES];
    tn_tempdir_make(&d);
    snprintf(in, sizeof in, "%s/d.jsonl", d.path);
    snprintf(out, sizeof out, "%s/out", d.path);
    tn_put_documents(in, 20);
    assert_ok(tn_prepare_try(in, out, "valid_frac=0", NULL));
    folder_hash(out, a);
    tn_put_documents(in, 2000);
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 64 << 10, 64 << 10 });
        const char *list = in;
        tn_settings *st = NULL;
        tn_prepare_report r;
        char key[1100];
        snprintf(key, sizeof key, "out=%s", out);
        if (tn_prepare_settings(&st) != TN_OK || tn_settings_override(st, key) != TN_OK) _exit(99);
        _exit((int)tn_prepare_run(&(tn_prepare){ .inputs = &list, .n = 1, .settings = st }, &r));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), TN_DISK);
    folder_hash(out, b);
    assert_string_equal(a, b);
    assert_int_equal(tn_tempdir_entries(&d, false), 2);
    tn_tempdir_clear(&d);
}

static bool stop_now(void *ctx)
{
    int *left = ctx;
    return --*left < 0;
}

static void interrupted(void **state)
{
    (void)state;
    tn_tempdir d;
    char in[1024], key[1100];
    const char *list = in;
    tn_settings *st = NULL;
    tn_prepare_report r;
    int left = 0;
    tn_tempdir_make(&d);
    snprintf(in, sizeof in, "%s/d.jsonl", d.path);
    tn_put_documents(in, 20);
    snprintf(key, sizeof key, "out=%s/out", d.path);
    assert_ok(tn_prepare_settings(&st));
    assert_ok(tn_settings_override(st, key));
    assert_int_equal(
        tn_prepare_run(&(tn_prepare){ .inputs = &list, .n = 1, .settings = st, .ctx = &left, .interrupted = stop_now },
                       &r),
        TN_INTERRUPTED);
    assert_int_equal(tn_tempdir_entries(&d, false), 1);
    tn_settings_free(st);
    tn_tempdir_clear(&d);
}

/* llm.c puts its end-of-text token before documents, nanoGPT behind them: the same data set. */
static void token_files(void **state)
{
    (void)state;
    tn_tempdir d;
    char in[1024], out[1024];
    static const uint16_t before[] = { 50256, 1, 2, 3, 50256, 4, 50256, 5, 6 },
                          after[] = { 1, 2, 3, 50256, 4, 50256, 5, 6, 50256 };
    static const uint32_t wide[] = { 128000, 1, 2, 128255 };
    int32_t header[256] = { 20240520, 1, 9 }, ids[12];
    tn_dataset *data = NULL;
    tn_tempdir_make(&d);
    for (int k = 0; k < 3; k++) {
        unsigned char file[1024 + 64];
        if (k == 2) memcpy(header, (int32_t[]){ 20240801, 7, 4 }, 12);
        memcpy(file, header, 1024);
        if (k == 0) memcpy(file + 1024, before, sizeof before);
        if (k == 2) memcpy(file + 1024, wide, sizeof wide);
        snprintf(in, sizeof in, "%s/%d.bin", d.path, k);
        snprintf(out, sizeof out, "%s/out%d", d.path, k);
        if (k == 1) tn_put_file(in, after, sizeof after);
        else tn_put_file(in, file, 1024 + (k ? sizeof wide : sizeof before));
        assert_ok(tn_prepare_try(in, out, "valid_frac=0", NULL));
        assert_ok(tn_dataset_open(out, NULL, &data));
        assert_ok(tn_dataset_verify(data));
        const tn_dataset_counts c = tn_dataset_count(data, TN_TRAIN);
        assert_int_equal(c.documents, k == 2 ? 1 : 3);
        assert_int_equal(c.tokens, k == 2 ? 4 : 9);
        assert_int_equal(c.text_bytes, 0);
        assert_int_equal(tn_dataset_about(data)->eot, k == 2 ? 128000 : 50256);
        assert_int_equal(tn_dataset_about(data)->item, k == 2 ? TN_ITEM_U32 : TN_ITEM_U16);
        assert_ok(tn_dataset_read(data, TN_TRAIN, 0, c.tokens, ids));
        for (uint64_t i = 0; i < c.tokens; i++) assert_int_equal(ids[i], k == 2 ? (int32_t)wide[i] : before[i]);
        tn_dataset_close(data);
    }
    tn_tempdir_clear(&d);
}

static void raw_text_opens(void **state)
{
    (void)state;
    tn_tempdir d;
    char in[1024];
    int32_t id;
    tn_dataset *data = NULL;
    tn_tempdir_make(&d);
    snprintf(in, sizeof in, "%s/d.jsonl", d.path);
    tn_put_documents(in, 50);
    assert_ok(tn_dataset_open(d.path, &(tn_dataset_options){ .holdout_frac = 0.3 }, &data)); /* the folder */
    assert_int_equal(tn_dataset_count(data, TN_TRAIN).documents + tn_dataset_count(data, TN_VALID).documents, 50);
    assert_true(tn_dataset_count(data, TN_VALID).documents > 3);
    assert_ok(tn_dataset_read(data, TN_VALID, 0, 1, &id));
    assert_int_equal(id, 'd');
    tn_dataset_close(data);
    snprintf(in, sizeof in, "%s/t.txt.gz", d.path);
    put_gzip(in, "0123456789", 10);
    assert_ok(tn_dataset_open(in, &(tn_dataset_options){ .holdout_frac = 0.3 }, &data));
    assert_int_equal(tn_dataset_count(data, TN_TRAIN).tokens, 7);
    assert_int_equal(tn_dataset_count(data, TN_VALID).tokens, 3);
    assert_ok(tn_dataset_read(data, TN_VALID, 0, 1, &id));
    assert_int_equal(id, '7');
    assert_fails(tn_dataset_read(data, TN_VALID, 2, 2, &id), TN_USAGE, "tokens 2 to 4 of 3");
    assert_fails(tn_dataset_document(data, TN_TEST, 0, &(uint64_t){ 0 }, &(uint64_t){ 0 }), TN_USAGE,
                 "document 0 of 0");
    tn_dataset_close(data);
    tn_tempdir_clear(&d);
}

static void no_memory(void **state)
{
    (void)state;
    tn_tempdir d;
    char in[1024], out[1024];
    tn_tempdir_make(&d);
    snprintf(in, sizeof in, "%s/d.jsonl", d.path);
    snprintf(out, sizeof out, "%s/out", d.path);
    tn_put_documents(in, 5);
    tn_settings *st = NULL;
    char key[1100];
    const char *list = in;
    tn_prepare_report r;
    snprintf(key, sizeof key, "out=%s", out);
    assert_ok(tn_prepare_settings(&st));
    assert_ok(tn_settings_override(st, key));
    uint64_t n = 1;
    for (;; n++) { /* the n-th allocation fails */
        tn_alloc_fail_at(n);
        const tn_status s = tn_prepare_run(&(tn_prepare){ .inputs = &list, .n = 1, .settings = st }, &r);
        tn_alloc_fail_at(0);
        if (s == TN_OK) break;
        assert_int_equal(s, TN_MEMORY);
        assert_int_equal(tn_tempdir_entries(&d, false), 1);
    }
    assert_true(n > 10);
    tn_settings_free(st);
    tn_tempdir_clear(&d);
}

void tn_tests_prepare(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        tn_test_add(l, text_formats, &texts[i], "prepare: %s, plain, gz and zst", texts[i].name);
    tn_test_add(l, threads_do_not_matter, NULL, "prepare: any number of threads gives the same files");
    tn_test_add(l, splits_by_document, NULL, "prepare: splits by document and seed");
    tn_test_add(l, explicit_splits, NULL, "prepare: valid= and test= files");
    tn_test_add(l, second_run_is_up_to_date, NULL, "prepare: a second run is up to date");
    tn_test_add(l, cleans_leftovers_and_keeps_others, NULL, "prepare: leftovers go, other files stay");
    tn_test_add(l, full_disk, NULL, "prepare: a full disk leaves nothing half-written");
    tn_test_add(l, interrupted, NULL, "prepare: an interrupt leaves nothing");
    tn_test_add(l, token_files, NULL, "prepare: token files of llm.c and nanoGPT");
    tn_test_add(l, raw_text_opens, NULL, "prepare: raw text opens without it");
    tn_test_add(l, no_memory, NULL, "prepare: out of memory at every allocation");
}
