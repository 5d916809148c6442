/* Settings of a run on a task. Their source is recorded as the task, for `tenon config show` and config.yaml. */
#include "train/source/task_setup.h"

#include "base/alloc.h"
#include "tasks/pairs.h"
#include "tasks/probe.h"
#include "train/trainer/shared.h"
#include "train/trainer/inputs.h"

#include <stdio.h>
#include <string.h>

static bool has(const tn_settings *st, const char *key) { return tn_settings_find(st, key) < tn_settings_count(st); }

static bool is_unset(const tn_settings *st, const char *key)
{
    return strcmp(tn_settings_source(st, key), "default") == 0;
}

/* "xor, parity, digits" into buf: tasks of models that read tokens, or those of models that read samples. */
static const char *names_of(bool tokens, char *buf, size_t bytes)
{
    size_t at = 0;
    buf[0] = 0;
    for (size_t i = 0; tn_task_at(i) && at < bytes; i++)
        if (tokens ? tn_task_at(i)->probe != NULL : tn_task_at(i)->open || tn_task_at(i)->env)
            at += (size_t)snprintf(buf + at, bytes - at, "%s%s", at ? ", " : "", tn_task_at(i)->name);
    return buf;
}

/* --- sizes -------------------------------------------------------------------------------------------------------------- */

static tn_status set_number(tn_settings *st, const char *key, int64_t value, const char *source)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    return tn_settings_set(st, key, text, "%s", source);
}

tn_status tn_task_defaults(const tn_model *model, tn_settings *st)
{
    for (size_t i = 0; i < model->n_assumes; i++) {
        const tn_source_number *a = &model->assumes[i];
        if (tn_inputs_setting(st, a->name) && tn_settings_is_auto(st, a->name))
            TN_RETURN_IF(set_number(st, a->name, (int64_t)a->value, "no data"));
    }
    return TN_OK;
}

/* A model may have more classes than its task, as it may have more tokens than its text. */
static tn_status take_sizes(tn_settings *st, const char *name, const tn_samples *set, const char *source)
{
    const struct {
        const char *key;
        int64_t value;
        bool more;
    } rows[] = { { "inputs", set->features, false },
                 { "tokens", set->tokens, false },
                 { "classes", set->targets ? 0 : set->classes, true } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *key = rows[i].key;
        if (!has(st, key) || !rows[i].value) continue;
        if (tn_settings_is_auto(st, key)) TN_RETURN_IF(set_number(st, key, rows[i].value, source));
        const int64_t is = tn_settings_int(st, key);
        if (is == rows[i].value || (rows[i].more && is > rows[i].value)) continue;
        return tn_error(TN_USAGE, "%s=%lld does not fit the task %s, which has %lld: use %s=auto", key, (long long)is,
                        name, (long long)rows[i].value, key);
    }
    return TN_OK;
}

/* Of images; a model may well have a surface of another size. */
static tn_status take_surface(tn_settings *st, const tn_samples *set, const char *source)
{
    const tn_source_number rows[] = { { "width", (double)set->width },
                                      { "height", (double)set->height },
                                      { "cells", (double)(set->width * set->height) } };
    for (size_t i = 0; set->width && i < sizeof rows / sizeof *rows; i++)
        if (tn_inputs_setting(st, rows[i].name) && tn_settings_is_auto(st, rows[i].name))
            TN_RETURN_IF(set_number(st, rows[i].name, (int64_t)rows[i].value, source));
    return TN_OK;
}

/* --- the run ------------------------------------------------------------------------------------------------------------ */

static bool from_command(const tn_settings *st, const char *key)
{
    return strcmp(tn_settings_source(st, key), "command line") == 0;
}

/* Epochs make steps. Who says train.steps on the command line of a run by epochs wants a run by steps. */
static tn_status take_epochs(tn_settings *st, int64_t batches)
{
    char source[48];
    const int64_t epochs = tn_settings_int(st, "train.epochs"), accumulate = tn_settings_int(st, "train.accumulate");
    if (epochs == 0) return TN_OK;
    if (from_command(st, "train.steps") && from_command(st, "train.epochs"))
        return tn_error(TN_USAGE, "train.steps and train.epochs are both set: remove one of them");
    if (from_command(st, "train.steps")) return tn_settings_set(st, "train.epochs", "0", "train.steps");
    snprintf(source, sizeof source, "train.epochs=%lld", (long long)epochs);
    return set_number(st, "train.steps", (epochs * batches + accumulate - 1) / accumulate, source);
}

