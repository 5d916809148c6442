/* Exports: CSV, JSON Lines, and Optuna's journal. Numbers read back as the same doubles. Of the journal
 * (JournalStorage of Optuna 3.1 and later) three operations are enough: 0 creates a study, 3 names its metrics (read from
 * Optuna 3.2 on), 4 creates a complete trial. */
#include "lab/view/view.h"
#include "lab/statistics/select.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DIM_TEXT = 128 };

/* --- which columns: every key that any side searches, once -------------------------------------------------------- */

static bool seen_before(const tn_study *s, size_t side, size_t dim)
{
    const char *key = s->sides[side].space.dims[dim].key;
    for (size_t i = 0; i < side; i++)
        for (size_t k = 0; k < s->sides[i].space.n; k++)
            if (strcmp(s->sides[i].space.dims[k].key, key) == 0) return true;
    return false;
}

static const tn_dim *dim_of(const tn_study *s, const tn_trial *t, const char *key, double *value)
{
    const tn_space *space = &s->sides[t->side].space;
    for (size_t k = 0; k < space->n; k++)
        if (strcmp(space->dims[k].key, key) == 0) {
            *value = t->x ? t->x[k] : NAN;
            return isnan(*value) ? NULL : &space->dims[k];
        }
    return NULL;
}

/* --- CSV ---------------------------------------------------------------------------------------------------------- */

