// Operators on arrays of other libraries, by DLPack: inputs are read and outputs written where they
// lie. The Python files make the outputs, check what has to do with Python and that all arrays of a
// call lie in one place, and on a GPU name the stream the caller works on, a cudaStream_t.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "python/module/bindings.h"
#include "turbogr/core/check.h"
#include "turbogr/core/context.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/dtype.h"
#include "turbogr/core/stream_order.h"
#include "turbogr/core/view.h"
#include "turbogr/ops/attention/fuxi_attention.h"
#include "turbogr/ops/attention/hstu_attention.h"
#include "turbogr/ops/softmax/sampled_softmax.h"

namespace turbogr::python {
namespace {

using In = nb::ndarray<nb::ro>;
using Out = nb::ndarray<>;

// Where a call computes: the CPU, or the GPU its arrays lie on.
struct Place {
  int device_type = nb::device::cpu::value;
  int device_id = 0;

  bool gpu() const { return device_type != nb::device::cpu::value; }
};

Place place_of(const In& array) { return {array.device_type(), array.device_id()}; }

// A GPU's scratch memory is one for all streams of the caller, so calls run on a stream of their
// own.
struct Gpu {
  Context context{ContextOptions{.device = Device::kCuda, .threads = 1}};
  StreamOrder order;
};

// Threads, streams and scratch memory of all calls of this process, one call at a time.
struct Engine {
  std::mutex mutex;
  std::unique_ptr<Context> context;
  std::map<int, std::unique_ptr<Gpu>> gpus;
  int threads = 0;
  pid_t process = ::getpid();

  Gpu& gpu_of(const Place& place) {
    TGR_CHECK(kWithCuda, "this build of turbogr has no CUDA; install the one that has, or give ",
              "arrays in the CPU's memory");
    use_gpu(place.device_id);
    std::unique_ptr<Gpu>& gpu = gpus[place.device_id];
    if (!gpu) gpu = std::make_unique<Gpu>();
    return *gpu;
  }

  // Calls body(context). On a GPU that runs after what the caller's stream has to do, and before
  // what it gets to do.
  template <class Body>
  void call(const Place& place, std::uintptr_t stream, Body&& body) {
    const std::lock_guard turn(mutex);
    if (!place.gpu()) {
      if (!context) context = std::make_unique<Context>(ContextOptions{.threads = threads});
      return body(*context);
    }
    Gpu& gpu = gpu_of(place);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): Python has no pointers
    auto* callers = reinterpret_cast<void*>(stream);
    gpu.order.put_after(gpu.context.stream(), callers);
    try {
      body(gpu.context);
    } catch (...) {  // what it has queued still writes to the caller's arrays
      gpu.order.put_after(callers, gpu.context.stream());
      throw;
    }
    gpu.order.put_after(callers, gpu.context.stream());
  }
};
// A forked process has none of its parent's threads, cannot use its GPU, and may find its mutex
// locked for good: it gets an engine of its own. None is ever destroyed: a thread may be in it when
// the process ends.
Engine& engine() {
  static constinit std::atomic<Engine*> current = nullptr;
  Engine* found = current.load();
  if (found != nullptr && found->process == ::getpid()) return *found;
  auto made = std::make_unique<Engine>();
  if (found != nullptr) made->threads = found->threads;
  if (!current.compare_exchange_strong(found, made.get())) return *found;
  return *made.release();
}

template <class T>
bool has_format(const In& array) {
  const nb::dlpack::dtype type = array.dtype();
  constexpr auto kBfloat = static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bfloat);
  if constexpr (std::is_same_v<T, bf16>)
    return type.code == kBfloat && type.bits == 16;
  else
    return type == nb::dtype<T>();
}

template <class T>
const char* format_name() {
  if constexpr (std::is_same_v<T, bf16>) return "bfloat16";
  if constexpr (std::is_same_v<T, float>) return "float32";
  if constexpr (std::is_same_v<T, double>) return "float64";
  if constexpr (std::is_same_v<T, std::int64_t>) return "int64";
  if constexpr (std::is_same_v<T, std::int32_t>) return "int32";
}

