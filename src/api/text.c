/* Tokenizers and sampling of the C API. */
#include "api/net.h"

#include "base/alloc.h"
#include "base/status.h"
#include "sample/sample.h"

#include <string.h>

/* --- tokenizers ------------------------------------------------------------------------------------------------------- */

static tenon_status open_tokenizer(const tn_saved_model *of, const char *spec, tenon_tokenizer **out)
{
    tn_status s = TN_OK;
    tenon_tokenizer *t = tn_alloc(sizeof *t);
    if (!t) TN_TRY(TN_MEMORY);
    if (of) TN_TRY(tn_saved_model_tokenizer(of, spec, &t->t, &t->tokens));
    else {
        TN_TRY(tn__api_need(spec, "spec"));
        TN_TRY(tn_tokenizer_open(spec, &t->t));
        t->tokens = tn_model_tokens_of(t->t);
    }
    TN_TRY(tn_tokenizer_scratch_new(&t->scratch));
    *out = t;
    t = NULL;
done:
    tenon_tokenizer_close(t);
    return (tenon_status)s;
}

tenon_status tenon_tokenizer_open(const char *spec, tenon_tokenizer **out) { return open_tokenizer(NULL, spec, out); }

tenon_status tenon_tokenizer_of(const tenon_net *net, tenon_tokenizer **out)
{
    return open_tokenizer(&net->saved, "", out);
}

void tenon_tokenizer_close(tenon_tokenizer *t)
{
    if (!t) return;
    tn_tokenizer_free(t->t);
    tn_model_tokens_free(&t->tokens);
    tn_tokenizer_scratch_free(t->scratch);
    tn_free(t);
}

int64_t tenon_tokenizer_vocab(const tenon_tokenizer *t) { return tn_tokenizer_vocab(t->t); }

int32_t tenon_tokenizer_start(const tenon_tokenizer *t) { return t->tokens.start; }

int32_t tenon_tokenizer_end(const tenon_tokenizer *t) { return tn_tokenizer_special(t->t, TN_TOKEN_END); }

static tn_status too_small(const char *what, size_t capacity, size_t need)
{
    return tn_error(TN_USAGE, "%s holds %zu of %zu: pass NULL first to get the size", what, capacity, need);
}

tenon_status tenon_encode(tenon_tokenizer *t, const char *text, size_t bytes, int special, int32_t *ids,
                          size_t capacity, size_t *n)
{
    tn_tokens got = { 0 };
    tn_status s = tn__api_need(bytes ? text : "", "text");
    if (s == TN_OK)
        s = tn_tokenizer_encode(t->t, t->scratch, bytes ? text : "", bytes, special ? TN_ENCODE_SPECIAL : 0, &got);
    if (s == TN_OK && ids && got.n > capacity) s = too_small("ids", capacity, got.n);
    if (s == TN_OK && ids && got.n) memcpy(ids, got.ids, sizeof *ids * got.n);
    if (s == TN_OK) *n = got.n;
    tn_tokens_free(&got);
    return (tenon_status)s;
}

tenon_status tenon_decode(tenon_tokenizer *t, const int32_t *ids, size_t n, char *text, size_t capacity, size_t *bytes)
{
    tn_text got = { 0 };
    tn_status s = tn_tokenizer_decode(t->t, ids, n, &got);
    if (s == TN_OK && text && got.n > capacity) s = too_small("text", capacity, got.n);
    if (s == TN_OK && text && got.n) memcpy(text, got.data, got.n);
    if (s == TN_OK) *bytes = got.n;
    tn_text_free(&got);
    return (tenon_status)s;
}

/* --- sampling --------------------------------------------------------------------------------------------------------- */

void tenon_sample_init(tenon_sample_options *o)
{
    *o = (tenon_sample_options){
        .size = sizeof *o, .prompt = "", .temperature = 0.8, .top_p = 0.95, .max_tokens = 256, .samples = 1
    };
}

