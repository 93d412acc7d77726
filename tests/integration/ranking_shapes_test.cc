// configs/dlrmv4.toml and dlrmv3.toml train on the worlds made for them, with a small model and few
// rows.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace turbogr {
namespace {

using test::Outcome;
using test::run_program;

const std::string kSmallShape =
    " --train.device=cpu --train.dtype=f32 --train.threads=1 --train.steps=3 --train.epochs=0 "
    "--optim.warmup=0 --model.width=16 --model.heads=1 --model.embedding=8 --model.hidden=8 "
    "--model.head_hidden=8 --model.layers=1 --model.positions=64 --embedding.cut=10000000 "
    "--log.every=1 ";

Outcome train_shape(const std::string& name, const std::string& root, const std::string& more) {
  return run_program("train " + test::source_dir() + "/configs/" + name + ".toml --data.store=" +
                     root + "/store --run.dir=" + root + "/run" + kSmallShape + more);
}

TEST(RankingShapesTrain, Dlrmv4OnListeners) {
  const test::TemporaryFolder folder;
  const std::string root = folder.path().string();
  const Outcome made = run_program(
      "data synth --like yambda --users 40 --items 300 --mean-length 400 --out " + root + "/store");
  ASSERT_EQ(made.status, 0) << made.output;
  EXPECT_NE(made.output.find("with an AUC of 0.80"), std::string::npos) << made.output;
  const Outcome trained =
      train_shape("dlrmv4", root,
                  "--samples.least_history=5 --data.max_length=20 --train.batch=16 "
                  "--eval.every_steps=2 --run.mllog=true");
  ASSERT_EQ(trained.status, 0) << trained.output;
  EXPECT_NE(trained.output.find("cut to 1/10000000 of the 293,051,712 rows"), std::string::npos)
      << trained.output;
  EXPECT_NE(trained.output.find("test after"), std::string::npos) << trained.output;
}

TEST(RankingShapesTrain, Dlrmv3OnRaters) {
  const test::TemporaryFolder folder;
  const std::string root = folder.path().string();
  const Outcome made =
      run_program("data synth --like dlrmv3 --users 4 --items 12800 --out " + root + "/store");
  ASSERT_EQ(made.status, 0) << made.output;
  EXPECT_NE(made.output.find("(GAUC)"), std::string::npos) << made.output;
  const Outcome trained = train_shape("dlrmv3", root, "--data.max_length=50 --train.batch=2");
  ASSERT_EQ(trained.status, 0) << trained.output;
  EXPECT_NE(trained.output.find("predict  liked"), std::string::npos) << trained.output;
  EXPECT_NE(trained.output.find("cut to 1/10000000 of the 1,010,000,130 rows"), std::string::npos)
      << trained.output;

  const Outcome refused =
      run_program("data synth --like dlrmv3 --users 4 --mean-length 5 --out " + root + "/other");
  EXPECT_NE(refused.status, 0);
  EXPECT_NE(refused.output.find("whose users meet about 100"), std::string::npos) << refused.output;
}

}  // namespace
}  // namespace turbogr