template <class T>
void check_array(const char* name, const In& array, std::size_t dimensions) {
  const int where = array.device_type();
  TGR_CHECK(where == nb::device::cpu::value || (kWithCuda && where == nb::device::cuda::value),
            name, " is neither in the memory of the CPU nor, where this build has CUDA, on a GPU; ",
            "move it with .cpu()");
  TGR_CHECK(array.ndim() == dimensions, name, " has ", array.ndim(),
            " dimensions; wanted: ", dimensions);
  TGR_CHECK(has_format<T>(array), name, " has another number format; wanted: ", format_name<T>());
}

template <class T>
Rows<T> rows_of(const char* name, const In& array) {
  check_array<std::remove_const_t<T>>(name, array, 2);
  const auto rows = static_cast<std::int64_t>(array.shape(0));
  const auto cols = static_cast<std::int64_t>(array.shape(1));
  TGR_CHECK(cols <= 1 || array.stride(1) == 1, name,
            " has columns that are apart; wanted: rows without gaps: make it contiguous");
  const std::int64_t stride = rows > 1 ? array.stride(0) : cols;
  TGR_CHECK(stride >= cols, name, " has rows that overlap (", stride, " apart, ", cols,
            " wide); make it contiguous");
  return {static_cast<T*>(const_cast<void*>(array.data())), rows, cols, stride};
}

template <class T>
View<T, 1> vector_of(const char* name, const In& array) {
  check_array<std::remove_const_t<T>>(name, array, 1);
  TGR_CHECK(array.shape(0) <= 1 || array.stride(0) == 1, name,
            " has gaps between its values; make it contiguous");
  return {static_cast<T*>(const_cast<void*>(array.data())),
          {static_cast<std::int64_t>(array.shape(0))}};
}
template <class T>
View<T, 1> vector_of(const char* name, const std::optional<In>& array) {
  return array ? vector_of<T>(name, *array) : View<T, 1>{};
}
// What is written: an array that Python made, as an input is looked at.
template <class T>
Rows<T> written_rows(const char* name, const Out& array) {
  return rows_of<T>(name, In(array));
}
template <class T>
View<T, 1> written_vector(const char* name, const std::optional<Out>& array) {
  return array ? vector_of<T>(name, In(*array)) : View<T, 1>{};
}

// Calls body<T>() for the format of an array.
template <class Body>
void with_format_of(const char* name, const In& array, Body&& body) {
  if (has_format<float>(array)) return body.template operator()<float>();
  if (has_format<double>(array)) return body.template operator()<double>();
  if (has_format<bf16>(array)) return body.template operator()<bf16>();
  detail::throw_error(name,
                      " has a number format that no operator knows; wanted: float32, float64 ",
                      "or bfloat16");
}

struct Attention {
  bool fuxi = false;
  int heads = 1;
  double alpha = 1;
  double norm_length = 1;
  std::int64_t window = 0;
  std::int64_t max_length = 0;  // on a GPU, where nobody looks at the offsets; 0: not known
  std::optional<In> position, time, key_times, query_times, num_prefix, num_targets;

