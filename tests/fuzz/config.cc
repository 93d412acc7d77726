// A config: what is taken must be the same after it is written and read again.
#include "turbogr/run/config.h"

#include "tests/fuzz/support.h"
#include "turbogr/run/named_features.h"

// Looks into a store, of which texts have none; without it the model need not be linked.
void turbogr::run::name_features(Config&, const data::Store&) {}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace turbogr;
  fuzz::errors_are_fine([&] {
    const run::Config config = run::parse_config(fuzz::text_of(data, size), "fuzz.toml");
    const std::string text = run::config_text(config);
    run::Config again;
    try {
      again = run::parse_config(text, "again.toml");
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      fuzz::expect(false, "a config that was taken is taken again");
    }
    fuzz::expect(again == config, "a config comes back as it was written");
  });
  return 0;
}
