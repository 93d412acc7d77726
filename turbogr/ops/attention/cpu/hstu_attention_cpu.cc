#include "turbogr/ops/attention/cpu/attention_cpu.h"
#include "turbogr/ops/attention/cpu/attention_reference.h"

namespace turbogr::ops::kernels {
namespace {

void clear(Rows<double> matrix) {
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    for (std::int64_t c = 0; c < matrix.cols; ++c) matrix(r, c) = 0;
  }
}

}  // namespace

template <>
void hstu_attention<double>(Cpu, const AttentionProblem<double>& problem, Rows<double> out) {
  clear(out);
  hstu_attention_reference(problem, out);
}

template <>
bool hstu_attention_backward<double>(Cpu, const AttentionProblem<double>& problem,
                                     Rows<const double> dout,
                                     const AttentionGradients<double>& gradients) {
  clear(gradients.dq);
  clear(gradients.dk);
  clear(gradients.dv);
  hstu_attention_backward_reference(problem, dout, gradients.dq, gradients.dk, gradients.dv,
                                    gradients.dbias);
  return false;
}

template <class T>
void hstu_attention(Cpu cpu, const AttentionProblem<T>& problem, Rows<T> out) {
  run_attention(cpu, problem, TableRole::kBias, out);
}

template <class T>
bool hstu_attention_backward(Cpu cpu, const AttentionProblem<T>& problem, Rows<const T> dout,
                             const AttentionGradients<T>& gradients) {
  run_attention_backward(cpu, problem, TableRole::kBias, dout, gradients);
  return true;
}

#define TGR_INSTANTIATE(T)                                                                 \
  template void hstu_attention<T>(Cpu, const AttentionProblem<T>&, Rows<T>);               \
  template bool hstu_attention_backward<T>(Cpu, const AttentionProblem<T>&, Rows<const T>, \
                                           const AttentionGradients<T>&);
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
