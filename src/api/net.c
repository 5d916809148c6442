/* Handles: opening and closing, settings, weights, tensors. */
#include "api/net.h"

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/status.h"
#include "train/trainer/graph_setup.h"
#include "train/run/parts.h"
#include "train/checkpoint/weights_check.h"

#include <stdio.h>
#include <string.h>

_Static_assert((int)TENON_INTERRUPTED == (int)TN_INTERRUPTED && (int)TENON_DISK == (int)TN_DISK &&
                   (int)TENON_U8 == (int)TN_U8,
               "the public numbers are the inner ones");
_Static_assert(TN_INPUT_RANK <= 4 && TN_MAX_RANK <= 6, "the public shapes have room for the inner ones");

const char *tenon_version(void) { return TN_VERSION; }

int tenon_api_version(void) { return TENON_API_VERSION; }

const char *tenon_error(void) { return tn_error_text(); }

tn_status tn__api_need(const void *p, const char *what) { return p ? TN_OK : tn_error(TN_USAGE, "%s is NULL", what); }

tn_status tn__api_check_size(const void *to, const char *type)
{
    size_t size;
    TN_RETURN_IF(tn__api_need(to, type));
    memcpy(&size, to, sizeof size);
    if (size >= sizeof size && size <= 1024) return TN_OK;
    return tn_error(TN_USAGE, "%s.size is %zu: set it to sizeof(%s)", type, size, type);
}

tenon_status tn__api_give(const void *from, size_t bytes, void *to, const char *type)
{
    size_t size;
    TN_API_TRY(tn__api_check_size(to, type));
    memcpy(&size, to, sizeof size);
    memcpy(to, from, size < bytes ? size : bytes);
    memcpy(to, &size, sizeof size);
    return TENON_OK;
}

tn_status tn__api_take(const void *from, void *to, size_t bytes, const char *type)
{
    size_t size;
    TN_RETURN_IF(tn__api_check_size(from, type));
    memcpy(&size, from, sizeof size);
    memcpy(to, from, size < bytes ? size : bytes);
    return TN_OK;
}

void tn__api_list(char names[TN_NET_NAMES], const char *name)
{
    const size_t at = strlen(names);
    snprintf(names + at, TN_NET_NAMES - at, "%s%s", at ? ", " : "", name);
}

/* --- opening ---------------------------------------------------------------------------------------------------------- */

static int64_t vocab_of(const tn_trainer *t)
{
    const tn_graph *g = tn_plan_graph(tn_trainer_plan(t, false));
    const tn_ref x = tn_graph_output(g, "logits");
    return x.id ? tn_ref_dim(g, x, tn_ref_dims(g, x).rank - 1) : 0;
}

/* What the last override says of the device. A run's own setting does not count: who opens one expects tensors with addresses. */
static tn_status find_device(const char *const *overrides, size_t n, tn_device *out)
{
    const char *word = "cpu";
    for (size_t i = 0; overrides && i < n; i++)
        if (overrides[i] && strncmp(overrides[i], "device=", 7) == 0) word = overrides[i] + 7;
    const bool gpu = (strcmp(word, "cuda") == 0 || strcmp(word, "auto") == 0) && tn_backend_get(TN_CUDA);
    if (!gpu && strcmp(word, "cuda") == 0) return TN_USAGE; /* tn_backend_get has said why */
    *out = gpu ? TN_CUDA : TN_CPU;
    return TN_OK;
}

tn_status tn__api_trainer(const tenon_net *net, tn_trainer_options o, bool all, tn_trainer **out)
{
    const tn_model *m = net->saved.model;
    tn_input_row rows[TN_INPUTS_MAX];
    const tn_input_spec input_spec = tn__api_input_spec(net, rows);
    const char *steps[TN_STEPS_MAX + 1] = { NULL };
    const bool chunks = strcmp(tn_settings_text(net->saved.settings, "plan.recompute"), "chunk") ==
                        0; /* have none: running one says so */
    for (size_t i = 0, n = 0; o.forward_only && (all || !chunks) && i < m->n_steps && n < TN_STEPS_MAX; i++)
        if (all || !m->steps[i].gradients) steps[n++] = m->steps[i].name;
    o.model = m;
    o.settings = net->saved.settings;
    o.input_spec = &input_spec;
    o.steps = steps;
    o.store = net->store;
    o.frozen = net->frozen;
    o.weights = net->frozen ? net->matrices : TN_F32;
    return tn_trainer_new(&o, out);
}

