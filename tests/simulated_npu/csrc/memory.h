// Memory of the simulated devices: host memory that is counted, limited and poisoned.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>

namespace simulated_npu {

// The allocator of device memory. What is handed out reads as NaN (or -1), and so does what was given back.
c10::DeviceAllocator* device_allocator();

// Page-locked host memory, which is host memory that is remembered.
c10::Allocator* pinned_allocator();
bool is_pinned(const void* pointer);

}  // namespace simulated_npu
