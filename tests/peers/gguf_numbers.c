/* The numbers of GGUF blocks on standard output, for check_gguf.py:
 *   gguf_numbers TYPE          of the blocks on standard input
 *   gguf_numbers FILE NAME     of a tensor of a file */
#include "io/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int put(const tn_gguf_type *t, const unsigned char *src, int64_t n)
{
    float *x = malloc((size_t)n * sizeof *x);
    if (!x) return 1;
    tn_gguf_decode(t, src, 0, n, x);
    const bool bad = fwrite(x, sizeof *x, (size_t)n, stdout) != (size_t)n || fflush(stdout);
    free(x);
    return bad;
}

static int blocks(const char *type)
{
    size_t types, n = 0, got;
    unsigned char *src = malloc(64 << 20);
    const tn_gguf_type *t = tn_gguf_types(&types);
    while (types && strcmp(t->name, type) != 0) t++, types--;
    if (!types || !src) return 2;
    while ((got = fread(src + n, 1, (64 << 20) - n, stdin)) > 0) n += got;
    const int bad = put(t, src, (int64_t)n / t->bytes * t->values);
    free(src);
    return bad;
}

int main(int argc, char **argv)
{
    tn_gguf *f;
    const tn_gguf_tensor *t;
    if (argc == 2) return blocks(argv[1]);
    if (argc != 3) return 2;
    if (tn_gguf_open(argv[1], &f) != TN_OK) {
        fprintf(stderr, "%s\n", tn_error_text());
        return 3;
    }
    if (!(t = tn_gguf_tensor_of(f, argv[2]))) return 2;
    const int bad = put(t->type, t->data, tn_dims_count(t->dims));
    tn_gguf_close(f);
    return bad;
}
