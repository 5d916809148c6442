/* tenon sample: text from a trained model. The text goes to standard output as it is drawn, times to standard error. */
#include "base/alloc.h"
#include "base/clock.h"
#include "cli/view.h"
#include "cli/next.h"
#include "cli/term.h"
#include "train/trainer/graph_setup.h"
#include "sample/sample.h"
#include "train/run/saved_model.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_STOPS = 64, MOST_OVERRIDES = 256, LINE_BYTES = 1 << 20 };

typedef struct session {
    tn_cli *c;
    tn_settings *keys; /* of tn_sample_settings */
    tn_saved_model model;
    tn_store *store;
    tn_tokenizer *tokenizer;
    tn_model_tokens tokens;
    tn_sampler *sampler;
    const char *stop[MOST_STOPS];
    size_t n_stop;
    tn_text *text; /* (n): gathered where it cannot be streamed, or NULL */
    int64_t n;
    bool replies; /* the model answers prompts: what it writes does not continue them */
    double prefill_s;
    int64_t prompt_tokens;
} session;

/* --- settings --------------------------------------------------------------------------------------------------------- */

/* A key of sampling goes to sampling (seed and tokenizer too), every other one to the model's settings. */
static tn_status sort_overrides(session *s, const char **rest, size_t *n)
{
    const tn_args *a = &s->c->args;
    for (size_t i = 0; i < a->overrides_n; i++) {
        char key[64];
        const char *word = a->overrides[i], *eq = strchr(word, '=');
        snprintf(key, sizeof key, "%.*s", (int)(eq - word), word);
        if (tn_settings_find(s->keys, key) == tn_settings_count(s->keys)) {
            if (*n == MOST_OVERRIDES) return tn_error(TN_USAGE, "more than %d settings", MOST_OVERRIDES);
            rest[(*n)++] = word;
            continue;
        }
        TN_RETURN_IF(tn_settings_override(s->keys, word));
        if (strcmp(key, "stop") != 0 || !eq[1]) continue;
        if (s->n_stop == MOST_STOPS) return tn_error(TN_USAGE, "more than %d stop strings", MOST_STOPS);
        s->stop[s->n_stop++] = eq + 1;
    }
    return TN_OK;
}

static tn_status find_model(session *s)
{
    const char *rest[MOST_OVERRIDES], *target = tn_args_positional(&s->c->args, 0);
    size_t n = 0;
    TN_RETURN_IF(tn_sample_settings(&s->keys));
    TN_RETURN_IF(sort_overrides(s, rest, &n));
    TN_RETURN_IF(tn_saved_model_find(&s->c->user, target, rest, n,
                                     tn_args_flag(&s->c->args, "latest") ? "latest" : "best", &s->model));
    TN_RETURN_IF(tn_cli_warn(s->c, s->model.note));
    TN_RETURN_IF(tn_graph_setup_here(s->model.settings, true));
    s->replies = tn_model_replies(s->model.model);
    if (!tn_model_reads_sequences(s->model.model) && !s->replies)
        return tn_error(TN_USAGE, "%s is trained on samples and generates no text: use `tenon eval`",
                        s->model.model->name);
    if (!s->model.weights[0])
        return tn_error(
            TN_USAGE,
            "%s has no weights: name a run's directory, a checkpoint, a .safetensors, a .gguf or a llama2.c .bin file",
            target);
    return tn_saved_model_tokenizer(&s->model, tn_settings_text(s->keys, "tokenizer"), &s->tokenizer, &s->tokens);
}

/* --- opening ---------------------------------------------------------------------------------------------------------- */

/* Attention's memory: what the prompt and the text need. A prompt has no more tokens than bytes, and one to begin with. */
static int64_t capacity(const session *s, size_t prompt_bytes, bool chat)
{
    const int64_t context = tn_settings_int(s->model.settings, "train.context");
    if (!tn_settings_is_auto(s->keys, "context")) return tn_settings_int(s->keys, "context");
    const int64_t need = (int64_t)prompt_bytes + 2 + tn_settings_int(s->keys, "max_tokens");
    return chat || need > context ? context : need;
}

