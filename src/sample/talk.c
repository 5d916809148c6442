/* History of a talk, and which part of it the model has read. */
#include "sample/talk.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <string.h>

struct tn_talk {
    tn_sampler *sampler;
    const tn_tokenizer *tokenizer;
    const tn_chat_template *form;
    tn_tokenizer_scratch *scratch;
    tn_chat_message *message; /* (n), their texts owned */
    size_t n, capacity, kept; /* kept: 1 where the first is the system text */
    tn_tokens read;           /* what the sampler has read or drawn, in its order */
    tn_tokens prompt;
    int64_t room; /* tokens of the context */
    tn_text answer;
};

static void drop(tn_talk *t, size_t first, size_t n)
{
    for (size_t i = 0; i < n; i++) tn_free((void *)(uintptr_t)t->message[first + i].text);
    memmove(t->message + first, t->message + first + n, (t->n - first - n) * sizeof *t->message);
    t->n -= n;
}

static tn_status push(tn_talk *t, tn_chat_role role, const char *text, size_t bytes)
{
    void *list = t->message;
    char *copy = tn_alloc(bytes + 1);
    if (!copy) return TN_MEMORY;
    if (bytes) memcpy(copy, text, bytes);
    if (t->n == t->capacity) {
        const tn_status s = tn_grow(&list, &t->capacity, 2 * t->n + 16, sizeof *t->message);
        if (s != TN_OK) return tn_free(copy), s;
        t->message = list;
    }
    t->message[t->n++] = (tn_chat_message){ role, copy, bytes };
    return TN_OK;
}

/* The sampler reads from the start again; its draws go on. */
static void unread(tn_talk *t)
{
    tn_sampler_forget(t->sampler);
    t->read.n = 0;
}

/* A template that this vocabulary or system text does not suit is refused before the first turn. */
static tn_status try_template(tn_talk *t)
{
    TN_RETURN_IF(push(t, TN_CHAT_USER, "", 0));
    const tn_status s = tn_chat_prompt(t->form, t->tokenizer, t->scratch, t->message, t->n, NULL, &t->prompt);
    drop(t, t->n - 1, 1);
    return s;
}

tn_status tn_talk_new(tn_sampler *sampler, const tn_tokenizer *tokenizer, const tn_chat_template *form,
                      const char *system, tn_talk **out)
{
    tn_status s = TN_OK;
    tn_talk *t = tn_alloc(sizeof *t);
    if (!t) TN_TRY(TN_MEMORY);
    *t = (tn_talk){ .sampler = sampler, .tokenizer = tokenizer, .form = form };
    TN_TRY(tn_tokenizer_scratch_new(&t->scratch));
    tn_sampler_clear(sampler);
    t->room = tn_sampler_tokens_left(sampler);
    if (system) TN_TRY(push(t, TN_CHAT_SYSTEM, system, strlen(system)));
    t->kept = t->n;
    TN_TRY(try_template(t));
    *out = t;
    t = NULL;
done:
    tn_talk_free(t);
    return s;
}

void tn_talk_free(tn_talk *t)
{
    if (!t) return;
    drop(t, 0, t->n);
    tn_free(t->message);
    tn_tokens_free(&t->read);
    tn_tokens_free(&t->prompt);
    tn_text_free(&t->answer);
    tn_tokenizer_scratch_free(t->scratch);
    tn_free(t);
}

void tn_talk_clear(tn_talk *t)
{
    drop(t, t->kept, t->n - t->kept);
    unread(t);
}

