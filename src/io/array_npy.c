/* The header of .npy files, versions 1 to 3: magic, version, length, and a Python dictionary with three keys
 * (numpy.lib.format). A small parser of that text alone; nothing is evaluated. */
#include "io/array_parts.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER_MAX = 4096 };

static tn_status bad_header(const tn_array *a, const char *why)
{
    return tn_error(TN_BAD_FILE, "%.640s: %s; save it again with numpy.save", tn_stream_path(a->stream), why);
}

/* What follows 'key': in the dictionary. */
static const char *value_of(const char *text, const char *key)
{
    char quoted[32];
    const size_t n = strlen(key);
    quoted[0] = '\'';
    memcpy(quoted + 1, key, n);
    memcpy(quoted + 1 + n, "'", 2);
    const char *p = strstr(text, quoted);
    if (!p) return NULL;
    p += n + 2;
    p += strspn(p, " ");
    if (*p != ':') return NULL;
    return p + 1 + strspn(p + 1, " ");
}

static tn_status read_descr(tn_array *a, const char *p)
{
    static const struct {
        const char *name;
        tn_number number;
    } types[] = { { "u1", TN_NUMBER_U8 },  { "b1", TN_NUMBER_U8 },  { "i1", TN_NUMBER_I8 },  { "u2", TN_NUMBER_U16 },
                  { "i2", TN_NUMBER_I16 }, { "u4", TN_NUMBER_U32 }, { "i4", TN_NUMBER_I32 }, { "u8", TN_NUMBER_U64 },
                  { "i8", TN_NUMBER_I64 }, { "f4", TN_NUMBER_F32 }, { "f8", TN_NUMBER_F64 } };
    if (!p || p[0] != '\'' || !strchr("<>|", p[1]) || strlen(p) < 5 || p[4] != '\'')
        return bad_header(a, "its type is not supported: use integers of 8 to 64 bits or floats of 32 or 64 bits");
    a->big_endian = p[1] == '>';
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strncmp(types[i].name, p + 2, 2) == 0) {
            a->number = types[i].number;
            return TN_OK;
        }
    return bad_header(a, "its type is not supported: use integers of 8 to 64 bits or floats of 32 or 64 bits");
}

static tn_status read_shape(tn_array *a, const char *p)
{
    uint64_t dims[TN_ARRAY_RANK_MAX] = { 0 };
    int rank = 0;
    if (!p || *p != '(') return bad_header(a, "its header has no shape");
    for (p++; *p && *p != ')'; p += strspn(p, ", ")) {
        char *end;
        const size_t digits = strspn(p, "0123456789");
        if (digits == 0 || digits > 18 || rank == TN_ARRAY_RANK_MAX)
            return bad_header(a, "its shape is impossible or has more than 8 dimensions");
        dims[rank++] = strtoull(p, &end, 10);
        p = end;
    }
    return *p == ')' ? tn__array_shape(a, rank, dims) : bad_header(a, "its header is cut");
}

tn_status tn__npy_header(tn_array *a)
{
    unsigned char head[12];
    char text[HEADER_MAX + 1];
    TN_RETURN_IF(tn__array_read_exact(a, head, 8, "its header"));
    if (memcmp(head, "\x93NUMPY", 6) != 0) return bad_header(a, "not a .npy file");
    if (head[6] < 1 || head[6] > 3) return bad_header(a, "an unknown version of .npy");
    const size_t wide = head[6] == 1 ? 2 : 4;
    TN_RETURN_IF(tn__array_read_exact(a, head + 8, wide, "its header"));
    size_t n = (size_t)head[8] | (size_t)head[9] << 8;
    if (wide == 4) n |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
    if (n > HEADER_MAX) return bad_header(a, "its header is too long for an array of numbers");
    TN_RETURN_IF(tn__array_read_exact(a, text, n, "its header"));
    text[n] = 0;
    if (strlen(text) != n) return bad_header(a, "its header is damaged");
    const char *order = value_of(text, "fortran_order");
    if (!order || strncmp(order, "False", 5) != 0)
        return bad_header(
            a, "it is stored by columns (fortran_order), rows are needed; numpy.ascontiguousarray gives them");
    TN_RETURN_IF(read_descr(a, value_of(text, "descr")));
    return read_shape(a, value_of(text, "shape"));
}
