// What a plan is made for: a device and a network, each a small JSON file whose every number says
// where it is from: "measured: <page of bench/results>", "published: <whose figure>" or "derived:
// <from what>".
//
//   const GpuDescription gpu = gpu_description("h200");        // or the path of a file
//   const NetworkDescription network = network_description("ib400x8");
//
// `turbogr bench machine` writes a file that has both, as "gpu" and "network".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace turbogr::plan {

struct Figure {
  double value = 0;
  std::string source;
};

// Of one device; a CPU is described by the same figures.
struct GpuDescription {
  std::string name;
  std::string device = "cuda";  // what train.device would be: cuda or cpu
  Figure peak_tflops;           // what MFU is a share of
  Figure memory_gib;
  Figure product_tflops;         // in products with weights
  Figure loss_tflops;            // in the softmax over shared negatives
  Figure loss_gather_tbs;        // of rows in the softmax over a token's own negatives
  Figure stream_tbs;             // read and written, elementwise
  Figure row_tbs;                // the same of rows: gathered, packed, added up, updated
  Figure hstu_forward_tflops;    // of attention with both biases, growing with pairs of tokens
  Figure hstu_forward_token_ns;  // and with tokens, a layer
  Figure hstu_backward_tflops;
  Figure hstu_backward_token_ns;
  Figure fuxi_forward_tflops;
  Figure fuxi_forward_token_ns;
  Figure fuxi_backward_tflops;
  Figure fuxi_backward_token_ns;
  Figure no_bias_forward;  // time of attention without a bias, as a share
  Figure no_bias_backward;
  Figure update_gparameters;  // dense weights updated a second, in 1e9
  Figure step_gap_ms;         // of a step, in none of the above
  Figure local_gbs;           // to devices of the same machine, a direction
  Figure local_us;
  Figure host_link_gbs;  // to its host's memory, where tables may be
  Figure host_ids_ns;    // of the host, an id of a step
};

struct NetworkDescription {
  std::string name;
  Figure nics;          // of a machine, shared evenly by its ranks
  Figure nic_gbs;       // each, a direction
  Figure net_us;        // latency between devices of two machines
  Figure message_us;    // a message keeps its NIC for so long at least
  Figure host_us;       // latency between two hosts' memories
  Figure host_gbs;      // between the memories of two ranks' hosts on one machine, each pair alone
  Figure host_sum_gbs;  // of a host that adds up what has arrived
  Figure fabric;        // bandwidth between all machines, as a share of what their NICs add up to
};

// A name of a built-in description or the path of a file. Throws on a figure that is missing, not
// known, not above zero or without a source.
GpuDescription gpu_description(const std::string& name_or_path);
NetworkDescription network_description(const std::string& name_or_path);

// Names of the built-in ones.
std::vector<std::string> gpu_names();
std::vector<std::string> network_names();

// Every figure with its key, for tables and files.
struct NamedFigure {
  std::string_view key;
  const Figure* figure;
};
std::vector<NamedFigure> figures_of(const GpuDescription& gpu);
std::vector<NamedFigure> figures_of(const NetworkDescription& network);

// How many figures are of which kind of source.
struct SourceCounts {
  int measured = 0, published = 0, derived = 0;
  std::string text() const;  // "3 measured, 1 published, 5 derived"
};
SourceCounts count_sources(const std::vector<NamedFigure>& figures, SourceCounts counts = {});

}  // namespace turbogr::plan
