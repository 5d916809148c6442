/* What the flows of the last training step did, from its tallies, and where those of an evaluation landed. */
#include "models/flow/flow.h"

#include "base/alloc.h"

#include <math.h>
#include <string.h>

/* Means over the samples that took part. */
static void report_tallies(const tn_instruments *in)
{
    static const struct {
        int tally;
        const char *name;
    } rows[] = {
        { TN_ROLLOUT_EXITED, "flows_exited" }, /* the first is shown in the terminal */
        { TN_ROLLOUT_ASKED, "flows_created" },   { TN_ROLLOUT_PROJECTED, "flows_projected" },
        { TN_ROLLOUT_REFUSED, "flows_refused" }, { TN_ROLLOUT_TAKEN, "lattice_steps" },
        { TN_ROLLOUT_FLOW_STEPS, "flow_steps" },
    };
    int64_t n = 0, samples = 0;
    double sum[TN_ROLLOUT_TALLIES] = { 0 };
    const float *x = in->output(in->ctx, "counts", &n);
    for (int64_t b = 0; x && b < n / TN_ROLLOUT_TALLIES; b++) {
        const float *row = x + b * TN_ROLLOUT_TALLIES;
        samples += row[TN_ROLLOUT_ASKED] > 0;
        for (int k = 0; k < TN_ROLLOUT_TALLIES; k++) sum[k] += (double)row[k];
    }
    for (size_t i = 0; samples && i < sizeof rows / sizeof *rows; i++)
        in->report(in->ctx, rows[i].name, sum[rows[i].tally] / (double)samples, "");
}

typedef struct landings {
    const float *u, *v, *age, *landed; /* (B,N) */
    int64_t flows;                     /* B N */
} landings;

static const float *look(const tn_instruments *in, const char *name, int64_t *count)
{
    int64_t n = 0;
    const float *x = in->output(in->ctx, name, &n);
    if (!x || (*count && n != *count)) return NULL;
    *count = n;
    return x;
}

/* Cells that flows of a sample hit and the entropy of their distribution over cells: means over samples. */
static void report_cells(const tn_instruments *in, int64_t width, int64_t height, int64_t N, const landings *l,
                         int32_t *hits)
{
    const int64_t S = width * height;
    double cells = 0, entropy = 0, age = 0;
    int64_t samples = 0, all = 0;
    for (int64_t b = 0; b < l->flows / N; b++) {
        int64_t n = 0;
        memset(hits, 0, sizeof *hits * (size_t)S);
        for (int64_t i = b * N; i < (b + 1) * N; i++) {
            if (!(l->landed[i] > 0)) continue;
            n++;
            age += (double)l->age[i];
            hits[flow_cell((double)l->u[i], (double)l->v[i], width, height)]++;
        }
        for (int64_t k = 0; k < S; k++) {
            const double p = n ? (double)hits[k] / (double)n : 0;
            cells += hits[k] > 0;
            if (p > 0) entropy -= p * log(p);
        }
        samples += n > 0;
        all += n;
    }
    if (!samples) return;
    in->report(in->ctx, "flow_age", age / (double)all, "");
    in->report(in->ctx, "cells_hit", cells / (double)samples / (double)S, "");
    in->report(in->ctx, "landing_entropy", entropy / (double)samples, "nats");
}

void flow_report(const tn_instruments *in, int64_t width, int64_t height, int64_t slots)
{
    landings l = { 0 };
    if (!in->output) return;
    report_tallies(in);
    l.u = look(in, "look.u", &l.flows);
    l.v = look(in, "look.v", &l.flows);
    l.age = look(in, "look.age", &l.flows);
    l.landed = look(in, "look.landed", &l.flows);
    if (!l.u || !l.v || !l.age || !l.landed) return;
    int32_t *hits = tn_alloc(sizeof *hits * (size_t)(width * height));
    if (hits) report_cells(in, width, height, slots, &l, hits);
    tn_free(hits);
}

void flow_instruments(const tn_settings *st, const tn_instruments *in)
{
    flow_config c;
    if (flow_config_read(st, NULL, NULL, &c) == TN_OK) flow_report(in, c.width, c.height, flow_slots(&c));
}
