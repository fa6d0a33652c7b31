// What a device would fault on, hang on or get wrong is an error with a place, or a NaN.
#include "ir/base/DType.h"
#include "runtime/emulate/HostCompiler.h"
#include "test/codegen/device/Emulation.h"

#include <cmath>
#include <fstream>

using namespace fusion;
using namespace fusion::samples;

/// Runs one block of 64 threads and expects an error that contains `part`.
static void expectFailure(const std::string &body, const std::string &part, uint32_t dynamicBytes = 0) {
  KernelPlan plan = kernel("faulty", 64, {"f32 *x"}, body);
  plan.dynamicSharedBytes = dynamicBytes;
  alignas(16) static float x[256];
  Status status = run(plan, 2, static_cast<float *>(x));
  ASSERT_FALSE(status) << "expected: " << part;
  EXPECT_EQ(status.error().kind, ErrorKind::AnswerIsNo);
  EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
  EXPECT_NE(status.error().message.find("kernel faulty: block ("), std::string::npos)
      << status.error().message;
}

TEST(EmulationErrors, MisalignedVector) {
  expectFailure("load_vec<f32, 4>(x + 1);\n", "thread (0, 0, 0): misaligned memory access");
  expectFailure("store_vec<f32, 2>(x + thread_x(), Vec<f32, 2>{{0.f, 0.f}});\n",
                "thread (1, 0, 0): misaligned memory access");
}

TEST(EmulationErrors, BarrierThatSomeNeverReach) {
  expectFailure("if (thread_x() < 10) return;\nbarrier();\n",
                "54 threads wait at barrier() for threads that never come (10 of 64 have returned)");
  expectFailure("if (thread_x() == 63) return;\nx[thread_x()] = warp_sum(1.f);\n",
                "31 lanes of warp 1 wait in a shuffle");
  expectFailure("if (thread_x() == 3) barrier(); else warp_barrier();\n",
                "31 lanes of warp 0 wait in warp_barrier and 1 threads wait at barrier()");
}

TEST(EmulationErrors, LanesInDifferentOperations) {
  expectFailure("if (thread_x() % 2) x[0] = shuffle_xor(1.f, 1); else warp_any(true);\n",
                "comes to a shuffle while other lanes of its warp wait in a vote");
}

TEST(EmulationErrors, SharedMemory) {
  expectFailure("SHARED(f32, a, 60); a[thread_x()] = 1.f;\n",
                "writes past the end of a shared array of 240 bytes");
  expectFailure("((f32 *)dynamic_shared())[thread_x()] = 1.f; barrier();\n",
                "writes past the end of dynamic shared memory of 252 bytes", 252);
  expectFailure("SHARED(f32, a, 13000); a[0] = 1.f;\n", "more shared arrays than a device has room for");
}

TEST(EmulatedLibrary, HasFunctionsOfTheCompilersOwnLibrary) {
  // A division of 128 bits is a call with any compiler; g++ 13 calls for __popc() too. A process without
  // libgcc_s, as of static programs, would not open the library.
  TemporaryFolder folder;
  const std::string source = folder.path + "/wide.cpp", library = folder.path + "/wide.so";
  std::ofstream(source) << "extern \"C\" long wide(__int128 a, __int128 b) { return long(a / b); }\n";
  auto compiler = emulate::HostCompiler::find();
  ASSERT_TRUE(compiler) << compiler.error().message;
  Status status = compiler->compile(source, library, folder.path + "/log");
  ASSERT_TRUE(status) << status.error().message;
  FILE *symbols = popen(("nm --dynamic --undefined-only " + library).c_str(), "r");
  ASSERT_TRUE(symbols);
  std::string undefined;
  for (int c; (c = fgetc(symbols)) != EOF;)
    undefined += static_cast<char>(c);
  if (pclose(symbols) != 0)
    GTEST_SKIP() << "no nm";
  EXPECT_EQ(undefined.find("__divti3\n"), std::string::npos) << undefined; // of a library it names: @GCC_3.0
}

TEST(EmulationErrors, FrameTooLargeForAFiber) {
  TemporaryFolder folder;
  auto kernel =
      EmulatedKernel::compile(samples::kernel("greedy", 32, {"i64 n", "f32 *x"},
                                              "volatile f32 a[32000]; a[n] = 1.f; x[0] = a[n + 1];\n"),
                              folder.path);
  ASSERT_FALSE(kernel);
  EXPECT_NE(kernel.error().message.find("frame"), std::string::npos) << kernel.error().message;
}

TEST(EmulationErrors, MatrixLoadsAndCopies) {
  expectFailure("u32 r[4]; ldmatrix_x4(r, dynamic_shared() + lane_id() * 8);\n",
                "ldmatrix: shared address not aligned to 16", 1024);
  expectFailure("u32 r[4]; ldmatrix_x4(r, x);\n", "ldmatrix: address outside the block's shared memory",
                1024);
  expectFailure("cp_async_16(dynamic_shared(), x + 1, true);\n", "global address not aligned to 16", 1024);
}

TEST(EmulationErrors, ForgottenBarrierAndForgottenWaitAreSeen) {
  std::vector<int64_t> in(64, 7), out(64);
  Status status = run(reverse(false), 1, in.data(), out.data());
  ASSERT_TRUE(status) << messageOf(status);
  EXPECT_EQ(out[0], -1); // what uninitialised shared memory holds

  std::vector<uint16_t> a(16 * 32, f32ToF16(1.f)), b(8 * 32, f32ToF16(1.f));
  std::vector<float> c(16 * 8);
  status = run(product("f16", false, false), 1, a.data(), b.data(), c.data());
  ASSERT_TRUE(status) << messageOf(status);
  for (float value : c)
    EXPECT_TRUE(std::isnan(value));
}

TEST(EmulationErrors, TheKernelCanBeLaunchedAgainAfterAnError) {
  auto faulty = compiled(kernel("sometimes", 64, {"f32 *x", "i64 bad"}, R"(
  if (bad && block_x() == 3 && thread_x() == 40)
    return;
  x[block_x() * 64 + thread_x()] = block_sum<64>(1.f);
)"));
  ASSERT_TRUE(faulty);
  std::vector<float> x(64 * 8);
  float *pointer = x.data();
  for (int64_t bad : {0, 1, 0}) {
    std::fill(x.begin(), x.end(), 0.f);
    void *arguments[] = {&pointer, &bad};
    EXPECT_EQ(bool(faulty->launch(8, 1, 1, arguments)), bad == 0);
  }
  EXPECT_EQ(x, std::vector<float>(64 * 8, 64.f));
}
