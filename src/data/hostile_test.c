/* Files made to do harm, or merely damaged: each is refused with TN_BAD_FILE and one line that names the file, in little time
 * and memory, and nothing is left behind. All are made here; none is stored. */
#include "base/hash.h"
#include "data/loader.h"
#include "data/shard_format.h"
#include "dataset_files.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <zlib.h>
#include <zstd.h>

/* --- inputs of prepare ------------------------------------------------------------------------------------------------------ */

typedef struct hostile {
    const char *name, *file;
    const void *data;
    size_t bytes;
    const char *settings, *says;
} hostile;

#define BYTES(s) (s), sizeof(s) - 1
#define NPY(length, dict) "\x93NUMPY\x01\x00" length dict
#define CSV_LABELS "label_col=last"

static const hostile inputs[] = {
    /* JSON */
    { "jsonl that is cut", "a.jsonl", BYTES("{\"text\":\"a\"}\n{\"text\":\"b"), "", "line 2" },
    { "jsonl without the key", "a.jsonl", BYTES("{\"body\":\"a\"}\n"), "", "text_key" },
    { "jsonl with a number", "a.jsonl", BYTES("{\"text\":12}\n"), "", "line 1" },
    { "jsonl with bad UTF-8", "a.jsonl", BYTES("{\"text\":\"\xff\xfe\"}\n"), "", "line 1" },
    { "jsonl with control bytes in its error", "a.jsonl", BYTES("\x1b[31m\n"), "", "line 1" },
    { "jsonl of brackets", "a.jsonl", BYTES("[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\n"), "", "line 1" },
    { "json that is no list", "a.json", BYTES("{\"text\":\"a\"}"), "", "not a list" },
    { "json cut in a string", "a.json", BYTES("[\"abc\",\"de"), "", "cut short" },
    { "json cut in the list", "a.json", BYTES("[\"abc\""), "", "cut short" },
    { "json with more behind", "a.json", BYTES("[\"abc\"] x"), "", "follows the list" },
    { "json with a lone brace", "a.json", BYTES("[}"), "", "element 1" },
    { "json without commas", "a.json", BYTES("[\"a\" \"b\"]"), "", "element 1" },
    { "json ending in a backslash", "a.json", BYTES("[\"a\\"), "", "cut short" },
    /* packed files */
    { "gzip cut after its magic", "a.txt.gz", BYTES("\x1f\x8b"), "", "ends too early" },
    { "gzip with a bad method", "a.txt.gz", BYTES("\x1f\x8b\x09\x00\x00\x00\x00\x00\x00\x03\x01\x00"), "", "damaged" },
    { "zstd cut after its magic", "a.txt.zst", BYTES("\x28\xb5\x2f\xfd"), "", "ends too early" },
    { "zstd with an enormous window", "a.txt.zst", BYTES("\x28\xb5\x2f\xfd\x00\xf8\x00\x00\x00"), "", "damaged" },
    { "zstd with reserved bits", "a.txt.zst", BYTES("\x28\xb5\x2f\xfd\x08\x00\x01\x00\x00"), "", "damaged" },
    /* tokens */
    { "llm.c header cut", "a.bin", BYTES("\x88\xd8\x34\x01\x01\x00\x00\x00"), "", "inside its header" },
    { "tokens beyond the vocabulary", "a.bin", BYTES("\xff\xff\x01\x00"), "vocab=1000", "beyond the vocabulary" },
    { "tokens of an odd length", "a.bin", BYTES("\x01\x00\x01"), "", "last of its tokens" },
    /* npy */
    { "npy that is text", "a.npy", BYTES("hello, this is no array"), "", "not a .npy" },
    { "npy cut in its header", "a.npy", BYTES("\x93NUMPY\x01\x00\x76\x00{'descr'"), "", "cut short" },
    { "npy with a header of 4 GiB", "a.npy", BYTES("\x93NUMPY\x02\x00\xff\xff\xff\xff{}"), "", "too long" },
    { "npy by columns", "a.npy", BYTES(NPY("\x3b\x00", "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }\n")),
      "", "by columns" },
    { "npy of objects", "a.npy", BYTES(NPY("\x3a\x00", "{'descr': '|O', 'fortran_order': False, 'shape': (2,2), }\n")),
      "", "its type" },
    { "npy of 2^60 samples", "a.npy",
      BYTES(NPY("\x4c\x00", "{'descr': '<f4', 'fortran_order': False, 'shape': (1152921504606846976, 4)}\n\n")), "",
      "" },
    { "npy with an overflowing shape", "a.npy",
      BYTES(NPY("\x50\x00", "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4294967296, 4294967296)}\n\n")), "",
      "shape" },
    { "npy of nine dimensions", "a.npy",
      BYTES(NPY("\x4f\x00", "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1)}\n\n")), "",
      "8 dimensions" },
    { "npy with a zero dimension", "a.npy",
      BYTES(NPY("\x3c\x00", "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 0)}\n\n\n")), "", "shape" },
    { "npy without its numbers", "a.npy",
      BYTES(NPY("\x3c\x00", "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}\n\n\n")), "labels=LABELS",
      "cut short" },
    /* IDX */
    { "IDX that is cut", "x-ubyte", BYTES("\x00\x00\x08\x03\x00\x00"), "", "cut short" },
    { "IDX of an unknown type", "x-ubyte", BYTES("\x00\x00\x07\x01\x00\x00\x00\x01"), "", "not an IDX" },
    { "IDX of 255 dimensions", "x-ubyte",
      BYTES("\x00\x00\x08\xff"
            "aaaabbbbccccddddeeeeffffgggghhhhiiii"),
      "", "dimensions" },
    { "IDX of overflowing sizes", "x-ubyte", BYTES("\x00\x00\x08\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
      "", "shape" },
    { "IDX without its samples", "x-ubyte", BYTES("\x00\x00\x08\x02\x00\xff\xff\xff\x00\x00\x00\x04"), "labels=LABELS",
      "cut short" },
    { "IDX that goes on", "x-ubyte",
      BYTES("\x00\x00\x08\x02\x00\x00\x00\x02\x00\x00\x00\x01"
            "abc"),
      "labels=LABELS", "goes on" },
    { "IDX with fewer labels", "x-ubyte",
      BYTES("\x00\x00\x08\x02\x00\x00\x00\x03\x00\x00\x00\x01"
            "abc"),
      "labels=LABELS", "different numbers" },
    /* csv */
    { "csv that is empty", "a.csv", BYTES("\n\n"), "", "no rows" },
    { "csv with words", "a.csv", BYTES("1,2,0\n3,four,1\n"), "", ":2: field 2" },
    { "csv of uneven rows", "a.csv", BYTES("1,2,0\n3,4,5,1\n"), "", ":2: 4 fields" },
    { "csv of infinities", "a.csv", BYTES("1,2,0\n3,1e999,1\n"), "", ":2: field 2" },
    { "csv that begins with nan", "a.csv", BYTES("1,nan,0\n3,4,1\n"), "", ":1: field 2" },
    { "csv that begins with -Inf", "a.csv", BYTES("-Inf,2,0\n3,4,1\n"), "", ":1: field 1" },
    { "csv that begins with infinity", "a.csv", BYTES("1, INFINITY ,0\n3,4,1\n"), "", ":1: field 2" },
    { "csv that begins with 1e999", "a.csv", BYTES("1,1e999,0\n3,4,1\n"), "", ":1: field 2" },
    { "csv with a broken label", "a.csv", BYTES("1,2,0\n3,4,1.5\n"), "", "label 1.5" },
    { "csv with a negative label", "a.csv", BYTES("1,2,-1\n"), "", "label -1" },
    { "csv too large for u8", "a.csv", BYTES("1,256,0\n"), "dtype=u8", "use dtype=f32" },
    { "csv with NUL bytes", "a.csv", BYTES("1,2,0\n\0\0\0\n"), "", ":2: field 1" },
    /* nothing at all */
    { "an empty file", "a.txt", BYTES(""), "", "nothing to train on" },
    { "blank text", "a.txt", BYTES(" \n\t\n"), "", "nothing to train on" },
    { "an unknown binary", "a.xyz",
      BYTES("\x7f"
            "ELF\0\0\0"),
      "", "format=" },
};

static void refuses_input(void **state)
{
    const hostile *h = *state;
    tn_tempdir d;
    char in[1024], out[1024], settings[2048];
    tn_tempdir_make(&d);
    snprintf(in, sizeof in, "%s/%s", d.path, h->file);
    snprintf(out, sizeof out, "%s/out", d.path);
    tn_put_file(in, h->data, h->bytes);
    int files = 1;
    snprintf(settings, sizeof settings, "valid_frac=0 %s", h->settings);
    if (strstr(h->settings, "LABELS")) {
        char labels[1024];
        snprintf(labels, sizeof labels, "%s/labels-ubyte", d.path);
        tn_put_file(labels, BYTES("\x00\x00\x08\x01\x00\x00\x00\x02\x00\x01"));
        snprintf(settings, sizeof settings, "valid_frac=0 labels=%s", labels);
        files = 2;
    }
    assert_fails(tn_prepare_try(in, out, settings, NULL), TN_BAD_FILE, h->says);
    assert_non_null(strstr(tn_error_text(), strstr(h->says, "nothing to train") ? "inputs" : h->file));
    for (const char *p = tn_error_text(); *p; p++)
        assert_true((unsigned char)*p >= ' '); /* one line, fit for a terminal */
    assert_int_equal(tn_tempdir_entries(&d, false), files);
    tn_tempdir_clear(&d);
}

/* --- bombs ------------------------------------------------------------------------------------------------------------------ */

/* 200 megabytes of nothing in a small file. */
static size_t zstd_bomb(unsigned char **out)
{
    const size_t piece = 1 << 20, room = 4 << 20;
    char *zeros = calloc(1, piece);
    *out = malloc(room);
    ZSTD_CCtx *c = ZSTD_createCCtx();
    ZSTD_outBuffer o = { *out, room, 0 };
    for (int i = 0; i < 200; i++) {
        ZSTD_inBuffer in = { zeros, piece, 0 };
        assert_false(ZSTD_isError(ZSTD_compressStream2(c, &o, &in, i == 199 ? ZSTD_e_end : ZSTD_e_continue)));
    }
    ZSTD_freeCCtx(c);
    free(zeros);
    return o.pos;
}

static void refuses_bomb(void **state)
{
    const char *file = *state;
    tn_tempdir d;
    char in[1024], out[1024];
    unsigned char *bomb;
    struct rusage before, after;
    tn_tempdir_make(&d);
    snprintf(in, sizeof in, "%s/%s", d.path, file);
    snprintf(out, sizeof out, "%s/out", d.path);
    const size_t n = zstd_bomb(&bomb);
    tn_put_file(in, bomb, n);
    free(bomb);
    getrusage(RUSAGE_SELF, &before);
    assert_fails(tn_prepare_try(in, out, "valid_frac=0 threads=1", NULL), TN_BAD_FILE, file);
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < 300 << 10); /* KiB */
    assert_int_equal(tn_tempdir_entries(&d, false), 1);
    tn_tempdir_clear(&d);
}

