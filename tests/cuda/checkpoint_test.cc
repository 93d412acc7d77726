// Checkpoints of tensors that are on the GPU.
#include "turbogr/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "tests/support/data.h"
#include "tests/support/on_device.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/checkpoint/checkpoint_writer.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/output_file.h"

namespace turbogr {
namespace {

TEST(CudaCheckpoint, HoldsWhatTheTensorsWereWhenItWasSaved) {
  TGR_SKIP_WITHOUT_GPU();
  const Context ctx({.device = Device::kCuda});
  Tensor host = test::random_tensor<float>({3'000'001}, 1);
  Tensor small = test::random_tensor<float>({7}, 2);
  const test::TemporaryFolder folder;
  const auto path = [&](std::int64_t step) {
    return (folder / "saved").string() + "/" + checkpoint::checkpoint_name(step) +
           "/model.safetensors";
  };
  for (const bool background : {true, false}) {
    Tensor device(DType::kF32, host.shape(), Device::kCuda);
    copy_tensor(ctx, device, host);
    checkpoint::CheckpointWriter writer(folder / "saved",
                                        {.background = background, .device = &ctx});
    const auto contents = [&](std::int64_t step, Tensor& tensor) {
      return checkpoint::CheckpointContents{
          .step = step, .shards = {{"model", {named("w", tensor), named("s", small)}}}};
    };
    writer.save(contents(1, device));
    zero_bytes(ctx, device.data(), device.bytes());
    writer.wait();
    writer.save(contents(2, host));
    writer.wait();
    EXPECT_EQ(read_file(path(1)), read_file(path(2))) << background;
  }
}

}  // namespace
}  // namespace turbogr
