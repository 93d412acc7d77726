// TensorBoard's files, written by hand: TFRecord frames round protocol-buffer messages of a few
// fields (tensorflow/core/util/event.proto and framework/summary.proto give the numbers).
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "turbogr/core/check.h"
#include "turbogr/core/crc32c.h"
#include "turbogr/core/output_file.h"
#include "turbogr/run/metrics.h"

namespace turbogr::run {
namespace {

// Wire types of protocol buffers.
enum Wire : unsigned { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <class T>
void put_raw(std::string& out, T value) {  // little-endian, as this machine is (safetensors.cc)
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  out += static_cast<char>(value);
}

void put_key(std::string& out, unsigned field, Wire wire) {
  put_varint(out, (field << 3) | static_cast<unsigned>(wire));
}

void put_bytes(std::string& out, unsigned field, const std::string& bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

// Event: wall_time = 1, step = 2; the caller adds what happened.
std::string event_at(std::int64_t step) {
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::string event;
  put_key(event, 1, kFixed64);
  put_raw(event, now);
  put_key(event, 2, kVarint);
  put_varint(event, static_cast<std::uint64_t>(step));
  return event;
}

// The frame's checksums are masked because a sum over data that holds sums is weak.
std::uint32_t masked_sum(const void* data, std::size_t bytes) {
  return std::rotr(crc32c(0, data, bytes), 15) + 0xa282ead8u;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "host";
}

}  // namespace

TensorBoardEvents::TensorBoardEvents(const std::string& folder,
                                     std::optional<std::int64_t> resume_step) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  TGR_CHECK(!error, "cannot make the folder '", folder, "': ", error.message());
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(
                           std::chrono::system_clock::now().time_since_epoch())
                           .count();
  // TensorBoard reads the files of a folder in the order of their names.
  for (int turn = 0; descriptor_ < 0; ++turn) {
    path_ = fmt::format("{}/events.out.tfevents.{:010}.{}.{}.{}", folder, seconds, host_name(),
                        ::getpid(), turn);
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    TGR_CHECK(descriptor_ >= 0 || errno == EEXIST, "cannot create '", path_,
              "': ", std::strerror(errno));
  }
  std::string first = event_at(0);
  put_bytes(first, 3, "brain.Event:2");  // file_version
  append(first);
  if (resume_step.has_value()) {
    std::string restart = event_at(*resume_step + 1);
    std::string session;
    put_key(session, 1, kVarint);
    put_varint(session, 1);  // SessionLog.START: later steps of earlier files are orphans
    put_bytes(restart, 7, session);
    append(restart);
  }
}

TensorBoardEvents::~TensorBoardEvents() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void TensorBoardEvents::write(const MetricRecord& record) {
  std::string summary;
  const std::string prefix = record.split.empty() ? "train" : record.split;
  for (const auto& [name, number] : record.values) {
    std::string value;
    put_bytes(value, 1, fmt::format("{}/{}", prefix, name));  // tag
    put_key(value, 2, kFixed32);                              // simple_value
    put_raw(value, static_cast<float>(number));
    put_bytes(summary, 1, value);
  }
  std::string event = event_at(record.step);
  put_bytes(event, 5, summary);
  append(event);
}

void TensorBoardEvents::append(const std::string& event) {
  std::string frame;
  put_raw(frame, static_cast<std::uint64_t>(event.size()));
  put_raw(frame, masked_sum(frame.data(), frame.size()));
  frame += event;
  put_raw(frame, masked_sum(event.data(), event.size()));
  write_all(descriptor_, std::as_bytes(std::span(frame)), path_);
}

}  // namespace turbogr::run
