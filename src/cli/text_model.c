/* Finds a model and its tokenizer by the words of the command line, and opens a sampler on them. */
#include "cli/text_model.h"

#include "cli/term.h"
#include "cli/view.h"
#include "train/trainer/graph_setup.h"

#include <string.h>
#include <sys/stat.h>

/* Every stop= of the command line counts, not the last alone. */
static tn_status gather_stops(tn_text_model *s)
{
    const tn_args *a = &s->c->args;
    for (size_t i = 0; i < a->overrides_n; i++) {
        if (strncmp(a->overrides[i], "stop=", 5) != 0 || !a->overrides[i][5]) continue;
        if (s->n_stop == TN_STOPS_MAX) return tn_error(TN_USAGE, "more than %d stop strings", TN_STOPS_MAX);
        s->stop[s->n_stop++] = a->overrides[i] + 5;
    }
    return TN_OK;
}

static tn_status no_weights(const char *target)
{
    return tn_error(
        TN_USAGE,
        "%.640s has no weights: name a run's directory, a checkpoint, a Hugging Face folder, a .safetensors, a "
        ".gguf or a llama2.c .bin file",
        target);
}

/* A text, or a config.json whose folder was meant: what reads settings would say that it has none. */
static bool is_other_file(const char *target)
{
    struct stat st;
    return stat(target, &st) == 0 && S_ISREG(st.st_mode) && !tn_is_weights_file(target);
}

/* An unknown key: the nearest of a run's settings may be one of training, which would do nothing here. */
static tn_status name_help(const char *verb)
{
    char said[256];
    const char *colon;
    snprintf(said, sizeof said, "%.255s", tn_error_text());
    if (strncmp(said, "unknown key ", 12) != 0 || !(colon = strstr(said, ": ")) || !strstr(said, "(command line)"))
        return TN_USAGE; /* what a file says is named with the file */
    return tn_error(TN_USAGE, "%.*s: `tenon %s --help` lists the keys", (int)(colon - said), said, verb);
}

/* What takes a model that writes no text: `tenon eval`, unless it has commands of its own. */
static const char *remedy_of(const char *model)
{
    static const char *const own[][2] = { { "wire", "`tenon wire eval` or `tenon wire decode`" } };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(own[i][0], model) == 0) return own[i][1];
    return "`tenon eval`";
}

/* A key of sampling goes to sampling (seed and tokenizer too), every other one to the model's settings. */
tn_status tn_text_model_find(tn_text_model *s)
{
    const char *rest[TN_CLI_SETTINGS], *target = tn_args_positional(&s->c->args, 0);
    size_t n = 0;
    TN_RETURN_IF(tn_cli_sort_overrides(s->c, s->keys, rest, &n));
    TN_RETURN_IF(gather_stops(s));
    if (is_other_file(target)) return no_weights(target);
    const tn_status found = tn_saved_model_find(&s->c->user, target, rest, n,
                                                tn_args_flag(&s->c->args, "latest") ? "latest" : "best", &s->model);
    if (found == TN_USAGE) return name_help(s->c->verb->name);
    TN_RETURN_IF(found);
    TN_RETURN_IF(tn_cli_warn(s->c, s->model.note));
    TN_RETURN_IF(tn_graph_setup_here(s->model.settings, true));
    s->replies = tn_model_replies(s->model.model);
    if (!tn_model_reads_sequences(s->model.model) && !s->replies)
        return tn_error(TN_USAGE, "%s is trained on samples and generates no text: use %s", s->model.model->name,
                        remedy_of(s->model.model->name));
    if (!s->model.weights[0]) return no_weights(target);
    tn_cli_expanded(s->c, target, &s->model.matrices);
    return tn_saved_model_tokenizer(&s->model, tn_settings_text(s->keys, "tokenizer"), &s->tokenizer, &s->tokens);
}

/* The context of the file or the run, whatever the command sets it to. */
static int64_t own_context(tn_cli *c, const tn_saved_model *m)
{
    tn_saved_model own = { 0 };
    int64_t context = tn_settings_int(m->settings, "train.context");
    if (tn_cli_override(c, "train.context") &&
        tn_saved_model_find(&c->user, tn_args_positional(&c->args, 0), NULL, 0, "best", &own) == TN_OK)
        context = tn_settings_int(own.settings, "train.context");
    tn_saved_model_free(&own);
    return context;
}

tn_status tn_warn_of_context(tn_cli *c, const tn_saved_model *m, int64_t context)
{
    char text[320];
    const tn_settings *st = m->settings;
    const bool rotary = tn_settings_find(st, "rope_stretch") < tn_settings_count(st) &&
                        strcmp(tn_settings_text(st, "shape"), "llama") == 0;
    if (!rotary || tn_cli_override(c, "rope_stretch")) return TN_OK;
    const int64_t own = own_context(c, m);
    if (context <= own) return TN_OK;
    size_t n =
        (size_t)snprintf(text, sizeof text,
                         "a context of %lld tokens is longer than the model's own %lld: results get worse beyond %lld",
                         (long long)context, (long long)own, (long long)own);
    if (tn_settings_float(st, "rope_stretch") == 0)
        snprintf(text + n, sizeof text - n,
                 "; RoPE scaling may help: rope_scaling=yarn rope_stretch=%lld rope_stretch_context=%lld",
                 (long long)((context + own - 1) / own), (long long)own);
    return tn_cli_warn(c, text);
}

/* Where it is said: token by token a processor is as good, and a run that was trained on a GPU is sampled anywhere. */
static tn_device device_of(const tn_text_model *s)
{
    tn_device d = TN_CPU;
    for (size_t i = 0; i < s->c->args.overrides_n; i++)
        if (strncmp(s->c->args.overrides[i], "device=", 7) == 0)
            d = strcmp(s->c->args.overrides[i] + 7, "cuda") == 0 ? TN_CUDA : TN_CPU;
    return d;
}

tn_status tn_text_model_open(tn_text_model *s, int64_t batch, int64_t context)
{
    TN_RETURN_IF(tn_warn_of_context(s->c, &s->model, context));
    TN_RETURN_IF(tn_store_new(device_of(s), 0, &s->store));
    const tn_sampler_options o = { .decoder = { .model = s->model.model,
                                                .settings = s->model.settings,
                                                .store = s->store,
                                                .frozen = true,
                                                .weights = s->model.matrices.type,
                                                .batch = batch,
                                                .capacity = context,
                                                .interrupted = tn_interrupted },
                                   .tokenizer = s->tokenizer,
                                   .start = s->tokens.start,
                                   .end = s->tokens.end,
                                   .n_end = s->tokens.n_end };
    TN_RETURN_IF(tn_sampler_new(&o, &s->sampler));
    return tn_saved_model_load(&s->model, s->store);
}

void tn_text_model_close(tn_text_model *s)
{
    tn_sampler_free(s->sampler);
    tn_store_free(s->store);
    tn_tokenizer_free(s->tokenizer);
    tn_model_tokens_free(&s->tokens);
    tn_saved_model_free(&s->model);
    tn_settings_free(s->keys);
}

tn_sample_options tn_text_model_options(const tn_text_model *s)
{
    tn_sample_options o = tn_sample_options_read(s->keys);
    o.stop = s->stop;
    o.n_stop = s->n_stop;
    return o;
}

tn_status tn_text_write(tn_cli *c, const char *text, size_t bytes)
{
    if (fwrite(text, 1, bytes, c->out) == bytes && fflush(c->out) == 0) return TN_OK;
    return tn_error(TN_DISK, "cannot write to standard output");
}
