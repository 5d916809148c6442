/* Prepares a data set: settings, inputs, whether anything changed, then shards, manifest, and the rename. Each kind of
 * input has its file: prepare_text.c, _tokens.c, _arrays.c. */
#include "data/prepare_parts.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/output.h"
#include "data/stage.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* clang-format off */
static const tn_setting rows[] = {
    TN_SETTING_TEXT("out", "", "output folder"),
    TN_SETTING_TEXT("tokenizer", "", "bytes, a tokenizer file or folder, or train:VOCAB (byte-level BPE on the train split)"),
    { "format", TN_TYPE_CHOICE, "auto", TN_RANGE_ANY, tn_format_choices, "", "file format; auto: by the names" },
    TN_SETTING_TEXT("doc_sep", "none", ".txt document boundary: none, line, blank, wikitext, or the text of a separator line"),
    TN_SETTING_AUTO_INT("doc_bytes", "auto", TN_RANGE_MIN(0), "bytes", "cut longer .txt documents at a line end; 0: never; auto: where the files are too few to hold one out"),
    TN_SETTING_TEXT("text_key", "text", "key of the text in JSON objects"),
    TN_SETTING_FLOAT("valid_frac", "0.05", TN_RANGE_HI_OPEN(0, 1), "", "fraction of the documents held out for validation"),
    TN_SETTING_FLOAT("test_frac", "0", TN_RANGE_HI_OPEN(0, 1), "", "fraction of the documents held out as test split"),
    TN_SETTING_TEXT("valid", "", "validation file or folder (valid_frac is then ignored)"),
    TN_SETTING_TEXT("test", "", "test file or folder (test_frac is then ignored)"),
    TN_SETTING_TEXT("labels", "", "file of the labels of arrays"),
    TN_SETTING_TEXT("valid_labels", "", "the same for valid="),
    TN_SETTING_TEXT("test_labels", "", "the same for test="),
    TN_SETTING_TEXT("label_col", "last", "column of the label in .csv: first, last or its number from 1"),
    TN_SETTING_CHOICE("dtype", "auto", "auto|u8|f32", "how features of arrays are stored; auto: as the file has them"),
    TN_SETTING_INT("vocab", "0", TN_RANGE(0, 2147483647), "tokens", "vocabulary of .bin token files without tokenizer=; 0: 50257 or 128256"),
    TN_SETTING_AUTO_INT("bin_eot", "auto", TN_RANGE(-1, 2147483647), "", "token between documents of .bin files; -1: none"),
    TN_SETTING_INT("train_bytes", "0", TN_RANGE_MIN(0), "bytes", "most text that train:VOCAB reads; 0: all"),
    TN_SETTING_INT("shard_tokens", "100M", TN_RANGE(1, 4e9), "tokens", "size of a shard"),
    TN_SETTING_INT("seed", "1", TN_RANGE_MIN(0), "", "of the split"),
    TN_SETTING_AUTO_INT("threads", "auto", TN_RANGE(1, 256), "", "tokenizing threads; auto: one per core"),
};
/* clang-format on */

tn_status tn_prepare_settings(tn_settings **out)
{
    tn_settings *st = NULL;
    TN_RETURN_IF(tn_settings_new(&st));
    const tn_status s = tn_settings_add(st, rows, sizeof rows / sizeof *rows, "data");
    if (s == TN_OK) *out = st;
    else tn_settings_free(st);
    return s;
}

tn_status tn__prepare_tell(tn_preparing *w, const char *phase, uint64_t done, uint64_t total)
{
    const tn_prepare_progress now = { phase, done, total, w->written, tn_clock_s() - w->start };
    if (w->p->progress) w->p->progress(w->p->ctx, &now);
    if (w->p->interrupted && w->p->interrupted(w->p->ctx))
        return tn_error(TN_INTERRUPTED, "interrupted; nothing was written");
    return TN_OK;
}

/* --- inputs --------------------------------------------------------------------------------------------------------------- */