static tn_status take_defaults(tn_settings *st, const int64_t count[TN_SPLITS], const char *source)
{
    const int64_t train = count[TN_TRAIN];
    if (tn_settings_is_auto(st, "train.batch"))
        TN_RETURN_IF(set_number(st, "train.batch", train > 0 && train < TN_TASK_BATCH ? train : TN_TASK_BATCH, source));
    const int64_t batch = tn_settings_int(st, "train.batch"), batches = (train + batch - 1) / batch;
    const int64_t each = batches / tn_settings_int(st, "train.accumulate"),
                  steps = each > 0 ? each : 1; /* of an epoch */
    TN_RETURN_IF(take_epochs(st, batches));
    if (is_unset(st, "train.eval_every"))
        TN_RETURN_IF(set_number(st, "train.eval_every", (TN_TASK_EVAL_STEPS + steps - 1) / steps * steps, source));
    if (is_unset(st, "train.eval_batches")) TN_RETURN_IF(tn_settings_set(st, "train.eval_batches", "0", "%s", source));
    if (is_unset(st, "train.test") && count[TN_TEST] > 0)
        TN_RETURN_IF(tn_settings_set(st, "train.test", "on", "%s", source));
    if (tn_settings_on(st, "train.test") && count[TN_TEST] == 0)
        return tn_error(TN_USAGE, "train.test=on, but the %s has no test split: %s", source,
                        strncmp(source, "task", 4) == 0 ? "make task.test_frac larger than 0"
                                                        : "leave it off, or have the model hold out some records");
    return TN_OK;
}

/* --- which task --------------------------------------------------------------------------------------------------------- */

static tn_status refuse_for_text(const tn_model *model, const tn_settings *st)
{
    if (tn_settings_int(st, "train.epochs"))
        return tn_error(TN_USAGE, "train.epochs is for tasks, and %s learns from text: set train.steps instead",
                        model->name);
    return TN_OK;
}

static tn_status check_for_tokens(const tn_model *model, const tn_settings *st)
{
    char names[512];
    const tn_task *task;
    const char *name = tn_settings_text(st, "task.name");
    if (!name[0]) return refuse_for_text(model, st);
    TN_RETURN_IF(tn_task_find(name, &task));
    if (task->probe) return TN_OK;
    return tn_error(TN_USAGE,
                    "task=%.80s is for models that learn from samples, and %s learns from text: name a text file with "
                    "data=FILE instead, or one of the tasks %s",
                    name, model->name, names_of(true, names, sizeof names));
}

static tn_status check_for_samples(const tn_model *model, const tn_settings *st)
{
    char names[512];
    const tn_task *task;
    const char *name = tn_settings_text(st, "task.name");
    if (!has(st, "inputs") || !has(st, "classes"))
        return tn_error(
            TN_USAGE, "model %s learns from samples and lacks the settings inputs, tokens and classes: add them to it",
            model->name);
    if (tn_settings_text(st, "data")[0])
        return tn_error(
            TN_USAGE,
            "data=%.200s is for models that learn from text, and %s learns from a task: name one with task=NAME "
            "(task.data names its files)",
            tn_settings_text(st, "data"), model->name);
    if (!name[0]) return TN_OK;
    TN_RETURN_IF(tn_task_find(name, &task));
    if (!task->probe) return TN_OK;
    return tn_error(TN_USAGE,
                    "task=%s is for models that read tokens, and %s learns from samples: name another, such as %s",
                    name, model->name, names_of(false, names, sizeof names));
}

/* Data that it could not read must not be taken for read. */
static tn_status check_for_records(const tn_model *model, const tn_settings *st)
{
    const char *const key[] = { "data", "task.name" }, *const said[] = { "data", "task" };
    const bool reads[] = { tn_model_reads(model, "tokens"),
                           tn_model_reads(model, "tokens") || tn_model_reads(model, "features") };
    for (int i = 0; i < 2; i++)
        if (tn_settings_text(st, key[i])[0] && !reads[i])
            return tn_error(TN_USAGE, "%s=%.200s: model %s reads its own data (%s) instead: remove %s", said[i],
                            tn_settings_text(st, key[i]), model->name, model->records->name, said[i]);
    return TN_OK;
}

