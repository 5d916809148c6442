/* Between delta.c and its CUDA kernels. For C and CUDA. */
#ifndef TN_OPS_DELTA_CUDA_H
#define TN_OPS_DELTA_CUDA_H

#include <tenon/op.h>

enum { TN_DELTA_MOST = 128 }; /* rows and columns of a state */

#endif
