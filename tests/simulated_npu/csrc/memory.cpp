// Memory of the simulated devices: host memory that is counted, limited and poisoned.
//
// The limit holds for each process on its own: two processes on one device do not see each other's memory.

#include "memory.h"

#include "npu.h"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace simulated_npu {
namespace {

constexpr size_t kGranularity = 512;
constexpr size_t kAlignment = 64;
constexpr int kPoison = 0xFF;  // NaN in every floating-point type, -1 in every signed integer.

size_t limit_bytes() {
  static const size_t limit = [] {
    const char* megabytes = std::getenv("SIMULATED_NPU_MEMORY_MB");
    return (megabytes ? std::strtoull(megabytes, nullptr, 10) : 4096) << 20;
  }();
  return limit;
}

struct Block {
  int device;
  size_t rounded;
  size_t requested;
};

struct DeviceMemory {
  std::unordered_multimap<size_t, void*> cache;  // By size; these count as reserved, not as allocated.
  c10::CachingDeviceAllocator::DeviceStats stats;
};

void increase(c10::CachingAllocator::StatArray& stat, size_t amount) {
  stat[0].increase(amount);
}

void decrease(c10::CachingAllocator::StatArray& stat, size_t amount) {
  stat[0].decrease(amount);
}

void free_block(void* pointer);

struct NpuAllocator final : c10::DeviceAllocator {
  bool initialized() override { return device_count() > 0; }

  c10::DataPtr allocate(size_t bytes) override {
    const int index = current_device();
    check_index(index);
    const c10::Device device(kNpu, static_cast<c10::DeviceIndex>(index));
    if (bytes == 0) {
      return {nullptr, nullptr, &free_block, device};
    }
    std::lock_guard<std::mutex> lock(mutex_);
    const size_t rounded = (bytes + kGranularity - 1) / kGranularity * kGranularity;
    void* pointer = take(memory(index), rounded, bytes, index);
    std::memset(pointer, kPoison, rounded);
    blocks_[pointer] = {index, rounded, bytes};
    return {pointer, pointer, &free_block, device};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }

  void copy_data(void* dest, const void* src, std::size_t count) const override { std::memcpy(dest, src, count); }

  void release(void* pointer) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = blocks_.find(pointer);
    TORCH_INTERNAL_ASSERT(found != blocks_.end(), "memory is freed that is not of a simulated NPU");
    const Block block = found->second;
    blocks_.erase(found);
    std::memset(pointer, kPoison, block.rounded);
    DeviceMemory& of_device = memory(block.device);
    of_device.cache.emplace(block.rounded, pointer);
    decrease(of_device.stats.allocated_bytes, block.rounded);
    decrease(of_device.stats.active_bytes, block.rounded);
    decrease(of_device.stats.requested_bytes, block.requested);
    decrease(of_device.stats.allocation, 1);
    decrease(of_device.stats.active, 1);
  }