/* --- prepared data sets ------------------------------------------------------------------------------------------------------- */

typedef struct prepared {
    tn_tempdir dir;
    char out[1024], shard[1100], manifest[1100];
    unsigned char *bytes; /* of the shard */
    size_t n;
} prepared;

static void prepared_make(prepared *p)
{
    char in[1024];
    tn_map m;
    tn_tempdir_make(&p->dir);
    snprintf(in, sizeof in, "%s/d.jsonl", p->dir.path);
    snprintf(p->out, sizeof p->out, "%s/out", p->dir.path);
    tn_put_documents(in, 6);
    assert_ok(tn_prepare_try(in, p->out, "valid_frac=0", NULL));
    snprintf(p->shard, sizeof p->shard, "%s/train-00000.bin", p->out);
    snprintf(p->manifest, sizeof p->manifest, "%s/dataset.json", p->out);
    assert_ok(tn_file_map(p->shard, &m));
    p->bytes = malloc(m.bytes);
    memcpy(p->bytes, m.data, m.bytes);
    p->n = m.bytes;
    tn_file_unmap(&m);
}

static void prepared_free(prepared *p)
{
    free(p->bytes);
    tn_tempdir_clear(&p->dir);
}

/* Opens, verifies and reads all of it through a loader, whatever the files hold: TN_OK or TN_BAD_FILE, never worse. */
static tn_status use_all(const char *dir)
{
    tn_dataset *d = NULL;
    tn_loader *l = NULL;
    const tn_loader_batch *b = NULL;
    tn_status s = tn_dataset_open(dir, NULL, &d);
    if (s != TN_OK) return s;
    for (int mode = 0; s == TN_OK && mode < 3; mode++) {
        const tn_loader_options o = {
            .dataset = d, .batch = 2, .length = 16, .mode = (tn_loader_mode)mode, .evaluate = mode < 2
        };
        s = tn_loader_open(&o, &l);
        for (int i = 0; s == TN_OK && i < 200; i++) {
            s = tn_loader_next(l, &b);
            if (!b) break;
        }
        tn_loader_free(l);
        l = NULL;
    }
    const tn_status verified = tn_dataset_verify(d);
    if (s == TN_OK) s = verified;
    tn_dataset_close(d);
    return s;
}

