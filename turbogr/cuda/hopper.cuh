// A thin layer over what only Hopper has: transaction barriers, the bulk tensor copy engine, shared
// memory descriptors of the warpgroup product, register reallocation.
#pragma once

#include <cuda.h>

#include <cstdint>

#define TGR_UNROLL _Pragma("unroll")

namespace turbogr::cuda {

// An address in the block's shared memory, as instructions take it.
using SharedAddress = std::uint32_t;

__device__ __forceinline__ SharedAddress shared_address(const void* p) {
  return static_cast<SharedAddress>(__cvta_generic_to_shared(p));
}

// Where the dynamic shared memory of a kernel begins that has no other, the first kilobyte being
// the system's. A kernel that counts on it has its addresses as constants, which spares many
// registers; it asks check_shared_start() first.
inline constexpr SharedAddress kSharedStart = 1024;
__device__ __forceinline__ void check_shared_start(const void* start) {
  if (shared_address(start) != kSharedStart) __trap();
}

// A barrier in shared memory that flips its phase when the expected arrivals and bytes are in.
__device__ __forceinline__ void barrier_init(SharedAddress barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive(SharedAddress barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_expect(SharedAddress barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void barrier_wait(SharedAddress barrier, int phase) {
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again; }" ::"r"(barrier),
      "r"(phase)
      : "memory");
}

// Copies the box of `map` at (column, head, row) to shared memory; its bytes count on `barrier`.
__device__ __forceinline__ void load_box(SharedAddress to, const CUtensorMap* map,
                                         SharedAddress barrier, int column, int head, int row) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(column), "r"(head), "r"(row)
      : "memory");
}
// The same for plain bytes; both addresses and the count are multiples of 16.
__device__ __forceinline__ void load_bytes(SharedAddress to, const void* from, int bytes,
                                           SharedAddress barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
// Adds bf16 numbers of shared memory to those of global memory, in the background: one thread
// issues, and waits before the bytes in shared memory are written again.
__device__ __forceinline__ void add_bytes_bf16(void* to, SharedAddress from, int bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 [%0], [%1], %2;\n"
      "cp.async.bulk.commit_group;" ::"l"(to),
      "r"(from), "r"(bytes)
      : "memory");
}
// The same for integers of 32 bits.
__device__ __forceinline__ void add_bytes_u32(void* to, SharedAddress from, int bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], %2;\n"
      "cp.async.bulk.commit_group;" ::"l"(to),
      "r"(from), "r"(bytes)
      : "memory");
}
// The same without adding, and as part of a group that commit_stores ends.
__device__ __forceinline__ void store_bytes(void* to, SharedAddress from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void commit_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until the bytes of all but the last `kGroups` groups have been read.
template <int kGroups>
__device__ __forceinline__ void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kGroups) : "memory");
}
__device__ __forceinline__ void wait_added() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
// Barriers and loads by pointer, for kernels that keep a struct in shared memory.
__device__ __forceinline__ void barrier_init(std::uint64_t* barrier, int arrivals) {
  barrier_init(shared_address(barrier), arrivals);
}
__device__ __forceinline__ void barrier_arrive(std::uint64_t* barrier) {
  barrier_arrive(shared_address(barrier));
}
__device__ __forceinline__ void barrier_expect(std::uint64_t* barrier, int bytes) {
  barrier_expect(shared_address(barrier), bytes);
}
__device__ __forceinline__ void barrier_wait(std::uint64_t* barrier, int phase) {
  barrier_wait(shared_address(barrier), phase);
}
__device__ __forceinline__ void load_box(void* to, const CUtensorMap* map, std::uint64_t* barrier,
                                         int column, int head, int row) {
  load_box(shared_address(to), map, shared_address(barrier), column, head, row);
}
__device__ __forceinline__ void load_bytes(void* to, const void* from, int bytes,
                                           std::uint64_t* barrier) {
  load_bytes(shared_address(to), from, bytes, shared_address(barrier));
}

// Makes ordinary writes to shared memory visible to the tensor cores and the copy engine.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Barrier `id` (1 to 15) of `threads` threads of the block.
__device__ __forceinline__ void named_barrier(int id, int threads) {
  __syncwarp();  // bar.sync wants whole warps
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most kPending committed groups are in flight.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving uses of registers across a wait for the product that fills them.
template <int N>
__device__ __forceinline__ void pin(float (&registers)[N]) {
  TGR_UNROLL
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}
template <int N>
__device__ __forceinline__ void pin(std::uint32_t (&registers)[N]) {
  TGR_UNROLL
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(registers[i])::"memory");
}

template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// A tile of kRows rows and D columns lies in shared memory as panels of kColumns columns, each row
// of a panel one swizzled line of 128 bytes (64 when D is 32); the copy engine writes it so.
template <int D>
struct PanelShape {
  static constexpr int kColumns = D < 64 ? D : 64;
  static constexpr int kPanels = D / kColumns;
  static constexpr int kLineBytes = kColumns * 2;
  static constexpr std::uint64_t kSwizzle = kLineBytes == 128 ? 1 : 2;
};

// What the tensor cores are told of an operand: only the low half varies at run time, so only that
// takes a register.
template <int D>
struct Operand {
  std::uint32_t low;

  __device__ Operand(SharedAddress tile, int leading_bytes)
      : low((tile & 0x3ffff) >> 4 | leading_bytes >> 4 << 16) {}
  __device__ Operand(const void* tile, int leading_bytes)
      : Operand(shared_address(tile), leading_bytes) {}
  __device__ __forceinline__ std::uint64_t at(int bytes) const {
    using Shape = PanelShape<D>;
    constexpr std::uint64_t kHigh =
        static_cast<std::uint64_t>(8 * Shape::kLineBytes >> 4) << 32 | Shape::kSwizzle << 62;
    return kHigh | (low + static_cast<std::uint32_t>(bytes >> 4));
  }
};

// Bytes to columns 16 step and up of a tile of kRows rows: the operand's sum runs over columns.
template <int D, int kRows>
__device__ __forceinline__ constexpr int column_step(int step) {
  using Shape = PanelShape<D>;
  constexpr int kSteps = Shape::kColumns / 16;
  return step / kSteps * kRows * Shape::kLineBytes + step % kSteps * 32;
}
// Bytes to rows 16 step and up: the operand's sum runs over rows, and its leading bytes are a
// panel.
template <int D>
__device__ __forceinline__ constexpr int row_step(int step) {
  return 16 * PanelShape<D>::kLineBytes * step;
}

// Four 8 x 8 blocks of bf16 from the registers of a product to shared memory.
__device__ __forceinline__ void store_blocks(std::uint32_t address, const std::uint32_t* r) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// The same, each of them transposed.
__device__ __forceinline__ void store_blocks_transposed(std::uint32_t address,
                                                        const std::uint32_t* r) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
      "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
      : "memory");
}

// And back, as they lie or each of them transposed.
__device__ __forceinline__ void load_blocks(std::uint32_t address, std::uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_blocks_transposed(std::uint32_t address,
                                                       std::uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ std::uint32_t pack_bf16(float low, float high) {
  std::uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

__device__ __forceinline__ float tanh_approximate(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ void reduce_add(float* to, float a, float b, float c, float d) {
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(a), "f"(b), "f"(c),
               "f"(d)
               : "memory");
}

}  // namespace turbogr::cuda
