/* Caches of a window (models/decode_cache.h): how far each row has come in them, and moving what is still seen to their start when the
 * next tokens do not fit. The plan for that is made when it is first needed: most texts are shorter. */
#include "sample/sample_decode_parts.h"

int64_t tn__decoder_room(const tn_decoder *d)
{
    int64_t most = 0;
    if (!d->window) return INT64_MAX;
    for (int64_t b = 0; b < d->o.batch; b++) most = d->slot[b] > most ? d->slot[b] : most;
    return tn_decode_window_rows(d->window) - most;
}

void tn__decoder_put_slot(tn_decoder *d, int64_t row, int64_t position)
{
    const bool fits = !d->window || position < tn_decode_window_rows(d->window);
    d->slot[row] = fits ? position : tn_decode_window_moved(d->window, position);
}

static tn_status make_move(tn_decoder *d)
{
    tn_graph *g = NULL;
    TN_RETURN_IF(tn_graph_new(&d->setup.options, &g));
    tn_decode_cache_move(g, tn_plan_graph(tn_decoder_plan(d)), d->o.batch);
    const tn_compile_options how = { .device = d->setup.device, .repeats = 1 };
    return tn__decoder_make_plan(d, g, &how, &d->move);
}

/* All rows at once, so that it happens seldom. Slots change when the rows have moved: where that fails they still say what the caches hold. */
tn_status tn__decoder_make_room(tn_decoder *d, int64_t tokens)
{
    if (tn__decoder_room(d) >= tokens) return TN_OK;
    if (!d->move.bound) TN_RETURN_IF(make_move(d));
    int32_t *shift = tn_bound_data(d->move.bound, "cache.shift"); /* (B) */
    if (!shift) return tn_error(TN_INTERNAL, "no cache moves");
    for (int64_t b = 0; b < d->o.batch; b++)
        shift[b] = (int32_t)(d->slot[b] - tn_decode_window_moved(d->window, d->slot[b]));
    TN_RETURN_IF(tn_run(d->move.bound));
    for (int64_t b = 0; b < d->o.batch; b++) d->slot[b] = tn_decode_window_moved(d->window, d->slot[b]);
    return TN_OK;
}
