// The rows of a trained model, weights alone. Several ranks share them as one group, whatever
// groups they were trained by.
#pragma once

#include <memory>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/run/config.h"

namespace turbogr::run {

template <class T>  // float or bf16
std::unique_ptr<embedding::RowSource<T>> serving_rows(const Context& ctx, dist::Communicator& world,
                                                      const Config& config,
                                                      std::vector<embedding::TableOptions> tables);

}  // namespace turbogr::run
