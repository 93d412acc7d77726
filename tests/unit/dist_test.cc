// Communicators over threads and of one, topologies, and how failures travel.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/device_rank_checks.h"
#include "tests/support/messages.h"
#include "tests/support/rank_checks.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/dist/device_communicator.h"
#include "turbogr/dist/topology.h"

namespace turbogr::dist {
namespace {

using test::message_of;

TEST(Communicator, OfOneDoesEveryCollective) {
  const std::unique_ptr<Communicator> self = make_self();
  test::check_collectives(*self);
  test::check_groups(*self);
}

TEST(Communicator, ThreadsDoEveryCollectiveInEveryGroup) {
  for (const int size : {1, 2, 3, 4, 6, 9, 16, 21}) {
    run_threads(size, [](Communicator& world) {
      test::check_collectives(world);
      test::check_groups(world);
    });
  }
}

TEST(DeviceCommunicator, StagedDoesEveryCollectiveInEveryGroup) {
  for (const int size : {1, 2, 3, 4}) {
    run_threads(size, [](Communicator& world) {
      const Context ctx({.threads = 1});
      const auto staged = make_staged(world.split(0, world.rank(), "staged"), ctx);
      test::check_device_collectives(ctx, *staged);
      test::check_collectives(*staged);  // the device's memory is the host's here
      const auto pairs = staged->split(world.rank() / 2, -world.rank(), "pairs");
      EXPECT_EQ(pairs->name(), "pairs");
      test::check_device_collectives(ctx, *pairs);
    });
  }
}

TEST(DeviceCommunicator, StagedTellsWhatWentWrong) {
  const std::string message = message_of([&] {
    run_threads(2, [&](Communicator& world) {
      const Context ctx({.threads = 1});
      const auto staged = make_staged(world.split(0, world.rank(), "staged"), ctx);
      std::vector<float> values(100000, 1.0f);
      const Pending sums = staged->start_all_reduce(values, Reduce::kSum);
      if (world.rank() == 0) {
        world.abort("out of paper");
        throw Error("out of paper");
      }
      staged->barrier();
      staged->all_reduce(values, Reduce::kSum);
    });
  });
  EXPECT_EQ(message, "rank 0: out of paper");
  run_threads(2, [](Communicator& world) {
    const Context ctx({.threads = 1});
    const auto staged = make_staged(world.split(0, world.rank(), "staged"), ctx);
    std::vector<std::int32_t> ints(2);
    const std::vector<std::int64_t> one_count = {8}, bad = {8, -1};
    EXPECT_NE(message_of([&] { staged->all_reduce(ints, Reduce::kSum); }).find("cannot reduce i32"),
              std::string::npos);
    EXPECT_NE(message_of([&] {
                staged->all_gather(nullptr, {ints.data(), one_count});
              }).find("1 counts for 2 ranks"),
              std::string::npos);
    EXPECT_NE(message_of([&] {
                staged->all_to_all({ints.data(), bad}, {ints.data(), bad});
              }).find("count of -1"),
              std::string::npos);
  });
}

TEST(DeviceCommunicator, RanksTakeGpusInTurnOnEachMachine) {
  run_threads(5,
              [](Communicator& world) {
                const int eight[] = {0, 1, 0, 2, 1};
                const int two[] = {0, 1, 0, 0, 1};
                EXPECT_EQ(gpu_of_rank(world, 8), eight[world.rank()]);
                EXPECT_EQ(gpu_of_rank(world, 2), two[world.rank()]);
                EXPECT_NE(message_of([&] { gpu_of_rank(world, 0); }).find("no usable NVIDIA GPU"),
                          std::string::npos);
              },
              {}, {0, 0, 1, 0, 1});
}

TEST(DeviceCommunicator, TheLinkIsChosenAndCanBeForced) {
  run_threads(2, [](Communicator& world) {
    const LinkChoice shared = choose_link(world, "auto", "gpu-a");
    EXPECT_EQ(shared.link, DeviceLink::kStaged);
    EXPECT_EQ(shared.reason, "ranks share a GPU");
    const std::string own = "gpu-" + std::to_string(world.rank());
    EXPECT_EQ(choose_link(world, "auto", own).link,
              has_nccl() ? DeviceLink::kNccl : DeviceLink::kStaged);
    EXPECT_EQ(choose_link(world, "staged", own).reason, "asked for by dist.link");
    EXPECT_NE(message_of([&] { choose_link(world, "nccl", "gpu-a"); }).find("ranks share one"),
              std::string::npos);
    EXPECT_NE(message_of([&] { choose_link(world, "smoke", own); }).find("unknown link 'smoke'"),
              std::string::npos);
    if (has_nccl()) return;
    EXPECT_NE(choose_link(world, "auto", own).reason.find("NCCL is not on every rank"),
              std::string::npos);
    EXPECT_NE(message_of([&] { choose_link(world, "nccl", own); }).find("dist.link = \"nccl\":"),
              std::string::npos);
    if (built_with_nccl()) return;
    const Context ctx({.threads = 1});
    EXPECT_NE(message_of([&] {
                make_device_communicator(DeviceLink::kNccl, make_self(), ctx);
              }).find("this build has no NCCL"),
              std::string::npos);
  });
}

TEST(Communicator, ARankThatThrowsFreesTheOthersAndIsNamed) {
  std::atomic<int> freed = 0;
  const std::string message = message_of([&] {
    run_threads(4, [&](Communicator& world) {
      if (world.rank() == 2) throw Error("the disk is full");
      try {
        world.barrier();
      } catch (const Error& error) {
        if (std::string(error.what()) == "rank 2: the disk is full") ++freed;
        throw;
      }
    });
  });
  EXPECT_EQ(message, "rank 2: the disk is full");
  EXPECT_EQ(freed, 3);
}

TEST(Communicator, WhatIsUnderWayIsGivenUpWhenARankThrows) {
  // The memory of a pending sum goes with the stack that an exception unwinds.
  const std::string message = message_of([&] {
    run_threads(3, [&](Communicator& world) {
      std::vector<float> values(100000, 1.0f);
      if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      const Pending sums = world.start_all_reduce(values, Reduce::kSum);
      if (world.rank() == 0) throw Error("stop");
      world.barrier();
    });
  });
  EXPECT_EQ(message, "rank 0: stop");
}

TEST(Communicator, TheWatchdogNamesWhoIsMissing) {
  const std::string message = message_of([&] {
    run_threads(4,
                [&](Communicator& world) {
                  world.barrier();
                  if (world.rank() == 1 || world.rank() == 3) {
                    std::this_thread::sleep_for(std::chrono::milliseconds(600));
                  }
                  std::vector<double> values(3, 1.0);
                  world.all_reduce(values, Reduce::kSum);
                },
                {.warn_seconds = 10, .timeout_seconds = 0.2});
  });
  EXPECT_NE(message.find("all_reduce 1 of world has waited 0.2 s for ranks 1 and 3"),
            std::string::npos)
      << message;
}

TEST(Communicator, CountsHowLongItWaitedForEachRank) {
  std::atomic<int> arrived = 0;
  run_threads(3, [&](Communicator& world) {
    world.barrier();
    std::vector<double> before(3), after(3);
    world.add_seconds_waited(before);
    if (world.rank() == 1) {  // comes when the others have begun to wait, and some time after that
      while (arrived < 2) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
    ++arrived;
    std::vector<double> values(3, 1.0);
    world.split(0, world.rank(), "all")->all_reduce(values, Reduce::kSum);
    world.add_seconds_waited(after);
    if (world.rank() == 1) return;
    EXPECT_GT(after[1] - before[1], 0.1);
    EXPECT_EQ(after[static_cast<std::size_t>(world.rank())], 0);
  });
}

TEST(Communicator, DifferentCollectivesAreAnErrorNotAHang) {
  const std::string message = message_of([&] {
    run_threads(2, [&](Communicator& world) {
      std::vector<double> values(world.rank() == 0 ? 3 : 4, 1.0);
      world.all_reduce(values, Reduce::kSum);
    });
  });
  EXPECT_NE(message.find("the ranks are not at the same collective"), std::string::npos) << message;
}

TEST(Communicator, RefusesWhatCannotBe) {
  run_threads(2, [](Communicator& world) {
    std::vector<float> two(2), three(3);
    std::vector<std::int32_t> ints(2);
    const std::vector<std::int64_t> one_count = {8}, bad = {8, -1}, own_differs = {4, 4};
    EXPECT_NE(message_of([&] { world.all_reduce(ints, Reduce::kSum); }).find("cannot reduce i32"),
              std::string::npos);
    EXPECT_NE(message_of([&] {
                world.all_gather(nullptr, {two.data(), one_count});
              }).find("1 counts for 2 ranks"),
              std::string::npos);
    EXPECT_NE(message_of([&] {
                world.all_gather(nullptr, {two.data(), bad});
              }).find("count of -1"),
              std::string::npos);
    const std::vector<std::int64_t> more = {8, 8};
    EXPECT_NE(message_of([&] {
                world.all_to_all({two.data(), more}, {three.data(), own_differs});
              }).find("sends itself 8 bytes and wants 4"),
              std::string::npos);
    EXPECT_NE(message_of([&] { world.broadcast(two.data(), 8, 2); }).find("root 2 of 2"),
              std::string::npos);
  });
  EXPECT_NE(message_of([] { run_threads(0, [](Communicator&) {}); }).find("0 ranks"),
            std::string::npos);
}

TEST(Topology, GroupsAreMachinesWhenTheyAreEqual) {
  const Topology two = make_topology({0, 0, 5, 5}, 0);
  EXPECT_EQ(two.group_size, 2);
  EXPECT_EQ(two.group_of, (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(two.place_of, (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(two.num_groups(), 2);
  // Ranks dealt round the machines still meet on one.
  const Topology dealt = make_topology({0, 1, 0, 1}, 0);
  EXPECT_EQ(dealt.group_of, (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(dealt.place_of, (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(make_topology({0, 0, 0, 1}, 0).group_size, 4);
}

TEST(Topology, SpreadGroupsHaveARankOfEveryMachine) {
  const Topology one = make_topology({0, 0, 5, 5}, 2, /*spread=*/true);
  EXPECT_EQ(one.group_of, (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(one.place_of, (std::vector<int>{0, 0, 1, 1}));
  // Dealt round the machines, and unequal ones.
  EXPECT_EQ(make_topology({0, 1, 0, 1}, 2, true).group_of, (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(make_topology({0, 0, 0, 1}, 2, true).group_of, (std::vector<int>{0, 1, 1, 0}));
}

TEST(Topology, SaysWhyUnequalMachinesAreOneGroup) {
  const std::string remark = uneven_machines({0, 0, 0, 1}, 0);
  EXPECT_NE(remark.find("machines have 1 to 3 ranks"), std::string::npos) << remark;
  EXPECT_NE(remark.find("all 4 ranks are one group"), std::string::npos) << remark;
  EXPECT_NE(remark.find("set dist.group to a divisor of 4"), std::string::npos) << remark;
  EXPECT_EQ(uneven_machines({0, 0, 0, 1}, 2), "");
  EXPECT_EQ(uneven_machines({0, 0, 1, 1}, 0), "");
  EXPECT_EQ(uneven_machines({0}, 0), "");
}

TEST(Topology, AMachineMayBePlayedAsSeveral) {
  EXPECT_EQ(play_nodes({0, 0, 0, 0}, 2), (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(play_nodes({3, 3}, 0), (std::vector<int>{3, 3}));
  EXPECT_NE(message_of([] { play_nodes({0}, -1); }).find("use 0 or more"), std::string::npos);
  EXPECT_NE(message_of([] { make_topology({0, 0, 0}, 2); }).find("groups of 2"), std::string::npos);
}

// What mpirun and srun leave in the environment.
TEST(Launched, ByWhatTheStartersSay) {
  const std::vector<const char*> names = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK",
                                          "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"};
  std::map<std::string, std::string> kept;
  for (const char* name : names) {
    if (const char* value = std::getenv(name)) kept[name] = value;
  }
  const auto launched = [&](const std::map<std::string, std::string>& environment) {
    for (const char* name : names) ::unsetenv(name);
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    return launched_by_mpi();
  };
  EXPECT_FALSE(launched({}));
  EXPECT_TRUE(launched({{"OMPI_COMM_WORLD_SIZE", "1"}}));
  EXPECT_TRUE(launched({{"PMI_SIZE", "2"}}));
  EXPECT_TRUE(launched({{"PMIX_RANK", "0"}}));
  EXPECT_TRUE(launched({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "0"}}));
  EXPECT_FALSE(launched({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}));
  EXPECT_FALSE(launched({{"SLURM_STEP_NUM_TASKS", "2"}}));  // a shell of the allocation
  const auto ranks = [&](const std::map<std::string, std::string>& environment) {
    launched(environment);
    return launched_ranks();
  };
  EXPECT_EQ(ranks({}), 1);
  EXPECT_EQ(ranks({{"OMPI_COMM_WORLD_SIZE", "3"}}), 3);
  EXPECT_EQ(ranks({{"PMI_SIZE", "2"}}), 2);
  EXPECT_EQ(ranks({{"PMIX_RANK", "0"}}), 1);
  EXPECT_EQ(ranks({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "0"}}), 2);
  EXPECT_EQ(ranks({{"SLURM_STEP_NUM_TASKS", "2"}}), 1);
  launched(kept);
}

}  // namespace
}  // namespace turbogr::dist
