// The simulated NPU's devices, streams, events, generators and hooks, and what Python sees of them.

#include "memory.h"
#include "npu.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/utils/pybind.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <sstream>
#include <vector>

namespace simulated_npu {
namespace {

constexpr int kDefaultCount = 8;

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    const auto first = part.find_first_not_of(" \t");
    if (first != std::string::npos) {
      parts.push_back(part.substr(first, part.find_last_not_of(" \t") - first + 1));
    }
  }
  return parts;
}

// SIMULATED_NPU_DEVICES is how many devices the machine has, or their ids.
std::vector<std::string> devices_of_machine() {
  const char* given = std::getenv("SIMULATED_NPU_DEVICES");
  const std::string text = given ? given : std::to_string(kDefaultCount);
  if (text.find_first_not_of("0123456789") != std::string::npos) {
    return split(text);
  }
  std::vector<std::string> ids;
  for (int index = 0; index < std::atoi(text.c_str()); ++index) {
    ids.push_back(std::to_string(index));
  }
  return ids;
}

struct Machine {
  std::vector<std::string> visible;
  std::string problem;
};

const Machine& machine() {
  static const Machine found = [] {
    const auto ids = devices_of_machine();
    const char* variable = std::getenv("ASCEND_RT_VISIBLE_DEVICES");
    if (variable == nullptr) {
      return Machine{ids, ""};
    }
    Machine limited;
    for (const auto& id : split(variable)) {
      if (std::find(ids.begin(), ids.end(), id) == ids.end()) {
        std::string all;
        for (const auto& known : ids) {
          all += (all.empty() ? "" : ",") + known;
        }
        return Machine{{}, "ASCEND_RT_VISIBLE_DEVICES=" + std::string(variable) + " names device '" + id +
                               "', and this machine has " + all};
      }
      limited.visible.push_back(id);
    }
    return limited;
  }();
  return found;
}

thread_local int current = 0;
thread_local std::vector<c10::StreamId> streams;
std::atomic<c10::StreamId> last_stream{0};

c10::Device device_of(int index) {
  return {kNpu, static_cast<c10::DeviceIndex>(index)};
}

c10::StreamId& stream_of(int index) {
  if (streams.size() <= static_cast<size_t>(index)) {
    streams.resize(index + 1, 0);
  }
  return streams[index];
}

int index_of(c10::Device device) {
  return device.has_index() ? device.index() : current;
}

using Clock = std::chrono::steady_clock;

struct Event {
  Clock::time_point at;
};

// All work is done when it is given, so there is never anything to wait for.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kNpu; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = device_of(current);
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return device_of(current); }
  void setDevice(c10::Device device) const override {
    if (device.has_index() && device.index() != current) {
      set_current_device(device.index());
    }
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) {
      current = device.index();
    }
  }
  c10::Stream getStream(c10::Device device) const override {
    const int index = index_of(device);
    return c10::Stream(c10::Stream::UNSAFE, device_of(index), stream_of(index));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device_of(index_of(device)), 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high*/ = false) const override {
    return getNewStream(device);
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/ = 0) const override {
    return c10::Stream(c10::Stream::UNSAFE, device_of(index_of(device)), ++last_stream);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    stream_of(index_of(stream.device())) = stream.id();
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(device_count()); }
  c10::DeviceCapability getDeviceCapability(c10::Device /*device*/) const override { return {}; }

  void record(void** event, const c10::Stream& /*stream*/, c10::DeviceIndex /*index*/, c10::EventFlag /*flag*/)
      const override {
    if (*event == nullptr) {
      *event = new Event();
    }
    static_cast<Event*>(*event)->at = Clock::now();
  }
  void destroyEvent(void* event, c10::DeviceIndex /*index*/) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void block(void* /*event*/, const c10::Stream& /*stream*/) const override {}
  bool queryEvent(void* /*event*/) const override { return true; }
  void synchronizeEvent(void* /*event*/) const override {}
  double elapsedTime(void* first, void* second, c10::DeviceIndex /*index*/) const override {
    TORCH_CHECK(first != nullptr && second != nullptr, "both events must be recorded before their distance is asked");
    const auto passed = static_cast<Event*>(second)->at - static_cast<Event*>(first)->at;
    return std::chrono::duration<double, std::milli>(passed).count();
  }
  bool queryStream(const c10::Stream& /*stream*/) const override { return true; }
  void synchronizeStream(const c10::Stream& /*stream*/) const override {}
  void synchronizeDevice(c10::DeviceIndex /*index*/) const override {}
};

