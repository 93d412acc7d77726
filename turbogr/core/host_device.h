// Marks small functions that kernels call too. The compiler decides, no build flag does.
#pragma once

#ifdef __CUDACC__
#define TGR_HD __host__ __device__
#else
#define TGR_HD
#endif