/* A plan for a few tokens names all tensors: the store has them before anybody asks for a shape. Training steps of the model's own may have
 * more of them than its evaluation. */
tn_status tn__api_adopt(tenon_net *net, int64_t length, int64_t *vocab)
{
    tn_trainer *t;
    const int64_t few = tn_model_reads_sequences(net->saved.model) && length > 8 ? 8 : length;
    const tn_trainer_options o = { .batch = 1, .length = few, .logits = true, .forward_only = true, .threads = 1 };
    TN_RETURN_IF(tn__api_trainer(net, o, true, &t));
    *vocab = vocab_of(t);
    const tn_dtype held = tn_trainer_graph_options(t)->weights;
    if (net->frozen) net->rounded = net->saved.matrices.expanded || (held != TN_F32 && held != net->matrices);
    tn_trainer_free(t);
    return TN_OK;
}

static tn_status keep_names(tenon_net *net)
{
    const size_t n = tn_store_count(net->store);
    net->name = tn_arena_alloc(&net->names, (n + 1) * sizeof *net->name);
    for (size_t i = 0; net->name && i < n; i++) {
        net->name[i] = tn_arena_strdup(&net->names, tn_store_at(net->store, i)->name);
        if (!net->name[i]) net->name = NULL;
    }
    net->n_names = net->name ? n : 0;
    return net->name ? TN_OK : tn_error(TN_MEMORY, "out of memory");
}

static tn_status adopt(tenon_net *n, tn_device device)
{
    tn_input_row rows[TN_INPUTS_MAX];
    const tn_model *m = n->saved.model;
    const int64_t length = tn_inputs_length(m, n->saved.settings);
    TN_RETURN_IF(tn__api_inputs(n));
    if (length < 1)
        return tn_error(TN_USAGE, "model %s: %s is auto, and there are no data to take it from: set it", m->name,
                        m->time);
    const tn_input_spec input_spec = tn__api_input_spec(n, rows);
    if (n->saved.weights[0] && !tn_model_reads_sequences(m))
        TN_RETURN_IF(tn_weights_check(n->saved.weights, m, n->saved.settings, &input_spec, length));
    TN_RETURN_IF(tn_store_new(device, (uint64_t)tn_settings_int(n->saved.settings, "seed"), &n->store));
    n->frozen = n->saved.weights[0] != 0;
    n->matrices = n->saved.matrices.type;
    n->batch = 1;
    n->length = length;
    TN_RETURN_IF(tn__api_adopt(n, length, &n->vocab));
    return n->frozen ? keep_names(n) : TN_OK;
}

tenon_status tenon_open(const char *target, const char *const *overrides, size_t n, tenon_net **out)
{
    tn_status s = TN_OK;
    tn_device device;
    tenon_net *net = tn_alloc(sizeof *net);
    if (!net) TN_TRY(TN_MEMORY);
    TN_TRY(tn__api_need(target, "target"));
    TN_TRY(tn__api_need(out, "out"));
    const tn_user_args user = { .word = overrides, .n = n, .target = target, .to = "the call" };
    TN_TRY(tn_saved_model_find(&user, target, overrides, n, "best", &net->saved));
    TN_TRY(tn_graph_setup_here(net->saved.settings, true));
    TN_TRY(find_device(overrides, n, &device));
    TN_TRY(adopt(net, device));
    if (net->saved.weights[0]) TN_TRY(tn_saved_model_load(&net->saved, net->store));
    else TN_TRY(tn_parts_load(net->saved.settings, net->saved.model, net->store));
    memcpy(net->note, net->saved.note, sizeof net->note);
    tn__api_recorded(net);
    *out = net;
    net = NULL;
done:
    tenon_close(net);
    return (tenon_status)s;
}

