/* Whether samples stay on the device, which inputs are taken from them, and putting them there. */
#include "train/trainer/resident.h"

#include "train/trainer/trainer_internal.h"

#include <stdio.h>
#include <string.h>

double tn_resident_bytes(const tn_resident *r)
{
    double bytes = 0;
    for (size_t k = 0; k < r->n; k++)
        bytes += (double)r->samples * (double)r->part[k].each * (double)tn_dtype_bytes(r->part[k].stored);
    return bytes;
}

bool tn_resident_fits(double samples, double need, double limit) { return samples <= 0.1 * (limit - need); }

static int find(const tn_inputs *in, const char *name)
{
    for (size_t i = 0; i < in->n; i++)
        if (strcmp(in->slot[i].row->name, name) == 0) return (int)i;
    return -1;
}

/* Numbers and counts are there for the plan, whether the model reads them or not. */
static void read_too(tn_input_slot *s)
{
    if (s->read) return;
    const bool counts = s->row->valid_rows;
    s->read = true;
    s->rank = 1;
    s->dim[0] = counts;
    s->each = counts ? 0 : 1;
    s->all = 1;
}

bool tn_resident_mark(const tn_resident *r, int64_t length, tn_inputs *in)
{
    const int number = find(in, r->number), valid = find(in, r->valid);
    size_t taken = 0;
    if (in->cut || number < 0 || valid < 0 || !in->slot[valid].row->valid_rows) return false;
    for (size_t k = 0; k < r->n; k++) {
        const int at = find(in, r->part[k].input);
        tn_input_slot *s = at < 0 ? NULL : &in->slot[at];
        if (!s || !s->read || !s->each || tn_input_items(s, 1, length) != r->part[k].each) continue;
        s->samples = r->samples;
        s->stored = r->part[k].stored;
        s->scale = r->part[k].scale;
        s->left_out = !r->part[k].counts;
        taken++;
    }
    if (!taken) return false;
    read_too(&in->slot[number]);
    read_too(&in->slot[valid]);
    in->number_slot = number;
    in->valid_slot = valid;
    return true;
}

/* --- in a trainer --------------------------------------------------------------------------------------------------------- */

/* On a processor a copy is no transfer: there it is asked for. A store of others has no room for it. */
void tn__trainer_keep_samples(tn_trainer *t, const tn_resident *r)
{
    if (!r || t->forward_only || t->part || t->borrowed || r->samples < 1) return;
    const char *how = tn_settings_text(t->settings, "opt.resident_samples");
    const bool is_auto = strcmp(how, "auto") == 0;
    if (strcmp(how, "off") == 0) return;
    if (is_auto && (t->setup.device == TN_CPU || !tn_resident_fits(tn_resident_bytes(r), 0, t->memory_limit))) return;
    t->keeps_samples = tn_resident_mark(r, t->length, &t->inputs);
    t->may_drop_samples = t->keeps_samples && is_auto;
}

/* Rows of the set in pieces, so that the host holds no second one. */
static tn_status load_part(const tn_store *st, const tn_resident *r, size_t k, const tn_entry *e)
{
    enum { PIECE = 1 << 22 };
    tn_status s = TN_OK;
    const size_t row = (size_t)r->part[k].each * tn_dtype_bytes(r->part[k].stored);
    const int64_t most = row < PIECE ? (int64_t)(PIECE / row) : 1;
    char *piece = tn_alloc((size_t)most * row);
    if (!piece) return TN_MEMORY;
    for (int64_t first = 0, n; first < r->samples && s == TN_OK; first += n) {
        n = r->samples - first < most ? r->samples - first : most;
        for (int64_t i = 0; i < n; i++) r->read(r->data, k, first + i, piece + (size_t)i * row);
        s = tn_store_write(st, (char *)e->data + (size_t)first * row, piece, (size_t)n * row);
    }
    tn_free(piece);
    return s;
}

tn_status tn_trainer_load_samples(tn_trainer *t, const tn_resident *r)
{
    char name[TN_INPUT_DATA_NAME];
    for (size_t k = 0; r && t->keeps_samples && k < r->n; k++) {
        const tn_entry *e = tn_store_find(t->store, tn_input_data_name(r->part[k].input, name));
        if (e) TN_RETURN_IF(load_part(t->store, r, k, e));
    }
    return TN_OK;
}

bool tn_trainer_keeps_samples(const tn_trainer *t) { return t->keeps_samples; }
