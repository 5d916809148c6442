/* tenon sample: text from a trained model. The text goes to standard output as it is drawn, times to standard error. */
#include "base/alloc.h"
#include "base/clock.h"
#include "cli/next.h"
#include "cli/term.h"
#include "cli/text_model.h"
#include "cli/view.h"

#include <string.h>

typedef struct session {
    tn_text_model m;
    tn_text *text; /* (n): gathered where it cannot be streamed, or NULL */
    int64_t n;
    double prefill_s;
    int64_t prompt_tokens;
} session;

/* Attention's memory: what the prompt and the text need. A prompt has no more tokens than bytes, and one to begin with. */
static int64_t capacity(const session *s, size_t prompt_bytes)
{
    const int64_t context = tn_settings_int(s->m.model.settings, "train.context");
    if (!tn_settings_is_auto(s->m.keys, "context")) return tn_settings_int(s->m.keys, "context");
    const int64_t need = (int64_t)prompt_bytes + 2 + tn_settings_int(s->m.keys, "max_tokens");
    return need > context ? context : need;
}

static tn_status open_session(session *s, size_t prompt_bytes)
{
    s->n = tn_settings_int(s->m.keys, "n");
    TN_RETURN_IF(tn_text_model_open(&s->m, s->n, capacity(s, prompt_bytes)));
    if (s->n == 1 && !s->m.c->json) return TN_OK;
    s->text = tn_alloc(sizeof *s->text * (size_t)s->n);
    return s->text ? TN_OK : TN_MEMORY;
}

static void close_session(session *s)
{
    for (int64_t i = 0; s->text && i < s->n; i++) tn_text_free(&s->text[i]);
    tn_free(s->text);
    tn_text_model_close(&s->m);
}

/* --- text ------------------------------------------------------------------------------------------------------------- */

static tn_status take_text(void *ctx, int64_t sample, const char *text, size_t bytes)
{
    session *s = ctx;
    if (tn_interrupted(NULL)) return tn_error(TN_INTERRUPTED, "interrupted");
    if (!s->text) return tn_text_write(s->m.c, text, bytes);
    tn_text *t = &s->text[sample];
    if (t->n + bytes > t->capacity) TN_RETURN_IF(tn_grow((void **)&t->data, &t->capacity, 2 * (t->n + bytes), 1));
    memcpy(t->data + t->n, text, bytes);
    t->n += bytes;
    return TN_OK;
}

static tn_status show_results(session *s, const char *prompt, size_t prompt_bytes)
{
    for (int64_t i = 0; s->text && i < s->n; i++) {
        tn_text *t = &s->text[i];
        const tn_sampled r = tn_sampler_result(s->m.sampler, i);
        if (s->m.c->json)
            TN_RETURN_IF(tn_cli_emit(s->m.c, json_pack("{s:s, s:I, s:s%, s:s%, s:I, s:s}", "name", "sample", "sample",
                                                       (json_int_t)i, "prompt", prompt, prompt_bytes, "text",
                                                       t->data ? t->data : "", t->n, "tokens", (json_int_t)r.n, "end",
                                                       tn_sample_end_name(r.end))));
        else {
            fprintf(s->m.c->out, "--- sample %lld of %lld\n%.*s", (long long)i + 1, (long long)s->n,
                    s->m.replies ? 0 : (int)prompt_bytes, prompt);
            TN_RETURN_IF(tn_text_write(s->m.c, t->data ? t->data : "", t->n));
            TN_RETURN_IF(tn_text_write(s->m.c, "\n", 1));
        }
        t->n = 0;
    }
    return s->text ? TN_OK : tn_text_write(s->m.c, "\n", 1);
}

static tn_status show_times(const session *s, const tn_sample_report *r)
{
    const double first = s->prefill_s + r->first_s, rest = r->seconds - r->first_s;
    const double rate =
        r->tokens > s->n && rest > 0 ? (double)(r->tokens - s->n) / rest : 0; /* without the prompt's share */
    if (!s->m.c->json) {
        fprintf(s->m.c->err,
                "prompt %lld tokens in %.1f ms, first token after %.1f ms, then %.0f tokens/s (%lld in all)\n",
                (long long)s->prompt_tokens, 1e3 * s->prefill_s, 1e3 * first, rate, (long long)r->tokens);
        return TN_OK;
    }
    TN_RETURN_IF(tn_cli_emit(s->m.c, json_pack("{s:s, s:I, s:s}", "name", "prompt_tokens", "value",
                                               (json_int_t)s->prompt_tokens, "unit", "tokens")));
    TN_RETURN_IF(tn_cli_number(s->m.c, "first_token", 1e3 * first, "ms"));
    return tn_cli_number(s->m.c, "tokens_per_s", rate, "tokens/s");
}

/* One prompt and what follows it. */
static tn_status answer(session *s, const char *prompt, size_t bytes)
{
    tn_sample_report r;
    tn_sample_options o = tn_text_model_options(&s->m);
    o.ctx = s;
    o.text = take_text;
    const double before = tn_clock_s();
    TN_RETURN_IF(tn_sampler_prompt(s->m.sampler, prompt, bytes, &s->prompt_tokens));
    s->prefill_s = tn_clock_s() - before;
    TN_RETURN_IF(tn_sampler_run(s->m.sampler, &o, &r));
    TN_RETURN_IF(show_results(s, prompt, bytes));
    return show_times(s, &r);
}

static tn_status run(session *s)
{
    const char *given = tn_args_value(&s->m.c->args, "prompt"), *prompt = given ? given : "";
    TN_RETURN_IF(tn_sample_settings(&s->m.keys));
    TN_RETURN_IF(tn_text_model_find(&s->m));
    TN_RETURN_IF(open_session(s, strlen(prompt)));
    tn_interrupt_watch();
    if (!s->text && !s->m.replies) TN_RETURN_IF(tn_text_write(s->m.c, prompt, strlen(prompt)));
    return answer(s, prompt, strlen(prompt));
}

tn_status tn_cmd_sample(tn_cli *c)
{
    session s = { .m = { .c = c } };
    TN_RETURN_IF(tn_args_expect(&c->args, 1, 1));
    const tn_status st = run(&s);
    const bool talks = s.m.replies || s.m.tokens.chat_template;
    close_session(&s);
    if (st == TN_OK) tn_next_of(c, "chat", tn_args_positional(&c->args, 0), talks ? "" : " template=none");
    return st;
}
