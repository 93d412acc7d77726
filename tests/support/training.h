// Short training runs of the real program on a small synthetic world, each in a folder of its own.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace turbogr::test {

inline std::string contents_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Of every tensor file of a checkpoint, in the order of their names.
inline std::string tensors_of(const std::string& checkpoint) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::string all;
  for (const std::filesystem::path& file : files) all += contents_of(file.string());
  return all;
}

class Training : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string root_ = folder_.path().string();
  std::string store_ = root_ + "/store";

  void SetUp() override {
    const Outcome made = run_program(
        "data synth --like kuairand27k --users 60 --items 80 --mean-length 30 "
        "--max-length 60 --seed 3 --threads 1 --out " +
        store_);
    ASSERT_EQ(made.status, 0) << made.output;
  }

  std::string arguments(const std::string& run, const std::string& more) const {
    return "train " + source_dir() + "/configs/demo.toml --data.store=" + store_ +
           " --run.dir=" + root_ + "/" + run +
           " --data.max_length=24 --model.width=16 --model.heads=2 --model.dq=8 --model.dv=8"
           " --train.tokens=200 --train.threads=2 --negatives.count=8 --log.every=5"
           " --log.progress=lines --train.peak_tflops=1 --eval.every=0"
           " --checkpoint.every_epochs=0 --optim.warmup=2 " +
           more;
  }
  Outcome train(const std::string& run, const std::string& more) const {
    return run_program(arguments(run, more));
  }

  // As a run leaves it that was killed before its first checkpoint.
  void forget_checkpoints(const std::string& run) const {
    const std::string checkpoints = root_ + "/" + run + "/checkpoints";
    std::filesystem::remove_all(checkpoints);
    std::filesystem::create_directory(checkpoints);
    write_file(checkpoints + "/none_yet", "");
  }

  std::string model_bytes(const std::string& run) {
    const std::string checkpoints = root_ + "/" + run + "/checkpoints/";
    std::string latest = contents_of(checkpoints + "latest");
    while (!latest.empty() && latest.back() == '\n') latest.pop_back();
    return tensors_of(checkpoints + latest);
  }
};

}  // namespace turbogr::test
