/* The loop of sampling: pick, decode to text, hold back what may become a stop string, feed the token back. */
#include "sample/sample.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <string.h>

static const tn_setting drawing[] = {
    TN_SETTING_FLOAT("temperature", "0.8", TN_RANGE_MIN(0), "",
                     "0: always the most likely token; 1: the model's own distribution"),
    TN_SETTING_INT("top_k", "0", TN_RANGE(0, 1e9), "tokens",
                   "sample from this many most likely tokens only (0: no limit)"),
    TN_SETTING_FLOAT("top_p", "0.95", TN_RANGE_LO_OPEN(0, 1), "",
                     "sample from the most likely tokens that together have this probability (1: no limit)"),
    TN_SETTING_INT("seed", "0", TN_RANGE_MIN(0), "", "random seed"),
    TN_SETTING_TEXT("stop", "", "end before this text (may be given several times)"),
    TN_SETTING_TEXT(
        "tokenizer", "",
        "file or folder of the tokenizer, or bytes (empty: that of the model's file, or of the run's data)"),
};

static const tn_setting lengths[] = {
    TN_SETTING_INT("max_tokens", "256", TN_RANGE(0, 1e9), "tokens", "length of the text"),
    TN_SETTING_INT("n", "1", TN_RANGE(1, 65536), "samples", "texts generated in parallel"),
    TN_SETTING_AUTO_INT("context", "auto", TN_RANGE(1, 1e9), "tokens",
                        "context that attention keeps (auto: prompt and max_tokens)"),
};

tn_status tn_draw_settings(tn_settings **out, const tn_setting *more, size_t n, const char *owner)
{
    tn_settings *st = NULL;
    tn_status s = tn_settings_new(&st);
    if (s == TN_OK) s = tn_settings_add(st, drawing, sizeof drawing / sizeof *drawing, owner);
    if (s == TN_OK) s = tn_settings_add(st, more, n, owner);
    if (s == TN_OK) *out = st;
    else tn_settings_free(st);
    return s;
}

tn_status tn_sample_settings(tn_settings **out)
{
    return tn_draw_settings(out, lengths, sizeof lengths / sizeof *lengths, "sample");
}

tn_sample_options tn_sample_options_read(const tn_settings *st)
{
    return (tn_sample_options){ .pick = { .temperature = tn_settings_float(st, "temperature"),
                                          .top_k = tn_settings_int(st, "top_k"),
                                          .top_p = tn_settings_float(st, "top_p") },
                                .seed = (uint64_t)tn_settings_int(st, "seed"),
                                .max_tokens = tn_settings_int(st, "max_tokens") };
}

const char *tn_sample_end_name(tn_sample_end e)
{
    static const char *const names[] = { "running", "length", "end", "stop", "context" };
    return names[e];
}

/* --- a sampler -------------------------------------------------------------------------------------------------------- */

typedef struct row {
    tn_tokens drawn;
    tn_token_stream stream;
    tn_text held; /* text that is not handed out yet */
    int32_t last; /* of its prompt, for what the successor reads like */
    tn_sample_end end;
} row;

struct tn_sampler {
    tn_decoder *decoder;
    tn_picker *picker;
    const tn_tokenizer *tokenizer;
    tn_tokenizer_scratch *scratch;
    int32_t start;
    int32_t *end; /* (n_end) */
    size_t n_end;
    int64_t batch, vocab; /* vocab: ids that have a text */
    row *row;             /* (batch) */
    tn_tokens prompt;     /* of one row */
    int64_t each;         /* samples of a prompt; fewer than the batch: the others have prompts of their own */
    int32_t *tokens;      /* (batch): what was drawn last, not fed yet while `pending` */
    bool begun, pending;
    uint64_t draws;      /* numbers used so far in each sample */
    const float *logits; /* (batch, decoder's vocab), or NULL before the first prompt */
};

