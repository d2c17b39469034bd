// The simulated collective backend `hccl`: gloo on the devices' memory, with the rules of the real one.

#include "npu.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/csrc/utils/pybind.h>

#include <cstdlib>
#include <functional>
#include <mutex>
#include <unistd.h>

namespace simulated_npu {
namespace {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;

std::string node_name() {
  if (const char* given = std::getenv("SIMULATED_NPU_NODE")) {
    return given;
  }
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

// Wraps the work on the host; what is left to do, such as dividing a sum, is done where it is waited for.
class HcclWork final : public c10d::Work {
 public:
  HcclWork(c10::intrusive_ptr<c10d::Work> inner, Tensors outputs, std::function<void()> finish)
      : inner_(std::move(inner)), outputs_(std::move(outputs)), finish_(std::move(finish)) {}

  bool isCompleted() override { return inner_->isCompleted(); }
  bool isSuccess() const override { return inner_->isSuccess(); }
  std::exception_ptr exception() const override { return inner_->exception(); }
  int sourceRank() const override { return inner_->sourceRank(); }
  Tensors result() override { return outputs_; }
  void synchronize() override { wait(); }
  void abort() override { inner_->abort(); }

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override {
    const bool done = inner_->wait(timeout);
    std::lock_guard<std::mutex> lock(finishing_);
    if (finish_) {
      finish_();
      finish_ = nullptr;
    }
    return done;
  }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    wait();
    std::vector<c10::Device> devices;
    if (!outputs_.empty()) {
      devices.push_back(outputs_.front().device());
    }
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), devices);
    future->markCompleted(c10::IValue(outputs_));
    return future;
  }

 private:
  c10::intrusive_ptr<c10d::Work> inner_;
  Tensors outputs_;
  std::mutex finishing_;
  std::function<void()> finish_;
};

