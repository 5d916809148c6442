/* tenon sample: text from a trained model. The text goes to standard output as it is drawn, times to standard error. Several texts, and
 * those of a file of prompts, are drawn together and written at the end. */
#include "base/alloc.h"
#include "base/clock.h"
#include "cli/next.h"
#include "cli/prompts_file.h"
#include "cli/term.h"
#include "cli/text_model.h"
#include "cli/view.h"

#include <string.h>

enum { MOST_TEXTS = 65536 }; /* together */

typedef struct session {
    tn_text_model m;
    tn_prompts file;          /* --prompts */
    tn_sample_prompt one;     /* --prompt */
    tn_sample_prompt *prompt; /* (prompts): these or that */
    int64_t prompts, each;    /* each: texts of a prompt */
    tn_text *text;            /* (prompts, each): gathered where it cannot be streamed, or NULL */
    double prefill_s;
    int64_t prompt_tokens;
} session;

static int64_t texts(const session *s) { return s->prompts * s->each; }

static tn_status find_prompts(session *s)
{
    const char *given = tn_args_value(&s->m.c->args, "prompt"), *file = tn_args_value(&s->m.c->args, "prompts");
    s->each = tn_settings_int(s->m.keys, "n");
    s->prompts = 1;
    s->one = (tn_sample_prompt){ .text = given ? given : "", .bytes = given ? strlen(given) : 0 };
    s->prompt = &s->one;
    if (!file) return TN_OK;
    if (given) return tn_error(TN_USAGE, "--prompt and --prompts: give one of them");
    if (s->m.replies)
        return tn_error(TN_USAGE, "--prompts: %s replies to one prompt at a time, give it with --prompt=TEXT",
                        s->m.model.model->name);
    TN_RETURN_IF(tn_prompts_read(file, MOST_TEXTS / s->each, &s->file));
    s->prompts = s->file.n;
    s->prompt = s->file.at;
    return TN_OK;
}

/* Attention's memory: what the longest prompt and the text need. A prompt has no more tokens than bytes, and one to begin with. */
static int64_t capacity(const session *s)
{
    const int64_t context = tn_settings_int(s->m.model.settings, "train.context");
    const size_t longest = s->file.n ? s->file.longest : s->one.bytes;
    if (!tn_settings_is_auto(s->m.keys, "context")) return tn_settings_int(s->m.keys, "context");
    const int64_t need = (int64_t)longest + 2 + tn_settings_int(s->m.keys, "max_tokens");
    return need > context ? context : need;
}

static tn_status open_session(session *s)
{
    TN_RETURN_IF(tn_text_model_open(&s->m, texts(s), capacity(s)));
    if (texts(s) == 1 && !s->file.n && !s->m.c->json) return TN_OK;
    s->text = tn_alloc(sizeof *s->text * (size_t)texts(s));
    return s->text ? TN_OK : TN_MEMORY;
}

