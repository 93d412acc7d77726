// A trained model, open for use.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/module/arrays.h"
#include "python/module/bindings.h"
#include "python/module/opened.h"
#include "turbogr/core/check.h"
#include "turbogr/core/log.h"
#include "turbogr/data/store.h"
#include "turbogr/eval/evaluate.h"
#include "turbogr/run/popularity.h"
#include "turbogr/run/recommend_inputs.h"
#include "turbogr/run/seen_rule.h"
#include "turbogr/run/sequences.h"
#include "turbogr/run/trained_model.h"

namespace turbogr::python {
namespace {

using run::HistoryEvent;
using Indices = std::vector<std::int64_t>;
using Texts = std::vector<std::string>;
constexpr std::int64_t kListsAtOnce = 1 << 22;  // entries of all lists of a batch, at most

struct Lists {
  Indices place;  // of the user or history in what was asked
  Indices item;
  std::vector<float> score;
  Indices rank;  // from 1
};

// What a list may hold.
struct Choice {
  std::int64_t k = 10;
  std::optional<Texts> only;
  Texts exclude;
  std::string seen;
  std::string unknown;
  bool untrained = false;
};

class Model : public Opened {
 public:
  Model(const std::string& path, const std::string& store, int threads)
      : Opened(path, store), model_(checkpoint_, store_, threads, *alone_) {}

  Lists recommend(const std::optional<Texts>& users, const Choice& choice) {
    return in_turn([&] {
      return lists_of(run::WholeHistories(store_, users_of(users, choice.unknown), history()),
                      choice);
    });
  }

  // `times` is empty, or has a list for each history.
  Lists recommend_for(const std::vector<Texts>& histories, const std::vector<Indices>& times,
                      const Choice& choice) {
    return in_turn([&] {
      Indices places;
      run::GivenHistories sequences(store_, events_of(histories, times, choice.unknown, places),
                                    history());
      Lists lists = lists_of(sequences, choice);
      for (std::int64_t& place : lists.place) place = places[static_cast<std::size_t>(place)];
      return lists;
    });
  }

  struct Figures {
    std::vector<std::pair<std::string, double>> values;
    std::int64_t users = 0;
    double repeats = 0;
  };
  Figures evaluate(const std::string& split, const Indices& at, const std::string& seen,
                   bool popularity) {
    return in_turn([&] {
      const data::Split which =
          split == "validation" ? data::Split::kValidation : data::Split::kTest;
      const eval::EvaluateOptions options = {
          .cutoffs = at,
          .seen = run::seen_for(checkpoint_, config_, seen),
          .progress = [](std::int64_t) { data::check_interrupt(); }};
      const eval::RankingMetrics metrics = [&] {
        if (!popularity) return model_.evaluate(which, options);
        data::Loader loader(store_,
                            run::eval_loader_options(config_, store_, which, run::kTokensAtOnce));
        return eval::evaluate_popularity(loader, run::item_popularity(config_, store_), options);
      }();
      return Figures{metrics.figures(), metrics.users(), metrics.repeat_share()};
    });
  }

  // [users, D], of length one.
  Tensor user_vectors(const std::optional<Texts>& users, const std::string& unknown) {
    return in_turn([&] {
      return vectors_of(run::WholeHistories(store_, users_of(users, unknown), history()));
    });
  }
  Tensor vectors_for(const std::vector<Texts>& histories, const std::vector<Indices>& times) {
    return in_turn([&] {
      Indices places;
      return vectors_of(
          run::GivenHistories(store_, events_of(histories, times, "error", places), history()));
    });
  }
  Tensor item_vectors() {
    return in_turn([&] {
      Tensor vectors(DType::kF32, {store_.num_items(), config_.model.width});
      model_.item_vectors(0, vectors.view<float, 2>());
      return vectors;
    });
  }

  Indices user_indices(const Texts& users, const std::string& unknown) {
    return users_of(users, unknown);
  }

 private:
  run::HistoryOptions history() const {
    return {.max_length = config_.data.max_length,
            .milliseconds = config_.model.time_unit == "milliseconds",
            .query_time = {}};
  }

  Indices users_of(const std::optional<Texts>& users, const std::string& unknown) const {
    if (users) return indices_of(*users, store_.user_ids(), "user", unknown);
    Indices all(static_cast<std::size_t>(store_.num_users()));
    std::iota(all.begin(), all.end(), std::int64_t{0});
    return all;
  }

  Indices indices_of(const Texts& ids, const data::IdMap& known, const char* what,
                     const std::string& unknown) const {
    return run::indices_of(ids, {store_, known, what, run::unknown_from_name(unknown)});
  }

  // Histories that have an item the store knows; `places` says which they are.
  std::vector<std::vector<HistoryEvent>> events_of(const std::vector<Texts>& histories,
                                                   const std::vector<Indices>& times,
                                                   const std::string& unknown,
                                                   Indices& places) const {
    const bool stop = run::unknown_from_name(unknown) == run::Unknown::kError;
    std::vector<std::vector<HistoryEvent>> all;
    std::int64_t skipped = 0;
    for (std::size_t i = 0; i < histories.size(); ++i) {
      std::vector<HistoryEvent> events;
      for (std::size_t j = 0; j < histories[i].size(); ++j) {
        const auto item = store_.item_ids().find(std::string_view(histories[i][j]));
        TGR_CHECK(item || !stop, "histories[", i, "][", j, "]: no item '", histories[i][j],
                  "' in the store '", store_.folder().string(), "'");
        skipped += item ? 0 : 1;
        if (item) events.push_back({*item, times.empty() ? 0 : times[i][j]});
      }
      if (events.empty()) continue;
      all.push_back(std::move(events));
      places.push_back(static_cast<std::int64_t>(i));
    }
    if (skipped > 0) log::warn("{} items of histories skipped: the store has no such ids", skipped);
    TGR_CHECK(!all.empty(), "none of the ", histories.size(),
              " histories has an item of the store '", store_.folder().string(), "'");
    return all;
  }

