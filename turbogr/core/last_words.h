// What a program says where nothing can be thrown any more: a file that is cut short while it is
// mapped ends it by SIGBUS at the next look, memory that runs out inside a library's move or
// destructor by std::terminate, and a file larger than `ulimit -f` by SIGXFSZ.
#pragma once

namespace turbogr {

// From here on the first two end with status 1 and a line on standard error that says which file it
// was, or that memory has run out; the third is a write that fails as on a full disk. For programs:
// their host's handlers are not a library's to take.
void leave_last_words();

// For a library at work: while this lives, a host that has no handler of its own ends by SIGBUS as
// it would have, after the line that says which file it was.
class LastWordsOfHost {
 public:
  LastWordsOfHost();
  ~LastWordsOfHost();
  LastWordsOfHost(const LastWordsOfHost&) = delete;
  LastWordsOfHost& operator=(const LastWordsOfHost&) = delete;

 private:
  bool installed_ = false;
};

}  // namespace turbogr
