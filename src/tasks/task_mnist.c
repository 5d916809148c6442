/* MNIST from its four IDX files: 28 x 28 pixels of 0..255, kept as bytes. The 10,000 of t10k are the test; validation is
 * taken out of the 60,000. Sets of the same form (fashion) are read as well, whatever their number of samples. */
#include "io/array_file.h"
#include "tasks/image_files.h"

enum { SIDE = 28, DIGITS = 10, IMAGES_MAX = 10000000 };

static const tn_image_files files = {
    .task = "mnist",
    .needed = "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte",
    .from = "storage.googleapis.com/cvdf-datasets/mnist; `tenon data get fashion-mnist`: clothing in the same form"
};

/* One of the two parts, opened: images and labels that fit each other. */
typedef struct part {
    char images_path[TN_PATH_BYTES], labels_path[TN_PATH_BYTES];
    tn_array *images, *labels;
    int64_t n;
} part;

static tn_status check_headers(part *p)
{
    const tn_array_info *x = tn_array_about(p->images), *y = tn_array_about(p->labels);
    if (!x->is_u8 || x->rank != 2 || x->dims[0] != SIDE || x->dims[1] != SIDE)
        return tn_error(TN_BAD_FILE, "%.640s does not contain images of %d x %d bytes; is it the right file?",
                        p->images_path, SIDE, SIDE);
    if (!y->is_u8 || y->rank != 0)
        return tn_error(TN_BAD_FILE, "%.640s does not contain a byte per label; is it the right file?", p->labels_path);
    if (x->rows != y->rows || x->rows < 1 || x->rows > IMAGES_MAX)
        return tn_error(
            TN_BAD_FILE,
            "%.640s has %lld images and %.640s %lld labels; they do not belong together, download both again",
            p->images_path, (long long)x->rows, p->labels_path, (long long)y->rows);
    p->n = x->rows;
    TN_RETURN_IF(tn__image_can_hold(p->labels_path, (uint64_t)p->n));
    return tn__image_can_hold(p->images_path, (uint64_t)p->n * SIDE * SIDE);
}

static tn_status open_part(const tn_settings *st, const char *const *images, const char *const *labels, part *p)
{
    TN_RETURN_IF(tn__image_find(st, &files, images, true, p->images_path));
    TN_RETURN_IF(tn__image_find(st, &files, labels, true, p->labels_path));
    TN_RETURN_IF(tn_array_open(p->images_path, TN_ARRAY_IDX, &p->images));
    TN_RETURN_IF(tn_array_open(p->labels_path, TN_ARRAY_IDX, &p->labels));
    return check_headers(p);
}

/* Into x (n, SIDE, SIDE) and y (n); reads to the end of both, so that what follows the last sample is noticed. */
static tn_status read_part(part *p, uint8_t *x, int32_t *y)
{
    bool got;
    uint8_t label, none[SIDE * SIDE];
    for (int64_t i = 0; i <= p->n; i++) {
        TN_RETURN_IF(tn_array_next_u8(p->images, i < p->n ? x + i * SIDE * SIDE : none, &got));
        TN_RETURN_IF(tn_array_next_u8(p->labels, &label, &got));
        if (!got) break;
        if (label >= DIGITS)
            return tn_error(TN_BAD_FILE, "%.640s: label %lld is %d, the classes are 0..%d; download the file again",
                            p->labels_path, (long long)i, label, DIGITS - 1);
        y[i] = label;
    }
    return TN_OK;
}

static tn_status open_mnist(const tn_settings *st, tn_samples **out)
{
    static const char *const names[2][2][3] = {
        { { "train-images.idx3-ubyte", "train-images-idx3-ubyte", NULL },
          { "train-labels.idx1-ubyte", "train-labels-idx1-ubyte", NULL } },
        { { "t10k-images.idx3-ubyte", "t10k-images-idx3-ubyte", NULL },
          { "t10k-labels.idx1-ubyte", "t10k-labels-idx1-ubyte", NULL } },
    };
    tn_status s = TN_OK;
    part p[2] = { { .n = 0 }, { .n = 0 } };
    tn_sample_set *b = NULL;
    for (int k = 0; k < 2; k++) TN_TRY(open_part(st, names[k][0], names[k][1], &p[k]));
    const tn_samples shape = { .n = p[0].n + p[1].n,
                               .tokens = 1,
                               .features = SIDE * SIDE,
                               .labels = 1,
                               .classes = DIGITS,
                               .scale = 1.0f / 255,
                               .width = SIDE,
                               .height = SIDE };
    TN_TRY(tn__samples_new(&shape, true, &b));
    TN_TRY(read_part(&p[0], b->x_u8, b->y));
    TN_TRY(read_part(&p[1], b->x_u8 + p[0].n * SIDE * SIDE, b->y + p[0].n));
    TN_TRY(tn__split_by_class(st, b, p[1].n));
    *out = &b->set;
    b = NULL;
done:
    tn_samples_free(b ? &b->set : NULL);
    for (int k = 0; k < 2; k++) {
        tn_array_close(p[k].images);
        tn_array_close(p[k].labels);
    }
    return s;
}

const tn_task tn_task_mnist = { .name = "mnist",
                                .summary = "handwritten digits of 28 x 28 pixels",
                                .open = open_mnist };
