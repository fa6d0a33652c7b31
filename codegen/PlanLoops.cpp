// Loops: the steps of a body, repeated. The state lies in buffers of its own, which each round reads and then
// replaces.
#include "codegen/ChooseSchedule.h"
#include "codegen/PlanBuilder.h"
#include "ir/dialect/Loop.h"

using namespace mlir;

namespace fusion {

Status PlanBuilder::planLoop(nn::LoopOp loop) {
  func::FuncOp body = loop.bodyFunction();
  if (!body || !body.getBody().hasOneBlock())
    return badInput(describeOp(loop) + ": there is no function @" + loop.getBody().str());
  if (loop.getConditional())
    return badInput(describeOp(loop) +
                    ": how many steps it takes depends on run-time data, and a plan's launches follow from "
                    "sizes: it runs on the CPU only");
  llvm::SmallVector<BufferId> states;
  for (auto [initial, result] : llvm::zip(loop.getValues(), loop.getState())) {
    states.push_back(buffers[result] =
                         addBuffer(BufferPlan::Kind::Temporary, result, locationName(loop.getLoc())));
    if (Status status = planCopy(initial, views[initial], states.back(), loop); !status)
      return status;
  }
  auto shapesInside = nn::SymbolicShapes::compute(body);
  if (failed(shapesInside))
    return badInput(describeOp(loop) + ": the shapes in its body do not fit");
  llvm::SmallVector<View> arguments(states.size()); // the state lies in itself
  for (Value value : loop.getValues().drop_front(states.size())) {
    View view = views[value];
    // The ops of the body were grouped for operands that lie so.
    if (view.base != value && (!view.isContiguous() || !(view.offset == Dim(0)))) {
      const BufferId copy = addBuffer(BufferPlan::Kind::Temporary, value, locationName(loop.getLoc()));
      if (Status status = planCopy(value, view, copy, loop); !status)
        return status;
      buffers[value] = copy;
      view = View::contiguous(value, view.shape);
    }
    if (auto buffer = bufferOf(view.base); !buffer)
      return buffer.error();
    arguments.push_back(std::move(view));
  }

  PlanBuilder inside(body, options, target, *shapesInside, arguments);
  inside.isInLoop = true;
  inside.exchangeWith(*this);
  const auto first = static_cast<uint32_t>(inside.plan.steps.size());
  const auto place = static_cast<ptrdiff_t>(inside.plan.repetitions.size()); // those in its body come behind
  Status status = inside.planRounds(states);
  const ProgramPlan::Repetition rounds{first, static_cast<uint32_t>(inside.plan.steps.size()),
                                       nn::dimsFromAttr(*loop.getSteps()).front()};
  if (rounds.end > rounds.first)
    inside.plan.repetitions.insert(inside.plan.repetitions.begin() + place, rounds);
  inside.exchangeWith(*this);
  return status;
}

void PlanBuilder::exchangeWith(PlanBuilder &other) {
  std::swap(plan, other.plan);
  std::swap(prepared, other.prepared);
  std::swap(buffers, other.buffers);
  std::swap(kernels, other.kernels);
  std::swap(early, other.early);
}

Status PlanBuilder::planRounds(llvm::ArrayRef<BufferId> states) {
  Block &block = function.getBody().front();
  for (auto [argument, state] : llvm::zip(block.getArguments(), states))
    buffers[argument] = state;
  recordEqualities();
  for (Operation &op : block.without_terminator())
    if (Status status = planOp(&op); !status)
      return status;
  // What is read of the old state is copied before any of it is replaced.
  ValueRange next = block.getTerminator()->getOperands();
  llvm::DenseMap<Value, BufferId> aside;
  auto isState = [&](Value value) {
    auto argument = llvm::dyn_cast<BlockArgument>(value);
    return argument && argument.getArgNumber() < states.size();
  };
  auto stays = [&](size_t i) {
    return next[i] == block.getArgument(static_cast<unsigned>(i)) || views.isInPlace(next[i]);
  };
  for (size_t i = 0; i < states.size(); ++i) {
    const View &view = views[next[i]];
    if (stays(i) || !isState(view.base) || aside.contains(next[i]))
      continue;
    aside[next[i]] = addBuffer(BufferPlan::Kind::Temporary, next[i], "");
    if (Status status = planCopy(next[i], view, aside[next[i]], block.getTerminator()); !status)
      return status;
  }
  for (auto [value, copy] : aside)
    buffers[value] = copy;
  for (size_t i = 0; i < states.size(); ++i) {
    const View view = aside.contains(next[i]) ? View::contiguous(next[i], shapes[next[i]]) : views[next[i]];
    if (!stays(i))
      if (Status status = planCopy(next[i], view, states[i], block.getTerminator()); !status)
        return status;
  }
  return {};
}

} // namespace fusion
