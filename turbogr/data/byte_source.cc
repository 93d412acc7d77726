#include "turbogr/data/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "turbogr/core/check.h"
#include "turbogr/core/file.h"
#include "turbogr/data/interrupt.h"

namespace turbogr::data {
namespace {

constexpr std::size_t kCompressedBlock = 1 << 17;

class PlainSource final : public ByteSource {
 public:
  PlainSource(FileHandle file, std::string name, std::shared_ptr<std::int64_t> consumed)
      : file_(std::move(file)), name_(std::move(name)), consumed_(std::move(consumed)) {
    first_.resize(4);
    first_.resize(read_more(first_));
  }

  // The first bytes, still to be read: enough to tell what kind of file it is.
  const std::vector<char>& first() const { return first_; }

  std::size_t read(std::span<char> out) override {
    const std::size_t kept = std::min(out.size(), first_.size() - first_used_);
    if (kept > 0) std::memcpy(out.data(), first_.data() + first_used_, kept);
    first_used_ += kept;
    return kept + read_more(out.subspan(kept));
  }

 private:
  std::size_t read_more(std::span<char> out) {
    std::size_t done = 0;
    while (done < out.size()) {
      const ssize_t count = ::read(file_.get(), out.data() + done, out.size() - done);
      if (count < 0 && errno == EINTR) {
        check_interrupt();
        continue;
      }
      if (count < 0) throw_file_error("read", name_, errno);
      if (count == 0) break;
      done += static_cast<std::size_t>(count);
    }
    *consumed_ += static_cast<std::int64_t>(done);
    return done;
  }

  FileHandle file_;
  std::string name_;
  std::shared_ptr<std::int64_t> consumed_;
  std::vector<char> first_;
  std::size_t first_used_ = 0;
};

class GzipSource final : public ByteSource {
 public:
  GzipSource(std::unique_ptr<ByteSource> packed, std::string name)
      : packed_(std::move(packed)), name_(std::move(name)), block_(kCompressedBlock) {
    constexpr int kGzipOnly = 15 + 16;  // zlib's code for the largest window and a gzip header
    TGR_CHECK(inflateInit2(&stream_, kGzipOnly) == Z_OK, "zlib did not start");
  }
  ~GzipSource() override { inflateEnd(&stream_); }

  std::size_t read(std::span<char> out) override {
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    while (stream_.avail_out > 0) {
      if (stream_.avail_in == 0) {
        stream_.next_in = reinterpret_cast<Bytef*>(block_.data());
        stream_.avail_in = static_cast<uInt>(packed_->read(block_));
        if (stream_.avail_in == 0) {
          TGR_CHECK(between_members_, "'", name_,
                    "' ends in the middle of its gzip data: it is truncated; fetch it again");
          break;
        }
      }
      // A file may be several gzip members end to end.
      if (std::exchange(between_members_, false)) inflateReset(&stream_);
      const int status = inflate(&stream_, Z_NO_FLUSH);
      TGR_CHECK(status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR, "'", name_,
                "' holds damaged gzip data (", stream_.msg != nullptr ? stream_.msg : "no detail",
                "); fetch it again");
      between_members_ = status == Z_STREAM_END;
    }
    return out.size() - stream_.avail_out;
  }

 private:
  std::unique_ptr<ByteSource> packed_;
  std::string name_;
  std::vector<char> block_;
  z_stream stream_ = {};
  bool between_members_ = false;
};

class ZstdSource final : public ByteSource {
 public:
  ZstdSource(std::unique_ptr<ByteSource> packed, std::string name)
      : packed_(std::move(packed)),
        name_(std::move(name)),
        block_(kCompressedBlock),
        stream_(ZSTD_createDStream(), ZSTD_freeDStream) {
    TGR_CHECK(stream_ != nullptr, "zstd did not start");
  }

  std::size_t read(std::span<char> out) override {
    ZSTD_outBuffer to = {out.data(), out.size(), 0};
    while (to.pos < to.size) {
      if (from_.pos == from_.size) {
        from_ = {block_.data(), packed_->read(block_), 0};
        if (from_.size == 0) {
          TGR_CHECK(frame_left_ == 0, "'", name_,
                    "' ends in the middle of its zstd data: it is truncated; fetch it again");
          break;
        }
      }
      frame_left_ = ZSTD_decompressStream(stream_.get(), &to, &from_);
      TGR_CHECK(ZSTD_isError(frame_left_) == 0, "'", name_, "' holds damaged zstd data (",
                ZSTD_getErrorName(frame_left_), "); fetch it again");
    }
    return to.pos;
  }

 private:
  std::unique_ptr<ByteSource> packed_;
  std::string name_;
  std::vector<char> block_;
  std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> stream_;
  ZSTD_inBuffer from_ = {nullptr, 0, 0};
  std::size_t frame_left_ = 0;  // zstd's hint; 0 between frames
};

bool starts_with(const std::vector<char>& bytes, std::initializer_list<unsigned char> magic) {
  return bytes.size() >= magic.size() &&
         std::equal(magic.begin(), magic.end(), bytes.begin(),
                    [](unsigned char a, char b) { return a == static_cast<unsigned char>(b); });
}

}  // namespace

std::size_t MemorySource::read(std::span<char> out) {
  const std::size_t count = std::min(out.size(), bytes_.size());
  if (count > 0) std::memcpy(out.data(), bytes_.data(), count);
  bytes_.remove_prefix(count);
  return count;
}

Input open_input(const std::filesystem::path& path) {
  Input input;
  input.consumed = std::make_shared<std::int64_t>(0);
  FileHandle file;
  if (path == "-") {
    input.name = "standard input";
    file = FileHandle(::dup(STDIN_FILENO));
    if (file.get() < 0) throw_file_error("read", input.name, errno);
  } else {
    input.name = path.string();
    file = FileHandle(path, O_RDONLY);
    struct stat status = {};
    if (::fstat(file.get(), &status) != 0) throw_file_error("read", path, errno);
    TGR_CHECK(!S_ISDIR(status.st_mode), "'", input.name, "' is a folder; name the files in it");
    if (S_ISREG(status.st_mode)) input.size = status.st_size;
  }
  auto plain = std::make_unique<PlainSource>(std::move(file), input.name, input.consumed);
  const bool gzip = starts_with(plain->first(), {0x1f, 0x8b});
  const bool zstd = starts_with(plain->first(), {0x28, 0xb5, 0x2f, 0xfd});
  TGR_CHECK(gzip || plain->first().empty() || path.extension() != ".gz", "'", input.name,
            "' is named .gz but holds no gzip data; rename it or fetch it again");
  TGR_CHECK(zstd || plain->first().empty() || path.extension() != ".zst", "'", input.name,
            "' is named .zst but holds no zstd data; rename it or fetch it again");
  if (gzip) {
    input.bytes = std::make_unique<GzipSource>(std::move(plain), input.name);
  } else if (zstd) {
    input.bytes = std::make_unique<ZstdSource>(std::move(plain), input.name);
  } else {
    input.bytes = std::move(plain);
  }
  return input;
}

}  // namespace turbogr::data