/* The prompt, after as many of the oldest turns were dropped as it takes. */
static tn_status make_prompt(tn_talk *t, int64_t max_tokens, int64_t *forgotten)
{
    const int64_t quarter = t->room / 4, answer = max_tokens < quarter ? max_tokens : quarter;
    for (*forgotten = 0;; ++*forgotten) {
        t->prompt.n = 0;
        TN_RETURN_IF(tn_chat_prompt(t->form, t->tokenizer, t->scratch, t->message, t->n, NULL, &t->prompt));
        const int64_t n = (int64_t)t->prompt.n;
        if (t->room == INT64_MAX || n + answer <= t->room) return TN_OK;
        if (t->n - t->kept > 2) drop(t, t->kept, 2);
        else if (n < t->room) return TN_OK; /* there is room for some answer */
        else
            return tn_error(TN_USAGE,
                            "the message makes a prompt of %lld tokens, and the context has %lld: shorten it, or use a "
                            "larger context=",
                            (long long)n, (long long)t->room);
    }
}

static tn_status read_prompt(tn_talk *t, tn_talk_report *r)
{
    const double start = tn_clock_s();
    const bool goes_on = t->read.n && t->read.n < t->prompt.n &&
                         memcmp(t->read.ids, t->prompt.ids, t->read.n * sizeof *t->read.ids) == 0;
    if (!goes_on) unread(t);
    const size_t from = t->read.n;
    r->prompt = (int64_t)t->prompt.n;
    r->read = (int64_t)(t->prompt.n - from);
    TN_RETURN_IF(tn_sampler_prompt_tokens(t->sampler, t->prompt.ids + from, r->read));
    r->prompt_s = tn_clock_s() - start;
    return TN_OK;
}

typedef struct listener {
    tn_talk *talk;
    const tn_sample_options *to;
} listener;

static tn_status hear(void *ctx, int64_t sample, const char *text, size_t bytes)
{
    const listener *l = ctx;
    tn_text *a = &l->talk->answer;
    if (a->n + bytes > a->capacity) TN_RETURN_IF(tn_grow((void **)&a->data, &a->capacity, 2 * (a->n + bytes), 1));
    memcpy(a->data + a->n, text, bytes);
    a->n += bytes;
    return l->to->text ? l->to->text(l->to->ctx, sample, text, bytes) : TN_OK;
}

/* What the sampler has now: the prompt, what was drawn, and the token that ended it, which it feeds with the next prompt. */
static tn_status note_read(tn_talk *t)
{
    const tn_sampled r = tn_sampler_result(t->sampler, 0);
    const size_t n = t->prompt.n + (size_t)r.n + (r.end == TN_SAMPLE_ENDED);
    if (n > t->read.capacity)
        TN_RETURN_IF(tn_grow((void **)&t->read.ids, &t->read.capacity, 2 * n, sizeof *t->read.ids));
    memcpy(t->read.ids, t->prompt.ids, t->prompt.n * sizeof *t->read.ids);
    if (r.n) memcpy(t->read.ids + t->prompt.n, r.ids, (size_t)r.n * sizeof *t->read.ids);
    if (r.end == TN_SAMPLE_ENDED) t->read.ids[n - 1] = r.last;
    t->read.n = n;
    return TN_OK;
}

tn_status tn_talk_turn(tn_talk *t, const char *text, size_t bytes, const tn_sample_options *o, tn_talk_report *out)
{
    tn_talk_report r = { 0 };
    listener l = { t, o };
    tn_sample_options heard = *o;
    heard.text = hear;
    heard.ctx = &l;
    t->answer.n = 0;
    TN_RETURN_IF(push(t, TN_CHAT_USER, text, bytes));
    tn_status s = make_prompt(t, o->max_tokens, &r.forgotten);
    if (s == TN_OK) s = read_prompt(t, &r);
    if (s == TN_OK) s = tn_sampler_run(t->sampler, &heard, &r.drawn);
    if (s == TN_OK) r.end = tn_sampler_result(t->sampler, 0).end;
    if (s == TN_OK) s = note_read(t);
    else unread(t);
    if (s == TN_OK || s == TN_INTERRUPTED) {
        const tn_status kept = push(t, TN_CHAT_ASSISTANT, t->answer.data, t->answer.n);
        if (kept != TN_OK) s = kept;
    }
    if (s != TN_OK && s != TN_INTERRUPTED) drop(t, t->n - 1, 1);
    if (s == TN_OK && out) *out = r;
    return s;
}
