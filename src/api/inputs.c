/* The inputs of a handle by name. The handle keeps a copy, since which plan reads it is known only at run time. */
#include "api/net.h"

#include "base/alloc.h"
#include "base/status.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* --- sizes ------------------------------------------------------------------------------------------------------------ */

tn_input_spec tn__api_input_spec(const tenon_net *net, tn_input_row rows[TN_INPUTS_MAX])
{
    size_t n = 0;
    for (size_t i = 0; i < net->inputs.n; i++)
        if (!net->inputs.slot[i].row->optional || net->input[i].filled) rows[n++] = *net->inputs.slot[i].row;
    return (tn_input_spec){ .rows = rows, .n_rows = n, .numbers = net->number, .n_numbers = net->n_numbers };
}

/* Optional ones whose sizes nobody knows are as if they were not there. */
static tn_status find_sizes(tenon_net *net)
{
    tn_input_spec s = { .optional = true, .numbers = net->number, .n_numbers = net->n_numbers };
    if (tn_inputs_match(net->saved.model, net->saved.settings, &s, &net->inputs) == TN_OK) return TN_OK;
    s.optional = false;
    return tn_inputs_match(net->saved.model, net->saved.settings, &s, &net->inputs);
}

static bool is_setting(const tenon_net *net, const char *name) { return tenon_setting(net, name) != NULL; }

tn_status tn__api_inputs(tenon_net *net)
{
    const tn_model *m = net->saved.model;
    for (size_t i = 0; i < m->n_assumes && net->n_numbers < TN_BATCH_NUMBERS; i++)
        if (!is_setting(net, m->assumes[i].name)) net->number[net->n_numbers++] = m->assumes[i];
    return find_sizes(net);
}

/* The name as the model's rows have it. */
const char *tn__api_number(const tenon_net *net, const char *name)
{
    const tn_model *m = net->saved.model;
    if (is_setting(net, name) || isdigit((unsigned char)name[0]) || strcmp(name, TN_B) == 0 || strcmp(name, TN_T) == 0)
        return NULL;
    for (size_t i = 0; i < m->n_inputs; i++) {
        const tn_input_row *r = &m->inputs[i];
        for (int k = 0; k < TN_INPUT_RANK && r->dims[k]; k++)
            if (strcmp(r->dims[k], name) == 0) return r->dims[k];
        if (r->below && strcmp(r->below, name) == 0) return r->below;
    }
    return strcmp(name, "samples") == 0 ? "samples" : NULL; /* all that learn from samples may ask how many there are */
}

tn_status tn__api_set_number(tenon_net *net, const char *name, const char *value)
{
    char *end;
    size_t i = 0;
    errno = 0;
    const long long x = strtoll(value, &end, 10);
    if (errno || end == value || *end || x < 1 || x > (long long)1 << 40)
        return tn_error(TN_USAGE, "%s=%.40s: a size is an integer from 1", name, value);
    while (i < net->n_numbers && strcmp(net->number[i].name, name) != 0) i++;
    if (i == TN_BATCH_NUMBERS) return tn_error(TN_USAGE, "%s: there are more than %d numbers", name, TN_BATCH_NUMBERS);
    const tn_source_number before = net->number[i];
    const size_t n = net->n_numbers;
    net->number[i] = (tn_source_number){ tn__api_number(net, name), (double)x };
    net->n_numbers = i < n ? n : n + 1;
    const tn_status s = find_sizes(net);
    if (s == TN_OK) tn__api_drop(net);
    else net->number[i] = before, net->n_numbers = n;
    return s;
}

/* --- which there are -------------------------------------------------------------------------------------------------- */

static tn_dims dims_of(const tenon_net *net, const tn_input_slot *s)
{
    tn_dims d = { .rank = s->rank };
    for (int k = 0; k < s->rank; k++) d.dim[k] = s->dim[k] ? s->dim[k] : k ? net->length : net->batch;
    return d;
}

static tn_status find(const tenon_net *net, const char *name, size_t *out)
{
    char names[TN_NET_NAMES] = "";
    TN_RETURN_IF(tn__api_need(name, "name"));
    for (size_t i = 0; i < net->inputs.n; i++) {
        const char *is = net->inputs.slot[i].row->name;
        if (strcmp(is, name) == 0) {
            *out = i;
            return TN_OK;
        }
        tn__api_list(names, is);
    }
    return tn_error(TN_USAGE, "model %s has no input %.60s: it has %s", net->saved.model->name, name, names);
}