/* Where it is said: token by token a processor is as good, and a run that was trained on a GPU is sampled anywhere. */
static tn_device device_of(const session *s)
{
    tn_device d = TN_CPU;
    for (size_t i = 0; i < s->c->args.overrides_n; i++)
        if (strncmp(s->c->args.overrides[i], "device=", 7) == 0)
            d = strcmp(s->c->args.overrides[i] + 7, "cuda") == 0 ? TN_CUDA : TN_CPU;
    return d;
}

static tn_status open_sampler(session *s, size_t prompt_bytes, bool chat)
{
    s->n = tn_settings_int(s->keys, "n");
    TN_RETURN_IF(tn_store_new(device_of(s), 0, &s->store));
    const tn_sampler_options o = { .decoder = { .model = s->model.model,
                                                .settings = s->model.settings,
                                                .store = s->store,
                                                .batch = s->n,
                                                .capacity = capacity(s, prompt_bytes, chat),
                                                .interrupted = tn_interrupted },
                                   .tokenizer = s->tokenizer,
                                   .start = s->tokens.start,
                                   .end = s->tokens.end,
                                   .n_end = s->tokens.n_end };
    TN_RETURN_IF(tn_sampler_new(&o, &s->sampler));
    TN_RETURN_IF(tn_saved_model_load(&s->model, s->store));
    if (s->n == 1 && !s->c->json) return TN_OK;
    s->text = tn_alloc(sizeof *s->text * (size_t)s->n);
    return s->text ? TN_OK : TN_MEMORY;
}

static void close_session(session *s)
{
    for (int64_t i = 0; s->text && i < s->n; i++) tn_text_free(&s->text[i]);
    tn_free(s->text);
    tn_sampler_free(s->sampler);
    tn_store_free(s->store);
    tn_tokenizer_free(s->tokenizer);
    tn_model_tokens_free(&s->tokens);
    tn_saved_model_free(&s->model);
    tn_settings_free(s->keys);
}

/* --- text ------------------------------------------------------------------------------------------------------------- */

static tn_status write_out(tn_cli *c, const char *text, size_t bytes)
{
    if (fwrite(text, 1, bytes, c->out) == bytes && fflush(c->out) == 0) return TN_OK;
    return tn_error(TN_DISK, "cannot write to standard output");
}

static tn_status take_text(void *ctx, int64_t sample, const char *text, size_t bytes)
{
    session *s = ctx;
    if (tn_interrupted(NULL)) return tn_error(TN_INTERRUPTED, "interrupted");
    if (!s->text) return write_out(s->c, text, bytes);
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
        const tn_sampled r = tn_sampler_result(s->sampler, i);
        if (s->c->json)
            TN_RETURN_IF(tn_cli_emit(s->c, json_pack("{s:s, s:I, s:s%, s:s%, s:I, s:s}", "name", "sample", "sample",
                                                     (json_int_t)i, "prompt", prompt, prompt_bytes, "text",
                                                     t->data ? t->data : "", t->n, "tokens", (json_int_t)r.n, "end",
                                                     tn_sample_end_name(r.end))));
        else {
            fprintf(s->c->out, "--- sample %lld of %lld\n%.*s", (long long)i + 1, (long long)s->n,
                    s->replies ? 0 : (int)prompt_bytes, prompt);
            TN_RETURN_IF(write_out(s->c, t->data ? t->data : "", t->n));
            TN_RETURN_IF(write_out(s->c, "\n", 1));
        }
        t->n = 0;
    }
    return s->text ? TN_OK : write_out(s->c, "\n", 1);
}

static tn_status show_times(const session *s, const tn_sample_report *r)
{
    const double first = s->prefill_s + r->first_s, rest = r->seconds - r->first_s;
    const double rate =
        r->tokens > s->n && rest > 0 ? (double)(r->tokens - s->n) / rest : 0; /* without the prompt's share */
    if (!s->c->json) {
        fprintf(s->c->err,
                "prompt %lld tokens in %.1f ms, first token after %.1f ms, then %.0f tokens/s (%lld in all)\n",
                (long long)s->prompt_tokens, 1e3 * s->prefill_s, 1e3 * first, rate, (long long)r->tokens);
        return TN_OK;
    }
    TN_RETURN_IF(tn_cli_emit(s->c, json_pack("{s:s, s:I, s:s}", "name", "prompt_tokens", "value",
                                             (json_int_t)s->prompt_tokens, "unit", "tokens")));
    TN_RETURN_IF(tn_cli_number(s->c, "first_token", 1e3 * first, "ms"));
    return tn_cli_number(s->c, "tokens_per_s", rate, "tokens/s");
}

