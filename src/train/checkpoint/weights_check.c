/* Compares the parameters with the file while the graph is built, before any tensor has memory. The first mismatch
 * stops the build, so a false header (dim=65536) costs nothing. */
#include "train/checkpoint/weights_check.h"

#include "base/fs.h"
#include "io/packed.h"
#include "io/tensor_file.h"
#include "train/checkpoint/checkpoint.h"
#include "train/trainer/graph_setup.h"

#include <string.h>

static tn_status expect(const void *file, const char *name, tn_dims dims)
{
    const tn_safetensors *f = file;
    char has[128], wants[128];
    const tn_file_tensor *t;
    if (!tn_safetensors_has(f, name))
        return tn_error(TN_BAD_FILE, "tensor %.200s is missing: it belongs to another model or other settings", name);
    TN_RETURN_IF(tn_safetensors_find(f, name, &t));
    if (tn_dtype_is_float(t->dtype) && tn_dims_equal(t->dims, dims)) return TN_OK;
    return tn_error(TN_BAD_FILE,
                    "%.200s is %s %s in the file and %s in the model: it belongs to another model or other settings",
                    name, tn_dtype_name(t->dtype), tn_dims_text(t->dims, has, sizeof has),
                    tn_dims_text(dims, wants, sizeof wants));
}

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static tn_status check_found(const char *found, bool is_file, const tn_model *model, const tn_settings *st,
                             const tn_input_spec *input_spec, int64_t length)
{
    tn_status s = TN_OK;
    tn_tensor_file f = { 0 };
    tn_graph *g = NULL;
    char file[TN_PATH_BYTES];
    tn_graph_setup setup = { .options = { .threads = 1 } }; /* formats and switches change no parameter */
    if (is_file) TN_TRY(tn_path_join("", found, file, sizeof file));
    else TN_TRY(tn_ckpt_tensors_path(found, "model", file));
    if (ends_with(file, ".bin") || ends_with(file, ".gguf") || (is_file && tn_is_hf_folder(file)))
        return TN_OK; /* files of others: its settings are its header, which the reader compares with its tensors */
    TN_TRY(tn_tensor_file_open(file, tn_packed_most(file), &f));
    const tn_graph_shape shape = {
        .batch = 1, .length = length, .input_spec = input_spec, .expect = expect, .expect_ctx = f.tensors
    };
    TN_TRY(tn_graph_setup_build(&setup, model, st, &shape, &g));
done:
    tn_graph_free(g);
    tn_tensor_file_close(&f);
    return s;
}

tn_status tn_weights_check(const char *path, const tn_model *model, const tn_settings *st,
                           const tn_input_spec *input_spec, int64_t length)
{
    char found[TN_PATH_BYTES], none[TN_CKPT_NOTE]; /* whoever loads them says what stands in for what */
    bool is_file;
    tn_status s = tn_ckpt_resolve(path, "best", found, &is_file, none);
    tn_ckpt_id seen = s == TN_OK ? tn_ckpt_id_of(found) : (tn_ckpt_id){ 0 };
    if (s == TN_OK) do
            s = check_found(found, is_file, model, st, input_spec, length);
        while (s == TN_BAD_FILE && tn_ckpt_replaced(path, "best", found, &seen));
    if (s == TN_BAD_FILE && !strstr(tn_error_text(), path)) tn_error_prefix("%.300s", path);
    return s;
}