  template <class T>
  ops::AttentionBias<T> bias() const {
    return {.position = vector_of<const Accum<T>>("position", position),
            .time = vector_of<const Accum<T>>("time", time),
            .key_times = vector_of<const std::int64_t>("key_times", key_times),
            .query_times = vector_of<const std::int64_t>("query_times", query_times)};
  }
  ops::AttentionMask mask() const {
    return {.window = window,
            .num_prefix = vector_of<const std::int64_t>("num_prefix", num_prefix),
            .num_targets = vector_of<const std::int64_t>("num_targets", num_targets)};
  }
  std::int64_t position_length() const {
    return position && position->ndim() == 1
               ? (static_cast<std::int64_t>(position->shape(0)) + 1) / 2
               : 0;
  }
  // No sequence is longer than this; 0: not known.
  std::int64_t longest_of(const Context& ctx, Offsets offsets) const {
    if (ctx.device() == Device::kCuda) return max_length > 0 ? max_length : position_length();
    std::int64_t longest = 0;
    for (std::int64_t b = 0; b + 1 < offsets.shape[0]; ++b) {
      longest = std::max(longest, offsets(b + 1) - offsets(b));
    }
    return longest;
  }
  template <class T>
  void reserve(const Context& ctx, const Jagged<const T>& q, const Rows<const T>& v) const {
    TGR_CHECK(heads >= 1, "heads is ", heads, "; wanted: at least 1");
    const ops::AttentionShape shape = {.device = ctx.device(),
                                       .threads = ctx.threads(),
                                       .tokens = q.tokens(),
                                       .batch = q.batch(),
                                       .max_length = longest_of(ctx, q.offsets),
                                       .heads = heads,
                                       .query_width = q.width() / heads,
                                       .value_width = v.cols / heads,
                                       .tables = position || time,
                                       .masks = window > 0 || num_prefix || num_targets,
                                       .position_length = position_length()};
    ctx.workspace().reserve(fuxi
                                ? std::max(ops::fuxi_attention_workspace_bytes<T>(shape),
                                           ops::fuxi_attention_backward_workspace_bytes<T>(shape))
                                : std::max(ops::hstu_attention_workspace_bytes<T>(shape),
                                           ops::hstu_attention_backward_workspace_bytes<T>(shape)));
  }
};

// That the offsets lead from 0 to the last token and never down: what is computed trusts them.
template <class T>
Jagged<const T> jagged_of(const Rows<const T>& q, const In& offsets) {
  const auto places = vector_of<const std::int64_t>("offsets", offsets);
  TGR_CHECK(places.shape[0] >= 1, "offsets is empty; wanted: one more than there are sequences");
  if (place_of(offsets).gpu()) return {q, places};  // Python has looked, or nobody does
  TGR_CHECK(places(0) == 0, "offsets begin at ", places(0), "; wanted: 0");
  for (std::int64_t b = 0; b + 1 < places.shape[0]; ++b) {
    TGR_CHECK(places(b) <= places(b + 1), "offsets fall from ", places(b), " to ", places(b + 1));
  }
  const std::int64_t last = places(places.shape[0] - 1);
  TGR_CHECK(last == q.rows, "offsets end at ", last, "; q has ", q.rows, " rows");
  return {q, places};
}

void attention(const Attention& a, const In& q, const In& k, const In& v, const In& offsets,
               const Out& out, std::uintptr_t stream) {
  with_format_of("q", q, [&]<class T>() {
    const Jagged<const T> queries = jagged_of<T>(rows_of<const T>("q", q), offsets);
    const auto keys = rows_of<const T>("k", k);
    const auto values = rows_of<const T>("v", v);
    const auto to = written_rows<T>("out", out);
    const ops::AttentionBias<T> bias = a.bias<T>();
    const ops::AttentionMask mask = a.mask();
    const nb::gil_scoped_release release;
    engine().call(place_of(q), stream, [&](const Context& ctx) {
      a.reserve<T>(ctx, queries, values);
      if (a.fuxi) {
        ops::fuxi_attention<T>(ctx, queries, keys, values, bias,
                               {a.heads, a.alpha, a.norm_length, mask}, to);
      } else {
        ops::hstu_attention<T>(
            ctx, queries, keys, values, bias,
            {a.heads, a.alpha, a.norm_length, mask, a.longest_of(ctx, queries.offsets)}, to);
      }
    });
  });
}

