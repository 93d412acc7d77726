#include <fmt/format.h>

#include <algorithm>
#include <bitset>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/data/dlrmv3/dlrmv3_store.h"
#include "turbogr/data/partial_logs.h"
#include "turbogr/data/synth_chunks.h"

namespace turbogr::data {
namespace {

constexpr std::int64_t kPublishedFiles = 100;
constexpr std::size_t kTrainingCandidates = 32;

// Beside the files of users, which come first.
enum Extra : std::size_t { kOffsets, kRequests, kRequestOffsets, kUsersSoFar, kNumExtras };
constexpr const char* kExtraNames[kNumExtras] = {
    "offset.csv", "requests_per_ts.csv", "requests_per_ts_offset.csv", "users_cumsum_per_ts.csv"};

// Readers count users of a file by dividing, so that all files have as many.
std::int64_t num_files_of(const Dlrmv3World& world) {
  return world.num_users() % kPublishedFiles == 0 ? kPublishedFiles : 1;
}

std::vector<std::string> file_names(std::int64_t files) {
  std::vector<std::string> names;
  for (std::int64_t file = 0; file < files; ++file) names.push_back(fmt::format("{}.csv", file));
  names.insert(names.end(), std::begin(kExtraNames), std::end(kExtraNames));
  return names;
}

std::vector<const char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<const char*> pointers;
  pointers.reserve(texts.size());
  for (const std::string& text : texts) pointers.push_back(text.c_str());
  return pointers;
}

// One field of a row, its values joined by commas; a step that was left out has none.
template <class ValueOf>
void append_list(std::string& row, std::size_t count, const ValueOf& value_of) {
  if (!row.empty()) row += ',';
  row += '"';
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) row += ',';
    fmt::format_to(std::back_inserter(row), "{}", value_of(i));
  }
  row += '"';
}

struct Dlrmv3Row {
  Dlrmv3History history;
  std::string text;
  std::bitset<Dlrmv3World::kSteps> active;
  std::vector<std::size_t> joining;  // events of the step at hand
};

// The four fields of events [begin, end): one step of the user.
void append_block(const Dlrmv3History& history, std::size_t begin, std::size_t end,
                  Dlrmv3Row& row) {
  row.joining.clear();
  for (std::size_t i = begin; i < end; ++i) {
    if (history.joins[i] != 0) row.joining.push_back(i);
  }
  const bool judged = begin < end && history.steps[begin] >= Dlrmv3World::kFirstJudged;
  // Events of a step are in random order: the first are any.
  const std::size_t candidates = judged ? end - begin : std::min(end - begin, kTrainingCandidates);
  append_list(row.text, candidates, [&](std::size_t i) { return history.items[begin + i]; });
  append_list(row.text, candidates, [&](std::size_t i) { return history.ratings[begin + i]; });
  append_list(row.text, row.joining.size(),
              [&](std::size_t i) { return history.items[row.joining[i]]; });
  append_list(row.text, row.joining.size(),
              [&](std::size_t i) { return history.ratings[row.joining[i]]; });
}

void write_user(const Dlrmv3World& world, std::int64_t user, Dlrmv3Row& row) {
  world.generate(user, row.history);
  const Dlrmv3History& history = row.history;
  row.text.clear();
  row.active.reset();
  std::size_t at = 0;
  for (std::int32_t step = Dlrmv3World::kBase; step < Dlrmv3World::kSteps; ++step) {
    if (step == Dlrmv3World::kFirstJudged) row.text += R"(,"","","","")";  // the evaluation block
    const std::size_t begin = at;
    while (at < history.steps.size() && history.steps[at] == step) ++at;
    if (step >= 0 && at > begin) row.active.set(static_cast<std::size_t>(step));
    append_block(history, begin, at, row);
  }
  row.text += '\n';
}

}  // namespace

void write_dlrmv3_csv(const Dlrmv3World& world, ThreadPool& pool,
                      const std::filesystem::path& folder, const SynthProgress& progress) {
  const std::int64_t files = num_files_of(world);
  const std::int64_t users_a_file = world.num_users() / files;
  const auto extra = [&](Extra which) { return static_cast<std::size_t>(files) + which; };
  const std::vector<std::string> names = file_names(files);
  PartialLogs logs(folder, pointers_to(names));
  std::vector<std::int64_t> offsets;  // of each user's row in its file
  std::vector<std::bitset<Dlrmv3World::kSteps>> active;
  for_each_synth_user<Dlrmv3Row>(
      world, pool, [&](std::int64_t user, Dlrmv3Row& row) { write_user(world, user, row); },
      [&](std::int64_t user, Dlrmv3Row& row) {
        const auto file = static_cast<std::size_t>(user / users_a_file);
        offsets.push_back(logs.bytes(file));
        active.push_back(row.active);
        logs.append(file, row.text);
        if (progress) progress(world.offset(user + 1));
      });

  std::string line;
  const auto write_line = [&](Extra which, std::size_t count, const auto& value_of) {
    line.clear();
    append_list(line, count, value_of);
    line += '\n';
    logs.append(extra(which), line);
  };
  const auto each = static_cast<std::size_t>(users_a_file);
  for (std::size_t file = 0; file < static_cast<std::size_t>(files); ++file) {
    write_line(kOffsets, each, [&](std::size_t i) { return offsets[file * each + i]; });
  }
  std::vector<std::int64_t> request_offsets, users, so_far;
  for (std::size_t step = 0; step < Dlrmv3World::kSteps; ++step) {
    users.clear();
    so_far.assign(static_cast<std::size_t>(files), 0);
    for (std::size_t user = 0; user < active.size(); ++user) {
      if (active[user].test(step)) users.push_back(static_cast<std::int64_t>(user));
      so_far[user / each] = std::ssize(users);
    }
    request_offsets.push_back(logs.bytes(extra(kRequests)));
    write_line(kRequests, users.size(), [&](std::size_t i) { return users[i]; });
    write_line(kUsersSoFar, so_far.size(), [&](std::size_t i) { return so_far[i]; });
  }
  write_line(kRequestOffsets, request_offsets.size(),
             [&](std::size_t i) { return request_offsets[i]; });
  logs.publish();
}

}  // namespace turbogr::data
