/* What a session is, in the first lines that a verb prints. */
#include "cli/session_view.h"

#include "backend/cpu/gemm.h"

const char *tn_count_text(double n, char buf[16])
{
    const char *unit = n >= 1e9 ? " G" : n >= 1e6 ? " M" : n >= 1e3 ? " k" : "";
    const double x = n >= 1e9 ? n / 1e9 : n >= 1e6 ? n / 1e6 : n >= 1e3 ? n / 1e3 : n;
    snprintf(buf, 16, "%.*f%s", *unit && x < 100 ? 1 : 0, x, unit);
    return buf;
}

void tn_session_describe(tn_session *s, FILE *f)
{
    char count[16], memory[512];
    const tn_memory_plan m = tn_trainer_memory(s->trainer);
    const int threads = tn_trainer_threads(s->trainer);
    if (tn_trainer_device(s->trainer) == TN_CUDA) fprintf(f, "device  cuda\n");
    else fprintf(f, "device  cpu, %d thread%s, %s\n", threads, threads > 1 ? "s" : "", tn_gemm_kernel_name());
    fprintf(f, "model   %s, %s parameters", s->model->name,
            tn_count_text((double)tn_trainer_parameters(s->trainer), count));
    if (s->width.text[0]) fprintf(f, " (%s)", s->width.text);
    if (!tn_model_reads_sequences(s->model)) fprintf(f, ", %lld samples a step\n", (long long)s->batch);
    else fprintf(f, ", %lld x %lld tokens a step\n", (long long)s->batch, (long long)s->length);
    if (s->source.ctx) s->source.about(s->source.ctx, f);
    fprintf(f, "memory  %s\n", tn_memory_plan_text(&m, memory, sizeof memory));
    if (s->asked) tn_session_describe_halving(s, f);
}

void tn_session_describe_halving(const tn_session *s, FILE *f)
{
    const long long n = (long long)tn_settings_int(s->settings, "train.accumulate");
    fprintf(f,
            "memory  there was none for a batch of %lld: %lld of %lld a step instead (to go on with this run: "
            "train.batch=%lld train.accumulate=%lld)\n",
            (long long)s->asked, n, (long long)s->batch, (long long)s->batch, n);
}