static tn_status check_for_pairs(const tn_model *model, const tn_settings *st)
{
    const char *const beside[] = { "data", "tokenizer" };
    if (!tn_model_reads(model, "premise"))
        return tn_error(
            TN_USAGE,
            "task=%s gives pairs of sentences, and %s has no input premise: use a model that reads them, such as "
            "flow_text, or another task",
            tn_settings_text(st, "task.name"), model->name);
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        if (tn_settings_text(st, beside[i])[0])
            return tn_error(TN_USAGE, "%s=%.200s: the task %s has its own: remove it", beside[i],
                            tn_settings_text(st, beside[i]), tn_settings_text(st, "task.name"));
    return TN_OK;
}

/* A model of pairs, and something else to learn from. */
static tn_status check_for_sentences(const tn_model *model, const tn_settings *st)
{
    const char *const key[] = { "data", "task.name" }, *const said[] = { "data", "task" };
    for (int i = 0; i < 2; i++)
        if (tn_settings_text(st, key[i])[0])
            return tn_error(TN_USAGE,
                            "%s=%.200s: %s learns from pairs of sentences: give task=snli task.data=FOLDER instead",
                            said[i], tn_settings_text(st, key[i]), model->name);
    return TN_OK;
}

static tn_status check_for_texts(const tn_model *model, const tn_settings *st)
{
    const char *const beside[] = { "data", "tokenizer" };
    if (!tn_model_reads(model, "bytes"))
        return tn_error(TN_USAGE,
                        "task=%s gives texts with questions, and %s has no input bytes: use a model that reads them, "
                        "such as wire, or another task",
                        tn_settings_text(st, "task.name"), model->name);
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        if (has(st, beside[i]) && tn_settings_text(st, beside[i])[0])
            return tn_error(TN_USAGE,
                            "%s=%.200s: the task %s has task.data, and tokenizers come with a.model, or a.tokenizer "
                            "names one: remove it",
                            beside[i], tn_settings_text(st, beside[i]), tn_settings_text(st, "task.name"));
    return TN_OK;
}

/* A model of texts, and something else to learn from. */
static tn_status check_for_contexts(const tn_model *model, const tn_settings *st)
{
    const char *const key[] = { "data", "task.name" }, *const said[] = { "data", "task" };
    for (int i = 0; i < 2; i++)
        if (tn_settings_text(st, key[i])[0])
            return tn_error(TN_USAGE,
                            "%s=%.200s: %s learns from texts with questions: give task=recall a.model=RUN instead",
                            said[i], tn_settings_text(st, key[i]), model->name);
    return TN_OK;
}

tn_status tn_task_check(const tn_model *model, const tn_settings *st)
{
    const tn_task *task = tn_task_named(tn_settings_text(st, "task.name"));
    if (model->records) return check_for_records(model, st);
    if (task && task->pairs) return check_for_pairs(model, st);
    if (task && task->texts) return check_for_texts(model, st);
    if (tn_model_reads(model, "premise")) return check_for_sentences(model, st);
    if (tn_model_reads(model, "bytes")) return check_for_contexts(model, st);
    return tn_model_reads(model, "features") ? check_for_samples(model, st)
           : tn_model_reads(model, "tokens") ? check_for_tokens(model, st)
                                             : TN_OK;
}

const char *tn_task_words(const tn_model *model)
{
    if (model->records) return "";
    if (tn_model_reads(model, "premise")) return " task=snli task.data=FOLDER";
    if (tn_model_reads(model, "bytes")) return " task=recall a.model=RUN";
    return tn_model_reads_sequences(model) ? " data=FILE" : " task=NAME";
}

tn_status tn_task_missing(const tn_model *model)
{
    char names[512];
    if (tn_model_reads(model, "tokens"))
        return tn_error(TN_USAGE, "data is not set: name a text file, for example data=book.txt");
    if (tn_model_reads(model, "premise"))
        return tn_error(TN_USAGE, "%s learns from pairs of sentences: give task=snli task.data=FOLDER", model->name);
    if (tn_model_reads(model, "bytes"))
        return tn_error(TN_USAGE, "%s learns from texts with questions: give task=recall a.model=RUN", model->name);
    return tn_error(TN_USAGE,
                    "%s learns from a task: name one with task=NAME, which may be %s (`tenon tasks` describes them)",
                    model->name, names_of(false, names, sizeof names));
}

/* --- probes ------------------------------------------------------------------------------------------------------------- */

