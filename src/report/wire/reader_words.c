/* The tokenizer of a run's reader. */
#include "report/wire/reader_words.h"

#include "base/status.h"

#include <stdio.h>

const char *tn_wire_key(char x, const char *name, char buf[TN_WIRE_KEY])
{
    snprintf(buf, TN_WIRE_KEY, "%c.%s", x, name);
    return buf;
}

static tn_status open_words(const tn_user_args *user, const tn_settings *st, tn_wire_words *w)
{
    tn_status s = TN_OK;
    tn_saved_model m = { .weights = "" };
    char key[TN_WIRE_KEY], hash[TN_WIRE_TOKENIZER_HASH];
    const char x = w->letter, *file = tn_settings_text(st, tn_wire_key(x, "model", key));
    if (!file[0])
        return tn_error(TN_USAGE, "the run has no reader %c with a tokenizer: choose one whose %c.model is set", x, x);
    TN_TRY(tn_saved_model_find(user, file, NULL, 0, "best", &m));
    TN_TRY(
        tn_saved_model_tokenizer(&m, tn_settings_text(st, tn_wire_key(x, "tokenizer", key)), &w->tokenizer, &w->ends));
    TN_TRY(tn_saved_model_ends(w->tokenizer, &w->ends, file, &w->bos, &w->eos));
    const int64_t ids = tn_settings_int(st, tn_wire_key(x, "ids", key));
    if (ids && tn_tokenizer_vocab(w->tokenizer) != ids)
        TN_FAIL(TN_USAGE, "%.300s: its tokenizer has %lld tokens, and had %lld when the run was trained", file,
                (long long)tn_tokenizer_vocab(w->tokenizer), (long long)ids);
    TN_TRY(tn_wire_tokenizer_check(w->tokenizer, x, file, tn_settings_text(st, tn_wire_key(x, "tokenizer_hash", key)),
                                   hash));
    TN_TRY(tn_tokenizer_scratch_new(&w->scratch));
done:
    if (s != TN_OK) tn_error_prefix("%c.model", x);
    tn_saved_model_free(&m);
    return s;
}

tn_status tn_wire_words_open(const tn_user_args *user, const tn_settings *st, char letter, tn_wire_words *out)
{
    tn_wire_words w = { .letter = letter, .ends = { .start = -1 } };
    const tn_status s = open_words(user, st, &w);
    if (s == TN_OK) *out = w;
    else tn_wire_words_free(&w);
    return s;
}

void tn_wire_words_free(tn_wire_words *w)
{
    tn_tokenizer_free(w->tokenizer);
    tn_model_tokens_free(&w->ends);
    tn_tokenizer_scratch_free(w->scratch);
    *w = (tn_wire_words){ 0 };
}

tn_wire_reader tn_wire_words_reader(const tn_wire_words *w)
{
    return (tn_wire_reader){ w->letter, w->tokenizer, w->bos, w->eos };
}

bool tn_wire_words_end(const void *words, int32_t id)
{
    const tn_wire_words *w = words;
    if (id == w->eos || id >= tn_tokenizer_vocab(w->tokenizer)) return true;
    for (size_t i = 0; i < w->ends.n_end; i++)
        if (w->ends.end[i] == id) return true;
    return false;
}

tn_status tn_wire_words_spell(const tn_wire_words *w, tn_wire_said *s)
{
    tn_token_stream d = { .n = 0 };
    s->text.n = 0;
    for (size_t t = 0; t < s->ids.n; t++) TN_RETURN_IF(tn_token_stream_put(w->tokenizer, &d, s->ids.ids[t], &s->text));
    return tn_token_stream_end(&d, &s->text);
}
