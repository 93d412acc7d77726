// Whether the tables of a config can be made here, asked before anything is: a table that is too
// large is said by its name, with what it would take and what there is.
#pragma once

#include <string>
#include <vector>

#include "turbogr/core/device.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/run/config.h"
#include "turbogr/train/step_options.h"

namespace turbogr::run {

struct TablePlace {
  Device memory;
  train::RankOptions ranks;
};

// Of the tables [tables.NAME]. Throws; a dry run, which makes none, only warns where this machine
// has too little memory.
void check_tables(const Config& config, const std::vector<std::string>& names,
                  const std::vector<embedding::TableOptions>& tables, const TablePlace& place);

// What is wrong where `available` bytes are free; empty where all tables fit.
std::string too_large_tables(const std::vector<std::string>& names,
                             const std::vector<embedding::TableOptions>& tables,
                             const TablePlace& place, std::size_t available);

}  // namespace turbogr::run
