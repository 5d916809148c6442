/* Matches inputs by name, type and dims. */
#include "train/trainer/inputs.h"

#include "base/status.h"
#include "ops/take_samples/take_samples.h"
#include "plan/graph.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t MOST = (int64_t)1 << 40; /* items of a row: far beyond any machine, far below overflow */

double tn_input_spec_number(const tn_input_spec *s, const char *name)
{
    for (size_t i = 0; s && i < s->n_numbers; i++)
        if (strcmp(s->numbers[i].name, name) == 0) return s->numbers[i].value;
    return NAN;
}

tn_input_spec tn_input_spec_with(const tn_model *model, const char *input, tn_input_row rows[TN_INPUTS_MAX])
{
    tn_input_spec s = { .rows = rows, .numbers = model->assumes, .n_numbers = model->n_assumes };
    for (size_t i = 0; i < model->n_inputs && s.n_rows < TN_INPUTS_MAX; i++)
        if (!model->inputs[i].optional || model->inputs[i].assumed || strcmp(model->inputs[i].name, input) == 0)
            rows[s.n_rows++] = model->inputs[i];
    return s;
}

static const tn_input_row *find(const tn_input_row *rows, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}

bool tn_model_reads(const tn_model *model, const char *input)
{
    return find(model->inputs, model->n_inputs, input) != NULL;
}

bool tn_model_reads_sequences(const tn_model *model)
{
    for (size_t i = 0; i < model->n_inputs; i++)
        if (model->inputs[i].cut) return true;
    return false;
}

bool tn_inputs_setting(const tn_settings *st, const char *key)
{
    const size_t i = tn_settings_find(st, key);
    const tn_setting_type type = i < tn_settings_count(st) ? tn_settings_row_at(st, i)->type : TN_TYPE_TEXT;
    return type == TN_TYPE_INT || type == TN_TYPE_AUTO_INT;
}

static bool is(const char *dim, const char *name) { return dim && strcmp(dim, name) == 0; }

int64_t tn_inputs_length(const tn_model *model, const tn_settings *st)
{
    const char *time = model->time ? model->time : "train.context";
    for (size_t i = 0; i < model->n_inputs; i++)
        for (int k = 0; k < TN_INPUT_RANK; k++)
            if (is(model->inputs[i].dims[k], TN_T) && tn_inputs_setting(st, time)) return tn_settings_int(st, time);
    return 1;
}

/* --- one row ---------------------------------------------------------------------------------------------------------- */

typedef struct matching {
    const tn_model *model;
    const tn_settings *st;
    const tn_input_spec *input_spec;
    bool theirs; /* the row is the supplier's: its numbers say what it holds, whatever is set */
} matching;

/* A size by its name: digits, a setting that is not auto, a number of the data. */
static tn_status size_of(const matching *m, const tn_input_row *row, const char *name, int64_t *out)
{
    char *end;
    const tn_input_spec assumes = { .numbers = m->model->assumes,
                                    .n_numbers = m->input_spec->rows ? 0 : m->model->n_assumes }; /* nobody has data */
    const double number = tn_input_spec_number(m->input_spec, name), assumed = tn_input_spec_number(&assumes, name);
    const bool known = tn_inputs_setting(m->st, name), is_auto = known && tn_settings_is_auto(m->st, name);
    if (isdigit((unsigned char)name[0])) {
        *out = strtoll(name, &end, 10);
        if (*end)
            return tn_error(TN_USAGE,
                            "model %s, input %s: dim \"%s\" is not a number: write digits, TN_B, TN_T or a name",
                            m->model->name, row->name, name);
    } else if (known && !is_auto && !(m->theirs && !isnan(number))) *out = tn_settings_int(m->st, name);
    else if (!isnan(number)) *out = number >= 1 && number <= (double)MOST ? (int64_t)number : 0;
    else if (!known && !isnan(assumed))
        *out = (int64_t)assumed; /* a setting has it from tn_task_defaults: the model reads it there */
    else if (is_auto)
        return tn_error(TN_USAGE,
                        "model %s, input %s: %s is auto and there are no data to take it from: name them with "
                        "task=NAME or data=FILE, or set %s",
                        m->model->name, row->name, name, name);
    else
        return tn_error(TN_USAGE,
                        "model %s, input %s: dim \"%s\" is neither TN_B, TN_T, digits, an integer setting nor a size "
                        "that its data supply: add the setting, or correct the row",
                        m->model->name, row->name, name);
    if (*out >= 1 && *out <= MOST) return TN_OK;
    return tn_error(TN_USAGE, "model %s, input %s: %s is %lld, and a size is at least 1: set it, or correct the row",
                    m->model->name, row->name, name, (long long)*out);
}