/* x-images-idx3-ubyte has its labels in x-labels-idx1-ubyte. */
static tn_status find_labels(tn_prepare_part *part, const char *given)
{
    char path[TN_PATH_BYTES];
    if (*given) return tn_input_files_add(&part->labels, given, TN_FORMAT_AUTO);
    for (size_t i = 0; i < part->in.n; i++) {
        const char *from = part->in.v[i].path, *at = NULL;
        for (const char *p = from; (p = strstr(p, "images")); p++) at = p;
        if (part->in.v[i].format != TN_FORMAT_IDX || !at || strlen(from) >= sizeof path) continue;
        memcpy(path, from, strlen(from) + 1);
        memcpy(path + (at - from), "labels", 6);
        char *rank = strstr(path + (at - from), "idx3");
        if (rank) rank[3] = '1';
        if (access(path, R_OK) == 0) TN_RETURN_IF(tn_input_files_add(&part->labels, path, TN_FORMAT_IDX));
    }
    return TN_OK;
}

static tn_status check_kinds(tn_preparing *w)
{
    const tn_input_file *first = &w->part[TN_TRAIN].in.v[0];
    w->kind = tn_format_kind(first->format);
    for (int k = 0; k < TN_SPLITS; k++)
        for (size_t i = 0; i < w->part[k].in.n; i++) {
            const tn_input_file *in = &w->part[k].in.v[i];
            if (tn_format_kind(in->format) != w->kind)
                return tn_error(TN_USAGE,
                                "%.400s is %s and %.400s is %s: prepare them separately, or set format=", first->path,
                                tn_format_name(first->format), in->path, tn_format_name(in->format));
        }
    return TN_OK;
}

static tn_status find_inputs(tn_preparing *w)
{
    static const char *const label_keys[] = { "labels", "valid_labels", "test_labels" };
    const tn_settings *st = w->p->settings;
    const tn_format format = tn_format_parse(tn_settings_text(st, "format"));
    for (size_t i = 0; i < w->p->n; i++)
        TN_RETURN_IF(tn_input_files_add(&w->part[TN_TRAIN].in, w->p->inputs[i], format));
    for (int k = TN_VALID; k < TN_SPLITS; k++) {
        const char *path = tn_settings_text(st, tn_data_split_names[k]);
        w->part[k].fixed = true;
        w->part[k].split = (tn_data_split)k;
        if (*path) TN_RETURN_IF(tn_input_files_add(&w->part[k].in, path, format));
    }
    TN_RETURN_IF(check_kinds(w));
    for (int k = 0; k < TN_SPLITS; k++) {
        if (w->kind == TN_KIND_ARRAYS) TN_RETURN_IF(find_labels(&w->part[k], tn_settings_text(st, label_keys[k])));
        w->total_bytes += w->part[k].in.total_bytes;
    }
    double *frac = w->splitter.frac;
    frac[TN_VALID] = w->part[TN_VALID].in.n ? 0 : tn_settings_float(st, "valid_frac");
    frac[TN_TEST] = w->part[TN_TEST].in.n ? 0 : tn_settings_float(st, "test_frac");
    w->splitter.seed = (uint64_t)tn_settings_int(st, "seed");
    if (frac[TN_VALID] + frac[TN_TEST] >= 1)
        return tn_error(TN_USAGE, "valid_frac and test_frac together leave nothing to train on");
    return TN_OK;
}

/* --- whether it was prepared before ------------------------------------------------------------------------------------------ */

static void hash_inputs(tn_hash *h, const tn_input_files *in)
{
    for (size_t i = 0; i < in->n; i++) {
        const uint64_t facts[3] = { in->v[i].bytes, (uint64_t)in->v[i].changed_ns, (uint64_t)in->v[i].format };
        tn_hash_add(h, in->v[i].path, strlen(in->v[i].path) + 1);
        tn_hash_add(h, facts, sizeof facts);
    }
    tn_hash_add(h, "", 1);
}