static void close_session(session *s)
{
    for (int64_t i = 0; s->text && i < texts(s); i++) tn_text_free(&s->text[i]);
    tn_free(s->text);
    tn_prompts_free(&s->file);
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

static tn_status emit_text(session *s, int64_t i, const tn_text *t)
{
    const tn_sampled r = tn_sampler_result(s->m.sampler, i);
    const tn_sample_prompt *p = &s->prompt[i / s->each];
    json_t *row = json_pack("{s:s, s:I, s:s%, s:s%, s:I, s:s}", "name", "sample", "sample", (json_int_t)(i % s->each),
                            "prompt", p->text, p->bytes, "text", t->data ? t->data : "", t->n, "tokens",
                            (json_int_t)r.n, "end", tn_sample_end_name(r.end));
    if (row && s->file.n)
        json_object_update_new(row, json_pack("{s:I, s:I}", "line", (json_int_t)s->file.line[i / s->each],
                                              "prompt_tokens", (json_int_t)p->tokens));
    return tn_cli_emit(s->m.c, row);
}

/* "--- prompt 2 of 3, sample 1 of 4", and of these what there are several of. */
static void print_rule(const session *s, int64_t i)
{
    fputs("---", s->m.c->out);
    if (s->file.n) fprintf(s->m.c->out, " prompt %lld of %lld", (long long)(i / s->each) + 1, (long long)s->prompts);
    if (!s->file.n || s->each > 1)
        fprintf(s->m.c->out, "%s sample %lld of %lld", s->file.n ? "," : "", (long long)(i % s->each) + 1,
                (long long)s->each);
    fputc('\n', s->m.c->out);
}

static tn_status show_text(session *s, int64_t i, const tn_text *t)
{
    const tn_sample_prompt *p = &s->prompt[i / s->each];
    if (s->m.c->json) return emit_text(s, i, t);
    print_rule(s, i);
    if (!s->m.replies) TN_RETURN_IF(tn_text_write(s->m.c, p->text, p->bytes));
    TN_RETURN_IF(tn_text_write(s->m.c, t->data ? t->data : "", t->n));
    return tn_text_write(s->m.c, "\n", 1);
}

static tn_status show_results(session *s)
{
    for (int64_t i = 0; s->text && i < texts(s); i++) TN_RETURN_IF(show_text(s, i, &s->text[i]));
    return s->text ? TN_OK : tn_text_write(s->m.c, "\n", 1);
}

static tn_status show_times(const session *s, const tn_sample_report *r)
{
    const double first = s->prefill_s + r->first_s, rest = r->seconds - r->first_s;
    const double rate =
        r->tokens > texts(s) && rest > 0 ? (double)(r->tokens - texts(s)) / rest : 0; /* without the prompt's share */
    if (!s->m.c->json) {
        if (s->file.n) fprintf(s->m.c->err, "%lld prompt%s, ", (long long)s->prompts, s->prompts == 1 ? "" : "s");
        fprintf(s->m.c->err, "%s%lld token%s in %.1f ms, first token after %.1f ms, then %.0f tokens/s (%lld in all)\n",
                s->file.n ? "" : "prompt ", (long long)s->prompt_tokens, s->prompt_tokens == 1 ? "" : "s",
                1e3 * s->prefill_s, 1e3 * first, rate, (long long)r->tokens);
        return TN_OK;
    }
    TN_RETURN_IF(tn_cli_emit(s->m.c, json_pack("{s:s, s:I, s:s}", "name", "prompt_tokens", "value",
                                               (json_int_t)s->prompt_tokens, "unit", "tokens")));
    TN_RETURN_IF(tn_cli_number(s->m.c, "first_token", 1e3 * first, "ms"));
    return tn_cli_number(s->m.c, "tokens_per_s", rate, "tokens/s");
}

static tn_status read_prompts(session *s)
{
    s->prompt_tokens = 0;
    if (!s->file.n) return tn_sampler_prompt(s->m.sampler, s->one.text, s->one.bytes, &s->prompt_tokens);
    TN_RETURN_IF(tn_sampler_prompts(s->m.sampler, s->prompt, s->prompts));
    for (int64_t i = 0; i < s->prompts; i++) s->prompt_tokens += s->prompt[i].tokens;
    return TN_OK;
}

/* The prompts and what follows them. */
static tn_status answer(session *s)
{
    tn_sample_report r;
    tn_sample_options o = tn_text_model_options(&s->m);
    o.ctx = s;
    o.text = take_text;
    const double before = tn_clock_s();
    TN_RETURN_IF(read_prompts(s));
    s->prefill_s = tn_clock_s() - before;
    if (!s->text && !s->m.replies) TN_RETURN_IF(tn_text_write(s->m.c, s->one.text, s->one.bytes));
    TN_RETURN_IF(tn_sampler_run(s->m.sampler, &o, &r));
    TN_RETURN_IF(show_results(s));
    return show_times(s, &r);
}

static tn_status run(session *s)
{
    TN_RETURN_IF(tn_sample_settings(&s->m.keys));
    TN_RETURN_IF(tn_text_model_find(&s->m));
    TN_RETURN_IF(find_prompts(s));
    TN_RETURN_IF(open_session(s));
    tn_interrupt_watch();
    return answer(s);
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