static void shard_cut_anywhere(void **state)
{
    (void)state;
    prepared p;
    prepared_make(&p);
    assert_ok(use_all(p.out));
    for (size_t n = 0; n < p.n; n += n < 300 ? 7 : 41) {
        tn_put_file(p.shard, p.bytes, n);
        assert_fails(use_all(p.out), TN_BAD_FILE, "train-00000.bin");
    }
    unsigned char *more = malloc(p.n + 8); /* and added to */
    memcpy(more, p.bytes, p.n);
    tn_put_file(p.shard, more, p.n + 8);
    assert_fails(use_all(p.out), TN_BAD_FILE, "added to");
    free(more);
    assert_int_equal(remove(p.shard), 0);
    assert_fails(use_all(p.out), TN_BAD_FILE, "train-00000.bin");
    prepared_free(&p);
}

static void shard_bits_flipped(void **state)
{
    (void)state;
    prepared p;
    prepared_make(&p);
    for (size_t i = 0; i < p.n; i += i < TN_SHARD_HEADER_BYTES ? 1 : 53) {
        p.bytes[i] ^= (unsigned char)(1 << i % 8);
        tn_put_file(p.shard, p.bytes, p.n);
        assert_fails(use_all(p.out), TN_BAD_FILE, "train-00000.bin");
        p.bytes[i] ^= (unsigned char)(1 << i % 8);
    }
    prepared_free(&p);
}