/* Everything the result depends on: settings (less where and how fast), files by name, size and time, the tokenizer. */
static tn_status fingerprint(tn_preparing *w)
{
    tn_hash *h;
    char hex[TN_HASH_BYTES], text[8192];
    size_t used = 0;
    const tn_settings *st = w->p->settings;
    for (size_t i = 0; i < tn_settings_count(st); i++) {
        const char *key = tn_settings_row_at(st, i)->key;
        if (strcmp(key, "out") == 0 || strcmp(key, "threads") == 0) continue;
        const int n =
            snprintf(text + used, sizeof text - used, "%s%s=%s", used ? " " : "", key, tn_settings_text_at(st, i));
        if (n < 0 || (size_t)n >= sizeof text - used)
            return tn_error(TN_USAGE, "the settings are too long; use shorter paths");
        used += (size_t)n;
    }
    TN_RETURN_IF(tn_hash_begin(&h));
    const uint64_t tokenizer = w->tokenizer ? tn_tokenizer_hash(w->tokenizer) : 0;
    tn_hash_add(h, text, used);
    tn_hash_add(h, &tokenizer, sizeof tokenizer);
    for (int k = 0; k < TN_SPLITS; k++) {
        hash_inputs(h, &w->part[k].in);
        hash_inputs(h, &w->part[k].labels);
    }
    tn_hash_text(h, hex);
    tn_hash_free(h);
    w->manifest.settings = tn_arena_strdup(&w->manifest.arena, text);
    w->manifest.fingerprint = tn_arena_strdup(&w->manifest.arena, hex);
    return w->manifest.settings && w->manifest.fingerprint ? TN_OK : TN_MEMORY;
}

/* A folder with a tokenizer.json may be anybody's: a manifest that reads, or a shard, makes it a data set. */
static bool is_dataset(const char *dir)
{
    tn_manifest m;
    char path[TN_PATH_BYTES];
    bool found = false;
    if (tn_manifest_read(dir, &m) == TN_OK) {
        tn_manifest_free(&m);
        return true;
    }
    DIR *d = opendir(dir);
    for (struct dirent *e; d && !found && (e = readdir(d));)
        found = tn_path_join(dir, e->d_name, path, sizeof path) == TN_OK && tn_shard_is(path);
    if (d) closedir(d);
    return found;
}

static bool is_up_to_date(const tn_preparing *w, const char *dir)
{
    tn_manifest m;
    char path[TN_PATH_BYTES];
    struct stat info;
    if (tn_path_join(dir, TN_MANIFEST_NAME, path, sizeof path) != TN_OK || access(path, R_OK) != 0) return false;
    if (tn_manifest_read(dir, &m) != TN_OK) return false;
    bool same = strcmp(m.fingerprint, w->manifest.fingerprint) == 0;
    for (int k = 0; k < TN_SPLITS; k++)
        for (size_t i = 0; same && i < m.split[k].n; i++)
            same = tn_path_join(dir, m.split[k].shards[i].file, path, sizeof path) == TN_OK && stat(path, &info) == 0 &&
                   (uint64_t)info.st_size == m.split[k].shards[i].bytes;
    if (same && *m.tokenizer_file)
        same = tn_path_join(dir, m.tokenizer_file, path, sizeof path) == TN_OK && access(path, R_OK) == 0;
    tn_manifest_free(&m);
    return same;
}

/* --- the work ------------------------------------------------------------------------------------------------------------- */

static tn_status describe(tn_preparing *w)
{
    tn_manifest *m = &w->manifest;
    m->kind = w->kind == TN_KIND_ARRAYS ? TN_SHARD_ARRAYS : TN_SHARD_TOKENS;
    m->eot = -1;
    if (w->kind == TN_KIND_ARRAYS) return tn__prepare_arrays_about(w);
    if (w->kind == TN_KIND_TOKENS) return tn__prepare_tokens_about(w);
    m->vocab = tn_tokenizer_vocab(w->tokenizer);
    m->item = m->vocab <= 65536 ? TN_ITEM_U16 : TN_ITEM_U32;
    m->eot = tn_tokenizer_special(w->tokenizer, TN_TOKEN_END);
    return TN_OK;
}

