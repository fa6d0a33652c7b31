#include "runtime/ShapeBucket.h"

#include <algorithm>

namespace fusion {

static constexpr size_t maxBuckets = 32;
/// A result that becomes the next input alternates; small ones a caller may hold from many runs.
static constexpr size_t maxBlocks = 2, smallBytes = 64 << 10, maxSmallBlocks = 64;
static constexpr size_t alwaysChanged = 4; ///< launches: so few are changed sooner than recorded

Result<const std::shared_ptr<void> *> BufferPool::acquire(Backend &backend, size_t bytes) {
  for (Block &block : blocks)
    if (block.memory.use_count() == 1 && block.capacity >= bytes)
      return &block.memory;
  // Free blocks that are too small would only hold memory back. What has grown once will grow again: room for
  // that.
  size_t roomy = bytes;
  for (const Block &block : blocks)
    if (block.capacity < bytes)
      roomy = std::max(roomy, block.capacity + block.capacity / 4);
  std::erase_if(blocks, [](const Block &block) { return block.memory.use_count() == 1; });
  Result<std::shared_ptr<void>> memory = backend.allocate(roomy);
  if (memory)
    bytes = roomy;
  else if (roomy > bytes)
    memory = backend.allocate(bytes);
  if (!memory)
    return memory.error();
  if (blocks.size() >= (bytes <= smallBytes ? maxSmallBlocks : maxBlocks))
    blocks.pop_front();
  blocks.push_back({*memory, bytes});
  return &blocks.back().memory;
}

bool BufferPool::owns(const std::shared_ptr<void> &memory) const {
  return std::any_of(blocks.begin(), blocks.end(),
                     [&](const Block &block) { return block.memory == memory; });
}

ShapeBucket *ShapeBuckets::find(std::span<const int64_t> symbols) {
  for (ShapeBucket &bucket : buckets)
    if (std::equal(symbols.begin(), symbols.end(), bucket.plan.symbols.begin(), bucket.plan.symbols.end()))
      return &use(bucket);
  return nullptr;
}

std::vector<ShapeBucket *> ShapeBuckets::near(ShapePlanner &planner, std::span<const int64_t> symbols) {
  std::vector<std::pair<size_t, ShapeBucket *>> found;
  for (ShapeBucket &bucket : buckets) {
    const size_t launches = bucket.plan.launches.size(),
                 differing = planner.launchesThatDepend(bucket.plan, symbols);
    if (differing <= alwaysChanged || differing * 2 < launches)
      found.push_back({differing, &bucket});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto &a, const auto &b) { return a.first < b.first; });
  std::vector<ShapeBucket *> result;
  for (const auto &[differing, bucket] : found)
    result.push_back(bucket);
  return result;
}

ShapeBucket &ShapeBuckets::use(ShapeBucket &wanted) {
  for (auto bucket = buckets.begin(); bucket != buckets.end(); ++bucket)
    if (&*bucket == &wanted) {
      buckets.splice(buckets.begin(), buckets, bucket);
      break;
    }
  return buckets.front();
}

bool ShapeBuckets::full() const { return buckets.size() == maxBuckets; }

ShapeBucket &ShapeBuckets::insert(ShapePlan plan) {
  if (full())
    buckets.pop_back();
  ShapeBucket &bucket = buckets.emplace_front();
  bucket.plan = std::move(plan);
  return bucket;
}

} // namespace fusion
