/* Samples during training. The sampler reads the trainer's parameters and lives for one sample: between two of them it
 * costs no memory. The same step gives the same text, whatever was sampled before. */
#include "cli/train_sample.h"

#include "train/sample.h"

#include <string.h>

tn_status tn_train_sample_check(const tn_session *on)
{
    if (tn_settings_int(on->settings, "sample.every") == 0 || tn_dataset_about(on->data)->tokenizer[0]) return TN_OK;
    return tn_error(TN_USAGE, "sample.every: the tokens of %.640s have no tokenizer, so that nobody can read them: leave it at 0",
                    tn_settings_text(on->settings, "data"));
}

static tn_status put_text(void *ctx, int64_t sample, const char *text, size_t bytes)
{
    (void)sample;
    return fwrite(text, 1, bytes, ctx) == bytes ? TN_OK : tn_error(TN_DISK, "cannot write to standard error");
}

static tn_status write_sample(tn_sampler *s, const tn_session *on, int64_t step, FILE *f)
{
    int64_t tokens;
    tn_sample_report report;
    tn_settings *keys = NULL;
    const char *prompt = tn_settings_text(on->settings, "sample.prompt");
    TN_RETURN_IF(tn_sample_settings(&keys));
    tn_sample_options o = tn_sample_options_read(keys);
    tn_settings_free(keys);
    o.seed = (uint64_t)tn_settings_int(on->settings, "seed");
    o.max_tokens = tn_settings_int(on->settings, "sample.tokens");
    o.ctx = f;
    o.text = put_text;
    fprintf(f, "--- step %lld: %s", (long long)step, prompt);
    TN_RETURN_IF(tn_sampler_prompt(s, prompt, strlen(prompt), &tokens));
    TN_RETURN_IF(tn_sampler_run(s, &o, &report));
    fputs("\n---\n", f);
    return TN_OK;
}

tn_status tn_train_sample(const tn_session *on, int64_t step, FILE *f)
{
    tn_status s = TN_OK;
    tn_tokenizer *tokenizer = NULL;
    tn_sampler *sampler = NULL;
    const tn_dataset_info *info = tn_dataset_about(on->data);
    const int64_t need = 2 + (int64_t)strlen(tn_settings_text(on->settings, "sample.prompt")) +
                         tn_settings_int(on->settings, "sample.tokens");
    TN_TRY(tn_tokenizer_open(info->tokenizer, &tokenizer));
    TN_TRY(tn_sampler_new(&(tn_sampler_options){ .decoder = { .model = on->model, .settings = on->settings,
                                                              .store = tn_trainer_store(on->trainer), .batch = 1,
                                                              .capacity = need < on->length ? need : on->length },
                                                 .tokenizer = tokenizer, .start = info->eot }, &sampler));
    TN_TRY(write_sample(sampler, on, step, f));
done:
    tn_sampler_free(sampler);
    tn_tokenizer_free(tokenizer);
    return s;
}
