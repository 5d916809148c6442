/* tenon bench: the ceilings of the machine, and kernels or a model as a part of them, in one run of at most 45 seconds. */
#include "backend/backend.h"
#include "cli/bench/bench_print.h"
#include "cli/target.h"
#include "cli/view.h"
#include "train/run/session.h"
#include "train/trainer/graph_setup.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static tn_status read_dim(const char *text, int64_t *dim)
{
    char *end;
    const long v = strtol(text, &end, 10);
    if (end == text || *end || v < 1 || v > 4096)
        return tn_error(TN_USAGE, "dim=%.40s: relax takes a width from 1 to 4096", text);
    *dim = v;
    return TN_OK;
}

/* What is measured without a model. */
typedef struct rows {
    bool gemm, ops, gru, relax;
} rows;

static tn_status read_device(const char *text, const rows *r, tn_bench *b)
{
    if (strcmp(text, "gpu") == 0) text = "cuda";
    if (strcmp(text, "cpu") != 0 && strcmp(text, "cuda") != 0 && strcmp(text, "auto") != 0)
        return tn_error(TN_USAGE, "device=%.40s: choose cpu, cuda or auto", text);
    if (strcmp(text, "cpu") == 0) return TN_OK;
    if (r->gru && !r->gemm && strcmp(text, "cuda") == 0)
        return tn_error(TN_USAGE, "device=cuda: gru runs on the CPU only: remove it");
    if (tn_backend_get(TN_CUDA)) b->device = TN_CUDA;
    else if (strcmp(text, "cuda") == 0) return TN_USAGE; /* tn_backend_get has said why */
    return TN_OK;
}

static tn_status read_setting(const char *text, const rows *r, tn_bench *b)
{
    if (strncmp(text, "device=", 7) == 0) return read_device(text + 7, r, b);
    if ((r->relax || (r->gru && !r->gemm)) && strcmp(text, "compute=bf16") == 0) b->bf16 = true;
    else if (r->relax && strncmp(text, "dim=", 4) == 0) return read_dim(text + 4, &b->dim);
    else return tn_error(TN_USAGE, "%s: only a model takes settings, `tenon bench MODEL key=value`", text);
    return TN_OK;
}

typedef struct printed {
    tn_cli *c;
    int above; /* rows above their ceiling */
    double highest;
} printed;

static void print_row(void *ctx, const tn_bench_row *r)
{
    printed *p = ctx;
    p->above += r->of_ceiling > 1;
    if (r->of_ceiling > p->highest) p->highest = r->of_ceiling;
    tn_bench_print_row(p->c, r);
}

static tn_status run_rows(const tn_bench *b, const rows *r)
{
    const bool gpu = b->device != TN_CPU;
    if (r->gemm) TN_RETURN_IF(gpu ? tn_bench_gemm_gpu(b) : tn_bench_gemm(b));
    if (r->ops) TN_RETURN_IF(gpu ? tn_bench_ops_gpu(b) : tn_bench_ops(b));
    if (r->relax) TN_RETURN_IF(tn_bench_relax(b));
    return r->gru && !gpu ? tn_bench_gru(b) : TN_OK;
}

static tn_status bench_rows(tn_cli *c, const rows *r, int threads)
{
    printed p = { .c = c };
    tn_bench b = { .device = TN_CPU, .budget_s = 0.4, .ctx = &p, .row = print_row };
    for (size_t i = 0; i < c->args.overrides_n; i++) TN_RETURN_IF(read_setting(c->args.overrides[i], r, &b));
    TN_RETURN_IF(tn_bench_ceilings(c, b.device, threads, 1, &b.ceilings));
    TN_RETURN_IF(run_rows(&b, r));
    return tn_bench_ceilings_again(c, b.device, &b.ceilings, p.above, p.highest);
}

tn_status tn_bench_find(tn_cli *c, tn_arena *arena, const char *word, tn_saved_model *out)
{
    tn_target t;
    TN_RETURN_IF(tn_target_read(arena, &c->user, word, c->args.overrides, c->args.overrides_n, &t));
    TN_RETURN_IF(tn_saved_model_find(&c->user, t.target, t.overrides, t.n, "best", out));
    TN_RETURN_IF(tn_cli_warn(c, out->note));
    if (!out->weights[0]) return TN_OK;
    tn_cli_expanded(c, t.target, &out->matrices);
    return tn_graph_setup_here(out->settings, false);
}

tn_status tn_bench_threads(const tn_cli *c, int *out)
{
    int64_t n = 0;
    TN_RETURN_IF(tn_args_whole(&c->args, "threads", 1, 256, &n));
    *out = (int)n;
    return TN_OK;
}

tn_status tn_cmd_bench(tn_cli *c)
{
    const char *what = c->sub ? c->sub->name : NULL;
    int threads;
    TN_RETURN_IF(tn_args_expect(&c->args, 0, 1));
    TN_RETURN_IF(tn_bench_threads(c, &threads));
    const rows r = { .gemm = !what || strcmp(what, "gemm") == 0,
                     .ops = !what || strcmp(what, "ops") == 0,
                     .gru = !what || strcmp(what, "gru") == 0,
                     .relax = what && strcmp(what, "relax") == 0 };
    return bench_rows(c, &r, threads ? threads : (int)sysconf(_SC_NPROCESSORS_ONLN));
}