static bool is_chosen(const tn_settings *st, const char *key)
{
    return !is_unset(st, key) && strncmp(tn_settings_source(st, key), "preset", 6) != 0;
}

/* The longest of task.lengths is the context, unless somebody else says what it is. */
static tn_status take_context(tn_settings *st, const char *source)
{
    int64_t lengths[TN_PROBE_LENGTHS], n;
    if (strcmp(tn_settings_text(st, "task.lengths"), "auto") == 0 || is_chosen(st, "train.context")) return TN_OK;
    TN_RETURN_IF(tn__probe_list(st, "task.lengths", "", TN_PROBE_LENGTHS, lengths, &n));
    return set_number(st, "train.context", lengths[n - 1], source);
}

tn_status tn_task_fit_vocab(tn_settings *st, long long needs, const char *kind, const char *name)
{
    char text[32];
    if (!has(st, "vocab")) return TN_OK;
    snprintf(text, sizeof text, "%lld", needs);
    if (tn_settings_is_auto(st, "vocab")) return tn_settings_set(st, "vocab", text, "%s %s", kind, name);
    const long long is = tn_settings_int(st, "vocab");
    if (is >= needs) return TN_OK;
    return tn_error(
        TN_USAGE,
        "vocab=%lld is too small for %s%.640s, which has %lld different tokens: leave vocab at auto, or %lld and more",
        is, strcmp(kind, "task") == 0 ? "the task " : "", name, needs, needs);
}

tn_status tn_task_fit_probe(tn_settings *st)
{
    char source[96];
    tn_probe *p = NULL;
    const tn_task *task;
    TN_RETURN_IF(tn_task_find(tn_settings_text(st, "task.name"), &task));
    if (tn_settings_text(st, "data")[0])
        return tn_error(TN_USAGE, "data=%.200s and task=%s are both set: remove one of them",
                        tn_settings_text(st, "data"), task->name);
    if (tn_settings_int(st, "train.epochs"))
        return tn_error(TN_USAGE,
                        "train.epochs is for samples, and %s generates sequences without end: set train.steps instead",
                        task->name);
    if (strcmp(tn_settings_text(st, "loader.mode"), "bucket") == 0)
        return tn_error(TN_USAGE,
                        "loader.mode=bucket is for text, and %s sets the length of its sequences: leave it at auto",
                        task->name);
    snprintf(source, sizeof source, "task %s", task->name);
    TN_RETURN_IF(take_context(st, source));
    TN_RETURN_IF(tn_probe_open(st, &p));
    tn_status s = tn_task_fit_vocab(st, p->vocab, "task", task->name);
    tn_probe_free(p);
    const char *const values[][2] = { { "train.eval_batches", "0" }, { "train.test", "on" } };
    for (size_t i = 0; s == TN_OK && i < sizeof values / sizeof *values; i++)
        if (is_unset(st, values[i][0])) s = tn_settings_set(st, values[i][0], values[i][1], "%s", source);
    return s;
}

/* --- environments ------------------------------------------------------------------------------------------------------- */

/* An environment's batch is what its episodes left: as many rows as they can have steps. */
tn_status tn_task_fit_env(tn_settings *st, const tn_task *task)
{
    char source[96];
    const tn_env *env = task->env;
    snprintf(source, sizeof source, "task %s", task->name);
    const tn_samples like = { .tokens = 1, .features = env->observations, .labels = 1, .classes = env->actions };
    const int64_t together = tn_settings_int(st, "rl.episodes"), rows = tn_source_env_rows(env, st);
    TN_RETURN_IF(take_sizes(st, task->name, &like, source));
    if (tn_settings_int(st, "train.accumulate") != 1)
        return tn_error(TN_USAGE,
                        "train.accumulate is not for environments: rl.episodes says how many episodes make a step");
    if (!tn_settings_is_auto(st, "train.batch") && tn_settings_int(st, "train.batch") != rows)
        return tn_error(
            TN_USAGE,
            "train.batch=%lld does not hold rl.episodes=%lld of %s, which may have %d steps each: leave train.batch at "
            "auto",
            (long long)tn_settings_int(st, "train.batch"), (long long)together, task->name, env->max_steps);
    TN_RETURN_IF(set_number(st, "train.batch", rows, source));
    if (tn_settings_int(st, "train.epochs"))
        return tn_error(TN_USAGE, "train.epochs is for samples, and %s has no epochs: set train.steps instead",
                        task->name);
    if (is_unset(st, "train.steps"))
        TN_RETURN_IF(set_number(st, "train.steps", (TN_TASK_EPISODES + together - 1) / together, source));
    if (has(st, "value") && is_unset(st, "value")) TN_RETURN_IF(tn_settings_set(st, "value", "on", "%s", source));
    return TN_OK;
}

