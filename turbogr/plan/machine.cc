#include "turbogr/plan/machine.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "turbogr/core/check.h"
#include "turbogr/core/json_text.h"
#include "turbogr/core/output_file.h"
#include "turbogr/plan/built_in_machines.h"

namespace turbogr::plan {
namespace {

template <class Machine>
struct FigureKey {
  std::string_view key;
  Figure Machine::*place;
};

constexpr FigureKey<GpuDescription> kGpuKeys[] = {
    {"peak_tflops", &GpuDescription::peak_tflops},
    {"memory_gib", &GpuDescription::memory_gib},
    {"product_tflops", &GpuDescription::product_tflops},
    {"loss_tflops", &GpuDescription::loss_tflops},
    {"loss_gather_tbs", &GpuDescription::loss_gather_tbs},
    {"stream_tbs", &GpuDescription::stream_tbs},
    {"row_tbs", &GpuDescription::row_tbs},
    {"hstu_forward_tflops", &GpuDescription::hstu_forward_tflops},
    {"hstu_forward_token_ns", &GpuDescription::hstu_forward_token_ns},
    {"hstu_backward_tflops", &GpuDescription::hstu_backward_tflops},
    {"hstu_backward_token_ns", &GpuDescription::hstu_backward_token_ns},
    {"fuxi_forward_tflops", &GpuDescription::fuxi_forward_tflops},
    {"fuxi_forward_token_ns", &GpuDescription::fuxi_forward_token_ns},
    {"fuxi_backward_tflops", &GpuDescription::fuxi_backward_tflops},
    {"fuxi_backward_token_ns", &GpuDescription::fuxi_backward_token_ns},
    {"no_bias_forward", &GpuDescription::no_bias_forward},
    {"no_bias_backward", &GpuDescription::no_bias_backward},
    {"update_gparameters", &GpuDescription::update_gparameters},
    {"step_gap_ms", &GpuDescription::step_gap_ms},
    {"local_gbs", &GpuDescription::local_gbs},
    {"local_us", &GpuDescription::local_us},
    {"host_link_gbs", &GpuDescription::host_link_gbs},
    {"host_ids_ns", &GpuDescription::host_ids_ns},
};

constexpr FigureKey<NetworkDescription> kNetworkKeys[] = {
    {"nics", &NetworkDescription::nics},
    {"nic_gbs", &NetworkDescription::nic_gbs},
    {"net_us", &NetworkDescription::net_us},
    {"message_us", &NetworkDescription::message_us},
    {"host_us", &NetworkDescription::host_us},
    {"host_gbs", &NetworkDescription::host_gbs},
    {"host_sum_gbs", &NetworkDescription::host_sum_gbs},
    {"fabric", &NetworkDescription::fabric},
};

bool says_where_from(const std::string& source) {
  const auto begins = [&](std::string_view word) {
    return source.starts_with(word) && source.size() > word.size() + 1;
  };
  return begins("measured:") || begins("published:") || begins("derived:");
}

template <class Machine, std::size_t count>
std::string known_keys(const FigureKey<Machine> (&keys)[count]) {
  std::string known;
  for (const auto& each : keys) known += (known.empty() ? "" : ", ") + std::string(each.key);
  return known;
}

std::vector<std::string> names_of(std::string_view what) {
  std::vector<std::string> names;
  for (const BuiltInMachine& each : built_in_machines()) {
    if (nlohmann::json::parse(each.text).at("what") == what) names.emplace_back(each.name);
  }
  return names;
}

// The text of a description and what messages call it.
struct DescriptionText {
  std::string text, source;
};

DescriptionText find_description(const std::string& name_or_path, const std::string& what) {
  for (const BuiltInMachine& each : built_in_machines()) {
    if (each.name == name_or_path) return {std::string(each.text), std::string(each.name)};
  }
  const std::vector<std::string> names = names_of(what);
  std::string known;
  for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
  TGR_CHECK(std::filesystem::exists(name_or_path), "no ", what, " is called '", name_or_path,
            "', and there is no such file; use ", known, " or the path of a description");
  return {read_file(name_or_path), name_or_path};
}

constexpr double kMostOfAFigure = 1e12;

template <class Machine, std::size_t count>
Machine parse_machine(const std::string& name_or_path, const std::string& what,
                      const FigureKey<Machine> (&keys)[count]) {
  const auto [text, source] = find_description(name_or_path, what);
  nlohmann::json file = parse_json(text);
  TGR_CHECK(!file.is_discarded(), "'", source,
            "' is not JSON; restore it, or write it anew with `turbogr bench machine`");
  TGR_CHECK(file.is_object() && file.contains("what"), "'", source, "' does not describe a ", what,
            "; its key \"what\" must be \"", what, '"');
  if (file["what"] == "machine") {
    TGR_CHECK(
        file.contains(what) && file[what].is_object(), "'", source, "' has no ", what,
        ": links are measured where `turbogr bench machine` runs under mpirun with several ranks");
    const nlohmann::json part = file[what];
    file = part;
  }
  TGR_CHECK(file.contains("what") && file["what"] == what, "'", source, "' does not describe a ",
            what, "; its key \"what\" must be \"", what, '"');
  Machine machine;
  machine.name = std::filesystem::path(source).stem().string();
  for (const auto& item : file.items()) {
    const std::string& key = item.key();
    const nlohmann::json& value = item.value();
    if (key == "what") continue;
    if constexpr (std::is_same_v<Machine, GpuDescription>) {
      if (key == "device") {
        TGR_CHECK(value == "cuda" || value == "cpu", "'", source, "': 'device' is ", value.dump(),
                  "; wanted \"cuda\" or \"cpu\"");
        machine.device = value.template get<std::string>();
        continue;
      }
    }
    const auto* const known = std::find_if(std::begin(keys), std::end(keys),
                                           [&](const auto& each) { return each.key == key; });
    TGR_CHECK(known != std::end(keys), "'", source, "': unknown key '", key, "'; a ", what, " has ",
              known_keys(keys));
    TGR_CHECK(
        value.is_object() && value.contains("value") && value["value"].is_number() &&
            value["value"].template get<double>() > 0 &&
            value["value"].template get<double>() < kMostOfAFigure && value.contains("source") &&
            value["source"].is_string() &&
            says_where_from(value["source"].template get<std::string>()),
        "'", source, "': '", key, "' is ", value.dump(),
        "; wanted {\"value\": a number above 0 and below 10^12, \"source\": \"measured: ...\", "
        "\"published: ...\" or \"derived: ...\"}");
    machine.*(known->place) = {value["value"].template get<double>(),
                               value["source"].template get<std::string>()};
  }
  for (const auto& each : keys) {
    TGR_CHECK(!(machine.*(each.place)).source.empty(), "'", source, "' has no '", each.key, "'; a ",
              what, " needs ", known_keys(keys));
  }
  return machine;
}

template <class Machine, std::size_t count>
std::vector<NamedFigure> list_figures(const Machine& machine,
                                      const FigureKey<Machine> (&keys)[count]) {
  std::vector<NamedFigure> figures;
  for (const auto& each : keys) figures.push_back({each.key, &(machine.*(each.place))});
  return figures;
}

}  // namespace

GpuDescription gpu_description(const std::string& name_or_path) {
  return parse_machine(name_or_path, "gpu", kGpuKeys);
}

NetworkDescription network_description(const std::string& name_or_path) {
  return parse_machine(name_or_path, "network", kNetworkKeys);
}

std::vector<std::string> gpu_names() { return names_of("gpu"); }
std::vector<std::string> network_names() { return names_of("network"); }

std::vector<NamedFigure> figures_of(const GpuDescription& gpu) {
  return list_figures(gpu, kGpuKeys);
}

std::vector<NamedFigure> figures_of(const NetworkDescription& network) {
  return list_figures(network, kNetworkKeys);
}

std::string SourceCounts::text() const {
  return std::to_string(measured) + " measured, " + std::to_string(published) + " published, " +
         std::to_string(derived) + " derived";
}

SourceCounts count_sources(const std::vector<NamedFigure>& figures, SourceCounts counts) {
  for (const NamedFigure& each : figures) {
    const std::string& source = each.figure->source;
    ++(source.starts_with("measured")    ? counts.measured
       : source.starts_with("published") ? counts.published
                                         : counts.derived);
  }
  return counts;
}

}  // namespace turbogr::plan
