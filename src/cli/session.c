/* Opening a session: the steps every verb that runs a model takes. */
#include "cli/session.h"

#include "backend/cpu/gemm.h"
#include "base/alloc.h"
#include "train/train_settings.h"

#include <stdio.h>
#include <string.h>

static tn_status open_data(tn_session *s, bool needs_data)
{
    const char *path = tn_settings_text(s->settings, "data");
    if (!path[0]) {
        if (!needs_data) return TN_OK;
        return tn_error(TN_USAGE, "data is not set: name a text file, for example data=book.txt");
    }
    const tn_status st = tn_bytes_open(path, tn_settings_float(s->settings, "train.holdout_frac"), s->length, &s->data);
    if (st != TN_OK) {
        tn_error_prefix("data");
        return st;
    }
    const size_t at = tn_settings_find(s->settings, "vocab");
    if (at == tn_settings_count(s->settings)) return TN_OK;
    if (tn_settings_is_auto(s->settings, "vocab")) return tn_settings_set(s->settings, "vocab", "256", "data %s", path);
    const long long vocab = (long long)tn_settings_int(s->settings, "vocab");
    if (vocab < 256) return tn_error(TN_USAGE, "vocab=%lld is too small for %s, whose tokens are bytes: leave vocab at auto, or 256 and more",
                                     vocab, path);
    return TN_OK;
}

/* The trainer refuses a plan that does not fit before any of its memory is touched. */
static tn_status open_trainer(tn_session *s)
{
    const bool automatic = tn_settings_is_auto(s->settings, "train.batch");
    const int64_t most = 4096 / s->length > 0 ? 4096 / s->length : 1;
    s->batch = automatic ? most : tn_settings_int(s->settings, "train.batch");
    for (;; s->batch /= 2) {
        const tn_trainer_options o = { .model = s->model, .settings = s->settings, .batch = s->batch, .length = s->length };
        const tn_status st = tn_trainer_new(&o, &s->trainer);
        if (st != TN_MEMORY || !automatic || s->batch == 1) return st;
    }
}

/* On the heap, so that the session can be moved. */
static tn_status open_source(tn_session *s)
{
    if (!s->data) return TN_OK;
    s->bytes = tn_alloc(sizeof *s->bytes);
    if (!s->bytes) return TN_MEMORY;
    *s->bytes = (tn_bytes_source){ .data = s->data, .seed = (uint64_t)tn_settings_int(s->settings, "seed"), .batch = s->batch,
                                   .length = s->length };
    s->source = tn_source_of_bytes(s->bytes);
    return TN_OK;
}

tn_status tn_session_open(const char *target, const char *const *overrides, size_t n, bool needs_data, tn_session *out)
{
    tn_session s = { 0 };
    tn_status st = tn_settings_resolve(target, overrides, n, &s.settings, &s.model);
    if (st == TN_OK) s.length = tn_settings_int(s.settings, "train.context");
    if (st == TN_OK) st = open_data(&s, needs_data);
    if (st == TN_OK) st = open_trainer(&s);
    if (st == TN_OK) st = open_source(&s);
    if (st != TN_OK) tn_session_close(&s);
    else *out = s;
    return st;
}

void tn_session_close(tn_session *s)
{
    tn_trainer_free(s->trainer);
    tn_free(s->bytes);
    tn_bytes_close(s->data);
    tn_settings_free(s->settings);
    *s = (tn_session){ 0 };
}

const char *tn_count_text(double n, char buf[16])
{
    const char *unit = n >= 1e9 ? " G" : n >= 1e6 ? " M" : n >= 1e3 ? " k" : "";
    const double x = n >= 1e9 ? n / 1e9 : n >= 1e6 ? n / 1e6 : n >= 1e3 ? n / 1e3 : n;
    snprintf(buf, 16, "%.*f%s", *unit && x < 100 ? 1 : 0, x, unit);
    return buf;
}

void tn_session_describe(tn_session *s, FILE *f)
{
    char count[16], held[16], memory[512];
    const tn_memory_plan m = tn_trainer_memory(s->trainer);
    fprintf(f, "device  cpu, %d thread%s, %s\n", tn_trainer_threads(s->trainer), tn_trainer_threads(s->trainer) > 1 ? "s" : "",
            tn_gemm_kernel_name());
    fprintf(f, "model   %s, %s parameters", s->model->name, tn_count_text((double)tn_trainer_parameters(s->trainer), count));
    fprintf(f, ", %lld x %lld tokens a step\n", (long long)s->batch, (long long)s->length);
    if (s->data)
        fprintf(f, "data    %s, %s bytes, %s held out\n", tn_settings_text(s->settings, "data"),
                tn_count_text((double)tn_bytes_size(s->data, false), count),
                tn_count_text((double)tn_bytes_size(s->data, true), held));
    fprintf(f, "memory  %s\n", tn_memory_plan_text(&m, memory, sizeof memory));
}
