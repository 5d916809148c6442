/* Samples of the model in training. The sampler reads the trainer's parameters and lives for one sample: between two of them
 * it costs no memory. The same step gives the same text, whatever was sampled before. */
#include "cli/train/train_sample.h"

#include "token/unicode.h"
#include "sample/sample.h"

#include <ctype.h>
#include <string.h>

static tn_status check_readable(const tn_session *on, const char *remedy)
{
    if (!on->source.text && tn_model_reads_sequences(on->model))
        return tn_error(TN_USAGE, "the tokens of the task %s are not text: %s",
                        tn_settings_text(on->settings, "task.name"), remedy);
    if (!on->source.text)
        return tn_error(TN_USAGE, "%s is trained on samples and generates no text: %s", on->model->name, remedy);
    if (tn_dataset_about(on->source.text)->tokenizer[0]) return TN_OK;
    return tn_error(TN_USAGE, "%.640s has no tokenizer to decode its tokens: %s",
                    tn_settings_text(on->settings, "data"), remedy);
}

tn_status tn_train_sample_check(const tn_session *on)
{
    if (tn_settings_int(on->settings, "sample.every") == 0) return TN_OK;
    const tn_status s = check_readable(on, "leave it at 0");
    if (s != TN_OK) tn_error_prefix("sample.every");
    return s;
}

static tn_status take_text(void *ctx, int64_t sample, const char *text, size_t bytes)
{
    (void)sample;
    return tn_text_append(ctx, text, bytes);
}

static tn_sample_options sample_options(const tn_settings *keys, const tn_session *on, tn_text *out)
{
    tn_sample_options o = tn_sample_options_read(keys);
    o.seed = (uint64_t)tn_settings_int(on->settings, "seed");
    o.ctx = out;
    o.text = take_text;
    return o;
}

/* The end of a text that fits half of the model's context, from the start of a character. A token has a byte at least. */
static size_t last_half(const tn_session *on, const tn_text *t)
{
    const size_t most = (size_t)(on->length / 2);
    size_t at = t->n > most ? t->n - most : 0;
    while (at < t->n && ((unsigned char)t->data[at] & 0xc0) == 0x80) at++;
    return at;
}

/* *out holds the prompt, from `from` on. A model whose context is full goes on with the last half of it in view. */
static tn_status draw(tn_sampler *s, const tn_session *on, size_t from, int64_t tokens, tn_sample_options *o,
                      tn_text *out)
{
    for (int64_t n; tokens > 0; o->seed++) {
        TN_RETURN_IF(tn_sampler_prompt(s, out->n > from ? out->data + from : "", out->n - from, &n));
        o->max_tokens = tokens;
        TN_RETURN_IF(tn_sampler_run(s, o, NULL));
        const tn_sampled r = tn_sampler_result(s, 0);
        tokens -= r.n;
        from = last_half(on, out);
        if (r.end != TN_SAMPLE_FULL || r.n == 0 || from == out->n) return TN_OK;
        tn_sampler_clear(s);
    }
    return TN_OK;
}

tn_status tn_session_sample(const tn_session *on, const char *prompt, size_t bytes, int64_t tokens, tn_text *out)
{
    tn_status s = TN_OK;
    tn_tokenizer *tokenizer = NULL;
    tn_sampler *sampler = NULL;
    tn_settings *keys = NULL;
    const int64_t need = 2 + (int64_t)bytes + tokens;
    const size_t before = out->n;
    TN_TRY(check_readable(on, "prepare them with one"));
    TN_TRY(tn_sample_settings(&keys));
    TN_TRY(tn_tokenizer_open(tn_dataset_about(on->source.text)->tokenizer, &tokenizer));
    TN_TRY(tn_sampler_new(&(tn_sampler_options){ .decoder = { .model = on->model,
                                                              .settings = on->settings,
                                                              .store = tn_trainer_store(on->trainer),
                                                              .batch = 1,
                                                              .capacity = need < on->length ? need : on->length },
                                                 .tokenizer = tokenizer,
                                                 .start = tn_dataset_about(on->source.text)->eot },
                          &sampler));
    tn_sample_options o = sample_options(keys, on, out);
    TN_TRY(tn_text_append(out, prompt, bytes));
    TN_TRY(draw(sampler, on, before, tokens, &o, out));
done:
    tn_sampler_free(sampler);
    tn_tokenizer_free(tokenizer);
    tn_settings_free(keys);
    return s;
}

tn_status tn_train_sample(const tn_session *on, int64_t step, FILE *f)
{
    tn_text text = { 0 };
    const char *prompt = tn_settings_text(on->settings, "sample.prompt");
    const tn_status s =
        tn_session_sample(on, prompt, strlen(prompt), tn_settings_int(on->settings, "sample.tokens"), &text);
    if (s == TN_OK) fprintf(f, "--- step %lld: %.*s\n---\n", (long long)step, (int)text.n, text.data ? text.data : "");
    tn_text_free(&text);
    return s;
}

/* From behind the first space to the last one within `bytes`; all of it where there are no words. */
static size_t find_words(const tn_text *t, size_t bytes, size_t *first)
{
    const char *text = t->data;
    size_t from = 0;
    while (from < t->n && !isspace((unsigned char)text[from])) from++;
    while (from < t->n && isspace((unsigned char)text[from])) from++;
    *first = from < t->n ? from : 0;
    const size_t most = t->n - *first > bytes ? *first + bytes : t->n;
    size_t last = most;
    while (last > *first && !isspace((unsigned char)text[last - 1])) last--;
    while (last > *first && isspace((unsigned char)text[last - 1])) last--;
    return (last > *first ? last : most) - *first;
}

tn_status tn_session_prompt(tn_session *on, size_t bytes, tn_text *out)
{
    tn_status s = TN_OK;
    tn_tokenizer *tokenizer = NULL;
    tn_text text = { 0 };
    int64_t count, n = 0;
    size_t first;
    TN_TRY(check_readable(on, "prepare them with one"));
    TN_TRY(tn_source_heldout(&on->source, 0, on->trainer, &count));
    const tn_feed feed = tn_trainer_feed(on->trainer); /* of the width that was filled */
    const int32_t *tokens = tn_feed_at(&feed, "tokens"), *labels = tn_feed_at(&feed, "labels");
    while (count && tokens && labels && n < feed.length && n < 2 * (int64_t)bytes && labels[n] >= 0)
        n++; /* of one document */
    if (n == 0) goto done;
    TN_TRY(tn_tokenizer_open(tn_dataset_about(on->source.text)->tokenizer, &tokenizer));
    TN_TRY(tn_tokenizer_decode(tokenizer, tokens, (size_t)n, &text));
    const size_t words = find_words(&text, bytes, &first);
    TN_TRY(tn_utf8_repair(text.data + first, words, out));
done:
    tn_text_free(&text);
    tn_tokenizer_free(tokenizer);
    return s;
}