/* NAME+1 is for lengths: all NAME places may be taken. */
static tn_status bound_of(const matching *m, const tn_input_row *row, int64_t *out)
{
    char name[64];
    const size_t n = strlen(row->below);
    const bool one_more = n > 2 && is(row->below + n - 2, "+1");
    if (n >= sizeof name)
        return tn_error(TN_USAGE, "model %s, input %s: the name in .below is longer than %zu: use a shorter one",
                        m->model->name, row->name, sizeof name - 1);
    snprintf(name, sizeof name, "%.*s", (int)(one_more ? n - 2 : n), row->below);
    TN_RETURN_IF(size_of(m, row, name, out));
    *out += one_more;
    return TN_OK;
}

static tn_status resolve(const matching *m, const tn_input_row *row, tn_input_slot *out)
{
    tn_input_slot s = { .row = row, .each = 1 };
    int64_t items = 1;
    if (row->type != TN_F32 && row->type != TN_I32)
        return tn_error(TN_USAGE, "model %s, input %s: its type is %s: use TN_F32 or TN_I32", m->model->name, row->name,
                        tn_dtype_name(row->type));
    if (row->valid_rows && (row->type != TN_I32 || !is(row->dims[0], "1") || row->dims[1]))
        return tn_error(TN_USAGE, "model %s, input %s: .valid_rows is for TN_I32 and dims { \"1\" }: correct the row",
                        m->model->name, row->name);
    for (; s.rank < TN_INPUT_RANK && row->dims[s.rank]; s.rank++) {
        const char *dim = row->dims[s.rank];
        if (is(dim, TN_B) ? s.rank != 0 : is(dim, TN_T) && (s.rank != 1 || !is(row->dims[0], TN_B)))
            return tn_error(
                TN_USAGE, "model %s, input %s: TN_B must be the first dim and TN_T the second: reorder the row's dims",
                m->model->name, row->name);
        s.has_time |= is(dim, TN_T);
        if (is(dim, TN_B) || is(dim, TN_T)) continue;
        TN_RETURN_IF(size_of(m, row, dim, &s.dim[s.rank]));
        if (items > MOST / s.dim[s.rank])
            return tn_error(TN_USAGE, "model %s, input %s is too large: use smaller sizes", m->model->name, row->name);
        items *= s.dim[s.rank];
    }
    if (!s.rank)
        return tn_error(TN_USAGE, "model %s, input %s has no dims: write for example { TN_B, \"inputs\" }",
                        m->model->name, row->name);
    if (row->cut && !s.has_time)
        return tn_error(TN_USAGE, "model %s, input %s has .cut but no TN_T: add TN_T to its dims, or remove .cut",
                        m->model->name, row->name);
    if (row->below) TN_RETURN_IF(bound_of(m, row, &s.below));
    s.each = is(row->dims[0], TN_B) ? items : 0;
    s.all = items;
    *out = s;
    return TN_OK;
}

/* --- all of them ------------------------------------------------------------------------------------------------------ */

/* Before any is looked for. */
static tn_status check_names(const tn_model *model, const tn_input_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!rows[i].name || !rows[i].name[0])
            return tn_error(TN_USAGE, "model %s has an input without a name: give its row one", model->name);
        if (find(rows, i, rows[i].name))
            return tn_error(TN_USAGE, "model %s has two inputs called %s: rename one of the rows", model->name,
                            rows[i].name);
    }
    return TN_OK;
}

static const char *shape_text(const tn_input_slot *s, char *buf, size_t bytes)
{
    size_t at = (size_t)snprintf(buf, bytes, "%s (", s->row->type == TN_F32 ? "f32" : "i32");
    for (int k = 0; k < s->rank && at < bytes; k++) {
        if (s->dim[k]) at += (size_t)snprintf(buf + at, bytes - at, "%s%lld", k ? "," : "", (long long)s->dim[k]);
        else at += (size_t)snprintf(buf + at, bytes - at, "%s%s", k ? "," : "", s->row->dims[k]);
    }
    if (at < bytes) snprintf(buf + at, bytes - at, ")");
    return buf;
}

