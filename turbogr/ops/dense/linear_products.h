// The products of a linear layer on the CPU: oneDNN's, or plain loops in a build without it.
#pragma once

#if TGR_WITH_ONEDNN
#include "turbogr/ops/dense/linear_dnnl.h"
#else
#include "turbogr/ops/dense/linear_plain.h"
#endif