void attention_backward(const Attention& a, const In& q, const In& k, const In& v,
                        const In& offsets, const In& dout, const Out& dq, const Out& dk,
                        const Out& dv, const std::optional<Out>& dposition,
                        const std::optional<Out>& dtime, std::uintptr_t stream) {
  with_format_of("q", q, [&]<class T>() {
    const Jagged<const T> queries = jagged_of<T>(rows_of<const T>("q", q), offsets);
    const auto keys = rows_of<const T>("k", k);
    const auto values = rows_of<const T>("v", v);
    const auto from = rows_of<const T>("dout", dout);
    const auto to_q = written_rows<T>("dq", dq);
    const auto to_k = written_rows<T>("dk", dk);
    const auto to_v = written_rows<T>("dv", dv);
    const ops::AttentionBias<T> bias = a.bias<T>();
    const ops::AttentionBiasGradient<T> dbias = {written_vector<Accum<T>>("dposition", dposition),
                                                 written_vector<Accum<T>>("dtime", dtime)};
    const ops::AttentionMask mask = a.mask();
    const nb::gil_scoped_release release;
    engine().call(place_of(q), stream, [&](const Context& ctx) {
      a.reserve<T>(ctx, queries, values);
      if (a.fuxi) {
        ops::fuxi_attention_backward<T>(ctx, queries, keys, values, bias,
                                        {a.heads, a.alpha, a.norm_length, mask}, from, to_q, to_k,
                                        to_v, dbias);
      } else {
        ops::hstu_attention_backward<T>(
            ctx, queries, keys, values, bias,
            {a.heads, a.alpha, a.norm_length, mask, a.longest_of(ctx, queries.offsets)}, from, to_q,
            to_k, to_v, dbias);
      }
    });
  });
}

// Rows of items by number: none may lie outside. On a GPU nobody looks.
void check_numbers(const char* name, const In& array, const std::int32_t* numbers,
                   std::int64_t count, std::int64_t items) {
  if (place_of(array).gpu()) return;
  for (std::int64_t i = 0; i < count; ++i) {
    TGR_CHECK(numbers[i] >= 0 && numbers[i] < items, name, " has the row ", numbers[i],
              " of items, which has ", items, " rows");
  }
}

template <class T>
ops::SampledSoftmaxInputs<T> softmax_inputs(const In& query, const In& items, const In& positive,
                                            const In& negatives,
                                            const std::optional<In>& correction) {
  ops::SampledSoftmaxInputs<T> inputs;
  inputs.query = rows_of<const T>("query", query);
  inputs.items = rows_of<const T>("items", items);
  inputs.positive = vector_of<const std::int32_t>("positive", positive);
  check_numbers("positive", positive, inputs.positive.data, inputs.positive.shape[0],
                inputs.items.rows);
  if (negatives.ndim() == 1) {
    inputs.shared_negatives = vector_of<const std::int32_t>("negatives", negatives);
    check_numbers("negatives", negatives, inputs.shared_negatives.data,
                  inputs.shared_negatives.size(), inputs.items.rows);
  } else {
    const auto own = rows_of<const std::int32_t>("negatives", negatives);
    TGR_CHECK(own.stride == own.cols, "negatives has gaps between its rows; make it contiguous");
    inputs.negatives = {own.data, {own.rows, own.cols}};
    check_numbers("negatives", negatives, own.data, own.rows * own.cols, inputs.items.rows);
  }
  inputs.correction = vector_of<const Accum<T>>("correction", correction);
  return inputs;
}

void reserve_softmax(const Context& ctx, const In& query, const In& items, const In& negatives,
                     const ops::SoftmaxOptions& options) {
  const auto size = [](const In& array, std::size_t axis) {
    return static_cast<std::int64_t>(array.shape(axis));
  };
  ctx.workspace().reserve(
      ops::softmax_workspace_bytes(ctx, size(query, 0), size(items, 0), size(query, 1),
                                   negatives.ndim() == 2 ? size(negatives, 1) : 0, options));
}

void sampled_softmax(const In& query, const In& items, const In& positive, const In& negatives,
                     const std::optional<In>& correction, double temperature, bool normalize,
                     const Out& loss, const Out& log_sum_exp, std::uintptr_t stream) {
  with_format_of("query", query, [&]<class T>() {
    const auto inputs = softmax_inputs<T>(query, items, positive, negatives, correction);
    const ops::SoftmaxOptions options = {.temperature = temperature, .normalize = normalize};
    const ops::SoftmaxOutput<T> output = {written_vector<Accum<T>>("loss", loss),
                                          written_vector<Accum<T>>("log_sum_exp", log_sum_exp)};
    const nb::gil_scoped_release release;
    engine().call(place_of(query), stream, [&](const Context& ctx) {
      reserve_softmax(ctx, query, items, negatives, options);
      ops::sampled_softmax<T>(ctx, inputs, options, output);
    });
  });
}