// Wraps a CPU generator, so that the same seed gives the numbers that a processor gives.
struct NpuGenerator final : c10::GeneratorImpl {
  explicit NpuGenerator(c10::DeviceIndex index)
      : c10::GeneratorImpl(c10::Device(kNpu, index), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        inner(at::detail::createCPUGenerator()) {}

  void set_current_seed(uint64_t seed) override { inner.set_current_seed(seed); }
  void set_offset(uint64_t offset) override { inner.set_offset(offset); }
  uint64_t get_offset() const override { return inner.get_offset(); }
  uint64_t current_seed() const override { return inner.current_seed(); }
  uint64_t seed() override { return inner.seed(); }
  void set_state(const c10::TensorImpl& state) override { inner.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return inner.unsafeGetGeneratorImpl()->get_state();
  }
  NpuGenerator* clone_impl() const override {
    auto* copy = new NpuGenerator(device().index());
    copy->inner = inner.clone();
    return copy;
  }

  mutable at::Generator inner;
};

std::vector<at::Generator>& default_generators() {
  static auto* const generators = [] {
    auto* made = new std::vector<at::Generator>();
    for (int index = 0; index < device_count(); ++index) {
      made->push_back(at::make_generator<NpuGenerator>(static_cast<c10::DeviceIndex>(index)));
    }
    return made;
  }();
  return *generators;
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex /*index*/) const override { return true; }
  void init() const override { require_devices(); }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(device_count()); }
  void setCurrentDevice(c10::DeviceIndex index) const override { set_current_device(index); }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(current); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const auto before = getCurrentDevice();
    setCurrentDevice(index);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 ? getCurrentDevice() : exchangeDevice(index);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    const int chosen = index < 0 ? current : index;
    check_index(chosen);
    return default_generators()[chosen];
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    const int chosen = index < 0 ? current : index;
    check_index(chosen);
    return at::make_generator<NpuGenerator>(static_cast<c10::DeviceIndex>(chosen));
  }
  at::Device getDeviceFromPtr(void* /*data*/) const override { return device_of(current); }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(storage.unsafeGetStorageImpl(), bytes);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

const bool hooks_registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  return true;
}();

}  // namespace

int device_count() noexcept {
  return static_cast<int>(machine().visible.size());
}

void require_devices() {
  TORCH_CHECK(machine().problem.empty(), machine().problem);
  TORCH_CHECK(device_count() > 0, "No NPU is visible: ASCEND_RT_VISIBLE_DEVICES is empty or the machine has none");
}

const std::string& device_id(int index) {
  check_index(index);
  return machine().visible[index];
}

int current_device() noexcept {
  return current;
}

void check_index(int index) {
  require_devices();
  TORCH_CHECK(
      index >= 0 && index < device_count(), "Invalid device ID ", index, ": ", device_count(),
      " devices are visible to this process, with the indices 0 to ", device_count() - 1);
}

void set_current_device(int index) {
  check_index(index);
  current = index;
}

at::Generator host_generator(const std::optional<at::Generator>& generator, int index) {
  if (!generator.has_value() || !generator->defined()) {
    return static_cast<NpuGenerator*>(default_generators()[index].unsafeGetGeneratorImpl())->inner;
  }
  TORCH_CHECK(
      generator->device().type() == kNpu, "Expected a 'npu' device type for generator but found '",
      generator->device(), "'");
  return static_cast<NpuGenerator*>(generator->unsafeGetGeneratorImpl())->inner;
}

void bind_collectives(pybind11::module& module);

}  // namespace simulated_npu

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  using namespace simulated_npu;
  module.def("device_count", [] { return device_count(); });
  module.def("require_devices", [] { require_devices(); });
  module.def("device_id", [](int index) { return device_id(index); });
  module.def("current_device", [] { return current_device(); });
  module.def("set_device", [](int index) { set_current_device(index); });
  module.def("default_generator", [](int index) {
    check_index(index);
    return default_generators()[index];
  });
  bind_collectives(module);
}
