// What a program says where nothing can be thrown any more: a file that is cut short while it is
// mapped ends it by SIGBUS at the next look, and memory that runs out inside a library's move or
// destructor by std::terminate.
#pragma once

namespace turbogr {

// From here on such an end has status 1 and a line on standard error that says which file it was,
// or that memory has run out. For programs: their host's handlers are not a library's to take.
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
