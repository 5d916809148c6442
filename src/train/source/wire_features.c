/* The payload of the file (tasks/wire/wire_kept.h): by training context, (tokens of BOS, context, EOS; width); where the encoder sees the
 * question, by training question, of its context with it. */
#include "train/source/wire_features.h"

#include "base/alloc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static bool has(const tn_settings *st, const char *key) { return tn_settings_find(st, key) < tn_settings_count(st); }

tn_status tn_wire_model_sizes(const tn_settings *st, const char *shape, int64_t *vocab, int64_t *dim, int64_t *layers)
{
    tn_status s = TN_OK;
    tn_settings *own = NULL;
    tn_arena arena = { 0 };
    const char *const *words;
    const tn_model *gpt = tn_model_named("gpt");
    TN_TRY(tn_settings_new(&own));
    TN_TRY(tn_settings_add(own, gpt->settings, gpt->n_settings, gpt->name));
    TN_TRY(tn_words_split(&arena, tn_settings_text(st, shape), &words));
    for (; *words; words++) {
        char key[128];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(*words, "="), *words);
        if (has(own, key) && strchr(*words, '='))
            TN_TRY(tn_settings_set(own, key, strchr(*words, '=') + 1, "%s", shape));
    }
    *vocab = tn_settings_int(own, "vocab");
    *dim = tn_settings_int(own, "dim");
    *layers = tn_settings_int(own, "layers");
    if (*vocab < 1) TN_FAIL(TN_USAGE, "%s names no vocab: leave it empty, and it is filled from the file", shape);
done:
    tn_settings_free(own);
    tn_arena_free(&arena);
    return s;
}

tn_status tn_wire_model_key(const tn_settings *st, char x, const char *more, char hex[TN_HASH_BYTES])
{
    char hash[16], shape[16];
    tn_hash *h;
    snprintf(hash, sizeof hash, "%c.hash", x);
    snprintf(shape, sizeof shape, "%c.shape", x);
    const char *const words[] = { tn_settings_text(st, hash), tn_settings_text(st, shape),
                                  tn_settings_text(st, "compute"), more };
    TN_RETURN_IF(tn_hash_begin(&h));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) tn_hash_add(h, words[i], strlen(words[i]) + 1);
    tn_hash_text(h, hex);
    tn_hash_free(h);
    return TN_OK;
}

static int64_t first_question(const tn_wire_features *f) { return f->store->question_at[f->store->first[TN_TRAIN]]; }

static tn_status find_asked(tn_wire_features *f)
{
    const tn_wire_store *s = f->store;
    const int64_t first = s->first[TN_TRAIN], end = first + s->count[TN_TRAIN], all = s->question_at[end];
    if (!tn_wire_sends_asked(s)) return TN_OK;
    f->asked_at = tn_alloc(((size_t)(all - first_question(f)) + 1) * sizeof *f->asked_at);
    if (!f->asked_at) return TN_MEMORY;
    for (int64_t c = first, n = 0; c < end; c++)
        for (int64_t q = s->question_at[c]; q < s->question_at[c + 1]; q++, n++)
            f->asked_at[n + 1] = f->asked_at[n] + tn_wire_seen_ids(s, c, q, NULL);
    return TN_OK;
}

tn_status tn_wire_features_open(const tn_source_open *o, const tn_wire_store *store, tn_wire_features *out)
{
    const tn_settings *st = o->settings;
    char shape[16];
    int64_t vocab, layers;
    *out = (tn_wire_features){ .store = store };
    if (!o->trains || !has(st, "sender_features") || strcmp(tn_settings_text(st, "sender_features"), "cached") != 0)
        return TN_OK;
    if (strcmp(tn_settings_text(st, "encoder"), "sender") != 0)
        return tn_error(TN_USAGE, "sender_features=cached is for encoder=sender: encoder=%s has no sender",
                        tn_settings_text(st, "encoder"));
    const char x = tn_settings_text(st, "sender")[0];
    for (size_t r = 0; r < store->readers; r++) {
        if (store->reader[r].letter != x) continue;
        out->sender = r;
        snprintf(shape, sizeof shape, "%c.shape", x);
        TN_RETURN_IF(find_asked(out));
        return tn_wire_model_sizes(st, shape, &vocab, &out->width, &layers);
    }
    return tn_error(TN_USAGE, "sender=%c is no reader: set %c.model", x, x);
}

