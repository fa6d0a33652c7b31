// Weights that lie on the GPU already, over the stand-in driver.
#include "FakeGpu.h"
#include "SamplePlan.h"

#include "ir/base/MappedFile.h"
#include "runtime/MemoryNeed.h"
#include "runtime/cuda/ReadMemory.h"
#include "runtime/cuda/Session.h"

using namespace fusion;
using namespace fusion::test;

namespace {

/// Four floats, 1, 1.5, …, `offset` bytes into an allocation of a GPU, as a caller has them.
struct OnGpu {
  explicit OnGpu(size_t offset, int ordinal = 0) : session(driver(), ordinal) {
    EXPECT_TRUE(session.open());
    cuda::DevicePointer pointer = 0;
    EXPECT_EQ(session.driver.cuMemAlloc_v2(&pointer, 256), 0);
    allocation = pointer;
    const Tensor values = floats({4}, 1, 0.5f);
    EXPECT_EQ(session.driver.cuMemcpyHtoDAsync_v2(pointer + offset, values.data(), 16, session.queue()), 0);
    MappedFile::OnGpu place{reinterpret_cast<const std::byte *>(pointer + offset), 16, ordinal};
    file = MappedFile::ofGpu(place, nullptr, [this](void *target, const MappedFile::OnGpu &source) {
      ++fetched;
      return cuda::readMemory(source.ordinal, target, source.address, source.size);
    });
  }
  ~OnGpu() { session.driver.cuMemFree_v2(allocation); }
  static const cuda::Driver &driver() {
    auto instance = cuda::Driver::instance();
    EXPECT_TRUE(instance);
    return **instance;
  }
  /// The sample with this weight.
  ProgramPlan plan() const {
    ProgramPlan plan = samplePlan();
    plan.buffers[3].contents = FileSpan{file->path(), 0, 16};
    return plan;
  }

  cuda::Session session;
  cuda::DevicePointer allocation = 0;
  std::shared_ptr<MappedFile> file;
  int fetched = 0;
};

class DeviceWeight : public FakeGpu {
protected:
  static size_t needOf(const ProgramPlan &plan, Device device) {
    auto bytes = weightBytesOf(plan, 0, device);
    EXPECT_TRUE(bytes);
    return bytes ? *bytes : 0;
  }
};

TEST_F(DeviceWeight, IsReadWhereItLies) {
  OnGpu weight(32);
  const int before = counters().memory;
  auto executor = make(weight.plan());
  ASSERT_TRUE(executor);
  EXPECT_EQ(executor->statistics().weightBytes, 0u);
  EXPECT_EQ(weight.fetched, 0);
  EXPECT_EQ(needOf(weight.plan(), {Device::Kind::Cuda, 0}), 0u);
  EXPECT_GT(needOf(weight.plan(), {Device::Kind::Cuda, 1}), 0u);
  EXPECT_TRUE(
      executor->run({{"x", floats({2, 8}, 1)}, {"y", floats({2, 8}, 2)}, {"offset", floats({9}, 3)}}));
  executor.reset();
  EXPECT_EQ(counters().memory, before);
}

TEST_F(DeviceWeight, IsCopiedOnTheDeviceWhereKernelsCannotReadIt) {
  OnGpu weight(4);
  auto executor = make(weight.plan());
  ASSERT_TRUE(executor);
  EXPECT_GT(executor->statistics().weightBytes, 0u);
  EXPECT_EQ(weight.fetched, 0);
  EXPECT_GT(needOf(weight.plan(), {Device::Kind::Cuda, 0}), 0u);
}

TEST_F(DeviceWeight, OfAnotherGpuGoesByWayOfTheHost) {
  counters().gpus = 2;
  OnGpu weight(0, 1);
  auto executor = make(weight.plan());
  ASSERT_TRUE(executor);
  EXPECT_GT(executor->statistics().weightBytes, 0u);
  EXPECT_EQ(weight.fetched, 1);
}

TEST_F(DeviceWeight, IsFetchedOnceForTheHost) {
  OnGpu weight(0);
  EXPECT_EQ(weight.file->size(), 16u);
  for (int times = 0; times < 2; ++times) {
    auto file = MappedFile::open(weight.file->path());
    ASSERT_TRUE(file) << file.error().message;
    ASSERT_EQ((*file)->bytes().size(), 16u);
    EXPECT_EQ(reinterpret_cast<const float *>((*file)->bytes().data())[3], 2.5f);
  }
  EXPECT_EQ(weight.fetched, 1);
}

TEST_F(DeviceWeight, ThatCannotBeReadIsAnError) {
  OnGpu weight(0);
  MappedFile::OnGpu outside{reinterpret_cast<const std::byte *>(8), 16, 0};
  auto file = MappedFile::ofGpu(outside, nullptr, [](void *target, const MappedFile::OnGpu &source) {
    return cuda::readMemory(source.ordinal, target, source.address, source.size);
  });
  auto opened = MappedFile::open(file->path());
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().kind, ErrorKind::Environment);
  EXPECT_NE(opened.error().message.find("copying a weight from the GPU"), std::string::npos);
}

} // namespace
