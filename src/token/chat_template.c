/* Recognising chat templates, and writing prompts in them. What is written goes to a writer that knows markers from text. */
#include "token/chat_template.h"

#include "token/tokenizer_impl.h"

#include <stdio.h>
#include <string.h>

/* --- recognising -------------------------------------------------------------------------------------------------- */

static const char *const names[] = { "chatml", "llama2", "llama3", "mistral" };
#define CHOICES "template=chatml, llama2, llama3 or mistral"

const char *tn_chat_template_name(const tn_chat_template *t) { return names[t->kind]; }

tn_status tn_chat_template_named(const char *name, tn_chat_template *out)
{
    tn_chat_template t = { .date = "26 Jul 2024" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        t.kind = (tn_chat_kind)i;
        t.trims = t.kind == TN_CHAT_LLAMA2 || t.kind == TN_CHAT_LLAMA3;
        t.after_open = t.before_answer = t.trims_answer = t.takes_system = t.system_last = true;
        *out = t;
        return TN_OK;
    }
    return tn_error(TN_USAGE, "template=%.40s is unknown: use template=chatml, llama2, llama3, mistral or none", name);
}

static bool has(const char *text, const char *part) { return strstr(text, part) != NULL; }

/* Whether one of the parts is there, with either kind of quotes: ' stands for both. */
static bool has_quoted(const char *text, const char *part)
{
    char other[80];
    size_t n = 0;
    for (; part[n] && n + 1 < sizeof other; n++) other[n] = part[n] == '\'' ? '"' : part[n];
    other[n] = 0;
    return has(text, part) || has(text, other);
}

/* The text between "<|im_start|>system\n" and "<|im_end|>" where it is written out. */
static void find_default(const char *text, tn_chat_template *t)
{
    static const char open[] = "<|im_start|>system", close[] = "<|im_end|>";
    for (const char *at = text; (at = strstr(at, open));) {
        at += sizeof open - 1;
        const char *from = *at == '\n' ? at + 1 : strncmp(at, "\\n", 2) == 0 ? at + 2 : NULL;
        const char *end = from ? strstr(from, close) : NULL;
        if (!end || end == from || (size_t)(end - from) >= sizeof t->system) continue;
        if (strcspn(from, "'\"{}+") < (size_t)(end - from)) continue; /* an expression */
        size_t n = 0;
        for (; from < end; from++) {
            const bool newline = from[0] == '\\' && from[1] == 'n';
            t->system[n++] = newline ? '\n' : *from;
            from += newline;
        }
        t->system[n] = 0;
        t->has_default = true;
        return;
    }
}

/* date_string = "26 Jul 2024" */
static void find_date(const char *text, tn_chat_template *t)
{
    const char *at = strstr(text, "set date_string = \"");
    t->dates = has(text, "Cutting Knowledge Date");
    t->today = has(text, "strftime_now");
    if (!at) return;
    at += strlen("set date_string = \"");
    const size_t n = strcspn(at, "\"");
    if (n < sizeof t->date) snprintf(t->date, sizeof t->date, "%.*s", (int)n, at);
}

static void find_spaces(const char *text, tn_chat_template *t)
{
    t->before_open = has_quoted(text, "' [INST]");
    t->after_open = has(text, "[INST] ");
    t->before_close = has(text, " [/INST]");
    t->before_answer = has_quoted(text, "' ' + message") || has_quoted(text, "' '  + message");
    t->after_end = has_quoted(text, "eos_token + ' '") || has_quoted(text, "eos_token+' '");
    t->trims_answer = has(text, "|trim") || has(text, "| trim") || has(text, "strip()");
    t->takes_system = has(text, "system_message");
    t->system_last = has(text, "loop.last and system_message");
}

tn_status tn_chat_template_recognise(const char *text, tn_chat_template *out)
{
    tn_chat_template t = { .date = "26 Jul 2024" };
    const bool strips = has(text, "strip()") || has(text, "| trim") || has(text, "|trim");
    if (has(text, "<|im_start|>") && !has(text, "## Metadata")) { /* SmolLM3 writes more than its messages */
        t.kind = TN_CHAT_CHATML;
        t.bos = has(text, "bos_token");
        t.trims = strips;
        t.forgets_thoughts = has_quoted(text, "split('</think>')");
        find_default(text, &t);
    } else if (has(text, "<|start_header_id|>") && has(text, "<|eot_id|>")) {
        t.kind = TN_CHAT_LLAMA3;
        t.trims = strips;
        find_date(text, &t);
    } else if (has(text, "[INST]") && has(text, "<<SYS>>")) {
        t.kind = TN_CHAT_LLAMA2;
        t.trims = strips;
    } else if (has(text, "[INST]") && !has(text, "[SYSTEM_PROMPT]")) {
        t.kind = TN_CHAT_MISTRAL;
        find_spaces(text, &t);
    } else
        return tn_error(TN_USAGE,
                        "the model's chat template is of none of the known kinds; if you know that one fits, name "
                        "it: " CHOICES);
    *out = t;
    return TN_OK;
}

