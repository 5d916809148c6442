/* For the files of relax that loop over rows of a tile: a row's vectors as a constant number of registers. */
#ifndef TN_OPS_RELAX_WIDTH_H
#define TN_OPS_RELAX_WIDTH_H

/* Calls f(vecs, ...) with the number of vectors of a row as a constant. */
#if defined(__AVX512F__)
#define BY_WIDTH(width, f, ...) f(1, __VA_ARGS__)
#elif defined(__AVX__)
#define BY_WIDTH(width, f, ...)                                                                                        \
    do {                                                                                                               \
        if ((width) == TN_VEC) f(1, __VA_ARGS__);                                                                      \
        else f(2, __VA_ARGS__);                                                                                        \
    } while (0)
#else
#define BY_WIDTH(width, f, ...)                                                                                        \
    do {                                                                                                               \
        if ((width) == TN_VEC) f(1, __VA_ARGS__);                                                                      \
        else if ((width) == 2 * TN_VEC) f(2, __VA_ARGS__);                                                             \
        else if ((width) == 3 * TN_VEC) f(3, __VA_ARGS__);                                                             \
        else f(4, __VA_ARGS__);                                                                                        \
    } while (0)
#endif

#define EACH_VEC(v) TN_UNROLL for (int v = 0; v < vecs; v++)
/* Vector v of row i of an array of the tile. */
#define GET(array, i, v) tn_vec_get((array) + ((i)*vecs + (v)) * TN_VEC)
#define PUT(array, i, v, x) tn_vec_put((array) + ((i)*vecs + (v)) * TN_VEC, x)

#endif