  void choose(Indices candidates) {
    if (candidates == candidates_) return;
    model_.set_candidates(candidates);
    candidates_ = std::move(candidates);
  }

  Lists lists_of(const run::Sequences& sequences, const Choice& choice) {
    run::CandidateRule rule;
    if (choice.only)
      rule.only = indices_of(*choice.only, store_.item_ids(), "item", choice.unknown);
    if (!choice.exclude.empty()) {
      rule.without = indices_of(choice.exclude, store_.item_ids(), "item", choice.unknown);
    }
    rule.untrained = choice.untrained;
    Indices candidates = run::candidate_items(checkpoint_, config_, store_, rule);
    const std::int64_t k =
        std::min(choice.k, candidates.empty() ? store_.num_items() : std::ssize(candidates));
    choose(std::move(candidates));
    const eval::SeenItems seen = run::seen_for(checkpoint_, config_, choice.seen);
    Lists lists;
    data::Batch batch;
    for (std::int64_t first = 0; first < sequences.size();) {
      const std::int64_t end = run::batch_end(sequences, first, kListsAtOnce / k);
      sequences.fill(first, end, batch);
      const auto found = model_.recommend(batch, k, seen);
      for (std::size_t i = 0; i < found.size(); ++i) {
        for (std::size_t j = 0; j < found[i].size(); ++j) {
          lists.place.push_back(first + static_cast<std::int64_t>(i));
          lists.item.push_back(found[i][j].item);
          lists.score.push_back(static_cast<float>(found[i][j].score));
          lists.rank.push_back(static_cast<std::int64_t>(j) + 1);
        }
      }
      first = end;
      data::check_interrupt();
    }
    return lists;
  }

  Tensor vectors_of(const run::Sequences& sequences) {
    Tensor all(DType::kF32, {sequences.size(), config_.model.width});
    data::Batch batch;
    for (std::int64_t first = 0; first < sequences.size();) {
      const std::int64_t end = run::batch_end(sequences, first, sequences.size());
      sequences.fill(first, end, batch);
      const Tensor vectors = model_.user_vectors(batch);
      std::memcpy(&all.view<float, 2>()(first, 0), vectors.data(), vectors.bytes());
      first = end;
      data::check_interrupt();
    }
    return all;
  }

  run::TrainedModel model_;
  Indices candidates_;
};

nb::tuple arrays_of(Lists lists) {
  const std::vector<std::size_t> shape = {lists.place.size()};
  return nb::make_tuple(
      array_of(std::move(lists.place), shape), array_of(std::move(lists.item), shape),
      array_of(std::move(lists.score), shape), array_of(std::move(lists.rank), shape));
}

}  // namespace

void bind_model(nb::module_& module) {
  nb::class_<Choice>(module, "Choice")
      .def(nb::init<>())
      .def_rw("k", &Choice::k)
      .def_rw("only", &Choice::only)
      .def_rw("exclude", &Choice::exclude)
      .def_rw("seen", &Choice::seen)
      .def_rw("unknown", &Choice::unknown)
      .def_rw("untrained", &Choice::untrained);
  nb::class_<Model>(module, "Model")
      .def(
          "__init__",
          [](Model* at, const std::string& path, const std::string& store, int threads) {
            const nb::gil_scoped_release release;
            new (at) Model(path, store, threads);
          },
          nb::arg("path"), nb::arg("store"), nb::arg("threads"))
      .def_prop_ro("folder", &Model::folder)
      .def_prop_ro("step", &Model::step)
      .def_prop_ro("store_folder", &Model::store_folder)
      .def_prop_ro("config", &Model::config)
      .def("user_indices", &Model::user_indices, nb::arg("users"), nb::arg("unknown"))
      .def(
          "recommend",
          [](Model& model, const std::optional<Texts>& users, const Choice& choice) {
            return arrays_of(model.recommend(users, choice));
          },
          nb::arg("users").none(), nb::arg("choice"))
      .def(
          "recommend_for",
          [](Model& model, const std::vector<Texts>& histories, const std::vector<Indices>& times,
             const Choice& choice) {
            return arrays_of(model.recommend_for(histories, times, choice));
          },
          nb::arg("histories"), nb::arg("times"), nb::arg("choice"))
      .def(
          "evaluate",
          [](Model& model, const std::string& split, const Indices& at, const std::string& seen,
             bool popularity) {
            const auto figures = model.evaluate(split, at, seen, popularity);
            nb::dict values;
            for (const auto& [name, value] : figures.values) values[name.c_str()] = value;
            values["users"] = figures.users;
            values["repeats"] = figures.repeats;
            return values;
          },
          nb::arg("split"), nb::arg("at"), nb::arg("seen"), nb::arg("popularity"))
      .def(
          "user_vectors",
          [](Model& model, const std::optional<Texts>& users, const std::string& unknown) {
            return array_of(model.user_vectors(users, unknown));
          },
          nb::arg("users").none(), nb::arg("unknown"))
      .def(
          "vectors_for",
          [](Model& model, const std::vector<Texts>& histories, const std::vector<Indices>& times) {
            return array_of(model.vectors_for(histories, times));
          },
          nb::arg("histories"), nb::arg("times"))
      .def("item_vectors", [](Model& model) { return array_of(model.item_vectors()); });
}

}  // namespace turbogr::python
