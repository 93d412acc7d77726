// A page as a browser draws it. The browser is the one that TGR_BROWSER names, or a Chromium in the
// path; tests that need one are skipped where there is none.
#pragma once

#include <cstdlib>
#include <string>

#include "tests/support/program.h"

namespace turbogr::test {

// Its command; empty: none.
inline std::string find_browser() {
  if (const char* named = std::getenv("TGR_BROWSER")) return named;
  for (const char* name : {"chromium-headless-shell", "chromium", "google-chrome"}) {
    if (run_command(std::string("command -v ") + name).status == 0) return name;
  }
  return "";
}

// The page's elements after its scripts have run, and what went wrong in them.
inline Outcome draw_page(const std::string& browser, const std::string& path) {
  return run_command("timeout 60 " + browser +
                     " --headless --no-sandbox --disable-gpu --window-size=1280,1000"
                     " --virtual-time-budget=2000 --enable-logging=stderr --dump-dom file://" +
                     path);
}

}  // namespace turbogr::test
