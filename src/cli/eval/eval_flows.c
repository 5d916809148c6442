/* Flows of a trained model on held-out samples: its step "flows" puts out paths, landings and surface (as the op rollout has them),
 * which are shown in figures, as SVG, as a page that plays them, and as CSV. */
#include "cli/eval/eval.h"

#include "base/alloc.h"
#include "cli/table_file.h"
#include "plan/graph.h"
#include "report/flows/flows.h"

#include <math.h>
#include <string.h>

enum { SAMPLES = 8, ROWS = 16, BAR = 50 };
static const char step[] = "flows";

/* An output of the step with its sizes. */
typedef struct output {
    const char *name, *shape;
    tn_dtype type;
    int rank, batch; /* batch: which dim is B */
    int64_t dim[4];
    int64_t before, each; /* items of dims before B, and behind it; each 0: the model has no such output */
    void *kept;           /* (before, samples, each) */
} output;

/* ANSWER: what the target is compared with, where that is another than the surface; a model may not have it. */
enum { PATHS, E, U, V, PLANE, AGE, LANDED, SURFACE, ANSWER, OUTPUTS };

typedef struct reader {
    const tn_eval *e;
    tn_session *s;
    tn_arena arena;
    output out[OUTPUTS];
    int64_t features, cells, labels; /* items of a row of these inputs; 0: there is none */
    float *input, *target, *output;
    int32_t *label;
    tn_flows f;
} reader;

bool tn_eval_has_flows(const tn_model *m)
{
    for (size_t i = 0; i < m->n_steps; i++)
        if (strcmp(m->steps[i].name, step) == 0) return true;
    return false;
}

/* --- sizes ---------------------------------------------------------------------------------------------------------------- */

static tn_status wrong(const reader *r, const output *o)
{
    return tn_error(TN_USAGE, "model %s, step %s: it must output %s as %s: add it with tn_output", r->s->model->name,
                    step, o->name, o->shape);
}

static const output wanted[OUTPUTS] = {
    [PATHS] = { "paths", "f32 (T+1,B,N,3+E)", TN_F32, 4, .batch = 1 },
    [E] = { "e", "f32 (B,N,E)", TN_F32, 3, .batch = 0 },
    [U] = { "u", "f32 (B,N)", TN_F32, 2, .batch = 0 },
    [V] = { "v", "f32 (B,N)", TN_F32, 2, .batch = 0 },
    [PLANE] = { "plane", "i32 (B,N)", TN_I32, 2, .batch = 0 },
    [AGE] = { "age", "i32 (B,N)", TN_I32, 2, .batch = 0 },
    [LANDED] = { "landed", "i32 (B,N)", TN_I32, 2, .batch = 0 },
    [SURFACE] = { "surface", "f32 (B,S,E)", TN_F32, 3, .batch = 0 },
    [ANSWER] = { "answer", "f32 (B,cells)", TN_F32, 2, .batch = 0 },
};

static tn_status find_output(const reader *r, const tn_graph *g, output *o)
{
    const tn_ref x = tn_graph_output(g, o->name);
    if (!x.id) return o == &r->out[ANSWER] ? TN_OK : wrong(r, o);
    const tn_dims d = tn_ref_dims(g, x);
    if (tn_ref_dtype(g, x) != o->type || d.rank != o->rank || d.dim[o->batch] != r->s->batch) return wrong(r, o);
    o->before = o->each = 1;
    for (int k = 0; k < d.rank; k++) {
        o->dim[k] = d.dim[k];
        if (k < o->batch) o->before *= d.dim[k];
        if (k > o->batch) o->each *= d.dim[k];
    }
    return TN_OK;
}

/* Of the plan, which exists once the step has run. */
static tn_status find_outputs(reader *r)
{
    const tn_graph *g = tn_plan_graph(tn_bound_plan(tn_trainer_step_bound(r->s->trainer, step)));
    memcpy(r->out, wanted, sizeof wanted);
    for (int i = 0; i < OUTPUTS; i++) TN_RETURN_IF(find_output(r, g, &r->out[i]));
    const output *p = &r->out[PATHS];
    const int64_t N = p->dim[2], width = p->dim[3] - 3;
    if (p->dim[0] < 2 || width < 1) return wrong(r, p);
    for (int i = E; i <= LANDED; i++)
        if (r->out[i].dim[1] != N) return wrong(r, &r->out[i]);
    if (r->out[E].dim[2] != width) return wrong(r, &r->out[E]);
    return r->out[SURFACE].dim[2] == width ? TN_OK : wrong(r, &r->out[SURFACE]);
}