/* A header whose own hash is right, as somebody with this source would write it. */
typedef struct forgery {
    const char *name;
    size_t at; /* offset of a u64 in the header */
    uint64_t value;
} forgery;

static const forgery forgeries[] = {
    { "more tokens than bytes", offsetof(tn_shard_header, tokens), 1u << 30 },
    { "2^63 tokens", offsetof(tn_shard_header, tokens), (uint64_t)1 << 63 },
    { "tokens whose bytes wrap", offsetof(tn_shard_header, tokens), ((uint64_t)1 << 63) + 100 },
    { "2^64-1 documents", offsetof(tn_shard_header, documents), UINT64_MAX },
    { "2^61 documents", offsetof(tn_shard_header, documents), (uint64_t)1 << 61 },
    { "no documents", offsetof(tn_shard_header, documents), 0 },
    { "tokens before the header's end", offsetof(tn_shard_header, items_at), 8 },
    { "tokens beyond the file", offsetof(tn_shard_header, items_at), UINT64_MAX - 7 },
    { "a table inside the tokens", offsetof(tn_shard_header, table_at), 264 },
    { "a table beyond the file", offsetof(tn_shard_header, table_at), UINT64_MAX - 7 },
    { "an odd table", offsetof(tn_shard_header, table_at), 1001 },
    { "a vocabulary of 0", offsetof(tn_shard_header, vocab), 0 },
    { "a vocabulary of 2^40", offsetof(tn_shard_header, vocab), (uint64_t)1 << 40 },
    { "another file's size", offsetof(tn_shard_header, file_bytes), 256 },
    { "kind 9", offsetof(tn_shard_header, kind) - 4, (uint64_t)9 << 32 | 1 },
    { "arrays of 5000 dimensions", offsetof(tn_shard_header, item), (uint64_t)5000 << 32 | 1 },
};

