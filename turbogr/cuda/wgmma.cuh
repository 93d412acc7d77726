// The warpgroup matrix product of Hopper: D[64, N] (+)= A[64, 16] B[16, N], bf16 in, f32 out, for
// the widths N that the attention kernels use. 128 threads issue it together; A comes from shared
// memory (ss) or registers (rs), B from shared memory. kTransA, kTransB: the operand lies with its
// M or N index contiguous instead of its K index.
//
// Thread t of the group holds rows 16 (t / 32) + (t % 32) / 4 and 8 further, columns 8 j + 2 (t %
// 4) and the next: d[4 j], d[4 j + 1] of the first row, d[4 j + 2], d[4 j + 3] of the second.
#pragma once

#include <cstdint>

namespace turbogr::cuda {

template <int N>
struct Wgmma;

// Operand lists of inline assembly cannot be made by a template; one macro a register count.
// clang-format off
#define TGR_ACC_8 \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define TGR_REGS_8 \
  "%0,%1,%2,%3,%4,%5,%6,%7"
#define TGR_ACC_16 \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
  "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define TGR_REGS_16 \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define TGR_ACC_32 \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
  "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), \
  "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), \
  "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define TGR_REGS_32 \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define TGR_ACC_40 \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
  "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), \
  "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), \
  "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), \
  "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
#define TGR_REGS_40 \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
  "%32,%33,%34,%35,%36,%37,%38,%39"
#define TGR_ACC_64 \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
  "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), \
  "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), \
  "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), \
  "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), \
  "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), \
  "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), \
  "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define TGR_REGS_64 \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define TGR_ACC_128 \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
  "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), \
  "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), \
  "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), \
  "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), \
  "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), \
  "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), \
  "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), \
  "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]), \
  "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), \
  "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), \
  "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]), \
  "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]), \
  "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]), \
  "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]), \
  "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
#define TGR_REGS_128 \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63," \
  "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79," \
  "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95," \
  "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111," \
  "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
// clang-format on

template <>
struct Wgmma<16> {
  template <int kTransA, int kTransB, int R>
  static __device__ __forceinline__ void ss(float (&d)[R], std::uint64_t a, std::uint64_t b,
                                            int accumulate) {
    static_assert(R >= 8);
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %10, 0;"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {" TGR_REGS_8
        "}, %8, %9, p, 1, 1, %11, %12; }"
        : TGR_ACC_8
        : "l"(a), "l"(b), "r"(accumulate), "n"(kTransA), "n"(kTransB));
  }
  template <int kTransB, int R>
  static __device__ __forceinline__ void rs(float (&d)[R], const std::uint32_t* a, std::uint64_t b,
                                            int accumulate) {
    static_assert(R >= 8);
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %13, 0;"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {" TGR_REGS_8
        "}, {%8,%9,%10,%11}, %12, p, 1, 1, %14; }"
        : TGR_ACC_8
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(kTransB));
  }
};

template <>
struct Wgmma<32> {
  template <int kTransA, int kTransB, int R>
  static __device__ __forceinline__ void ss(float (&d)[R], std::uint64_t a, std::uint64_t b,
                                            int accumulate) {
    static_assert(R >= 16);
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %18, 0;"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {" TGR_REGS_16
        "}, %16, %17, p, 1, 1, %19, %20; }"
        : TGR_ACC_16
        : "l"(a), "l"(b), "r"(accumulate), "n"(kTransA), "n"(kTransB));
  }
  template <int kTransB, int R>
  static __device__ __forceinline__ void rs(float (&d)[R], const std::uint32_t* a, std::uint64_t b,
                                            int accumulate) {
    static_assert(R >= 16);
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %21, 0;"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {" TGR_REGS_16
        "}, {%16,%17,%18,%19}, %20, p, 1, 1, %22; }"
        : TGR_ACC_16
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(kTransB));
  }
};