static bool alike(const tn_input_slot *a, const tn_input_slot *b)
{
    return a->row->type == b->row->type && a->rank == b->rank && a->has_time == b->has_time && !a->each == !b->each &&
           memcmp(a->dim, b->dim, sizeof a->dim) == 0;
}

static tn_status match_row(const matching *m, const tn_input_row *given, tn_input_slot *out)
{
    char wants[96], has[96];
    const tn_input_row *own = find(m->model->inputs, m->model->n_inputs, given->name);
    if (!own || own->from == TN_TRAINER) {
        *out = (tn_input_slot){ .row = given, .given = given };
        return TN_OK;
    }
    tn_input_slot filled;
    TN_RETURN_IF(resolve(m, own, out));
    const matching data = { m->model, m->st, m->input_spec, .theirs = m->input_spec->rows != NULL };
    TN_RETURN_IF(resolve(&data, given, &filled));
    out->read = true;
    out->given = given;
    if (alike(out, &filled)) return TN_OK;
    return tn_error(TN_USAGE,
                    "model %s, input %s: the model takes %s and the data have %s: change the model's settings or its "
                    "row, or use other data",
                    m->model->name, own->name, shape_text(out, wants, sizeof wants),
                    shape_text(&filled, has, sizeof has));
}

static const char *names_of(const tn_input_row *rows, size_t n, char *buf, size_t bytes)
{
    size_t at = 0;
    buf[0] = 0;
    for (size_t i = 0; i < n && at < bytes; i++)
        at += (size_t)snprintf(buf + at, bytes - at, "%s%s", i ? ", " : "", rows[i].name);
    return buf;
}

/* Whatever the model cannot do without must be filled. */
static tn_status check_filled(const matching *m, const tn_input_row *rows, size_t n)
{
    char names[256];
    for (size_t i = 0; i < m->model->n_inputs; i++) {
        const tn_input_row *own = &m->model->inputs[i];
        if (own->optional || own->from == TN_TRAINER || find(rows, n, own->name)) continue;
        return tn_error(TN_USAGE,
                        "model %s, input %s: the data have none of that name (they have %s): rename the row, make it "
                        ".optional, or use other data",
                        m->model->name, own->name, names_of(rows, n, names, sizeof names));
    }
    return TN_OK;
}

static tn_status check_losses(const tn_model *m)
{
    if (m->n_losses > TN_LOSSES_MAX)
        return tn_error(TN_USAGE, "model %s has more than %d loss rows: combine some", m->name, TN_LOSSES_MAX);
    for (size_t i = 0; i < m->n_losses; i++) {
        const tn_loss_row *row = &m->losses[i];
        if (!row->output || !row->count)
            return tn_error(TN_USAGE, "model %s has a loss row without an output or a count: complete it", m->name);
        if (!is(row->count, TN_T) && !tn_model_reads(m, row->count))
            return tn_error(
                TN_USAGE,
                "model %s, loss %s: its count is \"%s\", which is not an input: name one of the model's, or TN_T",
                m->name, row->output, row->count);
    }
    return TN_OK;
}

tn_status tn_inputs_check(const tn_model *model, const tn_settings *st)
{
    if (!model->n_inputs)
        return tn_error(TN_USAGE,
                        "model %s declares no inputs: add TN_LANGUAGE_ROWS, or TN_INPUTS(rows) of its own, to its row",
                        model->name);
    if (model->n_inputs > TN_INPUTS_MAX)
        return tn_error(TN_USAGE, "model %s has more than %d inputs: combine some", model->name, TN_INPUTS_MAX);
    if (model->time && !tn_inputs_setting(st, model->time))
        return tn_error(TN_USAGE, "model %s: .time is \"%s\", which is not an integer setting: add it, or remove .time",
                        model->name, model->time);
    TN_RETURN_IF(check_names(model, model->inputs, model->n_inputs));
    return check_losses(model);
}