tn_status tn_sampler_new(const tn_sampler_options *o, tn_sampler **out)
{
    tn_status s = TN_OK;
    tn_sampler *m = tn_alloc(sizeof *m);
    if (!m) TN_TRY(TN_MEMORY);
    *m = (tn_sampler){
        .tokenizer = o->tokenizer, .start = o->start, .batch = o->decoder.batch, .each = o->decoder.batch
    };
    TN_TRY(tn_decoder_new(&o->decoder, &m->decoder));
    const int64_t model = tn_decoder_vocab(m->decoder), texts = tn_tokenizer_vocab(o->tokenizer);
    if (texts > model)
        TN_FAIL(
            TN_USAGE,
            "the tokenizer has %lld tokens but the model only %lld: name the model's own tokenizer with tokenizer=FILE",
            (long long)texts, (long long)model);
    m->vocab = texts;
    if (o->n_end && !(m->end = tn_alloc(o->n_end * sizeof *m->end))) TN_TRY(TN_MEMORY);
    if (o->n_end) memcpy(m->end, o->end, o->n_end * sizeof *m->end);
    m->n_end = o->n_end;
    TN_TRY(tn_picker_new(texts, &m->picker));
    TN_TRY(tn_tokenizer_scratch_new(&m->scratch));
    m->row = tn_alloc(sizeof *m->row * (size_t)m->batch);
    m->tokens = tn_alloc(sizeof *m->tokens * (size_t)m->batch);
    if (!m->row || !m->tokens) TN_TRY(TN_MEMORY);
    *out = m;
    m = NULL;
done:
    tn_sampler_free(m);
    return s;
}

void tn_sampler_free(tn_sampler *s)
{
    if (!s) return;
    for (int64_t b = 0; s->row && b < s->batch; b++) {
        tn_tokens_free(&s->row[b].drawn);
        tn_text_free(&s->row[b].held);
    }
    tn_free(s->row);
    tn_free(s->tokens);
    tn_free(s->end);
    tn_tokens_free(&s->prompt);
    tn_tokenizer_scratch_free(s->scratch);
    tn_picker_free(s->picker);
    tn_decoder_free(s->decoder);
    tn_free(s);
}

void tn_sampler_forget(tn_sampler *s)
{
    tn_decoder_clear(s->decoder);
    s->begun = s->pending = false;
    s->each = s->batch;
    s->logits = NULL;
}

void tn_sampler_clear(tn_sampler *s)
{
    tn_sampler_forget(s);
    s->draws = 0;
}

int64_t tn_sampler_tokens_left(const tn_sampler *s)
{
    const int64_t left = tn_decoder_tokens_left(s->decoder);
    return left == INT64_MAX || !s->pending ? left : left - 1;
}

/* --- prompts ---------------------------------------------------------------------------------------------------------- */

/* Prompts of their own have no common continuation. */
static void begin_anew(tn_sampler *s)
{
    if (s->each < s->batch) tn_sampler_forget(s);
}

/* Behind what the last run drew and did not feed, which differs from row to row; a model that replies begins anew. */
tn_status tn_sampler_prompt_tokens(tn_sampler *s, const int32_t *ids, int64_t n)
{
    const bool replies = tn_decoder_replies(s->decoder);
    begin_anew(s);
    const int64_t lead = s->pending && !replies, all = lead + n;
    if (n < 1) return tn_error(TN_USAGE, "the prompt has no tokens");
    int32_t *tokens = tn_alloc(sizeof *tokens * (size_t)(s->batch * all)); /* (B, all) */
    if (!tokens) return TN_MEMORY;
    for (int64_t b = 0; b < s->batch; b++) {
        if (lead) tokens[b * all] = s->tokens[b];
        memcpy(tokens + b * all + lead, ids, sizeof *ids * (size_t)n);
    }
    const tn_status st = replies ? tn_decoder_reply(s->decoder, tokens, n, &s->logits)
                                 : tn_decoder_feed(s->decoder, tokens, all, &s->logits);
    tn_free(tokens);
    if (st != TN_OK) return st;
    s->begun = true;
    s->pending = false;
    for (int64_t b = 0; b < s->batch; b++) s->row[b].last = replies ? -1 : ids[n - 1];
    return TN_OK;
}