static tn_status run_parts(tn_preparing *w)
{
    static tn_status (*const run[])(tn_preparing *, const tn_prepare_part *) = { tn__prepare_text, tn__prepare_tokens,
                                                                                 tn__prepare_arrays };
    for (int k = 0; k < TN_SPLITS; k++)
        if (w->part[k].in.n) TN_RETURN_IF(run[w->kind](w, &w->part[k]));
    TN_RETURN_IF(tn_sink_finish(&w->sink));
    if (w->manifest.split[TN_TRAIN].documents == 0)
        return tn_error(
            TN_BAD_FILE,
            "the inputs contain nothing to train on: they are empty or blank, or all of them were held out");
    return TN_OK;
}

static tn_status prepare_into(tn_preparing *w, const char *out)
{
    tn_status s = TN_OK;
    tn_stage stage = { .lock = -1 };
    TN_TRY(tn_stage_open(out, tn_manifest_owns, is_dataset, &stage));
    if (w->trains_tokenizer) TN_TRY(tn__prepare_tokenizer(w));
    TN_TRY(describe(w));
    TN_TRY(tn__prepare_tokenizer_copy(w, stage.temp));
    w->sink.dir = stage.temp;
    TN_TRY(run_parts(w));
    TN_TRY(tn_manifest_write(&w->manifest, stage.temp));
    s = tn_stage_commit(&stage);
done:
    tn_sink_abort(&w->sink);
    tn_stage_abort(&stage);
    return s;
}

static int threads_of(const tn_settings *st)
{
    if (!tn_settings_is_auto(st, "threads")) return (int)tn_settings_int(st, "threads");
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > 64 ? 64 : (int)n;
}

/* Before inputs are hashed. A data set that is there may be up to date: then nothing is written, whoever owns it. */
static tn_status check_place(const char *dir)
{
    struct stat st;
    return stat(dir, &st) == 0 && S_ISDIR(st.st_mode) ? TN_OK : tn_output_dir_check(dir);
}

tn_status tn_prepare_run(const tn_prepare *p, tn_prepare_report *out)
{
    tn_status s = TN_OK;
    const tn_settings *st = p->settings;
    const char *dir = tn_settings_text(st, "out");
    tn_preparing w = { .p = p, .start = tn_clock_s() };
    if (p->n == 0)
        return tn_error(TN_USAGE, "no inputs: name files or folders, for example tenon data prepare book.txt out=book");
    if (!*dir) return tn_error(TN_USAGE, "out is not set: name the output folder, for example out=book");
    TN_RETURN_IF(check_place(dir));
    w.trains_tokenizer = strncmp(tn_settings_text(st, "tokenizer"), "train:", 6) == 0;
    w.threads = threads_of(st);
    w.sink = (tn_sink){ .manifest = &w.manifest, .shard_tokens = (uint64_t)tn_settings_int(st, "shard_tokens") };
    TN_TRY(find_inputs(&w));
    if (!w.trains_tokenizer) TN_TRY(tn__prepare_tokenizer(&w));
    TN_TRY(fingerprint(&w));
    *out = (tn_prepare_report){ .files = w.part[0].in.n + w.part[1].in.n + w.part[2].in.n,
                                .input_bytes = w.total_bytes,
                                .skipped = w.part[0].in.skipped + w.part[1].in.skipped + w.part[2].in.skipped };
    out->up_to_date = is_up_to_date(&w, dir);
    if (out->up_to_date) tn_stage_clean(dir, tn_manifest_owns);
    else TN_TRY(prepare_into(&w, dir));
    out->seconds = tn_clock_s() - w.start;
done:
    for (int k = 0; k < TN_SPLITS; k++) {
        tn_input_files_free(&w.part[k].in);
        tn_input_files_free(&w.part[k].labels);
    }
    tn_tokenizer_free(w.tokenizer);
    tn_manifest_free(&w.manifest);
    return s;
}