/* 0: there is none, or it is auto. */
static int64_t setting_named(const tn_session *s, const char *name)
{
    return tn_inputs_setting(s->settings, name) ? tn_settings_int(s->settings, name) : 0;
}

static int64_t number_named(const tn_session *s, const char *name)
{
    const double x = tn_source_number_of(&s->source, name);
    return x > 0 ? (int64_t)x : 0;
}

/* The cells of a surface are known from the outputs: at most a quarter more slots, and beside each other the planes have twice as many. Its
 * sides are the model's or the data's; what is auto is the rest, or a square. */
static tn_status find_sizes(reader *r)
{
    tn_flows *f = &r->f;
    const int64_t cells = r->out[SURFACE].dim[1];
    f->steps = r->out[PATHS].dim[0] - 1;
    f->slots = r->out[PATHS].dim[2];
    f->energy = r->out[PATHS].dim[3] - 3;
    f->depth = setting_named(r->s, "depth");
    f->planes = f->slots < cells ? 2 : 1;
    const int64_t S = cells / f->planes;
    int64_t W = setting_named(r->s, "width"), H = setting_named(r->s, "height");
    if (!W && !H) W = number_named(r->s, "width"), H = number_named(r->s, "height");
    if (!W && !H) W = llround(sqrt((double)S));
    if (!W && H) W = S / H;
    if (!H && W) H = S / W;
    f->width = W, f->height = H;
    if (W < 2 || H < 2 || W * H != S || f->planes * S != cells || S > f->slots)
        return tn_error(TN_USAGE,
                        "model %s: a surface of %lld x %lld cells does not fit its outputs (surface of %lld cells, "
                        "%lld slots): correct the settings width and height",
                        r->s->model->name, (long long)W, (long long)H, (long long)cells, (long long)f->slots);
    return TN_OK;
}

/* --- arrays --------------------------------------------------------------------------------------------------------------- */

/* Items of a row of an input that the plans read; 0: there is none. */
static int64_t row_of(const reader *r, const char *name, tn_dtype type)
{
    const tn_feed feed = tn_trainer_feed_again(r->s->trainer);
    for (size_t i = 0; i < feed.inputs->n; i++) {
        const tn_input_slot *slot = &feed.inputs->slot[i];
        if (feed.at[i] && strcmp(slot->row->name, name) == 0 && slot->row->type == type && slot->each)
            return tn_input_items(slot, feed.batch, feed.length) / feed.batch;
    }
    return 0;
}

static tn_status allocate(reader *r)
{
    tn_flows *f = &r->f;
    const size_t n = (size_t)f->samples, S = (size_t)(f->width * f->height);
    for (int i = 0; i < OUTPUTS; i++) {
        output *o = &r->out[i];
        size_t bytes;
        if (!o->each) continue;
        if (!tn_mul_ok((size_t)(o->before * o->each), n * sizeof(float), &bytes))
            return tn_error(TN_MEMORY, "--samples=%zu is too many: choose fewer", n);
        o->kept = tn_arena_alloc(&r->arena, bytes);
        if (!o->kept) return TN_MEMORY;
    }
    const int64_t cells = row_of(r, "target", TN_F32);
    f->target_planes = cells == (int64_t)S ? 1 : cells == 2 * (int64_t)S ? 2 : 0;
    r->cells = f->target_planes ? cells : 0;
    r->features = row_of(r, "features", TN_F32) == (int64_t)S ? (int64_t)S : 0;
    r->labels = row_of(r, "labels", TN_I32);
    f->input = r->input = tn_arena_alloc(&r->arena, sizeof(float) * n * S);
    f->output = r->output = tn_arena_alloc(&r->arena, sizeof(float) * n * S * (size_t)f->planes);
    if (r->cells) f->target = r->target = tn_arena_alloc(&r->arena, sizeof(float) * n * (size_t)r->cells);
    if (r->labels) f->label = r->label = tn_arena_alloc(&r->arena, sizeof(int32_t) * n);
    return f->input && f->output && (f->target || !r->cells) && (f->label || !r->labels) ? TN_OK : TN_MEMORY;
}