/* Into s->prompt. first: nothing was said before. */
static tn_status encode(tn_sampler *s, const char *text, size_t bytes, bool first)
{
    const bool nothing = first && s->start < 0 && bytes == 0;
    s->prompt.n = 0;
    if (first && s->start >= 0) {
        TN_RETURN_IF(tn_grow((void **)&s->prompt.ids, &s->prompt.capacity, 1, sizeof *s->prompt.ids));
        s->prompt.ids[s->prompt.n++] = s->start;
    }
    if (!nothing && !bytes) return TN_OK;
    return tn_tokenizer_encode(s->tokenizer, s->scratch, nothing ? "\n" : text, nothing ? 1 : bytes, 0, &s->prompt);
}

tn_status tn_sampler_prompt(tn_sampler *s, const char *text, size_t bytes, int64_t *tokens)
{
    const bool replies = tn_decoder_replies(s->decoder);
    begin_anew(s);
    const bool first = !s->begun && !replies;
    TN_RETURN_IF(encode(s, text, bytes, first));
    if (s->prompt.n == 0 && !first)
        return tn_error(TN_USAGE,
                        replies ? "the prompt is empty: give the model a sentence to reply to" : "the prompt is empty");
    TN_RETURN_IF(tn_sampler_prompt_tokens(s, s->prompt.ids, (int64_t)s->prompt.n));
    if (tokens) *tokens = (int64_t)s->prompt.n;
    return TN_OK;
}

/* --- prompts of different length --------------------------------------------------------------------------------------- */

typedef struct ragged {
    tn_tokens ids;   /* of all prompts, one after the other */
    int32_t *tokens; /* (B, longest) */
    int64_t *length; /* (B) */
} ragged;

static tn_status gather_prompts(tn_sampler *s, tn_sample_prompt *prompt, int64_t n, ragged *r)
{
    const int64_t room = tn_decoder_tokens_left(s->decoder);
    for (int64_t i = 0; i < n; i++) {
        const tn_status st = encode(s, prompt[i].text, prompt[i].bytes, true);
        if (st != TN_OK) tn_error_prefix("%.300s", prompt[i].where);
        TN_RETURN_IF(st);
        prompt[i].tokens = (int64_t)s->prompt.n;
        if (prompt[i].tokens < 1)
            return tn_error(TN_USAGE, "%.300s: the prompt has no tokens: remove it", prompt[i].where);
        if (prompt[i].tokens > room)
            return tn_error(TN_USAGE,
                            "%.300s: %lld tokens do not fit into a context of %lld: use a shorter prompt or a larger "
                            "context",
                            prompt[i].where, (long long)prompt[i].tokens, (long long)room);
        TN_RETURN_IF(tn_grow((void **)&r->ids.ids, &r->ids.capacity, r->ids.n + s->prompt.n, sizeof *r->ids.ids));
        memcpy(r->ids.ids + r->ids.n, s->prompt.ids, sizeof *r->ids.ids * s->prompt.n);
        r->ids.n += s->prompt.n;
    }
    return TN_OK;
}

static tn_status feed_prompts(tn_sampler *s, const tn_sample_prompt *prompt, int64_t n, ragged *r)
{
    const int64_t each = s->batch / n;
    const int32_t *from = r->ids.ids;
    size_t longest = 1;
    for (int64_t i = 0; i < n; i++)
        if ((size_t)prompt[i].tokens > longest) longest = (size_t)prompt[i].tokens;
    r->length = tn_alloc(sizeof *r->length * (size_t)s->batch);
    r->tokens = tn_alloc(sizeof *r->tokens * (size_t)s->batch * longest);
    if (!r->length || !r->tokens) return tn_error(TN_MEMORY, "out of memory");
    for (int64_t b = 0; b < s->batch; b++) {
        const int64_t own = prompt[b / each].tokens;
        r->length[b] = own;
        memcpy(r->tokens + (size_t)b * longest, from, sizeof *from * (size_t)own);
        s->row[b].last = from[own - 1];
        if ((b + 1) % each == 0) from += own;
    }
    return tn_decoder_feed_rows(s->decoder, r->tokens, (int64_t)longest, r->length, &s->logits);
}