size_t tenon_inputs(const tenon_net *net) { return net->inputs.n; }

tenon_status tenon_input_at(const tenon_net *net, size_t i, tenon_input *out)
{
    if (i >= net->inputs.n) TN_API_USAGE("the model has %zu inputs: index %zu is out of range", net->inputs.n, i);
    const tn_input_slot *s = &net->inputs.slot[i];
    const tn_dims d = dims_of(net, s);
    tenon_input in = { .name = s->row->name,
                       .dtype = (tenon_dtype)s->row->type,
                       .rank = s->rank,
                       .batch = s->each > 0,
                       .time = s->has_time,
                       .below = s->below,
                       .pad = s->row->pad,
                       .optional = s->row->optional,
                       .filled = net->input[i].filled };
    for (int k = 0; k < d.rank; k++) in.shape[k] = d.dim[k];
    return tn__api_give(&in, sizeof in, out, "tenon_input");
}

tenon_status tenon_input_find(const tenon_net *net, const char *name, tenon_input *out)
{
    size_t i;
    TN_API_TRY(find(net, name, &i));
    return tenon_input_at(net, i, out);
}

/* --- filling ---------------------------------------------------------------------------------------------------------- */

tn_status tn__api_check_values(const tenon_net *net, const char *name, const int32_t *x, size_t n)
{
    size_t at;
    TN_RETURN_IF(find(net, name, &at));
    TN_RETURN_IF(tn__api_need(x, name));
    const tn_input_slot *s = &net->inputs.slot[at];
    const int64_t below = s->row->valid_rows ? net->batch + 1 : s->below;
    const int32_t pad = s->row->valid_rows ? 0 : (int32_t)s->row->pad;
    for (size_t i = 0; below && i < n; i++)
        if ((x[i] < 0 || x[i] >= below) && x[i] != pad)
            return tn_error(TN_USAGE, "%s[%zu] is %d, outside %d to %lld", s->row->name, i, (int)x[i],
                            pad == -1 ? -1 : 0, (long long)below - 1);
    return TN_OK;
}

/* Room for all its numbers; what was there is gone where there was too little. */
tn_status tn__api_input(tenon_net *net, const char *name, void **out)
{
    size_t i, bytes;
    TN_RETURN_IF(find(net, name, &i));
    const size_t n = (size_t)tn_input_items(&net->inputs.slot[i], net->batch, net->length);
    tn_net_input *in = &net->input[i];
    if (in->items < n) {
        if (!tn_mul_ok(n, sizeof(float), &bytes))
            return tn_error(TN_MEMORY, "input %s has too many elements: reduce its shape", name);
        tn_free(in->data);
        *in = (tn_net_input){ .data = tn_alloc(bytes) };
        if (!in->data) return TN_MEMORY;
        in->items = n;
    }
    in->filled = true;
    *out = in->data;
    return TN_OK;
}

static const char *type_name(tenon_dtype t)
{
    return t >= TENON_F32 && t <= TENON_U8 ? tn_dtype_name((tn_dtype)t) : "no type";
}

tenon_status tenon_fill(tenon_net *net, const char *name, tenon_dtype dtype, const void *values, size_t n)
{
    char shape[96];
    size_t i;
    void *at;
    TN_API_TRY(find(net, name, &i));
    const tn_input_slot *s = &net->inputs.slot[i];
    const int64_t items = tn_input_items(s, net->batch, net->length);
    TN_API_TRY(tn__api_need(values, name));
    if ((tn_dtype)dtype != s->row->type)
        TN_API_USAGE("input %s is %s, and %s is given: convert the numbers", name, tn_dtype_name(s->row->type),
                     type_name(dtype));
    if (n != (size_t)items)
        TN_API_USAGE("input %s is %s, %lld numbers, and %zu are given: give all of them, or set another shape", name,
                     tn_dims_text(dims_of(net, s), shape, sizeof shape), (long long)items, n);
    if (s->row->type == TN_I32) TN_API_TRY(tn__api_check_values(net, name, values, n));
    TN_API_TRY(tn__api_input(net, name, &at));
    memcpy(at, values, sizeof(float) * n);
    return TENON_OK;
}

void tenon_clear(tenon_net *net)
{
    for (size_t i = 0; i < TN_INPUTS_MAX; i++) net->input[i].filled = false;
}