  void emptyCache(c10::MempoolId_t /*pool*/ = {0, 0}) override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [index, of_device] : memories_) {
      drop_cache(of_device);
    }
  }

  void recordStream(const c10::DataPtr& /*pointer*/, c10::Stream /*stream*/) override {}

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    check_index(device);
    std::lock_guard<std::mutex> lock(mutex_);
    return memory(device).stats;
  }

  void resetAccumulatedStats(c10::DeviceIndex device) override {
    check_index(device);
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto* stat : stats_of(memory(device))) {
      (*stat)[0].reset_accumulated();
    }
  }

  void resetPeakStats(c10::DeviceIndex device) override {
    check_index(device);
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto* stat : stats_of(memory(device))) {
      (*stat)[0].reset_peak();
    }
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    check_index(device);
    std::lock_guard<std::mutex> lock(mutex_);
    return {limit_bytes() - reserved(memory(device)), limit_bytes()};
  }

 private:
  std::mutex mutex_;
  std::map<int, DeviceMemory> memories_;
  std::unordered_map<void*, Block> blocks_;

  DeviceMemory& memory(int index) { return memories_[index]; }

  static size_t reserved(const DeviceMemory& of_device) {
    return static_cast<size_t>(of_device.stats.reserved_bytes[0].current);
  }

  static std::vector<c10::CachingAllocator::StatArray*> stats_of(DeviceMemory& of_device) {
    auto& stats = of_device.stats;
    return {&stats.allocation,      &stats.segment,        &stats.active,         &stats.allocated_bytes,
            &stats.reserved_bytes,  &stats.active_bytes,   &stats.requested_bytes};
  }

  static void drop_cache(DeviceMemory& of_device) {
    for (auto& [size, pointer] : of_device.cache) {
      std::free(pointer);
      decrease(of_device.stats.reserved_bytes, size);
      decrease(of_device.stats.segment, 1);
      of_device.stats.num_device_free += 1;
    }
    of_device.cache.clear();
  }

  void* take(DeviceMemory& of_device, size_t rounded, size_t requested, int index) {
    void* pointer = nullptr;
    auto& stats = of_device.stats;
    if (const auto cached = of_device.cache.find(rounded); cached != of_device.cache.end()) {
      pointer = cached->second;
      of_device.cache.erase(cached);
    } else {
      if (reserved(of_device) + rounded > limit_bytes()) {
        stats.num_alloc_retries += 1;
        drop_cache(of_device);
      }
      if (reserved(of_device) + rounded > limit_bytes()) {
        stats.num_ooms += 1;
        TORCH_CHECK_WITH(
            OutOfMemoryError, false, "NPU out of memory. Tried to allocate ", requested, " bytes on npu:", index,
            " (", device_id(index), "): ", reserved(of_device), " of ", limit_bytes(), " bytes are in use");
      }
      TORCH_CHECK(posix_memalign(&pointer, kAlignment, rounded) == 0, "the host has no ", rounded, " bytes left");
      increase(stats.reserved_bytes, rounded);
      increase(stats.segment, 1);
      stats.num_device_alloc += 1;
    }
    increase(stats.allocated_bytes, rounded);
    increase(stats.active_bytes, rounded);
    increase(stats.requested_bytes, requested);
    increase(stats.allocation, 1);
    increase(stats.active, 1);
    return pointer;
  }
};

// Never destroyed: tensors may be freed while the process ends.
NpuAllocator& allocator() {
  static auto* const instance = new NpuAllocator();
  return *instance;
}

void free_block(void* pointer) {
  if (pointer != nullptr) {
    allocator().release(pointer);
  }
}

struct PinnedMemory {
  std::mutex mutex;
  std::map<const char*, size_t> sizes;
};

PinnedMemory& pinned() {
  static auto* const instance = new PinnedMemory();
  return *instance;
}

void free_pinned(void* pointer) {
  std::lock_guard<std::mutex> lock(pinned().mutex);
  pinned().sizes.erase(static_cast<const char*>(pointer));
  std::free(pointer);
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* pointer = nullptr;
    if (bytes > 0) {
      TORCH_CHECK(posix_memalign(&pointer, kAlignment, bytes) == 0, "the host has no ", bytes, " bytes left");
      std::lock_guard<std::mutex> lock(pinned().mutex);
      pinned().sizes[static_cast<const char*>(pointer)] = bytes;
    }
    return {pointer, pointer, &free_pinned, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* dest, const void* src, std::size_t count) const override { std::memcpy(dest, src, count); }
};

}  // namespace

c10::DeviceAllocator* device_allocator() {
  return &allocator();
}

c10::Allocator* pinned_allocator() {
  static auto* const instance = new PinnedAllocator();
  return instance;
}

bool is_pinned(const void* pointer) {
  const auto* wanted = static_cast<const char*>(pointer);
  std::lock_guard<std::mutex> lock(pinned().mutex);
  auto after = pinned().sizes.upper_bound(wanted);
  if (after == pinned().sizes.begin()) {
    return false;
  }
  --after;
  return wanted < after->first + after->second;
}

void resize_storage(c10::StorageImpl* storage, size_t bytes) {
  const c10::DeviceGuard guard(storage->device());
  c10::DataPtr fresh = device_allocator()->allocate(bytes);
  const size_t kept = std::min(bytes, storage->nbytes());
  if (kept > 0) {
    std::memcpy(fresh.mutable_get(), storage->data(), kept);
  }
  storage->set_data_ptr_noswap(std::move(fresh));
  storage->set_nbytes(bytes);
}

namespace {
const bool registered = [] {
  c10::SetAllocator(kNpu, device_allocator());
  return true;
}();
}  // namespace

}  // namespace simulated_npu
