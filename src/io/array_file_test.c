/* Arrays from files: every number type of .npy and IDX, both byte orders, and the ways people write tables. What is refused
 * is in data/hostile_test.c. */
#include "io/array_file.h"

#include "dataset_files.h"

#include <math.h>

/* All numbers of the file into values; its rows. */
static int64_t read_rows(const char *path, tn_array_format f, double *values, size_t *sample)
{
    tn_array *a = NULL;
    int64_t rows = 0;
    bool got = true;
    assert_ok(tn_array_open(path, f, &a));
    *sample = tn_array_about(a)->sample;
    for (;; rows++) {
        assert_ok(tn_array_next(a, values + (size_t)rows * *sample, &got));
        if (!got) break;
    }
    tn_array_close(a);
    return rows;
}

static void put_npy(const char *path, const char *descr, const char *shape, const void *data, size_t bytes)
{
    unsigned char file[512] = "\x93NUMPY\x01\x00";
    const int n =
        snprintf((char *)file + 10, 200, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", descr, shape);
    file[8] = (unsigned char)n;
    memcpy(file + 10 + n, data, bytes);
    tn_put_file(path, file, 10 + (size_t)n + bytes);
}

static void npy_types(void **state)
{
    (void)state;
    tn_tempdir d;
    double x[16];
    size_t sample;
    tn_tempdir_make(&d);
    const char *p = tn_tempdir_file(&d, "a.npy");
#define ROUND(descr, type, ...)                                                                                        \
    do {                                                                                                               \
        const type v[6] = { __VA_ARGS__ };                                                                             \
        put_npy(p, descr, "(2, 3)", v, sizeof v);                                                                      \
        assert_int_equal(read_rows(p, TN_ARRAY_NPY, x, &sample), 2);                                                   \
        assert_int_equal(sample, 3);                                                                                   \
        for (int i = 0; i < 6; i++) assert_true(x[i] == (double)v[i]);                                                 \
    } while (0)
    ROUND("|u1", uint8_t, 0, 1, 2, 200, 254, 255);
    ROUND("|i1", int8_t, -128, -1, 0, 1, 2, 127);
    ROUND("<u2", uint16_t, 0, 1, 2, 3, 4, 65535);
    ROUND("<i2", int16_t, -32768, 1, 2, 3, 4, 32767);
    ROUND("<u4", uint32_t, 0, 1, 2, 3, 4, 4294967295u);
    ROUND("<i4", int32_t, INT32_MIN, 1, 2, 3, 4, INT32_MAX);
    ROUND("<i8", int64_t, -9007199254740991, 1, 2, 3, 4, 5);
    ROUND("<f4", float, -1.5f, 0.1f, 2, 3, 1e30f, 5);
    ROUND("<f8", double, -1.5, 0.1, 2, 3, 1e300, 5);
    put_npy(p, ">i4", "(2,)", "\x00\x00\x01\x00\xff\xff\xff\xff", 8);
    assert_int_equal(read_rows(p, TN_ARRAY_NPY, x, &sample), 2);
    assert_true(sample == 1 && x[0] == 256 && x[1] == -1);
    tn_tempdir_clear(&d);
}

static void idx_types(void **state)
{
    (void)state;
    tn_tempdir d;
    double x[16];
    size_t sample;
    tn_tempdir_make(&d);
    const char *p = tn_tempdir_file(&d, "a-ubyte");
    tn_put_file(p, "\x00\x00\x0d\x02\x00\x00\x00\x01\x00\x00\x00\x02\x3f\x80\x00\x00\xc0\x00\x00\x00", 20);
    assert_int_equal(read_rows(p, TN_ARRAY_IDX, x, &sample), 1);
    assert_true(sample == 2 && x[0] == 1 && x[1] == -2);
    tn_put_file(p, "\x00\x00\x0b\x01\x00\x00\x00\x02\x01\x00\xff\xff", 12);
    assert_int_equal(read_rows(p, TN_ARRAY_IDX, x, &sample), 2);
    assert_true(sample == 1 && x[0] == 256 && x[1] == -1);
    tn_tempdir_clear(&d);
}

static void csv_styles(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t rows;
        size_t sample;
        double last;
    } cases[] = {
        { "1,2\n3,4\n", 2, 2, 4 },
        { "a,b\n3,4", 1, 2, 4 },
        { "nan,b\n3,4", 1, 2, 4 }, /* a word beside it: a heading */
        { "nano,info\n3,4", 1, 2, 4 },
        { "1;2\r\n3; 4 \r\n\r\n", 2, 2, 4 },
        { "1\t-2.5e-3\n", 1, 2, -0.0025 },
        { "\n\n 1 , +2.\n", 1, 2, 2 },
        { "7\n8\n9", 3, 1, 9 },
        { "0,1e-400\n", 1, 2, 0 },
        { "0,.5E2\n", 1, 2, 50 },
        { "1,0.30000000000000000000001\n", 1, 2, 0.3 },
        { "x,12345678901234567890\n1,12345678901234567890\n", 1, 2, 12345678901234567890.0 },
    };
    tn_tempdir d;
    double x[16];
    size_t sample;
    tn_tempdir_make(&d);
    const char *p = tn_tempdir_file(&d, "a.csv");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tn_put_text(p, cases[i].text);
        assert_int_equal(read_rows(p, TN_ARRAY_CSV, x, &sample), cases[i].rows);
        assert_int_equal(sample, cases[i].sample);
        const double got = x[(size_t)cases[i].rows * sample - 1];
        if (fabs(got - cases[i].last) > 1e-14 * fabs(cases[i].last)) fail_msg("%s: %.17g", cases[i].text, got);
    }
    tn_tempdir_clear(&d);
}

void tn_tests_array_file(tn_test_list *l)
{
    tn_test_add(l, npy_types, NULL, "array file: types of .npy");
    tn_test_add(l, idx_types, NULL, "array file: types of IDX");
    tn_test_add(l, csv_styles, NULL, "array file: styles of .csv");
}
