// The sample plan with what it lacks: several ranks, tensor maps and workspace.
#pragma once

#include "SamplePlan.h"

namespace fusion::test {

/// The alternatives of the first step.
inline std::vector<Alternative> &firstOf(ProgramPlan &plan) { return plan.steps[0].alternatives; }

/// The sample for two ranks: its second kernel exchanges, or is left to the library.
inline ProgramPlan twoRanks() {
  ProgramPlan plan = samplePlan();
  plan.ranks = 2;
  plan.inputs[0].shard = PortPlan::Shard{0, 2};
  KernelPlan exchange = plan.kernels[1], call;
  exchange.name = "exchange";
  exchange.parameters.push_back({KernelPlan::Parameter::Kind::Exchange, "Exchange *", "exchange"});
  call.name = call.schedule = "all_reduce";
  call.isLibraryCall = true;
  call.parameters.assign(3, {KernelPlan::Parameter::Kind::Scalar, "i64", "n"});
  KernelLaunch launch = onlyLaunch(plan, 1);
  launch.kernel = 2;
  launch.arguments.push_back(ExchangeArgument());
  launch.sumsOver = "tp";
  plan.kernels.insert(plan.kernels.end(), {exchange, call});
  const Collective collective{CollectiveAlgorithm::TwoShot, Dim::symbol("n") * 4, Dim::symbol("n") * 8};
  plan.steps.push_back(
      {Step::Choice::Ranks, {{{}, {launch}, {}, collective, Alternative::Link::Last, launch}}});
  return plan;
}

/// The sample's second kernel takes a tensor map of `y`, workspace, and no offset.
inline ProgramPlan tiledPlan() {
  ProgramPlan plan = samplePlan();
  const Dim batch = Dim::symbol("batch"), n = Dim::symbol("n");
  plan.kernels[1].parameters[1] = {KernelPlan::Parameter::Kind::TensorMap, "const GRID_CONSTANT TensorMap",
                                   "b"};
  plan.kernels[1].parameters[2] = {KernelPlan::Parameter::Kind::Workspace, "f32 *", "partial"};
  plan.kernels[1].clusterX = 2;
  plan.kernels[1].cooperative = true;
  TensorMapArgument map{1, 0, false, DType::F32, {batch, n}, {n, 1}, {8, 16}};
  map.swizzle = TensorMapArgument::Swizzle::Bytes64;
  map.l2Promotion = TensorMapArgument::L2Promotion::Bytes128;
  map.outOfBounds = TensorMapArgument::OutOfBounds::NaN;
  onlyLaunch(plan, 1).arguments[1] = map;
  onlyLaunch(plan, 1).arguments[2] = WorkspaceArgument{batch * 64, WorkspaceArgument::Contents::KeptZero};
  return plan;
}

} // namespace fusion::test