/* --- samples ------------------------------------------------------------------------------------------------------------- */

/* All that a task's samples depend on, its files aside. */
static char *samples_key(const tn_settings *st)
{
    size_t bytes = 1, at = 0;
    for (int pass = 0;; pass++) {
        char *key = pass ? tn_alloc(bytes) : NULL;
        if (pass && !key) return NULL;
        for (size_t i = 0; i < tn_settings_count(st); i++) {
            const char *name = tn_settings_row_at(st, i)->key, *text = tn_settings_text_at(st, i);
            if (strncmp(name, "task.", 5) != 0) continue;
            if (pass) at += (size_t)snprintf(key + at, bytes - at, "%s=%s\n", name, text);
            else bytes += strlen(name) + strlen(text) + 2;
        }
        if (pass) return key;
    }
}

typedef struct opening {
    const tn_task *task;
    const tn_settings *st;
} opening;

static tn_status make_samples(void *user, tn_samples **out)
{
    const opening *o = user;
    tn_status s = o->task->open(o->st, out);
    if (s == TN_OK && !(*out)->targets && (s = tn_samples_pool(o->st, *out)) != TN_OK) {
        tn_samples_free(*out);
        *out = NULL;
    }
    if (s != TN_OK && !strstr(tn_error_text(), o->task->name)) tn_error_prefix("task %s", o->task->name);
    return s;
}

tn_status tn_task_samples(const tn_settings *st, tn_shared *shared, tn_samples **out)
{
    opening o = { NULL, st };
    TN_RETURN_IF(tn_task_find(tn_settings_text(st, "task.name"), &o.task));
    if (!shared) return make_samples(&o, out);
    char *key = samples_key(st);
    const tn_status s = key ? tn_shared_samples(shared, key, make_samples, &o, out) : TN_MEMORY;
    tn_free(key);
    return s;
}

tn_status tn_task_fit_samples(tn_settings *st, const tn_samples *set)
{
    char source[96];
    const char *name = tn_settings_text(st, "task.name");
    snprintf(source, sizeof source, "task %s", name);
    TN_RETURN_IF(take_sizes(st, name, set, source));
    TN_RETURN_IF(take_surface(st, set, source));
    return take_defaults(st, set->count, source);
}

tn_status tn_task_take_defaults(tn_settings *st)
{
    const tn_task *task;
    TN_RETURN_IF(tn_task_find(tn_settings_text(st, "task.name"), &task));
    for (const char *const *d = task->defaults; d && *d; d += 2)
        if (is_unset(st, d[0])) TN_RETURN_IF(tn_settings_set(st, d[0], d[1], "task %s", task->name));
    return TN_OK;
}

tn_status tn_task_fit_pairs(tn_settings *st, const tn_pairs *p)
{
    char source[96];
    const char *name = tn_settings_text(st, "task.name");
    snprintf(source, sizeof source, "task %s", name);
    TN_RETURN_IF(tn_task_fit_vocab(st, p->vocab, "task", name));
    if (tn_inputs_setting(st, "text") && tn_settings_is_auto(st, "text"))
        TN_RETURN_IF(set_number(st, "text", p->text, source));
    return take_defaults(st, p->count, source);
}

tn_status tn_task_fit_texts(tn_settings *st, const tn_source_number *numbers, size_t n, const int64_t count[TN_SPLITS])
{
    char source[96];
    snprintf(source, sizeof source, "task %s", tn_settings_text(st, "task.name"));
    for (size_t i = 0; i < n; i++)
        if (tn_inputs_setting(st, numbers[i].name) && tn_settings_is_auto(st, numbers[i].name))
            TN_RETURN_IF(set_number(st, numbers[i].name, (int64_t)numbers[i].value, source));
    return take_defaults(st, count, source);
}

tn_status tn_task_fit_counts(tn_settings *st, const char *name, const int64_t count[TN_SPLITS])
{
    char source[96];
    snprintf(source, sizeof source, "data %s", name);
    return take_defaults(st, count, source);
}
