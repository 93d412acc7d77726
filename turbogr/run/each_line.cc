#include "turbogr/run/each_line.h"

#include <filesystem>
#include <vector>

#include "turbogr/core/check.h"
#include "turbogr/data/byte_source.h"
#include "turbogr/data/interrupt.h"

namespace turbogr::run {

void for_each_line(const std::string& path, LineLimits limits, const std::string& wanted,
                   const std::function<void(std::string_view, std::int64_t)>& take) {
  TGR_CHECK(std::filesystem::exists(path) && !std::filesystem::is_directory(path), "cannot read '",
            path, "'; give a file with ", wanted);
  const data::Input input = data::open_input(path);
  std::string waiting;
  std::int64_t number = 0;
  const auto take_line = [&](std::string_view line) {
    if (++number == 1 && line.starts_with("\xef\xbb\xbf"))
      line.remove_prefix(3);  // byte-order mark
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) take(line, number);
  };
  std::vector<char> block(1 << 16);
  std::size_t total = 0, count = 0;
  do {
    count = input.bytes->read(block);
    data::check_interrupt();
    total += count;
    TGR_CHECK(total <= limits.largest, "'", path, "' goes on for more than ", limits.largest >> 20,
              " MB; give a file with ", wanted);
    std::string_view rest(block.data(), count);
    for (std::size_t end; (end = rest.find('\n')) != std::string_view::npos;) {
      waiting.append(rest.substr(0, end));
      take_line(waiting);
      waiting.clear();
      rest.remove_prefix(end + 1);
    }
    waiting.append(rest);
    TGR_CHECK(waiting.size() < limits.longest, "'", path, "', line ", number + 1, ": more than ",
              limits.longest >> 10, " kB without a line's end; give a file with ", wanted);
  } while (count == block.size());
  if (!waiting.empty()) take_line(waiting);
}

}  // namespace turbogr::run