static void forge(const prepared *p, const forgery *f)
{
    char hex[TN_HASH_BYTES];
    unsigned char *file = malloc(p->n);
    memcpy(file, p->bytes, p->n);
    memcpy(file + f->at, &f->value, 8);
    tn_hash_memory(file, TN_SHARD_HASHED_BYTES, hex);
    tn_shard_hash_bytes(hex, file + TN_SHARD_HASHED_BYTES);
    tn_put_file(p->shard, file, p->n);
    free(file);
}

static void shard_forged(void **state)
{
    prepared p;
    tn_shard s = { 0 };
    prepared_make(&p);
    forge(&p, *state);
    assert_fails(use_all(p.out), TN_BAD_FILE, "train-00000.bin");
    tn_status st = tn_shard_open(p.shard, &s); /* and by itself, without a manifest to compare with */
    if (st == TN_OK) st = tn_shard_verify(&s);
    assert_int_equal(st, TN_BAD_FILE);
    tn_shard_close(&s);
    prepared_free(&p);
}

/* Tables and tokens in a shard whose hashes are right: found when they are used. */
static void shard_table_forged(void **state)
{
    (void)state;
    static const uint64_t values[] = { 0, UINT64_MAX, (uint64_t)1 << 63, 1000000 };
    prepared p;
    char hex[TN_HASH_BYTES];
    tn_shard_header h;
    prepared_make(&p);
    memcpy(&h, p.bytes, sizeof h);
    for (size_t v = 0; v < 4; v++)
        for (uint64_t row = 0; row <= h.documents; row++) {
            unsigned char *file = malloc(p.n);
            tn_shard s = { 0 };
            memcpy(file, p.bytes, p.n);
            memcpy(file + h.table_at + 8 * row, &values[v], 8);
            tn_hash_memory(file + TN_SHARD_HEADER_BYTES, p.n - TN_SHARD_HEADER_BYTES, hex);
            tn_shard_hash_bytes(hex, file + offsetof(tn_shard_header, hash));
            tn_hash_memory(file, TN_SHARD_HASHED_BYTES, hex);
            tn_shard_hash_bytes(hex, file + TN_SHARD_HASHED_BYTES);
            tn_put_file(p.shard, file, p.n);
            assert_ok(tn_shard_open(p.shard, &s));
            const tn_status st = tn_shard_verify(&s);
            assert_int_equal(st, row == 0 && v == 0 ? TN_OK : TN_BAD_FILE);
            /* A manifest that agrees with it, so that the data set opens and only its use can tell. */
            tn_manifest m;
            assert_ok(tn_manifest_read(p.out, &m));
            m.split[TN_TRAIN].shards[0].hash = s.info.hash;
            assert_ok(tn_manifest_write(&m, p.out));
            tn_manifest_free(&m);
            tn_shard_close(&s);
            assert_int_equal(use_all(p.out), row == 0 && v == 0 ? TN_OK : TN_BAD_FILE);
            free(file);
        }
    prepared_free(&p);
}