template <>
struct Wgmma<64> {
  template <int kTransA, int kTransB, int R>
  static __device__ __forceinline__ void ss(float (&d)[R], std::uint64_t a, std::uint64_t b,
                                            int accumulate) {
    static_assert(R >= 32);
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %34, 0;"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" TGR_REGS_32
        "}, %32, %33, p, 1, 1, %35, %36; }"
        : TGR_ACC_32
        : "l"(a), "l"(b), "r"(accumulate), "n"(kTransA), "n"(kTransB));
  }
  template <int kTransB, int R>
  static __device__ __forceinline__ void rs(float (&d)[R], const std::uint32_t* a, std::uint64_t b,
                                            int accumulate) {
    static_assert(R >= 32);
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %37, 0;"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" TGR_REGS_32
        "}, {%32,%33,%34,%35}, %36, p, 1, 1, %38; }"
        : TGR_ACC_32
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(kTransB));
  }
};

template <>
struct Wgmma<80> {
  template <int kTransA, int kTransB, int R>
  static __device__ __forceinline__ void ss(float (&d)[R], std::uint64_t a, std::uint64_t b,
                                            int accumulate) {
    static_assert(R >= 40);
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %42, 0;"
        "wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 {" TGR_REGS_40
        "}, %40, %41, p, 1, 1, %43, %44; }"
        : TGR_ACC_40
        : "l"(a), "l"(b), "r"(accumulate), "n"(kTransA), "n"(kTransB));
  }
  template <int kTransB, int R>
  static __device__ __forceinline__ void rs(float (&d)[R], const std::uint32_t* a, std::uint64_t b,
                                            int accumulate) {
    static_assert(R >= 40);
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %45, 0;"
        "wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 {" TGR_REGS_40
        "}, {%40,%41,%42,%43}, %44, p, 1, 1, %46; }"
        : TGR_ACC_40
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(kTransB));
  }
};

template <>
struct Wgmma<128> {
  template <int kTransA, int kTransB, int R>
  static __device__ __forceinline__ void ss(float (&d)[R], std::uint64_t a, std::uint64_t b,
                                            int accumulate) {
    static_assert(R >= 64);
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %66, 0;"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" TGR_REGS_64
        "}, %64, %65, p, 1, 1, %67, %68; }"
        : TGR_ACC_64
        : "l"(a), "l"(b), "r"(accumulate), "n"(kTransA), "n"(kTransB));
  }
  template <int kTransB, int R>
  static __device__ __forceinline__ void rs(float (&d)[R], const std::uint32_t* a, std::uint64_t b,
                                            int accumulate) {
    static_assert(R >= 64);
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %69, 0;"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" TGR_REGS_64
        "}, {%64,%65,%66,%67}, %68, p, 1, 1, %70; }"
        : TGR_ACC_64
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(kTransB));
  }
};

template <>
struct Wgmma<256> {
  template <int kTransA, int kTransB, int R>
  static __device__ __forceinline__ void ss(float (&d)[R], std::uint64_t a, std::uint64_t b,
                                            int accumulate) {
    static_assert(R >= 128);
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %130, 0;"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" TGR_REGS_128
        "}, %128, %129, p, 1, 1, %131, %132; }"
        : TGR_ACC_128
        : "l"(a), "l"(b), "r"(accumulate), "n"(kTransA), "n"(kTransB));
  }
  template <int kTransB, int R>
  static __device__ __forceinline__ void rs(float (&d)[R], const std::uint32_t* a, std::uint64_t b,
                                            int accumulate) {
    static_assert(R >= 128);
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %133, 0;"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" TGR_REGS_128
        "}, {%128,%129,%130,%131}, %132, p, 1, 1, %134; }"
        : TGR_ACC_128
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(kTransB));
  }
};

#undef TGR_ACC_8
#undef TGR_REGS_8
#undef TGR_ACC_16
#undef TGR_REGS_16
#undef TGR_ACC_32
#undef TGR_REGS_32
#undef TGR_ACC_40
#undef TGR_REGS_40
#undef TGR_ACC_64
#undef TGR_REGS_64
#undef TGR_ACC_128
#undef TGR_REGS_128

}  // namespace turbogr::cuda