tn_status tn_sampler_prompts(tn_sampler *s, tn_sample_prompt *prompt, int64_t n)
{
    ragged r = { 0 };
    if (tn_decoder_replies(s->decoder))
        return tn_error(TN_USAGE, "the model replies to one prompt at a time: give it one");
    if (n < 1 || s->batch % n)
        return tn_error(TN_INTERNAL, "%lld prompts for %lld samples", (long long)n, (long long)s->batch);
    tn_sampler_clear(s);
    tn_status st = gather_prompts(s, prompt, n, &r);
    if (st == TN_OK) st = feed_prompts(s, prompt, n, &r);
    if (st == TN_OK) {
        s->begun = true;
        s->each = s->batch / n;
    }
    tn_tokens_free(&r.ids);
    tn_free(r.tokens);
    tn_free(r.length);
    return st;
}

/* --- text and stop strings -------------------------------------------------------------------------------------------- */

static tn_status hand_out(const tn_sample_options *o, int64_t sample, row *r, size_t bytes)
{
    if (!bytes) return TN_OK;
    if (o->text) TN_RETURN_IF(o->text(o->ctx, sample, r->held.data, bytes));
    memmove(r->held.data, r->held.data + bytes, r->held.n - bytes);
    r->held.n -= bytes;
    return TN_OK;
}

/* Where the first stop string begins in `held`, or held.n; and how much of its end could still become one. */
static size_t find_stop(const tn_sample_options *o, const tn_text *held, size_t *open)
{
    size_t first = held->n;
    *open = 0;
    for (size_t i = 0; i < o->n_stop; i++) {
        const size_t n = strlen(o->stop[i]);
        for (size_t at = 0; n && at < held->n; at++) {
            const size_t left = held->n - at, same = left < n ? left : n;
            if (memcmp(held->data + at, o->stop[i], same) != 0) continue;
            if (same == n && at < first) first = at;
            if (same < n && left > *open) *open = left;
        }
    }
    return first;
}

/* Takes one drawn token into a row's text; it may end the row. */
static tn_status take_text(tn_sampler *s, const tn_sample_options *o, int64_t b, int32_t id)
{
    row *r = &s->row[b];
    size_t open;
    TN_RETURN_IF(tn_token_stream_put(s->tokenizer, &r->stream, id, &r->held));
    const size_t stop = find_stop(o, &r->held, &open);
    if (stop == r->held.n) return hand_out(o, b, r, r->held.n - open);
    r->held.n = stop;
    r->end = TN_SAMPLE_STOPPED;
    r->stream = (tn_token_stream){ 0 };
    return hand_out(o, b, r, stop);
}

/* What was held back comes out, unless it became a stop string. */
static tn_status finish_text(const tn_sample_options *o, int64_t b, row *r)
{
    TN_RETURN_IF(tn_token_stream_end(&r->stream, &r->held));
    return hand_out(o, b, r, r->held.n);
}

/* --- the loop --------------------------------------------------------------------------------------------------------- */

static bool ends_text(const tn_sampler *s, int32_t id)
{
    for (size_t i = 0; i < s->n_end; i++)
        if (s->end[i] == id) return true;
    return id == s->start || id == tn_tokenizer_special(s->tokenizer, TN_TOKEN_EOS) ||
           id == tn_tokenizer_special(s->tokenizer, TN_TOKEN_END) ||
           id == tn_tokenizer_special(s->tokenizer, TN_TOKEN_BOS);
}