static void put_field(FILE *out, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"') fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

static void put_number(FILE *out, double v)
{
    if (isnan(v)) return;
    fprintf(out, "%.17g", v);
}

static void put_row(const tn_study *s, const tn_trial *t, FILE *out)
{
    static const char *const kinds[] = { "search", "enqueued", "compare" };
    char name[DIM_TEXT];
    tn_trial_name(s, t, name, sizeof name);
    put_field(out, name), fputc(',', out);
    put_field(out, s->sides[t->side].name), fputc(',', out);
    fprintf(out, "%" PRId64 ",%s,%s,%" PRIu64 ",", t->number, kinds[t->kind], tn_trial_state_name(t->state), t->seed);
    for (size_t i = 0; i < s->n_sides; i++)
        for (size_t k = 0; k < s->sides[i].space.n; k++) {
            double v;
            if (seen_before(s, i, k)) continue;
            const tn_dim *d = dim_of(s, t, s->sides[i].space.dims[k].key, &v);
            if (d) tn_dim_text(d, v, name, sizeof name), put_field(out, name);
            fputc(',', out);
        }
    for (size_t k = 0; k < s->n_objectives; k++) put_number(out, t->y ? t->y[k] : NAN), fputc(',', out);
    put_number(out, t->started), fputc(',', out);
    put_number(out, t->ended), fputc(',', out);
    put_number(out, t->seconds), fputc(',', out);
    fprintf(out, "%d,%d,", t->worker, t->attempt);
    put_field(out, t->error ? t->error : "");
    fputc('\n', out);
}

tn_status tn_export_csv(const tn_study *s, FILE *out)
{
    fputs("trial,side,number,kind,state,seed,", out);
    for (size_t i = 0; i < s->n_sides; i++)
        for (size_t k = 0; k < s->sides[i].space.n; k++)
            if (!seen_before(s, i, k)) put_field(out, s->sides[i].space.dims[k].key), fputc(',', out);
    for (size_t k = 0; k < s->n_objectives; k++) fprintf(out, "objective.%s,", s->objectives[k].name);
    fputs("started,ended,working_s,worker,attempt,error\n", out);
    for (size_t i = 0; i < s->n; i++) put_row(s, &s->trials[i], out);
    return ferror(out) || fflush(out) ? tn_error(TN_DISK, "the table could not be written") : TN_OK;
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static json_t *real(double x) { return isfinite(x) ? json_real(x) : json_null(); }

json_t *tn_trial_json(const tn_study *s, const tn_trial *t)
{
    char text[DIM_TEXT];
    tn_trial_name(s, t, text, sizeof text);
    json_t *o =
        json_pack("{s:s, s:s, s:s, s:I, s:s, s:I}", "name", "trial", "trial", text, "side", s->sides[t->side].name,
                  "number", (json_int_t)t->number, "state", tn_trial_state_name(t->state), "seed", (json_int_t)t->seed);
    json_t *settings = json_object(), *values = json_object();
    const tn_space *space = &s->sides[t->side].space;
    for (size_t k = 0; t->x && k < space->n; k++) {
        if (isnan(t->x[k])) continue;
        tn_dim_text(&space->dims[k], t->x[k], text, sizeof text);
        json_object_set_new(settings, space->dims[k].key,
                            space->dims[k].kind == TN_DIM_CHOICE ? json_string(text) : json_real(t->x[k]));
    }
    for (size_t k = 0; k < s->n_objectives; k++)
        json_object_set_new(values, s->objectives[k].name, real(t->y ? t->y[k] : NAN));
    if (!o || !settings || !values) {
        json_decref(o), json_decref(settings), json_decref(values);
        return NULL;
    }
    json_object_set_new(o, "settings", settings);
    json_object_set_new(o, "objectives", values);
    json_object_set_new(o, "started", real(t->started));
    json_object_set_new(o, "ended", real(t->ended));
    json_object_set_new(o, "working_s", real(t->seconds));
    json_object_set_new(o, "attempt", json_integer(t->attempt));
    if (t->error && t->error[0]) json_object_set_new(o, "error", json_string(t->error));
    return o;
}

/* Takes the object; NULL: there was no memory for it. */
static tn_status put_line(json_t *o, FILE *out)
{
    if (!o) return tn_error(TN_MEMORY, "out of memory");
    const int bad = json_dumpf(o, out, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(o);
    fputc('\n', out);
    return bad || ferror(out) ? tn_error(TN_DISK, "the trials could not be written") : TN_OK;
}

static tn_status flush(FILE *out)
{
    return ferror(out) || fflush(out) ? tn_error(TN_DISK, "the trials could not be written") : TN_OK;
}

tn_status tn_export_jsonl(const tn_study *s, FILE *out)
{
    for (size_t i = 0; i < s->n; i++) TN_RETURN_IF(put_line(tn_trial_json(s, &s->trials[i]), out));
    return flush(out);
}

/* --- Optuna ------------------------------------------------------------------------------------------------------- */

enum { CREATE_STUDY = 0, SET_STUDY_ATTRIBUTE = 3, CREATE_TRIAL = 4, MINIMIZE = 1, MAXIMIZE = 2, NAME = 256 };
enum { RUNNING = 0, COMPLETE = 1, PRUNED = 2, FAIL = 3, WAITING = 4 };
static const char worker[] = "tenon";

/* "tep", or the study's own name where it has one side; Optuna's studies are named STUDY or STUDY/SIDE. */
static void side_study_name(const tn_study *s, size_t side, char *out, size_t bytes)
{
    const char *name = s->sides[side].name;
    snprintf(out, bytes, "%s%s%s", s->name, name[0] ? "/" : "", name);
}

static json_t *time_text(double at)
{
    char text[64];
    struct tm t;
    const bool can_be = fabs(at) < 1e15; /* a database may hold any number */
    const time_t whole = can_be ? (time_t)floor(at) : 0;
    if (!can_be || !gmtime_r(&whole, &t)) return json_null();
    const size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &t);
    snprintf(text + n, sizeof text - n, ".%06d+00:00", (int)((at - floor(at)) * 1e6));
    return json_string(text);
}

/* A distribution is a text of JSON inside the JSON. */
static json_t *distribution(const tn_dim *d)
{
    json_t *a;
    if (d->kind == TN_DIM_CHOICE) {
        json_t *choices = json_array();
        for (size_t i = 0; i < d->n_choices; i++) json_array_append_new(choices, json_string(d->choices[i]));
        a = json_pack("{s:s, s:{s:o}}", "name", "CategoricalDistribution", "attributes", "choices", choices);
    } else if (d->kind == TN_DIM_INT) {
        a = json_pack("{s:s, s:{s:b, s:I, s:I, s:I}}", "name", "IntDistribution", "attributes", "log", d->log, "step",
                      (json_int_t)(d->step > 0 && !d->log ? d->step : 1), "low", (json_int_t)d->lo, "high",
                      (json_int_t)d->hi);
    } else {
        a = json_pack("{s:s, s:{s:o, s:f, s:f, s:b}}", "name", "FloatDistribution", "attributes", "step",
                      d->step > 0 && !d->log ? json_real(d->step) : json_null(), "low", d->lo, "high", d->hi, "log",
                      d->log);
    }
    char *text = a ? json_dumps(a, JSON_REAL_PRECISION(17)) : NULL;
    json_t *o = text ? json_string(text) : NULL;
    free(text);
    json_decref(a);
    return o;
}

static int state_of(const tn_study *s, const tn_trial *t)
{
    if (t->state == TN_TRIAL_WAITING) return WAITING;
    if (t->state == TN_TRIAL_RUNNING) return RUNNING;
    if (t->state == TN_TRIAL_PRUNED || t->state == TN_TRIAL_TIMEOUT) return PRUNED;
    for (size_t k = 0; k < s->n_objectives; k++)
        if (t->state == TN_TRIAL_FAILED || !t->y || !isfinite(t->y[k]))
            return FAIL; /* Optuna keeps no trial without its numbers */
    return COMPLETE;
}

/* Of each evaluation, by its step: Optuna has one number for it, which is the first objective's. */
static tn_status add_curve(const tn_study *s, tn_lab *lab, const tn_trial *t, json_t *intermediate)
{
    tn_arena arena = { 0 };
    tn_trial_curve c;
    tn_status st = tn_lab_curve(lab, t->id, &arena, &c);
    for (size_t k = 0; st == TN_OK && k < c.metrics; k++) {
        if (strcmp(c.name[k], s->objectives[0].name) != 0) continue;
        for (size_t i = 0; i < c.n; i++) {
            char key[32];
            snprintf(key, sizeof key, "%lld", (long long)c.step[i]);
            if (isfinite(c.value[i * c.metrics + k]))
                json_object_set_new(intermediate, key, json_real(c.value[i * c.metrics + k]));
        }
    }
    tn_arena_free(&arena);
    return st;
}

static tn_status trial_json(const tn_study *s, tn_lab *lab, const tn_trial *t, json_t **out)
{
    const tn_space *space = &s->sides[t->side].space;
    const int state = state_of(s, t);
    json_t *params = json_object(), *distributions = json_object(), *intermediate = json_object();
    for (size_t k = 0; t->x && k < space->n; k++) {
        if (isnan(t->x[k])) continue;
        json_object_set_new(params, space->dims[k].key, json_real(t->x[k]));
        json_object_set_new(distributions, space->dims[k].key, distribution(&space->dims[k]));
    }
    tn_status st = lab ? add_curve(s, lab, t, intermediate) : TN_OK;
    json_t *o = st == TN_OK ? json_pack("{s:i, s:s, s:i, s:o, s:o, s:i, s:o, s:o, s:o, s:{s:I}, s:{}}", "op_code",
                                        CREATE_TRIAL, "worker_id", worker, "study_id", t->side, "datetime_start",
                                        time_text(t->started), "datetime_complete", time_text(t->ended), "state", state,
                                        "params", params, "distributions", distributions, "intermediate_values",
                                        intermediate, "user_attrs", "seed", (json_int_t)t->seed, "system_attrs")
                            : NULL;
    if (!o) return st == TN_OK ? tn_error(TN_MEMORY, "out of memory") : st;
    json_t *values = json_array();
    for (size_t k = 0; k < s->n_objectives; k++)
        json_array_append_new(values, state == COMPLETE ? json_real(t->y[k]) : json_null());
    json_object_set_new(o, "value", json_null());
    json_object_set_new(o, "values", state == COMPLETE ? values : json_null());
    if (state != COMPLETE) json_decref(values);
    *out = o;
    return TN_OK;
}

static tn_status put_study(const tn_study *s, size_t side, FILE *out)
{
    char name[NAME];
    json_t *directions = json_array(), *names = json_array();
    for (size_t k = 0; k < s->n_objectives; k++) {
        json_array_append_new(directions, json_integer(s->objectives[k].maximise ? MAXIMIZE : MINIMIZE));
        json_array_append_new(names, json_string(s->objectives[k].name));
    }
    side_study_name(s, side, name, sizeof name);
    tn_status st = put_line(json_pack("{s:i, s:s, s:s, s:o}", "op_code", CREATE_STUDY, "worker_id", worker,
                                      "study_name", name, "directions", directions),
                            out);
    if (st != TN_OK) return json_decref(names), st;
    return put_line(json_pack("{s:i, s:s, s:I, s:{s:o}}", "op_code", SET_STUDY_ATTRIBUTE, "worker_id", worker,
                              "study_id", (json_int_t)side, "system_attr", "study:metric_names", names),
                    out);
}

tn_status tn_export_optuna(const tn_study *s, tn_lab *lab, FILE *out)
{
    for (size_t i = 0; i < s->n_sides; i++) TN_RETURN_IF(put_study(s, i, out));
    for (size_t i = 0; i < s->n; i++) {
        json_t *o = NULL;
        if (s->trials[i].kind == TN_TRIAL_COMPARE) continue;
        TN_RETURN_IF(trial_json(s, lab, &s->trials[i], &o));
        TN_RETURN_IF(put_line(o, out));
    }
    return flush(out);
}