void tenon_close(tenon_net *net)
{
    if (!net) return;
    for (int i = 0; i < TN_NET_PARTS; i++) tn_trainer_free(net->part[i]);
    tn__api_forget_last(net);
    for (int i = 0; i < TN_INPUTS_MAX; i++) tn_free(net->input[i].data);
    tn_store_free(net->store);
    tn_arena_free(&net->names);
    tn_saved_model_free(&net->saved);
    tn_free(net);
}

const char *tenon_note(const tenon_net *net) { return net->note; }
void tenon_interrupt(tenon_net *net) { atomic_store(&net->interrupted, true); }

const char *tenon_device(const tenon_net *net) { return tn_store_device(net->store) == TN_CPU ? "cpu" : "cuda"; }

/* --- settings --------------------------------------------------------------------------------------------------------- */

const char *tenon_setting(const tenon_net *net, const char *key)
{
    const tn_settings *st = net->saved.settings;
    const size_t i = tn_settings_find(st, key);
    return i < tn_settings_count(st) ? tn_settings_text_at(st, i) : NULL;
}

size_t tenon_settings(const tenon_net *net) { return tn_settings_count(net->saved.settings); }

const char *tenon_setting_key(const tenon_net *net, size_t i)
{
    return i < tenon_settings(net) ? tn_settings_row_at(net->saved.settings, i)->key : NULL;
}

tenon_status tenon_set(tenon_net *net, const char *key, const char *value)
{
    static const char *const live[] = {
        "train.lr",    "train.schedule", "train.warmup", "train.steps",    "train.lr_min_frac", "train.cooldown_frac",
        "train.beta1", "train.beta2",    "train.eps",    "train.momentum", "train.decay",       "train.clip",
        "seed"
    };
    TN_API_TRY(tn__api_need(key, "key"));
    TN_API_TRY(tn__api_need(value, "value"));
    for (size_t i = 0; i < sizeof live / sizeof *live; i++)
        if (strcmp(live[i], key) == 0) {
            TN_API_TRY(tn_settings_set(net->saved.settings, key, value, "tenon_set"));
            for (int k = 0; k < TN_NET_PARTS; k++)
                if (net->part[k]) tn_trainer_reread(net->part[k]);
            return TENON_OK;
        }
    if (tn__api_number(net, key)) return (tenon_status)tn__api_set_number(net, key, value);
    TN_API_USAGE("%.100s cannot be changed in a model that is open: give it to tenon_open", key);
}

/* --- weights and tensors ---------------------------------------------------------------------------------------------- */

tenon_status tenon_load(tenon_net *net, const char *path)
{
    TN_API_TRY(tn__api_need(path, "path"));
    TN_API_TRY(tn__api_thaw(net)); /* the file may have more digits than the one before */
    TN_API_TRY(tn_weights_load(path, net->store, net->note));
    net->scores.n = 0; /* of other weights */
    return TENON_OK;
}

tenon_status tenon_save(tenon_net *net, const char *path)
{
    TN_API_TRY(tn__api_need(path, "path"));
    if (net->rounded) TN_API_TRY(tn__api_thaw(net));
    return (tenon_status)tn_weights_save(path, net->saved.model, net->saved.settings, net->store);
}

size_t tenon_tensors(const tenon_net *net) { return tn_store_count(net->store); }

static tenon_status give_tensor(const tenon_net *net, const tn_entry *e, tenon_tensor *out)
{
    const bool here = tn_store_device(net->store) == TN_CPU;
    tenon_tensor t = { .name = e->name,
                       .dtype = (tenon_dtype)e->dtype,
                       .trainable = e->role == TN_ROLE_PARAM,
                       .rank = e->dims.rank,
                       .data = here ? e->data : NULL,
                       .gradient = here ? e->grad : NULL };
    for (int i = 0; i < e->dims.rank; i++) t.shape[i] = e->dims.dim[i];
    return tn__api_give(&t, sizeof t, out, "tenon_tensor");
}

static tn_status check_index(const tenon_net *net, size_t i)
{
    if (i < tenon_tensors(net)) return TN_OK;
    return tn_error(TN_USAGE, "the model has %zu tensors: index %zu is out of range", tenon_tensors(net), i);
}

