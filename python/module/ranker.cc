// A trained ranking model, open for use.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/module/arrays.h"
#include "python/module/bindings.h"
#include "python/module/opened.h"
#include "turbogr/run/rank_requests.h"
#include "turbogr/run/trained_model.h"
#include "turbogr/run/trained_ranker.h"

namespace turbogr::python {
namespace {

using run::TrainedRanker;
using Texts = std::vector<std::string>;

// One request: ids as text.
struct Question {
  std::string user;
  Texts items;
  std::optional<std::int64_t> at;
  std::map<std::string, std::string> context;
};

struct Scores {
  std::vector<std::int64_t> place;  // of the request in what was asked
  std::vector<std::int64_t> item;
  std::vector<float> score;  // [rows, tasks]
};

class Ranker : public Opened {
 public:
  Ranker(const std::string& path, const std::string& store, int threads)
      : Opened(path, store),
        threads_(threads),
        judge_(checkpoint_, store_, threads, *alone_, TrainedRanker::Use::kScore) {}

  Texts tasks() const {
    Texts names;
    for (const data::SampleTask& task : judge_.setup().layout.tasks) names.push_back(task.name);
    return names;
  }

  Scores rank(const std::vector<Question>& questions, const std::string& unknown) {
    return in_turn([&] {
      const run::KnownIds known = {store_, store_.item_ids(), "item",
                                   run::unknown_from_name(unknown)};
      Scores scores;
      for (std::size_t i = 0; i < questions.size(); ++i) {
        data::check_interrupt();
        const Question& question = questions[i];
        run::RankRequest request = run::rank_request(
            store_, question.user, run::indices_of(question.items, known), question.at);
        for (const auto& [feature, value] : question.context) {
          run::add_context(store_, feature, value, request);
        }
        const std::vector<float> found = judge_.score({&request.sample, 1});
        scores.place.insert(scores.place.end(), request.sample.items.size(),
                            static_cast<std::int64_t>(i));
        scores.item.insert(scores.item.end(), request.sample.items.begin(),
                           request.sample.items.end());
        scores.score.insert(scores.score.end(), found.begin(), found.end());
      }
      return scores;
    });
  }

  run::Evaluation evaluate(const std::string& split) {
    return in_turn([&] {
      TrainedRanker ranker(checkpoint_, store_, threads_, *alone_, TrainedRanker::Use::kEvaluate);
      return ranker.evaluate(split == "validation" ? data::Split::kValidation : data::Split::kTest);
    });
  }

 private:
  int threads_;
  TrainedRanker judge_;
};

// "retrieval" or "ranking".
std::string task_of(const std::string& path) {
  const nb::gil_scoped_release release;
  const checkpoint::Checkpoint checkpoint = run::open_checkpoint(path);
  return run::parse_config(checkpoint.config(), checkpoint.folder() + "/config.toml").task;
}

}  // namespace

void bind_ranker(nb::module_& module) {
  module.def("task_of", &task_of, nb::arg("path"));
  nb::class_<Question>(module, "Question")
      .def(nb::init<>())
      .def_rw("user", &Question::user)
      .def_rw("items", &Question::items)
      .def_rw("at", &Question::at)
      .def_rw("context", &Question::context);
  nb::class_<Ranker>(module, "Ranker")
      .def(
          "__init__",
          [](Ranker* at, const std::string& path, const std::string& store, int threads) {
            const nb::gil_scoped_release release;
            new (at) Ranker(path, store, threads);
          },
          nb::arg("path"), nb::arg("store"), nb::arg("threads"))
      .def_prop_ro("folder", &Ranker::folder)
      .def_prop_ro("step", &Ranker::step)
      .def_prop_ro("store_folder", &Ranker::store_folder)
      .def_prop_ro("config", &Ranker::config)
      .def_prop_ro("tasks", &Ranker::tasks)
      .def(
          "rank",
          [](Ranker& ranker, const std::vector<Question>& questions, const std::string& unknown) {
            Scores found = ranker.rank(questions, unknown);
            const std::size_t rows = found.item.size();
            return nb::make_tuple(array_of(std::move(found.place), {rows}),
                                  array_of(std::move(found.item), {rows}),
                                  array_of(std::move(found.score), {rows, ranker.tasks().size()}));
          },
          nb::arg("questions"), nb::arg("unknown"))
      .def(
          "evaluate",
          [](Ranker& ranker, const std::string& split) {
            const run::Evaluation found = ranker.evaluate(split);
            nb::dict values;
            for (const auto& [name, value] : found.figures) values[name.c_str()] = value;
            for (const auto& [name, value] : found.counts) values[name.c_str()] = value;
            return values;
          },
          nb::arg("split"));
}

}  // namespace turbogr::python
