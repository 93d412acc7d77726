// What products keep of a model's weights beside the weights themselves.
#pragma once

#include <cstddef>

#include "turbogr/core/context.h"
#include "turbogr/model/parameters.h"

namespace turbogr::model {

template <class T>
std::size_t weight_copy_bytes(const Context& ctx, const ParameterSet<T>& parameters);

}  // namespace turbogr::model
