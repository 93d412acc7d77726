// What a host backend supplies: messages between ranks that are posted and asked about, never
// waited for. The engine calls one of these at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace turbogr::dist {

class Transport {
 public:
  // A message on its way. Asking is allowed again after it is done.
  class Message {
   public:
    virtual ~Message() = default;
    virtual bool done() = 0;
  };

  // Messages of one tag between two ranks keep their order. Tags are below kTags.
  static constexpr int kTags = 1 << 30;

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::vector<int>& nodes() const = 0;
  virtual std::unique_ptr<Message> send(int to, int tag, const void* data, std::size_t bytes) = 0;
  virtual std::unique_ptr<Message> receive(int from, int tag, void* data, std::size_t bytes) = 0;
  // Why no message will come any more ("rank 2: no such file"); empty while all is well.
  virtual std::string failure() const = 0;
  virtual void abort(const std::string& why) noexcept = 0;
};

}  // namespace turbogr::dist