/* --- texts -------------------------------------------------------------------------------------------------------- */

typedef struct part {
    const char *text;
    size_t n;
} part;

/* What Python's str.strip() takes away. */
static bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

static part strip_end(part p)
{
    while (p.n) {
        size_t at = p.n - 1, k;
        while (at > 0 && ((unsigned char)p.text[at] & 0xc0) == 0x80) at--;
        if (tn_utf8_first((const unsigned char *)p.text + at, p.n - at, &k) != TN_UTF8_CHAR) break;
        if (!is_space(tn_utf8_get((const unsigned char *)p.text + at, &k))) break;
        p.n = at;
    }
    return p;
}

static part strip(part p)
{
    size_t k;
    while (p.n && tn_utf8_first((const unsigned char *)p.text, p.n, &k) == TN_UTF8_CHAR &&
           is_space(tn_utf8_get((const unsigned char *)p.text, &k))) {
        p.text += k;
        p.n -= k;
    }
    return strip_end(p);
}

static const char *find_in(part p, const char *what)
{
    const size_t n = strlen(what);
    for (size_t i = 0; i + n <= p.n; i++)
        if (memcmp(p.text + i, what, n) == 0) return p.text + i;
    return NULL;
}

/* What follows the last </think>, without line breaks before it. */
static part after_thoughts(part p)
{
    static const char end[] = "</think>";
    bool found = false;
    for (const char *at; (at = find_in(p, end)); found = true) {
        p.n -= (size_t)(at - p.text) + sizeof end - 1;
        p.text = at + sizeof end - 1;
    }
    for (; found && p.n && *p.text == '\n'; p.n--) p.text++;
    return p;
}

/* --- the writer --------------------------------------------------------------------------------------------------- */

enum { MARKERS = 12 };

typedef struct writer {
    const tn_chat_template *c;
    const tn_tokenizer *t;
    tn_tokenizer_scratch *x;
    tn_text *text;   /* or NULL */
    tn_tokens *ids;  /* or NULL */
    tn_text pending; /* text behind the last control token */
    bool inside;     /* something was written already */
    int32_t plain[MARKERS];
    size_t n_plain;
} writer;

/* Every marker of every template: none of them is to be made from a person's text, not even of another template. */
static const char *const markers[] = {
    "<|im_start|>",      "<|im_end|>", "<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>",
    "<|end_header_id|>", "[INST]",     "[/INST]",           "<s>",        "</s>",
    "<<SYS>>",           "<</SYS>>"
};
_Static_assert(sizeof markers / sizeof *markers == MARKERS, "as many as the writer has room for");

/* An added token by its text: one that stands for itself, special or not; -1: none. */
static int32_t token_of(const tn_tokenizer *t, const char *text)
{
    const size_t n = strlen(text);
    for (size_t i = 0; t && i < t->n_added; i++)
        if (t->added[i].bytes == n && memcmp(tn_vocab_bytes(&t->vocab, t->added[i].id), text, n) == 0)
            return t->added[i].id;
    return -1;
}

static tn_status flush(writer *w)
{
    const tn_encode_part how = { .inside = w->inside, .plain = w->plain, .n_plain = w->n_plain };
    if (!w->pending.n) return TN_OK;
    const tn_status s = tn_tokenizer_encode_part(w->t, w->x, w->pending.data, w->pending.n, &how, w->ids);
    w->pending.n = 0;
    w->inside = true;
    return s;
}

static tn_status put(writer *w, part p)
{
    if (w->text && p.n) TN_RETURN_IF(tn_text_append(w->text, p.text, p.n));
    return w->ids && p.n ? tn_text_append(&w->pending, p.text, p.n) : TN_OK;
}

static tn_status say(writer *w, const char *text) { return put(w, (part){ text, strlen(text) }); }

static tn_status put_id(writer *w, int32_t id)
{
    TN_RETURN_IF(flush(w));
    TN_RETURN_IF(tn_tokens_reserve(w->ids, 1));
    w->ids->ids[w->ids->n++] = id;
    w->inside = true;
    return TN_OK;
}

/* A marker: its token; where it must be one, another vocabulary is refused, else it is text. */
static tn_status mark(writer *w, const char *marker, bool must)
{
    const int32_t id = token_of(w->t, marker);
    if (!w->ids) return say(w, marker);
    if (id < 0 && must)
        return tn_error(TN_USAGE,
                        "the template %s needs the token %s, which the model's vocabulary does not have: name "
                        "another (template=)",
                        tn_chat_template_name(w->c), marker);
    if (id < 0) return say(w, marker);
    if (w->text) TN_RETURN_IF(tn_text_append(w->text, marker, strlen(marker)));
    return put_id(w, id);
}