static tn_status pass_on(void *ctx, int64_t sample, const char *text, size_t bytes)
{
    const tenon_sample_options *o = ctx;
    return o->text && o->text(o->user, sample, text, bytes)
               ? tn_error(TN_INTERRUPTED, "sampling was stopped by the caller")
               : TN_OK;
}

static bool interrupted(void *net) { return atomic_load(&((tenon_net *)net)->interrupted); }

static int64_t capacity_of(const tenon_net *net, const tenon_sample_options *o)
{
    const int64_t context = tn_settings_int(net->saved.settings, "train.context");
    const int64_t need = (int64_t)(o->tokens ? o->n_tokens : o->prompt_bytes) + 2 + o->max_tokens;
    return o->context > 0 ? o->context : need < context ? need : context;
}

static tn_status check_options(const tenon_net *net, const tenon_sample_options *o)
{
    if (!tn_model_reads_sequences(net->saved.model) && !tn_model_replies(net->saved.model))
        return tn_error(TN_USAGE,
                        "model %s learns from samples and cannot generate text: evaluate it with tenon_measure",
                        net->saved.model->name);
    if (o->samples < 1 || o->samples > 65536)
        return tn_error(TN_USAGE, "samples=%lld is outside 1 to 65536", (long long)o->samples);
    if (o->max_tokens < 0) return tn_error(TN_USAGE, "max_tokens=%lld is below 0", (long long)o->max_tokens);
    if (!o->tokens && o->prompt_bytes) TN_RETURN_IF(tn__api_need(o->prompt, "prompt"));
    if (o->n_stop) TN_RETURN_IF(tn__api_need(o->stop, "stop"));
    return TN_OK;
}

tenon_status tenon_sample(tenon_net *net, tenon_tokenizer *t, const tenon_sample_options *given)
{
    tn_status s = TN_OK;
    tn_sampler *sampler = NULL;
    tenon_sample_options o;
    tenon_sample_init(&o);
    if (!given || given->size < sizeof given->size || given->size > 4096)
        TN_API_USAGE("tenon_sample_options.size is not set: call tenon_sample_init first");
    memcpy(&o, given, given->size < sizeof o ? given->size : sizeof o);
    TN_API_TRY(tn__api_need(t, "tokenizer"));
    TN_API_TRY(check_options(net, &o));
    atomic_store(&net->interrupted, false);
    const tn_decoder_options decoder = { .model = net->saved.model,
                                         .settings = net->saved.settings,
                                         .store = net->store,
                                         .frozen = net->frozen,
                                         .weights = net->frozen ? net->matrices : TN_F32,
                                         .batch = o.samples,
                                         .capacity = capacity_of(net, &o),
                                         .interrupted = interrupted,
                                         .ctx = net };
    const tn_sampler_options so = {
        .decoder = decoder, .tokenizer = t->t, .start = t->tokens.start, .end = t->tokens.end, .n_end = t->tokens.n_end
    };
    const tn_sample_options run = { .pick = { o.temperature, o.top_k, o.top_p },
                                    .seed = o.seed,
                                    .max_tokens = o.max_tokens,
                                    .stop = o.stop,
                                    .n_stop = o.n_stop,
                                    .ctx = &o,
                                    .text = pass_on };
    net->sampling = true;
    TN_TRY(tn_sampler_new(&so, &sampler));
    if (o.tokens) TN_TRY(tn_sampler_prompt_tokens(sampler, o.tokens, (int64_t)o.n_tokens));
    else TN_TRY(tn_sampler_prompt(sampler, o.prompt, o.prompt_bytes, NULL));
    TN_TRY(tn_sampler_run(sampler, &run, NULL));
    for (int64_t i = 0; o.done && i < o.samples; i++) {
        const tn_sampled r = tn_sampler_result(sampler, i);
        if (o.done(o.user, i, r.ids, (size_t)r.n, tn_sample_end_name(r.end)))
            TN_FAIL(TN_INTERRUPTED, "sampling was stopped by the caller");
    }
done:
    net->sampling = false;
    tn_sampler_free(sampler);
    return (tenon_status)s;
}