void sampled_softmax_backward(const In& query, const In& items, const In& positive,
                              const In& negatives, const std::optional<In>& correction,
                              double temperature, bool normalize, const In& log_sum_exp,
                              const In& dloss, const Out& dquery, const Out& ditems,
                              std::uintptr_t stream) {
  with_format_of("query", query, [&]<class T>() {
    const auto inputs = softmax_inputs<T>(query, items, positive, negatives, correction);
    const ops::SoftmaxOptions options = {.temperature = temperature, .normalize = normalize};
    const auto saved = vector_of<const Accum<T>>("log_sum_exp", log_sum_exp);
    const auto weights = vector_of<const Accum<T>>("dloss", dloss);
    const auto to_query = written_rows<T>("dquery", dquery);
    const auto to_items = written_rows<Accum<T>>("ditems", ditems);
    const nb::gil_scoped_release release;
    engine().call(place_of(query), stream, [&](const Context& ctx) {
      reserve_softmax(ctx, query, items, negatives, options);
      ops::sampled_softmax_backward<T>(ctx, inputs, options, saved, weights, to_query, to_items);
    });
  });
}

}  // namespace

void bind_ops(nb::module_& module) {
  nb::class_<Attention>(module, "Attention")
      .def(nb::init<>())
      .def_rw("fuxi", &Attention::fuxi)
      .def_rw("heads", &Attention::heads)
      .def_rw("alpha", &Attention::alpha)
      .def_rw("norm_length", &Attention::norm_length)
      .def_rw("window", &Attention::window)
      .def_rw("max_length", &Attention::max_length)
      .def_rw("position", &Attention::position, nb::arg().none())
      .def_rw("time", &Attention::time, nb::arg().none())
      .def_rw("key_times", &Attention::key_times, nb::arg().none())
      .def_rw("query_times", &Attention::query_times, nb::arg().none())
      .def_rw("num_prefix", &Attention::num_prefix, nb::arg().none())
      .def_rw("num_targets", &Attention::num_targets, nb::arg().none());
  module.def("attention", &attention, nb::arg("options"), nb::arg("q"), nb::arg("k"), nb::arg("v"),
             nb::arg("offsets"), nb::arg("out"), nb::arg("stream"));
  module.def("attention_backward", &attention_backward, nb::arg("options"), nb::arg("q"),
             nb::arg("k"), nb::arg("v"), nb::arg("offsets"), nb::arg("dout"), nb::arg("dq"),
             nb::arg("dk"), nb::arg("dv"), nb::arg("dposition").none(), nb::arg("dtime").none(),
             nb::arg("stream"));
  module.def("sampled_softmax", &sampled_softmax, nb::arg("query"), nb::arg("items"),
             nb::arg("positive"), nb::arg("negatives"), nb::arg("correction").none(),
             nb::arg("temperature"), nb::arg("normalize"), nb::arg("loss"), nb::arg("log_sum_exp"),
             nb::arg("stream"));
  module.def("sampled_softmax_backward", &sampled_softmax_backward, nb::arg("query"),
             nb::arg("items"), nb::arg("positive"), nb::arg("negatives"),
             nb::arg("correction").none(), nb::arg("temperature"), nb::arg("normalize"),
             nb::arg("log_sum_exp"), nb::arg("dloss"), nb::arg("dquery"), nb::arg("ditems"),
             nb::arg("stream"));
  module.attr("with_cuda") = kWithCuda;
  module.def(
      "set_threads",
      [](int threads) {
        Engine& all = engine();
        const std::lock_guard turn(all.mutex);
        all.threads = threads;
        all.context.reset();
      },
      nb::arg("threads"), nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace turbogr::python
