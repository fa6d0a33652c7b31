#include "runtime/ShapeBucket.h"

namespace fusion {

static constexpr size_t maxBuckets = 32;
static constexpr size_t maxBlocks = 2;

Result<std::shared_ptr<void>> BufferPool::acquire(Backend &backend, size_t bytes) {
  for (Block &block : blocks)
    if (block.memory.use_count() == 1 && block.capacity >= bytes)
      return block.memory;
  // Free blocks that are too small would only hold memory back. What has grown once will grow again: room for that.
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
  if (blocks.size() == maxBlocks)
    blocks.pop_front();
  blocks.push_back({*memory, bytes});
  return *memory;
}

ShapeBucket *ShapeBuckets::find(const std::vector<int64_t> &key) {
  for (auto bucket = buckets.begin(); bucket != buckets.end(); ++bucket)
    if (bucket->key == key) {
      buckets.splice(buckets.begin(), buckets, bucket);
      return &buckets.front();
    }
  return nullptr;
}

ShapeBucket &ShapeBuckets::insert(std::vector<int64_t> key, ShapePlan plan) {
  if (buckets.size() == maxBuckets)
    buckets.pop_back();
  buckets.push_front({std::move(key), std::move(plan), {}, {}});
  return buckets.front();
}

void ShapeBuckets::dropRecordings() {
  for (ShapeBucket &bucket : buckets) {
    bucket.recorded.clear();
    bucket.lastAddresses.clear();
  }
}

} // namespace fusion