/* Rows of the batch that has run, behind those that are there. */
static void keep_rows(reader *r, int64_t have, int64_t rows)
{
    const tn_flows *f = &r->f;
    tn_trainer *t = r->s->trainer;
    for (int i = 0; i < OUTPUTS; i++) {
        const output *o = &r->out[i];
        int64_t count;
        if (!o->each) continue;
        const char *from = tn_trainer_step_output(t, step, o->name, NULL, &count);
        const size_t row = sizeof(float) * (size_t)o->each;
        for (int64_t k = 0; k < o->before; k++)
            memcpy((char *)o->kept + (size_t)(k * f->samples + have) * row, from + (size_t)(k * r->s->batch) * row,
                   (size_t)rows * row);
    }
    const int32_t *labels = r->labels ? tn_trainer_input(t, "labels") : NULL;
    for (int64_t i = 0; labels && i < rows; i++) r->label[have + i] = labels[i * r->labels];
    if (r->cells)
        memcpy(r->target + have * r->cells, tn_trainer_input(t, "target"), sizeof(float) * (size_t)(rows * r->cells));
    if (r->features)
        memcpy(r->input + have * r->features, tn_trainer_input(t, "features"),
               sizeof(float) * (size_t)(rows * r->features));
}

/* Features that are no surface are mapped to one: then the input is the energies that flows begin with. The output is the model's answer
 * where that is a surface, or else what has landed. */
static void find_surfaces(reader *r)
{
    tn_flows *f = &r->f;
    const int64_t S = f->width * f->height, cells = f->planes * S;
    const float *surface = r->out[SURFACE].kept;
    const bool answer = r->out[ANSWER].each == cells;
    for (int64_t b = 0; b < f->samples && !r->features; b++)
        for (int64_t i = 0; i < S; i++) r->input[b * S + i] = (float)tn__flow_energy(f, tn__flow_at(f, 0, b, i) + 3);
    for (int64_t i = 0; i < f->samples * cells && !answer; i++)
        r->output[i] = (float)tn__flow_energy(f, surface + i * f->energy);
    if (answer) f->output = r->out[ANSWER].kept;
    f->answers = answer || (!r->out[ANSWER].each && f->energy == 1);
}

static tn_status read_flows(reader *r)
{
    tn_flows *f = &r->f;
    tn_trainer *t = r->s->trainer;
    const int64_t all = tn_session_count(r->s, r->e->split);
    int64_t have = 0, count;
    f->run = r->e->target;
    f->split = tn_data_split_names[r->e->split];
    f->samples = r->e->samples ? r->e->samples : SAMPLES;
    if (f->samples > all) f->samples = all;
    for (int64_t i = 0; have < f->samples; i++) {
        TN_RETURN_IF(tn_source_heldout(&r->s->source, i, t, &count));
        if (count == 0) break;
        TN_RETURN_IF(tn_trainer_run_step(t, step));
        if (i == 0) {
            TN_RETURN_IF(find_outputs(r));
            TN_RETURN_IF(find_sizes(r));
            TN_RETURN_IF(allocate(r));
        }
        const int64_t valid = *tn_trainer_feed_again(t).valid, rows = f->samples - have;
        keep_rows(r, have, rows < valid ? rows : valid);
        have += rows < valid ? rows : valid;
    }
    if (have < f->samples)
        return tn_error(TN_USAGE, "the %s split has %lld samples: use --samples=%lld", f->split, (long long)have,
                        (long long)have);
    f->paths = r->out[PATHS].kept, f->e = r->out[E].kept, f->u = r->out[U].kept, f->v = r->out[V].kept;
    f->plane = r->out[PLANE].kept, f->age = r->out[AGE].kept, f->landed = r->out[LANDED].kept;
    find_surfaces(r);
    return TN_OK;
}

/* --- figures ------------------------------------------------------------------------------------------------------------ */

/* Landings of the first kind (exited) or both whose age lies in from .. to. */
static int64_t landed_in(const tn_flows *f, int64_t from, int64_t to)
{
    int64_t n = 0;
    for (int64_t i = 0; i < f->samples * f->slots; i++) n += f->landed[i] == 1 && f->age[i] >= from && f->age[i] <= to;
    return n;
}

static void print_exits(const tn_flows *f, FILE *out)
{
    const int64_t by = (f->steps + ROWS - 1) / ROWS;
    int64_t most = 1;
    for (int64_t t = 1; t <= f->steps; t += by) {
        const int64_t n = landed_in(f, t, t + by - 1);
        most = n > most ? n : most;
    }
    fprintf(out, "%9s %9s\n", "step", "exits");
    for (int64_t t = 1; t <= f->steps; t += by) {
        const int64_t n = landed_in(f, t, t + by - 1), last = t + by - 1 < f->steps ? t + by - 1 : f->steps;
        char range[48];
        if (last > t) snprintf(range, sizeof range, "%lld-%lld", (long long)t, (long long)last);
        else snprintf(range, sizeof range, "%lld", (long long)t);
        fprintf(out, "%9s %9lld%s", range, (long long)n, n ? "  " : "");
        for (int64_t bar = (n * BAR + most - 1) / most; bar > 0; bar--) fputc('#', out);
        fputc('\n', out);
    }
}

