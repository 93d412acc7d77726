// Yambda's published files as prepare reads any log: multi_event (Parquet or delimited text, a row
// an event or a row a user), whose type of event and share played become signals, or one of
// listens, likes, dislikes, unlikes and undislikes; and the mappings from items to artists and
// albums, which become item tables.
#pragma once

#include <string>
#include <vector>

#include "turbogr/data/prepare.h"

namespace turbogr::data {

// The same work in options that speak of no data set. Inputs are files, or folders that hold
// multi_event or one of the others; the mappings lie beside the first of them or up to two folders
// above it. What is asked for by name stays as it is.
PrepareOptions yambda_options(PrepareOptions options, std::vector<std::string>& remarks);

}  // namespace turbogr::data
