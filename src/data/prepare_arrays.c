/* Prepares arrays: samples of one shape with a label each. Labels are a second file (npy, IDX; found by name next to
 * *-images-idx3-ubyte) or a column of the table (.csv). */
#include "data/prepare_parts.h"

#include "io/array_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static tn_array_format array_format(tn_format f)
{
    return f == TN_FORMAT_NPY ? TN_ARRAY_NPY : f == TN_FORMAT_IDX ? TN_ARRAY_IDX : TN_ARRAY_CSV;
}

/* The column of a table that holds the label, from 0; negative where labels have a file of their own. */
static tn_status label_column(const tn_preparing *w, const tn_input_file *in, const tn_array_info *about,
                              int64_t *column)
{
    const char *word = tn_settings_text(w->p->settings, "label_col");
    char *end;
    *column = -1;
    if (in->format != TN_FORMAT_CSV || w->part[TN_TRAIN].labels.n) return TN_OK;
    const int64_t fields = (int64_t)about->sample;
    const int64_t n = strcmp(word, "last") == 0 ? fields : strcmp(word, "first") == 0 ? 1 : strtoll(word, &end, 10);
    if (n < 1 || n > fields || fields < 2)
        return tn_error(
            TN_USAGE,
            "label_col=%.32s: %.512s has %lld columns; name one as first, last or 1 to %lld, or give labels=FILE", word,
            in->path, (long long)fields, (long long)fields);
    *column = n - 1;
    return TN_OK;
}

tn_status tn__prepare_arrays_about(tn_preparing *w)
{
    tn_array *a = NULL;
    int64_t column;
    tn_manifest *m = &w->manifest;
    const tn_input_file *in = &w->part[TN_TRAIN].in.v[0];
    const char *wanted = tn_settings_text(w->p->settings, "dtype");
    TN_RETURN_IF(tn_array_open(in->path, array_format(in->format), &a));
    const tn_array_info info = *tn_array_about(a);
    tn_array_close(a);
    TN_RETURN_IF(label_column(w, in, &info, &column));
    m->item = strcmp(wanted, "u8") == 0 || (strcmp(wanted, "auto") == 0 && info.is_u8) ? TN_ITEM_U8 : TN_ITEM_F32;
    m->rank = info.rank;
    memcpy(m->dims, info.dims, sizeof m->dims);
    if (column >= 0) m->dims[0]--;
    return TN_OK;
}

typedef struct samples {
    tn_array *features, *labels; /* labels: NULL where they are a column */
    int64_t column, row;
    size_t n;       /* features in a sample */
    double *values; /* one row of the file */
    void *packed;   /* (n) u8 or f32 */
    const char *path, *label_path;
} samples;

static void samples_close(samples *s)
{
    tn_array_close(s->features);
    tn_array_close(s->labels);
    tn_free(s->values);
    tn_free(s->packed);
}

static bool same_shape(const tn_manifest *m, const tn_array_info *a, int64_t column)
{
    if (a->rank != m->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] - (column >= 0) != m->dims[i]) return false;
    return true;
}

static tn_status samples_open(tn_preparing *w, const tn_prepare_part *part, size_t i, samples *s)
{
    const tn_input_file *in = &part->in.v[i];
    s->path = in->path;
    TN_RETURN_IF(tn_array_open(in->path, array_format(in->format), &s->features));
    const tn_array_info *about = tn_array_about(s->features);
    TN_RETURN_IF(label_column(w, in, about, &s->column));
    if (!same_shape(&w->manifest, about, s->column))
        return tn_error(TN_BAD_FILE, "%.640s has samples of another shape than %.300s; prepare them separately",
                        in->path, w->part[TN_TRAIN].in.v[0].path);
    s->n = about->sample - (s->column >= 0);
    s->values = tn_alloc(about->sample * sizeof *s->values);
    s->packed = tn_alloc(s->n * sizeof(float));
    if (!s->values || !s->packed) return TN_MEMORY;
    if (s->column >= 0) return TN_OK;
    if (i >= part->labels.n)
        return tn_error(TN_USAGE, "%.640s has no labels: name their file with %slabels=FILE", in->path,
                        part->split == TN_VALID  ? "valid_"
                        : part->split == TN_TEST ? "test_"
                                                 : "");
    const tn_input_file *labels = &part->labels.v[i];
    s->label_path = labels->path;
    TN_RETURN_IF(tn_array_open(labels->path, array_format(labels->format), &s->labels));
    if (tn_array_about(s->labels)->sample != 1)
        return tn_error(TN_BAD_FILE, "%.640s has %zu numbers a sample, a label is one; is it the right file?",
                        labels->path, tn_array_about(s->labels)->sample);
    return TN_OK;
}

/* The sample's features as they are stored; *got is false after the last. */
static tn_status next_sample(samples *s, tn_item item, bool *got, double *label)
{
    bool labelled = true;
    TN_RETURN_IF(tn_array_next(s->features, s->values, got));
    if (s->labels) {
        TN_RETURN_IF(tn_array_next(s->labels, label, &labelled));
        if (labelled != *got)
            return tn_error(TN_BAD_FILE,
                            "%.400s and %.400s have different numbers of samples; do they belong together?", s->path,
                            s->label_path);
    }
    if (!*got) return TN_OK;
    s->row++;
    if (s->column >= 0) *label = s->values[s->column];
    size_t k = 0;
    for (size_t i = 0; k < s->n; i++) {
        if ((int64_t)i == s->column) continue;
        const double x = s->values[i];
        if (item == TN_ITEM_U8 && !(x >= 0 && x <= 255 && x == floor(x)))
            return tn_error(TN_BAD_FILE,
                            "%.640s: sample %lld contains %g, which is not an integer of 0..255; use dtype=f32",
                            s->path, (long long)s->row, x);
        if (!isfinite((double)(float)x))
            return tn_error(TN_BAD_FILE, "%.640s: sample %lld contains %g; clean the data first", s->path,
                            (long long)s->row, x);
        if (item == TN_ITEM_U8) ((unsigned char *)s->packed)[k++] = (unsigned char)x;
        else ((float *)s->packed)[k++] = (float)x;
    }
    if (!(*label >= 0 && *label < INT32_MAX / 2 && *label == floor(*label)))
        return tn_error(TN_BAD_FILE, "%.640s: sample %lld has label %g; labels are integers from 0",
                        s->label_path ? s->label_path : s->path, (long long)s->row, *label);
    return TN_OK;
}

static tn_status one_file(tn_preparing *w, const tn_prepare_part *part, size_t i)
{
    tn_status s = TN_OK;
    samples in = { 0 };
    bool got = true;
    double label = 0;
    TN_TRY(samples_open(w, part, i, &in));
    for (;;) {
        TN_TRY(next_sample(&in, w->manifest.item, &got, &label));
        if (!got) break;
        const tn_data_split split = part->fixed ? part->split : tn_splitter_sample(&w->splitter);
        TN_TRY(tn_sink_sample(&w->sink, split, in.packed, (int32_t)label));
        w->written++;
        if (in.row % 512 == 0)
            TN_TRY(tn__prepare_tell(w, "prepare", w->done_bytes + tn_array_consumed(in.features), w->total_bytes));
    }
    w->done_bytes += tn_array_consumed(in.features);
done:
    samples_close(&in);
    return s;
}

tn_status tn__prepare_arrays(tn_preparing *w, const tn_prepare_part *part)
{
    for (size_t i = 0; i < part->in.n; i++) TN_RETURN_IF(one_file(w, part, i));
    return TN_OK;
}
