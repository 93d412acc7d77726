#include "turbogr/train/step_parts.h"

#include <cstddef>
#include <utility>

#include "turbogr/dist/device_communicator.h"

namespace turbogr::train {

std::unique_ptr<dist::Communicator> device_ranks(const Context& stream, dist::Communicator& world,
                                                 const RankOptions& ranks, const char* name) {
  std::unique_ptr<dist::Communicator> hosts = world.split(0, world.rank(), name);
  if (stream.device() == Device::kCpu) return hosts;
  return dist::make_device_communicator(ranks.link, std::move(hosts), stream, ranks.wait);
}

void touch_features(const Context& host, const model::FeatureRows& features,
                    std::span<embedding::TouchedRows> touched) {
  for (std::size_t t = 0; t < touched.size(); ++t) {
    touched[t].clear();
    touched[t].mark(host, features.ids(t));
    touched[t].number(host);
  }
}

void sum_step(const Context& ctx, DenseReducer& dense, dist::Communicator& ranks, Flight& step,
              Rows<const float> row_gradient, std::int64_t losses) {
  StepNumbers& numbers = step.numbers;
  dense.finish();
  if (step.rows_late) {
    ops::squared_sum(ctx, {row_gradient.data, {row_gradient.rows * row_gradient.cols}},
                     numbers.row_squares());
  }
  ranks.all_reduce({numbers.row_squares(), numbers.tables() + losses}, dist::Reduce::kSum);
}

AdamWSettings settings_at(const AdamWSettings& given, const optim::Schedule& schedule,
                          std::int64_t step) {
  AdamWSettings settings = given;
  settings.rate *= schedule.factor(step);
  settings.step = static_cast<double>(step + 1);
  return settings;
}

}  // namespace turbogr::train
