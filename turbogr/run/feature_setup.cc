#include "turbogr/run/feature_setup.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/dtype.h"
#include "turbogr/core/nearest_name.h"

namespace turbogr::run {
namespace {

// Of random_rows, whose numbers beyond two deviations are drawn again.
constexpr double kTruncatedDeviation = 0.8796256610342398;

const TableConfig* find_table(const Config& config, const std::string& name) {
  const auto found = std::find_if(config.tables.begin(), config.tables.end(),
                                  [&](const TableConfig& table) { return table.name == name; });
  return found == config.tables.end() ? nullptr : &*found;
}

std::uint64_t seed_of(std::uint64_t seed, const std::string& name) {
  std::uint64_t hash = 14695981039346656037u ^ seed;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

constexpr std::int64_t kLeastCutRows = 128;

std::int64_t longest_bag(const data::FeatureColumn& column) {
  std::int64_t longest = 1;
  for (std::size_t row = 0; row + 1 < column.offsets.size(); ++row) {
    longest = std::max(longest, column.offsets[row + 1] - column.offsets[row]);
  }
  return longest;
}

// Keys that the kind of feature does not read would be set in vain.
void check_keys_of_kind(const FeatureConfig& feature, const data::SampleFeature& reads,
                        const std::string& where) {
  static const FeatureConfig plain;
  const bool number = !reads.is_cross() && reads.keys[0].is_number();
  const auto check = [&](const char* key, bool set, bool read, const char* reader) {
    TGR_CHECK(!set || read, where, key, " is for ", reader, ", and ",
              reads.is_cross() ? "this is a cross" : "'" + feature.from + "' is none",
              "; leave it out");
  };
  check("pooling", feature.pooling != plain.pooling, reads.is_bag(), "bags");
  check("most", feature.most != plain.most, reads.is_bag(), "bags");
  check("edges", !feature.edges.empty(), number, "numbers");
  check("unit", feature.unit != plain.unit, number, "numbers");
  check("buckets", feature.buckets != plain.buckets, number, "numbers");
  check("number", feature.number != plain.number, number, "numbers");
  const bool rate = !feature.rate.empty();
  TGR_CHECK(!rate || !(reads.keys[0].is_bag() || number), where, "a rate of '", feature.from,
            "', which has not one code a row; name the user, the item or a category");
  TGR_CHECK(rate || (feature.prior == plain.prior && feature.delay == plain.delay), where,
            "prior and delay are for a rate; say rate = \"SIGNAL\", or leave them out");
  const bool scaled = feature.number == "normalised";
  TGR_CHECK(scaled || (feature.mean == plain.mean && feature.sd == plain.sd), where,
            "mean and sd are for number = \"normalised\"; use that, or leave them out");
  TGR_CHECK(feature.sd > 0 || feature.mean == plain.mean, where, "mean = ", feature.mean,
            " without sd; give both, or neither for those of the store");
  TGR_CHECK(!scaled || (feature.edges.empty() && feature.unit == plain.unit &&
                        feature.buckets == plain.buckets),
            where,
            "edges, unit and buckets are for number = \"buckets\", and it is normalised; leave "
            "them out");
  TGR_CHECK(
      feature.edges.empty() || (feature.unit == plain.unit && feature.buckets == plain.buckets),
      where,
      "edges say where buckets begin, unit and buckets make them by powers of two; give one of "
      "the two");
}

}  // namespace

data::SampleFeature sample_feature(const Config& config, const FeatureConfig& feature,
                                   const data::Store& store) {
  const std::string where = "[features." + feature.name + "]: ";
  TGR_CHECK(feature.from.empty() != feature.cross.empty(), where,
            feature.from.empty() ? "it reads nothing; name what, as in from = \"item.genres\", or "
                                   "a cross"
                                 : "both from and cross; give one of them");
  TGR_CHECK(feature.cross.empty() || (feature.cross.size() >= 2 && feature.cross.size() <= 3),
            where, "a cross of ", feature.cross.size(), " sources; give two or three");
  data::SampleFeature reads;
  reads.name = feature.name;
  try {
    if (feature.cross.empty()) reads.keys.push_back(data::parse_source(store, feature.from));
    for (const std::string& key : feature.cross) {
      reads.keys.push_back(data::parse_source(store, key));
      TGR_CHECK(!reads.keys.back().is_bag() && !reads.keys.back().is_number(), "a cross of '", key,
                "', which has not one code a row; leave it out");
    }
  } catch (const Error& error) {
    detail::throw_error(where, error.what());
  }
  check_keys_of_kind(feature, reads, where);
  if (!feature.rate.empty()) reads.scale = data::NumberScale{};
  reads.most_ids = feature.most;
  for (const double edge : feature.edges) reads.buckets.edges.push_back(static_cast<float>(edge));
  if (feature.number == "normalised") {
    reads.scale = feature.sd > 0 ? data::NumberScale{feature.mean, feature.sd}
                                 : data::training_scale(store, reads.keys[0],
                                                        data::Holdout(config.data.holdout),
                                                        config.samples.targets);
  }
  reads.buckets.unit = feature.unit;
  reads.buckets.most = feature.buckets;
  return reads;
}

model::Feature model_feature(const FeatureConfig& feature, const data::SampleFeature& reads,
                             std::size_t table) {
  model::Feature made = {.name = feature.name, .table = table, .least_events = feature.least};
  if (reads.scale) {
    made.pooling = model::Pooling::kSum;
    made.most_ids = data::NumberScale::kMostIds;
  }
  if (!reads.is_bag()) return made;
  made.pooling = feature.pooling == "mean" ? model::Pooling::kMean : model::Pooling::kSum;
  made.most_ids = std::min(feature.most, longest_bag(reads.keys[0].column));
  return made;
}

FeatureTables::FeatureTables(const Config& config, std::int64_t width, std::string width_key,
                             double scale)
    : config_(config), width_(width), width_key_(std::move(width_key)), scale_(scale) {}

std::size_t FeatureTables::add(const FeatureConfig& feature, std::int64_t needed) {
  const std::string& name = feature.table.empty() ? feature.name : feature.table;
  const TableConfig* given = find_table(config_, name);
  const std::int64_t named = given == nullptr ? 0 : given->rows;
  const std::string where = "[features." + feature.name + "]: ";
  check_known(feature, name, given);
  TGR_CHECK(feature.cross.empty() || !feature.rate.empty() || named > 0, where,
            "a cross is hashed into its table; say how large that is, as in [tables.", name,
            "] rows = 100000");
  TGR_CHECK(named == 0 || named >= needed, where, "it has ids up to ", needed - 1, ", and [tables.",
            name, "] has rows = ", named, "; give at least ", needed, ", or 0");
  const auto at = std::find(names_.begin(), names_.end(), name);
  const auto t = static_cast<std::size_t>(at - names_.begin());
  if (at == names_.end()) {
    names_.push_back(name);
    firsts_.push_back(&feature);
    named_rows_.push_back(named);
    rows_.push_back(cut(named));
  }
  check_shared(feature, t);
  std::int64_t& rows = rows_[t];
  rows = std::max(rows, needed);
  return t;
}

std::vector<embedding::TableOptions> FeatureTables::finish() const {
  std::vector<embedding::TableOptions> tables;
  for (const TableConfig& table : config_.tables) {
    const auto& used = names_;
    TGR_CHECK(std::find(used.begin(), used.end(), table.name) != used.end(), "[tables.", table.name,
              "] is read by no feature; ",
              nearest_name(table.name, used).empty()
                  ? "leave it out, or name it in a feature's table"
                  : "did you mean [tables." + nearest_name(table.name, used) + "]?");
    TGR_CHECK(table.width == 0 || table.width == width_, "[tables.", table.name,
              "]: width = ", table.width, ", and ", width_key_, " is ", width_,
              ": rows of all tables are as wide; leave width out, or change ", width_key_);
  }
  for (std::size_t t = 0; t < names_.size(); ++t) {
    const TableConfig* given = find_table(config_, names_[t]);
    const TableConfig table = given == nullptr ? TableConfig{} : *given;
    const std::int64_t rows = rows_[t];
    tables.push_back(
        {.rows = rows,
         .width = width_,
         .optimiser = embedding::sparse_optimiser_from_name(
             table.optimiser.empty() ? config_.embedding.optimiser : table.optimiser),
         .start = start_of(table, rows),
         .seed = seed_of(static_cast<std::uint64_t>(config_.run.seed), names_[t]),
         .dtype = dtype_from_name(table.dtype.empty() ? config_.embedding.dtype : table.dtype)});
  }
  return tables;
}

// A scale for all tables is a deviation; a table's own is what its numbers' bound would be if they
// were uniform, which they are where the config says so.
ops::RowStart FeatureTables::start_of(const TableConfig& table, std::int64_t rows) const {
  const bool own = table.init > 0 || scale_ == 0;
  const double bound = table.init > 0 ? table.init
                       : own          ? 1 / std::sqrt(static_cast<double>(rows))
                                      : scale_;
  if (config_.embedding.start == "uniform") return ops::RowStart::uniform(bound);
  return own ? bound / std::sqrt(3.0) / kTruncatedDeviation : scale_;
}

std::int64_t FeatureTables::cut(std::int64_t named) const {
  const std::int64_t cut = config_.embedding.cut;
  return cut == 1 ? named : std::min(named, std::max(kLeastCutRows, named / cut));
}

// A table that is named but not described is fine; one that looks like another's misspelt name
// is not.
void FeatureTables::check_known(const FeatureConfig& feature, const std::string& name,
                                const TableConfig* given) const {
  if (feature.table.empty() || given != nullptr) return;
  std::vector<std::string> known;
  for (const TableConfig& table : config_.tables) known.push_back(table.name);
  for (const FeatureConfig& other : config_.features) {
    if (other.name == name || (other.table == name && other.name != feature.name)) return;
    known.push_back(other.name);
  }
  const std::string nearest = nearest_name(name, known);
  TGR_CHECK(nearest.empty(), "[features.", feature.name, "]: there is no table '", name,
            "'; the nearest is '", nearest, "'");
}

// Rows of a number that is scaled are a slope, an offset and one for where it is missing: as rows
// of ids they would be those of the first three.
void FeatureTables::check_shared(const FeatureConfig& feature, std::size_t table) const {
  const auto what = [](const FeatureConfig& each) {
    return !each.rate.empty() ? "a rate" : each.number == "normalised" ? "a normalised number" : "";
  };
  const auto is_scaled = [&](const FeatureConfig& each) { return *what(each) != 0; };
  const FeatureConfig& first = *firsts_[table];
  if (is_scaled(first) == is_scaled(feature)) return;
  const FeatureConfig& scaled = is_scaled(first) ? first : feature;
  const FeatureConfig& codes = is_scaled(first) ? feature : first;
  detail::throw_error("[features.", scaled.name, "] is ", what(scaled), " and [features.",
                      codes.name, "] has codes, and both have the table '", names_[table],
                      "': the three rows of ", what(scaled),
                      " are those of no code; give one of the two a table of its own");
}

std::string saved_table_name(const std::string& table) { return "table_" + table; }

}  // namespace turbogr::run
