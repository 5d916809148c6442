/* What a session is, in the first lines that a verb prints. */
#include "cli/session_view.h"

#include "backend/cpu/gemm.h"
#include "base/text.h"

const char *tn_count_text(double n, char buf[16])
{
    const char *unit = n >= 1e9 ? " G" : n >= 1e6 ? " M" : n >= 1e3 ? " k" : "";
    const double x = n >= 1e9 ? n / 1e9 : n >= 1e6 ? n / 1e6 : n >= 1e3 ? n / 1e3 : n;
    snprintf(buf, 16, "%.*f%s", *unit && x < 100 ? 1 : 0, x, unit);
    return buf;
}

static void describe_data(const tn_session *s, FILE *f)
{
    static const char *const modes[] = { "packed documents", "documents by length", "windows" };
    char count[16], held[16], name[512]; /* a file's name may have lines of its own */
    const tn_dataset_info *info = tn_dataset_about(s->data);
    const bool bytes = info->item == TN_ITEM_U8;
    fprintf(f, "data    %s, %s %s, %s held out", tn_text_quote(tn_settings_text(s->settings, "data"), name, sizeof name),
            tn_count_text((double)tn_dataset_count(s->data, TN_TRAIN).tokens, count), bytes ? "bytes" : "tokens",
            tn_count_text((double)tn_dataset_count(s->data, TN_VALID).tokens, held));
    if (!bytes) fprintf(f, ", vocabulary %lld", (long long)info->vocab);
    fprintf(f, ", %s\n", modes[s->mode]);
}

static void describe_env(const tn_session *s, FILE *f)
{
    fprintf(f, "task    %s, an environment: %d numbers, %d actions, at most %d steps an episode, solved at %g\n", s->env->name,
            s->env->observations, s->env->actions, s->env->max_steps, s->env->solved);
}

static void describe_task(const tn_session *s, FILE *f)
{
    const tn_samples *set = s->samples;
    fprintf(f, "task    %s, %lld samples, %lld valid, %lld test, of %lld x %lld numbers, %lld classes\n",
            tn_settings_text(s->settings, "task.name"), (long long)set->count[TN_TRAIN], (long long)set->count[TN_VALID],
            (long long)set->count[TN_TEST], (long long)set->tokens, (long long)set->features, (long long)set->classes);
}

static void describe_probe(const tn_session *s, FILE *f)
{
    const tn_probe *p = s->probe;
    fprintf(f, "task    %s, sequences made as they are needed, %lld different tokens, %lld held out of each of", p->task->name,
            (long long)p->vocab, (long long)p->heldout);
    for (int64_t i = 0; i < p->groups; i++) fprintf(f, " %s", p->group[i].name);
    fprintf(f, "\n");
}

void tn_session_describe(tn_session *s, FILE *f)
{
    char count[16], memory[512];
    const tn_memory_plan m = tn_trainer_memory(s->trainer);
    const int threads = tn_trainer_threads(s->trainer);
    if (tn_trainer_device(s->trainer) == TN_CUDA) fprintf(f, "device  cuda\n");
    else fprintf(f, "device  cpu, %d thread%s, %s\n", threads, threads > 1 ? "s" : "", tn_gemm_kernel_name());
    fprintf(f, "model   %s, %s parameters", s->model->name, tn_count_text((double)tn_trainer_parameters(s->trainer), count));
    if (s->width.text[0]) fprintf(f, " (%s)", s->width.text);
    if (s->model->features) fprintf(f, ", %lld samples a step\n", (long long)s->batch);
    else fprintf(f, ", %lld x %lld tokens a step\n", (long long)s->batch, (long long)s->length);
    if (s->data) describe_data(s, f);
    if (s->samples) describe_task(s, f);
    if (s->env) describe_env(s, f);
    if (s->probe) describe_probe(s, f);
    fprintf(f, "memory  %s\n", tn_memory_plan_text(&m, memory, sizeof memory));
    if (s->asked) tn_session_describe_halving(s, f);
}

void tn_session_describe_halving(const tn_session *s, FILE *f)
{
    const long long n = (long long)tn_settings_int(s->settings, "train.accumulate");
    fprintf(f, "memory  there was none for a batch of %lld: %lld of %lld a step instead (to go on with this run: train.batch=%lld train.accumulate=%lld)\n",
            (long long)s->asked, n, (long long)s->batch, (long long)s->batch, n);
}