/* One prompt and what follows it. */
static tn_status answer(session *s, const char *prompt, size_t bytes)
{
    tn_sample_report r;
    tn_sample_options o = tn_sample_options_read(s->keys);
    o.stop = s->stop;
    o.n_stop = s->n_stop;
    o.ctx = s;
    o.text = take_text;
    const double before = tn_clock_s();
    TN_RETURN_IF(tn_sampler_prompt(s->sampler, prompt, bytes, &s->prompt_tokens));
    s->prefill_s = tn_clock_s() - before;
    TN_RETURN_IF(tn_sampler_run(s->sampler, &o, &r));
    TN_RETURN_IF(show_results(s, prompt, bytes));
    return show_times(s, &r);
}

/* --- the two ways ----------------------------------------------------------------------------------------------------- */

/* The next line of a person or a pipe; false at its end. A person is shown a prompt and may press Ctrl-C, which a blocking read would not
 * notice. */
static bool next_line(const session *s, bool person, char *line)
{
    struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
    if (person) {
        fputs("> ", s->c->err);
        fflush(s->c->err);
        while (!tn_interrupted(NULL) && poll(&in, 1, 100) <= 0) {
        }
    }
    return !tn_interrupted(NULL) && fgets(line, LINE_BYTES, stdin);
}

/* The prompt of each turn is a line with its end. When attention's context is full, the talk starts over. */
static tn_status chat(session *s)
{
    tn_status st = TN_OK;
    const bool person = isatty(STDIN_FILENO);
    char *line = tn_alloc(LINE_BYTES);
    if (!line) return TN_MEMORY;
    if (person) fprintf(s->c->err, "type a prompt and Enter; Ctrl-D or Ctrl-C ends the chat\n");
    while (st == TN_OK && next_line(s, person, line)) {
        const size_t bytes = s->replies ? strcspn(line, "\n") : strlen(line);
        if (!s->replies && tn_sampler_tokens_left(s->sampler) != INT64_MAX &&
            tn_sampler_tokens_left(s->sampler) < (int64_t)bytes + 2) {
            fprintf(s->c->err, "note: the context is full; the conversation starts over\n");
            tn_sampler_clear(s->sampler);
        }
        st = answer(s, line, bytes);
    }
    tn_free(line);
    if (person && (st == TN_OK || st == TN_INTERRUPTED)) { /* what a person asked for is no error */
        fputc('\n', s->c->err);
        st = TN_OK;
    }
    return st == TN_OK && ferror(stdin) ? tn_error(TN_BAD_FILE, "cannot read standard input") : st;
}

static tn_status run(session *s)
{
    const bool talks = tn_args_flag(&s->c->args, "chat");
    const char *given = tn_args_value(&s->c->args, "prompt"), *prompt = given ? given : "";
    if (talks && given) return tn_error(TN_USAGE, "--chat reads its prompts from standard input: remove --prompt");
    TN_RETURN_IF(find_model(s));
    if (talks && tn_settings_int(s->keys, "n") > 1)
        return tn_error(TN_USAGE, "--chat gives one answer per prompt: remove n=");
    TN_RETURN_IF(open_sampler(s, strlen(prompt), talks));
    tn_interrupt_watch();
    if (talks) return chat(s);
    if (!s->text && !s->replies) TN_RETURN_IF(write_out(s->c, prompt, strlen(prompt)));
    return answer(s, prompt, strlen(prompt));
}

tn_status tn_cmd_sample(tn_cli *c)
{
    session s = { .c = c };
    TN_RETURN_IF(tn_args_expect(&c->args, 1, 1));
    const tn_status st = run(&s);
    close_session(&s);
    if (st == TN_OK && !tn_args_flag(&c->args, "chat"))
        tn_next_of(c, "sample", tn_args_positional(&c->args, 0), " --chat");
    return st;
}