/* BOS by the names it has, where the vocabulary says none. */
static tn_status put_bos(writer *w)
{
    static const char *const usual[] = { "<s>", "<|begin_of_text|>", "<|startoftext|>", "<bos>" };
    int32_t id = w->t ? tn_tokenizer_special(w->t, TN_TOKEN_BOS) : -1;
    size_t n = 0;
    for (size_t i = 0; id < 0 && i < sizeof usual / sizeof *usual; i++) id = token_of(w->t, usual[i]);
    const char *text = id >= 0 ? tn_tokenizer_piece(w->t, id, &n) : NULL;
    if (!text) return TN_OK;
    if (w->text) TN_RETURN_IF(tn_text_append(w->text, text, n));
    return w->ids ? put_id(w, id) : TN_OK;
}

/* --- the templates ------------------------------------------------------------------------------------------------ */

static const char *const roles[] = { "system", "user", "assistant" };

static part text_of(const tn_chat_template *c, const tn_chat_message *m)
{
    part p = { m->text, m->bytes };
    if (c->forgets_thoughts && m->role == TN_CHAT_ASSISTANT) p = after_thoughts(p);
    return c->trims ? strip(p) : p;
}

static tn_status chatml_turn(writer *w, const char *role, part text)
{
    TN_RETURN_IF(mark(w, "<|im_start|>", true));
    TN_RETURN_IF(say(w, role));
    TN_RETURN_IF(say(w, "\n"));
    TN_RETURN_IF(put(w, text));
    TN_RETURN_IF(mark(w, "<|im_end|>", true));
    return say(w, "\n");
}

static tn_status chatml(writer *w, const tn_chat_message *m, size_t n)
{
    if (w->c->bos) TN_RETURN_IF(put_bos(w));
    if (m[0].role != TN_CHAT_SYSTEM && w->c->has_default)
        TN_RETURN_IF(chatml_turn(w, "system", (part){ w->c->system, strlen(w->c->system) }));
    for (size_t i = 0; i < n; i++) TN_RETURN_IF(chatml_turn(w, roles[m[i].role], text_of(w->c, &m[i])));
    TN_RETURN_IF(mark(w, "<|im_start|>", true));
    return say(w, "assistant\n");
}

static tn_status llama3_head(writer *w, const char *role)
{
    TN_RETURN_IF(mark(w, "<|start_header_id|>", true));
    TN_RETURN_IF(say(w, role));
    TN_RETURN_IF(mark(w, "<|end_header_id|>", true));
    return say(w, "\n\n");
}

/* The system text stands below the dates, if there are any. */
static tn_status llama3(writer *w, const tn_chat_message *m, size_t n)
{
    char dates[96];
    TN_RETURN_IF(mark(w, "<|begin_of_text|>", true));
    if (w->c->dates && m[0].role != TN_CHAT_SYSTEM) TN_RETURN_IF(llama3_head(w, "system"));
    snprintf(dates, sizeof dates, "Cutting Knowledge Date: December 2023\nToday Date: %s\n\n", w->c->date);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 && w->c->dates && m[0].role != TN_CHAT_SYSTEM) {
            TN_RETURN_IF(say(w, dates));
            TN_RETURN_IF(mark(w, "<|eot_id|>", true));
        }
        TN_RETURN_IF(llama3_head(w, roles[m[i].role]));
        if (i == 0 && w->c->dates && m[0].role == TN_CHAT_SYSTEM) TN_RETURN_IF(say(w, dates));
        TN_RETURN_IF(put(w, text_of(w->c, &m[i])));
        TN_RETURN_IF(mark(w, "<|eot_id|>", true));
    }
    return llama3_head(w, "assistant");
}

static tn_status llama2(writer *w, const tn_chat_message *m, size_t n)
{
    const tn_chat_message *system = m[0].role == TN_CHAT_SYSTEM ? &m[0] : NULL;
    const size_t first = system != NULL;
    for (size_t i = first; i < n; i++) {
        const bool person = m[i].role == TN_CHAT_USER, under = i == first && system;
        part text = { m[i].text, m[i].bytes };
        if (w->c->trims) text = under ? strip_end(text) : strip(text);
        if (person) TN_RETURN_IF(mark(w, "<s>", true));
        if (person) TN_RETURN_IF(mark(w, "[INST]", false));
        TN_RETURN_IF(say(w, " "));
        if (under) {
            TN_RETURN_IF(say(w, "<<SYS>>\n"));
            TN_RETURN_IF(put(w, (part){ system->text, system->bytes }));
            /* the whole is trimmed: nothing but whitespace below the system text leaves none of it */
            TN_RETURN_IF(say(w, text.n || !w->c->trims ? "\n<</SYS>>\n\n" : "\n<</SYS>>"));
        }
        TN_RETURN_IF(put(w, text));
        TN_RETURN_IF(say(w, " "));
        TN_RETURN_IF(person ? mark(w, "[/INST]", false) : mark(w, "</s>", true));
    }
    return TN_OK;
}

