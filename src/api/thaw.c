/* A model that was opened with weights holds them as its file does, in its type and without gradients: enough to evaluate, to
 * sample, and for gradients by inputs. Who trains it, or asks for a tensor, gets another store, once: f32 with gradients, as if
 * it had been there from the start. */
#include "api/net.h"

#include "base/alloc.h"
#include "base/status.h"

static tn_status copy_tensor(const tn_store *from, const tn_entry *x, const tn_store *to, const tn_entry *e,
                             tn_host_copy *host)
{
    const int64_t n = tn_dims_count(e->dims);
    const size_t bytes = (size_t)n * tn_dtype_bytes(x->dtype);
    const void *data = tn_store_read(from, x->data, bytes, host);
    if (!data) return TN_MEMORY;
    if (x->dtype == e->dtype) return tn_store_write(to, e->data, data, bytes);
    return tn_store_put(to, e, 0, n, data, x->dtype);
}

/* Weights with fewer digits than the file's are read from it again; all else is as it was. */
static tn_status copy_all(const tenon_net *net, const tn_store *from, tn_store *to)
{
    tn_status s = TN_OK;
    tn_host_copy host = { 0 };
    char none[TN_CKPT_NOTE];
    for (size_t i = 0; i < tn_store_count(to); i++) {
        const tn_entry *e = tn_store_at(to, i), *x = tn_store_find(from, e->name);
        if (x && x->role != TN_ROLE_CACHE && !(e->weight && net->rounded)) TN_TRY(copy_tensor(from, x, to, e, &host));
    }
    if (net->rounded) TN_TRY(tn_weights_load(net->saved.weights, to, none));
done:
    tn_host_copy_free(&host);
    return s;
}

void tn__api_forget_last(tenon_net *net)
{
    if (net->last && net->ran == net->last) net->ran = NULL;
    tn_trainer_free(net->last);
    tn_store_free(net->last_store);
    net->last = NULL;
    net->last_store = NULL;
}

/* Outputs of what ran last can still be read: its trainer stays until the next one is needed. */
static void keep_last(tenon_net *net, tn_store *store)
{
    for (int i = 0; i < TN_NET_PARTS; i++) {
        if (net->part[i] && net->part[i] == net->ran) net->last = net->part[i];
        else tn_trainer_free(net->part[i]);
        net->part[i] = NULL;
    }
    net->last_store = store;
    if (!net->last) tn__api_forget_last(net);
}

tn_status tn__api_thaw(tenon_net *net)
{
    int64_t vocab;
    tn_store *const before = net->store;
    tn_store *store = NULL;
    if (!net->frozen) return TN_OK;
    if (net->sampling)
        return tn_error(TN_USAGE, "a callback of tenon_sample cannot ask for tensors of a model that was opened with "
                                  "weights: ask before it, or after it");
    TN_RETURN_IF(tn_store_new(tn_store_device(before), (uint64_t)tn_settings_int(net->saved.settings, "seed"), &store));
    tn_store_loads_weights(store);
    net->store = store;
    net->frozen = false;
    tn_status s = tn__api_adopt(net, tn_inputs_length(net->saved.model, net->saved.settings), &vocab);
    if (s == TN_OK) s = copy_all(net, before, store);
    if (s != TN_OK) { /* as if nobody had asked */
        net->store = before;
        net->frozen = true;
        tn_store_free(store);
        return s;
    }
    net->rounded = false;
    keep_last(net, before);
    return TN_OK;
}