void tn_wire_features_close(tn_wire_features *f)
{
    tn_wire_kept_close(&f->file);
    tn_wire_kept_abort(f->to);
    f->to = NULL;
}

void tn_wire_features_free(tn_wire_features *f)
{
    tn_wire_features_close(f);
    tn_free(f->asked_at);
    f->asked_at = NULL;
}

/* --- sizes ---------------------------------------------------------------------------------------------------------------------- */

int64_t tn_wire_features_count(const tn_wire_features *f)
{
    const int64_t end = f->store->first[TN_TRAIN] + f->store->count[TN_TRAIN];
    return f->asked_at ? f->store->question_at[end] - first_question(f) : f->store->count[TN_TRAIN];
}

int64_t tn_wire_features_tokens(const tn_wire_features *f)
{
    return f->asked_at ? f->store->seen->most_ids : f->store->reader[f->sender].text;
}

/* Its place among those of the training split. */
static int64_t place(const tn_wire_features *f, int64_t context, int64_t question)
{
    return f->asked_at ? question - first_question(f) : context - f->store->first[TN_TRAIN];
}

/* Tokens before the one at this place. */
static int64_t tokens_before(const tn_wire_features *f, int64_t at)
{
    const tn_wire_ids *x = &f->store->reader[f->sender];
    const int64_t first = f->store->first[TN_TRAIN];
    return f->asked_at ? f->asked_at[at] : x->context_at[first + at] - x->context_at[first] + 2 * at;
}

static int64_t tokens_of(const tn_wire_features *f, int64_t at)
{
    return tokens_before(f, at + 1) - tokens_before(f, at);
}

static uint64_t payload(const tn_wire_features *f)
{
    return (uint64_t)tokens_before(f, tn_wire_features_count(f)) * (uint64_t)f->width * tn_dtype_bytes(f->type);
}

uint64_t tn_wire_features_bytes(const tn_wire_features *f) { return tn_wire_kept_bytes(payload(f)); }

/* --- the file --------------------------------------------------------------------------------------------------------------------- */

tn_status tn_wire_features_find(tn_wire_features *f, const tn_settings *st, tn_dtype type, const char *folder,
                                bool *missing)
{
    char model[TN_HASH_BYTES], text[256], name[64];
    const char x = f->store->reader[f->sender].letter;
    struct stat info;
    f->type = type;
    TN_RETURN_IF(tn_wire_model_key(st, x, tn_settings_text(st, "sender_layer"), model));
    snprintf(text, sizeof text, "features 1 %s %s %c %lld %s%s", f->store->key, model, x, (long long)f->width,
             tn_dtype_name(type), f->asked_at ? " with questions" : "");
    tn_hash_memory(text, strlen(text), f->key);
    snprintf(name, sizeof name, "features-%s.bin", f->key);
    TN_RETURN_IF(tn_path_join(folder, name, f->path, sizeof f->path));
    *missing = stat(f->path, &info) != 0;
    return *missing && errno != ENOENT ? tn_fs_error(TN_BAD_FILE, errno, "open", f->path) : TN_OK;
}

tn_status tn_wire_features_begin(tn_wire_features *f)
{
    return tn_wire_kept_begin(f->path, f->key, payload(f), &f->to);
}

tn_status tn_wire_features_add(tn_wire_features *f, int64_t context, int64_t question, const float *x)
{
    return tn_wire_kept_add(f->to, x, TN_F32, f->type, tokens_of(f, place(f, context, question)) * f->width);
}

tn_status tn_wire_features_finish(tn_wire_features *f) { return tn_wire_kept_finish(f->to); }

tn_status tn_wire_features_take(tn_wire_features *f)
{
    return tn_wire_kept_open(f->path, f->key, payload(f), &f->file);
}

tn_status tn_wire_features_read(const tn_wire_features *f, int64_t context, int64_t question, int64_t tokens, float *to)
{
    const int64_t own = place(f, context, question), n = tokens_of(f, own) * f->width, all = tokens * f->width;
    const uint64_t at = (uint64_t)tokens_before(f, own) * (uint64_t)f->width * tn_dtype_bytes(f->type);
    memset(to + n, 0, (size_t)(all - n) * sizeof *to);
    return tn_wire_kept_read(&f->file, at, f->type, n, to);
}