class Hccl final : public c10d::Backend {
 public:
  Hccl(c10::intrusive_ptr<c10d::Backend> gloo, c10::intrusive_ptr<c10d::Store> store)
      : Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)), store_(std::move(store)) {}

  const std::string getBackendName() const override { return "hccl"; }
  void setTimeout(std::chrono::milliseconds timeout) override { gloo_->setTimeout(timeout); }
  void setSequenceNumberForGroup() override { gloo_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return gloo_->getSequenceNumberForGroup(); }

  c10::intrusive_ptr<c10d::Work> broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    meet(tensors);
    Tensors aliases = aliased(tensors);
    return wrapped(gloo_->broadcast(aliases, options), tensors);
  }

  c10::intrusive_ptr<c10d::Work> allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    meet(tensors);
    auto changed = options;
    Tensors aliases = aliased(tensors);
    changed.reduceOp = prepared(options.reduceOp, aliases);
    return wrapped(gloo_->allreduce(aliases, changed), tensors, finish(options.reduceOp, aliases));
  }

  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(
      Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    meet(tensors);
    auto changed = options;
    Tensors aliases = aliased(tensors);
    changed.reduceOp = prepared(options.reduceOp, aliases);
    return wrapped(gloo_->allreduce_coalesced(aliases, changed), tensors, finish(options.reduceOp, aliases));
  }

  c10::intrusive_ptr<c10d::Work> reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    meet(tensors);
    auto changed = options;
    Tensors aliases = aliased(tensors);
    changed.reduceOp = prepared(options.reduceOp, aliases);
    Tensors results = options.rootRank == getRank() ? aliases : Tensors{};
    return wrapped(gloo_->reduce(aliases, changed), tensors, finish(options.reduceOp, results));
  }

  c10::intrusive_ptr<c10d::Work> allgather(
      TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    meet(inputs);
    TensorLists output_aliases;
    Tensors flat;
    for (auto& list : outputs) {
      output_aliases.push_back(aliased(list));
      flat.insert(flat.end(), list.begin(), list.end());
    }
    Tensors aliases = aliased(inputs);
    return wrapped(gloo_->allgather(output_aliases, aliases, options), flat);
  }

  c10::intrusive_ptr<c10d::Work> _allgather_base(
      at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    meet({output, input});
    at::Tensor output_alias = host_alias(output);
    at::Tensor input_alias = host_alias(input);
    return wrapped(gloo_->_allgather_base(output_alias, input_alias, options), {output});
  }

  c10::intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    meet(inputs);
    Tensors output_aliases = aliased(outputs);
    Tensors aliases = aliased(inputs);
    return wrapped(gloo_->allgather_into_tensor_coalesced(output_aliases, aliases, options), outputs);
  }

  c10::intrusive_ptr<c10d::Work> gather(
      TensorLists& /*outputs*/, Tensors& /*inputs*/, const c10d::GatherOptions& /*options*/) override {
    TORCH_CHECK(false, "ProcessGroupHCCL does not support gather");
  }

  c10::intrusive_ptr<c10d::Work> scatter(
      Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override {
    meet(outputs);
    Tensors aliases = aliased(outputs);
    TensorLists input_aliases;
    for (auto& list : inputs) {
      input_aliases.push_back(aliased(list));
    }
    return wrapped(gloo_->scatter(aliases, input_aliases, options), outputs);
  }

  c10::intrusive_ptr<c10d::Work> reduce_scatter(
      Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) override {
    meet(outputs);
    auto changed = options;
    Tensors aliases = aliased(outputs);
    TensorLists input_aliases;
    for (auto& list : inputs) {
      Tensors of_list = scaled(options.reduceOp, aliased(list));
      input_aliases.push_back(of_list);
    }
    changed.reduceOp = plain(options.reduceOp);
    return wrapped(gloo_->reduce_scatter(aliases, input_aliases, changed), outputs, finish(options.reduceOp, aliases));
  }

  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override {
    meet({output, input});
    auto changed = options;
    at::Tensor output_alias = host_alias(output);
    at::Tensor input_alias = scaled(options.reduceOp, {host_alias(input)}).front();
    changed.reduceOp = plain(options.reduceOp);
    return wrapped(
        gloo_->_reduce_scatter_base(output_alias, input_alias, changed), {output},
        finish(options.reduceOp, {output_alias}));
  }

  c10::intrusive_ptr<c10d::Work> alltoall_base(
      at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes, std::vector<int64_t>& input_sizes,
      const c10d::AllToAllOptions& options) override {
    meet({output, input});
    at::Tensor output_alias = host_alias(output);
    at::Tensor input_alias = host_alias(input);
    return wrapped(gloo_->alltoall_base(output_alias, input_alias, output_sizes, input_sizes, options), {output});
  }

  c10::intrusive_ptr<c10d::Work> send(Tensors& tensors, int destination, int tag) override {
    check(tensors);
    Tensors aliases = aliased(tensors);
    return wrapped(gloo_->send(aliases, destination, tag), tensors);
  }

  c10::intrusive_ptr<c10d::Work> recv(Tensors& tensors, int source, int tag) override {
    check(tensors);
    Tensors aliases = aliased(tensors);
    return wrapped(gloo_->recv(aliases, source, tag), tensors);
  }

  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override {
    auto changed = options;
    changed.device_ids.clear();
    changed.device = std::nullopt;
    return gloo_->barrier(changed);
  }

 private:
  c10::intrusive_ptr<c10d::Backend> gloo_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::mutex meeting_;
  int device_ = -1;

  static Tensors aliased(const Tensors& tensors) {
    Tensors aliases;
    for (const auto& tensor : tensors) {
      check_one(tensor);
      aliases.push_back(host_alias(tensor));
    }
    return aliases;
  }

  static void check_one(const at::Tensor& tensor) {
    TORCH_CHECK(
        tensor.is_privateuseone() && !tensor.is_sparse(), "Tensors must be NPU and dense, and one is on ",
        tensor.device());
    TORCH_CHECK(tensor.is_contiguous(), "Tensors must be contiguous");
  }

  void check(const Tensors& tensors) {
    TORCH_CHECK(tensors.size() == 1, "Expecting one tensor per call, as a process has one device in a group");
    check_one(tensors.front());
  }

  // One device per process and one process per device, as a communicator's ranks are devices. The ranks find out
  // at their first collective, which is when the real backend makes its communicator.
  void meet(const Tensors& tensors) {
    for (const auto& tensor : tensors) {
      check_one(tensor);
    }
    const int device = tensors.front().device().index();
    for (const auto& tensor : tensors) {
      TORCH_CHECK(tensor.device().index() == device, "Tensors of one call must be on one NPU");
    }
    std::lock_guard<std::mutex> lock(meeting_);
    if (device_ >= 0) {
      TORCH_CHECK(
          device == device_, "rank ", getRank(), " has used npu:", device_, " in this group and now uses npu:", device,
          ": a process has one NPU in a group");
      return;
    }
    device_ = device;
    const std::string mine = node_name() + "/" + device_id(device);
    store_->set("hccl/" + std::to_string(getRank()), std::vector<uint8_t>(mine.begin(), mine.end()));
    for (int rank = 0; rank < getSize(); ++rank) {
      const auto bytes = store_->get("hccl/" + std::to_string(rank));
      const std::string theirs(bytes.begin(), bytes.end());
      TORCH_CHECK(
          rank == getRank() || theirs != mine, "ranks ", std::min(rank, getRank()), " and ", std::max(rank, getRank()),
          " of a group are both on NPU ", mine, ": a communicator has each device once");
    }
  }

  static c10d::ReduceOp plain(const c10d::ReduceOp& op) {
    switch (op.op_) {
      case c10d::ReduceOp::AVG:
      case c10d::ReduceOp::PREMUL_SUM:
        return c10d::ReduceOp::SUM;
      case c10d::ReduceOp::BAND:
      case c10d::ReduceOp::BOR:
      case c10d::ReduceOp::BXOR:
        TORCH_CHECK(false, "Cannot use bitwise reductions with HCCL");
      default:
        return op;
    }
  }

  static std::optional<at::Scalar> factor(const c10d::ReduceOp& op) {
    if (op.op_ != c10d::ReduceOp::PREMUL_SUM) {
      return std::nullopt;
    }
    const auto* supplement = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
    TORCH_CHECK(supplement != nullptr && !supplement->tensor_factor.defined(), "only a number can be multiplied with");
    return supplement->double_factor;
  }

  static Tensors scaled(const c10d::ReduceOp& op, Tensors aliases) {
    if (const auto number = factor(op)) {
      for (auto& alias : aliases) {
        alias = alias.mul(*number);
      }
    }
    return aliases;
  }

  static c10d::ReduceOp prepared(const c10d::ReduceOp& op, Tensors& aliases) {
    if (const auto number = factor(op)) {
      for (auto& alias : aliases) {
        alias.mul_(*number);
      }
    }
    return plain(op);
  }

  std::function<void()> finish(const c10d::ReduceOp& op, const Tensors& results) const {
    if (op.op_ != c10d::ReduceOp::AVG) {
      return nullptr;
    }
    return [results, size = getSize()] {
      for (auto result : results) {
        result.div_(size);
      }
    };
  }

  static c10::intrusive_ptr<c10d::Work> wrapped(
      c10::intrusive_ptr<c10d::Work> work, Tensors outputs, std::function<void()> finish = nullptr) {
    return c10::make_intrusive<HcclWork>(std::move(work), std::move(outputs), std::move(finish));
  }
};

}  // namespace

void bind_collectives(pybind11::module& module) {
  module.def(
      "create_hccl",
      [](const c10::intrusive_ptr<c10d::Backend>& gloo,
         const c10::intrusive_ptr<c10d::Store>& store) -> c10::intrusive_ptr<c10d::Backend> {
        return c10::make_intrusive<Hccl>(gloo, store);
      });
}

}  // namespace simulated_npu