tn_status tn_inputs_match(const tn_model *model, const tn_settings *st, const tn_input_spec *input_spec, tn_inputs *out)
{
    static const tn_input_spec none = { 0 };
    const matching m = { .model = model, .st = st, .input_spec = input_spec ? input_spec : &none };
    const bool own = !m.input_spec->rows;
    const tn_input_row *rows = own ? model->inputs : m.input_spec->rows;
    const size_t n = own ? model->n_inputs : m.input_spec->n_rows;
    tn_inputs in = { 0 };
    TN_RETURN_IF(tn_inputs_check(model, st));
    if (n > TN_INPUTS_MAX)
        return tn_error(TN_USAGE, "model %s: its data have more than %d inputs: combine some", model->name,
                        TN_INPUTS_MAX);
    TN_RETURN_IF(check_names(model, rows, n));
    if (!own) TN_RETURN_IF(check_filled(&m, rows, n));
    for (size_t i = 0; i < n; i++) {
        if (own && (rows[i].from == TN_TRAINER || (rows[i].optional && !rows[i].assumed && !m.input_spec->optional)))
            continue;
        TN_RETURN_IF(match_row(&m, &rows[i], &in.slot[in.n]));
        in.cut |= in.slot[in.n].row->cut;
        in.n++;
    }
    for (size_t i = 0; i < m.input_spec->n_numbers && i < TN_BATCH_NUMBERS; i++)
        in.number[in.n_numbers++] = m.input_spec->numbers[i];
    *out = in;
    return TN_OK;
}

/* --- shapes ----------------------------------------------------------------------------------------------------------- */

/* The size of that name, or what it was. NAME+1: one more. */
static int64_t size_in(const tn_input_shape *s, const char *name, int64_t was)
{
    for (size_t i = 0; name && i < s->n; i++) {
        const size_t n = strlen(s->size[i].name);
        if (strncmp(name, s->size[i].name, n) == 0 && (!name[n] || is(name + n, "+1")))
            return (int64_t)s->size[i].value + (name[n] != 0);
    }
    return was;
}

void tn_inputs_narrow(const tn_inputs *whole, const tn_input_shape *s, tn_inputs *out)
{
    *out = *whole;
    for (size_t i = 0; i < out->n; i++) {
        tn_input_slot *x = &out->slot[i];
        x->all = 1;
        for (int k = 0; k < x->rank; k++) {
            x->dim[k] = size_in(s, x->given->dims[k], x->dim[k]);
            x->all *= x->dim[k] ? x->dim[k] : 1;
        }
        x->each = x->each ? x->all : 0;
        x->below = size_in(s, x->given->below ? x->given->below : x->row->below, x->below);
    }
    for (size_t i = 0; i < out->n_numbers; i++) {
        const int64_t size = size_in(s, out->number[i].name, 0);
        if (size) out->number[i].value = (double)size;
    }
}

/* --- graphs and feeds -------------------------------------------------------------------------------------------------- */

static tn_dims dims_of(const tn_input_slot *s, const tn_batch *b)
{
    tn_dims dims = { .rank = s->rank };
    for (int k = 0; k < s->rank; k++) dims.dim[k] = s->dim[k] ? s->dim[k] : k ? b->length : b->batch;
    return dims;
}

const char *tn_input_data_name(const char *input, char name[TN_INPUT_DATA_NAME])
{
    snprintf(name, TN_INPUT_DATA_NAME, "samples.%.100s", input);
    return name;
}

/* Taken from what stays on the device, by inputs that the graph has. */
static tn_ref take(const tn_inputs *in, const tn_input_slot *s, tn_graph *g, const tn_batch *b)
{
    char name[TN_INPUT_DATA_NAME];
    tn_dims set = dims_of(s, b);
    set.dim[0] = s->samples;
    return tn_take_samples(g, tn_graph_data(g, tn_input_data_name(s->row->name, name), set, s->stored),
                           tn_in(b, in->slot[in->number_slot].row->name), tn_in(b, in->slot[in->valid_slot].row->name),
                           s->scale, (float)s->row->pad);
}

void tn_inputs_build(const tn_inputs *in, tn_graph *g, tn_batch *b)
{
    const bool trains = tn_graph_get_options(g)->training;
    for (size_t i = 0; i < in->n; i++) {
        const tn_input_slot *s = &in->slot[i];
        if (s->read && !(trains && s->samples))
            tn_batch_add(b, s->row->name, tn_input(g, s->row->name, dims_of(s, b), s->row->type));
    }
    for (size_t i = 0; i < in->n && trains; i++)
        if (in->slot[i].read && in->slot[i].samples)
            tn_batch_add(b, in->slot[i].row->name, take(in, &in->slot[i], g, b));
    for (size_t i = 0; i < in->n_numbers; i++) tn_batch_number(b, in->number[i].name, in->number[i].value);
}

static void hash_name(tn_hash *h, const char *name) { tn_hash_add(h, name, strlen(name) + 1); }

