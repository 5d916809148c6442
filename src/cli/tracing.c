/* Traces as files. */
#include "cli/tracing.h"

#include "base/alloc.h"
#include "cli/table_file.h"
#include "report/trace/trace.h"
#include "report/trace/trace_json.h"

#include <string.h>

enum { MOST_STEPS = 1000000 };

/* Whether the device can be traced is known before anything is trained. */
static tn_status open_device(tn_tracing *x, tn_device device)
{
    if (device == TN_CPU) return TN_OK;
    const tn_backend *b = tn_backend_get(device);
    if (!b) return TN_USAGE;
    TN_RETURN_IF(b->trace_begin());
    TN_RETURN_IF(b->trace_end(&x->spans, &x->n_spans));
    tn_free(x->spans);
    x->spans = NULL;
    x->n_spans = 0;
    x->device = b;
    x->gpu = tn_gpu_usage_start(NULL);
    return TN_OK;
}

tn_status tn_tracing_open(tn_cli *c, tn_device device, const tn_trainer *t, const tn_settings *st, tn_tracing *x)
{
    *x = (tn_tracing){ .c = c, .path = tn_args_value(&c->args, "trace"), .steps = TN_TRACER_STEPS };
    TN_RETURN_IF(tn_args_whole(&c->args, "trace-steps", 1, MOST_STEPS, &x->steps));
    if (!tn_args_flag(&c->args, "trace")) return TN_OK;
    tn_status s = open_device(x, device);
    if (s == TN_OK)
        s = tn_trace_tracer(t, st ? tn_trace_loaders(st) : 0, x->steps, st ? TN_TRACER_WARM_UP : 0, &x->tracer);
    if (s != TN_OK) tn_tracing_close(x);
    return s;
}

void tn_tracing_close(tn_tracing *x)
{
    tn_gpu_usage_stop(x->gpu);
    tn_tracer_free(x->tracer);
    tn_free(x->spans);
    *x = (tn_tracing){ 0 };
}

tn_status tn_tracing_switch(tn_tracing *x, tn_tracer_change what)
{
    if (!x->device || what == TN_TRACER_SAME || x->taking == (what == TN_TRACER_BEGINS)) return TN_OK;
    x->taking = what == TN_TRACER_BEGINS;
    if (x->taking) {
        tn_free(x->spans); /* of a run that began again */
        x->spans = NULL;
        x->n_spans = 0;
        return x->device->trace_begin();
    }
    TN_RETURN_IF(x->device->wait(NULL));
    TN_RETURN_IF(x->device->trace_end(&x->spans, &x->n_spans));
    tn_trace_sort(x->spans, x->n_spans);
    return TN_OK;
}

void tn_tracing_sample(tn_tracing *x)
{
    tn_gpu_sample now;
    if (!x->gpu || !tn_tracer_on(x->tracer) || !tn_gpu_usage_last(x->gpu, &now) || now.heard == x->heard) return;
    x->heard = now.heard;
    tn_tracer_count(x->tracer, TN_COUNTED_GPU_BUSY, now.busy);
    tn_tracer_count(x->tracer, TN_COUNTED_DEVICE, now.used);
}

static tn_status write_file(tn_tracing *x, const char *title)
{
    FILE *f;
    const tn_trace_file t = { title, x->tracer, x->spans, x->n_spans };
    TN_RETURN_IF(tn_table_open(x->path, &f));
    return tn_table_close(x->path, f, tn_trace_write(&t, f));
}

static void say(const tn_tracing *x)
{
    const long long steps = (long long)tn_tracer_traced(x->tracer);
    const size_t dropped = tn_tracer_dropped(x->tracer);
    fprintf(x->c->err, "trace   %lld step%s in %s: open it in https://ui.perfetto.dev or chrome://tracing\n", steps,
            steps == 1 ? "" : "s", x->path);
    if (dropped)
        fprintf(x->c->err, "note    %zu spans had no room in the trace: use a smaller --trace-steps\n", dropped);
}

tn_status tn_tracing_write(tn_tracing *x, const char *title, tn_status s)
{
    char text[1024];
    if (!x->path || !x->tracer) return s;
    if (!tn_tracer_begun(x->tracer)) {
        fprintf(x->c->err, "note    nothing was traced: training ended before the first traced step\n");
        return s;
    }
    snprintf(text, sizeof text, "%s", s == TN_OK ? "" : tn_error_text());
    const tn_status wrote = write_file(x, title);
    if (wrote == TN_OK) say(x);
    if (s == TN_OK) return wrote;
    if (wrote != TN_OK) fprintf(x->c->err, "warning: %s\n", tn_error_text());
    return tn_error(s, "%s", text);
}
