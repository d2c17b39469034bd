// The simulated NPU: a torch device on host memory. What its parts need to know of one another.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <string>

namespace simulated_npu {

constexpr c10::DeviceType kNpu = c10::DeviceType::PrivateUse1;

// The devices of ASCEND_RT_VISIBLE_DEVICES, by their ids; read at the first use of a device, as the real runtime does.
// 0 where the variable names a device that the machine lacks: `require_devices` then says which.
int device_count() noexcept;
void require_devices();
const std::string& device_id(int index);

int current_device() noexcept;
// Raises for an index that is not among the visible devices.
void set_current_device(int index);
void check_index(int index);

// Changes the memory of a storage on the device to `bytes`, keeping what fits.
void resize_storage(c10::StorageImpl* storage, size_t bytes);

// The CPU generator inside a generator of the device; an undefined one stands for the default of the device.
at::Generator host_generator(const std::optional<at::Generator>& generator, int index);

// A CPU tensor on the memory of a tensor of the device, which lives as long as either of them.
at::Tensor host_alias(const at::Tensor& tensor);

}  // namespace simulated_npu
