/* tenon chat: a talk with a model, a line a turn, from a person at a terminal or from a pipe. Answers go to standard output as
 * they are drawn; the prompt "> ", notes and help to standard error.
 *
 * A model with a chat template talks in it (sample/talk.h). template=none continues the lines, each with its end, and a model
 * that replies answers every line by itself. */
#include "base/alloc.h"
#include "cli/term.h"
#include "cli/text_model.h"
#include "cli/view.h"
#include "sample/talk.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 1 << 20, MOST_CONTEXT = 8192 };

static const tn_setting rows[] = {
    TN_SETTING_INT("max_tokens", "1024", TN_RANGE(0, 1e9), "tokens", "length of an answer"),
    TN_SETTING_AUTO_INT("context", "auto", TN_RANGE(1, 1e9), "tokens",
                        "context that attention keeps (auto: the model's, at most 8192)"),
    TN_SETTING_TEXT("template", "",
                    "chatml, llama2, llama3, mistral, or none: lines are continued (empty: the model's own)"),
    TN_SETTING_TEXT("system", "", "text that says how to answer (empty: none, or that of the template)"),
    TN_SETTING_TEXT("date", "", "day in the system text of Llama 3.1 and later (empty: the template's, or today)"),
};

typedef struct session {
    tn_text_model m;
    tn_chat_template form;
    tn_talk *talk; /* NULL: lines are continued, or answered one by one */
    bool person;
    tn_text answer; /* gathered for JSON */
} session;

/* --- opening ---------------------------------------------------------------------------------------------------------- */

tn_status tn_chat_settings(tn_settings **out)
{
    return tn_draw_settings(out, rows, sizeof rows / sizeof *rows, "chat");
}

static void set_date(session *s)
{
    const char *said = tn_settings_text(s->m.keys, "date");
    const time_t now = time(NULL);
    struct tm day;
    if (said[0]) snprintf(s->form.date, sizeof s->form.date, "%s", said);
    else if (s->form.today && localtime_r(&now, &day)) strftime(s->form.date, sizeof s->form.date, "%d %b %Y", &day);
}

/* *none: the model has no template, and needs none. */
static tn_status find_template(session *s, bool *none)
{
    const char *said = tn_settings_text(s->m.keys, "template"), *target = tn_args_positional(&s->m.c->args, 0);
    const char *system = tn_settings_text(s->m.keys, "system");
    *none = strcmp(said, "none") == 0 || (s->m.replies && !said[0]);
    if (*none && system[0]) return tn_error(TN_USAGE, "system= needs a template, and there is none: remove it");
    if (*none) return TN_OK;
    if (said[0]) TN_RETURN_IF(tn_chat_template_named(said, &s->form));
    else if (s->m.tokens.chat_template) {
        const tn_status st = tn_chat_template_recognise(s->m.tokens.chat_template, &s->form);
        if (st == TN_USAGE) tn_error_prefix("%.300s", target);
        TN_RETURN_IF(st);
    } else
        return tn_error(
            TN_USAGE,
            "%.300s has no chat template: template=none continues each line, template=chatml, llama2, llama3 or "
            "mistral is for a model that was trained with it",
            target);
    set_date(s);
    return TN_OK;
}

static int64_t context_of(const session *s)
{
    const int64_t trained = tn_settings_int(s->m.model.settings, "train.context");
    if (!tn_settings_is_auto(s->m.keys, "context")) return tn_settings_int(s->m.keys, "context");
    return trained < MOST_CONTEXT ? trained : MOST_CONTEXT;
}

static tn_status open_session(session *s)
{
    bool none;
    const char *system;
    TN_RETURN_IF(tn_chat_settings(&s->m.keys));
    if (tn_cli_override(s->m.c, "n")) return tn_error(TN_USAGE, "a talk has one answer to a line: remove n=");
    TN_RETURN_IF(tn_text_model_find(&s->m));
    TN_RETURN_IF(find_template(s, &none));
    TN_RETURN_IF(tn_text_model_open(&s->m, 1, context_of(s)));
    if (none) return TN_OK;
    system = tn_settings_text(s->m.keys, "system");
    return tn_talk_new(s->m.sampler, s->m.tokenizer, &s->form, system[0] ? system : NULL, &s->talk);
}