/* Each replaces `from` in a good manifest. */
static const struct edit {
    const char *name, *from, *to;
} edits[] = {
    { "a path outside", "\"file\": \"train-00000.bin\"", "\"file\": \"../../train-00000.bin\"" },
    { "an absolute path", "\"file\": \"train-00000.bin\"", "\"file\": \"/etc/passwd\"" },
    { "a negative count", "\"documents\": 6", "\"documents\": -6" },
    { "a count that does not add up", "\"documents\": 6", "\"documents\": 7" },
    { "a fraction", "\"vocab\": 256", "\"vocab\": 2.5" },
    { "a huge vocabulary", "\"vocab\": 256", "\"vocab\": 99999999999" },
    { "another vocabulary", "\"vocab\": 256", "\"vocab\": 300" },
    { "no vocabulary", "\"vocab\": 256,", "" },
    { "a later version", "\"version\": 1", "\"version\": 2" },
    { "another format", "tenon-dataset", "other" },
    { "another type", "\"item\": \"u16\"", "\"item\": \"u32\"" },
    { "an unknown type", "\"item\": \"u16\"", "\"item\": \"f64\"" },
    { "an eot beyond the vocabulary", "\"eot\": -1", "\"eot\": 256" },
    { "splits as a list", "\"splits\": {", "\"splits\": [{" },
    { "a tokenizer elsewhere", "\"file\": \"\"", "\"file\": \"../secret.json\"" },
    { "another tokenizer's hash", "\"hash\": \"", "\"hash\": \"00" },
    { "another shard's size", "\"bytes\": ", "\"bytes\": 1" },
    { "another shard's tokens", "\"tokens\": ", "\"tokens\": 1" },
    { "two of a key", "\"kind\": \"tokens\"", "\"kind\": \"tokens\", \"kind\": \"arrays\"" },
    { "arrays", "\"kind\": \"tokens\"",
      "\"kind\": \"arrays\", \"shape\": [2147483647, 2147483647, 2147483647], \"classes\": 1" },
};

static void manifest_edited(void **state)
{
    const struct edit *e = *state;
    prepared p;
    char *text, edited[8192];
    prepared_make(&p);
    assert_ok(tn_file_read_all(p.manifest, 1 << 16, &text, NULL));
    const char *at = strstr(text, e->from);
    assert_non_null(at);
    snprintf(edited, sizeof edited, "%.*s%s%s", (int)(at - text), text, e->to, at + strlen(e->from));
    tn_put_text(p.manifest, edited);
    assert_fails(use_all(p.out), TN_BAD_FILE, p.out);
    tn_free(text);
    prepared_free(&p);
}

static void manifest_cut_anywhere(void **state)
{
    (void)state;
    prepared p;
    char *text;
    size_t n;
    prepared_make(&p);
    assert_ok(tn_file_read_all(p.manifest, 1 << 16, &text, &n));
    for (size_t k = 0; k + 1 < n; k += 13) {
        tn_put_file(p.manifest, text, k);
        assert_fails(use_all(p.out), TN_BAD_FILE, "dataset.json");
    }
    for (size_t k = 0; k < n; k += 11) { /* any flip: refused, or harmless (white space, settings) */
        text[k] ^= 1;
        tn_put_file(p.manifest, text, n);
        const tn_status s = use_all(p.out);
        assert_true(s == TN_OK || s == TN_BAD_FILE);
        text[k] ^= 1;
    }
    tn_free(text);
    prepared_free(&p);
}

void tn_tests_hostile(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        tn_test_add(l, refuses_input, &inputs[i], "hostile: %s", inputs[i].name);
    for (size_t i = 0; i < sizeof forgeries / sizeof *forgeries; i++)
        tn_test_add(l, shard_forged, &forgeries[i], "hostile: shard with %s", forgeries[i].name);
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++)
        tn_test_add(l, manifest_edited, &edits[i], "hostile: manifest with %s", edits[i].name);
    tn_test_add(l, refuses_bomb, "bomb.txt.zst", "hostile: bomb as text");
    tn_test_add(l, refuses_bomb, "bomb.jsonl.zst", "hostile: bomb as one line");
    tn_test_add(l, refuses_bomb, "bomb.json.zst", "hostile: bomb as a list");
    tn_test_add(l, refuses_bomb, "bomb.csv.zst", "hostile: bomb as a table");
    tn_test_add(l, shard_cut_anywhere, NULL, "hostile: shard cut anywhere");
    tn_test_add(l, shard_bits_flipped, NULL, "hostile: shard with any bit flipped");
    tn_test_add(l, shard_table_forged, NULL, "hostile: shard with a forged table");
    tn_test_add(l, manifest_cut_anywhere, NULL, "hostile: manifest cut or flipped anywhere");
}