/* The handle is the caller's alone, and to be const is what the interface began with: giving an address may need a thaw. */
static tn_status thaw(const tenon_net *net) { return tn__api_thaw((tenon_net *)(uintptr_t)net); }

tenon_status tenon_tensor_at(const tenon_net *net, size_t i, tenon_tensor *out)
{
    TN_API_TRY(check_index(net, i));
    TN_API_TRY(thaw(net));
    return give_tensor(net, tn_store_at(net->store, i), out);
}

static bool is_trained(const tenon_net *net, const tn_entry *e)
{
    return e->role == TN_ROLE_PARAM || (net->frozen && e->trained);
}

tenon_status tenon_tensor_about(const tenon_net *net, size_t i, tenon_tensor *out)
{
    TN_API_TRY(check_index(net, i));
    tn_entry e = *tn_store_at(net->store, i);
    e.role = is_trained(net, &e) ? TN_ROLE_PARAM : e.role;
    e.dtype = e.weight ? TN_F32 : e.dtype;
    e.data = e.grad = NULL;
    if (net->frozen && i < net->n_names) e.name = net->name[i]; /* a decoder that runs has added its caches */
    return give_tensor(net, &e, out);
}

static tn_status find_entry(const tenon_net *net, const char *name, const tn_entry **out)
{
    TN_RETURN_IF(tn__api_need(name, "name"));
    if (tn_store_find(net->store, name)) TN_RETURN_IF(thaw(net));
    *out = tn_store_find(net->store, name);
    return *out ? TN_OK : tn_error(TN_USAGE, "the model has no tensor %.200s: tenon_tensor_at lists them", name);
}

tenon_status tenon_tensor_find(const tenon_net *net, const char *name, tenon_tensor *out)
{
    const tn_entry *e;
    TN_API_TRY(find_entry(net, name, &e));
    return give_tensor(net, e, out);
}

/* Where a tensor of so many bytes, or its gradient, lies. */
static tn_status find_part(const tenon_net *net, const char *name, tenon_part part, size_t bytes, void **out)
{
    const tn_entry *e;
    TN_RETURN_IF(find_entry(net, name, &e));
    if (part != TENON_DATA && part != TENON_GRADIENT)
        return tn_error(TN_USAGE, "part=%d is neither TENON_DATA nor TENON_GRADIENT", (int)part);
    if (part == TENON_GRADIENT && !e->grad)
        return tn_error(TN_USAGE, "%.200s has no gradient: it is not trainable", name);
    const size_t need =
        (size_t)tn_dims_count(e->dims) * (part == TENON_DATA ? tn_dtype_bytes(e->dtype) : sizeof(float));
    if (bytes != need)
        return tn_error(TN_USAGE, "%.200s has %zu bytes, not %zu: pass a buffer of its size", name, need, bytes);
    *out = part == TENON_DATA ? e->data : e->grad;
    return TN_OK;
}

tenon_status tenon_read(tenon_net *net, const char *name, tenon_part part, void *to, size_t bytes)
{
    void *at = NULL;
    tn_host_copy host = { 0 };
    TN_API_TRY(tn__api_need(to, "to"));
    TN_API_TRY(find_part(net, name, part, bytes, &at));
    const void *from = tn_store_read(net->store, at, bytes, &host);
    if (from) memcpy(to, from, bytes);
    tn_host_copy_free(&host);
    return from ? TENON_OK : TENON_MEMORY;
}

tenon_status tenon_write(tenon_net *net, const char *name, tenon_part part, const void *from, size_t bytes)
{
    void *at = NULL;
    TN_API_TRY(tn__api_need(from, "from"));
    TN_API_TRY(find_part(net, name, part, bytes, &at));
    return (tenon_status)tn_store_write(net->store, at, from, bytes);
}

int64_t tenon_parameters(const tenon_net *net)
{
    int64_t n = 0;
    for (size_t i = 0; i < tn_store_count(net->store); i++)
        if (is_trained(net, tn_store_at(net->store, i))) n += tn_dims_count(tn_store_at(net->store, i)->dims);
    return n;
}