/* --- a turn ----------------------------------------------------------------------------------------------------------- */

static tn_status take_text(void *ctx, int64_t sample, const char *text, size_t bytes)
{
    session *s = ctx;
    tn_text *a = &s->answer;
    (void)sample;
    if (tn_interrupted(NULL)) return tn_error(TN_INTERRUPTED, "interrupted");
    if (!s->m.c->json) return tn_text_write(s->m.c, text, bytes);
    if (a->n + bytes > a->capacity) TN_RETURN_IF(tn_grow((void **)&a->data, &a->capacity, 2 * (a->n + bytes), 1));
    memcpy(a->data + a->n, text, bytes);
    a->n += bytes;
    return TN_OK;
}

static void note(const session *s, const char *text) { fprintf(s->m.c->err, "note: %s\n", text); }

/* A line with its end behind what came before; the talk starts over when attention's context is full. */
static tn_status plain_turn(session *s, const char *line, size_t bytes, const tn_sample_options *o, tn_talk_report *r)
{
    const int64_t left = tn_sampler_tokens_left(s->m.sampler);
    if (!s->m.replies && left != INT64_MAX && left < (int64_t)bytes + 2) {
        note(s, "the context is full; the conversation starts over");
        tn_sampler_clear(s->m.sampler);
    }
    tn_status st = tn_sampler_prompt(s->m.sampler, line, bytes, &r->prompt);
    if (st == TN_OK) st = tn_sampler_run(s->m.sampler, o, &r->drawn);
    if (st == TN_INTERRUPTED) tn_sampler_clear(s->m.sampler);
    TN_RETURN_IF(st);
    r->end = tn_sampler_result(s->m.sampler, 0).end;
    return TN_OK;
}

static tn_status show(session *s, const char *line, size_t bytes, const tn_talk_report *r)
{
    char text[96];
    if (r->forgotten) {
        snprintf(text, sizeof text, "the context is full; the %lld oldest turn%s forgotten", (long long)r->forgotten,
                 r->forgotten == 1 ? " is" : "s are");
        note(s, text);
    }
    if (!s->m.c->json) {
        TN_RETURN_IF(tn_text_write(s->m.c, "\n", 1));
        if (s->person && s->talk && r->end == TN_SAMPLE_LENGTH)
            note(s, "the answer was cut off at max_tokens: a larger one lets it go on");
        return TN_OK;
    }
    return tn_cli_emit(s->m.c, json_pack("{s:s, s:s%, s:s%, s:I, s:I, s:s}", "name", "answer", "prompt", line, bytes,
                                         "text", s->answer.data ? s->answer.data : "", s->answer.n, "prompt_tokens",
                                         (json_int_t)r->prompt, "tokens", (json_int_t)r->drawn.tokens, "end",
                                         tn_sample_end_name(r->end)));
}

/* Behind an answer that was stopped: its last word, which a terminal's folding may still hold, belongs to it and not to the next. */
static tn_status end_line(session *s)
{
    if (!s->m.c->json) return tn_text_write(s->m.c, "\n", 1);
    fputc('\n', s->m.c->err);
    return TN_OK;
}

/* bytes: with the end of the line. An answer that a person stops is no error. */
static tn_status turn(session *s, const char *line, size_t bytes)
{
    tn_talk_report r = { 0 };
    const size_t text = strcspn(line, "\n");
    tn_sample_options o = tn_text_model_options(&s->m);
    o.ctx = s;
    o.text = take_text;
    s->answer.n = 0;
    const tn_status st =
        s->talk ? tn_talk_turn(s->talk, line, text, &o, &r) : plain_turn(s, line, s->m.replies ? text : bytes, &o, &r);
    if (s->person && st == TN_INTERRUPTED && !tn_terminated()) {
        tn_interrupt_watch();
        return end_line(s);
    }
    if (s->person && s->talk && st == TN_USAGE) { /* a message that cannot be written, or is too long: try another */
        fprintf(s->m.c->err, "%s\n", tn_error_text());
        return TN_OK;
    }
    TN_RETURN_IF(st);
    return show(s, line, text, &r);
}

/* --- the loop --------------------------------------------------------------------------------------------------------- */

/* Waits for a line, which a blocking read would do without noticing Ctrl-C. The first clears the line, as the terminal does, and says how to
 * leave; another without a line between them leaves: false. */