static double percent(int64_t n, int64_t of) { return of ? 100.0 * (double)n / (double)of : 0; }

static void print(const reader *r, const tn_flows_figures *m)
{
    const tn_flows *f = &r->f;
    FILE *out = r->e->c->out;
    fprintf(out, "%s, %s: %lld of %lld samples, surface %lld x %lld, at most %lld steps\n", f->run, f->split,
            (long long)f->samples, (long long)tn_session_count(r->s, r->e->split), (long long)f->width,
            (long long)f->height, (long long)f->steps);
    fprintf(out, "flows     %lld: %lld exited (%.1f %%), %lld projected (%.1f %%)\n", (long long)m->flows,
            (long long)m->exited, percent(m->exited, m->flows), (long long)m->projected,
            percent(m->projected, m->flows));
    if (m->flows)
        fprintf(out, "landings  mean age %.2f steps; %.1f %% at z = %g, the others at z = %g\n", m->age, 100 * m->upper,
                tn__flow_z(f, 1), tn__flow_z(f, -1));
    fprintf(out, "cells     %.1f of %lld hit, landing entropy %.2f of %.2f nats\n", m->hit,
            (long long)(f->width * f->height), m->entropy, m->most);
    if (isfinite(m->psnr)) fprintf(out, "psnr      %.2f dB\n", m->psnr);
    print_exits(f, out);
}

static tn_status emit(const reader *r, const tn_flows_figures *m)
{
    const tn_flows *f = &r->f;
    const struct {
        const char *name, *unit;
        double value;
    } rows[] = { { "flows", "flows", (double)m->flows },
                 { "flows_exited", "flows", (double)m->exited },
                 { "flows_projected", "flows", (double)m->projected },
                 { "flow_age", "steps", m->age },
                 { "upper_plane", "", m->upper },
                 { "cells_hit", "", m->hit / (double)(f->width * f->height) },
                 { "landing_entropy", "nats", m->entropy },
                 { "psnr", "dB", m->psnr } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        TN_RETURN_IF(tn_cli_emit(r->e->c, json_pack("{s:s, s:s, s:o, s:s, s:I}", "name", rows[i].name, "split",
                                                    f->split, "value", tn_number_or_null(rows[i].value), "unit",
                                                    rows[i].unit, "samples", (json_int_t)f->samples)));
    for (int64_t t = 1; t <= f->steps; t++)
        TN_RETURN_IF(
            tn_cli_emit(r->e->c, json_pack("{s:s, s:s, s:I, s:I, s:s}", "name", "exits", "split", f->split, "step",
                                           (json_int_t)t, "value", (json_int_t)landed_in(f, t, t), "unit", "flows")));
    return TN_OK;
}

/* --- files ---------------------------------------------------------------------------------------------------------------- */

static tn_status write_files(const reader *r)
{
    const struct {
        const char *path, *what;
        tn_status (*write)(const tn_flows *f, FILE *out);
    } files[] = { { r->e->svg, "picture", tn_flows_svg },
                  { r->e->html, "page", tn_flows_page },
                  { r->e->csv, "table", tn_flows_csv } };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        FILE *f;
        if (!files[i].path) continue;
        TN_RETURN_IF(tn_table_open(files[i].path, &f));
        TN_RETURN_IF(tn_table_close(files[i].path, f, files[i].write(&r->f, f)));
        if (!r->e->c->json) fprintf(r->e->c->out, "%-8s  %s\n", files[i].what, files[i].path);
    }
    return TN_OK;
}

tn_status tn_eval_flows(const tn_eval *e, tn_session *s)
{
    reader r = { .e = e, .s = s };
    tn_flows_figures m;
    tn_trainer_steady(s->trainer, true);
    tn_status st = read_flows(&r);
    if (st == TN_OK) st = tn_flows_measure(&r.f, 0, r.f.samples, &m);
    if (st == TN_OK && !e->c->json) print(&r, &m);
    if (st == TN_OK && e->c->json) st = emit(&r, &m);
    if (st == TN_OK) st = write_files(&r);
    tn_arena_free(&r.arena);
    return st;
}
