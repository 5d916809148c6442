/* CSV and JSON Lines. Numbers are written so that reading them gives the same double. */
#include "lab/view/export.h"
#include "lab/statistics/select.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { DIM_TEXT = 128 };

/* --- which columns: every key that any side searches, once ------------------------------------------------------------------- */

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

/* --- CSV --------------------------------------------------------------------------------------------------------------------- */

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

/* --- JSON -------------------------------------------------------------------------------------------------------------------- */

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

tn_status tn_export_jsonl(const tn_study *s, FILE *out)
{
    for (size_t i = 0; i < s->n; i++) {
        json_t *o = tn_trial_json(s, &s->trials[i]);
        if (!o) return tn_error(TN_MEMORY, "out of memory");
        const int bad = json_dumpf(o, out, JSON_COMPACT | JSON_REAL_PRECISION(17));
        json_decref(o);
        if (bad) break;
        fputc('\n', out);
    }
    return ferror(out) || fflush(out) ? tn_error(TN_DISK, "the trials could not be written") : TN_OK;
}
