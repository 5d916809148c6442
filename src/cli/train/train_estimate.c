/* How long a run will take. */
#include "cli/train/train_estimate.h"

#include "backend/backend.h"
#include "backend/cuda_library.h"
#include "backend/cpu/gemm_kernel.h"
#include "report/bench/ceilings.h"

#include <math.h>
#include <string.h>

enum { LONG_S = 15 * 60, MEASURED_STEPS = 2 };
static const double MEASURED_S = 3; /* the first steps choose algorithms and fill caches */

/* Down to two digits: 1234 is 1200. */
static int64_t rounded(double x)
{
    const double unit = x < 100 ? 1 : pow(10, floor(log10(x)) - 1);
    return x < 1 ? 1 : (int64_t)(floor(x / unit) * unit);
}

static void put(FILE *f, const char *setting, const char *effect)
{
    fprintf(f, "        %-22s  %s\n", setting, effect);
}

void tn_shorter_print(const tn_shorter *s, FILE *f)
{
    char time[32], text[80], effect[80];
    const double part = LONG_S / ((double)s->steps * s->step_s);
    fprintf(f, "note    about %s to go, %.3g s a step; what would make it shorter:\n",
            tn_clock_text((double)s->left * s->step_s, time), s->step_s);
    if (s->gpu) put(f, "device=cuda", "there is a GPU");
    if (s->gpu_unbuilt) put(f, "device=cuda", "there is a GPU: `make CUDA=1` builds the kernels for it");
    if (s->bf16 > 0) {
        snprintf(effect, sizeof effect, "matrix products up to %.1f times as fast", s->bf16);
        put(f, "compute=bf16", effect);
    }
    if (s->smaller) put(f, s->smaller, "a smaller network: the preset in place of this one");
    if (s->epochs > 0) snprintf(text, sizeof text, "train.epochs=%lld", (long long)rounded(part * (double)s->epochs));
    else snprintf(text, sizeof text, "train.steps=%lld", (long long)rounded(part * (double)s->steps));
    if (part < 1 && !(s->epochs > 0 && part * (double)s->epochs < 1))
        put(f, text, "15 minutes, with the learning rate's schedule over these");
}

/* NAME_tiny of this model, where that is another. */
static const char *smaller_preset(const tn_session *on)
{
    char name[96];
    snprintf(name, sizeof name, "%.80s_tiny", on->model->name);
    for (size_t i = 0; i < on->model->n_presets; i++)
        if (strcmp(on->model->presets[i].name, name) == 0)
            return strcmp(tn_settings_text(on->settings, "preset"), name) == 0 ? NULL : on->model->presets[i].name;
    return NULL;
}

/* 0: no gain worth naming. */
static double gain_of_bf16(const tn_session *on)
{
    tn_ceilings c;
    const char *compute = tn_settings_text(on->settings, "compute");
    if (strcmp(compute, "f32") != 0 && strcmp(compute, "auto") != 0) return 0;
    if (!tn__gemm_kernel_bf16() || tn_ceilings_arithmetic(tn_trainer_threads(on->trainer), &c) != TN_OK) return 0;
    return c.bf16_gflops > 1.2 * c.fma_gflops ? c.bf16_gflops / c.fma_gflops : 0;
}

static void say(const tn_session *on, const tn_progress_report *r, double step_s, tn_train_view *v)
{
    tn_shorter s = { .step_s = step_s,
                     .left = r->steps - r->step,
                     .steps = r->steps,
                     .epochs = tn_settings_int(on->settings, "train.epochs"),
                     .smaller = smaller_preset(on) };
    if (tn_trainer_device(on->trainer) == TN_CPU) {
        s.gpu = tn_backend_get(TN_CUDA) != NULL;
        s.gpu_unbuilt = !s.gpu && tn_cuda_has_driver();
        s.bf16 = gain_of_bf16(on);
    }
    tn_progress_end(&v->progress);
    tn_shorter_print(&s, v->progress.term.f);
}

void tn_train_estimate(tn_estimate *e, const tn_session *on, const tn_progress_report *r, tn_train_view *v)
{
    if (e->said) return;
    if (!e->begun) *e = (tn_estimate){ .begun = true, .step = r->step, .at_s = r->seconds };
    const int64_t steps = r->step - e->step;
    if (steps < MEASURED_STEPS || r->seconds - e->at_s < MEASURED_S) return;
    const double step_s = (r->seconds - e->at_s) / (double)steps;
    e->said = true;
    if ((double)(r->steps - r->step) * step_s > LONG_S) say(on, r, step_s, v);
}