static bool wait_for_line(const session *s)
{
    struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
    for (bool warned = false;; warned = true) {
        fputs("> ", s->m.c->err);
        fflush(s->m.c->err);
        while (!tn_interrupted(NULL) && poll(&in, 1, 100) <= 0) {
        }
        if (!tn_interrupted(NULL)) return true;
        if (warned || tn_terminated()) return false;
        fputs("\nto leave: Ctrl-D, /quit, or Ctrl-C again\n", s->m.c->err);
        tn_interrupt_watch();
    }
}

/* False at the end. A signal ends a read that waits: what was typed of the line is dropped, and a person is asked again. */
static bool read_line(const session *s, char *line)
{
    for (;;) {
        if (s->person && !wait_for_line(s)) return false;
        if (tn_interrupted(NULL)) return false;
        errno = 0;
        tn_interrupt_reads(true);
        const bool read = fgets(line, LINE_BYTES, stdin), ended = errno == EINTR;
        tn_interrupt_reads(false);
        if (read) return true;
        if (!ferror(stdin) || !ended) return false;
        clearerr(stdin);
    }
}

/* *more: false at the end. */
static tn_status next_line(const session *s, char *line, bool *more)
{
    *more = read_line(s, line);
    const size_t n = *more ? strlen(line) : 0;
    if (n + 1 < LINE_BYTES || line[n - 1] == '\n' || getc(stdin) == EOF) return TN_OK;
    return tn_error(TN_USAGE, "a line has more than %d bytes, the most that a turn may have: shorten it",
                    LINE_BYTES - 1);
}

typedef enum word { NO_WORD, WORD, LAST_WORD } word;

/* /help, /clear and /quit of a person. A line that is one word like these and none of them is a slip, no message. */
static word take_word(session *s, const char *line)
{
    if (!s->person || line[0] != '/') return NO_WORD;
    if (strcmp(line, "/quit\n") == 0) return LAST_WORD;
    if (strcmp(line, "/clear\n") == 0) {
        if (s->talk) tn_talk_clear(s->talk);
        else tn_sampler_clear(s->m.sampler);
        return WORD;
    }
    if (strcmp(line, "/help\n") != 0) {
        const size_t letters = strspn(line + 1, "abcdefghijklmnopqrstuvwxyz");
        if (!letters || line[1 + letters] != '\n') return NO_WORD;
        fprintf(s->m.c->err, "%.*s is unknown: /help lists what there is\n", (int)letters + 1, line);
        return WORD;
    }
    fputs("/clear  forget what was said\n/quit   end (also Ctrl-D)\nCtrl-C  stop an answer; at the prompt: clear the "
          "line, twice: end\n",
          s->m.c->err);
    return WORD;
}

static tn_status run(session *s)
{
    tn_status st = TN_OK;
    bool more;
    TN_RETURN_IF(open_session(s));
    char *line = tn_alloc(LINE_BYTES);
    if (!line) return TN_MEMORY;
    tn_interrupt_watch();
    s->person = isatty(STDIN_FILENO);
    if (s->person) fputs("type a text and Enter; Ctrl-C stops an answer, Ctrl-D ends, /help says more\n", s->m.c->err);
    while (st == TN_OK && (st = next_line(s, line, &more)) == TN_OK && more) {
        const word w = take_word(s, line);
        if (w == LAST_WORD) break;
        if (w == NO_WORD && !(s->person && line[0] == '\n')) st = turn(s, line, strlen(line));
    }
    tn_free(line);
    if (s->person && st == TN_OK) fputc('\n', s->m.c->err);
    if (st == TN_OK && (s->person ? tn_terminated() : tn_interrupted(NULL)))
        return tn_error(TN_INTERRUPTED, "interrupted");
    return st == TN_OK && ferror(stdin) ? tn_error(TN_BAD_FILE, "cannot read standard input") : st;
}

tn_status tn_cmd_chat(tn_cli *c)
{
    session s = { .m = { .c = c } };
    TN_RETURN_IF(tn_args_expect(&c->args, 1, 1));
    const tn_status st = run(&s);
    tn_talk_free(s.talk);
    tn_text_free(&s.answer);
    tn_text_model_close(&s.m);
    return st;
}
