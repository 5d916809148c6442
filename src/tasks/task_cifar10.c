/* CIFAR-10, the binary version: records of a label byte and 3 x 32 x 32 bytes (red, green, blue), in five files for training
 * and one for the test. A file has whole records, as many as it likes; they are counted before memory is taken for them. */
#include "base/alloc.h"
#include "io/stream.h"
#include "tasks/image_files.h"

#include <string.h>

enum { PIXELS = 3 * 32 * 32, RECORD = 1 + PIXELS, CLASSES = 10, FILES = 6, RECORDS_MAX = 1000000, CHUNK = 64 * RECORD };

static const tn_image_files files = { .task = "cifar10",
                                      .needed = "data_batch_1.bin to data_batch_5.bin and test_batch.bin",
                                      .from = "www.cs.toronto.edu/~kriz/cifar.html, the binary version, unpacked" };

/* Hands the records of a file to x (n, PIXELS) and y (n); counts them only where these are NULL. */
static tn_status read_records(const char *path, unsigned char *chunk, uint8_t *x, int32_t *y, int64_t limit, int64_t *n)
{
    tn_status s = TN_OK;
    tn_stream *in = NULL;
    size_t got = CHUNK;
    *n = 0;
    TN_TRY(tn_stream_open(path, &in));
    while (got == CHUNK) {
        TN_TRY(tn_stream_read(in, chunk, CHUNK, &got));
        if (*n + (int64_t)(got / RECORD) > limit)
            TN_FAIL(TN_BAD_FILE, "%.640s contains more than %lld images, too many: download it again from %s", path,
                    (long long)limit, files.from);
        if (got % RECORD != 0)
            TN_FAIL(TN_BAD_FILE,
                    "%.640s is not a file of %d-byte records (%zu bytes are left over): truncated or another format; "
                    "download it again from %s",
                    path, RECORD, got % RECORD, files.from);
        for (size_t i = 0; i < got / RECORD; i++, ++*n) {
            const unsigned char *r = chunk + i * RECORD;
            if (r[0] >= CLASSES)
                TN_FAIL(
                    TN_BAD_FILE,
                    "%.640s: the label of image %lld is %d, the classes are 0..%d; is it the binary version from %s?",
                    path, (long long)*n, r[0], CLASSES - 1, files.from);
            if (!x) continue;
            y[*n] = r[0];
            memcpy(x + *n * PIXELS, r + 1, PIXELS);
        }
    }
    if (*n == 0) TN_FAIL(TN_BAD_FILE, "%.640s is empty; download it again from %s", path, files.from);
done:
    tn_stream_close(in);
    return s;
}

static tn_status find_files(const tn_settings *st, char (*path)[TN_PATH_BYTES])
{
    static const char *const names[FILES][3] = {
        { "cifar-10-batches-bin/data_batch_1.bin", "data_batch_1.bin" },
        { "cifar-10-batches-bin/data_batch_2.bin", "data_batch_2.bin" },
        { "cifar-10-batches-bin/data_batch_3.bin", "data_batch_3.bin" },
        { "cifar-10-batches-bin/data_batch_4.bin", "data_batch_4.bin" },
        { "cifar-10-batches-bin/data_batch_5.bin", "data_batch_5.bin" },
        { "cifar-10-batches-bin/test_batch.bin", "test_batch.bin" },
    };
    for (int i = 0; i < FILES; i++) TN_RETURN_IF(tn__image_find(st, &files, names[i], true, path[i]));
    return TN_OK;
}

static tn_status open_cifar10(const tn_settings *st, tn_samples **out)
{
    tn_status s = TN_OK;
    tn_sample_set *b = NULL;
    char path[FILES][TN_PATH_BYTES];
    int64_t n[FILES], total = 0, again;
    unsigned char *chunk = tn_alloc(CHUNK);
    if (!chunk) return TN_MEMORY;
    TN_TRY(find_files(st, path));
    for (int i = 0; i < FILES; i++) {
        TN_TRY(read_records(path[i], chunk, NULL, NULL, RECORDS_MAX, &n[i]));
        total += n[i];
    }
    const tn_samples shape = {
        .n = total, .tokens = 1, .features = PIXELS, .labels = 1, .classes = CLASSES, .scale = 1.0f / 255
    };
    TN_TRY(tn__samples_new(&shape, true, &b));
    int64_t at = 0;
    for (int i = 0; i < FILES; at += n[i++]) {
        TN_TRY(read_records(path[i], chunk, b->x_u8 + at * PIXELS, b->y + at, n[i], &again));
        if (again != n[i]) TN_FAIL(TN_BAD_FILE, "%.640s changed while it was read; start again", path[i]);
    }
    TN_TRY(tn__split_by_class(st, b, n[FILES - 1]));
    *out = &b->set;
    b = NULL;
done:
    tn_samples_free(b ? &b->set : NULL);
    tn_free(chunk);
    return s;
}

const tn_task tn_task_cifar10 = { .name = "cifar10",
                                  .summary = "ten kinds of photographs, 3 x 32 x 32",
                                  .open = open_cifar10 };
