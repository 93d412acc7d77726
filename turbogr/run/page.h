// What pages of figures share: their look, and a script that draws charts as SVG, so that they
// follow the window's width and answer the mouse. A page holds its figures as JSON; nothing is
// fetched.
#pragma once

#include <string>
#include <string_view>

namespace turbogr::run {

// `figures`: JSON, the script's `data`. `script` runs after the shared one (page.cc), whose
// chart(), make(), draw() and show_tiles() it calls; what is to be drawn anew when the window
// changes it adds to `redraws`. The page has elements with the ids name, made, tiles and charts.
std::string page_of(std::string figures, std::string_view script);

}  // namespace turbogr::run
