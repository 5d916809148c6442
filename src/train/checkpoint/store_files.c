/* Numbers go straight to where they belong when the host can write there, else through memory of their own. */
#include "train/checkpoint/store_files.h"

#include "base/alloc.h"

tn_status tn_store_take_floats(const tn_store *st, const tn_entry *e, const tn_file_tensor *t)
{
    if (tn_store_device(st) == TN_CPU) return tn_safetensors_copy_f32(t, e->data);
    const size_t bytes = (size_t)tn_dims_count(e->dims) * sizeof(float);
    float *x = tn_alloc(bytes + 64);
    if (!x) return TN_MEMORY;
    tn_status s = tn_safetensors_copy_f32(t, x);
    if (s == TN_OK) s = tn_store_write(st, e->data, x, bytes);
    tn_free(x);
    return s;
}
