// A process that saves without pause is killed at random moments; what it leaves must always hold
// a whole checkpoint, never older than one already seen.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/support/temporary_folder.h"
#include "turbogr/checkpoint/checkpoint.h"
#include "turbogr/checkpoint/checkpoint_writer.h"
#include "turbogr/checkpoint/shared_checkpoint.h"
#include "turbogr/core/philox.h"
#include "turbogr/core/tensor.h"

namespace turbogr {
namespace {

// Every element holds the step, so a mixture of two saves shows. Ends by being killed.
[[noreturn]] void save_forever(const std::string& folder) {
  Tensor w(DType::kF32, {256, 64});
  Tensor m(DType::kF32, {256, 64});
  std::int64_t step = checkpoint::list_checkpoints(folder).empty()
                          ? 0
                          : checkpoint::open_newest_checkpoint(folder, false).step();
  checkpoint::CheckpointWriter writer(folder, {.keep_last = 2, .keep_best = 1});
  while (true) {
    ++step;
    for (std::int64_t i = 0; i < w.size(); ++i) {
      w.view<float, 2>().data[i] = static_cast<float>(step);
      m.view<float, 2>().data[i] = static_cast<float>(-step);
    }
    writer.save({.step = step,
                 .shards = {{"model", {named("w", w)}}, {"optim", {named("m", m)}}},
                 .state = {{"step", step}},
                 .config = "",
                 .score = static_cast<double>(step % 7)});
  }
}

std::int64_t newest_step(const std::string& folder) {
  const std::vector<std::string> paths = checkpoint::list_checkpoints(folder);
  if (paths.empty()) return 0;
  return *checkpoint::checkpoint_step(std::filesystem::path(paths[0]).filename().string());
}

TEST(CheckpointKill, AWholeCheckpointSurvivesThirtyKills) {
  const test::TemporaryFolder folder;
  PhiloxStream random(11);
  std::int64_t seen = 0;
  for (int round = 0; round < 30; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        save_forever(folder.path());
      } catch (const std::exception& error) {
        std::fprintf(stderr, "child: %s\n", error.what());
      }
      _exit(1);
    }
    if (round % 3 == 0) {  // on a busy machine the rest may all be killed before their first save
      while (newest_step(folder.path()) <= seen) {
        ASSERT_EQ(waitpid(child, nullptr, WNOHANG), 0) << "the child ended by itself";
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(60'000)));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";

    const checkpoint::Checkpoint saved = checkpoint::open_newest_checkpoint(folder.path(), false);
    for (const std::string& path : checkpoint::list_checkpoints(folder.path()))
      checkpoint::Checkpoint(path).verify();
    EXPECT_GE(saved.step(), seen);
    seen = saved.step();
    EXPECT_EQ(saved.state().at("step"), seen);
    const View<const float, 2> w = saved.view<float, 2>("w");
    const View<const float, 2> m = saved.view<float, 2>("m");
    for (std::int64_t i = 0; i < w.size(); ++i) {
      ASSERT_EQ(w.data[i], static_cast<float>(seen));
      ASSERT_EQ(m.data[i], static_cast<float>(-seen));
    }
  }
  EXPECT_GE(seen, 10);
}

}  // namespace
}  // namespace turbogr