static tn_status draw_row(tn_sampler *s, const tn_sample_options *o, int64_t b)
{
    row *r = &s->row[b];
    const tn_rng rng = { .seed = o->seed, .stream = tn_rng_stream("sample") + (uint64_t)(b % s->each) };
    int32_t id;
    TN_RETURN_IF(tn_pick(s->picker, &o->pick, s->logits + b * tn_decoder_vocab(s->decoder),
                         tn_pick_uniform(rng, s->draws), &id));
    s->tokens[b] = id;
    if (ends_text(s, id)) {
        r->end = TN_SAMPLE_ENDED;
        return finish_text(o, b, r);
    }
    r->drawn.ids[r->drawn.n++] = id;
    TN_RETURN_IF(take_text(s, o, b, id));
    if (r->end == TN_SAMPLE_RUNNING && (int64_t)r->drawn.n == o->max_tokens) r->end = TN_SAMPLE_LENGTH;
    if (r->end == TN_SAMPLE_RUNNING && tn_decoder_row_left(s->decoder, b) == 0) r->end = TN_SAMPLE_FULL;
    return r->end == TN_SAMPLE_LENGTH || r->end == TN_SAMPLE_FULL ? finish_text(o, b, r) : TN_OK;
}

/* Ids are counted from max_tokens, but memory is only taken as they come. */
static tn_status reserve_tokens(tn_sampler *s)
{
    for (int64_t b = 0; b < s->batch; b++) {
        tn_tokens *t = &s->row[b].drawn;
        if (t->n < t->capacity) continue;
        TN_RETURN_IF(tn_grow((void **)&t->ids, &t->capacity, 2 * t->n + 256, sizeof *t->ids));
    }
    return TN_OK;
}

static tn_status draw_all(tn_sampler *s, const tn_sample_options *o, int64_t *running)
{
    *running = 0;
    TN_RETURN_IF(reserve_tokens(s));
    for (int64_t b = 0; b < s->batch; b++) {
        if (s->row[b].end == TN_SAMPLE_RUNNING) {
            TN_RETURN_IF(draw_row(s, o, b));
            if (s->row[b].end != TN_SAMPLE_RUNNING && s->each < s->batch) tn_decoder_end_row(s->decoder, b);
        }
        *running += s->row[b].end == TN_SAMPLE_RUNNING;
    }
    s->draws++;
    s->pending = true;
    return TN_OK;
}

static void start_rows(tn_sampler *s, const tn_sample_options *o)
{
    for (int64_t b = 0; b < s->batch; b++) {
        row *r = &s->row[b];
        r->drawn.n = r->held.n = 0;
        r->stream = (tn_token_stream){ .previous = r->last + 1 };
        r->end = o->max_tokens == 0 ? TN_SAMPLE_LENGTH : TN_SAMPLE_RUNNING;
    }
}

tn_status tn_sampler_run(tn_sampler *s, const tn_sample_options *o, tn_sample_report *out)
{
    tn_sample_report r = { 0 };
    const double start = tn_clock_s();
    if (!s->logits || s->pending) return tn_error(TN_USAGE, "there is no prompt to continue from");
    start_rows(s, o);
    for (int64_t running = o->max_tokens > 0; running;) {
        TN_RETURN_IF(draw_all(s, o, &running));
        if (r.first_s == 0) r.first_s = tn_clock_s() - start;
        if (!running) break;
        TN_RETURN_IF(tn_decoder_feed(s->decoder, s->tokens, 1, &s->logits)); /* rows that ended go along, unseen */
        s->pending = false;
    }
    for (int64_t b = 0; b < s->batch; b++) r.tokens += (int64_t)s->row[b].drawn.n;
    r.seconds = tn_clock_s() - start;
    if (out) *out = r;
    return TN_OK;
}

tn_sampled tn_sampler_result(const tn_sampler *s, int64_t sample)
{
    const row *r = &s->row[sample];
    return (tn_sampled){ .ids = r->drawn.ids, .n = (int64_t)r->drawn.n, .last = s->tokens[sample], .end = r->end };
}