static tn_status mistral_turn(writer *w, part system, part text)
{
    if (w->c->before_open) TN_RETURN_IF(say(w, " "));
    TN_RETURN_IF(mark(w, "[INST]", false));
    if (w->c->after_open) TN_RETURN_IF(say(w, " "));
    TN_RETURN_IF(put(w, system));
    if (system.text) TN_RETURN_IF(say(w, "\n\n"));
    TN_RETURN_IF(put(w, text));
    if (w->c->before_close) TN_RETURN_IF(say(w, " "));
    return mark(w, "[/INST]", false);
}

static tn_status mistral(writer *w, const tn_chat_message *m, size_t n)
{
    const bool system = m[0].role == TN_CHAT_SYSTEM;
    const size_t at = w->c->system_last ? n - 1 : system;
    if (system && !w->c->takes_system)
        return tn_error(TN_USAGE, "the model's template has no place for a system text: remove system=");
    TN_RETURN_IF(mark(w, "<s>", true));
    for (size_t i = system; i < n; i++) {
        part text = { m[i].text, m[i].bytes };
        if (m[i].role == TN_CHAT_USER) {
            TN_RETURN_IF(
                mistral_turn(w, system && i == at ? (part){ m[0].text, m[0].bytes } : (part){ NULL, 0 }, text));
            continue;
        }
        if (w->c->before_answer) TN_RETURN_IF(say(w, " "));
        TN_RETURN_IF(put(w, w->c->trims_answer ? strip(text) : text));
        TN_RETURN_IF(mark(w, "</s>", true));
        if (w->c->after_end) TN_RETURN_IF(say(w, " "));
    }
    return TN_OK;
}

/* --- prompts ------------------------------------------------------------------------------------------------------ */

static tn_status check_order(const tn_chat_message *m, size_t n)
{
    const size_t first = n && m[0].role == TN_CHAT_SYSTEM;
    for (size_t i = first; i < n; i++)
        if (m[i].role != ((i - first) % 2 ? TN_CHAT_ASSISTANT : TN_CHAT_USER))
            return tn_error(TN_USAGE, "message %zu is the %s's: person and model take turns", i + 1, roles[m[i].role]);
    if (n == first || m[n - 1].role != TN_CHAT_USER)
        return tn_error(TN_USAGE, "the last message is not the person's: there is nothing to answer");
    return TN_OK;
}

/* Markers that this template writes as text. */
static tn_status check_texts(const tn_chat_template *c, const tn_tokenizer *t, const tn_chat_message *m, size_t n)
{
    static const char *const written[] = { "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>" };
    const size_t n_written = c->kind == TN_CHAT_LLAMA2 ? 4 : c->kind == TN_CHAT_MISTRAL ? 2 : 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n_written && m[i].role != TN_CHAT_ASSISTANT; k++)
            if ((k >= 2 || token_of(t, written[k]) < 0) && find_in((part){ m[i].text, m[i].bytes }, written[k]))
                return tn_error(TN_USAGE,
                                "message %zu contains %s, which the template %s cannot tell from its own: remove it",
                                i + 1, written[k], tn_chat_template_name(c));
    return TN_OK;
}

tn_status tn_chat_prompt(const tn_chat_template *c, const tn_tokenizer *t, tn_tokenizer_scratch *x,
                         const tn_chat_message *m, size_t n, tn_text *text, tn_tokens *ids)
{
    static tn_status (*const write[])(writer *, const tn_chat_message *, size_t) = { chatml, llama2, llama3, mistral };
    const size_t text_before = text ? text->n : 0, ids_before = ids ? ids->n : 0;
    writer w = { .c = c, .t = t, .x = x, .text = text, .ids = ids };
    tn_status s = TN_OK;
    TN_TRY(check_order(m, n));
    TN_TRY(check_texts(c, t, m, n));
    for (size_t i = 0; i < MARKERS; i++) {
        const int32_t id = token_of(t, markers[i]);
        if (id >= 0) w.plain[w.n_plain++] = id;
    }
    TN_TRY(write[c->kind](&w, m, n));
    if (ids) TN_TRY(flush(&w));
done:
    if (s != TN_OK && text) text->n = text_before;
    if (s != TN_OK && ids) ids->n = ids_before;
    tn_text_free(&w.pending);
    return s;
}