tn_status tn_inputs_hash(const tn_inputs *in, const char *const *wants, char hash[TN_HASH_BYTES])
{
    tn_hash *h;
    TN_RETURN_IF(tn_hash_begin(&h));
    for (size_t i = 0; i < in->n; i++) {
        const tn_input_slot *s = &in->slot[i];
        if (!s->read) continue;
        hash_name(h, s->row->name);
        tn_hash_add(h, s->dim, sizeof s->dim);
        tn_hash_add(h, &s->samples, sizeof s->samples);
        tn_hash_add(h, &s->stored, sizeof s->stored);
        tn_hash_add(h, &s->scale, sizeof s->scale);
    }
    for (size_t i = 0; i < in->n_numbers; i++) {
        hash_name(h, in->number[i].name);
        tn_hash_add(h, &in->number[i].value, sizeof in->number[i].value);
    }
    for (size_t i = 0; wants && wants[i]; i++) hash_name(h, wants[i]);
    tn_hash_text(h, hash);
    tn_hash_free(h);
    return TN_OK;
}

int64_t tn_input_items(const tn_input_slot *s, int64_t B, int64_t T)
{
    return s->each ? B * (s->has_time ? T : 1) * s->each : s->all;
}

void *tn_feed_at(const tn_feed *f, const char *name)
{
    for (size_t i = 0; i < f->inputs->n; i++)
        if (strcmp(f->inputs->slot[i].row->name, name) == 0) return f->at[i];
    return NULL;
}

static void fill(void *at, tn_dtype type, int64_t from, int64_t to, double value)
{
    if (type == TN_F32)
        for (int64_t i = from; i < to; i++) ((float *)at)[i] = (float)value;
    else
        for (int64_t i = from; i < to; i++) ((int32_t *)at)[i] = (int32_t)value;
}

void tn_feed_end(const tn_feed *f, int64_t n)
{
    *f->valid = n;
    for (size_t i = 0; i < f->inputs->n; i++) {
        const tn_input_slot *s = &f->inputs->slot[i];
        const int64_t each = s->each * (s->has_time ? f->length : 1);
        if (f->at[i] && s->each) fill(f->at[i], s->row->type, n * each, f->batch * each, s->row->pad);
        if (f->at[i] && s->row->valid_rows) ((int32_t *)f->at[i])[0] = (int32_t)n;
    }
}

void tn_feed_pad_row(const tn_feed *f, int64_t b, int64_t width)
{
    for (size_t i = 0; i < f->inputs->n; i++) {
        const tn_input_slot *s = &f->inputs->slot[i];
        if (f->at[i] && s->row->cut)
            fill(f->at[i], s->row->type, (b * f->length + width) * s->each, (b + 1) * f->length * s->each, s->row->pad);
    }
}

/* What is drawn token by token: sequences side by side have one stream. */
static bool is_sequence(const tn_input_slot *s) { return s->row->cut && s->row->type == TN_I32 && s->below; }

void tn_feed_random(const tn_feed *f, tn_rng rng)
{
    uint64_t beside = 0, at = 0;
    for (size_t i = 0; i < f->inputs->n; i++) beside += is_sequence(&f->inputs->slot[i]);
    for (size_t i = 0; i < f->inputs->n; i++) {
        const tn_input_slot *s = &f->inputs->slot[i];
        const int64_t n = tn_input_items(s, f->batch, f->length), each = n / f->batch > 0 ? n / f->batch : 1;
        const bool together = is_sequence(s);
        const tn_rng own = { rng.seed, together ? rng.stream : rng.stream + i };
        const uint64_t stride = together ? beside : 1, first = together ? at++ : 0;
        int32_t *whole = f->at[i];
        if (!f->at[i]) continue;
        if (s->row->type == TN_F32) tn_rng_normals(own, f->at[i], n);
        else
            for (int64_t k = 0; k < n; k++)
                whole[k] = s->below ? (int32_t)tn_rng_below(own, (uint64_t)k * stride + first, (uint64_t)s->below)
                                    : (int32_t)(k / each);
    }
    tn_feed_end(f, f->batch);
}

tn_feed_map tn_feed_map_of(const tn_inputs *in, const tn_input_row *rows, size_t n)
{
    tn_feed_map m;
    for (size_t k = 0; k < TN_INPUTS_MAX; k++) {
        m.slot[k] = -1;
        for (size_t i = 0; k < n && i < in->n; i++)
            if (in->slot[i].read && strcmp(in->slot[i].row->name, rows[k].name) == 0) m.slot[k] = (int)i;
    }
    return m;
}
